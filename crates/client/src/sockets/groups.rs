//! Multicast groups of UDP sockets: setsockopt with the kernel's names, rules and errors
//! (net/ipv4/igmp.c, net/ipv6/mcast.c). On an interface of the engine's own the engine joins; on
//! any other, and on a shared one, the kernel does. A program that names no interface joins on
//! both: on the engine's first own interface, and on the one that the kernel chooses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::RawFd;
use std::sync::Arc;

use super::link::Attachment;
use super::option_kinds::SocketOption;
use super::options::int;
use super::socket::{Socket, held};
use super::{Errno, Sockets, Verdict};
use crate::{Endpoint, Session};

const IP: i32 = libc::IPPROTO_IP;
const IPV6: i32 = libc::IPPROTO_IPV6;
// Of linux/in.h; some are not in the libc crate.
const IP_MSFILTER: i32 = 41;
const MCAST_JOIN_GROUP: i32 = 42;
const MCAST_BLOCK_SOURCE: i32 = 43;
const MCAST_UNBLOCK_SOURCE: i32 = 44;
const MCAST_LEAVE_GROUP: i32 = 45;
const MCAST_JOIN_SOURCE_GROUP: i32 = 46;
const MCAST_LEAVE_SOURCE_GROUP: i32 = 47;
const MCAST_MSFILTER: i32 = 48;
const MCAST_EXCLUDE: u32 = 0;
const MCAST_INCLUDE: u32 = 1;
/// igmp_max_memberships, for IPv4 only.
const GROUPS_MAX_V4: usize = 20;
/// Limit of both families in the engine; the kernel has no limit for IPv6.
const GROUPS_MAX: usize = 64;
/// igmp_max_msf and mld_max_msf.
const SOURCES_MAX: [usize; 2] = [10, 64];

/// How a program names an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// Not at all.
    Any,
    /// By the kernel's index.
    Index(u32),
    /// By its address.
    Address(Ipv4Addr),
}

/// The requested change.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Join,
    Leave,
    JoinSource(IpAddr),
    LeaveSource(IpAddr),
    Block(IpAddr),
    Unblock(IpAddr),
    Filter { excludes: bool, sources: Vec<IpAddr> },
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Asked {
    group: IpAddr,
    named: Named,
    change: Change,
}

/// A group that a socket has joined in the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    /// The engine's interface, plus one.
    interface: u32,
    group: IpAddr,
    excludes: bool,
    sources: Vec<IpAddr>,
}

/// A change to report to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// Exclude, include, or leave.
    Set(Option<bool>),
    Name(IpAddr, bool),
}

/// `struct in_addr` at an offset of an option's value.
fn address_at(bytes: &[u8], at: usize) -> Option<Ipv4Addr> {
    bytes.get(at..)?.first_chunk::<4>().map(|four| Ipv4Addr::from(*four))
}

fn word_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk::<4>().map(|four| u32::from_ne_bytes(*four))
}

/// The address in a `struct sockaddr_storage` at an offset, which must be of the level's family.
fn name_at(bytes: &[u8], at: usize, level: i32) -> Option<IpAddr> {
    let name = bytes.get(at..)?;
    let family = name.first_chunk::<2>().map(|two| i32::from(u16::from_ne_bytes(*two)))?;
    match (family, level) {
        (libc::AF_INET, IP) => address_at(name, 4).map(IpAddr::V4),
        (libc::AF_INET6, IPV6) => {
            name.get(8..)?.first_chunk::<16>().map(|all| Ipv6Addr::from(*all).into())
        }
        _ => None,
    }
}

/// The interface named in a `struct in_addr` or `struct ip_mreqn`.
fn named_at(bytes: &[u8], address: usize, index: usize) -> Named {
    match (address_at(bytes, address), word_at(bytes, index)) {
        (_, Some(index)) if index != 0 => Named::Index(index),
        (Some(address), _) if !address.is_unspecified() => Named::Address(address),
        _ => Named::Any,
    }
}

fn index(number: u32) -> Named {
    if number == 0 { Named::Any } else { Named::Index(number) }
}

/// `struct sockaddr_storage`.
const NAME_BYTES: usize = 128;
/// Offset of the group in `struct group_req` and similar structs.
const GROUP_AT: usize = 8;

