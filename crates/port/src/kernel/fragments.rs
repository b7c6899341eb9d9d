//! Fragmented packets for the engine: fragments after the first have no ports.

use std::net::IpAddr;

use wire::ipv4::Protocol;

use crate::layers::IpLayer;

/// Packets remembered, in a table indexed by their identification; a newer one replaces the older.
const PLACES: usize = 256;

/// The fields shared by all fragments of a packet (RFC 791, RFC 8200).
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
    /// A first fragment has arrived.
    pub fn note(&mut self, ip: &IpLayer, identification: u32, is_ours: bool) {
        let key = key(ip, identification);
        if let Some(place) = self.places.get_mut(identification as usize % PLACES)
            && (is_ours || *place == Some(key))
        {
            *place = is_ours.then_some(key);
        }
    }

    /// Whether a later fragment belongs to a packet for the engine.
    pub fn is_ours(&self, ip: &IpLayer, identification: u32) -> bool {
        let place = self.places.get(identification as usize % PLACES);
        place == Some(&Some(key(ip, identification)))
    }
}
