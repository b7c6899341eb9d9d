//! The report: a row for each cell and system, and what Outboard's rows are compared with.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lab::failure::{Explain, Result};
use lab::figures::{figure, median};
use serde::{Deserialize, Serialize};

use super::cell::{Grid, Sample};
use super::html;
use super::load::Outcome;

/// Version of the JSON.
const FORMAT: u32 = 1;

/// Where and when it was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor.
    pub processor: String,
    /// How many.
    pub processors: usize,
    /// Release of the kernel.
    pub kernel: String,
    /// Day of the run (UTC).
    pub date: String,
}

/// The values of a metric over all rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Its unit.
    pub unit: String,
    /// Whether more is better.
    pub higher_is_better: bool,
    /// Median.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// A value for each round that succeeded.
    pub values: Vec<f64>,
    /// What the paper that the experiment is from has measured, in the same unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<f64>,
}

/// A cell on a system.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SystemRow {
    /// Group of the cell.
    pub group: String,
    /// Point in the group.
    pub point: String,
    /// Name of the system.
    pub system: String,
    /// Whether it is what Outboard is compared with: the kernel, or a floor or limit.
    pub is_kernel: bool,
    /// Figures by name.
    pub figures: BTreeMap<String, Figure>,
    /// The order of the figures, the main one first.
    pub order: Vec<String>,
    /// Foreign processor time as a share of both cores, of the round that had most.
    pub foreign_share: f64,
    /// What the last round counted.
    pub outcome: Option<Outcome>,
    /// Why a round is missing.
    pub failure: Option<String>,
}

/// A row of a table: a figure of Outboard with what stands beside it.
#[derive(Clone, Debug)]
pub struct Line<'a> {
    /// The row.
    pub row: &'a SystemRow,
    /// Name of the figure.
    pub name: &'a str,
    /// Its values.
    pub figure: &'a Figure,
    /// The counterpart's.
    pub comparison: Option<&'a Comparison>,
}

/// What an experiment is and how it was measured.
#[derive(Clone, Debug)]
pub struct Heading {
    /// The experiment's name.
    pub experiment: &'static str,
    /// One line of what it is.
    pub title: &'static str,
    /// The grid.
    pub grid: Grid,
    /// Rounds.
    pub rounds: usize,
    /// Length of each window.
    pub window: Duration,
    /// What each system is, by name.
    pub systems: BTreeMap<String, String>,
}

/// A figure of Outboard beside the kernel's best placement for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Group of the cell.
    pub group: String,
    /// Point in the group.
    pub point: String,
    /// Name of the figure.
    pub figure: String,
    /// Its unit.
    pub unit: String,
    /// Whether more is better.
    pub higher_is_better: bool,
    /// The kernel's placement that is best in this figure.
    pub kernel_system: String,
    /// Its median.
    pub kernel: f64,
    /// What it is compared with.
    pub system: String,
    /// Its median.
    pub value: f64,
    /// `value` divided by `kernel`; none where the kernel's is zero.
    pub ratio: Option<f64>,
}

/// All of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Version of this format.
    pub format: u32,
    /// The experiment's name.
    pub experiment: String,
    /// One line of what it is.
    pub title: String,
    /// The grid's name.
    pub grid: String,
    /// Rounds.
    pub rounds: usize,
    /// Seconds of each window.
    pub window_seconds: f64,
    /// Where and when.
    pub machine: Machine,
    /// What each system is, by name.
    pub systems: BTreeMap<String, String>,
    /// The rows, cell by cell.
    pub rows: Vec<SystemRow>,
    /// Outboard beside the kernel's best.
    pub comparisons: Vec<Comparison>,
}

/// Where a row stands.
#[derive(Clone, Debug)]
pub struct Place {
    /// Group of the cell.
    pub group: String,
    /// Point in the group.
    pub point: String,
    /// Name of the system.
    pub system: String,
    /// Whether it is what Outboard is compared with.
    pub is_kernel: bool,
}

impl SystemRow {
    /// A row from the metrics of all rounds.
    pub fn new(place: Place, rounds: &[Vec<Sample>], failure: Option<String>) -> Self {
        let mut figures: BTreeMap<String, Figure> = BTreeMap::new();
        let mut order = Vec::new();
        for metric in rounds.iter().flatten() {
            let figure = figures.entry(metric.name.to_owned()).or_insert_with(|| {
                order.push(metric.name.to_owned());
                Figure {
                    unit: metric.unit.to_owned(),
                    higher_is_better: metric.higher_is_better,
                    median: 0.0,
                    min: metric.value,
                    max: metric.value,
                    values: Vec::new(),
                    paper: None,
                }
            });
            figure.min = figure.min.min(metric.value);
            figure.max = figure.max.max(metric.value);
            figure.values.push(metric.value);
        }
        for figure in figures.values_mut() {
            figure.median = median(&figure.values).unwrap_or_default();
        }
        let Place { group, point, system, is_kernel } = place;
        Self {
            group,
            point,
            system,
            is_kernel,
            figures,
            order,
            foreign_share: 0.0,
            outcome: None,
            failure,
        }
    }
}

