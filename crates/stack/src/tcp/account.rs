//! What a congestion control is told beside losses: samples of the path with each acknowledgement,
//! and whether the window was used at all.

use super::congestion::{Control, Sample, Window};
use super::connection::{Connection, Phase, Step};
use super::progress::millis;
use super::rack::Delivery;
use super::rtt::MILLISECOND;
use super::settings::TcpSettings;
use crate::api::Instant;

/// What was known before an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub struct Before {
    /// Bytes in flight.
    in_flight: u64,
    /// Bytes outstanding.
    outstanding: u64,
    /// Bytes ever counted as lost.
    lost: u64,
}

/// An acknowledgement that has been taken.
#[derive(Clone, Copy)]
pub struct TakenAck<'a> {
    /// What was known before.
    pub before: Before,
    /// What it says has arrived.
    pub delivery: &'a Delivery,
    /// Bytes that have arrived by it.
    pub delivered: u64,
    /// It echoes congestion.
    pub marked: bool,
}

/// Segments after which the rate of delivery is measured whatever the congestion control.
const MEASURED_FROM: u64 = 10;

impl Connection<'_> {
    /// What an acknowledgement may change.
    pub fn before_ack(&self) -> Before {
        let lost = self.cold.scoreboard.lost_ever();
        Before { in_flight: self.pipe(), outstanding: self.hot.flight(), lost }
    }

    fn sample(&self, now: Instant) -> Sample {
        let (hot, cold) = (&*self.hot, &*self.cold);
        let rate = cold.rate.as_deref().copied().unwrap_or_default();
        let in_flight = self.pipe();
        Sample {
            now,
            mss: u32::from(hot.mss.max(1)),
            una: hot.una,
            nxt: hot.nxt,
            acked: 0,
            lost: 0,
            srtt_ns: hot.rtt.srtt_ns().unwrap_or(0),
            rtt_ns: None,
            is_ack_delayed: false,
            prior_in_flight: in_flight,
            in_flight,
            rate: None,
            delivered: rate.delivered,
            delivered_at: rate.delivered_at,
            marked: rate.marked,
            total_lost: cold.scoreboard.lost_ever(),
            paced_ahead_ns: cold.pacer.as_ref().map_or(0, |pacer| pacer.ahead_ns(now)),
            phase: hot.phase,
        }
    }

    /// Lets the algorithm act on window and rate.
    fn control(&mut self, act: impl FnOnce(&mut super::congestion::Congestion, &mut Control<'_>)) {
        let mut pacing_rate = self.cold.pacer.as_ref().map_or(u64::MAX, |pacer| pacer.rate);
        let window = &mut self.hot.window;
        let mut control =
            Control { window, pacing_rate: &mut pacing_rate, limits_application: false };
        act(&mut self.cold.congestion, &mut control);
        let limits_application = control.limits_application;
        if self.cold.congestion.models_path()
            && let Some(pacer) = &mut self.cold.pacer
        {
            pacer.rate = pacing_rate.max(1);
        }
        self.limit_pace();
        if limits_application {
            let in_flight = self.pipe();
            if let Some(rate) = &mut self.cold.rate {
                rate.limit_by_application(in_flight);
            }
        }
    }

    /// The connection stands, or has another algorithm from now on.
    pub fn start_algorithm(&mut self, now: Instant, settings: &TcpSettings) {
        self.equip(settings);
        self.cold.congestion.set_hystart(settings.hystart);
        let (sample, min_rtt) = (self.sample(now), self.cold.rack.min_rtt_ns());
        self.control(|algorithm, control| algorithm.on_start(control, &sample, min_rtt));
        if !self.cold.congestion.models_path() {
            self.pace_by_window();
        }
    }

    /// An acknowledgement has been taken.
    pub fn account_for_ack(&mut self, now: Instant, taken: &TakenAck<'_>) {
        let TakenAck { before, delivery, delivered, marked } = *taken;
        let min_rtt_ns = self.cold.rack.min_rtt_ns().unwrap_or(0);
        let Some(rate) = &mut self.cold.rate else {
            self.pace_by_window();
            return;
        };
        let estimate = rate.on_delivered(now, delivered, marked, min_rtt_ns);
        let mss = u64::from(self.hot.mss);
        let sample = Sample {
            acked: delivered,
            lost: self.cold.scoreboard.lost_ever() - before.lost,
            rtt_ns: delivery.rtt_ns,
            is_ack_delayed: before.outstanding < mss && delivery.sacked == 0,
            prior_in_flight: before.in_flight,
            rate: estimate,
            ..self.sample(now)
        };
        use super::congestion::Algorithm;
        self.control(|algorithm, control| algorithm.on_sample(control, &sample));
        if !self.cold.congestion.models_path() {
            self.pace_by_window();
        }
    }

    /// Data is about to be sent; what is remembered of its sending.
    pub fn account_for_sending(&mut self, now: Instant) -> super::rate::Snapshot {
        let (outstanding, in_flight) = (self.hot.flight(), self.pipe());
        if self.cold.rate.is_none() && self.hot.nxt >= MEASURED_FROM * u64::from(self.hot.mss) {
            // Once, of those who send much: for what TCP_INFO tells.
            self.cold.rate = Some(Box::default());
        }
        let Some(rate) = &mut self.cold.rate else { return Default::default() };
        let snapshot = rate.on_sent(now, outstanding == 0);
        if in_flight == 0 && rate.is_app_limited() && self.cold.congestion.models_path() {
            let sample = self.sample(now);
            self.control(|algorithm, control| algorithm.on_restart(control, &sample));
        }
        snapshot
    }

    /// The program is about to write more: whether it, not the network, was the limit.
    pub fn note_lack_of_data(&mut self) {
        if self.cold.rate.is_none() {
            return;
        }
        let hot = &*self.hot;
        let is_dry = hot.written.saturating_sub(hot.nxt) < u64::from(hot.mss);
        let in_flight = self.pipe();
        let has_room = in_flight < u64::from(hot.window.cwnd);
        if is_dry
            && has_room
            && self.cold.scoreboard.lost_bytes() == 0
            && let Some(rate) = &mut self.cold.rate
        {
            rate.limit_by_application(in_flight);
        }
    }

    /// Whether the congestion window is in use: in slow start also where half of it is (Linux's
    /// tcp_is_cwnd_limited).
    pub fn is_cwnd_limited(&self) -> bool {
        let hot = &*self.hot;
        let flight = u32::try_from(hot.flight()).unwrap_or(u32::MAX);
        hot.cwnd_limited || hot.window.in_slow_start() && hot.window.cwnd < flight.saturating_mul(2)
    }

    /// The window holds something back.
    pub fn note_limit(&mut self) {
        self.note_usage(true);
    }

    /// What of the window is used: judged anew when what was sent then has been acknowledged, as
    /// Linux's tcp_cwnd_validate.
    fn note_usage(&mut self, limited: bool) {
        let flight = u32::try_from(self.hot.flight()).unwrap_or(u32::MAX);
        let (hot, usage) = (&mut *self.hot, &mut self.cold.usage);
        let is_over = (hot.una as u32).wrapping_sub(usage.until).cast_signed() >= 0;
        if limited || is_over || (!hot.cwnd_limited && flight > usage.most) {
            hot.cwnd_limited = limited;
            usage.most = flight;
            usage.until = hot.nxt as u32;
        }
    }

    /// After data was sent: a window that has not been used for a timeout comes down half way to
    /// what was used, as in Linux, which follows RFC 2861 and not its successor, RFC 7661.
    pub fn validate_window(&mut self, step: &mut Step<'_>) {
        let now = step.now;
        let hot = &mut *self.hot;
        let flight = u32::try_from(hot.flight()).unwrap_or(u32::MAX);
        // No whole segment more: what the window has beyond them is never used.
        let is_full = self.pipe() + u64::from(self.hot.mss) > u64::from(self.hot.window.cwnd);
        self.note_usage(is_full);
        if self.is_cwnd_limited() {
            let usage = &mut self.cold.usage;
            (usage.used, usage.at_ms) = (0, millis(now.0));
            return;
        }
        if self.cold.waits_for_room {
            self.note_doing(now);
        }
        let (hot, usage) = (&mut *self.hot, &mut self.cold.usage);
        let window = &mut hot.window;
        usage.used = usage.used.max(flight);
        let comes_down = step.shared.settings.slow_start_after_idle;
        let unused_ms = millis(now.0).wrapping_sub(usage.at_ms);
        let is_unused = u64::from(unused_ms) * MILLISECOND >= hot.rtt.rto_ns();
        if !is_unused || !comes_down || self.cold.congestion.models_path() {
            return;
        }
        if hot.phase == Phase::Open && self.cold.prr.is_none() {
            let least = Window::first(hot.mss, &self.cold.options.path).cwnd;
            let used = usage.used.max(least);
            if used < window.cwnd {
                window.ssthresh = window.ssthresh.max(window.cwnd / 4 * 3);
                window.cwnd = window.cwnd.midpoint(used);
                step.shared.counters.unused_windows_reduced += 1;
            }
            usage.used = 0;
        }
        usage.at_ms = millis(now.0);
    }
}
