//! Descriptors: 16 bytes that name a span of a buffer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::region::Region;
use crate::sync::Ordering;

/// In place of a buffer's number: this plus the number of the registered memory.
pub const REGISTERED: u32 = 1 << 31;

/// Bits of a place that are its offset; those above are the number of a registered memory.
pub(crate) const OFFSET_BITS: u32 = 48;

/// Bytes of a region or of registered memory: where and how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// From the region's start; of registered memory a place: its number above 48 bits of offset.
    pub offset: u64,
    /// In bytes.
    pub len: u32,
}

impl Span {
    /// The part from `start` on, at most `len` bytes; empty at the end.
    pub fn part(self, start: u32, len: u32) -> Self {
        let start = start.min(self.len);
        Self { offset: self.offset + u64::from(start), len: len.min(self.len - start) }
    }
}

/// What a descriptor's span holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DescriptorKind {
    /// The next bytes of a stream.
    Data = 1,
    /// The stream ends after what came before; no span.
    Fin = 2,
    /// A [`DatagramHeader`] and a payload.
    Datagram = 3,
    /// A page of a receive stream.
    Page = 4,
}

impl DescriptorKind {
    fn from_code(code: u8) -> Option<Self> {
        [Self::Data, Self::Fin, Self::Datagram, Self::Page]
            .into_iter()
            .find(|kind| *kind as u8 == code)
    }
}

bitflags::bitflags! {
    /// Flags of a descriptor.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct DescriptorFlags: u8 {
        /// The span's extent reaches to the buffer's end: nothing is carved behind it.
        const LAST = 1;
        /// The datagram goes on in the next descriptor's span, which has no header of its own.
        /// Of a stream: more is to follow at once, so that a partial segment may wait for it.
        const MORE = 2;
        /// The span's last byte is urgent.
        const URGENT = 4;
        /// What follows in the stream does not share a segment with it.
        const RECORD_END = 8;
        /// When the span's last byte is put into a segment is to be told.
        const STAMP_SCHEDULED = 16;
        /// When it is given to the port.
        const STAMP_SENT = 32;
        /// When it is acknowledged.
        const STAMP_ACKED = 64;
    }
}

impl DescriptorFlags {
    /// All that ask about times; four bits above are what a [`Stamp`](crate::request::Stamp) says.
    pub const STAMPS: Self = Self::STAMP_SCHEDULED.union(Self::STAMP_SENT).union(Self::STAMP_ACKED);
    /// How far [`Self::STAMPS`] lie above the bits of a [`Stamp`](crate::request::Stamp).
    pub const STAMP_SHIFT: u32 = 4;
}

/// A descriptor as copied from its slot, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// What the span holds.
    pub kind: DescriptorKind,
    /// Flags; unknown ones are dropped.
    pub flags: DescriptorFlags,
    /// In the session's own region, or in registered memory: the upper 16 bits of its offset are the
    /// memory's number, 0 for the region.
    pub span: Span,
}

/// What a slot held.
pub(crate) enum Slot {
    /// Not (yet) valid for this lap.
    Empty,
    /// A descriptor.
    Full(Descriptor),
    /// Valid, but not a descriptor of this contract.
    Malformed {
        /// The second word.
        word: u64,
    },
}

/// The lap of position `position` in a queue of `slots`.
fn lap(position: u64, slots: u32) -> u16 {
    (position / u64::from(slots)).wrapping_add(1) as u16
}

impl Descriptor {
    /// Writes slot `position` of the queue at `queue`.
    pub(crate) fn store(self, region: &Region, queue: usize, slots: u32, position: u64) {
        let slot = queue + (position % u64::from(slots)) as usize * 16;
        let word = u64::from(self.span.len)
            | u64::from(self.kind as u8) << 32
            | u64::from(self.flags.bits()) << 40
            | u64::from(lap(position, slots)) << 48;
        region.store(slot, self.span.offset, Ordering::Relaxed);
        // Pairs with the Acquire in `take`: whoever sees the lap sees the offset and what the
        // span holds.
        region.store(slot + 8, word, Ordering::Release);
    }

    /// Copies slot `position` of the queue at `queue`.
    pub(crate) fn take(region: &Region, queue: usize, slots: u32, position: u64) -> Slot {
        let slot = queue + (position % u64::from(slots)) as usize * 16;
        let word = region.load(slot + 8, Ordering::Acquire); // pairs with `store`
        if (word >> 48) as u16 != lap(position, slots) {
            return Slot::Empty;
        }
        let first = region.load(slot, Ordering::Relaxed);
        let Some(kind) = DescriptorKind::from_code((word >> 32) as u8) else {
            return Slot::Malformed { word };
        };
        let flags = DescriptorFlags::from_bits_truncate((word >> 40) as u8);
        let span = Span { offset: first, len: word as u32 };
        Slot::Full(Self { kind, flags, span })
    }

