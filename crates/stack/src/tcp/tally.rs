//! What is counted of a connection for TCP_INFO: its segments, and what few connections ever meet.

use serde::{Deserialize, Serialize};
use wire::tcp::TcpSegment;

use super::SegmentRx;
use super::connection::{Cold, Connection, Hot, SendTimer, Step};
use super::intervals::Range;
use super::progress::millis;
use super::shape::Records;
use super::signing::SigningKey;
use super::stamps::Stamps;
use super::tables::Tcp;
use super::user_timeout::RemoteUto;
use crate::api::{Instant, Payload, RequestError, SocketId, Urgent};

/// Segments, going round. As in Linux a large frame counts as those that it is cut into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    received: u32,
    received_data: u32,
    sent: u32,
    sent_data: u32,
}

impl Tally {
    /// A connection that a peer has opened: its SYN counts, and our answer to that does not (as
    /// Linux).
    pub fn of_passive(data: bool) -> Self {
        Self { received: 1, received_data: data.into(), ..Self::default() }
    }

    /// A segment has come, acceptable or not.
    pub fn on_received(&mut self, segment: &TcpSegment<'_>, rx: &SegmentRx) {
        let count = segments(segment.payload.len() as u64, rx.gso_bytes);
        self.received = self.received.wrapping_add(count);
        if !segment.payload.is_empty() {
            self.received_data = self.received_data.wrapping_add(count);
        }
    }

    /// One is sent.
    pub fn on_sent(&mut self, payload: &Payload, gso_bytes: Option<u16>) {
        let count = match *payload {
            Payload::Stream { len, .. } => {
                let count = segments(len.into(), gso_bytes);
                self.sent_data = self.sent_data.wrapping_add(count);
                count
            }
            _ => 1,
        };
        self.sent = self.sent.wrapping_add(count);
    }
}

/// How many segments carry so much.
pub fn segments(bytes: u64, gso_bytes: Option<u16>) -> u32 {
    let each = gso_bytes.map_or(bytes, u64::from).max(1);
    u32::try_from(bytes.div_ceil(each)).unwrap_or(u32::MAX).max(1)
}

/// What a connection has only once something is the matter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rare {
    /// What segments are signed with.
    pub key: Option<SigningKey>,
    /// The peer's urgent byte.
    pub urgent: Urgent,
    /// One past our own urgent byte.
    pub urge_end: u64,
    /// Segments sent again.
    pub retransmits: u32,
    /// Bytes sent again, going round.
    pub resent: u32,
    /// Segments that the peer reports to have got twice.
    pub duplicates: u32,
    /// Segments that came out of order.
    pub out_of_order: u32,
    /// Segments that arrived at the peer by acknowledgements that echo congestion.
    pub marked: u32,
    /// Time in which the program waited for room and all that it had written was under way.
    pub buffer_ms: u32,
    /// The user timeout that the peer has told.
    pub remote_uto: Option<RemoteUto>,
    /// A duplicate to be reported (RFC 2883).
    pub duplicate: Option<Range>,
    /// Ends of records, once there has been one.
    pub records: Option<Records>,
    /// When bytes were sent and acknowledged, where somebody asks.
    pub stamps: Option<Stamps>,
    /// Until when what the port has refused is not tried again by itself.
    pub refused_until: u64,
    timeouts: u16,
    timeout_series: u16,
    series_ms: u32,
    series_since_ms: u32,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpCounts {
    /// Segments received.
    pub received: u32,
    /// Of these, with data.
    pub received_data: u32,
    /// Segments sent, also again.
    pub sent: u32,
    /// Of these, with data.
    pub sent_data: u32,
    /// Segments that the peer reports to have got twice.
    pub duplicates: u32,
    /// Segments that came out of order.
    pub out_of_order: u32,
    /// Segments that arrived at the peer by acknowledgements that echo congestion.
    pub marked: u32,
    /// Time in which what the program may write ahead was all under way, microseconds.
    pub buffer_limited_us: u64,
    /// Timeouts.
    pub timeouts: u16,
    /// Rows of timeouts.
    pub timeout_series: u16,
    /// Time that rows of timeouts took, milliseconds.
    pub timeouts_ms: u32,
}

