//! Control messages of UDP sockets, for recvmsg and sendmsg, as bytes in the C library's layout.
//! Order, lengths and refusals are the kernel's (net/ipv4/ip_sockglue.c, net/ipv6/datagram.c,
//! net/ipv4/udp.c).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::Errno;
use super::marks::Switches;
use super::own_options::{SO_TIMESTAMP_NEW, SO_TIMESTAMPING_NEW, SO_TIMESTAMPNS_NEW, TCP_INQ};
use super::streams::Asked;
use super::streams::timestamping::RECORDS;
use crate::ErrorReceived;

const SOCKET: i32 = libc::SOL_SOCKET;
const IP: i32 = libc::IPPROTO_IP;
const IPV6: i32 = libc::IPPROTO_IPV6;
const UDP: i32 = libc::IPPROTO_UDP;
/// `struct cmsghdr`, and the alignment of messages.
const HEADER_BYTES: usize = 16;
const ALIGN: usize = 8;
/// asm-generic/socket.h; not in the libc crate.
const SCM_TS_OPT_ID: i32 = 81;

/// Metadata of a received datagram or error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// Its destination; for an error, the datagram's source.
    pub local: SocketAddr,
    /// The local address for a reply.
    pub own: IpAddr,
    pub tos: u8,
    pub ttl: u8,
    /// The kernel's index of the interface.
    pub interface: u32,
    /// Several datagrams of this size; 0 for one.
    pub segment_bytes: u16,
}

/// The program's buffer for control messages.
pub(super) struct Control<'a> {
    room: &'a mut [u8],
    /// Bytes used.
    pub len: usize,
    /// MSG_CTRUNC, when there was more.
    pub flags: i32,
}

impl<'a> Control<'a> {
    pub fn new(room: &'a mut [u8]) -> Self {
        Self { room, len: 0, flags: 0 }
    }

    /// The kernel's put_cmsg: a message that does not fit is truncated; it is omitted if its header
    /// does not fit.
    fn put(&mut self, level: i32, kind: i32, data: &[u8]) {
        let left = self.room.len().saturating_sub(self.len);
        if left < HEADER_BYTES {
            self.flags |= libc::MSG_CTRUNC;
            return;
        }
        let whole = HEADER_BYTES + data.len();
        let len = whole.min(left);
        if len < whole {
            self.flags |= libc::MSG_CTRUNC;
        }
        let header = [&len.to_ne_bytes()[..], &level.to_ne_bytes(), &kind.to_ne_bytes()].concat();
        let bytes = header.iter().chain(data);
        let room = self.room.iter_mut().skip(self.len).take(len);
        for (place, byte) in room.zip(bytes) {
            *place = *byte;
        }
        self.len += whole.next_multiple_of(ALIGN).min(left);
    }

    fn put_int(&mut self, level: i32, kind: i32, value: i32) {
        self.put(level, kind, &value.to_ne_bytes());
    }

