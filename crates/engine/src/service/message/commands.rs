//! Commands of clients: each is copied once, checked, and then passed to the core.

use rustix::io::Errno;
use shm::descriptor::Span;
use shm::message::{
    CommandKind, CompletionKind, EAGER_MAX, Entry, Flags, INJECT_MAX, MESSAGE_MAX, NO_TICKET,
    announced_max,
};
use stack::Stack;
use stack::message::{
    Address, ClaimedReceive, EndpointId, Host, MessageError, ReceiveId, ReceiveRequest, Selector,
    SendRequest,
};

use super::endpoint::{Target, completion};
use super::placed::{Failure, Placed};
use super::queue::{Command, append, note_taken, take};
use super::tables::{Hands, ReceiveOp, Room, SendOp};
use super::{Messages, Path, Tables};
use crate::endpoint::Role;
use crate::session::Breach;
use crate::sessions::Sessions;

/// Commands served for one endpoint in a turn before other endpoints.
const COMMANDS_MAX: usize = 128;
/// Sends of an endpoint in progress, injected ones included, beyond which its commands wait.
const SENDS_MAX: u32 = 60_000;

/// What a command is carried out with.
struct CommandContext<'a> {
    /// The stack, which knows routes and own addresses.
    stack: &'a Stack,
    /// The sessions.
    sessions: &'a mut Sessions,
    /// The time, in engine nanoseconds.
    now: u64,
    /// The endpoint whose command it is.
    id: EndpointId,
}

/// Where a receive's message goes.
pub(super) struct ReceiveRoom {
    /// Its memory.
    pub room: Room,
    /// Bytes that may arrive before the client has read any.
    pub window: u32,
}

impl Messages {
    /// Serves the commands of a client. `true`: there may be more.
    pub fn serve(
        &mut self,
        stack: &Stack,
        sessions: &mut Sessions,
        now: u64,
        (place, index): (u32, u32),
    ) -> bool {
        let Some(id) = endpoint_of(sessions, place, index) else { return false };
        let mut more = true;
        for _ in 0..COMMANDS_MAX {
            let Some(port) = self.tables.port(id) else { return false };
            if port.sends >= SENDS_MAX || port.is_full() {
                break;
            }
            let Some(session) = sessions.at(place) else { return false };
            if session.breach.is_some() {
                return false;
            }
            let lane = session.endpoints.get(index as usize).map_or(0, |one| one.lane);
            match take(&mut port.partial, session, index, lane) {
                Ok(Some(command)) => {
                    let mut spans = std::mem::take(&mut port.partial);
                    let cx = &mut CommandContext { stack, sessions, now, id };
                    let done = self.run(cx, &command, &mut spans);
                    if let Some(session) = sessions.at(place) {
                        for (_, buffer) in spans.drain(..) {
                            session.pool.drop_span(buffer);
                        }
                        if done.is_none() {
                            session.breached(Breach::BadMessage { endpoint: index });
                        }
                        note_taken(session, index);
                    }
                    if let Some(port) = self.tables.port(id) {
                        port.partial = spans;
                    }
                }
                Ok(None) => {
                    more = false;
                    break;
                }
                Err(breach) => {
                    session.breached(breach);
                    return false;
                }
            }
        }
        if let Some(endpoint) =
            sessions.at(place).and_then(|session| session.endpoints.get_mut(index as usize))
        {
            endpoint.view.publish_taken();
            if let Role::Messages(messages) = &endpoint.role {
                endpoint.view.set_acked(messages.commands);
            }
        }
        sessions.note_news(place, index);
        if let Some(port) = self.tables.port(id) {
            port.flush(sessions);
            if more || !port.flows() {
                self.block(id);
            }
        }
        more
    }

