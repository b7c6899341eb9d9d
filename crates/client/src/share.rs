//! How many of a session's buffers one connection may hold.

/// Minimum send limit of a stream, unless set otherwise: enough for the delay to the engine and
/// back, however near the peer is.
pub const SEND_LIMIT: u64 = 1 << 20;

/// What a connection may hold at least while the pool is not scarce.
const SHARE_LEAST: u64 = 16 << 10;
/// The same from the reserve, on which many connections may have to continue.
const RESERVE_SHARE_LEAST: u64 = 2 << 10;

/// The buffers left in a pool for sending.
#[derive(Clone, Copy, Debug)]
pub struct Left {
    /// In the pool now.
    pub bytes: u64,
    /// The pool's size.
    pub whole: u64,
}

impl Left {
    /// The bytes left apart from the reserve, a quarter of the pool.
    fn beyond_reserve(self) -> u64 {
        self.bytes.saturating_sub(self.whole / 4)
    }

    /// What one connection may hold: the less, the more others hold. Peers that acknowledge nothing
    /// keep their share, so the sum must not exhaust the pool. From the reserve each gets a small
    /// part, which lasts for more than a thousand of them and lets others continue.
    pub fn share(self) -> u64 {
        let least = match self.beyond_reserve() {
            0 => (self.bytes / 2048).clamp(RESERVE_SHARE_LEAST, SHARE_LEAST),
            _ => SHARE_LEAST,
        };
        (self.beyond_reserve() / 32).max(least)
    }

    /// The maximum for one connection, whatever its path carries.
    pub fn most(self) -> u64 {
        self.beyond_reserve() / 8
    }

    /// The limit of a connection with automatic tuning: the default, or a larger share if its path
    /// has proved to carry more.
    pub fn room(self, carried: u64) -> u64 {
        SEND_LIMIT.min(self.share()).max(carried.min(self.most()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: u64 = 64 << 20;

    /// Peers that take nothing, each with as much as it may hold, and at worst a buffer more, the rest of
    /// which went to others.
    fn left_by(stalled: usize, carried: u64) -> Left {
        let mut left = Left { bytes: WHOLE / 4 * 3, whole: WHOLE };
        for _ in 0..stalled {
            let taken = left.room(carried) + (8 << 10);
            assert!(taken <= left.bytes, "the pool is taken up");
            left.bytes -= taken;
        }
        left
    }

    #[test]
    fn slow_peers_share_what_there_is_and_leave_some_for_the_next() {
        assert!(left_by(100, 0).room(0) >= SHARE_LEAST);
        // Also where paths have shown that they carry much.
        assert!(left_by(100, 64 << 20).room(0) >= RESERVE_SHARE_LEAST);
    }

    #[test]
    fn a_thousand_peers_that_take_nothing_leave_a_reserve() {
        for carried in [0, 64 << 20] {
            let left = left_by(1000, carried);
            assert!(left.bytes >= 1 << 20, "{left:?}");
            assert!(left.room(carried) >= RESERVE_SHARE_LEAST);
        }
    }
}
