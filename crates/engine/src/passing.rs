//! Connections used by several processes: who holds them besides the session that opened them, and
//! the move of a connection to the relay's session.
//!
//! A forked child holds what its parent has at that moment: it is an *heir*, one number to keep,
//! however many connections there are. Nothing happens to a connection until a holder requests its
//! use elsewhere ([`Worker::pass`]), or its own session closes it while an heir holds it. Then it
//! is moved: the stack's connection is given to an endpoint of the relay's session, with received
//! data that was not read, and written data that was not acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use rustix::io::Errno;
use shm::Status;
use shm::descriptor::Span;
use stack::api::SocketId;

use crate::control::exchange::{Answer, SessionKey};
use crate::endpoint::{NO_BUFFER, Role, SendHalf, Stream};
use crate::errno;
use crate::session::Session;
use crate::sessions::Holder;
use crate::spans::SpanList;
use crate::worker::Worker;

/// Identifies an heir; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeirKey(pub u64);

/// A holder of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// The session that opened it.
    Session(SessionKey),
    /// A child that was forked.
    Heir(HeirKey),
}

/// What the relay needs to know of a connection that was moved to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Serve {
    /// Its endpoint.
    pub endpoint: u32,
    /// Its own address.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// Its send side is shut down.
    pub is_shut: bool,
}

/// A connection requested by a keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handover {
    /// Its number among the moved connections.
    pub pass: u64,
    /// For the relay, with the first request.
    pub serve: Option<Serve>,
    /// No other keeper will request it.
    pub is_last: bool,
}

/// A forked child, as long as it has a control connection.
#[derive(Clone, Debug)]
struct Heir {
    /// The session whose connections it holds.
    of: SessionKey,
    /// It holds those up to this age.
    until: u64,
    /// Endpoints of connections that it has closed.
    released: BTreeSet<u32>,
}

/// A connection in the relay's session.
#[derive(Debug)]
struct Passed {
    /// Its endpoint in the session that opened it.
    origin: u32,
    /// Its current location.
    serve: Serve,
    /// Keepers that may still request it.
    keepers: Vec<Keeper>,
    /// The relay knows it.
    is_served: bool,
}

/// All heirs, and the moved connections that may be requested.
#[derive(Debug, Default)]
pub(crate) struct Passing {
    /// The relay's session, while there is one.
    pub relay: Option<SessionKey>,
    heirs: BTreeMap<HeirKey, Heir>,
    passed: BTreeMap<u64, Passed>,
    next: u64,
}

impl Passing {
    /// The heirs that hold a connection of a session, by its endpoint and its age.
    fn heirs_of(&self, of: SessionKey, index: u32, born: u64) -> Vec<Keeper> {
        let holds =
            |heir: &Heir| heir.of == of && heir.until >= born && !heir.released.contains(&index);
        let heirs = self.heirs.iter().filter(|(_, heir)| holds(heir));
        heirs.map(|(key, _)| Keeper::Heir(*key)).collect()
    }
}

impl Worker {
    /// Marks the session as the relay's.
    pub(crate) fn set_relay(&mut self, key: SessionKey) {
        self.passing.relay = Some(key);
        self.counters.sessions_total.set(self.counters.sessions_total.read().saturating_sub(1));
    }

    /// The relay's session, if there is one.
    fn relay_place(&self) -> Option<u32> {
        let place = self.sessions.place_of(self.passing.relay?)?;
        self.sessions.peek(place).filter(|session| session.is_served())?;
        Some(place)
    }

    /// Records a child that will hold what `by` holds.
    pub(crate) fn fork(&mut self, by: Keeper, heir: HeirKey) -> Result<(), Errno> {
        if self.relay_place().is_none() {
            return Err(Errno::OPNOTSUPP);
        }
        let made = match by {
            Keeper::Session(of) => {
                let place = self.sessions.place_of(of).ok_or(Errno::BADF)?;
                let until = self.sessions.peek(place).ok_or(Errno::BADF)?.streams_born;
                Heir { of, until, released: BTreeSet::new() }
            }
            Keeper::Heir(parent) => self.passing.heirs.get(&parent).ok_or(Errno::BADF)?.clone(),
        };
        for passed in self.passing.passed.values_mut() {
            if passed.keepers.contains(&by) {
                passed.keepers.push(Keeper::Heir(heir));
            }
        }
        self.passing.heirs.insert(heir, made);
        self.counters.heirs_total.increment();
        Ok(())
    }

