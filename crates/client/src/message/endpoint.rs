//! A message endpoint: starts operations and reports their outcome.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::SocketType;
use shm::Status;
use shm::client_side::{Carved, Direction};
use shm::control::ToEngine;
use shm::descriptor::{DescriptorFlags, DescriptorKind, Span};
use shm::message::{
    CommandKind, CompletionKind, EAGER_MAX, ENTRY_BYTES, Entry, Flags, INJECT_MAX, MESSAGE_MAX,
    NO_TICKET, announced_max,
};
use shm::region::Region;

use super::operations::{Operation, OperationKind, Operations};
use super::peers::Peers;
use super::{Completion, INJECT_CONTEXT, Memory, Message, Outcome, Pattern, Peer, Send, Ticket};
use crate::driver::{locked, reentered};
use crate::endpoint::{Call, Endpoint as Base, Kind as BaseKind};
use crate::memory::Line;
use crate::native::kernel_socket;
use crate::open::RequestError;
use crate::session::Session;
use crate::stream::Place;

/// Bytes fed at a time.
const FEED_BYTES: u64 = 32 << 10;
/// Minimum length of a command's pieces, unless it is shorter.
const PIECE_MIN: u32 = 1024;
/// Dropped operations checked by a call.
const FORGOTTEN_LOOKS: usize = 8;
/// Free descriptors needed before a program is told that there is room.
const ROOM_SLOTS: u64 = 16;

/// A command for the engine that begins an operation.
pub(super) struct Command<'a> {
    /// What it says, but for the ticket.
    pub entry: Entry,
    /// Bytes of payload behind it.
    pub bytes: u32,
    /// Puts the payload into a span, from an offset on.
    pub fill: &'a mut dyn FnMut(&Region, Span, u32),
}

/// A number by which messages reach a program. Every call returns at once; clones are the same
/// endpoint, which is closed by [`Self::close`] or with the last of them. Calls of several threads
/// take turns.
#[derive(Clone, Debug)]
pub struct MessageEndpoint {
    base: Base,
    pub(super) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    address: SocketAddr,
    pub state: Mutex<State>,
    /// A call found no room since there was room last.
    wants_room: AtomicBool,
    /// Holds the port number; `None` in simulation.
    _kernel: Option<OwnedFd>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    operations: Operations,
    peers: Peers,
    /// Announced sends for which the engine wants more bytes than it has, in the order of its
    /// requests.
    feeding: VecDeque<u64>,
    /// Dropped operations with an outcome in a line.
    pub(super) forgotten: VecDeque<(Ticket, Line)>,
}

impl State {
    /// Ends some of the dropped operations with an outcome.
    fn end_forgotten(&mut self) {
        for _ in 0..self.forgotten.len().min(FORGOTTEN_LOOKS) {
            let Some((ticket, line)) = self.forgotten.pop_front() else { return };
            if line.is_told() {
                self.operations.end(ticket.0);
            } else {
                self.forgotten.push_back((ticket, line));
            }
        }
    }
}

/// An entry from the engine.
struct Arrived {
    entry: Entry,
    /// Location of the payload after the entry.
    payload: Payload,
}

/// At most two spans: the rest of the entry's own span, and a whole second one.
#[derive(Clone, Copy, Default)]
struct Payload([Span; 2]);

impl Payload {
    fn len(&self) -> u64 {
        self.0.iter().map(|span| u64::from(span.len)).sum()
    }

    /// Copies it to the program's memory: bytes `offset ..` of a receive's message.
    fn scatter(&self, region: &Region, memory: &mut dyn Memory, context: u64, mut offset: u64) {
        for span in self.0.iter().filter(|span| span.len > 0) {
            let mut done = 0;
            memory.scatter(context, offset, span.len as usize, &mut |room| {
                done += region.read_buffer(span.part(done, u32::MAX), room) as u32;
            });
            offset += u64::from(span.len);
        }
    }
}

