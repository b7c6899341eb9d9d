//! Two stacks joined to each other: a host of clients and a host that echoes.

use std::net::SocketAddr;
use std::ops::Range;

use stack::api::{
    DatagramMeta, Instant, InterfaceConfig, InterfaceIndex, Ipv6Mode, Owner, Payload, RxChecksum,
    RxFrame, RxFrameMeta, Sink, SocketId, SocketKind, TcpConnect, TcpOptions,
};
use stack::drops::DropReason;
use stack::{Config, HEADER_MAX, Limits, Stack};

use super::{address, addresses_for};
use crate::network::mac_of;
use crate::violation::Violation;

/// The host that connects.
pub const CLIENT: usize = 0;
/// The host that answers.
pub const SERVER: usize = 1;
/// Ports that clients connect from.
pub const CLIENT_PORTS: (u16, u16) = (1024, 65535);
/// What a frame takes from one host to the other, and how long a host waits between turns.
pub const TICK_NS: u64 = 50_000;

const SERVER_PORT: u16 = 7;
const PORT: InterfaceIndex = InterfaceIndex(0);
/// Frames that one host sends before the other has its turn.
const FRAMES_PER_TURN: usize = 4096;

/// So many seconds as nanoseconds.
pub const fn second(count: u64) -> u64 {
    count * 1_000_000_000
}

/// What is received must be what the other side sent: at each offset of a stream the same byte.
fn byte_at(offset: u64) -> u8 {
    (offset % 251) as u8
}

#[derive(Debug, Default)]
struct Checked {
    bytes: u64,
    wrong: u64,
}

impl Sink for Checked {
    fn stream(&mut self, _: SocketId, _: Owner, offset: u64, bytes: &[u8]) -> bool {
        let wrong = (offset..).zip(bytes).filter(|&(at, &byte)| byte != byte_at(at)).count();
        self.wrong += wrong as u64;
        self.bytes += bytes.len() as u64;
        true
    }

    fn datagram(&mut self, _: SocketId, _: Owner, _: &DatagramMeta, _: &[u8]) -> bool {
        false
    }
}

struct Host {
    stack: Stack,
    sink: Checked,
    /// Connections by number: the order in which they were opened, or accepted.
    ids: Vec<SocketId>,
    listener: Option<SocketId>,
}

/// The two.
pub struct Pair {
    hosts: [Host; 2],
    now: u64,
    frames: u64,
    frame: Vec<u8>,
    /// Clients have this as many addresses as their ports ask for.
    addresses: u32,
}

impl Pair {
    /// Two stacks with room for so many connections. `is_tight`: with the smallest queues that
    /// anybody would have, and few ports.
    pub fn new(connections: u32, is_tight: bool) -> Self {
        let addresses = addresses_for(connections);
        let limits = Limits { connections, syn_queue: 4096, ..Limits::default() };
        let tight = Limits { syn_queue: 64, accept_queue: 64, time_waits: 512, ..limits };
        let limits = if is_tight { tight } else { limits };
        let ports = if is_tight { (40_000, 40_599) } else { CLIENT_PORTS };
        let hosts = [CLIENT, SERVER].map(|side| {
            let mut config = Config::new([side as u8 + 1; 32]);
            config.limits = limits;
            config.ephemeral_ports = ports;
            let mut stack = Stack::new(config);
            let own = if side == CLIENT { addresses } else { 1 };
            let added = stack.add_interface(InterfaceConfig {
                mac: mac_of(side),
                mtu: 1500,
                addresses: (0..own).map(|number| address(side, number)).collect(),
                gateway: None,
                routes: Vec::new(),
                shared: None,
                ipv6: Ipv6Mode::Off,
                tso: false,
                tso6: false,
                uso: false,
            });
            assert_eq!(added, Some(PORT), "the first interface of a stack");
            let options = TcpOptions { keepalive: true, ..TcpOptions::default() };
            let listener = (side == SERVER).then(|| {
                let local = SocketAddr::new(address(side, 0).address, SERVER_PORT);
                stack
                    .tcp_listen(local, limits.accept_queue, options, Owner(u64::MAX - 1))
                    .expect("a stack without listeners takes one")
            });
            let ids = Vec::with_capacity(connections as usize);
            Host { stack, sink: Checked::default(), ids, listener }
        });
        Self { hosts, now: 1, frames: 0, frame: Vec::new(), addresses }
    }

