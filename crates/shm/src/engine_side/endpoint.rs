//! An endpoint as the engine's worker sees it.

use std::sync::Arc;

use super::Breach;
use crate::Status;
use crate::descriptor::{
    Descriptor, DescriptorFlags, DescriptorKind, OFFSET_BITS, REGISTERED, Slot, Span,
};
use crate::layout::{SPAN_ALIGN_BYTES, endpoint};
use crate::lock;
use crate::region::Region;
use crate::sync::Ordering;

/// A send descriptor that was copied and found to lie in one buffer, or to name registered memory.
/// Whether the buffer is granted to the lane and whether the memory has such bytes, only the engine
/// knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenDescriptor {
    /// Data, Fin or Datagram.
    pub kind: DescriptorKind,
    /// Empty for `Fin` and for a descriptor that only closes its buffer.
    pub span: Span,
    /// Whether a datagram goes on in the next descriptor; of a stream, whether more is to follow.
    pub more: bool,
    /// Whether the span's last byte is urgent.
    pub urgent: bool,
    /// What follows in the stream does not share a segment with it.
    pub ends_record: bool,
    /// What is to be told of the span's last byte: bits as of a [`Stamp`](crate::request::Stamp).
    pub stamps: u8,
    /// The buffer it lies in, or [`REGISTERED`] plus the number of a registered memory; `None` for
    /// `Fin`.
    pub buffer: Option<u32>,
    /// Bytes of the buffer that this descriptor accounts for: its length rounded up to
    /// [`SPAN_ALIGN_BYTES`], or all up to the buffer's end when it is the last. When the extents
    /// taken from a buffer add up to its size and all their spans are free, so is the buffer.
    pub extent: u32,
}

/// The engine's side of an endpoint.
#[derive(Clone, Debug)]
pub struct EngineEndpoint {
    region: Arc<Region>,
    index: u32,
    taken: u64,
    pushed: u64,
    errno: u16,
    errors: u16,
    /// The last wish that was fulfilled.
    fulfilled: u64,
}

impl EngineEndpoint {
    /// The endpoint area `index`, which must be below the capacity. One at a time: a second view
    /// of the same area would start over.
    pub fn new(region: Arc<Region>, index: u32) -> Self {
        Self { index, taken: 0, pushed: 0, errno: 0, errors: 0, fulfilled: u64::MAX, region }
    }

    /// Where the area begins.
    fn base(&self) -> usize {
        self.region.layout().endpoint(self.index)
    }

    fn send_queue(&self) -> usize {
        self.region.layout().send_queue(self.base())
    }

    fn receive_queue(&self) -> usize {
        self.region.layout().receive_queue(self.base())
    }

    /// Clears the area for its next user. Only while the client does not know the endpoint:
    /// before the reply that grants it, or after the request that gave it back, once all
    /// descriptors have been taken.
    pub fn clear(&mut self) {
        let slots = self.region.geometry().send_slots;
        // What an honest client pushed before it closed and nobody took.
        for _ in 0..slots {
            match Descriptor::take(&self.region, self.send_queue(), slots, self.taken) {
                Slot::Empty => break,
                Slot::Full(_) | Slot::Malformed { .. } => self.taken = self.taken.wrapping_add(1),
            }
        }
        for position in 0..self.taken.min(u64::from(slots)) {
            Descriptor::clear(&self.region, self.send_queue(), slots, position);
        }
        self.taken = 0;
        self.pushed = 0;
        (self.errno, self.errors) = (0, 0);
        self.fulfilled = u64::MAX;
        for offset in (0..endpoint::QUEUES).step_by(8) {
            // Published by the reply's Release.
            self.put(offset, 0, Ordering::Relaxed);
        }
        self.put(endpoint::WANTED, u64::MAX, Ordering::Relaxed);
        self.put(endpoint::WANTS, u64::MAX, Ordering::Relaxed);
    }

    /// Begins an area in the middle of a stream, after [`Self::clear`]: the client has read up to
    /// `consumed` and written up to `written`, of which the peer has `acked`.
    pub fn resume(&mut self, consumed: u64, written: u64, acked: u64) {
        self.put(endpoint::CONSUMED, consumed, Ordering::Relaxed);
        self.put(endpoint::WRITTEN, written, Ordering::Relaxed);
        self.put(endpoint::ACKED, acked, Ordering::Relaxed);
        // Published by the reply's or the message's Release.
        self.put(endpoint::READABLE, consumed, Ordering::Release);
    }

    /// Takes both locks of the endpoint, so that no thread of the client is in the middle of reading or
    /// writing; `false`, with none taken, when one is. Until [`Self::let_go`], within the same turn.
    #[must_use]
    pub fn seize(&self) -> bool {
        let base = self.base();
        if !lock::seize(&self.region, base + endpoint::SEND_LOCK) {
            return false;
        }
        let has_both = lock::seize(&self.region, base + endpoint::RECEIVE_LOCK);
        if !has_both {
            lock::let_go(&self.region, base + endpoint::SEND_LOCK);
        }
        has_both
    }

