//! The program's memory: the locations of an operation's pieces, and the copies from and to them.
//!
//! No other code in the crate accesses payload. libfabric's rules make it sound: the buffers of an
//! operation belong to the provider until the operation has completed.

use std::io::IoSlice;

use client::message::Memory;
use slab::Slab;

use crate::abi::Iovec;
use crate::state::operation::Operation;

/// Maximum pieces of one operation.
pub const PIECES_MAX: usize = 4;

/// One piece of the program's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Piece {
    base: usize,
    len: usize,
}

/// Locations of an operation's payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pieces {
    pieces: [Piece; PIECES_MAX],
    count: usize,
}

impl Pieces {
    /// One piece.
    pub fn one(base: usize, len: usize) -> Self {
        let mut pieces = [Piece::default(); PIECES_MAX];
        pieces[0] = Piece { base, len };
        Self { pieces, count: 1 }
    }

    /// A program's list; `None` if it is longer than [`PIECES_MAX`].
    ///
    /// # Safety
    /// `list` names `count` readable elements.
    pub unsafe fn of_list(list: *const Iovec, count: usize) -> Option<Self> {
        if count > PIECES_MAX || (list.is_null() && count > 0) {
            return None;
        }
        let mut pieces = Self { count, ..Self::default() };
        for (place, piece) in pieces.pieces.iter_mut().enumerate().take(count) {
            // SAFETY: the caller's promise.
            let element = unsafe { list.add(place).read_unaligned() };
            *piece = Piece { base: element.iov_base as usize, len: element.iov_len };
        }
        Some(pieces)
    }

    /// Bytes of all pieces.
    pub fn len(&self) -> usize {
        self.pieces.iter().fold(0, |sum: usize, piece| sum.saturating_add(piece.len))
    }

    /// Number of pieces.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Address of the first piece, which is returned in a completion.
    pub fn base(&self) -> usize {
        self.pieces[0].base
    }

    /// The pieces for reading.
    ///
    /// # Safety
    /// The program's memory at the pieces is readable while the slices live.
    pub unsafe fn slices(&self) -> [IoSlice<'_>; PIECES_MAX] {
        self.pieces.map(|piece| {
            // SAFETY: the caller's promise.
            IoSlice::new(unsafe { readable(piece.base, piece.len) })
        })
    }

    /// Calls `each` with the address and length of the bytes at `offset..offset + len`, in order.
    fn visit(&self, mut offset: u64, mut len: usize, mut each: impl FnMut(usize, usize)) {
        for piece in &self.pieces[..self.count] {
            if offset >= piece.len as u64 {
                offset -= piece.len as u64;
                continue;
            }
            let skip = offset as usize;
            let part = (piece.len - skip).min(len);
            if part == 0 {
                return;
            }
            each(piece.base + skip, part);
            len -= part;
            offset = 0;
        }
    }
}

/// Bytes of the program's.
///
/// # Safety
/// `len` bytes at `base` are readable, and nobody writes to them, for `'a`.
unsafe fn readable<'a>(base: usize, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(base as *const u8, len) }
}

/// The memory of operations in progress, by their index in the table.
pub struct ProgramMemory<'a>(pub &'a Slab<Operation>);

impl Memory for ProgramMemory<'_> {
    fn gather(&mut self, context: u64, offset: u64, len: usize, copy: &mut dyn FnMut(&[u8])) {
        let Some(operation) = self.0.get(context as usize) else { return };
        operation.pieces.visit(offset, len, |base, len| {
            // SAFETY: the operation is under way, so the program lends us its buffer.
            copy(unsafe { readable(base, len) });
        });
    }

    fn scatter(&mut self, context: u64, offset: u64, len: usize, copy: &mut dyn FnMut(&mut [u8])) {
        let Some(operation) = self.0.get(context as usize) else { return };
        operation.pieces.visit(offset, len, |base, len| {
            // SAFETY: the operation is under way, so the program lends us its buffer, and nobody
            // else uses it.
            copy(unsafe { std::slice::from_raw_parts_mut(base as *mut u8, len) });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(pieces: &Pieces, offset: u64, len: usize) -> Vec<(usize, usize)> {
        let mut parts = Vec::new();
        pieces.visit(offset, len, |base, len| parts.push((base, len)));
        parts
    }

    fn three() -> Pieces {
        let list = [(100, 10), (200, 0), (300, 5)]
            .map(|(base, len)| Iovec { iov_base: base as *mut _, iov_len: len });
        // SAFETY: the list lives.
        unsafe { Pieces::of_list(list.as_ptr(), list.len()) }.expect("three pieces")
    }

    #[test]
    fn a_range_is_cut_along_the_pieces() {
        let pieces = three();
        assert_eq!(pieces.len(), 15);
        assert_eq!(parts(&pieces, 0, 15), [(100, 10), (300, 5)]);
        assert_eq!(parts(&pieces, 8, 4), [(108, 2), (300, 2)]);
        assert_eq!(parts(&pieces, 12, 100), [(302, 3)]);
        assert_eq!(parts(&pieces, 15, 1), []);
    }

    #[test]
    fn a_list_beyond_the_limit_is_refused() {
        let list = [Iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PIECES_MAX + 1];
        // SAFETY: the list lives.
        assert!(unsafe { Pieces::of_list(list.as_ptr(), list.len()) }.is_none());
    }
}
