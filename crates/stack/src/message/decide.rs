//! What becomes of frames that bring messages. Every START is decided as it arrives.

use wire::message::{Body, DoneStatus, Received, flags};

use super::api::{
    Address, EndpointId, Envelope, Memory, PayloadPlace, ReceiveId, Status, Unexpected,
};
use super::association::Refusing;
use super::matching::Key;
use super::receive::{Incoming, Receive};
use super::ring::{Control, RECORDS};
use super::slab::{AssociationId, IncomingId};
use super::{Bugs, Core, EAGER_MAX, Planted, WHOLE_MAX};

/// Whether a frame counts as arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is acknowledged.
    Taken,
    /// It is not, and comes again.
    Dropped,
}

use Verdict::{Dropped, Taken};

/// Control frames that may wait for a record before what draws more of them is dropped, START and ABORT
/// of an unknown number: a host that acknowledges nothing cannot fill memory with its answers.
const BACKLOG_MAX: usize = 4 * RECORDS;

/// A START's fields.
struct Start<'a> {
    key: Key,
    destination: u16,
    number: Option<u32>,
    /// How answers name it.
    name: u32,
    length: u32,
    immediate: Option<u32>,
    rendezvous: bool,
    needs_done: bool,
    resume: bool,
    order: u64,
    payload: &'a [u8],
}

impl<B: Bugs> Core<B> {
    /// Decides a START.
    pub(super) fn on_start(
        &mut self,
        id: AssociationId,
        received: &Received<'_>,
        memory: &mut dyn Memory,
    ) -> Verdict {
        if self.associations[id].backlog.len() >= BACKLOG_MAX {
            self.counters.drop_no_record += 1;
            return Dropped;
        }
        let Some(start) = self.read_start(id, received) else {
            self.counters.drop_invalid += 1;
            return Dropped;
        };
        let job = self.associations[id].peer.job;
        let endpoint = self.ports.get(start.destination);
        let Some(endpoint) = endpoint.filter(|it| self.endpoints[*it].job == job) else {
            return self.answer_gone(id, &start, memory);
        };
        let it = &self.associations[id];
        let early = start.order != it.arrivals.next_order;
        let refusing = it.refusing.iter().find(|it| it.port == start.destination);
        if refusing.is_some_and(|it| start.order > it.order) && !start.resume {
            return self.refuse(id, endpoint, &start, memory);
        }
        let posted = &self.endpoints[endpoint].posted;
        let receive = if early && !self.bugs.has(Planted::MatchOnArrival) {
            None
        } else {
            posted.receive_for(&start.key)
        };
        if receive.is_none() && !self.has_envelope(id, endpoint, &start) {
            return self.refuse(id, endpoint, &start, memory);
        }
        let matched = receive.and_then(|index| self.receives.at(index));
        if let Some(receive) = matched
            && start.is_complete()
        {
            self.end_refusing(id, &start);
            self.place(id, receive, &start, memory);
            self.on_order(id, start.order, None, memory);
            return Taken;
        }
        let mut incoming = start.incoming(endpoint, id);
        let holds = matched.is_none() && !self.keep_payload(&mut incoming, &start, memory);
        if holds {
            let hold = Control::Hold {
                message: start.name,
                offset: 0,
                attempt: 1,
                refused: false,
                whole: false,
            };
            if !self.answer(id, hold) {
                return Dropped;
            }
            self.counters.held += 1;
            incoming.hold();
        } else {
            incoming.add(0, start.payload.len() as u32);
        }
        self.end_refusing(id, &start);
        let message = self.incoming.insert(incoming);
        if let Some(number) = start.number {
            self.associations[id].incoming.insert(number, message);
        }
        if let Some(receive) = matched {
            if let Some(cookie) = self.receives[receive].cookie {
                let bytes = start.payload.len().min(self.receives[receive].capacity as usize);
                memory.write(PayloadPlace::Receive(cookie), 0, &start.payload[..bytes]);
            }
            self.join(message, receive, memory);
        } else {
            self.keep(id, message, &start);
            self.incoming[message].early = Some(start.order);
            self.settle(message);
        }
        self.on_order(id, start.order, matched.is_none().then_some(message), memory);
        Taken
    }

    /// Gives a receive the message that its START brings whole.
    fn place(
        &mut self,
        id: AssociationId,
        receive: ReceiveId,
        start: &Start<'_>,
        memory: &mut dyn Memory,
    ) {
        let Receive { capacity, cookie, .. } = self.receives[receive];
        if let Some(cookie) = cookie {
            let bytes = start.payload.len().min(capacity as usize);
            memory.write(PayloadPlace::Receive(cookie), 0, &start.payload[..bytes]);
        }
        if let (Some(message), true) = (start.number, start.needs_done) {
            let status = DoneStatus::Placed as u32;
            self.associations[id].control(Control::Done { message, status, whole: false });
        }
        self.counters.received += 1;
        let status = if start.length > capacity { Status::Truncated } else { Status::Ok };
        self.end_receive(receive, Some(start.envelope()), status);
    }

