//! The receive window: how much is offered, and how the offer grows with what the path carries
//! and the program reads (dynamic right-sizing, as Linux's tcp_rcv_space_adjust).
//!
//! As in Linux there are three bounds. The receive memory (SO_RCVBUF) is what the program's unread
//! bytes may take; what of it is payload is measured by what comes. Where the program has not said
//! how much, it grows: the program's bytes in a round trip are what the window has to hold; as the
//! measurement is a round trip old, and a sender in slow start doubles in it, the window is two to
//! six times as large. It grows up to the limit of the options and of the owner's memory
//! ([`Connection::limit_window`]). The threshold, last, opens the window within the memory as
//! segments come, by twice their bytes. What was offered is never taken back.

use serde::{Deserialize, Serialize};

use super::connection::{Cold, Connection, Hot, NEVER, Step};
use super::receive::QUICK_ACKS;
use super::settings::TcpSettings;
use crate::api::{Instant, TcpOptions};

/// Bytes that a peer's initial window is expected to bring in its first round trip, in segments.
const FIRST_SEGMENTS: u32 = 10;
/// Payload in 256 bytes of receive memory, before anything has come: half of it.
pub const RATIO_UNKNOWN: u8 = 128;
/// Segments smaller than this do not open the window.
const GROWS_FROM: u64 = 128;
/// Memory that a connection starts with at the least.
const MEMORY_MIN: u32 = 4096;
/// No ceiling takes a window below this, which is also the most while nobody has accepted the
/// connection.
pub const CEILING_MIN: u32 = 65535;

/// What is measured of the receiving direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tuning {
    /// Round-trip time as a receiver sees it, microseconds; 0 before the first measurement.
    rtt_us: u32,
    /// Bytes that the program read in the best round trip so far.
    space: u32,
    /// Most that the window may be before more has come (Linux's rcv_ssthresh).
    pub threshold: u32,
    /// When the round trip that is being measured began, microseconds, going round.
    read_at_us: u32,
    /// Without timestamps: when the window was measured from, and the offset that ends it.
    window: Option<Box<(u64, u64)>>,
    /// `consumed` then.
    read_from: u64,
}

impl Tuning {
    /// Round-trip time in microseconds and bytes that are read in one, as TCP_INFO has them, on a
    /// connection that announced `mss`.
    pub fn told(&self, mss: u16) -> (u32, u32) {
        (self.rtt_us, self.read_in_a_round(mss))
    }

    fn read_in_a_round(&self, mss: u16) -> u32 {
        self.space.max(FIRST_SEGMENTS * u32::from(mss))
    }

    /// A measurement that timestamps allow; smoothed as the sender's.
    fn on_echo(&mut self, us: u32) {
        self.rtt_us = match self.rtt_us {
            0 => us,
            known => known - known / 8 + us / 8,
        };
    }

    /// The time that a whole window took, which is a round trip at the least: the shortest counts.
    fn on_window(&mut self, us: u32) {
        self.rtt_us = if self.rtt_us == 0 { us } else { self.rtt_us.min(us) };
    }
}

