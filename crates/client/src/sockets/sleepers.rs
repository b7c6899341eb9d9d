//! Threads asleep on one waiter, and how many of them must still wake: of several threads in one
//! epoll set the kernel wakes one at a time, and only as long as the eventfd stays readable.

use std::sync::atomic::{AtomicU64, Ordering};

/// All counts in one word, so that they change together.
#[derive(Debug, Default)]
pub(super) struct Sleepers(AtomicU64);

/// The round in which a thread fell asleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Round(u64);

/// The contents of the word. There cannot be more than 2^24 threads.
#[derive(Clone, Copy)]
struct Count {
    round: u64,
    /// Threads asleep since an earlier round.
    earlier: u64,
    sleepers: u64,
}

const BITS: u32 = 24;
const MOST: u64 = (1 << BITS) - 1;

impl Count {
    fn of(word: u64) -> Self {
        let (earlier, sleepers) = ((word >> BITS) & MOST, word & MOST);
        Self { round: word >> (2 * BITS), earlier, sleepers }
    }

    fn word(self) -> u64 {
        (self.round << (2 * BITS)) | (self.earlier << BITS) | self.sleepers
    }
}

impl Sleepers {
    fn count(&self) -> Count {
        Count::of(self.0.load(Ordering::SeqCst))
    }

    /// Changes the counts; returns the previous ones.
    fn change(&self, change: impl Fn(&mut Count)) -> Count {
        let changed = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |word| {
            let mut count = Count::of(word);
            change(&mut count);
            Some(count.word())
        });
        let (Ok(before) | Err(before)) = changed;
        Count::of(before)
    }

    /// Adds a sleeper.
    pub fn add(&self) -> Round {
        Round(Count::of(self.0.fetch_add(1, Ordering::SeqCst)).round)
    }

    /// Removes a sleeper; returns whether it was the last one that had to wake.
    pub fn remove(&self, round: Round) -> bool {
        let before = self.change(|count| {
            let of_round =
                if count.round == round.0 { &mut count.sleepers } else { &mut count.earlier };
            *of_round = of_round.saturating_sub(1);
        });
        before.round != round.0 && before.earlier == 1
    }

    /// All sleepers must wake; returns whether there are any.
    pub fn rouse(&self) -> bool {
        let before = self.change(|count| {
            count.round = count.round.wrapping_add(1);
            count.earlier += std::mem::take(&mut count.sleepers);
        });
        before.sleepers + before.earlier > 0
    }

    /// Whether there are any.
    pub fn any(&self) -> bool {
        let count = self.count();
        count.sleepers + count.earlier > 0
    }

    /// Whether some still have to wake.
    pub fn are_roused(&self) -> bool {
        self.count().earlier > 0
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
