//! The script and its program take turns: one thread runs at a time, and which one never depends
//! on the machine.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::Program;
use crate::system::Outcome;

/// What the program is told to do.
pub struct Job(Box<dyn FnOnce(Program) -> Outcome + Send>);

impl Job {
    /// Something for the program to do.
    pub fn new(body: impl FnOnce(Program) -> Outcome + Send + 'static) -> Self {
        Self(Box::new(body))
    }
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Job")
    }
}

/// Where the program's thread is.
#[derive(Debug, Default)]
enum Caller {
    /// Without a call.
    #[default]
    Idle,
    /// It has been told to make a call.
    Told(Job),
    /// It runs.
    Runs,
    /// It sleeps in a call, until a time if there is one.
    Sleeps(Option<u64>),
    /// It has been woken.
    Woken,
    /// The call has ended at a time.
    Ended(u64, Outcome),
    /// No more calls are made.
    Over,
}

#[derive(Debug, Default)]
struct State {
    now: u64,
    caller: Caller,
}

/// The turns, and the time.
#[derive(Debug)]
pub struct Baton {
    state: Mutex<State>,
    changed: Condvar,
}

impl Default for Baton {
    fn default() -> Self {
        // A round number of seconds, so that times are easy to read.
        let state = State { now: 1_000_000_000, caller: Caller::Idle };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }
}

impl Baton {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time.
    pub fn now(&self) -> u64 {
        self.state().now
    }

    /// Lets time pass.
    pub fn set_now(&self, now: u64) {
        self.state().now = now;
    }

    /// Waits while the program runs.
    fn rest<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        while matches!(state.caller, Caller::Told(_) | Caller::Runs | Caller::Woken) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    /// The program makes a call; returns when it has ended or sleeps.
    pub fn start(&self, job: Job) {
        let mut state = self.state();
        assert!(matches!(state.caller, Caller::Idle), "a program makes one call at a time");
        state.caller = Caller::Told(job);
        self.changed.notify_all();
        drop(self.rest(state));
    }

    /// Wakes the program if it sleeps; whether it did.
    pub fn nudge(&self) -> bool {
        let mut state = self.state();
        if !matches!(state.caller, Caller::Sleeps(_)) {
            return false;
        }
        state.caller = Caller::Woken;
        self.changed.notify_all();
        // To wake up and sleep again is no work.
        !matches!(self.rest(state).caller, Caller::Sleeps(_))
    }

    /// When the program wakes up by itself.
    pub fn waits_until(&self) -> Option<u64> {
        match self.state().caller {
            Caller::Sleeps(until) => until,
            _ => None,
        }
    }

    /// Whether a call has ended.
    pub fn has_outcome(&self) -> bool {
        matches!(self.state().caller, Caller::Ended(..))
    }

    /// What the call came to, once.
    pub fn take_outcome(&self) -> Option<(u64, Outcome)> {
        let mut state = self.state();
        match std::mem::take(&mut state.caller) {
            Caller::Ended(time, outcome) => Some((time, outcome)),
            other => {
                state.caller = other;
                None
            }
        }
    }

    /// The program sleeps, until `until` if it is given. On the program's thread.
    pub fn sleep(&self, until: Option<u64>) {
        let mut state = self.state();
        if matches!(state.caller, Caller::Over) {
            return;
        }
        state.caller = Caller::Sleeps(until);
        self.changed.notify_all();
        while matches!(state.caller, Caller::Sleeps(_)) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if matches!(state.caller, Caller::Woken) {
            state.caller = Caller::Runs;
        }
    }

    /// Whether no more calls are made.
    pub fn is_over(&self) -> bool {
        matches!(self.state().caller, Caller::Over)
    }

    /// Ends the program's thread; a call under way fails.
    pub fn end(&self) {
        self.state().caller = Caller::Over;
        self.changed.notify_all();
    }

    /// The program's thread: makes calls until the end.
    pub fn serve(&self, program: Program) {
        loop {
            let mut state = self.state();
            let job = loop {
                match std::mem::take(&mut state.caller) {
                    Caller::Told(job) => break job,
                    Caller::Over => {
                        state.caller = Caller::Over;
                        return;
                    }
                    other => state.caller = other,
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            };
            state.caller = Caller::Runs;
            drop(state);
            let outcome = job.0(program);
            let mut state = self.state();
            if !matches!(state.caller, Caller::Over) {
                state.caller = Caller::Ended(state.now, outcome);
            }
            self.changed.notify_all();
        }
    }
}
