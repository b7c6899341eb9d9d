//! TCP options: read as tolerantly as Linux reads them, written in its order and alignment.
//= https://www.rfc-editor.org/rfc/rfc7413#section-4.1.1
//# The number MUST be even.
//= https://www.rfc-editor.org/rfc/rfc7413#section-4.1.1
//# Options with invalid Length values or without the SYN flag set MUST be ignored.

use super::{SeqNumber, UserTimeout};
use crate::{NoRoom, put};

/// Most bytes of options.
pub const OPTIONS_LEN_MAX: usize = 40;

/// Where a signature that was written lies in the TCP header: [`TcpOptions::emit`] writes it first.
pub const SIGNATURE_AT: core::ops::Range<usize> = 24..40;

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
const SIGNATURE: u8 = 19;
//= https://www.rfc-editor.org/rfc/rfc5482#section-3.3
//# This MUST be 28, i.e., the TCP option number [RFC0793] that has been assigned by IANA (see
//# Section 7).
const USER_TIMEOUT: u8 = 28;
//= https://www.rfc-editor.org/rfc/rfc7413#section-9
//# Current and new implementations SHOULD use option (34).
const FAST_OPEN: u8 = 34;
const EXPERIMENT: u8 = 254;
/// What tells Fast Open from other experiments.
const FAST_OPEN_MAGIC: [u8; 2] = [0xf9, 0x89];
/// Bytes of the option that tells the user timeout.
pub const USER_TIMEOUT_LEN: usize = 4;
/// Bytes that a cookie may have (RFC 7413, section 2).
const COOKIE_BYTES: core::ops::RangeInclusive<usize> = 4..=16;

/// Largest shift of a window (RFC 7323, section 2.3).
//= https://www.rfc-editor.org/rfc/rfc7323#section-2.3
//# If a Window Scale option is received with a shift.cnt value larger than 14, the TCP SHOULD log
//# the error but MUST use 14 instead of the specified value.
const WINDOW_SCALE_MAX: u8 = 14;

/// RFC 7323, section 3.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Timestamps {
    /// TSval: the sender's clock.
    pub value: u32,
    /// TSecr: the other side's clock as last seen; counts only with ACK.
    pub echo: u32,
}

/// Bytes that arrived beyond the acknowledgement (RFC 2018, section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct SackBlock {
    /// First number of the block.
    pub left: SeqNumber,
    /// One past its last.
    pub right: SeqNumber,
}

/// Up to four blocks, the most recent first.
#[derive(Clone, Copy, Default)]
pub struct SackBlocks {
    blocks: [SackBlock; 4],
    count: u8,
}

impl SackBlocks {
    /// No block.
    pub const NONE: SackBlocks =
        SackBlocks { blocks: [SackBlock { left: SeqNumber(0), right: SeqNumber(0) }; 4], count: 0 };

    /// Appends a block; `false` when there are four already.
    pub fn push(&mut self, block: SackBlock) -> bool {
        let Some(place) = self.blocks.get_mut(usize::from(self.count)) else { return false };
        *place = block;
        self.count = self.count.wrapping_add(1);
        true
    }
    /// The blocks.
    pub fn as_slice(&self) -> &[SackBlock] {
        self.blocks.get(..usize::from(self.count)).unwrap_or_default()
    }
    /// No block at all.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
    /// Bytes of the option that tells them all, aligned.
    pub fn option_len(&self) -> usize {
        option_len(usize::from(self.count))
    }
}

/// Bytes of the option that tells so many blocks: kind, length and padding are before them.
fn option_len(blocks: usize) -> usize {
    if blocks == 0 { 0 } else { 4 + 8 * blocks }
}

impl core::ops::Deref for SackBlocks {
    type Target = [SackBlock];
    fn deref(&self) -> &[SackBlock] {
        self.as_slice()
    }
}

