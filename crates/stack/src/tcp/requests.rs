//! What owners ask for.

use std::net::{IpAddr, SocketAddr};

use wire::tcp::SeqNumber;

use super::connection::{
    Cold, Connection, Hot, NEVER, Phase, SendTimer, Sequel, Shared, Step, levels,
};
use super::flow::FlowSlot;
use super::listener::{LISTENER_BIT, ListenError};
use super::shape::Hold;
use super::stamps::Stamp;
use super::tables::{Opening, Tcp};
use super::{Accepted, TcpDetails, TcpInfo};
use crate::api::{
    Instant, Local, Owner, RequestError, SocketId, SocketKind, TcpConnect, TcpError, TcpLevels,
    TcpOptions, TcpState,
};
use crate::route::Route;

/// No stream is longer; offsets stay far from where arithmetic on them could overflow.
const STREAM_MAX: u64 = 1 << 60;
/// Ports looked at before an active open is refused, and how many of them in a row: connections that
/// were opened one after the other hold long rows.
const PORT_TRIES: u32 = 4096;
const PORT_ROW: u32 = 64;

impl Tcp {
    /// Opens a connection; without `local`, or with port 0, a port is chosen.
    ///
    /// # Errors
    /// [`RequestError::AddressNotAvailable`] if no port is free for the remote;
    /// [`RequestError::AddressInUse`] if a connection has this pair of addresses already;
    /// [`RequestError::LimitReached`] if the table is full.
    pub fn connect(
        &mut self,
        now: Instant,
        route: &Route,
        connect: TcpConnect,
    ) -> Result<SocketId, RequestError> {
        let TcpConnect { remote, local, options, owner } = connect;
        let wanted = local.unwrap_or(SocketAddr::new(route.source, 0));
        let ip = if wanted.ip().is_unspecified() { route.source } else { wanted.ip() };
        let (port, reused) = match wanted.port() {
            0 => self.choose_port(now, ip, remote, route.connect_ports)?,
            port => {
                let reused = self.take_place(now, SocketAddr::new(ip, port), remote);
                (port, reused.ok_or(RequestError::AddressInUse)?)
            }
        };
        let local = SocketAddr::new(ip, port);
        let index = self.allocate().ok_or(RequestError::LimitReached)?;
        let iss = reused.unwrap_or_else(|| SeqNumber(self.shared.keys.isn(now, local, remote)));
        let Shared { servers, settings, .. } = &self.shared;
        let begun = servers.begin(now, remote.ip(), &options, settings.fast_open);
        let waits = begun.is_some_and(|begun| begun.waits);
        let options = self.shared.options.follow(options.on_route(route.metrics));
        let mut cold = Cold::new(local, remote, options, route.mtu);
        cold.fast_opened = begun.is_some();
        cold.fast_open = begun.map(Box::new);
        let state = TcpState::SynSent;
        self.install(now, index, Opening { cold, state, route, iss, owner });
        if waits {
            self.with(now, index, |connection, _| {
                connection.hot.syn_due = false;
                connection.stop_send_timer();
            });
        }
        self.shared.counters.active_opens += 1;
        let generation = self.hot.get(index as usize).map_or(0, |h| h.generation);
        Ok(SocketId { index, generation })
    }

    /// An ephemeral port that makes a new flow; with the initial sequence number when it takes a
    /// port over from TIME-WAIT.
    //= https://www.rfc-editor.org/rfc/rfc6056#section-3.3.3
    //# offset = F(local_IP, remote_IP, remote_port, secret_key);
    fn choose_port(
        &mut self,
        now: Instant,
        ip: IpAddr,
        remote: SocketAddr,
        range: Option<(u16, u16)>,
    ) -> Result<(u16, Option<SeqNumber>), RequestError> {
        let (first, last) = range.unwrap_or(self.ports);
        let count = u32::from(last.saturating_sub(first)) + 1;
        //= https://www.rfc-editor.org/rfc/rfc6056#section-3.3
        //# Ephemeral port selection algorithms SHOULD obfuscate the selection of their ephemeral
        //# ports, since this helps to mitigate a number of attacks that depend on the attacker's
        //# ability to guess or know the five-tuple that identifies the transport-protocol instance
        //# to be attacked.
        let offset = self.shared.keys.port_offset(ip, remote);
        // The rows lie over the whole range.
        let gap = (count / (PORT_TRIES / PORT_ROW)).saturating_sub(PORT_ROW);
        for tried in 1..=PORT_TRIES.min(count) {
            let step = offset.wrapping_add(self.next_port) % count;
            let onward = if tried.is_multiple_of(PORT_ROW) { gap + 1 } else { 1 };
            self.next_port = self.next_port.wrapping_add(onward);
            // Within first..=last by the modulus.
            let port = first.wrapping_add(step as u16);
            let local = SocketAddr::new(ip, port);
            //= https://www.rfc-editor.org/rfc/rfc6056#section-3.2
            //# As a result, port numbers that may be needed for providing a particular service at
            //# the local host SHOULD NOT be included in the pool of port numbers available for
            //# ephemeral port randomization.
            if self.listeners.uses(local) {
                continue;
            }
            if let Some(reused) = self.take_place(now, local, remote) {
                return Ok((port, reused));
            }
        }
        self.shared.counters.ports_exhausted += 1;
        Err(RequestError::AddressNotAvailable)
    }

