//! FRAMES: small frames of one burst that share a message, so that a reader of many looks at fewer
//! lines. Behind the header come the time of the first frame and, for each, an entry word and its
//! bytes, padded to eight.

use super::HEADER_BYTES;
use super::message::FrameFlags;

/// Longest frame that shares a message.
pub(super) const SMALL_BYTES_MAX: usize = 256;
/// Longest message of several frames, header included.
const MESSAGE_BYTES_MAX: usize = 2048;
/// Bytes before the first entry: its time.
pub(super) const TIME_BYTES: usize = 8;
/// Bytes of an entry before its frame.
const ENTRY_BYTES: usize = 8;

/// A message that may still grow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    /// Where it begins.
    pub start: u64,
    /// Bytes behind the header.
    pub len: usize,
    /// When its first frame came.
    pub time_ns: u64,
}

impl Open {
    /// Its length with one frame more; `None` beyond the most.
    pub fn len_with(&self, frame: usize) -> Option<usize> {
        let longer = self.len + entry_bytes(frame);
        (longer + HEADER_BYTES <= MESSAGE_BYTES_MAX).then_some(longer)
    }
}

/// One frame's word: what a reader must know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Length of the frame.
    pub len: u16,
    /// Port number plus one.
    pub port: u8,
    /// Its flags.
    pub flags: FrameFlags,
    /// Nanoseconds after the first frame of the message.
    pub after_ns: u32,
}

impl Entry {
    /// As the ring holds it.
    pub fn encode(self) -> [u8; ENTRY_BYTES] {
        let word = u64::from(self.len)
            | u64::from(self.port) << 16
            | u64::from(self.flags.bits()) << 24
            | u64::from(self.after_ns) << 32;
        word.to_le_bytes()
    }

    /// The reverse of [`Entry::encode`]; `None` for unknown flags.
    pub fn decode(bytes: [u8; ENTRY_BYTES]) -> Option<Self> {
        let word = u64::from_le_bytes(bytes);
        Some(Self {
            len: word as u16,
            port: (word >> 16) as u8,
            flags: FrameFlags::from_bits((word >> 24) as u8)?,
            after_ns: (word >> 32) as u32,
        })
    }
}

/// Bytes of an entry with its frame.
pub(super) fn entry_bytes(len: usize) -> usize {
    ENTRY_BYTES + len.next_multiple_of(8)
}