    fn read_start<'a>(&self, id: AssociationId, received: &Received<'a>) -> Option<Start<'a>> {
        let it = self.associations.get(id)?;
        let Body::Start { source, destination, immediate, tag, number, length } =
            received.frame.body
        else {
            return None;
        };
        let bits = received.frame.flags;
        let has = |flag| bits & flag != 0;
        let order = it.arrivals.extend_order(received.frame.counter);
        let whole = has(flags::WHOLE);
        let rendezvous = has(flags::RENDEZVOUS);
        let number = (!whole).then_some(number);
        let known = number.is_some_and(|number| it.incoming.contains_key(&number));
        let eager = whole || rendezvous || length <= EAGER_MAX;
        let fits = received.payload.len() as u64 <= u64::from(length);
        let room = received.payload.len() as u32 <= EAGER_MAX;
        if known || !eager || !fits || !room || !it.arrivals.order_is_new(order) {
            return None;
        }
        let host = it.peer.host;
        Some(Start {
            key: Key {
                source: Address { host, port: source },
                tag: has(flags::TAGGED).then_some(tag),
            },
            destination,
            number,
            name: number.unwrap_or(received.frame.sequence),
            length,
            immediate: has(flags::DATA).then_some(immediate),
            rendezvous: rendezvous && !whole,
            needs_done: !whole && (rendezvous || has(flags::DELIVERY)),
            resume: has(flags::RESUME) && !self.bugs.has(Planted::ResumeIgnored),
            order,
            payload: received.payload,
        })
    }

    fn answer(&mut self, id: AssociationId, control: Control) -> bool {
        let answered = self.associations[id].answer(control);
        self.counters.drop_no_record += u64::from(!answered);
        answered
    }

    fn answer_gone(
        &mut self,
        id: AssociationId,
        start: &Start<'_>,
        memory: &mut dyn Memory,
    ) -> Verdict {
        let status = DoneStatus::Gone as u32;
        let done = Control::Done { message: start.name, status, whole: start.number.is_none() };
        if !self.answer(id, done) {
            return Dropped;
        }
        self.associations[id].refusing.retain(|it| it.port != start.destination);
        self.on_order(id, start.order, None, memory);
        Taken
    }

    fn refuse(
        &mut self,
        id: AssociationId,
        endpoint: EndpointId,
        start: &Start<'_>,
        memory: &mut dyn Memory,
    ) -> Verdict {
        let hold = Control::Hold {
            message: start.name,
            offset: 0,
            attempt: 0,
            refused: true,
            whole: start.number.is_none(),
        };
        if !self.answer(id, hold) {
            return Dropped;
        }
        self.counters.refused += 1;
        let it = &mut self.associations[id];
        match it.refusing.iter_mut().find(|it| it.port == start.destination) {
            Some(refusing) => {
                refusing.order =
                    if start.resume { start.order } else { refusing.order.min(start.order) };
                refusing.go_due |= start.resume;
            }
            None => it.refusing.push(Refusing {
                port: start.destination,
                order: start.order,
                go_due: true,
            }),
        }
        let refused = &mut self.endpoints[endpoint].refused;
        if !refused.contains(&id) {
            refused.push(id);
        }
        self.on_order(id, start.order, None, memory);
        Taken
    }

    /// An accepted RESUME ends the refusal.
    fn end_refusing(&mut self, id: AssociationId, start: &Start<'_>) {
        if start.resume {
            self.associations[id].refusing.retain(|it| it.port != start.destination);
        }
    }

    /// Whether there is an envelope for the message, and one for each starting frame that is
    /// missing before it.
    fn has_envelope(&self, id: AssociationId, endpoint: EndpointId, start: &Start<'_>) -> bool {
        let it = &self.endpoints[endpoint];
        if it.options.unexpected == Unexpected::Drop {
            return false;
        }
        let arrivals = &self.associations[id].arrivals;
        let promised = arrivals.early.range(start.order..).any(|(_, later)| {
            later
                .and_then(|later| self.incoming.get(later))
                .is_some_and(|it| it.endpoint == endpoint)
        });
        let most = it.options.envelopes.max(1);
        if promised {
            return it.kept < most;
        }
        let missing = match self.bugs.has(Planted::NoReservation) {
            true => 0,
            false => arrivals.missing_before(start.order),
        };
        it.kept + it.reserved + missing < most
    }

    /// Gives a message its envelope, out of those promised to it if there are.
    fn keep(&mut self, id: AssociationId, message: IncomingId, start: &Start<'_>) {
        let endpoint = self.incoming[message].endpoint;
        let missing = self.associations[id].arrivals.missing_before(start.order);
        let incoming = &mut self.incoming[message];
        incoming.kept = true;
        incoming.reserved = missing;
        self.endpoints[endpoint].kept += 1;
        self.endpoints[endpoint].reserved += missing;
    }

    /// Finds a place for the payload of an unexpected message; false if there is none.
    fn keep_payload(
        &mut self,
        incoming: &mut Incoming,
        start: &Start<'_>,
        memory: &mut dyn Memory,
    ) -> bool {
        let bytes = if start.rendezvous { start.payload.len() as u32 } else { start.length };
        if bytes <= WHOLE_MAX {
            // Of an eager message that is so short, all of it is here.
            if start.payload.len() as u32 != bytes {
                return false;
            }
            incoming.small[..start.payload.len()].copy_from_slice(start.payload);
            incoming.in_envelope = true;
            return true;
        }
        let Some(buffer) = memory.reserve(incoming.endpoint, bytes) else { return false };
        memory.write(PayloadPlace::Buffer(buffer), 0, start.payload);
        incoming.buffer = Some(buffer);
        true
    }

    /// Notes that a starting frame of this order has arrived, with a message that waits to be matched
    /// or without, and matches those whose turn it is.
    pub(super) fn on_order(
        &mut self,
        id: AssociationId,
        order: u64,
        message: Option<IncomingId>,
        memory: &mut dyn Memory,
    ) {
        let early = &mut self.associations[id].arrivals.early;
        if !early.is_empty() {
            // One frame less is missing before the later ones.
            for (_, later) in early.range(order + 1..) {
                let Some(later) = later.and_then(|later| self.incoming.get_mut(later)) else {
                    continue;
                };
                if later.reserved > 0 {
                    later.reserved -= 1;
                    self.endpoints[later.endpoint].reserved -= 1;
                }
            }
        }
        let arrivals = &mut self.associations[id].arrivals;
        if order == arrivals.next_order {
            // Nobody waits for its turn: the map, which allocates, is for those who do.
            arrivals.next_order += 1;
            if let Some(message) = message {
                self.match_in_order(message, memory);
            }
        } else {
            arrivals.early.insert(order, message);
        }
        loop {
            let arrivals = &mut self.associations[id].arrivals;
            let Some(message) = arrivals.early.remove(&arrivals.next_order) else { break };
            arrivals.next_order += 1;
            if let Some(message) = message.filter(|it| self.incoming.get(*it).is_some()) {
                self.match_in_order(message, memory);
            }
        }
    }

    /// Matches a message when all before it have been.
    fn match_in_order(&mut self, message: IncomingId, memory: &mut dyn Memory) {
        let Incoming { endpoint, key, .. } = self.incoming[message];
        self.incoming[message].early = None;
        let receive = self.endpoints[endpoint].posted.receive_for(&key);
        match receive.and_then(|index| self.receives.at(index)) {
            Some(receive) => {
                self.join(message, receive, memory);
                self.invite(endpoint);
            }
            None => self.list(message),
        }
    }

    /// Takes more payload of a message.
    pub(super) fn on_more(
        &mut self,
        id: AssociationId,
        sequence: u64,
        received: &Received<'_>,
        memory: &mut dyn Memory,
    ) -> Verdict {
        let Body::More { number, offset } = received.frame.body else { return Dropped };
        let it = &self.associations[id];
        let Some(&message) = it.incoming.get(&number) else {
            return self.without_message(id, sequence);
        };
        let incoming = &self.incoming[message];
        if received.frame.counter != incoming.attempt && !self.bugs.has(Planted::AttemptIgnored) {
            return Taken;
        }
        let end = u64::from(offset) + received.payload.len() as u64;
        let most = if incoming.on_grant { incoming.granted } else { incoming.length };
        if end > u64::from(most) || received.payload.is_empty() {
            self.counters.drop_invalid += 1;
            return Dropped;
        }
        if !self.incoming[message].add(offset, end as u32) {
            self.counters.drop_invalid += 1;
            return Dropped;
        }
        let incoming = &self.incoming[message];
        if let Some(buffer) = incoming.buffer {
            memory.write(PayloadPlace::Buffer(buffer), offset, received.payload);
        } else if let Some(receive) = incoming.receive.map(|receive| &self.receives[receive])
            && let Some(cookie) = receive.cookie
        {
            let bytes = receive.capacity.saturating_sub(offset).min(end as u32 - offset);
            if bytes > 0 {
                memory.write(
                    PayloadPlace::Receive(cookie),
                    offset,
                    &received.payload[..bytes as usize],
                );
            }
        }
        if incoming.receive.is_some() {
            self.proceed(message, memory);
        } else {
            self.settle(message);
        }
        Taken
    }

    /// Lets go of the number of an unmatched message that is complete.
    fn settle(&mut self, message: IncomingId) {
        let incoming = &mut self.incoming[message];
        if incoming.prefix < incoming.length || incoming.needs_done {
            return;
        }
        if let (Some(association), Some(number)) = (incoming.association, incoming.number.take()) {
            self.associations[association].incoming.remove(&number);
        }
    }

    /// A frame of a message that is not known: it has ended, unless its START may be missing.
    fn without_message(&mut self, id: AssociationId, sequence: u64) -> Verdict {
        let next = self.associations[id].arrivals.next;
        if next == sequence || self.bugs.has(Planted::EarlyAcknowledgement) {
            return Taken;
        }
        self.counters.drop_early += 1;
        Dropped
    }

    /// Ends a message that its sender gave up.
    pub(super) fn on_abort(
        &mut self,
        id: AssociationId,
        sequence: u64,
        number: u32,
        memory: &mut dyn Memory,
    ) -> Verdict {
        let message = self.associations[id].incoming.get(&number).copied();
        if message.is_none() && self.without_message(id, sequence) == Dropped {
            return Dropped;
        }
        if let Some(message) = message {
            self.fail_incoming(message, Status::Aborted, memory);
        } else if self.associations[id].backlog.len() >= BACKLOG_MAX {
            self.counters.drop_no_record += 1;
            return Dropped;
        }
        let status = DoneStatus::Aborted as u32;
        if !self.bugs.has(Planted::AbortUnanswered) {
            self.associations[id].control(Control::Done { message: number, status, whole: false });
        }
        Taken
    }

    /// Ends a message that does not arrive in full, and its receive.
    pub(super) fn fail_incoming(
        &mut self,
        message: IncomingId,
        status: Status,
        memory: &mut dyn Memory,
    ) {
        let receive = self.incoming[message].receive;
        let envelope = self.incoming[message].envelope();
        self.remove_incoming(message, memory);
        if let Some(receive) = receive {
            self.end_receive(receive, Some(envelope), status);
        }
    }

    /// Answers an operation on memory, which this version does not serve.
    pub(super) fn on_remote(
        &mut self,
        id: AssociationId,
        received: &Received<'_>,
        memory: &mut dyn Memory,
    ) -> Verdict {
        let (Body::Read(remote) | Body::Write(remote) | Body::Atomic { remote, .. }) =
            received.frame.body
        else {
            return Dropped;
        };
        let order = self.associations[id].arrivals.extend_order(received.frame.counter);
        if !self.associations[id].arrivals.order_is_new(order) {
            self.counters.drop_invalid += 1;
            return Dropped;
        }
        let status = DoneStatus::Unsupported as u32;
        if !self.answer(id, Control::Done { message: remote.number, status, whole: false }) {
            return Dropped;
        }
        self.counters.unsupported += 1;
        self.on_order(id, order, None, memory);
        Taken
    }
}

impl Start<'_> {
    fn is_complete(&self) -> bool {
        self.payload.len() == self.length as usize
    }

    fn envelope(&self) -> Envelope {
        Envelope {
            source: self.key.source,
            tag: self.key.tag,
            immediate: self.immediate,
            length: self.length,
        }
    }

    fn incoming(&self, endpoint: EndpointId, association: AssociationId) -> Incoming {
        Incoming {
            endpoint,
            key: self.key,
            immediate: self.immediate,
            length: self.length,
            association: Some(association),
            number: self.number,
            local: None,
            receive: None,
            node: None,
            claimed: false,
            cut: false,
            early: None,
            reserved: 0,
            kept: false,
            small: [0; WHOLE_MAX as usize],
            in_envelope: false,
            buffer: None,
            attempt: 0,
            needs_done: self.needs_done,
            on_grant: self.rendezvous,
            granted: if self.rendezvous { self.payload.len() as u32 } else { 0 },
            prefix: 0,
            pieces: Vec::new(),
            counted: 0,
        }
    }
}

impl Incoming {
    /// Its payload stays with the sender until it is granted.
    fn hold(&mut self) {
        self.attempt = 1;
        self.needs_done = true;
        self.on_grant = true;
        self.granted = 0;
    }
}