/// The change requested by an option; `None` if it concerns something else.
fn parse(level: i32, name: i32, bytes: &[u8]) -> Option<Result<Asked, Errno>> {
    let invalid = Errno::INVAL;
    let asked = |group: Option<IpAddr>, named, change| match group {
        Some(group) if group.is_multicast() => Ok(Asked { group, named, change }),
        _ => Err(invalid),
    };
    let v4 = |at: usize| address_at(bytes, at).map(IpAddr::V4);
    Some(match (level, name) {
        (IP, libc::IP_ADD_MEMBERSHIP) => asked(v4(0), named_at(bytes, 4, 8), Change::Join),
        (IP, libc::IP_DROP_MEMBERSHIP) => asked(v4(0), named_at(bytes, 4, 8), Change::Leave),
        (
            IP,
            libc::IP_ADD_SOURCE_MEMBERSHIP
            | libc::IP_DROP_SOURCE_MEMBERSHIP
            | libc::IP_BLOCK_SOURCE
            | libc::IP_UNBLOCK_SOURCE,
        ) => {
            // struct ip_mreq_source.
            let Some(source) = v4(8).filter(|_| bytes.len() == 12) else {
                return Some(Err(invalid));
            };
            let change = match name {
                libc::IP_ADD_SOURCE_MEMBERSHIP => Change::JoinSource(source),
                libc::IP_DROP_SOURCE_MEMBERSHIP => Change::LeaveSource(source),
                libc::IP_BLOCK_SOURCE => Change::Block(source),
                _ => Change::Unblock(source),
            };
            asked(v4(0), named_at(bytes, 4, usize::MAX), change)
        }
        (IP, IP_MSFILTER) => {
            let count = word_at(bytes, 12).unwrap_or(u32::MAX) as usize;
            let sources: Option<Vec<IpAddr>> =
                (0..count.min(SOURCES_MAX[0] + 1)).map(|at| v4(16 + at * 4)).collect();
            filter(word_at(bytes, 8), count, sources, SOURCES_MAX[0])
                .and_then(|change| asked(v4(0), named_at(bytes, 4, usize::MAX), change))
        }
        (IPV6, libc::IPV6_ADD_MEMBERSHIP | libc::IPV6_DROP_MEMBERSHIP) => {
            let group = bytes.first_chunk::<16>().map(|all| Ipv6Addr::from(*all).into());
            let (Some(group), Some(number)) = (group, word_at(bytes, 16)) else {
                return Some(Err(invalid));
            };
            let joins = name == libc::IPV6_ADD_MEMBERSHIP;
            let change = if joins { Change::Join } else { Change::Leave };
            asked(Some(group), index(number), change)
        }
        (IP | IPV6, MCAST_JOIN_GROUP..=MCAST_MSFILTER) => {
            let group = name_at(bytes, GROUP_AT, level);
            let named = index(word_at(bytes, 0).unwrap_or(0));
            let source = name_at(bytes, GROUP_AT + NAME_BYTES, level);
            let change = match (name, source) {
                (MCAST_JOIN_GROUP, _) => Ok(Change::Join),
                (MCAST_LEAVE_GROUP, _) => Ok(Change::Leave),
                (MCAST_MSFILTER, _) => {
                    let (at, most) =
                        (GROUP_AT + NAME_BYTES, SOURCES_MAX[usize::from(level == IPV6)]);
                    let count = word_at(bytes, at + 4).unwrap_or(u32::MAX) as usize;
                    let source = |place| name_at(bytes, at + 8 + place * NAME_BYTES, level);
                    let sources = (0..count.min(most + 1)).map(source).collect();
                    filter(word_at(bytes, at), count, sources, most)
                }
                (_, None) => Err(Errno::ADDRNOTAVAIL),
                (MCAST_JOIN_SOURCE_GROUP, Some(source)) => Ok(Change::JoinSource(source)),
                (MCAST_LEAVE_SOURCE_GROUP, Some(source)) => Ok(Change::LeaveSource(source)),
                (MCAST_BLOCK_SOURCE, Some(source)) => Ok(Change::Block(source)),
                (MCAST_UNBLOCK_SOURCE, Some(source)) => Ok(Change::Unblock(source)),
                _ => return None,
            };
            change.and_then(|change| asked(group, named, change))
        }
        _ => return None,
    })
}

