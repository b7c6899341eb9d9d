//! An endpoint as the client sees it.

use std::sync::Arc;

use crate::Status;
use crate::descriptor::{Descriptor, DescriptorFlags, DescriptorKind, Slot, Span};
use crate::layout::endpoint;
use crate::lock::{Held, Reentered, Tag, acquire};
use crate::region::Region;
use crate::sync::{Ordering, fence};

/// An endpoint's levels, as the engine published them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levels {
    /// End of the contiguous stream, or datagrams pushed.
    pub readable: u64,
    /// Bytes of the send stream (or datagrams) done with.
    pub acked: u64,
    /// Send descriptors taken.
    pub taken: u64,
    /// Status bits; unknown ones are dropped.
    pub status: Status,
    /// Errno, 0 for none.
    pub errno: u16,
    /// Errors so far (wrapping): a new number is a new error.
    pub errors: u16,
    /// One past the urgent byte, 0 for none.
    pub urgent: u64,
    /// Connections waiting at a listener.
    pub pending: u32,
    /// Sessions attached to a listener.
    pub sharers: u32,
}

/// The client's side of an endpoint.
#[derive(Clone, Debug)]
pub struct ClientEndpoint {
    region: Arc<Region>,
    index: u32,
    base: usize,
    send_queue: usize,
    receive_queue: usize,
}

impl ClientEndpoint {
    /// The endpoint `index`, as the engine named it; `None` beyond the capacity.
    pub fn new(region: Arc<Region>, index: u32) -> Option<Self> {
        let layout = *region.layout();
        if index >= layout.geometry().endpoint_capacity {
            return None;
        }
        let base = layout.endpoint(index);
        Some(Self {
            index,
            base,
            send_queue: layout.send_queue(base),
            receive_queue: layout.receive_queue(base),
            region,
        })
    }

    /// Which endpoint.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The region this endpoint lies in.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// The status alone.
    pub fn status(&self) -> Status {
        Status::from_bits_truncate(self.look(endpoint::STATUS, Ordering::Acquire) as u32)
    }

    /// All levels. What they say of is visible afterwards.
    pub fn levels(&self) -> Levels {
        // The status first: bytes that came before the peer's close are then in `readable`.
        let status = self.look(endpoint::STATUS, Ordering::Acquire);
        let pending = self.look(endpoint::PENDING, Ordering::Acquire);
        Levels {
            readable: self.look(endpoint::READABLE, Ordering::Acquire),
            acked: self.look(endpoint::ACKED, Ordering::Acquire),
            taken: self.look(endpoint::TAKEN, Ordering::Acquire),
            status: Status::from_bits_truncate(status as u32),
            errno: (status >> 32) as u16,
            errors: (status >> 48) as u16,
            urgent: self.look(endpoint::URGENT, Ordering::Acquire),
            pending: pending as u32,
            sharers: (pending >> 32) as u32,
        }
    }

    /// Bytes of the send stream that the engine thinks worth having at hand; 0 at the beginning.
    pub fn send_room(&self) -> u64 {
        self.look(endpoint::SEND_ROOM, Ordering::Relaxed)
    }

    /// Up to where the stream has been sent, and of how many bytes it may be written ahead of
    /// that, by frames of how many; only where the status is [`Status::UNSENT_LIMITED`].
    pub fn unsent_limit(&self) -> (u64, u32, u32) {
        let limit = self.look(endpoint::UNSENT_LIMIT, Ordering::Acquire);
        (self.look(endpoint::SENT, Ordering::Acquire), limit as u32, (limit >> 32) as u32)
    }

    /// Up to where this side has read.
    pub fn consumed(&self) -> u64 {
        self.look(endpoint::CONSUMED, Ordering::Acquire)
    }

    /// Bytes of the send stream (or datagrams) pushed.
    pub fn written(&self) -> u64 {
        self.look(endpoint::WRITTEN, Ordering::Acquire)
    }

    /// Send descriptors pushed.
    pub fn pushed(&self) -> u64 {
        self.look(endpoint::PUSHED, Ordering::Acquire)
    }

    /// Flags that the client's threads share, without meaning to the engine; the upper 16 bits
    /// are taken by [`Self::report_error`].
    pub fn flags(&self) -> u64 {
        self.look(endpoint::FLAGS, Ordering::Acquire)
    }

    /// Sets some of the flags and returns those before.
    pub fn raise_flags(&self, flags: u64) -> u64 {
        self.region.word(self.base + endpoint::FLAGS).fetch_or(flags, Ordering::AcqRel)
    }

