//! The life of an interface's IPv6 addresses: duplicate address detection and what routers
//= https://www.rfc-editor.org/rfc/rfc4862#section-5.5
//# Creation of global addresses as described in this section SHOULD be locally configurable.
//= https://www.rfc-editor.org/rfc/rfc4862#section-5.5
//# However, the processing described below MUST be enabled by default.
//= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.6
//# 1) Routers that are reachable or probably reachable (i.e., in any state other than INCOMPLETE)
//# SHOULD be preferred over routers whose reachability is unknown or suspect (i.e., in the
//# INCOMPLETE state, or for which no Neighbor Cache entry exists).
//= https://www.rfc-editor.org/rfc/rfc4861#section-5.1
//# Received Router Advertisements SHOULD NOT modify the invalidation timer for the link-local
//# prefix.
//! advertise (RFC 4862), and solicitation of routers (RFC 4861, section 6.3.7; RFC 7559). Values
//! are Linux's defaults.
//!
//! Decisions only: what is to be sent comes out as [`Action`]s. Nothing here is on the path of a
//! packet, so that tables are short lists with a bound.

use std::net::{IpAddr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use wire::MacAddr;
use wire::ipv6::{MTU_MIN, is_link_local, solicited_node};
use wire::ndp::{PrefixInformation, RouterAdvertisement};

use crate::api::{Cidr, Instant, InterfaceConfig, InterfaceIndex, Ipv6Mode};
use crate::neighbor::NeighborTimers;
use crate::route::{AddressState, Learnt, Own};

const SECOND: u64 = 1_000_000_000;
/// For ever.
const NEVER: u64 = u64::MAX;
/// Addresses of one interface (Linux's max_addresses).
const ADDRESSES_MAX: usize = 16;
/// Prefixes on the link, and default routers, that are remembered.
const PREFIXES_MAX: usize = 16;
const ROUTERS_MAX: usize = 8;
/// First messages are delayed by up to so much (MAX_RTR_SOLICITATION_DELAY).
const START_DELAY_NS: u64 = SECOND;
/// Between solicitations of routers at first, and at most (RFC 7559).
const SOLICIT_NS: u64 = 4 * SECOND;
const SOLICIT_MAX_NS: u64 = 3600 * SECOND;
/// How long a neighbour counts as reachable and the time between questions, unless a router says
/// otherwise (REACHABLE_TIME and RETRANS_TIMER of RFC 4861, section 10).
const REACHABLE_MS: u32 = 30_000;
const RETRANSMIT_NS: u64 = SECOND;
/// The shortest that are followed (Linux's), and the longest (RFC 4861, section 6.2.1).
const REACHABLE_MS_MIN: u32 = 100;
const RETRANSMIT_MS_MIN: u32 = 10;
const TIMES_MS_MAX: u32 = 3_600_000;
/// After so long another random time for the same advertised one is made.
const REACHABLE_RENEWED_NS: u64 = 2 * 3600 * SECOND;
/// A prefix's lifetime is not shortened below this by one advertisement (RFC 4862, section
/// 5.5.3, e).
const TWO_HOURS_NS: u64 = 7200 * SECOND;

/// What is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// A neighbour solicitation from nobody: has anybody this address?
    Probe(InterfaceIndex, Ipv6Addr),
    /// A router solicitation.
    SolicitRouters(InterfaceIndex),
    /// Nothing yet: the group in which an address of ours is asked for is listened to from now on, or
    /// no more.
    Listen(InterfaceIndex, Ipv6Addr, bool),
    /// Anew what is listened to: there is an address now in whose name it can be told.
    TellGroups(InterfaceIndex),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Address {
    cidr: Cidr,
    ip: Ipv6Addr,
    state: AddressState,
    preferred_until: u64,
    valid_until: u64,
    /// Made of an advertised prefix.
    is_learnt: bool,
    /// When the next step of duplicate address detection is due, and whether the probe is out.
    probe: Option<(u64, bool)>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Router {
    ip: Ipv6Addr,
    preference: i8,
    until: u64,
    /// It has not answered lately.
    is_silent: bool,
}

/// One interface.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Node {
    index: InterfaceIndex,
    /// Has not been told the time yet: what is due counts from then.
    is_fresh: bool,
    mac: MacAddr,
    mode: Ipv6Mode,
    link_mtu: u16,
    addresses: Vec<Address>,
    on_link: Vec<(Cidr, u64)>,
    routers: Vec<Router>,
    /// When routers are solicited next, and the pause after that.
    solicit: Option<(u64, u64)>,
    mtu: Option<u16>,
    /// What to send with, where a router has said it.
    hop_limit: Option<u8>,
    /// How long neighbours count as reachable as routers say it, the random time that was made of
    /// it, and when.
    reachable_base_ms: u32,
    reachable_ns: u64,
    reachable_made: u64,
    /// Between two questions.
    retransmit_ns: u64,
}

/// What came of something that a router said.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    /// What the routes are to know is another.
    changes: bool,
    /// Things that found no room.
    limited: u64,
}

