//! Making, naming and configuring sockets.

use std::ffi::{c_int, c_void};

use client::sockets::{Errno, Verdict};
use libc::{sockaddr, socklen_t};

use crate::boundary::serve;
use crate::{addresses, real};

/// socket(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: arguments passed through.
    let fd = unsafe { real::socket(domain, kind, protocol) };
    if fd >= 0
        && let Some(sockets) = crate::sockets()
    {
        crate::boundary::answer(|| {
            sockets.created(fd, domain, kind, protocol);
            Ok(fd)
        });
    }
    fd
}

/// bind(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    serve(fd, |sockets| {
        // SAFETY: the program's promise about `addr` and `len`.
        match unsafe { addresses::read(addr, len) } {
            Ok(Some(addr)) => sockets.bind(fd, addr).map(|()| 0),
            Ok(None) => Verdict::Kernel,
            Err(error) => Verdict::Done(Err(error)),
        }
    })
    // SAFETY: arguments passed through.
    .unwrap_or_else(|| unsafe { real::bind(fd, addr, len) })
}

/// listen(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    serve(fd, |sockets| sockets.listen(fd, backlog).map(|()| 0))
        // SAFETY: arguments passed through.
        .unwrap_or_else(|| unsafe { real::listen(fd, backlog) })
}

/// accept(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: the program's promises about `addr` and `len`.
    unsafe { take(fd, addr, len, 0) }
        // SAFETY: arguments passed through.
        .unwrap_or_else(|| unsafe { real::accept(fd, addr, len) })
}

/// accept4(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept4(
    fd: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's promises about `addr` and `len`.
    unsafe { take(fd, addr, len, flags) }
        // SAFETY: arguments passed through.
        .unwrap_or_else(|| unsafe { real::accept4(fd, addr, len, flags) })
}

/// # Safety
/// `addr` and `len` as accept(2) demands.
unsafe fn take(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> Option<c_int> {
    serve(fd, |sockets| {
        sockets.accept(fd, flags).map(|(new, peer)| {
            // SAFETY: by the caller's promise.
            unsafe { addresses::write(peer, addr, len) };
            new
        })
    })
}

/// connect(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    serve(fd, |sockets| {
        // SAFETY: the program's promise about `addr` and `len`.
        let (family, addr) = unsafe { (addresses::family(addr, len), addresses::read(addr, len)) };
        match addr {
            Ok(None) if family != Some(libc::AF_UNSPEC) => match sockets.accelerated(fd) {
                true => Verdict::Done(Err(Errno::ISCONN)),
                // The kernel knows what is wrong with it.
                false => Verdict::Kernel,
            },
            Ok(addr) => sockets.connect(fd, addr).map(|()| 0),
            Err(error) => Verdict::Done(Err(error)),
        }
    })
    // SAFETY: arguments passed through.
    .unwrap_or_else(|| unsafe { real::connect(fd, addr, len) })
}

/// shutdown(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    serve(fd, |sockets| sockets.shutdown(fd, how).map(|()| 0))
        // SAFETY: arguments passed through.
        .unwrap_or_else(|| unsafe { real::shutdown(fd, how) })
}

/// getsockname(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockname(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    serve(fd, |sockets| {
        sockets.local(fd).map(|name| {
            // SAFETY: the program's promise about `addr` and `len`.
            unsafe { addresses::write(name, addr, len) };
            0
        })
    })
    // SAFETY: arguments passed through.
    .unwrap_or_else(|| unsafe { real::getsockname(fd, addr, len) })
}

/// getpeername(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getpeername(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    serve(fd, |sockets| {
        sockets.remote(fd).map(|name| {
            // SAFETY: the program's promise about `addr` and `len`.
            unsafe { addresses::write(name, addr, len) };
            0
        })
    })
    // SAFETY: arguments passed through.
    .unwrap_or_else(|| unsafe { real::getpeername(fd, addr, len) })
}

/// getsockopt(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    serve(fd, |sockets| {
        if value.is_null() || len.is_null() {
            return Verdict::Kernel;
        }
        let mut answer = [0_u8; 256];
        sockets.option(fd, level, name, &mut answer).map(|full| {
            // SAFETY: `len` names the room at `value`, by the program's promise.
            unsafe {
                let count = full.min(*len as usize).min(answer.len());
                std::ptr::copy_nonoverlapping(answer.as_ptr(), value.cast::<u8>(), count);
                *len = count as socklen_t;
            }
            0
        })
    })
    // SAFETY: arguments passed through.
    .unwrap_or_else(|| unsafe { real::getsockopt(fd, level, name, value, len) })
}

/// setsockopt(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    serve(fd, |sockets| {
        if value.is_null() {
            return if len == 0 { Verdict::Kernel } else { Verdict::Done(Err(Errno::FAULT)) };
        }
        // SAFETY: `len` bytes are readable at `value`, by the program's promise.
        let bytes = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), len as usize) };
        sockets.set_option(fd, level, name, bytes).map(|()| 0)
    })
    // SAFETY: arguments passed through.
    .unwrap_or_else(|| unsafe { real::setsockopt(fd, level, name, value, len) })
}
