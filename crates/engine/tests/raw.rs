//! Raw endpoints of one worker: what they see, what they may send, and what a program that breaks the
//! contract costs it.

mod common;

use std::sync::Arc;

use common::{A, B, Net, Program, small};
use outboard_engine::control::exchange::Command;
use outboard_engine::service::raw::RawSeed;
use outboard_engine::service::raw::filter::RawFilter;
use port::pair::PairConfig;
use shm::client_side::Direction;
use shm::control::{FilterInstruction, RawWants};
use shm::raw::{ClientDown, ClientUp, FrameFlags, Meta, Received, RingSizes, Rings, SegmentKind};
use shm::request::{Reply, Request};

const SIZES: RingSizes = RingSizes { up: RingSizes::LEAST, down: RingSizes::LEAST };
const MAC_A: [u8; 6] = [2, 0, 0, 0, 0, 1];
const MAC_B: [u8; 6] = [2, 0, 0, 0, 0, 2];

struct Raw {
    index: u32,
    rings: Arc<Rings>,
    up: ClientUp,
    down: ClientDown,
    /// The engine has asked for a doorbell.
    is_asked: bool,
}

#[derive(Clone)]
struct Spec {
    wants: RawWants,
    spoofs: bool,
    filter: Option<RawFilter>,
}

fn sees(received: bool, sent: bool) -> Spec {
    let wants = RawWants { received, sent, ..RawWants::default() };
    Spec { wants, spoofs: true, filter: None }
}

/// Opens an endpoint at A.
fn open(net: &mut Net, program: &Program, spec: &Spec) -> Result<Raw, i32> {
    // What the stack announces at its start is over.
    net.settle();
    let rings = Arc::new(Rings::private(SIZES).unwrap());
    let Spec { wants, spoofs, filter } = spec.clone();
    let seed = RawSeed { rings: Arc::clone(&rings), ports: vec![0], filter, wants, spoofs };
    let command =
        Command::OpenRaw { session: program.key, serial: 1, context: 0, seed: Box::new(seed) };
    let index = net.a.command(command, net.now)?;
    let up = ClientUp::new(Arc::clone(&rings));
    let down = ClientDown::new(Arc::clone(&rings)).unwrap();
    Ok(Raw { index, rings, up, down, is_asked: false })
}

/// A frame as a program takes it.
type SeenFrame = (FrameFlags, Option<Meta>, Vec<u8>);

impl Raw {
    /// All frames that wait, and how many were lost.
    fn frames(&mut self) -> (Vec<SeenFrame>, u32) {
        let (mut all, mut lost) = (Vec::new(), 0);
        while let Some(received) = self.up.receive().unwrap() {
            match received {
                Received::Lost(count) => lost += count,
                Received::Frame(frame) => {
                    let mut bytes = vec![0; frame.len];
                    self.up.read(&frame, &mut bytes);
                    all.push((frame.flags, frame.meta, bytes));
                }
            }
        }
        self.is_asked = self.up.release();
        (all, lost)
    }

    fn send(&mut self, program: &Program, frame: &[u8], meta: Option<&Meta>) {
        let at = self.down.reserve(1, meta, frame.len()).expect("room");
        self.down.write(at, frame);
        self.commit(program);
    }

    fn commit(&mut self, program: &Program) {
        if self.down.commit() {
            let _ = program.lane.ring(self.index, Direction::Send);
        }
    }
}

/// A frame of 60 bytes to B, of a protocol that no stack knows.
fn strange(from: [u8; 6], number: u8) -> Vec<u8> {
    let mut frame = [&MAC_B[..], &from, &[0x12, 0x34]].concat();
    frame.resize(60, number);
    frame
}

/// An IPv4 packet to B's address with an unknown protocol.
fn packet(from: &str) -> Vec<u8> {
    let mut frame = [&MAC_B[..], &MAC_A, &[8, 0]].concat();
    let header = wire::ipv4::Ipv4Header {
        src: from.parse().unwrap(),
        dst: B.parse().unwrap(),
        protocol: wire::ipv4::Protocol(253),
        ..blank()
    };
    frame.resize(60, 0);
    header.emit(26, &mut frame[14..]).unwrap();
    frame
}

fn blank() -> wire::ipv4::Ipv4Header {
    let mut bytes = [0; 20];
    bytes[0] = 0x45;
    bytes[3] = 20;
    bytes[8] = 64;
    let sum = !arch::sum(&bytes);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    wire::ipv4::parse(&bytes).map(|packet| packet.header).unwrap_or_else(|_| {
        bytes[10..12].copy_from_slice(&sum.to_le_bytes());
        wire::ipv4::parse(&bytes).expect("one of both orders").header
    })
}

