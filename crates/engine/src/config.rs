//! Configuration of an engine. Every limit has a counter of the times it was hit.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use port::{Port, Protocol};
use shm::control::Geometry;
pub use stack::api::CongestionKind;
pub use stack::api::{Cidr, Destination, Ipv6Mode};
pub use stack::tcp::{EcnMode, FastOpenKeys, HyStartKind, MtuProbing, TcpSettings};

use crate::rules::Rules;
use crate::service::bridge::BridgeRule;
use crate::service::mirror::MirrorRule;
use crate::service::raw::rights::RawRule;
use crate::trial::Trial;

mod bounds;

pub use bounds::BadLimit;

/// How a worker waits for work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Poll {
    /// Never sleeps when idle: lowest latency, a whole core.
    Busy,
    /// Sleeps after a period of idle polling.
    #[default]
    Adaptive,
}

/// A listener or UDP socket that the engine has begun to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accelerated {
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Its local address.
    pub local: SocketAddr,
}

/// A running engine's settings.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Control socket to which clients attach: SOCK_SEQPACKET, in the file system.
    pub socket: PathBuf,
    /// Permission bits of the socket; whoever may write to it may attach.
    pub socket_mode: u32,
    /// Group id of the socket; `None` for the engine's own.
    pub socket_group: Option<u32>,
    /// The core that the worker is pinned to; `None` leaves it to the scheduler.
    pub core: Option<usize>,
    /// How the worker waits.
    pub poll: Poll,
    /// Limits.
    pub limits: Limits,
    /// Rules on what may be accelerated.
    pub rules: Rules,
    /// Signalled when an engine on trial is confirmed.
    pub trial: Option<Arc<Trial>>,
    /// Receives every listener and UDP socket that the engine begins to serve, as long as the
    /// receiver keeps up (counter `accelerated_untold`).
    pub accelerated: Option<SyncSender<Accelerated>>,
    /// Settings of TCP.
    pub tcp: TcpSettings,
    /// Users who may open raw endpoints, in addition to those who pass a packet socket.
    pub raw: Vec<RawRule>,
    /// Names of ports whose interface is in another network namespace, where a packet socket of the
    /// engine's namespace grants no right.
    pub ports_elsewhere: Vec<String>,
    /// Ports that forward frames to each other.
    pub bridges: Vec<BridgeRule>,
    /// Kernel interfaces that show the frames that ports receive and send.
    pub mirrors: Vec<MirrorRule>,
    /// The engine's end of a control connection to a relay, through which other processes use a
    /// program's connections. `None`: they cannot.
    pub relay: Option<Arc<OwnedFd>>,
}

impl EngineConfig {
    /// Defaults for an engine at `socket`.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into(),
            socket_mode: 0o666,
            socket_group: None,
            core: None,
            poll: Poll::default(),
            limits: Limits::default(),
            rules: Rules::default(),
            trial: None,
            accelerated: None,
            tcp: TcpSettings::default(),
            raw: Vec::new(),
            ports_elsewhere: Vec::new(),
            bridges: Vec::new(),
            mirrors: Vec::new(),
            relay: None,
        }
    }
}

/// An open port and the addresses the engine uses on it.
pub struct PortSetup {
    /// The port.
    pub port: Box<dyn Port>,
    /// The engine's own addresses on its link. For a port that shares its interface, addresses,
    /// gateway and routes are the kernel's instead.
    pub addresses: Vec<Cidr>,
    /// Next hop for destinations off the link.
    pub gateway: Option<IpAddr>,
    /// Other routes through the port.
    pub routes: Vec<Destination>,
    /// Whether and how the port uses IPv6.
    pub ipv6: Ipv6Mode,
}

/// Encapsulation of messages to other hosts; both are received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encapsulation {
    /// Datagrams.
    #[default]
    Udp,
    /// Ethernet frames to hosts on the link, datagrams to others.
    Ethernet,
}

/// How hosts exchange messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageSettings {
    /// Encapsulation of sent messages.
    pub encapsulation: Encapsulation,
    /// UDP port of the datagrams.
    pub port: u16,
    /// EtherType of the frames.
    pub ethertype: u16,
}

impl Default for MessageSettings {
    fn default() -> Self {
        Self {
            encapsulation: Encapsulation::default(),
            port: MESSAGE_PORT,
            ethertype: wire::message::ETHER_TYPE,
        }
    }
}

/// Default UDP port of messages.
const MESSAGE_PORT: u16 = 26870;

