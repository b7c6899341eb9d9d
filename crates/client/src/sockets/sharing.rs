//! Listeners and connections held by several processes: what a parent passes by fork or exec, and
//! what the engine is told so that no process waits in vain.
//!
//! A process that cannot be accelerated accepts only from the kernel. As a bystander it reports its
//! listeners to the engine, which then takes no new connections for them.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::notices::Notice;
use super::socket::{Listening, Socket, held, is_kernels, plain};
use super::table::Entry;
use super::{Era, Errno, PollFd, Sockets};
use crate::open::Bystander;

/// Numbers below this are checked when a program starts.
const INHERITED_NUMBERS: RawFd = 256;
/// Options that connections inherit from their listener, as far as the engine uses them.
const INHERITED_OPTIONS: [(i32, i32); 4] = [
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
];

/// A listener whose connections a forked child has inherited. Their table entries hold it.
#[derive(Debug)]
pub(super) struct Service {
    /// The child's own.
    listener: Weak<Socket>,
    /// A hidden number of the listener, after the program has closed its own.
    kept: Mutex<Option<RawFd>>,
}

impl Service {
    /// The service of a child's listener.
    pub fn of(listener: &Arc<Socket>) -> Arc<Self> {
        if let Some(service) = listener.service.get().and_then(Weak::upgrade) {
            return service;
        }
        let service = Arc::new(Self { listener: Arc::downgrade(listener), kept: Mutex::new(None) });
        // Already set only in a child whose connections have all been closed.
        let _ = listener.service.set(Arc::downgrade(&service));
        service
    }

    /// The listener.
    pub fn listener(&self) -> &Weak<Socket> {
        &self.listener
    }
}

