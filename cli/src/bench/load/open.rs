//! Requests in an open loop: each has a time at which it is due, whatever became of those before it,
//! and its latency counts from that time.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::{Duration, Instant};

use lab::failure::{Explain, Result};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::closed::{Connection, connect};
use super::{Latencies, MESSAGE_BYTES, Outcome, PIECE_BYTES, POLL_LIMIT, Phase, Progress, Window};
use crate::bench::usage::Meter;

const TIMER: Token = Token(usize::MAX);
/// The next request is waited for by polling when it is due so soon: a timer is late by more.
const SOON: Duration = Duration::from_micros(30);
/// Requests under way on one connection at most; those beyond are late, and their latency says so.
const UNDER_WAY_MAX: usize = 256;

/// How requests come.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// Requests a second.
    pub rate: u64,
    /// Connections, which take turns.
    pub connections: usize,
}

/// Runs the load.
pub fn run(address: SocketAddr, schedule: Schedule, window: &Window) -> Result<Outcome> {
    let meter = Meter::open(&window.sources)?;
    let mut poll = Poll::new().explain("cannot poll", "report this")?;
    let mut connections = connect(&mut poll, address, schedule.connections.max(1))?;
    let timer =
        timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)
            .explain("cannot create a timer", "report this")?;
    poll.registry()
        .register(&mut SourceFd(&timer.as_fd().as_raw_fd()), TIMER, Interest::READABLE)
        .explain("cannot watch a timer", "report this")?;
    let mut events = Events::with_capacity(1024);
    let mut piece = vec![0; PIECE_BYTES];
    let mut latencies = Latencies::new();
    let mut outcome = Outcome::default();
    let interval = Duration::from_nanos(1_000_000_000 / schedule.rate.max(1));
    let mut due = Instant::now() + interval;
    let mut next = 0;
    let mut progress = Progress::begin(meter, window);
    let mut phase = Phase::WarmUp;
    while phase != Phase::Over {
        let now = Instant::now();
        while due <= now {
            let Some(connection) = with_room(&mut connections, &mut next) else { break };
            connection.request(due);
            connection.write()?;
            due += interval;
        }
        let left = due.saturating_duration_since(Instant::now());
        let limit = if left < SOON {
            Duration::ZERO
        } else {
            set(&timer, left)?;
            POLL_LIMIT
        };
        match poll.poll(&mut events, Some(limit)) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            polled => polled.explain("cannot poll", "report this")?,
        }
        for event in &events {
            // Setting the timer anew takes its expiry back.
            let Some(connection) = connections.get_mut(event.token().0) else { continue };
            let now = Instant::now();
            let answered = |due: Instant| {
                if phase == Phase::Window {
                    latencies.record(now.saturating_duration_since(due));
                }
            };
            let answers = connection.read(&mut piece, answered)?;
            if phase == Phase::Window {
                outcome.operations += answers as u64;
            }
            connection.write()?;
        }
        phase = progress.at(Instant::now())?;
    }
    outcome.bytes = outcome.operations * MESSAGE_BYTES as u64;
    outcome.latency = latencies.quantiles();
    outcome.usage = progress.usage()?;
    Ok(outcome)
}

/// The next connection in turn that may have one more request under way.
fn with_room<'a>(
    connections: &'a mut [Connection],
    next: &mut usize,
) -> Option<&'a mut Connection> {
    let count = connections.len();
    let found = (0..count)
        .map(|step| (*next + step) % count)
        .find(|&at| connections[at].due.len() < UNDER_WAY_MAX)?;
    *next = (found + 1) % count;
    connections.get_mut(found)
}

/// Has the timer expire after `left`.
fn set(timer: impl std::os::fd::AsFd, left: Duration) -> Result<()> {
    let once = Itimerspec {
        it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        },
    };
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &once)
        .map(drop)
        .explain("cannot set a timer", "report this")
}
