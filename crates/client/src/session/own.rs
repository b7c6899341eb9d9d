//! Which addresses the engine has, and from which of them a peer is reached.

use std::net::IpAddr;

use super::{Session, is_link_local};

impl Session {
    /// The engine's addresses that are good beyond a link: those of its own first, then those it
    /// shares with the kernel.
    pub fn own_addresses(&self) -> Vec<IpAddr> {
        let told = self.interfaces();
        let of = |shared: bool| told.interfaces.iter().filter(move |of| of.shared == shared);
        let all = of(false).chain(of(true)).flat_map(|of| &of.addresses);
        all.map(|(own, _)| own.to_canonical()).filter(|own| !is_link_local(*own)).collect()
    }

    /// The engine's address that a packet to `destination` leaves from: of the interface that leads
    /// there. `None` without a way, or without an address of the family.
    pub fn source_for(&self, destination: IpAddr) -> Option<IpAddr> {
        let destination = destination.to_canonical();
        if self.owns(destination) {
            return Some(destination);
        }
        let way = self.way_to(destination)?;
        let told = self.interfaces();
        let of = told.interfaces.get((way.interface as usize).checked_sub(1)?)?;
        let own = of.addresses.iter().map(|(own, _)| own.to_canonical());
        own.filter(|own| !is_link_local(*own)).find(|own| own.is_ipv4() == destination.is_ipv4())
    }
}
