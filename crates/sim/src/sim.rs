//! The simulation: whole hosts on a link, in one thread, in virtual time.

use std::sync::Arc;

use engine::control::exchange::{Command, SessionKey};
use port::RxMeta;
use shm::client_side::{ClientEndpoint, ClientLane, Direction};
use shm::descriptor::{DescriptorFlags, DescriptorKind, Span};
use shm::lock::Tag;
use shm::region::Region;

use crate::adversary::{self, Adversary, Link};
use crate::connections::{Acceptor, Connection, Ending, Excuses, Outcome};
use crate::coverage::{Coverage, V6_MARKS};
use crate::digest::Digest;
use crate::frames::completed;
use crate::host::{Host, LINGER_NS};
use crate::network::{Network, Station};
use crate::port::{Arrived, Sent, locked};
use crate::program::{ConnectionEnd, Shared, datagram_address};
use crate::random::Random;
use crate::seen::Seen;
use crate::swarm::{MS, SECOND, Swarm, US};
use crate::violation::Violation;
use crate::witness::Witness;

/// When a run begins: not at nought, which hides mistakes.
pub(crate) const START: u64 = 1_000 * SECOND;
/// Virtual time in which everything open must finish once the faults are off.
const LIVENESS_NS: u64 = 1_200 * SECOND;
/// Bytes read in that time that earn a run the same time again.
const PROGRESS_BYTES: u64 = 100_000;
/// Steps of a run before it is taken to spin.
const STEPS_MAX: u64 = 4_000_000;
/// Doorbells that a scribbler rings at a time: in all fewer than there is room for, so that it
/// never waits for an engine that has thrown it out.
const GARBAGE_RINGS: u64 = 3;
/// Time for hosts to find out whether anybody else has their addresses.
pub(crate) const SETTLES_NS: u64 = 4 * SECOND;
/// Forged SYNs come so many together, and so often.
const FLOOD_BURST: usize = 20;
const FLOOD_EVERY_NS: u64 = 5 * MS;
/// Times that the link holds frames back in a run that has it.
const HOLDS: usize = 4;
/// Turns between two checks of conservation.
const CHECK_EVERY: u64 = 16;

/// A bug put in on purpose, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// No TCP segment is ever sent again.
    NoRetransmit,
    /// Bytes of a send buffer change after they were handed over: a buffer used again too early.
    EarlyReuse,
}

/// How to run a seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// A bug put in on purpose.
    pub planted: Option<Break>,
    /// Leave the stack alone even where the seed exports and imports it; everything else is
    /// the same.
    pub without_renewal: bool,
    /// Forged SYNs overflow every listener's queue, without other faults.
    pub flood: bool,
    /// Print every frame.
    pub trace: bool,
}

/// What a clean run was like.
#[derive(Clone, Debug)]
pub struct Report {
    /// Of all frames, with their times.
    pub hash: u64,
    /// Frames that hosts sent.
    pub frames: u64,
    /// Of all counters of all hosts but those of processor cycles.
    pub counters: u64,
    /// Of what programs have seen: their events and the results of their calls.
    pub seen: u64,
    /// Virtual nanoseconds.
    pub virtual_ns: u64,
    /// What was hit.
    pub coverage: Coverage,
}

/// Something that happens at a set time.
#[derive(Clone, Copy, Debug)]
enum Act {
    Open(usize),
    Datagram,
    Kill,
    Restart(usize, usize),
    Scribble(u32),
    Renew,
    Jump,
    Stall,
    Cut,
    Hold,
    Flood,
    Heal,
}

/// A run.
pub struct Sim {
    seed: u64,
    settings: Settings,
    now: u64,
    random: Random,
    hosts: Vec<Host>,
    network: Network,
    adversary: Option<Adversary>,
    witness: Witness,
    shared: Shared,
    acts: Vec<(u64, Act)>,
    turns: u64,
    /// Ends of connections that failed may be due to a network that was gone.
    may_time_out: bool,
    hostile: Option<(usize, SessionKey)>,
}

