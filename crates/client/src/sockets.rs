//! POSIX semantics over sessions and endpoints: what each descriptor number refers to, which calls
//! go to the kernel and which to the engine, blocking, readiness.
//!
//! A socket is a kernel socket until its destination is known. `listen` makes it a dual listener:
//! it listens in the kernel and in the engine, and `accept` takes from both. `connect` to a
//! destination that the engine reaches makes it a connection of the engine; with any other
//! destination, the layer forgets the socket and the kernel serves it from then on. A bound UDP
//! socket is dual too.
//!
//! Not done here: the C interface (bindings/preload), the contract (crates/shm). Start reading at
//! `table.rs`, then `socket.rs`, `link.rs` (sessions, hints, sleeping), `epoll.rs`.
//!
//! Known limits: calls inside the C library (stdio on a socket) bypass the layer.

mod accepting;
mod ancillary;
mod bystanders;
mod calls;
mod cancelling;
mod census;
mod cork;
mod datagram;
mod disconnecting;
mod epoll;
mod fork;
mod groups;
mod heritage;
mod identities;
mod kept;
mod kernel;
mod leaving;
mod lingering;
mod link;
mod marks;
mod naming;
mod notices;
mod numbers;
mod option_kinds;
mod options;
mod own_options;
mod poll;
mod room;
mod sharing;
mod shut;
mod signals;
mod signing;
mod sleepers;
mod socket;
mod streams;
mod table;
#[cfg(test)]
mod tests;
mod times;
mod transfer;
mod versions;
mod waiter;
mod watches;

use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

pub use kernel::{EpollEvent, Kernel, PollFd, Received, SigMask};
pub use leaving::Departure;
pub use own_options::TCP_ZEROCOPY_RECEIVE;
pub use rustix::io::Errno;
pub use signals::{About, Owner};
pub use transfer::{Queue, SendMessage};

use shm::census::{Kind, Reason};

use cancelling::Cancelled;
use census::Census;
use epoll::Epoll;
use heritage::Inherited;
use link::Link;
use notices::{Notice, Notices};
use socket::Socket;
use table::{Entry, Table};

/// The outcome of a call in this layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict<T> {
    /// Not handled: make the real call with the same arguments.
    Kernel,
    /// Handled; an error is errno.
    Done(Result<T, Errno>),
}

impl<T> Verdict<T> {
    /// Converts the result.
    pub fn map<U>(self, convert: impl FnOnce(T) -> U) -> Verdict<U> {
        match self {
            Verdict::Kernel => Verdict::Kernel,
            Verdict::Done(result) => Verdict::Done(result.map(convert)),
        }
    }
}

/// Configuration of the layer.
#[derive(Clone, Debug)]
pub struct Config {
    /// Path of the engine's control socket.
    pub socket: PathBuf,
    /// The program's name, for `outboard ss`.
    pub program: String,
    /// Nanoseconds that a waiting thread spins before it sleeps.
    pub spin_ns: u64,
    /// Log nothing.
    pub quiet: bool,
    /// A descriptor of the library that forked children keep: the destination of the census report.
    pub report: Option<RawFd>,
}

impl Config {
    /// Default spinning time: about the cost of sleeping and being woken.
    pub const SPIN_NS: u64 = 10_000;
}

/// Maximum depth of forks in which a process is still accelerated.
const ERAS: usize = 16;

/// State of one process: a forked child starts a new era with new locks, so that a lock held by
/// another thread at the time of the fork does not matter.
struct Era {
    table: Table,
    link: Link,
    /// Sockets whose owners get signals.
    owned: Mutex<signals::Owned>,
    cancelled: Cancelled,
    census: Census,
    /// Numbers made by vfork children.
    borrowed: Mutex<Vec<leaving::Borrowed>>,
}

impl Era {
    fn new() -> Self {
        Self {
            table: Table::new(),
            link: Link::new(),
            owned: Mutex::default(),
            cancelled: Cancelled::default(),
            census: Census::new(),
            borrowed: Mutex::default(),
        }
    }
}

/// The socket layer of a process.
pub struct Sockets {
    eras: [OnceLock<Era>; ERAS],
    era: AtomicU32,
    process: AtomicU32,
    /// How often this process has forked, or may have shared its sockets otherwise.
    forks: AtomicU32,
    /// Children of this process have held its connections: they may move them.
    has_heirs: AtomicBool,
    /// Numbers are compared with the kernel's descriptors.
    compares: AtomicBool,
    /// The program may cancel threads.
    cancels: AtomicBool,
    /// How often the program has cancelled a thread.
    cancellings: AtomicUsize,
    kernel: &'static dyn Kernel,
    notices: Notices,
    config: Config,
}