#[test]
fn copies_are_what_the_port_received_and_sent_and_the_stack_goes_on() {
    let mut net = Net::new(small());
    let watcher = net.a.attach(&small());
    let mut raw = open(&mut net, &watcher, &sees(true, true)).unwrap();
    let before = ["port_tx_frames", "port_rx_frames"].map(|name| net.a.counter(name));
    let a = net.a.attach(&small());
    let b = net.b.attach(&small());
    let listener = net.listen(&b, 80);
    let (client, server) = net.connected(&a, &b, listener, 80);
    a.write(client, &common::pattern(0, 5000));
    net.settle();
    assert_eq!(b.read(server, 5000), common::pattern(0, 5000));
    let (frames, lost) = raw.frames();
    assert_eq!(lost, 0);
    let sent = frames.iter().filter(|(flags, ..)| flags.contains(FrameFlags::SENT)).count();
    assert_eq!(sent as u64, net.a.counter("port_tx_frames") - before[0]);
    assert_eq!((frames.len() - sent) as u64, net.a.counter("port_rx_frames") - before[1]);
    // A SYN is among those sent, and its answer among those received.
    let is_tcp = |frame: &[u8], flags: u8| {
        frame.get(23) == Some(&6) && frame.get(47).is_some_and(|found| *found == flags)
    };
    assert!(frames.iter().any(|(of, _, frame)| of.contains(FrameFlags::SENT) && is_tcp(frame, 2)));
    assert!(
        frames.iter().any(|(of, _, frame)| !of.contains(FrameFlags::SENT) && is_tcp(frame, 18))
    );
}

#[test]
fn a_frame_from_a_ring_leaves_as_it_was_pushed_and_its_sender_sees_no_copy() {
    let mut net = Net::new(small());
    let program = net.a.attach(&small());
    let mut raw = open(&mut net, &program, &sees(true, true)).unwrap();
    let mut other = open(&mut net, &program, &sees(false, true)).unwrap();
    let before = net.b.counter("port_rx_frames");
    for number in 0..10 {
        raw.send(&program, &strange(MAC_A, number), None);
    }
    net.settle();
    assert_eq!(raw.frames().0.len(), 0);
    let seen: Vec<_> = other.frames().0.into_iter().map(|(_, _, frame)| frame).collect();
    assert_eq!(seen, (0..10).map(|number| strange(MAC_A, number)).collect::<Vec<_>>());
    assert_eq!(raw.down.counts(), (10, 0));
    assert_eq!(net.b.counter("port_rx_frames") - before, 10);
    assert_eq!(net.a.counters.raw_tx.read(), 10);
}

#[test]
fn without_the_right_a_program_sends_in_nobody_elses_name() {
    let mut net = Net::new(small());
    let program = net.a.attach(&small());
    let mut raw = open(&mut net, &program, &Spec { spoofs: false, ..sees(false, false) }).unwrap();
    let mut arp = strange(MAC_A, 0);
    arp[12..14].copy_from_slice(&[8, 6]);
    arp[22..28].copy_from_slice(&MAC_A);
    arp[28..32].copy_from_slice(&[10, 0, 0, 1]);
    let mut false_arp = arp.clone();
    false_arp[31] = 9;
    let good = [strange(MAC_A, 0), packet(A), arp];
    let bad = [strange(MAC_B, 0), packet("10.0.0.9"), false_arp, strange(MAC_A, 0)[..13].to_vec()];
    good.iter().chain(&bad).for_each(|frame| raw.send(&program, frame, None));
    net.settle();
    assert_eq!(raw.down.counts(), (3, 4));
    assert_eq!(net.a.counters.raw_spoofed.read(), 3);
    assert_eq!(net.a.counters.raw_tx_dropped.read(), 4);
}

#[test]
fn what_is_to_be_done_to_a_frame_must_fit_it() {
    let mut net = Net::new(small());
    let program = net.a.attach(&small());
    let mut raw = open(&mut net, &program, &sees(false, false)).unwrap();
    let meta = Meta { segment_bytes: 100, segments: SegmentKind::Tcp4, ..Meta::default() };
    raw.send(&program, &packet(A), Some(&meta));
    raw.send(&program, &packet(A), Some(&Meta::default()));
    net.settle();
    assert_eq!(raw.down.counts(), (1, 1));
}

