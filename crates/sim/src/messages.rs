//! The message core of three hosts under virtual time: programs that send and receive at random over a
//! network that loses, repeats, delays, corrupts and replays, with hosts that restart and
//! endpoints that close. In some runs the endpoints are of two jobs, and somebody sends frames without
//! knowing a job's key.
//!
//! A run has two phases: with faults, and without. In the second one every operation must end. What is
//! checked on the way is in [`book`]. At random moments a core is replaced by the import of its export,
//! which changes nothing: [`check`] runs a seed with and without.
//!
//! Start reading at [`run`].

mod acts;
mod book;
mod forger;
mod heap;
mod network;

use std::fmt;
use std::panic::catch_unwind;
use std::sync::LazyLock;

use stack::message::{
    Core, CoreConfig, EndpointId, EndpointOptions, Host, JobKey, MessageEvent, MessageUsage,
    PathAddresses, PayloadPlace, ReceiveId, Selector, SendId, Unexpected,
};

pub use stack::message::Planted;

use crate::digest::Digest;
use crate::random::Random;
use book::{Book, Wanted};
use forger::{Forged, Forger};
use heap::Heap;
use network::{Network, Packet};

const HOSTS: usize = 3;
/// Ports of each host; one endpoint each.
const PORTS: u16 = 2;
const KEYS: [JobKey; 2] = [*b"simulated key...", *b"another job's k."];
/// Programs do something about so often, nanoseconds.
const PACE_NS: u64 = 40_000;
/// Things that programs do with faults.
const STEPS: u64 = 500;
/// A host's core is renewed after one in so many things.
const RENEWED_OF: u64 = 16;
/// Without faults everything has ended by then, nanoseconds of virtual time.
const END_NS: u64 = 120_000_000_000;
/// Receives that take everything, at each endpoint in the second phase.
const TAKERS: u32 = 4;

/// How seeds are run.
#[derive(Clone, Copy, Debug, Default)]
pub struct MessageSettings {
    /// A bug that is put in.
    pub planted: Option<Planted>,
    /// Cores are not replaced by their imports.
    pub without_renewal: bool,
}

/// A seed that failed.
#[derive(Clone, Debug)]
pub struct MessageFault {
    /// The seed.
    pub seed: u64,
    /// With which bug put in.
    pub planted: Option<Planted>,
    /// What was wrong.
    pub what: String,
}

impl fmt::Display for MessageFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "outboard sim --messages --seeds {}", self.seed)?;
        let named = Planted::ALL.iter().find(|(_, bug)| self.planted == Some(*bug));
        if let Some((name, _)) = named {
            write!(f, " --planted {name}")?;
        }
        write!(f, ": {}", self.what)
    }
}

impl std::error::Error for MessageFault {}

/// What a clean run did.
#[derive(Clone, Copy, Debug, Default)]
pub struct MessageReport {
    /// Packets sent.
    pub packets: u64,
    /// Messages received.
    pub messages: u64,
    /// Messages refused at first.
    pub refused: u64,
    /// Frames sent again.
    pub resent: u64,
    /// Cores replaced by their imports.
    pub renewals: u64,
    /// Of all packets and when they left.
    pub hash: u64,
}

struct Program {
    id: EndpointId,
    /// Which of all endpoints there ever were.
    life: u64,
    sends: Vec<SendId>,
    receives: Vec<ReceiveId>,
    takers: u32,
}

type SimCore = Core<Option<Planted>>;

struct Node {
    core: SimCore,
    heap: Heap,
    programs: Vec<Program>,
}

struct World {
    now: u64,
    random: Random,
    /// Whether a core is replaced: drawn apart, so that it changes nothing else.
    renewals: Random,
    settings: MessageSettings,
    digest: Digest,
    nodes: Vec<Node>,
    network: Network,
    book: Book,
    forger: Forger,
    /// The job of each port.
    keys: [JobKey; PORTS as usize],
    /// Endpoints that were closed and have not ended.
    closing: Vec<(usize, EndpointId)>,
    /// Hosts restart and endpoints close.
    unrest: bool,
    policy: Unexpected,
    envelopes: u32,
    incarnation: u64,
    lives: u64,
    cookie: u64,
    report: MessageReport,
}

