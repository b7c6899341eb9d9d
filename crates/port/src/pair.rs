//! Two ports joined in memory, for simulation and tests: what one sends, the other receives in
//! order and unchanged. Deterministic, bounded, and independent of any clock.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arch::SharedBytes;
use wire::MacAddr;

use crate::copy;
use crate::interface::{
    Offloads, Port, PortCounters, PortInfo, RxBurst, RxChecksum, RxFrame, RxHandle, RxMeta,
    TxError, TxMeta,
};

/// Parameters of a pair; both ends are alike.
#[derive(Clone, Debug)]
pub struct PairConfig {
    /// Largest IP packet.
    pub mtu: u16,
    /// Offloads of the pair. Without `tx_checksum` the sums are completed on sending, as for a card
    /// without the offload.
    pub offloads: Offloads,
    /// Frames that one direction holds before [`TxError::Full`].
    pub frames_max: usize,
    /// The ends' link addresses.
    pub macs: [MacAddr; 2],
}

impl Default for PairConfig {
    fn default() -> Self {
        Self {
            mtu: 1500,
            offloads: Offloads {
                tx_checksum: true,
                tso4: true,
                tso6: true,
                uso: true,
                rx_coalesce: true,
            },
            frames_max: 1024,
            macs: [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])],
        }
    }
}

/// A frame in transit.
#[derive(Debug, Default)]
struct Frame {
    bytes: Vec<u8>,
    meta: RxMeta,
}

/// One direction: waiting frames, and empty frames for reuse.
#[derive(Debug, Default)]
struct Lane {
    waiting: VecDeque<Frame>,
    spare: Vec<Frame>,
    /// Set when an end is dropped or the link is taken down.
    down: bool,
}

/// One end of a [`pair`].
#[derive(Debug)]
pub struct PairPort {
    info: PortInfo,
    frames_max: usize,
    incoming: Arc<Mutex<Lane>>,
    outgoing: Arc<Mutex<Lane>>,
    /// Frames of the unreleased burst, at the index of their handles.
    burst: Vec<Frame>,
    counters: PortCounters,
}

/// Controls the link between two ends.
#[derive(Clone, Debug)]
pub struct PairLink {
    lanes: [Arc<Mutex<Lane>>; 2],
}

impl PairLink {
    /// Takes the link down (frames in transit are lost) or up again.
    pub fn set_up(&self, up: bool) {
        for lane in &self.lanes {
            let mut lane = lock(lane);
            lane.down = !up;
            if !up {
                while let Some(frame) = lane.waiting.pop_front() {
                    lane.spare.push(frame);
                }
            }
        }
    }
}

/// Two joined ports, and the control of their link.
pub fn pair(config: &PairConfig) -> (PairPort, PairPort, PairLink) {
    let there: Arc<Mutex<Lane>> = Arc::default();
    let back: Arc<Mutex<Lane>> = Arc::default();
    let [first, second] = config.macs;
    let end =
        |name: &str, mac, incoming: &Arc<Mutex<Lane>>, outgoing: &Arc<Mutex<Lane>>| PairPort {
            info: PortInfo {
                name: format!("pair:{name}"),
                mac,
                mtu: config.mtu,
                kernel_index: 0,
                offloads: config.offloads,
                shared: None,
            },
            frames_max: config.frames_max,
            incoming: Arc::clone(incoming),
            outgoing: Arc::clone(outgoing),
            burst: Vec::with_capacity(RxBurst::CAPACITY),
            counters: PortCounters::default(),
        };
    let link = PairLink { lanes: [Arc::clone(&there), Arc::clone(&back)] };
    (end("a", first, &back, &there), end("b", second, &there, &back), link)
}

/// A lane holds plain data that no panic leaves half-changed, so a poisoned lock is usable.
fn lock(lane: &Mutex<Lane>) -> MutexGuard<'_, Lane> {
    lane.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PairPort {
    /// The checksum state of a frame as the other end sees it.
    fn checksum_seen(&self, meta: &TxMeta) -> RxChecksum {
        match meta.checksum {
            Some((start, offset)) if self.info.offloads.tx_checksum => {
                RxChecksum::Partial { start, offset }
            }
            _ => RxChecksum::Unknown,
        }
    }
}

impl Port for PairPort {
    fn info(&self) -> &PortInfo {
        &self.info
    }

    fn receive(&mut self, burst: &mut RxBurst) {
        burst.handles.clear();
        let mut lane = lock(&self.incoming);
        lane.spare.append(&mut self.burst);
        while self.burst.len() < RxBurst::CAPACITY {
            let Some(frame) = lane.waiting.pop_front() else { break };
            self.counters.rx_frames += 1;
            self.counters.rx_bytes += frame.bytes.len() as u64;
            burst.handles.push(RxHandle(self.burst.len() as u32));
            self.burst.push(frame);
        }
    }

    fn frame(&self, handle: RxHandle) -> RxFrame<'_> {
        match self.burst.get(handle.0 as usize) {
            Some(frame) => RxFrame { bytes: &frame.bytes, meta: frame.meta },
            None => RxFrame { bytes: &[], meta: RxMeta::default() },
        }
    }

    fn release(&mut self, burst: &mut RxBurst) {
        burst.handles.clear();
        if !self.burst.is_empty() {
            lock(&self.incoming).spare.append(&mut self.burst);
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
        let mut lane = lock(&self.outgoing);
        if lane.down {
            self.counters.tx_errors += 1;
            return Err(TxError::Down);
        }
        if lane.waiting.len() >= self.frames_max {
            self.counters.tx_full += 1;
            return Err(TxError::Full);
        }
        let mut frame = lane.spare.pop().unwrap_or_default();
        let complete = meta.checksum.filter(|_| !self.info.offloads.tx_checksum);
        if !copy::assemble(&mut frame.bytes, header, payload, complete) {
            lane.spare.push(frame);
            self.counters.tx_errors += 1;
            return Err(TxError::Unsendable);
        }
        frame.meta = RxMeta { checksum: self.checksum_seen(meta), gso: meta.gso };
        lane.waiting.push_back(frame);
        self.counters.tx_frames += 1;
        self.counters.tx_bytes += len as u64;
        Ok(())
    }

    fn flush(&mut self) {}

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }

    fn is_up(&self) -> bool {
        !lock(&self.outgoing).down
    }
}

impl Drop for PairPort {
    fn drop(&mut self) {
        for lane in [&self.incoming, &self.outgoing] {
            lock(lane).down = true;
        }
    }
}
