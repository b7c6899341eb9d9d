//! What goes into the message core and what comes out of it.

use core::fmt;
use serde::{Deserialize, Serialize};

/// A host that messages are exchanged with: a handle given by [`Core::add_host`](super::Core::add_host).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Host(pub(super) u32);

impl Host {
    /// The engine's own endpoints: messages to them take no frames.
    pub const LOCAL: Host = Host(0);

    /// The handle as a small number, for the caller's tables.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The two addresses of a path, as both ends see them: they are part of the flow's key. IPv4
/// addresses are mapped into IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PathAddresses {
    /// This host's.
    pub local: [u8; 16],
    /// The other one's.
    pub remote: [u8; 16],
}

/// Where an endpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Address {
    /// Its host.
    pub host: Host,
    /// Its number there, a UDP port.
    pub port: u16,
}

macro_rules! handle {
    ($(#[doc = $doc:literal])+ $name:ident) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub struct $name {
            pub(super) index: u32,
            pub(super) generation: u32,
        }

        impl $name {
            /// The slot's number: smaller than the most that there ever were at once.
            pub fn index(self) -> usize {
                self.index as usize
            }

            /// The handle as one number, for the caller's queues.
            pub fn to_bits(self) -> u64 {
                u64::from(self.generation) << 32 | u64::from(self.index)
            }

            /// The handle of [`to_bits`](Self::to_bits). One that never was is an unknown handle.
            pub fn from_bits(bits: u64) -> Self {
                Self { index: bits as u32, generation: (bits >> 32) as u32 }
            }
        }
    };
}

handle! {
    /// An open endpoint.
    EndpointId
}
handle! {
    /// A send that has not ended.
    SendId
}
handle! {
    /// A posted receive that has not ended.
    ReceiveId
}
handle! {
    /// An unexpected message that was claimed.
    ClaimId
}

/// 128 bits that the programs of a job share.
pub type JobKey = [u8; 16];

/// What an endpoint does with messages that no receive waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unexpected {
    /// They are kept in envelopes and buffers, within bounds.
    #[default]
    Buffer,
    /// They are refused until a receive is posted.
    Drop,
}

/// How an endpoint is opened.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct EndpointOptions {
    /// Its number. The caller has seen that the program may use it.
    pub port: u16,
    /// The job; without a key only local endpoints without a key are reached.
    pub key: Option<JobKey>,
    /// What becomes of unexpected messages.
    pub unexpected: Unexpected,
    /// The most unexpected messages at a time, at least 1.
    pub envelopes: u32,
    /// The most sends and receives (each) that have not ended.
    pub operations: u32,
}

/// A message to send. `length` bytes lie at [`PayloadPlace::Send`] of the cookie.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest {
    /// To whom.
    pub to: Address,
    /// Matched by tag, or an untagged message.
    pub tag: Option<u64>,
    /// Immediate data.
    pub immediate: Option<u32>,
    /// Bytes of the message.
    pub length: u32,
    /// Bytes that lie there by now, from the start: all up to [`EAGER_MAX`](super::EAGER_MAX),
    /// any number of a longer message. [`feed`](super::Core::feed) raises it.
    pub available: u32,
    /// The send ends when the message lies in its receive's memory.
    pub delivery: bool,
    /// The caller's name for it: comes with events, and names the memory.
    pub cookie: u64,
}

/// Whose messages a receive takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selector {
    /// From this endpoint only.
    pub source: Option<Address>,
    /// Tagged messages whose tag is this, or untagged ones.
    pub tag: Option<u64>,
    /// Bits of the tag that are not compared.
    pub ignore: u64,
}

/// A receive to post.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveRequest {
    /// Which messages.
    pub selector: Selector,
    /// The most bytes that are taken; a longer message is truncated.
    pub capacity: u32,
    /// Bytes of [`PayloadPlace::Receive`] that may be written by now, from the start: at least the capacity
    /// or [`EAGER_MAX`](super::EAGER_MAX). [`extend`](super::Core::extend) raises it.
    pub window: u32,
    /// The caller's name for it: comes with events, and names the memory.
    pub cookie: u64,
}

/// How a claimed message is received: a [`ReceiveRequest`] without a selector.
#[derive(Clone, Copy, Debug)]
pub struct ClaimedReceive {
    /// The most bytes that are taken; a longer message is truncated.
    pub capacity: u32,
    /// Bytes of [`PayloadPlace::Receive`] that may be written by now, as in [`ReceiveRequest`].
    pub window: u32,
    /// The caller's name for it: comes with events, and names the memory.
    pub cookie: u64,
}

/// What is known of an unexpected message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// Who sent it.
    pub source: Address,
    /// Its tag.
    pub tag: Option<u64>,
    /// Immediate data.
    pub immediate: Option<u32>,
    /// Bytes of the message.
    pub length: u32,
}

/// Memory that payload lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PayloadPlace {
    /// Of the send with this cookie.
    Send(u64),
    /// Of the receive with this cookie.
    Receive(u64),
    /// A buffer that [`Memory::reserve`] gave.
    Buffer(u64),
}

