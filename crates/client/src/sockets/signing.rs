//! TCP_MD5SIG and TCP_MD5SIG_EXT: keys with which segments are signed (RFC 2385).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::socket::{Connection, Socket, held};
use super::{Errno, Sockets};
use crate::PeerKey;

/// linux/tcp.h; not in the libc crate.
pub(super) const TCP_MD5SIG: i32 = 14;
pub(super) const TCP_MD5SIG_EXT: i32 = 32;
const FLAG_PREFIX: u8 = 1;
const FLAG_IFINDEX: u8 = 2;
/// Offsets of the fields of `struct tcp_md5sig`.
const FLAGS_AT: usize = 128;
const KEY_LEN_AT: usize = 130;
const KEY_AT: usize = 136;
const STRUCT_BYTES: usize = 216;

/// The requested change.
pub(super) enum Asked {
    /// A key to set or remove.
    Key(PeerKey),
    /// A key for one interface of the kernel's.
    OfInterface,
}

/// Whether an option sets such a key.
pub(super) fn is_key(level: i32, name: i32) -> bool {
    level == libc::IPPROTO_TCP && matches!(name, TCP_MD5SIG | TCP_MD5SIG_EXT)
}

/// Parses `struct tcp_md5sig` like tcp_v4_parse_md5_keys and tcp_v6_parse_md5_keys.
pub(super) fn parse(v6: bool, name: i32, bytes: &[u8]) -> Result<Asked, Errno> {
    let bytes = bytes.first_chunk::<STRUCT_BYTES>().ok_or(Errno::INVAL)?;
    let family = i32::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
    let network = match (v6, family) {
        (false, libc::AF_INET) => {
            let octets: [u8; 4] = bytes[4..8].try_into().map_err(|_| Errno::INVAL)?;
            IpAddr::V4(Ipv4Addr::from(octets))
        }
        (true, libc::AF_INET6) => {
            let octets: [u8; 16] = bytes[8..24].try_into().map_err(|_| Errno::INVAL)?;
            IpAddr::V6(Ipv6Addr::from(octets)).to_canonical()
        }
        _ => return Err(Errno::INVAL),
    };
    let bits = if network.is_ipv4() { 32 } else { 128 };
    let flags = if name == TCP_MD5SIG_EXT { bytes[FLAGS_AT] } else { 0 };
    let prefix = if flags & FLAG_PREFIX != 0 { bytes[FLAGS_AT + 1] } else { bits };
    let key_len = usize::from(u16::from_ne_bytes([bytes[KEY_LEN_AT], bytes[KEY_LEN_AT + 1]]));
    let key = bytes[KEY_AT..].get(..key_len).ok_or(Errno::INVAL)?;
    if prefix > bits {
        return Err(Errno::INVAL);
    }
    if flags & FLAG_IFINDEX != 0 {
        return Ok(Asked::OfInterface);
    }
    Ok(Asked::Key(PeerKey { network, prefix, key: key.into() }))
}

impl Sockets {
    /// A key of a socket that is not a connection yet: remembered, and passed to the engine at once
    /// if it listens.
    pub(super) fn remember_key(&self, socket: &Socket, key: PeerKey) {
        let listening = held(socket.listening.read());
        if let Some((endpoint, _)) = listening.as_ref().and_then(|one| one.engine.as_ref())
            && endpoint.set_key(&key).is_err_and(|error| error != Errno::NOENT)
        {
            // Peers without a key must not connect through the engine.
            drop(listening);
            self.leave_engine(socket);
            return;
        }
        let mut keys = held(socket.keys.lock());
        keys.retain(|known| (known.network, known.prefix) != (key.network, key.prefix));
        if !key.key.is_empty() {
            keys.push(key);
        }
    }

    /// A key of a connection.
    pub(super) fn set_key_of(
        &self,
        socket: &Socket,
        connection: &Connection,
        name: i32,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        match parse(socket.v6, name, bytes)? {
            Asked::Key(key) => connection.endpoint.set_key(&key),
            Asked::OfInterface => Err(Errno::INVAL),
        }
    }
}
