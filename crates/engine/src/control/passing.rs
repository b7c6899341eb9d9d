//! The control thread's part of shared connections: forked children get a control connection, the
//! relay is asked for sockets, and holders receive them.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use shm::control::{FromEngine, ToEngine};

use super::exchange::{Command, SessionKey};
use super::{Connection, Control, Next, Stage, connection};
use crate::passing::{Handover, HeirKey, Keeper, Serve};

/// Why there is no socket of a connection.
const RELAY_FAILED: &str = "the engine's relay could not make a socket of the connection";
const RELAY_GONE: &str = "the engine's relay has ended";

/// A holder that waits for a connection's socket.
#[derive(Clone, Copy, Debug)]
struct Asker {
    connection: u64,
    serial: u32,
    /// It is the first to ask.
    is_first: bool,
}

/// What the relay has made of a connection.
#[derive(Debug, Default)]
enum Made {
    /// It has not answered yet.
    #[default]
    Nothing,
    /// The holders' end.
    Socket(OwnedFd),
    /// It could not: whoever asks is told why.
    Failure(Errno),
}

/// The holders' end of a connection, until all of them have it.
#[derive(Debug, Default)]
struct Ticket {
    made: Made,
    asked: Vec<Asker>,
    /// No other holder will ask.
    is_over: bool,
}

/// The engine's relay, and the requests to it.
#[derive(Debug, Default)]
pub(super) struct Tickets {
    /// The control connection of the relay.
    pub relay: Option<u64>,
    tickets: BTreeMap<u64, Ticket>,
}

/// The control connection of a keeper.
fn connection_of(by: Keeper) -> u64 {
    match by {
        Keeper::Session(SessionKey(id)) | Keeper::Heir(HeirKey(id)) => id,
    }
}

impl Control {
    /// Takes the engine's end of the relay's control connection.
    ///
    /// # Errors
    /// If the kernel does not identify the peer.
    pub(super) fn take_relay(&mut self, fd: OwnedFd) -> Result<(), Errno> {
        let peer = shm::control::peer(fd.as_fd())?;
        let id = self.fresh_id();
        let (stage, next) = (Stage::New, Next::Message);
        self.connections
            .insert(id, Connection { fd, peer, stage, next, asked: None, opening: None });
        self.tickets.relay = Some(id);
        Ok(())
    }

    /// A request of a keeper. `false`: the connection must be dropped.
    pub(super) fn on_keeper(&mut self, id: u64, by: Keeper, message: ToEngine) -> bool {
        match (by, message) {
            (_, ToEngine::Fork { serial }) => {
                let heir = HeirKey(self.fresh_id());
                self.wait_for_answer(id);
                self.worker.send(Command::Fork { by, heir, serial })
            }
            (_, ToEngine::Pass { serial, endpoint, v6 }) => {
                self.wait_for_answer(id);
                self.worker.send(Command::Pass { by, serial, endpoint, v6 })
            }
            (Keeper::Heir(heir), ToEngine::Release { endpoint }) => {
                self.worker.send(Command::Release { heir, endpoint })
            }
            _ => {
                self.counters.control_garbage.increment();
                self.complain(id, "sent a message out of order; dropped");
                false
            }
        }
    }

    fn deny(&mut self, asker: Asker, errno: Errno, reason: &str) {
        let (serial, errno) = (asker.serial, errno.raw_os_error());
        let denied = FromEngine::Denied { serial, errno, reason: reason.into() };
        self.answer(asker.connection, &denied);
    }

    /// The worker has recorded a child, or refused it.
    pub(super) fn on_forked(
        &mut self,
        by: Keeper,
        heir: HeirKey,
        serial: u32,
        refused: Option<Errno>,
    ) {
        let asker = Asker { connection: connection_of(by), serial, is_first: true };
        if let Some(errno) = refused {
            return self.deny(asker, errno, "the engine has no relay for connections of children");
        }
        let (ours, theirs) = match self.heir_ends() {
            Ok(ends) => ends,
            Err(errno) => {
                self.counters.heirs_refused.increment();
                self.worker.send(Command::EndHeir(heir));
                return self.deny(asker, errno, "the engine has no free control connection");
            }
        };
        let Some(parent) = self.connections.get_mut(&asker.connection) else {
            // The parent ended before it could fork.
            self.worker.send(Command::EndHeir(heir));
            return;
        };
        parent.next = Next::Message;
        let peer = parent.peer;
        let inherited = FromEngine::Inherited { serial };
        let sent = connection::send(parent.fd.as_fd(), &inherited, &[theirs.as_fd()]);
        let (stage, next) = (Stage::Heir(heir), Next::Message);
        self.connections
            .insert(heir.0, Connection { fd: ours, peer, stage, next, asked: None, opening: None });
        self.counters.heirs.set(self.counters.heirs.read() + 1);
        if sent.is_err() {
            self.drop_connection(asker.connection);
        }
    }