impl MessageEndpoint {
    /// Opens an endpoint at `local`: an address of the engine, or the unspecified address for its
    /// first one, with a port number, or 0 for one chosen by the kernel. `key` is the job's:
    /// endpoints reach endpoints on other hosts with the same key, and without a key those of the
    /// same engine without one.
    ///
    /// # Errors
    /// If the kernel or the engine refuses the address, or the session was not attached for
    /// messages ([`Session::attach_messages`]).
    pub fn open(
        session: &Arc<Session>,
        local: SocketAddr,
        key: Option<[u8; 16]>,
    ) -> Result<Self, RequestError> {
        let mut local = local;
        if local.ip().is_unspecified() {
            // Peers know it by one address.
            local.set_ip(session.first_address(local.is_ipv6()).ok_or(Errno::ADDRNOTAVAIL)?);
        }
        let kernel = kernel_socket(local, SocketType::DGRAM)?;
        let (endpoints, granted) = session
            .ask(kernel.as_fd(), |serial| ToEngine::BindMessages { serial, context: 0, key })?;
        let base = session.granted(BaseKind::Messages, &endpoints, granted)?;
        Ok(Self::from_base(base, Some(kernel)))
    }

    pub(crate) fn from_base(base: Base, kernel: Option<OwnedFd>) -> Self {
        let shared = Shared {
            address: base.local(),
            state: Mutex::default(),
            wants_room: AtomicBool::new(false),
            _kernel: kernel,
        };
        Self { base, shared: Arc::new(shared) }
    }

    /// The address by which peers reach it.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// Its session.
    pub fn session(&self) -> &Arc<Session> {
        self.base.session()
    }

    /// The number for a peer's address; always the same for an address. `None` beyond a million.
    pub fn add_peer(&self, address: SocketAddr) -> Option<Peer> {
        locked(&self.shared.state).peers.add(address)
    }

    /// The address of a peer.
    pub fn peer_address(&self, peer: Peer) -> Option<SocketAddr> {
        locked(&self.shared.state).peers.address(peer)
    }

    /// Starts to send a message made of `parts`. Up to [`EAGER_MAX`] bytes are copied now; longer
    /// messages are gathered from `memory` by [`Self::poll_completion`] until the send completes.
    ///
    /// # Errors
    /// EAGAIN: no room now, see [`Self::wait`]. MSGSIZE: longer than [`Self::message_max`]. INVAL: no
    /// such peer.
    pub fn send(
        &self,
        peer: Peer,
        send: &Send,
        parts: &[IoSlice<'_>],
        context: u64,
    ) -> Result<Ticket, Errno> {
        let length: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let is_eager = length <= u64::from(EAGER_MAX);
        let kind = match is_eager {
            true => OperationKind::Send,
            false => OperationKind::Announced { length, wanted: 0, fed: 0, feeds: false },
        };
        let call = self.call()?;
        if length > announced_max(call.view().region().geometry()).min(MESSAGE_MAX) {
            return Err(Errno::MSGSIZE);
        }
        let mut state = locked(&self.shared.state);
        let entry = outgoing(&state, peer, send, length)?;
        let bytes = if is_eager { length as u32 } else { 0 };
        let operation = Operation { context, kind };
        let command = Command { entry, bytes, fill: &mut of_parts(parts) };
        self.begin(&call, &mut state, operation, command)
    }

    /// Sends a message of at most [`INJECT_MAX`] bytes, which is reported only if it fails.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn inject(&self, peer: Peer, send: &Send, bytes: &[u8]) -> Result<(), Errno> {
        if bytes.len() > INJECT_MAX as usize {
            return Err(Errno::MSGSIZE);
        }
        let call = self.call()?;
        let state = locked(&self.shared.state);
        let mut entry = outgoing(&state, peer, send, bytes.len() as u64)?;
        entry.flags |= Flags::INJECT;
        self.push(&call, &entry, bytes.len() as u32, &mut of_parts(&[IoSlice::new(bytes)]))
    }

    /// Starts to receive a message of at most `capacity` bytes.
    ///
    /// # Errors
    /// EAGAIN: no room now, see [`Self::wait`]. INVAL: no such peer.
    pub fn post_recv(&self, of: &Pattern, capacity: u64, context: u64) -> Result<Ticket, Errno> {
        self.look(CommandKind::Receive, of, OperationKind::Receive { capacity }, context)
    }

    /// Looks for an unexpected message: completes as [`Outcome::Peeked`], or fails with NOMSG.
    ///
    /// # Errors
    /// As [`Self::post_recv`].
    pub fn peek(&self, of: &Pattern, context: u64) -> Result<Ticket, Errno> {
        self.look(CommandKind::Peek, of, OperationKind::Probe, context)
    }

