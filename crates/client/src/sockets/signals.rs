//! SIGURG and SIGIO: the owner of a socket (F_SETOWN) gets a signal for urgent data, and with
//! O_ASYNC for all events. The kernel sends them for its own sockets and for the kernel's side of
//! listeners and UDP sockets. For the engine's side a thread of the library does: a program that
//! waits for a signal is in no call, so no other thread would take the engine's events, and a
//! thread that takes them by chance holds locks of the library, under which no handler may run. The
//! thread itself blocks all signals, and exists from the first socket with an owner until the last
//! one is closed.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use super::link::{Deadline, Sleeper};
use super::socket::{Connection, IN_BITS, OUT_BITS, Socket, held};
use super::waiter::Waiter;
use super::watches::Watch;
use super::{Errno, Kernel, PollFd, Sockets, Verdict};

/// The owner of a socket, as in F_SETOWN_EX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A thread (F_OWNER_TID).
    Thread(i32),
    /// A process (F_OWNER_PID); 0 is nobody.
    Process(i32),
    /// A group of processes (F_OWNER_PGRP).
    Group(i32),
}

impl Owner {
    /// By the kernel's number of the type; `None` for an unknown one.
    pub fn of_kind(kind: i32, id: i32) -> Option<Self> {
        match kind {
            0 => Some(Self::Thread(id)),
            1 => Some(Self::Process(id)),
            2 => Some(Self::Group(id)),
            _ => None,
        }
    }

    /// As in F_SETOWN: process groups are negative.
    pub fn of_number(number: i32) -> Option<Self> {
        if number < 0 { number.checked_neg().map(Self::Group) } else { Some(Self::Process(number)) }
    }

    /// The kernel's number of the type, and the id.
    pub fn parts(self) -> (i32, i32) {
        match self {
            Self::Thread(id) => (0, id),
            Self::Process(id) => (1, id),
            Self::Group(id) => (2, id),
        }
    }

    /// As in F_GETOWN.
    pub fn number(self) -> i32 {
        match self {
            Self::Thread(id) | Self::Process(id) => id,
            Self::Group(id) => -id,
        }
    }
}

/// The siginfo of a signal set by F_SETSIG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// The socket.
    pub fd: RawFd,
    /// POLL_IN and the like (asm-generic/siginfo.h).
    pub reason: i32,
    /// POLL* bits.
    pub band: i32,
}

/// The reason of a signal (POLL_IN and so on in asm-generic/siginfo.h), and the kernel's band for
/// it (band_table in fs/fcntl.c); POLL* are EPOLL*.
type Reason = (i32, i32);
const FOR_IN: Reason = (1, libc::EPOLLIN | libc::EPOLLRDNORM);
const FOR_OUT: Reason = (2, libc::EPOLLOUT | libc::EPOLLWRNORM | libc::EPOLLWRBAND);
const FOR_ERR: Reason = (4, libc::EPOLLERR);
const FOR_PRI: Reason = (5, libc::EPOLLPRI | libc::EPOLLRDBAND);
const FOR_HUP: Reason = (6, libc::EPOLLHUP | libc::EPOLLERR);

const ENDS: u32 = (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) as u32;

/// The owner of a socket, and what it was last signalled for.
#[derive(Debug, Default)]
pub(super) struct SocketOwner {
    /// Type, and id in the lower half; 0 without an owner.
    owner: AtomicU64,
    /// F_SETSIG; 0 for SIGIO.
    signal: AtomicI32,
    /// O_ASYNC.
    asynchronous: AtomicBool,
    /// The socket is on the signalling thread's list.
    is_noted: AtomicBool,
    /// The thread watches this socket.
    is_followed: AtomicBool,
    /// Threads that wait for data in a call: as in the kernel no signal is sent for the events they
    /// wait for.
    waiting: AtomicU32,
    urgent: AtomicU64,
    received: AtomicU64,
    bits: AtomicU32,
}

/// Whom signals are to tell of a socket, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    owner: Owner,
    signal: i32,
    /// O_ASYNC.
    pub is_asynchronous: bool,
}

