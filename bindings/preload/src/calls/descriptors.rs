//! Descriptors as such: closing, duplicating, flags; and calls that bypass the library.

use std::ffi::{c_char, c_int, c_uint, c_void};

use client::sockets::{Errno, Owner, Queue, Sockets, Verdict};

use super::opening::appeared;
use crate::boundary::{answer, asks, is_accelerated, serve, serve_point, tell};
use crate::{memory, real};

/// close(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    serve_point(fd, |sockets| sockets.closing(fd).map(|()| 0))
        // SAFETY: arguments passed through.
        .unwrap_or_else(|| unsafe { real::close(fd) })
}

/// fclose(3): glibc closes the descriptor internally, so it is recorded here.
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fclose(stream: *mut libc::FILE) -> c_int {
    if !stream.is_null() && crate::sockets().is_some() {
        // SAFETY: the program's promise about `stream`.
        let fd = unsafe { libc::fileno(stream) };
        let _ = serve(fd, |sockets| sockets.replacing(fd).map(|()| 0));
    }
    // SAFETY: arguments passed through.
    unsafe { real::fclose(stream) }
}

/// fdopen(3): reads and writes of the stream happen inside glibc and cannot be accelerated.
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fdopen(fd: c_int, mode: *const c_char) -> *mut libc::FILE {
    if is_accelerated(fd) {
        tell(|sockets| sockets.notice_stdio(fd));
    }
    // SAFETY: arguments passed through.
    unsafe { real::fdopen(fd, mode) }
}

/// close_range(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    const CLOEXEC: c_int = 4;
    let Some(sockets) = crate::sockets() else {
        // SAFETY: arguments passed through.
        return unsafe { real::close_range(first, last, flags) };
    };
    if flags & CLOEXEC != 0 || first > last {
        // SAFETY: arguments passed through.
        return unsafe { real::close_range(first, last, flags) };
    }
    let mut outcome = 0;
    answer(|| {
        sockets.closing_range(first, last, &mut |from, to| {
            // SAFETY: a part of the range that the program asked to close.
            outcome |= unsafe { real::close_range(from, to, flags) };
        });
        Ok(0)
    });
    outcome
}

/// closefrom(3).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn closefrom(first: c_int) {
    // SAFETY: arguments passed through.
    unsafe { close_range(first.max(0) as c_uint, c_uint::MAX, 0) };
}

/// Makes the new number refer to the object of the old one.
fn shared(old: c_int, new: c_int) -> c_int {
    if new < 0 {
        return new;
    }
    let follows = |sockets: &&Sockets| sockets.tracks(old) && asks(|sockets| sockets.follows(old));
    match crate::sockets().filter(follows) {
        Some(_) => tell(|sockets| sockets.duplicated(old, new)),
        None => {
            appeared(new);
        }
    }
    new
}

/// dup(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup(fd: c_int) -> c_int {
    // SAFETY: arguments passed through.
    shared(fd, unsafe { real::dup(fd) })
}

/// Drops the entry of a number before dup2 replaces its object; false if the number is the
/// library's own and must stay.
fn replaced(old: c_int, new: c_int) -> bool {
    let Some(sockets) = crate::sockets() else { return true };
    if old == new || !sockets.tracks(new) {
        return true;
    }
    // SAFETY: asks for flags only: a bad `old` must leave `new` alone.
    if unsafe { real::fcntl(old, libc::F_GETFD, 0) } < 0 {
        return true;
    }
    answer(|| match sockets.replacing(new) {
        Verdict::Done(Err(Errno::BADF)) => {
            // The number wanted by the program is a descriptor of the library: move it.
            if sockets.yield_number(new) { Ok(0) } else { Err(Errno::BUSY) }
        }
        _ => Ok(0),
    }) == 0
}

/// dup2(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup2(old: c_int, new: c_int) -> c_int {
    if !replaced(old, new) {
        return -1;
    }
    // SAFETY: arguments passed through.
    let outcome = unsafe { real::dup2(old, new) };
    if old == new { outcome } else { shared(old, outcome) }
}

/// dup3(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    if !replaced(old, new) {
        return -1;
    }
    // SAFETY: arguments passed through.
    shared(old, unsafe { real::dup3(old, new, flags) })
}

