//! Requests of TCP sockets.

use std::net::SocketAddr;

use super::Stack;
use crate::api::*;
use crate::tcp::{FastOpenKeys, Stamp, TcpInfo, TcpSettings};

impl Stack {
    /// Opens a connection.
    ///
    /// # Errors
    /// [`RequestError::NoRoute`] without a route to the remote, or if its port is 0;
    /// [`RequestError::AddressNotAvailable`] if the local address is not ours, or no port is free
    /// for the remote; [`RequestError::AddressInUse`] if a connection has this pair of addresses
    /// already; [`RequestError::LimitReached`] if the table of connections is full.
    pub fn tcp_connect(
        &mut self,
        now: Instant,
        connect: TcpConnect,
    ) -> Result<SocketId, RequestError> {
        let (remote, local) = (canonical(connect.remote), connect.local.map(canonical));
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.1
        //# If an application on a multihomed host does not specify the local IP address when
        //# actively opening a TCP connection, then the TCP implementation MUST ask the IP layer to
        //# select a local IP address before sending the (first) SYN (MUST-44).
        let route = self.routes.lookup(remote.ip()).ok_or(RequestError::NoRoute)?;
        if remote.port() == 0 {
            return Err(RequestError::NoRoute);
        }
        let fits = |l: SocketAddr| {
            self.may_bind(l.ip()) && (l.ip().is_unspecified() || l.is_ipv4() == remote.is_ipv4())
        };
        if local.is_some_and(|l| !fits(l)) {
            return Err(RequestError::AddressNotAvailable);
        }
        let connected = self.tcp.connect(now, &route, TcpConnect { remote, local, ..connect });
        self.note_limit(connected)
    }

    /// Says whose a connection is from now on.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names neither a connection nor a listener.
    pub fn tcp_assign(&mut self, id: SocketId, owner: Owner) -> Result<(), RequestError> {
        self.tcp.assign(id, owner)
    }

    /// The send stream now ends at `end` (bytes since the SYN, never less than before).
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection; [`RequestError::State`] if its sending
    /// direction is closed.
    pub fn tcp_written(
        &mut self,
        now: Instant,
        id: SocketId,
        end: u64,
    ) -> Result<(), RequestError> {
        self.tcp.written(now, id, end, false)
    }

    /// The same, and more is to follow (MSG_MORE): a partial segment may wait for it.
    ///
    /// # Errors
    /// As [`tcp_written`](Self::tcp_written).
    pub fn tcp_written_more(
        &mut self,
        now: Instant,
        id: SocketId,
        end: u64,
    ) -> Result<(), RequestError> {
        self.tcp.written(now, id, end, true)
    }

    /// Starts a new segment behind `end` (MSG_EOR). To be called before `tcp_written` reaches it.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection.
    pub fn tcp_end_record(
        &mut self,
        now: Instant,
        id: SocketId,
        end: u64,
    ) -> Result<(), RequestError> {
        self.tcp.end_record(now, id, end)
    }

    /// Asks when the byte before `end` is sent and acknowledged; said before it is told as written.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection.
    pub fn tcp_stamp(
        &mut self,
        now: Instant,
        id: SocketId,
        end: u64,
        kinds: u8,
    ) -> Result<(), RequestError> {
        self.tcp.stamp(now, id, end, kinds)
    }

    /// Takes the oldest of the times that were asked for.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection.
    pub fn tcp_take_stamp(&mut self, id: SocketId) -> Result<Option<Stamp>, RequestError> {
        self.tcp.take_stamp(id)
    }

    /// Sends what is held back, as when TCP_NODELAY is set, also where TCP_CORK is.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection.
    pub fn tcp_push(&mut self, now: Instant, id: SocketId) -> Result<(), RequestError> {
        self.tcp.push(now, id)
    }

    /// TCP_QUICKACK.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection.
    pub fn tcp_set_quickack(
        &mut self,
        now: Instant,
        id: SocketId,
        on: bool,
    ) -> Result<(), RequestError> {
        self.tcp.set_quickack(now, id, on)
    }

    /// The program waits for room to write, or does so no more.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection.
    pub fn tcp_wait_for_room(
        &mut self,
        now: Instant,
        id: SocketId,
        waits: bool,
    ) -> Result<(), RequestError> {
        self.tcp.wait_for_room(now, id, waits)
    }

