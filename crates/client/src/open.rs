//! Attaching to an engine, and requests on the control socket.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use shm::client_side::ClientLane;
use shm::control::{
    CONTRACT_VERSION, ControlError, FromEngine, Geometry, InterfaceInfo, RemoteRule, Role, Socket,
    ToEngine, Wait,
};
use shm::region::{Region, RegionError};

use crate::driver::{Driver, locked};
use crate::session::Session;

/// Timeout for answers of the engine's control thread to a session.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Timeout for attaching, for which the program's first calls wait: a starting engine first
/// performs duplicate address detection, for a second or two.
const WELCOME_WITHIN: Duration = Duration::from_secs(10);
/// Descriptors of the library get numbers from here on if the limit permits, out of the program's
/// way.
const DESCRIPTORS_FROM: i32 = 900;

/// Why an attempt to attach failed.
#[derive(Debug)]
pub enum AttachError {
    /// Nothing listens at the path.
    NoEngine(PathBuf, Errno),
    /// The process that listens at the path does not answer: a stopped or hanging engine.
    Silent(PathBuf),
    /// The engine refused, with a sentence that says why and what to do.
    Refused {
        /// The engine's contract version.
        contract: u32,
        /// Its sentence.
        reason: String,
    },
    /// The engine's configuration leaves the programs of this user to the kernel.
    NotServed,
    /// The control socket failed.
    Control(ControlError),
    /// The engine's grant is invalid.
    Grant(&'static str),
    /// The region cannot be mapped.
    Region(RegionError),
    /// Another system call failed.
    System(Errno),
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoEngine(path, errno) => write!(
                f,
                "no engine answers at {}: {errno}; start one with `outboard engine`, or name \
                 another socket",
                path.display()
            ),
            Self::Silent(path) => write!(
                f,
                "the engine at {} does not answer; if it is stopped, continue it (kill -CONT) or \
                 end it",
                path.display()
            ),
            Self::Refused { contract, reason } => {
                write!(f, "the engine (contract {contract}) refused: {reason}")
            }
            Self::NotServed => write!(
                f,
                "the engine leaves this user's programs to the kernel; see [allow] and [deny] in \
                 its configuration"
            ),
            Self::Control(error) => write!(f, "{error}"),
            Self::Grant(what) => write!(f, "the engine's grant is invalid: {what}"),
            Self::Region(error) => write!(f, "{error}"),
            Self::System(errno) => write!(f, "attaching to the engine failed: {errno}"),
        }
    }
}

impl std::error::Error for AttachError {}

impl From<ControlError> for AttachError {
    fn from(error: ControlError) -> Self {
        Self::Control(error)
    }
}

/// Why a listener, datagram endpoint or connection was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestError {
    /// Nearest errno.
    pub errno: Errno,
    /// The reason, as a sentence.
    pub reason: String,
}

impl RequestError {
    pub(crate) fn new(errno: Errno, reason: impl Into<String>) -> Self {
        Self { errno, reason: reason.into() }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.reason)
    }
}

impl std::error::Error for RequestError {}

impl From<Errno> for RequestError {
    fn from(errno: Errno) -> Self {
        Self { errno, reason: errno.to_string() }
    }
}

impl From<RequestError> for std::io::Error {
    fn from(error: RequestError) -> Self {
        std::io::Error::from(error.errno)
    }
}

/// The engine's permission to connect once from an authorized local address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token(pub(crate) u32);

/// The control socket, in use.
#[derive(Debug)]
pub(crate) struct Control {
    pub socket: Socket,
    serial: u32,
}

impl Control {
    pub fn new(socket: Socket) -> Self {
        Self { socket, serial: 0 }
    }

    pub fn next_serial(&mut self) -> u32 {
        self.serial = self.serial.wrapping_add(1);
        self.serial
    }
}

/// The parts of a session.
pub(crate) struct Grant {
    pub control: Control,
    pub region: Arc<Region>,
    pub drivers: Vec<Driver>,
    /// Wakeup descriptors of contexts that this process does not use; kept open, because their
    /// hang-up would mean that it is gone.
    pub spare: Vec<OwnedFd>,
    pub interfaces: Vec<InterfaceInfo>,
    pub remotes: Vec<RemoteRule>,
}

/// Moves a descriptor to a high number, if the limit on open files allows.
fn lifted(fd: OwnedFd) -> OwnedFd {
    rustix::io::fcntl_dupfd_cloexec(&fd, DESCRIPTORS_FROM).unwrap_or(fd)
}

