//! Which groups are told of, and when (RFC 3810, section 6).

use std::net::Ipv6Addr;

use serde::{Deserialize, Serialize};

use super::NEVER;
use crate::api::Instant;

/// How often a change is told (the robustness variable's default).
//= https://www.rfc-editor.org/rfc/rfc3810#section-9.1
//# The value of the Robustness Variable MUST NOT be zero, and SHOULD NOT be one.
const TIMES: u8 = 2;

/// What is told of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Told {
    /// It is listened to from now on.
    Joins,
    /// It is listened to no more.
    Leaves,
    /// It is listened to: an answer.
    Listens,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Pending {
    group: Ipv6Addr,
    told: Told,
    due: u64,
    left: u8,
}

/// What is still to be told on one interface. At most a few for each address.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Reports {
    pending: Vec<Pending>,
    /// When all groups are told, because somebody asked.
    all: Option<u64>,
}

impl Reports {
    pub fn next(&self) -> u64 {
        let pending = self.pending.iter().map(|one| one.due).min().unwrap_or(NEVER);
        pending.min(self.all.unwrap_or(NEVER))
    }

    /// A group was joined, and that has been told once.
    pub fn join(&mut self, now: Instant, group: Ipv6Addr, pause: u64) {
        self.leave(group);
        let due = now.0.saturating_add(pause.max(1));
        self.pending.push(Pending { group, told: Told::Joins, due, left: TIMES - 1 });
    }

    /// A group was left.
    pub fn leave(&mut self, group: Ipv6Addr) {
        self.pending.retain(|one| one.group != group);
    }

    /// Somebody asks about `group` (all, when it is unspecified), and is answered at `due`.
    pub fn on_query(&mut self, due: u64, group: Ipv6Addr, groups: &[Ipv6Addr]) {
        if group.is_unspecified() {
            self.all = Some(self.all.map_or(due, |before| before.min(due)));
        } else if groups.contains(&group) && !self.pending.iter().any(|one| one.group == group) {
            self.pending.push(Pending { group, told: Told::Listens, due, left: 1 });
        }
    }

    pub fn on_time(
        &mut self,
        now: Instant,
        pause: u64,
        groups: &[Ipv6Addr],
        mut tell: impl FnMut(Told, Ipv6Addr),
    ) {
        for one in self.pending.iter_mut().filter(|one| one.due <= now.0) {
            tell(one.told, one.group);
            one.left -= 1;
            one.due = now.0.saturating_add(pause.max(1));
        }
        self.pending.retain(|one| one.left > 0);
        if self.all.is_some_and(|due| due <= now.0) {
            self.all = None;
            groups.iter().for_each(|group| tell(Told::Listens, *group));
        }
    }
}
