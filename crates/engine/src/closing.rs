//! Closing of endpoints and sessions, and of clients that broke the contract.

use port::Claim;
use rustix::io::Errno;
use shm::request::Reply;
use stack::api::{Sharing, SocketId};

use crate::claims::places;
use crate::control::exchange::{Answer, SessionKey};
use crate::endpoint::{Role, Stream};
use crate::linger::{Orphan, is_there};
use crate::session::{Authorized, Session};
use crate::sessions::Holder;
use crate::shown::Use;
use crate::worker::{Activity, DOORBELL_BATCH, Worker};

impl Worker {
    /// A client closes an endpoint, in order or with a reset.
    pub(crate) fn close(&mut self, place: u32, index: u32, abort: bool) -> Result<Reply, Errno> {
        if self.endpoint(place, index).is_none_or(|one| matches!(one.role, Role::Free)) {
            return Err(Errno::BADF);
        }
        // Other holders continue to use it, so there is no reset either.
        if !self.leave_to_heirs(place, index) {
            self.end_endpoint(place, index, abort);
        }
        self.free_endpoint(place, index);
        Ok(Reply::Done)
    }

    /// Ends the use of an endpoint. It is free afterwards, but not yet in the free list.
    pub(crate) fn end_endpoint(&mut self, place: u32, index: u32, abort: bool) {
        // Data written and consumed before the close counts.
        match self.endpoint(place, index).map(|one| &one.role) {
            Some(Role::Stream(_)) => {
                self.learn_consumed(place, index);
                if let Some(session) = self.sessions.at(place) {
                    session.take_descriptors(index, true, &self.counters);
                }
            }
            Some(Role::Datagram(_)) => self.send_last_datagrams(place, index),
            Some(Role::Messages(_)) if !abort => self.serve_last_messages(place, index),
            _ => {}
        }
        let Some(endpoint) = self.endpoint(place, index) else { return };
        let shown = endpoint.shown.take();
        let role = std::mem::replace(&mut endpoint.role, Role::Free);
        let of = Use::Endpoint(index);
        let is_listener = matches!(role, Role::Listener(_));
        if let Some(key) = shown.filter(|_| !is_listener) {
            self.end_use(key, place, of);
        }
        match role {
            Role::Free | Role::Revoked => {}
            Role::Raw(slot) => self.end_raw(place, slot),
            Role::Messages(messages) => self.end_messages(messages.id, abort),
            Role::Moved => self.forget_moved(place, index),
            Role::Stream(stream) => self.end_stream(place, stream, abort),
            Role::Listener(listener) => {
                let kept = shown.and_then(|key| self.uses.keep(key, place, of));
                if self.listeners.detach(listener, place, index) {
                    let ends = |session: &Session| session.is_ending;
                    let is_orphaned = self.sessions.peek(place).is_some_and(ends);
                    self.on_unattended(listener, kept, is_orphaned);
                } else {
                    if let Some(key) = kept {
                        self.release_socket(key);
                    }
                    // Another waiting process may have to take over.
                    self.on_pending(listener, true);
                }
            }
            Role::Datagram(mut datagram) => {
                if let Some(session) = self.sessions.at(place) {
                    session.release_datagrams(&mut datagram);
                }
                if let Ok(info) = self.stack.udp_info(datagram.id) {
                    let _ = self.stack.udp_close(self.now, datagram.id);
                    // Other sockets that share its port continue.
                    if info.sharing == Sharing::Alone || !self.stack.udp_is_bound(info.bound) {
                        for local in places(info.bound) {
                            self.release_claim(Claim::Udp(local));
                        }
                    }
                }
            }
        }
    }

    fn end_stream(&mut self, place: u32, mut stream: Stream, abort: bool) {
        let now = self.now;
        let id = stream.id;
        if let Some(session) = self.sessions.at(place) {
            session.release_pages(&mut stream.receive);
        }
        // A dead connection accepts none of these calls.
        let _ = self.stack.tcp_written(now, id, stream.send.list.end());
        // Like the kernel's tcp_max_orphans: otherwise a program that closes without waiting could
        // use up the sockets of all others.
        let stays = !abort
            && !stream.send.is_cut
            && self.stack.tcp_levels(id).is_ok_and(|levels| !levels.state.is_over());
        let crowded = stays
            && self.sessions.peek(place).is_some_and(|session| {
                session.orphan_count() >= session.region.geometry().endpoint_capacity as usize
            });
        if crowded {
            self.counters.orphans_reset.increment();
        }
        let gives_way = crowded && !self.end_stuck_orphan(place);
        if abort || gives_way || stream.send.is_cut {
            let _ = self.stack.tcp_close_with_reset(now, id);
        } else {
            let _ = self.stack.tcp_close(now, id);
        }
        let Some(session) = self.sessions.at(place) else { return };
        let orphan = session.adopt(Orphan { id, list: stream.send.list });
        let owner = Holder::Orphan { place, orphan }.owner();
        if self.stack.tcp_assign(id, owner).is_err() || self.stack.tcp_levels(id).is_err() {
            self.bury(place, orphan);
        }
    }

    /// Ends a closed connection without progress, so that another has its place: otherwise peers
    /// with closed windows would delay the last data of all others. `false`: none was found.
    fn end_stuck_orphan(&mut self, place: u32) -> bool {
        let (stack, now) = (&self.stack, self.now);
        let session = self.sessions.at(place);
        let found =
            session.and_then(|one| one.oldest_orphan(|id| stack.tcp_stalled_ns(now, id).is_some()));
        let Some((orphan, id)) = found else { return false };
        let _ = self.stack.tcp_abort(self.now, id);
        self.bury(place, orphan);
        true
    }

