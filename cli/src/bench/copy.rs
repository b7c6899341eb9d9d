//! `outboard bench copy`: bulk from and to the library's buffers, beside the same from and to registered
//! memory, by size; messages and TCP streams, with the processor time of programs and engines (rows A5
//! and B4).
//!
//! Both hosts have an engine on a packet port. Streams are received through buffers in both cases.

use std::cell::Cell as Counter;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use lab::failure::{Explain, Failure, Result};
use lab::{Lab, Link, Program, Side, Task};

use super::cell::{Grid, Sample};
use super::load::copy::{CopyCarrier, Kept, SERVING};
use super::load::{self, Outcome};
use super::planned::{PlanArguments, Planned, Series, Subject, measure, some};
use super::usage::Sources;

/// The hosts' addresses.
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 84, 3, 1), Ipv4Addr::new(10, 84, 3, 2)];
/// Receivers' ports, one after the other, so that nothing of the run before is in the way.
const FIRST_PORT: u16 = 9000;
/// Longest wait for a receiver to be there.
const PATIENCE: Duration = Duration::from_secs(30);
/// What a sender may take beyond its own times.
const MARGIN: Duration = Duration::from_secs(60);
/// Load before the window, at most.
const WARM_UP_MAX: Duration = Duration::from_millis(200);
const KIB: f64 = 1024.0;

/// What is done in a run.
#[derive(Clone, Copy, Debug)]
pub struct CopyWork {
    carrier: CopyCarrier,
    bytes: u32,
    kept: Kept,
}

const POOL: Series = Series {
    name: "pool",
    about: "from and to the program's own memory, which the library copies to and from buffers",
    is_counterpart: true,
};
const REGISTERED: Series = Series {
    name: "registered",
    about: "from and to registered memory; streams are received through buffers",
    is_counterpart: false,
};

const ANEW: Series = Series {
    name: "registered-anew",
    about: "from registered memory, and to memory that is registered for each message",
    is_counterpart: false,
};

/// The runs: of each point the pool first. Streams are received through buffers, so that nothing is
/// registered anew for them.
pub fn plan(grid: Grid) -> Vec<Planned<CopyWork>> {
    let sizes: &[u32] = match grid {
        Grid::Smoke => &[65_536],
        Grid::Reduced => &[64, 1024, 16_384, 65_536, 1 << 20],
        Grid::Full => &[64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1 << 20],
    };
    let mut all = Vec::new();
    for carrier in [CopyCarrier::Messages, CopyCarrier::Stream] {
        for bytes in sizes.iter().copied() {
            let all_kept = [(POOL, Kept::Pool), (REGISTERED, Kept::Registered), (ANEW, Kept::Anew)];
            for (series, kept) in all_kept {
                if kept == Kept::Anew && carrier == CopyCarrier::Stream {
                    continue;
                }
                all.push(Planned {
                    group: carrier.word().to_owned(),
                    point: format!("{bytes} B"),
                    series,
                    work: CopyWork { carrier, bytes, kept },
                    paper: Vec::new(),
                });
            }
        }
    }
    all
}

/// Runs the experiment.
///
/// # Errors
/// When the laboratory cannot be made, or some runs failed (after the reports are written).
pub fn run(arguments: &PlanArguments) -> Result<()> {
    let subject = Subject {
        name: "copy",
        title: "bulk from and to buffers that the library copies, and registered memory",
    };
    let executable =
        std::env::current_exe().explain("cannot find this executable", "mount /proc")?;
    let hosts = Hosts::new(executable)?;
    let _engines = hosts.engines()?;
    let window = arguments.window();
    measure(subject, arguments, &plan(arguments.grid), |work| {
        let outcome = hosts.run(work, window)?;
        check(work, &outcome)?;
        Ok(samples(&outcome))
    })
}

/// Two hosts with an engine each.
struct Hosts {
    lab: Lab,
    link: Link,
    executable: PathBuf,
    runs: Counter<u16>,
}

impl Hosts {
    fn new(executable: PathBuf) -> Result<Self> {
        let lab = Lab::new()?;
        let link = lab.join(None)?;
        Ok(Self { lab, link, executable, runs: Counter::new(0) })
    }

    fn socket(&self, side: Side) -> PathBuf {
        self.lab.scratch().join(if side == Side::A { "a.sock" } else { "b.sock" })
    }

