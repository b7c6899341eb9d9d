//! Whether a program's memory can be read or written, found out without touching it.
//!
//! The kernel finds every bad address when it copies, and fails with EFAULT. A library would end its
//! program instead. So pages are asked about before they are first used, by a question to the kernel that
//! copies nothing; a table remembers the answers. A page in the table costs one load. What the program
//! unmaps or protects makes the table void; only what the C library unmaps inside itself is not seen.

use std::io::IoSlice;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is to be done with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Its bytes are read.
    Read,
    /// Its bytes are written.
    Write,
}

/// Whether the page of an address can be used.
pub type Question = fn(address: usize, access: Access) -> bool;

/// The least page size; larger pages are asked about more than once.
const PAGE: usize = 4096;
/// Pages that are remembered: those of 32 MiB, each by its number's lowest bits.
const SLOTS: usize = 8192;
/// Bits of a generation.
const GENERATION_BITS: u32 = 22;

static QUESTION: OnceLock<Question> = OnceLock::new();
/// Each: page, generation, and in the lowest bit whether it can be written.
static KNOWN: [AtomicU64; SLOTS] = [const { AtomicU64::new(0) }; SLOTS];
/// Answers of earlier generations are void.
static GENERATION: AtomicU64 = AtomicU64::new(1);

/// From now on memory is asked about, by this question. Programs that use the crate from Rust pass
/// nothing but memory of their own, and ask none.
pub fn ask_by(question: Question) {
    let _ = QUESTION.set(question);
}

/// The program has unmapped or protected memory: what is known is void.
pub fn forget() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// How many of `len` bytes at an address can be used, from the first on.
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

/// What is noted of a page that can be read.
#[inline]
fn note(page: usize) -> u64 {
    let generation = GENERATION.load(Ordering::Relaxed) & ((1 << GENERATION_BITS) - 1);
    (page as u64) << (GENERATION_BITS + 1) | generation << 1
}

#[inline]
fn is_known(page: usize, access: Access) -> bool {
    let known = KNOWN.get(page % SLOTS).map_or(0, |slot| slot.load(Ordering::Relaxed));
    let note = note(page);
    known == note | 1 || access == Access::Read && known == note
}

#[cold]
#[inline(never)]
fn ask(question: Question, page: usize, access: Access) -> bool {
    let note = note(page);
    let can = question(page * PAGE, access);
    if can && let Some(slot) = KNOWN.get(page % SLOTS) {
        slot.store(note | u64::from(access == Access::Write), Ordering::Relaxed);
    }
    can
}
