//! Requests of clients, on a lane or through the control thread.

mod groups;
mod memory;
mod options;

use std::net::SocketAddr;

use port::Claim;
use rustix::io::Errno;
use shm::request::{
    Addresses, ConnectOptions, LEFT_TO_KERNEL, OptionName, Reply, Request, SEND_EDGE_PARTED, Stamp,
};
use stack::api::{
    CongestionKind, Local, Sharing, SocketId, SourceChange, TcpConnect, TcpLevels, TcpOptions,
};
use stack::tcp::FastOpenKeys;

use crate::claims::places;
use crate::control::authority::Refusal;
use crate::control::exchange::{ContextKey, SessionKey, Shown, SocketKey};
use crate::endpoint::{Datagram, Endpoint, EndpointSocket, Role, Stream};
use crate::errno;
use crate::listener::SHARERS_MAX;
use crate::session::{Authorized, TOKENS_MAX};
use crate::sessions::Holder;
use crate::share::{Entry, Full, Shared, Tallies, Tally};
use crate::shown::Use;
use crate::worker::{Activity, Worker};
use options::{apply, apply_to_datagrams, value};

/// Least receive buffer, bytes: half of Linux's SOCK_MIN_RCVBUF.
const RECEIVE_LIMIT_MIN: u32 = 1152;

/// A lane of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LaneRef {
    /// Place of the session.
    pub place: u32,
    /// The lane.
    pub lane: u16,
}

fn failed(errno: Errno) -> Reply {
    Reply::Failed { errno: errno::number(errno) }
}

fn refusal(errno: Errno, reason: impl Into<String>) -> Refusal {
    Refusal { errno: errno.raw_os_error(), reason: reason.into() }
}

fn session_ended() -> Refusal {
    refusal(Errno::BADF, "the session has ended")
}

fn errno_of(refusal: Refusal) -> Errno {
    Errno::from_raw_os_error(refusal.errno)
}

fn not_claimed(local: SocketAddr, error: &std::io::Error) -> Refusal {
    refusal(
        Errno::NOBUFS,
        format!("the XDP program has no room for more ports ({error}); the kernel serves {local}"),
    )
}

impl Worker {
    pub(crate) fn endpoint(&mut self, place: u32, index: u32) -> Option<&mut Endpoint> {
        self.sessions.at(place)?.endpoints.get_mut(index as usize)
    }

    /// Serves an endpoint that rang.
    pub(crate) fn serve_endpoint(&mut self, place: u32, index: u32) {
        match self.endpoint(place, index).map(|endpoint| &endpoint.role) {
            Some(Role::Stream(_)) => self.serve_stream(place, index, false),
            Some(Role::Datagram(_)) => {
                if let Some(session) = self.sessions.at(place) {
                    session.learn_datagrams_consumed(index);
                }
                let mut activity = Activity::default();
                self.send_datagrams(place, index, &mut activity);
            }
            Some(&Role::Raw(slot)) => self.on_raw_doorbell(slot),
            Some(Role::Messages(_)) => self.serve_messages(place, index),
            // A doorbell that was pending while its endpoint was released.
            Some(Role::Listener(_) | Role::Revoked | Role::Moved | Role::Free) | None => {}
        }
    }

    /// Takes what a client has read and written; everything, if the endpoint is `leaving`.
    pub(crate) fn serve_stream(&mut self, place: u32, index: u32, leaving: bool) {
        let now = self.now;
        self.learn_consumed(place, index);
        let Some(session) = self.sessions.at(place) else { return };
        let taken = session.take_descriptors(index, leaving, &self.counters);
        if !session.waiting_for_span.is_empty() {
            self.due.retry.insert(place);
        }
        let Some(taken) = taken else { return };
        let Some(Endpoint { role: Role::Stream(stream), .. }) =
            session.endpoints.get_mut(index as usize)
        else {
            return;
        };
        if stream.send.is_cut && !leaving {
            // The resulting event informs the program.
            let _ = self.stack.tcp_abort(now, stream.id);
            return;
        }
        stream.send.taken_news = true;
        stream.send.room_told = false;
        let (id, shut) = (stream.id, std::mem::replace(&mut stream.send.shut, taken.fin));
        // A connection that has died meanwhile takes no more; its levels say so.
        if let Some(urgent) = taken.urgent {
            let _ = self.stack.tcp_urge(now, id, urgent);
        }
        for &end in &session.record_ends {
            let _ = self.stack.tcp_end_record(now, id, end);
        }
        for &(end, kinds) in &session.stamps {
            let _ = self.stack.tcp_stamp(now, id, end, kinds);
        }
        let _ = if taken.more {
            self.stack.tcp_written_more(now, id, taken.end)
        } else {
            self.stack.tcp_written(now, id, taken.end)
        };
        if taken.fin && !shut {
            let _ = self.stack.tcp_shutdown(now, id);
        }
        self.sessions.note_news(place, index);
    }

