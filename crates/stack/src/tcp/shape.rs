//! How what the program writes becomes segments: what is held back (Nagle, TCP_CORK, MSG_MORE), where
//! records end (MSG_EOR), what is pushed, and how large the frames are that the port cuts.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::connection::{Connection, Phase, Step, frame_of};
use super::rtt::MILLISECOND;
use super::tables::Tcp;
use crate::api::{Instant, RequestError, SocketId};

/// Ends of records remembered for one connection; what is beyond them is sent as a stream.
const RECORDS_MAX: usize = 1024;
/// Most payload in one frame: Linux takes large frames of up to 65,535 bytes, Ethernet, IP and TCP
/// headers included (longer ones are cut in software).
pub const FRAME_BYTES: u64 = 65535 - 14 - 40 - 60;

/// The program's wish for what it wrote last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hold {
    /// None.
    #[default]
    None,
    /// More follows (MSG_MORE): a partial segment waits, until something is acknowledged.
    More,
    /// TCP_NODELAY has just been set: what there is goes, also what TCP_CORK holds.
    Push,
}

/// Where records end that are not to share a segment with what follows, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Records(VecDeque<u64>);

impl Connection<'_> {
    /// The send stream reaches to `end` now; `more` is to follow.
    pub fn on_written(&mut self, step: &mut Step<'_>, end: u64, more: bool) {
        let hot = &mut *self.hot;
        if end > hot.written {
            // What was written before was pushed at its end.
            hot.pushed = hot.pushed.max(hot.written);
            hot.written = end;
            hot.more = more;
            hot.hold = if more { Hold::More } else { Hold::None };
            hot.refused = false;
            step.ready = true;
            self.note_doing(step.now);
        }
    }

    /// What is written up to `end` does not share a segment with what follows (MSG_EOR).
    pub fn end_record(&mut self, step: &mut Step<'_>, end: u64) {
        let una = self.hot.una;
        let ends = &mut self.cold.rare_mut().records.get_or_insert_default().0;
        while ends.front().is_some_and(|&first| first <= una) {
            ends.pop_front();
        }
        if ends.len() == RECORDS_MAX {
            step.shared.counters.records_joined += 1;
        } else if ends.back().is_none_or(|&last| last < end) {
            ends.push_back(end);
        }
    }

    /// Where the record ends that the byte at `offset` is in; far away when there is none.
    pub fn record_end(&self, offset: u64) -> u64 {
        let Some(Records(ends)) = self.cold.records() else { return u64::MAX };
        let next = ends.partition_point(|&end| end <= offset);
        ends.get(next).copied().unwrap_or(u64::MAX)
    }

    /// Whether a segment that ends at `end` is pushed: it is the last of what was written, and no
    /// more was announced; or the last of a record.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.2
    //# (1) MUST NOT buffer data indefinitely (MUST-60), and (2) MUST set the PSH
    //# bit in the last buffered segment (i.e., when there is no more queued data
    //# to be sent) (MUST-61).
    pub fn is_pushed(&self, end: u64) -> bool {
        let hot = &*self.hot;
        if end == hot.written {
            return !hot.more || hot.probe_due;
        }
        if hot.probe_due && self.is_window_closed() {
            // The peer has room for nothing behind it, and what is read makes some (as Linux).
            return true;
        }
        self.cold.records().is_some() && self.record_end(end.saturating_sub(1)) == end
    }

    /// Whether new data that ends at `end` is pushed within what was written: with the first frame that
    /// ends beyond half of the largest window (Linux's forced_push).
    pub fn is_push_due(&mut self, end: u64) -> bool {
        let hot = &mut *self.hot;
        let half = u64::from(hot.max_wnd / 2);
        let ahead = end.saturating_sub(hot.pushed);
        if ahead <= half {
            return false;
        }
        let frame = u64::from(frame_of(hot));
        let is_due = ahead >= (half / frame + 1) * frame;
        if is_due {
            hot.pushed = end;
        }
        is_due
    }

    /// Nagle's algorithm in Minshall's variant, TCP_CORK and MSG_MORE, as Linux has them.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.4
    //# A TCP implementation SHOULD implement the Nagle algorithm to coalesce
    //# short segments (SHLD-7).
    pub fn may_send_partial(&self, closing: bool) -> bool {
        let hot = &*self.hot;
        if closing || hot.urging || hot.hold == Hold::Push {
            return true;
        }
        if self.is_held() {
            // The timer has held it long enough.
            return hot.probe_due;
        }
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.4
        //# However, there MUST be a way for an application to disable the Nagle algorithm on an
        //# individual connection (MUST-17).
        hot.nodelay || hot.flight() == 0 || hot.small_end <= hot.una
    }

    /// Whether the program wants a partial segment to wait.
    pub fn is_held(&self) -> bool {
        self.hot.cork || self.hot.hold == Hold::More
    }

    /// How much of the stream goes into one frame that the port cuts: what the path takes in a
    /// millisecond, so that it does not come in bursts, and more of it the closer the peer is
    /// (Linux's tcp_tso_autosize).
    pub fn frame_bytes(&self) -> u64 {
        let hot = &*self.hot;
        let mss = u64::from(hot.mss.max(1));
        let most = u64::from(frame_of(hot));
        let Some(srtt_ns) = hot.rtt.srtt_ns().filter(|&srtt| srtt > 0) else { return most };
        let Some(min_rtt_ns) = self.cold.rack.min_rtt_ns() else { return most };
        let window = &hot.window;
        let percent = if window.cwnd < window.ssthresh / 2 { 200 } else { 120 };
        // cwnd / srtt * percent / 100, per 1/1024 of a second.
        let rate = u64::from(window.cwnd) * percent * (1_000_000_000 / 100 / 1024) / srtt_ns;
        // As the kernel: halved for each 512 us.
        let close = FRAME_BYTES.checked_shr((min_rtt_ns / 512_000).min(63) as u32).unwrap_or(0);
        let segments = ((rate + close) / mss).max(u64::from(self.cold.frame_min));
        (segments * mss).min(most)
    }

    /// Half of the congestion window, in whole segments: at least two frames are under way (as Linux), so
    /// that acknowledgements come evenly.
    pub fn half_window(&self, mss: u64) -> u64 {
        (u64::from(self.hot.window.cwnd) / mss / 2).max(1) * mss
    }

    /// Up to where the stream could be sent now, in whole segments, if so much were written; and whether
    /// a frame that the program fills goes in more than one piece.
    pub fn send_edge(&self) -> (u64, bool) {
        let hot = &*self.hot;
        let mss = u64::from(hot.mss.max(1));
        let usable = hot.una.saturating_add(u64::from(hot.snd_wnd)).saturating_sub(hot.nxt);
        let room = u64::from(hot.window.cwnd).saturating_sub(self.pipe()).min(usable);
        let is_parted = self.frame_bytes().min(self.half_window(mss)) < u64::from(frame_of(hot));
        (hot.nxt + room / mss * mss, is_parted)
    }

    /// Whether less than a whole frame waits for more room, as the next acknowledgement is near
    /// and brings some: a large frame costs as much as a small one (Linux's tcp_tso_should_defer).
    /// `room` is what windows allow now.
    pub fn should_wait_for_room(&self, now: Instant, room: u64, frame: u64) -> bool {
        let hot = &*self.hot;
        let third = u64::from(hot.snd_wnd.min(hot.window.cwnd)) / 3;
        if hot.phase != Phase::Open || room >= third.min(frame) {
            return false;
        }
        if now.0.saturating_sub(hot.sent_at) > MILLISECOND {
            return false;
        }
        let Some(first) = self.cold.scoreboard.first() else { return false };
        // As Linux since 6.18: before, whatever was older than half a round trip was waited for, and with
        // a peer that delays acknowledgements a segment of each window stayed behind for a round trip.
        let srtt_ns = hot.rtt.srtt_ns().unwrap_or(0);
        let until_ack_ns = first.at.saturating_add(srtt_ns).saturating_sub(now.0);
        until_ack_ns <= MILLISECOND.min(srtt_ns / 2)
    }
}

impl Tcp {
    /// Up to where a connection's stream could be sent now, and whether frames go in more than one piece.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection.
    pub fn send_edge(&mut self, now: Instant, id: SocketId) -> Result<(u64, bool), RequestError> {
        let index = self.slot(id)?;
        self.with(now, index, |connection, _| connection.send_edge()).ok_or(RequestError::Stale)
    }
}