#[test]
fn a_filter_says_what_is_seen_and_how_much_of_it() {
    let mut net = Net::new(small());
    let program = net.a.attach(&small());
    // Strange frames, 20 bytes of each.
    let load = |code, jt, jf, k| FilterInstruction { code, jt, jf, k };
    let filter = RawFilter::check(vec![
        load(0x28, 0, 0, 12),
        load(0x15, 0, 1, 0x1234),
        load(0x06, 0, 0, 20),
        load(0x06, 0, 0, 0),
    ]);
    let mut spec = Spec { filter: Some(filter.unwrap()), ..sees(false, true) };
    spec.wants.meta = true;
    let mut seeing = open(&mut net, &program, &spec).unwrap();
    let mut raw = open(&mut net, &program, &sees(false, false)).unwrap();
    raw.send(&program, &packet(A), None);
    raw.send(&program, &strange(MAC_A, 7), None);
    net.settle();
    let (frames, _) = seeing.frames();
    let [(flags, Some(meta), frame)] = frames.as_slice() else { panic!("{frames:?}") };
    assert_eq!(*flags, FrameFlags::SENT | FrameFlags::META | FrameFlags::CUT);
    assert_eq!((meta.original_bytes, frame.as_slice()), (60, &strange(MAC_A, 7)[..20]));
    assert!(meta.time_ns > 0);
}

#[test]
fn what_is_taken_does_not_come_to_the_stack() {
    let mut net = Net::new(small());
    let program = net.a.attach(&small());
    let mut spec = sees(false, false);
    spec.wants.take = true;
    let mut taker = open(&mut net, &program, &spec).unwrap();
    assert!(open(&mut net, &program, &spec).is_err(), "there is one taker");
    let a = net.a.attach(&small());
    let b = net.b.attach(&small());
    net.listen(&b, 80);
    let client = net.connect(&a, 80);
    for _ in 0..1000 {
        net.turn();
    }
    assert!(!a.levels(client).status.contains(shm::Status::CONNECTED));
    let (frames, _) = taker.frames();
    // The answers to ARP were taken.
    assert!(frames.iter().any(|(_, _, frame)| frame[12..14] == [8, 6]), "{frames:?}");
    assert_eq!(net.ask(false, &program, Request::Close { endpoint: taker.index }), Reply::Done);
    net.settle();
    assert_eq!(net.a.counters.raw_endpoints.read(), 0);
    assert!(open(&mut net, &program, &spec).is_ok());
}

#[test]
fn a_program_that_does_not_read_loses_frames_and_is_told_how_many() {
    let mut net = Net::new(small());
    let program = net.a.attach(&small());
    let mut slow = open(&mut net, &program, &sees(false, true)).unwrap();
    let mut raw = open(&mut net, &program, &sees(false, false)).unwrap();
    let mut frame = strange(MAC_A, 1);
    frame.resize(1500, 1);
    for _ in 0..300 {
        raw.send(&program, &frame, None);
        net.settle();
    }
    let (frames, told) = slow.frames();
    assert!(frames.len() > 100 && told == 0, "{} frames", frames.len());
    raw.send(&program, &frame, None);
    net.settle();
    let (after, told) = slow.frames();
    assert_eq!((after.len(), told as usize), (1, 300 - frames.len()));
    assert_eq!(net.a.counters.raw_tx.read(), 301, "and the others go on");
    assert!(!slow.is_asked, "all is told");
}

#[test]
fn a_program_that_lost_frames_is_told_although_none_follows() {
    let mut net = Net::new(small());
    let program = net.a.attach(&small());
    let mut slow = open(&mut net, &program, &sees(false, true)).unwrap();
    let mut raw = open(&mut net, &program, &sees(false, false)).unwrap();
    let mut frame = strange(MAC_A, 1);
    frame.resize(1500, 1);
    for _ in 0..300 {
        raw.send(&program, &frame, None);
        net.settle();
    }
    let (frames, told) = slow.frames();
    assert_eq!(told, 0);
    assert!(slow.is_asked, "the engine has something to say");
    let _ = program.lane.ring(slow.index, Direction::Receive);
    net.settle();
    let (after, told) = slow.frames();
    assert_eq!((after.len(), told as usize), (0, 300 - frames.len()));
    assert!(!slow.is_asked);
}

#[test]
fn a_full_port_holds_the_ring_back_and_nothing_is_lost() {
    let mut net = Net::new(small());
    let program = net.a.attach(&small());
    let mut raw = open(&mut net, &program, &sees(false, false)).unwrap();
    // More than the link holds, without a turn of the other side.
    let mut pushed = 0;
    while let Ok(at) = raw.down.reserve(0, None, 60) {
        raw.down.write(at, &strange(MAC_A, pushed as u8));
        pushed += 1;
    }
    assert!(pushed > 1024, "{pushed}");
    raw.commit(&program);
    for _ in 0..100 {
        net.a_turn();
    }
    let (sent, dropped) = (net.a.counters.raw_tx.read(), net.a.counters.raw_tx_dropped.read());
    assert!(sent < pushed && dropped == 0, "{sent} of {pushed} sent, {dropped} dropped");
    assert!(net.a.counters.raw_tx_full.read() > 0);
    net.settle();
    assert_eq!(raw.down.counts(), (pushed, 0));
    assert!(raw.down.has_room(30_000));
}