    /// Reports the client's read position to the stack, and requests the next doorbell. `true`: it
    /// has changed.
    pub(crate) fn learn_consumed(&mut self, place: u32, index: u32) -> bool {
        let now = self.now;
        let Some(session) = self.sessions.at(place) else { return false };
        let Some(consumed) = session.learn_consumed(index) else { return false };
        self.limit_window(place, index);
        let Some(session) = self.sessions.at(place) else { return false };
        let Some(Endpoint { view, role: Role::Stream(stream), .. }) =
            session.endpoints.get_mut(index as usize)
        else {
            return false;
        };
        // A connection that has died meanwhile needs no window; its levels say so.
        let _ = self.stack.tcp_consumed(now, stream.id, consumed);
        if let Ok(levels) = self.stack.tcp_levels(stream.id) {
            stream.receive.window = levels.receive_window;
            session.promises.note(&mut stream.receive.promise, levels.receive_window);
        }
        view.set_wanted(stream.receive.wanted());
        self.recheck.push((place, index));
        true
    }

    /// Limits the window in the stack to the session's memory.
    pub(crate) fn limit_window(&mut self, place: u32, index: u32) {
        let Some(session) = self.sessions.at(place) else { return };
        let ceiling = session.window_ceiling(index, self.now.0);
        if let Some(Endpoint { role: Role::Stream(stream), .. }) =
            session.endpoints.get(index as usize)
        {
            // A connection that has died meanwhile needs no window.
            let _ = self.stack.tcp_limit_window(stream.id, ceiling);
        }
    }

    pub(crate) fn serve_request(&mut self, from: LaneRef, request: Request) -> Reply {
        let place = from.place;
        let reply = match request {
            Request::Connect { remote, token, options } => {
                self.connect(from, remote, token, options)
            }
            Request::Accept { listener } => self.accept(from, listener),
            Request::Close { endpoint } => self.close(place, endpoint, false),
            Request::Abort { endpoint } => self.close(place, endpoint, true),
            Request::StopReceiving { endpoint } => self.stop_receiving(place, endpoint),
            Request::SetOption { endpoint, option, value } => {
                self.set_option(place, endpoint, option, value)
            }
            Request::Option { endpoint, option } => self.option(place, endpoint, option),
            Request::Info { endpoint } => self.info(place, endpoint),
            Request::Progress { endpoint } => self.progress(place, endpoint),
            Request::Rates { endpoint } => self.rates(place, endpoint),
            Request::Counts { endpoint } => self.counts(place, endpoint),
            Request::ConnectDatagram { endpoint, remote } => {
                self.connect_datagram(place, endpoint, remote)
            }
            Request::TakeStamp { endpoint } => self.take_stamp(place, endpoint),
            Request::Arrival { endpoint, end } => self.arrival(place, endpoint, end),
            Request::SetFastOpenKeys { endpoint, primary, backup } => {
                self.set_fast_open_keys(place, endpoint, primary, backup)
            }
            Request::SetGroup { endpoint, interface, group, excludes } => {
                self.set_group(place, endpoint, (interface, group), excludes)
            }
            Request::NameSource { endpoint, interface, group, source, is_named } => {
                let change = SourceChange { address: source, is_added: is_named };
                self.name_source(place, endpoint, (interface, group), change)
            }
            Request::SetKey { endpoint, part } => self.set_key(place, endpoint, &part),
        };
        match reply {
            Ok(reply) => reply,
            Err(errno) => {
                if errno != Errno::AGAIN {
                    self.counters.requests_failed.increment();
                }
                failed(errno)
            }
        }
    }