    /// Makes slot `position` invalid for every lap that can come next.
    pub(crate) fn clear(region: &Region, queue: usize, slots: u32, position: u64) {
        let slot = queue + (position % u64::from(slots)) as usize * 16;
        region.store(slot + 8, 0, Ordering::Relaxed);
    }
}

bitflags::bitflags! {
    /// Flags of a datagram.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct DatagramFlags: u16 {
        /// Sending: routers may not cut it (IPv4's DF), as far as it is not cut here.
        const DONT_FRAGMENT = 1;
        /// Sending: it is not cut here either; one that is too long is refused (EMSGSIZE).
        const WHOLE = 2;
        /// Sending: what routers say of the path is not heeded, only the link's MTU.
        const LINK_MTU = 4;
        /// Sending: without a checksum (SO_NO_CHECK, UDP_NO_CHECK6_TX).
        const NO_CHECKSUM = 8;
        /// Sending to a group: not to ourselves (IP_MULTICAST_LOOP taken back).
        const NO_LOOP = 16;
        /// Sending to a group: to ourselves alone (a TTL of 0).
        const STAYS_HERE = 64;
        /// Received: no datagram, but an [`ErrorReport`] and what it quotes.
        const ERROR = 32;
        /// A number of eight bytes stands behind the header. Received: when it came, nanoseconds of the
        /// monotonic clock. Sending: the number by which the program knows the datagram.
        const STAMPED = 128;
        /// Sending: when it is ready to go is to be told, by an [`ErrorReport`].
        const TELL_SCHEDULED = 256;
        /// Sending: when it is given to the port is to be told.
        const TELL_SENT = 512;
        /// Sending: what is told of it quotes the packet.
        const TELL_WHOLE = 1024;
    }
}

/// Bytes of a [`DatagramHeader`].
pub const DATAGRAM_HEADER_BYTES: u32 = 48;
/// Bytes of the number behind a header with [`DatagramFlags::STAMPED`].
pub const DATAGRAM_STAMP_BYTES: u32 = 8;
/// Bytes of an [`ErrorReport`].
pub const ERROR_REPORT_BYTES: usize = 32;

/// What stands before a datagram's payload in its span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramHeader {
    /// Sent to or received from; port 0 and an unspecified address: the connected peer.
    pub remote: SocketAddr,
    /// Sent from or received at; unspecified when sending: the socket's own.
    pub local: SocketAddr,
    /// Type of service or traffic class.
    pub tos: u8,
    /// TTL or hop limit; when sending, 0 for the socket's own.
    pub ttl: u8,
    /// Interface index, plus one; 0 unknown. Sending to a group or to everybody: through which.
    pub interface: u32,
    /// The payload is several datagrams of this size, the last maybe shorter; 0 for one.
    pub gso_bytes: u16,
    /// Flags; unknown ones are dropped.
    pub flags: DatagramFlags,
    /// Bytes of payload behind the header.
    pub payload_bytes: u32,
}

/// An address as sixteen bytes, IPv4 mapped into IPv6.
pub(crate) fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The reverse of [`mapped`] for an address of `family` (4, else 6).
pub(crate) fn unmapped(bytes: [u8; 16], family: u8) -> IpAddr {
    let v6 = Ipv6Addr::from(bytes);
    if family == 4 {
        IpAddr::V4(v6.to_ipv4_mapped().unwrap_or(Ipv4Addr::UNSPECIFIED))
    } else {
        IpAddr::V6(v6)
    }
}

impl DatagramHeader {
    /// As it lies in the span.
    pub fn encode(&self) -> [u8; DATAGRAM_HEADER_BYTES as usize] {
        let mut bytes = [0; DATAGRAM_HEADER_BYTES as usize];
        bytes[..16].copy_from_slice(&mapped(self.remote.ip()));
        bytes[16..32].copy_from_slice(&mapped(self.local.ip()));
        bytes[32..34].copy_from_slice(&self.remote.port().to_le_bytes());
        bytes[34..36].copy_from_slice(&self.local.port().to_le_bytes());
        bytes[36..40].copy_from_slice(&[
            if self.remote.is_ipv4() { 4 } else { 6 },
            self.tos,
            self.ttl,
            self.interface.min(u32::from(u8::MAX)) as u8,
        ]);
        bytes[40..42].copy_from_slice(&self.gso_bytes.to_le_bytes());
        bytes[42..44].copy_from_slice(&self.flags.bits().to_le_bytes());
        bytes[44..48].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes
    }

    /// From a span's first bytes; any bytes make a header, what they say is checked by its user.
    pub fn decode(bytes: &[u8; DATAGRAM_HEADER_BYTES as usize]) -> Self {
        let take16 = |at: usize| {
            let mut part = [0; 16];
            part.copy_from_slice(&bytes[at..at + 16]);
            part
        };
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let family = bytes[36];
        Self {
            remote: SocketAddr::new(unmapped(take16(0), family), u16_at(32)),
            local: SocketAddr::new(unmapped(take16(16), family), u16_at(34)),
            tos: bytes[37],
            ttl: bytes[38],
            interface: u32::from(bytes[39]),
            gso_bytes: u16_at(40),
            flags: DatagramFlags::from_bits_truncate(u16_at(42)),
            payload_bytes: u32::from_le_bytes([bytes[44], bytes[45], bytes[46], bytes[47]]),
        }
    }

