//! What hosts and routers say to each other of multicast groups: what IGMP (RFC 3376) and MLD
//! (RFC 3810) have in common.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{Malformed, NoRoom, put, put_slice};

/// Somebody asks which groups are listened to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query<'a> {
    /// Version of the protocol that the router speaks: 1 to 3 of IGMP, 1 or 2 of MLD.
    pub version: u8,
    /// Answers are to be spread over so many milliseconds.
    pub response_ms: u32,
    /// The group asked about; unspecified for all.
    pub group: IpAddr,
    /// How often a change is to be told; 0 where it does not say.
    pub robustness: u8,
    /// Seconds between general queries; 0 where it does not say.
    pub interval_s: u32,
    pub(crate) sources: &'a [u8],
}

impl Query<'_> {
    /// The senders asked about; none for all.
    pub fn sources(&self) -> impl Iterator<Item = IpAddr> + '_ {
        addresses(self.sources, self.group.is_ipv6())
    }
}

/// A number that may stand for a large one (RFC 3376, sections 4.1.1 and 4.1.7; RFC 3810, section
/// 5.1.9): `code` has `bits` bits of mantissa below three of exponent.
pub(crate) fn floating(code: u32, bits: u32) -> u32 {
    let limit = 1 << (bits + 3);
    if code < limit {
        return code;
    }
    let (mantissa, exponent) = (code & ((1 << bits) - 1), code >> bits & 7);
    (mantissa | 1 << bits) << (exponent + 3)
}

fn addresses(bytes: &[u8], v6: bool) -> impl Iterator<Item = IpAddr> + '_ {
    let of_v4 = |bytes: &[u8]| bytes.try_into().map(|four: [u8; 4]| Ipv4Addr::from(four).into());
    let of_v6 = |bytes: &[u8]| bytes.try_into().map(|all: [u8; 16]| Ipv6Addr::from(all).into());
    bytes
        .chunks_exact(if v6 { 16 } else { 4 })
        .filter_map(move |bytes| if v6 { of_v6(bytes).ok() } else { of_v4(bytes).ok() })
}

/// How a group's state is told (RFC 3376, section 4.2.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// These senders are listened to.
    IsInclude = 1,
    /// All senders but these are listened to.
    IsExclude = 2,
    /// From now on these senders alone are listened to.
    ToInclude = 3,
    /// From now on all senders but these are listened to.
    ToExclude = 4,
    /// These senders are listened to, too, from now on.
    Allow = 5,
    /// These senders are listened to no more.
    Block = 6,
}

impl RecordKind {
    fn from_code(code: u8) -> Option<Self> {
        let all = [
            Self::IsInclude,
            Self::IsExclude,
            Self::ToInclude,
            Self::ToExclude,
            Self::Allow,
            Self::Block,
        ];
        all.into_iter().find(|kind| *kind as u8 == code)
    }
}

/// What a report says of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// What is told.
    pub kind: RecordKind,
    /// Of which group.
    pub group: IpAddr,
    sources: &'a [u8],
}

impl Record<'_> {
    /// The senders that it names.
    pub fn sources(&self) -> impl Iterator<Item = IpAddr> + '_ {
        addresses(self.sources, self.group.is_ipv6())
    }
}

/// Bytes of a report before its records.
pub const REPORT_HEAD_LEN: usize = 8;

/// Bytes of a record with so many senders.
pub fn record_len(group: IpAddr, sources: usize) -> usize {
    let address = if group.is_ipv6() { 16 } else { 4 };
    4 + address + address * sources
}

fn put_address(out: &mut [u8], address: IpAddr) -> Result<&mut [u8], NoRoom> {
    match address {
        IpAddr::V4(v4) => put(out, &v4.octets()),
        IpAddr::V6(v6) => put(out, &v6.octets()),
    }
}

