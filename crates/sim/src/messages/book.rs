//! What programs did and heard, and the rules that it must keep:
//! - every operation ends once, and without a reason to fail it does not;
//! - a message arrives at most once at an endpoint, with its bytes, and nothing is written beside it;
//! - of equal messages that equal receives take, none overtakes another;
//! - a message whose send ended well is received, unless one of its ends restarted or closed meanwhile;
//! - where nobody restarts or closes, every message that was sent is received.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use stack::message::{Envelope, Selector, Status};

use super::Violation;
use super::heap::GUARD;

struct Sent {
    life: u64,
    node: usize,
    length: u32,
    status: Option<Status>,
    received: bool,
    /// Host and life of the endpoint that it is for.
    to: (usize, u64),
    /// One of its ends restarted or closed.
    excused: bool,
}

/// What a program posts a receive for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub selector: Selector,
    pub capacity: u32,
    /// It takes everything, in the second phase.
    pub taker: bool,
}

struct Posted {
    life: u64,
    node: usize,
    wanted: Wanted,
    ended: bool,
}

/// Messages that must be taken in order: sender, receiver, tag, and the selector as text.
type Line = (u64, u64, Option<u64>, String);

#[derive(Default)]
pub(super) struct Book {
    sends: BTreeMap<u64, Sent>,
    receives: BTreeMap<u64, Posted>,
    open_sends: u64,
    /// Which message came to which endpoint.
    seen: BTreeSet<(u64, u64)>,
    /// Receive and message, by line.
    lines: HashMap<Line, BTreeMap<u64, u64>>,
}

/// Bytes that differ by message and offset.
pub(super) fn pattern(seed: u64, length: u32) -> Vec<u8> {
    let mut bytes = vec![0; length as usize];
    for (row, bytes) in bytes.chunks_mut(256).enumerate() {
        let base = (seed.wrapping_mul(31) as u8).wrapping_add(row as u8);
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = base.wrapping_add((at as u8).wrapping_mul(7));
        }
    }
    bytes
}

impl Book {
    /// A message of `length` bytes leaves an endpoint for another one, both by host and life.
    pub fn send(&mut self, cookie: u64, from: (usize, u64), to: (usize, u64), length: u32) {
        self.open_sends += 1;
        let (node, life) = from;
        let (status, received, excused) = (None, false, false);
        self.sends.insert(cookie, Sent { life, node, length, status, received, to, excused });
    }

    /// An endpoint closes.
    pub fn close(&mut self, life: u64) {
        self.sends.values_mut().filter(|it| it.to.1 == life).for_each(|it| it.excused = true);
    }

    /// An endpoint, by host and life, posts a receive.
    pub fn receive(&mut self, cookie: u64, (node, life): (usize, u64), wanted: Wanted) {
        self.receives.insert(cookie, Posted { life, node, wanted, ended: false });
    }

    pub fn is_taker(&self, cookie: u64) -> bool {
        self.receives.get(&cookie).is_some_and(|it| it.wanted.taker)
    }

    /// All sends have ended.
    pub fn is_done(&self) -> bool {
        self.open_sends == 0
    }

    pub fn sent(&mut self, cookie: u64, status: Status, unrest: bool) -> Result<(), Violation> {
        let wrong = |what: &str| Err(Violation(format!("send {cookie} {what}: {status:?}")));
        let Some(it) = self.sends.get_mut(&cookie) else { return wrong("is not known") };
        if it.status.replace(status).is_some() {
            return wrong("ended twice");
        }
        self.open_sends -= 1;
        let fine = matches!(status, Status::Ok | Status::Cancelled);
        if fine || unrest { Ok(()) } else { wrong("failed without a reason") }
    }

    pub fn received(
        &mut self,
        cookie: u64,
        envelope: Option<Envelope>,
        status: Status,
        memory: &[u8],
    ) -> Result<(), Violation> {
        let wrong = |what: &str| {
            Err(Violation(format!("receive {cookie} {what}: {envelope:?} {status:?}")))
        };
        let Some(posted) = self.receives.get_mut(&cookie) else { return wrong("is not known") };
        if std::mem::replace(&mut posted.ended, true) {
            return wrong("ended twice");
        }
        if !matches!(status, Status::Ok | Status::Truncated) {
            return Ok(());
        }
        let Some(envelope) = envelope else { return wrong("has no message") };
        let message = u64::from(envelope.immediate.unwrap_or(0));
        let Some(sent) = self.sends.get_mut(&message) else { return wrong("was not sent") };
        sent.received = true;
        if !self.seen.insert((message, posted.life)) {
            return wrong("is the message's second one");
        }
        let bytes = sent.length.min(posted.wanted.capacity) as usize;
        let truncated = sent.length > posted.wanted.capacity;
        if envelope.length != sent.length || truncated != (status == Status::Truncated) {
            return wrong("has another length");
        }
        if memory[..bytes] != pattern(message, sent.length)[..bytes] {
            return wrong("has other bytes");
        }
        if memory[bytes..].iter().any(|byte| *byte != GUARD) {
            return wrong("has bytes behind the message");
        }
        let selector = format!("{:?}", posted.wanted.selector);
        let line = self.lines.entry((sent.life, posted.life, envelope.tag, selector)).or_default();
        line.insert(cookie, message);
        let before = line.range(..cookie).next_back().is_none_or(|(_, other)| *other < message);
        let after = line.range(cookie + 1..).next().is_none_or(|(_, other)| *other > message);
        if before && after { Ok(()) } else { wrong("took a message out of order") }
    }

    /// A host restarts: what it had under way never ends.
    pub fn forget(&mut self, node: usize) {
        let about = self.sends.values_mut().filter(|it| it.node == node || it.to.0 == node);
        about.for_each(|it| it.excused = true);
        let sends = self.sends.values_mut().filter(|it| it.node == node && it.status.is_none());
        for it in sends {
            it.status = Some(Status::Reset);
            self.open_sends -= 1;
        }
        for it in self.receives.values_mut().filter(|it| it.node == node) {
            it.ended = true;
        }
    }

    pub fn assert_sends_ended(&self, picture: &str) -> Result<(), Violation> {
        match self.sends.iter().find(|(_, it)| it.status.is_none()) {
            None => Ok(()),
            Some((cookie, it)) => Err(Violation(format!(
                "send {cookie} of host {} with {} bytes has not ended; {} have not; {picture}",
                it.node, it.length, self.open_sends
            ))),
        }
    }

    pub fn assert_receives_ended(&self) -> Result<(), Violation> {
        match self.receives.iter().find(|(_, it)| !it.ended) {
            None => Ok(()),
            Some((cookie, _)) => Err(Violation(format!("receive {cookie} has not ended"))),
        }
    }

    pub fn assert_complete(&self, unrest: bool) -> Result<(), Violation> {
        let lost = self.sends.iter().find(|(_, it)| match it.status == Some(Status::Ok) {
            true => !it.received && !it.excused,
            false => it.received && !unrest,
        });
        match lost {
            None => Ok(()),
            Some((cookie, it)) => Err(Violation(format!(
                "send {cookie} ended with {:?}; received: {}",
                it.status, it.received
            ))),
        }
    }
}