/// Runs a seed twice, with renewals of cores and without: the same packets must leave.
///
/// # Errors
/// What was wrong.
pub fn check(seed: u64) -> Result<MessageReport, MessageFault> {
    let settings = MessageSettings::default();
    let report = run(seed, settings)?;
    let without = run(seed, MessageSettings { without_renewal: true, ..settings })?;
    if report.hash == without.hash {
        return Ok(report);
    }
    let what = format!("{} imports of exports change what leaves", report.renewals);
    Err(MessageFault { seed, planted: None, what })
}

/// Runs a seed. A panic in the core is a failure like others.
///
/// # Errors
/// What was wrong.
pub fn run(seed: u64, settings: MessageSettings) -> Result<MessageReport, MessageFault> {
    let ended = catch_unwind(|| {
        let mut world = World::new(seed, settings);
        world.go().map(|()| world.report)
    });
    let what = match ended {
        Ok(Ok(report)) => return Ok(report),
        Ok(Err(Violation(what))) => what,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            format!("panic: {}", text.unwrap_or_default())
        }
    };
    Err(MessageFault { seed, planted: settings.planted, what })
}

/// The nodes as hosts: all cores number them in the order in which they are added.
static HANDLES: LazyLock<[Host; HOSTS]> = LazyLock::new(|| {
    let mut core = Core::new(CoreConfig { incarnation: 1, hosts: HOSTS as u32, seed: [5, 6] });
    let addresses = PathAddresses { local: [0; 16], remote: [0; 16] };
    std::array::from_fn(|_| core.add_host(addresses, 512).unwrap_or(Host::LOCAL))
});

/// A rule that was broken.
struct Violation(String);

/// The jobs of a run's ports: one, or two.
fn jobs(seed: u64) -> [JobKey; PORTS as usize] {
    let two = Random::new(seed, 0x6a6f_6273).chance(1, 4);
    [KEYS[0], KEYS[usize::from(two)]]
}

fn address_of(node: usize) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[15] = node as u8 + 1;
    bytes
}

impl World {
    fn new(seed: u64, settings: MessageSettings) -> Self {
        let mut random = Random::new(seed, 0x6d65_7373);
        let unrest = random.chance(1, 2);
        let policy = random.pick(&[Unexpected::Buffer, Unexpected::Buffer, Unexpected::Drop]);
        let envelopes = random.scale_free(40) as u32;
        let network = Network::new(&mut random);
        let mut world = Self {
            now: 1_000_000,
            random,
            renewals: Random::new(seed, 0x7265_6e65),
            settings,
            digest: Digest::default(),
            nodes: Vec::new(),
            network,
            book: Book::default(),
            forger: Forger::new(seed),
            keys: jobs(seed),
            closing: Vec::new(),
            unrest,
            policy,
            envelopes,
            incarnation: 1_000,
            lives: 0,
            cookie: 0,
            report: MessageReport::default(),
        };
        for at in 0..HOSTS {
            let node = world.start(at);
            world.nodes.push(node);
        }
        world
    }

    fn start(&mut self, at: usize) -> Node {
        self.incarnation += 1;
        let config = CoreConfig { incarnation: self.incarnation, hosts: 8, seed: [5, 6] };
        let mut core = Core::with_bugs(config, self.settings.planted);
        for other in 0..HOSTS {
            let addresses = PathAddresses { local: address_of(at), remote: address_of(other) };
            // There is room for all of them.
            let _ = core.add_host(addresses, self.network.room);
        }
        let buffers = self.random.below(20);
        let mut node = Node { core, heap: Heap::new(buffers), programs: Vec::new() };
        for port in 0..PORTS {
            let program = self.open(&mut node, port);
            node.programs.push(program);
        }
        node
    }

    fn open(&mut self, node: &mut Node, port: u16) -> Program {
        self.lives += 1;
        let options = EndpointOptions {
            port: port + 1,
            key: Some(self.keys[usize::from(port)]),
            unexpected: self.policy,
            envelopes: self.envelopes,
            operations: 1_000,
        };
        let id = match node.core.open(self.now, options) {
            Ok(id) => id,
            Err(error) => unreachable!("a closed endpoint's port is free: {error}"),
        };
        let (sends, receives) = (Vec::new(), Vec::new());
        Program { id, life: self.lives, sends, receives, takers: 0 }
    }

