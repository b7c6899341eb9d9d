//! The engine's claims on interfaces that its ports share with the kernel: listeners, datagram
//! sockets, and the ports of connections whose listener is closed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use port::{Claim, LinkState, Port};
use stack::api::{InterfaceConfig, Local, SharedAddresses};
use stack::route::AddressState;

use crate::config::PortSetup;
use crate::control::exchange::Answer;
use crate::kernel::Facts;
use crate::worker::Worker;

/// Interval at which ports without a listener are checked for connections.
const LOOK_EVERY_NS: u64 = 1_000_000_000;
/// Sockets checked in one turn.
const PLACES_PER_TURN: usize = 64;
/// Addresses of such connections that are reported to the kernel.
const HOLDS_MAX: usize = 128;

/// A port whose listener is gone while its connections are not.
#[derive(Clone, Copy, Debug)]
struct Left {
    /// The current pass has found a connection there.
    used: bool,
    /// The sockets that the connections came from had SO_REUSEADDR.
    reuses: bool,
}

/// All such ports.
#[derive(Debug, Default)]
pub(crate) struct Leaving {
    locals: BTreeMap<SocketAddr, Left>,
    /// Addresses of the connections found by this pass, and whether they may be reused.
    found: BTreeMap<SocketAddr, bool>,
    /// Addresses that the control thread was asked to hold.
    held: BTreeSet<SocketAddr>,
    /// Where this pass continues among the stack's sockets; `None` between two passes.
    place: Option<usize>,
    next_look: u64,
}

impl Leaving {
    /// Notes a connection at this address. `false`: there is no room to remember it.
    fn use_by(&mut self, local: SocketAddr) -> bool {
        let mut reuses = None;
        for place in [local, anywhere(local)] {
            if let Some(left) = self.locals.get_mut(&place) {
                left.used = true;
                reuses = reuses.or(Some(left.reuses));
            }
        }
        let Some(reuses) = reuses else { return true };
        let has_room = self.found.len() < HOLDS_MAX || self.found.contains_key(&local);
        if has_room {
            self.found.insert(local, reuses);
        }
        has_room
    }

    /// A listener claims the port itself. Returns the addresses that need no hold any more.
    fn forget(&mut self, local: Local) -> Vec<SocketAddr> {
        let mut let_go = Vec::new();
        for place in places(local) {
            self.locals.remove(&place);
            let is_there = |one: &SocketAddr| *one == place || anywhere(*one) == place;
            self.found.retain(|one, _| !is_there(one));
            let_go.extend(self.held.extract_if(.., |one| is_there(one)));
        }
        let_go
    }
}

/// The same port at the unspecified address of the family.
fn anywhere(local: SocketAddr) -> SocketAddr {
    let ip: IpAddr = match local {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(ip, local.port())
}

/// The addresses that a local address stands for, one for each family.
pub(crate) fn places(local: Local) -> impl Iterator<Item = SocketAddr> {
    let v4 = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), local.address.port());
    [local.address].into_iter().chain(local.is_dual().then_some(v4))
}

/// The interface of a port as the stack is configured with it.
pub(crate) fn interface_config(setup: &PortSetup) -> InterfaceConfig {
    let info = setup.port.info();
    InterfaceConfig {
        mac: info.mac,
        mtu: info.mtu,
        addresses: setup.addresses.clone(),
        gateway: setup.gateway,
        routes: setup.routes.clone(),
        shared: info.shared.map(|shared| SharedAddresses { connect_ports: shared.connect_ports }),
        ipv6: setup.ipv6,
        tso: info.offloads.tso4,
        tso6: info.offloads.tso6,
        uso: info.offloads.uso,
    }
}

/// Extends claims to these addresses. `false`: not all of them.
#[must_use]
pub(crate) fn follow(port: &mut dyn Port, addresses: &[stack::api::Cidr], mtu: u16) -> bool {
    let addresses: Vec<IpAddr> = addresses.iter().map(|own| own.address).collect();
    let name = port.info().name.clone();
    let followed = port.follow(&addresses, mtu);
    if let Err(error) = &followed {
        tracing::error!(
            "{name}: the kernel accepts no more map entries ({error}): the kernel's sockets serve \
             some of the listeners"
        );
    }
    followed.is_ok()
}

