//! The kernel's data about interfaces that a port shares with it: addresses, routes, MTU and
//! neighbours, by rtnetlink, with notifications of changes.

mod message;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use port::LinkState;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
    sockopt,
};
use shm::control::{InterfaceInfo, Way};
use stack::api::{Cidr, Destination, Metrics};
use stack::route::HOPS;
use wire::MacAddr;
use wire::ipv6::is_link_local;

use message::{Message, Request, Route};

/// RTMGRP_LINK and RTMGRP_NEIGH, and RTMGRP_IPV4_IFADDR, RTMGRP_IPV4_ROUTE and RTMGRP_IPV4_RULE
/// with the same of IPv6 (RTNLGRP_IPV6_RULE is 19), and RTMGRP_IPV6_IFINFO of `linux/rtnetlink.h`.
const GROUPS: u32 = 0x1 | 0x4 | 0x10 | 0x40 | 0x80 | 0x100 | 0x400 | 0x800 | 1 << 18;
/// Routes of each interface that programs are informed of: those elsewhere first, so that
/// destinations left out are the kernel's. Half of them are for each family; one family may use
/// what the other leaves.
const ROUTES_TOLD_MAX: usize = 512;
/// Routes of a family that are kept, default routes excepted; beyond, programs reach only on-link
/// destinations of that family.
const ROUTES_MAX: usize = 16 * 1024;
/// Minimum time between two reads of all interfaces and routes.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Messages taken at a time.
const BATCH: usize = 64;
/// Maximum length of the kernel's messages unless more is requested.
const MESSAGE_BYTES: usize = 32 * 1024;
/// RT_TABLE_MAIN.
const MAIN_TABLE: u32 = 254;
/// Priorities of the rules that every kernel has: local, main, default.
const USUAL_RULES: [u32; 3] = [0, 32_766, 32_767];

/// An interface as the kernel has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Its addresses, except IPv6 link-local ones, which are left to the kernel.
    pub addresses: Vec<Cidr>,
    /// Next hop of IPv4's default route through it.
    pub gateway: Option<IpAddr>,
    /// Other routes of the main table through it: IPv6's default route, and IPv4's if it has more
    /// than a next hop. They have the hop limit of the interface unless they have their own.
    pub routes: Vec<Destination>,
    /// Networks that the main table reaches through other interfaces, or not at all.
    pub elsewhere: Vec<(IpAddr, u8)>,
    /// Routes of the main table beyond the limit: of IPv4, of IPv6.
    pub left_out: [usize; 2],
    /// Largest IP packet; 0 when the interface is gone.
    pub mtu: u16,
    /// Its link address; `None` when the interface is gone.
    pub mac: Option<MacAddr>,
    /// State of the link, if the kernel reports it.
    pub link: Option<LinkState>,
}

impl Facts {
    /// Updates what clients are told of an interface.
    pub fn tell(&self, interface: &mut InterfaceInfo) {
        interface.addresses = self.addresses.iter().map(|own| (own.address, own.prefix)).collect();
        interface.mtu = self.mtu;
        let counts = [false, true].map(|is_v6| {
            let elsewhere = self.elsewhere.iter().filter(|(to, _)| to.is_ipv6() == is_v6).count();
            elsewhere + self.routes.iter().filter(|to| to.network.is_ipv6() == is_v6).count()
        });
        interface.routes.clear();
        for is_v6 in [false, true] {
            let others = counts[usize::from(!is_v6)].min(ROUTES_TOLD_MAX / 2);
            let (told, is_safe) = self.told(is_v6, ROUTES_TOLD_MAX - others);
            interface.routes.extend(told);
            if !is_v6 {
                interface.has_gateway = self.gateway.is_some() && is_safe(0);
            }
        }
    }

    /// The routes of a family, as many as there is room for, and a predicate: whether a route
    /// through this interface with a prefix length covers none of those left out.
    fn told(&self, is_v6: bool, room: usize) -> (Vec<Way>, impl Fn(u8) -> bool) {
        let elsewhere = self.elsewhere.iter().filter(|(network, _)| network.is_ipv6() == is_v6);
        let mut elsewhere: Vec<(IpAddr, u8)> = elsewhere.copied().collect();
        elsewhere.sort_by_key(|(_, prefix)| Reverse(*prefix));
        let longest_left_out = elsewhere.get(room).map(|(_, prefix)| *prefix);
        let is_whole = self.left_out[usize::from(is_v6)] == 0;
        let is_safe =
            move |prefix: u8| is_whole && longest_left_out.is_none_or(|longest| longest <= prefix);
        let here = self.routes.iter().filter(|to| to.network.is_ipv6() == is_v6);
        let here = here.filter(|to| is_safe(to.prefix));
        let here = here.map(|to| Way { network: to.network, prefix: to.prefix, is_here: true });
        let elsewhere = elsewhere.iter();
        let elsewhere = elsewhere.map(|(network, prefix)| Way {
            network: *network,
            prefix: *prefix,
            is_here: false,
        });
        (elsewhere.chain(here).take(room).collect(), is_safe)
    }
}

