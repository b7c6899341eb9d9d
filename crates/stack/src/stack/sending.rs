//! What connections are asked and told of what they send.

use super::Stack;
use crate::api::{Instant, RequestError, SocketId, Transmit};

impl Stack {
    /// Up to where a connection's stream could be sent now, if so much were written; and whether frames of
    /// [`TcpLevels::frame_bytes`](crate::api::TcpLevels::frame_bytes) go in more than one piece.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names no connection.
    pub fn tcp_send_edge(
        &mut self,
        now: Instant,
        id: SocketId,
    ) -> Result<(u64, bool), RequestError> {
        self.tcp.send_edge(now, id)
    }

    /// The frame that [`poll_transmit`](Self::poll_transmit) gave last was dropped by a queue before the
    /// port, and nothing of it sent. Its data is not given again before something happens.
    pub fn tcp_refused(&mut self, now: Instant, frame: &Transmit) {
        self.tcp.on_refused(now, &frame.payload);
    }
}
