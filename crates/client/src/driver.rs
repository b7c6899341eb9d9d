//! A lane and its wakeups: rings the engine, sends requests and matches their replies.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::net::SendFlags;
use shm::client_side::{ClientLane, Direction, Rung};
use shm::lock::{Reentered, Tag};
use shm::request::{Reply, Request};

use crate::backoff::Backoff;

/// Only a panic of ours poisons a mutex, and that leaves nothing half done.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number for each thread of this process.
fn thread_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    thread_local! {
        static OWN: Cell<u32> = const { Cell::new(0) };
    }
    // A thread that is ending shares a number with others that are ending; they only wait for each
    // other.
    OWN.try_with(|own| {
        if own.get() == 0 {
            own.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        own.get()
    })
    .unwrap_or(0)
}

/// A signal handler called into the socket whose call it interrupted: try again later.
pub(crate) fn reentered(_: Reentered) -> Errno {
    Errno::AGAIN
}

/// Lets a worker in the same thread take a turn.
#[derive(Clone)]
pub(crate) struct Pump(pub Arc<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for Pump {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pump")
    }
}

/// A lane and its wakeups.
#[derive(Debug)]
pub(crate) struct Driver {
    pub lane: ClientLane,
    /// Read end of our wake pipe; hangs up when the engine is gone.
    pub wake: OwnedFd,
    /// Our end of the engine's wake socket.
    pub bell: OwnedFd,
    process: u32,
    /// The worker, when it runs in this thread.
    pump: Option<Pump>,
    calls: Mutex<()>,
    caller: AtomicU64,
    /// Requests of interrupting signal handlers, for the next call to send.
    deferred: Mutex<Vec<Request>>,
    has_deferred: AtomicBool,
}

impl Driver {
    pub fn new(lane: ClientLane, wake: OwnedFd, bell: OwnedFd, process: u32) -> Self {
        Self {
            lane,
            wake,
            bell,
            process,
            pump: None,
            calls: Mutex::new(()),
            caller: AtomicU64::new(0),
            deferred: Mutex::default(),
            has_deferred: AtomicBool::new(false),
        }
    }

    /// Makes waits call `pump` instead.
    pub fn pumped(self, pump: Pump) -> Self {
        Self { pump: Some(pump), ..self }
    }

    /// Waits for the engine. `true`: the wait is getting long.
    fn wait(&self, backoff: &mut Backoff) -> bool {
        match &self.pump {
            Some(_) => {
                self.let_engine_answer();
                true
            }
            None => backoff.wait(),
        }
    }

    /// Gives a turn to an engine in this thread; other engines run by themselves.
    pub fn let_engine_answer(&self) {
        if let Some(pump) = &self.pump {
            (pump.0)();
        }
    }

    pub fn tag(&self) -> Tag {
        Tag::new(self.process, thread_number())
    }

    /// Whether the worker runs on the CPU that this thread is on.
    pub fn shares_cpu(&self) -> bool {
        self.lane.worker_cpu().is_some_and(|cpu| cpu == rustix::thread::sched_getcpu() as u32)
    }

    /// Finishes a ring.
    pub fn ring_out(&self, rung: Rung) {
        match rung {
            // The caller waits for room before this.
            Rung::Enough | Rung::Full => {}
            // The worker on this CPU has yielded to this thread, which may as well finish first.
            Rung::GivesWay if self.shares_cpu() => {}
            Rung::GivesWay => self.resume_worker(),
            Rung::WritePipe => {
                // A full buffer wakes the engine as well as one more byte; an engine that is gone
                // is detected by its hang-up.
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                let _ = rustix::net::send(&self.bell, &[1], flags);
            }
        }
    }

    /// This thread stops running: a worker that has yielded to it resumes.
    pub fn resume_worker(&self) {
        self.ring_out(self.lane.resume_worker());
    }

