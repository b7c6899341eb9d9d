//! Neighbour discovery (RFC 4861): who has which address, and which routers there are. Messages
//! of ICMPv6; the caller has verified checksum and hop limit.

use core::net::Ipv6Addr;

use crate::icmpv6::seal;
use crate::{MacAddr, Malformed, NoRoom, put};

/// Hop limit of every message, so that none comes from beyond a router.
pub const HOP_LIMIT: u8 = 255;

/// Type of a router solicitation.
pub const ROUTER_SOLICITATION: u8 = 133;
/// Type of a router advertisement.
pub const ROUTER_ADVERTISEMENT: u8 = 134;
/// Type of a neighbour solicitation.
pub const NEIGHBOR_SOLICITATION: u8 = 135;
/// Type of a neighbour advertisement.
pub const NEIGHBOR_ADVERTISEMENT: u8 = 136;

const SOURCE_LINK_ADDRESS: u8 = 1;
const TARGET_LINK_ADDRESS: u8 = 2;
const PREFIX_INFORMATION: u8 = 3;
const MTU: u8 = 5;
/// Prefixes of one advertisement that are kept; the kernel and routers in use have fewer.
pub const PREFIXES_MAX: usize = 8;

/// A prefix that a router tells of (RFC 4861, section 4.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixInformation {
    /// Bits of the prefix.
    pub prefix_len: u8,
    /// Addresses of it are on the link.
    pub on_link: bool,
    /// Hosts may make addresses of it (RFC 4862).
    pub autonomous: bool,
    /// Seconds; all ones for ever.
    pub valid_s: u32,
    /// Seconds for which such addresses are preferred.
    pub preferred_s: u32,
    /// The prefix.
    pub prefix: Ipv6Addr,
}

/// The prefixes of an advertisement, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Prefixes {
    entries: [Option<PrefixInformation>; PREFIXES_MAX],
}

impl Prefixes {
    /// Those that there are.
    pub fn iter(&self) -> impl Iterator<Item = &PrefixInformation> {
        self.entries.iter().flatten()
    }

    fn push(&mut self, prefix: PrefixInformation) {
        if let Some(place) = self.entries.iter_mut().find(|entry| entry.is_none()) {
            *place = Some(prefix);
        }
    }
}

impl FromIterator<PrefixInformation> for Prefixes {
    /// At most [`PREFIXES_MAX`] of them.
    fn from_iter<I: IntoIterator<Item = PrefixInformation>>(from: I) -> Self {
        let mut prefixes = Self::default();
        from.into_iter().for_each(|prefix| prefixes.push(prefix));
        prefixes
    }
}

/// A message of neighbour discovery.
#[allow(clippy::large_enum_variant)] // It lives on the stack for the length of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NdpMessage {
    /// Which routers are there?
    RouterSolicitation {
        /// Link address of who asks.
        source: Option<MacAddr>,
    },
    /// A router says what holds on the link.
    RouterAdvertisement(RouterAdvertisement),
    /// Who has `target`?
    NeighborSolicitation {
        /// The address asked for.
        target: Ipv6Addr,
        /// Link address of who asks; none in duplicate address detection.
        source: Option<MacAddr>,
    },
    /// `target` is here.
    NeighborAdvertisement {
        /// It is a router.
        router: bool,
        /// It answers a solicitation.
        solicited: bool,
        /// What was known of it before is wrong.
        overrides: bool,
        /// The address that speaks.
        target: Ipv6Addr,
        /// Where it is; may be left out of an answer to a solicitation that came straight.
        link_address: Option<MacAddr>,
    },
}

/// What a router says (RFC 4861, section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RouterAdvertisement {
    /// Hop limit to send with; 0: not said.
    pub hop_limit: u8,
    /// Managed (bit 7) and other (bit 6) configuration, preference (bits 4 and 3, RFC 4191).
    pub flags: u8,
    /// Seconds for which it is a default router; 0: it is none.
    pub lifetime_s: u16,
    /// How long a neighbour counts as reachable; 0: not said.
    pub reachable_ms: u32,
    /// Between two solicitations; 0: not said.
    pub retransmit_ms: u32,
    /// Its link address.
    pub source: Option<MacAddr>,
    /// Largest packet of the link.
    pub mtu: Option<u32>,
    /// The link's prefixes.
    pub prefixes: Prefixes,
}

