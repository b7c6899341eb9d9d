//! Groups: what is told of them, and what routers and others say (RFC 3376, RFC 3810).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::Malformed;
use wire::checksum::Sum;
use wire::igmp::{self, IgmpMessage};
use wire::ipv4::Protocol;
use wire::ipv6::is_link_local;
use wire::{icmpv6, mld};

use super::ndp::NdpRx;
use super::receive::{Ip, RxContext};
use super::{Egress, IpOut, Stack};
use crate::api::*;
use crate::drops::DropReason;
use crate::groups::{Message, Refused};
use crate::ip_options::Options;

impl Stack {
    /// What a socket hears of a group that comes through an interface: all senders but those that
    /// are [named](Self::udp_name_source) (`Some(true)`), those alone (`Some(false)`), or nothing any
    /// more. Whom it named before is forgotten.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no UDP socket; [`RequestError::AddressNotAvailable`]
    /// if the address is no group, there is no such interface, or a group is left that was not
    /// joined; [`RequestError::LimitReached`] if no more groups can be joined.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.3.7
    //# A host SHOULD support local IP multicasting on all connected networks for which a mapping
    //# from Class D IP addresses to link-layer addresses has been specified (see below).
    pub fn udp_set_group(
        &mut self,
        now: Instant,
        id: SocketId,
        (interface, group): GroupKey,
        excludes: Option<bool>,
    ) -> Result<(), RequestError> {
        let socket = self.udp.place_of(id)?;
        let is_there = self.routes.interface(interface).is_some();
        if !group.is_multicast() || (!is_there && excludes.is_some()) {
            return Err(RequestError::AddressNotAvailable);
        }
        let set = self.groups.set(now, socket, (interface, group), excludes);
        self.follow_groups(now, set)
    }

    /// Adds or removes a source of a group that the socket listens to.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no UDP socket; [`RequestError::AddressNotAvailable`]
    /// if the source is not of the group's family, or the socket has not joined the group;
    /// [`RequestError::LimitReached`] if no more sources can be named.
    pub fn udp_name_source(
        &mut self,
        now: Instant,
        id: SocketId,
        (interface, group): GroupKey,
        source: SourceChange,
    ) -> Result<(), RequestError> {
        let socket = self.udp.place_of(id)?;
        if group.is_ipv4() != source.address.is_ipv4() {
            return Err(RequestError::AddressNotAvailable);
        }
        let named = self.groups.name(now, socket, (interface, group), source);
        self.follow_groups(now, named)
    }

    fn follow_groups(
        &mut self,
        now: Instant,
        outcome: Result<(), Refused>,
    ) -> Result<(), RequestError> {
        self.tell_groups(now);
        outcome.map_err(|refused| match refused {
            Refused::NotJoined => RequestError::AddressNotAvailable,
            Refused::Full => {
                self.counters.groups_limited = self.counters.groups_limited.wrapping_add(1);
                RequestError::LimitReached
            }
        })
    }

