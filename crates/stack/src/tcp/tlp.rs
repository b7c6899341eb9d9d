//! Tail loss probe (RFC 8985 section 7): when acknowledgements stay away for two round trips, one
//! segment is sent so that RACK learns what was lost, long before the timeout.

use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};

use super::congestion::Algorithm;
use super::connection::{Connection, NEVER, Phase, SendTimer, Step};
use super::intervals::Range;
use super::rtt::{MILLISECOND, SECOND};
use crate::api::Instant;

/// Beyond two round trips, for what timers and interrupts add (Linux's TCP_TIMEOUT_MIN).
const MARGIN_NS: u64 = 2 * MILLISECOND;

/// State of the probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tlp {
    /// TLP.end_seq: snd.nxt after the probe that is outstanding.
    end: Option<NonZeroU64>,
    /// TLP.is_retrans.
    is_again: bool,
    /// A round-trip time has been measured since the last probe.
    measured: bool,
}

impl Tlp {
    /// A round-trip time was measured.
    pub fn on_measured(&mut self) {
        self.measured = true;
    }

    /// A recovery begins: what the probe was to find out is known.
    //= https://www.rfc-editor.org/rfc/rfc8985#section-7.1
    //# Reset TLP.is_retrans and TLP.end_seq when initiating a connection,
    //# fast recovery, or RTO recovery.
    pub fn reset(&mut self) {
        self.end = None;
        self.is_again = false;
    }

    /// A probe was sent; snd.nxt is now `nxt`.
    pub fn on_sent(&mut self, nxt: u64, is_again: bool) {
        *self = Self { end: NonZeroU64::new(nxt), is_again, measured: false };
    }
}

