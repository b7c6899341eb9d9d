//! Which bytes are lost, and when to send them again: by time (RACK, RFC 8985) where the peer has
//! SACK, by three duplicates and partial acknowledgements (RFC 5681, RFC 6582) where it has not,
//! and after a timeout.
//!
//! What was sent lies on the [`Scoreboard`](super::scoreboard::Scoreboard); a recovery ends when
//! `recover` is acknowledged.

use wire::tcp::{SackBlock, TcpSegment};

use super::congestion::Algorithm;
use super::connection::{Connection, Hot, NEVER, Phase, Step};
use super::frto::Frto;
use super::intervals::Range;
use super::progress::millis;
use super::prr::{Prr, PrrSample};
use super::rack::{DUP_THRESH, Delivery};
use super::rtt::MILLISECOND;

impl Connection<'_> {
    /// What a segment's acknowledgement of everything below `ack` and its SACK blocks newly say
    /// to have arrived.
    pub fn take_delivery(
        &mut self,
        step: &mut Step<'_>,
        segment: &TcpSegment<'_>,
        ack: u64,
    ) -> Delivery {
        let (hot, cold) = (&mut *self.hot, &mut *self.cold);
        let (now, mss) = (step.now, u64::from(hot.mss.max(1)));
        let echo = segment.options.timestamps.filter(|_| hot.timestamps).map(|t| t.echo);
        let offset = hot.ts_offset;
        let echo_is_older = |at: u64| {
            let stamp = offset.wrapping_add((at / MILLISECOND) as u32);
            echo.is_some_and(|echo| echo.wrapping_sub(stamp).cast_signed() < 0)
        };
        let (rack, scoreboard) = (&mut cold.rack, &mut cold.scoreboard);
        let mut rate = cold.rate.as_deref_mut();
        let mut delivery = Delivery::default();
        let again = scoreboard.acknowledge(ack, |p| {
            if let Some(rate) = &mut rate {
                rate.note(p);
            }
            //= https://www.rfc-editor.org/rfc/rfc3522#section-3.2
            delivery.original |= delivery.bytes == 0 && p.again && echo_is_older(p.at);
            rack.note(&mut delivery, p, now, echo_is_older);
            delivery.times.note_in_order(p);
        });
        delivery.times.note_again(again);
        if again && !hot.sack {
            // It may be the repetition alone that has brought the peer so far.
            delivery.original_end = None;
        }
        // What is acknowledged cumulatively tells the time, if anything is.
        let in_order_at = delivery.highest_at;
        let mut segments = 0;
        if hot.sack {
            // An old acknowledgement may tell of what was above it.
            let told = u64::try_from(hot.send_offset(segment.header.ack)).unwrap_or(0).min(ack);
            delivery.dsack = dsack(hot, segment.options.sack.as_slice(), told);
        }
        for block in segment.options.sack.iter().filter(|_| hot.sack) {
            let left = hot.send_offset(block.left);
            let right = hot.send_offset(block.right);
            // One at or below the acknowledgement reports a duplicate; one that was never sent is
            // nonsense.
            if left < ack.cast_signed() || right <= left || right > hot.nxt.cast_signed() {
                continue;
            }
            let (left, right) = (left.cast_unsigned(), right.cast_unsigned());
            let before = delivery.bytes;
            //= https://www.rfc-editor.org/rfc/rfc2018#section-5
            //# When receiving an ACK containing a SACK option, the data sender SHOULD record the
            //# selective acknowledgment for future reference.
            let is_complete = scoreboard.sack(left, right, |piece| {
                // The timestamp echoed is that of what came last in order, not of this.
                if let Some(rate) = &mut rate {
                    rate.note(piece);
                }
                rack.note(&mut delivery, piece, now, |_| false);
                delivery.times.note_sacked(piece);
                segments += (piece.end - piece.start).div_ceil(mss);
            });
            delivery.sacked += delivery.bytes - before;
            step.shared.counters.ranges_forgotten += u64::from(!is_complete);
        }
        delivery.highest_at = in_order_at.or(delivery.highest_at);
        rack.on_delivery(&mut delivery, now);
        if let Some(behind) = delivery.behind {
            cold.chronicle.on_reordering(behind, mss);
        }
        if ack > hot.una && hot.phase == Phase::Open && hot.sack {
            hot.dup_acks = 0;
        }
        hot.dup_acks = hot.dup_acks.saturating_add(u8::try_from(segments).unwrap_or(u8::MAX));
        delivery
    }

    /// After an acknowledgement: ends, enters or deepens the recovery.
    /// `delivered`: bytes that it says to have arrived.
    //= https://www.rfc-editor.org/rfc/rfc8985#section-4
    //# The connection MUST use selective acknowledgment (SACK) options [RFC2018], and the sender
    //# MUST keep SACK scoreboard information on a per-connection basis
    //= https://www.rfc-editor.org/rfc/rfc8985#section-9.2
    //# the algorithm [RFC6675] MUST NOT be used with RACK-TLP; instead, a modified recovery
    //# algorithm that carefully addresses such a case is needed.
    pub fn judge_losses(&mut self, step: &mut Step<'_>, progress: bool, delivered: u64) {
        let mut misses = false;
        if self.hot.phase != Phase::Open && self.is_repaired() {
            self.leave_recovery();
            // What was sent since that recovery began and has been lost is the next one's, though
            // it may be under way again already.
            misses = self.hot.sack && self.cold.scoreboard.found_lost_bytes() > 0;
        }
        self.settle_reduction();
        let before = self.cold.scoreboard.lost_bytes();
        if self.hot.sack {
            self.lose_by_time(step);
        } else {
            self.lose_by_duplicates(progress);
        }
        let loses = self.cold.scoreboard.lost_bytes() > before;
        misses |= self.cold.scoreboard.lost_bytes() > 0;
        let mut delivered = delivered;
        if self.hot.phase == Phase::Open && misses {
            // The room that the duplicates before this one have made is what limited transmit would have
            // used. Counted for nothing, it left the retransmission alone under way, and when that was lost,
            // nobody answered until the timeout.
            delivered = self.cold.burst.into();
            self.enter_recovery(step);
        }
        self.reduce_window(delivered, progress, loses);
        step.ready |= self.hot.phase != Phase::Open;
    }

    /// Whether all that was outstanding when the recovery began has arrived.
    //= https://www.rfc-editor.org/rfc/rfc6582#section-3.2
    // Without SACK more than that: segments that were sent again needlessly bring duplicates of just this
    // acknowledgement, which would begin the next recovery.
    fn is_repaired(&self) -> bool {
        let (una, recover) = (self.hot.una, self.cold.recover);
        una > recover || una == recover && self.hot.sack
    }

    /// The window of a recovery.
    //= https://www.rfc-editor.org/rfc/rfc8985#section-9.3
    //# The Proportional Rate Reduction (PRR) algorithm [RFC6937] is RECOMMENDED for the specific
    //# congestion control actions taken upon the losses detected by RACK-TLP.
    //= https://www.rfc-editor.org/rfc/rfc9937#section-5
    //# it is RECOMMENDED that PRR is implemented together with RACK-TLP loss recovery
    fn reduce_window(&mut self, delivered: u64, progress: bool, loses: bool) {
        let (in_flight, mss) = (self.pipe(), u32::from(self.hot.mss));
        let Some(prr) = &mut self.cold.prr else { return };
        // As Linux: time that finds a loss counts as a segment delivered, or nothing would go.
        let delivered = if loses { delivered.max(u64::from(mss)) } else { delivered };
        //= https://www.rfc-editor.org/rfc/rfc9937#section-6.2
        //# As a mitigation, if not using SACK, then PRR
        //# disallows incrementing DeliveredData when the total bytes delivered
        //# in a PRR episode would exceed the estimated data outstanding upon
        //# entering recovery (RecoverFS).
        let delivered = if self.hot.sack { delivered } else { delivered.min(prr.undelivered()) };
        //= https://www.rfc-editor.org/rfc/rfc9937#section-6.2
        //# SafeACK is
        //# true only when the ACK has cumulatively acknowledged new data and the
        //# ACK does not indicate further losses.
        let progress = PrrSample { delivered, in_flight, is_safe: progress && !loses };
        if delivered > 0 {
            let window = &mut self.hot.window;
            window.cwnd = prr.window(progress, window.ssthresh, mss);
        }
    }

    /// RACK's search for losses.
    //= https://www.rfc-editor.org/rfc/rfc8985#section-6.2
    //# When an ACK
    //# is received or the RACK reordering timer expires, call
    //# RACK_detect_loss_and_arm_timer().
    //= https://www.rfc-editor.org/rfc/rfc8985#section-1
    //# it is RECOMMENDED as an alternative to that earlier approach.
    fn lose_by_time(&mut self, step: &mut Step<'_>) {
        let patience_ns = self.patience_ns();
        let rack = &self.cold.rack;
        let until = step.now.0.saturating_sub(patience_ns);
        let (newest, slack_ns) = (rack.newest(), rack.slack_ns());
        let found = self.cold.scoreboard.lose_sent_before(newest, until);
        //= https://www.rfc-editor.org/rfc/rfc8985#section-6.2
        //# This timer expires at the
        //# earliest moment when RACK would conclude that all the unacknowledged
        //# segments within the reordering window were lost.
        self.cold.reorder_at =
            if found.pending { newest.at.saturating_add(patience_ns + slack_ns) } else { NEVER };
        step.shared.counters.lost_retransmits += u64::from(found.retransmissions);
    }

    fn patience_ns(&self) -> u64 {
        let hot = &*self.hot;
        let srtt_ns = hot.rtt.srtt_ns().unwrap_or(0);
        self.cold.rack.patience_ns(srtt_ns, hot.phase != Phase::Open, hot.dup_acks)
    }

    /// The time that reordering may take has passed.
    pub fn on_reorder_timeout(&mut self, step: &mut Step<'_>) {
        self.cold.reorder_at = NEVER;
        self.judge_losses(step, false, 0);
        self.arm_send_timer(step.now);
    }

    //= https://www.rfc-editor.org/rfc/rfc5681#section-3.2
    //# The TCP sender SHOULD use the "fast retransmit" algorithm to detect and repair loss, based
    //# on incoming duplicate ACKs.
    fn lose_by_duplicates(&mut self, progress: bool) {
        let hot = &mut *self.hot;
        let lost = match hot.phase {
            Phase::Open => hot.dup_acks >= DUP_THRESH && hot.flight() > 0,
            //= https://www.rfc-editor.org/rfc/rfc6582#section-3.2
            //# If this ACK does *not* acknowledge all of the data up to and
            //# including recover, then this is a partial ACK.
            Phase::Recovery if progress && hot.una < self.cold.recover => {
                hot.dup_acks = 0;
                true
            }
            _ => false,
        };
        if lost {
            let end = hot.una.saturating_add(u64::from(hot.mss)).min(hot.nxt);
            self.cold.scoreboard.lose(hot.una, end);
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc9438#section-4.6
    //# In the case of packet loss, the sender MUST reduce _cwnd_ and _ssthresh_ immediately upon
    //# entering loss recovery, similar to [RFC5681] (and [RFC6675]).
    fn enter_recovery(&mut self, step: &mut Step<'_>) {
        //= https://www.rfc-editor.org/rfc/rfc6675#section-5
        //# RecoveryPoint = HighData
        //#
        //# When the TCP sender receives a cumulative ACK for this data
        //# octet, the loss recovery phase is terminated.
        self.hot.phase = Phase::Recovery;
        self.cold.recover = self.hot.nxt;
        self.cold.repaired_ms = millis(step.now.0);
        self.cold.tlp.reset();
        self.hot.tail_due = false;
        self.keep_for_undo();
        if self.lost_a_probe() {
            self.cold.undo = None;
            return;
        }
        step.shared.counters.fast_recoveries += 1;
        if self.hot.ecn.is_reducing() {
            // For this round trip it has been done, and goes on as this recovery.
            self.hot.ecn.end_reducing();
            return;
        }
        let mss = u32::from(self.hot.mss);
        let flight = self.flight_before_burst();
        //= https://www.rfc-editor.org/rfc/rfc5681#section-3.2
        //# a TCP MUST set ssthresh to no more than the value given in equation (4).
        //= https://www.rfc-editor.org/rfc/rfc5681#section-4.3
        //# when the first loss in a window of data is detected, ssthresh MUST be set to no more
        //# than the value given by equation (4).
        self.hot.window.ssthresh = self.cold.congestion.on_loss(&self.hot.window, flight, mss);
        self.tell_reduction();
        if self.cold.congestion.models_path() {
            return;
        }
        self.cold.prr = Some(Box::new(Prr::new(self.recover_bytes())));
    }

    /// RecoverFS: what may yet be delivered, and what acknowledgements have told of since something could
    /// last be sent.
    //= https://www.rfc-editor.org/rfc/rfc9937#section-6.1
    //# This can
    //# be thought of as the sum of the following values at the start of the
    //# episode: inflight, the bytes cumulatively acknowledged in the ACK
    //# triggering recovery, the bytes SACKed in the ACK triggering recovery,
    //# and the bytes between SND.UNA and SND.NXT that have been marked lost.
    pub fn recover_bytes(&self) -> u64 {
        let unsacked = self.hot.flight().saturating_sub(self.cold.scoreboard.sacked_bytes());
        unsacked.saturating_add(self.cold.burst.into())
    }

    /// What was outstanding when something could last be sent. What the acknowledgements since then have
    /// taken off would have been replaced between them by who answers each at once, and a window that is
    /// full counts whole: without that, Reno's threshold was two segments in place of three at small windows.
    pub fn flight_before_burst(&self) -> u32 {
        u32::try_from(self.hot.flight().max(self.recover_bytes())).unwrap_or(u32::MAX)
    }

    /// Nothing that was lost is missing any more.
    //= https://www.rfc-editor.org/rfc/rfc5681#section-4.3
    //# after all loss in the given window of segments has been successfully retransmitted, cwnd
    //# MUST be set to no more than ssthresh
    pub fn leave_recovery(&mut self) {
        self.hot.phase = Phase::Open;
        self.hot.dup_acks = 0;
        self.cold.frto = Frto::Off;
        self.cold.rack.on_recovered();
        if let Some(rate) = &mut self.cold.rate {
            rate.recounts = false;
        }
        if self.cold.prr.take().is_some() {
            //= https://www.rfc-editor.org/rfc/rfc9937#section-6.4
            //# On the completion of a PRR episode, PRR executes the following:
            //#
            //# cwnd = ssthresh
            self.hot.window.cwnd = self.hot.window.ssthresh;
        }
    }

    /// The retransmission timer ran out.
    pub fn enter_loss(&mut self, step: &mut Step<'_>) {
        let mss = u32::from(self.hot.mss);
        self.begin_frto();
        self.cold.prr = None;
        // In fast recovery the threshold has been lowered for this loss, as in Linux.
        let is_new = self.hot.phase == Phase::Open || self.hot.una >= self.cold.recover;
        if is_new && !self.hot.ecn.is_reducing() {
            if self.hot.dup_acks >= DUP_THRESH {
                self.cold.chronicle.doubt_reordering();
            }
            self.keep_for_undo();
            let flight = u32::try_from(self.hot.flight()).unwrap_or(u32::MAX);
            //= https://www.rfc-editor.org/rfc/rfc5681#section-3.1
            //# When a TCP sender detects segment loss using the retransmission timer
            //# and the given segment has not yet been resent by way of the
            //# retransmission timer, the value of ssthresh MUST be set to no more
            //# than the value given in equation (4):
            self.hot.window.ssthresh = self.cold.congestion.on_loss(&self.hot.window, flight, mss);
        }
        self.hot.ecn.end_reducing();
        self.tell_reduction();
        self.cold.congestion.on_timeout();
        if self.cold.retries > 1 || self.cold.scoreboard.is_sacked(self.hot.una) {
            //= https://www.rfc-editor.org/rfc/rfc2018#section-8
            //# After a retransmit timeout the data sender SHOULD turn off all of the
            //# SACKed bits
            // Once is taken as congestion (RFC 6675 section 5.1), twice as a peer that reneged.
            //= https://www.rfc-editor.org/rfc/rfc2018#section-5
            //# After a retransmit timeout the data sender SHOULD turn off all of the SACKed bits,
            //# since the timeout might indicate that the data receiver has reneged.
            //= https://www.rfc-editor.org/rfc/rfc2018#section-5
            //# The data sender MUST retransmit the segment at the left edge of the window after a
            //# retransmit timeout, whether or not the SACKed bit is on for that segment.
            self.cold.scoreboard.forget_sacks();
            if let Some(rate) = &mut self.cold.rate {
                rate.recounts = true;
            }
        }
        let recent = if self.hot.sack { self.patience_ns() } else { 0 };
        self.cold.scoreboard.lose_until(step.now.0.saturating_sub(recent));
        //= https://www.rfc-editor.org/rfc/rfc5681#section-3.1
        //# Furthermore, upon a timeout (as specified in [RFC2988]) cwnd MUST be
        //# set to no more than the loss window, LW, which equals 1 full-sized
        //# segment (regardless of the value of IW).
        // Beside what was sent so lately that it does not count as lost.
        self.hot.dup_acks = 0;
        let in_flight = u32::try_from(self.pipe()).unwrap_or(u32::MAX);
        //= https://www.rfc-editor.org/rfc/rfc8257#section-3.5
        //# Just as specified in [RFC5681], upon a timeout, the cwnd MUST be set to no more than the
        //# loss window (1 full-sized segment), regardless of previous cwnd reductions in a given
        //# window of data.
        self.hot.window.cwnd = in_flight.saturating_add(mss);
        self.hot.phase = Phase::Loss;
        self.hot.tail_due = false;
        self.cold.tlp.reset();
        self.cold.reorder_at = NEVER;
        self.cold.repaired_ms = millis(step.now.0);
        self.cold.recover = self.hot.nxt;
        step.ready = true;
    }

    /// Bytes that are in the network by our count.
    //= https://www.rfc-editor.org/rfc/rfc5681#section-3.2
    //# On the first and second duplicate ACKs received at a sender, a TCP SHOULD send a segment of
    //# previously unsent data
    //= https://www.rfc-editor.org/rfc/rfc5681#section-3.2
    //# Further, the TCP sender MUST NOT change cwnd to reflect these two segments [RFC3042].
    //= https://www.rfc-editor.org/rfc/rfc5681#section-3.2
    //# a sender using SACK [RFC2018] MUST NOT send new data unless the incoming duplicate
    //# acknowledgment contains new SACK information.
    //= https://www.rfc-editor.org/rfc/rfc3042#section-2
    //# it SHOULD use the Limited Transmit algorithm, which calls for a TCP sender to transmit new
    //# data upon the arrival of the first two consecutive duplicate ACKs
    //= https://www.rfc-editor.org/rfc/rfc3042#section-2
    //# The congestion window (cwnd) MUST NOT be changed when these new segments are transmitted.
    //= https://www.rfc-editor.org/rfc/rfc3042#section-2
    //# the data sender MUST NOT send new segments in response to duplicate ACKs that contain no new
    //# SACK information, as a misbehaving receiver can generate such ACKs to trigger inappropriate
    //# transmission of data segments.
    pub fn pipe(&self) -> u64 {
        let in_flight = self.cold.scoreboard.in_flight(self.hot.flight());
        if self.hot.sack {
            return in_flight;
        }
        let arrived = u64::from(self.hot.dup_acks) * u64::from(self.hot.mss);
        //= https://www.rfc-editor.org/rfc/rfc9937#section-6.2
        //# For non-SACK-enabled connections, instead of subtracting out bytes
        //# SACKed in the SACK scoreboard, senders MUST subtract out:
        //# min(RecoverFS, 1 SMSS for each preceding duplicate ACK in the fast
        //# recovery episode)
        let most = self.cold.prr.as_ref().map_or(u64::MAX, |prr| prr.recover_bytes());
        let arrived = arrived.min(most);
        in_flight.saturating_sub(arrived)
    }

    /// The next lost range to send again.
    pub fn next_lost(&self) -> Option<Range> {
        if self.hot.phase == Phase::Open { None } else { self.cold.scoreboard.next_lost() }
    }
}

/// The bytes that a segment's first SACK block reports as a duplicate, if it does.
//= https://www.rfc-editor.org/rfc/rfc2883#section-5
fn dsack(hot: &Hot, blocks: &[SackBlock], ack: u64) -> Option<Range> {
    let range = |block: &SackBlock| {
        let (left, right) = (hot.send_offset(block.left), hot.send_offset(block.right));
        let oldest = hot.una.saturating_sub(u64::from(hot.max_wnd));
        let start = u64::try_from(left).ok().filter(|&start| start >= oldest)?;
        let end = u64::try_from(right).ok().filter(|&end| end > start && end <= hot.nxt)?;
        Some(Range { start, end })
    };
    //= https://www.rfc-editor.org/rfc/rfc2883#section-5
    //# An implementation MUST NOT compare the sequence space in the SACK block to the TCP state
    //# variable snd.una (which carries the total cumulative ACK), as this may result in the wrong
    //# conclusion if ACK packets are reordered.
    let first = range(blocks.first()?)?;
    let is_within = blocks
        .get(1)
        .and_then(range)
        .is_some_and(|larger| larger.start <= first.start && first.end <= larger.end);
    (first.end <= ack || is_within).then_some(first)
}