impl Comparison {
    /// Whether Outboard is at least as good.
    pub fn is_better(&self) -> Option<bool> {
        self.ratio.map(|ratio| if self.higher_is_better { ratio >= 1.0 } else { ratio <= 1.0 })
    }
}

impl Report {
    /// A report of `rows`.
    pub fn new(heading: Heading, rows: Vec<SystemRow>) -> Self {
        let Heading { experiment, title, grid, rounds, window, systems } = heading;
        Self {
            format: FORMAT,
            experiment: experiment.to_owned(),
            title: title.to_owned(),
            grid: grid.word().to_owned(),
            rounds,
            window_seconds: window.as_secs_f64(),
            machine: Machine::this(),
            systems,
            comparisons: comparisons(&rows),
            rows,
        }
    }

    /// Every figure of Outboard, with its counterpart where there is one.
    pub fn lines(&self) -> Vec<Line<'_>> {
        let mut lines = Vec::new();
        for row in self.rows.iter().filter(|row| !row.is_kernel) {
            for name in &row.order {
                let Some(figure) = row.figures.get(name) else { continue };
                let comparison = self.comparisons.iter().find(|one| {
                    (&one.group, &one.point, &one.system, &one.figure)
                        == (&row.group, &row.point, &row.system, name)
                });
                lines.push(Line { row, name, figure, comparison });
            }
        }
        lines
    }

    /// Reads a report.
    ///
    /// # Errors
    /// When the file is none, or of another version.
    pub fn read(path: &Path) -> Result<Self> {
        let shown = path.display();
        let text = fs::read_to_string(path)
            .explain(format!("cannot read {shown}"), "name a report that `outboard bench` wrote")?;
        let report: Self = serde_json::from_str(&text)
            .explain(format!("{shown} is not a report"), "measure it again with this executable")?;
        if report.format == FORMAT {
            return Ok(report);
        }
        Err(lab::failure::Failure::new(
            format!("{shown} has format {}, and this executable reads {FORMAT}", report.format),
            "measure it again with this executable",
        ))
    }

    /// Writes NAME.json and NAME.html into `directory`.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn write(&self, directory: &Path, name: &str) -> Result<()> {
        let advice = "make the directory writable or choose another one with --output";
        fs::create_dir_all(directory)
            .explain(format!("cannot create {}", directory.display()), advice)?;
        let json =
            serde_json::to_string_pretty(self).explain("cannot write JSON", "report this")?;
        for (extension, text) in [("json", json + "\n"), ("html", html::page(self))] {
            let path = directory.join(format!("{name}.{extension}"));
            fs::write(&path, text).explain(format!("cannot write {}", path.display()), advice)?;
        }
        Ok(())
    }

    /// What is said below a title: how it was measured.
    pub fn circumstances(&self) -> String {
        let Machine { processor, processors, kernel, date } = &self.machine;
        let foreign = self.rows.iter().map(|row| row.foreign_share).fold(0.0, f64::max);
        format!(
            "{date}, {processors} x {processor}, Linux {kernel}; {} rounds of {} s, medians; at most \
             {:.1}% foreign CPU",
            self.rounds,
            self.window_seconds,
            foreign * 100.0
        )
    }

    /// A table for people: Outboard's figures beside their counterparts.
    pub fn table(&self) -> String {
        let mut text = format!("{}: {}\n", self.experiment, self.title);
        let mut cell = (String::new(), String::new());
        for line in self.lines() {
            let Line { row, name, figure: own, .. } = &line;
            if cell != (row.group.clone(), row.point.clone()) {
                cell = (row.group.clone(), row.point.clone());
                let _ = writeln!(text, "\n{}, {}", row.group, row.point);
            }
            let mark = match line.comparison.and_then(Comparison::is_better) {
                Some(false) => "  worse",
                Some(true) | None => "",
            };
            let [counterpart, theirs, ratio] = line.beside();
            let paper = own.paper.map_or_else(String::new, |it| format!("  paper: {}", figure(it)));
            let _ = writeln!(
                text,
                "  {name:<30} {:<12} {counterpart:<16} {theirs:>12} {:<12} {:>12} {ratio:>6}{mark}{paper}",
                own.unit,
                row.system,
                figure(own.median),
            );
        }
        for row in self.rows.iter().filter(|row| row.failure.is_some()) {
            let reason = row.failure.as_deref().unwrap_or_default();
            let _ =
                writeln!(text, "failed: {}, {}, {}: {reason}", row.group, row.point, row.system);
        }
        text
    }

    /// Whether a paper's figures stand beside these.
    pub fn has_paper(&self) -> bool {
        self.rows.iter().any(|row| row.figures.values().any(|figure| figure.paper.is_some()))
    }
}

