//! The control thread: attaches clients, checks their right to ports, answers observers. It makes
//! all system calls on behalf of clients, so that workers make none.

pub mod authority;
pub mod capture;
mod complaints;
pub mod connection;
pub mod discard;
pub mod exchange;
mod following;
pub mod grant;
mod holds;
mod leaving;
pub mod listing;
mod look;
mod memory;
mod message_port;
mod passing;
pub mod questions;
pub mod raw;
pub mod rights;
mod showing;
pub mod socket;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use rustix::thread::CapabilitySet;
use shm::control::{
    CONTRACT_VERSION, FromEngine, Geometry, InterfaceInfo, Peer, RemoteRule, SocketInfo, ToEngine,
};

use self::authority::{Purpose, Refusal};
use self::capture::{CaptureOptions, Captures};
use self::complaints::Complaints;
use self::connection::Received;
use self::discard::Discard;
use self::exchange::{Answer, Command, Inbox, Outbox, SessionKey};
pub(crate) use self::following::FOREIGN_RULES;
use self::grant::Granted;
use self::holds::Holds;
use self::listing::{Listings, Step};
use self::message_port::MessagePort;
use self::passing::Tickets;
use self::questions::Questions;
use self::rights::{Ended, Rights};
use self::showing::SocketRequest;
pub use self::socket::{ControlError, ControlSocket};
use crate::config::{Accelerated, Limits};
use crate::kernel::Kernel;
use crate::passing::{HeirKey, Keeper};
use crate::privileges;
use crate::rules::Rules;
use crate::ss::Seen;
use crate::stats::Counters;
use crate::trial::Trial;
use shm::stats::StatsPage;

/// Whether a client may see and decide matters that concern all users.
/// Distinguishes this engine from its predecessors.
fn incarnation() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    (now.tv_sec as u64).wrapping_mul(1_000_000).wrapping_add(now.tv_nsec as u64 / 1000)
}

fn is_master(peer: &Peer) -> bool {
    peer.uid == 0 || peer.uid == rustix::process::geteuid().as_raw()
}

fn addresses_of(interfaces: &[InterfaceInfo]) -> Vec<IpAddr> {
    let all = interfaces.iter().flat_map(|interface| &interface.addresses);
    all.map(|(address, _)| *address).collect()
}

/// Whether duplicate address detection has finished on all interfaces.
fn is_settled(interfaces: &[InterfaceInfo]) -> bool {
    let mut ours = interfaces.iter().filter(|interface| !interface.shared);
    ours.all(|interface| interface.addresses.iter().all(|(own, _)| own.is_ipv4()))
}

/// Connections accepted in a row before others are served.
const ACCEPTS_PER_ROUND: usize = 64;

/// The refusal when the engine is out of descriptors.
const NO_DESCRIPTORS: &str = "the engine has no descriptors left; raise its limit (ulimit -n)";

/// Pause between attempts to get the spare descriptor back.
const SPARE_PAUSE: Duration = Duration::from_millis(100);

/// What woke the thread.
struct Ready {
    /// Connections with events, and their events.
    ready: Vec<(u64, PollFlags)>,
    /// There is a connection to accept.
    accept: bool,
    /// The kernel has notifications about passed sockets.
    rights: bool,
    /// The kernel has notifications about its interfaces.
    kernel: bool,
    /// A file has been removed from the directory of the control socket.
    left: bool,
}

/// The stage of a connection.
enum Stage {
    /// Has not said hello.
    New,
    Session(SessionKey),
    /// A program without a session, which may report its listeners.
    Bystander,
    Observer,
    /// A forked child that holds connections of its parent.
    Heir(HeirKey),
}

/// What a connection waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// A message of the client.
    Message,
    /// An answer of the worker. Nothing is read from the connection before that, so further
    /// requests wait in its own socket.
    Answer,
    /// Room in its socket, to continue the list at this place.
    Room { place: usize },
}

