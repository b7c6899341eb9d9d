//! Lists of many sockets: short steps for the worker, as fast as the observer reads.

mod common;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use common::{B, Net, at, small};
use outboard_engine::Limits;
use outboard_engine::control::capture::Captures;
use outboard_engine::control::exchange::{Answer, Command, Stop, exchange};
use outboard_engine::control::raw::RawPolicy;
use outboard_engine::control::{Control, ControlSetup, ControlSocket, Policy};
use outboard_engine::rules::Rules;
use outboard_engine::ss::{SOCKETS_PER_STEP, Seen, SeenSocket};
use outboard_engine::stats::Counters;
use rustix::event::{PollFd, PollFlags, poll};
use shm::control::{CONTRACT_VERSION, FromEngine, Role, Socket, SocketInfo, ToEngine, Wait};
use shm::request::{Reply, Request};
use shm::stats::StatsPage;
use stack::api::{Owner, SocketId, SocketKind, TcpState};
use stack::tcp::TcpInfo;

#[test]
fn a_list_in_steps_tells_a_socket_that_stays_exactly_once_while_others_come_and_go() {
    let limits = Limits { endpoints: 400, ..small() };
    let mut net = Net::new(limits);
    let (a, b) = (net.a.attach(&limits), net.b.attach(&limits));
    let listener = net.listen(&b, 80);
    let bound: Vec<u32> = (1000..1150).map(|port| net.bind_udp(true, &b, port)).collect();
    for _ in 0..30 {
        net.connected(&a, &b, listener, 80);
    }
    let (mut place, mut steps, mut told) = (Some(0), 0, Vec::new());
    while let Some(from) = place {
        let (seen, next) = net.b.worker.sockets_from(from);
        assert!(seen.len() <= SOCKETS_PER_STEP);
        assert!(seen.iter().all(|one| one.session == Some(b.key)));
        told.extend(seen.into_iter().map(|one| one.socket));
        if steps < 10 {
            // One that was told and one that is new.
            let close = Request::Close { endpoint: bound[steps] };
            assert_eq!(net.ask(true, &b, close), Reply::Done);
            net.bind_udp(true, &b, 2000 + steps as u16);
        }
        (steps, place) = (steps + 1, next);
    }
    let mut ports = BTreeSet::new();
    let (mut connections, mut listeners) = (0, 0);
    for socket in told {
        match socket {
            SeenSocket::Stack(stack::SocketInfo::Udp(_, info)) => {
                assert!(ports.insert(info.local.port()));
            }
            SeenSocket::Stack(stack::SocketInfo::Tcp(_, info)) => {
                let is_listener = info.kind == SocketKind::Listener;
                *(if is_listener { &mut listeners } else { &mut connections }) += 1;
            }
            other => panic!("there are no messages: {other:?}"),
        }
    }
    assert_eq!((listeners, connections), (1, 30));
    assert!((1010..1150).all(|port| ports.contains(&port)), "{ports:?}");
}

