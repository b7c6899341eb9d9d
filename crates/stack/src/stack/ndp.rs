//! Neighbour discovery (RFC 4861) and the life of own addresses (RFC 4862): what comes in, what is
//= https://www.rfc-editor.org/rfc/rfc4862#section-5.4.1
//# A node MUST silently discard any Neighbor Solicitation or Advertisement message that does not
//# pass the validity checks specified in [RFC4861].
//! asked, and the frames of it.

use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use wire::ethernet::{EtherType, EthernetHeader};
use wire::ipv4::Protocol;
use wire::ipv6::{ALL_NODES, ALL_ROUTERS, Ipv6Header, is_link_local, solicited_node};
use wire::mld;
use wire::ndp::{self, NdpMessage};
use wire::{MacAddr, Malformed};

use super::{HEADER_MAX, Outgoing, Stack};
use crate::api::*;
use crate::autoconf::Action;
use crate::drops::DropReason;
use crate::neighbor::{Advertisement, Binding};
use crate::route::AddressState;

/// A message that waits to be transmitted.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct NdpOut {
    to: MacAddr,
    src: Ipv6Addr,
    dst: Ipv6Addr,
    what: NdpWhat,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum NdpWhat {
    /// Who has it?
    Solicit(Ipv6Addr),
    /// We have it.
    Advertise { target: Ipv6Addr, solicited: bool },
    /// Which routers are there?
    SolicitRouters,
}

/// Where a message of neighbour discovery came from.
pub(super) struct NdpRx {
    pub interface: InterfaceIndex,
    pub link_source: MacAddr,
    pub src: Ipv6Addr,
    pub dst: Ipv6Addr,
    pub hop_limit: u8,
    /// It came with a router alert for MLD.
    pub is_about_groups: bool,
    pub code: u8,
}

impl NdpRx {
    /// Its sender with the link address that it names.
    fn binding(&self, mac: MacAddr) -> Binding {
        Binding { interface: self.interface, address: self.src.into(), mac }
    }
}

impl Stack {
    /// Begins the life of an interface's IPv6 addresses.
    pub(super) fn start_autoconf(&mut self, index: InterfaceIndex, config: &InterfaceConfig) {
        let seed = self.hash.hash_one(("autoconf", index));
        self.autoconf.start(index, config, seed);
        self.on_learnt(index);
    }

    /// What is known of an interface has changed.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.5
    //# When removing a router from the Default Router list, the node MUST update the Destination
    //# Cache in such a way that all entries using the router perform next-hop determination again
    fn on_learnt(&mut self, index: InterfaceIndex) {
        let learnt = self.autoconf.learnt(index);
        if let Some(times) = learnt.times {
            self.neighbors.set_times(index, times);
        }
        self.routes.set_learnt(index, learnt);
        self.interface_generation = self.interface_generation.wrapping_add(1);
        let (duplicates, limited) = self.autoconf.counts();
        (self.counters.addresses_duplicate, self.counters.autoconf_limited) = (duplicates, limited);
    }

    /// A neighbour has stopped answering, or answers again: another router may be better.
    pub(super) fn note_router(&mut self, interface: InterfaceIndex, ip: IpAddr, is_silent: bool) {
        if self.autoconf.on_router_silent(interface, ip, is_silent) {
            self.on_learnt(interface);
        }
    }

    pub(super) fn on_autoconf_time(&mut self, now: Instant) {
        let mut actions = Vec::new();
        let changed = self.autoconf.on_time(now, |action| actions.push(action));
        for index in changed {
            self.on_learnt(index);
        }
        for action in actions {
            self.act(now, action);
        }
    }