impl Connection<'_> {
    /// Whether a probe is to follow what has been sent.
    //= https://www.rfc-editor.org/rfc/rfc8985#section-7.2
    //# unless it is already in fast recovery, RTO
    //# recovery, or segments have been SACKed (i.e., RACK.segs_sacked is not
    //# zero).
    pub fn wants_tail_probe(&self) -> bool {
        let tlp = &self.cold.tlp;
        self.hot.sack
            && self.hot.phase == Phase::Open
            && tlp.end.is_none()
            && self.hot.state.is_synchronized()
            && self.cold.scoreboard.sacked_bytes() == 0
    }

    /// How long to wait for acknowledgements.
    //= https://www.rfc-editor.org/rfc/rfc8985#section-7.2
    //# Summarizing these considerations in pseudocode form, a sender SHOULD
    //# use the following logic to select the duration of a PTO:
    pub fn probe_timeout_ns(&self) -> u64 {
        //= https://www.rfc-editor.org/rfc/rfc8985#section-7.2
        //# Second, when there is no SRTT estimate available, the PTO SHOULD be 1 second.
        let Some(srtt_ns) = self.hot.rtt.srtt_ns() else { return SECOND };
        let is_single = self.hot.flight() <= u64::from(self.hot.mss);
        // What a peer may take to acknowledge a single segment, as Linux allows it.
        2 * srtt_ns + if is_single { self.hot.rtt.floor_ns() } else { MARGIN_NS }
    }

    /// The probe timer ran out.
    //= https://www.rfc-editor.org/rfc/rfc8985#section-7.3
    //# When the PTO timer expires, the sender MUST check whether both of the
    //# following conditions are met before sending a loss probe:
    pub fn on_probe_timeout(&mut self, step: &mut Step<'_>) {
        //= https://www.rfc-editor.org/rfc/rfc8985#section-7.3
        //# If either one of these two conditions is not met, then the sender MUST skip sending a
        //# loss probe and MUST proceed to re-arm the RTO timer, as specified at the end of this
        //# section.
        if self.wants_tail_probe() && self.cold.tlp.measured {
            self.hot.tail_due = true;
            step.shared.counters.tail_probes += 1;
            step.ready = true;
        }
        //= https://www.rfc-editor.org/rfc/rfc8985#section-7.3
        //# After attempting to send a loss probe, regardless of whether a loss
        //# probe was sent, the sender MUST re-arm the RTO timer, not the PTO
        //# timer, if the FlightSize is not zero.
        if self.hot.tail_due {
            self.cold.rto_at = step.now.0.saturating_add(self.hot.rtt.rto_ns());
        }
        self.hot.send_timer = SendTimer::Retransmit;
        self.hot.send_at = self.cold.rto_at;
    }

    /// The last segment sent, to be sent again as a probe.
    pub fn last_sent(&self) -> Option<Range> {
        let last = self.cold.scoreboard.last()?;
        let mss = u64::from(self.hot.mss.max(1));
        let start = last.start.max(self.hot.nxt.min(self.hot.written).saturating_sub(mss));
        Some(Range { start, end: self.hot.nxt })
    }

    /// Whether the answer to a probe shows that the probe repaired a loss.
    //= https://www.rfc-editor.org/rfc/rfc8985#section-7.4.2
    //# More precisely, on each ACK, the sender executes the following:
    pub fn on_tail_probe_ack(
        &mut self,
        step: &mut Step<'_>,
        duplicate: bool,
        dsack: Option<Range>,
    ) {
        let Some(end) = self.cold.tlp.end.map(NonZeroU64::get).filter(|&end| self.hot.una >= end)
        else {
            return;
        };
        if !self.cold.tlp.is_again || dsack.is_some_and(|d| d.end == end) {
            self.cold.tlp.reset();
        //= https://www.rfc-editor.org/rfc/rfc8985#section-7.4.2
        //# If the TLP sender does not receive such an indication, then it MUST assume that the
        //# original data segment, the TLP retransmission, or a corresponding ACK was lost for
        //# congestion control purposes.
        } else if self.hot.una > end {
            self.cold.tlp.reset();
            //= https://www.rfc-editor.org/rfc/rfc8985#section-7.4.2
            //# The sender then
            //# SHOULD invoke a congestion control response equivalent to a fast
            //# recovery.
            step.shared.counters.tail_probe_repairs += 1;
            // What was in flight when the loss happened has been acknowledged meanwhile.
            let window = &mut self.hot.window;
            let mss = u32::from(self.hot.mss);
            window.ssthresh = self.cold.congestion.on_loss(window, window.cwnd, mss);
            if !self.cold.congestion.models_path() {
                window.cwnd = window.ssthresh;
            }
        } else if duplicate {
            self.cold.tlp.reset();
        }
    }

    /// Sets the transmission timer for what is outstanding: for reordered segments, for a probe,
    /// or for the retransmission.
    //= https://www.rfc-editor.org/rfc/rfc8985#section-6.2
    //# For timely loss detection, it is RECOMMENDED that the sender install a reordering timer.
    //= https://www.rfc-editor.org/rfc/rfc8985#section-7.2
    //# The sender SHOULD start or restart a loss probe PTO timer after transmitting new data
    //= https://www.rfc-editor.org/rfc/rfc8985#section-8
    //# When arming a RACK reordering timer or TLP PTO timer, the sender SHOULD cancel any other
    //# pending timers.
    pub fn arm_send_timer(&mut self, now: Instant) {
        if self.hot.syn_unacked {
            // Until then the SYN and ACK is what is sent again.
            self.hot.send_timer = SendTimer::Retransmit;
            self.hot.send_at = self.cold.rto_at;
            return;
        }
        if self.hot.flight() == 0 {
            return;
        }
        let (timer, at) = if self.cold.reorder_at < self.cold.rto_at {
            (SendTimer::Reorder, self.cold.reorder_at)
        } else if self.cold.reorder_at != NEVER {
            // A late answer makes RACK more patient than the retransmission timer, which must
            // then not be taken for the other: that would fire without end.
            (SendTimer::Retransmit, self.cold.rto_at)
        } else if self.wants_tail_probe() {
            (SendTimer::TailProbe, now.0.saturating_add(self.probe_timeout_ns()))
        } else {
            (SendTimer::Retransmit, self.cold.rto_at)
        };
        self.hot.send_timer = timer;
        //= https://www.rfc-editor.org/rfc/rfc8985#section-7.2
        //# Finally, if the time at which an RTO would fire (here denoted as
        //# "TCP_RTO_expiration()") is sooner than the computed time for the PTO,
        //# then the sender schedules a TLP to be sent at that RTO time.
        self.hot.send_at = at.min(self.cold.rto_at);
    }
}