    /// Takes some of the flags back.
    pub fn lower_flags(&self, flags: u64) {
        self.region.word(self.base + endpoint::FLAGS).fetch_and(!flags, Ordering::AcqRel);
    }

    /// The urgent byte that ends at an offset, once it has come; what comes before it may be missing.
    pub fn urgent_byte(&self, offset: u64) -> Option<u8> {
        let word = self.look(endpoint::URGENT_BYTE, Ordering::Acquire);
        let byte = word as u8;
        (word == endpoint::urgent_word(offset, byte)).then_some(byte)
    }

    /// One past the urgent byte that was last read out of band.
    pub fn urgent_taken(&self) -> u64 {
        self.look(endpoint::URGENT_TAKEN, Ordering::Acquire)
    }

    /// Notes in the flags that the errors up to number `errors` have been reported; `false` when
    /// they had been already.
    pub fn report_error(&self, errors: u16) -> bool {
        let word = self.region.word(self.base + endpoint::FLAGS);
        let mut flags = word.load(Ordering::Acquire);
        loop {
            if (flags >> 48) as u16 == errors {
                return false;
            }
            let reported = flags & !(0xffff << 48) | u64::from(errors) << 48;
            match word.compare_exchange(flags, reported, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => flags = now,
            }
        }
    }

    /// The number of the last error that was reported.
    pub fn reported_errors(&self) -> u16 {
        (self.flags() >> 48) as u16
    }

    /// Asks for one event when `acked` reaches what `wish` says for the levels, until it says none or
    /// has said what they have not reached; those levels are returned. A wish must be above the
    /// `acked` it was said for. It is never taken back, since other threads may have the same.
    pub fn wish(&self, wish: impl Fn(&Levels) -> Option<u64>) -> Levels {
        let word = self.region.word(self.base + endpoint::WANTS);
        loop {
            // Looked at before the levels: a wish that was said for older levels would replace a later
            // one of another thread's, and be one that the engine has fulfilled already.
            let last = word.load(Ordering::Acquire);
            let levels = self.levels();
            let Some(wants) = wish(&levels) else { return levels };
            if word.compare_exchange(last, wants, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                continue;
            }
            // Pairs with the fence in `EngineLane::begin_events`: either the engine sees the wish, or
            // we see the level.
            fence(Ordering::SeqCst);
            let levels = self.levels();
            // What is reached by now may have been told to another thread, once and for all.
            if levels.acked < wants {
                return levels;
            }
        }
    }

    /// Takes the lock for reading from the endpoint.
    ///
    /// # Errors
    /// If this thread holds the lock already.
    pub fn lock_receive(&self, tag: Tag) -> Result<ReceiveGuard<'_>, Reentered> {
        let held = acquire(&self.region, self.base + endpoint::RECEIVE_LOCK, tag)?;
        Ok(ReceiveGuard { _held: held, endpoint: self })
    }

    /// Takes the lock for writing to the endpoint.
    ///
    /// # Errors
    /// If this thread holds the lock already.
    pub fn lock_send(&self, tag: Tag) -> Result<SendGuard<'_>, Reentered> {
        let held = acquire(&self.region, self.base + endpoint::SEND_LOCK, tag)?;
        Ok(SendGuard { _held: held, endpoint: self })
    }

    fn look(&self, offset: usize, order: Ordering) -> u64 {
        self.region.load(self.base + offset, order)
    }
}

/// An endpoint, locked for reading.
#[derive(Debug)]
pub struct ReceiveGuard<'a> {
    _held: Held<'a>,
    endpoint: &'a ClientEndpoint,
}

