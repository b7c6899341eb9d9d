//! What the control thread and a worker tell each other: a channel each way, and a descriptor
//! that wakes whoever sleeps.

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

/// Commands or answers taken before other work has its turn.
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

/// A kernel socket that a program has shown, and what was seen of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its local address; IPv4-mapped ones are IPv4.
    pub local: Local,
    /// The address as the program's getsockname tells it.
    pub kernel_local: SocketAddr,
    /// The same socket shown by another process attaches to the same listener.
    pub key: SocketKey,
    /// The user who made the socket, as the kernel's own rules about shared ports see it.
    pub uid: u32,
    /// SO_REUSEADDR and SO_REUSEPORT, as far as datagrams are concerned.
    pub sharing: Sharing,
}

impl Shown {
    /// A socket of root's with a port for itself.
    pub fn alone(local: SocketAddr, cookie: u64) -> Self {
        let key = SocketKey { namespace: 0, cookie };
        Self { local: local.into(), kernel_local: local, key, uid: 0, sharing: Sharing::Alone }
    }
}

/// To a worker.
pub enum Command {
    /// A session begins.
    Attach(Box<SessionSeed>),
    /// A session's program is gone.
    Detach(SessionKey),
    /// Listen on a socket that was checked.
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
        /// Other sockets that the kernel has just said to listen at this port.
        beside: Vec<SocketKey>,
    },
    /// Serve a UDP socket that was checked.
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
    /// Open a message endpoint for a UDP socket that was checked.
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
        /// The engine's, in microseconds: greater each time that it starts.
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
        /// What it is made from.
        seed: Box<RawSeed>,
    },
    /// A session has registered memory.
    Register {
        /// Whose.
        session: SessionKey,
        /// For the answer.
        serial: u32,
        /// By which its spans name it.
        number: u16,
        /// The memory.
        memory: Arc<Registered>,
    },
    /// A session uses a registered memory no more.
    Unregister {
        /// Whose.
        session: SessionKey,
        /// Which.
        number: u16,
    },
    /// A socket that was shown no longer has the right to its port: it is closed for the last time,
    /// shut down, disconnected or bound elsewhere.
    RightEnded(SocketKey),
    /// Somebody waits at the listener of a kernel socket who cannot be accelerated.
    LeaveListener {
        /// The socket.
        key: SocketKey,
        /// Until it is closed.
        lasting: bool,
    },
    /// The kernel's interface behind a port has changed.
    Interface {
        /// Which of the engine's ports.
        port: usize,
        /// How it is now.
        facts: Facts,
    },
    /// The kernel knows a neighbour on the link of a port.
    Neighbor {
        /// Which of the engine's ports.
        port: usize,
        /// Its address.
        address: IpAddr,
        /// Where it is.
        mac: MacAddr,
    },
    /// An [`Answer::Interface`] was heard: the next one may come.
    Heard,
    /// What programs are told of interfaces has changed: they are to ask anew.
    Reach,
    /// Whether the kernel chooses its ways as the stack does; otherwise nothing new is taken.
    Open(bool),
    /// Take nobody new, wait for the connections there are, then close.
    Drain {
        /// For how long at most, in nanoseconds.
        limit_ns: u64,
    },
    /// Close all connections as close(2) would, and end.
    Close,
    /// The session is the relay's.
    Relay(SessionKey),
    /// A child is to be forked, which will hold the connections that a keeper has.
    Fork {
        /// Whose child.
        by: Keeper,
        /// What it is called.
        heir: HeirKey,
        /// For the answer.
        serial: u32,
    },
    /// A forked child is gone.
    EndHeir(HeirKey),
    /// A forked child has closed a connection.
    Release {
        /// Who.
        heir: HeirKey,
        /// The connection's endpoint in the session that opened it.
        endpoint: u32,
    },
    /// A keeper wants to use a connection as a socket of the kernel's.
    Pass {
        /// Who.
        by: Keeper,
        /// For the answer.
        serial: u32,
        /// The connection's endpoint in the session that opened it.
        endpoint: u32,
        /// Its socket is to be one of IPv6.
        v6: bool,
    },
    /// Takes one step of listing the sockets for an observer.
    Sockets {
        /// Where it begins.
        place: usize,
    },
    /// Brings the counters up to date for observers.
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
    /// A use that was granted of a socket that was shown has ended.
    Unused(SocketKey),
    /// Connections use this address, and no socket of a program may be left that says so to the kernel.
    Hold {
        /// The address.
        local: SocketAddr,
        /// Their sockets had SO_REUSEADDR.
        reuses: bool,
    },
    /// They do so no more.
    LetGo(SocketAddr),
    /// A `Listen`, `BindUdp` or `BindTcp` was refused.
    Denied {
        /// Whose.
        session: SessionKey,
        /// From the command.
        serial: u32,
        /// The socket that was shown.
        key: SocketKey,
        /// Nearest errno.
        errno: i32,
        /// Why, and what to do.
        reason: String,
    },
    /// A raw endpoint was opened or refused.
    Raw {
        /// Whose.
        session: SessionKey,
        /// From the command.
        serial: u32,
        /// The endpoint, or why not.
        result: Result<u32, Refusal>,
    },
    /// A raw endpoint is closed; its rings are to be unmapped.
    RawClosed {
        /// Whose it was.
        session: SessionKey,
        /// Its rings.
        rings: Arc<Rings>,
        /// How many ports it had.
        ports: usize,
    },
    /// The worker knows a registered memory from now on, or its session has ended.
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
    /// The worker has left a registered memory; it is to be unmapped.
    Unregistered {
        /// Whose it was.
        session: SessionKey,
        /// Which.
        number: u16,
    },
    /// The stack wants to know where a neighbour is that only the kernel may ask for.
    AskNeighbor {
        /// Which of the engine's ports.
        port: usize,
        /// The neighbour.
        address: IpAddr,
    },
    /// The addresses of a port that the engine has for itself have changed. Each is followed by
    /// [`Command::Heard`], before which no other comes: whoever sends router advertisements could
    /// make any number of them.
    Interface {
        /// Which of the engine's ports.
        port: usize,
        /// Those that may be used, but for link-local ones.
        addresses: Vec<Cidr>,
        /// Whether IPv6 destinations off its link are reached through it.
        leads_v6: bool,
        /// Whether it is known of all addresses whether they may be used.
        settled: bool,
    },
    /// A session broke the contract, so, and has been ended: hang up.
    Breached(SessionKey, Breach),
    /// The engine's end has come so far.
    Ending(Stage),
    /// A `Fork` is done.
    Forked {
        /// From the command.
        by: Keeper,
        /// From the command.
        heir: HeirKey,
        /// From the command.
        serial: u32,
        /// Why not, if not.
        refused: Option<Errno>,
    },
    /// A `Pass` is done, or why not.
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
    /// Nobody will ask for this connection any more.
    PassOver(u64),
    /// The last memory of a session has been returned.
    Gone(SessionKey),
    /// The step asked for last.
    Sockets {
        /// What it found.
        sockets: Vec<Seen>,
        /// Where the next begins, if the list does not end here.
        next: Option<usize>,
    },
    /// The counters are up to date.
    Stats,
}

/// One direction's signal: a flag that is cheap to look at, and an eventfd for a sleeper.
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
            // A full counter still wakes; there is nothing else that could fail here.
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    /// Whether something has been sent since the last [`Signal::clear`].
    pub fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Acquire)
    }

    /// Call before taking what was sent, so that nothing sent meanwhile is missed.
    pub fn clear(&self) {
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&self.fd, &mut count);
        // A swap, so that what a sender did before a raise that found the flag still up is seen by
        // the look that follows.
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

    /// From now on everyone is to end.
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
    /// Sends and wakes; `false` when the other side has ended.
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

    /// What was sent, at most [`TAKEN_AT_A_TIME`]: with more the signal stays up. Without this
    /// bound whoever sends faster than we serve would keep us here for ever.
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
                // There may be more, which nobody else tells.
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