/// A whole filter.
fn filter(
    mode: Option<u32>,
    count: usize,
    sources: Option<Vec<IpAddr>>,
    most: usize,
) -> Result<Change, Errno> {
    if count > most && count != u32::MAX as usize {
        return Err(Errno::NOBUFS);
    }
    let sources = sources.ok_or(Errno::INVAL)?;
    match mode {
        Some(MCAST_INCLUDE) => Ok(Change::Filter { excludes: false, sources }),
        Some(MCAST_EXCLUDE) => Ok(Change::Filter { excludes: true, sources }),
        _ => Err(Errno::INVAL),
    }
}

/// Applies a change as the kernel would; returns what to report to the engine.
fn change(wishes: &mut Vec<Wish>, interface: u32, asked: &Asked) -> Result<Vec<Told>, Errno> {
    let group = asked.group;
    let at = wishes.iter().position(|one| (one.interface, one.group) == (interface, group));
    let most = SOURCES_MAX[usize::from(group.is_ipv6())];
    let fresh = |excludes| Wish { interface, group, excludes, sources: Vec::new() };
    let of_v4 = wishes.iter().filter(|one| one.group.is_ipv4()).count();
    let is_full = group.is_ipv4() && of_v4 >= GROUPS_MAX_V4 || wishes.len() >= GROUPS_MAX;
    let (at, began) = match (&asked.change, at) {
        (Change::Join, Some(_)) => return Err(Errno::ADDRINUSE),
        (Change::Join | Change::JoinSource(_), None) if is_full => return Err(Errno::NOBUFS),
        (Change::Join, None) => {
            wishes.push(fresh(true));
            return Ok(vec![Told::Set(Some(true))]);
        }
        (Change::JoinSource(_), None) => {
            wishes.push(fresh(false));
            (wishes.len() - 1, true)
        }
        (Change::Leave, None) => return Err(Errno::ADDRNOTAVAIL),
        (_, None) => return Err(Errno::INVAL),
        (_, Some(at)) => (at, false),
    };
    let leave = |wishes: &mut Vec<Wish>| {
        wishes.remove(at);
        Ok(vec![Told::Set(None)])
    };
    let (source, excludes, adds) = match &asked.change {
        Change::Join | Change::Leave => return leave(wishes),
        Change::Filter { excludes: false, sources } if sources.is_empty() => return leave(wishes),
        Change::Filter { excludes, sources } => {
            if let Some(wish) = wishes.get_mut(at) {
                (wish.excludes, wish.sources) = (*excludes, sources.clone());
            }
            let names = sources.iter().map(|source| Told::Name(*source, true));
            return Ok([Told::Set(Some(*excludes))].into_iter().chain(names).collect());
        }
        Change::JoinSource(source) => (*source, false, true),
        Change::LeaveSource(source) => (*source, false, false),
        Change::Block(source) => (*source, true, true),
        Change::Unblock(source) => (*source, true, false),
    };
    let Some(wish) = wishes.get_mut(at) else { return Err(Errno::INVAL) };
    let mut told = Vec::new();
    if began {
        told.push(Told::Set(Some(false)));
    } else if wish.excludes != excludes {
        // Only an empty filter may change its mode.
        if !wish.sources.is_empty() {
            return Err(Errno::INVAL);
        }
        wish.excludes = excludes;
        told.push(Told::Set(Some(excludes)));
    }
    let named = wish.sources.iter().position(|one| *one == source);
    match (named, adds) {
        (Some(_), true) | (None, false) => return Err(Errno::ADDRNOTAVAIL),
        (None, true) if wish.sources.len() >= most => return Err(Errno::NOBUFS),
        (None, true) => wish.sources.push(source),
        // An empty include filter is the same as leaving.
        (Some(_), false) if wish.sources.len() == 1 && !excludes => return leave(wishes),
        (Some(place), false) => {
            wish.sources.remove(place);
        }
    }
    told.push(Told::Name(source, adds));
    Ok(told)
}

