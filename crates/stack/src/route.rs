//! Which interface and next hop lead to a destination.

mod metrics;
mod prefixes;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use wire::ipv6::is_link_local;

use crate::api::{Cidr, InterfaceConfig, InterfaceIndex};
use crate::neighbor::NeighborTimers;

pub use metrics::Metrics;
use prefixes::PrefixRoutes;

/// Largest IP packet on the loopback interface: what an IPv4 length field can say.
pub const LOOPBACK_MTU: u16 = u16::MAX;
/// The time to live where nobody says another.
pub const HOPS: u8 = 64;

/// The way to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Through which interface.
    pub interface: InterfaceIndex,
    /// Own address that speaks to this destination by default.
    pub source: IpAddr,
    /// Whose link address the frame gets.
    pub next_hop: IpAddr,
    /// Largest IP packet, as the interface or the route has it.
    pub mtu: u16,
    /// What the route says of its paths.
    pub metrics: Metrics,
    /// Whether the interface cuts large TCP segments itself.
    pub tso: bool,
    /// First and last local port for new connections, where the interface prescribes them.
    pub connect_ports: Option<(u16, u16)>,
}

/// What may be done with an own address (RFC 4862).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AddressState {
    /// It is being found out whether somebody else has it.
    Tentative,
    /// Ours.
    Preferred,
    /// Ours, but not for new conversations.
    Deprecated,
    /// Somebody else has it.
    Duplicate,
}

/// An address of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Own {
    /// With its prefix.
    pub cidr: Cidr,
    /// What may be done with it.
    pub state: AddressState,
    /// Its prefix is on the link, as one that was configured says. What routers say of the link they
    /// say by itself ([`Learnt::on_link`]): an address made of a prefix says nothing of it (RFC 5942,
    /// section 4).
    pub is_on_link: bool,
}

impl Own {
    //= https://www.rfc-editor.org/rfc/rfc4862#section-5.5.4
    //# IP and higher layers (e.g., TCP, UDP) MUST continue to accept and process datagrams destined
    //# to a deprecated address as normal since a deprecated address is still a valid address for
    //# the interface.
    //= https://www.rfc-editor.org/rfc/rfc4862#section-5.5.4
    //# An invalid address MUST NOT be used as a source address in outgoing communications and MUST
    //# NOT be recognized as a destination on a receiving interface.
    fn is_usable(&self) -> bool {
        matches!(self.state, AddressState::Preferred | AddressState::Deprecated)
    }
}

/// What an interface knows of IPv6 beside its configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Learnt {
    /// All own IPv6 addresses.
    pub addresses: Vec<Own>,
    /// Prefixes on the link beside those of the addresses.
    pub on_link: Vec<Cidr>,
    /// Default routers, the best in front.
    pub routers: Vec<Ipv6Addr>,
    /// Largest packet, where routers say less than the link.
    pub mtu: Option<u16>,
    /// What is sent with where nobody asks for another, if routers say so.
    pub hop_limit: Option<u8>,
    /// How long neighbours count as reachable, and the time between questions.
    pub times: Option<NeighborTimers>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Interface {
    config: InterfaceConfig,
    /// The routes of the configuration.
    prefixes: PrefixRoutes,
    /// The IPv4 addresses of the configuration, then the IPv6 ones.
    own: Vec<Own>,
    learnt: Learnt,
}

impl Interface {
    fn new(config: InterfaceConfig) -> Self {
        let prefixes = PrefixRoutes::new(&config.routes);
        let mut new = Self { config, prefixes, own: Vec::new(), learnt: Learnt::default() };
        new.collect();
        new
    }

    fn collect(&mut self) {
        // What a kernel says of its addresses it has found out; ours are found out by autoconf.
        let known = |c: &&Cidr| c.address.is_ipv4() || self.config.shared.is_some();
        let own =
            |cidr: &Cidr| Own { cidr: *cidr, state: AddressState::Preferred, is_on_link: true };
        self.own = self.config.addresses.iter().filter(known).map(own).collect();
        self.own.extend(&self.learnt.addresses);
    }

    fn usable(&self) -> impl Iterator<Item = &Own> {
        self.own.iter().filter(|own| own.is_usable())
    }

