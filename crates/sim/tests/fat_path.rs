//! Buffers that tune themselves, from program to program: engines, regions and clients at both ends
//! of a path of 1 Gbit/s and 100 ms.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use client::{Endpoint, Kind, Session};
use engine::config::TcpSettings;
use engine::control::exchange::{Answer, Command, SessionKey, Shown};
use engine::session::{SessionSeed, SessionWho};
use engine::stats::Counters;
use engine::{Cidr, Limits, PortSetup, Worker, WorkerConfig};
use outboard_sim::congestion::Line;
use outboard_sim::port::{Arrived, SimPort, Wires, locked};
use port::{Offloads, RxChecksum, RxMeta};
use shm::control::InterfaceInfo;
use shm::region::Region;
use stack::api::{Instant, Ipv6Mode};
use wire::MacAddr;

const RATE: u64 = 1_000_000_000;
const DELAY_NS: u64 = 50_000_000;
const SECOND: u64 = 1_000_000_000;
const PORT: u16 = 80;
const SESSION: SessionKey = SessionKey(1);
/// A turn follows the one before after so long, at the least.
const TURN_NS: u64 = 20_000;

fn address(host: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, host])
}

struct Host {
    worker: Arc<Mutex<Worker>>,
    wires: Arc<Mutex<Wires>>,
    session: Arc<Session>,
    clock: Arc<AtomicU64>,
    counters: Arc<Counters>,
    _engine_end: std::os::fd::OwnedFd,
}

impl Host {
    fn new(number: u8, limits: Limits, tcp: TcpSettings) -> Self {
        let limits = Limits { contexts: 1, endpoints: 64, ..limits };
        let wires = Wires { tx_room: usize::MAX, rx_room: usize::MAX, ..Wires::default() };
        let wires = Arc::new(Mutex::new(wires));
        let offloads =
            Offloads { tx_checksum: true, tso4: true, tso6: false, uso: false, rx_coalesce: true };
        let mac = MacAddr([2, 0, 0, 0, 0, number]);
        let port = SimPort::new(usize::from(number), mac, 1500, offloads, Arc::clone(&wires));
        let setup = PortSetup {
            port: Box::new(port),
            addresses: vec![Cidr { address: address(number), prefix: 24 }],
            gateway: None,
            routes: Vec::new(),
            ipv6: Ipv6Mode::Off,
        };
        let stack_limits = stack::Limits { connections: 64, ..stack::Limits::default() };
        let config = WorkerConfig { limits, stack_limits, tcp, seed: [number; 32], index: 0 };
        let counters = Arc::new(Counters::default());
        let worker = Worker::new(config, vec![setup], Arc::clone(&counters), Instant(SECOND));
        let worker = Arc::new(Mutex::new(worker.expect("one port is few enough")));
        let region = Arc::new(Region::private(Worker::geometry(&limits)).expect("memory"));
        let geometry = *region.geometry();
        let who = SessionWho { program: "test".into(), pid: 1, uid: 0 };
        let seed =
            SessionSeed { key: SESSION, geometry, region: Arc::clone(&region), pipes: None, who };
        locked(&worker).on_command(Command::Attach(Box::new(seed)), Instant(SECOND));
        let interface = InterfaceInfo {
            name: "sim".into(),
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
        Self { worker, wires, session, clock, counters, _engine_end: engine_end }
    }

    fn listen(&self, local: SocketAddr) -> Endpoint {
        let shown = Shown::alone(local, 1);
        let (session, serial, context) = (SESSION, 0, 0);
        let command =
            Command::Listen { session, serial, context, backlog: 64, shown, beside: Vec::new() };
        let mut worker = locked(&self.worker);
        worker.on_command(command, Instant(SECOND));
        let granted = worker.take_answers().find_map(|answer| match answer {
            Answer::Granted { endpoint, .. } => Some(endpoint),
            _ => None,
        });
        drop(worker);
        let endpoint = granted.expect("the port is free");
        self.session.adopt(Kind::Listener, endpoint, local).expect("just granted")
    }

    fn counter(&self, name: &str) -> u64 {
        let worker = locked(&self.worker);
        worker.copy_counters();
        let mut all = self.counters.read();
        worker.stack().each_counter(|name, value| all.push((name.to_string(), value)));
        all.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("no {name}")).1
    }
}

struct World {
    now: u64,
    hosts: [Host; 2],
    lines: [Line<Arrived>; 2],
    sending: Vec<Endpoint>,
    receiving: Vec<Endpoint>,
    listener: Endpoint,
    read: u64,
    /// Nobody reads.
    deaf: bool,
    /// Most bytes that the receiver's windows offered together.
    promised: u64,
}

impl World {
    fn new(limits: Limits, tcp: TcpSettings, flows: usize) -> Self {
        let hosts = [Host::new(1, limits, tcp), Host::new(2, limits, tcp)];
        let local = SocketAddr::new(address(2), PORT);
        let listener = hosts[1].listen(local);
        let connect = |_| {
            let options = client::ConnectOptions::default();
            hosts[0].session.connect(local, None, &options).expect("a connection")
        };
        let sending = (0..flows).map(connect).collect();
        let line = || Line::new(RATE, DELAY_NS, 32 << 20);
        Self {
            now: SECOND,
            sending,
            receiving: Vec::new(),
            listener,
            hosts,
            lines: [line(), line()],
            read: 0,
            deaf: false,
            promised: 0,
        }
    }

