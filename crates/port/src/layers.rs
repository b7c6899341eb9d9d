//! Offsets of a frame's headers: EtherType, IP, TCP and UDP, as needed to forward frames.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use wire::checksum::Sum;
use wire::ethernet::EtherType;
use wire::ipv4::Protocol;
use wire::{ethernet, ipv4, ipv6, tcp, udp};

/// An IP packet inside a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IpLayer {
    /// Offset of the IP header.
    pub start: usize,
    /// Offset of its payload, after options or the fragment header.
    pub payload: usize,
    /// End of the packet; padding may follow.
    pub end: usize,
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Protocol of the payload.
    pub protocol: Protocol,
    /// Set for a fragment.
    pub fragment: Option<Part>,
}

/// Position of a fragment in its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Shared by all fragments of the packet.
    pub identification: u32,
    /// It has the header of layer 4.
    pub is_first: bool,
}

/// A TCP or UDP header inside a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transport {
    /// The packet.
    pub ip: IpLayer,
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Offset of the payload.
    pub payload: usize,
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

/// EtherType and offset after the Ethernet header and at most one tag.
pub(crate) fn ethertype(frame: &[u8]) -> Option<(EtherType, usize)> {
    let (header, _) = ethernet::parse(frame).ok()?;
    Some((header.ethertype, header.header_len()))
}

impl IpLayer {
    /// The IP packet of a frame, if its header is complete. IPv6 extension headers other than a
    /// fragment header are treated as payload.
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let (kind, start) = ethertype(frame)?;
        match kind {
            EtherType::IPV4 => Self::parse_v4(frame, start),
            EtherType::IPV6 => Self::parse_v6(frame, start),
            _ => None,
        }
    }

    fn parse_v4(frame: &[u8], start: usize) -> Option<Self> {
        let header = frame.get(start..)?.first_chunk::<{ ipv4::HEADER_LEN }>()?;
        let header_bytes = usize::from(header[0] & 15) * 4;
        (header[0] >> 4 == 4 && header_bytes >= ipv4::HEADER_LEN).then_some(())?;
        let place = short(header, 6)?;
        let is_part = place & 0x3fff != 0;
        let part = Part { identification: short(header, 4)?.into(), is_first: place & 0x1fff == 0 };
        let address = |at: usize| -> Option<IpAddr> {
            let bytes: [u8; 4] = header.get(at..at + 4)?.try_into().ok()?;
            Some(Ipv4Addr::from(bytes).into())
        };
        Self {
            start,
            payload: start + header_bytes,
            end: start + usize::from(short(header, 2)?),
            source: address(12)?,
            destination: address(16)?,
            protocol: Protocol(header[9]),
            fragment: is_part.then_some(part),
        }
        .within(frame)
    }

    fn parse_v6(frame: &[u8], start: usize) -> Option<Self> {
        let header = frame.get(start..)?.first_chunk::<{ ipv6::HEADER_LEN }>()?;
        (header[0] >> 4 == 6).then_some(())?;
        let address = |at: usize| -> Option<IpAddr> {
            let bytes: [u8; 16] = header.get(at..at + 16)?.try_into().ok()?;
            Some(Ipv6Addr::from(bytes).into())
        };
        let mut ip = Self {
            start,
            payload: start + ipv6::HEADER_LEN,
            end: start + ipv6::HEADER_LEN + usize::from(short(header, 4)?),
            source: address(8)?,
            destination: address(24)?,
            protocol: Protocol(header[6]),
            fragment: None,
        };
        if ip.protocol == Protocol::FRAGMENT {
            let fragment = frame.get(ip.payload..)?.first_chunk::<8>()?;
            let [next, _, place, more, id @ ..] = *fragment;
            let is_first = place == 0 && more & 0xf8 == 0;
            let part = Part { identification: u32::from_be_bytes(id), is_first };
            ip.protocol = Protocol(next);
            ip.payload += 8;
            ip.fragment = Some(part);
        }
        ip.within(frame)
    }

    fn within(self, frame: &[u8]) -> Option<Self> {
        (self.payload <= self.end && self.end <= frame.len()).then_some(self)
    }
}

