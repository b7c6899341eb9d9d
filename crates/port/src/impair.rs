//! Fault injection around any port: loss, duplication, corruption, reordering, delay and a rate
//! limit, in either direction, from a seed. Held frames are in memory of the wrapper, which is
//! bounded: beyond, frames are lost as in a router's queue.
//!
//! Time comes from [`Port::on_time`] alone, so a simulation repeats to the last frame. The
//! wrapper does not offer segmentation: the stack then sends frames of one MTU, and a loss is the
//! loss of one segment. Frames that arrive coalesced are treated as one.

use std::collections::BinaryHeap;
use std::net::SocketAddr;

use arch::SharedBytes;

use crate::copy;
use crate::interface::{
    Port, PortCounters, PortInfo, RxBurst, RxChecksum, RxFrame, RxHandle, RxMeta, TxError, TxMeta,
};
use crate::spec::{Direction, Impairment, Parts};

/// Bytes that one direction may hold.
const HELD_BYTES_MAX: usize = 32 << 20;
/// Frames that one direction may hold.
const HELD_FRAMES_MAX: usize = 16_384;
/// Spare buffers kept for the next frames; further ones are freed.
const SPARE_MAX: usize = 256;
/// Delay of a reordered frame if there is no delay to overtake.
const REORDER_NS: u64 = 1_000_000;

/// Counters of faults, for each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounters {
    /// Lost by chance.
    pub lost: u64,
    /// Lost because the wrapper's limit was reached.
    pub overflowed: u64,
    /// Sent twice.
    pub duplicated: u64,
    /// With a bit flipped.
    pub corrupted: u64,
    /// Out of order.
    pub reordered: u64,
}

/// A port with injected faults; see the module.
pub struct Impaired<P: Port = Box<dyn Port>> {
    inner: P,
    info: PortInfo,
    now_ns: u64,
    /// Frames received by the inner port, until they are due.
    incoming: Line<RxMeta>,
    /// Frames to send, until they are due.
    outgoing: Line<TxMeta>,
    inner_burst: RxBurst,
    /// The burst handed out and not yet released.
    burst: Vec<Held<RxMeta>>,
    /// The inner port had no room for what was due.
    is_full: bool,
    counters: PortCounters,
}

impl<P: Port> Impaired<P> {
    /// Wraps a port with `faults`.
    pub fn new(inner: P, faults: Impairment, seed: u64) -> Self {
        let mut info = inner.info().clone();
        info.offloads.tso4 = false;
        info.offloads.tso6 = false;
        info.offloads.uso = false;
        let side = |direction, salt| {
            let acts = faults.direction == Direction::Both || faults.direction == direction;
            let faults = if acts { faults } else { Impairment::default() };
            (faults, seed ^ salt)
        };
        let (receive, send) = (side(Direction::Receive, 0x7278), side(Direction::Send, 0x7478));
        Self {
            inner,
            info,
            now_ns: 0,
            incoming: Line::new(receive.0, receive.1),
            outgoing: Line::new(send.0, send.1),
            inner_burst: RxBurst::new(),
            burst: Vec::with_capacity(RxBurst::CAPACITY),
            is_full: false,
            counters: PortCounters::default(),
        }
    }

    /// Faults of received frames, and of sent frames.
    pub fn faults(&self) -> [FaultCounters; 2] {
        [self.incoming.counters, self.outgoing.counters]
    }

    /// Hands the inner port what is due. A frame that finds it full stays first in line.
    fn send_due(&mut self) {
        self.is_full = false;
        while let Some(held) = self.outgoing.due(self.now_ns) {
            match self.inner.send(&held.meta, &held.bytes, &[]) {
                Err(TxError::Full) => {
                    self.outgoing.put_back(held);
                    self.is_full = true;
                    break;
                }
                // Counted by the inner port.
                Ok(()) | Err(TxError::Refused | TxError::Unsendable | TxError::Down) => {
                    self.outgoing.spare(held);
                }
            }
        }
        self.inner.flush();
    }
}

impl<P: Port> crate::PortWrapper for Impaired<P> {
    type Inner = P;

    fn inner(&self) -> &P {
        &self.inner
    }

    fn inner_mut(&mut self) -> &mut P {
        &mut self.inner
    }

    fn info(&self) -> &PortInfo {
        &self.info
    }

