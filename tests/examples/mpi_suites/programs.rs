//! Programs of Debian's packages that check their own results.

use std::path::Path;
use std::time::Duration;

use lab::failure::{Explain, Result};
use lab::{Finished, Side};
use outboard_tests::held::counter;
use outboard_tests::mpi::{Jobs, Transport};
use outboard_tests::world::{Arrangement, World};

use super::{NETWORKS, last_lines};

/// Longest time for a program.
const LIMIT: Duration = Duration::from_secs(1800);
/// Frames that cross the network at least.
const FRAMES_MIN: u64 = 1000;
/// hpcc's input: linear equations, a transposition, random access, Fourier transforms.
const HPCC: &str = include_str!("../../programs/hpcc.txt");

/// Runs the programs over both encapsulations and gives how many runs were wrong.
pub fn run() -> Result<u32> {
    let mut failed = 0;
    for (network, settings) in NETWORKS {
        let world = World::configured(Arrangement::XdpBoth, None, settings)?;
        let jobs = Jobs::new(&world)?;
        let before = counter(&world, Side::B, "messages_rx_frames");
        let outcome = hpcc(&world, &jobs)?;
        let frames = counter(&world, Side::B, "messages_rx_frames") - before;
        match outcome {
            Ok(()) if frames >= FRAMES_MIN => println!("pass hpcc over {network}, {frames} frames"),
            Ok(()) => {
                failed += 1;
                println!("FAIL hpcc over {network}: only {frames} frames through the engines");
            }
            Err(said) => {
                failed += 1;
                println!("FAIL hpcc over {network}: {said}");
            }
        }
    }
    Ok(failed)
}

/// The HPC Challenge benchmarks; `Err`: what was wrong.
fn hpcc(world: &World, jobs: &Jobs<'_>) -> Result<Result<(), String>> {
    let folder = world.lab.scratch().join("hpcc");
    let advice = "make room there";
    std::fs::create_dir(&folder)
        .and_then(|()| std::fs::write(folder.join("hpccinf.txt"), HPCC))
        .explain(format!("cannot write to {}", folder.display()), advice)?;
    let task = jobs.task(Transport::Outboard, 4).arg("-wdir").arg(&folder).arg("hpcc");
    let finished = world.lab.start(Side::A, task)?.wait(LIMIT)?;
    Ok(judge(&finished, &folder.join("hpccoutf.txt")))
}

/// hpcc ends its report with `Success=1` if nothing that it checked was wrong.
fn judge(finished: &Finished, report: &Path) -> Result<(), String> {
    if !finished.status.success() {
        return Err(last_lines(finished));
    }
    let report = std::fs::read_to_string(report).map_err(|error| error.to_string())?;
    let has = |line: &str| report.lines().any(|own| own == line);
    let wrong: Vec<&str> =
        report.lines().filter(|line| line.contains("FAILED") || line.ends_with("Error")).collect();
    match has("Success=1") && wrong.is_empty() {
        true => Ok(()),
        false => Err(format!("its report says: {}", wrong.join("; "))),
    }
}