struct Connection {
    fd: OwnedFd,
    peer: Peer,
    stage: Stage,
    next: Next,
    /// The socket that the worker was asked to serve.
    asked: Option<Accelerated>,
    /// The raw endpoint that the worker was asked to open.
    opening: Option<raw::Opening>,
}

/// The part of the configuration that the control thread uses.
pub struct Policy {
    /// Limits.
    pub limits: Limits,
    /// Rules on what may be accelerated.
    pub rules: Rules,
    /// Rights to raw frames.
    pub raw: raw::RawPolicy,
    /// Set while the engine is on trial.
    pub trial: Option<Arc<Trial>>,
    /// Receives every socket that the engine begins to serve.
    pub accelerated: Option<SyncSender<Accelerated>>,
}

/// What a control thread is made from.
pub struct ControlSetup {
    /// The socket that programs connect to.
    pub socket: ControlSocket,
    /// What the configuration says.
    pub policy: Policy,
    /// Layout of the sessions' regions.
    pub geometry: Geometry,
    /// The engine's interfaces, as programs see them.
    pub interfaces: Vec<InterfaceInfo>,
    /// Commands to the worker.
    pub worker: Outbox<Command>,
    /// The worker's answers.
    pub answers: Inbox<Answer>,
    /// The engine's counters.
    pub counters: Arc<Counters>,
    /// Stops it and the worker.
    pub stop: Arc<exchange::Stop>,
    /// Captures of the ports.
    pub captures: Captures,
    /// The statistics page, which programs map.
    pub page: Arc<StatsPage>,
    /// Where a port shares its interface with the kernel.
    pub kernel: Option<Kernel>,
    /// The connection of the relay's process.
    pub relay: Option<OwnedFd>,
}

/// What the control thread knows and serves.
pub struct Control {
    socket: ControlSocket,
    policy: Policy,
    remotes: Vec<RemoteRule>,
    geometry: Geometry,
    interfaces: Vec<InterfaceInfo>,
    addresses: Vec<IpAddr>,
    namespace: u64,
    worker: Outbox<Command>,
    answers: Inbox<Answer>,
    counters: Arc<Counters>,
    captures: Captures,
    page: Arc<StatsPage>,
    connections: BTreeMap<u64, Connection>,
    /// Sessions whose memory has not all been returned.
    sessions: BTreeMap<SessionKey, Granted>,
    /// Greater with each start of an engine: microseconds since 1970.
    incarnation: u64,
    next_id: u64,
    buffer: Vec<u8>,
    rights: Rights,
    holds: Holds,
    message_port: MessagePort,
    /// Set if a port shares its interface with the kernel.
    kernel: Option<Kernel>,
    discard: Discard,
    /// Closed for a moment when the engine is out of descriptors, to refuse connecting clients.
    spare: Option<OwnedFd>,
    complaints: Complaints,
    listings: Listings,
    questions: Questions,
    tickets: Tickets,
    stop: Arc<exchange::Stop>,
    /// The engine has begun to end: no more programs are admitted.
    is_ending: bool,
    /// The kernel has routing rules that the engine does not follow.
    has_rules: bool,
    /// Duplicate address detection of the configured addresses has finished.
    settled: bool,
}

