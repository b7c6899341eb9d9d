//! The object of each descriptor number: an array of slots in chunks allocated when first needed.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use super::Errno;
use super::epoll::Epoll;
use super::heritage::Inherited;
use super::socket::Socket;

const CHUNK_SLOTS: usize = 1024;
const CHUNKS: usize = 1024;

/// The object of a number.
#[derive(Debug)]
pub(super) enum Entry {
    /// A socket that is or may become the engine's.
    Socket(Arc<Socket>),
    /// An epoll set.
    Epoll(Arc<Epoll>),
    /// A descriptor of the layer.
    Internal,
    /// A connection inherited from the parent process.
    Foreign(Inherited),
}

impl Entry {
    /// A second reference for a duplicate.
    pub fn share(&self) -> Self {
        match self {
            Entry::Socket(socket) => Entry::Socket(socket.clone()),
            Entry::Epoll(epoll) => Entry::Epoll(epoll.clone()),
            Entry::Internal => Entry::Internal,
            Entry::Foreign(inherited) => Entry::Foreign(inherited.clone()),
        }
    }
}

impl Entry {
    /// Whether it is a connection that can only be used as a kernel socket, and has none yet: one
    /// that was inherited, or one that an heir uses.
    pub fn is_elsewhere(&self) -> bool {
        match self {
            Self::Foreign(inherited) => inherited.heirloom.is_some(),
            Self::Socket(socket) => {
                socket.connection().is_some_and(|connection| connection.endpoint.is_moved())
            }
            Self::Epoll(_) | Self::Internal => false,
        }
    }
}

const EMPTY: u8 = 0;
const TRACKED: u8 = 1;
const INTERNAL: u8 = 2;

#[derive(Default)]
struct Slot {
    /// Mirrors the entry, so that the common check costs one load.
    kind: AtomicU8,
    /// When the entry was last compared with the kernel, in milliseconds of a coarse clock.
    verified_ms: AtomicU32,
    /// Counts entries, so that a result for one cannot apply to the next.
    generation: AtomicU32,
    /// The identity of the number's object in the kernel; 0 if unknown.
    identity: AtomicU64,
    /// Whether the entry is already in the census, if the socket does not know.
    counted: AtomicBool,
    entry: RwLock<Option<Entry>>,
}

/// An entry at the time when its number was compared with the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Suspect {
    generation: u32,
    /// The identity when the entry was made.
    pub identity: u64,
}

/// How long a comparison is valid, milliseconds.
const VERDICT_MS: u32 = 10;

/// A number beyond the table.
#[derive(Debug)]
pub(super) struct Beyond;

/// The array.
pub(super) struct Table {
    chunks: Box<[OnceLock<Box<[Slot]>>]>,
    /// When a thread last returned from sleeping in the layer; earlier comparisons are invalid.
    slept_ms: AtomicU32,
}

impl Table {
    /// An empty table.
    pub fn new() -> Self {
        Self { chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect(), slept_ms: AtomicU32::new(0) }
    }

    #[inline]
    fn slot(&self, fd: RawFd) -> Option<&Slot> {
        let index = fd as usize;
        self.chunks.get(index / CHUNK_SLOTS)?.get()?.get(index % CHUNK_SLOTS)
    }

    /// Whether a number has an entry. Negative numbers are beyond the table.
    #[inline]
    pub fn tracks(&self, fd: RawFd) -> bool {
        self.slot(fd).is_some_and(|slot| slot.kind.load(Ordering::Acquire) != EMPTY)
    }

    /// Whether a number belongs to the layer.
    pub fn is_internal(&self, fd: RawFd) -> bool {
        self.slot(fd).is_some_and(|slot| slot.kind.load(Ordering::Acquire) == INTERNAL)
    }

    /// Calls `look` with an entry while it is locked.
    #[inline]
    pub fn with<T>(&self, fd: RawFd, look: impl FnOnce(&Entry) -> T) -> Option<T> {
        let slot = self.slot(fd)?;
        if slot.kind.load(Ordering::Acquire) == EMPTY {
            return None;
        }
        let entry = slot.entry.read().unwrap_or_else(PoisonError::into_inner);
        entry.as_ref().map(look)
    }

    /// A thread has slept until now: other threads had time to close numbers.
    pub fn on_sleep(&self, now_ms: u32) {
        self.slept_ms.store(now_ms, Ordering::Relaxed);
    }

    /// The entry of a number if it must be compared with the kernel: it has not been for 10 ms, or
    /// since a thread slept. It counts as compared from here on.
    #[inline]
    pub fn suspect(&self, fd: RawFd, now_ms: u32) -> Option<Suspect> {
        let slot = self.slot(fd)?;
        let verified_ms = slot.verified_ms.load(Ordering::Relaxed);
        let age = now_ms.wrapping_sub(verified_ms);
        // A sleep that ended later is closer to now, whichever way the clock wraps.
        let since_sleep = now_ms.wrapping_sub(self.slept_ms.load(Ordering::Relaxed));
        if age < VERDICT_MS && age <= since_sleep {
            return None;
        }
        slot.verified_ms.store(now_ms, Ordering::Relaxed);
        let generation = slot.generation.load(Ordering::Acquire);
        let identity = slot.identity.load(Ordering::Acquire);
        (identity != 0).then_some(Suspect { generation, identity })
    }

