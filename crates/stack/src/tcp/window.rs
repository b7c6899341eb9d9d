//! The receive window: how much is offered, and how the offer grows with what the path carries
//! and the program reads (dynamic right-sizing, as Linux's tcp_rcv_space_adjust).
//!
//! The program's bytes in a round trip are what the window has to hold; as the measurement is a
//! round trip old, and a sender in slow start doubles in it, the window is two to six times as
//! large. It grows up to the limit of the options and of the owner's memory
//! ([`Connection::limit_window`]), and is never taken back.

use serde::{Deserialize, Serialize};

use super::connection::{Connection, Step};
use crate::api::Instant;

/// Bytes that a peer's initial window is expected to bring in its first round trip, in segments.
const FIRST_SEGMENTS: u32 = 10;
/// No ceiling takes a window below this: the one that connections start with.
pub const CEILING_MIN: u32 = 65535;

/// What is measured of the receiving direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tuning {
    /// Round-trip time as a receiver sees it, microseconds; 0 before the first measurement.
    rtt_us: u32,
    /// Bytes that the program read in the best round trip so far.
    space: u32,
    /// Without timestamps: when the window was measured from, and the offset that ends it.
    window: Option<Box<(u64, u64)>>,
    /// When the round trip that is being measured began.
    read_at: u64,
    /// `consumed` then.
    read_from: u64,
}

impl Tuning {
    /// Round-trip time in microseconds and bytes that are read in one, as TCP_INFO has them, on a
    /// connection that announced `mss`.
    pub fn told(&self, mss: u16) -> (u32, u32) {
        (self.rtt_us, self.space.max(FIRST_SEGMENTS * u32::from(mss)))
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
        // As Linux: an update when the window can at least double, so that a steady reader
        // costs no acknowledgements of its own.
        let now_open = self.hot.rcv_edge.saturating_sub(self.hot.rcv_nxt);
        let could = self.offered_edge().saturating_sub(self.hot.rcv_nxt);
        if could >= 2 * now_open && could > now_open {
            self.owe_ack(step);
        }
    }

    /// Once in a round trip: whether the window should be larger.
    fn tune(&mut self, step: &mut Step<'_>) {
        let (hot, tuning) = (&mut *self.hot, &mut self.cold.tuning);
        let options = &self.cold.options;
        let limit = options.window_limit().min(hot.rcv_ceiling);
        if !options.recv_tunes {
            // The program has said how large: as fast as it reads.
            if hot.consumed - tuning.read_from >= u64::from(hot.rcv_limit) {
                tuning.read_from = hot.consumed;
                hot.rcv_limit = hot.rcv_limit.saturating_mul(2).min(limit).max(hot.rcv_limit);
            }
            return;
        }
        let since = step.now.0.saturating_sub(tuning.read_at);
        if tuning.rtt_us == 0 || since < u64::from(tuning.rtt_us) * 1000 {
            return;
        }
        let read = hot.consumed - tuning.read_from;
        let unread = hot.readable().saturating_sub(hot.consumed);
        let copied = u32::try_from(read.saturating_sub(unread)).unwrap_or(u32::MAX);
        let before = tuning.space.max(FIRST_SEGMENTS * u32::from(hot.rcv_mss));
        if copied > before {
            tuning.space = copied;
            let twice = 2 * u64::from(copied);
            let growth = twice * u64::from(copied - before) / u64::from(before);
            let out_of_order = self.cold.received.iter().next_back().map_or(0, |last| last.end);
            let wanted = twice + 2 * growth + out_of_order.saturating_sub(hot.rcv_nxt);
            let wanted = u32::try_from(wanted).unwrap_or(u32::MAX).min(limit);
            if wanted > hot.rcv_limit {
                hot.rcv_limit = wanted;
                step.shared.counters.receive_windows_grown += 1;
            }
        }
        tuning.read_at = step.now.0;
        tuning.read_from = hot.consumed;
    }

    /// The window of a SYN, which is never scaled.
    //= https://www.rfc-editor.org/rfc/rfc7323#section-2.2
    //# The window field in a segment where the SYN bit is set (i.e., a <SYN> or <SYN,ACK>) MUST NOT
    //# be scaled.
    pub fn syn_window(&self) -> u16 {
        self.hot.rcv_limit.min(65535) as u16
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
        let edge = self.offered_edge();
        let hot = &mut *self.hot;
        let window = edge.saturating_sub(hot.rcv_nxt);
        let unit = 1u64 << hot.rcv_scale;
        // Rounded down when it opens, up when it must not shrink.
        let field = if edge > hot.rcv_edge { window / unit } else { window.div_ceil(unit) };
        let field = field.min(65535);
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.2.2
        //# A TCP implementation MUST include a SWS avoidance algorithm in the receiver (MUST-39).
        hot.rcv_edge = hot.rcv_edge.max(hot.rcv_nxt + field * unit);
        field as u16
    }

    /// Where the right edge could be now.
    fn offered_edge(&self) -> u64 {
        let hot = &*self.hot;
        let limit = hot.rcv_limit.min(hot.rcv_ceiling);
        let unread = hot.readable().saturating_sub(hot.consumed);
        let free = u64::from(limit).saturating_sub(unread);
        // Receiver's silly window syndrome avoidance, RFC 9293 section 3.8.6.2.2.
        let step = u64::from(hot.rcv_mss).min(u64::from(limit) / 2);
        let edge = hot.rcv_nxt + free;
        if free >= step && edge > hot.rcv_edge { edge } else { hot.rcv_edge.max(hot.rcv_nxt) }
    }
}
