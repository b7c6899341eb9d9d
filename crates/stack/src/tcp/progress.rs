//! What is told of a connection's data: when there was any, what held it up, what has arrived.

use serde::{Deserialize, Serialize};

use super::connection::{Cold, Connection, Hot, SendTimer};
use super::rtt::MILLISECOND;
use super::scoreboard::Scoreboard;
use super::tables::Tcp;
use crate::api::{Instant, RequestError, SocketId};

/// Segments of reordering that are taken for granted (tcp_reordering).
const REORDERING: u16 = 3;
/// Most segments of it that are told (tcp_max_reordering).
const REORDERING_MAX: u64 = 300;

/// What has become of a connection's data so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpProgress {
    /// Time in which there was something to send or to be acknowledged, microseconds.
    pub busy_us: u64,
    /// Part of it in which the peer's window was too small.
    pub window_limited_us: u64,
    /// Bytes received in order.
    pub received: u64,
    /// Segments that have arrived at the peer, the SYN among them.
    pub delivered: u32,
    /// Bytes sent again and not acknowledged.
    pub resent: u64,
    /// Milliseconds since data was received, or since the connection stands.
    pub last_received_ms: u32,
    /// Milliseconds since data was sent, or since the connection stands.
    pub last_sent_ms: u32,
    /// Smallest round-trip time of the last minutes, microseconds; 0 before the first.
    pub min_rtt_us: u32,
    /// Segments by which the network is known to change their order.
    pub reordering: u16,
    /// How often it did.
    pub reorderings: u16,
    /// Probes without an answer.
    pub probes: u8,
    /// How often the timeout has been doubled.
    pub backoff: u8,
}

/// What a connection's time goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Doing {
    /// Nothing is to be sent or acknowledged.
    #[default]
    Nothing,
    /// Something is.
    Busy,
    /// Something is to be sent, and the peer's window is too small.
    WindowLimited,
    /// All is under way, and the program waits for room to write more.
    BufferLimited,
}

/// Where a connection's time went, and what arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chronicle {
    /// Since when the connection does what it does, milliseconds, going round as all of them.
    since_ms: u32,
    busy_ms: u32,
    limited_ms: u32,
    /// Segments that have arrived at the peer.
    pub delivered: u32,
    /// When the connection began to stand, milliseconds, going round.
    pub stands_since_ms: u32,
    /// Beyond [`REORDERING`], segments.
    reordering: u16,
    reorderings: u16,
    doing: Doing,
}

impl Chronicle {
    fn turn_to(&mut self, now: Instant, doing: Doing) {
        if self.doing == doing {
            return;
        }
        (self.busy_ms, self.limited_ms) = self.times(now);
        (self.doing, self.since_ms) = (doing, millis(now.0));
    }

    /// Busy and limited, until now.
    fn times(&self, now: Instant) -> (u32, u32) {
        let since = millis(now.0).wrapping_sub(self.since_ms);
        let busy = self.busy_ms.wrapping_add(since);
        match self.doing {
            Doing::Nothing => (self.busy_ms, self.limited_ms),
            Doing::Busy | Doing::BufferLimited => (busy, self.limited_ms),
            Doing::WindowLimited => (busy, self.limited_ms.wrapping_add(since)),
        }
    }

    /// Milliseconds of what goes on, where that is waiting for room to write.
    pub fn buffer_limited_now(&self, now: Instant) -> u32 {
        match self.doing {
            Doing::BufferLimited => millis(now.0).wrapping_sub(self.since_ms),
            _ => 0,
        }
    }

    /// Data arrived so many bytes behind what was sent later.
    pub fn on_reordering(&mut self, behind: u64, mss: u64) {
        let segments = behind.div_ceil(mss.max(1)).min(REORDERING_MAX) as u16;
        self.reordering = self.reordering.max(segments.saturating_sub(REORDERING));
        self.reorderings = self.reorderings.saturating_add(1);
    }

    /// Whether the network changes the order by more than is taken for granted.
    pub fn is_reordered(&self) -> bool {
        self.reordering > 0
    }

    /// What arrived out of order was no reordering: a timeout had to find the loss (as Linux).
    pub fn doubt_reordering(&mut self) {
        self.reordering = 0;
    }
}

impl Connection<'_> {
    /// Something was written, sent or acknowledged.
    pub fn note_doing(&mut self, now: Instant) {
        let hot = &*self.hot;
        let is_under_way = hot.nxt >= hot.written && hot.state.may_write();
        let doing = if hot.is_opening() || hot.una >= hot.written {
            Doing::Nothing
        } else if hot.nxt < hot.written && self.is_window_closed() {
            Doing::WindowLimited
        } else if is_under_way && self.cold.waits_for_room && !self.is_cwnd_limited() {
            Doing::BufferLimited
        } else {
            Doing::Busy
        };
        let limited_ms = self.cold.chronicle.buffer_limited_now(now);
        if limited_ms > 0 && doing != Doing::BufferLimited {
            let rare = self.cold.rare_mut();
            rare.buffer_ms = rare.buffer_ms.wrapping_add(limited_ms);
        }
        self.cold.chronicle.turn_to(now, doing);
    }
}

impl Tcp {
    /// What has become of a connection's data so far.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection.
    pub fn progress(&self, now: Instant, id: SocketId) -> Result<TcpProgress, RequestError> {
        let index = self.slot(id)? as usize;
        let (Some(hot), Some(cold)) = (self.hot.get(index), self.cold.get(index)) else {
            return Err(RequestError::Stale);
        };
        Ok(told(now, hot, cold))
    }
}

/// Milliseconds of the caller's clock, going round.
pub fn millis(ns: u64) -> u32 {
    (ns / MILLISECOND) as u32
}

fn told(now: Instant, hot: &Hot, cold: &Cold) -> TcpProgress {
    let chronicle = &cold.chronicle;
    let (busy_ms, limited_ms) = chronicle.times(now);
    let since = |at: u64| match at {
        0 => millis(now.0).wrapping_sub(chronicle.stands_since_ms),
        at => millis(now.0).wrapping_sub(millis(at)),
    };
    let is_probing = hot.send_timer == SendTimer::Persist;
    TcpProgress {
        busy_us: u64::from(busy_ms) * 1000,
        window_limited_us: u64::from(limited_ms) * 1000,
        received: hot.readable(),
        delivered: chronicle.delivered,
        resent: Scoreboard::resent_bytes(&cold.scoreboard),
        last_received_ms: since(cold.data_at),
        last_sent_ms: since(hot.sent_at),
        min_rtt_us: cold
            .rack
            .min_rtt_ns()
            .map_or(0, |ns| u32::try_from(ns / 1000).unwrap_or(u32::MAX)),
        reordering: REORDERING + chronicle.reordering,
        reorderings: chronicle.reorderings,
        probes: if is_probing { cold.retries } else { cold.keep_probes },
        backoff: hot.rtt.backoff(),
    }
}
