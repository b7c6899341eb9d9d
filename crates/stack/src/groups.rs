//! Multicast groups: who listens to which on which interface, and what routers are told of it by
//! IGMPv3 (RFC 3376) and MLDv2 (RFC 3810), or by what they speak on links with older routers.
//! Values are Linux's defaults.
//!
//! Decisions only: messages come out as [`Message`]s. What a packet needs to know is found by hash
//! ([`Groups::hears`], and then a socket's own short list); everything else is not on its path.

mod filter;
mod link;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use wire::groups::{Query, RecordKind};
use wire::{igmp, ipv6};

use crate::api::{GroupKey, Instant, InterfaceIndex, SourceChange};
use crate::flow::{FlowTable, KeyedHash};

pub use filter::Filter;
pub use link::Message;
use link::{Link, Pending};

/// For ever.
const NEVER: u64 = u64::MAX;
/// Groups that one socket may listen to (Linux's igmp_max_memberships is 20; of IPv6 it has no
/// limit).
pub const MEMBERSHIPS_MAX: usize = 64;
/// Senders that one socket may name of one group (Linux's igmp_max_msf is 10, mld_max_msf 64).
pub const SOURCES_MAX: usize = 64;
/// Senders that all sockets may name of one group together: what an interface tells of a group is
/// made of them anew with each change.
pub const SOURCES_OF_GROUP_MAX: usize = 1024;

/// Why a membership request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It names as many groups or senders as it may, or there are as many as there may be.
    Full,
    /// It does not listen to the group.
    NotJoined,
}

/// A socket's membership of a group.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Membership {
    group: u32,
    filter: Filter,
}

/// A group on an interface.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Group {
    interface: InterfaceIndex,
    address: IpAddr,
    /// What all who listen want together.
    filter: Filter,
    /// Sockets that listen.
    sockets: Vec<u32>,
    /// Senders that sockets name, those of each by itself.
    named: usize,
    /// How often the stack itself listens: for the addresses that it is asked for by this group.
    own: u32,
    pending: Pending,
}

impl Group {
    fn is_wanted(&self) -> bool {
        self.own > 0 || !self.sockets.is_empty()
    }
}

/// All groups.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Groups {
    groups: Vec<Option<Group>>,
    by_address: FlowTable<(InterfaceIndex, IpAddr)>,
    /// Each socket's.
    memberships: Vec<Vec<Membership>>,
    links: Vec<Link>,
    limit: u32,
    due: u64,
    random: u64,
}

/// Whether routers are told of a group: not of that of all hosts, nor of those that stay on the
/// host or the link by definition (RFC 3376, section 6; RFC 3810, section 6).
fn is_told(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group != igmp::ALL_HOSTS,
        IpAddr::V6(group) => group != ipv6::ALL_NODES && group.octets()[1] & 15 >= 2,
    }
}

/// So many groups and those that the stack may have beside them.
fn with_own(limit: u32) -> u32 {
    limit.saturating_add(limit / 4)
}

impl Groups {
    /// Room for `limit` groups of so many sockets, and beside them for some of the stack's own: without
    /// that of an address nobody on the link finds it.
    pub fn new(hash: KeyedHash, sockets: u32, limit: u32, seed: u64) -> Self {
        Self {
            groups: Vec::new(),
            by_address: FlowTable::new(hash, with_own(limit)),
            memberships: vec![Vec::new(); sockets as usize],
            links: Vec::new(),
            limit,
            due: NEVER,
            random: seed,
        }
    }

    fn find(&self, interface: InterfaceIndex, address: IpAddr) -> Option<&Group> {
        let at = self.by_address.find(&(interface, address))?;
        self.groups.get(at as usize)?.as_ref()
    }

    /// Whether what `source` sends to a group is listened to on an interface.
    pub fn hears(&self, interface: InterfaceIndex, address: IpAddr, source: IpAddr) -> bool {
        self.find(interface, address).is_some_and(|group| group.filter.admits(source))
    }

