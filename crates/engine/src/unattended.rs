//! Listeners that more processes have than are attached: those that nobody attends for a moment, as
//! between a fork and the child's first accept, and those that are left to the kernel because a
//! process waits for their connections that cannot be accelerated.

use port::Claim;
use stack::api::Local;

use crate::claims::places;
use crate::control::exchange::{Answer, SocketKey};
use crate::worker::Worker;

/// How long a listener that nobody attends is kept with the connections that wait there.
const KEPT_NS: u64 = 10_000_000_000;
/// How long a listener is left to the kernel, unless that is said again.
const LEFT_NS: u64 = shm::control::LEFT_FOR.as_nanos() as u64;

impl Worker {
    /// The kernel tells when sockets that were shown are closed: what nobody attends may be waited
    /// for, as [`Worker::on_right_ended`] ends the waiting.
    pub fn follow_sockets(&mut self) {
        self.follows_sockets = true;
    }

    /// The last endpoint of a listener was closed, in order or by its program's end (`is_orphaned`).
    /// `key` is the socket that it was for, whose use goes on as long as the listener waits.
    pub(crate) fn on_unattended(&mut self, of: u32, key: Option<SocketKey>, is_orphaned: bool) {
        let until = self.now.0.saturating_add(KEPT_NS);
        let Some(listener) = self.listeners.at(of) else { return };
        listener.kept_use = key;
        if !(self.follows_sockets && (is_orphaned || listener.outlives)) {
            return self.close_listener(of);
        }
        listener.unattended_until = Some(until);
        let id = listener.id;
        self.counters.listeners_unattended.increment();
        // Stale only if it never was.
        let _ = self.stack.tcp_set_shut(id, true);
        self.claim_listener(of);
        self.note_deadline(until);
    }

    /// Another socket is shown for the address of a listener that nobody attends, whose own must be
    /// closed then.
    pub(crate) fn give_up_unattended(&mut self, local: Local, key: SocketKey) {
        if let Some(of) = self.listeners.find(local)
            && self.listeners.of_socket(key) != Some(of)
            && self.listeners.peek(of).is_some_and(|listener| listener.attached().is_empty())
        {
            self.close_listener(of);
        }
    }

    /// Somebody attends a listener.
    pub(crate) fn on_attended(&mut self, of: u32) {
        let Some(listener) = self.listeners.at(of) else { return };
        if listener.unattended_until.take().is_some() {
            let id = listener.id;
            if let Some(key) = listener.kept_use.take() {
                self.release_socket(key);
            }
            let _ = self.stack.tcp_set_shut(id, false);
            self.claim_listener(of);
        }
    }

    /// A use of a listener's socket ends while the listener goes on. Without another use, nobody
    /// tells of the socket's end, so the listener forgets it now.
    pub(crate) fn release_socket(&mut self, key: SocketKey) {
        self.answers.push(Answer::Unused(key));
        if !self.uses.has(key) {
            self.listeners.forget_socket(key);
        }
    }

    /// Closes a listener. Connections that wait there are reset; others go on.
    pub(crate) fn close_listener(&mut self, of: u32) {
        let Some(listener) = self.listeners.remove(of) else { return };
        self.answers.extend(listener.kept_use.map(Answer::Unused));
        // Stale only if it never was.
        let _ = self.stack.tcp_close(self.now, listener.id);
        // To claim less than before needs no room.
        for place in places(listener.local) {
            let _ = self.claim_connections(place, listener.reuses);
        }
        // Once in a turn, however many listeners close in it.
        self.sessions.sweep_stash = true;
    }

    /// Ends a listener that nobody attends, and whose kernel socket is closed.
    pub(crate) fn close_unattended(&mut self, key: SocketKey) {
        if let Some(of) = self.listeners.forget_socket(key)
            && self.listeners.peek(of).is_some_and(|listener| listener.attached().is_empty())
        {
            self.close_listener(of);
        }
    }

    /// Somebody has the kernel's socket of a listener and cannot be accelerated.
    pub(crate) fn leave_listener(&mut self, key: SocketKey, lasting: bool) {
        let Some(of) = self.listeners.of_socket(key) else { return };
        let Some(listener) = self.listeners.at(of) else { return };
        let until = if lasting { u64::MAX } else { self.now.0.saturating_add(LEFT_NS) };
        let before = listener.left_until.replace(listener.left_until.unwrap_or(0).max(until));
        if before == Some(u64::MAX) {
            return;
        }
        if before.is_none() {
            let local = listener.local.address;
            self.counters.listeners_left.increment();
            tracing::info!(
                "{local}: new connections go through the kernel, because a process without \
                 acceleration waits for them"
            );
            self.claim_listener(of);
        }
        self.note_deadline(until);
        self.refuse_queued(of);
    }

    /// Resets what waits at a listener that is left to the kernel for good: those who will wait there
    /// cannot have it, and those who look would see it for ever.
    pub(crate) fn refuse_queued(&mut self, of: u32) {
        if !self.shares() {
            return;
        }
        let Some(listener) = self.listeners.peek(of) else { return };
        if listener.left_until != Some(u64::MAX) {
            return;
        }
        let id = listener.id;
        let _ = self.stack.tcp_set_shut(id, true);
        while let Ok(Some(accepted)) = self.stack.tcp_accept(id) {
            self.sessions.stash.take(accepted.id);
            let _ = self.stack.tcp_abort(self.now, accepted.id);
            let _ = self.stack.tcp_close(self.now, accepted.id);
        }
        self.on_pending(of, false);
    }

    /// Claims a listener's port as it is to be now; where the table has no room, the kernel's half
    /// of the listener serves.
    pub(crate) fn claim_listener(&mut self, of: u32) {
        let admits = self.admits();
        let Some(listener) = self.listeners.peek(of) else { return };
        let is_taken = listener.left_until.is_none() && listener.unattended_until.is_none();
        let listens = admits && is_taken;
        let _ = self.claim_local(listener.local, |local| Claim::Tcp { local, listens });
    }

    fn note_deadline(&mut self, until: u64) {
        if until != u64::MAX {
            let before = self.listeners_due.unwrap_or(u64::MAX);
            self.listeners_due = Some(before.min(until));
        }
    }

    /// Looks whether the time of a listener is over.
    pub(crate) fn look_at_listeners(&mut self) {
        let now = self.now.0;
        if self.listeners_due.is_none_or(|due| now < due) {
            return;
        }
        self.listeners_due = None;
        let all: Vec<_> = self
            .listeners
            .iter()
            .map(|(of, listener)| (of, listener.unattended_until, listener.left_until))
            .collect();
        for (of, unattended, left) in all {
            if unattended.is_some_and(|until| until <= now) {
                self.close_listener(of);
                continue;
            }
            if left.is_some_and(|until| until <= now) {
                if let Some(listener) = self.listeners.at(of) {
                    listener.left_until = None;
                }
                self.claim_listener(of);
            }
            for until in [unattended, left.filter(|until| *until > now)].into_iter().flatten() {
                self.note_deadline(until);
            }
        }
    }
}
