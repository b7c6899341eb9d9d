//! `outboard loss`: transfers over a path that loses segments, through the kernel and through
//! Outboard by turns.
//!
//! A cell is a congestion control and a loss. Its windows are alike but for who is on Outboard:
//! nobody, the sender or the receiver. Each has a path of its own ([`lab::relay`]), which loses
//! the same segments by their count in all windows of a round. [`whole`] moves a given number of
//! bytes and compares them.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use engine::config::CongestionKind;
use lab::failure::{Explain, Failure, Result};
use lab::{Lab, Side, Task, parse};
use sim::congestion::Line;

pub mod ends;
mod report;
mod stage;
pub mod whole;

pub use report::LossReport;
pub use stage::Stage;

/// Bits per second that the path takes, so that BBR has something to find.
const RATE: u64 = 100_000_000;
/// Beyond a window's own time, for connections to be made and results to be told.
const MARGIN: Duration = Duration::from_secs(60);
/// Times that a window that failed is repeated.
const REPEATS: usize = 2;
/// First port of the receivers.
const PORT: u16 = 5201;

/// Who is on Outboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrangement {
    /// Nobody.
    Kernel,
    /// The sender.
    Sender,
    /// The receiver.
    Receiver,
}

impl Arrangement {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Kernel, Self::Sender, Self::Receiver];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Sender => "sender",
            Self::Receiver => "receiver",
        }
    }

    /// The host that has an engine. Host A sends.
    pub fn accelerated(self) -> Option<Side> {
        match self {
            Self::Kernel => None,
            Self::Sender => Some(Side::A),
            Self::Receiver => Some(Side::B),
        }
    }
}

/// What is measured at the same time: a congestion control on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Congestion control of the senders.
    pub kind: CongestionKind,
    /// Segments lost of a million.
    pub loss_ppm: u32,
}

/// One window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GoodputWindow {
    /// What.
    pub cell: Cell,
    /// Who is on Outboard.
    pub arrangement: Arrangement,
    /// Which round, from 0.
    pub round: usize,
    /// Bits per second that arrived.
    pub goodput: f64,
    /// Segments sent again.
    pub retransmits: Option<u64>,
}

/// What to do.
#[derive(Clone, Debug)]
pub struct LossOptions {
    /// Length of a window, seconds.
    pub seconds: u32,
    /// Windows of each kind.
    pub rounds: usize,
    /// Cells at a time.
    pub jobs: usize,
    /// What the path delays data, milliseconds; acknowledgements are not delayed.
    pub delay_ms: u32,
    /// Segments lost of a million, each a column of cells.
    pub losses_ppm: Vec<u32>,
    /// Congestion controls.
    pub kinds: Vec<CongestionKind>,
    /// Bytes of a whole transfer at each loss; 0 for none.
    pub whole_bytes: u64,
    /// A report as JSON instead of Markdown.
    pub json: bool,
    /// The executable that engines and ends are.
    pub executable: PathBuf,
}

