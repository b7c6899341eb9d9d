//! Receives, messages on their way in, and how one comes to the other.

use super::api::{
    EndpointId, Envelope, Memory, MessageError, MessageEvent, PayloadPlace, ReceiveId,
    ReceiveRequest, Selector, SendId, Status,
};
use super::matching::Key;
use super::ring::Control;
use super::slab::{AssociationId, IncomingId};
use super::{Bugs, Core, Planted};
use super::{EAGER_MAX, WHOLE_MAX};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Receive {
    pub endpoint: EndpointId,
    pub capacity: u32,
    pub window: u32,
    /// None: the message is discarded, and nobody is told.
    pub cookie: Option<u64>,
    /// Where it waits for a message.
    pub node: Option<u32>,
    /// Its message.
    pub message: Option<IncomingId>,
    /// Bytes that [`MessageEvent::Part`] has told of.
    pub told: u32,
}

/// Where a receive's bytes go.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceiveWindow {
    pub capacity: u32,
    pub window: u32,
    /// None: the message is discarded.
    pub cookie: Option<u64>,
}

/// A message on its way in, or unexpected.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Incoming {
    pub endpoint: EndpointId,
    pub key: Key,
    pub immediate: Option<u32>,
    pub length: u32,
    /// Where its frames come from, and its number there while they may come.
    pub association: Option<AssociationId>,
    pub number: Option<u32>,
    /// The local send whose memory it lies in.
    pub local: Option<SendId>,
    pub receive: Option<ReceiveId>,
    /// Where it waits for a receive.
    pub node: Option<u32>,
    pub claimed: bool,
    /// It is local, has been copied in part, and is in the list of those.
    pub cut: bool,
    /// Its order, while starting frames before it are missing.
    pub early: Option<u64>,
    /// Envelopes promised to those, and whether it has one itself.
    pub reserved: u32,
    pub kept: bool,
    /// Payload of the START in the envelope.
    #[serde(with = "super::export::small")]
    pub small: [u8; WHOLE_MAX as usize],
    pub in_envelope: bool,
    pub buffer: Option<u64>,
    pub attempt: u16,
    /// The sender waits for DONE.
    pub needs_done: bool,
    /// Payload behind the first `granted` bytes comes when it is granted.
    pub on_grant: bool,
    pub granted: u32,
    /// Bytes that have arrived without a gap, and pieces behind that.
    pub prefix: u32,
    pub pieces: Vec<(u32, u32)>,
    /// Bytes counted in `Core::granted`.
    pub counted: u32,
}

impl Incoming {
    pub fn envelope(&self) -> Envelope {
        Envelope {
            source: self.key.source,
            tag: self.key.tag,
            immediate: self.immediate,
            length: self.length,
        }
    }

    /// Notes bytes as arrived; false if some of them had.
    pub fn add(&mut self, from: u32, to: u32) -> bool {
        if from < self.prefix {
            return false;
        }
        if from == self.prefix && self.pieces.is_empty() {
            self.prefix = to;
            return true;
        }
        let at = self.pieces.partition_point(|piece| piece.0 < from);
        let after_previous = at == 0 || self.pieces[at - 1].1 <= from;
        let before_next = self.pieces.get(at).is_none_or(|next| to <= next.0);
        if !after_previous || !before_next {
            return false;
        }
        self.pieces.insert(at, (from, to));
        let joined = self.pieces.iter().take_while(|piece| {
            let joins = piece.0 == self.prefix;
            self.prefix = if joins { piece.1 } else { self.prefix };
            joins
        });
        let joined = joined.count();
        self.pieces.drain(..joined);
        true
    }
}

impl<B: Bugs> Core<B> {
    /// Posts a receive. An unexpected message that it takes is received at once.
    ///
    /// # Errors
    /// [`MessageError::UnknownEndpoint`], [`MessageError::UnknownHost`], [`MessageError::TooMany`],
    /// [`MessageError::Length`].
    pub fn receive(
        &mut self,
        now: u64,
        endpoint: EndpointId,
        request: ReceiveRequest,
        memory: &mut dyn Memory,
    ) -> Result<ReceiveId, MessageError> {
        self.now = now;
        let ReceiveRequest { selector, capacity, window, cookie } = request;
        if selector.source.is_some_and(|source| !self.has_host(source.host)) {
            return Err(MessageError::UnknownHost);
        }
        let memory_of = ReceiveWindow { capacity, window, cookie: Some(cookie) };
        let id = self.new_receive(endpoint, memory_of)?;
        let found = self.endpoints[endpoint].unexpected.message_for(&selector);
        match found.and_then(|found| self.incoming.at(found)) {
            Some(message) => {
                self.unlist(message);
                self.join(message, id, memory);
            }
            None => self.post(id, selector),
        }
        self.invite(endpoint);
        Ok(id)
    }

