//! Two engines joined by a pair of ports, with native message endpoints, in one thread and under
//! virtual time.
#![allow(dead_code)]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use client::Session;
use client::message::{Buffers, Completion, Endpoint, Outcome, Peer};
use engine::control::exchange::{Answer, Command, SessionKey, Shown};
use engine::session::{SessionSeed, SessionWho};
use engine::stats::Counters;
use engine::{Cidr, Limits, PortSetup, Worker, WorkerConfig};
use port::pair::{PairConfig, pair};
use shm::control::{Geometry, InterfaceInfo};
use shm::region::Region;
use stack::api::{Instant, Ipv6Mode};

pub const KEY: Option<[u8; 16]> = Some([7; 16]);

/// Virtual nanoseconds that a round takes.
const ROUND_NS: u64 = 20_000;

pub struct Host {
    pub worker: Arc<Mutex<Worker>>,
    pub counters: Arc<Counters>,
    pub address: std::net::IpAddr,
    clock: Arc<AtomicU64>,
    next_key: u64,
    pub breached: Vec<SessionKey>,
    pub gone: Vec<SessionKey>,
    /// The engine's ends of control sockets.
    sockets: Vec<std::os::fd::OwnedFd>,
}

pub struct Net {
    pub now: u64,
    pub hosts: [Host; 2],
}

/// A program with one session.
pub struct Program {
    pub key: SessionKey,
    pub session: Arc<Session>,
    pub region: Arc<Region>,
    host: usize,
}

pub fn limits() -> Limits {
    Limits {
        endpoints: 64,
        buffers: 512,
        buffer_bytes: 4096,
        send_slots: 256,
        receive_slots: 256,
        stock_slots: 64,
        stock_target: 32,
        ..Limits::default()
    }
}

impl Net {
    pub fn new(mtu: u16) -> Self {
        let (a, b, _link) = pair(&PairConfig { mtu, ..PairConfig::default() });
        let clock = Arc::new(AtomicU64::new(1));
        let host = |port: Box<dyn port::Port>, address: &str, seed: u8| {
            let counters = Arc::new(Counters::default());
            let address: std::net::IpAddr = address.parse().unwrap();
            let setup = PortSetup {
                port,
                addresses: vec![Cidr { address, prefix: 24 }],
                gateway: None,
                routes: Vec::new(),
                ipv6: Ipv6Mode::Off,
            };
            let config = WorkerConfig {
                limits: limits(),
                stack_limits: stack::Limits { connections: 64, ..stack::Limits::default() },
                tcp: engine::TcpSettings::default(),
                seed: [seed; 32],
                index: 0,
            };
            let worker =
                Worker::new(config, vec![setup], Arc::clone(&counters), Instant(1)).unwrap();
            Host {
                worker: Arc::new(Mutex::new(worker)),
                counters,
                address,
                clock: Arc::clone(&clock),
                next_key: 1,
                breached: Vec::new(),
                gone: Vec::new(),
                sockets: Vec::new(),
            }
        };
        let hosts = [host(Box::new(a), "10.0.0.1", 1), host(Box::new(b), "10.0.0.2", 2)];
        Self { now: 1, hosts }
    }

