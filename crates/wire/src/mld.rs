//! Multicast listener discovery, version 2 (RFC 3810), and what version 1 (RFC 2710) differs in, as
//! far as a host speaks it. Messages of ICMPv6; the caller has verified checksum and hop limit.

use core::net::Ipv6Addr;

use crate::Malformed;
use crate::groups::{Query, Records, floating, records};
use crate::ipv4::Protocol;

/// Type of a query.
pub const QUERY: u8 = 130;
/// Type of version 1's report.
pub const REPORT_V1: u8 = 131;
/// Type of version 1's message that a group is left.
pub const DONE: u8 = 132;
/// Type of version 2's report.
pub const REPORT: u8 = 143;
/// Where it is told that a group is left.
pub const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// Where reports of version 2 go.
pub const ALL_MLDV2_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
/// Hop limit of every message.
pub const HOP_LIMIT: u8 = 1;

/// The hop-by-hop header that goes before every message: a router alert (RFC 2711, value 0) and
/// padding.
pub const ROUTER_ALERT: [u8; 8] = [Protocol::ICMPV6.0, 0, 5, 2, 0, 0, 1, 0];

/// Reads the body (behind the checksum) of a query of version 1 or 2.
pub fn parse_query(body: &[u8]) -> Result<Query<'_>, Malformed> {
    let (&[r0, r1, _, _], rest) = body.split_first_chunk().ok_or(Malformed::Short)?;
    let (&group, rest) = rest.split_first_chunk::<16>().ok_or(Malformed::Short)?;
    let code = u32::from(u16::from_be_bytes([r0, r1]));
    let group = Ipv6Addr::from(group).into();
    let Some((&[flags, interval, n0, n1], sources)) = rest.split_first_chunk() else {
        //= https://www.rfc-editor.org/rfc/rfc3810#section-8.1
        //# Query messages that do not match any of the above conditions (e.g., a Query of length 26
        //# octets) MUST be silently ignored.
        if !rest.is_empty() {
            return Err(Malformed::Length);
        }
        let (version, robustness, interval_s) = (1, 0, 0);
        let (response_ms, sources) = (code, &[][..]);
        return Ok(Query { version, response_ms, group, robustness, interval_s, sources });
    };
    let named = usize::from(u16::from_be_bytes([n0, n1])) * 16;
    Ok(Query {
        version: 2,
        response_ms: floating(code, 12),
        group,
        robustness: flags & 7,
        interval_s: floating(interval.into(), 4),
        sources: sources.get(..named).ok_or(Malformed::Length)?,
    })
}

/// The group of a body of version 1's report.
pub fn parse_old_report(body: &[u8]) -> Result<Ipv6Addr, Malformed> {
    let group = body.get(4..).and_then(|rest| rest.first_chunk::<16>()).ok_or(Malformed::Short)?;
    Ok(Ipv6Addr::from(*group))
}

/// The records of a body of version 2's report.
pub fn parse_report(body: &[u8]) -> Result<Records<'_>, Malformed> {
    records(body, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_of_version_2_may_give_answers_hours() {
        let mut body = [0; 24];
        body[..2].copy_from_slice(&0x7fff_u16.to_be_bytes());
        assert_eq!(parse_query(&body).unwrap().response_ms, 0x7fff);
        body[..2].copy_from_slice(&0xffff_u16.to_be_bytes());
        assert_eq!(parse_query(&body).unwrap().response_ms, 0x1fff << 10);
        let old = parse_query(&body[..20]).unwrap();
        assert_eq!((old.version, old.response_ms), (1, 0xffff));
        assert_eq!(parse_query(&body[..19]), Err(Malformed::Short));
        assert_eq!(parse_query(&body[..22]), Err(Malformed::Length));
        body[23] = 1;
        assert_eq!(parse_query(&body), Err(Malformed::Length), "a source is missing");
    }

    //= https://www.rfc-editor.org/rfc/rfc3810#section-8.1
    //= type=test
    //# Query messages that do not match any of the above conditions (e.g., a Query of length 26
    //# octets) MUST be silently ignored.
    #[test]
    fn a_query_is_of_version_1_or_2_by_its_length() {
        for (len, is_one) in [(19, false), (20, true), (21, false), (23, false), (24, true)] {
            assert_eq!(parse_query(&[0; 24][..len]).is_ok(), is_one, "{len}");
        }
    }
}
