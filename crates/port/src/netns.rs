//! Which network namespace a socket is in.

use std::os::fd::BorrowedFd;

/// SO_NETNS_COOKIE of `asm-generic/socket.h`, Linux 5.14.
const SO_NETNS_COOKIE: libc::c_int = 71;

/// Names the network namespace that a socket belongs to, for as long as the machine runs.
///
/// # Errors
/// ENOTSOCK or EBADF for what is no socket, ENOPROTOOPT on kernels older than 5.14.
pub fn cookie(socket: BorrowedFd<'_>) -> std::io::Result<u64> {
    let mut cookie = [0; 8];
    crate::sockets::option(socket, libc::SOL_SOCKET, SO_NETNS_COOKIE, &mut cookie)?;
    Ok(u64::from_ne_bytes(cookie))
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
