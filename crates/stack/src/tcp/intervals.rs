//! A bounded, sorted list of disjoint byte ranges: received out of order, or selectively
//! acknowledged.

use serde::{Deserialize, Serialize};

/// A half-open range of stream offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

impl Range {
    /// Bytes in it.
    pub fn len(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether nothing lies between it and the other.
    pub fn touches(&self, other: &Self) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    /// From where the first of them starts to where the last ends.
    pub fn joined(&self, other: &Self) -> Self {
        Self { start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

/// Ranges kept at most per list. With 1,448-byte segments and every other one lost this covers
/// a flight of 3 MB; beyond it the farthest range is forgotten, which costs a retransmission.
pub const RANGES_MAX: usize = 1024;

/// Ranges that are remembered by when they came.
const NEWEST_MAX: usize = 6;

/// What became of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insertion {
    /// At least one byte is new.
    New,
    /// Everything was there already.
    Known,
    /// The list is full and the range lies beyond all others.
    Full,
}

/// The list. It has memory as long as it holds something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intervals(Option<Box<Kept>>);

/// Ranges, at least one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    ranges: Vec<Range>,
    /// Offsets in the ranges that came last, the newest first (RFC 2018 section 4).
    newest: [Option<u64>; NEWEST_MAX],
    /// As many of them no acknowledgement has told of yet.
    untold: u8,
}

impl Intervals {
    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    fn ranges(&self) -> &[Range] {
        self.0.as_deref().map_or(&[], |kept| &kept.ranges)
    }

    /// The ranges in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Range> + '_ {
        self.ranges().iter().copied()
    }

    /// The range that begins at the lowest offset.
    pub fn first(&self) -> Option<Range> {
        self.ranges().first().copied()
    }

    /// The range that `offset` lies in.
    pub fn find(&self, offset: u64) -> Option<Range> {
        let at = self.ranges().partition_point(|r| r.end <= offset);
        self.ranges().get(at).copied().filter(|r| r.start <= offset)
    }

    /// What of `start..end` is there already, up to the first gap.
    pub fn first_overlap(&self, start: u64, end: u64) -> Option<Range> {
        let at = self.ranges().partition_point(|r| r.end <= start);
        let known = self.ranges().get(at).filter(|r| r.start < end)?;
        Some(Range { start: known.start.max(start), end: known.end.min(end) })
    }

    /// Adds a range, melting it with those it touches. When the list is full the farthest range
    /// gives way to a nearer one; `dropped` is called with it.
    pub fn insert(&mut self, start: u64, end: u64, mut dropped: impl FnMut(Range)) -> Insertion {
        if start >= end {
            return Insertion::Known;
        }
        let ranges = &mut self.0.get_or_insert_default().ranges;
        let low = ranges.partition_point(|r| r.end < start);
        let high = ranges.partition_point(|r| r.start <= end);
        if low < high {
            // Touches ranges low..high: they become one.
            let (Some(first), Some(last)) =
                (ranges.get(low).copied(), ranges.get(high - 1).copied())
            else {
                return Insertion::Known;
            };
            if first.start <= start && first.end >= end {
                return Insertion::Known;
            }
            if let Some(melted) = ranges.get_mut(low) {
                *melted = Range { start: first.start.min(start), end: last.end.max(end) };
            }
            ranges.drain(low + 1..high);
            return Insertion::New;
        }
        if ranges.len() == RANGES_MAX {
            if low == RANGES_MAX {
                return Insertion::Full;
            }
            if let Some(farthest) = ranges.pop() {
                dropped(farthest);
            }
        }
        if ranges.capacity() == 0 {
            ranges.reserve_exact(8);
        }
        ranges.insert(low, Range { start, end });
        Insertion::New
    }

    /// Forgets everything below `offset`.
    pub fn remove_below(&mut self, offset: u64) {
        let Some(Kept { ranges, .. }) = self.0.as_deref_mut() else { return };
        let gone = ranges.partition_point(|r| r.end <= offset);
        ranges.drain(..gone);
        match ranges.first_mut() {
            Some(first) => first.start = first.start.max(offset),
            None => self.0 = None,
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.0 = None;
    }

    /// What begins at `offset`, or lies around it, was received last: it is told of first from now
    /// on. Segments of a burst are acknowledged together, so more ranges may be new than one
    /// acknowledgement can tell.
    pub fn note_newest(&mut self, offset: u64) {
        let range = self.find(offset);
        let is_same = |&at: &Option<u64>| at.is_some_and(|at| self.find(at) == range);
        let known = self.0.iter().find_map(|kept| kept.newest.iter().position(is_same));
        let Some(Kept { newest, untold, .. }) = self.0.as_deref_mut() else { return };
        let place = known.unwrap_or(NEWEST_MAX - 1);
        let was_told = known.is_none_or(|place| place >= usize::from(*untold));
        if let Some(newer) = newest.get_mut(..=place) {
            newer.rotate_right(1);
        }
        newest[0] = Some(offset);
        *untold = (*untold + u8::from(was_told)).min(NEWEST_MAX as u8);
    }

    /// Whether there is something that no acknowledgement has told of.
    pub fn has_untold(&self) -> bool {
        self.0.as_deref().is_some_and(|kept| kept.untold > 0)
    }

    /// An acknowledgement has room for `room` ranges: how many of the [newest](Self::newest) are left
    /// to later ones, so that each is told of as if it had been when it came.
    pub fn tell(&mut self, room: usize) -> usize {
        let Some(Kept { untold, .. }) = self.0.as_deref_mut() else { return 0 };
        let later = usize::from(*untold).saturating_sub(room);
        *untold = later as u8;
        later
    }

    /// The ranges that were received last but for the last `later`, the newest first.
    pub fn newest(&self, later: usize) -> impl Iterator<Item = Range> + '_ {
        let noted = self.0.iter().flat_map(move |kept| kept.newest.iter().skip(later).flatten());
        noted.filter_map(|&offset| self.find(offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(ranges: &[(u64, u64)]) -> Intervals {
        let mut intervals = Intervals::default();
        for &(start, end) in ranges {
            intervals.insert(start, end, |_| ());
        }
        intervals
    }

    #[test]
    fn touching_ranges_melt() {
        let mut l = list(&[(10, 20), (30, 40)]);
        assert_eq!(l.insert(20, 30, |_| ()), Insertion::New);
        assert_eq!(l, list(&[(10, 40)]));
        assert_eq!(l.insert(15, 25, |_| ()), Insertion::Known);
    }

    #[test]
    fn a_full_list_forgets_the_farthest() {
        let mut l = Intervals::default();
        for i in 0..RANGES_MAX as u64 {
            assert_eq!(l.insert(10 + i * 10, 15 + i * 10, |_| ()), Insertion::New);
        }
        assert_eq!(l.insert(1 << 20, 1 << 21, |_| ()), Insertion::Full);
        let mut lost = None;
        assert_eq!(l.insert(1, 2, |r| lost = Some(r)), Insertion::New);
        assert_eq!(lost, Some(Range { start: 10_240, end: 10_245 }));
        assert_eq!(l.iter().count(), RANGES_MAX);
    }

    /// Against a naive bitmap.
    #[test]
    fn random_insertions_agree_with_a_bitmap() {
        let mut seed = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = move |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        for _ in 0..300 {
            let mut naive = [false; 200];
            let mut l = Intervals::default();
            for _ in 0..40 {
                let start = random(190);
                let end = start + random(10);
                let was_new = (start..end).any(|b| !naive[b as usize]);
                (start..end).for_each(|b| naive[b as usize] = true);
                let result = l.insert(start, end, |_| ());
                assert_eq!(result == Insertion::New, was_new);
                if random(8) == 0 {
                    let below = random(60);
                    l.remove_below(below);
                    (0..below).for_each(|b| naive[b as usize] = false);
                }
                let bytes: u64 = l.iter().map(|r| r.len()).sum();
                assert_eq!(bytes, naive.iter().filter(|b| **b).count() as u64);
                for b in 0..200u64 {
                    assert_eq!(l.find(b).is_some(), naive[b as usize]);
                }
                assert!(l.iter().zip(l.iter().skip(1)).all(|(a, b)| a.end < b.start));
            }
        }
    }
}