impl Sim {
    /// Runs a seed.
    pub fn run(seed: u64, settings: Settings) -> Result<Report, Violation> {
        let mut sim = Self::new(seed, settings)?;
        match sim.go() {
            Ok(()) => Ok(sim.report()),
            Err(error) => {
                let after = sim.now.saturating_sub(START);
                Err(format!("{:.6} s: {error}\n  {:?}", after as f64 / 1e9, sim.shared.swarm)
                    .into())
            }
        }
    }

    fn new(seed: u64, settings: Settings) -> Result<Self, Violation> {
        let drawn = Swarm::draw(seed);
        let swarm = if settings.flood { drawn.flooded() } else { drawn };
        let mut random = Random::new(seed, 4);
        let now = START;
        let mut hosts: Vec<Host> =
            (0..swarm.hosts.len()).map(|host| Host::new(seed, host, &swarm, now)).collect();
        for host in &mut hosts {
            for program in 0..swarm.programs {
                host.start(seed, program, now)?;
            }
        }
        // Before that no address of IPv6 is known to be one's own.
        let began = now + if swarm.v6 { SETTLES_NS } else { 0 };
        let mut acts = vec![(began + swarm.faults_ns, Act::Heal)];
        let r = &mut random;
        let within = swarm.faults_ns * 3 / 4;
        let mut connections = Vec::new();
        let any = |r: &mut Random| {
            (r.below(swarm.hosts.len() as u64) as usize, r.below(swarm.programs as u64) as usize)
        };
        let fixed = (any(r), r.chance(1, 2).then(|| 20_000 + r.below(1000) as u16));
        for index in 0..swarm.connections {
            let from = if swarm.churn { fixed.0 } else { any(r) };
            let mut to = any(r);
            if swarm.churn {
                to = ((from.0 + 1) % swarm.hosts.len(), 0);
            } else if to.0 == from.0 && r.chance(9, 10) {
                to.0 = (from.0 + 1) % swarm.hosts.len();
            }
            let opens_at = began + r.below(within);
            let mut connection = Connection::draw(r, &swarm, opens_at, from, to);
            if swarm.churn {
                connection.local_port = fixed.1.filter(|_| r.chance(2, 3));
            }
            if swarm.simultaneous && index == 0 && from.0 != to.0 {
                connection.simultaneous = true;
                connection.local_port = Some(30_000);
            }
            connections.push(connection);
            acts.push((opens_at, Act::Open(index)));
        }
        for _ in 0..swarm.datagrams {
            acts.push((began + r.below(swarm.faults_ns + SECOND), Act::Datagram));
        }
        for (wanted, act) in [
            (swarm.kill, Act::Kill),
            (swarm.scribble, Act::Scribble(0)),
            (swarm.renew, Act::Renew),
            (swarm.renew, Act::Renew),
            (swarm.renew, Act::Renew),
            (swarm.clock_jump, Act::Jump),
            (swarm.stall, Act::Stall),
            (swarm.partition, Act::Cut),
        ] {
            let at = began + r.below(within);
            if wanted {
                acts.push((at, act));
            }
        }
        if settings.flood {
            let times = within / FLOOD_EVERY_NS;
            acts.extend((0..times).map(|at| (began + at * FLOOD_EVERY_NS, Act::Flood)));
        }
        if swarm.hold {
            // With random numbers of their own, so that the rest of a run stays what it was. Soon
            // after a connection begins, for then there are segments on the link.
            let mut random = Random::new(seed, 5);
            let soon = 10 * (2 * swarm.delay_ns + 50 * US);
            for _ in 0..HOLDS {
                let with = random.below(connections.len() as u64) as usize;
                acts.push((connections[with].opens_at + random.below(soon), Act::Hold));
            }
        }
        acts.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
        let hostile = swarm.scribble.then(|| {
            let host = r.below(swarm.hosts.len() as u64) as usize;
            (host, hosts[host].programs[0].key)
        });
        if let Some((host, _)) = hostile {
            hosts[host].programs[0].is_hostile = true;
            for connection in &mut connections {
                connection.is_tainted |= connection.sides.iter().any(|side| side.at == (host, 0));
            }
        }
        // What is damaged of neighbour discovery is as good as lost, and is asked for three times.
        let lost = swarm.link.loss + if swarm.v6 { swarm.link.corrupt } else { 0 };
        Ok(Self {
            seed,
            settings,
            now,
            network: Network::new(seed, &swarm),
            adversary: swarm.adversary.then(|| Adversary::new(seed, hosts.len(), swarm.v6)),
            witness: Witness::default(),
            // Loss may be so bad that even many tries fail.
            may_time_out: swarm.partition || swarm.clock_jump || lost > 500,
            shared: Shared {
                swarm,
                connections,
                flows: Default::default(),
                datagrams: Vec::new(),
                coverage: Coverage::default(),
                faults_on: true,
                seen: Seen::default(),
            },
            random,
            hosts,
            acts,
            turns: 0,
            hostile,
        })
    }