const NOTHING: Heard = Heard { changes: false, limited: 0 };
const CHANGES: Heard = Heard { changes: true, limited: 0 };
const LIMITED: Heard = Heard { changes: false, limited: 1 };

/// All interfaces with IPv6 of their own.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Autoconf {
    nodes: Vec<Node>,
    due: Option<u64>,
    /// Numbers of random delays.
    random: u64,
    /// Addresses that somebody else had.
    duplicates: u64,
    /// Addresses, prefixes and routers that found no room.
    limited: u64,
}

/// The interface identifier of a link address (RFC 4291, appendix A).
fn interface_identifier(MacAddr([a, b, c, d, e, f]): MacAddr) -> u64 {
    u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// The address of an interface in a prefix of 64 bits.
fn address_in(prefix: Ipv6Addr, mac: MacAddr) -> Ipv6Addr {
    let high = prefix.to_bits() & !u128::from(u64::MAX);
    Ipv6Addr::from_bits(high | u128::from(interface_identifier(mac)))
}

fn until(now: Instant, seconds: u32) -> u64 {
    match seconds {
        u32::MAX => NEVER,
        seconds => now.0.saturating_add(u64::from(seconds) * SECOND),
    }
}

impl Autoconf {
    /// Starts IPv6 on an interface, with these addresses.
    pub fn start(&mut self, index: InterfaceIndex, config: &InterfaceConfig, seed: u64) {
        let InterfaceConfig { mac, mtu, ipv6: mode, ref addresses, .. } = *config;
        if mode == Ipv6Mode::Off || config.shared.is_some() {
            return;
        }
        self.random ^= seed;
        let node = Node {
            index,
            is_fresh: true,
            mac,
            mode,
            link_mtu: mtu,
            addresses: Vec::new(),
            on_link: Vec::new(),
            routers: Vec::new(),
            solicit: None,
            mtu: None,
            hop_limit: None,
            reachable_base_ms: REACHABLE_MS,
            reachable_ns: u64::from(REACHABLE_MS) * 1_000_000,
            reachable_made: 0,
            retransmit_ns: RETRANSMIT_NS,
        };
        let own = address_in(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), mac);
        let link_local = Cidr { address: own.into(), prefix: 64 };
        self.nodes.push(node);
        //= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.7
        //# Before a host sends an initial solicitation, it SHOULD delay the transmission for a
        //# random amount of time between 0 and MAX_RTR_SOLICITATION_DELAY.
        //= https://www.rfc-editor.org/rfc/rfc4862#section-5.4.2
        //# If the Neighbor Solicitation is going to be the first message sent from an interface
        //# after interface (re)initialization, the node SHOULD delay joining the solicited-node
        //# multicast address by a random delay between 0 and MAX_RTR_SOLICITATION_DELAY as
        //# specified in [RFC4861].
        let delay = self.delay(START_DELAY_NS);
        if let Some(node) = self.nodes.last_mut() {
            for cidr in std::iter::once(&link_local).chain(addresses) {
                if !node.add(Instant(delay), *cidr, Lifetime::CONFIGURED) {
                    self.limited += 1;
                }
            }
        }
        self.settle();
    }

    /// Forgets an interface.
    pub fn stop(&mut self, index: InterfaceIndex) {
        self.nodes.retain(|node| node.index != index);
        self.settle();
    }

    /// Addresses that somebody else had, and things that found no room.
    pub fn counts(&self) -> (u64, u64) {
        (self.duplicates, self.limited)
    }

    /// Whether it is known of every address whether it may be used.
    pub fn is_settled(&self) -> bool {
        let tentative = |address: &Address| address.state == AddressState::Tentative;
        !self.nodes.iter().any(|node| node.addresses.iter().any(tentative))
    }

    /// When [`on_time`](Self::on_time) wants to be called.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.due.map(Instant)
    }

    /// Whether a group is listened to: that of all nodes, and those in which our addresses are
    /// asked for, from the beginning on.
    //= https://www.rfc-editor.org/rfc/rfc4862#section-5.4.2
    //# In order to improve the robustness of the Duplicate Address Detection algorithm, an
    //# interface MUST receive and process datagrams sent to the all-nodes multicast address or
    //# solicited-node multicast address of the tentative address during the delay period.
    pub fn listens(&self, index: InterfaceIndex, group: Ipv6Addr) -> bool {
        let joined = |node: &Node| {
            group == wire::ipv6::ALL_NODES
                || node.addresses.iter().any(|own| {
                    own.state != AddressState::Duplicate && solicited_node(own.ip) == group
                })
        };
        self.nodes.iter().any(|node| node.index == index && joined(node))
    }

    /// What is known of an address of ours.
    pub fn state(&self, index: InterfaceIndex, ip: Ipv6Addr) -> Option<AddressState> {
        let node = self.nodes.iter().find(|node| node.index == index)?;
        node.addresses.iter().find(|own| own.ip == ip).map(|own| own.state)
    }

    /// What the routes are to know of an interface.
    pub fn learnt(&self, index: InterfaceIndex) -> Learnt {
        let Some(node) = self.nodes.iter().find(|node| node.index == index) else {
            return Learnt::default();
        };
        let own = |address: &Address| Own {
            cidr: address.cidr,
            state: address.state,
            is_on_link: !address.is_learnt,
        };
        let mut routers: Vec<&Router> = node.routers.iter().collect();
        routers.sort_by_key(|router| (router.is_silent, -router.preference));
        Learnt {
            addresses: node.addresses.iter().map(own).collect(),
            on_link: node.on_link.iter().map(|(cidr, _)| *cidr).collect(),
            routers: routers.iter().map(|router| router.ip).collect(),
            mtu: node.mtu,
            hop_limit: node.hop_limit,
            times: Some(NeighborTimers {
                reachable_ns: node.reachable_ns,
                retransmit_ns: node.retransmit_ns,
            }),
        }
    }

    fn delay(&mut self, most: u64) -> u64 {
        // A linear congruential generator, whose upper half is random enough for pauses.
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        // Wider than either: queries allow hours.
        ((u128::from(self.random >> 32) * u128::from(most)) >> 32) as u64
    }

    fn settle(&mut self) {
        self.due = self.nodes.iter().map(Node::next).min().filter(|due| *due != NEVER);
    }

    fn node(&mut self, index: InterfaceIndex) -> Option<&mut Node> {
        self.nodes.iter_mut().find(|node| node.index == index)
    }

    /// Does what is due. `act` hears what to send; gives the interfaces whose [`learnt`](Self::learnt)
    /// has changed.
    pub fn on_time(&mut self, now: Instant, mut act: impl FnMut(Action)) -> Vec<InterfaceIndex> {
        let mut changed = Vec::new();
        if self.due.is_none_or(|due| due > now.0) {
            return changed;
        }
        let pause = self.delay(START_DELAY_NS);
        for node in &mut self.nodes {
            if node.on_time(now, pause, &mut act) {
                changed.push(node.index);
            }
        }
        self.settle();
        changed
    }

    /// Somebody else has an address of ours, or probes for it: if it was tentative it is given up,
    /// and whether its group was listened to.
    //= https://www.rfc-editor.org/rfc/rfc4862#section-5.4.5
    //# A tentative address that is determined to be a duplicate as described above MUST NOT be
    //# assigned to an interface
    pub fn on_conflict(&mut self, index: InterfaceIndex, ip: Ipv6Addr) -> Option<bool> {
        let own =
            self.node(index).and_then(|node| node.addresses.iter_mut().find(|a| a.ip == ip))?;
        if own.state != AddressState::Tentative {
            return None;
        }
        let listened = own.listens();
        (own.state, own.probe) = (AddressState::Duplicate, None);
        self.duplicates += 1;
        self.settle();
        Some(listened)
    }

    /// A neighbour does not answer, or does again: whether that changes which router is asked.
    pub fn on_router_silent(&mut self, index: InterfaceIndex, ip: IpAddr, is_silent: bool) -> bool {
        let IpAddr::V6(ip) = ip else { return false };
        let router = self.node(index).and_then(|node| node.routers.iter_mut().find(|r| r.ip == ip));
        router
            .is_some_and(|router| std::mem::replace(&mut router.is_silent, is_silent) != is_silent)
    }

    /// A neighbour says that it is no router (any more); whether it was taken for one.
    pub fn on_no_router(&mut self, index: InterfaceIndex, ip: Ipv6Addr) -> bool {
        let Some(node) = self.node(index) else { return false };
        let before = node.routers.len();
        node.routers.retain(|router| router.ip != ip);
        let was_router = node.routers.len() < before;
        self.settle();
        was_router
    }

    /// A router at `from` says what holds on the link; whether [`learnt`](Self::learnt) has changed.
    /// `None`: the interface does not listen to routers.
    pub fn on_advertisement(
        &mut self,
        now: Instant,
        index: InterfaceIndex,
        from: Ipv6Addr,
        said: &RouterAdvertisement,
    ) -> Option<bool> {
        let chance = self.delay(u64::from(u32::MAX));
        let node = self.node(index).filter(|node| node.mode == Ipv6Mode::Automatic)?;
        //= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.7
        //# Once the host sends a Router Solicitation, and receives a valid Router Advertisement
        //# with a non-zero Router Lifetime, the host MUST desist from sending additional
        //# solicitations on that interface, until the next time one of the above events occurs.
        node.solicit = None;
        let mut heard = node.on_router(now, from, said);
        //= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.4
        //# In particular, a host MUST NOT interpret the unspecified value as meaning change back to
        //# the default value that was in use before the first Router Advertisement was received.
        //= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.4
        //# If the MTU option is present, hosts SHOULD copy the option's value into LinkMTU
        if let Some(mtu) = said.mtu.and_then(|mtu| u16::try_from(mtu).ok())
            && (MTU_MIN..=node.link_mtu).contains(&mtu)
        {
            heard.changes |= node.mtu.replace(mtu) != Some(mtu);
        }
        heard.changes |= node.on_parameters(now, said, chance);
        for prefix in said.prefixes.iter() {
            let one = node.on_prefix(now, prefix);
            heard.changes |= one.changes;
            heard.limited += one.limited;
        }
        self.limited += heard.limited;
        self.settle();
        Some(heard.changes)
    }
}

