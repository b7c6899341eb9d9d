//! A socket: the program's settings, its watchers, and its state.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;

use super::calls::Calls;
use super::census::Counted;
use super::cork::Cork;
use super::epoll::Interest;
use super::groups::Wish;
use super::link::Attachment;
use super::marks::Marks;
use super::notices::Notice;
use super::sharing::Service;
use super::shut::Shut;
use super::signals::SocketOwner;
use super::streams::StreamMarks;
use super::versions::Versions;
use super::waiter::OUT_OF_THE_WAY;
use super::watches::{Watch, WatchList, Watches};
use super::{Era, Errno, Kernel, Sockets, Verdict};
use crate::{Endpoint, OptionName, PeerKey, Readiness};

/// A connection of the engine, with its session.
#[derive(Debug)]
pub(super) struct Connection {
    pub endpoint: Endpoint,
    pub attachment: Arc<Attachment>,
    /// Set once a connect has returned success to the program.
    pub established: AtomicBool,
    /// It was ended so that its numbers could get another connection.
    pub disconnected: OnceLock<Disconnected>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.attachment.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connection {
    /// Whether the handshake is over, however it has ended.
    pub fn is_opened(&self) -> bool {
        self.endpoint.is_connected() || self.endpoint.has_ended()
    }
}

/// State of a connection that was disconnected.
#[derive(Debug)]
pub(super) struct Disconnected {
    /// The error for a thread that waits for the handshake.
    pub told: Errno,
    /// The socket under its numbers from now on.
    pub fresh: Arc<Socket>,
}

impl Disconnected {
    /// The error for the thread. SO_ERROR then does not report a reset any more.
    pub fn take(&self) -> Errno {
        if self.told == Errno::CONNRESET {
            self.fresh.was_reset.store(false, Ordering::Relaxed);
        }
        self.told
    }
}

/// A dual listener.
#[derive(Debug)]
pub(super) struct Listening {
    pub backlog: i32,
    /// Its endpoint in the engine, while there is one.
    pub engine: Option<(Arc<Endpoint>, Arc<Attachment>)>,
    /// Not to be passed to the engine.
    pub refused: Option<Refusal>,
    /// It is bound to one address, and not to all.
    pub names_address: bool,
}

/// Why a listener is not passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The program has shut it down.
    ForGood,
    /// The engine refused when its change counter had this value: it may accept after the next
    /// change.
    Until(u64),
}

impl Listening {
    /// A listener that was not passed to any engine.
    pub fn new(backlog: i32) -> Self {
        Self { backlog, engine: None, refused: None, names_address: false }
    }

    /// Whether to ask an engine with this change counter.
    pub fn wants(&self, reach: u64) -> bool {
        self.engine.is_none()
            && match self.refused {
                None => true,
                Some(Refusal::ForGood) => false,
                Some(Refusal::Until(then)) => then != reach,
            }
    }
}

/// A bound UDP socket's endpoint in the engine.
#[derive(Clone, Debug)]
pub(super) struct Datagram {
    pub endpoint: Arc<Endpoint>,
    /// IPV6_V6ONLY, which does not change once a socket is bound.
    pub v6_only: bool,
    pub attachment: Arc<Attachment>,
    /// The peer set by connect, if the engine reaches it.
    pub peer: Option<SocketAddr>,
}

