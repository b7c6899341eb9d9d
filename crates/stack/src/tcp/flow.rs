//! Which connection a segment belongs to: a hash table with a secret key.
//!
//! Eight bytes a slot: half of the hash and the place it leads to. Addresses and ports are not kept
//! twice; who looks compares them with those of the connection that was found, which a segment
//! touches in any case. So a look is one cache line, nearly always.

use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;

/// One end of a connection: what a [`SocketAddr`] says of it, in two thirds of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Socket {
    ip: [u8; 16],
    port: [u8; 2],
    is_ipv4: bool,
}

impl Socket {
    /// The address.
    pub fn ip(&self) -> IpAddr {
        match self.ip {
            [.., a, b, c, d] if self.is_ipv4 => IpAddr::from([a, b, c, d]),
            ip => IpAddr::from(ip),
        }
    }

    /// The port.
    pub fn port(&self) -> u16 {
        u16::from_ne_bytes(self.port)
    }

    /// Whether the address is an IPv4 one.
    pub fn is_ipv4(&self) -> bool {
        self.is_ipv4
    }

    /// As everybody else has it.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.ip(), self.port())
    }
}

impl From<SocketAddr> for Socket {
    fn from(address: SocketAddr) -> Self {
        let (port, is_ipv4) = (address.port(), address.is_ipv4());
        let ip = match address.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        Self { ip, port: port.to_ne_bytes(), is_ipv4 }
    }
}

/// A connection's four numbers, IPv4 mapped into IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    local: [u64; 2],
    remote: [u64; 2],
    ports: u32,
}

impl Flow {
    /// The key of a connection.
    pub fn new(local: SocketAddr, remote: SocketAddr) -> Self {
        let halves = |address: IpAddr| {
            let bits = match address {
                IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
                IpAddr::V6(v6) => v6.to_bits(),
            };
            [(bits >> 64) as u64, bits as u64]
        };
        Self {
            local: halves(local.ip()),
            remote: halves(remote.ip()),
            ports: u32::from(local.port()) << 16 | u32::from(remote.port()),
        }
    }
}

impl Hash for Flow {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The upper halves of mapped addresses say nothing; a collision among others costs a
        // comparison only, and an attacker cannot choose it without the key.
        if self.remote[0] != 0 {
            state.write_u64(self.remote[0]);
            state.write_u64(self.local[0]);
        }
        state.write_u64(self.remote[1]);
        state.write_u64(self.local[1]);
        state.write_u32(self.ports);
    }
}

/// The slot that holds the state of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowSlot {
    /// A slot of the connection table.
    Connection(u32),
    /// A slot of the TIME-WAIT table.
    TimeWait(u32),
}

/// Marks places in the TIME-WAIT table; slots of both tables stay far below.
const TIME_WAIT_BIT: u32 = 1 << 31;

impl FlowSlot {
    /// Never 0, which marks an empty slot.
    fn code(self) -> u32 {
        match self {
            FlowSlot::Connection(index) => index + 1,
            FlowSlot::TimeWait(slot) => (slot + 1) | TIME_WAIT_BIT,
        }
    }

    fn of(code: u32) -> Self {
        match code & TIME_WAIT_BIT {
            0 => FlowSlot::Connection(code - 1),
            _ => FlowSlot::TimeWait((code & !TIME_WAIT_BIT) - 1),
        }
    }
}

/// The hash function's key.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct FlowKey(pub [u64; 2]);

/// The table: linear probing, at most three quarters full.
#[derive(Clone, Debug)]
pub struct Flows {
    key: FlowKey,
    /// Hash in the upper half, the place's code in the lower; a power of two of them.
    slots: Vec<u64>,
    len: usize,
}

const EMPTY: u64 = 0;
const SLOTS_MIN: usize = 16;

/// Slots for so many entries.
fn slots_for(entries: usize) -> usize {
    (entries + entries.div_ceil(3)).next_power_of_two().max(SLOTS_MIN)
}

fn entry(hash: u32, place: FlowSlot) -> u64 {
    u64::from(hash) << 32 | u64::from(place.code())
}

impl Flows {
    /// A table that has room for so many entries and grows only beyond them. Its memory is taken
    /// page by page as it is used.
    pub fn new(key: FlowKey, entries: usize) -> Self {
        Self { key, slots: vec![EMPTY; slots_for(entries)], len: 0 }
    }

    /// Entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The hash of a flow, for [`find`](Self::find).
    pub fn hash(&self, flow: &Flow) -> u32 {
        let mut hasher = SipHasher13::new_with_keys(self.key.0[0], self.key.0[1]);
        flow.hash(&mut hasher);
        hasher.finish() as u32
    }

    /// Where a look for this hash begins.
    fn home(&self, hash: u32) -> usize {
        hash as usize & (self.slots.len() - 1)
    }