/// Adapts a port to the current state of its link.
fn follow_link(port: &mut dyn Port, link: &LinkState) {
    if let Err(error) = port.follow_link(link) {
        let name = port.info().name.clone();
        let interface = name.split_once(':').map_or(name.as_str(), |(_, interface)| interface);
        let queues = link.receive_queues.unwrap_or(0);
        let served = u64::from(queues).saturating_sub(port.counters().rx_queues_unserved);
        tracing::error!(
            "{name} has {queues} receive queues now, and the engine serves only the first {served} \
             ({error}): segments of its connections that arrive on the others are lost, and the \
             kernel serves new connections there; use fewer (ethtool -L {interface} combined \
             {served}), or restart the engine"
        );
    }
}

impl Worker {
    /// Claims `local` on all ports that share their interface.
    pub(crate) fn claim_local(
        &mut self,
        local: Local,
        claim: impl Fn(SocketAddr) -> Claim,
    ) -> std::io::Result<()> {
        let taken = places(local).try_for_each(|place| self.claim(claim(place)));
        if taken.is_err() {
            places(local).for_each(|place| self.release_claim(claim(place)));
        }
        taken
    }

    /// Makes a claim on all ports that share their interface.
    pub(crate) fn claim(&mut self, claim: Claim) -> std::io::Result<()> {
        let taken = self.ports.iter_mut().try_for_each(|attached| attached.port.claim(&claim));
        if taken.is_err() {
            self.counters.claims_failed.increment();
            self.release_claim(claim);
        }
        taken
    }

    pub(crate) fn release_claim(&mut self, claim: Claim) {
        for attached in &mut self.ports {
            attached.port.release_claim(&claim);
        }
    }

    pub(crate) fn shares(&self) -> bool {
        self.ports.iter().any(|attached| attached.port.info().shared.is_some())
    }

    /// Keeps `local` claimed for existing connections, but not for new ones. `reuses`: their kernel
    /// socket has SO_REUSEADDR.
    pub(crate) fn claim_connections(
        &mut self,
        local: SocketAddr,
        reuses: bool,
    ) -> std::io::Result<()> {
        if self.shares() {
            self.claim(Claim::Tcp { local, listens: false })?;
        }
        // Even if it is already known: the pass may be beyond the new connection's slot.
        self.leaving.locals.insert(local, Left { used: true, reuses });
        Ok(())
    }

    /// A listener claims a port that was only kept for connections.
    pub(crate) fn stop_leaving(&mut self, local: Local) {
        for held in self.leaving.forget(local) {
            self.answers.push(Answer::LetGo(held));
        }
    }

    /// A connection was opened from an address chosen by its program. Its port is in use for the
    /// kernel, too, beyond the life of the program's socket.
    pub(crate) fn hold_port(&mut self, local: SocketAddr, reuses: bool) {
        // The pass may already be beyond it.
        if !self.leaving.use_by(local) {
            self.counters.holds_exhausted.increment();
        } else if self.leaving.held.insert(local) {
            self.answers.push(Answer::Hold { local, reuses });
        }
    }

    /// Reports to the kernel the ports at which a pass has found connections.
    fn follow_holds(&mut self) {
        let found = std::mem::take(&mut self.leaving.found);
        let gone = self.leaving.held.extract_if(.., |local| !found.contains_key(local));
        self.answers.extend(gone.map(Answer::LetGo));
        for (local, reuses) in found {
            if self.leaving.held.insert(local) {
                self.answers.push(Answer::Hold { local, reuses });
            }
        }
    }

    /// Reverts ports to the kernel whose last connection has ended. Checks a bounded number of
    /// sockets per turn.
    pub(crate) fn release_left(&mut self) {
        if self.leaving.locals.is_empty() {
            return;
        }
        let place = match self.leaving.place {
            Some(place) => place,
            None if self.now.0 < self.leaving.next_look => return,
            None => {
                self.leaving.locals.values_mut().for_each(|left| left.used = false);
                self.leaving.found.clear();
                0
            }
        };
        // The slots of connections in TIME-WAIT come after those of the sockets.
        let sockets = self.stack.socket_places();
        let all = sockets + self.stack.time_wait_places();
        let end = all.min(place.saturating_add(PLACES_PER_TURN));
        for place in place..end {
            let local = match place.checked_sub(sockets) {
                Some(place) => self.stack.time_wait_at(place),
                None => self.stack.connection_at(place),
            };
            if local.is_some_and(|local| !self.leaving.use_by(local)) {
                self.counters.holds_exhausted.increment();
            }
        }
        if end < all {
            self.leaving.place = Some(end);
            return;
        }
        self.leaving.place = None;
        self.leaving.next_look = self.now.0.saturating_add(LOOK_EVERY_NS);
        self.follow_holds();
        let unused: Vec<_> = self.leaving.locals.extract_if(.., |_, left| !left.used).collect();
        for (local, _) in unused {
            self.release_claim(Claim::Tcp { local, listens: false });
        }
    }

