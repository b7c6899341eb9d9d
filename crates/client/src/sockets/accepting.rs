//! Listeners and opening of connections.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use shm::census::{Kind, Reason};
use shm::request::{LEFT_BY_LISTS, LEFT_TO_KERNEL};

use super::calls::SocketCall;
use super::census::refusal_of;
use super::link::{Attachment, Deadline};
use super::notices::Notice;
use super::poll::WaitEnds;
use super::socket::{Connection, Listening, Socket, held, is_kernels, plain, timeout};
use super::table::Entry;
use super::{Era, Errno, Sockets, Verdict};
use crate::OptionName;

impl Sockets {
    /// listen(2): in the kernel and, unless only the kernel has the address, in the engine.
    pub fn listen(&'static self, fd: RawFd, backlog: i32) -> Verdict<()> {
        let (era, socket) = match (self.era(), self.called(fd)) {
            (Some(era), Ok(Some(socket))) => (era, socket),
            (_, Err(error)) => return Verdict::Done(Err(error)),
            _ => return Verdict::Kernel,
        };
        if socket.connection().is_some() {
            return Verdict::Done(Err(Errno::INVAL));
        }
        if !socket.stream {
            return Verdict::Kernel;
        }
        if let Err(error) = self.kernel.listen(fd, backlog) {
            return Verdict::Done(Err(error));
        }
        {
            let mut listening = held(socket.listening.write());
            if let Some(listening) = listening.as_mut() {
                listening.backlog = backlog;
                if let Some((endpoint, _)) = &listening.engine {
                    let most = u64::from(backlog.cast_unsigned());
                    // It fails only with the engine, and the next engine gets the current value.
                    let _ = endpoint.set_option(OptionName::Backlog, most);
                }
                return Verdict::Done(Ok(()));
            }
            *listening = Some(Listening::new(backlog));
        }
        let Ok(local) = self.kernel.local(fd) else { return Verdict::Done(Ok(())) };
        if let Some(listening) = held(socket.listening.write()).as_mut() {
            listening.names_address = !plain(local).ip().is_unspecified();
        }
        let counted = (Kind::Listener, Some(local));
        if is_kernels(plain(local).ip()) {
            self.count_socket(era, &socket, counted, Some(Reason::Loopback));
            self.give_to_kernel(era, &socket);
            return Verdict::Done(Ok(()));
        }
        // Accepting from two sources must never block in one of them.
        if !socket.is_nonblocking() {
            socket.force_nonblocking(true);
            self.set_kernel_nonblocking(fd);
        }
        era.link.remember(&socket);
        // Opening a session passes what is remembered; an open one is used here.
        let before = era.link.current();
        match self.attach(era) {
            Some(attachment) if before.is_some() => self.show(era, &socket, &attachment),
            Some(_) => (),
            None => self.count_socket(era, &socket, counted, Some(era.link.absence())),
        }
        Verdict::Done(Ok(()))
    }

    pub(super) fn set_kernel_nonblocking(&self, fd: RawFd) {
        self.kernel.lend(fd, &mut |kernel| {
            if let Ok(flags) = rustix::fs::fcntl_getfl(kernel) {
                // It does not fail for a socket; if it did, accept would only block longer.
                let _ = rustix::fs::fcntl_setfl(kernel, flags | rustix::fs::OFlags::NONBLOCK);
            }
        });
    }

    /// Sets the flags set by the program on a socket's kernel side.
    pub(super) fn restore_flags(&self, fd: RawFd, socket: &Socket) {
        let nonblocking = if socket.is_nonblocking() { libc::O_NONBLOCK } else { 0 };
        self.set_kernel_flags(fd, nonblocking | Self::asynchronous_flag(socket));
    }

    /// F_SETFL of the kernel's side.
    pub(super) fn set_kernel_flags(&self, fd: RawFd, flags: i32) {
        self.kernel.lend(fd, &mut |kernel| {
            let flags = rustix::fs::OFlags::from_bits_retain(flags.cast_unsigned());
            // It fails for no socket.
            let _ = rustix::fs::fcntl_setfl(kernel, flags);
        });
    }

