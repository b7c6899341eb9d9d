//! The connection to the engine: the session while there is one, its endpoints' sockets, the
//! dispatch of its hints, and sleeping until something happens.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::Duration;

use shm::census::{Kind, Reason};
use shm::request::{LEFT_BY_LISTS, LEFT_TO_KERNEL};

use super::bystanders::Inheritable;
use super::census::{Census, absence_of, refusal_of};
use super::notices::Notice;
use super::signals::Undisturbed;
use super::socket::{Refusal, Socket, held};
use super::waiter::Waiter;
use super::{Era, Errno, Kernel, Sockets};
use crate::{AttachError, Endpoint, EndpointId, Session};

/// Pause between attempts to reach an engine, nanoseconds.
const RETRY_NS: u64 = 100_000_000;
/// The same after an engine that did not answer, so that a program does not spend its time waiting.
const RETRY_SILENT_NS: u64 = 10_000_000_000;
/// The same after a refusal: many processes may be refused at the same time.
const RETRY_REFUSED_NS: u64 = 1_000_000_000;
const CHUNK: usize = 1024;
const CHUNKS: usize = 1024;

thread_local! {
    /// This thread is opening a session.
    static ATTACHING: Cell<bool> = const { Cell::new(false) };
    static PUMPING: Cell<Pumping> = const { Cell::new(Pumping::Idle) };
}

/// State of a thread's dispatching of hints.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pumping {
    Idle,
    Busy,
    /// A signal handler that interrupted the dispatching has requested another pass.
    Asked,
}

impl Pumping {
    /// Starts; `None`: this thread is already dispatching, and makes another pass.
    fn begin() -> Option<PumpingGuard> {
        if PUMPING.get() != Self::Idle {
            PUMPING.set(Self::Asked);
            return None;
        }
        PUMPING.set(Self::Busy);
        Some(PumpingGuard)
    }
}

struct PumpingGuard;

impl Drop for PumpingGuard {
    fn drop(&mut self) {
        PUMPING.set(Pumping::Idle);
    }
}

/// In a forked child: the forking thread's state does not apply.
pub(super) fn forget_pumping() {
    PUMPING.set(Pumping::Idle);
}

type Place = Mutex<Option<Arc<Socket>>>;

/// One session, from attach until its engine ends.
pub(super) struct Attachment {
    pub session: Arc<Session>,
    wake_fds: Vec<RawFd>,
    hidden: Vec<RawFd>,
    places: Box<[OnceLock<Box<[Place]>>]>,
    /// Sockets that are connections of this session.
    pub connections: AtomicUsize,
    lost: AtomicBool,
    hints: Mutex<Vec<EndpointId>>,
    spin_ns: AtomicU64,
}

impl std::fmt::Debug for Attachment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attachment").field("lost", &self.lost).finish_non_exhaustive()
    }
}

impl Attachment {
    /// Read ends of the pipes by which the engine wakes us.
    pub fn wake_fds(&self) -> &[RawFd] {
        &self.wake_fds
    }

    /// Whether the engine is known to be gone.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Whether the engine serves an address: it reaches it, or it has the address and the kernel
    /// does not.
    pub fn serves(&self, address: IpAddr) -> bool {
        self.session.reaches(address) || self.session.owns_alone(address)
    }

    fn place(&self, id: EndpointId) -> Option<&Place> {
        let index = id.0 as usize;
        let chunk = self.places.get(index / CHUNK)?;
        chunk.get_or_init(|| (0..CHUNK).map(|_| Mutex::new(None)).collect()).get(index % CHUNK)
    }

    /// Directs hints about an endpoint to a socket.
    pub fn remember(&self, id: EndpointId, socket: &Arc<Socket>) {
        let _undisturbed = Undisturbed::begin();
        if let Some(place) = self.place(id) {
            *held(place.lock()) = Some(socket.clone());
        }
    }

    /// Stops directing hints about an endpoint.
    pub fn forget(&self, id: EndpointId) {
        let _undisturbed = Undisturbed::begin();
        if let Some(place) = self.place(id) {
            held(place.lock()).take();
        }
    }

