//! Messages between the control thread and a worker: a channel in each direction, and a descriptor
//! that wakes the receiver.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use shm::memory::Registered;
use shm::raw::Rings;
use stack::api::{Cidr, Local, Sharing};
use wire::MacAddr;

use super::authority::Refusal;
use crate::ending::Stage;
use crate::kernel::Facts;
use crate::passing::{Handover, HeirKey, Keeper};
use crate::service::raw::RawSeed;
use crate::session::{Breach, SessionSeed};
use crate::ss::Seen;

/// Commands or answers processed before other work has its turn.
pub const TAKEN_AT_A_TIME: usize = 64;

/// Names a session between the control thread and the workers; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey(pub u64);

/// A context of a session: a lane of it in the worker that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextKey {
    /// The session.
    pub session: SessionKey,
    /// Number of the context.
    pub context: u16,
}

/// Names a kernel socket for as long as the machine runs: its network namespace and its cookie there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SocketKey {
    /// SO_NETNS_COOKIE.
    pub namespace: u64,
    /// SO_COOKIE.
    pub cookie: u64,
}

/// A kernel socket that a program has passed, with its properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its local address; IPv4-mapped ones are IPv4.
    pub local: Local,
    /// The address as returned by the program's getsockname.
    pub kernel_local: SocketAddr,
    /// Another process that passes the same socket attaches to the same listener.
    pub key: SocketKey,
    /// The user who created the socket, as in the kernel's rules about shared ports.
    pub uid: u32,
    /// SO_REUSEADDR and SO_REUSEPORT, as they apply to datagrams.
    pub sharing: Sharing,
}

impl Shown {
    /// A socket of root with exclusive use of its port.
    pub fn alone(local: SocketAddr, cookie: u64) -> Self {
        let key = SocketKey { namespace: 0, cookie };
        Self { local: local.into(), kernel_local: local, key, uid: 0, sharing: Sharing::Alone }
    }
}

/// To a worker.
pub enum Command {
    /// A session starts.
    Attach(Box<SessionSeed>),
    /// A session's program is gone.
    Detach(SessionKey),
    /// Listen with a checked socket.
    Listen {
        /// Whose.
        session: SessionKey,
        /// For the answer.
        serial: u32,
        /// Context of the endpoint.
        context: u16,
        /// As given to listen(2).
        backlog: u32,
        /// The socket.
        shown: Shown,
        /// Other sockets that listen at this port, according to the kernel.
        beside: Vec<SocketKey>,
    },
    /// Serve a checked UDP socket.
    BindUdp {
        /// Whose.
        session: SessionKey,
        /// For the answer.
        serial: u32,
        /// Context of the endpoint.
        context: u16,
        /// The socket.
        shown: Shown,
    },
    /// Open a message endpoint for a checked UDP socket.
    BindMessages {
        /// Whose.
        session: SessionKey,
        /// For the answer.
        serial: u32,
        /// Context of the endpoint.
        context: u16,
        /// The socket.
        shown: Shown,
        /// The job's key.
        key: Option<[u8; 16]>,
        /// The engine's incarnation, in microseconds: greater with each start.
        incarnation: u64,
    },
    /// Authorize a local address for one connect.
    BindTcp {
        /// Whose.
        session: SessionKey,
        /// For the answer.
        serial: u32,
        /// The socket.
        shown: Shown,
    },
    /// Open a raw endpoint whose rights were checked.
    OpenRaw {
        /// Whose.
        session: SessionKey,
        /// For the answer.
        serial: u32,
        /// Context of the endpoint.
        context: u16,
        /// Parameters of the endpoint.
        seed: Box<RawSeed>,
    },
    /// A session has registered memory.
    Register {
        /// Whose.
        session: SessionKey,
        /// For the answer.
        serial: u32,
        /// The number by which its spans refer to it.
        number: u16,
        /// The memory.
        memory: Arc<Registered>,
    },
    /// A session releases registered memory.
    Unregister {
        /// Whose.
        session: SessionKey,
        /// Which.
        number: u16,
    },
    /// A passed socket has lost the right to its port: its last descriptor was closed, or it was
    /// shut down, disconnected or bound to another address.
    RightEnded(SocketKey),
    /// A process without acceleration waits at the listener of a kernel socket.
    LeaveListener {
        /// The socket.
        key: SocketKey,
        /// Until it is closed.
        lasting: bool,
    },
    /// The kernel's interface of a port has changed.
    Interface {
        /// Which of the engine's ports.
        port: usize,
        /// Its current state.
        facts: Facts,
    },
    /// The kernel has resolved a neighbour on the link of a port.
    Neighbor {
        /// Which of the engine's ports.
        port: usize,
        /// Its address.
        address: IpAddr,
        /// Its link address.
        mac: MacAddr,
    },
    /// An [`Answer::Interface`] was processed: the next one may follow.
    Heard,
    /// The interfaces as announced to programs have changed: they must query them again.
    Reach,
    /// Whether the kernel routes as the stack does; otherwise no new sockets are admitted.
    Open(bool),
    /// Admit no new connections, wait for existing ones, then close.
    Drain {
        /// Maximum wait, in nanoseconds.
        limit_ns: u64,
    },
    /// Close all connections as close(2) would, and end.
    Close,
    /// The session is the relay's.
    Relay(SessionKey),
    /// A child is about to be forked, which will hold the connections of a keeper.
    Fork {
        /// The parent.
        by: Keeper,
        /// The key of the child.
        heir: HeirKey,
        /// For the answer.
        serial: u32,
    },
    /// A forked child has ended.
    EndHeir(HeirKey),
    /// A forked child has closed a connection.
    Release {
        /// Who.
        heir: HeirKey,
        /// The connection's endpoint in the session that opened it.
        endpoint: u32,
    },
    /// A keeper wants a connection as a kernel socket.
    Pass {
        /// Who.
        by: Keeper,
        /// For the answer.
        serial: u32,
        /// The connection's endpoint in the session that opened it.
        endpoint: u32,
        /// The socket must be an IPv6 socket.
        v6: bool,
    },
    /// Take one step of listing the sockets for an observer.
    Sockets {
        /// Where the step begins.
        place: usize,
    },
    /// Update the counters for observers.
    Stats,
}