/// A tracked socket.
#[derive(Debug)]
pub(super) struct Socket {
    pub v6: bool,
    pub stream: bool,
    nonblocking: AtomicBool,
    /// O_NONBLOCK was set on the kernel's side by the layer (for listeners), so F_GETFL must not
    /// show it.
    forced: AtomicBool,
    numbers: Mutex<Vec<RawFd>>,
    /// The watchers of its events.
    pub watches: WatchList,
    connection: OnceLock<Connection>,
    pub listening: RwLock<Option<Listening>>,
    pub datagram: RwLock<Option<Datagram>>,
    /// The peer of a UDP socket that its kernel socket has, too.
    pub peer: Mutex<Option<SocketAddr>>,
    /// shutdown(2) of a UDP socket.
    pub shut: Shut,
    /// Data that a UDP socket holds back.
    pub cork: Cork,
    /// The error of the next call on a UDP socket, or 0.
    late_error: AtomicI32,
    /// SO_RCVTIMEO and SO_SNDTIMEO in nanoseconds, 0 for none.
    pub receive_timeout_ns: AtomicU64,
    pub send_timeout_ns: AtomicU64,
    /// TCP_FASTOPEN_KEY: the current key, and the previous one.
    pub fast_open_keys: Mutex<Option<(u128, Option<u128>)>>,
    /// Its owner, which gets signals.
    pub owner: SocketOwner,
    /// TCP_MD5SIG: keys of the connections that it opens or accepts.
    pub keys: Mutex<Vec<PeerKey>>,
    /// Options set before there was an engine: (level, name, value).
    pub options: Mutex<Vec<(i32, i32, i32)>>,
    /// Options of a UDP socket.
    pub marks: Marks,
    /// Options of a TCP socket.
    pub streams: StreamMarks,
    /// Groups that it has joined in the engine.
    pub groups: Mutex<Vec<Wish>>,
    /// An address was bound, or inherited from the listener.
    pub bound: AtomicBool,
    /// The IP versions that its addresses permit.
    pub versions: Versions,
    /// The port of the ended connection, which getsockname(2) still returns; 0 for none.
    pub last_port: AtomicU16,
    /// Calls in progress that may wait.
    pub calls: Calls,
    /// A connection was ended by connect(2) with AF_UNSPEC, which SO_ERROR reports once.
    pub was_reset: AtomicBool,
    /// Its numbers do not refer to a kernel socket of its own.
    accepted: bool,
    /// The listener that accepted it from the engine.
    pub origin: OnceLock<Weak<Socket>>,
    /// For a listener in a forked child: shared state of its inherited connections.
    pub service: OnceLock<Weak<Service>>,
    /// A listener that other processes have, which may change its O_NONBLOCK.
    pub is_passed: AtomicBool,
    /// A listener whose new connections the engine was asked to leave to the kernel. The engine may
    /// still get them if the kernel lacks the address.
    pub is_left: AtomicBool,
    /// Held while its connection becomes a kernel socket.
    pub passing: Mutex<()>,
    /// The kernel socket that keeps its options, if it has needed one.
    pub keeper: Mutex<Option<RawFd>>,
    /// Its line in the census.
    pub counted: Counted,
    /// The line of connections accepted through the engine.
    pub counted_accepted: Counted,
}

/// Unwraps a lock whose holder panicked: every value behind these locks is consistent between any
/// two of its assignments.
pub(super) fn held<T>(result: Result<T, PoisonError<T>>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}

impl Socket {
    /// A new socket without a number.
    pub fn new(v6: bool, stream: bool, nonblocking: bool) -> Self {
        Self {
            v6,
            stream,
            nonblocking: AtomicBool::new(nonblocking),
            forced: AtomicBool::new(false),
            numbers: Mutex::new(Vec::new()),
            watches: WatchList::default(),
            connection: OnceLock::new(),
            listening: RwLock::new(None),
            datagram: RwLock::new(None),
            peer: Mutex::new(None),
            shut: Shut::default(),
            cork: Cork::default(),
            late_error: AtomicI32::new(0),
            receive_timeout_ns: AtomicU64::new(0),
            send_timeout_ns: AtomicU64::new(0),
            options: Mutex::new(Vec::new()),
            fast_open_keys: Mutex::new(None),
            keys: Mutex::default(),
            owner: SocketOwner::default(),
            marks: Marks::default(),
            streams: StreamMarks::default(),
            groups: Mutex::default(),
            bound: AtomicBool::new(false),
            versions: Versions::default(),
            last_port: AtomicU16::new(0),
            calls: Calls::default(),
            was_reset: AtomicBool::new(false),
            accepted: false,
            origin: OnceLock::new(),
            service: OnceLock::new(),
            is_passed: AtomicBool::new(false),
            is_left: AtomicBool::new(false),
            passing: Mutex::new(()),
            keeper: Mutex::new(None),
            counted: Counted::default(),
            counted_accepted: Counted::default(),
        }
    }

    /// A socket for an accepted connection; `bound`: its listener is bound to one address.
    pub fn accepted(v6: bool, nonblocking: bool, bound: bool) -> Self {
        let bound = AtomicBool::new(bound);
        Self { accepted: true, bound, ..Self::new(v6, true, nonblocking) }
    }

