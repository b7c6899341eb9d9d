//! Addresses of sockets.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use shm::census::{Kind, Reason};

use super::socket::{Socket, held, is_kernels, plain};
use super::{Errno, Sockets, Verdict};

impl Sockets {
    /// bind(2). An address that only the engine has is bound with IP_FREEBIND; a UDP socket is
    /// passed to the engine.
    pub fn bind(&'static self, fd: RawFd, addr: SocketAddr) -> Verdict<()> {
        let (era, socket) = match (self.era(), self.called(fd)) {
            (Some(era), Ok(Some(socket))) => (era, socket),
            (_, Err(error)) => return Verdict::Done(Err(error)),
            _ => return Verdict::Kernel,
        };
        if socket.connection().is_some() {
            return Verdict::Done(Err(Errno::INVAL));
        }
        let ip = plain(addr).ip();
        let mut outcome = self.kernel.bind(fd, addr);
        if outcome == Err(Errno::ADDRNOTAVAIL)
            && self.attach(era).is_some_and(|attachment| attachment.session.owns(ip))
        {
            outcome = self
                .kernel
                .set_option(fd, libc::IPPROTO_IP, libc::IP_FREEBIND, 1)
                .and_then(|()| self.kernel.bind(fd, addr));
        }
        if let Err(error) = outcome {
            return Verdict::Done(Err(error));
        }
        socket.bound.store(true, Ordering::Relaxed);
        socket.versions.on_bind(addr.ip());
        socket.last_port.store(0, Ordering::Relaxed);
        if !socket.stream {
            if is_kernels(ip) {
                let counted = (Kind::UdpBound, self.kernel.local(fd).ok());
                self.count_socket(era, &socket, counted, Some(Reason::Loopback));
                self.give_to_kernel(era, &socket);
            } else if let Some(attachment) = self.attach(era) {
                self.show(era, &socket, &attachment);
            } else {
                let counted = (Kind::UdpBound, self.kernel.local(fd).ok());
                self.count_socket(era, &socket, counted, Some(era.link.absence()));
                era.link.remember(&socket);
            }
        }
        Verdict::Done(Ok(()))
    }

    /// Binds a socket that has no port to one, at the address that it has (IP_BIND_ADDRESS_NO_PORT): the
    /// right to use it is the kernel's to give, for both.
    pub(super) fn bind_to_port(&self, fd: RawFd) -> Result<(), Errno> {
        let local = self.kernel.local(fd)?;
        if local.port() != 0 {
            return Ok(());
        }
        let (level, name) = (libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT);
        let puts_off = self.kernel.option(fd, level, name).is_ok_and(|on| on != 0);
        if !puts_off {
            return self.kernel.bind(fd, local);
        }
        self.kernel.set_option(fd, level, name, 0)?;
        let bound = self.kernel.bind(fd, local);
        self.kernel.set_option(fd, level, name, 1)?;
        bound
    }

    /// Whether an address is an IPv4 address that the socket cannot use, as the kernel will report.
    pub(super) fn is_out_of_reach(&self, socket: &Socket, fd: RawFd, to: IpAddr) -> bool {
        to.is_ipv4() && self.is_v6_only(socket, fd)
    }

    /// IPV6_V6ONLY.
    pub(super) fn is_v6_only(&self, socket: &Socket, fd: RawFd) -> bool {
        let asked = || self.kernel.option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY);
        socket.v6 && asked().is_ok_and(|on| on != 0)
    }

    /// getsockname(2).
    pub fn local(&self, fd: RawFd) -> Verdict<SocketAddr> {
        let socket = match self.called(fd) {
            Ok(Some(socket)) => socket,
            Ok(None) => return Verdict::Kernel,
            Err(error) => return Verdict::Done(Err(error)),
        };
        if let Some(connection) = socket.connection() {
            return Verdict::Done(Ok(socket.dressed(connection.endpoint.local())));
        }
        let peered = {
            let datagram = held(socket.datagram.read());
            let peered = datagram.as_ref().filter(|datagram| datagram.peer.is_some());
            peered.map(|datagram| datagram.endpoint.local())
        };
        match peered {
            Some(local) if !local.ip().is_unspecified() => Verdict::Done(Ok(socket.dressed(local))),
            _ => {
                self.last_name(&socket, fd).map_or(Verdict::Kernel, |name| Verdict::Done(Ok(name)))
            }
        }
    }

    /// The name of a socket whose connection was ended. The kernel still returns the connection's
    /// port, although the socket no longer has it.
    fn last_name(&self, socket: &Socket, fd: RawFd) -> Option<SocketAddr> {
        let port = Some(socket.last_port.load(Ordering::Relaxed)).filter(|port| *port != 0)?;
        let mut local = self.kernel.local(fd).ok().filter(|local| local.port() == 0)?;
        local.set_port(port);
        Some(local)
    }

    /// The actual destination of a datagram or connection to `to`: the unspecified IPv4 address
    /// means the socket's own.
    pub(super) fn resolved(&self, socket: &Socket, fd: RawFd, to: SocketAddr) -> SocketAddr {
        if to.ip() != IpAddr::V4(Ipv4Addr::UNSPECIFIED) {
            return to;
        }
        let of_face = socket.face().map(|face| face.endpoint.local());
        let own = of_face.or_else(|| self.kernel.local(fd).ok()).map(plain);
        let own = own.filter(|own| own.is_ipv4() && !own.ip().is_unspecified());
        own.map_or(to, |own| SocketAddr::new(own.ip(), to.port()))
    }

    /// getpeername(2).
    pub fn remote(&self, fd: RawFd) -> Verdict<SocketAddr> {
        let socket = match self.called(fd) {
            Ok(Some(socket)) => socket,
            Ok(None) => return Verdict::Kernel,
            Err(error) => return Verdict::Done(Err(error)),
        };
        if let Some(connection) = socket.connection() {
            let endpoint = &connection.endpoint;
            let stands = connection.established.load(Ordering::Relaxed) || endpoint.is_connected();
            if !stands || endpoint.has_ended() {
                return Verdict::Done(Err(Errno::NOTCONN));
            }
            let remote = endpoint.remote().ok_or(Errno::NOTCONN);
            return Verdict::Done(remote.map(|remote| socket.dressed(remote)));
        }
        let peer = held(socket.datagram.read()).as_ref().and_then(|datagram| datagram.peer);
        match peer {
            // For the kernel port 0 means no peer, although it was connected to.
            Some(peer) if peer.port() == 0 => Verdict::Done(Err(Errno::NOTCONN)),
            Some(peer) => Verdict::Done(Ok(socket.dressed(peer))),
            None => Verdict::Kernel,
        }
    }
}
