//! Registered memory: messages that leave from it and arrive in it, between two hosts and within one,
//! and what becomes of it when it is given back, or its program dies, while they are under way.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use client::memory::{Piece, Registered};
use client::message::{Buffers, Completion, Endpoint, Message, Outcome, Pattern, Peer, Send};
use client::{Errno, Kind, Session};
use engine::control::exchange::{Answer, Command, SessionKey, Shown};
use engine::session::{SessionSeed, SessionWho};
use engine::stats::Counters;
use engine::{Cidr, Limits, PortSetup, TcpSettings, Worker, WorkerConfig};
use port::pair::{PairConfig, pair};
use shm::region::Region;
use stack::api::{Instant, Ipv6Mode};

const HOSTS: [&str; 2] = ["10.0.0.1", "10.0.0.2"];
const KEY: [u8; 16] = [7; 16];
const TAG: u64 = 42;

fn limits() -> Limits {
    Limits {
        contexts: 1,
        endpoints: 16,
        buffers: 64,
        buffer_bytes: 16 << 10,
        send_slots: 256,
        receive_slots: 256,
        ..Limits::default()
    }
}

struct Host {
    worker: Worker,
    counters: Arc<Counters>,
    answers: Vec<Answer>,
}

struct Hosts {
    now: u64,
    hosts: [Host; 2],
}

impl Hosts {
    fn turn(&mut self) {
        self.now += 10_000;
        for host in &mut self.hosts {
            host.worker.turn(Instant(self.now));
            host.answers.extend(host.worker.take_answers());
            host.worker.check_conservation().expect("every span has one holder");
        }
    }
}

/// Two hosts on one link.
#[derive(Clone)]
struct Net(Arc<Mutex<Hosts>>);

struct Program {
    net: Net,
    host: usize,
    key: SessionKey,
    session: Arc<Session>,
    endpoint: Endpoint,
    _engine: OwnedFd,
}

impl Net {
    fn new() -> Self {
        let (a, b, _) = pair(&PairConfig::default());
        let host = |port: Box<dyn port::Port>, number: usize| {
            let counters = Arc::new(Counters::default());
            let setup = PortSetup {
                port,
                addresses: vec![Cidr { address: HOSTS[number].parse().unwrap(), prefix: 24 }],
                gateway: None,
                routes: Vec::new(),
                ipv6: Ipv6Mode::Off,
            };
            let config = WorkerConfig {
                limits: limits(),
                stack_limits: stack::Limits { connections: 64, ..stack::Limits::default() },
                tcp: TcpSettings::default(),
                seed: [number as u8 + 1; 32],
                index: 0,
            };
            let worker = Worker::new(config, vec![setup], Arc::clone(&counters), Instant(1));
            Host { worker: worker.unwrap(), counters, answers: Vec::new() }
        };
        let hosts = [host(Box::new(a), 0), host(Box::new(b), 1)];
        Self(Arc::new(Mutex::new(Hosts { now: 1_000_000, hosts })))
    }

