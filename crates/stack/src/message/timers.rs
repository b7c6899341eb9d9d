//! What happens when time passes.

use super::DEAD_NS;
use super::api::{Memory, Status};
use super::ring::{Content, Control};
use super::slab::AssociationId;
use super::{Bugs, Core, Planted};
use crate::api::Instant;

/// A host that owes something is asked after so long a silence, nanoseconds.
const SILENCE_NS: u64 = 5_000_000_000;

impl<B: Bugs> Core<B> {
    /// When [`on_timers`](Self::on_timers) has something to do, as far as
    /// [`poll_transmit`](Self::poll_transmit) has come: it sets the timers of what it has looked at.
    pub fn next_deadline(&self) -> Option<u64> {
        let at = self.wheel.next().map(|at| at.0);
        at.into_iter().chain(self.local.deadline()).min()
    }

    /// Does what is due: acknowledges, sends again, gives up.
    pub fn on_timers(&mut self, now: u64, memory: &mut dyn Memory) {
        self.now = now;
        while let Some(index) = self.wheel.expire(Instant(now)) {
            if let Some(id) = self.associations.at(index) {
                self.on_timer(id, memory);
            }
        }
        if self.local.deadline().is_some_and(|at| at <= now) {
            self.resume_locally(memory);
        }
    }

    fn on_timer(&mut self, id: AssociationId, memory: &mut dyn Memory) {
        let now = self.now;
        let it = &mut self.associations[id];
        if it.timeout_at.is_some() && now >= it.progress_at + DEAD_NS {
            return self.end_association(id, Status::TimedOut, memory);
        }
        if it.owed.due.is_some_and(|due| now >= due) {
            it.owed.at_once = true;
        }
        for mark in &mut it.marks {
            mark.go |= now >= mark.at;
        }
        if it.reorder_at.is_some_and(|at| now >= at) {
            self.detect_losses(id);
        }
        let it = &mut self.associations[id];
        if it.timeout_at.is_some_and(|at| now >= at) {
            self.on_timeout(id);
        }
        let it = &mut self.associations[id];
        if it.owes() && it.ring.unacknowledged == 0 && now >= it.heard_at + SILENCE_NS {
            it.heard_at = now;
            it.control(Control::Probe);
        }
        self.touch(id);
    }

    fn on_timeout(&mut self, id: AssociationId) {
        let now = self.now;
        let no_resend = self.bugs.has(Planted::NoResend);
        let it = &mut self.associations[id];
        if it.ring.unacknowledged == 0 {
            it.timeout_at = None;
            return;
        }
        if it.probing {
            it.probing = false;
            let last = it.ring.last_unacknowledged();
            if let Some(last) = last.filter(|_| !no_resend) {
                it.ring.on_lost(last);
            }
            it.timeout_at = Some(now + it.pace.timeout());
            return;
        }
        it.pace.on_timeout();
        it.pace.recovery = it.ring.next();
        for sequence in it.ring.base..it.ring.next() {
            if !no_resend {
                it.ring.on_lost(sequence);
            }
        }
        it.timeout_at = Some(now + it.pace.timeout());
        self.counters.timeouts += 1;
    }

    /// Starts the time in which an acknowledgement must come.
    pub(super) fn arm_timeout(&mut self, id: AssociationId) {
        let now = self.now;
        let it = &mut self.associations[id];
        if it.ring.unacknowledged == 0 {
            it.timeout_at = None;
            return;
        }
        let probe = it.pace.tail_probe().filter(|_| it.pace.backoff == 0);
        it.probing = probe.is_some();
        it.timeout_at = Some(now + probe.unwrap_or_else(|| it.pace.timeout()));
    }

    /// Sets the association's timer to what comes first.
    pub(super) fn set_timer(&mut self, id: AssociationId) {
        let it = &self.associations[id];
        let dead = it.timeout_at.map(|_| it.progress_at + DEAD_NS);
        let silence = it.owes().then_some(it.heard_at + SILENCE_NS);
        let silence = silence.filter(|_| it.ring.unacknowledged == 0);
        let owed = it.owed.due.filter(|_| !it.owed.at_once);
        let marks = it.marks.iter();
        let resume = marks
            .filter(|mark| mark.resuming.is_none() && !mark.go && !mark.queue.is_empty())
            .map(|mark| mark.at)
            .min();
        let all = [dead, silence, owed, it.reorder_at, it.timeout_at, resume];
        match all.into_iter().flatten().min() {
            Some(at) => self.wheel.set(id.index, Instant(at.max(self.now))),
            None => self.wheel.cancel(id.index),
        }
    }

    /// Takes frames for lost that others overtook by more than the reordering window.
    pub(super) fn detect_losses(&mut self, id: AssociationId) {
        let now = self.now;
        if self.bugs.has(Planted::NoResend) {
            return;
        }
        let it = &mut self.associations[id];
        it.reorder_at = None;
        let window = it.pace.latest + it.pace.reordering();
        let delivered_at = it.delivered_at;
        let older = it
            .ring
            .first_unacknowledged()
            .is_some_and(|(_, first)| first.sent && (first.sent_at <= delivered_at));
        if !older && it.ring.resent == 0 {
            return;
        }
        let mut lost = false;
        for sequence in it.ring.base..it.ring.next() {
            let Some(record) = it.ring.get(sequence) else { break };
            if record.acknowledged || record.queued || !record.sent {
                continue;
            }
            if record.sent_at > delivered_at {
                if it.ring.resent == 0 {
                    break;
                }
                continue;
            }
            let at = record.sent_at + window;
            if now < at {
                it.reorder_at = Some(it.reorder_at.map_or(at, |other| other.min(at)));
                continue;
            }
            let data = !matches!(record.content, Content::Control(_));
            lost |= data && sequence >= it.pace.recovery;
            it.ring.on_lost(sequence);
        }
        if lost {
            it.pace.recovery = it.ring.next();
            it.pace.on_loss();
        }
    }
}

impl super::association::Association {
    /// Whether one of the ends owes the other something: data, a grant, an answer.
    fn owes(&self) -> bool {
        self.open_sends > 0 || !self.incoming.is_empty()
    }
}
