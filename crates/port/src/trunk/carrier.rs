//! The carrier state of kernel interfaces, by rtnetlink. A query of an interface takes the kernel's
//! configuration lock, for which a worker may have to wait; notifications do not.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

/// RTMGRP_LINK, RTM_NEWLINK and RTM_DELLINK (linux/rtnetlink.h).
const GROUP_LINK: u32 = 1;
const NEW_LINK: u16 = 16;
const DEL_LINK: u16 = 17;
/// IFF_UP, and IFF_LOWER_UP, which is the carrier (linux/if.h).
const USED: u32 = 1 | 1 << 16;
/// `struct nlmsghdr`.
const HEADER_BYTES: usize = 16;
/// Messages taken at once.
const ROUNDS: usize = 16;

/// A socket that receives link notifications of the calling thread's network namespace.
pub fn open() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    bind(&socket, &SocketAddrNetlink::new(0, GROUP_LINK))?;
    Ok(socket)
}

/// Reads pending notifications, and passes on the index of each interface and whether it is up with
/// a carrier. `false`: some were lost, so each interface must be queried.
pub fn news(socket: &OwnedFd, buffer: &mut [u8], mut tell: impl FnMut(u32, bool)) -> bool {
    for _ in 0..ROUNDS {
        match recv(socket, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((len, _)) => read(buffer.get(..len).unwrap_or_default(), &mut tell),
            Err(rustix::io::Errno::NOBUFS) => return false,
            Err(_) => return true,
        }
    }
    true
}

/// The messages of one datagram.
fn read(mut bytes: &[u8], tell: &mut impl FnMut(u32, bool)) {
    let word = |bytes: &[u8], at: usize| {
        bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|word| u32::from_ne_bytes(*word))
    };
    while let Some(len) = word(bytes, 0).map(|len| len as usize).filter(|len| *len >= HEADER_BYTES)
    {
        let message = bytes.get(..len).unwrap_or(bytes);
        let kind = message.get(4..6).and_then(|kind| kind.first_chunk());
        let kind = kind.map_or(0, |kind| u16::from_ne_bytes(*kind));
        // `struct ifinfomsg`: family and type, then index and flags.
        if let (NEW_LINK | DEL_LINK, Some(index), Some(flags)) =
            (kind, word(message, HEADER_BYTES + 4), word(message, HEADER_BYTES + 8))
        {
            tell(index, kind == NEW_LINK && flags & USED == USED);
        }
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, index: u32, flags: u32) -> Vec<u8> {
        let mut bytes = 35_u32.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend([0; 4]);
        bytes.extend(index.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.resize(36, 0);
        bytes
    }

    fn told(bytes: &[u8]) -> Vec<(u32, bool)> {
        let mut told = Vec::new();
        read(bytes, &mut |index, is_up| told.push((index, is_up)));
        told
    }

    #[test]
    fn links_are_up_with_a_carrier_alone() {
        let all = [
            message(NEW_LINK, 3, USED),
            message(NEW_LINK, 4, 1),
            message(24, 5, USED),
            message(DEL_LINK, 6, USED),
        ];
        assert_eq!(told(&all.concat()), [(3, true), (4, false), (6, false)]);
    }

    #[test]
    fn what_is_cut_off_or_says_a_wrong_length_ends() {
        let whole = message(NEW_LINK, 3, USED);
        for len in 0..28 {
            assert!(told(&whole[..len]).is_empty(), "{len}");
        }
        let mut endless = whole.clone();
        endless[..4].fill(0);
        assert!(told(&endless).is_empty());
        endless[..4].fill(0xff);
        assert_eq!(told(&endless), [(3, true)]);
    }
}
