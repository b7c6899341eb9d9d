//! The statistics page: counters by name in a sealed memfd. The engine writes it through a
//! mapping of its own; whoever else gets the memfd can only map it for reading, so that looking
//! costs the engine nothing.
//!
//! Layout: magic, version, count and bytes of names (a word each); the names, each followed by a
//! newline, padded to a word; then a word for each counter.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::sync::{AtomicU64, Ordering};

/// First word of a page, `outstats` in ASCII.
const MAGIC: u64 = u64::from_le_bytes(*b"outstats");
/// Version of the layout.
const VERSION: u64 = 1;
/// Bytes before the names.
const HEADER_BYTES: usize = 32;
/// Largest page that is read.
const PAGE_BYTES_MAX: u64 = 1 << 20;

/// A mapped page; unmapped when dropped.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is only reached as atomics and stays where it is until dropped.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(file: BorrowedFd<'_>, len: usize, access: ProtFlags) -> Result<Self, Errno> {
        // SAFETY: a new mapping at an address of the kernel's choice; nothing else refers to it.
        // Both users have seen that the file is sealed against shrinking.
        let start = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED, file, 0)?
        };
        Ok(Self { start: NonNull::new(start.cast()).ok_or(Errno::FAULT)?, len })
    }

    fn word(&self, index: usize) -> Option<&AtomicU64> {
        let offset = index.checked_mul(8)?;
        if offset.checked_add(8)? > self.len {
            return None;
        }
        // SAFETY: in bounds, and aligned as the mapping starts at a page. A mapping for reading
        // is only ever loaded from.
        Some(unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) })
    }

    fn load(&self, index: usize) -> u64 {
        self.word(index).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    fn store(&self, index: usize, value: u64) {
        if let Some(word) = self.word(index) {
            word.store(value, Ordering::Relaxed);
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and no reference into it outlives `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

/// The engine's side.
pub struct StatsPage {
    mapping: Mapping,
    file: OwnedFd,
    values: usize,
    count: usize,
}

impl StatsPage {
    /// Makes a page for counters of these names.
    ///
    /// # Errors
    /// With the errno of memfd_create, ftruncate, mmap or fcntl.
    pub fn create(names: &[String]) -> Result<Self, Errno> {
        let mut text =
            names.iter().fold(String::new(), |text, name| text + name + "\n").into_bytes();
        let name_bytes = text.len();
        text.resize(name_bytes.next_multiple_of(8), 0);
        let values = (HEADER_BYTES + text.len()) / 8;
        let len = (values + names.len()) * 8;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("outboard-stats", flags)?;
        rustix::fs::ftruncate(&file, len as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        let mapping = Mapping::new(file.as_fd(), len, ProtFlags::READ | ProtFlags::WRITE)?;
        // From here on nobody can map it for writing any more.
        rustix::fs::fcntl_add_seals(&file, SealFlags::FUTURE_WRITE | SealFlags::SEAL)?;
        let head = [MAGIC, VERSION, names.len() as u64, name_bytes as u64];
        let words = text
            .chunks_exact(8)
            .map(|chunk| chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
        for (index, word) in head.into_iter().chain(words).enumerate() {
            mapping.store(index, word);
        }
        Ok(Self { mapping, file, values, count: names.len() })
    }

    /// Sets the counters, in the order of their names.
    pub fn publish(&self, values: impl Iterator<Item = u64>) {
        for (index, value) in values.take(self.count).enumerate() {
            self.mapping.store(self.values + index, value);
        }
    }

    /// The memfd, to be given to observers.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// An observer's side.
pub struct StatsReader {
    mapping: Mapping,
    names: Vec<String>,
    values: usize,
}

impl StatsReader {
    /// Maps a page that an engine gave.
    ///
    /// # Errors
    /// EINVAL for what is no page of this version.
    pub fn open(file: BorrowedFd<'_>) -> Result<Self, Errno> {
        if !rustix::fs::fcntl_get_seals(file)?.contains(SealFlags::SHRINK) {
            return Err(Errno::INVAL);
        }
        let len = u64::try_from(rustix::fs::fstat(file)?.st_size).map_err(|_| Errno::INVAL)?;
        if len < HEADER_BYTES as u64 || len > PAGE_BYTES_MAX {
            return Err(Errno::INVAL);
        }
        let mapping = Mapping::new(file, len as usize, ProtFlags::READ)?;
        if mapping.load(0) != MAGIC || mapping.load(1) != VERSION {
            return Err(Errno::INVAL);
        }
        let words = len as usize / 8;
        let bound = |value: u64| usize::try_from(value).ok().filter(|value| *value <= words * 8);
        let count = bound(mapping.load(2)).ok_or(Errno::INVAL)?;
        let name_bytes = bound(mapping.load(3)).ok_or(Errno::INVAL)?;
        let values = HEADER_BYTES / 8 + name_bytes.div_ceil(8);
        if values + count > words {
            return Err(Errno::INVAL);
        }
        let mut text: Vec<u8> = (HEADER_BYTES / 8..values)
            .flat_map(|index| mapping.load(index).to_le_bytes())
            .collect();
        text.truncate(name_bytes);
        let text = String::from_utf8(text).map_err(|_| Errno::INVAL)?;
        let names: Vec<String> = text.lines().map(str::to_owned).collect();
        if names.len() != count {
            return Err(Errno::INVAL);
        }
        Ok(Self { mapping, names, values })
    }

    /// Names and values as they stand.
    pub fn read(&self) -> Vec<(String, u64)> {
        (self.values..)
            .zip(&self.names)
            .map(|(index, name)| (name.clone(), self.mapping.load(index)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_sees_what_was_published_and_can_change_nothing() {
        let names = ["turns", "port_rx_frames{port=tap:x}"].map(str::to_owned);
        let page = StatsPage::create(&names).unwrap();
        let reader = StatsReader::open(page.file()).unwrap();
        page.publish([7, u64::MAX].into_iter());
        let [turns, frames] = names;
        assert_eq!(reader.read(), [(turns, 7), (frames, u64::MAX)]);
        let writable = ProtFlags::READ | ProtFlags::WRITE;
        assert!(Mapping::new(page.file(), 64, writable).is_err());
    }

    #[test]
    fn what_is_no_page_is_refused() {
        let file = rustix::fs::memfd_create("x", MemfdFlags::CLOEXEC).unwrap();
        assert!(StatsReader::open(file.as_fd()).is_err());
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("x", flags).unwrap();
        rustix::fs::ftruncate(&file, 4096).unwrap();
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        assert!(StatsReader::open(file.as_fd()).is_err());
    }
}
