//! Rounds over all cells and systems, with progress.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use lab::failure::{Failure, Result};
use lab::figures::figure;

use super::Options;
use super::cell::{Grid, GridCell, Sample};
use super::report::{Heading, Place, Report, SystemRow};
use super::system::System;
use super::testbed::{RunResult, Testbed, Times};

/// Foreign processor time, as a share of both cores, above which a run is repeated.
pub(super) const FOREIGN_SHARE_MAX: f64 = 0.02;
/// Repetitions of a run that was disturbed.
const REPEATS: usize = 1;
/// Repetitions of a run that failed, each with a longer window: on a busy machine a short one may
/// pass without any work.
const RETRIES: u32 = 2;
/// Load before the window, at most.
const WARM_UP_MAX: Duration = Duration::from_millis(200);

/// The values of a cell on a system, one for each round.
struct Series<'a> {
    cell: &'a GridCell,
    system: System,
    rounds: Vec<RunResult>,
    failure: Option<String>,
}

/// Measures, prints the table and writes the reports.
///
/// # Errors
/// When the laboratory cannot be made, or when any run failed (after the reports are written).
pub fn run(options: &Options) -> Result<()> {
    let begin = Instant::now();
    let testbed = Testbed::new(options.executable.clone())?;
    let times = Times { warm_up: WARM_UP_MAX.min(options.window), window: options.window };
    let cells = options.experiment.cells(options.grid);
    let mut all: Vec<Series<'_>> = Vec::new();
    for cell in &cells {
        let series = |&system: &System| Series { cell, system, rounds: Vec::new(), failure: None };
        all.extend(options.systems.iter().map(series));
    }
    let runs = all.len() * options.rounds;
    say(&format!(
        "{}: {} cells on {} systems, {} rounds, {runs} runs",
        options.experiment.name(),
        cells.len(),
        options.systems.len(),
        options.rounds
    ));
    let mut done = 0;
    for round in 0..options.rounds {
        for of_cell in all.chunks_mut(options.systems.len().max(1)) {
            // Another system begins in each round, so that a drift favours nobody.
            let count = of_cell.len();
            for turn in 0..count {
                let series = &mut of_cell[(turn + round) % count];
                done += 1;
                let outcome = one(&testbed, options.grid, times, series, &format!("{done}/{runs}"));
                match outcome {
                    Ok(measured) => series.rounds.push(measured),
                    Err(failure) => {
                        series.failure.get_or_insert_with(|| failure.to_string());
                    }
                }
            }
        }
    }
    drop(testbed);
    let rows = all.iter().map(row).collect();
    let described = |system: &System| (system.name().to_owned(), system.description().to_owned());
    let heading = Heading {
        experiment: options.experiment.name(),
        title: options.experiment.title(),
        grid: options.grid,
        rounds: options.rounds,
        window: options.window,
        systems: options.systems.iter().map(described).collect(),
    };
    finish(&Report::new(heading, rows), &options.output, begin)
}

/// Prints a report's table and writes its files.
///
/// # Errors
/// When they cannot be written, or any run failed.
pub(super) fn finish(report: &Report, output: &Path, begin: Instant) -> Result<()> {
    tell!("{}", report.table());
    report.write(output, &report.experiment)?;
    let page = output.join(format!("{}.html", report.experiment));
    tell!("{:.0} s; {}", begin.elapsed().as_secs_f64(), page.display());
    let failures: Vec<&SystemRow> =
        report.rows.iter().filter(|row| row.failure.is_some()).collect();
    match failures.first().and_then(|row| row.failure.as_deref()) {
        None => Ok(()),
        Some(first) => Err(Failure::new(
            format!("{} rows failed; the first: {first}", failures.len()),
            "see the lines marked `failed` above",
        )),
    }
}

/// One run with its line of progress.
fn one(
    testbed: &Testbed,
    grid: Grid,
    times: Times,
    series: &Series<'_>,
    count: &str,
) -> Result<RunResult> {
    let GridCell { group, point, work } = series.cell;
    let head = format!("{count:>9}  {:<16} {group}, {point}", series.system.name());
    let live = std::io::stderr().is_terminal();
    if live {
        let _ = write!(std::io::stderr(), "{head} ...");
    }
    let outcome = undisturbed(grid, times, |times| testbed.run(*work, series.system, times));
    if live {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
    match &outcome {
        Ok(measured) => {
            let metrics = work.metrics(series.system, &measured.outcome);
            let main = metrics.first().map_or(String::new(), shown);
            let noise = match measured.foreign_share > FOREIGN_SHARE_MAX {
                true => {
                    format!("  (disturbed: {:.0}% foreign CPU)", measured.foreign_share * 100.0)
                }
                false => String::new(),
            };
            say(&format!("{head}: {main}{noise}"));
        }
        Err(failure) => say(&format!("{head}: failed: {failure}")),
    }
    outcome
}

/// What `run` gives, repeated when it was disturbed or failed. The smallest grid shows that all
/// works, and its figures are nobody's.
fn undisturbed(
    grid: Grid,
    times: Times,
    run: impl Fn(Times) -> Result<RunResult>,
) -> Result<RunResult> {
    let mut best = run(times);
    for retry in 1..=RETRIES {
        if best.is_ok() {
            break;
        }
        best = run(Times { window: times.window * 4u32.pow(retry), ..times });
    }
    let mut best = best?;
    for _ in 0..REPEATS {
        if best.foreign_share <= FOREIGN_SHARE_MAX || grid == Grid::Smoke {
            break;
        }
        match run(times) {
            Ok(again) if again.foreign_share < best.foreign_share => best = again,
            // The one that succeeded stands.
            _ => {}
        }
    }
    Ok(best)
}

pub(super) fn shown(metric: &Sample) -> String {
    format!("{} {}", figure(metric.value), metric.unit)
}

fn row(series: &Series<'_>) -> SystemRow {
    let metrics: Vec<Vec<Sample>> = series
        .rounds
        .iter()
        .map(|run| series.cell.work.metrics(series.system, &run.outcome))
        .collect();
    let last = series.rounds.last().map(|run| run.outcome.clone());
    let place = Place {
        group: series.cell.group.clone(),
        point: series.cell.point.clone(),
        system: series.system.name().to_owned(),
        is_kernel: series.system.is_kernel(),
    };
    let mut row = SystemRow::new(place, &metrics, series.failure.clone());
    row.foreign_share = series.rounds.iter().map(|run| run.foreign_share).fold(0.0, f64::max);
    row.outcome = last;
    row
}

/// A line of progress; where nobody reads it, the report tells.
pub(super) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
