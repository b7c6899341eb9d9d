//! HyStart++ (RFC 9406): leaves the first slow start when the round-trip time grows, by way of a
//! slower growth that can be taken back.

use serde::{Deserialize, Serialize};

use super::{Ack, WINDOW_MAX, Window};

/// MIN_RTT_THRESH, microseconds.
const RTT_THRESH_US_MIN: u32 = 4_000;
/// MAX_RTT_THRESH, microseconds.
const RTT_THRESH_US_MAX: u32 = 16_000;
/// MIN_RTT_DIVISOR.
const RTT_DIVISOR: u32 = 8;
/// N_RTT_SAMPLE.
const SAMPLES: u8 = 8;
/// CSS_GROWTH_DIVISOR.
//= https://www.rfc-editor.org/rfc/rfc9406#section-4.3
//# It is RECOMMENDED that a HyStart++ implementation use the following constants:
//= https://www.rfc-editor.org/rfc/rfc9406#section-4.3
//# The minimum value of CSS_GROWTH_DIVISOR MUST be at least 2.
const GROWTH_DIVISOR: u32 = 4;
/// CSS_ROUNDS.
const ROUNDS: u8 = 5;

/// State of HyStart++.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HyStart {
    /// windowEnd.
    window_end: u64,
    /// lastRoundMinRTT, microseconds.
    last_us: u32,
    /// currentRoundMinRTT, microseconds.
    current_us: u32,
    /// cssBaselineMinRtt, microseconds; infinite in standard slow start.
    baseline_us: u32,
    /// rttSampleCount.
    samples: u8,
    /// Rounds of conservative slow start.
    rounds: u8,
}

impl Default for HyStart {
    fn default() -> Self {
        Self {
            window_end: 0,
            last_us: u32::MAX,
            current_us: u32::MAX,
            baseline_us: u32::MAX,
            samples: 0,
            rounds: 0,
        }
    }
}