    /// An heir has closed a connection.
    pub(crate) fn release(&mut self, heir: HeirKey, index: u32) {
        let by = Keeper::Heir(heir);
        match self.find_passed(by, index) {
            Some(pass) => self.drop_keeper(pass, by),
            None => {
                if let Some(heir) = self.passing.heirs.get_mut(&heir) {
                    heir.released.insert(index);
                }
            }
        }
    }

    /// An heir has ended.
    pub(crate) fn end_heir(&mut self, heir: HeirKey) {
        self.passing.heirs.remove(&heir);
        self.drop_keeper_everywhere(Keeper::Heir(heir));
    }

    /// A keeper has ended: connections without any keeper are dropped.
    fn drop_keeper_everywhere(&mut self, by: Keeper) {
        let passes: Vec<u64> = self.passing.passed.keys().copied().collect();
        for pass in passes {
            self.drop_keeper(pass, by);
        }
    }

    fn drop_keeper(&mut self, pass: u64, by: Keeper) {
        let Some(passed) = self.passing.passed.get_mut(&pass) else { return };
        passed.keepers.retain(|keeper| *keeper != by);
        if !passed.keepers.is_empty() {
            return;
        }
        let (endpoint, is_served) = (passed.serve.endpoint, passed.is_served);
        self.passing.passed.remove(&pass);
        if is_served {
            self.answers.push(Answer::PassOver(pass));
        } else if let Some(place) = self.relay_place() {
            // The relay does not know it: it ends as its session would have ended it.
            self.end_endpoint(place, endpoint, false);
            self.free_endpoint(place, endpoint);
        }
    }

    /// Finds a moved connection by a keeper and its endpoint in its first session.
    fn find_passed(&self, by: Keeper, index: u32) -> Option<u64> {
        let is_it = |passed: &Passed| passed.origin == index && passed.keepers.contains(&by);
        self.passing.passed.iter().find(|(_, passed)| is_it(passed)).map(|(pass, _)| *pass)
    }

    /// A keeper requests a connection as a kernel socket.
    pub(crate) fn pass(&mut self, by: Keeper, index: u32) -> Result<Handover, Errno> {
        let pass = match self.find_passed(by, index) {
            Some(pass) => pass,
            None => self.pass_first(by, index).inspect_err(|errno| match *errno {
                Errno::AGAIN => self.counters.passes_put_off.increment(),
                _ => self.counters.passes_failed.increment(),
            })?,
        };
        let passed = self.passing.passed.get_mut(&pass).ok_or(Errno::BADF)?;
        passed.keepers.retain(|keeper| *keeper != by);
        let is_first = !std::mem::replace(&mut passed.is_served, true);
        let (serve, is_last) = (is_first.then_some(passed.serve), passed.keepers.is_empty());
        if is_last {
            self.passing.passed.remove(&pass);
        }
        Ok(Handover { pass, serve, is_last })
    }

    /// The connection is where it was opened: it is moved.
    fn pass_first(&mut self, by: Keeper, index: u32) -> Result<u64, Errno> {
        let (of, until) = match by {
            Keeper::Session(of) => (of, u64::MAX),
            Keeper::Heir(heir) => {
                let heir = self.passing.heirs.get(&heir).ok_or(Errno::BADF)?;
                if heir.released.contains(&index) {
                    return Err(Errno::BADF);
                }
                (heir.of, heir.until)
            }
        };
        let place = self.sessions.place_of(of).ok_or(Errno::BADF)?;
        let Some(Role::Stream(stream)) = self.endpoint(place, index).map(|one| &one.role) else {
            return Err(Errno::BADF);
        };
        let born = stream.born;
        if born > until {
            return Err(Errno::BADF);
        }
        let mut keepers = self.passing.heirs_of(of, index, born);
        keepers.push(Keeper::Session(of));
        // A thread that is reading or writing finishes first; the keeper must ask again.
        let view = |worker: &mut Self| worker.endpoint(place, index).map(|one| one.view.clone());
        let view = view(self).ok_or(Errno::BADF)?;
        if !view.seize() {
            return Err(Errno::AGAIN);
        }
        let moved = self.move_stream(place, index, keepers, false);
        view.let_go();
        moved
    }