    /// Adds the messages that the socket's options request.
    pub fn put_arrival(&mut self, on: Switches, v6_socket: bool, arrival: &Arrival) {
        if on.contains(Switches::GRO) && arrival.segment_bytes != 0 {
            self.put_int(UDP, libc::UDP_GRO, arrival.segment_bytes.into());
        }
        let (local, port) = (arrival.local.ip().to_canonical(), arrival.local.port());
        let mapped = match local {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        if v6_socket && on.contains(Switches::PKTINFO6) {
            let info = [&mapped.octets()[..], &arrival.interface.to_ne_bytes()].concat();
            self.put(IPV6, libc::IPV6_PKTINFO, &info);
        }
        match local {
            IpAddr::V4(local) => self.put_arrival_v4(on, arrival, local, port),
            IpAddr::V6(_) => {
                if on.contains(Switches::RECVHOPLIMIT6) {
                    self.put_int(IPV6, libc::IPV6_HOPLIMIT, arrival.ttl.into());
                }
                if on.contains(Switches::RECVTCLASS6) {
                    self.put_int(IPV6, libc::IPV6_TCLASS, arrival.tos.into());
                }
                if on.contains(Switches::ORIGDSTADDR6) {
                    self.put(IPV6, libc::IPV6_RECVORIGDSTADDR, &name_v6(mapped, port));
                }
            }
        }
    }

    fn put_arrival_v4(&mut self, on: Switches, arrival: &Arrival, local: Ipv4Addr, port: u16) {
        if on.contains(Switches::PKTINFO) {
            let own = match arrival.own.to_canonical() {
                IpAddr::V4(own) => own.octets(),
                IpAddr::V6(_) => local.octets(),
            };
            let interface = arrival.interface.to_ne_bytes();
            let info = [&interface[..], &own, &local.octets()].concat();
            self.put(IP, libc::IP_PKTINFO, &info);
        }
        if on.contains(Switches::RECVTTL) {
            self.put_int(IP, libc::IP_TTL, arrival.ttl.into());
        }
        if on.contains(Switches::RECVTOS) {
            self.put(IP, libc::IP_TOS, &[arrival.tos]);
        }
        if on.contains(Switches::ORIGDSTADDR) {
            self.put(IP, libc::IP_RECVORIGDSTADDR, &name_v4(local, port));
        }
    }

    /// Adds the message of TCP_INQ.
    pub fn put_queue_hint(&mut self, waiting: i32) {
        self.put_int(libc::IPPROTO_TCP, TCP_INQ, waiting);
    }

    /// Adds the arrival time of the data, as requested by SO_TIMESTAMP and the like.
    pub fn put_arrival_time(&mut self, asked: Asked, at_ns: u64) {
        if asked.contains(Asked::TIME) {
            let is_new = asked.contains(Asked::NEW_NAMES);
            let (seconds, nanoseconds) = parted(at_ns);
            match asked.contains(Asked::NANOSECONDS) {
                true => {
                    let kind = if is_new { SO_TIMESTAMPNS_NEW } else { libc::SO_TIMESTAMPNS };
                    self.put_pair(kind, seconds, nanoseconds);
                }
                false => {
                    let kind = if is_new { SO_TIMESTAMP_NEW } else { libc::SO_TIMESTAMP };
                    self.put_pair(kind, seconds, nanoseconds / 1000);
                }
            }
        }
        if asked.contains(Asked::TIMES) {
            self.put_times(asked.contains(Asked::NEW_NAMES), at_ns);
        }
    }

    fn put_pair(&mut self, kind: i32, first: u64, second: u64) {
        self.put(SOCKET, kind, &[first.to_ne_bytes(), second.to_ne_bytes()].concat());
    }

    /// Adds the message of SO_TIMESTAMPING: three times, of which only the first, in software, is
    /// set.
    pub fn put_times(&mut self, is_new: bool, at_ns: u64) {
        let (seconds, nanoseconds) = parted(at_ns);
        let words = [seconds, nanoseconds, 0, 0, 0, 0].map(u64::to_ne_bytes);
        let kind = if is_new { SO_TIMESTAMPING_NEW } else { libc::SO_TIMESTAMPING };
        self.put(SOCKET, kind, &words.concat());
    }

    /// Adds the message of OPT_STATS.
    pub fn put_statistics(&mut self, attributes: &[u8]) {
        const SCM_TIMESTAMPING_OPT_STATS: i32 = 54;
        self.put(SOCKET, SCM_TIMESTAMPING_OPT_STATS, attributes);
    }

    /// Adds the `struct sock_extended_err` of the time of a byte or datagram, and its source if
    /// requested; `kind` as in [`Stamp`](crate::Stamp).
    pub fn put_stamp(&mut self, v6_socket: bool, kind: u8, count: u32, from: Option<IpAddr>) {
        const TIMESTAMPING: u8 = 4;
        // SCM_TSTAMP_SCHED, SCM_TSTAMP_SND and SCM_TSTAMP_ACK.
        let what: u32 = match kind {
            1 => 1,
            2 => 0,
            _ => 2,
        };
        let mut bytes = libc::ENOMSG.to_ne_bytes().to_vec();
        bytes.extend([TIMESTAMPING, 0, 0, 0]);
        bytes.extend(what.to_ne_bytes());
        bytes.extend(count.to_ne_bytes());
        self.put_extended(v6_socket, bytes, from);
    }

    /// Adds the `struct sock_extended_err` of calls with MSG_ZEROCOPY whose bytes were copied.
    pub fn put_zerocopy(&mut self, v6_socket: bool, first: u32, last: u32) {
        const ZEROCOPY: u8 = 5;
        const COPIED: u8 = 1;
        let mut bytes = 0_i32.to_ne_bytes().to_vec();
        bytes.extend([ZEROCOPY, 0, COPIED, 0]);
        bytes.extend(first.to_ne_bytes());
        bytes.extend(last.to_ne_bytes());
        self.put_extended(v6_socket, bytes, None);
    }

    /// Adds an error and its offender.
    fn put_extended(&mut self, v6_socket: bool, mut error: Vec<u8>, of: Option<IpAddr>) {
        match (v6_socket, of) {
            (false, Some(IpAddr::V4(from))) => error.extend(name_v4(from, 0)),
            (false, _) => error.extend([0; 16]),
            (true, Some(IpAddr::V4(from))) => error.extend(name_v6(from.to_ipv6_mapped(), 0)),
            (true, Some(IpAddr::V6(from))) => error.extend(name_v6(from, 0)),
            (true, None) => error.extend([0; 28]),
        }
        match v6_socket {
            false => self.put(IP, libc::IP_RECVERR, &error),
            true => self.put(IPV6, libc::IPV6_RECVERR, &error),
        }
    }

    /// Adds the `struct sock_extended_err` and the offender of an error.
    pub fn put_error(&mut self, v6_socket: bool, error: &ErrorReceived) {
        const LOCAL: u8 = 1;
        const ICMP: u8 = 2;
        const ICMP6: u8 = 3;
        let report = error.report;
        let origin = match report.offender {
            None => LOCAL,
            Some(IpAddr::V4(_)) => ICMP,
            Some(IpAddr::V6(_)) => ICMP6,
        };
        let mut bytes = report.errno.to_ne_bytes().to_vec();
        bytes.extend([origin, report.kind, report.code, 0]);
        bytes.extend(report.info.to_ne_bytes());
        bytes.extend([0; 4]);
        self.put_extended(v6_socket, bytes, report.offender);
    }
}

/// Seconds and nanoseconds.
fn parted(ns: u64) -> (u64, u64) {
    (ns / 1_000_000_000, ns % 1_000_000_000)
}

/// Parses SCM_TIMESTAMPING for one call's bytes on a stream. EINVAL as in the kernel.
pub(super) fn stamps_anew(mut control: &[u8]) -> Result<Option<u32>, Errno> {
    let mut anew = None;
    while let Some((level, kind, data, len)) = next_message(control)? {
        match (level, kind) {
            (SOCKET, libc::SO_TIMESTAMPING | SO_TIMESTAMPING_NEW) => anew = Some(records(data)?),
            (SOCKET, libc::SCM_RIGHTS | libc::SCM_CREDENTIALS) => {}
            (SOCKET, libc::SO_PRIORITY | libc::SO_MARK) => {
                whole(data)?;
            }
            // This includes SCM_TS_OPT_ID: streams count bytes, not calls.
            (SOCKET, _) => return Err(Errno::INVAL),
            _ => {}
        }
        control = control.get(len.next_multiple_of(ALIGN)..).unwrap_or_default();
    }
    Ok(anew)
}

/// The flags of SCM_TIMESTAMPING, of which only some are permitted.
fn records(data: &[u8]) -> Result<u32, Errno> {
    let flags = whole(data)?.cast_unsigned();
    if flags & !RECORDS == 0 { Ok(flags) } else { Err(Errno::INVAL) }
}

/// The first control message: level, kind, data, and its total length.
type Message<'a> = (i32, i32, &'a [u8], usize);

