//! One run: engines and server started, the client's load measured, everything ended.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lab::cpu::{CoreTimes, Foreign};
use lab::failure::{Explain, Failure, Result};
use lab::observer::Observer;
use lab::{Lab, Link, Program, Side, Task, Traffic, listens, serves};

use super::work::{Done, Metric, Work};

/// Whose network stack does the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Column {
    /// The kernel's, on both hosts.
    Kernel,
    /// Outboard's under the server, on the kernel's own interface and address; the kernel's under
    /// the client.
    XdpServer,
    /// Outboard's on a TAP under the server; the kernel's under the client.
    TapServer,
    /// Outboard's on both hosts, on packet ports.
    PacketBoth,
}

impl Column {
    /// All of them.
    pub const ALL: [Column; 4] = [Self::Kernel, Self::XdpServer, Self::TapServer, Self::PacketBoth];

    /// Its name in the report's `arrangement` field and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::XdpServer => "xdp-server",
            Self::TapServer => "tap-server",
            Self::PacketBoth => "packet-both",
        }
    }

    /// What it is, for the table's heading.
    pub fn description(self) -> &'static str {
        match self {
            Self::Kernel => "the kernel on both hosts, over veth",
            Self::XdpServer => {
                "Outboard under the server on the kernel's own address (XDP on veth), the kernel \
                 under the client"
            }
            Self::TapServer => "Outboard under the server (TAP), the kernel under the client",
            Self::PacketBoth => "Outboard on both hosts (packet ports on veth)",
        }
    }
}

/// Addresses of the hosts, A's first, in each column.
const KERNEL: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 2)];
const XDP: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 3, 1), Ipv4Addr::new(10, 77, 3, 2)];
const TAP: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 1, 1), Ipv4Addr::new(10, 77, 1, 2)];
const PACKET: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 2, 1), Ipv4Addr::new(10, 77, 2, 2)];

/// Foreign processor time, as a share of both cores, above which a run is repeated.
const FOREIGN_SHARE_MAX: f64 = 0.02;

/// Repetitions of a disturbed run before its figure is taken as it is.
const REPEATS: usize = 1;

/// What a run gave.
#[derive(Clone, Debug)]
pub struct Samples {
    /// A value for each of the work's metrics.
    pub values: Vec<(Metric, f64)>,
    /// Foreign processor time as a share of both cores.
    pub foreign_share: f64,
}

impl Samples {
    /// A remark for the progress line when the run was disturbed.
    pub fn noise_note(&self) -> String {
        if self.foreign_share > FOREIGN_SHARE_MAX {
            format!("  (disturbed: {:.0}% foreign CPU)", self.foreign_share * 100.0)
        } else {
            String::new()
        }
    }
}

/// The laboratory with its links, and what is needed to run Outboard in it.
#[derive(Debug)]
pub struct Bench {
    lab: Lab,
    kernel: Link,
    xdp: Link,
    packet: Link,
    executable: PathBuf,
    seconds: u32,
    rates: RefCell<HashMap<(Work, Column), f64>>,
}

/// Engines of a run and what was started beside them.
struct Running {
    /// The server's engine first.
    engines: Vec<(Program, PathBuf)>,
    server: Program,
}

impl Bench {
    /// Makes the laboratory for runs of `seconds` each.
    pub fn new(seconds: u32) -> Result<Self> {
        let lab = Lab::new()?;
        let kernel = lab.join(Some(KERNEL))?;
        let xdp = lab.join(Some(XDP))?;
        let packet = lab.join(None)?;
        let executable =
            std::env::current_exe().explain("cannot find this executable", "mount /proc")?;
        Ok(Self { lab, kernel, xdp, packet, executable, seconds, rates: RefCell::default() })
    }

    /// Does `work` in `column` and measures it; a disturbed run is repeated.
    pub fn measure(&self, work: Work, column: Column) -> Result<Samples> {
        let mut best = self.once(work, column)?;
        for _ in 0..REPEATS {
            if best.foreign_share <= FOREIGN_SHARE_MAX {
                break;
            }
            let again = self.once(work, column)?;
            if again.foreign_share < best.foreign_share {
                best = again;
            }
        }
        Ok(best)
    }

