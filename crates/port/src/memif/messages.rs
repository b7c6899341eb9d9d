//! Messages of the control socket: 128 bytes each, packed, in the machine's byte order.

/// Bytes of a message.
pub const MESSAGE_BYTES: usize = 128;
/// Longest secret.
pub const SECRET_BYTES_MAX: usize = 24;
/// Version 2.0.
pub(super) const VERSION: u16 = 2 << 8;
/// Regions that a client may have.
pub(super) const REGIONS_MAX: usize = 16;
/// Slots of a ring at the most, as a power of two.
pub(super) const RING_LOG2_MAX: u8 = 14;
/// Bytes of a name.
const NAME_BYTES: usize = 32;
/// Bytes of the reason of a DISCONNECT.
const REASON_BYTES: usize = 96;
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

/// A ring that a client adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddRing {
    /// Its direction.
    pub to_server: bool,
    /// Its number among those of its direction.
    pub index: u16,
    /// The region that it lies in.
    pub region: u16,
    /// Where it begins there.
    pub offset: u32,
    /// Its slots, as a power of two.
    pub log2_slots: u8,
    /// Bytes of a private header before each frame.
    pub private_bytes: u16,
}

/// Who a server is, and how much of everything it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The oldest version that it speaks.
    pub oldest: u16,
    /// The newest version that it speaks.
    pub newest: u16,
    /// Number of the last region.
    pub last_region: u16,
    /// Numbers of the last ring from client to server, and back.
    pub last_rings: [u16; 2],
    /// Slots of a ring at the most, as a power of two.
    pub log2_slots: u8,
}

impl Hello {
    /// The engine's.
    pub(super) const OWN: Self = Self {
        oldest: VERSION,
        newest: VERSION,
        last_region: REGIONS_MAX as u16 - 1,
        last_rings: [0; 2],
        log2_slots: RING_LOG2_MAX,
    };
}

/// What client and server say to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemifMessage {
    /// A message of the client's was taken.
    Ack,
    /// The server's first word.
    Hello(Hello),
    /// The client's first word.
    Init {
        /// The version that it speaks.
        version: u16,
        /// The interface that it connects to.
        id: u32,
        /// What frames are: 0 for Ethernet.
        mode: u8,
        /// What it must know.
        secret: [u8; SECRET_BYTES_MAX],
    },
    /// A region of memory; its memfd comes along.
    AddRegion {
        /// Its number.
        index: u16,
        /// Its size.
        bytes: u64,
    },
    /// A ring; the descriptor of its interrupt comes along.
    AddRing(AddRing),
    /// Everything was added.
    Connect,
    /// The rings are in use.
    Connected,
    /// The end, and why.
    Disconnect(String),
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

impl MemifMessage {
    /// Reads a message; `None` for one of an unknown kind.
    pub fn read(bytes: &[u8; MESSAGE_BYTES]) -> Option<Self> {
        let short = |at| array(bytes, at).map(u16::from_ne_bytes);
        let word = |at| array(bytes, at).map(u32::from_ne_bytes);
        Some(match short(0)? {
            ACK => Self::Ack,
            HELLO => Self::Hello(Hello {
                oldest: short(34)?,
                newest: short(36)?,
                last_region: short(38)?,
                last_rings: [short(40)?, short(42)?],
                log2_slots: *bytes.get(44)?,
            }),
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
            CONNECTED => Self::Connected,
            DISCONNECT => {
                let reason = bytes.get(6..6 + REASON_BYTES)?;
                let reason = reason.split(|byte| *byte == 0).next()?;
                Self::Disconnect(String::from_utf8_lossy(reason).into_owned())
            }
            _ => return None,
        })
    }

    /// As it is sent.
    pub fn encode(&self) -> [u8; MESSAGE_BYTES] {
        let name = name();
        match self {
            Self::Ack => message(ACK, &[]),
            Self::Hello(Hello { oldest, newest, last_region, last_rings, log2_slots }) => {
                let [to_server, to_client] = last_rings;
                let shorts = [oldest, newest, last_region, to_server, to_client];
                let [a, b, c, d, e] = shorts.map(|short| short.to_ne_bytes());
                message(HELLO, &[&name, &a, &b, &c, &d, &e, &[*log2_slots]])
            }
            Self::Init { version, id, mode, secret } => {
                let (version, id) = (version.to_ne_bytes(), id.to_ne_bytes());
                message(INIT, &[&version, &id, &[*mode], secret, &name])
            }
            Self::AddRegion { index, bytes } => {
                message(ADD_REGION, &[&index.to_ne_bytes(), &bytes.to_ne_bytes()])
            }
            Self::AddRing(ring) => {
                let flags = if ring.to_server { FLAG_CLIENT_TO_SERVER } else { 0 };
                let shorts = [flags, ring.index, ring.region];
                let [a, b, c] = shorts.map(u16::to_ne_bytes);
                let (offset, private) =
                    (ring.offset.to_ne_bytes(), ring.private_bytes.to_ne_bytes());
                message(ADD_RING, &[&a, &b, &c, &offset, &[ring.log2_slots], &private])
            }
            Self::Connect => message(CONNECT, &[&name]),
            Self::Connected => message(CONNECTED, &[&name]),
            Self::Disconnect(reason) => {
                let reason = reason.as_bytes();
                let reason = reason.get(..REASON_BYTES - 1).unwrap_or(reason);
                message(DISCONNECT, &[&1u32.to_ne_bytes(), reason])
            }
        }
    }

    /// Descriptors that come with it.
    pub fn descriptors(&self) -> usize {
        usize::from(matches!(self, Self::AddRegion { .. } | Self::AddRing(_)))
    }
}

/// What the engine calls itself.
fn name() -> [u8; NAME_BYTES] {
    let mut name = [0; NAME_BYTES];
    for (room, byte) in name.iter_mut().zip(b"outboard") {
        *room = *byte;
    }
    name
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

/// A secret as INIT holds it; zeros without one.
pub(super) fn padded(secret: Option<&str>) -> [u8; SECRET_BYTES_MAX] {
    let mut bytes = [0; SECRET_BYTES_MAX];
    for (room, byte) in bytes.iter_mut().zip(secret.unwrap_or_default().bytes()) {
        *room = byte;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let ring = AddRing {
            to_server: true,
            index: 1,
            region: 2,
            offset: 3,
            log2_slots: 4,
            private_bytes: 5,
        };
        let hello =
            Hello { oldest: 1, newest: 2, last_region: 3, last_rings: [4, 5], log2_slots: 6 };
        for message in [
            MemifMessage::Ack,
            MemifMessage::Hello(hello),
            MemifMessage::Init { version: 1, id: 2, mode: 3, secret: padded(Some("sesame")) },
            MemifMessage::AddRegion { index: 1, bytes: 1 << 40 },
            MemifMessage::AddRing(ring),
            MemifMessage::AddRing(AddRing { to_server: false, ..ring }),
            MemifMessage::Connect,
            MemifMessage::Connected,
            MemifMessage::Disconnect("x".repeat(95)),
        ] {
            assert_eq!(MemifMessage::read(&message.encode()).as_ref(), Some(&message));
        }
        for kind in [0, 9, u16::MAX] {
            assert_eq!(MemifMessage::read(&super::message(kind, &[])), None);
        }
    }
}
