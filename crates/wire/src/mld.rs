//! Multicast listener discovery, version 2 (RFC 3810), as far as a host speaks it: queries are
//! read, reports written. Messages of ICMPv6; the caller has verified checksum and hop limit.

use core::net::Ipv6Addr;

use crate::icmpv6::seal;
use crate::ipv4::Protocol;
use crate::{Malformed, NoRoom, put};

/// Type of a query.
pub const QUERY: u8 = 130;
/// Type of a report.
pub const REPORT: u8 = 143;
/// Where reports go.
pub const ALL_MLDV2_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
/// Hop limit of every message.
pub const HOP_LIMIT: u8 = 1;
/// Groups of one report that [`Report::emit`] writes and [`parse_report`] reads.
pub const GROUPS_MAX: usize = 2;

/// The hop-by-hop header that goes before every message: a router alert (RFC 2711, value 0) and
/// padding.
pub const ROUTER_ALERT: [u8; 8] = [Protocol::ICMPV6.0, 0, 5, 2, 0, 0, 1, 0];

/// Somebody asks which groups are listened to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// Answers are to be spread over so many milliseconds.
    pub response_ms: u32,
    /// The group asked about; unspecified for all.
    pub group: Ipv6Addr,
}

/// Reads the body (behind the checksum) of a query of version 1 or 2.
pub fn parse_query(body: &[u8]) -> Result<Query, Malformed> {
    let (&[r0, r1, _, _], rest) = body.split_first_chunk().ok_or(Malformed::Short)?;
    let (&group, rest) = rest.split_first_chunk::<16>().ok_or(Malformed::Short)?;
    //= https://www.rfc-editor.org/rfc/rfc3810#section-8.1
    //# Query messages that do not match any of the above conditions (e.g., a Query of length 26
    //# octets) MUST be silently ignored.
    if matches!(rest.len(), 1..4) {
        return Err(Malformed::Length);
    }
    let code = u16::from_be_bytes([r0, r1]);
    // RFC 3810, section 5.1.3: with version 2 a floating-point number from 32768 on.
    let response_ms = if rest.len() < 4 || code < 32768 {
        u32::from(code)
    } else {
        (u32::from(code & 0x0fff) | 0x1000) << (u32::from(code >> 12 & 7) + 3)
    };
    Ok(Query { response_ms, group: Ipv6Addr::from(group) })
}

/// How a group's state is told (RFC 3810, section 5.2.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// It is listened to, whoever sends.
    IsExclude = 2,
    /// It is listened to no more.
    ToInclude = 3,
    /// It is listened to from now on, whoever sends.
    ToExclude = 4,
}

/// The state of a few groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// What is said of each.
    pub records: [Option<(RecordKind, Ipv6Addr)>; GROUPS_MAX],
}

impl Report {
    /// Writes the whole ICMPv6 message, checksum done, to the start of `out`; its length.
    pub fn emit(&self, src: Ipv6Addr, dst: Ipv6Addr, out: &mut [u8]) -> Result<usize, NoRoom> {
        let room = out.len();
        let count = self.records.iter().flatten().count() as u8;
        let mut rest = put(&mut *out, &[REPORT, 0, 0, 0, 0, 0, 0, count])?;
        for (kind, group) in self.records.iter().flatten() {
            rest = put(rest, &[*kind as u8, 0, 0, 0])?;
            rest = put(rest, &group.octets())?;
        }
        let len = room - rest.len();
        seal(src, dst, out, len)
    }
}

/// Reads the body of a report: its first groups. Kinds that we never write are `Unsupported`.
pub fn parse_report(body: &[u8]) -> Result<Report, Malformed> {
    let (&[_, _, c0, c1], mut rest) = body.split_first_chunk().ok_or(Malformed::Short)?;
    let mut report = Report { records: [None; GROUPS_MAX] };
    let count = usize::from(u16::from_be_bytes([c0, c1]));
    for place in report.records.iter_mut().take(count) {
        let (&[kind, auxiliary, s0, s1], tail) =
            rest.split_first_chunk().ok_or(Malformed::Short)?;
        let (&group, tail) = tail.split_first_chunk::<16>().ok_or(Malformed::Short)?;
        let kind = match kind {
            2 => RecordKind::IsExclude,
            3 => RecordKind::ToInclude,
            4 => RecordKind::ToExclude,
            _ => return Err(Malformed::Unsupported),
        };
        *place = Some((kind, Ipv6Addr::from(group)));
        let more = usize::from(u16::from_be_bytes([s0, s1])) * 16 + usize::from(auxiliary) * 4;
        rest = tail.get(more..).ok_or(Malformed::Length)?;
    }
    Ok(report)
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
        assert_eq!(parse_query(&body[..20]).unwrap().response_ms, 0xffff);
        assert_eq!(parse_query(&body[..19]), Err(Malformed::Short));
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

    #[test]
    fn a_report_says_what_it_was_told() {
        let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 1);
        let report = Report { records: [Some((RecordKind::ToExclude, group)), None] };
        let mut bytes = [0; 28];
        assert_eq!(report.emit(Ipv6Addr::UNSPECIFIED, ALL_MLDV2_ROUTERS, &mut bytes), Ok(28));
        assert_eq!(parse_report(&bytes[4..]), Ok(report));
        for len in 4..28 {
            assert_eq!(parse_report(&bytes[4..len]).unwrap_err(), Malformed::Short);
        }
    }
}