    /// Executes a command. The caller frees the spans that remain in `spans`. `None` is a breach.
    fn run(
        &mut self,
        cx: &mut CommandContext<'_>,
        command: &Command,
        spans: &mut Vec<(Span, u32)>,
    ) -> Option<()> {
        let Command { kind, entry, payload } = command;
        let is_named = !entry.flags.contains(Flags::INJECT) || *kind != CommandKind::Send;
        let begins = !matches!(kind, CommandKind::Cancel | CommandKind::Feed);
        if begins && is_named && !self.tables.port(cx.id)?.is_free(entry.ticket) {
            return None;
        }
        let carries = match kind {
            CommandKind::Send | CommandKind::Feed => true,
            CommandKind::Receive | CommandKind::ReceiveClaimed => {
                entry.flags.contains(Flags::REGISTERED)
            }
            _ => false,
        };
        if *payload > 0 && !carries || entry.length > MESSAGE_MAX {
            return None;
        }
        let placed = match self.placed(cx.sessions, cx.id, command, spans) {
            Ok(placed) => placed,
            Err(errno) => {
                match errno {
                    Errno::NOBUFS => self.counts.pieces_refused += 1,
                    _ => self.counts.memory_refused += 1,
                }
                return self.fail(cx.sessions, cx.id, entry.ticket, errno);
            }
        };
        match kind {
            CommandKind::Send => self.send(cx, command, placed, spans),
            CommandKind::Receive => self.receive(cx, entry, placed),
            CommandKind::Peek | CommandKind::Claim => self.probe(cx, *kind, entry),
            CommandKind::ReceiveClaimed | CommandKind::DiscardClaimed => {
                self.on_claim(cx, *kind, entry, placed)
            }
            CommandKind::Cancel => {
                match self.tables.port(cx.id)?.target(entry.other) {
                    Target::Receive(_, of) => drop(self.core.cancel_receive(of)),
                    Target::Send(_, of) => drop(self.core.cancel_send(of)),
                    // It has ended meanwhile.
                    Target::Free | Target::Claim(_) => {}
                }
                Some(())
            }
            CommandKind::Feed => self.feed(cx, command, spans),
        }
    }

    fn send(
        &mut self,
        cx: &mut CommandContext<'_>,
        command: &Command,
        placed: Placed,
        spans: &mut Vec<(Span, u32)>,
    ) -> Option<()> {
        let Command { entry, payload, .. } = command;
        let id = cx.id;
        let length = entry.length as u32;
        let is_injected = entry.flags.contains(Flags::INJECT);
        let is_placed = entry.flags.contains(Flags::REGISTERED);
        let expected = if length <= EAGER_MAX { length } else { 0 };
        let ticket = if is_injected { NO_TICKET } else { entry.ticket };
        let failure = |errno| Failure { ticket, errno };
        if is_placed && is_injected {
            return self.refuse(cx.sessions, id, placed, failure(Errno::INVAL));
        }
        if !is_placed && *payload != expected || is_injected && length > INJECT_MAX {
            return None;
        }
        let place = self.tables.port(id)?.place;
        if !is_placed && entry.length > announced_max(cx.sessions.peek(place)?.region.geometry()) {
            return self.fail(cx.sessions, id, ticket, Errno::MSGSIZE);
        }
        let to = match self.address(cx.stack, id, entry.peer) {
            Ok(to) => to,
            Err(errno) => return self.refuse(cx.sessions, id, placed, failure(errno)),
        };
        let mut op = SendOp {
            endpoint: id,
            id: None,
            ticket,
            is_injected,
            length,
            available: if is_placed { length } else { 0 },
            wanted: 0,
            is_admitted: false,
            placed,
        };
        if !is_placed {
            op.placed.pieces = self.tables.spare.pop().unwrap_or_default();
            append(&mut op, spans);
        }
        let available = op.available;
        let cookie = self.tables.sends.insert(op);
        let request = SendRequest {
            to,
            tag: entry.flags.contains(Flags::TAGGED).then_some(entry.tag),
            immediate: entry.flags.contains(Flags::IMMEDIATE).then_some(entry.immediate),
            length,
            available,
            delivery: entry.flags.contains(Flags::DELIVERY),
            cookie: cookie as u64,
        };
        let Self { core, tables, .. } = self;
        let hands = &mut Hands { tables, sessions: cx.sessions };
        let begun = core.send(cx.now, id, request, hands);
        match begun {
            Ok(of) => {
                if let Some(op) = self.tables.sends.get_mut(cookie) {
                    op.id = Some(of);
                }
                let port = self.tables.port(id)?;
                port.sends += 1;
                port.set_target(ticket, Target::Send(cookie as u32, of));
                Some(())
            }
            Err(error) => {
                let op = self.end_send(cx.sessions, cookie)?;
                self.refuse(cx.sessions, id, op.placed, failure(errno_of(error)))
            }
        }
    }

    fn feed(
        &mut self,
        cx: &mut CommandContext<'_>,
        command: &Command,
        spans: &mut Vec<(Span, u32)>,
    ) -> Option<()> {
        let Command { entry, payload, .. } = command;
        // One that has failed meanwhile takes nothing more.
        let Target::Send(cookie, of) = self.tables.port(cx.id)?.target(entry.ticket) else {
            return Some(());
        };
        let op = self.tables.sends.get_mut(cookie as usize)?;
        let fits = entry.offset == u64::from(op.available)
            && *payload > 0
            && op.length - op.available >= *payload;
        if !fits {
            return None;
        }
        append(op, spans);
        let available = op.available;
        let Self { core, tables, .. } = self;
        let hands = &mut Hands { tables, sessions: cx.sessions };
        // It may end by this very step.
        let _ = core.feed(cx.now, of, available, hands);
        Some(())
    }

