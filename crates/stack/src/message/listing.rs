//! Endpoints and associations as observers see them. Each stays at its place as long as it lives, so that
//! a list can be made in several steps.

use super::api::{EndpointId, Host};
use super::{Bugs, Core};

/// What an endpoint has now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointSummary {
    /// False: it is closed, and its sends go on.
    pub is_open: bool,
    /// Identifier of its job in frames; `None` without a key.
    pub job: Option<u32>,
    /// Hosts that its job has exchanged messages with.
    pub peers: u32,
    /// Sends that have not ended.
    pub sends: u32,
    /// Receives that have not ended.
    pub receives: u32,
    /// Unexpected messages.
    pub unexpected: u32,
}

/// What an association has now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssociationSummary {
    /// The other host.
    pub host: Host,
    /// Identifier of its job in frames.
    pub job: u32,
    /// A frame under both epochs has been verified.
    pub is_verified: bool,
    /// Sends that have not ended.
    pub sends: u32,
    /// Messages on their way in, or unexpected.
    pub incoming: u32,
    /// Data frames sent and not acknowledged.
    pub in_flight: u32,
    /// Data frames that may be under way.
    pub window: u32,
    /// Smoothed round trip, nanoseconds; 0 before there is a measurement.
    pub srtt_ns: u64,
}

impl<B: Bugs> Core<B> {
    /// The endpoint with this handle.
    pub fn endpoint_summary(&self, id: EndpointId) -> Option<EndpointSummary> {
        let endpoint = self.endpoints.get(id)?;
        let job = &self.jobs[endpoint.job as usize];
        Some(EndpointSummary {
            is_open: endpoint.open,
            job: job.key.is_some().then_some(job.identifier),
            peers: job.peers.len() as u32,
            sends: endpoint.sends,
            receives: endpoint.receives,
            unexpected: endpoint.kept,
        })
    }

    /// Places that [`association_at`](Self::association_at) has now.
    pub fn association_places(&self) -> u32 {
        self.associations.slots()
    }

    /// The association at a place, if there is one.
    pub fn association_at(&self, place: u32) -> Option<AssociationSummary> {
        let it = &self.associations[self.associations.at(place)?];
        Some(AssociationSummary {
            host: it.peer.host,
            job: self.jobs[it.peer.job as usize].identifier,
            is_verified: it.verified,
            sends: (it.open_sends + it.waiting.len()) as u32,
            incoming: it.incoming.len() as u32,
            in_flight: it.ring.in_flight as u32,
            window: it.pace.window as u32,
            srtt_ns: it.pace.srtt(),
        })
    }
}
