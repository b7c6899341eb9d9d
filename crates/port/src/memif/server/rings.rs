//! A client's regions and rings, as its server uses them.

use std::sync::atomic::Ordering;

use crate::memif::error::MemifError;
use crate::memif::memory::Region;
use crate::memif::messages::AddRing;
use crate::memif::ring::{
    BrokenProtocol, CHAINED, COOKIE, COOKIE_AT, Came, DESCRIPTOR_BYTES, DESCRIPTORS_AT, FLAGS_AT,
    HEAD_AT, MemifRings, NO_INTERRUPTS, Part, TAIL_AT, gather, needed,
};

/// A ring: where it lies, how many slots it has, and our own position in it.
struct Ring {
    region: usize,
    base: usize,
    slots: u16,
    /// What we have published last.
    published: u16,
    /// Where we are.
    tail: u16,
}

impl Ring {
    /// Finds a ring in its region.
    fn new(regions: &[Region], of: &AddRing) -> Result<Self, MemifError> {
        let AddRing { region, offset, log2_slots, .. } = *of;
        let slots = 1u16 << log2_slots;
        let base = offset as usize;
        let bytes = DESCRIPTORS_AT + usize::from(slots) * DESCRIPTOR_BYTES;
        let memory = regions.get(usize::from(region));
        let memory = memory.filter(|memory| base.is_multiple_of(8) && memory.holds(base, bytes));
        let memory = memory.ok_or(MemifError::RingPlace { region, offset })?;
        let cookie = memory.word(base + COOKIE_AT).load(Ordering::Relaxed);
        if cookie != COOKIE {
            return Err(MemifError::Cookie(cookie));
        }
        let tail = memory.short(base + TAIL_AT).load(Ordering::Relaxed);
        Ok(Self { region: region.into(), base, slots, published: tail, tail })
    }

    fn at(&self, slot: u16) -> usize {
        self.base + DESCRIPTORS_AT + usize::from(slot & (self.slots - 1)) * DESCRIPTOR_BYTES
    }

    fn memory<'a>(&self, regions: &'a [Region]) -> Result<&'a Region, BrokenProtocol> {
        regions.get(self.region).ok_or(BrokenProtocol)
    }

    /// Slots between our tail and the client's head.
    fn available(&self, regions: &[Region]) -> Result<u16, BrokenProtocol> {
        // Acquire: what the slots say was written before.
        let head = self.memory(regions)?.short(self.base + HEAD_AT).load(Ordering::Acquire);
        let count = head.wrapping_sub(self.tail);
        if count <= self.slots { Ok(count) } else { Err(BrokenProtocol) }
    }

    /// Copies a descriptor, and checks that what it names lies in a region.
    fn part<'a>(&self, regions: &'a [Region], slot: u16) -> Result<Part<'a>, BrokenProtocol> {
        let (memory, at) = (self.memory(regions)?, self.at(slot));
        let flags = memory.short(at).load(Ordering::Relaxed);
        let region = usize::from(memory.short(at + 2).load(Ordering::Relaxed));
        let len = memory.word(at + 4).load(Ordering::Relaxed) as usize;
        let offset = memory.word(at + 8).load(Ordering::Relaxed) as usize;
        let region = regions.get(region).filter(|region| region.holds(offset, len));
        let region = region.ok_or(BrokenProtocol)?;
        Ok(Part { region, offset, len, is_chained: flags & CHAINED != 0 })
    }

    fn publish(&mut self, regions: &[Region]) {
        if self.published != self.tail
            && let Some(memory) = regions.get(self.region)
        {
            self.published = self.tail;
            // Release: slots and buffers are written, or read, before.
            memory.short(self.base + TAIL_AT).store(self.tail, Ordering::Release);
        }
    }
}

/// A client's rings. Whatever it writes to them is copied once and checked.
pub struct ServerRings {
    regions: Vec<Region>,
    /// Frames from the client.
    incoming: Ring,
    /// Buffers of the client's for frames to it.
    outgoing: Ring,
}

impl ServerRings {
    /// Everything that a client has shown.
    ///
    /// # Errors
    /// A ring that does not lie in its region.
    pub(super) fn new(
        regions: Vec<Region>,
        to_server: &AddRing,
        to_client: &AddRing,
    ) -> Result<Self, MemifError> {
        let incoming = Ring::new(&regions, to_server)?;
        let outgoing = Ring::new(&regions, to_client)?;
        if let Some(memory) = regions.get(incoming.region) {
            memory.short(incoming.base + FLAGS_AT).store(NO_INTERRUPTS, Ordering::Relaxed);
        }
        Ok(Self { regions, incoming, outgoing })
    }
}

impl MemifRings for ServerRings {
    fn take(&mut self, room: &mut [u8]) -> Result<(Came, u16), BrokenProtocol> {
        let Self { regions, incoming, .. } = self;
        let available = incoming.available(regions)?;
        let part = |number| incoming.part(regions, incoming.tail.wrapping_add(number));
        let (came, parts) = gather((available, incoming.slots), room, part)?;
        incoming.tail = incoming.tail.wrapping_add(parts);
        Ok((came, parts))
    }

    fn free_taken(&mut self) {
        self.incoming.publish(&self.regions);
    }

    fn put(&mut self, frame: &[u8]) -> Result<bool, BrokenProtocol> {
        let Self { regions, outgoing, .. } = self;
        let available = outgoing.available(regions)?;
        let part = |number: u16| outgoing.part(regions, outgoing.tail.wrapping_add(number));
        let Some(count) = needed(frame.len(), available, |number| Ok(part(number)?.len))? else {
            return Ok(false);
        };
        let mut rest = frame;
        for number in 0..count {
            // Copied anew, and so checked anew.
            let Part { region, offset, len, .. } = part(number)?;
            let (bytes, behind) = rest.split_at(rest.len().min(len));
            region.write(offset, bytes);
            let (ring, at) =
                (outgoing.memory(regions)?, outgoing.at(outgoing.tail.wrapping_add(number)));
            ring.word(at + 4).store(bytes.len() as u32, Ordering::Relaxed);
            let flags = if behind.is_empty() { 0 } else { CHAINED };
            ring.short(at).store(flags, Ordering::Relaxed);
            rest = behind;
        }
        if !rest.is_empty() {
            return Err(BrokenProtocol);
        }
        outgoing.tail = outgoing.tail.wrapping_add(count);
        Ok(true)
    }

    fn publish(&mut self) {
        self.outgoing.publish(&self.regions);
    }
}