/// Says hello to the engine at `path` and maps what it grants.
pub(crate) fn attach(path: &Path, program: &str) -> Result<Grant, AttachError> {
    attach_as(path, Role::Session, program)
}

/// The same in another role.
pub(crate) fn attach_as(path: &Path, role: Role, program: &str) -> Result<Grant, AttachError> {
    attach_within(path, role, program, WELCOME_WITHIN)
}

fn attach_within(
    path: &Path,
    role: Role,
    program: &str,
    limit: Duration,
) -> Result<Grant, AttachError> {
    let silent = || AttachError::Silent(path.to_path_buf());
    let socket = Socket::connect_within(path, Some(limit)).map_err(|errno| match errno {
        Errno::AGAIN => silent(),
        errno => AttachError::NoEngine(path.to_path_buf(), errno),
    })?;
    let socket = Socket::from_fd(lifted(socket.into_fd()));
    greet(socket, role, program, limit).map_err(|error| match error {
        AttachError::System(Errno::TIMEDOUT)
        | AttachError::Control(ControlError::System(Errno::AGAIN)) => silent(),
        error => error,
    })
}

/// The same over a connected socket.
pub(crate) fn greet_connected(socket: Socket, program: &str) -> Result<Grant, AttachError> {
    greet(socket, Role::Session, program, WELCOME_WITHIN)
}

/// The same for clients that are not programs.
pub(crate) fn greet_as(socket: Socket, role: Role, program: &str) -> Result<Grant, AttachError> {
    greet(socket, role, program, WELCOME_WITHIN)
}

fn greet(socket: Socket, role: Role, program: &str, limit: Duration) -> Result<Grant, AttachError> {
    let hello = ToEngine::Hello {
        contract: CONTRACT_VERSION,
        role,
        program: program.chars().take(64).collect(),
    };
    match socket.send(&hello, &[], Wait::Yes) {
        // An engine that hangs up at once has sent the reason.
        Ok(()) | Err(ControlError::Closed) => {}
        Err(error) => return Err(error.into()),
    }
    answer_within(&socket, limit).map_err(AttachError::System)?;
    let (answer, descriptors) = socket.receive::<FromEngine>(Wait::No)?;
    let (geometry, interfaces, remotes) = match answer {
        FromEngine::Welcome { geometry, interfaces, remotes } => (geometry, interfaces, remotes),
        FromEngine::NotServed => return Err(AttachError::NotServed),
        FromEngine::Refused { contract, reason } => {
            return Err(AttachError::Refused { contract, reason });
        }
        _ => return Err(AttachError::Grant("unexpected answer")),
    };
    let Geometry { context_count, worker_count, .. } = geometry;
    let lanes = usize::from(context_count) * usize::from(worker_count);
    if descriptors.len() != 1 + 2 * lanes {
        return Err(AttachError::Grant("the number of descriptors does not fit the geometry"));
    }
    let mut descriptors = descriptors.into_iter().map(lifted);
    let mut next = || descriptors.next().ok_or(AttachError::Grant("too few descriptors"));
    let mut region = Region::open(next()?, geometry).map_err(AttachError::Region)?;
    region.drop_file();
    let region = Arc::new(region);
    let process = rustix::process::getpid().as_raw_nonzero().get().cast_unsigned();
    let mut drivers = Vec::new();
    for worker in 0..worker_count {
        let (wake, bell) = (next()?, next()?);
        let flags = rustix::fs::fcntl_getfl(&wake).map_err(AttachError::System)?;
        rustix::fs::fcntl_setfl(&wake, flags | rustix::fs::OFlags::NONBLOCK)
            .map_err(AttachError::System)?;
        let lane = ClientLane::new(region.clone(), 0, worker);
        drivers.push(Driver::new(lane, wake, bell, process));
    }
    let spare = descriptors.collect();
    Ok(Grant { control: Control::new(socket), region, drivers, spare, interfaces, remotes })
}

/// A child's control connection, by which it holds connections opened by its parent.
#[derive(Debug)]
pub(crate) struct Keeping {
    control: Control,
}

impl Keeping {
    fn new(fd: OwnedFd) -> Self {
        Self { control: Control::new(Socket::from_fd(lifted(fd))) }
    }

    /// Its descriptor number.
    pub fn raw_fd(&self) -> RawFd {
        self.control.socket.as_fd().as_raw_fd()
    }

    /// Returns the descriptor.
    pub fn into_fd(self) -> OwnedFd {
        self.control.socket.into_fd()
    }

    /// One for a child of this process.
    ///
    /// # Errors
    /// ECONNRESET when the engine is gone; the errno and sentence of an engine that refuses.
    pub fn fork(&mut self) -> Result<Self, RequestError> {
        fork_over(&mut self.control).map_err(Refused::into_error)
    }

