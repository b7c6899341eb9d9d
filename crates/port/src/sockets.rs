//! What no safe library offers of kernel sockets: any option by its number, and what a socket
//! has not sent yet.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// getsockopt(2); the length that the kernel wrote.
///
/// # Errors
/// As of getsockopt(2).
pub fn option(
    socket: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: &mut [u8],
) -> io::Result<usize> {
    let mut len = value.len() as libc::socklen_t;
    // SAFETY: `value` and `len` are live for the call, and `len` is the size of `value`.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &raw mut len)
    };
    if result == 0 { Ok(len as usize) } else { Err(io::Error::last_os_error()) }
}

/// setsockopt(2).
///
/// # Errors
/// As of setsockopt(2).
pub fn set_option(socket: BorrowedFd<'_>, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    let len = value.len() as libc::socklen_t;
    // SAFETY: `value` is live for the call and `len` is its size.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.as_ptr().cast(), len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// SIOCOUTQ: bytes written and not acknowledged.
///
/// # Errors
/// As of ioctl(2).
pub fn unacknowledged(socket: BorrowedFd<'_>) -> io::Result<usize> {
    asked(socket, libc::TIOCOUTQ).map(|count| usize::try_from(count).unwrap_or(0))
}

/// SIOCOUTQNSD: bytes written and not sent.
///
/// # Errors
/// As of ioctl(2).
pub fn unsent(socket: BorrowedFd<'_>) -> io::Result<usize> {
    // linux/sockios.h; not in the libc crate.
    const SIOCOUTQNSD: libc::Ioctl = 0x894b;
    asked(socket, SIOCOUTQNSD).map(|count| usize::try_from(count).unwrap_or(0))
}

/// SIOCATMARK: whether the next byte to be read is the urgent one.
///
/// # Errors
/// As of ioctl(2).
pub fn is_at_mark(socket: BorrowedFd<'_>) -> io::Result<bool> {
    // asm-generic/sockios.h; not in the libc crate.
    const SIOCATMARK: libc::Ioctl = 0x8905;
    asked(socket, SIOCATMARK).map(|at_mark| at_mark != 0)
}

/// An int that a request asks for.
fn asked(socket: BorrowedFd<'_>, request: libc::Ioctl) -> io::Result<libc::c_int> {
    let mut answer: libc::c_int = 0;
    // SAFETY: the requests asked here write an int, which is live for the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut answer) };
    if result == 0 { Ok(answer) } else { Err(io::Error::last_os_error()) }
}