impl Line<'_> {
    /// Counterpart, its figure and the ratio to it, for people.
    pub fn beside(&self) -> [String; 3] {
        self.comparison.map_or_else(Default::default, |one| {
            [one.kernel_system.clone(), figure(one.kernel), ratio(one.ratio)]
        })
    }
}

/// A ratio for people.
pub fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}"))
}

/// Every figure of Outboard beside the kernel's best placement in it.
fn comparisons(rows: &[SystemRow]) -> Vec<Comparison> {
    let mut all = Vec::new();
    for row in rows.iter().filter(|row| !row.is_kernel) {
        let same_cell =
            |other: &&SystemRow| (&other.group, &other.point) == (&row.group, &row.point);
        for name in &row.order {
            let Some(own) = row.figures.get(name) else { continue };
            let of_kernel = rows
                .iter()
                .filter(same_cell)
                .filter(|other| other.is_kernel)
                .filter_map(|other| Some((other, other.figures.get(name)?.median)));
            let best = of_kernel.reduce(|best, other| {
                let is_better =
                    if own.higher_is_better { other.1 > best.1 } else { other.1 < best.1 };
                if is_better { other } else { best }
            });
            let Some((kernel_row, kernel)) = best else { continue };
            all.push(Comparison {
                group: row.group.clone(),
                point: row.point.clone(),
                figure: name.clone(),
                unit: own.unit.clone(),
                higher_is_better: own.higher_is_better,
                kernel_system: kernel_row.system.clone(),
                kernel,
                system: row.system.clone(),
                value: own.median,
                ratio: Some(own.median / kernel).filter(|ratio| ratio.is_finite()),
            });
        }
    }
    all
}

impl Machine {
    /// This machine, today.
    fn this() -> Self {
        let information = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = information.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == "model name").then(|| value.trim().to_owned())
        });
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            processor: model.unwrap_or_else(|| "unknown processor".to_owned()),
            processors: information.lines().filter(|line| line.starts_with("processor")).count(),
            kernel: kernel.trim().to_owned(),
            date: date(since.as_secs() / 86_400),
        }
    }
}

/// The date of a day since 1 January 1970.
fn date(mut day: u64) -> String {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", day + 1)
}

#[cfg(test)]
/// Rows for the tests of what is made of them.
pub mod tests {
    use lab::Placement;

    use super::*;
    use crate::bench::system::System;

    /// A row with a rate and a quantile of three rounds.
    pub fn row(system: System, rate: &[f64], p50: &[f64]) -> SystemRow {
        let place = Place {
            group: "g".into(),
            point: "p".into(),
            system: system.name().into(),
            is_kernel: system.is_kernel(),
        };
        let rounds: Vec<Vec<Sample>> = rate
            .iter()
            .zip(p50)
            .map(|(&rate, &p50)| {
                vec![
                    Sample { name: "rate", unit: "1/s", higher_is_better: true, value: rate },
                    Sample { name: "p50", unit: "us", higher_is_better: false, value: p50 },
                ]
            })
            .collect();
        SystemRow::new(place, &rounds, None)
    }

    #[test]
    fn the_kernels_best_placement_is_chosen_for_each_figure() {
        let rows = [
            row(System::Kernel(Placement::Sender), &[90.0, 110.0, 100.0], &[5.0, 5.0, 5.0]),
            row(System::Kernel(Placement::Steered), &[200.0, 210.0, 190.0], &[9.0, 9.0, 9.0]),
            row(System::TapServer, &[400.0, 300.0, 500.0], &[10.0, 10.0, 10.0]),
        ];
        let found = comparisons(&rows);
        let of = |name: &str| found.iter().find(|one| one.figure == name).expect("is compared");
        assert_eq!((of("rate").kernel, of("rate").ratio), (200.0, Some(2.0)));
        assert_eq!(
            (of("rate").kernel_system.as_str(), of("rate").is_better()),
            ("kernel-steered", Some(true))
        );
        assert_eq!((of("p50").kernel, of("p50").is_better()), (5.0, Some(false)));
        let figure = &rows[0].figures["rate"];
        assert_eq!((figure.min, figure.median, figure.max), (90.0, 100.0, 110.0));
    }

    #[test]
    fn days_have_their_dates() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(11_016), "2000-02-29");
        assert_eq!(date(20_819), "2027-01-01");
    }
}
