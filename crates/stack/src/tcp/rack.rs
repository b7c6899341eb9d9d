//! RACK (RFC 8985 section 6): a segment is lost when one that was sent later has arrived and the
//! time that reordering may take has passed.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::intervals::Range;
use super::rtt::{MILLISECOND, SECOND};
use super::samples::SendTimes;
use super::scoreboard::{Piece, Sending};
use crate::api::Instant;

/// Segments sacked that mean loss rather than reordering, until reordering has been seen.
pub const DUP_THRESH: u8 = 3;
/// Recoveries without a D-SACK after which the reordering window is small again.
const PERSIST: u8 = 16;
/// A minimum of the round-trip time is forgotten after at least this time, and at most twice it
/// (Linux's tcp_min_rtt_wlen).
const MIN_RTT_WINDOW_S: u32 = 300;

/// The smallest round-trip time of the last minutes: that of the current window and of the one
/// before.
//= https://www.rfc-editor.org/rfc/rfc8985#section-6.2
//# The sender SHOULD
//# track a windowed min-filtered estimate of recent RTT measurements
//# that can adapt when migrating to significantly longer paths rather
//# than tracking a simple global minimum of all RTT measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct MinRtt {
    before_us: u32,
    current_us: u32,
    since_s: u32,
}

impl MinRtt {
    fn on_sample(&mut self, now: Instant, rtt_ns: u64) {
        let (second, sample) = ((now.0 / SECOND) as u32, micros(rtt_ns));
        if second.wrapping_sub(self.since_s) >= MIN_RTT_WINDOW_S {
            self.before_us = self.current_us;
            self.current_us = sample;
            self.since_s = second;
        }
        self.current_us = self.current_us.min(sample);
    }

    fn ns(&self) -> u64 {
        u64::from(self.before_us.min(self.current_us)) * 1000
    }
}

fn micros(ns: u64) -> u32 {
    u32::try_from(ns / 1000).unwrap_or(u32::MAX)
}

/// What one acknowledgement newly says to have arrived.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delivery {
    /// Bytes, acknowledged cumulatively or selectively.
    pub bytes: u64,
    /// Bytes among them that are acknowledged selectively.
    pub sacked: u64,
    /// Bytes that have arrived twice (RFC 2883).
    pub dsack: Option<Range>,
    /// What was acknowledged first had been sent again, and an earlier copy had arrived.
    pub original: bool,
    /// The round-trip time that it measures, nanoseconds.
    pub rtt_ns: Option<u64>,
    /// What was sent last of it, and can be told from its retransmission.
    newest: Option<Sending>,
    /// When that of it was sent which lies highest, and can be told from its retransmission.
    pub highest_at: Option<u64>,
    /// Lowest end of what was sent only once.
    pub original_end: Option<u64>,
    /// When what it tells of was sent.
    pub times: SendTimes,
    /// Something sent only once came after what was sent later.
    reordered: bool,
    /// The lowest start of it.
    reordered_from: Option<u64>,
    /// How far it lay behind what had arrived, bytes.
    pub behind: Option<u64>,
    /// How far data is known to have arrived.
    fack: u64,
}

/// State of RACK for one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rack {
    /// RACK.xmit_ts and RACK.end_seq.
    newest: Sending,
    /// RACK.rtt in nanoseconds.
    rtt_ns: u64,
    /// RACK.fack.
    fack: u64,
    min_rtt: MinRtt,
    /// RACK.reo_wnd_mult.
    window_mult: u8,
    /// RACK.reo_wnd_persist.
    window_persist: u8,
    /// RACK.reordering_seen.
    reordering_seen: bool,
    /// RACK.dsack_round, going round.
    dsack_round: Option<NonZeroU32>,
    /// D-SACKs received.
    dsacks: u32,
}