    /// The socket that remains when a connection is disconnected.
    pub fn disconnected(&self) -> Self {
        let time = |ns: &AtomicU64| AtomicU64::new(ns.load(Ordering::Relaxed));
        Self {
            receive_timeout_ns: time(&self.receive_timeout_ns),
            send_timeout_ns: time(&self.send_timeout_ns),
            fast_open_keys: Mutex::new(*held(self.fast_open_keys.lock())),
            keys: Mutex::new(held(self.keys.lock()).clone()),
            options: Mutex::new(held(self.options.lock()).clone()),
            bound: AtomicBool::new(self.bound.load(Ordering::Relaxed)),
            versions: self.versions.clone(),
            owner: self.owner.disconnected(),
            ..Self::new(self.v6, true, self.is_nonblocking())
        }
    }

    /// Whether it was accepted from the engine.
    pub fn was_accepted(&self) -> bool {
        self.accepted
    }

    /// The connection, if the socket has become one of the engine's.
    #[inline]
    pub fn connection(&self) -> Option<&Connection> {
        self.connection.get()
    }

    /// Makes the socket a connection; false if it already is one.
    pub fn become_connection(&self, endpoint: Endpoint, attachment: Arc<Attachment>) -> bool {
        let (established, disconnected) = (AtomicBool::new(false), OnceLock::new());
        attachment.connections.fetch_add(1, Ordering::Relaxed);
        let connection = Connection { endpoint, attachment, established, disconnected };
        self.connection.set(connection).is_ok()
    }

    /// Whether listen was called.
    pub fn is_listening(&self) -> bool {
        held(self.listening.read()).is_some()
    }

    pub fn become_listener(&self, listening: Listening) {
        *held(self.listening.write()) = Some(listening);
    }

    /// O_NONBLOCK as the program set it.
    #[inline]
    pub fn is_nonblocking(&self) -> bool {
        self.nonblocking.load(Ordering::Relaxed)
    }

    pub fn set_nonblocking(&self, on: bool) {
        self.nonblocking.store(on, Ordering::Relaxed);
    }

    pub fn forced_nonblocking(&self) -> bool {
        self.forced.load(Ordering::Relaxed)
    }

    pub fn force_nonblocking(&self, on: bool) {
        self.forced.store(on, Ordering::Relaxed);
    }

    pub fn numbers(&self) -> Vec<RawFd> {
        held(self.numbers.lock()).clone()
    }

    /// A number of the kernel's side.
    pub fn number(&self) -> Option<RawFd> {
        held(self.numbers.lock()).first().copied()
    }

    pub fn add_number(&self, fd: RawFd) {
        held(self.numbers.lock()).push(fd);
    }

    /// Removes a number; true if it was the last one.
    pub fn remove_number(&self, fd: RawFd) -> bool {
        let mut numbers = held(self.numbers.lock());
        numbers.retain(|&number| number != fd);
        numbers.is_empty()
    }