    /// The time of the next check of such ports, if there are any.
    pub(crate) fn next_look_at_left(&self) -> Option<u64> {
        let next = if self.leaving.place.is_some() { 0 } else { self.leaving.next_look };
        (!self.leaving.locals.is_empty()).then_some(next)
    }

    /// The kernel's interface of a port has changed.
    pub(crate) fn on_interface(&mut self, port: usize, facts: Facts) {
        let Some(attached) = self.ports.get_mut(port) else { return };
        let Facts { addresses, gateway, routes, mtu, mac, link, .. } = facts;
        attached.gone = mac.is_none();
        let Some(before) = self.stack.routes().interface(attached.interface) else { return };
        // A removed interface keeps MTU and link address; it has no addresses either.
        let mtu = if mtu == 0 { before.mtu } else { mtu };
        let mac = mac.unwrap_or(before.mac);
        let is_moved = before.addresses != addresses || before.mtu != mtu;
        let InterfaceConfig { shared, ipv6, tso, tso6, uso, .. } = *before;
        let config = InterfaceConfig {
            addresses: addresses.clone(),
            gateway,
            routes,
            mtu,
            mac,
            shared,
            ipv6,
            tso,
            tso6,
            uso,
        };
        self.stack.replace_interface(self.now, attached.interface, config);
        if is_moved && !follow(&mut *attached.port, &addresses, mtu) {
            self.counters.claims_failed.increment();
        }
        if let Some(link) = link {
            follow_link(&mut *attached.port, &link);
        }
    }

    /// Reports added and removed addresses to the control thread, for ports that do not share their
    /// interface.
    pub(crate) fn tell_addresses(&mut self) {
        if self.telling > 0 {
            return;
        }
        let generation = self.stack.interface_generation();
        if std::mem::replace(&mut self.told_generation, generation) == generation {
            return;
        }
        let settled = self.stack.is_settled();
        let duplicates = self.stack.counters().addresses_duplicate;
        let is_news = std::mem::replace(&mut self.told_duplicates, duplicates) != duplicates;
        let routes = self.stack.routes();
        for (port, attached) in self.ports.iter().enumerate() {
            if attached.port.info().shared.is_some() {
                continue;
            }
            let all = routes.addresses(attached.interface).iter();
            for own in all.filter(|own| is_news && own.state == AddressState::Duplicate) {
                tracing::error!(
                    "{}: another host on the link has the address {}, so the engine does not use \
                     it; change one of the two",
                    attached.port.info().name,
                    own.cidr.address,
                );
            }
            let addresses = routes.usable(attached.interface).filter(|own| is_told(own.address));
            self.telling += 1;
            self.answers.push(Answer::Interface {
                port,
                addresses: addresses.collect(),
                leads_v6: routes.leads_v6(attached.interface),
                settled,
            });
        }
    }
}

/// Link-local addresses are valid on one link only, and programs cannot name the link.
fn is_told(address: IpAddr) -> bool {
    !matches!(address, IpAddr::V6(ip) if wire::ipv6::is_link_local(ip))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_left_is_used_by_connections_at_its_address_or_at_any() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let mut leaving = Leaving::default();
        for local in ["10.0.0.1:80", "0.0.0.0:81", "[::]:82", "10.0.0.2:80", "[::]:81"] {
            leaving
                .locals
                .insert(address(local), Left { used: false, reuses: local.contains("81") });
        }
        for local in ["10.0.0.1:80", "10.0.0.9:81", "[fd00::1]:82", "10.0.0.1:82"] {
            assert!(leaving.use_by(address(local)));
        }
        let used = leaving.locals.iter().filter(|(_, left)| left.used).map(|(local, _)| *local);
        let expected = ["0.0.0.0:81", "10.0.0.1:80", "[::]:82"].map(address);
        assert_eq!(used.collect::<Vec<_>>(), expected);
        let found = [("10.0.0.1:80", false), ("10.0.0.9:81", true), ("[fd00::1]:82", false)];
        assert!(
            leaving.found.clone().into_iter().eq(found.map(|(one, reuses)| (address(one), reuses)))
        );
        leaving.held = leaving.found.keys().copied().collect();
        assert_eq!(leaving.forget(address("10.0.0.1:80").into()), [address("10.0.0.1:80")]);
        assert_eq!(leaving.forget(address("0.0.0.0:81").into()), [address("10.0.0.9:81")]);
        assert_eq!((leaving.locals.len(), leaving.found.len(), leaving.held.len()), (3, 1, 1));
    }
}