    /// Claims an unexpected message: completes as [`Outcome::Claimed`], or fails with NOMSG.
    ///
    /// # Errors
    /// As [`Self::post_recv`].
    pub fn claim(&self, of: &Pattern, context: u64) -> Result<Ticket, Errno> {
        self.look(CommandKind::Claim, of, OperationKind::Probe, context)
    }

    /// Receives a claimed message, by the ticket of the claim.
    ///
    /// # Errors
    /// INVAL: the ticket has no claimed message. Otherwise as [`Self::post_recv`].
    pub fn receive_claimed(
        &self,
        claim: Ticket,
        capacity: u64,
        context: u64,
    ) -> Result<Ticket, Errno> {
        let capacity = capacity.min(MESSAGE_MAX);
        self.on_claim(
            CommandKind::ReceiveClaimed,
            claim,
            OperationKind::Receive { capacity },
            context,
        )
    }

    /// Drops a claimed message, by the ticket of the claim.
    ///
    /// # Errors
    /// As [`Self::receive_claimed`].
    pub fn discard_claimed(&self, claim: Ticket, context: u64) -> Result<Ticket, Errno> {
        self.on_claim(CommandKind::DiscardClaimed, claim, OperationKind::Discard, context)
    }

    /// Cancels an operation. It completes in any case, with CANCELED if the cancel was in time.
    ///
    /// # Errors
    /// EAGAIN: no room now.
    pub fn cancel(&self, ticket: Ticket) -> Result<(), Errno> {
        let call = self.call()?;
        let mut state = locked(&self.shared.state);
        if state.operations.get(ticket.0).is_none() {
            return Ok(());
        }
        let entry = Entry { other: ticket.0, ..Entry::new(CommandKind::Cancel as u8) };
        self.push(&call, &entry, 0, &mut |_, _, _| {})
    }

    /// Moves payload of long messages and returns the next completion.
    ///
    /// # Errors
    /// CONNRESET: the engine is gone. BADF: the endpoint is closed, or has lost its port.
    pub fn poll_completion(&self, memory: &mut dyn Memory) -> Result<Option<Completion>, Errno> {
        let call = self.call()?;
        let mut state = locked(&self.shared.state);
        state.end_forgotten();
        let found = self.take(&call, &mut state, memory)?;
        self.feed(&call, &mut state, memory)?;
        if found.is_none() {
            let levels = call.view().levels();
            if levels.status.contains(Status::HANGUP) {
                return Err(Errno::BADF);
            }
            // Checks from time to time whether the engine is alive.
            if call.again() == Errno::CONNRESET {
                return Err(Errno::CONNRESET);
            }
        }
        Ok(found)
    }

    /// Maximum length of a message, bytes: half of the session's buffers.
    pub fn message_max(&self) -> u64 {
        let most = |call: Call<'_>| announced_max(call.view().region().geometry()).min(MESSAGE_MAX);
        self.call().map_or(0, most)
    }

    /// Number of unexpected messages so far: while it does not change, no probe can find a new one.
    pub fn unexpected(&self) -> u64 {
        self.call().map_or(0, |call| call.view().levels().urgent)
    }

    /// Whether [`Self::poll_completion`] has something to do, or there is room again after a call
    /// failed for lack of it.
    pub fn has_news(&self) -> bool {
        let Ok(call) = self.call() else { return true };
        let view = call.view();
        let levels = view.levels();
        levels.readable > view.consumed()
            || levels.status.contains(Status::HANGUP)
            || self.shared.wants_room.load(Ordering::Relaxed) && has_room(&call)
    }

    /// Waits until [`Self::has_news`] or `deadline` (`false`).
    ///
    /// # Errors
    /// CONNRESET: the engine is gone.
    pub fn wait(&self, deadline: Option<Instant>) -> Result<bool, Errno> {
        self.session().wait_until(deadline, || self.has_news())
    }

    /// Closes the endpoint. Injected and completed messages are still delivered; other operations
    /// fail at the peers.
    pub fn close(&self) {
        self.base.close();
    }