    /// Tells the worker that an endpoint has work, as long as the engine `is_alive`.
    pub fn ring(&self, endpoint: u32, direction: Direction, is_alive: &dyn Fn() -> bool) {
        self.ring_when_free(|| self.lane.ring(endpoint, direction), is_alive);
    }

    /// Rings as soon as there is room for a doorbell, or not at all if the engine is gone.
    fn ring_when_free(&self, mut ring: impl FnMut() -> Rung, is_alive: &dyn Fn() -> bool) {
        let mut rung = ring();
        if rung == Rung::Full {
            let mut backoff = Backoff::new(self.shares_cpu());
            while rung == Rung::Full {
                if self.wait(&mut backoff) && !is_alive() {
                    return;
                }
                rung = ring();
            }
        }
        self.ring_out(rung);
    }

    /// Sends a request and waits for its reply, as long as `is_alive`.
    pub fn call(&self, request: &Request, is_alive: &dyn Fn() -> bool) -> Result<Reply, Errno> {
        let own = u64::from(thread_number());
        if own != 0 && self.caller.load(Ordering::Relaxed) == own {
            return Err(Errno::AGAIN);
        }
        self.make_deferred(is_alive);
        let _calls = locked(&self.calls);
        self.caller.store(own, Ordering::Relaxed);
        let reply = self.call_alone(request, is_alive);
        self.caller.store(0, Ordering::Relaxed);
        reply
    }

    fn call_alone(&self, request: &Request, is_alive: &dyn Fn() -> bool) -> Result<Reply, Errno> {
        let tag = self.tag();
        let mut backoff = Backoff::new(self.shares_cpu());
        let serial = loop {
            let mut lane = self.lane.lock(tag).map_err(reentered)?;
            // Replies without a waiting caller.
            while lane.take_reply().is_some() {}
            if let Some(serial) = lane.push_request(request) {
                self.ring_when_free(|| lane.ring_requests(), is_alive);
                self.resume_worker();
                break serial;
            }
            drop(lane);
            if self.wait(&mut backoff) && !is_alive() {
                return Err(Errno::CONNRESET);
            }
        };
        let mut backoff = Backoff::new(self.shares_cpu());
        loop {
            let mut lane = self.lane.lock(tag).map_err(reentered)?;
            while let Some((answered, reply)) = lane.take_reply() {
                if answered == serial {
                    return reply.ok_or(Errno::PROTO);
                }
            }
            drop(lane);
            if self.wait(&mut backoff) && !is_alive() {
                return Err(Errno::CONNRESET);
            }
        }
    }

    /// Sends the requests that signal handlers had to defer.
    fn make_deferred(&self, is_alive: &dyn Fn() -> bool) {
        if self.has_deferred.swap(false, Ordering::Acquire) {
            let deferred = std::mem::take(&mut *locked(&self.deferred));
            deferred.iter().for_each(|request| self.post(request, is_alive));
        }
    }

    /// Sends a request without waiting for its reply.
    pub fn post(&self, request: &Request, is_alive: &dyn Fn() -> bool) {
        let mut backoff = Backoff::new(self.shares_cpu());
        loop {
            // A waiting caller takes its own reply; other replies are taken here only if no caller
            // waits.
            let calls = self.calls.try_lock();
            let Ok(mut lane) = self.lane.lock(self.tag()) else {
                // The thread interrupted by this is not deferring, but may be sending deferred
                // requests; then this one cannot be deferred.
                if let Ok(mut deferred) = self.deferred.try_lock() {
                    deferred.push(*request);
                    self.has_deferred.store(true, Ordering::Release);
                }
                return;
            };
            if calls.is_ok() {
                while lane.take_reply().is_some() {}
            }
            if lane.push_request(request).is_some() {
                self.ring_when_free(|| lane.ring_requests(), is_alive);
                return;
            }
            drop((lane, calls));
            if self.wait(&mut backoff) && !is_alive() {
                return;
            }
        }
    }
}