    /// A SYN that waits for data (Fast Open) goes without any.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection.
    pub fn tcp_open_now(&mut self, now: Instant, id: SocketId) -> Result<(), RequestError> {
        self.tcp.open_now(now, id)
    }

    /// Whether data may go with our SYNs.
    pub fn opens_fast(&self) -> bool {
        self.tcp.opens_fast()
    }

    /// Other settings for everything that is decided from now on.
    pub fn set_tcp_settings(&mut self, settings: TcpSettings) {
        self.tcp.set_settings(settings);
    }

    /// Forgets what is remembered of servers for Fast Open, as `ip tcp_metrics flush` does.
    pub fn forget_fast_open(&mut self) {
        self.tcp.forget_servers();
    }

    /// Gives a listener Fast Open keys of its own (TCP_FASTOPEN_KEY).
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `listener` names no listener.
    pub fn tcp_set_fast_open_keys(
        &mut self,
        listener: SocketId,
        keys: FastOpenKeys,
    ) -> Result<(), RequestError> {
        self.tcp.set_fast_open_keys(listener, keys)
    }

    /// The byte before `end` of the send stream is urgent; to be said before
    /// [`tcp_written`](Self::tcp_written) reaches so far.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection; [`RequestError::State`] if its sending
    /// direction is closed, or the peer has acknowledged the byte.
    pub fn tcp_urge(&mut self, now: Instant, id: SocketId, end: u64) -> Result<(), RequestError> {
        self.tcp.urge(now, id, end)
    }

    /// The program has read the receive stream up to `end` (bytes since the SYN).
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection.
    pub fn tcp_consumed(
        &mut self,
        now: Instant,
        id: SocketId,
        end: u64,
    ) -> Result<(), RequestError> {
        self.tcp.consumed(now, id, end)
    }

    /// The owner has memory for a receive window of so many bytes; one of 65,535 it always has.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection.
    pub fn tcp_limit_window(&mut self, id: SocketId, ceiling: u32) -> Result<(), RequestError> {
        self.tcp.limit_window(id, ceiling)
    }

    /// No more is written: sends a FIN after what was written.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection; [`RequestError::State`] if it has
    /// ended.
    pub fn tcp_shutdown(&mut self, now: Instant, id: SocketId) -> Result<(), RequestError> {
        self.tcp.shutdown(now, id)
    }

    /// The program is done with the socket. Unread data or a linger time of 0 reset a connection; a
    /// listener resets those that wait. The id stays valid, with events, until all is delivered or lost.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names neither a connection nor a listener.
    pub fn tcp_close(&mut self, now: Instant, id: SocketId) -> Result<(), RequestError> {
        self.tcp.close(now, id)
    }

    /// Closes a connection with a reset, which follows what the windows permit of what was written.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection.
    pub fn tcp_close_with_reset(&mut self, now: Instant, id: SocketId) -> Result<(), RequestError> {
        self.tcp.close_with_reset(now, id)
    }

    /// Resets the connection at once; unsent data is lost.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection.
    pub fn tcp_abort(&mut self, now: Instant, id: SocketId) -> Result<(), RequestError> {
        self.tcp.abort(now, id)
    }

    /// Changes all options of a connection or listener.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names neither a connection nor a listener.
    pub fn tcp_set_options(
        &mut self,
        now: Instant,
        id: SocketId,
        options: TcpOptions,
    ) -> Result<(), RequestError> {
        self.tcp.set_options(now, id, options)
    }

    /// All options of a connection or listener.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names neither a connection nor a listener.
    pub fn tcp_options(&self, id: SocketId) -> Result<TcpOptions, RequestError> {
        self.tcp.options(id).copied()
    }

    /// Where a connection stands.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection.
    pub fn tcp_levels(&self, id: SocketId) -> Result<TcpLevels, RequestError> {
        self.tcp.levels(id)
    }

    /// For how long a connection has waited for its peer alone, if it does.
    pub fn tcp_stalled_ns(&self, now: Instant, id: SocketId) -> Option<u64> {
        self.tcp.stalled_ns(now, id)
    }

    /// What TCP_INFO and `ss` show.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names neither a connection nor a listener.
    pub fn tcp_info(&self, id: SocketId) -> Result<TcpInfo, RequestError> {
        self.tcp.info(id)
    }
}
