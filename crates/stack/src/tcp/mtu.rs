//! The path MTU: what routers say of it (RFC 1191, RFC 8201), and finding it where they say
//! nothing (RFC 4821 and RFC 8899, in the way of Linux's tcp_mtu_probing).
//!
//! What a router says lies in a cache of the stack's, by destination; a connection looks there
//! whenever it sends. After three timeouts in a row the path may swallow large packets silently:
//! segments then become small, and larger ones are tried from time to time, each as one packet of
//! new data, between what has arrived and what was lost.

use serde::{Deserialize, Serialize};

use super::PathMtu;
use super::connection::{Cold, Connection, NEVER, Phase, Step};
use super::frto::Frto;
use super::rtt::SECOND;
use crate::api::{Instant, TcpOptions};
use crate::path_mtu::reduced;

/// Timeouts in a row after which a black hole is suspected (tcp_retries1).
pub const RETRIES_SUSPICIOUS: u8 = 3;
/// Smallest segments that a black hole leads to (tcp_mtu_probe_floor).
const MSS_FLOOR: u16 = 48;
/// A search that is this near is over (tcp_probe_threshold).
const NEAR: u16 = 8;
/// When a search that is over begins again (tcp_probe_interval).
const AGAIN_NS: u64 = 600 * SECOND;
/// Segments that the window must have room for beside a probe, so that its loss shows.
const SEGMENTS_BESIDE: u64 = 4;
/// Smallest window, in segments, that a probe is part of.
const WINDOW_MIN: u64 = 11;

/// A probe that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Probe {
    start: u64,
    end: u64,
    /// The packet's size.
    mtu: u16,
}

/// The search for the largest packet that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Search {
    /// Packets of this size arrive.
    low: u16,
    /// Larger ones do not.
    high: u16,
    /// How large those are that are sent.
    size: u16,
    probe: Option<Probe>,
    /// When it is begun again.
    again_at: u64,
}

impl Cold {
    /// Bytes of the headers of IP and TCP without options.
    pub fn fixed_headers(&self) -> u16 {
        if self.remote.is_ipv4() { 40 } else { 60 }
    }

    /// The MSS option we send: what fits the interface, or what the route says, unless TCP_MAXSEG
    /// says less.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.1
    //# The MSS value to be sent in an MSS Option should be equal to the
    //# effective MTU minus the fixed IP and TCP headers.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.1
    //# where MMS_R is the maximum size for a transport-layer message that can be received (and
    //# reassembled at the IP layer) (MUST-67).
    pub fn advertised_mss(&self) -> u16 {
        match self.options.path.advmss {
            0 => self.mss_most(),
            advmss => self.at_most_maxseg(advmss),
        }
    }

    /// The longest segments that the path takes, unless TCP_MAXSEG says less.
    pub fn mss_most(&self) -> u16 {
        self.at_most_maxseg(self.mtu.saturating_sub(self.fixed_headers()).max(88))
    }

    fn at_most_maxseg(&self, most: u16) -> u16 {
        match self.options.maxseg {
            0 => most,
            maxseg => most.min(maxseg),
        }
    }
}