impl HyStart {
    /// Grows the window in the first slow start, and ends it by setting the threshold.
    //= https://www.rfc-editor.org/rfc/rfc9406#section-4.2
    //# cwnd = cwnd + min(N, L * SMSS)
    // L is infinite: one acknowledgement of a large frame may stand for 45 segments, and growing
    // by 8 of them would not be slow start any more. Linux does the same.
    //= https://www.rfc-editor.org/rfc/rfc9406#section-4.3
    //# A paced TCP implementation SHOULD use L = infinity.
    pub fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
        let is_conservative = self.baseline_us != u32::MAX;
        let growth = if is_conservative { ack.bytes / GROWTH_DIVISOR } else { ack.bytes };
        window.cwnd = window.cwnd.saturating_add(growth).min(WINDOW_MAX);
        if let Some(rtt_ns) = ack.rtt_ns {
            let rtt_us = u32::try_from(rtt_ns / 1000).unwrap_or(u32::MAX - 1);
            self.current_us = self.current_us.min(rtt_us);
            self.samples = self.samples.saturating_add(1);
        }
        //= https://www.rfc-editor.org/rfc/rfc9406#section-4.3
        //# While all TCP implementations are REQUIRED to take at least one RTT sample each round,
        //# implementations of HyStart++ are RECOMMENDED to take at least N_RTT_SAMPLE RTT samples.
        if self.samples >= SAMPLES && self.current_us != u32::MAX {
            if is_conservative {
                //= https://www.rfc-editor.org/rfc/rfc9406#section-4.2
                //# if (currentRoundMinRTT < cssBaselineMinRtt)
                //# cssBaselineMinRtt = infinity
                //# resume slow start including HyStart++
                if self.current_us < self.baseline_us {
                    self.baseline_us = u32::MAX;
                }
            } else if self.last_us != u32::MAX {
                let thresh =
                    (self.last_us / RTT_DIVISOR).clamp(RTT_THRESH_US_MIN, RTT_THRESH_US_MAX);
                if self.current_us >= self.last_us.saturating_add(thresh) {
                    self.baseline_us = self.current_us;
                    self.rounds = 0;
                }
            }
        }
        if ack.una >= self.window_end {
            self.on_round(window, ack.nxt);
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc9406#section-4.2
    //# When windowEnd is ACKed, the current round ends and windowEnd is
    //# set to SND.NXT.
    fn on_round(&mut self, window: &mut Window, nxt: u64) {
        self.window_end = nxt;
        self.last_us = self.current_us;
        self.current_us = u32::MAX;
        self.samples = 0;
        if self.baseline_us != u32::MAX {
            self.rounds += 1;
            if self.rounds >= ROUNDS {
                //= https://www.rfc-editor.org/rfc/rfc9406#section-4.2
                //# If CSS_ROUNDS rounds are complete, enter congestion avoidance by
                //# setting the ssthresh to the current cwnd.
                window.ssthresh = window.cwnd;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Instant;

    /// A round of `count` acknowledgements with one round-trip time.
    fn round(hystart: &mut HyStart, window: &mut Window, at: &mut u64, count: u64, rtt_ms: u64) {
        let nxt = *at + 2 * count * 1000;
        for i in 1..=count {
            let ack = Ack {
                bytes: 1000,
                now: Instant(0),
                srtt_ns: 0,
                rtt_ns: Some(rtt_ms * 1_000_000),
                mss: 1000,
                una: *at + i * 1000,
                nxt,
            };
            hystart.on_ack(window, &ack);
        }
        *at += count * 1000;
    }

    //= https://www.rfc-editor.org/rfc/rfc9406#section-4.2
    //= type=test
    //# If CSS_ROUNDS rounds are complete, enter congestion avoidance by
    //# setting the ssthresh to the current cwnd.
    //= https://www.rfc-editor.org/rfc/rfc9438#section-4.10
    //= type=test
    //# In general, CUBIC SHOULD use the HyStart++ slow start algorithm [RFC9406] or MAY use the
    //# Reno TCP slow start algorithm [RFC5681] in the rare cases when HyStart++ is not suitable.
    //= https://www.rfc-editor.org/rfc/rfc9406#section-4.3
    //= type=test
    //# It is RECOMMENDED that a HyStart++ implementation use the following constants:
    //= https://www.rfc-editor.org/rfc/rfc9406#section-4.3
    //= type=test
    //# While all TCP implementations are REQUIRED to take at least one RTT sample each round,
    //# implementations of HyStart++ are RECOMMENDED to take at least N_RTT_SAMPLE RTT samples.
    //= https://www.rfc-editor.org/rfc/rfc9406#section-4.3
    //= type=test
    //# The minimum value of CSS_GROWTH_DIVISOR MUST be at least 2.
    #[test]
    fn a_growing_round_trip_time_ends_slow_start_in_five_rounds() {
        let (mut hystart, mut window, mut at) = (HyStart::default(), Window::initial(1000), 0);
        for _ in 0..3 {
            round(&mut hystart, &mut window, &mut at, 10, 40);
        }
        assert_eq!(window.cwnd, 40_000);
        round(&mut hystart, &mut window, &mut at, 10, 46);
        let mut rounds = 1;
        while window.in_slow_start() && rounds < 10 {
            round(&mut hystart, &mut window, &mut at, 10, 46);
            rounds += 1;
        }
        assert_eq!((rounds, window.ssthresh), (5, window.cwnd));
        assert!(window.cwnd < 65_000, "{}", window.cwnd);
    }

    #[test]
    fn a_spike_of_the_round_trip_time_is_forgiven() {
        let (mut hystart, mut window, mut at) = (HyStart::default(), Window::initial(1000), 0);
        for rtt_ms in [40, 40, 50, 40, 40, 40, 40, 40, 40, 40] {
            round(&mut hystart, &mut window, &mut at, 10, rtt_ms);
        }
        assert!(window.in_slow_start());
        let before = window.cwnd;
        round(&mut hystart, &mut window, &mut at, 10, 40);
        assert_eq!(window.cwnd, before + 10_000);
    }

    #[test]
    fn a_little_jitter_changes_nothing() {
        let (mut hystart, mut window, mut at) = (HyStart::default(), Window::initial(1000), 0);
        for rtt_ms in [10, 13, 10, 13, 10, 13] {
            round(&mut hystart, &mut window, &mut at, 10, rtt_ms);
        }
        assert_eq!(window.cwnd, 70_000);
    }
}
