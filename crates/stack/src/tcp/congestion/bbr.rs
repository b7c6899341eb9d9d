//! BBR, version 1 (draft-cardwell-iccrg-bbr-congestion-control-00), with the additions that Linux's
//! bbr has: room for aggregated acknowledgements, a long-term rate where a policer is suspected,
//! and packet conservation in the first round trip of a recovery.
//!
//! The path is modelled by the highest rate at which data was delivered in the last ten round
//! trips, and the shortest round-trip time of the last ten seconds. The rate of sending is the
//! former times a gain that changes in a cycle; the window bounds what is in flight to twice their
//! product.

use serde::{Deserialize, Serialize};

use super::{Ack, Algorithm, Control, Known, Sample, Window};
use crate::tcp::connection::Phase;
use crate::tcp::rtt::{MILLISECOND, SECOND};

/// One in the fixed point of gains.
const UNIT: u64 = 256;
/// 2/ln(2): the smallest gain with which the rate doubles in each round trip.
const HIGH_GAIN: u64 = UNIT * 2885 / 1000 + 1;
/// Its inverse: drains in one round trip what the start has queued.
const DRAIN_GAIN: u64 = UNIT * 1000 / 2885;
/// Room for acknowledgements that are late or few.
const CWND_GAIN: u64 = 2 * UNIT;
/// Gains of the rate, a round trip each: to find more, to drain what that queued, and to cruise.
const CYCLE: [u64; 8] = [UNIT * 5 / 4, UNIT * 3 / 4, UNIT, UNIT, UNIT, UNIT, UNIT, UNIT];
/// Of the eight phases, those that the cycle may begin in.
const CYCLE_RANDOM: u64 = 7;
/// Round trips that the highest rate is remembered for.
const RATE_ROUNDS: u32 = 10;
/// How long the shortest round-trip time is remembered.
const MIN_RTT_NS: u64 = 10 * SECOND;
/// How long the queue is kept empty to measure it again.
const PROBE_RTT_NS: u64 = 200 * MILLISECOND;
/// Segments in flight at the least.
const SEGMENTS_MIN: u64 = 4;
/// Segments of the window while nothing is known of the path.
const SEGMENTS_INITIAL: u64 = 10;
/// Paces this much slower than the estimate, so that no queue builds up.
const MARGIN_PERCENT: u64 = 1;
/// The pipe is full when three rounds bring no quarter more.
const FULL_GROWTH: (u64, u64) = (5, 4);
const FULL_ROUNDS: u8 = 3;
/// Round trips of an interval of the long-term rate, at least and at most.
const LONG_ROUNDS: (u16, u16) = (4, 16);
/// Share of bytes lost in an interval that lets suspect a policer: 50/256.
const LONG_LOSS: u64 = 50;
/// Two intervals are alike when they differ by an eighth, or by 4 kbit/s.
const LONG_RATIO: u64 = 8;
const LONG_DIFFERENCE: u64 = 4000 / 8;
/// Round trips for which the long-term rate is used.
const LONG_USE_ROUNDS: u16 = 48;
/// Rounds of each of the two windows of the excess that was acknowledged at once.
const EXCESS_ROUNDS: u8 = 5;
/// Longest silence between acknowledgements that is provided for.
const EXCESS_NS_MAX: u64 = 100 * MILLISECOND;
/// Bursts that sender and receiver may hold together.
const BURSTS: u64 = 3;
/// Most segments of a burst that are provided for.
const BURST_SEGMENTS_MAX: u64 = 127;
/// Below this rate bursts are of single segments.
const SINGLE_BELOW: u64 = 1_200_000 / 8;

/// What is being done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Mode {
    /// Doubles the rate until it brings no more.
    #[default]
    Startup,
    /// Empties the queue that this has made.
    Drain,
    /// Goes through the cycle of gains.
    ProbeBandwidth,
    /// Keeps the queue empty to measure the round trip.
    ProbeRtt,
}

/// The highest of the values of the last rounds: the best, and the best after it, twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Highest([(u32, u64); 3]);

