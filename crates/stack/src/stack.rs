//! The stack: dispatch of what comes in, collection of what goes out.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::api::*;
use crate::drops::Counters;
use crate::route::{Route, Routes};
use crate::tcp::{Accepted, Tcp, TcpInfo};

/// Most bytes of header that a frame has: Ethernet with a VLAN tag, IPv6, TCP with all options.
pub const HEADER_MAX: usize = 128;

/// Everything a stack is made from.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where all randomness comes from (ISNs, ports, hash keys, IP identifications). To be drawn
    /// from the system's entropy once; the same seed and inputs give the same frames.
    pub seed: [u8; 32],
    /// Bounds of every table.
    pub limits: Limits,
    /// First and last port for connections and sockets without a port of their own (RFC 6056).
    pub ephemeral_ports: (u16, u16),
}

impl Config {
    /// Default limits and the dynamic ports of RFC 6335.
    pub fn new(seed: [u8; 32]) -> Self {
        Self { seed, limits: Limits::default(), ephemeral_ports: (49152, 65535) }
    }
}

/// Bounds of every table of the stack. Memory for them is taken when the stack is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// TCP connections in any state but TIME-WAIT.
    pub connections: u32,
    /// TCP connections in TIME-WAIT.
    pub time_waits: u32,
    /// TCP listeners.
    pub listeners: u32,
    /// Half-open connections of one listener.
    pub syn_queue: u32,
    /// Connections of one listener that wait to be accepted, whatever its backlog.
    pub accept_queue: u32,
    /// UDP sockets.
    pub udp_sockets: u32,
    /// Neighbours remembered.
    pub neighbors: u32,
    /// Datagrams being reassembled at a time.
    pub reassemblies: u32,
    /// Datagrams being reassembled from one source at a time.
    pub reassemblies_per_source: u32,
    /// Bytes of answers (ICMP) that wait to be transmitted.
    pub own_bytes: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 65536,
            time_waits: 16384,
            listeners: 1024,
            syn_queue: 1024,
            accept_queue: 4096,
            udp_sockets: 4096,
            neighbors: 1024,
            reassemblies: 16,
            reassemblies_per_source: 4,
            own_bytes: 256 * 1024,
        }
    }
}

/// Secrets of a stack, drawn from the seed, and the range of ports.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Keys {
    /// For ISNs (RFC 6528).
    pub isn: [u8; 16],
    /// For the choice of ports (RFC 6056, algorithm 3).
    pub port: [u8; 16],
    /// For the hash of flows.
    pub flow: [u8; 16],
    /// For everything else that must not be guessed (challenge, identifications).
    pub other: [u8; 16],
    /// First and last ephemeral port.
    pub ephemeral_ports: (u16, u16),
}

/// Why an export cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImportError {
    /// Made by another version of the format.
    Version {
        /// The version found.
        found: u32,
    },
    /// Not an export, or a damaged one.
    Malformed,
}

/// What holds for a UDP socket now; the truth behind an [`Event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpLevels {
    /// The connected remote refused a datagram, or cannot be reached. Reading clears it.
    pub error: Option<TcpError>,
}

/// A UDP socket for `ss`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpInfo {
    /// Whose.
    pub owner: Owner,
    /// Own address.
    pub local: SocketAddr,
    /// Remote address, if connected.
    pub remote: Option<SocketAddr>,
}

/// A socket for `ss`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketInfo {
    /// A connection or listener.
    Tcp(SocketId, TcpInfo),
    /// A UDP socket.
    Udp(SocketId, UdpInfo),
}

/// A whole TCP/UDP/IP host as plain data.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stack {
    routes: Routes,
    tcp: Tcp,
    counters: Counters,
}

#[allow(unused_variables)]
impl Stack {
    /// A stack without interfaces.
    pub fn new(config: Config) -> Self {
        let keys = Keys {
            isn: [0; 16],
            port: [0; 16],
            flow: [0; 16],
            other: [0; 16],
            ephemeral_ports: config.ephemeral_ports,
        };
        Self {
            routes: Routes::default(),
            tcp: Tcp::new(&keys, &config.limits),
            counters: Counters::default(),
        }
    }