    fn has(&self, address: IpAddr) -> bool {
        self.usable().any(|own| own.cidr.address == address)
    }

    /// Own address that speaks to `remote` over `next_hop`.
    fn source(&self, remote: IpAddr, next_hop: IpAddr) -> Option<IpAddr> {
        match remote {
            IpAddr::V4(_) => {
                let near = self.usable().find(|own| contains(&own.cidr, next_hop));
                let same = || self.usable().find(|own| own.cidr.address.is_ipv4());
                near.or_else(same).map(|own| own.cidr.address)
            }
            IpAddr::V6(remote) => self.source_v6(remote).map(IpAddr::V6),
        }
    }

    /// RFC 6724, section 5: the rules that can tell addresses of one interface apart (scope,
    /// deprecated, longest matching prefix).
    //= https://www.rfc-editor.org/rfc/rfc4862#section-5.5.4
    //# A deprecated address SHOULD continue to be used as a source address in existing
    //# communications, but SHOULD NOT be used to initiate new communications if an alternate
    //# (non-deprecated) address of sufficient scope can easily be used instead.
    fn source_v6(&self, remote: Ipv6Addr) -> Option<Ipv6Addr> {
        let candidates = self.usable().filter_map(|own| match own.cidr.address {
            IpAddr::V6(ip) if is_link_local(ip) == stays_on_link(remote) => Some((own, ip)),
            _ => None,
        });
        let rank = |&(own, ip): &(&Own, Ipv6Addr)| {
            let common = (ip.to_bits() ^ remote.to_bits()).leading_zeros();
            (own.state == AddressState::Preferred, common.min(u32::from(own.cidr.prefix)))
        };
        // Of equals the first.
        let best = candidates.reduce(|best, one| if rank(&one) > rank(&best) { one } else { best });
        best.map(|(_, ip)| ip)
    }

    fn route(
        &self,
        index: InterfaceIndex,
        source: IpAddr,
        next_hop: IpAddr,
        metrics: Metrics,
    ) -> Route {
        let config = &self.config;
        let connect_ports = config.shared.map(|shared| shared.connect_ports);
        let (mtu, tso) = match source {
            IpAddr::V4(_) => (config.mtu, config.tso),
            IpAddr::V6(_) => (self.learnt.mtu.unwrap_or(config.mtu).min(config.mtu), config.tso6),
        };
        let mtu = metrics.mtu_over(mtu);
        Route { interface: index, source, next_hop, mtu, metrics, tso, connect_ports }
    }
}

/// All interfaces and what they reach.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Routes {
    interfaces: Vec<Interface>,
    /// Interfaces through which no new connections are taken.
    refusing: Vec<InterfaceIndex>,
}

impl Routes {
    /// Adds an interface; `None` when there are as many as an index can name.
    pub fn add(&mut self, config: InterfaceConfig) -> Option<InterfaceIndex> {
        let index = u8::try_from(self.interfaces.len()).ok()?;
        if InterfaceIndex(index) == InterfaceIndex::LOOPBACK {
            return None;
        }
        self.interfaces.push(Interface::new(config));
        Some(InterfaceIndex(index))
    }

    /// An interface by index; the loopback interface has no configuration.
    pub fn interface(&self, index: InterfaceIndex) -> Option<&InterfaceConfig> {
        self.interfaces.get(usize::from(index.0)).map(|interface| &interface.config)
    }

    /// From now on nobody new is let in through an interface: a SYN is answered with a reset.
    pub fn refuse_connections(&mut self, index: InterfaceIndex) {
        if !self.refuses_connections(index) {
            self.refusing.push(index);
        }
    }

    /// Whether new connections through an interface are refused.
    pub fn refuses_connections(&self, index: InterfaceIndex) -> bool {
        self.refusing.contains(&index)
    }

    /// All own addresses of an interface, also those that may not be used.
    pub fn addresses(&self, index: InterfaceIndex) -> &[Own] {
        self.interfaces.get(usize::from(index.0)).map_or(&[], |interface| &interface.own)
    }

