//! Fixed work for two engines in one thread, joined by the in-memory port, to be counted in
//! instructions: `instructions WORKLOAD TIMES`. `cargo xtask instructions` runs it under callgrind,
//! which counts inside of [`steady_state`] only. Messages go in bursts, of which TIMES is a multiple.

mod bursts;

use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use client::message::{Endpoint as MessageEndpoint, Memory, Pattern, Send};
use client::{ConnectOptions, Endpoint, Errno, Kind, Readiness, Session};
use engine::config::TcpSettings;
use engine::control::exchange::{Answer, Command, SessionKey, Shown};
use engine::session::{SessionSeed, SessionWho};
use engine::stats::Counters;
use engine::{Cidr, Limits, PortSetup, Worker, WorkerConfig};
use outboard_sim::port::locked;
use port::Port;
use port::pair::{PairConfig, pair};
use shm::control::InterfaceInfo;
use shm::region::Region;
use stack::api::{Instant, Ipv6Mode};

const SECOND: u64 = 1_000_000_000;
/// Time between two turns.
const TURN_NS: u64 = 2_000;
/// Turns of both hosts that an operation may take.
const TURNS_MAX: u32 = 10_000;
/// Repetitions before counting begins: windows have grown, tables have their size.
const WARM_UP: u32 = 200;
const SESSION: SessionKey = SessionKey(1);
const PORT: u16 = 80;

fn address(host: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, 1 + host as u8])
}

/// An engine and the client of one program.
struct Host {
    worker: Arc<Mutex<Worker>>,
    session: Arc<Session>,
    clock: Arc<AtomicU64>,
    _engine_end: OwnedFd,
}

impl Host {
    fn new(number: usize, port: Box<dyn Port>) -> Self {
        let limits = Limits { contexts: 1, endpoints: 4096, buffers: 4096, ..Limits::default() };
        let setup = PortSetup {
            port,
            addresses: vec![Cidr { address: address(number), prefix: 24 }],
            gateway: None,
            routes: Vec::new(),
            ipv6: Ipv6Mode::Off,
        };
        let (stack_limits, tcp) = (stack::Limits::default(), TcpSettings::default());
        let seed = [number as u8 + 1; 32];
        let config = WorkerConfig { limits, stack_limits, tcp, seed, index: 0 };
        let counters = Arc::new(Counters::default());
        let worker = Worker::new(config, vec![setup], counters, Instant(SECOND));
        let worker = Arc::new(Mutex::new(worker.expect("one port is few enough")));
        let region = Arc::new(Region::private(Worker::geometry(&limits)).expect("memory"));
        let geometry = *region.geometry();
        let who = SessionWho { program: "counted".into(), pid: 1, uid: 0 };
        let seed =
            SessionSeed { key: SESSION, geometry, region: Arc::clone(&region), pipes: None, who };
        locked(&worker).on_command(Command::Attach(Box::new(seed)), Instant(SECOND));
        let interface = InterfaceInfo {
            name: "pair".into(),
            kernel_index: 0,
            addresses: vec![(address(number), 24)],
            has_gateway: false,
            routes: Vec::new(),
            mtu: 1500,
            shared: false,
        };
        let clock = Arc::new(AtomicU64::new(SECOND));
        let (turning, time) = (Arc::clone(&worker), Arc::clone(&clock));
        let pump = move || {
            locked(&turning).turn(Instant(time.load(Ordering::Relaxed)));
        };
        let (session, engine_end) =
            Session::in_process(region, 0, vec![interface], Arc::new(pump)).expect("a session");
        Self { worker, session, clock, _engine_end: engine_end }
    }

    /// A message endpoint.
    fn messages(&self, local: SocketAddr) -> MessageEndpoint {
        let command = Command::BindMessages {
            session: SESSION,
            serial: 0,
            context: 0,
            shown: Shown::alone(local, u64::from(local.port())),
            key: Some(*b"key of the count"),
            incarnation: 1_000,
        };
        let granted = self.command(command);
        self.session.adopt_messages(granted, local).expect("just granted")
    }

