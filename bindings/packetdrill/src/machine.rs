//! The host under test, its time, and packetdrill's two threads.
//!
//! Time advances while a thread sleeps or waits for a packet, and by a microsecond with each read
//! of the clock, because packetdrill spins on it before each event. The second thread makes the
//! blocking calls; meanwhile time is the first one's. When the call ends, time stands still until
//! the thread has read the clock, so that it sees the right time.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use client::sockets::Errno;
use script::frame;
use script::ours::{Job, MAC, Ours, Program};
use script::system::{Answer, Outcome, System};

use crate::nstat::Nstat;
use crate::surroundings::Surroundings;

/// Duration of a read of the clock.
const LOOK_NS: u64 = 1_000;
/// Timeout for a packet. Retransmissions end within some 15 minutes.
const PATIENCE_NS: u64 = 2_000_000_000_000;

/// How often to check whether the other thread sleeps.
const LOOKS_MAX: usize = 100_000;

/// State of a thread's call.
#[derive(Debug)]
enum Blocked {
    /// It has not ended.
    Pending,
    /// It has ended with this result.
    Ended(Outcome),
    /// The thread has the result, and must read the clock.
    Taken,
}

struct State {
    /// `None` before the first call that needs it.
    ours: Option<Ours>,
    surroundings: Surroundings,
    /// The script's time relative to the host's, which starts later.
    ahead_ns: u64,
    packets: VecDeque<(u64, Vec<u8>)>,
    blocked: Option<Blocked>,
    /// The other thread's directory in /proc.
    second: Option<PathBuf>,
    nstat: Nstat,
}

/// The machine under test.
pub struct Machine {
    state: Mutex<State>,
    changed: Condvar,
    main: ThreadId,
}

impl Machine {
    /// A machine without a host; packetdrill's main thread creates it.
    pub fn new() -> Self {
        let state = State {
            ours: None,
            surroundings: Surroundings::new(),
            ahead_ns: 1_000_000_000,
            packets: VecDeque::new(),
            blocked: None,
            second: None,
            nstat: Nstat::default(),
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            main: std::thread::current().id(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn is_main(&self) -> bool {
        std::thread::current().id() == self.main
    }

    /// Makes the program execute a call; returns when it is done. On the main thread time advances
    /// meanwhile, the other one only waits.
    pub fn call<T: Send + 'static>(
        &self,
        body: impl FnOnce(Program) -> Result<T, Errno> + Send + 'static,
    ) -> Result<T, Errno> {
        let slot = std::sync::Arc::new(Mutex::new(None));
        let filled = slot.clone();
        let job = Job::new(move |program| {
            let value = body(program)?;
            *filled.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
            Ok(Answer::default())
        });
        self.run(job)?;
        let value = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        value.ok_or(Errno::IO)
    }

    fn run(&self, job: Job) -> Outcome {
        let mut state = self.state();
        while state.blocked.is_some() {
            // Only the main thread gets here: packetdrill makes one blocking call at a time, and
            // waits a second for its end before another call.
            if matches!(state.blocked, Some(Blocked::Pending)) {
                return Err(Errno::AGAIN);
            }
            state = self.wait(state);
        }
        state.ours()?.begin(job);
        if !self.is_main() {
            if let Some((_, outcome)) = state.ours()?.take_outcome() {
                return outcome;
            }
            state.blocked = Some(Blocked::Pending);
            state.second = std::fs::read_link("/proc/thread-self").ok();
            loop {
                match state.blocked.take() {
                    Some(Blocked::Ended(outcome)) => {
                        state.blocked = Some(Blocked::Taken);
                        return outcome;
                    }
                    other => state.blocked = other,
                }
                state = self.wait(state);
            }
        }
        loop {
            if let Some((_, outcome)) = state.ours()?.take_outcome() {
                state.gather();
                return outcome;
            }
            let until = state.ours()?.now().saturating_add(PATIENCE_NS);
            state.ours()?.pass(until);
            state.gather();
            if state.ours()?.now() >= until {
                return Err(Errno::TIMEDOUT);
            }
        }
    }

    /// The command to run instead of a script's command that queries our stack's counters.
    pub fn rewritten(&self, text: &str) -> Option<String> {
        let State { ours, nstat, .. } = &mut *self.state();
        nstat.define(text, |name| ours.as_ref().map_or(0, |ours| ours.counter(name)))
    }

    /// A command of the script was run.
    pub fn commanded(&self, text: &str) {
        let mut state = self.state();
        state.surroundings.commanded(text);
        let State { ours: Some(ours), surroundings, .. } = &mut *state else { return };
        ours.follow(&surroundings.changed_settings());
        ours.set_routes(surroundings.routes());
        if surroundings.forgets_servers(text) {
            ours.forget_servers();
        }
        ours.open_port(!surroundings.is_stuck());
        ours.cut_frames(!surroundings.has_tso());
    }

    /// A call that never waits, also while the other thread's call does.
    pub fn ask<T>(&self, body: impl FnOnce(Program) -> Result<T, Errno>) -> Result<T, Errno> {
        let mut state = self.state();
        let program = state.ours()?.program();
        body(program)
    }

    /// The time in nanoseconds.
    pub fn look_at_clock(&self) -> u64 {
        let mut state = self.state();
        let until = state.now() + LOOK_NS;
        if state.ours.is_none() {
            state.ahead_ns += LOOK_NS;
        } else if self.is_main() || state.blocked.is_none() {
            state = self.pass(state, until, &|_| false);
        } else if matches!(state.blocked, Some(Blocked::Taken)) {
            state.blocked = None;
            self.changed.notify_all();
        }
        state.now()
    }

    /// Lets time advance to `until`, or until `enough` finds something.
    fn pass<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        until: u64,
        enough: &dyn Fn(&State) -> bool,
    ) -> MutexGuard<'a, State> {
        loop {
            state.gather();
            let ahead = state.ahead_ns;
            let Some(ours) = state.ours.as_mut() else { return state };
            if let Some((_, outcome)) = ours.take_outcome() {
                state.blocked = Some(Blocked::Ended(outcome));
                self.changed.notify_all();
                while state.blocked.is_some() {
                    state = self.wait(state);
                }
                if let Some(thread) = state.second.clone() {
                    drop(state);
                    until_at_rest(&thread);
                    state = self.state();
                }
                continue;
            }
            if state.now() >= until || enough(&state) {
                return state;
            }
            if let Some(ours) = state.ours.as_mut() {
                ours.pass(until.wrapping_sub(ahead));
            }
        }
    }

