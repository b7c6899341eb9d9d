//! Waiting for the engine's answer to a request: briefly on the CPU, then giving it away.

use std::time::Duration;

/// How long the next wait is.
pub(crate) struct Backoff {
    rounds: u32,
    spins: u32,
}

impl Backoff {
    /// `share_cpu`: the worker runs on this CPU, so that spinning only keeps it from answering.
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
            std::thread::sleep(Duration::from_micros(50));
            true
        }
    }
}
