//! Sessions and forked children that ask for connections they do not hold, and write anything where their own lie:
//! nobody gets another's connection, and those who are honest get theirs whole.

mod common;

use common::{A, Net, Program, pattern, small};
use outboard_engine::control::exchange::Command;
use outboard_engine::passing::{HeirKey, Keeper, Serve};
use rustix::io::Errno;
use shm::client_side::ClientEndpoint;
use shm::lock::Tag;
use shm::request::{Reply, Request};
use stack::api::Instant;

const HONEST_PORT: u16 = 80;
const OWN_PORT: u16 = 81;
/// Endpoints of a session, and more.
const ENDPOINTS: u64 = 70;

/// SplitMix64: any seed gives a good sequence.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Words that locks and flags may hold, and others.
    fn word(&mut self) -> u64 {
        match self.below(5) {
            0 => 0,
            1 => 1 << self.below(64),
            2 => u64::MAX,
            3 => self.below(1 << 20) << 32 | 1,
            _ => self.next(),
        }
    }
}

fn command(net: &mut Net, command: Command) {
    let now = Instant(net.now);
    net.b.worker.on_command(command, now);
    net.turn();
}

fn pass(net: &mut Net, by: Keeper, endpoint: u32) -> Result<Option<Serve>, Errno> {
    command(net, Command::Pass { by, serial: 1, endpoint, v6: false });
    let outcome = net.b.passed.pop().expect("the command was answered");
    outcome.map(|handover| handover.serve)
}

/// A session of a hostile program, its children, and connections of its own.
struct Hostile {
    session: Program,
    heirs: Vec<HeirKey>,
    listener: u32,
}

impl Hostile {
    fn new(net: &mut Net) -> Self {
        let session = net.b.attach(&small());
        let listener = net.try_listen(&session, OWN_PORT).unwrap_or(u32::MAX);
        Self { session, heirs: Vec::new(), listener }
    }

    fn keeper(&self, random: &mut Random) -> Keeper {
        match self.heirs.get(random.below(self.heirs.len() as u64 + 1) as usize) {
            Some(heir) => Keeper::Heir(*heir),
            None => Keeper::Session(self.session.key),
        }
    }

    fn act(&mut self, net: &mut Net, client: &Program, random: &mut Random, next_heir: &mut u64) {
        let endpoint = random.below(ENDPOINTS) as u32;
        match random.below(10) {
            0 if self.heirs.len() < 20 => {
                let heir = HeirKey(*next_heir);
                *next_heir += 1;
                let by = self.keeper(random);
                command(net, Command::Fork { by, heir, serial: 1 });
                self.heirs.push(heir);
            }
            1..=3 => {
                let by = self.keeper(random);
                if let Ok(Some(serve)) = pass(net, by, endpoint) {
                    // What it gets was accepted at its own port.
                    assert_eq!(serve.local.port(), OWN_PORT, "{by:?} got {serve:?}");
                }
            }
            4 => {
                if let Some(heir) = self.heirs.first() {
                    command(net, Command::Release { heir: *heir, endpoint });
                }
            }
            5 => {
                if let Some(heir) = self.heirs.pop() {
                    command(net, Command::EndHeir(heir));
                }
            }
            // Lock words, flags and levels of its endpoints, as far as they lie there.
            6 | 7 => {
                self.session.region.scribble(4096 + random.below(60_000) / 8 * 8, random.word());
            }
            8 => {
                let near = net.connect(client, OWN_PORT);
                net.turn();
                net.turn();
                let _ = net.accept(&self.session, self.listener);
                client.write(near, b"to a hostile program");
            }
            _ => {
                // A lock that its owner never gives back.
                if let Some(view) = ClientEndpoint::new(self.session.region.clone(), endpoint) {
                    let lock = view.lock_send(Tag::new(random.next() as u32, 1));
                    if let Ok(lock) = lock {
                        std::mem::forget(lock);
                    }
                }
            }
        }
    }
}

/// How often a hostile session was ended.
fn campaign(seed: u64) -> u64 {
    let mut random = Random(seed);
    let limits = small();
    let mut net = Net::new(limits);
    let (client, server) = (net.a.attach(&limits), net.b.attach(&limits));
    let relay = net.b.attach(&limits);
    command(&mut net, Command::Relay(relay.key));
    let listener = net.listen(&server, HONEST_PORT);
    let (near, far) = net.connected(&client, &server, listener, HONEST_PORT);
    let honest = HeirKey(1);
    let by = Keeper::Session(server.key);
    command(&mut net, Command::Fork { by, heir: honest, serial: 1 });
    let (mut sent, mut got, mut next_heir, mut breaches) = (0, 0, 2, 0);
    let mut hostile = Hostile::new(&mut net);
    for _ in 0..200 {
        for _ in 0..random.below(6) {
            hostile.act(&mut net, &client, &mut random, &mut next_heir);
        }
        net.turn();
        sent += client.write(near, &pattern(sent, random.below(2000) as usize));
        net.turn();
        let bytes = server.read(far, usize::MAX);
        assert_eq!(bytes, pattern(got, bytes.len()), "seed {seed}: the honest stream differs");
        got += bytes.len();
        if net.b.breached.pop().is_some() {
            breaches += 1;
            hostile = Hostile::new(&mut net);
        }
    }
    // The honest child has what it holds, with all that its parent has not read.
    let serve = pass(&mut net, Keeper::Heir(honest), far).expect("it holds this");
    let serve = serve.expect("the relay hears of it first");
    assert_eq!(serve.local.port(), HONEST_PORT);
    for _ in 0..100 {
        net.pass(10_000_000);
        let bytes = relay.read(serve.endpoint, usize::MAX);
        assert_eq!(bytes, pattern(got, bytes.len()), "seed {seed}: the child's stream differs");
        got += bytes.len();
        client.events();
    }
    assert_eq!(got, sent, "seed {seed}: the honest stream stalls");
    assert_eq!(net.ask(true, &server, Request::Close { endpoint: far }), Reply::Done);
    let _ = A;
    breaches
}

#[test]
fn nobody_gets_what_it_does_not_hold_whatever_it_asks_and_writes() {
    let breaches: u64 = (0..40).map(campaign).sum();
    assert!(breaches > 0, "no session was ended: the attack is asleep");
}
