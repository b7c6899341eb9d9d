//! A station in memory at the other end of the port's link, for measurements of the layers above:
//! `gen:` generates frames at a rate, `sink:` takes them at a rate. Both take and count sent
//! frames, and answer ARP requests.
//!
//! A sent frame is copied and its checksum completed, as by a port without offloads. No descriptor
//! becomes readable when frames wait, so an engine with such a port never sleeps.

mod generator;
mod pace;

use std::collections::VecDeque;
use std::net::SocketAddrV4;
use std::os::fd::BorrowedFd;

use arch::SharedBytes;
use serde::{Deserialize, Serialize};
use wire::MacAddr;
use wire::arp::{self, ArpPacket, Operation};
use wire::ethernet::{EtherType, EthernetHeader};

use crate::copy;
use crate::interface::{
    Port, PortCounters, PortInfo, RxBurst, RxFrame, RxHandle, RxMeta, TxError, TxMeta,
};
use crate::open::{OpenError, PortDescription, PortFds, PortOffloads, random_mac};
use crate::spec::{PortKind, PortSpec};
use generator::Generator;

pub(crate) use generator::GENERATED_BYTES_MIN;
use pace::Pace;

/// Link address of the station.
const STATION: MacAddr = MacAddr([2, 0, 0, 0, 2, 1]);
/// Default largest IP packet.
pub(crate) const MTU: u16 = 1500;
/// Shortest frame of Ethernet without its CRC (IEEE 802.3).
const FRAME_BYTES_MIN: usize = 60;
/// Bytes that a frame takes on a wire beside its own: preamble 8, checksum 4, gap 12 (IEEE 802.3).
const WIRE_BYTES: u64 = 24;
/// ARP replies that wait to be received. More requests go unanswered, counted as missed.
const REPLIES_MAX: usize = 64;

/// Data of a `gen` or `sink` port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StationFacts {
    /// Bytes of each generated frame, from its Ethernet header on without CRC; by default the
    /// shortest Ethernet frame.
    pub frame_bytes: Option<u32>,
    /// Rate in bits per second on the wire of generated (`gen`) or taken (`sink`) frames, with
    /// preamble, CRC and gap; 0 means unlimited.
    pub rate_bits: u64,
    /// Source of the generated UDP datagrams.
    pub from: Option<SocketAddrV4>,
    /// Destination of the generated UDP datagrams; without it frames of EtherType 0x88B5 are
    /// generated.
    pub to: Option<SocketAddrV4>,
}

impl StationFacts {
    /// Bytes of each generated frame.
    pub(crate) fn frame_len(&self) -> usize {
        self.frame_bytes.map_or(FRAME_BYTES_MIN, |bytes| bytes as usize)
    }
}

/// Describes the port; there is nothing to open, and it needs no privileges.
///
/// # Errors
/// If the system has no random bytes for a link address.
pub(crate) fn open(spec: &PortSpec) -> Result<PortFds, OpenError> {
    let description = PortDescription {
        kind: spec.kind,
        label: spec.label(),
        mac: spec.mac.map_or_else(random_mac, Ok)?,
        mtu: spec.mtu.unwrap_or(MTU),
        offloads: PortOffloads::default(),
        interface_index: 0,
        impairment: spec.impairment,
        seed: spec.seed.map_or_else(crate::open::random_seed, Ok)?,
        mode: None,
        xdp: None,
        memif: None,
        station: Some(spec.station.clone()),
        notes: Vec::new(),
    };
    Ok(PortFds { fds: Vec::new(), description, rings: Vec::new(), links: Vec::new() })
}

/// An ARP reply, padded.
type Reply = [u8; FRAME_BYTES_MIN];

/// The running port.
pub struct StationPort {
    info: PortInfo,
    /// Only for a `gen`.
    generator: Option<Generator>,
    /// Pace of the outgoing link.
    leaves: Pace,
    /// Bits of the last frame that found no room.
    refused_bits: Option<u64>,
    replies: VecDeque<Reply>,
    /// Replies of the unreleased burst; generated frames follow them.
    answered: Vec<Reply>,
    /// Buffer in which a sent frame is assembled.
    whole: Vec<u8>,
    now_ns: u64,
    counters: PortCounters,
}

