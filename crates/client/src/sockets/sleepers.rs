//! Threads asleep on one waiter, and those of them that all are to wake: of several in one epoll set the
//! kernel wakes one at a time, and only as long as the eventfd stays readable.

use std::sync::atomic::{AtomicU64, Ordering};

/// A sleeper of this round, one of an earlier round, and a round. More than 2^24 threads are not possible.
const SLEEPER: u64 = 1;
const EARLIER: u64 = 1 << 24;
const ROUND: u64 = 1 << 48;
const COUNT: u64 = EARLIER - 1;

/// How many there are, in one word, so that nobody is counted in a round that he does not know of.
#[derive(Debug, Default)]
pub(super) struct Sleepers(AtomicU64);

/// The round in which somebody fell asleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Round(u64);

impl Sleepers {
    /// One more.
    pub fn add(&self) -> Round {
        Round(self.0.fetch_add(SLEEPER, Ordering::SeqCst) / ROUND)
    }

    /// One less; whether it was the last that was to wake.
    pub fn remove(&self, round: Round) -> bool {
        let is_earlier = |word: u64| word / ROUND != round.0;
        let less = |word: u64| word.wrapping_sub(if is_earlier(word) { EARLIER } else { SLEEPER });
        let before =
            self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |word| Some(less(word)));
        let (Ok(before) | Err(before)) = before;
        is_earlier(before) && less(before) / EARLIER & COUNT == 0
    }

    /// All who sleep are to wake; whether there are any.
    pub fn rouse(&self) -> bool {
        let next = |word: u64| {
            let all = (word & COUNT) + (word / EARLIER & COUNT);
            (word / ROUND * ROUND).wrapping_add(ROUND) + all * EARLIER
        };
        let before =
            self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |word| Some(next(word)));
        let (Ok(before) | Err(before)) = before;
        before % ROUND != 0
    }

    /// Whether there are any.
    pub fn any(&self) -> bool {
        self.0.load(Ordering::SeqCst) % ROUND != 0
    }

    /// Whether some are still to wake.
    pub fn are_roused(&self) -> bool {
        self.0.load(Ordering::SeqCst) / EARLIER & COUNT != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_those_who_slept_when_all_were_roused_ends_it() {
        let sleepers = Sleepers::default();
        assert!(!sleepers.rouse());
        let (first, second) = (sleepers.add(), sleepers.add());
        assert!(sleepers.rouse() && sleepers.are_roused());
        let third = sleepers.add();
        assert!(!sleepers.remove(first));
        assert!(!sleepers.remove(third), "it came later");
        assert!(sleepers.are_roused());
        assert!(sleepers.rouse(), "again, for the one that is left");
        assert!(sleepers.remove(second) && !sleepers.are_roused() && !sleepers.any());
        let fourth = sleepers.add();
        assert!(sleepers.any() && !sleepers.remove(fourth), "nobody was roused");
    }

    #[test]
    fn rounds_may_wrap() {
        let sleepers = Sleepers::default();
        for _ in 0..(1 << 16) + 3 {
            let round = sleepers.add();
            assert!(sleepers.rouse() && sleepers.remove(round) && !sleepers.any());
        }
    }
}
