//! The client: connects to a server's socket, and brings memory and rings.

mod handshake;
mod rings;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::net::connect;

use super::MemifFacts;
use super::error::MemifError;
use super::messages::MemifMessage;
use super::peer::{Exchange, Peer};
use super::socket::{address, admit, dismiss, hear, new_socket, say};
use super::thread::wait;

pub use handshake::{ClientHandshake, ClientStep};
pub use rings::ClientRings;

/// How long a server may take from the connection to its last word.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);
/// How long after a failure the server is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What the thread of a client works with.
pub(super) struct Client {
    name: String,
    facts: MemifFacts,
    exchange: Arc<Exchange>,
    /// Why there is no connection, if that was told.
    told: Option<MemifError>,
}

impl Client {
    /// A client of the server at the socket `name`.
    pub fn new(name: &str, facts: MemifFacts, exchange: Arc<Exchange>) -> Self {
        Self { name: name.to_owned(), facts, exchange, told: None }
    }

    /// Connects, again and again, until `stop` is readable.
    pub fn run(mut self, stop: BorrowedFd<'_>) {
        loop {
            match self.serve(stop) {
                Ok(()) => return,
                // Once for each reason, and not every second.
                Err(why) if self.told.as_ref() != Some(&why) => {
                    tracing::warn!("memif:{} is not connected: {why}", self.name);
                    self.told = Some(why);
                }
                Err(_) => {}
            }
            let until = Instant::now() + AGAIN_AFTER;
            loop {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                if wait([Some(stop)], Some(left)).is_none() {
                    return;
                }
            }
        }
    }

    /// One connection, from its beginning to its end. `Ok`: the port ends.
    fn serve(&mut self, stop: BorrowedFd<'_>) -> Result<(), MemifError> {
        let socket = self.connect()?;
        let system = |what| move |errno| MemifError::System(what, errno);
        let (rings, memory) = ClientRings::create().map_err(system("making the memory"))?;
        let interrupt = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(system("eventfd"))?;
        let mut call = Call {
            socket,
            handshake: ClientHandshake::new(self.facts.id, self.facts.secret.as_deref()),
            rings: Some(Box::new(rings)),
            memory,
            interrupt,
        };
        let ended = self.talk(&mut call, stop);
        if let Err(why) = &ended {
            dismiss(&call.socket, why);
        }
        if call.rings.is_none() {
            self.exchange.leave();
        }
        ended
    }

    fn connect(&self) -> Result<OwnedFd, MemifError> {
        let system = |what| move |errno| MemifError::System(what, errno);
        let address = address(&self.name).map_err(|error| {
            MemifError::System("the address", Errno::from_io_error(&error).unwrap_or(Errno::INVAL))
        })?;
        let socket = new_socket().map_err(system("socket"))?;
        connect(&socket, &address).map_err(system("connecting to the server"))?;
        admit(socket.as_fd(), &self.facts.users)?;
        Ok(socket)
    }

    /// Speaks with the server until it or the port ends.
    fn talk(&mut self, call: &mut Call, stop: BorrowedFd<'_>) -> Result<(), MemifError> {
        let until = Instant::now() + HANDSHAKE_WITHIN;
        loop {
            let limit =
                call.rings.is_some().then(|| until.saturating_duration_since(Instant::now()));
            let Some([_, says]) = wait([Some(stop), Some(call.socket.as_fd())], limit) else {
                return Ok(());
            };
            if says && let Some((message, _)) = hear(call.socket.as_fd())? {
                self.answer(call, &message)?;
            }
            if call.rings.is_some() && Instant::now() >= until {
                return Err(MemifError::Slow);
            }
        }
    }

    fn answer(&mut self, call: &mut Call, message: &MemifMessage) -> Result<(), MemifError> {
        match call.handshake.hear(message)? {
            ClientStep::Say(next) => call.say(&next),
            ClientStep::Connected => {
                let copy = rustix::io::fcntl_dupfd_cloexec(&call.socket, 0)
                    .map_err(|errno| MemifError::System("duplicating the socket", errno))?;
                if let Some(mut rings) = call.rings.take() {
                    rings.offer();
                    self.exchange.arrive(Peer::new(rings, copy));
                }
                tracing::info!("memif:{} is connected", self.name);
                self.told = None;
            }
        }
        Ok(())
    }
}

/// A connection to a server.
struct Call {
    socket: OwnedFd,
    handshake: ClientHandshake,
    /// Until they are in use.
    rings: Option<Box<ClientRings>>,
    /// Their memfd.
    memory: OwnedFd,
    /// What a server that does not poll would be woken by. Both sides poll, so nobody writes to it.
    interrupt: OwnedFd,
}

impl Call {
    fn say(&self, message: &MemifMessage) {
        let file = match message {
            MemifMessage::AddRegion { .. } => Some(self.memory.as_fd()),
            MemifMessage::AddRing(_) => Some(self.interrupt.as_fd()),
            _ => None,
        };
        say(self.socket.as_fd(), message, file);
    }
}
