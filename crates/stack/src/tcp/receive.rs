//! Segments that arrive for a connection: RFC 9293 section 3.10.7.3 and 3.10.7.4 in their order,
//! with the checks of RFC 5961 and 7323.

use std::num::NonZeroU64;

use wire::tcp::{TcpFlags, TcpSegment};

use super::connection::{Connection, Hot, NEVER, Step};
use super::intervals::{Insertion, Range};
use super::progress::millis;
use super::rtt::{MILLISECOND, SECOND};
use super::settings::MtuProbing;
use super::state::Input;
use super::tally::segments;
use crate::api::{Instant, Sink, TcpError, TcpState};
use crate::drops::DropReason;
use crate::tcp::SegmentRx;

/// Linux's delayed acknowledgement.
//= https://www.rfc-editor.org/rfc/rfc5681#section-4.2
//# When using delayed ACKs, a TCP receiver MUST NOT excessively delay acknowledgments.
//= https://www.rfc-editor.org/rfc/rfc5681#section-4.2
//# Finally, we repeat that an ACK MUST NOT be delayed for more than 500 ms waiting on a second
//# full-sized segment to arrive.
pub const DELAYED_ACK_NS: u64 = 40 * MILLISECOND;
/// How soon a SYN goes again that was answered as something else: TCP_TIMEOUT_MIN, two of 250 ticks a
/// second.
const SYN_AGAIN_NS: u64 = 8 * MILLISECOND;
/// Acknowledgements sent at once when a connection is new or awakes.
pub const QUICK_ACKS: u8 = 16;
/// Fewer bytes than this are not parted when there is no room for all.
const PART_MIN: usize = 512;
/// At most one challenge acknowledgement of a connection in this time (Linux's
/// tcp_invalid_ratelimit).
const CHALLENGE_INTERVAL_MS: u32 = 500;
/// After this long without a segment an old timestamp proves nothing (RFC 7323 section 5.5).
const TS_RECENT_LIFE_S: u32 = 24 * 86400;

impl Hot {
    /// Whether a timestamp is older than what is remembered, and that proves something: what is
    /// remembered is not too old itself, nor the nought that some hosts' SYNs have (as Linux).
    //= https://www.rfc-editor.org/rfc/rfc7323#section-5.5
    //# If TS.Recent is found to be invalid, then the segment is accepted,
    //# regardless of the failure of the timestamp check, and rule R3 updates
    //# TS.Recent with the TSval from the new segment.
    pub fn is_stamp_old(&self, now: Instant, value: u32) -> bool {
        let age_s = seconds(now.0).wrapping_sub(self.ts_recent_s);
        value.wrapping_sub(self.ts_recent).cast_signed() < 0
            && self.ts_recent != 0
            && age_s < TS_RECENT_LIFE_S
    }
}

/// What becomes of a segment with an old timestamp.
enum Late {
    Accepted,
    Ignored,
    Answered,
}

/// A segment that lies at this offset of the stream.
pub struct SegmentAt<'a> {
    pub segment: &'a TcpSegment<'a>,
    pub rx: &'a SegmentRx,
    pub start: i64,
}

