//! Receiving from the sockets of all queues.

use std::io;
use std::mem;
use std::os::fd::OwnedFd;

use super::memory::{CHUNK_BYTES, HEADROOM, Memory};
use super::modes::XdpMode;
use super::partial;
use super::socket::{self, CONTINUES, Descriptor, Rings};
use crate::copy::FRAME_BYTES_MAX;
use crate::interface::{PortCounters, RxBurst, RxChecksum, RxFrame, RxHandle, RxMeta};

/// A burst ends at this many bytes, so that it is still cached when copied.
const BURST_BYTES: usize = 192 * 1024;
/// Assembled frames begin at multiples of this.
const ALIGNMENT: usize = 64;
/// Room for a burst and the longest frame at its end, each with alignment.
const ARENA_BYTES: usize = BURST_BYTES + FRAME_BYTES_MAX + RxBurst::CAPACITY * ALIGNMENT;

/// Ring entries published at a time: the kernel reads the position for each frame, usually on
/// another core.
const BATCH: u32 = 64;

/// Minimum receive chunks of the kernel: a millisecond of small frames. Over veth 4096 chunks in
/// turn were 12% slower for 64-byte frames than 1024 or 512: the first lines of pages share few
/// sets of the caches.
const OUT_LEAST: usize = 1024;

/// Location of a frame of the burst.
#[derive(Clone, Copy, Debug)]
enum FrameLocation {
    /// Where the kernel put it: in this many contiguous chunks of a queue.
    Chunks { queue: usize, start: u64, count: u32, at: u64 },
    /// Assembled from several chunks.
    Arena(usize),
}

/// Layout of the receive chunks in the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// On pages of their own.
    Pages,
    /// So close that the bytes of one begin where those of the previous one end, and a frame of
    /// several is contiguous: the headroom of a chunk is the end of the previous one. Only for a
    /// kernel that copies and uses no headroom; chunks are unaligned.
    Joined,
}

impl Layout {
    /// The layout of a mode: in generic mode the kernel copies.
    pub(super) fn of(mode: XdpMode) -> Self {
        if mode == XdpMode::Generic { Self::Joined } else { Self::Pages }
    }

    /// From one chunk to the next.
    fn stride(self) -> usize {
        match self {
            Self::Pages => CHUNK_BYTES,
            Self::Joined => CHUNK_BYTES - HEADROOM,
        }
    }

    /// Start of the chunk in a descriptor of the kernel. For unaligned chunks the descriptor has
    /// the start, and the offset of the bytes in its upper bits.
    fn start_of(self, described: u64) -> u64 {
        match self {
            Self::Pages => described & !(CHUNK_BYTES as u64 - 1),
            Self::Joined => described & ((1 << libc::XSK_UNALIGNED_BUF_OFFSET_SHIFT) - 1),
        }
    }
}

/// Location of the bytes in a descriptor of the kernel.
fn place_of(described: u64) -> u64 {
    let shift = libc::XSK_UNALIGNED_BUF_OFFSET_SHIFT;
    (described & ((1 << shift) - 1)) + (described >> shift)
}

#[derive(Clone, Copy, Debug)]
struct Received {
    location: FrameLocation,
    len: usize,
    checksum: RxChecksum,
}

/// A receive queue: its socket, rings and memory.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) fd: OwnedFd,
    pub(super) rings: Rings,
    pub(super) memory: Memory,
    layout: Layout,
    /// Receive chunks that the kernel does not have; those returned last are still cached, and are
    /// used first, in the order of their return.
    spare: Vec<u64>,
    /// Chunks that the kernel has, including frames not yet taken.
    out: usize,
    /// Chunks that it should have, and the bounds of that.
    wanted: usize,
    out_bounds: (usize, usize),
    /// Maximum descriptors found waiting since the last check.
    backlog: usize,
}

impl Queue {
    /// A queue of a socket and its memory, whose first `chunks` are for receiving: the kernel has
    /// all of them, or gets them by [`Queue::fill`]. Its rings are mapped if they are not.
    pub(super) fn new(
        fd: OwnedFd,
        rings: Option<Rings>,
        memory: Memory,
        layout: Layout,
        chunks: usize,
    ) -> io::Result<Self> {
        // Drivers that use our memory directly keep as many as they like.
        let least = if socket::is_zero_copy(&fd) { chunks } else { chunks.min(OUT_LEAST) };
        Ok(Self {
            rings: rings.map_or_else(|| Rings::map(&fd), Ok)?,
            fd,
            memory,
            layout,
            spare: Vec::with_capacity(chunks),
            out: chunks,
            wanted: least,
            out_bounds: (least, chunks),
            backlog: 0,
        })
    }

    /// Passes all receive chunks to the kernel.
    pub(super) fn fill(&mut self) {
        for chunk in 0..self.out {
            self.rings.fill.push((chunk * self.layout.stride()) as u64);
        }
        self.rings.fill.publish();
    }

