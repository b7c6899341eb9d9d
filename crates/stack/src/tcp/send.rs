//! What a connection sends next: SYNs, retransmissions, new data, probes, acknowledgements.

use wire::tcp::{
    SackBlocks, SeqNumber, TcpFlags, TcpHeader, TcpOptions, Timestamps, USER_TIMEOUT_LEN,
    UserTimeout,
};

use super::SegmentTx;
use super::connection::{Connection, NEVER, SendTimer, Sequel, Step, window_part};
use super::frto::Frto;
use super::intervals::Range;
use super::progress::millis;
use super::settings::TcpSettings;
use super::user_timeout::TimeoutOption;
use crate::api::{Instant, Payload, TcpState};

/// The next segment to send, decided and not yet made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// SYN, or SYN and ACK.
    Syn,
    /// Bytes of the stream.
    Data { start: u64, end: u64, fin: bool, again: bool },
    /// New bytes in one packet that is larger than what is known to arrive.
    MtuProbe { start: u64, end: u64 },
    /// A segment without data just below snd.una, to make the peer answer.
    Probe,
    /// An acknowledgement.
    Ack,
}

impl Next {
    /// What is to be one segment of at most `mss` bytes, made to fit into `most`. Larger frames
    /// are cut by the port.
    fn cut_to(self, most: u16, mss: u16) -> Self {
        match self {
            Next::Data { start, end, again, .. }
                if end - start > u64::from(most) && end - start <= u64::from(mss) =>
            {
                Next::Data { start, end: start + u64::from(most), fin: false, again }
            }
            as_it_is => as_it_is,
        }
    }
}

