//! The stack: dispatch of what comes in, collection of what goes out.
//= https://www.rfc-editor.org/rfc/rfc1122#section-3.2.1.3
//# When a host sends any datagram, the IP source address MUST be one of its own IP addresses (but
//# not a broadcast or multicast address).
//= https://www.rfc-editor.org/rfc/rfc1122#section-4.1.3.6
//# When a host sends a UDP datagram, the source address MUST be (one of) the IP address(es) of the
//# host.

mod connections;
mod errors;
mod export;
mod ipv6;
mod link;
mod listeners;
mod listing;
mod multicast;
mod ndp;
mod rate_limit;
mod receive;
mod sending;
mod signing;
mod transmit;
mod waiting;

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};
use wire::MacAddr;
use wire::ipv4::Protocol;

use crate::api::*;
use crate::arena::{Arena, blocks_of};
use crate::autoconf::Autoconf;
use crate::drops::{Counters, DropReason};
use crate::flow::KeyedHash;
use crate::groups::Groups;
use crate::ip_options::Options;
use crate::limits::Limits;
use crate::neighbor::{Binding, Neighbors};
use crate::path_mtu::PathMtus;
use crate::reassembly::Reassembly;
use crate::route::{Route, Routes};
use crate::tcp::{Tcp, TcpInfo, TcpSettings};
use crate::timer::Wheel;
use crate::udp::Udp;

pub use export::ImportError;
use rate_limit::{IcmpRateLimiter, TokenBucket};
use waiting::Waiting;

/// Smallest MTU that IPv4 allows a link to have (RFC 791, section 3.2).
const MTU_MIN: u16 = 68;
/// Own frames (ARP, ICMP) that wait at one interface.
const OUTBOX_LIMIT: usize = 512;
/// Timers run per call of [`Stack::on_timers`].
const TIMERS_PER_CALL: usize = 256;

/// Most bytes of header that a frame has: Ethernet with a VLAN tag, IPv6, TCP with all options.
pub const HEADER_MAX: usize = 128;

/// Everything a stack is made from.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where all randomness comes from (ISNs, ports, hash keys, IP identifications). To be drawn
    /// from the system's entropy once; the same seed and inputs give the same frames.
    pub seed: [u8; 32],
    /// Bounds of every table.
    pub limits: Limits,
    /// First and last port for connections and sockets without a port of their own (RFC 6056).
    pub ephemeral_ports: (u16, u16),
    /// How TCP behaves.
    pub tcp: TcpSettings,
}

impl Config {
    /// Default limits and settings, and the dynamic ports of RFC 6335.
    pub fn new(seed: [u8; 32]) -> Self {
        Self {
            seed,
            limits: Limits::default(),
            ephemeral_ports: (49152, 65535),
            tcp: TcpSettings::default(),
        }
    }
}

/// Secrets of a stack, drawn from the seed, and the range of ports.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Keys {
    /// For ISNs (RFC 6528).
    pub isn: [u8; 16],
    /// For the choice of ports (RFC 6056, algorithm 3).
    pub port: [u8; 16],
    /// For the hash of flows.
    pub flow: [u8; 16],
    /// For everything else that must not be guessed (challenge, identifications).
    pub other: [u8; 16],
    /// First and last ephemeral port.
    pub ephemeral_ports: (u16, u16),
}

/// What holds for a UDP socket now; the truth behind an [`Event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpLevels {
    /// The connected remote refused a datagram, or cannot be reached. Reading clears it.
    pub error: Option<UdpError>,
}

/// A UDP socket for `ss`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpInfo {
    /// Whose.
    pub owner: Owner,
    /// As it was bound.
    pub bound: Local,
    /// With whom it has its port in common.
    pub sharing: Sharing,
    /// Own address: the route's when connected.
    pub local: SocketAddr,
    /// Remote address, if connected.
    pub remote: Option<SocketAddr>,
}

/// A socket for `ss`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketInfo {
    /// A connection or listener.
    Tcp(SocketId, TcpInfo),
    /// A UDP socket.
    Udp(SocketId, UdpInfo),
}

