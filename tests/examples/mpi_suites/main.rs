//! MPI programs over the engines of two hosts, with ranks on both and several on each:
//! - `mpi_suites mpich SOURCE BUILT [NAMES]` runs the lists of MPICH's tests, SOURCE being the folder
//!   test/mpi of MPICH's source, BUILT what scripts/mpich-tests made of it, and NAMES a part of the tests'
//!   names;
//! - `mpi_suites imb PROGRAM` runs all of IMB-MPI1, built to check its data;
//! - `mpi_suites programs` runs programs of Debian's packages that check their own results.
//!
//! `make mpich-tests`, `make imb` and `make mpi-programs` run them.

mod imb;
mod mpich;
mod programs;

use std::path::Path;
use std::process::ExitCode;

use lab::failure::{Failure, Result};
use lab::{Finished, require_root};

/// What engines are configured with, by the name of what then carries messages between hosts.
const NETWORKS: [(&str, &str); 2] = [("UDP", ""), ("Ethernet", ETHERNET)];
/// Messages in Ethernet frames.
const ETHERNET: &str = "[messages]\nencapsulation = \"ethernet\"\n";

fn main() -> Result<ExitCode> {
    require_root("mpi_suites")?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let failed = match words[..] {
        ["mpich", source, built] => mpich::run(Path::new(source), Path::new(built), "")?,
        ["mpich", source, built, names] => mpich::run(Path::new(source), Path::new(built), names)?,
        ["imb", program] => imb::run(program)?,
        ["programs"] => programs::run()?,
        _ => {
            let usage = "mpi_suites mpich SOURCE BUILT [NAMES], imb PROGRAM, or programs";
            let advice = "run it by `make mpich-tests`, `make imb` or `make mpi-programs`";
            return Err(Failure::new(usage, advice));
        }
    };
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// How a program ended, with the last that it said.
fn last_lines(finished: &Finished) -> String {
    let all = format!("{}\n{}", finished.output, finished.errors);
    let lines: Vec<&str> = all.lines().collect();
    format!("{}\n    {}", finished.status, lines[lines.len().saturating_sub(12)..].join("\n    "))
}
