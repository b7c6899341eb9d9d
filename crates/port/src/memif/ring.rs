//! Rings as both sides know them: where their words lie, and frames of several buffers.

use super::memory::Region;

/// First word of a ring.
pub(super) const COOKIE: u32 = 0x3e3_1f20;
pub(super) const COOKIE_AT: usize = 0;
pub(super) const FLAGS_AT: usize = 4;
/// The client's position.
pub(super) const HEAD_AT: usize = 6;
/// The server's position.
pub(super) const TAIL_AT: usize = 64;
pub(super) const DESCRIPTORS_AT: usize = 128;
pub(super) const DESCRIPTOR_BYTES: usize = 16;
/// Of a ring's flags: its receiver polls.
pub(super) const NO_INTERRUPTS: u16 = 1;
/// Of a descriptor's flags: the frame goes on in the next one.
pub(super) const CHAINED: u16 = 1;
/// Buffers of one frame at the most: 64 KiB in buffers of 1 KiB.
const CHAIN_MAX: u16 = 64;

/// The peer's rings say what they must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokenProtocol;

impl std::fmt::Display for BrokenProtocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the peer's rings say what they must not")
    }
}

impl std::error::Error for BrokenProtocol {}

/// What the next frame from a peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// None is there.
    Nothing,
    /// Too long, or of no bytes.
    Unusable,
    /// One of so many bytes.
    Frame(usize),
}

/// The rings of a connected peer, as the worker uses them.
pub trait MemifRings: Send {
    /// Copies the next frame to the start of `room`; and how many buffers it had.
    ///
    /// # Errors
    /// The peer broke the protocol.
    fn take(&mut self, room: &mut [u8]) -> Result<(Came, u16), BrokenProtocol>;

    /// Gives back the buffers of frames that were taken.
    fn free_taken(&mut self);

    /// Copies a frame for the peer, which sees it after [`Self::publish`]. `false`: there is no room.
    ///
    /// # Errors
    /// The peer broke the protocol.
    fn put(&mut self, frame: &[u8]) -> Result<bool, BrokenProtocol>;

    /// Shows the peer the frames since the last call.
    fn publish(&mut self);
}

/// One buffer of a frame.
pub(super) struct Part<'a> {
    pub region: &'a Region,
    pub offset: usize,
    pub len: usize,
    pub is_chained: bool,
}

/// Copies the frame whose buffers `part` tells, of which `available` are there in a ring of so many
/// `slots`; and how many it had.
pub(super) fn gather<'a>(
    (available, slots): (u16, u16),
    room: &mut [u8],
    part: impl Fn(u16) -> Result<Part<'a>, BrokenProtocol>,
) -> Result<(Came, u16), BrokenProtocol> {
    let most = slots.min(CHAIN_MAX);
    let (mut len, mut fits) = (0, true);
    for number in 0..available.min(most) {
        let part = part(number)?;
        let end = len + part.len;
        match room.get_mut(len..end) {
            Some(room) if fits => part.region.read(part.offset, room),
            _ => fits = false,
        }
        len = end;
        if !part.is_chained {
            let came = if fits && len > 0 { Came::Frame(len) } else { Came::Unusable };
            return Ok((came, number + 1));
        }
    }
    // A frame whose last buffer is not there yet; one that has as many as can be never has one.
    if available >= most { Err(BrokenProtocol) } else { Ok((Came::Nothing, 0)) }
}

/// How many buffers a frame of `len` bytes needs, when `bytes_of` tells each one's size; `None` when
/// there are not so many.
pub(super) fn needed(
    len: usize,
    available: u16,
    bytes_of: impl Fn(u16) -> Result<usize, BrokenProtocol>,
) -> Result<Option<u16>, BrokenProtocol> {
    let (mut room, mut count) = (0, 0);
    while room < len {
        if count == available {
            return Ok(None);
        }
        room += match bytes_of(count)? {
            0 => return Err(BrokenProtocol),
            bytes if count < CHAIN_MAX => bytes,
            _ => return Err(BrokenProtocol),
        };
        count += 1;
    }
    Ok(Some(count))
}