    pub(crate) fn grant_endpoint(&mut self, place: u32, lane: u16) -> Result<u32, Refusal> {
        let most = self.limits.endpoints_per_user;
        let session = self.sessions.at(place).ok_or_else(session_ended)?;
        if session.who.uid != 0 && session.of_user.endpoints.count() >= most {
            self.counters.endpoints_exhausted_of_user.increment();
            let full = Full::User { limit: most };
            let said = full.sentence("sockets", "sockets", "endpoints_per_user");
            return Err(refusal(Errno::NFILE, said));
        }
        if let Some(index) = session.grant_endpoint(lane) {
            self.refill_stock(place, lane);
            return Ok(index);
        }
        self.counters.endpoints_exhausted.increment();
        let capacity = self.limits.endpoints;
        Err(refusal(
            Errno::NFILE,
            format!(
                "the program has {capacity} sockets, as many as `endpoints` permits, or uses a \
                 context that it does not have; raise `endpoints` under [limits]"
            ),
        ))
    }

    /// Whether the user of a session may have one more entry of a shared table, by the tallies of
    /// the user and of all.
    fn admit(
        &self,
        place: u32,
        shared: Shared,
        tally: impl Fn(&Tallies) -> &Tally,
    ) -> Result<Entry, Option<Full>> {
        let session = self.sessions.peek(place).ok_or(None)?;
        let (of_user, of_all) = (tally(&session.of_user), tally(&session.of_all));
        shared.admit(session.who.uid, of_user.count(), of_all.count()).map_err(Some)?;
        Ok(Entry::new(of_user, of_all))
    }

    fn admit_listener(&self, place: u32) -> Result<Entry, Refusal> {
        let (total, per_user) = (self.limits.listeners, self.limits.listeners_per_user);
        let admitted = self.admit(place, Shared { total, per_user }, |of| &of.listeners);
        admitted.map_err(|full| {
            let Some(full) = full else { return session_ended() };
            self.counters.listeners_refused.increment();
            refusal(Errno::NOBUFS, full.sentence("listeners", "listeners", "listeners_per_user"))
        })
    }

    fn admit_udp_socket(&self, place: u32) -> Result<Entry, Refusal> {
        let (total, per_user) = (self.limits.udp_sockets, self.limits.udp_sockets_per_user);
        let admitted = self.admit(place, Shared { total, per_user }, |of| &of.udp_sockets);
        admitted.map_err(|full| {
            let Some(full) = full else { return session_ended() };
            self.counters.udp_sockets_refused.increment();
            let said = full.sentence("UDP sockets", "udp_sockets", "udp_sockets_per_user");
            refusal(Errno::NOBUFS, said)
        })
    }

    /// Whether a user may open another connection: the last ones are reserved for root and users
    /// with few.
    fn has_room_to_connect(&self, place: u32) -> bool {
        let Some(session) = self.sessions.peek(place) else { return false };
        let shared =
            Shared { total: self.limits.sockets, per_user: self.limits.endpoints_per_user };
        let (of_user, of_all) = (&session.of_user.endpoints, &session.of_all.endpoints);
        let admitted = shared.admit(session.who.uid, of_user.count(), of_all.count()).is_ok();
        if !admitted {
            self.counters.connects_refused.increment();
        }
        admitted
    }

    pub(crate) fn free_endpoint(&mut self, place: u32, index: u32) {
        if let Some(session) = self.sessions.at(place) {
            session.free_endpoint(index);
        }
    }

    pub(crate) fn note_shown(&mut self, place: u32, index: u32, key: SocketKey) {
        if let Some(endpoint) = self.endpoint(place, index) {
            endpoint.shown = Some(key);
            self.uses.begin(key, place, Use::Endpoint(index));
        }
    }

    pub(crate) fn set_role(&mut self, place: u32, index: u32, role: Role) {
        if let Some(endpoint) = self.endpoint(place, index) {
            endpoint.role = role;
        }
    }

    /// Starts a connection at an endpoint.
    fn begin_stream(&mut self, place: u32, index: u32, mut stream: Stream) {
        if let Some(session) = self.sessions.at(place) {
            session.streams_born += 1;
            stream.born = session.streams_born;
        }
        self.set_role(place, index, Role::Stream(stream));
    }

