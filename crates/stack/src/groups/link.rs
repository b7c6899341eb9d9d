//! What is told of groups on one link, and when: RFC 3376, sections 5 and 7; RFC 3810, sections 6
//! and 8.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use wire::groups::{
    Query, REPORT_HEAD_LEN, RecordKind, emit_head, emit_old, emit_record, record_len,
};
use wire::{igmp, mld};

use super::{Filter, Group, NEVER, SOURCES_MAX, is_told, state};
use crate::api::{Instant, InterfaceIndex};

const SECOND: u64 = 1_000_000_000;
/// How often a change is told, unless the router says otherwise.
//= https://www.rfc-editor.org/rfc/rfc3810#section-9.1
//# The value of the Robustness Variable MUST NOT be zero, and SHOULD NOT be one.
const ROBUSTNESS: u8 = 2;
/// Seconds between general queries, unless the router says otherwise.
const INTERVAL_S: u32 = 125;
/// A change is told again within so much time.
const AGAIN_NS: u64 = SECOND;
/// The same in older versions.
const AGAIN_OLD_NS: u64 = 10 * SECOND;
/// Most bytes of a report: every link takes them with their headers.
const REPORT_MAX: usize = 1200;

/// A message without its checksum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Through which interface.
    pub interface: InterfaceIndex,
    /// To which group.
    pub to: IpAddr,
    /// From its type on.
    pub bytes: Vec<u8>,
}

/// What is still to be told of a group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Pending {
    /// How often that its filter excludes now, or does so no more.
    mode_left: u8,
    /// Of which senders that they are listened to now, or no more, and how often.
    changed: Vec<(IpAddr, u8)>,
    /// When somebody who asked is answered, and about which senders; none for all.
    asked: Option<(u64, Vec<IpAddr>)>,
    /// When it is reported as older versions do, and how often.
    old_due: u64,
    old_left: u8,
    /// Nobody has reported it since we did.
    is_last_reporter: bool,
}

impl Default for Pending {
    fn default() -> Self {
        Self {
            mode_left: 0,
            changed: Vec::new(),
            asked: None,
            old_due: NEVER,
            old_left: 0,
            is_last_reporter: false,
        }
    }
}

impl Pending {
    pub fn is_over(&self) -> bool {
        self.mode_left == 0 && self.changed.is_empty()
    }

    pub fn next(&self) -> u64 {
        self.asked.as_ref().map_or(NEVER, |(due, _)| *due).min(self.old_due)
    }

    pub fn on_report_of_another(&mut self) {
        if self.old_due != NEVER {
            (self.old_due, self.old_left, self.is_last_reporter) = (NEVER, 0, false);
        }
    }

    /// The version that is spoken has changed.
    fn cancel(&mut self) {
        *self = Self { is_last_reporter: self.is_last_reporter, ..Self::default() };
    }
}

/// A group record of a report.
struct GroupRecord<'a> {
    kind: RecordKind,
    group: IpAddr,
    sources: &'a [IpAddr],
}

/// One family on one interface.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Link {
    interface: InterfaceIndex,
    v6: bool,
    /// When changes are told.
    change_due: u64,
    /// When all groups are told, because somebody asked.
    all_due: u64,
    /// Until when there is a router of an older version: of the oldest one, and of IGMP's second.
    old_until: [u64; 2],
    robustness: u8,
    interval_s: u32,
    /// Groups of which it is told as older versions do that they are left.
    left: Vec<IpAddr>,
}

impl Link {
    pub fn new(interface: InterfaceIndex, v6: bool) -> Self {
        Self {
            interface,
            v6,
            change_due: NEVER,
            all_due: NEVER,
            old_until: [0; 2],
            robustness: ROBUSTNESS,
            interval_s: INTERVAL_S,
            left: Vec::new(),
        }
    }

    pub fn is(&self, interface: InterfaceIndex, v6: bool) -> bool {
        (self.interface, self.v6) == (interface, v6)
    }