    /// Passes an inherited or not yet served listener, if there is an engine.
    pub(super) fn adopt(&'static self, era: &Era, socket: &Arc<Socket>) {
        let wants = |reach: Option<u64>| {
            held(socket.listening.read()).as_ref().is_some_and(|listening| match reach {
                Some(reach) => listening.wants(reach),
                None => listening.engine.is_none(),
            })
        };
        if !socket.stream || !wants(None) {
            return;
        }
        match self.attach(era) {
            Some(attachment) if wants(Some(attachment.session.reach())) => {
                self.show(era, socket, &attachment);
            }
            None if !Self::is_counted(socket) => {
                let local = socket.number().and_then(|fd| self.kernel.local(fd).ok());
                let counted = (Kind::Listener, local);
                self.count_socket(era, socket, counted, Some(era.link.absence()));
            }
            _ => (),
        }
    }

    /// accept(2) and accept4(2): from the engine or the kernel, whichever has a connection.
    pub fn accept(&'static self, fd: RawFd, flags: i32) -> Verdict<(RawFd, SocketAddr)> {
        let (era, socket) = match (self.era(), self.entered(fd)) {
            (Some(era), Ok(Some(socket))) => (era, socket),
            (_, Err(error)) => return Verdict::Done(Err(error)),
            _ => return Verdict::Kernel,
        };
        if held(socket.listening.read()).is_none() {
            return Verdict::Kernel;
        }
        self.adopt(era, &socket);
        let deadline = Deadline::after(self.kernel, timeout(&socket.receive_timeout_ns));
        loop {
            match self.accept_from_engine(era, &socket, flags) {
                Err(Errno::AGAIN) => (),
                Err(error) => return Verdict::Done(Err(error)),
                Ok(taken) => return Verdict::Done(Ok(taken)),
            }
            // The program may have closed its number meanwhile.
            let fd = socket.number().unwrap_or(fd);
            match self.accept_from_kernel(fd, &socket, flags) {
                Err(Errno::AGAIN) => (),
                other => {
                    if let Ok((new, _)) = &other {
                        self.appeared(*new);
                        self.count_accepted_from_kernel(era, &socket);
                    }
                    return Verdict::Done(other);
                }
            }
            if socket.is_nonblocking() || deadline.has_passed() {
                return Verdict::Done(Err(Errno::AGAIN));
            }
            let ends = WaitEnds { kernel_events: libc::POLLIN, timeout: deadline.left() };
            if let Err(error) = self.block(era, &socket, super::socket::IN_BITS, ends) {
                return Verdict::Done(Err(error));
            }
        }
    }

    fn accept_from_engine(
        &self,
        era: &Era,
        listener: &Arc<Socket>,
        flags: i32,
    ) -> Result<(RawFd, SocketAddr), Errno> {
        let engine = held(listener.listening.read())
            .as_ref()
            .and_then(|listening| Some((listening.engine.clone()?, listening.names_address)))
            .ok_or(Errno::AGAIN)?;
        let ((endpoint, attachment), names_address) = engine;
        if !endpoint.readiness().contains(crate::Readiness::IN) {
            return Err(Errno::AGAIN);
        }
        // The number first, so that a connection stays in the queue if no number is free.
        let inert = self.inert(era)?;
        let number = self.kernel.duplicate(inert, 0, flags & libc::SOCK_CLOEXEC != 0)?;
        let accepted = match endpoint.accept() {
            Ok(accepted) => accepted,
            Err(error) => {
                self.kernel.close(number);
                let gone = matches!(error, Errno::CONNRESET | Errno::BADF | Errno::NOTCONN);
                return Err(if gone { Errno::AGAIN } else { error });
            }
        };
        let remote = listener.dressed(accepted.remote);
        let nonblocking = flags & libc::SOCK_NONBLOCK != 0;
        let socket = Arc::new(Socket::accepted(listener.v6, nonblocking, names_address));
        let _ = socket.origin.set(Arc::downgrade(listener));
        self.inherit_options(listener, &socket, &accepted.endpoint);
        let id = accepted.endpoint.id();
        socket.become_connection(accepted.endpoint, attachment.clone());
        if let Some(connection) = socket.connection() {
            connection.established.store(true, Ordering::Relaxed);
        }
        self.place(era, number, Entry::Socket(socket.clone()), era.table.identity(inert));
        attachment.remember(id, &socket);
        self.count_accepted(era, listener);
        Ok((number, remote))
    }