    fn connect(
        &mut self,
        LaneRef { place, lane }: LaneRef,
        remote: SocketAddr,
        token: u32,
        wanted: ConnectOptions,
    ) -> Result<Reply, Errno> {
        let now = self.now;
        if !OptionName::Maxseg.admits(wanted.maxseg.into())
            || !OptionName::UserTimeout.admits(wanted.user_timeout_ms.into())
        {
            return Err(Errno::INVAL);
        }
        if wanted.fast_open && !self.stack.opens_fast() {
            return Err(Errno::OPNOTSUPP);
        }
        let session = self.sessions.at(place).ok_or(Errno::BADF)?;
        let keys = match wanted.signed {
            true => std::mem::take(&mut session.keys_of_next),
            false => Vec::new(),
        };
        let authorized = match token {
            0 => None,
            token => Some(session.tokens.remove(&token).ok_or(Errno::ADDRNOTAVAIL)?),
        };
        let local = authorized.map(|authorized| authorized.local);
        let reuses = authorized.is_some_and(|authorized| authorized.reuses);
        if let Some(Authorized { key, .. }) = authorized {
            self.end_use(key, place, Use::Token(token));
        }
        let way = self.stack.routes().lookup(remote.ip());
        let is_kernels = match way {
            Some(way) => way.connect_ports.is_some(),
            None => self.shares(),
        };
        if self.ending.is_some() || (is_kernels && !self.admits()) {
            return Err(LEFT_TO_KERNEL);
        }
        if !self.has_room_to_connect(place) {
            return Err(if is_kernels { LEFT_TO_KERNEL } else { Errno::NFILE });
        }
        let options = self.connect_options(wanted);
        // Replies to a SYN from an explicit port must reach the engine before the SYN is sent.
        let own_port = local.map(Local::from).filter(|at| self.listeners.find(*at).is_none());
        if let Some(local) = own_port {
            for place in places(local) {
                self.claim_connections(place, reuses).map_err(|_| Errno::NOBUFS)?;
            }
        }
        let index = self.grant_endpoint(place, lane).map_err(errno_of)?;
        let owner = Holder::Endpoint { place, index }.owner();
        match self.stack.tcp_connect(now, TcpConnect { remote, local, options, owner }) {
            Ok(id) => {
                self.give_keys(id, keys);
                self.begin_stream(place, index, Stream::new(id));
                self.limit_window(place, index);
                if let Ok(levels) = self.stack.tcp_levels(id)
                    && levels.awaits_data
                {
                    self.show_levels(place, index, id, &levels);
                }
                let own = self.stack.tcp_info(id).map_or(remote, |info| info.local);
                // Otherwise a listener's own socket holds the port.
                if own_port.is_some() {
                    self.hold_port(own, reuses);
                }
                let local = own;
                Ok(Reply::Endpoint { endpoint: index, addresses: Addresses { local, remote } })
            }
            // The kernel may have a route where the stack has none, and ports when the engine has
            // none left.
            Err(
                stack::api::RequestError::NoRoute | stack::api::RequestError::AddressNotAvailable,
            ) if is_kernels => {
                self.free_endpoint(place, index);
                Err(LEFT_TO_KERNEL)
            }
            Err(error) => {
                self.free_endpoint(place, index);
                Err(match error {
                    // The kernel's errno if a connection with these addresses exists; for a
                    // listener it would be EADDRINUSE.
                    stack::api::RequestError::AddressInUse => Errno::ADDRNOTAVAIL,
                    error => errno::of_request(error),
                })
            }
        }
    }

    fn connect_options(&self, wanted: ConnectOptions) -> TcpOptions {
        let default = self.default_options();
        let or = |value: u32, default: u32| if value == 0 { default } else { value };
        let ttl = Some(wanted.ttl).filter(|ttl| *ttl != 0);
        TcpOptions {
            nodelay: wanted.nodelay,
            keepalive: wanted.keepalive,
            maxseg: wanted.maxseg,
            tos: wanted.tos & !3,
            traffic_class: wanted.tos & !3,
            ttl,
            hop_limit: ttl,
            recv_limit: self.receive_limit(or(wanted.receive_limit, default.recv_limit)),
            recv_tunes: wanted.receive_limit == 0,
            congestion: wanted
                .congestion
                .and_then(|code| CongestionKind::ALL.get(usize::from(code)).copied())
                .unwrap_or(default.congestion),
            user_timeout_ms: wanted.user_timeout_ms,
            fast_open: wanted.fast_open,
            fast_open_no_cookie: wanted.fast_open_no_cookie,
            ..default
        }
    }

    fn default_options(&self) -> TcpOptions {
        let default = TcpOptions::default();
        let recv_limit = self.receive_limit(self.tcp.receive_max);
        let (congestion, rto_max_ms) = (self.tcp.congestion, self.tcp.rto_max_ms);
        TcpOptions { recv_limit, congestion, rto_max_ms, ..default }
    }

    /// A window never reaches beyond the pages that the receive queue can name.
    fn receive_limit(&self, wanted: u32) -> u32 {
        let pages = self.limits.receive_slots.saturating_sub(1);
        wanted.min(pages.saturating_mul(self.limits.buffer_bytes)).max(RECEIVE_LIMIT_MIN)
    }