    /// Adds an interface and announces its addresses; `None` when there are too many.
    pub fn add_interface(
        &mut self,
        now: Instant,
        config: InterfaceConfig,
    ) -> Option<InterfaceIndex> {
        self.routes.add(config)
    }

    /// Interfaces, own addresses and how destinations are reached.
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Takes a received frame. Whatever is wrong with it ends in a counter. Payload goes to
    /// `sink` before the call returns.
    pub fn on_frame<S: Sink>(
        &mut self,
        now: Instant,
        interface: InterfaceIndex,
        frame: &[u8],
        meta: RxFrameMeta,
        sink: &mut S,
    ) {
    }

    /// The next frame for an interface: writes its headers and says what follows them. `None`
    /// when there is nothing more. Call it for every interface after each burst of input, and
    /// for [`InterfaceIndex::LOOPBACK`], whose frames are to be given back to
    /// [`on_frame`](Self::on_frame) with [`RxChecksum::Valid`] (each call of that may cause more;
    /// bound the number per turn).
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        interface: InterfaceIndex,
        header: &mut [u8; HEADER_MAX],
    ) -> Option<Transmit> {
        None
    }

    /// The bytes of a [`Payload::Own`]; empty when they have been released.
    pub fn own_bytes(&self, start: u32, len: u32) -> &[u8] {
        &[]
    }

    /// Gives the bytes of a [`Payload::Own`] back once they are sent (or the frame is dropped).
    pub fn release_own(&mut self, start: u32, len: u32) {}

    /// When [`on_timers`](Self::on_timers) wants to be called at the latest. Cheap.
    pub fn next_deadline(&self) -> Option<Instant> {
        None
    }

    /// Runs timers that are due, a bounded number per call; `true` when more are due.
    pub fn on_timers(&mut self, now: Instant) -> bool {
        false
    }

    /// The next socket with news.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.tcp.poll_event()
    }

    /// Opens a connection. `local`: an authorized address and port, or `None` for the route's
    /// address and an ephemeral port (a port of 0 lets the stack choose the port only).
    pub fn tcp_connect(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        local: Option<SocketAddr>,
        options: TcpOptions,
        owner: Owner,
    ) -> Result<SocketId, RequestError> {
        let route: Route = self.routes.lookup(remote.ip()).ok_or(RequestError::NoRoute)?;
        if local.is_some_and(|l| !l.ip().is_unspecified() && !self.routes.is_own(l.ip())) {
            return Err(RequestError::AddressNotAvailable);
        }
        self.tcp.connect(now, remote, local, &route, options, owner)
    }

    /// Listens at `local` (an own address, or the unspecified one for all). `options` are
    /// inherited by the connections.
    pub fn tcp_listen(
        &mut self,
        local: SocketAddr,
        backlog: u32,
        options: TcpOptions,
        owner: Owner,
    ) -> Result<SocketId, RequestError> {
        if !local.ip().is_unspecified() && !self.routes.is_own(local.ip()) {
            return Err(RequestError::AddressNotAvailable);
        }
        self.tcp.listen(local, backlog, options, owner)
    }

    /// Takes the oldest established connection from a listener's queue. It belongs to
    /// [`Owner::NONE`] until [`tcp_assign`](Self::tcp_assign).
    pub fn tcp_accept(&mut self, listener: SocketId) -> Result<Option<Accepted>, RequestError> {
        self.tcp.accept(listener)
    }

    /// How many connections wait at a listener.
    pub fn tcp_pending(&self, listener: SocketId) -> Result<u32, RequestError> {
        self.tcp.pending(listener)
    }

    /// Says whose a connection is from now on.
    pub fn tcp_assign(&mut self, id: SocketId, owner: Owner) -> Result<(), RequestError> {
        self.tcp.assign(id, owner)
    }

    /// The send stream now ends at `end` (bytes since the SYN, never less than before).
    pub fn tcp_written(
        &mut self,
        now: Instant,
        id: SocketId,
        end: u64,
    ) -> Result<(), RequestError> {
        self.tcp.written(now, id, end)
    }

    /// The program has read the receive stream up to `end` (bytes since the SYN).
    pub fn tcp_consumed(
        &mut self,
        now: Instant,
        id: SocketId,
        end: u64,
    ) -> Result<(), RequestError> {
        self.tcp.consumed(now, id, end)
    }

    /// No more is written: sends a FIN after what was written.
    pub fn tcp_shutdown(&mut self, now: Instant, id: SocketId) -> Result<(), RequestError> {
        self.tcp.shutdown(now, id)
    }

    /// The program is done with the socket. A connection finishes by itself (unread data or a
    /// linger time of 0 reset it); a listener's waiting connections are reset. The id stays
    /// valid, with events, until everything written is acknowledged or lost.
    pub fn tcp_close(&mut self, now: Instant, id: SocketId) -> Result<(), RequestError> {
        self.tcp.close(now, id)
    }

    /// Resets the connection.
    pub fn tcp_abort(&mut self, now: Instant, id: SocketId) -> Result<(), RequestError> {
        self.tcp.abort(now, id)
    }

    /// Changes all options of a connection or listener.
    pub fn tcp_set_options(
        &mut self,
        now: Instant,
        id: SocketId,
        options: TcpOptions,
    ) -> Result<(), RequestError> {
        self.tcp.set_options(now, id, options)
    }

    /// Where a connection stands.
    pub fn tcp_levels(&self, id: SocketId) -> Result<TcpLevels, RequestError> {
        self.tcp.levels(id)
    }

    /// What TCP_INFO and `ss` show.
    pub fn tcp_info(&self, now: Instant, id: SocketId) -> Result<TcpInfo, RequestError> {
        self.tcp.info(now, id)
    }

    /// Opens a UDP socket at `local` (an own address or the unspecified one; port 0 chooses).
    pub fn udp_bind(&mut self, local: SocketAddr, owner: Owner) -> Result<SocketId, RequestError> {
        Err(RequestError::LimitReached)
    }

    /// Fixes (or with `None` frees) the remote; a connected socket hears only that remote and
    /// gets its errors.
    pub fn udp_connect(
        &mut self,
        id: SocketId,
        remote: Option<SocketAddr>,
    ) -> Result<(), RequestError> {
        Err(RequestError::Stale)
    }

    /// Addresses and owner of a socket.
    pub fn udp_info(&self, id: SocketId) -> Result<UdpInfo, RequestError> {
        Err(RequestError::Stale)
    }

    /// What holds for the socket; clears the error.
    pub fn udp_take_levels(&mut self, id: SocketId) -> Result<UdpLevels, RequestError> {
        Err(RequestError::Stale)
    }

    /// Closes a UDP socket.
    pub fn udp_close(&mut self, id: SocketId) -> Result<(), RequestError> {
        Err(RequestError::Stale)
    }

    /// Writes the headers of a datagram, which the caller emits at once with its payload. When it
    /// does not fit the MTU this is the first fragment, [`UdpFrame::more`] leads to the others,
    /// and `payload_sum` is asked for the folded ones' complement sum of the whole payload
    /// (big-endian words, an odd last byte padded with zero, not complemented).
    /// [`RequestError::WaitNeighbor`]: ARP is asking; try again when
    /// [`neighbor_generation`](Self::neighbor_generation) has changed.
    pub fn udp_transmit(
        &mut self,
        now: Instant,
        id: SocketId,
        send: &UdpSend,
        header: &mut [u8; HEADER_MAX],
        payload_sum: impl FnOnce() -> u16,
    ) -> Result<UdpFrame, RequestError> {
        Err(RequestError::Stale)
    }

    /// Writes the headers of the next fragment.
    pub fn udp_fragment(
        &mut self,
        rest: UdpFragments,
        header: &mut [u8; HEADER_MAX],
    ) -> Option<UdpFrame> {
        None
    }

    /// Changes whenever a neighbour becomes known or is given up.
    pub fn neighbor_generation(&self) -> u64 {
        0
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Every socket, for `ss`.
    pub fn sockets(&self, now: Instant) -> impl Iterator<Item = SocketInfo> + '_ {
        self.tcp.ids().filter_map(move |id| Some(SocketInfo::Tcp(id, self.tcp.info(now, id).ok()?)))
    }

    /// The whole state, to go on from elsewhere.
    pub fn export(&self) -> Vec<u8> {
        Vec::new()
    }

    /// The state of an [`export`](Self::export).
    pub fn import(bytes: &[u8]) -> Result<Self, ImportError> {
        Err(ImportError::Malformed)
    }
}
