//! The network namespace of a socket, and one in which every address is local.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType};
use rustix::thread::UnshareFlags;

use crate::link::Link;

/// SO_NETNS_COOKIE of `asm-generic/socket.h`, Linux 5.14.
const SO_NETNS_COOKIE: libc::c_int = 71;

/// Identifies the network namespace of a socket until the machine reboots.
///
/// # Errors
/// ENOTSOCK or EBADF if it is not a socket, ENOPROTOOPT on kernels before 5.14.
pub fn cookie(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut cookie = [0; 8];
    crate::sockets::option(socket, libc::SOL_SOCKET, SO_NETNS_COOKIE, &mut cookie)?;
    Ok(u64::from_ne_bytes(cookie))
}

/// Moves the calling thread, and threads that it starts later, to a new network namespace in which
/// every address is local and every port can be bound: a TCP connection there can have any two
/// addresses. The namespace ends with its last thread and socket.
///
/// # Errors
/// The kernel's error: CAP_SYS_ADMIN is needed.
pub fn enter_everywhere() -> io::Result<()> {
    // SAFETY: a network namespace of its own does not change the thread's descriptors.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
    let loopback = Link::new("lo")?;
    loopback.raise(libc::IFF_UP)?;
    let index = loopback.index()?;
    for family in [libc::AF_INET, libc::AF_INET6] {
        add_local_route(family as u8, index)?;
    }
    for (key, value) in [
        ("ipv4/ip_unprivileged_port_start", "0"),
        ("ipv4/ip_nonlocal_bind", "1"),
        ("ipv6/ip_nonlocal_bind", "1"),
        // A connection within the machine loses nothing that TIME-WAIT would be for, and its two addresses
        // may be those of the next one at once.
        ("ipv4/tcp_max_tw_buckets", "0"),
    ] {
        // For the thread's own namespace.
        std::fs::write(format!("/proc/sys/net/{key}"), value)?;
    }
    Ok(())
}

/// `ip route add local default dev lo` (linux/rtnetlink.h).
fn add_local_route(family: u8, index: u32) -> io::Result<()> {
    const NEW_ROUTE: u16 = 24;
    const ERROR: u16 = 2;
    /// NLM_F_REQUEST, NLM_F_ACK, NLM_F_CREATE, NLM_F_REPLACE.
    const FLAGS: u16 = 0x1 | 0x4 | 0x400 | 0x100;
    const TABLE_LOCAL: u8 = 255;
    const PROTOCOL_STATIC: u8 = 4;
    const SCOPE_HOST: u8 = 254;
    const TYPE_LOCAL: u8 = 2;
    const OUTGOING: u16 = 4;
    let mut body = Vec::new();
    body.extend(NEW_ROUTE.to_ne_bytes());
    body.extend(FLAGS.to_ne_bytes());
    // Sequence and sender.
    body.extend([0; 8]);
    body.extend([family, 0, 0, 0, TABLE_LOCAL, PROTOCOL_STATIC, SCOPE_HOST, TYPE_LOCAL]);
    body.extend(0u32.to_ne_bytes());
    body.extend(8u16.to_ne_bytes());
    body.extend(OUTGOING.to_ne_bytes());
    body.extend(index.to_ne_bytes());
    let mut message = (body.len() as u32 + 4).to_ne_bytes().to_vec();
    message.extend(body);
    // NETLINK_ROUTE is the family's protocol 0.
    let kernel = rustix::net::socket(AddressFamily::NETLINK, SocketType::RAW, None)?;
    rustix::net::bind(&kernel, &SocketAddrNetlink::new(0, 0))?;
    rustix::net::send(&kernel, &message, SendFlags::empty())?;
    let mut answer = [0u8; 4096];
    let (len, _) = rustix::net::recv(&kernel, &mut answer[..], RecvFlags::empty())?;
    let answer = answer.get(..len).unwrap_or_default();
    let kind =
        answer.get(4..).and_then(|rest| rest.first_chunk()).map(|two| u16::from_ne_bytes(*two));
    let code =
        answer.get(16..).and_then(|rest| rest.first_chunk()).map(|four| i32::from_ne_bytes(*four));
    match (kind, code) {
        (Some(ERROR), Some(0)) => Ok(()),
        (Some(ERROR), Some(code)) => Err(io::Error::from_raw_os_error(-code)),
        _ => Err(io::Error::other("the kernel's answer to a new route is malformed")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::SocketAddr;
    use std::os::fd::{AsFd, OwnedFd};
    use std::time::{Duration, Instant};

    /// A connection from one address to another, which may be in use for a moment yet.
    fn from_to(own: SocketAddr, peer: SocketAddr) -> std::io::Result<OwnedFd> {
        let family = if own.is_ipv4() {
            rustix::net::AddressFamily::INET
        } else {
            rustix::net::AddressFamily::INET6
        };
        let begin = Instant::now();
        loop {
            let socket = rustix::net::socket(family, rustix::net::SocketType::STREAM, None)?;
            let connected = rustix::net::bind(&socket, &own)
                .and_then(|()| rustix::net::connect(&socket, &peer));
            match connected {
                Ok(()) => return Ok(socket),
                Err(_) if begin.elapsed() < Duration::from_secs(30) => std::thread::yield_now(),
                Err(error) => return Err(error.into()),
            }
        }
    }

    #[test]
    fn in_a_namespace_with_every_address_a_connection_has_any_two() {
        let tried = std::thread::spawn(|| -> std::io::Result<()> {
            super::enter_everywhere()?;
            for (local, remote) in
                [("192.0.2.1:22", "198.51.100.7:4711"), ("[2001:db8::1]:80", "[2001:db8::2]:81")]
            {
                let local: SocketAddr = local.parse().expect("an address");
                let remote: SocketAddr = remote.parse().expect("an address");
                let listener = std::net::TcpListener::bind(local)?;
                // One after the other: an end does not keep the addresses from the next connection.
                for _ in 0..2 {
                    let ours = from_to(remote, local)?;
                    let (mut theirs, peer) = listener.accept()?;
                    assert_eq!((theirs.local_addr()?, peer), (local, remote));
                    theirs.shutdown(std::net::Shutdown::Write)?;
                    drop(ours);
                    assert_eq!(theirs.read(&mut [0])?, 0);
                }
            }
            Ok(())
        });
        match tried.join().expect("no panic") {
            // Without privileges there is no such namespace.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {}
            outcome => outcome.expect("a namespace"),
        }
    }

    #[test]
    fn two_sockets_of_one_namespace_name_it_alike() {
        let a = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let b = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(super::cookie(a.as_fd()).unwrap(), super::cookie(b.as_fd()).unwrap());
        let file = std::fs::File::open("/").unwrap();
        assert!(super::cookie(file.as_fd()).is_err());
    }
}
