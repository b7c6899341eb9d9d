//! The runs, and the paper's figures beside them.

use super::pattern::Pattern;
use super::{EmpWork, MessageSystem};
use crate::bench::cell::Grid;
use crate::bench::planned::Planned;

/// Bytes of a message of figure 6 and table 2.
const BATCHED_BYTES: usize = 10_000;
/// Messages of a stream: as many as hold this much, at most 64.
const STREAM_BYTES: usize = 4 << 20;

/// All runs of a grid: points of programs of our own, then the same of the MPI program.
pub fn plan(grid: Grid) -> Vec<Planned<EmpWork>> {
    let mut plan = Vec::new();
    for is_mpi in [false, true] {
        let programs = if is_mpi { "Open MPI" } else { "own programs" };
        for (group, point, pattern) in patterns(grid) {
            for system in MessageSystem::all(is_mpi) {
                plan.push(Planned {
                    group: format!("{programs}: {group}"),
                    point: point.clone(),
                    series: system.series(),
                    work: EmpWork { system, pattern },
                    paper: paper(pattern, system),
                });
            }
        }
    }
    plan
}

fn patterns(grid: Grid) -> Vec<(&'static str, String, Pattern)> {
    let (sizes, works): (&[usize], &[u32]) = match grid {
        Grid::Smoke => (&[4], &[100]),
        Grid::Reduced => (&[4, 4096, 10_000, 65_536, 1 << 20], &[0, 100, 400]),
        Grid::Full => (
            &[4, 64, 256, 1024, 4096, 8192, 10_000, 16_384, 65_536, 262_144, 1 << 20],
            &[0, 25, 50, 100, 200, 400, 800],
        ),
    };
    let size = |bytes: usize| match bytes {
        _ if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1024 && bytes.is_multiple_of(1024) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    };
    let mut patterns = Vec::new();
    for &bytes in sizes {
        patterns.push(("half a round trip (figure 5)", size(bytes), Pattern::PingPong { bytes }));
    }
    for &bytes in sizes.iter().filter(|&&bytes| bytes > 4) {
        let depth = (STREAM_BYTES / bytes).clamp(1, 16);
        let pattern = Pattern::Stream { bytes, depth };
        patterns.push(("bandwidth one way (figure 5)", size(bytes), pattern));
    }
    let small = Pattern::Stream { bytes: 8, depth: 64 };
    patterns.push(("rate of small messages", "8 B, window of 64".to_owned(), small));
    for &work_us in works {
        let pattern = Pattern::Overlap { bytes: BATCHED_BYTES, work_us };
        let group = "five 10 kB messages each way (figure 6, table 2)";
        patterns.push((group, format!("{work_us} us of computing"), pattern));
    }
    patterns
}

/// EMP's half round trip of 4 bytes, its bandwidth of long messages, and its and TCP's columns of table 2.
fn paper(pattern: Pattern, system: MessageSystem) -> Vec<(&'static str, f64)> {
    let is_emp = system.is_accelerated();
    match (pattern, system) {
        (Pattern::PingPong { bytes: 4 }, _) if is_emp => vec![("half round trip", 23.0)],
        (Pattern::Stream { bytes: 4096, .. }, _) if is_emp => vec![("bandwidth", 0.88)],
        (Pattern::Overlap { work_us: 0, .. }, _) if is_emp => {
            vec![("Isend", 53.0), ("Irecv", 9.0), ("Waitall", 3.0)]
        }
        (Pattern::Overlap { work_us: 0, .. }, MessageSystem::MpiTcp { .. }) => {
            vec![("Isend", 137.0), ("Irecv", 4.0), ("Waitall", 126.0)]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::emp::pattern::DEPTH_MAX;

    #[test]
    fn rows_are_all_different_and_streams_fit() {
        for grid in [Grid::Smoke, Grid::Reduced, Grid::Full] {
            let plan = plan(grid);
            for (index, run) in plan.iter().enumerate() {
                let named = |run: &Planned<EmpWork>| {
                    (run.group.clone(), run.point.clone(), run.series.name)
                };
                let first = plan.iter().position(|other| named(other) == named(run));
                assert_eq!(first, Some(index), "{run:?}");
                assert!(run.work.pattern.depth() <= DEPTH_MAX);
            }
        }
    }
}