    /// The session closes a connection, or ends. Returns whether heirs hold it, who then get it
    /// from the relay.
    pub(crate) fn leave_to_heirs(&mut self, place: u32, index: u32) -> bool {
        if self.passing.heirs.is_empty() {
            return false;
        }
        let Some(of) = self.sessions.peek(place).map(|session| session.key) else { return false };
        let Some(Role::Stream(stream)) = self.endpoint(place, index).map(|one| &one.role) else {
            return false;
        };
        let born = stream.born;
        let keepers = self.passing.heirs_of(of, index, born);
        // A connection that cannot be moved ends as if it had no heirs.
        !keepers.is_empty() && self.move_stream(place, index, keepers, true).is_ok()
    }

    /// The session that opened a connection releases the endpoint of a moved one.
    pub(crate) fn forget_moved(&mut self, place: u32, index: u32) {
        let Some(of) = self.sessions.peek(place).map(|session| session.key) else { return };
        let by = Keeper::Session(of);
        if let Some(pass) = self.find_passed(by, index) {
            self.drop_keeper(pass, by);
        }
    }

    /// The session has ended and holds no moved connections any more. If it was the relay, all of
    /// them end.
    pub(crate) fn end_keeper(&mut self, key: SessionKey) {
        if self.passing.relay == Some(key) {
            self.passing.relay = None;
            self.passing.passed.clear();
        } else if !self.passing.passed.is_empty() {
            self.drop_keeper_everywhere(Keeper::Session(key));
        }
    }

    /// Moves a connection to the relay's session; returns its number. No thread of its session may
    /// be reading or writing: the session is `leaving` it, or its locks are seized.
    ///
    /// EAGAIN: not all written data can be taken yet.
    fn move_stream(
        &mut self,
        place: u32,
        index: u32,
        keepers: Vec<Keeper>,
        leaving: bool,
    ) -> Result<u64, Errno> {
        let relay = self.relay_place().ok_or(Errno::OPNOTSUPP)?;
        // Data written and read before the move counts. From a connection that its session may
        // continue to use, no more is taken than there is room to record.
        let from = self.sessions.at(place).ok_or(Errno::BADF)?;
        let has_room = from.spans.free() > from.region.geometry().send_slots;
        self.serve_stream(place, index, leaving || has_room);
        if !leaving && self.endpoint(place, index).is_some_and(|one| !one.view.is_drained()) {
            return Err(Errno::AGAIN);
        }
        let Some(Role::Stream(stream)) = self.endpoint(place, index).map(|one| &one.role) else {
            return Err(Errno::BADF);
        };
        let (id, is_cut) = (stream.id, stream.send.is_cut);
        // A dead connection is of no use to others.
        let levels = self.stack.tcp_levels(id).map_err(|_| Errno::CONNRESET)?;
        let info = self.stack.tcp_info(id).map_err(errno::of_request)?;
        let remote = info.remote.ok_or(Errno::NOTCONN)?;
        if is_cut {
            return Err(Errno::NOBUFS);
        }
        self.show_levels(place, index, id, &levels);
        let to = self.sessions.peek(relay).ok_or(Errno::BADF)?;
        let room = u64::from(to.pool.sendable()) * u64::from(to.region.geometry().buffer_bytes);
        let from = self.sessions.at(place).ok_or(Errno::BADF)?;
        // Before any copying: with registered memory, gigabytes may be in flight.
        if from.unacknowledged(index) > room {
            self.counters.buffers_exhausted.increment();
            return Err(Errno::NOBUFS);
        }
        let carried = from.carry(index).ok_or(Errno::BADF)?;
        let endpoint =
            self.grant_endpoint(relay, 0).map_err(|full| Errno::from_raw_os_error(full.errno))?;
        let to = self.sessions.at(relay).ok_or(Errno::BADF)?;
        if !to.unpack(endpoint, id, &carried) {
            to.discard(endpoint);
            self.counters.buffers_exhausted.increment();
            self.free_endpoint(relay, endpoint);
            return Err(Errno::NOBUFS);
        }
        let owner = Holder::Endpoint { place: relay, index: endpoint }.owner();
        // It existed a moment ago.
        let _ = self.stack.tcp_assign(id, owner);
        if let Some(from) = self.sessions.at(place) {
            from.discard(index);
        }
        if let Some(old) = self.endpoint(place, index) {
            old.role = Role::Moved;
            old.view.set_status(Status::MOVED | Status::CONNECTED, 0);
        }
        self.sessions.note_news(place, index);
        self.limit_window(relay, endpoint);
        self.show_levels(relay, endpoint, id, &levels);
        let serve = Serve { endpoint, local: info.local, remote, is_shut: carried.fin };
        let pass = self.passing.next;
        self.passing.next += 1;
        let passed = Passed { origin: index, serve, keepers, is_served: false };
        self.passing.passed.insert(pass, passed);
        self.counters.passed_total.increment();
        Ok(pass)
    }
}