/// A control thread whose worker has so many sockets, and counts the steps it is asked for.
struct Desk {
    path: PathBuf,
    stop: Arc<Stop>,
    steps: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

fn socket(index: usize) -> Seen {
    let info = TcpInfo {
        kind: SocketKind::Connection,
        owner: Owner(0),
        local: at(B, 80),
        remote: Some(SocketAddr::from(([10, 1, (index >> 8) as u8, index as u8], 9))),
        state: TcpState::Established,
        receive_queue: index as u64,
        send_queue: 0,
        cwnd: 14480,
        ssthresh: u32::MAX,
        srtt_ns: 1_234_567,
        rttvar_ns: 345_678,
        rto_ns: 200_000_000,
        retransmits: 0,
        mss: 1448,
        send_window: 65535,
        mtu: 1500,
        more: stack::tcp::TcpDetails::default(),
    };
    let id = SocketId { index: index as u32, generation: 0 };
    Seen { socket: SeenSocket::Stack(stack::SocketInfo::Tcp(id, info)), session: None }
}

impl Desk {
    fn open(name: &str, sockets: usize) -> Self {
        let path = std::env::temp_dir().join(format!("outboard-{name}-{}", std::process::id()));
        let (commands, inbox) = exchange::<Command>().unwrap();
        let (outbox, answers) = exchange::<Answer>().unwrap();
        let counters = Arc::new(Counters::default());
        let stop = Stop::new().unwrap();
        let control = Control::new(ControlSetup {
            socket: ControlSocket::open(&path, 0o600, None).unwrap(),
            policy: Policy {
                limits: Limits::default(),
                rules: Rules::default(),
                raw: RawPolicy::default(),
                trial: None,
                accelerated: None,
            },
            geometry: Limits::default().geometry(1),
            interfaces: Vec::new(),
            worker: commands,
            answers,
            counters: Arc::clone(&counters),
            stop: Arc::clone(&stop),
            captures: Captures::new(Vec::new()),
            page: Arc::new(StatsPage::create(&counters.names()).unwrap()),
            kernel: None,
            relay: None,
        })
        .unwrap();
        let steps = Arc::new(AtomicUsize::new(0));
        let (asked, ends) = (Arc::clone(&steps), Arc::clone(&stop));
        let worker = move || {
            while !ends.is_stopped() {
                let news = [ends.fd(), inbox.signal().fd()];
                poll(&mut news.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)), None)
                    .unwrap();
                for command in inbox.take() {
                    outbox.send(match command {
                        Command::Sockets { place } => {
                            asked.fetch_add(1, Ordering::Relaxed);
                            let end = sockets.min(place + SOCKETS_PER_STEP);
                            Answer::Sockets {
                                sockets: (place..end).map(socket).collect(),
                                next: Some(end).filter(|end| *end < sockets),
                            }
                        }
                        Command::Stats => Answer::Stats,
                        _ => panic!("nobody asks for that here"),
                    });
                }
            }
        };
        let threads = vec![std::thread::spawn(worker), std::thread::spawn(move || control.run())];
        Self { path, stop, steps, threads }
    }

    fn observe(&self) -> Socket {
        let socket = Socket::connect(&self.path).unwrap();
        let timeout = rustix::net::sockopt::Timeout::Recv;
        let patience = Some(Duration::from_secs(60));
        rustix::net::sockopt::set_socket_timeout(&socket, timeout, patience).unwrap();
        let role = Role::Observer;
        let hello = ToEngine::Hello { contract: CONTRACT_VERSION, role, program: "test".into() };
        socket.send(&hello, &[], Wait::Yes).unwrap();
        assert_eq!(receive(&socket), FromEngine::Observing);
        socket
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.stop.stop();
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

fn ask(socket: &Socket, question: &ToEngine) {
    socket.send(question, &[], Wait::Yes).unwrap();
}

fn receive(socket: &Socket) -> FromEngine {
    socket.receive(Wait::Yes).unwrap().0
}

/// The rest of a list.
fn list(socket: &Socket) -> Vec<SocketInfo> {
    let mut all = Vec::new();
    loop {
        match receive(socket) {
            FromEngine::Sockets { sockets, more } => {
                all.extend(sockets);
                if !more {
                    return all;
                }
            }
            other => panic!("not a part of the list: {other:?}"),
        }
    }
}

#[test]
fn ten_thousand_sockets_are_told_as_fast_as_the_observer_reads_and_no_faster() {
    const SOCKETS: usize = 10_000;
    let desk = Desk::open("long-list", SOCKETS);
    let (slow, quick) = (desk.observe(), desk.observe());
    ask(&slow, &ToEngine::Sockets);
    for _ in 0..200 {
        ask(&quick, &ToEngine::Stats);
        assert!(matches!(receive(&quick), FromEngine::Stats { .. }));
    }
    // A socket has room for some 200 KiB, of which a step takes more than 8.
    let steps = desk.steps.load(Ordering::Relaxed);
    assert!(steps < 30, "{steps} steps were taken though nobody reads");
    let expected: Vec<u64> = (0..SOCKETS as u64).collect();
    let told = |socket: &Socket| -> Vec<u64> {
        list(socket).iter().map(|line| line.receive_queue).collect()
    };
    // Who does not read keeps nobody else waiting.
    ask(&quick, &ToEngine::Sockets);
    assert_eq!(told(&quick), expected);
    assert_eq!(told(&slow), expected);
    ask(&slow, &ToEngine::Stats);
    assert!(matches!(receive(&slow), FromEngine::Stats { .. }));
}

#[test]
fn an_observer_that_asks_more_instead_of_reading_its_list_is_dropped() {
    let desk = Desk::open("deaf-list", 10_000);
    let observer = desk.observe();
    let mut asked = 0;
    while observer.send(&ToEngine::Sockets, &[], Wait::Yes).is_ok() {
        asked += 1;
        assert!(asked < 10_000, "it was never dropped");
    }
    let other = desk.observe();
    ask(&other, &ToEngine::Stats);
    let FromEngine::Stats { counters } = receive(&other) else { panic!("no counters") };
    assert!(counters.contains(&("control_deaf".into(), 1)));
}

#[test]
fn an_observer_that_hangs_up_in_the_middle_of_its_list_ends_it() {
    let desk = Desk::open("cut-list", 10_000);
    for _ in 0..20 {
        let observer = desk.observe();
        ask(&observer, &ToEngine::Sockets);
        assert!(matches!(receive(&observer), FromEngine::Sockets { more: true, .. }));
    }
    let observer = desk.observe();
    ask(&observer, &ToEngine::Sockets);
    assert_eq!(list(&observer).len(), 10_000);
    let steps = desk.steps.load(Ordering::Relaxed);
    assert!(steps < 10 * 10_000 / SOCKETS_PER_STEP, "{steps} steps");
}

#[test]
fn an_empty_list_is_one_message() {
    let desk = Desk::open("empty-list", 0);
    let observer = desk.observe();
    ask(&observer, &ToEngine::Sockets);
    assert_eq!(receive(&observer), FromEngine::Sockets { sockets: Vec::new(), more: false });
}
