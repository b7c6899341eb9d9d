//! What Ethernet packets of messages have before their first frame: the addresses of both ends, which
//! UDP's packets have in their IP header.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::ALIGNMENT;
use crate::checksum::Sum;
use crate::{Malformed, NoRoom, put};

/// Bytes before the first frame, between hosts of IPv4.
pub const LINK_V4_LEN: usize = 16;
/// Bytes before the first frame, between hosts of IPv6.
pub const LINK_V6_LEN: usize = 40;
/// Where the checksum lies in the packet's first frame.
pub const CHECKSUM_OFFSET: usize = 14;

/// The two ends of an Ethernet packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkHeader {
    /// Who sends it.
    pub source: IpAddr,
    /// To whom.
    pub destination: IpAddr,
}

impl LinkHeader {
    /// Its length: a multiple of [`ALIGNMENT`].
    pub fn header_len(&self) -> usize {
        if self.source.is_ipv4() { LINK_V4_LEN } else { LINK_V6_LEN }
    }

    /// Writes it to the start of `out`, for so many bytes of frames behind it, and gives its length.
    ///
    /// # Errors
    /// [`NoRoom`]: `out` is too short, the addresses are of different families, or the packet is longer
    /// than 65,535 bytes.
    pub fn emit(&self, out: &mut [u8], behind: usize) -> Result<usize, NoRoom> {
        let len = self.header_len();
        let all = u16::try_from(len + behind).map_err(|_| NoRoom)?.to_be_bytes();
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let out = put(out, &[4, 0, all[0], all[1]])?;
                let out = put(put(out, &source.octets())?, &destination.octets())?;
                put(out, &[0; 4])?;
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let out = put(out, &[6, 0, all[0], all[1], 0, 0, 0, 0])?;
                put(put(out, &source.octets())?, &destination.octets())?;
            }
            _ => return Err(NoRoom),
        }
        Ok(len)
    }

    /// Reads the packet behind an Ethernet header, and gives its frames. What follows the packet is
    /// the link's padding.
    ///
    /// # Errors
    /// [`Malformed`]: it is cut off, of an unknown family, or not as it was sent.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (head, _) = bytes.split_first_chunk::<4>().ok_or(Malformed::Short)?;
        let [family, _, high, low] = *head;
        let len = usize::from(u16::from_be_bytes([high, low]));
        let packet = bytes.get(..len).ok_or(Malformed::Length)?;
        let (header, frames) = match family {
            4 => {
                let (head, frames) =
                    packet.split_first_chunk::<LINK_V4_LEN>().ok_or(Malformed::Short)?;
                let address = |at| head.get(at..).and_then(<[u8]>::first_chunk::<4>);
                let address = |at| address(at).map(|octets| Ipv4Addr::from(*octets));
                (Self::of(address(4), address(8))?, frames)
            }
            6 => {
                let (head, frames) =
                    packet.split_first_chunk::<LINK_V6_LEN>().ok_or(Malformed::Short)?;
                let address = |at| head.get(at..).and_then(<[u8]>::first_chunk::<16>);
                let address = |at| address(at).map(|octets| Ipv6Addr::from(*octets));
                (Self::of(address(8), address(24))?, frames)
            }
            _ => return Err(Malformed::Version),
        };
        match Sum::of(packet).is_valid() {
            true => Ok((header, frames)),
            false => Err(Malformed::Checksum),
        }
    }

    fn of<A: Into<IpAddr>>(source: Option<A>, destination: Option<A>) -> Result<Self, Malformed> {
        let source = source.ok_or(Malformed::Short)?.into();
        let destination = destination.ok_or(Malformed::Short)?.into();
        Ok(Self { source, destination })
    }
}

const _: () =
    assert!(LINK_V4_LEN.is_multiple_of(ALIGNMENT) && LINK_V6_LEN.is_multiple_of(ALIGNMENT));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::complete;

    const FRAMES: [u8; 40] = [0x1c; 40];

    /// A packet with the link's padding behind it.
    fn packet(source: &str, destination: &str) -> (LinkHeader, Vec<u8>) {
        let header = LinkHeader {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
        };
        let mut bytes = vec![0; header.header_len()];
        let len = header.emit(&mut bytes, FRAMES.len()).unwrap();
        bytes.extend(FRAMES);
        bytes[len + CHECKSUM_OFFSET..len + CHECKSUM_OFFSET + 2].fill(0);
        complete(&mut bytes, 0, len + CHECKSUM_OFFSET).unwrap();
        bytes.extend([0xee; 6]);
        (header, bytes)
    }

    #[test]
    fn what_is_written_is_read_without_the_padding() {
        for (source, destination) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let (header, bytes) = packet(source, destination);
            let (read, frames) = LinkHeader::parse(&bytes).unwrap();
            assert_eq!((read, frames.len()), (header, FRAMES.len()));
        }
    }

    #[test]
    fn the_bytes_of_a_packet_are_those_of_the_specification() {
        let (_, bytes) = packet("10.0.0.1", "10.0.0.2");
        assert_eq!(bytes[..16], [4, 0, 0, 56, 10, 0, 0, 1, 10, 0, 0, 2, 0, 0, 0, 0]);
    }

    #[test]
    fn every_changed_byte_and_every_cut_is_an_error() {
        for (source, destination) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let (_, bytes) = packet(source, destination);
            let len = bytes.len() - 6;
            for at in 0..len {
                let mut changed = bytes.clone();
                changed[at] ^= 0x41;
                assert!(LinkHeader::parse(&changed).is_err(), "byte {at}");
                assert!(LinkHeader::parse(&bytes[..at]).is_err(), "cut at {at}");
            }
        }
    }
}