/// The data that moves with a connection.
#[derive(Debug, Default)]
struct Carried {
    /// Received, unread bytes by stream offset, in order or not.
    received: Vec<(u64, Vec<u8>)>,
    consumed: u64,
    readable: u64,
    next: u64,
    /// Unacknowledged bytes, from `acked` on.
    sent: Vec<u8>,
    acked: u64,
    fin: bool,
    shut: bool,
    /// Its holders have shut down reading.
    deaf: bool,
}

impl Session {
    /// Written, unacknowledged bytes of a stream.
    fn unacknowledged(&self, index: u32) -> u64 {
        match self.endpoints.get(index as usize).map(|endpoint| &endpoint.role) {
            Some(Role::Stream(Stream { send, .. })) => send.list.end().saturating_sub(send.acked),
            _ => 0,
        }
    }

    /// Copies what another session needs to continue a stream.
    fn carry(&mut self, index: u32) -> Option<Carried> {
        let page_bytes = u64::from(self.region.geometry().buffer_bytes);
        let endpoint = self.endpoints.get_mut(index as usize)?;
        let Role::Stream(stream) = &mut endpoint.role else { return None };
        let (receive, send) = (&stream.receive, &mut stream.send);
        let mut carried = Carried {
            consumed: receive.consumed,
            readable: receive.readable,
            next: receive.next.max(receive.readable),
            acked: send.acked,
            fin: send.fin,
            shut: send.shut,
            deaf: receive.deaf,
            ..Carried::default()
        };
        for (page, buffer) in (receive.base..).zip(receive.pages.iter()) {
            let start = (page * page_bytes).max(receive.consumed);
            let end = ((page + 1) * page_bytes).min(receive.highest);
            let Some(span) = self.region.buffer(buffer).filter(|_| start < end) else { continue };
            let mut bytes = vec![0; (end - start) as usize];
            let within = (start % page_bytes) as u32;
            self.region.read_buffer(span.part(within, bytes.len() as u32), &mut bytes);
            carried.received.push((start, bytes));
        }
        let len = u32::try_from(send.list.end().checked_sub(send.acked)?).ok()?;
        let (from, sent) = (&self.memory, &mut carried.sent);
        let is_whole = self.spans.pieces(&mut send.list, send.acked, len, |place, len| {
            let mut piece = vec![0; len as usize];
            from.shared(Span { offset: place, len }).copy_to(&mut piece);
            sent.extend_from_slice(&piece);
        });
        is_whole.then_some(carried)
    }

