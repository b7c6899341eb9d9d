//! One program at both ends of very many connections, in one thread: it connects through one engine,
//! answers through the other, and asks at a steady rate, each connection in its turn.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::native::Listener;
use client::{ConnectOptions, Endpoint, EndpointId, Errno, Session};
use lab::failure::{Explain, Failure, Result};
use lab::observer::{Observer, Stats};
use rustix::thread::CpuSet;
use serde::{Deserialize, Serialize};

use super::memory_of;

/// Few active connections, to compare with all of them.
const FEW: u32 = 100;
/// Connections that stand and have talked before memory is looked at for the first time: an engine that
/// has done nothing yet has not touched what it has once, however many there are.
const FIRST: u32 = 2048;
/// Bytes of a request, and of its answer.
const REQUEST: [u8; 64] = [0x5a; 64];
/// The first of the ports that are listened at.
const FIRST_PORT: u16 = 7000;
/// Connections to one port: fewer than there are ports to connect from.
const PER_PORT: u32 = 12_000;
/// Connections being opened at a time.
const BATCH: u32 = 256;
/// Until everything that a connection's last words left behind has run out.
const QUIET: Duration = Duration::from_secs(3);
/// Longest time without progress.
const PATIENCE: Duration = Duration::from_secs(20);

/// What to do.
#[derive(Clone, Debug)]
pub struct Drive {
    /// Engine to connect through.
    pub client: PathBuf,
    /// Engine to answer through: the one that is looked at.
    pub server: PathBuf,
    /// Its address.
    pub address: Ipv4Addr,
    /// Core to run on.
    pub core: usize,
    /// Connections.
    pub connections: u32,
    /// Requests per second.
    pub rate: u32,
    /// Seconds of each window.
    pub seconds: u32,
    /// Windows at each number of active connections.
    pub rounds: usize,
}

/// What it came to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Connections that stood at the same time.
    pub connections: u32,
    /// Private memory of the answering engine, bytes of one connection.
    pub engine_bytes: f64,
    /// Memory of the region, bytes of one connection.
    pub region_bytes: f64,
    /// Buffers that are not in the pool while all are idle, beside the stock of the one lane.
    pub buffers_idle: u64,
    /// Connections opened and accepted per second, by one program at both ends.
    pub opened_per_second: f64,
    /// Windows with few active connections.
    pub few: Vec<ScaleWindow>,
    /// Windows with all of them active.
    pub all: Vec<ScaleWindow>,
}

/// A measured window.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ScaleWindow {
    /// Connections that take turns.
    pub active: u32,
    /// Requests answered per second.
    pub requests_per_second: f64,
    /// Frames of the engine, received and sent, for each request.
    pub frames_per_request: f64,
    /// Nanoseconds of the engine's core that a frame costs.
    pub ns_per_frame: f64,
    /// Frames of a turn that had work.
    pub frames_per_turn: f64,
    /// Median time until an answer, microseconds.
    pub p50_us: f64,
    /// Hundredth part of the answers took longer, microseconds.
    pub p99_us: f64,
}

impl Measured {
    /// How much more a frame costs among all connections than among few: of the medians.
    pub fn ratio(&self) -> f64 {
        let cost = |windows: &[ScaleWindow]| {
            let costs: Vec<f64> = windows.iter().map(|window| window.ns_per_frame).collect();
            lab::figures::median(&costs).unwrap_or(f64::NAN)
        };
        cost(&self.all) / cost(&self.few)
    }
}

/// One connection as its client sees it.
struct Asked {
    endpoint: Endpoint,
    /// Its request is not answered yet; since when.
    since: Option<Instant>,
}

struct Driver {
    client: Arc<Session>,
    server: Arc<Session>,
    listeners: Vec<Listener>,
    asked: Vec<Asked>,
    /// Connection of an endpoint of the client's.
    of_client: Vec<u32>,
    /// Endpoints of the server's.
    accepted: Vec<Option<Endpoint>>,
    accepted_count: u32,
    answered: u64,
    times_us: Vec<u32>,
    events: Vec<EndpointId>,
}

fn attach(path: &Path) -> Result<Arc<Session>> {
    Session::attach(path, "outboard scale")
        .explain(format!("cannot attach at {}", path.display()), "start the engine first")
}

fn failed(what: &str) -> impl Fn(Errno) -> Failure {
    move |errno| Failure::new(format!("{what}: {errno}"), "look at `outboard stats`")
}

fn put<T>(list: &mut Vec<T>, at: usize, value: T, empty: impl Fn() -> T) {
    if list.len() <= at {
        list.resize_with(at + 1, empty);
    }
    list[at] = value;
}

