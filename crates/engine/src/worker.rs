//! The polling loop's body: one [`Worker::turn`] receives, serves clients, runs timers, sends.
//!
//! A worker has no threads and no clock, and makes no system calls except those of its ports and
//! the writes that wake sleeping clients; simulation runs the same code in virtual time.

use std::collections::VecDeque;
use std::sync::Arc;

use port::{RxBurst, RxChecksum};
use shm::control::Geometry;
use stack::Stack;
use stack::api::{Instant, InterfaceIndex, RxFrame, RxFrameMeta};

use crate::account::{Account, Component};
use crate::claims::{Leaving, follow, interface_config};
use crate::config::{Limits, PortSetup, TcpSettings};
use crate::control::authority::Refusal;
use crate::control::exchange::{Answer, Command, ContextKey, SessionKey, Shown};
use crate::due::Due;
use crate::ending::Ending;
use crate::endpoint::{Datagram, Endpoint, Role};
use crate::errors::TooManyPorts;
use crate::lane::Lane;
use crate::listener::Listeners;
use crate::passing::Passing;
use crate::requests::LaneRef;
use crate::service::bridge::Bridges;
use crate::service::mirror::MirrorCounts;
use crate::service::raw::{RawTable, Watch};
use crate::session::{Session, SessionSeed};
use crate::sessions::Sessions;
use crate::shown::Uses;
use crate::stats::Counters;
use crate::transmit::{self, Attached, Outlets, Scratch, SendQueue, Tx};

/// Parameters of a worker, besides its ports.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// Limits.
    pub limits: Limits,
    /// Limits of the stack's tables, except for connections: those are `limits.sockets`.
    pub stack_limits: stack::Limits,
    /// Settings of TCP.
    pub tcp: TcpSettings,
    /// The source of all randomness.
    pub seed: [u8; 32],
    /// Its number among the engine's workers.
    pub index: u16,
}

/// The work of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Frames received.
    pub received: usize,
    /// Doorbells and requests served.
    pub served: usize,
    /// Frames sent.
    pub sent: usize,
    /// Timers ran.
    pub timers: bool,
    /// Work is left for the next turn.
    pub more: bool,
}

impl Activity {
    /// Whether there was any work.
    pub fn worked(&self) -> bool {
        self.received + self.served + self.sent > 0 || self.timers || self.more
    }
}

/// Doorbells taken at a time.
pub(crate) const DOORBELL_BATCH: usize = 32;

/// Interval of the search for pages that clients have read.
const SWEEP_EVERY_NS: u64 = 1_000_000;

/// Datagrams tried in one turn, for all sockets: the longest are many bytes to copy.
const DATAGRAMS_PER_TURN: usize = 512;

/// One polling worker: its ports, its stack and its sessions.
pub struct Worker {
    pub(crate) limits: Limits,
    pub(crate) tcp: TcpSettings,
    pub(crate) index: u16,
    pub(crate) cpu: Option<u32>,
    pub(crate) now: Instant,
    pub(crate) ports: Vec<Attached>,
    pub(crate) stack: Stack,
    pub(crate) sessions: Sessions,
    pub(crate) listeners: Listeners,
    /// The time when a listener without an attached process, or one left to the kernel, is due.
    pub(crate) listeners_due: Option<u64>,
    /// The kernel notifies us of closed sockets that were passed.
    pub(crate) follows_sockets: bool,
    pub(crate) scratch: Scratch,
    pub(crate) counters: Arc<Counters>,
    /// Grants of sessions for kernel sockets that they have passed.
    pub(crate) uses: Uses,
    /// Answers for the control thread.
    pub(crate) answers: Vec<Answer>,
    /// Datagram sockets whose next datagram waits for a port or a neighbour.
    pub(crate) waiting_datagrams: VecDeque<(u32, u32)>,
    /// Some of them wait for a port, which must be polled for room.
    pub(crate) datagrams_poll: bool,
    /// Datagrams that may still be tried in this turn.
    pub(crate) datagrams_left: usize,
    /// Endpoints whose wanted offset was changed: checked once more after the fence.
    pub(crate) recheck: Vec<(u32, u32)>,
    /// Sessions of dead programs and their deadlines, in that order.
    pub(crate) dying: VecDeque<(u64, SessionKey)>,
    /// Sessions with closed memories that are in use.
    pub(crate) closing_memories: Vec<SessionKey>,
    /// Sessions and lanes that a turn looks at.
    pub(crate) due: Due,
    /// Raw endpoints.
    pub(crate) raw: RawTable,
    pub(crate) bridges: Bridges,
    /// Counters of mirrors, by the name of their interface.
    pub(crate) mirrors: Vec<(String, Arc<MirrorCounts>)>,
    pub(crate) account: Account,
    pub(crate) passing: Passing,
    pub(crate) leaving: Leaving,
    /// Whether the kernel routes as the stack does.
    pub(crate) is_open: bool,
    pub(crate) ending: Option<Ending>,
    /// The generation of addresses last reported to the control thread.
    pub(crate) told_generation: u64,
    /// Duplicate addresses logged so far.
    pub(crate) told_duplicates: u64,
    /// Reports to the control thread that it has not processed.
    pub(crate) telling: usize,
    /// Time of the last search for pages that clients have read.
    swept_at: Instant,
    /// The port that receives first; it rotates.
    first_port: usize,
}

