//! A whole worker with a client that owns a session and keeps to nothing: it scribbles over its
//! region, makes requests and grants, rings, hangs up. Nothing may panic, no buffer may be lost or
//! be owned twice, and an honest session beside it must go on being served.

use std::net::SocketAddr;
use std::sync::Arc;

use engine::control::exchange::{Answer, Command, SessionKey, Shown};
use engine::session::{SessionSeed, SessionWho};
use engine::stats::Counters;
use engine::{Cidr, Limits, PortSetup, TcpSettings, Worker, WorkerConfig};
use port::pair::{PairConfig, PairPort, pair};
use shm::client_side::{Carved, ClientEndpoint, ClientLane, Direction};
use shm::descriptor::{DatagramFlags, DatagramHeader, DescriptorFlags, DescriptorKind, Span};
use shm::lock::Tag;
use shm::region::Region;
use shm::request::{ConnectOptions, OptionName, Reply, Request};
use stack::api::Instant;

const HOST: [u8; 4] = [10, 0, 0, 1];

fn limits() -> Limits {
    Limits {
        contexts: 1,
        endpoints: 8,
        request_slots: 4,
        stock_slots: 8,
        stock_target: 4,
        send_slots: 8,
        receive_slots: 8,
        buffer_bytes: 1024,
        buffers: 32,
        spans: 64,
        sockets: 64,
        ..Limits::default()
    }
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn below(&mut self, bound: u8) -> u8 {
        self.byte() % bound
    }

    fn number(&mut self) -> u64 {
        let (shape, low) = (self.byte(), u64::from(self.byte()));
        match shape % 6 {
            0 => (0..8).fold(0, |number, _| number << 8 | u64::from(self.byte())),
            // A ring's slot; a descriptor's second word; something small; something negative.
            1 => u64::from(self.below(4)) << 32 | low,
            2 => u64::from(self.below(4)) << 32 | u64::from(u32::MAX),
            3 => {
                let (kind, flags) = (u64::from(self.below(6)), u64::from(self.below(8)));
                u64::from(self.below(4)) << 48 | flags << 40 | kind << 32 | low << 4
            }
            4 => low,
            _ => low.wrapping_neg(),
        }
    }
}

struct Client {
    key: SessionKey,
    region: Arc<Region>,
    lane: ClientLane,
    tag: Tag,
}

struct Run {
    worker: Worker,
    now: u64,
    next_key: u64,
    granted: Vec<u32>,
    ended: Vec<SessionKey>,
    _peer: PairPort,
}

impl Run {
    fn attach(&mut self) -> Client {
        let region = Arc::new(Region::private(limits().geometry(1)).expect("our own limits"));
        let key = SessionKey(self.next_key);
        self.next_key += 1;
        self.worker.attach(SessionSeed {
            key,
            geometry: *region.geometry(),
            region: Arc::clone(&region),
            pipes: None,
            who: SessionWho { program: "fuzz".into(), pid: 1, uid: 0 },
        });
        let lane = ClientLane::new(Arc::clone(&region), 0, 0);
        Client { key, region, lane, tag: Tag::new(1, 1) }
    }

    fn turn(&mut self) {
        self.now += 10_000;
        self.worker.turn(Instant(self.now));
        let answers: Vec<Answer> = self.worker.take_answers().collect();
        for answer in answers {
            match answer {
                Answer::Granted { endpoint, .. } => self.granted.push(endpoint),
                Answer::Breached(key, _) => self.ended.push(key),
                _ => {}
            }
        }
        self.worker.check_conservation().expect("every buffer has one owner");
    }

    fn command(&mut self, command: Command) {
        self.worker.on_command(command, Instant(self.now));
        self.turn();
    }
}

fn at(port: u16) -> SocketAddr {
    SocketAddr::from((HOST, port))
}

fn shown(port: u16) -> Shown {
    Shown::alone(at(port), u64::from(port))
}

/// Runs the operations that `data` spells.
pub fn run(data: &[u8]) {
    let (near, far, _) = pair(&PairConfig::default());
    let setup = PortSetup {
        port: Box::new(near),
        addresses: vec![Cidr { address: HOST.into(), prefix: 24 }],
        gateway: None,
        routes: Vec::new(),
        ipv6: stack::api::Ipv6Mode::Off,
    };
    let config = WorkerConfig {
        limits: limits(),
        stack_limits: stack::Limits { connections: 64, ..stack::Limits::default() },
        tcp: TcpSettings::default(),
        seed: [1; 32],
        index: 0,
    };
    let worker = Worker::new(config, vec![setup], Arc::new(Counters::default()), Instant(1))
        .expect("a worker of ours");
    let mut run = Run {
        worker,
        now: 1_000_000,
        next_key: 1,
        granted: Vec::new(),
        ended: Vec::new(),
        _peer: far,
    };
    let honest = run.attach();
    let mut bad = run.attach();
    let mut input = Input(data);
    while !input.0.is_empty() {
        act(&mut run, &bad, &mut input);
        if input.below(3) == 0 {
            run.turn();
        }
        assert!(!run.ended.contains(&honest.key), "the honest session was ended");
        if run.ended.contains(&bad.key) {
            bad = run.attach();
        }
    }
    run.turn();
    // The honest one still gets an answer.
    let mut lane = honest.lane.lock(honest.tag).expect("nobody holds it");
    lane.push_request(&Request::Accept { listener: 0 }).expect("an empty ring");
    let _ = lane.ring_requests();
    run.turn();
    let (_, reply) = lane.take_reply().expect("an answer");
    assert!(matches!(reply, Some(Reply::Failed { .. })));
    drop(lane);
    // And the other's end leaves nothing, once its connections have given up.
    run.worker.detach(bad.key);
    for _ in 0..10_000 {
        let Some(next) = run.worker.next_deadline() else { break };
        if next.0 > 200_000_000_000 + run.now || run.worker.session_count() == 1 {
            break;
        }
        run.now = run.now.max(next.0);
        run.turn();
    }
    assert_eq!(run.worker.session_count(), 1, "a dead session is kept");
}

