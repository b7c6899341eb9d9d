//! Somebody else on the link: pings, replays old frames, and sends what nobody should. None of
//! it may harm a connection.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use port::RxMeta;
use wire::arp::{ArpPacket, Operation};
use wire::ethernet::{EtherType, EthernetHeader};
use wire::icmp::{Echo, IcmpMessage};
use wire::icmpv6::Icmpv6Message;
use wire::ipv4::Protocol;
use wire::ndp::NdpMessage;
use wire::tcp::{SeqNumber, TcpFlags, TcpHeader, TcpOptions};
use wire::{arp, ethernet, icmp, icmpv6, ipv4, ipv6, ndp};

use crate::coverage::Coverage;
use crate::frames::{ETHERNET_BYTES, TcpFrame, as_tcp, finish_tcp, packet};
use crate::network::{ADVERSARY_MAC, Network, Station, mac_of};
use crate::port::Arrived;
use crate::program::{STREAM_PORT, address_of};
use crate::random::Random;
use crate::sim::{SETTLES_NS, START};
use crate::swarm::{MS, SECOND};
use crate::violation::Violation;

const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 99);
const OWN6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x99);

/// Its address.
pub fn address(v6: bool) -> IpAddr {
    if v6 { OWN6.into() } else { OWN.into() }
}

/// For experiments (RFC 3692), of which there are none.
const EXPERIMENT: Protocol = Protocol(253);

/// Frames remembered for replay.
const MEMORY: usize = 64;

/// What the adversary acts in.
#[derive(Debug)]
pub struct Link<'a> {
    /// The time.
    pub now: u64,
    /// Carries its frames.
    pub network: &'a mut Network,
    /// Notes what happened.
    pub coverage: &'a mut Coverage,
}

/// The adversary.
#[derive(Debug)]
pub struct Adversary {
    random: Random,
    memory: Vec<(usize, Vec<u8>)>,
    /// Sender and receiver of segments whose sender has left the handshake behind.
    synchronized: HashSet<(SocketAddr, SocketAddr)>,
    pings: u16,
    hosts: usize,
    v6: bool,
}

impl Adversary {
    /// Of a run.
    pub fn new(seed: u64, hosts: usize, v6: bool) -> Self {
        Self {
            random: Random::new(seed, 3),
            memory: Vec::new(),
            synchronized: HashSet::new(),
            pings: 0,
            hosts,
            v6,
        }
    }

    /// Sees a frame (complete) on its way to host `to`, and maybe answers in its way.
    pub fn on_passing(&mut self, to: usize, frame: &[u8], link: Link<'_>) {
        let Link { now, network, coverage } = link;
        let tcp = as_tcp(frame);
        if let Some(tcp) = &tcp {
            self.note(tcp);
        }
        let r = &mut self.random;
        if r.chance(1, 4) {
            if self.memory.len() < MEMORY {
                self.memory.push((to, frame.to_vec()));
            } else {
                let place = r.below(MEMORY as u64) as usize;
                self.memory[place] = (to, frame.to_vec());
            }
        }
        if !r.chance(1, 12) {
            return;
        }
        let later = now + r.scale_free(3 * SECOND);
        let soon = now + r.scale_free(10 * MS);
        let mut put = |time, to, bytes, name: &str| {
            coverage.hit(name);
            let frame = Arrived { bytes, meta: RxMeta::default() };
            network.put(time, Station::Host(to), frame);
        };
        match r.below(8) {
            0 | 1 if !self.memory.is_empty() => {
                let place = r.below(self.memory.len() as u64) as usize;
                let (to, bytes) = self.memory[place].clone();
                put(later, to, bytes, "adversary: replay");
            }
            2 => {
                let mut bytes = frame.to_vec();
                bytes.truncate(r.below(frame.len() as u64) as usize);
                put(soon, to, bytes, "adversary: frame cut short");
            }
            3 => {
                let mut bytes = frame.to_vec();
                // The addresses stay, and what follows means nothing.
                for byte in bytes.iter_mut().skip(14) {
                    *byte = r.any() as u8;
                }
                put(soon, to, bytes, "adversary: garbage");
            }
            4 | 5 => {
                if let Some(tcp) = tcp {
                    let (src, dst) = ends(&tcp);
                    let is_synchronized = self.synchronized.contains(&(dst, src));
                    if let Some((bytes, name)) = forged(r, &tcp, is_synchronized) {
                        put(soon, to, bytes, name);
                    }
                }
            }
            6 => {
                self.pings = self.pings.wrapping_add(1);
                // Somebody who claimed an address that is being probed for would get it.
                let is_own = self.v6 && now >= START + SETTLES_NS;
                let (bytes, name) = match self.pings % 3 {
                    1 if is_own => (claim(to), "adversary: claim"),
                    2 if is_own => (unknown(to), "adversary: unknown header"),
                    _ => (ping(to, self.pings, self.v6), "adversary: ping"),
                };
                put(soon, to, bytes, name);
            }
            _ => {
                let bytes = syn(r, to, self.v6);
                put(soon, to, bytes, "adversary: SYN from nowhere");
            }
        }
    }