    fn with<R>(&self, work: impl FnOnce(&mut Hosts) -> R) -> R {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn turn(&self) {
        self.with(Hosts::turn);
    }

    /// Does what the control thread would, and gives what `found` finds among the answers.
    fn ask<R>(
        &self,
        host: usize,
        command: Command,
        found: impl Fn(&Answer) -> Option<R>,
    ) -> Option<R> {
        self.with(|hosts| {
            let now = Instant(hosts.now);
            hosts.hosts[host].worker.on_command(command, now);
            hosts.turn();
            hosts.hosts[host].answers.iter().rev().find_map(found)
        })
    }

    fn counter(&self, host: usize, name: &str) -> u64 {
        self.with(|hosts| {
            let host = &mut hosts.hosts[host];
            host.worker.copy_counters();
            let all = host.counters.read();
            all.into_iter().find(|(of, _)| of == name).expect("a counter").1
        })
    }

    /// Whether the worker of a host has left a memory of a session.
    fn has_left(&self, host: usize, of: SessionKey) -> bool {
        self.with(|hosts| {
            let mut all = hosts.hosts[host].answers.iter();
            all.any(
                |answer| matches!(answer, Answer::Unregistered { session, .. } if *session == of),
            )
        })
    }

    /// A program with a message endpoint at `port`.
    fn program(&self, host: usize, key: u64, port: u16) -> Program {
        let region = Arc::new(Region::private(limits().geometry(1)).unwrap());
        let key = SessionKey(key);
        let seed = SessionSeed {
            key,
            geometry: *region.geometry(),
            region: Arc::clone(&region),
            pipes: None,
            who: SessionWho { program: "test".into(), pid: 1, uid: 0 },
        };
        self.with(|hosts| hosts.hosts[host].worker.attach(seed));
        let pump = self.clone();
        let pump = Arc::new(move || pump.turn());
        let (session, engine) = Session::in_process(region, 0, Vec::new(), pump).unwrap();
        let local = SocketAddr::new(HOSTS[host].parse().unwrap(), port);
        let bind = Command::BindMessages {
            session: key,
            serial: 1,
            context: 0,
            shown: Shown::alone(local, 7),
            key: Some(KEY),
            incarnation: 1 + host as u64,
        };
        let granted = self.ask(host, bind, |answer| match answer {
            Answer::Granted { session, endpoint, .. } if *session == key => Some(*endpoint),
            _ => None,
        });
        let endpoint = session.adopt_messages(granted.expect("an endpoint"), local).unwrap();
        Program { net: self.clone(), host, key, session, endpoint, _engine: engine }
    }
}

impl Program {
    /// Registered memory; the library thinks that it has `seen` bytes.
    fn register_as(&self, number: u16, bytes: u64, seen: u64) -> Registered {
        let memory = Arc::new(shm::memory::Registered::private(bytes).unwrap());
        let (session, given) = (self.key, Arc::clone(&memory));
        let command = Command::Register { session, serial: 9, number, memory: given };
        let known = self.net.ask(self.host, command, |answer| match answer {
            Answer::Registered { is_known, number: of, .. } if *of == number => Some(*is_known),
            _ => None,
        });
        assert_eq!(known, Some(true));
        let seen = match seen == bytes {
            true => memory,
            false => Arc::new(shm::memory::Registered::private(seen).unwrap()),
        };
        self.session.adopt_memory(number, seen)
    }

    fn register(&self, number: u16, bytes: u64) -> Registered {
        self.register_as(number, bytes, bytes)
    }

    /// A connection to another program: both ends of it.
    fn connect(&self, to: &Self, port: u16) -> [client::Endpoint; 2] {
        let local = SocketAddr::new(HOSTS[to.host].parse().unwrap(), port);
        let shown = Shown::alone(local, u64::from(port));
        let (session, serial, beside) = (to.key, 3, Vec::new());
        let listen = Command::Listen { session, serial, context: 0, backlog: 8, shown, beside };
        let granted = self.net.ask(to.host, listen, |answer| match answer {
            Answer::Granted { serial: 3, endpoint, .. } => Some(*endpoint),
            _ => None,
        });
        let listener =
            to.session.adopt(Kind::Listener, granted.expect("a listener"), local).unwrap();
        let near = self.session.connect(local, None, &Default::default()).unwrap();
        for _ in 0..10_000 {
            match listener.accept() {
                Ok(accepted) => return [near, accepted.endpoint],
                Err(Errno::AGAIN) => self.net.turn(),
                Err(errno) => panic!("{errno}"),
            }
        }
        panic!("no connection");
    }

    fn unregister(&self, number: u16) {
        let session = self.key;
        self.net.ask(self.host, Command::Unregister { session, number }, |_| None::<()>);
    }

    fn peer(&self, of: &Self) -> Peer {
        self.endpoint.add_peer(of.endpoint.address()).unwrap()
    }

