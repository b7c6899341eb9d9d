//! Loom explores the interleavings of the shared queues. It needs its own build, with
//! `--cfg loom`, in its own target folder so that the ordinary build stays warm.

use std::path::Path;

use crate::{cargo, succeed};

/// Two pre-emptions find what is found in practice, in minutes and not hours.
const PREEMPTIONS_MAX: &str = "2";

/// Runs every test of `crates/shm` whose path contains `loom`.
pub fn run(root: &Path) -> Result<(), String> {
    let mut command = cargo();
    command
        .current_dir(root)
        .args(["test", "--release", "--package", "outboard-shm", "--lib", "--target-dir"])
        .arg(root.join("target/loom"))
        .args(["--", "loom"])
        .env("RUSTFLAGS", "--cfg loom")
        .env(
            "LOOM_MAX_PREEMPTIONS",
            std::env::var("LOOM_MAX_PREEMPTIONS").as_deref().unwrap_or(PREEMPTIONS_MAX),
        );
    succeed(&mut command)
}
