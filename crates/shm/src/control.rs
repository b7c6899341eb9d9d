//! Messages on the control socket: one postcard-encoded message per SOCK_SEQPACKET datagram, with
//! descriptors as SCM_RIGHTS. See docs/spec/control.md.

#[cfg(not(loom))]
mod socket;

#[cfg(not(loom))]
pub use socket::{ControlError, ControlListener, DESCRIPTORS_MAX, Peer, Socket, Wait, peer};

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::census::{CensusLine, Subject};
use crate::raw::RingSizes;

/// Version of everything in `docs/spec/shm.md` and of the messages here.
pub const CONTRACT_VERSION: u32 = 18;

/// Largest control message in bytes.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// From a client or the command line to the engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToEngine {
    /// First message. Its encoding never changes, so that versions can refuse each other.
    Hello {
        /// The client's [`CONTRACT_VERSION`].
        contract: u32,
        /// What to be.
        role: Role,
        /// For `ss`: the program's name.
        program: String,
    },
    /// Listen on the kernel socket that comes along (one descriptor; the engine closes its copy).
    Listen {
        /// Echoed in the answer.
        serial: u32,
        /// Context whose lanes get the listener's endpoints.
        context: u16,
        /// As given to listen(2).
        backlog: u32,
    },
    /// Serve the bound kernel UDP socket that comes along.
    BindUdp {
        /// Echoed in the answer.
        serial: u32,
        /// Context of the endpoint.
        context: u16,
    },
    /// A bound kernel TCP socket comes along and authorizes its local address for one connect.
    BindTcp {
        /// Echoed in the answer.
        serial: u32,
    },
    /// Asks for counters (answered by `Stats`).
    Stats,
    /// Asks for the sockets (answered by one or more `Sockets`).
    Sockets,
    /// Captures frames of a port to the descriptor that comes along, until this socket closes.
    Capture {
        /// The port's name; empty for the engine's only one.
        port: String,
        /// Bytes kept of each frame.
        snap_bytes: u32,
        /// Which frames, in tcpdump's language; all when empty.
        filter: String,
    },
    /// The engine, started on trial, is to stay (answered by `Confirmed`).
    Confirm,
    /// The listening kernel socket that comes along is used by somebody who cannot be accelerated:
    /// the engine takes nothing new for it. Of a bystander. Not answered.
    LeaveListener {
        /// Until the socket is closed; else for [`LEFT_FOR`], if it is not said again.
        lasting: bool,
    },
    /// Asks for the interfaces as they are now (answered by `Interfaces`).
    Interfaces {
        /// Echoed in the answer.
        serial: u32,
    },
    /// Asks what the programs' libraries have left to the kernel (answered by `Census`).
    Census {
        /// Sessions beyond this one; 0 to begin with.
        after: u64,
    },
    /// The process is about to fork, and its child will hold the connections that it holds now. Of a
    /// session or an heir (answered by `Inherited` or `Denied`).
    Fork {
        /// Echoed in the answer.
        serial: u32,
    },
    /// A connection is to become a socket of the kernel's that any process can use. Of a session or
    /// an heir (answered by `Ticket` or `Denied`).
    Pass {
        /// Echoed in the answer.
        serial: u32,
        /// The connection's endpoint, of the session that opened it.
        endpoint: u32,
        /// The program made a socket of IPv6: addresses of IPv4 are told as mapped ones.
        v6: bool,
    },
    /// An heir has closed an inherited connection. Not answered.
    Release {
        /// The connection's endpoint.
        endpoint: u32,
    },
    /// The relay has made what a `Serve` asked for: the holders' end comes along.
    Served {
        /// From the `Serve`.
        pass: u64,
        /// Errno of what failed, without a descriptor; 0 for none.
        errno: i32,
    },
    /// Opens a raw endpoint (answered by `RawGranted` or `Denied`). A packet socket may come along,
    /// which entitles to what its holder can do with the kernel.
    OpenRaw {
        /// Echoed in the answer.
        serial: u32,
        /// Context of the endpoint.
        context: u16,
        /// Names of ports, or of their interfaces; the only one when empty.
        ports: Vec<String>,
        /// Sizes of its rings.
        sizes: RingSizes,
        /// Which frames it sees, in classic BPF; all when empty.
        filter: Vec<FilterInstruction>,
        /// What it sees.
        wants: RawWants,
    },
    /// Open a message endpoint whose number is the port of the bound kernel UDP socket that comes
    /// along. Of a session with [`Role::Messages`].
    BindMessages {
        /// Echoed in the answer.
        serial: u32,
        /// Context of the endpoint.
        context: u16,
        /// The job's key; without one the endpoint speaks to others of this engine only.
        key: Option<[u8; 16]>,
    },
    /// Asks for registered memory. Of a session (answered by `Registered` or `Denied`).
    Register {
        /// Echoed in the answer.
        serial: u32,
        /// Its size; rounded up to whole pages.
        bytes: u64,
    },
    /// The session uses a registered memory no more: nothing new may name it. It lasts until what has
    /// been sent from it and received into it is done. Not answered.
    Unregister {
        /// Its number.
        number: u16,
    },
}

