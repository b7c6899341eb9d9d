//! A pair of rings: its memfd, and where its words lie.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

#[cfg(not(loom))]
use arch::SharedBytes;
#[cfg(not(loom))]
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::MESSAGE_ALIGN;
use super::memory::Memory;
#[cfg(not(loom))]
use crate::control::CONTRACT_VERSION;
use crate::sync::{AtomicU64, Ordering};

/// First word of the memfd.
#[cfg(not(loom))]
const MAGIC: u64 = u64::from_le_bytes(*b"obrings\0");

/// Words of the header page, from its start.
pub(super) mod word {
    // Written by the engine.
    pub const UP_TAIL: usize = 64;
    pub const DOWN_HEAD: usize = 72;
    pub const UP_WANTED: usize = 80;
    pub const PUBLICATIONS: usize = 88;
    pub const UP_MESSAGES: usize = 96;
    pub const UP_DROPPED: usize = 104;
    pub const DOWN_MESSAGES: usize = 112;
    pub const DOWN_DROPPED: usize = 120;
    // Written by the client that sends.
    pub const DOWN_TAIL: usize = 128;
    pub const DOWN_WANTED: usize = 136;
    // Written by the client that receives.
    pub const UP_HEAD: usize = 192;
}

/// Bytes before UP. Small in models, which make an object of every word.
const START: usize = if cfg!(loom) { 256 } else { 4096 };

#[cfg(not(loom))]
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Sizes of the rings in bytes; both sides keep them privately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingSizes {
    /// Engine to client.
    pub up: u32,
    /// Client to engine; 0 for an endpoint that only receives.
    pub down: u32,
}

impl RingSizes {
    /// Least size of a ring.
    pub const LEAST: u32 = if cfg!(loom) { 128 } else { 256 << 10 };
    /// Greatest size of a ring.
    pub const MOST: u32 = 64 << 20;
    /// Size of a ring unless asked otherwise.
    pub const DEFAULT: Self = Self { up: 1 << 20, down: 1 << 20 };

    /// Whether both are powers of two within the bounds.
    pub fn are_good(self) -> bool {
        let good = |size: u32| size.is_power_of_two() && (Self::LEAST..=Self::MOST).contains(&size);
        good(self.up) && (self.down == 0 || good(self.down))
    }

    /// Bytes of the memfd.
    pub fn total(self) -> u64 {
        START as u64 + u64::from(self.up) + u64::from(self.down)
    }
}

/// Why rings cannot be made or opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingError {
    /// A size is no power of two, or out of bounds.
    BadSizes(RingSizes),
    /// The memfd lacks the seals that keep its size.
    NotSealed,
    /// The memfd is not of the size that was said.
    WrongSize {
        /// Bytes of the memfd.
        actual: u64,
        /// Bytes of the rings and their header.
        claimed: u64,
    },
    /// The kernel refused; what was tried, and its answer.
    System(&'static str, Errno),
}

impl std::fmt::Display for RingError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::BadSizes(RingSizes { up, down }) => write!(
                f,
                "rings of {up} and {down} bytes are not valid: each is a power of two from {} to \
                 {}, and only the one to the engine may be omitted (0)",
                RingSizes::LEAST,
                RingSizes::MOST
            ),
            Self::NotSealed => write!(f, "the memfd of the rings is not sealed against resizing"),
            Self::WrongSize { actual, claimed } => {
                write!(f, "the memfd of the rings has {actual} bytes instead of {claimed}")
            }
            Self::System(what, errno) => write!(f, "{what} of the rings failed: {errno}"),
        }
    }
}

impl std::error::Error for RingError {}

/// One direction: where it lies. The size is private.
#[derive(Clone, Copy, Debug)]
pub(super) struct Half {
    pub start: usize,
    pub bytes: u64,
}

impl Half {
    /// Where a position lies.
    pub fn at(self, position: u64) -> usize {
        self.start + self.within(position) as usize
    }

    /// Bytes from a position to the end of the ring.
    pub fn rest(self, position: u64) -> u64 {
        self.bytes - self.within(position)
    }

    fn within(self, position: u64) -> u64 {
        position & (self.bytes - 1)
    }

    /// Most bytes of a message.
    pub fn message_max(self) -> u64 {
        self.bytes / 8
    }

    /// Bytes to skip before a message of `need` bytes at `tail`.
    pub fn skip(self, tail: u64, need: u64) -> u64 {
        let rest = self.rest(tail);
        if need > rest { rest } else { 0 }
    }
}

/// The rings of a raw endpoint, mapped; unmapped with the last view made from them.
pub struct Rings {
    memory: Memory,
    sizes: RingSizes,
    file: Option<OwnedFd>,
    #[cfg(all(test, not(loom)))]
    pub(super) fuse: super::kills::Fuse,
}

impl Rings {
    /// Makes a sealed memfd with all its pages, and maps it.
    ///
    /// # Errors
    /// Sizes out of bounds, or what the kernel refuses.
    #[cfg(not(loom))]
    pub fn create(sizes: RingSizes) -> Result<Self, RingError> {
        if !sizes.are_good() {
            return Err(RingError::BadSizes(sizes));
        }
        let system = |what| move |errno| RingError::System(what, errno);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file =
            rustix::fs::memfd_create("outboard-rings", flags).map_err(system("memfd_create"))?;
        rustix::fs::ftruncate(&file, sizes.total()).map_err(system("ftruncate"))?;
        rustix::fs::fcntl_add_seals(&file, SEALS).map_err(system("sealing"))?;
        let memory =
            Memory::map_bytes(file.as_fd(), sizes.total(), true).map_err(system("mmap"))?;
        let rings = Self::of(memory, sizes, Some(file));
        rings.describe();
        Ok(rings)
    }

