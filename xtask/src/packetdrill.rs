//! Runs directories of packetdrill scripts against the stack: builds the adapter and, where need
//! be, packetdrill itself, gives each run a network namespace of its own (the scripts' commands set
//! the kernel's settings there, and the adapter reads them back), several at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{cargo, succeed};

/// Where packetdrill's source is.
const SOURCE: &str = "https://github.com/google/packetdrill";
/// The folder of it in which it is built.
const INNER: &str = "gtests/net/packetdrill";
/// Which scripts are not expected to pass, and why.
const EXCLUDED: &str = "bindings/packetdrill/excluded";
/// How the reason begins of a script that passes with the tolerance that the kernel's own runner gives
/// to slow machines, and with that alone, as it does against the kernel.
const TOLERATED: &str = "within 14 ms: ";
/// That tolerance.
const TOLERANCE: &str = "--tolerance_usecs=14000";
/// Most real seconds for one script; nearly all of them take one.
const SECONDS: &str = "120";
/// How the adapter begins the line that names a setting it cannot honour.
const UNKNOWN: &str = "outboard: setting ";

/// What packetdrill's own runner and the kernel's give to it, by family.
const FAMILIES: [(&str, &[&str]); 2] = [
    (
        "ipv4",
        &[
            "--ip_version=ipv4",
            "--local_ip=192.168.0.1",
            "--gateway_ip=192.168.0.1",
            "--netmask_ip=255.255.0.0",
            "--remote_ip=192.0.2.1",
            "-DTFO_COOKIE=3021b9d889017eeb",
            "-DTFO_COOKIE_ZERO=b7c12350a90dc8f5",
            "-DCODE=host_unreachable",
            "-DCMSG_LEVEL_IP=SOL_IP",
            "-DCMSG_TYPE_RECVERR=IP_RECVERR",
        ],
    ),
    (
        "ipv6",
        &[
            "--ip_version=ipv6",
            "--mtu=1520",
            "--local_ip=fd3d:0a0b:17d6::1",
            "--gateway_ip=fd3d:0a0b:17d6:8888::1",
            "--remote_ip=fd3d:fa7b:d17d::1",
            "-DTFO_COOKIE=c1d1e9742a47a9bc",
            "-DTFO_COOKIE_ZERO=82af1a8f9a205c34",
            "-DCODE=address_unreachable",
            "-DCMSG_LEVEL_IP=SOL_IPV6",
            "-DCMSG_TYPE_RECVERR=IPV6_RECVERR",
        ],
    ),
];

/// What became of a script with one family.
enum Outcome {
    Passed,
    Failed(String),
    /// Not expected to pass, and does not.
    Excluded(String),
    /// Passed with the tolerance of slow machines.
    Tolerated(String),
    /// Not expected to pass, but does.
    Unneeded(String),
}

/// Something to run.
struct Run {
    script: PathBuf,
    family: usize,
}

/// Runs all scripts below the folders named.
///
/// # Errors
/// When packetdrill or the adapter cannot be had, or when a script fails that is not excluded.
pub fn run(root: &Path, folders: impl Iterator<Item = String>) -> Result<(), String> {
    let mut scripts = BTreeSet::new();
    for folder in folders.flat_map(|given| given.split(' ').map(str::to_owned).collect::<Vec<_>>())
    {
        let path = Path::new(&folder).canonicalize().map_err(|error| {
            format!("{folder} cannot be read: {error}; name a folder of scripts")
        })?;
        collect(&path, &mut scripts)?;
    }
    if scripts.is_empty() {
        return Err("no script is named: make packetdrill DIR=path/to/scripts".to_owned());
    }
    let tool = tool(root)?;
    println!("== building the adapter");
    succeed(cargo().current_dir(root).args(["build", "--package", "outboard-packetdrill"]))?;
    let adapter = crate::target(root).join("debug/liboutboard_packetdrill.so");
    let excluded = excluded(root)?;
    let runs: Vec<Run> = scripts
        .into_iter()
        .flat_map(|script| {
            let families = families(&script);
            families.into_iter().map(move |family| Run { script: script.clone(), family })
        })
        .collect();
    let (next, unknown) = (AtomicUsize::new(0), Mutex::new(BTreeSet::new()));
    let outcomes = Mutex::new(BTreeMap::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(run) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let reason = reason(&excluded, run);
                    let mut told = attempt(&tool, &adapter, run, None);
                    let tolerated = reason.and_then(|reason| reason.strip_prefix(TOLERATED));
                    let is_tolerated = told.is_err() && tolerated.is_some() && {
                        told = attempt(&tool, &adapter, run, Some(TOLERANCE));
                        told.is_ok()
                    };
                    if let (Ok(mut unknown), Err(text) | Ok(text)) = (unknown.lock(), &told) {
                        unknown.extend(
                            text.lines()
                                .filter_map(|line| line.strip_prefix(UNKNOWN))
                                .map(str::to_owned),
                        );
                    }
                    let outcome = match tolerated.filter(|_| is_tolerated) {
                        Some(reason) => Outcome::Tolerated(reason.to_owned()),
                        None => judge(told, reason),
                    };
                    say(run, &outcome);
                    if let Ok(mut outcomes) = outcomes.lock() {
                        outcomes.insert((run.script.clone(), run.family), outcome);
                    }
                }
            });
        }
    });
    for setting in unknown.into_inner().unwrap_or_default() {
        println!("unknown setting: {setting}");
    }
    summary(&outcomes.into_inner().unwrap_or_default())
}