/// A frame of the stack's own that waits to be transmitted.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Outgoing {
    Arp(ArpOut),
    Ndp(ndp::NdpOut),
    Packet(PacketOut),
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct ArpOut {
    is_reply: bool,
    /// Link-layer destination; broadcast for most requests.
    to: MacAddr,
    sender: Ipv4Addr,
    target_mac: MacAddr,
    target: Ipv4Addr,
}

/// An ICMP message, a datagram that waited for its next hop, or a fragment of one.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct PacketOut {
    interface: InterfaceIndex,
    next_hop: IpAddr,
    ip: IpOut,
    /// Of IPv4.
    options: Options,
    /// In the arena.
    start: u32,
    len: u32,
    /// Whose datagram it is.
    socket: Option<SocketId>,
    /// Among those that wait, or have waited.
    is_counted: bool,
}

/// When, and through which interface, a packet of the stack's own goes out.
#[derive(Clone, Copy, Debug)]
struct Egress {
    now: Instant,
    interface: InterfaceIndex,
}

/// What the IP header of a packet of ours says, whatever its family.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct IpOut {
    src: IpAddr,
    dst: IpAddr,
    protocol: Protocol,
    tos: u8,
    /// None: as the interface says.
    ttl: Option<u8>,
    /// Of IPv4 the lower half counts.
    identification: u32,
    /// Routers may cut it (IPv4 only).
    may_cut: bool,
    /// Where a fragment belongs, and whether more follow.
    fragment: Option<(u16, bool)>,
}

/// A whole TCP/UDP/IP host as plain data.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stack {
    routes: Routes,
    tcp: Tcp,
    udp: Udp,
    neighbors: Neighbors,
    autoconf: Autoconf,
    groups: Groups,
    /// Changes with the addresses and routers of any interface.
    interface_generation: u64,
    /// The neighbours' generation at which those who wait were last told.
    seen_generation: u64,
    /// Interfaces at which the last look for frames ended early, as too many segments went nowhere, and
    /// when.
    cut_short: Vec<(InterfaceIndex, Instant)>,
    reassembly: Reassembly,
    path_mtus: PathMtus,
    /// Slots: first the reassemblies, then the neighbours.
    wheel: Wheel,
    reassembly_count: u32,
    arena: Arena,
    /// One for each interface, and the loopback interface's at the end.
    outboxes: Vec<VecDeque<Outgoing>>,
    /// Neighbours to be asked of the kernel that shares the interface.
    kernel_questions: VecDeque<(InterfaceIndex, IpAddr)>,
    waiting: Waiting,
    /// Datagrams whose next hop does not answer, of which their sockets have not been told.
    unreached: VecDeque<PacketOut>,
    icmp_errors: IcmpRateLimiter,
    neighbor_requests: TokenBucket,
    hash: KeyedHash,
    /// Counters behind the IP identifications, chosen by hash of the addresses, of which another
    /// one is added (RFC 7739, section 5.3).
    identifications: Vec<u32>,
    counters: Counters,
}

impl Stack {
    /// A number that nobody outside can guess, for a table of the caller's: another one for each
    /// purpose.
    pub fn secret(&self, purpose: &str) -> u64 {
        self.hash.hash_one(purpose)
    }