    /// Whether a flow may be opened; with the initial sequence number when it takes the place of
    /// one in TIME-WAIT, which ends.
    fn take_place(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Option<Option<SeqNumber>> {
        match self.flow_slot(local, remote) {
            None => Some(None),
            // As tcp_tw_reuse: where timestamps tell old segments from new ones.
            Some(FlowSlot::TimeWait(slot)) => {
                let iss = self.time_waits.reusable(now, slot)?;
                self.end_time_wait(slot);
                self.shared.counters.time_wait_reuses += 1;
                Some(Some(iss))
            }
            Some(FlowSlot::Connection(_)) => None,
        }
    }

    /// Listens at an address and port.
    ///
    /// # Errors
    /// [`RequestError::AddressInUse`] if another listener has the address;
    /// [`RequestError::LimitReached`] if the table of listeners is full.
    pub fn listen(
        &mut self,
        local: impl Into<Local>,
        backlog: u32,
        options: TcpOptions,
        owner: Owner,
    ) -> Result<SocketId, RequestError> {
        let backlog = backlog.min(self.accept_queue_max);
        self.listeners.insert(local.into(), backlog, options, owner).map_err(|error| match error {
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.1
            //# Every passive OPEN call either creates a new connection record in LISTEN state, or
            //# it returns an error; it MUST NOT affect any previously created connection record
            //# (MUST-41).
            ListenError::InUse => RequestError::AddressInUse,
            ListenError::Limit => RequestError::LimitReached,
        })
    }

    /// Has a listener listen with another backlog; who waits already goes on waiting.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `listener` names no listener.
    pub fn set_backlog(&mut self, listener: SocketId, backlog: u32) -> Result<(), RequestError> {
        let entry = self.listeners.listener_mut(listener).ok_or(RequestError::Stale)?;
        entry.backlog = backlog.min(self.accept_queue_max);
        Ok(())
    }

    /// Whether a listener takes no SYN: those that come are dropped in silence. Connections that have
    /// begun go on, and wait to be accepted.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `listener` names no listener.
    pub fn set_shut(&mut self, listener: SocketId, is_shut: bool) -> Result<(), RequestError> {
        let entry = self.listeners.listener_mut(listener).ok_or(RequestError::Stale)?;
        entry.is_shut = is_shut;
        Ok(())
    }

    /// Takes the oldest connection that waits.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `listener` names no listener.
    pub fn accept(&mut self, listener: SocketId) -> Result<Option<Accepted>, RequestError> {
        let entry = self.listeners.listener_mut(listener).ok_or(RequestError::Stale)?;
        while let Some(id) = entry.queue.pop_front() {
            let (hot, cold) = (&mut self.hot, &mut self.cold);
            let hot = hot.get_mut(id.index as usize);
            let hot = hot.filter(|hot| hot.used && hot.generation == id.generation);
            if let (Some(hot), Some(cold)) = (hot, cold.get_mut(id.index as usize)) {
                cold.listener = None;
                // Its owner says what there is memory for.
                hot.rcv_ceiling = u32::MAX;
                return Ok(Some(Accepted {
                    id,
                    local: cold.local.address(),
                    remote: cold.remote.address(),
                }));
            }
        }
        Ok(None)
    }

    /// How many connections wait to be accepted.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `listener` names no listener.
    pub fn pending(&self, listener: SocketId) -> Result<u32, RequestError> {
        let entry = self.listeners.listener(listener).ok_or(RequestError::Stale)?;
        Ok(u32::try_from(entry.queue.len()).unwrap_or(u32::MAX))
    }

    /// Gives a connection or listener to an owner, who gets an event.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names neither a connection nor a listener.
    pub fn assign(&mut self, id: SocketId, owner: Owner) -> Result<(), RequestError> {
        if id.index & LISTENER_BIT != 0 {
            self.listeners.listener_mut(id).ok_or(RequestError::Stale)?.owner = owner;
            return Ok(());
        }
        let index = self.slot(id)?;
        if let Some(hot) = self.hot.get_mut(index as usize) {
            hot.owner = owner;
        }
        self.push_event(index);
        Ok(())
    }

    /// What is written up to `end` does not share a segment with what follows.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection.
    pub fn end_record(&mut self, now: Instant, id: SocketId, end: u64) -> Result<(), RequestError> {
        let index = self.slot(id)?;
        self.with(now, index, |connection, step| connection.end_record(step, end));
        Ok(())
    }

    /// Asks when the byte before `end`, which is not written yet, is sent and acknowledged:
    /// [`SCHEDULED`](super::SCHEDULED), [`SENT`](super::SENT), [`ACKED`](super::ACKED) together.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection.
    pub fn stamp(
        &mut self,
        now: Instant,
        id: SocketId,
        end: u64,
        kinds: u8,
    ) -> Result<(), RequestError> {
        let index = self.slot(id)?;
        self.with(now, index, |connection, step| connection.stamp(step, end, kinds));
        Ok(())
    }

    /// Takes the oldest of the times that were asked for.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection.
    pub fn take_stamp(&mut self, id: SocketId) -> Result<Option<Stamp>, RequestError> {
        let index = self.slot(id)? as usize;
        let stamps = self.cold.get_mut(index).and_then(Cold::stamps_mut);
        Ok(stamps.and_then(|stamps| stamps.take()))
    }

    /// The send stream now reaches to `end`; `more` is to follow.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection; [`RequestError::State`] if its sending
    /// direction is closed.
    pub fn written(
        &mut self,
        now: Instant,
        id: SocketId,
        end: u64,
        more: bool,
    ) -> Result<(), RequestError> {
        let index = self.slot(id)?;
        self.with(now, index, |connection, step| {
            let may_write = connection.hot.state.may_write();
            if !may_write || connection.cold.sequel != Sequel::Open || end > STREAM_MAX {
                return Err(RequestError::State);
            }
            if end > connection.hot.written {
                connection.note_lack_of_data();
                connection.on_written(step, end, more);
                connection.release_syn(step);
            }
            Ok(())
        })
        .unwrap_or(Err(RequestError::Stale))
    }

    /// A SYN that waits for data goes without any.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection.
    pub fn open_now(&mut self, now: Instant, id: SocketId) -> Result<(), RequestError> {
        let index = self.slot(id)?;
        self.with(now, index, |connection, step| connection.release_syn(step))
            .ok_or(RequestError::Stale)
    }

    /// The byte before `end` of the send stream is urgent. To be said before
    /// [`written`](Self::written) reaches so far, so that the first segment can tell it.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection; [`RequestError::State`] if its sending
    /// direction is closed, or the peer has acknowledged the byte.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.5
    //# However, TCP implementations MUST still include support for the urgent mechanism (MUST-30).
    //= https://www.rfc-editor.org/rfc/rfc6093#section-5
    //# However, TCP implementations MUST still include support for the urgent mechanism such that
    //# existing applications can still use it.
    pub fn urge(&mut self, now: Instant, id: SocketId, end: u64) -> Result<(), RequestError> {
        let index = self.slot(id)?;
        self.with(now, index, |connection, step| {
            let hot = &mut *connection.hot;
            if !hot.state.may_write() || end <= hot.una || end > STREAM_MAX {
                return Err(RequestError::State);
            }
            connection.cold.rare_mut().urge_end = end;
            hot.urging = true;
            step.ready = true;
            Ok(())
        })
        .unwrap_or(Err(RequestError::Stale))
    }

    /// The owner has read up to `end`.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection.
    pub fn consumed(&mut self, now: Instant, id: SocketId, end: u64) -> Result<(), RequestError> {
        let index = self.slot(id)?;
        self.with(now, index, |connection, step| connection.on_consumed(step, end));
        Ok(())
    }

    /// The owner has memory for a receive window of `ceiling` bytes; it says so before
    /// [`consumed`](Self::consumed), which may make the window larger.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection.
    pub fn limit_window(&mut self, id: SocketId, ceiling: u32) -> Result<(), RequestError> {
        let index = self.slot(id)? as usize;
        if let (Some(hot), Some(cold)) = (self.hot.get_mut(index), self.cold.get_mut(index)) {
            Connection { id, hot, cold }.limit_window(ceiling);
        }
        Ok(())
    }

    /// Closes the sending direction once everything written is sent.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection; [`RequestError::State`] if it has
    /// ended.
    pub fn shutdown(&mut self, now: Instant, id: SocketId) -> Result<(), RequestError> {
        let index = self.slot(id)?;
        self.with(now, index, |connection, step| {
            if connection.hot.state == TcpState::Closed {
                return Err(RequestError::State);
            }
            connection.shutdown(step);
            Ok(())
        })
        .unwrap_or(Err(RequestError::Stale))
    }

    /// Lets go of a connection or listener. A connection lives on by itself until what was
    /// written is delivered; an event says when its id has become stale.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names neither a connection nor a listener.
    pub fn close(&mut self, now: Instant, id: SocketId) -> Result<(), RequestError> {
        if id.index & LISTENER_BIT != 0 {
            return self.close_listener(now, id);
        }
        self.end(now, id, |connection, step| connection.close(step))
    }

    /// Lets go of a connection that ends with a reset. What was written before goes out first, as far as
    /// windows permit; an event says when the id has become stale.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection.
    pub fn close_with_reset(&mut self, now: Instant, id: SocketId) -> Result<(), RequestError> {
        self.end(now, id, |connection, step| connection.close_with_reset(step))
    }

    fn end(
        &mut self,
        now: Instant,
        id: SocketId,
        close: impl FnOnce(&mut Connection<'_>, &mut Step<'_>),
    ) -> Result<(), RequestError> {
        let index = self.slot(id)?;
        self.with(now, index, close);
        // Dead before, or in TIME-WAIT: nothing is left that could end it later.
        let ended = self
            .hot
            .get(index as usize)
            .is_some_and(|hot| hot.used && hot.generation == id.generation && hot.state.is_over());
        if ended {
            self.release(index);
        }
        Ok(())
    }

    fn close_listener(&mut self, now: Instant, id: SocketId) -> Result<(), RequestError> {
        let listener = self.listeners.remove(id).ok_or(RequestError::Stale)?;
        for child in listener.queue {
            if self.slot(child).is_ok() {
                self.drop_child(now, child.index, |child, step| child.abort(step));
            }
        }
        if listener.half_open > 0 {
            // Closing a listener is rare; it is the one place that looks through the table.
            for index in 0..self.hot.len() as u32 {
                let child = self
                    .cold
                    .get(index as usize)
                    .is_some_and(|c| c.half_open && c.listener == Some(id));
                if child && self.hot.get(index as usize).is_some_and(|h| h.used) {
                    // As Linux: a peer without an answer asks again, and is refused then.
                    self.drop_child(now, index, |child, step| child.die(step, TcpError::Aborted));
                }
            }
        }
        Ok(())
    }

    /// Ends a connection that nobody will accept any more.
    fn drop_child(
        &mut self,
        now: Instant,
        index: u32,
        end: impl FnOnce(&mut Connection<'_>, &mut Step<'_>),
    ) {
        if let Some(hot) = self.hot.get_mut(index as usize) {
            hot.orphan = true;
        }
        self.with(now, index, end);
        // One that had died in the queue already.
        if self.hot.get(index as usize).is_some_and(|h| h.used && h.orphan) {
            self.release(index);
        }
    }

    /// Resets a connection; its id stays until [`close`](Self::close).
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection.
    pub fn abort(&mut self, now: Instant, id: SocketId) -> Result<(), RequestError> {
        let index = self.slot(id)?;
        self.with(now, index, |connection, step| connection.abort_with(step, TcpError::Aborted));
        Ok(())
    }

    /// Changes options; a listener's hold for connections that it makes from now on.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names neither a connection nor a listener.
    pub fn set_options(
        &mut self,
        now: Instant,
        id: SocketId,
        options: TcpOptions,
    ) -> Result<(), RequestError> {
        if id.index & LISTENER_BIT != 0 {
            let listener = self.listeners.listener_mut(id).ok_or(RequestError::Stale)?;
            listener.options = options.into();
            return Ok(());
        }
        let index = self.slot(id)?;
        self.with(now, index, |connection, step| {
            let mut options = options;
            if connection.hot.state.is_synchronized() {
                // As in Linux, TCP_MAXSEG counts only while the connection is opened.
                options.maxseg = connection.cold.options.maxseg;
            }
            let before = connection.cold.congestion.kind();
            let patience = connection.patience();
            connection.cold.set_options(connection.hot, step.shared.options.follow(options));
            connection.equip(&step.shared.settings);
            if before != options.congestion && connection.hot.state.is_synchronized() {
                connection.start_algorithm(now, &step.shared.settings);
            }
            if !connection.hot.is_opening() && connection.hot.state != TcpState::Closed {
                connection.update_mss();
            }
            connection.tell_if_changed(patience);
            connection.restart_keepalive(now);
            // What Nagle or TCP_CORK held may go now.
            step.ready = true;
        });
        Ok(())
    }

    /// Options of a connection or listener.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names neither a connection nor a listener.
    pub fn options(&self, id: SocketId) -> Result<&TcpOptions, RequestError> {
        if id.index & LISTENER_BIT != 0 {
            return Ok(&self.listeners.listener(id).ok_or(RequestError::Stale)?.options);
        }
        let index = self.slot(id)?;
        Ok(&self.cold.get(index as usize).ok_or(RequestError::Stale)?.options)
    }

    /// Sends what is held back, as when TCP_NODELAY is set, also where TCP_CORK is.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection.
    pub fn push(&mut self, now: Instant, id: SocketId) -> Result<(), RequestError> {
        let index = self.slot(id)?;
        self.with(now, index, |connection, step| {
            connection.hot.hold = Hold::Push;
            step.ready = true;
        });
        Ok(())
    }

    /// TCP_QUICKACK, which does not last: acknowledgements wait for something to ride on, or go at
    /// once, until the traffic says otherwise.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection.
    pub fn set_quickack(
        &mut self,
        now: Instant,
        id: SocketId,
        on: bool,
    ) -> Result<(), RequestError> {
        let index = self.slot(id)?;
        self.with(now, index, |connection, step| {
            connection.hot.interactive = !on;
            if on && connection.hot.ack_at != NEVER {
                connection.owe_ack(step);
            }
        });
        Ok(())
    }

    /// Where a connection stands.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection.
    pub fn levels(&self, id: SocketId) -> Result<TcpLevels, RequestError> {
        let index = self.slot(id)? as usize;
        match (self.hot.get(index), self.cold.get(index)) {
            (Some(hot), Some(cold)) => Ok(levels(hot, cold, &self.shared.settings)),
            _ => Err(RequestError::Stale),
        }
    }

    /// For how long a connection has waited for its peer alone, if it does: for a window, for answers
    /// that have stayed away, or for a FIN.
    pub fn stalled_ns(&self, now: Instant, id: SocketId) -> Option<u64> {
        let index = self.slot(id).ok()? as usize;
        let (hot, cold) = (self.hot.get(index)?, self.cold.get(index)?);
        let since = match hot.send_timer {
            // Not probed yet.
            SendTimer::Persist if cold.stuck_since == NEVER => now.0,
            SendTimer::Persist => cold.stuck_since,
            _ if cold.retries > 0 => cold.stuck_since,
            _ if hot.state == TcpState::FinWait2 => now.0,
            _ => return None,
        };
        Some(now.0.saturating_sub(since))
    }

    /// What `ss` shows.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names neither a connection nor a listener.
    pub fn info(&self, id: SocketId) -> Result<TcpInfo, RequestError> {
        if id.index & LISTENER_BIT != 0 {
            let listener = self.listeners.listener(id).ok_or(RequestError::Stale)?;
            return Ok(TcpInfo {
                kind: SocketKind::Listener,
                owner: listener.owner,
                local: listener.local,
                remote: None,
                state: TcpState::Closed,
                receive_queue: listener.queue.len() as u64,
                send_queue: u64::from(listener.backlog),
                cwnd: 0,
                ssthresh: 0,
                srtt_ns: 0,
                rttvar_ns: 0,
                rto_ns: 0,
                retransmits: 0,
                mss: 0,
                send_window: 0,
                mtu: 0,
                more: TcpDetails::default(),
            });
        }
        let index = self.slot(id)? as usize;
        let (Some(hot), Some(cold)) = (self.hot.get(index), self.cold.get(index)) else {
            return Err(RequestError::Stale);
        };
        Ok(TcpInfo {
            kind: SocketKind::Connection,
            owner: hot.owner,
            local: cold.local.address(),
            remote: Some(cold.remote.address()),
            state: match hot.state {
                TcpState::Established if hot.syn_unacked => TcpState::SynReceived,
                state => state,
            },
            receive_queue: hot.readable().saturating_sub(hot.consumed),
            send_queue: hot.written.saturating_sub(hot.una.min(hot.written)),
            cwnd: hot.window.cwnd,
            ssthresh: hot.window.ssthresh,
            srtt_ns: hot.rtt.srtt_ns().unwrap_or(0),
            rttvar_ns: hot.rtt.rttvar_ns(),
            rto_ns: hot.rtt.rto_ns(),
            retransmits: cold.retransmits().into(),
            mss: hot.mss,
            send_window: hot.snd_wnd,
            mtu: cold.mtu,
            more: details(hot, cold),
        })
    }

    /// How many places [`Tcp::id_at`] has now; more may come.
    pub fn places(&self) -> usize {
        self.listeners.limit() + self.hot.len()
    }

    /// The local address of the connection at a place of [`Tcp::id_at`], if there is one.
    pub fn connection_at(&self, place: usize) -> Option<SocketAddr> {
        let index = place.checked_sub(self.listeners.limit())?;
        self.hot.get(index).filter(|hot| hot.used)?;
        Some(self.cold.get(index)?.local.address())
    }

    /// How many places [`Self::time_wait_at`] has.
    pub fn time_wait_places(&self) -> usize {
        self.time_waits.places()
    }

    /// The local address of the connection in TIME-WAIT at a place.
    pub fn time_wait_at(&self, place: usize) -> Option<SocketAddr> {
        self.time_waits.entry(u32::try_from(place).ok()?).map(|entry| entry.local)
    }

    /// The listener or connection at a place. Each keeps its own as long as it lives: listeners
    /// have the first, as many as there may be, then come the connections.
    pub fn id_at(&self, place: usize) -> Option<SocketId> {
        let Some(index) = place.checked_sub(self.listeners.limit()) else {
            return self.listeners.id_at(place);
        };
        let hot = self.hot.get(index).filter(|hot| hot.used)?;
        Some(SocketId { index: index as u32, generation: hot.generation })
    }
}

fn details(hot: &Hot, cold: &Cold) -> TcpDetails {
    let is_scaled = hot.snd_scale != 0 || hot.rcv_scale != 0;
    TcpDetails {
        // What is sent to ask for the window is no retransmission.
        retries: if hot.send_timer == SendTimer::Persist { 0 } else { cold.retries },
        ecn: hot.ecn.is_agreed() && !hot.is_opening(),
        ecn_seen: hot.ecn.is_seen(),
        congestion: cold.congestion.kind(),
        pacing_rate: cold.pacer.as_ref().map(|pacer| pacer.rate),
        delivery_rate: cold.rate.as_ref().map(|rate| rate.last),
        is_recovering: hot.phase == Phase::Recovery,
        is_lossy: hot.phase == Phase::Loss,
        timestamps: hot.timestamps,
        sack: hot.sack,
        scales: is_scaled.then_some((hot.snd_scale, hot.rcv_scale)),
        outstanding: hot.flight(),
        sacked: cold.scoreboard.sacked_bytes(),
        lost: cold.scoreboard.found_lost_bytes(),
        is_reducing: hot.ecn.is_reducing(),
        receive_mss: hot.rcv_mss,
        advertised_mss: cold.advertised_mss(),
        syn_data: cold.syn_data,
        interactive: hot.interactive,
        user_timeout_ns: cold.user_timeout_ns(hot),
        peer_user_timeout_s: cold.remote_uto().map(|remote| remote.told_s),
    }
}