impl RouterAdvertisement {
    /// Default router preference (RFC 4191, section 2.2): 1 high, 0 medium, -1 low. The reserved
    /// value counts as medium.
    pub fn preference(&self) -> i8 {
        match self.flags >> 3 & 3 {
            1 => 1,
            3 => -1,
            _ => 0,
        }
    }
}

//= https://www.rfc-editor.org/rfc/rfc4861#section-4.6.1
//# These options MUST be silently ignored for other Neighbor Discovery messages.
//= https://www.rfc-editor.org/rfc/rfc4861#section-4.6.2
//# The Prefix Information option appears in Router Advertisement packets and MUST be silently
//# ignored for other messages.
//= https://www.rfc-editor.org/rfc/rfc4861#section-4.6.3
//# This option MUST be silently ignored for other Neighbor Discovery messages.
//= https://www.rfc-editor.org/rfc/rfc4861#section-6.1.2
//# The contents of any defined options that are not specified to be used with Router Advertisement
//# messages MUST be ignored and the packet processed as normal
//= https://www.rfc-editor.org/rfc/rfc4861#section-7.1.1
//# The contents of any defined options that are not specified to be used with Neighbor Solicitation
//# messages MUST be ignored and the packet processed as normal
//= https://www.rfc-editor.org/rfc/rfc4861#section-7.1.2
//# The contents of any defined options that are not specified to be used with Neighbor
//# Advertisement messages MUST be ignored and the packet processed as normal
//= https://www.rfc-editor.org/rfc/rfc4861#section-9
//# All options specified in this document MUST be recognized.
//= https://www.rfc-editor.org/rfc/rfc4861#section-9
//# Options in Neighbor Discovery packets can appear in any order; receivers MUST be prepared to
//# process them independently of their order.
#[derive(Clone, Copy, Default)]
struct Options {
    source: Option<MacAddr>,
    target: Option<MacAddr>,
    mtu: Option<u32>,
    prefixes: Prefixes,
}

impl Options {
    //= https://www.rfc-editor.org/rfc/rfc4861#section-4.6
    //# Nodes MUST silently discard an ND packet that contains an option with length zero.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-4.1
    //# Receivers MUST silently ignore any options they do not recognize and continue processing the
    //# message.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-4.3
    //# Receivers MUST silently ignore any options they do not recognize and continue processing the
    //# message.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-4.4
    //# Receivers MUST silently ignore any options they do not recognize and continue processing the
    //# message.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-6.1.2
    //# The contents of the Reserved field, and of any unrecognized options, MUST be ignored.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-7.1.1
    //# The contents of the Reserved field, and of any unrecognized options, MUST be ignored.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-7.1.2
    //# The contents of the Reserved field, and of any unrecognized options, MUST be ignored.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-9
    //# In order to ensure that future extensions properly coexist with current implementations, all
    //# nodes MUST silently ignore any options they do not recognize in received ND packets and
    //# continue processing the packet.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-9
    //# A node MUST NOT ignore valid options just because the ND message contains unrecognized ones.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-9
    //# Receivers MUST silently ignore any options they do not recognize and continue processing the
    //# message.
    fn parse(mut bytes: &[u8]) -> Result<Self, Malformed> {
        let mut options = Self::default();
        while let &[kind, units, ..] = bytes {
            let len = usize::from(units) * 8;
            let (option, rest) = bytes.split_at_checked(len).ok_or(Malformed::Length)?;
            let (_, body) = option.split_first_chunk::<2>().ok_or(Malformed::Length)?;
            match (kind, body) {
                (SOURCE_LINK_ADDRESS, &[a, b, c, d, e, f]) => {
                    options.source = Some(MacAddr([a, b, c, d, e, f]));
                }
                (TARGET_LINK_ADDRESS, &[a, b, c, d, e, f]) => {
                    options.target = Some(MacAddr([a, b, c, d, e, f]));
                }
                (MTU, &[_, _, a, b, c, d]) => options.mtu = Some(u32::from_be_bytes([a, b, c, d])),
                (PREFIX_INFORMATION, _) => options.prefixes.push(prefix(body)?),
                // The length of a link address or MTU is fixed on Ethernet.
                (SOURCE_LINK_ADDRESS | TARGET_LINK_ADDRESS | MTU, _) => {
                    return Err(Malformed::Length);
                }
                _ => {}
            }
            bytes = rest;
        }
        if bytes.is_empty() { Ok(options) } else { Err(Malformed::Length) }
    }
}