    /// What programs and engines do now; whether there was anything.
    fn work(&mut self) -> bool {
        let bytes = [0; 1 << 16];
        let mut worked = false;
        for endpoint in &self.sending {
            while endpoint.write(&bytes).is_ok() {
                worked = true;
            }
        }
        while let Ok(accepted) = self.listener.accept() {
            self.receiving.push(accepted.endpoint);
        }
        let mut room = vec![0; 1 << 16];
        for endpoint in self.receiving.iter().filter(|_| !self.deaf) {
            while let Ok(len) = endpoint.read(&mut room)
                && len > 0
            {
                self.read += len as u64;
                worked = true;
            }
        }
        for (host, line) in self.hosts.iter().zip(&mut self.lines) {
            host.clock.store(self.now, Ordering::Relaxed);
            let activity = locked(&host.worker).turn(Instant(self.now));
            worked |= activity.worked();
            for sent in std::mem::take(&mut locked(&host.wires).sent) {
                let checksum = match sent.meta.checksum {
                    Some((start, offset)) => RxChecksum::Partial { start, offset },
                    None => RxChecksum::Unknown,
                };
                let meta = RxMeta { checksum, gso: sent.meta.gso };
                let frame = Arrived { bytes: sent.bytes, meta };
                line.push(self.now, frame.bytes.len(), frame, |_| ());
            }
        }
        worked
    }

    fn run(&mut self, seconds: u64) {
        let end = self.now + seconds * SECOND;
        while self.now < end {
            for (from, line) in self.lines.iter_mut().enumerate() {
                while let Some(frame) = line.pop(self.now) {
                    locked(&self.hosts[1 - from].wires).arrived.push_back(frame);
                }
            }
            let worked = self.work();
            let deadlines = self.hosts.iter().filter_map(|h| locked(&h.worker).next_deadline());
            let next = self.lines.iter().filter_map(Line::next).chain(deadlines.map(|at| at.0));
            let soon = if worked { self.now + TURN_NS } else { end };
            let next = next.min().unwrap_or(end).max(self.now + TURN_NS);
            self.now = next.min(soon).min(end);
        }
        let windows = self.receiving.iter().map(|endpoint| {
            let info = endpoint.info().expect("a connection's numbers");
            u64::from(info.receive_window_bytes)
        });
        self.promised = self.promised.max(windows.sum());
    }
}

fn settings(receive: u32, send: u32) -> TcpSettings {
    TcpSettings { receive_max: receive, send_max: send, ..TcpSettings::default() }
}

/// The window grows to its limit and is then the limit of the transfer.
#[test]
fn windows_reach_their_limit_and_fill_as_much_of_the_path() {
    let mut world = World::new(Limits::default(), settings(6 << 20, 6 << 20), 1);
    world.run(10);
    let before = world.read;
    world.run(5);
    assert!(world.promised > 6 << 20 >> 1 && world.promised <= 6 << 20, "{}", world.promised);
    // Of 60 MB/s that a window of 6 MiB allows, and of the 5 that the old fixed windows did.
    let rate = (world.read - before) / 5;
    assert!((35_000_000..63_000_000).contains(&rate), "{rate} bytes per second");
    assert!(world.hosts[1].counter("tcp_receive_windows_grown") > 3);
    assert_eq!(world.hosts[1].counter("buffers_exhausted"), 0);
}

#[test]
fn a_path_of_a_gigabit_and_a_tenth_of_a_second_is_filled_where_the_limits_allow() {
    let limits =
        Limits { buffers: 32768, receive_slots: 8192, spans: 1 << 20, ..Limits::default() };
    let mut world = World::new(limits, settings(32 << 20, 32 << 20), 1);
    world.run(10);
    let before = world.read;
    world.run(5);
    let rate = (world.read - before) / 5;
    assert!(rate > 100_000_000, "{rate} bytes per second");
    assert_eq!(world.hosts[1].counter("buffers_exhausted"), 0);
}

/// Many fat connections whose readers stop all at once leave the pool with room.
#[test]
fn the_pool_holds_what_all_windows_promise_together() {
    let limits = Limits { buffers: 4096, ..Limits::default() };
    let mut world = World::new(limits, settings(8 << 20, 4 << 20), 20);
    world.run(8);
    let pool = u64::from(limits.buffers) * u64::from(limits.buffer_bytes);
    assert!(world.promised <= pool, "{} of {pool}", world.promised);
    world.deaf = true;
    world.run(3);
    assert_eq!(world.hosts[1].counter("buffers_exhausted"), 0);
    world.deaf = false;
    let before = world.read;
    world.run(2);
    assert!(world.read > before);
}

#[test]
fn an_idle_connection_holds_nothing_of_the_pool() {
    let mut world = World::new(Limits::default(), settings(6 << 20, 4 << 20), 4);
    world.run(3);
    for endpoint in std::mem::take(&mut world.sending) {
        endpoint.close();
    }
    world.run(3);
    // Everything has arrived and was read; the receivers' ends still stand.
    assert_eq!(world.receiving.len(), 4);
    let held = world.hosts[1].counter("buffers_total") - world.hosts[1].counter("buffers_free");
    // The lane's stock for sending is all that is out.
    assert!(held <= u64::from(Limits::default().stock_target), "{held}");
}