    /// Lets go of both locks. A client that takes one next sees the status that was set meanwhile.
    pub fn let_go(&self) {
        lock::let_go(&self.region, self.base() + endpoint::RECEIVE_LOCK);
        lock::let_go(&self.region, self.base() + endpoint::SEND_LOCK);
    }

    /// Whether all descriptors that the client says it pushed have been taken.
    pub fn is_drained(&self) -> bool {
        self.region.load(self.base() + endpoint::PUSHED, Ordering::Acquire) == self.taken
    }

    /// Copies the next send descriptor; `None` when there is none (yet).
    ///
    /// # Errors
    /// If the client wrote an invalid descriptor, or one whose span is in no buffer.
    pub fn take_descriptor(&mut self) -> Result<Option<TakenDescriptor>, Breach> {
        let slots = self.region.geometry().send_slots;
        let descriptor = match Descriptor::take(&self.region, self.send_queue(), slots, self.taken)
        {
            Slot::Empty => return Ok(None),
            Slot::Malformed { word } => return Err(Breach::DescriptorMalformed { word }),
            Slot::Full(descriptor) => descriptor,
        };
        self.taken = self.taken.wrapping_add(1);
        let Descriptor { kind, flags, span } = descriptor;
        if kind == DescriptorKind::Fin {
            let span = Span::default();
            return Ok(Some(TakenDescriptor {
                kind,
                span,
                more: false,
                urgent: false,
                ends_record: false,
                stamps: 0,
                buffer: None,
                extent: 0,
            }));
        }
        if kind == DescriptorKind::Page {
            return Err(Breach::DescriptorMalformed { word: u64::from(kind as u8) << 32 });
        }
        let (buffer, extent) = self.holder_of(span, flags)?;
        let more = flags.contains(DescriptorFlags::MORE);
        let urgent = flags.contains(DescriptorFlags::URGENT);
        let ends_record = flags.contains(DescriptorFlags::RECORD_END);
        let stamps = (flags & DescriptorFlags::STAMPS).bits() >> DescriptorFlags::STAMP_SHIFT;
        let buffer = Some(buffer);
        Ok(Some(TakenDescriptor { kind, span, more, urgent, ends_record, stamps, buffer, extent }))
    }

    /// The buffer of a span, or the registered memory that it names, and how much of the buffer it uses
    /// up.
    fn holder_of(&self, span: Span, flags: DescriptorFlags) -> Result<(u32, u32), Breach> {
        let number = (span.offset >> OFFSET_BITS) as u32;
        if number != 0 {
            return Ok((REGISTERED | number, 0));
        }
        let buffer = self.region.buffer_of(span).ok_or(Breach::SpanOutOfBuffers { span })?;
        let buffer_bytes = self.region.geometry().buffer_bytes;
        let within =
            (span.offset - self.region.layout().buffers_start()) as u32 & (buffer_bytes - 1);
        let extent = if flags.contains(DescriptorFlags::LAST) {
            buffer_bytes - within
        } else {
            span.len.next_multiple_of(SPAN_ALIGN_BYTES.min(buffer_bytes))
        };
        Ok((buffer, extent))
    }

    /// Tells the client how many descriptors have been taken in all, so that it may reuse their
    /// slots. Once per burst.
    pub fn publish_taken(&mut self) {
        self.put(endpoint::TAKEN, self.taken, Ordering::Release);
    }

    /// Up to where the client has read (streams: bytes; others: descriptors). It must lie in
    /// `low ..= high`: what was seen before, and what is readable.
    ///
    /// # Errors
    /// If the client claims a value outside of it.
    pub fn consumed(&self, low: u64, high: u64) -> Result<u64, Breach> {
        // Acquire pairs with the Release in `ReceiveGuard::advance`: pages before it are no
        // longer being read.
        let claimed = self.region.load(self.base() + endpoint::CONSUMED, Ordering::Acquire);
        if (low..=high).contains(&claimed) {
            Ok(claimed)
        } else {
            Err(Breach::ConsumedOutOfWindow { claimed, low, high })
        }
    }

    /// Puts `buffer` behind page `page` of the receive stream. The slot's former page must be
    /// consumed wholly.
    pub fn set_page(&mut self, page: u64, buffer: u32) {
        let Some(span) = self.region.buffer(buffer) else { return };
        let slots = self.region.geometry().receive_slots;
        Descriptor { kind: DescriptorKind::Page, flags: DescriptorFlags::empty(), span }.store(
            &self.region,
            self.receive_queue(),
            slots,
            page,
        );
    }

