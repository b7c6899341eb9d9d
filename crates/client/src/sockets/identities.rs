//! Numbers closed without the layer's knowledge: by system calls made without the C library, or
//! inside it. The kernel reuses such a number for the next file, which the table would take for the
//! old socket.
//!
//! Three things drop a stale entry: a call that returns the number ([`Sockets::appeared`]), a new
//! socket under it, and a comparison with the kernel. A number is compared by one `fstat` on its
//! first use after 10 ms, or after a thread has slept in the layer.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use super::{Era, Errno, Sockets};

impl Sockets {
    /// Whether a call on a number belongs to the layer.
    #[inline]
    pub fn follows(&self, fd: RawFd) -> bool {
        let Some(era) = self.era() else { return false };
        era.table.tracks(fd) && self.stands(era, fd)
    }

    /// Whether a tracked number still refers to the object of its entry.
    #[inline]
    fn stands(&self, era: &Era, fd: RawFd) -> bool {
        match era.table.suspect(fd, self.kernel.coarse_ms()) {
            None => true,
            Some(suspect) => self.compare(era, fd, suspect),
        }
    }

    #[cold]
    fn compare(&self, era: &Era, fd: RawFd, suspect: super::table::Suspect) -> bool {
        if !self.compares.load(Ordering::Relaxed) {
            return true;
        }
        let is_stale = match self.kernel.identity(fd) {
            Ok(identity) => identity != 0 && identity != suspect.identity,
            // A seccomp filter may refuse the fstat; that says nothing about the number.
            Err(error) => error == Errno::BADF,
        };
        // A vfork child has its own numbers, but its parent's table.
        if !is_stale || self.is_other_process() {
            return true;
        }
        match era.table.take_suspect(fd, suspect) {
            Some(stale) => {
                self.let_go(era, fd, stale, false);
                false
            }
            // Another thread has closed it, and may have reused it.
            None => era.table.tracks(fd),
        }
    }

    /// The kernel has just returned a number to the program: its table entry is stale.
    #[inline]
    pub fn appeared(&self, fd: RawFd) {
        if self.tracks(fd) {
            self.drop_stale(fd);
        }
    }

    #[cold]
    fn drop_stale(&self, fd: RawFd) {
        let Some(era) = self.era().filter(|_| !self.is_other_process()) else { return };
        if let Some(stale) = era.table.take(fd) {
            self.let_go(era, fd, stale, false);
        }
    }

    /// The program restricts its system calls: numbers are no longer compared, because the filter
    /// may kill the program for it.
    pub fn stop_comparing(&self) {
        self.compares.store(false, Ordering::Relaxed);
    }

    /// The identity of a number's object; 0 if it cannot be determined.
    pub(super) fn identity(&self, fd: RawFd) -> u64 {
        match self.compares.load(Ordering::Relaxed) {
            true => self.kernel.identity(fd).unwrap_or(0),
            false => 0,
        }
    }
}
