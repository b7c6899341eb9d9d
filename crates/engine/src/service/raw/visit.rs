//! Visits to the rings of programs: what they have pushed goes to the ports.

use arch::SharedBytes;
use port::{TxError, TxFrame};
use shm::raw::{DownFrame, EngineDown, MESSAGES_PER_VISIT, Meta, RingBreach, Taken};
use stack::Stack;

use super::order::{Order, WaitingFrame};
use super::{RawEndpoint, RawSeed, RawTable, Sending, checks};
use crate::sessions::Sessions;
use crate::stats::Counters;
use crate::transmit::Attached;

/// Bytes of a frame from a ring that are copied before they are looked at.
const LOOKED_AT_BYTES: usize = 192;

/// Where frames go.
pub struct Outward<'a> {
    /// The ports.
    pub attached: &'a mut [Attached],
    /// Whose addresses they have.
    pub stack: &'a Stack,
    /// The engine's counters.
    pub counters: &'a Counters,
    /// The time, in engine nanoseconds.
    pub now_ns: u64,
    /// In this turn ports are left to the stack where frames of its own wait.
    pub gives_way: bool,
}

/// How a visit to a DOWN ring ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visit {
    /// Nothing is left.
    Empty,
    /// More is left than a visit takes.
    More,
    /// A port is full, and frames wait for it.
    Full,
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Sent,
    Dropped,
    Full,
}

/// Whose frames they are.
#[derive(Clone, Copy)]
struct Sender<'a> {
    slot: u32,
    seed: &'a RawSeed,
}

/// A frame to be sent, whose beginning is a private copy.
struct PushedFrame<'a> {
    header: &'a [u8],
    rest: SharedBytes<'a>,
    meta: Option<&'a Meta>,
}

impl RawTable {
    /// Sends what a program has pushed, as far as its ports take it: one visit.
    pub fn serve(&mut self, slot: u32, to: &mut Outward<'_>, sessions: &mut Sessions) -> Visit {
        let Some(mut endpoint) = self.slots.get_mut(slot as usize).and_then(Option::take) else {
            return Visit::Empty;
        };
        // It rings, too, when it has made room to be told what it has lost.
        let told = endpoint.up.tell_lost();
        if told == Ok(true) && !std::mem::replace(&mut endpoint.has_news, true) {
            self.pushed.news.push(slot);
        }
        let visited = told.and_then(|_| self.visit(&mut endpoint, slot, to));
        let visited = visited.unwrap_or_else(|breach| {
            self.pushed.breached.push((endpoint.place, breach));
            Visit::Empty
        });
        let waits = visited != Visit::Empty;
        if waits && !std::mem::replace(&mut endpoint.waits, true) {
            self.waiting.push_back(slot);
        } else if !waits && std::mem::take(&mut endpoint.waits) {
            self.waiting.retain(|one| *one != slot);
        }
        if endpoint.down.as_mut().is_some_and(EngineDown::publish) {
            sessions.note_news(endpoint.place, endpoint.index);
        }
        if let Some(room) = self.slots.get_mut(slot as usize) {
            *room = Some(endpoint);
        }
        self.publish(sessions);
        visited
    }

    fn visit(
        &mut self,
        endpoint: &mut RawEndpoint,
        slot: u32,
        to: &mut Outward<'_>,
    ) -> Result<Visit, RingBreach> {
        let RawEndpoint { down, order, seed, .. } = endpoint;
        let Some(down) = down else { return Ok(Visit::Empty) };
        let sender = Sender { slot, seed };
        match order {
            None => self.visit_one(sender, down, to),
            Some(order) => self.visit_several(sender, (down, &mut **order), to),
        }
    }

    /// A visit to the ring of an endpoint with one port: a full port stops it.
    fn visit_one(
        &mut self,
        sender: Sender<'_>,
        down: &mut EngineDown,
        to: &mut Outward<'_>,
    ) -> Result<Visit, RingBreach> {
        for _ in 0..MESSAGES_PER_VISIT {
            let frame = match down.peek()? {
                Taken::Nothing => return Ok(Visit::Empty),
                Taken::Wrap | Taken::Bad => {
                    down.finish(down.taken());
                    continue;
                }
                Taken::Frame(frame) => frame,
            };
            let outcome = with_frame(down, &frame, |pushed| {
                let number = port_of(sender.seed, frame.port, pushed.header, to);
                self.try_send(sender, number, pushed, to)
            });
            if outcome == Outcome::Full {
                return Ok(Visit::Full);
            }
            count(down, to.counters, outcome);
            down.take(&frame);
            down.finish(frame.end);
        }
        Ok(Visit::More)
    }

