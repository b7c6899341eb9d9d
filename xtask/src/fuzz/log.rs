//! `docs/fuzz.md`: which target was run on which day and commit, for how long, and what came of it.
//! Runs of one target on one day and commit are one line.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::Mutex;

const HEAD: &str = "\
# Fuzzing

Written by `make fuzz` (`cargo xtask fuzz`), which appends its runs.
Seconds are processor time. Inputs are those kept by the fuzzer; coverage and
features are its own measures (edges, and edges with their counts), all of them at the end of the
last run. A finding is an input that made the target panic, leak, or take ten seconds of processor time. Findings are added to
`fuzz/corpus`, where `cargo test` replays them.

";
const TOTAL_HEAD: &str = "\
| target | seconds | executions | findings | seconds since the last finding |
|---|--:|--:|--:|--:|
";
const RUNS_HEAD: &str = "\
| date | commit | target | seconds | executions | per second | inputs | coverage | features | findings |
|---|---|---|--:|--:|--:|--:|--:|--:|--:|
";
/// Of the times in /proc: USER_HZ, which is 100 on every architecture of ours.
const TICKS_PER_SECOND: u64 = 100;

/// What a fuzzer did.
#[derive(Default)]
pub struct Ran {
    /// Of the processor.
    pub cpu_seconds: u64,
    /// Says where the input lies that broke it.
    pub finding: Option<String>,
    executions: u64,
    inputs: u64,
    coverage: u64,
    features: u64,
}

impl Ran {
    /// Takes what a line of libFuzzer's says: `#1234 DONE cov: 5 ft: 6 corp: 7/8b …`, or
    /// `stat::number_of_executed_units: 1234`.
    pub fn read(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        let number = |text: &str| text.split('/').next().and_then(|text| text.parse().ok());
        if first == "stat::number_of_executed_units:" {
            self.executions = words.next().and_then(number).unwrap_or(self.executions);
        } else if let Some(executions) = first.strip_prefix('#').and_then(number) {
            self.executions = executions;
            while let Some(word) = words.next() {
                let field = match word {
                    "cov:" => &mut self.coverage,
                    "ft:" => &mut self.features,
                    "corp:" => &mut self.inputs,
                    _ => continue,
                };
                *field = words.next().and_then(number).unwrap_or(*field);
            }
        }
    }
}

/// Waits for a child that has ended or is about to, and gives its processor time in seconds.
pub fn timed_wait(child: &mut Child) -> Result<(ExitStatus, u64), String> {
    // What all children have used counts up with each wait, so that waits must not mix.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().map_err(|error| error.to_string())?;
    let before = ticks_of_children()?;
    let status = child.wait().map_err(|error| error.to_string())?;
    Ok((status, ticks_of_children()?.saturating_sub(before) / TICKS_PER_SECOND))
}

/// `cutime` and `cstime` of proc_pid_stat(5).
fn ticks_of_children() -> Result<u64, String> {
    let stat = fs::read_to_string("/proc/self/stat").map_err(|error| error.to_string())?;
    let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    Ok(behind_name.split_whitespace().skip(13).take(2).filter_map(|n| n.parse::<u64>().ok()).sum())
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    date: String,
    commit: String,
    target: String,
    /// Seconds, executions, inputs, coverage, features, findings.
    numbers: [u64; 6],
}

impl Row {
    fn parse(line: &str) -> Option<Self> {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [date, commit, target, seconds, executions, _, inputs, coverage, features, findings] =
            cells.try_into().ok()?;
        let numbers = [seconds, executions, inputs, coverage, features, findings]
            .map(|cell: &str| cell.parse::<u64>().ok());
        let [Some(a), Some(b), Some(c), Some(d), Some(e), Some(f)] = numbers else { return None };
        let [date, commit, target] = [date, commit, target].map(str::to_owned);
        Some(Self { date, commit, target, numbers: [a, b, c, d, e, f] })
    }

    fn is_same_run(&self, other: &Row) -> bool {
        (&self.date, &self.commit, &self.target) == (&other.date, &other.commit, &other.target)
    }

    /// The later one's state, with what both have done.
    fn join(&mut self, later: Row) {
        let [seconds, executions, .., findings] = self.numbers;
        self.numbers = later.numbers;
        let [all_seconds, all_executions, .., all_findings] = &mut self.numbers;
        *all_seconds += seconds;
        *all_executions += executions;
        *all_findings += findings;
    }
}

fn parse(text: &str) -> Vec<Row> {
    text.lines().filter_map(Row::parse).collect()
}