    /// Whether anybody listens to a group on an interface.
    pub fn is_joined(&self, interface: InterfaceIndex, address: IpAddr) -> bool {
        self.find(interface, address).is_some_and(Group::is_wanted)
    }

    /// Whether a socket hears what `source` sends to a group, which the host does. `all`: also where
    /// it has not joined it (IP_MULTICAST_ALL), as nobody needs to the group of all hosts.
    pub fn admits(&self, socket: u32, group: GroupKey, source: IpAddr, all: bool) -> bool {
        let Some(at) = self.by_address.find(&group) else { return all };
        let memberships = self.memberships.get(socket as usize).map_or(&[][..], Vec::as_slice);
        match memberships.iter().find(|membership| membership.group == at) {
            Some(membership) => membership.filter.admits(source),
            None => all,
        }
    }

    /// The place of a group, of which there may be `most` if it is new.
    fn enter(&mut self, interface: InterfaceIndex, address: IpAddr, most: u32) -> Option<u32> {
        if let Some(at) = self.by_address.find(&(interface, address)) {
            return Some(at);
        }
        let free = self.groups.iter().position(Option::is_none);
        let at = free.unwrap_or(self.groups.len());
        if at >= most as usize {
            return None;
        }
        let (filter, sockets, pending) = (Filter::NOBODY, Vec::new(), Pending::default());
        let group = Group { interface, address, filter, sockets, named: 0, own: 0, pending };
        match self.groups.get_mut(at) {
            Some(place) => *place = Some(group),
            None => self.groups.push(Some(group)),
        }
        // There is room: the table is as large as the list may be.
        let _ = self.by_address.insert((interface, address), at as u32);
        Some(at as u32)
    }

    /// The link's part that speaks of an address's family.
    fn link(&mut self, interface: InterfaceIndex, v6: bool) -> usize {
        let known = self.links.iter().position(|link| link.is(interface, v6));
        known.unwrap_or_else(|| {
            self.links.push(Link::new(interface, v6));
            self.links.len() - 1
        })
    }

    /// A socket listens to all senders to a group but those that it names from now on
    /// (`excludes`), or to those alone; or not at all any more (`None`). Whom it named before is
    /// forgotten.
    pub fn set(
        &mut self,
        now: Instant,
        socket: u32,
        (interface, address): (InterfaceIndex, IpAddr),
        excludes: Option<bool>,
    ) -> Result<(), Refused> {
        let known = self.by_address.find(&(interface, address));
        let memberships = self.memberships.get_mut(socket as usize).ok_or(Refused::Full)?;
        let place = memberships.iter().position(|membership| Some(membership.group) == known);
        let Some(excludes) = excludes else {
            let gone = memberships.swap_remove(place.ok_or(Refused::NotJoined)?);
            self.forget(now, socket, &gone);
            return Ok(());
        };
        let filter = Filter { excludes, sources: Vec::new() };
        if let Some(membership) = place.and_then(|place| memberships.get_mut(place)) {
            let before = std::mem::replace(&mut membership.filter, filter);
            let at = membership.group;
            if let Some(group) = self.groups.get_mut(at as usize).and_then(Option::as_mut) {
                group.named = group.named.saturating_sub(before.sources.len());
            }
            self.follow(now, at);
            return Ok(());
        }
        if memberships.len() >= MEMBERSHIPS_MAX {
            return Err(Refused::Full);
        }
        let at = self.enter(interface, address, self.limit).ok_or(Refused::Full)?;
        if let Some(memberships) = self.memberships.get_mut(socket as usize) {
            memberships.push(Membership { group: at, filter });
        }
        if let Some(group) = self.groups.get_mut(at as usize).and_then(Option::as_mut) {
            group.sockets.push(socket);
        }
        self.follow(now, at);
        Ok(())
    }

