//! Bytes that another process may be writing.

use core::marker::PhantomData;
use core::ops::Range;
use core::ptr;

/// Bytes in memory that another process may be writing: no reference to them ever exists, they
/// are only copied (once) or handed to the kernel.
#[derive(Clone, Copy, Debug)]
pub struct SharedBytes<'a> {
    start: *const u8,
    len: usize,
    _region: PhantomData<&'a [u8]>,
}

/// Bytes copied before they are summed: small enough to stay in the first-level cache.
const BLOCK_LEN: usize = 2048;

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
    /// Nothing.
    pub const fn empty() -> Self {
        Self { start: ptr::NonNull::dangling().as_ptr(), len: 0, _region: PhantomData }
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

    /// The part `range` of the bytes, cut to what is there.
    pub fn slice(&self, range: Range<usize>) -> SharedBytes<'a> {
        let end = range.end.min(self.len);
        let begin = range.start.min(end);
        // SAFETY: begin <= end <= self.len, so the part lies inside what `new` was promised.
        unsafe { SharedBytes::new(self.start.add(begin), end - begin) }
    }

    /// Copies to the start of `dst`, as much as both hold, and gives how much that was.
    pub fn copy_to(&self, dst: &mut [u8]) -> usize {
        let len = self.len.min(dst.len());
        // SAFETY: the source is readable for self.len >= len bytes by the promise of `new`, the
        // destination is a private slice of at least len bytes, so they do not overlap. The other
        // process may write the source meanwhile; then the copy is a mixture of old and new
        // bytes, which is its own affair: nothing is decided on the source after this.
        unsafe { ptr::copy_nonoverlapping(self.start, dst.as_mut_ptr(), len) };
        len
    }

    /// Copies like [`copy_to`](Self::copy_to) and gives the length and the [`sum`](crate::sum)
    /// of what arrived in `dst`, whatever the other process does meanwhile.
    pub fn copy_to_and_sum(&self, dst: &mut [u8]) -> (usize, u16) {
        let len = self.len.min(dst.len());
        let (mut done, mut total) = (0, 0u32);
        // The private copy is summed, never the source: the two could differ.
        for block in dst.chunks_mut(BLOCK_LEN) {
            let copied = self.slice(done..len).copy_to(block);
            let Some(arrived) = block.get(..copied).filter(|arrived| !arrived.is_empty()) else {
                break;
            };
            // Every block but the last is of even length, so no byte order changes between them.
            total += u32::from(crate::sum(arrived));
            done += copied;
        }
        (len, crate::fold(u64::from(total)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_shared_copy_is_whole_and_summed(
            src in prop::collection::vec(any::<u8>(), 0..6000),
            room in 0usize..6000,
        ) {
            let shared = SharedBytes::from_slice(&src);
            let copied = src.len().min(room);
            let mut dst = vec![0xa5; room];
            prop_assert_eq!(shared.copy_to(&mut dst), copied);
            prop_assert_eq!(&dst[..copied], &src[..copied]);
            prop_assert!(dst[copied..].iter().all(|&byte| byte == 0xa5));
            let mut again = vec![0xa5; room];
            prop_assert_eq!(shared.copy_to_and_sum(&mut again), (copied, crate::sum(&src[..copied])));
            prop_assert_eq!(again, dst);
        }

        #[test]
        fn a_slice_never_leaves_its_bytes(
            src in prop::collection::vec(any::<u8>(), 0..100),
            begin in 0usize..200,
            end in prop_oneof![0usize..200, Just(usize::MAX)],
        ) {
            let shared = SharedBytes::from_slice(&src);
            let part = shared.slice(begin..end);
            let expected = src.get(begin.min(end).min(src.len())..end.min(src.len())).unwrap_or_default();
            let expected = if begin > end { &[] } else { expected };
            let mut dst = vec![0; 200];
            let copied = part.copy_to(&mut dst);
            prop_assert_eq!(&dst[..copied], expected);
        }
    }

    #[test]
    fn nothing_copies_nothing() {
        let mut dst = [7; 4];
        assert!(SharedBytes::empty().is_empty());
        assert_eq!(SharedBytes::empty().copy_to_and_sum(&mut dst), (0, 0));
        assert_eq!(dst, [7; 4]);
    }
}