impl Worker {
    /// Creates a worker with its ports; the stack announces their addresses.
    ///
    /// # Errors
    /// If there are more ports than the stack can number.
    pub fn new(
        config: WorkerConfig,
        setups: Vec<PortSetup>,
        counters: Arc<Counters>,
        now: Instant,
    ) -> Result<Self, TooManyPorts> {
        let limits = config.limits;
        let given = setups.len();
        let mut stack_config = stack::Config::new(config.seed);
        stack_config.limits = stack::Limits { connections: limits.sockets, ..config.stack_limits };
        stack_config.tcp = config.tcp;
        let mut stack = Stack::new(stack_config);
        let mut ports = Vec::with_capacity(setups.len());
        for setup in setups {
            let interface = stack.add_interface(interface_config(&setup)).ok_or(TooManyPorts {
                given,
                port_count_max: usize::from(InterfaceIndex::LOOPBACK.0),
            })?;
            let PortSetup { mut port, addresses, .. } = setup;
            let mtu = port.info().mtu;
            if !follow(&mut *port, &addresses, mtu) {
                counters.claims_failed.increment();
            }
            let is_divided = port.info().shared.is_some_and(|shared| shared.is_divided);
            ports.push(Attached {
                port,
                interface,
                burst: RxBurst::new(),
                held: None,
                gone: false,
                is_bridged: false,
                is_divided,
            });
        }
        let raw = RawTable::new(ports.len());
        Ok(Self {
            limits,
            tcp: config.tcp,
            index: config.index,
            cpu: None,
            now,
            ports,
            stack,
            sessions: Sessions::new(limits, Arc::clone(&counters)),
            listeners: Listeners::default(),
            listeners_due: None,
            follows_sockets: false,
            scratch: Scratch::default(),
            counters,
            uses: Uses::default(),
            answers: Vec::new(),
            waiting_datagrams: VecDeque::new(),
            datagrams_poll: false,
            datagrams_left: DATAGRAMS_PER_TURN,
            recheck: Vec::new(),
            dying: VecDeque::new(),
            closing_memories: Vec::new(),
            due: Due::default(),
            raw,
            bridges: Bridges::default(),
            mirrors: Vec::new(),
            account: Account::default(),
            passing: Passing::default(),
            leaving: Leaving::default(),
            is_open: true,
            ending: None,
            told_generation: u64::MAX,
            told_duplicates: 0,
            telling: 0,
            swept_at: now,
            first_port: 0,
        })
    }

    /// Changes the settings of TCP for all later decisions.
    pub fn set_tcp(&mut self, tcp: TcpSettings) {
        self.tcp = tcp;
        self.stack.set_tcp_settings(tcp);
    }

    /// Forgets the Fast Open cookies of servers.
    pub fn forget_fast_open(&mut self) {
        self.stack.forget_fast_open();
    }

    /// One round: receive, serve, run timers, publish, send, wake. All of it happens at `now`.
    pub fn turn(&mut self, now: Instant) -> Activity {
        self.turn_by(now, &|| now)
    }