/// Which frames a raw endpoint sees, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RawWants {
    /// Copies of what its ports receive.
    pub received: bool,
    /// Copies of what its ports send, but for its own frames.
    pub sent: bool,
    /// A [`Meta`](crate::raw::Meta) before each frame.
    pub meta: bool,
    /// What its filter keeps comes to it alone, instead of to stack and kernel.
    pub take: bool,
    /// Of what its ports receive, it sees or takes frames of this EtherType alone. Taking from a port that
    /// shares its interface with the kernel needs it.
    pub ethertype: Option<u16>,
}

/// An instruction of classic BPF, as `struct sock_filter` of linux/filter.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterInstruction {
    /// What it does.
    pub code: u16,
    /// Instructions to skip when a condition holds.
    pub jt: u8,
    /// Instructions to skip when it does not.
    pub jf: u8,
    /// Its constant.
    pub k: u32,
}

/// A port as a raw endpoint uses it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RawPort {
    /// The port's name.
    pub name: String,
    /// The engine's link address there.
    pub mac: [u8; 6],
    /// Largest IP packet.
    pub mtu: u16,
}

/// How long a listener is left to the kernel after [`ToEngine::LeaveListener`].
pub const LEFT_FOR: std::time::Duration = std::time::Duration::from_secs(15);

/// What a control connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// A program's session: gets a region.
    Session,
    /// The same for messages: a region with few endpoints.
    Messages,
    /// The command line: asks questions only.
    Observer,
    /// A program without a session, which says what listeners it has. It is not welcomed in words.
    Bystander,
    /// The engine's own relay, which gets a session; of the connection that the engine made for it.
    Relay,
}