impl Connection<'_> {
    /// Whether there is anything to send now.
    pub fn has_something_to_send(&mut self, now: Instant) -> bool {
        self.look_at_pace(now);
        let mut limited = false;
        let has = self.next(now, &mut limited).is_some();
        if limited {
            self.note_limit();
        }
        has
    }

    /// Writes the header of the next segment to `out` and accounts for it as sent.
    pub fn emit(&mut self, step: &mut Step<'_>, out: &mut [u8]) -> Option<SegmentTx> {
        self.look_at_pace(step.now);
        let mut limited = false;
        let mut next = self.next(step.now, &mut limited);
        if matches!(next, Some(Next::Data { again: false, .. })) && self.restart_after_idle(step) {
            // With the window that there is now.
            next = self.next(step.now, &mut limited);
        }
        if limited {
            self.note_limit();
        }
        self.cold.burst = 0;
        let mut next = next?;
        let sack = match next {
            Next::Syn => SackBlocks::NONE,
            _ => self.sack_blocks(),
        };
        // Not with probes, which have their size, or which the peer does not take.
        let uto = match next {
            Next::Data { .. } | Next::Ack => self.due_uto(&sack),
            _ => None,
        };
        let segment_max = self.segment_max(&sack, uto);
        // What tells a timeout is one segment: of a larger frame the port would repeat it in each.
        next = next.cut_to(segment_max, if uto.is_some() { u16::MAX } else { self.hot.mss });
        let probe = match next {
            Next::MtuProbe { start, end } => {
                next = Next::Data { start, end, fin: false, again: false };
                Some((start, end))
            }
            _ => None,
        };
        let mut flags = TcpFlags::ACK;
        let mut options = TcpOptions::NONE;
        let mut payload = Payload::None;
        let mut gso_bytes = None;
        let seq;
        // Where the segment stands in the send stream, for what is said of urgent bytes.
        let mut at = self.hot.nxt;
        match next {
            Next::Syn => {
                seq = self.hot.iss;
                flags = TcpFlags::SYN;
                if self.hot.answers_syn() {
                    flags |= TcpFlags::ACK;
                }
                flags |= self.ecn_of_syn();
                options = self.syn_options(step.now, &step.shared.settings);
                let len = self.syn_payload();
                if len > 0 {
                    let owner = self.hot.owner;
                    payload = Payload::Stream { id: self.id, owner, offset: 0, len };
                }
                if let Some(begun) = &mut self.cold.fast_open {
                    begun.syn_bytes = begun.syn_bytes.max(len);
                }
            }
            Next::Data { start, end, fin, again } => {
                seq = self.hot.seq(start);
                at = start;
                let len = u32::try_from(end - start).unwrap_or(0);
                if fin {
                    flags |= TcpFlags::FIN;
                }
                if len > 0 && (!again && self.is_push_due(end) || self.is_pushed(end)) {
                    flags |= TcpFlags::PSH;
                }
                if len > 0 {
                    payload =
                        Payload::Stream { id: self.id, owner: self.hot.owner, offset: start, len };
                }
                if len > u32::from(segment_max) && probe.is_none() {
                    gso_bytes = Some(segment_max);
                    // The last of them has it, so that the receiver need not wait for more to
                    // join them to (as Linux).
                    flags |= TcpFlags::PSH;
                }
            }
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.4
            //# An implementation SHOULD send a keep-alive segment with no data (SHLD-12)
            Next::Probe => {
                seq = self.hot.seq(self.hot.una) - 1;
                at = self.hot.una;
            }
            Next::Ack | Next::MtuProbe { .. } => seq = self.hot.seq(self.hot.nxt),
        }
        let syn = flags.syn();
        let tos = if syn {
            self.tos_of_syn()
        } else {
            let has_data = !matches!(payload, Payload::None);
            let (ecn, tos) =
                self.ecn_of_segment(has_data && matches!(next, Next::Data { again: false, .. }));
            flags |= ecn;
            tos
        };
        if !syn {
            //= https://www.rfc-editor.org/rfc/rfc7323#section-3.2
            //# When the ACK bit is set in an outgoing segment, the sender MUST echo a recently
            //# received TSval sent by the remote TCP in the TSval field of a Timestamps option.
            //= https://www.rfc-editor.org/rfc/rfc7323#section-3.2
            //# the TSopt MUST be sent in every non-<RST> segment for the duration of the connection
            options.timestamps = self
                .hot
                .timestamps
                .then(|| Timestamps { value: self.hot.ts_now(step.now), echo: self.hot.ts_recent });
            options.sack = sack;
            options.user_timeout = uto;
        }
        let urgent = if syn { None } else { self.urgent_pointer(next, at) };
        if urgent.is_some() {
            flags |= TcpFlags::URG;
        }
        let window = if syn { self.syn_window() } else { self.offer_window() };
        let header = TcpHeader {
            src_port: self.cold.local.port(),
            dst_port: self.cold.remote.port(),
            seq,
            ack: if flags.ack() { self.hot.ack(self.hot.rcv_nxt) } else { SeqNumber(0) },
            flags,
            window,
            checksum: 0,
            urgent: urgent.unwrap_or(0),
        };
        options.signature = self.hot.signed.then_some([0; 16]);
        let header_bytes = header.emit(&options, out).ok()? as u16;
        let mut unsigned = self.hot.signed;
        if unsigned
            && matches!(payload, Payload::None)
            && let (Some(key), Some(header)) =
                (self.cold.key(), out.get_mut(..usize::from(header_bytes)))
        {
            key.sign(self.cold.local.address(), self.cold.remote.address(), header, &[]);
            unsigned = false;
        }
        let unit = match payload {
            Payload::Stream { len, .. } => gso_bytes.map_or(len, u32::from),
            _ => 1,
        };
        if !syn || !flags.ack() {
            self.cold.tally.on_sent(&payload, gso_bytes);
        }
        let small_end = self.hot.small_end;
        self.on_sent(step, next, u16::try_from(unit).unwrap_or(u16::MAX));
        if options.tells_user_timeout() {
            step.shared.counters.user_timeouts_sent += 1;
            if !syn {
                self.hot.timeout_option = TimeoutOption::Told;
            }
        }
        if let Some((start, end)) = probe {
            // Nagle's algorithm waits for no probe, as in Linux.
            self.hot.small_end = small_end;
            self.on_probe_sent(step, start, end);
        } else if uto.is_some() && unit == u32::from(segment_max) {
            // It is full but for the option.
            self.hot.small_end = small_end;
        }
        Some(SegmentTx {
            header_bytes,
            payload,
            gso_bytes,
            local: self.cold.local.ip(),
            remote: self.cold.remote.ip(),
            tos,
            ttl: self.cold.options.ttl_to(self.cold.remote.ip()),
            //= https://www.rfc-editor.org/rfc/rfc8899#section-3
            //# In IPv4, a probe packet MUST be sent with the Don't Fragment (DF) bit set in the IP
            //# header and without network layer endpoint fragmentation.
            dont_fragment: !self.cold.options.may_be_cut(),
            unsigned,
        })
    }

    /// The urgent pointer of a segment that stands `at` in the send stream: it points past the
    /// urgent byte, as Linux and nearly everybody has it.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.5
    //# The urgent pointer MUST point to the sequence number of the octet following the urgent
    //# data (MUST-62).
    //= https://www.rfc-editor.org/rfc/rfc6093#section-4
    //# "the urgent pointer points to the sequence number of the
    //# octet following the urgent data" (in segments with the URG control
    //# bit set), thus accommodating virtually all existing TCP
    //# implementations.
    fn urgent_pointer(&self, next: Next, at: u64) -> Option<u16> {
        if !self.hot.urging {
            return None;
        }
        // A probe stands one before what is acknowledged.
        let before = u64::from(next == Next::Probe);
        let end = self.cold.rare.as_ref()?.urge_end;
        let ahead = end.checked_sub(at)?.saturating_add(before);
        match u16::try_from(ahead) {
            Ok(0) => None,
            Ok(pointer) => Some(pointer),
            // Too far to be told exactly: as far as can be told, once all before it is under way.
            Err(_) if at + 0xffff > self.hot.nxt => Some(u16::MAX),
            Err(_) => None,
        }
    }

    /// Bytes of payload that a segment with these blocks and this timeout may carry.
    //= https://www.rfc-editor.org/rfc/rfc6691#section-2
    //= https://www.rfc-editor.org/rfc/rfc6691#section-2
    //# the sender MUST reduce the TCP data length to account for any IP or TCP options that it is
    //# including in the packets that it sends.
    fn segment_max(&self, sack: &SackBlocks, uto: Option<UserTimeout>) -> u16 {
        let bytes = sack.option_len() + if uto.is_some() { USER_TIMEOUT_LEN } else { 0 };
        // At most 40.
        self.hot.mss.saturating_sub(bytes as u16).max(8)
    }

    fn next(&self, now: Instant, limited: &mut bool) -> Option<Next> {
        let hot = &*self.hot;
        match hot.state {
            TcpState::Closed | TcpState::TimeWait => return None,
            TcpState::SynSent | TcpState::SynReceived => return hot.syn_due.then_some(Next::Syn),
            _ => {}
        }
        if hot.syn_unacked && hot.syn_due {
            return Some(Next::Syn);
        }
        if let Some(data) = self.next_data(now, limited) {
            return Some(data);
        }
        if self.cold.sequel == Sequel::Reset {
            // The reset says all else.
            return None;
        }
        if hot.probe_due {
            return Some(Next::Probe);
        }
        (hot.acks_owed > 0).then_some(Next::Ack)
    }

    fn next_data(&self, now: Instant, limited: &mut bool) -> Option<Next> {
        if let Some(probe) = self.next_tail_probe() {
            return Some(probe);
        }
        if self.cold.frto == Frto::Asked {
            // The question is put with new data, and lost data waits for the answer.
            let asked = self.hot.nxt > self.cold.recover;
            let new = self.next_new(now, limited);
            return if asked { new } else { new.or_else(|| self.next_again(limited)) };
        }
        self.next_again(limited).or_else(|| self.next_new(now, limited))
    }

    /// Lost data to be sent again.
    fn next_again(&self, limited: &mut bool) -> Option<Next> {
        let hot = &*self.hot;
        let super::intervals::Range { start, end } = self.next_lost()?;
        if hot.refused {
            return None;
        }
        let mss = u64::from(hot.mss.max(1));
        let pipe = self.pipe();
        if hot.pace_waits && pipe > 0 {
            return None;
        }
        //= https://www.rfc-editor.org/rfc/rfc8985#section-9.3
        //# A segment marked as lost by RACK-TLP MUST NOT be retransmitted until congestion control
        //# deems this appropriate.
        let room = u64::from(hot.window.cwnd).saturating_sub(pipe);
        // With nothing on its way nothing would ever make more room.
        if room < mss.min(end.min(self.record_end(start)) - start) && pipe > 0 {
            *limited = true;
            return None;
        }
        let most = if hot.tso && !hot.urging { (room / mss).max(1) * mss } else { mss };
        let most = most.min(self.burst_bytes());
        let within = self.within_shrunken_window(start)?.min(most);
        let frame = if hot.tso { self.frame_bytes().min(self.half_window(mss)) } else { mss };
        let end = end.min(start.saturating_add(within.min(frame))).min(self.record_end(start));
        // As the frame was that it went in (as Linux), but not less than a segment.
        let whole = self.cold.scoreboard.frame_end(start).unwrap_or(u64::MAX);
        let end = end.min(whole.max(start.saturating_add(mss)));
        let data_end = end.min(hot.written);
        let fin = end > hot.written;
        Some(Next::Data { start: start.min(data_end), end: data_end, fin, again: true })
    }

    /// How many bytes may be sent again from `start` on. A peer may have taken its window back
    /// over what is under way: what lies beyond is not sent again, but for one segment at
    /// snd.una, which asks for the window as a probe does (as Linux).
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6
    //# If this happens, the sender SHOULD NOT send new data (SHLD-15), but
    //# SHOULD retransmit normally the old unacknowledged data between
    //# SND.UNA and SND.UNA+SND.WND (SHLD-16).
    fn within_shrunken_window(&self, start: u64) -> Option<u64> {
        let hot = &*self.hot;
        match hot.una.saturating_add(u64::from(hot.snd_wnd)).saturating_sub(start) {
            0 => (start == hot.una).then_some(u64::from(hot.mss.max(1))),
            within => Some(within),
        }
    }

    /// A tail loss probe: new data if the peer's window allows, or else the last segment again.
    //= https://www.rfc-editor.org/rfc/rfc8985#section-7.3
    //# If both conditions are met, then the sender SHOULD transmit a
    //# previously unsent data segment, if one exists and the receive window
    //# allows, and increment the FlightSize accordingly.
    fn next_tail_probe(&self) -> Option<Next> {
        let hot = &*self.hot;
        if !hot.tail_due || hot.flight() == 0 {
            return None;
        }
        let usable = hot.una.saturating_add(u64::from(hot.snd_wnd)).saturating_sub(hot.nxt);
        let unsent = hot.send_end().min(self.record_end(hot.nxt)).saturating_sub(hot.nxt);
        let (start, end, again) = match unsent.min(usable).min(u64::from(self.send_mss())) {
            0 => {
                //= https://www.rfc-editor.org/rfc/rfc8985#section-7.3
                //# If such an unsent segment is not available, then the sender SHOULD retransmit
                //# the highest-sequence segment sent so far and set TLP.is_retrans to true.
                let last = self.last_sent()?;
                let within = self.within_shrunken_window(last.start)?;
                (last.start, last.end.min(last.start.saturating_add(within)), true)
            }
            len => (hot.nxt, hot.nxt + len, false),
        };
        let data_end = end.min(hot.written);
        Some(Next::Data {
            start: start.min(data_end),
            end: data_end,
            fin: end > hot.written,
            again,
        })
    }

    /// New data, if windows, Nagle and cork allow.
    fn next_new(&self, now: Instant, limited: &mut bool) -> Option<Next> {
        let hot = &*self.hot;
        let send_end = hot.send_end();
        if hot.nxt >= send_end || hot.refused {
            return None;
        }
        let closing = send_end > hot.written;
        //= https://www.rfc-editor.org/rfc/rfc7323#section-2.4
        //# 3) The initial transmission MUST be within the window announced by the most recent
        //# <ACK>.
        let edge = hot.una.saturating_add(u64::from(hot.snd_wnd));
        //= https://www.rfc-editor.org/rfc/rfc9937#section-3
        //# At any given time, a connection MUST NOT send data with a sequence number higher than
        //# the sum of SND.UNA and rwnd.
        //= https://www.rfc-editor.org/rfc/rfc9406#section-3
        //# At any given time, a TCP MUST NOT send data with a sequence number higher than the sum
        //# of the highest acknowledged sequence number and the minimum of the cwnd and rwnd.
        let usable = edge.saturating_sub(hot.nxt);
        let remaining = hot.written.saturating_sub(hot.nxt);
        let mss = u64::from(self.send_mss());
        // The probe timer has decided to send what fits.
        if hot.probe_due && hot.flight() == 0 && usable > 0 && self.is_window_closed() {
            let end = hot.nxt + usable.min(remaining);
            return (end > hot.nxt).then_some(Next::Data {
                start: hot.nxt,
                end,
                fin: false,
                again: false,
            });
        }
        if self.is_window_closed() || hot.pace_waits {
            return None;
        }
        let pipe = self.pipe();
        //= https://www.rfc-editor.org/rfc/rfc5681#section-2
        //# At any given time, a TCP MUST NOT send data with a sequence number higher than the sum
        //# of the highest acknowledged sequence number and the minimum of cwnd and rwnd.
        //= https://www.rfc-editor.org/rfc/rfc5681#section-3
        //# a TCP MUST NOT be more aggressive than the following algorithms allow
        let room = u64::from(hot.window.cwnd).saturating_sub(pipe);
        //= https://www.rfc-editor.org/rfc/rfc9937#section-3
        //# At any given time, a connection MUST NOT send data if inflight (see below) matches or
        //# exceeds cwnd.
        if room < remaining.min(mss) && pipe > 0 {
            *limited = true;
            return None;
        }
        if self.cold.search.is_some()
            && let Some(bytes) = self.probe_bytes()
        {
            let probe = Next::MtuProbe { start: hot.nxt, end: hot.nxt + bytes };
            return (bytes > 0).then_some(probe);
        }
        let is_large = hot.tso && !hot.urging && !hot.ecn.tells_reduction();
        let most = match is_large {
            true => self.frame_bytes().min(self.burst_bytes()).min(self.half_window(mss)),
            false => mss,
        };
        let limit = usable.min(room);
        let record = remaining.min(self.record_end(hot.nxt) - hot.nxt);
        if is_large && pipe > 0 && limit < record && self.should_wait_for_room(now, limit, most) {
            *limited |= room < usable;
            return None;
        }
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.2
        //# The transmitter SHOULD collapse successive bits when it packetizes data, to send the
        //# largest possible segment (SHLD-27).
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.2
        //# However, a TCP implementation SHOULD send a maximum-sized segment whenever possible
        //# (SHLD-28) to improve performance (see Section 3.8.6.2.1).
        let mut len = record.min(usable).min(most).min(room.max(mss));
        let tail = len % mss;
        // Only the last segment of all waits for more to fill it.
        let may_be_partial =
            || len == record && (record < remaining || self.may_send_partial(closing));
        if tail != 0 && !may_be_partial() {
            len -= tail;
            if len == 0 {
                return None;
            }
        }
        let end = hot.nxt + len;
        let fin = closing && end == hot.written && usable > len;
        if len == 0 && !fin {
            return None;
        }
        Some(Next::Data { start: hot.nxt, end, fin, again: false })
    }

    /// Full segments, but never more than a part of the largest window that the peer has offered, and
    /// never less than Linux, so that what even the largest window does not take waits for the probe
    /// timer.
    fn send_mss(&self) -> u32 {
        /// Bytes of the least segment that Linux halves a window to (tcp_bound_to_half_wnd).
        const SEGMENT_MIN: u16 = 68;
        let least = SEGMENT_MIN - wire::tcp::HEADER_LEN as u16 - self.option_bytes();
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.2.1
        //# A TCP implementation MUST include a SWS avoidance algorithm in the sender (MUST-38).
        u32::from(self.hot.mss.max(1)).min(window_part(self.hot).max(least.into()))
    }

    /// It is on its way, its payload in segments of `unit` bytes.
    fn on_sent(&mut self, step: &mut Step<'_>, next: Next, unit: u16) {
        let now = step.now;
        step.shared.counters.segments_sent += 1;
        match next {
            Next::Syn => {
                let hot = &mut *self.hot;
                hot.syn_due = false;
                let is_first = self.cold.retries == 0 && hot.timed_at == NEVER;
                hot.timed_at = if self.cold.retries == 0 { now.0 } else { NEVER };
                if is_first || hot.send_timer == SendTimer::Idle {
                    self.restart_retransmit_timer(now);
                }
                return;
            }
            Next::Data { start, end, fin, again } => {
                let end_with_fin = end + u64::from(fin);
                let snapshot = self.account_for_sending(now);
                let hot = &mut *self.hot;
                let is_head = start == hot.una;
                if again {
                    self.forget_probe();
                    //= https://www.rfc-editor.org/rfc/rfc8985#section-7.3
                    //# The sender MUST follow the RACK transmission procedures in the "Upon
                    //# Transmitting a Data Segment" section upon sending either a retransmission or
                    //# a new data loss probe.
                    self.cold.scoreboard.on_sent_again(start, end_with_fin, now.0, snapshot);
                    if let Some(undo) = &mut self.cold.undo {
                        undo.on_sent_again(end_with_fin - start);
                    }
                    let rare = self.cold.rare_mut();
                    rare.retransmits = rare.retransmits.wrapping_add(1);
                    rare.resent = rare.resent.wrapping_add((end - start) as u32);
                    step.shared.counters.retransmits += 1;
                } else {
                    let sent = Range { start, end: end_with_fin };
                    self.cold.scoreboard.on_sent(sent, now.0, snapshot, unit);
                    hot.nxt = end_with_fin;
                    if let Some(stamps) = self.cold.stamps_mut() {
                        step.event |= stamps.on_sent(start, end, now.0);
                    }
                    if !(end - start).is_multiple_of(u64::from(hot.mss.max(1))) {
                        hot.small_end = end;
                    }
                }
                if let Some(prr) = &mut self.cold.prr {
                    prr.on_sent(end_with_fin - start);
                }
                let hot = &mut *self.hot;
                if now.0.saturating_sub(self.cold.data_at) < super::receive::DELAYED_ACK_NS
                    && self.cold.data_at > hot.sent_at
                {
                    hot.interactive = true;
                }
                hot.sent_at = now.0;
                hot.probe_due = false;
                if std::mem::take(&mut hot.tail_due) {
                    self.cold.tlp.on_sent(hot.nxt, again);
                }
                //= https://www.rfc-editor.org/rfc/rfc6298#section-5
                //# Every time a packet containing data is sent (including a
                //# retransmission), if the timer is not running, start it running
                //# so that it will expire after RTO seconds
                //= https://www.rfc-editor.org/rfc/rfc6298#section-5
                //# An implementation MUST manage the retransmission timer(s) in such a way that a
                //# segment is never retransmitted too early, i.e., less than one RTO after the
                //# previous transmission of that segment.
                //= https://www.rfc-editor.org/rfc/rfc6298#section-5
                //# The following is the RECOMMENDED algorithm for managing the retransmission
                //# timer:
                let is_running = matches!(
                    hot.send_timer,
                    SendTimer::Retransmit | SendTimer::Reorder | SendTimer::TailProbe
                );
                // What is sent again first is given its time, as in Linux.
                if !is_running || (again && is_head) {
                    self.cold.rto_at = self.timeout_at(now);
                }
                self.arm_send_timer(now);
                self.validate_window(step);
                self.on_paced(now, end - start);
            }
            Next::Probe => self.hot.probe_due = false,
            Next::Ack | Next::MtuProbe { .. } => {}
        }
        // Every segment from here on carries the acknowledgement.
        let hot = &mut *self.hot;
        hot.acks_owed = if next == Next::Ack { hot.acks_owed.saturating_sub(1) } else { 0 };
        if self.cold.received.has_untold() {
            hot.acks_owed = hot.acks_owed.max(1);
        }
        hot.quick = hot.quick.saturating_sub(u8::from(hot.rcv_nxt > hot.rcv_acked));
        hot.rcv_acked = hot.rcv_nxt;
        hot.ack_at = NEVER;
    }

    /// After an idle time longer than the timeout the window starts again; whether it did.
    //= https://www.rfc-editor.org/rfc/rfc5681#section-4.1
    //# Therefore, a TCP SHOULD set cwnd to no more than RW before beginning
    //# transmission if the TCP has not sent data in an interval exceeding
    //# the retransmission timeout.
    // Decided as Linux does it (tcp_slow_start_after_idle, after RFC 2861): the window is halved
    // for each timeout of idleness, down to RW, which is the initial window; the threshold
    // remembers three quarters of what was used, so that a path that has not changed is filled
    // again within a few round trips. RFC 7661 is not followed; see `validate_window`, too.
    fn restart_after_idle(&mut self, step: &Step<'_>) -> bool {
        use super::congestion::{Algorithm, Window};
        let (now, hot) = (step.now, &mut *self.hot);
        let is_off = !step.shared.settings.slow_start_after_idle || hot.flight() > 0;
        if is_off || hot.sent_at == 0 || self.cold.congestion.models_path() {
            return false;
        }
        let (idle, rto) = (now.0.saturating_sub(hot.sent_at), hot.rtt.rto_ns().max(1));
        if idle <= rto {
            return false;
        }
        let restart = Window::first(hot.mss, &self.cold.options.path).cwnd;
        let window = &mut hot.window;
        if window.cwnd > restart {
            window.ssthresh = window.ssthresh.max(window.cwnd / 4 * 3);
            window.cwnd = (window.cwnd >> ((idle - 1) / rto).min(31)).max(restart);
        }
        self.cold.congestion.on_idle(idle);
        self.cold.usage.used = 0;
        self.cold.usage.at_ms = millis(now.0);
        true
    }

    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
    //# A given TCP implementation can support any currently defined options, but the following
    //# options MUST be supported (MUST-4 -- note Maximum Segment Size Option support is also part
    //# of MUST-14 in Section 3.7.1):
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.1
    //# TCP endpoints MUST implement both sending and receiving the MSS Option (MUST-14).
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.2
    //# This field may be sent in the initial connection request (i.e., in segments with the SYN
    //# control bit set) and MUST NOT be sent in other segments (MUST-65).
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.1
    //# TCP implementations SHOULD send an MSS Option in every SYN segment when its receive MSS
    //# differs from the default 536 for IPv4 or 1220 for IPv6 (SHLD-5), and MAY send it always
    //# (MAY-3).
    //= https://www.rfc-editor.org/rfc/rfc7323#section-2.2
    //# Thus, a TCP that is prepared to scale windows SHOULD send the option, even if its own scale
    //# factor is 1 and the exponent 0.
    //= https://www.rfc-editor.org/rfc/rfc7323#section-2.3
    //# o If a TCP receives a <SYN> segment containing a Window Scale option, it SHOULD send its own
    //# Window Scale option in the <SYN,ACK> segment.
    //= https://www.rfc-editor.org/rfc/rfc7323#section-2.3
    //# o The Window Scale option MUST be sent with shift.cnt = R, where R is the value that the TCP
    //# would like to use for its receive window.
    //= https://www.rfc-editor.org/rfc/rfc7323#section-3.2
    //# If the ACK bit is not set in the outgoing TCP header, the sender of that segment SHOULD set
    //# the TSecr field to zero.
    //= https://www.rfc-editor.org/rfc/rfc2018#section-2
    //# It MUST NOT be sent on non-SYN segments.
    fn syn_options(&self, now: Instant, settings: &TcpSettings) -> TcpOptions {
        let (hot, cold) = (&*self.hot, &*self.cold);
        // In a SYN and ACK only what the peer's SYN had.
        let answering = hot.answers_syn();
        let scale_agreed = match answering {
            false => settings.window_scaling,
            true => hot.rcv_scale != 0 || hot.snd_scale != 0,
        };
        TcpOptions {
            mss: Some(self.cold.advertised_mss()),
            window_scale: (scale_agreed && cold.options.recv_limit > 0).then_some(hot.rcv_scale),
            sack_permitted: if answering { hot.sack } else { settings.sack },
            timestamps: hot.timestamps.then(|| Timestamps {
                value: hot.ts_now(now),
                echo: if answering { hot.ts_recent } else { 0 },
            }),
            fast_open: if hot.signed { None } else { self.syn_cookie() },
            user_timeout: self.syn_uto(),
            ..TcpOptions::NONE
        }
    }

    /// Recomputes the size of segments: peer's option, path, options in every segment.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.1
    //# Eff.snd.MSS = min(SendMSS+20, MMS_S) - TCPhdrsize - IPoptionsize
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.1
    //# The maximum size of a segment that a TCP endpoint really sends, the "effective send MSS",
    //# MUST be the smaller (MUST-16) of the send MSS (that reflects the available reassembly
    //# buffer size at the remote host, the EMTU_R [19]) and the largest transmission size
    //# permitted by the IP layer (EMTU_S [19]):
    //= https://www.rfc-editor.org/rfc/rfc8201#section-5.4
    //# A packetization layer (e.g., TCP) must use the PMTU for the path(s) in use by a connection;
    //# it should not send segments that would result in packets larger than the PMTU, except to
    //# probe during PMTU Discovery (this probe packet must not be fragmented to the PMTU).
    //= https://www.rfc-editor.org/rfc/rfc8201#section-5.4
    //# A TCP implementation must also store the Maximum Segment Size (MSS) value received from its
    //# peer, which represents the EMTU_R, the largest packet that can be reassembled by the
    //# receiver, and must not send any segment larger than this MSS, regardless of the PMTU.
    pub fn update_mss(&mut self) {
        let packet = self.packet_max().saturating_sub(self.cold.fixed_headers());
        let mss = self.cold.mss_most().min(self.cold.peer_mss).min(packet);
        self.hot.mss = mss.saturating_sub(self.option_bytes()).max(32);
    }

    /// The peer's window does not take a whole segment, nor all there is: sender's silly window
    /// syndrome avoidance, RFC 9293 section 3.8.6.2.1; send_mss is at most half the largest
    /// window. A FIN that does not fit behind the data follows by itself.
    pub fn is_window_closed(&self) -> bool {
        let hot = &*self.hot;
        let edge = hot.una.saturating_add(u64::from(hot.snd_wnd));
        let usable = edge.saturating_sub(hot.nxt);
        let remaining = hot.written.saturating_sub(hot.nxt);
        usable < remaining.min(u64::from(self.send_mss())).max(1)
    }

    /// Starts the probe or cork timer when something waits for it. Called when there is nothing
    /// more to send.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.1
    //# The transmitting host SHOULD send the first zero-window probe when a zero window has existed
    //# for the retransmission timeout period (SHLD-29)
    pub fn settle(&mut self, now: Instant) {
        if self.hot.state.is_over() {
            // What it still had to send waits for nothing; a timer would fire for ever.
            return;
        }
        self.await_pace();
        let hot = &*self.hot;
        if hot.flight() > 0 || hot.is_opening() || hot.nxt >= hot.send_end() {
            return;
        }
        if hot.send_timer != SendTimer::Idle {
            return;
        }
        let (timer, after) = if self.is_window_closed() {
            (SendTimer::Persist, hot.rtt.rto_ns())
        } else if self.is_held() {
            (SendTimer::Cork, hot.rtt.rto_ns())
        } else {
            return;
        };
        if timer == SendTimer::Persist {
            // No probe yet.
            self.cold.stuck_since = NEVER;
        }
        self.hot.send_timer = timer;
        self.hot.send_at = now.0.saturating_add(after);
    }
}
