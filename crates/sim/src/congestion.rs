//! Congestion control on a path with a narrow place: what each algorithm makes of rate, delay,
//! buffer, loss and company.
//!
//! [`Line`] is the narrow place. The same code is the path between two stacks in virtual time
//! ([`flows`]) and, with wall-clock times, between two kernels (`outboard congestion --kernel`), so
//! that both can be compared. Start at [`Case::all`].

mod flows;
mod line;

pub use flows::{over, run};
pub use line::Line;

use stack::api::CongestionKind;

/// Bits per second of every path.
pub const RATE: u64 = 10_000_000;
/// How long data is sent, nanoseconds.
pub const DURATION_NS: u64 = 20_000_000_000;
/// Between the beginnings of two flows, nanoseconds.
pub const STAGGER_NS: u64 = 100_000_000;
/// Bytes of a full frame, which buffers are counted in.
const FRAME_BYTES: u64 = 1514;

/// A path and who uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Round-trip time without queues, milliseconds.
    pub rtt_ms: u64,
    /// The buffer as percent of what the path holds.
    pub buffer_percent: u64,
    /// Frames lost of a million.
    pub loss_ppm: u32,
    /// Connections at the same time.
    pub flows: usize,
}

/// What came of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseResult {
    /// Bytes that each flow brought across.
    pub bytes: Vec<u64>,
    /// Bytes that each brought across in the second half of the time.
    pub later: Vec<u64>,
}

impl Case {
    /// Every case, in the order of the tables.
    pub fn all() -> impl Iterator<Item = Self> {
        let losses = [0, 1_000, 10_000];
        [20, 80].into_iter().flat_map(move |rtt_ms| {
            [50, 200].into_iter().flat_map(move |buffer_percent| {
                losses.into_iter().flat_map(move |loss_ppm| {
                    [1, 4].into_iter().map(move |flows| Self {
                        rtt_ms,
                        buffer_percent,
                        loss_ppm,
                        flows,
                    })
                })
            })
        })
    }

    /// Bytes that the path holds.
    pub fn path_bytes(&self) -> u64 {
        RATE / 8 * self.rtt_ms / 1000
    }

    /// Bytes that the buffer holds: a few frames at the least.
    pub fn buffer_bytes(&self) -> u64 {
        (self.path_bytes() * self.buffer_percent / 100).max(4 * FRAME_BYTES)
    }

    /// The narrow place.
    pub fn narrow<T>(&self, marks: bool) -> Line<T> {
        let mut line = Line::new(RATE, self.rtt_ms * 500_000, self.buffer_bytes());
        line.lose(self.loss_ppm, self.rtt_ms << 32 | self.flows as u64);
        if marks {
            line.mark_beyond(self.path_bytes().min(self.buffer_bytes()) / 2);
        }
        line
    }

    /// The way back, which is never full.
    pub fn back<T>(&self) -> Line<T> {
        Line::new(u64::MAX, self.rtt_ms * 500_000, u64::MAX)
    }

    /// As the tables begin their lines.
    pub fn name(&self) -> String {
        let Self { rtt_ms, buffer_percent, loss_ppm, flows } = *self;
        let loss = f64::from(loss_ppm) / 10_000.0;
        format!("{rtt_ms:>3} ms {buffer_percent:>4}% {loss:>5.1}% {flows:>5}")
    }
}

impl CaseResult {
    /// Percent of the rate that arrived as data.
    pub fn goodput_percent(&self) -> f64 {
        let bytes: u64 = self.bytes.iter().sum();
        let most = RATE as f64 / 8.0 * (DURATION_NS as f64 / 1e9);
        bytes as f64 * 100.0 / most
    }

    /// Jain's index of the second half: 1 when all flows got the same.
    pub fn fairness(&self) -> f64 {
        let sum: f64 = self.later.iter().map(|&bytes| bytes as f64).sum();
        let squares: f64 = self.later.iter().map(|&bytes| (bytes as f64).powi(2)).sum();
        if squares == 0.0 { 0.0 } else { sum * sum / (self.later.len() as f64 * squares) }
    }

    /// As the tables show it.
    pub fn text(&self) -> String {
        format!("{:>5.1} {:.2}", self.goodput_percent(), self.fairness())
    }
}

/// The whole table: a line for each case, a pair of columns for each algorithm.
pub fn table() -> String {
    let mut text = String::from("rtt    buffer  loss flows");
    for kind in CongestionKind::ALL {
        text += &format!(" | {:>10}", kind.name());
    }
    for case in Case::all() {
        text += &format!("\n{}", case.name());
        for kind in CongestionKind::ALL {
            text += &format!(" | {}", run(&case, kind).text());
        }
    }
    text + "\n"
}
