//! The peers of an endpoint, by number and by address.

use std::collections::HashMap;
use std::net::SocketAddr;

use super::Peer;

/// Maximum number of peers.
const PEERS_MAX: usize = 1 << 20;

/// The table.
#[derive(Debug, Default)]
pub struct Peers {
    addresses: Vec<SocketAddr>,
    numbers: HashMap<SocketAddr, Peer>,
}

impl Peers {
    /// The number of an address, assigned if it had none; `None` if the table is full.
    pub fn add(&mut self, address: SocketAddr) -> Option<Peer> {
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        if let Some(peer) = self.numbers.get(&address) {
            return Some(*peer);
        }
        if self.addresses.len() >= PEERS_MAX {
            return None;
        }
        let peer = Peer(self.addresses.len() as u32);
        self.addresses.push(address);
        self.numbers.insert(address, peer);
        Some(peer)
    }

    /// The address of a number.
    pub fn address(&self, peer: Peer) -> Option<SocketAddr> {
        self.addresses.get(peer.0 as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_one_number_however_its_address_is_written() {
        let mut peers = Peers::default();
        let first = peers.add("10.0.0.1:7".parse().unwrap());
        assert_eq!(first, Some(Peer(0)));
        assert_eq!(peers.add("10.0.0.1:8".parse().unwrap()), Some(Peer(1)));
        assert_eq!(peers.add("[::ffff:10.0.0.1]:7".parse().unwrap()), first);
        assert_eq!(peers.address(Peer(1)), Some("10.0.0.1:8".parse().unwrap()));
        assert_eq!(peers.address(Peer(2)), None);
    }
}