/// From a worker.
#[derive(Debug)]
pub enum Answer {
    /// A `Listen`, `BindUdp` or `BindTcp` succeeded.
    Granted {
        /// Whose.
        session: SessionKey,
        /// From the command.
        serial: u32,
        /// The endpoint or the token.
        endpoint: u32,
        /// The address.
        local: SocketAddr,
    },
    /// A granted use of a passed socket has ended.
    Unused(SocketKey),
    /// Connections use this address, perhaps without any socket of a program that holds it in the
    /// kernel.
    Hold {
        /// The address.
        local: SocketAddr,
        /// Their sockets had SO_REUSEADDR.
        reuses: bool,
    },
    /// They no longer use it.
    LetGo(SocketAddr),
    /// A `Listen`, `BindUdp` or `BindTcp` was refused.
    Denied {
        /// Whose.
        session: SessionKey,
        /// From the command.
        serial: u32,
        /// The passed socket.
        key: SocketKey,
        /// Nearest errno.
        errno: i32,
        /// The reason, and what to do.
        reason: String,
    },
    /// A raw endpoint was opened or refused.
    Raw {
        /// Whose.
        session: SessionKey,
        /// From the command.
        serial: u32,
        /// The endpoint, or the refusal.
        result: Result<u32, Refusal>,
    },
    /// A raw endpoint is closed; its rings can be unmapped.
    RawClosed {
        /// Whose it was.
        session: SessionKey,
        /// Its rings.
        rings: Arc<Rings>,
        /// How many ports it had.
        ports: usize,
    },
    /// The worker knows a registered memory now, or its session has ended.
    Registered {
        /// Whose.
        session: SessionKey,
        /// From the command.
        serial: u32,
        /// Which.
        number: u16,
        /// It is known.
        is_known: bool,
    },
    /// The worker has dropped a registered memory; it can be unmapped.
    Unregistered {
        /// Whose it was.
        session: SessionKey,
        /// Which.
        number: u16,
    },
    /// The stack needs a neighbour that only the kernel may resolve.
    AskNeighbor {
        /// Which of the engine's ports.
        port: usize,
        /// The neighbour.
        address: IpAddr,
    },
    /// The addresses of a port that does not share its interface have changed. The next one follows
    /// only after [`Command::Heard`]; otherwise a sender of router advertisements could cause any
    /// number of them.
    Interface {
        /// Which of the engine's ports.
        port: usize,
        /// The usable addresses except link-local ones.
        addresses: Vec<Cidr>,
        /// Whether IPv6 destinations off the link are reached through it.
        leads_v6: bool,
        /// Whether duplicate address detection has finished for all addresses.
        settled: bool,
    },
    /// A session broke the contract and has been ended: hang up.
    Breached(SessionKey, Breach),
    /// Progress of the engine's end.
    Ending(Stage),
    /// A `Fork` is done.
    Forked {
        /// From the command.
        by: Keeper,
        /// From the command.
        heir: HeirKey,
        /// From the command.
        serial: u32,
        /// The error, if it was refused.
        refused: Option<Errno>,
    },
    /// The result of a `Pass`.
    Passed {
        /// From the command.
        by: Keeper,
        /// From the command.
        serial: u32,
        /// From the command.
        v6: bool,
        /// The connection.
        outcome: Result<Handover, Errno>,
    },
    /// No keeper will request this connection any more.
    PassOver(u64),
    /// The last memory of a session has been returned.
    Gone(SessionKey),
    /// The result of the last step.
    Sockets {
        /// The sockets found.
        sockets: Vec<Seen>,
        /// Where the next step begins; `None` at the end of the list.
        next: Option<usize>,
    },
    /// The counters are up to date.
    Stats,
}

