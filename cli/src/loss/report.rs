//! What `outboard loss` found: Markdown for docs/loss.md, or JSON.

use std::fmt::Write as _;

use lab::figures::median;
use serde::Serialize;

use super::whole::Whole;
use super::{Arrangement, Cell, GoodputWindow, LossOptions, RATE, percent};

/// The least that Outboard's goodput may be of the kernel's.
const LEAST: f64 = 0.95;

/// Windows of one cell in one arrangement.
#[derive(Clone, Debug, Serialize)]
struct Column {
    /// Who is on Outboard.
    arrangement: &'static str,
    /// Median of the goodput, bits per second.
    median: f64,
    /// Goodput of each window in their order.
    goodputs: Vec<f64>,
    /// Segments sent again in each window, where the host tells.
    retransmits: Vec<Option<u64>>,
    /// The median divided by the kernel's.
    ratio: f64,
}

/// All windows of one cell.
#[derive(Clone, Debug, Serialize)]
struct Row {
    congestion: &'static str,
    loss_percent: f64,
    columns: Vec<Column>,
}

/// Everything found.
#[derive(Clone, Debug, Serialize)]
pub struct LossReport {
    seconds: u32,
    rounds: usize,
    jobs: usize,
    delay_ms: u32,
    rows: Vec<Row>,
    transfers: Vec<Whole>,
}

impl LossReport {
    /// A report of windows, in any order, and transfers.
    pub fn new(options: &LossOptions, windows: &[GoodputWindow], transfers: Vec<Whole>) -> Self {
        let mut cells: Vec<Cell> = windows.iter().map(|window| window.cell).collect();
        cells.sort_by_key(|cell| {
            let place = options.kinds.iter().position(|kind| *kind == cell.kind);
            (place, cell.loss_ppm)
        });
        cells.dedup();
        let rows = cells.iter().map(|cell| Row::new(cell, windows)).collect();
        let LossOptions { seconds, rounds, jobs, delay_ms, .. } = *options;
        Self { seconds, rounds, jobs, delay_ms, rows, transfers }
    }

    /// Whether nowhere Outboard is below what is asked for.
    pub fn is_good(&self) -> bool {
        self.rows.iter().flat_map(|row| &row.columns).all(|column| column.ratio >= LEAST)
    }

    /// As one JSON object.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// As the figures of docs/loss.md.
    pub fn markdown(&self) -> String {
        let mut text = format!(
            "One iperf3 stream over a path of {} Mbit/s that delays data by {} ms and loses some of \
             it, through a relay of our own between two TAP devices (`crates/lab/src/relay.rs`). \
             Outboard has an `xdp` port on the kernel's own interface and \
             address, under the sender or under the receiver; the other end is the kernel's. By \
             turns: {} windows of {} s each, those of a round with the same segments lost by their \
             count; {} cells at a time. Goodput in Mbit/s: median, smallest and largest window.\n\n\
             | congestion control | loss | kernel | Outboard sends | ratio | Outboard receives | \
             ratio |\n|---|---|---|---|---|---|---|\n",
            RATE / 1_000_000,
            self.delay_ms,
            self.rounds,
            self.seconds,
            self.jobs,
        );
        for row in &self.rows {
            let _ = write!(text, "| {} | {}% |", row.congestion, row.loss_percent);
            for column in &row.columns {
                let _ = write!(text, " {} |", column.text());
                if column.arrangement != Arrangement::Kernel.name() {
                    let _ = write!(text, " {:.2} |", column.ratio);
                }
            }
            text.push('\n');
        }
        let below = self.rows.iter().flat_map(|row| &row.columns).filter(|c| c.ratio < LEAST);
        let _ = write!(text, "\n{} ratios are below {LEAST}.\n", below.count());
        if let Some(first) = self.transfers.first() {
            let _ = write!(
                text,
                "\n### Whole transfers\n\n\
                 {} bytes at each loss over a path without delay; the receiver compares each byte \
                 with what was sent (`cli/src/loss/ends.rs`). The counters are the engine's.\n\n\
                 | loss | Outboard | arrived | seconds | segments lost | counters |\n\
                 |---|---|---|---|---|---|\n",
                first.bytes
            );
        }
        for whole in &self.transfers {
            let _ = writeln!(
                text,
                "| {}% | {} | whole | {:.1} | {} | {} |",
                percent(whole.loss_ppm),
                if whole.counters.is_empty() { "nobody" } else { whole.arrangement },
                whole.seconds,
                whole.lost,
                whole.shown()
            );
        }
        text.trim_end().to_owned()
    }
}

