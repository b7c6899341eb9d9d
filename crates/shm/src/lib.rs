//! The shared-memory contract between a program and the engine: what lies where in a session's
//! region, how each side reads and writes it, and the messages of the control socket.
//!
//! It knows nothing of protocols, and gives neither side a reference into the region: words are
//! atomics, buffers are copied. Start reading at `docs/spec/shm.md`, then [`layout`], then the two
//! views: [`engine_side`] (which trusts nothing) and [`client_side`].
#![warn(missing_docs, clippy::missing_errors_doc)]

pub mod census;
pub mod client_side;
pub mod control;
pub mod descriptor;
pub mod engine_side;
#[cfg(not(loom))]
pub mod fork;
pub mod layout;
pub mod lock;
#[cfg(all(test, loom))]
mod loom_models;
#[cfg(not(loom))]
pub mod memory;
pub mod message;
pub mod raw;
pub mod region;
pub mod request;
mod ring;
#[cfg(all(test, not(loom)))]
mod ring_properties;
#[cfg(not(loom))]
pub mod stats;
mod sync;

bitflags::bitflags! {
    /// Status of an endpoint, as the engine publishes it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Status: u32 {
        /// The connection is established, or has been.
        const CONNECTED = 1;
        /// The peer has closed; `readable` is all there will be.
        const PEER_CLOSED = 2;
        /// The endpoint failed; the error says why.
        const ERROR = 4;
        /// Nothing moves any more in either direction.
        const HANGUP = 8;
        /// The connection's SYN waits for the first data, which goes with it (Fast Open).
        const AWAITS_DATA = 16;
        /// Of a program that wants to read much at once (SO_RCVLOWAT): the window is used up, so
        /// that no more comes before it reads.
        const WINDOW_USED = 32;
        /// How much may be written and not sent is limited (TCP_NOTSENT_LOWAT); the third line
        /// says to what.
        const UNSENT_LIMITED = 64;
        /// Times of bytes that were asked about wait to be taken (`TakeStamp`).
        const STAMPS_WAIT = 128;
        /// No connection is left: it could not be made, failed, or both sides have closed and know it.
        const ENDED = 256;
        /// The peer has acknowledged the end of what was sent, or never will.
        const END_ACKED = 512;
        /// The connection is no longer this endpoint's: another holder has made a kernel socket of it,
        /// which `Pass` gives to this one, too.
        const MOVED = 1024;
    }
}
