//! The control socket of a running engine against clients that misuse it: others still attach.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::Duration;

use outboard_engine::config::{Cidr, EngineConfig, PortSetup};
use outboard_engine::{Engine, Limits};
use port::pair::{PairConfig, PairPort, pair};
use shm::control::{CONTRACT_VERSION, FromEngine, Role, Socket, ToEngine, Wait};

struct Running {
    engine: Option<Engine>,
    path: PathBuf,
    _peer: PairPort,
}

fn start(name: &str, limits: Limits) -> Running {
    let path = std::env::temp_dir().join(format!("outboard-{name}-{}", std::process::id()));
    let (port, peer, _) = pair(&PairConfig::default());
    let setup = PortSetup {
        port: Box::new(port),
        addresses: vec![Cidr { address: "127.0.0.1".parse().unwrap(), prefix: 8 }],
        gateway: None,
        routes: Vec::new(),
        ipv6: stack::api::Ipv6Mode::Off,
    };
    let limits = Limits { contexts: 1, endpoints: 16, buffers: 64, buffer_bytes: 1024, ..limits };
    let config = EngineConfig { limits, ..EngineConfig::new(&path) };
    let engine = Engine::start(config, vec![setup]).unwrap();
    Running { engine: Some(engine), path, _peer: peer }
}

impl Running {
    fn connect(&self) -> Socket {
        let socket = Socket::connect(&self.path).unwrap();
        // A test that would wait for ever fails instead.
        let patience = Some(Duration::from_secs(20));
        rustix::net::sockopt::set_socket_timeout(
            &socket,
            rustix::net::sockopt::Timeout::Recv,
            patience,
        )
        .unwrap();
        socket
    }

    fn attach(&self) -> Socket {
        let socket = self.connect();
        match ask(&socket, &hello(Role::Session), &[]) {
            Some(FromEngine::Welcome { .. }) => socket,
            other => panic!("not let in: {other:?}"),
        }
    }

    fn observe(&self) -> Socket {
        let socket = self.connect();
        assert_eq!(ask(&socket, &hello(Role::Observer), &[]), Some(FromEngine::Observing));
        socket
    }