    /// The addresses of an interface that may be used.
    pub fn usable(&self, index: InterfaceIndex) -> impl Iterator<Item = Cidr> + '_ {
        let own = self.addresses(index).iter().filter(|own| own.is_usable());
        own.map(|own| own.cidr)
    }

    /// The time to live, or hop limit, of what nobody asked for another.
    pub fn hop_limit(&self, index: InterfaceIndex, to: IpAddr) -> u8 {
        let learnt = self.interfaces.get(usize::from(index.0)).and_then(|one| one.learnt.hop_limit);
        learnt.filter(|_| to.is_ipv6()).unwrap_or(HOPS)
    }

    /// Whether IPv6 destinations off the link of an interface are reached through it.
    pub fn leads_v6(&self, index: InterfaceIndex) -> bool {
        let Some(interface) = self.interfaces.get(usize::from(index.0)) else { return false };
        // The widest there is, if any.
        let widest = interface.prefixes.to(Ipv6Addr::UNSPECIFIED.into()).last();
        !interface.learnt.routers.is_empty() || widest.is_some_and(|(prefix, ..)| prefix == 0)
    }

    fn all(&self) -> impl Iterator<Item = (InterfaceIndex, &Interface)> {
        (0..=u8::MAX).map(InterfaceIndex).zip(&self.interfaces)
    }

    /// How many interfaces there are.
    pub fn count(&self) -> usize {
        self.interfaces.len()
    }

    /// Whether `address` is one of ours, on any interface.
    pub fn is_own(&self, address: IpAddr) -> bool {
        self.interfaces.iter().any(|interface| interface.has(address))
    }

    /// Whether `address` is one of ours or will be when nobody else turns out to have it.
    pub fn may_become_own(&self, address: IpAddr) -> bool {
        let ours = |own: &Own| own.cidr.address == address && own.state != AddressState::Duplicate;
        self.interfaces.iter().any(|interface| interface.own.iter().any(ours))
    }

    /// Whether `address` is the broadcast address of one of the interface's prefixes, or
    /// 255.255.255.255.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.3.6
    //# A host MUST recognize any of these forms in the destination address of an incoming datagram.
    pub fn is_broadcast(&self, address: IpAddr) -> bool {
        address == IpAddr::V4(Ipv4Addr::BROADCAST) || self.lookup_broadcast(address).is_some()
    }

    /// The way to everybody on a link, by the broadcast address of its prefix.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.3.6
    //# When a host sends a datagram to a link-layer broadcast address, the IP destination address
    //# MUST be a legal IP broadcast or IP multicast address.
    pub fn lookup_broadcast(&self, address: IpAddr) -> Option<Route> {
        let IpAddr::V4(to) = address else { return None };
        self.all().find_map(|(index, interface)| {
            let own = interface.usable().find(|own| match own.cidr.address {
                IpAddr::V4(ip) if own.cidr.prefix < 31 => {
                    u32::from(to) == u32::from(ip) | !mask(own.cidr.prefix)
                }
                _ => false,
            })?;
            Some(interface.route(index, own.cidr.address, address, Metrics::default()))
        })
    }

    /// The way to a group through an interface, or through the first that is not a kernel's, too, and
    /// has an address of the family.
    pub fn lookup_group(&self, through: Option<InterfaceIndex>, group: IpAddr) -> Option<Route> {
        let mut all = self.all().filter_map(|(index, interface)| {
            let is_meant = match through {
                Some(through) => through == index,
                None => interface.config.shared.is_none(),
            };
            let source = interface.source(group, group).filter(|_| is_meant)?;
            Some(interface.route(index, source, group, Metrics::default()))
        });
        all.next()
    }

    /// The way to a group through an interface that need not have an address.
    pub fn way_to_group(&self, interface: InterfaceIndex, group: IpAddr) -> Option<Route> {
        let link = self.interfaces.get(usize::from(interface.0))?;
        let nobody = match group {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let source = link.source(group, group).unwrap_or(nobody);
        Some(link.route(interface, source, group, Metrics::default()))
    }

    /// The way to `remote`: ourselves, a neighbour on a link (longest prefix first), or the
    /// first gateway that reaches its family.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.1.3
    //# A host MUST support the subnet extensions to IP [IP:3].
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.3.1.1
    //# To decide if the destination is on a connected network, the following algorithm MUST be used
    //# [see IP:3]:
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.3.1.2
    //# When there is no route cache entry for the destination host address (and the destination is
    //# not on the connected network), the IP layer MUST pick a gateway from its list of "default"
    //# gateways.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.3.1.1
    //# The host IP layer MUST operate correctly in a minimal network environment, and in
    //# particular, when there are no gateways.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.3.4.2
    //# (2) An application MUST be able to explicitly specify the source address for initiating a
    //# connection or a request.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.3.4.2
    //# (3) In the absence of such a specification, the networking software MUST choose a source
    //# address.
    pub fn lookup(&self, remote: IpAddr) -> Option<Route> {
        if self.is_own(remote) {
            return Some(Route {
                interface: InterfaceIndex::LOOPBACK,
                source: remote,
                next_hop: remote,
                mtu: LOOPBACK_MTU,
                metrics: Metrics::default(),
                tso: false,
                connect_ports: None,
            });
        }
        if !is_unicast(remote) || self.is_broadcast(remote) {
            return None;
        }
        let mut best: Option<(u8, Route)> = None;
        for (index, interface) in self.all() {
            let mut consider = |prefix, source: Option<IpAddr>, next_hop, stated: Option<_>| {
                // What is stated of a link counts more than what its address implies.
                let is_better = best.is_none_or(|(held, route)| {
                    let is_more = stated.is_some() && route.interface == index;
                    prefix > held || prefix == held && is_more
                });
                if let Some(source) = source.filter(|_| is_better) {
                    let metrics = stated.unwrap_or_default();
                    best = Some((prefix, interface.route(index, source, next_hop, metrics)));
                }
            };
            let leads = |own: &&Own| own.is_on_link && contains(&own.cidr, remote);
            for own in interface.usable().filter(leads) {
                let source = match own.cidr.address {
                    v4 @ IpAddr::V4(_) => Some(v4),
                    IpAddr::V6(_) => interface.source(remote, remote),
                };
                consider(own.cidr.prefix, source, remote, None);
            }
            for cidr in interface.learnt.on_link.iter().filter(|cidr| contains(cidr, remote)) {
                consider(cidr.prefix, interface.source(remote, remote), remote, None);
            }
            for (prefix, gateway, metrics) in interface.prefixes.to(remote) {
                let next_hop = gateway.unwrap_or(remote);
                let source = interface.source(remote, next_hop);
                consider(prefix, source, next_hop, Some(metrics));
            }
        }
        if let Some((_, found)) = best {
            return Some(found);
        }
        self.all().find_map(|(index, interface)| {
            let stated = interface.config.gateway.filter(|one| one.is_ipv4() == remote.is_ipv4());
            let learnt = || interface.learnt.routers.first().map(|router| IpAddr::V6(*router));
            let gateway = stated.or_else(|| learnt().filter(|_| remote.is_ipv6()))?;
            let source = interface.source(remote, gateway)?;
            Some(interface.route(index, source, gateway, Metrics::default()))
        })
    }

    /// The way back to `remote`, of which something came through `interface`: a link-local
    /// address is on that link, whatever other links have one like it.
    pub fn lookup_back(&self, interface: InterfaceIndex, remote: IpAddr) -> Option<Route> {
        match remote {
            IpAddr::V6(ip) if is_link_local(ip) && interface != InterfaceIndex::LOOPBACK => {
                let link = self.interfaces.get(usize::from(interface.0))?;
                let source = link.source(remote, remote)?;
                Some(link.route(interface, source, remote, Metrics::default()))
            }
            _ => self.lookup(remote),
        }
    }

    /// Puts other settings in an interface's place; false when there is no such interface.
    pub fn replace(&mut self, index: InterfaceIndex, config: InterfaceConfig) -> bool {
        let known = self.interfaces.get_mut(usize::from(index.0));
        known
            .map(|known| {
                known.prefixes = PrefixRoutes::new(&config.routes);
                known.config = config;
                known.collect();
            })
            .is_some()
    }

    /// Puts what an interface has learnt of IPv6 in the place of what it knew.
    pub fn set_learnt(&mut self, index: InterfaceIndex, learnt: Learnt) {
        if let Some(known) = self.interfaces.get_mut(usize::from(index.0)) {
            known.learnt = learnt;
            known.collect();
        }
    }
}

