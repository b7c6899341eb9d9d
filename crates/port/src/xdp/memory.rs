//! The memory of frames (UMEM): a memfd in chunks of one page, registered with the sockets. A chunk
//! passed to the kernel is not touched here until it returns.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Bytes of a chunk: the largest that needs no huge pages.
pub(super) const CHUNK_BYTES: usize = 4096;

/// Headroom that the kernel keeps at the beginning of a receive chunk (XDP_PACKET_HEADROOM).
pub(super) const HEADROOM: usize = 256;

/// A new memfd of this size.
pub(super) fn create(bytes: usize) -> io::Result<OwnedFd> {
    let fd = memfd_create("outboard-umem", MemfdFlags::CLOEXEC)?;
    ftruncate(&fd, bytes as u64)?;
    Ok(fd)
}

/// A range of a memfd, mapped.
#[derive(Debug)]
pub(super) struct Memory {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone.
unsafe impl Send for Memory {}

impl Memory {
    /// Maps a range of whole pages.
    pub(super) fn map(memfd: impl AsFd, range: Range<usize>) -> io::Result<Self> {
        let bytes = range.len();
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                memfd,
                range.start as u64,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, bytes })
    }

    /// Its address, for the kernel.
    pub(super) fn address(&self) -> u64 {
        self.start.as_ptr().expose_provenance() as u64
    }

    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    fn holds(&self, at: u64, len: usize) -> Option<usize> {
        let at = usize::try_from(at).ok()?;
        at.checked_add(len).filter(|end| *end <= self.bytes).map(|_| at)
    }

    /// Bytes that the kernel has passed and not been given back since, which callers ensure.
    pub(super) fn bytes(&self, at: u64, len: usize) -> Option<&[u8]> {
        let at = self.holds(at, len)?;
        // SAFETY: the range lies in the mapping; its chunk is ours until it goes back to the
        // fill ring, which takes `&mut` of the port and so ends this borrow.
        Some(unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(at), len) })
    }

    /// A word shared with the kernel, aligned to its size.
    pub(super) fn word(&self, at: u64) -> Option<&AtomicU64> {
        let at = self.holds(at, size_of::<AtomicU64>())?;
        let is_aligned = at.is_multiple_of(size_of::<AtomicU64>());
        // SAFETY: it lies in the mapping, which begins with a page and outlives the borrow, at a multiple of
        // its size; whatever is there is a number, and it is read and written atomically alone.
        is_aligned.then(|| unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(at).cast()) })
    }

    /// A chunk that is not the kernel's, for writing.
    pub(super) fn bytes_mut(&mut self, at: u64, len: usize) -> Option<&mut [u8]> {
        let at = self.holds(at, len)?;
        // SAFETY: as in `bytes`, and the borrow is exclusive.
        Some(unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(at), len) })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `map` with this length, and no borrow outlives us.
        // Failing would leave it mapped, which harms nobody.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
