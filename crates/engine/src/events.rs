//! Delivery of stack events to clients: levels are written first, then one event for each endpoint,
//! after one fence for each lane and burst.

use shm::Status;
use shm::engine_side::EngineLane;
use stack::api::{Event, SocketId, SocketKind, TcpLevels, TcpState};

use crate::endpoint::{Endpoint, Role};
use crate::errno;
use crate::sessions::Holder;
use crate::worker::{Activity, Worker};

impl Worker {
    /// Processes the stack's events. Bounded by the number of sockets: at most one event is queued
    /// for each.
    pub(crate) fn take_events(&mut self, activity: &mut Activity) {
        self.take_message_events(activity);
        for _ in 0..self.limits.events_per_turn {
            let Some(event) = self.stack.poll_event() else {
                if std::mem::take(&mut self.sessions.sweep_stash) {
                    let stack = &self.stack;
                    self.sessions.stash.sweep(|id| stack.tcp_levels(id).is_ok());
                }
                return;
            };
            activity.served += 1;
            match event.kind {
                SocketKind::Connection => self.on_connection_event(event),
                SocketKind::Listener => {
                    if let Holder::Listener(index) = Holder::of(event.owner) {
                        self.refuse_queued(index);
                        self.on_pending(index, true);
                    }
                }
                SocketKind::Udp => self.on_udp_event(event),
            }
        }
        activity.more = true;
    }

    fn on_connection_event(&mut self, event: Event) {
        match Holder::of(event.owner) {
            Holder::Endpoint { place, index } => {
                if let Ok(levels) = self.stack.tcp_levels(event.id) {
                    self.show_levels(place, index, event.id, &levels);
                }
            }
            Holder::Orphan { place, orphan } => match self.stack.tcp_levels(event.id) {
                Ok(levels) => {
                    if let Some(session) = self.sessions.at(place) {
                        session.on_orphan_acked(orphan, levels.acked);
                    }
                }
                // Its slot may have been reused.
                Err(_) if self.is_orphan(place, orphan, event.id) => self.bury(place, orphan),
                Err(_) => {}
            },
            Holder::Nobody => {
                if self.stack.tcp_levels(event.id).is_err() {
                    self.sessions.stash.take(event.id);
                }
            }
            Holder::Listener(_) | Holder::Messages => {}
        }
    }

    /// Writes a connection's levels to its endpoint, and marks it if they changed.
    pub(crate) fn show_levels(&mut self, place: u32, index: u32, id: SocketId, levels: &TcpLevels) {
        let (now, unsent_most) = (self.now, self.tcp.unsent_low_water);
        let Some(session) = self.sessions.at(place) else { return };
        match session.endpoints.get(index as usize) {
            Some(Endpoint { role: Role::Stream(stream), .. }) if stream.id == id => {}
            _ => return,
        }
        // A connection that is over sends nothing more, acknowledged or not.
        let needed_from = match levels.state {
            TcpState::Closed => u64::MAX,
            _ => levels.acked,
        };
        let room = session.free_acked(index, needed_from);
        let Some(Endpoint { view, role: Role::Stream(stream), .. }) =
            session.endpoints.get_mut(index as usize)
        else {
            return;
        };
        let mut news = false;
        let mut sent = false;
        if levels.receive_window != stream.receive.window {
            stream.receive.window = levels.receive_window;
            session.promises.note(&mut stream.receive.promise, levels.receive_window);
        }
        if levels.send_room != stream.send.room {
            stream.send.room = levels.send_room;
            view.set_send_room(levels.send_room);
        }
        // Before `readable`, so that whoever sees the urgent byte sees that it is urgent.
        if let Some(urgent) = levels.urgent
            && stream.urgent != urgent
        {
            stream.urgent = urgent;
            view.set_urgent(urgent.end(), urgent.byte());
            news = true;
        }
        if levels.readable > stream.receive.readable {
            stream.receive.readable = levels.readable;
            if let Some(arrivals) = &mut stream.receive.arrivals {
                arrivals.note(levels.readable, now.0, stream.receive.consumed);
            }
            if stream.receive.deaf {
                // Failure is fine: then no room is needed.
                let _ = self.stack.tcp_consumed(now, id, levels.readable);
                stream.receive.consumed = levels.readable;
            } else {
                // Before `readable`, so that a client that sees `readable` sees this.
                view.set_wanted(stream.receive.wanted());
                view.set_readable(levels.readable);
                news = true;
                // The sweep of this turn ran before this and requested less.
                if !stream.receive.pages.is_empty() && !stream.receive.is_unswept {
                    stream.receive.is_unswept = true;
                    session.unswept.push(index);
                }
            }
        }
        if levels.acked > stream.send.acked {
            stream.send.acked = levels.acked;
            view.set_acked(levels.acked);
            sent = true;
        }
        let unsent_most = match levels.unsent_low_water {
            0 => unsent_most,
            most => most,
        };
        let mut status = status_of(levels);
        if levels.frame_bytes != stream.send.frame_bytes || unsent_most != stream.send.unsent_most {
            stream.send.frame_bytes = levels.frame_bytes;
            view.limit_unsent(unsent_most, levels.frame_bytes);
        }
        if unsent_most != u32::MAX {
            status |= Status::UNSENT_LIMITED;
            stream.send.sent = stream.send.sent.max(levels.sent);
            view.set_sent(stream.send.sent);
        }
        if unsent_most != stream.send.unsent_most {
            stream.send.unsent_most = unsent_most;
            news = true;
        }
        if status != stream.status {
            stream.status = status;
            let error = levels.error.map_or(0, |error| errno::number(errno::of_connection(error)));
            view.set_status(status, error);
            news = true;
        }
        if news || sent {
            stream.urgent_news |= news;
            self.sessions.note_news(place, index);
        }
        if room {
            self.serve_endpoint(place, index);
        }
    }