/// Limits on everything that could otherwise grow, with defaults for a small machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Concurrent sessions (counter `sessions_refused`).
    pub sessions: u16,
    /// Concurrent sessions of one user except root (counter `sessions_refused_of_user`).
    pub sessions_per_user: u16,
    /// Endpoints of all sessions of one user except root (counter `endpoints_exhausted_of_user`).
    pub endpoints_per_user: u32,
    /// Bytes of shared memory that the sessions of one user except root hold when another one
    /// attaches (counter `sessions_refused_memory`). Only touched pages count, not the address
    /// space of the regions.
    pub memory_per_user: u64,
    /// Concurrent control connections, observers included (counter `control_refused`).
    pub control_connections: u16,
    /// Contexts of a session.
    pub contexts: u16,
    /// Endpoints of a session (counter `endpoints_exhausted`).
    pub endpoints: u32,
    /// Slots of each request and reply ring.
    pub request_slots: u32,
    /// Slots of each stock ring.
    pub stock_slots: u32,
    /// Buffers kept in the stock of an active lane.
    pub stock_target: u32,
    /// Descriptors in an endpoint's send queue.
    pub send_slots: u32,
    /// Descriptors in an endpoint's receive queue.
    pub receive_slots: u32,
    /// Size of a buffer in bytes, a power of two.
    pub buffer_bytes: u32,
    /// Buffers of a session (counter `buffers_exhausted`).
    pub buffers: u32,
    /// Descriptors of a session that were copied and are not acknowledged (counter
    /// `spans_exhausted`).
    pub spans: u32,
    /// Early bytes kept for one connection that is not yet accepted (counter `stash_full`).
    pub stash_connection_bytes: usize,
    /// Early bytes kept for all connections that are not yet accepted (counter `stash_full`).
    pub stash_total_bytes: usize,
    /// Frames received per port and turn.
    pub frames_per_turn: usize,
    /// Doorbells served per lane and turn.
    pub doorbells_per_turn: usize,
    /// Requests served per lane and turn.
    pub requests_per_turn: usize,
    /// Stack events taken at a time.
    pub events_per_turn: usize,
    /// Frames sent per turn.
    pub transmits_per_turn: usize,
    /// Nanoseconds without a doorbell or request after which a lane is no longer polled.
    pub lane_idle_ns: u64,
    /// Nanoseconds in which the connections of a dead program may deliver its data.
    pub linger_ns: u64,
    /// TCP connections of all sessions, including those not yet accepted (counter
    /// `requests_limited` and drops of the stack).
    pub sockets: u32,
    /// Listeners (counter `listeners_refused`).
    pub listeners: u32,
    /// Listeners of one user except root (counter `listeners_refused`).
    pub listeners_per_user: u32,
    /// UDP sockets (counter `udp_sockets_refused`).
    pub udp_sockets: u32,
    /// UDP sockets of one user except root (counter `udp_sockets_refused`).
    pub udp_sockets_per_user: u32,
    /// How hosts exchange messages; the same on all of them.
    pub messages: MessageSettings,
    /// Neighbours kept; the least recently used is evicted (counted by the stack).
    pub neighbors: u32,
}

impl Default for Limits {
    fn default() -> Self {
        let stack = stack::Limits::default();
        Self {
            sessions: 1024,
            sessions_per_user: 512,
            endpoints_per_user: 49152,
            memory_per_user: 8 << 30,
            control_connections: 1280,
            contexts: 1,
            endpoints: 16384,
            request_slots: 256,
            stock_slots: 256,
            stock_target: 64,
            send_slots: 256,
            receive_slots: 1024,
            buffer_bytes: 8192,
            buffers: 8192,
            spans: 65536,
            stash_connection_bytes: 128 << 10,
            stash_total_bytes: 16 << 20,
            frames_per_turn: 128,
            doorbells_per_turn: 128,
            requests_per_turn: 64,
            events_per_turn: 4096,
            transmits_per_turn: 128,
            lane_idle_ns: 10_000_000,
            linger_ns: 60_000_000_000,
            sockets: 65536,
            listeners: stack.listeners,
            listeners_per_user: stack.listeners / 2,
            udp_sockets: stack.udp_sockets,
            udp_sockets_per_user: stack.udp_sockets / 2,
            messages: MessageSettings::default(),
            neighbors: stack.neighbors,
        }
    }
}

impl Limits {
    /// Buffers that must be free to accept a connection: its early bytes are already acknowledged
    /// and need room.
    pub(crate) fn accept_buffers(&self) -> usize {
        self.stash_connection_bytes / self.buffer_bytes as usize + 2
    }

    /// Shared memory that a session uses as soon as it is active: the stock of its lane.
    pub fn session_bytes_first(&self) -> u64 {
        u64::from(self.stock_target) * u64::from(self.buffer_bytes)
    }

    /// The geometry of sessions of an engine with `workers` workers.
    pub fn geometry(&self, workers: u16) -> Geometry {
        Geometry {
            region_bytes: 0,
            context_count: self.contexts,
            worker_count: workers,
            request_slots: self.request_slots,
            stock_slots: self.stock_slots,
            endpoint_capacity: self.endpoints,
            send_slots: self.send_slots,
            receive_slots: self.receive_slots,
            buffer_bytes: self.buffer_bytes,
            buffer_count: self.buffers,
        }
    }
}