    /// Continues a stream at a new endpoint. `false`: there are too few buffers, and what was taken
    /// must be discarded.
    fn unpack(&mut self, index: u32, id: SocketId, carried: &Carried) -> bool {
        let buffer_bytes = self.region.geometry().buffer_bytes;
        let Some(endpoint) = self.endpoints.get_mut(index as usize) else { return false };
        let lane = endpoint.lane;
        let mut list = SpanList::beginning_at(carried.acked);
        for bytes in carried.sent.chunks(buffer_bytes as usize) {
            let Some(buffer) = self.pool.take_for_lane(lane) else { break };
            let (Some(span), Ok(())) =
                (self.region.buffer(buffer), self.pool.on_span(buffer, lane, buffer_bytes))
            else {
                break;
            };
            let len = self.region.write_buffer(span, bytes) as u32;
            if self.spans.push(&mut list, span.offset, len, buffer) != Ok(true) {
                self.pool.drop_span(buffer);
                break;
            }
        }
        let written = carried.acked + carried.sent.len() as u64;
        let is_sent_whole = list.end() == written;
        let mut stream = Stream::new(id);
        stream.send = SendHalf {
            list,
            acked: carried.acked,
            fin: carried.fin,
            shut: carried.shut,
            ..SendHalf::default()
        };
        stream.receive.deaf = carried.deaf;
        stream.receive.base = carried.consumed / u64::from(buffer_bytes);
        stream.receive.consumed = carried.consumed;
        stream.receive.readable = carried.readable;
        // It has been acknowledged: all of it is kept, even if buffers are scarce.
        stream.receive.next = u64::MAX;
        endpoint.view.resume(carried.consumed, written, carried.acked);
        endpoint.role = Role::Stream(stream);
        let is_kept = is_sent_whole
            && carried.received.iter().all(|(offset, bytes)| self.keep(index, *offset, bytes));
        if let Some(endpoint) = self.endpoints.get_mut(index as usize)
            && let Role::Stream(stream) = &mut endpoint.role
        {
            stream.receive.next = carried.next;
            endpoint.view.set_readable(carried.readable);
            endpoint.view.set_wanted(stream.receive.wanted());
        }
        is_kept
    }

    /// Stores moved bytes in pages of this session.
    fn keep(&mut self, index: u32, offset: u64, bytes: &[u8]) -> bool {
        let page_bytes = u64::from(self.region.geometry().buffer_bytes);
        let Some(endpoint) = self.endpoints.get_mut(index as usize) else { return false };
        let Role::Stream(stream) = &mut endpoint.role else { return false };
        let receive = &mut stream.receive;
        let (page, within) = (offset / page_bytes, (offset % page_bytes) as u32);
        let Some(place) = page.checked_sub(receive.base) else { return false };
        while receive.pages.len() as u64 <= place {
            receive.pages.push(NO_BUFFER);
        }
        let Some(slot) = receive.pages.get_mut(place as usize) else { return false };
        let Some(buffer) = self.pool.take_for_receive() else { return false };
        *slot = buffer;
        endpoint.view.set_page(page, buffer);
        let Some(span) = self.region.buffer(buffer) else { return false };
        self.region.write_buffer(span.part(within, bytes.len() as u32), bytes);
        receive.highest = receive.highest.max(offset + bytes.len() as u64);
        if !receive.is_unswept {
            receive.is_unswept = true;
            self.unswept.push(index);
        }
        true
    }

    /// Returns everything that a stream's endpoint holds.
    fn discard(&mut self, index: u32) {
        let Some(endpoint) = self.endpoints.get_mut(index as usize) else { return };
        let Role::Stream(mut stream) = std::mem::replace(&mut endpoint.role, Role::Free) else {
            return;
        };
        self.release_pages(&mut stream.receive);
        let pool = &mut self.pool;
        self.spans.clear(&mut stream.send.list, |buffer| pool.drop_span(buffer));
    }
}
