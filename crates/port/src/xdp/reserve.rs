//! Ports for outgoing connections of the engine, reserved in the kernel: it assigns a bound port to
//! no other socket, not even as an ephemeral one.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

use crate::open::random_seed;

/// A run of ports and the sockets that hold them.
#[derive(Debug)]
pub(crate) struct Reserved {
    pub(crate) ports: (u16, u16),
    pub(crate) sockets: Vec<OwnedFd>,
}

/// Ports below this are for well-known services.
const SERVICES: u16 = 20_000;

/// Reserves this many consecutive ports. They are outside the kernel's ephemeral range if there is
/// room: machines behind this host's address translation use ports of the same range, translation
/// keeps them, and their replies would go to the engine.
pub(crate) fn block(count: u16) -> io::Result<Reserved> {
    let seed = random_seed().map_err(|why| io::Error::other(why.sentence))?;
    let others = ranges(&setting("ip_local_reserved_ports"));
    let (first, last) = ephemeral_range();
    for range in places(first, last) {
        if let Some(reserved) = block_in(range, count, seed, &others)? {
            return Ok(reserved);
        }
    }
    Err(io::Error::other(format!(
        "no {count} ports in a row are free from {SERVICES} on and in \
         net.ipv4.ip_local_port_range ({first} to {last}); ask for fewer with ports="
    )))
}

/// Ranges to search: above the ephemeral ports, below them, and at last among them.
fn places(first: u16, last: u16) -> impl Iterator<Item = (u16, u16)> {
    let above = last.checked_add(1).map(|next| (next.max(SERVICES), u16::MAX));
    let below = first.checked_sub(1).map(|before| (SERVICES, before));
    let places = [above, below, Some((first, last))];
    places.into_iter().flatten().filter(|(first, last)| first <= last)
}

/// This many consecutive ports, none of which is in one of the ranges of `others`.
fn block_in(
    (first, last): (u16, u16),
    count: u16,
    seed: u64,
    others: &[(u16, u16)],
) -> io::Result<Option<Reserved>> {
    let places = u32::from(last - first) + 1;
    if u32::from(count) > places {
        return Ok(None);
    }
    let begin = (seed % u64::from(places)) as u32;
    let mut sockets: Vec<OwnedFd> = Vec::with_capacity(usize::from(count));
    // Once around the range, and past the end of a run that began before it.
    for step in 0..places + u32::from(count) {
        let at = (begin + step) % places;
        if at == 0 {
            sockets.clear();
        }
        let port = first + at as u16;
        if others.iter().any(|(first, last)| (*first..=*last).contains(&port)) {
            sockets.clear();
            continue;
        }
        match hold(port) {
            Ok(socket) => sockets.push(socket),
            Err(Errno::ADDRINUSE) => sockets.clear(),
            Err(why) => return Err(why.into()),
        }
        if sockets.len() == usize::from(count) {
            return Ok(Some(Reserved { ports: (port - (count - 1), port), sockets }));
        }
    }
    Ok(None)
}

/// For both families, or for IPv4 if the kernel has no IPv6.
fn hold(port: u16) -> rustix::io::Result<OwnedFd> {
    let open = |family| socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    match open(AddressFamily::INET6) {
        Ok(socket) => {
            sockopt::set_ipv6_v6only(&socket, false)?;
            bind(&socket, &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0))?;
            Ok(socket)
        }
        Err(Errno::AFNOSUPPORT) => {
            let socket = open(AddressFamily::INET)?;
            bind(&socket, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port))?;
            Ok(socket)
        }
        Err(why) => Err(why),
    }
}

fn setting(name: &str) -> String {
    fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap_or_default()
}

/// The kernel's default if it cannot be read.
fn ephemeral_range() -> (u16, u16) {
    let text = setting("ip_local_port_range");
    let mut numbers = text.split_whitespace().filter_map(|number| number.parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(first), Some(last)) if first <= last && first > 0 => (first, last),
        _ => (32_768, 60_999),
    }
}

/// `8080,9148-9149`, the kernel's format of reserved ports.
fn ranges(text: &str) -> Vec<(u16, u16)> {
    let range = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
    };
    text.split(',').filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_looked_for_outside_of_the_ephemeral_range_first() {
        let of = |first, last| places(first, last).collect::<Vec<_>>();
        assert_eq!(of(32_768, 60_999), [(61_000, 65_535), (20_000, 32_767), (32_768, 60_999)]);
        assert_eq!(of(1024, 65_535), [(1024, 65_535)]);
        assert_eq!(of(1024, 4999), [(20_000, 65_535), (1024, 4999)]);
        assert_eq!(of(49_152, 65_535), [(20_000, 49_151), (49_152, 65_535)]);
        assert_eq!(ranges("8080,9148-9149\n"), [(8080, 8080), (9148, 9149)]);
        assert_eq!(ranges("\n"), []);
    }

    #[test]
    fn a_block_is_held_and_meets_no_connection_of_the_kernels_range_nor_what_is_kept_for_others() {
        let reserved = block(16).unwrap();
        assert_eq!(reserved.sockets.len(), 16);
        let (first, last) = reserved.ports;
        assert_eq!(last - first, 15);
        assert_eq!(hold(first).unwrap_err(), Errno::ADDRINUSE);
        let kernel = ephemeral_range();
        if places(kernel.0, kernel.1).count() > 1 {
            assert!(last < kernel.0 || first > kernel.1, "{first} to {last}");
        }
        let all = [(SERVICES, u16::MAX)];
        assert!(block_in((SERVICES, u16::MAX), 1, 0, &all).unwrap().is_none());
        assert!(block_in((61_000, 61_003), 5, 0, &[]).unwrap().is_none());
    }
}