    fn note(&mut self, tcp: &TcpFrame<'_>) {
        let flags = tcp.segment.header.flags;
        if flags.syn() || flags.rst() {
            self.synchronized.remove(&ends(tcp));
        } else {
            self.synchronized.insert(ends(tcp));
        }
    }

    /// Takes a frame addressed to it, or to everybody: it answers questions for its address.
    pub fn on_frame(&mut self, frame: &[u8], link: Link<'_>) -> Result<(), Violation> {
        let Ok((header, rest)) = ethernet::parse(frame) else { return Ok(()) };
        if header.ethertype == EtherType::ARP {
            if let Ok(question) = arp::parse(rest)
                && question.operation == Operation::REQUEST
                && question.target_ip == OWN
            {
                self.answer(&header, &question, link);
            }
            return Ok(());
        }
        if header.ethertype == EtherType::IPV6 {
            return self.on_ipv6(&header, rest, link);
        }
        // Damaged on the way, if not a packet.
        let Ok(packet) = ipv4::parse(rest) else { return Ok(()) };
        if packet.header.protocol == Protocol::ICMP && !packet.header.is_fragment() {
            match icmp::parse(packet.payload) {
                Ok(IcmpMessage::EchoReply(echo)) => self.on_echo(echo, link.coverage)?,
                Ok(_) => {}
                // Damaged on the way.
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn on_echo(&self, echo: Echo<'_>, coverage: &mut Coverage) -> Result<(), Violation> {
        let Echo { sequence, data, .. } = echo;
        if data != ping_data(sequence) || sequence == 0 || sequence > self.pings {
            return Err(format!("a wrong answer to ping {sequence}").into());
        }
        coverage.hit("ping answered");
        Ok(())
    }

    fn on_ipv6(
        &mut self,
        header: &EthernetHeader,
        packet: &[u8],
        link: Link<'_>,
    ) -> Result<(), Violation> {
        let Ok((ip, payload)) = ipv6::parse(packet) else { return Ok(()) };
        if ip.next_header != Protocol::ICMPV6 {
            return Ok(());
        }
        match icmpv6::parse(ip.src, ip.dst, payload) {
            Ok(Icmpv6Message::EchoReply(echo)) => self.on_echo(echo, link.coverage),
            Ok(Icmpv6Message::Other { kind, body, .. }) if !ip.src.is_unspecified() => {
                if let Ok(NdpMessage::NeighborSolicitation { target: OWN6, .. }) =
                    ndp::parse(kind, body)
                    && let Some(host) = (0..self.hosts).find(|host| mac_of(*host) == header.src)
                {
                    let bytes = advertisement(host, ip.src, OWN6);
                    let frame = Arrived { bytes, meta: RxMeta::default() };
                    link.network.put(link.now + MS, Station::Host(host), frame);
                }
                Ok(())
            }
            // Of no interest, or damaged on the way.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn answer(&mut self, header: &EthernetHeader, question: &ArpPacket, link: Link<'_>) {
        let Some(host) = (0..self.hosts).find(|host| mac_of(*host) == header.src) else { return };
        let answer = ArpPacket {
            operation: Operation::REPLY,
            sender_mac: ADVERSARY_MAC,
            sender_ip: OWN,
            target_mac: question.sender_mac,
            target_ip: question.sender_ip,
        };
        let mut bytes = vec![0; 14 + arp::LEN];
        let ethernet = EthernetHeader { dst: header.src, src: ADVERSARY_MAC, ..*header };
        ethernet.emit(&mut bytes).expect("there is room for the Ethernet header");
        answer.emit(&mut bytes[14..]).expect("there is room for ARP");
        let frame = Arrived { bytes, meta: RxMeta::default() };
        link.network.put(link.now + MS, Station::Host(host), frame);
    }
}

fn ends(tcp: &TcpFrame<'_>) -> (SocketAddr, SocketAddr) {
    let TcpFrame { src, dst, segment, .. } = tcp;
    (SocketAddr::new(*src, segment.header.src_port), SocketAddr::new(*dst, segment.header.dst_port))
}

/// A segment like `tcp` that must do no harm: it fails RFC 5961's checks. `is_synchronized`: whoever
/// receives it has left the handshake behind. Before that, a SYN within the window ends the handshake
/// (RFC 9293, section 3.10.7.4), as with Linux.
fn forged(
    r: &mut Random,
    tcp: &TcpFrame<'_>,
    is_synchronized: bool,
) -> Option<(Vec<u8>, &'static str)> {
    let header = tcp.segment.header;
    if header.flags.syn() || header.flags.rst() {
        return None;
    }
    let len = tcp.segment.payload.len() as u32;
    let within =
        SeqNumber(header.seq.0.wrapping_add(len).wrapping_add(1 + 2 * r.below(700) as u32));
    let (forged, name) = match r.below(4) {
        0 => {
            // Inside the window, most often not where it starts.
            let seq = SeqNumber(within.0.wrapping_add(100_003));
            (TcpHeader { seq, flags: TcpFlags::RST, ..header }, "adversary: RST")
        }
        1 if !is_synchronized => return None,
        1 => (TcpHeader { seq: within, flags: TcpFlags::SYN, ..header }, "adversary: SYN"),
        2 => {
            let ack = SeqNumber(header.ack.0.wrapping_add(1 << 30));
            (TcpHeader { ack, flags: TcpFlags::ACK, ..header }, "adversary: ACK of the future")
        }
        _ => {
            let seq = SeqNumber(header.seq.0.wrapping_sub(1 << 29));
            (TcpHeader { seq, flags: TcpFlags::ACK, ..header }, "adversary: old bytes")
        }
    };
    let mut segment = [0; 60];
    let written = forged.emit(&TcpOptions::NONE, &mut segment).ok()?;
    let macs = (tcp.ethernet.src, tcp.ethernet.dst);
    let mut bytes = packet(macs, (tcp.src, tcp.dst), Protocol::TCP, &segment[..written]);
    finish_tcp(&mut bytes);
    Some((bytes, name))
}

fn ping_data(sequence: u16) -> Vec<u8> {
    (0..100u16).map(|at| (at.wrapping_mul(7) ^ sequence) as u8).collect()
}

fn ping(to: usize, sequence: u16, v6: bool) -> Vec<u8> {
    let data = ping_data(sequence);
    let mut message = vec![0; 8 + data.len()];
    let echo = Echo { identifier: 7, sequence, data: &data };
    let (dst, macs) = (address_of(to, v6), (ADVERSARY_MAC, mac_of(to)));
    let (written, protocol) = match dst {
        IpAddr::V4(_) => (IcmpMessage::EchoRequest(echo).emit(&mut message), Protocol::ICMP),
        IpAddr::V6(dst) => {
            let written = Icmpv6Message::EchoRequest(echo).emit(OWN6, dst, &mut message);
            (written, Protocol::ICMPV6)
        }
    };
    written.expect("there is room for the ping");
    packet(macs, (address(v6), dst), protocol, &message)
}

/// That a host's address is the adversary's.
fn claim(to: usize) -> Vec<u8> {
    match address_of(to, true) {
        IpAddr::V6(own) => advertisement(to, own, own),
        IpAddr::V4(_) => Vec::new(),
    }
}

/// A packet of a kind that nobody knows.
fn unknown(to: usize) -> Vec<u8> {
    let macs = (ADVERSARY_MAC, mac_of(to));
    packet(macs, (OWN6.into(), address_of(to, true)), EXPERIMENT, b"of no kind")
}

/// That an address is the adversary's.
fn advertisement(to: usize, dst: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    let message = NdpMessage::NeighborAdvertisement {
        router: false,
        solicited: true,
        overrides: true,
        target,
        link_address: Some(ADVERSARY_MAC),
    };
    let mut bytes = [0; 64];
    let len = message.emit(OWN6, dst, &mut bytes).expect("there is room for the message");
    let macs = (ADVERSARY_MAC, mac_of(to));
    let mut frame = packet(macs, (OWN6.into(), dst.into()), Protocol::ICMPV6, &bytes[..len]);
    // Neighbours are told from others by that (RFC 4861, section 7.1.2).
    frame[ETHERNET_BYTES + 7] = ndp::HOP_LIMIT;
    frame
}

/// A SYN that seems to come from afar, where nobody answers.
pub fn forged_syn(r: &mut Random, to: usize, v6: bool) -> Vec<u8> {
    let far = match v6 {
        false => IpAddr::from([192, 0, 2, r.any() as u8]),
        true => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, r.any() as u16]),
    };
    syn_from(r, far, to, v6)
}

fn syn(r: &mut Random, to: usize, v6: bool) -> Vec<u8> {
    // From the adversary or from somebody who never answers.
    let src = match r.chance(1, 2) {
        true => address(v6),
        false => address_of(r.between(100, 250) as usize - 1, v6),
    };
    syn_from(r, src, to, v6)
}

fn syn_from(r: &mut Random, src: IpAddr, to: usize, v6: bool) -> Vec<u8> {
    let header = TcpHeader {
        src_port: r.between(1024, 65_535) as u16,
        dst_port: STREAM_PORT,
        seq: SeqNumber(r.any() as u32),
        flags: TcpFlags::SYN,
        window: 1000,
        ..TcpHeader::default()
    };
    let mut segment = [0; 60];
    let options = TcpOptions { mss: Some(1000), ..TcpOptions::NONE };
    let written = header.emit(&options, &mut segment).expect("there is room for the segment");
    let dst = address_of(to, v6);
    let macs = (ADVERSARY_MAC, mac_of(to));
    let mut bytes = packet(macs, (src, dst), Protocol::TCP, &segment[..written]);
    finish_tcp(&mut bytes);
    bytes
}
