//! Explicit congestion notification (RFC 3168): agreed on with the SYNs, told back to the sender of
//! marked packets, answered by a smaller window once in a round trip. DCTCP (RFC 8257) needs it,
//! and tells exactly which bytes were marked.

use serde::{Deserialize, Serialize};
use wire::tcp::{TcpFlags, TcpSegment, Timestamps};

use super::congestion::Algorithm;
use super::connection::{Connection, NEVER, Phase, Step};
use super::prr::Prr;
use super::reply::Reply;
use crate::api::TcpState;

/// Bits of the type of service.
const MASK: u8 = 3;
/// ECT(0), as in the type of service.
//= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.2
//# When only one ECT codepoint
//# is needed by a sender for all packets sent on a TCP connection,
//# ECT(0) SHOULD be used.
//= https://www.rfc-editor.org/rfc/rfc3168#section-5
//# Protocols and senders that only require a single ECT codepoint SHOULD use ECT(0).
const ECT0: u8 = 2;
const CE: u8 = 3;
/// Acknowledgements sent at once for a marked packet, as in Linux.
const QUICK_ACKS: u8 = 2;

/// Whether ECN is asked for and agreed to, as `net.ipv4.tcp_ecn`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EcnMode {
    /// Neither; 0.
    Off,
    /// Both; 1.
    On,
    /// Peers that ask for it get it; 2.
    #[default]
    Accept,
}

/// What a connection knows of ECN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ecn(u8);

impl Ecn {
    /// Agreed on; until the peer's SYN has come, asked for.
    const AGREED: u8 = 1;
    /// The peer is to be told of marks: until it says that it has reduced its window, or with
    /// DCTCP while marks come.
    const ECHOES: u8 = 2;
    /// The next new data is to say that the window was reduced.
    const REDUCED: u8 = 4;
    /// The peer has sent a packet that may be marked.
    const SEEN: u8 = 8;
    /// The window is being reduced because of marks.
    const REDUCING: u8 = 16;

    fn has(self, bit: u8) -> bool {
        self.0 & bit != 0
    }

    fn put(&mut self, bit: u8, on: bool) {
        self.0 = if on { self.0 | bit } else { self.0 & !bit };
    }

    /// Whether both ends speak ECN.
    pub fn is_agreed(self) -> bool {
        self.has(Self::AGREED)
    }

    /// Whether the peer was seen to send packets that may be marked.
    pub fn is_seen(self) -> bool {
        self.has(Self::SEEN)
    }

    /// What was received last was marked, with DCTCP; otherwise the peer is being told of a mark.
    pub fn echoes(self) -> bool {
        self.has(Self::ECHOES)
    }

    /// The window is being reduced because of marks.
    pub fn is_reducing(self) -> bool {
        self.has(Self::REDUCING)
    }

    /// The reduction is over, or is that of a recovery now.
    pub fn end_reducing(&mut self) {
        self.put(Self::REDUCING, false);
    }

    /// The next new data says so, in a segment of its own: a card that cuts larger ones would
    /// repeat it.
    pub fn tells_reduction(self) -> bool {
        self.has(Self::REDUCED)
    }
}

/// Whether ECN is agreed to that a SYN with these flags, which came with `tos`, asks for. `needs`: our
/// congestion control cannot do without.
pub fn may_agree(mode: EcnMode, flags: TcpFlags, tos: u8, needs: bool) -> bool {
    // As Linux: a SYN that may be marked comes from something else than RFC 3168.
    let may = mode != EcnMode::Off && tos & MASK == 0;
    flags.contains(TcpFlags::ECE | TcpFlags::CWR) && (may || needs)
}

