//! Messages of rtnetlink (`linux/rtnetlink.h`, `linux/neighbour.h`): plain bytes, parsed within
//! their bounds.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use stack::api::{Cidr, CongestionKind, Destination, Metrics};
use wire::MacAddr;

const ERROR: u16 = 2;
const DONE: u16 = 3;
const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const GET_ADDRESS: u16 = 22;
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
const NEW_NEIGHBOR: u16 = 28;
const DELETE_NEIGHBOR: u16 = 29;
const GET_NEIGHBOR: u16 = 30;
const NEW_RULE: u16 = 32;
const GET_RULE: u16 = 34;

const REQUEST: u16 = 0x1;
const ACKNOWLEDGE: u16 = 0x4;
const DUMP: u16 = 0x300;
const CREATE: u16 = 0x400;

/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;
const INET: u8 = 2;
const INET6: u8 = 10;
/// AF_UNSPEC: of every family.
const ANY: u8 = 0;
/// IFA_F_TENTATIVE and IFA_F_DADFAILED: an address that must not be used (yet).
const UNUSABLE: u32 = 0x40 | 0x08;
/// NTF_USE: as if a packet had been sent there.
const USE: u8 = 1;
/// States in which a neighbour's link address may be used: reachable, stale, delay, probe, noarp
/// and permanent.
const USABLE: u16 = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80;
/// RTN_UNICAST, RTN_BLACKHOLE, RTN_UNREACHABLE and RTN_PROHIBIT of `linux/rtnetlink.h`.
const UNICAST_OR_NONE: [u8; 4] = [1, 6, 7, 8];

/// A request to the kernel.
#[derive(Debug)]
pub(super) struct Request {
    bytes: Vec<u8>,
    flags: u16,
}