impl Driver {
    fn new(what: &Drive) -> Result<Self> {
        let (client, server) = (attach(&what.client)?, attach(&what.server)?);
        let ports = what.connections.div_ceil(PER_PORT).max(1);
        let listeners = (0..ports)
            .map(|number| {
                let local = SocketAddr::new(what.address.into(), FIRST_PORT + number as u16);
                Listener::bind(&server, local)
                    .explain(format!("cannot listen at {local}"), "choose a free address")
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            client,
            server,
            listeners,
            asked: Vec::new(),
            of_client: Vec::new(),
            accepted: Vec::new(),
            accepted_count: 0,
            answered: 0,
            times_us: Vec::new(),
            events: Vec::new(),
        })
    }

    /// Opens connections until `count` stand.
    fn open(&mut self, what: &Drive, count: u32) -> Result<()> {
        let mut progress = (Instant::now(), 0);
        while self.accepted_count < count {
            let batch = BATCH.min(count - self.asked.len() as u32);
            for _ in 0..batch {
                let number = self.asked.len() as u32;
                let port = FIRST_PORT + (number / PER_PORT) as u16;
                let remote = SocketAddr::new(what.address.into(), port);
                let endpoint = self
                    .client
                    .connect(remote, None, &ConnectOptions::default())
                    .explain(format!("connection {number} cannot be opened"), "raise its limits")?;
                put(&mut self.of_client, endpoint.id().0 as usize, number, || u32::MAX);
                self.asked.push(Asked { endpoint, since: None });
            }
            while self.accepted_count < self.asked.len() as u32 {
                self.accept()?;
                if self.accepted_count != progress.1 {
                    progress = (Instant::now(), self.accepted_count);
                }
                if progress.0.elapsed() > PATIENCE {
                    return Err(Failure::new(
                        format!("{} of {} connections stand", progress.1, self.asked.len()),
                        "look at the drops of `outboard stats`",
                    ));
                }
            }
            if self.accepted_count.is_multiple_of(64 * BATCH) {
                eprintln!("{} of {} connections stand", self.accepted_count, what.connections);
            }
        }
        // What the events named has been seen: everybody is connected, nobody has asked.
        self.drain_events();
        Ok(())
    }

    fn drain_events(&mut self) {
        for session in [&self.client, &self.server] {
            session.take_events(&mut self.events);
        }
        self.events.clear();
    }

    fn accept(&mut self) -> Result<()> {
        for listener in &self.listeners {
            loop {
                match listener.endpoint().accept() {
                    Ok(accepted) => {
                        let at = accepted.endpoint.id().0 as usize;
                        put(&mut self.accepted, at, Some(accepted.endpoint), || None);
                        self.accepted_count += 1;
                    }
                    Err(Errno::AGAIN) => break,
                    Err(errno) => return Err(failed("cannot accept")(errno)),
                }
            }
        }
        Ok(())
    }

    /// Takes what has come to either end; whether anything had.
    fn serve(&mut self) -> Result<bool> {
        let mut bytes = [0; 4096];
        let mut events = std::mem::take(&mut self.events);
        self.server.take_events(&mut events);
        for id in &events {
            let Some(Some(endpoint)) = self.accepted.get(id.0 as usize) else { continue };
            match endpoint.read(&mut bytes) {
                Ok(0) => return Err(Failure::new("a client has left", "run it again")),
                Ok(len) => {
                    endpoint.write(&bytes[..len]).map_err(failed("cannot answer"))?;
                }
                Err(Errno::AGAIN) => {}
                Err(errno) => return Err(failed("cannot read a request")(errno)),
            }
        }
        let mut had_any = !events.is_empty();
        events.clear();
        self.client.take_events(&mut events);
        for id in &events {
            let number = self.of_client.get(id.0 as usize).copied().unwrap_or(u32::MAX);
            let Some(asked) = self.asked.get_mut(number as usize) else { continue };
            match asked.endpoint.read(&mut bytes) {
                Ok(0) => return Err(Failure::new("the server has left", "run it again")),
                Ok(_) => {
                    if let Some(since) = asked.since.take() {
                        self.answered += 1;
                        let us = since.elapsed().as_nanos() / 100;
                        self.times_us.push(u32::try_from(us).unwrap_or(u32::MAX));
                    }
                }
                Err(Errno::AGAIN) => {}
                Err(errno) => return Err(failed("cannot read an answer")(errno)),
            }
        }
        had_any |= !events.is_empty();
        events.clear();
        self.events = events;
        Ok(had_any)
    }

