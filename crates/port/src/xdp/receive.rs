//! Receiving from the sockets of all queues.

use std::io;
use std::mem;
use std::os::fd::OwnedFd;

use super::memory::{CHUNK_BYTES, Memory};
use super::partial;
use super::socket::{self, CONTINUES, Descriptor, Rings};
use crate::copy::FRAME_BYTES_MAX;
use crate::interface::{PortCounters, RxBurst, RxChecksum, RxFrame, RxHandle, RxMeta};

/// A burst ends when it has this many bytes, so that it is still cached when copied on.
const BURST_BYTES: usize = 192 * 1024;
/// Frames that are put together begin at multiples of so many bytes.
const ALIGNMENT: usize = 64;
/// Room for a burst and the longest frame as its last, each with what aligns it.
const ARENA_BYTES: usize = BURST_BYTES + FRAME_BYTES_MAX + RxBurst::CAPACITY * ALIGNMENT;

/// Entries of a ring that the kernel's side is told of at a time: it reads the position for each
/// frame, on another core as a rule.
const BATCH: u32 = 64;

/// Chunks that the kernel has at least to receive into: a millisecond of small frames. Over veth
/// 4096 chunks in turn took 12% off the rate of 64-byte frames that 1024 or 512 allow: the first
/// lines of pages share few places in the caches.
const OUT_LEAST: usize = 1024;

/// Where a frame of the burst lies.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// In the chunk that the kernel put it in.
    Chunk(usize, u64),
    /// Put together from several chunks.
    Arena(usize),
}

#[derive(Clone, Copy, Debug)]
struct Received {
    place: Place,
    len: usize,
    checksum: RxChecksum,
}

/// A receive queue: its socket, rings and memory.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) fd: OwnedFd,
    pub(super) rings: Rings,
    pub(super) memory: Memory,
    /// Chunks to receive into that the kernel does not have; the last one given back is the one
    /// still cached, and goes out first.
    spare: Vec<u64>,
    /// Chunks that the kernel has, frames not yet taken included.
    out: usize,
    /// Chunks that it is to have, and the bounds of that.
    wanted: usize,
    out_bounds: (usize, usize),
    /// Most descriptors found waiting since the last look.
    backlog: usize,
}

impl Queue {
    /// Puts a socket and its memory together, whose first `chunks` are to receive into: the kernel
    /// has all of them, or gets them by [`Queue::fill`]. Its rings are mapped where they are not
    /// yet.
    pub(super) fn new(
        fd: OwnedFd,
        rings: Option<Rings>,
        memory: Memory,
        chunks: usize,
    ) -> io::Result<Self> {
        // Drivers that use our memory themselves keep as many as they like.
        let least = if socket::is_zero_copy(&fd) { chunks } else { chunks.min(OUT_LEAST) };
        Ok(Self {
            rings: rings.map_or_else(|| Rings::map(&fd), Ok)?,
            fd,
            memory,
            spare: Vec::with_capacity(chunks),
            out: chunks,
            wanted: least,
            out_bounds: (least, chunks),
            backlog: 0,
        })
    }

    /// Gives the kernel all chunks to receive into.
    pub(super) fn fill(&mut self) {
        for chunk in 0..self.out {
            self.rings.fill.push((chunk * CHUNK_BYTES) as u64);
        }
        self.rings.fill.publish();
    }

