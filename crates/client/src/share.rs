//! How much of a session's buffers one connection may hold.

/// Bytes that a stream may have sent and not acknowledged at the least, unless told otherwise: what
/// covers the way to the engine and back however near the peer is.
pub const SEND_LIMIT: u64 = 1 << 20;

/// What a connection may hold while the pool is not scarce.
const SHARE_LEAST: u64 = 16 << 10;
/// The same of the reserve, which many connections have to go on with.
const RESERVE_SHARE_LEAST: u64 = 2 << 10;

/// What is left of a pool for sending.
#[derive(Clone, Copy, Debug)]
pub struct Left {
    /// In the pool now.
    pub bytes: u64,
    /// The pool's size.
    pub whole: u64,
}

impl Left {
    /// What is left apart from the reserve, a quarter of the pool.
    fn beyond_reserve(self) -> u64 {
        self.bytes.saturating_sub(self.whole / 4)
    }

    /// What one connection may hold. The more hold something, the less each may. Peers that take nothing
    /// keep what they hold, so their sum must not reach the end of the pool: of the reserve each gets a
    /// small part, which lasts for more than a thousand of them and is enough for others to go on.
    pub fn share(self) -> u64 {
        let least = match self.beyond_reserve() {
            0 => (self.bytes / 2048).clamp(RESERVE_SHARE_LEAST, SHARE_LEAST),
            _ => SHARE_LEAST,
        };
        (self.beyond_reserve() / 32).max(least)
    }

    /// The most that one connection may hold, whatever its path carries.
    pub fn most(self) -> u64 {
        self.beyond_reserve() / 8
    }

    /// What a connection may hold whose send buffer tunes itself: the usual, or, where a path has
    /// shown that it carries more, a larger share.
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