impl Control {
    /// A control thread's state; [`Control::run`] is its body.
    ///
    /// # Errors
    /// What the kernel says when it cannot name the socket's network namespace, follow the sockets of
    /// programs, or give one descriptor more.
    pub fn new(setup: ControlSetup) -> std::io::Result<Self> {
        let ControlSetup {
            socket,
            policy,
            geometry,
            interfaces,
            worker,
            answers,
            counters,
            stop,
            captures,
            page,
            kernel,
            relay,
        } = setup;
        let namespace = port::netns::cookie(socket.fd.as_fd())?;
        let addresses = addresses_of(&interfaces);
        let settled = is_settled(&interfaces);
        let rights = Rights::open(namespace)?;
        let has_rules = kernel.as_ref().is_some_and(Kernel::has_rules);
        let spare = Some(rustix::io::fcntl_dupfd_cloexec(&socket.fd, 0)?);
        let mut control = Self {
            rights,
            holds: Holds::default(),
            message_port: MessagePort::default(),
            kernel,
            discard: Discard::new(Arc::clone(&counters)),
            spare,
            complaints: Complaints::default(),
            listings: Listings::default(),
            questions: Questions::default(),
            tickets: Tickets::default(),
            socket,
            remotes: policy.rules.remotes(),
            policy,
            geometry,
            interfaces,
            addresses,
            namespace,
            worker,
            answers,
            counters,
            captures,
            page,
            connections: BTreeMap::new(),
            sessions: BTreeMap::new(),
            incarnation: incarnation(),
            next_id: 1,
            buffer: Vec::new(),
            stop,
            is_ending: false,
            has_rules,
            settled,
        };
        if let Some(relay) = relay {
            control.take_relay(relay)?;
        }
        Ok(control)
    }

    /// Serves until it is stopped.
    pub fn run(mut self) {
        privileges::keep_or_warn(match self.kernel {
            Some(_) => privileges::CONTROL,
            None => CapabilitySet::empty(),
        });
        self.count_routes();
        while !self.stop.is_stopped() {
            let Ready { ready, accept, rights, kernel, left } = match self.wait() {
                Ok(found) => found,
                Err(Errno::INTR) => continue,
                Err(error) => {
                    tracing::error!("the control thread cannot poll: {error}");
                    return;
                }
            };
            let answers: Vec<Answer> = self.answers.take().collect();
            for answer in answers {
                self.on_answer(answer);
            }
            if rights || self.rights.due().is_some() {
                let ended = self.rights.take();
                self.end_rights(ended);
            }
            if kernel {
                self.on_kernel_news();
            }
            for (id, found) in ready {
                self.on_ready(id, found);
            }
            if self.spare.is_none() {
                self.spare = rustix::io::fcntl_dupfd_cloexec(&self.socket.fd, 0).ok();
            }
            if accept {
                self.accept();
            }
            if left {
                self.restore_socket();
            }
        }
        // The last answers of the worker.
        for answer in self.answers.take() {
            if let Answer::Ending(stage) = answer {
                leaving::say(stage);
            }
        }
    }

    fn wait(&self) -> rustix::io::Result<Ready> {
        let mut fds = Vec::with_capacity(self.connections.len() + 6);
        fds.push(PollFd::from_borrowed_fd(self.stop.fd(), PollFlags::IN));
        fds.push(PollFd::from_borrowed_fd(self.answers.signal().fd(), PollFlags::IN));
        // A client that connects before duplicate address detection has finished waits.
        let is_welcome = self.settled && self.spare.is_some();
        let welcome = if is_welcome { PollFlags::IN } else { PollFlags::empty() };
        fds.push(PollFd::new(&self.socket.fd, welcome));
        fds.push(PollFd::from_borrowed_fd(self.rights.fd(), PollFlags::IN));
        // Without one, polling the same descriptor twice does no harm.
        let kernel = self.kernel.as_ref().map_or(self.rights.fd(), Kernel::fd);
        fds.push(PollFd::from_borrowed_fd(kernel, PollFlags::IN));
        let left = self.socket.watch().unwrap_or(self.rights.fd());
        fds.push(PollFd::from_borrowed_fd(left, PollFlags::IN));
        for connection in self.connections.values() {
            let wanted = match connection.next {
                Next::Message => PollFlags::IN,
                Next::Answer => PollFlags::empty(),
                Next::Room { .. } => PollFlags::IN | PollFlags::OUT,
            };
            fds.push(PollFd::new(&connection.fd, wanted));
        }
        // The kernel's interfaces or sockets are due to be read again, or a descriptor may have
        // become free.
        let due = self.kernel.as_ref().and_then(Kernel::due).into_iter();
        let no_spare = self.spare.is_none().then_some(SPARE_PAUSE);
        let due = due.chain(self.rights.due()).chain(no_spare).min();
        let limit = due.and_then(|due| Timespec::try_from(due).ok());
        poll(&mut fds, limit.as_ref())?;
        let is_ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
        let (accept, rights) = (is_ready(2), is_ready(3));
        let kernel = is_ready(4) || self.kernel.as_ref().is_some_and(Kernel::is_due);
        let left = is_ready(5) && self.socket.watch().is_some();
        let ready = self
            .connections
            .keys()
            .zip(fds.iter().skip(6))
            .filter(|(_, fd)| !fd.revents().is_empty())
            .map(|(id, fd)| (*id, fd.revents()))
            .collect();
        Ok(Ready { ready, accept, rights, kernel, left })
    }

