//! Instructions that fixed work takes, counted under callgrind and compared with a committed table.
//!
//! The counts repeat, unlike times, so they show a regression on any machine. They depend on the
//! compiler, so the table has a section for each toolchain and architecture.

mod profile;
mod table;

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{cargo, succeed, target};
use profile::Profile;
use table::{Section, Table, Workload};

/// Where the table is, from the root.
const TABLE: &str = "crates/sim/instructions.txt";
/// Function of the example that is counted.
const COUNTED: &str = "*steady_state*";
/// What the example does, and how often.
const WORKLOADS: [(&str, u32); 7] = [
    ("tcp-echo-64", 1000),
    ("tcp-transmit-1k", 1000),
    ("tcp-bulk-64k", 200),
    ("udp-echo-64", 1000),
    ("connect-close", 500),
    ("message-8", 1600),
    ("message-core-8", 1600),
];

/// Counts, and compares with the table; rewrites this toolchain's section with `UPDATE=1`.
pub fn run(root: &Path) -> Result<(), String> {
    let now = Section { toolchain: toolchain()?, workloads: count(root)? };
    let path = root.join(TABLE);
    let mut table = match fs::read_to_string(&path) {
        Ok(text) => Table::parse(&text)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Table::default(),
        Err(error) => return Err(format!("cannot read {TABLE}: {error}")),
    };
    println!("{now}");
    if std::env::var_os("UPDATE").is_some() {
        table.replace(now);
        return fs::write(&path, table.to_string())
            .map_err(|error| format!("cannot write {TABLE}: {error}"));
    }
    let Some(known) = table.section(&now.toolchain) else {
        return unknown(&now.toolchain);
    };
    let faults = known.faults(&now);
    if faults.is_empty() {
        println!("instructions: as in {TABLE}");
        return Ok(());
    }
    Err(format!(
        "{}\nwhere the change is meant, say so in the commit and rewrite the table with UPDATE=1 \
         make instructions",
        faults.join("\n")
    ))
}

/// The compiler's version and the architecture that it compiles for.
fn toolchain() -> Result<String, String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .arg("--version")
        .output()
        .map_err(|error| format!("rustc could not be started: {error}"))?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Ok(format!("{version} {}", std::env::consts::ARCH))
}

fn count(root: &Path) -> Result<Vec<Workload>, String> {
    let example = ["--package", "outboard-sim", "--example", "instructions"];
    succeed(cargo().args(["build", "--release"]).args(example).current_dir(root))?;
    let executable = target(root).join("release/examples/instructions");
    let folder = target(root).join("instructions");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut workloads = Vec::new();
    for (name, times) in WORKLOADS {
        let file = folder.join(format!("{name}.callgrind"));
        let mut callgrind = Command::new("valgrind");
        callgrind
            .args(["--quiet", "--tool=callgrind", &format!("--toggle-collect={COUNTED}")])
            .arg(format!("--callgrind-out-file={}", file.display()))
            .arg(&executable)
            .args([name, &times.to_string()]);
        succeed(&mut callgrind)?;
        let text =
            fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let profile = Profile::read(&text, &executable, root)
            .map_err(|error| format!("{}: {error}", file.display()))?;
        workloads.push(Workload::new(name, &profile, times));
    }
    Ok(workloads)
}

/// A toolchain that the table lacks: under CI a failure, elsewhere noted as a skipped test.
fn unknown(toolchain: &str) -> Result<(), String> {
    let line = format!(
        "instructions: {TABLE} has no counts of {toolchain}; UPDATE=1 make instructions adds them"
    );
    if std::env::var("CI").is_ok_and(|value| value == "true") {
        return Err(line);
    }
    println!("{line}");
    let Some(path) = std::env::var_os("OUTBOARD_SKIPPED") else { return Ok(()) };
    let skipped = fs::read_to_string(&path).unwrap_or_default();
    fs::write(&path, format!("{skipped}{line}\n"))
        .map_err(|error| format!("{}: {error}", Path::new(&path).display()))
}
