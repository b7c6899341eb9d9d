//! Hosts with which messages are exchanged, by address.

use std::collections::BTreeMap;
use std::net::IpAddr;

use rustix::io::Errno;
use stack::Stack;
use stack::message::{Core, Host, PathAddresses};

/// Maximum number of hosts.
pub(super) const HOSTS_MAX: u32 = 4096;
/// Maximum number of hosts known from received frames: a quarter is reserved for hosts named by
/// programs.
const LEARNT_MAX: u32 = HOSTS_MAX / 4 * 3;
/// Pause between searches for hosts to forget, nanoseconds.
const FORGET_NS: u64 = 1_000_000_000;
/// The search starts when fewer can be added.
const ROOM_FOR: usize = 64;
/// Bytes after UDP in a frame to a host whose route is not known yet: by IPv6's minimum MTU.
const ROOM_LEAST: u16 = 1280 - 40 - 8;

/// The two ends of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Path {
    /// Our address.
    pub local: IpAddr,
    /// The host's address.
    pub remote: IpAddr,
}

/// State of a host.
#[derive(Clone, Copy)]
struct Known {
    path: Path,
    /// Known from a frame.
    learnt: bool,
}

/// The table.
#[derive(Default)]
pub(super) struct Hosts {
    by_path: BTreeMap<Path, Host>,
    /// By host number; the first is this host.
    known: Vec<Option<Known>>,
    learnt: u32,
    /// Earliest time of the next search, nanoseconds.
    forget_at: u64,
    /// Hosts with another room than that of their route.
    unsized_hosts: Vec<Host>,
}

fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

impl Hosts {
    /// The host named by a program.
    pub fn named(&mut self, core: &mut Core, stack: &Stack, path: Path) -> Result<Host, Errno> {
        if let Some(host) = self.by_path.get(&path) {
            return Ok(*host);
        }
        let route = stack.routes().lookup(path.remote).ok_or(Errno::HOSTUNREACH)?;
        self.add(core, Known { path, learnt: false }, room(route.mtu, path.remote))
            .ok_or(Errno::NOBUFS)
    }

    /// The host that sent a frame; `None` if there are too many.
    pub fn learnt(&mut self, core: &mut Core, path: Path) -> Option<Host> {
        if let Some(host) = self.by_path.get(&path) {
            return Some(*host);
        }
        if self.learnt >= LEARNT_MAX {
            return None;
        }
        let host = self.add(core, Known { path, learnt: true }, ROOM_LEAST)?;
        self.learnt += 1;
        self.unsized_hosts.push(host);
        Some(host)
    }

    fn add(&mut self, core: &mut Core, known: Known, room: u16) -> Option<Host> {
        let path = known.path;
        let addresses = PathAddresses { local: mapped(path.local), remote: mapped(path.remote) };
        let host = core.add_host(addresses, room).ok()?;
        let len = self.known.len().max(host.index() + 1);
        self.known.resize(len, None);
        *self.known.get_mut(host.index())? = Some(known);
        self.by_path.insert(path, host);
        Some(host)
    }

    /// The path to a host; `None` for this one.
    pub fn path(&self, host: Host) -> Option<Path> {
        self.known.get(host.index()).copied().flatten().map(|known| known.path)
    }

    /// The number of hosts.
    pub fn count(&self) -> usize {
        self.by_path.len()
    }

    /// Forgets hosts without state in the core when few more can be added: a sender can use many
    /// addresses.
    pub fn forget(&mut self, core: &mut Core, now: u64) {
        let few = self.learnt >= LEARNT_MAX || self.count() >= HOSTS_MAX as usize - ROOM_FOR;
        if !few || now < self.forget_at {
            return;
        }
        self.forget_at = now + FORGET_NS;
        let Self { by_path, known, learnt, unsized_hosts, .. } = self;
        core.forget_hosts(now, |host| {
            let Some(gone) = known.get_mut(host.index()).and_then(Option::take) else { return };
            by_path.remove(&gone.path);
            unsized_hosts.retain(|other| *other != host);
            *learnt -= u32::from(gone.learnt);
        });
    }

    /// Sets the room of hosts known from frames according to their routes.
    pub fn size(&mut self, core: &mut Core, stack: &Stack) {
        while let Some(host) = self.unsized_hosts.pop() {
            if let Some(path) = self.path(host)
                && let Some(route) = stack.routes().lookup(path.remote)
            {
                core.set_room(host, room(route.mtu, path.remote));
            }
        }
    }
}

/// Bytes after UDP in a packet of this MTU.
fn room(mtu: u16, remote: IpAddr) -> u16 {
    let headers = if remote.is_ipv4() { 20 + 8 } else { 40 + 8 };
    mtu.saturating_sub(headers)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use stack::message::CoreConfig;

    use super::*;

    fn path(number: u32) -> Path {
        let remote = IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + number));
        Path { local: IpAddr::V4(Ipv4Addr::new(10, 255, 0, 1)), remote }
    }

    #[test]
    fn hosts_that_frames_only_named_make_room_for_others() {
        let mut core = Core::new(CoreConfig { incarnation: 1, hosts: HOSTS_MAX, seed: [5, 6] });
        let mut hosts = Hosts::default();
        for number in 0..LEARNT_MAX {
            assert!(hosts.learnt(&mut core, path(number)).is_some(), "{number}");
            hosts.forget(&mut core, 1);
        }
        // The last look found them all unused.
        assert_eq!((hosts.count(), core.counters().hosts_forgotten), (0, LEARNT_MAX.into()));
        assert!(hosts.unsized_hosts.is_empty());
        for number in 0..LEARNT_MAX {
            assert!(hosts.learnt(&mut core, path(number)).is_some(), "{number}");
        }
        assert!(hosts.learnt(&mut core, path(LEARNT_MAX)).is_none());
        hosts.forget(&mut core, FORGET_NS);
        assert!(hosts.learnt(&mut core, path(LEARNT_MAX)).is_none(), "not so soon");
        hosts.forget(&mut core, 1 + FORGET_NS);
        assert!(hosts.learnt(&mut core, path(LEARNT_MAX)).is_some());
    }
}
