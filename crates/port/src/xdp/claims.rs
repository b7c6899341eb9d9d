//! The engine's claims, expanded to the addresses of the interface and kept in the map that the XDP
//! program reads.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};

use super::owned::{self, Key, LISTENS, Owned, WHOLLY};
use crate::interface::{Claim, Protocol};

type LocalSocket = (Protocol, SocketAddr);

/// The claims of a port.
#[derive(Debug)]
pub(super) struct Claims {
    owned: Owned,
    /// The claims as they were made.
    sockets: BTreeMap<LocalSocket, u32>,
    addresses: Vec<IpAddr>,
    /// Longest frame of the link; longer datagrams are several without segmentation.
    frame_bytes_max: u32,
}

impl Claims {
    pub(super) fn new(owned: Owned, frame_bytes_max: u32) -> Self {
        Self { owned, sockets: BTreeMap::new(), addresses: Vec::new(), frame_bytes_max }
    }

    pub(super) fn claim(&mut self, claim: &Claim) -> io::Result<()> {
        let (place, how) = match *claim {
            Claim::Tcp { local, listens } => {
                ((Protocol::Tcp, local), if listens { LISTENS } else { 0 })
            }
            Claim::Udp(local) => ((Protocol::Udp, local), WHOLLY),
            Claim::EtherType(ethertype) => {
                return self.owned.set(&owned::ethertype_key(ethertype), WHOLLY, u32::MAX);
            }
        };
        self.sockets.insert(place, how);
        self.show(place)
    }

    pub(super) fn release(&mut self, claim: &Claim) {
        let place = match *claim {
            Claim::Tcp { local, .. } => (Protocol::Tcp, local),
            Claim::Udp(local) => (Protocol::Udp, local),
            Claim::EtherType(ethertype) => return self.remove(&owned::ethertype_key(ethertype)),
        };
        if self.sockets.remove(&place).is_some() {
            // Removing and replacing need no room.
            let _ = self.show(place);
        }
    }

    /// Sets the interface's addresses and largest frame. An entry without room does not keep others
    /// from being updated; the first error is returned.
    pub(super) fn follow(&mut self, addresses: &[IpAddr], frame_bytes_max: u32) -> io::Result<()> {
        let before = std::mem::replace(&mut self.addresses, addresses.to_vec());
        self.frame_bytes_max = frame_bytes_max;
        let mut outcome = Ok(());
        for address in before.iter().chain(addresses) {
            let key = owned::block_key(*address);
            match self.addresses.contains(address) {
                true => outcome = outcome.and(self.owned.set(&key, WHOLLY, u32::MAX)),
                false => self.remove(&key),
            }
        }
        for (protocol, local) in self.sockets.keys() {
            for address in before.iter().chain(addresses) {
                if local.ip().is_unspecified() || local.ip() == *address {
                    let place = SocketAddr::new(*address, local.port());
                    outcome = outcome.and(self.show_at(*protocol, place));
                }
            }
        }
        outcome
    }

    /// Updates the map after a change of a claim.
    fn show(&self, (protocol, local): LocalSocket) -> io::Result<()> {
        if !local.ip().is_unspecified() {
            return self.show_at(protocol, local);
        }
        self.addresses
            .iter()
            .try_for_each(|ip| self.show_at(protocol, SocketAddr::new(*ip, local.port())))
    }

    fn show_at(&self, protocol: Protocol, local: SocketAddr) -> io::Result<()> {
        let key = owned::socket_key(local, protocol);
        let any = match local.ip() {
            IpAddr::V4(_) => IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED),
        };
        let here = self.sockets.get(&(protocol, local));
        let everywhere = self.sockets.get(&(protocol, SocketAddr::new(any, local.port())));
        let how = match (here, everywhere) {
            _ if !self.addresses.contains(&local.ip()) => None,
            (None, None) => None,
            (here, everywhere) => {
                Some(here.copied().unwrap_or(0) | everywhere.copied().unwrap_or(0))
            }
        };
        match how {
            Some(how) => self.owned.set(&key, how, self.frame_bytes_max),
            None => {
                self.remove(&key);
                Ok(())
            }
        }
    }

    fn remove(&self, key: &Key) {
        // A missing key is as good as removed, and nothing else can fail.
        let _ = self.owned.0.remove(key);
    }
}
