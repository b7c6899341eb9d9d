//! The end of endpoints and of associations.

use wire::message::DoneStatus;

use super::api::{EndpointId, Memory, MessageEvent, SendId, Status};
use super::ring::Control;
use super::slab::{AssociationId, IncomingId};
use super::{Bugs, Core};

impl<B: Bugs> Core<B> {
    /// Closes an endpoint to messages: its receives end with [`Status::Cancelled`], what is on its way
    /// to it fails. Its sends go on; [`MessageEvent::Closed`] tells that the last one has ended, and the
    /// handle with it.
    pub fn close(&mut self, now: u64, endpoint: EndpointId, memory: &mut dyn Memory) {
        if self.open_endpoint(endpoint).is_err() {
            return;
        }
        self.now = now;
        let it = &mut self.endpoints[endpoint];
        it.open = false;
        let (port, job) = (it.options.port, it.job);
        self.ports.remove(port);
        let job = &mut self.jobs[job as usize];
        job.endpoints -= 1;
        job.idle_since = now;
        for index in 0..self.incoming.slots() {
            if let Some(id) = self.incoming.at(index)
                && self.incoming[id].endpoint == endpoint
            {
                self.turn_away(id, memory);
            }
        }
        for index in 0..self.receives.slots() {
            if let Some(id) = self.receives.at(index)
                && self.receives[id].endpoint == endpoint
            {
                self.end_receive(id, None, Status::Cancelled);
            }
        }
        // They try again, and learn that the port is gone.
        self.invite(endpoint);
        self.endpoints[endpoint].cleared = true;
        self.close_if_done(endpoint);
    }

    /// Closes an endpoint, and gives up its sends: those that have begun end with
    /// [`Status::Aborted`], the others with [`Status::Cancelled`].
    pub fn abort(&mut self, now: u64, endpoint: EndpointId, memory: &mut dyn Memory) {
        self.close(now, endpoint, memory);
        for index in 0..self.sends.slots() {
            let Some(send) = self.sends.at(index) else { continue };
            let it = &self.sends[send];
            if it.endpoint != endpoint || it.given_up {
                continue;
            }
            match it.local {
                Some(message) => {
                    self.fail_incoming(message, Status::Aborted, memory);
                    self.end_send(send, Status::Aborted);
                }
                None if it.start.is_some() => self.give_up(send),
                None => self.end_send(send, Status::Cancelled),
            }
        }
    }

    pub(super) fn close_if_done(&mut self, endpoint: EndpointId) {
        if self.endpoints.get(endpoint).is_some_and(|it| it.cleared && it.sends == 0) {
            self.endpoints.remove(endpoint);
            self.events.push_back(MessageEvent::Closed { endpoint });
        }
    }

    /// Ends a message of an endpoint that closes.
    fn turn_away(&mut self, id: IncomingId, memory: &mut dyn Memory) {
        let incoming = &self.incoming[id];
        let (association, number, local) = (incoming.association, incoming.number, incoming.local);
        if let (Some(association), Some(number)) = (association, number) {
            let status = DoneStatus::Gone as u32;
            let done = Control::Done { message: number, status, whole: false };
            self.associations[association].control(done);
            self.touch(association);
        }
        self.fail_incoming(id, Status::Cancelled, memory);
        if let Some(send) = local {
            self.end_send(send, Status::Gone);
        }
    }

    /// Ends an association: fails its sends, and the messages that have not arrived in full.
    pub(super) fn end_association(
        &mut self,
        id: AssociationId,
        status: Status,
        memory: &mut dyn Memory,
    ) {
        let Some(association) = self.associations.remove(id) else { return };
        self.hosts[association.peer.host.index()].ended(association.peer.job);
        self.wheel.cancel(id.index);
        match status {
            Status::TimedOut => self.counters.ended_timeout += 1,
            _ => self.counters.ended_reset += 1,
        }
        for index in 0..self.incoming.slots() {
            let Some(message) = self.incoming.at(index) else { continue };
            let incoming = &self.incoming[message];
            if incoming.association != Some(id) {
                continue;
            }
            if incoming.prefix < incoming.length || incoming.early.is_some() {
                self.fail_incoming(message, status, memory);
            } else {
                let incoming = &mut self.incoming[message];
                incoming.association = None;
                incoming.number = None;
                incoming.needs_done = false;
            }
        }
        for index in 0..self.sends.slots() {
            let Some(send) = self.sends.at(index) else { continue };
            if self.sends[send].association == Some(id) {
                self.end_send(send, status);
            }
        }
    }

    /// Ends everything of a job whose time is over.
    pub(super) fn forget_job(&mut self, job: u32) {
        // Its number is another job's from now on.
        self.resets.retain(|reset| reset.job != job);
        let peers = std::mem::take(&mut self.jobs[job as usize].peers);
        self.remembered -= peers.len();
        let ended: Vec<AssociationId> =
            self.associations.iter().filter(|(_, it)| it.peer.job == job).map(|it| it.0).collect();
        for id in ended {
            let sends: Vec<SendId> = self
                .sends
                .iter()
                .filter(|(_, it)| it.association == Some(id))
                .map(|it| it.0)
                .collect();
            for send in sends {
                self.end_send(send, Status::TimedOut);
            }
            if let Some(association) = self.associations.remove(id) {
                self.hosts[association.peer.host.index()].ended(job);
                self.wheel.cancel(id.index);
            }
        }
    }
}