impl Address {
    /// Whether its group has been joined: from the first probe on.
    fn listens(&self) -> bool {
        self.state != AddressState::Duplicate && self.probe.is_none_or(|(_, is_out)| is_out)
    }

    fn next(&self) -> u64 {
        let probe = self.probe.map_or(NEVER, |(due, _)| due);
        let fades = match self.state {
            AddressState::Preferred => self.preferred_until,
            _ => NEVER,
        };
        probe.min(fades).min(self.valid_until)
    }
}

/// Until when an address is preferred and valid.
#[derive(Clone, Copy)]
struct Lifetime {
    preferred_until: u64,
    valid_until: u64,
    /// From a router's prefix, whose advertisements change it.
    is_learnt: bool,
}

impl Lifetime {
    const CONFIGURED: Self = Self { preferred_until: NEVER, valid_until: NEVER, is_learnt: false };
}

impl Node {
    fn next(&self) -> u64 {
        if self.is_fresh {
            return 0;
        }
        let addresses = self.addresses.iter().map(Address::next);
        let prefixes = self.on_link.iter().map(|(_, until)| *until);
        let routers = self.routers.iter().map(|router| router.until);
        let solicit = self.solicit.map(|(due, _)| due);
        addresses.chain(prefixes).chain(routers).chain(solicit).min().unwrap_or(NEVER)
    }