    /// The same, starting at `start`, with a running clock. The clock is read after receiving
    /// frames: this thread may have lost its core since `start`, and frames must not get a
    /// timestamp before their arrival, or appear to have been faster than the path allows.
    pub fn turn_by(&mut self, start: Instant, clock: &dyn Fn() -> Instant) -> Activity {
        self.set_now(start);
        self.datagrams_left = DATAGRAMS_PER_TURN;
        self.account.begin(arch::cycles());
        let mut activity = Activity::default();
        self.receive(clock, &mut activity);
        self.charge(Component::Stack);
        self.serve_lanes(&mut activity);
        self.retry(&mut activity);
        if self.now.0.saturating_sub(self.swept_at.0) >= SWEEP_EVERY_NS {
            self.swept_at = self.now;
            self.sweep();
            if self.raw.count() > 0 {
                self.counters.raw_rx_dropped.set(self.raw.dropped());
                self.tell_raw_of_lost_ports();
            }
        }
        self.charge(Component::Host);
        self.run_timers(&mut activity);
        self.look_at_end();
        self.look_at_listeners();
        self.charge(Component::Timers);
        self.take_events(&mut activity);
        self.publish();
        self.charge(Component::Host);
        self.send(&mut activity);
        self.charge(Component::Tx);
        // Data delivered locally has caused events, too.
        self.take_events(&mut activity);
        self.publish();
        self.release_left();
        if !self.closing_memories.is_empty() {
            self.leave_memories();
        }
        self.ask_kernel();
        self.tell_addresses();
        self.finish_lanes();
        self.end_breached();
        self.charge(Component::Host);
        self.account.end(activity.worked());
        self.counters.turns.increment();
        if activity.worked() {
            self.counters.turns_with_work.increment();
        }
        activity
    }

    /// Sets the time, also for arrival times.
    fn set_now(&mut self, now: Instant) {
        self.now = now;
        self.sessions.now = now;
    }

    fn charge(&mut self, component: Component) {
        self.account.charge(component, arch::cycles());
    }

    fn receive(&mut self, clock: &dyn Fn() -> Instant, activity: &mut Activity) {
        let count = self.ports.len();
        self.first_port = self.first_port.wrapping_add(1);
        for turn in 0..count {
            let index = self.first_port.wrapping_add(turn) % count;
            let mut frames = 0;
            if let Some(attached) = self.ports.get_mut(index) {
                attached.port.on_time(self.now.0);
                if attached.is_divided {
                    frames = self.relay_kernel(index);
                }
            }
            while frames < self.limits.frames_per_turn {
                let received = self.receive_burst(index, clock);
                if received == 0 {
                    break;
                }
                frames += received;
            }
            activity.received += frames;
        }
        self.charge(Component::PortRx);
    }

    fn receive_burst(&mut self, index: usize, clock: &dyn Fn() -> Instant) -> usize {
        let Some(attached) = self.ports.get_mut(index) else { return 0 };
        attached.port.receive(&mut attached.burst);
        let count = attached.burst.handles.len();
        if count == 0 {
            return 0;
        }
        self.set_now(self.now.max(clock()));
        self.charge(Component::PortRx);
        match self.is_divided(index) {
            false => self.give_stack(index, |_| false),
            true => {
                let taken = self.divide(index);
                self.give_stack(index, |position| taken >> position & 1 != 0);
            }
        }
        if let Some(attached) = self.ports.get_mut(index) {
            attached.port.release(&mut attached.burst);
        }
        self.charge(Component::Stack);
        count
    }

    /// Passes the frames of a burst to the stack, except for those taken by others.
    #[inline]
    fn give_stack(&mut self, index: usize, is_taken: impl Fn(usize) -> bool) {
        let Some(attached) = self.ports.get_mut(index) else { return };
        for position in 0..attached.burst.handles.len() {
            if is_taken(position) {
                continue;
            }
            let Some(handle) = attached.burst.handles.get(position) else { break };
            let frame = attached.port.frame(*handle);
            if let Some(next) = attached.burst.handles.get(position + 1) {
                arch::prefetch_read(attached.port.frame(*next).bytes.as_ptr());
            }
            let meta = RxFrameMeta {
                checksum: match frame.meta.checksum {
                    RxChecksum::Unknown => stack::api::RxChecksum::Unknown,
                    RxChecksum::Valid => stack::api::RxChecksum::Valid,
                    RxChecksum::Partial { start, offset } => {
                        stack::api::RxChecksum::Partial { start, offset }
                    }
                },
                gso_bytes: frame.meta.gso.map(|gso| gso.size),
            };
            self.stack.on_frame(
                self.now,
                &RxFrame { interface: attached.interface, bytes: frame.bytes, meta },
                &mut self.sessions,
            );
        }
    }

