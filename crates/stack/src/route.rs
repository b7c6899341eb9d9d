//! Which interface and next hop lead to a destination.

use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

use crate::api::{Cidr, InterfaceConfig, InterfaceIndex};

/// Largest IP packet on the loopback interface: what an IPv4 length field can say.
pub const LOOPBACK_MTU: u16 = u16::MAX;

/// The way to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Through which interface.
    pub interface: InterfaceIndex,
    /// Own address that speaks to this destination by default.
    pub source: IpAddr,
    /// Whose link address the frame gets.
    pub next_hop: IpAddr,
    /// Largest IP packet on the interface.
    pub mtu: u16,
    /// Whether the interface cuts large TCP segments itself.
    pub tso: bool,
    /// First and last local port for new connections, where the interface prescribes them.
    pub connect_ports: Option<(u16, u16)>,
}

/// All interfaces and what they reach.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Routes {
    interfaces: Vec<InterfaceConfig>,
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
        self.interfaces.push(config);
        Some(InterfaceIndex(index))
    }

    /// An interface by index; the loopback interface has no configuration.
    pub fn interface(&self, index: InterfaceIndex) -> Option<&InterfaceConfig> {
        self.interfaces.get(usize::from(index.0))
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

    /// All interfaces in the order of their indices.
    pub fn interfaces(&self) -> impl Iterator<Item = (InterfaceIndex, &InterfaceConfig)> {
        (0..=u8::MAX).map(InterfaceIndex).zip(&self.interfaces)
    }

    /// How many interfaces there are.
    pub fn count(&self) -> usize {
        self.interfaces.len()
    }

    /// Whether `address` is one of ours, on any interface.
    pub fn is_own(&self, address: IpAddr) -> bool {
        self.interfaces.iter().any(|i| i.addresses.iter().any(|c| c.address == address))
    }

    /// Whether `address` is the broadcast address of one of the interface's prefixes, or
    /// 255.255.255.255.
    pub fn is_broadcast(&self, address: IpAddr) -> bool {
        let IpAddr::V4(address) = address else { return false };
        address == Ipv4Addr::BROADCAST
            || self.interfaces.iter().any(|i| {
                i.addresses.iter().any(|c| match c.address {
                    IpAddr::V4(own) if c.prefix < 31 => {
                        u32::from(address) == u32::from(own) | !mask(c.prefix)
                    }
                    _ => false,
                })
            })
    }

    /// The way to `remote`: ourselves, a neighbour on a link (longest prefix first), or the
    /// first gateway that reaches its family.
    pub fn lookup(&self, remote: IpAddr) -> Option<Route> {
        if self.is_own(remote) {
            return Some(Route {
                interface: InterfaceIndex::LOOPBACK,
                source: remote,
                next_hop: remote,
                mtu: LOOPBACK_MTU,
                tso: false,
                connect_ports: None,
            });
        }
        if !is_unicast(remote) || self.is_broadcast(remote) {
            return None;
        }
        let mut best: Option<(u8, Route)> = None;
        for (interface, config) in self.interfaces() {
            for cidr in &config.addresses {
                let longer = best.is_none_or(|(prefix, _)| cidr.prefix > prefix);
                if longer && contains(cidr, remote) {
                    best = Some((cidr.prefix, route(interface, config, cidr.address, remote)));
                }
            }
            for way in &config.routes {
                let longer = best.is_none_or(|(prefix, _)| way.prefix > prefix);
                let network = Cidr { address: way.network, prefix: way.prefix };
                if longer && contains(&network, remote) {
                    let next_hop = way.gateway.unwrap_or(remote);
                    let Some(source) = source_towards(config, next_hop) else { continue };
                    best = Some((way.prefix, route(interface, config, source, next_hop)));
                }
            }
        }
        if let Some((_, found)) = best {
            return Some(found);
        }
        self.interfaces().find_map(|(interface, config)| {
            let gateway = config.gateway?;
            if gateway.is_ipv4() != remote.is_ipv4() {
                return None;
            }
            Some(route(interface, config, source_towards(config, gateway)?, gateway))
        })
    }

    /// Puts other settings in an interface's place; false when there is no such interface.
    pub fn replace(&mut self, index: InterfaceIndex, config: InterfaceConfig) -> bool {
        let known = self.interfaces.get_mut(usize::from(index.0));
        known.map(|known| *known = config).is_some()
    }
}

/// Own address that speaks to a next hop: one of its network, or the first of its family.
fn source_towards(config: &InterfaceConfig, next_hop: IpAddr) -> Option<IpAddr> {
    let near = config.addresses.iter().find(|c| contains(c, next_hop));
    let same = || config.addresses.iter().find(|c| c.address.is_ipv4() == next_hop.is_ipv4());
    near.or_else(same).map(|c| c.address)
}

fn route(
    interface: InterfaceIndex,
    config: &InterfaceConfig,
    source: IpAddr,
    next_hop: IpAddr,
) -> Route {
    let connect_ports = config.shared.map(|shared| shared.connect_ports);
    Route { interface, source, next_hop, mtu: config.mtu, tso: config.tso, connect_ports }
}

/// Whether a host can have this address (RFC 1122, section 3.2.1.3).
pub fn is_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => {
            !a.is_unspecified()
                && !a.is_broadcast()
                && !a.is_multicast()
                && !a.is_loopback()
                && a.octets()[0] < 240
        }
        IpAddr::V6(a) => !a.is_unspecified() && !a.is_multicast() && !a.is_loopback(),
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
    use crate::api::Destination;
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
                }],
                shared: None,
                tso: false,
                uso: false,
            });
        }
        routes
    }

    fn way(to: &str) -> Option<(u8, String)> {
        let found = routes().lookup(to.parse().unwrap())?;
        Some((found.interface.0, found.next_hop.to_string()))
    }

    #[test]
    fn the_longest_prefix_wins() {
        assert_eq!(way("10.0.0.9"), Some((0, "10.0.0.9".into())));
        assert_eq!(way("10.0.0.200"), Some((1, "10.0.0.200".into())));
    }

    #[test]
    fn a_route_leads_where_no_closer_one_does() {
        assert_eq!(way("192.0.2.200"), Some((0, "10.0.0.3".into())));
        assert_eq!(way("192.0.2.9"), Some((1, "10.0.0.3".into())));
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
}
