//! Checks of a frame sent by a program: its port, its source addresses, and whether the requested
//! offloads fit its headers. Everything here reads a private copy.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use port::{Gso, GsoKind, TxMeta};
use shm::raw::{Meta, SegmentKind};
use stack::Stack;
use wire::MacAddr;

use crate::transmit::Attached;

/// Maximum segments of one frame.
const SEGMENTS_MAX: usize = 128;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_ARP: u16 = 0x0806;
const ETHERTYPE_VLAN: u16 = 0x8100;
const ETHERTYPE_QINQ: u16 = 0x88a8;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Offset of the checksum in a header.
const TCP_CHECKSUM: u16 = 16;
const UDP_CHECKSUM: u16 = 6;

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    let pair = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes(pair.try_into().ok()?))
}

fn mac(bytes: &[u8], at: usize) -> Option<MacAddr> {
    Some(MacAddr(bytes.get(at..at + 6)?.try_into().ok()?))
}

/// EtherType after at most two tags, and the offset of its payload.
fn ethertype(frame: &[u8]) -> Option<(u16, usize)> {
    let mut at = 12;
    for _ in 0..3 {
        match short(frame, at)? {
            ETHERTYPE_VLAN | ETHERTYPE_QINQ => at += 4,
            found => return Some((found, at + 2)),
        }
    }
    None
}

/// The engine's port for a frame: by its number plus one, or the only one, or the one whose MAC is
/// the source. `None`: none.
pub(super) fn port_of(
    ports: &[usize],
    number: u8,
    frame: &[u8],
    attached: &[Attached],
) -> Option<usize> {
    match (usize::from(number).checked_sub(1), ports) {
        (Some(at), _) => ports.get(at).copied(),
        (None, [only]) => Some(*only),
        (None, _) => {
            let source = mac(frame, 6)?;
            let is_its = |of: &Attached| of.port.info().mac == source;
            ports.iter().copied().find(|port| attached.get(*port).is_some_and(is_its))
        }
    }
}

/// Whether a frame has the port's own source: its MAC, and one of its IP addresses (for ARP the
/// sender address).
pub(super) fn is_own(frame: &[u8], of: &Attached, stack: &Stack) -> bool {
    let own_mac = of.port.info().mac;
    let is_ours =
        |address: IpAddr| stack.routes().usable(of.interface).any(|own| own.address == address);
    if mac(frame, 6) != Some(own_mac) {
        return false;
    }
    let Some((kind, at)) = ethertype(frame) else { return false };
    let v4 = |at: usize| {
        let bytes: [u8; 4] = frame.get(at..at + 4)?.try_into().ok()?;
        Some(IpAddr::V4(Ipv4Addr::from(bytes)))
    };
    match kind {
        ETHERTYPE_IPV4 => v4(at + 12).is_some_and(is_ours),
        ETHERTYPE_ARP => mac(frame, at + 8) == Some(own_mac) && v4(at + 14).is_some_and(is_ours),
        ETHERTYPE_IPV6 => {
            let bytes =
                frame.get(at + 8..at + 24).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
            bytes.is_some_and(|bytes| is_ours(IpAddr::V6(Ipv6Addr::from(bytes))))
        }
        _ => true,
    }
}

/// The layer 4 protocol and its offset, for a packet that is not a later fragment.
fn layer4(frame: &[u8]) -> Option<(u16, u8, usize)> {
    let (kind, at) = ethertype(frame)?;
    match kind {
        ETHERTYPE_IPV4 => {
            let first = *frame.get(at)?;
            let header = usize::from(first & 15) * 4;
            let is_first = short(frame, at + 6)? & 0x1fff == 0;
            (first >> 4 == 4 && header >= 20 && is_first).then_some(())?;
            Some((kind, *frame.get(at + 9)?, at + header))
        }
        ETHERTYPE_IPV6 => {
            (*frame.get(at)? >> 4 == 6).then_some(())?;
            Some((kind, *frame.get(at + 6)?, at + 40))
        }
        _ => None,
    }
}

/// Length of the headers of a frame with a partial checksum; 0 for others.
pub(super) fn header_bytes(frame: &[u8], checksum_start: u16, checksum_offset: u16) -> u16 {
    let start = usize::from(checksum_start);
    let layer4 = match (start, checksum_offset) {
        (0, _) => return 0,
        (_, TCP_CHECKSUM) => frame.get(start + 12).map_or(0, |byte| usize::from(byte >> 4) * 4),
        _ => 8,
    };
    u16::try_from(start + layer4).unwrap_or(0)
}

