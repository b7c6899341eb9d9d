//! The demo: the same work through the kernel and through Outboard, side by side.
//!
//! Each host has one core. Rounds alternate between the kernel and Outboard, so that whatever
//! else the machine does falls on both; the report gives medians with the extremes beside them.
//! A run disturbed by foreign processor time is repeated.
//!
//! Start reading at [`run`]; the work itself is in [`work`], what is shown in [`report`].

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lab::failure::{Explain, Failure, Result};
use lab::figures::figure;

pub mod bench;
pub mod html;
pub mod report;
pub mod work;

use bench::{Bench, Column};
use report::{DemoReport, Row};
use work::{Metric, Work};

/// How the demo is to run.
#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// Rounds wished for; fewer are run when time runs out.
    pub rounds: usize,
    /// Seconds of load in each run.
    pub seconds: u32,
    /// The whole demo ends within this time.
    pub limit: Duration,
    /// Directory of report.json and report.html.
    pub output: PathBuf,
    /// Columns to measure.
    pub columns: Vec<Column>,
    /// Work to do.
    pub works: Vec<Work>,
}

impl Default for DemoOptions {
    fn default() -> Self {
        Self {
            rounds: 5,
            seconds: 1,
            limit: Duration::from_secs(285),
            output: PathBuf::from("target/demo"),
            columns: Column::ALL.to_vec(),
            works: Work::ALL.to_vec(),
        }
    }
}

/// What was measured: the values of each metric in each column, a value for every round.
#[derive(Clone, Debug, Default)]
pub struct Measurements {
    values: BTreeMap<(Column, Metric), Vec<f64>>,
    failures: BTreeMap<(Column, Work), String>,
}

impl Measurements {
    /// Values of `metric` in `column`, one for each round that succeeded.
    pub fn values(&self, column: Column, metric: Metric) -> &[f64] {
        self.values.get(&(column, metric)).map_or(&[], Vec::as_slice)
    }

    /// Why `work` failed in `column`, if it ever did.
    pub fn failure(&self, column: Column, work: Work) -> Option<&str> {
        self.failures.get(&(column, work)).map(String::as_str)
    }
}

/// Runs the demo, prints its table and writes its reports.
///
/// # Errors
/// When the laboratory cannot be made, or when any run failed (after the reports are written).
pub fn run(options: &DemoOptions) -> Result<()> {
    lab::require_root("the demo")?;
    lab::require_programs(&[
        "redis-server",
        "redis-benchmark",
        "nginx",
        "wrk",
        "iperf3",
        "sockperf",
    ])?;
    let begin = Instant::now();
    let bench = Bench::new(options.seconds)?;
    let mut measured = Measurements::default();
    let mut rounds = 0;
    let mut longest = Duration::ZERO;
    eprintln!(
        "Two hosts, one core each; up to {} rounds of {} runs of {} s each.",
        options.rounds,
        options.columns.len() * options.works.len(),
        options.seconds
    );
    while rounds < options.rounds && (rounds == 0 || begin.elapsed() + longest < options.limit) {
        let round_begin = Instant::now();
        rounds += 1;
        // Every other round in the opposite order, so that a drift favours nobody.
        let mut columns = options.columns.clone();
        if rounds % 2 == 0 {
            columns.reverse();
        }
        for &work in &options.works {
            for &column in &columns {
                one_run(&bench, work, column, (rounds, options.rounds), &mut measured);
            }
        }
        longest = longest.max(round_begin.elapsed());
    }
    drop(bench);
    let report = DemoReport { rows: rows(options, &measured), rounds };
    tell!("{}", report.table());
    report.write(&options.output)?;
    tell!(
        "{rounds} rounds in {:.0} s; medians. Reports: {}",
        begin.elapsed().as_secs_f64(),
        options.output.join("report.html").display()
    );
    match measured.failures.values().next() {
        None => Ok(()),
        Some(first) => Err(Failure::new(
            format!("{} kinds of run failed; the first: {first}", measured.failures.len()),
            "see the lines marked `failed` above",
        )),
    }
}

fn one_run(
    bench: &Bench,
    work: Work,
    column: Column,
    (round, rounds): (usize, usize),
    measured: &mut Measurements,
) {
    let head = format!("round {round}/{rounds}  {:<22} {:<28}", column.name(), work.name());
    let live = std::io::stderr().is_terminal();
    if live {
        eprint!("{head} ...");
        let _ = std::io::stderr().flush();
    }
    let outcome = bench.measure(work, column);
    if live {
        eprint!("\r\x1b[K");
    }
    match outcome {
        Ok(samples) => {
            let shown = samples.values.first().map_or(String::new(), |(metric, value)| {
                format!("{} {}", figure(*value), metric.unit())
            });
            let noise = samples.noise_note();
            eprintln!("{head} {shown}{noise}");
            for (metric, value) in samples.values {
                measured.values.entry((column, metric)).or_default().push(value);
            }
        }
        Err(failure) => {
            eprintln!("{head} failed: {failure}");
            measured.failures.entry((column, work)).or_insert_with(|| failure.to_string());
        }
    }
}

fn rows(options: &DemoOptions, measured: &Measurements) -> Vec<Row> {
    let mut rows = Vec::new();
    for &column in options.columns.iter().filter(|&&column| column != Column::Kernel) {
        for &work in &options.works {
            for &metric in work.metrics() {
                rows.push(Row::new(
                    metric,
                    column,
                    measured.values(Column::Kernel, metric),
                    measured.values(column, metric),
                    measured.failure(column, work).or(measured.failure(Column::Kernel, work)),
                ));
            }
        }
    }
    rows
}

impl DemoReport {
    /// Writes report.json and report.html into `directory`.
    pub fn write(&self, directory: &std::path::Path) -> Result<()> {
        let advice = "make the directory writable or choose another one with --output";
        std::fs::create_dir_all(directory)
            .explain(format!("cannot create {}", directory.display()), advice)?;
        for (name, text) in [("report.json", self.json()), ("report.html", html::page(self))] {
            let path = directory.join(name);
            std::fs::write(&path, text)
                .explain(format!("cannot write {}", path.display()), advice)?;
        }
        Ok(())
    }
}
