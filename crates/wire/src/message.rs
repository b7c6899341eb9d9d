//! The message protocol (docs/spec/message.md): reliable tagged messages over Ethernet or UDP.
//!
//! A packet holds frames, each at a multiple of eight bytes; a zero first byte ends it. Every frame
//! has a common header of 24 bytes, the fields of its kind, epochs where [`FIRST`](flags::FIRST) is
//! set, and payload.
//!
//! Start reading at [`Frame`]; [`Frames`] splits a packet, [`LinkHeader`] precedes those of Ethernet.

mod keys;
mod link;
mod parse;

pub use keys::{authenticator, flow_key, job_identifier};
pub use link::{CHECKSUM_OFFSET, LINK_V4_LEN, LINK_V6_LEN, LinkHeader};
pub use parse::{Frames, Received};

use crate::{NoRoom, put};

/// EtherType of the protocol unless the configuration says otherwise, from the range for local
/// experiments.
pub const ETHER_TYPE: u16 = 0x88B5;
/// The version in the upper half of the first byte.
pub const VERSION: u8 = 1;
/// Bytes of the common header.
pub const COMMON_LEN: usize = 24;
/// Bytes of epochs behind the fields of a frame with [`FIRST`](flags::FIRST).
pub const EPOCHS_LEN: usize = 24;
/// The most payload of a message in one frame without a number.
pub const WHOLE_MAX: usize = 128;
/// The longest header of a frame without bitmap: ATOMIC with epochs.
pub const FRAME_HEADER_MAX: usize = 64 + EPOCHS_LEN;
/// Frames start at multiples of this.
pub const ALIGNMENT: usize = 8;

/// Bits of the second byte. Some bits mean different things in different kinds.
pub mod flags {
    /// The receiver acknowledges at once.
    pub const ACK_NOW: u8 = 1;
    /// ACK: a frame came that had come before.
    pub const DUPLICATES: u8 = 1;
    /// RESET: the frame that drew it was verified.
    pub const VERIFIED: u8 = 1;
    /// RESET: its epochs are those of an association that is open.
    pub const OPEN: u8 = 2;
    /// START: the message is in this frame. DONE, HOLD: it is named by its START's sequence.
    pub const WHOLE: u8 = 2;
    /// START: the tag is valid.
    pub const TAGGED: u8 = 4;
    /// PROBE: takes the place of a starting frame and has its order.
    pub const ORDERED: u8 = 4;
    /// START: payload behind the first frame waits for GRANT; DONE ends the message.
    pub const RENDEZVOUS: u8 = 8;
    /// START: DONE ends the message.
    pub const DELIVERY: u8 = 16;
    /// Epochs follow the fields.
    pub const FIRST: u8 = 32;
    /// START, WRITE: immediate data is valid.
    pub const DATA: u8 = 64;
    /// START: the first one after refusals.
    pub const RESUME: u8 = 128;
    /// HOLD: nothing was kept; the message is sent again from its START.
    pub const REFUSED: u8 = 128;
}

/// An incarnation of an engine and a life of an association in it, compared as one number. Zero
/// is unknown.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
)]
pub struct Epoch {
    /// The engine's.
    pub incarnation: u64,
    /// The association's.
    pub life: u32,
}

impl Epoch {
    /// Not known yet.
    pub const UNKNOWN: Epoch = Epoch { incarnation: 0, life: 0 };
}

/// Both ends' epochs.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct Epochs {
    /// Of the frame's sender.
    pub sender: Epoch,
    /// Of its receiver, as the sender knows it.
    pub receiver: Epoch,
}

/// What READ, WRITE and ATOMIC have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// Sender's endpoint.
    pub source: u16,
    /// Receiver's endpoint.
    pub destination: u16,
    /// Immediate data.
    pub immediate: u32,
    /// Names the memory.
    pub memory_key: u64,
    /// The operation.
    pub number: u32,
    /// Bytes.
    pub length: u32,
    /// Where in the memory.
    pub address: u64,
}

