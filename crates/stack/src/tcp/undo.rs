//! Undoing what a supposed loss has cost: when everything that was sent again turns out to have
//! arrived before (D-SACK, RFC 2883; timestamps, RFC 3522; F-RTO, RFC 5682), the window returns
//! to what it was, as in Linux.

use serde::{Deserialize, Serialize};

use super::congestion::{Algorithm, Congestion, Window};
use super::connection::{Connection, NEVER, Phase, Step};
use super::intervals::Range;

/// What there was before a supposed loss.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Undo {
    /// snd.una then.
    since: u64,
    window: Window,
    congestion: Option<Congestion>,
    /// Bytes sent again since.
    resent: u64,
    /// Bytes of them that the peer has reported as duplicates.
    returned: u64,
}

impl Undo {
    /// Keeps what there is now.
    pub fn new(since: u64, window: Window, congestion: Option<Congestion>) -> Self {
        Self { since, window, congestion, resent: 0, returned: 0 }
    }

    /// Bytes were sent again.
    pub fn on_sent_again(&mut self, bytes: u64) {
        self.resent = self.resent.saturating_add(bytes);
    }

    /// Bytes were not sent again after all.
    pub fn take_back(&mut self, bytes: u64) {
        self.resent = self.resent.saturating_sub(bytes);
    }

    /// The peer has got bytes twice.
    pub fn on_duplicate(&mut self, duplicate: Range) {
        let start = duplicate.start.max(self.since);
        self.returned = self.returned.saturating_add(duplicate.end.saturating_sub(start));
    }

    /// Everything that was sent again was a duplicate.
    fn is_spurious(&self) -> bool {
        self.resent > 0 && self.returned >= self.resent
    }
}

impl Connection<'_> {
    /// Remembers how things are before a loss changes them.
    pub fn keep_for_undo(&mut self) {
        let cold = &mut *self.cold;
        let mut undo = Undo::new(self.hot.una, self.hot.window, cold.congestion.kept());
        // Of these, too, duplicates may yet be reported.
        undo.on_sent_again(cold.scoreboard.resent_bytes());
        cold.undo = Some(Box::new(undo));
    }

    /// Takes the reports of an acknowledgement: bytes that arrived twice, and whether what it
    /// acknowledges first was not its last copy.
    //= https://www.rfc-editor.org/rfc/rfc8985#section-6.2
    //# The RACK.reo_wnd
    //# increases linearly for every round trip in which the sender receives
    //# some DSACK option so that after N round trips in which a DSACK is
    //# received, the RACK.reo_wnd becomes (N+1) * min_RTT / 4, with an
    //# upper-bound of SRTT.
    pub fn judge_repairs(&mut self, step: &mut Step<'_>, dsack: Option<Range>, original: bool) {
        if let Some(duplicate) = dsack {
            step.shared.counters.duplicates_reported += 1;
            if let Some(undo) = &mut self.cold.undo {
                undo.on_duplicate(duplicate);
            }
        }
        // A network that repeats by itself reports more duplicates than were sent again.
        let sent_again = self.cold.retransmits().into();
        self.cold.rack.on_round(self.hot.una, self.hot.nxt, dsack.is_some(), sent_again);
        let original = original && self.hot.phase != Phase::Open;
        let spurious = self.cold.undo.as_ref().is_some_and(|undo| original || undo.is_spurious());
        if spurious {
            self.cold.rack.on_spurious();
            self.undo(step);
        }
    }

    /// There was no loss: the window is what it was, and nothing is to be sent again.
    //= https://www.rfc-editor.org/rfc/rfc9438#section-4.9.2
    //# Once the previously declared packet loss is confirmed to be spurious,
    //# CUBIC MAY restore the original values of the above-mentioned
    //# variables as follows
    //= https://www.rfc-editor.org/rfc/rfc5682#section-4
    //# If no specific response algorithm is implemented, the TCP SHOULD respond to spurious timeout
    //# conservatively, applying the TCP congestion control specification [APB09].
    pub fn undo(&mut self, step: &mut Step<'_>) {
        let Some(undo) = self.cold.undo.take() else { return };
        if self.hot.phase != Phase::Open {
            self.cold.scoreboard.forgive();
            self.leave_recovery();
            self.cold.reorder_at = NEVER;
        }
        //= https://www.rfc-editor.org/rfc/rfc9438#section-4.9.2
        //# In rare cases, when the detection happens long after a spurious fast retransmit event
        //# and the current _cwnd_ is already higher than _cwnd_prior_, CUBIC SHOULD continue to use
        //# the current and the most recent values of these variables.
        let window = &mut self.hot.window;
        window.cwnd = window.cwnd.max(undo.window.cwnd);
        window.ssthresh = window.ssthresh.max(undo.window.ssthresh);
        match undo.congestion {
            Some(before) if before.kind() == self.cold.congestion.kind() => {
                self.cold.congestion = before;
            }
            _ => self.cold.congestion.on_undo(),
        }
        step.shared.counters.undone += 1;
        step.ready = true;
    }
}