impl Cold {
    /// What is rare, to be changed.
    pub fn rare_mut(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// A duplicate to be reported, if there is one.
    pub fn duplicate(&self) -> Option<Range> {
        self.rare.as_ref()?.duplicate
    }

    /// The same, which then has been.
    pub fn take_duplicate(&mut self) -> Option<Range> {
        self.rare.as_mut()?.duplicate.take()
    }

    /// Ends of records, if there has been one.
    pub fn records(&self) -> Option<&Records> {
        self.rare.as_ref()?.records.as_ref()
    }

    /// What somebody asks about bytes, if anybody does.
    pub fn stamps(&self) -> Option<&Stamps> {
        self.rare.as_ref()?.stamps.as_ref()
    }

    /// The same, to be changed.
    pub fn stamps_mut(&mut self) -> Option<&mut Stamps> {
        self.rare.as_mut()?.stamps.as_mut()
    }

    /// Segments sent again.
    pub fn retransmits(&self) -> u32 {
        self.rare.as_ref().map_or(0, |rare| rare.retransmits)
    }

    /// The peer's urgent byte.
    pub fn urgent(&self) -> Urgent {
        self.rare.as_ref().map_or_else(Urgent::default, |rare| rare.urgent)
    }
}

impl Connection<'_> {
    /// The timer of retransmission has run out.
    pub fn count_timeout(&mut self, now: Instant) {
        let is_first = self.cold.retries == 0;
        let rare = self.cold.rare_mut();
        rare.timeouts = rare.timeouts.saturating_add(1);
        if is_first {
            rare.timeout_series = rare.timeout_series.saturating_add(1);
            rare.series_since_ms = millis(now.0);
        }
    }

    /// Something was acknowledged: a row of timeouts is over.
    pub fn end_timeouts(&mut self, now: Instant) {
        if self.cold.retries > 0
            && self.hot.send_timer != SendTimer::Persist
            && let Some(rare) = &mut self.cold.rare
            && rare.timeouts > 0
        {
            let since = millis(now.0).wrapping_sub(rare.series_since_ms);
            rare.series_ms = rare.series_ms.saturating_add(since);
        }
    }

    /// The peer reports that it got something twice. As Linux: no more of them than was sent again.
    pub fn count_duplicate(&mut self, duplicate: Option<Range>) {
        let Some(duplicate) = duplicate else { return };
        let count = segments(duplicate.end.saturating_sub(duplicate.start), Some(self.hot.mss));
        let rare = self.cold.rare_mut();
        if rare.duplicates <= rare.retransmits {
            rare.duplicates = rare.duplicates.wrapping_add(count);
        }
    }

    /// The program waits for room to write, or does so no more.
    pub fn on_wait_for_room(&mut self, step: &Step<'_>, waits: bool) {
        self.cold.waits_for_room = waits;
        self.note_doing(step.now);
    }
}

impl Tcp {
    /// What was counted of a connection.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection.
    pub fn counts(&self, now: Instant, id: SocketId) -> Result<TcpCounts, RequestError> {
        let index = self.slot(id)? as usize;
        match (self.hot.get(index), self.cold.get(index)) {
            (Some(hot), Some(cold)) => Ok(told(now, hot, cold)),
            _ => Err(RequestError::Stale),
        }
    }

    /// The program waits for room to write, or does so no more.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection.
    pub fn wait_for_room(
        &mut self,
        now: Instant,
        id: SocketId,
        waits: bool,
    ) -> Result<(), RequestError> {
        let index = self.slot(id)?;
        self.with(now, index, |connection, step| connection.on_wait_for_room(step, waits))
            .ok_or(RequestError::Stale)
    }
}

fn told(now: Instant, hot: &Hot, cold: &Cold) -> TcpCounts {
    let nothing = Rare::default();
    let rare = cold.rare.as_deref().unwrap_or(&nothing);
    let is_timing_out =
        cold.retries > 0 && hot.send_timer != SendTimer::Persist && rare.timeouts > 0;
    let since = match is_timing_out {
        true => millis(now.0).wrapping_sub(rare.series_since_ms),
        false => 0,
    };
    let buffer_ms = rare.buffer_ms.wrapping_add(cold.chronicle.buffer_limited_now(now));
    TcpCounts {
        received: cold.tally.received,
        received_data: cold.tally.received_data,
        sent: cold.tally.sent,
        sent_data: cold.tally.sent_data,
        duplicates: rare.duplicates,
        out_of_order: rare.out_of_order,
        marked: rare.marked,
        buffer_limited_us: u64::from(buffer_ms) * 1000,
        timeouts: rare.timeouts,
        timeout_series: rare.timeout_series,
        timeouts_ms: rare.series_ms.saturating_add(since),
    }
}
