//! Between C and Rust: errno, failure values, panics, cancelled threads, and the check whether a
//! descriptor is tracked.
//!
//! The C library unwinds a thread that is cancelled. It must not be inside the layer then: from the
//! first time that a program cancels a thread, or enables asynchronous cancellation, calls of the
//! layer are made with cancellation deferred; system calls made by waits already in progress are
//! not cancellation points. Frames outside of [`contained`], here and in `calls`, have nothing to
//! undo, so they can be unwound at any instruction.

use std::cell::Cell;
use std::ffi::{c_int, c_long};
use std::panic::{AssertUnwindSafe, catch_unwind};

use client::sockets::{Errno, Sockets, Verdict};

use crate::real;

/// The return value of a failed C function.
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
    /// Whether the program has enabled cancellation of this thread, while it is deferred here.
    static LETS_CANCEL: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Whether the program has enabled cancellation of this thread. Called within a call, where nothing
/// acts on it.
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

/// Runs `body` while this thread cannot be cancelled. Disabling is not enough: for a thread with
/// asynchronous cancellation, glibc's handler checks only the type, and may run late. `lets` is
/// passed whether the program has enabled cancellation, and returns whether the layer's waits must
/// honour it.
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

/// Runs `body` so that a cancelled thread ends only when the layer is off its stack.
#[cold]
#[inline(never)]
fn uncancelled<T>(body: impl FnOnce() -> T) -> T {
    shielded(|lets| lets, body)
}

/// Runs a wrapper whose C function is a cancellation point for a call that is not one: syscall(2).
pub fn without_points<T>(body: impl FnOnce() -> T) -> T {
    shielded(|_| false, body)
}

/// At the beginning of a cancellation point: a cancelled thread ends here.
#[inline]
fn end_if_cancelled(sockets: &'static Sockets) {
    // If a handler has interrupted another call, that one checks for itself.
    if sockets.may_cancel() && LETS_CANCEL.get().is_none() {
        tell(Sockets::calls);
        // SAFETY: nothing on the stack is to be undone.
        unsafe { pthread_testcancel() };
    }
}

/// A call has returned because its thread was cancelled.
#[cold]
#[inline(never)]
fn end_cancelled() {
    // It is not tracked any more.
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

/// Runs `body` and stops panics; returns with it whether it failed because its thread was
/// cancelled.
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

/// Calls the layer with an infallible query; false without a layer.
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

/// Notifies the layer.
#[inline]
pub fn tell(news: impl FnOnce(&'static Sockets)) {
    asks(|sockets| {
        news(sockets);
        true
    });
}

/// The layer, if it tracks a descriptor.
#[inline]
fn followed(fd: c_int) -> Option<&'static Sockets> {
    crate::sockets().filter(|sockets| sockets.follows(fd))
}

/// Serves a call on a tracked descriptor; `None` if it is the kernel's.
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
