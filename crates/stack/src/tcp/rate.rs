//! How fast data is delivered (draft-cheng-iccrg-delivery-rate-estimation, as Linux's tcp_rate):
//! each acknowledgement tells how much was delivered since what it acknowledges was sent, and in
//! what time.
//!
//! Kept only for connections whose congestion control asks for it. What is remembered of each
//! sending lies on the scoreboard as a [`Snapshot`].

use serde::{Deserialize, Serialize};

use super::scoreboard::{Piece, Sending};
use crate::api::Instant;

/// What was known when something was sent; times as microseconds before its sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// P.delivered, going round.
    delivered: u32,
    /// Time since P.delivered_time.
    delivered_ago_us: u32,
    /// Time since P.first_sent_time.
    first_ago_us: u32,
    /// P.is_app_limited.
    app_limited: bool,
    /// It was taken: the connection estimated its rate then.
    is_taken: bool,
}

/// One estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateSample {
    /// Bytes delivered over the interval.
    pub delivered: u64,
    /// The interval, nanoseconds: the longer of the times of sending and of acknowledging.
    pub interval_ns: u64,
    /// Bytes that had been delivered when it was sent.
    pub prior_delivered: u64,
    /// The program, not the network, was the limit then.
    pub is_app_limited: bool,
}

impl RateSample {
    /// Bytes per second.
    pub fn bytes_per_second(&self) -> u64 {
        let rate = u128::from(self.delivered) * 1_000_000_000 / u128::from(self.interval_ns.max(1));
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

/// State of the estimator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// C.delivered: bytes in all.
    pub delivered: u64,
    /// C.delivered_time.
    pub delivered_at: u64,
    /// Bytes that were acknowledged together with an echo of congestion.
    pub marked: u64,
    /// Bytes that ever counted as lost.
    pub lost: u64,
    /// C.first_sent_time.
    first_sent_at: u64,
    /// C.app_limited: the count of delivered bytes that ends the bubble; 0 when there is none.
    app_limited: u64,
    /// Bytes per second of the last estimate that was not below the path's for want of data.
    pub last: u64,
    last_app_limited: bool,
    /// The peer has dropped what it had selectively acknowledged, which counts once more when it is
    /// acknowledged: no estimate is true until all of it is.
    pub recounts: bool,
    /// What was sent last of that which an acknowledgement says to have arrived.
    newest: Option<(Sending, Snapshot)>,
}

fn micros(ns: u64) -> u32 {
    u32::try_from(ns / 1000).unwrap_or(u32::MAX)
}

impl Rate {
    /// Something is sent; `idle`: nothing was in flight.
    pub fn on_sent(&mut self, now: Instant, idle: bool) -> Snapshot {
        if idle {
            self.first_sent_at = now.0;
            self.delivered_at = now.0;
        }
        Snapshot {
            delivered: self.delivered as u32,
            delivered_ago_us: micros(now.0.saturating_sub(self.delivered_at)),
            first_ago_us: micros(now.0.saturating_sub(self.first_sent_at)),
            app_limited: self.app_limited > 0,
            is_taken: true,
        }
    }

    /// A piece has arrived.
    pub fn note(&mut self, piece: &Piece) {
        if !piece.snapshot.is_taken {
            return;
        }
        let sending = Sending { at: piece.at, end: piece.end };
        if self.newest.is_none_or(|(known, _)| known < sending) {
            self.newest = Some((sending, piece.snapshot));
        }
    }