    /// Copies of all received frames, for tests of the path; afterwards the kernel has all chunks
    /// again.
    pub(super) fn take_all(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while let Some((descriptors, _)) = self.next_frame() {
            let mut frame = Vec::new();
            for ahead in 0..descriptors {
                let Descriptor { addr, len, .. } = self.rings.received.peek(ahead);
                let bytes = self.memory.bytes(place_of(addr), len as usize);
                frame.extend_from_slice(bytes.unwrap_or_default());
                self.rings.fill.push(self.layout.start_of(addr));
            }
            self.rings.received.advance(descriptors);
            frames.push(frame);
        }
        self.rings.received.give_back_batch(1);
        self.rings.fill.publish();
        if self.rings.fill.wants_wakeup() {
            socket::wake_receiving(&self.fd);
        }
        frames
    }

    /// Takes a chunk back; [`Queue::publish`] passes it to the kernel again.
    fn give_back(&mut self, start: u64) {
        self.spare.push(start);
        self.out = self.out.saturating_sub(1);
    }

    /// The same for the chunks of a contiguous frame that begins there.
    fn give_back_several(&mut self, start: u64, count: u32) {
        for index in 0..u64::from(count) {
            self.give_back(start + index * self.layout.stride() as u64);
        }
    }

    /// Start of the next frame's chunks, if the frame is contiguous.
    fn in_one_piece(&self, descriptors: u32) -> Option<u64> {
        let stride = self.layout.stride() as u64;
        let first = self.rings.received.peek(0);
        let start = self.layout.start_of(first.addr);
        let mut before = first;
        for ahead in 1..descriptors {
            let piece = self.rings.received.peek(ahead);
            let follows = piece.addr == before.addr + stride && u64::from(before.len) == stride;
            if self.layout == Layout::Pages || !follows {
                return None;
            }
            before = piece;
        }
        Some(start)
    }

    /// Chunks that the kernel should have and has not.
    fn lacking(&self) -> usize {
        self.wanted.saturating_sub(self.out)
    }

    /// Releases what was read to the kernel, and passes it chunks, once there are enough to be
    /// worth the cache lines, or a driver waits.
    fn publish(&mut self) {
        self.rings.received.give_back_batch(BATCH);
        let waits = self.rings.fill.wants_wakeup();
        let lacking = self.lacking();
        if lacking < BATCH as usize && !waits {
            return;
        }
        let from = self.spare.len().saturating_sub(lacking);
        for chunk in self.spare.drain(from..) {
            // There is room: the ring has as many entries as there are chunks for it.
            self.rings.fill.push(chunk);
            self.out += 1;
        }
        self.rings.fill.publish();
        if waits {
            socket::wake_receiving(&self.fd);
        }
    }

    /// Measures the backlog: when half of its chunks are used up, the kernel gets twice as many.
    fn note_backlog(&mut self) {
        let waiting = self.rings.received.filled() as usize;
        if waiting == 0 {
            // Otherwise the socket would keep reporting frames to sleepers.
            self.rings.received.give_back_batch(1);
        }
        self.backlog = self.backlog.max(waiting);
        if waiting > self.wanted / 2 {
            self.wanted = (self.wanted * 2).min(self.out_bounds.1);
        }
    }

    /// Reduces the kernel's chunks if it has not needed as many since the last check: the fewer
    /// circulate, the more of them are cached.
    pub(super) fn look(&mut self) {
        if mem::take(&mut self.backlog) < self.wanted / 8 {
            self.wanted = (self.wanted / 2).max(self.out_bounds.0);
        }
    }

    /// Number of the next frame's descriptors, and its bytes; `None` if it is incomplete.
    fn next_frame(&self) -> Option<(u32, usize)> {
        let filled = self.rings.received.filled();
        let mut bytes = 0usize;
        for ahead in 0..filled {
            let Descriptor { len, options, .. } = self.rings.received.peek(ahead);
            bytes = bytes.saturating_add(len as usize);
            if options & CONTINUES == 0 {
                return Some((ahead + 1, bytes));
            }
        }
        None
    }
}

/// The burst of a port.
#[derive(Debug)]
pub(super) struct Receive {
    burst: Vec<Received>,
    /// Large frames of the burst, assembled.
    arena: Box<[u8]>,
    used: usize,
    /// The queue polled first; it rotates.
    first: usize,
    /// Peers on a kernel may leave checksums partial without marking it.
    is_virtual: bool,
}

impl Receive {
    pub(super) fn new(is_virtual: bool) -> Self {
        Self {
            burst: Vec::with_capacity(RxBurst::CAPACITY),
            arena: vec![0; ARENA_BYTES].into_boxed_slice(),
            used: 0,
            first: 0,
            is_virtual,
        }
    }