    /// The descriptor of which connections' numbers are duplicates.
    fn inert(&self, era: &Era) -> Result<RawFd, Errno> {
        era.link.inert(|| {
            let fd = self.lift(self.kernel.inert(false)?);
            self.hide(era, fd);
            era.table.identify(fd, self.identity(fd));
            Ok(fd)
        })
    }

    /// connect(2); with AF_UNSPEC it ends what there is.
    pub fn connect(&'static self, fd: RawFd, to: Option<SocketAddr>) -> Verdict<()> {
        let (era, socket) = match (self.era(), self.entered(fd)) {
            (Some(era), Ok(Some(socket))) => (era, socket),
            (_, Err(error)) => return Verdict::Done(Err(error)),
            _ => return Verdict::Kernel,
        };
        if !socket.stream {
            return match to {
                Some(to) if !socket.suits(to) => Verdict::Kernel,
                to => self.connect_datagram(era, &socket, fd, to),
            };
        }
        if let Some(connection) = socket.connection() {
            return Verdict::Done(match to {
                Some(_) => self.connect_again(era, &socket, connection),
                None => self.disconnect(era, &socket, connection, Errno::PIPE),
            });
        }
        let Some(to) = to else {
            if socket.is_listening() {
                self.stop_listening(era, &socket, fd);
            }
            return Verdict::Kernel;
        };
        if socket.is_listening() {
            return Verdict::Done(Err(Errno::ISCONN));
        }
        let fast = socket.opens_fast();
        match self.open_to(SocketCall { era, socket: &socket, fd }, to, fast) {
            Verdict::Done(Ok(())) => (),
            verdict => return verdict,
        }
        let Some(connection) = socket.connection() else { return Verdict::Done(Err(Errno::INVAL)) };
        if connection.endpoint.awaits_data() {
            // The first write sends the SYN.
            return Verdict::Done(Ok(()));
        }
        if socket.is_nonblocking() {
            return Verdict::Done(Err(Errno::INPROGRESS));
        }
        Verdict::Done(self.finish_connect(era, &socket, connection))
    }

    /// Opens a connection through the engine, if the engine reaches `to`; otherwise the socket is
    /// left to the kernel. `fast`: the SYN carries the first data if possible.
    pub(super) fn open_to(
        &'static self,
        call: SocketCall<'_>,
        to: SocketAddr,
        fast: bool,
    ) -> Verdict<()> {
        let SocketCall { era, socket, fd } = call;
        if !socket.suits(to) || self.is_out_of_reach(socket, fd, plain(to).ip()) {
            return Verdict::Kernel;
        }
        let to = self.resolved(socket, fd, plain(to));
        let counted = (Kind::Opened, Some(to));
        let attachment =
            if is_kernels(to.ip()) || to.ip().is_unspecified() { None } else { self.attach(era) };
        let serving = attachment.as_ref().filter(|attachment| attachment.serves(to.ip()));
        let Some(serving) = serving else {
            let reason = self.why_not(era, attachment.as_deref(), to.ip());
            self.count_socket(era, socket, counted, Some(reason));
            self.give_to_kernel(era, socket);
            return Verdict::Kernel;
        };
        if let Some(error) = socket.versions.refusal(to.ip()) {
            return Verdict::Done(Err(error));
        }
        match self.open(call, to, fast, serving) {
            Ok(()) => {
                self.count_socket(era, socket, counted, None);
                Verdict::Done(Ok(()))
            }
            Err(errno @ (LEFT_TO_KERNEL | LEFT_BY_LISTS)) => {
                self.count_socket(era, socket, counted, Some(refusal_of(errno)));
                self.give_to_kernel(era, socket);
                Verdict::Kernel
            }
            Err(error) => Verdict::Done(Err(error)),
        }
    }

