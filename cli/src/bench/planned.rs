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
    let each: Vec<Vec<usize>> = (0..plan.len()).map(|run| vec![run]).collect();
    let mut progress = Progress::new(subject, arguments, plan);
    for _ in 0..arguments.rounds {
        for batch in &each {
            progress
                .make(batch, |works| works.iter().map(|work| perform(work)).collect::<Result<_>>());
        }
    }
    progress.finish()
}

/// The same where one start of programs makes several runs of a round: those for which `together` says the
/// same. In each round others begin.
///
/// # Errors
/// As [`measure`].
pub fn measure_together<W: Copy>(
    subject: Subject,
    arguments: &PlanArguments,
    plan: &[Planned<W>],
    together: impl Fn(&Planned<W>) -> Option<&'static str>,
    mut perform: impl FnMut(&[W]) -> Result<Vec<Vec<Sample>>>,
) -> Result<()> {
    let mut starts: Vec<(Option<&str>, Vec<usize>)> = Vec::new();
    for (number, run) in plan.iter().enumerate() {
        let name = together(run);
        match starts.iter_mut().find(|(known, _)| known.is_some() && *known == name) {
            Some((_, runs)) => runs.push(number),
            None => starts.push((name, vec![number])),
        }
    }
    let mut progress = Progress::new(subject, arguments, plan);
    for _ in 0..arguments.rounds {
        for (_, runs) in &starts {
            progress.make(runs, |works| {
                let works: Vec<W> = works.iter().map(|&&work| work).collect();
                perform(&works)
            });
        }
        let turn = starts.len().min(1);
        starts.rotate_left(turn);
    }
    progress.finish()
}

/// What was measured so far.
struct Progress<'a, W> {
    subject: Subject,
    arguments: &'a PlanArguments,
    plan: &'a [Planned<W>],
    all: Vec<Rounds>,
    done: usize,
    begin: Instant,
}

impl<'a, W> Progress<'a, W> {
    fn new(subject: Subject, arguments: &'a PlanArguments, plan: &'a [Planned<W>]) -> Self {
        let count = plan.len() * arguments.rounds;
        say(&format!("{}: {count} runs in {} rounds", subject.name, arguments.rounds));
        let none = || Rounds { samples: Vec::new(), foreign_share: 0.0, failure: None };
        let all = plan.iter().map(|_| none()).collect();
        Self { subject, arguments, plan, all, done: 0, begin: Instant::now() }
    }

    /// Makes some runs at once: `perform` gives the figures of each, in order.
    fn make(&mut self, batch: &[usize], perform: impl FnOnce(&[&W]) -> Result<Vec<Vec<Sample>>>) {
        let works: Vec<&W> = batch.iter().map(|&run| &self.plan[run].work).collect();
        let (foreign, started) = (Foreign::now(), Instant::now());
        let outcome = perform(&works);
        let seconds = 2.0 * started.elapsed().as_secs_f64();
        let share = Foreign::now().since(&foreign) / seconds;
        let count = self.plan.len() * self.arguments.rounds;
        for (place, &number) in batch.iter().enumerate() {
            self.done += 1;
            let (run, rounds) = (&self.plan[number], &mut self.all[number]);
            let Planned { series, group, point, .. } = run;
            let head = format!("{:>4}/{count}  {:<16} {group}, {point}", self.done, series.name);
            match &outcome {
                Ok(all) => {
                    let samples = all.get(place).cloned().unwrap_or_default();
                    let noise = match share > FOREIGN_SHARE_MAX {
                        true => format!("  (disturbed: {:.0}% foreign CPU)", share * 100.0),
                        false => String::new(),
                    };
                    let main = samples.first().map_or(String::new(), shown);
                    say(&format!("{head}: {main}{noise}"));
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

    fn finish(self) -> Result<()> {
        let Self { subject, arguments, plan, all, begin, .. } = self;
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