    fn serve_lanes(&mut self, activity: &mut Activity) {
        // A session that is served when its first lane is looked at is served with all of them.
        let mut served = None;
        let mut position = 0;
        while let Some(at) = self.due.polled.get(position) {
            position += 1;
            let Some(session) = self.sessions.peek(at.place) else { continue };
            let is_served = match served {
                Some((place, is_served)) if place == at.place => is_served,
                _ => session.is_served(),
            };
            served = Some((at.place, is_served));
            let lane = session.lanes.get(usize::from(at.lane)).filter(|_| is_served);
            if lane.is_some_and(|lane| lane.view.has_work() || lane.starved) {
                self.serve_lane(at.place, at.lane, activity);
            }
        }
    }

    fn lane(&mut self, place: u32, lane: u16) -> Option<&mut Lane> {
        self.sessions.at(place)?.lanes.get_mut(usize::from(lane))
    }

    fn serve_lane(&mut self, place: u32, lane: u16, activity: &mut Activity) {
        self.serve_lane_within(place, lane, self.limits.requests_per_turn, activity);
    }

    /// Serves doorbells and a limited number of requests; returns the number of requests.
    pub(crate) fn serve_lane_within(
        &mut self,
        place: u32,
        lane: u16,
        requests_max: usize,
        activity: &mut Activity,
    ) -> usize {
        let now = self.now.0;
        let mut endpoints = [0u32; DOORBELL_BATCH];
        let mut doorbells = 0;
        while doorbells < self.limits.doorbells_per_turn {
            let Some(of) = self.lane(place, lane) else { return 0 };
            of.worked_at = now;
            let count = match of.view.take_doorbells(&mut endpoints) {
                Ok(count) => count,
                Err(found) => {
                    self.breached(place, found);
                    return 0;
                }
            };
            for index in endpoints.iter().take(count) {
                self.serve_endpoint(place, *index);
            }
            doorbells += count;
            if count < DOORBELL_BATCH {
                break;
            }
        }
        let mut requests = 0;
        while requests < requests_max {
            let Some(of) = self.lane(place, lane) else { return 0 };
            if !of.view.requests_rung() {
                break;
            }
            match of.view.take_request() {
                Ok(Some((serial, request))) => {
                    requests += 1;
                    let reply = self.serve_request(LaneRef { place, lane }, request);
                    if let Some(of) = self.lane(place, lane) {
                        of.view.push_reply(serial, &reply);
                        of.to_finish = true;
                        self.due.finish.insert(place);
                    }
                }
                Ok(None) => break,
                Err(found) => {
                    self.breached(place, found);
                    return 0;
                }
            }
        }
        self.counters.doorbells.add(doorbells as u64);
        self.counters.requests.add(requests as u64);
        activity.served += doorbells + requests;
        self.refill_stock(place, lane);
        if self.lane(place, lane).is_some_and(|lane| lane.view.has_work()) {
            activity.more = true;
        }
        requests
    }

    pub(crate) fn breached(&mut self, place: u32, found: shm::engine_side::Breach) {
        if let Some(session) = self.sessions.at(place) {
            session.breached(crate::session::Breach::Contract(found));
        }
    }

