//! What a run is like: every option is drawn from the seed, whole features at a time.

use crate::random::Random;

/// Nanoseconds in a microsecond.
pub const US: u64 = 1_000;
/// Nanoseconds in a millisecond.
pub const MS: u64 = 1_000_000;
/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;
/// Most contexts that a program uses.
const CONTEXTS_MAX: u64 = 3;

/// Faults of the link, in ten-thousandths of the frames.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkFaults {
    /// Lost.
    pub loss: u64,
    /// Delivered twice.
    pub duplicate: u64,
    /// Delivered late, behind others.
    pub reorder: u64,
    /// Delivered with a bit flipped.
    pub corrupt: u64,
}

/// What a host's port and engine are like.
#[derive(Clone, Copy, Debug)]
pub struct HostOptions {
    /// Segmentation is left to the port.
    pub tso: bool,
    /// Checksums are left to the port, and arrive partial.
    pub checksum_offload: bool,
    /// Segments arrive coalesced as they were sent.
    pub coalesce: bool,
    /// Frames that the port takes before it is full.
    pub tx_room: usize,
    /// A full port drops frames and says so, instead of holding them back; chosen by the seed's
    /// number, as for IPv6.
    pub drops: bool,
    /// Frames that wait to be received before more are lost.
    pub rx_room: usize,
    /// Buffers of a session.
    pub buffers: u32,
    /// Bytes of a buffer.
    pub buffer_bytes: u32,
    /// Slots of the send and receive queues.
    pub slots: u32,
    /// Spans of a session.
    pub spans: u32,
    /// Bytes kept for a connection that is not accepted yet.
    pub stash_bytes: usize,
    /// Connections of the stack.
    pub connections: u32,
    /// Half-open connections of a listener.
    pub syn_queue: u32,
    /// TIME-WAITs.
    pub time_waits: u32,
    /// As given to listen(2).
    pub backlog: u32,
    /// Neighbours remembered.
    pub neighbors: u32,
    /// TCP has timestamps.
    pub timestamps: bool,
    /// TCP answers with cookies when a SYN queue is full.
    pub syn_cookies: bool,
    /// It speaks the User Timeout Option.
    pub user_timeouts: bool,
}

/// Every option of a run.
#[derive(Clone, Debug)]
pub struct Swarm {
    /// Faults of the link while they are on.
    pub link: LinkFaults,
    /// One way, nanoseconds.
    pub delay_ns: u64,
    /// Largest IP packet.
    pub mtu: u16,
    /// The hosts.
    pub hosts: Vec<HostOptions>,
    /// Programs of each host.
    pub programs: usize,
    /// Contexts that each program uses: sockets and calls are spread over them.
    pub contexts: u16,
    /// Connections to open in all.
    pub connections: usize,
    /// Most bytes of one direction of a connection.
    pub stream_bytes: u64,
    /// Datagrams to send in all.
    pub datagrams: usize,
    /// Most payload bytes of a datagram.
    pub datagram_bytes: u64,
    /// Nanoseconds until the faults end.
    pub faults_ns: u64,
    /// Programs read late and little.
    pub slow_reader: bool,
    /// Programs write little at a time.
    pub small_writes: bool,
    /// Many connections one after the other between the same two programs.
    pub churn: bool,
    /// Events are lost now and then; programs look again by themselves.
    pub lost_events: bool,
    /// A program dies in the middle of things, and is started again.
    pub kill: bool,
    /// A program writes garbage over its region.
    pub scribble: bool,
    /// The stack is exported and imported in the middle of things.
    pub renew: bool,
    /// Time jumps forward.
    pub clock_jump: bool,
    /// An engine does nothing for a while: doorbells are heard late.
    pub stall: bool,
    /// The link is cut for a while.
    pub partition: bool,
    /// Somebody on the link replays frames and sends what nobody should.
    pub adversary: bool,
    /// Both ends open the same connection at the same time.
    pub simultaneous: bool,
    /// Now and then all frames wait on the link for so long that senders believe them lost.
    pub hold: bool,
    /// Everybody speaks IPv6: half of the seeds, chosen by their number, so that the others stay
    /// what they were before there was IPv6.
    pub v6: bool,
}