    fn act(&mut self, now: Instant, action: Action) {
        let (interface, out) = match action {
            Action::Probe(interface, target) => {
                let dst = solicited_node(target);
                (interface, NdpOut::to_group(Ipv6Addr::UNSPECIFIED, dst, NdpWhat::Solicit(target)))
            }
            Action::SolicitRouters(interface) => {
                let src = self.link_local(interface).unwrap_or(Ipv6Addr::UNSPECIFIED);
                (interface, NdpOut::to_group(src, ALL_ROUTERS, NdpWhat::SolicitRouters))
            }
            Action::TellGroups(interface) => {
                self.groups.tell_anew(now, interface);
                return self.tell_groups(now);
            }
            Action::Listen(interface, group, listens) => {
                if !self.groups.listen(now, interface, group.into(), listens) {
                    self.counters.groups_limited = self.counters.groups_limited.wrapping_add(1);
                }
                // Told before the address is probed for (RFC 4862, section 5.4.2).
                return self.tell_groups(now);
            }
        };
        self.push_out(interface, Outgoing::Ndp(out));
    }

    pub(super) fn link_local(&self, interface: InterfaceIndex) -> Option<Ipv6Addr> {
        let usable = |state| matches!(state, AddressState::Preferred | AddressState::Deprecated);
        self.routes.addresses(interface).iter().find_map(|own| match own.cidr.address {
            IpAddr::V6(ip) if is_link_local(ip) && usable(own.state) => Some(ip),
            _ => None,
        })
    }

    /// Asks where `target` is: its last known owner, or the group in which it listens.
    pub(super) fn solicit(
        &mut self,
        interface: InterfaceIndex,
        target: Ipv6Addr,
        known: Option<MacAddr>,
    ) {
        let Some(route) = self.routes.lookup_back(interface, target.into()) else { return };
        //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.2
        //# If the source address of the packet prompting the solicitation is the same as one of the
        //# addresses assigned to the outgoing interface, that address SHOULD be placed in the IP
        //# Source Address of the outgoing solicitation.
        let IpAddr::V6(src) = route.source else { return };
        let what = NdpWhat::Solicit(target);
        let out = match known {
            Some(to) => NdpOut { to, src, dst: target, what },
            None => NdpOut::to_group(src, solicited_node(target), what),
        };
        self.push_out(interface, Outgoing::Ndp(out));
    }