    /// Requests the connection from the engine and makes the socket one.
    fn open(
        &'static self,
        call: SocketCall<'_>,
        to: SocketAddr,
        fast: bool,
        attachment: &Arc<Attachment>,
    ) -> Result<(), Errno> {
        let SocketCall { era, socket, fd } = call;
        let refused = |error: crate::RequestError| {
            self.notice_refusal(&error, Notice::ConnectRefused, || {
                format!("{error}; connect to {to} fails")
            });
            error.errno
        };
        let mut token = None;
        // Without address and port the engine can choose both.
        let is_somewhere =
            |local: SocketAddr| local.port() != 0 || !plain(local).ip().is_unspecified();
        if socket.bound.load(Ordering::Relaxed) && is_somewhere(self.kernel.local(fd)?) {
            // The lack of a port has another errno here than in bind.
            self.bind_to_port(fd).map_err(|error| match error {
                Errno::ADDRINUSE => Errno::ADDRNOTAVAIL,
                other => other,
            })?;
            let mut outcome = Err(Errno::BADF.into());
            self.kernel.lend(fd, &mut |kernel| outcome = attachment.session.authorize(kernel));
            token = match outcome {
                Ok((token, _)) => Some(token),
                // An address of another interface of the host, from which only the kernel sends.
                Err(error) if error.errno == Errno::ADDRNOTAVAIL => return Err(LEFT_TO_KERNEL),
                Err(error) => return Err(refused(error)),
            };
        }
        let mut options = self.connect_options(socket, to.ip());
        options.fast_open = fast;
        let mut keys = held(socket.keys.lock()).clone();
        keys.retain(|key| key.is_for(to.ip()));
        let session = &attachment.session;
        let endpoint = session.connect_signed(to, token, &options, &keys).map_err(refused)?;
        let id = endpoint.id();
        self.apply_remembered(socket, &endpoint);
        if !socket.become_connection(endpoint, attachment.clone()) {
            return Err(Errno::ALREADY);
        }
        self.leave_kernel_epolls(socket);
        attachment.remember(id, socket);
        era.link.forget(socket);
        socket.notify(self.kernel);
        // Without its thread the connection works, but its owner gets no SIGURG.
        let _ = self.follow_owner(socket);
        Ok(())
    }

    /// A second connect on the same socket returns the result of the first.
    fn connect_again(
        &'static self,
        era: &Era,
        socket: &Arc<Socket>,
        connection: &Connection,
    ) -> Result<(), Errno> {
        if connection.established.load(Ordering::Relaxed) || connection.endpoint.awaits_data() {
            return Err(Errno::ISCONN);
        }
        if connection.is_opened() {
            return self.end_connect(era, socket, connection);
        }
        if socket.is_nonblocking() {
            return Err(Errno::ALREADY);
        }
        self.finish_connect(era, socket, connection).map_err(|error| match error {
            Errno::INPROGRESS => Errno::ALREADY,
            error => error,
        })
    }

    /// Blocks until the handshake has ended.
    pub(super) fn finish_connect(
        &'static self,
        era: &Era,
        socket: &Arc<Socket>,
        connection: &Connection,
    ) -> Result<(), Errno> {
        let limit = timeout(&socket.send_timeout_ns);
        self.block_until(era, socket, &|| connection.is_opened(), WaitEnds::within(limit))
            .map_err(|error| if error == Errno::AGAIN { Errno::INPROGRESS } else { error })?;
        self.end_connect(era, socket, connection)
    }

    /// The result of connect after the handshake. As in the kernel, the socket can be connected
    /// again once a failure was reported.
    pub(super) fn end_connect(
        &'static self,
        era: &Era,
        socket: &Arc<Socket>,
        connection: &Connection,
    ) -> Result<(), Errno> {
        if let Some(told) = connection.disconnected.get() {
            return Err(told.take());
        }
        if !connection.endpoint.has_ended() {
            connection.established.store(true, Ordering::Relaxed);
            return Ok(());
        }
        // SO_ERROR may already have returned it.
        let error = connection.endpoint.take_error().unwrap_or(Errno::CONNABORTED);
        self.disconnect(era, socket, connection, Errno::PIPE).and(Err(error))
    }
}
