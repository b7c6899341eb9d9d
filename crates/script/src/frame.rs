//! Frames out of packets, and back.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::checksum::Sum;
use wire::ethernet::{self, EtherType, EthernetHeader};
use wire::icmp::IcmpMessage;
use wire::icmpv6::Icmpv6Message;
use wire::ipv4::{self, Ipv4Header, Protocol};
use wire::ipv6::{self, Ipv6Header};
use wire::ndp::{self, NdpMessage};
use wire::udp::UdpHeader;
use wire::{MacAddr, arp};

use crate::errors::FrameError;
use crate::layers::is_background;
use crate::script::{IcmpError, Mark, Segment, TcpOption};
use crate::system::{LOCAL, LOCAL6, REMOTE, REMOTE_MAC, REMOTE6, local, remote};

/// Bytes of a TCP header without options.
const TCP_LEN: usize = 20;

/// The byte at `offset` of every stream and datagram of a script.
pub fn pattern(offset: u64) -> u8 {
    (offset.wrapping_mul(7) >> 3 ^ offset) as u8
}

/// So many bytes of the pattern.
pub fn patterned(offset: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| pattern(offset.wrapping_add(at))).collect()
}

/// Ports of a packet, the peer's and the host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The peer's.
    pub remote: u16,
    /// The host's.
    pub local: u16,
    /// Over IPv6.
    pub v6: bool,
}

/// Options as they are on the wire, padded.
fn option_bytes(options: &[TcpOption]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for option in options {
        match option {
            TcpOption::End => bytes.push(0),
            TcpOption::Nop => bytes.push(1),
            TcpOption::Mss(mss) => {
                bytes.extend([2, 4]);
                bytes.extend(mss.to_be_bytes());
            }
            TcpOption::WindowScale(shift) => bytes.extend([3, 3, *shift]),
            TcpOption::SackPermitted => bytes.extend([4, 2]),
            TcpOption::Sack(blocks) => {
                bytes.extend([5, 2 + 8 * blocks.len() as u8]);
                for (left, right) in blocks {
                    bytes.extend(left.to_be_bytes());
                    bytes.extend(right.to_be_bytes());
                }
            }
            TcpOption::Timestamps { value, echo } => {
                bytes.extend([8, 10]);
                bytes.extend(value.to_be_bytes());
                bytes.extend(echo.to_be_bytes());
            }
            TcpOption::Other(kind, value) => {
                bytes.extend([*kind, 2 + value.len() as u8]);
                bytes.extend(value);
            }
        }
    }
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Options in order, as far as they can be read.
fn options_of(mut bytes: &[u8]) -> Vec<TcpOption> {
    let mut all = Vec::new();
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u32::from_be_bytes);
    while let Some((&kind, rest)) = bytes.split_first() {
        if kind == 0 {
            all.push(TcpOption::End);
            break;
        }
        if kind == 1 {
            all.push(TcpOption::Nop);
            bytes = rest;
            continue;
        }
        let Some(&len) = rest.first() else { break };
        let Some((option, next)) = bytes.split_at_checked(usize::from(len).max(2)) else { break };
        let value = option.get(2..).unwrap_or_default();
        all.push(match (kind, value) {
            (2, &[high, low]) => TcpOption::Mss(u16::from_be_bytes([high, low])),
            (3, &[shift]) => TcpOption::WindowScale(shift),
            (4, []) => TcpOption::SackPermitted,
            (5, blocks) if blocks.len().is_multiple_of(8) => TcpOption::Sack(
                blocks.chunks(8).map(|block| (word(&block[..4]), word(&block[4..]))).collect(),
            ),
            (8, times) if times.len() == 8 => {
                TcpOption::Timestamps { value: word(&times[..4]), echo: word(&times[4..]) }
            }
            _ => TcpOption::Other(kind, value.to_vec()),
        });
        bytes = next;
    }
    all
}