    /// Keeps a lane in use supplied with send buffers.
    pub(crate) fn refill_stock(&mut self, place: u32, lane: u16) {
        let target = self.limits.stock_target;
        let Some(session) = self.sessions.at(place) else { return };
        let Some(of) = session.lanes.get_mut(usize::from(lane)) else { return };
        of.in_use = true;
        let len = of.view.stock_len();
        of.view.set_sendable(session.pool.sendable());
        if len > target / 2 {
            of.starved = false;
            return;
        }
        of.starved = false;
        for _ in len..target {
            let Some(buffer) = session.pool.take_for_lane(lane) else {
                if !of.starved {
                    self.counters.buffers_exhausted.increment();
                }
                of.starved = true;
                self.due.retry.insert(place);
                break;
            };
            if !of.view.grant(buffer) {
                session.pool.revoke(buffer);
                break;
            }
            of.to_finish = true;
            self.due.finish.insert(place);
        }
    }

    /// Retries descriptors that waited for a span, and datagrams that waited for a port or
    /// neighbour.
    fn retry(&mut self, activity: &mut Activity) {
        let mut from = 0;
        while let Some(place) = self.due.retry.next(from) {
            from = place + 1;
            self.retry_session(place, activity);
            if !self.sessions.peek(place).is_some_and(Session::waits) {
                self.due.retry.remove(place);
            }
        }
        if self.raw.has_waiting() {
            self.retry_raw();
            activity.more |= self.raw.has_waiting();
        }
        self.retry_messages(activity);
        self.datagrams_poll = false;
        // Each once, because those that must wait again are appended.
        for _ in 0..self.waiting_datagrams.len() {
            if self.datagrams_left == 0 {
                self.datagrams_poll = true;
                activity.more = true;
                break;
            }
            let Some((place, index)) = self.waiting_datagrams.pop_front() else { break };
            if let Some(datagram) = self.datagram(place, index) {
                datagram.waits = false;
            }
            self.send_datagrams(place, index, activity);
        }
    }

    /// Goes on with what waits for buffers or spans of a session.
    fn retry_session(&mut self, place: u32, activity: &mut Activity) {
        self.end_stalled(place, activity);
        let least = self.limits.accept_buffers();
        let Some(session) = self.sessions.at(place) else { return };
        if !session.waiting_to_accept.is_empty() && session.pool.free() >= least {
            for index in std::mem::take(&mut session.waiting_to_accept) {
                if let Some(Role::Listener(of)) = self.endpoint(place, index).map(|one| &one.role) {
                    let of = *of;
                    self.on_pending(of, true);
                    activity.served += 1;
                }
            }
        }
        let Some(session) = self.sessions.at(place) else { return };
        if session.waiting_for_span.is_empty() || session.spans.free() < session.spans.total() / 4 {
            return;
        }
        for index in std::mem::take(&mut session.waiting_for_span) {
            if let Some(Endpoint { role: Role::Stream(stream), .. }) =
                self.sessions.at(place).and_then(|s| s.endpoints.get_mut(index as usize))
            {
                stream.send.waits_for_span = false;
            }
            self.serve_endpoint(place, index);
            activity.served += 1;
        }
    }

    pub(crate) fn send_datagrams(&mut self, place: u32, index: u32, activity: &mut Activity) {
        let mut left = self.datagrams_left;
        let outcome = self.try_datagrams(SendQueue { place, index, closes: false }, &mut left);
        self.datagrams_left = left;
        match outcome {
            transmit::Datagrams::Done => {}
            transmit::Datagrams::WaitNeighbor => self.wait_datagram(place, index),
            transmit::Datagrams::WaitPort => {
                self.datagrams_poll = true;
                self.wait_datagram(place, index);
            }
            transmit::Datagrams::More => {
                self.datagrams_poll = true;
                self.wait_datagram(place, index);
                activity.more = true;
            }
        }
    }

    /// Sends the remaining datagrams of a closing socket; the stack takes those that must wait.
    pub(crate) fn send_last_datagrams(&mut self, place: u32, index: u32) {
        // Bounded, because a client may keep pushing.
        let mut left = self
            .sessions
            .peek(place)
            .map_or(0, |session| session.region.geometry().send_slots as usize);
        let queue = SendQueue { place, index, closes: true };
        while self.try_datagrams(queue, &mut left) == transmit::Datagrams::More && left > 0 {}
        self.forget_waiting_datagram(place, index);
        if let Some(session) = self.sessions.at(place) {
            session.drop_unsent_datagrams(index, &self.counters);
        }
    }

