//! Waiting for the engine's answer to a request: first by spinning, then by sleeping.

use rustix::thread::{Timespec, nanosleep};

const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000 };

/// The length of the next wait.
pub(crate) struct Backoff {
    rounds: u32,
    spins: u32,
}

impl Backoff {
    /// `share_cpu`: the worker runs on this CPU, so spinning would only delay its answer.
    pub(crate) fn new(share_cpu: bool) -> Self {
        Self { rounds: 0, spins: if share_cpu { 0 } else { 400 } }
    }

    /// Waits once. `true`: the wait is getting long, and the engine may be gone.
    pub(crate) fn wait(&mut self) -> bool {
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds < self.spins {
            std::hint::spin_loop();
            false
        } else if self.rounds < self.spins + 100 {
            std::thread::yield_now();
            false
        } else {
            // The standard library's sleep would be a cancellation point.
            let _ = nanosleep(&PAUSE);
            true
        }
    }
}
