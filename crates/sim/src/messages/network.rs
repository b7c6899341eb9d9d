//! A network that loses, repeats, delays, corrupts and replays packets.

use std::collections::BTreeMap;

use wire::message::flags;

use crate::random::Random;

use super::Violation;

/// Packets kept for replay.
const KEPT: usize = 40;

/// A packet between two hosts.
#[derive(Clone)]
pub(super) struct Packet {
    pub from: usize,
    pub to: usize,
    pub bytes: Vec<u8>,
}

pub(super) struct Network {
    /// Bytes of a packet.
    pub room: u16,
    /// Of a thousand.
    loss: u64,
    repeats: u64,
    corrupts: u64,
    replays: u64,
    delay_ns: u64,
    jitter_ns: u64,
    sent: u64,
    /// By arrival.
    packets: BTreeMap<(u64, u64), Packet>,
    kept: Vec<Packet>,
    /// The same, of packets that open associations.
    opening: Vec<Packet>,
}

impl Network {
    pub fn new(random: &mut Random) -> Self {
        let often = |random: &mut Random, most| {
            if random.chance(1, 3) { 0 } else { random.below(most) }
        };
        Self {
            room: random.pick(&[512, 1_452, 1_472, 1_472]),
            loss: often(random, 200),
            repeats: often(random, 100),
            corrupts: often(random, 50),
            replays: often(random, 50),
            delay_ns: random.scale_free(200_000),
            jitter_ns: random.scale_free(200_000),
            sent: 0,
            packets: BTreeMap::new(),
            kept: Vec::new(),
            opening: Vec::new(),
        }
    }

    /// No more faults.
    pub fn calm(&mut self) {
        (self.loss, self.repeats, self.corrupts, self.replays) = (0, 0, 0, 0);
    }

    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    pub fn next(&self) -> Option<u64> {
        self.packets.keys().next().map(|key| key.0)
    }

    /// One of the packets that somebody has seen.
    pub fn seen(&self, random: &mut Random) -> Option<&Packet> {
        let all = self.kept.len() + self.opening.len();
        self.kept.iter().chain(&self.opening).nth(random.below(all as u64) as usize)
    }

    pub fn take(&mut self, now: u64) -> Option<Packet> {
        let first = self.packets.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(first.remove())
    }

    pub fn send(
        &mut self,
        now: u64,
        mut packet: Packet,
        random: &mut Random,
    ) -> Result<(), Violation> {
        let Packet { from, to, ref bytes } = packet;
        if bytes.len() > usize::from(self.room) || from == to {
            return Err(Violation(format!("{} bytes from {from} to {to}", bytes.len())));
        }
        let opens = bytes.get(1).is_some_and(|bits| bits & flags::FIRST != 0);
        if random.chance(self.replays, 1_000) && self.kept.len() + self.opening.len() > 0 {
            let half = random.chance(1, 2) && !self.opening.is_empty();
            let half = half || self.kept.is_empty();
            let kept = if half { &self.opening } else { &self.kept };
            let again = kept[random.below(kept.len() as u64) as usize].clone();
            self.put(now, again, random);
        }
        let kept = if opens { &mut self.opening } else { &mut self.kept };
        if kept.len() < KEPT {
            kept.push(packet.clone());
        } else {
            kept[random.below(KEPT as u64) as usize] = packet.clone();
        }
        if random.chance(self.loss, 1_000) {
            return Ok(());
        }
        if random.chance(self.repeats, 1_000) {
            self.put(now, packet.clone(), random);
        }
        if random.chance(self.corrupts, 1_000) {
            // Payload is the link's to protect.
            let at = random.below(24.min(packet.bytes.len() as u64)) as usize;
            packet.bytes[at] ^= 1 << random.below(8);
        }
        self.put(now, packet, random);
        Ok(())
    }

    fn put(&mut self, now: u64, packet: Packet, random: &mut Random) {
        self.sent += 1;
        let at = now + self.delay_ns + random.below(self.jitter_ns);
        self.packets.insert((at, self.sent), packet);
    }
}