    /// Lets some time pass.
    pub fn sleep(&self, nanoseconds: u64) {
        let mut state = self.state();
        if state.ours.is_none() {
            state.ahead_ns += nanoseconds;
            return;
        }
        let until = state.now().saturating_add(nanoseconds);
        let state = self.pass(state, until, &|_| false);
        let second = state.second.clone();
        drop(state);
        // While it sleeps, packetdrill's main thread holds no lock that the other one needs.
        if let Some(thread) = second.filter(|_| self.is_main()) {
            until_at_rest(&thread);
        }
    }

    /// A packet arrives, from its IP header on.
    pub fn arrive(&self, packet: &[u8]) -> Result<(), Errno> {
        let mut state = self.state();
        let mut bytes = frame::packet_frame(packet);
        frame::address_to(&mut bytes, MAC);
        let segment = state.surroundings.segment_bytes();
        match segment.filter(|&len| frame::payload_len(packet) > usize::from(len)) {
            Some(len) => state.ours()?.inject_coalesced(bytes, len),
            None => state.ours()?.inject(bytes),
        }
        // Immediate consequences happen before the script continues.
        let now = state.now();
        drop(self.pass(state, now, &|_| false));
        Ok(())
    }

    /// The next packet sent by the host and its time; `None` on timeout.
    pub fn next_packet(&self) -> Option<(u64, Vec<u8>)> {
        let state = self.state();
        let until = state.now().saturating_add(PATIENCE_NS);
        let mut state = self.pass(state, until, &|state| !state.packets.is_empty());
        state.packets.pop_front()
    }
}

/// Waits until a thread of this process sleeps: packetdrill's second thread has then handled the
/// end of its call, as it would have long before the next event in real time.
fn until_at_rest(thread: &Path) {
    let path = Path::new("/proc").join(thread).join("stat");
    for _ in 0..LOOKS_MAX {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        // The state follows the name, which ends with the last parenthesis.
        if text.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('S')) {
            return;
        }
        std::thread::yield_now();
    }
}

impl State {
    /// The host, created when it is first needed.
    fn ours(&mut self) -> Result<&mut Ours, Errno> {
        if self.ours.is_none() {
            let settings = self.surroundings.settings();
            let mut ours = Ours::new(&settings).map_err(|why| {
                eprintln!("outboard: cannot create a host for this script: {}", why.0);
                Errno::NOSYS
            })?;
            ours.cut_frames(!self.surroundings.has_tso());
            // The script's clock continues from its current time.
            let now = self.ahead_ns;
            self.ahead_ns = now.wrapping_sub(ours.now());
            ours.set_calendar(self.ahead_ns);
            self.ours = Some(ours);
        }
        self.ours.as_mut().ok_or(Errno::NOSYS)
    }

    /// The script's time.
    fn now(&self) -> u64 {
        self.ahead_ns.wrapping_add(self.ours.as_ref().map_or(0, Ours::now))
    }

    /// Takes the packets sent by the host.
    fn gather(&mut self) {
        let ahead = self.ahead_ns;
        let Some(ours) = &mut self.ours else { return };
        for (time, bytes) in ours.take_frames() {
            if let Some(packet) = frame::packet_of(&bytes) {
                self.packets.push_back((ahead.wrapping_add(time), packet.to_vec()));
            }
        }
    }
}
