//! A hierarchical timing wheel: one timer per slot of the caller's table, set, moved and cancelled
//! in constant time, without allocation once the table has its size.
//!
//! Eight levels of 64 lists each cover the whole of time in ticks of 65,536 ns. A timer lies on the
//! level of the highest six-bit group in which its tick differs from the current one, so lists of
//! one level are in order of time and everything on a lower level is earlier than everything on a
//! higher one. A timer moves down at most seven times in its life. Nothing fires early; it fires
//! at most one tick late. Timers of one tick fire in the order in which they came to lie there, so
//! that runs repeat.

use serde::{Deserialize, Serialize};

use crate::api::Instant;

const TICK_BITS: u32 = 16;
const GROUP_BITS: u32 = 6;
const GROUP: usize = 1 << GROUP_BITS;
const LEVELS: usize = 8;
/// The list of timers that have expired and not been handed out.
const DUE: usize = LEVELS * GROUP;
const NIL: u32 = u32::MAX;
const UNLISTED: u16 = u16::MAX;

/// A timing wheel over the slots of a table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Wheel {
    /// The tick up to which everything has been handed out or lies in the due list.
    elapsed: u64,
    /// For each level, which of its lists are not empty.
    occupied: [u64; LEVELS],
    lists: Vec<List>,
    nodes: Vec<Node>,
    /// Timers that are set.
    len: u32,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct List {
    head: u32,
    tail: u32,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Node {
    prev: u32,
    next: u32,
    list: u16,
    /// The upper sixteen of the tick's forty-eight bits.
    tick_high: u16,
    tick_low: u32,
}

impl Node {
    fn tick(&self) -> u64 {
        u64::from(self.tick_high) << 32 | u64::from(self.tick_low)
    }

    fn set_tick(&mut self, tick: u64) {
        self.tick_high = (tick >> 32) as u16;
        self.tick_low = tick as u32;
    }
}

const _: () = assert!(size_of::<Node>() == 16);

const EMPTY: List = List { head: NIL, tail: NIL };
const IDLE: Node = Node { prev: NIL, next: NIL, list: UNLISTED, tick_high: 0, tick_low: 0 };

impl Wheel {
    /// A wheel without timers, starting at `now`.
    pub fn new(now: Instant) -> Self {
        Self {
            elapsed: now.0 >> TICK_BITS,
            occupied: [0; LEVELS],
            lists: vec![EMPTY; DUE + 1],
            nodes: Vec::new(),
            len: 0,
        }
    }

    /// The same with room for so many timers, which is taken page by page as they are used.
    pub fn with_capacity(now: Instant, slots: usize) -> Self {
        Self { nodes: Vec::with_capacity(slots), ..Self::new(now) }
    }

    /// Takes the memory for timers of the slots below `slots`; a later [`set`](Self::set) beyond
    /// them grows the table.
    pub fn reserve(&mut self, slots: usize) {
        if self.nodes.len() < slots {
            self.nodes.resize(slots, IDLE);
        }
    }

    /// Sets the timer of a slot to `at`, whether or not it was set before.
    pub fn set(&mut self, slot: u32, at: Instant) {
        if slot == NIL {
            return;
        }
        self.reserve(slot as usize + 1);
        // Rounded up, so that a timer never fires early; the last tick of time has to do for
        // what would lie behind it (584 years from the start of the clock).
        let tick = at.0.div_ceil(1 << TICK_BITS).min(u64::MAX >> TICK_BITS);
        let node = &self.nodes[slot as usize];
        if node.list != UNLISTED && node.tick() == tick {
            return;
        }
        self.unlink(slot);
        self.nodes[slot as usize].set_tick(tick);
        self.place(slot);
    }

    /// Cancels the timer of a slot, if it is set.
    pub fn cancel(&mut self, slot: u32) {
        if (slot as usize) < self.nodes.len() {
            self.unlink(slot);
        }
    }

    /// Timers that are set.
    pub fn count(&self) -> u32 {
        self.len
    }

    /// Whether the timer of a slot is set.
    pub fn is_set(&self, slot: u32) -> bool {
        self.nodes.get(slot as usize).is_some_and(|n| n.list != UNLISTED)
    }

    /// Hands out the next slot whose time has come, and forgets its timer. Call until `None`.
    pub fn expire(&mut self, now: Instant) -> Option<u32> {
        let now = now.0 >> TICK_BITS;
        loop {
            let slot = self.lists[DUE].head;
            if slot != NIL {
                self.unlink(slot);
                return Some(slot);
            }
            let next = self.first_list();
            let Some((level, group, tick)) = next.filter(|&(_, _, tick)| tick <= now) else {
                self.elapsed = self.elapsed.max(now);
                return None;
            };
            self.elapsed = tick;
            let list = level * GROUP + group;
            // Everything in the list moves to a lower level or becomes due.
            while self.lists[list].head != NIL {
                let slot = self.lists[list].head;
                self.unlink(slot);
                self.place(slot);
            }
        }
    }

    /// When [`expire`](Self::expire) has to be called at the latest; early at times, never late.
    pub fn next(&self) -> Option<Instant> {
        if self.lists[DUE].head != NIL {
            return Some(Instant(self.elapsed << TICK_BITS));
        }
        let (_, _, tick) = self.first_list()?;
        Some(Instant(tick << TICK_BITS))
    }

    /// The earliest list that is not empty: level, group and the tick at which it begins.
    fn first_list(&self) -> Option<(usize, usize, u64)> {
        let level = self.occupied.iter().position(|&bits| bits != 0)?;
        let group = self.occupied[level].trailing_zeros() as usize;
        let shift = GROUP_BITS * level as u32;
        let above = u64::MAX.checked_shl(shift + GROUP_BITS).unwrap_or(0);
        Some((level, group, self.elapsed & above | (group as u64) << shift))
    }

    /// Puts an unlinked node where its tick belongs.
    fn place(&mut self, slot: u32) {
        let tick = self.nodes[slot as usize].tick();
        let list = if tick <= self.elapsed {
            DUE
        } else {
            let highest = 63 - (tick ^ self.elapsed).leading_zeros();
            let level = (highest / GROUP_BITS) as usize;
            let group = (tick >> (GROUP_BITS * level as u32)) as usize & (GROUP - 1);
            self.occupied[level] |= 1 << group;
            level * GROUP + group
        };
        self.len += 1;
        let tail = self.lists[list].tail;
        let node = &mut self.nodes[slot as usize];
        node.list = list as u16;
        node.prev = tail;
        node.next = NIL;
        if tail == NIL {
            self.lists[list].head = slot;
        } else {
            self.nodes[tail as usize].next = slot;
        }
        self.lists[list].tail = slot;
    }

    fn unlink(&mut self, slot: u32) {
        let Node { prev, next, list, .. } = self.nodes[slot as usize];
        if list == UNLISTED {
            return;
        }
        self.len -= 1;
        let list = usize::from(list);
        if prev == NIL {
            self.lists[list].head = next;
        } else {
            self.nodes[prev as usize].next = next;
        }
        if next == NIL {
            self.lists[list].tail = prev;
        } else {
            self.nodes[next as usize].prev = prev;
        }
        if list != DUE && self.lists[list].head == NIL {
            self.occupied[list / GROUP] &= !(1 << (list % GROUP));
        }
        self.nodes[slot as usize].list = UNLISTED;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const TICK: u64 = 1 << TICK_BITS;

    #[test]
    fn a_timer_fires_once_and_never_early() {
        let mut wheel = Wheel::new(Instant(5));
        wheel.set(3, Instant(10 * TICK + 1));
        assert_eq!(wheel.expire(Instant(10 * TICK + 1)), None);
        assert_eq!(wheel.expire(Instant(11 * TICK)), Some(3));
        assert_eq!(wheel.expire(Instant(u64::MAX)), None);
        assert_eq!(wheel.next(), None);
    }

    #[test]
    fn the_end_of_time_can_be_named() {
        let mut wheel = Wheel::new(Instant(0));
        wheel.set(0, Instant(u64::MAX));
        wheel.set(1, Instant(u64::MAX - 2 * TICK));
        assert!(wheel.next().is_some());
        assert_eq!(wheel.expire(Instant(u64::MAX)), Some(1));
        assert_eq!(wheel.expire(Instant(u64::MAX)), Some(0));
        assert_eq!(wheel.next(), None);
    }

    #[test]
    fn a_timer_in_the_past_fires_at_once() {
        let mut wheel = Wheel::new(Instant(100 * TICK));
        wheel.set(7, Instant(0));
        assert!(wheel.next() <= Some(Instant(100 * TICK)));
        assert_eq!(wheel.expire(Instant(100 * TICK)), Some(7));
    }

    proptest! {
        #[test]
        fn it_does_what_a_sorted_map_does(
            start in 0u64..1 << 40,
            ops in prop::collection::vec((0u8..4, 0u32..12, 0u32..44, any::<u64>()), 1..200),
        ) {
            let mut now = start;
            let mut wheel = Wheel::new(Instant(now));
            let mut model: BTreeMap<u32, u64> = BTreeMap::new();
            for (op, slot, bits, random) in ops {
                let span = random & ((1u64 << bits) - 1);
                match op {
                    0 | 1 => {
                        wheel.set(slot, Instant(now + span));
                        model.insert(slot, (now + span).div_ceil(TICK));
                    }
                    2 => {
                        wheel.cancel(slot);
                        model.remove(&slot);
                    }
                    _ => {
                        now += span;
                        let tick = now / TICK;
                        let mut fired = Vec::new();
                        while let Some(slot) = wheel.expire(Instant(now)) {
                            fired.push((model.remove(&slot).expect("set"), slot));
                        }
                        prop_assert!(fired.iter().all(|f| f.0 <= tick));
                        prop_assert!(model.values().all(|&at| at > tick), "{model:?} {tick}");
                    }
                }
                prop_assert_eq!(wheel.count() as usize, model.len());
                let earliest = model.values().min().copied();
                match (wheel.next(), earliest) {
                    (None, None) => {}
                    (Some(next), Some(at)) => prop_assert!(next.0 <= at.max(now / TICK) * TICK),
                    (next, at) => prop_assert!(false, "{next:?} {at:?}"),
                }
            }
        }
    }
}
