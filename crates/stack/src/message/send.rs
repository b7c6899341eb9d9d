//! Messages on their way out, and ports that refused some.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

use wire::message::DoneStatus;

use super::api::{
    Address, EndpointId, Host, Memory, MessageError, MessageEvent, SendId, SendRequest, Status,
};
use super::association::{Mark, Peer};
use super::ring::{Content, Control, Decision};
use super::slab::{AssociationId, IncomingId};
use super::{Bugs, Core, EAGER_MAX, WHOLE_MAX};

/// A refused message is tried again after so long without GO, doubling.
const RESUME_NS: u64 = 1_000_000;
const RESUME_DOUBLINGS: u32 = 8;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Send {
    pub endpoint: EndpointId,
    pub source: u16,
    pub to: Address,
    pub tag: Option<u64>,
    pub immediate: Option<u32>,
    pub length: u32,
    pub available: u32,
    pub delivery: bool,
    pub cookie: u64,
    /// None: a local one.
    pub association: Option<AssociationId>,
    /// The local message that lies in its memory.
    pub local: Option<IncomingId>,
    /// Sequence and order of its START.
    pub start: Option<u64>,
    pub order: u64,
    /// The order of its first START: its place among refused messages.
    pub rank: u64,
    pub number: Option<u32>,
    pub attempt: u16,
    /// Bytes sent, and bytes that may be.
    pub sent: u32,
    pub limit: u32,
    /// A grant of an attempt whose HOLD has not come.
    pub early_grant: Option<(u16, u32)>,
    /// Frames of MORE that are not acknowledged.
    pub outstanding: u32,
    pub decided: bool,
    pub needs_done: bool,
    /// The first one after refusals.
    pub resume: bool,
    pub active: bool,
    /// Bytes that [`MessageEvent::Wanted`] has asked for.
    pub wanted: u32,
    /// Its end has been reported; it waits for the answer to ABORT.
    pub given_up: bool,
}

impl Send {
    pub fn is_whole(&self) -> bool {
        self.length <= WHOLE_MAX && !self.delivery
    }

    pub fn is_rendezvous(&self) -> bool {
        self.length > EAGER_MAX
    }

    /// Whether a frame can be made of it now.
    pub fn has_data(&self) -> bool {
        self.sent < self.limit.min(self.available) && !self.given_up
    }
}

impl<B: Bugs> Core<B> {
    /// Sends a message. [`MessageEvent::Sent`] tells its end.
    ///
    /// # Errors
    /// [`MessageError::UnknownEndpoint`], [`MessageError::UnknownHost`], [`MessageError::NoKey`],
    /// [`MessageError::TooMany`], [`MessageError::TooManyPeers`], [`MessageError::Length`].
    pub fn send(
        &mut self,
        now: u64,
        endpoint: EndpointId,
        request: SendRequest,
        memory: &mut dyn Memory,
    ) -> Result<SendId, MessageError> {
        self.now = now;
        let it = self.open_endpoint(endpoint)?;
        if it.sends >= it.options.operations {
            return Err(MessageError::TooMany);
        }
        let SendRequest { to, tag, immediate, length, available, delivery, cookie } = request;
        if !self.has_host(to.host) {
            return Err(MessageError::UnknownHost);
        }
        let eager = length <= EAGER_MAX;
        if available > length || (eager && available != length) {
            return Err(MessageError::Length);
        }
        let (job, source, keyed) = (it.job, it.options.port, it.options.key.is_some());
        let local = to.host == Host::LOCAL;
        if !local && !keyed {
            return Err(MessageError::NoKey);
        }
        let association = match local {
            true => None,
            false => {
                let peer = Peer { host: to.host, job };
                Some(self.associate(peer).ok_or(MessageError::TooManyPeers)?)
            }
        };
        let send = self.sends.insert(Send {
            endpoint,
            source,
            to,
            tag,
            immediate,
            length,
            available,
            delivery,
            cookie,
            association,
            local: None,
            start: None,
            order: 0,
            rank: u64::MAX,
            number: None,
            attempt: 0,
            sent: 0,
            limit: 0,
            early_grant: None,
            outstanding: 0,
            decided: false,
            needs_done: delivery || !eager,
            resume: false,
            active: false,
            wanted: 0,
            given_up: false,
        });
        self.endpoints[endpoint].sends += 1;
        self.counters.sends += 1;
        match association {
            Some(association) => {
                self.associations[association].waiting.push_back(send);
                self.touch(association);
            }
            None => self.send_locally(send, memory),
        }
        Ok(send)
    }