    /// Sends what is due to be told of groups.
    pub(super) fn tell_groups(&mut self, now: Instant) {
        if self.groups.next_deadline().is_none_or(|due| due > now) {
            return;
        }
        let mut messages = Vec::new();
        self.groups.on_time(now, |message| messages.push(message));
        for message in messages {
            let counter = match message.to {
                IpAddr::V4(_) => &mut self.counters.igmp_reports,
                IpAddr::V6(_) => &mut self.counters.mld_reports,
            };
            *counter = counter.wrapping_add(1);
            if self.tell_group(now, &message).is_none() {
                self.counters.drop(DropReason::ReplyLimit);
            }
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc3810#section-5
    //# All MLDv2 messages described in this document MUST be sent with a link-local IPv6 Source
    //# Address, an IPv6 Hop Limit of 1, and an IPv6 Router Alert option [RFC2711] in a Hop-by-Hop
    //# Options header.
    //= https://www.rfc-editor.org/rfc/rfc3810#section-5.2.13
    //# An MLDv2 Report MUST be sent with a valid IPv6 link-local source address, or the
    //# unspecified address (::), if the sending interface has not acquired a valid
    //# link-local address yet.
    fn tell_group(&mut self, now: Instant, message: &Message) -> Option<()> {
        let Message { interface, to, ref bytes } = *message;
        let mut bytes = bytes.clone();
        let (src, sum, protocol, tos, options) = match to {
            IpAddr::V4(_) => {
                let own = self.routes.usable(interface).find(|own| own.address.is_ipv4());
                let src = own.map_or(Ipv4Addr::UNSPECIFIED.into(), |own| own.address);
                let options = Options::ROUTER_ALERT;
                (src, Sum::of(&bytes), Protocol::IGMP, igmp::TOS, options)
            }
            IpAddr::V6(dst) => {
                // RFC 3590: from nobody while the link-local address is tentative.
                let src = self.link_local(interface).unwrap_or(Ipv6Addr::UNSPECIFIED);
                let sum = icmpv6::pseudo(src, dst, bytes.len()).then(Sum::of(&bytes));
                (src.into(), sum, Protocol::HOP_BY_HOP, 0, Options::default())
            }
        };
        bytes.get_mut(2..4)?.copy_from_slice(&sum.finish().to_be_bytes());
        let (ttl, identification, may_cut, fragment) = (Some(igmp::TTL), 0, false, None);
        let ip = IpOut { src, dst: to, protocol, tos, ttl, identification, may_cut, fragment };
        let alert: &[u8] = if to.is_ipv6() { &mld::ROUTER_ALERT } else { &[] };
        self.send_packet(Egress { now, interface }, &ip, &options, [alert, &bytes])
    }

    /// Whether what is sent to a group concerns us: somebody listens, or every host does.
    pub(super) fn hears_group(&self, link: InterfaceIndex, group: IpAddr, from: IpAddr) -> bool {
        match group {
            IpAddr::V4(igmp::ALL_HOSTS) => true,
            IpAddr::V6(group) if self.autoconf.listens(link, group) => true,
            _ => self.groups.hears(link, group, from),
        }
    }

    pub(super) fn on_igmp(
        &mut self,
        context: &RxContext,
        ip: &Ip<'_>,
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        let message = igmp::parse(bytes).map_err(|error| match error {
            Malformed::Checksum => DropReason::IgmpChecksum,
            _ => DropReason::IgmpMalformed,
        })?;
        if context.interface == InterfaceIndex::LOOPBACK {
            return Err(DropReason::IgmpNotServed);
        }
        match message {
            // RFC 3376, section 9.1: a query that is about a group or not goes to the one or the
            // other.
            IgmpMessage::Query(query) => {
                let (group, all) = (query.group, IpAddr::V4(igmp::ALL_HOSTS));
                if !(group.is_unspecified() || group.is_multicast())
                    || !(ip.dst == all || ip.dst == group || self.routes.is_own(ip.dst))
                {
                    return Err(DropReason::IgmpMalformed);
                }
                self.groups.on_query(context.now, context.interface, &query);
                Ok(())
            }
            IgmpMessage::Report(group) if ip.dst == IpAddr::V4(group) => {
                self.groups.on_report(context.interface, group.into());
                Ok(())
            }
            IgmpMessage::Report(_) => Err(DropReason::IgmpMalformed),
            IgmpMessage::Other(_) => Err(DropReason::IgmpNotServed),
        }
    }

    /// A query, or version 1's report, of IPv6's groups.
    pub(super) fn on_mld(
        &mut self,
        now: Instant,
        rx: &NdpRx,
        kind: u8,
        body: &[u8],
    ) -> Result<(), DropReason> {
        //= https://www.rfc-editor.org/rfc/rfc3810#section-5.1.14
        //# it MUST silently discard the message and SHOULD log a warning.
        //= https://www.rfc-editor.org/rfc/rfc3810#section-5.1.15
        //# *However*, a node MUST accept and process any Query whose IP Destination Address field
        //# contains *any* of the addresses (unicast or multicast) assigned to the interface on
        //# which the Query arrives.
        if rx.hop_limit != mld::HOP_LIMIT || !is_link_local(rx.src) {
            return Err(DropReason::NdpInvalid);
        }
        if kind == mld::REPORT_V1 {
            let group = mld::parse_old_report(body).map_err(|_| DropReason::NdpInvalid)?;
            self.groups.on_report(rx.interface, group.into());
            return Ok(());
        }
        // RFC 3810, section 6.2, as Linux.
        if !rx.is_about_groups {
            return Err(DropReason::NdpInvalid);
        }
        let query = mld::parse_query(body).map_err(|_| DropReason::NdpInvalid)?;
        if !(query.group.is_unspecified() || query.group.is_multicast()) {
            return Err(DropReason::NdpInvalid);
        }
        self.groups.on_query(now, rx.interface, &query);
        Ok(())
    }
}
