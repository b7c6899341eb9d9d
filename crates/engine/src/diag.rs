//! The kernel's own words about its sockets: requests and messages of sock_diag(7).

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

/// IPPROTO_TCP.
pub const TCP: u8 = 6;
/// IPPROTO_UDP.
pub const UDP: u8 = 17;
/// AF_INET.
pub const V4: u8 = 2;
/// AF_INET6.
pub const V6: u8 = 10;
/// Family and protocol of every request that it takes to see all sockets of ours.
pub const KINDS: [(u8, u8); 4] = [(V4, TCP), (V6, TCP), (V4, UDP), (V6, UDP)];

/// SOCK_DIAG_BY_FAMILY of `linux/sock_diag.h`.
const BY_FAMILY: u16 = 20;
// Of `linux/netlink.h`.
const REQUEST_DUMP: u16 = 0x301;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// `struct nlmsghdr`: length u32, type u16 and ten bytes more.
const HEADER: usize = 16;
/// `struct inet_diag_req_v2`.
const REQUEST: usize = 56;
/// Where the cookie lies in a `struct inet_diag_msg`.
const COOKIE: usize = 44;

/// One message of the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A socket: what follows the header, a `struct inet_diag_msg`.
    Socket(&'a [u8]),
    /// Nothing more comes.
    Done,
    /// The request failed.
    Failed(Errno),
}

/// Bytes of a message, if they are there.
pub fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// The messages in what was received.
pub fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        loop {
            let len = u32::from_ne_bytes(field(bytes, 0)?) as usize;
            let kind = u16::from_ne_bytes(field(bytes, 4)?);
            let message = bytes.get(HEADER..len)?;
            bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
            match kind {
                BY_FAMILY => return Some(Message::Socket(message)),
                DONE => return Some(Message::Done),
                ERROR => {
                    let errno = field(message, 0).map_or(0, i32::from_ne_bytes).saturating_neg();
                    let is_one = (1..4096).contains(&errno);
                    return Some(Message::Failed(match is_one {
                        true => Errno::from_raw_os_error(errno),
                        false => Errno::PROTO,
                    }));
                }
                _ => {}
            }
        }
    })
}

/// The cookie of a socket, as SO_COOKIE gives it.
pub fn cookie(socket: &[u8]) -> Option<u64> {
    // Two words, the lower one first.
    let word = |at| field(socket, at).map(u32::from_ne_bytes).map(u64::from);
    Some(word(COOKIE + 4)? << 32 | word(COOKIE)?)
}

/// A request for all sockets of a family and protocol that are in one of `states`.
pub fn request(family: u8, protocol: u8, states: u32) -> [u8; HEADER + REQUEST] {
    let mut request = [0u8; HEADER + REQUEST];
    let head = ((HEADER + REQUEST) as u32).to_ne_bytes().into_iter();
    let head = head.chain(BY_FAMILY.to_ne_bytes()).chain(REQUEST_DUMP.to_ne_bytes()).chain([0; 8]);
    let body = [family, protocol, 0, 0].into_iter().chain(states.to_ne_bytes());
    for (to, from) in request.iter_mut().zip(head.chain(body)) {
        *to = from;
    }
    request
}

/// A socket for requests, or for the news of `groups`, in the network namespace of the calling
/// thread.
///
/// # Errors
/// Of socket(2) and bind(2).
pub fn socket(flags: SocketFlags, groups: u32) -> rustix::io::Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    let socket =
        socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(netlink::SOCK_DIAG))?;
    bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_message_says_about_its_length_ends_in_bounds() {
        for len in [0u32, 3, 15, 16, 17, 60, 68, 88, 200, u32::MAX] {
            for kind in [BY_FAMILY, DONE, ERROR, 1] {
                let mut bytes = vec![0u8; 96];
                bytes[..4].copy_from_slice(&len.to_ne_bytes());
                bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
                for message in messages(&bytes) {
                    if let Message::Socket(socket) = message {
                        let _ = cookie(socket);
                    }
                }
            }
        }
    }
}