    /// Passed sockets have lost the right to their port.
    fn end_rights(&mut self, ended: Ended) {
        for key in ended.keys {
            self.worker.send(Command::RightEnded(key));
        }
        self.counters.rights_withdrawn.add(ended.kept);
        if ended.any_closed {
            self.holds.retry();
            self.count_holds();
        }
        if ended.missed {
            self.counters.closings_missed.increment();
            tracing::warn!(
                "the kernel dropped notifications of closed sockets: checking all sockets; raise \
                 net.core.rmem_max"
            );
        }
    }

    fn count_holds(&self) {
        self.counters.ports_held.set(self.holds.count() as u64);
        self.counters.ports_awaited.set(self.holds.awaited() as u64);
    }

    fn accept(&mut self) {
        // Bounded: connected clients have their turn between floods of connections.
        for _ in 0..ACCEPTS_PER_ROUND {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match accept_with(&self.socket.fd, flags) {
                Ok(fd) => self.admit(fd),
                Err(Errno::MFILE | Errno::NFILE) => return self.refuse_without_descriptors(),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(_) => return,
            }
        }
    }

    /// Creates the control socket again at its path.
    fn restore_socket(&mut self) {
        match self.socket.restored() {
            None => {}
            Some(Ok(again)) => {
                // Clients that wait at the old one are accepted before it is closed.
                self.accept();
                self.socket = again;
                self.spare = rustix::io::fcntl_dupfd_cloexec(&self.socket.fd, 0).ok();
                tracing::warn!("the control socket was removed; it is back at its path");
            }
            Some(Err(error)) => tracing::warn!(
                "{error}; attached programs are not affected, but others cannot find the engine: \
                 restart it"
            ),
        }
    }

    fn admit(&mut self, fd: OwnedFd) {
        let Ok(peer) = shm::control::peer(fd.as_fd()) else {
            return self.discard.hang_up(discard::NOBODY, fd);
        };
        if self.discard.is_crowded(peer.uid) {
            self.counters.control_refused.increment();
            self.refuse(
                &fd,
                "the engine still waits for descriptors passed by this user to be closed; end the \
                 program that passed them",
            );
            return self.discard.hang_up(peer.uid, fd);
        }
        if self.connections.len() >= usize::from(self.policy.limits.control_connections)
            && !self.make_room()
        {
            self.counters.control_refused.increment();
            self.refuse(&fd, "the engine has reached its limit of control connections");
            return self.discard.hang_up(peer.uid, fd);
        }
        let id = self.fresh_id();
        self.connections.insert(
            id,
            Connection {
                fd,
                peer,
                stage: Stage::New,
                next: Next::Message,
                asked: None,
                opening: None,
            },
        );
    }