/// A wakeup in one direction: a flag that is cheap to test, and an eventfd for a sleeping thread.
#[derive(Debug)]
pub struct Signal {
    raised: AtomicBool,
    fd: OwnedFd,
}

impl Signal {
    fn new() -> rustix::io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { raised: AtomicBool::new(false), fd })
    }

    fn raise(&self) {
        if !self.raised.swap(true, Ordering::AcqRel) {
            // A full counter still wakes; nothing else can fail here.
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    /// Whether an item has been sent since the last [`Signal::clear`].
    pub fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Acquire)
    }

    /// To be called before taking items, so that none is missed.
    pub fn clear(&self) {
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&self.fd, &mut count);
        // A swap, so that the caller then sees what a sender did before a raise that found the flag
        // already set.
        self.raised.swap(false, Ordering::AcqRel);
    }

    /// Readable while raised.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Tells several threads to end.
#[derive(Debug)]
pub struct Stop {
    signal: Signal,
}

impl Stop {
    /// Not stopped yet.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn new() -> rustix::io::Result<Arc<Self>> {
        Ok(Arc::new(Self { signal: Signal::new()? }))
    }

    /// Tells all threads to end.
    pub fn stop(&self) {
        self.signal.raise();
    }

    /// Whether it is time to end.
    pub fn is_stopped(&self) -> bool {
        self.signal.is_raised()
    }

    /// Readable once stopped.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.signal.fd()
    }
}

/// The sending side.
pub struct Outbox<T> {
    sender: Sender<T>,
    signal: Arc<Signal>,
}

impl<T> Clone for Outbox<T> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), signal: Arc::clone(&self.signal) }
    }
}

impl<T> Outbox<T> {
    /// Sends and wakes; `false` if the other side has ended.
    pub fn send(&self, item: T) -> bool {
        let sent = self.sender.send(item).is_ok();
        self.signal.raise();
        sent
    }
}

/// The receiving side.
pub struct Inbox<T> {
    receiver: Receiver<T>,
    signal: Arc<Signal>,
}

impl<T> Inbox<T> {
    /// The signal to wait for.
    pub fn signal(&self) -> &Signal {
        &self.signal
    }

    /// The sent items, at most [`TAKEN_AT_A_TIME`]; if there are more, the signal stays raised.
    /// Without the bound a fast sender would keep us here forever.
    pub fn take(&self) -> impl Iterator<Item = T> + '_ {
        let mut left = 0;
        if self.signal.is_raised() {
            self.signal.clear();
            left = TAKEN_AT_A_TIME;
        }
        std::iter::from_fn(move || {
            left = usize::checked_sub(left, 1)?;
            let item = self.receiver.try_recv().ok()?;
            if left == 0 {
                // There may be more, which no sender will signal again.
                self.signal.raise();
            }
            Some(item)
        })
    }
}

/// A channel with its signal.
///
/// # Errors
/// When no descriptor is left.
pub fn exchange<T>() -> rustix::io::Result<(Outbox<T>, Inbox<T>)> {
    let (sender, receiver) = channel();
    let signal = Arc::new(Signal::new()?);
    Ok((Outbox { sender, signal: Arc::clone(&signal) }, Inbox { receiver, signal }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_takes_is_not_kept_by_a_sender_that_is_faster() {
        let (outbox, inbox) = exchange().unwrap();
        outbox.send(0usize);
        // Each that is taken is followed by another one.
        let taken = inbox.take().inspect(|item| assert!(outbox.send(item + 1))).count();
        assert_eq!(taken, TAKEN_AT_A_TIME);
        assert!(inbox.signal().is_raised());
        assert_eq!(inbox.take().collect::<Vec<_>>(), [TAKEN_AT_A_TIME]);
        assert!(!inbox.signal().is_raised());
    }

    #[test]
    fn what_is_left_for_the_next_time_is_signalled_again() {
        let (outbox, inbox) = exchange().unwrap();
        (0..150).for_each(|item| assert!(outbox.send(item)));
        let mut taken = Vec::new();
        while inbox.signal().is_raised() {
            taken.extend(inbox.take());
        }
        assert_eq!(taken, (0..150).collect::<Vec<_>>());
    }
}