    pub fn next(&self) -> u64 {
        self.change_due.min(self.all_due)
    }

    fn newest(&self) -> u8 {
        if self.v6 { 2 } else { 3 }
    }

    /// The version that is spoken.
    //= https://www.rfc-editor.org/rfc/rfc3810#section-8.2.1
    //# In order to be compatible with MLDv1 routers, MLDv2 hosts MUST operate in version 1
    //# compatibility mode.
    //= https://www.rfc-editor.org/rfc/rfc3810#section-8.2.1
    //# MLDv2 hosts MUST keep state per local interface regarding the compatibility mode of each
    //# attached link.
    fn version(&self, now: Instant) -> u8 {
        let old = self.old_until.iter().position(|until| *until > now.0);
        old.map_or(self.newest(), |old| old as u8 + 1)
    }

    /// The filter of a group is another than `before`.
    pub fn on_change(&mut self, now: Instant, group: &mut Group, before: &Filter) {
        let (pending, after) = (&mut group.pending, &group.filter);
        if self.version(now) < self.newest() {
            if *after == Filter::NOBODY {
                (pending.old_due, pending.old_left) = (NEVER, 0);
                // The very first version has no such message.
                if std::mem::take(&mut pending.is_last_reporter)
                    && (self.v6 || self.version(now) > 1)
                {
                    self.left.push(group.address);
                    self.change_due = now.0;
                }
            } else if *before == Filter::NOBODY {
                (pending.old_due, pending.old_left) = (now.0, self.robustness);
            }
            return;
        }
        // RFC 3376, section 5.1: told more than once, should a router miss it.
        if before.excludes != after.excludes {
            // Its report names all senders that matter.
            pending.mode_left = self.robustness;
            pending.changed.clear();
        } else {
            let gone =
                before.sources.iter().filter(|one| after.sources.binary_search(one).is_err());
            let new = after.sources.iter().filter(|one| before.sources.binary_search(one).is_err());
            for source in gone.chain(new) {
                pending.changed.retain(|(one, _)| one != source);
                pending.changed.push((*source, self.robustness));
            }
        }
        self.change_due = now.0;
    }

    /// Somebody asks. `delay` gives a random time up to the one that it is given.
    //= https://www.rfc-editor.org/rfc/rfc3810#section-6.3
    //# MUST NOT send a Report immediately upon reception of a General Query.
    pub fn on_query(
        &mut self,
        now: Instant,
        query: &Query<'_>,
        groups: &mut [&mut Group],
        mut delay: impl FnMut(u64) -> u64,
    ) {
        let before = self.version(now);
        let within = u64::from(query.response_ms) * 1_000_000;
        if query.version < self.newest() {
            let present = u64::from(self.robustness) * u64::from(self.interval_s) * SECOND + within;
            if let Some(until) = self.old_until.get_mut(usize::from(query.version) - 1) {
                *until = now.0.saturating_add(present);
            }
        } else {
            self.robustness = if query.robustness == 0 { ROBUSTNESS } else { query.robustness };
            self.interval_s = if query.interval_s == 0 { INTERVAL_S } else { query.interval_s };
        }
        // RFC 3376, section 7.2.1: what waits is in the other version's terms.
        if self.version(now) != before {
            groups.iter_mut().for_each(|group| group.pending.cancel());
            (self.change_due, self.all_due) = (NEVER, NEVER);
        }
        let is_old = self.version(now) < self.newest();
        let to_all = query.group.is_unspecified();
        if to_all && !is_old {
            self.all_due = self.all_due.min(now.0.saturating_add(delay(within)));
            return;
        }
        for group in groups.iter_mut() {
            let is_meant = to_all || group.address == query.group;
            if !is_meant || group.filter == Filter::NOBODY || !is_told(group.address) {
                continue;
            }
            let due = now.0.saturating_add(delay(within));
            let pending = &mut group.pending;
            if is_old {
                pending.old_due = pending.old_due.min(due);
                pending.old_left = pending.old_left.max(1);
            } else if self.all_due > due {
                pending.ask(due, query);
            }
        }
    }