impl Told {
    /// Tells the kernel of a socket of its own. Who has gone meanwhile is told nothing.
    pub fn restore(&self, fd: RawFd, kernel: &dyn Kernel) {
        if self.owner.number() != 0 {
            let _ = kernel.set_owner(fd, self.owner, self.signal);
        }
    }
}

impl SocketOwner {
    /// What the program has said.
    pub fn told(&self) -> Told {
        Told {
            owner: self.owner(),
            signal: self.signal.load(Ordering::Relaxed),
            is_asynchronous: self.is_asynchronous(),
        }
    }

    /// Whom a socket that is disconnected tells of the next connection.
    pub fn disconnected(&self) -> Self {
        Self {
            owner: AtomicU64::new(self.owner.load(Ordering::Relaxed)),
            signal: AtomicI32::new(self.signal.load(Ordering::Relaxed)),
            asynchronous: AtomicBool::new(self.asynchronous.load(Ordering::Relaxed)),
            ..Self::default()
        }
    }

    /// Applies the settings to a kernel socket.
    pub fn restore(&self, fd: RawFd, kernel: &dyn Kernel) {
        self.told().restore(fd, kernel);
    }
}

/// A thread waits for data of a connection.
pub(super) struct Waiting<'a> {
    owner: &'a SocketOwner,
    connection: &'a Connection,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        // It sees the data up to here.
        self.owner.received.fetch_max(self.connection.endpoint.received_end(), Ordering::SeqCst);
        self.owner.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl SocketOwner {
    fn owner(&self) -> Owner {
        let word = self.owner.load(Ordering::Relaxed);
        let (kind, id) = ((word >> 32) as i32, (word as u32).cast_signed());
        Owner::of_kind(kind, id).unwrap_or(Owner::Process(0))
    }

    fn set_owner(&self, owner: Owner) {
        let (kind, id) = owner.parts();
        let word = u64::from(kind.unsigned_abs()) << 32 | u64::from(id.cast_unsigned());
        self.owner.store(word, Ordering::Relaxed);
    }

    fn is_wanted(&self) -> bool {
        self.owner().number() != 0
    }

    /// The socket has a new endpoint in the engine, with new counts.
    pub fn on_new_face(&self) {
        self.received.store(0, Ordering::SeqCst);
        self.bits.store(0, Ordering::SeqCst);
    }

    fn is_asynchronous(&self) -> bool {
        self.asynchronous.load(Ordering::Relaxed)
    }

    /// Announces that this thread waits for data.
    pub fn wait_for_data<'a>(&'a self, connection: &'a Connection) -> Option<Waiting<'a>> {
        self.is_asynchronous().then(|| {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            Waiting { owner: self, connection }
        })
    }

    /// Marks the current state as signalled.
    fn begin(&self, socket: &Socket) {
        self.received.store(socket.received_end(), Ordering::SeqCst);
        self.bits.store(socket.engine_bits(IN_BITS | OUT_BITS), Ordering::SeqCst);
    }

    /// Signals the owner for new events.
    fn tell(&self, socket: &Socket, kernel: &dyn Kernel) {
        let owner = self.owner();
        if owner.number() == 0 {
            return;
        }
        if let Some(connection) = socket.connection() {
            let urgent = connection.endpoint.urgent_end();
            if self.urgent.swap(urgent, Ordering::SeqCst) < urgent {
                // An owner that is gone gets no signal.
                let _ = kernel.signal(owner, libc::SIGURG, None);
                self.tell_of(FOR_PRI, owner, socket, kernel);
            }
        }
        let is_waiting = self.waiting.load(Ordering::SeqCst) > 0;
        let received = socket.received_end();
        let has_come = self.received.fetch_max(received, Ordering::SeqCst) < received;
        let bits = socket.engine_bits(IN_BITS | OUT_BITS);
        let new = bits & !self.bits.swap(bits, Ordering::SeqCst);
        // Every pending connection of a listener is an event of its own.
        let is_due = has_come && !is_waiting || socket.is_listening() && bits & IN_BITS != 0;
        if new & libc::POLLERR as u32 != 0 {
            self.tell_of(FOR_ERR, owner, socket, kernel);
        } else if new & libc::POLLHUP as u32 != 0 {
            self.tell_of(FOR_HUP, owner, socket, kernel);
        } else if is_due || new & (ENDS | libc::POLLPRI as u32) != 0 {
            self.tell_of(FOR_IN, owner, socket, kernel);
        }
        if new & OUT_BITS != 0 && bits & ENDS == 0 {
            self.tell_of(FOR_OUT, owner, socket, kernel);
        }
    }

    fn tell_of(&self, (reason, band): Reason, owner: Owner, socket: &Socket, kernel: &dyn Kernel) {
        if !self.is_asynchronous() {
            return;
        }
        let signal = self.signal.load(Ordering::Relaxed);
        let about = socket.number().map(|fd| About { fd, reason, band }).filter(|_| signal != 0);
        let told = match about {
            Some(_) => kernel.signal(owner, signal, about),
            None => Err(Errno::AGAIN),
        };
        // As in the kernel if no more signals can be queued.
        if told == Err(Errno::AGAIN) {
            let _ = kernel.signal(owner, libc::SIGIO, None);
        }
    }
}

