//! Cancelling threads, some of which may be in a call of the layer.

use std::ffi::c_int;

use libc::pthread_t;

use crate::boundary::{PTHREAD_CANCEL_ASYNCHRONOUS, answer};
use crate::real;

/// pthread_cancel(3).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_cancel(thread: pthread_t) -> c_int {
    if let Some(sockets) = crate::sockets() {
        sockets.begin_cancelling();
        // SAFETY: asks for a number only.
        if unsafe { libc::pthread_self() } != thread {
            let mut told = 0;
            answer(|| {
                // SAFETY: arguments passed through.
                told = sockets.cancel(thread as usize, || unsafe { real::pthread_cancel(thread) });
                Ok::<c_int, _>(0)
            });
            return told;
        }
    }
    // SAFETY: arguments passed through.
    unsafe { real::pthread_cancel(thread) }
}

/// pthread_setcanceltype(3).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int {
    if kind == PTHREAD_CANCEL_ASYNCHRONOUS
        && let Some(sockets) = crate::sockets()
    {
        sockets.begin_cancelling();
    }
    // SAFETY: arguments passed through.
    unsafe { real::pthread_setcanceltype(kind, before) }
}
