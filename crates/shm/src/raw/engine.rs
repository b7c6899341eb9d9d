//! The engine's sides of the rings: positions and sizes are private, and whatever the client wrote
//! is loaded once and checked.

use std::sync::Arc;

#[cfg(not(loom))]
use arch::SharedBytes;

use super::frames::{Entry, Open, SMALL_BYTES_MAX, TIME_BYTES, entry_bytes};
use super::message::{FrameFlags, Header, META_BYTES, MessageKind, Meta, NOTICE_LOST};
use super::rings::{Half, Rings, word};
use super::{HEADER_BYTES, MESSAGE_ALIGN, message_bytes};
use crate::sync::{Ordering, fence};

/// How a client broke the contract in its rings. It loses its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingBreach {
    /// `down_tail` went back, is no multiple of 64, or is more than the ring's size ahead.
    TailOutOfWindow {
        /// As claimed.
        claimed: u64,
        /// What was claimed before.
        low: u64,
        /// Most possible.
        high: u64,
    },
    /// `up_head` went back, is no multiple of 64, or lies beyond `up_tail`.
    HeadOutOfWindow {
        /// As claimed.
        claimed: u64,
        /// What was claimed before.
        low: u64,
        /// Most possible.
        high: u64,
    },
    /// A message of DOWN is neither WRAP nor FRAME, or has unknown bits.
    HeaderMalformed {
        /// Its first word.
        word: u64,
    },
    /// A message reaches beyond the tail, the ring's end or an eighth of the ring.
    TooLong {
        /// Its first word.
        word: u64,
    },
}

impl std::fmt::Display for RingBreach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TailOutOfWindow { claimed, low, high } => write!(
                f,
                "down_tail is {claimed}, but must be a multiple of 64 between {low} and {high}"
            ),
            Self::HeadOutOfWindow { claimed, low, high } => write!(
                f,
                "up_head is {claimed}, but must be a multiple of 64 between {low} and {high}"
            ),
            Self::HeaderMalformed { word } => {
                write!(f, "a message to the engine is malformed (first word {word:#018x})")
            }
            Self::TooLong { word } => write!(
                f,
                "a message to the engine reaches beyond the pushed bytes, the ring's end or an \
                 eighth of the ring (first word {word:#018x})"
            ),
        }
    }
}

impl std::error::Error for RingBreach {}

fn checked(claimed: u64, low: u64, high: u64) -> Option<u64> {
    (claimed.is_multiple_of(MESSAGE_ALIGN) && (low..=high).contains(&claimed)).then_some(claimed)
}

/// What the engine says of a frame of UP.
#[derive(Clone, Copy, Debug, Default)]
pub struct UpInfo<'a> {
    /// Port number plus one.
    pub port: u8,
    /// Its flags; [`FrameFlags::META`] where there is a `meta`.
    pub flags: FrameFlags,
    /// What else is known of it.
    pub meta: Option<&'a Meta>,
    /// When it was received or sent, in engine nanoseconds.
    pub time_ns: u64,
}

/// The producer of UP.
pub struct EngineUp {
    rings: Arc<Rings>,
    half: Half,
    /// What the client has released, as far as is known.
    head: u64,
    tail: u64,
    published: u64,
    /// Small frames of the present burst that share a message.
    open: Option<Open>,
    /// Frames dropped since the last message.
    lost: u32,
    /// A doorbell is asked for once the client has made room for the notice of them.
    is_wished: bool,
    messages: u64,
    dropped: u64,
    publications: u64,
    told_dropped: u64,
}

impl EngineUp {
    /// The producer of fresh rings.
    pub fn new(rings: Arc<Rings>) -> Self {
        Self {
            half: rings.up(),
            rings,
            head: 0,
            tail: 0,
            published: 0,
            open: None,
            lost: 0,
            is_wished: false,
            messages: 0,
            dropped: 0,
            publications: 0,
            told_dropped: 0,
        }
    }