    /// The endpoint that a command makes.
    fn command(&self, command: Command) -> u32 {
        let mut worker = locked(&self.worker);
        worker.on_command(command, Instant(SECOND));
        let granted = worker.take_answers().find_map(|answer| match answer {
            Answer::Granted { endpoint, .. } => Some(endpoint),
            _ => None,
        });
        granted.expect("the port is free")
    }

    /// An endpoint that only the control thread can grant.
    fn granted(&self, kind: Kind, local: SocketAddr) -> Endpoint {
        let shown = Shown::alone(local, u64::from(local.port()));
        let (session, serial, context) = (SESSION, 0, 0);
        let command = match kind {
            Kind::Datagram => Command::BindUdp { session, serial, context, shown },
            _ => {
                let (backlog, beside) = (64, Vec::new());
                Command::Listen { session, serial, context, backlog, shown, beside }
            }
        };
        self.session.adopt(kind, self.command(command), local).expect("just granted")
    }
}

/// The same few bytes for every message.
struct Bytes([u8; 128]);

impl Memory for Bytes {
    fn gather(&mut self, _: u64, offset: u64, len: usize, copy: &mut dyn FnMut(&[u8])) {
        copy(&self.0[offset as usize..][..len]);
    }

    fn scatter(&mut self, _: u64, offset: u64, len: usize, copy: &mut dyn FnMut(&mut [u8])) {
        copy(&mut self.0[offset as usize..][..len]);
    }
}

/// The two hosts: a client's and a server's.
struct World {
    now: u64,
    hosts: [Host; 2],
    listener: Endpoint,
    events: Vec<client::EndpointId>,
}

impl World {
    fn new() -> Self {
        let (first, second, _link) = pair(&PairConfig::default());
        let hosts = [Host::new(0, Box::new(first)), Host::new(1, Box::new(second))];
        let listener = hosts[1].granted(Kind::Listener, SocketAddr::new(address(1), PORT));
        Self { now: SECOND, hosts, listener, events: Vec::new() }
    }

    /// A turn of both engines, after which the programs take their events.
    fn turn(&mut self) -> bool {
        self.now += TURN_NS;
        let mut worked = false;
        for host in &self.hosts {
            host.clock.store(self.now, Ordering::Relaxed);
            worked |= locked(&host.worker).turn(Instant(self.now)).worked();
            self.events.clear();
            host.session.take_events(&mut self.events);
        }
        worked
    }

    /// Turns until `attempt` does not say EAGAIN.
    fn until<T>(&mut self, mut attempt: impl FnMut(&mut Self) -> Result<T, Errno>) -> T {
        for _ in 0..TURNS_MAX {
            match attempt(self) {
                Err(Errno::AGAIN) => {
                    self.turn();
                }
                done => return done.expect("the call succeeds"),
            }
        }
        panic!("nothing comes");
    }

    /// A connection, both ends of it.
    fn connection(&mut self) -> (Endpoint, Endpoint) {
        let remote = SocketAddr::new(address(1), PORT);
        let options = ConnectOptions { nodelay: true, ..ConnectOptions::default() };
        let client = self.hosts[0].session.connect(remote, None, &options).expect("a connection");
        let server = self.until(|world| world.listener.accept()).endpoint;
        while !client.readiness().contains(Readiness::OUT) {
            self.turn();
        }
        (client, server)
    }

