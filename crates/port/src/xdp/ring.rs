//! The rings that an AF_XDP socket shares with the kernel (Linux, `Documentation/networking/
//! af_xdp.rst`): one side writes entries and moves the producer, the other reads them and moves
//! the consumer; both count on without wrapping at the ring's size.

use std::io;
use std::marker::PhantomData;
use std::mem;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Offsets of the parts of a ring in its mapping.
pub(super) type Offsets = libc::xdp_ring_offset;

/// The kernel needs a system call before it polls the ring again.
const NEED_WAKEUP: u32 = 1;

/// A ring of `T`, mapped.
#[derive(Debug)]
pub(super) struct Ring<T> {
    memory: NonNull<u8>,
    bytes: usize,
    offsets: Offsets,
    /// Entries less one; the number of entries is a power of two.
    mask: u32,
    /// Our side's position, published by [`Ring::publish`].
    own: u32,
    entries: PhantomData<T>,
}

// SAFETY: the mapping belongs to this value alone; the kernel does not care for threads.
unsafe impl<T> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// Maps the ring of `count` entries that `page` names.
    pub(super) fn map(
        socket: impl AsFd,
        page: u64,
        offsets: &Offsets,
        count: u32,
    ) -> io::Result<Self> {
        assert!(count.is_power_of_two(), "the kernel takes powers of two");
        let bytes = offsets.desc as usize + count as usize * mem::size_of::<T>();
        // SAFETY: a new mapping at an address that the kernel chooses.
        let memory = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                socket,
                page,
            )
        }?;
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut ring = Self {
            memory,
            bytes,
            offsets: *offsets,
            mask: count - 1,
            own: 0,
            entries: PhantomData,
        };
        // The positions of the two sides are equal in a new ring.
        ring.own = ring.producer().load(Ordering::Acquire);
        Ok(ring)
    }

    fn word(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the kernel's offsets lie in the mapping, aligned; the word is changed by atomic
        // operations only, here and in the kernel.
        unsafe { AtomicU32::from_ptr(self.memory.as_ptr().add(offset as usize).cast()) }
    }

    fn producer(&self) -> &AtomicU32 {
        self.word(self.offsets.producer)
    }

    fn consumer(&self) -> &AtomicU32 {
        self.word(self.offsets.consumer)
    }

    /// Whether the kernel needs a system call.
    pub(super) fn wants_wakeup(&self) -> bool {
        self.word(self.offsets.flags).load(Ordering::Acquire) & NEED_WAKEUP != 0
    }

    fn slot(&self, position: u32) -> *mut T {
        let index = (position & self.mask) as usize;
        // SAFETY: the masked index lies within the entries, which lie within the mapping.
        unsafe { self.memory.as_ptr().add(self.offsets.desc as usize).cast::<T>().add(index) }
    }
}

/// For rings that we fill.
impl<T: Copy> Ring<T> {
    /// Free entries; unpublished ones count as taken.
    pub(super) fn room(&self) -> u32 {
        let taken = self.own.wrapping_sub(self.consumer().load(Ordering::Acquire));
        (self.mask + 1).saturating_sub(taken)
    }

    /// Writes an entry; false if there is no room.
    pub(super) fn push(&mut self, entry: T) -> bool {
        if self.room() == 0 {
            return false;
        }
        // SAFETY: the slot is ours until it is published; the kernel has consumed what it held.
        unsafe { self.slot(self.own).write(entry) };
        self.own = self.own.wrapping_add(1);
        true
    }

    /// Publishes the pushed entries to the kernel.
    pub(super) fn publish(&mut self) {
        // Pairs with the kernel's acquire of the producer.
        self.producer().store(self.own, Ordering::Release);
    }

    /// Published entries that the kernel has not consumed.
    pub(super) fn waiting(&self) -> u32 {
        let published = self.producer().load(Ordering::Relaxed);
        published.wrapping_sub(self.consumer().load(Ordering::Acquire))
    }
}

/// For rings that the kernel fills.
impl<T: Copy> Ring<T> {
    /// Starts reading at the consumer's position.
    pub(super) fn reading(mut self) -> Self {
        self.own = self.consumer().load(Ordering::Acquire);
        self
    }

    /// Number of entries to read.
    pub(super) fn filled(&self) -> u32 {
        // Pairs with the kernel's release of the producer.
        self.producer().load(Ordering::Acquire).wrapping_sub(self.own).min(self.mask + 1)
    }

    /// The entry this many positions after the next one; it must be filled.
    pub(super) fn peek(&self, ahead: u32) -> T {
        // SAFETY: the slot lies in the ring; filled, it is the kernel's no more.
        unsafe { self.slot(self.own.wrapping_add(ahead)).read() }
    }

    /// Advances by this many entries; [`Ring::give_back`] publishes that.
    pub(super) fn advance(&mut self, count: u32) {
        self.own = self.own.wrapping_add(count);
    }

    /// Lets the kernel reuse the entries that were read.
    pub(super) fn give_back(&mut self) {
        self.consumer().store(self.own, Ordering::Release);
    }

    /// The same, once there are this many.
    pub(super) fn give_back_batch(&mut self, least: u32) {
        if self.own.wrapping_sub(self.consumer().load(Ordering::Relaxed)) >= least {
            self.give_back();
        }
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `map` with this length, and no reference outlives us.
        // Failing would leave it mapped, which harms nobody.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.bytes) };
    }
}
