//! Grants of sessions for the kernel sockets that they have passed. They end with the socket's
//! right to its port.

use std::collections::{BTreeMap, BTreeSet};

use rustix::io::Errno;
use shm::Status;
use stack::api::Local;

use crate::control::exchange::{Answer, SocketKey};
use crate::endpoint::{Endpoint, Role};
use crate::errno;
use crate::worker::Worker;

/// A grant of a session for a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Use {
    /// A listener's or a UDP socket's endpoint.
    Endpoint(u32),
    /// The permission to connect once from the socket's address.
    Token(u32),
}

/// All grants, by socket: the session's slot and the grant.
#[derive(Debug, Default)]
pub(crate) struct Uses(BTreeMap<SocketKey, BTreeSet<(u32, Use)>>);

impl Uses {
    /// A use ends for its session, but continues as the engine's own.
    pub fn keep(&mut self, key: SocketKey, place: u32, of: Use) -> Option<SocketKey> {
        self.end(key, place, of).then_some(key)
    }

    /// Starts a use.
    pub fn begin(&mut self, key: SocketKey, place: u32, of: Use) {
        self.0.entry(key).or_default().insert((place, of));
    }

    /// Ends a use. `false`: there was none.
    fn end(&mut self, key: SocketKey, place: u32, of: Use) -> bool {
        let Some(uses) = self.0.get_mut(&key) else { return false };
        let is_one = uses.remove(&(place, of));
        if uses.is_empty() {
            self.0.remove(&key);
        }
        is_one
    }

    /// Whether a socket has any.
    pub fn has(&self, key: SocketKey) -> bool {
        self.0.contains_key(&key)
    }

    fn of(&self, key: SocketKey) -> Vec<(u32, Use)> {
        self.0.get(&key).into_iter().flatten().copied().collect()
    }
}

impl Worker {
    /// A use of a passed socket has ended; the control thread need not watch the socket for it.
    pub(crate) fn end_use(&mut self, key: SocketKey, place: u32, of: Use) {
        if self.uses.end(key, place, of) {
            self.answers.push(Answer::Unused(key));
        }
    }

    /// The right of a kernel socket to its port has ended. Sessions with endpoints for it no longer
    /// block the next owner of the port.
    pub(crate) fn on_right_ended(&mut self, key: SocketKey) {
        for (place, of) in self.uses.of(key) {
            let index = match of {
                Use::Endpoint(index) => index,
                Use::Token(token) => {
                    if let Some(session) = self.sessions.at(place) {
                        session.tokens.remove(&token);
                    }
                    self.end_use(key, place, of);
                    continue;
                }
            };
            self.end_endpoint(place, index, false);
            if let Some(endpoint) = self.endpoint(place, index) {
                endpoint.role = Role::Revoked;
                endpoint
                    .view
                    .set_status(Status::HANGUP | Status::ERROR, errno::number(Errno::BADF));
                self.sessions.note_news(place, index);
            }
        }
        self.close_unattended(key);
    }

    /// Keeps sockets from sharing the listener at `local` unless they listen there, too, according
    /// to the kernel: a listener is found by its address, but joined by cookie.
    pub(crate) fn part_from_others(&mut self, local: Local, key: SocketKey, beside: &[SocketKey]) {
        let Some(of) = self.listeners.find(local) else { return };
        let attached = self.listeners.peek(of).map(|one| one.attached().to_vec());
        for (place, index) in attached.unwrap_or_default() {
            let shown =
                self.endpoint(place, index).and_then(|endpoint: &mut Endpoint| endpoint.shown);
            if let Some(other) = shown
                && other != key
                && !beside.contains(&other)
            {
                self.on_right_ended(other);
            }
        }
    }
}