    /// Asks at a steady rate, each of the first `active` connections in its turn.
    fn ask(&mut self, active: u32, rate: u32, seconds: f64) -> Result<()> {
        let began = Instant::now();
        let (mut sent, all) = (0, (f64::from(rate) * seconds) as u64);
        let first = self.answered;
        let mut progress = Instant::now();
        while self.answered - first < all {
            let due = (began.elapsed().as_secs_f64() * f64::from(rate)) as u64;
            while sent < due.min(all) {
                let asked = &mut self.asked[(sent % u64::from(active)) as usize];
                if asked.since.is_some() {
                    // Later than it should be: the rate that was reached is told.
                    break;
                }
                match asked.endpoint.write(&REQUEST) {
                    Ok(_) => asked.since = Some(Instant::now()),
                    Err(Errno::AGAIN) => break,
                    Err(errno) => return Err(failed("cannot ask")(errno)),
                }
                sent += 1;
            }
            if self.serve()? {
                progress = Instant::now();
            } else {
                // The engine of this core.
                rustix::thread::sched_yield();
                if progress.elapsed() > PATIENCE {
                    let unanswered = sent - (self.answered - first);
                    return Err(Failure::new(
                        format!("{unanswered} requests of {sent} are not answered"),
                        "look at the drops of `outboard stats`",
                    ));
                }
            }
        }
        Ok(())
    }

    fn window(&mut self, what: &Drive, engine: &mut Observer, active: u32) -> Result<ScaleWindow> {
        // Once round all of them, so that nothing is as connecting left it.
        let round = f64::from(active) / f64::from(what.rate);
        self.ask(active, what.rate, round.max(0.5))?;
        self.times_us.clear();
        let seconds = round.max(f64::from(what.seconds));
        let (before, began, first) = (engine.stats()?, Instant::now(), self.answered);
        self.ask(active, what.rate, seconds)?;
        let (after, took) = (engine.stats()?, began.elapsed().as_secs_f64());
        let requests = (self.answered - first) as f64;
        let more = |name: &str| (after.counter(name) - before.counter(name)) as f64;
        let frames = more("rx_frames") + more("tx_frames");
        self.times_us.sort_unstable();
        let time = |percent: usize| {
            let at = (self.times_us.len() * percent / 100).min(self.times_us.len() - 1);
            f64::from(self.times_us[at]) / 10.0
        };
        let window = ScaleWindow {
            active,
            requests_per_second: requests / took,
            frames_per_request: frames / requests,
            ns_per_frame: more("busy_ns") / frames,
            frames_per_turn: frames / more("turns_with_work").max(1.0),
            p50_us: time(50),
            p99_us: time(99),
        };
        eprintln!(
            "{active} active: {:.0} ns a frame, {:.0} requests/s",
            window.ns_per_frame, window.requests_per_second
        );
        self.explain(&before, &after, frames);
        Ok(window)
    }

    /// Opens connections until `count` stand, lets each talk once, so that all have something behind them
    /// that an idle connection has, and tells the engine's memory then.
    fn stand(&mut self, what: &Drive, count: u32, engine: i32) -> Result<(u64, u64)> {
        self.open(what, count)?;
        self.ask(count, what.rate, f64::from(count) / f64::from(what.rate))?;
        std::thread::sleep(QUIET);
        memory_of(engine)
    }

    /// Where the engine's time went, for who looks on.
    fn explain(&self, before: &Stats, after: &Stats, frames: f64) {
        for (name, value) in &after.counters {
            let grown = value.saturating_sub(before.counter(name)) as f64;
            if name.starts_with("cycles") && grown > 0.0 {
                eprintln!("  {name}: {:.0} a frame", grown / frames);
            }
        }
    }
}

/// Runs it.
pub fn drive(what: &Drive) -> Result<Measured> {
    let mut cores = CpuSet::new();
    cores.set(what.core);
    rustix::thread::sched_setaffinity(None, &cores)
        .explain(format!("cannot run on core {}", what.core), "allow this process that core")?;
    let mut driver = Driver::new(what)?;
    let mut engine = Observer::connect(&what.server)?;
    let first = FIRST.min(what.connections / 2);
    let (private, shared) = driver.stand(what, first, engine.pid())?;
    let began = Instant::now();
    driver.open(what, what.connections)?;
    let more = f64::from(what.connections - first);
    let opened_per_second = more / began.elapsed().as_secs_f64();
    let (private_now, shared_now) = driver.stand(what, what.connections, engine.pid())?;
    let each = |now: u64, then: u64| now.saturating_sub(then) as f64 / more;
    let stats = engine.stats()?;
    let mut measured = Measured {
        connections: driver.accepted_count,
        engine_bytes: each(private_now, private),
        region_bytes: each(shared_now, shared),
        buffers_idle: stats.counter("buffers_total") - stats.counter("buffers_free"),
        opened_per_second,
        few: Vec::new(),
        all: Vec::new(),
    };
    for _ in 0..what.rounds {
        measured.few.push(driver.window(what, &mut engine, FEW.min(what.connections))?);
        measured.all.push(driver.window(what, &mut engine, what.connections)?);
    }
    Ok(measured)
}