fn tell(endpoint: &Endpoint, interface: u32, group: IpAddr, told: &[Told]) -> Result<(), Errno> {
    told.iter().try_for_each(|told| match *told {
        Told::Set(excludes) => endpoint.set_group(interface, group, excludes),
        Told::Name(source, is_named) => endpoint.name_source(interface, group, source, is_named),
    })
}

/// The engine's own interface named by a program: its number plus one.
pub(super) fn own_interface(session: &Session, named: Named, v6: bool) -> Option<u32> {
    match named {
        Named::Any => session.first_own(v6),
        Named::Index(index) => session.own_by_index(index),
        Named::Address(address) => session.own_by_address(address.into()),
    }
}

impl Sockets {
    /// An option about groups; `None` if it concerns something else.
    pub(super) fn set_group_option(
        &'static self,
        socket: &Arc<Socket>,
        fd: RawFd,
        SocketOption { level, name }: SocketOption,
        bytes: &[u8],
    ) -> Option<Verdict<()>> {
        if let Some(family) = interface_option(level, name) {
            return Some(self.set_group_interface(socket, family, bytes));
        }
        let asked = match parse(level, name, bytes)? {
            Ok(asked) => asked,
            // The kernel returns the right error.
            Err(_) => return Some(Verdict::Kernel),
        };
        let attachment = self.era().and_then(|era| self.attach(era));
        let found = attachment.and_then(|attachment| {
            let session = &attachment.session;
            let interface = own_interface(session, asked.named, asked.group.is_ipv6())?;
            Some((interface, session.leads(asked.group)))
        });
        let Some((interface, leads)) = found else { return Some(Verdict::Kernel) };
        if asked.named != Named::Any {
            return Some(Verdict::Done(self.change_group(socket, interface, &asked)));
        }
        // Where the kernel has a route, too, it may join there.
        let kernels = self.kernel.set_raw_option(fd, level, name, bytes);
        // Every IPv6 interface leads to all groups; IPv4 needs a route.
        let is_nowhere = asked.group.is_ipv4() && !leads && kernels == Err(Errno::NODEV);
        if is_nowhere {
            return Some(Verdict::Done(kernels));
        }
        // The kernel's error counts only if ours does.
        let ours = self.change_group(socket, interface, &asked);
        Some(Verdict::Done(ours.or_else(|error| kernels.or(Err(error)))))
    }

    fn change_group(&self, socket: &Socket, interface: u32, asked: &Asked) -> Result<(), Errno> {
        let mut wishes = held(socket.groups.lock());
        let mut after = wishes.clone();
        let told = change(&mut after, interface, asked)?;
        let endpoint = held(socket.datagram.read()).as_ref().map(|face| face.endpoint.clone());
        if let Some(endpoint) = endpoint {
            tell(&endpoint, interface, asked.group, &told)?;
        }
        *wishes = after;
        Ok(())
    }

    /// IP_MULTICAST_IF and IPV6_MULTICAST_IF.
    fn set_group_interface(&'static self, socket: &Socket, v6: bool, bytes: &[u8]) -> Verdict<()> {
        let named = match v6 {
            true => int(bytes).map_or(Named::Any, |number| index(number.cast_unsigned())),
            // struct in_addr, or ip_mreq, or ip_mreqn.
            false if bytes.len() < 8 => named_at(bytes, 0, usize::MAX),
            false => named_at(bytes, 4, 8),
        };
        let attachment = self.era().and_then(|era| self.attach(era));
        let ours = attachment.filter(|_| named != Named::Any).and_then(|attachment| {
            let number = own_interface(&attachment.session, named, v6)?;
            let index = attachment.session.kernel_index(number);
            Some((number, index))
        });
        match (named, ours) {
            (_, Some((number, _))) => {
                socket.marks.send_groups_through(v6, Some(number));
                Verdict::Done(Ok(()))
            }
            (Named::Any, None) => {
                socket.marks.send_groups_through(v6, None);
                Verdict::Kernel
            }
            (_, None) => {
                socket.marks.leave_groups_to_kernel(v6);
                Verdict::Kernel
            }
        }
    }

