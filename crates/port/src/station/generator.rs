//! Frames generated from a template: equal except for a number and a time, which are where iperf 2
//! has those of its datagrams.

use std::net::SocketAddrV4;

use wire::MacAddr;
use wire::checksum::Sum;
use wire::ethernet::{EtherType, EthernetHeader};
use wire::ipv4::{Ipv4Header, Protocol};
use wire::udp::{self, UdpHeader};

use super::pace::Pace;
use super::{STATION, StationFacts, wire_bits};
use crate::interface::RxBurst;

/// IEEE 802 local experimental EtherType 1.
const EXPERIMENTAL: EtherType = EtherType(0x88b5);
const ETHERNET_BYTES: usize = wire::ethernet::HEADER_LEN;
/// Offset of a datagram, after Ethernet and IPv4.
const UDP_AT: usize = ETHERNET_BYTES + wire::ipv4::HEADER_LEN;
/// Number (u32), seconds (u32) and microseconds (u32), big-endian.
const STAMP_BYTES: usize = 12;
/// Bytes of one burst: they stay in the core's cache.
const BURST_BYTES_MAX: usize = 256 << 10;

/// Shortest frame with the headers of a datagram and the stamp.
pub(crate) const GENERATED_BYTES_MIN: usize = UDP_AT + udp::HEADER_LEN + STAMP_BYTES;

/// The generator of a `gen`'s frames.
pub(super) struct Generator {
    /// A burst of copies of the template, one after the other.
    bytes: Vec<u8>,
    frame_len: usize,
    stamp_at: usize,
    /// For a datagram, over all but the stamp.
    sum: Option<Sum>,
    pace: Pace,
    number: u32,
    /// Frames of the unreleased burst.
    made: usize,
    /// Discarded bits that do not make a whole frame yet.
    lost_bits: u64,
}

impl Generator {
    /// A generator of frames to `mac`.
    pub(super) fn new(facts: &StationFacts, mac: MacAddr) -> Self {
        let frame_len = facts.frame_len().max(GENERATED_BYTES_MIN);
        let count = (BURST_BYTES_MAX / frame_len).clamp(1, RxBurst::CAPACITY);
        let ends = facts.from.zip(facts.to);
        let mut template = vec![0; frame_len];
        let sum = lay_out(&mut template, mac, ends);
        Self {
            bytes: template.repeat(count),
            frame_len,
            stamp_at: if sum.is_some() { UDP_AT + udp::HEADER_LEN } else { ETHERNET_BYTES },
            sum,
            pace: Pace::new(facts.rate_bits, wire_bits(frame_len)),
            number: 0,
            made: 0,
            lost_bits: 0,
        }
    }

    /// Advances time, and returns the number of frames that were not fetched in time.
    pub(super) fn earn(&mut self, now_ns: u64) -> u64 {
        let bits = wire_bits(self.frame_len);
        let lost_bits = self.lost_bits + self.pace.earn(now_ns);
        self.lost_bits = lost_bits % bits;
        lost_bits / bits
    }

    /// Nanoseconds until the next frame is due.
    pub(super) fn until(&self) -> u64 {
        self.pace.until(wire_bits(self.frame_len))
    }

    /// Generates the due frames, at most `room`, and returns their number and bytes.
    pub(super) fn make(&mut self, room: usize, now_ns: u64) -> (usize, u64) {
        let bits = wire_bits(self.frame_len);
        self.made = 0;
        for frame in self.bytes.chunks_exact_mut(self.frame_len).take(room) {
            if !self.pace.spend(bits) {
                break;
            }
            let stamp = stamp(self.number, now_ns);
            if let Some(place) = frame.get_mut(self.stamp_at..self.stamp_at + STAMP_BYTES) {
                place.copy_from_slice(&stamp);
            }
            let checksum_at = UDP_AT + udp::CHECKSUM_OFFSET;
            let field = frame.get_mut(checksum_at..checksum_at + 2);
            if let (Some(sum), Some(field)) = (self.sum, field) {
                // The stamp comes first: the rest of an odd frame is not a whole number of words.
                let sum = Sum::of(&stamp).then(sum).finish_udp();
                field.copy_from_slice(&sum.to_be_bytes());
            }
            self.number = self.number.wrapping_add(1);
            self.made += 1;
        }
        (self.made, (self.made * self.frame_len) as u64)
    }

    /// A frame of the unreleased burst.
    pub(super) fn frame(&self, place: usize) -> Option<&[u8]> {
        let mut frames = self.bytes.chunks_exact(self.frame_len).take(self.made);
        frames.nth(place)
    }

    /// Drops the burst.
    pub(super) fn release(&mut self) {
        self.made = 0;
    }
}

fn stamp(number: u32, now_ns: u64) -> [u8; STAMP_BYTES] {
    let (seconds, microseconds) = (now_ns / 1_000_000_000, now_ns % 1_000_000_000 / 1_000);
    let mut stamp = [0; STAMP_BYTES];
    let words = [number, seconds as u32, microseconds as u32];
    for (place, word) in stamp.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_be_bytes());
    }
    stamp
}

/// Writes the headers. For a datagram returns the sum over all that its checksum covers.
fn lay_out(
    frame: &mut [u8],
    mac: MacAddr,
    ends: Option<(SocketAddrV4, SocketAddrV4)>,
) -> Option<Sum> {
    let ethertype = if ends.is_some() { EtherType::IPV4 } else { EXPERIMENTAL };
    let link = EthernetHeader { dst: mac, src: STATION, vlan: None, ethertype };
    link.emit(frame).ok()?;
    let (from, to) = ends?;
    let datagram_len = frame.len().checked_sub(UDP_AT)?;
    let header = Ipv4Header {
        tos: 0,
        // RFC 6864: without fragments it has no meaning.
        identification: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        ttl: 64,
        protocol: Protocol::UDP,
        src: *from.ip(),
        dst: *to.ip(),
    };
    header.emit(datagram_len, frame.get_mut(ETHERNET_BYTES..)?).ok()?;
    let len = u16::try_from(datagram_len).ok()?;
    let header = UdpHeader { src_port: from.port(), dst_port: to.port(), len, checksum: 0 };
    let datagram = frame.get_mut(UDP_AT..)?;
    header.emit(datagram).ok()?;
    let pseudo = Sum::pseudo_v4(*from.ip(), *to.ip(), Protocol::UDP, u32::from(len));
    Some(pseudo.then(Sum::of(datagram)))
}