    pub(super) fn call(&self) -> Result<Call<'_>, Errno> {
        self.base.call_as(BaseKind::Messages)
    }

    fn look(
        &self,
        command: CommandKind,
        of: &Pattern,
        kind: OperationKind,
        context: u64,
    ) -> Result<Ticket, Errno> {
        let call = self.call()?;
        let mut state = locked(&self.shared.state);
        let mut entry = matching(&state, command, of)?;
        if let OperationKind::Receive { capacity } = kind {
            entry.length = capacity.min(MESSAGE_MAX);
        }
        let operation = Operation { context, kind };
        let command = Command { entry, bytes: 0, fill: &mut |_, _, _| {} };
        self.begin(&call, &mut state, operation, command)
    }

    fn on_claim(
        &self,
        command: CommandKind,
        claim: Ticket,
        kind: OperationKind,
        context: u64,
    ) -> Result<Ticket, Errno> {
        let call = self.call()?;
        let mut state = locked(&self.shared.state);
        match state.operations.get(claim.0) {
            Some(Operation { kind: OperationKind::Claimed, .. }) => {}
            _ => return Err(Errno::INVAL),
        }
        let mut entry = Entry { other: claim.0, ..Entry::new(command as u8) };
        if let OperationKind::Receive { capacity } = kind {
            entry.length = capacity;
        }
        let operation = Operation { context, kind };
        let command = Command { entry, bytes: 0, fill: &mut |_, _, _| {} };
        let ticket = self.begin(&call, &mut state, operation, command)?;
        state.operations.end(claim.0);
        Ok(ticket)
    }

    /// Notes an operation and pushes its command.
    pub(super) fn begin(
        &self,
        call: &Call<'_>,
        state: &mut State,
        operation: Operation,
        Command { entry, bytes, fill }: Command<'_>,
    ) -> Result<Ticket, Errno> {
        let ticket = state.operations.begin(operation).ok_or(Errno::AGAIN)?;
        let entry = Entry { ticket: ticket.0, ..entry };
        match self.push(call, &entry, bytes, fill) {
            Ok(()) => Ok(ticket),
            Err(errno) => {
                state.operations.end(ticket.0);
                Err(errno)
            }
        }
    }

    /// Pushes a command with `bytes` of payload, which `fill` writes into a span from an offset on.
    fn push(
        &self,
        call: &Call<'_>,
        entry: &Entry,
        bytes: u32,
        fill: &mut dyn FnMut(&Region, Span, u32),
    ) -> Result<(), Errno> {
        let view = call.view();
        let region = view.region();
        let driver = call.driver();
        let total = ENTRY_BYTES as u32 + bytes;
        let least = total.min(PIECE_MIN);
        let most = total / region.geometry().buffer_bytes + 4;
        let mut send = view.lock_send(driver.tag()).map_err(reentered)?;
        if send.room() < most {
            self.ask_for_room(call);
            if send.room() < most {
                return Err(call.again());
            }
        }
        let mut lane = driver.lane.lock(driver.tag()).map_err(reentered)?;
        if !lane.can_carve(total, least) {
            self.ask_for_room(call);
            if !lane.can_carve(total, least) {
                drop(lane);
                return Err(call.again());
            }
        }
        let mut done = 0;
        while done < total {
            let Some(Carved { span, last }) = lane.carve(total - done, least.min(total - done))
            else {
                // The stock was checked under this lock, so it cannot have shrunk.
                return Err(Errno::PROTO);
            };
            // A first piece is at least as long as an entry.
            let mut rest = span;
            if done == 0 && span.len > 0 {
                region.write_buffer(span, &entry.encode());
                rest = span.part(ENTRY_BYTES as u32, u32::MAX);
            }
            if rest.len > 0 {
                fill(region, rest, done.saturating_sub(ENTRY_BYTES as u32));
            }
            done += span.len;
            let mut flags = DescriptorFlags::empty();
            flags.set(DescriptorFlags::LAST, last);
            flags.set(DescriptorFlags::MORE, done < total && span.len > 0);
            send.push(DescriptorKind::Datagram, flags, span);
        }
        drop(lane);
        call.ring(Direction::Send);
        Ok(())
    }

    /// Requests a wakeup when there is room.
    fn ask_for_room(&self, call: &Call<'_>) {
        self.shared.wants_room.store(true, Ordering::Relaxed);
        self.session().starve(self.base.id());
        call.view().wish(|levels| Some(levels.acked + 1).filter(|_| !has_room(call)));
    }

    /// Takes entries until an operation has ended.
    fn take(
        &self,
        call: &Call<'_>,
        state: &mut State,
        memory: &mut dyn Memory,
    ) -> Result<Option<Completion>, Errno> {
        let view = call.view();
        let mut receive = view.lock_receive(call.driver().tag()).map_err(reentered)?;
        // Bounded by the size of the queue, whatever the engine pushes.
        for _ in 0..view.region().geometry().receive_slots {
            let (readable, position) = (receive.readable(), receive.consumed());
            if readable <= position {
                return Ok(None);
            }
            let (span, more) = receive.datagram(position).ok_or(Errno::PROTO)?;
            let mut bytes = [0; ENTRY_BYTES];
            if view.region().read_buffer(span, &mut bytes) < ENTRY_BYTES {
                return Err(Errno::PROTO);
            }
            let mut payload = Payload([span.part(ENTRY_BYTES as u32, u32::MAX), Span::default()]);
            let mut next = position + 1;
            if more {
                let (second, _) = receive.datagram(next).ok_or(Errno::PROTO)?;
                payload.0[1] = second;
                next += 1;
            }
            let arrived = Arrived { entry: Entry::decode(&bytes), payload };
            let ended = self.on_arrived(view.region(), state, &arrived, memory);
            if receive.advance(next) {
                call.ring(Direction::Receive);
            }
            if let Some(ended) = ended? {
                return Ok(Some(ended));
            }
        }
        Ok(None)
    }

    fn on_arrived(
        &self,
        region: &Region,
        state: &mut State,
        arrived: &Arrived,
        memory: &mut dyn Memory,
    ) -> Result<Option<Completion>, Errno> {
        let Arrived { entry, payload } = arrived;
        let kind = CompletionKind::from_code(entry.kind).ok_or(Errno::PROTO)?;
        let errno = match entry.other {
            number @ 1..=4095 => Errno::from_raw_os_error(number as i32),
            _ => Errno::PROTO,
        };
        if entry.ticket == NO_TICKET {
            let outcome = Outcome::Failed { errno, message: None };
            return Ok(Some(Completion { context: INJECT_CONTEXT, ticket: None, outcome }));
        }
        let Some(operation) = state.operations.get(entry.ticket) else {
            return Err(Errno::PROTO);
        };
        let context = operation.context;
        match (kind, &mut operation.kind) {
            (CompletionKind::Part, OperationKind::Receive { capacity }) => {
                if entry.offset.saturating_add(payload.len()) > *capacity {
                    return Err(Errno::PROTO);
                }
                payload.scatter(region, memory, context, entry.offset);
                return Ok(None);
            }
            (CompletionKind::Wanted, OperationKind::Announced { length, wanted, feeds, .. }) => {
                *wanted = entry.offset.clamp(*wanted, *length);
                if !std::mem::replace(feeds, true) {
                    state.feeding.push_back(entry.ticket);
                }
                return Ok(None);
            }
            (CompletionKind::Part | CompletionKind::Wanted, _) => return Err(Errno::PROTO),
            _ => {}
        }
        if payload.len() > operation.kind.capacity() {
            return Err(Errno::PROTO);
        }
        payload.scatter(region, memory, context, 0);
        self.on_ended(state, entry).map(Some)
    }

    /// A known operation has ended.
    pub(super) fn on_ended(&self, state: &mut State, entry: &Entry) -> Result<Completion, Errno> {
        let kind = CompletionKind::from_code(entry.kind).ok_or(Errno::PROTO)?;
        let errno = match entry.other {
            number @ 1..=4095 => Errno::from_raw_os_error(number as i32),
            _ => Errno::PROTO,
        };
        let operation = state.operations.get(entry.ticket).ok_or(Errno::PROTO)?;
        let context = operation.context;
        let capacity = operation.kind.capacity();
        let message = match entry.flags.contains(Flags::MESSAGE) {
            true => Some(Message {
                source: state.peers.add(entry.peer).ok_or(Errno::NFILE)?,
                tag: entry.flags.contains(Flags::TAGGED).then_some(entry.tag),
                immediate: entry.flags.contains(Flags::IMMEDIATE).then_some(entry.immediate),
                length: entry.length,
                copied: entry.length.min(capacity),
            }),
            false => None,
        };
        let outcome = match (kind, message) {
            (CompletionKind::Sent, _) => Outcome::Sent,
            (CompletionKind::Received, Some(message)) => Outcome::Received(message),
            (CompletionKind::Peeked, Some(message)) => Outcome::Peeked(message),
            (CompletionKind::Claimed, Some(message)) => Outcome::Claimed(message),
            (CompletionKind::Discarded, _) => Outcome::Discarded,
            (CompletionKind::Failed, message) => Outcome::Failed { errno, message },
            _ => return Err(Errno::PROTO),
        };
        if kind == CompletionKind::Claimed {
            if let Some(operation) = state.operations.get(entry.ticket) {
                operation.kind = OperationKind::Claimed;
            }
        } else {
            state.operations.end(entry.ticket);
        }
        Ok(Completion { context, ticket: Some(Ticket(entry.ticket)), outcome })
    }

    /// Supplies the bytes that the engine wants, as far as there is room.
    fn feed(
        &self,
        call: &Call<'_>,
        state: &mut State,
        memory: &mut dyn Memory,
    ) -> Result<(), Errno> {
        while let Some(ticket) = state.feeding.front().copied() {
            let Some(Operation {
                context,
                kind: OperationKind::Announced { wanted, fed, feeds, .. },
            }) = state.operations.get(ticket)
            else {
                state.feeding.pop_front();
                continue;
            };
            let len = (*wanted - *fed).min(FEED_BYTES);
            if len == 0 {
                *feeds = false;
                state.feeding.pop_front();
                continue;
            }
            let (context, offset) = (*context, *fed);
            let entry =
                Entry { ticket, offset, length: len, ..Entry::new(CommandKind::Feed as u8) };
            let mut gather = |region: &Region, span: Span, at: u32| {
                let mut done = 0;
                let from = offset + u64::from(at);
                memory.gather(context, from, span.len as usize, &mut |piece| {
                    let rest = span.part(done, u32::MAX);
                    done += region.write_buffer(rest, piece) as u32;
                });
            };
            match self.push(call, &entry, len as u32, &mut gather) {
                Ok(()) => *fed += len,
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno) => return Err(errno),
            }
        }
        self.shared.wants_room.store(false, Ordering::Relaxed);
        Ok(())
    }
}