    /// An acknowledgement says that `bytes` have arrived, with or without an echo of congestion,
    /// after everything was [noted](Self::note). `min_rtt_ns`: shorter intervals are no estimates.
    pub fn on_delivered(
        &mut self,
        now: Instant,
        bytes: u64,
        marked: bool,
        min_rtt_ns: u64,
    ) -> Option<RateSample> {
        let newest = self.newest.take();
        if bytes > 0 {
            self.delivered += bytes;
            self.delivered_at = now.0;
            self.marked += if marked { bytes } else { 0 };
        }
        if self.delivered > self.app_limited {
            self.app_limited = 0;
        }
        let (sending, snapshot) = newest?;
        self.first_sent_at = sending.at;
        let sent_ns = u64::from(snapshot.first_ago_us) * 1000;
        let acked_ns =
            now.0.saturating_sub(sending.at) + u64::from(snapshot.delivered_ago_us) * 1000;
        let interval_ns = sent_ns.max(acked_ns);
        if self.recounts || interval_ns == 0 || interval_ns + 1000 < min_rtt_ns {
            return None;
        }
        let delivered = u64::from((self.delivered as u32).wrapping_sub(snapshot.delivered));
        let sample = RateSample {
            delivered,
            interval_ns,
            prior_delivered: self.delivered - delivered.min(self.delivered),
            is_app_limited: snapshot.app_limited,
        };
        let rate = sample.bytes_per_second();
        if !sample.is_app_limited || rate >= self.last {
            self.last = rate;
            self.last_app_limited = sample.is_app_limited;
        }
        Some(sample)
    }

    /// What is sent from now on tells less than the path can carry, until so many bytes more than
    /// those in flight are delivered.
    pub fn limit_by_application(&mut self, in_flight: u64) {
        self.app_limited = (self.delivered + in_flight).max(1);
    }

    /// Whether the application limited the last estimate.
    pub fn last_is_app_limited(&self) -> bool {
        self.last_app_limited
    }

    /// Whether what is sent now is limited by the application.
    pub fn is_app_limited(&self) -> bool {
        self.app_limited > 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::cuts::Cuts;
    use super::super::scoreboard::Fate;
    use super::*;

    const MS: u64 = 1_000_000;

    fn piece(start: u64, end: u64, at: u64, snapshot: Snapshot) -> Piece {
        let (fate, again, lost, cuts) = (Fate::Sent, false, false, Cuts::UNKNOWN);
        Piece { start, end, at, fate, again, lost, cuts, snapshot }
    }

    #[test]
    fn the_rate_is_what_arrived_over_the_longer_of_both_times() {
        let mut rate = Rate::default();
        let first = rate.on_sent(Instant(10 * MS), true);
        let second = rate.on_sent(Instant(14 * MS), false);
        rate.note(&piece(0, 1000, 10 * MS, first));
        let sample = rate.on_delivered(Instant(30 * MS), 1000, false, 0).unwrap();
        assert_eq!((sample.delivered, sample.interval_ns), (1000, 20 * MS));
        rate.note(&piece(1000, 2000, 14 * MS, second));
        let sample = rate.on_delivered(Instant(31 * MS), 1000, true, 0).unwrap();
        // Since nothing had been delivered: from 10 to 31 ms.
        assert_eq!((sample.delivered, sample.interval_ns), (2000, 21 * MS));
        assert_eq!((rate.delivered, rate.marked), (2000, 1000));
        assert_eq!(rate.last, 2000 * 1000 / 21);
    }

    #[test]
    fn a_bubble_marks_what_is_sent_until_it_is_gone() {
        let mut rate = Rate::default();
        rate.on_sent(Instant(MS), true);
        rate.limit_by_application(1000);
        assert!(rate.on_sent(Instant(2 * MS), false).app_limited);
        rate.on_delivered(Instant(3 * MS), 1000, false, 0);
        assert!(rate.is_app_limited());
        rate.on_delivered(Instant(3 * MS), 1, false, 0);
        assert!(!rate.is_app_limited());
    }

    #[test]
    fn what_is_counted_once_more_is_no_estimate() {
        let mut rate = Rate::default();
        let snapshot = rate.on_sent(Instant(MS), true);
        rate.note(&piece(0, 1000, MS, snapshot));
        rate.recounts = true;
        assert_eq!(rate.on_delivered(Instant(20 * MS), 1000, false, 0), None);
        assert_eq!(rate.delivered, 1000);
    }

    #[test]
    fn an_interval_shorter_than_any_round_trip_is_none() {
        let mut rate = Rate::default();
        let snapshot = rate.on_sent(Instant(MS), true);
        rate.note(&piece(0, 1000, MS, snapshot));
        assert_eq!(rate.on_delivered(Instant(2 * MS), 1000, false, 10 * MS), None);
    }
}
