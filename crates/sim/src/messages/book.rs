//! What programs did and heard, and the rules that it must keep:
//! - every operation ends once, and without a reason to fail it does not;
//! - a message arrives at most once at an endpoint, with its bytes, and nothing is written beside it;
//! - of two messages from one endpoint to another, and two receives of which the earlier one takes both,
//!   the earlier message does not go to the later receive;
//! - messages do not leave their job;
//! - a message whose send ended well is received, unless one of its ends restarted or closed meanwhile;
//! - where nobody restarts or closes, every message that was sent is received.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use stack::message::{Envelope, Selector, Status};

use super::Violation;
use super::heap::GUARD;

/// What a program sends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outgoing {
    /// Host and life of the endpoint that sends it.
    pub from: (usize, u64),
    /// The same of the one that it is for.
    pub to: (usize, u64),
    pub length: u32,
    /// Both are of one job.
    pub meets: bool,
}

struct Sent {
    what: Outgoing,
    status: Option<Status>,
    received: bool,
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

/// A message and the receive that took it.
struct Pair {
    receive: u64,
    selector: Selector,
    message: u64,
    envelope: Envelope,
}

impl Pair {
    /// Whether this receive, posted before the other one, should have taken the other's message, which
    /// was sent before its own by the same endpoint: whichever came first, the earlier receive was free
    /// when the earlier message was matched.
    fn overtakes(&self, other: &Self) -> bool {
        let Selector { source, tag, ignore } = self.selector;
        let fits = match (tag, other.envelope.tag) {
            (Some(wanted), Some(tag)) => (wanted ^ tag) & !ignore == 0,
            (wanted, tag) => wanted == tag,
        };
        let fits = fits && source.is_none_or(|source| source == other.envelope.source);
        self.receive < other.receive && self.message > other.message && fits
    }
}

#[derive(Default)]
pub(super) struct Book {
    sends: BTreeMap<u64, Sent>,
    receives: BTreeMap<u64, Posted>,
    open_sends: u64,
    /// Which message came to which endpoint.
    seen: BTreeSet<(u64, u64)>,
    /// What was received, by the lives of sender and receiver.
    lines: HashMap<(u64, u64), Vec<Pair>>,
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
    /// A message leaves an endpoint for another one.
    pub fn send(&mut self, cookie: u64, what: Outgoing) {
        self.open_sends += 1;
        self.sends.insert(cookie, Sent { what, status: None, received: false, excused: false });
    }

    /// An endpoint closes.
    pub fn close(&mut self, life: u64) {
        let to_it = self.sends.values_mut().filter(|it| it.what.to.1 == life);
        to_it.for_each(|it| it.excused = true);
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
        let fine = match it.what.meets {
            true => matches!(status, Status::Ok | Status::Cancelled),
            false if status == Status::Ok => return wrong("reached another job"),
            false => matches!(status, Status::Gone | Status::Cancelled),
        };
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
        let Outgoing { from, length, meets, .. } = sent.what;
        if !meets {
            return wrong("is a message of another job");
        }
        if !self.seen.insert((message, posted.life)) {
            return wrong("is the message's second one");
        }
        let bytes = length.min(posted.wanted.capacity) as usize;
        let truncated = length > posted.wanted.capacity;
        if envelope.length != length || truncated != (status == Status::Truncated) {
            return wrong("has another length");
        }
        if memory[..bytes] != pattern(message, length)[..bytes] {
            return wrong("has other bytes");
        }
        if memory[bytes..].iter().any(|byte| *byte != GUARD) {
            return wrong("has bytes behind the message");
        }
        let pair = Pair { receive: cookie, selector: posted.wanted.selector, message, envelope };
        let line = self.lines.entry((from.1, posted.life)).or_default();
        if let Some(other) =
            line.iter().find(|other| pair.overtakes(other) || other.overtakes(&pair))
        {
            let (receive, message) = (other.receive, other.message);
            return wrong(&format!("is out of order with message {message} in receive {receive}"));
        }
        line.push(pair);
        Ok(())
    }

    /// A host restarts: what it had under way never ends.
    pub fn forget(&mut self, node: usize) {
        let about = |it: &&mut Sent| it.what.from.0 == node || it.what.to.0 == node;
        let about = self.sends.values_mut().filter(about);
        about.for_each(|it| it.excused = true);
        let own = |it: &&mut Sent| it.what.from.0 == node && it.status.is_none();
        let sends = self.sends.values_mut().filter(own);
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
                it.what.from.0, it.what.length, self.open_sends
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
