//! `outboard script`: packet scripts against our stack under virtual time, and against the kernel.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use ::script::RunError;
use ::script::linux::Linux;
use ::script::many::all_against_us;
use ::script::script::{Expectation, Script};
use lab::cubic::Cubic;
use lab::failure::{Explain, Failure, Result};

/// Tries of a script that the kernel does not pass: it runs in real time, and a busy machine misses
/// moments.
const TRIES: u32 = 6;
/// Tries after which a script runs alone.
const TRIES_TOGETHER: u32 = 3;
/// Percentage of the scripts that the kernel must verify.
const VERIFIED_MIN: f64 = 70.0;
/// How long a script may take against the kernel.
const LIMIT: Duration = Duration::from_secs(60);

/// What to run.
pub struct Scripts {
    /// Scripts, and folders of them.
    pub paths: Vec<PathBuf>,
    /// Against the kernel, too.
    pub kernel: bool,
    /// How many at a time against the kernel.
    pub jobs: usize,
    /// Only the scripts that fail, and the sums.
    pub brief: bool,
    /// Each how many-th script goes to the kernel.
    pub sample: usize,
}

/// What became of a script.
struct Ran {
    path: PathBuf,
    script: Script,
    ours: Result<(), RunError>,
    kernel: Option<Result<(), String>>,
}