impl Highest {
    fn get(&self) -> u64 {
        self.0[0].1
    }

    fn add(&mut self, round: u32, value: u64) {
        let new = (round, value);
        let age = |at: (u32, u64)| round.wrapping_sub(at.0);
        let [first, second, third] = &mut self.0;
        if value >= first.1 || age(*third) > RATE_ROUNDS {
            self.0 = [new; 3];
            return;
        }
        if value >= second.1 {
            (*second, *third) = (new, new);
        } else if value >= third.1 {
            *third = new;
        }
        if age(*first) > RATE_ROUNDS {
            (*first, *second, *third) = (*second, *third, new);
            if age(*first) > RATE_ROUNDS {
                (*first, *second) = (*second, *third);
            }
        } else if second.0 == first.0 && age(*second) > RATE_ROUNDS / 4 {
            // A quarter of the window has passed without a second best.
            (*second, *third) = (new, new);
        } else if third.0 == second.0 && age(*first) > RATE_ROUNDS / 2 {
            *third = new;
        }
    }
}

/// The rate where a policer lets no more pass in the long run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct LongTerm {
    is_sampling: bool,
    is_used: bool,
    rounds: u16,
    /// Bytes per second; 0 before the first interval.
    rate: u64,
    /// Where the interval began.
    since: u64,
    delivered: u64,
    lost: u64,
}

/// State of BBR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bbr {
    mode: Mode,
    /// Bytes per second.
    rate: Highest,
    /// Of packet-timed round trips.
    rounds: u32,
    /// The count of delivered bytes that ends the round.
    round_end: u64,
    round_begins: bool,
    min_rtt_ns: Option<u64>,
    min_rtt_at: u64,
    /// While the round trip is measured: when that ends, and whether a round has passed.
    probe_rtt_until: Option<u64>,
    probe_rtt_round: bool,
    /// The window before a recovery or a measurement, bytes.
    prior_cwnd: u32,
    prior_phase: Option<Phase>,
    conserves_packets: bool,
    has_rtt: bool,
    is_idle_restart: bool,
    full_rate: u64,
    full_rounds: u8,
    is_full: bool,
    cycle: u8,
    cycle_at: u64,
    pacing_gain: u16,
    cwnd_gain: u16,
    long: LongTerm,
    /// Bytes acknowledged beyond what the rate lets expect: of this window and the one before.
    excess: [u64; 2],
    excess_rounds: u8,
    excess_at: u64,
    excess_acked: u64,
}

/// `rate` times a time.
fn bytes_in(rate: u64, ns: u64) -> u64 {
    u64::try_from(u128::from(rate) * u128::from(ns) / u128::from(SECOND)).unwrap_or(u64::MAX)
}

impl Bbr {
    /// What it knows of the path.
    pub fn known(&self) -> Known {
        Known::Model {
            rate: self.estimate(),
            min_rtt_ns: self.min_rtt_ns,
            pacing_gain: self.pacing_gain,
            cwnd_gain: self.cwnd_gain,
        }
    }

    /// Bytes per second that the path is thought to carry.
    fn estimate(&self) -> u64 {
        if self.long.is_used { self.long.rate } else { self.rate.get() }
    }

    fn pacing_rate(rate: u64, gain: u64) -> u64 {
        let rate = u128::from(rate) * u128::from(gain) / u128::from(UNIT);
        u64::try_from(rate * u128::from(100 - MARGIN_PERCENT) / 100).unwrap_or(u64::MAX)
    }

    /// The rate of the beginning: the initial window in a round trip, with the high gain.
    fn pace_by_rtt(&mut self, control: &mut Control<'_>, srtt_ns: u64) {
        self.has_rtt |= srtt_ns > 0;
        let rtt = if srtt_ns > 0 { srtt_ns } else { MILLISECOND };
        let rate = u64::from(control.window.cwnd) * SECOND / rtt.max(1);
        *control.pacing_rate = Self::pacing_rate(rate, HIGH_GAIN);
    }

