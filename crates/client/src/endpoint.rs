//! Endpoints: a program's connections, listeners and datagram sockets.

mod call;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use shm::Status;
use shm::client_side::{ClientEndpoint, Direction, Levels};
use shm::descriptor::{DescriptorFlags, DescriptorKind, Span};
use shm::request::{
    Addresses, ConnectionCounts, ConnectionInfo, ConnectionProgress, ConnectionRates, OptionName,
    Reply, Request,
};

use crate::driver::{locked, reentered};
use crate::errors::Errors;
use crate::session::{Session, unspecified};

use call::come;
pub(crate) use call::{Call, FRAME_COST};

/// An endpoint's number, unique among the open ones of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointId(pub u32);

/// Kinds of endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A TCP connection.
    Stream,
    /// A TCP listener.
    Listener,
    /// A UDP socket.
    Datagram,
    /// A raw endpoint for frames.
    Raw,
    /// A message endpoint; see [`message`](crate::message).
    Messages,
}

/// Which directions to shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// No more reads.
    Read,
    /// No more writes; the peer sees the end of the stream after the data already written.
    Write,
    /// Both.
    Both,
}

impl From<How> for rustix::net::Shutdown {
    fn from(how: How) -> Self {
        match how {
            How::Read => Self::Read,
            How::Write => Self::Write,
            How::Both => Self::Both,
        }
    }
}

bitflags::bitflags! {
    /// The events of poll(2).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Readiness: u8 {
        /// A read (or accept) returns something, possibly the end of the stream or an error.
        const IN = 1;
        /// There is room to write.
        const OUT = 2;
        /// The peer has closed its side.
        const RDHUP = 4;
        /// Both sides are closed.
        const HUP = 8;
        /// There is an error to take.
        const ERR = 16;
        /// There is urgent data to read.
        const PRI = 32;
        /// Requested timestamps are available ([`Endpoint::take_stamp`]).
        const STAMPS = 64;
    }
}

/// An accepted connection.
#[derive(Debug)]
pub struct Accepted {
    /// Its endpoint.
    pub endpoint: Endpoint,
    /// The peer's address.
    pub remote: SocketAddr,
    /// The local address.
    pub local: SocketAddr,
}

/// Flags in the endpoint's area, shared by threads.
const SHUT_READ: u64 = 1;
const SHUT_WRITE: u64 = 2;
const URGENT_INLINE: u64 = 4;

/// Bits of the gate above the number of calls in progress.
const CLOSED: u64 = 1 << 62;
const ABORTED: u64 = 1 << 61;
const FINISHED: u64 = 1 << 60;
const CALLS: u64 = FINISHED - 1;

/// A handle on an endpoint; clones are the same one. It is closed by [`Self::close`] or with the
/// last clone. No call waits for the network; what cannot be done now is EAGAIN.
///
/// # Errors of every call
/// EBADF on an endpoint that is closed; ECONNRESET when the engine is gone; ENOTSUP in a process that
/// has forked since the session was attached; EOPNOTSUPP on an endpoint of another kind than the call is
/// for; EAGAIN also in a signal handler that has interrupted a call on the same endpoint.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub session: Arc<Session>,
    pub kind: Kind,
    /// One for each worker; a stream has one.
    parts: Vec<Part>,
    pub addresses: Mutex<Addresses>,
    /// Set by the program; 0 while it is tuned automatically.
    send_limit: AtomicU64,
    /// Stream offset at which the frame that collects writes begins, if there is a limit.
    frames_from: AtomicU64,
    /// Bytes that must have arrived before the endpoint is readable.
    low_water: AtomicU64,
    /// Error reports of a datagram endpoint, once they are enabled.
    pub errors: Mutex<Errors>,
    pub sorts: AtomicBool,
    /// Number of calls in progress, and whether it is closed. The last call to leave a closed
    /// endpoint returns it to the engine, so that no call touches an area that has a new owner.
    gate: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct Part {
    pub view: ClientEndpoint,
    pub worker: usize,
}

/// Minimum limit that a program can set: SOCK_MIN_SNDBUF.
pub const SEND_LIMIT_MIN: u64 = 4608;

