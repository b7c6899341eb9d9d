//! Frames that wait for a link of a trunk which has no room, so that those of the other links go on.

use std::collections::VecDeque;

use arch::SharedBytes;

use crate::copy;
use crate::interface::{Port, TxError, TxMeta};

/// Frames that wait for one link at most.
pub const FRAMES_MAX: usize = 64;
/// Bytes from which on no further one is taken.
const BYTES_MAX: usize = 256 << 10;

/// Copies of frames, in order.
#[derive(Debug)]
pub struct Waiting {
    frames: VecDeque<(TxMeta, Vec<u8>)>,
    bytes: usize,
    spare: Vec<Vec<u8>>,
}

impl Default for Waiting {
    fn default() -> Self {
        let frames = VecDeque::with_capacity(FRAMES_MAX);
        Self { frames, bytes: 0, spare: Vec::with_capacity(FRAMES_MAX) }
    }
}

impl Waiting {
    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Whether one more may wait.
    pub fn has_room(&self) -> bool {
        self.frames.len() < FRAMES_MAX && self.bytes < BYTES_MAX
    }

    /// Copies a frame; its checksum is left to the link as before.
    pub fn push(&mut self, meta: &TxMeta, header: &[u8], payload: &[SharedBytes<'_>]) {
        let mut frame = self.spare.pop().unwrap_or_default();
        // Without a checksum to complete nothing can fail.
        if copy::assemble(&mut frame, header, payload, None) {
            self.bytes += frame.len();
            self.frames.push_back((*meta, frame));
        }
    }

    /// Gives the link what waits, until it has no room again.
    ///
    /// # Errors
    /// The link is down. What it was not given waits on.
    pub fn drain(&mut self, link: &mut dyn Port) -> Result<(), TxError> {
        while let Some((meta, frame)) = self.frames.front() {
            match link.send(meta, frame, &[]) {
                Err(TxError::Full) => break,
                Err(TxError::Down) => return Err(TxError::Down),
                // The link has counted one that it cannot send.
                Ok(()) | Err(TxError::Refused | TxError::Unsendable) => self.pop(),
            }
        }
        Ok(())
    }

    /// Drops all; how many there were.
    pub fn clear(&mut self) -> u64 {
        let count = self.frames.len();
        (0..count).for_each(|_| self.pop());
        count as u64
    }

    fn pop(&mut self) {
        if let Some((_, frame)) = self.frames.pop_front() {
            self.bytes -= frame.len();
            self.spare.push(frame);
        }
    }
}
