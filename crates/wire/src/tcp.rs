//! TCP segments (RFC 9293, section 3.1).

mod options;
mod seq;
mod signature;
mod user_timeout;

pub use options::{
    FastOpenCookie, OPTIONS_LEN_MAX, SIGNATURE_AT, SackBlock, SackBlocks, TcpOptions, Timestamps,
    USER_TIMEOUT_LEN,
};
pub use seq::SeqNumber;
pub use signature::{sign, signature};
pub use user_timeout::UserTimeout;

use crate::{Malformed, NoRoom};

/// The control bits.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize,
)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// No bit.
    pub const NONE: TcpFlags = TcpFlags(0);
    /// No more data from the sender.
    pub const FIN: TcpFlags = TcpFlags(0x01);
    /// Synchronize sequence numbers.
    pub const SYN: TcpFlags = TcpFlags(0x02);
    /// Reset the connection.
    pub const RST: TcpFlags = TcpFlags(0x04);
    /// Push.
    pub const PSH: TcpFlags = TcpFlags(0x08);
    /// The acknowledgement field counts.
    pub const ACK: TcpFlags = TcpFlags(0x10);
    /// The urgent pointer counts.
    pub const URG: TcpFlags = TcpFlags(0x20);
    /// Congestion was experienced (RFC 3168).
    pub const ECE: TcpFlags = TcpFlags(0x40);
    /// The congestion window was reduced (RFC 3168).
    pub const CWR: TcpFlags = TcpFlags(0x80);

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: TcpFlags) -> bool {
        self.0 & other.0 == other.0
    }
    /// Whether any bit of `other` is set.
    pub const fn intersects(self, other: TcpFlags) -> bool {
        self.0 & other.0 != 0
    }
    /// Both together, also in constants.
    pub const fn with(self, other: TcpFlags) -> TcpFlags {
        TcpFlags(self.0 | other.0)
    }
    /// Without the bits of `other`.
    pub const fn without(self, other: TcpFlags) -> TcpFlags {
        TcpFlags(self.0 & !other.0)
    }
    /// FIN is set.
    pub const fn fin(self) -> bool {
        self.contains(Self::FIN)
    }
    /// SYN is set.
    pub const fn syn(self) -> bool {
        self.contains(Self::SYN)
    }
    /// RST is set.
    pub const fn rst(self) -> bool {
        self.contains(Self::RST)
    }
    /// PSH is set.
    pub const fn psh(self) -> bool {
        self.contains(Self::PSH)
    }
    /// ACK is set.
    pub const fn ack(self) -> bool {
        self.contains(Self::ACK)
    }
    /// URG is set.
    pub const fn urg(self) -> bool {
        self.contains(Self::URG)
    }
}

impl core::ops::BitOr for TcpFlags {
    type Output = TcpFlags;
    fn bitor(self, other: TcpFlags) -> TcpFlags {
        self.with(other)
    }
}

impl core::ops::BitOrAssign for TcpFlags {
    fn bitor_assign(&mut self, other: TcpFlags) {
        *self = self.with(other);
    }
}

/// TCP header without its options, in host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TcpHeader {
    /// The sender's port.
    pub src_port: u16,
    /// The receiver's port.
    pub dst_port: u16,
    /// Of the first byte of the payload, or of the SYN.
    pub seq: SeqNumber,
    /// The next byte expected; counts only with [`TcpFlags::ACK`].
    pub ack: SeqNumber,
    /// Control bits.
    pub flags: TcpFlags,
    /// Receive window, not scaled.
    pub window: u16,
    /// As it is on the wire: complete, or partial.
    pub checksum: u16,
    /// Counts only with [`TcpFlags::URG`].
    pub urgent: u16,
}

/// A segment, cut into its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSegment<'a> {
    /// The fixed part.
    pub header: TcpHeader,
    /// The options that we know.
    pub options: TcpOptions,
    /// The data.
    pub payload: &'a [u8],
}

/// Bytes of the header without options.
pub const HEADER_LEN: usize = 20;
/// Where the checksum lies in the header.
pub const CHECKSUM_OFFSET: usize = 16;