    /// A socket names a sender of a group that it listens to, or no longer does.
    //= https://www.rfc-editor.org/rfc/rfc3810#section-4.2
    //# If system resource limits are reached when a per-interface state source list is calculated,
    //# an error MUST be returned to the application which requested the operation.
    //= https://www.rfc-editor.org/rfc/rfc3810#section-3
    //# When an operation causes the source list size limit to be exceeded, the service interface
    //# SHOULD return an error.
    pub fn name(
        &mut self,
        now: Instant,
        socket: u32,
        key: GroupKey,
        source: SourceChange,
    ) -> Result<(), Refused> {
        let SourceChange { address: source, is_added } = source;
        let at = self.by_address.find(&key).ok_or(Refused::NotJoined)?;
        let memberships = self.memberships.get_mut(socket as usize).ok_or(Refused::NotJoined)?;
        let membership = memberships
            .iter_mut()
            .find(|membership| membership.group == at)
            .ok_or(Refused::NotJoined)?;
        let group = self.groups.get_mut(at as usize).and_then(Option::as_mut);
        let group = group.ok_or(Refused::NotJoined)?;
        if !is_added {
            group.named = group.named.saturating_sub(membership.filter.remove(source).into());
        } else if membership.filter.sources.len() < SOURCES_MAX
            && group.named < SOURCES_OF_GROUP_MAX
        {
            group.named += usize::from(membership.filter.add(source));
        } else {
            return Err(Refused::Full);
        }
        self.follow(now, at);
        Ok(())
    }

    /// A socket is closed.
    pub fn close(&mut self, now: Instant, socket: u32) {
        let memberships =
            self.memberships.get_mut(socket as usize).map(std::mem::take).unwrap_or_default();
        for membership in memberships {
            self.forget(now, socket, &membership);
        }
    }

    fn forget(&mut self, now: Instant, socket: u32, gone: &Membership) {
        if let Some(group) = self.groups.get_mut(gone.group as usize).and_then(Option::as_mut) {
            group.sockets.retain(|listens| *listens != socket);
            group.named = group.named.saturating_sub(gone.filter.sources.len());
        }
        self.follow(now, gone.group);
    }

    /// The stack itself listens to a group, once more or once less. `false`: no room.
    pub fn listen(
        &mut self,
        now: Instant,
        interface: InterfaceIndex,
        address: IpAddr,
        listens: bool,
    ) -> bool {
        let at = match listens {
            true => self.enter(interface, address, with_own(self.limit)),
            false => self.by_address.find(&(interface, address)),
        };
        let Some(at) = at else { return !listens };
        if let Some(group) = self.groups.get_mut(at as usize).and_then(Option::as_mut) {
            group.own = if listens { group.own + 1 } else { group.own.saturating_sub(1) };
        }
        self.follow(now, at);
        true
    }

    /// An interface has lost its addresses and gets others: the stack listens to nothing there for
    /// now; sockets do.
    pub fn stop(&mut self, now: Instant, interface: InterfaceIndex) {
        for at in 0..self.groups.len() {
            if let Some(group) = self.groups[at].as_mut().filter(|one| one.interface == interface) {
                group.own = 0;
                self.follow(now, at as u32);
            }
        }
    }

    /// Tells of IPv6's groups as if they had just been joined: what was told before had no sender.
    pub fn tell_anew(&mut self, now: Instant, interface: InterfaceIndex) {
        let place = self.link(interface, true);
        let Some(link) = self.links.get_mut(place) else { return };
        for group in self.groups.iter_mut().flatten() {
            if link.is(group.interface, group.address.is_ipv6()) && is_told(group.address) {
                link.on_change(now, group, &Filter::NOBODY);
            }
        }
        self.settle();
    }