    fn report(mut self) -> Report {
        let mut counters = Digest::default();
        for host in &self.hosts {
            let mut all = host.counters();
            all.sort();
            for (name, value) in all {
                // A counter that stays at nought is as good as none, and cycles are the machine's.
                if value > 0 && !name.starts_with("cycles_") {
                    counters.add_bytes(name.as_bytes());
                    counters.add(value);
                }
                self.shared.coverage.add(&name, value);
                if self.shared.swarm.v6 && V6_MARKS.contains(&name.as_str()) {
                    self.shared.coverage.add(&format!("v6: {name}"), value);
                }
            }
            let wires = locked(&host.wires);
            self.shared.coverage.add("fault: port full", wires.full);
            self.shared.coverage.add("fault: receive ring full", wires.missed);
        }
        Report {
            hash: self.witness.hash(),
            frames: self.witness.frames(),
            counters: counters.value(),
            seen: self.shared.seen.digest().value(),
            virtual_ns: self.now - START,
            coverage: self.shared.coverage,
        }
    }

    fn go(&mut self) -> Result<(), Violation> {
        let mut steps = 0;
        let mut deadline = self.now + self.shared.swarm.faults_ns + LIVENESS_NS;
        let mut read_before = 0;
        while !self.is_over() {
            if self.now > deadline {
                // Where a stream may hold a single span, a small write takes a round trip.
                let sides = self.shared.connections.iter().flat_map(|one| &one.sides);
                let read: u64 = sides.map(|side| side.read).sum();
                if read < read_before + PROGRESS_BYTES {
                    return Err(format!("not finished in time:{}", self.unfinished()).into());
                }
                read_before = read;
                deadline += LIVENESS_NS;
            }
            self.step()?;
            steps += 1;
            if steps > STEPS_MAX {
                return Err(format!("the run spins:{}", self.unfinished()).into());
            }
        }
        let may_be_cut = self.shared.swarm.hosts.iter().any(|host| host.spans < 100);
        let is_cramped = self.shared.swarm.hosts.iter().any(|host| host.backlog <= 2);
        let excuses = Excuses { may_time_out: self.may_time_out, may_be_cut, is_cramped };
        let of_host = |host: &Host| Acceptor {
            was_crowded: host.was_crowded() && !self.settings.flood,
            missed_cookies: host.missed_cookies(),
        };
        let acceptors: Vec<Acceptor> = self.hosts.iter().map(of_host).collect();
        for connection in &self.shared.connections {
            let acceptor = acceptors[connection.sides[1].at.0];
            connection
                .check_outcome(excuses, acceptor)
                .map_err(|error| format!("connection {connection}: {error}"))?;
        }
        self.tear_down()
    }

