//! Two workers joined by a pair of ports, with small programs of their own, in one thread and
//! under virtual time.
#![allow(dead_code)]

use std::net::SocketAddr;
use std::sync::Arc;

use outboard_engine::config::Cidr;
use outboard_engine::control::exchange::{Answer, Command, SessionKey, Shown, SocketKey};
use outboard_engine::ending::Stage;
use outboard_engine::passing::Handover;
use outboard_engine::session::{LanePipes, SessionSeed, SessionWho};
use outboard_engine::stats::Counters;
use outboard_engine::{Limits, PortSetup, Worker, WorkerConfig};
use port::pair::{PairConfig, PairLink, pair};
use rustix::io::Errno;
use shm::client_side::{Carved, ClientEndpoint, ClientLane, Direction, Levels};
use shm::descriptor::{
    DATAGRAM_HEADER_BYTES, DatagramFlags, DatagramHeader, DescriptorFlags, DescriptorKind, Span,
};
use shm::layout::EVENT_STOCK;
use shm::lock::Tag;
use shm::region::Region;
use shm::request::{Addresses, ConnectOptions, Reply, Request};
use stack::api::Instant;

pub const A: &str = "10.0.0.1";
pub const B: &str = "10.0.0.2";

pub fn at(host: &str, port: u16) -> SocketAddr {
    SocketAddr::new(host.parse().unwrap(), port)
}

/// Limits that keep a test's memory small.
pub fn small() -> Limits {
    Limits {
        contexts: 2,
        endpoints: 64,
        buffers: 256,
        buffer_bytes: 2048,
        send_slots: 64,
        receive_slots: 64,
        stock_slots: 64,
        stock_target: 32,
        spans: 1024,
        ..Limits::default()
    }
}

pub struct Side {
    pub worker: Worker,
    pub counters: Arc<Counters>,
    next_key: u64,
    granted: Vec<(u32, Result<u32, i32>)>,
    pub breached: Vec<SessionKey>,
    pub gone: Vec<SessionKey>,
    pub unused: Vec<SocketKey>,
    pub stages: Vec<Stage>,
    pub passed: Vec<Result<Handover, Errno>>,
}

pub struct Net {
    pub now: u64,
    pub a: Side,
    pub b: Side,
    pub link: PairLink,
}

/// A port with an address in a network of its own.
pub fn setup(port: Box<dyn port::Port>, address: &str) -> PortSetup {
    PortSetup {
        port,
        addresses: vec![Cidr { address: address.parse().unwrap(), prefix: 24 }],
        gateway: None,
        routes: Vec::new(),
        ipv6: stack::api::Ipv6Mode::Off,
    }
}

impl Side {
    fn new(port: impl port::Port + 'static, address: &str, limits: Limits, seed: u8) -> Self {
        Self::of(vec![setup(Box::new(port), address)], limits, seed)
    }

    /// A worker with these ports.
    pub fn of(ports: Vec<PortSetup>, limits: Limits, seed: u8) -> Self {
        let counters = Arc::new(Counters::default());
        let config = WorkerConfig {
            limits,
            stack_limits: stack::Limits { connections: 4096, ..stack::Limits::default() },
            tcp: outboard_engine::TcpSettings::default(),
            seed: [seed; 32],
            index: 0,
        };
        let worker = Worker::new(config, ports, Arc::clone(&counters), Instant(1)).unwrap();
        Self {
            worker,
            counters,
            next_key: 1,
            granted: Vec::new(),
            breached: Vec::new(),
            gone: Vec::new(),
            unused: Vec::new(),
            stages: Vec::new(),
            passed: Vec::new(),
        }
    }

    pub fn attach(&mut self, limits: &Limits) -> Program {
        self.attach_as(0, limits)
    }

    /// A program of user `uid`.
    pub fn attach_as(&mut self, uid: u32, limits: &Limits) -> Program {
        self.attach_by(uid, limits, None)
    }

    /// A program with the lane's pipes, so that its lane need not be polled for ever.
    pub fn attach_with_pipes(&mut self, limits: &Limits, pipes: Vec<LanePipes>) -> Program {
        self.attach_by(0, limits, Some(pipes))
    }

