//! Ports of a switch in memory: a frame goes to the port with its destination address, at the rate
//! of its sender's link. For measurements of the layers above.
//!
//! All ports belong to one worker, so the lock of the switch is never contended; it is taken once
//! per burst.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use port::{
    Offloads, Port, PortCounters, PortInfo, RxBurst, RxFrame, RxHandle, RxMeta, TxError, TxMeta,
};
use shm::raw::SharedBytes;
use wire::MacAddr;

/// Overhead of a frame on the wire: preamble 8, checksum 4, gap 12 (IEEE 802.3).
pub const WIRE_BYTES: u64 = 24;
/// Bytes of Ethernet's header.
const ETHERNET_BYTES: usize = wire::ethernet::HEADER_LEN;
/// Nanoseconds of frames that a port takes in advance of its link.
const BACKLOG_NS: u64 = 1_000_000;

/// Parameters of a switch.
#[derive(Clone, Copy, Debug)]
pub struct SwitchConfig {
    /// Number of ports, at most 255.
    pub ports: u8,
    /// Largest IP packet.
    pub mtu: u16,
    /// Bits per second of each link; 0 means unlimited.
    pub rate_bits: u64,
    /// Maximum frames that wait for one port. Beyond, a sender finds its port full.
    pub frames_max: usize,
}

impl Default for SwitchConfig {
    fn default() -> Self {
        Self { ports: 4, mtu: 1500, rate_bits: 0, frames_max: 1024 }
    }
}

/// The link address of a port.
pub fn mac_of(number: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 1, number])
}

/// A frame in transit, with the time from which it can be received.
#[derive(Debug, Default)]
struct Frame {
    bytes: Vec<u8>,
    due_ns: u64,
}

/// State shared by the ports.
#[derive(Debug, Default)]
struct Fabric {
    /// Frames that wait for each port.
    lanes: Vec<VecDeque<Frame>>,
    /// Empty frames for reuse.
    spare: Vec<Frame>,
}

/// One port of a [`switch`].
#[derive(Debug)]
pub struct SwitchPort {
    info: PortInfo,
    number: u8,
    config: SwitchConfig,
    fabric: Arc<Mutex<Fabric>>,
    now_ns: u64,
    /// When the link will have sent its frames.
    free_ns: u64,
    /// Frames sent since the last flush, with the destination port of each.
    staged: Vec<(usize, Frame)>,
    /// Maximum frames that waited for a port at the last flush.
    waiting: usize,
    /// Frames of the unreleased burst, at the index of their handles.
    burst: Vec<Frame>,
    spare: Vec<Frame>,
    counters: PortCounters,
}

/// The ports of a switch, in the order of their numbers.
pub fn switch(config: &SwitchConfig) -> Vec<SwitchPort> {
    let lanes = (0..config.ports).map(|_| VecDeque::new()).collect();
    let fabric = Arc::new(Mutex::new(Fabric { lanes, spare: Vec::new() }));
    let port = |number: u8| SwitchPort {
        info: PortInfo {
            name: format!("switch:{number}"),
            mac: mac_of(number),
            mtu: config.mtu,
            kernel_index: 0,
            offloads: Offloads::default(),
            shared: None,
        },
        number,
        config: *config,
        fabric: Arc::clone(&fabric),
        now_ns: 0,
        free_ns: 0,
        staged: Vec::with_capacity(config.frames_max),
        waiting: 0,
        burst: Vec::with_capacity(RxBurst::CAPACITY),
        spare: Vec::with_capacity(config.frames_max),
        counters: PortCounters::default(),
    };
    (0..config.ports).map(port).collect()
}

/// The fabric holds plain data that no panic leaves half-changed, so a poisoned lock is usable.
fn lock(fabric: &Mutex<Fabric>) -> MutexGuard<'_, Fabric> {
    fabric.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Copies the pieces of a frame, replacing what `frame` held, and completes its checksum. `false`: the
