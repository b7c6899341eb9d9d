//! `outboard bench nic`: the experiments of the paper on a software card and an onload engine (IXP2350),
//! rows A12, C1 to C4 and C6.
//!
//! The program and the kernel have the first core, the engine (or whoever stands for a card) the
//! second, which also makes the datagrams or takes them. Start at [`plan`]; [`bed`] has the three
//! interfaces, [`card`] the emulated one.

use lab::failure::Result;

use super::cell::{Grid, Sample};
use super::cores::Cores;
use super::load::{DatagramAction, Outcome};
use super::planned::{PlanArguments, Planned, Series, Subject, measure};

mod bed;
pub mod card;

use bed::{Bed, Interface, NicRun};

/// What is done in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NicWork {
    /// Datagrams through an interface.
    Run(NicRun),
    /// Datagrams of so many bytes received through the software card and through the engine, one after
    /// the other.
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
    "an engine with a nic: it verifies or completes checksums, the kernel does the rest",
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
        title: "datagrams beside the software card and the onload engine of the IXP2350",
    };
    if Cores::find(subject.name)?.is_none() {
        return Ok(());
    }
    let bed = Bed::new(arguments.window())?;
    measure(subject, arguments, &plan(arguments.grid), |work| match work {
        NicWork::Run(run) => bed.run(run).map(|outcome| samples(run, &outcome)),
        NicWork::Both(bytes) => both(&bed, *bytes),
    })
}

/// All runs of a grid.
pub fn plan(grid: Grid) -> Vec<Planned<NicWork>> {
    let (received, sent): (&[usize], &[usize]) = match grid {
        Grid::Smoke => (&[1472], &[1472]),
        Grid::Reduced => (&[16, 256, 1472, 8972], &[16, 1472, 8972]),
        Grid::Full => {
            let all = &[16, 32, 64, 128, 256, 512, 1024, 1472, 2048, 4096, 8972];
            (all, all)
        }
    };
    let all = [
        (EMULATED, Interface::Emulated),
        (SOFTNIC, Interface::Softnic),
        (ONLOADER, Interface::Onloader),
    ];
    let [_, softnic, onloader] = all;
    let mut plan = Vec::new();
    let mut add = |group: &str, bytes: usize, series, work, paper| {
        let (group, point) = (group.to_owned(), format!("{bytes} B"));
        plan.push(Planned { group, point, series, work, paper });
    };
    let run = |interface, action, bytes| NicWork::Run(NicRun { interface, action, bytes });
    for &bytes in received {
        for (series, interface) in all {
            let work = run(interface, DatagramAction::Receive, bytes);
            add("datagrams received (figure 3)", bytes, series, work, Vec::new());
        }
    }
    for &bytes in received.iter().filter(|bytes| [16, 1024, 1472].contains(*bytes)) {
        // 100% to 40% more, about 20% for large packets.
        let paper = match bytes {
            16 => vec![(SHARE, 200.0)],
            1472 => vec![(SHARE, 120.0)],
            _ => Vec::new(),
        };
        add("onloader over softnic (figure 4)", bytes, ONLOADER, NicWork::Both(bytes), paper);
    }
    for &bytes in sent {
        let work = run(Interface::Onloader, DatagramAction::Ignore, bytes);
        let group = "into the engine's buffers, and nobody receives (figure 5)";
        add(group, bytes, ONLOADER, work, Vec::new());
    }
    for &bytes in sent {
        for (series, interface) in all {
            let work = run(interface, DatagramAction::Send, bytes);
            add("datagrams sent (figure 6)", bytes, series, work, Vec::new());
        }
    }
    for &bytes in sent.iter().filter(|bytes| **bytes >= 1472) {
        for (series, interface) in [softnic, onloader] {
            let work = run(interface, DatagramAction::Discard, bytes);
            add("received without the copy to the program (A12)", bytes, series, work, Vec::new());
        }
    }
    plan
}

const SHARE: &str = "of the softnic's throughput";

/// Figures of a run.
fn samples(run: &NicRun, outcome: &Outcome) -> Vec<Sample> {
    let usage = &outcome.usage;
    let mut samples = Vec::new();
    let mut add = |name, unit, higher_is_better, value: f64| {
        samples.push(Sample { name, unit, higher_is_better, value });
    };
    let megabits = |count: u64| count as f64 * run.bytes as f64 * 8.0 / usage.seconds / 1e6;
    let carried = usage.counter(0, run.carried());
    if run.action == DatagramAction::Ignore {
        add("arrived at the engine", "Mbit/s", true, megabits(carried));
        return samples;
    }
    add("throughput", "Mbit/s", true, megabits(outcome.operations));
    add("datagrams", "k/s", true, outcome.operations as f64 / usage.seconds / 1e3);
    let busy = usage.cores.first().map_or(0.0, |core| core.busy);
    add("CPU of the program's core", "ns/B", false, busy / outcome.bytes as f64 * 1e9);
    if run.interface == Interface::Onloader && run.action != DatagramAction::Send {
        add("arrived at the engine", "Mbit/s", true, megabits(carried));
        let wakes = usage.counter(0, "wakeups") as f64 / outcome.operations as f64;
        add("wakes for each datagram", "", false, wakes);
    }
    samples
}

/// What the onloader carries, and that as a share of what the softnic does.
fn both(bed: &Bed, bytes: usize) -> Result<Vec<Sample>> {
    let rate = |interface| {
        let outcome = bed.run(&NicRun { interface, action: DatagramAction::Receive, bytes })?;
        Ok(outcome.bytes as f64 * 8.0 / outcome.usage.seconds / 1e6)
    };
    let [softnic, onloader] = [rate(Interface::Softnic)?, rate(Interface::Onloader)?];
    let sample = |name, unit, value| Sample { name, unit, higher_is_better: true, value };
    let share = onloader / softnic * 100.0;
    Ok(vec![sample("throughput", "Mbit/s", onloader), sample(SHARE, "%", share)])
}