/// Writes a record to the start of `out`; senders are of the group's family.
pub fn emit_record(
    out: &mut [u8],
    kind: RecordKind,
    group: IpAddr,
    sources: &[IpAddr],
) -> Result<usize, NoRoom> {
    let room = out.len();
    let count = u16::try_from(sources.len()).map_err(|_| NoRoom)?.to_be_bytes();
    let mut rest = put(out, &[kind as u8, 0])?;
    rest = put(rest, &count)?;
    rest = put_address(rest, group)?;
    for source in sources {
        rest = put_address(rest, *source)?;
    }
    Ok(room - rest.len())
}

/// Writes the head of a report of the newest version, which has this type and so many records; the
/// checksum is left 0.
pub fn emit_head(out: &mut [u8], kind: u8, records: u16) -> Result<usize, NoRoom> {
    let [high, low] = records.to_be_bytes();
    put(out, &[kind, 0, 0, 0, 0, 0, high, low])?;
    Ok(REPORT_HEAD_LEN)
}

/// Writes a message of an older version about a group: its report, or that it is left. The checksum
/// is left 0.
pub fn emit_old(out: &mut [u8], kind: u8, group: IpAddr) -> Result<usize, NoRoom> {
    let room = out.len();
    let mut rest = put(out, &[kind, 0, 0, 0])?;
    if group.is_ipv6() {
        rest = put_slice(rest, &[0; 4])?;
    }
    let rest = put_address(rest, group)?.len();
    Ok(room - rest)
}

/// The records of a report, of which `body` is what follows the checksum.
pub fn records(body: &[u8], v6: bool) -> Result<Records<'_>, Malformed> {
    let (&[_, _, high, low], rest) = body.split_first_chunk().ok_or(Malformed::Short)?;
    Ok(Records { left: u16::from_be_bytes([high, low]), rest, v6 })
}

/// Reads records one by one; ends with the first that is cut short.
#[derive(Clone, Copy, Debug)]
pub struct Records<'a> {
    left: u16,
    rest: &'a [u8],
    v6: bool,
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        self.left = self.left.checked_sub(1)?;
        let (&[kind, auxiliary, s0, s1], rest) = self.rest.split_first_chunk()?;
        let address = if self.v6 { 16 } else { 4 };
        let (group, rest) = rest.split_at_checked(address)?;
        let named = usize::from(u16::from_be_bytes([s0, s1])) * address;
        let (sources, rest) = rest.split_at_checked(named)?;
        self.rest = rest.get(usize::from(auxiliary) * 4..)?;
        let group = addresses(group, self.v6).next()?;
        Some(Record { kind: RecordKind::from_code(kind)?, group, sources })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_are_written_short() {
        assert_eq!(floating(127, 4), 127);
        assert_eq!(floating(0x80, 4), 128);
        assert_eq!(floating(0xff, 4), 31_744);
        assert_eq!(floating(0x7fff, 12), 0x7fff);
        assert_eq!(floating(0xffff, 12), 0x1fff << 10);
    }

    #[test]
    fn a_report_says_what_it_was_told() {
        for (group, source) in [("224.1.2.3", "10.0.0.1"), ("ff05::7", "fd00::1")] {
            let (group, source): (IpAddr, IpAddr) =
                (group.parse().unwrap(), source.parse().unwrap());
            let mut bytes = [0; 128];
            let mut len = emit_head(&mut bytes, 0x22, 2).unwrap();
            for (kind, sources) in
                [(RecordKind::ToExclude, &[][..]), (RecordKind::Block, &[source, source])]
            {
                let added = emit_record(&mut bytes[len..], kind, group, sources).unwrap();
                assert_eq!(added, record_len(group, sources.len()));
                len += added;
            }
            let v6 = group.is_ipv6();
            let told: Vec<_> = records(&bytes[4..len], v6).unwrap().collect();
            assert_eq!((told[0].kind, told[0].group), (RecordKind::ToExclude, group));
            assert_eq!(told[0].sources().count(), 0);
            assert_eq!(told[1].kind, RecordKind::Block);
            assert_eq!(told[1].sources().collect::<Vec<_>>(), [source, source]);
            for cut in 4..len {
                assert!(records(&bytes[4..cut], v6).map_or(0, Iterator::count) < 2);
            }
        }
    }
}