    /// Ends the oldest connection that has not said hello, or else the oldest observer, of the user
    /// who has most of them. Thus no user can keep programs from attaching by idle connections, or
    /// end the connections of others.
    fn make_room(&mut self) -> bool {
        let oldest = |wanted: fn(&Stage) -> bool| {
            let mut by_user = BTreeMap::<u32, (usize, u64)>::new();
            for (id, one) in self.connections.iter().filter(|(_, one)| wanted(&one.stage)) {
                by_user.entry(one.peer.uid).or_insert((0, *id)).0 += 1;
            }
            by_user.into_values().max_by_key(|(count, _)| *count).map(|(_, id)| id)
        };
        let found = oldest(|stage| matches!(stage, Stage::New | Stage::Bystander))
            .or_else(|| oldest(|stage| matches!(stage, Stage::Observer)));
        if let Some(id) = found {
            self.counters.control_evicted.increment();
            self.drop_connection(id);
        }
        found.is_some()
    }

    /// Out of descriptors: connecting clients are refused, rather than left waiting while this
    /// thread spins.
    fn refuse_without_descriptors(&mut self) {
        self.spare = None;
        if let Ok(fd) = accept_with(&self.socket.fd, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            self.counters.control_refused.increment();
            self.refuse(&fd, NO_DESCRIPTORS);
            let uid = shm::control::peer(fd.as_fd()).map_or(discard::NOBODY, |peer| peer.uid);
            self.discard.hang_up(uid, fd);
        }
        self.spare = rustix::io::fcntl_dupfd_cloexec(&self.socket.fd, 0).ok();
    }

    fn fresh_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    fn refuse(&self, fd: &OwnedFd, reason: &str) {
        let refused =
            FromEngine::Refused { contract: CONTRACT_VERSION, reason: reason.to_string() };
        // A client that cannot receive its refusal sees the hang-up.
        let _ = connection::send(fd.as_fd(), &refused, &[]);
    }

    fn on_ready(&mut self, id: u64, found: PollFlags) {
        let Some(connection) = self.connections.get(&id) else { return };
        match connection.next {
            Next::Message => self.on_readable(id),
            // No event was requested; only a hang-up is reported anyway.
            Next::Answer => self.drop_connection(id),
            Next::Room { place } if found.contains(PollFlags::OUT) => self.list(id, place),
            Next::Room { .. } => {
                // The client sends more requests instead of reading, or is gone.
                if !found.contains(PollFlags::HUP) {
                    self.note_deaf(id);
                }
                self.drop_connection(id);
            }
        }
    }

    fn note_deaf(&mut self, id: u64) {
        self.counters.control_deaf.increment();
        self.complain(id, "does not read its answers; dropped");
    }

    fn complain(&mut self, id: u64, what: &str) {
        let pid = self.connections.get(&id).map_or(0, |connection| connection.peer.pid);
        self.complaints.say(Instant::now(), pid, what);
    }

    fn on_readable(&mut self, id: u64) {
        // Bounded, so that one busy client cannot keep the thread.
        for _ in 0..16 {
            let Some(connection) = self.connections.get(&id) else { return };
            if connection.next != Next::Message {
                return;
            }
            match connection::receive(connection.fd.as_fd(), &mut self.buffer) {
                Received::Nothing => return,
                Received::HungUp => return self.drop_connection(id),
                Received::Crowded(fds) => {
                    if !self.on_crowded(id, fds) {
                        return self.drop_connection(id);
                    }
                }
                Received::Garbage(what, fds) => {
                    let Some(connection) = self.connections.get(&id) else { return };
                    // The connection ends in any case.
                    let _ = self.discard.close(connection.peer.uid, fds);
                    self.counters.control_garbage.increment();
                    self.complain(id, &format!("{what}; dropped"));
                    return self.drop_connection(id);
                }
                Received::Message(message, fds) => {
                    if !self.on_message(id, message, fds) {
                        return self.drop_connection(id);
                    }
                }
            }
        }
    }

