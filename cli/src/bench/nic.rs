//! `outboard bench nic`: the receiving experiments of the paper on a software card and an onload engine
//! (IXP2350), rows C1 to C4 and C6.
//!
//! The program and the kernel have the first core, the engine (or whoever stands for a card) the
//! second, which also makes the datagrams. Start at [`plan`]; [`device`] has the three interfaces.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use lab::failure::{Explain, Failure, Result};
use lab::observer::Observer;
use lab::{Lab, READY, Side, Task};

use super::cell::{Grid, Sample};
use super::load::{self, Outcome};
use super::planned::{PlanArguments, Planned, Series, Subject, measure, some};
use super::usage::Sources;

pub mod device;

use device::Kind;

/// Where datagrams come from, and the addresses that they go to on a TAP and at the engine.
const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 84, 8, 9);
const TAP: Ipv4Addr = Ipv4Addr::new(10, 84, 8, 1);
const ENGINE: Ipv4Addr = Ipv4Addr::new(10, 84, 8, 2);
/// Where the program listens, and where datagrams come from.
const PORT: u16 = 5001;
/// Counter of the frames that came to the engine.
const ARRIVED: &str = "port_rx_frames{port=datagrams}";
/// Longest wait for a device.
const PATIENCE: Duration = Duration::from_secs(30);
/// What the program may take beyond its own times.
const MARGIN: Duration = Duration::from_secs(60);
/// Windows of what is repeated because nothing came.
const WINDOWS_LONGER: [u32; 2] = [4, 16];
/// Load before a window.
const WARM_UP: Duration = Duration::from_millis(100);

/// What is done in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NicWork {
    /// Datagrams of so many bytes through an interface.
    Receive(Kind, usize),
    /// The same through the software card and through the engine, one after the other.
    Both(usize),
}

const fn series(name: &'static str, about: &'static str, is_counterpart: bool) -> Series {
    Series { name, about, is_counterpart }
}

const EMULATED: Series = series(
    "emulated",
    "a byte ring with a signal for each frame; driver, copy and checksums on the program's core",
    true,
);
const SOFTNIC: Series = series(
    "softnic",
    "the second core verifies checksums and writes to a TAP, whose receive thread polls",
    false,
);
const ONLOADER: Series = series("onloader", "UDP in the engine, the program preloaded", false);

/// Runs the experiment.
///
/// # Errors
/// When nothing can be measured, or some runs failed (after the reports are written).
pub fn run(arguments: &PlanArguments) -> Result<()> {
    let subject = Subject {
        name: "nic",
        title: "receiving datagrams beside the software card and the onload engine of the IXP2350",
    };
    let executable =
        std::env::current_exe().explain("cannot find the own executable", "mount /proc")?;
    let bed = Bed::new(executable, arguments.window())?;
    measure(subject, arguments, &plan(arguments.grid), |work| match *work {
        NicWork::Receive(kind, bytes) => {
            bed.receive(kind, bytes).map(|it| samples(kind, bytes, &it))
        }
        NicWork::Both(bytes) => bed.both(bytes),
    })
}

/// All runs of a grid.
pub fn plan(grid: Grid) -> Vec<Planned<NicWork>> {
    let sizes: &[usize] = match grid {
        Grid::Smoke => &[1472],
        Grid::Reduced => &[16, 64, 256, 1024, 1472, 4096, 8972],
        Grid::Full => &[16, 32, 64, 128, 256, 512, 1024, 1472, 2048, 4096, 8972],
    };
    let kinds = [(EMULATED, Kind::Emulated), (SOFTNIC, Kind::Softnic), (ONLOADER, Kind::Onloader)];
    let of = |group: &str, bytes: usize, series, work| Planned {
        group: group.to_owned(),
        point: format!("{bytes} B"),
        series,
        work,
        paper: Vec::new(),
    };
    let mut plan = Vec::new();
    for &bytes in sizes {
        let group = "datagrams received (figures 3 and 5)";
        plan.extend(
            kinds.map(|(series, kind)| of(group, bytes, series, NicWork::Receive(kind, bytes))),
        );
    }
    for &bytes in sizes.iter().filter(|bytes| [16, 256, 1024, 1472, 8972].contains(*bytes)) {
        let mut run = of("onloader over softnic (figure 4)", bytes, ONLOADER, NicWork::Both(bytes));
        // 100% to 40% more, about 20% for large packets.
        match bytes {
            16 => run.paper.push(("of the softnic's throughput", 200.0)),
            1472 => run.paper.push(("of the softnic's throughput", 120.0)),
            _ => {}
        }
        plan.push(run);
    }
    plan
}

/// Figures of a run.
fn samples(kind: Kind, bytes: usize, outcome: &Outcome) -> Vec<Sample> {
    let usage = &outcome.usage;
    let mut samples = Vec::new();
    let mut add = |name, unit, higher_is_better, value: f64| {
        samples.push(Sample { name, unit, higher_is_better, value });
    };
    let megabits = |count: u64| count as f64 * bytes as f64 * 8.0 / usage.seconds / 1e6;
    add("throughput", "Mbit/s", true, outcome.bytes as f64 * 8.0 / usage.seconds / 1e6);
    add("datagrams", "k/s", true, outcome.operations as f64 / usage.seconds / 1e3);
    let busy = usage.cores.first().map_or(0.0, |core| core.busy);
    add("CPU of the program's core", "ns/B", false, busy / outcome.bytes as f64 * 1e9);
    if kind == Kind::Onloader {
        let arrived = usage.counter(0, ARRIVED);
        add("arrived at the engine", "Mbit/s", true, megabits(arrived));
        let wakes = usage.counter(0, "wakeups") as f64 / outcome.operations as f64;
        add("wakes for each datagram", "", false, wakes);
    }
    samples
}