    /// Copies the header out of a datagram's first span and finds the payload behind it. The
    /// payload is shorter than the header says when it goes on in the next span (flag `MORE`).
    /// `None` when the span is too short for a header.
    pub fn split(region: &Region, span: Span) -> Option<(Self, Span)> {
        let mut bytes = [0; DATAGRAM_HEADER_BYTES as usize];
        if region.read_buffer(span, &mut bytes) < bytes.len() {
            return None;
        }
        let header = Self::decode(&bytes);
        Some((header, span.part(header.head_bytes(), header.payload_bytes)))
    }

    /// Bytes before the payload.
    pub fn head_bytes(&self) -> u32 {
        match self.flags.contains(DatagramFlags::STAMPED) {
            true => DATAGRAM_HEADER_BYTES + DATAGRAM_STAMP_BYTES,
            false => DATAGRAM_HEADER_BYTES,
        }
    }

    /// The number behind the header, whose span this is; `None` without one
    /// ([`DatagramFlags::STAMPED`]).
    pub fn stamp(&self, region: &Region, span: Span) -> Option<u64> {
        let mut bytes = [0; DATAGRAM_STAMP_BYTES as usize];
        let at = span.part(DATAGRAM_HEADER_BYTES, DATAGRAM_STAMP_BYTES);
        let is_there = self.flags.contains(DatagramFlags::STAMPED)
            && region.read_buffer(at, &mut bytes) == bytes.len();
        is_there.then(|| u64::from_le_bytes(bytes))
    }
}

/// What went wrong with a datagram that was sent: stands before the bytes of it that came back, in
/// a received datagram with [`DatagramFlags::ERROR`]. The header names where it was sent to
/// (`remote`) and from, and how the news of it arrived. Or when it was sent, where that was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorReport {
    /// Errno.
    pub errno: u32,
    /// Type and code of the ICMP message; 0 both when we noticed ourselves.
    pub kind: u8,
    /// See `kind`. Of one that tells when a datagram was sent, for which `kind` is 0: that of a
    /// [`Stamp`](crate::request::Stamp).
    pub code: u8,
    /// The MTU that would have fitted, where that is what is wrong; of a parameter problem where it
    /// is; the number of a datagram that was sent.
    pub info: u32,
    /// Who says so; `None` when we noticed ourselves.
    pub offender: Option<IpAddr>,
}

impl ErrorReport {
    /// What tells when datagram `number` of a program was sent; `kind` as of a
    /// [`Stamp`](crate::request::Stamp).
    pub fn of_sent(errno: u32, kind: u8, number: u32) -> Self {
        Self { errno, kind: 0, code: kind, info: number, offender: None }
    }

    /// Whether it tells when a datagram was sent, and of no error.
    pub fn is_of_sent(&self) -> bool {
        self.kind == 0 && self.code != 0
    }

    /// As it lies behind the header.
    pub fn encode(&self) -> [u8; ERROR_REPORT_BYTES] {
        let mut bytes = [0; ERROR_REPORT_BYTES];
        bytes[..4].copy_from_slice(&self.errno.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.info.to_le_bytes());
        let family = self.offender.map_or(0, |one| if one.is_ipv4() { 4 } else { 6 });
        bytes[8..11].copy_from_slice(&[family, self.kind, self.code]);
        if let Some(offender) = self.offender {
            bytes[16..].copy_from_slice(&mapped(offender));
        }
        bytes
    }

    /// From the bytes behind the header.
    pub fn decode(bytes: &[u8; ERROR_REPORT_BYTES]) -> Self {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let mut offender = [0; 16];
        offender.copy_from_slice(&bytes[16..]);
        Self {
            errno: word(0),
            kind: bytes[9],
            code: bytes[10],
            info: word(4),
            offender: (bytes[8] != 0).then(|| unmapped(offender, bytes[8])),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_header_survives_its_encoding() {
        for (remote, local) in [("10.0.0.1:53", "10.0.0.2:4000"), ("[fe80::1]:1", "[::2]:65535")] {
            let header = DatagramHeader {
                remote: remote.parse().unwrap(),
                local: local.parse().unwrap(),
                tos: 0x2e,
                ttl: 64,
                interface: 3,
                gso_bytes: 1200,
                flags: DatagramFlags::WHOLE | DatagramFlags::ERROR,
                payload_bytes: 5000,
            };
            assert_eq!(DatagramHeader::decode(&header.encode()), header);
        }
    }

    #[test]
    fn a_report_of_an_error_survives_its_encoding() {
        for offender in [None, Some("10.0.0.1".parse().unwrap()), Some("fe80::1".parse().unwrap())]
        {
            let report = ErrorReport { errno: 111, kind: 3, code: 4, info: 1400, offender };
            assert_eq!(ErrorReport::decode(&report.encode()), report);
        }
    }
}