    fn drop_connection(&mut self, id: u64) {
        if let Some(connection) = self.connections.remove(&id) {
            if self.tickets.relay == Some(id) && !self.is_ending {
                self.lose_relay();
            }
            self.listings.forget(id);
            // It may hold unread messages with descriptors.
            let (uid, fd) = (connection.peer.uid, connection.fd);
            match connection.stage {
                Stage::Session(key) => {
                    self.discard.hang_up(uid, fd);
                    self.worker.send(Command::Detach(key));
                }
                Stage::Heir(heir) => {
                    self.counters.heirs.set(self.counters.heirs.read().saturating_sub(1));
                    self.discard.hang_up(uid, fd);
                    self.worker.send(Command::EndHeir(heir));
                }
                Stage::New | Stage::Bystander => self.discard.hang_up(uid, fd),
                Stage::Observer => {
                    // A capture may hold a copy, and hangs up once everything is written.
                    let _ = self.discard.close(uid, vec![fd]);
                    self.captures.end(id);
                }
            }
        }
    }

    /// `false`: the connection is to be dropped.
    fn on_message(&mut self, id: u64, message: ToEngine, fds: Vec<OwnedFd>) -> bool {
        let Some(connection) = self.connections.get(&id) else { return false };
        let uid = connection.peer.uid;
        match (&connection.stage, message) {
            (Stage::New, ToEngine::Hello { contract, role, program }) => {
                self.discard.close(uid, fds) && self.on_hello(id, contract, role, program)
            }
            (Stage::Session(key), ToEngine::Listen { serial, context, backlog }) => {
                let session = *key;
                let request = SocketRequest { session, serial, purpose: Purpose::Listen };
                self.on_shown(id, request, fds, |shown, beside| Command::Listen {
                    session,
                    serial,
                    context,
                    backlog,
                    shown,
                    beside,
                })
            }
            (Stage::Session(key), ToEngine::BindUdp { serial, context }) => {
                let session = *key;
                let request = SocketRequest { session, serial, purpose: Purpose::Udp };
                self.on_shown(id, request, fds, |shown, _| Command::BindUdp {
                    session,
                    serial,
                    context,
                    shown,
                })
            }
            (Stage::Session(session), ToEngine::BindMessages { serial, context, key }) => {
                let (session, incarnation) = (*session, self.incarnation);
                if !self.sessions.get(&session).is_some_and(|one| one.has_messages) {
                    let reason = "the session was not attached for messages; attach one that is";
                    let errno = rustix::io::Errno::OPNOTSUPP.raw_os_error();
                    let refusal = Refusal { errno, reason: reason.into() };
                    return self.discard.close(uid, fds)
                        && self.refuse_endpoint(id, serial, refusal);
                }
                if let Err(refusal) = self.keep_message_port(fds.first()) {
                    return self.discard.close(uid, fds)
                        && self.refuse_endpoint(id, serial, refusal);
                }
                let request = SocketRequest { session, serial, purpose: Purpose::Udp };
                self.on_shown(id, request, fds, |shown, _| Command::BindMessages {
                    session,
                    serial,
                    context,
                    shown,
                    key,
                    incarnation,
                })
            }
            (Stage::Session(key), ToEngine::BindTcp { serial }) => {
                let session = *key;
                let request = SocketRequest { session, serial, purpose: Purpose::Connect };
                self.on_shown(id, request, fds, |shown, _| Command::BindTcp {
                    session,
                    serial,
                    shown,
                })
            }
            (
                Stage::Session(key),
                ToEngine::OpenRaw { serial, context, ports, sizes, filter, wants },
            ) => {
                let session = *key;
                let asked = raw::Asked { serial, context, ports, sizes, filter, wants };
                self.on_open_raw(id, session, asked, fds)
            }
            (Stage::Session(key), ToEngine::Register { serial, bytes }) => {
                let session = *key;
                self.discard.close(uid, fds) && self.on_register(id, session, serial, bytes)
            }
            (Stage::Session(key), ToEngine::Unregister { number }) => {
                let session = *key;
                self.discard.close(uid, fds) && self.on_unregister(id, session, number)
            }
            (Stage::Session(_), ToEngine::Served { pass, errno })
                if self.tickets.relay == Some(id) =>
            {
                self.on_served(pass, errno, fds)
            }
            (Stage::Session(key), message @ (ToEngine::Fork { .. } | ToEngine::Pass { .. })) => {
                let by = Keeper::Session(*key);
                self.discard.close(uid, fds) && self.on_keeper(id, by, message)
            }
            (Stage::Heir(heir), message) => {
                let by = Keeper::Heir(*heir);
                self.discard.close(uid, fds) && self.on_keeper(id, by, message)
            }
            (Stage::Bystander, ToEngine::LeaveListener { lasting }) => {
                self.on_leave_listener(id, lasting, fds)
            }
            (Stage::Session(_), ToEngine::Interfaces { serial }) => {
                self.discard.close(uid, fds)
                    && self.tell(id, &FromEngine::Interfaces { serial, interfaces: self.told() })
            }
            (Stage::Observer, ToEngine::Stats) => {
                self.wait_for_answer(id);
                self.discard.close(uid, fds)
                    && (!self.questions.ask(id) || self.worker.send(Command::Stats))
            }
            (Stage::Observer, ToEngine::Sockets) => {
                self.list(id, 0);
                self.discard.close(uid, fds)
            }
            (Stage::Observer, ToEngine::Census { after }) => {
                self.discard.close(uid, fds) && self.tell(id, &self.census(after))
            }
            (Stage::Observer, ToEngine::Capture { port, snap_bytes, filter }) => {
                self.on_capture(id, &CaptureOptions { port, snap_bytes, filter }, fds)
            }
            (Stage::Observer, ToEngine::Confirm) => {
                self.discard.close(uid, fds) && self.on_confirm(id)
            }
            _ => {
                self.counters.control_garbage.increment();
                self.complain(id, "sent a message out of order; dropped");
                let _ = self.discard.close(uid, fds);
                false
            }
        }
    }

