//! The Internet checksum (RFC 1071): accumulated in pieces of any length, with pseudo-headers,
//! partial sums and incremental update.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use arch::fold;

use crate::Malformed;
use crate::ipv4::Protocol;

/// A ones-complement sum of 16-bit words in progress. Knows whether an odd number of bytes went
/// in, so that pieces may be cut anywhere.
///
/// ```
/// use outboard_wire::checksum::Sum;
/// let whole = Sum::of(&[1, 2, 3, 4, 5]);
/// assert_eq!(Sum::of(&[1, 2, 3]).then(Sum::of(&[4, 5])), whole);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Sum {
    folded: u16,
    is_odd: bool,
}

impl Sum {
    /// Of nothing.
    pub const ZERO: Sum = Sum { folded: 0, is_odd: false };

    /// Of these bytes.
    #[inline]
    pub fn of(bytes: &[u8]) -> Self {
        Sum { folded: arch::sum(bytes), is_odd: !bytes.len().is_multiple_of(2) }
    }

    /// Of `len` bytes whose sum was taken elsewhere, e.g. by [`arch::copy_and_sum`].
    #[inline]
    pub fn of_known(folded: u16, len: usize) -> Self {
        Sum { folded, is_odd: !len.is_multiple_of(2) }
    }

    /// From the folded, uncomplemented sum in a partial checksum field.
    pub fn from_partial(field: u16) -> Self {
        Sum { folded: field, is_odd: false }
    }

    /// Of the pseudo-header (RFC 9293, section 3.1; RFC 768): addresses, protocol and the length
    /// of layer-4 header and payload.
    #[inline]
    pub fn pseudo_v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: Protocol, len: u32) -> Self {
        let words = u64::from(src.to_bits() >> 16)
            + u64::from(src.to_bits() & 0xffff)
            + u64::from(dst.to_bits() >> 16)
            + u64::from(dst.to_bits() & 0xffff)
            + u64::from(protocol.0)
            + u64::from(len >> 16)
            + u64::from(len & 0xffff);
        Sum { folded: fold(words), is_odd: false }
    }

    /// The same for IPv6 (RFC 8200, section 8.1).
    //= https://www.rfc-editor.org/rfc/rfc8200#section-8.1
    //# Any transport or other upper-layer protocol that includes the addresses from the IP header
    //# in its checksum computation must be modified for use over IPv6, to include the 128-bit IPv6
    //# addresses instead of 32-bit IPv4 addresses.
    pub fn pseudo_v6(src: Ipv6Addr, dst: Ipv6Addr, protocol: Protocol, len: u32) -> Self {
        let words =
            src.segments().iter().chain(&dst.segments()).map(|&word| u64::from(word)).sum::<u64>()
                + u64::from(protocol.0)
                + u64::from(len >> 16)
                + u64::from(len & 0xffff);
        Sum { folded: fold(words), is_odd: false }
    }

    /// Of the pseudo-header of either family. `None` when the addresses are not of one family.
    pub fn pseudo(src: IpAddr, dst: IpAddr, protocol: Protocol, len: u32) -> Option<Self> {
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Some(Self::pseudo_v4(src, dst, protocol, len)),
            (IpAddr::V6(src), IpAddr::V6(dst)) => Some(Self::pseudo_v6(src, dst, protocol, len)),
            _ => None,
        }
    }

    /// The sum over this and then `next`, wherever the cut lies.
    #[inline]
    pub fn then(self, next: Sum) -> Self {
        let aligned = if self.is_odd { next.folded.swap_bytes() } else { next.folded };
        Sum {
            folded: fold(u64::from(self.folded) + u64::from(aligned)),
            is_odd: self.is_odd != next.is_odd,
        }
    }

    /// The folded sum, not complemented: what a partial checksum field holds.
    #[inline]
    pub fn folded(self) -> u16 {
        self.folded
    }

    /// The checksum to send (IPv4 header, ICMP, TCP).
    #[inline]
    pub fn finish(self) -> u16 {
        !self.folded
    }

    /// The checksum to send in UDP, where 0 means that there is none.
    pub fn finish_udp(self) -> u16 {
        if self.folded == 0xffff { 0xffff } else { !self.folded }
    }

    /// Whether a sum over data and its checksum says that both are whole.
    #[inline]
    pub fn is_valid(self) -> bool {
        self.folded == 0xffff
    }
}

/// A checksum after one 16-bit word under it changed (RFC 1624, equation 3).
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    !fold(u64::from(!checksum) + u64::from(!old) + u64::from(new))
}

/// Completes a partial checksum in place: the field at `start + offset` holds the folded
/// pseudo-header sum and becomes the checksum over everything from `start` on. A result of 0 is
/// sent as 0xffff, which means the same and which UDP needs.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.1
//# The sender MUST generate it (MUST-2) and the receiver MUST check it (MUST-3).
pub fn complete(frame: &mut [u8], start: usize, offset: usize) -> Result<(), Malformed> {
    let covered = frame.get_mut(start..).ok_or(Malformed::Short)?;
    let sum = Sum::of(covered).finish_udp();
    let field = covered
        .get_mut(offset..)
        .and_then(|rest| rest.first_chunk_mut::<2>())
        .ok_or(Malformed::Short)?;
    *field = sum.to_be_bytes();
    Ok(())
}
