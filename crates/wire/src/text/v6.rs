//! IPv6 and ICMPv6 as text.
//!
//! ```text
//! [fd00::1]:40000>[fd00::2]:80 S 1000 win 64800 <mss 1440>
//! [fe80::1]>[ff02::1:ff00:2] icmp6 who-has [fd00::2] from 02:00:00:00:00:01
//! [fd00::2]>[fd00::1] icmp6 [fd00::2] is-at 02:00:00:00:00:02 solicited override
//! [fd00::1]>[fd00::2] frag 77 1448:800+ proto 17
//! ```

use core::fmt;

use super::{Line, Route};
use crate::icmpv6::{self, Icmpv6Message, unreachable};
use crate::ipv4::Protocol;
use crate::ipv6::{self, Ipv6Header, walk};
use crate::mld;
use crate::ndp::{self, NdpMessage};

impl Line<'_> {
    fn route_v6(&self, header: &Ipv6Header, protocol: Protocol) -> Route<'_> {
        Route { src: self.host(header.src), dst: self.host(header.dst), protocol }
    }

    pub(super) fn show_ipv6(&self, f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
        let (header, payload) = match ipv6::parse(bytes) {
            Ok(parts) => parts,
            Err(error) => return write!(f, "ip6: {error}"),
        };
        let chain = match walk(header.next_header, payload, 0) {
            Ok(chain) => chain,
            Err(_) => {
                self.route_v6(&header, header.next_header).show(f)?;
                return write!(f, " headers unreadable from {}", header.next_header.0);
            }
        };
        let route = self.route_v6(&header, chain.protocol);
        if let Some(piece) = chain.fragment {
            route.show(f)?;
            let (start, len) = (piece.offset, chain.payload.len());
            let more = if piece.more { "+" } else { "" };
            let id = piece.identification;
            return write!(f, " frag {id} {start}:{len}{more} proto {}", piece.next_header.0);
        }
        self.show_transport(f, &route, chain.payload)
    }

    pub(super) fn show_icmpv6(&self, f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
        let message = match icmpv6::parse_unverified(bytes) {
            Ok(message) => message,
            Err(error) => return write!(f, " icmp6: {error}"),
        };
        f.write_str(" icmp6 ")?;
        match message {
            Icmpv6Message::EchoRequest(echo) => write!(f, "echo request {echo}"),
            Icmpv6Message::EchoReply(echo) => write!(f, "echo reply {echo}"),
            Icmpv6Message::Unreachable { code, quoted } => {
                f.write_str("unreachable ")?;
                match code {
                    unreachable::NO_ROUTE => f.write_str("route")?,
                    unreachable::PROHIBITED => f.write_str("prohibited")?,
                    unreachable::ADDRESS => f.write_str("address")?,
                    unreachable::PORT => f.write_str("port")?,
                    other => write!(f, "code {other}")?,
                }
                self.show_quoted_v6(f, quoted)
            }
            Icmpv6Message::PacketTooBig { mtu, quoted } => {
                write!(f, "too-big mtu {mtu}")?;
                self.show_quoted_v6(f, quoted)
            }
            Icmpv6Message::TimeExceeded { code, quoted } => {
                f.write_str("time-exceeded ")?;
                f.write_str(if code == 0 { "in-transit" } else { "reassembly" })?;
                self.show_quoted_v6(f, quoted)
            }
            Icmpv6Message::ParameterProblem { code, pointer, quoted } => {
                write!(f, "parameter-problem {code} at {pointer}")?;
                self.show_quoted_v6(f, quoted)
            }
            Icmpv6Message::Other { kind: mld::QUERY, body, .. } => match mld::parse_query(body) {
                Ok(query) => self.show_query(f, "mld", &query),
                Err(error) => write!(f, "mld: {error}"),
            },
            Icmpv6Message::Other { kind: kind @ (mld::REPORT_V1 | mld::DONE), body, .. } => {
                match mld::parse_old_report(body) {
                    Ok(group) => {
                        let verb = if kind == mld::DONE { "done" } else { "report in" };
                        write!(f, "mldv1 {verb} {}", self.host(group))
                    }
                    Err(error) => write!(f, "mld: {error}"),
                }
            }
            Icmpv6Message::Other { kind: mld::REPORT, body, .. } => match mld::parse_report(body) {
                Ok(records) => self.show_records(f, "mld", records),
                Err(error) => write!(f, "mld: {error}"),
            },
            Icmpv6Message::Other { kind, code, body } => match ndp::parse(kind, body) {
                Ok(message) => self.show_ndp(f, &message),
                Err(crate::Malformed::Unsupported) => write!(f, "type {kind} code {code}"),
                Err(error) => write!(f, "ndp: {error}"),
            },
        }
    }

    fn show_ndp(&self, f: &mut fmt::Formatter<'_>, message: &NdpMessage) -> fmt::Result {
        match *message {
            NdpMessage::RouterSolicitation { .. } => f.write_str("router solicitation"),
            NdpMessage::RouterAdvertisement(ref said) => {
                write!(f, "router advertisement {}s", said.lifetime_s)?;
                for prefix in said.prefixes.iter() {
                    write!(f, " {}/{}", prefix.prefix, prefix.prefix_len)?;
                }
                Ok(())
            }
            NdpMessage::NeighborSolicitation { target, source } => {
                write!(f, "who-has {}", self.host(target))?;
                match source {
                    Some(source) => write!(f, " from {source}"),
                    None => Ok(()),
                }
            }
            NdpMessage::NeighborAdvertisement {
                solicited,
                overrides,
                target,
                link_address,
                ..
            } => {
                write!(f, "{}", self.host(target))?;
                match link_address {
                    Some(at) => write!(f, " is-at {at}")?,
                    None => f.write_str(" is here")?,
                }
                f.write_str(if solicited { " solicited" } else { "" })?;
                f.write_str(if overrides { " override" } else { "" })
            }
        }
    }

    fn show_quoted_v6(&self, f: &mut fmt::Formatter<'_>, quoted: &[u8]) -> fmt::Result {
        f.write_str(" [")?;
        match ipv6::parse_quoted(quoted) {
            Ok((header, payload)) => match walk(header.next_header, payload, 0) {
                Ok(chain) if chain.fragment.is_none_or(|piece| piece.offset == 0) => {
                    let route = self.route_v6(&header, chain.protocol);
                    route.show_quoted(f, chain.payload)?;
                }
                _ => self.route_v6(&header, header.next_header).show(f)?,
            },
            Err(error) => write!(f, "ip6: {error}")?,
        }
        f.write_str("]")
    }
}
