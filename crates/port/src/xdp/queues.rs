//! A socket on every receive queue, with memory of its own, also on queues added while the port
//! runs (`ethtool -L`). The kernel does not remove a queue with a socket.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use super::memory::{self, CHUNK_BYTES, Memory};
use super::modes::XdpMode;
use super::receive::{Layout, Queue};
use super::socket::{self, Rings};
use super::transmit;
use crate::bpf::{Map, MapKind};

/// Maximum receive queues served. Frames on others would go to the kernel, which would reset the
/// engine's connections.
pub const QUEUES_MAX: u32 = 64;

/// Queues prepared for if an interface may have more than it has,
const SPARES_MAX: u32 = 8;
/// and receive chunks of each: memory that is locked although it may never be used.
const SPARE_CHUNKS: usize = 1024;

/// Retries for a queue that an earlier attempt has just released: the kernel takes a moment.
const BINDS_MAX: u32 = 100;
const BIND_PAUSE: Duration = Duration::from_millis(10);

/// Receive chunks of a queue: room for 200 frames of 64 KiB if there are few queues.
pub(super) fn chunks_of(queue: u32) -> usize {
    match queue {
        0..4 => 4096,
        4..16 => 2048,
        _ => 1024,
    }
}

/// Range of a queue's memory in the memfd; the first has the send chunks, too.
pub(super) fn range_of(queue: u32) -> std::ops::Range<usize> {
    let bytes = |queue| {
        let sending = if queue == 0 { transmit::CHUNKS } else { 0 };
        (chunks_of(queue) + sending) * CHUNK_BYTES
    };
    let start = (0..queue).map(bytes).sum();
    start..start + bytes(queue)
}

/// The map of sockets by queue, which the program redirects to.
#[derive(Debug)]
pub(super) struct Sockets(pub(super) Map);

impl Sockets {
    pub(super) fn create() -> io::Result<Self> {
        Map::create(MapKind::XskMap, 4, 4, QUEUES_MAX).map(Self)
    }

    pub(super) fn from_fd(fd: OwnedFd) -> Self {
        Self(Map::from_fd(fd, 4, 4))
    }

    fn set(&self, queue: u32, socket: &OwnedFd) -> io::Result<()> {
        let descriptor = socket.as_raw_fd() as u32;
        self.0.set(&queue.to_ne_bytes(), &descriptor.to_ne_bytes())
    }
}

/// Parameters for binding sockets to queues.
#[derive(Clone, Copy, Debug)]
pub(super) struct Binding {
    /// The interface's index.
    pub(super) index: u32,
    pub(super) mode: XdpMode,
    /// Whether sockets take frames of several buffers.
    pub(super) several_buffers: bool,
}

impl Binding {
    /// A socket with this many receive chunks at the location of a queue in the memfd, all of them
    /// in its fill ring: some drivers rely on that at the bind.
    fn prepare(&self, memfd: &OwnedFd, number: u32, chunks: usize) -> io::Result<Queue> {
        let range = range_of(number);
        rustix::fs::ftruncate(memfd, range.end as u64)?;
        let end = range.end - (chunks_of(number) - chunks) * CHUNK_BYTES;
        let memory = Memory::map(memfd, range.start..end)?;
        let layout = Layout::of(self.mode);
        let fd = socket::open()?;
        socket::prepare(&fd, &memory, layout)?;
        let mut queue = Queue::new(fd, None, memory, layout, chunks)?;
        queue.fill();
        Ok(queue)
    }

    fn bind(&self, queue: &Queue, number: u32) -> io::Result<()> {
        socket::bind(&queue.fd, self.index, number, self.mode, self.several_buffers)
    }

    /// Sockets for queues that may be added, for an interface with `now` and at `most` so many
    /// queues. Their memory is locked at once, while there are privileges; a failure is reported
    /// when such a queue is added.
    pub(super) fn spares(&self, memfd: &OwnedFd, now: u32, most: u32) -> Vec<Queue> {
        let numbers = now..most.min(QUEUES_MAX).min(now + SPARES_MAX);
        numbers.map_while(|number| self.prepare(memfd, number, SPARE_CHUNKS).ok()).collect()
    }

    /// The same in the running port, from their descriptors.
    pub(super) fn spare(
        &self,
        memfd: &OwnedFd,
        number: u32,
        fd: OwnedFd,
        rings: Option<Rings>,
    ) -> io::Result<Queue> {
        let start = range_of(number).start;
        let memory = Memory::map(memfd, start..start + SPARE_CHUNKS * CHUNK_BYTES)?;
        Queue::new(fd, rings, memory, Layout::of(self.mode), SPARE_CHUNKS)
    }

    /// A socket on every queue, stored in the map.
    pub(super) fn open_all(&self, sockets: &Sockets) -> io::Result<(OwnedFd, Vec<Queue>)> {
        let memfd = memory::create(0)?;
        let mut queues: Vec<Queue> = Vec::new();
        for number in 0..QUEUES_MAX {
            let queue = self.prepare(&memfd, number, chunks_of(number))?;
            let mut bound = self.bind(&queue, number);
            for _ in 0..BINDS_MAX {
                match &bound {
                    Err(why) if why.raw_os_error() == Some(libc::EBUSY) => {}
                    _ => break,
                }
                std::thread::sleep(BIND_PAUSE);
                bound = self.bind(&queue, number);
            }
            match bound {
                Ok(()) => {
                    sockets.set(number, &queue.fd)?;
                    queues.push(queue);
                }
                // There are no more queues, or this one is refused: the caller knows how many there
                // are.
                Err(why) if number > 0 && why.raw_os_error() == Some(libc::EINVAL) => break,
                Err(why) => return Err(why),
            }
        }
        // Frees the memory tried for a queue that does not exist.
        rustix::fs::ftruncate(&memfd, range_of(queues.len() as u32).start as u64)?;
        Ok((memfd, queues))
    }
}

/// Serves queues that are added.
#[derive(Debug)]
pub(super) struct Growth {
    pub(super) binding: Binding,
    pub(super) sockets: Sockets,
    /// For queues to be added, in their order.
    pub(super) spares: VecDeque<Queue>,
}

impl Growth {
    /// Serves queues up to this number. Those that can be served are, even if it fails.
    pub(super) fn serve(&mut self, queues: &mut Vec<Queue>, wanted: u32) -> io::Result<()> {
        for number in queues.len() as u32..wanted {
            let Some(spare) = self.spares.front() else {
                return Err(io::Error::other("more than were prepared at the start"));
            };
            self.binding.bind(spare, number)?;
            self.sockets.set(number, &spare.fd)?;
            queues.extend(self.spares.pop_front());
        }
        Ok(())
    }
}
