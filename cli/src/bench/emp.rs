//! `outboard bench emp`: the experiments of the EMP paper on messages, rows B1, B4 and B7.
//!
//! Two hosts with a core each. Programs of our own exchange messages over the engines and over TCP
//! connections of the kernel; an MPI program does the same over the engines and over what else Open
//! MPI has. Start at [`plan`]; what is exchanged is in [`pattern`], the hosts are in [`testbed`].

use lab::failure::Result;

use super::planned::{PlanArguments, Planned, Subject, measure_together};

pub mod pattern;
mod plan;
mod system;
mod testbed;

pub use plan::plan;
pub use system::MessageSystem;

/// A pattern on a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmpWork {
    /// Whose messages.
    pub system: MessageSystem,
    /// What is exchanged.
    pub pattern: pattern::Pattern,
}

/// Runs the experiment.
///
/// # Errors
/// When nothing can be measured, or some runs failed (after the reports are written).
pub fn run(arguments: &PlanArguments) -> Result<()> {
    let subject = Subject { name: "emp", title: "messages beside TCP, and MPI over both" };
    let plan = plan(arguments.grid);
    let testbed = testbed::MessageTestbed::new()?;
    let together = |run: &Planned<EmpWork>| Some(run.series.name);
    measure_together(subject, arguments, &plan, together, |works| {
        testbed.run(works, arguments.window())
    })
}
