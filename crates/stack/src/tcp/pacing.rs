//! Pacing: data goes out in small bursts at a rate instead of as fast as the window allows
//! (Linux's sk_pacing_rate without fq). A connection is paced when its congestion control wants
//! it (BBR), its program (SO_MAX_PACING_RATE), or the settings for all. It waits by its deadline
//! in the timing wheel.

use serde::{Deserialize, Serialize};

use super::connection::{Cold, Connection, Hot, NEVER};
use super::settings::TcpSettings;
use crate::api::{Instant, TcpOptions};

/// Segments at a connection's beginning that are not paced, as in Linux.
const UNPACED: u64 = 10;
/// A burst lasts a 1024th of a second at the rate (sk_pacing_shift).
const BURST_SHIFT: u32 = 10;
/// Each 512 us of round-trip time halve what a burst has beyond that (tcp_tso_rtt_log).
const NEAR_SHIFT_US: u32 = 9;
/// Largest burst.
const BURST_MAX: u64 = 65536;
/// Below this rate (1.2 Mbit/s) single segments are paced where the algorithm models the path.
const SINGLE_BELOW: u64 = 1_200_000 / 8;

/// State of pacing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pacer {
    /// Bytes per second; [`u64::MAX`] for no limit.
    pub rate: u64,
    /// When the next burst may go.
    at: u64,
    /// When the burst that goes on began, and what is left of it.
    began: u64,
    left: u64,
    /// Time that late timers have cost, for the burst to make up for.
    credit_ns: u64,
    /// Bytes sent so far, until pacing begins.
    sent: u64,
    /// When to go on, while something waits; or [`NEVER`].
    pub wake: u64,
}

impl Default for Pacer {
    fn default() -> Self {
        Self { rate: u64::MAX, at: 0, began: NEVER, left: 0, credit_ns: 0, sent: 0, wake: NEVER }
    }
}

impl Pacer {
    /// Whether nothing may be sent now.
    fn is_waiting(&self, now: Instant) -> bool {
        self.at > now.0 && (self.left == 0 || self.began != now.0)
    }

    /// How long until the next burst may go, nanoseconds.
    pub fn ahead_ns(&self, now: Instant) -> u64 {
        self.at.saturating_sub(now.0)
    }

    /// `bytes` of data are sent, in bursts of `burst` bytes.
    fn on_sent(&mut self, now: Instant, bytes: u64, burst: u64, mss: u64) {
        let is_new = self.sent < UNPACED * mss;
        self.sent = self.sent.saturating_add(bytes);
        if is_new || self.rate == u64::MAX || self.rate == 0 {
            return;
        }
        let time_of = |bytes: u64| {
            let ns = u128::from(bytes) * 1_000_000_000 / u128::from(self.rate);
            u64::try_from(ns).unwrap_or(u64::MAX / 2)
        };
        if self.began != now.0 || self.left == 0 {
            (self.began, self.left) = (now.0, burst);
            self.credit_ns = now.0.saturating_sub(self.at);
            self.at = self.at.max(now.0);
        }
        // As Linux: by half of what is sent at the most.
        let time = time_of(bytes);
        let used = self.credit_ns.min(time / 2);
        self.credit_ns -= used;
        self.left = self.left.saturating_sub(bytes);
        self.at = self.at.saturating_add(time - used);
    }
}

impl Hot {
    /// The rate that [`pace_by_window`](Connection::pace_by_window) sets, bytes per second.
    pub fn pace_of_window(&self, cold: &Cold) -> Option<u64> {
        let srtt_ns = self.rtt.srtt_ns().filter(|srtt| *srtt > 0)?;
        let percent = if self.window.cwnd < self.window.ssthresh / 2 { 200 } else { 120 };
        let bytes = u64::from(self.window.cwnd).max(self.flight());
        let rate = u128::from(bytes) * percent * 10_000_000 / u128::from(srtt_ns);
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        Some(rate.clamp(1, cold.options.max_pacing_rate.max(1)))
    }
}

