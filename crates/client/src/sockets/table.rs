//! What each descriptor number stands for: an array of slots in chunks made when first needed.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use super::Errno;
use super::epoll::Epoll;
use super::socket::Socket;

const CHUNK_SLOTS: usize = 1024;
const CHUNKS: usize = 1024;

/// What a number stands for.
#[derive(Debug)]
pub(super) enum Entry {
    /// A socket that is or may become the engine's.
    Socket(Arc<Socket>),
    /// An epoll set.
    Epoll(Arc<Epoll>),
    /// A descriptor of the layer's own.
    Internal,
    /// A connection inherited from the parent process.
    Foreign,
}

impl Entry {
    /// A second reference for a duplicate.
    pub fn share(&self) -> Self {
        match self {
            Entry::Socket(socket) => Entry::Socket(socket.clone()),
            Entry::Epoll(epoll) => Entry::Epoll(epoll.clone()),
            Entry::Internal => Entry::Internal,
            Entry::Foreign => Entry::Foreign,
        }
    }
}

const EMPTY: u8 = 0;
const TRACKED: u8 = 1;
const INTERNAL: u8 = 2;

#[derive(Default)]
struct Slot {
    /// Mirrors the entry, so that the usual question costs one load.
    kind: AtomicU8,
    entry: RwLock<Option<Entry>>,
}

/// A number beyond the table.
#[derive(Debug)]
pub(super) struct Beyond;

/// The array.
pub(super) struct Table {
    chunks: Box<[OnceLock<Box<[Slot]>>]>,
}

impl Table {
    /// An empty table.
    pub fn new() -> Self {
        Self { chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect() }
    }

    #[inline]
    fn slot(&self, fd: RawFd) -> Option<&Slot> {
        let index = fd as usize;
        self.chunks.get(index / CHUNK_SLOTS)?.get()?.get(index % CHUNK_SLOTS)
    }

    /// Whether anything stands under a number. Negative numbers are beyond the table.
    #[inline]
    pub fn tracks(&self, fd: RawFd) -> bool {
        self.slot(fd).is_some_and(|slot| slot.kind.load(Ordering::Acquire) != EMPTY)
    }

    /// Whether a number is the layer's own.
    pub fn is_internal(&self, fd: RawFd) -> bool {
        self.slot(fd).is_some_and(|slot| slot.kind.load(Ordering::Acquire) == INTERNAL)
    }

    /// Looks at an entry while it is held in place.
    #[inline]
    pub fn with<T>(&self, fd: RawFd, look: impl FnOnce(&Entry) -> T) -> Option<T> {
        let slot = self.slot(fd)?;
        if slot.kind.load(Ordering::Acquire) == EMPTY {
            return None;
        }
        let entry = slot.entry.read().unwrap_or_else(PoisonError::into_inner);
        entry.as_ref().map(look)
    }

    /// Puts an entry in place and gives back what was there.
    pub fn put(&self, fd: RawFd, entry: Entry) -> Result<Option<Entry>, Beyond> {
        let index = usize::try_from(fd).map_err(|_| Beyond)?;
        let chunk = self.chunks.get(index / CHUNK_SLOTS).ok_or(Beyond)?;
        let chunk = chunk.get_or_init(|| (0..CHUNK_SLOTS).map(|_| Slot::default()).collect());
        let slot = chunk.get(index % CHUNK_SLOTS).ok_or(Beyond)?;
        let kind = if matches!(entry, Entry::Internal) { INTERNAL } else { TRACKED };
        let mut place = slot.entry.write().unwrap_or_else(PoisonError::into_inner);
        let before = place.replace(entry);
        slot.kind.store(kind, Ordering::Release);
        Ok(before)
    }

    /// Puts another entry in the place of one that is as it must be, which it gives back; `with` is
    /// called while nobody else can change the place.
    pub fn exchange(
        &self,
        fd: RawFd,
        is_it: impl Fn(&Entry) -> bool,
        with: impl FnOnce() -> Result<Entry, Errno>,
    ) -> Result<Option<Entry>, Errno> {
        let Some(slot) = self.slot(fd) else { return Ok(None) };
        let mut place = slot.entry.write().unwrap_or_else(PoisonError::into_inner);
        match place.as_mut().filter(|entry| is_it(entry)) {
            Some(entry) => Ok(Some(std::mem::replace(entry, with()?))),
            None => Ok(None),
        }
    }

    /// Empties a slot.
    pub fn take(&self, fd: RawFd) -> Option<Entry> {
        let slot = self.slot(fd)?;
        let mut place = slot.entry.write().unwrap_or_else(PoisonError::into_inner);
        slot.kind.store(EMPTY, Ordering::Release);
        place.take()
    }

    /// Numbers in a range under which something stands, in order.
    pub fn occupied(&self, first: u32, last: u32) -> Vec<RawFd> {
        let mut found = Vec::new();
        for (at, chunk) in self.chunks.iter().enumerate() {
            let Some(chunk) = chunk.get() else { continue };
            for (within, slot) in chunk.iter().enumerate() {
                let number = (at * CHUNK_SLOTS + within) as u32;
                if number >= first && number <= last && slot.kind.load(Ordering::Acquire) != EMPTY {
                    found.push(number as RawFd);
                }
            }
        }
        found
    }

    /// In a forked child, where no other thread lives: every entry whose lock was free at the fork
    /// (`None` for the others), by number.
    pub fn inherited(&self, mut each: impl FnMut(RawFd, Option<&Entry>)) {
        for fd in self.occupied(0, u32::MAX) {
            let Some(slot) = self.slot(fd) else { continue };
            match slot.entry.try_read() {
                Ok(entry) => each(fd, entry.as_ref()),
                Err(_) => each(fd, None),
            }
        }
    }
}
