//! What the kernel says about interfaces that a port shares with it: addresses, routes, MTU and
//! neighbours, by rtnetlink, and news of their changes.

mod message;

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};
use shm::control::{InterfaceInfo, Way};
use stack::api::{Cidr, Destination};
use wire::MacAddr;
use wire::ipv6::is_link_local;

use message::{Message, Request};

/// RTMGRP_LINK and RTMGRP_NEIGH, and RTMGRP_IPV4_IFADDR, RTMGRP_IPV4_ROUTE and RTMGRP_IPV4_RULE
/// with the same of IPv6 (RTNLGRP_IPV6_RULE is 19) of `linux/rtnetlink.h`.
const GROUPS: u32 = 0x1 | 0x4 | 0x10 | 0x40 | 0x80 | 0x100 | 0x400 | 1 << 18;
/// Routes of which programs are told, of each interface: those elsewhere first, so that what is left
/// out is the kernel's.
const ROUTES_TOLD_MAX: usize = 512;
/// Messages taken at a time.
const BATCH: usize = 64;
/// The kernel's messages are at most this long, unless asked for more.
const MESSAGE_BYTES: usize = 32 * 1024;
/// RT_TABLE_MAIN.
const MAIN_TABLE: u32 = 254;
/// Priorities of the rules that every kernel has: local, main, default.
const USUAL_RULES: [u32; 3] = [0, 32_766, 32_767];

/// An interface as the kernel has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Its addresses, but for link-local ones of IPv6, which are left to the kernel.
    pub addresses: Vec<Cidr>,
    /// Next hop of IPv4's default route through it.
    pub gateway: Option<IpAddr>,
    /// Other routes of the main table through it, IPv6's default route among them.
    pub routes: Vec<Destination>,
    /// Networks that the main table reaches otherwise, or not at all.
    pub elsewhere: Vec<(IpAddr, u8)>,
    /// Largest IP packet; 0 when the interface is gone.
    pub mtu: u16,
    /// Its link address; `None` when the interface is gone.
    pub mac: Option<MacAddr>,
}

impl Facts {
    /// Puts what clients are told of an interface up to date.
    pub fn tell(&self, interface: &mut InterfaceInfo) {
        interface.addresses = self.addresses.iter().map(|own| (own.address, own.prefix)).collect();
        interface.has_gateway = self.gateway.is_some();
        interface.mtu = self.mtu;
        let here = self.routes.iter().map(|to| (to.network, to.prefix, true));
        let elsewhere = self.elsewhere.iter().map(|(network, prefix)| (*network, *prefix, false));
        let told = elsewhere.chain(here).take(ROUTES_TOLD_MAX);
        interface.routes =
            told.map(|(network, prefix, is_here)| Way { network, prefix, is_here }).collect();
    }
}

/// What has changed.
#[derive(Debug, Default)]
pub struct News {
    /// Interfaces that are other than before, by the port that shares them.
    pub changed: Vec<(usize, Facts)>,
    /// Neighbours that are known, by port.
    pub neighbors: Vec<(usize, IpAddr, MacAddr)>,
    /// Whether there are rules now that the engine does not follow, if that has changed.
    pub rules: Option<bool>,
}

#[derive(Debug)]
struct Watched {
    port: usize,
    interface_index: u32,
    facts: Facts,
}

/// The kernel's side of the interfaces that ports share with it.
#[derive(Debug)]
pub struct Kernel {
    news: OwnedFd,
    questions: OwnedFd,
    watched: Vec<Watched>,
    has_rules: bool,
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
    /// Listens to the news of the calling thread's network namespace.
    pub fn open() -> io::Result<Self> {
        let mut kernel = Self {
            news: route_socket(GROUPS, SocketFlags::NONBLOCK)?,
            questions: route_socket(0, SocketFlags::empty())?,
            watched: Vec::new(),
            has_rules: false,
            buffer: vec![0; MESSAGE_BYTES],
        };
        kernel.has_rules = kernel.find_rules()?;
        Ok(kernel)
    }

    /// Readable when there is news.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }

    /// Follows an interface from now on, and says how it is now.
    pub fn watch(&mut self, port: usize, interface_index: u32) -> io::Result<Facts> {
        let facts = self.facts(interface_index)?;
        self.watched.push(Watched { port, interface_index, facts: facts.clone() });
        Ok(facts)
    }