    /// Adds an address that is first asked about at `probe_at`. `false`: no room.
    fn add(&mut self, probe_at: Instant, cidr: Cidr, lifetime: Lifetime) -> bool {
        let Lifetime { preferred_until, valid_until, is_learnt } = lifetime;
        let IpAddr::V6(ip) = cidr.address else { return true };
        if self.addresses.iter().any(|own| own.ip == ip) {
            return true;
        }
        if self.addresses.len() >= ADDRESSES_MAX {
            return false;
        }
        //= https://www.rfc-editor.org/rfc/rfc4862#section-5.4
        //# Duplicate Address Detection MUST be performed on all unicast addresses prior to
        //# assigning them to an interface
        //= https://www.rfc-editor.org/rfc/rfc4862#section-5.4
        //# - Each individual unicast address SHOULD be tested for uniqueness.
        //= https://www.rfc-editor.org/rfc/rfc4862#section-5.4
        //# Whereas this document does not invalidate such implementations, this kind of
        //# "optimization" is NOT RECOMMENDED, and new implementations MUST NOT do that
        //# optimization.
        let (state, probe) = (AddressState::Tentative, Some((probe_at.0, false)));
        self.addresses.push(Address {
            cidr,
            ip,
            state,
            preferred_until,
            valid_until,
            is_learnt,
            probe,
        });
        true
    }