    fn try_datagrams(&mut self, queue: SendQueue, left: &mut usize) -> transmit::Datagrams {
        let mut tx = Tx {
            stack: &mut self.stack,
            sessions: &mut self.sessions,
            scratch: &mut self.scratch,
            counters: &self.counters,
            now: self.now,
        };
        let mut outlets = Outlets { ports: &mut self.ports, raw: &mut self.raw };
        let outcome = transmit::send_datagrams(&mut tx, &mut outlets, queue, left);
        if let Some(session) = self.sessions.at(queue.place)
            && session.publish_sent_datagrams(queue.index)
        {
            self.sessions.note_news(queue.place, queue.index);
        }
        outcome
    }

    fn datagram(&mut self, place: u32, index: u32) -> Option<&mut Datagram> {
        match &mut self.endpoint(place, index)?.role {
            Role::Datagram(datagram) => Some(datagram),
            _ => None,
        }
    }

    fn wait_datagram(&mut self, place: u32, index: u32) {
        let waits = self.datagram(place, index).map(|one| std::mem::replace(&mut one.waits, true));
        if waits == Some(false) {
            self.waiting_datagrams.push_back((place, index));
        }
    }

    /// A datagram socket is about to be closed.
    fn forget_waiting_datagram(&mut self, place: u32, index: u32) {
        if self.datagram(place, index).is_some_and(|datagram| datagram.waits) {
            self.waiting_datagrams.retain(|waiting| *waiting != (place, index));
        }
    }

    fn run_timers(&mut self, activity: &mut Activity) {
        if self.stack.next_deadline().is_some_and(|deadline| deadline <= self.now) {
            activity.timers = true;
            if self.stack.on_timers(self.now) {
                activity.more = true;
            }
        }
        self.run_message_timers(activity);
        self.end_lingering();
    }

    fn send(&mut self, activity: &mut Activity) {
        self.send_messages(activity);
        let limit = self.limits.transmits_per_turn;
        let mut tx = Tx {
            stack: &mut self.stack,
            sessions: &mut self.sessions,
            scratch: &mut self.scratch,
            counters: &self.counters,
            now: self.now,
        };
        for (number, attached) in self.ports.iter_mut().enumerate() {
            let watch = Watch::of(&mut self.raw, number, tx.now.0);
            let sent = transmit::transmit(attached, watch, &mut tx, limit);
            activity.sent += sent;
            activity.more |= sent == limit;
            attached.port.flush();
        }
        self.raw.publish(tx.sessions);
        let looped = transmit::loop_back(&mut tx, limit);
        activity.sent += looped;
        activity.more |= looped == limit;
        self.counters.datagrams_tx_failed.add(self.stack.tell_unreached(&mut self.sessions));
    }

    /// Wakes sleeping clients that have new events.
    fn finish_lanes(&mut self) {
        let mut from = 0;
        while let Some(place) = self.due.finish.next(from) {
            from = place + 1;
            self.due.finish.remove(place);
            let Some(session) = self.sessions.at(place) else { continue };
            for lane in &mut session.lanes {
                if lane.to_finish {
                    lane.to_finish = false;
                    if lane.view.finish_events() {
                        self.counters.wakeups.increment();
                        lane.wake();
                    }
                }
            }
        }
    }

    /// The latest time of the worker's next turn if nothing arrives.
    pub fn next_deadline(&self) -> Option<Instant> {
        let ports = self.ports.iter().filter_map(|attached| attached.port.next_deadline());
        let stack = self.stack.next_deadline().map(|deadline| deadline.0);
        let dying = self.dying.front().map(|(deadline, _)| *deadline);
        let looks = self.next_look_at_left().into_iter().chain(self.next_look_at_end());
        let messages = self.sessions.messages.as_ref().and_then(|one| one.next_look(self.now.0));
        let looks = looks.chain(self.listeners_due).chain(messages);
        ports.chain(stack).chain(dying).chain(looks).min().map(Instant)
    }

    /// Attaches a session; there is no answer, because its client already has everything.
    pub fn attach(&mut self, seed: SessionSeed) {
        let mut session = Session::new(seed, self.index, &self.limits, self.now.0);
        for lane in &mut session.lanes {
            if let Some(cpu) = self.cpu {
                lane.view.set_worker_cpu(cpu);
            }
        }
        self.counters.sessions_total.increment();
        let lanes = session.lanes.len() as u16;
        let place = self.sessions.add(session);
        for lane in 0..lanes {
            self.due.polled.insert(LaneRef { place, lane });
        }
    }