impl Request {
    fn new(kind: u16, flags: u16, body: &[u8], attributes: &[(u16, &[u8])]) -> Self {
        let flags = flags | REQUEST;
        let mut bytes = vec![0; 4];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        // Sequence (see `number`) and sender: answers come to this socket only.
        bytes.extend([0; 8]);
        bytes.extend(body);
        for (name, value) in attributes {
            bytes.extend((4 + value.len() as u16).to_ne_bytes());
            bytes.extend(name.to_ne_bytes());
            bytes.extend(*value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        let len = (bytes.len() as u32).to_ne_bytes();
        if let Some(field) = bytes.first_chunk_mut() {
            *field = len;
        }
        Self { bytes, flags }
    }

    pub(super) fn link(interface_index: u32) -> Self {
        let mut body = [0; 16];
        body[4..8].copy_from_slice(&interface_index.to_ne_bytes());
        Self::new(GET_LINK, 0, &body, &[])
    }

    pub(super) fn addresses() -> Self {
        Self::new(GET_ADDRESS, DUMP, &[ANY, 0, 0, 0, 0, 0, 0, 0], &[])
    }

    pub(super) fn routes() -> Self {
        Self::new(GET_ROUTE, DUMP, &[ANY, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[])
    }

    pub(super) fn rules() -> Self {
        Self::new(GET_RULE, DUMP, &[ANY, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[])
    }

    pub(super) fn neighbor(interface_index: u32, address: IpAddr) -> Self {
        Self::about_neighbor(GET_NEIGHBOR, 0, interface_index, 0, address)
    }

    pub(super) fn use_neighbor(interface_index: u32, address: IpAddr) -> Self {
        let flags = CREATE | ACKNOWLEDGE;
        Self::about_neighbor(NEW_NEIGHBOR, flags, interface_index, USE, address)
    }

    fn about_neighbor(kind: u16, flags: u16, interface: u32, how: u8, address: IpAddr) -> Self {
        let mut body = [0; 12];
        body[4..8].copy_from_slice(&interface.to_ne_bytes());
        body[10] = how;
        match address {
            IpAddr::V4(address) => {
                body[0] = INET;
                Self::new(kind, flags, &body, &[(1, &address.octets())])
            }
            IpAddr::V6(address) => {
                body[0] = INET6;
                Self::new(kind, flags, &body, &[(1, &address.octets())])
            }
        }
    }

    /// Gives the request a number, which its answers carry.
    pub(super) fn number(&mut self, sequence: u32) {
        if let Some(field) = self.bytes.get_mut(8..12) {
            field.copy_from_slice(&sequence.to_ne_bytes());
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn is_dump(&self) -> bool {
        self.flags & DUMP == DUMP
    }

    pub(super) fn wants_acknowledgement(&self) -> bool {
        self.flags & ACKNOWLEDGE != 0
    }
}

/// A message from the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message<'a> {
    kind: u16,
    /// Number of the request that it answers.
    pub(super) sequence: u32,
    body: &'a [u8],
}

/// A route in the kernel's table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    pub(super) interface_index: u32,
    pub(super) table: u32,
    pub(super) metric: u32,
    pub(super) destination: Destination,
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    field(bytes, at).map(u32::from_ne_bytes)
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    field(bytes, at).map(u16::from_ne_bytes)
}

/// An address of a known family.
fn ip(family: u8, bytes: &[u8]) -> Option<IpAddr> {
    match family {
        INET => field::<4>(bytes, 0).map(|octets| Ipv4Addr::from(octets).into()),
        INET6 => field::<16>(bytes, 0).map(|octets| Ipv6Addr::from(octets).into()),
        _ => None,
    }
}

/// The value of an attribute among several.
fn attribute(mut rest: &[u8], name: u16) -> Option<&[u8]> {
    loop {
        let len = usize::from(half(rest, 0)?);
        let found = half(rest, 2)?;
        let value = rest.get(4..len)?;
        if found & 0x3fff == name {
            return Some(value);
        }
        rest = rest.get(len.next_multiple_of(4)..)?;
    }
}

/// RTA_METRICS: numbers (RTAX_*), and the name of a congestion control. An unknown name is ignored.
fn metrics(all: &[u8]) -> Metrics {
    let number = |name| attribute(all, name).and_then(|value| word(value, 0)).unwrap_or(0);
    let short = |name| u16::try_from(number(name)).unwrap_or(u16::MAX);
    let is_named = |kind: &CongestionKind| {
        let name = attribute(all, 16).unwrap_or_default();
        name.split(|byte| *byte == 0).next() == Some(kind.name().as_bytes())
    };
    Metrics {
        mtu: short(2),
        mtu_lock: number(1) & 1 << 2 != 0,
        advmss: short(8),
        initial_cwnd: short(11),
        initial_rwnd: short(14),
        // As in the kernel, it applies only if it is locked, as iproute2 sets it.
        rto_min_ms: if number(1) & 1 << 13 != 0 { short(13) } else { 0 },
        quickack: number(15) != 0,
        hop_limit: u8::try_from(number(10)).unwrap_or(u8::MAX),
        congestion: CongestionKind::ALL.into_iter().find(is_named),
    }
}

/// The messages in a received buffer.
pub(super) fn all(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let len = word(bytes, 0)? as usize;
        let (kind, sequence) = (half(bytes, 4)?, word(bytes, 8)?);
        let message = Message { kind, sequence, body: bytes.get(HEADER..len)? };
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

impl<'a> Message<'a> {
    /// The value of an attribute behind a fixed part of `fixed` bytes.
    fn attribute(&self, fixed: usize, name: u16) -> Option<&'a [u8]> {
        attribute(self.body.get(fixed..)?, name)
    }

    pub(super) fn is_done(&self) -> bool {
        self.kind == DONE
    }

    /// The errno of a failure, 0 of an acknowledgement.
    pub(super) fn error(&self) -> Option<i32> {
        let code = word(self.body, 0).filter(|_| self.kind == ERROR)? as i32;
        Some(code.wrapping_neg())
    }

    pub(super) fn link_mtu(&self) -> Option<u32> {
        word(self.attribute(16, 4).filter(|_| self.kind == NEW_LINK)?, 0)
    }

    pub(super) fn link_address(&self) -> Option<MacAddr> {
        let bytes = self.attribute(16, 1).filter(|_| self.kind == NEW_LINK)?;
        bytes.try_into().ok().map(MacAddr)
    }

    /// The index of the bridge or bond that an interface belongs to.
    pub(super) fn link_master(&self) -> Option<u32> {
        word(self.attribute(16, 10).filter(|_| self.kind == NEW_LINK)?, 0)
    }

    pub(super) fn link_name(&self) -> Option<String> {
        let bytes = self.attribute(16, 3).filter(|_| self.kind == NEW_LINK)?;
        let name = bytes.split(|byte| *byte == 0).next()?;
        Some(String::from_utf8_lossy(name).into_owned())
    }

    /// A usable address and its interface.
    pub(super) fn address(&self) -> Option<(u32, Cidr)> {
        let &[family, prefix, flags, ..] = self.body else { return None };
        let flags = self.attribute(8, 8).and_then(|value| word(value, 0)).unwrap_or(flags.into());
        if self.kind != NEW_ADDRESS || flags & UNUSABLE != 0 {
            return None;
        }
        // The local address; the other attribute has the peer on a point-to-point link.
        let own = self.attribute(8, 2).or_else(|| self.attribute(8, 1))?;
        let cidr = Cidr { address: ip(family, own)?, prefix };
        Some((word(self.body, 4)?, cidr))
    }

    /// A unicast route with one next hop.
    pub(super) fn route(&self) -> Option<Route> {
        let &[family, prefix, _, _, table, _, _, kind] = self.body.first_chunk()?;
        if self.kind != NEW_ROUTE || !UNICAST_OR_NONE.contains(&kind) {
            return None;
        }
        let everywhere: IpAddr = match family {
            INET => Ipv4Addr::UNSPECIFIED.into(),
            INET6 => Ipv6Addr::UNSPECIFIED.into(),
            _ => return None,
        };
        let address = |name| self.attribute(12, name).and_then(|value| ip(family, value));
        let number = |name| self.attribute(12, name).and_then(|value| word(value, 0));
        Some(Route {
            // Absent for unreachable and multipath routes.
            interface_index: number(4).unwrap_or(0),
            table: number(15).unwrap_or(table.into()),
            metric: number(6).unwrap_or(0),
            destination: Destination {
                network: address(1).unwrap_or(everywhere),
                prefix,
                gateway: address(5),
                metrics: self.attribute(12, 8).map(metrics).unwrap_or_default(),
            },
        })
    }

    /// The hop limit of an interface's IPv6 packets, which a router may have set: IFLA_AF_SPEC, of
    /// AF_INET6, IFLA_INET6_CONF, DEVCONF_HOPLIMIT.
    pub(super) fn link_hop_limit(&self) -> Option<u8> {
        let families = self.attribute(16, 26).filter(|_| self.kind == NEW_LINK)?;
        let settings = attribute(attribute(families, INET6.into())?, 2)?;
        u8::try_from(word(settings, 4)?).ok()
    }

    pub(super) fn is_about_neighbors(&self) -> bool {
        matches!(self.kind, NEW_NEIGHBOR | DELETE_NEIGHBOR)
    }

    /// A resolved neighbour: its interface and addresses.
    pub(super) fn neighbor(&self) -> Option<(u32, IpAddr, MacAddr)> {
        if self.kind != NEW_NEIGHBOR || half(self.body, 8)? & USABLE == 0 {
            return None;
        }
        let mac = field(self.attribute(12, 2)?, 0).map(MacAddr)?;
        let address = ip(*self.body.first()?, self.attribute(12, 1)?)?;
        Some((word(self.body, 4)?, address, mac))
    }

    pub(super) fn rule_priority(&self) -> Option<u32> {
        if self.kind != NEW_RULE {
            return None;
        }
        // The kernel omits a priority of 0.
        Some(self.attribute(12, 6).and_then(|value| word(value, 0)).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_message_says_about_its_length_ends_in_bounds() {
        for len in [0u32, 3, 15, 16, 17, 30, 60, 80, 200, u32::MAX] {
            for inner in [0u16, 1, 3, 4, 5, 8, 12, 200, u16::MAX] {
                for kind in [ERROR, NEW_LINK, NEW_ADDRESS, NEW_ROUTE, NEW_NEIGHBOR, NEW_RULE] {
                    let mut bytes = vec![INET; 80];
                    bytes[..4].copy_from_slice(&len.to_ne_bytes());
                    bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
                    for at in [24, 28, 32] {
                        bytes[at..at + 2].copy_from_slice(&inner.to_ne_bytes());
                    }
                    for message in all(&bytes).take(100) {
                        let _ = (message.error(), message.link_mtu(), message.address());
                        let _ = (message.route().is_some(), message.neighbor());
                        let _ = (message.rule_priority(), message.link_address());
                        let _ = (message.link_master(), message.link_name());
                        let _ = message.link_hop_limit();
                    }
                }
            }
        }
    }
}
