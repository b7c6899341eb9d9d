//! `outboard congestion`: what congestion controls make of paths, in simulation, and next to it the
//! same cases run by the kernel through the same narrow place.

use std::process::ExitCode;

use ::engine::config::CongestionKind;
use ::sim::congestion::{Case, CaseResult, run, table};
use lab::failure::Result;

use crate::relayed::Relayed;

/// How much less goodput than the kernel's is pointed out.
const NEAR_PERCENT: f64 = 10.0;

const HEADING: &str = "\
Goodput as percent of 10 Mbit/s over 20 seconds, and Jain's fairness of the second half. Ours runs in
virtual time (`crates/sim/src/congestion`), the kernel's through a relay over TAP devices that is the
same code with the same losses. The buffer is percent of what the path holds.";

/// What to run.
pub struct Tables {
    /// The kernel, too.
    pub kernel: bool,
    /// Cases that the kernel runs at a time.
    pub jobs: usize,
}

/// Prints the tables; failure when BBR is farther from the kernel's than it may be.
pub fn congestion(what: &Tables) -> Result<ExitCode> {
    if !what.kernel {
        print!("{}", table());
        return Ok(ExitCode::SUCCESS);
    }
    let kinds = [CongestionKind::Reno, CongestionKind::Cubic, CongestionKind::Bbr];
    let wanted: Vec<(Case, CongestionKind)> =
        kinds.into_iter().flat_map(|kind| Case::all().map(move |case| (case, kind))).collect();
    let relayed = Relayed::new()?;
    let kernels = relayed.run(&wanted, what.jobs)?;
    tell!("{HEADING}");
    let mut far = 0;
    for (kind, cells) in kinds.iter().zip(kernels.chunks(kernels.len() / kinds.len())) {
        tell!(
            "\n## {}\n\n| rtt | buffer | loss | flows | Outboard | kernel | ratio |",
            kind.name()
        );
        tell!("|---|---|---|---|---|---|---|");
        for (case, kernel) in Case::all().zip(cells) {
            let ours = run(&case, *kind);
            let ratio = ours.goodput_percent() / kernel.goodput_percent().max(0.1);
            let is_far = (1.0 - ratio).abs() * 100.0 > NEAR_PERCENT;
            far += usize::from(is_far && *kind == CongestionKind::Bbr);
            tell!("{}", row(&case, &ours, kernel, ratio));
        }
    }
    tell!("\n{far} cells of bbr differ by more than {NEAR_PERCENT} percent.");
    Ok(if far == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn row(case: &Case, ours: &CaseResult, kernel: &CaseResult, ratio: f64) -> String {
    let Case { rtt_ms, buffer_percent, loss_ppm, flows } = case;
    let loss = f64::from(*loss_ppm) / 10_000.0;
    format!(
        "| {rtt_ms} ms | {buffer_percent}% | {loss}% | {flows} | {} | {} | {ratio:.2} |",
        ours.text().trim_start(),
        kernel.text().trim_start()
    )
}