    fn attach_by(&mut self, uid: u32, limits: &Limits, pipes: Option<Vec<LanePipes>>) -> Program {
        let region = Arc::new(Region::private(limits.geometry(1)).unwrap());
        let key = SessionKey(self.next_key);
        self.next_key += 1;
        self.worker.attach(SessionSeed {
            key,
            geometry: *region.geometry(),
            region: Arc::clone(&region),
            pipes,
            who: SessionWho { program: "test".into(), pid: 1, uid },
        });
        Program {
            key,
            lane: ClientLane::new(Arc::clone(&region), 0, 0),
            region,
            tag: Tag::new(1, 1),
        }
    }

    /// One turn; whether anything happened.
    pub fn turn(&mut self, now: u64) -> bool {
        let worked = self.worker.turn(Instant(now)).worked();
        for answer in self.worker.take_answers() {
            match answer {
                Answer::Granted { serial, endpoint, .. } => {
                    self.granted.push((serial, Ok(endpoint)));
                }
                Answer::Denied { serial, errno, .. } => self.granted.push((serial, Err(errno))),
                Answer::Breached(key, _) => self.breached.push(key),
                Answer::Gone(key) => self.gone.push(key),
                Answer::Unused(key) => self.unused.push(key),
                Answer::Ending(stage) => self.stages.push(stage),
                Answer::Passed { outcome, .. } => self.passed.push(outcome),
                Answer::Sockets { .. }
                | Answer::Stats
                | Answer::AskNeighbor { .. }
                | Answer::Hold { .. }
                | Answer::LetGo(_)
                | Answer::Interface { .. }
                | Answer::RawClosed { .. }
                | Answer::Registered { .. }
                | Answer::Unregistered { .. }
                | Answer::Forked { .. }
                | Answer::PassOver(_) => {}
                Answer::Raw { serial, result, .. } => {
                    self.granted.push((serial, result.map_err(|refusal| refusal.errno)));
                }
            }
        }
        self.worker.check_conservation().unwrap();
        worked
    }

    /// The first counter whose name begins so.
    pub fn counter(&mut self, name: &str) -> u64 {
        self.worker.copy_counters();
        let all = self.counters.read();
        let found = all.into_iter().find(|(of, _)| of.starts_with(name));
        found.unwrap_or_else(|| panic!("no counter {name}")).1
    }

    pub fn command(&mut self, command: Command, now: u64) -> Result<u32, i32> {
        self.worker.on_command(command, Instant(now));
        self.turn(now);
        self.granted.pop().expect("the command was answered").1
    }
}

fn shown(local: SocketAddr) -> Shown {
    Shown::alone(local, 7)
}

impl Net {
    pub fn new(limits: Limits) -> Self {
        Self::with(limits, &PairConfig::default())
    }

    /// Over a link of another kind.
    pub fn with(limits: Limits, link: &PairConfig) -> Self {
        let (a, b, link) = pair(link);
        Self { now: 1_000_000, a: Side::new(a, A, limits, 1), b: Side::new(b, B, limits, 2), link }
    }

    /// One turn of each side; whether anything happened.
    pub fn turn(&mut self) -> bool {
        self.now += 10_000;
        let a = self.a.turn(self.now);
        let b = self.b.turn(self.now);
        a || b
    }

    /// One turn of side a alone.
    pub fn a_turn(&mut self) -> bool {
        self.now += 10_000;
        self.a.turn(self.now)
    }

    /// Runs until nothing happens but what timers will bring.
    pub fn settle(&mut self) {
        for _ in 0..100_000 {
            if !self.turn() {
                return;
            }
        }
        panic!("the network does not come to rest");
    }

    /// Lets `ns` pass, with turns whenever a timer is due.
    pub fn pass(&mut self, ns: u64) {
        let end = self.now + ns;
        while self.now < end {
            let next = [self.a.worker.next_deadline(), self.b.worker.next_deadline()];
            let next = next.iter().flatten().map(|at| at.0).min().unwrap_or(end);
            self.now = self.now.max(next.min(end)).max(self.now + 1);
            self.settle();
        }
    }

