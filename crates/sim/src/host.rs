//! A host: an engine's worker on the simulated link, and its programs.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use client::{Endpoint, Session};
use engine::control::exchange::{Answer, Command, SessionKey, Shown};
use engine::session::{SessionSeed, SessionWho};
use engine::stats::Counters;
use engine::{Activity, Cidr, Limits, PortSetup, TcpSettings, Worker, WorkerConfig};
use port::Offloads;
use shm::control::InterfaceInfo;
use shm::region::Region;
use stack::api::{Instant, Ipv6Mode};

use crate::adversary;
use crate::contexts::Contexts;
use crate::network::mac_of;
use crate::port::{SimPort, Wires, locked};
use crate::program::{Program, address_of, datagram_address, stream_address};
use crate::random::Random;
use crate::swarm::{HostOptions, SECOND, Swarm};
use crate::violation::Violation;

/// Nanoseconds that a dead program's connections have to deliver.
pub const LINGER_NS: u64 = 20 * SECOND;

/// Turns that a client may wait for an answer.
const TURNS_PER_CALL: u64 = 10_000;

/// Bits of the link's prefix.
fn prefix_of(v6: bool) -> u8 {
    if v6 { 64 } else { 24 }
}

/// A host.
pub struct Host {
    number: usize,
    v6: bool,
    worker: Arc<Mutex<Worker>>,
    clock: Arc<AtomicU64>,
    /// The port's other side.
    pub wires: Arc<Mutex<Wires>>,
    counters: Arc<Counters>,
    /// Its programs.
    pub programs: Vec<Program>,
    next_key: u64,
    mtu: u16,
    backlog: u32,
    limits: Limits,
    /// Does nothing until then.
    pub stalled_until: u64,
    /// Takes a turn at this time at the latest.
    pub turn_at: u64,
}

impl Host {
    /// A host of a run, without programs.
    pub fn new(seed: u64, number: usize, swarm: &Swarm, now: u64) -> Self {
        let options = swarm.hosts[number];
        let limits = Limits {
            contexts: swarm.contexts,
            endpoints: 64,
            request_slots: 16,
            stock_slots: 32,
            stock_target: 8,
            send_slots: options.slots,
            receive_slots: options.slots,
            buffer_bytes: options.buffer_bytes,
            buffers: options.buffers,
            spans: options.spans,
            stash_connection_bytes: options.stash_bytes,
            stash_total_bytes: 4 * options.stash_bytes,
            linger_ns: LINGER_NS,
            sockets: options.connections,
            ..Limits::default()
        };
        let stack_limits = stack::Limits {
            connections: options.connections,
            time_waits: options.time_waits,
            listeners: 8,
            syn_queue: options.syn_queue,
            accept_queue: 32,
            udp_sockets: 8,
            neighbors: options.neighbors,
            reassemblies: 4,
            reassemblies_per_source: 2,
            reassembly_bytes: 64 << 10,
            path_mtus: 8,
            fast_open_servers: 4,
            own_bytes: 512 * 1024,
            groups: 16,
        };
        let offloads = Offloads {
            tx_checksum: options.checksum_offload,
            tso4: options.tso,
            tso6: options.tso && swarm.v6,
            uso: false,
            rx_coalesce: options.coalesce,
        };
        let wires = Arc::new(Mutex::new(Wires {
            tx_room: options.tx_room,
            drops: options.drops,
            rx_room: options.rx_room,
            ..Wires::default()
        }));
        let port = SimPort::new(number, mac_of(number), swarm.mtu, offloads, Arc::clone(&wires));
        let setup = PortSetup {
            port: Box::new(port),
            addresses: vec![Cidr {
                address: address_of(number, swarm.v6),
                prefix: prefix_of(swarm.v6),
            }],
            gateway: Some(adversary::address(swarm.v6)).filter(|_| swarm.adversary),
            routes: Vec::new(),
            ipv6: if swarm.v6 { Ipv6Mode::Static } else { Ipv6Mode::Off },
        };
        let mut random = Random::new(seed, 100 + number as u64);
        let mut key = [0; 32];
        for part in key.chunks_exact_mut(8) {
            part.copy_from_slice(&random.any().to_le_bytes());
        }
        let counters = Arc::new(Counters::default());
        let HostOptions { timestamps, syn_cookies, user_timeouts: user_timeout_option, .. } =
            options;
        let tcp =
            TcpSettings { timestamps, syn_cookies, user_timeout_option, ..Default::default() };
        let config = WorkerConfig { limits, stack_limits, tcp, seed: key, index: 0 };
        let worker = Worker::new(config, vec![setup], Arc::clone(&counters), Instant(now))
            .expect("one port is few enough");
        Self {
            number,
            v6: swarm.v6,
            worker: Arc::new(Mutex::new(worker)),
            clock: Arc::new(AtomicU64::new(now)),
            wires,
            counters,
            programs: Vec::new(),
            next_key: 1,
            mtu: swarm.mtu,
            backlog: options.backlog,
            limits,
            stalled_until: 0,
            turn_at: now,
        }
    }