    /// Waits for the next operation that ends.
    fn complete(&self, memory: &mut Buffers) -> Completion {
        for _ in 0..100_000 {
            if let Some(completion) = self.endpoint.poll_completion(memory).expect("an engine") {
                return completion;
            }
            self.net.turn();
        }
        panic!("nothing ends");
    }

    fn outcome(&self) -> Outcome {
        self.complete(&mut Buffers::default()).outcome
    }
}

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + seed * 7 + at / 251) as u8).collect()
}

/// `len` bytes from `start` on, in pieces that begin and end anywhere, with gaps between them.
fn pieces<'a>(memory: &'a Registered, start: u64, len: u32, most: u32) -> Vec<Piece<'a>> {
    let (mut at, mut left, mut all) = (start, len, Vec::new());
    while left > 0 {
        let here = left.min(most);
        all.push(memory.piece(at, here).expect("room"));
        at += u64::from(here) + 3;
        left -= here;
    }
    all
}

/// Puts bytes where [`pieces`] of the same numbers are.
fn fill(memory: &Registered, start: u64, bytes: &[u8], most: usize) {
    for (number, chunk) in bytes.chunks(most.max(1)).enumerate() {
        memory.write(start + (number * (most + 3)) as u64, chunk);
    }
}

/// The bytes where [`pieces`] of the same numbers are, and whether what lies between is untouched.
fn taken(memory: &Registered, start: u64, len: usize, most: usize) -> Vec<u8> {
    let mut all = vec![0; len];
    for (number, chunk) in all.chunks_mut(most.max(1)).enumerate() {
        let at = start + (number * (most + 3)) as u64;
        memory.read(at, chunk);
        let mut gap = [9; 3];
        memory.read(at + chunk.len() as u64, &mut gap);
        assert_eq!(gap, [0; 3], "bytes beyond a piece were written");
    }
    all
}

fn send() -> Send {
    Send { tag: Some(TAG), ..Send::default() }
}

fn any() -> Pattern {
    Pattern { source: None, tag: Some((TAG, 0)) }
}

fn received(outcome: Outcome) -> Message {
    match outcome {
        Outcome::Received(message) => message,
        other => panic!("{other:?}"),
    }
}

/// Lengths within an envelope, a frame, copied at once, announced, and longer than a receive's window.
const LENGTHS: [u32; 9] = [0, 1, 128, 129, 1408, 16_384, 16_385, 100_000, 700_001];

/// Sends messages of all lengths from one program's memory to the other's.
fn carries(from: &Program, to: &Program, most: u32, is_late: bool) {
    let (source, target) = (from.register(1, 4 << 20), to.register(64, 4 << 20));
    let peer = from.peer(to);
    for (number, length) in LENGTHS.into_iter().enumerate() {
        // Lists have at most 1024 pieces.
        let most = most.max(length / 1000);
        let bytes = pattern(number, length as usize);
        fill(&source, 64, &bytes, most as usize);
        target.write(0, &vec![0; 4 << 20]);
        let room = pieces(&target, 128, length, most);
        let sent = pieces(&source, 64, length, most);
        if !is_late {
            to.endpoint.post_recv_registered(&any(), &room, 5).unwrap();
            from.net.turn();
        }
        from.endpoint.send_registered(peer, &send(), &sent, 6).unwrap();
        if is_late {
            (0..20).for_each(|_| from.net.turn());
            to.endpoint.post_recv_registered(&any(), &room, 5).unwrap();
        }
        let message = received(to.outcome());
        assert_eq!((message.length, message.copied), (u64::from(length), u64::from(length)));
        assert_eq!(message.tag, Some(TAG));
        assert!(taken(&target, 128, bytes.len(), most as usize) == bytes, "{length} bytes differ");
        assert_eq!(from.outcome(), Outcome::Sent);
    }
}

