//! Creating, naming and configuring sockets.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;

use client::sockets::{Errno, TCP_ZEROCOPY_RECEIVE, Verdict};
use libc::{sockaddr, socklen_t};

use super::descriptors;
use super::opening::appeared;
use crate::boundary::{serve, serve_point};
use crate::{addresses, memory, real};

/// Room for a result of getsockopt(2); TCP_INFO has 280 bytes, and grows.
const ANSWER_BYTES: usize = 512;

/// socket(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
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
pub unsafe extern "C-unwind" fn bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    serve(fd, |sockets| match addresses::read(addr, len) {
        Ok(Some(addr)) => sockets.bind(fd, addr).map(|()| 0),
        Ok(None) => Verdict::Kernel,
        Err(error) => Verdict::Done(Err(error)),
    })
    // SAFETY: arguments passed through.
    .unwrap_or_else(|| unsafe { real::bind(fd, addr, len) })
}

/// listen(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn listen(fd: c_int, backlog: c_int) -> c_int {
    serve(fd, |sockets| sockets.listen(fd, backlog).map(|()| 0))
        // SAFETY: arguments passed through.
        .unwrap_or_else(|| unsafe { real::listen(fd, backlog) })
}

/// accept(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn accept(
    fd: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    take(fd, addr, len, 0)
        // SAFETY: arguments passed through.
        .unwrap_or_else(|| appeared(unsafe { real::accept(fd, addr, len) }))
}

/// accept4(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn accept4(
    fd: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    take(fd, addr, len, flags)
        // SAFETY: arguments passed through.
        .unwrap_or_else(|| appeared(unsafe { real::accept4(fd, addr, len, flags) }))
}

fn take(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> Option<c_int> {
    const KNOWN: c_int = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    serve_point(fd, |sockets| {
        if flags & !KNOWN != 0 {
            return Verdict::Done(Err(Errno::INVAL));
        }
        match sockets.accept(fd, flags) {
            Verdict::Done(Ok((new, peer))) => {
                Verdict::Done(match addresses::write(peer, addr, len) {
                    Ok(()) => Ok(new),
                    Err(error) => {
                        // As in the kernel, a connection is lost if its peer's address cannot be
                        // written.
                        // SAFETY: the number has just been made, and nobody knows it.
                        unsafe { descriptors::close(new) };
                        Err(error)
                    }
                })
            }
            other => other.map(|(new, _)| new),
        }
    })
}

/// connect(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    serve_point(fd, |sockets| {
        let (family, addr) = (addresses::family(addr, len), addresses::read(addr, len));
        match addr {
            Ok(None) if family != Some(libc::AF_UNSPEC) => match sockets.accelerated(fd) {
                true if family.is_none() => Verdict::Done(Err(Errno::INVAL)),
                true => Verdict::Done(Err(Errno::ISCONN)),
                // The kernel returns the right error.
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
pub unsafe extern "C-unwind" fn shutdown(fd: c_int, how: c_int) -> c_int {
    serve(fd, |sockets| sockets.shutdown(fd, how).map(|()| 0))
        // SAFETY: arguments passed through.
        .unwrap_or_else(|| unsafe { real::shutdown(fd, how) })
}

/// The result of a query for an address.
fn told(name: Verdict<SocketAddr>, addr: *mut sockaddr, len: *mut socklen_t) -> Verdict<c_int> {
    match name {
        Verdict::Done(name) => Verdict::Done(
            name.and_then(|name| addresses::write_always(name, addr, len).map(|()| 0)),
        ),
        Verdict::Kernel => Verdict::Kernel,
    }
}

/// getsockname(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn getsockname(
    fd: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    serve(fd, |sockets| told(sockets.local(fd), addr, len))
        // SAFETY: arguments passed through.
        .unwrap_or_else(|| unsafe { real::getsockname(fd, addr, len) })
}

/// getpeername(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn getpeername(
    fd: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    serve(fd, |sockets| told(sockets.remote(fd), addr, len))
        // SAFETY: arguments passed through.
        .unwrap_or_else(|| unsafe { real::getpeername(fd, addr, len) })
}

/// Copies a peer's address (SO_PEERNAME); the requested length must not exceed it.
fn give_peer(peer: SocketAddr, value: *mut c_void, len: *mut socklen_t) -> Result<c_int, Errno> {
    // SAFETY: any bytes are a length.
    let asked = unsafe { memory::load(len) }?;
    if addresses::Packed::new(peer).1 < asked {
        return Err(Errno::INVAL);
    }
    addresses::write_always(peer, value.cast(), len)?;
    memory::store(len, asked).map(|()| 0)
}

/// getsockopt(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    serve(fd, |sockets| {
        // SAFETY: any bytes are a length.
        let room = unsafe { memory::load(len) }.map_or(0, |len| (len as usize).min(ANSWER_BYTES));
        if room == 0 || !memory::is_writable(value.cast::<u8>(), room) {
            // The kernel returns the right error.
            return Verdict::Kernel;
        }
        if (level, name) == (libc::SOL_SOCKET, libc::SO_PEERNAME) {
            return match sockets.remote(fd) {
                Verdict::Done(Ok(peer)) => Verdict::Done(give_peer(peer, value, len)),
                Verdict::Done(Err(error)) => Verdict::Done(Err(error)),
                Verdict::Kernel => Verdict::Kernel,
            };
        }
        let mut answer = [0_u8; ANSWER_BYTES];
        if (level, name) == (libc::IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE) {
            // SAFETY: so many bytes are readable, and there is room; what lies there is the question.
            unsafe { std::ptr::copy_nonoverlapping(value.cast::<u8>(), answer.as_mut_ptr(), room) };
        }
        sockets.option(fd, level, name, &mut answer).map(|full| {
            let count = full.min(room);
            // SAFETY: so many bytes are writable, and a length was read at `len`.
            unsafe {
                std::ptr::copy_nonoverlapping(answer.as_ptr(), value.cast::<u8>(), count);
                len.write_unaligned(count as socklen_t);
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
pub unsafe extern "C-unwind" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    serve(fd, |sockets| {
        // The kernel's length is signed.
        if len > i32::MAX as socklen_t {
            return Verdict::Done(Err(Errno::INVAL));
        }
        if value.is_null() && len == 0 {
            return Verdict::Kernel;
        }
        if !memory::is_readable(value.cast::<u8>(), len as usize) {
            return Verdict::Done(Err(Errno::FAULT));
        }
        // SAFETY: `len` bytes are readable at `value`.
        let bytes = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), len as usize) };
        sockets.set_option(fd, level, name, bytes).map(|()| 0)
    })
    // SAFETY: arguments passed through.
    .unwrap_or_else(|| unsafe { real::setsockopt(fd, level, name, value, len) })
}