    fn engines(&self) -> Result<Vec<Program>> {
        let start = |(side, address): (Side, Ipv4Addr)| {
            let core = self.lab.host(side).core.to_string();
            let port = format!("packet:{},addr={address}/24", self.link.end(side));
            let arguments = ["--port", &port, "--core", &core, "--poll", "adaptive"];
            let engine = Task::new(&self.executable);
            self.lab.start_engine(engine, side, &self.socket(side), &arguments)
        };
        Side::BOTH.into_iter().zip(ADDRESSES).map(start).collect()
    }

    fn task(&self, side: Side, command: &str, work: &CopyWork, address: &str) -> Task {
        Task::new(&self.executable)
            .args(["bench", "load", command])
            .arg(self.socket(side))
            .arg(address)
            .args(["--carrier", work.carrier.word(), "--memory", work.kept.word()])
            .args(["--bytes".to_owned(), work.bytes.to_string()])
    }

    fn run(&self, work: &CopyWork, window: Duration) -> Result<Outcome> {
        self.runs.set(self.runs.get().wrapping_add(1));
        let address = format!("{}:{}", ADDRESSES[1], FIRST_PORT.wrapping_add(self.runs.get()));
        let server = self.task(Side::B, "copy-serve", work, &address);
        let mut server = self.lab.start(Side::B, server)?;
        server.until(PATIENCE, |server| server.output().contains(SERVING))?;
        let sources = Sources {
            cores: Side::BOTH.map(|side| self.lab.host(side).core).to_vec(),
            engine_a: Some(self.socket(Side::A)),
            engine_b: Some(self.socket(Side::B)),
            server: Some(server.pid()),
        };
        let warm_up = WARM_UP_MAX.min(window);
        let client = self
            .task(Side::A, "copy", work, &address)
            .args(["--warm-up".to_owned(), warm_up.as_millis().to_string()])
            .args(["--milliseconds".to_owned(), window.as_millis().to_string()])
            .args(sources.arguments());
        let client = self.lab.start(Side::A, client)?;
        let finished = client.wait(warm_up + window + MARGIN)?.success()?;
        server.stop();
        load::read(&finished.output)
    }
}

/// Fails unless the engines have carried what was sent.
fn check(work: &CopyWork, outcome: &Outcome) -> Result<()> {
    let carried = match work.carrier {
        CopyCarrier::Messages => "messages_tx_frames",
        CopyCarrier::Stream => "stream_tx_bytes",
    };
    some(outcome.bytes, "bytes")?;
    match outcome.usage.counter(0, carried) {
        0 => Err(Failure::new(format!("{carried} did not grow"), "see the engines' logs")),
        _ => Ok(()),
    }
}

/// The figures of a run.
fn samples(outcome: &Outcome) -> Vec<Sample> {
    let usage = &outcome.usage;
    let kib = outcome.bytes as f64 / KIB;
    let busy = |host: usize| usage.counter(host, "busy_ns") as f64 / kib;
    let cost = |name, value| Sample { name, unit: "ns/KiB", higher_is_better: false, value };
    vec![
        Sample {
            name: "bandwidth",
            unit: "Gbit/s",
            higher_is_better: true,
            value: outcome.bytes as f64 * 8.0 / usage.seconds / 1e9,
        },
        cost("sender", usage.client * 1e9 / kib),
        cost("sender's engine", busy(0)),
        cost("receiver", usage.server * 1e9 / kib),
        cost("receiver's engine", busy(1)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_has_registered_memory_beside_the_pool() {
        for grid in [Grid::Smoke, Grid::Reduced, Grid::Full] {
            let plan = plan(grid);
            for points in plan.chunk_by(|a, b| (&a.group, &a.point) == (&b.group, &b.point)) {
                let names: Vec<&str> = points.iter().map(|run| run.series.name).collect();
                let all = ["pool", "registered", "registered-anew"];
                let count = if points[0].group == "stream" { 2 } else { 3 };
                assert_eq!(names, all[..count]);
            }
        }
    }

    #[test]
    fn costs_are_per_kib_of_what_was_carried() {
        let mut outcome = Outcome { bytes: 2048, operations: 2, ..Outcome::default() };
        outcome.usage.seconds = 1.0;
        outcome.usage.client = 1e-6;
        let all = samples(&outcome);
        assert_eq!((all[1].name, all[1].value), ("sender", 500.0));
    }
}
