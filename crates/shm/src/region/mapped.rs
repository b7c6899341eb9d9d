//! Memory that is really shared.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use arch::SharedBytes;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::fork::ForkMark;
use crate::layout::Layout;
use crate::sync::AtomicU64;

/// A mapping of `len` bytes.
pub(crate) struct Memory {
    start: NonNull<u8>,
    len: usize,
    /// Of a mapping that forked children do not inherit: tells them apart from its process.
    owner: Option<ForkMark>,
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

    /// Has the kernel leave the mapping out of forked children (MADV_DONTFORK): they have no use for it, and it
    /// would count against their limit of address space.
    pub(crate) fn keep_from_children(mut self) -> Result<Self, Errno> {
        self.owner = Some(ForkMark::new()?);
        // SAFETY: our own mapping. A forked child has nothing mapped here, or a mapping of its own that the
        // kernel has put here since. It does not touch that through `self`: `drop` and the callers that a
        // child can reach test `is_here` or the session's `ForkMark` first.
        unsafe {
            rustix::mm::madvise(self.start.as_ptr().cast(), self.len, Advice::LinuxDontFork)?;
        }
        Ok(self)
    }

    /// Whether the mapping exists in this process: not in a forked child that did not inherit it.
    pub(crate) fn is_here(&self) -> bool {
        self.owner.as_ref().is_none_or(ForkMark::is_mine)
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
        Ok(Self { start, len, owner: None })
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
        Ok(Self { start, len, owner: None })
    }

    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.len);
        // SAFETY: in bounds and aligned (the start is page-aligned). In a region the words lie before the
        // buffers, and this process reaches them as atomics only. In registered memory any aligned word can
        // be that of a line, and `read`, `write` and the kernel may copy the same bytes without atomics at the
        // same time, if the program or the peer names them twice. Rust's memory model does not define that
        // race; we rely on the compiler treating the copies as opaque accesses through raw pointers, and
        // the CPU giving each byte some value that was written. No reference to the bytes exists, every value
        // is valid, and none is trusted. Other processes' accesses are outside the model in any case.
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
        if !self.is_here() {
            return;
        }
        // SAFETY: our own mapping, and no reference into it outlives `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    use rustix::fs::MemfdFlags;

    const BYTES: u64 = 1 << 16;

    /// What a child's drop did: 0 the child's own mapping at the same address is left alone.
    fn of_a_child(memory: Memory) -> i32 {
        // SAFETY: the child makes system calls only, and ends without running anything of the parent's.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let (start, len) = (memory.start.as_ptr().cast::<libc::c_void>(), memory.len);
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
            let access = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: a new mapping, which replaces none.
            let own = unsafe { libc::mmap(start, len, access, flags, -1, 0) };
            if own != start {
                // SAFETY: ends the child.
                unsafe { libc::_exit(1) };
            }
            drop(memory);
            let mut pages = [0; BYTES as usize / 4096];
            // SAFETY: asks the kernel about pages; there is room for as many as are asked about.
            let there = unsafe { libc::mincore(start, len, pages.as_mut_ptr()) } == 0;
            // SAFETY: ends the child.
            unsafe { libc::_exit(if there { 0 } else { 2 }) };
        }
        assert!(child > 0, "fork failed");
        let mut status = 0;
        // SAFETY: waits for our own child.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(memory.is_here());
        status
    }

    /// A child that dropped a session unmapped whatever had been mapped in the region's place.
    #[test]
    fn a_child_does_not_unmap_what_lies_where_the_memory_was() {
        let file = rustix::fs::memfd_create("memory", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, BYTES).unwrap();
        let memory = Memory::map_bytes(file.as_fd(), BYTES, false).unwrap();
        assert_eq!(of_a_child(memory.keep_from_children().unwrap()), 0);
    }
}
