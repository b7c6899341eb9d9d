//! Ports for the connections that the engine opens, reserved with the kernel: it gives a bound
//! port to nobody else, not even as an ephemeral one.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

use crate::open::random_seed;

/// A run of ports and the sockets that hold them.
#[derive(Debug)]
pub(super) struct Reserved {
    pub(super) ports: (u16, u16),
    pub(super) sockets: Vec<OwnedFd>,
}

/// Reserves so many ports in a row, in the range from which the kernel takes ephemeral ones.
pub(super) fn block(count: u16) -> io::Result<Reserved> {
    let (first, last) = ephemeral_range();
    let places = u32::from(last - first) + 1;
    if u32::from(count) > places {
        return Err(io::Error::other(format!(
            "net.ipv4.ip_local_port_range has {places} ports, and ports={count} are asked for"
        )));
    }
    let seed = random_seed().map_err(|why| io::Error::other(why.sentence))?;
    let begin = (seed % u64::from(places)) as u32;
    let mut sockets: Vec<OwnedFd> = Vec::with_capacity(usize::from(count));
    // Once round the range, and on past the end of a run that began before it.
    for step in 0..places + u32::from(count) {
        let at = (begin + step) % places;
        if at == 0 {
            sockets.clear();
        }
        let port = first + at as u16;
        match hold(port) {
            Ok(socket) => sockets.push(socket),
            Err(Errno::ADDRINUSE) => sockets.clear(),
            Err(why) => return Err(why.into()),
        }
        if sockets.len() == usize::from(count) {
            return Ok(Reserved { ports: (port - (count - 1), port), sockets });
        }
    }
    Err(io::Error::other(format!(
        "no {count} ports in a row are free in net.ipv4.ip_local_port_range; ask for fewer with \
         ports="
    )))
}

/// Of both families, or of IPv4 where the kernel has no IPv6.
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

/// The kernel's default where it does not tell.
fn ephemeral_range() -> (u16, u16) {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut numbers = text.split_whitespace().filter_map(|number| number.parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(first), Some(last)) if first <= last && first > 0 => (first, last),
        _ => (32_768, 60_999),
    }
}
