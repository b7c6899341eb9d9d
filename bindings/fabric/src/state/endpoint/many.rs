//! Multi-receive buffers (FI_MULTI_RECV).
//!
//! Only the first buffer has a posted receive, for all of its remaining room, so messages fill one
//! buffer after the other, in order. Messages that arrive between two receives wait in the engine.

use std::collections::VecDeque;

use client::message::Peer;

use super::{EndpointState, Entry, Kind, Operation, Report, Side, pattern};
use crate::abi::constants::*;
use crate::pieces::Pieces;

/// Buffers in the order of posting.
#[derive(Debug, Default)]
pub struct Buffers {
    waiting: VecDeque<Buffer>,
    /// Whether the first one's receive is posted.
    is_posted: bool,
    /// A buffer with less room than this is released (FI_OPT_MIN_MULTI_RECV), in bytes.
    pub room_min: usize,
}

/// One buffer of the program's.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    pub context: usize,
    pub base: usize,
    pub len: usize,
    pub used: usize,
    pub source: Option<Peer>,
    pub reports: bool,
}

impl Buffers {
    /// Appends a buffer.
    pub fn push(&mut self, buffer: Buffer) {
        self.waiting.push_back(buffer);
    }

    /// Releases the first buffer to the program.
    pub fn release(&mut self) {
        self.waiting.pop_front();
        self.is_posted = false;
    }
}

impl EndpointState {
    /// Posts a receive for the first buffer unless it has one. If the engine has no room, the next
    /// poll retries.
    pub fn post_next_buffer(&mut self) {
        if self.buffers.is_posted {
            return;
        }
        let Some(buffer) = self.buffers.waiting.front().copied() else { return };
        let pieces = Pieces::one(buffer.base + buffer.used, buffer.len - buffer.used);
        let key = self.operations.insert(Operation {
            kind: Kind::ReceiveMany,
            context: buffer.context,
            pieces,
            is_tagged: false,
            reports: buffer.reports,
            ticket: None,
        });
        let wanted = pattern(buffer.source, None);
        match self.transport.post_recv(&wanted, pieces.len() as u64, key as u64) {
            Ok(ticket) => {
                self.operations[key].ticket = Some(ticket);
                self.buffers.is_posted = true;
            }
            Err(_) => {
                self.operations.remove(key);
            }
        }
    }

    /// Records a message in the first buffer and reports it, with FI_MULTI_RECV if it was the last.
    pub fn filled(&mut self, mut entry: Entry, operation: &Operation, copied: usize) -> Report {
        self.buffers.is_posted = false;
        let room_min = self.buffers.room_min.max(1);
        let mut reports = operation.reports;
        if let Some(buffer) = self.buffers.waiting.front_mut() {
            buffer.used += copied;
            if buffer.len - buffer.used < room_min {
                entry.flags |= FI_MULTI_RECV;
                // The program must learn that the buffer is released.
                reports = true;
                self.buffers.release();
            }
        }
        self.post_next_buffer();
        Report {
            side: Side::Receive,
            entry: reports.then_some(entry),
            is_counted: true,
            has_failed: false,
        }
    }

    /// Cancels a buffer without a posted receive, by its context or any, and reports it.
    pub fn cancel_buffer(&mut self, context: Option<usize>) -> Option<Report> {
        let first = usize::from(self.buffers.is_posted);
        let place = (first..self.buffers.waiting.len()).find(|&place| {
            context.is_none_or(|context| self.buffers.waiting[place].context == context)
        })?;
        let buffer = self.buffers.waiting.remove(place)?;
        let entry = Entry {
            context: buffer.context,
            flags: FI_RECV | FI_MSG | FI_MULTI_RECV,
            buffer: buffer.base,
            source: FI_ADDR_NOTAVAIL,
            error: Some(super::Error { number: FI_ECANCELED, errno: FI_ECANCELED, overflow: 0 }),
            ..Entry::default()
        };
        Some(Report { side: Side::Receive, entry: Some(entry), is_counted: true, has_failed: true })
    }
}