    /// A connection as a socket of the kernel's.
    ///
    /// # Errors
    /// ECONNRESET when the engine is gone, ETIMEDOUT when it does not answer in time; the errno and
    /// sentence of an engine that refuses.
    pub fn pass(&mut self, endpoint: u32, v6: bool) -> Result<Ticket, RequestError> {
        in_time(|| pass_over(&mut self.control, endpoint, v6).map_err(Refused::into_error))
    }

    /// The process no longer holds a connection.
    pub fn release(&self, endpoint: u32) {
        // An engine that is gone holds nothing.
        let _ = self.control.socket.send(&ToEngine::Release { endpoint }, &[], Wait::No);
    }
}

/// A connection converted to a kernel socket.
#[derive(Debug)]
pub(crate) struct Ticket {
    /// The socket, shared by all holders.
    pub fd: OwnedFd,
    /// No other holder has received it before.
    pub is_fresh: bool,
}

/// Pause before retrying while the connection's process is reading or writing it.
const PASS_PAUSE: Duration = Duration::from_micros(100);

/// Retries a request for a connection until no thread of its process is reading or writing it;
/// ETIMEDOUT if that takes too long.
fn in_time(mut ask: impl FnMut() -> Result<Ticket, RequestError>) -> Result<Ticket, RequestError> {
    let began = Instant::now();
    loop {
        match ask() {
            Err(error) if error.errno == Errno::AGAIN => {
                if began.elapsed() > ANSWER_WITHIN {
                    return Err(RequestError::from(Errno::TIMEDOUT));
                }
                std::thread::sleep(PASS_PAUSE);
            }
            outcome => return outcome,
        }
    }
}

/// Why a keeper was refused.
enum Refused {
    Control(ControlError),
    Said(RequestError),
}

impl Refused {
    fn into_error(self) -> RequestError {
        match self {
            Self::Said(error) => error,
            Self::Control(ControlError::System(errno)) => RequestError::from(errno),
            Self::Control(error) => RequestError::new(Errno::CONNRESET, error.to_string()),
        }
    }
}

impl From<ControlError> for Refused {
    fn from(error: ControlError) -> Self {
        Self::Control(error)
    }
}

fn fork_over(control: &mut Control) -> Result<Keeping, Refused> {
    let asked = control.next_serial();
    let is_it = |answer: &FromEngine| match answer {
        FromEngine::Inherited { serial } if *serial == asked => Some(()),
        _ => None,
    };
    let (fd, ()) = descriptor_over(control, &ToEngine::Fork { serial: asked }, asked, is_it)?;
    Ok(Keeping::new(fd))
}

fn pass_over(control: &mut Control, endpoint: u32, v6: bool) -> Result<Ticket, Refused> {
    let asked = control.next_serial();
    let is_it = |answer: &FromEngine| match answer {
        FromEngine::Ticket { serial, is_fresh } if *serial == asked => Some(*is_fresh),
        _ => None,
    };
    let question = ToEngine::Pass { serial: asked, endpoint, v6 };
    let (fd, is_fresh) = descriptor_over(control, &question, asked, is_it)?;
    Ok(Ticket { fd, is_fresh })
}

/// Requests a descriptor, and returns it with the answer's other contents.
fn descriptor_over<T>(
    control: &Control,
    question: &ToEngine,
    asked: u32,
    is_it: impl Fn(&FromEngine) -> Option<T>,
) -> Result<(OwnedFd, T), Refused> {
    control.socket.send(question, &[], Wait::No)?;
    loop {
        answer_within(&control.socket, ANSWER_WITHIN).map_err(ControlError::System)?;
        let (answer, descriptors) = control.socket.receive::<FromEngine>(Wait::No)?;
        match answer {
            FromEngine::Denied { serial, errno, reason } if serial == asked => {
                let errno = Errno::from_raw_os_error(errno);
                return Err(Refused::Said(RequestError::new(errno, reason)));
            }
            answer => {
                let Some(said) = is_it(&answer) else { continue };
                let descriptor = descriptors.into_iter().next();
                let descriptor = descriptor.ok_or(Refused::Control(ControlError::DescriptorsLost));
                return descriptor.map(|descriptor| (descriptor, said));
            }
        }
    }
}

/// A process without a session, connected to the engine's control socket to report its listeners.
#[derive(Debug)]
pub(crate) struct Bystander {
    socket: Socket,
}

