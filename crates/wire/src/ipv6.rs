//! IPv6 (RFC 8200): the fixed header, and the extension headers behind it.

mod extensions;

pub use extensions::{Chain, FRAGMENT_LEN, Fragment, HEADERS_MAX, Unreadable, walk};

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
/// Every link takes packets of this size (RFC 8200, section 5).
pub const MTU_MIN: u16 = 1280;
/// All nodes of a link (RFC 4291, section 2.7.1).
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// All routers of a link.
pub const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// Splits a packet into header and payload; bytes behind the payload length are cut off.
#[inline]
pub fn parse(bytes: &[u8]) -> Result<(Ipv6Header, &[u8]), Malformed> {
    let (header, rest, payload_len) = split(bytes)?;
    Ok((header, rest.get(..payload_len).ok_or(Malformed::Length)?))
}

/// Reads the packet that an ICMPv6 error quotes, which is usually cut short: that is not held
/// against it.
pub fn parse_quoted(bytes: &[u8]) -> Result<(Ipv6Header, &[u8]), Malformed> {
    let (header, rest, payload_len) = split(bytes)?;
    Ok((header, rest.get(..payload_len).unwrap_or(rest)))
}

/// The header, everything behind it, and the payload length that it claims.
#[inline]
fn split(bytes: &[u8]) -> Result<(Ipv6Header, &[u8], usize), Malformed> {
    let (&[v0, v1, v2, v3, l0, l1, next_header, hop_limit], rest) =
        bytes.split_first_chunk().ok_or(Malformed::Short)?;
    if v0 >> 4 != 6 {
        return Err(Malformed::Version);
    }
    let (&src, rest) = rest.split_first_chunk::<16>().ok_or(Malformed::Short)?;
    let (&dst, rest) = rest.split_first_chunk::<16>().ok_or(Malformed::Short)?;
    let word = u32::from_be_bytes([v0, v1, v2, v3]);
    let header = Ipv6Header {
        traffic_class: (word >> 20) as u8,
        flow_label: word & 0x000f_ffff,
        next_header: Protocol(next_header),
        hop_limit,
        src: Ipv6Addr::from(src),
        dst: Ipv6Addr::from(dst),
    };
    Ok((header, rest, usize::from(u16::from_be_bytes([l0, l1]))))
}

impl Ipv6Header {
    /// Writes the header to the start of `out` and gives its length. `payload_len` is what will
    /// follow; more than 65,535 is `NoRoom` (jumbograms are not spoken).
    #[inline]
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

/// The group in which an address is asked for (RFC 4291, section 2.7.1).
pub fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let low = address.to_bits() as u32 & 0x00ff_ffff;
    let [_, _, _, _, _, _, g, h] = Ipv6Addr::from(u128::from(low)).segments();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | g, h)
}

/// Whether an address is valid on one link only: `fe80::/10`.
pub fn is_link_local(address: Ipv6Addr) -> bool {
    let [first, ..] = address.segments();
    first & 0xffc0 == 0xfe80
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_asked_for_in_the_group_of_its_last_24_bits() {
        let address: Ipv6Addr = "4037::1:800:200e:8c6c".parse().unwrap();
        assert_eq!(solicited_node(address), "ff02::1:ff0e:8c6c".parse::<Ipv6Addr>().unwrap());
    }

    #[test]
    fn link_local_addresses_are_those_of_fe80_10() {
        for (text, expected) in [("fe80::1", true), ("febf::1", true), ("fec0::1", false)] {
            assert_eq!(is_link_local(text.parse().unwrap()), expected, "{text}");
        }
    }
}
