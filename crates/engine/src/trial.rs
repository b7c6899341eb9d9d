//! An engine on trial: unless it is confirmed in time, it ends, and everything reverts to the
//! kernel.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::errors::TrialOver;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Running,
    Confirmed,
    Over,
}

/// Whether the engine keeps running.
#[derive(Debug, Default)]
pub struct Trial {
    state: Mutex<State>,
    changed: Condvar,
}

impl Trial {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Confirms the engine.
    ///
    /// # Errors
    /// If the time is over.
    pub fn confirm(&self) -> Result<(), TrialOver> {
        let mut state = self.state();
        if *state == State::Over {
            return Err(TrialOver);
        }
        *state = State::Confirmed;
        self.changed.notify_all();
        Ok(())
    }

    /// Waits for the confirmation; `false` if it did not come in time. From then on it is refused.
    pub fn wait(&self, limit: Duration) -> bool {
        let running = |state: &mut State| *state == State::Running;
        let waited = self.changed.wait_timeout_while(self.state(), limit, running);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if *state == State::Running {
            *state = State::Over;
        }
        *state == State::Confirmed
    }

    /// Whether the time passed without a confirmation.
    pub fn is_over(&self) -> bool {
        *self.state() == State::Over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confirmation_in_time_is_taken_and_a_late_one_refused() {
        let trial = Trial::default();
        trial.confirm().unwrap();
        assert!(trial.wait(Duration::ZERO) && !trial.is_over());
        let trial = Trial::default();
        assert!(!trial.wait(Duration::ZERO));
        assert!(trial.is_over() && trial.confirm().is_err());
    }

    #[test]
    fn whoever_waits_hears_of_the_confirmation() {
        let trial = Trial::default();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| trial.wait(Duration::from_secs(3600)));
            trial.confirm().unwrap();
            assert!(waiting.join().unwrap());
        });
    }
}
