//! Remote addresses to be served, as the XDP program looks them up: the longest prefix that covers
//! an address decides. The program looks only if there are such rules.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;

use super::owned;
use crate::bpf::{Map, MapKind};
use crate::spec::Remote;

/// Bytes of a key: the prefix length, then the address (IPv4 mapped into IPv6).
pub(super) const KEY_BYTES: usize = 20;
/// Bytes of a value: whether it is served, and how many frames were left to the kernel.
const VALUE_BYTES: usize = 16;
/// Maximum number of entries.
const ENTRIES_MAX: u32 = 4096;

/// Entries whose counts are read at a time: each takes a system call.
const READ_AT_ONCE: usize = 64;

/// Offsets of the parts of a value.
pub(super) const SERVED: i16 = 0;
pub(super) const LEFT: i16 = 8;

/// The map of all rules.
#[derive(Debug)]
pub(super) struct Remotes {
    pub(super) map: Map,
    /// The rules' keys, and the counts last read.
    rules: Vec<([u8; KEY_BYTES], u64)>,
    /// The rule whose count is read next.
    next: usize,
}

/// The rule for IPv4 addresses that no other covers. Without it, IPv6 rules as short as `::/0`
/// would cover the mapped ones.
const V4_UNLISTED: Remote =
    Remote { network: IpAddr::V4(Ipv4Addr::UNSPECIFIED), prefix: 0, served: true };

/// Whether a rule covers only IPv4-mapped IPv6 addresses, which no valid frame has; the stack drops
/// frames with one.
fn is_mapped(rule: &Remote) -> bool {
    matches!(rule.network, IpAddr::V6(network)
        if rule.prefix >= 96 && network.to_ipv4_mapped().is_some())
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
        for rule in [V4_UNLISTED].iter().chain(rules).filter(|rule| !is_mapped(rule)) {
            let mut value = [0; VALUE_BYTES];
            value[SERVED as usize] = u8::from(rule.served);
            map.set(&key(rule), &value)?;
        }
        Ok(Some(Self::of(map, rules)))
    }

    /// The map created elsewhere with these rules.
    pub(super) fn from_fd(fd: OwnedFd, rules: &[Remote]) -> Self {
        Self::of(Map::from_fd(fd, KEY_BYTES, VALUE_BYTES), rules)
    }

    fn of(map: Map, rules: &[Remote]) -> Self {
        let rules = rules.iter().filter(|rule| !is_mapped(rule)).map(|rule| (key(rule), 0));
        Self { map, rules: rules.collect(), next: 0 }
    }

    /// Frames left to the kernel so far. With many rules the counts are read in turns.
    pub(super) fn left(&mut self) -> u64 {
        for _ in 0..READ_AT_ONCE.min(self.rules.len()) {
            let Some((key, count)) = self.rules.get_mut(self.next) else { break };
            let mut value = [0; VALUE_BYTES];
            // A count that cannot be read stays as it was.
            if self.map.read(key, &mut value).is_ok_and(|found| found) {
                let [_, _, _, _, _, _, _, _, read @ ..] = value;
                *count = u64::from_ne_bytes(read);
            }
            self.next = (self.next + 1) % self.rules.len();
        }
        self.rules.iter().map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_many_rules_are_read_in_turns() {
        if !skips::is_root("the_counts_of_many_rules_are_read_in_turns") {
            return;
        }
        let network = |number: u32| Ipv4Addr::from_bits(number << 8).into();
        let rules: Vec<Remote> = (1..=200)
            .map(|number| Remote { network: network(number), prefix: 24, served: false })
            .collect();
        let mut remotes = Remotes::create(&rules).unwrap().unwrap();
        let mut value = [0; VALUE_BYTES];
        value[LEFT as usize..].copy_from_slice(&1_u64.to_ne_bytes());
        for rule in &rules {
            remotes.map.set(&key(rule), &value).unwrap();
        }
        let read: Vec<u64> = (0..5).map(|_| remotes.left()).collect();
        assert_eq!(read, [64, 128, 192, 200, 200]);
    }
}
