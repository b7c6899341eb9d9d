//! A session's region: one mapping, words reached as atomics and buffers reached by copying.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

#[cfg(not(loom))]
use arch::SharedBytes;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;

use crate::control::{CONTRACT_VERSION, Geometry};
use crate::descriptor::Span;
use crate::layout::{BadGeometry, Layout, MAGIC};
use crate::sync::{AtomicU64, Ordering};

#[cfg(not(loom))]
#[path = "region/mapped.rs"]
pub(crate) mod memory;
#[cfg(loom)]
#[path = "region/modelled.rs"]
pub(crate) mod memory;

use memory::Memory;

/// The seals that every region carries.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Why a region cannot be made or opened.
#[derive(Debug)]
pub enum RegionError {
    /// The geometry does not add up.
    Geometry(BadGeometry),
    /// The memfd lacks the seals that keep its size.
    NotSealed,
    /// The memfd is not of the size that the geometry says.
    WrongSize {
        /// Bytes of the memfd.
        actual: u64,
        /// Bytes of the geometry.
        claimed: u64,
    },
    /// The kernel refused; what was tried, and its answer.
    System(&'static str, Errno),
}

impl std::fmt::Display for RegionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Geometry(bad) => write!(f, "the region's geometry is inconsistent: {bad}"),
            Self::NotSealed => write!(f, "the region's memfd is not sealed against resizing"),
            Self::WrongSize { actual, claimed } => {
                write!(f, "the region's memfd has {actual} bytes, its geometry says {claimed}")
            }
            Self::System(what, errno) => write!(f, "{what} of the region failed: {errno}"),
        }
    }
}

impl std::error::Error for RegionError {}

/// A mapped region. Shared by `Arc` among the views made from it; unmapped with the last.
pub struct Region {
    memory: Memory,
    layout: Layout,
    file: Option<OwnedFd>,
}

impl Region {
    /// Makes a sealed memfd of `geometry`'s size (its `region_bytes` is worked out) and maps it.
    ///
    /// # Errors
    /// If the geometry is invalid, or with the errno of the system call that failed.
    pub fn create(geometry: Geometry) -> Result<Self, RegionError> {
        let layout = Layout::sized(geometry).map_err(RegionError::Geometry)?;
        let system = |what| move |errno| RegionError::System(what, errno);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file =
            rustix::fs::memfd_create("outboard-region", flags).map_err(system("memfd_create"))?;
        rustix::fs::ftruncate(&file, layout.geometry().region_bytes)
            .map_err(system("ftruncate"))?;
        rustix::fs::fcntl_add_seals(&file, SEALS).map_err(system("sealing"))?;
        let memory = Memory::map(file.as_fd(), &layout).map_err(system("mmap"))?;
        let region = Self { memory, layout, file: Some(file) };
        region.describe();
        Ok(region)
    }

    /// A region in private memory, for simulation and tests in one process.
    ///
    /// # Errors
    /// If the geometry is invalid, or with the errno of mmap.
    pub fn private(geometry: Geometry) -> Result<Self, RegionError> {
        let layout = Layout::sized(geometry).map_err(RegionError::Geometry)?;
        let memory =
            Memory::private(&layout).map_err(|errno| RegionError::System("mmap", errno))?;
        let region = Self { memory, layout, file: None };
        region.describe();
        Ok(region)
    }

    /// Maps a region that was granted, once its size and seals are found to be right. Children that are
    /// forked later do not have it.
    ///
    /// # Errors
    /// If the geometry is invalid, size or seals are wrong, or with the errno of a system call.
    pub fn open(file: OwnedFd, geometry: Geometry) -> Result<Self, RegionError> {
        let layout = Layout::granted(geometry).map_err(RegionError::Geometry)?;
        let system = |what| move |errno| RegionError::System(what, errno);
        let seals = rustix::fs::fcntl_get_seals(&file).map_err(system("reading the seals"))?;
        if !seals.contains(SEALS) {
            return Err(RegionError::NotSealed);
        }
        let actual = rustix::fs::fstat(&file).map_err(system("fstat"))?.st_size as u64;
        if actual != geometry.region_bytes {
            return Err(RegionError::WrongSize { actual, claimed: geometry.region_bytes });
        }
        let memory = Memory::map(file.as_fd(), &layout).map_err(system("mmap"))?;
        let memory = memory.keep_from_children().map_err(system("madvise"))?;
        Ok(Self { memory, layout, file: Some(file) })
    }

