//! A token bucket of a link's bits, which are earned with time and spent by frames.

/// Maximum time for which bits are kept, unless one frame takes longer.
const KEPT_NS: u128 = 1_000_000;
/// Credit of one bit: in units in which every rate divides nanoseconds without remainder.
const PER_BIT: u128 = 1_000_000_000;

/// The pace of a link.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    /// Bits per second; 0 means unlimited.
    rate_bits: u64,
    /// Maximum and current bits, each times [`PER_BIT`].
    most: u128,
    credit: u128,
    earned_ns: Option<u64>,
}

impl Pace {
    /// A link of this rate whose longest frame has `frame_bits`. It starts with a full bucket.
    pub(super) fn new(rate_bits: u64, frame_bits: u64) -> Self {
        let most = (u128::from(rate_bits) * KEPT_NS).max(u128::from(frame_bits) * PER_BIT);
        Self { rate_bits, most, credit: most, earned_ns: None }
    }

    /// Adds the bits earned with time, and returns the bits that overflowed.
    pub(super) fn earn(&mut self, now_ns: u64) -> u64 {
        let before_ns = self.earned_ns.replace(now_ns).unwrap_or(now_ns);
        let passed_ns = now_ns.saturating_sub(before_ns);
        self.credit += u128::from(passed_ns) * u128::from(self.rate_bits);
        let lost = self.credit.saturating_sub(self.most);
        self.credit -= lost;
        (lost / PER_BIT) as u64
    }

    /// Spends `bits` if they are available.
    pub(super) fn spend(&mut self, bits: u64) -> bool {
        if self.rate_bits == 0 {
            return true;
        }
        let left = self.credit.checked_sub(u128::from(bits) * PER_BIT);
        self.credit = left.unwrap_or(self.credit);
        left.is_some()
    }

    /// Nanoseconds until `bits` can be spent.
    pub(super) fn until(&self, bits: u64) -> u64 {
        let missing = (u128::from(bits) * PER_BIT).saturating_sub(self.credit);
        match self.rate_bits {
            0 => 0,
            rate_bits => missing.div_ceil(u128::from(rate_bits)) as u64,
        }
    }
}
