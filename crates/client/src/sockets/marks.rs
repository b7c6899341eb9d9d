//! Options of UDP sockets that apply to each datagram, or request control messages. The kernel's
//! side takes every one, too, and answers getsockopt; they are cached here for sending and
//! receiving.

use std::net::IpAddr;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use super::options::int;
use crate::{DatagramFlags, Endpoint, OptionName};

const SOCKET: i32 = libc::SOL_SOCKET;
const IP: i32 = libc::IPPROTO_IP;
const IPV6: i32 = libc::IPPROTO_IPV6;
const UDP: i32 = libc::IPPROTO_UDP;
/// Of linux/udp.h.
pub(super) const UDP_NO_CHECK6_TX: i32 = 101;
const UDP_NO_CHECK6_RX: i32 = 102;

bitflags::bitflags! {
    /// Boolean options.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(super) struct Switches: u32 {
        const PKTINFO = 1;
        const RECVTOS = 1 << 1;
        const RECVTTL = 1 << 2;
        const ORIGDSTADDR = 1 << 3;
        const RECVERR = 1 << 4;
        const PKTINFO6 = 1 << 5;
        const RECVTCLASS6 = 1 << 6;
        const RECVHOPLIMIT6 = 1 << 7;
        const ORIGDSTADDR6 = 1 << 8;
        const RECVERR6 = 1 << 9;
        const GRO = 1 << 10;
        const NO_CHECK = 1 << 11;
        const NO_CHECK6_TX = 1 << 12;
        const NO_CHECK6_RX = 1 << 13;
        const BROADCAST = 1 << 14;
        const DONTFRAG6 = 1 << 15;
        /// IP_MULTICAST_LOOP and IP_MULTICAST_ALL, and IPv6's, which are on by default.
        const LOOP = 1 << 16;
        const LOOP6 = 1 << 17;
        const ALL = 1 << 18;
        const ALL6 = 1 << 19;
    }
}

impl Switches {
    /// Options that are on by default.
    const BY_ITSELF: Self = Self::LOOP.union(Self::LOOP6).union(Self::ALL).union(Self::ALL6);

    /// Whether datagrams come with control messages.
    pub fn asks_for_messages(self) -> bool {
        self.intersects(
            Self::PKTINFO
                | Self::RECVTOS
                | Self::RECVTTL
                | Self::ORIGDSTADDR
                | Self::PKTINFO6
                | Self::RECVTCLASS6
                | Self::RECVHOPLIMIT6
                | Self::ORIGDSTADDR6
                | Self::GRO,
        )
    }
}

fn switch(level: i32, name: i32) -> Option<Switches> {
    Some(match (level, name) {
        (IP, libc::IP_PKTINFO) => Switches::PKTINFO,
        (IP, libc::IP_RECVTOS) => Switches::RECVTOS,
        (IP, libc::IP_RECVTTL) => Switches::RECVTTL,
        (IP, libc::IP_RECVORIGDSTADDR) => Switches::ORIGDSTADDR,
        (IP, libc::IP_RECVERR) => Switches::RECVERR,
        (IPV6, libc::IPV6_RECVPKTINFO) => Switches::PKTINFO6,
        (IPV6, libc::IPV6_RECVTCLASS) => Switches::RECVTCLASS6,
        (IPV6, libc::IPV6_RECVHOPLIMIT) => Switches::RECVHOPLIMIT6,
        (IPV6, libc::IPV6_RECVORIGDSTADDR) => Switches::ORIGDSTADDR6,
        (IPV6, libc::IPV6_RECVERR) => Switches::RECVERR6,
        (IPV6, libc::IPV6_DONTFRAG) => Switches::DONTFRAG6,
        (IP, libc::IP_MULTICAST_LOOP) => Switches::LOOP,
        (IPV6, libc::IPV6_MULTICAST_LOOP) => Switches::LOOP6,
        (IP, libc::IP_MULTICAST_ALL) => Switches::ALL,
        (IPV6, libc::IPV6_MULTICAST_ALL) => Switches::ALL6,
        (UDP, libc::UDP_GRO) => Switches::GRO,
        (UDP, UDP_NO_CHECK6_TX) => Switches::NO_CHECK6_TX,
        (UDP, UDP_NO_CHECK6_RX) => Switches::NO_CHECK6_RX,
        (SOCKET, libc::SO_NO_CHECK) => Switches::NO_CHECK,
        (SOCKET, libc::SO_BROADCAST) => Switches::BROADCAST,
        _ => return None,
    })
}

