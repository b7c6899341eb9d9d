//! Messages: what a program asks of the engine's message service, and what it hears. Commands and
//! completions have one form, an [`Entry`] of 64 bytes at the start of a span. Commands lie in spans
//! that the client carves, completions in spans of the engine's; both go through the queues of the
//! endpoint as datagrams do, and what goes on in further spans carries on in further descriptors.

use std::net::{IpAddr, SocketAddr};

use crate::control::Geometry;
use crate::descriptor::{mapped, unmapped};

/// Bytes of an [`Entry`].
pub const ENTRY_BYTES: usize = 64;
/// Longest message that is copied to the engine as it is sent; longer ones are announced and fed.
pub const EAGER_MAX: u32 = 16 << 10;
/// Longest message that [`Flags::INJECT`] admits.
pub const INJECT_MAX: u32 = 4096;
/// Longest message that a session can send: all of it lies in the session's buffers, of which half are
/// for that.
pub fn announced_max(of: &Geometry) -> u64 {
    (u64::from(of.buffer_bytes) * u64::from(of.buffer_count) / 2).max(u64::from(EAGER_MAX))
}

/// Longest message, a byte less than 4 GiB.
pub const MESSAGE_MAX: u64 = u32::MAX as u64;
/// Operations of an endpoint at a time.
pub const OPERATIONS_MAX: u32 = 1 << 16;
/// Ticket of what has no operation.
pub const NO_TICKET: u64 = u64::MAX;

/// What an entry of the send queue asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CommandKind {
    /// Send a message. Its payload follows the entry, unless it is longer than [`EAGER_MAX`].
    Send = 1,
    /// Receive a message.
    Receive = 2,
    /// Look for an unexpected message.
    Peek = 3,
    /// Take an unexpected message off the list, to be received by its claim.
    Claim = 4,
    /// Receive a claimed message: `other` is the ticket of the claim.
    ReceiveClaimed = 5,
    /// Drop a claimed message: `other` is the ticket of the claim.
    DiscardClaimed = 6,
    /// End an operation early, if that can still be done: `other` is its ticket.
    Cancel = 7,
    /// The next bytes of an announced message, from `offset` on.
    Feed = 8,
}

/// What an entry of the receive queue tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CompletionKind {
    /// A send is complete.
    Sent = 1,
    /// A receive is complete. The whole payload follows, unless it came in parts.
    Received = 2,
    /// A part of a message, from `offset` on, which follows.
    Part = 3,
    /// The bytes of an announced message up to `offset` may be fed.
    Wanted = 4,
    /// An unexpected message was found.
    Peeked = 5,
    /// An unexpected message was claimed.
    Claimed = 6,
    /// A claimed message was dropped.
    Discarded = 7,
    /// An operation failed: `other` is the errno.
    Failed = 8,
}

impl CommandKind {
    /// From its code.
    pub fn from_code(code: u8) -> Option<Self> {
        use CommandKind::*;
        [Send, Receive, Peek, Claim, ReceiveClaimed, DiscardClaimed, Cancel, Feed]
            .into_iter()
            .find(|kind| *kind as u8 == code)
    }
}

impl CompletionKind {
    /// From its code.
    pub fn from_code(code: u8) -> Option<Self> {
        use CompletionKind::*;
        [Sent, Received, Part, Wanted, Peeked, Claimed, Discarded, Failed]
            .into_iter()
            .find(|kind| *kind as u8 == code)
    }
}

bitflags::bitflags! {
    /// Flags of an entry.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Flags: u8 {
        /// The message has a tag, or the pattern fits messages that have one.
        const TAGGED = 1;
        /// `immediate` is valid.
        const IMMEDIATE = 2;
        /// The send is complete when the peer's program has the message.
        const DELIVERY = 4;
        /// The send is complete at once, and told only where it fails.
        const INJECT = 8;
        /// The pattern fits every source.
        const ANY_SOURCE = 16;
        /// The completion tells of a message: source, tag, immediate and length.
        const MESSAGE = 32;
        /// What follows the command is a list of pieces of registered memory
        /// ([`decode_piece`](crate::memory::decode_piece)), `length` bytes in all: the payload of a send,
        /// or the room of a receive. With an `offset` the operation's end is told in the line of
        /// registered memory at that place, and not in the queue.
        const REGISTERED = 64;
    }
}