/// Runs scripts; failure when one does not go as its header says.
pub fn scripts(what: &Scripts) -> Result<ExitCode> {
    let mut all = Vec::new();
    for path in &what.paths {
        find(path, &mut all)?;
    }
    all.sort();
    let mut scripts = Vec::new();
    for path in &all {
        let text = fs::read_to_string(path).explain(
            format!("cannot read {}", path.display()),
            "name a script or a folder of scripts (*.pkt)",
        )?;
        let script = Script::parse(&text).map_err(|why| {
            Failure::new(format!("{}: {why}", path.display()), "docs/scripts.md has the language")
        })?;
        scripts.push(script);
    }
    let outcomes = all_against_us(&scripts);
    let mut ran: Vec<Ran> = all
        .into_iter()
        .zip(scripts)
        .zip(outcomes)
        .map(|((path, script), ours)| Ran { path, script, ours, kernel: None })
        .collect();
    if what.kernel {
        against_the_kernel(&mut ran, what)?;
    }
    Ok(if tell(&ran, what) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn find(path: &Path, all: &mut Vec<PathBuf>) -> Result<()> {
    if !path.is_dir() {
        all.push(path.to_path_buf());
        return Ok(());
    }
    let entries = fs::read_dir(path)
        .explain(format!("cannot read {}", path.display()), "name a folder of scripts")?;
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() || path.extension().is_some_and(|end| end == "pkt") {
            find(&path, all)?;
        }
    }
    Ok(())
}

/// Runs one script against the kernel of this very namespace.
pub fn alone(path: &Path) -> ExitCode {
    // Expectations are milliseconds apart: ahead of a busy machine's other work. Without the right to
    // it, or without such groups, more tries are needed.
    let _ = rustix::process::setpriority_process(None, -20);
    let _ = fs::write("/proc/self/autogroup", "-20");
    let ran = fs::read_to_string(path)
        .map_err(|why| why.to_string())
        .and_then(|text| Script::parse(&text).map_err(|why| why.to_string()))
        .and_then(|script| against_kernel(&script).map_err(|why| why.to_string()));
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            tell!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn against_kernel(script: &Script) -> std::result::Result<(), RunError> {
    let mut linux = Linux::new(script.mtu, script.version.has_v6_sockets(), &script.settings)?;
    ::script::run::run(script, &mut linux)
}

/// A script that runs in a namespace of its own.
struct Running {
    index: usize,
    tries: u32,
    child: Child,
    began: Instant,
}

fn start(path: &Path) -> Result<Child> {
    let own =
        std::env::current_exe().explain("cannot find this executable", "start it by its path")?;
    // A session of its own is a scheduling group of its own (sched(7), autogroup).
    Command::new("setsid")
        .args(["unshare", "--net", "--"])
        .arg(own)
        .args(["script", "--alone"])
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .explain("setsid(1) does not start", "install util-linux; it takes root")
}

fn against_the_kernel(ran: &mut [Ran], what: &Scripts) -> Result<()> {
    lab::require_root("running scripts against the kernel")?;
    let mut waiting: VecDeque<(usize, u32)> = ran
        .iter()
        .enumerate()
        .filter(|(_, one)| !matches!(one.script.kernel, Expectation::NotApplicable(_)))
        .step_by(what.sample.max(1))
        .map(|(index, _)| (index, 0))
        .collect();
    let mut cubic = Cubic::default();
    let mut again: VecDeque<(usize, u32)> = VecDeque::new();
    let mut running: Vec<Running> = Vec::new();
    loop {
        // Those that failed are tried again, fewer at a time, and in the end alone.
        let jobs = match again.front() {
            _ if !waiting.is_empty() => what.jobs,
            Some((_, tries)) if *tries >= TRIES_TOGETHER => 1,
            _ => what.jobs.div_ceil(8),
        };
        while running.len() < jobs
            && let Some((index, tries)) = waiting.pop_front().or_else(|| again.pop_front())
        {
            // Where it cannot be allowed, the script tells.
            let _ = cubic.allow();
            let child = start(&ran[index].path)?;
            running.push(Running { index, tries, child, began: Instant::now() });
        }
        if running.is_empty() {
            return Ok(());
        }
        let mut still = Vec::new();
        for mut one in running {
            let status = match one.child.try_wait() {
                Ok(None) if one.began.elapsed() < LIMIT => {
                    still.push(one);
                    continue;
                }
                Ok(Some(status)) => status.success(),
                _ => {
                    let _ = one.child.kill();
                    false
                }
            };
            let output = one.child.wait_with_output();
            let told = output.map(|output| {
                let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
                text.push_str(&String::from_utf8_lossy(&output.stderr));
                text.trim().to_string()
            });
            let place = &mut ran[one.index];
            if status {
                place.kernel = Some(Ok(()));
                continue;
            }
            let expected = matches!(place.script.kernel, Expectation::Differs(_));
            if one.tries + 1 < TRIES && !expected {
                again.push_back((one.index, one.tries + 1));
            } else {
                place.kernel = Some(Err(told.unwrap_or_else(|why| why.to_string())));
            }
        }
        running = still;
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Prints what became of each; whether all is as the headers say.
fn tell(ran: &[Ran], what: &Scripts) -> bool {
    let [mut verified, mut differ, mut not_applicable, mut failed] = [0; 4];
    for one in ran {
        let mut lines = Vec::new();
        if let Err(why) = &one.ours {
            lines.push(format!("OUR STACK DIFFERS: {why}"));
        }
        let mut word = "passed".to_string();
        match (&one.script.kernel, &one.kernel) {
            (Expectation::NotApplicable(reason), _) => {
                not_applicable += 1;
                word = format!("not applicable ({reason})");
            }
            (_, None) => {}
            (Expectation::Agrees, Some(Ok(()))) => {
                verified += 1;
                word = "verified by the kernel".into();
            }
            (Expectation::Differs(reason), Some(Err(_))) => {
                differ += 1;
                word = format!("kernel differs ({reason})");
            }
            (Expectation::Agrees, Some(Err(why))) => {
                lines.push(format!("THE KERNEL DIFFERS: {why}"));
            }
            (Expectation::Differs(_), Some(Ok(()))) => {
                lines.push("the kernel passes it, although its header says that it differs".into());
            }
        }
        let name = one.path.display();
        if lines.is_empty() {
            if !what.brief {
                tell!("{name}: {word}");
            }
        } else {
            failed += 1;
            for line in lines {
                tell!("{name}: {line}");
            }
        }
    }
    tell!("{} scripts, {failed} failed", ran.len());
    if what.kernel {
        let asked = ran.iter().filter(|one| one.kernel.is_some()).count() as u32 + not_applicable;
        let share = if asked == 0 { 0.0 } else { 100.0 * f64::from(verified) / f64::from(asked) };
        tell!(
            "{verified} verified by the kernel ({share:.1}%), {differ} where the kernel differs, \
             {not_applicable} not applicable"
        );
        if asked > 0 && share < VERIFIED_MIN {
            tell!("the kernel must verify {VERIFIED_MIN}%");
            return false;
        }
    }
    failed == 0
}