/// The fields of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// A message begins.
    Start {
        /// Sender's endpoint.
        source: u16,
        /// Receiver's endpoint.
        destination: u16,
        /// Immediate data, valid with [`DATA`](flags::DATA).
        immediate: u32,
        /// The tag, valid with [`TAGGED`](flags::TAGGED).
        tag: u64,
        /// The message's number; 0 with [`WHOLE`](flags::WHOLE).
        number: u32,
        /// Bytes of the message; those of the payload with [`WHOLE`](flags::WHOLE).
        length: u32,
    },
    /// More of a message.
    More {
        /// The message.
        number: u32,
        /// Where the payload belongs.
        offset: u32,
    },
    /// Asks for memory.
    Read(Remote),
    /// Brings the first bytes for memory.
    Write(Remote),
    /// Changes memory and may ask for what was there.
    Atomic {
        /// What and where.
        remote: Remote,
        /// What is done.
        operation: u8,
        /// The type of the elements.
        data_type: u8,
        /// How many.
        count: u16,
    },
    /// A result of READ or ATOMIC.
    Reply {
        /// The operation.
        number: u32,
        /// Where the payload belongs.
        offset: u32,
    },
    /// An operation has ended.
    Done {
        /// Number, or sequence of the START with [`WHOLE`](flags::WHOLE).
        message: u32,
        /// A [`DoneStatus`] as a number.
        status: u32,
    },
    /// Payload may be sent.
    Grant {
        /// The message.
        number: u32,
        /// Up to there.
        offset: u32,
    },
    /// Payload was not kept.
    Hold {
        /// Number, or sequence of the START with [`WHOLE`](flags::WHOLE).
        message: u32,
        /// It is sent again from there.
        offset: u32,
    },
    /// Refused messages may be sent again.
    Go {
        /// To this endpoint.
        port: u16,
    },
    /// The sender gives a message up.
    Abort {
        /// The message.
        number: u32,
        /// Why; 0.
        reason: u32,
    },
    /// Asks for an acknowledgement.
    Probe,
    /// What has arrived. The frame's sequence is the next one expected.
    Ack {
        /// Sequence of the frame that arrived last.
        newest: u32,
        /// One past the sequence of the acknowledger's last answer.
        answered: u32,
    },
    /// The association is not known. The sequence is that of the frame that drew it.
    Reset {
        /// Of the frame that drew it.
        authenticator: u64,
        /// As the sender knows them.
        epochs: Epochs,
    },
}

/// How a DONE ends an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum DoneStatus {
    /// It lies in the receive's memory.
    Placed = 0,
    /// The endpoint is not there.
    Gone = 1,
    /// The memory may not be used so.
    Denied = 2,
    /// The operation is not known.
    Unsupported = 3,
    /// The sender had given the message up.
    Aborted = 4,
}

impl DoneStatus {
    /// The status of that number.
    pub fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Placed,
            1 => Self::Gone,
            2 => Self::Denied,
            3 => Self::Unsupported,
            4 => Self::Aborted,
            _ => return None,
        })
    }
}

/// A frame's header: host order in this struct, network order on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Of [`flags`]; [`FIRST`](flags::FIRST) follows `epochs` when written.
    pub flags: u8,
    /// The job's identifier.
    pub job: u32,
    /// Lower half of the sequence.
    pub sequence: u32,
    /// Starting frames: order. MORE, GRANT, HOLD: attempt. ACK: microseconds since `newest` came.
    pub counter: u16,
    /// Epochs of a frame with [`FIRST`](flags::FIRST).
    pub epochs: Option<Epochs>,
    /// What is in it.
    pub body: Body,
}

impl Body {
    /// The kind's number in the first byte.
    pub fn kind(&self) -> u8 {
        match self {
            Body::Start { .. } => 1,
            Body::More { .. } => 2,
            Body::Read(_) => 3,
            Body::Write(_) => 4,
            Body::Atomic { .. } => 5,
            Body::Reply { .. } => 6,
            Body::Done { .. } => 7,
            Body::Grant { .. } => 8,
            Body::Hold { .. } => 9,
            Body::Go { .. } => 10,
            Body::Abort { .. } => 11,
            Body::Probe => 12,
            Body::Ack { .. } => 13,
            Body::Reset { .. } => 14,
        }
    }

    /// Whether the frame takes a sequence.
    pub fn is_sequenced(&self) -> bool {
        !matches!(self, Body::Ack { .. } | Body::Reset { .. })
    }
}

impl Frame {
    /// Bytes of the header, without an ACK's bitmap.
    pub fn header_len(&self) -> usize {
        let fields = match self.body {
            Body::Start { .. } if self.flags & flags::WHOLE != 0 => 16,
            Body::Start { .. } => 24,
            Body::Read(_) | Body::Write(_) | Body::Reset { .. } => 32,
            Body::Atomic { .. } => 40,
            Body::Probe => 0,
            _ => 8,
        };
        COMMON_LEN + fields + if self.epochs.is_some() { EPOCHS_LEN } else { 0 }
    }

