//! Connections in TIME-WAIT: small records of their own, in order of their end.

use std::collections::VecDeque;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use wire::tcp::{SeqNumber, TcpFlags, TcpSegment, Timestamps};

use super::connection::{Cold, Hot};
use super::flow::Flow;
use super::receive::is_answer_due;
use super::reply::Reply;
use super::rtt::SECOND;
use super::signing::SigningKey;
use crate::api::{Instant, InterfaceIndex};

/// Twice the maximum segment lifetime, as Linux takes it.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.4.2
//# For this specification the MSL is taken to be 2 minutes.  This is an
//# engineering choice, and may be changed if experience indicates it is
//# desirable to do so.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.6.1
//# When a connection is closed actively, it MUST linger in the TIME-WAIT state for a time 2xMSL
//# (Maximum Segment Lifetime) (MUST-13).
pub const TIME_WAIT_NS: u64 = 60 * SECOND;
/// Entries of the order beyond twice those that live, before the stale ones are looked for.
const STALE_MAX: usize = 64;

/// What a connection in TIME-WAIT has to remember.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TimeWait {
    /// Own address.
    pub local: SocketAddr,
    /// Peer's address.
    pub remote: SocketAddr,
    interface: InterfaceIndex,
    snd_nxt: SeqNumber,
    rcv_nxt: SeqNumber,
    window: u16,
    timestamps: bool,
    ts_recent: u32,
    ts_offset: u32,
    tos: u8,
    key: Option<Box<SigningKey>>,
    /// When an unacceptable segment was answered last, milliseconds; 0 before the first.
    answered_ms: u32,
    expires: u64,
    generation: u32,
}

/// What a segment in TIME-WAIT leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimeWaitAction {
    /// Nothing.
    Drop,
    /// Nothing, since one like it was answered a moment ago.
    Limited,
    /// The peer wants no more of it: it is over.
    End,
    /// An acknowledgement.
    Acknowledge(Reply),
    /// A new connection may take over, with this initial sequence number.
    Reuse(SeqNumber),
}

/// All of them. The oldest gives way when there are too many.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TimeWaits {
    slots: Vec<Option<TimeWait>>,
    free: Vec<u32>,
    /// Slot, generation and when to look, the first in front.
    order: VecDeque<(u32, u32, u64)>,
    generation: u32,
    limit: u32,
}

impl TimeWaits {
    /// A table of at most `limit` entries.
    pub fn new(limit: u32) -> Self {
        Self { limit: limit.max(1), ..Self::default() }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// An entry.
    pub fn entry(&self, slot: u32) -> Option<&TimeWait> {
        self.slots.get(slot as usize)?.as_ref()
    }

    /// What an entry's segments are signed with.
    pub fn key_of(&self, slot: u32) -> Option<&SigningKey> {
        self.entry(slot)?.key.as_deref()
    }

    /// Slots that there are, used or not.
    pub fn places(&self) -> usize {
        self.slots.len()
    }

    /// All entries with their slots.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &TimeWait)> {
        (0u32..).zip(&self.slots).filter_map(|(slot, entry)| Some((slot, entry.as_ref()?)))
    }

    /// Whether the next insertion needs [`TimeWaits::evict`].
    pub fn is_full(&self) -> bool {
        self.len() >= self.limit as usize
    }

