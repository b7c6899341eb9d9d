//! Transfers in one direction, as ttcp makes them: calls of a fixed size, one after the other.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use lab::failure::{Explain, Failure, Result};
use mio::net::TcpStream;
use mio::{Events, Poll};

use super::closed::connect;
use super::{Outcome, POLL_LIMIT, Phase, Progress, Window, lost};
use crate::bench::usage::Meter;

/// Calls on one connection before the next one has its turn.
const TURN: usize = 16;

/// What is moved.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// The client sends.
    pub is_sent: bool,
    /// Bytes of one call.
    pub bytes: usize,
    /// Connections.
    pub flows: usize,
}

/// Runs the load.
pub fn run(address: SocketAddr, transfer: &Transfer, window: &Window) -> Result<Outcome> {
    let meter = Meter::open(&window.sources)?;
    let mut poll = Poll::new().explain("cannot poll", "report this")?;
    let mut connections = connect(&mut poll, address, transfer.flows)?;
    let mut events = Events::with_capacity(1024);
    let mut piece = vec![0x5a; transfer.bytes.max(1)];
    let mut outcome = Outcome::default();
    let mut progress = Progress::begin(meter, window);
    // Writers are writable, and readers may have missed the event of what came while they connected.
    let mut queue: VecDeque<usize> = (0..connections.len()).collect();
    let mut is_queued = vec![true; connections.len()];
    let mut phase = Phase::WarmUp;
    while phase != Phase::Over {
        for _ in 0..queue.len() {
            let Some(key) = queue.pop_front() else { break };
            let (bytes, more) = turn(&mut connections[key].stream, transfer.is_sent, &mut piece)?;
            if phase == Phase::Window {
                outcome.bytes += bytes;
            }
            is_queued[key] = more;
            if more {
                queue.push_back(key);
            }
        }
        let limit = if queue.is_empty() { POLL_LIMIT } else { Duration::ZERO };
        match poll.poll(&mut events, Some(limit)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            polled => polled.explain("cannot poll", "report this")?,
        }
        for event in &events {
            let key = event.token().0;
            if !std::mem::replace(&mut is_queued[key], true) {
                queue.push_back(key);
            }
        }
        phase = progress.at(Instant::now())?;
    }
    outcome.operations = outcome.bytes / piece.len() as u64;
    outcome.usage = progress.usage()?;
    Ok(outcome)
}

/// Some calls on one connection: bytes moved, and whether there may be more at once.
fn turn(stream: &mut TcpStream, is_sent: bool, piece: &mut [u8]) -> Result<(u64, bool)> {
    let mut bytes = 0;
    for _ in 0..TURN {
        let moved = if is_sent { stream.write(piece) } else { stream.read(piece) };
        match moved {
            Ok(0) => {
                return Err(Failure::new("the server closed a connection", "check the server"));
            }
            Ok(moved) => bytes += moved as u64,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok((bytes, false)),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(lost(&error)),
        }
    }
    Ok((bytes, true))
}
