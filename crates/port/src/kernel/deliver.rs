//! Writing of frames into a TAP device, where the kernel receives them.
//!
//! A TAP device ignores the flag for verified checksums (VIRTIO_NET_HDR_F_DATA_VALID). A verified
//! checksum is written as partial instead, with the sum of the pseudo-header in its field: the
//! kernel accepts that as valid, and completes it when it forwards the packet.

use arch::SharedBytes;
use wire::checksum::Sum;
use wire::ipv4::Protocol;

use crate::interface::{Port, RxChecksum, RxFrame, TxError, TxMeta};
use crate::layers::Transport;
use crate::tap::TapPort;

/// Maximum length of a frame's headers: Ethernet with a tag, IPv4 with options or IPv6, TCP with
/// options.
const HEADERS_MAX: usize = 18 + 60 + 60;

/// Writes a received frame into a TAP device; with `verifies`, an unknown checksum is verified
/// first, so that the kernel need not.
///
/// # Errors
/// The device's error.
pub(super) fn deliver(
    tap: &mut TapPort,
    frame: &RxFrame<'_>,
    verifies: bool,
) -> Result<(), TxError> {
    let bytes = frame.bytes;
    let found = Transport::parse(bytes);
    let header_bytes = found.map_or(0, |found| found.payload as u16);
    let gso = frame.meta.gso;
    if let RxChecksum::Partial { start, offset } = frame.meta.checksum {
        let meta = TxMeta { checksum: Some((start, offset)), gso, header_bytes };
        return tap.send(&meta, bytes, &[]);
    }
    let verified = found.filter(|found| {
        found.ip.fragment.is_none()
            && match frame.meta.checksum {
                RxChecksum::Valid => verifies || gso.is_some(),
                _ => verifies && is_sum_good(bytes, found),
            }
    });
    let Some(found) = verified else { return tap.send(&TxMeta::default(), bytes, &[]) };
    match partial(bytes, &found) {
        Some((headers, len, rest)) => {
            let meta = TxMeta { checksum: found.checksum_place(), gso, header_bytes };
            let headers = headers.get(..len).unwrap_or_default();
            tap.send(&meta, headers, &[SharedBytes::from_slice(rest)])
        }
        None => tap.send(&TxMeta::default(), bytes, &[]),
    }
}

fn is_sum_good(bytes: &[u8], found: &Transport) -> bool {
    let Some(covered) = bytes.get(found.ip.payload..found.ip.end) else { return false };
    let field = covered.get(found.checksum_offset()..).and_then(|rest| rest.first_chunk::<2>());
    // RFC 768: the datagram has no checksum.
    if found.ip.protocol == Protocol::UDP && field == Some(&[0, 0]) {
        return false;
    }
    found.pseudo(covered.len()).is_some_and(|pseudo| pseudo.then(Sum::of(covered)).is_valid())
}

/// The headers with the pseudo-header's sum in the checksum field, their length, and the rest
/// without padding.
fn partial<'a>(bytes: &'a [u8], found: &Transport) -> Option<([u8; HEADERS_MAX], usize, &'a [u8])> {
    let len = found.payload;
    let mut headers = [0; HEADERS_MAX];
    headers.get_mut(..len)?.copy_from_slice(bytes.get(..len)?);
    let sum = found.pseudo(found.ip.end - found.ip.payload)?.folded();
    let field = headers.get_mut(found.ip.payload + found.checksum_offset()..)?.first_chunk_mut()?;
    *field = sum.to_be_bytes();
    Some((headers, len, bytes.get(len..found.ip.end)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram() -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0, 7, 0, 9, 0, 12, 0, 0, 1, 2, 3, 4]);
        let pseudo = Transport::parse(&frame).unwrap().pseudo(12).unwrap().folded();
        frame[40..42].copy_from_slice(&pseudo.to_be_bytes());
        wire::checksum::complete(&mut frame, 34, 6).unwrap();
        frame.extend([0xee; 14]);
        frame
    }

    #[test]
    fn a_verified_checksum_becomes_partial_and_can_be_completed_again() {
        let frame = datagram();
        let found = Transport::parse(&frame).unwrap();
        assert!(is_sum_good(&frame, &found));
        let (headers, len, rest) = partial(&frame, &found).unwrap();
        let mut whole = [&headers[..len], rest].concat();
        assert_eq!(whole.len(), 46, "without padding");
        assert_ne!(whole, frame[..46]);
        wire::checksum::complete(&mut whole, 34, 6).unwrap();
        assert_eq!(whole, frame[..46]);
    }

    #[test]
    fn a_wrong_checksum_and_none_are_not_verified() {
        let mut frame = datagram();
        frame[44] ^= 1;
        assert!(!is_sum_good(&frame, &Transport::parse(&frame).unwrap()));
        frame[40..42].fill(0);
        assert!(!is_sum_good(&frame, &Transport::parse(&frame).unwrap()));
    }
}