/// A command or a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// A [`CommandKind`] or a [`CompletionKind`].
    pub kind: u8,
    /// Flags; unknown ones are dropped.
    pub flags: Flags,
    /// Immediate data of the message.
    pub immediate: u32,
    /// Tag of the message or the pattern.
    pub tag: u64,
    /// Patterns: bits of the tag that need not fit. Else by kind.
    pub other: u64,
    /// Bytes of the message, or of the room for it.
    pub length: u64,
    /// Number of the operation, as the client has chosen it: its place in the client's table and,
    /// in the upper half, its generation.
    pub ticket: u64,
    /// By kind, in bytes.
    pub offset: u64,
    /// Sent to, or received from.
    pub peer: SocketAddr,
}

impl Entry {
    /// An entry that says no more than its kind.
    pub fn new(kind: u8) -> Self {
        Self {
            kind,
            flags: Flags::empty(),
            immediate: 0,
            tag: 0,
            other: 0,
            length: 0,
            ticket: NO_TICKET,
            offset: 0,
            peer: SocketAddr::from(([0, 0, 0, 0], 0)),
        }
    }

    /// As it lies in the span.
    pub fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        let family = if self.peer.is_ipv4() { 0 } else { V6 };
        bytes[0] = self.kind;
        bytes[1] = self.flags.bits() | family;
        bytes[2..4].copy_from_slice(&self.peer.port().to_le_bytes());
        bytes[4..8].copy_from_slice(&self.immediate.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.tag.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.other.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.length.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.ticket.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.offset.to_le_bytes());
        bytes[48..64].copy_from_slice(&mapped(self.peer.ip()));
        bytes
    }

    /// From a span's first bytes; any bytes make an entry, what they say is checked by its user.
    pub fn decode(bytes: &[u8; ENTRY_BYTES]) -> Self {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let mut address = [0; 16];
        address.copy_from_slice(&bytes[48..]);
        let family = if bytes[1] & V6 == 0 { 4 } else { 6 };
        let ip: IpAddr = unmapped(address, family);
        Self {
            kind: bytes[0],
            flags: Flags::from_bits_truncate(bytes[1]),
            immediate: word(0).checked_shr(32).unwrap_or(0) as u32,
            tag: word(8),
            other: word(16),
            length: word(24),
            ticket: word(32),
            offset: word(40),
            peer: SocketAddr::new(ip, u16::from_le_bytes([bytes[2], bytes[3]])),
        }
    }
}

/// Bit of the second byte: the peer's address is not IPv4.
const V6: u8 = 128;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_entry_survives_its_encoding() {
        for peer in ["10.0.0.1:53", "[fe80::1]:65535", "0.0.0.0:0"] {
            let entry = Entry {
                kind: CommandKind::Receive as u8,
                flags: Flags::TAGGED | Flags::ANY_SOURCE,
                immediate: 0xdead_beef,
                tag: u64::MAX - 1,
                other: 3,
                length: MESSAGE_MAX,
                ticket: 5 | 7 << 32,
                offset: 9,
                peer: peer.parse().unwrap(),
            };
            assert_eq!(Entry::decode(&entry.encode()), entry);
        }
    }

    #[test]
    fn codes_name_their_kinds() {
        for code in 0..=u8::MAX {
            assert!(CommandKind::from_code(code).is_none_or(|kind| kind as u8 == code));
            assert!(CompletionKind::from_code(code).is_none_or(|kind| kind as u8 == code));
        }
        assert_eq!(CommandKind::from_code(8), Some(CommandKind::Feed));
        assert_eq!(CompletionKind::from_code(0), None);
    }
}