/// linux/fcntl.h; not in the libc crate.
pub(crate) const F_SETSIG: c_int = 10;
const F_GETSIG: c_int = 11;
pub(crate) const F_SETOWN_EX: c_int = 15;
const F_GETOWN_EX: c_int = 16;
/// asm-generic/sockios.h and ioctls.h, as above.
const FIOSETOWN: libc::c_ulong = 0x8901;
const SIOCSPGRP: libc::c_ulong = 0x8902;
const FIOGETOWN: libc::c_ulong = 0x8903;
const SIOCGPGRP: libc::c_ulong = 0x8904;
const FIOASYNC: libc::c_ulong = 0x5452;

/// `struct f_owner_ex`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct OwnerOfKind {
    pub kind: c_int,
    pub id: libc::pid_t,
}

/// fcntl(2) on a tracked number.
pub(super) fn control(fd: c_int, command: c_int, arg: usize) -> Option<c_int> {
    serve(fd, |sockets| match command {
        libc::F_GETFL => sockets.status_flags(fd),
        libc::F_SETFL => sockets.set_status_flags(fd, arg as c_int).map(|()| 0),
        libc::F_SETOWN => sockets.set_owner(fd, Owner::of_number(arg as c_int)).map(|()| 0),
        libc::F_GETOWN => sockets.owner(fd).map(Owner::number),
        // For invalid memory, the kernel returns the right error.
        F_SETOWN_EX if !memory::is_readable(arg as *const OwnerOfKind, 1) => Verdict::Kernel,
        F_GETOWN_EX if !memory::is_writable(arg as *const OwnerOfKind, 1) => Verdict::Kernel,
        F_SETOWN_EX => {
            // SAFETY: F_SETOWN_EX takes a pointer to the struct, which can be read.
            let owner = unsafe { (arg as *const OwnerOfKind).read_unaligned() };
            sockets.set_owner(fd, Owner::of_kind(owner.kind, owner.id)).map(|()| 0)
        }
        F_GETOWN_EX => sockets.owner(fd).map(|owner| {
            let (kind, id) = owner.parts();
            // SAFETY: F_GETOWN_EX takes a pointer to the struct.
            unsafe { (arg as *mut OwnerOfKind).write_unaligned(OwnerOfKind { kind, id }) };
            0
        }),
        F_SETSIG => sockets.set_owner_signal(fd, arg as c_int).map(|()| 0),
        F_GETSIG => sockets.owner_signal(fd),
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            // SAFETY: arguments passed through.
            let new = unsafe { real::fcntl(fd, command, arg) };
            if new < 0 {
                return Verdict::Done(Err(Errno::from_raw_os_error(crate::boundary::errno())));
            }
            sockets.duplicated(fd, new);
            Verdict::Done(Ok(new))
        }
        _ => Verdict::Kernel,
    })
}

/// The result of fcntl on an untracked number, which may be a new number.
pub(super) fn made_by(command: c_int, outcome: c_int) -> c_int {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => appeared(outcome),
        _ => outcome,
    }
}

/// fcntl(2). The C function is variadic; its third argument is in the same register.
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, arg: usize) -> c_int {
    control(fd, command, arg)
        // SAFETY: arguments passed through.
        .unwrap_or_else(|| made_by(command, unsafe { real::fcntl(fd, command, arg) }))
}

/// fcntl64(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, arg: usize) -> c_int {
    control(fd, command, arg)
        // SAFETY: arguments passed through.
        .unwrap_or_else(|| made_by(command, unsafe { real::fcntl64(fd, command, arg) }))
}

/// Whether the next byte is the urgent one (asm-generic/sockios.h); not in the libc crate.
const SIOCATMARK: libc::c_ulong = 0x8905;
/// Arrival time of the last data read, as a `struct timeval` or `timespec`; also by the names of
/// 2019.
const SIOCGSTAMP: libc::c_ulong = 0x8906;
const SIOCGSTAMPNS: libc::c_ulong = 0x8907;
const SIOCGSTAMP_NEW: libc::c_ulong = 0x8010_8906;
const SIOCGSTAMPNS_NEW: libc::c_ulong = 0x8010_8907;

