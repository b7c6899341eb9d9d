//! Opening, closing and doorbells of raw endpoints.

use std::thread::JoinHandle;

use port::Claim;
use rustix::io::Errno;
use shm::Status;

use super::{NOBODY, Outward, RawSeed, Visit};
use crate::control::authority::Refusal;
use crate::control::exchange::{Answer, SessionKey};
use crate::endpoint::Role;
use crate::errors::EngineError;
use crate::service::mirror::Running;
use crate::session::Session;
use crate::worker::Worker;

/// Visits to the ring of a closing endpoint: the number of small frames in a ring of the default
/// size.
const LAST_VISITS_MAX: usize = 256;

impl Worker {
    /// Opens a raw endpoint with rings created by the control thread, and answers.
    pub(crate) fn open_raw(
        &mut self,
        session: SessionKey,
        serial: u32,
        context: u16,
        seed: RawSeed,
    ) {
        let result = self.grant_raw(session, context, seed);
        if result.is_err() {
            self.counters.raw_refused.increment();
        }
        self.answers.push(Answer::Raw { session, serial, result });
    }

    fn grant_raw(
        &mut self,
        session: SessionKey,
        context: u16,
        seed: RawSeed,
    ) -> Result<u32, Refusal> {
        let refused =
            |errno: Errno, reason: String| Refusal { errno: errno.raw_os_error(), reason };
        let served = |session: &Session| session.is_served();
        let place = self.sessions.place_of(session);
        let place = place.filter(|place| self.sessions.peek(*place).is_some_and(served));
        let gone = || refused(Errno::BADF, "the session has ended".into());
        let place = place.ok_or_else(gone)?;
        if let Some(reason) = self.raw.refusal(&seed) {
            return Err(refused(Errno::BUSY, reason));
        }
        self.claim_taken(&seed)?;
        let index = match self.grant_endpoint(place, context) {
            Ok(index) => index,
            Err(refusal) => {
                self.release_taken(&seed);
                return Err(refusal);
            }
        };
        let slot = self.raw.add((place, index), seed, None);
        self.set_role(place, index, Role::Raw(slot));
        self.counters.raw_endpoints.set(self.raw.count() as u64);
        Ok(index)
    }

    /// Has what an endpoint takes come to the engine at ports that share their interface.
    fn claim_taken(&mut self, seed: &RawSeed) -> Result<(), Refusal> {
        let Some(claim) = seed.claim() else { return Ok(()) };
        let refused = |errno: Errno, reason| Refusal { errno: errno.raw_os_error(), reason };
        if claim == Claim::EtherType(self.limits.messages.ethertype) {
            let reason = format!(
                "EtherType {:#06x} is that of messages; set another one ([messages] ethertype)",
                self.limits.messages.ethertype
            );
            return Err(refused(Errno::BUSY, reason));
        }
        let mut claimed = Ok(());
        for port in &seed.ports {
            let port = self.ports.get_mut(*port);
            claimed = claimed.and_then(|()| port.map_or(Ok(()), |of| of.port.claim(&claim)));
        }
        claimed.map_err(|error| {
            self.counters.claims_failed.increment();
            self.release_taken(seed);
            let reason = format!("the XDP program can be told of no EtherType more: {error}");
            refused(Errno::NOBUFS, reason)
        })
    }

    /// Leaves to the kernel what an endpoint took.
    fn release_taken(&mut self, seed: &RawSeed) {
        let Some(claim) = seed.claim() else { return };
        for port in &seed.ports {
            if let Some(of) = self.ports.get_mut(*port) {
                of.port.release_claim(&claim);
            }
        }
    }

    /// Copies a port's frames to a mirror from now on; its thread.
    ///
    /// # Errors
    /// A sentence: there is no such port, or it has the maximum number of watchers.
    pub(crate) fn add_mirror(
        &mut self,
        running: Running,
    ) -> Result<JoinHandle<Result<(), EngineError>>, String> {
        let Running { seed, rope, name, counts, thread } = running;
        if let Some(reason) = self.raw.refusal(&seed) {
            return Err(format!("the mirror {name}: {reason}"));
        }
        self.raw.add((NOBODY, 0), seed, Some(rope));
        self.mirrors.push((name, counts));
        Ok(thread)
    }

    /// A program has pushed frames, or a port may have room again.
    pub(crate) fn serve_raw(&mut self, slot: u32) -> Visit {
        let Self { raw, ports, stack, sessions, counters, now, .. } = self;
        // Whoever comes first gets what a full port takes in a turn.
        let gives_way = counters.turns.read() % 2 == 1;
        let to = &mut Outward { attached: ports, stack, counters, now_ns: now.0, gives_way };
        raw.serve(slot, to, sessions)
    }

    /// A program rings. A ring that waits is looked at in its turn.
    pub(crate) fn on_raw_doorbell(&mut self, slot: u32) {
        if !self.raw.waits(slot) {
            self.serve_raw(slot);
        }
    }

    /// Looks at the rings whose ports were full, or which hold more than one visit takes. Who was first is
    /// the last in the next turn.
    pub(crate) fn retry_raw(&mut self) {
        for _ in 0..self.raw.count_waiting() {
            let Some(slot) = self.raw.take_waiting() else { return };
            self.serve_raw(slot);
        }
        self.raw.rotate_waiting();
    }

    /// An endpoint is closed: what was pushed is sent as far as the ports take it.
    pub(crate) fn end_raw(&mut self, place: u32, slot: u32) {
        let is_breached = self.sessions.peek(place).is_some_and(|session| session.breach.is_some());
        for _ in 0..LAST_VISITS_MAX {
            if is_breached || self.serve_raw(slot) != Visit::More {
                break;
            }
        }
        let session = self.sessions.peek(place).map(|session| session.key);
        let seed = self.raw.remove(slot);
        seed.iter().for_each(|seed| self.release_taken(seed));
        if let (Some(seed), Some(session)) = (seed, session) {
            // Unmapping takes its time: the control thread's.
            let RawSeed { rings, ports, .. } = seed;
            let ports = ports.len();
            self.answers.push(Answer::RawClosed { session, rings, ports });
        }
        self.counters.raw_endpoints.set(self.raw.count() as u64);
    }

    /// The interfaces of ports are gone: endpoints without any other port are informed.
    pub(crate) fn tell_raw_of_lost_ports(&mut self) {
        let Self { raw, ports, sessions, .. } = self;
        let is_lost = |port: usize| ports.get(port).is_none_or(|of| of.gone || of.port.is_gone());
        raw.each_lost(is_lost, |place, index| {
            let endpoint = sessions.at(place).and_then(|one| one.endpoints.get_mut(index as usize));
            if let Some(endpoint) = endpoint {
                endpoint.view.set_status(Status::HANGUP, 0);
                sessions.note_news(place, index);
            }
        });
    }
}