    /// getsockopt of IP_MULTICAST_IF and IPV6_MULTICAST_IF, where it is the engine's.
    pub(super) fn group_interface(
        &'static self,
        socket: &Socket,
        level: i32,
        name: i32,
    ) -> Option<[u8; 4]> {
        let v6 = interface_option(level, name)?;
        let number = socket.marks.groups_go_through(v6)?;
        let session = &self.era().and_then(|era| self.attach(era))?.session;
        match v6 {
            true => Some(session.kernel_index(number).to_ne_bytes()),
            false => match session.address_on(number) {
                Some(IpAddr::V4(own)) => Some(own.octets()),
                _ => Some([0; 4]),
            },
        }
    }

    /// Applies a socket's memberships to a new endpoint.
    pub(super) fn apply_groups(&self, socket: &Socket, endpoint: &Endpoint) -> Result<(), Errno> {
        let wishes = held(socket.groups.lock()).clone();
        wishes.iter().try_for_each(|wish| {
            let names = wish.sources.iter().map(|source| Told::Name(*source, true));
            let told: Vec<Told> =
                [Told::Set(Some(wish.excludes))].into_iter().chain(names).collect();
            tell(endpoint, wish.interface, wish.group, &told)
        })
    }
}

/// Whether an option is IP_MULTICAST_IF or IPV6_MULTICAST_IF, and of which family.
fn interface_option(level: i32, name: i32) -> Option<bool> {
    match (level, name) {
        (IP, libc::IP_MULTICAST_IF) => Some(false),
        (IPV6, libc::IPV6_MULTICAST_IF) => Some(true),
        _ => None,
    }
}