    /// A stack without interfaces. Takes the memory of all tables.
    pub fn new(config: Config) -> Self {
        let Config { seed, limits, ephemeral_ports, tcp } = config;
        let key = |purpose: u8| {
            let (low, high) = seed.split_at(16);
            let mut key = [0; 16];
            for (half, bytes) in key.chunks_exact_mut(8).zip([low, high]) {
                let hash = KeyedHash::new(bytes.try_into().unwrap_or_default());
                half.copy_from_slice(&hash.hash_one((purpose, seed)).to_le_bytes());
            }
            key
        };
        let keys = Keys { isn: key(0), port: key(1), flow: key(2), other: key(3), ephemeral_ports };
        let hash = KeyedHash::new(key(4));
        let first_port = hash.hash_one(b"port") as u16;
        let Limits { reassemblies, reassemblies_per_source, reassembly_bytes, .. } = limits;
        let reassembly =
            Reassembly::new(hash, reassemblies, reassemblies_per_source, reassembly_bytes);
        let mut wheel = Wheel::new(Instant(0));
        wheel.reserve(limits.reassemblies.saturating_add(limits.neighbors) as usize);
        Self {
            routes: Routes::default(),
            tcp: Tcp::new(&keys, &limits, tcp),
            udp: Udp::new(hash, limits.udp_sockets, ephemeral_ports, first_port),
            neighbors: Neighbors::new(hash, limits.neighbors),
            autoconf: Autoconf::default(),
            groups: Groups::new(hash, limits.udp_sockets, limits.groups, hash.hash_one(b"groups")),
            interface_generation: 0,
            seen_generation: 0,
            cut_short: Vec::new(),
            reassembly,
            path_mtus: PathMtus::new(hash, limits.path_mtus),
            wheel,
            reassembly_count: limits.reassemblies,
            arena: Arena::new(limits.own_bytes),
            outboxes: vec![VecDeque::with_capacity(OUTBOX_LIMIT)],
            kernel_questions: VecDeque::with_capacity(OUTBOX_LIMIT),
            waiting: Waiting::new(hash, blocks_of(limits.own_bytes)),
            unreached: VecDeque::new(),
            icmp_errors: IcmpRateLimiter::new(hash),
            neighbor_requests: TokenBucket::new(1000, 100),
            hash,
            identifications: (0..1024u16).map(|i| hash.hash_one(i) as u32).collect(),
            counters: Counters::default(),
        }
    }

    /// Adds an interface and announces its IPv4 addresses (RFC 5227, section 2.3); whether
    /// others have its IPv6 addresses is found out first. `None` when there are too many.
    pub fn add_interface(&mut self, config: InterfaceConfig) -> Option<InterfaceIndex> {
        let config = admissible(config);
        let own: Vec<IpAddr> = match config.shared {
            None => config.addresses.iter().map(|c| c.address).collect(),
            Some(_) => Vec::new(),
        };
        let index = self.routes.add(config.clone())?;
        self.outboxes.insert(usize::from(index.0), VecDeque::with_capacity(OUTBOX_LIMIT));
        for address in own {
            if let IpAddr::V4(own) = address {
                self.push_out(
                    index,
                    Outgoing::Arp(ArpOut {
                        is_reply: false,
                        to: MacAddr::BROADCAST,
                        sender: own,
                        target_mac: MacAddr::ZERO,
                        target: own,
                    }),
                );
            }
        }
        self.start_autoconf(index, &config);
        Some(index)
    }

    /// Puts other addresses, routes or another MTU in the place of an interface's. Connections
    /// whose address is gone send nothing until it is back, and end when their time has come; the
    /// segments of all others fit the new MTU.
    pub fn replace_interface(
        &mut self,
        now: Instant,
        index: InterfaceIndex,
        config: InterfaceConfig,
    ) {
        let config = admissible(config);
        let mtu = config.mtu;
        let Some(before) = self.routes.interface(index) else { return };
        let own = |of: &InterfaceConfig| (of.mac, of.mtu, of.ipv6, of.shared);
        let (mtu_before, is_moved) =
            (before.mtu, own(before) != own(&config) || before.addresses != config.addresses);
        self.routes.replace(index, config.clone());
        if mtu_before != mtu {
            self.tcp.follow_mtu(now, index, mtu);
        }
        if !is_moved {
            // Only routes are other than before; of the own addresses everything is known.
            return;
        }
        self.autoconf.stop(index);
        self.groups.stop(now, index);
        self.start_autoconf(index, &config);
    }

    /// Lets no new connections in through an interface any more: their SYNs are answered with a
    /// reset. Connections that stand, and those in a listener's queue, go on.
    pub fn refuse_connections(&mut self, index: InterfaceIndex) {
        self.routes.refuse_connections(index);
    }

    /// The next neighbour that the kernel is to be asked for, on an interface that it shares; the
    /// answer goes to [`on_neighbor`](Self::on_neighbor). Asked again when none comes.
    pub fn poll_question(&mut self) -> Option<(InterfaceIndex, IpAddr)> {
        self.kernel_questions.pop_front()
    }

    /// The kernel says where a neighbour is. What was not asked for is not learnt.
    pub fn on_neighbor(
        &mut self,
        now: Instant,
        interface: InterfaceIndex,
        address: IpAddr,
        mac: MacAddr,
    ) {
        let learnt = self.neighbors.learn(now, Binding { interface, address, mac }, false);
        self.note_neighbor(learnt);
    }

