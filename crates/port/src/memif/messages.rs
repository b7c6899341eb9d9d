//! Messages of the control socket: 128 bytes each, packed, in the machine's byte order.

/// Bytes of a message.
pub(super) const MESSAGE_BYTES: usize = 128;
/// Version 2.0.
const VERSION: u16 = 2 << 8;
/// Regions that a peer may have.
pub(super) const REGIONS_MAX: usize = 16;
/// Longest secret.
pub const SECRET_BYTES_MAX: usize = 24;
/// Bytes of a name.
const NAME_BYTES: usize = 32;
/// Slots of a ring at the most, as a power of two.
pub(super) const RING_LOG2_MAX: u8 = 14;
/// An ADD_RING is of the direction from client to server.
const FLAG_CLIENT_TO_SERVER: u16 = 1;

const ACK: u16 = 1;
const HELLO: u16 = 2;
const INIT: u16 = 3;
const ADD_REGION: u16 = 4;
const ADD_RING: u16 = 5;
const CONNECT: u16 = 6;
const CONNECTED: u16 = 7;
const DISCONNECT: u16 = 8;

/// A ring that a peer adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AddRing {
    pub to_server: bool,
    pub index: u16,
    pub region: u16,
    pub offset: u32,
    pub log2_slots: u8,
    pub private_bytes: u16,
}

/// What a peer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FromPeer {
    Ack,
    Init { version: u16, id: u32, mode: u8, secret: [u8; SECRET_BYTES_MAX] },
    AddRegion { index: u16, bytes: u64 },
    AddRing(AddRing),
    Connect,
    Disconnect,
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

impl FromPeer {
    /// Reads a message; `None` for what a client does not say.
    pub fn read(bytes: &[u8; MESSAGE_BYTES]) -> Option<Self> {
        let short = |at| array(bytes, at).map(u16::from_ne_bytes);
        let word = |at| array(bytes, at).map(u32::from_ne_bytes);
        Some(match short(0)? {
            ACK => Self::Ack,
            INIT => Self::Init {
                version: short(2)?,
                id: word(4)?,
                mode: *bytes.get(8)?,
                secret: array(bytes, 9)?,
            },
            ADD_REGION => Self::AddRegion {
                index: short(2)?,
                bytes: array(bytes, 4).map(u64::from_ne_bytes)?,
            },
            ADD_RING => Self::AddRing(AddRing {
                to_server: short(2)? & FLAG_CLIENT_TO_SERVER != 0,
                index: short(4)?,
                region: short(6)?,
                offset: word(8)?,
                log2_slots: *bytes.get(12)?,
                private_bytes: short(13)?,
            }),
            CONNECT => Self::Connect,
            DISCONNECT => Self::Disconnect,
            _ => return None,
        })
    }

    /// Whether a descriptor comes with it.
    pub fn has_descriptor(&self) -> bool {
        matches!(self, Self::AddRegion { .. } | Self::AddRing(_))
    }
}

fn message(kind: u16, parts: &[&[u8]]) -> [u8; MESSAGE_BYTES] {
    let mut bytes = [0; MESSAGE_BYTES];
    let head = kind.to_ne_bytes();
    let all = head.iter().chain(parts.iter().copied().flatten());
    for (room, byte) in bytes.iter_mut().zip(all) {
        *room = *byte;
    }
    bytes
}

/// The server's first word: who it is, and how much of everything it takes.
pub(super) fn hello() -> [u8; MESSAGE_BYTES] {
    let mut name = [0; NAME_BYTES];
    let own = b"outboard";
    name[..own.len()].copy_from_slice(own);
    let version = VERSION.to_ne_bytes();
    let regions = (REGIONS_MAX as u16 - 1).to_ne_bytes();
    // One ring each way: the last has number 0.
    let rings = 0u16.to_ne_bytes();
    message(HELLO, &[&name, &version, &version, &regions, &rings, &rings, &[RING_LOG2_MAX]])
}

/// A message was taken.
pub(super) fn ack() -> [u8; MESSAGE_BYTES] {
    message(ACK, &[])
}

/// The rings are in use.
pub(super) fn connected() -> [u8; MESSAGE_BYTES] {
    message(CONNECTED, &[b"outboard"])
}

/// The end, and why: at most 95 bytes.
pub(super) fn disconnect(why: &str) -> [u8; MESSAGE_BYTES] {
    const WHY_BYTES_MAX: usize = 95;
    let why = why.as_bytes();
    message(DISCONNECT, &[&1u32.to_ne_bytes(), why.get(..WHY_BYTES_MAX).unwrap_or(why)])
}

/// Whether a version is ours.
pub(super) fn is_ours(version: u16) -> bool {
    version == VERSION
}
