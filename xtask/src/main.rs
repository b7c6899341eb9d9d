//! Work on the tree itself: `cargo xtask tidy | rfc | loom | fuzz | packetdrill | figures | instructions |
//! bench-ab`.
#![forbid(unsafe_code)]

mod bench_ab;
mod figures;
mod fuzz;
mod instructions;
mod loom;
mod packetdrill;
mod rfc;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const USAGE: &str = "\
usage: cargo xtask COMMAND
  tidy                                 the rules of the tree
  rfc [TEXTS] [--report] [--missing NUMBER] [--extract NUMBER]
                                       clauses of RFCs cited by code and tests; with a folder of RFC
                                       texts (rfc9293.txt), whether quotations and lists are true.
                                       --report writes docs/rfc/README.md, --missing shows one RFC,
                                       --extract writes its list anew from its text
  loom                                 interleavings of the shared queues
  fuzz [TARGET...] [--seconds N] [--jobs N]
                                       fuzz targets, all of them unless named; 60 seconds each, one
                                       at a time; docs/fuzz.md tells what was run
  packetdrill DIR...                   packetdrill scripts against the stack
  figures DOCUMENT FILE                puts the figures in a file in their place in a document
  instructions                         instructions of fixed work, against the committed table
  bench-ab COMMIT [--rounds N]         the demo's rows of a commit and of the tree, by turns; root";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next();
    let result = match command.as_deref() {
        Some("tidy") => tidy::run(&root()),
        Some("rfc") => rfc::run(&root(), arguments),
        Some("loom") => loom::run(&root()),
        Some("fuzz") => fuzz::run(&root(), arguments),
        Some("packetdrill") => packetdrill::run(&root(), arguments),
        Some("figures") => figures::run(&root(), arguments),
        Some("bench-ab") => bench_ab::run(&root(), arguments),
        Some("instructions") => instructions::run(&root()),
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

/// Where a cargo that is started in `folder` builds.
fn target(folder: &Path) -> PathBuf {
    let set = ["CARGO_TARGET_DIR", "CARGO_BUILD_TARGET_DIR"];
    let set = set.into_iter().find_map(std::env::var_os);
    folder.join(set.unwrap_or_else(|| "target".into()))
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