#[test]
fn messages_go_from_registered_memory_to_registered_memory_of_another_host() {
    for (most, is_late) in [(u32::MAX / 2, false), (700, false), (61, true)] {
        let net = Net::new();
        let (a, b) = (net.program(0, 1, 100), net.program(1, 1, 100));
        let before = net.counter(1, "buffers_free");
        carries(&a, &b, most, is_late);
        assert!(net.counter(1, "messages_rx_frames") > 500);
        // Completions lie in one, and two are kept for them.
        assert!(net.counter(1, "buffers_free") >= before - 3, "it went through buffers");
    }
}

#[test]
fn messages_go_from_registered_memory_to_registered_memory_of_the_same_host() {
    for (most, is_late) in [(u32::MAX / 2, false), (700, true)] {
        let net = Net::new();
        let (a, b) = (net.program(0, 1, 100), net.program(0, 2, 101));
        carries(&a, &b, most, is_late);
        assert_eq!(net.counter(0, "messages_rx_frames"), 0);
    }
}

#[test]
fn registered_memory_and_buffers_go_together() {
    let net = Net::new();
    let (a, b) = (net.program(0, 1, 100), net.program(1, 1, 100));
    let (source, target) = (a.register(1, 1 << 20), b.register(1, 1 << 20));
    let (of_a, of_b) = (b.peer(&a), a.peer(&b));
    let _ = of_a;
    for (number, length) in LENGTHS.into_iter().take(8).enumerate() {
        let bytes = pattern(number, length as usize);
        // From registered memory to the program's own.
        source.write(0, &bytes);
        let mut buffers = Buffers::default();
        buffers.add(5, vec![0; length as usize]);
        b.endpoint.post_recv(&any(), u64::from(length), 5).unwrap();
        let piece = [source.piece(0, length).unwrap()];
        a.endpoint.send_registered(of_b, &send(), &piece, 6).unwrap();
        received(b.complete(&mut buffers).outcome);
        assert!(buffers.take(5).unwrap() == bytes, "{length} bytes differ");
        assert_eq!(a.outcome(), Outcome::Sent);
        // And the other way.
        let room = [target.piece(0, length).unwrap()];
        b.endpoint.post_recv_registered(&any(), &room, 5).unwrap();
        let mut buffers = Buffers::default();
        buffers.add(6, bytes.clone());
        a.endpoint.send(of_b, &send(), &[std::io::IoSlice::new(&bytes)], 6).unwrap();
        let mut sent = None;
        let message = loop {
            if let Some(done) = a.endpoint.poll_completion(&mut buffers).unwrap() {
                sent = Some(done.outcome);
            }
            if let Some(done) = b.endpoint.poll_completion(&mut Buffers::default()).unwrap() {
                break received(done.outcome);
            }
            net.turn();
        };
        assert_eq!(message.copied, u64::from(length));
        assert!(taken(&target, 0, bytes.len(), usize::MAX / 2) == bytes, "{length} bytes differ");
        assert_eq!(sent.unwrap_or_else(|| a.complete(&mut buffers).outcome), Outcome::Sent);
        target.write(0, &vec![0; length as usize]);
    }
}

#[test]
fn a_message_that_is_too_long_fills_the_room_and_no_more() {
    let net = Net::new();
    let (a, b) = (net.program(0, 1, 100), net.program(1, 1, 100));
    let (source, target) = (a.register(1, 1 << 20), b.register(1, 1 << 20));
    for length in [1000, 100_000] {
        let bytes = pattern(3, length as usize);
        source.write(0, &bytes);
        target.write(0, &vec![0; length as usize]);
        let room = [target.piece(10, length / 2).unwrap()];
        b.endpoint.post_recv_registered(&any(), &room, 5).unwrap();
        let piece = [source.piece(0, length).unwrap()];
        a.endpoint.send_registered(a.peer(&b), &send(), &piece, 6).unwrap();
        let Outcome::Failed { errno, message } = b.outcome() else { panic!("not told") };
        assert_eq!((errno, message.unwrap().length), (Errno::MSGSIZE, u64::from(length)));
        let mut found = vec![1; length as usize];
        target.read(10, &mut found);
        let half = length as usize / 2;
        assert!(found[..half] == bytes[..half] && found[half..].iter().all(|byte| *byte == 0));
        assert_eq!(a.outcome(), Outcome::Sent);
    }
}

