//! One frame from its pieces: lengths, the limits of a port, the copy, and the checksum that is
//! computed with it for ports without the offload.

use arch::SharedBytes;
use wire::checksum::Sum;
use wire::vnet::{self, VnetHeader};

use crate::interface::{Gso, GsoKind, PortInfo, RxChecksum, RxMeta, TxMeta};

/// Ethernet header without a VLAN tag.
pub(crate) const ETHERNET_BYTES: usize = 14;
/// One VLAN tag on top.
const VLAN_BYTES: usize = 4;
/// IEEE 802.1Q.
const VLAN_ETHERTYPE: [u8; 2] = [0x81, 0];
/// Largest IP packet (RFC 791: 16 bits of total length).
const IP_BYTES_MAX: usize = 65_535;
/// Largest frame that any port receives or sends.
pub(crate) const FRAME_BYTES_MAX: usize = ETHERNET_BYTES + VLAN_BYTES + IP_BYTES_MAX;

/// Length of the frame that these pieces make.
pub(crate) fn length(header: &[u8], payload: &[SharedBytes<'_>]) -> usize {
    payload.iter().fold(header.len(), |sum, piece| sum.saturating_add(piece.len()))
}

/// Whether a port with these offloads can send this frame with this metadata.
pub(crate) fn sendable(info: &PortInfo, meta: &TxMeta, header: &[u8], len: usize) -> bool {
    if header.len() < ETHERNET_BYTES {
        return false;
    }
    let tagged = header.get(12..14) == Some(&VLAN_ETHERTYPE);
    let link_bytes = ETHERNET_BYTES + if tagged { VLAN_BYTES } else { 0 };
    let unit = link_bytes + usize::from(info.mtu);
    let limit = match meta.gso {
        None => unit,
        Some(Gso { size, kind }) => {
            let offered = match kind {
                GsoKind::Tcp4 => info.offloads.tso4,
                GsoKind::Tcp6 => info.offloads.tso6,
                GsoKind::Udp => info.offloads.uso,
            };
            // A segment must fit the link, and segmentation needs a checksum per segment.
            let header_bytes = usize::from(meta.header_bytes);
            let fits = size > 0 && header_bytes + usize::from(size) <= unit;
            if !offered || !fits || meta.checksum.is_none() || header_bytes > len {
                return false;
            }
            link_bytes + IP_BYTES_MAX
        }
    };
    let sum_inside = meta
        .checksum
        .is_none_or(|(start, offset)| usize::from(start) + usize::from(offset) + 2 <= header.len());
    len <= limit && sum_inside
}

/// Copies the pieces into `frame`, replacing its contents; its memory is reused. With `complete`,
/// the checksum field at `start + offset` is completed over everything from `start` on. False if
/// the field is not within `header` (the stack never builds such a frame).
#[must_use]
pub(crate) fn assemble(
    frame: &mut Vec<u8>,
    header: &[u8],
    payload: &[SharedBytes<'_>],
    complete: Option<(u16, u16)>,
) -> bool {
    frame.resize(length(header, payload), 0);
    fill(frame, header, payload, complete)
}

/// The same into memory of exactly the frame's length.
#[must_use]
pub(crate) fn fill(
    frame: &mut [u8],
    header: &[u8],
    payload: &[SharedBytes<'_>],
    complete: Option<(u16, u16)>,
) -> bool {
    let Some((head, mut rest)) = frame.split_at_mut_checked(header.len()) else { return false };
    head.copy_from_slice(header);
    let Some((start, offset)) = complete else {
        for piece in payload {
            let Some((room, after)) = rest.split_at_mut_checked(piece.len()) else { return false };
            piece.copy_to(room);
            rest = after;
        }
        return true;
    };
    let Some(covered) = head.get(usize::from(start)..) else { return false };
    let mut sum = Sum::of(covered);
    for piece in payload {
        let Some((room, after)) = rest.split_at_mut_checked(piece.len()) else { return false };
        let (_, folded) = piece.copy_to_and_sum(room);
        sum = sum.then(Sum::of_known(folded, piece.len()));
        rest = after;
    }
    let field = head
        .get_mut(usize::from(start) + usize::from(offset)..)
        .and_then(|rest| rest.first_chunk_mut::<2>());
    let Some(field) = field else { return false };
    // RFC 768: a computed zero is sent as all ones; for TCP the two mean the same.
    *field = sum.finish_udp().to_be_bytes();
    true
}

/// The vnet header of a frame to send.
pub(crate) fn vnet_of(meta: &TxMeta) -> VnetHeader {
    let mut header = VnetHeader { header_len: meta.header_bytes, ..VnetHeader::default() };
    if let Some((start, offset)) = meta.checksum {
        header.flags = vnet::NEEDS_CHECKSUM;
        header.checksum_start = start;
        header.checksum_offset = offset;
    }
    if let Some(gso) = meta.gso {
        header.gso_size = gso.size;
        header.gso_type = match gso.kind {
            GsoKind::Tcp4 => vnet::GSO_TCPV4,
            GsoKind::Tcp6 => vnet::GSO_TCPV6,
            GsoKind::Udp => vnet::GSO_UDP_L4,
        };
    }
    header
}

/// The metadata of a received frame; `None` for a type that was not enabled.
pub(crate) fn meta_of(header: &VnetHeader) -> Option<RxMeta> {
    let checksum = if header.flags & vnet::NEEDS_CHECKSUM != 0 {
        RxChecksum::Partial { start: header.checksum_start, offset: header.checksum_offset }
    } else if header.flags & vnet::DATA_VALID != 0 {
        RxChecksum::Valid
    } else {
        RxChecksum::Unknown
    };
    let kind = match header.gso_kind() {
        vnet::GSO_NONE => return Some(RxMeta { checksum, gso: None }),
        vnet::GSO_TCPV4 => GsoKind::Tcp4,
        vnet::GSO_TCPV6 => GsoKind::Tcp6,
        vnet::GSO_UDP_L4 => GsoKind::Udp,
        _ => return None,
    };
    Some(RxMeta { checksum, gso: Some(Gso { size: header.gso_size, kind }) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_completed_while_copying_is_the_one_over_the_whole() {
        let header: Vec<u8> = (0..54).collect();
        let data: Vec<u8> = (0..251u8).cycle().take(1000).collect();
        for cuts in [vec![0, 1000], vec![0, 1, 4, 1000], vec![0, 333, 334, 999, 1000]] {
            let pieces: Vec<_> =
                cuts.windows(2).map(|cut| SharedBytes::from_slice(&data[cut[0]..cut[1]])).collect();
            let mut frame = Vec::new();
            assert!(assemble(&mut frame, &header, &pieces, Some((34, 16))));
            let mut expected = [&header[..], &data[..]].concat();
            wire::checksum::complete(&mut expected, 34, 16).unwrap();
            assert_eq!(frame, expected);
        }
    }

    #[test]
    fn a_checksum_field_outside_the_headers_is_refused() {
        let mut frame = Vec::new();
        let piece = [SharedBytes::from_slice(&[0; 64])];
        assert!(!assemble(&mut frame, &[0; 54], &piece, Some((34, 40))));
        assert!(!assemble(&mut frame, &[0; 54], &piece, Some((60, 0))));
    }

    #[test]
    fn metadata_survives_the_way_through_the_vnet_header() {
        let gso = Some(Gso { size: 1448, kind: GsoKind::Tcp6 });
        let meta = TxMeta { checksum: Some((34, 16)), gso, header_bytes: 54 };
        let seen = meta_of(&vnet_of(&meta)).unwrap();
        assert_eq!(seen.checksum, RxChecksum::Partial { start: 34, offset: 16 });
        assert_eq!(seen.gso, gso);
    }
}
