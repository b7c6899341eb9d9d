//! Signatures of segments (RFC 2385). MD5 keeps out who knows no key and no more: colliding texts are
//! easily made, so that nothing else may rely on it.

use core::net::IpAddr;

use md5::{Digest, Md5};

use super::{CHECKSUM_OFFSET, HEADER_LEN, SIGNATURE_AT};
use crate::ipv4::Protocol;

/// The signature of a segment from `src` to `dst`: `header` is that of TCP, whose options do not count
/// but by their length, `payload` what follows it.
pub fn signature(src: IpAddr, dst: IpAddr, header: &[u8], payload: &[u8], key: &[u8]) -> [u8; 16] {
    // Both lie in one IP packet.
    let len = (header.len() + payload.len()) as u32;
    let mut sum = Md5::new();
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            sum.update(src.octets());
            sum.update(dst.octets());
            sum.update([0, Protocol::TCP.0]);
            sum.update((len as u16).to_be_bytes());
        }
        _ => {
            for address in [src, dst] {
                let IpAddr::V6(address) = address else { continue };
                sum.update(address.octets());
            }
            sum.update(len.to_be_bytes());
            sum.update(u32::from(Protocol::TCP.0).to_be_bytes());
        }
    }
    let (before, rest) = header.split_at_checked(CHECKSUM_OFFSET).unwrap_or((header, &[]));
    sum.update(before);
    sum.update([0, 0]);
    sum.update(rest.get(2..HEADER_LEN - CHECKSUM_OFFSET).unwrap_or_default());
    sum.update(payload);
    sum.update(key);
    sum.finalize().into()
}

/// Signs a segment whose header has been [emitted](super::TcpOptions::emit) with an empty signature.
pub fn sign(src: IpAddr, dst: IpAddr, header: &mut [u8], payload: &[u8], key: &[u8]) {
    let sum = signature(src, dst, header, payload, key);
    if let Some(place) = header.get_mut(SIGNATURE_AT) {
        place.copy_from_slice(&sum);
    }
}