    fn is_over(&self) -> bool {
        self.acts.is_empty() && self.shared.connections.iter().all(Connection::is_over)
    }

    fn unfinished(&self) -> String {
        let mut text = String::new();
        for (index, connection) in self.shared.connections.iter().enumerate() {
            if !connection.is_over() {
                text.push_str(&format!("\n  connection {index} {connection}"));
            }
        }
        for host in &self.hosts {
            for program in &host.programs {
                text.push_str(&format!("\n  {}", program.describe()));
            }
            for socket in host.sockets() {
                text.push_str(&format!("\n  {} {socket}", host.address()));
            }
        }
        text
    }

    /// Everything is closed, and after a while nothing is left.
    fn tear_down(&mut self) -> Result<(), Violation> {
        for host in &mut self.hosts {
            host.set_time(self.now);
            for program in &mut host.programs {
                program.close_sockets();
            }
            let keys: Vec<SessionKey> = host.programs.iter().map(|program| program.key).collect();
            let _ = host.turn(self.now);
            for key in keys {
                host.command(Command::Detach(key), self.now);
            }
        }
        let end = self.now + LINGER_NS + 10 * SECOND;
        while self.now < end {
            self.step()?;
        }
        for host in &self.hosts {
            host.check()?;
            if host.session_count() > 0 {
                let of = host.address();
                return Err(format!("{of} keeps {} sessions for good", host.session_count()).into());
            }
            let left = host.sockets();
            if !left.is_empty() {
                return Err(format!("{} keeps sockets for good: {left:?}", host.address()).into());
            }
        }
        Ok(())
    }

    /// Everything that happens now; then on to when something happens next.
    fn step(&mut self) -> Result<(), Violation> {
        while let Some((_, act)) = self.acts.pop_if(|(time, _)| *time <= self.now) {
            self.act(act)?;
        }
        let now = self.now;
        while let Some((station, frame)) = self.network.arrived(now) {
            match station {
                Station::Host(host) => {
                    let mut wires = locked(&self.hosts[host].wires);
                    if wires.arrived.len() < wires.rx_room {
                        wires.arrived.push_back(frame);
                    } else {
                        wires.missed += 1;
                    }
                }
                Station::Adversary => {
                    if let Some(adversary) = &mut self.adversary {
                        let coverage = &mut self.shared.coverage;
                        let link = Link { now, network: &mut self.network, coverage };
                        adversary.on_frame(&frame.bytes, link)?;
                    }
                }
            }
        }
        for host in 0..self.hosts.len() {
            self.run_host(host)?;
        }
        // With nothing to come time goes on all the same, so that what hangs is found.
        self.now = self.next().unwrap_or(now).clamp(now + 1, now + 100 * SECOND);
        Ok(())
    }

    fn next(&self) -> Option<u64> {
        let acts = self.acts.last().map(|(time, _)| *time);
        let hosts = self.hosts.iter().flat_map(|host| {
            let turn = host.turn_at.max(host.stalled_until);
            let programs = host.programs.iter().filter_map(|program| program.next());
            programs.chain([turn])
        });
        acts.into_iter().chain(self.network.next()).chain(hosts).min()
    }

    fn run_host(&mut self, index: usize) -> Result<(), Violation> {
        let now = self.now;
        let host = &mut self.hosts[index];
        host.set_time(now);
        let mut stepped = false;
        for program in &mut host.programs {
            if program.next().is_some_and(|at| at <= now) {
                program.step(now, &mut self.shared)?;
                stepped = true;
            }
        }
        if self.settings.planted == Some(Break::EarlyReuse) && stepped {
            self.use_early(index);
        }
        let host = &mut self.hosts[index];
        if host.stalled_until > now {
            return self.collect(index);
        }
        if stepped || host.turn_at <= now || host.has_frames() {
            let (_, breached) = host.turn(now);
            for key in breached {
                if self.hostile != Some((index, key)) {
                    let how = self.hosts[index].breach(key);
                    return Err(format!(
                        "an honest program of host {index} lost its session: {how}"
                    )
                    .into());
                }
                self.shared.coverage.hit("fault: scribbler found out");
                let mut programs = self.hosts[index].programs.iter_mut();
                if let Some(program) = programs.find(|program| program.key == key) {
                    program.die();
                }
                self.forget_program(index, 0);
            }
            self.turns += 1;
            if self.turns.is_multiple_of(CHECK_EVERY) {
                self.hosts[index].check()?;
            }
        }
        self.collect(index)?;
        for program in &mut self.hosts[index].programs {
            program.take_events(now, &mut self.shared);
        }
        Ok(())
    }

