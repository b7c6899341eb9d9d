//! The engine's addresses, and the source address for a destination.

use std::net::IpAddr;

use super::{Session, is_link_local};

impl Session {
    /// The engine's addresses except link-local ones: its own first, then those shared with the
    /// kernel.
    pub fn own_addresses(&self) -> Vec<IpAddr> {
        let told = self.interfaces();
        let of = |shared: bool| told.interfaces.iter().filter(move |of| of.shared == shared);
        let all = of(false).chain(of(true)).flat_map(|of| &of.addresses);
        all.map(|(own, _)| own.to_canonical()).filter(|own| !is_link_local(*own)).collect()
    }

    /// The engine's source address for a packet to `destination`: that of the interface with the
    /// route. `None` without a route, or without an address of the family.
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
