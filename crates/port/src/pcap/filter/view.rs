//! A frame as seen by a filter's tests: every field is in bounds or absent.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const IP4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IP6: u16 = 0x86dd;
/// Protocols with ports: TCP, UDP, SCTP.
const WITH_PORTS: [u8; 3] = [6, 17, 132];
/// IPv6 fragment header.
const FRAGMENT: u8 = 44;
/// Offset of the network header.
const NETWORK: usize = 14;

/// A network, or a single address as a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Network {
    /// Its first address.
    pub(super) address: IpAddr,
    /// Prefix length.
    pub(super) prefix: u8,
}

impl Network {
    pub(super) fn holds(self, address: IpAddr) -> bool {
        first_of(address, self.prefix) == self.address
    }
}

/// The first address of the network with `prefix` bits that contains `address`.
pub(super) fn first_of(address: IpAddr, prefix: u8) -> IpAddr {
    let prefix = u32::from(prefix);
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - prefix.min(32)).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - prefix.min(128)).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

/// A frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    frame: &'a [u8],
    /// After the link addresses.
    pub(super) ethertype: Option<u16>,
}

impl<'a> View<'a> {
    pub(super) fn new(frame: &'a [u8]) -> Self {
        let ethertype = array(frame, 12).map(u16::from_be_bytes);
        Self { frame, ethertype }
    }

    fn at<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        array(self.frame, offset)
    }

    fn byte(&self, offset: usize) -> Option<u8> {
        self.frame.get(offset).copied()
    }

    pub(super) fn is_ip4(&self) -> bool {
        self.ethertype == Some(IP4)
    }

    pub(super) fn is_ip6(&self) -> bool {
        self.ethertype == Some(IP6)
    }

    pub(super) fn is_arp(&self) -> bool {
        self.ethertype == Some(ARP)
    }

    pub(super) fn link_destination(&self) -> Option<[u8; 6]> {
        self.at(0)
    }

    pub(super) fn link_source(&self) -> Option<[u8; 6]> {
        self.at(6)
    }

    /// The source of IP, or the sender in ARP.
    pub(super) fn source_address(&self) -> Option<IpAddr> {
        self.address([12, 8, 14])
    }

    /// The destination of IP, or the target in ARP.
    pub(super) fn destination_address(&self) -> Option<IpAddr> {
        self.address([16, 24, 24])
    }

    /// The address at these offsets in an IPv4, IPv6 and ARP header.
    fn address(&self, [ip4, ip6, arp]: [usize; 3]) -> Option<IpAddr> {
        match self.ethertype? {
            IP4 => Some(IpAddr::from(self.at::<4>(NETWORK + ip4)?)),
            IP6 => Some(IpAddr::from(self.at::<16>(NETWORK + ip6)?)),
            ARP => Some(IpAddr::from(self.at::<4>(NETWORK + arp)?)),
            _ => None,
        }
    }

    /// Whether an IP packet has a protocol; for IPv6 also after a fragment header.
    pub(super) fn is_protocol(&self, number: u8) -> bool {
        match self.ethertype {
            Some(IP4) => self.byte(NETWORK + 9) == Some(number),
            Some(IP6) => match self.byte(NETWORK + 6) {
                Some(FRAGMENT) if number != FRAGMENT => self.byte(NETWORK + 40) == Some(number),
                next => next == Some(number),
            },
            _ => false,
        }
    }

    /// Protocol, source and destination port; none for later fragments.
    pub(super) fn ports(&self) -> Option<(u8, u16, u16)> {
        let (number, at) = match self.ethertype? {
            IP4 => {
                let fragment = u16::from_be_bytes(self.at(NETWORK + 6)?);
                if fragment & 0x1fff != 0 {
                    return None;
                }
                let header = usize::from(self.byte(NETWORK)? & 0x0f) * 4;
                (self.byte(NETWORK + 9)?, NETWORK + header)
            }
            IP6 => (self.byte(NETWORK + 6)?, NETWORK + 40),
            _ => return None,
        };
        if !WITH_PORTS.contains(&number) {
            return None;
        }
        let port = |at| self.at(at).map(u16::from_be_bytes);
        Some((number, port(at)?, port(at + 2)?))
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}
