//! UDP (RFC 768).

use crate::{Malformed, NoRoom, put};

/// UDP header, RFC 768: host order in this struct, network order on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpHeader {
    /// The sender's port, 0 if no answer is wanted.
    pub src_port: u16,
    /// The receiver's port.
    pub dst_port: u16,
    /// Length of header and payload.
    pub len: u16,
    /// 0: the sender took none (IPv4 only).
    pub checksum: u16,
}

/// Bytes of the header.
pub const HEADER_LEN: usize = 8;
/// Where the checksum lies in the header.
pub const CHECKSUM_OFFSET: usize = 6;

/// Splits a datagram into header and payload; bytes behind its length are cut off. The checksum
/// is not verified here: see [`Sum`](crate::checksum::Sum).
#[inline]
pub fn parse(bytes: &[u8]) -> Result<(UdpHeader, &[u8]), Malformed> {
    let (header, rest) = parse_header(bytes)?;
    let payload_len = usize::from(header.len).checked_sub(HEADER_LEN).ok_or(Malformed::Length)?;
    let payload = rest.get(..payload_len).ok_or(Malformed::Length)?;
    Ok((header, payload))
}

/// Reads the header alone; the length it claims is not compared with anything. For what an ICMP
/// error quotes, for first fragments and for coalesced frames.
#[inline]
pub fn parse_header(bytes: &[u8]) -> Result<(UdpHeader, &[u8]), Malformed> {
    let (&[s0, s1, d0, d1, l0, l1, c0, c1], rest) =
        bytes.split_first_chunk().ok_or(Malformed::Short)?;
    let fields = [[s0, s1], [d0, d1], [l0, l1], [c0, c1]];
    let [src_port, dst_port, len, checksum] = fields.map(u16::from_be_bytes);
    Ok((UdpHeader { src_port, dst_port, len, checksum }, rest))
}

impl UdpHeader {
    /// Writes the header to the start of `out` and gives its length.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, NoRoom> {
        let out = put(out, &self.src_port.to_be_bytes())?;
        let out = put(out, &self.dst_port.to_be_bytes())?;
        let out = put(out, &self.len.to_be_bytes())?;
        put(out, &self.checksum.to_be_bytes())?;
        Ok(HEADER_LEN)
    }
}
