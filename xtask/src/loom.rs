//! Loom explores the interleavings of the shared queues. It needs its own build, with
//! `--cfg loom`, in its own target folder so that the ordinary build stays warm.

use std::path::Path;
use std::process::Command;

use crate::{cargo, succeed};

/// Two pre-emptions find what is found in practice, in minutes and not hours.
const PREEMPTIONS_MAX: &str = "2";

/// Runs every test of `crates/shm` whose path contains `loom`.
pub fn run(root: &Path) -> Result<(), String> {
    let listed = tests(root)
        .args(["--list", "--format=terse"])
        .output()
        .map_err(|error| format!("cargo test could not be started: {error}"))?;
    if !listed.status.success() {
        return Err(String::from_utf8_lossy(&listed.stderr).into_owned());
    }
    let count =
        String::from_utf8_lossy(&listed.stdout).lines().filter(|l| l.ends_with(": test")).count();
    if count == 0 {
        // A filter that matches nothing passes in cargo's eyes.
        return Err("no test of crates/shm has loom in its path: nothing was checked".to_owned());
    }
    println!("{count} models, at most {} pre-emptions each", preemptions());
    succeed(&mut tests(root))
}

fn preemptions() -> String {
    std::env::var("LOOM_MAX_PREEMPTIONS").unwrap_or_else(|_| PREEMPTIONS_MAX.to_owned())
}

/// Optimized, because loom runs every interleaving, but without what only costs building time.
fn tests(root: &Path) -> Command {
    let mut command = cargo();
    command
        .current_dir(root)
        .args(["test", "--release", "--package", "outboard-shm", "--lib", "--target-dir"])
        .arg(crate::target(root).join("loom"))
        .args(["--", "loom"])
        .env("RUSTFLAGS", "--cfg loom")
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env("LOOM_MAX_PREEMPTIONS", preemptions());
    command
}
