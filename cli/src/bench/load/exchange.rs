//! The exchanges of `bench emp` between two Rust programs: over the native messages of an engine, or
//! over a TCP connection of the kernel. The MPI program of `bench emp` does the same.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lab::failure::{Failure, Result};
use rustix::time::{ClockId, clock_gettime};

use crate::bench::emp::pattern::{BATCH, ExchangeResult, Pattern};

mod carriers;
mod messages;
mod protocol;
mod tcp;

/// Repetitions before any time is known.
const FIRST_COUNT: u64 = 8;
/// Longest wait for the other side.
const PATIENCE: Duration = Duration::from_secs(60);
/// What side B prints once side A may start.
pub const OPENED: &str = "open";

/// Whose messages are exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ExchangeCarrier {
    /// The engine's, from and to the program's own memory.
    Copied,
    /// The engine's, from and to registered memory.
    Registered,
    /// A TCP connection's, each message a known number of bytes.
    Tcp,
    /// Those of the same protocol in the program, over UDP.
    Datagrams,
    /// The same over raw frames of an engine.
    Frames,
}

impl ExchangeCarrier {
    /// Its name on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Copied => "copied",
            Self::Registered => "registered",
            Self::Tcp => "tcp",
            Self::Datagrams => "datagrams",
            Self::Frames => "frames",
        }
    }
}

/// Arguments of `bench load exchange`.
#[derive(Clone, Debug, clap::Args)]
pub struct ExchangeArguments {
    /// Whose messages
    carrier: ExchangeCarrier,
    /// The address of side B
    address: SocketAddr,
    /// Whether this is side B, which waits for the other
    #[arg(long)]
    serve: bool,
    /// Own address
    #[arg(long)]
    local: SocketAddr,
    /// The engine's socket
    #[arg(long)]
    engine: Option<PathBuf>,
    /// The engine's port, for raw frames
    #[arg(long)]
    port: Option<String>,
    /// Microseconds of each window
    #[arg(long, default_value_t = 100_000)]
    window_us: u64,
    /// The patterns, one after the other
    #[arg(required = true)]
    patterns: Vec<Pattern>,
}

/// How messages come and go. Messages arrive in the order in which they were sent.
trait Transport {
    /// Makes room for `slots` messages of `bytes` each way.
    fn prepare(&mut self, slots: usize, bytes: usize) -> Result<()>;
    /// Puts bytes at the beginning of the memory that sends are from.
    fn fill(&mut self, bytes: &[u8]);
    /// Begins to receive a message of `bytes` into a slot.
    fn receive(&mut self, slot: usize, bytes: usize) -> Result<()>;
    /// Begins to send `bytes` of what was filled.
    fn send(&mut self, bytes: usize) -> Result<()>;
    /// Waits for the end of all that was begun.
    fn finish(&mut self) -> Result<()>;
    /// The first `bytes` of a slot.
    fn received(&self, slot: usize, bytes: usize) -> Vec<u8>;
    /// Answers the other side for a moment, where that takes this program.
    fn linger(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Plays one side.
///
/// # Errors
/// When the sides do not reach each other, or a message differs from what was sent.
pub fn run(arguments: &ExchangeArguments) -> Result<()> {
    let mut transport: Box<dyn Transport> = match (arguments.carrier, &arguments.engine) {
        (ExchangeCarrier::Tcp, _) => Box::new(tcp::Tcp::open(arguments)?),
        (ExchangeCarrier::Datagrams | ExchangeCarrier::Frames, _) => {
            Box::new(protocol::Protocol::open(arguments)?)
        }
        (carrier, Some(engine)) => Box::new(messages::Messages::open(arguments, engine, carrier)?),
        (_, None) => {
            return Err(Failure::new("no engine is named", "give its socket with --engine"));
        }
    };
    let window = Duration::from_micros(arguments.window_us);
    for &pattern in &arguments.patterns {
        transport.prepare(pattern.depth(), pattern.bytes().max(size_of::<u64>()))?;
        let mut side = Side { transport: transport.as_mut(), pattern, is_first: !arguments.serve };
        if arguments.serve {
            side.follow()?;
        } else {
            tell!("{}", side.lead(window)?.line(pattern));
        }
    }
    transport.linger()
}

/// One side in one pattern.
struct Side<'a> {
    transport: &'a mut dyn Transport,
    pattern: Pattern,
    /// Whether it is rank 0.
    is_first: bool,
}

impl Side<'_> {
    /// Warms up, finds how many repetitions fill the window, and measures them.
    fn lead(&mut self, window: Duration) -> Result<ExchangeResult> {
        let mut measured = self.together(FIRST_COUNT)?;
        for limit in [window / 4, window] {
            let count = limit.as_secs_f64() / measured.seconds * measured.count as f64;
            measured = self.together((count as u64).max(FIRST_COUNT))?;
        }
        self.announce(0)?;
        Ok(measured)
    }

