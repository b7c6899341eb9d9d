//! Suites of MPI programs over the engines of two hosts: `mpi_suites mpich SOURCE BUILT [NAMES]` runs the
//! lists of MPICH's tests, SOURCE being the folder test/mpi of MPICH's source, BUILT what
//! scripts/mpich-tests made of it, and NAMES a part of the tests' names; `mpi_suites imb PROGRAM` runs all
//! of IMB-MPI1, built to check its data. `make mpich-tests` and `make imb` run them.
//!
//! What fails runs again over the kernel's TCP: what fails there, too, is Open MPI's or the test's.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use lab::failure::{Explain, Failure, Result};
use lab::{Finished, Side, require_root};
use outboard_tests::mpi::{Jobs, Transport};
use outboard_tests::world::{Arrangement, World};

/// MPICH's lists that are run.
const LISTS: [&str; 4] = ["pt2pt", "coll", "comm", "datatype"];
/// Longest time for a test of MPICH's.
const TEST: Duration = Duration::from_secs(180);
/// Longest time for IMB.
const IMB: Duration = Duration::from_secs(3600);
/// What each engine is configured with, by turns.
const NETWORKS: [(&str, &str); 2] =
    [("UDP", ""), ("Ethernet", "[messages]\nencapsulation = \"ethernet\"\n")];

fn main() -> Result<ExitCode> {
    require_root("mpi_suites")?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let failed = match words[..] {
        ["mpich", source, built] => mpich(Path::new(source), Path::new(built), "")?,
        ["mpich", source, built, names] => mpich(Path::new(source), Path::new(built), names)?,
        ["imb", program] => imb(program)?,
        _ => {
            let usage = "mpi_suites mpich SOURCE BUILT [NAMES], or mpi_suites imb PROGRAM";
            return Err(Failure::new(usage, "run it by `make mpich-tests` or `make imb`"));
        }
    };
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A line of a list: the program, its ranks, arguments and environment.
#[derive(Debug)]
struct Test<'a> {
    line: &'a str,
    name: &'a str,
    ranks: u32,
    arguments: Vec<&'a str>,
    environment: Vec<(&'a str, &'a str)>,
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
        let (mut arguments, mut environment) = (Vec::new(), Vec::new());
        for word in words {
            if let Some(argument) = word.strip_prefix("arg=") {
                arguments.push(argument);
            } else if let Some(pair) = word.strip_prefix("env=").and_then(|it| it.split_once('=')) {
                environment.push(pair);
            }
        }
        Some(Self { line, name, ranks, arguments, environment })
    }
}

/// Runs one test; `Err`: what it said when it failed.
fn run(
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
    let finished = world.lab.start(Side::A, task).and_then(|job| job.wait(TEST));
    match finished {
        Ok(finished) if is_right(&finished) => Ok(()),
        Ok(finished) => Err(last_lines(&finished)),
        Err(failure) => Err(failure.to_string()),
    }
}

/// What MPICH's tests say at their end.
fn is_right(finished: &Finished) -> bool {
    finished.status.success() && finished.output.contains("No Errors")
}

fn last_lines(finished: &Finished) -> String {
    let all = format!("{}\n{}", finished.output, finished.errors);
    let lines: Vec<&str> = all.lines().collect();
    format!("{}\n    {}", finished.status, lines[lines.len().saturating_sub(12)..].join("\n    "))
}

/// Runs MPICH's lists and gives how many tests fail that TCP passes.
fn mpich(source: &Path, built: &Path, names: &str) -> Result<u32> {
    let world = World::configured(Arrangement::XdpBoth, None, NETWORKS[1].1)?;
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
            let program = built.join(list).join(test.name);
            if !program.is_file() {
                lacking += 1;
                println!("does not compile {shown}");
                continue;
            }
            let Err(said) = run(&jobs, &world, Transport::Outboard, &test, &program) else {
                passed += 1;
                println!("pass             {shown}");
                continue;
            };
            match run(&jobs, &world, Transport::Tcp, &test, &program) {
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

/// Runs all of IMB-MPI1 over both encapsulations and gives how many runs were wrong.
fn imb(program: &str) -> Result<u32> {
    let mut failed = 0;
    for (name, settings) in NETWORKS {
        let world = World::configured(Arrangement::XdpBoth, None, settings)?;
        let jobs = Jobs::new(&world)?;
        let options = "-npmin 2 -iter 10 -iter_policy off -msglog 0:20 -time 5";
        let task = jobs.task(Transport::Outboard, 4).arg(program).args(options.split(' '));
        let finished = world.lab.start(Side::A, task)?.wait(IMB)?;
        let tables = finished.output.matches("# Benchmarking").count();
        let defects = wrong_rows(&finished.output);
        let is_whole = finished.output.contains("# All processes entering MPI_Finalize");
        println!("{name}: {tables} tables, {defects} rows with wrong data");
        if !finished.status.success() || !is_whole || defects > 0 {
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
        } else if has_defects && !line.is_empty() {
            let last =
                line.split_whitespace().next_back().and_then(|word| word.parse::<f64>().ok());
            wrong += usize::from(last != Some(0.0));
        }
    }
    wrong
}
