//! The sending half of a flow: records of the frames under way.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

use super::api::SendId;

/// Data frames that may be under way.
pub(super) const DATA_RECORDS: usize = 4096;
/// Frames in all: control frames have 64 records of their own.
pub(super) const RECORDS: usize = DATA_RECORDS + 64;

/// What a frame was made of, to make it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Content {
    Start { send: SendId, port: u16, len: u16, resume: bool },
    More { send: SendId, number: u32, attempt: u16, offset: u32, len: u16 },
    Control(Control),
}

/// Frames without payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Control {
    Done { message: u32, status: u32, whole: bool },
    Grant { number: u32, offset: u32, attempt: u16 },
    Hold { message: u32, offset: u32, attempt: u16, refused: bool, whole: bool },
    Go { port: u16 },
    Abort { number: u32 },
    Probe,
}

/// Where a START stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Decision {
    /// Not acknowledged, or no START.
    Open,
    /// Acknowledged; decided when all frames before this one have arrived.
    Waiting(u64),
    /// Nothing can come back for it any more.
    Made,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    pub content: Content,
    pub order: u16,
    pub sent_at: u64,
    pub authenticator: u64,
    pub decision: Decision,
    /// Waits in a queue to be sent (again).
    pub queued: bool,
    pub acknowledged: bool,
    pub resent: bool,
    /// Sent at least once.
    pub sent: bool,
    /// Sent with epochs the last time.
    pub first: bool,
}

/// Frames under way in order of their sequences, and which of them wait to be sent.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ring {
    records: VecDeque<Record>,
    pub base: u64,
    /// Control frames that have never been sent.
    pub control: VecDeque<u64>,
    /// Frames taken for lost.
    pub lost: VecDeque<u64>,
    /// Data frames sent, neither acknowledged nor taken for lost.
    pub in_flight: usize,
    /// Frames not acknowledged.
    pub unacknowledged: usize,
    /// Those of them that were sent again.
    pub resent: usize,
    /// STARTs that are acknowledged and not decided.
    pub undecided: usize,
}

impl Ring {
    pub fn new() -> Self {
        Self {
            records: VecDeque::new(),
            base: 0,
            control: VecDeque::new(),
            lost: VecDeque::new(),
            in_flight: 0,
            unacknowledged: 0,
            resent: 0,
            undecided: 0,
        }
    }

    /// The sequence of the next new frame.
    pub fn next(&self) -> u64 {
        self.base + self.records.len() as u64
    }

    pub fn has_room_for_data(&self) -> bool {
        self.records.len() < DATA_RECORDS
    }

    pub fn has_room_for_control(&self) -> bool {
        self.records.len() < RECORDS
    }

    pub fn get(&self, sequence: u64) -> Option<&Record> {
        self.records.get(usize::try_from(sequence.checked_sub(self.base)?).ok()?)
    }

    pub fn get_mut(&mut self, sequence: u64) -> Option<&mut Record> {
        self.records.get_mut(usize::try_from(sequence.checked_sub(self.base)?).ok()?)
    }

    /// The sequence whose lower half this is, if it is in the ring.
    pub fn extend(&self, lower: u32) -> Option<u64> {
        let sequence = extend(lower, self.base);
        self.get(sequence).map(|_| sequence)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, &Record)> {
        let base = self.base;
        self.records.iter().enumerate().map(move |(at, record)| (base + at as u64, record))
    }

    /// Adds a record, and gives its sequence.
    pub fn push(&mut self, content: Content, order: u16) -> u64 {
        let sequence = self.next();
        let queued = matches!(content, Content::Control(_));
        self.records.push_back(Record {
            content,
            order,
            sent_at: 0,
            authenticator: 0,
            decision: Decision::Open,
            queued,
            acknowledged: false,
            resent: false,
            sent: false,
            first: false,
        });
        self.unacknowledged += 1;
        if queued {
            self.control.push_back(sequence);
        }
        sequence
    }

    /// Notes that the frame leaves now.
    pub fn on_sent(&mut self, sequence: u64, now: u64, authenticator: u64, first: bool) {
        let Some(record) = self.get_mut(sequence) else { return };
        let again = record.sent;
        let first_resend = again && !record.resent;
        record.sent_at = now;
        record.authenticator = authenticator;
        record.queued = false;
        record.sent = true;
        record.first = first;
        record.resent |= again;
        let data = !matches!(record.content, Content::Control(_));
        self.resent += usize::from(first_resend);
        self.in_flight += usize::from(data);
    }

    /// Takes a frame for lost: it is sent again.
    pub fn on_lost(&mut self, sequence: u64) {
        let Some(record) = self.get_mut(sequence) else { return };
        if record.queued || record.acknowledged || !record.sent {
            return;
        }
        record.queued = true;
        let data = !matches!(record.content, Content::Control(_));
        self.in_flight -= usize::from(data);
        self.lost.push_back(sequence);
    }

    /// Notes an acknowledgement; gives the record if it is the frame's first one.
    pub fn on_acknowledged(&mut self, sequence: u64) -> Option<Record> {
        let record = self.get_mut(sequence)?;
        if record.acknowledged {
            return None;
        }
        record.acknowledged = true;
        let copy = *record;
        let data = !matches!(copy.content, Content::Control(_));
        self.unacknowledged -= 1;
        self.resent -= usize::from(copy.resent);
        self.in_flight -= usize::from(data && !copy.queued && copy.sent);
        Some(copy)
    }

    /// Drops the records at the front that nothing can come back for.
    pub fn release(&mut self) {
        while let Some(record) = self.records.front() {
            let start = matches!(record.content, Content::Start { .. });
            if !record.acknowledged || (start && record.decision != Decision::Made) {
                break;
            }
            self.records.pop_front();
            self.base += 1;
        }
    }

    /// The first frame that is not acknowledged.
    pub fn first_unacknowledged(&self) -> Option<(u64, &Record)> {
        self.iter().find(|(_, record)| !record.acknowledged)
    }

    /// The last frame that was sent and is not acknowledged.
    pub fn last_unacknowledged(&self) -> Option<u64> {
        let last = self.records.iter().rposition(|record| !record.acknowledged && record.sent)?;
        Some(self.base + last as u64)
    }
}

/// The number nearest to `near` whose lower half this is.
pub(super) fn extend(lower: u32, near: u64) -> u64 {
    let distance = lower.wrapping_sub(near as u32) as i32;
    near.checked_add_signed(i64::from(distance)).unwrap_or(u64::from(lower))
}
