//! Short connections: connect, one request, its answer, the server's close; so many at a time, each
//! followed by the next.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::Instant;

use lab::failure::{Explain, Failure, Result};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::closed::wait;
use super::{Latencies, MESSAGE_BYTES, Outcome, Phase, Progress, Window, lost};
use crate::bench::usage::Meter;

/// Failed connections in a row after which there is no use in going on.
const FAILURES_MAX: u32 = 1000;

/// A connection in one of the places.
struct Connection {
    stream: TcpStream,
    begun: Instant,
    is_asked: bool,
    answered: usize,
}

/// What became of a connection.
enum Fate {
    Waits,
    Done,
    Failed,
}

/// Runs the load with `concurrency` connections at a time.
pub fn run(address: SocketAddr, concurrency: usize, window: &Window) -> Result<Outcome> {
    let meter = Meter::open(&window.sources)?;
    let mut poll = Poll::new().explain("cannot poll", "report this")?;
    let mut events = Events::with_capacity(1024);
    let mut latencies = Latencies::new();
    let mut outcome = Outcome::default();
    let mut failures = 0;
    let mut connections: Vec<Connection> = Vec::with_capacity(concurrency);
    for place in 0..concurrency {
        connections.push(open(&poll, address, place)?);
    }
    let mut progress = Progress::begin(meter, window);
    let mut phase = Phase::WarmUp;
    while phase != Phase::Over {
        wait(&mut poll, &mut events)?;
        for event in &events {
            let place = event.token().0;
            let fate = go_on(&mut connections[place]);
            match fate {
                Fate::Waits => continue,
                Fate::Done => failures = 0,
                Fate::Failed => failures += 1,
            }
            if failures > FAILURES_MAX {
                let cause = format!("{failures} connections failed in a row");
                return Err(Failure::new(cause, "check whether the server accepts"));
            }
            if phase == Phase::Window {
                match fate {
                    Fate::Done => {
                        outcome.operations += 1;
                        latencies.record(connections[place].begun.elapsed());
                    }
                    _ => outcome.errors += 1,
                }
            }
            connections[place] = open(&poll, address, place)?;
        }
        phase = progress.at(Instant::now())?;
    }
    outcome.bytes = outcome.operations * MESSAGE_BYTES as u64;
    outcome.latency = latencies.quantiles();
    outcome.usage = progress.usage()?;
    Ok(outcome)
}

fn open(poll: &Poll, address: SocketAddr, place: usize) -> Result<Connection> {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(address).map_err(|error| lost(&error))?;
    poll.registry()
        .register(&mut stream, Token(place), Interest::READABLE | Interest::WRITABLE)
        .explain("cannot watch a connection", "report this")?;
    Ok(Connection { stream, begun, is_asked: false, answered: 0 })
}

/// Does what can be done. An event may be of the connection that had the place before.
fn go_on(connection: &mut Connection) -> Fate {
    let Connection { stream, is_asked, answered, .. } = connection;
    if !*is_asked {
        match stream.take_error() {
            Ok(None) => {}
            Ok(Some(_)) | Err(_) => return Fate::Failed,
        }
        if stream.peer_addr().is_err() {
            return Fate::Waits;
        }
        // Room for one message is in every empty buffer.
        match stream.write(&[0x5a; MESSAGE_BYTES]) {
            Ok(MESSAGE_BYTES) => *is_asked = true,
            _ => return Fate::Failed,
        }
    }
    let mut piece = [0; 2 * MESSAGE_BYTES];
    loop {
        match stream.read(&mut piece) {
            Ok(0) if *answered == MESSAGE_BYTES => return Fate::Done,
            Ok(0) => return Fate::Failed,
            Ok(got) => *answered += got,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Fate::Waits,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Fate::Failed,
        }
    }
}
