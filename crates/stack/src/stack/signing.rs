//! Signed segments (RFC 2385) as the caller has them.

use super::{HEADER_MAX, Stack};
use crate::api::{Cidr, Payload, RequestError, SocketId, Transmit};
use crate::tcp::SigningKey;

impl Stack {
    /// Sets or takes back the key that the segments of `peers` are signed with (RFC 2385): of a
    /// listener's, or of a connection's, before its SYN is sent.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names neither a connection nor a listener;
    /// [`RequestError::Unknown`] if a key is taken back that was never set;
    /// [`RequestError::LimitReached`] if a listener has [`KEYS_MAX`](crate::tcp::KEYS_MAX) keys
    /// already.
    pub fn tcp_set_key(
        &mut self,
        id: SocketId,
        peers: Cidr,
        key: Option<SigningKey>,
    ) -> Result<(), RequestError> {
        self.tcp.set_key(id, peers, key)
    }

    /// Signs a frame that [`poll_transmit`](Self::poll_transmit) says to be unsigned, given its
    /// headers and its payload.
    pub fn tcp_sign(&self, transmit: &Transmit, header: &mut [u8; HEADER_MAX], payload: &[u8]) {
        let (Payload::Stream { id, .. }, Some((start, _))) = (transmit.payload, transmit.checksum)
        else {
            return;
        };
        let range = usize::from(start)..usize::from(transmit.header_bytes);
        if let Some(header) = header.get_mut(range) {
            self.tcp.sign(id, header, payload);
        }
    }
}