/// Addresses and routes of all interfaces.
struct Tables {
    addresses: Vec<(u32, Cidr)>,
    /// The main table; of several routes to the same network, the one that the kernel uses.
    routes: Vec<Route>,
    /// Of IPv4, of IPv6.
    left_out: [usize; 2],
}

/// Collects the routes of the main table.
#[derive(Default)]
struct MainTable {
    routes: Vec<Route>,
    kept: [usize; 2],
    left_out: [usize; 2],
}

impl MainTable {
    /// Adds a route, or counts it if there are too many of its family.
    fn add(&mut self, route: Route) {
        let family = usize::from(route.destination.network.is_ipv6());
        if self.kept[family] < ROUTES_MAX || route.destination.prefix == 0 {
            self.kept[family] += 1;
            self.routes.push(route);
        } else {
            self.left_out[family] += 1;
        }
    }
}

/// Changes.
#[derive(Debug, Default)]
pub struct News {
    /// Changed interfaces, by the port that shares them.
    pub changed: Vec<(usize, Facts)>,
    /// Resolved neighbours, by port.
    pub neighbors: Vec<(usize, IpAddr, MacAddr)>,
    /// Whether there are rules that the engine does not follow; `None` if unchanged.
    pub rules: Option<bool>,
}

#[derive(Debug)]
struct Watched {
    port: usize,
    interface_index: u32,
    facts: Facts,
}

/// The kernel's view of the interfaces that ports share with it.
#[derive(Debug)]
pub struct Kernel {
    news: OwnedFd,
    questions: OwnedFd,
    /// An unused socket, which has the default hop limits.
    plain: OwnedFd,
    watched: Vec<Watched>,
    has_rules: bool,
    /// There were notifications: everything must be read again.
    is_stale: bool,
    looked_at: Option<Instant>,
    /// The last read has failed, and that was logged.
    has_failed: bool,
    has_warned_of_routes: bool,
    /// Number of the last request.
    sequence: u32,
    buffer: Vec<u8>,
}

