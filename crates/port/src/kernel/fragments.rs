//! Fragmented packets for the engine: what follows their first fragment has no ports.

use std::net::IpAddr;

use wire::ipv4::Protocol;

use crate::layers::IpLayer;

/// Packets remembered, each at the place of its identification; a later one there takes it.
const PLACES: usize = 256;

/// What all fragments of a packet have in common (RFC 791, RFC 8200).
type Key = (IpAddr, IpAddr, Protocol, u32);

/// The packets whose first fragment was the engine's.
#[derive(Debug)]
pub(super) struct Fragments {
    places: Box<[Option<Key>]>,
}

impl Default for Fragments {
    fn default() -> Self {
        Self { places: vec![None; PLACES].into_boxed_slice() }
    }
}

fn key(ip: &IpLayer, identification: u32) -> Key {
    (ip.source, ip.destination, ip.protocol, identification)
}

impl Fragments {
    /// A first fragment has come.
    pub fn note(&mut self, ip: &IpLayer, identification: u32, is_ours: bool) {
        let key = key(ip, identification);
        if let Some(place) = self.places.get_mut(identification as usize % PLACES)
            && (is_ours || *place == Some(key))
        {
            *place = is_ours.then_some(key);
        }
    }

    /// Whether a later one belongs to a packet of the engine's.
    pub fn is_ours(&self, ip: &IpLayer, identification: u32) -> bool {
        let place = self.places.get(identification as usize % PLACES);
        place == Some(&Some(key(ip, identification)))
    }
}
