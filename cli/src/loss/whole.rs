//! A given number of bytes over a path that loses segments and delays nothing, compared at the
//! other end.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use lab::failure::{Failure, Result};
use lab::{Lab, Side, Task};
use serde::Serialize;
use sim::congestion::Line;

use super::ends::End;
use super::{Arrangement, LossOptions, Stage, percent, say};

/// Longest time that a transfer may take.
const LIMIT: Duration = Duration::from_secs(1800);
/// Port of the receivers.
const PORT: u16 = 5101;
/// Counters that tell how a loss was dealt with.
const SHOWN: [&str; 7] = [
    "tcp_retransmits",
    "tcp_lost_retransmits",
    "tcp_fast_recoveries",
    "tcp_tail_probes",
    "tcp_timeouts",
    "tcp_spurious_timeouts",
    "tcp_undone",
];

/// A transfer that arrived whole.
#[derive(Clone, Debug, Serialize)]
pub struct Whole {
    /// Segments lost of a million.
    pub loss_ppm: u32,
    /// Who was on Outboard.
    pub arrangement: &'static str,
    /// Bytes sent, received and compared.
    pub bytes: u64,
    /// How long it took.
    pub seconds: f64,
    /// Segments that the path lost.
    pub lost: u64,
    /// The engine's counters by name; none without an engine.
    pub counters: BTreeMap<String, u64>,
}

impl Whole {
    /// The counters that the report shows, in words.
    pub fn shown(&self) -> String {
        let words = SHOWN.iter().filter_map(|name| {
            let count = self.counters.get(*name)?;
            Some(format!("{} {count}", name.trim_start_matches("tcp_").replace('_', " ")))
        });
        words.collect::<Vec<_>>().join(", ")
    }
}

/// A transfer in each arrangement at each loss, those of a loss at the same time.
pub(super) fn all(lab: &Lab, options: &LossOptions, bytes: u64) -> Result<Vec<Whole>> {
    let mut all = Vec::new();
    for &loss_ppm in &options.losses_ppm {
        let done = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for (number, arrangement) in Arrangement::ALL.into_iter().enumerate() {
                let (done, executable) = (&done, &options.executable);
                scope.spawn(move || {
                    let transfer = WholeTransfer { number, arrangement, loss_ppm, bytes };
                    let whole = transfer.run(lab, executable);
                    if let Ok(Whole { seconds, lost, .. }) = &whole {
                        say(&format!(
                            "{bytes} bytes  {:>4}% lost  {:<9} whole after {seconds:.1} s, {lost} \
                             segments lost",
                            percent(loss_ppm),
                            arrangement.name(),
                        ));
                    }
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((number, whole));
                });
            }
        });
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_by_key(|(number, _)| *number);
        for (_, whole) in done {
            all.push(whole?);
        }
    }
    Ok(all)
}

/// A transfer over a path that loses segments.
#[derive(Clone, Copy, Debug)]
pub struct WholeTransfer {
    /// Which of those that run at the same time.
    pub number: usize,
    /// Who is on Outboard.
    pub arrangement: Arrangement,
    /// Segments lost of a million.
    pub loss_ppm: u32,
    /// Bytes sent.
    pub bytes: u64,
}

impl WholeTransfer {
    /// Carries it out with Outboard's `executable`.
    ///
    /// # Errors
    /// When it ends early, takes too long, or other bytes arrive than were sent.
    pub fn run(self, lab: &Lab, executable: &Path) -> Result<Whole> {
        let Self { number, arrangement, loss_ppm, bytes } = self;
        let mut there = Line::new(u64::MAX, 0, u64::MAX);
        there.lose(loss_ppm, 1);
        let lines = [there, Line::new(u64::MAX, 0, u64::MAX)];
        let stage = Stage::new(lab, executable, arrangement, lines)?;
        let port = PORT + number as u16;
        let address = format!("{}:{port}", stage.address(Side::B));
        let end = |end: End| {
            let words = ["loss-end", end.word(), &address, &bytes.to_string()];
            Task::new(executable).args(words)
        };
        let begin = Instant::now();
        let receiver = stage.serve(end(End::Receive), port)?;
        let sender = stage.start(Side::A, end(End::Send))?;
        sender.wait(LIMIT)?.success()?;
        let received = receiver.wait(LIMIT)?.success()?;
        let seconds = begin.elapsed().as_secs_f64();
        if !received.output.contains("each as it was sent") {
            return Err(Failure::new("the receiver has not compared anything", "report this"));
        }
        let counters = stage.stats()?.map(|stats| stats.counters).unwrap_or_default();
        let lost = stage.end();
        let counters = counters.into_iter().collect();
        Ok(Whole { loss_ppm, arrangement: arrangement.name(), bytes, seconds, lost, counters })
    }
}