/// ioctl(2). Variadic as fcntl.
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ioctl(fd: c_int, request: usize, arg: usize) -> c_int {
    serve(fd, |sockets| {
        let int = arg as *mut c_int;
        // For invalid memory, the kernel returns the right error.
        let (can_read, can_write) =
            (|| memory::is_readable(int, 1), || memory::is_writable(int, 1));
        match request as libc::c_ulong {
            libc::FIONBIO if can_read() => {
                // SAFETY: FIONBIO takes a pointer to an int.
                let on = unsafe { int.read_unaligned() } != 0;
                sockets.set_nonblocking(fd, on).map(|()| 0)
            }
            FIOASYNC if can_read() => {
                // SAFETY: FIOASYNC takes a pointer to an int.
                let on = unsafe { int.read_unaligned() } != 0;
                sockets.set_asynchronous(fd, on).map(|()| 0)
            }
            FIOSETOWN | SIOCSPGRP if can_read() => {
                // SAFETY: both take a pointer to an int.
                let owner = unsafe { int.read_unaligned() };
                sockets.set_owner(fd, Owner::of_number(owner)).map(|()| 0)
            }
            FIOGETOWN | SIOCGPGRP if can_write() => sockets.owner(fd).map(|owner| {
                // SAFETY: both take a pointer to an int.
                unsafe { int.write_unaligned(owner.number()) };
                0
            }),
            SIOCATMARK if can_write() => sockets.at_mark(fd).map(|at_mark| {
                // SAFETY: SIOCATMARK takes a pointer to an int.
                unsafe { int.write_unaligned(c_int::from(at_mark)) };
                0
            }),
            SIOCGSTAMP | SIOCGSTAMP_NEW | SIOCGSTAMPNS | SIOCGSTAMPNS_NEW
                if memory::is_writable(arg as *const [u64; 2], 1) =>
            {
                let parts = if matches!(request as libc::c_ulong, SIOCGSTAMP | SIOCGSTAMP_NEW) {
                    1_000_000
                } else {
                    1_000_000_000
                };
                sockets.last_arrival(fd).map(|at| {
                    let time = [at / 1_000_000_000, at % 1_000_000_000 / (1_000_000_000 / parts)];
                    // SAFETY: all of them take a pointer to two words, seconds and parts of one.
                    unsafe { (arg as *mut [u64; 2]).write_unaligned(time) };
                    0
                })
            }
            request => match Queue::asked_by(request).filter(|_| can_write()) {
                Some(queue) => sockets.queued(fd, queue).map(|count| {
                    // SAFETY: all of them take a pointer to an int.
                    unsafe { int.write_unaligned(c_int::try_from(count).unwrap_or(c_int::MAX)) };
                    0
                }),
                None => Verdict::Kernel,
            },
        }
    })
    // SAFETY: arguments passed through.
    .unwrap_or_else(|| unsafe { real::ioctl(fd, request, arg) })
}

/// sockatmark(3), which calls the C library's own ioctl.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn sockatmark(fd: c_int) -> c_int {
    serve(fd, |sockets| sockets.at_mark(fd).map(c_int::from)).unwrap_or_else(|| {
        let mut at_mark: c_int = 0;
        // SAFETY: SIOCATMARK takes a pointer to an int.
        let told = unsafe { real::ioctl(fd, SIOCATMARK as usize, (&raw mut at_mark).addr()) };
        if told < 0 { -1 } else { at_mark }
    })
}

/// io_uring_setup of liburing: noted once; its operations go to the kernel.
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn io_uring_setup(entries: c_uint, params: *mut c_void) -> c_int {
    tell(|sockets| sockets.notice_io_uring(false));
    // SAFETY: arguments passed through.
    unsafe { real::io_uring_setup(entries, params) }
}

/// io_uring_queue_init_params of liburing: noted once.
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn io_uring_queue_init_params(
    entries: c_uint,
    ring: *mut c_void,
    params: *mut c_void,
) -> c_int {
    tell(|sockets| sockets.notice_io_uring(false));
    // SAFETY: arguments passed through.
    unsafe { real::io_uring_queue_init_params(entries, ring, params) }
}