    /// What all want of a group may be something else now.
    fn follow(&mut self, now: Instant, at: u32) {
        let Some(group) = self.groups.get_mut(at as usize).and_then(Option::as_mut) else { return };
        let of = |socket: &u32| {
            self.memberships.get(*socket as usize)?.iter().find(|membership| membership.group == at)
        };
        let wants = group.sockets.iter().filter_map(of).map(|membership| &membership.filter);
        let own = [Filter::ALL];
        let own = own.iter().take(usize::from(group.own > 0));
        let after = Filter::merged(wants.chain(own));
        let before = std::mem::replace(&mut group.filter, after);
        let (interface, address) = (group.interface, group.address);
        if is_told(address) && before != group.filter {
            let link = self.link(interface, address.is_ipv6());
            if let (Some(link), Some(group)) = (
                self.links.get_mut(link),
                self.groups.get_mut(at as usize).and_then(Option::as_mut),
            ) {
                link.on_change(now, group, &before);
            }
        }
        self.tidy(at);
        self.settle();
    }

    /// Forgets a group that nobody listens to and of which nothing is left to be told.
    fn tidy(&mut self, at: u32) {
        let Some(place) = self.groups.get_mut(at as usize) else { return };
        if let Some(group) = place.take_if(|group| !group.is_wanted() && group.pending.is_over()) {
            self.by_address.remove(&(group.interface, group.address));
        }
    }

    fn settle(&mut self) {
        let links = self.links.iter().map(Link::next);
        let groups = self.groups.iter().flatten().map(|group| group.pending.next());
        self.due = links.chain(groups).min().unwrap_or(NEVER);
    }

    /// When [`on_time`](Self::on_time) wants to be called.
    pub fn next_deadline(&self) -> Option<Instant> {
        (self.due != NEVER).then_some(Instant(self.due))
    }

    fn delay(random: &mut u64, most: u64) -> u64 {
        // A linear congruential generator, whose upper half is random enough for pauses.
        *random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(*random >> 32) * u128::from(most)) >> 32) as u64
    }

    /// Somebody wants to know what is listened to.
    pub fn on_query(&mut self, now: Instant, interface: InterfaceIndex, query: &Query<'_>) {
        let v6 = query.group.is_ipv6();
        let place = self.link(interface, v6);
        let Some(link) = self.links.get_mut(place) else { return };
        let mut groups: Vec<&mut Group> = self.groups.iter_mut().flatten().collect();
        groups.retain(|one| one.interface == interface && one.address.is_ipv6() == v6);
        let random = &mut self.random;
        link.on_query(now, query, &mut groups, |most| Self::delay(random, most));
        self.settle();
    }

    /// Somebody else has reported a group, as older versions do, so that we need not.
    pub fn on_report(&mut self, interface: InterfaceIndex, address: IpAddr) {
        if let Some(at) = self.by_address.find(&(interface, address))
            && let Some(group) = self.groups.get_mut(at as usize).and_then(Option::as_mut)
        {
            group.pending.on_report_of_another();
            self.settle();
        }
    }

    /// Does what is due: `tell` hears what to send.
    pub fn on_time(&mut self, now: Instant, mut tell: impl FnMut(Message)) {
        if self.due > now.0 {
            return;
        }
        let random = &mut self.random;
        for link in &mut self.links {
            let mut groups: Vec<&mut Group> = self.groups.iter_mut().flatten().collect();
            groups.retain(|one| link.is(one.interface, one.address.is_ipv6()));
            link.on_time(now, &mut groups, |most| Self::delay(random, most), &mut tell);
        }
        for at in 0..self.groups.len() {
            self.tidy(at as u32);
        }
        self.settle();
    }

    /// Groups on an interface, with the senders that are listened to.
    #[cfg(test)]
    pub fn on(&self, interface: InterfaceIndex) -> Vec<(IpAddr, Filter)> {
        let on = self.groups.iter().flatten().filter(|group| group.interface == interface);
        on.map(|group| (group.address, group.filter.clone())).collect()
    }
}

/// The kind of record that says what is so.
fn state(filter: &Filter) -> RecordKind {
    if filter.excludes { RecordKind::IsExclude } else { RecordKind::IsInclude }
}

#[cfg(test)]
mod tests;
