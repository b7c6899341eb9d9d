//! MPICH's lists of tests. What fails runs again over the kernel's TCP: what fails there, too, is
//! Open MPI's or the test's.

use std::path::Path;
use std::time::Duration;

use lab::failure::{Explain, Result};
use lab::{Finished, Side};
use outboard_tests::mpi::{Jobs, Transport};
use outboard_tests::world::{Arrangement, World};

use super::{ETHERNET, last_lines};

/// Lists that are run.
const LISTS: [&str; 4] = ["pt2pt", "coll", "comm", "datatype"];
/// Longest time for a test that names none.
const LIMIT: Duration = Duration::from_secs(60);
/// Tests of what Open MPI 4.1.4 cannot do over any libfabric provider (pml cm, mtl ofi): it cancels no
/// sends, and never answers a synchronous one that is received by MPI_Mrecv.
const OPEN_MPI: [&str; 7] = [
    "pt2pt/issendselfcancel",
    "pt2pt/scancel",
    "pt2pt/scancel2",
    "pt2pt/pscancel",
    "pt2pt/cancelrecv",
    "pt2pt/scancel_unmatch",
    "pt2pt/mprobe",
];

/// A line of a list: the program, its ranks, arguments, environment and longest time.
#[derive(Debug)]
struct Test<'a> {
    line: &'a str,
    name: &'a str,
    ranks: u32,
    arguments: Vec<&'a str>,
    environment: Vec<(&'a str, &'a str)>,
    limit: Duration,
}

impl<'a> Test<'a> {
    /// `None`: a comment, or a test that takes more memory than machines have.
    fn of(line: &'a str) -> Option<Self> {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', '@']) || line.contains(" mem=") {
            return None;
        }
        let mut words = line.split_whitespace();
        let (name, ranks) = (words.next()?, words.next()?.parse().ok()?);
        let (mut arguments, mut environment, mut limit) = (Vec::new(), Vec::new(), LIMIT);
        for word in words {
            if let Some(argument) = word.strip_prefix("arg=") {
                arguments.push(argument);
            } else if let Some(seconds) = word.strip_prefix("timeLimit=") {
                limit = Duration::from_secs(seconds.parse().ok()?);
            } else if let Some(pair) = word.strip_prefix("env=").and_then(|it| it.split_once('=')) {
                environment.push(pair);
            }
        }
        Some(Self { line, name, ranks, arguments, environment, limit })
    }
}

/// Runs a test; `Err`: what it said when it failed.
fn run_one(
    jobs: &Jobs<'_>,
    world: &World,
    transport: Transport,
    test: &Test<'_>,
    program: &Path,
) -> Result<(), String> {
    let mut task = jobs.task(transport, test.ranks).arg(program).args(&test.arguments);
    for (name, value) in &test.environment {
        task = task.env(*name, *value);
    }
    let finished = world.lab.start(Side::A, task).and_then(|job| job.wait(test.limit));
    match finished {
        Ok(finished) if is_right(&finished) => Ok(()),
        Ok(finished) => Err(last_lines(&finished)),
        Err(failure) => Err(failure.to_string()),
    }
}

/// What MPICH's tests say at their end.
fn is_right(finished: &Finished) -> bool {
    finished.status.success() && finished.output.to_lowercase().contains("no errors")
}

/// Runs MPICH's lists but for [`OPEN_MPI`], and gives how many tests fail that TCP passes.
pub fn run(source: &Path, built: &Path, names: &str) -> Result<u32> {
    let world = World::configured(Arrangement::XdpBoth, None, ETHERNET)?;
    let jobs = Jobs::new(&world)?;
    let (mut passed, mut failed, mut as_tcp, mut lacking) = (0, 0, 0, 0);
    for list in LISTS {
        let file = source.join(list).join("testlist.in");
        let advice = "name the folder test/mpi of MPICH's source (v3.4.3)";
        let text = std::fs::read_to_string(&file)
            .explain(format!("cannot read {}", file.display()), advice)?;
        for test in text.lines().filter_map(Test::of) {
            let shown = format!("{list}/{}", test.line);
            if !shown.contains(names) {
                continue;
            }
            if OPEN_MPI.contains(&format!("{list}/{}", test.name).as_str()) {
                println!("not run          {shown}");
                continue;
            }
            let program = built.join(list).join(test.name);
            if !program.is_file() {
                lacking += 1;
                println!("does not compile {shown}");
                continue;
            }
            let Err(said) = run_one(&jobs, &world, Transport::Outboard, &test, &program) else {
                passed += 1;
                println!("pass             {shown}");
                continue;
            };
            match run_one(&jobs, &world, Transport::Tcp, &test, &program) {
                Ok(()) => {
                    failed += 1;
                    println!("FAIL             {shown}\n  {said}");
                }
                Err(_) => {
                    as_tcp += 1;
                    println!("fails with TCP   {shown}");
                }
            }
        }
    }
    println!(
        "{passed} passed, {failed} failed, {as_tcp} failed with ob1/tcp, too, {lacking} are not for Open MPI"
    );
    Ok(failed)
}