impl Connection<'_> {
    /// Data up to `rcv_nxt` has arrived in a segment of `len` bytes that echoes a timestamp of
    /// ours: the time since is a round trip.
    pub fn measure_path(&mut self, now: Instant, len: u64, echo: Option<u32>) {
        let hot = &*self.hot;
        let tuning = &mut self.cold.tuning;
        match echo {
            Some(0) => {}
            Some(echo) if len >= u64::from(hot.rcv_mss) => {
                let ticks = hot.ts_now(now).wrapping_sub(echo);
                if ticks < 1 << 20 {
                    tuning.on_echo(ticks.max(1).saturating_mul(1000));
                }
            }
            Some(_) => {}
            None => {
                let next = (now.0, hot.rcv_edge.max(hot.rcv_nxt + 1));
                let Some(window) = &mut tuning.window else {
                    tuning.window = Some(Box::new(next));
                    return;
                };
                if hot.rcv_nxt < window.1 {
                    return;
                }
                let (began, _) = std::mem::replace(&mut **window, next);
                let us = now.0.saturating_sub(began) / 1000;
                tuning.on_window(u32::try_from(us).unwrap_or(u32::MAX).max(1));
            }
        }
    }

    /// The owner has memory for a window of so many bytes; one of [`CEILING_MIN`] it always has.
    pub fn limit_window(&mut self, ceiling: u32) {
        self.hot.rcv_ceiling = ceiling.max(CEILING_MIN);
    }

    /// The program has read up to `end`.
    pub fn on_consumed(&mut self, step: &mut Step<'_>, end: u64) {
        let hot = &mut *self.hot;
        hot.consumed = end.min(hot.readable()).max(hot.consumed);
        self.tune(step);
        if !self.hot.state.may_receive() {
            return;
        }
        let unacked = self.hot.rcv_nxt - self.hot.rcv_acked;
        if self.hot.ack_at != NEVER && unacked > u64::from(self.hot.rcv_mss) {
            // It has waited for this.
            self.owe_ack(step);
            return;
        }
        // As Linux: an update when the window can at least double, so that a steady reader
        // costs no acknowledgements of its own.
        let now_open = self.hot.rcv_edge.saturating_sub(self.hot.rcv_nxt);
        let could = self.wanted_window();
        if could >= 2 * now_open && could > now_open {
            self.owe_ack(step);
        }
    }

    /// Once in a round trip: whether the window should be larger.
    fn tune(&mut self, step: &mut Step<'_>) {
        let mss = self.cold.advertised_mss();
        let (hot, tuning) = (&*self.hot, &mut self.cold.tuning);
        let now_us = (step.now.0 / 1000) as u32;
        if tuning.rtt_us == 0 || now_us.wrapping_sub(tuning.read_at_us) < tuning.rtt_us {
            return;
        }
        let read = hot.consumed - tuning.read_from;
        let unread = hot.readable().saturating_sub(hot.consumed);
        let copied = u32::try_from(read.saturating_sub(unread)).unwrap_or(u32::MAX);
        let before = tuning.read_in_a_round(mss);
        tuning.read_at_us = now_us;
        tuning.read_from = hot.consumed;
        if copied > before {
            tuning.space = copied;
            self.grow_memory(step, copied, before);
        }
    }

    /// Memory for `space` bytes read in a round trip, which were `before` in an earlier one, and for
    /// what has come out of order.
    fn grow_memory(&mut self, step: &mut Step<'_>, space: u32, before: u32) {
        let options = &self.cold.options;
        if !options.recv_tunes {
            return;
        }
        let beyond = self.highest().saturating_sub(self.hot.rcv_nxt);
        let window = window_for(space, before, beyond, options.recv_limit);
        let memory = memory_of(window, self.hot.rcv_ratio);
        if memory > self.hot.rcv_memory {
            self.hot.rcv_memory = memory;
            step.shared.counters.receive_windows_grown += 1;
        }
    }

    /// Something has come out of order, which takes memory until what is missing comes. As Linux:
    /// not before a program has the connection.
    pub fn make_room_for_gap(&mut self, step: &mut Step<'_>) {
        if self.cold.listener.is_none() {
            let space = self.cold.tuning.read_in_a_round(self.cold.advertised_mss());
            self.grow_memory(step, space, space);
        }
    }

    /// A segment with `len` bytes of payload has come: the window opens by twice as much, as far as
    /// there is room beside what is unread.
    pub fn open_window(&mut self, len: u64) {
        if len < GROWS_FROM {
            return;
        }
        let most = u64::from(clamp(self.hot, self.cold)).min(self.room());
        let tuning = &mut self.cold.tuning;
        let grown = (u64::from(tuning.threshold) + 2 * len).min(most) as u32;
        if grown > tuning.threshold {
            tuning.threshold = grown;
            self.hot.quick |= 1;
        }
    }

    /// Learns the peer's segment size, and that it has awakened from a pause.
    pub fn measure_peer(&mut self, step: &Step<'_>, len: u64, gso_bytes: Option<u16>) {
        let hot = &mut *self.hot;
        let segment = gso_bytes.map_or(len, u64::from).min(len);
        if segment >= u64::from(hot.rcv_mss) {
            let headers = if self.cold.remote.is_ipv4() { 40 } else { 60 };
            let largest = u64::from(self.cold.mtu.saturating_sub(headers));
            let largest = segment.min(largest).max(1) as u16;
            if std::mem::replace(&mut hot.rcv_mss, largest) != largest {
                self.measure_share(len);
            }
        }
        let hot = &mut *self.hot;
        if step.now.0.saturating_sub(self.cold.data_at) > hot.rtt.rto_ns() {
            hot.quick = hot.quick.max(QUICK_ACKS);
        }
        self.cold.data_at = step.now.0;
    }

    /// The largest segment so far, or a coalesced one of such segments, has `len` bytes of payload:
    /// its share of what it takes to hold it is that of others, too.
    fn measure_share(&mut self, len: u64) {
        self.hot.rcv_ratio = (len * 256 / true_size(len)).clamp(1, 255) as u8;
    }

    /// The window that is offered first, in whole segments of `mss` bytes, and in no more than the
    /// route says.
    pub fn begin_window(&mut self, mss: u16) {
        let most = self.cold.options.path.first_window_most(mss);
        let whole = first_window(share(self.hot), mss).min(most);
        self.cold.tuning.threshold = whole.min(clamp(self.hot, self.cold));
        self.hot.rcv_edge = u64::from(self.cold.tuning.threshold.min(65535));
    }

    /// Whether an acknowledgement of several segments waits for the program to read: more than half
    /// of the memory is taken, and the window would not be what it was (as Linux). One that shuts
    /// the window does not wait.
    pub fn awaits_reading(&mut self) -> bool {
        let room = self.room();
        if room >= u64::from(clamp(self.hot, self.cold)) / 2 || room == 0 {
            return false;
        }
        self.hot.quick = 0;
        let hot = &*self.hot;
        let unread = hot.readable().saturating_sub(hot.consumed);
        unread >= self.cold.options.recv_low_water.into()
            && self.wanted_window() < hot.rcv_edge.saturating_sub(hot.rcv_acked)
    }

    /// One past the last byte received.
    fn highest(&self) -> u64 {
        let last = self.cold.received.iter().next_back();
        last.map_or(0, |last| last.end).max(self.hot.readable())
    }

    /// Whether unread bytes up to `end` would be more than the receive memory. A first segment is taken
    /// whatever its size.
    pub fn is_beyond_memory(&self, end: i64) -> bool {
        let consumed = self.hot.consumed.cast_signed();
        end - consumed > i64::from(self.hot.rcv_memory) && self.highest() > self.hot.consumed
    }

    /// Bytes for which there is room beside those that are unread.
    fn room(&self) -> u64 {
        let held = self.highest().saturating_sub(self.hot.consumed);
        u64::from(space(self.hot, self.cold)).saturating_sub(held)
    }

    /// The window of a SYN, which is never scaled. It counts from what is acknowledged with it: data
    /// of the peer's SYN takes nothing of it, as in Linux.
    //= https://www.rfc-editor.org/rfc/rfc7323#section-2.2
    //# The window field in a segment where the SYN bit is set (i.e., a <SYN> or <SYN,ACK>) MUST NOT
    //# be scaled.
    pub fn syn_window(&mut self) -> u16 {
        let window = self.cold.tuning.threshold.min(65535);
        self.hot.rcv_edge = self.hot.rcv_edge.max(self.hot.rcv_nxt + u64::from(window));
        window as u16
    }

    /// The window of the next segment; moves the right edge, never back.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6
    //# A TCP receiver SHOULD NOT shrink the window
    //= https://www.rfc-editor.org/rfc/rfc7323#section-2.3
    //# The window field (SEG.WND) of every outgoing segment, with the exception of <SYN> segments,
    //# MUST be right-shifted by Rcv.Wind.Shift bits:
    //= https://www.rfc-editor.org/rfc/rfc7323#section-2.4
    //# The receiver MUST honor, as in window, any segment that would have been in window for any
    //# <ACK> sent by the receiver.
    pub fn offer_window(&mut self) -> u16 {
        let wanted = self.wanted_window();
        let hot = &mut *self.hot;
        let unit = 1u64 << hot.rcv_scale;
        let window = wanted.max(hot.rcv_edge.saturating_sub(hot.rcv_nxt));
        // Rounded up, for it must not shrink.
        let field = window.div_ceil(unit).min(65535);
        hot.rcv_edge = hot.rcv_edge.max(hot.rcv_nxt + field * unit);
        field as u16
    }

    /// The window that there is room for now (Linux's __tcp_select_window).
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.2.2
    //# A TCP implementation MUST include a SWS avoidance algorithm in the receiver (MUST-39).
    fn wanted_window(&self) -> u64 {
        let hot = &*self.hot;
        let unit = 1u64 << hot.rcv_scale;
        let most = u64::from(clamp(hot, self.cold));
        let mss = u64::from(hot.rcv_mss).min(most).max(1);
        let mut free = self.room();
        if free < most / 2 {
            free -= free % unit;
            if free < u64::from(space(hot, self.cold)) / 16 || free < mss {
                return 0;
            }
        }
        free = free.min(self.cold.tuning.threshold.into()).min(most);
        if hot.rcv_scale > 0 {
            // Whole segments would be no whole units.
            return free.next_multiple_of(unit);
        }
        let offered = hot.rcv_edge.saturating_sub(hot.rcv_acked);
        if offered + mss <= free || offered > free {
            free - free % mss
        } else if mss == most && free > offered + most / 2 {
            free
        } else {
            offered
        }
    }
}

