//! Threads around a worker: the polling loop with its clock and its sleep, and the control
//! thread.

pub mod bridge;
mod dividing;
pub mod message;
pub mod mirror;
pub mod raw;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CpuSet, sched_getaffinity, sched_setaffinity, sched_yield};
use rustix::time::{ClockId, clock_gettime};
use shm::control::{InterfaceInfo, RawPort, Way};
use shm::stats::StatsPage;
use stack::api::{Instant, Ipv6Mode};

use self::bridge::Bridges;
use crate::config::{EngineConfig, Poll, PortSetup};
use crate::control::capture::Captures;
use crate::control::exchange::{Answer, Command, Inbox, Outbox, Stop, exchange};
use crate::control::raw::RawPolicy;
use crate::control::{Control, ControlSetup, ControlSocket, FOREIGN_RULES, Policy};
use crate::errors::EngineError;
use crate::kernel::Kernel;
use crate::occupancy::{Occupancy, Patience};
use crate::privileges;
use crate::stats::Counters;
use crate::worker::{Worker, WorkerConfig};

/// Why an engine did not start.
#[derive(Debug)]
pub struct StartError(String);

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

/// A running engine: its worker and its control thread.
pub struct Engine {
    stop: StopHandle,
    counters: Arc<Counters>,
    threads: Vec<JoinHandle<Result<(), EngineError>>>,
}

/// Ends an engine from another thread. [`Engine::join`] returns when it has ended.
#[derive(Clone)]
pub struct StopHandle {
    stop: Arc<Stop>,
    worker: Outbox<Command>,
}

impl StopHandle {
    /// Admits no new programs or connections and waits for existing ones, at most for `limit`; then
    /// as [`StopHandle::close`]. A limit of zero does not wait.
    pub fn drain(&self, limit: Duration) {
        let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        // If the worker is gone, it has already ended.
        self.worker.send(Command::Drain { limit_ns });
    }

    /// Closes all connections as by close(2), and ends when their data is delivered, at the latest
    /// after one second.
    pub fn close(&self) {
        self.worker.send(Command::Close);
    }

    /// Ends at once. Nothing is sent to peers.
    pub fn stop(&self) {
        self.stop.stop();
    }
}