    pub fn listen(&mut self, program: &Program, port: u16) -> u32 {
        self.try_listen(program, port).unwrap()
    }

    pub fn try_listen(&mut self, program: &Program, port: u16) -> Result<u32, i32> {
        let command = Command::Listen {
            session: program.key,
            serial: 1,
            context: 0,
            backlog: 1024,
            shown: shown(at(B, port)),
            beside: Vec::new(),
        };
        self.b.command(command, self.now)
    }

    pub fn bind_udp(&mut self, on_b: bool, program: &Program, port: u16) -> u32 {
        self.try_bind_udp(on_b, program, port).unwrap()
    }

    pub fn try_bind_udp(&mut self, on_b: bool, program: &Program, port: u16) -> Result<u32, i32> {
        let host = if on_b { B } else { A };
        let command = Command::BindUdp {
            session: program.key,
            serial: 1,
            context: 0,
            shown: shown(at(host, port)),
        };
        let side = if on_b { &mut self.b } else { &mut self.a };
        side.command(command, self.now)
    }

    /// A request of a program on side b (or a) and its reply.
    pub fn ask(&mut self, on_b: bool, program: &Program, request: Request) -> Reply {
        program.post(request);
        self.turn();
        let side = if on_b { &self.b } else { &self.a };
        assert!(side.breached.is_empty(), "the session was ended");
        program.lane.lock(program.tag).unwrap().take_reply().expect("a reply").1.unwrap()
    }

    pub fn connect(&mut self, program: &Program, port: u16) -> u32 {
        let request =
            Request::Connect { remote: at(B, port), token: 0, options: ConnectOptions::default() };
        match self.ask(false, program, request) {
            Reply::Endpoint { endpoint, .. } => endpoint,
            other => panic!("connect: {other:?}"),
        }
    }

    pub fn accept(&mut self, program: &Program, listener: u32) -> Option<(u32, Addresses)> {
        match self.ask(true, program, Request::Accept { listener }) {
            Reply::Endpoint { endpoint, addresses } => Some((endpoint, addresses)),
            Reply::Failed { errno: 11 } => None,
            other => panic!("accept: {other:?}"),
        }
    }

    /// A connection from a program on a to one on b.
    pub fn connected(&mut self, a: &Program, b: &Program, listener: u32, port: u16) -> (u32, u32) {
        let near = self.connect(a, port);
        self.settle();
        let (far, _) = self.accept(b, listener).expect("a connection waits");
        (near, far)
    }
}

pub struct Program {
    pub key: SessionKey,
    pub region: Arc<Region>,
    pub lane: ClientLane,
    pub tag: Tag,
}

impl Program {
    pub fn endpoint(&self, index: u32) -> ClientEndpoint {
        ClientEndpoint::new(Arc::clone(&self.region), index).unwrap()
    }

    pub fn levels(&self, index: u32) -> Levels {
        self.endpoint(index).levels()
    }

    pub fn post(&self, request: Request) {
        let mut lane = self.lane.lock(self.tag).unwrap();
        lane.push_request(&request).expect("room for a request");
        let _ = lane.ring_requests();
    }

    pub fn events(&self) -> Vec<u32> {
        let mut events = Vec::new();
        self.lane.lock(self.tag).unwrap().take_events(1000, |endpoint| events.push(endpoint));
        events.retain(|endpoint| *endpoint != EVENT_STOCK);
        events
    }

    /// Writes as much as there is stock and room for; returns how much.
    pub fn write(&self, index: u32, bytes: &[u8]) -> usize {
        let endpoint = self.endpoint(index);
        let mut send = endpoint.lock_send(self.tag).unwrap();
        let mut lane = self.lane.lock(self.tag).unwrap();
        let mut done = 0;
        while done < bytes.len() && send.room() > 0 {
            let left = (bytes.len() - done) as u32;
            let Some(Carved { span, last }) = lane.carve(left, 1) else { break };
            self.region.write_buffer(span, &bytes[done..]);
            done += span.len as usize;
            let mut flags = DescriptorFlags::empty();
            flags.set(DescriptorFlags::LAST, last);
            send.push(DescriptorKind::Data, flags, span);
        }
        drop(lane);
        let _ = self.lane.ring(index, Direction::Send);
        done
    }

