//! The objects that programs hold, and the functions in their operation tables.
//!
//! Each object is a box whose first field is libfabric's structure, to which the program has a
//! pointer. A function casts it back, copies C's arguments, and calls `state` under the domain's
//! lock. An object cannot be closed before those opened on it (-FI_EBUSY).

pub mod counter;
pub mod domain;
pub mod endpoint;
pub mod events;
pub mod fabric;
pub mod messages;
pub mod polling;
pub mod queue;
pub mod registration;
pub mod source;
pub mod tagged;
pub mod vector;
pub mod waiting;

use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

use crate::abi::constants::*;
use crate::abi::objects::{Fid, FidOps};
use crate::abi::refused;

/// An object behind one of libfabric's structures.
///
/// # Safety
/// The type is `repr(C)` and begins with its `Head`, which begins with a `Fid`.
pub unsafe trait Object: Sized {
    /// libfabric's structure.
    type Head;

    /// Passes the object to the program.
    ///
    /// # Safety
    /// `place` is writable.
    unsafe fn hand_over(self, place: *mut *mut Self::Head) -> i32 {
        // SAFETY: the caller's promise.
        unsafe { *place = Box::into_raw(Box::new(self)).cast() };
        0
    }

    /// The object of a program's pointer.
    ///
    /// # Safety
    /// `head` came from [`Object::hand_over`] of the same type and is open.
    unsafe fn of<'a>(head: *mut Self::Head) -> &'a Self {
        // SAFETY: the caller's promise.
        unsafe { &*head.cast::<Self>() }
    }

    /// As [`Object::of`], by its leading `struct fid`.
    ///
    /// # Safety
    /// As there.
    unsafe fn of_fid<'a>(fid: *mut Fid) -> &'a Self {
        // SAFETY: the caller's promise.
        unsafe { &*fid.cast::<Self>() }
    }

    /// Ends the object.
    ///
    /// # Safety
    /// As [`Object::of_fid`]; nothing uses it any more.
    unsafe fn end(fid: *mut Fid) -> i32 {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(fid.cast::<Self>()) });
        0
    }
}

/// The `struct fid` of a new object.
fn fid(class: usize, context: *mut c_void, ops: &'static FidOps) -> Fid {
    Fid { class, context, ops }
}

/// A table of the functions common to all objects.
const fn fid_ops(
    close: unsafe extern "C" fn(*mut Fid) -> i32,
    bind: unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> i32,
    control: unsafe extern "C" fn(*mut Fid, i32, *mut c_void) -> i32,
) -> FidOps {
    FidOps {
        size: size_of::<FidOps>(),
        close,
        bind,
        control,
        ops_open: refused,
        tostr: refused,
        ops_set: refused,
    }
}

/// For objects that cannot be bound.
unsafe extern "C" fn no_bind(_: *mut Fid, _: *mut Fid, _: u64) -> i32 {
    -FI_ENOSYS
}

/// Of objects without commands.
unsafe extern "C" fn no_control(_: *mut Fid, _: i32, _: *mut c_void) -> i32 {
    -FI_ENOSYS
}

/// Whether nothing but the object itself holds what it stands for.
fn is_unused<T>(shared: &Arc<T>) -> bool {
    Arc::strong_count(shared) == 1
}

/// The text for an errno, also copied to the program's buffer if there is one.
///
/// # Safety
/// `buffer` is null or has `len` writable bytes.
unsafe fn words(errno: i32, buffer: *mut c_char, len: usize) -> *const c_char {
    // SAFETY: strerror gives a C string; the copy ends within both.
    unsafe {
        let words = libc::strerror(errno);
        if !buffer.is_null() && len > 0 {
            let bytes = CStr::from_ptr(words).to_bytes();
            let taken = bytes.len().min(len - 1);
            std::ptr::copy_nonoverlapping(words, buffer, taken);
            *buffer.add(taken) = 0;
            return buffer;
        }
        words
    }
}

/// Copies an address to a program's buffer, truncated to its length, and writes the full length.
///
/// # Safety
/// `len` is readable and writable, and `buffer` has that many writable bytes.
unsafe fn copy_address(address: std::net::SocketAddr, buffer: *mut c_void, len: *mut usize) -> i32 {
    let (raw, size) = crate::info::to_raw(address);
    // SAFETY: the caller's promise.
    unsafe {
        let room = *len;
        *len = size;
        if !buffer.is_null() {
            std::ptr::copy_nonoverlapping(raw.as_ptr(), buffer.cast(), size.min(room));
        }
        if room < size { -FI_ETOOSMALL } else { 0 }
    }
}