impl Engine {
    /// Opens the control socket and starts polling; clients may attach when this returns.
    ///
    /// # Errors
    /// A sentence: which limit, socket, kernel feature or thread is not available.
    pub fn start(config: EngineConfig, ports: Vec<PortSetup>) -> Result<Self, StartError> {
        let fail = |what: &'static str| move |error: Errno| StartError(format!("{what}: {error}"));
        if ports.is_empty() {
            return Err(StartError("the engine has no port; give it at least one".into()));
        }
        config.limits.check().map_err(|bad| StartError(format!("{bad}; {}", bad.advice())))?;
        let geometry = *shm::layout::Layout::sized(config.limits.geometry(1))
            .map_err(|bad| StartError(format!("the limits do not make a valid region: {bad}")))?
            .geometry();
        let socket = ControlSocket::open(&config.socket, config.socket_mode, config.socket_group)
            .map_err(|error| StartError(error.to_string()))?;
        let mut ports = ports;
        let kernel = follow_kernel(&mut ports)?;
        let mut interfaces: Vec<InterfaceInfo> = ports.iter().map(interface_info).collect();
        if let Some(kernel) = &kernel {
            kernel.tell(&mut interfaces);
        }
        let raw_ports = ports.iter().map(raw_port).collect();
        let untakeable = ports.iter().filter(|setup| is_untakeable(setup));
        let untakeable = untakeable.map(|setup| setup.port.info().name.clone()).collect();
        let mut switches = Vec::with_capacity(ports.len());
        let ports = ports.into_iter().map(|setup| tapped(setup, &mut switches)).collect();
        let counters = Arc::new(Counters::default());
        let stop = Stop::new().map_err(fail("eventfd"))?;
        let (commands, command_inbox) = exchange::<Command>().map_err(fail("eventfd"))?;
        let (answers, answer_inbox) = exchange::<Answer>().map_err(fail("eventfd"))?;
        let mut seed = [0u8; 32];
        rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())
            .map_err(fail("drawing random numbers"))?;
        let worker_config = WorkerConfig {
            limits: config.limits,
            stack_limits: stack::Limits {
                listeners: config.limits.listeners,
                udp_sockets: config.limits.udp_sockets,
                neighbors: config.limits.neighbors,
                ..stack::Limits::default()
            },
            tcp: config.tcp,
            seed,
            index: 0,
        };
        let mut worker = Worker::new(worker_config, ports, Arc::clone(&counters), now())
            .map_err(|error| StartError(error.to_string()))?;
        worker.follow_sockets();
        worker.set_bridges(Bridges::new(config.bridges));
        let mut mirrors = Vec::with_capacity(config.mirrors.len());
        for rule in config.mirrors {
            let running = mirror::start(rule).map_err(StartError)?;
            mirrors.push(worker.add_mirror(running).map_err(StartError)?);
        }
        worker.set_open(!kernel.as_ref().is_some_and(Kernel::has_rules));
        worker.copy_counters();
        let page = StatsPage::create(&counters.names()).map_err(fail("the statistics page"))?;
        let page = Arc::new(page);
        let policy = Policy {
            limits: config.limits,
            rules: config.rules,
            raw: RawPolicy {
                rules: config.raw,
                ports: raw_ports,
                elsewhere: config.ports_elsewhere,
                untakeable,
            },
            trial: config.trial,
            accelerated: config.accelerated,
        };
        let handle = StopHandle { stop: Arc::clone(&stop), worker: commands.clone() };
        let control = Control::new(ControlSetup {
            socket,
            policy,
            geometry,
            interfaces,
            worker: commands,
            answers: answer_inbox,
            counters: Arc::clone(&counters),
            stop: Arc::clone(&stop),
            captures: Captures::new(switches),
            page: Arc::clone(&page),
            kernel,
            relay: config.relay.and_then(Arc::into_inner),
        })
        .map_err(|error| {
            StartError(format!("SO_NETNS_COOKIE: {error}; Linux 5.14 or newer is needed"))
        })?;
        let (ready, started) = std::sync::mpsc::channel();
        let polling = Polling {
            worker,
            inbox: command_inbox,
            outbox: answers,
            stop: Arc::clone(&stop),
            counters: Arc::clone(&counters),
            mode: config.poll,
            page,
            published_at: Instant(0),
            unpublished: true,
            lanes: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(fail("epoll"))?,
            occupancy: Occupancy::default(),
            patience: Patience::new(),
        };
        let core = config.core;
        let worker_thread = std::thread::Builder::new()
            .name("outboard-w0".into())
            .spawn(move || {
                let pinned = pin(core);
                let _end = EndOfAll(Arc::clone(&polling.stop));
                privileges::keep_or_warn(CapabilitySet::empty());
                let usable = pinned.is_ok();
                // The starting thread waits for this message.
                let _ = ready.send(pinned);
                if usable { polling.run() } else { Ok(()) }
            })
            .map_err(|error| StartError(format!("starting the worker: {error}")))?;
        match started.recv() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(unusable(core, error)),
            Err(_) => return Err(StartError("the worker ended at once".into())),
        }
        let control_thread = std::thread::Builder::new()
            .name("outboard-ctl".into())
            .spawn(move || {
                let _end = EndOfAll(Arc::clone(&stop));
                control.run();
                Ok(())
            })
            .map_err(|error| StartError(format!("starting the control thread: {error}")))?;
        let mut threads = vec![worker_thread, control_thread];
        threads.extend(mirrors);
        Ok(Self { stop: handle, counters, threads })
    }

    /// A handle that ends the engine.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// The engine's counters.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Waits until the engine has ended.
    ///
    /// # Errors
    /// When one of its threads panicked, or when no port was left to serve.
    pub fn join(self) -> Result<(), EngineError> {
        let mut result = Ok(());
        for thread in self.threads {
            let name = thread.thread().name().unwrap_or_default().to_string();
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(reason)) => result = Err(reason),
                Err(_) => result = Err(EngineError::Panicked { thread: name }),
            }
        }
        result
    }
}

/// The engine cannot continue without one of its threads: when one ends, also by a panic, all end.
struct EndOfAll(Arc<Stop>);