impl Sockets {
    /// In the parent after fork(2): the child has everything that is open now.
    pub fn has_forked(&self) {
        self.forget_bequest();
        self.forks.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether other processes may have this process's kernel sockets.
    pub(super) fn may_share(&self) -> bool {
        self.forks.load(Ordering::Relaxed) > 0 || self.era.load(Ordering::Relaxed) > 0
    }

    /// Follows the listeners, and sockets yet to be used, that the program was started with (inetd, socket
    /// activation, a program that replaces itself).
    pub fn follow_inherited(&'static self) {
        let numbers = 0..INHERITED_NUMBERS;
        let mut fds: Vec<PollFd> = numbers.map(|fd| PollFd { fd, events: 0, revents: 0 }).collect();
        // It fails if the limit on open files is lower: such a program is passed no listeners.
        if self.kernel.poll(&mut fds, Some(Duration::ZERO), None).is_err() {
            return;
        }
        for entry in fds.iter().filter(|entry| entry.revents & libc::POLLNVAL == 0) {
            self.follow_passed(entry.fd);
        }
    }

    /// Follows a descriptor that came from another process, if it is a listener of TCP, or a socket of TCP that
    /// has yet to become something. A listener is shown to the engine when the program first accepts from it or
    /// waits at it.
    pub fn follow_passed(&'static self, fd: RawFd) {
        let Some(era) = self.era() else { return };
        let option = |name| self.kernel.option(fd, libc::SOL_SOCKET, name);
        if option(libc::SO_PROTOCOL) != Ok(libc::IPPROTO_TCP) {
            return;
        }
        let listens = option(libc::SO_ACCEPTCONN) == Ok(1);
        if !listens && !self.is_unconnected(fd) {
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
        let is_bound = local.port() != 0;
        let mut nonblocking = false;
        self.kernel.lend(fd, &mut |kernel| {
            nonblocking = rustix::fs::fcntl_getfl(kernel)
                .is_ok_and(|flags| flags.contains(rustix::fs::OFlags::NONBLOCK));
        });
        let socket = Arc::new(Socket::new(v6, true, nonblocking));
        socket.bound.store(is_bound, Ordering::Relaxed);
        socket.is_passed.store(listens, Ordering::Relaxed);
        for (level, name) in INHERITED_OPTIONS {
            if let Ok(value) = self.kernel.option(fd, level, name)
                && value != 0
            {
                held(socket.options.lock()).push((level, name, value));
            }
        }
        if listens {
            let mut listening = Listening::new(libc::SOMAXCONN);
            listening.names_address = !plain(local).ip().is_unspecified();
            socket.become_listener(listening);
        }
        // It has been another process's.
        self.has_forked();
        self.place(era, fd, Entry::Socket(socket.clone()), self.identity(fd));
        if listens {
            era.link.remember(&socket);
        }
    }

    /// Whether a socket of TCP is neither connected nor being connected.
    fn is_unconnected(&self, fd: RawFd) -> bool {
        /// TCP_CLOSE (linux/tcp_states.h), the first byte of what TCP_INFO tells.
        const CLOSE: u8 = 7;
        let mut state = [0];
        let told = self.kernel.raw_option(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut state);
        told == Ok(1) && state == [CLOSE]
    }

    /// A listener is about to be passed to another program (`has_library`: one with the library).
    /// It gets the program's own flags, because all processes share its O_NONBLOCK.
    pub(super) fn pass_listener(&self, fd: RawFd, socket: &Arc<Socket>, has_library: bool) {
        self.has_forked();
        if socket.forced_nonblocking() {
            socket.force_nonblocking(false);
            socket.is_passed.store(true, Ordering::Relaxed);
            self.restore_flags(fd, socket);
        }
        if !has_library {
            self.leave_listener(socket, || {
                "the program passes a listener to a program that runs without the library".into()
            });
        }
    }

    /// accept4(2) on the kernel's side of a listener, which must not block there while connections
    /// wait in the engine. Processes that share a listener share its O_NONBLOCK, and one of them
    /// may clear it at any time. A blocking listener is therefore polled first, and the flag set
    /// again.
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

    /// A forked child uses a connection that its parent has accepted, or starts a program that
    /// will. That is not possible: the engine must leave later connections to the kernel.
    pub(super) fn hand_off(&self, era: &Era, service: Arc<Service>) {
        let why = || {
            "the program lets child processes serve the connections of a listener, which needs a \
             relay (relay = true in the engine's configuration)"
                .into()
        };
        if let Some(listener) = service.listener.upgrade() {
            self.leave_listener(&listener, why);
        }
        let mut kept = held(service.kept.lock());
        if let Some(fd) = *kept
            && self.tell_left(fd, why)
        {
            *kept = None;
            self.unhide_number(era, fd);
        }
        drop(kept);
        self.release_service(era, service);
    }

    /// A forked child closes a listener, as a child does that serves an inherited connection next.
    /// Until it uses or closes the connection, a hidden number keeps the listener.
    pub(super) fn keep_for_service(&self, era: &Era, fd: RawFd, listener: &Socket) {
        let Some(service) = listener.service.get().and_then(Weak::upgrade) else { return };
        if !listener.is_left.load(Ordering::Relaxed) {
            // Without a spare descriptor the engine keeps the listener.
            *held(service.kept.lock()) = self.hidden_copy(era, fd).ok();
        }
        self.release_service(era, service);
    }

    /// Drops one reference; the last one closes the hidden number.
    pub(super) fn release_service(&self, era: &Era, service: Arc<Service>) {
        let kept = Arc::into_inner(service).and_then(|service| held(service.kept.into_inner()));
        if let Some(fd) = kept {
            self.unhide_number(era, fd);
        }
    }

    /// New connections of a listener go to the kernel from now on.
    fn leave_listener(&self, listener: &Socket, why: impl FnOnce() -> String) {
        if listener.is_left.load(Ordering::Relaxed) {
            return;
        }
        if let Some(fd) = listener.number()
            && self.tell_left(fd, why)
        {
            listener.is_left.store(true, Ordering::Relaxed);
        }
    }

    /// Asks the engine to leave new connections of the listener `fd` to the kernel. If this fails,
    /// the next occasion retries.
    fn tell_left(&self, fd: RawFd, why: impl FnOnce() -> String) -> bool {
        let told = Bystander::attach(&self.config.socket, &self.config.program);
        let Ok(bystander) = told else { return false };
        let mut is_told = false;
        self.kernel.lend(fd, &mut |kernel| {
            is_told = bystander.leave_listener(kernel, true).is_ok();
        });
        if is_told {
            self.notice(Notice::ListenerLeft, || {
                format!(
                    "{}; new connections to it go through the kernel, if the kernel has its address",
                    why()
                )
            });
        }
        is_told
    }
}

#[cfg(test)]
mod tests {
    use shm::control::{ControlListener, Socket as ControlSocket, ToEngine, Wait};

    use super::super::Verdict;
    use super::super::heritage::Inherited;
    use super::super::leaving::Departure;
    use super::super::tests::{Notebook, layer_at};
    use super::*;

    /// A forked child with the listener 3 and an inherited connection from it, 7.
    fn child(name: &str) -> (&'static Sockets, &'static Notebook, ControlListener) {
        let file = format!("outboard-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(file);
        let (sockets, kernel) = layer_at(path.clone());
        sockets.created(3, libc::AF_INET, libc::SOCK_STREAM, 0);
        assert_eq!(sockets.listen(3, 16), Verdict::Done(Ok(())));
        sockets.forked();
        let own = sockets.socket(3).unwrap();
        own.become_listener(Listening::new(16));
        let era = sockets.era().unwrap();
        sockets.place(
            era,
            7,
            Entry::Foreign(Inherited { service: Some(Service::of(&own)), heirloom: None }),
            0,
        );
        let real = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        *held(kernel.lent.lock()) = Some(real.into());
        kernel.taken();
        (sockets, kernel, ControlListener::bind(&path, 0o600).unwrap())
    }

    /// A program that has the library and inherits all numbers.
    fn departure(becomes: bool) -> Departure<'static> {
        Departure { is_inherited: &|_| true, named: &[], has_library: true, becomes }
    }

    /// Whether the engine was told once to leave a listener, and nothing else.
    fn is_told(engine: &ControlListener) -> bool {
        rustix::io::ioctl_fionbio(engine, true).unwrap();
        let Ok(bystander) = engine.accept() else { return false };
        let said = |bystander: &ControlSocket| bystander.receive::<ToEngine>(Wait::No).unwrap();
        assert!(matches!(said(&bystander).0, ToEngine::Hello { .. }));
        let (message, shown) = said(&bystander);
        assert_eq!((message, shown.len()), (ToEngine::LeaveListener { lasting: true }, 1));
        assert!(engine.accept().is_err(), "told twice");
        true
    }

    #[test]
    fn the_engine_is_told_when_a_child_uses_a_connection_also_after_it_closed_the_listener() {
        for closes in [false, true] {
            let (sockets, kernel, engine) = child(&format!("used-{closes}"));
            if closes {
                assert_eq!(sockets.closing(3), Verdict::Kernel);
            }
            assert!(!is_told(&engine));
            for _ in 0..2 {
                assert_eq!(sockets.called(7).unwrap_err(), Errno::BADF);
            }
            assert!(is_told(&engine));
            let closed = kernel.taken().iter().filter(|call| call.starts_with("close")).count();
            assert_eq!(closed, usize::from(closes), "the hidden number");
        }
    }

    /// Listeners went to the kernel for good wherever a server had forked, or started a program.
    #[test]
    fn a_child_that_closes_everything_and_starts_a_program_leaves_nothing() {
        let (sockets, kernel, engine) = child("closing");
        let mut closed = Vec::new();
        sockets.leaving(&departure(true));
        sockets.closing_range(3, u32::MAX, &mut |first, last| closed.push((first, last)));
        assert_eq!(closed, [(3, u32::MAX)]);
        assert!(!is_told(&engine));
        let hidden = |call: &&String| call.starts_with("close");
        assert_eq!(kernel.taken().iter().filter(hidden).count(), 1);
    }

    #[test]
    fn the_engine_is_told_when_a_child_becomes_a_program_that_has_a_connection_as_its_input() {
        for (becomes, at) in [(true, 0), (false, 0), (true, 7)] {
            let (sockets, _, engine) = child(&format!("input-{becomes}-{at}"));
            sockets.duplicated(7, at);
            sockets.leaving(&departure(becomes));
            assert_eq!(is_told(&engine), becomes && at == 0);
        }
    }
}