    fn accept(&mut self, from: LaneRef, listener: u32) -> Result<Reply, Errno> {
        let LaneRef { place, lane } = from;
        let Some(Role::Listener(of)) = self.endpoint(place, listener).map(|one| &one.role) else {
            return Err(Errno::BADF);
        };
        let of = *of;
        let id = self.listeners.at(of).ok_or(Errno::BADF)?.id;
        if self.stack.tcp_pending(id).unwrap_or(0) == 0 {
            return Err(Errno::AGAIN);
        }
        // First, for it may take buffers of the pool.
        let index = self.grant_endpoint(place, lane).map_err(errno_of)?;
        let least = self.limits.accept_buffers();
        if self.sessions.at(place).is_none_or(|session| session.pool.free() < least) {
            self.counters.buffers_exhausted.increment();
            self.free_endpoint(place, index);
            // It waits in the queue, and is not shown until there is room for it.
            self.on_pending(of, false);
            return Err(Errno::AGAIN);
        }
        let accepted = match self.stack.tcp_accept(id) {
            Ok(Some(accepted)) => accepted,
            Ok(None) | Err(_) => {
                self.free_endpoint(place, index);
                return Err(Errno::AGAIN);
            }
        };
        let owner = Holder::Endpoint { place, index }.owner();
        // An id just returned by the stack is valid.
        let _ = self.stack.tcp_assign(accepted.id, owner);
        let early = self.sessions.stash.take(accepted.id);
        let mut stream = Stream::new(accepted.id);
        // It has been acknowledged: there are buffers for all of it.
        stream.receive.next = early.end();
        self.begin_stream(place, index, stream);
        let is_kept = self.sessions.at(place).is_some_and(|session| {
            early.pieces.iter().all(|(offset, piece)| {
                let to = EndpointSocket { index, id: accepted.id };
                session.store_stream(to, *offset, piece, &self.counters)
            })
        });
        if !is_kept {
            // The peer will not retransmit acknowledged data: better no connection than a hole.
            let _ = self.stack.tcp_abort(self.now, accepted.id);
        }
        self.limit_window(place, index);
        if let Ok(levels) = self.stack.tcp_levels(accepted.id) {
            self.show_levels(place, index, accepted.id, &levels);
        }
        self.on_pending(of, true);
        self.counters.accepts.increment();
        Ok(Reply::Endpoint {
            endpoint: index,
            addresses: Addresses { local: accepted.local, remote: accepted.remote },
        })
    }

    fn stop_receiving(&mut self, place: u32, index: u32) -> Result<Reply, Errno> {
        let now = self.now;
        self.learn_consumed(place, index);
        let session = self.sessions.at(place).ok_or(Errno::BADF)?;
        let Some(Endpoint { role: Role::Stream(stream), .. }) =
            session.endpoints.get_mut(index as usize)
        else {
            return Err(Errno::BADF);
        };
        stream.receive.deaf = true;
        stream.receive.consumed = stream.receive.readable;
        let (id, readable) = (stream.id, stream.receive.readable);
        let mut receive = std::mem::take(&mut stream.receive);
        session.release_pages(&mut receive);
        if let Some(Endpoint { role: Role::Stream(stream), .. }) =
            session.endpoints.get_mut(index as usize)
        {
            stream.receive = receive;
        }
        let _ = self.stack.tcp_consumed(now, id, readable);
        Ok(Reply::Done)
    }

    fn connect_datagram(
        &mut self,
        place: u32,
        index: u32,
        remote: Option<SocketAddr>,
    ) -> Result<Reply, Errno> {
        let Some(Role::Datagram(datagram)) = self.endpoint(place, index).map(|one| &one.role)
        else {
            return Err(Errno::BADF);
        };
        let id = datagram.id;
        self.stack.udp_connect(id, remote).map_err(errno::of_request)?;
        let info = self.stack.udp_info(id).map_err(errno::of_request)?;
        let none = SocketAddr::from(([0, 0, 0, 0], 0));
        Ok(Reply::Endpoint {
            endpoint: index,
            addresses: Addresses { local: info.local, remote: remote.unwrap_or(none) },
        })
    }

