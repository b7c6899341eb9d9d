//! One run: links placed, engines and server started, the client's load, everything ended.

use std::cell::{Cell as RunCounter, RefCell};
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lab::cpu::Foreign;
use lab::failure::{Failure, Result};
use lab::{Lab, Link, Program, ReceiveWork, Side, Task, Traffic, listens, serves};

use super::cell::{CALIBRATION, Offered, Workload};
use super::load::{self, Outcome};
use super::system::System;
use super::usage::Sources;

/// Addresses of the hosts, A's first, on each link.
const KERNEL: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 84, 0, 1), Ipv4Addr::new(10, 84, 0, 2)];
const XDP: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 84, 1, 1), Ipv4Addr::new(10, 84, 1, 2)];
const TAP: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 84, 2, 1), Ipv4Addr::new(10, 84, 2, 2)];
const PACKET: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 84, 3, 1), Ipv4Addr::new(10, 84, 3, 2)];

/// Longest wait for a server to listen.
const PATIENCE: Duration = Duration::from_secs(30);
/// What a client may take beyond its own times.
const MARGIN: Duration = Duration::from_secs(60);
/// Workers show their cycles ten times a second.
const PROFILE_WINDOW_MIN: Duration = Duration::from_millis(500);
/// Servers' ports, one after the other, so that nothing of the run before is in the way.
const FIRST_PORT: u16 = 7000;
const PORTS: u16 = 2000;

/// Engines that have room for the largest cell.
const ENGINE_SETTINGS: &str = "[limits]\nsockets = 24576\nendpoints = 16384\n";

/// How long a run is.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Load before the window.
    pub warm_up: Duration,
    /// The window.
    pub window: Duration,
}

/// What a run gave.
#[derive(Clone, Debug)]
pub struct RunResult {
    /// What the client says.
    pub outcome: Outcome,
    /// Foreign processor time as a share of both cores.
    pub foreign_share: f64,
}

/// The laboratory with its links.
#[derive(Debug)]
pub struct Testbed {
    lab: Lab,
    kernel: Link,
    xdp: Link,
    packet: Link,
    executable: PathBuf,
    runs: RunCounter<u16>,
    /// Requests a second that each system has done in [`CALIBRATION`].
    capacities: RefCell<HashMap<System, f64>>,
}

/// What runs beside the client.
struct Running {
    _engines: Vec<Program>,
    server: Program,
    address: String,
}

impl Testbed {
    /// Makes the laboratory; `executable` is engine, server and client.
    ///
    /// # Errors
    /// Without root.
    pub fn new(executable: PathBuf) -> Result<Self> {
        let lab = Lab::new()?;
        if lab.host(Side::A).core == lab.host(Side::B).core {
            return Err(Failure::new(
                "each host needs a core of its own, but this process may use only one",
                "allow it a second one (taskset, cgroup)",
            ));
        }
        for side in Side::BOTH {
            let ports = "net.ipv4.ip_local_port_range=10000 65000";
            lab.inside(side, &["sysctl", "-qw", ports, "net.ipv4.tcp_no_metrics_save=1"])?;
        }
        let kernel = lab.join(Some(KERNEL))?;
        let xdp = lab.join(Some(XDP))?;
        let packet = lab.join(None)?;
        std::fs::write(lab.scratch().join("engine.toml"), ENGINE_SETTINGS).map_err(|error| {
            Failure::new(format!("cannot write settings: {error}"), "make room")
        })?;
        Ok(Self {
            lab,
            kernel,
            xdp,
            packet,
            executable,
            runs: RunCounter::new(0),
            capacities: RefCell::default(),
        })
    }

    /// Does `work` on `system` and measures it.
    ///
    /// # Errors
    /// When a program fails, no work was done, an engine did not carry it, or receive work was
    /// misplaced.
    pub fn run(&self, work: Workload, system: System, times: Times) -> Result<RunResult> {
        let capacity = match work {
            Workload::Open(Offered::Percent(_)) => self.capacity(system, times)?,
            _ => 0.0,
        };
        let times = match work {
            Workload::Profile => Times { window: times.window.max(PROFILE_WINDOW_MIN), ..times },
            _ => times,
        };
        self.once(work, system, times, capacity)
    }

    /// Requests a second of a system, measured when it is first asked for.
    fn capacity(&self, system: System, times: Times) -> Result<f64> {
        let known = self.capacities.borrow().get(&system).copied();
        if let Some(capacity) = known {
            return Ok(capacity);
        }
        let outcome = self.once(CALIBRATION, system, times, 0.0)?.outcome;
        let capacity = outcome.operations as f64 / outcome.usage.seconds;
        self.capacities.borrow_mut().insert(system, capacity);
        Ok(capacity)
    }

    fn once(
        &self,
        work: Workload,
        system: System,
        times: Times,
        capacity: f64,
    ) -> Result<RunResult> {
        self.runs.set(self.runs.get().wrapping_add(1));
        let running = self.start(work, system)?;
        let arguments = work.client_arguments(&running.address, capacity);
        let client = self.client(&arguments, system, times, &running);
        let placed = ReceiveWork::now(&self.lab, &self.kernel);
        let (foreign, begin) = (Foreign::now(), Instant::now());
        let client = self.lab.start(Side::A, client)?;
        let finished = client.wait(times.warm_up + times.window + MARGIN)?.success()?;
        let foreign_share = Foreign::now().since(&foreign) / (2.0 * begin.elapsed().as_secs_f64());
        if let System::Kernel(placement) = system {
            ReceiveWork::now(&self.lab, &self.kernel).check(&placed, placement)?;
        }
        drop(running);
        let outcome = load::read(&finished.output)?;
        check(work, system, &outcome)?;
        Ok(RunResult { outcome, foreign_share })
    }

