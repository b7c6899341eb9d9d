//! Byte rings of raw endpoints: frames with everything from the Ethernet header on, in both
//! directions, through a memfd that the engine makes for each endpoint.
//!
//! UP leads from the engine to the client, DOWN back. A message starts at a multiple of
//! [`MESSAGE_ALIGN`] with one [`Header`] word and lies in one piece. Positions are counts of bytes
//! from 0; a message is published by the tail behind it, stored with Release. See the byte rings in
//! `docs/spec/shm.md`.

mod client;
mod engine;
mod frames;
#[cfg(all(test, not(loom)))]
mod kills;
#[cfg(all(test, loom))]
mod loom_models;
mod memory;
mod message;
#[cfg(all(test, not(loom)))]
mod properties;
mod rings;

#[cfg(not(loom))]
pub use arch::SharedBytes;
pub use client::{ClientDown, ClientUp, Malformed, NoRoom, Received, UpFrame};
pub use engine::{DownFrame, EngineDown, EngineUp, RingBreach, Taken, UpInfo};
pub use message::{FrameFlags, Header, META_BYTES, MessageKind, Meta, NOTICE_LOST, SegmentKind};
pub use rings::{RingError, RingSizes, Rings};

/// Messages start at multiples of this.
pub const MESSAGE_ALIGN: u64 = 64;
/// Bytes of a header word.
pub const HEADER_BYTES: usize = 8;
/// Messages, WRAP included, that a visit of the engine's takes from a DOWN ring.
pub const MESSAGES_PER_VISIT: usize = 64;

/// Bytes that a message of `len` bytes behind its header takes.
pub(crate) fn message_bytes(len: usize) -> u64 {
    (HEADER_BYTES as u64 + len as u64).next_multiple_of(MESSAGE_ALIGN)
}