    /// Copies of all frames that have come, for tests of the path; the kernel has all chunks again
    /// afterwards.
    pub(super) fn take_all(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while let Some((descriptors, _)) = self.next_frame() {
            let mut frame = Vec::new();
            for ahead in 0..descriptors {
                let Descriptor { addr, len, .. } = self.rings.received.peek(ahead);
                frame.extend_from_slice(self.memory.bytes(addr, len as usize).unwrap_or_default());
                self.rings.fill.push(start_of(addr));
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

    /// Takes a chunk back; [`Queue::publish`] gives it to the kernel again.
    fn give_back(&mut self, at: u64) {
        self.spare.push(start_of(at));
        self.out = self.out.saturating_sub(1);
    }

    /// Chunks that the kernel is to have and has not.
    fn lacking(&self) -> usize {
        self.wanted.saturating_sub(self.out)
    }

    /// Shows the kernel what was read, and gives it chunks, once there are enough to be worth the
    /// cache lines, or when a driver waits.
    fn publish(&mut self) {
        self.rings.received.give_back_batch(BATCH);
        let waits = self.rings.fill.wants_wakeup();
        let lacking = self.lacking();
        if lacking < BATCH as usize && !waits {
            return;
        }
        for _ in 0..lacking {
            // There is room: the ring has as many entries as there are chunks for it.
            let Some(chunk) = self.spare.pop() else { break };
            self.rings.fill.push(chunk);
            self.out += 1;
        }
        self.rings.fill.publish();
        if waits {
            socket::wake_receiving(&self.fd);
        }
    }

    /// Notes how far behind we are: with half of its chunks used up, the kernel gets twice as
    /// many.
    fn note_backlog(&mut self) {
        let waiting = self.rings.received.filled() as usize;
        if waiting == 0 {
            // Otherwise the socket would go on telling sleepers that there are frames.
            self.rings.received.give_back_batch(1);
        }
        self.backlog = self.backlog.max(waiting);
        if waiting > self.wanted / 2 {
            self.wanted = (self.wanted * 2).min(self.out_bounds.1);
        }
    }

    /// Lets the kernel have fewer chunks when it has not needed so many since the last look: the
    /// fewer go round, the more of them are cached.
    pub(super) fn look(&mut self) {
        if mem::take(&mut self.backlog) < self.wanted / 8 {
            self.wanted = (self.wanted / 2).max(self.out_bounds.0);
        }
    }

    /// How many descriptors the next frame has, and its bytes; `None` when it has not come whole.
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

/// Where the chunk begins that holds `at`.
fn start_of(at: u64) -> u64 {
    at & !(CHUNK_BYTES as u64 - 1)
}

/// The burst of a port.
#[derive(Debug)]
pub(super) struct Receive {
    burst: Vec<Received>,
    /// Large frames of the burst, put together.
    arena: Box<[u8]>,
    used: usize,
    /// The queue that is looked at first takes turns.
    first: usize,
    /// Kernel peers may leave checksums partial without a word.
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

    /// Takes one frame off its queue; `None` when it is longer than any frame.
    fn take(
        &mut self,
        index: usize,
        queue: &mut Queue,
        descriptors: u32,
        len: usize,
    ) -> Option<Received> {
        let first = queue.rings.received.peek(0);
        if descriptors == 1 {
            queue.rings.received.advance(1);
            let Some(bytes) = queue.memory.bytes(first.addr, len) else {
                queue.give_back(first.addr);
                return None;
            };
            let checksum = self.checksum(bytes);
            return Some(Received { place: Place::Chunk(index, first.addr), len, checksum });
        }
        let start = self.used;
        let mut room = self.arena.get_mut(start..start.saturating_add(len));
        if len > FRAME_BYTES_MAX {
            room = None;
        }
        for ahead in 0..descriptors {
            let Descriptor { addr, len, .. } = queue.rings.received.peek(ahead);
            if let Some(rest) = room.take()
                && let Some(from) = queue.memory.bytes(addr, len as usize)
                && let Some((to, rest)) = rest.split_at_mut_checked(from.len())
            {
                to.copy_from_slice(from);
                room = Some(rest);
            }
        }
        for ahead in 0..descriptors {
            let at = queue.rings.received.peek(ahead).addr;
            queue.give_back(at);
        }
        queue.rings.received.advance(descriptors);
        room?;
        self.used = (start + len).next_multiple_of(ALIGNMENT);
        let checksum = self.checksum(self.arena.get(start..start + len)?);
        Some(Received { place: Place::Arena(start), len, checksum })
    }

    fn checksum(&self, frame: &[u8]) -> RxChecksum {
        match partial::left_partial(frame) {
            Some((start, offset)) if self.is_virtual => RxChecksum::Partial { start, offset },
            _ => RxChecksum::Unknown,
        }
    }

    pub(super) fn frame<'a>(&'a self, queues: &'a [Queue], handle: RxHandle) -> RxFrame<'a> {
        let found = self.burst.get(handle.0 as usize).and_then(|received| {
            let bytes = match received.place {
                Place::Chunk(queue, at) => queues.get(queue)?.memory.bytes(at, received.len)?,
                Place::Arena(start) => self.arena.get(start..start + received.len)?,
            };
            Some(RxFrame { bytes, meta: RxMeta { checksum: received.checksum, gso: None } })
        });
        found.unwrap_or(RxFrame { bytes: &[], meta: RxMeta::default() })
    }

    pub(super) fn release(&mut self, queues: &mut [Queue]) {
        let had_frames = !self.burst.is_empty();
        let mut burst = mem::take(&mut self.burst);
        for received in burst.drain(..) {
            if let Place::Chunk(index, at) = received.place
                && let Some(queue) = queues.get_mut(index)
            {
                queue.give_back(at);
            }
        }
        self.burst = burst;
        self.used = 0;
        for queue in queues {
            // Frames that were refused give chunks back, too, and nothing else may ever come.
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
                let addr = self.fill.peek(0);
                self.fill.advance(1);
                let options = if piece < pieces { CONTINUES } else { 0 };
                self.received.push(Descriptor { addr, len: CHUNK_BYTES as u32, options });
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
        let mut queue = Queue::new(fd, Some(rings), memory, CHUNKS).unwrap();
        queue.fill();
        let (fill, send) = (filled.reading(), to_send.reading());
        (queue, Kernel { fill, received: receiving, send, sent: sending_done })
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
