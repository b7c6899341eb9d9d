//! The lock of an endpoint or lane: a word in the region that holds its owner's tag, so that
//! threads and forked processes share it and a dead process's lock can be broken.
//!
//! What it guards is short (a copy and a few stores), so a waiter spins, then yields, then naps;
//! unlocking is one store and never a system call.

use crate::region::Region;
use crate::sync::{Ordering, pause};

/// Who holds a lock: a process and one of its threads. Never nought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(u64);

impl Tag {
    /// `process` is the process id; `thread` is unique within the process.
    pub fn new(process: u32, thread: u32) -> Self {
        Self(u64::from(process.max(1)) << 32 | u64::from(thread))
    }

    #[cfg(not(loom))]
    fn is_dead(self) -> bool {
        let pid = i32::try_from(self.0 >> 32).ok().and_then(rustix::process::Pid::from_raw);
        pid.is_none_or(|pid| {
            rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH)
        })
    }
}

/// The lock is held by the asking thread itself: a signal handler came in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reentered;

impl std::fmt::Display for Reentered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "this thread is already in a call on the same socket")
    }
}

impl std::error::Error for Reentered {}

/// In a lock word: the engine has it, for less than a turn.
const ENGINE: u64 = u64::MAX;

/// Rounds of waiting after which an engine that still holds a lock is dead: ten seconds of naps.
#[cfg(not(loom))]
const ENGINE_ROUNDS_MAX: u32 = 200_000;

/// Takes the lock in `word` for the engine, which never waits; `false` when somebody has it.
pub(crate) fn seize(region: &Region, word: usize) -> bool {
    // Acquire pairs with the Release in `Held::drop`: what the last owner did is seen.
    region.word(word).compare_exchange(0, ENGINE, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

/// Lets go of a lock that the engine has seized.
pub(crate) fn let_go(region: &Region, word: usize) {
    // Pairs with `acquire`: the next owner sees what the engine did. One that the client has overwritten
    // meanwhile is the client's matter.
    let _ = region.word(word).compare_exchange(ENGINE, 0, Ordering::Release, Ordering::Relaxed);
}

/// A lock held; let go when dropped.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    region: &'a Region,
    word: usize,
}

/// Takes the lock in `word`.
pub(crate) fn acquire(region: &Region, word: usize, tag: Tag) -> Result<Held<'_>, Reentered> {
    let mut rounds = 0u32;
    loop {
        // Acquire pairs with the Release in `Held::drop`.
        let taken =
            region.word(word).compare_exchange(0, tag.0, Ordering::Acquire, Ordering::Relaxed);
        let Err(owner) = taken else { return Ok(Held { region, word }) };
        if owner == tag.0 {
            return Err(Reentered);
        }
        rounds = rounds.saturating_add(1);
        wait(region, word, owner, rounds);
    }
}

#[cfg(not(loom))]
const PAUSE: rustix::thread::Timespec = rustix::thread::Timespec { tv_sec: 0, tv_nsec: 50_000 };

#[cfg(not(loom))]
fn wait(region: &Region, word: usize, owner: u64, rounds: u32) {
    match rounds {
        0..100 => pause(),
        100..200 => std::thread::yield_now(),
        _ => {
            // The standard library's would be a cancellation point of a program's thread.
            let _ = rustix::thread::nanosleep(&PAUSE);
            let is_dead = match owner {
                ENGINE => rounds >= ENGINE_ROUNDS_MAX,
                owner => rounds.is_multiple_of(20) && Tag(owner).is_dead(),
            };
            if is_dead {
                // What it guarded is whole between any two stores: a position is advanced last.
                let _ = region.word(word).compare_exchange(
                    owner,
                    0,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                );
            }
        }
    }
}

#[cfg(loom)]
fn wait(_: &Region, _: usize, _: u64, _: u32) {
    pause();
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.region.store(self.word, 0, Ordering::Release); // pairs with `acquire`
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::control::Geometry;

    fn region() -> Region {
        let small = Geometry {
            endpoint_capacity: 1,
            buffer_count: 1,
            context_count: 1,
            ..Geometry::default()
        };
        Region::private(small).unwrap()
    }

    #[test]
    fn the_lock_of_a_dead_process_is_broken() {
        let region = region();
        let word = region.layout().endpoint(0) + crate::layout::endpoint::SEND_LOCK;
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let dead = Tag::new(child.id(), 1);
        child.wait().unwrap();
        std::mem::forget(acquire(&region, word, dead).unwrap());
        drop(acquire(&region, word, Tag::new(std::process::id(), 1)).unwrap());
        assert_eq!(region.load(word, Ordering::Relaxed), 0);
    }

    #[test]
    fn the_engine_gets_a_free_lock_only_and_is_waited_for() {
        let region = std::sync::Arc::new(region());
        let word = region.layout().endpoint(0) + crate::layout::endpoint::SEND_LOCK;
        let held = acquire(&region, word, Tag::new(std::process::id(), 1)).unwrap();
        assert!(!seize(&region, word));
        drop(held);
        assert!(seize(&region, word));
        let waiting = {
            let region = region.clone();
            std::thread::spawn(move || {
                drop(acquire(&region, word, Tag::new(std::process::id(), 2)).unwrap());
            })
        };
        // It is no process that could be dead: a waiter that has looked often goes on waiting.
        std::thread::sleep(PAUSE_FOR_LOOKS);
        assert!(!waiting.is_finished());
        let_go(&region, word);
        waiting.join().unwrap();
        assert_eq!(region.load(word, Ordering::Relaxed), 0);
    }

    /// Many rounds of a waiter.
    const PAUSE_FOR_LOOKS: std::time::Duration = std::time::Duration::from_millis(20);

    #[test]
    fn a_thread_that_comes_back_to_its_own_lock_is_told() {
        let region = region();
        let word = region.layout().endpoint(0) + crate::layout::endpoint::SEND_LOCK;
        let own = Tag::new(std::process::id(), 1);
        let held = acquire(&region, word, own).unwrap();
        assert_eq!(acquire(&region, word, own).unwrap_err(), Reentered);
        drop(held);
        assert!(acquire(&region, word, own).is_ok());
    }
}