    /// Sets the timer of a neighbour of which something was learnt.
    fn note_neighbor(&mut self, learnt: Option<(u32, Instant)>) {
        self.counters.neighbor_evictions = self.neighbors.evictions();
        if let Some((slot, again)) = learnt {
            self.wheel.set(slot.saturating_add(self.reassembly_count), again);
        }
    }

    /// Interfaces, own addresses and how destinations are reached.
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Largest IP packet that reaches `remote`, as far as is known; `link` at most.
    pub fn mtu_towards(&self, now: Instant, remote: IpAddr, link: u16) -> u16 {
        self.path_mtus.towards(now, remote, link)
    }

    /// A router has said that a packet of ours to `remote` was too big for a link of `mtu` bytes
    /// (0: it did not say), and the packet that it quotes was found to be ours.
    pub fn on_too_big(&mut self, now: Instant, remote: IpAddr, mtu: u16) {
        let Some(route) = self.routes.lookup(remote) else { return };
        if !route.metrics.mtu_lock {
            let _ = self.path_mtus.learn(now, remote, mtu, route.mtu);
        }
        self.counters.path_mtu_evictions = self.path_mtus.evictions();
    }

    /// The bytes of a [`Payload::Own`]; valid until they are released.
    pub fn own_bytes(&self, start: u32, len: u32) -> &[u8] {
        self.arena.bytes(start, len)
    }

    /// Gives the bytes of a [`Payload::Own`] back once they are sent (or the frame is dropped).
    pub fn release_own(&mut self, start: u32, len: u32) {
        self.arena.give(start, len);
    }

    /// When [`on_timers`](Self::on_timers) wants to be called at the latest. Cheap.
    pub fn next_deadline(&self) -> Option<Instant> {
        let (own, tcp) = (self.wheel.next(), self.tcp.next_deadline());
        let groups = self.groups.next_deadline();
        let cut_short = self.cut_short.iter().map(|(_, at)| *at).min();
        let others = [tcp, self.autoconf.next_deadline(), groups, cut_short];
        own.into_iter().chain(others.into_iter().flatten()).min()
    }

    /// Runs timers that are due, a bounded number per call; `true` when more are due.
    pub fn on_timers(&mut self, now: Instant) -> bool {
        if self.autoconf.next_deadline().is_some_and(|due| due <= now) {
            self.on_autoconf_time(now);
        }
        self.tell_groups(now);
        for _ in 0..TIMERS_PER_CALL {
            let Some(slot) = self.wheel.expire(now) else {
                return self.tcp.on_timers(now, TIMERS_PER_CALL);
            };
            match slot.checked_sub(self.reassembly_count) {
                None => self.on_reassembly_timer(now, slot),
                Some(neighbor) => self.on_neighbor_timer(now, neighbor),
            }
        }
        true
    }