/// From the engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromEngine {
    /// Refusal of a `Hello`, as a sentence. Its encoding never changes.
    Refused {
        /// The engine's contract version.
        contract: u32,
        /// Why, and what to do.
        reason: String,
    },
    /// A session is granted. Descriptors: the region, then for each lane (context-major) the read
    /// end of the client's wake pipe and the write end of the engine's.
    Welcome {
        /// Layout of the region.
        geometry: Geometry,
        /// What the engine can reach.
        interfaces: Vec<InterfaceInfo>,
        /// Which remote addresses are to be reached through the engine; see [`accelerates`].
        remotes: Vec<RemoteRule>,
    },
    /// An observer is let in.
    Observing,
    /// The endpoint of a `Listen` or `BindUdp`, or the token of a `BindTcp`.
    Granted {
        /// From the request.
        serial: u32,
        /// One endpoint for each worker; for `BindTcp` one token.
        endpoints: Vec<u32>,
        /// The local address as the engine understood it.
        local: SocketAddr,
    },
    /// A `Listen`, `BindUdp` or `BindTcp` is refused.
    Denied {
        /// From the request.
        serial: u32,
        /// Nearest errno.
        errno: i32,
        /// Why, and what to do.
        reason: String,
    },
    /// Counters by name, in the order of the statistics page.
    Stats {
        /// Name and value.
        counters: Vec<(String, u64)>,
    },
    /// Sockets; `more` when another message follows.
    Sockets {
        /// One line each.
        sockets: Vec<SocketInfo>,
        /// Whether another message follows.
        more: bool,
    },
    /// A `Capture` has begun or been refused.
    Capturing {
        /// Why not, if not.
        refused: Option<String>,
    },
    /// The engine stays, or was not on trial.
    Confirmed {
        /// Why not, if not.
        refused: Option<String>,
    },
    /// The configuration leaves this user's programs to the kernel.
    NotServed,
    /// What the engine can reach now.
    Interfaces {
        /// From the question.
        serial: u32,
        /// As in `Welcome`.
        interfaces: Vec<InterfaceInfo>,
    },
    /// What some programs have left to the kernel.
    Census {
        /// Those that have left anything.
        programs: Vec<ProgramCensus>,
        /// What to ask for next, if there is more.
        next: Option<u64>,
    },
    /// The endpoints of an `OpenRaw`, one for each worker; a memfd of rings for each comes along.
    RawGranted {
        /// From the request.
        serial: u32,
        /// One for each worker.
        endpoints: Vec<u32>,
        /// Sizes of the rings.
        sizes: RingSizes,
        /// Its ports, in the order of their numbers.
        ports: Vec<RawPort>,
    },
    /// The child's control connection comes along. As long as a copy of it is open, and until they are
    /// released, the connections that were open at the fork stay open.
    Inherited {
        /// From the `Fork`.
        serial: u32,
    },
    /// The holders' end of a relayed connection comes along: a TCP socket of the kernel's.
    Ticket {
        /// From the `Pass`.
        serial: u32,
        /// No holder has had it before: its options are those of a new socket.
        is_fresh: bool,
    },
    /// To the relay: a connection is an endpoint of its session from now on, and it is to make the
    /// kernel's sockets for it (answered by `Served`).
    Serve {
        /// Names the connection.
        pass: u64,
        /// The endpoint.
        endpoint: u32,
        /// The connection's own address.
        local: SocketAddr,
        /// The peer's.
        remote: SocketAddr,
        /// Its holders have said that they write no more.
        is_shut: bool,
        /// From the `Pass`.
        v6: bool,
    },
    /// The registered memory comes along: a memfd.
    Registered {
        /// From the `Register`.
        serial: u32,
        /// By which spans name it, in the upper 16 bits of their offsets.
        number: u16,
        /// Its size.
        bytes: u64,
    },
}

/// Sessions looked at for one [`FromEngine::Census`], so that it fits a message.
pub const CENSUS_SESSIONS: usize = 16;

/// What a program has left to the kernel since it started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramCensus {
    /// The program's name.
    pub program: String,
    /// Its process; 0 in a pid namespace that the engine does not see.
    pub pid: i32,
    /// Its user.
    pub uid: u32,
    /// A line's four words of identity, and its count.
    pub lines: Vec<[u64; 5]>,
}

impl ProgramCensus {
    /// A line as it is told.
    pub fn words_of(line: &CensusLine) -> [u64; 5] {
        let [head, low, high, end] = line.subject.encode();
        [head, low, high, end, line.count]
    }

    /// The lines, as far as they can be read.
    pub fn read(&self) -> impl Iterator<Item = CensusLine> {
        self.lines.iter().filter_map(|&[head, low, high, end, count]| {
            let subject = Subject::decode([head, low, high, end])?;
            Some(CensusLine { subject, count })
        })
    }
}

/// Whether the remote addresses of a network may be accelerated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteRule {
    /// The network's first address.
    pub network: IpAddr,
    /// Bits of it that count.
    pub prefix: u8,
    /// Whether the engine serves it; otherwise the kernel does.
    pub accelerated: bool,
}