    /// A visit to the ring of an endpoint with several ports: what finds its port full waits, and the
    /// others go on.
    fn visit_several(
        &mut self,
        sender: Sender<'_>,
        (down, order): (&mut EngineDown, &mut Order),
        to: &mut Outward<'_>,
    ) -> Result<Visit, RingBreach> {
        for (queue, number) in sender.seed.ports.iter().enumerate() {
            self.send_waiting(sender, (queue, *number), (&mut *down, &mut *order), to);
        }
        let mut visited = Visit::More;
        for _ in 0..MESSAGES_PER_VISIT {
            relieve(down, order, to.counters);
            let frame = match down.peek()? {
                Taken::Nothing => {
                    visited = if order.has_waiting() { Visit::Full } else { Visit::Empty };
                    break;
                }
                Taken::Wrap | Taken::Bad => {
                    order.pass(down.taken());
                    continue;
                }
                Taken::Frame(frame) => frame,
            };
            let mut queue = None;
            let outcome = with_frame(down, &frame, |pushed| {
                let number = port_of(sender.seed, frame.port, pushed.header, to);
                queue = sender.seed.ports.iter().position(|port| Some(*port) == number);
                match queue.is_some_and(|queue| order.waits(queue)) {
                    true => Outcome::Full,
                    false => self.try_send(sender, number, pushed, to),
                }
            });
            match (outcome, queue) {
                (Outcome::Full, Some(queue)) => {
                    if !order.push(queue, &frame) {
                        to.counters.raw_tx_overrun.increment();
                        count(down, to.counters, Outcome::Dropped);
                    }
                }
                _ => {
                    count(down, to.counters, outcome);
                    order.pass(frame.end);
                }
            }
            down.take(&frame);
        }
        relieve(down, order, to.counters);
        Ok(visited)
    }

    /// Sends what waits for a port, until it is full again.
    fn send_waiting(
        &mut self,
        sender: Sender<'_>,
        (queue, number): (usize, usize),
        (down, order): (&mut EngineDown, &mut Order),
        to: &mut Outward<'_>,
    ) {
        while let Some(WaitingFrame { frame, copy, .. }) = order.front(queue) {
            // What the program may have changed meanwhile is looked at anew.
            let outcome = match copy {
                None => with_frame(down, &frame, |pushed| {
                    self.try_send(sender, Some(number), pushed, to)
                }),
                Some(at) => {
                    let bytes = order.copy(queue, at, frame.len);
                    let (header, rest) = bytes.split_at(bytes.len().min(LOOKED_AT_BYTES));
                    let rest = SharedBytes::from_slice(rest);
                    let pushed = PushedFrame { header, rest, meta: frame.meta.as_ref() };
                    self.try_send(sender, Some(number), &pushed, to)
                }
            };
            if outcome == Outcome::Full {
                return;
            }
            count(down, to.counters, outcome);
            order.pop(queue);
        }
    }

    /// Gives a frame to a port, if it may go there as it is.
    fn try_send(
        &mut self,
        sender: Sender<'_>,
        number: Option<usize>,
        pushed: &PushedFrame<'_>,
        to: &mut Outward<'_>,
    ) -> Outcome {
        let PushedFrame { header, rest, meta } = *pushed;
        let found = number.and_then(|number| Some((number, to.attached.get_mut(number)?)));
        let Some((number, of)) = found else { return Outcome::Dropped };
        if to.gives_way && of.held.is_some() {
            return Outcome::Full;
        }
        let Some(meta) = checks::tx_meta(meta, header, header.len() + rest.len()) else {
            return Outcome::Dropped;
        };
        if !sender.seed.spoofs && !checks::is_own(header, of, to.stack) {
            to.counters.raw_spoofed.increment();
            return Outcome::Dropped;
        }
        let pieces = [rest];
        let payload = pieces.get(..usize::from(!rest.is_empty())).unwrap_or_default();
        let sending = Sending { number, except: Some(sender.slot), now_ns: to.now_ns };
        match self.send(&mut *of.port, sending, &TxFrame { meta: &meta, header, payload }) {
            Ok(()) => Outcome::Sent,
            Err(TxError::Full) => {
                to.counters.raw_tx_full.increment();
                Outcome::Full
            }
            Err(_) => Outcome::Dropped,
        }
    }
}

/// Copies the beginning of a frame in the ring, and passes it on.
fn with_frame(
    down: &EngineDown,
    frame: &DownFrame,
    work: impl FnOnce(&PushedFrame<'_>) -> Outcome,
) -> Outcome {
    let mut header = [0u8; LOOKED_AT_BYTES];
    let copied = down.read(frame, &mut header);
    let header = header.get(..copied).unwrap_or_default();
    work(&PushedFrame { header, rest: down.rest(frame, copied), meta: frame.meta.as_ref() })
}

/// The engine's port that a frame of an endpoint goes to.
fn port_of(seed: &RawSeed, number: u8, header: &[u8], to: &Outward<'_>) -> Option<usize> {
    checks::port_of(&seed.ports, number, header, to.attached)
}

/// Counts a frame that is done with.
fn count(down: &mut EngineDown, counters: &Counters, outcome: Outcome) {
    let is_sent = outcome == Outcome::Sent;
    match is_sent {
        true => counters.raw_tx.increment(),
        false => counters.raw_tx_dropped.increment(),
    }
    down.count(is_sent);
}

/// Gives back the room of what is done with. Frames that hold too much of the ring are copied.
fn relieve(down: &mut EngineDown, order: &mut Order, counters: &Counters) {
    loop {
        if let Some(end) = order.advance() {
            down.finish(end);
        }
        if !order.is_pressed(down.held_bytes(), down.ring_bytes()) {
            return;
        }
        if !order.copy_oldest(|frame, room| down.read(frame, room)) {
            counters.raw_tx_overrun.increment();
            count(down, counters, Outcome::Dropped);
        }
    }
}