    /// Virtual nanoseconds.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Frames so far.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Connections that clients have opened so far.
    pub fn connections(&self) -> u32 {
        self.hosts[CLIENT].ids.len() as u32
    }

    /// Bytes that clients have got back.
    pub fn answered_bytes(&self) -> u64 {
        self.hosts[CLIENT].sink.bytes
    }

    /// Connections that the server has and that have not ended.
    pub fn standing(&self) -> u32 {
        let [client, server] = &self.hosts;
        let of = |host: &Host| host.stack.tcp_census().connections;
        of(client).min(of(server))
    }

    /// Keepalive probes that clients have sent.
    pub fn keepalives(&self) -> u64 {
        self.counter(CLIENT, "tcp_keepalive_probes")
    }

    /// A counter of one of the stacks.
    pub fn counter(&self, side: usize, wanted: &str) -> u64 {
        let mut value = 0;
        self.hosts[side].stack.each_counter(|name, count| {
            if name == wanted {
                value = count;
            }
        });
        value
    }

    /// Handshakes that the listener's queues had no room for.
    pub fn refused(&self) -> u64 {
        let drops = self.hosts[SERVER].stack.counters();
        drops.dropped(DropReason::TcpSynQueueFull)
            + drops.dropped(DropReason::TcpAcceptQueueFull)
            + self.counter(SERVER, "tcp_syn_cookies_sent")
    }

    /// Opens so many connections, and lets them be accepted.
    pub fn connect(&mut self, count: u32) -> Result<(), Violation> {
        let wanted = self.connections() + count;
        self.open(count)?;
        for _ in 0..100_000 {
            if self.hosts[SERVER].ids.len() as u32 >= wanted {
                return Ok(());
            }
            self.step(u64::MAX);
        }
        Err(format!("{} of {wanted} connections were accepted", self.hosts[SERVER].ids.len())
            .into())
    }

    /// Begins to open so many connections.
    pub fn open(&mut self, count: u32) -> Result<(), Violation> {
        let remote = SocketAddr::new(address(SERVER, 0).address, SERVER_PORT);
        let options = TcpOptions { keepalive: true, ..TcpOptions::default() };
        let host = &mut self.hosts[CLIENT];
        for _ in 0..count {
            let number = host.ids.len() as u32;
            let local = SocketAddr::new(address(CLIENT, number % self.addresses).address, 0);
            let owner = Owner(number.into());
            let id = host
                .stack
                .tcp_connect(
                    Instant(self.now),
                    TcpConnect { remote, local: Some(local), options, owner },
                )
                .map_err(|error| format!("connection {number} cannot be opened: {error:?}"))?;
            host.ids.push(id);
        }
        Ok(())
    }

    /// A client asks: so many bytes more than it has been answered.
    pub fn ask(&mut self, connection: u32, bytes: u64) -> Result<(), Violation> {
        let host = &mut self.hosts[CLIENT];
        let failed =
            |error| Violation::from(format!("connection {connection} cannot ask: {error:?}"));
        let id = host.ids[connection as usize];
        let end = host.stack.tcp_levels(id).map_err(failed)?.readable + bytes;
        host.stack.tcp_written(Instant(self.now), id, end).map_err(failed)
    }

    /// One side closes, the other one after it; waits until it is done.
    pub fn close(&mut self, side: usize, connections: Range<u32>) -> Result<(), Violation> {
        let host = &mut self.hosts[side];
        let left = host.stack.tcp_census().connections.saturating_sub(connections.len() as u32);
        for connection in connections {
            let id = host.ids[connection as usize];
            host.stack
                .tcp_close(Instant(self.now), id)
                .map_err(|error| format!("connection {connection} cannot close: {error:?}"))?;
        }
        for _ in 0..100_000 {
            if self.hosts.iter().all(|host| host.stack.tcp_census().connections <= left) {
                return Ok(());
            }
            self.step(u64::MAX);
        }
        Err(format!("{} connections do not end", self.standing() - left).into())
    }

    /// One side closes whatever is open, then the other what is left, and waits until all is gone.
    pub fn end_all(&mut self, first: usize) -> Result<(), Violation> {
        for side in [first, 1 - first] {
            let now = Instant(self.now);
            let Host { stack, ids, .. } = &mut self.hosts[side];
            for id in ids.drain(..) {
                // Most have ended by themselves, once the other side has closed them.
                let _ = stack.tcp_close(now, id);
            }
            self.run_for(second(1));
        }
        for _ in 0..100_000 {
            if self.hosts.iter().all(|host| host.stack.tcp_census().connections == 0) {
                return Ok(());
            }
            self.step(u64::MAX);
        }
        Err(format!("{} connections do not end", self.standing()).into())
    }