impl Inner {
    fn primary(&self) -> &Part {
        // `Endpoint::new` always creates one.
        &self.parts[0]
    }

    /// Returns the endpoint to the engine, once.
    fn finish(&self, flags: u64) {
        let finished = self.gate.compare_exchange(
            flags,
            flags | FINISHED,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        if flags & FINISHED != 0 || finished.is_err() {
            return;
        }
        self.session.forget_aliases(EndpointId(self.primary().view.index()));
        for part in &self.parts {
            let endpoint = part.view.index();
            let request = if flags & ABORTED != 0 {
                Request::Abort { endpoint }
            } else {
                Request::Close { endpoint }
            };
            self.session.post(part.worker, &request);
        }
    }

    fn enter(&self) -> Result<Call<'_>, Errno> {
        let before = self.gate.fetch_add(1, Ordering::AcqRel);
        let call = Call { inner: self };
        if before & CLOSED != 0 { Err(Errno::BADF) } else { Ok(call) }
    }

    fn close(&self, flags: u64) {
        if let Ok(_call) = self.enter() {
            self.gate.fetch_or(CLOSED | flags, Ordering::AcqRel);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close(0);
    }
}

impl Endpoint {
    pub(crate) fn new(
        session: &Arc<Session>,
        kind: Kind,
        indices: &[u32],
        first_worker: usize,
        addresses: Addresses,
    ) -> Option<Self> {
        let parts: Option<Vec<Part>> = indices
            .iter()
            .enumerate()
            .map(|(at, index)| {
                Some(Part { view: session.view(*index)?, worker: first_worker + at })
            })
            .collect();
        let inner = Inner {
            session: session.clone(),
            kind,
            parts: parts.filter(|parts| !parts.is_empty())?,
            addresses: Mutex::new(addresses),
            send_limit: AtomicU64::new(0),
            frames_from: AtomicU64::new(0),
            low_water: AtomicU64::new(1),
            errors: Mutex::default(),
            sorts: AtomicBool::new(false),
            gate: AtomicU64::new(0),
        };
        Some(Self { inner: Arc::new(inner) })
    }

    /// Its number, as in [`Session::take_events`].
    pub fn id(&self) -> EndpointId {
        EndpointId(self.inner.primary().view.index())
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        self.inner.kind
    }

    /// Its session.
    pub fn session(&self) -> &Arc<Session> {
        &self.inner.session
    }

    /// The local address.
    pub fn local(&self) -> SocketAddr {
        locked(&self.inner.addresses).local
    }

    /// The peer's address, if there is one.
    pub fn remote(&self) -> Option<SocketAddr> {
        let Addresses { remote, .. } = *locked(&self.inner.addresses);
        (remote != unspecified(remote)).then_some(remote)
    }

    pub(crate) fn call(&self) -> Result<Call<'_>, Errno> {
        self.inner.session.usable()?;
        self.inner.enter()
    }