    /// Starts a program in place `number`, also again.
    pub fn start(&mut self, seed: u64, number: usize, now: u64) -> Result<(), Violation> {
        self.set_time(now);
        let key = SessionKey(self.next_key);
        self.next_key += 1;
        let geometry = Worker::geometry(&self.limits);
        let region = Region::private(geometry).map_err(|error| error.to_string())?;
        let geometry = *region.geometry();
        let region = Arc::new(region);
        let who = SessionWho { program: format!("{}.{number}", self.number), pid: 1, uid: 0 };
        let session = SessionSeed { key, geometry, region: Arc::clone(&region), pipes: None, who };
        self.command(Command::Attach(Box::new(session)), now);
        let interface = InterfaceInfo {
            name: format!("sim:{}", self.number),
            addresses: vec![(self.address(), prefix_of(self.v6))],
            has_gateway: false,
            routes: Vec::new(),
            mtu: self.mtu,
            shared: false,
            kernel_index: 0,
        };
        let (worker, clock) = (Arc::clone(&self.worker), Arc::clone(&self.clock));
        let turns = AtomicU64::new(0);
        let last = AtomicU64::new(0);
        let pump = move || {
            let now = clock.load(Ordering::Relaxed);
            if last.swap(now, Ordering::Relaxed) != now {
                turns.store(0, Ordering::Relaxed);
            }
            let count = turns.fetch_add(1, Ordering::Relaxed);
            assert!(count < TURNS_PER_CALL, "the engine does not answer a client's request");
            locked(&worker).turn(Instant(now));
        };
        let pump: Arc<dyn Fn() + Send + Sync> = Arc::new(pump);
        let attach = |context| {
            let interfaces = vec![interface.clone()];
            Session::in_process(Arc::clone(&region), context, interfaces, Arc::clone(&pump))
        };
        let sessions: Result<Vec<_>, _> = (0..self.limits.contexts).map(attach).collect();
        let sessions = sessions.map_err(|error| error.to_string())?;
        let at = (self.number, number);
        let who = key.0 << 16 | (at.0 as u64) << 8 | at.1 as u64;
        let random = Random::new(seed, who);
        let mut contexts = Contexts::new(sessions, Random::new(seed, 1 << 48 | who));
        let (context, client) = contexts.any();
        let listener = self.listen(client, (key, context), stream_address(at, self.v6), now)?;
        let (context, client) = contexts.any();
        let datagram = self.bind(client, (key, context), datagram_address(at, self.v6), now)?;
        let program = Program::new(at, (key, region), contexts, (listener, datagram), random);
        match self.programs.get_mut(number) {
            Some(place) => *place = program,
            None => self.programs.push(program),
        }
        Ok(())
    }

    fn listen(
        &mut self,
        client: &Arc<Session>,
        (session, context): (SessionKey, u16),
        local: SocketAddr,
        now: u64,
    ) -> Result<Endpoint, Violation> {
        let shown = Shown::alone(local, u64::from(local.port()));
        let (serial, backlog, beside) = (0, self.backlog, Vec::new());
        let listen = Command::Listen { session, serial, context, backlog, shown, beside };
        let index = self.ask(listen, now)?;
        let adopted = client.adopt(client::Kind::Listener, index, local);
        adopted.map_err(|error| error.to_string().into())
    }

    fn bind(
        &mut self,
        client: &Arc<Session>,
        (session, context): (SessionKey, u16),
        local: SocketAddr,
        now: u64,
    ) -> Result<Endpoint, Violation> {
        let shown = Shown::alone(local, u64::from(local.port()));
        let index = self.ask(Command::BindUdp { session, serial: 0, context, shown }, now)?;
        let adopted = client.adopt(client::Kind::Datagram, index, local);
        adopted.map_err(|error| error.to_string().into())
    }