    /// Lets so much time pass.
    pub fn run_for(&mut self, ns: u64) {
        let end = self.now + ns;
        while self.now < end {
            self.step(end);
        }
    }

    /// A turn of both hosts; when there is nothing to do, time passes until there is, but no
    /// farther than `until`.
    fn step(&mut self, until: u64) {
        let mut moved = 0;
        for side in [CLIENT, SERVER] {
            while self.hosts[side].stack.on_timers(Instant(self.now)) {}
            self.serve(side);
            moved += self.carry(side);
        }
        let next = self.now + TICK_NS;
        let due = self.hosts.iter().filter_map(|host| host.stack.next_deadline()).min();
        self.now = match due {
            _ if moved > 0 => next,
            Some(due) => due.0.max(next),
            None => until,
        }
        .min(until.max(self.now + 1));
    }

    /// Takes what a stack has to tell.
    fn serve(&mut self, side: usize) {
        let now = Instant(self.now);
        let Host { stack, ids, listener, .. } = &mut self.hosts[side];
        while let Some(event) = stack.poll_event() {
            if event.kind == SocketKind::Listener {
                continue;
            }
            let Ok(levels) = stack.tcp_levels(event.id) else { continue };
            // Failing means that it has ended, which its next event tells.
            let _ = stack.tcp_consumed(now, event.id, levels.readable);
            if side == SERVER {
                let _ = stack.tcp_written(now, event.id, levels.readable);
            }
            if levels.peer_closed || levels.error.is_some() {
                let _ = stack.tcp_close(now, event.id);
            }
        }
        let Some(listener) = *listener else { return };
        while let Ok(Some(accepted)) = stack.tcp_accept(listener) {
            let number = ids.len() as u64;
            let _ = stack.tcp_assign(accepted.id, Owner(number));
            ids.push(accepted.id);
            if let Ok(levels) = stack.tcp_levels(accepted.id)
                && levels.readable > 0
            {
                let _ = stack.tcp_consumed(now, accepted.id, levels.readable);
                let _ = stack.tcp_written(now, accepted.id, levels.readable);
            }
        }
    }

    /// Carries what a stack sends to the other one; how many frames.
    fn carry(&mut self, from: usize) -> usize {
        let now = Instant(self.now);
        let mut header = [0; HEADER_MAX];
        for sent in 0..FRAMES_PER_TURN {
            let Some(transmit) = self.hosts[from].stack.poll_transmit(now, PORT, &mut header)
            else {
                return sent;
            };
            self.frames += 1;
            self.frame.clear();
            self.frame.extend_from_slice(&header[..usize::from(transmit.header_bytes)]);
            match transmit.payload {
                Payload::None => {}
                Payload::Own { start, len } => {
                    let stack = &mut self.hosts[from].stack;
                    self.frame.extend_from_slice(stack.own_bytes(start, len));
                    stack.release_own(start, len);
                }
                Payload::Stream { offset, len, .. } => {
                    self.frame.extend((offset..offset + u64::from(len)).map(byte_at));
                }
            }
            let meta = RxFrameMeta { checksum: RxChecksum::Valid, gso_bytes: None };
            let Host { stack, sink, .. } = &mut self.hosts[1 - from];
            stack.on_frame(now, &RxFrame { interface: PORT, bytes: &self.frame, meta }, sink);
        }
        FRAMES_PER_TURN
    }

    /// Lets TIME-WAIT pass.
    ///
    /// # Errors
    /// When a connection, an entry of a table or a timer is left after that, or bytes were wrong.
    pub fn expect_nothing_left(&mut self) -> Result<(), Violation> {
        self.run_for(second(130));
        for (host, who) in self.hosts.iter().zip(["clients'", "server's"]) {
            let census = host.stack.tcp_census();
            if census != Default::default() || host.sink.wrong > 0 {
                let wrong = host.sink.wrong;
                return Err(
                    format!("at the {who} end {census:?} is left, {wrong} bytes wrong").into()
                );
            }
        }
        Ok(())
    }
}
