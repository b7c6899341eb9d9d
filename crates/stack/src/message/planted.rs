//! Bugs that the simulator puts into the core on purpose, to see that it would find them.

use std::fmt::Debug;

/// A rule of the protocol that is broken. Repeated atomics (the design's thirteenth) need remote
/// memory, which version 1 does not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// Lost frames are not sent again.
    NoResend,
    /// A START is matched before the starting frames that are missing before it.
    MatchOnArrival,
    /// Payload of a message whose START is missing is acknowledged, and not placed.
    EarlyAcknowledgement,
    /// A START is taken for decided with its acknowledgement.
    AnsweredIgnored,
    /// An accepted RESUME does not end a refusal.
    ResumeIgnored,
    /// An early START takes an envelope without one for each starting frame that is missing.
    NoReservation,
    /// Payload of an earlier attempt is placed.
    AttemptIgnored,
    /// The next association with a host has the epoch of the last one.
    LifeNotRaised,
    /// The other host's epochs are not remembered.
    EpochForgotten,
    /// An ABORT is not answered.
    AbortUnanswered,
    /// Bytes granted to a message that ends count for ever.
    GrantLeak,
    /// Authenticators are not compared.
    KeyIgnored,
}

impl Planted {
    /// All of them, with their names.
    pub const ALL: [(&str, Planted); 12] = [
        ("no-resend", Self::NoResend),
        ("match-on-arrival", Self::MatchOnArrival),
        ("early-acknowledgement", Self::EarlyAcknowledgement),
        ("answered-ignored", Self::AnsweredIgnored),
        ("resume-ignored", Self::ResumeIgnored),
        ("no-reservation", Self::NoReservation),
        ("attempt-ignored", Self::AttemptIgnored),
        ("life-not-raised", Self::LifeNotRaised),
        ("epoch-forgotten", Self::EpochForgotten),
        ("abort-unanswered", Self::AbortUnanswered),
        ("grant-leak", Self::GrantLeak),
        ("key-ignored", Self::KeyIgnored),
    ];
}

/// Which bugs a core has. Decided when it is compiled, so that an engine's core has no branch for
/// them.
pub trait Bugs: Copy + Debug + Default {
    /// Whether the core has this one.
    fn has(self, bug: Planted) -> bool;
}

/// A core without planted bugs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sound;

impl Bugs for Sound {
    #[inline(always)]
    fn has(self, _: Planted) -> bool {
        false
    }
}

/// A core of the simulator: with one bug, or with none.
impl Bugs for Option<Planted> {
    fn has(self, bug: Planted) -> bool {
        self == Some(bug)
    }
}
