//! The words of a message.

bitflags::bitflags! {
    /// Flags of a frame.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct FrameFlags: u8 {
        /// A [`Meta`] precedes the frame.
        const META = 1;
        /// The engine transmitted the frame; otherwise the port received it.
        const SENT = 2;
        /// The frame was longer than what follows: by the filter's snap length or the longest message.
        const CUT = 4;
        /// The frame carries cycle stamps.
        const STAMPED = 8;
        /// The layer-4 checksum was verified.
        const VERIFIED = 16;
    }
}

/// Kinds of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MessageKind {
    /// Fills the rest of the ring; the next message starts at its beginning.
    Wrap = 1,
    /// One frame.
    Frame = 2,
    /// Several small frames; UP only.
    Frames = 3,
    /// A record of an extension; UP only.
    Record = 4,
    /// Something to know; UP only.
    Notice = 5,
}

/// Kind of a notice: so many frames were dropped before the next message.
pub const NOTICE_LOST: u32 = 5;

/// The first word of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes that follow, without padding.
    pub len: u32,
    /// What they are.
    pub kind: MessageKind,
    /// Port number plus one; 0 in DOWN for the only port or the one whose MAC is the source.
    pub port: u8,
    /// Flags of a frame.
    pub flags: FrameFlags,
}

/// Largest length that a header can say.
const LEN_MAX: u32 = (1 << 24) - 1;

impl Header {
    /// As the ring holds it.
    pub fn encode(self) -> u64 {
        u64::from(self.len & LEN_MAX)
            | u64::from(self.kind as u8) << 24
            | u64::from(self.port) << 32
            | u64::from(self.flags.bits()) << 40
    }

    /// The reverse of [`Header::encode`]; `None` for an unknown kind, unknown flags or bits above.
    pub fn decode(word: u64) -> Option<Self> {
        if word >> 48 != 0 {
            return None;
        }
        let kind = match (word >> 24) as u8 {
            1 => MessageKind::Wrap,
            2 => MessageKind::Frame,
            3 => MessageKind::Frames,
            4 => MessageKind::Record,
            5 => MessageKind::Notice,
            _ => return None,
        };
        Some(Self {
            len: word as u32 & LEN_MAX,
            kind,
            port: (word >> 32) as u8,
            flags: FrameFlags::from_bits((word >> 40) as u8)?,
        })
    }
}

/// Bytes of a [`Meta`].
pub const META_BYTES: usize = 24;

/// What the segments of a coalesced frame are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum SegmentKind {
    /// The frame is not to be cut.
    #[default]
    None = 0,
    /// TCP over IPv4.
    Tcp4 = 1,
    /// TCP over IPv6.
    Tcp6 = 2,
    /// UDP.
    Udp = 3,
}

/// What is known of a frame beside its bytes, or is to be done to it. 0 stands for nothing in each
/// field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// When the frame came, nanoseconds of CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// From where on the layer-4 checksum is summed; the field holds the folded pseudo-header sum.
    pub checksum_start: u16,
    /// Where the sum goes, counted from `checksum_start`.
    pub checksum_offset: u16,
    /// Payload bytes of each segment.
    pub segment_bytes: u16,
    /// Bytes of the headers that each segment repeats.
    pub header_bytes: u16,
    /// Length of the frame before it was cut.
    pub original_bytes: u32,
    /// What the segments are.
    pub segments: SegmentKind,
}

impl Meta {
    /// As the ring holds it.
    pub fn encode(&self) -> [u8; META_BYTES] {
        let words = [
            self.time_ns,
            u64::from(self.checksum_start)
                | u64::from(self.checksum_offset) << 16
                | u64::from(self.segment_bytes) << 32
                | u64::from(self.header_bytes) << 48,
            u64::from(self.original_bytes) | u64::from(self.segments as u8) << 32,
        ];
        let mut bytes = [0; META_BYTES];
        for (room, word) in bytes.chunks_exact_mut(8).zip(words) {
            room.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The reverse of [`Meta::encode`]; `None` for an unknown kind of segments or bits above it.
    pub fn decode(bytes: &[u8; META_BYTES]) -> Option<Self> {
        let mut words = [0u64; 3];
        for (word, from) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(from.try_into().ok()?);
        }
        let [time_ns, offsets, rest] = words;
        let segments = match rest >> 32 {
            0 => SegmentKind::None,
            1 => SegmentKind::Tcp4,
            2 => SegmentKind::Tcp6,
            3 => SegmentKind::Udp,
            _ => return None,
        };
        Some(Self {
            time_ns,
            checksum_start: offsets as u16,
            checksum_offset: (offsets >> 16) as u16,
            segment_bytes: (offsets >> 32) as u16,
            header_bytes: (offsets >> 48) as u16,
            original_bytes: rest as u32,
            segments,
        })
    }
}
