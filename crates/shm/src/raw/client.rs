//! The client's sides of the rings. One thread at a time uses each.

use std::sync::Arc;

use super::frames::{Entry, TIME_BYTES, entry_bytes};
use super::message::{FrameFlags, Header, META_BYTES, MessageKind, Meta, NOTICE_LOST};
use super::rings::{Half, Rings, word};
use super::{HEADER_BYTES, MESSAGE_ALIGN, message_bytes};
use crate::sync::{Ordering, fence};

/// What the engine wrote cannot be read: it broke its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The first word of the message.
    pub word: u64,
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a message from the engine is malformed (first word {:#018x})", self.word)
    }
}

impl std::error::Error for Malformed {}

/// A frame that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpFrame {
    /// Port number plus one.
    pub port: u8,
    /// Its flags.
    pub flags: FrameFlags,
    /// What else is known of it, where that was asked for.
    pub meta: Option<Meta>,
    at: usize,
    /// Its length here.
    pub len: usize,
}

#[cfg(not(loom))]
impl Rings {
    /// The bytes of a frame that came through them.
    ///
    /// # Panics
    /// When it did not.
    pub fn bytes_of(&self, frame: &UpFrame) -> arch::SharedBytes<'_> {
        self.shared(frame.at, frame.len)
    }
}

/// What the next message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// A frame.
    Frame(UpFrame),
    /// So many frames were dropped here for want of room.
    Lost(u32),
}

/// A message of several frames that is being read.
#[derive(Clone, Copy, Debug)]
struct Within {
    /// Position of the message.
    start: u64,
    at: usize,
    end: usize,
}

/// The consumer of UP.
#[derive(Debug)]
pub struct ClientUp {
    rings: Arc<Rings>,
    half: Half,
    head: u64,
    released: u64,
    tail: u64,
    within: Option<Within>,
}

impl ClientUp {
    /// The consumer, from where the last one stopped.
    pub fn new(rings: Arc<Rings>) -> Self {
        let head = rings.load(word::UP_HEAD, Ordering::Relaxed);
        Self { half: rings.up(), head, released: head, tail: head, within: None, rings }
    }

    /// Whether something waits to be read.
    pub fn has_more(&self) -> bool {
        self.within.is_some()
            || self.head != self.tail
            || self.head != self.rings.load(word::UP_TAIL, Ordering::Acquire)
    }

    /// Takes the next frame or notice. Its bytes are whole until [`Self::release`].
    ///
    /// # Errors
    /// The engine broke its word.
    pub fn receive(&mut self) -> Result<Option<Received>, Malformed> {
        if let Some(frame) = self.next_within()? {
            return Ok(Some(Received::Frame(frame)));
        }
        loop {
            if self.head == self.tail {
                // Acquire pairs with the Release in `EngineUp::publish`.
                self.tail = self.rings.load(word::UP_TAIL, Ordering::Acquire);
                if self.head == self.tail {
                    return Ok(None);
                }
            }
            let at = self.half.at(self.head);
            let word = self.rings.load(at, Ordering::Relaxed);
            let bad = Malformed { word };
            let header = Header::decode(word).ok_or(bad)?;
            if header.kind == MessageKind::Wrap {
                self.head += self.half.rest(self.head);
                continue;
            }
            let (len, at) = (header.len as usize, at + HEADER_BYTES);
            let need = message_bytes(len);
            if need > self.half.rest(self.head).min(self.tail.wrapping_sub(self.head)) {
                return Err(bad);
            }
            let start = self.head;
            self.head += need;
            match header.kind {
                MessageKind::Frame => {
                    let has_meta = header.flags.contains(FrameFlags::META);
                    let skipped = if has_meta { META_BYTES } else { 0 };
                    let len = len.checked_sub(skipped).ok_or(bad)?;
                    let mut meta = None;
                    if has_meta {
                        let mut bytes = [0; META_BYTES];
                        self.rings.read(at, &mut bytes);
                        meta = Some(Meta::decode(&bytes).ok_or(bad)?);
                    }
                    let (port, flags, at) = (header.port, header.flags, at + skipped);
                    return Ok(Some(Received::Frame(UpFrame { port, flags, meta, at, len })));
                }
                MessageKind::Frames => {
                    self.within = Some(Within { start, at: at + TIME_BYTES, end: at + len });
                    if let Some(frame) = self.next_within()? {
                        return Ok(Some(Received::Frame(frame)));
                    }
                }
                MessageKind::Notice => {
                    let mut bytes = [0; 16];
                    if len < bytes.len() {
                        return Err(bad);
                    }
                    self.rings.read(at, &mut bytes);
                    let words = u128::from_le_bytes(bytes);
                    let (kind, count) = ((words >> 64) as u32, (words >> 96) as u32);
                    // Of a later version: what it says is for others.
                    if kind == NOTICE_LOST {
                        return Ok(Some(Received::Lost(count)));
                    }
                }
                // Of an extension.
                MessageKind::Record | MessageKind::Wrap => {}
            }
        }
    }