fn collect(path: &Path, scripts: &mut BTreeSet<PathBuf>) -> Result<(), String> {
    if path.is_file() {
        scripts.insert(path.to_owned());
        return Ok(());
    }
    let entries = std::fs::read_dir(path)
        .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, scripts)?;
        } else if path.extension().is_some_and(|end| end == "pkt") {
            scripts.insert(path);
        }
    }
    Ok(())
}

/// Both, but for scripts that choose one themselves.
fn families(script: &Path) -> Vec<usize> {
    let text = std::fs::read_to_string(script).unwrap_or_default();
    let says = |word: &str| text.lines().any(|line| line.starts_with("--") && line.contains(word));
    // Only a script for IPv6 has addresses with colons; ICMP of IPv4 is none of IPv6's.
    let ends = |end: &str| script.to_string_lossy().ends_with(end);
    if says("ip_version=ipv6") || says("_ip=fd") || ends("v6.pkt") {
        return vec![1];
    }
    if ends("v4.pkt") || says("_ip=") || says("ip_version=ipv4") || text.contains("[icmp") {
        return vec![0];
    }
    vec![0, 1]
}

/// packetdrill: the binary or source that PACKETDRILL names, what is installed, or what can be
/// fetched and built.
fn tool(root: &Path) -> Result<PathBuf, String> {
    if let Some(given) = std::env::var_os("PACKETDRILL").filter(|given| !given.is_empty()) {
        let given = PathBuf::from(given);
        let given = given
            .canonicalize()
            .map_err(|error| format!("PACKETDRILL={} cannot be found: {error}", given.display()))?;
        return if given.is_dir() { build(&given) } else { Ok(given) };
    }
    let installed = Command::new("sh").args(["-c", "command -v packetdrill"]).output();
    if let Some(found) = installed.ok().filter(|found| found.status.success()) {
        return Ok(PathBuf::from(String::from_utf8_lossy(&found.stdout).trim()));
    }
    let copy = crate::target(root).join("packetdrill");
    if !copy.join(INNER).exists() {
        println!("== fetching packetdrill from {SOURCE}");
        succeed(Command::new("git").args(["clone", "--depth", "1", SOURCE]).arg(&copy)).map_err(
            |error| {
                format!(
                    "{error}\npacketdrill is neither installed nor could it be fetched; give its \
                     source or binary with PACKETDRILL=path ({SOURCE})"
                )
            },
        )?;
    }
    build(&copy)
}

/// Builds packetdrill in its own source tree, which takes a C compiler, flex and bison.
fn build(source: &Path) -> Result<PathBuf, String> {
    let inner = source.join(INNER);
    let folder = if inner.exists() { inner } else { source.to_owned() };
    let binary = folder.join("packetdrill");
    if !binary.exists() {
        println!("== building packetdrill in {}", folder.display());
        succeed(
            Command::new("make")
                .args(["-s", "-f", "Makefile.Linux", "packetdrill"])
                .current_dir(&folder),
        )
        .map_err(|error| {
            format!("{error}\npacketdrill needs a C compiler, make, flex and bison")
        })?;
    }
    Ok(binary)
}

/// Paths' ends and families, each with its reason.
fn excluded(root: &Path) -> Result<Vec<(String, String)>, String> {
    let text = std::fs::read_to_string(root.join(EXCLUDED))
        .map_err(|error| format!("{EXCLUDED} cannot be read: {error}"))?;
    let lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (path, reason) = line.split_once(": ").ok_or_else(|| {
                format!("{EXCLUDED}: '{line}' has no reason; write 'path: reason'")
            })?;
            Ok((path.trim().to_owned(), reason.trim().to_owned()))
        })
        .collect()
}