    /// Does what is due.
    pub fn on_time(
        &mut self,
        now: Instant,
        groups: &mut [&mut Group],
        mut delay: impl FnMut(u64) -> u64,
        tell: &mut impl FnMut(Message),
    ) {
        if self.change_due <= now.0 {
            self.change_due = NEVER;
            for group in self.left.drain(..) {
                let (kind, to) = match group {
                    IpAddr::V4(_) => (igmp::LEAVE, igmp::ALL_ROUTERS.into()),
                    IpAddr::V6(_) => (mld::DONE, mld::ALL_ROUTERS.into()),
                };
                tell_old(self.interface, kind, group, to, tell);
            }
            if self.tell_changes(groups, tell) {
                self.change_due = now.0.saturating_add(delay(AGAIN_NS).max(1));
            }
        }
        if self.all_due <= now.0 {
            self.all_due = NEVER;
            let mut reports = Reports::new(self.interface, self.v6);
            for group in groups.iter().filter(|one| is_told(one.address)) {
                reports.add_state(group, tell);
            }
            reports.finish(tell);
        }
        for group in groups.iter_mut() {
            if let Some((_, about)) = group.pending.asked.take_if(|(due, _)| *due <= now.0) {
                let mut reports = Reports::new(self.interface, self.v6);
                if about.is_empty() {
                    reports.add_state(group, tell);
                } else {
                    let heard: Vec<IpAddr> =
                        about.into_iter().filter(|one| group.filter.admits(*one)).collect();
                    let kind = RecordKind::IsInclude;
                    if !heard.is_empty() {
                        reports.add(
                            &GroupRecord { kind, group: group.address, sources: &heard },
                            tell,
                        );
                    }
                }
                reports.finish(tell);
            }
            if group.pending.old_due <= now.0 {
                let kind = match (self.v6, self.version(now)) {
                    (true, _) => mld::REPORT_V1,
                    (false, 1) => igmp::REPORT_V1,
                    (false, _) => igmp::REPORT_V2,
                };
                tell_old(self.interface, kind, group.address, group.address, tell);
                let pending = &mut group.pending;
                pending.is_last_reporter = true;
                pending.old_left = pending.old_left.saturating_sub(1);
                pending.old_due = match pending.old_left {
                    0 => NEVER,
                    _ => now.0.saturating_add(delay(AGAIN_OLD_NS).max(1)),
                };
            }
        }
    }

    /// Tells of changes once; whether they are to be told again.
    fn tell_changes(&self, groups: &mut [&mut Group], tell: &mut impl FnMut(Message)) -> bool {
        let mut reports = Reports::new(self.interface, self.v6);
        for group in groups.iter_mut() {
            let (address, filter) = (group.address, &group.filter);
            let pending = &mut group.pending;
            if pending.mode_left > 0 {
                let kind =
                    if filter.excludes { RecordKind::ToExclude } else { RecordKind::ToInclude };
                reports.add(&GroupRecord { kind, group: address, sources: &filter.sources }, tell);
            } else {
                for (kind, admits) in [(RecordKind::Allow, true), (RecordKind::Block, false)] {
                    let sources: Vec<IpAddr> = pending
                        .changed
                        .iter()
                        .map(|(source, _)| *source)
                        .filter(|source| filter.admits(*source) == admits)
                        .collect();
                    if !sources.is_empty() {
                        reports.add(&GroupRecord { kind, group: address, sources: &sources }, tell);
                    }
                }
            }
            pending.mode_left = pending.mode_left.saturating_sub(1);
            pending.changed.iter_mut().for_each(|(_, left)| *left = left.saturating_sub(1));
            pending.changed.retain(|(_, left)| *left > 0);
        }
        reports.finish(tell);
        groups.iter().any(|group| !group.pending.is_over())
    }
}