impl PartialEq for SackBlocks {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for SackBlocks {}

impl core::fmt::Debug for SackBlocks {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

impl FromIterator<SackBlock> for SackBlocks {
    /// Keeps the first four.
    fn from_iter<I: IntoIterator<Item = SackBlock>>(blocks: I) -> Self {
        let mut all = Self::NONE;
        for block in blocks.into_iter().take(4) {
            all.push(block);
        }
        all
    }
}

/// A Fast Open cookie, or with no bytes the request for one (RFC 7413, section 2); only on SYNs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FastOpenCookie {
    /// The cookie, and zeros.
    pub bytes: [u8; 16],
    /// How long it is: 0 or 4 to 16, even.
    pub len: u8,
    /// In the option for experiments (RFC 6994), which came before one of its own.
    pub experimental: bool,
}

impl FastOpenCookie {
    /// The request for a cookie.
    pub const REQUEST: FastOpenCookie =
        FastOpenCookie { bytes: [0; 16], len: 0, experimental: false };

    fn parse(value: &[u8], experimental: bool) -> Option<Self> {
        let known = value.is_empty() || COOKIE_BYTES.contains(&value.len());
        if !known || !value.len().is_multiple_of(2) {
            return None;
        }
        let mut bytes = [0; 16];
        bytes.get_mut(..value.len())?.copy_from_slice(value);
        // At most 16.
        Some(Self { bytes, len: value.len() as u8, experimental })
    }

    /// The cookie's bytes.
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// Bytes of the option.
    fn option_len(&self) -> usize {
        usize::from(self.len.min(16)) + if self.experimental { 4 } else { 2 }
    }
}

/// The options that we speak. Others are skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpOptions {
    /// Largest segment that the sender takes (RFC 9293, section 3.7.1); only on SYNs.
    pub mss: Option<u16>,
    /// Shift of the sender's windows (RFC 7323, section 2); only on SYNs.
    pub window_scale: Option<u8>,
    /// The sender understands SACK (RFC 2018, section 2); only on SYNs.
    pub sack_permitted: bool,
    /// RFC 7323, section 3.
    pub timestamps: Option<Timestamps>,
    /// RFC 7413, section 2; only on SYNs.
    pub fast_open: Option<FastOpenCookie>,
    /// RFC 2385; written as zeros where the sum is not known yet ([`SIGNATURE_AT`]).
    pub signature: Option<[u8; 16]>,
    /// RFC 2018, section 3.
    pub sack: SackBlocks,
    /// RFC 5482; written where the others leave room.
    pub user_timeout: Option<UserTimeout>,
}

impl TcpOptions {
    /// No option.
    pub const NONE: TcpOptions = TcpOptions {
        mss: None,
        window_scale: None,
        sack_permitted: false,
        timestamps: None,
        fast_open: None,
        signature: None,
        sack: SackBlocks::NONE,
        user_timeout: None,
    };