    fn receive(
        &mut self,
        cx: &mut CommandContext<'_>,
        entry: &Entry,
        placed: Placed,
    ) -> Option<()> {
        let (now, id) = (cx.now, cx.id);
        let selector = match self.selector(cx.stack, id, entry) {
            Ok(selector) => selector,
            Err(errno) => {
                let failure = Failure { ticket: entry.ticket, errno };
                return self.refuse(cx.sessions, id, placed, failure);
            }
        };
        let capacity = entry.length as u32;
        let Some(room) = self.room_of(cx.sessions, id, entry, placed) else {
            return self.fail(cx.sessions, id, entry.ticket, Errno::NOBUFS);
        };
        let window = room.window;
        self.begin_receive(cx, entry, room, |core, cookie, hands| {
            core.receive(now, id, ReceiveRequest { selector, capacity, window, cookie }, hands)
        })
    }

    fn begin_receive(
        &mut self,
        cx: &mut CommandContext<'_>,
        entry: &Entry,
        ReceiveRoom { room, window }: ReceiveRoom,
        begin: impl FnOnce(
            &mut stack::message::Core,
            u64,
            &mut Hands<'_>,
        ) -> Result<ReceiveId, MessageError>,
    ) -> Option<()> {
        let CommandContext { sessions, id, .. } = cx;
        let ticket = entry.ticket;
        let cookie = self.tables.receives.insert(ReceiveOp {
            endpoint: *id,
            id: None,
            ticket,
            capacity: entry.length as u32,
            room,
            window,
            told: 0,
            waits: None,
            is_listed: false,
        });
        let Self { core, tables, .. } = self;
        let begun = begin(core, cookie as u64, &mut Hands { tables, sessions });
        match begun {
            Ok(of) => {
                if let Some(op) = self.tables.receives.get_mut(cookie) {
                    op.id = Some(of);
                }
                self.tables.port(*id)?.set_target(ticket, Target::Receive(cookie as u32, of));
                Some(())
            }
            Err(error) => {
                let op = self.tables.receives.try_remove(cookie)?;
                self.close_window(sessions, &op);
                let placed = match op.room {
                    Room::Placed(placed) => placed,
                    Room::Space(_) => Placed::default(),
                };
                self.refuse(sessions, *id, placed, Failure { ticket, errno: errno_of(error) })
            }
        }
    }

    fn probe(
        &mut self,
        cx: &mut CommandContext<'_>,
        kind: CommandKind,
        entry: &Entry,
    ) -> Option<()> {
        let CommandContext { stack, sessions, id, .. } = cx;
        let id = *id;
        let selector = match self.selector(stack, id, entry) {
            Ok(selector) => selector,
            Err(errno) => return self.fail(sessions, id, entry.ticket, errno),
        };
        let found = match kind {
            CommandKind::Claim => {
                let claimed = self.core.claim(id, selector);
                claimed.map(|(claim, envelope)| (Some(claim), envelope))
            }
            _ => self.core.peek(id, selector).map(|envelope| (None, envelope)),
        };
        let Some((claim, envelope)) = found else {
            return self.fail(sessions, id, entry.ticket, Errno::NOMSG);
        };
        let told = match claim {
            Some(claim) => {
                self.tables.port(id)?.set_target(entry.ticket, Target::Claim(claim));
                CompletionKind::Claimed
            }
            None => CompletionKind::Peeked,
        };
        let told = self.describe(id, completion(told, entry.ticket), &envelope);
        self.tables.port(id)?.tell(sessions, told, None);
        Some(())
    }

    fn on_claim(
        &mut self,
        cx: &mut CommandContext<'_>,
        kind: CommandKind,
        entry: &Entry,
        placed: Placed,
    ) -> Option<()> {
        let (now, id) = (cx.now, cx.id);
        let port = self.tables.port(id)?;
        let Target::Claim(claim) = port.target(entry.other) else {
            let failure = Failure { ticket: entry.ticket, errno: Errno::INVAL };
            return self.refuse(cx.sessions, id, placed, failure);
        };
        port.set_target(entry.other, Target::Free);
        if kind == CommandKind::ReceiveClaimed {
            let capacity = entry.length as u32;
            let Some(room) = self.room_of(cx.sessions, id, entry, placed) else {
                // The client has it no more, and hears of its loss.
                let Self { core, tables, .. } = self;
                let _ = core.discard(now, claim, &mut Hands { tables, sessions: cx.sessions });
                return self.fail(cx.sessions, id, entry.ticket, Errno::NOBUFS);
            };
            let window = room.window;
            return self.begin_receive(cx, entry, room, |core, cookie, hands| {
                let request = ClaimedReceive { capacity, window, cookie };
                core.receive_claimed(now, claim, request, hands)
            });
        }
        let Self { core, tables, .. } = self;
        let dropped = core.discard(now, claim, &mut Hands { tables, sessions: cx.sessions });
        match dropped {
            Ok(()) => {
                let told = completion(CompletionKind::Discarded, entry.ticket);
                self.tables.port(id)?.tell(cx.sessions, told, None);
                Some(())
            }
            Err(error) => self.fail(cx.sessions, id, entry.ticket, errno_of(error)),
        }
    }