#[test]
fn the_end_of_a_watched_operation_is_told_in_its_line_alone() {
    let net = Net::new();
    let (a, b) = (net.program(0, 1, 100), net.program(1, 1, 100));
    let (source, target) = (a.register(1, 1 << 20), b.register(1, 1 << 20));
    source.write(4096, b"hello");
    for _ in 0..3 {
        let room = [target.piece(4096, 100).unwrap()];
        let receive =
            b.endpoint.post_recv_watched(&any(), &room, target.line(64).unwrap()).unwrap();
        let piece = [source.piece(4096, 5).unwrap()];
        let line = source.line(0).unwrap();
        let sent = a.endpoint.send_watched(a.peer(&b), &send(), &piece, line).unwrap();
        assert!(!receive.is_done() && !sent.is_done());
        for _ in 0..10_000 {
            if receive.is_done() && sent.is_done() {
                break;
            }
            net.turn();
        }
        assert!(!a.endpoint.has_news() && !b.endpoint.has_news());
        let done = b.endpoint.finish(receive).unwrap().expect("it is done");
        let message = received(done.outcome);
        assert_eq!((message.length, message.tag), (5, Some(TAG)));
        let ended = a.endpoint.finish(sent).unwrap().expect("it is done");
        assert_eq!(ended.outcome, Outcome::Sent);
    }
    // One that fails is told there, too: nobody has this number.
    let nobody = a.endpoint.add_peer("10.0.0.2:999".parse().unwrap()).unwrap();
    let piece = [source.piece(4096, 5).unwrap()];
    let line = source.line(0).unwrap();
    let mut sent = a.endpoint.send_watched(nobody, &send(), &piece, line).unwrap();
    let done = loop {
        match a.endpoint.finish(sent).unwrap() {
            Ok(done) => break done,
            Err(watched) => sent = watched,
        }
        net.turn();
    };
    assert_eq!(done.outcome, Outcome::Failed { errno: Errno::CONNREFUSED, message: None });
}

#[test]
fn memory_that_there_is_not_fails_its_operation_alone() {
    let net = Net::new();
    let (a, b) = (net.program(0, 1, 100), net.program(1, 1, 100));
    let peer = a.peer(&b);
    let short = a.register_as(1, 4096, 8192);
    let unknown = Arc::new(shm::memory::Registered::private(4096).unwrap());
    let unknown = a.session.adopt_memory(2, unknown);
    let fails = |pieces: &[Piece<'_>]| {
        a.endpoint.send_registered(peer, &send(), pieces, 6).unwrap();
        assert_eq!(a.outcome(), Outcome::Failed { errno: Errno::FAULT, message: None });
        a.endpoint.post_recv_registered(&any(), pieces, 6).unwrap();
        assert_eq!(a.outcome(), Outcome::Failed { errno: Errno::FAULT, message: None });
    };
    fails(&[short.piece(4000, 97).unwrap()]);
    fails(&[short.piece(0, 10).unwrap(), short.piece(4096, 1).unwrap()]);
    fails(&[unknown.piece(0, 1).unwrap()]);
    fails(&[short.piece(0, 1).unwrap(), unknown.piece(0, 1).unwrap()]);
    assert_eq!(net.counter(0, "messages_memory_refused"), 8);
    // A line that lies beyond: its program hears of it in the queue.
    let piece = [short.piece(0, 1).unwrap()];
    a.endpoint.send_watched(peer, &send(), &piece, short.line(4096).unwrap()).unwrap();
    assert_eq!(a.outcome(), Outcome::Failed { errno: Errno::FAULT, message: None });
    // What is given back cannot be named any more.
    a.unregister(1);
    fails(&piece);
    assert!(net.has_left(0, a.key));
    // Lists beyond what there may be.
    let many = vec![unknown.piece(0, 1).unwrap(); 1025];
    assert_eq!(a.endpoint.send_registered(peer, &send(), &many, 6), Err(Errno::MSGSIZE));
    let of_b = b.register(1, 4096);
    let foreign = [of_b.piece(0, 1).unwrap()];
    assert_eq!(a.endpoint.send_registered(peer, &send(), &foreign, 6), Err(Errno::INVAL));
}

