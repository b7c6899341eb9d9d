//! Sockets of an inline engine. None of their calls waits.

use std::cell::RefCell;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::rc::Rc;

use client::{ConnectionInfo, Endpoint, EndpointId, How, OptionName, Readiness, ReceivedDatagram};

use crate::inline::Bindings;

/// A connection.
#[derive(Debug)]
pub struct Stream {
    endpoint: Endpoint,
    /// The worker runs in this thread, and so do its sockets.
    of_thread: PhantomData<Rc<()>>,
}

impl Stream {
    pub(crate) fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, of_thread: PhantomData }
    }

    /// Its number, as [`Inline::take_events`](crate::Inline::take_events) says it.
    pub fn id(&self) -> EndpointId {
        self.endpoint.id()
    }

    /// Our address.
    pub fn local(&self) -> SocketAddr {
        self.endpoint.local()
    }

    /// The peer's address.
    pub fn remote(&self) -> Option<SocketAddr> {
        self.endpoint.remote()
    }

    /// Whether the connection stands.
    pub fn is_connected(&self) -> bool {
        self.endpoint.is_connected()
    }

    /// The error that waits (SO_ERROR), and takes it.
    pub fn take_error(&self) -> Option<io::Error> {
        self.endpoint.take_error().map(io::Error::from)
    }

    /// What poll(2) would say now.
    pub fn readiness(&self) -> Readiness {
        self.endpoint.readiness()
    }

    /// Shuts down one or both directions.
    ///
    /// # Errors
    /// The connection does not stand.
    pub fn shutdown(&self, how: How) -> io::Result<()> {
        Ok(self.endpoint.shutdown(how)?)
    }

    /// Closes with a reset.
    pub fn abort(self) {
        self.endpoint.abort();
    }

    /// Bytes that were written and that the peer has not acknowledged.
    pub fn unacknowledged_bytes(&self) -> u64 {
        self.endpoint.unacknowledged_bytes()
    }

    /// Sets an option of the connection.
    ///
    /// # Errors
    /// The value is out of range.
    pub fn set_option(&self, option: OptionName, value: u64) -> io::Result<()> {
        Ok(self.endpoint.set_option(option, value)?)
    }

    /// How the connection does (TCP_INFO).
    ///
    /// # Errors
    /// The connection has ended.
    pub fn info(&self) -> io::Result<ConnectionInfo> {
        Ok(self.endpoint.info()?)
    }
}

impl Read for &Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        Ok(self.endpoint.read(bytes)?)
    }

    fn read_vectored(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        Ok(self.endpoint.read_vectored(parts)?)
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(self.endpoint.write_vectored(&[IoSlice::new(bytes)])?)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(self.endpoint.write_vectored(parts)?)
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
    local: SocketAddr,
    bindings: Rc<RefCell<Bindings>>,
}

impl Listener {
    pub(crate) fn new(
        endpoint: Endpoint,
        local: SocketAddr,
        bindings: Rc<RefCell<Bindings>>,
    ) -> Self {
        Self { endpoint, local, bindings }
    }

    /// Its number, as [`Inline::take_events`](crate::Inline::take_events) says it.
    pub fn id(&self) -> EndpointId {
        self.endpoint.id()
    }

    /// Where it listens.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// `IN` when a connection waits.
    pub fn readiness(&self) -> Readiness {
        self.endpoint.readiness()
    }

    /// Takes a connection that waits.
    ///
    /// # Errors
    /// `WouldBlock`: none waits, or there are no buffers for it yet. Otherwise a limit is reached.
    pub fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        // It may have been shown before its buffers came back, and then have none: EAGAIN.
        let accepted = self.endpoint.accept()?;
        Ok((Stream::new(accepted.endpoint), accepted.remote))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.endpoint.close();
        self.bindings.borrow_mut().release(true, self.local);
    }
}

/// A datagram socket.
#[derive(Debug)]
pub struct Datagram {
    endpoint: Endpoint,
    local: SocketAddr,
    bindings: Rc<RefCell<Bindings>>,
}

impl Datagram {
    pub(crate) fn new(
        endpoint: Endpoint,
        local: SocketAddr,
        bindings: Rc<RefCell<Bindings>>,
    ) -> Self {
        Self { endpoint, local, bindings }
    }

    /// Its number, as [`Inline::take_events`](crate::Inline::take_events) says it.
    pub fn id(&self) -> EndpointId {
        self.endpoint.id()
    }

    /// Where it is bound.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// What poll(2) would say now.
    pub fn readiness(&self) -> Readiness {
        self.endpoint.readiness()
    }

    /// Takes the next datagram; what does not fit is lost.
    ///
    /// # Errors
    /// `WouldBlock`: there is none. An ICMP error that came for what was sent.
    pub fn recv_from(&self, bytes: &mut [u8]) -> io::Result<ReceivedDatagram> {
        Ok(self.endpoint.recv_from(&mut [IoSliceMut::new(bytes)])?)
    }

    /// Sends a datagram: all of it or nothing.
    ///
    /// # Errors
    /// `WouldBlock`: there is no room. It is too long, or there is no way to `remote`.
    pub fn send_to(&self, bytes: &[u8], remote: SocketAddr) -> io::Result<usize> {
        Ok(self.endpoint.send_to(Some(remote), None, &[IoSlice::new(bytes)])?)
    }

    /// Sets an option of the socket.
    ///
    /// # Errors
    /// The value is out of range.
    pub fn set_option(&self, option: OptionName, value: u64) -> io::Result<()> {
        Ok(self.endpoint.set_option(option, value)?)
    }
}

impl Drop for Datagram {
    fn drop(&mut self) {
        self.endpoint.close();
        self.bindings.borrow_mut().release(false, self.local);
    }
}
