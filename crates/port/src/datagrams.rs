//! Datagrams for measurements: the frames of one flow, and a port that receives them without end and
//! discards what is sent to it, counted.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::BorrowedFd;

use arch::SharedBytes;
use wire::checksum::Sum;
use wire::ethernet::{EtherType, EthernetHeader};
use wire::ipv4::{self, Ipv4Header, Protocol};
use wire::udp::{self, UdpHeader};
use wire::{MacAddr, arp};

use crate::copy;
use crate::interface::{
    Offloads, Port, PortCounters, PortInfo, RxBurst, RxFrame, RxHandle, RxMeta, TxError, TxMeta,
};

/// Bytes of the headers of a datagram's frame.
pub const HEADER_BYTES: usize = copy::ETHERNET_BYTES + ipv4::HEADER_LEN + udp::HEADER_LEN;
/// Where the UDP header begins, and where in it the checksum lies.
pub const CHECKSUM: (u16, u16) = ((copy::ETHERNET_BYTES + ipv4::HEADER_LEN) as u16, 6);

/// Datagrams from one socket to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Where they come from.
    pub source: SocketAddrV4,
    /// Link address of that.
    pub source_mac: [u8; 6],
    /// Where they go.
    pub destination: SocketAddrV4,
    /// Link address of that.
    pub destination_mac: [u8; 6],
    /// Payload of each.
    pub bytes: usize,
}

impl Flow {
    /// A frame of the flow, its checksums complete; `None` where no IP packet holds the payload.
    pub fn frame(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0x5a; HEADER_BYTES + self.bytes];
        let length = u16::try_from(udp::HEADER_LEN + self.bytes).ok()?;
        let ethernet = EthernetHeader {
            dst: MacAddr(self.destination_mac),
            src: MacAddr(self.source_mac),
            ethertype: EtherType::IPV4,
            vlan: None,
        };
        let [src, dst] = [*self.source.ip(), *self.destination.ip()];
        let ip = Ipv4Header { protocol: Protocol::UDP, src, dst, ..Ipv4Header::default() };
        let udp = UdpHeader {
            src_port: self.source.port(),
            dst_port: self.destination.port(),
            len: length,
            checksum: 0,
        };
        let mut at = ethernet.emit(&mut frame).ok()?;
        at += ip.emit(usize::from(length), frame.get_mut(at..)?).ok()?;
        udp.emit(frame.get_mut(at..)?).ok()?;
        let pseudo = Sum::pseudo_v4(src, dst, Protocol::UDP, u32::from(length));
        let sum = pseudo.then(Sum::of(frame.get(at..)?)).finish_udp();
        let field = usize::from(CHECKSUM.0 + CHECKSUM.1);
        frame.get_mut(field..field + 2)?.copy_from_slice(&sum.to_be_bytes());
        Some(frame)
    }

    /// The same frame with its checksum left to be completed over everything from [`CHECKSUM`] on: the
    /// field holds the folded pseudo-header sum.
    pub fn partial_frame(&self) -> Option<Vec<u8>> {
        let mut frame = self.frame()?;
        let length = u32::try_from(udp::HEADER_LEN + self.bytes).ok()?;
        let [src, dst] = [*self.source.ip(), *self.destination.ip()];
        let sum = Sum::pseudo_v4(src, dst, Protocol::UDP, length).folded();
        let field = usize::from(CHECKSUM.0 + CHECKSUM.1);
        frame.get_mut(field..field + 2)?.copy_from_slice(&sum.to_be_bytes());
        Some(frame)
    }

    /// Whether the checksum of a frame of the flow is right.
    pub fn is_valid(&self, frame: &[u8]) -> bool {
        let Some(datagram) = frame.get(usize::from(CHECKSUM.0)..) else { return false };
        let [src, dst] = [*self.source.ip(), *self.destination.ip()];
        let pseudo = Sum::pseudo_v4(src, dst, Protocol::UDP, datagram.len() as u32);
        pseudo.then(Sum::of(datagram)).is_valid()
    }

    /// The question for the link address of the destination.
    pub fn arp_request(&self) -> Option<Vec<u8>> {
        let asked = arp::ArpPacket {
            operation: arp::Operation::REQUEST,
            sender_mac: MacAddr(self.source_mac),
            sender_ip: *self.source.ip(),
            target_mac: MacAddr::default(),
            target_ip: *self.destination.ip(),
        };
        arp_frame(&asked, MacAddr([0xff; 6]))
    }

    /// What ARP frame `frame` says the destination's link address is.
    pub fn arp_answer(&self, frame: &[u8]) -> Option<[u8; 6]> {
        let said = arp_of(frame)?;
        (said.sender_ip == *self.destination.ip()).then_some(said.sender_mac.0)
    }
}

/// The ARP packet of a frame.
fn arp_of(frame: &[u8]) -> Option<arp::ArpPacket> {
    let (header, payload) = wire::ethernet::parse(frame).ok()?;
    (header.ethertype == EtherType::ARP).then(|| arp::parse(payload).ok())?
}

fn arp_frame(packet: &arp::ArpPacket, dst: MacAddr) -> Option<Vec<u8>> {
    let mut frame = vec![0; copy::ETHERNET_BYTES + arp::LEN];
    let (src, ethertype) = (packet.sender_mac, EtherType::ARP);
    let at = EthernetHeader { dst, src, ethertype, vlan: None }.emit(&mut frame).ok()?;
    packet.emit(frame.get_mut(at..)?).ok()?;
    Some(frame)
}

/// A port at which a flow arrives as fast as it is received. What is sent is dropped and counted, but
/// questions for any link address, which are answered with the flow's source.
#[derive(Debug)]
pub struct DatagramPort {
    info: PortInfo,
    frame: Vec<u8>,
    answer: Option<Vec<u8>>,
    /// The first frame of the burst is the answer.
    is_answering: bool,
    is_silent: bool,
    counters: PortCounters,
}