impl Default for Rack {
    fn default() -> Self {
        Self {
            newest: Sending::default(),
            rtt_ns: 0,
            fack: 0,
            min_rtt: MinRtt { before_us: u32::MAX, current_us: u32::MAX, since_s: 0 },
            window_mult: 1,
            window_persist: PERSIST,
            reordering_seen: false,
            dsack_round: None,
            dsacks: 0,
        }
    }
}

impl Rack {
    /// Smallest round-trip time of the last minutes in nanoseconds, once measured.
    pub fn min_rtt_ns(&self) -> Option<u64> {
        (self.min_rtt.current_us != u32::MAX).then(|| self.min_rtt.ns())
    }

    /// A round trip was measured.
    pub fn on_round_trip(&mut self, now: Instant, rtt_ns: u64) {
        self.min_rtt.on_sample(now, rtt_ns);
    }

    /// Notes bytes that have arrived. `echo_is_older` tells whether the timestamp echoed is older
    /// than a time.
    pub fn note(
        &self,
        delivery: &mut Delivery,
        piece: &Piece,
        now: Instant,
        echo_is_older: impl Fn(u64) -> bool,
    ) {
        delivery.bytes += piece.end - piece.start;
        delivery.fack = delivery.fack.max(piece.end);
        if piece.again {
            //= https://www.rfc-editor.org/rfc/rfc8985#section-6.2
            //# To avoid spurious inferences, ignore a segment as invalid if any of
            //# its sequence range has been retransmitted before and if either of two
            //# conditions is true:
            let is_early = now.0.saturating_sub(piece.at) < self.min_rtt_ns().unwrap_or(0);
            if is_early || echo_is_older(piece.at) {
                return;
            }
        } else {
            //= https://www.rfc-editor.org/rfc/rfc8985#section-6.2
            //# If a never-retransmitted segment
            //# that's below RACK.fack is (selectively or cumulatively) acknowledged,
            //# it has been delivered out of order.
            delivery.reordered |= piece.end < self.fack;
            if piece.start < self.fack {
                let from = delivery.reordered_from.map_or(piece.start, |at| at.min(piece.start));
                delivery.reordered_from = Some(from);
            }
            let end = delivery.original_end.map_or(piece.end, |end| end.min(piece.end));
            delivery.original_end = Some(end);
        }
        let sending = Sending { at: piece.at, end: piece.end };
        delivery.newest = delivery.newest.max(Some(sending));
        delivery.highest_at = Some(piece.at);
    }

    /// Takes what an acknowledgement said.
    pub fn on_delivery(&mut self, delivery: &mut Delivery, now: Instant) {
        delivery.behind = delivery.reordered_from.map(|from| self.fack.saturating_sub(from));
        self.fack = self.fack.max(delivery.fack);
        self.reordering_seen |= delivery.reordered;
        if let Some(newest) = delivery.newest {
            self.newest = self.newest.max(newest);
        }
        if let Some(at) = delivery.highest_at {
            // As Linux, and not the time of what was sent last: where something that was repaired
            // and something merely late arrive together, others that are late get the time.
            self.rtt_ns = now.0.saturating_sub(at);
        }
    }

    /// The most recently sent segment that has arrived.
    pub fn newest(&self) -> Sending {
        self.newest
    }

    /// How long after its sending a segment counts as lost.
    //= https://www.rfc-editor.org/rfc/rfc8985#section-6.2
    //# Segment.xmit_ts + RACK.rtt + RACK.reo_wnd - now <= 0
    pub fn patience_ns(&self, srtt_ns: u64, is_recovering: bool, dup_acks: u8) -> u64 {
        self.rtt_ns.saturating_add(self.window_ns(srtt_ns, is_recovering, dup_acks))
    }

    /// What the reordering timer allows beyond that, for acknowledgements that come in batches: 2 ms
    /// as in Linux (TCP_TIMEOUT_MIN_US), but where the peer is near no more than a part of the way.
    pub fn slack_ns(&self) -> u64 {
        (self.min_rtt_ns().unwrap_or(0) / 16).min(2 * MILLISECOND)
    }