    fn all(&self) -> Vec<Arc<Socket>> {
        let chunks = self.places.iter().filter_map(OnceLock::get);
        chunks
            .flat_map(|chunk| chunk.iter())
            .filter_map(|place| held(place.lock()).clone())
            .collect()
    }
}

/// The current session and what must be passed to the next one.
pub(super) struct Link {
    current: RwLock<Option<Arc<Attachment>>>,
    attaching: Mutex<()>,
    /// Listeners and bound UDP sockets, to be passed again to a new engine.
    shown: Mutex<Vec<Arc<Socket>>>,
    shown_count: AtomicU32,
    next_try_ns: AtomicU64,
    /// The reason why there is no session.
    absence: AtomicU64,
    inert: OnceLock<RawFd>,
    /// The connection of children without a session to the engine.
    pub bystander: Inheritable,
}

impl Link {
    pub fn new() -> Self {
        Self {
            current: RwLock::new(None),
            attaching: Mutex::new(()),
            shown: Mutex::new(Vec::new()),
            shown_count: AtomicU32::new(0),
            next_try_ns: AtomicU64::new(0),
            absence: AtomicU64::new(Reason::NoEngine.to_word()),
            inert: OnceLock::new(),
            bystander: Inheritable::default(),
        }
    }

    /// The descriptor of which connections' numbers are duplicates, created when first needed.
    pub fn inert(&self, make: impl FnOnce() -> Result<RawFd, Errno>) -> Result<RawFd, Errno> {
        match self.inert.get() {
            Some(&fd) => Ok(fd),
            // Two threads may create one each; the second stays hidden and unused.
            None => make().map(|fd| *self.inert.get_or_init(|| fd)),
        }
    }

    /// The session, if there is one.
    #[inline]
    pub fn current(&self) -> Option<Arc<Attachment>> {
        held(self.current.read()).clone()
    }

    /// Remembers a socket that wants an engine.
    pub fn remember(&self, socket: &Arc<Socket>) {
        let _undisturbed = Undisturbed::begin();
        let mut shown = held(self.shown.lock());
        if !shown.iter().any(|other| Arc::ptr_eq(other, socket)) {
            shown.push(socket.clone());
            self.shown_count.store(shown.len() as u32, Ordering::Relaxed);
        }
    }

    /// Forgets a socket that is closed.
    pub fn forget(&self, socket: &Arc<Socket>) {
        if self.shown_count.load(Ordering::Relaxed) > 0 {
            let _undisturbed = Undisturbed::begin();
            let mut shown = held(self.shown.lock());
            shown.retain(|other| !Arc::ptr_eq(other, socket));
            self.shown_count.store(shown.len() as u32, Ordering::Relaxed);
        }
    }

    /// The reason why there is no session.
    pub fn absence(&self) -> Reason {
        Reason::of_word(self.absence.load(Ordering::Relaxed)).unwrap_or(Reason::NoEngine)
    }

    fn set_absence(&self, reason: Reason) {
        self.absence.store(reason.to_word(), Ordering::Relaxed);
    }

    /// The listeners among them.
    pub fn listeners(&self) -> impl Iterator<Item = Arc<Socket>> {
        let _undisturbed = Undisturbed::begin();
        let shown = held(self.shown.lock()).clone();
        shown.into_iter().filter(|socket| socket.is_listening())
    }

    /// Whether a socket waits for an engine.
    pub fn is_wanted(&self) -> bool {
        self.shown_count.load(Ordering::Relaxed) > 0
    }
}

/// A thread that is about to sleep.
#[derive(Clone, Copy)]
pub(super) struct Sleeper<'a> {
    /// The session whose news it waits for, while there is one.
    pub attachment: Option<&'a Arc<Attachment>>,
    /// Woken by other threads.
    pub waiter: &'a Waiter,
    /// When it gives up.
    pub deadline: Deadline,
}

/// A time at which a wait ends.
#[derive(Clone, Copy)]
pub(super) struct Deadline {
    at_ns: Option<u64>,
    clock: &'static dyn Kernel,
}