#[test]
fn memory_given_back_lasts_until_what_is_under_way_has_arrived() {
    let net = Net::new();
    let (a, b) = (net.program(0, 1, 100), net.program(1, 1, 100));
    let (source, target) = (a.register(1, 1 << 20), b.register(1, 1 << 20));
    let bytes = pattern(1, 500_000);
    source.write(0, &bytes);
    let piece = [source.piece(0, 500_000).unwrap()];
    a.endpoint.send_registered(a.peer(&b), &send(), &piece, 6).unwrap();
    (0..10).for_each(|_| net.turn());
    // Twice: the second time there is nothing to be given back.
    a.unregister(1);
    a.unregister(1);
    (0..100).for_each(|_| net.turn());
    assert!(!net.has_left(0, a.key), "it was left while a message is sent from it");
    let room = [target.piece(0, 500_000).unwrap()];
    b.endpoint.post_recv_registered(&any(), &room, 5).unwrap();
    net.turn();
    b.unregister(1);
    received(b.outcome());
    assert!(taken(&target, 0, bytes.len(), usize::MAX / 2) == bytes);
    assert_eq!(a.outcome(), Outcome::Sent);
    net.turn();
    assert!(net.has_left(0, a.key) && net.has_left(1, b.key));
}

#[test]
fn a_message_of_a_program_that_dies_arrives_whole_and_its_memory_goes_with_it() {
    let net = Net::new();
    let (a, b) = (net.program(0, 1, 100), net.program(1, 1, 100));
    let (source, target) = (a.register(1, 1 << 20), b.register(1, 1 << 20));
    let bytes = pattern(1, 500_000);
    source.write(0, &bytes);
    let room = [target.piece(0, 500_000).unwrap()];
    b.endpoint.post_recv_registered(&any(), &room, 5).unwrap();
    let piece = [source.piece(0, 500_000).unwrap()];
    a.endpoint.send_registered(a.peer(&b), &send(), &piece, 6).unwrap();
    (0..3).for_each(|_| net.turn());
    net.with(|hosts| {
        let key = a.key;
        hosts.hosts[0].worker.detach(key);
    });
    assert_eq!(net.with(|hosts| hosts.hosts[0].worker.session_count()), 1);
    received(b.outcome());
    assert!(taken(&target, 0, bytes.len(), usize::MAX / 2) == bytes);
    for _ in 0..100_000 {
        if net.with(|hosts| hosts.hosts[0].worker.session_count()) == 0 {
            return;
        }
        net.turn();
    }
    panic!("the session of the dead program is kept");
}

/// Reads all that there is.
fn drain(from: &client::Endpoint, to: &mut Vec<u8>) -> Result<(), Errno> {
    let mut room = vec![0; 1 << 16];
    loop {
        match from.read(&mut room) {
            Ok(0) => return Ok(()),
            Ok(len) => to.extend_from_slice(&room[..len]),
            Err(Errno::AGAIN) => return Ok(()),
            Err(errno) => return Err(errno),
        }
    }
}