impl Transport {
    /// The TCP or UDP header of a frame, if it is complete; also in a first fragment.
    pub fn parse(frame: &[u8]) -> Option<Self> {
        Self::of(frame, IpLayer::parse(frame)?)
    }

    /// The same for a parsed packet.
    pub fn of(frame: &[u8], ip: IpLayer) -> Option<Self> {
        if ip.fragment.is_some_and(|part| !part.is_first) {
            return None;
        }
        let header = frame.get(ip.payload..ip.end)?;
        let header_bytes = match ip.protocol {
            Protocol::TCP => usize::from(*header.get(12)? >> 4) * 4,
            Protocol::UDP => udp::HEADER_LEN,
            _ => return None,
        };
        let least = if ip.protocol == Protocol::TCP { tcp::HEADER_LEN } else { udp::HEADER_LEN };
        (header_bytes >= least && header_bytes <= header.len()).then_some(())?;
        let (source, destination) = (short(header, 0)?, short(header, 2)?);
        Some(Self { ip, source, destination, payload: ip.payload + header_bytes })
    }

    /// Offset of the checksum from the start of layer 4.
    pub fn checksum_offset(&self) -> usize {
        match self.ip.protocol {
            Protocol::TCP => tcp::CHECKSUM_OFFSET,
            _ => udp::CHECKSUM_OFFSET,
        }
    }

    /// `(start, offset)` of the checksum, as in [`TxMeta::checksum`](crate::TxMeta::checksum).
    pub fn checksum_place(&self) -> Option<(u16, u16)> {
        Some((u16::try_from(self.ip.payload).ok()?, self.checksum_offset() as u16))
    }

    /// The sum of the pseudo-header of a packet with so many bytes from layer 4 on.
    pub fn pseudo(&self, bytes: usize) -> Option<Sum> {
        let IpLayer { source, destination, protocol, .. } = self.ip;
        Sum::pseudo(source, destination, protocol, bytes as u32)
    }

    /// The destination.
    pub fn local(&self) -> SocketAddr {
        SocketAddr::new(self.ip.destination, self.destination)
    }

    /// The source.
    pub fn remote(&self) -> SocketAddr {
        SocketAddr::new(self.ip.source, self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_found_behind_a_tag_and_options() {
        let mut frame = vec![0; 12];
        frame.extend([0x81, 0, 0, 5, 8, 0]);
        frame.extend([
            0x46, 0, 0, 44, 0, 9, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 0, 0, 0,
        ]);
        frame.extend([0, 80, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 2, 0, 0, 0, 0, 0, 0]);
        let found = Transport::parse(&frame).expect("it is TCP");
        assert_eq!((found.ip.start, found.ip.payload, found.payload), (18, 42, 62));
        assert_eq!((found.source, found.destination), (80, 256));
        assert_eq!(found.local(), "10.0.0.2:256".parse().unwrap());
        for cut in 0..frame.len() {
            assert_eq!(Transport::parse(&frame[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn only_the_first_part_of_a_packet_has_ports() {
        let mut frame = vec![0; 12];
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 16, 44, 64]);
        frame.extend([0xfd; 32]);
        frame.extend([17, 0, 0, 1, 0, 0, 0, 7]);
        frame.extend([0, 53, 0, 54, 0, 8, 0, 0]);
        let first = Transport::parse(&frame).expect("it is UDP");
        assert_eq!(first.ip.fragment, Some(Part { identification: 7, is_first: true }));
        assert_eq!((first.source, first.destination), (53, 54));
        frame[57] = 8;
        assert_eq!(Transport::parse(&frame), None);
        assert!(IpLayer::parse(&frame).is_some_and(|ip| ip.fragment.is_some()));
    }
}