/// Where the client's own locks lie with these limits, and the counts of its doorbells, of which it waits
/// for room: it would wait for itself for ever.
fn is_waited_for(offset: u64) -> bool {
    const LANE: u64 = 4096;
    const DOORBELLS: [u64; 2] = [LANE, LANE + 136];
    const ENDPOINTS: u64 = LANE + 192 + (32 + 16 + 8) * 8 + 2 * 4 * 64;
    const ENDPOINT_BYTES: u64 = 256 + 2 * 8 * 16;
    let within = offset.checked_sub(ENDPOINTS).map(|at| at % ENDPOINT_BYTES);
    offset == LANE + 128 || DOORBELLS.contains(&offset) || matches!(within, Some(72 | 128))
}

fn act(run: &mut Run, bad: &Client, input: &mut Input<'_>) {
    let endpoint = u32::from(input.below(9));
    match input.below(10) {
        0 | 1 => {
            let words = bad.region.layout().buffers_start() / 8;
            let offset = u64::from(input.byte()) | u64::from(input.byte()) << 8;
            let offset = offset % words * 8;
            if !is_waited_for(offset) {
                bad.region.scribble(offset, input.number());
            }
        }
        2 | 3 => {
            let request = request(endpoint, input);
            if let Ok(mut lane) = bad.lane.lock(bad.tag) {
                if lane.push_request(&request).is_some() {
                    let _ = lane.ring_requests();
                }
                if input.below(2) == 0 {
                    while lane.take_reply().is_some() {}
                }
            }
        }
        4 => {
            let port = u16::from(input.below(3)) + 80;
            run.command(Command::Listen {
                session: bad.key,
                serial: 1,
                context: u16::from(input.below(2)),
                backlog: u32::from(input.byte()),
                shown: shown(port),
                beside: Vec::new(),
            });
        }
        5 => {
            let port = u16::from(input.below(3)) + 80;
            run.command(match input.below(3) {
                0 => {
                    Command::BindUdp { session: bad.key, serial: 1, context: 0, shown: shown(port) }
                }
                1 => Command::BindTcp { session: bad.key, serial: 1, shown: shown(port) },
                _ => Command::RightEnded(shown(port).key),
            });
        }
        6 | 7 => push(bad, endpoint, input),
        8 => {
            let _ = bad.lane.ring(endpoint % 8, Direction::Send);
            let _ = bad.lane.ring(endpoint % 8, Direction::Receive);
        }
        _ => {
            run.now += u64::from(input.byte()) * 10_000_000;
            run.turn();
        }
    }
}

/// A send descriptor: of the stock or of anything.
fn push(bad: &Client, index: u32, input: &mut Input<'_>) {
    let Some(endpoint) = ClientEndpoint::new(Arc::clone(&bad.region), index) else { return };
    let Ok(mut send) = endpoint.lock_send(bad.tag) else { return };
    if send.room() == 0 {
        return;
    }
    let kinds = [DescriptorKind::Data, DescriptorKind::Datagram, DescriptorKind::Fin];
    let kind = kinds[usize::from(input.below(3))];
    let mut flags = DescriptorFlags::from_bits_truncate(input.below(4));
    let carved = bad.lane.lock(bad.tag).ok().and_then(|mut lane| lane.carve(200, 1));
    let span = match carved.filter(|_| input.below(8) > 0) {
        Some(Carved { span, last }) => {
            flags.set(DescriptorFlags::LAST, last);
            span
        }
        None => Span { offset: input.number() & 0xffff_ffff, len: input.number() as u32 },
    };
    let header = DatagramHeader {
        remote: at(80 + u16::from(input.below(3))),
        local: at(0),
        tos: 0,
        ttl: input.byte(),
        interface: 0,
        gso_bytes: u16::from(input.below(3)) * 60,
        flags: DatagramFlags::from_bits_retain(u16::from(input.byte())),
        payload_bytes: u32::from(input.byte()),
    };
    bad.region.write_buffer(span, &header.encode());
    send.push(kind, flags, span);
    let _ = bad.lane.ring(index, Direction::Send);
}

fn request(endpoint: u32, input: &mut Input<'_>) -> Request {
    match input.below(9) {
        0 => Request::Connect {
            remote: at(80 + u16::from(input.below(4))),
            token: u32::from(input.below(3)),
            options: ConnectOptions {
                maxseg: input.number() as u16,
                receive_limit: input.number() as u32,
                user_timeout_ms: input.number() as u32,
                ..ConnectOptions::default()
            },
        },
        1 | 2 => Request::Accept { listener: endpoint },
        3 => Request::Close { endpoint },
        4 => Request::Abort { endpoint },
        5 => Request::StopReceiving { endpoint },
        6 => Request::SetOption {
            endpoint,
            option: OptionName::ALL[usize::from(input.byte()) % OptionName::ALL.len()],
            value: input.number(),
        },
        7 => Request::Info { endpoint },
        _ => Request::ConnectDatagram {
            endpoint,
            remote: Some(at(80 + u16::from(input.below(3)))).filter(|_| input.below(4) > 0),
        },
    }
}
