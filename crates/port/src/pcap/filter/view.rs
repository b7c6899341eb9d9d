//! A frame as the tests of a filter look at it: every field in bounds or absent.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const IP4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IP6: u16 = 0x86dd;
/// Protocols with ports: TCP, UDP, SCTP.
const WITH_PORTS: [u8; 3] = [6, 17, 132];
/// IPv6's header of fragments.
const FRAGMENT: u8 = 44;
/// Where the network header begins.
const NETWORK: usize = 14;

/// A network, or an address as the network of it alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Network {
    /// Its first address.
    pub(super) address: IpAddr,
    /// Bits that count.
    pub(super) prefix: u8,
}

impl Network {
    pub(super) fn holds(self, address: IpAddr) -> bool {
        first_of(address, self.prefix) == self.address
    }
}

/// The first address of the network of `prefix` bits that `address` is in.
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

/// A frame, looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    frame: &'a [u8],
    /// Behind the link addresses.
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

    /// Of IP, or the sender that ARP names.
    pub(super) fn source_address(&self) -> Option<IpAddr> {
        self.address([12, 8, 14])
    }

    /// Of IP, or the target that ARP names.
    pub(super) fn destination_address(&self) -> Option<IpAddr> {
        self.address([16, 24, 24])
    }

    /// At these places of an IPv4, IPv6 and ARP header.
    fn address(&self, [ip4, ip6, arp]: [usize; 3]) -> Option<IpAddr> {
        match self.ethertype? {
            IP4 => Some(IpAddr::from(self.at::<4>(NETWORK + ip4)?)),
            IP6 => Some(IpAddr::from(self.at::<16>(NETWORK + ip6)?)),
            ARP => Some(IpAddr::from(self.at::<4>(NETWORK + arp)?)),
            _ => None,
        }
    }

    /// Whether an IP packet carries a protocol, in IPv6 also behind a header of fragments.
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