    /// Refuses an endpoint to a session.
    fn refuse_endpoint(&mut self, id: u64, serial: u32, refusal: Refusal) -> bool {
        self.counters.authority_refused.increment();
        let Refusal { errno, reason } = refusal;
        self.tell(id, &FromEngine::Denied { serial, errno, reason })
    }

    /// Takes the next step of an observer's list of sockets.
    fn list(&mut self, id: u64, place: usize) {
        self.wait_for_answer(id);
        if let Some(Step { place, .. }) = self.listings.ask(Step { connection: id, place }) {
            self.worker.send(Command::Sockets { place });
        }
    }

    fn on_listed(&mut self, seen: &[Seen], next: Option<usize>) {
        let (answered, put) = self.listings.answered();
        if let Some(Step { place, .. }) = put {
            self.worker.send(Command::Sockets { place });
        }
        let Some(id) = answered.map(|step| step.connection) else { return };
        let line = |seen: &Seen| {
            let granted = seen.session.and_then(|key| self.sessions.get(&key));
            listing::line(seen, granted.map(|granted| &granted.who))
        };
        let sockets: Vec<SocketInfo> = seen.iter().map(line).collect();
        let Some(place) = next else {
            return self.answer(id, &FromEngine::Sockets { sockets, more: false });
        };
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.next = Next::Room { place };
        if !sockets.is_empty() && !self.tell(id, &FromEngine::Sockets { sockets, more: true }) {
            self.drop_connection(id);
        }
    }

    fn on_confirm(&mut self, id: u64) -> bool {
        let Some(connection) = self.connections.get(&id) else { return false };
        let refused = match &self.policy.trial {
            _ if !is_master(&connection.peer) => {
                Some("only root and the engine's own user may confirm it".to_string())
            }
            Some(trial) => trial.confirm().err().map(|over| over.to_string()),
            None => Some(
                "the engine was not started with --confirm; there is nothing to confirm"
                    .to_string(),
            ),
        };
        self.tell(id, &FromEngine::Confirmed { refused })
    }