/// The process's kernel, once owners get signals.
static TELLS: OnceLock<&'static dyn Kernel> = OnceLock::new();

/// While this exists, no handler of the library's own signals runs in this thread: a handler that
/// calls the library would wait for a lock of its own thread. Costs nothing if no socket has an
/// owner.
pub(super) struct Undisturbed(Option<&'static dyn Kernel>);

impl Undisturbed {
    pub fn begin() -> Self {
        let kernel = TELLS.get().copied();
        if let Some(kernel) = kernel {
            kernel.hold_signals();
        }
        Self(kernel)
    }

    /// The same, also for handlers of the program's own signals.
    pub fn always(kernel: &'static dyn Kernel) -> Self {
        kernel.hold_signals();
        Self(Some(kernel))
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        if let Some(kernel) = self.0 {
            kernel.let_signals();
        }
    }
}

/// The signalling thread.
#[derive(Debug)]
pub(super) struct Teller {
    waiter: Waiter,
    news: Mutex<Vec<Weak<Socket>>>,
}

impl Teller {
    /// A socket may have events.
    pub fn note(&self, socket: &Weak<Socket>, kernel: &dyn Kernel) {
        let _undisturbed = Undisturbed::begin();
        let Some(held_socket) = socket.upgrade() else { return };
        if !held_socket.owner.is_noted.swap(true, Ordering::SeqCst) {
            held(self.news.lock()).push(socket.clone());
        }
        self.waiter.wake(kernel);
    }
}

/// Sockets with owners, and the thread while there are any.
#[derive(Debug, Default)]
pub(super) struct Owned {
    teller: Option<Arc<Teller>>,
    followed: usize,
}

impl Sockets {
    /// F_SETOWN, F_SETOWN_EX, SIOCSPGRP and FIOSETOWN; `None` is what the kernel takes for no owner.
    pub fn set_owner(&'static self, fd: RawFd, owner: Option<Owner>) -> Verdict<()> {
        let Some(owner) = owner else { return self.own(fd, |_| Err(Errno::INVAL)) };
        self.own(fd, |socket| {
            let (_, id) = owner.parts();
            if id < 0 {
                return Err(Errno::SRCH);
            }
            if id != 0 && self.kernel.signal(owner, 0, None) == Err(Errno::SRCH) {
                return Err(Errno::SRCH);
            }
            if !socket.owner.is_followed.load(Ordering::SeqCst) {
                socket.owner.begin(socket);
                if let Some(connection) = socket.connection() {
                    let urgent = connection.endpoint.urgent_end();
                    socket.owner.urgent.store(urgent, Ordering::SeqCst);
                }
            }
            socket.owner.set_owner(owner);
            Ok(())
        })
    }

    /// F_GETOWN and its kin, of a connection.
    pub fn owner(&self, fd: RawFd) -> Verdict<Owner> {
        self.owned(fd, |socket| socket.owner.owner())
    }

    /// F_SETSIG.
    pub fn set_owner_signal(&'static self, fd: RawFd, signal: i32) -> Verdict<()> {
        self.own(fd, |socket| {
            if !(0..=64).contains(&signal) {
                return Err(Errno::INVAL);
            }
            socket.owner.signal.store(signal, Ordering::Relaxed);
            Ok(())
        })
    }

    /// F_GETSIG, of a connection.
    pub fn owner_signal(&self, fd: RawFd) -> Verdict<i32> {
        self.owned(fd, |socket| socket.owner.signal.load(Ordering::Relaxed))
    }

    /// O_ASYNC, by F_SETFL or FIOASYNC.
    pub fn set_asynchronous(&'static self, fd: RawFd, on: bool) -> Verdict<()> {
        self.own(fd, |socket| {
            if on && !socket.owner.is_asynchronous() {
                socket.owner.begin(socket);
            }
            socket.owner.asynchronous.store(on, Ordering::Relaxed);
            Ok(())
        })
    }

    fn owned<T>(&self, fd: RawFd, ask: impl FnOnce(&Socket) -> T) -> Verdict<T> {
        match self.called(fd) {
            Ok(Some(socket)) if socket.connection().is_some() => Verdict::Done(Ok(ask(&socket))),
            Ok(_) => Verdict::Kernel,
            Err(error) => Verdict::Done(Err(error)),
        }
    }

    /// Changes a socket's setting. While there is a kernel side, it is changed there, too, and the
    /// kernel's error is returned.
    fn own(
        &'static self,
        fd: RawFd,
        note: impl FnOnce(&Socket) -> Result<(), Errno>,
    ) -> Verdict<()> {
        let socket = match self.called(fd) {
            Ok(Some(socket)) => socket,
            Ok(None) => return Verdict::Kernel,
            Err(error) => return Verdict::Done(Err(error)),
        };
        let noted = note(&socket).and_then(|()| self.follow_owner(&socket));
        if socket.connection().is_none() { Verdict::Kernel } else { Verdict::Done(noted) }
    }

    /// O_ASYNC as it shows in the flags of a connection.
    pub(super) fn asynchronous_flag(socket: &Socket) -> i32 {
        if socket.owner.is_asynchronous() { libc::O_ASYNC } else { 0 }
    }

    /// Watches a socket of the engine's, if it has an owner. Fails if the thread cannot be started
    /// (EAGAIN) or its descriptor cannot be opened.
    pub(super) fn follow_owner(&'static self, socket: &Arc<Socket>) -> Result<(), Errno> {
        if !socket.owner.is_wanted() || !socket.has_engine_side() {
            return Ok(());
        }
        let Some(era) = self.era() else { return Ok(()) };
        TELLS.get_or_init(|| self.kernel);
        let _undisturbed = Undisturbed::begin();
        let mut owned = held(era.owned.lock());
        let teller = match &owned.teller {
            Some(teller) => teller.clone(),
            None => {
                let waiter = Waiter::new(self.hidden_event(era)?);
                let teller = Arc::new(Teller { waiter, news: Mutex::default() });
                let body = teller.clone();
                self.kernel
                    .start_thread(Box::new(move || self.tell_owners(&body)))
                    .inspect_err(|_| self.close_hidden(era, teller.waiter.event_fd()))?;
                owned.teller = Some(teller.clone());
                teller
            }
        };
        if !socket.owner.is_followed.swap(true, Ordering::SeqCst) {
            owned.followed += 1;
            socket.watches().push(Watch::Owner(Arc::downgrade(socket), teller.clone()));
        }
        drop(owned);
        // For events that arrived before.
        teller.note(&Arc::downgrade(socket), self.kernel);
        Ok(())
    }

    /// A socket is closed: its owner gets no more signals.
    pub(super) fn unfollow_owner(&self, socket: &Socket) {
        if !socket.owner.is_followed.swap(false, Ordering::SeqCst) {
            return;
        }
        let _undisturbed = Undisturbed::begin();
        socket.watches().retain(|watch| !matches!(watch, Watch::Owner(..)));
        let Some(era) = self.era() else { return };
        let mut owned = held(era.owned.lock());
        owned.followed = owned.followed.saturating_sub(1);
        if let Some(teller) = &owned.teller {
            teller.waiter.wake(self.kernel);
        }
    }

    /// The engine has started: its events are waited for.
    pub(super) fn rouse_teller(&self, era: &super::Era) {
        if let Some(teller) = &held(era.owned.lock()).teller {
            teller.waiter.wake(self.kernel);
        }
    }

    fn close_hidden(&self, era: &super::Era, fd: RawFd) {
        era.table.take(fd);
        self.kernel.close(fd);
    }

    /// The thread's main function.
    fn tell_owners(&'static self, teller: &Teller) {
        let Some(era) = self.era() else { return };
        loop {
            teller.waiter.clear();
            let mut owned = held(era.owned.lock());
            if owned.followed == 0 {
                owned.teller = None;
                drop(owned);
                self.close_hidden(era, teller.waiter.event_fd());
                return;
            }
            drop(owned);
            let attachment = self.living(era);
            if let Some(attachment) = &attachment {
                self.pump(attachment);
            }
            let news = std::mem::take(&mut *held(teller.news.lock()));
            for socket in news.iter().filter_map(Weak::upgrade) {
                // Events from here on are noted again.
                socket.owner.is_noted.store(false, Ordering::SeqCst);
                if socket.owner.is_followed.load(Ordering::SeqCst) {
                    socket.owner.tell(&socket, self.kernel);
                }
            }
            let deadline = Deadline::after(self.kernel, None);
            // Whatever ends the sleep, all is looked at again.
            let sleeper =
                Sleeper { attachment: attachment.as_ref(), waiter: &teller.waiter, deadline };
            let _ = self.sleep(era, sleeper, |left| {
                let pipes = attachment.as_ref().map_or(&[][..], |one| one.wake_fds());
                let mut asked: Vec<PollFd> = std::iter::once(teller.waiter.event_fd())
                    .chain(pipes.iter().copied())
                    .map(|fd| PollFd { fd, events: libc::POLLIN, revents: 0 })
                    .collect();
                self.kernel.poll(&mut asked, left, None)?;
                teller.waiter.found(asked.first().map_or(0, |entry| entry.revents), self.kernel);
                Ok(())
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Notebook;
    use super::*;

    /// A socket that was disconnected is the kernel's again, which knew nothing of its owner.
    #[test]
    fn the_kernel_is_told_of_the_owner_that_a_socket_keeps() {
        let kernel = Notebook::leaked();
        let owner = SocketOwner::default();
        owner.disconnected().restore(7, kernel);
        assert_eq!(kernel.taken(), Vec::<String>::new(), "nobody");
        owner.set_owner(Owner::Thread(5));
        owner.signal.store(34, Ordering::Relaxed);
        owner.asynchronous.store(true, Ordering::Relaxed);
        let kept = owner.disconnected();
        kept.restore(7, kernel);
        assert_eq!(kernel.taken(), ["set_owner 7 Thread(5) 34"]);
        assert!(kept.is_asynchronous());
    }

    /// The next engine counts from zero, and all it brought before it had brought as much seemed to be
    /// told of already.
    #[test]
    fn what_another_face_brings_is_new_from_the_first_datagram_on() {
        let owner = SocketOwner::default();
        owner.received.store(9, Ordering::SeqCst);
        owner.bits.store(IN_BITS, Ordering::SeqCst);
        owner.on_new_face();
        assert!(owner.received.fetch_max(1, Ordering::SeqCst) < 1);
        assert_eq!(owner.bits.swap(IN_BITS, Ordering::SeqCst), 0);
    }
}