    /// Longest frame that a message holds, with a [`Meta`] or without.
    pub fn frame_bytes_max(&self, has_meta: bool) -> usize {
        let meta = if has_meta { META_BYTES } else { 0 };
        self.half.message_max() as usize - HEADER_BYTES - meta
    }

    /// Whether the client has released enough that the tail may go to `end`.
    fn has_room(&mut self, end: u64) -> Result<bool, RingBreach> {
        if end - self.head <= self.half.bytes {
            return Ok(true);
        }
        // Acquire pairs with the Release in `ClientUp::release`: the reading is over.
        let claimed = self.rings.load(word::UP_HEAD, Ordering::Acquire);
        let (low, high) = (self.head, self.published);
        let found = checked(claimed, low, high);
        self.head = found.ok_or(RingBreach::HeadOutOfWindow { claimed, low, high })?;
        Ok(end - self.head <= self.half.bytes)
    }

    /// Where a message of `need` bytes would begin, and end, from `tail` on.
    fn place(&self, tail: u64, need: u64) -> (u64, u64) {
        let start = tail + self.half.skip(tail, need);
        (start, start + need)
    }

    fn put_header(&self, position: u64, header: Header) {
        self.rings.store(self.half.at(position), header.encode(), Ordering::Relaxed);
    }

    /// Begins a message at `start`: what is left of the ring before it is skipped.
    fn begin(&mut self, start: u64) {
        if start != self.tail {
            let len = (start - self.tail) as u32 - HEADER_BYTES as u32;
            let wrap = Header { len, kind: MessageKind::Wrap, port: 0, flags: FrameFlags::empty() };
            self.put_header(self.tail, wrap);
            self.tail = start;
        }
    }

    /// Appends a frame; it is seen after [`Self::publish`]. `false`: there is no room, and the frame
    /// is counted as lost. A frame longer than [`Self::frame_bytes_max`] is the caller's to cut.
    ///
    /// # Errors
    /// [`RingBreach::HeadOutOfWindow`] if the client has released what it was not given.
    pub fn push(&mut self, info: UpInfo<'_>, frame: &[u8]) -> Result<bool, RingBreach> {
        let UpInfo { port, flags, meta, time_ns } = info;
        if meta.is_none() && frame.len() <= SMALL_BYTES_MAX {
            return self.push_small(port, flags, time_ns, frame);
        }
        self.close();
        let len = frame.len() + meta.map_or(0, |_| META_BYTES);
        let Some(start) = self.reserve(message_bytes(len))? else { return Ok(false) };
        let mut at = self.half.at(start) + HEADER_BYTES;
        if let Some(meta) = meta {
            self.rings.write(at, &meta.encode());
            at += META_BYTES;
        }
        self.rings.write(at, frame);
        self.put_header(start, Header { len: len as u32, kind: MessageKind::Frame, port, flags });
        self.messages += 1;
        Ok(true)
    }

    /// A frame that shares a message with others of its burst.
    fn push_small(
        &mut self,
        port: u8,
        flags: FrameFlags,
        time_ns: u64,
        frame: &[u8],
    ) -> Result<bool, RingBreach> {
        let open = match self.open.take() {
            Some(open) if self.grow(&open, frame.len())? => open,
            other => {
                self.open = other;
                self.close();
                let need = message_bytes(TIME_BYTES + entry_bytes(frame.len()));
                let Some(start) = self.reserve(need)? else { return Ok(false) };
                self.rings.write(self.half.at(start) + HEADER_BYTES, &time_ns.to_le_bytes());
                Open { start, len: TIME_BYTES, time_ns }
            }
        };
        let after_ns = time_ns.saturating_sub(open.time_ns).try_into().unwrap_or(u32::MAX);
        let entry = Entry { len: frame.len() as u16, port, flags, after_ns }.encode();
        let at = self.half.at(open.start) + HEADER_BYTES + open.len;
        self.rings.write(at, &entry);
        self.rings.write(at + entry.len(), frame);
        self.open = Some(Open { len: open.len + entry_bytes(frame.len()), ..open });
        self.messages += 1;
        Ok(true)
    }

