//! Checks by the kernel whether a page of the program can be used, by a call that copies and
//! changes nothing: futex(2) reads a word before anything else.

use std::ffi::{c_int, c_long, c_void};
use std::sync::atomic::AtomicU32;

use client::memory::{Access, forget, forget_all, is_usable, usable};
use client::sockets::Errno;

use crate::boundary::{errno, set_errno};
use crate::real;

const FUTEX_CMP_REQUEUE_PRIVATE: c_long = 4 | 128;
const FUTEX_WAKE_OP_PRIVATE: c_long = 5 | 128;
/// Adds 0 to the word, and wakes no thread unless it has this value.
const ADD_NOTHING: c_long = 1 << 28 | 0x7a5;

/// Whether the page that begins at an address can be used.
pub fn can_be_used(address: usize, access: Access) -> bool {
    /// A futex without waiters.
    static NOBODY: AtomicU32 = AtomicU32::new(0);
    let nobody = NOBODY.as_ptr().expose_provenance() as c_long;
    let word = address as c_long;
    let saved = errno();
    let outcome = match access {
        // SAFETY: moves none of those who wait there, if the word is 0; else does nothing.
        Access::Read => unsafe {
            real::syscall(libc::SYS_futex, word, FUTEX_CMP_REQUEUE_PRIVATE, 0, 0, word, 0)
        },
        // SAFETY: adds nothing to the word, as one step.
        Access::Write => unsafe {
            real::syscall(libc::SYS_futex, nobody, FUTEX_WAKE_OP_PRIVATE, 0, 0, word, ADD_NOTHING)
        },
    };
    let is_bad = outcome < 0 && errno() == libc::EFAULT;
    set_errno(saved);
    !is_bad
}

/// Copies a value from the program's memory; EFAULT when it cannot be read.
///
/// # Safety
/// Any bytes are a valid value.
pub unsafe fn load<T: Copy>(at: *const T) -> Result<T, Errno> {
    if !is_usable(at.addr(), size_of::<T>(), Access::Read) {
        return Err(Errno::FAULT);
    }
    // SAFETY: so many bytes are readable, and any are valid by the caller's promise.
    Ok(unsafe { at.read_unaligned() })
}

/// Copies a value to the program's memory; EFAULT when it cannot be written.
pub fn store<T: Copy>(at: *mut T, value: T) -> Result<(), Errno> {
    if !is_usable(at.addr(), size_of::<T>(), Access::Write) {
        return Err(Errno::FAULT);
    }
    // SAFETY: so many bytes are writable.
    unsafe { at.write_unaligned(value) };
    Ok(())
}

/// How many of `len` bytes can be written, starting at the first.
pub fn writable(at: *const u8, len: usize) -> usize {
    usable(at.addr(), len, Access::Write)
}

/// Whether `count` values can be read and written.
pub fn is_writable<T>(at: *const T, count: usize) -> bool {
    let len = count.saturating_mul(size_of::<T>());
    is_usable(at.addr(), len, Access::Write)
}

/// Whether `count` values can be read.
pub fn is_readable<T>(at: *const T, count: usize) -> bool {
    let len = count.saturating_mul(size_of::<T>());
    is_usable(at.addr(), len, Access::Read)
}

/// Defines functions that invalidate checks of memory.
macro_rules! unmappers {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty, $void:expr;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As the C function's.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> $ret {
                // SAFETY: arguments passed through.
                let outcome = unsafe { real::$name($($arg),*) };
                $void;
                outcome
            }
        )*
    };
}

unmappers! {
    /// munmap(2).
    munmap(at: *mut c_void, len: usize) -> c_int, forget(at.addr(), len);
    /// mprotect(2).
    mprotect(at: *mut c_void, len: usize, protection: c_int) -> c_int, forget(at.addr(), len);
    /// pkey_mprotect(2).
    pkey_mprotect(at: *mut c_void, len: usize, protection: c_int, key: c_int) -> c_int,
        forget(at.addr(), len);
    /// mremap(2). Variadic; its last argument is in the same register.
    mremap(at: *mut c_void, len: usize, new_len: usize, flags: c_int, to: *mut c_void) -> *mut c_void,
        moved((at.addr(), len), (flags, to.addr(), new_len));
    /// shmdt(2), which does not give the length of the segment.
    shmdt(at: *const c_void) -> c_int, forget_all();
}

/// After mremap(2), which may also replace other memory.
fn moved((at, len): (usize, usize), (flags, to, new_len): (c_int, usize, usize)) {
    forget(at, len);
    if flags & libc::MREMAP_FIXED != 0 {
        forget(to, new_len);
    }
}

/// mmap(2), which may replace other memory.
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn mmap(
    at: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: libc::off_t,
) -> *mut c_void {
    // SAFETY: arguments passed through.
    let outcome = unsafe { real::mmap(at, len, protection, flags, fd, offset) };
    if flags & libc::MAP_FIXED != 0 {
        forget(at.addr(), len);
    }
    outcome
}

/// mmap64(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn mmap64(
    at: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: libc::off64_t,
) -> *mut c_void {
    // SAFETY: arguments passed through; off_t has 64 bits on the machines served.
    unsafe { mmap(at, len, protection, flags, fd, offset) }
}