    /// Takes what a host has sent to the network, past the witness.
    fn collect(&mut self, index: usize) -> Result<(), Violation> {
        let now = self.now;
        let sent: Vec<Sent> = {
            let host = &mut self.hosts[index];
            let mut wires = locked(&host.wires);
            if wires.sent.len() >= wires.tx_room {
                // Room again, as the port would say.
                host.turn_at = host.turn_at.min(now + 10_000);
            }
            std::mem::take(&mut wires.sent)
        };
        for frame in sent {
            let seen = self.witness.on_frame(now, index, &frame.bytes)?;
            if self.settings.trace {
                let line = wire::text::Line::of(&frame.bytes).to_string();
                println!("{:.6} {line}", (now - START) as f64 / 1e9);
            }
            if seen.is_retransmission && self.settings.planted == Some(Break::NoRetransmit) {
                continue;
            }
            let to = usize::from(*frame.bytes.get(5).unwrap_or(&0));
            if let Some(adversary) = &mut self.adversary
                && self.shared.faults_on
                && !self.settings.flood
                && frame.meta.gso.is_none()
                && to < self.hosts.len()
            {
                let whole = completed(frame.bytes.clone(), &frame.meta);
                let coverage = &mut self.shared.coverage;
                let link = Link { now, network: &mut self.network, coverage };
                adversary.on_passing(to, &whole, link);
            }
            let coverage = &mut self.shared.coverage;
            self.network.send(now, Station::Host(index), frame, coverage);
        }
        Ok(())
    }

    /// Overwrites what lies in a buffer that may be waiting to be sent, as a client would that
    /// uses a buffer again before it is acknowledged.
    fn use_early(&mut self, index: usize) {
        let buffers = self.shared.swarm.hosts[index].buffers;
        let buffer = self.random.below(u64::from(buffers)) as u32;
        for program in &self.hosts[index].programs {
            if let Some(span) = program.region.buffer(buffer) {
                program.region.write_buffer(span, &[0xee; 64]);
            }
        }
    }

    fn act(&mut self, act: Act) -> Result<(), Violation> {
        let now = self.now;
        let hosts = self.hosts.len() as u64;
        for host in &self.hosts {
            host.set_time(now);
        }
        match act {
            Act::Open(connection) => self.open(connection)?,
            Act::Datagram => self.send_datagram()?,
            Act::Kill => {
                let host = self.random.below(hosts) as usize;
                let program = self.random.below(self.shared.swarm.programs as u64) as usize;
                if !self.hosts[host].programs[program].is_hostile {
                    self.shared.coverage.hit("fault: program killed");
                    self.kill(host, program);
                    let at = now + self.random.below(500 * MS);
                    self.schedule(at, Act::Restart(host, program));
                }
            }
            Act::Restart(host, program) => {
                if let Err(reason) = self.hosts[host].start(self.seed, program, now) {
                    return Err(format!("a program could not be started again: {reason}").into());
                }
            }
            Act::Scribble(times) => self.scribble(times),
            Act::Renew => {
                let host = self.random.below(hosts) as usize;
                if !self.settings.without_renewal {
                    self.hosts[host].renew()?;
                }
                self.shared.coverage.hit("fault: export and import");
            }
            Act::Jump => {
                self.shared.coverage.hit("fault: clock jump");
                self.now += self.random.between(SECOND, 100 * SECOND);
            }
            Act::Stall => {
                self.shared.coverage.hit("fault: engine stalled");
                let host = self.random.below(hosts) as usize;
                self.hosts[host].stalled_until = now + self.random.scale_free(2 * SECOND);
            }
            Act::Cut => {
                self.shared.coverage.hit("fault: link cut");
                self.network.cut_until(now + self.random.scale_free(20 * SECOND));
            }
            Act::Hold => {
                self.shared.coverage.hit("fault: frames held");
                self.network.hold_until(now + self.random.between(300 * MS, SECOND));
            }
            Act::Flood => {
                for _ in 0..FLOOD_BURST {
                    let host = self.random.below(hosts) as usize;
                    let v6 = self.shared.swarm.v6;
                    let bytes = adversary::forged_syn(&mut self.random, host, v6);
                    let frame = Arrived { bytes, meta: RxMeta::default() };
                    self.network.put(now, Station::Host(host), frame);
                }
            }
            Act::Heal => {
                self.network.heal();
                self.shared.faults_on = false;
                for host in &self.hosts {
                    locked(&host.wires).drops = false;
                }
            }
        }
        Ok(())
    }

