//! System calls whose form differs from that of the C library's function.

use std::ffi::{c_char, c_int, c_long};
use std::time::{Duration, Instant};

use client::sockets::{Errno, Sockets};
use libc::{fd_set, nfds_t, pollfd, sigset_t, timespec};

use crate::boundary::{Failed, answer, set_errno, tell};
use crate::calls::descriptors::{control, made_by};
use crate::calls::ending::ending;
use crate::calls::programs::{Start, leaving};
use crate::calls::waiting::{from_timespec, mask_of, ours, select_ours};
use crate::{memory, real};

/// Bytes of a signal mask.
const MASK_BYTES: c_long = 8;

/// Makes the unmodified call.
///
/// # Safety
/// As the system call's.
unsafe fn as_it_is(number: c_long, arguments: [c_long; 6]) -> c_long {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: by the caller's promise.
    unsafe { real::syscall(number, a, b, c, d, e, f) }
}

fn failed(error: Errno) -> c_int {
    set_errno(error.raw_os_error());
    c_int::FAILED
}

/// Refuses a mask of another size than the kernel's.
fn checked_mask(mask: c_long, size: c_long) -> Result<(), Errno> {
    if mask == 0 || size == MASK_BYTES { Ok(()) } else { Err(Errno::INVAL) }
}

/// Makes a call with a mask of the right size.
pub(super) fn masked(mask: c_long, size: c_long, call: impl FnOnce() -> c_int) -> c_int {
    checked_mask(mask, size).map_or_else(failed, |()| call())
}

/// Writes the remaining time back, as ppoll(2) and pselect6(2) do and their functions do not.
fn write_back(time: c_long, limit: Option<Duration>, began: Instant) {
    let Some(limit) = limit.filter(|limit| !limit.is_zero()) else { return };
    let left = limit.saturating_sub(began.elapsed());
    let left =
        timespec { tv_sec: left.as_secs() as libc::time_t, tv_nsec: left.subsec_nanos().into() };
    // If it cannot be written, the call has still taken effect.
    let _ = memory::store(time as *mut timespec, left);
}

/// ppoll(2).
///
/// # Safety
/// As the system call's.
pub(super) unsafe fn ppoll(
    fds: c_long,
    count: c_long,
    time: c_long,
    mask: c_long,
    size: c_long,
) -> c_long {
    // SAFETY: the program's promise about `fds`.
    let Some((sockets, fds)) = (unsafe { ours(fds as *mut pollfd, count as nfds_t) }) else {
        // SAFETY: arguments passed through.
        return unsafe { as_it_is(libc::SYS_ppoll, [fds, count, time, mask, size, 0]) };
    };
    let began = Instant::now();
    let limit = from_timespec(time as *const timespec);
    let limit = match limit.and_then(|limit| checked_mask(mask, size).map(|()| limit)) {
        Ok(limit) => limit,
        Err(error) => return failed(error).into(),
    };
    let mask = mask_of(mask as *const sigset_t);
    let ready = answer(|| sockets.poll(fds, limit, mask).map(|ready| ready as c_int));
    write_back(time, limit, began);
    ready.into()
}

/// pselect6(2): its last argument points to a mask and its size.
///
/// # Safety
/// As the system call's.
pub(super) unsafe fn pselect6(
    count: c_long,
    sets: [c_long; 3],
    time: c_long,
    packed: c_long,
) -> c_long {
    let began = Instant::now();
    // SAFETY: any bytes are two words.
    let named = || unsafe { memory::load(packed as *const [c_long; 2]) };
    let named = if packed == 0 { Ok([0, 0]) } else { named() };
    let asked = from_timespec(time as *const timespec).and_then(|limit| {
        let [mask, size] = named?;
        checked_mask(mask, size).map(|()| (limit, mask_of(mask as *const sigset_t)))
    });
    let (limit, mask) = match asked {
        Ok((limit, mask)) => (Ok(limit), mask),
        Err(error) => (Err(error), None),
    };
    let fd_sets = sets.map(|set| set as *mut fd_set);
    // SAFETY: the program's promise about the sets.
    let ours = unsafe { select_ours(count as c_int, fd_sets, || limit, mask) };
    match (ours, limit) {
        (Some(ready), Ok(limit)) => {
            write_back(time, limit, began);
            ready.into()
        }
        (Some(ready), Err(_)) => ready.into(),
        (None, _) => {
            let [readable, writable, except] = sets;
            let asked = [count, readable, writable, except, time, packed];
            // SAFETY: arguments passed through.
            unsafe { as_it_is(libc::SYS_pselect6, asked) }
        }
    }
}

