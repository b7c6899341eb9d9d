//! The engine's claims on the interface as the XDP program looks them up: one entry for each local
//! address and port.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use crate::bpf::{Map, MapKind};
use crate::interface::Protocol;

/// Bytes of a key: address (IPv4 mapped into IPv6), port in network order, protocol, zero.
pub(super) const KEY_BYTES: usize = 20;
/// Bytes of a value: the kind of claim, and the longest frame that is redirected.
pub(super) const VALUE_BYTES: usize = 8;
/// Maximum number of entries.
pub(super) const ENTRIES_MAX: u32 = 65_536;

/// All traffic is ours, from any sender: the kernel has nothing there.
pub(super) const WHOLLY: u32 = 1 << 0;
/// New connections are ours.
pub(super) const LISTENS: u32 = 1 << 1;

/// IANA protocol numbers; 0 stands for an EtherType in place of the port.
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
const ETHERTYPE: u8 = 0;

pub(super) type Key = [u8; KEY_BYTES];

fn key(address: [u8; 16], port: u16, protocol: u8) -> Key {
    let mut key = [0; KEY_BYTES];
    for (to, from) in key.iter_mut().zip(address.into_iter().chain(port.to_be_bytes())) {
        *to = from;
    }
    key[18] = protocol;
    key
}

/// An address in 16 bytes.
pub(super) fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The entry of a local address and port.
pub(super) fn socket_key(local: SocketAddr, protocol: Protocol) -> Key {
    let protocol = match protocol {
        Protocol::Tcp => TCP,
        Protocol::Udp => UDP,
    };
    key(octets(local.ip()), local.port(), protocol)
}

/// The entry of an address itself: the engine's block of ports is claimed there.
pub(super) fn block_key(address: IpAddr) -> Key {
    key(octets(address), 0, TCP)
}

/// The entry of an EtherType.
pub(super) fn ethertype_key(ethertype: u16) -> Key {
    key([0; 16], ethertype, ETHERTYPE)
}

/// The map of all entries.
#[derive(Debug)]
pub(super) struct Owned(pub(super) Map);

impl Owned {
    pub(super) fn create() -> io::Result<Self> {
        Map::create(MapKind::Hash, KEY_BYTES, VALUE_BYTES, ENTRIES_MAX).map(Self)
    }

    pub(super) fn from_fd(fd: OwnedFd) -> Self {
        Self(Map::from_fd(fd, KEY_BYTES, VALUE_BYTES))
    }

    /// Claims a key. Frames longer than `frame_bytes_max` are the kernel's (checked for UDP only).
    pub(super) fn set(&self, key: &Key, how: u32, frame_bytes_max: u32) -> io::Result<()> {
        let mut value = [0; VALUE_BYTES];
        let bytes = how.to_ne_bytes().into_iter().chain(frame_bytes_max.to_ne_bytes());
        for (to, from) in value.iter_mut().zip(bytes) {
            *to = from;
        }
        self.0.set(key, &value)
    }
}
