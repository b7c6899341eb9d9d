//! A raw endpoint with several ports of different speed: what a slow one holds back is its own.

mod common;

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use arch::SharedBytes;
use common::{Program, Side, setup, small};
use outboard_engine::control::exchange::Command;
use outboard_engine::service::raw::RawSeed;
use port::{
    Claim, Offloads, Port, PortCounters, PortInfo, RxBurst, RxFrame, RxHandle, RxMeta, TxError,
    TxMeta,
};
use shm::client_side::Direction;
use shm::control::RawWants;
use shm::raw::{ClientDown, RingSizes, Rings};
use shm::request::Request;

const PORTS: usize = 4;
const SIZES: RingSizes = RingSizes { up: RingSizes::LEAST, down: RingSizes::LEAST };

/// What a port takes, and what it has taken.
#[derive(Default)]
struct Link {
    /// Frames that it takes before it is full.
    room: u64,
    /// Numbers of the frames that it has taken, which are whole.
    taken: Vec<u32>,
    /// EtherTypes that are the engine's here.
    claimed: Vec<u16>,
}

/// A port that takes as much as a test lets it.
struct PacedPort {
    info: PortInfo,
    link: Arc<Mutex<Link>>,
}

impl PacedPort {
    fn new(number: usize, link: Arc<Mutex<Link>>) -> Self {
        let info = PortInfo {
            name: format!("paced:{number}"),
            mac: wire::MacAddr([2, 0, 0, 0, 0, number as u8]),
            mtu: 1500,
            kernel_index: 0,
            offloads: Offloads::default(),
            shared: None,
        };
        Self { info, link }
    }
}

impl Port for PacedPort {
    fn info(&self) -> &PortInfo {
        &self.info
    }

    fn receive(&mut self, burst: &mut RxBurst) {
        burst.handles.clear();
    }

    fn frame(&self, _: RxHandle) -> RxFrame<'_> {
        RxFrame { bytes: &[], meta: RxMeta::default() }
    }

    fn release(&mut self, burst: &mut RxBurst) {
        burst.handles.clear();
    }

    fn send(
        &mut self,
        _: &TxMeta,
        header: &[u8],
        payload: &[SharedBytes<'_>],
    ) -> Result<(), TxError> {
        let mut frame = header.to_vec();
        for piece in payload {
            let from = frame.len();
            frame.resize(from + piece.len(), 0);
            piece.copy_to(&mut frame[from..]);
        }
        // What the stack itself sends is not part of the test.
        if frame[12..14] != ETHERTYPE {
            return Ok(());
        }
        let mut link = self.link.lock().unwrap();
        if link.room == 0 {
            return Err(TxError::Full);
        }
        link.room -= 1;
        let number = u32::from_be_bytes(frame[14..18].try_into().unwrap());
        assert_eq!(frame, numbered(number, frame.len()), "a frame has changed");
        link.taken.push(number);
        Ok(())
    }

    fn claim(&mut self, claim: &Claim) -> std::io::Result<()> {
        if let Claim::EtherType(kind) = claim {
            self.link.lock().unwrap().claimed.push(*kind);
        }
        Ok(())
    }

    fn release_claim(&mut self, claim: &Claim) {
        if let Claim::EtherType(kind) = claim {
            self.link.lock().unwrap().claimed.retain(|one| one != kind);
        }
    }

    fn flush(&mut self) {}

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
}

const ETHERTYPE: [u8; 2] = [0x88, 0xb5];

fn numbered(number: u32, len: usize) -> Vec<u8> {
    let mut frame =
        [&[0xff; 6][..], &[2, 0, 0, 0, 0, 9], &ETHERTYPE, &number.to_be_bytes()].concat();
    frame.resize(len, number as u8);
    frame
}

/// A worker with four ports, and a program that sends by all of them.
struct Bench {
    side: Side,
    links: [Arc<Mutex<Link>>; PORTS],
    program: Program,
    index: u32,
    down: ClientDown,
    now: u64,
    pushed: u32,
}

/// Opens a raw endpoint with rings; its index.
fn open(
    side: &mut Side,
    program: &Program,
    ports: Vec<usize>,
    wants: RawWants,
) -> Result<(u32, Arc<Rings>), i32> {
    let rings = Arc::new(Rings::private(SIZES).unwrap());
    let (copy, filter, spoofs) = (Arc::clone(&rings), None, true);
    let seed = Box::new(RawSeed { rings: copy, ports, filter, wants, spoofs });
    let command = Command::OpenRaw { session: program.key, serial: 1, context: 0, seed };
    Ok((side.command(command, 1_000_000)?, rings))
}

impl Bench {
    fn new() -> Self {
        let links: [Arc<Mutex<Link>>; PORTS] = std::array::from_fn(|_| Arc::default());
        let ports = links.iter().enumerate().map(|(number, link)| {
            let port = PacedPort::new(number, Arc::clone(link));
            setup(Box::new(port), &format!("10.0.{number}.1"))
        });
        let mut side = Side::of(ports.collect(), small(), 1);
        let program = side.attach(&small());
        let all = (0..PORTS).collect();
        let (index, rings) = open(&mut side, &program, all, RawWants::default()).unwrap();
        let down = ClientDown::new(rings).unwrap();
        Self { side, links, program, index, down, now: 1_000_000, pushed: 0 }
    }