    /// Sets the Fast Open keys of a listener, shared by all its programs.
    fn set_fast_open_keys(
        &mut self,
        place: u32,
        index: u32,
        primary: u128,
        backup: Option<u128>,
    ) -> Result<Reply, Errno> {
        let Some(Role::Listener(of)) = self.endpoint(place, index).map(|one| &one.role) else {
            return Err(Errno::INVAL);
        };
        let of = *of;
        let id = self.listeners.at(of).ok_or(Errno::BADF)?.id;
        let bytes = u128::to_le_bytes;
        let keys = FastOpenKeys { primary: bytes(primary), backup: backup.map(bytes) };
        self.stack.tcp_set_fast_open_keys(id, keys).map_err(errno::of_request)?;
        Ok(Reply::Done)
    }

    /// The stack's socket of a connection or listener, and its options.
    fn options_of(&mut self, place: u32, index: u32) -> Result<(SocketId, TcpOptions), Errno> {
        let id = match self.endpoint(place, index).map(|endpoint| &endpoint.role) {
            Some(Role::Stream(stream)) => stream.id,
            Some(Role::Listener(of)) => {
                let of = *of;
                self.listeners.at(of).ok_or(Errno::BADF)?.id
            }
            Some(Role::Datagram(_) | Role::Raw(_) | Role::Messages(_)) => {
                return Err(Errno::NOPROTOOPT);
            }
            Some(Role::Revoked | Role::Moved | Role::Free) | None => return Err(Errno::BADF),
        };
        Ok((id, self.stack.tcp_options(id).map_err(errno::of_request)?))
    }

    fn set_option(
        &mut self,
        place: u32,
        index: u32,
        option: OptionName,
        value: u64,
    ) -> Result<Reply, Errno> {
        let now = self.now;
        if let Some(Role::Datagram(datagram)) = self.endpoint(place, index).map(|one| &mut one.role)
        {
            apply_to_datagrams(datagram, option, value)?;
            let (id, options) = (datagram.id, datagram.options);
            self.stack.udp_set_options(id, options).map_err(errno::of_request)?;
            return Ok(Reply::Done);
        }
        if option == OptionName::ReceiveStamps {
            return self.remember_arrivals(place, index, value != 0);
        }
        let limit = self.receive_limit(u32::try_from(value).unwrap_or(u32::MAX));
        let role = self.endpoint(place, index).map(|endpoint| &endpoint.role);
        let is_stream = matches!(role, Some(Role::Stream(_)));
        let is_listener = matches!(role, Some(Role::Listener(_)));
        let (id, mut options) = self.options_of(place, index)?;
        if is_listener && option == OptionName::Backlog {
            let backlog = u32::try_from(value).unwrap_or(u32::MAX);
            self.stack.tcp_set_backlog(id, backlog).map_err(errno::of_request)?;
            return Ok(Reply::Done);
        }
        if is_listener && option == OptionName::Outlives {
            let Some(Role::Listener(of)) = self.endpoint(place, index).map(|one| &one.role) else {
                return Err(Errno::BADF);
            };
            let of = *of;
            if let Some(listener) = self.listeners.at(of) {
                listener.outlives = value != 0;
            }
            return Ok(Reply::Done);
        }
        apply(&mut options, option, value, limit)?;
        self.stack.tcp_set_options(now, id, options).map_err(errno::of_request)?;
        // These act at once, and only on a connection.
        let _ = match option {
            OptionName::Quickack => self.stack.tcp_set_quickack(now, id, value != 0),
            OptionName::Nodelay if value != 0 => self.stack.tcp_push(now, id),
            OptionName::FastOpen if is_stream => self.stack.tcp_open_now(now, id),
            _ => Ok(()),
        };
        if matches!(option, OptionName::ReceiveLowWater | OptionName::UnsentLowWater)
            && let Ok(levels) = self.stack.tcp_levels(id)
        {
            self.show_levels(place, index, id, &levels);
        }
        Ok(Reply::Done)
    }

