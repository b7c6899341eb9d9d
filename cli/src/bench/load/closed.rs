//! Requests in a closed loop: each answer is followed by the next request.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::Instant;

use lab::failure::{Explain, Failure, Result};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::{
    CONNECT_LIMIT, Latencies, MESSAGE_BYTES, Outcome, PIECE_BYTES, POLL_LIMIT, Phase, Progress,
    Window, lost,
};
use crate::bench::usage::Meter;

/// Connections that are being made at a time.
const WAVE: usize = 128;
/// Requests written in one call at most.
const REQUESTS_AT_ONCE: usize = 64;

/// A connection with its requests.
pub(super) struct Connection {
    pub stream: TcpStream,
    /// When those were due that are under way, the oldest first.
    pub due: VecDeque<Instant>,
    /// Bytes of an answer that has begun.
    partial: usize,
    /// Bytes of requests that are not written yet.
    unsent: usize,
}

impl Connection {
    /// Adds a request that was due at `due`; [`Connection::write`] sends it.
    pub fn request(&mut self, due: Instant) {
        self.due.push_back(due);
        self.unsent += MESSAGE_BYTES;
    }

    /// Writes what there is room for.
    pub fn write(&mut self) -> Result<()> {
        const REQUESTS: [u8; MESSAGE_BYTES * REQUESTS_AT_ONCE] =
            [0x5a; MESSAGE_BYTES * REQUESTS_AT_ONCE];
        while self.unsent > 0 {
            match self.stream.write(&REQUESTS[..self.unsent.min(REQUESTS.len())]) {
                Ok(sent) => self.unsent -= sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(lost(&error)),
            }
        }
        Ok(())
    }

    /// Reads what there is, and calls `answered` with the time each answered request was due.
    pub fn read(&mut self, piece: &mut [u8], mut answered: impl FnMut(Instant)) -> Result<usize> {
        let mut answers = 0;
        loop {
            let got = match self.stream.read(piece) {
                Ok(0) => {
                    return Err(Failure::new("the server closed a connection", "check the server"));
                }
                Ok(got) => got,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(answers),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(lost(&error)),
            };
            self.partial += got;
            while self.partial >= MESSAGE_BYTES {
                self.partial -= MESSAGE_BYTES;
                let due = self.due.pop_front().ok_or_else(|| {
                    Failure::new("the server sent an unexpected reply", "report this")
                })?;
                answers += 1;
                answered(due);
            }
            if got < piece.len() {
                return Ok(answers);
            }
        }
    }
}

/// Makes `count` connections, a wave at a time.
pub(super) fn connect(
    poll: &mut Poll,
    address: SocketAddr,
    count: usize,
) -> Result<Vec<Connection>> {
    let deadline = Instant::now() + CONNECT_LIMIT;
    let mut events = Events::with_capacity(WAVE);
    let mut connections: Vec<Connection> = Vec::with_capacity(count);
    let mut stand = vec![false; count];
    let mut standing = 0;
    while standing < count {
        while connections.len() < count && connections.len() - standing < WAVE {
            let mut stream = TcpStream::connect(address).map_err(|error| lost(&error))?;
            let token = Token(connections.len());
            poll.registry()
                .register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)
                .explain("cannot watch a connection", "report this")?;
            connections.push(Connection { stream, due: VecDeque::new(), partial: 0, unsent: 0 });
        }
        if Instant::now() > deadline {
            return Err(Failure::new(
                format!(
                    "{standing} of {count} connections are established after {CONNECT_LIMIT:?}"
                ),
                "check whether the server accepts",
            ));
        }
        wait(poll, &mut events)?;
        for event in &events {
            let Some(connection) = connections.get(event.token().0) else { continue };
            let stands = &mut stand[event.token().0];
            if *stands {
                continue;
            }
            if let Some(error) = connection.stream.take_error().map_err(|error| lost(&error))? {
                return Err(lost(&error));
            }
            if connection.stream.peer_addr().is_ok() {
                connection.stream.set_nodelay(true).map_err(|error| lost(&error))?;
                *stands = true;
                standing += 1;
            }
        }
    }
    Ok(connections)
}

/// One poll with the usual limit.
pub(super) fn wait(poll: &mut Poll, events: &mut Events) -> Result<()> {
    match poll.poll(events, Some(POLL_LIMIT)) {
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
        polled => polled.explain("cannot poll", "report this"),
    }
}

/// Runs the load.
pub fn run(
    address: SocketAddr,
    count: usize,
    outstanding: usize,
    window: &Window,
) -> Result<Outcome> {
    let meter = Meter::open(&window.sources)?;
    let mut poll = Poll::new().explain("cannot poll", "report this")?;
    let mut connections = connect(&mut poll, address, count)?;
    let mut events = Events::with_capacity(1024);
    let mut piece = vec![0; PIECE_BYTES];
    let mut latencies = Latencies::new();
    let mut outcome = Outcome::default();
    let mut progress = Progress::begin(meter, window);
    for connection in &mut connections {
        let now = Instant::now();
        (0..outstanding).for_each(|_| connection.request(now));
        connection.write()?;
    }
    let mut phase = Phase::WarmUp;
    while phase != Phase::Over {
        wait(&mut poll, &mut events)?;
        for event in &events {
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
            (0..answers).for_each(|_| connection.request(now));
            connection.write()?;
        }
        phase = progress.at(Instant::now())?;
    }
    outcome.bytes = outcome.operations * MESSAGE_BYTES as u64;
    outcome.latency = latencies.quantiles();
    outcome.usage = progress.usage()?;
    Ok(outcome)
}