    /// The watchers, locked.
    pub fn watches(&self) -> Watches<'_> {
        self.watches.lock()
    }

    /// Notifies all watchers.
    pub fn notify(&self, kernel: &'static dyn Kernel) {
        self.watches.notify(kernel);
    }

    /// The endpoint in an engine, if there is one.
    pub fn face(&self) -> Option<Datagram> {
        held(self.datagram.read()).clone().filter(|datagram| !self.is_left_behind(datagram))
    }

    /// The engine's side of a listener or UDP socket, while there is one.
    pub fn engine_side(&self) -> Option<(Arc<Endpoint>, Arc<Attachment>)> {
        let listening = || held(self.listening.read()).as_ref()?.engine.clone();
        self.face().map(|face| (face.endpoint, face.attachment)).or_else(listening)
    }

    /// Whether an endpoint's engine has ended, or no longer serves the port, while the kernel's
    /// side continues: if there is no peer, or the kernel has it, too. The socket may not know yet.
    pub fn is_left_behind(&self, datagram: &Datagram) -> bool {
        (!datagram.attachment.session.is_alive() || datagram.endpoint.is_revoked())
            && (datagram.peer.is_none() || held(self.peer.lock()).is_some())
    }

    /// Whether a UDP socket has a peer in the engine that the kernel's side lacks, which therefore
    /// receives nothing.
    pub fn has_peer_of_its_own(&self) -> bool {
        self.face().is_some_and(|face| face.peer.is_some()) && held(self.peer.lock()).is_none()
    }

    /// The events on the engine's side among `asked` (POLL* bits, which equal EPOLL*), as calls
    /// wait for them.
    pub fn engine_bits(&self, asked: u32) -> u32 {
        self.bits_of(asked, false)
    }

    /// The same as poll reports it: including the error queue.
    pub fn polled_bits(&self, asked: u32) -> u32 {
        self.bits_of(asked, true)
    }

    fn bits_of(&self, asked: u32, polled: bool) -> u32 {
        let among = if asked & OUT_BITS == 0 {
            Readiness::all().difference(Readiness::OUT)
        } else {
            Readiness::all()
        };
        if let Some(connection) = self.connection() {
            let readiness = connection.endpoint.readiness_among(among);
            let reports = self.streams.has_reports() || readiness.contains(Readiness::STAMPS);
            let error = if polled && reports { libc::POLLERR as u32 } else { 0 };
            return bits(readiness) | error;
        }
        if self.stream {
            let listening = held(self.listening.read());
            return match listening.as_ref().and_then(|listening| listening.engine.as_ref()) {
                // A lost engine must not show at the listener: the kernel's side continues.
                Some((endpoint, _)) => bits(endpoint.readiness_among(among)) & IN_BITS,
                None if polled && self.was_reset.load(Ordering::Relaxed) => libc::POLLERR as u32,
                None => 0,
            };
        }
        let late = match self.late_error.load(Ordering::Relaxed) {
            0 => 0,
            _ => libc::POLLERR as u32,
        };
        match &*held(self.datagram.read()) {
            Some(datagram) => {
                let readiness = datagram.endpoint.readiness_among(among);
                // Nor at one of these.
                if self.is_left_behind(datagram) {
                    return late;
                }
                bits(readiness) & (IN_BITS | OUT_BITS | libc::POLLERR as u32) | late
            }
            None => late,
        }
    }

    /// Sets the error of the next call on a UDP socket.
    pub fn keep_error(&self, error: super::Errno) {
        self.late_error.store(error.raw_os_error(), Ordering::Relaxed);
    }

    /// The error set by [`Self::keep_error`], once.
    pub fn take_late_error(&self) -> Option<super::Errno> {
        // Checked first, because nearly every call has none.
        if self.late_error.load(Ordering::Relaxed) == 0 {
            return None;
        }
        match self.late_error.swap(0, Ordering::Relaxed) {
            0 => None,
            error => Some(super::Errno::from_raw_os_error(error)),
        }
    }

    /// End of the received data in the engine: of a stream in bytes, of a UDP socket in datagrams.
    pub fn received_end(&self) -> u64 {
        if let Some(connection) = self.connection() {
            return connection.endpoint.received_end();
        }
        held(self.datagram.read()).as_ref().map_or(0, |datagram| datagram.endpoint.received_end())
    }

    /// Whether readiness depends on the kernel: for every socket but connections of the engine.
    pub fn has_kernel_side(&self) -> bool {
        self.connection().is_none()
    }

    /// Whether readiness depends on the engine.
    pub fn has_engine_side(&self) -> bool {
        self.connection().is_some()
            || held(self.datagram.read()).is_some()
            || held(self.listening.read()).as_ref().is_some_and(|one| one.engine.is_some())
    }

    /// Whether an address has the socket's family; for any other the kernel returns the error. UDP
    /// over IPv6 takes IPv4 addresses, too.
    pub fn suits(&self, to: SocketAddr) -> bool {
        self.v6 == to.is_ipv6() || self.v6 && !self.stream
    }

    /// An address in the form of the program's address family.
    pub fn dressed(&self, addr: SocketAddr) -> SocketAddr {
        match addr {
            SocketAddr::V4(v4) if self.v6 => {
                SocketAddr::V6(SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0))
            }
            other => other,
        }
    }
}