/// Why a run is excluded: its script by the end of its path, or by a name of the kernel's form
/// (`tcp_` and folder and file, joined), `*` at the end for all that begin so.
fn reason<'a>(excluded: &'a [(String, String)], run: &Run) -> Option<&'a str> {
    let path = run.script.to_string_lossy();
    let family = FAMILIES.get(run.family).map_or("", |(name, _)| name);
    let matches = |pattern: &str| {
        let (pattern, wanted) = pattern.split_once(" (").unwrap_or((pattern, ""));
        let wanted = wanted.trim_end_matches(')');
        let is_family = wanted.is_empty() || wanted == family;
        let flat = format!("tcp_{}", pattern.replace('/', "_"));
        is_family
            && [pattern, flat.as_str()].iter().any(|pattern| match pattern.strip_suffix('*') {
                Some(beginning) => path.contains(&format!("/{beginning}")),
                None => path.ends_with(&format!("/{pattern}")),
            })
    };
    excluded.iter().find(|(pattern, _)| matches(pattern)).map(|(_, reason)| reason.as_str())
}

/// Runs a script; what packetdrill said, as an error when it did not pass.
fn attempt(
    tool: &Path,
    adapter: &Path,
    run: &Run,
    tolerance: Option<&str>,
) -> Result<String, String> {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| {
        use std::os::unix::fs::MetadataExt;
        own.uid() == 0
    });
    let mut command = Command::new("unshare");
    command.arg("--net");
    if !is_root {
        command.args(["--user", "--map-root-user"]);
    }
    // Scripts speak of the device that packetdrill makes when it tests the kernel.
    let prepare = "ip link set lo up; ip tuntap add tun0 mode tun; exec \"$@\"";
    command.args(["sh", "-c", prepare, "sh", "env"]);
    command.arg(format!("LD_PRELOAD={}", adapter.display()));
    command.args(["timeout", "-s", "KILL", SECONDS]).arg(tool);
    command.arg(format!("--so_filename={}", adapter.display()));
    let (_, arguments) = FAMILIES.get(run.family).ok_or("no such family")?;
    let own = std::fs::read_to_string(&run.script).unwrap_or_default();
    for argument in *arguments {
        // What a script says itself counts, though packetdrill would have it otherwise.
        let name = argument.split('=').next().unwrap_or(argument);
        if !own.lines().any(|line| line.starts_with(name)) {
            command.arg(argument);
        }
    }
    command.args(tolerance);
    let folder = run.script.parent().ok_or("a script lies in a folder")?;
    command.arg(run.script.file_name().unwrap_or_default()).current_dir(folder);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("unshare could not be started: {error}"))?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    if output.status.success() {
        Ok(text)
    } else {
        let status = output.status;
        text.push_str(&format!("\n({status})"));
        Err(text)
    }
}

fn judge(told: Result<String, String>, reason: Option<&str>) -> Outcome {
    match (told, reason) {
        (Ok(_), None) => Outcome::Passed,
        (Ok(_), Some(reason)) => Outcome::Unneeded(reason.to_owned()),
        (Err(_), Some(reason)) => Outcome::Excluded(reason.to_owned()),
        (Err(text), None) => {
            let lines = text.lines().filter(|line| !line.starts_with(UNKNOWN) && !line.is_empty());
            Outcome::Failed(lines.take(4).collect::<Vec<_>>().join("\n    "))
        }
    }
}

fn say(run: &Run, outcome: &Outcome) {
    let family = FAMILIES.get(run.family).map_or("", |(name, _)| name);
    let name = format!("{} ({family})", run.script.display());
    match outcome {
        Outcome::Passed => println!("passed    {name}"),
        Outcome::Failed(why) => println!("FAILED    {name}\n    {why}"),
        Outcome::Excluded(why) => println!("excluded  {name}: {why}"),
        Outcome::Tolerated(why) => println!("passed    {name}, within 14 ms: {why}"),
        Outcome::Unneeded(why) => println!("passed    {name}, though excluded: {why}"),
    }
}

/// Counts by folder, and an error when something failed.
fn summary(outcomes: &BTreeMap<(PathBuf, usize), Outcome>) -> Result<(), String> {
    let mut folders: BTreeMap<&Path, [usize; 3]> = BTreeMap::new();
    for ((script, _), outcome) in outcomes {
        let counts = folders.entry(script.parent().unwrap_or(script)).or_default();
        match outcome {
            Outcome::Passed | Outcome::Unneeded(_) | Outcome::Tolerated(_) => counts[0] += 1,
            Outcome::Failed(_) => counts[1] += 1,
            Outcome::Excluded(_) => counts[2] += 1,
        }
    }
    let mut all = [0; 3];
    for (folder, counts) in &folders {
        for (sum, count) in all.iter_mut().zip(counts) {
            *sum += count;
        }
        let [passed, failed, excluded] = counts;
        println!("{passed:4} passed {failed:3} failed {excluded:3} excluded  {}", folder.display());
    }
    let [passed, failed, excluded] = all;
    println!("{passed:4} passed {failed:3} failed {excluded:3} excluded  in all");
    if failed > 0 { Err(format!("{failed} runs of packetdrill scripts failed")) } else { Ok(()) }
}
