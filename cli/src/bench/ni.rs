//! `outboard bench ni`: the experiments of the paper on a quad Ethernet network interface (IXP1200)
//! with the byte rings of raw endpoints, rows D1 to D4 and D7.
//!
//! The program has the first core, the engine (or whoever stands for it) the second. Start at
//! [`plan`]; [`rings`] measures rings alone, [`switched`] programs that exchange frames with
//! themselves over four ports of a switch in memory.

use lab::failure::{Failure, Result};

use super::cell::Sample;
use super::planned::{PlanArguments, Subject, measure};

pub(super) mod cores;
mod instrument;
mod plan;
mod rig;
mod rings;
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
    let cores = cores::Cores::find()?;
    let window = arguments.window();
    measure(subject, arguments, &plan(arguments.grid), |work| match work {
        NiWork::Blocks(blocks) => rings::bandwidth(blocks, cores, window),
        NiWork::HalfBlock(carrier) => rings::half_block(*carrier, cores, window),
        NiWork::Publishing(publishing) => rings::publish(publishing, cores, window),
        NiWork::Exchange(exchange) => switched::exchange(exchange, cores, window),
        NiWork::Limit(exchange) => Ok(switched::limit(exchange)),
        NiWork::RoundTrips(bytes) => switched::round_trips(*bytes, arguments.grid, cores),
        NiWork::Headroom(exchange) => switched::headroom(exchange, cores, window),
    })
}

/// A failure of the engine or the client, as the user reads it.
fn failed(what: &str, error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("{what}: {error}"), "report this")
}
