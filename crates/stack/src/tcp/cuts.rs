//! How what was sent was cut: into segments, and these gathered into frames that the port cut. Linux sends
//! again by the frames that it sent first (its socket buffers), so that is remembered, too, as far as the
//! frames of a burst are alike.

use serde::{Deserialize, Serialize};

/// How bytes with one history were cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cuts {
    /// Payload of each segment, but for the last.
    unit: u16,
    /// Segments of each frame, but for the last; 0 where that is not known.
    frame: u8,
    /// Those of the first frame that lie here.
    lead: u8,
}

impl Cuts {
    /// Nothing is known: segments may end anywhere.
    pub const UNKNOWN: Self = Self { unit: 1, frame: 0, lead: 0 };

    /// One frame of so many bytes in segments of `unit` bytes and a last one that may be smaller.
    pub fn of(len: u64, unit: u16) -> Self {
        let unit = unit.max(1);
        let frame = match len <= u64::from(unit) {
            true => 1,
            false => u8::try_from(len.div_ceil(u64::from(unit))).unwrap_or(0),
        };
        Self { unit, frame, lead: frame }
    }

    /// Bytes of a segment.
    fn bytes(self) -> u64 {
        u64::from(self.unit.max(1))
    }

    /// How `len` bytes cut so and `next_len` bytes cut as `next` behind them are cut together; `None` where
    /// it would not be known any more where segments end.
    pub fn joined(self, len: u64, next: Self, next_len: u64) -> Option<Self> {
        let whole = u64::from(self.frame) * self.bytes();
        // Whole frames are what bursts consist of: that costs a single division.
        let are_whole = self.frame != 0 && self.lead == self.frame && len.is_multiple_of(whole);
        if !are_whole && !len.is_multiple_of(self.bytes())
            || next.unit != self.unit && next_len >= self.bytes()
        {
            return None;
        }
        let lead = if are_whole { self.frame } else { self.behind(len).lead };
        let goes_on = next.frame == self.frame && next.lead == lead;
        // The last frame may be a smaller one.
        let is_smaller = (1..=self.frame).contains(&next.frame) && lead == self.frame;
        let is_single = next.lead == next.frame && next_len <= u64::from(next.frame) * next.bytes();
        let is_known = goes_on || is_smaller && is_single;
        Some(if is_known { self } else { Self { frame: 0, lead: 0, ..self } })
    }

    /// The longest segment of `len` bytes cut so; all of them where that is not known.
    pub fn longest(self, len: u64) -> u64 {
        if self.unit <= 1 { len } else { len.min(self.bytes()) }
    }

    /// How what begins `offset` bytes later is cut.
    pub fn behind(self, offset: u64) -> Self {
        if self.frame == 0 {
            return self;
        }
        if !offset.is_multiple_of(self.bytes()) {
            return Self { frame: 0, lead: 0, ..self };
        }
        let (segments, frame) = (offset / self.bytes(), u64::from(self.frame));
        let lead = match u64::from(self.lead).checked_sub(segments) {
            Some(left) if left > 0 => left,
            _ => frame - (segments - u64::from(self.lead)) % frame,
        };
        Self { lead: lead as u8, ..self }
    }

    /// Bytes from the beginning to the end of the first frame, where that is one of several segments.
    pub fn first_frame(self) -> Option<u64> {
        (self.frame > 1).then(|| u64::from(self.lead) * self.bytes())
    }

    /// The first end of a segment at or behind `offset`.
    pub fn ceil(self, offset: u64) -> u64 {
        offset.div_ceil(self.bytes()) * self.bytes()
    }

    /// The last end of a segment at or before `offset`.
    pub fn floor(self, offset: u64) -> u64 {
        offset - offset % self.bytes()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_frame_that_was_acknowledged_in_part_ends_where_it_ended() {
        let burst = Cuts::of(2920, 1460).joined(2920, Cuts::of(2920, 1460), 2920).unwrap();
        assert_eq!(burst.first_frame(), Some(2920));
        assert_eq!(burst.behind(1460).first_frame(), Some(1460));
        assert_eq!(burst.behind(2920).first_frame(), Some(2920));
        assert_eq!(burst.behind(100).first_frame(), None, "within a segment");
    }

    #[test]
    fn frames_of_one_segment_bound_nothing() {
        let burst = Cuts::of(1460, 1460).joined(1460, Cuts::of(1460, 1460), 1460).unwrap();
        assert_eq!(burst.first_frame(), None);
    }

    proptest! {
        /// Against a list of where frames end. What is not alike may be forgotten, but never wrong.
        #[test]
        fn what_is_known_of_frames_is_true(
            frames in prop::collection::vec(1u64..6, 1..20),
            ends_short in any::<bool>(),
        ) {
            const UNIT: u64 = 10;
            let mut cuts: Option<Cuts> = None;
            let (mut len, mut ends) = (0, Vec::new());
            for (at, segments) in frames.iter().enumerate() {
                let is_last = at + 1 == frames.len();
                let bytes = segments * UNIT - u64::from(is_last && ends_short);
                let next = Cuts::of(bytes, UNIT as u16);
                let joined = |cuts: Cuts| cuts.joined(len, next, bytes).expect("whole segments");
                cuts = Some(cuts.map_or(next, joined));
                len += bytes;
                ends.push(len);
            }
            let cuts = cuts.unwrap();
            let alike = frames[..frames.len() - 1].iter().all(|frame| *frame == frames[0]);
            for offset in (0..len).step_by(UNIT as usize) {
                let told = cuts.behind(offset).first_frame().map(|bytes| (offset + bytes).min(len));
                let end = *ends.iter().find(|end| **end > offset).unwrap();
                prop_assert!(told.is_none_or(|told| told == end), "{:?} {}", frames, offset);
                let is_known = alike && frames[0] > 1 && frames[frames.len() - 1] <= frames[0];
                prop_assert_eq!(told.is_some(), is_known, "{:?} {}", frames, offset);
            }
        }
    }
}
