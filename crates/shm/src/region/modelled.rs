//! Memory as loom sees it: every word an atomic, every byte of a buffer a cell whose races are
//! found.

use std::os::fd::BorrowedFd;

use loom::cell::UnsafeCell;
use rustix::io::Errno;

use crate::layout::Layout;
use crate::sync::AtomicU64;

pub(super) struct Memory {
    words: Vec<AtomicU64>,
    bytes: Vec<UnsafeCell<u8>>,
}

// SAFETY: loom checks every access to the cells; the words are atomics.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub(super) fn map(_: BorrowedFd<'_>, _: &Layout) -> Result<Self, Errno> {
        Err(Errno::NOSYS)
    }

    pub(super) fn keep_from_children(self) -> Result<Self, Errno> {
        Ok(self)
    }

    pub(super) fn private(layout: &Layout) -> Result<Self, Errno> {
        let words = layout.buffers_start() / 8;
        let bytes = layout.geometry().region_bytes - layout.buffers_start();
        Ok(Self {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            bytes: (0..bytes).map(|_| UnsafeCell::new(0)).collect(),
        })
    }

    pub(super) fn word(&self, offset: usize) -> &AtomicU64 {
        &self.words[offset / 8]
    }

    pub(super) fn write(&self, offset: usize, bytes: &[u8]) {
        let start = offset - self.words.len() * 8;
        for (cell, byte) in self.bytes[start..].iter().zip(bytes) {
            // SAFETY: loom fails the model if anything else touches the cell meanwhile.
            cell.with_mut(|cell| unsafe { *cell = *byte });
        }
    }

    pub(super) fn read(&self, offset: usize, bytes: &mut [u8]) {
        let start = offset - self.words.len() * 8;
        for (cell, byte) in self.bytes[start..].iter().zip(bytes) {
            // SAFETY: as above.
            *byte = cell.with(|cell| unsafe { *cell });
        }
    }
}
