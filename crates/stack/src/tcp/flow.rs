//! Which connection a segment belongs to: a hash table with a secret key.

use std::hash::{BuildHasher, Hash, Hasher};
use std::net::{IpAddr, SocketAddr};

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;

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

/// Where a flow leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A slot of the connection table.
    Connection(u32),
    /// A slot of the TIME-WAIT table.
    TimeWait(u32),
}

/// The hash function's key.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct FlowKey(pub [u64; 2]);

impl BuildHasher for FlowKey {
    type Hasher = SipHasher13;
    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0[0], self.0[1])
    }
}

/// The table.
pub type Flows = HashMap<Flow, Place, FlowKey>;
