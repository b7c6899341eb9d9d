//! The service's part in a worker's turn.

use port::Claim;
use rustix::io::Errno;
use stack::message::{EndpointId, JobKey, MessageError};

use super::frames::PacketTx;
use super::{MessageEndpoint, Messages, OpenError};
use crate::control::authority::Refusal;
use crate::control::exchange::{ContextKey, Shown};
use crate::endpoint::Role;
use crate::worker::{Activity, Worker};

fn refusal(errno: Errno, reason: String) -> Refusal {
    Refusal { errno: errno.raw_os_error(), reason }
}

impl Worker {
    /// Calls `work` with the service and what it needs; does nothing if there is no service.
    fn with_messages<R: Default>(&mut self, work: impl FnOnce(&mut Messages, &mut Self) -> R) -> R {
        let Some(mut messages) = self.sessions.messages.take() else { return R::default() };
        let result = work(&mut messages, self);
        self.sessions.messages = Some(messages);
        result
    }

    /// Opens a message endpoint with the number of a checked socket.
    pub(crate) fn bind_messages(
        &mut self,
        ContextKey { session, context }: ContextKey,
        shown: Shown,
        key: Option<JobKey>,
        incarnation: u64,
    ) -> Result<u32, Refusal> {
        let address = shown.local.address;
        let place = self.place_of(session)?;
        self.refuse_at_end()?;
        if !self.stack.routes().is_own(address.ip()) {
            return Err(refusal(
                Errno::ADDRNOTAVAIL,
                format!("{address} is not an address of the engine; bind to one that is"),
            ));
        }
        if self.sessions.messages.is_none() {
            self.start_messages(incarnation)?;
        }
        let index = self.grant_endpoint(place, context)?;
        let now = self.now.0;
        let opened = match &mut self.sessions.messages {
            Some(messages) => messages.open(now, (place, index), address, key),
            None => Err(OpenError::Core(MessageError::UnknownEndpoint)),
        };
        match opened {
            Ok(id) => {
                let (commands, taken, has_completions) = (0, false, false);
                let role = MessageEndpoint { id, commands, taken, has_completions };
                self.set_role(place, index, Role::Messages(role));
                self.note_shown(place, index, shown.key);
                Ok(index)
            }
            Err(error) => {
                self.free_endpoint(place, index);
                Err(refused(error, address))
            }
        }
    }

    fn start_messages(&mut self, incarnation: u64) -> Result<(), Refusal> {
        let settings = self.limits.messages;
        let all = std::net::SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, settings.port));
        let messages =
            Messages::new(&mut self.stack, settings, incarnation).map_err(|e| refused(e, all))?;
        let ethertype = Claim::EtherType(settings.ethertype);
        let mut claimed = self.claim(ethertype);
        if claimed.is_ok() {
            claimed = self.claim_local(all.into(), Claim::Udp);
            if claimed.is_err() {
                self.release_claim(ethertype);
            }
        }
        if let Err(error) = claimed {
            self.stop_messages(messages);
            return Err(refusal(
                Errno::NOBUFS,
                format!("the XDP program has no room for more ports: {error}"),
            ));
        }
        self.sessions.messages = Some(Box::new(messages));
        Ok(())
    }

    fn stop_messages(&mut self, messages: Messages) {
        let _ = self.stack.udp_close(self.now, messages.socket);
    }

    /// A client's endpoint rang.
    pub(crate) fn serve_messages(&mut self, place: u32, index: u32) {
        let now = self.now.0;
        self.with_messages(|messages, worker| {
            let Worker { stack, sessions, .. } = worker;
            messages.serve(stack, sessions, now, (place, index));
            messages.take_events(sessions, now);
        });
        self.forget_drained();
    }

    /// Serves the last commands of an endpoint that is about to be closed.
    pub(crate) fn serve_last_messages(&mut self, place: u32, index: u32) {
        let slots = self
            .sessions
            .peek(place)
            .map_or(0, |session| session.region.geometry().send_slots as usize);
        let now = self.now.0;
        self.with_messages(|messages, worker| {
            let Worker { stack, sessions, .. } = worker;
            // Bounded, because a client may keep pushing.
            for _ in 0..=slots / 64 {
                if !messages.serve(stack, sessions, now, (place, index)) {
                    break;
                }
            }
        });
    }

    /// A message endpoint is closed by its client.
    pub(crate) fn end_messages(&mut self, id: EndpointId, abort: bool) {
        let now = self.now.0;
        self.with_messages(|messages, worker| {
            messages.close(&mut worker.sessions, now, id, abort);
        });
    }

    /// Removes sessions that were kept only for their messages.
    pub(crate) fn forget_drained(&mut self) {
        let finished = match &mut self.sessions.messages {
            Some(messages) if !messages.finished.is_empty() => {
                std::mem::take(&mut messages.finished)
            }
            _ => return,
        };
        for place in finished {
            self.forget_if_done(place);
        }
    }

    /// Continues with endpoints that have pending work.
    pub(crate) fn retry_messages(&mut self, activity: &mut Activity) {
        if self.sessions.messages.as_ref().is_some_and(|messages| messages.is_blocked()) {
            let now = self.now.0;
            activity.more |= self.with_messages(|messages, worker| {
                let Worker { stack, sessions, .. } = worker;
                messages.retry(stack, sessions, now)
            });
        }
    }

    /// Runs the service's timers.
    pub(crate) fn run_message_timers(&mut self, activity: &mut Activity) {
        let now = self.now.0;
        let due = |messages: &Messages| messages.next_deadline().is_some_and(|at| at <= now);
        if self.sessions.messages.as_ref().is_some_and(|messages| due(messages)) {
            activity.timers = true;
            self.with_messages(|messages, worker| {
                messages.on_timers(&mut worker.sessions, now);
            });
        }
    }

    /// Processes the core's events.
    pub(crate) fn take_message_events(&mut self, activity: &mut Activity) {
        if self.sessions.messages.is_none() {
            return;
        }
        let now = self.now.0;
        let any =
            self.with_messages(|messages, worker| messages.take_events(&mut worker.sessions, now));
        activity.served += usize::from(any);
        self.forget_drained();
    }

    /// Sends the frames of messages.
    pub(crate) fn send_messages(&mut self, activity: &mut Activity) {
        if self.sessions.messages.is_none() {
            return;
        }
        let (now, limit) = (self.now, self.limits.transmits_per_turn);
        let (sent, is_held) = self.with_messages(|messages, worker| {
            let Worker { ports, stack, sessions, raw, .. } = worker;
            messages.transmit(&mut PacketTx { ports, stack, raw, now }, sessions, limit)
        });
        activity.sent += sent;
        activity.more |= is_held || sent == limit;
    }
}

fn refused(error: OpenError, address: std::net::SocketAddr) -> Refusal {
    match error {
        OpenError::Core(error) => {
            let errno = match error {
                MessageError::PortInUse => Errno::ADDRINUSE,
                MessageError::JobCollision => Errno::EXIST,
                _ => Errno::NOBUFS,
            };
            refusal(errno, format!("no message endpoint at {address}: {error}"))
        }
        OpenError::Port(errno, number) => refusal(
            errno,
            format!(
                "UDP port {number}, which carries messages between hosts, cannot be used: {errno}; \
                 choose another one ([messages] port) on all hosts"
            ),
        ),
    }
}
