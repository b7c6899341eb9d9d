//! The internet group management protocol, version 3 (RFC 3376), and what older versions (RFC 1112,
//! RFC 2236) differ in, as far as a host speaks it.

use core::net::Ipv4Addr;

use crate::Malformed;
use crate::checksum::Sum;
use crate::groups::{Query, floating};

/// Type of a query.
pub const QUERY: u8 = 0x11;
/// Type of version 1's report.
pub const REPORT_V1: u8 = 0x12;
/// Type of version 2's report.
pub const REPORT_V2: u8 = 0x16;
/// Type of version 2's message that a group is left.
pub const LEAVE: u8 = 0x17;
/// Type of version 3's report.
pub const REPORT: u8 = 0x22;
/// Every host; nobody reports it.
pub const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
/// Where it is told that a group is left.
pub const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
/// Where reports of version 3 go.
pub const ALL_REPORTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);
/// Time to live of every message.
pub const TTL: u8 = 1;
/// Type of service of every message.
pub const TOS: u8 = 0xc0;

/// What a host may hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IgmpMessage<'a> {
    /// Which groups are listened to?
    Query(Query<'a>),
    /// Somebody listens to a group, told as version 1 or 2 does.
    Report(Ipv4Addr),
    /// Anything else, with its type.
    Other(u8),
}

/// Reads a message and verifies its checksum.
pub fn parse(bytes: &[u8]) -> Result<IgmpMessage<'_>, Malformed> {
    let (&[kind, code, _, _, g0, g1, g2, g3], rest) =
        bytes.split_first_chunk().ok_or(Malformed::Short)?;
    if !Sum::of(bytes).is_valid() {
        return Err(Malformed::Checksum);
    }
    let group = Ipv4Addr::new(g0, g1, g2, g3);
    match kind {
        QUERY => query(code, group, rest).map(IgmpMessage::Query),
        REPORT_V1 | REPORT_V2 => Ok(IgmpMessage::Report(group)),
        _ => Ok(IgmpMessage::Other(kind)),
    }
}

/// RFC 3376, section 7.1: the length and the first field tell the version.
fn query(code: u8, group: Ipv4Addr, rest: &[u8]) -> Result<Query<'_>, Malformed> {
    let group = group.into();
    let old = |version, tenths: u32| Query {
        version,
        response_ms: tenths * 100,
        group,
        robustness: 0,
        interval_s: 0,
        sources: &[],
    };
    let Some((&[flags, interval, n0, n1], sources)) = rest.split_first_chunk() else {
        return match (code, rest) {
            (0, []) => Ok(old(1, 100)),
            (_, []) => Ok(old(2, code.into())),
            // Queries of no known length are to be ignored.
            _ => Err(Malformed::Length),
        };
    };
    let named = usize::from(u16::from_be_bytes([n0, n1])) * 4;
    Ok(Query {
        version: 3,
        response_ms: floating(code.into(), 4) * 100,
        group,
        robustness: flags & 7,
        interval_s: floating(interval.into(), 4),
        sources: sources.get(..named).ok_or(Malformed::Length)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
        let sum = Sum::of(&bytes).finish();
        bytes[2..4].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    fn heard(bytes: Vec<u8>) -> (u8, u32, usize) {
        let bytes = sealed(bytes);
        let Ok(IgmpMessage::Query(query)) = parse(&bytes) else { panic!("no query: {bytes:?}") };
        (query.version, query.response_ms, query.sources().count())
    }

    #[test]
    fn the_version_of_a_query_shows_in_its_length() {
        assert_eq!(heard(vec![QUERY, 0, 0, 0, 0, 0, 0, 0]), (1, 10_000, 0));
        assert_eq!(heard(vec![QUERY, 25, 0, 0, 224, 0, 0, 9]), (2, 2_500, 0));
        assert_eq!(heard(vec![QUERY, 100, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0]), (3, 10_000, 0));
        let named = vec![QUERY, 100, 0, 0, 224, 0, 0, 9, 2, 125, 0, 1, 10, 0, 0, 1];
        assert_eq!(heard(named.clone()), (3, 10_000, 1));
        for bad in [named[..14].to_vec(), named[..10].to_vec()] {
            assert_eq!(parse(&sealed(bad)), Err(Malformed::Length));
        }
        assert_eq!(parse(&named), Err(Malformed::Checksum));
    }

    #[test]
    fn what_others_report_is_heard() {
        let group = Ipv4Addr::new(224, 0, 0, 9);
        for kind in [REPORT_V1, REPORT_V2] {
            let bytes = sealed(vec![kind, 0, 0, 0, 224, 0, 0, 9]);
            assert_eq!(parse(&bytes), Ok(IgmpMessage::Report(group)));
        }
        let bytes = sealed(vec![LEAVE, 0, 0, 0, 224, 0, 0, 9]);
        assert_eq!(parse(&bytes), Ok(IgmpMessage::Other(LEAVE)));
    }
}