    /// Whether an open message, which is the last one, has room for one frame more; takes it.
    fn grow(&mut self, open: &Open, frame: usize) -> Result<bool, RingBreach> {
        let Some(longer) = open.len_with(frame) else { return Ok(false) };
        let need = message_bytes(longer);
        let end = open.start + need;
        if need > self.half.rest(open.start).min(self.half.message_max()) || !self.has_room(end)? {
            return Ok(false);
        }
        self.tail = end;
        Ok(true)
    }

    /// Small frames that follow do not share the last one's message.
    pub fn end_message(&mut self) {
        self.close();
    }

    /// The header of a message of small frames, once all are in it.
    fn close(&mut self) {
        if let Some(Open { start, len, .. }) = self.open.take() {
            let (len, flags) = (len as u32, FrameFlags::empty());
            self.put_header(start, Header { len, kind: MessageKind::Frames, port: 0, flags });
        }
    }

    /// Takes room for a message of `need` bytes, behind a notice if frames were lost before; where it
    /// begins. `None`: there is no room, and one frame more is lost.
    fn reserve(&mut self, need: u64) -> Result<Option<u64>, RingBreach> {
        let notice = if self.lost > 0 { message_bytes(NOTICE_BYTES) } else { 0 };
        let (notice_at, behind) = self.place(self.tail, notice);
        let (start, end) = self.place(behind, need);
        if !self.has_room(end)? {
            self.lost = self.lost.saturating_add(1);
            self.dropped += 1;
            if !self.is_wished {
                self.wish(end)?;
            }
            return Ok(None);
        }
        if notice > 0 {
            self.begin(notice_at);
            self.put_lost();
        }
        self.begin(start);
        self.tail = end;
        Ok(Some(start))
    }

    /// Asks for a doorbell when there is room up to `end`, where the lost frame would have ended behind its
    /// notice: maybe no frame comes that the notice could precede.
    fn wish(&mut self, end: u64) -> Result<(), RingBreach> {
        self.is_wished = true;
        self.rings.store(word::UP_WANTED, end - self.half.bytes, Ordering::Relaxed);
        // Pairs with the fence in `ClientUp::release`: either the client sees the wish, or we see the head.
        fence(Ordering::SeqCst);
        if self.has_room(end)? {
            self.tell_lost()?;
        }
        Ok(())
    }

    /// Appends a notice of frames that were lost since the last message, if there are any and there is room
    /// by now; it is seen after [`Self::publish`]. `true`: there is something to publish.
    ///
    /// # Errors
    /// The client has released what it was not given.
    pub fn tell_lost(&mut self) -> Result<bool, RingBreach> {
        if self.lost == 0 {
            return Ok(false);
        }
        self.close();
        let (start, end) = self.place(self.tail, message_bytes(NOTICE_BYTES));
        if !self.has_room(end)? {
            return Ok(false);
        }
        self.begin(start);
        self.put_lost();
        Ok(true)
    }

    fn put_lost(&mut self) {
        if std::mem::take(&mut self.is_wished) {
            self.rings.store(word::UP_WANTED, u64::MAX, Ordering::Relaxed);
        }
        let mut bytes = [0; NOTICE_BYTES];
        let words = [0, u64::from(NOTICE_LOST) | u64::from(self.lost) << 32];
        for (room, value) in bytes.chunks_exact_mut(8).zip(words) {
            room.copy_from_slice(&u64::to_le_bytes(value));
        }
        self.rings.write(self.half.at(self.tail) + HEADER_BYTES, &bytes);
        let (len, flags) = (NOTICE_BYTES as u32, FrameFlags::empty());
        self.put_header(self.tail, Header { len, kind: MessageKind::Notice, port: 0, flags });
        self.tail += message_bytes(NOTICE_BYTES);
        self.lost = 0;
    }