impl Sockets {
    /// A layer that tracks nothing. A session is opened when one is needed.
    pub fn new(config: Config, kernel: &'static dyn Kernel) -> Self {
        let sockets = Self {
            eras: [const { OnceLock::new() }; ERAS],
            era: AtomicU32::new(0),
            process: AtomicU32::new(process_id()),
            forks: AtomicU32::new(0),
            has_heirs: AtomicBool::new(false),
            compares: AtomicBool::new(true),
            cancels: AtomicBool::new(false),
            cancellings: AtomicUsize::new(0),
            kernel,
            notices: Notices::new(config.quiet),
            config,
        };
        let era = Era::new();
        sockets.hide_report(&era);
        let _ = sockets.eras[0].set(era);
        sockets
    }

    /// The process's current era; `None` if it is too many forks deep.
    #[inline]
    fn era(&self) -> Option<&Era> {
        self.eras.get(self.era.load(Ordering::Relaxed) as usize)?.get()
    }

    /// Whether the layer tracks a descriptor number.
    #[inline]
    pub fn tracks(&self, fd: RawFd) -> bool {
        self.era().is_some_and(|era| era.table.tracks(fd))
    }

    /// The socket of a number.
    #[inline]
    fn socket(&self, fd: RawFd) -> Option<Arc<Socket>> {
        self.era()?.table.with(fd, |entry| match entry {
            Entry::Socket(socket) => Some(socket.clone()),
            _ => None,
        })?
    }

    /// The epoll set of a number.
    fn epoll(&self, fd: RawFd) -> Option<Arc<Epoll>> {
        self.era()?.table.with(fd, |entry| match entry {
            Entry::Epoll(epoll) => Some(epoll.clone()),
            _ => None,
        })?
    }

    /// The socket of a call other than a transfer or a wait; handles inherited ones.
    fn called(&self, fd: RawFd) -> Result<Option<Arc<Socket>>, Errno> {
        self.looked_up(fd, Arc::clone)
    }

    /// The same, with the result of a function called while the entry is locked.
    fn looked_up<T>(
        &self,
        fd: RawFd,
        make: impl FnOnce(&Arc<Socket>) -> T,
    ) -> Result<Option<T>, Errno> {
        let Some(era) = self.era() else { return Ok(None) };
        let found = era.table.with(fd, |entry| match entry {
            entry if entry.is_elsewhere() => Err(Some(Inherited::default())),
            Entry::Socket(socket) => Ok(Some(make(socket))),
            Entry::Foreign(inherited) => Err(Some(inherited.clone())),
            Entry::Internal => Err(None),
            Entry::Epoll(_) => Ok(None),
        });
        match found {
            None => Ok(None),
            Some(Ok(socket)) => Ok(socket),
            Some(Err(foreign)) => {
                // No lock of the entry is held meanwhile.
                if foreign.is_some() && self.redeem(era, fd)? {
                    return Ok(None);
                }
                if let Some(Inherited { service, .. }) = foreign {
                    if era.table.is_first_count(fd) {
                        self.count(era, Kind::Tcp, Reason::Inherited);
                    }
                    self.notice(Notice::InheritedConnection, || {
                        "a forked child used a connection of its parent, and the engine has no \
                         relay (relay = true in its configuration); the call fails with EBADF"
                            .into()
                    });
                    if let Some(service) = service {
                        self.hand_off(era, service);
                    }
                }
                Err(Errno::BADF)
            }
        }
    }

    /// Logs a sentence on its first occurrence.
    fn notice(&self, notice: Notice, text: impl FnOnce() -> String) {
        if self.notices.first(notice) {
            self.kernel.log(&format!("outboard: {}", text()));
        }
    }

    /// Whether a number stands for a connection of the engine. One that can be used as a socket of the kernel's
    /// alone becomes that.
    pub fn accelerated(&self, fd: RawFd) -> bool {
        let is_connection =
            |socket: Option<Arc<Socket>>| socket.is_some_and(|one| one.connection().is_some());
        self.tracks(fd) && self.called(fd).is_ok_and(is_connection)
    }