    /// A message of type `kind` with its body; its checksum has been verified.
    pub(super) fn on_ndp(
        &mut self,
        now: Instant,
        rx: &NdpRx,
        kind: u8,
        body: &[u8],
    ) -> Result<(), DropReason> {
        if matches!(kind, mld::QUERY | mld::REPORT_V1) {
            return self.on_mld(now, rx, kind, body);
        }
        let message = ndp::parse(kind, body).map_err(|error| match error {
            //= https://www.rfc-editor.org/rfc/rfc4443#section-2.4
            //# (b) If an ICMPv6 informational message of unknown type is received, it MUST be
            //# silently discarded.
            Malformed::Unsupported => DropReason::IcmpNotServed,
            _ => DropReason::NdpInvalid,
        })?;
        //= https://www.rfc-editor.org/rfc/rfc4861#section-7.1.1
        //# A node MUST silently discard any received Neighbor Solicitation
        //# messages that do not satisfy all of the following validity checks:
        if rx.hop_limit != ndp::HOP_LIMIT || rx.code != 0 {
            return Err(DropReason::NdpInvalid);
        }
        match message {
            NdpMessage::NeighborSolicitation { target, source } => {
                self.on_solicitation(now, rx, target, source)
            }
            NdpMessage::NeighborAdvertisement {
                router,
                solicited,
                overrides,
                target,
                link_address,
            } => {
                let advertisement = Advertisement { mac: link_address, solicited, overrides };
                let is_believed = self.on_advertisement(now, rx, target, &advertisement)?;
                //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.5
                //# - The IsRouter flag in the cache entry MUST be set based on the Router flag in
                //# the received advertisement.
                //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.5
                //# In those cases where the IsRouter flag changes from TRUE to FALSE as a result of
                //# this update, the node MUST remove that router from the Default Router List and
                //# update the Destination Cache entries for all destinations using that neighbor as
                //# a router as specified in Section 7.3.3.
                //= https://www.rfc-editor.org/rfc/rfc4861#section-7.3.3
                //# a node MUST compare the Router flag field in all received Neighbor Advertisement
                //# messages
                //= https://www.rfc-editor.org/rfc/rfc4861#section-7.3.3
                //# When a node detects that a neighbor has changed from being a router to being a
                //# host, the node MUST remove that router from the Default Router List and update
                //# the Destination Cache as described in Section 6.3.5.
                if is_believed && !router && self.autoconf.on_no_router(rx.interface, target) {
                    self.on_learnt(rx.interface);
                }
                Ok(())
            }
            //= https://www.rfc-editor.org/rfc/rfc4861#section-6.1.2
            //# A node MUST silently discard any received Router Advertisement messages that do not
            //# satisfy all of the following validity checks:
            //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2
            //# These messages MUST NOT create or update neighbor cache entries, except with respect
            //# to the IsRouter flag as specified in Sections 6.3.4 and 7.2.5.
            //= https://www.rfc-editor.org/rfc/rfc4861#section-7.3.1
            //# Receipt of other Neighbor Discovery messages, such as Router Advertisements and
            //# Neighbor Advertisement with the Solicited flag set to zero, MUST NOT be treated as a
            //# reachability confirmation.
            NdpMessage::RouterAdvertisement(said) => {
                if !is_link_local(rx.src) {
                    return Err(DropReason::NdpInvalid);
                }
                if let Some(mac) = said.source.filter(MacAddr::is_unicast) {
                    //= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.4
                    //# the link-layer address SHOULD be recorded in the Neighbor Cache entry for
                    //# the router
                    let makes = said.lifetime_s > 0;
                    let hint = self.neighbors.hint(now, rx.binding(mac), makes);
                    self.note_neighbor(hint);
                }
                match self.autoconf.on_advertisement(now, rx.interface, rx.src, &said) {
                    None => return Err(DropReason::NdpNotForUs),
                    Some(true) => self.on_learnt(rx.interface),
                    Some(false) => {}
                }
                Ok(())
            }
            NdpMessage::RouterSolicitation { .. } => Err(DropReason::NdpNotForUs),
        }
    }

    /// RFC 4861, section 7.2.3, and RFC 4862, section 5.4.3.
    fn on_solicitation(
        &mut self,
        now: Instant,
        rx: &NdpRx,
        target: Ipv6Addr,
        source: Option<MacAddr>,
    ) -> Result<(), DropReason> {
        let is_probe = rx.src.is_unspecified();
        //= https://www.rfc-editor.org/rfc/rfc4861#section-4.3
        //# It MUST NOT be a multicast address.
        //= https://www.rfc-editor.org/rfc/rfc4861#section-7.1.1
        //# A node MUST silently discard any received Neighbor Solicitation messages that do not
        //# satisfy all of the following validity checks:
        //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.3
        //# If the Source Address is the unspecified address, the node MUST NOT create or update the
        //# Neighbor Cache entry.
        if target.is_multicast()
            || (is_probe && (source.is_some() || rx.dst != solicited_node(target)))
            || source.is_some_and(|mac| !mac.is_unicast())
        {
            return Err(DropReason::NdpInvalid);
        }
        //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.3
        //# A valid Neighbor Solicitation that does not meet any of the following requirements MUST
        //# be silently discarded:
        match self.autoconf.state(rx.interface, target) {
            Some(AddressState::Preferred | AddressState::Deprecated) => {}
            //= https://www.rfc-editor.org/rfc/rfc4862#section-5.4.3
            //# In all cases, a node MUST NOT respond to a Neighbor Solicitation for a tentative
            //# address.
            Some(AddressState::Tentative) if is_probe => {
                let own = self.routes.interface(rx.interface).map(|config| config.mac);
                if own == Some(rx.link_source) {
                    // Our own probe, which a switch has sent back.
                    return Err(DropReason::NdpNotForUs);
                }
                self.give_up(now, rx.interface, target);
                return Err(DropReason::NdpConflict);
            }
            _ => return Err(DropReason::NdpNotForUs),
        }
        let (to, dst) = if is_probe {
            (MacAddr::of_multicast_v6(ALL_NODES), ALL_NODES)
        } else {
            if let Some(mac) = source {
                let hint = self.neighbors.hint(now, rx.binding(mac), true);
                self.note_neighbor(hint);
            }
            // Also where it does not say so, the frame came from there.
            (source.unwrap_or(rx.link_source), rx.src)
        };
        //= https://www.rfc-editor.org/rfc/rfc4861#section-4.4
        //# It MUST NOT be set in multicast advertisements or in unsolicited unicast advertisements.
        //= https://www.rfc-editor.org/rfc/rfc4861#section-4.4
        //# It SHOULD be set in other solicited advertisements and in unsolicited advertisements.
        //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.4
        //# If the source of the solicitation is the unspecified address, the node MUST set the
        //# Solicited flag to zero and multicast the advertisement to the all-nodes address.
        //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.4
        //# Otherwise, the node MUST set the Solicited flag to one and unicast the advertisement to
        //# the Source Address of the solicitation.
        let what = NdpWhat::Advertise { target, solicited: !is_probe };
        self.push_out(rx.interface, Outgoing::Ndp(NdpOut { to, src: target, dst, what }));
        Ok(())
    }