    /// Says that more of a send's data is there: `available` bytes from the start.
    ///
    /// # Errors
    /// [`MessageError::UnknownOperation`]; [`MessageError::Length`]: it goes back, or beyond the
    /// message.
    pub fn feed(
        &mut self,
        now: u64,
        send: SendId,
        available: u32,
        memory: &mut dyn Memory,
    ) -> Result<(), MessageError> {
        self.now = now;
        let it = self.sends.get_mut(send).filter(|it| !it.given_up);
        let it = it.ok_or(MessageError::UnknownOperation)?;
        if available < it.available || available > it.length {
            return Err(MessageError::Length);
        }
        it.available = available;
        match (it.association, it.local) {
            (Some(_), _) => self.activate(send),
            (None, Some(message)) => self.proceed(message, memory),
            (None, None) => {}
        }
        Ok(())
    }

    /// Cancels a send that has not begun: [`MessageEvent::Sent`] follows with [`Status::Cancelled`]. False:
    /// it is on its way, or has ended.
    pub fn cancel_send(&mut self, send: SendId) -> bool {
        let waits = self
            .sends
            .get(send)
            .is_some_and(|it| it.start.is_none() && it.association.is_some() && !it.given_up);
        if waits {
            self.end_send(send, Status::Cancelled);
        }
        waits
    }

    /// Queues a message with data to send, and asks for data where it has none.
    pub(super) fn activate(&mut self, send: SendId) {
        let it = &mut self.sends[send];
        let Some(association) = it.association else { return };
        if it.start.is_none() || it.given_up {
            return;
        }
        if it.limit > it.available && it.limit > it.wanted {
            it.wanted = it.limit;
            let (endpoint, cookie, bytes) = (it.endpoint, it.cookie, it.limit);
            self.events.push_back(MessageEvent::Wanted { endpoint, send, cookie, bytes });
        }
        let it = &mut self.sends[send];
        if it.has_data() && !it.active {
            it.active = true;
            self.associations[association].active.push_back(send);
        }
        self.touch(association);
    }

    /// Ends a send, and tells its endpoint unless that has been done.
    pub(super) fn end_send(&mut self, send: SendId, status: Status) {
        let Some(it) = self.sends.get(send) else { return };
        if let Some(association) = it.association
            && let Some(association) = self.associations.get_mut(association)
        {
            if let Some(number) = it.number {
                association.numbers.free(number);
            }
            association.open_sends -= usize::from(it.start.is_some());
        }
        let (endpoint, cookie, given_up) = (it.endpoint, it.cookie, it.given_up);
        self.sends.release(send);
        if !given_up {
            self.report_sent(endpoint, cookie, status);
        }
    }

    pub(super) fn report_sent(&mut self, endpoint: EndpointId, cookie: u64, status: Status) {
        self.events.push_back(MessageEvent::Sent { endpoint, cookie, status });
        let it = &mut self.endpoints[endpoint];
        it.sends -= 1;
        if it.cleared {
            self.close_if_done(endpoint);
        }
    }

    /// Ends a send that nothing can come back for.
    pub(super) fn end_send_if_done(&mut self, send: SendId) {
        let Some(it) = self.sends.get(send) else { return };
        if !it.needs_done && it.decided && it.outstanding == 0 && it.sent == it.length {
            self.end_send(send, Status::Ok);
        }
    }

    /// The send that an answer names: by number, or by its START's sequence.
    fn answered_send(&self, id: AssociationId, message: u32, whole: bool) -> Option<SendId> {
        let it = &self.associations[id];
        if !whole {
            return it.numbers.get(message);
        }
        let sequence = it.ring.extend(message)?;
        let Content::Start { send, .. } = it.ring.get(sequence)?.content else { return None };
        let named = self.sends.get(send)?;
        (named.start == Some(sequence) && named.number.is_none()).then_some(send)
    }