    fn pace(&mut self, control: &mut Control<'_>, rate: u64, gain: u64, srtt_ns: u64) {
        if !self.has_rtt && srtt_ns > 0 {
            self.pace_by_rtt(control, srtt_ns);
        }
        let rate = Self::pacing_rate(rate, gain);
        if self.is_full || rate > *control.pacing_rate {
            *control.pacing_rate = rate;
        }
    }

    /// Segments of a burst at the present rate.
    fn burst_segments(pacing_rate: u64, mss: u64) -> u64 {
        let least = if pacing_rate < SINGLE_BELOW { 1 } else { 2 };
        ((pacing_rate >> 10).min(65535 - 320) / mss).max(least).min(BURST_SEGMENTS_MAX)
    }

    /// Segments that fill the path, times a gain.
    fn bdp(&self, rate: u64, gain: u64, mss: u64) -> u64 {
        let Some(min_rtt_ns) = self.min_rtt_ns else { return SEGMENTS_INITIAL };
        (bytes_in(rate, min_rtt_ns).saturating_mul(gain) / UNIT).div_ceil(mss)
    }

    /// With the bursts that both ends may hold.
    fn with_bursts(&self, segments: u64, pacing_rate: u64, mss: u64) -> u64 {
        let room = segments + BURSTS * Self::burst_segments(pacing_rate, mss);
        let even = (room + 1) & !1;
        let probes = self.mode == Mode::ProbeBandwidth && self.cycle == 0;
        even + if probes { 2 } else { 0 }
    }

    fn inflight(&self, rate: u64, gain: u64, control: &Control<'_>, mss: u64) -> u64 {
        self.with_bursts(self.bdp(rate, gain, mss), *control.pacing_rate, mss)
    }

    /// Segments that will be in the network when the next burst goes.
    fn in_network(&self, in_flight: u64, control: &Control<'_>, sample: &Sample) -> u64 {
        let mss = u64::from(sample.mss.max(1));
        let leaving = bytes_in(self.estimate(), sample.paced_ahead_ns) / mss;
        let rises = u64::from(self.pacing_gain) > UNIT;
        let burst = if rises { Self::burst_segments(*control.pacing_rate, mss) } else { 0 };
        (in_flight / mss + burst).saturating_sub(leaving)
    }

    fn update_rate(&mut self, sample: &Sample) {
        self.round_begins = false;
        let Some(rate) = sample.rate.filter(|rate| rate.delivered > 0) else { return };
        if rate.prior_delivered >= self.round_end {
            self.round_end = sample.delivered;
            self.rounds = self.rounds.wrapping_add(1);
            self.round_begins = true;
            self.conserves_packets = false;
        }
        self.sample_long_term(sample, rate.is_app_limited);
        let value = rate.bytes_per_second();
        if !rate.is_app_limited || value >= self.rate.get() {
            self.rate.add(self.rounds, value);
        }
    }

    fn begin_interval(&mut self, sample: &Sample) {
        self.long.since = sample.delivered_at;
        self.long.delivered = sample.delivered;
        self.long.lost = sample.total_lost;
        self.long.rounds = 0;
    }

    fn forget_long_term(&mut self, sample: &Sample) {
        self.long = LongTerm::default();
        self.begin_interval(sample);
    }

