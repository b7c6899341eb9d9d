//! Intel's IMB-MPI1, all of it, with its data checked.

use std::time::Duration;

use lab::Side;
use lab::failure::Result;
use outboard_tests::mpi::{Jobs, Transport};
use outboard_tests::world::{Arrangement, World};

use super::{NETWORKS, last_lines};

/// Longest time for a run.
const LIMIT: Duration = Duration::from_secs(3600);

/// Runs all of IMB-MPI1 over both encapsulations and gives how many runs were wrong.
pub fn run(program: &str) -> Result<u32> {
    let mut failed = 0;
    for (name, settings) in NETWORKS {
        let world = World::configured(Arrangement::XdpBoth, None, settings)?;
        let jobs = Jobs::new(&world)?;
        let options = "-npmin 2 -iter 10 -iter_policy off -msglog 0:20 -time 60";
        let task = jobs.task(Transport::Outboard, 4).arg(program).args(options.split(' '));
        let finished = world.lab.start(Side::A, task)?.wait(LIMIT)?;
        let tables = finished.output.matches("# Benchmarking").count();
        let defects = wrong_rows(&finished.output);
        let is_whole = finished.output.contains("# All processes entering MPI_Finalize");
        // Sizes that took longer than -time.
        let left_out = finished.output.matches("time-out").count();
        println!(
            "{name}: {tables} tables, {defects} rows with wrong data, {left_out} sizes left out as too slow"
        );
        if !finished.status.success() || !is_whole || defects + left_out > 0 {
            failed += 1;
            println!("FAIL {name}: {}", last_lines(&finished));
        }
    }
    Ok(failed)
}

/// Rows of IMB's tables whose last column, the defects of checked data, is not zero.
fn wrong_rows(output: &str) -> usize {
    let mut has_defects = false;
    let mut wrong = 0;
    for line in output.lines().map(str::trim) {
        if line.starts_with('#') {
            has_defects = line.ends_with("defects") || has_defects && line.contains("bytes");
        } else if has_defects && !line.is_empty() && !line.contains("time-out") {
            let last =
                line.split_whitespace().next_back().and_then(|word| word.parse::<f64>().ok());
            wrong += usize::from(last != Some(0.0));
        }
    }
    wrong
}
