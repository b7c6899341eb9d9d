//! A lane as the engine's worker sees it.

use std::sync::Arc;

use super::Breach;
use crate::layout::{DOORBELL_REQUESTS, EVENT_STOCK, lane};
use crate::region::Region;
use crate::request::{Reply, Request};
use crate::ring::LaneRings;
use crate::sync::{Ordering, fence};

/// Echoes a request in its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Serial(u32);

/// With fewer buffers than this in its stock, a client may be waiting for more: the longest
/// datagram takes this many of 4 KiB.
const STOCK_LOW: u64 = if cfg!(loom) { 1 } else { 17 };

/// What became of an event.
enum Pushed {
    /// One about the same is outstanding.
    Outstanding,
    /// There is no room.
    Full,
    /// It lies before this position.
    At(u64),
}

/// The engine's side of a lane.
#[derive(Debug)]
pub struct EngineLane {
    region: Arc<Region>,
    base: usize,
    rings: LaneRings,
    doorbells_taken: u64,
    requests_taken: u64,
    events_pushed: u64,
    stock_pushed: u64,
    /// For each endpoint, one past the position of the last event about it, so that at most one is
    /// outstanding. It outlives the endpoint's users: their events may.
    marks: Vec<u64>,
    stock_mark: u64,
    granted_from: Option<u64>,
    requests_rung: bool,
    to_flush: bool,
    sleep: u64,
    woken: u64,
    reach: u64,
}

impl EngineLane {
    /// The lane of `context` at `worker`. Made once for each; a second view would start over.
    pub fn new(region: Arc<Region>, context: u16, worker: u16) -> Self {
        let base = region.layout().lane(context, worker);
        Self {
            base,
            rings: LaneRings::at(region.layout(), base),
            doorbells_taken: 0,
            requests_taken: 0,
            events_pushed: 0,
            stock_pushed: 0,
            marks: Vec::new(),
            stock_mark: 0,
            granted_from: None,
            requests_rung: false,
            to_flush: false,
            sleep: 0,
            woken: 0,
            reach: 0,
            region,
        }
    }

    /// The region this lane lies in.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Says which CPU the worker runs on, for the client's decision whether to spin.
    pub fn set_worker_cpu(&mut self, cpu: u32) {
        self.put(lane::WORKER_CPU, u64::from(cpu) + 1, Ordering::Relaxed);
    }

    /// Says that the engine's interfaces, or what it takes through them, have changed.
    pub fn bump_reach(&mut self) {
        self.reach = self.reach.wrapping_add(1);
        self.put(lane::REACH, self.reach, Ordering::Relaxed);
    }

    /// Says how many buffers the pool could still give for sending: a hint by which the client
    /// divides them among its connections.
    pub fn set_sendable(&mut self, buffers: u32) {
        self.put(lane::SENDABLE, u64::from(buffers), Ordering::Relaxed);
    }

    /// Whether a doorbell waits or requests are left to take. One load.
    pub fn has_work(&self) -> bool {
        self.requests_rung
            || self.rings.doorbells.take(&self.region, self.doorbells_taken).is_some()
    }

    /// Takes up to `endpoints.len()` doorbells and returns how many endpoints were written there.
    /// Doorbells for requests are not among them but show in [`Self::requests_rung`]. What the
    /// client wrote before it rang is visible afterwards.
    ///
    /// # Errors
    /// If a doorbell names no endpoint.
    pub fn take_doorbells(&mut self, endpoints: &mut [u32]) -> Result<usize, Breach> {
        let before = self.doorbells_taken;
        let capacity = self.region.geometry().endpoint_capacity;
        let mut count = 0;
        // Bounded also when every doorbell is for requests.
        for _ in 0..endpoints.len() {
            let Some(number) = self.rings.doorbells.take(&self.region, self.doorbells_taken) else {
                break;
            };
            self.doorbells_taken = self.doorbells_taken.wrapping_add(1);
            if number == DOORBELL_REQUESTS {
                self.requests_rung = true;
            } else if number < capacity {
                endpoints[count] = number;
                count += 1;
            } else {
                return Err(Breach::DoorbellOutOfRange { endpoint: number });
            }
        }
        if self.doorbells_taken != before {
            self.put(lane::DOORBELLS_TAKEN, self.doorbells_taken, Ordering::Release);
            // Pairs with the fence in `ClientLane::ring`: either the client sees its doorbell
            // taken and rings again, or we see what it wrote before it looked.
            fence(Ordering::SeqCst);
        }
        Ok(count)
    }

    /// Whether requests were announced that have not all been taken.
    pub fn requests_rung(&self) -> bool {
        self.requests_rung
    }

    /// Takes the next request; `None` when all are taken. Each is to be answered by
    /// [`Self::push_reply`] before the next is taken.
    ///
    /// # Errors
    /// If the client wrote an invalid request, or has not read its replies.
    pub fn take_request(&mut self) -> Result<Option<(Serial, Request)>, Breach> {
        let Some(words) = self.rings.requests.take(&self.region, self.requests_taken) else {
            self.requests_rung = false;
            return Ok(None);
        };
        let read = self.look(lane::REPLIES_TAKEN, Ordering::Acquire);
        if self.requests_taken.wrapping_sub(read) >= self.rings.replies.slots {
            return Err(Breach::RepliesUnread);
        }
        let request =
            Request::decode(&words).ok_or(Breach::RequestMalformed { kind: words.kind })?;
        Ok(Some((Serial(words.serial), request)))
    }

    /// Answers the request taken last.
    pub fn push_reply(&mut self, serial: Serial, reply: &Reply) {
        let words = crate::ring::Words { serial: serial.0, ..reply.encode() };
        self.rings.replies.push(&self.region, self.requests_taken, &words);
        self.requests_taken = self.requests_taken.wrapping_add(1);
        self.to_flush = true;
    }