    /// Lets a program connect from `port`; gives the token.
    pub fn authorize(
        &mut self,
        session: SessionKey,
        port: u16,
        now: u64,
    ) -> Result<u32, Violation> {
        let local = SocketAddr::new(self.address(), port);
        let shown = Shown::alone(local, u64::from(port));
        self.ask(Command::BindTcp { session, serial: 0, shown }, now)
    }

    fn ask(&mut self, command: Command, now: u64) -> Result<u32, Violation> {
        let mut worker = locked(&self.worker);
        worker.on_command(command, Instant(now));
        let answers: Vec<Answer> = worker.take_answers().collect();
        answers
            .into_iter()
            .find_map(|answer| match answer {
                Answer::Granted { endpoint, .. } => Some(Ok(endpoint)),
                Answer::Denied { reason, .. } => Some(Err(reason.into())),
                _ => None,
            })
            .unwrap_or_else(|| Err("the worker gave no answer".into()))
    }

    /// Tells the worker something.
    pub fn command(&mut self, command: Command, now: u64) {
        locked(&self.worker).on_command(command, Instant(now));
        self.turn_at = now;
    }

    /// The time that programs' calls happen at.
    pub fn set_time(&self, now: u64) {
        self.clock.store(now, Ordering::Relaxed);
    }

    /// A turn; the sessions that broke the contract in it.
    pub fn turn(&mut self, now: u64) -> (Activity, Vec<SessionKey>) {
        let mut worker = locked(&self.worker);
        let activity = worker.turn(Instant(now));
        let breached = worker
            .take_answers()
            .filter_map(|answer| match answer {
                Answer::Breached(key, _) => Some(key),
                _ => None,
            })
            .collect();
        let deadline = worker.next_deadline().map_or(u64::MAX, |deadline| deadline.0);
        self.turn_at = deadline.max(now + 1_000);
        if activity.more {
            self.turn_at = now + 1_000;
        }
        (activity, breached)
    }

    /// How a session broke the contract, as far as is still known.
    pub fn breach(&self, key: SessionKey) -> String {
        locked(&self.worker).breach(key).unwrap_or_else(|| "forgotten".to_string())
    }

    /// Whether frames wait.
    pub fn has_frames(&self) -> bool {
        !locked(&self.wires).arrived.is_empty()
    }

    /// Checks what must hold between turns.
    pub fn check(&self) -> Result<(), Violation> {
        locked(&self.worker).check_conservation().map_err(|error| error.to_string().into())
    }

    /// Exchanges the stack for an import of its export.
    pub fn renew(&self) -> Result<usize, Violation> {
        locked(&self.worker).renew_stack().map_err(|error| error.to_string().into())
    }

    /// Sessions whose memory is not returned yet.
    pub fn session_count(&self) -> usize {
        locked(&self.worker).session_count()
    }

    /// Sockets that the stack still has.
    pub fn sockets(&self) -> Vec<String> {
        let worker = locked(&self.worker);
        worker.stack().sockets().map(|socket| format!("{socket:?}")).collect()
    }

    /// Names and values of all counters.
    pub fn counters(&self) -> Vec<(String, u64)> {
        let worker = locked(&self.worker);
        worker.copy_counters();
        let mut all = self.counters.read();
        worker.stack().each_counter(|name, value| all.push((name.to_string(), value)));
        all
    }

    /// Whether there were more handshakes than its listeners could keep.
    pub fn was_crowded(&self) -> bool {
        let signs = [
            "tcp_half_open_evicted",
            "tcp_syn_cookies_received",
            "stack_drops{reason=tcp_accept_queue_full}",
        ];
        self.counters().iter().any(|(name, count)| signs.contains(&name.as_str()) && *count > 0)
    }

    /// Whether segments were refused for want of a SYN cookie.
    pub fn missed_cookies(&self) -> bool {
        self.counters().iter().any(|(name, count)| name == "tcp_syn_cookies_failed" && *count > 0)
    }

    /// Its address.
    pub fn address(&self) -> IpAddr {
        address_of(self.number, self.v6)
    }
}