impl ReceiveGuard<'_> {
    /// Up to where this side has read.
    pub fn consumed(&self) -> u64 {
        self.endpoint.look(endpoint::CONSUMED, Ordering::Relaxed)
    }

    /// The engine's `urgent` when a reader last looked at it.
    pub fn urgent_seen(&self) -> u64 {
        self.endpoint.look(endpoint::URGENT_SEEN, Ordering::Relaxed)
    }

    /// Notes which urgent byte a reader has seen ahead.
    pub fn see_urgent(&mut self, urgent: u64) {
        let e = self.endpoint;
        e.region.store(e.base + endpoint::URGENT_SEEN, urgent, Ordering::Relaxed);
    }

    /// Notes which urgent byte was read out of band.
    pub fn take_urgent(&mut self, urgent: u64) {
        let e = self.endpoint;
        e.region.store(e.base + endpoint::URGENT_TAKEN, urgent, Ordering::Release);
    }

    /// What may be read up to.
    pub fn readable(&self) -> u64 {
        self.endpoint.look(endpoint::READABLE, Ordering::Acquire)
    }

    /// The stream's bytes from `offset` to the end of their page or to `readable`, whichever is
    /// first. `offset` must lie in `consumed .. readable`; `None` when the engine broke its word.
    pub fn page(&self, offset: u64, readable: u64) -> Option<Span> {
        let g = self.endpoint.region.geometry();
        let buffer_bytes = u64::from(g.buffer_bytes);
        let (page, within) = (offset / buffer_bytes, offset % buffer_bytes);
        let span = self.slot(page, DescriptorKind::Page)?.span;
        (span.len == g.buffer_bytes).then(|| {
            let len = readable.saturating_sub(offset).min(buffer_bytes - within);
            span.part(within as u32, len as u32)
        })
    }

    /// Datagram span `position`, which must lie in `consumed .. readable`, and whether the
    /// datagram goes on in the next; `None` when the engine broke its word.
    pub fn datagram(&self, position: u64) -> Option<(Span, bool)> {
        let descriptor = self.slot(position, DescriptorKind::Datagram)?;
        Some((descriptor.span, descriptor.flags.contains(DescriptorFlags::MORE)))
    }

    fn slot(&self, position: u64, kind: DescriptorKind) -> Option<Descriptor> {
        let e = self.endpoint;
        let slots = e.region.geometry().receive_slots;
        match Descriptor::take(&e.region, e.receive_queue, slots, position) {
            Slot::Full(descriptor) if descriptor.kind == kind => {
                e.region.buffer_of(descriptor.span).map(|_| descriptor)
            }
            _ => None,
        }
    }

    /// Gives back everything before `consumed`. `true`: the engine asked for a doorbell
    /// ([`Direction::Receive`](super::Direction::Receive)) by then.
    #[must_use]
    pub fn advance(&mut self, consumed: u64) -> bool {
        let e = self.endpoint;
        // Release pairs with the Acquire in `EngineEndpoint::consumed`: the copying is over.
        e.region.store(e.base + endpoint::CONSUMED, consumed, Ordering::Release);
        // Pairs with the engine's fence after `set_wanted`: either it sees `consumed`, or we see
        // what it wants.
        fence(Ordering::SeqCst);
        consumed >= e.look(endpoint::WANTED, Ordering::Relaxed)
    }
}

/// An endpoint, locked for writing.
#[derive(Debug)]
pub struct SendGuard<'a> {
    _held: Held<'a>,
    endpoint: &'a ClientEndpoint,
}

impl SendGuard<'_> {
    /// Descriptors that can be pushed now.
    pub fn room(&self) -> u32 {
        let e = self.endpoint;
        let outstanding = self.pushed().wrapping_sub(e.look(endpoint::TAKEN, Ordering::Acquire));
        u64::from(e.region.geometry().send_slots).saturating_sub(outstanding) as u32
    }

    /// Bytes of the send stream (or datagrams) pushed.
    pub fn written(&self) -> u64 {
        self.endpoint.look(endpoint::WRITTEN, Ordering::Relaxed)
    }

    fn pushed(&self) -> u64 {
        self.endpoint.look(endpoint::PUSHED, Ordering::Relaxed)
    }

    /// Pushes a descriptor over a span that has been filled; the caller has seen that there is
    /// [room](Self::room). The doorbell is the caller's to ring, once per series.
    pub fn push(&mut self, kind: DescriptorKind, flags: DescriptorFlags, span: Span) {
        let e = self.endpoint;
        let position = self.pushed();
        // The position first: should this process die here, no descriptor is pushed over.
        e.region.store(e.base + endpoint::PUSHED, position.wrapping_add(1), Ordering::Release);
        let slots = e.region.geometry().send_slots;
        Descriptor { kind, flags, span }.store(&e.region, e.send_queue, slots, position);
        let amount = match kind {
            DescriptorKind::Data => u64::from(span.len),
            DescriptorKind::Datagram => {
                u64::from(span.len != 0 && !flags.contains(DescriptorFlags::MORE))
            }
            DescriptorKind::Fin | DescriptorKind::Page => 0,
        };
        let written = self.written().wrapping_add(amount);
        e.region.store(e.base + endpoint::WRITTEN, written, Ordering::Release);
    }
}