impl Connection<'_> {
    /// Whether our SYN asks for ECN.
    pub fn ask_for_ecn(&mut self, mode: EcnMode) {
        self.hot.ecn = Ecn::default();
        let asks = mode == EcnMode::On || self.cold.congestion.needs_ecn();
        self.hot.ecn.put(Ecn::AGREED, asks && self.hot.state == TcpState::SynSent);
    }

    /// What the peer's SYN, which came with `tos`, says of ECN.
    //= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.1
    //# If a host has received an ECN-setup SYN packet, then it MAY send
    //# an ECN-setup SYN-ACK packet.  Otherwise, it MUST NOT send an
    //# ECN-setup SYN-ACK packet.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.2
    //# A TCP endpoint SHOULD implement ECN as described in RFC 3168 (SHLD-8).
    //= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.1
    //# If a host has received at least one non-ECN-setup SYN or non-ECN-setup SYN-ACK packet, then
    //# it SHOULD NOT set ECT on data packets.
    //= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.1
    //# Receivers MUST correctly handle all forms of the non-ECN-setup SYN and SYN-ACK packets.
    pub fn agree_on_ecn(&mut self, mode: EcnMode, segment: &TcpSegment<'_>, tos: u8) {
        let flags = segment.header.flags;
        let (ece, cwr) = (flags.contains(TcpFlags::ECE), flags.contains(TcpFlags::CWR));
        let agreed = match (self.hot.state, flags.ack()) {
            (TcpState::SynSent, true) => self.hot.ecn.is_agreed() && ece && !cwr,
            (TcpState::SynSent, false) => self.hot.ecn.is_agreed() && ece && cwr,
            _ => may_agree(mode, flags, tos, self.cold.congestion.needs_ecn()),
        };
        self.hot.ecn.put(Ecn::AGREED, agreed);
    }

    /// ECN's flags of a SYN or SYN and ACK.
    //= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.1
    //# * A host that is not willing to use ECN on a TCP connection SHOULD clear both the ECE and
    //# CWR flags in all non-ECN-setup SYN and/or SYN-ACK packets that it sends to indicate this
    //# unwillingness.
    pub fn ecn_of_syn(&self) -> TcpFlags {
        let hot = &*self.hot;
        if !hot.ecn.is_agreed() {
            return TcpFlags::NONE;
        }
        match hot.state {
            _ if hot.answers_syn() => TcpFlags::ECE,
            //= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.1.1
            //# A host that receives no reply to an ECN-setup SYN within the
            //# normal SYN retransmission timeout interval MAY resend the SYN and
            //# any subsequent SYN retransmissions with CWR and ECE cleared.
            _ if self.cold.retries > 0 => TcpFlags::NONE,
            _ => TcpFlags::ECE | TcpFlags::CWR,
        }
    }

    /// ECN's flags and the type of service of a segment; `new`: of data that was never sent.
    //= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.4
    //# For the current generation of TCP congestion control algorithms, pure
    //# acknowledgement packets (e.g., packets that do not contain any
    //# accompanying data) MUST be sent with the not-ECT codepoint.
    //= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.5
    //# This document specifies ECN-capable TCP implementations MUST NOT set
    //# either ECT codepoint (ECT(0) or ECT(1)) in the IP header for
    //# retransmitted data packets
    // DCTCP sets it in all of them, as RFC 8257 section 4.1 recommends and Linux does.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.9
    //# TCP implementations SHOULD pass the current Differentiated Services field value without
    //# change to the IP layer, when it sends segments on the connection (SHLD-22).
    //= https://www.rfc-editor.org/rfc/rfc3168#section-5.2
    //# To ensure the reliable delivery of the congestion indication of the CE codepoint, an ECT
    //# codepoint MUST NOT be set in a packet unless the loss of that packet in the network would be
    //# detected by the end nodes and interpreted as an indication of congestion.
    //= https://www.rfc-editor.org/rfc/rfc3168#section-5.2
    //# We believe that this aspect is still the subject of research, so this document specifies
    //# that at this time, "pure" ACK packets MUST NOT indicate ECN-Capability.
    //= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.5
    //# a legitimate TCP data sender MUST NOT set an ECT codepoint on retransmitted data packets
    //= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.6
    //# Therefore, the TCP data sender MUST NOT set either an ECT codepoint or the CWR bit on window
    //# probe packets.
    pub fn ecn_of_segment(&mut self, new: bool) -> (TcpFlags, u8) {
        let hot = &mut *self.hot;
        let plain = self.cold.options.tos_to(self.cold.remote.ip());
        if !hot.ecn.is_agreed() {
            return (TcpFlags::NONE, plain);
        }
        let mut flags = TcpFlags::NONE;
        //= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.2
        //# Thus, the CWR bit in the TCP header SHOULD NOT be set on retransmitted packets.
        if new && hot.ecn.tells_reduction() {
            //= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.2
            //# When the TCP data sender is ready to set the CWR bit after reducing
            //# the congestion window, it SHOULD set the CWR bit only on the first
            //# new data packet that it transmits.
            flags |= TcpFlags::CWR;
            hot.ecn.put(Ecn::REDUCED, false);
        }
        if hot.ecn.has(Ecn::ECHOES) {
            flags |= TcpFlags::ECE;
        }
        let may_be_marked = new || self.cold.congestion.needs_ecn();
        (flags, if may_be_marked { plain & !MASK | ECT0 } else { plain })
    }

    /// The type of service of a SYN: only DCTCP's may be marked.
    //= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.1
    //# * A host MUST NOT set ECT on SYN or SYN-ACK packets.
    //= https://www.rfc-editor.org/rfc/rfc8257#section-3.6
    //# for DCTCP connections, the sender SHOULD set ECT for SYN, SYN-ACK, and RST packets.
    pub fn tos_of_syn(&self) -> u8 {
        let may_be_marked = self.hot.ecn.is_agreed() && self.cold.congestion.needs_ecn();
        let plain = self.cold.options.tos_to(self.cold.remote.ip());
        if may_be_marked { plain & !MASK | ECT0 } else { plain }
    }

    /// Data within the window has come with `tos`.
    //= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.3
    //# When TCP receives a CE data packet at the destination end-system, the
    //# TCP data receiver sets the ECN-Echo flag in the TCP header of the
    //# subsequent ACK packet.
    //= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.1
    //# if that host receives TCP data packets with ECT and CE codepoints set in the IP header, then
    //# that host MUST process these packets as specified for an ECN-capable connection.
    pub fn on_marks(&mut self, step: &mut Step<'_>, flags: TcpFlags, tos: u8) {
        if !self.hot.ecn.is_agreed() {
            return;
        }
        if flags.contains(TcpFlags::CWR) {
            //= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.3
            //# After the receipt of the CWR packet, acknowledgments for
            //# subsequent non-CE data packets do not have the ECN-Echo flag set.
            // The peer's window may be one segment now: it is not kept waiting.
            self.hot.ecn.put(Ecn::ECHOES, false);
            self.owe_ack(step);
        }
        let is_exact = self.cold.congestion.needs_ecn();
        match tos & MASK {
            0 => {
                // Among packets that may be marked, probably one that was sent again.
                if self.hot.ecn.is_seen() {
                    self.acknowledge_quickly();
                }
                return;
            }
            CE => {
                step.shared.counters.ecn_marks += 1;
                if is_exact {
                    self.echo_exactly(step, true);
                } else if !self.hot.ecn.has(Ecn::ECHOES) {
                    self.acknowledge_quickly();
                    self.hot.ecn.put(Ecn::ECHOES, true);
                }
            }
            _ if is_exact => self.echo_exactly(step, false),
            _ => {}
        }
        self.hot.ecn.put(Ecn::SEEN, true);
    }

    fn acknowledge_quickly(&mut self) {
        self.hot.quick = self.hot.quick.max(QUICK_ACKS);
        self.hot.interactive = false;
    }

    /// DCTCP's receiver: each acknowledgement is of packets that were marked, or of packets that
    /// were not.
    //= https://www.rfc-editor.org/rfc/rfc8257#section-3.2
    //# To avoid this, an implementation MAY choose to send two
    //# ACKs: one for previously unacknowledged packets and another
    //# acknowledging the most recently received packet.
    //= https://www.rfc-editor.org/rfc/rfc8257#section-3.2
    //# When sending an ACK, the ECE flag MUST be set if and only if DCTCP.CE is true.
    //= https://www.rfc-editor.org/rfc/rfc8257#section-3.2
    //# When receiving packets, the CE codepoint MUST be processed as follows:
    fn echo_exactly(&mut self, step: &mut Step<'_>, marked: bool) {
        if self.hot.ecn.has(Ecn::ECHOES) == marked {
            return;
        }
        if self.hot.ack_at != NEVER && self.hot.rcv_acked < self.hot.rcv_nxt {
            step.reply = Some(self.acknowledgement_so_far(step));
            self.hot.rcv_acked = self.hot.rcv_nxt;
            self.hot.ack_at = NEVER;
        }
        self.hot.ecn.put(Ecn::ECHOES, marked);
        //= https://www.rfc-editor.org/rfc/rfc8257#section-3.2
        //# 1.  If the CE codepoint is set and DCTCP.CE is false, set DCTCP.CE to
        //# true and send an immediate ACK.
        self.owe_ack(step);
    }

    fn acknowledgement_so_far(&mut self, step: &Step<'_>) -> Reply {
        let (echo, tos) = self.ecn_of_segment(false);
        let window = self.offer_window();
        let hot = &*self.hot;
        Reply {
            interface: hot.interface,
            local: self.cold.local.address(),
            remote: self.cold.remote.address(),
            seq: hot.seq(hot.nxt),
            ack: hot.ack(hot.rcv_nxt),
            flags: TcpFlags::ACK | echo,
            syn: None,
            window,
            timestamps: hot
                .timestamps
                .then(|| Timestamps { value: hot.ts_now(step.now), echo: hot.ts_recent }),
            tos,
            key: self.cold.key().cloned().map(Box::new),
        }
    }

    /// Whether an acknowledgement echoes congestion.
    pub fn is_echo(&self, flags: TcpFlags) -> bool {
        self.hot.ecn.is_agreed() && flags.contains(TcpFlags::ECE) && !flags.syn()
    }

    /// An echo has come: the window is reduced over the coming round trip, unless it is already.
    //= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.2
    //# TCP should not react to congestion indications more than once every
    //# window of data (or more loosely, more than once every round-trip
    //# time).
    pub fn reduce_for_marks(&mut self, step: &mut Step<'_>) {
        step.shared.counters.ecn_reductions += u64::from(self.reduce_once());
    }

    /// The network, or a queue before it, asks for less: the window is reduced over the coming round trip.
    /// Whether it was not already.
    pub fn reduce_once(&mut self) -> bool {
        if self.hot.phase != Phase::Open || self.hot.ecn.is_reducing() {
            return false;
        }
        self.cold.undo = None;
        let (mss, flight) = (u32::from(self.hot.mss), self.flight_before_burst());
        let recover_bytes = self.recover_bytes();
        let hot = &mut *self.hot;
        hot.window.ssthresh = self.cold.congestion.on_marked(&hot.window, flight, mss);
        if !self.cold.congestion.models_path() {
            self.cold.prr = Some(Box::new(Prr::new(recover_bytes)));
        }
        self.cold.recover = hot.nxt;
        hot.ecn.put(Ecn::REDUCING, true);
        self.tell_reduction();
        true
    }

    /// The window was reduced, for whatever reason.
    //= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.2
    //# When an ECN-Capable TCP sender reduces its congestion window for any
    //# reason (because of a retransmit timeout, a Fast Retransmit, or in
    //# response to an ECN Notification), the TCP sender sets the CWR flag in
    //# the TCP header of the first new data packet sent after the window
    //# reduction.
    //= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.1
    //# * If a host ever sets the ECT codepoint on a data packet, then that host MUST correctly
    //# set/clear the CWR TCP bit on all subsequent packets in the connection.
    pub fn tell_reduction(&mut self) {
        let agreed = self.hot.ecn.is_agreed();
        self.hot.ecn.put(Ecn::REDUCED, agreed);
    }

    /// The reduction ends with an acknowledgement of something that was sent after it began.
    pub fn settle_reduction(&mut self) {
        if !self.hot.ecn.is_reducing() || self.hot.una <= self.cold.recover {
            return;
        }
        self.hot.ecn.end_reducing();
        if self.cold.prr.take().is_some() {
            self.hot.window.cwnd = self.hot.window.ssthresh;
        }
    }
}