impl Drop for EndOfAll {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn raw_port(setup: &PortSetup) -> RawPort {
    let info = setup.port.info();
    RawPort { name: info.name.clone(), mac: info.mac.0, mtu: info.mtu }
}

/// Whether the kernel gets its frames before the engine sees any.
fn is_untakeable(setup: &PortSetup) -> bool {
    setup.port.info().shared.is_some_and(|shared| !shared.is_divided)
}

fn interface_info(setup: &PortSetup) -> InterfaceInfo {
    let info = setup.port.info();
    let way = |to: &stack::api::Destination| Way {
        network: to.network,
        prefix: to.prefix,
        is_here: true,
    };
    InterfaceInfo {
        name: info.name.clone(),
        addresses: setup.addresses.iter().map(|cidr| (cidr.address, cidr.prefix)).collect(),
        has_gateway: setup.gateway.is_some(),
        mtu: info.mtu,
        routes: setup.routes.iter().map(way).collect(),
        shared: info.shared.is_some(),
        kernel_index: info.kernel_index,
    }
}

/// Reads addresses and routes from the kernel for the ports that share an interface with it.
fn follow_kernel(ports: &mut [PortSetup]) -> Result<Option<Kernel>, StartError> {
    let fail = |error| StartError(format!("querying the kernel's interfaces: {error}"));
    let mut kernel = None;
    for (number, setup) in ports.iter_mut().enumerate() {
        let Some(shared) = setup.port.info().shared else { continue };
        let kernel = match &mut kernel {
            Some(kernel) => kernel,
            None => kernel.insert(Kernel::open().map_err(fail)?),
        };
        let facts = kernel.watch(number, shared.interface_index).map_err(fail)?;
        let name = &setup.port.info().name;
        if facts.addresses.is_empty() {
            let next_step = match kernel.master(shared.interface_index) {
                Some(master) => {
                    format!("it is a port of {master}: start the engine on that bridge")
                }
                None => "give it one (ip addr add)".to_owned(),
            };
            tracing::warn!(
                "{name}: the interface has no address, so nothing is accelerated until it has one; \
                 {next_step}"
            );
        }
        (setup.addresses, setup.gateway, setup.routes) =
            (facts.addresses, facts.gateway, facts.routes);
        setup.ipv6 = Ipv6Mode::Static;
    }
    if kernel.as_ref().is_some_and(Kernel::has_rules) {
        tracing::warn!("{FOREIGN_RULES}");
    }
    Ok(kernel)
}

/// Wraps a port for captures.
fn tapped(setup: PortSetup, switches: &mut Vec<(String, port::pcap::Switch)>) -> PortSetup {
    let name = setup.port.info().name.clone();
    let (port, switch) = port::pcap::wrap(setup.port);
    switches.push((name, switch));
    PortSetup { port: Box::new(port), ..setup }
}

/// Checks whether a worker could be pinned to a core, before there is one.
///
/// # Errors
/// If this process may not use it, or there is no such core.
pub fn check_core(core: Option<usize>) -> Result<(), StartError> {
    let before = sched_getaffinity(None).map_err(|error| unusable(core, error))?;
    pin(core).map_err(|error| unusable(core, error))?;
    sched_setaffinity(None, &before).map_err(|error| unusable(core, error))
}

fn unusable(core: Option<usize>, error: Errno) -> StartError {
    StartError(format!(
        "pinning the worker to core {}: {error}; choose a core that this process may use",
        core.unwrap_or_default()
    ))
}

fn pin(core: Option<usize>) -> rustix::io::Result<()> {
    let Some(core) = core else { return Ok(()) };
    if core >= CpuSet::MAX_CPU {
        return Err(Errno::INVAL);
    }
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set)
}

/// The engine's clock.
fn now() -> Instant {
    let time = clock_gettime(ClockId::Monotonic);
    Instant((time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64))
}

/// Interval at which a polling worker checks lanes that it does not poll, and lanes that have gone
/// idle.
const LANES_EVERY_NS: u64 = 20_000;

/// Interval at which the statistics page is updated.
const PUBLISH_EVERY_NS: u64 = 100_000_000;

