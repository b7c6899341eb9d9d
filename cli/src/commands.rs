//! The commands of the executable.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::demo::{self, bench, work::Work};
use crate::failure::{Failure, Result};

/// TCP and UDP on a core of their own, for programs that stay as they are.
#[derive(Debug, Parser)]
#[command(name = "outboard", version, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Do the same work through the kernel and through Outboard, and compare
    Demo(DemoArguments),
}

#[derive(Debug, clap::Args)]
struct DemoArguments {
    /// Most rounds to run
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of load in each run
    #[arg(long, default_value_t = 2)]
    seconds: u32,
    /// Seconds after which no further round begins
    #[arg(long, default_value_t = 285)]
    limit: u64,
    /// Directory of report.json and report.html
    #[arg(long, default_value = "target/demo")]
    output: PathBuf,
    /// Arrangements to measure, separated by commas: kernel, tap-server, packet-both
    #[arg(long, value_delimiter = ',')]
    arrangements: Vec<String>,
    /// Work to do, separated by commas
    #[arg(long, value_delimiter = ',')]
    work: Vec<String>,
}

/// Parses the command line, runs the command and gives its exit status.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments.command) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("outboard: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Demo(arguments) => {
            demo::run(&demo_options(arguments)?)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn demo_options(arguments: DemoArguments) -> Result<demo::Options> {
    let mut options = demo::Options {
        rounds: arguments.rounds.max(1),
        seconds: arguments.seconds.max(1),
        limit: Duration::from_secs(arguments.limit),
        output: arguments.output,
        ..demo::Options::default()
    };
    if !arguments.arrangements.is_empty() {
        let named = arguments.arrangements.iter().map(|name| bench::column_named(name));
        options.columns = named.collect::<Result<_>>()?;
    }
    if !arguments.work.is_empty() {
        let named = arguments.work.iter().map(|name| {
            Work::ALL.into_iter().find(|work| work.name() == name).ok_or_else(|| {
                let known: Vec<&str> = Work::ALL.iter().map(|work| work.name()).collect();
                let advice = format!("choose from {}", known.join(", "));
                Failure::new(format!("there is no work {name:?}"), advice)
            })
        });
        options.works = named.collect::<Result<_>>()?;
    }
    Ok(options)
}