    pub(crate) fn call_as(&self, kind: Kind) -> Result<Call<'_>, Errno> {
        if self.inner.kind == kind { self.call() } else { Err(Errno::OPNOTSUPP) }
    }

    /// Takes a waiting connection of a listener; EAGAIN when there is none.
    ///
    /// # Errors
    /// Those of every call ([`Endpoint`](crate::Endpoint)); EAGAIN when there is none; ENFILE when
    /// the session has all the endpoints that it can have.
    pub fn accept(&self) -> Result<Accepted, Errno> {
        let call = self.call_as(Kind::Listener)?;
        for part in &self.inner.parts {
            if part.view.levels().pending == 0 {
                continue;
            }
            let request = Request::Accept { listener: part.view.index() };
            match self.inner.session.call(part.worker, &request) {
                Ok(Reply::Endpoint { endpoint, addresses }) => {
                    let session = &self.inner.session;
                    let made =
                        Self::new(session, Kind::Stream, &[endpoint], part.worker, addresses);
                    let endpoint = made.ok_or(Errno::PROTO)?;
                    let Addresses { local, remote } = addresses;
                    return Ok(Accepted { endpoint, remote, local });
                }
                Ok(_) => return Err(Errno::PROTO),
                // Another session took it.
                Err(Errno::AGAIN) => {}
                Err(errno) => return Err(errno),
            }
        }
        Err(call.again())
    }

    /// The current events of poll(2). If OUT is not among them, the engine has been asked for an
    /// event when there is room.
    pub fn readiness(&self) -> Readiness {
        self.readiness_among(Readiness::all())
    }

    /// The same for a caller interested only in `asked` (and errors): without OUT, room is neither
    /// checked nor requested.
    pub fn readiness_among(&self, asked: Readiness) -> Readiness {
        match self.call() {
            // The endpoint is closed, or the engine is gone or belongs to another process.
            Err(_) => {
                Readiness::IN | Readiness::OUT | Readiness::RDHUP | Readiness::ERR | Readiness::HUP
            }
            Ok(call) => match self.inner.kind {
                Kind::Listener => {
                    let waits = |part: &Part| part.view.levels().pending > 0;
                    if self.inner.parts.iter().any(waits) {
                        Readiness::IN
                    } else {
                        Readiness::empty()
                    }
                }
                Kind::Stream => self.stream_readiness(&call, asked),
                Kind::Datagram => self.datagram_readiness(&call, asked),
                // `raw` checks its rings.
                Kind::Raw => Readiness::empty(),
                // Its own type checks it.
                Kind::Messages => Readiness::empty(),
            },
        }
    }

    fn stream_readiness(&self, call: &Call<'_>, asked: Readiness) -> Readiness {
        let view = call.view();
        let levels = view.levels();
        let consumed = view.consumed();
        let ended = levels.status.intersects(Status::ERROR | Status::HANGUP);
        if levels.status.contains(Status::MOVED) {
            // The caller finds out which.
            return Readiness::IN | Readiness::OUT;
        }
        let mut readiness = Readiness::empty();
        let shut_read = call.is_shut_for_reading();
        let peer_closed = levels.status.contains(Status::PEER_CLOSED);
        if ended || peer_closed || shut_read {
            readiness |= Readiness::IN | Readiness::RDHUP;
        }
        let come = come(call, &levels);
        // No more arrives once the window is used up, however much the program waits for.
        let least = match levels.status.contains(Status::WINDOW_USED) {
            true => 1,
            false => self.low_water(),
        };
        if come >= least {
            readiness |= Readiness::IN;
        }
        let urges = levels.urgent > consumed && view.urgent_taken() != levels.urgent;
        if urges && view.urgent_byte(levels.urgent).is_some() {
            readiness |= Readiness::PRI;
        }
        if ended || (peer_closed || shut_read) && call.is_shut_for_writing() {
            readiness |= Readiness::HUP;
        }
        if levels.errno != 0 && view.reported_errors() != levels.errors {
            readiness |= Readiness::ERR;
        }
        readiness.set(Readiness::STAMPS, levels.status.contains(Status::STAMPS_WAIT));
        if !asked.contains(Readiness::OUT) {
            return readiness;
        }
        // The first write opens the connection; after that it is connecting.
        let opens = levels.status.contains(Status::AWAITS_DATA) && view.written() == 0;
        let connected = levels.status.contains(Status::CONNECTED) || opens;
        if ended || connected && (call.is_shut_for_writing() || self.can_send(call, levels)) {
            readiness |= Readiness::OUT;
        }
        readiness
    }

    /// Bytes that must have arrived before the endpoint is readable, and for which a blocking read
    /// waits (SO_RCVLOWAT).
    pub fn low_water(&self) -> u64 {
        self.inner.low_water.load(Ordering::Relaxed)
    }

    /// Sets them; at least one. The window grows until it holds so many, where it tunes itself.
    ///
    /// # Errors
    /// As [`Self::set_option`].
    pub fn set_low_water(&self, bytes: u64) -> Result<(), Errno> {
        self.inner.low_water.store(bytes.max(1), Ordering::Relaxed);
        self.set_option(OptionName::ReceiveLowWater, bytes.max(1))
    }

    /// Whether a caller that has seen `seen` bytes and waits for more has something to do: more
    /// have arrived, or none will.
    pub fn is_beyond(&self, seen: u64) -> bool {
        let Ok(call) = self.call() else { return true };
        let levels = call.view().levels();
        let ends = Status::PEER_CLOSED | Status::HANGUP | Status::ERROR | Status::MOVED;
        come(&call, &levels) > seen || levels.status.intersects(ends) || call.is_shut_for_reading()
    }

    /// The value of TCP_INQ after a read: the unread bytes, plus one once the peer has closed.
    pub fn queue_hint(&self) -> u64 {
        let Ok(call) = self.call() else { return 0 };
        let levels = call.view().levels();
        let waiting = levels.readable.saturating_sub(call.view().consumed());
        waiting + u64::from(levels.status.contains(Status::PEER_CLOSED))
    }

    /// Whether there is room to send; requests an event if not.
    pub(crate) fn can_send(&self, call: &Call<'_>, levels: Levels) -> bool {
        let view = call.view();
        let slots = u64::from(view.region().geometry().send_slots);
        let most = call.wakes_at();
        let by_bytes = self.inner.kind == Kind::Stream;
        let has_room = |levels: &Levels| {
            let unsent = view.written().saturating_sub(levels.acked);
            (!by_bytes || unsent <= most)
                && view.pushed().wrapping_sub(levels.taken) < slots - slots / 4
        };
        let target = if by_bytes { view.written().saturating_sub(most) } else { 0 };
        let levels = if has_room(&levels) {
            levels
        } else {
            view.wish(|now| (!has_room(now)).then(|| target.max(now.acked + 1)))
        };
        let mut room = has_room(&levels);
        if by_bytes && levels.status.contains(Status::UNSENT_LIMITED) {
            // The engine sends an event when half of it is sent.
            let (sent, most, _) = view.unsent_limit();
            room &= view.written().saturating_sub(sent) * 2 < u64::from(most);
        }
        let lane = &call.driver().lane;
        if !lane.has_stock() {
            self.inner.session.starve(self.id());
            if !lane.has_stock() {
                return false;
            }
        }
        room
    }

    /// Takes the pending error (SO_ERROR).
    pub fn take_error(&self) -> Option<Errno> {
        match self.call() {
            Ok(call) if self.inner.kind == Kind::Datagram => {
                self.note_errors(&call, 0);
                self.datagram_error(&call)
            }
            Ok(call) => call.error(&call.view().levels()),
            Err(errno) => Some(errno),
        }
    }

    /// Whether the connection was moved to a kernel socket for another process. Reads and writes
    /// then fail with ESTALE.
    pub fn is_moved(&self) -> bool {
        self.call().is_ok_and(|call| call.view().status().contains(Status::MOVED))
    }

    /// Whether the connection has been established.
    pub fn is_connected(&self) -> bool {
        self.call().is_ok_and(|call| call.view().levels().status.contains(Status::CONNECTED))
    }

    /// Whether there is no connection any more: it failed, or both sides have closed.
    pub fn has_ended(&self) -> bool {
        self.call().map_or(true, |call| call.view().levels().status.contains(Status::ENDED))
    }

    /// Whether the engine has given up a UDP socket's port, so that only the kernel serves it.
    pub fn is_revoked(&self) -> bool {
        // Checked for every datagram, so without entering a call. The area belongs to this endpoint
        // if the endpoint is open after the check.
        let revoked = self.inner.primary().view.status().contains(Status::HANGUP);
        revoked
            && self.inner.session.usable().is_ok()
            && self.inner.gate.load(Ordering::Acquire) & CLOSED == 0
    }

    /// Whether the peer has acknowledged the end of the sent data, or never will.
    pub fn is_end_acknowledged(&self) -> bool {
        self.call().map_or(true, |call| call.view().levels().status.contains(Status::END_ACKED))
    }

    /// Whether its SYN waits for the first data, to carry it.
    pub fn awaits_data(&self) -> bool {
        self.call().is_ok_and(|call| call.view().levels().status.contains(Status::AWAITS_DATA))
    }

    /// Bytes that fit into the SYN that waits for them.
    pub fn opening_room(&self) -> usize {
        let room = self.call().map_or(0, |call| call.view().send_room());
        usize::try_from(room).unwrap_or(usize::MAX)
    }

    /// A SYN that waits for the first data goes without any.
    ///
    /// # Errors
    /// As [`Self::set_option`].
    pub fn open_now(&self) -> Result<(), Errno> {
        self.set_option(OptionName::FastOpen, 0)
    }

    /// Its workers, and its number at each.
    pub(crate) fn places(&self) -> impl Iterator<Item = (usize, u32)> {
        self.inner.parts.iter().map(|part| (part.worker, part.view.index()))
    }

    /// Gives a listener Fast Open keys of its own; the former one's cookies are believed, too.
    ///
    /// # Errors
    /// Those of every call ([`Endpoint`](crate::Endpoint)).
    pub fn set_fast_open_keys(&self, primary: u128, backup: Option<u128>) -> Result<(), Errno> {
        let _call = self.call_as(Kind::Listener)?;
        for part in &self.inner.parts {
            let request = Request::SetFastOpenKeys { endpoint: part.view.index(), primary, backup };
            self.inner.session.call(part.worker, &request)?;
        }
        Ok(())
    }

    /// Bytes that can be read at once (FIONREAD); of a datagram socket, the size of the next
    /// datagram.
    pub fn readable_bytes(&self) -> u64 {
        let Ok(call) = self.call() else { return 0 };
        match self.inner.kind {
            Kind::Stream => {
                let (levels, consumed) = (call.view().levels(), call.view().consumed());
                // Up to the urgent mark, where reading stops.
                let is_ahead = levels.urgent > consumed && levels.urgent <= levels.readable;
                let end = match is_ahead && !call.has_urgent_inline() {
                    true => levels.urgent - 1,
                    false => levels.readable,
                };
                end.saturating_sub(consumed)
            }
            Kind::Datagram => self.next_datagram_bytes(&call),
            Kind::Listener | Kind::Raw | Kind::Messages => 0,
        }
    }

    /// Bytes written and not acknowledged by the peer (SIOCOUTQ); of a datagram socket, those not
    /// yet sent. An unacknowledged end of the stream counts as one byte.
    pub fn unacknowledged_bytes(&self) -> u64 {
        match self.call() {
            Ok(call) if !call.is_shut_for_writing() || self.inner.kind != Kind::Stream => {
                let view = call.view();
                view.written().saturating_sub(view.levels().acked)
            }
            Ok(call) => self.not_yet(&call, OptionName::AckedEnd),
            Err(_) => 0,
        }
    }

    /// Bytes of a stream that have not been sent (SIOCOUTQNSD).
    pub fn unsent_bytes(&self) -> u64 {
        self.call_as(Kind::Stream).map_or(0, |call| self.not_yet(&call, OptionName::SentEnd))
    }

    /// The distance from the position returned by an option to the end of the written stream.
    fn not_yet(&self, call: &Call<'_>, option: OptionName) -> u64 {
        let end = call.view().written() + u64::from(call.is_shut_for_writing());
        end.saturating_sub(self.option(option).unwrap_or(end))
    }

    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.5
    //# The TCP implementation MUST (MUST-33) provide a way for the application to learn how much
    //# urgent data remains to be read from the connection, or at least to determine whether more
    //# urgent data remains to be read [19].
    /// Whether the next byte to read is the urgent one (SIOCATMARK).
    pub fn is_at_mark(&self) -> bool {
        self.call().is_ok_and(|call| call.view().levels().urgent == call.view().consumed() + 1)
    }

    /// One past the peer's urgent byte, as an offset in the stream; 0 for none.
    pub fn urgent_end(&self) -> u64 {
        self.call().map_or(0, |call| call.view().levels().urgent)
    }

    /// End of the received data: of a stream in bytes, of a datagram endpoint in its entries.
    pub fn received_end(&self) -> u64 {
        let Ok(_call) = self.call() else { return 0 };
        self.inner.parts.iter().map(|part| part.view.levels().readable).sum()
    }

    /// Leaves urgent bytes within the stream, or takes them out of it (SO_OOBINLINE).
    ///
    /// # Errors
    /// Those of every call ([`Endpoint`](crate::Endpoint)).
    pub fn set_urgent_inline(&self, on: bool) -> Result<(), Errno> {
        let call = self.call_as(Kind::Stream)?;
        if on {
            call.view().raise_flags(URGENT_INLINE);
        } else {
            call.view().lower_flags(URGENT_INLINE);
        }
        Ok(())
    }

    /// Limits the written, unacknowledged bytes, counted as in the kernel, including overhead
    /// (twice the value of SO_SNDBUF).
    pub fn set_send_limit(&self, bytes: u64) {
        self.inner.send_limit.store(bytes.max(SEND_LIMIT_MIN), Ordering::Relaxed);
    }

    /// The limit of unacknowledged bytes, if one was set; `None` while it is tuned automatically.
    pub fn send_limit(&self) -> Option<u64> {
        Some(self.inner.send_limit.load(Ordering::Relaxed)).filter(|limit| *limit > 0)
    }

    /// Sets an option for all later calls on this endpoint.
    ///
    /// Does not wait for the engine if the value alone determines the answer: servers set several
    /// options on each accepted connection, and each round trip costs as much as a request.
    ///
    /// # Errors
    /// EINVAL for a value that the option does not take, EBADF on a closed endpoint, and what the
    /// engine answers for the other options.
    pub fn set_option(&self, option: OptionName, value: u64) -> Result<(), Errno> {
        let _call = self.call()?;
        let is_decided = self.inner.kind != Kind::Datagram && option.is_decided_by_value();
        if is_decided && !option.admits(value) {
            return Err(Errno::INVAL);
        }
        for part in &self.inner.parts {
            let endpoint = part.view.index();
            let request = Request::SetOption { endpoint, option, value };
            if is_decided {
                self.inner.session.post(part.worker, &request);
            } else {
                self.inner.session.call(part.worker, &request)?;
            }
        }
        Ok(())
    }

    /// Asks for an option.
    ///
    /// # Errors
    /// Those of every call ([`Endpoint`](crate::Endpoint)); ENOPROTOOPT for an option that the kind
    /// of endpoint does not have; ENOTCONN for one of a connection that does not stand.
    pub fn option(&self, option: OptionName) -> Result<u64, Errno> {
        let call = self.call()?;
        let request = Request::Option { endpoint: call.view().index(), option };
        match call.ask(&request)? {
            Reply::Value(value) => Ok(value),
            _ => Err(Errno::PROTO),
        }
    }

    /// Asks for a connection's numbers.
    ///
    /// # Errors
    /// Those of every call ([`Endpoint`](crate::Endpoint)).
    pub fn info(&self) -> Result<ConnectionInfo, Errno> {
        let call = self.call_as(Kind::Stream)?;
        let request = Request::Info { endpoint: call.view().index() };
        match call.ask(&request)? {
            Reply::Info(info) => Ok(info),
            _ => Err(Errno::PROTO),
        }
    }

    /// Asks what has become of a connection's data so far.
    ///
    /// # Errors
    /// Those of every call ([`Endpoint`](crate::Endpoint)).
    pub fn progress(&self) -> Result<ConnectionProgress, Errno> {
        let call = self.call_as(Kind::Stream)?;
        let request = Request::Progress { endpoint: call.view().index() };
        match self.inner.session.call(self.inner.primary().worker, &request)? {
            Reply::Progress(progress) => Ok(progress),
            _ => Err(Errno::PROTO),
        }
    }

    /// Asks what was counted of a connection.
    ///
    /// # Errors
    /// Those of every call ([`Endpoint`](crate::Endpoint)).
    pub fn counts(&self) -> Result<ConnectionCounts, Errno> {
        let call = self.call_as(Kind::Stream)?;
        match call.ask(&Request::Counts { endpoint: call.view().index() })? {
            Reply::Counts(counts) => Ok(counts),
            _ => Err(Errno::PROTO),
        }
    }

    /// Asks for a connection's rates and amounts.
    ///
    /// # Errors
    /// Those of every call ([`Endpoint`](crate::Endpoint)).
    pub fn rates(&self) -> Result<ConnectionRates, Errno> {
        let call = self.call_as(Kind::Stream)?;
        let request = Request::Rates { endpoint: call.view().index() };
        match self.inner.session.call(self.inner.primary().worker, &request)? {
            Reply::Rates(rates) => Ok(rates),
            _ => Err(Errno::PROTO),
        }
    }

    /// Fixes a datagram endpoint's peer, or loosens it.
    ///
    /// # Errors
    /// Those of every call ([`Endpoint`](crate::Endpoint)); ENETUNREACH without a route to the
    /// peer; EADDRINUSE when another socket has the same addresses.
    pub fn set_peer(&self, remote: Option<SocketAddr>) -> Result<(), Errno> {
        let _call = self.call_as(Kind::Datagram)?;
        for part in &self.inner.parts {
            let request = Request::ConnectDatagram { endpoint: part.view.index(), remote };
            match self.inner.session.call(part.worker, &request)? {
                Reply::Endpoint { addresses, .. } => *locked(&self.inner.addresses) = addresses,
                _ => return Err(Errno::PROTO),
            }
        }
        Ok(())
    }

    /// What a datagram endpoint hears of a group that comes through an interface of the engine's
    /// (its number plus one): all senders but those that are named, those alone, or nothing.
    ///
    /// # Errors
    /// Those of every call ([`Endpoint`](crate::Endpoint)); ENODEV for an interface that there is
    /// not; EOPNOTSUPP for one that a kernel has, too; EADDRNOTAVAIL for an address that is no
    /// group, and when a group is left that was not joined; ENOBUFS when no more can be joined.
    pub fn set_group(
        &self,
        interface: u32,
        group: IpAddr,
        excludes: Option<bool>,
    ) -> Result<(), Errno> {
        self.tell_of_group(|endpoint| Request::SetGroup { endpoint, interface, group, excludes })
    }

    /// Names a sender of such a group, or names it no more.
    ///
    /// # Errors
    /// Those of every call ([`Endpoint`](crate::Endpoint)); those of [`Self::set_group`];
    /// EADDRNOTAVAIL also when the source is not of the group's family.
    pub fn name_source(
        &self,
        interface: u32,
        group: IpAddr,
        source: IpAddr,
        is_named: bool,
    ) -> Result<(), Errno> {
        self.tell_of_group(|endpoint| Request::NameSource {
            endpoint,
            interface,
            group,
            source,
            is_named,
        })
    }

    fn tell_of_group(&self, request: impl Fn(u32) -> Request) -> Result<(), Errno> {
        let _call = self.call_as(Kind::Datagram)?;
        for part in &self.inner.parts {
            self.inner.session.call(part.worker, &request(part.view.index()))?;
        }
        Ok(())
    }

    /// Shuts down one or both directions of a connection.
    ///
    /// # Errors
    /// Those of every call ([`Endpoint`](crate::Endpoint)); ENOTCONN for a connection that does not
    /// stand; ESTALE when it has become a kernel socket.
    pub fn shutdown(&self, how: How) -> Result<(), Errno> {
        let call = self.call()?;
        let levels = call.view().levels();
        if self.inner.kind == Kind::Stream && !levels.status.contains(Status::CONNECTED) {
            return Err(Errno::NOTCONN);
        }
        // A stream's reader only stops waiting, as in the kernel: data that arrives can still be
        // read.
        if how != How::Write
            && call.view().raise_flags(SHUT_READ) & SHUT_READ == 0
            && self.inner.kind != Kind::Stream
        {
            // Under the lock: no thread may still be copying from the pages that the engine takes
            // back.
            drop(call.view().lock_receive(call.driver().tag()).map_err(reentered)?);
            let endpoint = call.view().index();
            self.inner
                .session
                .post(self.inner.primary().worker, &Request::StopReceiving { endpoint });
        }
        if how != How::Read && call.view().raise_flags(SHUT_WRITE) & SHUT_WRITE == 0 {
            let mut send = call.view().lock_send(call.driver().tag()).map_err(reentered)?;
            if self.inner.kind == Kind::Stream && call.view().status().contains(Status::MOVED) {
                return Err(Errno::STALE);
            }
            if self.inner.kind == Kind::Stream {
                // Writes leave the last slot free for this.
                send.push(DescriptorKind::Fin, DescriptorFlags::empty(), Span::default());
                call.ring(Direction::Send);
            }
        }
        Ok(())
    }

    /// Closes the endpoint: written data is delivered; unread received bytes cause a reset, as in
    /// the kernel. Calls in progress finish first; later ones fail with EBADF.
    pub fn close(&self) {
        self.inner.close(0);
    }

    /// Closes the endpoint with a reset.
    pub fn abort(&self) {
        self.inner.close(ABORTED);
    }
}