    fn option(&mut self, place: u32, index: u32, option: OptionName) -> Result<Reply, Errno> {
        if option == OptionName::PathMtu
            && let Some(Role::Datagram(datagram)) = self.endpoint(place, index).map(|one| &one.role)
        {
            let id = datagram.id;
            let mtu = self.stack.udp_path_mtu(self.now, id).map_err(|_| Errno::NOTCONN)?;
            return Ok(Reply::Value(mtu.into()));
        }
        if matches!(option, OptionName::PathMtu | OptionName::Quickack) {
            let Some(Role::Stream(stream)) = self.endpoint(place, index).map(|one| &one.role)
            else {
                return Err(Errno::NOTCONN);
            };
            let id = stream.id;
            let info = self.stack.tcp_info(id).map_err(errno::of_request)?;
            return Ok(Reply::Value(match option {
                OptionName::PathMtu => info.mtu.into(),
                _ => u64::from(!info.more.interactive),
            }));
        }
        if matches!(option, OptionName::SentEnd | OptionName::AckedEnd) {
            let levels = self.levels_of(place, index)?;
            let is_sent = option == OptionName::SentEnd;
            return Ok(Reply::Value(if is_sent { levels.sent } else { levels.acked_all }));
        }
        if matches!(option, OptionName::ModelRate | OptionName::ModelState) {
            let id = self.stream_id(place, index)?;
            let model = self.stack.tcp_model(id).map_err(errno::of_request)?;
            let is_rate = option == OptionName::ModelRate;
            return Ok(Reply::Value(if is_rate { model.rate } else { model.state }));
        }
        if option == OptionName::SendEdge {
            let id = self.stream_id(place, index)?;
            let (edge, is_parted) =
                self.stack.tcp_send_edge(self.now, id).map_err(errno::of_request)?;
            return Ok(Reply::Value(edge | if is_parted { SEND_EDGE_PARTED } else { 0 }));
        }
        if option == OptionName::ReceiveLimit
            && let Ok(id) = self.stream_id(place, index)
        {
            // The current buffer size, if it is tuned automatically.
            let rates = self.stack.tcp_rates(self.now, id).map_err(errno::of_request)?;
            return Ok(Reply::Value(u64::from(rates.receive_memory / 2)));
        }
        let (_, options) = self.options_of(place, index)?;
        value(&options, option).map(Reply::Value)
    }

    /// Records arrival times of a connection from now on. Connections accepted by a listener must
    /// be asked for individually.
    fn remember_arrivals(&mut self, place: u32, index: u32, on: bool) -> Result<Reply, Errno> {
        if let Some(Role::Stream(stream)) = self.endpoint(place, index).map(|one| &mut one.role) {
            stream.receive.arrivals = on.then(Box::default);
        }
        Ok(Reply::Done)
    }

    fn take_stamp(&mut self, place: u32, index: u32) -> Result<Reply, Errno> {
        let Some(Role::Stream(stream)) = self.endpoint(place, index).map(|one| &one.role) else {
            return Err(Errno::BADF);
        };
        let id = stream.id;
        let stamp = self.stack.tcp_take_stamp(id).map_err(errno::of_request)?;
        let levels = self.stack.tcp_levels(id).map_err(errno::of_request)?;
        self.show_levels(place, index, id, &levels);
        let stamp = stamp.ok_or(Errno::AGAIN)?;
        Ok(Reply::Stamp(Stamp { kind: stamp.kind, end: stamp.end, at_ns: stamp.at_ns }))
    }

    fn arrival(&mut self, place: u32, index: u32, end: u64) -> Result<Reply, Errno> {
        let Some(Role::Stream(stream)) = self.endpoint(place, index).map(|one| &one.role) else {
            return Err(Errno::BADF);
        };
        let arrivals = stream.receive.arrivals.as_ref();
        Ok(Reply::Value(arrivals.map_or(0, |arrivals| arrivals.of(end))))
    }

    /// The levels of a connection.
    fn levels_of(&mut self, place: u32, index: u32) -> Result<TcpLevels, Errno> {
        let Some(Role::Stream(stream)) = self.endpoint(place, index).map(|one| &one.role) else {
            return Err(Errno::NOTCONN);
        };
        let id = stream.id;
        self.stack.tcp_levels(id).map_err(errno::of_request)
    }

