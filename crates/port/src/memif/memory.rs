//! A region of memory that both sides of a memif have mapped.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU16, AtomicU32};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use super::error::MemifError;

/// A region, mapped.
pub(super) struct Region {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is only reached as atomics and by copies through raw pointers, and stays where it
// is until dropped.
unsafe impl Send for Region {}

impl Region {
    /// Maps a region that a peer has shown.
    ///
    /// # Errors
    /// It is no memfd that keeps its size, or not of the size that was said.
    pub fn shown(file: &OwnedFd, bytes: u64) -> Result<Self, MemifError> {
        let seals = rustix::fs::fcntl_get_seals(file).map_err(MemifError::NoMemfd)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(MemifError::NotSealed);
        }
        let stat = rustix::fs::fstat(file).map_err(MemifError::Memory)?;
        let actual = u64::try_from(stat.st_size).unwrap_or(0);
        let len = usize::try_from(bytes).ok().filter(|len| *len > 0 && bytes <= actual);
        let len = len.ok_or(MemifError::RegionSize { said: bytes, actual })?;
        Self::map(file, len).map_err(MemifError::Memory)
    }

    /// A region of our own, and the memfd to show.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn create(len: usize) -> Result<(Self, OwnedFd), Errno> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("outboard-memif", flags)?;
        rustix::fs::ftruncate(&file, len as u64)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals)?;
        Ok((Self::map(&file, len)?, file))
    }

    fn map(file: &OwnedFd, len: usize) -> Result<Self, Errno> {
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
        }?;
        Ok(Self { start: NonNull::new(start.cast()).ok_or(Errno::NOMEM)?, len })
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.len as u64
    }

    /// Whether bytes lie inside.
    pub fn holds(&self, offset: usize, len: usize) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.len)
    }

    /// Two bytes that the peer may write, too.
    ///
    /// # Panics
    /// Outside, or at an odd offset.
    pub fn short(&self, offset: usize) -> &AtomicU16 {
        assert!(offset.is_multiple_of(2) && self.holds(offset, 2));
        // SAFETY: in bounds and aligned, as the start is page-aligned; what the peer does to it is its
        // own affair.
        unsafe { AtomicU16::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }

    /// Four bytes that the peer may write, too.
    ///
    /// # Panics
    /// Outside, or at an offset that is no multiple of 4.
    pub fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && self.holds(offset, 4));
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// Outside.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
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

    /// Copies bytes in.
    ///
    /// # Panics
    /// Outside.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(self.holds(offset, bytes.len()));
        // SAFETY: in bounds; nobody holds references to these bytes, and a private slice cannot overlap
        // the mapping.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(offset), bytes.len());
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and no reference into it outlives `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}
