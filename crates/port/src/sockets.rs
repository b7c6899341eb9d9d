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
    let mut count: libc::c_int = 0;
    // SAFETY: the request writes an int, which is live for the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut count) };
    if result == 0 {
        Ok(usize::try_from(count).unwrap_or(0))
    } else {
        Err(io::Error::last_os_error())
    }
}