fn has_room(call: &Call<'_>) -> bool {
    let view = call.view();
    let slots = u64::from(view.region().geometry().send_slots);
    let outstanding = view.pushed().wrapping_sub(view.levels().taken);
    slots.saturating_sub(outstanding) >= ROOM_SLOTS.min(slots) && call.driver().lane.has_stock()
}

/// A command that matches messages.
pub(super) fn matching(state: &State, command: CommandKind, of: &Pattern) -> Result<Entry, Errno> {
    let mut entry = Entry::new(command as u8);
    match of.source {
        Some(peer) => entry.peer = state.peers.address(peer).ok_or(Errno::INVAL)?,
        None => entry.flags |= Flags::ANY_SOURCE,
    }
    if let Some((tag, ignore)) = of.tag {
        entry.flags |= Flags::TAGGED;
        (entry.tag, entry.other) = (tag, ignore);
    }
    Ok(entry)
}

pub(super) fn outgoing(
    state: &State,
    peer: Peer,
    send: &Send,
    length: u64,
) -> Result<Entry, Errno> {
    let mut entry = Entry {
        peer: state.peers.address(peer).ok_or(Errno::INVAL)?,
        length,
        tag: send.tag.unwrap_or(0),
        immediate: send.immediate.unwrap_or(0),
        ..Entry::new(CommandKind::Send as u8)
    };
    entry.flags.set(Flags::TAGGED, send.tag.is_some());
    entry.flags.set(Flags::IMMEDIATE, send.immediate.is_some());
    entry.flags.set(Flags::DELIVERY, send.delivery);
    Ok(entry)
}

/// Fills spans from `parts`, one after the other.
fn of_parts<'a>(parts: &'a [IoSlice<'a>]) -> impl FnMut(&Region, Span, u32) + 'a {
    let mut place = Place::default();
    move |region, span, _| {
        place.gather(region, span, parts);
    }
}
