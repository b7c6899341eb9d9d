//! Memory of programs: [`Registered`] memory, created by the engine; and a check of whether the
//! program's own memory can be read or written, without touching it.
//!
//! The kernel detects every bad address when it copies, and fails with EFAULT. A library would
//! crash its program instead. So a page is checked before it is first used, by a system call that
//! copies nothing, and a table caches the result. A page in the table costs one load. Pages that
//! the program unmaps or protects are removed from the table; only what the C library unmaps
//! internally is missed.

mod registered;

use std::io::IoSlice;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering, fence};

pub use registered::{LINE_BYTES, Line, Piece, Registered};

/// An access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Its bytes are read.
    Read,
    /// Its bytes are written.
    Write,
}

/// Checks whether the page of an address can be used.
pub type Question = fn(address: usize, access: Access) -> bool;

/// The minimum page size; larger pages are checked more than once.
const PAGE: usize = 4096;
/// Cached pages: those of 32 MiB, direct-mapped by the lowest bits of their number.
const SLOTS: usize = 8192;
/// Bits of a generation. The rest of a word holds the page number of a 57-bit address, less the
/// bits that select the slot.
const GENERATION_BITS: u32 = 31;
const GENERATIONS: u64 = 1 << GENERATION_BITS;

static QUESTION: OnceLock<Question> = OnceLock::new();
/// Each holds the page, the generation, and in the lowest bit whether it is writable. 0 is empty.
static KNOWN: [AtomicU64; SLOTS] = [const { AtomicU64::new(0) }; SLOTS];
/// Entries of earlier generations are invalid.
static GENERATION: AtomicU64 = AtomicU64::new(1);
/// Counts unmaps and protects: a result obtained during one is not cached.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// Enables checks, with this function. Programs that use the crate from Rust pass only valid
/// memory, and need none.
pub fn ask_by(question: Question) {
    let _ = QUESTION.set(question);
}

/// The program has unmapped or protected this memory: its entries are removed.
pub fn forget(address: usize, len: usize) {
    let Some(last) = len.checked_sub(1) else { return };
    let (first, last) = (address / PAGE, address.saturating_add(last) / PAGE);
    if last - first >= SLOTS {
        return forget_all();
    }
    CHANGES.fetch_add(1, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    for slot in (first..=last).filter_map(|page| KNOWN.get(page % SLOTS)) {
        // Most pages were never checked.
        if slot.load(Ordering::Relaxed) != 0 {
            slot.store(0, Ordering::Relaxed);
        }
    }
}

/// The program has unmapped or protected memory: all entries are invalidated.
pub fn forget_all() {
    CHANGES.fetch_add(1, Ordering::SeqCst);
    let next = GENERATION.fetch_add(1, Ordering::SeqCst) + 1;
    if next.is_multiple_of(GENERATIONS) {
        // Entries of the last round would look valid again.
        KNOWN.iter().for_each(|slot| slot.store(0, Ordering::Relaxed));
    }
}

/// How many of `len` bytes at an address can be used, starting at the first.
#[inline]
pub fn usable(address: usize, len: usize, access: Access) -> usize {
    let Some(question) = QUESTION.get() else { return len };
    let Some(last) = len.checked_sub(1) else { return 0 };
    let (first, last) = (address / PAGE, address.saturating_add(last) / PAGE);
    let mut page = first;
    while page <= last {
        if !is_known(page, access) && !ask(*question, page, access) {
            return (page * PAGE).saturating_sub(address);
        }
        page += 1;
    }
    len
}

/// Whether all of `len` bytes at an address can be used.
#[inline]
pub fn is_usable(address: usize, len: usize, access: Access) -> bool {
    usable(address, len, access) == len
}

/// Whether all bytes of some buffers can be read.
pub(crate) fn are_readable(bufs: &[IoSlice<'_>]) -> bool {
    bufs.iter().all(|buf| is_usable(buf.as_ptr().addr(), buf.len(), Access::Read))
}

/// The entry of a readable page.
#[inline]
fn note(page: usize) -> u64 {
    let generation = GENERATION.load(Ordering::Relaxed) % GENERATIONS;
    ((page / SLOTS) as u64) << (GENERATION_BITS + 1) | generation << 1
}

#[inline]
fn is_known(page: usize, access: Access) -> bool {
    let known = KNOWN.get(page % SLOTS).map_or(0, |slot| slot.load(Ordering::Relaxed));
    let note = note(page);
    known == note | 1 || access == Access::Read && known == note && known != 0
}

#[cold]
#[inline(never)]
fn ask(question: Question, page: usize, access: Access) -> bool {
    let changes = CHANGES.load(Ordering::SeqCst);
    let note = note(page);
    let can = question(page * PAGE, access);
    if can && let Some(slot) = KNOWN.get(page % SLOTS) {
        slot.store(note | u64::from(access == Access::Write), Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if CHANGES.load(Ordering::SeqCst) != changes {
            slot.store(0, Ordering::Relaxed);
        }
    }
    can
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    static ASKED: AtomicUsize = AtomicUsize::new(0);

    fn counted(_: usize, _: Access) -> bool {
        ASKED.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// How many pages of some memory were asked about.
    fn asked(page: usize, count: usize) -> usize {
        let before = ASKED.load(Ordering::Relaxed);
        assert!(
            (page..page + count)
                .all(|page| { is_known(page, Access::Read) || ask(counted, page, Access::Read) })
        );
        ASKED.load(Ordering::Relaxed) - before
    }

    #[test]
    fn what_is_unmapped_is_asked_about_again_and_nothing_else() {
        const FIRST: usize = 0x7_f000_0000;
        assert_eq!(asked(FIRST, 100), 100);
        assert_eq!(asked(FIRST, 100), 0);
        forget((FIRST + 10) * PAGE + 1, PAGE);
        assert_eq!(asked(FIRST, 100), 2);
        forget(FIRST * PAGE, 0);
        assert_eq!(asked(FIRST, 100), 0);
        forget(FIRST * PAGE, (SLOTS + 1) * PAGE);
        assert_eq!(asked(FIRST, 100), 100);
        // A whole round of generations later, nothing of before is known.
        let before = GENERATION.load(Ordering::Relaxed);
        GENERATION.store(GENERATIONS - 1, Ordering::Relaxed);
        forget_all();
        GENERATION.fetch_add(before, Ordering::Relaxed);
        assert_eq!(asked(FIRST, 100), 100);
        // An answer that came while memory was unmapped is not kept.
        fn unmapping(address: usize, _: Access) -> bool {
            forget(address, PAGE);
            true
        }
        forget(FIRST * PAGE, PAGE);
        assert!(ask(unmapping, FIRST, Access::Write));
        assert_eq!(asked(FIRST, 1), 1);
    }
}
