//! The one socket option that no safe library offers.

use std::os::fd::{AsRawFd, BorrowedFd};

/// SO_NETNS_COOKIE of `asm-generic/socket.h`, Linux 5.14.
const SO_NETNS_COOKIE: libc::c_int = 71;

/// Names the network namespace that a socket belongs to, for as long as the machine runs.
///
/// # Errors
/// ENOTSOCK or EBADF for what is no socket, ENOPROTOOPT on kernels older than 5.14.
pub fn cookie(socket: BorrowedFd<'_>) -> std::io::Result<u64> {
    let mut cookie = 0u64;
    let mut len = size_of::<u64>() as libc::socklen_t;
    // SAFETY: `cookie` and `len` are live for the call, and `len` is the size of `cookie`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut len,
        )
    };
    if result == 0 { Ok(cookie) } else { Err(std::io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    #[test]
    fn two_sockets_of_one_namespace_name_it_alike() {
        let a = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let b = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(super::cookie(a.as_fd()).unwrap(), super::cookie(b.as_fd()).unwrap());
        let file = std::fs::File::open("/").unwrap();
        assert!(super::cookie(file.as_fd()).is_err());
    }
}
