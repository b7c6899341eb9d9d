//! Which remote addresses are served, as the XDP program looks them up: the longest prefix that
//! covers an address decides. Only where there are such rules, the program looks at all.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use super::owned;
use crate::bpf::{Map, MapKind};
use crate::spec::Remote;

/// Bytes of a key: how many bits count, then the address (IPv4 mapped into IPv6).
pub(super) const KEY_BYTES: usize = 20;
/// Bytes of a value: whether it is served, and how many frames were left to the kernel.
const VALUE_BYTES: usize = 16;
/// Entries that there is room for.
const ENTRIES_MAX: u32 = 4096;

/// Where the parts of a value lie.
pub(super) const SERVED: i16 = 0;
pub(super) const LEFT: i16 = 8;

/// The map of all rules.
#[derive(Debug)]
pub(super) struct Remotes {
    pub(super) map: Map,
    keys: Vec<[u8; KEY_BYTES]>,
}

fn key(remote: &Remote) -> [u8; KEY_BYTES] {
    let bits = match remote.network {
        IpAddr::V4(_) => u32::from(remote.prefix) + 96,
        IpAddr::V6(_) => u32::from(remote.prefix),
    };
    let mut key = [0; KEY_BYTES];
    let bytes = bits.to_ne_bytes().into_iter().chain(owned::octets(remote.network));
    for (to, from) in key.iter_mut().zip(bytes) {
        *to = from;
    }
    key
}

impl Remotes {
    /// A map with these rules; `None` when there are none.
    pub(super) fn create(rules: &[Remote]) -> io::Result<Option<Self>> {
        if rules.is_empty() {
            return Ok(None);
        }
        let map = Map::create(MapKind::LpmTrie, KEY_BYTES, VALUE_BYTES, ENTRIES_MAX)?;
        for rule in rules {
            let mut value = [0; VALUE_BYTES];
            value[SERVED as usize] = u8::from(rule.served);
            map.set(&key(rule), &value)?;
        }
        Ok(Some(Self::of(map, rules)))
    }

    /// The map that was created elsewhere with these rules.
    pub(super) fn from_fd(fd: OwnedFd, rules: &[Remote]) -> Self {
        Self::of(Map::from_fd(fd, KEY_BYTES, VALUE_BYTES), rules)
    }

    fn of(map: Map, rules: &[Remote]) -> Self {
        Self { map, keys: rules.iter().map(key).collect() }
    }

    /// Frames that were left to the kernel so far.
    pub(super) fn left(&self) -> u64 {
        let count = |key: &[u8; KEY_BYTES]| {
            let mut value = [0; VALUE_BYTES];
            // What cannot be read counts for nothing.
            let read = self.map.read(key, &mut value).is_ok_and(|found| found);
            let [_, _, _, _, _, _, _, _, count @ ..] = value;
            if read { u64::from_ne_bytes(count) } else { 0 }
        };
        self.keys.iter().map(count).sum()
    }
}