/// The engine's interface for a datagram to a group, plus one; `None`: it goes through the kernel.
/// `scope`: the kernel's index of the interface in its address, or 0.
pub(super) fn way_to_group(
    socket: &Socket,
    attachment: &Attachment,
    group: IpAddr,
    scope: u32,
) -> Option<u32> {
    let (session, v6) = (&attachment.session, group.is_ipv6());
    if scope != 0 {
        return session.own_by_index(scope);
    }
    if socket.marks.leaves_groups_to_kernel(v6) {
        return None;
    }
    socket.marks.groups_go_through(v6).or_else(|| session.first_own(v6))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// A change as the kernel's rules have it, of group 239.1.1.1 on interface 1.
    fn try_to(wishes: &mut Vec<Wish>, wanted: Change) -> Result<Vec<Told>, Errno> {
        let asked = Asked { group: ip("239.1.1.1"), named: Named::Any, change: wanted };
        change(wishes, 1, &asked)
    }

    #[test]
    fn a_group_is_joined_once_and_left_once() {
        let mut wishes = Vec::new();
        assert_eq!(try_to(&mut wishes, Change::Leave), Err(Errno::ADDRNOTAVAIL));
        assert_eq!(try_to(&mut wishes, Change::Join), Ok(vec![Told::Set(Some(true))]));
        assert_eq!(try_to(&mut wishes, Change::Join), Err(Errno::ADDRINUSE));
        assert_eq!(try_to(&mut wishes, Change::Leave), Ok(vec![Told::Set(None)]));
        let many = |last: u8| {
            let group = IpAddr::from([239, 0, 0, last]);
            Asked { group, named: Named::Any, change: Change::Join }
        };
        for last in 0..20 {
            change(&mut wishes, 1, &many(last)).unwrap();
        }
        assert_eq!(change(&mut wishes, 1, &many(20)), Err(Errno::NOBUFS));
        // Of IPv6 there may be more, which do not count among IPv4's.
        let many6 = |last: u16| {
            let group = IpAddr::from([0xff15, 0, 0, 0, 0, 0, 0, last]);
            Asked { group, named: Named::Any, change: Change::Join }
        };
        for last in 0..44 {
            change(&mut wishes, 1, &many6(last)).unwrap();
        }
        assert_eq!(change(&mut wishes, 1, &many6(44)), Err(Errno::NOBUFS));
        let (left, joined) = (IpAddr::from([239, 0, 0, 0]), many(20));
        let leave = Asked { group: left, named: Named::Any, change: Change::Leave };
        assert!(change(&mut wishes, 1, &leave).is_ok() && change(&mut wishes, 1, &joined).is_ok());
    }

    #[test]
    fn senders_are_named_as_the_kernel_has_it() {
        let (a, b) = (ip("10.0.0.1"), ip("10.0.0.2"));
        let mut wishes = Vec::new();
        assert_eq!(try_to(&mut wishes, Change::Block(a)), Err(Errno::INVAL));
        let joined = try_to(&mut wishes, Change::JoinSource(a));
        assert_eq!(joined, Ok(vec![Told::Set(Some(false)), Told::Name(a, true)]));
        assert_eq!(try_to(&mut wishes, Change::JoinSource(a)), Err(Errno::ADDRNOTAVAIL));
        assert_eq!(try_to(&mut wishes, Change::Block(b)), Err(Errno::INVAL), "it hears but one");
        assert_eq!(try_to(&mut wishes, Change::LeaveSource(b)), Err(Errno::ADDRNOTAVAIL));
        assert_eq!(try_to(&mut wishes, Change::LeaveSource(a)), Ok(vec![Told::Set(None)]));
        assert!(wishes.is_empty());
        try_to(&mut wishes, Change::Join).unwrap();
        assert_eq!(try_to(&mut wishes, Change::Block(a)), Ok(vec![Told::Name(a, true)]));
        assert_eq!(try_to(&mut wishes, Change::Unblock(a)), Ok(vec![Told::Name(a, false)]));
        for last in 0..10 {
            try_to(&mut wishes, Change::Block(IpAddr::from([10, 0, 1, last]))).unwrap();
        }
        assert_eq!(try_to(&mut wishes, Change::Block(a)), Err(Errno::NOBUFS));
        let filter = Change::Filter { excludes: false, sources: vec![a, b] };
        let told = [Told::Set(Some(false)), Told::Name(a, true), Told::Name(b, true)];
        assert_eq!(try_to(&mut wishes, filter), Ok(told.to_vec()));
        let nobody = Change::Filter { excludes: false, sources: Vec::new() };
        assert_eq!(try_to(&mut wishes, nobody), Ok(vec![Told::Set(None)]));
    }

    #[test]
    fn options_are_read_in_the_c_librarys_layout() {
        let mreqn = [239, 1, 1, 1, 10, 0, 0, 2, 7, 0, 0, 0];
        let of = |level, name, bytes: &[u8]| parse(level, name, bytes).unwrap();
        let joined = of(IP, libc::IP_ADD_MEMBERSHIP, &mreqn).unwrap();
        assert_eq!((joined.group, joined.named), (ip("239.1.1.1"), Named::Index(7)));
        let joined = of(IP, libc::IP_ADD_MEMBERSHIP, &mreqn[..8]).unwrap();
        assert_eq!(joined.named, Named::Address(Ipv4Addr::new(10, 0, 0, 2)));
        let source = of(IP, libc::IP_ADD_SOURCE_MEMBERSHIP, &mreqn).unwrap();
        assert_eq!(source.change, Change::JoinSource(ip("7.0.0.0")));
        assert!(of(IP, libc::IP_ADD_MEMBERSHIP, &[10, 0, 0, 1, 0, 0, 0, 0]).is_err());
        let mut request = vec![0; GROUP_AT + 2 * NAME_BYTES];
        request[0] = 3;
        let v6 = (libc::AF_INET6 as u16).to_ne_bytes();
        request[GROUP_AT..GROUP_AT + 2].copy_from_slice(&v6);
        let group: Ipv6Addr = "ff05::7".parse().unwrap();
        request[GROUP_AT + 8..GROUP_AT + 24].copy_from_slice(&group.octets());
        let joined = of(IPV6, MCAST_JOIN_GROUP, &request).unwrap();
        assert_eq!((joined.group, joined.named), (ip("ff05::7"), Named::Index(3)));
        assert!(of(IPV6, MCAST_BLOCK_SOURCE, &request).is_err(), "there is no source");
        assert!(parse(IP, libc::IP_TTL, &mreqn).is_none());
        let whole =
            [&mreqn[..4], &[0; 4], &1u32.to_ne_bytes(), &1u32.to_ne_bytes(), &[10, 0, 0, 9]];
        let whole = of(IP, IP_MSFILTER, &whole.concat()).unwrap();
        let sources = vec![ip("10.0.0.9")];
        assert_eq!(whole.change, Change::Filter { excludes: false, sources });
    }
}
