//! Log lines for the program's user, each written once.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Events that are logged once.
#[derive(Clone, Copy, Debug)]
pub(super) enum Notice {
    NoEngine,
    EngineLost,
    EngineRefuses,
    InheritedConnection,
    InheritedDatagram,
    NumberTooHigh,
    NumberWanted,
    ListenRefused,
    ConnectRefused,
    DatagramRefused,
    ControlMessages,
    Unseekable,
    Stdio,
    IoUring,
    TooManyForks,
    Passed,
    InterestLost,
    ListenerLeft,
    OwnWay,
}

/// Maximum number of unsupported options logged.
const OPTIONS_MAX: usize = 256;

/// Events already logged.
pub(super) struct Notices {
    said: AtomicU64,
    options: Mutex<HashSet<(i32, i32)>>,
    quiet: bool,
}

impl Notices {
    /// Nothing said yet.
    pub fn new(quiet: bool) -> Self {
        Self { said: AtomicU64::new(0), options: Mutex::new(HashSet::new()), quiet }
    }

    /// Whether this is the first time, and logging is enabled.
    pub fn first(&self, notice: Notice) -> bool {
        let bit = 1_u64 << (notice as u32);
        !self.quiet
            && self.said.load(Ordering::Relaxed) & bit == 0
            && self.said.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    /// Forgets an event, so that its next occurrence is logged again.
    pub fn again(&self, notice: Notice) {
        self.said.fetch_and(!(1_u64 << (notice as u32)), Ordering::Relaxed);
    }

    /// Whether this socket option occurs for the first time.
    pub fn first_option(&self, level: i32, name: i32) -> bool {
        if self.quiet {
            return false;
        }
        let mut options = self.options.lock().unwrap_or_else(PoisonError::into_inner);
        options.len() < OPTIONS_MAX && options.insert((level, name))
    }
}