impl Bystander {
    /// Says hello to the engine at `path`. Never waits, as close(2) and execve(2) call this: with an
    /// engine too busy to accept it fails.
    ///
    /// # Errors
    /// [`AttachError::NoEngine`] when nobody listens or the engine is too busy to accept;
    /// [`AttachError::Control`] when the message cannot be sent at once.
    pub fn attach(path: &Path, program: &str) -> Result<Self, AttachError> {
        let socket = Socket::connect_at_once(path)
            .map_err(|errno| AttachError::NoEngine(path.to_path_buf(), errno))?;
        let program = program.chars().take(64).collect();
        let hello = ToEngine::Hello { contract: CONTRACT_VERSION, role: Role::Bystander, program };
        socket.send(&hello, &[], Wait::No)?;
        Ok(Self { socket })
    }

    /// The same connection under a high number, out of the program's way.
    pub fn lifted(self) -> Self {
        Self { socket: Socket::from_fd(lifted(self.socket.into_fd())) }
    }

    /// The connection's number.
    pub fn raw_fd(&self) -> RawFd {
        self.socket.as_fd().as_raw_fd()
    }

    /// Whether the engine has not hung up.
    pub fn is_heard(&self) -> bool {
        let mut wanted = [PollFd::new(&self.socket, PollFlags::empty())];
        rustix::event::poll(&mut wanted, Some(&Timespec::default())).is_ok_and(|count| count == 0)
    }

    /// The listening socket `kernel` has somebody waiting at it who cannot be accelerated: its new
    /// connections are to be the kernel's, until it is closed (`lasting`) or for a time.
    ///
    /// # Errors
    /// [`AttachError::Control`] when the message cannot be sent at once.
    pub fn leave_listener(&self, kernel: BorrowedFd<'_>, lasting: bool) -> Result<(), AttachError> {
        Ok(self.socket.send(&ToEngine::LeaveListener { lasting }, &[kernel], Wait::No)?)
    }
}

/// Waits for a message of the engine; ETIMEDOUT if there is none.
fn answer_within(socket: &Socket, limit: Duration) -> Result<(), Errno> {
    let mut wanted = [PollFd::new(socket, PollFlags::IN)];
    let began = Instant::now();
    loop {
        // Repeated signals do not lengthen the wait.
        let left = limit.saturating_sub(began.elapsed());
        let left = Timespec::try_from(left).map_err(|_| Errno::INVAL)?;
        match rustix::event::poll(&mut wanted, Some(&left)) {
            Ok(0) => return Err(Errno::TIMEDOUT),
            Err(Errno::INTR) => (),
            answered => return answered.map(drop),
        }
    }
}

impl Session {
    /// Sends a request on the control socket, passing `kernel`; returns the endpoints (or the
    /// token) and the local address.
    pub(crate) fn ask(
        &self,
        kernel: BorrowedFd<'_>,
        question: impl FnOnce(u32) -> ToEngine,
    ) -> Result<(Vec<u32>, SocketAddr), RequestError> {
        let mut control = locked(self.control());
        let asked = control.next_serial();
        self.converse(&control, &question(asked), &[kernel.as_fd()], |answer| match answer {
            FromEngine::Granted { serial, endpoints, local } if serial == asked => {
                Some(Ok((endpoints, local)))
            }
            FromEngine::Denied { serial, errno, reason } if serial == asked => {
                Some(Err(RequestError::new(Errno::from_raw_os_error(errno), reason)))
            }
            _ => None,
        })?
    }

    /// Requests registered memory: returns its number, a memfd, and its size.
    pub(crate) fn ask_memory(&self, bytes: u64) -> Result<(u16, OwnedFd, u64), RequestError> {
        let mut control = locked(self.control());
        let asked = control.next_serial();
        let question = ToEngine::Register { serial: asked, bytes };
        self.converse_with_files(&control, &question, &[], |answer, files| match answer {
            FromEngine::Registered { serial, number, bytes } if serial == asked => {
                Some(files.into_iter().next().map(|file| (number, file, bytes)).ok_or_else(|| {
                    // The memory cannot be mapped without it: it is released at once.
                    let _ = control.socket.send(&ToEngine::Unregister { number }, &[], Wait::No);
                    let lost = ControlError::DescriptorsLost.to_string();
                    RequestError::new(Errno::MFILE, lost)
                }))
            }
            FromEngine::Denied { serial, errno, reason } if serial == asked => {
                Some(Err(RequestError::new(Errno::from_raw_os_error(errno), reason)))
            }
            _ => None,
        })?
    }

