//! The link between the hosts: a switch that delays, loses, repeats, reorders and corrupts.

use std::collections::BTreeMap;

use port::{RxChecksum, RxMeta};
use wire::ipv4::Protocol;
use wire::{MacAddr, ethernet};

use crate::coverage::Coverage;
use crate::frames::{completed, cut};
use crate::port::{Arrived, Sent};
use crate::random::Random;
use crate::swarm::{LinkFaults, Swarm};

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Station {
    /// To a host.
    Host(usize),
    /// To the adversary.
    Adversary,
}

/// The link address of a host.
pub fn mac_of(host: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 1, host as u8])
}

/// The link address of the adversary.
pub const ADVERSARY_MAC: MacAddr = MacAddr([2, 0, 0, 0, 9, 9]);

/// The link.
#[derive(Debug)]
pub struct Network {
    random: Random,
    faults: LinkFaults,
    delay_ns: u64,
    coalesces: Vec<bool>,
    partial: Vec<bool>,
    in_flight: BTreeMap<(u64, u64), (Station, Arrived)>,
    serial: u64,
    /// Nothing passes until then.
    cut_until: u64,
    /// Nothing arrives before then.
    held_until: u64,
    has_adversary: bool,
}

impl Network {
    /// The link of a run.
    pub fn new(seed: u64, swarm: &Swarm) -> Self {
        Self {
            random: Random::new(seed, 2),
            faults: swarm.link,
            delay_ns: swarm.delay_ns,
            coalesces: swarm.hosts.iter().map(|host| host.coalesce).collect(),
            partial: swarm.hosts.iter().map(|host| host.checksum_offload).collect(),
            in_flight: BTreeMap::new(),
            serial: 0,
            cut_until: 0,
            held_until: 0,
            has_adversary: swarm.adversary,
        }
    }

    /// From now on every frame arrives, once, whole and in order.
    pub fn heal(&mut self) {
        self.faults = LinkFaults::default();
        self.cut_until = 0;
    }

    /// Lets what is sent from now on wait until `time`.
    pub fn hold_until(&mut self, time: u64) {
        self.held_until = time;
    }

    /// Cuts the link until `time`.
    pub fn cut_until(&mut self, time: u64) {
        self.cut_until = time;
    }

    /// When the next frame arrives.
    pub fn next(&self) -> Option<u64> {
        self.in_flight.keys().next().map(|(time, _)| *time)
    }

    /// The next frame that has arrived by `now`.
    pub fn arrived(&mut self, now: u64) -> Option<(Station, Arrived)> {
        let entry = self.in_flight.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(entry.remove())
    }

    /// Takes a frame that a host has sent.
    pub fn send(&mut self, now: u64, from: Station, sent: Sent, coverage: &mut Coverage) {
        for station in self.stations(from, &sent.bytes) {
            let coalesces = match station {
                Station::Host(host) => self.coalesces[host],
                Station::Adversary => true,
            };
            match sent.meta.gso {
                Some(gso) if !coalesces => {
                    for bytes in cut(&sent.bytes, sent.meta.header_bytes.into(), gso.size.into()) {
                        let frame = Arrived { bytes, meta: RxMeta::default() };
                        self.carry(now, station, frame, coverage);
                    }
                }
                _ => {
                    let takes_partial = match station {
                        Station::Host(host) => self.partial[host],
                        Station::Adversary => false,
                    };
                    let (bytes, meta) = match (sent.meta.checksum, sent.meta.gso) {
                        (Some((start, offset)), gso) if takes_partial || gso.is_some() => {
                            let checksum = RxChecksum::Partial { start, offset };
                            (sent.bytes.clone(), RxMeta { checksum, gso })
                        }
                        _ => (completed(sent.bytes.clone(), &sent.meta), RxMeta::default()),
                    };
                    self.carry(now, station, Arrived { bytes, meta }, coverage);
                }
            }
        }
    }

    fn stations(&self, from: Station, bytes: &[u8]) -> Vec<Station> {
        let Ok((header, _)) = ethernet::parse(bytes) else {
            // Not even a destination: everybody sees it.
            return self.everybody(from);
        };
        if header.dst.is_multicast() {
            return self.everybody(from);
        }
        let to_host = (0..self.coalesces.len()).find(|host| mac_of(*host) == header.dst);
        match to_host {
            Some(host) if from != Station::Host(host) => vec![Station::Host(host)],
            None if self.has_adversary && header.dst == ADVERSARY_MAC => vec![Station::Adversary],
            _ => Vec::new(),
        }
    }

    fn everybody(&self, from: Station) -> Vec<Station> {
        let hosts = (0..self.coalesces.len()).map(Station::Host);
        let adversary = self.has_adversary.then_some(Station::Adversary);
        hosts.chain(adversary).filter(|station| *station != from).collect()
    }

    /// Carries one frame, with what may befall it on the way.
    fn carry(&mut self, now: u64, station: Station, frame: Arrived, coverage: &mut Coverage) {
        let Arrived { mut bytes, meta } = frame;
        let LinkFaults { loss, duplicate, reorder, corrupt } = self.faults;
        let random = &mut self.random;
        if now < self.cut_until {
            coverage.hit("fault: frame in a cut");
            return;
        }
        if random.chance(loss, 10_000) {
            coverage.hit("fault: loss");
            return;
        }
        let is_arp = bytes.get(12..14) == Some(&[8, 6]);
        let is_v6 = bytes.get(12..14) == Some(&[0x86, 0xdd]);
        let is_fragment = match is_v6 {
            true => bytes.get(20) == Some(&Protocol::FRAGMENT.0),
            false => bytes.get(20..22).is_some_and(|field| field[0] & 0x3f != 0 || field[1] != 0),
        };
        // ARP has no checksum, and a partial one does not protect: a flipped bit would be a lie.
        // Flips in several fragments of one datagram may cancel in its checksum.
        let unprotected = is_arp || is_fragment || meta.checksum != RxChecksum::Unknown;
        if !unprotected && random.chance(corrupt, 10_000) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << random.below(8);
            coverage.hit("fault: corruption");
        }
        let copies = if random.chance(duplicate, 10_000) {
            coverage.hit("fault: duplication");
            2
        } else {
            1
        };
        for _ in 0..copies {
            let mut arrival = (now + self.delay_ns).max(self.held_until);
            if self.random.chance(reorder, 10_000) {
                coverage.hit("fault: reorder");
                arrival += self.random.scale_free(20 * self.delay_ns + 2_000_000);
            }
            self.put(arrival, station, Arrived { bytes: bytes.clone(), meta });
        }
    }

    /// Puts a frame on the way to arrive at `time`.
    pub fn put(&mut self, time: u64, station: Station, frame: Arrived) {
        self.serial += 1;
        self.in_flight.insert((time, self.serial), (station, frame));
    }
}