    /// The entries that a look for `hash` comes to, with where they lie.
    fn probe(&self, hash: u32) -> impl Iterator<Item = (usize, u64)> + '_ {
        let mask = self.slots.len() - 1;
        let home = self.home(hash);
        (0..self.slots.len())
            .map(move |step| (home + step) & mask)
            .map_while(|at| self.slots.get(at).map(|&found| (at, found)))
            .take_while(|&(_, found)| found != EMPTY)
    }

    /// The place of a flow with this hash, of which `is_it` says that it is the flow's.
    pub fn find(&self, hash: u32, is_it: impl Fn(FlowSlot) -> bool) -> Option<FlowSlot> {
        self.probe(hash)
            .filter(|&(_, found)| (found >> 32) as u32 == hash)
            .map(|(_, found)| FlowSlot::of(found as u32))
            .find(|&place| is_it(place))
    }

    /// Enters a flow that is not there.
    pub fn insert(&mut self, flow: &Flow, place: FlowSlot) {
        if slots_for(self.len + 1) > self.slots.len() {
            let wider = vec![EMPTY; self.slots.len() * 2];
            for old in std::mem::replace(&mut self.slots, wider) {
                if old != EMPTY {
                    self.put(old);
                }
            }
        }
        self.put(entry(self.hash(flow), place));
        self.len += 1;
    }

    fn put(&mut self, new: u64) {
        let mask = self.slots.len() - 1;
        let mut at = self.home((new >> 32) as u32);
        // There is an empty one, as a quarter of them is.
        while let Some(slot) = self.slots.get_mut(at) {
            if *slot == EMPTY {
                *slot = new;
                return;
            }
            at = (at + 1) & mask;
        }
    }

    /// Forgets that a flow leads to `place`, if it does.
    pub fn remove(&mut self, flow: &Flow, place: FlowSlot) {
        let wanted = entry(self.hash(flow), place);
        let found = self.probe((wanted >> 32) as u32).find(|&(_, found)| found == wanted);
        let Some((mut hole, _)) = found else { return };
        self.len -= 1;
        // Those behind move up, so that no look ends at the hole before it comes to them.
        let mask = self.slots.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let Some(&moved) = self.slots.get(at).filter(|&&found| found != EMPTY) else { break };
            let from_home = at.wrapping_sub(self.home((moved >> 32) as u32)) & mask;
            if from_home >= at.wrapping_sub(hole) & mask {
                self.set(hole, moved);
                hole = at;
            }
        }
        self.set(hole, EMPTY);
    }

    fn set(&mut self, at: usize, to: u64) {
        if let Some(slot) = self.slots.get_mut(at) {
            *slot = to;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn flow(port: u16) -> Flow {
        Flow::new(([10, 0, 0, 1], 80).into(), ([10, 0, 0, 2], port).into())
    }

    #[test]
    fn a_socket_keeps_its_address_and_port() {
        for text in ["10.0.0.1:80", "[2001:db8::1]:65535", "[::ffff:10.0.0.1]:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let socket = Socket::from(address);
            assert_eq!((socket.address(), socket.is_ipv4()), (address, address.is_ipv4()));
        }
    }

    proptest! {
        #[test]
        fn it_does_what_a_sorted_map_does(
            key in any::<[u64; 2]>(),
            ops in prop::collection::vec((any::<bool>(), 0u16..40, any::<bool>()), 1..400),
        ) {
            let mut flows = Flows::new(FlowKey(key), 0);
            let mut model: BTreeMap<u16, FlowSlot> = BTreeMap::new();
            for (enters, port, waits) in ops {
                let slot = u32::from(port);
                let place = if waits { FlowSlot::TimeWait(slot) } else { FlowSlot::Connection(slot) };
                if enters {
                    if let Some(old) = model.insert(port, place) {
                        flows.remove(&flow(port), old);
                    }
                    flows.insert(&flow(port), place);
                } else {
                    // What leads elsewhere stays.
                    flows.remove(&flow(port), place);
                    if model.get(&port) == Some(&place) {
                        model.remove(&port);
                    }
                }
                for port in 0..40 {
                    let is_it = |place: FlowSlot| matches!(
                        place,
                        FlowSlot::Connection(slot) | FlowSlot::TimeWait(slot) if slot == u32::from(port)
                    );
                    let found = flows.find(flows.hash(&flow(port)), is_it);
                    prop_assert_eq!(found, model.get(&port).copied());
                }
                prop_assert_eq!(flows.len, model.len());
            }
        }
    }

    #[test]
    fn no_table_is_more_than_three_quarters_full() {
        for entries in [0, 1, 12, 13, 81_920, 1_016_384] {
            assert!(4 * entries <= 3 * slots_for(entries), "{entries}");
        }
    }
}
