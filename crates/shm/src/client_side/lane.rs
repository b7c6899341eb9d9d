//! A lane as the client sees it.

use std::sync::Arc;

use crate::descriptor::Span;
use crate::layout::{DOORBELL_REQUESTS, SPAN_ALIGN_BYTES, endpoint, lane};
use crate::lock::{Held, Reentered, Tag, acquire};
use crate::region::Region;
use crate::request::{Reply, Request};
use crate::ring::{LaneRings, Words};
use crate::sync::{Ordering, fence};

/// What remains to be done after ringing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Rung {
    /// Nothing.
    Enough,
    /// The worker sleeps: write a byte to the lane's pipe.
    WritePipe,
    /// The worker has given way to whoever runs on its CPU. Whoever does will
    /// [resume it](ClientLane::resume_worker) when it stops; another does so at once.
    GivesWay,
    /// The ring is full, and nothing was rung: try again while the engine lives. There is room for two
    /// doorbells of every endpoint; it can be short for a moment where endpoints are closed and granted
    /// anew faster than the worker looks, and for ever where the worker is gone.
    Full,
}

/// Which of an endpoint's two doorbells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Something was pushed to send. Under the send lock.
    Send,
    /// `consumed` has advanced. Under the receive lock.
    Receive,
}

/// A piece of a buffer, for the caller to fill and push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carved {
    /// The piece.
    pub span: Span,
    /// It must be pushed with `LAST`.
    pub last: bool,
}

/// The client's side of a lane.
#[derive(Clone, Debug)]
pub struct ClientLane {
    region: Arc<Region>,
    base: usize,
    rings: LaneRings,
}

impl ClientLane {
    /// The lane of `context` at `worker`.
    pub fn new(region: Arc<Region>, context: u16, worker: u16) -> Self {
        let base = region.layout().lane(context, worker);
        Self { base, rings: LaneRings::at(region.layout(), base), region }
    }

    /// The region this lane lies in.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// The CPU that the worker runs on, if it says.
    pub fn worker_cpu(&self) -> Option<u32> {
        u32::try_from(self.look(lane::WORKER_CPU, Ordering::Relaxed).checked_sub(1)?).ok()
    }

    /// How often the engine's interfaces, or what it takes through them, have changed since the
    /// session began: with another number than before, ask for them anew.
    pub fn reach(&self) -> u64 {
        self.look(lane::REACH, Ordering::Relaxed)
    }

    /// Buffers that the pool could still give for sending when the worker last looked; a hint.
    pub fn sendable(&self) -> u32 {
        u32::try_from(self.look(lane::SENDABLE, Ordering::Relaxed)).unwrap_or(u32::MAX)
    }

    /// Tells the worker that an endpoint has work, unless it has been told and has not looked
    /// yet. The caller holds the lock of that direction, and has written what the worker is to
    /// see.
    pub fn ring(&self, endpoint: u32, direction: Direction) -> Rung {
        let doorbell = match direction {
            Direction::Send => endpoint::SEND_DOORBELL,
            Direction::Receive => endpoint::RECEIVE_DOORBELL,
        };
        self.ring_at(self.region.layout().endpoint(endpoint) + doorbell, endpoint)
    }

    fn ring_at(&self, mark: usize, number: u32) -> Rung {
        // Pairs with the fence in `EngineLane::take_doorbells`: either we see our last doorbell
        // taken and ring again, or the engine sees what was written before this.
        fence(Ordering::SeqCst);
        let last = self.region.load(mark, Ordering::Relaxed);
        if last > self.look(lane::DOORBELLS_TAKEN, Ordering::Relaxed) {
            return Rung::Enough;
        }
        let Some(position) = self.claim_doorbell() else { return Rung::Full };
        self.rings.doorbells.push(&self.region, position, number);
        self.region.store(mark, position.wrapping_add(1), Ordering::Relaxed);
        // Pairs with the fence in `EngineLane::prepare_sleep`: either we see it asleep, or it
        // sees the doorbell.
        fence(Ordering::SeqCst);
        match self.look(lane::ASLEEP, Ordering::Relaxed) {
            0 => Rung::Enough,
            sleep if sleep & lane::GIVES_WAY != 0 => Rung::GivesWay,
            sleep => self.ring_sleeper(sleep),
        }
    }

