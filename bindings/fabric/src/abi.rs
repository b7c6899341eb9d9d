//! The layouts and constants of libfabric 1.17's public headers, by hand; `abi/tests.rs` compares
//! them with what a C compiler makes of the installed headers.
//!
//! Enumerations are integers here: a program may store any value in them.

pub mod constants;
pub mod entries;
pub mod info;
pub mod objects;

#[cfg(test)]
mod tests;

use std::ffi::c_void;

/// A `struct iovec` array's element.
pub type Iovec = libc::iovec;

/// `fi_addr_t`.
pub type FiAddr = u64;

/// `ssize_t (*)()` of an operation that is not provided. libfabric calls it with the arguments of
/// the real operation, which the C calling conventions of Linux leave to the caller to remove.
pub type Refused = unsafe extern "C" fn() -> isize;

/// Answers -FI_ENOSYS, whatever the operation.
pub unsafe extern "C" fn refused() -> isize {
    -(constants::FI_ENOSYS as isize)
}

/// A table of operations none of which is provided.
#[repr(C)]
pub struct RefusedOps<const N: usize> {
    size: usize,
    slots: [Refused; N],
}

impl<const N: usize> RefusedOps<N> {
    /// A table that answers -FI_ENOSYS to everything.
    pub const fn new() -> Self {
        Self { size: size_of::<Self>(), slots: [refused; N] }
    }
}

/// `struct fi_provider`.
#[repr(C)]
pub struct Provider {
    pub version: u32,
    pub fi_version: u32,
    /// libfabric's own notes about the provider.
    pub context: [*mut c_void; 4],
    pub name: *const libc::c_char,
    pub getinfo: unsafe extern "C" fn(
        u32,
        *const libc::c_char,
        *const libc::c_char,
        u64,
        *const info::Info,
        *mut *mut info::Info,
    ) -> i32,
    pub fabric: unsafe extern "C" fn(
        *mut info::FabricAttr,
        *mut *mut objects::FidFabric,
        *mut c_void,
    ) -> i32,
    pub cleanup: unsafe extern "C" fn(),
}
