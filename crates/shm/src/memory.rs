//! Registered memory: what a program sends from and receives to without a copy of its library's. The
//! engine makes it, so that it can neither shrink nor have holes, and both sides reach it by copies
//! alone. A place in it is a number of 64 bits, so that a [`Span`] can name bytes of a session's own
//! region and of registered memory alike.

use std::os::fd::{AsFd, OwnedFd};

use arch::SharedBytes;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;

use crate::descriptor::{OFFSET_BITS, Span};
use crate::message::{ENTRY_BYTES, Entry};
use crate::region::RegionError;
use crate::region::memory::Memory;
use crate::sync::Ordering;

/// Registered memories of a session; their numbers are 1 to this.
pub const REGISTERED_MAX: u16 = 64;
/// Longest registered memory, bytes.
pub const REGISTERED_BYTES_MAX: u64 = 256 << 20;
/// Most pieces of a message's list.
pub const PIECES_MAX: usize = 1024;
/// Bytes of an encoded piece.
pub const PIECE_BYTES: usize = 16;

const PAGE: u64 = 4096;
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The place of a byte: the number of its memory, 0 for the session's own region, above 48 bits of
/// offset.
pub fn place(number: u16, offset: u64) -> u64 {
    u64::from(number) << OFFSET_BITS | offset & ((1 << OFFSET_BITS) - 1)
}

/// The memory's number and the offset of a place.
pub fn split(place: u64) -> (u16, u64) {
    ((place >> OFFSET_BITS) as u16, place & ((1 << OFFSET_BITS) - 1))
}

/// A piece as it lies in a message's list.
pub fn encode_piece(span: Span) -> [u8; PIECE_BYTES] {
    let mut bytes = [0; PIECE_BYTES];
    bytes[..8].copy_from_slice(&span.offset.to_le_bytes());
    bytes[8..12].copy_from_slice(&span.len.to_le_bytes());
    bytes
}

/// The reverse of [`encode_piece`]; any bytes make a piece.
pub fn decode_piece(bytes: &[u8; PIECE_BYTES]) -> Span {
    let (mut offset, mut len) = ([0; 8], [0; 4]);
    offset.copy_from_slice(&bytes[..8]);
    len.copy_from_slice(&bytes[8..12]);
    Span { offset: u64::from_le_bytes(offset), len: u32::from_le_bytes(len) }
}

/// A mapped registered memory.
pub struct Registered {
    memory: Memory,
    bytes: u64,
    file: Option<OwnedFd>,
}

/// The size that memory of `bytes` has: whole pages.
pub fn rounded(bytes: u64) -> u64 {
    bytes.max(1).next_multiple_of(PAGE)
}