/// A TCP header with payload, checksum done.
fn tcp_bytes(ports: (u16, u16), segment: &Segment, payload: &[u8], marks: &[Mark]) -> Vec<u8> {
    let options = option_bytes(segment.options.as_deref().unwrap_or_default());
    let words = marks.iter().find_map(|mark| match mark {
        Mark::DataOffset(words) => Some(*words),
        _ => None,
    });
    let words = words.unwrap_or(((TCP_LEN + options.len()) / 4) as u8);
    let mut bytes = Vec::with_capacity(TCP_LEN + options.len() + payload.len());
    bytes.extend(ports.0.to_be_bytes());
    bytes.extend(ports.1.to_be_bytes());
    bytes.extend(segment.seq.to_be_bytes());
    bytes.extend(segment.ack.unwrap_or(0).to_be_bytes());
    bytes.extend([words << 4, segment.flags]);
    bytes.extend(segment.window.unwrap_or(0).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(segment.urgent.unwrap_or(0).to_be_bytes());
    bytes.extend(options);
    bytes.extend(payload);
    bytes
}

fn sum(from: IpAddr, to: IpAddr, protocol: Protocol, bytes: &[u8]) -> Sum {
    let pseudo = Sum::pseudo(from, to, protocol, bytes.len() as u32);
    pseudo.expect("both are of one family").then(Sum::of(bytes))
}

/// A segment from the peer with live numbers.
pub fn segment_from_peer(
    ports: Ports,
    segment: &Segment,
    payload: &[u8],
    marks: &[Mark],
) -> Vec<u8> {
    let mut bytes = tcp_bytes((ports.remote, ports.local), segment, payload, marks);
    let (from, to) = (remote(ports.v6), local(ports.v6));
    let mut checksum = sum(from, to, Protocol::TCP, &bytes).finish();
    if marks.contains(&Mark::BadSum) {
        checksum ^= 0x5555;
    }
    bytes[16..18].copy_from_slice(&checksum.to_be_bytes());
    packet_from_peer(ports.v6, Protocol::TCP, &bytes, marks)
}

/// A datagram from the peer.
pub fn datagram_from_peer(ports: Ports, payload: &[u8], marks: &[Mark]) -> Vec<u8> {
    let len = (8 + payload.len()) as u16;
    let header = UdpHeader { src_port: ports.remote, dst_port: ports.local, len, checksum: 0 };
    let mut bytes = vec![0; 8];
    header.emit(&mut bytes).expect("eight bytes are enough");
    bytes.extend(payload);
    let (from, to) = (remote(ports.v6), local(ports.v6));
    let mut checksum = sum(from, to, Protocol::UDP, &bytes).finish_udp();
    if marks.contains(&Mark::BadSum) {
        checksum ^= 0x5555;
    }
    if marks.contains(&Mark::NoSum) {
        checksum = 0;
    }
    if marks.iter().any(|mark| mark.gso().is_some()) {
        // Partial, as it is of what a link puts together.
        let pseudo = Sum::pseudo(from, to, Protocol::UDP, bytes.len() as u32);
        checksum = pseudo.expect("both are of one family").folded();
    }
    bytes[6..8].copy_from_slice(&checksum.to_be_bytes());
    packet_from_peer(ports.v6, Protocol::UDP, &bytes, marks)
}

/// An ICMP error of the peer about a segment (live numbers) or datagram of the host.
pub fn icmp_from_peer(
    ports: Ports,
    error: &IcmpError,
    quoted: Option<&Segment>,
    marks: &[Mark],
) -> Vec<u8> {
    let (protocol, transport, len) = match quoted {
        Some(segment) => {
            let bytes = tcp_bytes((ports.local, ports.remote), segment, &[], &[]);
            (Protocol::TCP, bytes, TCP_LEN + segment.len)
        }
        None => {
            let header =
                UdpHeader { src_port: ports.local, dst_port: ports.remote, len: 8, checksum: 0 };
            let mut bytes = vec![0; 8];
            header.emit(&mut bytes).expect("eight bytes are enough");
            (Protocol::UDP, bytes, 8)
        }
    };
    if ports.v6 {
        return icmpv6_from_peer(error, protocol, &transport, len, marks);
    }
    let header = Ipv4Header { protocol, src: LOCAL, dst: REMOTE, ..Ipv4Header::default() };
    let mut inner = vec![0; 20];
    header.emit(len, &mut inner).expect("twenty bytes are enough");
    inner.extend(transport);
    let message = match error.kind {
        3 => IcmpMessage::Unreachable { code: error.code, next_hop_mtu: error.mtu, quoted: &inner },
        11 => IcmpMessage::TimeExceeded { code: error.code, quoted: &inner },
        12 => IcmpMessage::ParameterProblem { code: error.code, pointer: 0, quoted: &inner },
        kind => return source_quench(kind, error.code, &inner, marks),
    };
    let mut bytes = vec![0; 8 + inner.len()];
    message.emit(&mut bytes).expect("the message fits its own length");
    packet_from_peer(false, Protocol::ICMP, &bytes, marks)
}

/// The same over IPv6.
fn icmpv6_from_peer(
    error: &IcmpError,
    protocol: Protocol,
    transport: &[u8],
    len: usize,
    marks: &[Mark],
) -> Vec<u8> {
    let header = Ipv6Header {
        traffic_class: 0,
        flow_label: 0,
        next_header: protocol,
        hop_limit: 64,
        src: LOCAL6,
        dst: REMOTE6,
    };
    let mut inner = vec![0; ipv6::HEADER_LEN];
    header.emit(len, &mut inner).expect("forty bytes are enough");
    inner.extend(transport);
    let IcmpError { code, mtu, .. } = *error;
    let quoted = &inner[..];
    let message = match error.kind {
        1 => Icmpv6Message::Unreachable { code, quoted },
        2 => Icmpv6Message::PacketTooBig { mtu: mtu.into(), quoted },
        3 => Icmpv6Message::TimeExceeded { code, quoted },
        _ => Icmpv6Message::ParameterProblem { code, pointer: 0, quoted },
    };
    let mut bytes = vec![0; 8 + quoted.len()];
    message.emit(REMOTE6, LOCAL6, &mut bytes).expect("the message fits its own length");
    packet_from_peer(true, Protocol::ICMPV6, &bytes, marks)
}

fn source_quench(kind: u8, code: u8, inner: &[u8], marks: &[Mark]) -> Vec<u8> {
    let mut bytes = vec![kind, code, 0, 0, 0, 0, 0, 0];
    bytes.extend(inner);
    let checksum = Sum::of(&bytes).finish();
    bytes[2..4].copy_from_slice(&checksum.to_be_bytes());
    packet_from_peer(false, Protocol::ICMP, &bytes, marks)
}

/// An IP packet from the peer in a frame; the destination's link address is left open.
fn packet_from_peer(v6: bool, protocol: Protocol, payload: &[u8], marks: &[Mark]) -> Vec<u8> {
    let mut header = Ipv4Header { protocol, src: REMOTE, dst: LOCAL, ..Ipv4Header::default() };
    let mut end = payload.len();
    for mark in marks {
        match mark {
            Mark::Ecn(bits) => header.tos = header.tos & !3 | bits,
            Mark::Tos(tos) => header.tos = *tos,
            Mark::Ttl(ttl) => header.ttl = *ttl,
            Mark::DontFragment(df) => header.dont_fragment = *df,
            Mark::Truncated(len) => end = end.min(*len),
            _ => {}
        }
    }
    let payload = &payload[..end];
    if v6 {
        let Ipv4Header { tos, ttl, .. } = header;
        let header = Ipv6Header {
            traffic_class: tos,
            flow_label: 0,
            next_header: protocol,
            hop_limit: ttl,
            src: REMOTE6,
            dst: LOCAL6,
        };
        let mut packet = vec![0; ipv6::HEADER_LEN];
        header.emit(payload.len(), &mut packet).expect("a script's packet is not too long for IP");
        packet.extend(payload);
        return framed(EtherType::IPV6, &packet);
    }
    let mut packet = vec![0; 20];
    header.emit(payload.len(), &mut packet).expect("a script's packet is not too long for IP");
    if marks.contains(&Mark::BadIpSum) {
        packet[10] ^= 0x55;
    }
    packet.extend(payload);
    framed(EtherType::IPV4, &packet)
}

fn framed(ethertype: EtherType, packet: &[u8]) -> Vec<u8> {
    let header = EthernetHeader { dst: MacAddr::ZERO, src: REMOTE_MAC, vlan: None, ethertype };
    let mut frame = vec![0; header.header_len()];
    header.emit(&mut frame).expect("the header fits its own length");
    frame.extend(packet);
    frame
}

/// Where a UDP header has its checksum.
pub const UDP_CHECKSUM: u16 = 6;

/// Where the header of layer 4 is in a frame of the peer's, which has no options and no tag.
pub fn transport_start(frame: &[u8]) -> u16 {
    14 + if frame.get(12..14) == Some(&[0x86, 0xdd]) { 40 } else { 20 }
}

/// Fills in where a frame goes.
pub fn address_to(frame: &mut [u8], host: MacAddr) {
    if let Some(place) = frame.get_mut(..6) {
        place.copy_from_slice(&host.0);
    }
}

/// The same, where the frame leaves it open.
pub fn address_if_open(frame: &mut [u8], host: MacAddr) {
    if frame.get(..6) == Some(&[0; 6]) {
        address_to(frame, host);
    }
}

/// The peer's question or answer who has an address; it has that of `sender_ip`.
fn arp_from_peer(
    operation: arp::Operation,
    sender_ip: Ipv4Addr,
    (target_mac, target_ip): (MacAddr, Ipv4Addr),
) -> Vec<u8> {
    let packet =
        arp::ArpPacket { operation, sender_mac: REMOTE_MAC, sender_ip, target_mac, target_ip };
    let mut bytes = vec![0; arp::LEN];
    packet.emit(&mut bytes).expect("the packet fits its own length");
    let mut frame = framed(EtherType::ARP, &bytes);
    let broadcast = target_mac == MacAddr::ZERO;
    address_to(&mut frame, if broadcast { MacAddr::BROADCAST } else { target_mac });
    frame
}

/// The peer's question who has the host's address: it teaches the host the peer's, too.
pub fn arp_question() -> Vec<u8> {
    arp_from_peer(arp::Operation::REQUEST, REMOTE, (MacAddr::ZERO, LOCAL))
}

/// The peer's answer when a frame asks for the peer's link address.
pub fn peer_answer(frame: &[u8]) -> Option<Vec<u8>> {
    neighbor_answer(frame, &|address| address == REMOTE || address == REMOTE6)
}

/// The peer's answer when a frame asks for the link address of one of its addresses, of either
/// family.
pub fn neighbor_answer(frame: &[u8], is_peer: &dyn Fn(IpAddr) -> bool) -> Option<Vec<u8>> {
    let (header, rest) = ethernet::parse(frame).ok()?;
    if header.ethertype == EtherType::IPV6 {
        return advertisement(rest, header.src, is_peer);
    }
    if header.ethertype != EtherType::ARP {
        return None;
    }
    let asked = arp::parse(rest).ok()?;
    (asked.operation == arp::Operation::REQUEST && is_peer(asked.target_ip.into())).then(|| {
        let host = (asked.sender_mac, asked.sender_ip);
        arp_from_peer(arp::Operation::REPLY, asked.target_ip, host)
    })
}

/// The answer to a neighbour solicitation, unless the host only looks whether an address is free.
fn advertisement(
    packet: &[u8],
    host: MacAddr,
    is_peer: &dyn Fn(IpAddr) -> bool,
) -> Option<Vec<u8>> {
    let (ip, body) = ipv6::parse(packet).ok()?;
    if ip.next_header != Protocol::ICMPV6 || ip.src.is_unspecified() {
        return None;
    }
    // Behind type, code and checksum, which is the host's business.
    let (&kind, message) = (body.first()?, body.get(4..)?);
    let NdpMessage::NeighborSolicitation { target, .. } = ndp::parse(kind, message).ok()? else {
        return None;
    };
    if !is_peer(target.into()) {
        return None;
    }
    let answer = NdpMessage::NeighborAdvertisement {
        router: false,
        solicited: true,
        overrides: true,
        target,
        link_address: Some(REMOTE_MAC),
    };
    let mut bytes = [0; 64];
    let len = answer.emit(target, ip.src, &mut bytes).expect("32 bytes fit");
    let header = Ipv6Header { src: target, dst: ip.src, ..ip };
    let mut packet = vec![0; ipv6::HEADER_LEN];
    header.emit(len, &mut packet).expect("the header fits its own length");
    packet.extend(bytes.get(..len).unwrap_or_default());
    let mut frame = framed(EtherType::IPV6, &packet);
    address_to(&mut frame, host);
    Some(frame)
}

/// A packet of the peer's, from its IP header on, as a frame without the host's link address.
pub fn packet_frame(packet: &[u8]) -> Vec<u8> {
    let v6 = packet.first().is_some_and(|first| first >> 4 == 6);
    framed(if v6 { EtherType::IPV6 } else { EtherType::IPV4 }, packet)
}

/// The IP packet of a frame that came out, unless it is about the link itself.
pub fn packet_of(frame: &[u8]) -> Option<&[u8]> {
    let (header, rest) = ethernet::parse(frame).ok()?;
    match header.ethertype {
        EtherType::IPV4 => Some(rest),
        EtherType::IPV6 => {
            let (ip, _) = ipv6::parse(rest).ok()?;
            (!ip.dst.is_multicast()).then_some(rest)
        }
        _ => None,
    }
}

/// Bytes of payload of a packet's TCP segment, from its IP header on; 0 where there is none.
pub fn payload_len(packet: &[u8]) -> usize {
    let (ip_len, protocol) = match packet.first().map(|first| first >> 4) {
        Some(4) => (usize::from(packet[0] & 15) * 4, packet.get(9)),
        Some(6) => (40, packet.get(6)),
        _ => return 0,
    };
    if protocol != Some(&6) {
        return 0;
    }
    let tcp_len = packet.get(ip_len + 12).map_or(0, |offset| usize::from(offset >> 4) * 4);
    packet.len().saturating_sub(ip_len + tcp_len)
}

/// Cuts a large TCP frame into segments of `size` bytes of payload, with complete checksums. One
/// that is none stays as it is.
pub fn cut(bytes: &[u8], size: usize) -> Vec<Vec<u8>> {
    let whole = || vec![bytes.to_vec()];
    let Ok((header, packet)) = ethernet::parse(bytes) else { return whole() };
    let ip_at = bytes.len() - packet.len();
    let is_v4 = header.ethertype == EtherType::IPV4;
    let ip_len = match packet.first() {
        Some(first) if is_v4 => usize::from(first & 15) * 4,
        _ => 40,
    };
    let tcp_at = ip_at + ip_len;
    let Some(offset) = bytes.get(tcp_at + 12) else { return whole() };
    let header_bytes = tcp_at + usize::from(offset >> 4) * 4;
    let (Some(head), Some(payload)) = (bytes.get(..header_bytes), bytes.get(header_bytes..)) else {
        return whole();
    };
    let parts: Vec<&[u8]> = payload.chunks(size.max(1)).collect();
    let mut cut = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let mut frame = [head, part].concat();
        let len = frame.len();
        let (ip, segment) = frame.split_at_mut(tcp_at);
        let ip = &mut ip[ip_at..];
        let seq = u32::from_be_bytes([segment[4], segment[5], segment[6], segment[7]]);
        segment[4..8].copy_from_slice(&seq.wrapping_add((index * size) as u32).to_be_bytes());
        // FIN and PSH are the last one's, CWR is the first one's.
        segment[13] &= if index + 1 < parts.len() { !0x09 } else { 0xff };
        segment[13] &= if index > 0 { !0x80 } else { 0xff };
        segment[16..18].fill(0);
        let tcp_len = (len - tcp_at) as u32;
        let pseudo = if is_v4 {
            let address = |at: usize| Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3]);
            let (src, dst) = (address(12), address(16));
            ip[2..4].copy_from_slice(&((len - ip_at) as u16).to_be_bytes());
            ip[10..12].fill(0);
            let sum = Sum::of(ip).finish();
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            Sum::pseudo_v4(src, dst, Protocol::TCP, tcp_len)
        } else {
            let address = |at: usize| {
                let mut octets = [0; 16];
                octets.copy_from_slice(&ip[at..at + 16]);
                Ipv6Addr::from(octets)
            };
            let (src, dst) = (address(8), address(24));
            ip[4..6].copy_from_slice(&(tcp_len as u16).to_be_bytes());
            Sum::pseudo_v6(src, dst, Protocol::TCP, tcp_len)
        };
        let sum = pseudo.then(Sum::of(segment)).finish();
        segment[16..18].copy_from_slice(&sum.to_be_bytes());
        cut.push(frame);
    }
    if cut.is_empty() { whole() } else { cut }
}

