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
}

impl Queue {
    /// Gives the kernel the first `count` chunks to receive into.
    pub(super) fn fill(&mut self, count: usize) {
        for chunk in 0..count {
            self.rings.fill.push((chunk * CHUNK_BYTES) as u64);
        }
        self.rings.fill.publish();
    }

    /// Copies of all frames that have come, for tests of the path; their memory is given back.
    pub(super) fn take_all(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while let Some((descriptors, _)) = self.next_frame() {
            let mut frame = Vec::new();
            for ahead in 0..descriptors {
                let Descriptor { addr, len, .. } = self.rings.received.peek(ahead);
                frame.extend_from_slice(self.memory.bytes(addr, len as usize).unwrap_or_default());
                self.give_back(addr);
            }
            self.rings.received.advance(descriptors);
            frames.push(frame);
        }
        self.publish();
        frames
    }

    /// Gives a chunk back to the kernel; [`Queue::publish`] lets it see.
    fn give_back(&mut self, at: u64) {
        // There is room: the ring has as many entries as there are chunks for it.
        self.rings.fill.push(at & !(CHUNK_BYTES as u64 - 1));
    }

    fn publish(&mut self) {
        self.rings.received.give_back();
        self.rings.fill.publish();
        if self.rings.fill.wants_wakeup() {
            socket::wake_receiving(&self.fd);
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
            arena: vec![0; BURST_BYTES + FRAME_BYTES_MAX].into_boxed_slice(),
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
            let mut took = false;
            while self.burst.len() < RxBurst::CAPACITY && bytes < BURST_BYTES {
                let Some((descriptors, len)) = queue.next_frame() else { break };
                took = true;
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
            if took {
                queue.publish();
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
            let checksum = self.checksum(queue.memory.bytes(first.addr, len)?);
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
        self.used = (start + len).next_multiple_of(64);
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
        if self.burst.is_empty() {
            return;
        }
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
            queue.publish();
        }
    }
}

/// A queue of this socket and its memory; its rings are mapped where they are not yet.
pub(super) fn queue(fd: OwnedFd, rings: Option<Rings>, memory: Memory) -> io::Result<Queue> {
    let rings = rings.map_or_else(|| Rings::map(&fd), Ok)?;
    Ok(Queue { rings, fd, memory })
}