#[test]
fn a_stream_leaves_from_registered_memory_and_what_is_written_between_keeps_its_place() {
    let net = Net::new();
    let (a, b) = (net.program(0, 1, 100), net.program(1, 1, 100));
    let [near, far] = a.connect(&b, 80);
    let memory = a.register(3, 4 << 20);
    let bytes = pattern(1, 4 << 20);
    memory.write(0, &bytes);
    let (mut expected, mut got) = (Vec::new(), Vec::new());
    let (mut at, mut round) = (0, 0);
    while at < bytes.len() {
        // Pieces of all lengths, contiguous ones among them, and bytes of the program's own.
        let len = [1, 100, 1448, 70_000, 300_000][round % 5].min(bytes.len() - at);
        let piece = memory.piece(at as u64, len as u32).unwrap();
        match near.write_registered(&[piece]) {
            Ok(1) => {
                expected.extend_from_slice(&bytes[at..at + len]);
                at += len;
                if round % 3 == 0 && near.write(b"between").is_ok_and(|len| len == 7) {
                    expected.extend_from_slice(b"between");
                }
                round += 1;
            }
            Err(Errno::AGAIN) => {}
            other => panic!("{other:?}"),
        }
        net.turn();
        drain(&far, &mut got).unwrap();
    }
    a.unregister(3);
    assert!(!net.has_left(0, a.key), "it was left before the peer has it all");
    for _ in 0..100_000 {
        if got.len() == expected.len() && net.has_left(0, a.key) {
            break;
        }
        net.turn();
        drain(&far, &mut got).unwrap();
    }
    assert_eq!(got.len(), expected.len());
    assert!(got == expected, "the bytes differ");
    let (acked, written) = near.send_ends();
    assert_eq!((acked, written), (expected.len() as u64, expected.len() as u64));
    assert_eq!(near.has_acknowledged(acked), Ok(true));
    near.close();
    assert_eq!(near.has_acknowledged(acked + 1), Err(Errno::BADF));
    assert!(net.has_left(0, a.key));
}

#[test]
fn a_stream_from_memory_that_there_is_not_is_reset() {
    let net = Net::new();
    let (a, b) = (net.program(0, 1, 100), net.program(1, 1, 100));
    let [near, far] = a.connect(&b, 80);
    let short = a.register_as(1, 4096, 8192);
    assert_eq!(near.write_registered(&[short.piece(0, 4096).unwrap()]), Ok(1));
    let mut got = Vec::new();
    for _ in 0..100 {
        net.turn();
        drain(&far, &mut got).unwrap();
    }
    assert_eq!(got.len(), 4096);
    assert_eq!(near.write_registered(&[short.piece(4000, 4000).unwrap()]), Ok(1));
    let mut outcome = Ok(());
    for _ in 0..1000 {
        net.turn();
        outcome = drain(&far, &mut got);
        if outcome.is_err() {
            break;
        }
    }
    assert_eq!((outcome, got.len()), (Err(Errno::CONNRESET), 4096));
    assert_eq!(net.counter(0, "stream_memory_refused"), 1);
    assert_eq!(net.counter(0, "breaches"), 0);
    let error = near.write(b"more").unwrap_err();
    assert!(matches!(error, Errno::CONNRESET | Errno::CONNABORTED | Errno::PIPE), "{error}");
}

/// A program that posts receives and does not look: what arrives is bounded, and it gets all of it when
/// it looks.
#[test]
fn long_messages_to_a_program_without_room_wait_with_their_sender() {
    let net = Net::new();
    let (a, b) = (net.program(0, 1, 100), net.program(1, 1, 100));
    const LENGTH: u32 = 64 << 20;
    let source = a.register(1, u64::from(LENGTH));
    let bytes = pattern(1, LENGTH as usize);
    source.write(0, &bytes);
    // More of them than its session has buffers for.
    const COUNT: u64 = 12;
    let mut buffers = Buffers::default();
    for context in 0..COUNT {
        buffers.add(context, vec![0; LENGTH as usize]);
        b.endpoint.post_recv(&any(), u64::from(LENGTH), context).unwrap();
    }
    let piece = [source.piece(0, LENGTH).unwrap()];
    a.endpoint.send_registered(a.peer(&b), &send(), &piece, 0).unwrap();
    for _ in 1..COUNT {
        let short = [source.piece(0, 1 << 20).unwrap()];
        a.endpoint.send_registered(a.peer(&b), &send(), &short, 0).unwrap();
    }
    (0..3000).for_each(|_| net.turn());
    let pages = net.counter(1, "messages_spilled");
    let budget = 2 * u64::from(limits().buffers);
    assert!(pages <= budget, "{pages} private pages, and at most {budget} may be");
    for _ in 0..COUNT {
        let done = b.complete(&mut buffers);
        let message = received(done.outcome);
        let room = buffers.take(done.context).unwrap();
        let length = message.copied as usize;
        assert!(room[..length] == bytes[..length], "{length} bytes differ");
    }
}

