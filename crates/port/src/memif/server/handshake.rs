//! What a server makes of a client's messages, without a socket.

use std::os::fd::OwnedFd;

use super::rings::ServerRings;
use crate::memif::error::MemifError;
use crate::memif::memory::Region;
use crate::memif::messages::{
    AddRing, MemifMessage, REGIONS_MAX, RING_LOG2_MAX, SECRET_BYTES_MAX, VERSION, padded,
};

/// Bytes that the regions of a client have together at the most.
pub const REGION_BYTES_MAX: u64 = 64 << 20;

/// What is to be done after a message.
pub enum ServerStep {
    /// Nothing.
    Nothing,
    /// ACK is to be said.
    Acknowledge,
    /// The rings are in use from now on, and CONNECTED is to be said.
    Connected(Box<ServerRings>),
}

/// A client from its connection on.
pub struct ServerHandshake {
    id: u32,
    secret: Option<[u8; SECRET_BYTES_MAX]>,
    is_known: bool,
    regions: Vec<Region>,
    to_server: Option<AddRing>,
    to_client: Option<AddRing>,
    is_connected: bool,
}

impl ServerHandshake {
    /// A client of interface `id`, who must know `secret`.
    pub fn new(id: u32, secret: Option<&str>) -> Self {
        Self {
            id,
            secret: secret.map(|secret| padded(Some(secret))),
            is_known: false,
            regions: Vec::new(),
            to_server: None,
            to_client: None,
            is_connected: false,
        }
    }

    /// Whether its rings are in use.
    pub fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// Takes a message and the descriptors that came with it.
    ///
    /// # Errors
    /// Why the client is to be disconnected.
    pub fn hear(
        &mut self,
        message: MemifMessage,
        files: Vec<OwnedFd>,
    ) -> Result<ServerStep, MemifError> {
        let is_settled = matches!(message, MemifMessage::Ack | MemifMessage::Disconnect(_));
        if self.is_connected && !is_settled {
            return Err(MemifError::Late);
        }
        if !self.is_known && !is_settled && !matches!(message, MemifMessage::Init { .. }) {
            return Err(MemifError::Early);
        }
        match message {
            MemifMessage::Ack => return Ok(ServerStep::Nothing),
            MemifMessage::Disconnect(why) => return Err(MemifError::Disconnected(why)),
            MemifMessage::Init { version, id, mode, secret } => {
                if version != VERSION {
                    return Err(MemifError::Version { oldest: version, newest: version });
                }
                if mode != 0 {
                    return Err(MemifError::Mode(mode));
                }
                if id != self.id {
                    return Err(MemifError::Interface { asked: id, served: self.id });
                }
                if !self.is_secret(&secret) {
                    return Err(MemifError::Secret);
                }
                self.is_known = true;
            }
            MemifMessage::AddRegion { index, bytes } => self.add_region(index, bytes, files)?,
            MemifMessage::AddRing(ring) => self.add_ring(ring)?,
            MemifMessage::Connect => {
                let rings = self.to_server.zip(self.to_client).ok_or(MemifError::RingMissing)?;
                let regions = std::mem::take(&mut self.regions);
                let rings = ServerRings::new(regions, &rings.0, &rings.1)?;
                self.is_connected = true;
                return Ok(ServerStep::Connected(Box::new(rings)));
            }
            MemifMessage::Hello(_) | MemifMessage::Connected => {
                return Err(MemifError::UnknownMessage);
            }
        }
        Ok(ServerStep::Acknowledge)
    }

    fn add_region(
        &mut self,
        index: u16,
        bytes: u64,
        files: Vec<OwnedFd>,
    ) -> Result<(), MemifError> {
        if usize::from(index) != self.regions.len() || self.regions.len() >= REGIONS_MAX {
            return Err(MemifError::RegionNumber(index));
        }
        let held: u64 = self.regions.iter().map(Region::bytes).sum();
        let sum = held.saturating_add(bytes);
        if sum > REGION_BYTES_MAX {
            return Err(MemifError::RegionBytes(sum));
        }
        let file = files.first().ok_or(MemifError::Descriptors { came: 0, expected: 1 })?;
        self.regions.push(Region::shown(file, bytes)?);
        Ok(())
    }

    fn add_ring(&mut self, ring: AddRing) -> Result<(), MemifError> {
        let AddRing { index, private_bytes, log2_slots, .. } = ring;
        if index != 0 || private_bytes != 0 {
            return Err(MemifError::RingShape { index, private_bytes });
        }
        if !(1..=RING_LOG2_MAX).contains(&log2_slots) {
            return Err(MemifError::RingSlots(log2_slots));
        }
        let place = if ring.to_server { &mut self.to_server } else { &mut self.to_client };
        match place.replace(ring) {
            Some(_) => Err(MemifError::RingTwice),
            None => Ok(()),
        }
    }

    fn is_secret(&self, said: &[u8; SECRET_BYTES_MAX]) -> bool {
        // All bytes are looked at, wherever the first difference is.
        self.secret
            .is_none_or(|wanted| wanted.iter().zip(said).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0)
    }
}