    fn tell(&mut self, id: u64, message: &FromEngine) -> bool {
        let Some(connection) = self.connections.get(&id) else { return false };
        let sent = connection::send(connection.fd.as_fd(), message, &[]);
        if sent == Err(Errno::AGAIN) {
            self.note_deaf(id);
        }
        sent.is_ok()
    }

    fn on_answer(&mut self, answer: Answer) {
        match answer {
            Answer::Granted { session, serial, endpoint, local } => {
                let connection = self.connections.get_mut(&session.0);
                let asked = connection.and_then(|connection| connection.asked.take());
                if let (Some(accelerated), Some(tell)) = (asked, &self.policy.accelerated)
                    && tell.try_send(accelerated).is_err()
                {
                    self.counters.accelerated_untold.increment();
                }
                let granted = FromEngine::Granted { serial, endpoints: vec![endpoint], local };
                self.answer(session.0, &granted);
            }
            Answer::Denied { session, serial, key, errno, reason } => {
                self.rights.end_use(key);
                self.answer(session.0, &FromEngine::Denied { serial, errno, reason });
            }
            Answer::Unused(key) => self.rights.end_use(key),
            Answer::Hold { local, reuses } => {
                self.holds.hold(local, reuses);
                self.count_holds();
            }
            Answer::LetGo(local) => {
                self.holds.let_go(local);
                self.count_holds();
            }
            Answer::AskNeighbor { port, address } => self.ask_for_neighbor(port, address),
            Answer::Interface { port, addresses, leads_v6, settled } => {
                self.on_addresses(port, &addresses, leads_v6);
                self.worker.send(Command::Heard);
                self.settled |= settled;
            }
            Answer::Ending(stage) => self.on_ending(stage),
            // The worker has already ended the session; the hang-up tells the client.
            Answer::Breached(session, breach) => {
                self.complain(
                    session.0,
                    &format!("broke the shared-memory contract and has lost its session: {breach}"),
                );
                self.hang_up(session);
            }
            Answer::Raw { session, serial, result } => self.on_raw(session, serial, result),
            Answer::RawClosed { session, rings, ports } => {
                self.on_raw_closed(session, rings, ports);
            }
            Answer::Registered { session, serial, number, is_known } => {
                self.on_registered(session, serial, number, is_known);
            }
            Answer::Unregistered { session, number } => self.on_unregistered(session, number),
            Answer::Forked { by, heir, serial, refused } => {
                self.on_forked(by, heir, serial, refused);
            }
            Answer::Passed { by, serial, v6, outcome } => self.on_passed(by, serial, v6, outcome),
            Answer::PassOver(pass) => self.on_pass_over(pass),
            Answer::Gone(session) => {
                self.sessions.remove(&session);
                self.count_memories();
            }
            Answer::Sockets { sockets, next } => self.on_listed(&sockets, next),
            Answer::Stats => {
                let told = FromEngine::Stats { counters: self.counters.read() };
                let (askers, again) = self.questions.answered();
                for connection in askers {
                    self.answer(connection, &told);
                }
                if again {
                    self.worker.send(Command::Stats);
                }
            }
        }
    }

    /// The connection is not read until [`Control::answer`].
    fn wait_for_answer(&mut self, id: u64) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.next = Next::Answer;
        }
    }

    /// Sends the answer for which a connection waits.
    fn answer(&mut self, id: u64, message: &FromEngine) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.next = Next::Message;
        if rustix::io::ioctl_fionread(&connection.fd).is_ok_and(|bytes| bytes > 0) {
            self.counters.control_held.increment();
        }
        if !self.tell(id, message) {
            self.drop_connection(id);
        }
    }
}
