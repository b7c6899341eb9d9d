//! Sequence numbers and their circular order (RFC 9293, section 3.4).

use core::ops::{Add, AddAssign, Sub};

/// A sequence number. Comparisons are modulo 2^32, so they are methods and not `Ord`: the order
/// is not transitive round the circle.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize,
)]
pub struct SeqNumber(pub u32);

impl SeqNumber {
    /// How far this is after `other`, negative when before. Exact within 2^31.
    pub const fn offset_from(self, other: SeqNumber) -> i32 {
        self.0.wrapping_sub(other.0).cast_signed()
    }
    /// Numbers from `earlier` on to this, round the circle.
    pub const fn since(self, earlier: SeqNumber) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }
    /// Before `other`.
    pub const fn lt(self, other: SeqNumber) -> bool {
        self.offset_from(other) < 0
    }
    /// Before `other` or equal.
    pub const fn le(self, other: SeqNumber) -> bool {
        self.offset_from(other) <= 0
    }
    /// After `other`.
    pub const fn gt(self, other: SeqNumber) -> bool {
        self.offset_from(other) > 0
    }
    /// After `other` or equal.
    pub const fn ge(self, other: SeqNumber) -> bool {
        self.offset_from(other) >= 0
    }
    /// Within the `len` numbers that begin with `start`.
    pub const fn is_within(self, start: SeqNumber, len: u32) -> bool {
        self.since(start) < len
    }
    /// The later of two.
    pub const fn max(self, other: SeqNumber) -> SeqNumber {
        if self.lt(other) { other } else { self }
    }
    /// The earlier of two.
    pub const fn min(self, other: SeqNumber) -> SeqNumber {
        if other.lt(self) { other } else { self }
    }
}

impl Add<u32> for SeqNumber {
    type Output = SeqNumber;
    fn add(self, count: u32) -> SeqNumber {
        SeqNumber(self.0.wrapping_add(count))
    }
}

impl AddAssign<u32> for SeqNumber {
    fn add_assign(&mut self, count: u32) {
        *self = *self + count;
    }
}

impl Sub<u32> for SeqNumber {
    type Output = SeqNumber;
    fn sub(self, count: u32) -> SeqNumber {
        SeqNumber(self.0.wrapping_sub(count))
    }
}

impl core::fmt::Display for SeqNumber {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Within half of the circle the order is that of the distances.
        #[test]
        fn the_order_is_that_of_positions_wherever_the_numbers_wrap(
            base: u32, a in 0..1_u32 << 30, b in 0..1_u32 << 30, len: u32
        ) {
            let (start, first, second) =
                (SeqNumber(base), SeqNumber(base) + a, SeqNumber(base) + b);
            prop_assert_eq!(first.lt(second), a < b);
            prop_assert_eq!(first.le(second), a <= b);
            prop_assert_eq!(first.gt(second), a > b);
            prop_assert_eq!(first.ge(second), a >= b);
            prop_assert_eq!(first.max(second), start + a.max(b));
            prop_assert_eq!(first.min(second), start + a.min(b));
            prop_assert_eq!(i64::from(first.offset_from(second)), i64::from(a) - i64::from(b));
            prop_assert_eq!(first.since(start), a);
            prop_assert_eq!(first.is_within(start, len), a < len);
            prop_assert_eq!(first - a, start);
            let mut moved = start;
            moved += a;
            prop_assert_eq!(moved, first);
        }
    }
}