/// Longest sleep of a worker that yields, in nanoseconds.
const MOMENT_NS: i64 = 100_000;

/// A shorter yield has not switched to another task.
const SWITCH_NS: u64 = 4_000;

/// Processor time of this thread.
fn own_time_ns() -> u64 {
    let own = clock_gettime(ClockId::ThreadCPUTime);
    own.tv_sec as u64 * 1_000_000_000 + own.tv_nsec as u64
}

/// The polling loop of one worker.
struct Polling {
    worker: Worker,
    inbox: Inbox<Command>,
    outbox: Outbox<Answer>,
    stop: Arc<Stop>,
    counters: Arc<Counters>,
    mode: Poll,
    page: Arc<StatsPage>,
    published_at: Instant,
    /// Counters have changed since the last update.
    unpublished: bool,
    /// Watches the pipes of all lanes.
    lanes: std::os::fd::OwnedFd,
    occupancy: Occupancy,
    patience: Patience,
}

impl Polling {
    /// Runs until the end; the error is the reason if that was a failure.
    fn run(mut self) -> Result<(), EngineError> {
        let mut worked_at = now();
        let mut lanes_at = worked_at;
        let mut cpu = None;
        let mut start = worked_at;
        while !self.stop.is_stopped() {
            self.take_commands(start);
            let activity = self.worker.turn_by(start, &now);
            self.give_answers();
            if self.worker.has_ended() {
                self.stop.stop();
            }
            let mut end = now();
            if activity.worked() {
                worked_at = end;
                self.unpublished = true;
            }
            if end.0.saturating_sub(lanes_at.0) >= LANES_EVERY_NS {
                lanes_at = end;
                self.look_after_lanes(end);
                self.publish(end);
                let (busy_ns, idle_ns) = self.occupancy.look(end.0, own_time_ns());
                self.counters.busy_ns.add(busy_ns);
                self.counters.idle_ns.add(idle_ns);
                let here = rustix::thread::sched_getcpu() as u32;
                if cpu != Some(here) {
                    cpu = Some(here);
                    self.worker.set_cpu(here);
                }
            }
            if !activity.worked() {
                let slept = self.idle(start, end, worked_at);
                end = now();
                if slept {
                    worked_at = end;
                }
            }
            start = end;
        }
        match self.worker.has_lost_all() {
            true => Err(EngineError::PortsLost),
            false => Ok(()),
        }
    }

    /// A turn from `start` to `end` found nothing to do. Sleeps if that has lasted long enough, and
    /// yields to programs; returns whether it slept.
    fn idle(&mut self, start: Instant, end: Instant, worked_at: Instant) -> bool {
        if self.occupancy.is_shared(end.0) && self.worker.somebody_runs() {
            self.give_way(end);
            return false;
        }
        if self.mode == Poll::Busy {
            self.occupancy.idled(end.0.saturating_sub(start.0));
            return false;
        }
        if self.patience.is_over(end.0.saturating_sub(worked_at.0)) {
            self.sleep(end);
            let slept = now().0.saturating_sub(end.0);
            self.occupancy.slept(slept);
            self.patience.slept(slept);
            return true;
        }
        // A program in the same scheduling group runs now and not only at the end of our time
        // slice.
        self.counters.yields.increment();
        sched_yield();
        self.occupancy.idled(now().0.saturating_sub(start.0));
        false
    }

    /// Updates the statistics page periodically.
    fn publish(&mut self, now: Instant) {
        if now.0.saturating_sub(self.published_at.0) >= PUBLISH_EVERY_NS && self.unpublished {
            self.unpublished = false;
            self.published_at = now;
            self.worker.copy_counters();
            self.page.publish(self.counters.read().into_iter().map(|(_, value)| value));
        }
    }

    fn take_commands(&mut self, now: Instant) {
        for command in self.inbox.take() {
            if let Command::Attach(seed) = &command {
                for (lane, pipes) in seed.pipes.iter().flatten().enumerate() {
                    let data = epoll::EventData::new_u64(seed.key.0 << 16 | lane as u64);
                    let added = epoll::add(
                        &self.lanes,
                        &pipes.woken_by_client,
                        data,
                        epoll::EventFlags::IN,
                    );
                    if let Err(error) = added {
                        // The lane is polled anyway; only a sleep would miss it.
                        tracing::error!("cannot wait for a lane: {error}");
                    }
                }
            }
            self.worker.on_command(command, now);
        }
    }