    /// Starts a program on a host.
    pub fn program(&mut self, on: usize) -> Program {
        let host = &mut self.hosts[on];
        let key = SessionKey(host.next_key);
        host.next_key += 1;
        let geometry: Geometry = limits().geometry(1);
        let region = Arc::new(Region::private(geometry).unwrap());
        host.worker.lock().unwrap().attach(SessionSeed {
            key,
            geometry: *region.geometry(),
            region: Arc::clone(&region),
            pipes: None,
            who: SessionWho { program: "test".into(), pid: 1, uid: 0 },
        });
        let interface = InterfaceInfo {
            name: "pair".into(),
            addresses: vec![(host.address, 24)],
            has_gateway: false,
            routes: Vec::new(),
            mtu: 1500,
            shared: false,
            kernel_index: 0,
        };
        let (worker, clock) = (Arc::clone(&host.worker), Arc::clone(&host.clock));
        let pump: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
            worker.lock().unwrap().turn(Instant(clock.load(Ordering::Relaxed)));
        });
        let (session, socket) =
            Session::in_process(Arc::clone(&region), 0, vec![interface], pump).unwrap();
        host.sockets.push(socket);
        Program { key, session, region, host: on }
    }

    /// Opens an endpoint of a program.
    pub fn open(&mut self, of: &Program, number: u16, key: Option<[u8; 16]>) -> Endpoint {
        self.try_open(of, number, key).unwrap()
    }

    pub fn try_open(
        &mut self,
        of: &Program,
        number: u16,
        key: Option<[u8; 16]>,
    ) -> Result<Endpoint, String> {
        let host = &mut self.hosts[of.host];
        let local = SocketAddr::new(host.address, number);
        let shown = Shown::alone(local, u64::from(number));
        let command = Command::BindMessages {
            session: of.key,
            serial: 0,
            context: 0,
            shown,
            key,
            incarnation: 1_000_000 + of.host as u64,
        };
        let mut worker = host.worker.lock().unwrap();
        worker.on_command(command, Instant(self.now));
        let answers: Vec<Answer> = worker.take_answers().collect();
        drop(worker);
        let granted = answers.into_iter().find_map(|answer| match answer {
            Answer::Granted { endpoint, .. } => Some(Ok(endpoint)),
            Answer::Denied { reason, .. } => Some(Err(reason)),
            _ => None,
        });
        let index = granted.expect("an answer")?;
        Ok(of.session.adopt_messages(index, local).unwrap())
    }

    /// Lets both hosts take a turn.
    pub fn turn(&mut self) {
        self.now += ROUND_NS;
        for host in &mut self.hosts {
            host.clock.store(self.now, Ordering::Relaxed);
            let mut worker = host.worker.lock().unwrap();
            worker.turn(Instant(self.now));
            for answer in worker.take_answers() {
                match answer {
                    Answer::Breached(key, _) => host.breached.push(key),
                    Answer::Gone(key) => host.gone.push(key),
                    _ => {}
                }
            }
            worker.check_conservation().unwrap();
        }
    }

    /// Takes turns until `done`, for at most so many virtual seconds.
    pub fn until(&mut self, seconds: u64, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let end = self.now + seconds * 1_000_000_000;
        while !done(self) {
            assert!(self.now < end, "{what}: not after {seconds} virtual seconds");
            self.turn();
        }
    }

    /// The end of a program, as if it were killed.
    pub fn kill(&mut self, of: Program) {
        let mut worker = self.hosts[of.host].worker.lock().unwrap();
        worker.on_command(Command::Detach(of.key), Instant(self.now));
    }

    /// The next completion of an endpoint.
    pub fn completion(&mut self, of: &Endpoint, memory: &mut Buffers) -> Completion {
        let mut found = None;
        self.until(60, "a completion", |_| {
            found = of.poll_completion(memory).unwrap();
            found.is_some()
        });
        found.unwrap()
    }

    /// Has two endpoints get on with their work until both have so many completions.
    pub fn run(&mut self, parts: &mut [(&Endpoint, &mut Buffers, &mut Vec<Completion>, usize)]) {
        self.until(120, "completions", |_| {
            let mut is_done = true;
            for (endpoint, memory, completions, count) in parts.iter_mut() {
                while let Some(completion) = endpoint.poll_completion(*memory).unwrap() {
                    completions.push(completion);
                }
                is_done &= completions.len() >= *count;
            }
            is_done
        });
    }

    pub fn counter(&self, host: usize, name: &str) -> u64 {
        self.hosts[host].worker.lock().unwrap().copy_counters();
        let all = self.hosts[host].counters.read();
        all.iter().find(|(own, _)| own == name).map_or(0, |(_, value)| *value)
    }
}

/// The peer of one endpoint that another one is.
pub fn peer(of: &Endpoint, other: &Endpoint) -> Peer {
    of.add_peer(other.address()).unwrap()
}

/// Bytes that tell where they are from.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(31).wrapping_add(seed * 7) >> 3) as u8).collect()
}

/// The errno of a failure.
pub fn errno(of: &Completion) -> Option<client::Errno> {
    match of.outcome {
        Outcome::Failed { errno, .. } => Some(errno),
        _ => None,
    }
}