    fn on_time(&mut self, now: Instant, pause: u64, act: &mut impl FnMut(Action)) -> bool {
        if std::mem::take(&mut self.is_fresh) {
            for (due, _) in self.addresses.iter_mut().filter_map(|own| own.probe.as_mut()) {
                *due = due.saturating_add(now.0);
            }
        }
        let mut changed = false;
        let mut has_link_local = false;
        for own in &mut self.addresses {
            match own.probe.filter(|(due, _)| *due <= now.0) {
                Some((_, false)) => {
                    // RFC 4862, section 5.4.2: the group is joined first.
                    //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.1
                    //# When a multicast-capable interface becomes enabled, the node MUST join the
                    //# all-nodes multicast address
                    //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.1
                    //# In such cases the node MUST join and leave the solicited-node multicast
                    //# address corresponding to the new and old addresses, respectively.
                    //= https://www.rfc-editor.org/rfc/rfc4862#section-5.4.2
                    //# Before sending a Neighbor Solicitation, an interface MUST join the all-nodes
                    //# multicast address and the solicited-node multicast address of the tentative
                    //# address.
                    act(Action::Listen(self.index, solicited_node(own.ip), true));
                    act(Action::Probe(self.index, own.ip));
                    // One probe (Linux's dad_transmits), and the time between two.
                    own.probe = Some((now.0.saturating_add(self.retransmit_ns), true));
                }
                Some((_, true)) => {
                    (own.state, own.probe) = (AddressState::Preferred, None);
                    has_link_local |= is_link_local(own.ip);
                    changed = true;
                }
                None => {}
            }
            if own.state == AddressState::Preferred && own.preferred_until <= now.0 {
                own.state = AddressState::Deprecated;
                changed = true;
            }
        }
        let is_over = |own: &mut Address| own.valid_until <= now.0;
        for gone in self.addresses.extract_if(.., is_over).collect::<Vec<_>>() {
            changed = true;
            //= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.1
            //# a node MUST NOT leave the solicited-node multicast group until all assigned
            //# addresses corresponding to that multicast address have been removed.
            // Those who listen are counted.
            if gone.listens() {
                act(Action::Listen(self.index, solicited_node(gone.ip), false));
            }
        }
        let before = self.on_link.len() + self.routers.len();
        self.on_link.retain(|(_, until)| *until > now.0);
        self.routers.retain(|router| router.until > now.0);
        changed |= before != self.on_link.len() + self.routers.len();
        //= https://www.rfc-editor.org/rfc/rfc3810#section-5.2.13
        //# Once a valid link-local address is available, a node SHOULD generate new MLDv2 Report
        //# messages for all multicast addresses joined on the interface.
        if has_link_local {
            act(Action::TellGroups(self.index));
        }
        if has_link_local && self.mode == Ipv6Mode::Automatic {
            self.solicit = Some((now.0, SOLICIT_NS));
        }
        if let Some((_, after)) = self.solicit.filter(|(due, _)| *due <= now.0) {
            //= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.7
            //# To obtain Router Advertisements quickly, a host SHOULD transmit up to
            //# MAX_RTR_SOLICITATIONS Router Solicitation messages, each separated by at least
            //# RTR_SOLICITATION_INTERVAL seconds.
            //= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.7
            //# Moreover, a host SHOULD send at least one solicitation in the case where an
            //# advertisement is received prior to having sent a solicitation.
            act(Action::SolicitRouters(self.index));
            let next = now.0.saturating_add(after).saturating_add(pause / 10);
            self.solicit = Some((next, (after * 2).min(SOLICIT_MAX_NS)));
        }
        changed
    }