    /// Reports that an operation failed.
    pub fn fail(
        &mut self,
        sessions: &mut Sessions,
        id: EndpointId,
        ticket: u64,
        errno: Errno,
    ) -> Option<()> {
        let mut told = completion(CompletionKind::Failed, ticket);
        told.other = errno.raw_os_error() as u64;
        self.tables.port(id)?.tell(sessions, told, None);
        Some(())
    }

    fn selector(
        &mut self,
        stack: &Stack,
        id: EndpointId,
        entry: &Entry,
    ) -> Result<Selector, Errno> {
        let source = match entry.flags.contains(Flags::ANY_SOURCE) {
            true => None,
            false => Some(self.address(stack, id, entry.peer)?),
        };
        let tag = entry.flags.contains(Flags::TAGGED).then_some(entry.tag);
        Ok(Selector { source, tag, ignore: entry.other })
    }

    /// A peer's address in the core.
    fn address(
        &mut self,
        stack: &Stack,
        id: EndpointId,
        peer: std::net::SocketAddr,
    ) -> Result<Address, Errno> {
        let (remote, port) = (peer.ip().to_canonical(), peer.port());
        if stack.routes().is_own(remote) {
            return Ok(Address { host: Host::LOCAL, port });
        }
        let local = self.tables.port(id).ok_or(Errno::BADF)?.address.ip();
        if local.is_ipv4() != remote.is_ipv4() {
            return Err(Errno::AFNOSUPPORT);
        }
        let host = self.hosts.named(&mut self.core, stack, Path { local, remote })?;
        Ok(Address { host, port })
    }

    /// Releases the memory of a send that the core no longer reads.
    pub(super) fn end_send(&mut self, sessions: &mut Sessions, cookie: usize) -> Option<SendOp> {
        let mut op = self.tables.sends.try_remove(cookie)?;
        let place = self.tables.port(op.endpoint)?.place;
        if let Some(session) = sessions.at(place) {
            op.placed.pieces.release(session, u32::MAX);
            if op.is_admitted {
                session.announced_bytes =
                    session.announced_bytes.saturating_sub(u64::from(op.length));
            }
        }
        if op.wanted > 0 {
            self.wants.retain(|waiting| *waiting != cookie);
        }
        let pieces = std::mem::take(&mut op.placed.pieces);
        self.tables.keep_list(pieces);
        Some(op)
    }
}

/// The core's number of a session's endpoint.
pub(super) fn endpoint_of(sessions: &Sessions, place: u32, index: u32) -> Option<EndpointId> {
    match &sessions.peek(place)?.endpoints.get(index as usize)?.role {
        Role::Messages(messages) => Some(messages.id),
        _ => None,
    }
}

/// The errno for an error of the core.
fn errno_of(error: MessageError) -> Errno {
    match error {
        MessageError::UnknownEndpoint => Errno::BADF,
        MessageError::UnknownHost => Errno::HOSTUNREACH,
        MessageError::UnknownOperation | MessageError::Length => Errno::INVAL,
        MessageError::TooMany | MessageError::TooManyJobs | MessageError::TooManyPeers => {
            Errno::NOBUFS
        }
        MessageError::PortInUse => Errno::ADDRINUSE,
        MessageError::JobCollision => Errno::EXIST,
        MessageError::NoKey => Errno::NOKEY,
    }
}

impl Tables {
    /// Announced sends of an endpoint whose bytes have not all been given, in the order of the table.
    pub fn unfinished(&mut self, id: EndpointId) -> Vec<stack::message::SendId> {
        let Some(port) = self.port(id) else { return Vec::new() };
        let mut cookies: Vec<u32> = port.sends().collect();
        cookies.sort_unstable();
        let ops = cookies.into_iter().filter_map(|cookie| self.sends.get(cookie as usize));
        ops.filter(|op| op.available < op.length).filter_map(|op| op.id).collect()
    }
}