fn prefix(body: &[u8]) -> Result<PrefixInformation, Malformed> {
    let (&[prefix_len, flags, v0, v1, v2, v3, p0, p1, p2, p3, _, _, _, _], rest) =
        body.split_first_chunk().ok_or(Malformed::Length)?;
    let (&octets, rest) = rest.split_first_chunk::<16>().ok_or(Malformed::Length)?;
    if !rest.is_empty() {
        return Err(Malformed::Length);
    }
    Ok(PrefixInformation {
        prefix_len,
        on_link: flags & 0x80 != 0,
        autonomous: flags & 0x40 != 0,
        valid_s: u32::from_be_bytes([v0, v1, v2, v3]),
        preferred_s: u32::from_be_bytes([p0, p1, p2, p3]),
        prefix: Ipv6Addr::from(octets),
    })
}

/// Reads the message of type `kind` whose body (behind the checksum) this is. Other types are
/// `Unsupported`.
pub fn parse(kind: u8, body: &[u8]) -> Result<NdpMessage, Malformed> {
    let (&[a, b, c, d], rest) = body.split_first_chunk().ok_or(Malformed::Short)?;
    Ok(match kind {
        ROUTER_SOLICITATION => {
            NdpMessage::RouterSolicitation { source: Options::parse(rest)?.source }
        }
        ROUTER_ADVERTISEMENT => {
            let (&[r0, r1, r2, r3, t0, t1, t2, t3], rest) =
                rest.split_first_chunk().ok_or(Malformed::Short)?;
            let options = Options::parse(rest)?;
            NdpMessage::RouterAdvertisement(RouterAdvertisement {
                hop_limit: a,
                flags: b,
                lifetime_s: u16::from_be_bytes([c, d]),
                reachable_ms: u32::from_be_bytes([r0, r1, r2, r3]),
                retransmit_ms: u32::from_be_bytes([t0, t1, t2, t3]),
                source: options.source,
                mtu: options.mtu,
                prefixes: options.prefixes,
            })
        }
        NEIGHBOR_SOLICITATION => {
            let (target, rest) = target(rest)?;
            NdpMessage::NeighborSolicitation { target, source: Options::parse(rest)?.source }
        }
        NEIGHBOR_ADVERTISEMENT => {
            let (target, rest) = target(rest)?;
            NdpMessage::NeighborAdvertisement {
                router: a & 0x80 != 0,
                solicited: a & 0x40 != 0,
                overrides: a & 0x20 != 0,
                target,
                link_address: Options::parse(rest)?.target,
            }
        }
        _ => return Err(Malformed::Unsupported),
    })
}

fn target(bytes: &[u8]) -> Result<(Ipv6Addr, &[u8]), Malformed> {
    let (&octets, rest) = bytes.split_first_chunk::<16>().ok_or(Malformed::Short)?;
    Ok((Ipv6Addr::from(octets), rest))
}

impl NdpMessage {
    /// Writes the whole ICMPv6 message, checksum done, to the start of `out`; its length.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-4.1
    //# It MUST be initialized to zero by the sender and MUST be ignored by the receiver.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-4.3
    //# It MUST be initialized to zero by the sender and MUST be ignored by the receiver.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-4.4
    //# It MUST be initialized to zero by the sender and MUST be ignored by the receiver.
    pub fn emit(&self, src: Ipv6Addr, dst: Ipv6Addr, out: &mut [u8]) -> Result<usize, NoRoom> {
        let room = out.len();
        let rest = match *self {
            NdpMessage::RouterSolicitation { source } => {
                let rest = put(&mut *out, &[ROUTER_SOLICITATION, 0, 0, 0, 0, 0, 0, 0])?;
                put_link_address(rest, SOURCE_LINK_ADDRESS, source)?
            }
            NdpMessage::RouterAdvertisement(ref said) => said.put(&mut *out)?,
            NdpMessage::NeighborSolicitation { target, source } => {
                let rest = put(&mut *out, &[NEIGHBOR_SOLICITATION, 0, 0, 0, 0, 0, 0, 0])?;
                let rest = put(rest, &target.octets())?;
                put_link_address(rest, SOURCE_LINK_ADDRESS, source)?
            }
            NdpMessage::NeighborAdvertisement {
                router,
                solicited,
                overrides,
                target,
                link_address,
            } => {
                let flags =
                    u8::from(router) << 7 | u8::from(solicited) << 6 | u8::from(overrides) << 5;
                let rest = put(&mut *out, &[NEIGHBOR_ADVERTISEMENT, 0, 0, 0, flags, 0, 0, 0])?;
                let rest = put(rest, &target.octets())?;
                put_link_address(rest, TARGET_LINK_ADDRESS, link_address)?
            }
        };
        let len = room - rest.len();
        seal(src, dst, out, len)
    }
}