impl Registered {
    /// Makes memory of `bytes`, rounded up to pages, all of which the kernel gives at once.
    ///
    /// # Errors
    /// What the kernel refuses; memory that it lacks is found here and not at the first use.
    pub fn create(bytes: u64) -> Result<Self, RegionError> {
        let system = |what| move |errno| RegionError::System(what, errno);
        let bytes = rounded(bytes);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file =
            rustix::fs::memfd_create("outboard-memory", flags).map_err(system("memfd_create"))?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes)
            .map_err(system("fallocate"))?;
        rustix::fs::fcntl_add_seals(&file, SEALS).map_err(system("sealing"))?;
        let memory = Memory::map_bytes(file.as_fd(), bytes, true).map_err(system("mmap"))?;
        Ok(Self { memory, bytes, file: Some(file) })
    }

    /// The same in private memory, for simulation and tests in one process.
    ///
    /// # Errors
    /// The errno of mmap.
    pub fn private(bytes: u64) -> Result<Self, Errno> {
        let bytes = rounded(bytes);
        Ok(Self { memory: Memory::private_bytes(bytes)?, bytes, file: None })
    }

    /// Maps memory that was granted, once its size and seals are found to be right. Forked children do not
    /// inherit it: in them it takes and gives no bytes, and has no lines.
    ///
    /// # Errors
    /// Size or seals are wrong, or the errno of a system call.
    pub fn open(file: OwnedFd, bytes: u64) -> Result<Self, RegionError> {
        let system = |what| move |errno| RegionError::System(what, errno);
        let seals = rustix::fs::fcntl_get_seals(&file).map_err(system("reading the seals"))?;
        if !seals.contains(SEALS) {
            return Err(RegionError::NotSealed);
        }
        let actual = rustix::fs::fstat(&file).map_err(system("fstat"))?.st_size as u64;
        if actual != bytes {
            return Err(RegionError::WrongSize { actual, claimed: bytes });
        }
        let memory = Memory::map_bytes(file.as_fd(), bytes, true).map_err(system("mmap"))?;
        let memory = memory.keep_from_children().map_err(system("madvise"))?;
        Ok(Self { memory, bytes, file: None })
    }

    /// The memfd, to be shown to the other side; none of private memory, or a second time.
    pub fn take_file(&mut self) -> Option<OwnedFd> {
        self.file.take()
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether `len` bytes from `offset` on lie in it.
    pub fn contains(&self, offset: u64, len: u64) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.bytes)
    }

    /// Copies `bytes` to `offset`, as many as fit; returns how many.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> usize {
        let len = self.room(offset, bytes.len());
        if len > 0 {
            self.memory.write(offset as usize, &bytes[..len]);
        }
        len
    }

    /// Copies what lies at `offset` to `bytes`, as many as there are; returns how many.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> usize {
        let len = self.room(offset, bytes.len());
        if len > 0 {
            self.memory.read(offset as usize, &mut bytes[..len]);
        }
        len
    }

    /// Copies shared bytes to `offset`, as many as fit; returns how many. They may be bytes of this
    /// memory.
    pub fn write_shared(&self, offset: u64, bytes: SharedBytes<'_>) -> usize {
        let len = self.room(offset, bytes.len());
        if len > 0 {
            self.memory.write_shared(offset as usize, bytes.slice(0..len));
        }
        len
    }

    /// The bytes at `offset`, to be copied or handed to the kernel; empty beyond the end.
    pub fn shared(&self, offset: u64, len: u32) -> SharedBytes<'_> {
        match self.memory.is_here() && self.contains(offset, u64::from(len)) {
            true => self.memory.shared(offset as usize, len as usize),
            false => SharedBytes::from_slice(&[]),
        }
    }

    /// Whether an entry can be told at `offset`: an aligned line of the memory.
    pub fn has_line(&self, offset: u64) -> bool {
        offset.is_multiple_of(ENTRY_BYTES as u64)
            && self.contains(offset, ENTRY_BYTES as u64)
            && self.memory.is_here()
    }

    /// Empties the line at `offset`, for [`Self::tell`] to fill it.
    pub fn clear_line(&self, offset: u64) {
        if self.has_line(offset) {
            self.memory.word(offset as usize).store(0, Ordering::Release);
        }
    }

    /// Writes an entry to the line at `offset`, its first word last: whoever sees that sees all.
    pub fn tell(&self, offset: u64, entry: &Entry) {
        if !self.has_line(offset) {
            return;
        }
        let bytes = entry.encode();
        let (first, rest) = bytes.split_at(8);
        self.memory.write(offset as usize + 8, rest);
        let mut word = [0; 8];
        word.copy_from_slice(first);
        // Pairs with the Acquire in `told`.
        self.memory.word(offset as usize).store(u64::from_le_bytes(word), Ordering::Release);
    }

    /// Whether the line at `offset` has been filled since it was cleared.
    pub fn is_told(&self, offset: u64) -> bool {
        self.has_line(offset)
            && self.memory.word(offset as usize).load(Ordering::Acquire).to_le_bytes()[0] != 0
    }

    /// The entry in the line at `offset`, once it is there.
    pub fn told(&self, offset: u64) -> Option<Entry> {
        if !self.has_line(offset) {
            return None;
        }
        // Loaded once: the rest is as of this value.
        let first = self.memory.word(offset as usize).load(Ordering::Acquire).to_le_bytes();
        if first[0] == 0 {
            return None;
        }
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..8].copy_from_slice(&first);
        self.memory.read(offset as usize + 8, &mut bytes[8..]);
        Some(Entry::decode(&bytes))
    }

    fn room(&self, offset: u64, len: usize) -> usize {
        if !self.memory.is_here() {
            return 0;
        }
        let left = self.bytes.saturating_sub(offset);
        len.min(usize::try_from(left).unwrap_or(usize::MAX))
    }
}