    fn go(&mut self) -> Result<(), Violation> {
        for _ in 0..STEPS {
            let until = self.now + self.random.below(2 * PACE_NS);
            self.pass(until)?;
            self.act();
            self.renew()?;
            self.forge()?;
        }
        self.network.calm();
        let end = self.now + END_NS;
        loop {
            for at in 0..HOSTS {
                for program in 0..self.nodes[at].programs.len() {
                    while self.nodes[at].programs[program].takers < TAKERS {
                        self.nodes[at].programs[program].takers += 1;
                        let selector = Selector { source: None, tag: Some(0), ignore: u64::MAX };
                        let wanted = Wanted { selector, capacity: 200_000, taker: true };
                        self.receive(at, program, wanted);
                    }
                }
            }
            self.settle()?;
            // What they have taken may not have been all that waits.
            let programs = self.nodes.iter().flat_map(|node| &node.programs);
            if programs.into_iter().any(|program| program.takers < TAKERS) {
                continue;
            }
            let Some(next) = self.next().filter(|next| *next < end) else { break };
            self.pass(next)?;
            if self.is_done() && self.network.is_empty() {
                break;
            }
        }
        self.finish()
    }

    /// All that is left ends, and nothing is left over.
    fn finish(&mut self) -> Result<(), Violation> {
        self.book.assert_sends_ended(&self.picture())?;
        for (at, node) in self.nodes.iter_mut().enumerate() {
            for program in &node.programs {
                self.closing.push((at, program.id));
                node.core.close(self.now, program.id, &mut node.heap);
            }
        }
        self.settle()?;
        self.book.assert_receives_ended()?;
        self.book.assert_complete(self.unrest)?;
        if let Some((at, endpoint)) = self.closing.first() {
            return Err(Violation(format!("{endpoint:?} of host {at} has not closed")));
        }
        for node in &self.nodes {
            node.heap.assert_clean()?;
            let held = node.core.usage();
            let nothing =
                MessageUsage { hosts: held.hosts, peers: held.peers, ..MessageUsage::default() };
            if held != nothing {
                return Err(Violation(format!("something is left over: {held:?}")));
            }
            let counters = node.core.counters();
            self.report.refused += counters.refused;
            self.report.resent += counters.resent;
            self.report.messages += counters.received;
        }
        self.report.hash = self.digest.value();
        Ok(())
    }

    /// Every send has ended, and every endpoint that was closed; and no core waits for the answer to an
    /// ABORT, which its program does not see.
    fn is_done(&self) -> bool {
        let waits = |node: &Node| node.core.usage().sends > 0;
        self.book.is_done() && self.closing.is_empty() && !self.nodes.iter().any(waits)
    }

    /// Replaces a core by the import of its export now and then.
    fn renew(&mut self) -> Result<(), Violation> {
        let at = self.renewals.below(HOSTS as u64) as usize;
        if !self.renewals.chance(1, RENEWED_OF) || self.settings.without_renewal {
            return Ok(());
        }
        self.report.renewals += 1;
        let core = &mut self.nodes[at].core;
        *core = Core::import_with(&core.export(), self.settings.planted)
            .map_err(|error| Violation(error.to_string()))?;
        Ok(())
    }

    /// Somebody sends a frame now and then without knowing the key: it is dropped, and changes
    /// nothing.
    fn forge(&mut self) -> Result<(), Violation> {
        let Some(Forged { to, from, bytes }) = self.forger.forge(&self.network, &self.keys) else {
            return Ok(());
        };
        let node = &mut self.nodes[to];
        let dropped = |core: &SimCore| {
            let it = core.counters();
            it.drop_unverified + it.drop_unknown_job + it.drop_malformed
        };
        let (before, counted) = (node.core.fingerprint(), dropped(&node.core));
        node.core.on_frame(self.now, Self::host(from), &bytes, &mut node.heap);
        let is_dropped = dropped(&node.core) > counted;
        if is_dropped && node.core.fingerprint() == before {
            return Ok(());
        }
        let which = if is_dropped { "changed the state" } else { "was not dropped" };
        Err(Violation(format!("a forged frame {which} of host {to}: {bytes:02x?}")))
    }