#[test]
fn whoever_breaks_the_contract_of_the_rings_loses_its_session_alone() {
    let up_bytes = u64::from(SIZES.up);
    // A tail beyond the ring, a message beyond the tail, an unknown kind.
    let breaches: [&[(u64, u64)]; 3] = [
        &[(128, 1 << 30)],
        &[(4096 + up_bytes, 2 << 24 | 2000), (128, 64)],
        &[(4096 + up_bytes, 9 << 24 | 20), (128, 64)],
    ];
    for words in breaches {
        let mut net = Net::new(small());
        let bad = net.a.attach(&small());
        let good = net.a.attach(&small());
        let broken = open(&mut net, &bad, &sees(true, true)).unwrap();
        let mut other = open(&mut net, &good, &sees(true, true)).unwrap();
        words.iter().for_each(|(at, value)| assert!(broken.rings.scribble(*at, *value)));
        let _ = bad.lane.ring(broken.index, Direction::Send);
        net.settle();
        assert_eq!(net.a.breached, [bad.key], "{words:?}");
        other.send(&good, &strange(MAC_A, 1), None);
        net.settle();
        assert_eq!(other.down.counts(), (1, 0));
        assert_eq!(net.a.counters.raw_endpoints.read(), 1);
    }
}

#[test]
fn what_was_pushed_before_the_end_is_sent() {
    let mut net = Net::new(small());
    let program = net.a.attach(&small());
    let mut raw = open(&mut net, &program, &sees(false, false)).unwrap();
    for number in 0..100 {
        let frame = strange(MAC_A, number);
        let at = raw.down.reserve(0, None, frame.len()).expect("room");
        raw.down.write(at, &frame);
    }
    assert!(raw.down.commit());
    // It died before it rang.
    net.a.worker.on_command(Command::Detach(program.key), stack::api::Instant(net.now));
    net.settle();
    assert_eq!(net.a.counters.raw_tx.read(), 100);
    assert_eq!(net.a.gone, [program.key]);
}

/// A link that holds fewer frames than one visit to a ring brings.
fn crowded() -> Net {
    Net::with(small(), &PairConfig { frames_max: 48, ..PairConfig::default() })
}

/// Fills a ring with frames of 60 bytes.
fn flood(raw: &mut Raw, program: &Program) {
    while let Ok(at) = raw.down.reserve(0, None, 60) {
        raw.down.write(at, &strange(MAC_A, 1));
    }
    raw.commit(program);
}

#[test]
fn a_flood_of_frames_leaves_a_connection_its_share_of_a_full_port() {
    let trips = [false, true].map(|is_flooded| {
        let mut net = crowded();
        let (a, b, bad) = (net.a.attach(&small()), net.b.attach(&small()), net.a.attach(&small()));
        let listener = net.listen(&b, 80);
        let (client, server) = net.connected(&a, &b, listener, 80);
        let mut raw = open(&mut net, &bad, &sees(false, false)).unwrap();
        let mut trips = 0;
        a.write(client, &[7; 64]);
        for _ in 0..1000 {
            if is_flooded {
                flood(&mut raw, &bad);
            }
            net.turn();
            if !b.read(server, 64).is_empty() {
                b.write(server, &[8; 64]);
            }
            if !a.read(client, 64).is_empty() {
                trips += 1;
                a.write(client, &[7; 64]);
            }
        }
        assert_eq!(net.a.counters.raw_tx_full.read() > 0, is_flooded);
        trips
    });
    let [alone, flooded] = trips;
    assert!(alone > 100, "{alone} round trips");
    assert!(flooded * 4 >= alone, "{flooded} round trips beside a flood, {alone} without");
}

#[test]
fn a_flood_of_frames_leaves_other_endpoints_their_share_of_a_full_port() {
    let mut net = crowded();
    let programs = [net.a.attach(&small()), net.a.attach(&small())];
    let mut both =
        [0, 1].map(|which| open(&mut net, &programs[which], &sees(false, false)).unwrap());
    for _ in 0..300 {
        for (raw, program) in both.iter_mut().zip(&programs) {
            flood(raw, program);
        }
        net.turn();
    }
    net.settle();
    let [first, second] = both.map(|raw| raw.down.counts().0);
    assert!(first.min(second) * 2 >= first.max(second), "{first} and {second} frames");
}
