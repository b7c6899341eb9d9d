//! Rings of 8-byte slots: a lap in the upper half, a number in the lower. The slot is one word,
//! so a copy of it is whole. One side pushes, the other takes; neither reads the other's position
//! to do so.

use crate::layout::Layout;
use crate::region::Region;
use crate::sync::Ordering;

/// Where a ring lies; the capacity is private.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    pub base: usize,
    pub slots: u64,
}

impl Ring {
    fn slot(self, position: u64) -> usize {
        self.base + (position & (self.slots - 1)) as usize * 8
    }

    fn lap(self, position: u64) -> u32 {
        (position / self.slots).wrapping_add(1) as u32
    }

    /// Writes slot `position`, which must be the caller's to write.
    pub fn push(self, region: &Region, position: u64, number: u32) {
        let word = u64::from(self.lap(position)) << 32 | u64::from(number);
        // Pairs with the Acquire in `take`.
        region.store(self.slot(position), word, Ordering::Release);
    }

    /// The number in slot `position`, once it has been pushed.
    pub fn take(self, region: &Region, position: u64) -> Option<u32> {
        let word = region.load(self.slot(position), Ordering::Acquire); // pairs with `push`
        ((word >> 32) as u32 == self.lap(position)).then_some(word as u32)
    }
}

/// Rings of 64-byte slots: seven words and, last, the lap with a serial and a kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WideRing {
    pub base: usize,
    pub slots: u64,
}

/// A request or reply slot's content as words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// What kind of message.
    pub kind: u8,
    /// Low 24 bits of the request's position, echoed in its reply.
    pub serial: u32,
    /// Its content.
    pub content: [u64; 7],
}

impl WideRing {
    fn slot(self, position: u64) -> usize {
        self.base + (position & (self.slots - 1)) as usize * 64
    }

    fn lap(self, position: u64) -> u32 {
        (position / self.slots).wrapping_add(1) as u32
    }

    pub fn push(self, region: &Region, position: u64, words: &Words) {
        let slot = self.slot(position);
        for (index, word) in words.content.iter().enumerate() {
            region.store(slot + index * 8, *word, Ordering::Relaxed);
        }
        let last = u64::from(self.lap(position)) << 32
            | u64::from(words.serial & 0xff_ffff) << 8
            | u64::from(words.kind);
        // Pairs with the Acquire in `take`.
        region.store(slot + 56, last, Ordering::Release);
    }

    pub fn take(self, region: &Region, position: u64) -> Option<Words> {
        let slot = self.slot(position);
        let last = region.load(slot + 56, Ordering::Acquire); // pairs with `push`
        if (last >> 32) as u32 != self.lap(position) {
            return None;
        }
        let mut content = [0; 7];
        for (index, word) in content.iter_mut().enumerate() {
            *word = region.load(slot + index * 8, Ordering::Relaxed);
        }
        Some(Words { kind: last as u8, serial: (last >> 8) as u32 & 0xff_ffff, content })
    }
}

/// The rings of a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneRings {
    pub doorbells: Ring,
    pub events: Ring,
    pub stock: Ring,
    pub requests: WideRing,
    pub replies: WideRing,
}

impl LaneRings {
    /// Those of the lane area at `base`.
    pub fn at(layout: &Layout, base: usize) -> Self {
        let stock_slots = u64::from(layout.geometry().stock_slots);
        let request_slots = u64::from(layout.geometry().request_slots);
        Self {
            doorbells: Ring { base: layout.doorbells(base), slots: layout.doorbell_slots },
            events: Ring { base: layout.events(base), slots: layout.event_slots },
            stock: Ring { base: layout.stock(base), slots: stock_slots },
            requests: WideRing { base: layout.requests(base), slots: request_slots },
            replies: WideRing { base: layout.replies(base), slots: request_slots },
        }
    }
}
