//! `outboard sim`: whole systems under virtual time, by seed.

use std::io::{IsTerminal, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use lab::failure::{Explain, Failure, Result};
use sim::coverage::REQUIRED;
use sim::hashes::Hashes;
use sim::messages::{self, MessageReport, MessageSettings, Planted};
use sim::{Break, Settings, runner};

/// One seed of the message core in so many is run twice, with and without renewals.
const MESSAGES_TWICE_EVERY: u64 = 8;
/// A planted bug must be found by then.
const FOUND_WITHIN: Duration = Duration::from_secs(60);
/// Seeds that must hit each fault and rare branch for `--require-coverage`.
const SEEDS_PER_BRANCH: u64 = 20;

/// What to run.
pub struct Runs {
    /// The seeds.
    pub seeds: RangeInclusive<u64>,
    /// How.
    pub settings: Settings,
    /// Failures after which to stop.
    pub failures_max: usize,
    /// Each fault and rare branch must be hit often enough.
    pub require_coverage: bool,
    /// File of hashes to compare the runs with.
    pub hashes: Option<PathBuf>,
}

/// Reads `7` or `1..2000`.
pub fn parse_seeds(text: &str) -> Result<RangeInclusive<u64>, String> {
    let number = |text: &str| {
        text.parse::<u64>().map_err(|_| format!("`{text}` is not a seed; give 7 or 1..2000"))
    };
    match text.split_once("..") {
        None => number(text).map(|seed| seed..=seed),
        Some((first, last)) => {
            let (first, last) = (number(first)?, number(last.trim_start_matches('='))?);
            if first > last {
                Err("the last seed is before the first".into())
            } else {
                Ok(first..=last)
            }
        }
    }
}

/// Reads the name of a bug.
pub fn parse_break(text: &str) -> Result<Break, String> {
    match text {
        "no-retransmit" => Ok(Break::NoRetransmit),
        "early-reuse" => Ok(Break::EarlyReuse),
        _ => Err("there are the bugs no-retransmit and early-reuse".to_string()),
    }
}

/// Reads the name of a bug of the message core.
pub fn parse_planted(text: &str) -> Result<Planted, String> {
    let found = Planted::ALL.iter().find(|(name, _)| *name == text);
    found.map(|(_, bug)| *bug).ok_or_else(|| {
        let names: Vec<&str> = Planted::ALL.iter().map(|(name, _)| *name).collect();
        format!("there are the bugs {}", names.join(", "))
    })
}

/// Runs the seeds; failure when one fails.
pub fn sim(runs: &Runs) -> Result<ExitCode> {
    let began = Instant::now();
    let shows = std::io::stderr().is_terminal();
    let mut told = 0;
    let summary =
        runner::range(runs.seeds.clone(), runs.settings, runs.failures_max, |seed, so_far| {
            for failure in so_far.failures.iter().skip(told) {
                tell!("{failure}");
            }
            told = so_far.failures.len();
            if shows && seed % 20 == 0 {
                eprint!("\rseed {seed}, {told} failures, {:.0?} ", began.elapsed());
                let _ = std::io::stderr().flush();
            }
        });
    if shows {
        eprint!("\r\x1b[K");
    }
    if runs.seeds.start() != runs.seeds.end() {
        print!("{}", summary.table);
    }
    tell!(
        "{} seeds clean, {} failed; {} frames, {} virtual seconds in {:.1?}",
        summary.table.runs(),
        summary.failures.len(),
        summary.frames,
        summary.virtual_s,
        began.elapsed()
    );
    if !summary.failures.is_empty() {
        return Ok(ExitCode::FAILURE);
    }
    if let Some(file) = &runs.hashes {
        compare(file, &summary.hashes)?;
    }
    let rare = summary.table.rare(REQUIRED, SEEDS_PER_BRANCH);
    if runs.require_coverage && !rare.is_empty() {
        let names: Vec<String> =
            rare.iter().map(|(name, seeds)| format!("{name} ({seeds})")).collect();
        return Err(Failure::new(
            format!("fewer than {SEEDS_PER_BRANCH} seeds hit: {}", names.join(", ")),
            "run more seeds, or tune crates/sim/src/swarm.rs so that it happens",
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs seeds of the message core; failure when one fails.
pub fn messages(seeds: RangeInclusive<u64>, failures_max: usize) -> ExitCode {
    let began = Instant::now();
    let (mut clean, mut failed) = (0, 0);
    let mut all = MessageReport::default();
    for seed in seeds {
        let result = match seed % MESSAGES_TWICE_EVERY {
            0 => messages::check(seed),
            _ => messages::run(seed, MessageSettings::default()),
        };
        match result {
            Ok(report) => {
                clean += 1;
                all.packets += report.packets;
                all.messages += report.messages;
                all.refused += report.refused;
                all.resent += report.resent;
            }
            Err(fault) => {
                failed += 1;
                tell!("{fault}");
            }
        }
        if failed >= failures_max {
            break;
        }
    }
    tell!(
        "{clean} seeds clean, {failed} failed; {} packets, {} messages, {} refused, {} frames sent \
         again in {:.1?}",
        all.packets,
        all.messages,
        all.refused,
        all.resent,
        began.elapsed()
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs seeds of the message core with a bug until one fails; failure when none does.
pub fn find(seeds: RangeInclusive<u64>, bug: Planted) -> ExitCode {
    let began = Instant::now();
    let settings = MessageSettings { planted: Some(bug), ..MessageSettings::default() };
    let within = |_: &u64| began.elapsed() < FOUND_WITHIN;
    match seeds.clone().take_while(within).find_map(|seed| messages::run(seed, settings).err()) {
        Some(fault) => {
            tell!("found in {:.1?}: {fault}", began.elapsed());
            ExitCode::SUCCESS
        }
        None => {
            tell!("not found by the seeds from {} in {:.1?}", seeds.start(), began.elapsed());
            ExitCode::FAILURE
        }
    }
}

/// Compares hashes with those in `file`, or writes them there.
///
/// # Errors
/// When a seed differs, or the file cannot be used.
fn compare(file: &Path, now: &Hashes) -> Result<()> {
    let shown = file.display();
    let known = match std::fs::read_to_string(file) {
        Ok(text) => Some(Hashes::parse(&text).explain(
            format!("cannot use {shown}"),
            "remove it and run this again to rewrite it",
        )?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => {
            Err(error).explain(format!("cannot read {shown}"), "check its permissions")?
        }
    };
    let updates = std::env::var_os("UPDATE").is_some();
    let Some(known) = known.as_ref().filter(|_| !updates) else {
        let mut all = known.unwrap_or_default();
        all.replace(now);
        std::fs::write(file, all.to_string())
            .explain(format!("cannot write {shown}"), "make it writable")?;
        tell!("hashes written to {shown}");
        return Ok(());
    };
    match known.difference(now) {
        None => {
            tell!("{} seeds as in {shown}", known.common(now));
            Ok(())
        }
        Some(difference) => Err(Failure::new(
            format!(
                "seed {} differs from {shown} in {}; {} seeds differ in all",
                difference.seed,
                difference.parts.join(" and "),
                difference.seeds
            ),
            "if the change of behaviour is intended, say so in the commit and rewrite the file \
             with UPDATE=1 make hashes",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_written_once_and_compared_from_then_on() {
        let summary = runner::range(1..=2, Settings::default(), 1, |_, _| {});
        let file = std::env::temp_dir().join(format!("outboard-hashes-{}", std::process::id()));
        let _ = std::fs::remove_file(&file);
        compare(&file, &summary.hashes).expect("written");
        compare(&file, &summary.hashes).expect("the same");
        let text = std::fs::read_to_string(&file).expect("written");
        std::fs::write(&file, text.replace("\n2 ", "\n2 1")).expect("written");
        let failure = compare(&file, &summary.hashes).expect_err("the number of frames differs");
        assert!(failure.cause().contains("seed 2 differs"), "{failure}");
        assert!(failure.cause().contains("the number of frames"), "{failure}");
        std::fs::remove_file(&file).expect("removed");
    }

    #[test]
    fn seeds_are_one_or_a_range() {
        assert_eq!(parse_seeds("7"), Ok(7..=7));
        assert_eq!(parse_seeds("1..20"), Ok(1..=20));
        assert!(parse_seeds("20..1").is_err());
        assert!(parse_seeds("x").is_err());
    }
}