    pub(super) fn receive(
        &mut self,
        queues: &mut [Queue],
        burst: &mut RxBurst,
        counters: &mut PortCounters,
    ) {
        let count = queues.len();
        self.first = self.first.wrapping_add(1);
        let mut bytes = 0;
        for turn in 0..count {
            let index = self.first.wrapping_add(turn) % count;
            let Some(queue) = queues.get_mut(index) else { continue };
            queue.note_backlog();
            while self.burst.len() < RxBurst::CAPACITY && bytes < BURST_BYTES {
                let Some((descriptors, len)) = queue.next_frame() else { break };
                match self.take(index, queue, descriptors, len) {
                    Some(received) => {
                        bytes += len;
                        counters.rx_frames += 1;
                        counters.rx_bytes += len as u64;
                        if matches!(received.checksum, RxChecksum::Partial { .. }) {
                            counters.rx_partial += 1;
                        }
                        burst.handles.push(RxHandle(self.burst.len() as u32));
                        self.burst.push(received);
                    }
                    None => counters.rx_errors += 1,
                }
            }
        }
    }

    /// Takes one frame from its queue; `None` if it is longer than any valid frame.
    fn take(
        &mut self,
        index: usize,
        queue: &mut Queue,
        descriptors: u32,
        len: usize,
    ) -> Option<Received> {
        if let Some(start) = queue.in_one_piece(descriptors) {
            let at = place_of(queue.rings.received.peek(0).addr);
            queue.rings.received.advance(descriptors);
            let frame = queue.memory.bytes(at, len).filter(|_| len <= FRAME_BYTES_MAX);
            let Some(bytes) = frame else {
                queue.give_back_several(start, descriptors);
                return None;
            };
            let checksum = self.checksum(bytes);
            let location = FrameLocation::Chunks { queue: index, start, count: descriptors, at };
            return Some(Received { location, len, checksum });
        }
        let start = self.used;
        let mut room = self.arena.get_mut(start..start.saturating_add(len));
        if len > FRAME_BYTES_MAX {
            room = None;
        }
        for ahead in 0..descriptors {
            let Descriptor { addr, len, .. } = queue.rings.received.peek(ahead);
            if let Some(rest) = room.take()
                && let Some(from) = queue.memory.bytes(place_of(addr), len as usize)
                && let Some((to, rest)) = rest.split_at_mut_checked(from.len())
            {
                to.copy_from_slice(from);
                room = Some(rest);
            }
        }
        for ahead in 0..descriptors {
            let start = queue.layout.start_of(queue.rings.received.peek(ahead).addr);
            queue.give_back(start);
        }
        queue.rings.received.advance(descriptors);
        room?;
        self.used = (start + len).next_multiple_of(ALIGNMENT);
        let checksum = self.checksum(self.arena.get(start..start + len)?);
        Some(Received { location: FrameLocation::Arena(start), len, checksum })
    }

    fn checksum(&self, frame: &[u8]) -> RxChecksum {
        match partial::left_partial(frame) {
            Some((start, offset)) if self.is_virtual => RxChecksum::Partial { start, offset },
            _ => RxChecksum::Unknown,
        }
    }

    pub(super) fn frame<'a>(&'a self, queues: &'a [Queue], handle: RxHandle) -> RxFrame<'a> {
        let found = self.burst.get(handle.0 as usize).and_then(|received| {
            let bytes = match received.location {
                FrameLocation::Chunks { queue, at, .. } => {
                    queues.get(queue)?.memory.bytes(at, received.len)?
                }
                FrameLocation::Arena(start) => self.arena.get(start..start + received.len)?,
            };
            Some(RxFrame { bytes, meta: RxMeta { checksum: received.checksum, gso: None } })
        });
        found.unwrap_or(RxFrame { bytes: &[], meta: RxMeta::default() })
    }

