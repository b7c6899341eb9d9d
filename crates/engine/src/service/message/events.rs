//! Delivery of the core's events to clients.

use rustix::io::Errno;
use shm::message::{CompletionKind, Entry, Flags, NO_TICKET, announced_max};
use stack::message::{Address, EndpointId, Envelope, Host, MessageEvent, Status};

use super::Messages;
use super::endpoint::{Target, completion};
use super::placed::{Completion, Failure, Placed};
use super::space::Part;
use super::tables::{ReceiveOp, Room};
use crate::sessions::Sessions;

impl Messages {
    /// Processes all events. `true`: there were some.
    pub fn take_events(&mut self, sessions: &mut Sessions, now: u64) -> bool {
        let mut any = false;
        while let Some(event) = self.core.poll_event() {
            any = true;
            // Events for unknown operations are done.
            let _ = self.on_event(sessions, now, event);
        }
        any
    }

    fn on_event(&mut self, sessions: &mut Sessions, now: u64, event: MessageEvent) -> Option<()> {
        match event {
            MessageEvent::Sent { endpoint, cookie, status } => {
                let op = self.end_send(sessions, cookie as usize)?;
                let (ticket, placed) = (op.ticket, op.placed);
                if op.is_admitted {
                    for waiting in std::mem::take(&mut self.wants) {
                        let _ = self.admit(sessions, waiting);
                    }
                }
                let port = self.tables.port(endpoint)?;
                port.sends = port.sends.saturating_sub(1);
                port.set_target(ticket, Target::Free);
                match errno_of(status) {
                    None if op.is_injected => {}
                    None => {
                        let told = completion(CompletionKind::Sent, ticket);
                        let end = Completion { told, part: None };
                        self.tell_end(sessions, endpoint, placed, end)?;
                    }
                    Some(errno) => {
                        let ticket = if op.is_injected { NO_TICKET } else { ticket };
                        self.refuse(sessions, endpoint, placed, Failure { ticket, errno })?;
                    }
                }
            }
            MessageEvent::Received { cookie, envelope, status, .. } => {
                let op = self.tables.receives.try_remove(cookie as usize)?;
                self.on_received(sessions, op, envelope, status)?;
            }
            MessageEvent::Part { endpoint, cookie, bytes, .. } => {
                self.on_part(sessions, endpoint, cookie, bytes)?;
                self.extend_windows_of(sessions, now, endpoint, cookie as usize);
            }
            MessageEvent::Wanted { endpoint, cookie, bytes, .. } => {
                self.tables.sends.get_mut(cookie as usize)?.wanted = bytes;
                self.tables.port(endpoint)?;
                if !self.wants.contains(&(cookie as usize)) {
                    self.admit(sessions, cookie as usize)?;
                }
            }
            MessageEvent::Arrived { endpoint } => {
                let port = self.tables.port(endpoint)?;
                port.arrived += 1;
                let (arrived, at) = (port.arrived, port.at?);
                let session = sessions.at(at.place)?;
                let of = session.endpoints.get_mut(at.index as usize)?;
                of.view.set_urgent(arrived, None);
                if let crate::endpoint::Role::Messages(messages) = &mut of.role {
                    messages.has_completions = true;
                }
                sessions.note_news(at.place, at.index);
            }
            MessageEvent::Closed { endpoint } => {
                let port = self.tables.ports.get_mut(endpoint.index())?;
                let place = port.as_ref().filter(|port| port.id == endpoint)?.place;
                let closed = port.take()?;
                self.counts.spilled += closed.spilled;
                let number = closed.address.port();
                if self.tables.by_number.get(&number) == Some(&endpoint) {
                    self.tables.by_number.remove(&number);
                }
                let session = sessions.at(place)?;
                session.draining_messages = session.draining_messages.saturating_sub(1);
                self.finished.push(place);
            }
        }
        Some(())
    }

    /// Requests the bytes of an announced message from the client, once the session's memory has
    /// room for the whole message: two messages with half of the memory each would wait forever.
    fn admit(&mut self, sessions: &mut Sessions, cookie: usize) -> Option<()> {
        let op = self.tables.sends.get_mut(cookie)?;
        let (endpoint, ticket, wanted) = (op.endpoint, op.ticket, op.wanted);
        let place = self.tables.ports.get(endpoint.index())?.as_ref()?.place;
        let session = sessions.at(place)?;
        if !op.is_admitted {
            let all = session.announced_bytes + u64::from(op.length);
            if all > announced_max(session.region.geometry()) {
                self.wants.push_back(cookie);
                return None;
            }
            session.announced_bytes = all;
            op.is_admitted = true;
        }
        let mut told = completion(CompletionKind::Wanted, ticket);
        told.offset = u64::from(wanted);
        self.tables.port(endpoint)?.tell(sessions, told, None);
        Some(())
    }