    /// A free place in the doorbell ring. Others claim places at the same time.
    fn claim_doorbell(&self) -> Option<u64> {
        let pushed = self.region.word(self.base + lane::DOORBELLS_PUSHED);
        let mut position = pushed.load(Ordering::Relaxed);
        loop {
            let waiting =
                position.wrapping_sub(self.look(lane::DOORBELLS_TAKEN, Ordering::Acquire));
            if waiting.cast_signed() >= self.rings.doorbells.slots.cast_signed() {
                return None;
            }
            let next = position.wrapping_add(1);
            match pushed.compare_exchange(position, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(position),
                Err(now) => position = now,
            }
        }
    }

    /// One byte for each sleep is enough, whoever writes it.
    fn ring_sleeper(&self, sleep: u64) -> Rung {
        let rung = self.region.word(self.base + lane::SLEEP_RUNG);
        if rung.swap(sleep, Ordering::Relaxed) == sleep { Rung::Enough } else { Rung::WritePipe }
    }

    /// Ends the worker's giving way, for one who stops running now or runs elsewhere.
    pub fn resume_worker(&self) -> Rung {
        match self.look(lane::ASLEEP, Ordering::Relaxed) {
            sleep if sleep & lane::GIVES_WAY != 0 => self.ring_sleeper(sleep),
            _ => Rung::Enough,
        }
    }

    /// Takes the lane's lock.
    ///
    /// # Errors
    /// If this thread holds the lock already.
    pub fn lock(&self, tag: Tag) -> Result<LaneGuard<'_>, Reentered> {
        Ok(LaneGuard { _held: acquire(&self.region, self.base + lane::LOCK, tag)?, lane: self })
    }

    /// Whether events wait.
    pub fn has_events(&self) -> bool {
        let taken = self.look(lane::EVENTS_TAKEN, Ordering::Relaxed);
        self.rings.events.take(&self.region, taken).is_some()
    }

    /// Whether there is anything to carve from; a hint, without the lock. Where it says no to one
    /// who has announced that he waits, an event follows.
    pub fn has_stock(&self) -> bool {
        let look = || {
            self.look(lane::OPEN_BUFFER, Ordering::Relaxed) != 0
                || self
                    .rings
                    .stock
                    .take(&self.region, self.look(lane::STOCK_TAKEN, Ordering::Acquire))
                    .is_some()
        };
        look() || {
            // Pairs with the fence in `EngineLane::announce_stock`.
            fence(Ordering::SeqCst);
            look()
        }
    }

    /// Asks to be woken by the pipe. `sleep` is the number of this sleep: not nought, and another
    /// one each time. `false`: events wait already, do not sleep.
    #[must_use]
    pub fn arm(&self, sleep: u64) -> bool {
        self.region.store(self.base + lane::ARMED, sleep, Ordering::Relaxed);
        // Pairs with the fence in `EngineLane::finish_events`: either the engine sees us armed,
        // or we see what it pushed.
        fence(Ordering::SeqCst);
        !self.has_events()
    }

    /// Takes back [`Self::arm`].
    pub fn disarm(&self) {
        self.region.store(self.base + lane::ARMED, 0, Ordering::Relaxed);
    }

    fn look(&self, offset: usize, order: Ordering) -> u64 {
        self.region.load(self.base + offset, order)
    }
}

/// A lane, locked.
#[derive(Debug)]
pub struct LaneGuard<'a> {
    _held: Held<'a>,
    lane: &'a ClientLane,
}

