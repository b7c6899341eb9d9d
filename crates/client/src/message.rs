//! Messages: reliable, tagged, connectionless, matched by the engine.
//!
//! The interface is poll-shaped. [`Endpoint::send`] and [`Endpoint::post_recv`] start operations,
//! [`Endpoint::poll_completion`] reports their outcome and moves the payload of long messages.
//! Programs have no references to shared memory: payload is copied between the session's buffers
//! and the program's memory, which a [`Memory`] locates.

mod endpoint;
mod memory;
mod operations;
mod peers;
mod registered;

use rustix::io::Errno;

pub use endpoint::MessageEndpoint as Endpoint;
pub use memory::{Buffers, Memory};
pub use registered::Watched;
pub use shm::message::{EAGER_MAX, INJECT_MAX, MESSAGE_MAX};

/// A peer of an endpoint: consecutive numbers from 0, valid as long as the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Peer(pub u32);

/// An operation of an endpoint. Never reused, so a late cancel cannot affect another operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub(crate) u64);

/// Parameters of a send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Send {
    /// The tag; tagged and untagged messages never match each other.
    pub tag: Option<u64>,
    /// Immediate data for the receiver.
    pub immediate: Option<u32>,
    /// Complete when the peer's program has the message, not when its engine has it.
    pub delivery: bool,
}

/// The messages that a receive or a probe matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pattern {
    /// From this peer, or from any.
    pub source: Option<Peer>,
    /// Tagged messages: the tag, and a mask of its bits to ignore. `None`: untagged messages.
    pub tag: Option<(u64, u64)>,
}

/// A received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its sender.
    pub source: Peer,
    /// Its tag.
    pub tag: Option<u64>,
    /// Immediate data.
    pub immediate: Option<u32>,
    /// Bytes sent.
    pub length: u64,
    /// Bytes copied to the program's memory.
    pub copied: u64,
}

/// The end of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The context given with the operation; [`INJECT_CONTEXT`] for a failed inject.
    pub context: u64,
    /// The operation; `None` for an inject.
    pub ticket: Option<Ticket>,
    /// Its outcome.
    pub outcome: Outcome,
}

/// Context in the completion of a failed [`Endpoint::inject`].
pub const INJECT_CONTEXT: u64 = u64::MAX;

/// Outcome of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The message was sent.
    Sent,
    /// A message was received completely.
    Received(Message),
    /// An unexpected message matches.
    Peeked(Message),
    /// An unexpected message matches and was claimed: use [`Endpoint::receive_claimed`] or
    /// [`Endpoint::discard_claimed`] with the completion's ticket.
    Claimed(Message),
    /// A claimed message was dropped.
    Discarded,
    /// It failed. MSGSIZE: the message was longer than its room, which was filled. NOMSG: a probe
    /// found none. CANCELED. CONNREFUSED: there is no endpoint with the peer's number. CONNRESET,
    /// TIMEDOUT, HOSTUNREACH: the peer is gone.
    Failed {
        /// The error.
        errno: Errno,
        /// The message, if there is one.
        message: Option<Message>,
    },
}