    fn schedule(&mut self, at: u64, act: Act) {
        let place = self.acts.partition_point(|(time, _)| *time > at);
        self.acts.insert(place, (at, act));
    }

    fn open(&mut self, index: usize) -> Result<(), Violation> {
        let now = self.now;
        let alive = |at: (usize, usize)| self.hosts[at.0].programs[at.1].is_alive();
        let both_live = self.shared.connections[index].sides.iter().all(|side| alive(side.at));
        self.shared.connections[index].lost_program |= !both_live;
        let of = self.shared.connections[index].clone();
        let sides = if of.simultaneous { 0..2 } else { 0..1 };
        for side in sides {
            let (host, program) = of.sides[side].at;
            let host = &mut self.hosts[host];
            let key = host.programs[program].key;
            if !host.programs[program].is_alive() {
                continue;
            }
            let token = match of.local_port {
                Some(port) => Some(host.authorize(key, port, now)?),
                None => None,
            };
            let end = ConnectionEnd { connection: index, side };
            host.programs[program].connect(now, end, token, &mut self.shared);
            host.turn_at = now;
        }
        if of.simultaneous {
            self.shared.coverage.hit("both sides connect");
        }
        Ok(())
    }

    fn send_datagram(&mut self) -> Result<(), Violation> {
        let r = &mut self.random;
        let hosts = self.hosts.len() as u64;
        let programs = self.shared.swarm.programs as u64;
        let mut any = || (r.below(hosts) as usize, r.below(programs) as usize);
        let (from, to) = (any(), any());
        let len = r.scale_free(self.shared.swarm.datagram_bytes).max(12);
        let number = self.shared.datagrams.len() as u64;
        let v6 = self.shared.swarm.v6;
        let host = &mut self.hosts[from.0];
        let program = &mut host.programs[from.1];
        if !program.is_alive() {
            return Ok(());
        }
        let to = datagram_address(to, v6);
        if program.send_datagram(to, number, len, &mut self.shared.seen)? {
            let shown = if program.is_hostile { u64::MAX } else { len };
            self.shared.datagrams.push((shown, 0));
            host.turn_at = self.now;
        }
        Ok(())
    }

    /// What the rest of the world knows of a program that is gone.
    fn forget_program(&mut self, host: usize, program: usize) {
        let silent_from = self.now + LINGER_NS + MS;
        for connection in &mut self.shared.connections {
            for side in 0..2 {
                if connection.sides[side].at != (host, program) {
                    continue;
                }
                if connection.opens_at > self.now && !connection.sides[side].is_open {
                    continue;
                }
                connection.lost_program = true;
                let own = &mut connection.sides[side];
                if own.is_open && own.outcome.is_none() {
                    own.outcome = Some(Outcome::Killed);
                    own.ending = Ending::Abort(0);
                }
                if let Some((from, to)) = connection.addresses {
                    let (local, remote) = if side == 0 { (from, to) } else { (to, from) };
                    self.witness.silence(local, remote, silent_from);
                }
            }
        }
    }