    /// Whether the path is policed: two intervals with many losses and the same rate.
    fn sample_long_term(&mut self, sample: &Sample, is_app_limited: bool) {
        if self.long.is_used {
            if self.mode == Mode::ProbeBandwidth && self.round_begins {
                self.long.rounds += 1;
                if self.long.rounds >= LONG_USE_ROUNDS {
                    self.forget_long_term(sample);
                    self.begin_cycle(sample);
                }
            }
            return;
        }
        if !self.long.is_sampling {
            // The first loss shows that the policer has nothing saved up.
            if sample.lost == 0 {
                return;
            }
            self.begin_interval(sample);
            self.long.is_sampling = true;
        }
        if is_app_limited {
            self.forget_long_term(sample);
            return;
        }
        self.long.rounds += u16::from(self.round_begins);
        if self.long.rounds < LONG_ROUNDS.0 {
            return;
        }
        if self.long.rounds > LONG_ROUNDS.1 {
            self.forget_long_term(sample);
            return;
        }
        if sample.lost == 0 {
            return;
        }
        let lost = sample.total_lost - self.long.lost.min(sample.total_lost);
        let delivered = sample.delivered - self.long.delivered.min(sample.delivered);
        if delivered == 0 || lost.saturating_mul(UNIT) < delivered.saturating_mul(LONG_LOSS) {
            return;
        }
        let ns = sample.delivered_at.saturating_sub(self.long.since);
        if ns < MILLISECOND {
            return;
        }
        let rate = u128::from(delivered) * u128::from(SECOND) / u128::from(ns);
        self.end_interval(u64::try_from(rate).unwrap_or(u64::MAX), sample);
    }

    fn end_interval(&mut self, rate: u64, sample: &Sample) {
        let before = self.long.rate;
        let difference = rate.abs_diff(before);
        if before > 0 && (difference <= before / LONG_RATIO || difference <= LONG_DIFFERENCE) {
            self.long.rate = rate.midpoint(before);
            self.long.is_used = true;
            self.long.rounds = 0;
            self.pacing_gain = UNIT as u16;
            return;
        }
        self.long.rate = rate;
        self.begin_interval(sample);
    }

    /// How much more is acknowledged at once than the rate lets expect.
    fn update_excess(&mut self, sample: &Sample, cwnd: u64) {
        if sample.acked == 0 || sample.rate.is_none() {
            return;
        }
        if self.round_begins {
            self.excess_rounds += 1;
            if self.excess_rounds >= EXCESS_ROUNDS {
                self.excess_rounds = 0;
                self.excess = [0, self.excess[0]];
            }
        }
        let since = sample.delivered_at.saturating_sub(self.excess_at);
        let mut expected = bytes_in(self.estimate(), since);
        let many = u64::from(sample.mss) << 20;
        if self.excess_acked <= expected || self.excess_acked + sample.acked >= many {
            self.excess_acked = 0;
            self.excess_at = sample.delivered_at;
            expected = 0;
        }
        self.excess_acked += sample.acked;
        let excess = (self.excess_acked - expected.min(self.excess_acked)).min(cwnd);
        self.excess[0] = self.excess[0].max(excess);
    }

    fn excess_segments(&self, mss: u64) -> u64 {
        if !self.is_full {
            return 0;
        }
        let most = bytes_in(self.estimate(), EXCESS_NS_MAX);
        self.excess[0].max(self.excess[1]).min(most) / mss
    }

    fn update_cycle(&mut self, control: &Control<'_>, sample: &Sample) {
        if self.mode != Mode::ProbeBandwidth {
            return;
        }
        let passed = sample.delivered_at.saturating_sub(self.cycle_at);
        let is_full_length = passed > self.min_rtt_ns.unwrap_or(u64::MAX);
        let (gain, mss) = (u64::from(self.pacing_gain), u64::from(sample.mss.max(1)));
        let (rate, network) = (self.rate.get(), sample.prior_in_flight);
        let ends = if gain == UNIT {
            is_full_length
        } else if gain > UNIT {
            // Until so much is in flight, unless the path cannot hold it.
            let network = self.in_network(network, control, sample);
            is_full_length
                && (sample.lost > 0 || network >= self.inflight(rate, gain, control, mss))
        } else {
            let network = self.in_network(network, control, sample);
            is_full_length || network <= self.inflight(rate, UNIT, control, mss)
        };
        if ends {
            self.advance_cycle(sample);
        }
    }

    fn advance_cycle(&mut self, sample: &Sample) {
        self.cycle = (self.cycle + 1) % CYCLE.len() as u8;
        self.cycle_at = sample.delivered_at;
    }