    /// Hands over the first `bytes` of a receive that have not been handed over.
    fn on_part(
        &mut self,
        sessions: &mut Sessions,
        id: EndpointId,
        cookie: u64,
        bytes: u32,
    ) -> Option<()> {
        let op = self.tables.receives.get_mut(cookie as usize)?;
        let (from, ticket) = (op.told, op.ticket);
        op.told = bytes.min(op.capacity);
        op.waits = Some(bytes);
        let mut parts = Vec::new();
        let place = self.tables.ports.get(id.index())?.as_ref()?.place;
        let page_bytes = sessions.peek(place)?.region.geometry().buffer_bytes;
        if let Room::Space(space) = &mut op.room {
            space.take(page_bytes, from, op.told, |at, part| parts.push((at, part)));
        }
        let port = self.tables.port(id)?;
        for (at, part) in parts {
            let mut told = completion(CompletionKind::Part, ticket);
            told.offset = u64::from(at);
            port.tell(sessions, told, Some(part));
        }
        Some(())
    }

    fn on_received(
        &mut self,
        sessions: &mut Sessions,
        op: ReceiveOp,
        envelope: Option<Envelope>,
        status: Status,
    ) -> Option<()> {
        let id = op.endpoint;
        self.close_window(sessions, &op);
        let place = self.tables.port(id)?.place;
        let session = sessions.at(place)?;
        let page_bytes = session.region.geometry().buffer_bytes;
        let is_open = self.tables.port(id)?.at.is_some();
        let arrived = match (status, &envelope) {
            (Status::Ok | Status::Truncated, Some(envelope)) if is_open => {
                envelope.length.min(op.capacity)
            }
            _ => 0,
        };
        // Most messages have one part, for which nothing is allocated.
        let (mut first, mut others) = (None, Vec::new());
        let mut placed = Placed::default();
        match op.room {
            Room::Space(mut space) => {
                if arrived > op.told {
                    space.take(page_bytes, op.told, arrived, |at, part| match first {
                        None => first = Some((at, part)),
                        Some(_) => others.push((at, part)),
                    });
                }
                space.release(session);
            }
            Room::Placed(of) => placed = of,
        }
        let port = self.tables.port(id)?;
        port.set_target(op.ticket, Target::Free);
        // One part that is the whole goes with the completion.
        let whole = if others.is_empty() && op.told == 0 { first.take() } else { None };
        for (at, part) in first.into_iter().chain(others) {
            let mut told = completion(CompletionKind::Part, op.ticket);
            told.offset = u64::from(at);
            port.tell(sessions, told, Some(part));
        }
        let errno = errno_of(status);
        let kind = match errno {
            None => CompletionKind::Received,
            Some(_) => CompletionKind::Failed,
        };
        let mut told = completion(kind, op.ticket);
        told.other = errno.map_or(0, |errno| errno.raw_os_error() as u64);
        if let Some(envelope) = &envelope {
            told = self.describe(id, told, envelope);
        }
        let part: Option<Part> = whole.map(|(_, part)| part);
        self.tell_end(sessions, id, placed, Completion { told, part })
    }

    /// Adds the details of a message to an entry for a client.
    pub fn describe(&mut self, id: EndpointId, mut told: Entry, of: &Envelope) -> Entry {
        told.flags |= Flags::MESSAGE;
        told.flags.set(Flags::TAGGED, of.tag.is_some());
        told.flags.set(Flags::IMMEDIATE, of.immediate.is_some());
        told.tag = of.tag.unwrap_or(0);
        told.immediate = of.immediate.unwrap_or(0);
        told.length = u64::from(of.length);
        let Address { host, port } = of.source;
        let ip = match host {
            Host::LOCAL => self.local_address(id, port),
            host => self.hosts.path(host).map(|path| path.remote),
        };
        if let Some(ip) = ip {
            told.peer = std::net::SocketAddr::new(ip, port);
        }
        told
    }

    /// The address of a local endpoint by its number while it is open; otherwise that of the
    /// requesting one.
    fn local_address(&mut self, asks: EndpointId, number: u16) -> Option<std::net::IpAddr> {
        let id = self.tables.by_number.get(&number).copied().unwrap_or(asks);
        self.tables.port(id).map(|port| port.address.ip())
    }
}

/// The errno for a status; `None` for success.
fn errno_of(status: Status) -> Option<Errno> {
    Some(match status {
        Status::Ok => return None,
        Status::Truncated => Errno::MSGSIZE,
        Status::Cancelled => Errno::CANCELED,
        Status::Gone => Errno::CONNREFUSED,
        Status::Reset => Errno::CONNRESET,
        Status::TimedOut => Errno::TIMEDOUT,
        Status::Aborted => Errno::CONNABORTED,
        Status::Denied => Errno::ACCESS,
        Status::Unsupported => Errno::OPNOTSUPP,
    })
}