    /// Rings in private memory, for simulation and tests in one process.
    ///
    /// # Errors
    /// Sizes out of bounds, or what the kernel refuses.
    pub fn private(sizes: RingSizes) -> Result<Self, RingError> {
        if !sizes.are_good() {
            return Err(RingError::BadSizes(sizes));
        }
        let memory = Memory::private_bytes(sizes.total())
            .map_err(|errno| RingError::System("mmap", errno))?;
        let rings = Self::of(memory, sizes, None);
        #[cfg(not(loom))]
        rings.describe();
        rings.store(word::UP_WANTED, u64::MAX, Ordering::Relaxed);
        rings.store(word::DOWN_WANTED, u64::MAX, Ordering::Relaxed);
        Ok(rings)
    }

    /// Maps rings that were granted, once their size and seals are found to be right.
    ///
    /// # Errors
    /// What is wrong with the memfd, or what the kernel refuses.
    #[cfg(not(loom))]
    pub fn open(file: OwnedFd, sizes: RingSizes) -> Result<Self, RingError> {
        if !sizes.are_good() {
            return Err(RingError::BadSizes(sizes));
        }
        let system = |what| move |errno| RingError::System(what, errno);
        let seals = rustix::fs::fcntl_get_seals(&file).map_err(system("reading the seals"))?;
        if !seals.contains(SEALS) {
            return Err(RingError::NotSealed);
        }
        let actual = rustix::fs::fstat(&file).map_err(system("fstat"))?.st_size as u64;
        if actual != sizes.total() {
            return Err(RingError::WrongSize { actual, claimed: sizes.total() });
        }
        let memory =
            Memory::map_bytes(file.as_fd(), sizes.total(), true).map_err(system("mmap"))?;
        Ok(Self::of(memory, sizes, None))
    }

    fn of(memory: Memory, sizes: RingSizes, file: Option<OwnedFd>) -> Self {
        Self {
            memory,
            sizes,
            file,
            #[cfg(all(test, not(loom)))]
            fuse: super::kills::Fuse::default(),
        }
    }

    /// Writes the first line, which only people and crash dumps read, and the wishes.
    #[cfg(not(loom))]
    fn describe(&self) {
        let words =
            [MAGIC, u64::from(CONTRACT_VERSION), self.sizes.up.into(), self.sizes.down.into()];
        for (index, value) in words.into_iter().enumerate() {
            self.store(index * 8, value, Ordering::Relaxed);
        }
        self.store(word::UP_WANTED, u64::MAX, Ordering::Relaxed);
        self.store(word::DOWN_WANTED, u64::MAX, Ordering::Relaxed);
    }

    /// The memfd, to be shown to the client; none when the rings are private.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// The memfd, given away; the mapping stays.
    pub fn take_file(&mut self) -> Option<OwnedFd> {
        self.file.take()
    }

    /// Their sizes as this side keeps them.
    pub fn sizes(&self) -> RingSizes {
        self.sizes
    }

    pub(super) fn up(&self) -> Half {
        Half { start: START, bytes: self.sizes.up.into() }
    }

    /// Absent where there is no such ring.
    pub(super) fn down(&self) -> Option<Half> {
        let bytes = u64::from(self.sizes.down);
        (bytes >= MESSAGE_ALIGN).then_some(Half { start: START + self.sizes.up as usize, bytes })
    }

    /// Stores a word anywhere: a client that scribbles, for tests of the engine. `false` beyond
    /// the end or between words.
    pub fn scribble(&self, offset: u64, value: u64) -> bool {
        let total = self.sizes.total();
        let inside =
            offset.is_multiple_of(8) && offset.checked_add(8).is_some_and(|end| end <= total);
        if inside {
            self.store(offset as usize, value, Ordering::Relaxed);
        }
        inside
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        self.memory.word(offset)
    }

    pub(super) fn load(&self, offset: usize, order: Ordering) -> u64 {
        self.word(offset).load(order)
    }

    pub(super) fn store(&self, offset: usize, value: u64, order: Ordering) {
        #[cfg(all(test, not(loom)))]
        if self.fuse.allows(size_of::<u64>()) < size_of::<u64>() {
            return;
        }
        self.word(offset).store(value, order);
    }

    pub(super) fn write(&self, offset: usize, bytes: &[u8]) {
        #[cfg(all(test, not(loom)))]
        let bytes = &bytes[..self.fuse.allows(bytes.len())];
        self.memory.write(offset, bytes);
    }

    pub(super) fn read(&self, offset: usize, bytes: &mut [u8]) {
        self.memory.read(offset, bytes);
    }

    /// Bytes that the other side may be writing.
    #[cfg(not(loom))]
    pub(super) fn shared(&self, offset: usize, len: usize) -> SharedBytes<'_> {
        self.memory.shared(offset, len)
    }
}

impl std::fmt::Debug for Rings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rings").field("sizes", &self.sizes).finish_non_exhaustive()
    }
}