/// An address without its IPv4-mapped form.
pub(super) fn plain(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

/// Whether an address always belongs to the kernel.
pub(super) fn is_kernels(ip: IpAddr) -> bool {
    ip.is_loopback()
}

pub(super) const IN_BITS: u32 = (libc::POLLIN | libc::POLLRDNORM) as u32;
pub(super) const OUT_BITS: u32 = (libc::POLLOUT | libc::POLLWRNORM) as u32;

/// Readiness as poll and epoll report it.
fn bits(readiness: Readiness) -> u32 {
    let pairs = [
        (Readiness::IN, IN_BITS),
        (Readiness::OUT, OUT_BITS),
        (Readiness::RDHUP, libc::POLLRDHUP as u32),
        (Readiness::HUP, libc::POLLHUP as u32),
        (Readiness::ERR, libc::POLLERR as u32),
        (Readiness::PRI, libc::POLLPRI as u32),
    ];
    let mut bits = 0;
    for (flag, bit) in pairs {
        if readiness.contains(flag) {
            bits |= bit;
        }
    }
    bits
}

/// A timeout that expires at once, for negative values.
pub(super) const AT_ONCE: Duration = Duration::from_nanos(1);

/// A timeout option's value.
pub(super) fn timeout(ns: &AtomicU64) -> Option<Duration> {
    match ns.load(Ordering::Relaxed) {
        0 => None,
        ns => Some(Duration::from_nanos(ns)),
    }
}

impl Sockets {
    /// A number of the socket is closed; with the last one, the socket is.
    pub(super) fn release_socket(&self, era: &Era, fd: RawFd, socket: &Arc<Socket>, open: bool) {
        if !socket.remove_number(fd) {
            if open {
                self.keep_interests(era, socket, fd);
            }
            return;
        }
        self.drop_interests(socket, open);
        self.unfollow_owner(socket);
        if open {
            self.keep_for_service(era, fd, socket);
        }
        if let Some(connection) = socket.connection() {
            connection.attachment.forget(connection.endpoint.id());
            connection.endpoint.close();
        }
        let listening = held(socket.listening.write()).take();
        if let Some((endpoint, attachment)) = listening.and_then(|listening| listening.engine) {
            attachment.forget(endpoint.id());
            if self.may_share() {
                // Others may still accept from it. Fails only with the engine.
                let _ = endpoint.set_option(OptionName::Outlives, 1);
            }
            endpoint.close();
        }
        let datagram = held(socket.datagram.write()).take();
        if let Some(datagram) = datagram {
            datagram.attachment.forget(datagram.endpoint.id());
            datagram.endpoint.close();
        }
        if let Some(keeper) = held(socket.keeper.lock()).take() {
            era.table.take(keeper);
            self.kernel.close(keeper);
        }
        era.link.forget(socket);
        socket.notify(self.kernel);
    }

    /// A number is about to be closed while the socket is open under another. The interests made
    /// under it continue, as they do in the kernel. The layer could not change their kernel part
    /// any more, so that gets a hidden number from now on.
    fn keep_interests(&self, era: &Era, socket: &Socket, fd: RawFd) {
        let watches = socket.watches().clone();
        for watch in watches {
            let Watch::Epoll(epoll, interest) = watch else { continue };
            // An inherited one belongs to its creator, which still has the number.
            let is_ours = interest.fd() == fd && !interest.is_inherited();
            if !is_ours || !interest.is_in_kernel_as(fd) {
                continue;
            }
            let kept = self.hidden_copy(era, fd).and_then(|hidden| {
                epoll.renumber(&interest, hidden, self.kernel).inspect_err(|_| {
                    era.table.take(hidden);
                    self.kernel.close(hidden);
                })
            });
            if let Err(error) = kept {
                self.notice_lost_interest(fd, error);
            }
        }
    }

    /// A hidden second number of a socket.
    pub(super) fn hidden_copy(&self, era: &Era, fd: RawFd) -> Result<RawFd, Errno> {
        let hidden = self.kernel.duplicate(fd, OUT_OF_THE_WAY, true)?;
        self.hide(era, hidden);
        Ok(hidden)
    }

    /// An interest made under a closed number could not be kept.
    pub(super) fn notice_lost_interest(&self, fd: RawFd, error: Errno) {
        self.notice(Notice::InterestLost, || {
            format!(
                "descriptor {fd} was closed while an epoll set waits for its duplicate; \
                 connections that arrive through the kernel are no longer reported there \
                 ({error}): raise the limit of open files"
            )
        });
    }

    /// Closes the hidden number of an interest's kernel part, if there is one.
    pub(super) fn unhide(&self, interest: &Interest, number: RawFd) {
        if number != interest.fd()
            && let Some(era) = self.era()
        {
            era.table.take(number);
            self.kernel.close(number);
        }
    }

    /// Ends the epoll interests in a socket, including the kernel's registrations if the last
    /// number is still `open` and they would otherwise stay.
    pub(super) fn drop_interests(&self, socket: &Socket, open: bool) {
        let mut gone = Vec::new();
        socket.watches().retain(|watch| match watch {
            Watch::Epoll(epoll, interest) => {
                gone.push((epoll.clone(), interest.clone()));
                false
            }
            _ => true,
        });
        for (epoll, interest) in gone {
            if let Some(number) = epoll.remove(&interest) {
                if open && !interest.is_inherited() {
                    let event = super::EpollEvent::default();
                    let del = libc::EPOLL_CTL_DEL;
                    // It may have been deleted already, or the set closed: both are fine.
                    let _ = self.kernel.epoll_ctl(epoll.number(), del, number, event);
                }
                self.unhide(&interest, number);
            }
        }
    }

    /// Ends the layer's part of all epoll interests in a socket that is left to the kernel; the
    /// kernel's registrations stay.
    pub(super) fn forget_interests(&self, socket: &Socket) {
        self.drop_interests(socket, false);
    }

    /// Removes a socket that has become the engine's from the kernel's epoll sets.
    pub(super) fn leave_kernel_epolls(&self, socket: &Socket) {
        let watches = socket.watches().clone();
        for watch in watches {
            if let Watch::Epoll(epoll, interest) = watch
                && let Some(number) = interest.leave_kernel()
            {
                let event = super::EpollEvent::default();
                let del = libc::EPOLL_CTL_DEL;
                let _ = self.kernel.epoll_ctl(epoll.number(), del, number, event);
                self.unhide(&interest, number);
            }
        }
    }

    /// Ends the engine's side of a listener for good.
    pub(super) fn leave_engine(&self, socket: &Socket) {
        let engine = held(socket.listening.write()).as_mut().and_then(|listening| {
            listening.refused = Some(Refusal::ForGood);
            listening.engine.take()
        });
        if let Some((endpoint, attachment)) = engine {
            attachment.forget(endpoint.id());
            endpoint.close();
        }
    }

    /// shutdown(2).
    pub fn shutdown(&'static self, fd: RawFd, how: i32) -> Verdict<()> {
        let (era, socket) = match (self.era(), self.called(fd)) {
            (Some(era), Ok(Some(socket))) => (era, socket),
            (_, Err(error)) => return Verdict::Done(Err(error)),
            _ => return Verdict::Kernel,
        };
        let Some(connection) = socket.connection() else {
            if !socket.stream {
                return self.shut_datagrams(&socket, fd, how);
            }
            // A listener with receiving shut down stops listening, until listen is called again.
            if socket.is_listening() && matches!(how, libc::SHUT_RD | libc::SHUT_RDWR) {
                self.stop_listening(era, &socket, fd);
            }
            return Verdict::Kernel;
        };
        let how = match how {
            libc::SHUT_RD => crate::How::Read,
            libc::SHUT_WR => crate::How::Write,
            libc::SHUT_RDWR => crate::How::Both,
            _ => return Verdict::Done(Err(Errno::INVAL)),
        };
        let endpoint = &connection.endpoint;
        let outcome = if endpoint.has_ended() {
            Err(Errno::NOTCONN)
        } else if endpoint.is_connected() {
            endpoint.shutdown(how).inspect(|()| socket.shut.shut(how.into()))
        } else {
            // As the kernel drops a connection being opened, in whichever direction it is shut
            // down.
            self.disconnect(era, &socket, connection, Errno::CONNRESET)
        };
        socket.notify(self.kernel);
        self.where_it_is(fd, Verdict::Done(outcome))
    }
}