    /// RFC 4861, section 7.2.5; whether what it says holds.
    fn on_advertisement(
        &mut self,
        now: Instant,
        rx: &NdpRx,
        target: Ipv6Addr,
        advertisement: &Advertisement,
    ) -> Result<bool, DropReason> {
        let Advertisement { mac, solicited, .. } = *advertisement;
        //= https://www.rfc-editor.org/rfc/rfc4861#section-4.4
        //# The Target Address MUST NOT be a multicast address.
        //= https://www.rfc-editor.org/rfc/rfc4861#section-7.1.2
        //# A node MUST silently discard any received Neighbor Advertisement messages that do not
        //# satisfy all of the following validity checks:
        if target.is_multicast()
            || (solicited && rx.dst.is_multicast())
            || mac.is_some_and(|mac| !mac.is_unicast())
        {
            return Err(DropReason::NdpInvalid);
        }
        if self.autoconf.state(rx.interface, target).is_some() {
            self.give_up(now, rx.interface, target);
            return Err(DropReason::NdpConflict);
        }
        let told = self.neighbors.advertise(now, (rx.interface, target.into()), advertisement);
        let told = told.ok_or(DropReason::NdpNotForUs)?;
        if told.learnt.is_some() {
            self.note_neighbor(told.learnt);
            self.note_router(rx.interface, target.into(), false);
        }
        Ok(told.is_believed)
    }

    /// Somebody else has an address of ours.
    fn give_up(&mut self, now: Instant, interface: InterfaceIndex, ip: Ipv6Addr) {
        if let Some(listened) = self.autoconf.on_conflict(interface, ip) {
            if listened {
                self.groups.listen(now, interface, solicited_node(ip).into(), false);
            }
            self.on_learnt(interface);
        }
    }