    fn socket(&self, side: Side) -> PathBuf {
        self.lab.scratch().join(if side == Side::A { "a.sock" } else { "b.sock" })
    }

    fn server_port(&self) -> u16 {
        FIRST_PORT + self.runs.get() % PORTS
    }

    /// The client's task on host A.
    fn client(
        &self,
        arguments: &[String],
        system: System,
        times: Times,
        running: &Running,
    ) -> Task {
        let engine = |side: Side| system.accelerates(side).then(|| self.socket(side));
        let sources = Sources {
            cores: Side::BOTH.map(|side| self.lab.host(side).core).to_vec(),
            engine_a: engine(Side::A),
            engine_b: engine(Side::B),
            server: Some(running.server.pid()),
        };
        let task = Task::new(&self.executable)
            .args(["bench", "load"])
            .args(arguments)
            .args(["--warm-up".to_owned(), times.warm_up.as_millis().to_string()])
            .args(["--milliseconds".to_owned(), times.window.as_millis().to_string()])
            .args(sources.arguments());
        self.on_its_stack(Side::A, system, task)
    }

    fn on_its_stack(&self, side: Side, system: System, task: Task) -> Task {
        match system.accelerates(side) {
            true => task.accelerated(&self.executable, &self.socket(side)),
            false => task,
        }
    }

    fn start(&self, work: Workload, system: System) -> Result<Running> {
        let mut engines = Vec::new();
        let address = match system {
            System::Kernel(placement) => {
                self.lab.place(&self.kernel, placement)?;
                KERNEL[1]
            }
            System::XdpServer | System::XdpClient => {
                let traffic = match work.is_bulk() {
                    true => Traffic::BulkOverXdp,
                    false => Traffic::RequestsOverXdp,
                };
                self.lab.suit(&self.xdp, traffic)?;
                let side = if system == System::XdpServer { Side::B } else { Side::A };
                engines.push(self.engine(side, &format!("xdp:{}", self.xdp.end(side)))?);
                XDP[1]
            }
            System::TapServer => {
                let clients = self.lab.host(Side::A).namespace();
                let name = format!("{}t", self.lab.stem());
                let port = format!("tap:{name},addr={}/24,netns={clients},napi=threaded", TAP[1]);
                engines.push(self.engine(Side::B, &port)?);
                self.lab.adopt(Side::A, &name, TAP[0])?;
                TAP[1]
            }
            System::PacketBoth => {
                for (side, address) in Side::BOTH.into_iter().zip(PACKET) {
                    let port = format!("packet:{},addr={address}/24", self.packet.end(side));
                    engines.push(self.engine(side, &port)?);
                }
                PACKET[1]
            }
        };
        let port = self.server_port();
        let address = format!("{address}:{port}");
        let server = Task::new(&self.executable)
            .args(["bench", "load", "serve", &address, work.service().word()])
            .args(work.server_arguments());
        let mut server = self.lab.start(Side::B, self.on_its_stack(Side::B, system, server))?;
        let is_served = || !system.accelerates(Side::B) || serves(&self.socket(Side::B), port);
        server.until(PATIENCE, |server| listens(server.pid(), port) && is_served())?;
        Ok(Running { _engines: engines, server, address })
    }

    fn engine(&self, side: Side, port: &str) -> Result<Program> {
        let socket = self.socket(side);
        let _ = std::fs::remove_file(&socket);
        let core = self.lab.host(side).core.to_string();
        let settings = self.lab.scratch().join("engine.toml").display().to_string();
        let arguments =
            ["--config", &settings, "--port", port, "--core", &core, "--poll", "adaptive"];
        self.lab.start_engine(Task::new(&self.executable), side, &socket, &arguments)
    }
}

/// Whether work was done, by whom it should have been.
fn check(work: Workload, system: System, outcome: &Outcome) -> Result<()> {
    if outcome.operations == 0 {
        return Err(Failure::new(
            "no operation completed in the window",
            "look for a connection that hangs",
        ));
    }
    if outcome.errors > 0 {
        let cause = format!("{} operations of {} failed", outcome.errors, outcome.operations);
        return Err(Failure::new(cause, "run the programs by hand to see which"));
    }
    for (host, side) in Side::BOTH.into_iter().enumerate() {
        if !system.accelerates(side) {
            continue;
        }
        if work == Workload::Profile && outcome.usage.counter(host, "cycles_tx") == 0 {
            return Err(Failure::new(
                "the engine has shown no cycles in the window",
                "measure longer (--window)",
            ));
        }
        let least = work.carried(outcome, host);
        let carried =
            ["stream_rx_bytes", "stream_tx_bytes"].map(|name| outcome.usage.counter(host, name));
        if carried[0] < least[0] || carried[1] < least[1] {
            return Err(Failure::new(
                format!(
                    "the engine of host {side:?} has carried {carried:?} bytes in and out, less than \
                     {least:?}"
                ),
                "check why the programs use the kernel (outboard run --explain)",
            ));
        }
    }
    Ok(())
}
