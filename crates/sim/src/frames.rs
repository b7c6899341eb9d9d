//! Frames as the link and the adversary see them: finishing, cutting and making them.

use std::net::IpAddr;

use port::TxMeta;
use wire::ethernet::{EtherType, EthernetHeader};
use wire::ipv4::{Ipv4Header, Protocol};
use wire::ipv6::{self, Ipv6Header};
use wire::tcp::TcpSegment;
use wire::{MacAddr, checksum, checksum::Sum, ethernet, ipv4, tcp};

/// Bytes of an Ethernet header.
pub const ETHERNET_BYTES: usize = 14;

/// The frame as it is on the wire: its checksum complete.
pub fn completed(mut bytes: Vec<u8>, meta: &TxMeta) -> Vec<u8> {
    if let Some((start, offset)) = meta.checksum {
        checksum::complete(&mut bytes, start.into(), offset.into())
            .expect("the stack's checksum lies within its frame");
    }
    bytes
}

/// Where TCP begins in a frame, and its addresses; `None` when it is no IP packet in one piece.
fn ends(frame: &[u8]) -> Option<(usize, IpAddr, IpAddr)> {
    let (_, packet) = ethernet::parse(frame).ok()?;
    match packet.first()? >> 4 {
        4 => {
            let ip = packet.first_chunk::<{ ipv4::HEADER_LEN }>()?;
            let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *ip;
            let at = ETHERNET_BYTES + ipv4::HEADER_LEN;
            Some((at, [s0, s1, s2, s3].into(), [d0, d1, d2, d3].into()))
        }
        6 => {
            let (header, _) = ipv6::parse(packet).ok()?;
            Some((ETHERNET_BYTES + ipv6::HEADER_LEN, header.src.into(), header.dst.into()))
        }
        _ => None,
    }
}

/// Cuts a large TCP frame into segments of `size` bytes of payload.
pub fn cut(bytes: &[u8], header_bytes: usize, size: usize) -> Vec<Vec<u8>> {
    let (header, payload) = bytes.split_at(header_bytes);
    let Some((tcp_at, src, _)) = ends(bytes) else { return Vec::new() };
    let count = payload.len().div_ceil(size).max(1);
    (0..count)
        .map(|index| {
            let part = &payload[index * size..payload.len().min((index + 1) * size)];
            let mut frame = [header, part].concat();
            let ip_len = (frame.len() - ETHERNET_BYTES) as u16;
            let ip = &mut frame[ETHERNET_BYTES..tcp_at];
            if src.is_ipv4() {
                ip[2..4].copy_from_slice(&ip_len.to_be_bytes());
                let id = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(index as u16);
                ip[4..6].copy_from_slice(&id.to_be_bytes());
                ip[10..12].fill(0);
                let sum = Sum::of(ip).finish();
                ip[10..12].copy_from_slice(&sum.to_be_bytes());
            } else {
                let len = ip_len - ipv6::HEADER_LEN as u16;
                ip[4..6].copy_from_slice(&len.to_be_bytes());
            }
            let segment = &mut frame[tcp_at..];
            let seq = u32::from_be_bytes([segment[4], segment[5], segment[6], segment[7]]);
            let seq = seq.wrapping_add((index * size) as u32);
            segment[4..8].copy_from_slice(&seq.to_be_bytes());
            if index + 1 < count {
                // FIN and PSH belong to the last segment.
                segment[13] &= !0x09;
            }
            finish_tcp(&mut frame);
            frame
        })
        .collect()
}

/// Computes the TCP checksum of a whole frame anew.
pub fn finish_tcp(frame: &mut [u8]) {
    let Some((tcp_at, src, dst)) = ends(frame) else { return };
    let segment = &mut frame[tcp_at..];
    if segment.len() < tcp::HEADER_LEN {
        return;
    }
    segment[16..18].fill(0);
    let Some(pseudo) = Sum::pseudo(src, dst, Protocol::TCP, segment.len() as u32) else { return };
    let sum = pseudo.then(Sum::of(segment)).finish();
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
}

/// An IP packet with a plain header in a frame.
pub fn packet(
    (from, to): (MacAddr, MacAddr),
    (src, dst): (IpAddr, IpAddr),
    protocol: Protocol,
    payload: &[u8],
) -> Vec<u8> {
    let ethertype = if src.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
    let ethernet = EthernetHeader { dst: to, src: from, vlan: None, ethertype };
    let mut frame = vec![0; ETHERNET_BYTES + ipv6::HEADER_LEN];
    ethernet.emit(&mut frame).expect("there is room for the Ethernet header");
    let room = &mut frame[ETHERNET_BYTES..];
    let len = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            Ipv4Header { protocol, src, dst, ..Ipv4Header::default() }.emit(payload.len(), room)
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let (traffic_class, flow_label, next_header, hop_limit) = (0, 0, protocol, 64);
            let header = Ipv6Header { traffic_class, flow_label, next_header, hop_limit, src, dst };
            header.emit(payload.len(), room)
        }
        _ => panic!("both addresses are of one family"),
    };
    frame.truncate(ETHERNET_BYTES + len.expect("there is room for the IP header"));
    frame.extend_from_slice(payload);
    frame
}

/// A TCP segment in a frame, as far as it is one.
pub struct TcpFrame<'a> {
    /// The Ethernet header.
    pub ethernet: EthernetHeader,
    /// Who sends it.
    pub src: IpAddr,
    /// To whom.
    pub dst: IpAddr,
    /// The segment.
    pub segment: TcpSegment<'a>,
}

/// Reads a frame that carries TCP.
pub fn as_tcp(frame: &[u8]) -> Option<TcpFrame<'_>> {
    let (ethernet, rest) = ethernet::parse(frame).ok()?;
    let (src, dst, protocol, payload): (IpAddr, IpAddr, _, _) = match ethernet.ethertype {
        EtherType::IPV4 => {
            let packet = ipv4::parse(rest).ok().filter(|packet| !packet.header.is_fragment())?;
            let Ipv4Header { src, dst, protocol, .. } = packet.header;
            (src.into(), dst.into(), protocol, packet.payload)
        }
        EtherType::IPV6 => {
            let (header, payload) = ipv6::parse(rest).ok()?;
            (header.src.into(), header.dst.into(), header.next_header, payload)
        }
        _ => return None,
    };
    if protocol != Protocol::TCP {
        return None;
    }
    let segment = tcp::parse(payload).ok()?;
    Some(TcpFrame { ethernet, src, dst, segment })
}
