//! Messages between endpoints of this engine: through the same matching, without frames.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::api::{Address, Host, Memory, MessageEvent, PayloadPlace, SendId, Status};
use super::matching::Key;
use super::receive::Incoming;
use super::slab::IncomingId;
use super::{Bugs, Core};
use super::{EAGER_MAX, WHOLE_MAX};

/// Bytes of local messages that are copied at one time; what is left is copied later, so that a long
/// message does not hold everything else up.
const STEP_BYTES: u32 = 1 << 20;

/// How far local messages may be copied now.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct LocalSteps {
    /// The time that `left` is for.
    at: u64,
    left: u32,
    /// Messages that have been copied in part.
    cut: VecDeque<IncomingId>,
}

impl LocalSteps {
    /// When the copying goes on.
    pub fn deadline(&self) -> Option<u64> {
        (!self.cut.is_empty()).then(|| self.at + 1)
    }

    /// Bytes of `wanted` that may be copied at `now`.
    fn take(&mut self, now: u64, wanted: u32) -> u32 {
        if now != self.at {
            (self.at, self.left) = (now, STEP_BYTES);
        }
        let granted = wanted.min(self.left);
        self.left -= granted;
        granted
    }
}

impl<B: Bugs> Core<B> {
    /// Goes on with local messages that have been copied in part.
    pub(super) fn resume_locally(&mut self, memory: &mut dyn Memory) {
        // Those that are cut again wait for the next time.
        for _ in 0..self.local.cut.len() {
            let Some(message) = self.local.cut.pop_front() else { return };
            // It may have ended meanwhile.
            if let Some(incoming) = self.incoming.get_mut(message) {
                incoming.cut = false;
                self.proceed_locally(message, memory);
            }
            if self.local.left == 0 && self.local.at == self.now {
                return;
            }
        }
    }

    pub(super) fn send_locally(&mut self, send: SendId, memory: &mut dyn Memory) {
        self.counters.local += 1;
        let it = &self.sends[send];
        let job = self.endpoints[it.endpoint].job;
        let endpoint = self.ports.get(it.to.port);
        let Some(endpoint) = endpoint.filter(|to| self.endpoints[*to].job == job) else {
            return self.end_send(send, Status::Gone);
        };
        let key = Key { source: Address { host: Host::LOCAL, port: it.source }, tag: it.tag };
        let message = self.incoming.insert(Incoming {
            endpoint,
            key,
            immediate: it.immediate,
            length: it.length,
            association: None,
            number: None,
            local: Some(send),
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
            needs_done: false,
            on_grant: false,
            granted: 0,
            prefix: 0,
            pieces: Vec::new(),
            counted: 0,
        });
        self.sends[send].local = Some(message);
        let receive = self.endpoints[endpoint].posted.receive_for(&key);
        match receive.and_then(|index| self.receives.at(index)) {
            Some(receive) => self.join(message, receive, memory),
            None => {
                self.list(message);
                self.keep_locally(message, send, memory);
            }
        }
    }

    /// Copies a short unexpected message, so that its send can end; without room it stays in the
    /// sender's memory.
    fn keep_locally(&mut self, message: IncomingId, send: SendId, memory: &mut dyn Memory) {
        let it = &self.sends[send];
        let (length, cookie) = (it.length, it.cookie);
        let incoming = &mut self.incoming[message];
        let endpoint = &mut self.endpoints[incoming.endpoint];
        let room = endpoint.kept + endpoint.reserved < endpoint.options.envelopes.max(1);
        if it.delivery || length > EAGER_MAX || !room {
            return;
        }
        if length <= WHOLE_MAX {
            memory.read(PayloadPlace::Send(cookie), 0, &mut incoming.small[..length as usize]);
            incoming.in_envelope = true;
        } else {
            let Some(buffer) = memory.reserve(incoming.endpoint, length) else { return };
            memory.copy(PayloadPlace::Send(cookie), PayloadPlace::Buffer(buffer), 0, length);
            incoming.buffer = Some(buffer);
        }
        incoming.kept = true;
        incoming.prefix = length;
        incoming.local = None;
        endpoint.kept += 1;
        self.end_send(send, Status::Ok);
    }

    /// Copies what can be copied of a matched local message.
    pub(super) fn proceed_locally(&mut self, message: IncomingId, memory: &mut dyn Memory) {
        let incoming = &self.incoming[message];
        let (Some(send), Some(receive)) = (incoming.local, incoming.receive) else { return };
        let Some(it) = self.sends.get(send) else { return };
        let to = &self.receives[receive];
        let from = incoming.prefix;
        let end = incoming.length.min(to.capacity);
        let mut up_to = end.min(it.available).min(to.window);
        let mut is_cut = false;
        if up_to > from
            && let Some(place) = to.cookie.map(PayloadPlace::Receive)
        {
            let granted = self.local.take(self.now, up_to - from);
            if granted < up_to - from {
                up_to = from + granted;
                is_cut = true;
            }
            if granted > 0 {
                memory.copy(PayloadPlace::Send(it.cookie), place, from, granted);
            }
        }
        let (endpoint, cookie, available) = (it.endpoint, it.cookie, it.available);
        let window = to.window.min(end);
        let truncated = incoming.length > to.capacity;
        let envelope = incoming.envelope();
        let incoming = &mut self.incoming[message];
        if is_cut && !std::mem::replace(&mut incoming.cut, true) {
            self.local.cut.push_back(message);
        }
        incoming.prefix = up_to.max(from);
        let prefix = incoming.prefix;
        if prefix >= end {
            let status = if truncated { Status::Truncated } else { Status::Ok };
            self.counters.received += 1;
            self.remove_incoming(message, memory);
            self.end_receive(receive, Some(envelope), status);
            return self.end_send(send, Status::Ok);
        }
        self.tell_part(receive, prefix);
        if available < window && self.sends[send].wanted < window {
            self.sends[send].wanted = window;
            self.events.push_back(MessageEvent::Wanted { endpoint, send, cookie, bytes: window });
        }
    }
}