/// Whether an address, of a host or a group, means something on one link alone.
fn stays_on_link(address: Ipv6Addr) -> bool {
    is_link_local(address) || (address.is_multicast() && address.octets()[1] & 15 <= 2)
}

/// Whether a host can have this address (RFC 1122, section 3.2.1.3). An IPv4 address written as one of
/// IPv6 is nobody's: a program with a socket for both families would take a packet from it for one of
/// IPv4, and so would lists of who may do what (draft-itojun-v6ops-v4mapped-harmful; Linux
/// 6.18 drops its SYNs and takes its datagrams).
pub fn is_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => {
            !a.is_unspecified()
                && !a.is_broadcast()
                && !a.is_multicast()
                && !a.is_loopback()
                && a.octets()[0] < 240
        }
        IpAddr::V6(a) => {
            !a.is_unspecified()
                && !a.is_multicast()
                && !a.is_loopback()
                && a.to_ipv4_mapped().is_none()
        }
    }
}

fn mask(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32u32.saturating_sub(u32::from(prefix))).unwrap_or(0)
}

/// Whether `address` lies in the prefix of `cidr`.
pub fn contains(cidr: &Cidr, address: IpAddr) -> bool {
    match (cidr.address, address) {
        (IpAddr::V4(own), IpAddr::V4(other)) => {
            (u32::from(own) ^ u32::from(other)) & mask(cidr.prefix) == 0
        }
        (IpAddr::V6(own), IpAddr::V6(other)) => {
            let shift = 128u32.saturating_sub(u32::from(cidr.prefix));
            let mask = u128::MAX.checked_shl(shift).unwrap_or(0);
            (u128::from(own) ^ u128::from(other)) & mask == 0
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Destination, Ipv6Mode};
    use wire::MacAddr;

    fn routes() -> Routes {
        let mut routes = Routes::default();
        for (address, prefix, gateway) in
            [("10.0.0.2", 24, Some("10.0.0.1".parse().unwrap())), ("10.0.0.130", 25, None)]
        {
            routes.add(InterfaceConfig {
                mac: MacAddr([2, 0, 0, 0, 0, 1]),
                mtu: 1500,
                addresses: vec![Cidr { address: address.parse().unwrap(), prefix }],
                gateway,
                routes: vec![Destination {
                    network: "192.0.2.0".parse().unwrap(),
                    prefix,
                    gateway: Some("10.0.0.3".parse().unwrap()),
                    metrics: Metrics { mtu: 1400, hop_limit: 7, ..Metrics::default() },
                }],
                shared: None,
                ipv6: Ipv6Mode::Static,
                tso: false,
                tso6: false,
                uso: false,
            });
        }
        routes
    }

    fn way(to: &str) -> Option<(u8, String)> {
        let found = routes().lookup(to.parse().unwrap())?;
        Some((found.interface.0, found.next_hop.to_string()))
    }

    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.1.3
    //= type=test
    //# A host MUST support the subnet extensions to IP [IP:3].
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.3.1.1
    //= type=test
    //# To decide if the destination is on a connected network, the following algorithm MUST be used
    //# [see IP:3]:
    #[test]
    fn the_longest_prefix_wins() {
        assert_eq!(way("10.0.0.9"), Some((0, "10.0.0.9".into())));
        assert_eq!(way("10.0.0.200"), Some((1, "10.0.0.200".into())));
    }

    #[test]
    fn a_route_leads_where_no_closer_one_does() {
        assert_eq!(way("192.0.2.200"), Some((0, "10.0.0.3".into())));
        assert_eq!(way("192.0.2.9"), Some((1, "10.0.0.3".into())));
        let found = routes().lookup("192.0.2.9".parse().unwrap()).unwrap();
        assert_eq!((found.mtu, found.metrics.hops()), (1400, Some(7)));
        let mut routes = routes();
        let config = InterfaceConfig {
            routes: Vec::new(),
            ..routes.interface(InterfaceIndex(0)).unwrap().clone()
        };
        assert!(routes.replace(InterfaceIndex(0), config.clone()));
        let found = routes.lookup("192.0.2.200".parse().unwrap()).unwrap();
        assert_eq!(found.next_hop.to_string(), "10.0.0.1");
        assert!(!routes.replace(InterfaceIndex(7), config));
    }

    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.3.1.2
    //= type=test
    //# When there is no route cache entry for the destination host address (and the destination is
    //# not on the connected network), the IP layer MUST pick a gateway from its list of "default"
    //# gateways.
    #[test]
    fn destinations_off_the_link_go_to_the_gateway() {
        assert_eq!(way("8.8.8.8"), Some((0, "10.0.0.1".into())));
    }

    #[test]
    fn own_addresses_lead_back() {
        assert_eq!(way("10.0.0.2"), Some((u8::MAX, "10.0.0.2".into())));
    }

    #[test]
    fn there_is_no_way_to_what_is_not_unicast() {
        for to in ["0.0.0.0", "255.255.255.255", "224.0.0.1", "127.0.0.1", "240.0.0.1"] {
            assert_eq!(way(to), None, "{to}");
        }
        assert!(routes().is_broadcast("10.0.0.255".parse().unwrap()));
    }

    fn own(address: &str, prefix: u8, state: AddressState) -> Own {
        Own { cidr: Cidr { address: address.parse().unwrap(), prefix }, state, is_on_link: true }
    }

    fn with_v6() -> Routes {
        let mut routes = routes();
        let addresses = vec![
            own("fe80::2", 64, AddressState::Preferred),
            own("fd00::2", 64, AddressState::Deprecated),
            own("fd00::3", 64, AddressState::Preferred),
            own("2001:db8:1::3", 64, AddressState::Preferred),
            own("fd00::4", 64, AddressState::Tentative),
        ];
        let on_link = vec![Cidr { address: "fd01::".parse().unwrap(), prefix: 64 }];
        let routers = vec!["fe80::1".parse().unwrap()];
        routes.set_learnt(
            InterfaceIndex(0),
            Learnt { addresses, on_link, routers, mtu: Some(1400), ..Learnt::default() },
        );
        routes
    }

    //= https://www.rfc-editor.org/rfc/rfc4862#section-5.5.4
    //= type=test
    //# A deprecated address SHOULD continue to be used as a source address in existing
    //# communications, but SHOULD NOT be used to initiate new communications if an alternate
    //# (non-deprecated) address of sufficient scope can easily be used instead.
    #[test]
    fn the_source_address_fits_the_destination() {
        let routes = with_v6();
        for (to, source, next_hop) in [
            ("fd00::9", "fd00::3", "fd00::9"),
            ("fe80::9", "fe80::2", "fe80::9"),
            ("fd01::9", "fd00::3", "fd01::9"),
            ("2001:db8:1::9", "2001:db8:1::3", "2001:db8:1::9"),
            ("2001:db8:2::9", "2001:db8:1::3", "fe80::1"),
        ] {
            let route = routes.lookup(to.parse().unwrap()).unwrap();
            assert_eq!((route.source, route.mtu), (source.parse().unwrap(), 1400), "{to}");
            assert_eq!(route.next_hop, next_hop.parse::<IpAddr>().unwrap(), "{to}");
        }
        assert_eq!(routes.lookup("10.0.0.9".parse().unwrap()).unwrap().mtu, 1500);
        for to in ["::", "::1", "ff02::1", "::ffff:10.0.0.9"] {
            assert_eq!(routes.lookup(to.parse().unwrap()), None, "{to}");
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc4862#section-5.5.4
    //= type=test
    //# IP and higher layers (e.g., TCP, UDP) MUST continue to accept and process datagrams destined
    //# to a deprecated address as normal since a deprecated address is still a valid address for
    //# the interface.
    #[test]
    fn a_tentative_address_is_not_ours_yet() {
        let routes = with_v6();
        let tentative = "fd00::4".parse().unwrap();
        assert!(!routes.is_own(tentative) && routes.may_become_own(tentative));
        assert!(routes.is_own("fd00::2".parse().unwrap()), "a deprecated one is");
    }

    #[test]
    fn a_link_local_address_is_on_the_link_it_came_from() {
        let mut routes = with_v6();
        let addresses = vec![own("fe80::3", 64, AddressState::Preferred)];
        routes.set_learnt(InterfaceIndex(1), Learnt { addresses, ..Learnt::default() });
        let back = |index| routes.lookup_back(InterfaceIndex(index), "fe80::9".parse().unwrap());
        for index in [0, 1] {
            assert_eq!(back(index).unwrap().interface, InterfaceIndex(index));
        }
    }
}
