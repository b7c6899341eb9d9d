//! Errors of the engine's public operations, except those of starting it.

use std::fmt;

/// Why an engine ended without being told to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineError {
    /// A thread panicked.
    Panicked {
        /// Its name.
        thread: String,
    },
    /// The interfaces of all its ports were removed.
    PortsLost,
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked { thread } => {
                write!(f, "the engine's thread {thread} panicked; its message is above")
            }
            Self::PortsLost => {
                f.write_str("the interface of its port was removed; restart it when there is one")
            }
        }
    }
}

impl std::error::Error for EngineError {}

/// An engine was given more ports than its stack can number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyPorts {
    /// Ports given.
    pub given: usize,
    /// Ports that it can have.
    pub port_count_max: usize,
}

impl fmt::Display for TooManyPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { given, port_count_max } = self;
        write!(f, "{given} ports, but an engine has at most {port_count_max}; use fewer")
    }
}

impl std::error::Error for TooManyPorts {}

/// The time to confirm an engine on trial is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrialOver;

impl fmt::Display for TrialOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it was not confirmed in time; start it again")
    }
}

impl std::error::Error for TrialOver {}

/// A buffer or a span of a session has no holder, or more than one: a fault of the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConservationError {
    /// The session's key.
    pub session: u64,
    /// Its program.
    pub program: String,
    /// What was counted, and what should have been.
    pub counts: String,
}

impl fmt::Display for ConservationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { session, program, counts } = self;
        write!(f, "session {session} ({program}): {counts}")
    }
}

impl std::error::Error for ConservationError {}