    /// Reads the options of a segment. Like Linux: an option whose length cannot be right ends
    /// the reading without ending the segment; one of an unknown kind, of the wrong length, or
    /// that belongs on a SYN only is skipped; a shift above 14 counts as 14.
    #[inline]
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
    //# A TCP implementation MUST be able to receive a TCP Option in any segment (MUST-5).
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.2
    //# There is no guarantee that senders will use this option, so receivers MUST be prepared to
    //# process options even if they do not begin on a word boundary (MUST-64).
    pub fn parse(bytes: &[u8], syn: bool) -> TcpOptions {
        let mut options = TcpOptions::NONE;
        // What nearly every segment carries: nothing, or timestamps alone, aligned.
        if let &[NOP, NOP, TIMESTAMPS, 10, v0, v1, v2, v3, e0, e1, e2, e3] = bytes {
            options.timestamps = Some(Timestamps {
                value: u32::from_be_bytes([v0, v1, v2, v3]),
                echo: u32::from_be_bytes([e0, e1, e2, e3]),
            });
            return options;
        }
        let mut rest = bytes;
        while let Some((&kind, after_kind)) = rest.split_first() {
            match kind {
                END => break,
                NOP => {
                    rest = after_kind;
                    continue;
                }
                _ => {}
            }
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
            //# TCP implementations MUST be prepared to handle an illegal option length (e.g.,
            //# zero); a suggested procedure is to reset the connection and log the error cause
            //# (MUST-7).
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
            //# All TCP Options except End of Option List Option (EOL) and No-Operation (NOP) MUST
            //# have length fields, including all future options (MUST-68).
            let Some(&len) = after_kind.first() else { break };
            let Some((option, next)) = rest.split_at_checked(usize::from(len)) else { break };
            let Some(value) = option.get(2..) else { break };
            options.take(kind, value, syn);
            rest = next;
        }
        options
    }

    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
    //# A TCP implementation MUST (MUST-6) ignore without error any TCP Option it does not
    //# implement, assuming that the option has a length field.
    //= https://www.rfc-editor.org/rfc/rfc7323#section-2.2
    //# A Window Scale option in a segment without a SYN bit MUST be ignored.
    //= https://www.rfc-editor.org/rfc/rfc5482#section-3.3
    //# Length of the TCP option in octets [RFC0793]; its value MUST be 4.
    fn take(&mut self, kind: u8, value: &[u8], syn: bool) {
        match (kind, value) {
            (MSS, &[m0, m1]) if syn => {
                let mss = u16::from_be_bytes([m0, m1]);
                if mss != 0 {
                    self.mss = Some(mss);
                }
            }
            (WINDOW_SCALE, &[shift]) if syn => {
                self.window_scale = Some(shift.min(WINDOW_SCALE_MAX));
            }
            (SACK_PERMITTED, []) if syn => self.sack_permitted = true,
            (TIMESTAMPS, &[v0, v1, v2, v3, e0, e1, e2, e3]) => {
                self.timestamps = Some(Timestamps {
                    value: u32::from_be_bytes([v0, v1, v2, v3]),
                    echo: u32::from_be_bytes([e0, e1, e2, e3]),
                });
            }
            (USER_TIMEOUT, &[t0, t1]) => {
                let told = UserTimeout::of_field(u16::from_be_bytes([t0, t1]));
                self.user_timeout = told.or(self.user_timeout);
            }
            (SIGNATURE, sum) => self.signature = sum.try_into().ok().or(self.signature),
            (FAST_OPEN, cookie) if syn => self.fast_open = FastOpenCookie::parse(cookie, false),
            (EXPERIMENT, [a, b, cookie @ ..]) if syn && [*a, *b] == FAST_OPEN_MAGIC => {
                self.fast_open = FastOpenCookie::parse(cookie, true);
            }
            (SACK, blocks) if !syn && blocks.len().is_multiple_of(8) => {
                let (blocks, _) = blocks.as_chunks::<8>();
                self.sack = blocks
                    .iter()
                    .map(|&[l0, l1, l2, l3, r0, r1, r2, r3]| SackBlock {
                        left: SeqNumber(u32::from_be_bytes([l0, l1, l2, l3])),
                        right: SeqNumber(u32::from_be_bytes([r0, r1, r2, r3])),
                    })
                    .collect();
            }
            _ => {}
        }
    }

    /// Bytes that [`emit`](Self::emit) writes: a multiple of 4, at most 40.
    #[inline]
    pub fn emitted_len(&self) -> usize {
        self.len_with_sack() + if self.tells_user_timeout() { USER_TIMEOUT_LEN } else { 0 }
    }

    /// Whether the user timeout is written: the other options leave room for it.
    #[inline]
    pub fn tells_user_timeout(&self) -> bool {
        self.user_timeout.is_some() && self.len_with_sack() + USER_TIMEOUT_LEN <= OPTIONS_LEN_MAX
    }

    #[inline]
    fn len_with_sack(&self) -> usize {
        self.len_before_sack() + option_len(self.emitted_blocks())
    }