/// The engine's name of an option that it implements.
fn engines(switch: Switches) -> Option<OptionName> {
    match switch {
        Switches::RECVERR => Some(OptionName::ReceiveErrors),
        Switches::RECVERR6 => Some(OptionName::ReceiveErrors6),
        Switches::NO_CHECK6_RX => Some(OptionName::NoCheck6Receive),
        Switches::GRO => Some(OptionName::ReceiveCoalesced),
        Switches::ALL => Some(OptionName::AllGroups),
        Switches::ALL6 => Some(OptionName::AllGroups6),
        _ => None,
    }
}

/// A UDP socket's options.
#[derive(Debug)]
pub(super) struct Marks {
    switches: AtomicU32,
    tos: AtomicI32,
    ttl: AtomicI32,
    tclass: AtomicI32,
    hops: AtomicI32,
    discover: AtomicI32,
    discover6: AtomicI32,
    segment: AtomicI32,
    /// IP_MULTICAST_TTL and IPV6_MULTICAST_HOPS.
    group_ttl: AtomicI32,
    group_hops: AtomicI32,
    /// IP_MULTICAST_IF and IPV6_MULTICAST_IF: the engine's interface plus one, [`KERNELS`], or 0.
    group_links: [AtomicU32; 2],
}

/// Datagrams to groups go through an interface of the kernel's.
const KERNELS: u32 = u32::MAX;

impl Default for Marks {
    fn default() -> Self {
        Self {
            switches: AtomicU32::new(Switches::BY_ITSELF.bits()),
            tos: AtomicI32::new(0),
            ttl: AtomicI32::new(-1),
            tclass: AtomicI32::new(0),
            hops: AtomicI32::new(-1),
            discover: AtomicI32::new(libc::IP_PMTUDISC_WANT),
            discover6: AtomicI32::new(libc::IP_PMTUDISC_WANT),
            segment: AtomicI32::new(0),
            group_ttl: AtomicI32::new(1),
            group_hops: AtomicI32::new(1),
            group_links: Default::default(),
        }
    }
}

impl Marks {
    /// Options that accept only 0 or 1.
    const STRICT: Switches = Switches::ALL.union(Switches::ALL6).union(Switches::LOOP6);

    /// Sends datagrams to groups of a family through an interface of the engine's (its number plus
    /// one), or wherever there is a route.
    pub fn send_groups_through(&self, v6: bool, interface: Option<u32>) {
        self.group_links[usize::from(v6)].store(interface.unwrap_or(0), Ordering::Relaxed);
    }

    /// Sends them through an interface of the kernel's.
    pub fn leave_groups_to_kernel(&self, v6: bool) {
        self.group_links[usize::from(v6)].store(KERNELS, Ordering::Relaxed);
    }

    /// Whether they are sent that way.
    pub fn leaves_groups_to_kernel(&self, v6: bool) -> bool {
        self.group_links[usize::from(v6)].load(Ordering::Relaxed) == KERNELS
    }

    /// The engine's interface chosen for them.
    pub fn groups_go_through(&self, v6: bool) -> Option<u32> {
        let number = self.group_links[usize::from(v6)].load(Ordering::Relaxed);
        (number != 0 && number != KERNELS).then_some(number)
    }

    /// The options that are on.
    pub fn on(&self) -> Switches {
        Switches::from_bits_truncate(self.switches.load(Ordering::Relaxed))
    }