/// The offloads for a frame of `len` bytes. `None`: the request does not fit the headers in
/// `frame`, or it is not a frame.
pub(super) fn tx_meta(meta: Option<&Meta>, frame: &[u8], len: usize) -> Option<TxMeta> {
    if len < 14 {
        return None;
    }
    let Some(meta) = meta else { return Some(TxMeta::default()) };
    let cuts = meta.segments != SegmentKind::None;
    if meta.checksum_start == 0 && !cuts {
        return Some(TxMeta::default());
    }
    let (ethertype, protocol, start) = layer4(frame)?;
    let (offset, header) = match protocol {
        TCP => (TCP_CHECKSUM, start + usize::from(*frame.get(start + 12)? >> 4) * 4),
        UDP => (UDP_CHECKSUM, start + 8),
        _ => return None,
    };
    let fits = usize::from(meta.checksum_start) == start
        && meta.checksum_offset == offset
        && header <= frame.len();
    fits.then_some(())?;
    let checksum = Some((meta.checksum_start, meta.checksum_offset));
    let header_bytes = u16::try_from(header).ok()?;
    if !cuts {
        return Some(TxMeta { checksum, gso: None, header_bytes });
    }
    let kind = match (meta.segments, protocol, ethertype) {
        (SegmentKind::Tcp4, TCP, ETHERTYPE_IPV4) => GsoKind::Tcp4,
        (SegmentKind::Tcp6, TCP, ETHERTYPE_IPV6) => GsoKind::Tcp6,
        (SegmentKind::Udp, UDP, _) => GsoKind::Udp,
        _ => return None,
    };
    let payload = len.checked_sub(header).filter(|payload| *payload > 0)?;
    let size = meta.segment_bytes;
    let is_bounded = size > 0 && payload.div_ceil(usize::from(size)) <= SEGMENTS_MAX;
    (is_bounded && meta.header_bytes == header_bytes).then_some(())?;
    Some(TxMeta { checksum, gso: Some(Gso { size, kind }), header_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ethernet, IPv4 with `protocol`, and a layer-4 header, all of whose other bytes are 0.
    fn packet(protocol: u8) -> Vec<u8> {
        let mut frame = vec![0; 54];
        frame[12..14].copy_from_slice(&ETHERTYPE_IPV4.to_be_bytes());
        frame[14] = 0x45;
        frame[23] = protocol;
        frame[46] = 0x50;
        frame
    }

    fn cut() -> Meta {
        Meta {
            checksum_start: 34,
            checksum_offset: 16,
            segment_bytes: 1000,
            header_bytes: 54,
            segments: SegmentKind::Tcp4,
            ..Meta::default()
        }
    }

    #[test]
    fn what_fits_the_headers_is_done() {
        let frame = packet(TCP);
        let found = tx_meta(Some(&cut()), &frame, 5054).expect("it fits");
        assert_eq!(found.checksum, Some((34, 16)));
        assert_eq!(found.gso, Some(Gso { size: 1000, kind: GsoKind::Tcp4 }));
        assert_eq!(found.header_bytes, 54);
        assert!(tx_meta(None, &frame, 60).is_some());
        let whole = Meta { segments: SegmentKind::None, ..cut() };
        assert_eq!(tx_meta(Some(&whole), &frame, 60).expect("it fits").gso, None);
    }

    #[test]
    fn what_does_not_fit_the_headers_is_not_done() {
        let frame = packet(TCP);
        let wrong = [
            Meta { checksum_start: 35, ..cut() },
            Meta { checksum_offset: 6, ..cut() },
            Meta { segment_bytes: 0, ..cut() },
            Meta { segment_bytes: 1, ..cut() },
            Meta { header_bytes: 53, ..cut() },
            Meta { segments: SegmentKind::Tcp6, ..cut() },
            Meta { segments: SegmentKind::Udp, ..cut() },
            Meta { checksum_start: u16::MAX, ..cut() },
        ];
        for meta in wrong {
            assert!(tx_meta(Some(&meta), &frame, 5054).is_none(), "{meta:?}");
        }
        assert!(tx_meta(Some(&cut()), &packet(1), 5054).is_none());
        assert!(tx_meta(Some(&cut()), &frame[..40], 40).is_none());
        assert!(tx_meta(Some(&cut()), &frame, 54).is_none());
        let mut fragment = frame;
        fragment[21] = 9;
        assert!(tx_meta(Some(&cut()), &fragment, 5054).is_none());
        assert!(tx_meta(None, &[0; 13], 13).is_none());
    }

    #[test]
    fn tags_are_looked_through() {
        let mut frame = packet(TCP);
        for tag in [[0x81, 0, 0, 5], [0x88, 0xa8, 0, 7]] {
            frame.splice(12..12, tag);
        }
        assert_eq!(ethertype(&frame), Some((ETHERTYPE_IPV4, 22)));
        frame.splice(12..12, [0x81, 0, 0, 5]);
        assert_eq!(ethertype(&frame), None);
    }
}