    /// DONE: an operation has ended.
    pub(super) fn on_done(&mut self, id: AssociationId, message: u32, status: u32, whole: bool) {
        let Some(send) = self.answered_send(id, message, whole) else { return };
        let status = match DoneStatus::from_number(status) {
            Some(DoneStatus::Placed) => Status::Ok,
            Some(DoneStatus::Gone) => Status::Gone,
            Some(DoneStatus::Denied) => Status::Denied,
            Some(DoneStatus::Aborted) => Status::Aborted,
            Some(DoneStatus::Unsupported) | None => Status::Unsupported,
        };
        let port = self.sends[send].to.port;
        self.end_send(send, status);
        if status == Status::Gone {
            self.clear_mark(id, port, Some(Status::Gone));
        }
    }

    /// HOLD: payload was not kept, or the whole message was refused.
    pub(super) fn on_hold(&mut self, id: AssociationId, hold: Hold) {
        let Hold { message, offset, attempt, refused, whole } = hold;
        let Some(send) = self.answered_send(id, message, whole) else { return };
        if refused {
            return self.on_refused(id, send);
        }
        let it = &mut self.sends[send];
        if attempt <= it.attempt || offset > it.length || whole {
            self.counters.drop_invalid += 1;
            return;
        }
        it.attempt = attempt;
        it.needs_done = true;
        it.sent = offset;
        it.limit = offset;
        it.outstanding = 0;
        if let Some((granted_attempt, granted)) = it.early_grant.take()
            && granted_attempt == attempt
        {
            it.limit = granted.max(offset);
        }
        self.activate(send);
    }

    fn on_refused(&mut self, id: AssociationId, send: SendId) {
        let now = self.now;
        let it = &mut self.sends[send];
        let (port, rank, start) = (it.to.port, it.rank, it.start.take());
        let number = it.number.take();
        it.sent = 0;
        it.limit = 0;
        it.outstanding = 0;
        it.decided = false;
        it.resume = false;
        it.attempt = 0;
        let given_up = it.given_up;
        let association = &mut self.associations[id];
        if let Some(number) = number {
            association.numbers.free(number);
        }
        association.open_sends -= usize::from(start.is_some());
        // The record stays until it is acknowledged, but nothing more is decided by it.
        if let Some(start) = start
            && let Some(record) = association.ring.get_mut(start)
        {
            let waited = matches!(record.decision, Decision::Waiting(_));
            record.decision = Decision::Made;
            association.ring.undecided -= usize::from(waited);
        }
        let at = now + RESUME_NS;
        if association.mark(port).is_none() {
            let queue = VecDeque::new();
            association.marks.push(Mark { port, queue, go: false, at, backoff: 0, resuming: None });
        }
        let Some(mark) = association.mark(port) else { return };
        if mark.resuming.is_some() && mark.resuming == start {
            mark.resuming = None;
            mark.backoff = (mark.backoff + 1).min(RESUME_DOUBLINGS);
            mark.at = now + (RESUME_NS << mark.backoff);
            mark.go = false;
        }
        if given_up {
            self.end_send(send, Status::Aborted);
        } else {
            self.queue_behind_mark(id, send, rank);
        }
        self.touch(id);
    }

    /// Queues a message for a port that refuses, by rank.
    pub(super) fn queue_behind_mark(&mut self, id: AssociationId, send: SendId, rank: u64) {
        let port = self.sends[send].to.port;
        let sends = &self.sends;
        let Some(mark) = self.associations[id].mark(port) else { return };
        mark.queue.retain(|other| sends.get(*other).is_some());
        let at = mark.queue.iter().position(|other| sends[*other].rank > rank);
        mark.queue.insert(at.unwrap_or(mark.queue.len()), send);
    }

    /// GO: the port takes messages again.
    pub(super) fn on_go(&mut self, id: AssociationId, port: u16) {
        if let Some(mark) = self.associations[id].mark(port) {
            mark.go = true;
        }
        self.touch(id);
    }

