//! A TCP connection of the kernel's between two given addresses, in a namespace where all are local.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use client::Errno;
use rustix::net::sockopt::{
    Timeout, set_socket_linger, set_socket_reuseaddr, set_socket_timeout, set_tcp_nodelay,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, accept_with, bind, connect, listen};

/// How long a handshake within the machine may take.
const LIMIT: Duration = Duration::from_secs(5);

fn socket_at(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Many connections have the same local address, and a peer may have had its own before.
    set_socket_reuseaddr(&socket, true)?;
    set_socket_timeout(&socket, Timeout::Send, Some(LIMIT))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(LIMIT))?;
    bind(&socket, &address)?;
    Ok(socket)
}

/// An address as a socket of IPv6 tells it.
fn mapped(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(v4) => SocketAddr::new(v4.to_ipv6_mapped().into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

/// The relay's end, and the holders' end with `local` as its own address and `remote` as its peer's.
///
/// # Errors
/// What the kernel refuses: descriptors, or an address that a holder has made its own.
pub fn make(local: SocketAddr, remote: SocketAddr, v6: bool) -> Result<(OwnedFd, OwnedFd), Errno> {
    let (local, remote) = if v6 { (mapped(local), mapped(remote)) } else { (local, remote) };
    let listener = socket_at(local)?;
    listen(&listener, 1)?;
    let ours = socket_at(remote)?;
    connect(&ours, &local)?;
    let theirs = accept_with(&listener, SocketFlags::CLOEXEC)?;
    // What a listener's connections inherit of it.
    set_socket_timeout(&theirs, Timeout::Send, None)?;
    set_socket_timeout(&theirs, Timeout::Recv, None)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    set_tcp_nodelay(&ours, true)?;
    // However the relay ends, the holders see a reset and no end of their connection.
    set_socket_linger(&ours, Some(Duration::ZERO))?;
    Ok((ours, theirs))
}