    /// After socket(2): tracks a socket that may be accelerated. A socket of TCP's or UDP's type
    /// with another protocol (SCTP, MPTCP, UDP-Lite, ping sockets) is left to the kernel.
    pub fn created(&self, fd: RawFd, domain: i32, kind: i32, protocol: i32) {
        self.appeared(fd);
        if self.is_other_process() {
            return;
        }
        let Some(era) = self.era() else { return };
        let v6 = match domain {
            libc::AF_INET => false,
            libc::AF_INET6 => true,
            _ => return self.count(era, Kind::Other, Reason::Family(domain as u16)),
        };
        let stream = match (kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC), protocol) {
            (libc::SOCK_STREAM, libc::IPPROTO_IP | libc::IPPROTO_TCP) => true,
            (libc::SOCK_DGRAM, libc::IPPROTO_IP | libc::IPPROTO_UDP) => false,
            _ => return self.count(era, Kind::Other, Reason::Protocol(protocol as u16)),
        };
        let socket = Socket::new(v6, stream, kind & libc::SOCK_NONBLOCK != 0);
        self.place(era, fd, Entry::Socket(Arc::new(socket)), self.identity(fd));
    }

    /// After epoll_create(2).
    pub fn epoll_created(&self, fd: RawFd) {
        self.appeared(fd);
        if self.is_other_process() {
            return;
        }
        let Some(era) = self.era() else { return };
        self.place(era, fd, Entry::Epoll(Arc::new(Epoll::new(fd))), self.identity(fd));
    }

    /// Stores an entry for a number that refers to `identity`. A previous entry was closed without
    /// the layer's knowledge.
    fn place(&self, era: &Era, fd: RawFd, entry: Entry, identity: u64) {
        if let Entry::Socket(socket) = &entry {
            socket.add_number(fd);
        }
        let before = era.table.put(fd, entry, identity);
        era.table.confirm(fd, self.kernel.coarse_ms());
        match before {
            Ok(None) => (),
            Ok(Some(stale)) => self.let_go(era, fd, stale, false),
            Err(_) => {
                self.count(era, Kind::Other, Reason::NumberTooHigh);
                self.notice(Notice::NumberTooHigh, || {
                    format!(
                        "descriptor {fd} is beyond the library's table; it goes through the kernel"
                    )
                });
            }
        }
    }

    /// close(2): forgets the number. On `Kernel`, close it.
    pub fn closing(&'static self, fd: RawFd) -> Verdict<()> {
        self.parting(fd, true)
    }

    /// Before a call that closes a number and does more: forgets the number.
    pub fn replacing(&'static self, fd: RawFd) -> Verdict<()> {
        self.parting(fd, false)
    }

    fn parting(&'static self, fd: RawFd, closes: bool) -> Verdict<()> {
        let Some(era) = self.era() else { return Verdict::Kernel };
        if self.is_other_process() {
            return Verdict::Kernel;
        }
        if era.table.is_internal(fd) {
            return Verdict::Done(Err(Errno::BADF));
        }
        let Some(entry) = era.table.take(fd) else { return Verdict::Kernel };
        if self.close_number(era, fd, entry, closes) {
            Verdict::Done(Ok(()))
        } else {
            Verdict::Kernel
        }
    }

    /// Before close_range(2): forgets the numbers in the range and calls `close` for its parts
    /// without descriptors of the layer.
    pub fn closing_range(&'static self, first: u32, last: u32, close: &mut dyn FnMut(u32, u32)) {
        let Some(era) = self.era() else { return close(first, last) };
        if self.is_other_process() {
            return close(first, last);
        }
        // All of them before any is closed: the layer may copy one that it still needs to a number
        // in the range.
        for fd in era.table.occupied(first, last) {
            if !era.table.is_internal(fd)
                && let Some(entry) = era.table.take(fd)
            {
                self.close_number(era, fd, entry, false);
            }
        }
        let mut from = Some(first);
        for fd in era.table.occupied(first, last) {
            if !era.table.is_internal(fd) {
                continue;
            }
            let number = fd.unsigned_abs();
            if let Some(start) = from
                && start < number
            {
                close(start, number - 1);
            }
            from = number.checked_add(1);
        }
        if let Some(start) = from
            && start <= last
        {
            close(start, last);
        }
    }

    /// Moves a descriptor of the layer from a number that the program wants. False if it cannot be
    /// moved.
    pub fn yield_number(&self, fd: RawFd) -> bool {
        self.notice(Notice::NumberWanted, || {
            format!(
                "the program wants descriptor {fd}, which the library uses; dup2 fails with EBUSY \
                 (raise the open file limit so that the library's descriptors get higher numbers)"
            )
        });
        false
    }

    /// After dup(2) and the like: the new number refers to the same object.
    pub fn duplicated(&self, old: RawFd, new: RawFd) {
        let Some(era) = self.era() else { return };
        if self.is_other_process() {
            return self.note_borrowed(era, old, new);
        }
        if let Some(entry) = era.table.with(old, Entry::share) {
            if let Entry::Epoll(epoll) = &entry {
                epoll.add_number();
            }
            self.place(era, new, entry, era.table.identity(old));
        }
    }

    /// The program closes a number. `closes`: it may be closed here. Returns whether it was.
    fn close_number(&'static self, era: &Era, fd: RawFd, entry: Entry, closes: bool) -> bool {
        let is_closed = match &entry {
            Entry::Socket(socket) => {
                self.keep_for_calls(era, fd, socket);
                self.linger(era, fd, socket, closes)
            }
            _ => false,
        };
        self.let_go(era, fd, entry, !is_closed);
        is_closed
    }

    /// Drops the entry of a number; `open` if the number is still open in the kernel.
    fn let_go(&self, era: &Era, fd: RawFd, entry: Entry, open: bool) {
        match entry {
            Entry::Socket(socket) => self.release_socket(era, fd, &socket, open),
            Entry::Epoll(epoll) => self.release_epoll(&epoll),
            Entry::Foreign(Inherited { service, heirloom }) => {
                if let Some(service) = service {
                    self.release_service(era, service);
                }
                if let Some(heirloom) = heirloom {
                    self.release_heirloom(era, heirloom);
                }
            }
            Entry::Internal => (),
        }
    }

    /// Leaves a socket to the kernel for good: all its numbers bypass the layer from now on.
    fn give_to_kernel(&self, era: &Era, socket: &Arc<Socket>) {
        for fd in socket.numbers() {
            era.table.take(fd);
        }
        self.forget_interests(socket);
        self.unfollow_owner(socket);
    }

    /// Whether this is a vfork child that still shares its parent's memory.
    fn is_other_process(&self) -> bool {
        process_id() != self.process.load(Ordering::Relaxed)
    }

    fn hide_report(&self, era: &Era) {
        if let Some(fd) = self.config.report {
            self.hide(era, fd);
        }
    }

    /// Registers a descriptor of the layer, so that the program cannot close it by accident.
    fn hide(&self, era: &Era, fd: RawFd) {
        self.place(era, fd, Entry::Internal, 0);
    }
}