    fn counter(&self, name: &str) -> u64 {
        match ask(&self.observe(), &ToEngine::Stats, &[]) {
            Some(FromEngine::Stats { counters }) => {
                counters.iter().find(|(own, _)| own == name).unwrap().1
            }
            other => panic!("no counters: {other:?}"),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let engine = self.engine.take().unwrap();
        engine.stop_handle().stop();
        engine.join().unwrap();
    }
}

fn hello(role: Role) -> ToEngine {
    ToEngine::Hello { contract: CONTRACT_VERSION, role, program: "test".into() }
}

/// The answer; `None` when the engine hung up.
fn ask(socket: &Socket, message: &ToEngine, fds: &[BorrowedFd<'_>]) -> Option<FromEngine> {
    socket.send(message, fds, Wait::Yes).unwrap();
    answer(socket)
}

fn answer(socket: &Socket) -> Option<FromEngine> {
    match socket.receive::<FromEngine>(Wait::Yes) {
        Ok((message, _)) => Some(message),
        Err(shm::control::ControlError::Closed) => None,
        Err(error) => panic!("no answer: {error}"),
    }
}

#[test]
fn connections_that_say_nothing_give_way_to_programs() {
    let engine = start(
        "silent",
        Limits { sessions: 4, sessions_per_user: 4, control_connections: 8, ..Limits::default() },
    );
    let silent: Vec<Socket> = (0..40).map(|_| engine.connect()).collect();
    let session = engine.attach();
    let observers: Vec<Socket> = (0..20).map(|_| engine.observe()).collect();
    let other = engine.attach();
    assert!(engine.counter("control_evicted") > 32);
    assert_eq!(engine.counter("sessions"), 2);
    drop((silent, session, observers, other));
}

#[test]
fn what_is_no_message_ends_its_connection_alone() {
    let engine = start("garbage", Limits::default());
    let session = engine.attach();
    let file = std::fs::File::open("/").unwrap();
    let many: Vec<BorrowedFd<'_>> = vec![file.as_fd(); 100];
    for bytes in [&[][..], &[0xff], &[0xff; 300], &[0; 3]] {
        let bad = engine.connect();
        rustix::io::write(&bad, bytes).unwrap();
        if bytes.is_empty() {
            // Nothing was said; the connection ends as one that was closed.
            continue;
        }
        assert_eq!(answer(&bad), None);
    }
    let bad = engine.connect();
    assert_eq!(ask(&bad, &hello(Role::Observer), &many), None);
    let early = engine.connect();
    assert_eq!(ask(&early, &ToEngine::Stats, &[]), None);
    let twice = engine.observe();
    assert_eq!(ask(&twice, &hello(Role::Observer), &[]), None);
    let foreign = engine.connect();
    let message = ToEngine::Hello { contract: 999, role: Role::Session, program: "x".repeat(900) };
    assert!(matches!(ask(&foreign, &message, &[]), Some(FromEngine::Refused { .. })));
    assert!(engine.counter("control_garbage") >= 6);
    assert_eq!(engine.counter("sessions"), 1);
    drop(session);
}

#[test]
fn a_descriptor_that_is_slow_to_close_does_not_keep_others_waiting() {
    let engine = start("slow", Limits::default());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut fars = Vec::new();
    for round in 0..10 {
        let session = engine.attach();
        let is_crowded = round % 2 == 1;
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        near.set_nonblocking(true).unwrap();
        while near.write(&[0; 1 << 16]).is_ok() {}
        let hour = Some(Duration::from_secs(3600));
        rustix::net::sockopt::set_socket_linger(&near, hour).unwrap();
        let listen = ToEngine::Listen { serial: 1, context: 0, backlog: 1 };
        // Alone, and behind as many as a message may have.
        let mut fds = vec![far.as_fd(); if is_crowded { 4 } else { 0 }];
        fds.push(near.as_fd());
        session.send(&listen, &fds, Wait::Yes).unwrap();
        // Whoever has the last copy waits: the engine's helper, or this thread.
        std::thread::spawn(move || drop(near));
        match answer(&session) {
            None => assert!(is_crowded),
            Some(FromEngine::Denied { .. }) => assert!(!is_crowded),
            other => panic!("{other:?}"),
        }
        fars.push(far);
    }
    drop(engine.attach());
}

/// Asks again and again and never reads, until the engine hangs up; returns how many questions
/// it took.
fn flood(socket: &Socket, question: &ToEngine, fds: &[BorrowedFd<'_>]) -> usize {
    let patience = Some(Duration::from_secs(60));
    let send = rustix::net::sockopt::Timeout::Send;
    rustix::net::sockopt::set_socket_timeout(socket, send, patience).unwrap();
    for taken in 0.. {
        match socket.send(question, fds, Wait::Yes) {
            // Far more than the answers that its socket can hold.
            Ok(()) => assert!(taken < 100_000, "a client that does not read was never dropped"),
            Err(shm::control::ControlError::Closed) => return taken,
            Err(error) => panic!("neither taken nor dropped after {taken} questions: {error}"),
        }
    }
    unreachable!("the numbers have no end");
}

#[test]
fn who_asks_and_never_reads_is_dropped_and_the_rest_is_served() {
    let engine = start("deaf", Limits::default());
    let own = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = |serial| ToEngine::Listen { serial, context: 0, backlog: 1 };
    let observers: Vec<Socket> = (0..4).map(|_| engine.observe()).collect();
    let sessions: Vec<Socket> = (0..2).map(|_| engine.attach()).collect();
    let taken: Vec<usize> = std::thread::scope(|scope| {
        let of = |index| match index % 2 {
            0 => ToEngine::Stats,
            _ => ToEngine::Sockets,
        };
        let observers = observers
            .iter()
            .enumerate()
            .map(|(index, socket)| scope.spawn(move || flood(socket, &of(index), &[])));
        let own = own.as_fd();
        let sessions =
            sessions.iter().map(|socket| scope.spawn(move || flood(socket, &listen(1), &[own])));
        let floods: Vec<_> = observers.chain(sessions).collect();
        // All the while others attach, listen and ask.
        let mut rounds = 0;
        while rounds < 10 || floods.iter().any(|flood| !flood.is_finished()) {
            rounds += 1;
            let session = engine.attach();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let granted = ask(&session, &listen(7), &[listener.as_fd()]);
            assert!(matches!(granted, Some(FromEngine::Granted { serial: 7, .. })), "{granted:?}");
            assert!(engine.counter("requests") < u64::MAX);
        }
        floods.into_iter().map(|flood| flood.join().unwrap()).collect()
    });
    assert!(taken.iter().all(|questions| *questions > 0), "{taken:?}");
    assert_eq!(engine.counter("control_deaf"), 6);
    assert!(engine.counter("control_held") > 0);
}

#[test]
fn a_session_beyond_the_limit_is_refused_with_a_sentence() {
    let engine = start("full", Limits { sessions: 3, sessions_per_user: 3, ..Limits::default() });
    let sessions: Vec<Socket> = (0..3).map(|_| engine.attach()).collect();
    let refused = ask(&engine.connect(), &hello(Role::Session), &[]);
    let Some(FromEngine::Refused { reason, .. }) = refused else { panic!("{refused:?}") };
    assert!(reason.contains("`sessions` permits 3 sessions"), "{reason}");
    drop(sessions);
    // Their memory is back once the worker has ended them.
    while engine.counter("sessions") > 0 {
        std::thread::yield_now();
    }
    drop(engine.attach());
}

#[test]
fn an_observer_is_told_that_its_captures_file_is_full() {
    let engine = start("full-file", Limits::default());
    let observer = engine.observe();
    let full = std::fs::File::create("/dev/full").unwrap();
    let capture = ToEngine::Capture { port: String::new(), snap_bytes: 0, filter: String::new() };
    observer.send(&capture, &[full.as_fd()], Wait::Yes).unwrap();
    // The writer may be faster than the answer.
    loop {
        match observer.receive(Wait::Yes).unwrap() {
            (FromEngine::Capturing { refused: None }, _) => (),
            (FromEngine::Capturing { refused: Some(reason) }, _) => {
                break assert!(reason.contains("cannot be written"), "{reason}");
            }
            other => panic!("not about the capture: {other:?}"),
        }
    }
    // Ended on request, the connection hangs up once all is written.
    rustix::net::shutdown(&observer, rustix::net::Shutdown::Write).unwrap();
    while let Some(late) = answer(&observer) {
        assert!(matches!(late, FromEngine::Capturing { .. }), "{late:?}");
    }
}

#[test]
fn a_library_of_another_contract_is_refused_with_a_sentence_that_names_both() {
    let engine = start("contract", Limits::default());
    let newer = CONTRACT_VERSION + 1;
    for role in [Role::Session, Role::Observer] {
        let hello = ToEngine::Hello { contract: newer, role, program: "test".into() };
        let socket = engine.connect();
        let refused = ask(&socket, &hello, &[]);
        let Some(FromEngine::Refused { contract, reason }) = refused else { panic!("{refused:?}") };
        assert_eq!(contract, CONTRACT_VERSION);
        assert!(reason.contains(&format!("the engine speaks contract {CONTRACT_VERSION}")));
        assert!(reason.contains(&format!("library contract {newer}")), "{reason}");
        assert!(reason.contains("same release"), "{reason}");
        assert_eq!(answer(&socket), None);
    }
    assert_eq!(engine.counter("sessions_refused"), 2);
}

#[test]
fn one_user_cannot_take_all_sessions_by_default() {
    let limits = Limits::default();
    assert_eq!(limits.sessions_per_user, limits.sessions / 2);
}

#[test]
fn a_control_socket_that_is_removed_comes_back() {
    let limits = Limits::default();
    let running = start("removed", limits);
    let before = running.attach();
    for _ in 0..2 {
        std::fs::remove_file(&running.path).unwrap();
        while Socket::connect(&running.path).is_err() {
            std::thread::yield_now();
        }
        // New ones come in, and the one that was there goes on.
        drop(running.attach());
        assert!(matches!(
            ask(&before, &ToEngine::Interfaces { serial: 7 }, &[]),
            Some(FromEngine::Interfaces { serial: 7, .. })
        ));
    }
}

#[test]
fn an_engine_leaves_the_socket_of_its_successor_alone() {
    let running = start("taken", Limits::default());
    let path = running.path.clone();
    let other = path.with_extension("other");
    let successor = shm::control::ControlListener::bind(&other, 0o600).unwrap();
    std::fs::rename(&other, &path).unwrap();
    drop(running);
    assert!(path.exists());
    drop(successor);
    let _ = std::fs::remove_file(&path);
}

/// A port that fails as no port should.
struct Panicking(PairPort);

impl port::Port for Panicking {
    fn info(&self) -> &port::PortInfo {
        self.0.info()
    }
    fn receive(&mut self, _: &mut port::RxBurst) {
        panic!("planned by a test");
    }
    fn frame(&self, handle: port::RxHandle) -> port::RxFrame<'_> {
        self.0.frame(handle)
    }
    fn release(&mut self, burst: &mut port::RxBurst) {
        self.0.release(burst);
    }
    fn send(
        &mut self,
        meta: &port::TxMeta,
        header: &[u8],
        payload: &[arch::SharedBytes<'_>],
    ) -> Result<(), port::TxError> {
        self.0.send(meta, header, payload)
    }
    fn flush(&mut self) {}
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    fn counters(&self) -> port::PortCounters {
        self.0.counters()
    }
}

#[test]
fn a_panic_ends_the_whole_engine_and_removes_its_socket() {
    let (engine, path) = {
        let (port, _, _) = pair(&PairConfig::default());
        let path = std::env::temp_dir().join(format!("outboard-panic-{}", std::process::id()));
        let setup = PortSetup {
            port: Box::new(Panicking(port)),
            addresses: Vec::new(),
            gateway: None,
            routes: Vec::new(),
            ipv6: stack::api::Ipv6Mode::Off,
        };
        (Engine::start(EngineConfig::new(&path), vec![setup]).unwrap(), path)
    };
    // Nobody tells it to end.
    let said = engine.join().unwrap_err().to_string();
    assert!(said.contains("outboard-w0 panicked"), "{said}");
    assert!(!path.exists());
}

/// The number of a memory that a session asks for, and its memfd; or the errno.
fn register(session: &Socket, bytes: u64) -> Result<(u16, std::os::fd::OwnedFd), i32> {
    session.send(&ToEngine::Register { serial: 5, bytes }, &[], Wait::Yes).unwrap();
    match session.receive::<FromEngine>(Wait::Yes).unwrap() {
        (FromEngine::Registered { serial: 5, number, .. }, fds) => {
            Ok((number, fds.into_iter().next().expect("a memfd")))
        }
        (FromEngine::Denied { serial: 5, errno, .. }, _) => Err(errno),
        other => panic!("{other:?}"),
    }
}

/// Waits until a counter has a value.
fn settles(engine: &Running, name: &str, value: u64) {
    let patience = std::time::Instant::now() + Duration::from_secs(30);
    while engine.counter(name) != value {
        assert!(std::time::Instant::now() < patience, "{name} is {}", engine.counter(name));
    }
}

#[test]
fn registered_memory_is_sealed_bounded_and_given_back() {
    let engine = start("memory", Limits::default());
    let session = engine.attach();
    let errno = |errno: rustix::io::Errno| errno.raw_os_error();
    for bytes in [0, (256 << 20) + 1, u64::MAX] {
        assert_eq!(register(&session, bytes).err(), Some(errno(rustix::io::Errno::INVAL)));
    }
    let mut all = Vec::new();
    for number in 1..=64 {
        let (of, file) = register(&session, 5000).unwrap();
        assert_eq!(of, number);
        assert_eq!(rustix::fs::fstat(&file).unwrap().st_size, 8192);
        assert!(rustix::fs::ftruncate(&file, 0).is_err());
        all.push(file);
    }
    assert_eq!(register(&session, 1).err(), Some(errno(rustix::io::Errno::NOSPC)));
    assert_eq!(engine.counter("memories"), 64);
    assert_eq!(engine.counter("memories_refused"), 4);
    // Twice, and what it never had: its connection goes on.
    for number in [7, 7, 0, 65, u16::MAX] {
        session.send(&ToEngine::Unregister { number }, &[], Wait::Yes).unwrap();
    }
    settles(&engine, "memories", 63);
    assert_eq!(register(&session, 1).map(|(number, _)| number), Ok(7));
    // Others have memories of their own.
    let other = engine.attach();
    assert_eq!(register(&other, 1).map(|(number, _)| number), Ok(1));
    drop(session);
    settles(&engine, "memories", 1);
}

#[test]
fn a_program_that_registers_without_end_uses_no_more_than_it_may() {
    let engine = start("registers", Limits::default());
    let session = engine.attach();
    for _ in 0..2000 {
        let (number, _) = register(&session, 4096).unwrap();
        session.send(&ToEngine::Unregister { number }, &[], Wait::Yes).unwrap();
    }
    settles(&engine, "memories", 0);
    assert_eq!(engine.counter("breaches"), 0);
}
