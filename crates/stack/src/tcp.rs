//! TCP: RFC 9293 with 7323 (scaled windows, timestamps), 2018 and 2883 (SACK), 8985 (losses found by
//! time, tail probes), 9937 (rate of recovery), 5681, 9438 and 9406 (congestion control), 6298 and
//! 5682 (timeouts), 3168 and 8257 (ECN, DCTCP), 5961 (blind attacks), 6528 and 6056 (keyed numbers);
//! BBR and pacing as Linux has them; 5482 (user timeouts told to the peer) where it is enabled.
//!
//! [`Tcp`] holds the tables: connections in two arrays (what every packet touches, and the
//! rest), listeners, TIME-WAITs, the flow table, ready queues and timers. What is done to one
//! connection is a method of [`Connection`](connection::Connection), which knows no table; its
//! effects come back in a [`Step`](connection::Step). Read `receive`, `ack`, `scoreboard`,
//! `recovery`, `send`, `timers` in this order.

mod account;
mod ack;
mod close;
pub mod congestion;
mod connection;
mod cookies;
mod counters;
mod cuts;
mod ecn;
mod fast_open;
mod fin_wait;
mod flow;
mod frto;
mod half_open;
mod icmp;
mod image;
mod intervals;
mod isn;
mod listener;
mod mtu;
mod options;
mod pacing;
mod passive;
mod progress;
mod prr;
mod rack;
mod rate;
mod rates;
mod receive;
mod recovery;
mod refusal;
mod reply;
mod requests;
mod rtt;
mod sacks;
mod samples;
mod scoreboard;
mod send;
mod settings;
mod shape;
mod signing;
mod stamps;
mod state;
mod tables;
mod tally;
#[cfg(test)]
mod tests;
mod time_wait;
mod timers;
mod tlp;
mod undo;
mod urgent;
mod user_timeout;
mod window;

pub(crate) use cookies::Ends;
pub use counters::TcpCounters;
pub use ecn::EcnMode;
pub use fast_open::{FastOpenKeys, FastOpenKeysError};
pub use progress::TcpProgress;
pub use rates::{TcpModel, TcpRates};
pub use settings::{HyStartKind, MtuProbing, TcpSettings};
pub use signing::{KEY_BYTES_MAX, KEYS_MAX, SigningKey};
pub use stamps::{ACKED, SCHEDULED, SENT, Stamp};
pub use state::{Input, STATES};
pub use tables::Tcp;
pub use tally::TcpCounts;

use std::net::{IpAddr, SocketAddr};

use crate::api::{
    CongestionKind, Instant, InterfaceIndex, Metrics, Owner, Payload, SocketId, SocketKind,
    TcpError, TcpState,
};

/// A received segment's circumstances.
#[derive(Clone, Copy, Debug)]
pub struct SegmentRx {
    /// When it was received.
    pub now: Instant,
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
    /// Own address that it speaks from.
    pub local: IpAddr,
    /// Where it wants to send to.
    pub remote: IpAddr,
    /// It answers somebody who has not been shown to exist: without a connection, or before the handshake
    /// is over.
    pub is_strangers: bool,
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
    /// Time to live; none for the usual one.
    pub ttl: Option<u8>,
    /// Routers must not cut it.
    pub dont_fragment: bool,
    /// It is to be signed with its payload ([`Tcp::sign`]).
    pub unsigned: bool,
}

/// What the way to a destination carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathMtu {
    /// Largest IP packet on the link.
    pub link: u16,
    /// Largest IP packet that reaches the destination, as far as is known.
    pub path: u16,
    /// The path takes even less, and routers may cut.
    pub is_cut: bool,
    /// What the route says.
    pub metrics: Metrics,
}

/// What an ICMP error says about a segment of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpError {
    /// The packet was of no use.
    Failed(TcpError),
    /// Fragmentation needed; the next hop's MTU, 0 when not told.
    TooBig {
        /// Largest IP packet.
        mtu: u16,
    },
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

/// What the tables hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpCensus {
    /// Connections that have a place, in whatever state.
    pub connections: u32,
    /// Connections in TIME-WAIT.
    pub time_waits: u32,
    /// Flows that lead somewhere.
    pub flows: u32,
    /// Connections with a timer set.
    pub timers: u32,
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
    /// Largest IP packet to the peer.
    pub mtu: u16,
    /// More of a connection.
    pub more: TcpDetails,
}

/// What TCP_INFO shows beside the rest, of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpDetails {
    /// Retransmission timeouts, or window probes, in a row.
    pub retries: u8,
    /// A fast recovery goes on.
    pub is_recovering: bool,
    /// The timer ran out, and what was outstanding is being repaired.
    pub is_lossy: bool,
    /// The window is being reduced for marks (ECN).
    pub is_reducing: bool,
    /// Timestamps were agreed on.
    pub timestamps: bool,
    /// SACK was agreed on.
    pub sack: bool,
    /// Shifts of the peer's windows and of ours, where scaling was agreed on.
    pub scales: Option<(u8, u8)>,
    /// Bytes sent and not acknowledged.
    pub outstanding: u64,
    /// Bytes of them selectively acknowledged.
    pub sacked: u64,
    /// Bytes of them that were found lost, those sent again since among them.
    pub lost: u64,
    /// Payload of a full segment of the peer's, as seen.
    pub receive_mss: u16,
    /// Maximum segment size that was announced to the peer.
    pub advertised_mss: u16,
    /// ECN was agreed on.
    pub ecn: bool,
    /// The peer has sent packets that may be marked.
    pub ecn_seen: bool,
    /// The congestion control.
    pub congestion: CongestionKind,
    /// Bytes per second that it is paced at; `None` where it is not.
    pub pacing_rate: Option<u64>,
    /// Bytes per second that were delivered, where this is measured.
    pub delivery_rate: Option<u64>,
    /// Data came or went with the SYN (Fast Open).
    pub syn_data: bool,
    /// Acknowledgements wait for something to ride on (the kernel's pingpong mode).
    pub interactive: bool,
    /// Nanoseconds of the user timeout, where it is not the usual patience.
    pub user_timeout_ns: Option<u64>,
    /// Seconds of the user timeout that the peer has told (RFC 5482).
    pub peer_user_timeout_s: Option<u32>,
}