    /// Shows what was pushed, once for a burst. `true`: there is something new to be told of.
    pub fn publish(&mut self) -> bool {
        self.close();
        if self.dropped != self.told_dropped {
            self.told_dropped = self.dropped;
            self.rings.store(word::UP_DROPPED, self.dropped, Ordering::Relaxed);
        }
        if self.tail == self.published {
            return false;
        }
        self.published = self.tail;
        self.publications += 1;
        self.rings.store(word::PUBLICATIONS, self.publications, Ordering::Relaxed);
        self.rings.store(word::UP_MESSAGES, self.messages, Ordering::Relaxed);
        // Pairs with the Acquire in `ClientUp::next`.
        self.rings.store(word::UP_TAIL, self.tail, Ordering::Release);
        true
    }

    /// Frames given to the ring, and frames that found no room.
    pub fn counts(&self) -> (u64, u64) {
        (self.messages, self.dropped)
    }
}

/// Bytes of a notice without text.
const NOTICE_BYTES: usize = 16;

/// A frame of DOWN, copied no further than its header word and [`Meta`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DownFrame {
    /// Position behind the message.
    pub end: u64,
    /// Port number plus one, or 0.
    pub port: u8,
    /// What is to be done to it.
    pub meta: Option<Meta>,
    /// Where its bytes lie.
    at: usize,
    /// Its length.
    pub len: usize,
}

/// What the consumer of DOWN found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Nothing (yet).
    Nothing,
    /// The rest of the ring, skipped.
    Wrap,
    /// A frame whose META is none, skipped.
    Bad,
    /// A frame. It stays the next until [`EngineDown::take`].
    Frame(DownFrame),
}

/// The consumer of DOWN.
pub struct EngineDown {
    rings: Arc<Rings>,
    half: Half,
    /// Messages before it were taken.
    head: u64,
    /// Messages before it are done with.
    done: u64,
    published: u64,
    tail: u64,
    messages: u64,
    dropped: u64,
    fulfilled: u64,
}

impl EngineDown {
    /// The consumer of fresh rings; `None` where there is no DOWN.
    pub fn new(rings: Arc<Rings>) -> Option<Self> {
        Some(Self {
            half: rings.down()?,
            rings,
            head: 0,
            done: 0,
            published: 0,
            tail: 0,
            messages: 0,
            dropped: 0,
            fulfilled: u64::MAX,
        })
    }

    /// Looks at the next message.
    ///
    /// # Errors
    /// How the client broke the contract.
    pub fn peek(&mut self) -> Result<Taken, RingBreach> {
        if self.head == self.tail {
            // Acquire pairs with the Release in `ClientDown::commit`.
            let claimed = self.rings.load(word::DOWN_TAIL, Ordering::Acquire);
            let (low, high) = (self.tail, self.done.saturating_add(self.half.bytes));
            let found = checked(claimed, low, high);
            self.tail = found.ok_or(RingBreach::TailOutOfWindow { claimed, low, high })?;
            if self.head == self.tail {
                return Ok(Taken::Nothing);
            }
        }
        let at = self.half.at(self.head);
        let word = self.rings.load(at, Ordering::Relaxed);
        let header = Header::decode(word).ok_or(RingBreach::HeaderMalformed { word })?;
        match header.kind {
            MessageKind::Wrap => {
                let end = self.head + self.half.rest(self.head);
                if end > self.tail {
                    return Err(RingBreach::TooLong { word });
                }
                self.head = end;
                Ok(Taken::Wrap)
            }
            MessageKind::Frame => {
                let len = header.len as usize;
                let need = message_bytes(len);
                let room = (self.tail - self.head).min(self.half.rest(self.head));
                if need > room.min(self.half.message_max()) {
                    return Err(RingBreach::TooLong { word });
                }
                let end = self.head + need;
                let at = at + HEADER_BYTES;
                if !header.flags.contains(FrameFlags::META) {
                    let (port, meta) = (header.port, None);
                    return Ok(Taken::Frame(DownFrame { end, port, meta, at, len }));
                }
                let mut bytes = [0; META_BYTES];
                let meta = len.checked_sub(META_BYTES).and_then(|len| {
                    self.rings.read(at, &mut bytes);
                    Some((Meta::decode(&bytes)?, len))
                });
                let Some((meta, len)) = meta else {
                    self.head = end;
                    self.count(false);
                    return Ok(Taken::Bad);
                };
                let (port, meta, at) = (header.port, Some(meta), at + META_BYTES);
                Ok(Taken::Frame(DownFrame { end, port, meta, at, len }))
            }
            MessageKind::Frames | MessageKind::Record | MessageKind::Notice => {
                Err(RingBreach::HeaderMalformed { word })
            }
        }
    }