    /// Executes a command of the control thread.
    pub fn on_command(&mut self, command: Command, now: Instant) {
        self.set_now(now);
        match command {
            Command::Attach(seed) => self.attach(*seed),
            Command::Detach(key) => self.detach(key),
            Command::Listen { session, serial, context, backlog, shown, beside } => {
                let result = self.listen(ContextKey { session, context }, shown, &beside, backlog);
                self.answer(session, serial, shown, result);
            }
            Command::BindUdp { session, serial, context, shown } => {
                let result = self.bind_udp(ContextKey { session, context }, shown);
                self.answer(session, serial, shown, result);
            }
            Command::BindMessages { session, serial, context, shown, key, incarnation } => {
                let by = ContextKey { session, context };
                let result = self.bind_messages(by, shown, key, incarnation);
                self.answer(session, serial, shown, result);
            }
            Command::BindTcp { session, serial, shown } => {
                let result = self.authorize(session, shown);
                self.answer(session, serial, shown, result);
            }
            Command::OpenRaw { session, serial, context, seed } => {
                self.open_raw(session, serial, context, *seed);
            }
            Command::Register { session, serial, number, memory } => {
                self.register(session, serial, number, memory);
            }
            Command::Unregister { session, number } => self.unregister(session, number),
            Command::Interface { port, facts } => self.on_interface(port, facts),
            Command::Neighbor { port, address, mac } => {
                if let Some(attached) = self.ports.get(port) {
                    self.stack.on_neighbor(now, attached.interface, address, mac);
                }
            }
            Command::Heard => self.telling = self.telling.saturating_sub(1),
            Command::Reach => self.each_lane(|lane| lane.view.bump_reach()),
            Command::Open(is_open) => self.set_open(is_open),
            Command::Drain { limit_ns } => self.drain(limit_ns),
            Command::Close => self.close_all(),
            Command::RightEnded(key) => self.on_right_ended(key),
            Command::LeaveListener { key, lasting } => self.leave_listener(key, lasting),
            Command::Relay(key) => self.set_relay(key),
            Command::Fork { by, heir, serial } => {
                let refused = self.fork(by, heir).err();
                self.answers.push(Answer::Forked { by, heir, serial, refused });
            }
            Command::EndHeir(heir) => self.end_heir(heir),
            Command::Release { heir, endpoint } => self.release(heir, endpoint),
            Command::Pass { by, serial, endpoint, v6 } => {
                let outcome = self.pass(by, endpoint);
                self.answers.push(Answer::Passed { by, serial, v6, outcome });
            }
            Command::Sockets { place } => {
                let (sockets, next) = self.sockets_from(place);
                self.answers.push(Answer::Sockets { sockets, next });
            }
            Command::Stats => {
                self.copy_counters();
                self.answers.push(Answer::Stats);
            }
        }
    }

    /// Asks the control thread to query the kernel for neighbours.
    fn ask_kernel(&mut self) {
        while let Some((interface, address)) = self.stack.poll_question() {
            let port = self.ports.iter().position(|attached| attached.interface == interface);
            self.answers.extend(port.map(|port| Answer::AskNeighbor { port, address }));
        }
    }

    fn answer(
        &mut self,
        session: SessionKey,
        serial: u32,
        shown: Shown,
        result: Result<u32, Refusal>,
    ) {
        let Shown { kernel_local: local, key, .. } = shown;
        self.answers.push(match result {
            Ok(endpoint) => Answer::Granted { session, serial, endpoint, local },
            Err(Refusal { errno, reason }) => {
                Answer::Denied { session, serial, key, errno, reason }
            }
        });
    }

    /// Answers for the control thread since the last call.
    pub fn take_answers(&mut self) -> impl Iterator<Item = Answer> + '_ {
        self.answers.drain(..)
    }

    /// The geometry of sessions.
    pub fn geometry(limits: &Limits) -> Geometry {
        limits.geometry(1)
    }
}
