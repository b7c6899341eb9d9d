//! What a client makes of a server's messages, without a socket.

use super::rings::{REGION_BYTES, RING_LOG2, ring_offset};
use crate::memif::error::MemifError;
use crate::memif::messages::{AddRing, Hello, MemifMessage, VERSION, padded};

/// What is to be done after a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientStep {
    /// This is to be said, with the descriptor that belongs to it.
    Say(MemifMessage),
    /// The rings are in use from now on.
    Connected,
}

/// A server from the connection on: each message of ours follows the answer to the one before.
pub struct ClientHandshake {
    id: u32,
    secret: Option<String>,
    /// Messages said.
    said: usize,
}

impl ClientHandshake {
    /// A server of whose interface `id` we become the client.
    pub fn new(id: u32, secret: Option<&str>) -> Self {
        Self { id, secret: secret.map(str::to_owned), said: 0 }
    }

    /// Takes a message.
    ///
    /// # Errors
    /// Why the server is to be left.
    pub fn hear(&mut self, message: &MemifMessage) -> Result<ClientStep, MemifError> {
        let is_next = match message {
            MemifMessage::Hello(hello) => {
                check(hello)?;
                self.said == 0
            }
            MemifMessage::Ack => (1..SAID_MAX).contains(&self.said),
            MemifMessage::Connected => self.said == SAID_MAX,
            MemifMessage::Disconnect(why) => return Err(MemifError::Disconnected(why.clone())),
            _ => return Err(MemifError::UnknownMessage),
        };
        if !is_next {
            return Err(if self.said > SAID_MAX { MemifError::Late } else { MemifError::Early });
        }
        let next = self.next();
        self.said += 1;
        Ok(next.map_or(ClientStep::Connected, ClientStep::Say))
    }

    /// What is to be said now; `None` when all is said.
    fn next(&self) -> Option<MemifMessage> {
        let ring = |to_server| {
            MemifMessage::AddRing(AddRing {
                to_server,
                index: 0,
                region: 0,
                offset: ring_offset(to_server) as u32,
                log2_slots: RING_LOG2,
                private_bytes: 0,
            })
        };
        let secret = padded(self.secret.as_deref());
        match self.said {
            0 => Some(MemifMessage::Init { version: VERSION, id: self.id, mode: 0, secret }),
            1 => Some(MemifMessage::AddRegion { index: 0, bytes: REGION_BYTES as u64 }),
            2 => Some(ring(true)),
            3 => Some(ring(false)),
            4 => Some(MemifMessage::Connect),
            _ => None,
        }
    }
}

/// INIT, a region, two rings and CONNECT.
const SAID_MAX: usize = 5;

fn check(hello: &Hello) -> Result<(), MemifError> {
    let Hello { oldest, newest, log2_slots, .. } = *hello;
    if !(oldest..=newest).contains(&VERSION) {
        return Err(MemifError::Version { oldest, newest });
    }
    if log2_slots < RING_LOG2 {
        return Err(MemifError::FewSlots(log2_slots));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_skips_or_repeats_a_word_is_left() {
        let hello = MemifMessage::Hello(Hello::OWN);
        let mut client = ClientHandshake::new(7, None);
        assert_eq!(client.hear(&MemifMessage::Ack), Err(MemifError::Early));
        assert!(matches!(client.hear(&hello), Ok(ClientStep::Say(MemifMessage::Init { .. }))));
        assert_eq!(client.hear(&hello), Err(MemifError::Early));
        for _ in 0..4 {
            assert!(matches!(client.hear(&MemifMessage::Ack), Ok(ClientStep::Say(_))));
        }
        assert_eq!(client.hear(&MemifMessage::Ack), Err(MemifError::Early));
        assert_eq!(client.hear(&MemifMessage::Connected), Ok(ClientStep::Connected));
        assert_eq!(client.hear(&MemifMessage::Connected), Err(MemifError::Late));
        assert_eq!(client.hear(&MemifMessage::Connect), Err(MemifError::UnknownMessage));
    }

    #[test]
    fn a_server_that_takes_less_than_is_needed_is_left() {
        let of = |hello| ClientHandshake::new(0, None).hear(&MemifMessage::Hello(hello));
        let old = Hello { oldest: 0x100, newest: 0x1ff, ..Hello::OWN };
        assert_eq!(of(old), Err(MemifError::Version { oldest: 0x100, newest: 0x1ff }));
        assert_eq!(of(Hello { log2_slots: 3, ..Hello::OWN }), Err(MemifError::FewSlots(3)));
    }
}
