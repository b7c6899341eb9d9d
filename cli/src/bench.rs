//! `outboard bench`: the kernel and Outboard beside each other, over grids of loads.
//!
//! Two hosts with a core each. In every round each cell is measured on all systems in turn, so that
//! whatever else the machine does falls on all of them. The kernel runs in three placements of its
//! receive work; Outboard is compared with the best of them, figure by figure.
//!
//! Start reading at [`measure::run`]; cells are in [`cell`], systems in [`system`], the programs that
//! make the load in [`load`].

use std::path::PathBuf;
use std::time::Duration;

use lab::failure::{Explain, Result};

pub mod cell;
pub mod compare;
pub mod copy;
mod cores;
pub mod emp;
pub mod html;
pub mod load;
pub mod markdown;
pub mod measure;
pub mod ni;
pub mod nic;
pub mod planned;
pub mod profile;
pub mod report;

pub mod system;
pub mod testbed;
pub mod usage;

use cell::{Experiment, Grid};
use system::System;

/// `outboard bench`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Arguments {
    /// What to measure
    #[arg(required = true)]
    experiment: Option<Experiment>,
    /// How many cells
    #[arg(long, default_value = "reduced")]
    grid: Grid,
    /// Number of rounds, over which medians and spreads are taken
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Length of each window in milliseconds
    #[arg(long, default_value_t = 1000)]
    window: u64,
    /// Systems, separated by commas [default: all that the experiment compares]
    #[arg(long, value_delimiter = ',')]
    systems: Vec<String>,
    /// Directory for EXPERIMENT.json and EXPERIMENT.html
    #[arg(long, default_value = "target/bench")]
    output: PathBuf,
    #[command(subcommand)]
    command: Option<Command>,
}

/// What is no measurement.
#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Print reports as Markdown
    Table {
        /// Reports (JSON)
        #[arg(required = true)]
        reports: Vec<PathBuf>,
    },
    /// Compare two reports of one experiment
    Compare {
        /// The report before (JSON)
        before: PathBuf,
        /// The report after
        after: PathBuf,
    },
    /// Reproduce the paper on a user-level network interface: figures 3 to 5, headroom, and the savings
    /// of publishing in bursts and of combining
    Ni(planned::PlanArguments),
    /// The paper on network input and output on other cores: an emulated card, a software card and UDP
    /// in the engine, receiving and sending
    Nic(planned::PlanArguments),
    /// Compare bulk transfers that the library copies with those from and to registered memory
    Copy(planned::PlanArguments),
    /// Reproduce the EMP paper: half round trips, bandwidth, overlap with computation (figures 5 and 6,
    /// table 2), with native programs and with MPI
    Emp(planned::PlanArguments),
    /// List the figures of the ETA and EMP papers, and the command that measures each
    Figures,
    /// Generate load
    #[command(hide = true)]
    Load {
        #[command(subcommand)]
        load: load::Load,
    },
}

/// Figures of the ETA and EMP papers, and the experiment that measures each.
const FIGURES: [(&str, &str); 9] = [
    ("transmit throughput and idle CPU (figure 4)", "eta: transmit"),
    ("receive throughput and idle CPU (figure 5)", "eta: receive"),
    ("execution profile of a 1 KiB transmit (figures 8 and 9)", "profile"),
    ("acceleration of short-lived connections (planned there)", "connect"),
    ("end-to-end latency (planned there)", "latency"),
    ("request rates", "rpc"),
    ("messages: latency and bandwidth by size (EMP, figure 5)", "emp"),
    ("messages while the program computes (EMP, figure 6)", "emp"),
    ("time of Isend, Irecv and Waitall (EMP, table 2)", "emp"),
];

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// The experiment.
    pub experiment: Experiment,
    /// Its grid.
    pub grid: Grid,
    /// How often each cell is measured.
    pub rounds: usize,
    /// Length of each window.
    pub window: Duration,
    /// The systems.
    pub systems: Vec<System>,
    /// Where the reports go.
    pub output: PathBuf,
    /// Engine, servers and clients.
    pub executable: PathBuf,
}

/// Runs the command.
///
/// # Errors
/// When nothing can be measured, or some cells failed (after the reports are written).
pub fn run(arguments: Arguments) -> Result<()> {
    match arguments.command {
        Some(Command::Load { load }) => return load::play(&load),
        Some(Command::Table { reports }) => {
            for path in reports {
                tell!("{}", markdown::section(&report::Report::read(&path)?));
            }
            return Ok(());
        }
        Some(Command::Compare { before, after }) => {
            let [before, after] = [report::Report::read(&before)?, report::Report::read(&after)?];
            tell!("{}", compare::table(&before, &after)?);
            return Ok(());
        }
        Some(Command::Ni(arguments)) => return ni::run(&arguments),
        Some(Command::Nic(arguments)) => return nic::run(&arguments),
        Some(Command::Copy(arguments)) => return copy::run(&arguments),
        Some(Command::Emp(arguments)) => return emp::run(&arguments),
        Some(Command::Figures) => {
            for (figure, command) in FIGURES {
                tell!("{figure:<58} outboard bench {command}");
            }
            return Ok(());
        }
        None => {}
    }
    // Without a command clap requires one.
    let experiment = arguments.experiment.unwrap_or(Experiment::Rpc);
    let named = arguments.systems.iter().map(|name| System::named(name));
    let mut systems: Vec<System> = named.collect::<Result<_>>()?;
    if systems.is_empty() {
        systems = experiment.systems();
    }
    measure::run(&Options {
        experiment,
        grid: arguments.grid,
        rounds: arguments.rounds.max(1),
        window: Duration::from_millis(arguments.window.max(1)),
        systems,
        output: arguments.output,
        executable: std::env::current_exe()
            .explain("cannot find this executable", "mount /proc")?,
    })
}
