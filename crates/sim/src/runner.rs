//! Runs seeds and tells of failures in a line that repeats them.

use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::coverage::Table;
use crate::hashes::Hashes;
use crate::sim::{Break, Report, Settings, Sim};

/// A seed that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// With which bug put in.
    pub planted: Option<Break>,
    /// What was wrong.
    pub what: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let planted = match self.planted {
            None => "",
            Some(Break::NoRetransmit) => " --break no-retransmit",
            Some(Break::EarlyReuse) => " --break early-reuse",
        };
        write!(f, "outboard sim --seed {}{planted}: {}", self.seed, self.what)
    }
}

impl std::error::Error for Failure {}

/// Runs a seed once. A panic anywhere is a failure like others.
pub fn run(seed: u64, settings: Settings) -> Result<Report, Failure> {
    let fail = |what| Failure { seed, planted: settings.planted, what };
    match catch_unwind(AssertUnwindSafe(|| Sim::run(seed, settings))) {
        Ok(result) => result.map_err(|violation| fail(violation.to_string())),
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
            Err(fail(format!("panic: {}", text.unwrap_or_default())))
        }
    }
}

/// Runs a seed twice: the same frames must come, also when the second run does not exchange the
/// stack for its own image where the first does.
pub fn check(seed: u64, settings: Settings) -> Result<Report, Failure> {
    let first = run(seed, settings)?;
    let second = run(seed, Settings { without_renewal: true, ..settings })?;
    if first.hash == second.hash {
        return Ok(first);
    }
    let what =
        format!("two runs of the seed differ: {} and {} frames", first.frames, second.frames);
    Err(Failure { seed, planted: settings.planted, what })
}

/// What a range of seeds gave.
#[derive(Debug, Default)]
pub struct Summary {
    /// In how many runs each fault and rare branch was hit.
    pub table: Table,
    /// Seeds that failed.
    pub failures: Vec<Failure>,
    /// Hashes of the runs that were clean.
    pub hashes: Hashes,
    /// Frames of all runs.
    pub frames: u64,
    /// Virtual seconds of all runs.
    pub virtual_s: u64,
}

/// One seed in so many is run twice.
const TWICE_EVERY: u64 = 8;

/// Runs a range of seeds and calls `progress` after each. Ends early after `failures_max`
/// failures.
pub fn range(
    seeds: RangeInclusive<u64>,
    settings: Settings,
    failures_max: usize,
    mut progress: impl FnMut(u64, &Summary),
) -> Summary {
    let mut summary = Summary::default();
    for seed in seeds {
        let result = match seed % TWICE_EVERY {
            0 => check(seed, settings),
            _ => run(seed, settings),
        };
        match result {
            Ok(report) => {
                summary.table.add(&report.coverage);
                summary.hashes.note(seed, &report);
                summary.frames += report.frames;
                summary.virtual_s += report.virtual_ns / 1_000_000_000;
            }
            Err(failure) => summary.failures.push(failure),
        }
        progress(seed, &summary);
        if summary.failures.len() >= failures_max {
            break;
        }
    }
    summary
}
