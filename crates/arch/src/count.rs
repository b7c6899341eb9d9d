//! An allocator that counts what is in use: for tests and reports of memory, as the global
//! allocator of a program of their own.

use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{AtomicUsize, Ordering};

/// Counts the bytes that are in use of another allocator, as they were asked for.
#[derive(Debug)]
pub struct Counting<A> {
    of: A,
    bytes: AtomicUsize,
}

impl<A> Counting<A> {
    /// Counts `of`, from now on.
    pub const fn new(of: A) -> Self {
        Self { of, bytes: AtomicUsize::new(0) }
    }

    /// Bytes in use now.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

// SAFETY: every call is `of`'s, whose contract this is; what is counted beside it does not touch
// the memory.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.bytes.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the same contract.
        unsafe { self.of.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        self.bytes.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the same contract.
        unsafe { self.of.dealloc(at, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.bytes.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the same contract.
        unsafe { self.of.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        self.bytes.fetch_add(new_size, Ordering::Relaxed);
        self.bytes.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the same contract.
        unsafe { self.of.realloc(at, layout, new_size) }
    }
}