    pub(super) fn release(&mut self, queues: &mut [Queue]) {
        let had_frames = !self.burst.is_empty();
        let mut burst = mem::take(&mut self.burst);
        for received in burst.drain(..) {
            if let FrameLocation::Chunks { queue, start, count, .. } = received.location
                && let Some(queue) = queues.get_mut(queue)
            {
                queue.give_back_several(start, count);
            }
        }
        self.burst = burst;
        self.used = 0;
        for queue in queues {
            // Refused frames return chunks, too, and nothing else may ever arrive.
            if had_frames || queue.lacking() > 0 {
                queue.publish();
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::ring::{Offsets, Ring};
    use super::*;

    pub(in super::super) const CHUNKS: usize = 256;
    /// More than the longest frame has.
    const PIECES: u32 = FRAME_BYTES_MAX.div_ceil(CHUNK_BYTES) as u32 + 1;

    /// The kernel's side of a queue.
    pub(in super::super) struct Kernel {
        layout: Layout,
        fill: Ring<u64>,
        received: Ring<Descriptor>,
        send: Ring<Descriptor>,
        sent: Ring<u64>,
    }

    impl Kernel {
        /// A frame in so many whole chunks; `false` when there are not so many.
        fn deliver(&mut self, pieces: u32) -> bool {
            if self.fill.filled() < pieces {
                return false;
            }
            for piece in 1..=pieces {
                let (addr, len) = match self.layout {
                    Layout::Pages => (self.fill.peek(0), CHUNK_BYTES),
                    Layout::Joined => {
                        let offset = (HEADROOM as u64) << libc::XSK_UNALIGNED_BUF_OFFSET_SHIFT;
                        (self.fill.peek(0) | offset, CHUNK_BYTES - HEADROOM)
                    }
                };
                self.fill.advance(1);
                let options = if piece < pieces { CONTINUES } else { 0 };
                self.received.push(Descriptor { addr, len: len as u32, options });
            }
            self.fill.give_back();
            self.received.publish();
            true
        }

        /// Takes the frames that are to be sent, and tells that they are; how many.
        pub fn send(&mut self) -> u32 {
            let count = self.send.filled();
            for ahead in 0..count {
                self.sent.push(self.send.peek(ahead).addr);
            }
            self.send.advance(count);
            self.send.give_back();
            self.sent.publish();
            count
        }
    }

    /// Both sides of a ring.
    fn ring<T: Copy>() -> (Ring<T>, Ring<T>) {
        let offsets = Offsets { producer: 0, consumer: 64, flags: 128, desc: 192 };
        let shared = super::super::memory::create(2 * CHUNK_BYTES).unwrap();
        let map = || Ring::map(&shared, 0, &offsets, CHUNKS as u32).unwrap();
        (map(), map())
    }

    /// A queue with so many chunks for sending.
    pub(in super::super) fn queue_with(sending: usize) -> (Queue, Kernel) {
        queue_of(Layout::Pages, sending)
    }

    fn queue_of(layout: Layout, sending: usize) -> (Queue, Kernel) {
        let (fill, filled) = ring();
        let (received, receiving) = ring();
        let (send, to_send) = ring();
        let (sent, sending_done) = ring();
        let bytes = (CHUNKS + sending) * CHUNK_BYTES;
        let (rings, fd) = (
            Rings { fill, received: received.reading(), send, sent: sent.reading() },
            super::super::memory::create(bytes).unwrap(),
        );
        let memory = Memory::map(&fd, 0..bytes).unwrap();
        let mut queue = Queue::new(fd, Some(rings), memory, layout, CHUNKS).unwrap();
        queue.fill();
        let (fill, send) = (filled.reading(), to_send.reading());
        (queue, Kernel { layout, fill, received: receiving, send, sent: sending_done })
    }

    #[test]
    fn a_frame_in_joined_chunks_lies_where_the_kernel_has_put_it() {
        let (queue, mut kernel) = queue_of(Layout::Joined, 0);
        let (mut queues, mut receive) = ([queue], Receive::new(true));
        let (mut burst, mut counters) = (RxBurst::new(), PortCounters::default());
        let (mut lone, mut put_together) = (0, 0);
        // More than go round: chunks come back in the order in which they went.
        for pieces in (1..=17).cycle().take(1000) {
            assert!(kernel.deliver(pieces));
            receive.receive(&mut queues, &mut burst, &mut counters);
            let frame = receive.frame(&queues, burst.handles.pop().unwrap());
            assert_eq!(frame.bytes.len(), pieces as usize * Layout::Joined.stride());
            match receive.burst.last().unwrap().location {
                FrameLocation::Chunks { count, .. } => lone += u64::from(count == pieces),
                FrameLocation::Arena(_) => put_together += 1,
            }
            receive.release(&mut queues);
        }
        assert_eq!(lone + put_together, 1000);
        // But for those that begin near the end and go on at the beginning.
        assert!(put_together < 100, "{put_together} of 1000 frames were put together");
    }

    #[test]
    fn after_nothing_but_too_long_frames_a_good_one_is_received() {
        let (queue, mut kernel) = queue_with(0);
        let (mut queues, mut receive) = ([queue], Receive::new(false));
        let (mut burst, mut counters) = (RxBurst::new(), PortCounters::default());
        for refused in 1..=100 {
            assert!(kernel.deliver(PIECES), "no chunks for frame {refused}");
            receive.release(&mut queues);
            receive.receive(&mut queues, &mut burst, &mut counters);
            assert_eq!((counters.rx_errors, counters.rx_frames), (refused, 0));
        }
        receive.release(&mut queues);
        assert!(kernel.deliver(1));
        receive.receive(&mut queues, &mut burst, &mut counters);
        assert_eq!(counters.rx_frames, 1);
    }
}
