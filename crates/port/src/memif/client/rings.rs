//! Memory and rings of our own, as the client that brings them. Each slot has its buffer, whose place
//! is known privately: of what the server can write, only its positions, lengths and flags are used.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use rustix::io::Errno;

use crate::memif::memory::Region;
use crate::memif::ring::{
    BrokenProtocol, CHAINED, COOKIE, COOKIE_AT, Came, DESCRIPTOR_BYTES, DESCRIPTORS_AT, FLAGS_AT,
    HEAD_AT, MemifRings, NO_INTERRUPTS, Part, TAIL_AT, gather,
};

/// Slots of each ring, as a power of two.
pub(super) const RING_LOG2: u8 = 10;
const SLOTS: u16 = 1 << RING_LOG2;
/// Bytes of each buffer: an ordinary frame with room to spare.
const BUFFER_BYTES: usize = 2048;
const RING_BYTES: usize = DESCRIPTORS_AT + SLOTS as usize * DESCRIPTOR_BYTES;
/// Where the buffers begin: behind both rings, at the start of a page.
const BUFFERS_AT: usize = (2 * RING_BYTES).next_multiple_of(4096);
/// Bytes of the region.
pub(super) const REGION_BYTES: usize = BUFFERS_AT + 2 * SLOTS as usize * BUFFER_BYTES;

/// Where the ring of a direction begins.
pub(super) const fn ring_offset(to_server: bool) -> usize {
    if to_server { 0 } else { RING_BYTES }
}

const TO_SERVER: usize = ring_offset(true);
const TO_CLIENT: usize = ring_offset(false);

/// Where the descriptor of a slot lies.
fn descriptor(ring: usize, slot: u16) -> usize {
    ring + DESCRIPTORS_AT + usize::from(slot % SLOTS) * DESCRIPTOR_BYTES
}

/// Where the buffer of a slot lies.
fn buffer(ring: usize, slot: u16) -> usize {
    let first = if ring == TO_SERVER { 0 } else { usize::from(SLOTS) };
    BUFFERS_AT + (first + usize::from(slot % SLOTS)) * BUFFER_BYTES
}

/// Our rings, and where we are in them.
pub struct ClientRings {
    region: Region,
    /// Behind the last frame to the server, as far as we have written and as it has seen.
    sent: u16,
    shown: u16,
    /// The buffers that the server has given back.
    freed: u16,
    /// Behind the last frame from the server.
    taken: u16,
    /// The buffers that the server may fill end here.
    offered: u16,
}

impl ClientRings {
    /// Empty rings in a region of their own, and its memfd. The server may use them when it has said
    /// CONNECTED and [`Self::offer`] was called.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn create() -> Result<(Self, OwnedFd), Errno> {
        let (region, file) = Region::create(REGION_BYTES)?;
        for ring in [TO_SERVER, TO_CLIENT] {
            region.word(ring + COOKIE_AT).store(COOKIE, Ordering::Relaxed);
        }
        region.short(TO_CLIENT + FLAGS_AT).store(NO_INTERRUPTS, Ordering::Relaxed);
        Ok((Self { region, sent: 0, shown: 0, freed: 0, taken: 0, offered: 0 }, file))
    }

    /// Offers all buffers for frames from the server. Servers set both positions to 0 before they say
    /// CONNECTED, so that nothing must be offered before.
    pub fn offer(&mut self) {
        self.free_taken();
    }

    fn describe(&self, ring: usize, slot: u16, flags: u16, len: usize) {
        let at = descriptor(ring, slot);
        self.region.short(at).store(flags, Ordering::Relaxed);
        // The only region.
        self.region.short(at + 2).store(0, Ordering::Relaxed);
        self.region.word(at + 4).store(len as u32, Ordering::Relaxed);
        self.region.word(at + 8).store(buffer(ring, slot) as u32, Ordering::Relaxed);
    }

    fn tail(&self, ring: usize) -> u16 {
        // Acquire: what the server did to the buffers before is seen, or over.
        self.region.short(ring + TAIL_AT).load(Ordering::Acquire)
    }

    /// Slots that frames to the server may take.
    fn room(&mut self) -> Result<u16, BrokenProtocol> {
        let tail = self.tail(TO_SERVER);
        if tail.wrapping_sub(self.freed) > self.shown.wrapping_sub(self.freed) {
            return Err(BrokenProtocol);
        }
        self.freed = tail;
        Ok(SLOTS - self.sent.wrapping_sub(tail))
    }

    /// What the server says of a slot.
    fn part(&self, slot: u16) -> Result<Part<'_>, BrokenProtocol> {
        let at = descriptor(TO_CLIENT, slot);
        let flags = self.region.short(at).load(Ordering::Relaxed);
        let len = self.region.word(at + 4).load(Ordering::Relaxed) as usize;
        if len > BUFFER_BYTES {
            return Err(BrokenProtocol);
        }
        let offset = buffer(TO_CLIENT, slot);
        Ok(Part { region: &self.region, offset, len, is_chained: flags & CHAINED != 0 })
    }
}

impl MemifRings for ClientRings {
    fn take(&mut self, room: &mut [u8]) -> Result<(Came, u16), BrokenProtocol> {
        let available = self.tail(TO_CLIENT).wrapping_sub(self.taken);
        if available > self.offered.wrapping_sub(self.taken) {
            return Err(BrokenProtocol);
        }
        let part = |number| self.part(self.taken.wrapping_add(number));
        let (came, parts) = gather((available, SLOTS), room, part)?;
        self.taken = self.taken.wrapping_add(parts);
        Ok((came, parts))
    }

    fn free_taken(&mut self) {
        let end = self.taken.wrapping_add(SLOTS);
        if self.offered == end {
            return;
        }
        while self.offered != end {
            self.describe(TO_CLIENT, self.offered, 0, BUFFER_BYTES);
            self.offered = self.offered.wrapping_add(1);
        }
        // Release: the buffers are read, and described anew, before.
        self.region.short(TO_CLIENT + HEAD_AT).store(end, Ordering::Release);
    }

    fn put(&mut self, frame: &[u8]) -> Result<bool, BrokenProtocol> {
        let needed = frame.len().div_ceil(BUFFER_BYTES);
        // The server's line is looked at only when there seems to be no room.
        let known = usize::from(SLOTS - self.sent.wrapping_sub(self.freed));
        if needed > known && needed > usize::from(self.room()?) {
            return Ok(false);
        }
        let mut parts = frame.chunks(BUFFER_BYTES).peekable();
        while let Some(part) = parts.next() {
            self.region.write(buffer(TO_SERVER, self.sent), part);
            let flags = if parts.peek().is_some() { CHAINED } else { 0 };
            self.describe(TO_SERVER, self.sent, flags, part.len());
            self.sent = self.sent.wrapping_add(1);
        }
        Ok(true)
    }

    fn publish(&mut self) {
        if self.shown != self.sent {
            self.shown = self.sent;
            // Release: slots and buffers are written before.
            self.region.short(TO_SERVER + HEAD_AT).store(self.sent, Ordering::Release);
        }
    }
}
