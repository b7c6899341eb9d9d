//! `outboard scale`: what very many connections cost. A million in simulation; a hundred thousand
//! through a real port, between two engines, with programs that use the native API.
//!
//! Start reading at [`run`], then [`drive::drive`].

use std::fs;
use std::io::{IsTerminal, Write as _};
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::time::Duration;

use lab::failure::{Explain, Failure, Result};
use lab::{Lab, Side, Task};
use serde::Serialize;

pub mod drive;
mod report;

use drive::Measured;

/// Addresses of the two engines.
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 76, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 76, 0, 2);

/// How much more a packet may cost among all connections than among a hundred.
const RATIO_MAX: f64 = 1.15;

/// What to run.
#[derive(Clone, Debug)]
pub struct ScaleOptions {
    /// Connections in simulation; 0 for none.
    pub simulated: u32,
    /// Connections through a port; 0 for none.
    pub connections: u32,
    /// Requests per second.
    pub rate: u32,
    /// Seconds of each measured window.
    pub seconds: u32,
    /// Windows at each number of active connections.
    pub rounds: usize,
    /// As JSON.
    pub json: bool,
}

/// All figures.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// The simulation's.
    pub simulated: Option<Simulated>,
    /// Those through a port.
    pub measured: Option<Measured>,
}

/// What came of the simulation; memory in bytes of one connection in one stack.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Simulated {
    /// Connections that stood at the same time.
    pub connections: u32,
    /// Memory when all stood.
    pub bytes_established: f64,
    /// Memory after three hours without a word but keepalives.
    pub bytes_idle: f64,
    /// Memory after some had talked.
    pub bytes_talked: f64,
    /// Keepalive probes, all answered.
    pub keepalives: u64,
    /// Connections that talked.
    pub talked: u32,
    /// Frames in all.
    pub frames: u64,
    /// How long it took.
    pub seconds: f64,
}

/// Runs it, and tells; failure when a packet costs too much more among many connections.
pub fn run(options: &ScaleOptions) -> Result<ExitCode> {
    let simulated = match options.simulated {
        0 => None,
        connections => Some(simulate(connections)?),
    };
    let measured = match options.connections {
        0 => None,
        _ => Some(measure(options)?),
    };
    let figures = Figures { simulated, measured };
    if options.json {
        let text = serde_json::to_string_pretty(&figures);
        println!("{}", text.explain("cannot write the figures", "report this")?);
    } else {
        print!("{}", report::markdown(&figures));
    }
    let is_flat = figures.measured.as_ref().is_none_or(|of| of.ratio() <= RATIO_MAX);
    Ok(if is_flat { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Shows what goes on, where somebody looks on.
pub fn show(text: &str) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        let _ = write!(stderr, "\r\x1b[K{text}");
        let _ = stderr.flush();
    }
}

/// Bytes of private memory that a process has touched, and of memory that it shares with others.
pub fn memory_of(pid: i32) -> Result<(u64, u64)> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).explain(format!("cannot read {path}"), "mount /proc")?;
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let value = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        value.unwrap_or(0) * 1024
    };
    Ok((kib("RssAnon:"), kib("RssShmem:")))
}

fn simulate(connections: u32) -> Result<Simulated> {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let memory = || memory_of(own).map_or(0, |(private, _)| private);
    let progress = |what: &str, count: u32, of: u32| {
        if count.is_multiple_of(16384) || count == of {
            show(&format!("in simulation: {count} of {of} {what}"));
        }
    };
    let began = std::time::Instant::now();
    let settings = sim::scale::ScaleSettings {
        connections,
        talkers_of: 100,
        memory: &memory,
        progress: &progress,
    };
    let report = sim::scale::run(&settings).map_err(|said| {
        Failure::new(said.to_string(), "run the tests of crates/sim for details")
    })?;
    show("");
    Ok(Simulated {
        connections: report.connections,
        bytes_established: report.bytes_established,
        bytes_idle: report.bytes_idle,
        bytes_talked: report.bytes_talked,
        keepalives: report.keepalives,
        talked: report.talked,
        frames: report.frames,
        seconds: began.elapsed().as_secs_f64(),
    })
}

/// Two engines, each on a packet port of a virtual link; the one that is looked at has a core of its
/// own, everybody else has the other core.
fn measure(options: &ScaleOptions) -> Result<Measured> {
    let lab = Lab::new()?;
    let link = lab.join(None)?;
    let executable =
        std::env::current_exe().explain("cannot find this executable", "mount /proc")?;
    let settings = lab.scratch().join("scale.toml");
    fs::write(&settings, limits(options.connections))
        .explain("cannot write the engines' configuration", "make TMPDIR writable")?;
    let engine = |side: Side, address: Ipv4Addr| -> Result<_> {
        let socket = lab.scratch().join(format!("{}.sock", link.end(side)));
        let port = format!("packet:{},addr={address}/24", link.end(side));
        let core = lab.host(side).core.to_string();
        let settings = settings.to_string_lossy().into_owned();
        let poll = if side == Side::B { "busy" } else { "adaptive" };
        let arguments = ["--config", &settings, "--port", &port, "--core", &core, "--poll", poll];
        let task = Task::new(&executable).foremost();
        let running = lab.start_engine(task, side, &socket, &arguments)?;
        Ok((running, socket))
    };
    let (_client, client) = engine(Side::A, CLIENT)?;
    let (_server, server) = engine(Side::B, SERVER)?;
    let driver = Task::new(&executable)
        .args(["scale-drive", "--client"])
        .arg(&client)
        .arg("--server")
        .arg(&server)
        .args(["--address", &SERVER.to_string()])
        .args(["--core", &lab.host(Side::A).core.to_string()])
        .args(["--connections", &options.connections.to_string()])
        .args(["--rate", &options.rate.to_string()])
        .args(["--seconds", &options.seconds.to_string()])
        .args(["--rounds", &options.rounds.to_string()]);
    // In the servers' namespace, for a listener is a socket of the kernel's there first.
    let mut driver = lab.start(Side::B, driver)?;
    let limit = Duration::from_secs(600);
    let mut shown = 0;
    let running = driver.until(limit, |driver| {
        let said = driver.errors();
        if let Some(line) = said.lines().nth(shown) {
            shown += 1;
            show(&format!("through a port: {line}"));
        }
        !driver.output().is_empty()
    });
    show("");
    running?;
    let finished = driver.wait(Duration::from_secs(60))?.success()?;
    serde_json::from_str(&finished.output)
        .explain("cannot read the figures of the run", "report this")
}

/// Settings of an engine for so many connections; the defaults are for 16,384 endpoints of a session.
/// The queues are as short as requests and answers need them, because this machine's shared memory
/// may come in huge pages, of which each endpoint would touch all.
fn limits(connections: u32) -> String {
    let room = connections + 1024;
    format!(
        "[limits]\nsockets = {room}\nendpoints = {room}\ncontexts = 1\nsend_slots = 16\n\
         receive_slots = 64\n"
    )
}

/// The executable's part that makes and drives the connections; see [`drive::drive`].
pub fn drive(what: &drive::Drive) -> Result<ExitCode> {
    let measured = drive::drive(what)?;
    let text = serde_json::to_string(&measured);
    println!("{}", text.explain("cannot write the figures", "report this")?);
    Ok(ExitCode::SUCCESS)
}