    fn together(&mut self, count: u64) -> Result<ExchangeResult> {
        self.announce(count)?;
        self.phase(count)
    }

    /// Tells the other side how many repetitions follow; none ends the pattern.
    fn announce(&mut self, count: u64) -> Result<()> {
        let bytes = count.to_le_bytes();
        self.transport.fill(&bytes);
        self.transport.send(bytes.len())?;
        self.transport.finish()
    }

    fn follow(&mut self) -> Result<()> {
        loop {
            self.transport.receive(0, size_of::<u64>())?;
            self.transport.finish()?;
            let bytes = self.transport.received(0, size_of::<u64>());
            let count = bytes.try_into().map(u64::from_le_bytes).unwrap_or_default();
            if count == 0 {
                return Ok(());
            }
            self.phase(count)?;
        }
    }

    fn phase(&mut self, count: u64) -> Result<ExchangeResult> {
        let sent = content(count, self.pattern.bytes());
        self.transport.fill(&sent);
        let mut measured = ExchangeResult { count, ..ExchangeResult::default() };
        let (begin, cpu) = (Instant::now(), seconds(ClockId::ProcessCPUTime));
        for _ in 0..count {
            match self.pattern {
                Pattern::PingPong { bytes } => self.ping_pong(bytes)?,
                Pattern::Stream { bytes, depth } => self.stream(bytes, depth)?,
                Pattern::Overlap { bytes, work_us } => {
                    self.overlap(bytes, f64::from(work_us) * 1e-6, &mut measured)?;
                }
            }
        }
        measured.seconds = begin.elapsed().as_secs_f64();
        measured.cpu = seconds(ClockId::ProcessCPUTime) - cpu;
        let receives = !(self.is_first && matches!(self.pattern, Pattern::Stream { .. }));
        for slot in 0..if receives { self.pattern.depth() } else { 0 } {
            if self.transport.received(slot, sent.len()) != sent {
                let cause = format!("{}: a message differs from what was sent", self.pattern);
                return Err(Failure::new(cause, "report this"));
            }
        }
        Ok(measured)
    }

    fn ping_pong(&mut self, bytes: usize) -> Result<()> {
        if self.is_first {
            // The answer's receive stands before the answer can come.
            self.transport.receive(0, bytes)?;
            self.transport.send(bytes)?;
            return self.transport.finish();
        }
        self.transport.receive(0, bytes)?;
        self.transport.finish()?;
        self.transport.send(bytes)?;
        self.transport.finish()
    }

    fn stream(&mut self, bytes: usize, depth: usize) -> Result<()> {
        for slot in 0..depth {
            match self.is_first {
                true => self.transport.send(bytes)?,
                false => self.transport.receive(slot, bytes)?,
            }
        }
        self.transport.finish()?;
        match self.is_first {
            true => self.transport.receive(0, 1)?,
            false => self.transport.send(1)?,
        }
        self.transport.finish()
    }

    fn overlap(&mut self, bytes: usize, work: f64, measured: &mut ExchangeResult) -> Result<()> {
        let begin = Instant::now();
        for slot in 0..BATCH {
            self.transport.receive(slot, bytes)?;
        }
        let posted = Instant::now();
        for _ in 0..BATCH {
            self.transport.send(bytes)?;
        }
        let sent = Instant::now();
        compute(work);
        let computed = Instant::now();
        self.transport.finish()?;
        measured.receive += (posted - begin).as_secs_f64();
        measured.send += (sent - posted).as_secs_f64();
        measured.wait += computed.elapsed().as_secs_f64();
        Ok(())
    }
}

/// A message: the count of its phase, then bytes by place.
fn content(count: u64, bytes: usize) -> Vec<u8> {
    let mut content: Vec<u8> = (0..bytes).map(|place| (place * 7) as u8).collect();
    for (byte, of_count) in content.iter_mut().zip(count.to_le_bytes()) {
        *byte = of_count;
    }
    content
}

/// Uses so many seconds of processor time: an engine on the same core takes none of them.
fn compute(work: f64) {
    if work > 0.0 {
        let end = seconds(ClockId::ThreadCPUTime) + work;
        while seconds(ClockId::ThreadCPUTime) < end {}
    }
}

fn seconds(clock: ClockId) -> f64 {
    let now = clock_gettime(clock);
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}