/// What came out of the host.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its ports; zero for ICMP.
    pub ports: Ports,
    /// Type of service or traffic class.
    pub tos: u8,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// Routers may not cut it.
    pub df: bool,
    /// What it carries.
    pub body: SeenBody,
}

/// What a packet that came out carries.
#[derive(Clone, Debug)]
pub enum SeenBody {
    /// A segment with live numbers, and its payload.
    Tcp(Segment, Vec<u8>),
    /// A datagram.
    Udp(Vec<u8>),
    /// ICMP.
    Icmp {
        /// Its type.
        kind: u8,
        /// Its code.
        code: u8,
    },
}

/// Reads a frame of the host; `None` for what is not from its address to the peer's, or has no words
/// of its own (fragments, neighbour discovery).
///
/// # Errors
/// For what no host may send.
pub fn read(frame: &[u8]) -> Option<Result<Seen, FrameError>> {
    let (header, rest) = ethernet::parse(frame).ok()?;
    match header.ethertype {
        EtherType::IPV4 => {
            let packet = match ipv4::parse(rest) {
                Ok(packet) => packet,
                Err(why) => {
                    let what = format!("an IP packet came out of which {why}");
                    return Some(Err(FrameError(what)));
                }
            };
            let Ipv4Header { tos, ttl, protocol, src, dst, dont_fragment: df, .. } = packet.header;
            if (src, dst) != (LOCAL, REMOTE) || packet.header.is_fragment() {
                return None;
            }
            let ip = SeenIp { src: src.into(), dst: dst.into(), protocol, tos, ttl, df };
            Some(transport(&ip, packet.payload).map_err(FrameError))
        }
        EtherType::IPV6 => {
            let (header, payload) = match ipv6::parse(rest) {
                Ok(parts) => parts,
                Err(why) => {
                    let what = format!("an IP packet came out of which {why}");
                    return Some(Err(FrameError(what)));
                }
            };
            let chain = ipv6::walk(header.next_header, payload, 0).ok()?;
            let ends = (header.src, header.dst);
            if ends != (LOCAL6, REMOTE6) || chain.fragment.is_some() || is_background(frame) {
                return None;
            }
            let ip = SeenIp {
                src: header.src.into(),
                dst: header.dst.into(),
                protocol: chain.protocol,
                tos: header.traffic_class,
                ttl: header.hop_limit,
                df: true,
            };
            Some(transport(&ip, chain.payload).map_err(FrameError))
        }
        _ => None,
    }
}

