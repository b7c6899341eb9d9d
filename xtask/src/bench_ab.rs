//! Two versions of Outboard beside each other: the demo's rows of another commit and of the tree.
//!
//! Each version is built and runs its own demo, so that neither needs to know the other's contract.
//! Rounds alternate between the versions. The other commit runs twice in each round: how far
//! apart its own two runs are is the noise floor.

mod rows;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{cargo, succeed, target};
use rows::{Arm, Rows};

/// What is compared: everything but the kernel.
const ARRANGEMENTS: &str = "xdp-server,tap-server,packet-both";
/// Rounds unless said otherwise.
const ROUNDS: usize = 5;
/// Seconds that a demo's single round may take.
const LIMIT: &str = "3600";

/// `COMMIT [--rounds N]`.
pub fn run(root: &Path, arguments: impl Iterator<Item = String>) -> Result<(), String> {
    let (commit, rounds) = parse(arguments)?;
    let folder = target(root).join("bench-ab");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let base = build_base(root, &commit, &folder)?;
    build(root, &target(root))?;
    let head = target(root).join("release/outboard");
    let mut rows = Rows::default();
    for round in 0..rounds {
        // In every other round the other way round, so that a drift favours nobody.
        let mut arms = [Arm::Base, Arm::Head, Arm::BaseAgain];
        if round % 2 == 1 {
            arms.reverse();
        }
        for arm in arms {
            println!("== round {} of {rounds}: {}", round + 1, arm.name());
            let executable = if arm == Arm::Head { &head } else { &base };
            let output = folder.join(arm.name());
            rows.add(arm, &demo(executable, &output)?)?;
        }
    }
    print!("{}", rows.table(&commit));
    let file = folder.join("report.json");
    fs::write(&file, rows.json(&commit)).map_err(|error| format!("{}: {error}", file.display()))?;
    println!("{rounds} rounds; medians. Report: {}", file.display());
    Ok(())
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<(String, usize), String> {
    let usage = || "give the commit to compare with: COMMIT [--rounds N]".to_owned();
    let commit = arguments.next().filter(|commit| !commit.is_empty()).ok_or_else(usage)?;
    let rounds = match (arguments.next().as_deref(), arguments.next()) {
        (None, None) => ROUNDS,
        (Some("--rounds"), Some(count)) => match count.parse() {
            Ok(count) if count > 0 => count,
            _ => return Err(format!("`{count}` is no number of rounds; give 1 or more")),
        },
        _ => return Err(usage()),
    };
    Ok((commit, rounds))
}

/// Builds a commit in a worktree that is there only meanwhile; its executable.
fn build_base(root: &Path, commit: &str, folder: &Path) -> Result<PathBuf, String> {
    let source = folder.join("source");
    let git = || {
        let mut git = Command::new("git");
        git.arg("-C").arg(root);
        git
    };
    let remove = || {
        // There is none unless an earlier run was killed.
        let _ = git().args(["worktree", "remove", "--force"]).arg(&source).output();
    };
    remove();
    succeed(git().args(["worktree", "add", "--quiet", "--detach"]).arg(&source).arg(commit))?;
    let built = build(&source, &folder.join("base"));
    remove();
    built.map(|()| folder.join("base/release/outboard"))
}

fn build(source: &Path, target: &Path) -> Result<(), String> {
    let packages = ["--package", "outboard", "--package", "outboard-preload"];
    let mut build = cargo();
    build.args(["build", "--release"]).args(packages).current_dir(source);
    succeed(build.env("CARGO_TARGET_DIR", target))
}

/// One round of an executable's demo; its report.
fn demo(executable: &Path, output: &Path) -> Result<String, String> {
    let file = output.join("report.json");
    // A demo that fails at once must not leave the report of the round before.
    let _ = fs::remove_file(&file);
    let mut demo = Command::new(executable);
    demo.args(["demo", "--rounds", "1", "--limit", LIMIT, "--arrangements", ARRANGEMENTS]);
    let status = demo.arg("--output").arg(output).stdout(std::process::Stdio::null()).status();
    let status = status.map_err(|error| format!("{}: {error}", executable.display()))?;
    // Where single runs have failed there is a report all the same, without their values.
    fs::read_to_string(&file).map_err(|_| format!("{demo:?} ended with {status} and no report"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_needed_and_rounds_are_counted() {
        let parse = |line: &str| parse(line.split_whitespace().map(str::to_owned));
        assert_eq!(parse("abc"), Ok(("abc".to_owned(), ROUNDS)));
        assert_eq!(parse("abc --rounds 2"), Ok(("abc".to_owned(), 2)));
        for wrong in ["", "abc --rounds", "abc --rounds 0", "abc --rounds x", "abc 3"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