impl Connection<'_> {
    //= https://www.rfc-editor.org/rfc/rfc8200#section-8.3
    //# When computing the maximum payload size available for upper-layer data, an upper-layer
    //# protocol must take into account the larger size of the IPv6 header relative to the IPv4
    //# header.
    //= https://www.rfc-editor.org/rfc/rfc8200#section-8.3
    //# When using TCP over IPv6, the MSS must be computed as the maximum packet size minus 60
    //# octets, because the minimum-length IPv6 header (i.e., an IPv6 header with no extension
    //# headers) is 20 octets longer than a minimum-length IPv4 header.
    //= https://www.rfc-editor.org/rfc/rfc8899#section-5
    //# A PL MUST adjust the MPS indicated by DPLPMTUD to account for any additional overhead
    //# introduced by the PL.
    fn headers(&self) -> u16 {
        self.cold.fixed_headers() + self.option_bytes()
    }

    /// The largest packet that a search may find: what the peer takes.
    fn ceiling(&self) -> u16 {
        let mss = self.cold.at_most_maxseg(self.cold.peer_mss);
        mss.saturating_add(self.cold.fixed_headers())
    }

    /// The largest packet to send: what the path is known to take, or what a search has found.
    //= https://www.rfc-editor.org/rfc/rfc8899#section-3
    //# A PL MUST NOT send a datagram (other than a probe packet) with a size at the PL that is
    //# larger than the current PLPMTU.
    //= https://www.rfc-editor.org/rfc/rfc8899#section-3
    //# 5. PMTU parameters: A DPLPMTUD sender is RECOMMENDED to utilize information about the
    //# maximum size of packet that can be transmitted by the sender on the local link (e.g., the
    //# local link MTU).
    pub fn packet_max(&self) -> u16 {
        let known = self.cold.search.as_ref();
        known.map_or(self.cold.mtu, |search| search.size.min(self.cold.mtu))
    }

    /// The path takes packets of `mtu` bytes, as far as is known when something is to be sent.
    //= https://www.rfc-editor.org/rfc/rfc8201#section-3
    //# Note that Path MTU Discovery must be performed even in cases where a node "thinks" a
    //# destination is attached to the same link as itself, as it might have a PMTU lower than the
    //# link MTU.
    //= https://www.rfc-editor.org/rfc/rfc8201#section-5.2
    //# The packetization layers must be notified about decreases in the PMTU.
    //= https://www.rfc-editor.org/rfc/rfc8201#section-5.2
    //# Any packetization layer instance (for example, a TCP connection) that is actively using the
    //# path must be notified if the PMTU estimate is decreased.
    //= https://www.rfc-editor.org/rfc/rfc8201#section-5.2
    //# Note: even if the Packet Too Big message contains an Original Packet Header that refers to a
    //# UDP packet, the TCP layer must be notified if any of its connections use the given path.
    //= https://www.rfc-editor.org/rfc/rfc8201#section-5.5
    //# Subsequent segments, when transmitted for the first time, should be no larger than allowed
    //# by the Path MTU.
    pub fn on_path(&mut self, step: &mut Step<'_>, known: PathMtu) {
        if self.cold.options.path != known.metrics {
            // The kernel's routing table has changed. Which congestion control there is, is settled.
            let options = TcpOptions { path: known.metrics, ..*self.cold.options };
            self.cold.options = step.shared.options.follow(options);
            self.hot.rtt.set_floor(known.metrics.rto_min_ms);
        }
        let mtu = if self.cold.options.heeds_routers() { known.path } else { known.link };
        if mtu != self.cold.mtu {
            self.cold.mtu = mtu;
            //= https://www.rfc-editor.org/rfc/rfc8899#section-3
            //# An update to the PLPMTU (or MPS) MUST NOT increase the congestion window measured in
            //# bytes [RFC4821].
            self.update_mss();
        }
    }

    /// RFC 1191: smaller segments from now on, and what was too big again. `false`: packets are
    /// that small already.
    //= https://www.rfc-editor.org/rfc/rfc7323#section-5.7
    //# any TCP implementation that implements PAWS MUST also implement Path MTU Discovery.
    #[must_use]
    pub fn on_too_big(&mut self, step: &mut Step<'_>, told: u16) -> bool {
        let Some(mtu) = reduced(self.cold.mtu, told, self.cold.remote.ip()) else { return false };
        step.shared.counters.path_mtu_reductions += 1;
        self.shrink_mtu(step, mtu);
        true
    }

    /// The link takes packets of `mtu` bytes from now on. Where the path takes less, the next
    /// packet sees to it.
    pub fn follow_mtu(&mut self, step: &mut Step<'_>, mtu: u16) {
        if mtu < self.cold.mtu {
            self.shrink_mtu(step, mtu);
        } else {
            let metrics = self.cold.options.path;
            let mtu = metrics.mtu_over(mtu);
            self.on_path(step, PathMtu { link: mtu, path: mtu, is_cut: false, metrics });
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc8201#section-4
    //# After receiving a Packet Too Big message, a node must attempt to avoid eliciting more such
    //# messages in the near future.
    //= https://www.rfc-editor.org/rfc/rfc8201#section-4
    //# The node must reduce the size of the packets it is sending along the path.
    //= https://www.rfc-editor.org/rfc/rfc8201#section-4
    //# Because each of these messages (and the dropped packets they respond to) consume network
    //# resources, nodes using Path MTU Discovery must detect decreases in PMTU as fast as possible.
    //= https://www.rfc-editor.org/rfc/rfc8201#section-5.2
    //# Also, the instance that sent the packet that elicited the Packet Too Big message should be
    //# notified that its packet has been dropped, even if the PMTU estimate has not changed, so
    //# that it may retransmit the dropped data.
    //= https://www.rfc-editor.org/rfc/rfc8201#section-5.4
    //# The packet size used in the retransmission should be no larger than the new PMTU.
    //= https://www.rfc-editor.org/rfc/rfc8201#section-5.4
    //# A loss caused by a PMTU probe indicated by the reception of a Packet Too Big message must
    //# not be considered as a congestion notification
    //= https://www.rfc-editor.org/rfc/rfc1191#section-3
    //# We do require that after receiving a Datagram Too Big message, a host MUST attempt to avoid
    //# eliciting more such messages in the near future.
    //= https://www.rfc-editor.org/rfc/rfc1191#section-3
    //# Clearly, the former strategy may continue to elicit Datagram Too Big messages for a while,
    //# but since each of these messages (and the dropped datagrams they respond to) consume
    //# Internet resources, the host MUST force the PMTU Discovery process to converge.
    //= https://www.rfc-editor.org/rfc/rfc1191#section-3
    //# Hosts using PMTU Discovery MUST detect decreases in Path MTU as fast as possible.
    //= https://www.rfc-editor.org/rfc/rfc1191#section-6.4
    //# Note: One MUST not retransmit in response to every Datagram Too Big message, since a burst
    //# of several oversized segments will give rise to several such messages and hence several
    //# retransmissions of the same data.
    fn shrink_mtu(&mut self, step: &mut Step<'_>, mtu: u16) {
        let was = self.hot.mss;
        self.cold.mtu = mtu;
        self.update_mss();
        if self.hot.is_opening() {
            self.shrink_syn(step);
            return;
        }
        if self.hot.flight() == 0 || self.hot.mss >= was {
            return;
        }
        // As Linux (tcp_simple_retransmit): what was not longer has got through.
        if self.cold.scoreboard.lose_longer_than(self.hot.mss.into()) {
            self.repair_uncongested(step);
        }
    }

    /// What counts as lost is sent again. It is no sign of congestion: the window stays.
    pub fn repair_uncongested(&mut self, step: &mut Step<'_>) {
        self.hot.phase = Phase::Recovery;
        self.cold.recover = self.hot.nxt;
        self.cold.reorder_at = NEVER;
        self.cold.tlp.reset();
        self.cold.prr = None;
        self.cold.frto = Frto::Off;
        self.arm_send_timer(step.now);
        step.ready = true;
    }

    /// Large packets may vanish without a word: smaller ones from now on.
    //= https://www.rfc-editor.org/rfc/rfc8899#section-4.3
    //# Black hole detection is triggered by an indication that the network
    //# path could be unable to support the current PLPMTU size.
    pub fn suspect_black_hole(&mut self, now: Instant, base: u16) {
        let headers = self.headers();
        let mss = match &self.cold.search {
            None => base,
            Some(search) => (search.low.saturating_sub(headers) / 2).min(base).max(MSS_FLOOR),
        };
        self.search_from(now, mss.saturating_add(headers), true);
    }

    /// The search begins with the connection: as in Linux, who has opened it sends small packets
    /// until larger ones are found, and who was called those that the path is said to take.
    pub fn search_always(&mut self, now: Instant, base: u16, opened: bool) {
        self.search_from(now, base.saturating_add(self.headers()), opened);
    }

    fn search_from(&mut self, now: Instant, low: u16, is_small: bool) {
        let again_at = now.0.saturating_add(AGAIN_NS);
        let high = self.ceiling();
        let low = low.min(high).min(self.cold.mtu);
        let size = if is_small { low } else { self.cold.mtu };
        self.cold.search = Some(Box::new(Search { low, high, size, probe: None, again_at }));
        self.update_mss();
    }

    /// How much new data the next probe is to carry, when it is time for one; 0 when there must
    /// be more room for it first, for which other data waits (as in Linux).
    //= https://www.rfc-editor.org/rfc/rfc8899#section-3
    //# 2. Probe packets: The network interface below the PL is REQUIRED to provide a way to
    //# transmit a probe packet that is larger than the PLPMTU.
    //= https://www.rfc-editor.org/rfc/rfc8899#section-3
    //# When the transmission of probe packets is not controlled by the congestion controller, the
    //# interval between probe packets MUST be at least one RTT.
    //= https://www.rfc-editor.org/rfc/rfc8899#section-5.3.2
    //# Implementations SHOULD select the set of probe packet sizes to maximize the gain in PLPMTU
    //# from each search step.
    //= https://www.rfc-editor.org/rfc/rfc8899#section-8
    //# To avoid excessive load, the interval between individual probe packets MUST be at least one
    //# RTT, and the interval between rounds of probing is determined by the PMTU_RAISE_TIMER.
    pub fn probe_bytes(&self) -> Option<u64> {
        let hot = &*self.hot;
        let search = self.cold.search.as_deref()?;
        let high = search.high.min(self.cold.mtu);
        let may = search.probe.is_none()
            && high > search.low.saturating_add(NEAR)
            && hot.phase == Phase::Open
            && self.cold.scoreboard.sacked_bytes() == 0
            // What is to be reported goes with every segment, and takes room (as Linux).
            && self.cold.received.is_empty()
            && self.cold.duplicate().is_none();
        if !may {
            return None;
        }
        let middle = search.low.midpoint(high);
        let bytes = u64::from(middle.saturating_sub(self.headers()));
        let mss = u64::from(hot.mss);
        let needed = bytes + SEGMENTS_BESIDE * mss;
        let cwnd = u64::from(hot.window.cwnd);
        let edge = hot.una.saturating_add(u64::from(hot.snd_wnd));
        let is_time = bytes > mss
            && cwnd >= WINDOW_MIN * mss
            && hot.written.saturating_sub(hot.nxt) >= needed
            && u64::from(hot.snd_wnd) >= needed;
        if !is_time {
            return None;
        }
        let (pipe, usable) = (self.pipe(), edge.saturating_sub(hot.nxt));
        let fits = usable >= needed && cwnd.saturating_sub(pipe) >= bytes.max(2 * mss);
        match fits {
            true => Some(bytes),
            false => (pipe > 0).then_some(0),
        }
    }

    /// A probe was sent.
    pub fn on_probe_sent(&mut self, step: &mut Step<'_>, start: u64, end: u64) {
        let headers = self.headers();
        if let Some(search) = &mut self.cold.search {
            let mtu = ((end - start) as u16).saturating_add(headers);
            search.probe = Some(Probe { start, end, mtu });
            step.shared.counters.path_mtu_probes += 1;
        }
    }

    /// Something was sent again: what becomes of a probe tells nothing any more.
    pub fn forget_probe(&mut self) {
        if let Some(search) = &mut self.cold.search {
            search.probe = None;
        }
    }

    /// snd.una has moved: a probe within arrived. A search that is over begins again in time.
    //= https://www.rfc-editor.org/rfc/rfc8899#section-3
    //# 3. Reception feedback: The destination PL endpoint is REQUIRED to provide a feedback method
    //# that indicates to the DPLPMTUD sender when a probe packet has been received by the
    //# destination PL endpoint.
    //= https://www.rfc-editor.org/rfc/rfc8899#section-4.1
    //# Probe messages sent by a PL MUST contain enough information to uniquely identify the probe
    //# within the Maximum Segment Lifetime (e.g., including a unique identifier from the PL or the
    //# DPLPMTUD implementation), while being robust to reordering and replay
    pub fn on_probe_acked(&mut self, now: Instant) {
        if self.cold.search.is_none() {
            return;
        }
        let (una, high) = (self.hot.una, self.ceiling());
        let Some(search) = &mut self.cold.search else { return };
        if let Some(probe) = search.probe.take_if(|probe| probe.end <= una) {
            search.low = search.low.max(probe.mtu);
            search.size = search.low;
            search.again_at = now.0.saturating_add(AGAIN_NS);
        } else if search.high > high || now.0 >= search.again_at {
            search.high = high;
            search.again_at = now.0.saturating_add(AGAIN_NS);
        } else {
            return;
        }
        self.update_mss();
    }

    /// Whether what is lost is a probe, of which nothing but its size was wrong: the window stays.
    //= https://www.rfc-editor.org/rfc/rfc8899#section-3
    //# If a probe packet contains user data requiring retransmission in case of loss, the PL (or
    //# layers above) is REQUIRED to arrange any retransmission and/or repair of any resulting loss.
    //= https://www.rfc-editor.org/rfc/rfc8899#section-3
    //# The PL is REQUIRED to be robust in the case where probe packets are lost due to other
    //# reasons (including link transmission error, congestion).
    //= https://www.rfc-editor.org/rfc/rfc8899#section-3
    //# Loss of a probe packet SHOULD NOT be treated as an indication of congestion and SHOULD NOT
    //# trigger a congestion control reaction [RFC4821] because this could result in unnecessary
    //# reduction of the sending rate.
    pub fn lost_a_probe(&mut self) -> bool {
        let una = self.hot.una;
        let Some(search) = &mut self.cold.search else { return false };
        let Some(probe) = search.probe.take_if(|probe| probe.start == una) else { return false };
        search.high = probe.mtu - 1;
        true
    }
}