    fn receive(&mut self, burst: &mut RxBurst) {
        Port::release(self, burst);
        self.inner.receive(&mut self.inner_burst);
        for &handle in &self.inner_burst.handles {
            let frame = self.inner.frame(handle);
            self.incoming.take(frame.bytes, &[], frame.meta, self.now_ns);
        }
        self.inner.release(&mut self.inner_burst);
        while self.burst.len() < RxBurst::CAPACITY {
            let Some(held) = self.incoming.due(self.now_ns) else { break };
            self.counters.rx_frames += 1;
            self.counters.rx_bytes += held.bytes.len() as u64;
            burst.handles.push(RxHandle(self.burst.len() as u32));
            self.burst.push(held);
        }
    }

    fn frame(&self, handle: RxHandle) -> RxFrame<'_> {
        match self.burst.get(handle.0 as usize) {
            Some(held) => RxFrame { bytes: &held.bytes, meta: held.meta },
            None => RxFrame { bytes: &[], meta: RxMeta::default() },
        }
    }

    fn release(&mut self, burst: &mut RxBurst) {
        burst.handles.clear();
        for held in self.burst.drain(..) {
            self.incoming.spare(held);
        }
    }

    fn send(
        &mut self,
        meta: &TxMeta,
        header: &[u8],
        payload: &[SharedBytes<'_>],
    ) -> Result<(), TxError> {
        let len = copy::length(header, payload);
        if !copy::sendable(&self.info, meta, header, len) {
            self.counters.tx_errors += 1;
            return Err(TxError::Unsendable);
        }
        self.counters.tx_frames += 1;
        self.counters.tx_bytes += len as u64;
        self.outgoing.take(header, payload, *meta, self.now_ns);
        Ok(())
    }

    fn flush(&mut self) {
        self.send_due();
    }

    /// Frames as the stack sees them; what the inner port could not do is added.
    fn counters(&self) -> PortCounters {
        let inner = self.inner.counters();
        let PortCounters { rx_frames, rx_bytes, tx_frames, tx_bytes, .. } = self.counters;
        let tx_errors = self.counters.tx_errors.wrapping_add(inner.tx_errors);
        PortCounters { rx_frames, rx_bytes, tx_frames, tx_bytes, tx_errors, ..inner }
    }

    /// Overdue frames of a full inner port are sent when that port is ready.
    fn next_deadline(&self) -> Option<u64> {
        let inner = self.inner.next_deadline();
        let waits = self.is_full && inner.is_some();
        let outgoing = self.outgoing.next_due().filter(|_| !waits);
        [self.incoming.next_due(), outgoing, inner].into_iter().flatten().min()
    }

    fn on_time(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        self.inner.on_time(now_ns);
        self.send_due();
    }

    /// Faults are put around what is not divided: the frames of a burst are copies.
    fn divide(
        &mut self,
        _burst: &RxBurst,
        taken: u64,
        _awaits: &dyn Fn(SocketAddr, SocketAddr) -> bool,
    ) -> u64 {
        taken
    }
}

/// Metadata with a checksum state that a corrupted frame must not keep.
trait Metadata: Copy {
    /// A partial checksum, which would hide the damage.
    fn partial(&self) -> Option<(u16, u16)>;
    /// Marks the checksum as unknown.
    fn forget_checksum(&mut self);
}

impl Metadata for RxMeta {
    fn partial(&self) -> Option<(u16, u16)> {
        match self.checksum {
            RxChecksum::Partial { start, offset } => Some((start, offset)),
            RxChecksum::Unknown | RxChecksum::Valid => None,
        }
    }

    fn forget_checksum(&mut self) {
        self.checksum = RxChecksum::Unknown;
    }
}

impl Metadata for TxMeta {
    fn partial(&self) -> Option<(u16, u16)> {
        self.checksum
    }

    fn forget_checksum(&mut self) {
        self.checksum = None;
    }
}

/// A frame and the time when it is due. Ordered so that the heap yields the earliest first, and of
/// two at the same time the first one in.
#[derive(Debug)]
struct Held<M> {
    due_ns: u64,
    sequence: u64,
    bytes: Vec<u8>,
    meta: M,
}

impl<M> PartialEq for Held<M> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<M> Eq for Held<M> {}

impl<M> PartialOrd for Held<M> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<M> Ord for Held<M> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.due_ns, other.sequence).cmp(&(self.due_ns, self.sequence))
    }
}

/// One direction.
#[derive(Debug)]
struct Line<M> {
    faults: Impairment,
    random: Random,
    held: BinaryHeap<Held<M>>,
    held_bytes: usize,
    sequence: u64,
    /// When the rate limit permits the next frame.
    free_ns: u64,
    /// Latest due time of a frame in order, before which jitter must not schedule.
    last_due_ns: u64,
    spare: Vec<Vec<u8>>,
    counters: FaultCounters,
}

