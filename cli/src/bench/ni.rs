//! `outboard bench ni`: the experiments of the paper on a quad Ethernet network interface (IXP1200)
//! with the byte rings of raw endpoints, rows D1 to D4, D6 and D7.
//!
//! The program has the first core, the engine (or whoever stands for it) the second. Start at
//! [`plan`]; [`rings`] measures rings alone, [`switched`] programs that exchange frames with
//! themselves over four ports of a switch in memory, [`paths`] messages between two hosts.

use lab::failure::{Failure, Result};

use super::cell::Sample;
use super::cores::Cores;
use super::emp::pattern::Pattern;
use super::planned::{PlanArguments, Planned, Subject, measure_together};

mod bare;
mod instrument;
mod paths;
mod plan;
mod rig;
mod rings;
mod switch;
mod switched;

pub use plan::plan;

/// What is done in a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NiWork {
    /// Blocks through a ring, or copies of them.
    Blocks(rings::Blocks),
    /// The block at which a carrier reaches half of its bandwidth.
    HalfBlock(rings::Carrier),
    /// Frames that wait for a publication at a low rate, and what a publication for each costs.
    Publishing(rings::Publishing),
    /// Frames from each port of a switch to the next.
    Exchange(switched::Exchange),
    /// The limit that the links set to such an exchange.
    Limit(switched::Exchange),
    /// Frames of so many bytes there and back.
    RoundTrips(usize),
    /// Operations that the engine has left for each byte.
    Headroom(switched::Exchange),
    /// Messages of the same protocol by different paths.
    Messages(paths::MessagePath, Pattern),
}

/// Runs the experiment.
///
/// # Errors
/// When nothing can be measured, or some runs failed (after the reports are written).
pub fn run(arguments: &PlanArguments) -> Result<()> {
    let subject = Subject {
        name: "ni",
        title: "byte rings and frames beside the user-level network interface of the IXP1200",
    };
    let Some(cores) = Cores::find(subject.name)? else { return Ok(()) };
    let window = arguments.window();
    let carriers = rings::Carriers::new(cores)?;
    let hosts = paths::MessageHosts::new(window)?;
    let together = |run: &Planned<NiWork>| match run.work {
        NiWork::Messages(..) => Some(run.series.name),
        _ => None,
    };
    measure_together(subject, arguments, &plan(arguments.grid), together, |works| {
        if let [NiWork::Messages(path, _), ..] = works {
            return hosts.run(*path, works);
        }
        let single = |work: &NiWork| match work {
            NiWork::Blocks(blocks) => carriers.bandwidth(blocks, window),
            NiWork::HalfBlock(carrier) => carriers.half_block(*carrier, window),
            NiWork::Publishing(publishing) => rings::publish(publishing, cores, window),
            NiWork::Exchange(exchange) => switched::exchange(exchange, cores, window),
            NiWork::Limit(exchange) => Ok(switched::limit(exchange)),
            NiWork::RoundTrips(bytes) => switched::round_trips(*bytes, arguments.grid, cores),
            NiWork::Headroom(exchange) => switched::headroom(exchange, cores, window),
            NiWork::Messages(..) => Ok(Vec::new()),
        };
        works.iter().map(single).collect()
    })
}

/// A failure of the engine or the client, as the user reads it.
fn failed(what: &str, error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("{what}: {error}"), "report this")
}