impl LaneGuard<'_> {
    /// Takes up to `limit` events and calls `each` with their endpoints (or
    /// [`EVENT_STOCK`](crate::layout::EVENT_STOCK)). What the engine wrote before them is visible
    /// once this returns.
    pub fn take_events(&mut self, limit: usize, mut each: impl FnMut(u32)) -> usize {
        let before = self.look(lane::EVENTS_TAKEN);
        let mut taken = before;
        while taken.wrapping_sub(before) < limit as u64 {
            let Some(endpoint) = self.lane.rings.events.take(&self.lane.region, taken) else {
                break;
            };
            each(endpoint);
            taken = taken.wrapping_add(1);
        }
        if taken != before {
            self.put(lane::EVENTS_TAKEN, taken, Ordering::Release);
            // Pairs with the fence in `EngineLane::begin_events`.
            fence(Ordering::SeqCst);
        }
        taken.wrapping_sub(before) as usize
    }

    /// Makes a request and returns its serial; `None` while as many as the ring holds are without
    /// their replies taken. [`Self::ring_requests`] announces it.
    pub fn push_request(&mut self, request: &Request) -> Option<u32> {
        let position = self.look(lane::REQUESTS_PUSHED);
        let taken = self.look(lane::REPLIES_TAKEN);
        if position.wrapping_sub(taken) >= self.lane.rings.requests.slots {
            return None;
        }
        let serial = position as u32 & 0xff_ffff;
        let words = Words { serial, ..request.encode() };
        self.lane.rings.requests.push(&self.lane.region, position, &words);
        self.put(lane::REQUESTS_PUSHED, position.wrapping_add(1), Ordering::Relaxed);
        Some(serial)
    }

    /// Announces the requests pushed.
    pub fn ring_requests(&mut self) -> Rung {
        self.lane.ring_at(self.lane.base + lane::REQUEST_DOORBELL, DOORBELL_REQUESTS)
    }

    /// Takes the next reply: the serial of its request and what it says (`None` inside when it
    /// cannot be understood).
    pub fn take_reply(&mut self) -> Option<(u32, Option<Reply>)> {
        let position = self.look(lane::REPLIES_TAKEN);
        let words = self.lane.rings.replies.take(&self.lane.region, position)?;
        self.put(lane::REPLIES_TAKEN, position.wrapping_add(1), Ordering::Release);
        Some((words.serial, Reply::decode(&words)))
    }

    /// Carves up to `len` bytes, at least `least`, out of the lane's open buffer or the next of
    /// the stock. `None`: the stock is empty (an event tells when it is not). A buffer's remnant
    /// too small for `least` comes as a span of length 0 with `last`: push it, and ask again.
    pub fn carve(&mut self, len: u32, least: u32) -> Option<Carved> {
        let buffer_bytes = self.lane.region.geometry().buffer_bytes;
        let (buffer, fill) = match self.look(lane::OPEN_BUFFER).checked_sub(1) {
            Some(open) => (open as u32, self.look(lane::OPEN_FILL) as u32),
            None => {
                let taken = self.look(lane::STOCK_TAKEN);
                let buffer = self.lane.rings.stock.take(&self.lane.region, taken)?;
                self.put(lane::STOCK_TAKEN, taken.wrapping_add(1), Ordering::Release);
                self.put(lane::OPEN_BUFFER, u64::from(buffer) + 1, Ordering::Relaxed);
                self.put(lane::OPEN_FILL, 0, Ordering::Relaxed);
                (buffer, 0)
            }
        };
        let rest = self.lane.region.buffer(buffer)?.part(fill, u32::MAX);
        let len = if rest.len < least.min(buffer_bytes) { 0 } else { len.min(rest.len) };
        let extent = len.next_multiple_of(SPAN_ALIGN_BYTES).min(rest.len);
        // A remnant of less than this is not worth a descriptor of its own.
        let last = len == 0 || rest.len - extent < 4 * SPAN_ALIGN_BYTES;
        if last {
            self.put(lane::OPEN_BUFFER, 0, Ordering::Relaxed);
        } else {
            self.put(lane::OPEN_FILL, u64::from(fill + extent), Ordering::Relaxed);
        }
        Some(Carved { span: rest.part(0, len), last })
    }

    /// Whether `bytes` could be carved in pieces of at least `least`, the remnant of the open
    /// buffer included. Where it says no to one who has announced that he waits, an event follows.
    pub fn can_carve(&self, bytes: u32, least: u32) -> bool {
        // Pairs with the fence in `EngineLane::announce_stock`.
        fence(Ordering::SeqCst);
        let buffer_bytes = self.lane.region.geometry().buffer_bytes;
        let rest = match self.look(lane::OPEN_BUFFER) {
            0 => 0,
            _ => buffer_bytes.saturating_sub(self.look(lane::OPEN_FILL) as u32),
        };
        let rest = if rest < least { 0 } else { rest };
        let buffers = u64::from(bytes.saturating_sub(rest).div_ceil(buffer_bytes));
        let taken = self.look(lane::STOCK_TAKEN);
        // The stock is first in, first out: if the last of them is there, so are all before it.
        buffers == 0
            || buffers <= self.lane.rings.stock.slots
                && self
                    .lane
                    .rings
                    .stock
                    .take(&self.lane.region, taken.wrapping_add(buffers - 1))
                    .is_some()
    }

    fn look(&self, offset: usize) -> u64 {
        self.lane.look(offset, Ordering::Relaxed)
    }

    fn put(&self, offset: usize, value: u64, order: Ordering) {
        self.lane.region.store(self.lane.base + offset, value, order);
    }
}