fn put_link_address(
    out: &mut [u8],
    kind: u8,
    address: Option<MacAddr>,
) -> Result<&mut [u8], NoRoom> {
    let Some(MacAddr([a, b, c, d, e, f])) = address else { return Ok(out) };
    put(out, &[kind, 1, a, b, c, d, e, f])
}

impl RouterAdvertisement {
    fn put<'a>(&self, out: &'a mut [u8]) -> Result<&'a mut [u8], NoRoom> {
        let [l0, l1] = self.lifetime_s.to_be_bytes();
        let head = [ROUTER_ADVERTISEMENT, 0, 0, 0, self.hop_limit, self.flags, l0, l1];
        let rest = put(out, &head)?;
        let rest = put(rest, &self.reachable_ms.to_be_bytes())?;
        let rest = put(rest, &self.retransmit_ms.to_be_bytes())?;
        let mut rest = put_link_address(rest, SOURCE_LINK_ADDRESS, self.source)?;
        if let Some(mtu) = self.mtu {
            let [a, b, c, d] = mtu.to_be_bytes();
            rest = put(rest, &[MTU, 1, 0, 0, a, b, c, d])?;
        }
        for prefix in self.prefixes.iter() {
            let flags = u8::from(prefix.on_link) << 7 | u8::from(prefix.autonomous) << 6;
            rest = put(rest, &[PREFIX_INFORMATION, 4, prefix.prefix_len, flags])?;
            rest = put(rest, &prefix.valid_s.to_be_bytes())?;
            rest = put(rest, &prefix.preferred_s.to_be_bytes())?;
            rest = put(rest, &[0; 4])?;
            rest = put(rest, &prefix.prefix.octets())?;
        }
        Ok(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= https://www.rfc-editor.org/rfc/rfc4861#section-4.3
    //= type=test
    //# Receivers MUST silently ignore any options they do not recognize and continue processing the
    //# message.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-4.6
    //= type=test
    //# Nodes MUST silently discard an ND packet that contains an option with length zero.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-7.1.1
    //= type=test
    //# The contents of the Reserved field, and of any unrecognized options, MUST be ignored.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-9
    //= type=test
    //# In order to ensure that future extensions properly coexist with current implementations, all
    //# nodes MUST silently ignore any options they do not recognize in received ND packets and
    //# continue processing the packet.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-9
    //= type=test
    //# A node MUST NOT ignore valid options just because the ND message contains unrecognized ones.
    #[test]
    fn an_option_without_length_spoils_the_message() {
        let mut body = [0; 28];
        body[20] = 99;
        assert_eq!(parse(NEIGHBOR_SOLICITATION, &body), Err(Malformed::Length));
        body[21] = 1;
        assert!(parse(NEIGHBOR_SOLICITATION, &body).is_ok(), "an unknown option is skipped");
        body[21] = 2;
        assert_eq!(parse(NEIGHBOR_SOLICITATION, &body), Err(Malformed::Length));
    }

    #[test]
    fn preferences_are_signed_and_the_reserved_one_is_medium() {
        for (flags, expected) in [(0x00, 0), (0x08, 1), (0x18, -1), (0x10, 0)] {
            let said = RouterAdvertisement { flags, ..Default::default() };
            assert_eq!(said.preference(), expected);
        }
    }
}