impl Deadline {
    /// The time `timeout` from now on the kernel's clock; never without a timeout.
    pub fn after(clock: &'static dyn Kernel, timeout: Option<Duration>) -> Self {
        let at_ns = timeout.map(|time| {
            clock.now_ns().saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
        });
        Self { at_ns, clock }
    }

    /// What is left; `None` without end.
    pub fn left(self) -> Option<Duration> {
        self.at_ns.map(|at| Duration::from_nanos(at.saturating_sub(self.clock.now_ns())))
    }

    pub fn has_passed(self) -> bool {
        self.at_ns.is_some_and(|at| self.clock.now_ns() >= at)
    }
}

impl Sockets {
    /// The session; opened if there is none and enough time has passed since the last attempt.
    pub(super) fn attach(&'static self, era: &Era) -> Option<Arc<Attachment>> {
        if let Some(current) = era.link.current() {
            if current.session.is_alive() {
                return Some(current);
            }
            self.lose(era, &current);
        }
        if self.kernel.now_ns() < era.link.next_try_ns.load(Ordering::Relaxed) {
            return None;
        }
        // Sockets opened by a program's threads at its start use the engine whichever thread is
        // first. Later threads need not wait, and a signal handler must not wait for the call that
        // it interrupts.
        let is_first = era.link.next_try_ns.load(Ordering::Relaxed) == 0;
        let turn = if is_first && !ATTACHING.get() {
            Some(held(era.link.attaching.lock()))
        } else {
            era.link.attaching.try_lock().ok()
        };
        let Some(_only) = turn else { return era.link.current() };
        if let Some(current) = era.link.current() {
            return Some(current);
        }
        if is_first && era.link.next_try_ns.load(Ordering::Relaxed) != 0 {
            // Another thread has just found none.
            return None;
        }
        ATTACHING.set(true);
        let session = self.open_session(era);
        ATTACHING.set(false);
        session
    }

    /// Opens a session, or schedules the next attempt.
    fn open_session(&'static self, era: &Era) -> Option<Arc<Attachment>> {
        let session = match Session::attach(&self.config.socket, &self.config.program) {
            Ok(session) => session,
            Err(error) => {
                let answers = matches!(error, AttachError::NotServed | AttachError::Refused { .. });
                let is_told = self.tell_of_listeners(era, answers);
                let pause = match error {
                    AttachError::Silent(_) | AttachError::NotServed => RETRY_SILENT_NS,
                    AttachError::Refused { .. } => RETRY_REFUSED_NS,
                    // The engine exists, but this process may not open its socket.
                    _ if is_told => RETRY_REFUSED_NS,
                    _ => RETRY_NS,
                };
                era.link.set_absence(absence_of(&error));
                era.link
                    .next_try_ns
                    .store(self.kernel.now_ns().saturating_add(pause), Ordering::Relaxed);
                if matches!(error, AttachError::NotServed) {
                    // As configured: the program must see no error.
                    return None;
                }
                // A refusal is reported even after an absent engine was.
                let refused = matches!(error, AttachError::Refused { .. });
                let notice = if refused { Notice::EngineRefuses } else { Notice::NoEngine };
                self.notice(notice, || {
                    format!(
                        "{error}; sockets go through the kernel until an engine answers at {}",
                        self.config.socket.display()
                    )
                });
                return None;
            }
        };
        let hidden = session.raw_fds();
        for &fd in &hidden {
            self.hide(era, fd);
        }
        Some(self.join(era, session, hidden))
    }

    /// Uses a session created by a simulation. Its descriptors are invisible to the program.
    pub fn use_session(&'static self, session: Arc<Session>) {
        if let Some(era) = self.era() {
            self.join(era, session, Vec::new());
        }
    }