    fn on_udp_event(&mut self, event: Event) {
        let Holder::Endpoint { place, index } = Holder::of(event.owner) else { return };
        let Ok(levels) = self.stack.udp_take_levels(event.id) else { return };
        let Some(error) = levels.error else { return };
        if let Some(Endpoint { view, role: Role::Datagram(datagram), .. }) =
            self.sessions.at(place).and_then(|s| s.endpoints.get_mut(index as usize))
            && datagram.id == event.id
        {
            view.raise_error(Status::ERROR, errno::number(errno::of_datagram(error)));
            self.sessions.note_news(place, index);
        }
    }

    /// Publishes how many connections wait at a listener, and wakes all its endpoints for a new
    /// one: the engine cannot know which of them accepts (a worker process, but not the master that
    /// forked it). A program without buffers for another connection is shown none, because it would
    /// fail to accept it over and over; `retry` shows them when buffers have returned.
    pub(crate) fn on_pending(&mut self, index: u32, wake: bool) {
        let Some(listener) = self.listeners.at(index) else { return };
        let pending = self.stack.tcp_pending(listener.id).unwrap_or(0);
        listener.pending = pending;
        let sharers = listener.attached().len() as u32;
        let least = self.limits.accept_buffers();
        for (place, index) in listener.attached() {
            let Some(session) = self.sessions.at(*place) else { continue };
            let Some(endpoint) = session.endpoints.get_mut(*index as usize) else { continue };
            let hidden = pending > 0 && session.pool.free() < least;
            let shown = if hidden { 0 } else { pending };
            if hidden && !session.waiting_to_accept.contains(index) {
                session.waiting_to_accept.push(*index);
                self.due.retry.insert(*place);
            }
            endpoint.view.set_pending(shown, sharers);
            if wake && shown > 0 {
                self.sessions.note_news(*place, *index);
            }
        }
    }

    /// Publishes the events of endpoints with news.
    pub(crate) fn publish(&mut self) {
        if self.sessions.news.is_empty() && self.recheck.is_empty() {
            return;
        }
        let mut news = std::mem::take(&mut self.sessions.news);
        // One fence orders all levels written in this turn before the reads that follow.
        EngineLane::begin_events();
        for (place, index) in news.drain(..) {
            let Some(session) = self.sessions.at(place) else { continue };
            let crate::session::Session { endpoints, lanes, .. } = session;
            let Some(endpoint) = endpoints.get_mut(index as usize) else { continue };
            if !std::mem::take(&mut endpoint.has_news) {
                continue;
            }
            if let Role::Stream(stream) = &mut endpoint.role {
                // Send progress alone is reported only to a client that waits for it.
                let told = std::mem::take(&mut stream.urgent_news);
                let taken = std::mem::take(&mut stream.send.taken_news);
                let due = endpoint.view.is_wish_due(stream.send.acked, taken);
                let room = stream.send.has_new_room();
                let waits = endpoint.view.waits_for_room();
                if waits != stream.send.waits_for_room {
                    stream.send.waits_for_room = waits;
                    // A connection that is gone waits for nothing.
                    let _ = self.stack.tcp_wait_for_room(self.now, stream.id, waits);
                }
                if !told && !due && !room {
                    continue;
                }
            }
            if let Role::Messages(messages) = &mut endpoint.role {
                // Room for commands alone is reported only to a client that waits for it.
                let told = std::mem::take(&mut messages.has_completions);
                let taken = std::mem::take(&mut messages.taken);
                if !endpoint.view.is_wish_due(messages.commands, taken) && !told {
                    continue;
                }
            }
            let Some(lane) = lanes.get_mut(usize::from(endpoint.lane)) else { continue };
            // An honest client's ring has room for every endpoint. A client that corrupts its own
            // ring loses only its own events.
            lane.view.push_event(index);
            lane.to_finish = true;
            self.due.finish.insert(place);
            self.counters.events.increment();
        }
        self.sessions.news = news;
        for (place, index) in std::mem::take(&mut self.recheck) {
            self.learn_consumed(place, index);
        }
    }
}

/// The status for a client.
fn status_of(levels: &TcpLevels) -> Status {
    let mut status = Status::empty();
    match levels.state {
        TcpState::SynSent if levels.awaits_data => status |= Status::AWAITS_DATA,
        TcpState::SynSent | TcpState::SynReceived => {}
        TcpState::Closed => status |= Status::HANGUP | Status::PEER_CLOSED | Status::CONNECTED,
        TcpState::TimeWait | TcpState::Closing | TcpState::LastAck => {
            status |= Status::CONNECTED | Status::HANGUP;
        }
        _ => status |= Status::CONNECTED,
    }
    let has_ended = matches!(levels.state, TcpState::Closed | TcpState::TimeWait);
    status.set(Status::ENDED, has_ended);
    status.set(Status::END_ACKED, has_ended || levels.state == TcpState::FinWait2);
    if levels.peer_closed {
        status |= Status::PEER_CLOSED;
    }
    if levels.error.is_some() {
        status |= Status::ERROR;
    }
    status.set(Status::WINDOW_USED, levels.window_used);
    status.set(Status::STAMPS_WAIT, levels.stamps > 0);
    status
}