    /// RACK.reo_wnd.
    //= https://www.rfc-editor.org/rfc/rfc8985#section-3.3.2
    //# 1. The reordering window SHOULD be set to zero if no reordering has been observed on the
    //# connection so far, and either (a) three segments have been SACKed since the last recovery or
    //# (b) the sender is already in fast or RTO recovery.
    //= https://www.rfc-editor.org/rfc/rfc8985#section-3.3.2
    //# Otherwise, the reordering window SHOULD start from a small fraction of the round-trip time
    //# or zero if no round-trip time estimate is available.
    //= https://www.rfc-editor.org/rfc/rfc8985#section-3.3.2
    //# 3. The RACK reordering window MUST be bounded, and this bound SHOULD be SRTT.
    fn window_ns(&self, srtt_ns: u64, is_recovering: bool, dup_acks: u8) -> u64 {
        //= https://www.rfc-editor.org/rfc/rfc8985#section-6.2
        //# Furthermore, when no reordering has been observed, the RACK.reo_wnd
        //# is set to 0 both upon entering and during fast recovery or RTO
        //# recovery.
        if !self.reordering_seen && (is_recovering || dup_acks >= DUP_THRESH) {
            return 0;
        }
        //= https://www.rfc-editor.org/rfc/rfc8985#section-6.2
        //# Return min(RACK.reo_wnd_mult * RACK.min_RTT / 4, SRTT)
        let window = self.min_rtt_ns().unwrap_or(0) / 4 * u64::from(self.window_mult);
        window.min(srtt_ns)
    }

    /// An acknowledgement of everything below `una`, with or without a D-SACK, after `sent_again`
    /// retransmissions: widens the window once in a round trip.
    //= https://www.rfc-editor.org/rfc/rfc8985#section-6.2
    //# RACK_update_reo_wnd():
    //= https://www.rfc-editor.org/rfc/rfc8985#section-3.3.2
    //# The RACK reordering window SHOULD adaptively increase (using the algorithm in "Step 4:
    //# Update RACK reordering window" below) if the sender receives a Duplicate Selective
    //# Acknowledgment (DSACK) option [RFC2883].
    //= https://www.rfc-editor.org/rfc/rfc8985#section-4
    //# 3. RACK DSACK-based reordering window adaptation is RECOMMENDED but is not required.
    pub fn on_round(&mut self, una: u64, nxt: u64, dsack: bool, sent_again: u64) {
        if self.dsack_round.is_some_and(|round| (una as u32).wrapping_sub(round.get()) < 1 << 31) {
            self.dsack_round = None;
        }
        // A network that repeats by itself brings more of them than there were retransmissions.
        if dsack && u64::from(self.dsacks) < sent_again {
            self.dsacks = self.dsacks.saturating_add(1);
            if self.dsack_round.is_none() {
                self.dsack_round = NonZeroU32::new(nxt as u32);
                self.window_mult = self.window_mult.saturating_add(1);
                self.window_persist = PERSIST;
            }
        }
    }

    /// What had been sent again for its loss had arrived: it was reordered, though this can no
    /// longer be seen by itself.
    pub fn on_spurious(&mut self) {
        self.reordering_seen = true;
    }

