//! What an acknowledgement means: windows, round-trip times, and that our FIN arrived.

use wire::tcp::TcpSegment;

use super::account::TakenAck;
use super::congestion::{Ack, Algorithm};
use super::connection::{Connection, Hot, Phase, SendTimer, Step};
use super::rack::Delivery;
use super::shape::Hold;
use super::state::Input;
use crate::api::{TcpError, TcpState};
use crate::drops::DropReason;

impl Hot {
    /// Whether the window that a segment tells is newer than the one that is known.
    pub fn tells_window(&self, segment: &TcpSegment<'_>, start: i64, ack: i64) -> bool {
        let window = u32::from(segment.header.window) << self.snd_scale.min(14);
        let start = start.max(0).cast_unsigned();
        ack > self.una.cast_signed()
            || start > self.wl1
            || (start == self.wl1 && (window > self.snd_wnd || window == 0))
    }
}

impl Connection<'_> {
    /// Fifth step of RFC 9293 section 3.10.7.4: the ACK field.
    pub fn on_ack(
        &mut self,
        step: &mut Step<'_>,
        segment: &TcpSegment<'_>,
        start: i64,
    ) -> Result<(), DropReason> {
        let header = &segment.header;
        if self.hot.syn_unacked {
            self.on_fast_open_acked(step, segment)?;
        }
        if self.hot.state == TcpState::SynReceived {
            let syn_bytes = self.cold.fast_open.as_ref().map_or(0, |begun| begun.syn_bytes);
            if header.ack.since(self.hot.iss + 1) > syn_bytes {
                //= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
                //# If the segment acknowledgment is not acceptable, form a
                //# reset segment
                step.reply = self.reset_for(step, segment);
                return Err(DropReason::TcpBadAck);
            }
            // As Linux: until the peer has sent data, or for so many timeouts.
            let is_bare = segment.payload.is_empty() && !header.flags.fin();
            let defer = self.cold.options.defer_accept;
            if is_bare && self.cold.half_open && self.cold.retries < defer {
                step.shared.counters.accepts_deferred += u64::from(!self.cold.deferred);
                self.cold.deferred = true;
                return Err(DropReason::TcpDeferred);
            }
            self.on_syn_acked(step, segment);
        }
        let ack = self.hot.send_offset(header.ack);
        let (una, nxt) = (self.hot.una.cast_signed(), self.hot.nxt.cast_signed());
        //= https://www.rfc-editor.org/rfc/rfc5961#section-5.2
        //# TCP stacks that implement this mitigation MUST add an additional input check to any incoming
        //# segment.
        //= https://www.rfc-editor.org/rfc/rfc5961#section-5.2
        //# All incoming segments whose ACK value doesn't satisfy the above condition MUST be discarded and
        //# an ACK sent back.
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
        //# TCP stacks that implement RFC 5961 MUST add an input check
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
        //# All incoming segments whose ACK value doesn't satisfy the above condition MUST be discarded and
        //# an ACK sent back.
        // As Linux, none is for bytes that were never sent either.
        let window = i64::from(self.hot.max_wnd).min(una);
        if ack > nxt || ack < una - window {
            //= https://www.rfc-editor.org/rfc/rfc5961#section-5.2
            //# The ACK value is considered acceptable only if
            //# it is in the range of ((SND.UNA - MAX.SND.WND) <= SEG.ACK <=
            //# SND.NXT).
            self.challenge(step);
            return Err(DropReason::TcpBadAck);
        }
        let was_shut = self.hot.snd_wnd == 0;
        let window_moved = self.update_window(segment, start, ack);
        if ack < una {
            // Its data may be new all the same.
            self.on_old_ack(step, segment);
            return Ok(());
        }
        step.ready |= self.try_refused();
        if self.hot.hold == Hold::More {
            // What waited for more goes with what the acknowledgement allows (as Linux).
            self.hot.hold = Hold::None;
            step.ready = true;
        }
        let acked = (ack - una) as u64;
        // Before the acknowledgement moves the flight.
        let flight = self.hot.flight();
        let was_lossy = self.hot.phase != Phase::Open;
        let before = self.before_ack();
        let is_echo = self.is_echo(header.flags);
        let mut delivery = self.take_delivery(step, segment, ack.cast_unsigned());
        self.measure(step.now, segment, ack.cast_unsigned(), &mut delivery);
        let mut is_bare = false;
        let mut delivered = delivery.bytes;
        if acked > 0 {
            if !self.hot.sack {
                //= https://www.rfc-editor.org/rfc/rfc9937#section-6.2
                //# DeliveredData is the change in SND.UNA, minus 1
                //# SMSS for each preceding duplicate ACK.
                let known = u64::from(self.hot.dup_acks) * u64::from(self.hot.mss);
                delivered = delivered.saturating_sub(known);
                if self.hot.phase == Phase::Open {
                    // One of them filled the hole.
                    delivered = delivered.max(acked.min(self.hot.mss.into()));
                    self.hot.dup_acks = 0;
                }
            }
            self.on_progress(step, segment, ack.cast_unsigned());
        } else {
            //= https://www.rfc-editor.org/rfc/rfc5681#section-2
            //# DUPLICATE ACKNOWLEDGMENT: An acknowledgment is considered a
            //# "duplicate" in the following algorithms when
            is_bare = segment.payload.is_empty()
                && !header.flags.syn()
                && !header.flags.fin()
                && !window_moved
                && delivery.sacked == 0;
            if flight > 0 && is_bare && !self.hot.sack {
                self.hot.dup_acks = self.hot.dup_acks.saturating_add(1);
                delivered = u64::from(self.hot.mss);
                step.ready = true;
            }
            if was_shut && window_moved && flight > 0 {
                // The peer had taken its window back: what was repeated until now were probes,
                // and the patience with lost data begins here.
                self.cold.retries = 0;
                self.hot.rtt.on_progress();
                self.cold.rto_at = step.now.0.saturating_add(self.hot.rtt.rto_ns());
                self.arm_send_timer(step.now);
            }
            if self.hot.send_timer == SendTimer::Persist {
                // The peer lives; its window is what it is.
                self.cold.retries = 0;
                if !self.is_window_closed() {
                    self.hot.rtt.on_progress();
                    self.stop_send_timer();
                }
            }
        }
        self.note_burst(delivered);
        self.on_tail_probe_ack(step, is_bare, delivery.dsack);
        self.judge_repairs(step, delivery.dsack, delivery.original);
        self.on_frto_ack(step, &delivery, acked > 0, is_bare);
        if is_echo {
            //= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.2
            //# The sending TCP SHOULD NOT increase the congestion window in response to the receipt
            //# of an ECN-Echo ACK packet.
            self.reduce_for_marks(step);
        }
        self.judge_losses(step, acked > 0, delivered);
        // Where the network is known to change the order, what arrives out of it counts, too (as
        // Linux).
        let is_counted = delivery.sacked > 0 && self.cold.chronicle.is_reordered();
        let may_grow = self.hot.phase != Phase::Recovery && self.cold.prr.is_none();
        if may_grow && (acked > 0 || is_counted) {
            // What was sacked before has been counted by then (as Linux).
            let bytes = if is_counted { delivered } else { delivered.min(acked) };
            self.grow_window(step, bytes, was_lossy, delivery.rtt_ns);
        }
        let taken = TakenAck { before, delivery: &delivery, delivered, marked: is_echo };
        self.account_for_ack(step.now, &taken);
        self.count_delivery(&delivery, delivered, is_echo);
        self.note_doing(step.now);
        step.ready |= window_moved;
        self.follow_delivery(step, &delivery);
        Ok(())
    }

    /// An acknowledgement of less than is acknowledged already. What its SACK blocks say may be new
    /// (as Linux): it makes room, but no congestion window.
    fn on_old_ack(&mut self, step: &mut Step<'_>, segment: &TcpSegment<'_>) {
        if !self.hot.sack || segment.options.sack.as_slice().is_empty() {
            return;
        }
        let before = self.before_ack();
        let delivery = self.take_delivery(step, segment, self.hot.una);
        self.judge_repairs(step, delivery.dsack, delivery.original);
        self.judge_losses(step, false, 0);
        let (delivered, marked) = (delivery.bytes, false);
        let taken = TakenAck { before, delivery: &delivery, delivered, marked };
        self.account_for_ack(step.now, &taken);
        self.count_delivery(&delivery, delivery.bytes, false);
        self.follow_delivery(step, &delivery);
    }

    fn note_burst(&mut self, delivered: u64) {
        let delivered = u32::try_from(delivered).unwrap_or(u32::MAX);
        self.cold.burst = self.cold.burst.saturating_add(delivered);
    }

    /// Counts what has arrived by an acknowledgement, `delivered` bytes; it may echo congestion.
    fn count_delivery(&mut self, delivery: &Delivery, delivered: u64, is_echo: bool) {
        let mss = u64::from(self.hot.mss.max(1));
        let arrived = delivered.div_ceil(mss);
        if is_echo && arrived > 0 {
            let rare = self.cold.rare_mut();
            rare.marked = rare.marked.wrapping_add(arrived as u32);
        }
        self.count_duplicate(delivery.dsack);
        let chronicle = &mut self.cold.chronicle;
        chronicle.delivered = chronicle.delivered.wrapping_add(arrived as u32);
    }

    /// What has arrived makes room, and is a reason to wait for the rest.
    fn follow_delivery(&mut self, step: &mut Step<'_>, delivery: &Delivery) {
        if delivery.bytes > 0 {
            step.ready = true;
            self.hot.tail_due = false;
            self.arm_send_timer(step.now);
        }
    }

    /// snd.wnd, when the segment is not older than the last one it was taken from. Tells whether
    /// the window moved.
    fn update_window(&mut self, segment: &TcpSegment<'_>, start: i64, ack: i64) -> bool {
        let hot = &mut *self.hot;
        // Windows of SYNs are never scaled; those have been taken already.
        if segment.header.flags.syn() {
            return false;
        }
        //= https://www.rfc-editor.org/rfc/rfc7323#section-2.3
        //# The window field (SEG.WND) in the header of every incoming segment, with the exception
        //# of <SYN> segments, MUST be left-shifted by Snd.Wind.Shift bits before updating SND.WND:
        let window = u32::from(segment.header.window) << hot.snd_scale.min(14);
        if ack < hot.una.cast_signed() || !hot.tells_window(segment, start, ack) {
            return false;
        }
        hot.wl1 = start.max(0).cast_unsigned();
        let moved = window != hot.snd_wnd;
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6
        //# However, a sending TCP peer MUST be robust against window shrinking, which may cause
        //# the "usable window" (see Section 3.8.6.2.1) to become negative (MUST-34).
        //= https://www.rfc-editor.org/rfc/rfc7323#section-2.4
        //# Implementations MUST ensure that they handle a shrinking window, as specified in Section
        //# 4.2.2.16 of [RFC1122].
        hot.snd_wnd = window;
        if window > hot.max_wnd {
            hot.max_wnd = window;
        }
        moved
    }

    /// snd.una moves to `ack`.
    fn on_progress(&mut self, step: &mut Step<'_>, segment: &TcpSegment<'_>, ack: u64) {
        let hot = &mut *self.hot;
        hot.una = ack;
        hot.urging &= self.cold.rare.as_ref().is_some_and(|rare| ack < rare.urge_end);
        if let Some(stamps) = self.cold.stamps_mut() {
            stamps.on_acked(ack, step.now.0);
        }
        self.end_timeouts(step.now);
        self.cold.retries = 0;
        self.cold.soft_error = None;
        self.on_probe_acked(step.now);
        step.event = true;
        let hot = &mut *self.hot;
        if ack == hot.nxt {
            //= https://www.rfc-editor.org/rfc/rfc6298#section-5
            //# When all outstanding data has been acknowledged, turn off the
            //# retransmission timer.
            self.stop_send_timer();
        } else {
            //= https://www.rfc-editor.org/rfc/rfc6298#section-5
            //# When an ACK is received that acknowledges new data, restart the
            //# retransmission timer so that it will expire after RTO seconds
            //= https://www.rfc-editor.org/rfc/rfc6928#section-9
            //# To minimize spurious retransmissions, implementations MUST follow RFC 6298 [RFC6298]
            //# to restart the retransmission timer with the current value of RTO for each ACK
            //# received that acknowledges new data.
            self.cold.rto_at = step.now.0.saturating_add(self.hot.rtt.rto_ns());
        }
        if self.hot.state.has_closed() && ack > self.hot.written {
            self.apply(step, Input::AckOfFin);
            if self.hot.state == TcpState::FinWait2 && self.hot.orphan {
                match self.cold.options.linger2_s {
                    ..0 => self.abort_in_answer(step, segment, TcpError::Aborted),
                    _ => self.limit_fin_wait(step),
                }
            }
        }
    }

    /// Opens the congestion window, if it was in full use.
    //= https://www.rfc-editor.org/rfc/rfc9438#section-4.6
    //# Implementations that use _cwnd_ MUST use other measures to prevent _cwnd_ from growing when
    //# the volume of bytes in flight is smaller than _cwnd_.
    fn grow_window(&mut self, step: &Step<'_>, acked: u64, was_lossy: bool, rtt_ns: Option<u64>) {
        let hot = &mut *self.hot;
        let window = &hot.window;
        // In slow start it grows to twice what was in flight (as Linux).
        let grows = window.in_slow_start() && window.cwnd / 2 < self.cold.usage.most;
        if !(hot.cwnd_limited || was_lossy || grows) {
            return;
        }
        let ack = Ack {
            bytes: u32::try_from(acked).unwrap_or(u32::MAX),
            now: step.now,
            srtt_ns: hot.rtt.srtt_ns().unwrap_or(0),
            rtt_ns,
            mss: u32::from(hot.mss),
            una: hot.una,
            nxt: hot.nxt,
        };
        self.cold.congestion.on_ack(&mut hot.window, &ack);
    }
}
