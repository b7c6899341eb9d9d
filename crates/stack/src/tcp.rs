//! TCP, RFC 9293.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::api::*;
use crate::drops::DropReason;
use crate::route::{Route, Routes};
use crate::stack::{Keys, Limits};

/// A received segment's circumstances.
#[derive(Clone, Copy, Debug)]
pub struct SegmentRx {
    /// Own address.
    pub local: IpAddr,
    /// Sender's address.
    pub remote: IpAddr,
    /// Through which interface.
    pub interface: InterfaceIndex,
    /// Type of service.
    pub tos: u8,
    /// Time to live.
    pub ttl: u8,
    /// Set when several segments of this size were coalesced.
    pub gso_bytes: Option<u16>,
}

/// A connection (or an answer without one) that wants to send.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// For [`Tcp::emit`], [`Tcp::park`] or [`Tcp::unreachable`].
    pub handle: u64,
    /// Where it wants to send to.
    pub remote: IpAddr,
}

/// A segment to send; its header without checksum has been written.
#[derive(Clone, Copy, Debug)]
pub struct SegmentTx {
    /// Bytes of TCP header written.
    pub header_bytes: u16,
    /// What follows.
    pub payload: Payload,
    /// Payload bytes per segment when it is to be cut.
    pub gso_bytes: Option<u16>,
    /// Own address.
    pub local: IpAddr,
    /// Where to.
    pub remote: IpAddr,
    /// Type of service.
    pub tos: u8,
    /// Time to live.
    pub ttl: u8,
}

/// What an ICMP error says about a segment of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpError {
    /// Destination port (or protocol) unreachable.
    PortUnreachable,
    /// Host unreachable.
    HostUnreachable,
    /// Network unreachable.
    NetUnreachable,
    /// Fragmentation needed; the next hop's MTU, 0 when not told.
    TooBig {
        /// Largest IP packet.
        mtu: u16,
    },
}

/// All connections and listeners.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tcp {}

#[allow(missing_docs, unused_variables)]
impl Tcp {
    pub fn new(keys: &Keys, limits: &Limits) -> Self {
        Self {}
    }
    pub fn on_segment<S: Sink>(
        &mut self,
        now: Instant,
        rx: &SegmentRx,
        segment: &[u8],
        routes: &Routes,
        sink: &mut S,
    ) -> Result<(), DropReason> {
        Err(DropReason::TcpNoSocket)
    }
    pub fn on_icmp(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
        sequence: u32,
        error: IcmpError,
    ) -> Result<(), DropReason> {
        Err(DropReason::IcmpNoSocket)
    }
    pub fn next_ready(&mut self, now: Instant, interface: InterfaceIndex) -> Option<Ready> {
        None
    }
    pub fn emit(&mut self, now: Instant, handle: u64, header: &mut [u8]) -> Option<SegmentTx> {
        None
    }
    pub fn park(&mut self, handle: u64) {}
    pub fn unpark_all(&mut self) {}
    pub fn unreachable(&mut self, now: Instant, handle: u64, error: TcpError) {}
    pub fn next_deadline(&self) -> Option<Instant> {
        None
    }
    /// At most `budget` timers; true when more are due.
    pub fn on_timers(&mut self, now: Instant, budget: usize) -> bool {
        false
    }
    pub fn poll_event(&mut self) -> Option<Event> {
        None
    }
    pub fn connect(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        local: Option<SocketAddr>,
        route: &Route,
        options: TcpOptions,
        owner: Owner,
    ) -> Result<SocketId, RequestError> {
        Err(RequestError::LimitReached)
    }
    pub fn listen(
        &mut self,
        local: SocketAddr,
        backlog: u32,
        options: TcpOptions,
        owner: Owner,
    ) -> Result<SocketId, RequestError> {
        Err(RequestError::LimitReached)
    }
    pub fn accept(&mut self, listener: SocketId) -> Result<Option<Accepted>, RequestError> {
        Err(RequestError::Stale)
    }
    pub fn pending(&self, listener: SocketId) -> Result<u32, RequestError> {
        Err(RequestError::Stale)
    }
    pub fn assign(&mut self, id: SocketId, owner: Owner) -> Result<(), RequestError> {
        Err(RequestError::Stale)
    }
    pub fn written(&mut self, now: Instant, id: SocketId, end: u64) -> Result<(), RequestError> {
        Err(RequestError::Stale)
    }
    pub fn consumed(&mut self, now: Instant, id: SocketId, end: u64) -> Result<(), RequestError> {
        Err(RequestError::Stale)
    }
    pub fn shutdown(&mut self, now: Instant, id: SocketId) -> Result<(), RequestError> {
        Err(RequestError::Stale)
    }
    pub fn close(&mut self, now: Instant, id: SocketId) -> Result<(), RequestError> {
        Err(RequestError::Stale)
    }
    pub fn abort(&mut self, now: Instant, id: SocketId) -> Result<(), RequestError> {
        Err(RequestError::Stale)
    }
    pub fn set_options(
        &mut self,
        now: Instant,
        id: SocketId,
        options: TcpOptions,
    ) -> Result<(), RequestError> {
        Err(RequestError::Stale)
    }
    pub fn levels(&self, id: SocketId) -> Result<TcpLevels, RequestError> {
        Err(RequestError::Stale)
    }
    pub fn info(&self, now: Instant, id: SocketId) -> Result<TcpInfo, RequestError> {
        Err(RequestError::Stale)
    }
    pub fn ids(&self) -> impl Iterator<Item = SocketId> + '_ {
        std::iter::empty()
    }
}

/// A connection that a listener hands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The connection.
    pub id: SocketId,
    /// Own address.
    pub local: SocketAddr,
    /// Peer's address.
    pub remote: SocketAddr,
}

/// What `ss` and TCP_INFO show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpInfo {
    /// Kind: connection or listener.
    pub kind: SocketKind,
    /// Whose.
    pub owner: Owner,
    /// Own address.
    pub local: SocketAddr,
    /// Peer's address, for a connection.
    pub remote: Option<SocketAddr>,
    /// State, for a connection.
    pub state: TcpState,
    /// Bytes received and not consumed, or connections waiting.
    pub receive_queue: u64,
    /// Bytes written and not acknowledged, or the backlog.
    pub send_queue: u64,
    /// Congestion window in bytes.
    pub cwnd: u32,
    /// Slow-start threshold in bytes.
    pub ssthresh: u32,
    /// Smoothed round-trip time, nanoseconds.
    pub srtt_ns: u64,
    /// Its variation, nanoseconds.
    pub rttvar_ns: u64,
    /// Retransmission timeout, nanoseconds.
    pub rto_ns: u64,
    /// Segments retransmitted.
    pub retransmits: u64,
    /// Maximum segment size in use for sending.
    pub mss: u16,
    /// Peer's window in bytes.
    pub send_window: u32,
}