    /// Buffers granted that the client has not taken from the stock; at most the ring's size.
    pub fn stock_len(&self) -> u32 {
        let taken = self.look(lane::STOCK_TAKEN, Ordering::Acquire);
        self.stock_pushed.wrapping_sub(taken).min(self.rings.stock.slots) as u32
    }

    /// Grants a buffer to the lane for sending; `false` when the stock is full. Where the stock
    /// was low, [`Self::finish_events`] makes an event for whoever waits for buffers.
    pub fn grant(&mut self, buffer: u32) -> bool {
        if self.stock_len() >= self.rings.stock.slots as u32 {
            return false;
        }
        self.granted_from.get_or_insert(self.stock_pushed);
        self.rings.stock.push(&self.region, self.stock_pushed, buffer);
        self.stock_pushed = self.stock_pushed.wrapping_add(1);
        self.to_flush = true;
        true
    }

    /// Makes the event for those who wait for buffers, if there may be any.
    fn announce_stock(&mut self) {
        let Some(from) = self.granted_from.take() else { return };
        // Pairs with the fence in `ClientLane::has_stock`: either the client sees the buffers, or
        // we see that it has taken those before them.
        fence(Ordering::SeqCst);
        let taken = self.look(lane::STOCK_TAKEN, Ordering::Relaxed);
        if from.wrapping_sub(taken).cast_signed() < STOCK_LOW.cast_signed()
            && let Pushed::At(position) = self.push(EVENT_STOCK, self.stock_mark)
        {
            self.stock_mark = position;
        }
    }

    /// Orders the levels written in this turn before the events about them. Once before a series
    /// of [`Self::push_event`].
    pub fn begin_events() {
        // Pairs with the fence in `LaneGuard::take_events`: either we see its event taken and
        // push another, or the client sees the levels written before.
        fence(Ordering::SeqCst);
    }

    /// Tells the client that an endpoint's levels changed, unless an event about it is
    /// outstanding. `false` when the ring is full, which an honest client's never is, or when the
    /// endpoint is beyond the capacity.
    pub fn push_event(&mut self, endpoint: u32) -> bool {
        let index = endpoint as usize;
        if endpoint >= self.region.geometry().endpoint_capacity {
            return false;
        }
        if self.marks.len() <= index {
            // Grows with the endpoints in use, not with every event.
            self.marks.resize((index + 1).next_power_of_two(), 0);
        }
        match self.push(endpoint, self.marks[index]) {
            Pushed::Outstanding => true,
            Pushed::Full => false,
            Pushed::At(position) => {
                self.marks[index] = position;
                true
            }
        }
    }

    fn push(&mut self, number: u32, mark: u64) -> Pushed {
        let taken = self.look(lane::EVENTS_TAKEN, Ordering::Acquire);
        if mark > taken {
            return Pushed::Outstanding;
        }
        if self.events_pushed.wrapping_sub(taken) >= self.rings.events.slots {
            return Pushed::Full;
        }
        self.rings.events.push(&self.region, self.events_pushed, number);
        self.events_pushed = self.events_pushed.wrapping_add(1);
        self.to_flush = true;
        Pushed::At(self.events_pushed)
    }

    /// Ends a series of events, replies and grants. `true`: the client sleeps and has not been
    /// woken from this sleep; the caller must write a byte to the lane's pipe.
    #[must_use]
    pub fn finish_events(&mut self) -> bool {
        if !self.to_flush {
            return false;
        }
        self.announce_stock();
        self.to_flush = false;
        // Pairs with the fence in `ClientLane::arm`: either we see it armed, or it sees what we
        // pushed.
        fence(Ordering::SeqCst);
        let armed = self.look(lane::ARMED, Ordering::Relaxed);
        let wake = armed != 0 && armed != self.woken;
        self.woken = armed;
        wake
    }

    /// Asks the client to ring by the pipe from now on. `false`: there is work already, do not
    /// sleep.
    #[must_use]
    pub fn prepare_sleep(&mut self) -> bool {
        self.fall_asleep(0)
    }

    /// The same for a short sleep that only lets a client run that has the same CPU: a client there
    /// rings by the pipe when it stops running, and one elsewhere as ever.
    #[must_use]
    pub fn prepare_giving_way(&mut self) -> bool {
        self.fall_asleep(lane::GIVES_WAY)
    }

    /// Whether the client runs or is about to: it does not sleep, or has been woken and has not
    /// noticed yet.
    pub fn client_runs(&self) -> bool {
        let armed = self.look(lane::ARMED, Ordering::Relaxed);
        armed == 0 || armed == self.woken
    }

    fn fall_asleep(&mut self, how: u64) -> bool {
        self.sleep = (self.sleep.wrapping_add(1) & !lane::GIVES_WAY).max(1);
        self.put(lane::ASLEEP, self.sleep | how, Ordering::Relaxed);
        // Pairs with the fence in `ClientLane::ring`: either the client sees us asleep, or we see
        // its doorbell.
        fence(Ordering::SeqCst);
        if self.has_work() {
            self.awake();
            return false;
        }
        true
    }

    /// Takes back [`Self::prepare_sleep`].
    pub fn awake(&mut self) {
        self.put(lane::ASLEEP, 0, Ordering::Relaxed);
    }

    fn look(&self, offset: usize, order: Ordering) -> u64 {
        self.region.load(self.base + offset, order)
    }

    fn put(&self, offset: usize, value: u64, order: Ordering) {
        self.region.store(self.base + offset, value, order);
    }
}