    fn write(&mut self, to: &Endpoint, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            done += self.until(|_| to.write(&bytes[done..]));
        }
    }

    fn read(&mut self, from: &Endpoint, room: &mut [u8]) {
        let mut done = 0;
        while done < room.len() {
            let len = self.until(|_| from.read(&mut room[done..]));
            assert!(len > 0, "the stream goes on");
            done += len;
        }
    }

    /// `len` bytes there, and back.
    fn echo(mut self, len: usize) -> impl FnMut() {
        let (client, server) = self.connection();
        let mut bytes = vec![7; len];
        move || {
            self.write(&client, &bytes);
            self.read(&server, &mut bytes);
            self.write(&server, &bytes);
            self.read(&client, &mut bytes);
        }
    }

    /// `len` bytes in one direction.
    fn transmit(mut self, len: usize) -> impl FnMut() {
        let (client, server) = self.connection();
        let mut bytes = vec![7; len];
        move || {
            self.write(&client, &bytes);
            self.read(&server, &mut bytes);
        }
    }

    /// A datagram there, and one back.
    fn datagrams(mut self, len: usize) -> impl FnMut() {
        let ports = [4000, 4001];
        let local = move |host: usize| SocketAddr::new(address(host), ports[host]);
        let ends = [0, 1].map(|host| self.hosts[host].granted(Kind::Datagram, local(host)));
        let mut bytes = vec![7; len];
        move || {
            for from in [0, 1] {
                let pieces = [IoSlice::new(&bytes)];
                self.until(|_| ends[from].send_to(Some(local(1 - from)), None, &pieces));
                let parts = &mut [std::io::IoSliceMut::new(&mut bytes)];
                let received = self.until(|_| ends[1 - from].recv_from(parts));
                assert_eq!(received.len, len);
            }
        }
    }

    /// Bursts of messages to receives that wait for their tags.
    fn messages(mut self, len: usize) -> impl FnMut() {
        let ends =
            [0, 1].map(|host| self.hosts[host].messages(SocketAddr::new(address(host), 5000)));
        let to = ends[0].add_peer(ends[1].address()).expect("one peer is few enough");
        let source = ends[1].add_peer(ends[0].address());
        let mut memory = Bytes([7; 128]);
        let bytes = vec![7; len];
        move || {
            for context in 0..u64::from(bursts::BURST) {
                let pattern = Pattern { source, tag: Some((context, 0)) };
                ends[1].post_recv(&pattern, len as u64, context).expect("few are under way");
            }
            self.turn();
            for context in 0..u64::from(bursts::BURST) {
                let send = Send { tag: Some(context), ..Send::default() };
                ends[0].send(to, &send, &[IoSlice::new(&bytes)], context).expect("there is room");
            }
            let mut ended = [0; 2];
            for _ in 0..TURNS_MAX {
                self.turn();
                for (end, ended) in ends.iter().zip(&mut ended) {
                    while end.poll_completion(&mut memory).expect("the engine lives").is_some() {
                        *ended += 1;
                    }
                }
                if ended == [bursts::BURST; 2] {
                    return;
                }
            }
            panic!("the burst has not ended");
        }
    }

    /// A connection that is made and closed from both ends, the client's first.
    fn connect_close(mut self) -> impl FnMut() {
        move || {
            let (client, server) = self.connection();
            client.close();
            let end = self.until(|_| server.read(&mut [0; 1]));
            assert_eq!(end, 0, "the client has closed");
            server.close();
            drop((client, server));
            while self.turn() {}
        }
    }
}

/// What is counted.
#[inline(never)]
fn steady_state(operation: &mut dyn FnMut(), times: u32) {
    for _ in 0..times {
        operation();
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let parsed = match &arguments[..] {
        [workload, times] => times.parse().ok().map(|times| (workload.as_str(), times)),
        _ => None,
    };
    let world = World::new();
    let (mut operation, times): (Box<dyn FnMut()>, u32) = match parsed {
        Some(("tcp-echo-64", times)) => (Box::new(world.echo(64)), times),
        Some(("tcp-transmit-1k", times)) => (Box::new(world.transmit(1 << 10)), times),
        Some(("tcp-bulk-64k", times)) => (Box::new(world.transmit(64 << 10)), times),
        Some(("udp-echo-64", times)) => (Box::new(world.datagrams(64)), times),
        Some(("message-8", times)) => (Box::new(world.messages(8)), times / bursts::BURST),
        Some(("message-core-8", times)) => {
            (Box::new(bursts::between_cores(8)), times / bursts::BURST)
        }
        Some(("connect-close", times)) => (Box::new(world.connect_close()), times),
        _ => {
            eprintln!(
                "usage: instructions tcp-echo-64 | tcp-transmit-1k | tcp-bulk-64k | udp-echo-64 | \
                 connect-close | message-8 | message-core-8 TIMES"
            );
            return ExitCode::FAILURE;
        }
    };
    for _ in 0..WARM_UP {
        operation();
    }
    steady_state(&mut operation, times);
    ExitCode::SUCCESS
}