    /// Copies the start of a frame's bytes, as many as both hold, and gives how many.
    pub fn read(&self, frame: &DownFrame, bytes: &mut [u8]) -> usize {
        let len = bytes.len().min(frame.len);
        if let Some(room) = bytes.get_mut(..len) {
            self.rings.read(frame.at, room);
        }
        len
    }

    /// A frame's bytes from `from` on, which the client may still write to.
    #[cfg(not(loom))]
    pub fn rest(&self, frame: &DownFrame, from: usize) -> SharedBytes<'_> {
        let from = from.min(frame.len);
        self.rings.shared(frame.at + from, frame.len - from)
    }

    /// Goes on behind a frame. It is done with by [`Self::finish`].
    pub fn take(&mut self, frame: &DownFrame) {
        self.head = frame.end;
    }

    /// Counts a frame: sent, or dropped.
    pub fn count(&mut self, is_sent: bool) {
        match is_sent {
            true => self.messages += 1,
            false => self.dropped += 1,
        }
    }

    /// Position behind what was taken.
    pub fn taken(&self) -> u64 {
        self.head
    }

    /// Everything before `position` is done with: its room is the client's again after
    /// [`Self::publish`].
    pub fn finish(&mut self, position: u64) {
        self.done = self.done.max(position.min(self.head));
    }

    /// Bytes taken and not done with.
    pub fn held_bytes(&self) -> u64 {
        self.head - self.done
    }

    /// Size of the ring.
    pub fn ring_bytes(&self) -> u64 {
        self.half.bytes
    }

    /// Shows the client what is done, when the ring has run empty, an eighth of it was freed or the
    /// client waits for it. `true`: the client waits for it, and is to be told.
    pub fn publish(&mut self) -> bool {
        if self.done == self.published {
            return false;
        }
        let freed = self.done - self.published;
        let is_empty = self.done == self.tail;
        let wanted = self.rings.load(word::DOWN_WANTED, Ordering::Relaxed);
        let is_wished = wanted != self.fulfilled && wanted <= self.done;
        if !is_empty && freed < self.half.bytes / 8 && !is_wished {
            return false;
        }
        self.published = self.done;
        self.rings.store(word::DOWN_MESSAGES, self.messages, Ordering::Relaxed);
        self.rings.store(word::DOWN_DROPPED, self.dropped, Ordering::Relaxed);
        // Release pairs with the Acquire in `ClientDown::room`: the copying is over.
        self.rings.store(word::DOWN_HEAD, self.done, Ordering::Release);
        // Pairs with the fence in `ClientDown::want`: either we see the wish, or it sees the head.
        fence(Ordering::SeqCst);
        let wanted = self.rings.load(word::DOWN_WANTED, Ordering::Relaxed);
        let is_due = wanted != self.fulfilled && wanted <= self.done;
        if is_due {
            self.fulfilled = wanted;
        }
        is_due
    }

    /// Frames sent, and frames that could not be.
    pub fn counts(&self) -> (u64, u64) {
        (self.messages, self.dropped)
    }
}
