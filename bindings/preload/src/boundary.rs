//! Between C and Rust: errno, failure values, panics, and the question whether a descriptor is ours.

use std::ffi::{c_int, c_long};
use std::panic::{AssertUnwindSafe, catch_unwind};

use client::sockets::{Errno, Sockets, Verdict};

/// What a C function returns when it fails.
pub trait Failed {
    /// -1 or null.
    const FAILED: Self;
}

impl Failed for c_int {
    const FAILED: Self = -1;
}

impl Failed for isize {
    const FAILED: Self = -1;
}

impl Failed for c_long {
    const FAILED: Self = -1;
}

impl<T> Failed for *mut T {
    const FAILED: Self = std::ptr::null_mut();
}

/// This thread's errno.
#[inline]
pub fn errno() -> c_int {
    // SAFETY: the C library returns a valid pointer for the calling thread.
    unsafe { *libc::__errno_location() }
}

/// Sets this thread's errno.
#[inline]
pub fn set_errno(value: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value }
}

/// Runs `body`; on success errno stays as it was, on failure it is set.
#[inline]
pub fn answer<T: Failed>(body: impl FnOnce() -> Result<T, Errno>) -> T {
    let saved = errno();
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => {
            set_errno(saved);
            value
        }
        Ok(Err(error)) => {
            set_errno(error.raw_os_error());
            T::FAILED
        }
        Err(_) => {
            crate::kernel::log_line(
                "outboard: internal error in the library; the call fails with EIO, please report it",
            );
            set_errno(libc::EIO);
            T::FAILED
        }
    }
}

/// Serves a call on a followed descriptor; `None` when it is the kernel's.
#[inline]
pub fn serve<T: Failed>(fd: c_int, body: impl FnOnce(&'static Sockets) -> Verdict<T>) -> Option<T> {
    let sockets = crate::sockets()?;
    if !sockets.tracks(fd) {
        return None;
    }
    let mut kernel = false;
    let value = answer(|| match body(sockets) {
        Verdict::Done(result) => result,
        Verdict::Kernel => {
            kernel = true;
            Ok(T::FAILED)
        }
    });
    if kernel { None } else { Some(value) }
}
