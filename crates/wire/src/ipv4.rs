//! IPv4 (RFC 791), with options and fragment fields.

use core::net::Ipv4Addr;

use crate::checksum::Sum;
use crate::{Malformed, NoRoom, put, put_slice};

/// What an IP packet carries.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize,
)]
pub struct Protocol(pub u8);

impl Protocol {
    /// RFC 792.
    pub const ICMP: Protocol = Protocol(1);
    /// RFC 3376.
    pub const IGMP: Protocol = Protocol(2);
    /// RFC 9293.
    pub const TCP: Protocol = Protocol(6);
    /// RFC 768.
    pub const UDP: Protocol = Protocol(17);
    /// RFC 4443.
    pub const ICMPV6: Protocol = Protocol(58);
    /// RFC 8200, section 4.3: an extension header of IPv6.
    pub const HOP_BY_HOP: Protocol = Protocol(0);
    /// RFC 8200, section 4.5: an extension header of IPv6.
    pub const FRAGMENT: Protocol = Protocol(44);
}

/// IPv4 header without its options, in host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Header {
    /// DSCP (6 bits) and ECN (2 bits).
    pub tos: u8,
    /// Groups fragments of one packet.
    pub identification: u16,
    /// Routers may not cut this packet.
    pub dont_fragment: bool,
    /// This is not the last fragment.
    pub more_fragments: bool,
    /// Where this fragment's payload belongs, in bytes (a multiple of 8).
    pub fragment_offset: u16,
    /// Hops left.
    pub ttl: u8,
    /// What follows.
    pub protocol: Protocol,
    /// From whom.
    pub src: Ipv4Addr,
    /// To whom.
    pub dst: Ipv4Addr,
}

impl Default for Ipv4Header {
    /// A whole packet that may not be cut, TTL 64.
    fn default() -> Self {
        Self {
            tos: 0,
            identification: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            ttl: 64,
            protocol: Protocol(0),
            src: Ipv4Addr::UNSPECIFIED,
            dst: Ipv4Addr::UNSPECIFIED,
        }
    }
}

/// A packet, cut into its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Packet<'a> {
    /// The fixed part.
    pub header: Ipv4Header,
    /// Options as they came, padding included; a multiple of 4 bytes.
    pub options: &'a [u8],
    /// What the total length says is there, without link padding.
    pub payload: &'a [u8],
}

/// Bytes of the header without options.
pub const HEADER_LEN: usize = 20;
/// Most bytes of options.
pub const OPTIONS_LEN_MAX: usize = 40;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET_MASK: u16 = 0x1fff;

/// Reads a packet and verifies the header's checksum. Bytes behind the total length (Ethernet
/// padding) are cut off.
#[inline]
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.2
//# When received options are passed up to TCP from the IP layer, a TCP implementation MUST ignore
//# options that it does not understand (MUST-50).
pub fn parse(bytes: &[u8]) -> Result<Ipv4Packet<'_>, Malformed> {
    let (packet, header, total_len) = split(bytes)?;
    if !Sum::of(header).is_valid() {
        return Err(Malformed::Checksum);
    }
    let payload_len = total_len.checked_sub(header.len()).ok_or(Malformed::Length)?;
    let payload = packet.payload.get(..payload_len).ok_or(Malformed::Length)?;
    Ok(Ipv4Packet { payload, ..packet })
}

/// Reads the packet that an ICMP error quotes: it is usually cut short, and routers may have
/// left its checksum stale, so neither is held against it.
pub fn parse_quoted(bytes: &[u8]) -> Result<Ipv4Packet<'_>, Malformed> {
    let (packet, header, total_len) = split(bytes)?;
    let payload_len = total_len.saturating_sub(header.len());
    let payload = packet.payload.get(..payload_len).unwrap_or(packet.payload);
    Ok(Ipv4Packet { payload, ..packet })
}

