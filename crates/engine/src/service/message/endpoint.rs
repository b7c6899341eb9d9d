//! Private state of a message endpoint: its client's tickets, and the completions queued for it.

use std::collections::VecDeque;
use std::net::SocketAddr;

use shm::descriptor::Span;
use shm::message::{CompletionKind, ENTRY_BYTES, Entry, NO_TICKET, OPERATIONS_MAX};
use stack::message::{ClaimId, EndpointId, ReceiveId, SendId};

use super::space::{Page, Part};
use crate::endpoint::{Endpoint, Role};
use crate::session::{Breach, Session};
use crate::sessions::Sessions;

/// Buffers in an endpoint's reserve: one for bytes of a message, one for entries.
const RESERVE: usize = 2;
/// Entries start at multiples of this.
const ALIGN: u32 = 64;

/// The operation that a client's ticket refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// Nothing.
    Free,
    /// A send, by its index in the table.
    Send(u32, SendId),
    /// A receive, by its index in the table.
    Receive(u32, ReceiveId),
    /// A claimed message.
    Claim(ClaimId),
}

#[derive(Clone, Copy, Debug)]
struct TicketPlace {
    generation: u32,
    target: Target,
}

/// The location of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At {
    /// The session.
    pub place: u32,
    /// The endpoint.
    pub index: u32,
}

/// An endpoint.
pub(super) struct Port {
    /// Its number in the core.
    pub id: EndpointId,
    /// The session with the memory of its sends.
    pub place: u32,
    /// Its endpoint; `None` once that is closed.
    pub at: Option<At>,
    /// The address by which peers know it.
    pub address: SocketAddr,
    /// Sends in progress.
    pub sends: u32,
    /// Spans of an incomplete command, with their buffers.
    pub partial: Vec<(Span, u32)>,
    /// Buffers used by unexpected messages.
    pub kept: u32,
    /// Number of unexpected messages so far.
    pub arrived: u64,
    /// Pages without a free buffer, not yet counted.
    pub spilled: u64,

    /// In the list of endpoints with pending work.
    pub is_blocked: bool,
    /// Receives whose windows wait until the client has read, by cookie; some have ended.
    pub windows: Vec<usize>,
    tickets: Vec<TicketPlace>,
    /// The buffer for small entries, and its fill level; this is one of its users.
    open: Option<(u32, u32)>,
    /// Buffers reserved for the next report to the client: it must not wait for a buffer behind
    /// later data, which may hold all others.
    reserve: Vec<u32>,
    /// Buffers of the descriptors that the client may not have read.
    pushed: VecDeque<u32>,
    /// Descriptors that the client has read.
    consumed: u64,
    /// Entries without room in the queue.
    pending: VecDeque<(Entry, Option<Part>)>,
}

impl Port {
    /// Creates an endpoint.
    pub fn new(id: EndpointId, at: At, address: SocketAddr) -> Self {
        Self {
            id,
            place: at.place,
            at: Some(at),
            address,
            sends: 0,
            partial: Vec::new(),
            kept: 0,
            arrived: 0,
            spilled: 0,
            is_blocked: false,
            windows: Vec::new(),
            tickets: Vec::new(),
            open: None,
            reserve: Vec::new(),
            pushed: VecDeque::new(),
            consumed: 0,
            pending: VecDeque::new(),
        }
    }

    /// Whether a client may start an operation with this ticket.
    pub fn is_free(&self, ticket: u64) -> bool {
        let index = ticket as u32;
        let is_used = |of: &TicketPlace| of.target != Target::Free;
        index < OPERATIONS_MAX && !self.tickets.get(index as usize).is_some_and(is_used)
    }

    /// The operation of a ticket.
    pub fn target(&self, ticket: u64) -> Target {
        match self.tickets.get(ticket as u32 as usize) {
            Some(place) if place.generation == (ticket >> 32) as u32 => place.target,
            _ => Target::Free,
        }
    }