    /// Whether `id` is the connection in this orphan slot.
    pub(crate) fn is_orphan(&self, place: u32, orphan: u32, id: SocketId) -> bool {
        self.sessions.peek(place).is_some_and(|session| is_there(&session.orphans, orphan, id))
    }

    /// An orphan has ended; the last one of a dead program takes the session with it.
    pub(crate) fn bury(&mut self, place: u32, orphan: u32) {
        let Some(session) = self.sessions.at(place) else { return };
        session.bury(orphan);
        self.forget_if_done(place);
    }

    pub(crate) fn forget_if_done(&mut self, place: u32) {
        let done = self.sessions.peek(place).is_some_and(|session| {
            session.dying_since.is_some()
                && session.orphan_count() == 0
                && session.draining_messages == 0
        });
        if done && let Some(session) = self.sessions.remove(place) {
            self.due.remove_session(place);
            self.dying.retain(|(_, key)| *key != session.key);
            self.answers.push(Answer::Gone(session.key));
        }
    }

    /// A session's program is gone: its connections end as the kernel would end them.
    pub fn detach(&mut self, key: SessionKey) {
        let now = self.now;
        let Some(place) = self.sessions.place_of(key) else { return };
        let Some(session) = self.sessions.at(place) else { return };
        if session.dying_since.is_some() {
            return;
        }
        if session.breach.is_none() {
            self.serve_last(place);
        }
        let breached = self.sessions.peek(place).is_some_and(|session| session.breach.is_some());
        self.dying.push_back((now.0.saturating_add(self.limits.linger_ns), key));
        if let Some(session) = self.sessions.at(place) {
            session.is_ending = true;
        }
        let count = self.sessions.peek(place).map_or(0, |session| session.endpoints.len());
        for index in 0..count as u32 {
            let used = self
                .endpoint(place, index)
                .is_some_and(|endpoint| !matches!(endpoint.role, Role::Free));
            if used {
                if breached || !self.leave_to_heirs(place, index) {
                    self.end_endpoint(place, index, breached);
                }
                self.free_endpoint(place, index);
            }
        }
        self.end_keeper(key);
        let tokens = self.sessions.at(place).map(|session| std::mem::take(&mut session.tokens));
        for (token, Authorized { key, .. }) in tokens.unwrap_or_default() {
            self.end_use(key, place, Use::Token(token));
        }
        if let Some(session) = self.sessions.at(place) {
            session.pool.revoke_granted();
            // Not earlier: the session is removed with its last orphan, and some end at once.
            session.dying_since = Some(now.0);
        }
        self.due.polled.remove_session(place);
        self.waiting_datagrams.retain(|(of, _)| *of != place);
        self.forget_if_done(place);
    }

    /// Serves the requests that a program made before it ended: it may have closed its endpoints in
    /// order and exited at once.
    fn serve_last(&mut self, place: u32) {
        let mut activity = Activity::default();
        let Some(session) = self.sessions.at(place) else { return };
        let lanes = session.lanes.len() as u16;
        // An honest program leaves at most two doorbells per endpoint and full request rings. A
        // program that keeps writing to its region gets no more than that.
        let mut rounds = 2 * session.endpoints.len() / DOORBELL_BATCH + 4 * usize::from(lanes);
        for lane in 0..lanes {
            let mut requests = self.limits.request_slots as usize;
            while rounds > 0 {
                let has_work = self.sessions.peek(place).is_some_and(|session| {
                    session.breach.is_none()
                        && session.lanes.get(usize::from(lane)).is_some_and(|l| l.view.has_work())
                });
                if !has_work || requests == 0 {
                    break;
                }
                rounds -= 1;
                let served = self.serve_lane_within(place, lane, requests, &mut activity);
                requests = requests.saturating_sub(served);
            }
        }
    }

    /// Ends the sessions whose clients broke the contract in this turn.
    pub(crate) fn end_breached(&mut self) {
        let count = self.sessions.breaches.count();
        if count == 0 {
            return;
        }
        self.sessions.breaches.sub(count);
        for place in 0..self.sessions.place_count() {
            let Some(session) = self.sessions.peek(place) else { continue };
            let Some(breach) = session.breach else { continue };
            if session.dying_since.is_some() {
                continue;
            }
            let key = session.key;
            self.counters.breaches.increment();
            self.answers.push(Answer::Breached(key, breach));
            self.detach(key);
        }
    }

    /// Drops connections of dead programs that have not delivered their data in time.
    pub(crate) fn end_lingering(&mut self) {
        let now = self.now;
        while let Some((deadline, key)) = self.dying.front().copied() {
            if deadline > now.0 {
                return;
            }
            self.dying.pop_front();
            let Some(place) = self.sessions.place_of(key) else { continue };
            let orphans: Vec<(u32, SocketId)> = match self.sessions.peek(place) {
                Some(session) => (0..)
                    .zip(&session.orphans)
                    .filter_map(|(index, orphan)| Some((index, orphan.as_ref()?.id)))
                    .collect(),
                None => continue,
            };
            for (orphan, id) in orphans {
                let _ = self.stack.tcp_abort(now, id);
                self.bury(place, orphan);
            }
        }
    }
}
