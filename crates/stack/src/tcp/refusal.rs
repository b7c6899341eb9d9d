//! Segments that a queue of this machine has dropped and that the port says so of: they were never sent.
//!
//! As Linux does it (tcp_write_xmit, tcp_probe_timer): the window is reduced as for a mark, and the segment
//! waits until the program writes, something comes, or a timer runs out. Where nothing else is under way that
//! is the timer of window probes, but at an even pace, so that those who fight for a queue do not starve.

use super::connection::{Connection, NEVER, Phase, SendTimer, Step};
use super::rtt::MILLISECOND;
use super::tables::Tcp;
use crate::api::{Instant, Payload};

/// TCP_RESOURCE_PROBE_INTERVAL.
const RETRY_NS: u64 = 500 * MILLISECOND;

impl Connection<'_> {
    /// The segment was refused that [`emit`](Self::emit) has just given, with these bytes.
    pub fn on_refused(&mut self, step: &mut Step<'_>, start: u64, bytes: u64) {
        step.shared.counters.segments_refused += 1;
        let reduces = self.reduce_once();
        self.hot.refused = true;
        if let Some(prr) = &mut self.cold.prr {
            prr.take_back(bytes);
        }
        let end = start.saturating_add(bytes);
        let is_last = end == self.hot.nxt || end.saturating_add(1) == self.hot.nxt;
        if is_last && self.cold.scoreboard.take_back(start) {
            self.take_back(step.now, start);
            if reduces {
                self.cold.recover = start;
            }
        } else if self.hot.phase != Phase::Open {
            if let Some(undo) = &mut self.cold.undo {
                undo.take_back(bytes);
            }
            self.cold.scoreboard.lose(start, end);
            if self.hot.phase == Phase::Loss && start == self.hot.una {
                let retry = step.now.0.saturating_add(RETRY_NS);
                self.cold.rto_at = self.cold.rto_at.min(retry);
                self.arm_send_timer(step.now);
            }
        }
        self.note_doing(step.now);
    }

    /// What was sent from `start` on was not.
    fn take_back(&mut self, now: Instant, start: u64) {
        let hot = &mut *self.hot;
        hot.nxt = start;
        hot.small_end = hot.small_end.min(start);
        hot.pushed = hot.pushed.min(start);
        self.cold.tlp.reset();
        self.forget_probe();
        if let Some(stamps) = self.cold.stamps_mut() {
            stamps.take_back(start);
        }
        // What is under way, or our SYN, has a timer of its own.
        if self.hot.flight() > 0 || self.hot.syn_unacked {
            return;
        }
        self.cold.reorder_at = NEVER;
        let first = now.0.saturating_add(self.hot.rtt.rto_ns());
        let rare = self.cold.rare_mut();
        // What the program writes meanwhile does not put it off.
        let is_first = rare.refused_until <= now.0;
        if is_first {
            rare.refused_until = first;
        }
        self.hot.send_at = rare.refused_until;
        self.hot.send_timer = SendTimer::Refused;
        if is_first {
            // The tries that count are those from here on, and not keepalives from before.
            self.cold.keep_probes = 0;
        }
    }

    /// The queue may have room again.
    pub fn on_refused_timeout(&mut self, step: &mut Step<'_>) {
        if self.is_window_closed() {
            self.hot.send_timer = SendTimer::Persist;
            if self.cold.keep_probes == 0 {
                self.cold.stuck_since = NEVER;
            }
            self.on_persist_timeout(step);
            return;
        }
        let now = step.now;
        if self.cold.keep_probes == 0 {
            self.cold.stuck_since = now.0;
        } else if self.is_probed_enough(now) {
            self.give_up(step);
            return;
        }
        self.cold.keep_probes = self.cold.keep_probes.saturating_add(1);
        let retry = now.0.saturating_add(RETRY_NS);
        self.cold.rare_mut().refused_until = retry;
        self.hot.send_at = retry;
        self.hot.probe_due = true;
        step.ready = true;
    }

    /// Something has happened after which what was refused may be tried again. Whether there is such.
    pub fn try_refused(&mut self) -> bool {
        std::mem::take(&mut self.hot.refused)
    }
}

impl Tcp {
    /// The port has refused what was given to it last, with this payload.
    pub fn on_refused(&mut self, now: Instant, payload: &Payload) {
        // Without data it goes again as if it had been lost.
        let Payload::Stream { id, offset, len, .. } = *payload else { return };
        let Ok(index) = self.slot(id) else { return };
        self.with(now, index, |connection, step| {
            // The port may have held it while the connection died.
            if !connection.hot.is_opening() && !connection.hot.state.is_over() {
                connection.on_refused(step, offset, len.into());
            }
        });
    }
}