    /// A recovery has ended.
    //= https://www.rfc-editor.org/rfc/rfc8985#section-6.2
    //# RACK persists using the inflated RACK.reo_wnd for up to 16 loss
    //# recoveries, after which it resets RACK.reo_wnd to its starting value,
    //# min_RTT / 4.
    pub fn on_recovered(&mut self) {
        self.window_persist = self.window_persist.saturating_sub(1);
        if self.window_persist == 0 {
            self.window_mult = 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = MILLISECOND;

    //= https://www.rfc-editor.org/rfc/rfc8985#section-6.2
    //= type=test
    //# The sender SHOULD track a windowed min-filtered estimate of recent RTT measurements that can
    //# adapt when migrating to significantly longer paths rather than tracking a simple global
    //# minimum of all RTT measurements.
    #[test]
    fn an_old_minimum_is_forgotten() {
        let mut rack = Rack::default();
        assert_eq!(rack.min_rtt_ns(), None);
        rack.on_round_trip(Instant(SECOND), 5 * MS);
        for s in 0..700 {
            rack.on_round_trip(Instant(s * SECOND), 50 * MS);
            let kept = s < 600;
            assert_eq!(rack.min_rtt_ns(), Some(if kept { 5 } else { 50 } * MS), "{s}");
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc8985#section-6.2
    //= type=test
    //# When the reordering window is not set to 0, it starts with a
    //# conservative RACK.reo_wnd of RACK.min_RTT/4.
    //= https://www.rfc-editor.org/rfc/rfc8985#section-3.3.2
    //= type=test
    //# The reordering window SHOULD be set to zero if no reordering has been observed on the
    //# connection so far, and either (a) three segments have been SACKed since the last recovery or
    //# (b) the sender is already in fast or RTO recovery.
    //= https://www.rfc-editor.org/rfc/rfc8985#section-3.3.2
    //= type=test
    //# Otherwise, the reordering window SHOULD start from a small fraction of the round-trip time
    //# or zero if no round-trip time estimate is available.
    //= https://www.rfc-editor.org/rfc/rfc8985#section-3.3.2
    //= type=test
    //# 3. The RACK reordering window MUST be bounded, and this bound SHOULD be SRTT.
    #[test]
    fn the_window_is_a_quarter_of_the_round_trip_unless_a_loss_is_plain() {
        let mut rack = Rack::default();
        rack.on_round_trip(Instant(0), 40 * MS);
        assert_eq!(rack.window_ns(50 * MS, false, 0), 10 * MS);
        assert_eq!(rack.window_ns(50 * MS, false, 3), 0);
        assert_eq!(rack.window_ns(50 * MS, true, 0), 0);
        rack.on_spurious();
        assert_eq!(rack.window_ns(50 * MS, true, 3), 10 * MS);
        assert_eq!(rack.window_ns(5 * MS, true, 3), 5 * MS);
    }

    //= https://www.rfc-editor.org/rfc/rfc8985#section-6.2
    //= type=test
    //# RACK persists using the inflated RACK.reo_wnd for up to 16 loss
    //# recoveries, after which it resets RACK.reo_wnd to its starting value,
    //# min_RTT / 4.
    //= https://www.rfc-editor.org/rfc/rfc8985#section-3.3.2
    //= type=test
    //# The RACK reordering window SHOULD adaptively increase (using the algorithm in "Step 4:
    //# Update RACK reordering window" below) if the sender receives a Duplicate Selective
    //# Acknowledgment (DSACK) option [RFC2883].
    //= https://www.rfc-editor.org/rfc/rfc8985#section-4
    //= type=test
    //# 3. RACK DSACK-based reordering window adaptation is RECOMMENDED but is not required.
    #[test]
    fn duplicates_widen_the_window_once_in_a_round_trip_and_for_a_while() {
        let mut rack = Rack::default();
        rack.on_round_trip(Instant(0), 40 * MS);
        for una in 0..4 {
            rack.on_round(una * 10, una * 10 + 20, true, 100);
        }
        // Two round trips have begun.
        assert_eq!(rack.window_ns(SECOND, false, 0), 30 * MS);
        for _ in 0..15 {
            rack.on_recovered();
        }
        assert_eq!(rack.window_ns(SECOND, false, 0), 30 * MS);
        rack.on_recovered();
        assert_eq!(rack.window_ns(SECOND, false, 0), 10 * MS);
    }

    #[test]
    fn a_network_that_repeats_does_not_widen_the_window() {
        let mut rack = Rack::default();
        rack.on_round_trip(Instant(0), 40 * MS);
        rack.on_round(0, 20, true, 0);
        assert_eq!(rack.window_ns(SECOND, false, 0), 10 * MS);
    }
}
