//! Passed sockets: whether they give a right to their port, and whether the lists admit it.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use shm::control::FromEngine;
use shm::request::LEFT_BY_LISTS;

use super::authority::{self, Purpose, Refusal};
use super::exchange::{self, Command, SessionKey, SocketKey};
use super::rights::Neighbors;
use super::{Control, NO_DESCRIPTORS, discard};
use crate::config::Accelerated;

/// What a program shows a socket for.
#[derive(Clone, Copy, Debug)]
pub(super) struct SocketRequest {
    /// The program's session.
    pub session: SessionKey,
    /// For the answer.
    pub serial: u32,
    /// What it is to be served as.
    pub purpose: Purpose,
}

impl Control {
    fn uid(&self, id: u64) -> u32 {
        self.connections.get(&id).map_or(discard::NOBODY, |one| one.peer.uid)
    }

    /// The one descriptor that belongs to a message; others are discarded. `false`: there are so
    /// many that the connection must be dropped.
    pub(super) fn only(&self, id: u64, fds: Vec<OwnedFd>) -> (Option<OwnedFd>, bool) {
        let mut fds = fds.into_iter();
        let first = fds.next();
        (first, self.discard.close(self.uid(id), fds.collect()))
    }

    /// There are no free descriptors for a message. The spare one makes room for a single
    /// descriptor; a message with more, or without a spare, ends its connection. `false`: it must
    /// be dropped.
    pub(super) fn on_crowded(&mut self, id: u64, fds: Vec<OwnedFd>) -> bool {
        let is_within = self.discard.close(self.uid(id), fds);
        if self.spare.take().is_some() && is_within {
            return true;
        }
        self.counters.descriptors_exhausted.increment();
        self.complain(id, NO_DESCRIPTORS);
        if let Some(connection) = self.connections.get(&id) {
            self.refuse(&connection.fd, NO_DESCRIPTORS);
        }
        false
    }

    /// A program has a listener whose connections it cannot take from the engine. Any holder of the
    /// socket may report that. `false`: the connection must be dropped.
    pub(super) fn on_leave_listener(&mut self, id: u64, lasting: bool, fds: Vec<OwnedFd>) -> bool {
        let (socket, is_within) = self.only(id, fds);
        let shown = socket.as_ref().and_then(|socket| {
            let listen = Purpose::Listen;
            authority::check(socket.as_fd(), listen, self.namespace, &self.addresses).ok()
        });
        if let Some(shown) = shown {
            self.worker.send(Command::LeaveListener { key: shown.key, lasting });
        }
        self.discard.close(self.uid(id), socket.into_iter().collect()) && is_within
    }

    /// A socket is passed. `false`: the connection must be dropped.
    pub(super) fn on_shown(
        &mut self,
        id: u64,
        request: SocketRequest,
        fds: Vec<OwnedFd>,
        command: impl FnOnce(exchange::Shown, Vec<SocketKey>) -> Command,
    ) -> bool {
        let SocketRequest { session, serial, purpose } = request;
        let (socket, is_within) = self.only(id, fds);
        let uid = self.uid(id);
        let protocol = purpose.protocol();
        let admitted = |shown: exchange::Shown| {
            if self.policy.rules.admit_port(protocol, shown.local.address.port()) {
                return Ok(shown);
            }
            self.counters.left_ports.increment();
            // The errno that makes a client continue silently with the kernel.
            Err(Refusal {
                errno: LEFT_BY_LISTS.raw_os_error(),
                reason: format!(
                    "[allow] or [deny] in the engine's configuration leave port {} to the kernel",
                    shown.local.address.port()
                ),
            })
        };
        let checked = match &socket {
            Some(socket) => {
                authority::check(socket.as_fd(), purpose, self.namespace, &self.addresses)
                    .and_then(admitted)
                    .and_then(|shown| Ok((shown, self.uncontested(&shown, purpose)?)))
                    .inspect(|(shown, _)| {
                        self.rights.begin_use(shown, purpose, socket.as_fd());
                    })
            }
            None => Err(Refusal {
                errno: Errno::BADF.raw_os_error(),
                reason: "no descriptor came with the request".into(),
            }),
        };
        match checked {
            Ok((shown, beside)) => {
                // Our copy must be closed before the answer: otherwise the program's restart fails
                // with EADDRINUSE. A socket that listens or is not connected does not linger.
                drop(socket);
                self.wait_for_answer(id);
                if let Some(connection) = self.connections.get_mut(&id) {
                    let asked = Accelerated { protocol, local: shown.local.address };
                    connection.asked = (purpose != Purpose::Connect).then_some(asked);
                }
                self.worker.send(command(shown, beside)) && is_within
            }
            Err(refusal) => {
                let is_within = self.discard.close(uid, socket.into_iter().collect()) && is_within;
                if refusal.errno != LEFT_BY_LISTS.raw_os_error() {
                    self.counters.authority_refused.increment();
                }
                tracing::info!(session = session.0, "refused: {}", refusal.reason);
                is_within
                    && self.tell(
                        id,
                        &FromEngine::Denied {
                            serial,
                            errno: refusal.errno,
                            reason: refusal.reason,
                        },
                    )
            }
        }
    }

    /// Ends the rights of other sockets that have lost the port of this one. Returns those that
    /// have it, too.
    fn uncontested(
        &mut self,
        shown: &exchange::Shown,
        purpose: Purpose,
    ) -> Result<Vec<SocketKey>, Refusal> {
        let Neighbors { ended, beside, is_contested } = self.rights.neighbors(shown, purpose);
        self.end_rights(ended);
        if is_contested {
            return Err(Refusal {
                errno: Errno::ADDRINUSE.raw_os_error(),
                reason: format!(
                    "another user has a socket at {} as well, and the kernel decides which of the \
                     two receives; leave SO_REUSEADDR out, or accelerate both",
                    shown.kernel_local
                ),
            });
        }
        Ok(beside)
    }
}