/// The packet with everything behind the header as its payload, the header's bytes, and the
/// total length that it claims.
#[inline]
fn split(bytes: &[u8]) -> Result<(Ipv4Packet<'_>, &[u8], usize), Malformed> {
    let (fixed, _) = bytes.split_first_chunk::<HEADER_LEN>().ok_or(Malformed::Short)?;
    let &[
        version_ihl,
        tos,
        l0,
        l1,
        i0,
        i1,
        f0,
        f1,
        ttl,
        protocol,
        _,
        _,
        s0,
        s1,
        s2,
        s3,
        d0,
        d1,
        d2,
        d3,
    ] = fixed;
    if version_ihl >> 4 != 4 {
        return Err(Malformed::Version);
    }
    let header_len = usize::from(version_ihl & 0x0f) * 4;
    if header_len < HEADER_LEN {
        return Err(Malformed::Length);
    }
    let (header_bytes, payload) = bytes.split_at_checked(header_len).ok_or(Malformed::Short)?;
    let options = header_bytes.get(HEADER_LEN..).unwrap_or_default();
    let fragment = u16::from_be_bytes([f0, f1]);
    let header = Ipv4Header {
        tos,
        identification: u16::from_be_bytes([i0, i1]),
        dont_fragment: fragment & DONT_FRAGMENT != 0,
        more_fragments: fragment & MORE_FRAGMENTS != 0,
        fragment_offset: (fragment & OFFSET_MASK) << 3,
        ttl,
        protocol: Protocol(protocol),
        src: Ipv4Addr::new(s0, s1, s2, s3),
        dst: Ipv4Addr::new(d0, d1, d2, d3),
    };
    let total_len = usize::from(u16::from_be_bytes([l0, l1]));
    Ok((Ipv4Packet { header, options, payload }, header_bytes, total_len))
}

impl Ipv4Header {
    /// Whether this is a piece of a packet and not the whole.
    pub fn is_fragment(&self) -> bool {
        self.more_fragments || self.fragment_offset != 0
    }

    /// Writes the header without options, checksum done, to the start of `out` and gives its
    /// length. `payload_len` is what will follow; more than IP can say is `NoRoom`.
    #[inline]
    pub fn emit(&self, payload_len: usize, out: &mut [u8]) -> Result<usize, NoRoom> {
        self.emit_with_options(&[], payload_len, out)
    }

    /// The same with options, which must be padded to a multiple of 4 bytes and at most 40;
    /// else `NoRoom`.
    #[inline]
    pub fn emit_with_options(
        &self,
        options: &[u8],
        payload_len: usize,
        out: &mut [u8],
    ) -> Result<usize, NoRoom> {
        if options.len() > OPTIONS_LEN_MAX || !options.len().is_multiple_of(4) {
            return Err(NoRoom);
        }
        let header_len = HEADER_LEN + options.len();
        let total_len = payload_len
            .checked_add(header_len)
            .and_then(|len| u16::try_from(len).ok())
            .ok_or(NoRoom)?;
        let fragment = (self.fragment_offset >> 3) & OFFSET_MASK
            | if self.dont_fragment { DONT_FRAGMENT } else { 0 }
            | if self.more_fragments { MORE_FRAGMENTS } else { 0 };
        // At most 15: the options were checked above.
        let version_ihl = 0x40 | ((header_len / 4) as u8 & 0x0f);
        let [l0, l1] = total_len.to_be_bytes();
        let [i0, i1] = self.identification.to_be_bytes();
        let [f0, f1] = fragment.to_be_bytes();
        let [s0, s1, s2, s3] = self.src.octets();
        let [d0, d1, d2, d3] = self.dst.octets();
        let (tos, ttl, protocol) = (self.tos, self.ttl, self.protocol.0);
        let with_checksum = |c0: u8, c1: u8| {
            [
                version_ihl,
                tos,
                l0,
                l1,
                i0,
                i1,
                f0,
                f1,
                ttl,
                protocol,
                c0,
                c1,
                s0,
                s1,
                s2,
                s3,
                d0,
                d1,
                d2,
                d3,
            ]
        };
        let sum = Sum::of(&with_checksum(0, 0)).then(Sum::of(options));
        let [c0, c1] = sum.finish().to_be_bytes();
        let rest = put(out, &with_checksum(c0, c1))?;
        put_slice(rest, options)?;
        Ok(header_len)
    }
}