/// Bytes of payload that the receive memory holds (Linux's tcp_full_space).
fn share(hot: &Hot) -> u32 {
    (u64::from(hot.rcv_memory) * u64::from(hot.rcv_ratio) / 256) as u32
}

/// Bytes of payload that there is memory for, here and at the owner.
fn space(hot: &Hot, cold: &Cold) -> u32 {
    let most = if cold.options.recv_tunes { cold.options.recv_limit } else { u32::MAX };
    share(hot).min(most).min(hot.rcv_ceiling)
}

/// Most that the window may become in this memory, and that can be told.
fn clamp(hot: &Hot, cold: &Cold) -> u32 {
    let told = 65535 << hot.rcv_scale.min(14);
    match cold.options.window_clamp {
        0 => space(hot, cold).min(told),
        clamp => space(hot, cold).min(told).min(clamp),
    }
}

/// Most that the window may be now.
pub fn window_of(hot: &Hot, cold: &Cold) -> u32 {
    clamp(hot, cold).min(cold.tuning.threshold)
}

/// Whether the unread bytes leave no room for another segment, however often the window is offered.
pub fn is_window_used(hot: &Hot, cold: &Cold) -> bool {
    let unread = hot.readable().saturating_sub(hot.consumed);
    u64::from(clamp(hot, cold)).saturating_sub(unread) <= u64::from(hot.rcv_mss)
}

