//! The programs that make load, as hidden commands of the executable. They use the C library's
//! sockets with edge-triggered epoll, so that they run on the kernel and, under `outboard run`, on
//! an engine, from the same code.
//!
//! A client warms up, reads the meters, works for its window, reads them again, and prints an
//! [`Outcome`] as one line of JSON.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lab::failure::{Explain, Failure, Result};
use serde::{Deserialize, Serialize};

use super::nic::card::Card;
use super::usage::{Meter, Reading, Sources, Usage};

mod brief;
mod bulk;
mod closed;
pub mod copy;
mod datagrams;
mod exchange;
mod open;
mod server;

pub use datagrams::DatagramAction;
pub use exchange::{ExchangeCarrier, OPENED};
pub use server::Service;

/// Bytes of a request and of its reply.
pub const MESSAGE_BYTES: usize = 64;
/// What a client or a server reads at most in one call, unless its cell says otherwise.
const PIECE_BYTES: usize = 64 << 10;
/// How long a poll may wait before the clock is looked at.
const POLL_LIMIT: Duration = Duration::from_millis(10);
/// Longest time until all connections stand.
const CONNECT_LIMIT: Duration = Duration::from_secs(30);

/// A hidden command of `bench`.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Load {
    /// A server
    Serve {
        /// Where it listens
        address: SocketAddr,
        /// What it does with a connection
        service: Service,
        /// Bytes of one read or write
        #[arg(long, default_value_t = PIECE_BYTES)]
        bytes: usize,
    },
    /// Requests of 64 bytes, so many under way on each connection
    Closed {
        /// The echo server
        address: SocketAddr,
        /// Connections
        #[arg(long)]
        connections: usize,
        /// Requests under way on each
        #[arg(long)]
        outstanding: usize,
        /// Times
        #[command(flatten)]
        window: Window,
    },
    /// Short connections, so many at a time
    Brief {
        /// The server
        address: SocketAddr,
        /// Connections at a time
        #[arg(long)]
        concurrency: usize,
        /// Times
        #[command(flatten)]
        window: Window,
    },
    /// Requests of 64 bytes at times that do not depend on answers
    Open {
        /// The echo server
        address: SocketAddr,
        /// Requests a second
        #[arg(long)]
        rate: u64,
        /// Connections that take turns
        #[arg(long)]
        connections: usize,
        /// Times
        #[command(flatten)]
        window: Window,
    },
    /// Receives or sends datagrams
    Datagrams(datagrams::Datagrams),
    /// The emulated card of `bench nic`
    Card(Card),
    /// Messages between two programs
    Exchange(exchange::ExchangeArguments),
    /// Bulk in one direction
    Bulk {
        /// The server
        address: SocketAddr,
        /// Whether the client sends
        #[arg(long)]
        send: bool,
        /// Bytes of one read or write
        #[arg(long)]
        bytes: usize,
        /// Connections
        #[arg(long)]
        flows: usize,
        /// Times
        #[command(flatten)]
        window: Window,
    },
    /// The receiver of `bench copy`
    CopyServe(copy::Copy),
    /// The sender of `bench copy`
    Copy {
        /// What it sends
        #[command(flatten)]
        copy: copy::Copy,
        /// Times
        #[command(flatten)]
        window: Window,
    },
}

/// When a client measures, and what.
#[derive(Clone, Debug, clap::Args)]
pub struct Window {
    /// Milliseconds of load before the window
    #[arg(long, default_value_t = 200)]
    pub warm_up: u64,
    /// Milliseconds of the window
    #[arg(long, default_value_t = 1000)]
    pub milliseconds: u64,
    /// What to account
    #[command(flatten)]
    pub sources: Sources,
}

/// What a client did in its window.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Requests answered, or connections served.
    pub operations: u64,
    /// Bytes moved in the direction of the load.
    pub bytes: u64,
    /// Operations that failed.
    pub errors: u64,
    /// How long operations took; none where nobody waits for an answer.
    pub latency: Option<Latency>,
    /// What was used meanwhile.
    pub usage: Usage,
}

/// Quantiles in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Latency {
    /// Samples that they rest on.
    pub samples: u64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