    fn once(&self, work: Work, column: Column) -> Result<Samples> {
        self.lab.suit(&self.kernel, work.traffic())?;
        let running = self.start(work, column)?;
        let expected = self.rates.borrow().get(&(work, column)).copied();
        let expected = match expected {
            None if work.calibrates() => Some(self.load(work, column, None)?.1.rate),
            known => known,
        };
        let core = self.lab.host(Side::B).core;
        let now = || CoreTimes::now(core).unwrap_or_default();
        let before = (Foreign::now(), now(), running.server.cpu_time(), running.idle_polling()?);
        let (wall, done) = self.load(work, column, expected)?;
        let after = (Foreign::now(), now(), running.server.cpu_time(), running.idle_polling()?);
        if work.calibrates() {
            self.rates.borrow_mut().insert((work, column), done.rate);
        }
        let total = after.1.since(&before.1).busy() - (after.3 - before.3).max(0.0);
        let program = after.2.saturating_sub(before.2).as_secs_f64();
        let foreign_share = after.0.since(&before.0) / (2.0 * wall.as_secs_f64());
        drop(running);
        let value = |&metric: &Metric| {
            let figure = match metric {
                Metric::GetProgramCpu => program / done.operations * 1e6,
                Metric::GetTotalCpu => total / done.operations * 1e6,
                Metric::InTotalCpu | Metric::OutTotalCpu => total / (done.operations / 1e9) * 1e3,
                Metric::PingP99 => done.second.unwrap_or(f64::NAN),
                _ => done.rate,
            };
            (metric, figure)
        };
        Ok(Samples { values: work.metrics().iter().map(value).collect(), foreign_share })
    }

    /// One run of the client: its time and what it did.
    fn load(&self, work: Work, column: Column, expected: Option<f64>) -> Result<(Duration, Done)> {
        let address = addresses(column)[1].to_string();
        let mut task = work.client(&address, self.seconds, expected);
        if column == Column::PacketBoth {
            task = task.accelerated(&self.executable, &self.socket(Side::A));
        }
        let begin = Instant::now();
        let client = self.lab.start(Side::A, task)?;
        let limit = Duration::from_secs(u64::from(self.seconds) * 4 + 5);
        let finished = client.wait(limit)?;
        let ran = begin.elapsed();
        let finished = finished.success()?;
        Ok((ran, work.read(&finished.output, ran)?))
    }

    fn socket(&self, side: Side) -> PathBuf {
        let name = if side == Side::A { "a.sock" } else { "b.sock" };
        self.lab.scratch().join(name)
    }

    fn start(&self, work: Work, column: Column) -> Result<Running> {
        let mut engines = Vec::new();
        match column {
            Column::Kernel => {}
            Column::XdpServer => {
                let traffic = match work.traffic() {
                    Traffic::Bulk => Traffic::BulkOverXdp,
                    _ => Traffic::RequestsOverXdp,
                };
                self.lab.suit(&self.xdp, traffic)?;
                let port = format!("xdp:{}", self.xdp.end(Side::B));
                engines.push(self.engine(Side::B, &port, work.poll())?);
            }
            Column::TapServer => {
                let clients = self.lab.host(Side::A).namespace();
                let name = format!("{}t", self.lab.stem());
                let port = format!("tap:{name},addr={}/24,netns={clients},napi=threaded", TAP[1]);
                engines.push(self.engine(Side::B, &port, work.poll())?);
                self.lab.adopt(Side::A, &name, TAP[0])?;
            }
            Column::PacketBoth => {
                for side in [Side::B, Side::A] {
                    let address = PACKET[usize::from(side == Side::B)];
                    let port = format!("packet:{},addr={address}/24", self.packet.end(side));
                    engines.push(self.engine(side, &port, work.poll())?);
                }
            }
        }
        let address = addresses(column)[1].to_string();
        let mut task = work.server(&address, self.lab.scratch())?;
        if column != Column::Kernel {
            task = task.accelerated(&self.executable, &self.socket(Side::B));
        }
        let mut server = self.lab.start(Side::B, task)?;
        let is_served = || engines.is_empty() || serves(&self.socket(Side::B), work.port());
        server.until(Duration::from_secs(20), |server| {
            listens(server.pid(), work.port()) && is_served()
        })?;
        Ok(Running { engines, server })
    }

    fn engine(&self, side: Side, port: &str, poll: &str) -> Result<(Program, PathBuf)> {
        let socket = self.socket(side);
        let _ = std::fs::remove_file(&socket);
        let core = self.lab.host(side).core.to_string();
        let engine = self.lab.start_engine(
            Task::new(&self.executable),
            side,
            &socket,
            &["--port", port, "--core", &core, "--poll", poll],
        )?;
        Ok((engine, socket))
    }
}

impl Running {
    /// Seconds that the server's engine has spent polling with nothing to do.
    fn idle_polling(&self) -> Result<f64> {
        let Some((engine, socket)) = self.engines.first() else { return Ok(0.0) };
        let busy = Observer::connect(socket)?.stats()?.busy_seconds();
        Ok((engine.cpu_time().as_secs_f64() - busy).max(0.0))
    }
}

fn addresses(column: Column) -> [Ipv4Addr; 2] {
    match column {
        Column::Kernel => KERNEL,
        Column::XdpServer => XDP,
        Column::TapServer => TAP,
        Column::PacketBoth => PACKET,
    }
}

/// The column called `name`.
pub fn column_named(name: &str) -> Result<Column> {
    Column::ALL.into_iter().find(|column| column.name() == name).ok_or_else(|| {
        let known: Vec<&str> = Column::ALL.iter().map(|column| column.name()).collect();
        Failure::new(
            format!("there is no arrangement {name:?}"),
            format!("choose from {}", known.join(", ")),
        )
    })
}