    /// Flows that begin together are to probe at different times.
    fn begin_cycle(&mut self, sample: &Sample) {
        self.mode = Mode::ProbeBandwidth;
        let mixed =
            (sample.now.0 ^ sample.delivered.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.cycle = (CYCLE.len() as u64 - 1 - (mixed >> 32) % CYCLE_RANDOM) as u8;
        self.advance_cycle(sample);
    }

    fn update_fullness(&mut self, sample: &Sample) {
        let is_app_limited = sample.rate.is_some_and(|rate| rate.is_app_limited);
        if self.is_full || !self.round_begins || is_app_limited {
            return;
        }
        if self.rate.get() >= self.full_rate.saturating_mul(FULL_GROWTH.0) / FULL_GROWTH.1 {
            self.full_rate = self.rate.get();
            self.full_rounds = 0;
            return;
        }
        self.full_rounds += 1;
        self.is_full = self.full_rounds >= FULL_ROUNDS;
    }

    fn update_drain(&mut self, control: &mut Control<'_>, sample: &Sample) {
        let mss = u64::from(sample.mss.max(1));
        if self.mode == Mode::Startup && self.is_full {
            self.mode = Mode::Drain;
            let segments = self.inflight(self.rate.get(), UNIT, control, mss);
            control.window.ssthresh = u32::try_from(segments * mss).unwrap_or(u32::MAX);
        }
        if self.mode == Mode::Drain
            && self.in_network(sample.in_flight, control, sample)
                <= self.inflight(self.rate.get(), UNIT, control, mss)
        {
            self.begin_cycle(sample);
        }
    }

    fn update_min_rtt(&mut self, control: &mut Control<'_>, sample: &Sample) {
        let now = sample.now.0;
        let is_old = now > self.min_rtt_at.saturating_add(MIN_RTT_NS);
        if let Some(rtt_ns) = sample.rtt_ns
            && (self.min_rtt_ns.is_none_or(|known| rtt_ns <= known)
                || (is_old && !sample.is_ack_delayed))
        {
            self.min_rtt_ns = Some(rtt_ns);
            self.min_rtt_at = now;
        }
        if is_old && !self.is_idle_restart && self.mode != Mode::ProbeRtt {
            self.mode = Mode::ProbeRtt;
            self.save_cwnd(control.window);
            self.probe_rtt_until = None;
        }
        if self.mode == Mode::ProbeRtt {
            control.limits_application = true;
            let few = SEGMENTS_MIN * u64::from(sample.mss);
            match self.probe_rtt_until {
                None if sample.in_flight <= few => {
                    self.probe_rtt_until = Some(now + PROBE_RTT_NS);
                    self.probe_rtt_round = false;
                    self.round_end = sample.delivered;
                }
                None => {}
                Some(_) => {
                    self.probe_rtt_round |= self.round_begins;
                    if self.probe_rtt_round {
                        self.end_probe_rtt(control, sample);
                    }
                }
            }
        }
        if sample.rate.is_some_and(|rate| rate.delivered > 0) {
            self.is_idle_restart = false;
        }
    }

    fn end_probe_rtt(&mut self, control: &mut Control<'_>, sample: &Sample) {
        if self.probe_rtt_until.is_none_or(|until| sample.now.0 <= until) {
            return;
        }
        self.min_rtt_at = sample.now.0;
        control.window.cwnd = control.window.cwnd.max(self.prior_cwnd);
        if self.is_full {
            self.begin_cycle(sample);
        } else {
            self.mode = Mode::Startup;
        }
    }

    fn update_gains(&mut self) {
        let (pacing, cwnd) = match self.mode {
            Mode::Startup => (HIGH_GAIN, HIGH_GAIN),
            Mode::Drain => (DRAIN_GAIN, HIGH_GAIN),
            Mode::ProbeBandwidth if self.long.is_used => (UNIT, CWND_GAIN),
            Mode::ProbeBandwidth => {
                (CYCLE.get(usize::from(self.cycle)).copied().unwrap_or(UNIT), CWND_GAIN)
            }
            Mode::ProbeRtt => (UNIT, UNIT),
        };
        (self.pacing_gain, self.cwnd_gain) = (pacing as u16, cwnd as u16);
    }

    /// Remembers the window as long as nothing has cut it.
    fn save_cwnd(&mut self, window: &Window) {
        let is_cut = matches!(self.prior_phase, Some(Phase::Recovery | Phase::Loss))
            || self.mode == Mode::ProbeRtt;
        self.prior_cwnd = if is_cut { self.prior_cwnd.max(window.cwnd) } else { window.cwnd };
    }

    fn set_cwnd(&mut self, control: &mut Control<'_>, sample: &Sample) {
        let mss = u64::from(sample.mss.max(1));
        let mut cwnd = u64::from(control.window.cwnd);
        if sample.acked > 0 {
            let before = self.prior_phase.unwrap_or(Phase::Open);
            // So many bytes acknowledged let go at most twice as many.
            if sample.lost > 0 {
                cwnd = cwnd.saturating_sub(sample.lost).max(mss);
            }
            if sample.phase == Phase::Recovery && before != Phase::Recovery {
                self.conserves_packets = true;
                self.round_end = sample.delivered;
                cwnd = sample.in_flight + sample.acked;
            } else if before != Phase::Open && sample.phase == Phase::Open {
                cwnd = cwnd.max(u64::from(self.prior_cwnd));
                self.conserves_packets = false;
            }
            self.prior_phase = Some(sample.phase);
            if self.conserves_packets {
                cwnd = cwnd.max(sample.in_flight + sample.acked);
            } else {
                let target = self.bdp(self.estimate(), self.cwnd_gain.into(), mss);
                let target = target + self.excess_segments(mss);
                let target = self.with_bursts(target, *control.pacing_rate, mss) * mss;
                if self.is_full {
                    cwnd = (cwnd + sample.acked).min(target);
                } else if cwnd < target || sample.delivered < SEGMENTS_INITIAL * mss {
                    cwnd += sample.acked;
                }
                cwnd = cwnd.max(SEGMENTS_MIN * mss);
            }
        }
        if self.mode == Mode::ProbeRtt {
            cwnd = cwnd.min(SEGMENTS_MIN * mss);
        }
        control.window.cwnd = u32::try_from(cwnd).unwrap_or(u32::MAX).min(super::WINDOW_MAX);
    }

    /// The connection stands; `min_rtt_ns` is what is known of the path.
    pub fn on_start(
        &mut self,
        control: &mut Control<'_>,
        sample: &Sample,
        min_rtt_ns: Option<u64>,
    ) {
        *self = Self { min_rtt_ns, min_rtt_at: sample.now.0, ..Self::default() };
        control.window.ssthresh = u32::MAX;
        self.excess_at = sample.now.0;
        self.pace_by_rtt(control, sample.srtt_ns);
        self.forget_long_term(sample);
        self.update_gains();
    }

    /// Sending begins again after a time with nothing in flight; what is sent is limited by the
    /// application.
    pub fn on_restart(&mut self, control: &mut Control<'_>, sample: &Sample) {
        self.is_idle_restart = true;
        self.excess_at = sample.now.0;
        self.excess_acked = 0;
        match self.mode {
            Mode::ProbeBandwidth => self.pace(control, self.estimate(), UNIT, sample.srtt_ns),
            Mode::ProbeRtt => self.end_probe_rtt(control, sample),
            Mode::Startup | Mode::Drain => {}
        }
    }
}

impl Algorithm for Bbr {
    fn on_ack(&mut self, _: &mut Window, _: &Ack) {}