/// The caller's memory. Offsets count from the start of the message; the core stays within the
/// length, window and capacity that it was told.
pub trait Memory {
    /// Reads at most 128 bytes of a send.
    fn read(&mut self, from: PayloadPlace, offset: u32, out: &mut [u8]);
    /// Writes payload of a frame to a receive or a buffer.
    fn write(&mut self, to: PayloadPlace, offset: u32, bytes: &[u8]);
    /// Copies from a buffer or a local send to a receive or a buffer, at the same offset in both.
    fn copy(&mut self, from: PayloadPlace, to: PayloadPlace, offset: u32, length: u32);
    /// A buffer for the whole of an unexpected message; none: the message waits with its sender.
    fn reserve(&mut self, endpoint: EndpointId, length: u32) -> Option<u64>;
    /// Gives a buffer back.
    fn release(&mut self, buffer: u64);
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Status {
    /// As it should.
    Ok,
    /// The message was longer than the receive's capacity; the capacity was filled (ETRUNC).
    Truncated,
    /// Cancelled, or its endpoint was closed (ECANCELED).
    Cancelled,
    /// There is no such endpoint, or it was closed (ECONNREFUSED).
    Gone,
    /// The other host restarted or lost its state (ECONNRESET).
    Reset,
    /// The other host did not answer for [`DEAD_NS`](super::DEAD_NS) (ETIMEDOUT).
    TimedOut,
    /// The sender gave the message up after its first bytes had left (ECONNABORTED).
    Aborted,
    /// The other host may not do that (EACCES).
    Denied,
    /// The other host cannot do that (EOPNOTSUPP).
    Unsupported,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MessageEvent {
    /// A send has ended: its memory is no longer read.
    Sent {
        /// Whose.
        endpoint: EndpointId,
        /// Its cookie.
        cookie: u64,
        /// How.
        status: Status,
    },
    /// A receive has ended: its memory is no longer written.
    Received {
        /// Whose.
        endpoint: EndpointId,
        /// Its cookie.
        cookie: u64,
        /// The message; none where no message matched.
        envelope: Option<Envelope>,
        /// How.
        status: Status,
    },
    /// The first `bytes` of a matched receive have arrived, and its window is used up.
    Part {
        /// Whose.
        endpoint: EndpointId,
        /// Which receive, for [`extend`](super::Core::extend).
        receive: ReceiveId,
        /// Its cookie.
        cookie: u64,
        /// Bytes from the start.
        bytes: u32,
    },
    /// A send waits for data up to there.
    Wanted {
        /// Whose.
        endpoint: EndpointId,
        /// Which send, for [`feed`](super::Core::feed).
        send: SendId,
        /// Its cookie.
        cookie: u64,
        /// Bytes from the start that the receiver has memory for.
        bytes: u32,
    },
    /// An unexpected message can be peeked at.
    Arrived {
        /// To whom.
        endpoint: EndpointId,
    },
    /// The last send of a closed endpoint has ended.
    Closed {
        /// Which.
        endpoint: EndpointId,
    },
}

/// A link frame to send: what was written to the caller's buffer, then payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// To this host.
    pub host: Host,
    /// Bytes of the buffer.
    pub len: usize,
    /// What follows them.
    pub payload: Option<PayloadRange>,
}

/// Payload of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadRange {
    /// The send's cookie.
    pub cookie: u64,
    /// From the start of the message.
    pub offset: u32,
    /// Bytes.
    pub len: usize,
}

/// Why an operation could not be begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageError {
    /// The endpoint's handle is not open.
    UnknownEndpoint,
    /// The host's handle was not given.
    UnknownHost,
    /// The send's or receive's handle has ended.
    UnknownOperation,
    /// The endpoint has as many sends or receives as it may have.
    TooMany,
    /// Another endpoint has this port.
    PortInUse,
    /// The job's identifier is shared by four other keys already.
    JobCollision,
    /// As many jobs are known as may be.
    TooManyJobs,
    /// The epochs of as many hosts are remembered as may be.
    TooManyPeers,
    /// The endpoint has no key, and the host is not this one.
    NoKey,
    /// `available` or `window` is less than this kind of message needs, or goes back.
    Length,
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownEndpoint => "the endpoint is not open",
            Self::UnknownHost => "the host is not known; add it first",
            Self::UnknownOperation => "the operation has ended",
            Self::TooMany => "the endpoint has too many operations under way; wait for some to end",
            Self::PortInUse => "another endpoint has this port",
            Self::JobCollision => "four other job keys have this identifier; choose another key",
            Self::TooManyJobs => "too many job keys are in use; close endpoints of other jobs",
            Self::TooManyPeers => "messages are exchanged with too many hosts; close other jobs",
            Self::NoKey => "an endpoint without a job key reaches local endpoints only",
            Self::Length => "the bytes at hand are fewer than this operation needs",
        })
    }
}

impl std::error::Error for MessageError {}