/// Plays one program of a measurement.
///
/// # Errors
/// When its connections cannot be made, or fail.
pub fn play(load: &Load) -> Result<()> {
    raise_descriptor_limit();
    let outcome = match load {
        Load::Serve { address, service, bytes } => {
            return server::serve(*address, *service, (*bytes).max(1));
        }
        Load::Card(card) => return card.run(),
        Load::Datagrams(datagrams) => datagrams::run(datagrams)?,
        Load::Exchange(arguments) => return exchange::run(arguments),
        Load::Closed { address, connections, outstanding, window } => {
            closed::run(*address, *connections, *outstanding, window)?
        }
        Load::Brief { address, concurrency, window } => {
            brief::run(*address, (*concurrency).max(1), window)?
        }
        Load::Open { address, rate, connections, window } => {
            let schedule = open::Schedule { rate: *rate, connections: *connections };
            open::run(*address, schedule, window)?
        }
        Load::Bulk { address, send, bytes, flows, window } => {
            let transfer = bulk::Transfer { is_sent: *send, bytes: *bytes, flows: *flows };
            bulk::run(*address, &transfer, window)?
        }
        Load::CopyServe(copy) => return copy.serve(),
        Load::Copy { copy, window } => copy.run(window)?,
    };
    let line =
        serde_json::to_string(&outcome).explain("cannot write the outcome", "report this")?;
    tell!("{line}");
    Ok(())
}

/// The outcome that a client has printed.
///
/// # Errors
/// When it has printed none.
pub fn read(output: &str) -> Result<Outcome> {
    let last = output.lines().rev().find(|line| line.starts_with('{'));
    last.and_then(|line| serde_json::from_str(line).ok()).ok_or_else(|| {
        Failure::new("the client printed no outcome", "run it by hand to see what it prints")
    })
}

/// Many connections need as many descriptors; without the right to them, opening fails and says so.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Where a client is: warming up, in its window, or behind it.
struct Progress {
    meter: Meter,
    window_at: Instant,
    length: Duration,
    begun: Option<Reading>,
}

/// What a look at the clock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    WarmUp,
    Window,
    Over,
}

impl Progress {
    /// Load begins now.
    fn begin(meter: Meter, window: &Window) -> Self {
        Self {
            meter,
            window_at: Instant::now() + Duration::from_millis(window.warm_up),
            length: Duration::from_millis(window.milliseconds),
            begun: None,
        }
    }

    /// The phase at `now`; the meters are read when the window begins.
    fn at(&mut self, now: Instant) -> Result<Phase> {
        match &self.begun {
            None if now < self.window_at => Ok(Phase::WarmUp),
            None => {
                self.begun = Some(self.meter.read()?);
                Ok(Phase::Window)
            }
            Some(begun) if now.saturating_duration_since(begun.at()) < self.length => {
                Ok(Phase::Window)
            }
            Some(_) => Ok(Phase::Over),
        }
    }

    /// What the window used, after [`Phase::Over`].
    fn usage(mut self) -> Result<Usage> {
        let end = self.meter.read()?;
        Ok(self.begun.map_or_else(Usage::default, |begun| end.since(&begun)))
    }
}

/// Durations of operations, to three digits.
struct Latencies(Histogram<u64>);

impl Latencies {
    fn new() -> Self {
        // Three significant digits are within the histogram's range.
        Self(Histogram::new(3).expect("three digits are supported"))
    }

    fn record(&mut self, took: Duration) {
        // One that takes longer than 64 bits of nanoseconds is not to be had.
        let _ = self.0.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    fn quantiles(&self) -> Option<Latency> {
        let at = |quantile: f64| self.0.value_at_quantile(quantile) as f64 / 1e3;
        (!self.0.is_empty()).then(|| Latency {
            samples: self.0.len(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: self.0.max() as f64 / 1e3,
        })
    }
}

/// A socket call that failed for another reason than that there is nothing to do yet.
fn lost(error: &std::io::Error) -> Failure {
    Failure::new(format!("a connection failed: {error}"), "check the server")
}

#[cfg(test)]
mod tests;
