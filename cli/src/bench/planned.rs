//! Experiments of other shapes than two hosts that exchange TCP: a list of runs, each with a place in
//! the report and maybe with the figures of the paper that it repeats.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lab::cpu::Foreign;
use lab::failure::{Failure, Result};

use super::cell::{Grid, Sample};
use super::measure::{FOREIGN_SHARE_MAX, finish, say, shown};
use super::report::{Heading, Place, Report, SystemRow};

/// How such an experiment is measured.
#[derive(Clone, Debug, clap::Args)]
pub struct PlanArguments {
    /// How many points
    #[arg(long, default_value = "reduced")]
    pub grid: Grid,
    /// Rounds; medians and the spread are over them
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Milliseconds of each window
    #[arg(long, default_value_t = 250)]
    pub window: u64,
    /// Directory of EXPERIMENT.json and EXPERIMENT.html
    #[arg(long, default_value = "target/bench")]
    pub output: PathBuf,
}

impl PlanArguments {
    /// Length of each window.
    pub fn window(&self) -> Duration {
        Duration::from_millis(self.window.max(1))
    }
}

/// Whose figures a row has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Series {
    /// Its name in the report.
    pub name: &'static str,
    /// What it is, for people.
    pub about: &'static str,
    /// Whether the others of its point are compared with it.
    pub is_counterpart: bool,
}

/// A run, and where its figures stand.
#[derive(Clone, Debug)]
pub struct Planned<W> {
    /// Group of the point.
    pub group: String,
    /// The point.
    pub point: String,
    /// Whose figures it gives.
    pub series: Series,
    /// What is done.
    pub work: W,
    /// The paper's figures, by the names of ours.
    pub paper: Vec<(&'static str, f64)>,
}

/// What an experiment is.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// Its name.
    pub name: &'static str,
    /// One line of what it is.
    pub title: &'static str,
}

/// The values of a run, one for each round.
struct Rounds {
    samples: Vec<Vec<Sample>>,
    foreign_share: f64,
    failure: Option<String>,
}

/// Makes all runs in every round, prints the table and writes the reports.
///
/// # Errors
/// When the reports cannot be written, or any run failed (after they are written).
pub fn measure<W>(
    subject: Subject,
    arguments: &PlanArguments,
    plan: &[Planned<W>],
    mut perform: impl FnMut(&W) -> Result<Vec<Sample>>,
) -> Result<()> {
    let begin = Instant::now();
    let count = plan.len() * arguments.rounds;
    say(&format!("{}: {count} runs in {} rounds", subject.name, arguments.rounds));
    let mut all: Vec<Rounds> = Vec::new();
    all.resize_with(plan.len(), || Rounds {
        samples: Vec::new(),
        foreign_share: 0.0,
        failure: None,
    });
    for round in 0..arguments.rounds {
        for (number, (run, rounds)) in plan.iter().zip(&mut all).enumerate() {
            let head = format!(
                "{:>4}/{count}  {:<16} {}, {}",
                round * plan.len() + number + 1,
                run.series.name,
                run.group,
                run.point
            );
            let (foreign, started) = (Foreign::now(), Instant::now());
            match perform(&run.work) {
                Ok(samples) => {
                    let share =
                        Foreign::now().since(&foreign) / (2.0 * started.elapsed().as_secs_f64());
                    let noise = match share > FOREIGN_SHARE_MAX {
                        true => format!("  (disturbed: {:.0}% foreign CPU)", share * 100.0),
                        false => String::new(),
                    };
                    say(&format!(
                        "{head}: {}{noise}",
                        samples.first().map_or(String::new(), shown)
                    ));
                    rounds.foreign_share = rounds.foreign_share.max(share);
                    rounds.samples.push(samples);
                }
                Err(failure) => {
                    say(&format!("{head}: failed: {failure}"));
                    rounds.failure.get_or_insert_with(|| failure.to_string());
                }
            }
        }
    }
    let rows = plan.iter().zip(all).map(|(run, rounds)| row(run, rounds)).collect();
    let known: BTreeMap<String, String> =
        plan.iter().map(|run| (run.series.name.into(), run.series.about.into())).collect();
    let heading = Heading {
        experiment: subject.name,
        title: subject.title,
        grid: arguments.grid,
        rounds: arguments.rounds,
        window: arguments.window(),
        systems: known,
    };
    finish(&Report::new(heading, rows), &arguments.output, begin)
}

fn row<W>(run: &Planned<W>, rounds: Rounds) -> SystemRow {
    let place = Place {
        group: run.group.clone(),
        point: run.point.clone(),
        system: run.series.name.to_owned(),
        is_kernel: run.series.is_counterpart,
    };
    let mut row = SystemRow::new(place, &rounds.samples, rounds.failure);
    row.foreign_share = rounds.foreign_share;
    for (name, value) in &run.paper {
        if let Some(figure) = row.figures.get_mut(*name) {
            figure.paper = Some(*value);
        }
    }
    row
}

/// Fails with what a run counted, where it did nothing.
///
/// # Errors
/// When `count` is zero.
pub fn some(count: u64, what: &str) -> Result<()> {
    match count {
        0 => Err(Failure::new(format!("no {what} in the window"), "measure longer (--window)")),
        _ => Ok(()),
    }
}
