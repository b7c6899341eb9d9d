//! Work on the tree itself: `cargo xtask tidy | rfc | loom | fuzz | packetdrill`.
#![forbid(unsafe_code)]

mod fuzz;
mod loom;
mod packetdrill;
mod rfc;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const USAGE: &str = "\
usage: cargo xtask COMMAND
  tidy                                 the rules of the tree
  rfc [TEXTS]                          clauses of RFC 9293 cited by code and tests; with a folder of
                                       RFC texts (rfc9293.txt), whether quotations are true
  loom                                 interleavings of the shared queues
  fuzz [TARGET...] [--seconds N]       fuzz targets, all of them unless named; 60 seconds each
  packetdrill DIR...                   packetdrill scripts against the stack";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next();
    let result = match command.as_deref() {
        Some("tidy") => tidy::run(&root()),
        Some("rfc") => rfc::run(&root(), arguments.next().as_deref().map(Path::new)),
        Some("loom") => loom::run(&root()),
        Some("fuzz") => fuzz::run(&root(), arguments),
        Some("packetdrill") => packetdrill::run(&root(), arguments),
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

/// The repository's folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_owned).unwrap_or_default()
}

/// The cargo that runs us.
fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs a command whose output the user sees; a failure is a sentence.
fn succeed(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?} failed: {status}")),
        Err(error) => Err(format!("{command:?} could not be started: {error}")),
    }
}