    fn picture(&self) -> String {
        self.nodes.iter().map(|node| format!("{:?} ", node.core.counters())).collect()
    }

    fn next(&self) -> Option<u64> {
        let timers = self.nodes.iter().filter_map(|node| node.core.next_deadline());
        timers.chain(self.network.next()).min().map(|next| next.max(self.now))
    }

    /// Lets time pass.
    fn pass(&mut self, until: u64) -> Result<(), Violation> {
        self.settle()?;
        while let Some(next) = self.next().filter(|next| *next <= until) {
            self.now = next;
            while let Some(Packet { from, to, bytes }) = self.network.take(self.now) {
                let node = &mut self.nodes[to];
                node.core.on_frame(self.now, Self::host(from), &bytes, &mut node.heap);
            }
            for node in &mut self.nodes {
                node.core.on_timers(self.now, &mut node.heap);
            }
            self.settle()?;
        }
        self.now = self.now.max(until);
        Ok(())
    }

    /// Sends what there is to send, and hears what happened.
    fn settle(&mut self) -> Result<(), Violation> {
        let mut out = [0; 2_048];
        for from in 0..HOSTS {
            let node = &mut self.nodes[from];
            while let Some(packet) = node.core.poll_transmit(self.now, &mut out, &mut node.heap) {
                let mut bytes = out[..packet.len].to_vec();
                if let Some(range) = packet.payload {
                    let (offset, len) = (range.offset, range.len);
                    node.heap.append(PayloadPlace::Send(range.cookie), offset, len, &mut bytes);
                }
                let to = packet.host.index() - 1;
                self.report.packets += 1;
                self.digest.add(self.now);
                self.digest.add_bytes(&bytes);
                self.network.send(self.now, Packet { from, to, bytes }, &mut self.random)?;
            }
            node.heap.check()?;
        }
        for at in 0..HOSTS {
            while let Some(event) = self.nodes[at].core.poll_event() {
                self.hear(at, event)?;
            }
        }
        Ok(())
    }

    fn hear(&mut self, at: usize, event: MessageEvent) -> Result<(), Violation> {
        let node = &mut self.nodes[at];
        match event {
            MessageEvent::Sent { cookie, status, .. } => {
                node.heap.take(PayloadPlace::Send(cookie))?;
                self.book.sent(cookie, status, self.unrest)
            }
            MessageEvent::Received { endpoint, cookie, envelope, status } => {
                let memory = node.heap.take(PayloadPlace::Receive(cookie))?;
                let taker = self.book.is_taker(cookie);
                if let Some(it) = node.programs.iter_mut().find(|it| it.id == endpoint && taker) {
                    it.takers -= 1;
                }
                self.book.received(cookie, envelope, status, &memory)
            }
            MessageEvent::Part { .. } | MessageEvent::Wanted { .. } => {
                Err(Violation(format!("{event:?}, though all memory is there")))
            }
            MessageEvent::Closed { endpoint } => {
                self.closing.retain(|it| *it != (at, endpoint));
                Ok(())
            }
            MessageEvent::Arrived { .. } => Ok(()),
        }
    }

    fn host(node: usize) -> Host {
        HANDLES[node]
    }
}

impl Node {
    fn nothing() -> Self {
        let core = Core::with_bugs(CoreConfig { incarnation: 0, hosts: 0, seed: [5, 6] }, None);
        Self { core, heap: Heap::new(0), programs: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    /// `make test` runs more of them.
    #[test]
    fn seeds_are_clean() {
        for seed in 1..=8 {
            if let Err(fault) = super::check(seed) {
                panic!("{fault}");
            }
        }
    }

    /// Once: the run ended while a core waited for the answer to an ABORT that was lost.
    #[test]
    fn seeds_that_failed_are_clean() {
        for seed in [1731] {
            if let Err(fault) = super::check(seed) {
                panic!("{fault}");
            }
        }
    }
}