    /// Puts what clients are told of the interfaces up to date.
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
        self.ask(&Request::rules(), |message| {
            found |= message.rule_priority().is_some_and(|one| !USUAL_RULES.contains(&one));
        })?;
        Ok(found)
    }

    /// Takes news without blocking; bounded, so that a busy machine does not keep the thread.
    pub fn take(&mut self) -> News {
        let mut news = News::default();
        let mut changed = false;
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
                            None => changed |= !message.is_about_neighbors(),
                        }
                    }
                }
                // Some was lost: look at everything.
                Err(Errno::NOBUFS) => changed = true,
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        self.buffer = buffer;
        if changed {
            // Unknown is as before.
            let rules = self.find_rules().unwrap_or(self.has_rules);
            if std::mem::replace(&mut self.has_rules, rules) != rules {
                news.rules = Some(rules);
            }
            for at in 0..self.watched.len() {
                let Some(index) = self.watched.get(at).map(|one| one.interface_index) else {
                    continue;
                };
                // An interface that is gone has no addresses.
                let facts = self.facts(index).unwrap_or_default();
                if let Some(watched) = self.watched.get_mut(at).filter(|one| one.facts != facts) {
                    watched.facts = facts.clone();
                    news.changed.push((watched.port, facts));
                }
            }
        }
        news
    }

    /// Where a neighbour is, if the kernel knows; otherwise it is asked to find out, and the
    /// answer comes as news.
    pub fn neighbor(&mut self, port: usize, address: IpAddr) -> io::Result<Option<MacAddr>> {
        let of = self.watched.iter().find(|watched| watched.port == port);
        let Some(index) = of.map(|watched| watched.interface_index) else { return Ok(None) };
        let mut found = None;
        let known = self.ask(&Request::neighbor(index, address), |message| {
            found = message.neighbor().map(|(_, _, mac)| mac);
        });
        match known {
            Err(why) if why.raw_os_error() != Some(Errno::NOENT.raw_os_error()) => return Err(why),
            _ => {}
        }
        // Also one that is known: in use, the kernel confirms it now and then.
        self.ask(&Request::use_neighbor(index, address), |_| {})?;
        Ok(found)
    }

    fn facts(&mut self, interface_index: u32) -> io::Result<Facts> {
        let mut facts = Facts::default();
        self.ask(&Request::link(interface_index), |message| {
            facts.mtu =
                message.link_mtu().map_or(facts.mtu, |mtu| mtu.try_into().unwrap_or(u16::MAX));
            facts.mac = message.link_address();
        })?;
        self.ask(&Request::addresses(), |message| {
            if let Some((index, cidr)) = message.address()
                && index == interface_index
                && !matches!(cidr.address, IpAddr::V6(ip) if is_link_local(ip))
            {
                facts.addresses.push(cidr);
            }
        })?;
        let mut routes = Vec::new();
        self.ask(&Request::routes(), |message| {
            routes.extend(message.route().filter(|route| route.table == MAIN_TABLE));
        })?;
        // Of several to the same network, the kernel takes the one with the lowest metric.
        routes.sort_by_key(|route| route.metric);
        let mut known = BTreeSet::new();
        for route in routes {
            let to = route.destination;
            if !known.insert((to.network, to.prefix)) {
                continue;
            }
            if route.interface_index != interface_index {
                facts.elsewhere.push((to.network, to.prefix));
            } else if to.prefix == 0 && to.network.is_ipv4() && to.gateway.is_some() {
                facts.gateway = to.gateway;
            } else {
                facts.routes.push(to);
            }
        }
        Ok(facts)
    }

    /// Sends a request and gives every message of the answer to `each`.
    fn ask(&mut self, request: &Request, mut each: impl FnMut(&Message<'_>)) -> io::Result<()> {
        send(&self.questions, request.bytes(), SendFlags::empty())?;
        let buffer = &mut self.buffer;
        loop {
            let len = match recv(&self.questions, &mut buffer[..], RecvFlags::empty()) {
                Ok((_, len)) => len,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            for message in message::all(buffer.get(..len).unwrap_or_default()) {
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
