//! Sending through the socket of the first queue.

use std::mem;

use super::memory::CHUNK_BYTES;
use super::receive::Queue;
use super::socket::{self, CONTINUES, Descriptor};
use crate::copy::{self, FRAME_BYTES_MAX};
use crate::interface::{PortCounters, TxError, TxFrame};

/// Chunks for frames to send.
pub(super) const CHUNKS: usize = 2048;

/// The sending half of a port.
#[derive(Debug)]
pub(super) struct Transmit {
    /// Chunks without a frame, by their location.
    free: Vec<u64>,
    scratch: Vec<u8>,
    /// The interface is down or gone; the next check retries.
    down: bool,
    /// Frames were gathered since the last flush.
    gathered: bool,
    /// Maximum chunks that the kernel may have.
    under_way_max: usize,
}

impl Transmit {
    /// Chunks from `start` on are for sending; the kernel gets at most `under_way_max` at a time.
    pub(super) fn new(start: usize, under_way_max: usize) -> Self {
        let chunks = (0..CHUNKS).map(|index| (start + index * CHUNK_BYTES) as u64);
        Self {
            free: chunks.collect(),
            scratch: Vec::with_capacity(FRAME_BYTES_MAX),
            down: false,
            gathered: false,
            under_way_max,
        }
    }

    /// Lets the next frame check whether the link is up again.
    pub(super) fn try_again(&mut self) {
        self.down = false;
    }

    /// Whether frames wait for [`Transmit::flush`].
    pub(super) fn is_gathered(&self) -> bool {
        self.gathered
    }

    /// Whether gathered frames wait for the kernel.
    pub(super) fn is_waiting(&self, queue: &Queue) -> bool {
        !self.down && queue.rings.send.waiting() > 0
    }

    pub(super) fn send(
        &mut self,
        queue: &mut Queue,
        frame: &TxFrame<'_>,
        len: usize,
        counters: &mut PortCounters,
    ) -> Result<(), TxError> {
        if self.down {
            counters.tx_errors += 1;
            return Err(TxError::Down);
        }
        let chunks = len.div_ceil(CHUNK_BYTES);
        if !self.has_room(queue, chunks) {
            self.flush(queue, counters);
            if !self.has_room(queue, chunks) {
                counters.tx_full += 1;
                return Err(TxError::Full);
            }
        }
        let written = if chunks == 1 {
            self.write_one(queue, frame, len)
        } else {
            self.write_several(queue, frame)
        };
        if written.is_none() {
            counters.tx_errors += 1;
            return Err(TxError::Unsendable);
        }
        self.gathered = true;
        counters.tx_frames += 1;
        counters.tx_bytes += len as u64;
        Ok(())
    }

    /// Whether a frame of this length can be gathered without a flush.
    pub(super) fn has_room_for(&self, queue: &Queue, len: usize) -> bool {
        self.has_room(queue, len.div_ceil(CHUNK_BYTES))
    }

    fn has_room(&self, queue: &Queue, chunks: usize) -> bool {
        CHUNKS - self.free.len() + chunks <= self.under_way_max
            && queue.rings.send.room() as usize >= chunks
    }

    fn write_one(&mut self, queue: &mut Queue, frame: &TxFrame<'_>, len: usize) -> Option<()> {
        let at = *self.free.last()?;
        let room = queue.memory.bytes_mut(at, len)?;
        if !copy::fill(room, frame.header, frame.payload, frame.meta.checksum) {
            return None;
        }
        self.free.pop();
        queue.rings.send.push(Descriptor { addr: at, len: len as u32, options: 0 });
        Some(())
    }

    fn write_several(&mut self, queue: &mut Queue, frame: &TxFrame<'_>) -> Option<()> {
        let TxFrame { meta, header, payload } = *frame;
        let mut scratch = mem::take(&mut self.scratch);
        let whole = copy::assemble(&mut scratch, header, payload, meta.checksum);
        if whole {
            let last = scratch.len().div_ceil(CHUNK_BYTES) - 1;
            for (index, piece) in scratch.chunks(CHUNK_BYTES).enumerate() {
                // There is room: the caller has checked.
                let Some(at) = self.free.pop() else { break };
                if let Some(room) = queue.memory.bytes_mut(at, piece.len()) {
                    room.copy_from_slice(piece);
                }
                let options = if index == last { 0 } else { CONTINUES };
                queue.rings.send.push(Descriptor { addr: at, len: piece.len() as u32, options });
            }
        }
        self.scratch = scratch;
        whole.then_some(())
    }

    pub(super) fn flush(&mut self, queue: &mut Queue, counters: &mut PortCounters) {
        if mem::take(&mut self.gathered) {
            queue.rings.send.publish();
        }
        while !self.down && queue.rings.send.waiting() > 0 {
            if !queue.rings.send.wants_wakeup() {
                break;
            }
            let before = queue.rings.send.waiting();
            let woken = socket::wake_sending(&queue.fd);
            if let Err(Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV)) =
                woken.map_err(|why| why.raw_os_error())
            {
                counters.tx_errors += 1;
                self.down = true;
            }
            self.reap(queue);
            // Other errors: only a bounded number of frames is sent in one call, or the driver is
            // full, or it dropped one, which counts as sent.
            if !self.down && queue.rings.send.waiting() == before {
                counters.tx_full += 1;
                break;
            }
        }
        self.reap(queue);
    }

    /// Takes back the chunks of sent frames.
    fn reap(&mut self, queue: &mut Queue) {
        let sent = queue.rings.sent.filled();
        if sent == 0 {
            return;
        }
        for ahead in 0..sent {
            self.free.push(queue.rings.sent.peek(ahead));
        }
        queue.rings.sent.advance(sent);
        queue.rings.sent.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::super::receive::tests;
    use super::*;
    use crate::interface::TxMeta;

    #[test]
    fn no_more_frames_are_under_way_than_a_veth_peer_has_room_for() {
        let (mut queue, mut kernel) = tests::queue_with(CHUNKS);
        let mut transmit = Transmit::new(tests::CHUNKS * CHUNK_BYTES, 100);
        let mut counters = PortCounters::default();
        let mut send = |queue: &mut Queue| {
            let frame = TxFrame { meta: &TxMeta::default(), header: &[0; 60], payload: &[] };
            transmit.send(queue, &frame, 60, &mut counters)
        };
        for _ in 0..2 {
            for _ in 0..100 {
                assert_eq!(send(&mut queue), Ok(()));
            }
            // Also those that are gathered count, and those that the kernel has taken.
            assert_eq!(send(&mut queue), Err(TxError::Full));
            assert_eq!(send(&mut queue), Err(TxError::Full));
            assert_eq!(kernel.send(), 100);
        }
        assert_eq!(send(&mut queue), Ok(()));
        assert_eq!((counters.tx_frames, counters.tx_full), (201, 4));
    }
}