impl<M: Metadata> Line<M> {
    fn new(faults: Impairment, seed: u64) -> Self {
        Self {
            faults,
            random: Random(seed),
            held: BinaryHeap::new(),
            held_bytes: 0,
            sequence: 0,
            free_ns: 0,
            last_due_ns: 0,
            spare: Vec::new(),
            counters: FaultCounters::default(),
        }
    }

    /// Takes a frame in and decides its fate.
    fn take(&mut self, header: &[u8], payload: &[SharedBytes<'_>], meta: M, now_ns: u64) {
        if self.random.hits(self.faults.loss) {
            self.counters.lost += 1;
            return;
        }
        let copies = if self.random.hits(self.faults.duplicate) {
            self.counters.duplicated += 1;
            2
        } else {
            1
        };
        for _ in 0..copies {
            let len = copy::length(header, payload);
            let bytes_after = self.held_bytes.saturating_add(len);
            if self.held.len() >= HELD_FRAMES_MAX || bytes_after > HELD_BYTES_MAX {
                self.counters.overflowed += 1;
                return;
            }
            let mut bytes = self.spare.pop().unwrap_or_default();
            // Without a checksum to complete nothing can fail.
            let _whole = copy::assemble(&mut bytes, header, payload, None);
            let mut meta = meta;
            if self.random.hits(self.faults.corrupt) {
                self.corrupt(&mut bytes, &mut meta);
            }
            let due_ns = self.due_of(len, now_ns);
            self.held_bytes = bytes_after;
            self.sequence += 1;
            self.held.push(Held { due_ns, sequence: self.sequence, bytes, meta });
        }
    }

    fn due_of(&mut self, len: usize, now_ns: u64) -> u64 {
        let mut start_ns = now_ns;
        if self.faults.rate_bits > 0 {
            let bits = len as u128 * 8;
            let takes_ns = (bits * 1_000_000_000 / u128::from(self.faults.rate_bits)) as u64;
            start_ns = self.free_ns.max(now_ns).saturating_add(takes_ns);
            self.free_ns = start_ns;
        }
        let jitter_ns = self.random.below(self.faults.jitter_ns.saturating_add(1));
        let due_ns = start_ns
            .saturating_add(self.faults.delay_ns)
            .saturating_add(jitter_ns)
            .max(self.last_due_ns);
        if self.random.hits(self.faults.reorder) {
            self.counters.reordered += 1;
            // Ahead of those that are delayed, or behind those that are not.
            return if self.faults.delay_ns > 0 { start_ns } else { due_ns + REORDER_NS };
        }
        self.last_due_ns = due_ns;
        due_ns
    }

    /// Flips one bit after the Ethernet header of an IP frame. A partial checksum is completed
    /// first: otherwise it would be computed over the damage and hide it.
    fn corrupt(&mut self, bytes: &mut [u8], meta: &mut M) {
        let is_ip = matches!(bytes.get(12..14), Some([8, 0] | [0x86, 0xdd]));
        let Some(body) = bytes.len().checked_sub(copy::ETHERNET_BYTES).filter(|len| *len > 0)
        else {
            return;
        };
        if !is_ip {
            return;
        }
        if let Some((start, offset)) = meta.partial()
            && wire::checksum::complete(bytes, start.into(), offset.into()).is_err()
        {
            return;
        }
        meta.forget_checksum();
        let at = copy::ETHERNET_BYTES + self.random.below(body as u64) as usize;
        let bit = self.random.below(8) as u32;
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1u8.wrapping_shl(bit);
            self.counters.corrupted += 1;
        }
    }

    fn next_due(&self) -> Option<u64> {
        self.held.peek().map(|held| held.due_ns)
    }

    fn due(&mut self, now_ns: u64) -> Option<Held<M>> {
        if self.next_due()? > now_ns {
            return None;
        }
        let held = self.held.pop()?;
        self.held_bytes = self.held_bytes.saturating_sub(held.bytes.len());
        Some(held)
    }

    fn put_back(&mut self, held: Held<M>) {
        self.held_bytes = self.held_bytes.saturating_add(held.bytes.len());
        self.held.push(held);
    }

    fn spare(&mut self, held: Held<M>) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(held.bytes);
        }
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): small, seeded, good enough to draw faults.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Uniform in `0..limit`; 0 if `limit` is 0.
    fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    fn hits(&mut self, parts: Parts) -> bool {
        parts.0 > 0 && self.below(Parts::WHOLE.into()) < u64::from(parts.0)
    }
}

#[cfg(test)]
mod tests;