impl Pending {
    /// Remembers a question about a group, beside one that is not answered yet (RFC 3376, section
    /// 5.2, rules 3 to 5).
    fn ask(&mut self, due: u64, query: &Query<'_>) {
        let mut about: Vec<IpAddr> = query.sources().take(SOURCES_MAX + 1).collect();
        let before = self.asked.take();
        let due = before.as_ref().map_or(due, |(earlier, _)| due.min(*earlier));
        match before {
            Some((_, others)) if !others.is_empty() && !about.is_empty() => about.extend(others),
            Some(_) => about.clear(),
            None => {}
        }
        about.sort_unstable();
        about.dedup();
        if about.len() > SOURCES_MAX {
            // Everything is said instead.
            about.clear();
        }
        self.asked = Some((due, about));
    }
}

fn tell_old(
    interface: InterfaceIndex,
    kind: u8,
    group: IpAddr,
    to: IpAddr,
    tell: &mut impl FnMut(Message),
) {
    let mut bytes = vec![0; 24];
    if let Ok(len) = emit_old(&mut bytes, kind, group) {
        bytes.truncate(len);
        tell(Message { interface, to, bytes });
    }
}

/// Reports being filled with records.
struct Reports {
    interface: InterfaceIndex,
    v6: bool,
    bytes: Vec<u8>,
    records: u16,
}

impl Reports {
    fn new(interface: InterfaceIndex, v6: bool) -> Self {
        Self { interface, v6, bytes: vec![0; REPORT_HEAD_LEN], records: 0 }
    }

    fn add_state(&mut self, group: &Group, tell: &mut impl FnMut(Message)) {
        if group.filter != Filter::NOBODY {
            let sources = &group.filter.sources;
            self.add(
                &GroupRecord { kind: state(&group.filter), group: group.address, sources },
                tell,
            );
        }
    }

    /// What does not fit becomes several records of as many reports; of senders that are not heard
    /// there can be one record only, which names as many as fit (RFC 3376, section 4.2.16).
    fn add(&mut self, record: &GroupRecord<'_>, tell: &mut impl FnMut(Message)) {
        let room = |taken: usize| REPORT_MAX.saturating_sub(taken);
        let least = record_len(record.group, 0);
        let each = record_len(record.group, 1) - least;
        let most = room(REPORT_HEAD_LEN + least) / each;
        let excludes = matches!(record.kind, RecordKind::IsExclude | RecordKind::ToExclude);
        let mut rest = record.sources;
        loop {
            let (now, later) = rest.split_at(rest.len().min(most));
            if self.records > 0 && record_len(record.group, now.len()) > room(self.bytes.len()) {
                self.finish(tell);
            }
            let start = self.bytes.len();
            self.bytes.resize(start + record_len(record.group, now.len()), 0);
            let room = self.bytes.get_mut(start..).unwrap_or_default();
            if emit_record(room, record.kind, record.group, now).is_ok() {
                self.records += 1;
            }
            if later.is_empty() || excludes {
                return;
            }
            rest = later;
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc3810#section-5.2.10
    //# Therefore, implementations of MLDv2 MUST NOT include any auxiliary data (i.e., MUST set the
    //# Aux Data Len field to zero) in any transmitted Multicast Address Record, and MUST ignore any
    //# such data present in any received Multicast Address Record.
    //= https://www.rfc-editor.org/rfc/rfc3810#section-5.2.11
    //# When sending a Report, an MLDv2 implementation MUST NOT include additional octets beyond the
    //# last Multicast Address Record.
    fn finish(&mut self, tell: &mut impl FnMut(Message)) {
        let mut bytes = std::mem::replace(&mut self.bytes, vec![0; REPORT_HEAD_LEN]);
        let records = std::mem::take(&mut self.records);
        let (kind, to) = match self.v6 {
            false => (igmp::REPORT, igmp::ALL_REPORTS.into()),
            true => (mld::REPORT, mld::ALL_MLDV2_ROUTERS.into()),
        };
        if records > 0 && emit_head(&mut bytes, kind, records).is_ok() {
            tell(Message { interface: self.interface, to, bytes });
        }
    }
}