    /// Takes over a connection that has reached TIME-WAIT; its slot here.
    pub fn insert(&mut self, now: Instant, hot: &Hot, cold: &Cold) -> u32 {
        self.generation = self.generation.wrapping_add(1);
        let unit = hot.rcv_scale.min(14);
        let entry = TimeWait {
            local: cold.local.address(),
            remote: cold.remote.address(),
            interface: hot.interface,
            snd_nxt: hot.seq(hot.nxt),
            rcv_nxt: hot.ack(hot.rcv_nxt),
            window: (hot.rcv_edge.saturating_sub(hot.rcv_nxt) >> unit).min(65535) as u16,
            timestamps: hot.timestamps,
            ts_recent: hot.ts_recent,
            ts_offset: hot.ts_offset,
            tos: cold.options.tos_to(cold.remote.ip()),
            key: cold.key().cloned().map(Box::new),
            answered_ms: 0,
            expires: now.0.saturating_add(TIME_WAIT_NS),
            generation: self.generation,
        };
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(None);
                (self.slots.len() - 1) as u32
            }
        };
        if self.order.len() > 2 * self.len() + STALE_MAX {
            // Of connections that were taken over since.
            let slots = &self.slots;
            self.order.retain(|&(slot, generation, _)| {
                let entry = slots.get(slot as usize).and_then(Option::as_ref);
                entry.is_some_and(|entry| entry.generation == generation)
            });
        }
        self.order.push_back((slot, entry.generation, entry.expires));
        if let Some(place) = self.slots.get_mut(slot as usize) {
            *place = Some(entry);
        }
        slot
    }

    /// Forgets an entry.
    pub fn remove(&mut self, slot: u32) -> Option<TimeWait> {
        let entry = self.slots.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some(entry)
    }

    /// The oldest entry gives way; with the slot it had.
    pub fn evict(&mut self) -> Option<(u32, TimeWait)> {
        while let Some((slot, generation, _)) = self.order.pop_front() {
            if self.entry(slot).is_some_and(|e| e.generation == generation) {
                return Some((slot, self.remove(slot)?));
            }
        }
        None
    }

    /// An entry whose time is over, if any, with the slot it had.
    pub fn expire(&mut self, now: Instant) -> Option<(u32, TimeWait)> {
        while let Some(&(slot, generation, due)) = self.order.front() {
            if due > now.0 {
                return None;
            }
            self.order.pop_front();
            match self.entry(slot).filter(|e| e.generation == generation).map(|e| e.expires) {
                // Taken over by a new connection meanwhile.
                None => {}
                Some(expires) if expires <= now.0 => return Some((slot, self.remove(slot)?)),
                // Prolonged meanwhile.
                Some(expires) => self.order.push_back((slot, generation, expires)),
            }
        }
        None
    }

    /// When [`TimeWaits::expire`] should next be called.
    pub fn deadline(&self) -> Option<Instant> {
        self.order.front().map(|&(_, _, due)| Instant(due))
    }

    /// A segment for an entry.
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.6.1
    //# This algorithm for reducing TIME-WAIT is a Best Current Practice that SHOULD be implemented
    //# since Timestamp Options are commonly used, and using them to reduce TIME-WAIT provides
    //# benefits for busy Internet servers (SHLD-4).
    //= https://www.rfc-editor.org/rfc/rfc6191#section-2
    //# Processing of SYN segments received for connections in the TIME-WAIT state SHOULD occur as
    //# follows:
    pub fn on_segment(
        &mut self,
        now: Instant,
        slot: u32,
        segment: &TcpSegment<'_>,
    ) -> TimeWaitAction {
        let Some(Some(entry)) = self.slots.get_mut(slot as usize) else {
            return TimeWaitAction::Drop;
        };
        let header = &segment.header;
        let flags = header.flags;
        let timestamps = segment.options.timestamps.filter(|_| entry.timestamps);
        let older =
            timestamps.is_some_and(|t| t.value.wrapping_sub(entry.ts_recent).cast_signed() < 0);
        if flags.rst() {
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
            //# If the RST bit is set, then enter the CLOSED state, delete
            //# the TCB, and return.
            // RFC 1337 would have it ignored; Linux does as RFC 9293 unless it is told otherwise.
            let is_next = header.seq == entry.rcv_nxt && !older;
            return if is_next { TimeWaitAction::End } else { TimeWaitAction::Drop };
        }
        if flags.syn() && !flags.ack() && !older {
            // RFC 6191 section 2: a newer clock or a higher sequence number.
            let newer_clock = timestamps.is_some_and(|t| t.value != entry.ts_recent);
            if header.seq.gt(entry.rcv_nxt) || newer_clock {
                // Beyond everything the old connection can have in the network, as Linux.
                return TimeWaitAction::Reuse(entry.snd_nxt + 65537);
            }
        }
        let empty = segment.payload.is_empty() && !flags.fin() && !flags.syn();
        if empty && !older && header.seq == entry.rcv_nxt {
            // What is older than this, too, is old from now on.
            entry.ts_recent = timestamps.map_or(entry.ts_recent, |stamp| stamp.value);
            entry.expires = now.0.saturating_add(TIME_WAIT_NS);
            return TimeWaitAction::Drop;
        }
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
        //# The only thing that can arrive in this state is a
        //# retransmission of the remote FIN.  Acknowledge it, and restart
        //# the 2 MSL timeout.
        // Linux restarts it for whatever shows that the peer still speaks of the connection, not for a
        // SYN alone, which may be of a new one.
        if flags.ack() || older {
            entry.expires = now.0.saturating_add(TIME_WAIT_NS);
        }
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
        //# If an incoming segment is not acceptable, an acknowledgment
        //# should be sent in reply (unless the RST bit is set, if so drop
        //# the segment and return):
        // Those without data at a limited rate, or two ends could answer each other for ever.
        if (empty || flags.syn()) && !is_answer_due(&mut entry.answered_ms, now) {
            return TimeWaitAction::Limited;
        }
        let reply = entry.acknowledgement(now);
        TimeWaitAction::Acknowledge(reply)
    }

    /// The initial sequence number with which we may open the same connection again: when the
    /// peer tells new segments from old by timestamps, a second after the last (RFC 6191).
    pub fn reusable(&self, now: Instant, slot: u32) -> Option<SeqNumber> {
        let entry = self.entry(slot).filter(|e| e.timestamps)?;
        let began = entry.expires.saturating_sub(TIME_WAIT_NS);
        (now.0.saturating_sub(began) > SECOND).then(|| entry.snd_nxt + 65537)
    }

    /// The acknowledgement of the peer's FIN.
    pub fn acknowledgement(&self, now: Instant, slot: u32) -> Option<Reply> {
        Some(self.entry(slot)?.acknowledgement(now))
    }
}

impl TimeWait {
    /// Its addresses and ports.
    pub fn flow(&self) -> Flow {
        Flow::new(self.local, self.remote)
    }

    fn acknowledgement(&self, now: Instant) -> Reply {
        Reply {
            interface: self.interface,
            local: self.local,
            remote: self.remote,
            seq: self.snd_nxt,
            ack: self.rcv_nxt,
            flags: TcpFlags::ACK,
            window: self.window,
            timestamps: self.timestamps.then(|| Timestamps {
                value: self.ts_offset.wrapping_add((now.0 / 1_000_000) as u32),
                echo: self.ts_recent,
            }),
            syn: None,
            tos: self.tos,
            key: self.key.clone(),
        }
    }
}
