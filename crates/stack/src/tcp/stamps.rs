//! When the bytes that a program asks about were sent and acknowledged (SO_TIMESTAMPING).

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::connection::{Connection, Step};

/// Questions, and answers that nobody takes, which are kept for one connection.
const STAMPS_MAX: usize = 512;

/// What is asked about a byte: when it was put into a segment.
pub const SCHEDULED: u8 = 1;
/// When its segment was given to the port.
pub const SENT: u8 = 2;
/// When it was acknowledged.
pub const ACKED: u8 = 4;

/// Something happened to a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// [`SCHEDULED`], [`SENT`] or [`ACKED`].
    pub kind: u8,
    /// One past the byte's offset in the send stream.
    pub end: u64,
    /// When, on the caller's clock.
    pub at_ns: u64,
}

/// Questions and answers of one connection, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamps {
    asked: VecDeque<(u64, u8)>,
    made: VecDeque<Stamp>,
}

impl Stamps {
    /// How many answers wait.
    pub fn waiting(&self) -> u32 {
        self.made.len() as u32
    }

    /// Takes the oldest answer.
    pub fn take(&mut self) -> Option<Stamp> {
        self.made.pop_front()
    }

    fn make(&mut self, asked: u8, kind: u8, end: u64, at_ns: u64) {
        if asked & kind != 0 && self.made.len() < STAMPS_MAX {
            self.made.push_back(Stamp { kind, end, at_ns });
        }
    }

    /// Bytes `start .. end` have been sent for the first time. Whether somebody asked about one.
    pub fn on_sent(&mut self, start: u64, end: u64, now_ns: u64) -> bool {
        let first = self.asked.partition_point(|(asked, _)| *asked <= start);
        let before = self.made.len();
        for at in first..self.asked.len() {
            let Some((about, kinds)) = self.asked.get(at).copied() else { break };
            if about > end {
                break;
            }
            // Both in the same turn of the worker: the segment does not wait in between.
            self.make(kinds, SCHEDULED, about, now_ns);
            self.make(kinds, SENT, about, now_ns);
        }
        self.made.len() > before
    }

    /// Bytes from `start` on were not sent after all: that they were put into a segment remains true.
    pub fn take_back(&mut self, start: u64) {
        self.made.retain(|stamp| stamp.kind != SENT || stamp.end <= start);
    }

    /// Everything before `una` is acknowledged.
    pub fn on_acked(&mut self, una: u64, now_ns: u64) {
        while let Some((about, kinds)) = self.asked.pop_front_if(|(about, _)| *about <= una) {
            self.make(kinds, ACKED, about, now_ns);
        }
    }
}

impl Connection<'_> {
    /// Asks about the byte before `end`, which is not sent yet.
    pub fn stamp(&mut self, step: &mut Step<'_>, end: u64, kinds: u8) {
        let stamps = self.cold.rare_mut().stamps.get_or_insert_default();
        if stamps.asked.len() == STAMPS_MAX {
            step.shared.counters.stamps_forgotten += 1;
        } else {
            stamps.asked.push_back((end, kinds));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_is_told_of_for_each_thing_that_was_asked() {
        let mut stamps = Stamps::default();
        stamps.asked.extend([(100, SCHEDULED | SENT | ACKED), (200, ACKED)]);
        assert!(!stamps.on_sent(0, 99, 1), "the byte asked about is the last of a hundred");
        assert!(stamps.on_sent(99, 150, 2));
        stamps.take_back(99);
        assert!(stamps.on_sent(99, 150, 2), "its segment was refused");
        assert!(!stamps.on_sent(150, 200, 3), "only its acknowledgement matters");
        stamps.on_acked(150, 4);
        stamps.on_acked(200, 5);
        let told: Vec<_> = std::iter::from_fn(|| stamps.take()).collect();
        let stamp = |kind: u8, end, at_ns| Stamp { kind, end, at_ns };
        assert_eq!(
            told,
            [
                stamp(SCHEDULED, 100, 2),
                stamp(SCHEDULED, 100, 2),
                stamp(SENT, 100, 2),
                stamp(ACKED, 100, 4),
                stamp(ACKED, 200, 5),
            ]
        );
    }
}