    fn next_within(&mut self) -> Result<Option<UpFrame>, Malformed> {
        let Some(Within { start, at, end }) = self.within else { return Ok(None) };
        if at >= end {
            self.within = None;
            return Ok(None);
        }
        let mut bytes = [0; 8];
        self.rings.read(at, &mut bytes);
        let bad = Malformed { word: u64::from_le_bytes(bytes) };
        let Entry { len, port, flags, .. } = Entry::decode(bytes).ok_or(bad)?;
        let len = usize::from(len);
        let next = at + entry_bytes(len);
        if next > end {
            return Err(bad);
        }
        self.within = Some(Within { start, at: next, end });
        Ok(Some(UpFrame { port, flags, meta: None, at: at + bytes.len(), len }))
    }

    /// Copies the start of a frame's bytes, as many as both hold, and gives how many.
    pub fn read(&self, frame: &UpFrame, bytes: &mut [u8]) -> usize {
        let len = bytes.len().min(frame.len);
        self.rings.read(frame.at, &mut bytes[..len]);
        len
    }

    /// Gives back the room of all that was taken, but for a message that is not read to its end.
    /// `true`: the engine asked for a doorbell ([`Direction::Receive`](crate::client_side::Direction)), as
    /// it has something to say for which there was no room.
    #[must_use]
    pub fn release(&mut self) -> bool {
        let end = self.within.map_or(self.head, |within| within.start);
        if self.released == end {
            return false;
        }
        self.released = end;
        // Release pairs with the Acquire in `EngineUp::has_room`: the reading is over.
        self.rings.store(word::UP_HEAD, end, Ordering::Release);
        // Pairs with the engine's fence after a wish: either it sees the head, or we see the wish.
        fence(Ordering::SeqCst);
        end >= self.rings.load(word::UP_WANTED, Ordering::Relaxed)
    }

    /// Frames that came and frames that were dropped for want of room, since the beginning.
    pub fn counts(&self) -> (u64, u64) {
        let of = |at| self.rings.load(at, Ordering::Relaxed);
        (of(word::UP_MESSAGES), of(word::UP_DROPPED))
    }

    /// How often the engine has published.
    pub fn publications(&self) -> u64 {
        self.rings.load(word::PUBLICATIONS, Ordering::Relaxed)
    }
}

/// There is no room in DOWN now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

impl std::fmt::Display for NoRoom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the ring to the engine is full")
    }
}

impl std::error::Error for NoRoom {}

/// The producer of DOWN.
#[derive(Debug)]
pub struct ClientDown {
    rings: Arc<Rings>,
    half: Half,
    head: u64,
    tail: u64,
    committed: u64,
}

impl ClientDown {
    /// The producer, from what was committed last; `None` where there is no DOWN.
    pub fn new(rings: Arc<Rings>) -> Option<Self> {
        let half = rings.down()?;
        let tail = rings.load(word::DOWN_TAIL, Ordering::Relaxed);
        let head = rings.load(word::DOWN_HEAD, Ordering::Acquire);
        Some(Self { half, head, tail, committed: tail, rings })
    }

