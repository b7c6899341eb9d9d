//! The receiving half of a flow: which sequences and orders have arrived.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use super::ring::RECORDS;
use super::slab::IncomingId;

/// Words of the bitmap of what arrived behind the first missing frame.
const WORDS: usize = RECORDS.div_ceil(64) + 1;

/// What a sequence is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Novelty {
    New,
    Duplicate,
    Beyond,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Arrivals {
    /// The first sequence that has not arrived.
    pub next: u64,
    /// One past the last one that has.
    end: u64,
    /// Sequences by their remainder; made when a frame is missing for the first time.
    bitmap: Option<Box<[u64]>>,
    /// Starting frames before this one have arrived.
    pub next_order: u64,
    /// Starting frames that arrived before others; none if there is no message to match.
    pub early: BTreeMap<u64, Option<IncomingId>>,
    /// Sequence of the frame that arrived last, and when.
    pub newest: (u64, u64),
}

impl Arrivals {
    pub fn new() -> Self {
        Self {
            next: 0,
            end: 0,
            bitmap: None,
            next_order: 0,
            early: BTreeMap::new(),
            newest: (0, 0),
        }
    }

    pub fn novelty(&self, sequence: u64) -> Novelty {
        if sequence < self.next || self.has(sequence) {
            Novelty::Duplicate
        } else if sequence - self.next >= RECORDS as u64 {
            Novelty::Beyond
        } else {
            Novelty::New
        }
    }

    fn slot(sequence: u64) -> (usize, u64) {
        let bit = (sequence % (WORDS as u64 * 64)) as usize;
        (bit / 64, 1 << (bit % 64))
    }

    fn has(&self, sequence: u64) -> bool {
        let (word, bit) = Self::slot(sequence);
        sequence < self.end && self.bitmap.as_ref().is_some_and(|map| map[word] & bit != 0)
    }

    /// Notes a new frame.
    pub fn insert(&mut self, sequence: u64, now: u64) {
        self.newest = (sequence, now);
        if sequence == self.next && self.end <= self.next {
            self.next += 1;
            self.end = self.next;
            return;
        }
        let map = self.bitmap.get_or_insert_with(|| vec![0; WORDS].into_boxed_slice());
        let (word, bit) = Self::slot(sequence);
        map[word] |= bit;
        self.end = self.end.max(sequence + 1);
        while self.next < self.end {
            let (word, bit) = Self::slot(self.next);
            if map[word] & bit == 0 {
                break;
            }
            map[word] &= !bit;
            self.next += 1;
        }
    }

    /// Whether a frame is missing.
    pub fn has_gap(&self) -> bool {
        self.end > self.next
    }

    /// Words for an ACK: what has arrived behind the first missing frame, at most so many.
    pub fn words(&self, most: usize) -> impl Iterator<Item = u64> {
        let from = self.next + 1;
        let bits = self.end.saturating_sub(from);
        (0..bits.div_ceil(64).min(most as u64)).map(move |word| {
            let start = from + word * 64;
            (0..64).filter(|bit| self.has(start + bit)).fold(0, |all, bit| all | 1 << bit)
        })
    }

    /// The order whose lower half this is.
    pub fn extend_order(&self, lower: u16) -> u64 {
        let distance = lower.wrapping_sub(self.next_order as u16) as i16;
        self.next_order.checked_add_signed(i64::from(distance)).unwrap_or(u64::from(lower))
    }

    /// Whether a starting frame of this order can still come.
    pub fn order_is_new(&self, order: u64) -> bool {
        order >= self.next_order
            && order - self.next_order < RECORDS as u64
            && !self.early.contains_key(&order)
    }

    /// Starting frames before this one that have not arrived.
    pub fn missing_before(&self, order: u64) -> u32 {
        (order - self.next_order) as u32 - self.early.range(..order).count() as u32
    }
}
