//! Fragmented packets for the engine. Only a packet's first fragment has ports: the program stores
//! its verdict in a map, and later fragments follow it.
//!
//! A full map evicts the least recently used packet. That is correct as long as no packet is
//! evicted whose other fragments may still arrive, which is counted.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;

use crate::bpf::{Map, MapKind};

/// Key of a fragmented packet: addresses, identification, protocol, zero.
pub(super) const V4_KEY_BYTES: usize = 12;
/// Key of a fragmented IPv6 packet: addresses, identification.
pub(super) const V6_KEY_BYTES: usize = 36;
/// Packets of each family in the map.
const PACKETS_MAX: u32 = 4096;

// Offsets of the counts of each family,
pub(super) const V4_COUNTS: i16 = 0;
pub(super) const V6_COUNTS: i16 = 16;
// and the two of a family: packets added to the map, and packets without room.
pub(super) const KEPT: i16 = 0;
pub(super) const REFUSED: i16 = 8;
const COUNTS_BYTES: usize = 32;

/// Reassembly timeout of a packet (net.ipv4.ipfrag_time).
const LIFE_NS: u64 = 30_000_000_000;
/// Readings remembered, enough for a timeout at ten readings per second.
const LOOKS_MAX: usize = 301;

/// The maps of the program.
#[derive(Debug)]
pub(super) struct Fragments {
    pub(super) v4: Map,
    pub(super) v6: Map,
    pub(super) counts: Map,
}

impl Fragments {
    pub(super) fn create() -> io::Result<Self> {
        let packets = |key_bytes| Map::create(MapKind::LruHash, key_bytes, 8, PACKETS_MAX);
        Ok(Self {
            v4: packets(V4_KEY_BYTES)?,
            v6: packets(V6_KEY_BYTES)?,
            counts: Map::create(MapKind::Array, 4, COUNTS_BYTES, 1)?,
        })
    }
}

/// The program's counts.
#[derive(Debug)]
pub(super) struct Counts {
    map: Map,
    families: [Kept; 2],
    refused: u64,
}

impl Counts {
    pub(super) fn from_fd(fd: OwnedFd) -> Self {
        let families = [(); 2].map(|()| Kept::default());
        Self { map: Map::from_fd(fd, 4, COUNTS_BYTES), families, refused: 0 }
    }

    /// Reads the counts. A count that cannot be read stays as it was.
    pub(super) fn look(&mut self, now_ns: u64) {
        let mut value = [0; COUNTS_BYTES];
        if !self.map.read(&[0; 4], &mut value).is_ok_and(|found| found) {
            return;
        }
        let mut counts = value.as_chunks().0.iter().map(|count| u64::from_ne_bytes(*count));
        self.refused = 0;
        for family in &mut self.families {
            family.look(now_ns, counts.next().unwrap_or(0));
            self.refused += counts.next().unwrap_or(0);
        }
    }

    /// Packets whose first fragment was stored.
    pub(super) fn kept(&self) -> u64 {
        self.families.iter().map(|family| family.count).sum()
    }

    /// Those evicted while more of their fragments could still arrive.
    pub(super) fn evicted(&self) -> u64 {
        self.families.iter().map(|family| family.evicted).sum()
    }

    /// Packets without room in the map.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }
}

/// Packets of a family, numbered in order of arrival.
#[derive(Debug, Default)]
struct Kept {
    count: u64,
    evicted: u64,
    /// Earlier readings within a packet's timeout, and the one before: the time and the count.
    looks: VecDeque<(u64, u64)>,
}

impl Kept {
    /// `count` packets have been added to the map so far.
    fn look(&mut self, now_ns: u64, count: u64) {
        let begun = now_ns.saturating_sub(LIFE_NS);
        while self.looks.get(1).is_some_and(|(time, _)| *time <= begun) {
            self.looks.pop_front();
        }
        // Packets with lower numbers are past their timeout.
        let old = match self.looks.front() {
            Some((time, count)) if *time <= begun || self.looks.len() == LOOKS_MAX => *count,
            _ => 0,
        };
        let forgotten = |count: u64| count.saturating_sub(u64::from(PACKETS_MAX));
        let before = forgotten(self.count).max(old);
        self.evicted += forgotten(count).saturating_sub(before);
        if count != self.count || self.looks.is_empty() {
            if self.looks.len() == LOOKS_MAX {
                self.looks.pop_front();
            }
            self.looks.push_back((now_ns, count));
            self.count = count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const MAX: u64 = PACKETS_MAX as u64;

    #[test]
    fn only_packets_that_are_forgotten_within_their_life_count_as_evicted() {
        let mut kept = Kept::default();
        // As many as there is room for in a life: whoever is forgotten is old.
        for life in 0..10 {
            kept.look(life * 2 * LIFE_NS, life * MAX);
        }
        assert_eq!(kept.evicted, 0);
        // One and a half times as many at once.
        let (now, count) = (20 * LIFE_NS, 9 * MAX);
        kept.look(now, count);
        kept.look(now + SECOND, count + MAX * 3 / 2);
        assert_eq!(kept.evicted, MAX / 2);
        // Another, while the others may still be waited for.
        kept.look(now + 2 * SECOND, count + MAX * 3 / 2 + 1);
        assert_eq!(kept.evicted, MAX / 2 + 1);
        // A life later these are old.
        kept.look(now + 3 * SECOND + LIFE_NS, count + MAX * 3 / 2 + 100);
        assert_eq!(kept.evicted, MAX / 2 + 1);
    }

    #[test]
    fn looks_without_news_are_not_remembered_and_there_are_never_many() {
        let mut kept = Kept::default();
        for look in 0..100_000 {
            kept.look(look * SECOND / 10, 7);
        }
        assert_eq!(kept.looks.len(), 1);
        for look in 0..100_000 {
            kept.look((100_000 + look) * SECOND / 10, 8 + look);
        }
        assert!(kept.looks.len() <= LOOKS_MAX);
        assert_eq!(kept.evicted, 0, "3,000 in a life");
    }
}
