//! How much may be under way, and when a frame is taken for lost: round trips, the congestion
//! window (Reno) and the collections that are acknowledged as a unit.

use serde::{Deserialize, Serialize};

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
/// Bounds of the timeout: a program can hold the core for 4 ms.
const TIMEOUT_NS_MIN: u64 = 5 * MILLISECOND;
const TIMEOUT_NS_MAX: u64 = 500 * MILLISECOND;
/// The timeout before there is a measurement.
const TIMEOUT_NS_INITIAL: u64 = 20 * MILLISECOND;
/// Frames of the first window.
const WINDOW_INITIAL: usize = 64;
const WINDOW_MIN: usize = 4;
/// Frames of a collection at first and at most.
const COLLECTION_INITIAL: usize = 3;
const COLLECTION_MAX: usize = 24;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Pace {
    srtt: u64,
    rttvar: u64,
    least: u64,
    pub latest: u64,
    /// Doublings of the timeout since the last acknowledgement.
    pub backoff: u32,
    /// Data frames that may be under way.
    pub window: usize,
    threshold: usize,
    /// Acknowledged since the window grew.
    grown: usize,
    /// A loss before this sequence has been answered.
    pub recovery: u64,
    /// The window under way is over when this is acknowledged.
    pub clean_at: u64,
    collection: usize,
    /// Frames sent since the last one that asked for an ACK.
    pub collected: usize,
    /// Multiplies the reordering window: grows with duplicates.
    patience: u64,
}

impl Pace {
    pub fn new() -> Self {
        Self {
            srtt: 0,
            rttvar: 0,
            least: u64::MAX,
            latest: 0,
            backoff: 0,
            window: WINDOW_INITIAL,
            threshold: usize::MAX,
            grown: 0,
            recovery: 0,
            clean_at: 0,
            collection: COLLECTION_INITIAL,
            collected: 0,
            patience: 1,
        }
    }

    /// A round trip of a frame that was sent once.
    pub fn on_sample(&mut self, rtt: u64) {
        self.latest = rtt;
        self.least = self.least.min(rtt);
        if self.srtt == 0 {
            self.srtt = rtt.max(1);
            self.rttvar = rtt / 2;
            return;
        }
        self.rttvar = (3 * self.rttvar + self.srtt.abs_diff(rtt)) / 4;
        self.srtt = ((7 * self.srtt + rtt) / 8).max(1);
    }

    pub fn timeout(&self) -> u64 {
        let once = if self.srtt == 0 {
            TIMEOUT_NS_INITIAL
        } else {
            (self.srtt + 4 * self.rttvar).max(TIMEOUT_NS_MIN)
        };
        (once << self.backoff.min(7)).min(TIMEOUT_NS_MAX)
    }

    /// When the last frame is sent again to draw an ACK; none before there is a measurement.
    pub fn tail_probe(&self) -> Option<u64> {
        let after = 2 * self.srtt + 50 * MICROSECOND;
        (self.srtt != 0 && after < self.timeout()).then_some(after)
    }

    /// The smoothed round trip in nanoseconds; 0 before there is a measurement.
    pub fn srtt(&self) -> u64 {
        self.srtt
    }

    /// The least round trip; 0 before there is a measurement.
    pub fn least(&self) -> u64 {
        if self.least == u64::MAX { 0 } else { self.least }
    }

    /// How much later than a frame sent after it a frame may arrive.
    pub fn reordering(&self) -> u64 {
        (self.least() / 4).max(20 * MICROSECOND) * self.patience
    }

    /// The peer had a frame twice: it was not lost, only late.
    pub fn on_duplicates(&mut self) {
        self.patience = (self.patience + 1).min(8);
    }

    pub fn on_acknowledged(&mut self, frames: usize, limited: bool) {
        self.backoff = 0;
        if !limited {
            return;
        }
        if self.window < self.threshold {
            self.window += frames;
        } else {
            self.grown += frames;
            if self.grown >= self.window {
                self.grown = 0;
                self.window += 1;
            }
        }
        self.window = self.window.min(super::ring::DATA_RECORDS);
    }

    /// A whole window arrived without loss.
    pub fn on_clean_window(&mut self) {
        self.collection = (self.collection * 2).min(COLLECTION_MAX);
        self.patience = (self.patience - 1).max(1);
    }

    pub fn on_loss(&mut self) {
        self.threshold = (self.window / 2).max(WINDOW_MIN);
        self.window = self.threshold;
        self.grown = 0;
        self.collection = (self.collection / 2).max(1);
    }

    pub fn on_timeout(&mut self) {
        if self.backoff == 0 {
            self.on_loss();
        }
        self.window = WINDOW_MIN;
        self.backoff += 1;
    }

    /// Whether the frame that leaves now asks for an ACK.
    pub fn ends_collection(&mut self) -> bool {
        self.collected += 1;
        self.collected >= self.collection.min(self.window / 4).max(1)
    }
}
