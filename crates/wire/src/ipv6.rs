//! IPv6's fixed header (RFC 8200). Extension headers are left to the payload.

use core::net::Ipv6Addr;

use crate::ipv4::Protocol;
use crate::{Malformed, NoRoom, put};

/// IPv6 header, in host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Header {
    /// DSCP (6 bits) and ECN (2 bits).
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// What follows: an upper-layer protocol or an extension header.
    pub next_header: Protocol,
    /// Hops left.
    pub hop_limit: u8,
    /// From whom.
    pub src: Ipv6Addr,
    /// To whom.
    pub dst: Ipv6Addr,
}

/// Bytes of the header.
pub const HEADER_LEN: usize = 40;

/// Splits a packet into header and payload; bytes behind the payload length are cut off.
pub fn parse(bytes: &[u8]) -> Result<(Ipv6Header, &[u8]), Malformed> {
    let (&[v0, v1, v2, v3, l0, l1, next_header, hop_limit], rest) =
        bytes.split_first_chunk().ok_or(Malformed::Short)?;
    if v0 >> 4 != 6 {
        return Err(Malformed::Version);
    }
    let (&src, rest) = rest.split_first_chunk::<16>().ok_or(Malformed::Short)?;
    let (&dst, rest) = rest.split_first_chunk::<16>().ok_or(Malformed::Short)?;
    let payload_len = usize::from(u16::from_be_bytes([l0, l1]));
    let payload = rest.get(..payload_len).ok_or(Malformed::Length)?;
    let word = u32::from_be_bytes([v0, v1, v2, v3]);
    let header = Ipv6Header {
        traffic_class: (word >> 20) as u8,
        flow_label: word & 0x000f_ffff,
        next_header: Protocol(next_header),
        hop_limit,
        src: Ipv6Addr::from(src),
        dst: Ipv6Addr::from(dst),
    };
    Ok((header, payload))
}

impl Ipv6Header {
    /// Writes the header to the start of `out` and gives its length. `payload_len` is what will
    /// follow; more than 65,535 is `NoRoom` (jumbograms are not spoken).
    pub fn emit(&self, payload_len: usize, out: &mut [u8]) -> Result<usize, NoRoom> {
        let payload_len = u16::try_from(payload_len).map_err(|_| NoRoom)?;
        let word = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0x000f_ffff;
        let out = put(out, &word.to_be_bytes())?;
        let out = put(out, &payload_len.to_be_bytes())?;
        let out = put(out, &[self.next_header.0, self.hop_limit])?;
        let out = put(out, &self.src.octets())?;
        put(out, &self.dst.octets())?;
        Ok(HEADER_LEN)
    }
}
