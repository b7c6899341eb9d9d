//! Frames as the link and the adversary see them: finishing, cutting and making them.

use std::net::Ipv4Addr;

use port::TxMeta;
use wire::ethernet::{EtherType, EthernetHeader};
use wire::ipv4::{Ipv4Header, Protocol};
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

/// Cuts a large TCP frame into segments of `size` bytes of payload.
pub fn cut(bytes: &[u8], header_bytes: usize, size: usize) -> Vec<Vec<u8>> {
    let (header, payload) = bytes.split_at(header_bytes);
    let tcp_at = ETHERNET_BYTES + ipv4::HEADER_LEN;
    let count = payload.len().div_ceil(size).max(1);
    (0..count)
        .map(|index| {
            let part = &payload[index * size..payload.len().min((index + 1) * size)];
            let mut frame = [header, part].concat();
            let ip_len = (frame.len() - ETHERNET_BYTES) as u16;
            let ip = &mut frame[ETHERNET_BYTES..tcp_at];
            ip[2..4].copy_from_slice(&ip_len.to_be_bytes());
            let id = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(index as u16);
            ip[4..6].copy_from_slice(&id.to_be_bytes());
            ip[10..12].fill(0);
            let sum = Sum::of(ip).finish();
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
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
    let tcp_at = ETHERNET_BYTES + ipv4::HEADER_LEN;
    let Some(ip) = frame.get(ETHERNET_BYTES..tcp_at) else { return };
    let src = Ipv4Addr::new(ip[12], ip[13], ip[14], ip[15]);
    let dst = Ipv4Addr::new(ip[16], ip[17], ip[18], ip[19]);
    let segment = &mut frame[tcp_at..];
    if segment.len() < tcp::HEADER_LEN {
        return;
    }
    segment[16..18].fill(0);
    let pseudo = Sum::pseudo_v4(src, dst, Protocol::TCP, segment.len() as u32);
    let sum = pseudo.then(Sum::of(segment)).finish();
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
}

/// An IPv4 packet in a frame.
pub fn packet(from: MacAddr, to: MacAddr, header: Ipv4Header, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; ETHERNET_BYTES + ipv4::HEADER_LEN];
    let ethernet = EthernetHeader { dst: to, src: from, vlan: None, ethertype: EtherType::IPV4 };
    ethernet.emit(&mut frame).expect("there is room for the Ethernet header");
    header
        .emit(payload.len(), &mut frame[ETHERNET_BYTES..])
        .expect("there is room for the IPv4 header");
    frame.extend_from_slice(payload);
    frame
}

/// A TCP segment in a frame, as far as it is one.
pub struct TcpFrame<'a> {
    /// The Ethernet header.
    pub ethernet: EthernetHeader,
    /// The IP header.
    pub ip: Ipv4Header,
    /// The segment.
    pub segment: TcpSegment<'a>,
}

/// Reads a frame that carries TCP.
pub fn as_tcp(frame: &[u8]) -> Option<TcpFrame<'_>> {
    let (ethernet, rest) = ethernet::parse(frame).ok()?;
    if ethernet.ethertype != EtherType::IPV4 {
        return None;
    }
    let packet = ipv4::parse(rest).ok()?;
    if packet.header.protocol != Protocol::TCP || packet.header.is_fragment() {
        return None;
    }
    let segment = tcp::parse(packet.payload).ok()?;
    Some(TcpFrame { ethernet, ip: packet.header, segment })
}