    fn on_loss(&mut self, window: &Window, _: u32, _: u32) -> u32 {
        self.save_cwnd(window);
        window.ssthresh
    }

    fn on_timeout(&mut self) {
        self.prior_phase = Some(Phase::Loss);
        self.full_rate = 0;
        self.round_begins = true;
    }

    fn on_idle(&mut self, _: u64) {}

    fn on_undo(&mut self) {
        self.full_rate = 0;
        self.full_rounds = 0;
        self.long = LongTerm::default();
    }

    fn on_sample(&mut self, control: &mut Control<'_>, sample: &Sample) {
        self.update_rate(sample);
        self.update_excess(sample, control.window.cwnd.into());
        self.update_cycle(control, sample);
        self.update_fullness(sample);
        self.update_drain(control, sample);
        self.update_min_rtt(control, sample);
        self.update_gains();
        self.pace(control, self.estimate(), self.pacing_gain.into(), sample.srtt_ns);
        self.set_cwnd(control, sample);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;
    use crate::api::Instant;
    use crate::tcp::rate::RateSample;

    #[test]
    fn the_highest_rate_is_forgotten_after_ten_rounds() {
        let mut highest = Highest::default();
        highest.add(0, 100);
        for round in 1..=10 {
            highest.add(round, 50);
            assert_eq!(highest.get(), 100, "{round}");
        }
        highest.add(11, 50);
        assert_eq!(highest.get(), 50);
        highest.add(12, 70);
        assert_eq!(highest.get(), 70);
    }

    /// A path of 1 MB/s and 40 ms with nothing lost: a round trip at a time.
    #[test]
    fn the_window_settles_at_twice_the_path_and_the_rate_at_the_paths() {
        let mut bbr = Bbr::default();
        let mut window = Window::initial(1000);
        let mut rate = 0;
        let mut control =
            Control { window: &mut window, pacing_rate: &mut rate, limits_application: false };
        let first = Sample { now: Instant(SECOND), srtt_ns: 40 * MILLISECOND, ..sample() };
        bbr.on_start(&mut control, &first, Some(40 * MILLISECOND));
        let (mut now, mut delivered) = (SECOND, 0);
        for round in 0..60 {
            let flight = u64::from(control.window.cwnd).min(120_000);
            let queued = flight.saturating_sub(40_000);
            let rtt_ns = 40 * MILLISECOND + queued * 1000;
            now += rtt_ns;
            let prior_delivered = delivered;
            delivered += flight;
            let rate = RateSample {
                delivered: flight,
                interval_ns: rtt_ns,
                prior_delivered,
                is_app_limited: false,
            };
            let sample = Sample {
                now: Instant(now),
                srtt_ns: rtt_ns,
                rtt_ns: Some(rtt_ns),
                acked: flight,
                prior_in_flight: flight,
                in_flight: 0,
                rate: Some(rate),
                delivered,
                delivered_at: now,
                ..sample()
            };
            bbr.on_sample(&mut control, &sample);
            if round > 20 {
                assert_eq!(bbr.mode, Mode::ProbeBandwidth);
                assert!((900_000..=1_010_000).contains(&bbr.estimate()), "{}", bbr.estimate());
            }
        }
        // Twice the path, and what is acknowledged at once.
        assert!((76_000..=190_000).contains(&control.window.cwnd), "{}", control.window.cwnd);
        assert!((700_000..=1_300_000).contains(control.pacing_rate));
    }

    #[test]
    fn a_recovery_conserves_packets_and_gives_the_window_back() {
        let mut bbr = Bbr { is_full: true, mode: Mode::ProbeBandwidth, ..Bbr::default() };
        bbr.min_rtt_ns = Some(40 * MILLISECOND);
        bbr.rate.add(0, 1_000_000);
        bbr.cycle = 3;
        bbr.update_gains();
        let mut window = Window { cwnd: 80_000, ssthresh: u32::MAX };
        let mut rate = 1_000_000;
        assert_eq!(bbr.on_loss(&window, 80_000, 1000), u32::MAX);
        let mut control =
            Control { window: &mut window, pacing_rate: &mut rate, limits_application: false };
        let in_recovery = Sample {
            phase: Phase::Recovery,
            acked: 1000,
            lost: 2000,
            in_flight: 70_000,
            ..sample()
        };
        bbr.set_cwnd(&mut control, &in_recovery);
        assert_eq!(control.window.cwnd, 71_000);
        bbr.set_cwnd(&mut control, &Sample { acked: 1000, in_flight: 60_000, ..sample() });
        assert_eq!(control.window.cwnd, 81_000);
    }
}
