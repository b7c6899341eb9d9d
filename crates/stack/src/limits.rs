//! Bounds of the stack's tables.

use serde::{Deserialize, Serialize};

/// Bounds of every table of the stack. Memory for them is taken when the stack is made, unless it
/// says otherwise.
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
    /// Datagrams being reassembled at a time; the oldest gives way to a new one (counter
    /// `reassembly_evictions`).
    pub reassemblies: u32,
    /// Datagrams being reassembled from one source at a time.
    pub reassemblies_per_source: u32,
    /// Bytes of datagrams being reassembled, in chunks of 2 KiB, of which one source has at most a
    /// fourth. Their memory is taken as they come (Linux's `ipfrag_high_thresh`).
    pub reassembly_bytes: u32,
    /// Destinations whose path MTU is remembered (counter `path_mtu_evictions`).
    pub path_mtus: u32,
    /// Servers whose Fast Open cookies are remembered (counter `tcp_fast_open_evictions`).
    pub fast_open_servers: u32,
    /// Bytes of answers (ICMP) that wait to be transmitted, and of datagrams that wait for their next
    /// hop: those of one have a quarter of it at most, all together half.
    pub own_bytes: u32,
    /// Multicast groups that sockets listen to, each interface's by itself (counter `groups_limited`); a
    /// quarter more may be those of the stack's own addresses.
    pub groups: u32,
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
            reassemblies: 1024,
            reassemblies_per_source: 64,
            reassembly_bytes: 4 << 20,
            path_mtus: 4096,
            fast_open_servers: 1024,
            own_bytes: 1 << 20,
            groups: 1024,
        }
    }
}
