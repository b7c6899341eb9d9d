//! An operation in progress.

use client::message::Ticket;

use crate::pieces::Pieces;

/// Data for an operation's completion.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    pub kind: Kind,
    /// The program's context.
    pub context: usize,
    /// Its memory.
    pub pieces: Pieces,
    /// Whether its messages are tagged.
    pub is_tagged: bool,
    /// Whether success is reported to the queue; failure always is.
    pub reports: bool,
    /// The ticket to cancel it; `None` while it is being posted.
    pub ticket: Option<Ticket>,
}

/// Kinds of operations that complete differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Send,
    /// An injected message that is complete when it is delivered: counted then, never in a queue.
    Inject,
    Receive,
    /// The receive for the endpoint's first multi-receive buffer.
    ReceiveMany,
    /// FI_PEEK.
    Peek,
    /// FI_PEEK with FI_CLAIM: the program's context refers to the message from now on.
    Claim,
    /// FI_PEEK with FI_DISCARD: reported when found, then discarded.
    FindAndDiscard,
    /// FI_CLAIM with FI_DISCARD.
    Discard,
    /// The second half of `FindAndDiscard`, which is not reported.
    DiscardFound,
}

impl Kind {
    /// Whether `fi_cancel` may end it.
    pub fn is_cancellable(self) -> bool {
        matches!(self, Self::Send | Self::Receive | Self::ReceiveMany)
    }
}