impl Row {
    fn new(cell: &Cell, windows: &[GoodputWindow]) -> Self {
        let of = |arrangement: Arrangement| {
            let mut some: Vec<&GoodputWindow> = windows
                .iter()
                .filter(|window| window.cell == *cell && window.arrangement == arrangement)
                .collect();
            some.sort_by_key(|window| window.round);
            some
        };
        let goodputs = |arrangement| -> Vec<f64> {
            of(arrangement).into_iter().map(|window| window.goodput).collect()
        };
        let kernel = median(&goodputs(Arrangement::Kernel)).unwrap_or(f64::NAN);
        let columns = Arrangement::ALL.map(|arrangement| {
            let goodputs = goodputs(arrangement);
            let median = median(&goodputs).unwrap_or(f64::NAN);
            let retransmits = of(arrangement).into_iter().map(|w| w.retransmits).collect();
            let (arrangement, ratio) = (arrangement.name(), median / kernel);
            Column { arrangement, median, goodputs, retransmits, ratio }
        });
        let loss_percent = percent(cell.loss_ppm);
        Self { congestion: cell.kind.name(), loss_percent, columns: columns.into() }
    }
}

impl Column {
    /// Median and extremes in Mbit/s.
    fn text(&self) -> String {
        let least = self.goodputs.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.goodputs.iter().copied().fold(0.0, f64::max);
        format!("{:.2} ({:.2}..{:.2})", self.median / 1e6, least / 1e6, most / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use engine::config::CongestionKind;

    use super::*;

    #[test]
    fn a_shortfall_is_told_by_the_medians() {
        let cell = Cell { kind: CongestionKind::Cubic, loss_ppm: 1_000 };
        let options = LossOptions {
            seconds: 1,
            rounds: 3,
            jobs: 1,
            delay_ms: 20,
            losses_ppm: vec![cell.loss_ppm],
            kinds: vec![cell.kind],
            whole_bytes: 0,
            json: false,
            executable: "outboard".into(),
        };
        let windows = |receiver: f64| {
            let goodputs = [
                (Arrangement::Kernel, [9e6, 30e6, 10e6]),
                (Arrangement::Sender, [1e6, 11e6, 12e6]),
                (Arrangement::Receiver, [receiver; 3]),
            ];
            let window = |(arrangement, goodputs): (_, [f64; 3])| {
                let one = move |(round, goodput)| GoodputWindow {
                    cell,
                    arrangement,
                    round,
                    goodput,
                    retransmits: None,
                };
                goodputs.into_iter().enumerate().map(one)
            };
            goodputs.into_iter().flat_map(window).collect::<Vec<_>>()
        };
        let report = LossReport::new(&options, &windows(9.6e6), Vec::new());
        assert!(report.is_good());
        let row = "| cubic | 0.1% | 10.00 (9.00..30.00) | 11.00 (1.00..12.00) | 1.10 | 9.60 ";
        assert!(report.markdown().contains(row), "{}", report.markdown());
        let json: serde_json::Value = serde_json::from_str(&report.json()).expect("JSON");
        assert_eq!(json["rows"][0]["columns"][1]["goodputs"][2], 12e6);
        let report = LossReport::new(&options, &windows(9.4e6), Vec::new());
        assert!(!report.is_good());
        assert!(report.markdown().contains("1 ratios are below"));
    }
}