impl Connection<'_> {
    /// Takes a segment.
    pub fn on_segment<S: Sink>(
        &mut self,
        step: &mut Step<'_>,
        segment: &TcpSegment<'_>,
        rx: &SegmentRx,
        sink: &mut S,
    ) -> Result<(), DropReason> {
        match self.hot.state {
            TcpState::Closed | TcpState::TimeWait => return Err(DropReason::TcpNoSocket),
            TcpState::SynSent => return self.on_segment_syn_sent(step, segment, rx, sink),
            _ => {}
        }
        let checked = if self.is_half_open() {
            self.check_half_open(step, segment)?
        } else if self.awaits_fin_alone() {
            self.check_awaited_fin(step, segment)?
        } else {
            self.check(step, segment)?
        };
        let Some(start) = checked else { return Ok(()) };
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
        //# if the ACK bit is off, drop the segment and return
        if !segment.header.flags.ack() {
            return Err(DropReason::TcpBadAck);
        }
        self.hot.received_at = step.now.0;
        self.cold.keep_probes = 0;
        // A record of FIN-WAIT-2 knows nothing of what could be acknowledged.
        if !self.awaits_fin_alone() {
            self.on_ack(step, segment, start)?;
        }
        if self.hot.state.is_over() {
            // Whatever else the segment brings; as Linux.
            return Ok(());
        }
        if let Some(timestamps) = segment.options.timestamps.filter(|_| self.hot.timestamps) {
            //= https://www.rfc-editor.org/rfc/rfc7323#section-4.3
            //# SEG.TSval >= TS.Recent and SEG.SEQ <= Last.ACK.sent
            //#
            //# then SEG.TSval is copied to TS.Recent; otherwise, it is ignored.
            //= https://www.rfc-editor.org/rfc/rfc7323#section-3.2
            //# The exact rules on which TSval MUST be echoed are given in Section 4.3.
            //= https://www.rfc-editor.org/rfc/rfc7323#section-4.3
            //# Thus, when delayed ACKs are in use, the receiver SHOULD reply with the TSval field
            //# from the earliest unacknowledged segment.
            //= https://www.rfc-editor.org/rfc/rfc7323#section-4.3
            //# An <ACK> for an out-of-order segment SHOULD, therefore, contain the timestamp from
            //# the most recent segment that advanced RCV.NXT.
            //= https://www.rfc-editor.org/rfc/rfc7323#section-4.3
            //# Thus, the timestamp from the latest segment (which filled the hole) MUST be echoed.
            //= https://www.rfc-editor.org/rfc/rfc7323#section-5.2
            //# The choice of incoming timestamps to be saved for this comparison MUST guarantee a
            //# value that is monotonically non-decreasing.
            if start <= self.hot.rcv_acked.cast_signed()
                && !self.hot.is_stamp_old(step.now, timestamps.value)
            {
                self.hot.ts_recent = timestamps.value;
                self.hot.ts_recent_s = seconds(step.now.0);
            }
        }
        if let Some(told) = segment.options.user_timeout {
            self.on_user_timeout(step, told);
        }
        self.on_payload(step, &SegmentAt { segment, rx, start }, sink)
    }

    /// RFC 9293 section 3.10.7.3.
    fn on_segment_syn_sent<S: Sink>(
        &mut self,
        step: &mut Step<'_>,
        segment: &TcpSegment<'_>,
        rx: &SegmentRx,
        sink: &mut S,
    ) -> Result<(), DropReason> {
        let header = &segment.header;
        let syn_bytes = self.cold.fast_open.as_ref().map_or(0, |begun| begun.syn_bytes);
        if header.flags.ack() && header.ack.since(self.hot.iss + 1) > syn_bytes {
            if self.cold.retries == 0 {
                // As Linux: the peer may have taken the SYN for one of an old connection, of which it is
                // rid by this reset.
                self.hot.send_at = self.hot.send_at.min(step.now.0.saturating_add(SYN_AGAIN_NS));
            }
            step.reply = self.reset_for(step, segment);
            return Err(DropReason::TcpBadAck);
        }
        if header.flags.ack() && !header.flags.rst() && !self.is_echo_plausible(step.now, segment) {
            // An answer to no SYN of ours (as Linux).
            step.reply = self.reset_for(step, segment);
            return Err(DropReason::TcpPaws);
        }
        if header.flags.rst() {
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.3
            //# If the ACK was acceptable, then signal to the user "error:
            //# connection reset", drop the segment, enter CLOSED state,
            //# delete TCB, and return.  Otherwise (no ACK), drop the
            //# segment and return.
            if !header.flags.ack() {
                return Err(DropReason::TcpBlindReset);
            }
            step.shared.counters.resets_received += 1;
            self.die(step, TcpError::Refused);
            return Ok(());
        }
        if !header.flags.syn() {
            return Err(DropReason::TcpOutOfWindow);
        }
        self.on_peer_syn(step, segment, rx.tos);
        self.hot.received_at = step.now.0;
        if header.flags.ack() {
            self.on_handshake_acked(step, segment);
            if let Some(begun) = self.cold.fast_open.take() {
                self.on_fast_open_answer(step, segment, &begun);
            }
            self.apply(step, Input::SynAck);
            self.hot.acks_owed = 1;
            if self.hot.written > self.hot.nxt.max(syn_bytes.into()) {
                // A write that waited for this goes on as an answer to it, and so will answers (as
                // Linux).
                self.cold.data_at = step.now.0;
            }
        } else {
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.3
            //# Otherwise, enter SYN-RECEIVED, form a SYN,ACK segment
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.5
            //# A TCP implementation MUST support simultaneous open attempts (MUST-10).
            self.apply(step, Input::Syn);
            self.hot.syn_due = true;
            if let Some(begun) = &mut self.cold.fast_open {
                // Data on SYNs that cross is neither taken nor sent again (as Linux).
                begun.cookie = None;
                begun.with_data = false;
            }
        }
        step.ready = true;
        if segment.payload.is_empty() && !header.flags.fin() || !header.flags.ack() {
            return Ok(());
        }
        self.on_payload(step, &SegmentAt { segment, rx, start: 0 }, sink)
    }

    /// Whether the timestamp that answers our SYN, if there is one, is of a time at which we sent
    /// one.
    fn is_echo_plausible(&self, now: Instant, segment: &TcpSegment<'_>) -> bool {
        let Some(timestamps) = segment.options.timestamps.filter(|_| self.hot.timestamps) else {
            return true;
        };
        let first = if self.cold.retries > 0 { self.cold.stuck_since } else { self.hot.timed_at };
        let since = first.min(now.0);
        let (first, last) = (self.hot.ts_now(Instant(since)), self.hot.ts_now(now));
        // The first timeout is reckoned back from its end; a tick may be missing.
        let most = last.wrapping_sub(first).saturating_add(1);
        timestamps.echo == 0 || last.wrapping_sub(timestamps.echo) <= most
    }

    /// What the peer's SYN says, which came with `tos`.
    pub fn on_peer_syn(&mut self, step: &mut Step<'_>, segment: &TcpSegment<'_>, tos: u8) {
        self.agree_on_ecn(step.shared.settings.ecn, segment, tos);
        let (hot, cold) = (&mut *self.hot, &mut *self.cold);
        hot.irs = segment.header.seq;
        hot.rcv_nxt = 0;
        hot.rcv_acked = 0;
        hot.wl1 = 0;
        hot.snd_wnd = u32::from(segment.header.window);
        hot.max_wnd = hot.snd_wnd;
        let options = &segment.options;
        //= https://www.rfc-editor.org/rfc/rfc7323#section-2.2
        //# both sides MUST send Window
        //# Scale options in their <SYN> segments to enable window scaling in
        //# either direction.
        let settings = &step.shared.settings;
        //= https://www.rfc-editor.org/rfc/rfc7323#section-2.3
        //# Upon receiving a <SYN> segment with a Window Scale option containing shift.cnt = S, a
        //# TCP MUST set Snd.Wind.Shift to S and MUST set Rcv.Wind.Shift to R
        match options.window_scale.filter(|_| settings.window_scaling) {
            Some(scale) => hot.snd_scale = scale,
            None => hot.rcv_scale = 0,
        }
        hot.sack = options.sack_permitted && settings.sack;
        //= https://www.rfc-editor.org/rfc/rfc7323#section-3.2
        //# When the ACK bit is not set, the receiver MUST ignore the value of the TSecr field.
        //= https://www.rfc-editor.org/rfc/rfc7323#section-3.2
        //# The TCP SHOULD remember this state by setting a flag, referred to as Snd.TS.OK, to one.
        hot.timestamps &= options.timestamps.is_some();
        if let Some(timestamps) = options.timestamps.filter(|_| hot.timestamps) {
            hot.ts_recent = timestamps.value;
            hot.ts_recent_s = seconds(step.now.0);
        }
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.1
        //# If an MSS Option is not received at connection setup, TCP
        //# implementations MUST assume a default send MSS of 536 (576 - 40) for
        //# IPv4 or 1220 (1280 - 60) for IPv6 (MUST-15).
        let default = if cold.remote.is_ipv4() { 536 } else { 1220 };
        cold.peer_mss = options.mss.unwrap_or(default);
        self.update_mss();
        if self.hot.state == TcpState::SynReceived {
            let mss = self.cold.advertised_mss();
            self.begin_window(mss.saturating_sub(self.option_bytes()));
        }
        let hot = &mut *self.hot;
        hot.rcv_edge = u64::from(self.cold.tuning.threshold.min(65535));
        hot.rcv_mss = 536.min(hot.mss).max(88);
        let window = self.cold.tuning.threshold;
        let quick = (window / (2 * u32::from(hot.rcv_mss))).min(u32::from(QUICK_ACKS));
        hot.quick = (quick as u8).max(2);
        if let Some(told) = options.user_timeout {
            self.on_user_timeout(step, told);
        }
    }

    /// Our SYN has been acknowledged: windows and timers of an established connection.
    pub fn on_handshake_acked(&mut self, step: &mut Step<'_>, segment: &TcpSegment<'_>) {
        let hot = &mut *self.hot;
        if hot.timed_at != NEVER {
            let rtt_ns = step.now.0.saturating_sub(hot.timed_at);
            hot.rtt.on_sample(rtt_ns, hot.una, hot.nxt);
            self.cold.rack.on_round_trip(step.now, rtt_ns);
            self.cold.tlp.on_measured();
            hot.timed_at = NEVER;
        } else if let Some(timestamps) = segment.options.timestamps.filter(|_| hot.timestamps) {
            let ticks = hot.ts_now(step.now).wrapping_sub(timestamps.echo);
            if ticks < 1 << 20 {
                hot.rtt.on_sample(u64::from(ticks) * MILLISECOND, hot.una, hot.nxt);
                self.cold.tlp.on_measured();
            }
        }
        if step.shared.settings.mtu_probing == MtuProbing::Always {
            let opened = self.cold.listener.is_none() && !self.hot.syn_unacked;
            self.search_always(step.now, step.shared.settings.base_mss, opened);
        }
        let hot = &mut *self.hot;
        //= https://www.rfc-editor.org/rfc/rfc5681#section-3.1
        //# As specified in [RFC3390], the SYN/ACK and the acknowledgment of the SYN/ACK MUST NOT
        //# increase the size of the congestion window.
        hot.window = super::congestion::Window::first(hot.mss, &self.cold.options.path);
        self.cold.chronicle.delivered += 1;
        self.cold.chronicle.stands_since_ms = super::progress::millis(step.now.0);
        //= https://www.rfc-editor.org/rfc/rfc6928#section-2
        //# If the SYN or SYN/ACK is lost, the initial window used by a sender after a correctly
        //# transmitted SYN MUST be one segment consisting of MSS bytes.
        //= https://www.rfc-editor.org/rfc/rfc6928#section-2
        //# For this reason, it is RECOMMENDED that implementations refrain from resetting the
        //# initial window to 1 segment, unless there have been more than one SYN or SYN/ACK
        //# retransmissions or true loss detection has been made.
        if self.cold.retries > 1 {
            //= https://www.rfc-editor.org/rfc/rfc5681#section-3.1
            //# if the SYN or SYN/ACK is lost, the initial window used by a
            //# sender after a correctly transmitted SYN MUST be one segment
            //# consisting of at most SMSS bytes.
            hot.window.cwnd = u32::from(hot.mss);
        }
        if self.cold.retries > 0 {
            hot.rtt.on_handshake_timeout();
        }
        self.end_timeouts(step.now);
        self.cold.retries = 0;
        self.hot.syn_due = false;
        self.stop_send_timer();
        self.start_algorithm(step.now, &step.shared.settings);
        step.shared.counters.established += 1;
    }

    /// Sequence number, reset, SYN: everything that comes before the acknowledgement. Yields the
    /// receive offset of the first byte; none where nothing of the segment remains to be looked at.
    //= https://www.rfc-editor.org/rfc/rfc5961#section-1.1
    //# The mitigations suggested in this document SHOULD be implemented in devices that regularly
    //# need to maintain TCP connections of the kind most vulnerable to the attacks described in
    //# this document.
    //= https://www.rfc-editor.org/rfc/rfc5961#section-3.2
    //# Instead, implementations SHOULD implement the following steps in place of those specified in
    //# [RFC0793] (as listed above).
    fn check(
        &mut self,
        step: &mut Step<'_>,
        segment: &TcpSegment<'_>,
    ) -> Result<Option<i64>, DropReason> {
        let header = &segment.header;
        let flags = header.flags;
        let (start, end) = self.span(segment);
        if !flags.ack() && !flags.rst() && !flags.syn() {
            // As Linux: whatever its number.
            return Err(DropReason::TcpBadAck);
        }
        if self.hot.syn_unacked && flags.syn() && !flags.ack() && header.seq == self.hot.irs {
            self.repeat_syn(step);
            return Ok(None);
        }
        //= https://www.rfc-editor.org/rfc/rfc7323#section-3.2
        //# A TCP MUST NOT abort a TCP connection because any segment lacks an expected TSopt.
        //= https://www.rfc-editor.org/rfc/rfc7323#section-3.2
        //# If a TSopt is received on a connection where TSopt was not negotiated in the initial three-way
        //# handshake, the TSopt MUST be ignored and the packet processed normally.
        //= https://www.rfc-editor.org/rfc/rfc7323#section-5.3
        //# If the PAWS algorithm is used, the following processing MUST be performed on all incoming
        //# segments for a synchronized connection.
        //= https://www.rfc-editor.org/rfc/rfc7323#section-5.3
        //# PAWS processing MUST take precedence over the regular TCP acceptability check
        //= https://www.rfc-editor.org/rfc/rfc7323#section-5.3
        //# the timestamp MUST be checked only when a segment first arrives at the receiver, regardless of
        //# whether it is in sequence or it must be queued for later delivery.
        if let Some(timestamps) = segment.options.timestamps.filter(|_| self.hot.timestamps) {
            //= https://www.rfc-editor.org/rfc/rfc7323#section-5.3
            //# R1)  If there is a Timestamps option in the arriving segment,
            //#      SEG.TSval < TS.Recent, TS.Recent is valid (see later
            //#      discussion), and if the RST bit is not set, then treat the
            //#      arriving segment as not acceptable
            //= https://www.rfc-editor.org/rfc/rfc7323#section-5.2
            //# When an <RST> segment is received, it MUST NOT be subjected to the PAWS check by
            //# verifying an acceptable value in SEG.TSval, and information from the Timestamps
            //# option MUST NOT be used to update connection state information.
            // As Linux (TCP_PAWS_WINDOW), one tick is no age.
            let is_old = self.hot.is_stamp_old(step.now, timestamps.value.wrapping_add(1));
            if !flags.rst() && is_old {
                match self.judge_late(segment, timestamps.value) {
                    Late::Accepted => {}
                    Late::Ignored => return Err(DropReason::TcpPaws),
                    Late::Answered => {
                        self.acknowledge_invalid(step, segment);
                        return Err(DropReason::TcpPaws);
                    }
                }
            }
        }
        let next = self.hot.rcv_nxt.cast_signed();
        let edge = self.hot.rcv_edge.cast_signed().max(next);
        // Linux's reading of the acceptability test: up to the last acknowledgement sent and up
        // to the edge itself, so that acknowledgements on old or probing segments count.
        let is_old = end < self.hot.rcv_acked.cast_signed();
        // As Linux: what begins within the window and ends beyond it is taken whole, as long as
        // there is nothing unread. Otherwise nothing of it counts, also not its acknowledgement, urgent
        // pointer or reset, of which RFC 9293 would make an exception where the window is shut: only
        // those that come without data beyond it are heeded then (tried with Linux 6.18).
        let is_beyond = end - i64::from(flags.fin()) > edge
            && (start > edge || self.hot.consumed < self.hot.readable());
        // As Linux: some peers (macOS) reset with the number of their FIN.
        let repeats_fin = start + 1 == next
            && matches!(
                self.hot.state,
                TcpState::CloseWait | TcpState::LastAck | TcpState::Closing
            );
        if flags.rst() && repeats_fin {
            return self.on_reset(step, true).map(|()| None);
        }
        if is_old || start > edge || is_beyond {
            //= https://www.rfc-editor.org/rfc/rfc5961#section-3.2
            //# In all other cases, where the SEQ-field does not match and is outside the window, the receiver
            //# MUST silently discard the segment.
            //= https://www.rfc-editor.org/rfc/rfc5961#section-3.2
            //# In all other cases the receiver MUST silently discard the segment.
            step.shared.counters.beyond_window += u64::from(!is_old);
            if flags.syn() && !flags.rst() {
                self.challenge(step);
            } else if !flags.rst() {
                //= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
                //# If an incoming segment is not acceptable, an acknowledgment
                //# should be sent in reply (unless the RST bit is set, if so drop
                //# the segment and return):
                self.acknowledge_invalid(step, segment);
            }
            return Err(DropReason::TcpOutOfWindow);
        }
        if flags.rst() {
            // As Linux: behind a gap, a peer that dies resets with the end of what we have told it to
            // have, and knows no other number.
            let told = self.cold.received.iter().next_back().filter(|_| self.hot.sack);
            let is_told = told.is_some_and(|range| range.end.cast_signed() == start);
            return self.on_reset(step, start == next || is_told).map(|()| None);
        }
        if flags.syn() {
            let crossing = self.hot.state == TcpState::SynReceived && start == -1;
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
            //# if the SYN bit is set, irrespective of the sequence number, TCP endpoints MUST send
            //# a "challenge ACK" to the remote peer
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
            //# o After sending the acknowledgment, TCP implementations MUST drop the unacceptable
            //# segment and stop processing further.
            //= https://www.rfc-editor.org/rfc/rfc5961#section-4.2
            //# Instead, the handling of the SYN in the synchronized state SHOULD be performed as
            //# follows:
            //= https://www.rfc-editor.org/rfc/rfc5961#section-4.2
            //# After sending the acknowledgment, TCP MUST drop the unacceptable segment and stop
            //# processing further.
            if !(crossing && flags.ack()) {
                //= https://www.rfc-editor.org/rfc/rfc5961#section-4.2
                //# 1) If the SYN bit is set, irrespective of the sequence number, TCP
                //#    MUST send an ACK (also referred to as challenge ACK) to the remote
                //#    peer:
                self.challenge(step);
                return Err(DropReason::TcpBlindReset);
            }
        }
        // From here on a SYN is the crossing one, whose number counts for nothing.
        Ok(Some(if flags.syn() { start + 1 } else { start }))
    }

    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.6
    //# If the local TCP connection is closed by the remote side due to a FIN or RST received from
    //# the remote side, then the local application MUST be informed whether it closed normally or
    //# was aborted (MUST-12).
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.5.3
    //# TCP implementations SHOULD allow a received RST segment to include data (SHLD-2).
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
    //# 2) If the RST bit is set and the sequence number exactly matches the next expected sequence
    //# number (RCV.NXT), then TCP endpoints MUST reset the connection in the manner prescribed
    //# below according to the connection state.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
    //# 3) If the RST bit is set and the sequence number does not exactly match the next expected
    //# sequence value, yet is within the current receive window, TCP endpoints MUST send an
    //# acknowledgment (challenge ACK):
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
    //# After sending the challenge ACK, TCP endpoints MUST drop the unacceptable segment and stop
    //# processing the incoming packet further.
    //= https://www.rfc-editor.org/rfc/rfc5961#section-3.2
    //# After sending the challenge ACK, TCP MUST drop the unacceptable segment and stop processing
    //# the incoming packet further.
    //= https://www.rfc-editor.org/rfc/rfc5961#section-4.2
    //# Upon receipt of a valid RST, the local TCP endpoint MUST terminate its connection.
    fn on_reset(&mut self, step: &mut Step<'_>, exact: bool) -> Result<(), DropReason> {
        //= https://www.rfc-editor.org/rfc/rfc5961#section-3.2
        //# 2) If the RST bit is set and the sequence number exactly matches the
        //#    next expected sequence number (RCV.NXT), then TCP MUST reset the
        //#    connection.
        if !exact {
            //= https://www.rfc-editor.org/rfc/rfc5961#section-3.2
            //# 3) If the RST bit is set and the sequence number does not exactly
            //#    match the next expected sequence value, yet is within the current
            //#    receive window (RCV.NXT < SEG.SEQ < RCV.NXT+RCV.WND), TCP MUST
            //#    send an acknowledgment (challenge ACK):
            self.challenge(step);
            return Err(DropReason::TcpBlindReset);
        }
        self.on_exact_reset(step)
    }

    /// A reset with the number that is expected.
    pub fn on_exact_reset(&mut self, step: &mut Step<'_>) -> Result<(), DropReason> {
        step.shared.counters.resets_received += 1;
        let error = self.error_of_reset();
        self.die(step, error);
        Ok(())
    }

    fn error_of_reset(&self) -> TcpError {
        match self.hot.state {
            TcpState::SynReceived => TcpError::Refused,
            TcpState::CloseWait => TcpError::ResetAfterEnd,
            _ => TcpError::Reset,
        }
    }

    /// What becomes of a segment with an old timestamp: as in Linux (tcp_disordered_ack), a plain
    /// acknowledgement that was overtaken is taken or ignored, lest two ends answer each other.
    fn judge_late(&self, segment: &TcpSegment<'_>, stamp: u32) -> Late {
        let hot = &*self.hot;
        let (start, end) = self.span(segment);
        let next = hot.rcv_nxt.cast_signed();
        if !segment.header.flags.ack() || start != end || start > next {
            return Late::Answered;
        }
        if start < next {
            return Late::Ignored;
        }
        let ack = hot.send_offset(segment.header.ack);
        let age_ms = u64::from(hot.ts_recent.wrapping_sub(stamp));
        let is_replayed = age_ms <= hot.rtt.rto_ns() / MILLISECOND * 6 / 5;
        let says_nothing = ack == hot.una.cast_signed() && !hot.tells_window(segment, start, ack);
        if says_nothing && is_replayed { Late::Accepted } else { Late::Answered }
    }

    /// A challenge acknowledgement, within the connection's allowance. There is none for all
    /// connections together: who fills one up with a connection of his own sees whether others used
    /// it, and so guesses their numbers (CVE-2016-5696; Linux has none since 6.0).
    //= https://www.rfc-editor.org/rfc/rfc5961#section-7
    //# In order to alleviate multiple RSTs/SYNs from triggering multiple
    //# challenge ACKs, an ACK throttling mechanism is suggested as follows:
    pub fn challenge(&mut self, step: &mut Step<'_>) {
        if !self.may_answer_invalid(step) {
            step.shared.counters.challenges_limited += 1;
            return;
        }
        step.shared.counters.challenge_acks += 1;
        self.owe_ack(step);
    }

    /// Answers an unacceptable segment; those without data at a limited rate, so that two ends
    /// that disagree do not answer each other for ever.
    pub fn acknowledge_invalid(&mut self, step: &mut Step<'_>, segment: &TcpSegment<'_>) {
        let limited = segment.payload.is_empty() && !segment.header.flags.fin();
        if limited && !self.may_answer_invalid(step) {
            step.shared.counters.challenges_limited += 1;
            return;
        }
        if self.hot.state != TcpState::SynReceived {
            self.note_duplicate(step, segment);
        }
        self.owe_ack(step);
    }

    //= https://www.rfc-editor.org/rfc/rfc5961#section-7
    //# An implementation SHOULD include an ACK throttling mechanism to be conservative.
    pub fn may_answer_invalid(&mut self, step: &Step<'_>) -> bool {
        is_answer_due(&mut self.cold.challenged_ms, step.now)
    }

    /// An acknowledgement goes out as soon as possible.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
    //# o In general, the processing of received segments MUST be implemented to aggregate ACK
    //# segments whenever possible (MUST-58).
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
    //# For example, if the TCP endpoint is processing a series of queued segments, it MUST process
    //# them all before sending any ACK segments (MUST-59).
    pub fn owe_ack(&mut self, step: &mut Step<'_>) {
        if self.hot.state == TcpState::SynReceived {
            self.acknowledge_syn(step);
        } else if self.hot.acks_owed == 0 {
            self.hot.acks_owed = 1;
        }
        step.ready = true;
    }

    /// The handshake's last acknowledgement in SYN-RECEIVED.
    pub fn on_syn_acked(&mut self, step: &mut Step<'_>, segment: &TcpSegment<'_>) {
        self.on_handshake_acked(step, segment);
        if self.cold.listener.is_none()
            && let Some(begun) = self.cold.fast_open.take()
        {
            self.on_fast_open_answer(step, segment, &begun);
        }
        let hot = &mut *self.hot;
        // Of a simultaneous open's second SYN, too, the window is not scaled (RFC 7323, 2.2).
        let scale = if segment.header.flags.syn() { 0 } else { hot.snd_scale };
        hot.snd_wnd = u32::from(segment.header.window) << scale;
        hot.max_wnd = hot.snd_wnd;
        self.apply(step, Input::AckOfSyn);
        if segment.header.flags.syn() {
            // The crossing SYN is a duplicate, and answered as one (as Linux).
            self.report_duplicate(step, Range { start: u64::MAX, end: 0 });
            self.owe_ack(step);
        }
    }

    /// The segment's data and FIN.
    pub fn on_payload<S: Sink>(
        &mut self,
        step: &mut Step<'_>,
        at: &SegmentAt<'_>,
        sink: &mut S,
    ) -> Result<(), DropReason> {
        let SegmentAt { segment, rx, start } = *at;
        let flags = segment.header.flags;
        if flags.contains(TcpFlags::URG) {
            self.on_urgent(step, start, segment.header.urgent);
        }
        if self.cold.rare.as_ref().is_some_and(|rare| rare.urgent.is_awaited()) {
            self.find_urgent(step, start, segment.payload);
        }
        if segment.payload.is_empty() && !flags.fin() {
            return Ok(());
        }
        let len = segment.payload.len() as u64;
        let end = start + len.cast_signed();
        let next = self.hot.rcv_nxt.cast_signed();
        if !self.hot.state.may_receive() {
            // The peer has sent its FIN already; what repeats it is acknowledged, data beyond it end the
            // connection, and what begins there says nothing (as Linux).
            if start < next && end > next && len > 0 {
                step.shared.counters.aborts_on_data += 1;
                self.abort_in_answer(step, segment, self.error_of_reset());
            } else if start < next {
                self.note_duplicate(step, segment);
                self.owe_ack(step);
            }
            return Err(DropReason::TcpClosed);
        }
        let awaited = self.hot.acks_owed > 0 || self.cold.peer_fin.is_some();
        if self.hot.orphan && end > next && (len > 0 || flags.fin()) {
            //= https://www.rfc-editor.org/rfc/rfc1122#section-4.2.2.13
            //# if new data is received after CLOSE is called, its TCP
            //# SHOULD send a RST to show that data was lost.
            step.shared.counters.aborts_on_data += 1;
            self.abort_in_answer(step, segment, TcpError::Aborted);
            return Err(DropReason::TcpClosed);
        }
        let low = start.max(next);
        let is_within = low < self.hot.rcv_edge.cast_signed();
        let mut high = if is_within { end } else { end.min(low) };
        let repeats = low == high && len > 0;
        if low > high || (repeats && !(flags.fin() && end == next)) {
            // Nothing new within the window: a repetition, or a probe of a closed window.
            self.note_duplicate(step, segment);
            self.owe_ack(step);
            return if end <= next && !flags.fin() {
                Ok(())
            } else {
                Err(DropReason::TcpOutOfWindow)
            };
        }
        if low < high && self.is_beyond_memory(high) {
            // The program has made its buffer smaller since the peer was promised more (as Linux).
            self.owe_ack(step);
            return Err(DropReason::TcpNoRoom);
        }
        if low < high {
            let skip = (low - start) as usize;
            let take = (high - low) as usize;
            let bytes = segment.payload.get(skip..).and_then(|b| b.get(..take)).unwrap_or_default();
            let low = low.cast_unsigned();
            let stored = self.store(sink, low, bytes);
            if stored < bytes.len() {
                self.owe_ack(step);
            }
            if stored == 0 {
                return Err(DropReason::TcpNoRoom);
            }
            let end_stored = low + stored as u64;
            high = end_stored.cast_signed();
            //= https://www.rfc-editor.org/rfc/rfc2883#section-4.2
            //# If the data packet being acknowledged contains multiple
            //# partial duplicate sub-segments, then only the first such duplicate
            //# sub-segment is reported in the SACK option.
            if start < next {
                self.note_duplicate(step, segment);
            } else if let Some(known) = self.cold.received.first_overlap(low, end_stored) {
                self.report_duplicate(step, known);
            }
            self.on_marks(step, flags, rx.tos);
            self.measure_peer(step, len, rx.gso_bytes);
            if low == self.hot.rcv_nxt {
                self.advance(step, end_stored);
                let stamp = segment.options.timestamps.filter(|_| self.hot.timestamps);
                let len = rx.gso_bytes.map_or(len, u64::from).min(len);
                self.measure_path(step.now, len, stamp.map(|stamp| stamp.echo));
                self.open_window(end_stored - low);
            } else {
                let rare = self.cold.rare_mut();
                let count = segments(len, rx.gso_bytes);
                rare.out_of_order = rare.out_of_order.wrapping_add(count);
                if self.hot.sack {
                    self.open_window(end_stored - low);
                }
                self.keep_for_later(step, low, end_stored)?;
                self.make_room_for_gap(step);
            }
        } else if repeats {
            // But its FIN is new: a peer sends both again in one segment.
            self.note_duplicate(step, segment);
        }
        if flags.fin() && high == end && self.cold.peer_fin.is_none() {
            self.cold.peer_fin = u64::try_from(end + 1).ok().and_then(NonZeroU64::new);
            if end > self.hot.rcv_nxt.cast_signed() {
                self.owe_ack(step);
            }
        }
        if self.peer_fin() == Some(self.hot.rcv_nxt) && !self.hot.fin_received {
            self.hot.rcv_nxt += 1;
            self.hot.fin_received = true;
            self.cold.received.clear();
            // As Linux: with the end nothing is reported any more.
            self.cold.take_duplicate();
            step.event = true;
            self.acknowledge_fin(step, awaited);
            self.apply(step, Input::Fin);
        }
        Ok(())
    }

    /// The peer's FIN has been received, with a segment before which an answer was due or the FIN
    /// known if it was `awaited`. As Linux: the answer waits a moment for the program's own FIN, to
    /// ride on it, once there has been data.
    fn acknowledge_fin(&mut self, step: &mut Step<'_>, awaited: bool) {
        let hot = &mut *self.hot;
        let unacked = hot.rcv_nxt - hot.rcv_acked;
        let may_wait = hot.state == TcpState::Established && self.cold.data_at > 0;
        hot.interactive |= hot.state == TcpState::Established;
        // One beyond the window found no room, and is answered at once (as Linux).
        let is_beyond = hot.rcv_nxt > hot.rcv_edge;
        if !may_wait || awaited || is_beyond || unacked > u64::from(hot.rcv_mss) {
            self.owe_ack(step);
            return;
        }
        hot.acks_owed = 0;
        hot.ack_at = hot.ack_at.min(step.now.0.saturating_add(hot.ack_delay_ns()));
    }

    /// Stores bytes; how many of them, from the first on, found room. Of bytes in order as many
    /// as possible are taken, or else a coalesced segment could wait for ever for room that its
    /// own beginning would make: in a program connected to itself the peer's unacknowledged
    /// bytes lie in the same buffers.
    fn store<S: Sink>(&self, sink: &mut S, low: u64, bytes: &[u8]) -> usize {
        let mut len = bytes.len();
        loop {
            let part = bytes.get(..len).unwrap_or_default();
            if sink.stream(self.id, self.hot.owner, low, part) {
                return len;
            }
            if low != self.hot.rcv_nxt || len <= PART_MIN {
                return 0;
            }
            len = (len / 2).max(PART_MIN);
        }
    }

    /// Where the peer's FIN is, once announced.
    pub fn peer_fin(&self) -> Option<u64> {
        self.cold.peer_fin.map(|past| past.get() - 1)
    }

    /// In-order bytes up to `high` have been stored.
    fn advance(&mut self, step: &mut Step<'_>, high: u64) {
        let hot = &mut *self.hot;
        hot.rcv_nxt = high;
        let had_gap = !self.cold.received.is_empty();
        if had_gap {
            // A large segment can cover several ranges and touch the next.
            self.cold.received.remove_below(high);
            if let Some(first) = self.cold.received.first().filter(|r| r.start == high) {
                hot.rcv_nxt = first.end;
                self.cold.received.remove_below(first.end);
            }
        }
        let fin = self.peer_fin();
        // A FIN seals the stream: bytes a peer sends beyond it are not part of it.
        let hot = &mut *self.hot;
        if let Some(fin) = fin {
            hot.rcv_nxt = hot.rcv_nxt.min(fin);
        }
        step.event = true;
        self.schedule_ack(step, had_gap);
    }

    /// Bytes beyond a gap have been stored in place; only where they are is remembered.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
    //# Segments with higher beginning sequence numbers SHOULD be held for later processing
    //# (SHLD-31).
    //= https://www.rfc-editor.org/rfc/rfc5681#section-4.2
    //# Out-of-order data segments SHOULD be acknowledged immediately, in order to accelerate loss
    //# recovery.
    //= https://www.rfc-editor.org/rfc/rfc5681#section-4.2
    //# To trigger the fast retransmit algorithm, the receiver SHOULD send an immediate duplicate
    //# ACK when it receives a data segment above a gap in the sequence space.
    //= https://www.rfc-editor.org/rfc/rfc6582#section-5
    //# [RFC5681] specifies that "Out-of-order data segments SHOULD be acknowledged immediately, in
    //# order to accelerate loss recovery".
    fn keep_for_later(
        &mut self,
        step: &mut Step<'_>,
        low: u64,
        high: u64,
    ) -> Result<(), DropReason> {
        step.shared.counters.out_of_order += 1;
        let counters = &mut step.shared.counters;
        let insertion = self.cold.received.insert(low, high, |_| counters.ranges_forgotten += 1);
        if insertion == Insertion::Full {
            self.owe_ack(step);
            return Err(DropReason::TcpReassemblyLimit);
        }
        // Also when all of it was there:
        //= https://www.rfc-editor.org/rfc/rfc2883#section-4
        //# If the duplicate segment is part of a larger block
        //# of non-contiguous data in the receiver's data queue, then the
        //# following SACK block should be used to specify this larger block.
        self.cold.received.note_newest(low);
        //= https://www.rfc-editor.org/rfc/rfc5681#section-3.2
        //# A TCP receiver SHOULD send an immediate duplicate ACK when an out-
        //# of-order segment arrives.
        self.hot.quick = self.hot.quick.max(QUICK_ACKS);
        self.hot.interactive = false;
        //= https://www.rfc-editor.org/rfc/rfc2018#section-4
        //# The receiver SHOULD send an ACK for every valid segment that arrives containing new
        //# data, and each of these "duplicate" ACKs SHOULD bear a SACK option.
        if self.hot.sack {
            self.owe_ack(step);
        } else {
            // Without SACK the sender counts duplicates, so each segment gets its own.
            self.hot.acks_owed = self.hot.acks_owed.saturating_add(1).min(16);
            step.ready = true;
        }
        Ok(())
    }

    /// Decides when in-order data is acknowledged.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.3
    //# A TCP endpoint SHOULD implement a delayed ACK (SHLD-18)
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.3
    //# An ACK SHOULD be generated for at least every second full-sized segment or 2*RMSS bytes of
    //# new data
    //= https://www.rfc-editor.org/rfc/rfc5681#section-4.2
    //# The delayed ACK algorithm specified in [RFC1122] SHOULD be used by a TCP receiver.
    //= https://www.rfc-editor.org/rfc/rfc5681#section-4.2
    //# an ACK SHOULD be generated for at least every second full-sized segment
    fn schedule_ack(&mut self, step: &mut Step<'_>, had_gap: bool) {
        let hot = &mut *self.hot;
        let unacked = hot.rcv_nxt - hot.rcv_acked;
        //= https://www.rfc-editor.org/rfc/rfc5681#section-4.2
        //# A TCP receiver MUST NOT generate more than one ACK for every incoming
        //# segment, other than to update the offered window as the receiving
        //# application consumes new data
        let second_segment = unacked > u64::from(hot.rcv_mss);
        let quick = hot.quick > 0 && !hot.interactive || self.cold.options.path.quickack;
        //= https://www.rfc-editor.org/rfc/rfc5681#section-3.2
        //# In addition, a TCP receiver SHOULD send an immediate ACK when the incoming segment fills in all
        //# or part of a gap in the sequence space.
        //= https://www.rfc-editor.org/rfc/rfc5681#section-4.2
        //# To provide feedback to senders recovering from losses, the receiver SHOULD send an immediate ACK
        //# when it receives a data segment that fills in all or part of a gap in the sequence space.
        if had_gap || ((second_segment || quick) && !self.awaits_reading()) {
            self.owe_ack(step);
        } else if self.hot.ack_at == NEVER {
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.3
            //# in particular, the delay MUST be
            //# less than 0.5 seconds (MUST-40).
            self.hot.ack_at = step.now.0.saturating_add(self.hot.ack_delay_ns());
        }
    }
}

/// Seconds of the caller's clock, going round.
pub fn seconds(now_ns: u64) -> u32 {
    (now_ns / SECOND) as u32
}

/// Whether an unacceptable segment is answered, when the last of a connection was at `at_ms`, 0 for
/// never; what is answered is noted there.
pub fn is_answer_due(at_ms: &mut u32, now: Instant) -> bool {
    let now_ms = millis(now.0).max(1);
    let is_due = *at_ms == 0 || now_ms.wrapping_sub(*at_ms) >= CHALLENGE_INTERVAL_MS;
    if is_due {
        *at_ms = now_ms;
    }
    is_due
}
