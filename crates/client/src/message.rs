//! Messages: reliable, tagged, without connections, matched by the engine.
//!
//! The interface is poll-shaped. [`Endpoint::send`] and [`Endpoint::post_recv`] begin operations,
//! [`Endpoint::poll_completion`] tells how they ended and moves the payload of long messages.
//! Shared memory is never lent to the program: payload is copied between the session's buffers and
//! what a [`Memory`] says is the program's.

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

/// A peer of an endpoint: dense numbers from 0, good as long as the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Peer(pub u32);

/// An operation of an endpoint. Never used again, so that a late cancel reaches nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub(crate) u64);

/// What is sent beside the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Send {
    /// The tag; tagged and untagged messages never match each other.
    pub tag: Option<u64>,
    /// Immediate data for the receiver.
    pub immediate: Option<u32>,
    /// Complete when the peer's program has the message, and not when its engine has.
    pub delivery: bool,
}

/// Which messages a receive or a probe fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pattern {
    /// Of this peer, or of any.
    pub source: Option<Peer>,
    /// Tagged ones: the tag, and the bits of it that need not fit. `None`: untagged ones.
    pub tag: Option<(u64, u64)>,
}

/// A message as the receiver learns of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who sent it.
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
    /// As given with the operation; [`INJECT_CONTEXT`] of an inject that failed.
    pub context: u64,
    /// The operation; `None` of an inject.
    pub ticket: Option<Ticket>,
    /// How it ended.
    pub outcome: Outcome,
}

/// Context in the completion of a failed [`Endpoint::inject`].
pub const INJECT_CONTEXT: u64 = u64::MAX;

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The message is sent.
    Sent,
    /// A message is received, all of it.
    Received(Message),
    /// There is an unexpected message.
    Peeked(Message),
    /// There is one, and it is off the list: [`Endpoint::receive_claimed`] or
    /// [`Endpoint::discard_claimed`] by the completion's ticket.
    Claimed(Message),
    /// A claimed message is dropped.
    Discarded,
    /// It failed. MSGSIZE: the message was longer than the room for it, which it fills. NOMSG: a
    /// probe found none. CANCELED. CONNREFUSED: nobody has the peer's number. CONNRESET, TIMEDOUT,
    /// HOSTUNREACH: the peer is gone.
    Failed {
        /// Why.
        errno: Errno,
        /// The message, where there is one.
        message: Option<Message>,
    },
}