/// fcntl(2), some of whose commands the C library's function changes.
///
/// # Safety
/// As the system call's.
pub(super) unsafe fn fcntl(fd: c_long, command: c_long, argument: c_long) -> c_long {
    let (number, code) = (fd as c_int, command as c_int);
    control(number, code, argument as usize).map_or_else(
        || {
            // SAFETY: arguments passed through.
            let outcome = unsafe { as_it_is(libc::SYS_fcntl, [fd, command, argument, 0, 0, 0]) };
            made_by(code, outcome as c_int);
            outcome
        },
        c_long::from,
    )
}

/// `flags` of `struct clone_args`.
pub(super) fn clone3_flags(asked: c_long) -> u64 {
    // SAFETY: any bytes are a word.
    unsafe { memory::load(asked as *const u64) }.unwrap_or(0)
}

/// Creates a child with its own memory. In the child the layer starts anew if the caller is the
/// only thread. Otherwise another thread may hold the allocator's locks, which only fork(2) of the
/// C library repairs.
///
/// # Safety
/// As the system call's.
pub(super) unsafe fn fork(number: c_long, arguments: [c_long; 6], flags: u64) -> c_long {
    let is_alone = real::is_single_threaded();
    if is_alone && flags & libc::CLONE_FILES as u64 == 0 {
        crate::before_fork();
    }
    // SAFETY: arguments passed through.
    let child = unsafe { as_it_is(number, arguments) };
    if child == 0 {
        if flags & libc::CLONE_FILES as u64 != 0 {
            tell(Sockets::forked_with_shared_numbers);
        } else if is_alone {
            crate::after_fork_in_child();
        } else {
            tell(Sockets::forked_among_threads);
        }
    } else {
        crate::after_fork_in_parent();
    }
    child
}

/// This process is about to become the program at `path`, if that is known.
///
/// # Safety
/// As the system call's.
pub(super) unsafe fn exec(
    number: c_long,
    path: c_long,
    environment: c_long,
    arguments: [c_long; 6],
) -> c_long {
    // SAFETY: the program's promise about the environment.
    unsafe {
        // Arguments matter to epoll sets alone, which calls by number do not pass on.
        let (path, environment) = (path as *const c_char, environment as *const *const c_char);
        leaving(Start::Exec, path, std::ptr::null(), environment);
    }
    // SAFETY: arguments passed through.
    unsafe { as_it_is(number, arguments) }
}

/// The process ends without running destructors.
///
/// # Safety
/// As the system call's.
pub(super) unsafe fn exit_group(status: c_long) -> c_long {
    ending();
    // SAFETY: no memory is passed.
    unsafe { as_it_is(libc::SYS_exit_group, [status, 0, 0, 0, 0, 0]) }
}

/// A seccomp filter may kill the program for the layer's comparisons of numbers.
///
/// # Safety
/// As the system call's.
pub(super) unsafe fn seccomp(arguments: [c_long; 6]) -> c_long {
    tell(Sockets::stop_comparing);
    // SAFETY: arguments passed through.
    unsafe { as_it_is(libc::SYS_seccomp, arguments) }
}

/// io_uring_setup(2): operations of a ring cannot be accelerated, and programs without io_uring use
/// calls that can.
///
/// # Safety
/// As the system call's.
pub(super) unsafe fn io_uring_setup(arguments: [c_long; 6]) -> c_long {
    let passes = crate::passes_io_uring();
    tell(|sockets| sockets.notice_io_uring(!passes));
    if !passes {
        return failed(Errno::NOSYS).into();
    }
    // SAFETY: arguments passed through.
    unsafe { as_it_is(libc::SYS_io_uring_setup, arguments) }
}