    /// Makes a session the current one, and passes it the sockets that wait for an engine.
    fn join(
        &'static self,
        era: &Era,
        session: Arc<Session>,
        hidden: Vec<RawFd>,
    ) -> Arc<Attachment> {
        let attachment = Arc::new(Attachment {
            wake_fds: session.wake_fds().map(|fd| fd.as_raw_fd()).collect(),
            session,
            hidden,
            places: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
            connections: AtomicUsize::new(0),
            lost: AtomicBool::new(false),
            hints: Mutex::new(Vec::with_capacity(1024)),
            spin_ns: AtomicU64::new(self.config.spin_ns),
        });
        *held(era.link.current.write()) = Some(attachment.clone());
        Census::publish_all(era);
        self.notices.again(Notice::EngineLost);
        self.notices.again(Notice::NoEngine);
        self.notices.again(Notice::EngineRefuses);
        let shown = held(era.link.shown.lock()).clone();
        self.rouse_teller(era);
        for socket in shown {
            // This engine may accept what another one refused.
            if let Some(listening) = held(socket.listening.write()).as_mut() {
                listening.refused.take_if(|refusal| matches!(refusal, Refusal::Until(_)));
            }
            self.show(era, &socket, &attachment);
        }
        attachment
    }

    /// The session, if it is alive; detects its death.
    pub(super) fn living(&self, era: &Era) -> Option<Arc<Attachment>> {
        let current = era.link.current()?;
        if current.session.is_alive() {
            return Some(current);
        }
        self.lose(era, &current);
        None
    }

    /// The engine has ended: informs every socket of the session, once.
    pub(super) fn lose(&self, era: &Era, attachment: &Arc<Attachment>) {
        if attachment.lost.swap(true, Ordering::AcqRel) {
            return;
        }
        {
            let mut current = held(era.link.current.write());
            if current.as_ref().is_some_and(|other| Arc::ptr_eq(other, attachment)) {
                *current = None;
            }
        }
        for &fd in &attachment.hidden {
            if era.table.is_internal(fd) {
                era.table.take(fd);
            }
        }
        era.link.set_absence(Reason::EngineEnded);
        self.notice(Notice::EngineLost, || {
            "the engine has ended: its connections are reset, listeners continue in the kernel, \
             and a new engine at the same socket will be used"
                .into()
        });
        for socket in attachment.all() {
            let mut listening = held(socket.listening.write());
            let mut goes_on = false;
            if let Some(listening) = listening.as_mut() {
                listening.engine = None;
                goes_on = true;
            }
            drop(listening);
            goes_on |= held(socket.datagram.write())
                .take_if(|datagram| socket.is_left_behind(datagram))
                .is_some();
            if goes_on {
                self.recount(era, &socket, Some(Reason::EngineEnded));
            }
            socket.notify(self.kernel);
        }
    }