    /// Sets the operation of a ticket.
    pub fn set_target(&mut self, ticket: u64, target: Target) {
        let (index, generation) = (ticket as u32, (ticket >> 32) as u32);
        if ticket == NO_TICKET || index >= OPERATIONS_MAX {
            return;
        }
        let len = self.tickets.len().max(index as usize + 1);
        self.tickets.resize(len, TicketPlace { generation: 0, target: Target::Free });
        if let Some(place) = self.tickets.get_mut(index as usize) {
            *place = TicketPlace { generation, target };
        }
    }

    /// Sends that have not ended and can be named, by their places in the table.
    pub fn sends(&self) -> impl Iterator<Item = u32> + '_ {
        self.tickets.iter().filter_map(|place| match place.target {
            Target::Send(cookie, _) => Some(cookie),
            _ => None,
        })
    }

    /// Claims that were neither received nor dropped.
    pub fn claims(&self) -> impl Iterator<Item = ClaimId> + '_ {
        self.tickets.iter().filter_map(|place| match place.target {
            Target::Claim(claim) => Some(claim),
            _ => None,
        })
    }

    /// Whether the client has reached its limit of unread completions, so that its commands wait.
    pub fn is_full(&self) -> bool {
        self.pending.len() >= OPERATIONS_MAX as usize
    }

    /// Whether the client's queue accepts entries now.
    pub fn flows(&self) -> bool {
        self.pending.is_empty()
    }

    /// Takes part of a buffer that is shared with others; the caller becomes one of its users.
    pub fn carve(&mut self, session: &mut Session, bytes: u32) -> Option<(u32, Span)> {
        self.carve_by(session, bytes, Self::buffer)
    }

    fn carve_by(
        &mut self,
        session: &mut Session,
        bytes: u32,
        buffer: impl FnOnce(&mut Self, &mut Session) -> Option<u32>,
    ) -> Option<(u32, Span)> {
        let buffer_bytes = session.region.geometry().buffer_bytes;
        if bytes > buffer_bytes {
            return None;
        }
        let (buffer, fill) = match self.open {
            Some((buffer, fill)) if fill + bytes <= buffer_bytes => (buffer, fill),
            _ => {
                if let Some((full, _)) = self.open.take() {
                    session.pool.unshare(full);
                }
                (buffer(self, session)?, 0)
            }
        };
        self.open = Some((buffer, (fill + bytes).next_multiple_of(ALIGN)));
        session.pool.share(buffer);
        Some((buffer, session.region.buffer(buffer)?.part(fill, bytes)))
    }

    /// Takes a buffer, with the caller as its user, after filling the reserve.
    pub fn buffer(&mut self, session: &mut Session) -> Option<u32> {
        if self.fill_reserve(session)
            && let Some(buffer) = session.pool.take_shared()
        {
            return Some(buffer);
        }
        self.learn_consumed(session);
        if self.fill_reserve(session) { session.pool.take_shared() } else { None }
    }

    /// The same for the next report to the client: from the reserve if there is no other.
    fn buffer_to_tell(&mut self, session: &mut Session) -> Option<u32> {
        self.buffer(session).or_else(|| self.reserve.pop())
    }

    fn fill_reserve(&mut self, session: &mut Session) -> bool {
        while self.reserve.len() < RESERVE {
            let Some(buffer) = session.pool.take_shared() else { return false };
            self.reserve.push(buffer);
        }
        true
    }

    /// Reports to the client, now or when its queue has room.
    pub fn tell(&mut self, sessions: &mut Sessions, entry: Entry, part: Option<Part>) {
        self.pending.push_back((entry, part));
        if self.pending.len() == 1 {
            self.flush(sessions);
        }
    }

    /// Pushes waiting entries to the client as far as there is room.
    pub fn flush(&mut self, sessions: &mut Sessions) {
        let Some(At { place, index }) = self.at else { return };
        let Some(session) = sessions.at(place) else { return };
        let before = self.pending.len();
        while let Some((entry, part)) = self.pending.pop_front() {
            if let Err(part) = self.push(session, index, &entry, part) {
                self.pending.push_front((entry, part));
                break;
            }
        }
        let Some(endpoint) = session.endpoints.get_mut(index as usize) else { return };
        if !self.pending.is_empty() {
            // The next doorbell comes when the client has read anything; if it has already, the
            // next turn finds that.
            endpoint.view.set_wanted(self.consumed + 1);
        }
        if self.pending.len() < before {
            endpoint.view.set_readable(endpoint.view.received());
            if let Role::Messages(messages) = &mut endpoint.role {
                messages.has_completions = true;
            }
            sessions.note_news(place, index);
        }
    }

    /// Pushes an entry into the client's queue; returns the part if there is no room.
    fn push(
        &mut self,
        session: &mut Session,
        index: u32,
        entry: &Entry,
        part: Option<Part>,
    ) -> Result<(), Option<Part>> {
        let slots = u64::from(session.region.geometry().receive_slots);
        let needed = if matches!(part, Some(Part::Page { .. })) { 2 } else { 1 };
        let has_room = |port: &Self| port.pushed.len() as u64 + needed <= slots;
        if !has_room(self) {
            self.learn_consumed(session);
            if !has_room(self) {
                return Err(part);
            }
        }
        let part = match part {
            Some(Part::Page { page: Page::Private(private), start, len }) => {
                let whole = self.buffer_to_tell(session);
                let whole = whole.and_then(|b| Some((b, session.region.buffer(b)?)));
                let Some((buffer, whole)) = whole else {
                    return Err(Some(Part::Page { page: Page::Private(private), start, len }));
                };
                session.region.write_buffer(whole, &private.bytes);
                Some(Part::Page { page: Page::Buffer(buffer), start, len })
            }
            part => part,
        };
        let (buffer, span) = match &part {
            Some(Part::Head(head)) => (head.buffer, head.span),
            _ => match self.carve_by(session, ENTRY_BYTES as u32, Self::buffer_to_tell) {
                Some(carved) => carved,
                None => return Err(part),
            },
        };
        session.region.write_buffer(span, &entry.encode());
        let page = match part {
            Some(Part::Page { page: Page::Buffer(buffer), start, len }) => {
                session.region.buffer(buffer).map(|whole| (buffer, whole.part(start, len)))
            }
            _ => None,
        };
        let Some(endpoint) = session.endpoints.get_mut(index as usize) else { return Ok(()) };
        endpoint.view.push_datagram(span, page.is_some());
        self.pushed.push_back(buffer);
        if let Some((buffer, span)) = page {
            endpoint.view.push_datagram(span, false);
            self.pushed.push_back(buffer);
        }
        Ok(())
    }

    /// Reads how much the client has consumed, and takes the buffers back.
    fn learn_consumed(&mut self, session: &mut Session) {
        let Some(At { index, .. }) = self.at else { return };
        let Some(Endpoint { view, .. }) = session.endpoints.get_mut(index as usize) else { return };
        match view.consumed(self.consumed, view.received()) {
            Ok(consumed) => {
                for _ in self.consumed..consumed {
                    if let Some(buffer) = self.pushed.pop_front() {
                        session.pool.unshare(buffer);
                    }
                }
                self.consumed = consumed;
            }
            Err(found) => session.breached(Breach::Contract(found)),
        }
    }

    /// The endpoint is closed: buffers for the client return.
    pub fn close(&mut self, session: &mut Session) {
        self.at = None;
        for (_, buffer) in self.partial.drain(..) {
            session.pool.drop_span(buffer);
        }
        if let Some((buffer, _)) = self.open.take() {
            session.pool.unshare(buffer);
        }
        for buffer in self.pushed.drain(..).chain(self.reserve.drain(..)) {
            session.pool.unshare(buffer);
        }
        for (_, part) in self.pending.drain(..) {
            match part {
                Some(Part::Head(head)) => session.pool.unshare(head.buffer),
                Some(Part::Page { page: Page::Buffer(buffer), .. }) => session.pool.unshare(buffer),
                _ => {}
            }
        }
    }
}

/// A completion entry.
pub(super) fn completion(kind: CompletionKind, ticket: u64) -> Entry {
    Entry { ticket, ..Entry::new(kind as u8) }
}