    /// Listens on a checked socket, or joins its listener.
    pub(crate) fn listen(
        &mut self,
        ContextKey { session, context }: ContextKey,
        shown: Shown,
        beside: &[SocketKey],
        backlog: u32,
    ) -> Result<u32, Refusal> {
        self.part_from_others(shown.local, shown.key, beside);
        let place = self.place_of(session)?;
        let keys = self.sessions.at(place).map(|session| std::mem::take(&mut session.keys_of_next));
        self.refuse_at_end()?;
        self.give_up_unattended(shown.local, shown.key);
        let shared = self.listeners.find(shown.local).and_then(|of| self.listeners.peek(of));
        if shared.is_some_and(|listener| listener.attached().len() >= SHARERS_MAX) {
            self.counters.sharers_exhausted.increment();
            return Err(refusal(
                Errno::NFILE,
                format!(
                    "{SHARERS_MAX} sockets already share the listener at {}",
                    shown.local.address
                ),
            ));
        }
        let index = self.grant_endpoint(place, context)?;
        let of = match self.listeners.find(shown.local) {
            Some(of) => of,
            None => {
                let entry = match self.admit_listener(place) {
                    Ok(entry) => entry,
                    Err(refusal) => {
                        self.free_endpoint(place, index);
                        return Err(refusal);
                    }
                };
                let options = self.default_options();
                let owner = Holder::Listener(self.listeners.next_index()).owner();
                match self.stack.tcp_listen(shown.local, backlog, options, owner) {
                    Ok(id) => {
                        let listens = self.admits();
                        let claim = |local| Claim::Tcp { local, listens };
                        if let Err(error) = self.claim_local(shown.local, claim) {
                            let _ = self.stack.tcp_close(self.now, id);
                            self.free_endpoint(place, index);
                            return Err(not_claimed(shown.local.address, &error));
                        }
                        self.stop_leaving(shown.local);
                        let reuses = shown.sharing != Sharing::Alone;
                        self.listeners.add(id, shown.local, reuses, entry)
                    }
                    Err(error) => {
                        self.free_endpoint(place, index);
                        let errno = errno::of_request(error);
                        return Err(refusal(
                            errno,
                            format!("the engine cannot listen at {}: {errno}", shown.local.address),
                        ));
                    }
                }
            }
        };
        if let Some(id) = self.listeners.at(of).map(|listener| listener.id) {
            self.give_keys(id, keys.unwrap_or_default());
        }
        self.on_attended(of);
        self.listeners.attach(of, place, index, shown.key);
        self.set_role(place, index, Role::Listener(of));
        self.note_shown(place, index, shown.key);
        self.on_pending(of, true);
        Ok(index)
    }

    pub(crate) fn bind_udp(
        &mut self,
        ContextKey { session, context }: ContextKey,
        shown: Shown,
    ) -> Result<u32, Refusal> {
        let local = shown.local;
        let place = self.place_of(session)?;
        self.refuse_at_end()?;
        let entry = self.admit_udp_socket(place)?;
        let index = self.grant_endpoint(place, context)?;
        let owner = Holder::Endpoint { place, index }.owner();
        match self.stack.udp_bind_sharing(local, shown.sharing, owner) {
            Ok(id) => {
                if self.admits()
                    && !local.address.ip().is_multicast()
                    && let Err(error) = self.claim_local(local, Claim::Udp)
                {
                    let _ = self.stack.udp_close(self.now, id);
                    self.free_endpoint(place, index);
                    return Err(not_claimed(local.address, &error));
                }
                self.set_role(place, index, Role::Datagram(Box::new(Datagram::new(id, entry))));
                if let Some(session) = self.sessions.at(place) {
                    session.pool.add_datagram_socket();
                }
                self.note_shown(place, index, shown.key);
                Ok(index)
            }
            Err(error) => {
                self.free_endpoint(place, index);
                let errno = errno::of_request(error);
                Err(refusal(errno, format!("the engine cannot serve {}: {errno}", local.address)))
            }
        }
    }

    /// Authorizes the session to connect once from the address of a checked socket.
    pub(crate) fn authorize(&mut self, session: SessionKey, shown: Shown) -> Result<u32, Refusal> {
        let place = self.place_of(session)?;
        self.refuse_at_end()?;
        let Some(session) = self.sessions.at(place) else {
            return Err(session_ended());
        };
        if session.tokens.len() >= TOKENS_MAX {
            self.counters.tokens_exhausted.increment();
            return Err(refusal(
                Errno::NOBUFS,
                "too many authorized addresses await their connect",
            ));
        }
        let token = session.next_token;
        session.next_token = session.next_token.checked_add(1).unwrap_or(1);
        let (local, key) = (shown.local.address, shown.key);
        session
            .tokens
            .insert(token, Authorized { local, key, reuses: shown.sharing != Sharing::Alone });
        self.uses.begin(key, place, Use::Token(token));
        Ok(token)
    }

    pub(crate) fn refuse_at_end(&self) -> Result<(), Refusal> {
        match self.ending {
            None => Ok(()),
            Some(_) => Err(refusal(LEFT_TO_KERNEL, "the engine is about to end")),
        }
    }

    pub(crate) fn place_of(&self, session: SessionKey) -> Result<u32, Refusal> {
        self.sessions
            .place_of(session)
            .filter(|place| self.sessions.peek(*place).is_some_and(|s| s.is_served()))
            .ok_or_else(session_ended)
    }
}