    /// Writes the header page, which only people and crash dumps read.
    fn describe(&self) {
        let g = self.layout.geometry();
        let words = [
            MAGIC,
            u64::from(CONTRACT_VERSION),
            g.region_bytes,
            u64::from(g.context_count) | u64::from(g.worker_count) << 32,
            u64::from(g.request_slots) | u64::from(g.stock_slots) << 32,
            u64::from(g.endpoint_capacity) | u64::from(g.send_slots) << 32,
            u64::from(g.receive_slots) | u64::from(g.buffer_bytes) << 32,
            u64::from(g.buffer_count),
        ];
        for (index, word) in words.into_iter().enumerate() {
            self.word(index * 8).store(word, Ordering::Relaxed);
        }
    }

    /// The memfd, to be shown to the other side; none when the region is private.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// Bytes of the memfd's pages that have been used; none of a region without one.
    ///
    /// # Errors
    /// What the kernel says of the memfd.
    pub fn resident_bytes(&self) -> Result<u64, Errno> {
        const BLOCK_BYTES: u64 = 512;
        let Some(file) = &self.file else { return Ok(0) };
        Ok(rustix::fs::fstat(file)?.st_blocks as u64 * BLOCK_BYTES)
    }

    /// Closes the memfd; the mapping stays.
    pub fn drop_file(&mut self) {
        self.file = None;
    }

    /// The layout as this side keeps it.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The geometry as this side keeps it.
    pub fn geometry(&self) -> &Geometry {
        self.layout.geometry()
    }

    /// The whole of a buffer; `None` beyond the last.
    pub fn buffer(&self, buffer: u32) -> Option<Span> {
        let g = self.layout.geometry();
        (buffer < g.buffer_count).then(|| Span {
            offset: self.layout.buffers_start() + u64::from(buffer) * u64::from(g.buffer_bytes),
            len: g.buffer_bytes,
        })
    }

    /// The buffer in which `span` lies wholly; `None` if it does not lie in one.
    pub fn buffer_of(&self, span: Span) -> Option<u32> {
        let g = self.layout.geometry();
        let start = span.offset.checked_sub(self.layout.buffers_start())?;
        let buffer = u32::try_from(start / u64::from(g.buffer_bytes)).ok()?;
        let within = start % u64::from(g.buffer_bytes);
        (buffer < g.buffer_count && within + u64::from(span.len) <= u64::from(g.buffer_bytes))
            .then_some(buffer)
    }

    /// Copies `bytes` to the start of `span`, as many as fit; returns how many. A span outside
    /// the buffers takes nothing.
    pub fn write_buffer(&self, span: Span, bytes: &[u8]) -> usize {
        if self.buffer_of(span).is_none() {
            return 0;
        }
        let len = bytes.len().min(span.len as usize);
        self.memory.write(span.offset as usize, &bytes[..len]);
        len
    }

    /// Copies the start of `span` to `bytes`, as many as fit; returns how many. A span outside
    /// the buffers gives nothing.
    pub fn read_buffer(&self, span: Span, bytes: &mut [u8]) -> usize {
        if self.buffer_of(span).is_none() {
            return 0;
        }
        let len = bytes.len().min(span.len as usize);
        self.memory.read(span.offset as usize, &mut bytes[..len]);
        len
    }

    /// The bytes of `span`, to be copied or handed to the kernel; empty for a span outside the
    /// buffers.
    #[cfg(not(loom))]
    pub fn shared(&self, span: Span) -> SharedBytes<'_> {
        match self.buffer_of(span) {
            Some(_) => self.memory.shared(span.offset as usize, span.len as usize),
            None => SharedBytes::from_slice(&[]),
        }
    }

    /// Stores a word anywhere in the region: a client that scribbles, for tests of the engine.
    /// `false` beyond the region's end or between words.
    pub fn scribble(&self, offset: u64, value: u64) -> bool {
        let bytes = self.layout.geometry().region_bytes;
        let inside =
            offset.is_multiple_of(8) && offset.checked_add(8).is_some_and(|end| end <= bytes);
        if inside {
            self.memory.word(offset as usize).store(value, Ordering::Relaxed);
        }
        inside
    }

    /// A word of the lanes and endpoints.
    ///
    /// # Panics
    /// When the offset is not that of a word before the buffers: our own mistake, since offsets
    /// come from the private layout only.
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset < self.layout.buffers_start() as usize);
        self.memory.word(offset)
    }

    pub(crate) fn load(&self, offset: usize, order: Ordering) -> u64 {
        self.word(offset).load(order)
    }

    pub(crate) fn store(&self, offset: usize, value: u64, order: Ordering) {
        self.word(offset).store(value, order);
    }
}

/// A full fence, for the handshakes of `docs/spec/shm.md`.
pub fn full_fence() {
    crate::sync::fence(Ordering::SeqCst);
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Region").field("geometry", self.layout.geometry()).finish_non_exhaustive()
    }
}
