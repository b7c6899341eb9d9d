//! HyStart as Linux's CUBIC has it, for those who want slow start to end as there: at once, in
//! avoidance, when the round-trip time has grown by an eighth or acknowledgements come in a train
//! as long as half of it.

use serde::{Deserialize, Serialize};

use super::{Ack, Window};

/// Segments of the window from which on it looks (hystart_low_window).
const LOW_WINDOW: u32 = 16;
/// Acknowledgements with no more between them are one train, microseconds (hystart_ack_delta_us).
const TRAIN_GAP_US: u32 = 2_000;
/// Measurements before the delay is judged (HYSTART_MIN_SAMPLES).
const SAMPLES: u8 = 8;
/// Bounds of the growth that matters, microseconds (HYSTART_DELAY_MIN, HYSTART_DELAY_MAX).
const THRESH_US: (u32, u32) = (4_000, 16_000);
/// What of the train's length may come from waiting for company: four of the largest frames, but
/// not more than a millisecond.
const FRAMES_BYTES: u64 = 4 << 16;

/// State of a slow start. Times in microseconds, those of a clock going round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HyStartKernel {
    /// snd.nxt when the round began, going round.
    round_end: u32,
    round_at: u32,
    /// The train's last acknowledgement.
    train_at: u32,
    /// Smallest round-trip time; 0 before the first.
    least: u32,
    /// Smallest of this round.
    current: u32,
    /// Measurements of this round.
    samples: u8,
}

impl HyStartKernel {
    /// Before an acknowledgement lets the window grow: ends the slow start by setting the
    /// threshold, when it is time.
    pub fn on_ack(&mut self, window: &mut Window, ack: &Ack) {
        let Some(rtt_ns) = ack.rtt_ns else { return };
        let delay = u32::try_from(rtt_ns / 1000).unwrap_or(u32::MAX).max(1);
        if self.least == 0 || delay < self.least {
            self.least = delay;
        }
        let now = (ack.now.0 / 1000) as u32;
        if (ack.una as u32).wrapping_sub(self.round_end).cast_signed() > 0 {
            let (least, round_end) = (self.least, ack.nxt as u32);
            *self = Self {
                round_end,
                round_at: now,
                train_at: now,
                least,
                current: u32::MAX,
                samples: 0,
            };
        }
        if window.cwnd < LOW_WINDOW * ack.mss {
            return;
        }
        let is_train = now.wrapping_sub(self.train_at) <= TRAIN_GAP_US;
        if is_train {
            self.train_at = now;
        }
        let is_long = is_train && now.wrapping_sub(self.round_at) > self.train_most(window, ack);
        self.current = self.current.min(delay);
        let growth = (self.least / 8).clamp(THRESH_US.0, THRESH_US.1);
        let is_slow = self.samples >= SAMPLES && self.current > self.least.saturating_add(growth);
        self.samples = self.samples.saturating_add(1);
        if is_long || is_slow {
            window.ssthresh = window.cwnd;
        }
    }

    /// How long a train may be.
    fn train_most(&self, window: &Window, ack: &Ack) -> u32 {
        // At twice the window in a round trip, the pace of slow start.
        let wait = FRAMES_BYTES * (ack.srtt_ns / 1000) / (2 * u64::from(window.cwnd.max(1)));
        self.least.saturating_add(wait.min(1000) as u32) / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Instant;

    const MS: u64 = 1_000_000;

    /// A round of ten acknowledgements of two segments each, a while apart, from `start` on;
    /// after how many the slow start was over.
    fn round(
        state: &mut HyStartKernel,
        window: &mut Window,
        start: u64,
        gap: u64,
        rtt: u64,
    ) -> u64 {
        for i in 1..=10 {
            let ack = Ack {
                bytes: 2000,
                now: Instant((100 * start + i * gap) * MS),
                srtt_ns: rtt * MS,
                rtt_ns: Some(rtt * MS),
                mss: 1000,
                una: start * 20_000 + i * 2000,
                nxt: (start + 1) * 20_000,
            };
            state.on_ack(window, &ack);
            if !window.in_slow_start() {
                return i;
            }
        }
        0
    }

    #[test]
    fn a_growing_round_trip_time_ends_slow_start_with_the_ninth_measurement() {
        let (mut state, mut window) = (HyStartKernel::default(), Window::initial(1000));
        assert_eq!(round(&mut state, &mut window, 0, 5, 200), 0);
        window.cwnd = 20_000;
        assert_eq!(round(&mut state, &mut window, 1, 5, 240), 9);
        assert_eq!(window.ssthresh, 20_000);
    }

    #[test]
    fn a_small_window_and_a_little_growth_are_let_be() {
        let (mut state, mut window) = (HyStartKernel::default(), Window::initial(1000));
        assert_eq!(round(&mut state, &mut window, 0, 5, 200), 0);
        assert_eq!(round(&mut state, &mut window, 1, 5, 240), 0);
        window.cwnd = 20_000;
        assert_eq!(round(&mut state, &mut window, 2, 5, 215), 0);
    }

    #[test]
    fn a_train_of_half_a_round_trip_ends_slow_start() {
        let (mut state, mut window) = (HyStartKernel::default(), Window::initial(1000));
        window.cwnd = 20_000;
        // A train of 9 ms from the first to the last, and 18 ms on the way: no more than half.
        assert_eq!(round(&mut state, &mut window, 0, 1, 18), 0);
        assert_eq!(round(&mut state, &mut window, 1, 1, 12), 8);
    }
}