    fn give_answers(&mut self) {
        for answer in self.worker.take_answers() {
            // A control thread that has ended needs no answers.
            let _ = self.outbox.send(answer);
        }
    }

    /// Serves the pipes of lanes that are not polled, and stops polling idle ones.
    fn look_after_lanes(&mut self, now: Instant) {
        if self.worker.demote_idle_lanes(now) {
            self.take_rings(now);
        }
    }

    fn take_rings(&mut self, now: Instant) {
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 64];
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok((rung, _)) = epoll::wait(&self.lanes, &mut events, Some(&zero)) else { return };
        for event in rung {
            let data = event.data.u64();
            let key = crate::control::exchange::SessionKey(data >> 16);
            let lane = data as u16;
            if !self.worker.lane_rang(key, lane, now) {
                // The client is gone, which the control socket reports as well; its pipe would keep
                // us awake.
                self.worker.with_lane_pipe(key, lane, |fd: BorrowedFd<'_>| {
                    let _ = epoll::delete(&self.lanes, fd);
                });
            }
        }
    }

    /// Yields the CPU to a program. Frames wait meanwhile, and more of them are processed at a time.
    ///
    /// If the scheduler switches to the program, the worker runs again as soon as the program
    /// blocks, and neither has to wake the other. If it does not, because the program has used its
    /// share, the worker sleeps until the program blocks or for a moment.
    fn give_way(&mut self, now: Instant) {
        self.counters.ways_given.increment();
        sched_yield();
        let yielded = crate::service::now();
        if yielded.0.saturating_sub(now.0) >= SWITCH_NS {
            return;
        }
        if self.inbox.signal().is_raised() || !self.worker.prepare_giving_way() {
            return;
        }
        let moment = Timespec { tv_sec: 0, tv_nsec: MOMENT_NS };
        let mut fds = [
            PollFd::from_borrowed_fd(self.stop.fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.inbox.signal().fd(), PollFlags::IN),
            PollFd::new(&self.lanes, PollFlags::IN),
        ];
        let _ = poll(&mut fds, Some(&moment));
        let rung = !fds[2].revents().is_empty();
        self.worker.awake();
        let woken = crate::service::now();
        self.occupancy.slept(woken.0.saturating_sub(yielded.0));
        if rung {
            self.take_rings(woken);
        }
    }

    fn sleep(&mut self, now: Instant) {
        if self.inbox.signal().is_raised() || !self.worker.prepare_sleep() {
            return;
        }
        let timeout = match self.worker.next_deadline() {
            Some(deadline) if deadline <= now => {
                self.worker.awake();
                return;
            }
            Some(deadline) => Some(deadline.0 - now.0),
            None => None,
        };
        // Counters are published soon, even if nothing else happens.
        let timeout = match self.unpublished {
            true => Some(timeout.unwrap_or(u64::MAX).min(PUBLISH_EVERY_NS)),
            false => timeout,
        };
        let timeout = timeout.map(|ns| Timespec {
            tv_sec: (ns / 1_000_000_000) as i64,
            tv_nsec: (ns % 1_000_000_000) as i64,
        });
        self.counters.sleeps.increment();
        let mut fds = Vec::with_capacity(8);
        fds.push(PollFd::from_borrowed_fd(self.stop.fd(), PollFlags::IN));
        fds.push(PollFd::from_borrowed_fd(self.inbox.signal().fd(), PollFlags::IN));
        fds.push(PollFd::new(&self.lanes, PollFlags::IN));
        for fd in self.worker.wait_fds() {
            fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
        }
        // On interruption or failure the loop keeps polling, which is always correct.
        let _ = poll(&mut fds, timeout.as_ref());
        let rung = fds.get(2).is_some_and(|fd| !fd.revents().is_empty());
        drop(fds);
        self.worker.awake();
        self.publish(crate::service::now());
        if rung {
            self.take_rings(crate::service::now());
        }
    }
}