    /// The ends of a child's control connection.
    fn heir_ends(&self) -> Result<(OwnedFd, OwnedFd), Errno> {
        if self.connections.len() >= usize::from(self.policy.limits.control_connections) {
            return Err(Errno::NFILE);
        }
        let flags = SocketFlags::CLOEXEC;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
    }

    /// The worker has moved a connection, or refused to.
    pub(super) fn on_passed(
        &mut self,
        by: Keeper,
        serial: u32,
        v6: bool,
        outcome: Result<Handover, Errno>,
    ) {
        let is_first = outcome.is_ok_and(|handover| handover.serve.is_some());
        let asker = Asker { connection: connection_of(by), serial, is_first };
        let Handover { pass, serve, is_last } = match outcome {
            Ok(granted) => granted,
            Err(errno) => {
                return self.deny(asker, errno, "the connection cannot be passed");
            }
        };
        let Some(relay) = self.tickets.relay.and_then(|id| self.connections.get(&id)) else {
            return self.deny(asker, Errno::CONNRESET, RELAY_GONE);
        };
        let ticket = self.tickets.tickets.entry(pass).or_default();
        ticket.asked.push(asker);
        ticket.is_over |= is_last;
        if let Some(Serve { endpoint, local, remote, is_shut }) = serve {
            let serve = FromEngine::Serve { pass, endpoint, local, remote, is_shut, v6 };
            if connection::send(relay.fd.as_fd(), &serve, &[]).is_err() {
                self.fail_ticket(pass, Errno::CONNRESET);
            }
        }
        self.hand_out(pass);
    }

    /// Answers those who wait for a connection, and lets go of its socket when nobody else will.
    fn hand_out(&mut self, pass: u64) {
        let Some(mut ticket) = self.tickets.tickets.remove(&pass) else { return };
        if !matches!(ticket.made, Made::Nothing) {
            for asker in std::mem::take(&mut ticket.asked) {
                match &ticket.made {
                    Made::Socket(fd) => self.give(asker, fd.as_fd()),
                    Made::Failure(errno) => self.deny(asker, *errno, RELAY_FAILED),
                    Made::Nothing => {}
                }
            }
        }
        // Ours is a socket of the kernel's between the engine's own threads: closing it waits for nobody.
        if !ticket.is_over || !ticket.asked.is_empty() {
            self.tickets.tickets.insert(pass, ticket);
        }
        self.counters.tickets.set(self.tickets.tickets.len() as u64);
    }

    fn give(&mut self, asker: Asker, fd: BorrowedFd<'_>) {
        let Asker { connection, serial, is_first } = asker;
        let Some(holder) = self.connections.get_mut(&connection) else { return };
        holder.next = Next::Message;
        let told = FromEngine::Ticket { serial, is_fresh: is_first };
        if connection::send(holder.fd.as_fd(), &told, &[fd]).is_err() {
            self.drop_connection(connection);
        }
    }

    /// The relay has no socket for a connection: its holders are told so.
    fn fail_ticket(&mut self, pass: u64, errno: Errno) {
        let Some(ticket) = self.tickets.tickets.get_mut(&pass) else { return };
        ticket.made = Made::Failure(errno);
        self.counters.tickets_failed.increment();
    }

    /// No keeper will ask for a connection any more.
    pub(super) fn on_pass_over(&mut self, pass: u64) {
        if let Some(ticket) = self.tickets.tickets.get_mut(&pass) {
            ticket.is_over = true;
            self.hand_out(pass);
        }
    }

    /// The relay has created a socket, or failed. `false`: its connection must be dropped.
    pub(super) fn on_served(&mut self, pass: u64, errno: i32, mut fds: Vec<OwnedFd>) -> bool {
        match (fds.pop(), self.tickets.tickets.get_mut(&pass)) {
            (Some(fd), Some(ticket)) => ticket.made = Made::Socket(fd),
            (Some(_), None) => {}
            (None, _) => self.fail_ticket(pass, Errno::from_raw_os_error(errno.clamp(1, 4095))),
        }
        self.hand_out(pass);
        true
    }

    /// The relay has ended, and all its connections with it.
    pub(super) fn lose_relay(&mut self) {
        self.tickets.relay = None;
        tracing::error!(
            "the relay has ended: connections used by other processes are reset, and no more can \
             be passed until the engine is restarted"
        );
        let passes: Vec<u64> = self.tickets.tickets.keys().copied().collect();
        for pass in passes {
            self.fail_ticket(pass, Errno::CONNRESET);
            self.on_pass_over(pass);
        }
    }
}
