//! Builds the fuzz targets with the nightly compiler and runs them. Does what cargo-fuzz does, so
//! that nothing needs to be installed.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::succeed;

/// Coverage counters, comparisons traced, addresses checked: cargo-fuzz's flags.
const RUSTFLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Zsanitizer=address -Cdebug-assertions -Ccodegen-units=1";

/// Runs the targets named in `arguments`, or all; `--seconds N` each.
pub fn run(root: &Path, arguments: impl Iterator<Item = String>) -> Result<(), String> {
    let (mut names, mut seconds) = (Vec::new(), 60u64);
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        if argument == "--seconds" {
            seconds = arguments
                .next()
                .and_then(|text| text.parse().ok())
                .ok_or("--seconds wants a number: cargo xtask fuzz --seconds 60")?;
        } else {
            names.push(argument);
        }
    }
    let folder = root.join("fuzz");
    let known = targets(&folder)?;
    if let Some(name) = names.iter().find(|name| !known.contains(name)) {
        return Err(format!("no fuzz target {name}; there are: {}", known.join(", ")));
    }
    let names = if names.is_empty() { known } else { names };

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

    for name in names {
        // New inputs go to target/, so that the committed corpus stays small.
        let grown = folder.join("target/corpus").join(&name);
        let artifacts = folder.join("artifacts").join(&name);
        for made in [&grown, &artifacts] {
            fs::create_dir_all(made).map_err(|error| format!("{}: {error}", made.display()))?;
        }
        println!("fuzzing {name} for {seconds} s");
        let binary = folder.join("target").join(&triple).join("release").join(&name);
        succeed(
            Command::new(binary)
                .arg(grown)
                .arg(folder.join("corpus").join(&name))
                .arg(format!("-max_total_time={seconds}"))
                .arg(format!("-artifact_prefix={}/", artifacts.display()))
                .args(["-print_final_stats=0", "-verbosity=0", "-timeout=10"]),
        )
        .map_err(|error| {
            format!(
                "{error}\nthe input lies in {}; put it into fuzz/corpus/{name} with the fix, so \
                 that cargo test replays it",
                artifacts.display()
            )
        })?;
    }
    Ok(())
}

/// The targets, by the files in `fuzz_targets`.
fn targets(folder: &Path) -> Result<Vec<String>, String> {
    let folder = folder.join("fuzz_targets");
    let entries =
        fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    Ok(names)
}
