//! Knowing that one is a forked child, at the price of one load.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

const PAGE_BYTES: usize = 4096;

/// A page that the kernel empties in a forked child.
#[derive(Debug)]
pub struct ForkMark {
    page: NonNull<AtomicU64>,
}

// SAFETY: the page is only reached as an atomic and stays mapped until dropped.
unsafe impl Send for ForkMark {}
// SAFETY: as above.
unsafe impl Sync for ForkMark {}

impl ForkMark {
    /// A mark of this process.
    ///
    /// # Errors
    /// With the errno of mmap or madvise(MADV_WIPEONFORK).
    pub fn new() -> Result<Self, Errno> {
        // SAFETY: a new private mapping at an address of the kernel's choice.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                PAGE_BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?
        };
        let mark = Self { page: NonNull::new(start.cast()).ok_or(Errno::FAULT)? };
        // SAFETY: our own mapping, whose only content is the word below.
        unsafe { rustix::mm::madvise(start, PAGE_BYTES, Advice::LinuxWipeOnFork)? };
        mark.word().store(1, Ordering::Relaxed);
        Ok(mark)
    }

    /// Whether this process is the one that made the mark (or shares its memory).
    pub fn is_mine(&self) -> bool {
        self.word().load(Ordering::Relaxed) != 0
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: mapped and page-aligned until dropped.
        unsafe { self.page.as_ref() }
    }
}

impl Drop for ForkMark {
    fn drop(&mut self) {
        // SAFETY: our own mapping; no reference into it outlives `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.page.as_ptr().cast(), PAGE_BYTES) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Runs `work` in a forked child, which ends with what it returns, and waits for that; the child's wait
/// status. A child that takes longer than 30 s is ended by SIGALRM. For tests of what holds in children.
///
/// # Errors
/// The errno of fork(2) or waitpid(2).
#[doc(hidden)]
pub fn status_of_child(work: impl FnOnce() -> u8) -> std::io::Result<i32> {
    const LIMIT_S: u32 = 30;
    // SAFETY: the child has this thread alone, and ends without returning to the caller.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: sets the child's own timer.
        unsafe { libc::alarm(LIMIT_S) };
        let outcome = i32::from(work());
        // SAFETY: ends the child.
        unsafe { libc::_exit(outcome) };
    }
    let mut status = 0;
    // SAFETY: waits for our own child; there is room for its status.
    if child < 0 || unsafe { libc::waitpid(child, &raw mut status, 0) } != child {
        return Err(std::io::Error::last_os_error());
    }
    Ok(status)
}