    /// Pushes frames of `len` bytes to all ports in turns, as long as the ring has room.
    fn push(&mut self, len: usize) {
        loop {
            let port = self.pushed as usize % PORTS + 1;
            let Ok(at) = self.down.reserve(port as u8, None, len) else { break };
            self.down.write(at, &numbered(self.pushed, len));
            self.pushed += 1;
        }
        if self.down.commit() {
            let _ = self.program.lane.ring(self.index, Direction::Send);
        }
    }

    fn turn(&mut self) {
        self.now += 10_000;
        self.side.turn(self.now);
    }

    /// Lets a port take so many frames more.
    fn allow(&self, port: usize, frames: u64) {
        self.links[port].lock().unwrap().room += frames;
    }

    fn taken(&self, port: usize) -> Vec<u32> {
        self.links[port].lock().unwrap().taken.clone()
    }

    /// Frames that each port takes in `turns`, of which the first takes one in `slow` turns.
    fn run(&mut self, turns: u64, slow: u64) -> [usize; PORTS] {
        for turn in 0..turns {
            self.push(60 + (turn % 1400) as usize);
            for port in 0..PORTS {
                let frames = if port > 0 { 1000 } else { u64::from(turn % slow == 0) };
                self.allow(port, frames);
            }
            self.turn();
        }
        std::array::from_fn(|port| self.taken(port).len())
    }
}

/// Row D2: one port at a three hundredth of what the others take.
#[test]
fn three_ports_keep_their_rate_beside_a_slow_one() {
    let mut alone = Bench::new();
    alone.allow(0, 1_000_000);
    let fast = alone.run(600, 1);
    let mut beside = Bench::new();
    let slow = beside.run(600, 20);
    assert_eq!(slow[0], 30, "as many as its link takes");
    for port in 1..PORTS {
        let [of, with] = [fast, slow].map(|counts| counts[port]);
        assert!(with * 100 >= of * 95, "port {port}: {with} of {of} frames");
        assert!(beside.taken(port).is_sorted());
    }
    // In order, with gaps: what there was no room for is counted.
    assert!(beside.taken(0).is_sorted());
    let counters = &beside.side.counters;
    assert!(counters.raw_tx_overrun.read() > 0);
    assert_eq!(counters.raw_tx_dropped.read(), counters.raw_tx_overrun.read());
}

#[test]
fn a_port_that_stands_still_holds_back_nobody_and_goes_on_where_it_was() {
    let mut bench = Bench::new();
    for turn in 0..300 {
        bench.push(1514 - turn % 700);
        (1..PORTS).for_each(|port| bench.allow(port, 1000));
        bench.turn();
    }
    let counts: [usize; PORTS] = std::array::from_fn(|port| bench.taken(port).len());
    assert_eq!(counts[0], 0);
    assert!(counts[1] > 1000, "{counts:?}");
    bench.allow(0, u64::MAX / 2);
    bench.turn();
    let late = bench.taken(0);
    assert!(late.len() > 100, "{} frames waited", late.len());
    assert!(late.is_sorted() && late.iter().all(|number| number % 4 == 0));
    assert_eq!(late.first(), Some(&0), "the oldest is not lost");
    // Nothing is left, and nothing is unaccounted for.
    for _ in 0..100 {
        (1..PORTS).for_each(|port| bench.allow(port, 1000));
        bench.turn();
    }
    let overrun = bench.side.counters.raw_tx_overrun.read();
    assert!(overrun > 0);
    assert_eq!(bench.down.counts(), (u64::from(bench.pushed) - overrun, overrun));
}

/// An EtherType that is taken is claimed where the kernel would have it otherwise, until nobody takes it.
#[test]
fn an_ethertype_is_claimed_as_long_as_it_is_taken() {
    let mut bench = Bench::new();
    let taking = |kind| RawWants { take: true, ethertype: Some(kind), ..RawWants::default() };
    let claimed =
        |bench: &Bench| bench.links.each_ref().map(|link| link.lock().unwrap().claimed.clone());
    let taker = bench.side.attach(&small());
    let (index, _) = open(&mut bench.side, &taker, vec![1, 3], taking(0x88cc)).unwrap();
    assert_eq!(claimed(&bench), [vec![], vec![0x88cc], vec![], vec![0x88cc]]);
    assert!(open(&mut bench.side, &taker, vec![1], taking(0x88f7)).is_err(), "there is one taker");
    let (other, _) = open(&mut bench.side, &taker, vec![0], taking(0x88f7)).unwrap();
    assert_eq!(claimed(&bench), [vec![0x88f7], vec![0x88cc], vec![], vec![0x88cc]]);
    taker.post(Request::Close { endpoint: index });
    bench.turn();
    assert_eq!(claimed(&bench), [vec![0x88f7], vec![], vec![], vec![]]);
    assert_ne!(other, index);
    // A program that ends gives back what it took.
    let detach = Command::Detach(taker.key);
    bench.side.worker.on_command(detach, stack::api::Instant(bench.now));
    bench.turn();
    assert_eq!(claimed(&bench), [const { Vec::<u16>::new() }; PORTS]);
    // What the engine itself speaks is taken by nobody.
    let program = bench.side.attach(&small());
    let of_messages = taking(wire::message::ETHER_TYPE);
    assert!(open(&mut bench.side, &program, vec![0], of_messages).is_err());
}
