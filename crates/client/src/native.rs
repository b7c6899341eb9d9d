//! Blocking sockets over a session, with the traits of `std::io`; and [`Poller`] to wait for many.
//!
//! They use only the engine. Programs that want the kernel's sockets behind the same calls use
//! [`sockets`](crate::sockets).

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::driver::locked;
use crate::{ConnectOptions, Endpoint, How, Readiness, ReceivedDatagram, Session};

/// Calls `attempt` until its result is not EAGAIN, waiting for `wanted` in between.
fn blocking<T>(
    endpoint: &Endpoint,
    wanted: Readiness,
    timeout: Option<Duration>,
    mut attempt: impl FnMut() -> Result<T, Errno>,
) -> io::Result<T> {
    let deadline = timeout.map(|timeout| Instant::now() + timeout);
    loop {
        match attempt() {
            Err(Errno::AGAIN) => {}
            done => return Ok(done?),
        }
        let ends = Readiness::ERR | Readiness::HUP;
        let ready = || endpoint.readiness().intersects(wanted | ends);
        if !endpoint.session().wait_until(deadline, ready)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

/// A kernel socket of the program that holds an address: the engine serves what the kernel has
/// granted.
pub(crate) fn kernel_socket(address: SocketAddr, kind: SocketType) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
    // The engine may be the only one to have the address.
    if address.is_ipv4() {
        rustix::net::sockopt::set_ip_freebind(&socket, true)?;
    } else {
        rustix::net::sockopt::set_ipv6_freebind(&socket, true)?;
    }
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

/// A connection.
#[derive(Debug)]
pub struct Stream {
    endpoint: Endpoint,
    timeout: Option<Duration>,
}

impl Stream {
    /// Connects to `remote`, waiting until it stands or fails.
    ///
    /// # Errors
    /// As [`Self::connect_with`].
    pub fn connect(session: &Arc<Session>, remote: SocketAddr) -> io::Result<Self> {
        Self::connect_with(session, remote, &ConnectOptions::default(), None)
    }

    /// Connects with options, within `timeout`.
    ///
    /// # Errors
    /// What [`Session::connect`] refuses, with its errno; what the peer or the network answers
    /// (ECONNREFUSED, ETIMEDOUT and the like); [`io::ErrorKind::TimedOut`] when `timeout` passes
    /// first.
    pub fn connect_with(
        session: &Arc<Session>,
        remote: SocketAddr,
        options: &ConnectOptions,
        timeout: Option<Duration>,
    ) -> io::Result<Self> {
        let endpoint = session.connect(remote, None, options)?;
        blocking(&endpoint, Readiness::OUT, timeout, || match endpoint.take_error() {
            Some(errno) => Err(errno),
            None if endpoint.is_connected() => Ok(()),
            None => Err(Errno::AGAIN),
        })?;
        Ok(Self::from_endpoint(endpoint))
    }

    /// A blocking view of a connection.
    pub fn from_endpoint(endpoint: Endpoint) -> Self {
        Self { endpoint, timeout: None }
    }

    /// The connection itself, for options, addresses and calls that do not wait.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Limits how long reads and writes wait.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// Shuts down one or both directions.
    ///
    /// # Errors
    /// As [`Endpoint::shutdown`].
    pub fn shutdown(&self, how: How) -> io::Result<()> {
        Ok(self.endpoint.shutdown(how)?)
    }
}

impl Read for &Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        blocking(&self.endpoint, Readiness::IN, self.timeout, || self.endpoint.read(bytes))
    }

    fn read_vectored(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        blocking(&self.endpoint, Readiness::IN, self.timeout, || self.endpoint.read_vectored(parts))
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        blocking(&self.endpoint, Readiness::OUT, self.timeout, || self.endpoint.write(bytes))
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let write = || self.endpoint.write_vectored(parts);
        blocking(&self.endpoint, Readiness::OUT, self.timeout, write)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        (&*self).read(bytes)
    }

    fn read_vectored(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(parts)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A listener.
#[derive(Debug)]
pub struct Listener {
    endpoint: Endpoint,
    /// Holds the address as long as the listener exists.
    _kernel: OwnedFd,
}

impl Listener {
    /// Listens at `local`, which must be one of the engine's addresses or unspecified.
    ///
    /// # Errors
    /// What the kernel says of the address, and what [`Session::listen`] refuses, with its errno.
    pub fn bind(session: &Arc<Session>, local: SocketAddr) -> io::Result<Self> {
        let kernel = kernel_socket(local, SocketType::STREAM)?;
        rustix::net::listen(&kernel, 1024)?;
        let endpoint = session.listen(kernel.as_fd(), 1024)?;
        Ok(Self { endpoint, _kernel: kernel })
    }

    /// The listener itself.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Waits for a connection and its peer's address.
    ///
    /// # Errors
    /// Those of every call ([`Endpoint`]); ENFILE when the session has all the endpoints that it
    /// can have.
    pub fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        let accepted = blocking(&self.endpoint, Readiness::IN, None, || self.endpoint.accept())?;
        Ok((Stream::from_endpoint(accepted.endpoint), accepted.remote))
    }
}

/// A datagram socket.
#[derive(Debug)]
pub struct Datagram {
    endpoint: Endpoint,
    _kernel: OwnedFd,
}

impl Datagram {
    /// A socket at `local`, which must be one of the engine's addresses or unspecified.
    ///
    /// # Errors
    /// What the kernel says of the address, and what [`Session::bind_udp`] refuses, with its errno.
    pub fn bind(session: &Arc<Session>, local: SocketAddr) -> io::Result<Self> {
        let kernel = kernel_socket(local, SocketType::DGRAM)?;
        let endpoint = session.bind_udp(kernel.as_fd())?;
        Ok(Self { endpoint, _kernel: kernel })
    }

    /// The socket itself.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Waits for a datagram.
    ///
    /// # Errors
    /// As [`Endpoint::recv_from`], but for EAGAIN.
    pub fn recv_from(&self, bytes: &mut [u8]) -> io::Result<ReceivedDatagram> {
        let parts = &mut [IoSliceMut::new(bytes)];
        blocking(&self.endpoint, Readiness::IN, None, || self.endpoint.recv_from(parts))
    }

    /// Sends a datagram, waiting for room.
    ///
    /// # Errors
    /// As [`Endpoint::send_datagram`], but for EAGAIN.
    pub fn send_to(&self, bytes: &[u8], remote: SocketAddr) -> io::Result<usize> {
        self.send_from(bytes, remote, None)
    }

    /// The same, from one of several local addresses.
    ///
    /// # Errors
    /// As [`Endpoint::send_datagram`], but for EAGAIN.
    pub fn send_from(
        &self,
        bytes: &[u8],
        remote: SocketAddr,
        local: Option<IpAddr>,
    ) -> io::Result<usize> {
        let parts = [IoSlice::new(bytes)];
        let send = || self.endpoint.send_to(Some(remote), local, &parts);
        blocking(&self.endpoint, Readiness::OUT, None, send)
    }
}

/// Waits for any of several endpoints of one session.
#[derive(Debug)]
pub struct Poller {
    session: Arc<Session>,
    watched: Mutex<Vec<(usize, Endpoint, Readiness)>>,
}

impl Poller {
    /// A poller that watches nothing.
    pub fn new(session: &Arc<Session>) -> Self {
        Self { session: session.clone(), watched: Mutex::default() }
    }

    /// Watches `endpoint` for `wanted` (and always for hang-ups and errors) under `key`.
    pub fn add(&self, key: usize, endpoint: &Endpoint, wanted: Readiness) {
        let wanted = wanted | Readiness::ERR | Readiness::HUP;
        locked(&self.watched).push((key, endpoint.clone(), wanted));
    }

    /// Stops watching `key`.
    pub fn remove(&self, key: usize) {
        locked(&self.watched).retain(|(watched, ..)| *watched != key);
    }

    /// Waits until something is ready and writes keys and readiness to `ready`; nothing when
    /// `timeout` passes first.
    ///
    /// # Errors
    /// EMFILE when the kernel has no descriptor left for this thread's wake-ups.
    pub fn wait(
        &self,
        ready: &mut Vec<(usize, Readiness)>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        self.session.wait_until(deadline, || {
            ready.clear();
            for (key, endpoint, wanted) in locked(&self.watched).iter() {
                let readiness = endpoint.readiness() & *wanted;
                if !readiness.is_empty() {
                    ready.push((*key, readiness));
                }
            }
            !ready.is_empty()
        })?;
        Ok(())
    }
}