    /// Longest frame, with a [`Meta`] or without.
    pub fn frame_bytes_max(&self, has_meta: bool) -> usize {
        let meta = if has_meta { META_BYTES } else { 0 };
        self.half.message_max() as usize - HEADER_BYTES - meta
    }

    /// Where a message of `need` bytes would end.
    fn end_of(&self, need: u64) -> u64 {
        self.tail + self.half.skip(self.tail, need) + need
    }

    /// Whether there is room for a frame of `len` bytes, [`Meta`] included.
    pub fn has_room(&mut self, len: usize) -> bool {
        let end = self.end_of(message_bytes(len));
        if end - self.head > self.half.bytes {
            // Acquire pairs with the Release in `EngineDown::publish`: the copying is over.
            self.head = self.rings.load(word::DOWN_HEAD, Ordering::Acquire);
        }
        end.wrapping_sub(self.head) <= self.half.bytes
    }

    /// Takes room for a frame of `len` bytes to a port (its number plus one, or 0), and writes
    /// everything but the frame; where its bytes go, for [`Self::write`].
    ///
    /// # Errors
    /// The ring is full; a frame longer than [`Self::frame_bytes_max`] never fits.
    pub fn reserve(&mut self, port: u8, meta: Option<&Meta>, len: usize) -> Result<usize, NoRoom> {
        let whole = len + meta.map_or(0, |_| META_BYTES);
        let need = message_bytes(whole);
        if need > self.half.message_max() || !self.has_room(whole) {
            return Err(NoRoom);
        }
        let skip = self.half.skip(self.tail, need);
        if skip > 0 {
            let (len, flags) = ((skip - HEADER_BYTES as u64) as u32, FrameFlags::empty());
            let wrap = Header { len, kind: MessageKind::Wrap, port: 0, flags };
            self.rings.store(self.half.at(self.tail), wrap.encode(), Ordering::Relaxed);
            self.tail += skip;
        }
        let flags = if meta.is_some() { FrameFlags::META } else { FrameFlags::empty() };
        let header = Header { len: whole as u32, kind: MessageKind::Frame, port, flags };
        let at = self.half.at(self.tail);
        self.rings.store(at, header.encode(), Ordering::Relaxed);
        self.tail += need;
        let mut at = at + HEADER_BYTES;
        if let Some(meta) = meta {
            self.rings.write(at, &meta.encode());
            at += META_BYTES;
        }
        Ok(at)
    }

    /// Writes bytes of a frame at a place that [`Self::reserve`] gave.
    ///
    /// # Panics
    /// Beyond the end of the rings.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        self.rings.write(at, bytes);
    }

    /// Shows the engine what was reserved. `true`: there is something new to ring for
    /// ([`Direction::Send`](crate::client_side::Direction)).
    #[must_use]
    pub fn commit(&mut self) -> bool {
        if self.committed == self.tail {
            return false;
        }
        self.committed = self.tail;
        // Pairs with the Acquire in `EngineDown::next`.
        self.rings.store(word::DOWN_TAIL, self.tail, Ordering::Release);
        true
    }

    /// Asks for one event when there is room for a frame of `len` bytes; `true` when there is by
    /// now.
    pub fn want(&mut self, len: usize) -> bool {
        let end = self.end_of(message_bytes(len));
        let wanted = end.saturating_sub(self.half.bytes).next_multiple_of(MESSAGE_ALIGN);
        self.rings.store(word::DOWN_WANTED, wanted, Ordering::Relaxed);
        // Pairs with the fence in `EngineDown::publish`: either the engine sees the wish, or we see
        // the head.
        fence(Ordering::SeqCst);
        self.has_room(len)
    }

    /// Frames sent and frames that could not be, since the beginning.
    pub fn counts(&self) -> (u64, u64) {
        let of = |at| self.rings.load(at, Ordering::Relaxed);
        (of(word::DOWN_MESSAGES), of(word::DOWN_DROPPED))
    }
}