    /// RFC 4861, section 6.3.4.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.4
    //# Hosts accept the union of all received information; the receipt of a Router Advertisement
    //# MUST NOT invalidate all information received in a previous advertisement or from another
    //# source.
    //= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.4
    //# However, a host MUST retain at least two router addresses and SHOULD retain more.
    fn on_router(&mut self, now: Instant, from: Ipv6Addr, said: &RouterAdvertisement) -> Heard {
        let held = self.routers.iter().position(|router| router.ip == from);
        if said.lifetime_s == 0 {
            return held.map_or(NOTHING, |at| {
                self.routers.remove(at);
                CHANGES
            });
        }
        let until = now.0.saturating_add(u64::from(said.lifetime_s) * SECOND);
        let new = Router { ip: from, preference: said.preference(), until, is_silent: false };
        if let Some(router) = held.and_then(|at| self.routers.get_mut(at)) {
            let changes = router.preference != new.preference || router.is_silent;
            // It is heard again, and so is as good as one of which nothing else is known: if it
            // still does not answer, that is noticed when it is used (RFC 4861, section 6.3.6).
            *router = new;
            return Heard { changes, ..NOTHING };
        }
        if self.routers.len() >= ROUTERS_MAX {
            return LIMITED;
        }
        self.routers.push(new);
        CHANGES
    }

    /// Hop limit and times of an advertisement (RFC 4861, section 6.3.4); whether that changes
    /// anything. `chance`: a random number of 32 bits.
    fn on_parameters(&mut self, now: Instant, said: &RouterAdvertisement, chance: u64) -> bool {
        let before = (self.hop_limit, self.reachable_ns, self.retransmit_ns);
        //= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.4
        //# If the received Cur Hop Limit value is non-zero, the host SHOULD set its CurHopLimit
        //# variable to the received value.
        if said.hop_limit != 0 {
            self.hop_limit = Some(said.hop_limit);
        }
        //= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.4
        //# If the received Reachable Time value is non-zero, the host SHOULD set its
        //# BaseReachableTime variable to the received value.
        //= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.4
        //# If the new value differs from the previous value, the host SHOULD re-compute a new
        //# random ReachableTime value.
        //= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.4
        //# In such cases, an implementation SHOULD ensure that a new random value gets re-computed
        //# at least once every few hours.
        if said.reachable_ms != 0 {
            let base = said.reachable_ms.clamp(REACHABLE_MS_MIN, TIMES_MS_MAX);
            let is_old = now.0.saturating_sub(self.reachable_made) >= REACHABLE_RENEWED_NS;
            if self.reachable_base_ms != base || is_old {
                // Between half of it and one and a half (RFC 4861, section 10).
                let base_ns = u64::from(base) * 1_000_000;
                let random = (u128::from(base_ns) * u128::from(chance)) >> 32;
                self.reachable_base_ms = base;
                self.reachable_ns = base_ns / 2 + random as u64;
                self.reachable_made = now.0;
            }
        }
        //= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.4
        //# The RetransTimer variable SHOULD be copied from the Retrans Timer field, if the received
        //# value is non-zero.
        if said.retransmit_ms != 0 {
            let retransmit_ms = said.retransmit_ms.clamp(RETRANSMIT_MS_MIN, TIMES_MS_MAX);
            self.retransmit_ns = u64::from(retransmit_ms) * 1_000_000;
        }
        before != (self.hop_limit, self.reachable_ns, self.retransmit_ns)
    }

