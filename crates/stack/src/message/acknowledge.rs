//! What an ACK ends, and what it says is lost.

use wire::message::Received;

use super::ring::{Content, Decision, RECORDS, extend};
use super::slab::AssociationId;
use super::{Bugs, Core, Planted};

impl<B: Bugs> Core<B> {
    /// Takes an ACK that expects `next`.
    pub(super) fn on_ack(
        &mut self,
        id: AssociationId,
        next: u64,
        received: &Received<'_>,
        fields: AckFields,
    ) {
        let now = self.now;
        let it = &mut self.associations[id];
        if next > it.ring.next() {
            self.counters.drop_invalid += 1;
            return;
        }
        if next < it.ring.base {
            return;
        }
        if fields.duplicates {
            it.pace.on_duplicates();
        }
        let answered = extend(fields.answered, it.arrivals.next);
        let past = answered > it.arrivals.next + RECORDS as u64;
        let answered = if past { 0 } else { answered };
        if let Some(newest) = it.ring.extend(fields.newest)
            && let Some(record) = it.ring.get(newest)
            && record.sent
            && !record.resent
            && !record.acknowledged
        {
            let rtt = now.saturating_sub(record.sent_at);
            it.pace.on_sample(rtt.saturating_sub(u64::from(fields.waited) * 1_000));
        }
        let before = it.ring.in_flight;
        let mut frames = 0;
        for sequence in it.ring.base..next {
            frames += usize::from(self.acknowledge(id, sequence, answered));
        }
        for (word, bits) in received.bitmap().enumerate() {
            let mut bits = bits;
            while bits != 0 {
                let sequence = next + 1 + word as u64 * 64 + u64::from(bits.trailing_zeros());
                bits &= bits - 1;
                frames += usize::from(self.acknowledge(id, sequence, answered));
            }
        }
        let it = &mut self.associations[id];
        if frames > 0 {
            it.progress_at = now;
            it.pace.on_acknowledged(frames, before >= it.pace.window);
            if next >= it.pace.clean_at {
                if it.pace.recovery <= it.pace.clean_at {
                    it.pace.on_clean_window();
                }
                it.pace.clean_at = it.ring.next();
            }
            self.arm_timeout(id);
        }
        self.detect_losses(id);
        self.associations[id].ring.release();
    }

    /// Notes that a frame has arrived; true for the first time.
    fn acknowledge(&mut self, id: AssociationId, sequence: u64, answered: u64) -> bool {
        let now = self.now;
        let it = &mut self.associations[id];
        if it.ring.get(sequence).is_some_and(|record| !record.sent) {
            self.counters.drop_invalid += 1;
            return false;
        }
        let Some(record) = it.ring.on_acknowledged(sequence) else { return false };
        // An early acknowledgement of a frame sent again is that of the first time.
        let sure = !record.resent || now.saturating_sub(record.sent_at) >= it.pace.least();
        if sure {
            it.delivered_at = it.delivered_at.max(record.sent_at);
        }
        match record.content {
            Content::Start { send, .. } if record.decision == Decision::Open => {
                let ignored = self.bugs.has(Planted::AnsweredIgnored);
                let made = it.arrivals.next >= answered || ignored;
                let decision = if made { Decision::Made } else { Decision::Waiting(answered) };
                if let Some(record) = it.ring.get_mut(sequence) {
                    record.decision = decision;
                }
                if made {
                    self.on_decided(id, sequence, send);
                } else {
                    it.ring.undecided += 1;
                }
            }
            Content::More { send, number, attempt, .. } => {
                let current = self.sends.get_mut(send);
                if let Some(it) = current.filter(|it| {
                    it.number == Some(number) && it.attempt == attempt && it.outstanding > 0
                }) {
                    it.outstanding -= 1;
                    self.end_send_if_done(send);
                }
            }
            _ => {}
        }
        true
    }

    /// Decides acknowledged STARTs, now that more frames have arrived.
    pub(super) fn decide_waiting(&mut self, id: AssociationId) {
        let it = &self.associations[id];
        if it.ring.undecided == 0 {
            return;
        }
        for sequence in it.ring.base..it.ring.next() {
            let it = &mut self.associations[id];
            let next = it.arrivals.next;
            let Some(record) = it.ring.get_mut(sequence) else { continue };
            let Content::Start { send, .. } = record.content else { continue };
            if matches!(record.decision, Decision::Waiting(answered) if next >= answered) {
                record.decision = Decision::Made;
                it.ring.undecided -= 1;
                self.on_decided(id, sequence, send);
            }
        }
        self.associations[id].ring.release();
    }
}

/// An ACK's fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct AckFields {
    pub newest: u32,
    pub answered: u32,
    /// Microseconds since the newest frame came.
    pub waited: u16,
    pub duplicates: bool,
}
