//! The receive ring of a packet socket (PACKET_MMAP, TPACKET_V2).

use std::io;
use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use wire::vnet;

use super::set_option;
use crate::copy::{self, FRAME_BYTES_MAX};
use crate::interface::{PortCounters, RxBurst, RxFrame, RxHandle, RxMeta};
use crate::open::{OpenError, OpenErrorKind};

/// Memory is allocated by the kernel in blocks of this size.
const BLOCK_BYTES: usize = 1 << 20;
/// Slots of a block: as many as fit with the largest frame and its headers.
const BLOCK_SLOTS: usize = BLOCK_BYTES / (FRAME_BYTES_MAX + HEADERS_BYTES_MAX);
/// The slots divide the block in whole cache lines. Not a whole number of pages, so that the first
/// lines of all slots do not share a few sets of the cache.
const SLOT_BYTES: usize = BLOCK_BYTES / BLOCK_SLOTS / 64 * 64;
/// Room before a frame for the ring's header, the address and the vnet header.
const HEADERS_BYTES_MAX: usize = 256;
/// Blocks; together 30 MiB and 450 frames.
const BLOCKS: usize = 30;
const SLOTS: usize = BLOCKS * BLOCK_SLOTS;
/// A burst ends at this many bytes, so that it is still cached when copied.
const BURST_BYTES: usize = 256 * 1024;

const _: () = assert!(SLOT_BYTES >= FRAME_BYTES_MAX + HEADERS_BYTES_MAX);
const _: () = assert!(SLOT_BYTES.is_multiple_of(16) && !SLOT_BYTES.is_multiple_of(4096));

const STATUS_KERNEL: u32 = 0;
const STATUS_USER: u32 = 1 << 0;
const STATUS_LOSING: u32 = 1 << 2;
const STATUS_VLAN: u32 = 1 << 4;

/// A frame of the burst, stored in its slot.
#[derive(Clone, Copy, Debug)]
struct SlotFrame {
    start: usize,
    len: usize,
    meta: RxMeta,
}

/// The ring, mapped.
#[derive(Debug)]
pub(super) struct Ring {
    memory: NonNull<u8>,
    /// The first slot of the burst, or the slot of the next frame.
    head: usize,
    /// Slots of the burst, those of unusable frames included.
    taken: usize,
    burst: Vec<SlotFrame>,
    losing: bool,
}

// SAFETY: the mapping is owned by the ring alone and may be used from any one thread.
unsafe impl Send for Ring {}