    #[inline]
    fn len_before_sack(&self) -> usize {
        let timestamps = match (self.timestamps.is_some(), self.sack_permitted) {
            (true, _) => 12,
            (false, true) => 4,
            (false, false) => 0,
        };
        let mss = if self.mss.is_some() { 4 } else { 0 };
        let window_scale = if self.window_scale.is_some() { 4 } else { 0 };
        let fast_open =
            self.fast_open.as_ref().map_or(0, |cookie| cookie.option_len().next_multiple_of(4));
        let signature = if self.signature.is_some() { 20 } else { 0 };
        signature + mss + timestamps + window_scale + fast_open
    }

    /// As many blocks as fit behind the other options.
    #[inline]
    fn emitted_blocks(&self) -> usize {
        let room = OPTIONS_LEN_MAX.saturating_sub(self.len_before_sack());
        self.sack.len().min(room.saturating_sub(4) / 8)
    }

    /// Writes the options to the start of `out`, aligned and in Linux's order: signature, MSS, SACK
    /// permitted, timestamps, window scale, Fast Open, SACK; then the user timeout, which Linux does not have.
    /// Beyond 40 bytes are left out: the user timeout, and blocks, the last first. Gives the length.
    #[inline]
    //= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
    //# The content of the header beyond the End of Option List Option MUST be header padding of
    //# zeros (MUST-69).
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, NoRoom> {
        let mut rest = out;
        if let Some(sum) = &self.signature {
            rest = put(rest, &[NOP, NOP, SIGNATURE, 18])?;
            rest = put(rest, sum)?;
        }
        if let Some(mss) = self.mss {
            let [m0, m1] = mss.to_be_bytes();
            rest = put(rest, &[MSS, 4, m0, m1])?;
        }
        match (self.timestamps, self.sack_permitted) {
            (Some(timestamps), permitted) => {
                let lead = if permitted { [SACK_PERMITTED, 2] } else { [NOP, NOP] };
                rest = put(rest, &lead)?;
                rest = put(rest, &[TIMESTAMPS, 10])?;
                rest = put(rest, &timestamps.value.to_be_bytes())?;
                rest = put(rest, &timestamps.echo.to_be_bytes())?;
            }
            (None, true) => rest = put(rest, &[NOP, NOP, SACK_PERMITTED, 2])?,
            (None, false) => {}
        }
        if let Some(shift) = self.window_scale {
            rest = put(rest, &[NOP, WINDOW_SCALE, 3, shift])?;
        }
        if let Some(cookie) = &self.fast_open {
            // At most 20.
            let len = cookie.option_len() as u8;
            if cookie.experimental {
                rest = put(rest, &[EXPERIMENT, len])?;
                rest = put(rest, &FAST_OPEN_MAGIC)?;
            } else {
                rest = put(rest, &[FAST_OPEN, len])?;
            }
            let cookie = cookie.as_slice();
            let (room, after) = rest.split_at_mut_checked(cookie.len()).ok_or(NoRoom)?;
            room.copy_from_slice(cookie);
            rest = after;
            if !len.is_multiple_of(4) {
                rest = put(rest, &[NOP, NOP])?;
            }
        }
        let block_count = self.emitted_blocks();
        if block_count > 0 {
            // At most 34: four blocks.
            rest = put(rest, &[NOP, NOP, SACK, 2 + 8 * block_count as u8])?;
            for block in self.sack.iter().take(block_count) {
                rest = put(rest, &block.left.0.to_be_bytes())?;
                rest = put(rest, &block.right.0.to_be_bytes())?;
            }
        }
        if let Some(timeout) = self.user_timeout.filter(|_| self.tells_user_timeout()) {
            let [t0, t1] = timeout.field().to_be_bytes();
            put(rest, &[USER_TIMEOUT, USER_TIMEOUT_LEN as u8, t0, t1])?;
        }
        Ok(self.emitted_len())
    }
}
