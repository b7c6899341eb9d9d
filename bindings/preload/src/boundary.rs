//! Between C and Rust: errno, failure values, panics, cancelled threads, and the question whether a
//! descriptor is ours.
//!
//! A thread that is cancelled is unwound by the C library. It must not be in the midst of the layer
//! then: from the first time that a program cancels a thread, or lets one be cancelled anywhere, calls
//! of the layer are made with that put off; what those call that wait already is no cancellation point.
//! What is on the stack outside of [`contained`], here and in `calls`, has nothing to be undone, so that it
//! may be unwound at any instruction.

use std::cell::Cell;
use std::ffi::{c_int, c_long};
use std::panic::{AssertUnwindSafe, catch_unwind};

use client::sockets::{Errno, Sockets, Verdict};

use crate::real;

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

unsafe extern "C-unwind" {
    /// pthread_setcancelstate(3), which may end the thread.
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    /// pthread_testcancel(3).
    fn pthread_testcancel();
}

/// linux/pthread.h; not in the libc crate.
const PTHREAD_CANCEL_ENABLE: c_int = 0;
const PTHREAD_CANCEL_DISABLE: c_int = 1;
const PTHREAD_CANCEL_DEFERRED: c_int = 0;
pub const PTHREAD_CANCEL_ASYNCHRONOUS: c_int = 1;

thread_local! {
    /// Whether the program lets this thread be cancelled, while that is put off.
    static LETS_CANCEL: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Whether the program lets this thread be cancelled. Asked within a call, where nothing acts on it.
pub fn lets_cancel() -> bool {
    LETS_CANCEL.get().unwrap_or_else(|| {
        // The call began before the program cancelled any thread.
        let mut state = PTHREAD_CANCEL_DISABLE;
        // SAFETY: room for an int, and a state as it was.
        unsafe {
            pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut state);
            pthread_setcancelstate(state, std::ptr::null_mut());
        }
        state == PTHREAD_CANCEL_ENABLE
    })
}

/// Runs `body` while this thread cannot be cancelled. To disable would not do: of a thread that can be
/// cancelled anywhere, glibc's handler looks at the type only, and may come later. `lets` learns whether
/// the program lets the thread be cancelled, and says whether the layer's waits are to heed it.
fn shielded<T>(lets: impl FnOnce(bool) -> bool, body: impl FnOnce() -> T) -> T {
    let (mut kind, mut state) = (PTHREAD_CANCEL_DEFERRED, PTHREAD_CANCEL_DISABLE);
    // SAFETY: room for two ints.
    unsafe {
        real::pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &raw mut kind);
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut state);
    }
    let outer = LETS_CANCEL.replace(Some(lets(state == PTHREAD_CANCEL_ENABLE)));
    let value = body();
    LETS_CANCEL.set(outer);
    // SAFETY: both as they were; a thread that was cancelled may end here.
    unsafe {
        pthread_setcancelstate(state, std::ptr::null_mut());
        real::pthread_setcanceltype(kind, std::ptr::null_mut());
    }
    value
}

/// Runs `body` where a thread that is cancelled ends only once the layer is off its stack.
#[cold]
#[inline(never)]
fn uncancelled<T>(body: impl FnOnce() -> T) -> T {
    shielded(|lets| lets, body)
}

/// Runs a wrapper whose C function is a cancellation point on behalf of a call that is none: syscall(2).
pub fn without_points<T>(body: impl FnOnce() -> T) -> T {
    shielded(|_| false, body)
}

/// At the beginning of a cancellation point: a thread that was cancelled ends here.
#[inline]
fn end_if_cancelled(sockets: &'static Sockets) {
    // Where a handler calls in the middle of another call, that one looks for itself.
    if sockets.may_cancel() && LETS_CANCEL.get().is_none() {
        tell(Sockets::calls);
        // SAFETY: nothing on the stack is to be undone.
        unsafe { pthread_testcancel() };
    }
}

/// A call has come back because its thread was cancelled.
#[cold]
#[inline(never)]
fn end_cancelled() {
    // Nobody looks for it any more.
    tell(Sockets::calls);
    // SAFETY: nothing on the stack is to be undone.
    unsafe { pthread_testcancel() };
    set_errno(libc::EINTR);
}

/// Runs `body`; on success errno stays as it was, on failure it is set.
#[inline]
pub fn answer<T: Failed>(body: impl FnOnce() -> Result<T, Errno>) -> T {
    let may_cancel = crate::sockets().is_some_and(Sockets::may_cancel);
    let (value, is_cancelled) =
        if may_cancel { uncancelled(|| contained(body)) } else { contained(body) };
    if is_cancelled {
        end_cancelled();
    }
    value
}

/// The same at a cancellation point.
#[inline]
pub fn answer_point<T: Failed>(
    sockets: &'static Sockets,
    body: impl FnOnce() -> Result<T, Errno>,
) -> T {
    end_if_cancelled(sockets);
    answer(body)
}

/// Runs `body` where panics end; with whether it has failed because its thread was cancelled.
#[inline(never)]
fn contained<T: Failed>(body: impl FnOnce() -> Result<T, Errno>) -> (T, bool) {
    let saved = errno();
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => {
            set_errno(saved);
            (value, false)
        }
        Ok(Err(error)) => {
            set_errno(error.raw_os_error());
            (T::FAILED, error == Errno::CANCELED)
        }
        Err(_) => {
            crate::kernel::log_line(
                "outboard: internal error in the library; the call fails with EIO, please report it",
            );
            set_errno(libc::EIO);
            (T::FAILED, false)
        }
    }
}

/// Asks the layer what cannot fail; false without a layer.
#[inline]
pub fn asks(question: impl FnOnce(&'static Sockets) -> bool) -> bool {
    let Some(sockets) = crate::sockets() else { return false };
    answer(|| Ok(c_int::from(question(sockets)))) == 1
}

/// Whether a descriptor is a connection of the engine.
#[inline]
pub fn is_accelerated(fd: c_int) -> bool {
    followed(fd).is_some() && asks(|sockets| sockets.accelerated(fd))
}

/// Tells the layer something.
#[inline]
pub fn tell(news: impl FnOnce(&'static Sockets)) {
    asks(|sockets| {
        news(sockets);
        true
    });
}

/// The layer, if it follows a descriptor.
#[inline]
fn followed(fd: c_int) -> Option<&'static Sockets> {
    crate::sockets().filter(|sockets| sockets.follows(fd))
}

/// Serves a call on a followed descriptor; `None` when it is the kernel's.
#[inline]
pub fn serve<T: Failed>(fd: c_int, body: impl FnOnce(&'static Sockets) -> Verdict<T>) -> Option<T> {
    decided(followed(fd)?, body)
}

/// The same at a cancellation point.
#[inline]
pub fn serve_point<T: Failed>(
    fd: c_int,
    body: impl FnOnce(&'static Sockets) -> Verdict<T>,
) -> Option<T> {
    let sockets = followed(fd)?;
    end_if_cancelled(sockets);
    decided(sockets, body)
}

#[inline]
fn decided<T: Failed>(
    sockets: &'static Sockets,
    body: impl FnOnce(&'static Sockets) -> Verdict<T>,
) -> Option<T> {
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
