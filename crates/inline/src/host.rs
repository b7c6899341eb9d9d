//! The worker with what a control thread does for it elsewhere.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use client::Errno;
use engine::control::exchange::{Answer, Command, SessionKey, Shown};
use engine::session::{Breach, SessionSeed};
use engine::stats::Counters;
use engine::{PortSetup, Worker, WorkerConfig};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use stack::api::Instant;

use crate::errors::{OpenError, RunError};
use crate::open::Options;

/// The one session.
pub(crate) const SESSION: SessionKey = SessionKey(1);
/// Its one context.
const CONTEXT: u16 = 0;

/// Monotonic time as the worker counts it.
pub(crate) fn now() -> Instant {
    let time = clock_gettime(ClockId::Monotonic);
    Instant((time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64))
}

/// What an address is bound for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    /// Connections, with the length of the queue.
    Listener(u32),
    /// Datagrams.
    Datagrams,
}

struct Running {
    worker: Worker,
    /// Names the next socket, as a kernel socket's cookie does elsewhere.
    next_cookie: u64,
    /// The program broke the contract, so.
    breach: Option<Breach>,
    /// The last memory of the session has been returned.
    is_gone: bool,
}

/// The worker and its clock. The mutex is there because a session may call its pump from any
/// thread; everything here runs in one, so it is never contended.
pub(crate) struct Host {
    running: Mutex<Running>,
    counters: Arc<Counters>,
}

impl Host {
    pub fn new(setups: Vec<PortSetup>, options: &Options) -> Result<Self, OpenError> {
        let mut seed = [0; 32];
        rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())
            .map_err(OpenError::System)?;
        let limits = options.limits;
        let stack_limits = stack::Limits {
            listeners: limits.listeners,
            udp_sockets: limits.udp_sockets,
            neighbors: limits.neighbors,
            ..stack::Limits::default()
        };
        let counters = Arc::new(Counters::default());
        let config = WorkerConfig { limits, stack_limits, tcp: options.tcp, seed, index: 0 };
        let worker = Worker::new(config, setups, Arc::clone(&counters), now())
            .map_err(OpenError::TooManyPorts)?;
        let running = Running { worker, next_cookie: 1, breach: None, is_gone: false };
        Ok(Self { running: Mutex::new(running), counters })
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn attach(&self, seed: SessionSeed) {
        self.running().worker.on_command(Command::Attach(Box::new(seed)), now());
    }

    pub fn detach(&self) {
        self.running().worker.on_command(Command::Detach(SESSION), now());
    }

    /// Whether the session has ended and everything that it wrote is delivered or given up.
    pub fn is_gone(&self) -> bool {
        self.running().is_gone
    }

    /// A turn; whether it found something.
    pub fn turn(&self) -> Result<bool, RunError> {
        let mut running = self.running();
        let activity = running.worker.turn_by(now(), &now);
        running.hear();
        if let Some(breach) = running.breach {
            return Err(RunError::Breached(breach));
        }
        if running.worker.has_lost_all() {
            return Err(RunError::PortsLost);
        }
        Ok(activity.worked())
    }

    /// Sleeps until a port has frames, a timer is due or `until`. Returns at once where there is work,
    /// or where a port must be polled.
    pub fn sleep(&self, until: Option<Instant>) -> Result<(), RunError> {
        let mut running = self.running();
        if !running.worker.prepare_sleep() {
            return Ok(());
        }
        let wake = running.worker.next_deadline().into_iter().chain(until).min();
        let left = wake.map(|wake| wake.0.saturating_sub(now().0));
        let timeout = left.map(|ns| Timespec {
            tv_sec: (ns / 1_000_000_000) as i64,
            tv_nsec: (ns % 1_000_000_000) as i64,
        });
        self.counters.sleeps.increment();
        let mut fds: Vec<PollFd<'_>> = running
            .worker
            .wait_fds()
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let slept = poll(&mut fds, timeout.as_ref());
        drop(fds);
        running.worker.awake();
        match slept {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(RunError::System(errno)),
        }
    }

    /// Has the worker serve `local`; the endpoint that it granted.
    pub fn bind(&self, local: SocketAddr, bound: Bound) -> Result<u32, (Errno, String)> {
        let mut running = self.running();
        let cookie = running.next_cookie;
        running.next_cookie += 1;
        let (session, serial, context) = (SESSION, cookie as u32, CONTEXT);
        let shown = Shown::alone(local, cookie);
        running.worker.on_command(
            match bound {
                Bound::Listener(backlog) => {
                    let beside = Vec::new();
                    Command::Listen { session, serial, context, backlog, shown, beside }
                }
                Bound::Datagrams => Command::BindUdp { session, serial, context, shown },
            },
            now(),
        );
        running.hear_bind(serial)
    }

    /// Names and values of all counters.
    pub fn counters(&self) -> Vec<(String, u64)> {
        self.running().worker.copy_counters();
        self.counters.read()
    }
}

impl Running {
    /// Takes what the worker tells a control thread.
    fn hear(&mut self) {
        let answers: Vec<Answer> = self.worker.take_answers().collect();
        for answer in answers {
            self.heard(answer);
        }
    }

    fn heard(&mut self, answer: Answer) {
        match answer {
            Answer::Breached(_, breach) => self.breach = Some(breach),
            Answer::Gone(_) => self.is_gone = true,
            // There is nobody to tell, but the next one only comes after this.
            Answer::Interface { .. } => self.worker.on_command(Command::Heard, now()),
            // Everything else is about sockets and neighbours of the kernel, of which there are none.
            _ => {}
        }
    }

    /// The answer to the bind `wanted`, which the worker gives at once.
    fn hear_bind(&mut self, wanted: u32) -> Result<u32, (Errno, String)> {
        let mut result = Err((Errno::PROTO, "the worker did not answer".to_owned()));
        let answers: Vec<Answer> = self.worker.take_answers().collect();
        for answer in answers {
            match answer {
                Answer::Granted { serial, endpoint, .. } if serial == wanted => {
                    result = Ok(endpoint);
                }
                Answer::Denied { serial, errno, reason, .. } if serial == wanted => {
                    result = Err((Errno::from_raw_os_error(errno), reason));
                }
                other => self.heard(other),
            }
        }
        result
    }
}

/// Whether a host with `own` addresses may bind `wanted`.
pub(crate) fn may_bind(own: &[IpAddr], wanted: IpAddr) -> bool {
    wanted.is_unspecified() || own.contains(&wanted)
}