    /// RFC 4861, section 6.3.4, and RFC 4862, section 5.5.3.
    fn on_prefix(&mut self, now: Instant, said: &PrefixInformation) -> Heard {
        if is_link_local(said.prefix) || said.prefix.is_multicast() || said.prefix_len > 128 {
            return NOTHING;
        }
        //= https://www.rfc-editor.org/rfc/rfc4861#section-4.6.2
        //# In other words, if the L flag is not set a host MUST NOT conclude that an address
        //# derived from the prefix is off-link.
        //= https://www.rfc-editor.org/rfc/rfc4861#section-4.6.2
        //# That is, it MUST NOT update a previous indication that the address is on-link.
        //= https://www.rfc-editor.org/rfc/rfc4861#section-4.6.2
        //# A router SHOULD NOT send a prefix option for the link-local prefix and a host SHOULD
        //# ignore such a prefix option.
        //= https://www.rfc-editor.org/rfc/rfc4861#section-6.3.4
        //# Note, however, that a Prefix Information option with the on-link flag set to zero
        //# conveys no information concerning on-link determination and MUST NOT be interpreted to
        //# mean that addresses covered by the prefix are off-link.
        let mut heard = if said.on_link { self.on_link_prefix(now, said) } else { NOTHING };
        //= https://www.rfc-editor.org/rfc/rfc4862#section-5.5.3
        //# If the sum of the prefix length and interface identifier length
        //# does not equal 128 bits, the Prefix Information option MUST be
        //# ignored.
        if !said.autonomous || said.preferred_s > said.valid_s || said.prefix_len != 64 {
            return heard;
        }
        let ip = address_in(said.prefix, self.mac);
        let [preferred, valid] = [said.preferred_s, said.valid_s].map(|s| until(now, s));
        match self.addresses.iter_mut().find(|own| own.ip == ip) {
            Some(own) if own.is_learnt => {
                //= https://www.rfc-editor.org/rfc/rfc4862#section-5.6
                //# In any case, if there is no security difference, the most recently obtained
                //# values SHOULD have precedence over information learned earlier.
                own.preferred_until = preferred;
                let left = own.valid_until.saturating_sub(now.0);
                let told = valid.saturating_sub(now.0);
                if told > TWO_HOURS_NS || told > left {
                    own.valid_until = valid;
                } else if left > TWO_HOURS_NS {
                    own.valid_until = now.0.saturating_add(TWO_HOURS_NS);
                }
                own.preferred_until = own.preferred_until.min(own.valid_until);
                if own.state == AddressState::Deprecated && own.preferred_until > now.0 {
                    own.state = AddressState::Preferred;
                    heard.changes = true;
                }
            }
            Some(_) => {}
            None if said.valid_s == 0 => {}
            None => {
                let cidr = Cidr { address: ip.into(), prefix: 64 };
                let (preferred_until, valid_until) = (preferred, valid);
                let lifetime = Lifetime { preferred_until, valid_until, is_learnt: true };
                match self.add(now, cidr, lifetime) {
                    true => heard.changes = true,
                    false => heard.limited += 1,
                }
            }
        }
        heard
    }

    /// A prefix is on the link, or no longer.
    fn on_link_prefix(&mut self, now: Instant, said: &PrefixInformation) -> Heard {
        let cidr = Cidr { address: said.prefix.into(), prefix: said.prefix_len };
        let held = self.on_link.iter().position(|(known, _)| *known == cidr);
        match held {
            Some(at) if said.valid_s == 0 => {
                self.on_link.remove(at);
                CHANGES
            }
            Some(at) => {
                self.on_link[at].1 = until(now, said.valid_s);
                NOTHING
            }
            None if said.valid_s == 0 => NOTHING,
            None if self.on_link.len() < PREFIXES_MAX => {
                self.on_link.push((cidr, until(now, said.valid_s)));
                CHANGES
            }
            None => LIMITED,
        }
    }
}

#[cfg(test)]
mod tests;