    /// The next socket with news.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.udp.poll_event().or_else(|| self.tcp.poll_event())
    }

    /// Opens a UDP socket at `local`, whose address is own, unspecified or a group; port 0 chooses.
    ///
    /// # Errors
    /// [`RequestError::AddressNotAvailable`] if the address is none of these;
    /// [`RequestError::AddressInUse`] if another socket has the port, or none is free;
    /// [`RequestError::LimitReached`] if the table of sockets is full.
    pub fn udp_bind(
        &mut self,
        local: impl Into<Local>,
        owner: Owner,
    ) -> Result<SocketId, RequestError> {
        self.udp_bind_sharing(local, Sharing::Alone, owner)
    }

    /// The same at a port that others may have, too.
    ///
    /// # Errors
    /// As [`udp_bind`](Self::udp_bind); sockets that all agree to share a port are in nobody's way.
    pub fn udp_bind_sharing(
        &mut self,
        local: impl Into<Local>,
        sharing: Sharing,
        owner: Owner,
    ) -> Result<SocketId, RequestError> {
        let local = local.into().canonical();
        let ip = local.address.ip();
        if !self.may_bind(ip) && !ip.is_multicast() {
            return Err(RequestError::AddressNotAvailable);
        }
        let bound = self.udp.bind(local, sharing, owner);
        self.note_limit(bound)
    }

    /// Counts a request that a full table refused.
    fn note_limit<T>(&mut self, outcome: Result<T, RequestError>) -> Result<T, RequestError> {
        if matches!(outcome, Err(RequestError::LimitReached)) {
            self.counters.requests_limited = self.counters.requests_limited.wrapping_add(1);
        }
        outcome
    }

    /// How a UDP socket's remote is reached, which may be a group or everybody.
    fn route_to(&self, remote: IpAddr) -> Option<Route> {
        match remote {
            group if group.is_multicast() => self.routes.lookup_group(None, group),
            ip => self.routes.lookup(ip).or_else(|| self.routes.lookup_broadcast(ip)),
        }
    }

    /// Fixes (or with `None` frees) the remote; a connected socket hears only that remote and
    /// gets its errors.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no UDP socket; [`RequestError::NoRoute`] without a
    /// route to the remote; [`RequestError::AddressInUse`] if another socket has the same local
    /// address and remote.
    pub fn udp_connect(
        &mut self,
        id: SocketId,
        remote: Option<SocketAddr>,
    ) -> Result<(), RequestError> {
        let remote = match remote.map(canonical) {
            None => None,
            Some(remote) => {
                let route = self.route_to(remote.ip()).ok_or(RequestError::NoRoute)?;
                Some((remote, route.source))
            }
        };
        self.udp.connect(id, remote)
    }

    /// Changes a socket's options.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no UDP socket.
    pub fn udp_set_options(
        &mut self,
        id: SocketId,
        options: UdpOptions,
    ) -> Result<(), RequestError> {
        self.udp.set_options(id, options)
    }

    /// Addresses and owner of a socket.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no UDP socket.
    pub fn udp_info(&self, id: SocketId) -> Result<UdpInfo, RequestError> {
        self.udp.info(id)
    }

    /// What holds for the socket; clears the error.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no UDP socket.
    pub fn udp_take_levels(&mut self, id: SocketId) -> Result<UdpLevels, RequestError> {
        self.udp.take_levels(id)
    }

    /// Closes a UDP socket, which hears nothing of its groups any more.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no UDP socket.
    pub fn udp_close(&mut self, now: Instant, id: SocketId) -> Result<(), RequestError> {
        let place = self.udp.place_of(id)?;
        self.groups.close(now, place);
        self.tell_groups(now);
        self.udp.close(id)
    }

    /// Whether a UDP socket is bound so. Looks at all of them.
    pub fn udp_is_bound(&self, local: Local) -> bool {
        let all = (0..self.udp.places()).filter_map(|place| self.udp.id_at(place));
        all.filter_map(|id| self.udp.info(id).ok()).any(|info| info.bound == local)
    }

    /// Changes whenever a neighbour becomes known or is given up.
    pub fn neighbor_generation(&self) -> u64 {
        self.neighbors.generation()
    }

    /// Changes whenever an interface has other addresses or routers than before.
    pub fn interface_generation(&self) -> u64 {
        self.interface_generation
    }

    /// Whether it has been found out of every own address whether somebody else has it.
    pub fn is_settled(&self) -> bool {
        self.autoconf.is_settled()
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether a socket may have this (canonical) address. One that is not ours yet may be
    /// bound, so that servers can start before it is.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.1
    //# The optional "local IP address" parameter MUST be supported to allow the specification of
    //# the local IP address (MUST-43).
    fn may_bind(&self, local: IpAddr) -> bool {
        local.is_unspecified() || self.routes.may_become_own(local)
    }

    /// Puts a frame of our own at the end of an interface's queue; `false`: no room.
    fn push_out(&mut self, interface: InterfaceIndex, frame: Outgoing) -> bool {
        let Some(outbox) = self.outbox(interface) else { return false };
        if outbox.len() >= OUTBOX_LIMIT {
            self.counters.drop(DropReason::ReplyLimit);
            return false;
        }
        outbox.push_back(frame);
        true
    }

    fn outbox(&mut self, interface: InterfaceIndex) -> Option<&mut VecDeque<Outgoing>> {
        let count = self.routes.count();
        let index = usize::from(interface.0);
        match interface {
            InterfaceIndex::LOOPBACK => self.outboxes.get_mut(count),
            _ if index < count => self.outboxes.get_mut(index),
            _ => None,
        }
    }

    /// Asks where `target` is: its last known owner, or everybody.
    fn ask(&mut self, interface: InterfaceIndex, target: IpAddr, known: Option<MacAddr>) {
        let config = self.routes.interface(interface);
        if config.is_some_and(|config| config.shared.is_some()) {
            // One that finds no room is asked for again by its timer.
            if self.kernel_questions.len() < OUTBOX_LIMIT {
                self.kernel_questions.push_back((interface, target));
            }
            return;
        }
        let target = match target {
            IpAddr::V4(target) => target,
            IpAddr::V6(target) => return self.solicit(interface, target, known),
        };
        let own = config.and_then(|config| {
            let reaches = |c: &&Cidr| crate::route::contains(c, IpAddr::V4(target));
            let mut v4 = config.addresses.iter().filter(|c| c.address.is_ipv4());
            let own = config.addresses.iter().find(reaches).or(v4.next())?;
            match own.address {
                IpAddr::V4(own) => Some(own),
                IpAddr::V6(_) => None,
            }
        });
        let Some(sender) = own else { return };
        let question = ArpOut {
            is_reply: false,
            to: known.unwrap_or(MacAddr::BROADCAST),
            sender,
            target_mac: MacAddr::ZERO,
            target,
        };
        self.push_out(interface, Outgoing::Arp(question));
    }

    /// Whether an ICMP error may go to this address now.
    fn may_complain(&mut self, now: Instant, to: IpAddr) -> bool {
        let may = self.routes.is_own(to) || self.icmp_errors.take(now, to);
        self.counters.complaint_evictions = self.icmp_errors.evictions();
        may
    }

    /// The first of the next IP identifications between two addresses, of which `packets` are taken: who
    /// cuts a large frame counts on from the first.
    //= https://www.rfc-editor.org/rfc/rfc8200#section-4.5
    //# The Identification must be different than that of any other fragmented packet sent recently*
    //# with the same Source Address and Destination Address.
    fn identifications(&mut self, from: IpAddr, to: IpAddr, packets: u32) -> u32 {
        let count = self.identifications.len().max(1);
        let hash = self.hash.hash_one((from, to));
        let Some(next) = self.identifications.get_mut(hash as u32 as usize % count) else {
            return 0;
        };
        let first = *next;
        *next = next.wrapping_add(packets);
        // Others that share the counter must not see from theirs where it stands.
        first.wrapping_add((hash >> 32) as u32)
    }
}