    /// Releases registered memory.
    pub(crate) fn unregister(&self, number: u16) {
        if self.usable().is_ok() {
            let control = locked(self.control());
            // An engine that is gone holds nothing.
            let _ = control.socket.send(&ToEngine::Unregister { number }, &[], Wait::No);
        }
    }

    /// Creates a control connection for a child that is about to be forked: as long as it is open,
    /// the child holds the connections that are open now.
    pub(crate) fn fork(&self) -> Result<Keeping, RequestError> {
        self.as_keeper(fork_over)
    }

    /// Gets a connection of this session as a kernel socket.
    pub(crate) fn pass(&self, endpoint: u32, v6: bool) -> Result<Ticket, RequestError> {
        in_time(|| self.as_keeper(|control| pass_over(control, endpoint, v6)))
    }

    fn as_keeper<T>(
        &self,
        ask: impl FnOnce(&mut Control) -> Result<T, Refused>,
    ) -> Result<T, RequestError> {
        self.usable()?;
        let mut control = self.control_in_time()?;
        let outcome = ask(&mut control);
        if let Err(Refused::Control(ControlError::Closed)) = &outcome {
            self.note_death();
        }
        outcome.map_err(Refused::into_error)
    }

    /// Locks the control socket when no other thread uses it. A signal handler that interrupted its
    /// own thread's use gets EAGAIN.
    fn control_in_time(&self) -> Result<MutexGuard<'_, Control>, RequestError> {
        let began = Instant::now();
        loop {
            match self.control().try_lock() {
                Ok(control) => return Ok(control),
                Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if began.elapsed() > ANSWER_WITHIN => {
                    return Err(RequestError::from(Errno::AGAIN));
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_micros(100)),
            }
        }
    }

    /// Requests the destinations that the engine can reach now.
    pub(crate) fn ask_interfaces(&self) -> Result<Vec<InterfaceInfo>, RequestError> {
        let mut control = locked(self.control());
        let asked = control.next_serial();
        let question = ToEngine::Interfaces { serial: asked };
        self.converse(&control, &question, &[], |answer| match answer {
            FromEngine::Interfaces { serial, interfaces } if serial == asked => Some(interfaces),
            _ => None,
        })
    }

    /// Sends a request, and waits for the answer that `take` accepts; others belong to requests
    /// that were given up.
    fn converse<T>(
        &self,
        control: &Control,
        question: &ToEngine,
        shown: &[BorrowedFd<'_>],
        mut take: impl FnMut(FromEngine) -> Option<T>,
    ) -> Result<T, RequestError> {
        self.converse_with_files(control, question, shown, |answer, _| take(answer))
    }

    /// The same, for answers with descriptors.
    pub(crate) fn converse_with_files<T>(
        &self,
        control: &Control,
        question: &ToEngine,
        shown: &[BorrowedFd<'_>],
        mut take: impl FnMut(FromEngine, Vec<OwnedFd>) -> Option<T>,
    ) -> Result<T, RequestError> {
        self.usable()?;
        let failed = |error: ControlError| {
            if matches!(error, ControlError::Closed) {
                self.note_death();
            }
            RequestError::new(Errno::CONNRESET, error.to_string())
        };
        control.socket.send(question, shown, Wait::No).map_err(failed)?;
        self.driver(0).let_engine_answer();
        loop {
            answer_within(&control.socket, ANSWER_WITHIN)?;
            // `take` detects missing descriptors, and returns what it cannot use.
            let (answer, files, _) = control.socket.receive_partly(Wait::No).map_err(failed)?;
            if let Some(taken) = take(answer, files) {
                return Ok(taken);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shm::control::ControlListener;

    #[test]
    fn an_engine_that_says_nothing_is_not_waited_for_without_end() {
        let path = std::env::temp_dir().join(format!("outboard-silent-{}", std::process::id()));
        let _listener = ControlListener::bind(&path, 0o600).unwrap();
        let attached = attach_within(&path, Role::Session, "test", Duration::from_millis(20));
        let Err(AttachError::Silent(at)) = attached else { panic!("not told of the silence") };
        assert_eq!(at, path);
    }

    /// close(2) and execve(2) waited five seconds for a busy engine.
    #[test]
    fn a_bystander_gives_up_at_once_where_the_engine_does_not_accept() {
        let path = std::env::temp_dir().join(format!("outboard-full-{}", std::process::id()));
        let _listener = ControlListener::bind(&path, 0o600).unwrap();
        let mut waiting = Vec::new();
        let refused = loop {
            match Bystander::attach(&path, "test") {
                Ok(bystander) => waiting.push(bystander),
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, AttachError::NoEngine(_, Errno::AGAIN)), "{refused}");
    }
}