    pub(super) fn emit_ndp(
        &mut self,
        interface: InterfaceIndex,
        out: &NdpOut,
        header: &mut [u8; HEADER_MAX],
    ) -> Option<Transmit> {
        let mac = self.routes.interface(interface)?.mac;
        let NdpOut { to, src, dst, what } = *out;
        let ethernet = EthernetHeader { dst: to, src: mac, vlan: None, ethertype: EtherType::IPV6 };
        let start = ethernet.emit(header).ok()?;
        //= https://www.rfc-editor.org/rfc/rfc4861#section-4.1
        //# MUST NOT be included if the Source Address is the unspecified address.
        //= https://www.rfc-editor.org/rfc/rfc4861#section-4.1
        //# Otherwise, it SHOULD be included on link layers that have addresses.
        //= https://www.rfc-editor.org/rfc/rfc4861#section-4.3
        //# MUST NOT be included when the source IP address is the unspecified address.
        //= https://www.rfc-editor.org/rfc/rfc4861#section-4.3
        //# Otherwise, on link layers that have addresses this option MUST be included in multicast
        //# solicitations and SHOULD be included in unicast solicitations.
        //= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.7
        //# The Source Link-Layer Address option SHOULD be set to the host's link-layer address, if
        //# the IP source address is not the unspecified address.
        //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.2
        //# If the solicitation is being sent to a solicited-node multicast address, the sender MUST
        //# include its link-layer address (if it has one) as a Source Link-Layer Address option.
        //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.2
        //# Otherwise, the sender SHOULD include its link-layer address (if it has one) as a Source
        //# Link-Layer Address option.
        let source = (!src.is_unspecified()).then_some(mac);
        let (counter, message) = match what {
            NdpWhat::Solicit(target) => {
                let message = NdpMessage::NeighborSolicitation { target, source };
                (&mut self.counters.ndp_solicitations, message)
            }
            NdpWhat::Advertise { target, solicited } => {
                //= https://www.rfc-editor.org/rfc/rfc4861#section-4.4
                //# This option MUST be included on link layers that have addresses when responding
                //# to multicast solicitations.
                //= https://www.rfc-editor.org/rfc/rfc4861#section-4.4
                //# When responding to a unicast Neighbor Solicitation this option SHOULD be
                //# included.
                //= https://www.rfc-editor.org/rfc/rfc4861#section-4.4
                //# The option MUST be included for multicast solicitations in order to avoid
                //# infinite Neighbor Solicitation "recursion" when the peer node does not have a
                //# cache entry to return a Neighbor Advertisements message.
                //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.4
                //# If the solicitation's IP Destination Address is a multicast address, the Target
                //# Link-Layer option MUST be included in the advertisement.
                //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.4
                //# Furthermore, if the node is a router, it MUST set the Router flag to one;
                //# otherwise, it MUST set the flag to zero.
                //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.4
                //# Otherwise, the Override flag SHOULD be set to one.
                let (router, link_address) = (false, Some(mac));
                let overrides = true;
                let message = NdpMessage::NeighborAdvertisement {
                    router,
                    solicited,
                    overrides,
                    target,
                    link_address,
                };
                (&mut self.counters.ndp_advertisements, message)
            }
            NdpWhat::SolicitRouters => {
                let message = NdpMessage::RouterSolicitation { source };
                (&mut self.counters.router_solicitations, message)
            }
        };
        *counter = counter.wrapping_add(1);
        let mut bytes = [0; 64];
        let len = message.emit(src, dst, &mut bytes).ok()?;
        let ip = plain_header(src, dst, Protocol::ICMPV6, ndp::HOP_LIMIT);
        put_packet(start, &ip, &[bytes.get(..len)?], header)
    }
}

impl NdpOut {
    fn to_group(src: Ipv6Addr, dst: Ipv6Addr, what: NdpWhat) -> Self {
        Self { to: MacAddr::of_multicast_v6(dst), src, dst, what }
    }
}

fn plain_header(src: Ipv6Addr, dst: Ipv6Addr, next_header: Protocol, hop_limit: u8) -> Ipv6Header {
    Ipv6Header { traffic_class: 0, flow_label: 0, next_header, hop_limit, src, dst }
}

/// Writes a whole packet behind the Ethernet header.
fn put_packet(
    start: usize,
    ip: &Ipv6Header,
    parts: &[&[u8]],
    header: &mut [u8; HEADER_MAX],
) -> Option<Transmit> {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let mut at = start + ip.emit(len, header.get_mut(start..)?).ok()?;
    for part in parts {
        header.get_mut(at..at + part.len())?.copy_from_slice(part);
        at += part.len();
    }
    Some(Transmit {
        header_bytes: u16::try_from(at).ok()?,
        payload: Payload::None,
        checksum: None,
        gso_bytes: None,
        unsigned: false,
    })
}
