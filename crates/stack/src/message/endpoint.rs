//! Endpoints, and the jobs that they belong to.

use serde::{Deserialize, Serialize};
use wire::message::job_identifier;

use super::api::{
    ClaimId, ClaimedReceive, EndpointId, EndpointOptions, Envelope, JobKey, Memory, MessageError,
    ReceiveId, Selector,
};
use super::association::Job;
use super::matching::Matcher;
use super::receive::ReceiveWindow;
use super::slab::{AssociationId, IncomingId};
use super::{Bugs, Core, Hashed};

/// Keys that may share an identifier.
const KEYS_PER_IDENTIFIER: usize = 4;
/// Jobs that are known at most.
const JOBS_MAX: usize = 1024;
/// A job with peers is known so long after its last endpoint closed, nanoseconds.
const JOB_KNOWN_NS: u64 = 60_000_000_000;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Endpoint {
    pub options: EndpointOptions,
    pub job: u32,
    /// False: it is closing, and only its sends go on.
    pub open: bool,
    /// It has been cleared of messages and receives, and ends with its last send.
    pub cleared: bool,
    pub sends: u32,
    pub receives: u32,
    /// Unexpected messages that are kept, and envelopes promised to messages that are missing.
    pub kept: u32,
    pub reserved: u32,
    pub posted: Matcher,
    pub unexpected: Matcher,
    /// Associations whose messages it refused.
    pub refused: Vec<AssociationId>,
}

impl<B: Bugs> Core<B> {
    /// Opens an endpoint. The caller has seen that the program may use the port.
    ///
    /// # Errors
    /// [`MessageError::PortInUse`], [`MessageError::JobCollision`], [`MessageError::TooManyJobs`].
    pub fn open(&mut self, now: u64, options: EndpointOptions) -> Result<EndpointId, MessageError> {
        if self.ports.get(options.port).is_some() {
            return Err(MessageError::PortInUse);
        }
        let job = self.job_of(now, options.key)?;
        self.jobs[job as usize].endpoints += 1;
        let id = self.endpoints.insert(Endpoint {
            options,
            job,
            open: true,
            cleared: false,
            sends: 0,
            receives: 0,
            kept: 0,
            reserved: 0,
            posted: Matcher::new(self.config.seed),
            unexpected: Matcher::new(self.config.seed),
            refused: Vec::new(),
        });
        self.ports.insert(options.port, id);
        Ok(id)
    }

    fn job_of(&mut self, now: u64, key: Option<JobKey>) -> Result<u32, MessageError> {
        // One whose time is over is known again with all that is left of it: its peers may not have
        // forgotten.
        if let Some(found) = self.jobs.iter().position(|job| job.key == key) {
            return Ok(found as u32);
        }
        let identifier = key.as_ref().map_or(0, job_identifier);
        let same = |job: &&Job| job.key.is_some() && job.identifier == identifier;
        if key.is_some()
            && self.jobs.iter().filter(|job| job.is_known(now)).filter(same).count()
                >= KEYS_PER_IDENTIFIER
        {
            return Err(MessageError::JobCollision);
        }
        let job = Job { key, identifier, endpoints: 0, idle_since: now, peers: Hashed::default() };
        match self.jobs.iter().position(|job| !job.is_known(now)) {
            Some(forgotten) => {
                self.forget_job(forgotten as u32);
                self.identifiers.retain(|it| it.1 != forgotten as u32);
                self.identify(&job, forgotten as u32);
                self.jobs[forgotten] = job;
                Ok(forgotten as u32)
            }
            None if self.jobs.len() >= JOBS_MAX => Err(MessageError::TooManyJobs),
            None => {
                let number = self.jobs.len() as u32;
                self.identify(&job, number);
                self.jobs.push(job);
                Ok(number)
            }
        }
    }

    /// Notes by which identifier frames name a job.
    fn identify(&mut self, job: &Job, number: u32) {
        if job.key.is_some() {
            let at = self.identifiers.partition_point(|it| it.0 < job.identifier);
            self.identifiers.insert(at, (job.identifier, number));
        }
    }

    /// An open endpoint.
    pub(super) fn open_endpoint(&self, id: EndpointId) -> Result<&Endpoint, MessageError> {
        self.endpoints.get(id).filter(|it| it.open).ok_or(MessageError::UnknownEndpoint)
    }

    /// The unexpected message that a receive with this selector would take.
    pub fn peek(&self, endpoint: EndpointId, selector: Selector) -> Option<Envelope> {
        let found = self.open_endpoint(endpoint).ok()?.unexpected.message_for(&selector)?;
        let id = self.incoming.at(found)?;
        Some(self.incoming[id].envelope())
    }

    /// Takes the message that a receive with this selector would take out of matching, for
    /// [`receive_claimed`](Self::receive_claimed) or [`discard`](Self::discard).
    pub fn claim(
        &mut self,
        endpoint: EndpointId,
        selector: Selector,
    ) -> Option<(ClaimId, Envelope)> {
        let found = self.open_endpoint(endpoint).ok()?.unexpected.message_for(&selector)?;
        let id = self.incoming.at(found)?;
        self.unlist(id);
        self.incoming[id].claimed = true;
        Some((id.into(), self.incoming[id].envelope()))
    }

    /// Gives up a claimed message. Its sender is not told.
    ///
    /// # Errors
    /// [`MessageError::UnknownOperation`].
    pub fn discard(
        &mut self,
        now: u64,
        claim: ClaimId,
        memory: &mut dyn Memory,
    ) -> Result<(), MessageError> {
        self.now = now;
        let id = self.claimed(claim)?;
        let nowhere = ReceiveWindow { capacity: 0, window: 0, cookie: None };
        self.post_claimed(id, nowhere, memory)?;
        Ok(())
    }

    /// Receives a claimed message, as [`receive`](Self::receive) would.
    ///
    /// # Errors
    /// [`MessageError::UnknownOperation`], [`MessageError::Length`], [`MessageError::TooMany`].
    pub fn receive_claimed(
        &mut self,
        now: u64,
        claim: ClaimId,
        request: ClaimedReceive,
        memory: &mut dyn Memory,
    ) -> Result<ReceiveId, MessageError> {
        self.now = now;
        let id = self.claimed(claim)?;
        let ClaimedReceive { capacity, window, cookie } = request;
        self.post_claimed(id, ReceiveWindow { capacity, window, cookie: Some(cookie) }, memory)
    }

    fn claimed(&self, claim: ClaimId) -> Result<IncomingId, MessageError> {
        let id = IncomingId::from(claim);
        let claimed = self.incoming.get(id).is_some_and(|incoming| incoming.claimed);
        claimed.then_some(id).ok_or(MessageError::UnknownOperation)
    }
}

impl Job {
    /// Whether its epochs must be remembered.
    pub(super) fn is_known(&self, now: u64) -> bool {
        self.endpoints > 0 || (!self.peers.is_empty() && now < self.idle_since + JOB_KNOWN_NS)
    }
}