/// The hosts: the program's, with the kernel's end, and the other core.
struct Bed {
    lab: Lab,
    executable: PathBuf,
    window: Duration,
}

impl Bed {
    fn new(executable: PathBuf, window: Duration) -> Result<Self> {
        let lab = Lab::new()?;
        if lab.host(Side::A).core == lab.host(Side::B).core {
            return Err(Failure::new(
                "program and engine need a core each, and this process may use one only",
                "allow it a second one (taskset, cgroup)",
            ));
        }
        Ok(Self { lab, executable, window })
    }

    /// Datagrams through one interface. Where others use the cores, a short window may pass without
    /// any.
    fn receive(&self, kind: Kind, bytes: usize) -> Result<Outcome> {
        let mut outcome = self.once(kind, bytes, self.window)?;
        for longer in WINDOWS_LONGER {
            if outcome.operations > 0 {
                break;
            }
            outcome = self.once(kind, bytes, self.window * longer)?;
        }
        some(outcome.operations, "datagrams")?;
        Ok(outcome)
    }

    fn once(&self, kind: Kind, bytes: usize, window: Duration) -> Result<Outcome> {
        let socket = self.lab.scratch().join("nic.sock");
        let _ = std::fs::remove_file(&socket);
        let cores = Side::BOTH.map(|side| self.lab.host(side).core);
        let to = if kind == Kind::Onloader { ENGINE } else { TAP };
        let tap = format!("{}n", self.lab.stem());
        let threaded = if kind == Kind::Softnic { ",napi=threaded" } else { "" };
        let namespace = self.lab.host(Side::A).namespace();
        let word = match kind {
            Kind::Emulated => "emulated",
            Kind::Softnic => "softnic",
            Kind::Onloader => "onloader",
        };
        let device = Task::new(&self.executable)
            .args(["bench", "load", "device", word])
            .args(["--to", &format!("{to}:{PORT}"), "--from", &format!("{SOURCE}:{PORT}")])
            .args(["--bytes", &bytes.to_string()])
            .args(["--cores", &format!("{},{}", cores[0], cores[1])])
            .args(["--tap", &format!("tap:{tap},mtu=9000,netns={namespace}{threaded}")])
            .arg("--socket")
            .arg(&socket);
        // An engine and its programs are of one network namespace.
        let side = if kind == Kind::Onloader { Side::A } else { Side::B };
        let mut device = self.lab.start(side, device)?;
        device.until(PATIENCE, |device| device.output().contains(READY))?;
        if kind != Kind::Onloader {
            self.lab.adopt(Side::A, &tap, TAP)?;
        }
        let sources = Sources {
            cores: cores.to_vec(),
            engine_a: (kind == Kind::Onloader).then(|| socket.clone()),
            ..Sources::default()
        };
        let program = Task::new(&self.executable)
            .args(["bench", "load", "datagrams", &format!("{to}:{PORT}")])
            .args(["--warm-up".to_owned(), WARM_UP.as_millis().to_string()])
            .args(["--milliseconds".to_owned(), window.as_millis().to_string()])
            .args(sources.arguments());
        let program = match kind {
            Kind::Onloader => program.accelerated(&self.executable, &socket),
            Kind::Emulated | Kind::Softnic => program,
        };
        let program = self.lab.start(Side::A, program)?;
        let finished = program.wait(WARM_UP + window + MARGIN)?.success()?;
        let outcome = load::read(&finished.output)?;
        if !device.is_running() {
            return Err(Failure::new(
                format!("the device has ended: {}", device.errors()),
                "run it by hand to see why",
            ));
        }
        if outcome.bytes != outcome.operations * bytes as u64 {
            return Err(Failure::new("datagrams have come with other lengths", "report this"));
        }
        let counted = |kind| match kind {
            Kind::Onloader => Ok(Observer::connect(&socket)?.stats()?.counter(ARRIVED)),
            Kind::Emulated | Kind::Softnic => Ok(u64::MAX),
        };
        if counted(kind)? < outcome.operations {
            return Err(Failure::new(
                "the engine has not carried the datagrams",
                "look why the program is left to the kernel (outboard run --explain)",
            ));
        }
        Ok(outcome)
    }

    /// What the onloader carries, and that as a share of what the softnic does.
    fn both(&self, bytes: usize) -> Result<Vec<Sample>> {
        let rate = |kind| {
            let outcome = self.receive(kind, bytes)?;
            Ok::<f64, Failure>(outcome.bytes as f64 * 8.0 / outcome.usage.seconds / 1e6)
        };
        let [softnic, onloader] = [rate(Kind::Softnic)?, rate(Kind::Onloader)?];
        let sample = |name, unit, value| Sample { name, unit, higher_is_better: true, value };
        Ok(vec![
            sample("throughput", "Mbit/s", onloader),
            sample("of the softnic's throughput", "%", onloader / softnic * 100.0),
        ])
    }
}