/// What the IP header of a packet that came out says.
struct SeenIp {
    src: IpAddr,
    dst: IpAddr,
    protocol: Protocol,
    tos: u8,
    ttl: u8,
    df: bool,
}

fn transport(ip: &SeenIp, bytes: &[u8]) -> Result<Seen, String> {
    let SeenIp { tos, ttl, df, .. } = *ip;
    let v6 = ip.src.is_ipv6();
    let word = |at: usize| -> Result<u32, String> {
        let word = bytes.get(at..at + 4).ok_or("a header came out that is too short")?;
        Ok(u32::from_be_bytes([word[0], word[1], word[2], word[3]]))
    };
    let valid = || sum(ip.src, ip.dst, ip.protocol, bytes).is_valid();
    let (local, remote) = ((word(0)? >> 16) as u16, word(0)? as u16);
    let ports = Ports { remote, local, v6 };
    match ip.protocol {
        Protocol::TCP => {
            if !valid() {
                return Err("a segment came out with a wrong checksum".into());
            }
            let fifth = word(12)?;
            let start = (fifth >> 28) as usize * 4;
            let payload = bytes.get(start..).ok_or("a TCP header came out that is too long")?;
            let flags = (fifth >> 16) as u8;
            let segment = Segment {
                flags,
                seq: word(4)?,
                len: payload.len(),
                ack: (flags & 16 != 0).then_some(word(8)?),
                window: Some(fifth as u16),
                urgent: (flags & 32 != 0).then_some(word(16)? as u16),
                options: Some(options_of(bytes.get(TCP_LEN..start).unwrap_or_default())),
            };
            Ok(Seen { ports, tos, ttl, df, body: SeenBody::Tcp(segment, payload.to_vec()) })
        }
        Protocol::UDP => {
            if bytes.get(6..8) != Some(&[0, 0]) && !valid() {
                return Err("a datagram came out with a wrong checksum".into());
            }
            let payload = bytes.get(8..).unwrap_or_default().to_vec();
            Ok(Seen { ports, tos, ttl, df, body: SeenBody::Udp(payload) })
        }
        Protocol::ICMP | Protocol::ICMPV6 => {
            if v6 && !valid() {
                return Err("an ICMPv6 message came out with a wrong checksum".into());
            }
            let first = word(0)?;
            let (kind, code) = ((first >> 24) as u8, (first >> 16) as u8);
            let ports = Ports { remote: 0, local: 0, v6 };
            Ok(Seen { ports, tos, ttl, df, body: SeenBody::Icmp { kind, code } })
        }
        Protocol(number) => Err(format!("a packet of protocol {number} came out")),
    }
}