    /// Passes a listener or a bound UDP socket to the engine.
    pub(super) fn show(
        &'static self,
        era: &Era,
        socket: &Arc<Socket>,
        attachment: &Arc<Attachment>,
    ) {
        let Some(fd) = socket.number() else { return };
        // The lock of a hint's slot is taken only without locks of the socket (see `pump`).
        let mut granted = None;
        if socket.stream {
            let mut listening = held(socket.listening.write());
            let Some(listening) = listening.as_mut() else { return };
            if !listening.wants(attachment.session.reach()) {
                return;
            }
            // As in the kernel: -1 means the maximum.
            let backlog = listening.backlog.cast_unsigned();
            // Read before the request, so that no change is missed.
            let reach = attachment.session.reach();
            let keys = held(socket.keys.lock()).clone();
            let session = &attachment.session;
            match self.lent(fd, |kernel| session.listen_signed(kernel, backlog, &keys)) {
                Ok(endpoint) => {
                    granted = Some(endpoint.id());
                    self.apply_remembered(socket, &endpoint);
                    let address = (Kind::Listener, Some(endpoint.local()));
                    self.count_socket(era, socket, address, None);
                    listening.engine = Some((Arc::new(endpoint), attachment.clone()));
                }
                Err(error) => {
                    // Another engine is asked again, and so is this one when its destinations have
                    // changed, as they do when the engine begins to end.
                    listening.refused =
                        attachment.session.is_alive().then_some(Refusal::Until(reach));
                    let address = (Kind::Listener, self.kernel.local(fd).ok());
                    self.count_socket(era, socket, address, Some(refusal_of(error.errno)));
                    self.notice_refusal(&error, Notice::ListenRefused, || {
                        format!("{error}; this listener is left to the kernel")
                    });
                }
            }
        } else {
            if self.kernel.local(fd).is_ok_and(|local| local.port() == 0) {
                // It has only an address, and gets its port when it sends.
                return;
            }
            let mut datagram = held(socket.datagram.write());
            // That of a previous engine.
            let peer = *held(socket.peer.lock());
            let unreached = |peer: SocketAddr| !attachment.serves(peer.ip());
            if datagram.is_some() || peer.is_some_and(unreached) {
                return;
            }
            match self.lent(fd, |kernel| attachment.session.bind_udp(kernel)) {
                Ok(endpoint) => {
                    granted = Some(endpoint.id());
                    if socket.marks.apply(&endpoint).is_err()
                        || socket.streams.apply(&endpoint).is_err()
                        || Self::restore_room(socket, &endpoint).is_err()
                        || self.apply_groups(socket, &endpoint).is_err()
                    {
                        self.notice(Notice::DatagramRefused, || {
                            "the engine does not accept the options of a UDP socket".into()
                        });
                    }
                    if peer.is_some() && endpoint.set_peer(peer).is_err() {
                        endpoint.close();
                        return;
                    }
                    if socket.bound.load(Ordering::Relaxed) {
                        let address = (Kind::UdpBound, Some(endpoint.local()));
                        self.count_socket(era, socket, address, None);
                    }
                    *datagram = Some(super::socket::Datagram {
                        endpoint: Arc::new(endpoint),
                        v6_only: self.is_v6_only(socket, fd),
                        attachment: attachment.clone(),
                        peer,
                    });
                    socket.owner.on_new_face();
                }
                Err(error) => {
                    let reason = Some(refusal_of(error.errno));
                    if socket.bound.load(Ordering::Relaxed) {
                        let address = (Kind::UdpBound, self.kernel.local(fd).ok());
                        self.count_socket(era, socket, address, reason);
                    } else {
                        self.recount(era, socket, reason);
                    }
                    self.notice_refusal(&error, Notice::DatagramRefused, || {
                        format!("{error}; this UDP socket is left to the kernel")
                    });
                }
            }
        }
        if let Some(id) = granted {
            attachment.remember(id, socket);
        }
        era.link.remember(socket);
        socket.notify(self.kernel);
        // Without its thread the socket works, but its owner gets no signals.
        let _ = self.follow_owner(socket);
    }

    /// Logs why a socket is left to the kernel, except when the engine's lists do that.
    pub(super) fn notice_refusal(
        &self,
        error: &crate::RequestError,
        notice: Notice,
        sentence: impl FnOnce() -> String,
    ) {
        if error.errno != LEFT_TO_KERNEL && error.errno != LEFT_BY_LISTS {
            self.notice(notice, sentence);
        }
    }