/// Reads a segment. Only a data offset that contradicts the segment is malformed; options are
/// read as tolerantly as the kernel reads them. The checksum is not verified here: see
/// [`Sum`](crate::checksum::Sum).
#[inline]
pub fn parse(bytes: &[u8]) -> Result<TcpSegment<'_>, Malformed> {
    let (
        &[s0, s1, d0, d1, q0, q1, q2, q3, a0, a1, a2, a3, offset, flags, w0, w1, c0, c1, u0, u1],
        _,
    ) = bytes.split_first_chunk::<HEADER_LEN>().ok_or(Malformed::Short)?;
    let header_len = usize::from(offset >> 4) * 4;
    if header_len < HEADER_LEN {
        return Err(Malformed::Length);
    }
    let (header_bytes, payload) = bytes.split_at_checked(header_len).ok_or(Malformed::Length)?;
    let flags = TcpFlags(flags);
    let header = TcpHeader {
        src_port: u16::from_be_bytes([s0, s1]),
        dst_port: u16::from_be_bytes([d0, d1]),
        seq: SeqNumber(u32::from_be_bytes([q0, q1, q2, q3])),
        ack: SeqNumber(u32::from_be_bytes([a0, a1, a2, a3])),
        flags,
        window: u16::from_be_bytes([w0, w1]),
        checksum: u16::from_be_bytes([c0, c1]),
        urgent: u16::from_be_bytes([u0, u1]),
    };
    let option_bytes = header_bytes.get(HEADER_LEN..).unwrap_or_default();
    Ok(TcpSegment { header, options: TcpOptions::parse(option_bytes, flags.syn()), payload })
}

/// What an ICMP error is sure to quote of a segment (RFC 792: 64 bits): ports and sequence
/// number.
pub fn parse_quoted(bytes: &[u8]) -> Result<(u16, u16, SeqNumber), Malformed> {
    let (&[s0, s1, d0, d1, q0, q1, q2, q3], _) =
        bytes.split_first_chunk().ok_or(Malformed::Short)?;
    let (src_port, dst_port) = (u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1]));
    Ok((src_port, dst_port, SeqNumber(u32::from_be_bytes([q0, q1, q2, q3]))))
}

impl TcpHeader {
    /// Writes header and options to the start of `out` and gives their length, a multiple of 4.
    /// The checksum field is written as it stands in `self`.
    #[inline]
    pub fn emit(&self, options: &TcpOptions, out: &mut [u8]) -> Result<usize, NoRoom> {
        let (fixed, rest) = out.split_first_chunk_mut::<HEADER_LEN>().ok_or(NoRoom)?;
        let header_len = HEADER_LEN + options.emit(rest)?;
        // At most 15: options take at most 40 bytes, a multiple of 4.
        let offset = (((header_len / 4) & 0x0f) as u8) << 4;
        let [s0, s1] = self.src_port.to_be_bytes();
        let [d0, d1] = self.dst_port.to_be_bytes();
        let [q0, q1, q2, q3] = self.seq.0.to_be_bytes();
        let [a0, a1, a2, a3] = self.ack.0.to_be_bytes();
        let [w0, w1] = self.window.to_be_bytes();
        let [c0, c1] = self.checksum.to_be_bytes();
        let [u0, u1] = self.urgent.to_be_bytes();
        *fixed = [
            s0,
            s1,
            d0,
            d1,
            q0,
            q1,
            q2,
            q3,
            a0,
            a1,
            a2,
            a3,
            offset,
            self.flags.0,
            w0,
            w1,
            c0,
            c1,
            u0,
            u1,
        ];
        Ok(header_len)
    }
}

impl TcpSegment<'_> {
    /// Sequence numbers that the segment takes: its payload, SYN and FIN (RFC 9293, section
    /// 3.4: SEG.LEN).
    pub fn seq_len(&self) -> u32 {
        // A segment lies within one IP packet, or a coalesced one of at most 64 KiB.
        (self.payload.len() as u32)
            .wrapping_add(u32::from(self.header.flags.syn()))
            .wrapping_add(u32::from(self.header.flags.fin()))
    }
}