impl Connection<'_> {
    /// Makes what pacing and estimating need, or lets go of it.
    pub fn equip(&mut self, settings: &TcpSettings) {
        let options: &TcpOptions = &self.cold.options;
        let is_wanted = settings.paced || options.max_pacing_rate != u64::MAX;
        let is_paced = is_wanted || self.cold.congestion.is_paced();
        // What has once been paced stays so, as in Linux.
        if is_paced && self.cold.pacer.is_none() {
            self.cold.pacer = Some(Box::default());
        }
        if self.cold.congestion.wants_rate() {
            self.cold.rate.get_or_insert_default();
        }
        self.limit_pace();
    }

    /// SO_MAX_PACING_RATE holds whatever the algorithm says.
    pub fn limit_pace(&mut self) {
        let most = self.cold.options.max_pacing_rate;
        if let Some(pacer) = &mut self.cold.pacer {
            pacer.rate = pacer.rate.min(most);
        }
    }

    /// The rate of an algorithm that only knows a window: twice what it would send in a round trip
    /// in slow start, 1.2 times later (Linux's tcp_update_pacing_rate).
    pub fn pace_by_window(&mut self) {
        if self.cold.pacer.is_none() {
            return;
        }
        let rate = self.hot.pace_of_window(self.cold);
        if let (Some(pacer), Some(rate)) = (&mut self.cold.pacer, rate) {
            pacer.rate = rate;
        }
    }

    /// Bytes of one burst, in whole segments (Linux's tcp_tso_autosize); [`u64::MAX`] where nothing
    /// is paced.
    pub fn burst_bytes(&self) -> u64 {
        let Some(pacer) = self.cold.pacer.as_deref().filter(|p| p.rate != u64::MAX) else {
            return u64::MAX;
        };
        let mss = u64::from(self.hot.mss.max(1));
        let min_rtt_us = self.cold.rack.min_rtt_ns().unwrap_or(u64::MAX) / 1000;
        let near = u32::try_from(min_rtt_us >> NEAR_SHIFT_US).unwrap_or(u32::MAX);
        let near = BURST_MAX.checked_shr(near).unwrap_or(0);
        let bytes = ((pacer.rate >> BURST_SHIFT) + near).min(BURST_MAX);
        let single = self.cold.congestion.is_paced() && pacer.rate < SINGLE_BELOW;
        (bytes / mss).max(if single { 1 } else { 2 }) * mss
    }

    /// Looks whether the pace allows data now.
    pub fn look_at_pace(&mut self, now: Instant) {
        if let Some(pacer) = &self.cold.pacer {
            self.hot.pace_waits = pacer.is_waiting(now);
        }
    }

    /// Data was sent.
    pub fn on_paced(&mut self, now: Instant, bytes: u64) {
        if self.cold.pacer.is_none() {
            return;
        }
        let (burst, mss) = (self.burst_bytes(), u64::from(self.hot.mss.max(1)));
        if let Some(pacer) = &mut self.cold.pacer {
            pacer.on_sent(now, bytes, burst, mss);
            pacer.wake = NEVER;
        }
        self.look_at_pace(now);
    }

    /// Something may wait for the pace alone: the deadline says when it goes on.
    pub fn await_pace(&mut self) {
        if let Some(pacer) = self.cold.pacer.as_deref_mut().filter(|_| self.hot.pace_waits) {
            pacer.wake = pacer.at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn pacer(rate: u64) -> Pacer {
        Pacer { rate, sent: u64::MAX, ..Pacer::default() }
    }

    #[test]
    fn a_burst_goes_at_once_and_the_next_when_its_time_has_passed() {
        let mut pacer = pacer(1_000_000);
        let now = Instant(MS);
        for _ in 0..2 {
            assert!(!pacer.is_waiting(now));
            pacer.on_sent(now, 1000, 2000, 1000);
        }
        assert!(pacer.is_waiting(now));
        // Half a burst's time was credit, for none had gone before.
        assert_eq!(pacer.ahead_ns(now), MS);
        assert!(!pacer.is_waiting(Instant(now.0 + MS)));
    }

    #[test]
    fn late_timers_do_not_slow_the_pace() {
        let mut pacer = pacer(1_000_000);
        let (mut now, mut sent) = (0, 0);
        while now < 1000 * MS {
            while !pacer.is_waiting(Instant(now)) {
                pacer.on_sent(Instant(now), 1000, 2000, 1000);
                sent += 1000;
            }
            // 65 us late each time.
            now += pacer.ahead_ns(Instant(now)) + 65_536;
        }
        assert!((990_000..=1_010_000).contains(&sent), "{sent}");
    }

    #[test]
    fn the_first_segments_are_not_paced() {
        let mut pacer = Pacer { rate: 1000, ..Pacer::default() };
        for _ in 0..10 {
            assert!(!pacer.is_waiting(Instant(5)));
            pacer.on_sent(Instant(5), 1000, 2000, 1000);
        }
        assert!(!pacer.is_waiting(Instant(5)));
        pacer.on_sent(Instant(5), 2000, 2000, 1000);
        assert!(pacer.is_waiting(Instant(5)));
    }
}