fn render(rows: &[Row]) -> String {
    let mut targets: Vec<&str> = rows.iter().map(|row| row.target.as_str()).collect();
    targets.sort_unstable();
    targets.dedup();
    let mut text = format!("{HEAD}{TOTAL_HEAD}");
    for target in targets {
        let [mut seconds, mut executions, mut findings, mut quiet] = [0; 4];
        for row in rows.iter().filter(|row| row.target == target) {
            let [s, e, .., f] = row.numbers;
            seconds += s;
            executions += e;
            findings += f;
            // A run with a finding has ended with it.
            quiet = if f > 0 { 0 } else { quiet + s };
        }
        let _ = writeln!(text, "| {target} | {seconds} | {executions} | {findings} | {quiet} |");
    }
    let _ = write!(text, "\n## Runs\n\n{RUNS_HEAD}");
    for Row { date, commit, target, numbers } in rows {
        let [seconds, executions, inputs, coverage, features, findings] = numbers;
        let rate = executions / seconds.max(&1);
        let _ = writeln!(
            text,
            "| {date} | {commit} | {target} | {seconds} | {executions} | {rate} | {inputs} \
             | {coverage} | {features} | {findings} |"
        );
    }
    text
}

/// The file, and what a new line of it says in the beginning.
pub struct Log {
    path: PathBuf,
    date: String,
    commit: String,
    writing: Mutex<()>,
}

impl Log {
    /// That of the repository, as it is now.
    pub fn of(root: &Path) -> Result<Self, String> {
        let said = |program: &str, arguments: &[&str]| {
            let output = Command::new(program).args(arguments).current_dir(root).output();
            let output = output.map_err(|error| format!("{program}: {error}"))?;
            Ok::<_, String>(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        let mut commit = said("git", &["rev-parse", "--short", "HEAD"])?;
        if !said("git", &["status", "--porcelain", "--untracked-files=no", "crates", "fuzz"])?
            .is_empty()
        {
            commit.push('+');
        }
        let date = said("date", &["-u", "+%F"])?;
        let path = root.join("docs/fuzz.md");
        Ok(Self { path, date, commit, writing: Mutex::new(()) })
    }

    /// Notes what a target did.
    pub fn add(&self, target: &str, ran: &Ran) -> Result<(), String> {
        let _alone = self.writing.lock().map_err(|error| error.to_string())?;
        let mut rows = parse(&fs::read_to_string(&self.path).unwrap_or_default());
        let (seconds, findings) = (ran.cpu_seconds, u64::from(ran.finding.is_some()));
        let row = Row {
            date: self.date.clone(),
            commit: self.commit.clone(),
            target: target.to_owned(),
            numbers: [seconds, ran.executions, ran.inputs, ran.coverage, ran.features, findings],
        };
        println!(
            "{target}: {seconds} s of the processor, {} executions, coverage {}, {findings} findings",
            ran.executions, ran.coverage
        );
        match rows.iter_mut().find(|known| known.is_same_run(&row)) {
            Some(known) => known.join(row),
            None => rows.push(row),
        }
        fs::write(&self.path, render(&rows))
            .map_err(|error| format!("{}: {error}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_fuzzer_says_is_understood() {
        let mut ran = Ran::default();
        ran.read("#1234\tNEW    cov: 50 ft: 60 corp: 7/8b lim: 4 exec/s: 99 rss: 40Mb L: 3/3");
        ran.read("INFO: seed corpus: files: 12");
        ran.read("stat::number_of_executed_units: 2000");
        assert_eq!((ran.executions, ran.coverage, ran.features, ran.inputs), (2000, 50, 60, 7));
    }

    #[test]
    fn runs_of_one_day_and_commit_are_one_line_and_totals_are_of_all() {
        let row = |date: &str, numbers| Row {
            date: date.into(),
            commit: "abc".into(),
            target: "texts".into(),
            numbers,
        };
        let mut rows = vec![row("1", [60, 100, 3, 4, 5, 1]), row("2", [30, 50, 4, 4, 6, 0])];
        let again = row("2", [30, 60, 5, 6, 7, 0]);
        assert!(rows[1].is_same_run(&again) && !rows[0].is_same_run(&again));
        rows[1].join(again);
        let text = render(&rows);
        assert_eq!(parse(&text), rows, "what is written can be read");
        assert!(text.contains("| texts | 120 | 210 | 1 | 60 |"), "{text}");
        assert!(text.contains("| 2 | abc | texts | 60 | 110 | 1 | 5 | 6 | 7 | 0 |"), "{text}");
    }
}
