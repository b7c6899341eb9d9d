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

/// The table.
#[derive(Default)]
pub(super) struct Hosts {
    by_path: BTreeMap<Path, Host>,
    /// By the host's number; the first is this one.
    paths: Vec<Option<Path>>,
    learnt: u32,
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
        self.add(core, path, room(route.mtu, path.remote)).ok_or(Errno::NOBUFS)
    }

    /// The host that a frame came from; `None` when there are too many.
    pub fn learnt(&mut self, core: &mut Core, path: Path) -> Option<Host> {
        if let Some(host) = self.by_path.get(&path) {
            return Some(*host);
        }
        if self.learnt >= LEARNT_MAX {
            return None;
        }
        let host = self.add(core, path, ROOM_LEAST)?;
        self.learnt += 1;
        self.unsized_hosts.push(host);
        Some(host)
    }

    fn add(&mut self, core: &mut Core, path: Path, room: u16) -> Option<Host> {
        let addresses = PathAddresses { local: mapped(path.local), remote: mapped(path.remote) };
        let host = core.add_host(addresses, room).ok()?;
        let len = self.paths.len().max(host.index() + 1);
        self.paths.resize(len, None);
        *self.paths.get_mut(host.index())? = Some(path);
        self.by_path.insert(path, host);
        Some(host)
    }

    /// The path to a host; `None` to this one.
    pub fn path(&self, host: Host) -> Option<Path> {
        self.paths.get(host.index()).copied().flatten()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.by_path.len()
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