    fn lent(
        &self,
        fd: RawFd,
        ask: impl FnOnce(std::os::fd::BorrowedFd<'_>) -> Result<Endpoint, crate::RequestError>,
    ) -> Result<Endpoint, crate::RequestError> {
        let mut ask = Some(ask);
        let mut outcome = None;
        self.kernel.lend(fd, &mut |kernel| {
            if let Some(ask) = ask.take() {
                outcome = Some(ask(kernel));
            }
        });
        outcome.unwrap_or_else(|| Err(Errno::BADF.into()))
    }

    /// Dispatches the engine's hints to the watchers.
    pub(super) fn pump(&self, attachment: &Attachment) {
        let _undisturbed = Undisturbed::begin();
        let Some(_pumping) = Pumping::begin() else { return };
        loop {
            let mut hints = held(attachment.hints.lock());
            attachment.session.take_events(&mut hints);
            for id in hints.drain(..) {
                // A handler that interrupts here may close it.
                let socket = attachment.place(id).and_then(|place| held(place.lock()).clone());
                if let Some(socket) = socket {
                    socket.notify(self.kernel);
                }
            }
            drop(hints);
            if PUMPING.replace(Pumping::Busy) != Pumping::Asked {
                return;
            }
        }
    }

    /// Polls for hints for a short time; true if the waiter was signalled.
    pub(super) fn spin(&self, attachment: &Attachment, waiter: &Waiter) -> bool {
        if attachment.session.engine_shares_cpu() {
            self.pump(attachment);
            return waiter.is_signalled();
        }
        let limit_ns = attachment.spin_ns.load(Ordering::Relaxed);
        let began = self.kernel.now_ns();
        loop {
            self.pump(attachment);
            if waiter.is_signalled() {
                attachment.spin_ns.store(self.config.spin_ns, Ordering::Relaxed);
                return true;
            }
            if self.kernel.now_ns().wrapping_sub(began) >= limit_ns {
                // Spinning that finds nothing is shortened.
                let less = (limit_ns / 2).max(self.config.spin_ns / 16);
                attachment.spin_ns.store(less, Ordering::Relaxed);
                return false;
            }
            for _ in 0..32 {
                std::hint::spin_loop();
            }
        }
    }

    /// Sleeps in `wait` until the kernel, the engine or another thread has news for the waiter.
    /// `wait` blocks on the waiter's eventfd and the session's wake pipes among others, for at most
    /// the time it is given, and says what the kernel said. `Ok(None)`: it was not called, because
    /// there is news already. ECANCELED: the program has cancelled this thread.
    pub(super) fn sleep<T>(
        &'static self,
        era: &Era,
        sleeper: Sleeper<'_>,
        wait: impl FnOnce(Option<Duration>) -> Result<T, Errno>,
    ) -> Result<Option<T>, Errno> {
        let Sleeper { attachment, waiter, deadline } = sleeper;
        let mut left = deadline.left();
        if attachment.is_none() && era.link.is_wanted() {
            // There is no notification of a new engine: poll for it.
            let retry = Duration::from_nanos(RETRY_NS);
            left = Some(left.map_or(retry, |left| left.min(retry)));
        }
        let Some(round) = waiter.fall_asleep(self.kernel) else { return Ok(None) };
        let canceled = || {
            // This thread will not look, but others of an epoll set may have to.
            waiter.pass_on(self.kernel);
            Err(Errno::CANCELED)
        };
        if self.is_cancelled(era) {
            waiter.awake(round, self.kernel);
            return canceled();
        }
        // glibc interrupts a thread that waits since before the program's first pthread_cancel
        // (2.41).
        let told = |outcome: Result<T, Errno>| match outcome {
            Err(Errno::INTR) if self.is_cancelled(era) => canceled(),
            other => other.map(Some),
        };
        let Some(attachment) = attachment else {
            let outcome = wait(left);
            era.table.on_sleep(self.kernel.coarse_ms());
            waiter.awake(round, self.kernel);
            if era.link.is_wanted() {
                self.attach(era);
            }
            return told(outcome);
        };
        if !attachment.session.arm() {
            waiter.awake(round, self.kernel);
            self.after_sleep(era, attachment);
            return Ok(None);
        }
        let outcome = wait(left);
        era.table.on_sleep(self.kernel.coarse_ms());
        attachment.session.disarm();
        waiter.awake(round, self.kernel);
        self.after_sleep(era, attachment);
        told(outcome)
    }

    /// Dispatches events of the engine for all threads; detects a lost engine.
    fn after_sleep(&self, era: &Era, attachment: &Arc<Attachment>) {
        self.pump(attachment);
        if !attachment.session.is_alive() {
            self.lose(era, attachment);
        }
    }

    /// Closes the inherited descriptors of the parent's sessions (see `fork.rs`), except for
    /// `kept`.
    pub(super) fn close_inherited(&self, old: &Era, kept: Option<RawFd>) {
        old.table.internal(|fd| {
            if Some(fd) != self.config.report && Some(fd) != kept {
                self.kernel.close(fd);
            }
        });
    }
}