fn route_socket(groups: u32, flags: SocketFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    let family = AddressFamily::NETLINK;
    // NETLINK_ROUTE is protocol 0.
    let socket = socket_with(family, SocketType::RAW, flags, None)?;
    bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

impl Kernel {
    /// Subscribes to the notifications of the calling thread's network namespace.
    ///
    /// # Errors
    /// When the kernel refuses a netlink socket.
    pub fn open() -> io::Result<Self> {
        let mut kernel = Self {
            news: route_socket(GROUPS, SocketFlags::NONBLOCK)?,
            questions: route_socket(0, SocketFlags::empty())?,
            plain: socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?,
            watched: Vec::new(),
            has_rules: false,
            is_stale: false,
            looked_at: None,
            has_failed: false,
            has_warned_of_routes: false,
            sequence: 0,
            buffer: vec![0; MESSAGE_BYTES],
        };
        kernel.has_rules = kernel.find_rules()?;
        Ok(kernel)
    }

    /// Readable when there are notifications.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }

    /// Follows an interface, and returns its current state.
    ///
    /// # Errors
    /// If there is no such interface, or the kernel does not answer.
    pub fn watch(&mut self, port: usize, interface_index: u32) -> io::Result<Facts> {
        let tables = self.tables()?;
        let facts = self.facts(interface_index, &tables)?;
        self.watched.push(Watched { port, interface_index, facts: facts.clone() });
        Ok(facts)
    }

    /// The number of routes that are not followed, and of those missing in `told`, which programs
    /// are given.
    pub fn routes_left_out(&self, told: &[InterfaceInfo]) -> (usize, usize) {
        let left_out = self.watched.iter().map(|one| one.facts.left_out.iter().sum());
        let left_out = left_out.max().unwrap_or(0);
        let untold = self.watched.iter().filter_map(|one| {
            let kept = one.facts.elsewhere.len() + one.facts.routes.len();
            Some(kept.saturating_sub(told.get(one.port)?.routes.len()))
        });
        (left_out, untold.sum())
    }

    /// Updates what clients are told of the interfaces.
    pub fn tell(&self, interfaces: &mut [InterfaceInfo]) {
        for watched in &self.watched {
            if let Some(interface) = interfaces.get_mut(watched.port) {
                watched.facts.tell(interface);
            }
        }
    }

    /// Whether the kernel chooses routes by more than the main table (`ip rule`).
    pub fn has_rules(&self) -> bool {
        self.has_rules
    }

    fn find_rules(&mut self) -> io::Result<bool> {
        let mut found = false;
        self.ask(&mut Request::rules(), |message| {
            found |= message.rule_priority().is_some_and(|one| !USUAL_RULES.contains(&one));
        })?;
        Ok(found)
    }

    /// Time until [`Self::take`] must be called even without notifications; `None` for never.
    pub fn due(&self) -> Option<Duration> {
        let since = |then: Instant| LOOK_EVERY.saturating_sub(then.elapsed());
        self.is_stale.then(|| self.looked_at.map_or(Duration::ZERO, since))
    }

    /// Whether [`Self::take`] must be called even without notifications.
    pub fn is_due(&self) -> bool {
        self.due() == Some(Duration::ZERO)
    }

    /// Processes notifications without blocking; bounded, so that a busy machine does not keep the
    /// thread.
    pub fn take(&mut self) -> News {
        let mut news = News::default();
        let mut buffer = std::mem::take(&mut self.buffer);
        for _ in 0..BATCH {
            match recv(&self.news, &mut buffer[..], RecvFlags::DONTWAIT) {
                Ok((_, len)) => {
                    for message in message::all(buffer.get(..len).unwrap_or_default()) {
                        match message.neighbor() {
                            Some((index, address, mac)) => {
                                let of = self.watched.iter().find(|w| w.interface_index == index);
                                let port = of.map(|watched| watched.port);
                                news.neighbors.extend(port.map(|port| (port, address, mac)));
                            }
                            None => self.is_stale |= !message.is_about_neighbors(),
                        }
                    }
                }
                // Some were lost: read everything.
                Err(Errno::NOBUFS) => self.is_stale = true,
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        self.buffer = buffer;
        if self.is_due() {
            let looked = self.look(&mut news);
            self.looked_at = Some(Instant::now());
            self.is_stale = looked.is_err();
            // What could not be read stays as it was until the next read.
            let had_failed = std::mem::replace(&mut self.has_failed, looked.is_err());
            if let (Err(error), false) = (looked, had_failed) {
                tracing::warn!("cannot query the kernel's interfaces, trying again: {error}");
            }
        }
        news
    }

    /// Reads everything again.
    fn look(&mut self, news: &mut News) -> io::Result<()> {
        let rules = self.find_rules()?;
        if std::mem::replace(&mut self.has_rules, rules) != rules {
            news.rules = Some(rules);
        }
        let tables = self.tables()?;
        for at in 0..self.watched.len() {
            let Some(index) = self.watched.get(at).map(|one| one.interface_index) else {
                continue;
            };
            let facts = match self.facts(index, &tables) {
                // A removed interface has no addresses.
                Err(error) if error.raw_os_error() == Some(Errno::NODEV.raw_os_error()) => {
                    Facts::default()
                }
                found => found?,
            };
            if let Some(watched) = self.watched.get_mut(at).filter(|one| one.facts != facts) {
                watched.facts = facts.clone();
                news.changed.push((watched.port, facts));
            }
        }
        Ok(())
    }

    /// A neighbour's link address, if the kernel knows it; otherwise the kernel is asked to resolve
    /// it, and the answer comes as a notification.
    ///
    /// # Errors
    /// If the kernel does not answer, or refuses to resolve it.
    pub fn neighbor(&mut self, port: usize, address: IpAddr) -> io::Result<Option<MacAddr>> {
        let of = self.watched.iter().find(|watched| watched.port == port);
        let Some(index) = of.map(|watched| watched.interface_index) else { return Ok(None) };
        let mut found = None;
        let known = self.ask(&mut Request::neighbor(index, address), |message| {
            found = message.neighbor().map(|(_, _, mac)| mac);
        });
        match known {
            Err(why) if why.raw_os_error() != Some(Errno::NOENT.raw_os_error()) => return Err(why),
            _ => {}
        }
        // Even if it is known: a used entry is confirmed by the kernel from time to time.
        self.ask(&mut Request::use_neighbor(index, address), |_| {})?;
        Ok(found)
    }

    /// The name of the bridge or bond that an interface belongs to.
    pub fn master(&mut self, interface_index: u32) -> Option<String> {
        let mut master = None;
        let of = &mut Request::link(interface_index);
        self.ask(of, |message| master = message.link_master()).ok()?;
        let mut name = None;
        self.ask(&mut Request::link(master?), |message| name = message.link_name()).ok()?;
        name
    }

    fn tables(&mut self) -> io::Result<Tables> {
        let mut addresses = Vec::new();
        self.ask(&mut Request::addresses(), |message| addresses.extend(message.address()))?;
        let mut table = MainTable::default();
        self.ask(&mut Request::routes(), |message| {
            if let Some(route) = message.route().filter(|route| route.table == MAIN_TABLE) {
                table.add(route);
            }
        })?;
        let MainTable { mut routes, left_out, .. } = table;
        // Of several routes to the same network, the kernel uses the one with the lowest metric.
        routes.sort_by_key(|route| route.metric);
        let mut known = BTreeSet::new();
        routes.retain(|route| known.insert((route.destination.network, route.destination.prefix)));
        Ok(Tables { addresses, routes, left_out })
    }

    fn facts(&mut self, interface_index: u32, tables: &Tables) -> io::Result<Facts> {
        let mut facts = Facts { left_out: tables.left_out, ..Facts::default() };
        let mut hops = [HOPS; 2];
        self.ask(&mut Request::link(interface_index), |message| {
            facts.mtu =
                message.link_mtu().map_or(facts.mtu, |mtu| mtu.try_into().unwrap_or(u16::MAX));
            facts.mac = message.link_address();
            hops[1] = message.link_hop_limit().unwrap_or(HOPS);
        })?;
        // net.ipv4.ip_default_ttl, of this network namespace.
        hops[0] = sockopt::ip_ttl(&self.plain)?.try_into().unwrap_or(HOPS);
        facts.link = port::link_state(interface_index).ok();
        let own = tables.addresses.iter().filter(|(index, _)| *index == interface_index);
        let own = own.map(|(_, cidr)| *cidr);
        facts.addresses.extend(
            own.filter(|cidr| !matches!(cidr.address, IpAddr::V6(ip) if is_link_local(ip))),
        );
        for route in &tables.routes {
            let mut to = route.destination;
            if route.interface_index != interface_index {
                facts.elsewhere.push((to.network, to.prefix));
                continue;
            }
            let usual = hops[usize::from(to.network.is_ipv6())];
            if to.metrics.hop_limit == 0 && usual != HOPS {
                to.metrics.hop_limit = usual;
            }
            if to.prefix == 0 && to.network.is_ipv4() && to.gateway.is_some() {
                facts.gateway = to.gateway;
                if to.metrics == Metrics::default() {
                    continue;
                }
            }
            facts.routes.push(to);
        }
        // In the stack's order, so that the worker has little to sort.
        facts.routes.sort_by_key(|to| (to.network, to.prefix));
        let are_many = facts.left_out != [0; 2] || facts.elsewhere.len() > ROUTES_TOLD_MAX;
        if are_many && !std::mem::replace(&mut self.has_warned_of_routes, true) {
            tracing::warn!(
                "the kernel has more routes than programs can be given ({ROUTES_TOLD_MAX}): \
                 destinations that a route left out could cover are left to the kernel"
            );
        }
        Ok(facts)
    }

    /// Sends a request and passes every message of the answer to `each`.
    fn ask(&mut self, request: &mut Request, mut each: impl FnMut(&Message<'_>)) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let sequence = self.sequence;
        request.number(sequence);
        send(&self.questions, request.bytes(), SendFlags::empty())?;
        let buffer = &mut self.buffer;
        loop {
            let len = match recv(&self.questions, &mut buffer[..], RecvFlags::empty()) {
                Ok((_, len)) => len,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let messages = message::all(buffer.get(..len).unwrap_or_default());
            // Others answer an earlier request that was given up.
            for message in messages.filter(|message| message.sequence == sequence) {
                if let Some(errno) = message.error() {
                    return match errno {
                        0 => Ok(()),
                        _ => Err(io::Error::from_raw_os_error(errno)),
                    };
                }
                if message.is_done() {
                    return Ok(());
                }
                each(&message);
                if !request.is_dump() && !request.wants_acknowledgement() {
                    return Ok(());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_ipv6_routes_leaves_those_of_ipv4_alone() {
        let route = |number: u32| {
            let network = std::net::Ipv6Addr::from_bits(u128::from(number) << 64).into();
            let destination =
                Destination { network, prefix: 64, gateway: None, metrics: Metrics::default() };
            Route { interface_index: 1, table: MAIN_TABLE, metric: 0, destination }
        };
        let v4 = |last| {
            let mut of = route(0);
            of.destination.network = IpAddr::from([10, 1, 0, last]);
            of.destination.prefix = 32;
            of
        };
        let mut table = MainTable::default();
        let flood = ROUTES_MAX as u32 + 3;
        (1..=flood).for_each(|number| table.add(route(number)));
        (1..=20).for_each(|last| table.add(v4(last)));
        assert_eq!((table.kept, table.left_out), ([20, ROUTES_MAX], [0, 3]));
        for is_here in [false, true] {
            let (v4, v6) = (IpAddr::from([10, 1, 0, 1]), route(1).destination);
            let mut facts = Facts {
                gateway: Some(v4),
                left_out: table.left_out,
                routes: vec![Destination { network: v4, prefix: 24, ..v6 }],
                elsewhere: vec![(IpAddr::from([10, 2, 0, 0]), 16)],
                ..Facts::default()
            };
            for number in 1..1000 {
                let destination = route(number).destination;
                match is_here {
                    true => facts.routes.push(destination),
                    false => facts.elsewhere.push((destination.network, destination.prefix)),
                }
            }
            let mut told = untold();
            facts.tell(&mut told);
            let of_v4 = told.routes.iter().filter(|way| way.network.is_ipv4());
            assert!(told.has_gateway, "here: {is_here}");
            assert_eq!(of_v4.count(), 2, "here: {is_here}");
            assert!(told.routes.iter().all(|way| way.network.is_ipv4() || !way.is_here));
            assert!(told.routes.len() <= ROUTES_TOLD_MAX);
        }
    }

    fn untold() -> InterfaceInfo {
        InterfaceInfo {
            name: String::new(),
            addresses: Vec::new(),
            has_gateway: false,
            mtu: 0,
            routes: Vec::new(),
            shared: true,
            kernel_index: 0,
        }
    }

    #[test]
    fn with_more_routes_than_are_told_no_wider_way_covers_one_that_is_left_out() {
        let network = |third: u8, last| IpAddr::from([10, 1, third, last]);
        let metrics = Metrics::default();
        let to = |network, prefix| Destination { network, prefix, gateway: None, metrics };
        let mut facts = Facts {
            gateway: Some(network(0, 1)),
            routes: vec![to(network(0, 0), 16), to(IpAddr::from([10, 2, 3, 4]), 32)],
            elsewhere: (0..ROUTES_TOLD_MAX - 2)
                .map(|at| (network((at >> 6) as u8, (at << 2) as u8), 30))
                .collect(),
            ..Facts::default()
        };
        let mut told = untold();
        facts.tell(&mut told);
        assert!(told.has_gateway && told.routes.iter().filter(|way| way.is_here).count() == 2);
        facts.elsewhere.extend((100..103).map(|third| (network(third, 0), 24)));
        facts.tell(&mut told);
        assert!(!told.has_gateway && told.routes.iter().all(|way| !way.is_here));
        assert_eq!(told.routes.len(), ROUTES_TOLD_MAX);
    }

    #[test]
    fn the_loopback_interface_is_as_the_kernel_has_it() {
        let mut kernel = Kernel::open().unwrap();
        let facts = kernel.watch(0, 1).unwrap();
        // An interface that is down has no address.
        let up = std::fs::read_to_string("/sys/class/net/lo/operstate").is_ok();
        assert!(facts.mtu > 0 && up, "{facts:?}");
        let own = Cidr { address: std::net::Ipv4Addr::LOCALHOST.into(), prefix: 8 };
        assert!(facts.addresses.contains(&own) || facts.addresses.is_empty(), "{facts:?}");
        assert_eq!(facts.gateway, None);
        assert!(kernel.take().changed.is_empty());
        assert!(kernel.watch(1, u32::MAX >> 1).is_err());
    }
}