    /// Marks the entry of a number as compared.
    pub fn confirm(&self, fd: RawFd, now_ms: u32) {
        if let Some(slot) = self.slot(fd) {
            slot.verified_ms.store(now_ms, Ordering::Relaxed);
        }
    }

    /// The identity of a number when its entry was made; 0 if unknown.
    pub fn identity(&self, fd: RawFd) -> u64 {
        self.slot(fd).map_or(0, |slot| slot.identity.load(Ordering::Acquire))
    }

    /// Whether the entry of a number was not counted yet. It counts as counted from here on.
    pub fn is_first_count(&self, fd: RawFd) -> bool {
        self.slot(fd).is_some_and(|slot| !slot.counted.swap(true, Ordering::Relaxed))
    }

    /// Sets the identity of a number.
    pub fn identify(&self, fd: RawFd, identity: u64) {
        if let Some(slot) = self.slot(fd) {
            slot.identity.store(identity, Ordering::Release);
        }
    }

    /// Stores the entry of a number that refers to `identity`, and returns the previous one.
    pub fn put(&self, fd: RawFd, entry: Entry, identity: u64) -> Result<Option<Entry>, Beyond> {
        let index = usize::try_from(fd).map_err(|_| Beyond)?;
        let chunk = self.chunks.get(index / CHUNK_SLOTS).ok_or(Beyond)?;
        let chunk = chunk.get_or_init(|| (0..CHUNK_SLOTS).map(|_| Slot::default()).collect());
        let slot = chunk.get(index % CHUNK_SLOTS).ok_or(Beyond)?;
        let kind = if matches!(entry, Entry::Internal) { INTERNAL } else { TRACKED };
        let mut place = slot.entry.write().unwrap_or_else(PoisonError::into_inner);
        let before = place.replace(entry);
        slot.generation.fetch_add(1, Ordering::Release);
        slot.identity.store(identity, Ordering::Release);
        slot.counted.store(false, Ordering::Relaxed);
        slot.kind.store(kind, Ordering::Release);
        Ok(before)
    }

    /// Replaces an entry that satisfies a condition, and returns it; `with` returns the new entry
    /// and the number's new identity, and is called while the slot is locked.
    pub fn exchange(
        &self,
        fd: RawFd,
        is_it: impl Fn(&Entry) -> bool,
        with: impl FnOnce() -> Result<(Entry, u64), Errno>,
    ) -> Result<Option<Entry>, Errno> {
        let Some(slot) = self.slot(fd) else { return Ok(None) };
        let mut place = slot.entry.write().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = place.as_mut().filter(|entry| is_it(entry)) else { return Ok(None) };
        let (fresh, identity) = with()?;
        slot.generation.fetch_add(1, Ordering::Release);
        slot.identity.store(identity, Ordering::Release);
        Ok(Some(std::mem::replace(entry, fresh)))
    }

    /// Empties a slot.
    pub fn take(&self, fd: RawFd) -> Option<Entry> {
        let slot = self.slot(fd)?;
        let mut place = slot.entry.write().unwrap_or_else(PoisonError::into_inner);
        slot.kind.store(EMPTY, Ordering::Release);
        place.take()
    }

    /// Empties a slot, if its entry is still the one that was compared.
    pub fn take_suspect(&self, fd: RawFd, suspect: Suspect) -> Option<Entry> {
        let slot = self.slot(fd)?;
        let mut place = slot.entry.write().unwrap_or_else(PoisonError::into_inner);
        let generation = slot.generation.load(Ordering::Acquire);
        let identity = slot.identity.load(Ordering::Acquire);
        if (Suspect { generation, identity }) != suspect {
            return None;
        }
        slot.kind.store(EMPTY, Ordering::Release);
        place.take()
    }

    /// Numbers in a range with an entry, in order.
    pub fn occupied(&self, first: u32, last: u32) -> Vec<RawFd> {
        let mut found = Vec::new();
        self.each_occupied(|fd, _| {
            if (first..=last).contains(&(fd as u32)) {
                found.push(fd);
            }
        });
        found
    }

    /// In a forked child, which has no other thread: calls `each` with every entry whose lock was
    /// free at the fork (`None` for the others), by number.
    pub fn inherited(&self, mut each: impl FnMut(RawFd, Option<&Entry>)) {
        self.each_occupied(|fd, slot| match slot.entry.try_read() {
            Ok(entry) => each(fd, entry.as_ref()),
            Err(_) => each(fd, None),
        });
    }

    /// Calls `each` with the layer's numbers. Allocates nothing and takes no lock.
    pub fn internal(&self, mut each: impl FnMut(RawFd)) {
        self.each_occupied(|fd, slot| {
            if slot.kind.load(Ordering::Acquire) == INTERNAL {
                each(fd);
            }
        });
    }

    fn each_occupied(&self, mut each: impl FnMut(RawFd, &Slot)) {
        for (at, chunk) in self.chunks.iter().enumerate() {
            let Some(chunk) = chunk.get() else { continue };
            for (within, slot) in chunk.iter().enumerate() {
                if slot.kind.load(Ordering::Acquire) != EMPTY {
                    each((at * CHUNK_SLOTS + within) as RawFd, slot);
                }
            }
        }
    }
}
