//! IGMP, and what it has in common with MLD, as text.
//!
//! ```text
//! 10.0.0.1>224.0.0.22 igmp report joins 239.1.1.1
//! [fe80::1]>[ff02::16] icmp6 mld report allows [ff05::7] ([fd00::9])
//! ```

use core::fmt;

use super::Line;
use crate::groups::{Query, RecordKind, Records, records};
use crate::igmp::{self, IgmpMessage};

impl Line<'_> {
    pub(super) fn show_igmp(&self, f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
        f.write_str(" ")?;
        match igmp::parse(bytes) {
            Ok(IgmpMessage::Query(query)) => self.show_query(f, "igmp", &query),
            Ok(IgmpMessage::Report(group)) => {
                let version = if bytes.first() == Some(&igmp::REPORT_V1) { 1 } else { 2 };
                write!(f, "igmpv{version} report in {}", self.host(group))
            }
            Ok(IgmpMessage::Other(igmp::LEAVE)) => {
                let group = bytes.get(4..).and_then(|rest| rest.first_chunk::<4>());
                write!(f, "igmpv2 leave {}", self.host(group.copied().unwrap_or_default()))
            }
            Ok(IgmpMessage::Other(igmp::REPORT)) => {
                match records(bytes.get(4..).unwrap_or_default(), false) {
                    Ok(records) => self.show_records(f, "igmp", records),
                    Err(error) => write!(f, "igmp: {error}"),
                }
            }
            Ok(IgmpMessage::Other(kind)) => write!(f, "igmp type {kind}"),
            Err(error) => write!(f, "igmp: {error}"),
        }
    }

    /// A question which groups are listened to.
    pub(super) fn show_query(
        &self,
        f: &mut fmt::Formatter<'_>,
        protocol: &str,
        query: &Query<'_>,
    ) -> fmt::Result {
        write!(f, "{protocol} query v{}", query.version)?;
        if !query.group.is_unspecified() {
            write!(f, " {}", self.host(query.group))?;
        }
        query.sources().try_for_each(|source| write!(f, " {}", self.host(source)))
    }

    /// What a report says of groups, a word for each kind of record.
    pub(super) fn show_records(
        &self,
        f: &mut fmt::Formatter<'_>,
        protocol: &str,
        records: Records<'_>,
    ) -> fmt::Result {
        write!(f, "{protocol} report")?;
        for record in records {
            let senders = record.sources().count();
            let verb = match (record.kind, senders) {
                (RecordKind::IsExclude, 0) => "in",
                (RecordKind::ToInclude, 0) => "leaves",
                (RecordKind::ToExclude, 0) => "joins",
                (RecordKind::IsInclude, _) => "is-only",
                (RecordKind::IsExclude, _) => "is-all-but",
                (RecordKind::ToInclude, _) => "only",
                (RecordKind::ToExclude, _) => "all-but",
                (RecordKind::Allow, _) => "allows",
                (RecordKind::Block, _) => "blocks",
            };
            write!(f, " {verb} {}", self.host(record.group))?;
            if senders > 0 {
                f.write_str(" (")?;
                for (at, source) in record.sources().enumerate() {
                    let gap = if at == 0 { "" } else { " " };
                    write!(f, "{gap}{}", self.host(source))?;
                }
                f.write_str(")")?;
            }
        }
        Ok(())
    }
}
