//! Builds the fuzz targets with the nightly compiler and runs them. Does what cargo-fuzz does, so
//! that nothing needs to be installed. What was run is noted in `docs/fuzz.md` ([`log`]).

mod log;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use crate::succeed;
use log::{Log, Ran};

/// Coverage counters, comparisons traced, addresses checked: cargo-fuzz's flags.
const RUSTFLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Zsanitizer=address -Cdebug-assertions -Ccodegen-units=1";
/// Processor time after which an input counts as one that hangs.
const SECONDS_MAX: u64 = 10;
/// Lines of a fuzzer that ended with a finding which are shown.
const LINES_SHOWN: usize = 60;

/// What to run.
struct Plan {
    names: Vec<String>,
    /// Wall-clock seconds of each target.
    seconds: u64,
    /// Targets that run at a time.
    jobs: usize,
}

/// Runs the targets named in `arguments`, or all; `--seconds N` each, `--jobs N` at a time.
pub fn run(root: &Path, arguments: impl Iterator<Item = String>) -> Result<(), String> {
    let folder = root.join("fuzz");
    let plan = plan(arguments, targets(&folder)?)?;
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    println!("building the fuzz targets with the nightly compiler");
    succeed(
        Command::new("cargo")
            .args(["+nightly", "build", "--release", "--target", &triple])
            .current_dir(&folder)
            .env_remove("CARGO")
            .env_remove("RUSTUP_TOOLCHAIN")
            .env("RUSTFLAGS", RUSTFLAGS),
    )
    .map_err(|error| format!("{error}; is nightly there? rustup toolchain install nightly"))?;
    let binaries = crate::target(&folder).join(&triple).join("release");
    let log = Log::of(root)?;

    let waiting = Mutex::new(plan.names.into_iter().rev().collect::<Vec<_>>());
    let findings = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..plan.jobs {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().ok().and_then(|mut names| names.pop());
                    let Some(name) = next else { return };
                    println!("fuzzing {name} for {} s", plan.seconds);
                    let outcome = fuzz(&folder, &binaries, &name, plan.seconds)
                        .and_then(|ran| log.add(&name, &ran).map(|()| ran.finding));
                    let fault = outcome.unwrap_or_else(Some);
                    if let (Some(fault), Ok(mut all)) = (fault, findings.lock()) {
                        all.push(fault);
                    }
                }
            });
        }
    });
    let findings = findings.into_inner().map_err(|error| error.to_string())?;
    if findings.is_empty() { Ok(()) } else { Err(findings.join("\n")) }
}

fn plan(arguments: impl Iterator<Item = String>, known: Vec<String>) -> Result<Plan, String> {
    let mut plan = Plan { names: Vec::new(), seconds: 60, jobs: 1 };
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        let mut number = || {
            let text = arguments.next();
            let wanted = || format!("{argument} wants a number: cargo xtask fuzz {argument} 60");
            text.and_then(|text| text.parse::<u64>().ok()).ok_or_else(wanted)
        };
        match argument.as_str() {
            "--seconds" => plan.seconds = number()?,
            "--jobs" => plan.jobs = number()?.clamp(1, 64) as usize,
            _ => plan.names.push(argument),
        }
    }
    if let Some(name) = plan.names.iter().find(|name| !known.contains(name)) {
        return Err(format!("no fuzz target {name}; there are: {}", known.join(", ")));
    }
    if plan.names.is_empty() {
        plan.names = known;
    }
    Ok(plan)
}

/// Runs one target. A finding is part of the outcome, with a sentence that says where it lies.
fn fuzz(folder: &Path, binaries: &Path, name: &str, seconds: u64) -> Result<Ran, String> {
    // New inputs stay out of the tree, so that the committed corpus stays small.
    let grown = crate::target(folder).join("corpus").join(name);
    let artifacts = folder.join("artifacts").join(name);
    for made in [&grown, &artifacts] {
        fs::create_dir_all(made).map_err(|error| format!("{}: {error}", made.display()))?;
    }
    let mut child = Command::new(binaries.join(name))
        .arg(&grown)
        .arg(folder.join("corpus").join(name))
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .args(["-print_final_stats=1", &format!("-timeout={SECONDS_MAX}")])
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{name} could not be started: {error}"))?;
    let mut ran = Ran::default();
    let mut lines = Vec::new();
    if let Some(output) = child.stderr.take() {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            ran.read(&line);
            lines.push(line);
            if lines.len() > 2 * LINES_SHOWN {
                lines.drain(..LINES_SHOWN);
            }
        }
    }
    let (status, cpu_seconds) = log::timed_wait(&mut child)?;
    ran.cpu_seconds = cpu_seconds;
    if !status.success() && !was_only_waiting(&binaries.join(name), &artifacts)? {
        lines.iter().skip(lines.len().saturating_sub(LINES_SHOWN)).for_each(|l| println!("{l}"));
        ran.finding = Some(format!(
            "{name} ended with {status}: the input lies in {}; put it into fuzz/corpus/{name} with \
             the fix, so that cargo test replays it",
            artifacts.display()
        ));
    }
    Ok(ran)
}

/// Whether all that the fuzzer has to show are inputs that took long because others had the processor:
/// its clock is the wall's. They are taken away.
fn was_only_waiting(binary: &Path, artifacts: &Path) -> Result<bool, String> {
    let entries = fs::read_dir(artifacts).map_err(|error| error.to_string())?;
    let paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    let is_slow = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("timeout-") || name.starts_with("slow-unit-")
    };
    if paths.is_empty() || !paths.iter().all(is_slow) {
        return Ok(false);
    }
    for path in &paths {
        let again = Command::new(binary).arg(path).stderr(Stdio::null()).spawn();
        let mut again = again.map_err(|error| format!("{}: {error}", binary.display()))?;
        let (status, cpu_seconds) = log::timed_wait(&mut again)?;
        if !status.success() || cpu_seconds >= SECONDS_MAX {
            return Ok(false);
        }
        fs::remove_file(path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(true)
}

/// The targets, by the files in `fuzz_targets`.
fn targets(folder: &Path) -> Result<Vec<String>, String> {
    let folder: PathBuf = folder.join("fuzz_targets");
    let entries =
        fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    Ok(names)
}