#[test]
fn receives_beyond_what_a_session_may_get_are_refused() {
    let net = Net::new();
    let b = net.program(1, 1, 100);
    let capacity = 1 << 20;
    let mut refused = 0;
    for context in 0..200 {
        while b.endpoint.post_recv(&any(), capacity, context) == Err(Errno::AGAIN) {
            net.turn();
        }
    }
    (0..10).for_each(|_| net.turn());
    while let Some(done) = b.endpoint.poll_completion(&mut Buffers::default()).unwrap() {
        assert_eq!(done.outcome, Outcome::Failed { errno: Errno::NOBUFS, message: None });
        refused += 1;
    }
    assert!(refused > 0 && refused < 200, "{refused} of 200 were refused");
    assert_eq!(net.counter(1, "messages_windows_refused"), refused);
    // Registered memory needs no room in the session.
    let memory = b.register(1, capacity);
    let room = [memory.piece(0, capacity as u32).unwrap()];
    b.endpoint.post_recv_registered(&any(), &room, 1).unwrap();
    (0..10).for_each(|_| net.turn());
    assert_eq!(b.endpoint.poll_completion(&mut Buffers::default()), Ok(None));
}

#[test]
fn watched_operations_that_are_dropped_end_nevertheless() {
    let net = Net::new();
    let a = net.program(0, 1, 100);
    let memory = a.register(1, 8 << 20);
    let nobody = a.endpoint.add_peer("10.0.0.1:999".parse().unwrap()).unwrap();
    // More of them than an endpoint may have at once.
    let most = u64::from(shm::message::OPERATIONS_MAX) + 1000;
    for number in 0..most {
        let line = memory.line(64 + number * 64).unwrap();
        let piece = [memory.piece(0, 1).unwrap()];
        let mut tries = 0;
        while a.endpoint.send_watched(nobody, &send(), &piece, line.clone()).is_err() {
            assert_eq!(a.endpoint.poll_completion(&mut Buffers::default()), Ok(None));
            net.turn();
            tries += 1;
            assert!(tries < 10_000, "none after {number} operations");
        }
    }
}

#[test]
fn a_claimed_message_whose_receive_is_refused_leaves_nothing_behind() {
    let net = Net::new();
    let (a, b) = (net.program(0, 1, 100), net.program(1, 1, 100));
    let memory = a.register(1, 100_000);
    let piece = [memory.piece(0, 100_000).unwrap()];
    a.endpoint.send_registered(a.peer(&b), &send(), &piece, 1).unwrap();
    (0..100).for_each(|_| net.turn());
    let claim = b.endpoint.claim(&any(), 2).unwrap();
    assert!(matches!(b.outcome(), Outcome::Claimed(_)));
    // Receives of another tag have all that the session may get.
    let other = Pattern { source: None, tag: Some((TAG + 1, 0)) };
    for context in 0..200 {
        while b.endpoint.post_recv(&other, 1 << 20, context) == Err(Errno::AGAIN) {
            net.turn();
        }
    }
    (0..10).for_each(|_| net.turn());
    while b.endpoint.poll_completion(&mut Buffers::default()).unwrap().is_some() {}
    b.endpoint.receive_claimed(claim, 100_000, 3).unwrap();
    assert_eq!(b.outcome(), Outcome::Failed { errno: Errno::NOBUFS, message: None });
    // Its sender does not wait for it.
    assert_eq!(a.outcome(), Outcome::Sent);
}