impl RemoteRule {
    /// Whether an address lies in the network.
    pub fn covers(&self, address: IpAddr) -> bool {
        let shift = |width: u32| width.saturating_sub(u32::from(self.prefix));
        match (self.network, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (own.to_bits() ^ other.to_bits()).checked_shr(shift(32)).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                (own.to_bits() ^ other.to_bits()).checked_shr(shift(128)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// Whether a remote address may be accelerated: the rule with the longest prefix that covers it
/// decides, and without one it may.
pub fn accelerates(rules: &[RemoteRule], address: IpAddr) -> bool {
    let address = address.to_canonical();
    let covering = rules.iter().filter(|rule| rule.covers(address));
    covering.max_by_key(|rule| rule.prefix).is_none_or(|rule| rule.accelerated)
}

/// Layout of a region; both sides keep it privately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Geometry {
    /// Size of the whole region.
    pub region_bytes: u64,
    /// Contexts.
    pub context_count: u16,
    /// Lanes in each context = workers of the engine.
    pub worker_count: u16,
    /// Slots of each request and reply ring.
    pub request_slots: u32,
    /// Slots of each stock ring.
    pub stock_slots: u32,
    /// Endpoint areas.
    pub endpoint_capacity: u32,
    /// Descriptors in each endpoint's send queue.
    pub send_slots: u32,
    /// Descriptors in each endpoint's receive queue.
    pub receive_slots: u32,
    /// Size of a buffer, a power of two.
    pub buffer_bytes: u32,
    /// Buffers in the region.
    pub buffer_count: u32,
}

/// An interface of the engine, for the client's decision what to accelerate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceInfo {
    /// The port's name.
    pub name: String,
    /// Address and prefix length.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Whether IPv4 destinations off the link are reachable through it; of IPv6, a way of prefix 0
    /// among `routes` says so.
    pub has_gateway: bool,
    /// Largest IP packet.
    pub mtu: u16,
    /// Routes of the kernel that shares the interface; the longest that fits says whether a
    /// destination is reached through it.
    pub routes: Vec<Way>,
    /// Whether a kernel has the same addresses, so that programs reach them through it.
    pub shared: bool,
    /// The kernel's number of the interface that the port lies on; 0 where there is none.
    pub kernel_index: u32,
}

/// Where a network is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    /// First address.
    pub network: IpAddr,
    /// Bits of it that all addresses share.
    pub prefix: u8,
    /// Through the interface, or through another one of the kernel's (or nowhere).
    pub is_here: bool,
}

/// [`SocketInfo::protocol`] of a message endpoint.
pub const MESSAGE_ENDPOINT: &str = "msg";

/// [`SocketInfo::protocol`] of what joins two hosts of a job.
pub const ASSOCIATION: &str = "assoc";

/// A socket of the engine, for `outboard ss`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketInfo {
    /// `tcp`, `udp`, [`MESSAGE_ENDPOINT`] or [`ASSOCIATION`].
    pub protocol: String,
    /// As ss prints it.
    pub state: String,
    /// Local address.
    pub local: SocketAddr,
    /// Remote address, if any.
    pub remote: Option<SocketAddr>,
    /// Bytes received and not read (listeners: connections waiting; message endpoints: unexpected messages;
    /// associations: messages on their way in, or unexpected).
    pub receive_queue: u64,
    /// Bytes sent and not acknowledged (listeners: the backlog; message endpoints and associations: sends
    /// that have not ended).
    pub send_queue: u64,
    /// Program and process id.
    pub program: String,
    /// Process id of the session, as the kernel vouches.
    pub pid: i32,
    /// User id of the session.
    pub uid: u32,
    /// Congestion window, srtt and the like, as `name:value`.
    pub details: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_decides_about_a_remote_address() {
        let rule = |network: &str, prefix, accelerated| RemoteRule {
            network: network.parse().expect("an address"),
            prefix,
            accelerated,
        };
        let rules = [
            rule("0.0.0.0", 0, false),
            rule("10.0.0.0", 8, true),
            rule("10.1.0.0", 16, false),
            rule("10.1.2.3", 32, true),
            rule("fd00::", 8, false),
        ];
        for (address, expected) in [
            ("10.9.9.9", true),
            ("10.1.9.9", false),
            ("10.1.2.3", true),
            ("::ffff:10.1.9.9", false),
            ("192.0.2.1", false),
            ("fd00::1", false),
            ("2001:db8::1", true),
        ] {
            let address: IpAddr = address.parse().expect("an address");
            assert_eq!(accelerates(&rules, address), expected, "{address}");
            assert!(accelerates(&[], address));
        }
    }
}
