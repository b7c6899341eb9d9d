//! What happens when time passes: retransmission, probes, delayed acknowledgement, keepalive,
//! giving up.

use super::connection::{Connection, NEVER, SendTimer, Shared, Step};
use super::mtu::RETRIES_SUSPICIOUS;
use super::rtt::{MILLISECOND, RTO_NS_MIN, SECOND, patience_ns};
use super::settings::{MtuProbing, TcpSettings};
use crate::api::{Instant, TcpError, TcpState};

/// tcp_retries2: 924.6 s.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.3
//# The value of R2 SHOULD correspond to at least 100 seconds (SHLD-11).
pub const RETRIES: u32 = 15;
/// tcp_orphan_retries as Linux takes 0: a connection that no program owns.
const ORPHAN_RETRIES: u32 = 8;
/// SYNs that are sent again without the timeout being doubled, as by Linux since 6.5.
const SYN_LINEAR_TIMEOUTS: u8 = 4;
/// tcp_fin_timeout: how long an orphan waits for the peer's FIN.
pub const FIN_TIMEOUT_NS: u64 = 60 * SECOND;

impl Connection<'_> {
    /// Starts or restarts the retransmission timer.
    pub fn restart_retransmit_timer(&mut self, now: Instant) {
        self.cold.rto_at = self.timeout_at(now);
        self.hot.send_timer = SendTimer::Retransmit;
        self.hot.send_at = self.cold.rto_at;
    }

    /// When the retransmission timer runs out if it is started now.
    pub fn timeout_at(&self, now: Instant) -> u64 {
        match self.cold.retries {
            0 => now.0.saturating_add(self.hot.rtt.rto_ns()),
            _ => self.next_try_at(now),
        }
    }

    /// When to try again after a try that was not the first: where the program or the peer has said how
    /// long it waits, it is to end then, and not with the next try after it.
    fn next_try_at(&self, now: Instant) -> u64 {
        let next = now.0.saturating_add(self.hot.rtt.rto_ns());
        // SYN and ACKs go on for so many times, whatever the program has said.
        let is_answering = self.hot.state == TcpState::SynReceived || self.hot.syn_unacked;
        match self.user_timeout_ns().filter(|_| !is_answering) {
            None => next,
            Some(user) => next.min(self.timeout_since().saturating_add(user).max(now.0)),
        }
    }

    /// Stops whatever the transmission timer stands for.
    pub fn stop_send_timer(&mut self) {
        self.hot.send_timer = SendTimer::Idle;
        self.hot.send_at = NEVER;
    }

    /// An orphan does not wait for the peer's FIN for ever.
    pub fn limit_fin_wait(&mut self, step: &mut Step<'_>) {
        let wait_ns = match self.cold.options.linger2_s {
            0 => FIN_TIMEOUT_NS,
            s => match u64::try_from(s) {
                Ok(s) => s * SECOND,
                Err(_) => return self.abort(step),
            },
        };
        self.cold.keep_at = step.now.0.saturating_add(wait_ns);
    }

    /// Sets the keepalive timer according to the options.
    pub fn restart_keepalive(&mut self, now: Instant) {
        if self.hot.orphan {
            return;
        }
        let lives = self.hot.state.is_synchronized() && !self.hot.state.is_over();
        self.cold.keep_at = if self.cold.options.keepalive && lives {
            let last = self.hot.received_at.max(self.hot.sent_at);
            last.saturating_add(self.keep_idle_ns()).max(now.0)
        } else {
            NEVER
        };
    }

    /// Serves every deadline that has come.
    pub fn on_deadline(&mut self, step: &mut Step<'_>) {
        let now = step.now.0;
        if self.hot.ack_at <= now {
            self.hot.ack_at = NEVER;
            step.shared.counters.delayed_acks += 1;
            self.hot.interactive = false;
            self.owe_ack(step);
        }
        if self.hot.send_at <= now {
            step.ready |= self.try_refused();
            match self.hot.send_timer {
                SendTimer::Idle => self.hot.send_at = NEVER,
                SendTimer::Retransmit => self.on_retransmit_timeout(step),
                SendTimer::Reorder => self.on_reorder_timeout(step),
                SendTimer::TailProbe => self.on_probe_timeout(step),
                SendTimer::Persist => self.on_persist_timeout(step),
                SendTimer::Refused => self.on_refused_timeout(step),
                SendTimer::Cork => {
                    self.stop_send_timer();
                    self.hot.probe_due = true;
                    step.ready = true;
                }
            }
        }
        if let Some(pacer) = self.cold.pacer.as_deref_mut().filter(|pacer| pacer.wake <= now) {
            pacer.wake = NEVER;
            step.ready = true;
        }
        if self.hot.send_timer == SendTimer::Idle {
            // Quiet for as long as the timer that ran out.
            self.cold.scoreboard.release();
        }
        if self.cold.keep_at <= now && self.hot.state != TcpState::Closed {
            self.on_keepalive(step);
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc6298#section-5
    //# Retransmit the earliest segment that has not been acknowledged
    //# by the TCP receiver.
    fn on_retransmit_timeout(&mut self, step: &mut Step<'_>) {
        let now = step.now;
        if self.cold.retries == 0 {
            self.cold.stuck_since = now.0.saturating_sub(self.hot.rtt.rto_ns());
        }
        step.shared.counters.timeouts += 1;
        let is_given_up = self.is_given_up(now, &step.shared.settings);
        // As Linux: at the third timeout in a row, or when it is given up before.
        let is_suspicious = self.cold.retries == 2 || (self.cold.retries < 2 && is_given_up);
        if self.cold.fast_opened && is_suspicious {
            let Shared { servers, settings, counters, .. } = &mut *step.shared;
            counters.fast_open_pauses += u64::from(servers.pause(now, settings.fast_open_pause_s));
        }
        if is_given_up {
            self.give_up(step);
            return;
        }
        self.count_timeout(now);
        self.cold.retries = self.cold.retries.saturating_add(1);
        // The first SYNs go at an even pace (tcp_syn_linear_timeouts).
        if self.hot.state != TcpState::SynSent || self.cold.retries > SYN_LINEAR_TIMEOUTS {
            self.hot.rtt.on_timeout();
        }
        if self.hot.is_opening() || self.hot.syn_unacked {
            // The peer has got it; just before the end of the patience it is reminded (as Linux).
            let defer = self.cold.options.defer_accept;
            let is_quiet = self.cold.deferred && self.cold.retries < defer.saturating_sub(1);
            // It may still be waiting for a neighbour.
            if !is_quiet && !std::mem::replace(&mut self.hot.syn_due, true) {
                let rare = self.cold.rare_mut();
                rare.retransmits = rare.retransmits.wrapping_add(1);
                step.shared.counters.retransmits += 1;
            }
        } else {
            let probing = step.shared.settings.mtu_probing;
            //= https://www.rfc-editor.org/rfc/rfc8899#section-4.3
            //# A DPLPMTUD method MUST NOT rely solely on this method.
            let is_suspicious = self.cold.retries >= RETRIES_SUSPICIOUS && self.hot.snd_wnd > 0;
            if is_suspicious && probing != MtuProbing::Off {
                step.shared.counters.black_holes += 1;
                self.suspect_black_hole(now, step.shared.settings.base_mss);
            }
            self.enter_loss(step);
        }
        self.restart_retransmit_timer(now);
        step.ready = true;
    }

    /// Whether the peer has been silent for too long.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6
    //# The sender MAY also
    //# retransmit old data beyond SND.UNA+SND.WND (MAY-7), but SHOULD NOT
    //# time out the connection if data beyond the right window edge is not
    //# acknowledged (SHLD-17).
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.3
    //# (d) An application MUST (MUST-21) be able to set the value for R2 for a particular
    //# connection.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.3
    //# SYN retransmissions MUST be handled in the general way just described for data
    //# retransmissions, including notification of the application layer.
    fn is_given_up(&self, now: Instant, settings: &TcpSettings) -> bool {
        let waited = now.0.saturating_sub(self.cold.stuck_since);
        let user = u64::from(self.cold.options.user_timeout_ms) * MILLISECOND;
        let adopted = self.is_adopted_over(now);
        let syn_retries = |usual| match self.cold.options.syn_retries {
            0 => usual,
            own => own,
        };
        match self.hot.state {
            // Linux gives them one more than other SYN and ACKs, unless the program says how many.
            _ if self.hot.syn_unacked => {
                self.cold.retries >= syn_retries(settings.syn_ack_retries.saturating_add(1))
            }
            TcpState::SynReceived => {
                let patience = if self.cold.deferred { self.cold.options.defer_accept } else { 0 };
                self.cold.retries >= syn_retries(settings.syn_ack_retries).max(patience)
            }
            TcpState::SynSent => {
                let most = syn_retries(settings.syn_retries);
                // Those at an even pace come on top of what was asked for, but not beyond the time
                // that it would have taken without them, or that the program waits (as Linux).
                let patience = match user {
                    0 => patience_ns(most.into(), SECOND, self.hot.rtt.most_ns()),
                    user => user,
                };
                self.cold.retries >= most.saturating_add(SYN_LINEAR_TIMEOUTS)
                    || (self.cold.retries > 0 && waited >= patience)
            }
            _ if user > 0 => waited >= user && self.cold.retries > 0,
            _ if adopted.is_some() => adopted == Some(true),
            // A window shrunk to nothing over what is under way: each repetition is a probe, and
            // only a peer that answers none is gone.
            _ if self.hot.snd_wnd == 0 && !self.hot.orphan => {
                waited.min(now.0.saturating_sub(self.hot.received_at)) > 2 * self.hot.rtt.most_ns()
            }
            _ => {
                let retries = if self.hot.orphan { ORPHAN_RETRIES } else { RETRIES };
                waited >= patience_ns(retries, RTO_NS_MIN, self.hot.rtt.most_ns())
            }
        }
    }

    pub(super) fn give_up(&mut self, step: &mut Step<'_>) {
        step.shared.counters.timed_out += 1;
        let error = self.cold.soft_error.unwrap_or(TcpError::TimedOut);
        self.die(step, error);
        // Also those of one that was dead before, or the one that ran out would do so for ever.
        self.stop_timers();
    }

    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.1
    //# SHOULD increase exponentially the interval
    //# between successive probes (SHLD-30).
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6
    //# If the window shrinks to zero, the TCP implementation MUST probe it in the standard way
    //# (described below) (MUST-35).
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.1
    //# Probing of zero (offered) windows MUST be supported (MUST-36).
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.1
    //# As long as the receiving TCP peer continues to send acknowledgments in response to the
    //# probe segments, the sending TCP peer MUST allow the connection to stay open (MUST-37).
    pub(super) fn on_persist_timeout(&mut self, step: &mut Step<'_>) {
        let now = step.now;
        if self.cold.stuck_since == NEVER {
            self.cold.stuck_since = now.0;
        } else if self.is_probed_enough(now) {
            self.give_up(step);
            return;
        }
        self.cold.retries = self.cold.retries.saturating_add(1);
        // Doubles whether or not the peer answers; only an open window ends it.
        self.hot.rtt.on_timeout();
        self.hot.send_at = self.next_try_at(now);
        self.hot.probe_due = true;
        step.shared.counters.window_probes += 1;
        step.ready = true;
    }

    /// Whether probes have gone on for too long, as Linux judges it: a peer that answers them may keep
    /// its window shut for ever (MUST-37), unless the program has said how long it waits, or is gone. One
    /// that has told its user timeout (RFC 5482) is given so long to answer.
    /// Of an orphan's peer nothing is awaited when the intervals have become as long as they get.
    pub(super) fn is_probed_enough(&self, now: Instant) -> bool {
        let rtt = &self.hot.rtt;
        let user = u64::from(self.cold.options.user_timeout_ms) * MILLISECOND;
        let waited = now.0.saturating_sub(self.cold.stuck_since);
        if user > 0 && waited >= user {
            return true;
        }
        if let Some(is_over) = self.is_adopted_over(now) {
            return is_over;
        }
        let retries = if self.hot.orphan { ORPHAN_RETRIES } else { RETRIES };
        if self.hot.send_timer == SendTimer::Refused {
            // Tries at an even pace.
            return waited >= patience_ns(retries, RTO_NS_MIN, rtt.most_ns());
        }
        let is_rare = rtt.rto_ns() >= rtt.most_ns();
        self.hot.orphan && is_rare || u32::from(self.cold.retries) >= retries
    }

    fn on_keepalive(&mut self, step: &mut Step<'_>) {
        let now = step.now;
        if self.hot.orphan {
            if self.hot.state == TcpState::FinWait2 {
                // The peer may keep its half open for ever; nobody here would read it.
                self.die(step, TcpError::TimedOut);
            } else {
                self.cold.keep_at = NEVER;
            }
            return;
        }
        let options = *self.cold.options;
        if !options.keepalive {
            self.cold.keep_at = NEVER;
            return;
        }
        let idle = self.keep_idle_ns();
        let quiet_since = self.hot.received_at;
        let is_probing = matches!(self.hot.send_timer, SendTimer::Persist | SendTimer::Refused);
        let outstanding = self.hot.flight() > 0 || is_probing;
        if outstanding || now.0 < quiet_since.saturating_add(idle) {
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.4
            //# Keep-alive packets MUST only be sent when no sent data is
            //# outstanding, and no data or acknowledgment packets have been received
            //# for the connection within an interval (MUST-26).
            let base = if outstanding { now.0 } else { quiet_since };
            self.cold.keep_at = base.saturating_add(idle);
            return;
        }
        let user = u64::from(options.user_timeout_ms) * MILLISECOND;
        let waited = now.0.saturating_sub(quiet_since);
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.4
        //# Consequently, if a keep-alive mechanism is implemented it MUST NOT interpret failure to
        //# respond to any specific probe as a dead connection (MUST-29).
        let spent = if user > 0 {
            waited >= user && self.cold.keep_probes > 0
        } else {
            u32::from(self.cold.keep_probes) >= options.keepcnt
        };
        if spent {
            self.abort_with(step, TcpError::TimedOut);
            step.shared.counters.timed_out += 1;
            return;
        }
        self.cold.keep_probes = self.cold.keep_probes.saturating_add(1);
        step.shared.counters.keepalive_probes += 1;
        self.hot.probe_due = true;
        step.ready = true;
        self.cold.keep_at = now.0.saturating_add(seconds(options.keepintvl_s));
    }
}

fn seconds(s: u32) -> u64 {
    u64::from(s.max(1)) * SECOND
}
