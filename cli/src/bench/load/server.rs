//! The servers, each one thread.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr};

use lab::failure::{Explain, Result};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use slab::Slab;

use super::{MESSAGE_BYTES, PIECE_BYTES};

const LISTENER: Token = Token(usize::MAX);
/// Reads or writes on one connection before the next one has its turn.
const TURN: usize = 16;

/// What a server does with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Service {
    /// Sends back what comes.
    Echo,
    /// Answers one message and closes.
    Brief,
    /// Reads.
    Sink,
    /// Writes.
    Source,
}

impl Service {
    /// Its name on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Brief => "brief",
            Self::Sink => "sink",
            Self::Source => "source",
        }
    }
}

struct Connection {
    stream: TcpStream,
    /// What was read and not written yet.
    unsent: Vec<u8>,
    /// Waits for its turn.
    is_queued: bool,
}

/// What became of a connection's turn.
#[derive(PartialEq, Eq)]
enum Turn {
    /// There is more to do at once.
    More,
    /// It waits for an event.
    Waits,
    Over,
}

/// Serves until the process ends.
///
/// # Errors
/// When the address cannot be listened at.
pub fn serve(address: SocketAddr, service: Service, bytes: usize) -> Result<()> {
    let advice = "choose an address of this host and a free port";
    let mut poll = Poll::new().explain("cannot poll", "report this")?;
    let mut listener =
        TcpListener::bind(address).explain(format!("cannot listen at {address}"), advice)?;
    poll.registry()
        .register(&mut listener, LISTENER, Interest::READABLE)
        .explain("cannot watch the listener", "report this")?;
    let mut events = Events::with_capacity(1024);
    let mut connections: Slab<Connection> = Slab::new();
    let mut queue: VecDeque<usize> = VecDeque::new();
    let mut piece = vec![0x5a; bytes.max(PIECE_BYTES)];
    piece.truncate(if matches!(service, Service::Sink | Service::Source) {
        bytes
    } else {
        PIECE_BYTES
    });
    loop {
        let at_once = (!queue.is_empty()).then_some(std::time::Duration::ZERO);
        match poll.poll(&mut events, at_once) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            polled => polled.explain("cannot poll", "report this")?,
        }
        for event in &events {
            if event.token() == LISTENER {
                accept(&listener, &poll, &mut connections)?;
            } else if let Some(connection) = connections.get_mut(event.token().0)
                && !connection.is_queued
            {
                connection.is_queued = true;
                queue.push_back(event.token().0);
            }
        }
        for _ in 0..queue.len() {
            let Some(key) = queue.pop_front() else { break };
            let Some(connection) = connections.get_mut(key) else { continue };
            match turn(connection, service, &mut piece) {
                Turn::More => queue.push_back(key),
                Turn::Waits => connection.is_queued = false,
                Turn::Over => {
                    connections.remove(key);
                }
            }
        }
    }
}

fn accept(listener: &TcpListener, poll: &Poll, connections: &mut Slab<Connection>) -> Result<()> {
    loop {
        let mut stream = match listener.accept() {
            Ok((stream, _)) => stream,
            // One that is gone again is no reason to end.
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(super::lost(&error)),
        };
        // A peer that has reset it already shows when it is read.
        let _ = stream.set_nodelay(true);
        let entry = connections.vacant_entry();
        poll.registry()
            .register(&mut stream, Token(entry.key()), Interest::READABLE | Interest::WRITABLE)
            .explain("cannot watch a connection", "report this")?;
        entry.insert(Connection { stream, unsent: Vec::new(), is_queued: false });
    }
}

fn turn(connection: &mut Connection, service: Service, piece: &mut [u8]) -> Turn {
    for _ in 0..TURN {
        let turned = match service {
            Service::Echo | Service::Brief => echo(connection, service, piece),
            Service::Sink => outcome(connection.stream.read(piece)),
            Service::Source => outcome(connection.stream.write(piece)),
        };
        if turned != Turn::More {
            return turned;
        }
    }
    Turn::More
}

fn outcome(moved: std::io::Result<usize>) -> Turn {
    match moved {
        Ok(0) => Turn::Over,
        Ok(_) => Turn::More,
        Err(error) if error.kind() == ErrorKind::WouldBlock => Turn::Waits,
        Err(error) if error.kind() == ErrorKind::Interrupted => Turn::More,
        Err(_) => Turn::Over,
    }
}

fn echo(connection: &mut Connection, service: Service, piece: &mut [u8]) -> Turn {
    let Connection { stream, unsent, .. } = connection;
    if !unsent.is_empty() {
        match stream.write(unsent) {
            Ok(sent) => drop(unsent.drain(..sent)),
            failed => return outcome(failed),
        }
        return Turn::More;
    }
    let got = match stream.read(piece) {
        Ok(got) if got > 0 => got,
        ended => return outcome(ended),
    };
    if service == Service::Brief {
        // A message that does not come in one piece counts as an error of the client.
        let answered = got == MESSAGE_BYTES && stream.write(&piece[..got]).is_ok();
        return if answered && stream.shutdown(Shutdown::Write).is_ok() {
            Turn::More
        } else {
            Turn::Over
        };
    }
    match stream.write(&piece[..got]) {
        Ok(sent) => unsent.extend_from_slice(&piece[sent..got]),
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            unsent.extend_from_slice(&piece[..got])
        }
        failed => return outcome(failed),
    }
    // What is read short was all there is, as epoll(7) says of streams; the next event tells of more.
    if got < piece.len() && unsent.is_empty() { Turn::Waits } else { Turn::More }
}
