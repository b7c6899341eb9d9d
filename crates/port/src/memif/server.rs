//! The server: a client connects, and brings memory and rings.

mod handshake;
mod rings;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, bind, connect};

use super::MemifFacts;
use super::error::MemifError;
use super::messages::{Hello, MemifMessage};
use super::peer::{Exchange, Peer};
use super::socket::{MESSAGES_AT_A_TIME, address, admit, dismiss, hear, new_socket, say};
use super::thread::wait;

pub use handshake::{REGION_BYTES_MAX, ServerHandshake, ServerStep};
pub use rings::ServerRings;

/// How long a client may take from its connection to its last word.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);

/// A socket at which clients connect. What an engine that is gone has left at the path is replaced.
pub(super) fn listen(name: &str, for_others: bool) -> io::Result<OwnedFd> {
    let address = address(name)?;
    let listener = new_socket()?;
    match bind(&listener, &address) {
        Err(Errno::ADDRINUSE) if connect(new_socket()?, &address) == Err(Errno::CONNREFUSED) => {
            std::fs::remove_file(name)?;
            bind(&listener, &address)?;
        }
        bound => bound?,
    }
    if !name.starts_with('@') {
        // Who may connect is checked with SO_PEERCRED.
        let mode = if for_others { 0o666 } else { 0o600 };
        std::fs::set_permissions(Path::new(name), std::fs::Permissions::from_mode(mode))?;
    }
    rustix::net::listen(&listener, 8)?;
    Ok(listener)
}

/// Somebody who has connected.
struct Guest {
    socket: OwnedFd,
    since: Instant,
    handshake: ServerHandshake,
}

impl Guest {
    fn is_slow(&self) -> bool {
        !self.handshake.is_connected() && self.since.elapsed() >= HANDSHAKE_WITHIN
    }
}

/// What the thread of a server works with.
pub(super) struct Server {
    listener: OwnedFd,
    facts: MemifFacts,
    exchange: Arc<Exchange>,
    guest: Option<Guest>,
}

impl Server {
    /// A server without a client.
    pub fn new(listener: OwnedFd, facts: MemifFacts, exchange: Arc<Exchange>) -> Self {
        Self { listener, facts, exchange, guest: None }
    }

    /// Deals with clients until `stop` is readable.
    pub fn run(mut self, stop: BorrowedFd<'_>) {
        while self.round(stop) {}
    }

    /// Waits for something and deals with it. `false`: the port ends.
    fn round(&mut self, stop: BorrowedFd<'_>) -> bool {
        let guest = self.guest.as_ref();
        let limit = guest
            .filter(|guest| !guest.handshake.is_connected())
            .map(|guest| HANDSHAKE_WITHIN.saturating_sub(guest.since.elapsed()));
        let fds =
            [Some(stop), Some(self.listener.as_fd()), guest.map(|guest| guest.socket.as_fd())];
        let Some([_, comes, says]) = wait(fds, limit) else { return false };
        if says {
            self.hear();
        }
        if self.guest.as_ref().is_some_and(Guest::is_slow) {
            self.end(&MemifError::Slow);
        }
        if comes {
            self.accept();
        }
        true
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let Ok(socket) = accept_with(&self.listener, flags) else { return };
        let admitted = match admit(socket.as_fd(), &self.facts.users) {
            Ok(()) if self.guest.is_some() => Err(MemifError::Occupied),
            admitted => admitted,
        };
        if let Err(why) = admitted {
            tracing::warn!("a memif client is refused: {why}");
            say(socket.as_fd(), &MemifMessage::Disconnect(why.to_string()), None);
            return;
        }
        say(socket.as_fd(), &MemifMessage::Hello(Hello::OWN), None);
        let handshake = ServerHandshake::new(self.facts.id, self.facts.secret.as_deref());
        self.guest = Some(Guest { socket, since: Instant::now(), handshake });
    }

    /// Takes the messages that wait.
    fn hear(&mut self) {
        // Bounded, for one who never stops talking; poll brings us back.
        for _ in 0..MESSAGES_AT_A_TIME {
            let Some(guest) = &mut self.guest else { return };
            let answered = match hear(guest.socket.as_fd()) {
                Ok(None) => return,
                Ok(Some((message, files))) => guest.hear(message, files, &self.exchange),
                Err(why) => Err(why),
            };
            if let Err(why) = answered {
                return self.end(&why);
            }
        }
    }

    /// The end of a client.
    fn end(&mut self, why: &MemifError) {
        let Some(guest) = self.guest.take() else { return };
        if *why != MemifError::HungUp {
            tracing::warn!("a memif client is disconnected: {why}");
        }
        dismiss(&guest.socket, why);
        if guest.handshake.is_connected() {
            self.exchange.leave();
        }
    }
}

impl Guest {
    /// Answers a message.
    fn hear(
        &mut self,
        message: MemifMessage,
        files: Vec<OwnedFd>,
        exchange: &Exchange,
    ) -> Result<(), MemifError> {
        let socket = self.socket.as_fd();
        match self.handshake.hear(message, files)? {
            ServerStep::Nothing => {}
            ServerStep::Acknowledge => say(socket, &MemifMessage::Ack, None),
            ServerStep::Connected(rings) => {
                let copy = rustix::io::fcntl_dupfd_cloexec(socket, 0)
                    .map_err(|errno| MemifError::System("duplicating the socket", errno))?;
                exchange.arrive(Peer::new(rings, copy));
                say(socket, &MemifMessage::Connected, None);
                tracing::info!("a memif client has connected");
            }
        }
        Ok(())
    }
}