/// Measures, and prints the report; failure when a cell is below what is asked for, or a transfer
/// did not arrive whole.
///
/// # Errors
/// Without root or iperf3, or when a window fails again and again.
pub fn run(options: &LossOptions) -> Result<ExitCode> {
    lab::require_programs(&["iperf3"])?;
    let lab = lab()?;
    let windows = windows(&lab, options)?;
    let transfers = match options.whole_bytes {
        0 => Vec::new(),
        bytes => whole::all(&lab, options, bytes)?,
    };
    drop(lab);
    let report = LossReport::new(options, &windows, transfers);
    tell!("{}", if options.json { report.json() } else { report.markdown() });
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Hosts whose kernels remember nothing from one window to the next.
///
/// # Errors
/// Without root.
pub fn lab() -> Result<Lab> {
    let lab = Lab::new()?;
    for side in Side::BOTH {
        for setting in ["net.ipv4.tcp_no_metrics_save=1", "net.ipv6.conf.default.disable_ipv6=1"] {
            lab.inside(side, &["sysctl", "-qw", setting])?;
        }
    }
    Ok(lab)
}

/// The ways there and back of a round's windows.
fn lines(cell: &Cell, delay_ms: u32, round: usize) -> [Line<lab::relay::Frame>; 2] {
    let delay_ms = u64::from(delay_ms);
    // As much room before the narrow place as the path holds.
    let mut there = Line::new(RATE, delay_ms * 1_000_000, RATE / 8000 * delay_ms.max(1));
    there.lose(cell.loss_ppm, round as u64 + 1);
    [there, Line::new(u64::MAX, 0, u64::MAX)]
}

/// All windows of all cells, each cell by itself.
fn windows(lab: &Lab, options: &LossOptions) -> Result<Vec<GoodputWindow>> {
    let cells: Vec<Cell> = options
        .kinds
        .iter()
        .flat_map(|&kind| options.losses_ppm.iter().map(move |&loss_ppm| Cell { kind, loss_ppm }))
        .collect();
    let next = AtomicUsize::new(0);
    let done: Mutex<Result<Vec<GoodputWindow>>> = Mutex::new(Ok(Vec::new()));
    let told = |outcome: Result<GoodputWindow>| -> bool {
        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
        match (outcome, &mut *done) {
            (Ok(window), Ok(all)) => {
                tell(&window);
                all.push(window);
            }
            (Err(failure), whole) => *whole = Err(failure),
            (Ok(_), Err(_)) => {}
        }
        done.is_ok()
    };
    std::thread::scope(|scope| {
        for lane in 0..options.jobs.clamp(1, 100) {
            let (next, cells, told) = (&next, &cells, &told);
            scope.spawn(move || {
                while let Some(cell) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
                    for round in 0..options.rounds {
                        // Another order in each round and beside each other cell, so that neither
                        // a drift nor what runs at the same time favours anybody.
                        let mut order = Arrangement::ALL;
                        order.rotate_left((lane + round) % Arrangement::ALL.len());
                        for arrangement in order {
                            let run = Run { lane, cell, arrangement, round };
                            let outcome = again(|| window(lab, options, run));
                            if !told(outcome) {
                                return;
                            }
                        }
                    }
                }
            });
        }
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// A window that failed is told and repeated, since a machine may be busy with other things.
fn again(mut measure: impl FnMut() -> Result<GoodputWindow>) -> Result<GoodputWindow> {
    let mut left = REPEATS;
    loop {
        match measure() {
            Err(failure) if left > 0 => {
                left -= 1;
                say(&format!("repeated: {failure}"));
            }
            outcome => return outcome,
        }
    }
}

/// One of the windows to measure.
#[derive(Clone, Copy)]
struct Run<'a> {
    /// Which of those that are measured at the same time.
    lane: usize,
    cell: &'a Cell,
    arrangement: Arrangement,
    round: usize,
}

fn window(lab: &Lab, options: &LossOptions, run: Run<'_>) -> Result<GoodputWindow> {
    let Run { lane, cell, arrangement, round } = run;
    let stage =
        Stage::new(lab, &options.executable, arrangement, lines(cell, options.delay_ms, round))?;
    let (address, port) = (stage.address(Side::B), PORT + lane as u16);
    let seconds = options.seconds;
    let server = format!("iperf3 --server --one-off --bind {address} --port {port}");
    let server = stage.serve(Task::words(&server), port)?;
    let client = format!(
        "iperf3 --client {address} --port {port} --time {seconds} --congestion {} --json",
        cell.kind.name()
    );
    let client = stage.start(Side::A, Task::words(&client))?;
    let finished = client.wait(Duration::from_secs(seconds.into()) + MARGIN)?;
    let result = parse::iperf3(&finished.output)?;
    drop(server);
    let (goodput, retransmits) = (result.bits_per_second, result.retransmits);
    Ok(GoodputWindow { cell: *cell, arrangement, round, goodput, retransmits })
}

fn tell(window: &GoodputWindow) {
    let GoodputWindow { cell, arrangement, round, goodput, retransmits } = window;
    let again = retransmits.map_or_else(String::new, |count| format!("  {count} sent again"));
    say(&format!(
        "round {}  {:<6} {:>4}% lost  {:<9} {:>8.2} Mbit/s{again}",
        round + 1,
        cell.kind.name(),
        percent(cell.loss_ppm),
        arrangement.name(),
        goodput / 1e6
    ));
}

/// A line of progress.
fn say(line: &str) {
    // Where nobody reads it, the report tells.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Millionths as percent.
fn percent(ppm: u32) -> f64 {
    f64::from(ppm) / 10_000.0
}

/// Losses written as percent, e.g. 0.1.
///
/// # Errors
/// When one is no share of a whole.
pub fn losses(words: &[f64]) -> Result<Vec<u32>> {
    let ppm = |&percent: &f64| {
        let is_share = (0.0..=100.0).contains(&percent);
        is_share.then(|| (percent * 10_000.0).round() as u32).ok_or_else(|| {
            Failure::new(format!("{percent} is not a percentage"), "write e.g. --losses 0.1,1,5")
        })
    };
    words.iter().map(ppm).collect()
}

/// Congestion controls by name.
///
/// # Errors
/// When there is no such one.
pub fn kinds(words: &[String]) -> Result<Vec<CongestionKind>> {
    let named = |word: &String| {
        CongestionKind::ALL.into_iter().find(|kind| kind.name() == word).ok_or_else(|| {
            let known: Vec<&str> = CongestionKind::ALL.iter().map(|kind| kind.name()).collect();
            let advice = format!("choose from {}", known.join(", "));
            Failure::new(format!("there is no congestion control {word:?}"), advice)
        })
    };
    words.iter().map(named).collect()
}

/// This process's executable.
///
/// # Errors
/// Without /proc.
pub fn own_executable() -> Result<PathBuf> {
    std::env::current_exe().explain("cannot find this executable", "mount /proc")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_read_as_percentages() {
        assert_eq!(losses(&[0.1, 1.0, 5.0]).expect("reads"), [1_000, 10_000, 50_000]);
        assert!(losses(&[101.0]).is_err());
        assert!(losses(&[f64::NAN]).is_err());
    }

    #[test]
    fn windows_of_a_round_lose_the_same_segments() {
        let cell = Cell { kind: CongestionKind::Cubic, loss_ppm: 50_000 };
        let lost = |round| {
            let [mut there, _] = lines(&cell, 20, round);
            let arrive = (0..1000u64).map(|count| {
                there.push(count * 1_000_000, 1514, (Vec::new(), None), |_| ());
                there.lost
            });
            arrive.collect::<Vec<_>>()
        };
        assert_eq!(lost(0), lost(0));
        assert_ne!(lost(0), lost(1));
        assert!((30..70).contains(lost(0).last().expect("many")));
    }
}
