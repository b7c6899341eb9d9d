//! The commands of the executable.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ::engine::config::Poll;
use clap::{Parser, Subcommand};
use lab::failure::{Explain, Failure, Result};
use lab::observer::Observer;

use crate::config::{self, Flags};
use crate::demo::{self, bench, work::Work};
use crate::loss;
use crate::scale;

mod ask;
mod congestion;
mod doctor;
mod engine;
pub mod mpi;
pub mod run;
mod script;
mod sim;
mod top;

/// Dedicated-core TCP/UDP engine for unmodified programs.
#[derive(Debug, Parser)]
#[command(name = "outboard", version, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run an engine in the foreground
    Engine(EngineArguments),
    /// Run a program with its sockets accelerated by an engine
    Run(RunArguments),
    /// Run an MPI program with its messages carried by the engines of its hosts
    Mpi {
        /// Socket of the engine on each host [default: as for run, on each host]
        #[arg(long)]
        socket: Option<PathBuf>,
        /// mpirun and its arguments
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Check a host for `mpi` before mpirun's daemon starts on it
    #[command(hide = true)]
    MpiHost {
        #[arg(long)]
        protocol: u8,
        #[arg(long)]
        provider: PathBuf,
        #[arg(long)]
        socket: Option<PathBuf>,
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Start an engine for `run` and leave it to init
    #[command(hide = true)]
    LaunchEngine {
        #[arg(last = true)]
        arguments: Vec<OsString>,
    },
    /// Run the same work through the kernel and through Outboard, and compare
    Demo(DemoArguments),
    /// Show the engine's sockets, the kernel's on interfaces that both share, message endpoints and
    /// associations, and what programs have left to the kernel, with the reason
    Ss {
        #[command(flatten)]
        engine: EngineSocket,
        /// As JSON
        #[arg(long)]
        json: bool,
        /// Show congestion window, round-trip time and other details of each connection
        #[arg(long)]
        info: bool,
    },
    /// Show the engine's load, periodically
    Top {
        #[command(flatten)]
        engine: EngineSocket,
        /// Seconds between updates
        #[arg(long, default_value_t = 1.0)]
        interval: f64,
        /// Number of updates [default: until interrupted]
        #[arg(long)]
        count: Option<u64>,
    },
    /// Show the engine's counters
    Stats {
        #[command(flatten)]
        engine: EngineSocket,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Capture frames as pcapng
    Pcap {
        #[command(flatten)]
        engine: EngineSocket,
        /// Port to capture on, e.g. tap:ob0; optional if the engine has only one
        #[arg(long, default_value = "")]
        port: String,
        /// Bytes to keep of each frame
        #[arg(long, default_value_t = 65535)]
        snap_bytes: u32,
        /// File to write, or - for standard output
        #[arg(long, default_value = "-")]
        output: PathBuf,
        /// Seconds to capture [default: until interrupted]
        #[arg(long)]
        seconds: Option<u64>,
        /// Frames to capture, in tcpdump's syntax: host, net, port, portrange with src or dst; tcp,
        /// udp, icmp, icmp6, ip, ip6, arp, ether host; and, or, not, parentheses
        #[arg(trailing_var_arg = true)]
        filter: Vec<String>,
    },
    /// Confirm an engine that was started with --confirm, so that it keeps running
    Confirm {
        #[command(flatten)]
        engine: EngineSocket,
    },
    /// Run packet scripts against the stack or the kernel
    Script(ScriptArguments),
    /// Simulate whole systems with faults in virtual time, from seeds
    Sim(SimArguments),
    /// Measure goodput and fairness of the congestion controls, in simulation
    Congestion {
        /// Also measure the kernel, through the same bottleneck; prints Markdown
        #[arg(long)]
        kernel: bool,
        /// Number of kernel cases run in parallel
        #[arg(long, default_value_t = 6)]
        jobs: usize,
    },
    /// Compare transfers over a lossy path through the kernel and through Outboard
    Loss(LossArguments),
    /// One end of a transfer whose bytes are compared
    #[command(hide = true)]
    LossEnd { end: loss::ends::End, address: std::net::SocketAddr, bytes: u64 },
    /// Measure the cost of very many connections, in simulation and through a real port
    Scale(ScaleArguments),
    /// Compare the kernel and Outboard over grids of loads
    Bench(crate::bench::Arguments),
    /// Make and drive the connections of `scale`
    #[command(hide = true)]
    ScaleDrive(DriveArguments),
    /// Check what this machine offers and lacks for an engine
    Doctor {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Check an engine's configuration file
    CheckConfig {
        /// The file
        file: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
struct ScriptArguments {
    /// Scripts (*.pkt), or folders of scripts
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Also run them against the kernel, each in a network namespace of its own
    #[arg(long)]
    kernel: bool,
    /// Number of scripts run against the kernel in parallel
    #[arg(long, default_value_t = 32)]
    jobs: usize,
    /// Run only every n-th script against the kernel
    #[arg(long, default_value_t = 1)]
    sample: usize,
    /// Print only failures
    #[arg(long)]
    brief: bool,
    /// Run one script against the kernel of this network namespace
    #[arg(long, hide = true)]
    alone: bool,
}

#[derive(Debug, clap::Args)]
struct EngineSocket {
    /// Control socket of the engine
    #[arg(long)]
    socket: Option<PathBuf>,
}

impl EngineSocket {
    fn path(self) -> PathBuf {
        self.socket.unwrap_or_else(config::default_socket)
    }
}

#[derive(Debug, clap::Args)]
struct EngineArguments {
    /// Port to serve, e.g. xdp:eth0 or tap:ob0,addr=10.0.0.2/24; repeatable
    #[arg(long)]
    port: Vec<String>,
    /// Core to pin the worker to
    #[arg(long)]
    core: Option<usize>,
    /// Sleep when idle (adaptive) or poll on (busy)
    #[arg(long)]
    poll: Option<PollWord>,
    /// Control socket, to which programs attach
    #[arg(long)]
    socket: Option<PathBuf>,
    /// Configuration file (TOML); flags override it
    #[arg(long)]
    config: Option<PathBuf>,
    /// End after this time and revert everything to the kernel, unless `outboard confirm` comes first
    #[arg(long, value_name = "SECONDS")]
    confirm: Option<u64>,
    /// Run as this user once the ports are open
    #[arg(long)]
    user: Option<String>,
    /// Seconds to wait for connections to end on SIGTERM; 0 closes them at once [default: 30]
    #[arg(long, value_name = "SECONDS")]
    drain: Option<u64>,
    /// End when this process does
    #[arg(long, hide = true)]
    owner: Option<i32>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum PollWord {
    Busy,
    Adaptive,
}

impl From<PollWord> for Poll {
    fn from(word: PollWord) -> Self {
        match word {
            PollWord::Busy => Poll::Busy,
            PollWord::Adaptive => Poll::Adaptive,
        }
    }
}

#[derive(Debug, clap::Args)]
struct RunArguments {
    /// Socket of a running engine
    #[arg(long)]
    socket: Option<PathBuf>,
    /// Start a private engine on this port, which ends with the program; repeatable
    #[arg(long)]
    port: Vec<String>,
    /// Core of the private engine
    #[arg(long, requires = "port")]
    core: Option<usize>,
    /// Polling of the private engine
    #[arg(long, requires = "port")]
    poll: Option<PollWord>,
    /// Report at the end of each process which of its sockets were accelerated, which were not, and
    /// why: on standard error, or appended to FILE. There is no report after SIGKILL, a signal's
    /// default action, or execl(3)
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    explain: Option<Option<PathBuf>>,
    /// Print the report of --explain as JSON, one object per line
    #[arg(long, requires = "explain")]
    json: bool,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true)]
    command: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
struct SimArguments {
    /// Run only this seed and print every frame
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Seeds to run, e.g. 1..2000
    #[arg(long, default_value = "1..200", value_parser = sim::parse_seeds)]
    seeds: std::ops::RangeInclusive<u64>,
    /// Insert a bug on purpose: no-retransmit or early-reuse
    #[arg(long = "break", value_parser = sim::parse_break)]
    planted: Option<::sim::Break>,
    /// Stop after this number of failures
    #[arg(long, default_value_t = 20)]
    failures: usize,
    /// Simulate the message cores of three hosts instead
    #[arg(long, conflicts_with_all = ["hashes", "require_coverage", "planted"])]
    messages: bool,
    /// With --messages: insert a bug and check that one of the seeds finds it within 60 seconds
    #[arg(long = "planted", requires = "messages", value_parser = sim::parse_planted, value_name = "BUG")]
    message_bug: Option<::sim::messages::Planted>,
    /// Fail if fewer than 20 seeds hit a fault or rare branch
    #[arg(long)]
    require_coverage: bool,
    /// Compare the runs with the hashes in FILE; write FILE if it does not exist, or with UPDATE=1 in
    /// the environment
    #[arg(long, value_name = "FILE")]
    hashes: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct ScaleArguments {
    /// Connections in simulation; 0 for none
    #[arg(long, default_value_t = 1_000_000)]
    simulated: u32,
    /// Connections through a port; 0 for none
    #[arg(long, default_value_t = 100_000)]
    connections: u32,
    /// Requests per second, over few and over all connections
    #[arg(long, default_value_t = 20_000)]
    rate: u32,
    /// Length of each window in seconds
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// Windows over few connections, and as many over all
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// As JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct DriveArguments {
    #[arg(long)]
    client: PathBuf,
    #[arg(long)]
    server: PathBuf,
    #[arg(long)]
    address: std::net::Ipv4Addr,
    #[arg(long)]
    core: usize,
    #[arg(long)]
    connections: u32,
    #[arg(long)]
    rate: u32,
    #[arg(long)]
    seconds: u32,
    #[arg(long)]
    rounds: usize,
}

#[derive(Debug, clap::Args)]
struct DemoArguments {
    /// Maximum number of rounds
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of load in each run
    #[arg(long, default_value_t = 1)]
    seconds: u32,
    /// Start no further round after this many seconds
    #[arg(long, default_value_t = 285)]
    limit: u64,
    /// Directory for report.json and report.html
    #[arg(long, default_value = "target/demo")]
    output: PathBuf,
    /// Arrangements to measure, separated by commas: kernel, xdp-server, tap-server, packet-both
    #[arg(long, value_delimiter = ',')]
    arrangements: Vec<String>,
    /// Workloads to run, separated by commas
    #[arg(long, value_delimiter = ',')]
    work: Vec<String>,
}

#[derive(Debug, clap::Args)]
struct LossArguments {
    /// Length of each window in seconds
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Windows of each kind
    #[arg(long, default_value_t = 5)]
    windows: usize,
    /// Cells (a congestion control at a loss rate) run in parallel
    #[arg(long, default_value_t = 3)]
    jobs: usize,
    /// Delay of the path for data, in milliseconds
    #[arg(long, default_value_t = 20)]
    delay: u32,
    /// Percentages of segments to lose, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "0.1,1,5")]
    losses: Vec<f64>,
    /// Congestion controls, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "cubic,bbr,reno")]
    congestion: Vec<String>,
    /// Size of a transfer without delay at each loss rate whose contents are compared; 0 for none
    #[arg(long, default_value_t = 1_000_000_000)]
    bytes: u64,
    /// Print the report as JSON instead of Markdown
    #[arg(long)]
    json: bool,
}

/// Parses the command line, runs the command and gives its exit status.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments.command) {
        Ok(code) => code,
        Err(failure) => {
            // If standard error is closed, the exit status still tells.
            let _ = writeln!(std::io::stderr(), "outboard: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Engine(arguments) => {
            let flags = Flags {
                ports: arguments.port,
                core: arguments.core,
                poll: arguments.poll.map(Poll::from),
                socket: arguments.socket,
                user: arguments.user,
                confirm: arguments.confirm,
                drain: arguments.drain,
            };
            return engine::engine(arguments.config.as_deref(), &flags, arguments.owner);
        }
        Command::Run(arguments) => return run::run(&run_settings(arguments)),
        Command::Mpi { socket, command } => return mpi::run(&mpi::Mpi { socket, command }),
        Command::MpiHost { protocol, provider, socket, command } => {
            let check = mpi::host::HostCheck { protocol, provider, socket, command };
            return mpi::host::run(&check);
        }
        Command::LaunchEngine { arguments } => return run::launch_engine(&arguments),
        Command::Demo(arguments) => demo::run(&demo_options(arguments)?)?,
        Command::Ss { engine, json, info } => ask::sockets(&engine.path(), json, info)?,
        Command::Top { engine, interval, count } => {
            let interval = Duration::try_from_secs_f64(interval.max(0.1))
                .explain("the interval is out of range", "give seconds, e.g. --interval 1")?;
            top::top(&engine.path(), interval, count)?;
        }
        Command::Stats { engine, json } => ask::stats(&engine.path(), json)?,
        Command::Pcap { engine, port, snap_bytes, output, seconds, filter } => {
            let filter = filter.join(" ");
            let capture = ask::Capture { port, snap_bytes, filter, output, seconds };
            ask::capture(&engine.path(), &capture)?;
        }
        Command::Confirm { engine } => {
            Observer::connect(&engine.path())?.confirm()?;
            tell!("confirmed: the engine stays");
        }
        Command::Script(arguments) => {
            if arguments.alone {
                return Ok(script::alone(&arguments.paths[0]));
            }
            return script::scripts(&script::Scripts {
                paths: arguments.paths,
                kernel: arguments.kernel,
                jobs: arguments.jobs,
                brief: arguments.brief,
                sample: arguments.sample,
            });
        }
        Command::Congestion { kernel, jobs } => {
            return congestion::congestion(&congestion::Tables { kernel, jobs });
        }
        Command::Scale(arguments) => {
            return scale::run(&scale::ScaleOptions {
                simulated: arguments.simulated,
                connections: arguments.connections,
                rate: arguments.rate.max(1),
                seconds: arguments.seconds,
                rounds: arguments.rounds.max(1),
                json: arguments.json,
            });
        }
        Command::ScaleDrive(arguments) => {
            return scale::drive(&scale::drive::Drive {
                client: arguments.client,
                server: arguments.server,
                address: arguments.address,
                core: arguments.core,
                connections: arguments.connections,
                rate: arguments.rate,
                seconds: arguments.seconds,
                rounds: arguments.rounds,
            });
        }
        Command::Sim(arguments) => {
            let seeds = arguments.seed.map_or(arguments.seeds, |seed| seed..=seed);
            if arguments.messages {
                return Ok(match arguments.message_bug {
                    None => sim::messages(seeds, arguments.failures),
                    Some(bug) => sim::find(seeds, bug),
                });
            }
            return sim::sim(&sim::Runs {
                seeds,
                settings: ::sim::Settings {
                    planted: arguments.planted,
                    trace: arguments.seed.is_some(),
                    ..::sim::Settings::default()
                },
                failures_max: arguments.failures,
                require_coverage: arguments.require_coverage,
                hashes: arguments.hashes,
            });
        }
        Command::Loss(arguments) => return loss::run(&loss_options(arguments)?),
        Command::LossEnd { end, address, bytes } => loss::ends::play(end, address, bytes)?,
        Command::Bench(arguments) => crate::bench::run(arguments)?,
        Command::Doctor { json } => doctor::doctor(json),
        Command::CheckConfig { file } => engine::check(&file)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn run_settings(arguments: RunArguments) -> run::Run {
    let mut engine_arguments: Vec<OsString> = Vec::new();
    if let Some(core) = arguments.core {
        engine_arguments.extend(["--core".into(), core.to_string().into()]);
    }
    if let Some(poll) = arguments.poll {
        let word = match poll {
            PollWord::Busy => "busy",
            PollWord::Adaptive => "adaptive",
        };
        engine_arguments.extend(["--poll".into(), word.into()]);
    }
    run::Run {
        socket: arguments.socket,
        ports: arguments.port,
        engine_arguments,
        explain: arguments.explain.map(|file| run::ExplainTarget { json: arguments.json, file }),
        command: arguments.command,
    }
}

fn loss_options(arguments: LossArguments) -> Result<loss::LossOptions> {
    Ok(loss::LossOptions {
        seconds: arguments.seconds.max(1),
        rounds: arguments.windows,
        jobs: arguments.jobs,
        delay_ms: arguments.delay,
        losses_ppm: loss::losses(&arguments.losses)?,
        kinds: loss::kinds(&arguments.congestion)?,
        whole_bytes: arguments.bytes,
        json: arguments.json,
        executable: loss::own_executable()?,
    })
}

fn demo_options(arguments: DemoArguments) -> Result<demo::DemoOptions> {
    let mut options = demo::DemoOptions {
        rounds: arguments.rounds.max(1),
        seconds: arguments.seconds.max(1),
        limit: Duration::from_secs(arguments.limit),
        output: arguments.output,
        ..demo::DemoOptions::default()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn run_of(words: &str) -> Result<(Option<PathBuf>, Vec<OsString>), clap::Error> {
        let arguments = Arguments::try_parse_from(words.split_whitespace())?;
        let Command::Run(run) = arguments.command else { panic!("another command") };
        Ok((run.socket, run.command))
    }

    #[test]
    fn a_program_is_run_with_its_own_options_with_or_without_two_dashes() {
        for words in [
            "outboard run --socket /s redis-server --port 1",
            "outboard run --socket /s -- redis-server --port 1",
        ] {
            let (socket, command) = run_of(words).expect("parses");
            assert_eq!(socket, Some("/s".into()));
            assert_eq!(command, ["redis-server", "--port", "1"]);
        }
        assert!(run_of("outboard run --sokcet /s redis-server").is_err());
        assert!(run_of("outboard run").is_err());
    }
}