impl Swarm {
    /// The same without faults, with listeners whose queues overflow at once.
    pub fn flooded(mut self) -> Self {
        for host in &mut self.hosts {
            *host = HostOptions {
                tx_room: 512,
                drops: false,
                rx_room: 2048,
                buffers: 256,
                spans: 1024,
                stash_bytes: 16384,
                connections: 64,
                syn_queue: 4,
                time_waits: 64,
                backlog: 16,
                neighbors: 16,
                syn_cookies: true,
                ..*host
            };
        }
        Self {
            link: LinkFaults::default(),
            connections: 12,
            datagrams: 0,
            churn: false,
            lost_events: false,
            kill: false,
            scribble: false,
            renew: false,
            clock_jump: false,
            stall: false,
            partition: false,
            // Of whom only the address is wanted: the way to where the SYNs seem to come from.
            adversary: true,
            simultaneous: false,
            hold: false,
            ..self
        }
    }

    /// The options of a seed.
    pub fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed, 1);
        let r = &mut random;
        let faulty = r.chance(5, 6);
        let part = |r: &mut Random, most: u64| {
            if faulty && r.chance(1, 2) {
                r.pick(&[most / 30, most / 10, most / 4, most])
            } else {
                0
            }
        };
        let link = LinkFaults {
            loss: part(r, 2000),
            duplicate: part(r, 2000),
            reorder: part(r, 4000),
            corrupt: part(r, 1000),
        };
        let hosts = if r.chance(1, 4) { 3 } else { 2 };
        let tiny_rings = r.chance(1, 3);
        let tiny_pools = r.chance(1, 3);
        let tiny_tables = r.chance(1, 4);
        let mtu = r.pick(&[1500, 1500, 1500, 576, 1280, 4000, 9000]);
        let churn = r.chance(1, 6);
        let slow_reader = r.chance(1, 3);
        let hosts = (0..hosts)
            .map(|_| HostOptions {
                tso: r.chance(1, 2),
                checksum_offload: r.chance(1, 2),
                coalesce: r.chance(1, 2),
                tx_room: if tiny_rings { r.between(1, 4) as usize } else { 512 },
                drops: tiny_rings && seed % 4 < 2,
                rx_room: if tiny_rings { r.between(3, 24) as usize } else { 512 },
                buffers: if tiny_pools { r.between(24, 48) as u32 } else { 256 },
                buffer_bytes: r.pick(&[1024, 2048, 8192]),
                slots: r.pick(&[8, 16, 64]),
                spans: if tiny_pools { r.between(16, 64) as u32 } else { 1024 },
                stash_bytes: if tiny_pools { 4096 } else { 16384 },
                connections: if tiny_tables { r.between(4, 12) as u32 } else { 64 },
                syn_queue: if tiny_tables { r.between(1, 3) as u32 } else { 32 },
                time_waits: if tiny_tables { r.between(1, 4) as u32 } else { 64 },
                backlog: if tiny_tables { r.between(0, 2) as u32 } else { 16 },
                neighbors: if tiny_tables { 2 + (seed % 3) as u32 } else { 16 },
                timestamps: true,
                syn_cookies: true,
                user_timeouts: false,
            })
            .collect();
        let mut swarm = Self {
            link,
            delay_ns: r.pick(&[5 * US, 50 * US, MS, 20 * MS]),
            mtu,
            hosts,
            programs: r.between(1, 2) as usize,
            // With random numbers of their own, so that the rest of a run stays what it was.
            contexts: Random::new(seed, 6).between(1, CONTEXTS_MAX) as u16,
            connections: if churn { 24 } else { r.between(1, 8) as usize },
            stream_bytes: if churn { 2000 } else { r.pick(&[3_000, 40_000, 200_000, 600_000]) },
            datagrams: if r.chance(1, 2) { r.between(1, 40) as usize } else { 0 },
            datagram_bytes: r.pick(&[1000, 5_000, 20_000]),
            faults_ns: r.between(100 * MS, 4 * SECOND),
            slow_reader,
            small_writes: r.chance(1, 5),
            churn,
            lost_events: r.chance(1, 6),
            kill: r.chance(1, 6),
            scribble: r.chance(1, 8),
            renew: r.chance(1, 6),
            clock_jump: r.chance(1, 8),
            stall: r.chance(1, 6),
            partition: r.chance(1, 8),
            adversary: r.chance(1, 5),
            simultaneous: r.chance(1, 10),
            // What came later is drawn last, so that the rest stays what it was.
            hold: r.chance(1, 3),
            v6: matches!(seed % 8, 0 | 1 | 3 | 5),
        };
        if swarm.v6 {
            // Every link has room for that (RFC 8200, section 5).
            swarm.mtu = swarm.mtu.max(1280);
        }
        for host in &mut swarm.hosts {
            host.timestamps = r.chance(1, 2);
        }
        for host in &mut swarm.hosts {
            host.syn_cookies = r.chance(2, 3);
        }
        for host in &mut swarm.hosts {
            host.user_timeouts = r.chance(1, 2);
        }
        swarm
    }
}