    /// Writes the header to the start of `out`, for so many bytes behind it, with authenticator
    /// and checksum zero, and gives its length. [`seal`] completes it.
    ///
    /// # Errors
    /// [`NoRoom`] if `out` is shorter than the header, or the frame longer than 65,535 bytes.
    pub fn emit(&self, out: &mut [u8], behind: usize) -> Result<usize, NoRoom> {
        let len = self.header_len();
        let all = u16::try_from(len - COMMON_LEN + behind).map_err(|_| NoRoom)?;
        let first = if self.epochs.is_some() { flags::FIRST } else { 0 };
        let kind = VERSION << 4 | self.body.kind();
        let flags = self.flags & !flags::FIRST | first;
        let common = u128::from(kind) << 120
            | u128::from(flags) << 112
            | u128::from(all) << 96
            | u128::from(self.job) << 64
            | u128::from(self.sequence) << 32
            | u128::from(self.counter) << 16;
        let out = put(put(out, &common.to_be_bytes())?, &[0; 8])?;
        let out = self.emit_fields(out)?;
        if let Some(epochs) = &self.epochs {
            put_epochs(out, epochs)?;
        }
        Ok(len)
    }

    fn emit_fields<'a>(&self, out: &'a mut [u8]) -> Result<&'a mut [u8], NoRoom> {
        match self.body {
            Body::Start { source, destination, immediate, tag, number, length } => {
                let fields = u128::from(source) << 112
                    | u128::from(destination) << 96
                    | u128::from(immediate) << 64
                    | u128::from(tag);
                let out = put(out, &fields.to_be_bytes())?;
                if self.flags & flags::WHOLE != 0 {
                    return Ok(out);
                }
                put_pair(out, number, length)
            }
            Body::Read(remote) | Body::Write(remote) => put_remote(out, &remote),
            Body::Atomic { remote, operation, data_type, count } => {
                let out = put_remote(out, &remote)?;
                let out = put(out, &[operation, data_type])?;
                let out = put(out, &count.to_be_bytes())?;
                put(out, &[0; 4])
            }
            Body::Done { message: a, status: b }
            | Body::Hold { message: a, offset: b }
            | Body::More { number: a, offset: b }
            | Body::Reply { number: a, offset: b }
            | Body::Grant { number: a, offset: b }
            | Body::Abort { number: a, reason: b }
            | Body::Ack { newest: a, answered: b } => put_pair(out, a, b),
            Body::Go { port } => put(put(out, &port.to_be_bytes())?, &[0; 6]),
            Body::Probe => Ok(out),
            Body::Reset { authenticator, epochs } => {
                put_epochs(put(out, &authenticator.to_be_bytes())?, &epochs)
            }
        }
    }
}

/// Where the authenticator lies in a frame.
const AUTHENTICATOR: core::ops::Range<usize> = 16..24;

/// Writes the authenticator into a header that [`Frame::emit`] wrote, with an ACK's bitmap if it has
/// one, and gives it. A slice shorter than a common header is left alone.
pub fn seal(header: &mut [u8], key: &[u8; 16], upper: u32) -> u64 {
    let value = authenticator(key, header, upper);
    if let Some(field) = header.get_mut(AUTHENTICATOR) {
        field.copy_from_slice(&value.to_be_bytes());
    }
    value
}

fn put_pair(out: &mut [u8], a: u32, b: u32) -> Result<&mut [u8], NoRoom> {
    put(out, &(u64::from(a) << 32 | u64::from(b)).to_be_bytes())
}

fn put_epochs<'a>(out: &'a mut [u8], epochs: &Epochs) -> Result<&'a mut [u8], NoRoom> {
    let out = put(out, &epochs.sender.incarnation.to_be_bytes())?;
    let out = put(out, &epochs.receiver.incarnation.to_be_bytes())?;
    put_pair(out, epochs.sender.life, epochs.receiver.life)
}

fn put_remote<'a>(out: &'a mut [u8], remote: &Remote) -> Result<&'a mut [u8], NoRoom> {
    let out = put(out, &remote.source.to_be_bytes())?;
    let out = put(out, &remote.destination.to_be_bytes())?;
    let out = put(out, &remote.immediate.to_be_bytes())?;
    let out = put(out, &remote.memory_key.to_be_bytes())?;
    let out = put_pair(out, remote.number, remote.length)?;
    put(out, &remote.address.to_be_bytes())
}
