//! Very many connections between two stacks: made, left alone with keepalives, some of them talking,
//! closed. What they take of memory is measured by whoever can (`Settings::memory`).
//!
//! Not whole engines, as the rest of this room: a million connections are a matter of the stack's
//! tables, and frames pass from one stack to the other without a network in between.

mod pair;
mod storm;

use stack::api::{Cidr, SocketId};

pub use storm::{Storm, StormReport, storm};

use crate::random::Random;
use crate::violation::Violation;
use pair::{CLIENT, CLIENT_PORTS, Pair, SERVER, TICK_NS, second};

/// Connections that are under way at a time while they are made or closed: less than queues hold.
const BATCH: u32 = 1024;
/// Bytes of a request, and of its answer.
const REQUEST_BYTES: u64 = 200;
/// How long connections are left alone: beyond the two hours of a keepalive.
const IDLE_S: u64 = 3 * 3600;

/// What to do.
#[derive(Clone, Copy)]
pub struct ScaleSettings<'a> {
    /// How many connections.
    pub connections: u32,
    /// One of so many talks.
    pub talkers_of: u32,
    /// Bytes of memory in use now.
    pub memory: &'a dyn Fn() -> u64,
    /// Told what is going on: what, how many of how many.
    pub progress: &'a dyn Fn(&str, u32, u32),
}

/// What it came to. Memory is in bytes of one connection in one stack.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScaleReport {
    /// Connections that stood at the same time.
    pub connections: u32,
    /// Memory when all stood.
    pub bytes_established: f64,
    /// Memory after they were left alone.
    pub bytes_idle: f64,
    /// Memory after some had talked.
    pub bytes_talked: f64,
    /// Keepalive probes that were answered.
    pub keepalives: u64,
    /// Connections that talked.
    pub talked: u32,
    /// Frames in all.
    pub frames: u64,
    /// Virtual nanoseconds.
    pub virtual_ns: u64,
}

/// Runs it all.
///
/// # Errors
/// With a sentence when a connection fails, or when something is left at the end.
pub fn run(settings: &ScaleSettings<'_>) -> Result<ScaleReport, Violation> {
    let count = settings.connections;
    let before = (settings.memory)();
    let mut pair = Pair::new(count, false);
    // One stack's share of a connection; ids that only the run needs are not the stack's.
    let ids = 2 * size_of::<SocketId>() as u64;
    let per_connection = |of: &Pair| {
        let own = u64::from(of.connections()) * ids;
        let used = (settings.memory)().saturating_sub(before).saturating_sub(own);
        used as f64 / f64::from(count) / 2.0
    };
    let mut made = 0;
    while made < count {
        let batch = BATCH.min(count - made);
        pair.connect(batch)?;
        made += batch;
        (settings.progress)("established", made, count);
    }
    // Until what the handshakes left has run out.
    pair.run_for(second(10));
    let mut report = ScaleReport { connections: pair.standing(), ..ScaleReport::default() };
    if report.connections != count {
        return Err(format!("{} of {count} connections stand", report.connections).into());
    }
    report.bytes_established = per_connection(&pair);
    pair.run_for(second(IDLE_S));
    (settings.progress)("left alone for three hours", count, count);
    report.bytes_idle = per_connection(&pair);
    report.keepalives = pair.keepalives();
    if report.keepalives < u64::from(count) || pair.standing() != count {
        return Err(format!(
            "{} keepalives were sent, and {} of {count} connections stand",
            report.keepalives,
            pair.standing()
        )
        .into());
    }
    let mut random = Random::new(1, 7);
    for connection in 0..count {
        if random.chance(1, settings.talkers_of.into()) {
            pair.ask(connection, REQUEST_BYTES)?;
            report.talked += 1;
        }
        if connection % BATCH == 0 {
            pair.run_for(TICK_NS);
            (settings.progress)("talking", connection, count);
        }
    }
    pair.run_for(second(10));
    let answered = pair.answered_bytes();
    let asked = u64::from(report.talked) * REQUEST_BYTES;
    if answered != asked {
        return Err(format!("{answered} of {asked} bytes were answered").into());
    }
    report.bytes_talked = per_connection(&pair);
    for first in (0..count).step_by(BATCH as usize) {
        let past = count.min(first + BATCH);
        pair.close(CLIENT, first..past)?;
        (settings.progress)("closed", past, count);
    }
    pair.expect_nothing_left()?;
    report.frames = pair.frames();
    report.virtual_ns = pair.now();
    Ok(report)
}

/// An address of a side's own: the servers' is one, clients have as many as their ports ask for.
fn address(side: usize, number: u32) -> Cidr {
    let [high, low] = (number as u16).to_be_bytes();
    let third = if side == SERVER { 200 } else { high };
    Cidr { address: [10, 0, third, low + 1].into(), prefix: 16 }
}

/// Addresses that so many connections of clients need.
fn addresses_for(connections: u32) -> u32 {
    connections.div_ceil(u32::from(CLIENT_PORTS.1 - CLIENT_PORTS.0)).max(1)
}