impl Ring {
    /// Sets up and maps the socket's ring. A ring left by an earlier owner of the socket is
    /// replaced; its frames are lost.
    pub(super) fn new(fd: &OwnedFd, label: &str) -> Result<Self, OpenError> {
        let fail = |why: io::Error| match why.raw_os_error() {
            Some(libc::EBUSY) => OpenError::new(
                OpenErrorKind::InUse,
                format!(
                    "{label}: the receive ring is still mapped by another engine; start this one \
                     after that has ended"
                ),
            ),
            Some(libc::ENOMEM) => OpenError::new(
                OpenErrorKind::System,
                format!(
                    "{label}: the kernel has no {} MiB for the receive ring; free memory or raise \
                     the container's limit",
                    (BLOCKS * BLOCK_BYTES) >> 20
                ),
            ),
            _ => OpenError::system(label, "set up the receive ring", "CAP_NET_RAW", &why),
        };
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        let none = libc::tpacket_req {
            tp_block_size: 0,
            tp_block_nr: 0,
            tp_frame_size: 0,
            tp_frame_nr: 0,
        };
        let ring = libc::tpacket_req {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: BLOCKS as u32,
            tp_frame_size: SLOT_BYTES as u32,
            tp_frame_nr: SLOTS as u32,
        };
        set_option(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, &none).map_err(fail)?;
        set_option(fd, libc::SOL_PACKET, libc::PACKET_VERSION, &version).map_err(fail)?;
        set_option(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, &ring).map_err(fail)?;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                BLOCKS * BLOCK_BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd.as_fd(),
                0,
            )
        }
        .map_err(|why| fail(why.into()))?;
        let memory = NonNull::new(start.cast()).ok_or_else(|| fail(io::Error::other("no map")))?;
        let burst = Vec::with_capacity(RxBurst::CAPACITY);
        Ok(Self { memory, head: 0, taken: 0, burst, losing: false })
    }

    fn slot(&self, index: usize) -> NonNull<u8> {
        let index = index % SLOTS;
        let offset = index / BLOCK_SLOTS * BLOCK_BYTES + index % BLOCK_SLOTS * SLOT_BYTES;
        // SAFETY: the index is below SLOTS, so the whole slot lies in the mapping.
        unsafe { self.memory.add(offset) }
    }

    fn status(&self, index: usize) -> &AtomicU32 {
        // SAFETY: a slot begins with its status word, aligned, which the kernel and we alone
        // write, each by whole words; the mapping lives as long as the ring.
        unsafe { self.slot(index).cast::<AtomicU32>().as_ref() }
    }

    pub(super) fn receive(&mut self, burst: &mut RxBurst, counters: &mut PortCounters) {
        let mut bytes = 0;
        while self.burst.len() < RxBurst::CAPACITY && bytes < BURST_BYTES && self.taken < SLOTS {
            let at = self.head + self.taken;
            // Pairs with the kernel's barrier before it hands the slot over.
            let status = self.status(at).load(Ordering::Acquire);
            if status & STATUS_USER == 0 {
                break;
            }
            arch::prefetch_read(self.slot(at + 1).as_ptr());
            self.taken += 1;
            self.losing |= status & STATUS_LOSING != 0;
            let Some(place) = self.frame_at(at, status) else {
                counters.rx_errors += 1;
                continue;
            };
            bytes += place.len;
            counters.rx_frames += 1;
            counters.rx_bytes += place.len as u64;
            burst.handles.push(RxHandle(self.burst.len() as u32));
            self.burst.push(place);
        }
    }

    /// Reads a slot's header. `None` for a frame that cannot be used: truncated, with an unknown
    /// type of segmentation, or with a VLAN tag (the kernel has stripped the tag, and without it
    /// the frame would look like one of ours).
    fn frame_at(&self, at: usize, status: u32) -> Option<SlotFrame> {
        let slot = self.slot(at);
        // SAFETY: the slot is ours until released, holds a header at its start, and is aligned
        // for it.
        let header = unsafe { slot.cast::<libc::tpacket2_hdr>().read() };
        let start = usize::from(header.tp_mac);
        let len = header.tp_snaplen as usize;
        let vnet_start = start.checked_sub(vnet::LEN)?;
        let fits = start.checked_add(len).is_some_and(|end| end <= SLOT_BYTES);
        if !fits || header.tp_len != header.tp_snaplen || status & STATUS_VLAN != 0 {
            return None;
        }
        // SAFETY: the ten bytes lie in the slot, which is ours until released.
        let vnet = unsafe { slice::from_raw_parts(slot.add(vnet_start).as_ptr(), vnet::LEN) };
        let (vnet, _) = vnet::parse(vnet).ok()?;
        let start = (at % SLOTS / BLOCK_SLOTS) * BLOCK_BYTES
            + at % SLOTS % BLOCK_SLOTS * SLOT_BYTES
            + start;
        Some(SlotFrame { start, len, meta: copy::meta_of(&vnet)? })
    }

    pub(super) fn frame(&self, handle: RxHandle) -> Option<RxFrame<'_>> {
        let place = self.burst.get(handle.0 as usize)?;
        // SAFETY: checked against its slot when taken; the slot is ours until released, which
        // takes `&mut self`.
        let bytes =
            unsafe { slice::from_raw_parts(self.memory.add(place.start).as_ptr(), place.len) };
        Some(RxFrame { bytes, meta: place.meta })
    }

    /// Returns the burst's slots.
    pub(super) fn release(&mut self) {
        self.burst.clear();
        for at in self.head..self.head + self.taken {
            // Pairs with the kernel's read of the status: our reads of the frame come first.
            self.status(at).store(STATUS_KERNEL, Ordering::Release);
        }
        self.head = (self.head + self.taken) % SLOTS;
        self.taken = 0;
    }

    /// Whether frames were lost since the last call.
    pub(super) fn take_losing(&mut self) -> bool {
        mem::take(&mut self.losing)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, of this length, and nothing refers to it any more.
        // Unmapping it cannot fail.
        let _unmapped = unsafe { munmap(self.memory.as_ptr().cast(), BLOCKS * BLOCK_BYTES) };
    }
}
