//! Listeners and connections that several processes have: what a parent passes on by fork or exec,
//! and what the engine is told so that nobody waits in vain.
//!
//! A process that cannot be accelerated takes connections from the kernel alone. It tells the engine
//! which listeners it has, as a bystander, and the engine takes nothing new for them.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::notices::Notice;
use super::socket::{Listening, Socket, held, is_kernels, plain};
use super::table::Entry;
use super::{Era, Errno, PollFd, Sockets};
use crate::open::Bystander;

/// Numbers below this are looked at when a program starts.
const INHERITED_NUMBERS: RawFd = 256;
/// Options that connections inherit from their listener, as far as they matter to the engine.
const INHERITED_OPTIONS: [(i32, i32); 4] = [
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
];

/// Where an accepted connection comes from.
#[derive(Debug)]
pub(super) struct Origin {
    listener: Weak<Socket>,
    /// How often the process had forked by then.
    forks: u32,
}

impl Sockets {
    /// In the parent after fork(2): what is open now, the child has, too.
    pub fn has_forked(&self) {
        self.forks.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether other processes may have the kernel sockets that this one has.
    pub(super) fn may_share(&self) -> bool {
        self.forks.load(Ordering::Relaxed) > 0 || self.era.load(Ordering::Relaxed) > 0
    }

    /// Where a connection comes from that `listener` has accepted.
    pub(super) fn origin(&self, listener: &Arc<Socket>) -> Origin {
        let forks = self.forks.load(Ordering::Relaxed);
        Origin { listener: Arc::downgrade(listener), forks }
    }

    /// Follows the listeners that the program was started with (inetd, socket activation, a program
    /// that replaces itself).
    pub fn follow_inherited(&'static self) {
        let numbers = 0..INHERITED_NUMBERS;
        let mut fds: Vec<PollFd> = numbers.map(|fd| PollFd { fd, events: 0, revents: 0 }).collect();
        // Fails where the limit on open files is lower: such a program gets no listeners passed.
        if self.kernel.poll(&mut fds, Some(Duration::ZERO), None).is_err() {
            return;
        }
        for entry in fds.iter().filter(|entry| entry.revents & libc::POLLNVAL == 0) {
            self.follow_passed(entry.fd);
        }
    }

    /// Follows a descriptor that came from another process, if it is a listener of TCP. It is shown to
    /// the engine when the program first accepts from it or waits at it.
    pub fn follow_passed(&'static self, fd: RawFd) {
        let Some(era) = self.era() else { return };
        let option = |name| self.kernel.option(fd, libc::SOL_SOCKET, name);
        if option(libc::SO_ACCEPTCONN) != Ok(1)
            || option(libc::SO_PROTOCOL) != Ok(libc::IPPROTO_TCP)
        {
            return;
        }
        let v6 = match option(libc::SO_DOMAIN) {
            Ok(libc::AF_INET) => false,
            Ok(libc::AF_INET6) => true,
            _ => return,
        };
        let Ok(local) = self.kernel.local(fd) else { return };
        if is_kernels(plain(local).ip()) {
            return;
        }
        let mut nonblocking = false;
        self.kernel.lend(fd, &mut |kernel| {
            nonblocking = rustix::fs::fcntl_getfl(kernel)
                .is_ok_and(|flags| flags.contains(rustix::fs::OFlags::NONBLOCK));
        });
        let socket = Arc::new(Socket::new(v6, true, nonblocking));
        socket.bound.store(true, Ordering::Relaxed);
        socket.is_passed.store(true, Ordering::Relaxed);
        for (level, name) in INHERITED_OPTIONS {
            if let Ok(value) = self.kernel.option(fd, level, name)
                && value != 0
            {
                held(socket.options.lock()).push((level, name, value));
            }
        }
        let mut listening = Listening::new(libc::SOMAXCONN);
        listening.names_address = !plain(local).ip().is_unspecified();
        socket.become_listener(listening);
        // It has been another process's.
        self.has_forked();
        self.place(era, fd, Entry::Socket(socket.clone()), self.identity(fd));
        era.link.remember(&socket);
    }

    /// A listener is about to be passed to another program (`has_library`: which will know what to do
    /// with it). It gets the flags that the program has set, for O_NONBLOCK is the same in
    /// all processes.
    pub(super) fn pass_listener(&self, fd: RawFd, socket: &Arc<Socket>, has_library: bool) {
        self.has_forked();
        if socket.forced_nonblocking() {
            socket.force_nonblocking(false);
            socket.is_passed.store(true, Ordering::Relaxed);
            self.restore_flags(fd, socket);
        }
        if !has_library {
            self.leave_listener(socket, || {
                "the program passes a listener to one that runs without the library".into()
            });
        }
    }

    /// accept4(2) on the kernel's side of a listener, which must not block there while connections wait
    /// on the engine's. Processes that share a listener share its O_NONBLOCK, and one of them may
    /// clear it at any time. A blocking listener is therefore polled first, and the flag set again.
    pub(super) fn accept_from_kernel(
        &self,
        fd: RawFd,
        socket: &Socket,
        flags: i32,
    ) -> Result<(RawFd, SocketAddr), Errno> {
        let is_shared = self.may_share() || socket.is_passed.load(Ordering::Relaxed);
        if socket.is_nonblocking() || !is_shared {
            return self.kernel.accept(fd, flags);
        }
        let mut fds = [PollFd { fd, events: libc::POLLIN, revents: 0 }];
        self.kernel.poll(&mut fds, Some(Duration::ZERO), None)?;
        if fds.iter().all(|entry| entry.revents == 0) {
            return Err(Errno::AGAIN);
        }
        socket.force_nonblocking(true);
        self.set_kernel_nonblocking(fd);
        let taken = self.kernel.accept(fd, flags);
        if socket.is_left.load(Ordering::Relaxed) {
            // A process without the library may block at it.
            socket.force_nonblocking(false);
            self.restore_flags(fd, socket);
        }
        taken
    }

    /// An accepted connection is closed that this process has neither read nor written, and that a
    /// forked child has, too: the child is to serve it.
    pub(super) fn note_handed_off(&self, socket: &Socket) {
        let (Some(connection), Some(origin)) = (socket.connection(), socket.origin.get()) else {
            return;
        };
        if origin.forks != self.forks.load(Ordering::Relaxed)
            && connection.endpoint.is_untouched()
            && connection.attachment.session.is_alive()
        {
            self.hand_off(socket);
        }
    }

    /// Another process is to serve an accepted connection, which it cannot yet.
    pub(super) fn hand_off(&self, socket: &Socket) {
        let listener = socket.origin.get().and_then(|origin| origin.listener.upgrade());
        if let Some(listener) = listener {
            self.leave_listener(&listener, || {
                "the program lets child processes serve the connections of a listener, which they \
                 cannot do with the engine's yet"
                    .into()
            });
        }
    }

    /// New connections of a listener are the kernel's from now on.
    fn leave_listener(&self, listener: &Arc<Socket>, why: impl FnOnce() -> String) {
        if listener.is_left.load(Ordering::Relaxed) {
            return;
        }
        let Some(fd) = listener.number() else { return };
        let told = Bystander::attach(&self.config.socket, &self.config.program);
        let Ok(bystander) = told else { return };
        let mut is_told = false;
        self.kernel.lend(fd, &mut |kernel| {
            is_told = bystander.leave_listener(kernel, true).is_ok();
        });
        if !is_told {
            // The next occasion tries again.
            return;
        }
        listener.is_left.store(true, Ordering::Relaxed);
        self.notice(Notice::ListenerLeft, || {
            format!(
                "{}; new connections to it go through the kernel, where the kernel has its address",
                why()
            )
        });
    }

    /// The engine has no session for this process: it is told which listeners are waited at here, so
    /// that it takes nothing for them.
    pub(super) fn tell_of_listeners(&self, era: &Era) {
        let listeners: Vec<RawFd> = era.link.listeners().filter_map(|one| one.number()).collect();
        if listeners.is_empty() {
            return;
        }
        let told = Bystander::attach(&self.config.socket, &self.config.program);
        let Ok(bystander) = told else { return };
        for fd in listeners {
            self.kernel.lend(fd, &mut |kernel| {
                // Said again at the next try.
                let _ = bystander.leave_listener(kernel, false);
            });
        }
    }
}