impl DatagramPort {
    /// The port to which `flow` comes; only questions are answered where `is_silent`. `None` where no IP
    /// packet holds the payload.
    pub fn new(flow: &Flow, is_silent: bool) -> Option<Self> {
        let info = PortInfo {
            name: "datagrams".to_owned(),
            mac: MacAddr(flow.destination_mac),
            mtu: 9000,
            kernel_index: 0,
            offloads: Offloads::default(),
            shared: None,
        };
        Some(Self {
            info,
            frame: flow.frame()?,
            answer: None,
            is_answering: false,
            is_silent,
            counters: PortCounters::default(),
        })
    }

    fn answer_to(&self, frame: &[u8]) -> Option<Vec<u8>> {
        let asked = arp_of(frame).filter(|asked| asked.operation == arp::Operation::REQUEST)?;
        let own = wire::ethernet::parse(&self.frame).ok()?.0.src;
        let is_about_itself =
            asked.sender_ip == asked.target_ip || asked.sender_ip == Ipv4Addr::UNSPECIFIED;
        let answer = arp::ArpPacket {
            operation: arp::Operation::REPLY,
            sender_mac: own,
            sender_ip: asked.target_ip,
            target_mac: asked.sender_mac,
            target_ip: asked.sender_ip,
        };
        // Nobody else has the address that somebody takes for itself.
        (!is_about_itself).then(|| arp_frame(&answer, asked.sender_mac))?
    }
}

impl Port for DatagramPort {
    fn info(&self) -> &PortInfo {
        &self.info
    }

    fn receive(&mut self, burst: &mut RxBurst) {
        self.release(burst);
        self.is_answering = self.answer.is_some();
        let count = match self.is_silent {
            true => u32::from(self.is_answering),
            false => RxBurst::CAPACITY as u32,
        };
        burst.handles.extend((0..count).map(RxHandle));
        self.counters.rx_frames += u64::from(count);
        self.counters.rx_bytes += u64::from(count) * self.frame.len() as u64;
    }

    fn frame(&self, handle: RxHandle) -> RxFrame<'_> {
        let answer = self.answer.as_deref().filter(|_| self.is_answering && handle.0 == 0);
        RxFrame { bytes: answer.unwrap_or(&self.frame), meta: RxMeta::default() }
    }

    fn release(&mut self, burst: &mut RxBurst) {
        burst.handles.clear();
        if std::mem::take(&mut self.is_answering) {
            self.answer = None;
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
        if payload.is_empty()
            && let Some(answer) = self.answer_to(header)
        {
            self.answer = Some(answer);
        }
        Ok(())
    }

    fn flush(&mut self) {}

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow() -> Flow {
        Flow {
            source: "10.0.0.9:5001".parse().unwrap(),
            source_mac: [2, 0, 0, 0, 3, 9],
            destination: "10.0.0.1:7000".parse().unwrap(),
            destination_mac: [2, 0, 0, 0, 3, 1],
            bytes: 1000,
        }
    }

    #[test]
    fn frames_of_a_flow_are_whole() {
        let frame = flow().frame().unwrap();
        let (_, packet) = wire::ethernet::parse(&frame).unwrap();
        let packet = ipv4::parse(packet).unwrap();
        let (header, payload) = udp::parse(packet.payload).unwrap();
        assert_eq!((header.dst_port, payload.len()), (7000, 1000));
        let length = packet.payload.len() as u32;
        let pseudo = Sum::pseudo_v4(packet.header.src, packet.header.dst, Protocol::UDP, length);
        assert!(pseudo.then(Sum::of(packet.payload)).is_valid());
        assert!(flow().is_valid(&frame));
        let mut partial = flow().partial_frame().unwrap();
        assert!(!flow().is_valid(&partial));
        let (start, offset) = CHECKSUM;
        wire::checksum::complete(&mut partial, usize::from(start), usize::from(offset)).unwrap();
        assert_eq!(partial, frame);
        assert_eq!(Flow { bytes: 70_000, ..flow() }.frame(), None);
    }

    #[test]
    fn a_flow_comes_without_end_and_questions_are_answered() {
        let mut port = DatagramPort::new(&flow(), false).unwrap();
        let mut burst = RxBurst::new();
        port.receive(&mut burst);
        assert_eq!(burst.handles.len(), RxBurst::CAPACITY);
        assert_eq!(port.frame(burst.handles[0]).bytes, flow().frame().unwrap());
        // The engine asks for the source.
        let back = Flow {
            source: flow().destination,
            source_mac: flow().destination_mac,
            destination: flow().source,
            ..flow()
        };
        let asked = back.arp_request().unwrap();
        port.send(&TxMeta::default(), &asked, &[]).unwrap();
        port.receive(&mut burst);
        let answer = port.frame(burst.handles[0]).bytes;
        assert_eq!(back.arp_answer(answer), Some(flow().source_mac));
        assert_eq!(flow().arp_answer(answer), None);
        port.receive(&mut burst);
        assert_eq!(port.frame(burst.handles[0]).bytes, flow().frame().unwrap());
    }

    #[test]
    fn a_silent_port_counts_what_is_sent() {
        let mut port = DatagramPort::new(&flow(), true).unwrap();
        let mut burst = RxBurst::new();
        port.receive(&mut burst);
        assert!(burst.handles.is_empty());
        port.send(&TxMeta::default(), &flow().frame().unwrap(), &[]).unwrap();
        assert_eq!((port.counters().tx_frames, port.counters().tx_bytes), (1, 1042));
    }
}