fn next_message(control: &[u8]) -> Result<Option<Message<'_>>, Errno> {
    let Some((header, _)) = control.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let (len, kinds) = header.split_at(8);
    let len = usize::from_ne_bytes(len.try_into().map_err(|_| Errno::INVAL)?);
    let (level, kind) = kinds.split_at(4);
    let data = control.get(HEADER_BYTES..len).ok_or(Errno::INVAL)?;
    Ok(Some((whole(level)?, whole(kind)?, data, len)))
}

/// `struct sockaddr_in`.
fn name_v4(ip: Ipv4Addr, port: u16) -> [u8; 16] {
    let mut name = [0; 16];
    name[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    name[2..4].copy_from_slice(&port.to_be_bytes());
    name[4..8].copy_from_slice(&ip.octets());
    name
}

/// `struct sockaddr_in6`.
fn name_v6(ip: Ipv6Addr, port: u16) -> [u8; 28] {
    let mut name = [0; 28];
    name[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
    name[2..4].copy_from_slice(&port.to_be_bytes());
    name[8..24].copy_from_slice(&ip.octets());
    name
}

/// A program's parameters for one datagram, besides its socket's options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wishes {
    pub local: Option<IpAddr>,
    /// The kernel's index of the interface; 0 for any.
    pub interface: u32,
    pub tos: Option<u8>,
    pub ttl: Option<u8>,
    pub segment: Option<u16>,
    pub dont_fragment: Option<bool>,
    /// SCM_TIMESTAMPING.
    pub stamps: Option<u32>,
    /// SCM_TS_OPT_ID: its number in reports.
    pub number: Option<u32>,
}

impl Wishes {
    /// Parses the control messages of a datagram to an address; EINVAL as in the kernel.
    pub fn parse(mut control: &[u8], v6_socket: bool, to: IpAddr) -> Result<Self, Errno> {
        let mut wishes = Self::default();
        while let Some((level, kind, data, len)) = next_message(control)? {
            match level {
                UDP => {
                    wishes.segment = Some(match (kind, data) {
                        (libc::UDP_SEGMENT, &[a, b]) => u16::from_ne_bytes([a, b]),
                        _ => return Err(Errno::INVAL),
                    })
                }
                SOCKET => match kind {
                    // Descriptors and credentials are for AF_UNIX sockets, and ignored.
                    libc::SCM_RIGHTS | libc::SCM_CREDENTIALS => {}
                    libc::SO_PRIORITY | libc::SO_MARK => {
                        whole(data)?;
                    }
                    libc::SO_TIMESTAMPING | SO_TIMESTAMPING_NEW => {
                        wishes.stamps = Some(records(data)?);
                    }
                    SCM_TS_OPT_ID => wishes.number = Some(whole(data)?.cast_unsigned()),
                    _ => return Err(Errno::INVAL),
                },
                IP if to.is_ipv4() => wishes.take_v4(kind, data)?,
                IPV6 if v6_socket && (to.is_ipv6() || kind == libc::IPV6_PKTINFO) => {
                    wishes.take_v6(kind, data, to.is_ipv4())?;
                }
                _ => {}
            }
            control = control.get(len.next_multiple_of(ALIGN)..).unwrap_or_default();
        }
        Ok(wishes)
    }

    fn take_v4(&mut self, kind: i32, data: &[u8]) -> Result<(), Errno> {
        match kind {
            libc::IP_PKTINFO => {
                let &[i0, i1, i2, i3, a, b, c, d, _, _, _, _] = data else {
                    return Err(Errno::INVAL);
                };
                self.interface = u32::from_ne_bytes([i0, i1, i2, i3]);
                self.local = Some(Ipv4Addr::new(a, b, c, d).into());
            }
            libc::IP_TTL => {
                let value = u8::try_from(whole(data)?).ok().filter(|value| *value > 0);
                self.ttl = Some(value.ok_or(Errno::INVAL)?);
            }
            libc::IP_TOS => {
                let value = match data {
                    &[value] => i32::from(value),
                    data => whole(data)?,
                };
                self.tos = Some(u8::try_from(value).map_err(|_| Errno::INVAL)?);
            }
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }

    fn take_v6(&mut self, kind: i32, data: &[u8], to_v4: bool) -> Result<(), Errno> {
        match kind {
            libc::IPV6_PKTINFO => {
                let (address, rest) = data.split_first_chunk::<16>().ok_or(Errno::INVAL)?;
                let local = Ipv6Addr::from(*address);
                if to_v4 && local.to_ipv4_mapped().is_none() {
                    return Err(Errno::INVAL);
                }
                let interface = rest.get(..4).ok_or(Errno::INVAL)?;
                self.interface = whole(interface)?.cast_unsigned();
                self.local = Some(IpAddr::V6(local).to_canonical());
            }
            libc::IPV6_HOPLIMIT => self.ttl = or_usual(whole(data)?)?,
            libc::IPV6_TCLASS => self.tos = or_usual(whole(data)?)?,
            libc::IPV6_DONTFRAG => match whole(data)? {
                value @ (0 | 1) => self.dont_fragment = Some(value == 1),
                _ => return Err(Errno::INVAL),
            },
            _ => return Err(Errno::INVAL),
        }
        Ok(())
    }
}

/// A value of -1 means the socket's own.
fn or_usual(value: i32) -> Result<Option<u8>, Errno> {
    match value {
        -1 => Ok(None),
        value => u8::try_from(value).map(Some).map_err(|_| Errno::INVAL),
    }
}

/// An int and nothing else.
fn whole(data: &[u8]) -> Result<i32, Errno> {
    data.try_into().map(i32::from_ne_bytes).map_err(|_| Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

    fn message(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
        let mut room = vec![0; 256];
        let mut control = Control::new(&mut room);
        control.put(level, kind, data);
        let len = control.len;
        room.truncate(len);
        room
    }

    #[test]
    fn what_is_written_is_read_back() {
        let all = [
            message(IP, libc::IP_TOS, &[0x28]),
            message(IP, libc::IP_TTL, &9i32.to_ne_bytes()),
            message(UDP, libc::UDP_SEGMENT, &1200u16.to_ne_bytes()),
            message(99, 1, b"of a level that is nobody's"),
        ];
        let wishes = Wishes::parse(&all.concat(), false, PEER).unwrap();
        let wanted =
            Wishes { tos: Some(0x28), ttl: Some(9), segment: Some(1200), ..Wishes::default() };
        assert_eq!(wishes, wanted);
    }

    #[test]
    fn lengths_that_cannot_be_are_refused() {
        let good = message(IP, libc::IP_TTL, &9i32.to_ne_bytes());
        for len in [0, 15, 17, good.len() + 1, usize::MAX] {
            let mut bad = good.clone();
            bad[..8].copy_from_slice(&len.to_ne_bytes());
            assert_eq!(Wishes::parse(&bad, false, PEER), Err(Errno::INVAL), "{len}");
        }
        // Less than a header is no message.
        assert_eq!(Wishes::parse(&good[..15], false, PEER), Ok(Wishes::default()));
    }

    #[test]
    fn a_message_is_cut_to_the_room_and_told_so() {
        for (room, len, is_cut) in [(0, 0, true), (15, 0, true), (18, 18, true), (24, 24, false)] {
            let mut bytes = vec![0; room];
            let mut control = Control::new(&mut bytes);
            control.put(IP, libc::IP_TTL, &9i32.to_ne_bytes());
            assert_eq!((control.len, control.flags != 0), (len, is_cut), "{room}");
        }
    }
}