    pub fn push(&self, index: u32, kind: DescriptorKind, flags: DescriptorFlags, span: Span) {
        self.endpoint(index).lock_send(self.tag).unwrap().push(kind, flags, span);
        let _ = self.lane.ring(index, Direction::Send);
    }

    pub fn finish(&self, index: u32) {
        self.push(index, DescriptorKind::Fin, DescriptorFlags::empty(), Span::default());
    }

    /// Reads everything there is, at most `limit` bytes.
    pub fn read(&self, index: u32, limit: usize) -> Vec<u8> {
        let endpoint = self.endpoint(index);
        let mut receive = endpoint.lock_receive(self.tag).unwrap();
        let (mut at, readable) = (receive.consumed(), receive.readable());
        let mut bytes = Vec::new();
        while at < readable && bytes.len() < limit {
            let span = receive.page(at, readable).expect("a page");
            let span = span.part(0, (limit - bytes.len()) as u32);
            let start = bytes.len();
            bytes.resize(start + span.len as usize, 0);
            self.region.read_buffer(span, &mut bytes[start..]);
            at += u64::from(span.len);
        }
        if !bytes.is_empty() && receive.advance(at) {
            let _ = self.lane.ring(index, Direction::Receive);
        }
        bytes
    }

    /// Sends a datagram to `remote`, over as many spans as it takes.
    pub fn send_to(&self, index: u32, remote: SocketAddr, bytes: &[u8]) {
        self.send_flagged(index, remote, bytes, DatagramFlags::empty());
    }

    /// The same, with flags.
    pub fn send_flagged(&self, index: u32, remote: SocketAddr, bytes: &[u8], flags: DatagramFlags) {
        let header = DatagramHeader {
            remote,
            local: at("0.0.0.0", 0),
            tos: 0,
            ttl: 0,
            interface: 0,
            gso_bytes: 0,
            flags,
            payload_bytes: bytes.len() as u32,
        };
        let mut whole = header.encode().to_vec();
        whole.extend_from_slice(bytes);
        let endpoint = self.endpoint(index);
        let mut send = endpoint.lock_send(self.tag).unwrap();
        let mut lane = self.lane.lock(self.tag).unwrap();
        let mut done = 0;
        while done < whole.len() {
            let left = (whole.len() - done) as u32;
            let Carved { span, last } = lane.carve(left, left.min(64)).expect("stock");
            self.region.write_buffer(span, &whole[done..]);
            done += span.len as usize;
            let mut flags = DescriptorFlags::empty();
            flags.set(DescriptorFlags::LAST, last);
            flags.set(DescriptorFlags::MORE, done < whole.len() && span.len > 0);
            send.push(DescriptorKind::Datagram, flags, span);
        }
        drop(lane);
        let _ = self.lane.ring(index, Direction::Send);
    }

    /// Takes one datagram: its sender and its payload.
    pub fn receive_from(&self, index: u32) -> Option<(SocketAddr, Vec<u8>)> {
        let endpoint = self.endpoint(index);
        let mut receive = endpoint.lock_receive(self.tag).unwrap();
        let start = receive.consumed();
        if start >= receive.readable() {
            return None;
        }
        let (mut next, mut whole) = (start, Vec::new());
        loop {
            let (span, more) = receive.datagram(next).expect("a datagram");
            next += 1;
            let from = whole.len();
            whole.resize(from + span.len as usize, 0);
            self.region.read_buffer(span, &mut whole[from..]);
            if !more {
                break;
            }
        }
        if receive.advance(next) {
            let _ = self.lane.ring(index, Direction::Receive);
        }
        let payload = whole.split_off(DATAGRAM_HEADER_BYTES as usize);
        let header = DatagramHeader::decode(whole.as_slice().try_into().unwrap());
        assert_eq!(header.payload_bytes as usize, payload.len());
        Some((header.remote, payload))
    }
}

/// Bytes that tell where they belong.
pub fn pattern(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}