    /// Ends a port's refusal. What is queued for it leaves, or fails with `status`.
    pub(super) fn clear_mark(&mut self, id: AssociationId, port: u16, status: Option<Status>) {
        let association = &mut self.associations[id];
        let Some(at) = association.marks.iter().position(|mark| mark.port == port) else { return };
        let mark = association.marks.swap_remove(at);
        match status {
            Some(status) => {
                for send in mark.queue {
                    self.end_send(send, status);
                }
            }
            None => {
                for send in mark.queue.into_iter().rev() {
                    association.waiting.push_front(send);
                }
            }
        }
        self.touch(id);
    }

    /// Takes the first message for a port that may be tried again out of its queue.
    pub(super) fn take_resumable(&mut self, id: AssociationId) -> Option<SendId> {
        for at in 0..self.associations[id].marks.len() {
            let association = &self.associations[id];
            let mark = &association.marks[at];
            let waits = mark.resuming.is_some() || mark.queue.is_empty();
            if waits || !(mark.go || self.now >= mark.at) || self.has_undecided(id, mark.port) {
                continue;
            }
            let mark = &mut self.associations[id].marks[at];
            while let Some(send) = mark.queue.pop_front() {
                if let Some(it) = self.sends.get_mut(send) {
                    it.resume = true;
                    return Some(send);
                }
            }
        }
        None
    }

    /// Whether a START to the port is under way that may be refused yet.
    fn has_undecided(&self, id: AssociationId, port: u16) -> bool {
        self.associations[id].ring.iter().any(|(_, record)| {
            matches!(record.content, Content::Start { port: to, .. } if to == port)
                && record.decision != Decision::Made
        })
    }

    /// GRANT: payload may leave.
    pub(super) fn on_grant(&mut self, id: AssociationId, number: u32, offset: u32, attempt: u16) {
        let Some(send) = self.associations[id].numbers.get(number) else { return };
        let it = &mut self.sends[send];
        if offset > it.length || !(it.is_rendezvous() || attempt > 0) {
            self.counters.drop_invalid += 1;
            return;
        }
        if attempt > it.attempt {
            let earlier = it.early_grant.filter(|(of, _)| *of >= attempt);
            it.early_grant = Some(earlier.map_or((attempt, offset), |(of, up_to)| {
                (of, if of == attempt { up_to.max(offset) } else { up_to })
            }));
            return;
        }
        if attempt == it.attempt && offset > it.limit {
            it.limit = offset;
            self.activate(send);
        }
    }

    /// A START is decided: nothing can come back that refuses it.
    pub(super) fn on_decided(&mut self, id: AssociationId, sequence: u64, send: SendId) {
        let Some(it) = self.sends.get_mut(send).filter(|it| it.start == Some(sequence)) else {
            if let Some(mark) =
                self.associations[id].marks.iter_mut().find(|it| it.resuming == Some(sequence))
            {
                mark.resuming = None;
            }
            return;
        };
        it.decided = true;
        let port = it.to.port;
        if self.associations[id].mark(port).is_some_and(|mark| mark.resuming == Some(sequence)) {
            self.counters.resumed += 1;
            self.clear_mark(id, port, None);
        }
        self.end_send_if_done(send);
    }

    /// Gives up a send that has begun: its receiver is told.
    pub(super) fn give_up(&mut self, send: SendId) {
        let it = &mut self.sends[send];
        let (endpoint, cookie) = (it.endpoint, it.cookie);
        match (it.association, it.number) {
            (Some(association), Some(number)) => {
                it.given_up = true;
                self.associations[association].control(Control::Abort { number });
                self.touch(association);
                self.report_sent(endpoint, cookie, Status::Aborted);
            }
            _ => self.end_send(send, Status::Aborted),
        }
    }
}

/// A HOLD's fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    /// Number, or sequence of the START if `whole`.
    pub message: u32,
    pub offset: u32,
    pub attempt: u16,
    /// The whole message was refused.
    pub refused: bool,
    pub whole: bool,
}
