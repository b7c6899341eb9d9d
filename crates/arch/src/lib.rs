//! Per-CPU primitives: copy, checksum while copying, prefetch, pause, cycle counter.
//!
//! `no_std`. One of the few rooms that may use `unsafe`.
#![cfg_attr(not(test), no_std)]

use core::marker::PhantomData;

/// Bytes in memory that another process may be writing: no reference to them ever exists, they
/// are only copied (once) or handed to the kernel.
#[derive(Clone, Copy, Debug)]
pub struct SharedBytes<'a> {
    start: *const u8,
    len: usize,
    _region: PhantomData<&'a [u8]>,
}

impl<'a> SharedBytes<'a> {
    /// # Safety
    /// `start..start + len` must stay mapped and readable for `'a`.
    pub unsafe fn new(start: *const u8, len: usize) -> Self {
        Self { start, len, _region: PhantomData }
    }
    /// Private bytes are shareable too.
    pub fn from_slice(bytes: &'a [u8]) -> Self {
        Self { start: bytes.as_ptr(), len: bytes.len(), _region: PhantomData }
    }
    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Where the bytes start, for an iovec.
    pub fn as_ptr(&self) -> *const u8 {
        self.start
    }
}
