//! Memory that is really shared.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use arch::SharedBytes;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::layout::Layout;
use crate::sync::AtomicU64;

/// A mapping of `len` bytes.
pub(crate) struct Memory {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is only reached as atomics and by copies through raw pointers, and stays
// where it is until dropped.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub(crate) fn map(file: BorrowedFd<'_>, layout: &Layout) -> Result<Self, Errno> {
        Self::map_bytes(file, layout.geometry().region_bytes, false)
    }

    /// Forked children do not have the memory: they have no use for it, and some limit their address space.
    pub(crate) fn keep_from_children(&self) -> Result<(), Errno> {
        // SAFETY: our own mapping. Only a child that this process forks is without it, where nothing
        // reaches it: a session refuses everything but in its own process (`ForkMark`).
        unsafe { rustix::mm::madvise(self.start.as_ptr().cast(), self.len, Advice::LinuxDontFork) }
    }

    /// Maps the first `len` bytes of a file that is sealed against shrinking, with all its pages at
    /// once if it is to be `populated`.
    pub(crate) fn map_bytes(
        file: BorrowedFd<'_>,
        len: u64,
        populated: bool,
    ) -> Result<Self, Errno> {
        let len = usize::try_from(len).map_err(|_| Errno::NOMEM)?;
        let mut flags = MapFlags::SHARED | MapFlags::NORESERVE;
        flags.set(MapFlags::POPULATE, populated);
        // SAFETY: a new mapping at an address of the kernel's choice; nothing else refers to it.
        // The file is sealed against shrinking, so no page of it can go away.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
                file,
                0,
            )?
        };
        let start = NonNull::new(start.cast()).ok_or(Errno::FAULT)?;
        Ok(Self { start, len })
    }

    /// Memory of this process alone, of which the kernel gives what is touched.
    pub(crate) fn private(layout: &Layout) -> Result<Self, Errno> {
        Self::private_bytes(layout.geometry().region_bytes)
    }

    /// The same, of `len` bytes.
    pub(crate) fn private_bytes(len: u64) -> Result<Self, Errno> {
        let len = usize::try_from(len).map_err(|_| Errno::NOMEM)?;
        // SAFETY: a new mapping at an address of the kernel's choice; nothing else refers to it.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        let start = NonNull::new(start.cast()).ok_or(Errno::FAULT)?;
        Ok(Self { start, len })
    }

    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.len);
        // SAFETY: in bounds and aligned (the start is page-aligned); the words before the buffers
        // are only ever reached as atomics by us, and what another process does to them is theirs.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }

    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset.checked_add(bytes.len()).is_some_and(|end| end <= self.len));
        // SAFETY: in bounds; nobody holds references to buffer bytes, and a private slice cannot
        // overlap the mapping.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.start.as_ptr().add(offset),
                bytes.len(),
            );
        }
    }

    /// Copies bytes that may be shared, and may lie in this mapping.
    pub(crate) fn write_shared(&self, offset: usize, bytes: SharedBytes<'_>) {
        assert!(offset.checked_add(bytes.len()).is_some_and(|end| end <= self.len));
        // SAFETY: in bounds of both; they may overlap and change while they are copied, any value is
        // a byte.
        unsafe {
            std::ptr::copy(bytes.as_ptr(), self.start.as_ptr().add(offset), bytes.len());
        }
    }

    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) {
        assert!(offset.checked_add(bytes.len()).is_some_and(|end| end <= self.len));
        // SAFETY: in bounds; the bytes may change while they are copied, any value is a byte.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.start.as_ptr().add(offset),
                bytes.as_mut_ptr(),
                bytes.len(),
            );
        }
    }

    pub(crate) fn shared(&self, offset: usize, len: usize) -> SharedBytes<'_> {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len));
        // SAFETY: in bounds of a mapping that lives as long as `self`.
        unsafe { SharedBytes::new(self.start.as_ptr().add(offset), len) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and no reference into it outlives `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}