impl std::fmt::Debug for Registered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registered").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::CompletionKind;

    #[test]
    fn both_sides_see_the_same_bytes_of_memory_that_cannot_change_its_size() {
        let mut ours = Registered::create(5000).unwrap();
        assert_eq!(ours.bytes(), 8192);
        let file = ours.take_file().unwrap();
        assert!(rustix::fs::ftruncate(&file, 4096).is_err());
        assert!(rustix::fs::ftruncate(&file, 1 << 20).is_err());
        let copy = rustix::io::fcntl_dupfd_cloexec(&file, 0).unwrap();
        let wrong = Registered::open(copy, 4096);
        assert!(matches!(wrong, Err(RegionError::WrongSize { actual: 8192, claimed: 4096 })));
        let theirs = Registered::open(file, 8192).unwrap();
        assert_eq!(theirs.write(8190, b"abc"), 2);
        let mut bytes = [0; 3];
        assert_eq!(ours.read(8190, &mut bytes), 2);
        assert_eq!(&bytes, b"ab\0");
        assert_eq!((ours.read(9000, &mut bytes), ours.write(u64::MAX, b"x")), (0, 0));
        assert!(ours.shared(8190, 3).is_empty());
        let mut moved = [0; 2];
        theirs.write_shared(8189, ours.shared(8190, 2));
        assert_eq!((ours.read(8189, &mut moved), &moved), (2, b"ab"));
    }

    /// A child ended with SIGSEGV.
    #[test]
    fn memory_that_a_child_does_not_inherit_is_empty_there() {
        let mut made = Registered::create(4096).unwrap();
        let granted = Registered::open(made.take_file().unwrap(), 4096).unwrap();
        // SAFETY: the child neither allocates nor locks, and ends without running anything of the parent's.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut bytes = [0; 8];
            let is_empty = granted.write(0, b"x") == 0
                && granted.read(0, &mut bytes) == 0
                && granted.shared(0, 8).is_empty()
                && !granted.is_told(0)
                && granted.told(0).is_none();
            granted.clear_line(0);
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!is_empty)) };
        }
        assert!(child > 0, "fork failed");
        let mut status = 0;
        // SAFETY: waits for our own child.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        assert_eq!(granted.write(0, b"x"), 1);
    }

    #[test]
    fn foreign_memory_is_refused() {
        let foreign = rustix::fs::memfd_create("foreign", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&foreign, 4096).unwrap();
        assert!(matches!(Registered::open(foreign, 4096), Err(RegionError::NotSealed)));
    }

    #[test]
    fn a_line_tells_an_entry_once_and_only_where_there_is_one() {
        let memory = Registered::private(4096).unwrap();
        let mut entry = Entry::new(CompletionKind::Sent as u8);
        entry.tag = 7;
        assert_eq!(memory.told(64), None);
        memory.tell(64, &entry);
        assert_eq!(memory.told(64), Some(entry));
        memory.clear_line(64);
        assert!(!memory.is_told(64));
        for offset in [8, 4096, 4096 - 32, u64::MAX] {
            memory.tell(offset, &entry);
            assert_eq!(memory.told(offset), None);
        }
    }

    #[test]
    fn pieces_and_places_survive_their_encoding() {
        let span = Span { offset: place(64, (1 << OFFSET_BITS) - 1), len: u32::MAX };
        assert_eq!(decode_piece(&encode_piece(span)), span);
        assert_eq!(split(span.offset), (64, (1 << OFFSET_BITS) - 1));
        assert_eq!(split(place(3, 1 << OFFSET_BITS)), (3, 0));
    }
}
