//! The virtio network header that TAP devices and packet sockets put before a frame
//! (`struct virtio_net_hdr`, Virtual I/O Device 1.3, section 5.1.6). Little-endian, as the
//! kernel writes it on every machine that this project runs on.

use crate::{Malformed, NoRoom, put};

/// The checksum is partial; see `checksum_start`, `checksum_offset`.
pub const NEEDS_CHECKSUM: u8 = 1;
/// The checksum was verified.
pub const DATA_VALID: u8 = 2;

/// Not segmented.
pub const GSO_NONE: u8 = 0;
/// TCP over IPv4.
pub const GSO_TCPV4: u8 = 1;
/// UDP fragmentation (old).
pub const GSO_UDP: u8 = 3;
/// TCP over IPv6.
pub const GSO_TCPV6: u8 = 4;
/// UDP segmentation.
pub const GSO_UDP_L4: u8 = 5;
/// Flag in `gso_type`: the TCP segments carry ECN's CWR.
pub const GSO_ECN: u8 = 0x80;

/// The header, in host order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VnetHeader {
    /// [`NEEDS_CHECKSUM`], [`DATA_VALID`].
    pub flags: u8,
    /// One of the `GSO_` constants, perhaps with [`GSO_ECN`].
    pub gso_type: u8,
    /// Length of all headers, Ethernet to layer 4: a hint.
    pub header_len: u16,
    /// Payload bytes of each segment.
    pub gso_size: u16,
    /// Where summing starts, from the start of the frame.
    pub checksum_start: u16,
    /// Where the sum goes, from `checksum_start`.
    pub checksum_offset: u16,
    /// Buffers that the frame took: only in the 12-byte form, and 1 there.
    pub buffer_count: u16,
}

/// Bytes of the form without `buffer_count`: packet sockets, TAP by default.
pub const LEN: usize = 10;
/// Bytes of the form with `buffer_count` (mergeable receive buffers).
pub const LEN_MERGEABLE: usize = 12;

/// Reads a header of 10 bytes and gives the frame behind it.
pub fn parse(bytes: &[u8]) -> Result<(VnetHeader, &[u8]), Malformed> {
    let (&[flags, gso_type, h0, h1, g0, g1, s0, s1, o0, o1], rest) =
        bytes.split_first_chunk::<LEN>().ok_or(Malformed::Short)?;
    let fields = [[h0, h1], [g0, g1], [s0, s1], [o0, o1]];
    let [header_len, gso_size, checksum_start, checksum_offset] = fields.map(u16::from_le_bytes);
    let header = VnetHeader {
        flags,
        gso_type,
        header_len,
        gso_size,
        checksum_start,
        checksum_offset,
        buffer_count: 0,
    };
    Ok((header, rest))
}

/// Reads a header of 12 bytes and gives the frame behind it.
pub fn parse_mergeable(bytes: &[u8]) -> Result<(VnetHeader, &[u8]), Malformed> {
    let (header, rest) = parse(bytes)?;
    let (&count, rest) = rest.split_first_chunk::<2>().ok_or(Malformed::Short)?;
    Ok((VnetHeader { buffer_count: u16::from_le_bytes(count), ..header }, rest))
}

impl VnetHeader {
    /// Writes the 10-byte form to the start of `out` and gives its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, NoRoom> {
        let out = put(out, &[self.flags, self.gso_type])?;
        let out = put(out, &self.header_len.to_le_bytes())?;
        let out = put(out, &self.gso_size.to_le_bytes())?;
        let out = put(out, &self.checksum_start.to_le_bytes())?;
        put(out, &self.checksum_offset.to_le_bytes())?;
        Ok(LEN)
    }

    /// Writes the 12-byte form.
    pub fn emit_mergeable(&self, out: &mut [u8]) -> Result<usize, NoRoom> {
        self.emit(out)?;
        let tail = out.get_mut(LEN..).ok_or(NoRoom)?;
        put(tail, &self.buffer_count.to_le_bytes())?;
        Ok(LEN_MERGEABLE)
    }

    /// The kind of segmentation without the ECN flag.
    pub fn gso_kind(&self) -> u8 {
        self.gso_type & !GSO_ECN
    }
}