fn process_id() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get().unsigned_abs()
}

/// Sentences about unsupported uses, each logged once.
impl Sockets {
    /// A message with control data was sent.
    pub fn notice_control_messages(&self, fd: RawFd) {
        if self.socket(fd).is_some_and(|socket| socket.connection().is_some()) {
            self.notice(Notice::ControlMessages, || {
                "control messages (SCM_RIGHTS and others) have no effect on accelerated connections"
                    .into()
            });
        }
    }

    /// sendfile from a descriptor without a position.
    pub fn notice_unseekable(&self) {
        self.notice(Notice::Unseekable, || {
            "sendfile from a pipe to an accelerated connection is not supported (EINVAL)".into()
        });
    }

    /// A stdio stream was opened on an accelerated connection.
    pub fn notice_stdio(&self, fd: RawFd) {
        self.notice(Notice::Stdio, || {
            format!(
                "a stdio stream was opened on descriptor {fd}, an accelerated connection; the C \
                 library's own reads and writes cannot be accelerated and will fail with ENOTCONN"
            )
        });
    }

    /// An io_uring is set up, or was `refused`.
    pub fn notice_io_uring(&self, refused: bool) {
        if let Some(era) = self.era().filter(|_| !refused) {
            self.count(era, Kind::Ring, Reason::Ring);
        }
        self.notice(Notice::IoUring, || {
            match refused {
                true => {
                    "io_uring is refused (ENOSYS), so that the program uses calls that can be \
                     accelerated; OUTBOARD_IO_URING=pass in the environment allows it"
                }
                false => {
                    "the program uses io_uring; its operations are not accelerated, and fail with \
                     ENOTCONN on a connection of the engine"
                }
            }
            .into()
        });
    }
}
