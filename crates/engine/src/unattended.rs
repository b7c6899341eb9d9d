//! Listeners held by more processes than are attached: those without an attached process for a
//! moment, such as between a fork and the child's first accept, and those left to the kernel
//! because a process without acceleration waits for their connections.

use port::Claim;
use stack::api::Local;

use crate::claims::places;
use crate::control::exchange::{Answer, SocketKey};
use crate::worker::Worker;

/// How long a listener without an attached process is kept, with its pending connections.
const KEPT_NS: u64 = 10_000_000_000;
/// How long a listener is left to the kernel, unless that is renewed.
const LEFT_NS: u64 = shm::control::LEFT_FOR.as_nanos() as u64;

impl Worker {
    /// The kernel notifies us of closed sockets: listeners without an attached process may be kept,
    /// because [`Worker::on_right_ended`] ends that.
    pub fn follow_sockets(&mut self) {
        self.follows_sockets = true;
    }

    /// The last endpoint of a listener was closed, in order or by its program's end
    /// (`is_orphaned`). `key` is its socket, whose use continues as long as the listener is kept.
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
        // The id is valid.
        let _ = self.stack.tcp_set_shut(id, true);
        self.claim_listener(of);
        self.note_deadline(until);
    }

    /// Another socket is passed for the address of a listener without an attached process, whose
    /// own must therefore be closed.
    pub(crate) fn give_up_unattended(&mut self, local: Local, key: SocketKey) {
        if let Some(of) = self.listeners.find(local)
            && self.listeners.of_socket(key) != Some(of)
            && self.listeners.peek(of).is_some_and(|listener| listener.attached().is_empty())
        {
            self.close_listener(of);
        }
    }

    /// A process has attached to a listener.
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

    /// A use of a listener's socket ends while the listener continues. Without another use the
    /// socket's end would not be reported, so the listener forgets it now.
    pub(crate) fn release_socket(&mut self, key: SocketKey) {
        self.answers.push(Answer::Unused(key));
        if !self.uses.has(key) {
            self.listeners.forget_socket(key);
        }
    }

    /// Closes a listener. Its pending connections are reset; accepted ones continue.
    pub(crate) fn close_listener(&mut self, of: u32) {
        let Some(listener) = self.listeners.remove(of) else { return };
        self.answers.extend(listener.kept_use.map(Answer::Unused));
        // The id is valid.
        let _ = self.stack.tcp_close(self.now, listener.id);
        // Claiming less than before needs no room.
        for place in places(listener.local) {
            let _ = self.claim_connections(place, listener.reuses);
        }
        // Once per turn, however many listeners close in it.
        self.sessions.sweep_stash = true;
    }

    /// Ends a listener without an attached process, whose kernel socket is closed.
    pub(crate) fn close_unattended(&mut self, key: SocketKey) {
        if let Some(of) = self.listeners.forget_socket(key)
            && self.listeners.peek(of).is_some_and(|listener| listener.attached().is_empty())
        {
            self.close_listener(of);
        }
    }

    /// A process that cannot be accelerated has the kernel socket of a listener.
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

    /// Resets the pending connections of a listener that is left to the kernel for good: processes
    /// that will wait there cannot take them, and those attached would see them forever.
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

    /// Updates the claim of a listener's port; if the map has no room, the kernel's listening
    /// socket serves.
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

    /// Checks whether the time of a listener is over.
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