    fn kill(&mut self, host: usize, program: usize) {
        let key = self.hosts[host].programs[program].key;
        self.hosts[host].programs[program].die();
        self.hosts[host].command(Command::Detach(key), self.now);
        self.forget_program(host, program);
    }

    /// Writes garbage over a program's region, several times in a row.
    fn scribble(&mut self, times: u32) {
        let Some((index, key)) = self.hostile else { return };
        let host = &mut self.hosts[index];
        let Some(program) = host.programs.iter_mut().find(|program| program.key == key) else {
            return;
        };
        if times == 0 {
            // From here on its client library does nothing: only the garbage works.
            program.die();
            self.shared.coverage.hit("fault: scribble");
        }
        let r = &mut self.random;
        let geometry = *program.region.geometry();
        // Garbage everywhere that nobody rings for, or garbage in the right places that the
        // engine is told to look at.
        if self.seed.is_multiple_of(2) {
            for _ in 0..GARBAGE_RINGS {
                ring_garbage(r, &program.region);
            }
        }
        let writes = if self.seed.is_multiple_of(2) { 0 } else { r.scale_free(200) };
        let end = geometry.region_bytes;
        let controls = end - u64::from(geometry.buffer_count) * u64::from(geometry.buffer_bytes);
        for _ in 0..writes {
            let most = if r.chance(3, 4) { controls } else { end };
            let offset = r.below(most / 8) * 8;
            let value = match r.below(5) {
                0 => r.below(4),
                1 => u64::MAX - r.below(3),
                2 => r.below(64) | r.below(4) << 32,
                3 => r.below(end),
                _ => r.any(),
            };
            program.region.scribble(offset, value);
        }
        host.turn_at = self.now;
        if times == 0 {
            self.forget_program(index, 0);
        }
        if times < 20 {
            let at = self.now + self.random.scale_free(20 * MS);
            self.schedule(at, Act::Scribble(times + 1));
        } else {
            // Not found out: then it dies at last.
            self.hosts[index].command(Command::Detach(key), self.now);
        }
    }
}

/// Puts a descriptor or an offset that may mean nothing into an endpoint's queues, and rings.
fn ring_garbage(r: &mut Random, region: &Arc<Region>) {
    let index = r.below(6) as u32;
    let lane = ClientLane::new(Arc::clone(region), 0, 0);
    let Some(endpoint) = ClientEndpoint::new(Arc::clone(region), index) else { return };
    let tag = Tag::new(std::process::id(), 1);
    let end = region.geometry().region_bytes;
    let direction = if r.chance(3, 4) {
        let Ok(mut guard) = endpoint.lock_send(tag) else { return };
        let kind = r.pick(&[DescriptorKind::Data, DescriptorKind::Fin, DescriptorKind::Datagram]);
        let anywhere = r.below(end);
        let offset = r.pick(&[0, anywhere & !63, anywhere, end - 1, u64::MAX >> 1]);
        let len = r.pick(&[0, 1, 64, 1 << 20, u32::MAX]);
        let flags = DescriptorFlags::from_bits_truncate(r.any() as u8);
        guard.push(kind, flags, Span { offset, len });
        Direction::Send
    } else {
        let Ok(mut guard) = endpoint.lock_receive(tag) else { return };
        let consumed = guard.consumed().wrapping_add(r.pick(&[1, 1 << 20, u64::MAX]));
        // Rung for whether or not the engine asked.
        let _ = guard.advance(consumed);
        Direction::Receive
    };
    // The engine is not asleep, and looks with the next turn anyhow.
    let _ = lane.ring(index, direction);
}