impl StationPort {
    /// The port described by [`open`].
    pub(crate) fn new(facts: &StationFacts, description: &PortDescription) -> Self {
        let info = PortInfo { offloads: Default::default(), ..description.info() };
        let longest = usize::from(info.mtu) + copy::ETHERNET_BYTES + 4;
        let makes = description.kind == PortKind::Generator;
        let takes_bits = if makes { 0 } else { facts.rate_bits };
        Self {
            generator: makes.then(|| Generator::new(facts, info.mac)),
            leaves: Pace::new(takes_bits, wire_bits(longest)),
            refused_bits: None,
            replies: VecDeque::with_capacity(REPLIES_MAX),
            answered: Vec::with_capacity(REPLIES_MAX),
            whole: Vec::with_capacity(longest),
            now_ns: 0,
            counters: PortCounters::default(),
            info,
        }
    }

    /// Answers the sent frame if it is an ARP request for another address. Announcements and probes
    /// of the port's own address (RFC 5227) get no reply.
    fn answer(&mut self) {
        let Some(request) = request(&self.whole) else { return };
        if request.sender_ip.is_unspecified() || request.sender_ip == request.target_ip {
            return;
        }
        if self.replies.len() == REPLIES_MAX {
            self.counters.rx_missed += 1;
            return;
        }
        self.replies.extend(reply_to(&request));
    }
}

/// Bits of a frame on the wire.
fn wire_bits(len: usize) -> u64 {
    (len as u64 + WIRE_BYTES) * 8
}

fn request(frame: &[u8]) -> Option<ArpPacket> {
    let (link, packet) = wire::ethernet::parse(frame).ok()?;
    let packet = (link.ethertype == EtherType::ARP).then(|| arp::parse(packet).ok())??;
    (packet.operation == Operation::REQUEST).then_some(packet)
}

fn reply_to(request: &ArpPacket) -> Option<Reply> {
    let link = EthernetHeader {
        dst: request.sender_mac,
        src: STATION,
        vlan: None,
        ethertype: EtherType::ARP,
    };
    let packet = ArpPacket {
        operation: Operation::REPLY,
        sender_mac: STATION,
        sender_ip: request.target_ip,
        target_mac: request.sender_mac,
        target_ip: request.sender_ip,
    };
    let mut reply = [0; FRAME_BYTES_MIN];
    let at = link.emit(&mut reply).ok()?;
    packet.emit(reply.get_mut(at..)?).ok()?;
    Some(reply)
}

impl Port for StationPort {
    fn info(&self) -> &PortInfo {
        &self.info
    }

    fn receive(&mut self, burst: &mut RxBurst) {
        self.release(burst);
        self.answered.extend(self.replies.drain(..));
        let room = RxBurst::CAPACITY - self.answered.len();
        let made = match &mut self.generator {
            Some(generator) => generator.make(room, self.now_ns),
            None => (0, 0),
        };
        let (frames, bytes) = made;
        let count = self.answered.len() + frames;
        burst.handles.extend((0..count as u32).map(RxHandle));
        self.counters.rx_frames += count as u64;
        self.counters.rx_bytes += bytes + (self.answered.len() * FRAME_BYTES_MIN) as u64;
    }

    fn frame(&self, handle: RxHandle) -> RxFrame<'_> {
        let place = handle.0 as usize;
        let bytes = match place.checked_sub(self.answered.len()) {
            None => self.answered.get(place).map(<[u8; FRAME_BYTES_MIN]>::as_slice),
            Some(place) => self.generator.as_ref().and_then(|generator| generator.frame(place)),
        };
        RxFrame { bytes: bytes.unwrap_or_default(), meta: RxMeta::default() }
    }

    fn release(&mut self, burst: &mut RxBurst) {
        burst.handles.clear();
        self.answered.clear();
        if let Some(generator) = &mut self.generator {
            generator.release();
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
        let bits = wire_bits(len);
        if !self.leaves.spend(bits) {
            self.refused_bits = Some(bits);
            self.counters.tx_full += 1;
            return Err(TxError::Full);
        }
        self.refused_bits = None;
        if !copy::assemble(&mut self.whole, header, payload, meta.checksum) {
            self.counters.tx_errors += 1;
            return Err(TxError::Unsendable);
        }
        self.counters.tx_frames += 1;
        self.counters.tx_bytes += len as u64;
        self.answer();
        Ok(())
    }

    fn flush(&mut self) {}

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }

    fn next_deadline(&self) -> Option<u64> {
        let replies = (!self.replies.is_empty()).then_some(self.now_ns);
        let room = self.refused_bits.map(|bits| self.now_ns + self.leaves.until(bits));
        let made = self.generator.as_ref().map(|generator| self.now_ns + generator.until());
        [replies, room, made].into_iter().flatten().min()
    }

    fn on_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.leaves.earn(now_ns);
        if let Some(generator) = &mut self.generator {
            self.counters.rx_missed += generator.earn(now_ns);
        }
    }
}

#[cfg(test)]
mod tests;