    fn new_receive(
        &mut self,
        endpoint: EndpointId,
        request: ReceiveWindow,
    ) -> Result<ReceiveId, MessageError> {
        let ReceiveWindow { capacity, window, cookie } = request;
        let most = self.open_endpoint(endpoint)?.options.operations;
        if window < capacity.min(EAGER_MAX) {
            return Err(MessageError::Length);
        }
        if self.endpoints[endpoint].receives >= most && cookie.is_some() {
            return Err(MessageError::TooMany);
        }
        self.endpoints[endpoint].receives += 1;
        let window = window.min(capacity);
        Ok(self.receives.insert(Receive {
            endpoint,
            capacity,
            window,
            cookie,
            node: None,
            message: None,
            told: 0,
        }))
    }

    fn post(&mut self, id: ReceiveId, selector: Selector) {
        let endpoint = self.receives[id].endpoint;
        let node = self.endpoints[endpoint].posted.post(id.index, selector);
        self.receives[id].node = Some(node);
    }

    pub(super) fn post_claimed(
        &mut self,
        message: IncomingId,
        request: ReceiveWindow,
        memory: &mut dyn Memory,
    ) -> Result<ReceiveId, MessageError> {
        let endpoint = self.incoming[message].endpoint;
        let id = self.new_receive(endpoint, request)?;
        self.incoming[message].claimed = false;
        self.join(message, id, memory);
        self.invite(endpoint);
        Ok(id)
    }

    /// Lets a receive's memory be written up to `window`, after the caller has taken out what was
    /// there. Offsets go on counting from the start of the message.
    ///
    /// # Errors
    /// [`MessageError::UnknownOperation`]; [`MessageError::Length`]: it goes back.
    pub fn extend(
        &mut self,
        now: u64,
        receive: ReceiveId,
        window: u32,
        memory: &mut dyn Memory,
    ) -> Result<(), MessageError> {
        self.now = now;
        let it = self.receives.get_mut(receive).ok_or(MessageError::UnknownOperation)?;
        if window < it.window {
            return Err(MessageError::Length);
        }
        it.window = window.min(it.capacity);
        if let Some(message) = it.message {
            self.proceed(message, memory);
        }
        Ok(())
    }

    /// Cancels a receive that has no message: [`MessageEvent::Received`] follows with
    /// [`Status::Cancelled`]. False: it has one, or has ended.
    pub fn cancel_receive(&mut self, receive: ReceiveId) -> bool {
        let waits = self.receives.get(receive).is_some_and(|it| it.node.is_some());
        if waits {
            self.end_receive(receive, None, Status::Cancelled);
        }
        waits
    }

    /// Gives a receive its message.
    pub(super) fn join(
        &mut self,
        message: IncomingId,
        receive: ReceiveId,
        memory: &mut dyn Memory,
    ) {
        self.unpost(receive);
        self.receives[receive].message = Some(message);
        self.unkeep(message);
        self.incoming[message].receive = Some(receive);
        self.proceed(message, memory);
    }

    /// Moves a matched message on as far as it goes: out of its envelope or buffer, towards more of
    /// its data, to its end.
    pub(super) fn proceed(&mut self, id: IncomingId, memory: &mut dyn Memory) {
        if self.incoming[id].local.is_some() {
            return self.proceed_locally(id, memory);
        }
        let incoming = &self.incoming[id];
        let Some(receive) = incoming.receive else { return };
        let Receive { capacity, cookie, .. } = self.receives[receive];
        let end = incoming.length.min(capacity);
        let arrived = incoming.prefix >= incoming.length;
        if incoming.on_grant || arrived {
            let place = cookie.map(PayloadPlace::Receive);
            let bytes = incoming.prefix.min(capacity);
            if let Some(buffer) = incoming.buffer {
                if let Some(place) = place.filter(|_| bytes > 0) {
                    memory.copy(PayloadPlace::Buffer(buffer), place, 0, bytes);
                }
                self.incoming[id].buffer = None;
                memory.release(buffer);
            } else if incoming.in_envelope {
                if let Some(place) = place.filter(|_| bytes > 0) {
                    memory.write(place, 0, &incoming.small[..bytes as usize]);
                }
                self.incoming[id].in_envelope = false;
            }
        }
        let incoming = &self.incoming[id];
        if arrived || (incoming.on_grant && incoming.prefix >= end) {
            let status = if incoming.length > capacity { Status::Truncated } else { Status::Ok };
            return self.finish(id, status, memory);
        }
        if incoming.on_grant {
            self.tell_part(receive, incoming.prefix);
            self.grant(id);
        }
    }

