//! Hosts that messages are exchanged with, by address.

use std::collections::BTreeMap;
use std::net::IpAddr;

use rustix::io::Errno;
use stack::Stack;
use stack::message::{Core, Host, PathAddresses};

/// Most hosts.
pub(super) const HOSTS_MAX: u32 = 4096;
/// Most that may be known because a frame came from there: a quarter of all is left to those that
/// programs name.
const LEARNT_MAX: u32 = HOSTS_MAX / 4 * 3;
/// Pause between looks for hosts that can be forgotten, nanoseconds.
const FORGET_NS: u64 = 1_000_000_000;
/// They are looked for when fewer can be added.
const ROOM_FOR: usize = 64;
/// Bytes behind UDP of a frame to a host whose route is not known yet: IPv6's least MTU.
const ROOM_LEAST: u16 = 1280 - 40 - 8;

/// The two ends of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Path {
    /// Ours.
    pub local: IpAddr,
    /// The host's.
    pub remote: IpAddr,
}

/// What is known of a host.
#[derive(Clone, Copy)]
struct Known {
    path: Path,
    /// From a frame.
    learnt: bool,
}

/// The table.
#[derive(Default)]
pub(super) struct Hosts {
    by_path: BTreeMap<Path, Host>,
    /// By the host's number; the first is this one.
    known: Vec<Option<Known>>,
    learnt: u32,
    /// When hosts may be forgotten again, nanoseconds.
    forget_at: u64,
    /// Hosts whose room is not what their route has.
    unsized_hosts: Vec<Host>,
}

fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

impl Hosts {
    /// The host that a program names.
    pub fn named(&mut self, core: &mut Core, stack: &Stack, path: Path) -> Result<Host, Errno> {
        if let Some(host) = self.by_path.get(&path) {
            return Ok(*host);
        }
        let route = stack.routes().lookup(path.remote).ok_or(Errno::HOSTUNREACH)?;
        self.add(core, Known { path, learnt: false }, room(route.mtu, path.remote))
            .ok_or(Errno::NOBUFS)
    }

    /// The host that a frame came from; `None` when there are too many.
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

    /// The path to a host; `None` to this one.
    pub fn path(&self, host: Host) -> Option<Path> {
        self.known.get(host.index()).copied().flatten().map(|known| known.path)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.by_path.len()
    }

    /// Forgets hosts that nothing is about when few more can be known: anybody can send frames under
    /// many addresses.
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

    /// Gives hosts that were learnt from frames the room of their routes.
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

/// Bytes behind UDP in a packet of so many bytes.
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