/// The window for a program that reads `space` bytes in a round trip, after `before` in an earlier
/// one, while `beyond` bytes wait for others; `limit` at most.
fn window_for(space: u32, before: u32, beyond: u64, limit: u32) -> u64 {
    // The peer's timestamps say how long a round trip is: what is read in one has no bound.
    let twice = 2 * u128::from(space);
    let growth = twice * u128::from(space - before) / u128::from(before.max(1));
    let window = twice + 2 * growth + u128::from(beyond);
    window.min(limit.into()) as u64
}

/// Receive memory for a window of so many bytes.
pub fn memory_of(window: u64, ratio: u8) -> u32 {
    u32::try_from(window * 256 / u64::from(ratio.max(1))).unwrap_or(u32::MAX)
}

/// Receive memory that a connection with these options starts with, and the shift of its windows.
pub fn initial_memory(options: &TcpOptions, settings: &TcpSettings) -> (u32, u8) {
    let most = options.window_limit();
    let twice = options.recv_limit.saturating_mul(2);
    // A window that the program has fixed never grows beyond it.
    match options.recv_tunes {
        true => (
            settings.receive_initial.max(MEMORY_MIN).min(twice),
            scale_for(most.max(settings.receive_max)),
        ),
        false => (twice, scale_for(most)),
    }
}

/// The window offered first where there is room for `space` bytes, in segments of `mss` bytes.
pub fn first_window(space: u32, mss: u16) -> u32 {
    let mss = u32::from(mss.max(1));
    if space > mss { space - space % mss } else { space }
}

/// The smallest shift with which a 16-bit field can offer about `limit` bytes (RFC 7323 section
/// 2.3), as Linux chooses it.
//= https://www.rfc-editor.org/rfc/rfc7323#section-2.3
//# Thus, the shift count MUST be limited to 14 (which allows windows of 2^30 = 1 GiB).
fn scale_for(limit: u32) -> u8 {
    (limit.max(1).ilog2().saturating_sub(15)).min(14) as u8
}

/// What Linux takes to hold a segment with `len` bytes of payload: the headers, the payload and what
/// belongs to them in one piece, of a power of two up to a page and of whole pages beyond, and a
/// description.
fn true_size(len: u64) -> u64 {
    const PAGE: u64 = 4096;
    const BESIDE: u64 = 384;
    const DESCRIPTION: u64 = 256;
    let piece = len + BESIDE;
    let piece =
        if piece <= PAGE { piece.next_power_of_two() } else { piece.next_multiple_of(PAGE) };
    piece + DESCRIPTION
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_read_in_a_round_trip_the_window_stays_within_its_limit() {
        assert_eq!(window_for(u32::MAX, 1, u64::MAX, 6 << 20), 6 << 20);
        assert_eq!(window_for(3_100_000_000, 14600, 0, u32::MAX), u64::from(u32::MAX));
        assert_eq!(window_for(20_000, 10_000, 5, u32::MAX), 40_000 + 2 * 40_000 + 5);
    }
}