    /// Appends a datagram's span to the receive queue; `more` when it goes on in the next, which
    /// has no header. The caller has seen by
    /// [`Self::consumed`] that a slot is free, and publishes by [`Self::set_readable`] with
    /// [`Self::received`].
    pub fn push_datagram(&mut self, span: Span, more: bool) {
        let slots = self.region.geometry().receive_slots;
        let flags = if more { DescriptorFlags::MORE } else { DescriptorFlags::empty() };
        Descriptor { kind: DescriptorKind::Datagram, flags, span }.store(
            &self.region,
            self.receive_queue(),
            slots,
            self.pushed,
        );
        self.pushed = self.pushed.wrapping_add(1);
    }

    /// Spans of datagrams pushed in all.
    pub fn received(&self) -> u64 {
        self.pushed
    }

    /// Publishes what may be read: the end of the contiguous stream, or datagrams pushed.
    pub fn set_readable(&mut self, readable: u64) {
        self.put(endpoint::READABLE, readable, Ordering::Release);
    }

    /// Publishes how much of what was sent is done with: bytes of the send stream, or datagrams.
    pub fn set_acked(&mut self, acked: u64) {
        self.put(endpoint::ACKED, acked, Ordering::Release);
    }

    /// Publishes the status and the error (an errno, 0 for none). An error that was published
    /// before is not a new one.
    pub fn set_status(&mut self, status: Status, errno: u32) {
        let errno = errno as u16;
        if errno != 0 && errno != self.errno {
            self.errors = self.errors.wrapping_add(1);
        }
        self.errno = errno;
        self.put_status(status);
    }

    /// Publishes the status with an error that is to be reported once more, even if it is the
    /// same as the last: what happens to datagrams does not end their endpoint.
    pub fn raise_error(&mut self, status: Status, errno: u32) {
        self.errno = errno as u16;
        self.errors = self.errors.wrapping_add(1);
        self.put_status(status);
    }

    fn put_status(&mut self, status: Status) {
        let word =
            u64::from(status.bits()) | u64::from(self.errno) << 32 | u64::from(self.errors) << 48;
        self.put(endpoint::STATUS, word, Ordering::Release);
    }

    /// Whether the client wants an event about the progress of sending: `acked` has reached what it
    /// wishes, which is told once for each wish; or `taken` has advanced while it waits. To be
    /// asked after a full fence that follows the publishing
    /// ([`EngineLane::begin_events`](super::EngineLane::begin_events)).
    pub fn is_wish_due(&mut self, acked: u64, taken_advanced: bool) -> bool {
        let wants = self.region.load(self.base() + endpoint::WANTS, Ordering::Relaxed);
        if wants == u64::MAX || wants == self.fulfilled {
            return false;
        }
        if acked >= wants {
            self.fulfilled = wants;
            return true;
        }
        taken_advanced
    }

    /// Whether a program waits for room, as far as has been seen.
    pub fn waits_for_room(&self) -> bool {
        let wants = self.region.load(self.base() + endpoint::WANTS, Ordering::Relaxed);
        wants != u64::MAX && wants != self.fulfilled
    }

    /// Publishes the offset one past the urgent byte, and which it is, once it has come.
    pub fn set_urgent(&mut self, offset: u64, byte: Option<u8>) {
        let come = byte.map_or(0, |byte| endpoint::urgent_word(offset, byte));
        self.put(endpoint::URGENT_BYTE, come, Ordering::Relaxed);
        self.put(endpoint::URGENT, offset, Ordering::Release);
    }

    /// Publishes a listener's waiting connections and the sessions attached to it.
    pub fn set_pending(&mut self, pending: u32, sharers: u32) {
        let word = u64::from(pending) | u64::from(sharers) << 32;
        self.put(endpoint::PENDING, word, Ordering::Release);
    }

    /// Publishes how many bytes of a stream are worth having at hand.
    pub fn set_send_room(&mut self, bytes: u32) {
        self.put(endpoint::SEND_ROOM, bytes.into(), Ordering::Relaxed);
    }

    /// Publishes up to where the stream has been sent; only where [`Self::limit_unsent`] was called.
    pub fn set_sent(&mut self, sent: u64) {
        self.put(endpoint::SENT, sent, Ordering::Release);
    }

    /// Tells a client that is [limited](Status::UNSENT_LIMITED) of how many bytes it may write ahead
    /// of what is sent, and how many share a frame.
    pub fn limit_unsent(&mut self, most: u32, frame_bytes: u32) {
        let word = u64::from(most) | u64::from(frame_bytes) << 32;
        self.put(endpoint::UNSENT_LIMIT, word, Ordering::Release);
    }

    /// Asks for a doorbell when `consumed` reaches `wanted`; `u64::MAX` for never. The caller
    /// looks at [`Self::consumed`] once more after a `fence(SeqCst)`
    /// ([`EngineLane::begin_events`](super::EngineLane::begin_events)), since the client may have
    /// passed it meanwhile.
    pub fn set_wanted(&mut self, wanted: u64) {
        self.put(endpoint::WANTED, wanted, Ordering::Relaxed);
    }

    fn put(&self, offset: usize, value: u64, order: Ordering) {
        self.region.store(self.base() + offset, value, order);
    }
}
