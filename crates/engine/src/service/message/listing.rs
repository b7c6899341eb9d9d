//! Endpoints and associations for observers.

use std::net::SocketAddr;

use stack::message::{AssociationSummary, EndpointSummary};

use super::Messages;

/// An endpoint or an association.
pub(crate) enum Listed {
    /// An endpoint: the place of its session, and its address.
    Endpoint(u32, SocketAddr, EndpointSummary),
    /// An association: the addresses of its frames in datagrams, ours first.
    Association(SocketAddr, SocketAddr, AssociationSummary),
}

impl Messages {
    /// Places that [`listed_at`](Self::listed_at) has now; more may come.
    pub fn places(&self) -> usize {
        2 * self.tables.ports.len().max(self.core.association_places() as usize)
    }

    /// What lies at a place. Each keeps its own as long as it lives: endpoints have the even ones.
    pub fn listed_at(&self, place: usize) -> Option<Listed> {
        if place.is_multiple_of(2) {
            let port = self.tables.ports.get(place / 2)?.as_ref()?;
            let summary = self.core.endpoint_summary(port.id)?;
            return Some(Listed::Endpoint(port.place, port.address, summary));
        }
        let summary = self.core.association_at(u32::try_from(place / 2).ok()?)?;
        let path = self.hosts.path(summary.host)?;
        let frames = |ip| SocketAddr::new(ip, self.settings.port);
        Some(Listed::Association(frames(path.local), frames(path.remote), summary))
    }
}