    /// Tells of bytes that fill a receive's window.
    pub(super) fn tell_part(&mut self, receive: ReceiveId, prefix: u32) {
        let it = &mut self.receives[receive];
        if let Some(cookie) = it.cookie
            && prefix >= it.window
            && prefix > it.told
        {
            it.told = prefix;
            let endpoint = it.endpoint;
            self.events.push_back(MessageEvent::Part { endpoint, receive, cookie, bytes: prefix });
        }
    }

    /// Ends a matched message and its receive.
    pub(super) fn finish(&mut self, id: IncomingId, status: Status, memory: &mut dyn Memory) {
        let incoming = &self.incoming[id];
        let (envelope, receive) = (incoming.envelope(), incoming.receive);
        if let (Some(association), Some(number), true) =
            (incoming.association, incoming.number, incoming.needs_done)
        {
            let status = wire::message::DoneStatus::Placed as u32;
            let done = Control::Done { message: number, status, whole: false };
            if let Some(it) = self.associations.get_mut(association) {
                it.control(done);
            }
            self.touch(association);
        }
        self.counters.received += 1;
        self.remove_incoming(id, memory);
        if let Some(receive) = receive {
            self.end_receive(receive, Some(envelope), status);
        }
    }

    /// Ends a receive; its message, if it had one, has been removed.
    pub(super) fn end_receive(
        &mut self,
        receive: ReceiveId,
        envelope: Option<Envelope>,
        status: Status,
    ) {
        self.unpost(receive);
        let Some(it) = self.receives.remove(receive) else { return };
        let endpoint = it.endpoint;
        self.endpoints[endpoint].receives -= 1;
        if let Some(cookie) = it.cookie {
            self.events.push_back(MessageEvent::Received { endpoint, cookie, envelope, status });
        }
    }

    fn unpost(&mut self, receive: ReceiveId) {
        let it = &mut self.receives[receive];
        if let Some(node) = it.node.take() {
            let endpoint = it.endpoint;
            self.endpoints[endpoint].posted.remove(node);
        }
    }

    /// Lists a message as unexpected.
    pub(super) fn list(&mut self, id: IncomingId) {
        let Incoming { endpoint, key, .. } = self.incoming[id];
        let node = self.endpoints[endpoint].unexpected.arrive(id.index, key);
        self.incoming[id].node = Some(node);
        self.counters.unexpected += 1;
        self.events.push_back(MessageEvent::Arrived { endpoint });
    }

    pub(super) fn unlist(&mut self, id: IncomingId) {
        let incoming = &mut self.incoming[id];
        if let Some(node) = incoming.node.take() {
            let endpoint = incoming.endpoint;
            self.endpoints[endpoint].unexpected.remove(node);
        }
    }

    /// Gives back the message's envelope and the promised ones.
    pub(super) fn unkeep(&mut self, id: IncomingId) {
        let incoming = &mut self.incoming[id];
        let endpoint = incoming.endpoint;
        let kept = u32::from(std::mem::take(&mut incoming.kept));
        let reserved = std::mem::take(&mut incoming.reserved);
        self.endpoints[endpoint].kept -= kept;
        self.endpoints[endpoint].reserved -= reserved;
    }

    /// Forgets a message: frees its envelope, buffer and number. Its receive and send are the caller's.
    pub(super) fn remove_incoming(&mut self, id: IncomingId, memory: &mut dyn Memory) {
        self.unlist(id);
        let kept = self.incoming[id].kept;
        self.unkeep(id);
        let Some(incoming) = self.incoming.remove(id) else { return };
        if let Some(buffer) = incoming.buffer {
            memory.release(buffer);
        }
        if let (Some(association), Some(number)) = (incoming.association, incoming.number)
            && let Some(it) = self.associations.get_mut(association)
        {
            it.incoming.remove(&number);
        }
        if !self.bugs.has(Planted::GrantLeak) {
            self.granted -= u64::from(incoming.counted);
        }
        if kept {
            self.invite(incoming.endpoint);
        }
    }

    /// Tells hosts whose messages an endpoint refused that it has become able to take some.
    pub(super) fn invite(&mut self, endpoint: EndpointId) {
        if self.endpoints[endpoint].refused.is_empty() {
            return;
        }
        let port = self.endpoints[endpoint].options.port;
        let refused = std::mem::take(&mut self.endpoints[endpoint].refused);
        for association in refused {
            let Some(it) = self.associations.get_mut(association) else { continue };
            let due = it.refusing.iter_mut().find(|it| it.port == port && it.go_due);
            if let Some(refusing) = due {
                refusing.go_due = false;
                it.control(Control::Go { port });
                self.touch(association);
            }
        }
    }
}