/// checksum's field lies outside.
fn assemble(
    frame: &mut Vec<u8>,
    header: &[u8],
    payload: &[SharedBytes<'_>],
    checksum: Option<(u16, u16)>,
) -> bool {
    frame.clear();
    frame.extend_from_slice(header);
    for piece in payload {
        let at = frame.len();
        frame.resize(at + piece.len(), 0);
        piece.copy_to(frame.get_mut(at..).unwrap_or_default());
    }
    let complete = |(start, offset): (u16, u16)| {
        wire::checksum::complete(frame, usize::from(start), usize::from(offset)).is_ok()
    };
    checksum.is_none_or(complete)
}

impl SwitchPort {
    /// The destination port of a frame; this switch does not flood.
    fn destination(&self, header: &[u8]) -> Option<usize> {
        let number = *header.get(5)?;
        let is_known = header.get(..6) == Some(&mac_of(number).0)
            && number < self.config.ports
            && number != self.number;
        is_known.then_some(usize::from(number))
    }

    /// When the link will have sent a frame of `bytes`.
    fn sent_ns(&self, bytes: usize) -> u64 {
        let bits = (bytes as u64 + WIRE_BYTES) * 8;
        let takes_ns = bits.saturating_mul(1_000_000_000).checked_div(self.config.rate_bits);
        match takes_ns {
            None => 0,
            Some(takes_ns) => self.free_ns.max(self.now_ns) + takes_ns,
        }
    }
}

impl Port for SwitchPort {
    fn info(&self) -> &PortInfo {
        &self.info
    }

    fn receive(&mut self, burst: &mut RxBurst) {
        self.release(burst);
        let mut fabric = lock(&self.fabric);
        let Some(lane) = fabric.lanes.get_mut(usize::from(self.number)) else { return };
        while self.burst.len() < RxBurst::CAPACITY {
            let Some(frame) = lane.pop_front_if(|frame| frame.due_ns <= self.now_ns) else { break };
            self.counters.rx_frames += 1;
            self.counters.rx_bytes += frame.bytes.len() as u64;
            burst.handles.push(RxHandle(self.burst.len() as u32));
            self.burst.push(frame);
        }
    }

    fn frame(&self, handle: RxHandle) -> RxFrame<'_> {
        let bytes = self.burst.get(handle.0 as usize).map_or(&[][..], |frame| &frame.bytes);
        RxFrame { bytes, meta: RxMeta::default() }
    }

    fn release(&mut self, burst: &mut RxBurst) {
        burst.handles.clear();
        if !self.burst.is_empty() {
            lock(&self.fabric).spare.append(&mut self.burst);
        }
    }

    fn send(
        &mut self,
        meta: &TxMeta,
        header: &[u8],
        payload: &[SharedBytes<'_>],
    ) -> Result<(), TxError> {
        let len = header.len() + payload.iter().map(SharedBytes::len).sum::<usize>();
        let is_sendable = len <= usize::from(self.info.mtu) + ETHERNET_BYTES && meta.gso.is_none();
        let Some(to) = self.destination(header).filter(|_| is_sendable) else {
            self.counters.tx_errors += 1;
            return Err(TxError::Unsendable);
        };
        let is_behind = self.free_ns > self.now_ns.saturating_add(BACKLOG_NS);
        if is_behind || self.waiting + self.staged.len() >= self.config.frames_max {
            self.counters.tx_full += 1;
            return Err(TxError::Full);
        }
        let mut frame = self.spare.pop().unwrap_or_default();
        if !assemble(&mut frame.bytes, header, payload, meta.checksum) {
            self.spare.push(frame);
            self.counters.tx_errors += 1;
            return Err(TxError::Unsendable);
        }
        frame.due_ns = self.sent_ns(len);
        self.free_ns = frame.due_ns;
        self.staged.push((to, frame));
        self.counters.tx_frames += 1;
        self.counters.tx_bytes += len as u64;
        Ok(())
    }

    fn flush(&mut self) {
        let mut fabric = lock(&self.fabric);
        for (to, frame) in self.staged.drain(..) {
            if let Some(lane) = fabric.lanes.get_mut(to) {
                lane.push_back(frame);
            }
        }
        self.waiting = fabric.lanes.iter().map(VecDeque::len).max().unwrap_or(0);
        let wanted = RxBurst::CAPACITY.saturating_sub(self.spare.len()).min(fabric.spare.len());
        let from = fabric.spare.len() - wanted;
        self.spare.extend(fabric.spare.drain(from..));
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }

    fn next_deadline(&self) -> Option<u64> {
        let fabric = lock(&self.fabric);
        let lane = fabric.lanes.get(usize::from(self.number))?;
        lane.front().map(|frame| frame.due_ns)
    }

    fn on_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(from: u8, to: u8, len: usize) -> Vec<u8> {
        let mut frame = [mac_of(to).0, mac_of(from).0].concat();
        frame.extend_from_slice(&[0x88, 0xb5]);
        frame.resize(len, from);
        frame
    }

    fn received(port: &mut SwitchPort) -> Vec<Vec<u8>> {
        let mut burst = RxBurst::new();
        port.receive(&mut burst);
        let frames =
            burst.handles.iter().map(|handle| port.frame(*handle).bytes.to_vec()).collect();
        port.release(&mut burst);
        frames
    }

    #[test]
    fn a_frame_goes_to_the_port_of_its_destination_alone() {
        let mut ports = switch(&SwitchConfig::default());
        let sent = frame(0, 2, 60);
        assert_eq!(ports[0].send(&TxMeta::default(), &sent, &[]), Ok(()));
        assert!(received(&mut ports[2]).is_empty(), "it waits for the flush");
        ports[0].flush();
        for number in [0, 1, 3] {
            assert!(received(&mut ports[number]).is_empty());
        }
        assert_eq!(received(&mut ports[2]), [sent]);
        for strange in [frame(0, 0, 60), frame(0, 9, 60), vec![0xff; 60]] {
            let refused = ports[0].send(&TxMeta::default(), &strange, &[]);
            assert_eq!(refused, Err(TxError::Unsendable));
        }
        assert_eq!((ports[0].counters().tx_frames, ports[0].counters().tx_errors), (1, 3));
    }

    #[test]
    fn a_link_takes_its_time_and_a_millisecond_in_advance() {
        let config = SwitchConfig { rate_bits: 100_000_000, ..SwitchConfig::default() };
        let mut ports = switch(&config);
        let sent = frame(0, 1, 1000);
        // 1,024 bytes on a wire of 100 Mbit/s take 81,920 ns.
        let mut taken = 0;
        while ports[0].send(&TxMeta::default(), &sent, &[]).is_ok() {
            taken += 1;
        }
        assert_eq!(taken, 13);
        ports[0].flush();
        ports[1].on_time(81_919);
        assert!(received(&mut ports[1]).is_empty());
        assert_eq!(ports[1].next_deadline(), Some(81_920));
        ports[1].on_time(2 * 81_920);
        assert_eq!(received(&mut ports[1]).len(), 2);
        ports[0].on_time(1_000_000);
        assert_eq!(ports[0].send(&TxMeta::default(), &sent, &[]), Ok(()));
    }

    #[test]
    fn frames_that_nobody_fetches_fill_the_port() {
        let mut ports = switch(&SwitchConfig { frames_max: 16, ..SwitchConfig::default() });
        for _ in 0..16 {
            assert_eq!(ports[3].send(&TxMeta::default(), &frame(3, 0, 60), &[]), Ok(()));
        }
        ports[3].flush();
        let refused = ports[3].send(&TxMeta::default(), &frame(3, 0, 60), &[]);
        assert_eq!(refused, Err(TxError::Full));
        assert_eq!(received(&mut ports[0]).len(), 16);
        ports[3].flush();
        assert_eq!(ports[3].send(&TxMeta::default(), &frame(3, 0, 60), &[]), Ok(()));
    }
}