/// The configuration with what the protocols ask of it.
fn admissible(mut config: InterfaceConfig) -> InterfaceConfig {
    config.mtu = config.mtu.max(MTU_MIN);
    if config.mtu < wire::ipv6::MTU_MIN {
        // As Linux: no IPv6 where it does not fit.
        config.ipv6 = Ipv6Mode::Off;
    }
    if config.ipv6 == Ipv6Mode::Off {
        config.addresses.retain(|own| own.address.is_ipv4());
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_shares_a_counter_of_identifications_does_not_see_where_it_stands() {
        let mut stack = Stack::new(Config::new([5; 32]));
        let from: IpAddr = "10.0.0.1".parse().unwrap();
        let to = |n: u32| IpAddr::V4((0x0a00_0100 + n).into());
        let bucket = |stack: &Stack, n| stack.hash.hash_one((from, to(n))) as u32 % 1024;
        let other = (1..).find(|n| bucket(&stack, *n) == bucket(&stack, 0)).unwrap();
        let [a, b, c] = [0, other, 0].map(|n| stack.identifications(from, to(n), 1));
        assert_eq!(c.wrapping_sub(a), 2, "those of one pair of addresses go up");
        assert!(![a, c].iter().any(|known| b.abs_diff(*known) < 16));
    }

    /// Frames that are cut behind the stack had the same identifications as the ones before, but for one.
    #[test]
    fn the_packets_that_a_frame_is_cut_into_have_identifications_of_their_own() {
        let mut stack = Stack::new(Config::new([5; 32]));
        let [from, to]: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().unwrap());
        let first = stack.identifications(from, to, 16);
        assert_eq!(stack.identifications(from, to, 1), first.wrapping_add(16));
    }
}