    /// Sets an option as the kernel would; an invalid value changes nothing. Returns what the
    /// engine needs to know.
    pub fn set(&self, level: i32, name: i32, bytes: &[u8]) -> Option<(OptionName, u64)> {
        // Only options of level IP may have a single byte.
        if level != IP && bytes.len() < 4 {
            return None;
        }
        let value = int(bytes).ok()?;
        if let Some(switch) = switch(level, name) {
            let is_strict = switch.intersects(Self::STRICT);
            if is_strict && !matches!(value, 0 | 1) {
                return None;
            }
            match value != 0 {
                true => self.switches.fetch_or(switch.bits(), Ordering::Relaxed),
                false => self.switches.fetch_and(!switch.bits(), Ordering::Relaxed),
            };
            return engines(switch).map(|option| (option, u64::from(value != 0)));
        }
        let (place, admitted, value) = match (level, name) {
            (IP, libc::IP_TOS) => (&self.tos, true, value & 0xff),
            (IP, libc::IP_TTL) => (&self.ttl, value == -1 || (1..=255).contains(&value), value),
            (IPV6, libc::IPV6_TCLASS) => (&self.tclass, (-1..=255).contains(&value), value.max(0)),
            (IPV6, libc::IPV6_UNICAST_HOPS) => (&self.hops, (-1..=255).contains(&value), value),
            (IP, libc::IP_MULTICAST_TTL) => {
                let value = if value == -1 { 1 } else { value };
                (&self.group_ttl, (0..=255).contains(&value), value)
            }
            (IPV6, libc::IPV6_MULTICAST_HOPS) => {
                let value = if value == -1 { 1 } else { value };
                (&self.group_hops, (0..=255).contains(&value), value)
            }
            (IP, libc::IP_MTU_DISCOVER) => (&self.discover, (0..=5).contains(&value), value),
            (IPV6, libc::IPV6_MTU_DISCOVER) => (&self.discover6, (0..=5).contains(&value), value),
            (UDP, libc::UDP_SEGMENT) => (&self.segment, (0..=0xffff).contains(&value), value),
            _ => return None,
        };
        if !admitted {
            return None;
        }
        place.store(value, Ordering::Relaxed);
        matches!(name, libc::IP_MTU_DISCOVER | libc::IPV6_MTU_DISCOVER)
            .then(|| (OptionName::MtuDiscover, value.unsigned_abs().into()))
            .filter(|_| level != UDP)
    }

    /// Applies earlier settings to a new endpoint.
    pub fn apply(&self, endpoint: &Endpoint) -> Result<(), rustix::io::Errno> {
        let on = self.on();
        for switch in (Switches::BY_ITSELF - on).iter() {
            if let Some(option) = engines(switch) {
                endpoint.set_option(option, 0)?;
            }
        }
        for switch in (on - Switches::BY_ITSELF).iter() {
            if let Some(option) = engines(switch) {
                if switch.intersects(Switches::RECVERR | Switches::RECVERR6) {
                    endpoint.expect_errors();
                }
                endpoint.set_option(option, 1)?;
            }
        }
        let discover = self.discover.load(Ordering::Relaxed);
        if discover != libc::IP_PMTUDISC_WANT {
            endpoint.set_option(OptionName::MtuDiscover, discover.unsigned_abs().into())?;
        }
        Ok(())
    }

    /// UDP_SEGMENT.
    pub fn segment(&self) -> u16 {
        u16::try_from(self.segment.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Type of service of datagrams to an address.
    pub fn tos(&self, to: IpAddr) -> u8 {
        let value = if to.is_ipv4() { &self.tos } else { &self.tclass };
        value.load(Ordering::Relaxed) as u8
    }

    /// TTL of datagrams to an address; `None` for the default.
    pub fn ttl(&self, to: IpAddr) -> Option<u8> {
        let value = match (to.is_multicast(), to) {
            (false, IpAddr::V4(_)) => &self.ttl,
            (false, IpAddr::V6(_)) => &self.hops,
            (true, IpAddr::V4(_)) => &self.group_ttl,
            (true, IpAddr::V6(_)) => &self.group_hops,
        };
        u8::try_from(value.load(Ordering::Relaxed)).ok()
    }

    /// How datagrams to an address are sent.
    pub fn flags(&self, to: IpAddr) -> DatagramFlags {
        let on = self.on();
        let v4 = to.is_ipv4();
        let discover = if v4 { &self.discover } else { &self.discover6 };
        let mut flags = match discover.load(Ordering::Relaxed) {
            libc::IP_PMTUDISC_WANT => DatagramFlags::DONT_FRAGMENT,
            libc::IP_PMTUDISC_DO => DatagramFlags::DONT_FRAGMENT | DatagramFlags::WHOLE,
            libc::IP_PMTUDISC_PROBE => {
                DatagramFlags::DONT_FRAGMENT | DatagramFlags::WHOLE | DatagramFlags::LINK_MTU
            }
            libc::IP_PMTUDISC_INTERFACE => DatagramFlags::WHOLE | DatagramFlags::LINK_MTU,
            libc::IP_PMTUDISC_OMIT => DatagramFlags::LINK_MTU,
            _ => DatagramFlags::empty(),
        };
        let unsummed = if v4 { Switches::NO_CHECK } else { Switches::NO_CHECK6_TX };
        flags.set(DatagramFlags::NO_CHECKSUM, on.contains(unsummed));
        if to.is_multicast() {
            let loops = if v4 { Switches::LOOP } else { Switches::LOOP6 };
            flags.set(DatagramFlags::NO_LOOP, !on.contains(loops));
        }
        if !v4 && on.contains(Switches::DONTFRAG6) {
            flags |= DatagramFlags::WHOLE;
        }
        flags
    }
}
