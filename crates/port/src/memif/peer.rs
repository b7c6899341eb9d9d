//! A connected peer's regions and rings. The worker alone uses them.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use rustix::fs::SealFlags;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::Shutdown;

use super::messages::AddRing;

/// First word of a ring.
const COOKIE: u32 = 0x3e3_1f20;
const COOKIE_AT: usize = 0;
const FLAGS_AT: usize = 4;
const HEAD_AT: usize = 6;
const TAIL_AT: usize = 64;
const DESCRIPTORS_AT: usize = 128;
const DESCRIPTOR_BYTES: usize = 16;
/// Of a ring's flags: its receiver polls.
const NO_INTERRUPTS: u16 = 1;
/// Of a descriptor's flags: the frame goes on in the next one.
const CHAINED: u16 = 1;
/// Bytes that the regions of a peer have together at the most.
pub(super) const REGION_BYTES_MAX: u64 = 64 << 20;

/// The peer's rings say what they must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BrokenProtocol;

/// What the next frame from a peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// None is there.
    Nothing,
    /// Too long, or of no bytes.
    Unusable,
    /// One of so many bytes.
    Frame(usize),
}

/// A region of the peer's memory, mapped.
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is only reached as atomics and by copies through raw pointers, and stays where it
// is until dropped.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps a region that a peer has shown.
    ///
    /// # Errors
    /// A sentence: it is no memfd that keeps its size, or not of the size that was said.
    pub fn new(file: &OwnedFd, bytes: u64) -> Result<Self, String> {
        let seals = rustix::fs::fcntl_get_seals(file)
            .map_err(|why| format!("a region is no memfd: {why}"))?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err("a region is not sealed against shrinking (F_SEAL_SHRINK)".into());
        }
        let actual = rustix::fs::fstat(file).map_err(|why| format!("fstat: {why}"))?.st_size;
        let len = usize::try_from(bytes).ok().filter(|len| *len > 0);
        let len = len.filter(|_| u64::try_from(actual).is_ok_and(|actual| actual >= bytes));
        let Some(len) = len else {
            return Err(format!("a region of {bytes} bytes is said to be, the memfd has {actual}"));
        };
        // SAFETY: a new mapping at an address of the kernel's choice; nothing else refers to it. The
        // file is sealed against shrinking and at least so long, so no page of it can go away.
        let start = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                file.as_fd(),
                0,
            )
        };
        let start = start.map_err(|why| format!("a region cannot be mapped: {why}"))?;
        let start = NonNull::new(start.cast()).ok_or("a region lies nowhere")?;
        Ok(Self { start, len })
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.len as u64
    }

    /// Whether bytes lie inside.
    fn holds(&self, offset: usize, len: usize) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.len)
    }

    fn short(&self, offset: usize) -> &AtomicU16 {
        assert!(offset.is_multiple_of(2) && self.holds(offset, 2));
        // SAFETY: in bounds and aligned, as the start is page-aligned; what the peer does to it is its
        // own affair.
        unsafe { AtomicU16::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && self.holds(offset, 4));
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) {
        assert!(self.holds(offset, bytes.len()));
        // SAFETY: in bounds; the bytes may change while they are copied, and any value is a byte.
        unsafe {
            ptr::copy_nonoverlapping(
                self.start.as_ptr().add(offset),
                bytes.as_mut_ptr(),
                bytes.len(),
            );
        }
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(self.holds(offset, bytes.len()));
        // SAFETY: in bounds; nobody holds references to these bytes, and a private slice cannot overlap
        // the mapping.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(offset), bytes.len());
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and no reference into it outlives `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

/// A ring: where it lies, how many slots it has, and our own position in it.
struct MemifRing {
    region: usize,
    base: usize,
    slots: u16,
    /// What we have published last.
    published: u16,
    /// Where we are.
    tail: u16,
}

#[derive(Clone, Copy)]
struct MemifDescriptor {
    flags: u16,
    region: usize,
    len: usize,
    offset: usize,
}

impl MemifRing {
    fn at(&self, slot: u16) -> usize {
        self.base + DESCRIPTORS_AT + usize::from(slot & (self.slots - 1)) * DESCRIPTOR_BYTES
    }
}

/// A connected peer.
pub(super) struct Peer {
    regions: Vec<Mapping>,
    /// Frames from the peer.
    incoming: MemifRing,
    /// Buffers of the peer's for frames to it.
    outgoing: MemifRing,
    /// Its control socket.
    socket: OwnedFd,
    has_ended: bool,
}

fn ring(regions: &[Mapping], of: &AddRing) -> Result<MemifRing, String> {
    let slots = 1u16 << of.log2_slots;
    let base = of.offset as usize;
    let bytes = DESCRIPTORS_AT + usize::from(slots) * DESCRIPTOR_BYTES;
    let region = usize::from(of.region);
    let memory = regions.get(region).ok_or("a ring lies in a region that there is not")?;
    if !base.is_multiple_of(8) || !memory.holds(base, bytes) {
        return Err("a ring does not lie in its region".into());
    }
    if memory.word(base + COOKIE_AT).load(Ordering::Relaxed) != COOKIE {
        return Err("a ring does not begin with the cookie".into());
    }
    let tail = memory.short(base + TAIL_AT).load(Ordering::Relaxed);
    Ok(MemifRing { region, base, slots, published: tail, tail })
}

impl Peer {
    /// A peer with everything that it has shown.
    ///
    /// # Errors
    /// A sentence: a ring that does not lie in its region.
    pub fn new(
        regions: Vec<Mapping>,
        to_server: &AddRing,
        to_client: &AddRing,
        socket: OwnedFd,
    ) -> Result<Self, String> {
        let incoming = ring(&regions, to_server)?;
        let outgoing = ring(&regions, to_client)?;
        let peer = Self { regions, incoming, outgoing, socket, has_ended: false };
        if let Some(memory) = peer.regions.get(peer.incoming.region) {
            memory.short(peer.incoming.base + FLAGS_AT).store(NO_INTERRUPTS, Ordering::Relaxed);
        }
        Ok(peer)
    }

    /// Whether it was hung up.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Ends the connection: its thread at our side finds it hung up.
    pub fn hang_up(&mut self) {
        self.has_ended = true;
        // One that has gone already needs no end.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }

    /// Slots between our tail and the peer's head.
    fn available(&self, ring: &MemifRing) -> Result<u16, BrokenProtocol> {
        let memory = self.regions.get(ring.region).ok_or(BrokenProtocol)?;
        // Acquire: what the slots say was written before.
        let head = memory.short(ring.base + HEAD_AT).load(Ordering::Acquire);
        let count = head.wrapping_sub(ring.tail);
        if count <= ring.slots { Ok(count) } else { Err(BrokenProtocol) }
    }

    /// Copies a descriptor, and checks that what it names lies in a region.
    fn descriptor(&self, ring: &MemifRing, slot: u16) -> Result<MemifDescriptor, BrokenProtocol> {
        let memory = self.regions.get(ring.region).ok_or(BrokenProtocol)?;
        let at = ring.at(slot);
        let found = MemifDescriptor {
            flags: memory.short(at).load(Ordering::Relaxed),
            region: usize::from(memory.short(at + 2).load(Ordering::Relaxed)),
            len: memory.word(at + 4).load(Ordering::Relaxed) as usize,
            offset: memory.word(at + 8).load(Ordering::Relaxed) as usize,
        };
        let lies =
            self.regions.get(found.region).is_some_and(|of| of.holds(found.offset, found.len));
        if lies { Ok(found) } else { Err(BrokenProtocol) }
    }

    /// Copies the next frame to the start of `room`.
    ///
    /// # Errors
    /// The peer broke the protocol.
    pub fn take(&mut self, room: &mut [u8]) -> Result<Came, BrokenProtocol> {
        if self.has_ended {
            return Ok(Came::Nothing);
        }
        let available = self.available(&self.incoming)?;
        let (mut len, mut fits) = (0, true);
        for count in 0..available {
            let slot = self.incoming.tail.wrapping_add(count);
            let MemifDescriptor { flags, region, len: part, offset } =
                self.descriptor(&self.incoming, slot)?;
            let end = len + part;
            match room.get_mut(len..end).zip(self.regions.get(region)) {
                Some((room, memory)) if fits => memory.read(offset, room),
                _ => fits = false,
            }
            len = end;
            if flags & CHAINED == 0 {
                self.incoming.tail = slot.wrapping_add(1);
                return Ok(if fits && len > 0 { Came::Frame(len) } else { Came::Unusable });
            }
        }
        // A frame whose last part is not there yet; one that fills the ring never has one.
        if available == self.incoming.slots { Err(BrokenProtocol) } else { Ok(Came::Nothing) }
    }

    /// Gives the slots of frames that were taken back.
    pub fn free_taken(&mut self) {
        publish(&self.regions, &mut self.incoming);
    }

    /// Copies a frame into the peer's buffers; it is seen after [`Self::publish`]. `false`: there are
    /// not enough of them.
    ///
    /// # Errors
    /// The peer broke the protocol.
    pub fn put(&mut self, frame: &[u8]) -> Result<bool, BrokenProtocol> {
        let available = self.available(&self.outgoing)?;
        let (mut room, mut needed) = (0, 0);
        while room < frame.len() {
            if needed == available {
                return Ok(false);
            }
            let slot = self.outgoing.tail.wrapping_add(needed);
            let len = self.descriptor(&self.outgoing, slot)?.len;
            // A buffer without room would make a chain without end.
            room += if len > 0 { len } else { return Err(BrokenProtocol) };
            needed += 1;
        }
        let mut rest = frame;
        for count in 0..needed {
            let slot = self.outgoing.tail.wrapping_add(count);
            // Copied anew, and so checked anew.
            let MemifDescriptor { region, len, offset, .. } =
                self.descriptor(&self.outgoing, slot)?;
            let (part, behind) = rest.split_at(rest.len().min(len));
            self.regions.get(region).ok_or(BrokenProtocol)?.write(offset, part);
            let ring = self.regions.get(self.outgoing.region).ok_or(BrokenProtocol)?;
            let at = self.outgoing.at(slot);
            ring.word(at + 4).store(part.len() as u32, Ordering::Relaxed);
            let flags = if behind.is_empty() { 0 } else { CHAINED };
            ring.short(at).store(flags, Ordering::Relaxed);
            rest = behind;
        }
        if !rest.is_empty() {
            return Err(BrokenProtocol);
        }
        self.outgoing.tail = self.outgoing.tail.wrapping_add(needed);
        Ok(true)
    }

    /// Shows the peer the frames since the last call.
    pub fn publish(&mut self) {
        publish(&self.regions, &mut self.outgoing);
    }
}

fn publish(regions: &[Mapping], ring: &mut MemifRing) {
    if ring.published != ring.tail
        && let Some(memory) = regions.get(ring.region)
    {
        ring.published = ring.tail;
        // Release: slots and buffers are written, or read, before.
        memory.short(ring.base + TAIL_AT).store(ring.tail, Ordering::Release);
    }
}
