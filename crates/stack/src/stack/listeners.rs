//! Listeners, and the connections that wait at them.

use std::net::SocketAddr;

use super::Stack;
use crate::api::{Instant, Local, Owner, RequestError, SocketId, TcpOptions};
use crate::tcp::Accepted;

impl Stack {
    /// Listens at `local` (own or unspecified address); connections inherit the `options`.
    ///
    /// # Errors
    /// [`RequestError::AddressNotAvailable`] if the address is neither ours nor unspecified;
    /// [`RequestError::AddressInUse`] if another listener has it; [`RequestError::LimitReached`] if
    /// the table of listeners is full.
    pub fn tcp_listen(
        &mut self,
        local: impl Into<Local>,
        backlog: u32,
        options: TcpOptions,
        owner: Owner,
    ) -> Result<SocketId, RequestError> {
        let local = local.into().canonical();
        if !self.may_bind(local.address.ip()) {
            return Err(RequestError::AddressNotAvailable);
        }
        let listening = self.tcp.listen(local, backlog, options, owner);
        self.note_limit(listening)
    }

    /// Has a listener listen with another backlog.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `listener` names no listener.
    pub fn tcp_set_backlog(
        &mut self,
        listener: SocketId,
        backlog: u32,
    ) -> Result<(), RequestError> {
        self.tcp.set_backlog(listener, backlog)
    }

    /// Whether a listener takes no SYN for a time: those that come are dropped in silence. Connections
    /// that have begun go on, and wait to be accepted.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `listener` names no listener.
    pub fn tcp_set_shut(&mut self, listener: SocketId, is_shut: bool) -> Result<(), RequestError> {
        self.tcp.set_shut(listener, is_shut)
    }

    /// Takes the oldest established connection from a listener's queue. It belongs to
    /// [`Owner::NONE`] until [`tcp_assign`](Self::tcp_assign).
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `listener` names no listener.
    pub fn tcp_accept(&mut self, listener: SocketId) -> Result<Option<Accepted>, RequestError> {
        self.tcp.accept(listener)
    }

    /// Whether a segment from `remote` to `local` belongs to a connection, or may make one as the answer
    /// to a SYN cookie.
    pub fn tcp_awaits(&self, now: Instant, local: SocketAddr, remote: SocketAddr) -> bool {
        self.tcp.awaits(now, local, remote)
    }

    /// How many connections wait at a listener.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `listener` names no listener.
    pub fn tcp_pending(&self, listener: SocketId) -> Result<u32, RequestError> {
        self.tcp.pending(listener)
    }
}
