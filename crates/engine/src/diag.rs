//! The kernel's data about its sockets: requests and messages of sock_diag(7).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
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
/// Family and protocol of the requests needed to list all TCP and UDP sockets.
pub const KINDS: [(u8, u8); 4] = [(V4, TCP), (V6, TCP), (V4, UDP), (V6, UDP)];

/// SOCK_DIAG_BY_FAMILY of `linux/sock_diag.h`.
const BY_FAMILY: u16 = 20;
// Of `linux/netlink.h`.
const REQUEST_DUMP: u16 = 0x301;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// `struct nlmsghdr`: length u32, type u16 and ten more bytes.
const HEADER: usize = 16;
/// `struct inet_diag_req_v2`.
const REQUEST: usize = 56;
// Of `struct inet_diag_msg`.
const STATE: usize = 1;
const LOCAL_PORT: usize = 4;
const LOCAL_ADDRESS: usize = 8;
const DEVICE: usize = 40;
const COOKIE: usize = 44;
const UID: usize = 64;
const ATTRIBUTES: usize = 72;
/// INET_DIAG_SKV6ONLY of `linux/inet_diag.h`.
const V6_ONLY: u16 = 11;
/// Where the local port lies in a request.
const REQUEST_PORT: usize = HEADER + 8;

/// One message from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A socket: what follows the header, a `struct inet_diag_msg`.
    Socket(&'a [u8]),
    /// End of the list.
    Done,
    /// The request failed.
    Failed(Errno),
}

/// Bytes of a message, if they are there.
pub fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// The messages in a received buffer.
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

/// A kernel socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// TCP state number, also for UDP sockets.
    pub state: u8,
    /// Its local address.
    pub local: SocketAddr,
    /// The interface that it is bound to, or 0.
    pub device: u32,
    /// SO_COOKIE.
    pub cookie: u64,
    /// Its owner.
    pub uid: u32,
    /// It is an IPv6 socket with IPV6_V6ONLY.
    pub v6_only: bool,
}

impl Row {
    /// Reads a `struct inet_diag_msg` and what follows it.
    pub fn read(socket: &[u8]) -> Option<Self> {
        let &[family, ..] = socket else { return None };
        let ip: IpAddr = match family {
            V4 => Ipv4Addr::from(field::<4>(socket, LOCAL_ADDRESS)?).into(),
            V6 => Ipv6Addr::from(field::<16>(socket, LOCAL_ADDRESS)?).into(),
            _ => return None,
        };
        let port = u16::from_be_bytes(field(socket, LOCAL_PORT)?);
        Some(Self {
            state: *socket.get(STATE)?,
            local: SocketAddr::new(ip, port),
            device: u32::from_ne_bytes(field(socket, DEVICE)?),
            cookie: cookie(socket)?,
            uid: u32::from_ne_bytes(field(socket, UID)?),
            v6_only: attribute(socket.get(ATTRIBUTES..)?, V6_ONLY)
                .is_some_and(|value| value.first().is_some_and(|is_only| *is_only != 0)),
        })
    }
}

/// The value of an attribute among several.
fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let len = usize::from(u16::from_ne_bytes(field(bytes, 0)?));
        let value = bytes.get(4..len)?;
        if u16::from_ne_bytes(field(bytes, 2)?) == wanted {
            return Some(value);
        }
        bytes = bytes.get(len.next_multiple_of(4)..)?;
    }
}

/// A request for all sockets of a family and protocol that are in one of `states`, at all ports or
/// at one.
pub fn request(family: u8, protocol: u8, states: u32, port: Option<u16>) -> [u8; HEADER + REQUEST] {
    let mut request = [0u8; HEADER + REQUEST];
    let head = ((HEADER + REQUEST) as u32).to_ne_bytes().into_iter();
    let head = head.chain(BY_FAMILY.to_ne_bytes()).chain(REQUEST_DUMP.to_ne_bytes()).chain([0; 8]);
    let body = [family, protocol, 0, 0].into_iter().chain(states.to_ne_bytes());
    for (to, from) in request.iter_mut().zip(head.chain(body)) {
        *to = from;
    }
    let port = port.unwrap_or(0).to_be_bytes();
    for (to, from) in request.iter_mut().skip(REQUEST_PORT).zip(port) {
        *to = from;
    }
    request
}

/// A socket for requests, or for the notifications of `groups`, in the network namespace of the
/// calling thread.
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
                        let _ = (cookie(socket), Row::read(socket));
                    }
                }
            }
        }
    }
}
