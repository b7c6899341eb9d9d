//! Connections whose peers acknowledge nothing, while their program has no buffers left to send
//! from.

use stack::api::SocketId;

use crate::endpoint::{Endpoint, Role};
use crate::session::Session;
use crate::worker::{Activity, Worker};

/// Time without progress after which a connection may be ended in favour of others.
const STALLED_NS: u64 = 10_000_000_000;

/// Endpoints checked in one turn.
const LOOKS: usize = 32;

impl Worker {
    /// Ends a connection that holds buffers and makes no progress, if a lane of this session has no
    /// stock and the pool cannot fill it. The kernel keeps such connections as long as their peers
    /// answer, but it has the machine's whole memory for them, and no other connection waits for
    /// it.
    pub(crate) fn end_stalled(&mut self, place: u32, activity: &mut Activity) {
        let (stack, now) = (&self.stack, self.now);
        let is_stalled =
            |id: SocketId| stack.tcp_stalled_ns(now, id).is_some_and(|ns| ns >= STALLED_NS);
        let Some(session) = self.sessions.at(place) else { return };
        if session.pool.sendable() > 0 || !session.lanes.iter().any(|lane| lane.starved) {
            return;
        }
        if let Some((orphan, id)) = session.oldest_orphan(is_stalled) {
            let _ = self.stack.tcp_abort(now, id);
            self.bury(place, orphan);
        } else if let Some(id) = session.next_stalled(is_stalled) {
            // The resulting event informs the program and frees the buffers.
            let _ = self.stack.tcp_abort(now, id);
        } else {
            return;
        }
        self.counters.stalled_reset.increment();
        activity.served += 1;
    }
}

impl Session {
    /// A stalled connection that holds buffers, among the next few. Each call continues where the
    /// previous one stopped.
    fn next_stalled(&mut self, is_stalled: impl Fn(SocketId) -> bool) -> Option<SocketId> {
        for _ in 0..LOOKS.min(self.endpoints.len()) {
            self.looked_at = (self.looked_at + 1) % self.endpoints.len();
            if let Some(Endpoint { role: Role::Stream(stream), .. }) =
                self.endpoints.get(self.looked_at)
                && stream.send.list.count() > 0
                && is_stalled(stream.id)
            {
                return Some(stream.id);
            }
        }
        None
    }
}
