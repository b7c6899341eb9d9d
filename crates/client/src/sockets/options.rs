//! Socket options and descriptor flags.
//!
//! A socket with a kernel side sets every option there, and those of the engine are remembered for
//! the connection to come. On a connection, an option is applied by the engine, or kept by a kernel
//! socket without effect (one logged line; `kept.rs`).

use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use shm::census::{Reason, option_name};

use super::notices::Notice;
use super::option_kinds::{
    SocketOption, chooses_among_sockets, is_for_kernel, is_moot, is_silent, keeps_out,
    reason_of_option, signs_otherwise,
};
use super::own_options::{
    SO_TIMESTAMPING_NEW, TCP_ZEROCOPY_RECEIVE, is_about_time, is_own, map_nothing, usual,
};
use super::room::{buffer_of, memory_info};
use super::signing::{Asked, is_key, parse};
use super::socket::{AT_ONCE, Connection, Socket, held, timeout};
use super::{Errno, Sockets, Verdict};
use crate::{ConnectOptions, Endpoint, Kind, OptionName};

const SOCKET: i32 = libc::SOL_SOCKET;
const TCP: i32 = libc::IPPROTO_TCP;
const IP: i32 = libc::IPPROTO_IP;
const IPV6: i32 = libc::IPPROTO_IPV6;
const RCVTIMEO_NEW: i32 = 66;
const SNDTIMEO_NEW: i32 = 67;
/// linux/tcp.h; not in the libc crate.
pub(super) const TCP_FASTOPEN_KEY: i32 = 33;
const TCP_FASTOPEN_NO_COOKIE: i32 = 34;
const TCP_RTO_MAX_MS: i32 = 44;
const TCP_REPAIR: i32 = 19;
const TCP_QUEUE_SEQ: i32 = 21;

/// The engine's name of an int option.
fn engines(level: i32, name: i32) -> Option<OptionName> {
    Some(match (level, name) {
        (TCP, libc::TCP_NODELAY) => OptionName::Nodelay,
        (TCP, libc::TCP_CORK) => OptionName::Cork,
        (TCP, libc::TCP_QUICKACK) => OptionName::Quickack,
        (TCP, libc::TCP_KEEPIDLE) => OptionName::Keepidle,
        (TCP, libc::TCP_KEEPINTVL) => OptionName::Keepintvl,
        (TCP, libc::TCP_KEEPCNT) => OptionName::Keepcnt,
        (TCP, libc::TCP_USER_TIMEOUT) => OptionName::UserTimeout,
        (TCP, TCP_RTO_MAX_MS) => OptionName::RetransmitTimeoutMax,
        (TCP, libc::TCP_MAXSEG) => OptionName::Maxseg,
        (TCP, libc::TCP_LINGER2) => OptionName::Linger2,
        (TCP, libc::TCP_SYNCNT) => OptionName::SynRetries,
        (TCP, libc::TCP_WINDOW_CLAMP) => OptionName::WindowClamp,
        (TCP, libc::TCP_DEFER_ACCEPT) => OptionName::DeferAccept,
        (TCP, libc::TCP_NOTSENT_LOWAT) => OptionName::UnsentLowWater,
        (TCP, libc::TCP_FASTOPEN) => OptionName::FastOpen,
        (TCP, TCP_FASTOPEN_NO_COOKIE) => OptionName::FastOpenNoCookie,
        (IP, libc::IP_MTU_DISCOVER) | (IPV6, libc::IPV6_MTU_DISCOVER) => OptionName::MtuDiscover,
        (IP, libc::IP_MTU) | (IPV6, libc::IPV6_MTU) => OptionName::PathMtu,
        (SOCKET, libc::SO_KEEPALIVE) => OptionName::Keepalive,
        (SOCKET, libc::SO_MAX_PACING_RATE) => OptionName::MaxPacingRate,
        (IP, libc::IP_TOS) => OptionName::Tos,
        (IPV6, libc::IPV6_TCLASS) => OptionName::TrafficClass,
        (IP, libc::IP_TTL) => OptionName::Ttl,
        (IPV6, libc::IPV6_UNICAST_HOPS) => OptionName::HopLimit,
        _ => return None,
    })
}

/// Options whose value may differ from the value set: the engine rounds, limits or determines it.
fn is_asked_for(option: OptionName) -> bool {
    matches!(
        option,
        OptionName::Linger2
            | OptionName::SynRetries
            | OptionName::WindowClamp
            | OptionName::DeferAccept
            | OptionName::PathMtu
            | OptionName::MaxPacingRate
            | OptionName::Quickack
    )
}

/// Whether an option's value has at least four bytes: all except those of level IP, which may have
/// one, and names.
fn is_four_bytes(level: i32, name: i32) -> bool {
    let is_name = matches!(
        (level, name),
        (TCP, libc::TCP_CONGESTION | libc::TCP_ULP) | (SOCKET, libc::SO_BINDTODEVICE)
    );
    level != IP && !is_name
}

/// The value that the kernel returns: flags are 0 or 1, and the ECN bits of the type of service are
/// TCP's own.
fn told_of(level: i32, name: i32, value: i32) -> i32 {
    match (level, name) {
        (
            SOCKET,
            libc::SO_REUSEADDR | libc::SO_REUSEPORT | libc::SO_KEEPALIVE | libc::SO_OOBINLINE,
        )
        | (TCP, libc::TCP_NODELAY | libc::TCP_CORK)
        | (IPV6, libc::IPV6_V6ONLY) => i32::from(value != 0),
        (IP, libc::IP_TOS) => value & 0xfc,
        (IPV6, libc::IPV6_TCLASS) => value.max(0) & 0xfc,
        _ => value,
    }
}

pub(super) fn int(bytes: &[u8]) -> Result<i32, Errno> {
    match *bytes {
        [a, b, c, d, ..] => Ok(i32::from_ne_bytes([a, b, c, d])),
        [a] => Ok(i32::from(a)),
        _ => Err(Errno::INVAL),
    }
}

/// The int value of an option. A rate may have eight bytes; one beyond 32 bits means no limit.
fn option_int(level: i32, name: i32, bytes: &[u8]) -> Result<i32, Errno> {
    match (level, name, bytes) {
        (SOCKET, libc::SO_MAX_PACING_RATE, &[a, b, c, d, e, f, g, h, ..]) => {
            let rate = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
            Ok(u32::try_from(rate).unwrap_or(u32::MAX).cast_signed())
        }
        _ => int(bytes),
    }
}

/// An int in the engine's format: its 32 bits, so that a negative value is distinct from none.
fn engine_value(value: i32) -> u64 {
    u64::from(value.cast_unsigned())
}

/// Writes a value into the output; returns its length.
pub(super) fn put(out: &mut [u8], value: &[u8]) -> usize {
    for (place, byte) in out.iter_mut().zip(value) {
        *place = *byte;
    }
    value.len().min(out.len())
}

/// Nanoseconds of a `struct timeval`.
fn timeval(bytes: &[u8]) -> Result<u64, Errno> {
    let words: Vec<i64> =
        bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, i64::from_ne_bytes)).collect();
    let &[seconds, micros, ..] = words.as_slice() else { return Err(Errno::INVAL) };
    if !(0..1_000_000).contains(&micros) {
        return Err(Errno::DOM);
    }
    let Ok(seconds) = u64::try_from(seconds) else { return Ok(AT_ONCE.subsec_nanos().into()) };
    Ok(seconds.saturating_mul(1_000_000_000).saturating_add(micros.unsigned_abs() * 1000))
}

/// A time as a `struct timeval`.
pub(super) fn timeval_of(time: Duration) -> [u8; 16] {
    let mut value = [0; 16];
    put(&mut value, &time.as_secs().to_ne_bytes());
    let micros = u64::from(time.subsec_micros());
    put(value.get_mut(8..).unwrap_or_default(), &micros.to_ne_bytes());
    value
}

/// The remembered value of SO_LINGER: seconds if it is on, and their bitwise complement if it is
/// off. As in the kernel, switching it off keeps the seconds as they were `before`. A negative
/// value means no limit.
fn linger_of(before: Option<i32>, bytes: &[u8]) -> Result<i32, Errno> {
    let (on, seconds) = (int(bytes)?, int(bytes.get(4..).unwrap_or_default())?);
    Ok(match (on, seconds) {
        (0, _) => !linger_told(before)[1],
        (_, ..0) => i32::MAX,
        _ => seconds,
    })
}

/// `struct linger` of a remembered value.
pub(super) fn linger_told(remembered: Option<i32>) -> [i32; 2] {
    let value = remembered.unwrap_or(-1);
    [i32::from(value >= 0), value.max(!value)]
}

/// The timeout of an option name.
fn timeout_of(socket: &Socket, level: i32, name: i32) -> Option<&AtomicU64> {
    match (level, name) {
        (SOCKET, libc::SO_RCVTIMEO | RCVTIMEO_NEW) => Some(&socket.receive_timeout_ns),
        (SOCKET, libc::SO_SNDTIMEO | SNDTIMEO_NEW) => Some(&socket.send_timeout_ns),
        _ => None,
    }
}

/// TCP_FASTOPEN_KEY's value: a key, or two.
fn fast_open_keys(bytes: &[u8]) -> Option<(u128, Option<u128>)> {
    let (keys, []) = bytes.as_chunks::<16>() else { return None };
    match *keys {
        [primary] => Some((u128::from_le_bytes(primary), None)),
        [primary, backup] => {
            Some((u128::from_le_bytes(primary), Some(u128::from_le_bytes(backup))))
        }
        _ => None,
    }
}

impl Socket {
    /// TCP_FASTOPEN_CONNECT.
    pub(super) fn opens_fast(&self) -> bool {
        self.remembered(TCP, libc::TCP_FASTOPEN_CONNECT).is_some_and(|on| on != 0)
    }

    pub(super) fn remember_option(&self, level: i32, name: i32, value: i32) {
        let mut options = held(self.options.lock());
        options.retain(|&(l, n, _)| (l, n) != (level, name));
        options.push((level, name, value));
    }

    pub(super) fn remembered(&self, level: i32, name: i32) -> Option<i32> {
        let options = held(self.options.lock());
        options.iter().find(|&&(l, n, _)| (l, n) == (level, name)).map(|&(_, _, value)| value)
    }
}

impl Sockets {
    /// setsockopt(2).
    pub fn set_option(
        &'static self,
        fd: RawFd,
        level: i32,
        name: i32,
        bytes: &[u8],
    ) -> Verdict<()> {
        let socket = match self.called(fd) {
            Ok(Some(socket)) => socket,
            Ok(None) => return Verdict::Kernel,
            Err(error) => return Verdict::Done(Err(error)),
        };
        if let Some(time) = timeout_of(&socket, level, name) {
            match timeval(bytes) {
                Ok(ns) => time.store(ns, Ordering::Relaxed),
                Err(error) => return Verdict::Done(Err(error)),
            }
            return if socket.has_kernel_side() { Verdict::Kernel } else { Verdict::Done(Ok(())) };
        }
        if !socket.stream
            && let Some(verdict) =
                self.set_group_option(&socket, fd, SocketOption { level, name }, bytes)
        {
            return verdict;
        }
        if !socket.stream && (level, name) == (libc::IPPROTO_UDP, libc::UDP_CORK) {
            self.set_cork(&socket, fd, bytes);
            return Verdict::Kernel;
        }
        if buffer_of(level, name).is_some() {
            let outcome = match socket.connection() {
                Some(_) => self.keeper(&socket),
                None => Ok(fd),
            };
            let set = |keeper| self.set_room(&socket, keeper, name, bytes);
            return Verdict::Done(outcome.and_then(set));
        }
        match socket.connection() {
            None if keeps_out(level, name, bytes) => {
                let outcome = self.kernel.set_raw_option(fd, level, name, bytes);
                if outcome.is_ok() {
                    self.leave_to_kernel(&socket, fd, reason_of_option(level, name));
                }
                Verdict::Done(outcome)
            }
            None => {
                let is_kernels = match is_key(level, name).then(|| parse(socket.v6, name, bytes)) {
                    Some(Ok(Asked::Key(key))) => {
                        self.remember_key(&socket, key);
                        false
                    }
                    Some(Ok(Asked::OfInterface)) => true,
                    // The kernel refuses it, too.
                    Some(Err(_)) => false,
                    None => {
                        self.set_before(&socket, level, name, bytes);
                        if chooses_among_sockets(level, name) {
                            self.name_option(level, name, "has no effect on the engine");
                        }
                        is_for_kernel(level, name) && bytes.iter().any(|byte| *byte != 0)
                    }
                };
                if is_kernels {
                    if signs_otherwise(level, name) || is_key(level, name) {
                        // Peers without the key must not connect through the engine.
                        self.leave_engine(&socket);
                    }
                    self.leave_for_its_way(&socket, reason_of_option(level, name));
                }
                Verdict::Kernel
            }
            Some(connection) => {
                let option = SocketOption { level, name };
                Verdict::Done(self.set_on_connection(&socket, connection, option, bytes))
            }
        }
    }

    /// An option of a socket with a kernel side: remembered, and applied at once to the engine's
    /// side of a UDP socket.
    fn set_before(&self, socket: &Socket, level: i32, name: i32, bytes: &[u8]) {
        if (level, name) == (SOCKET, libc::SO_LINGER) {
            if let Ok(seconds) = linger_of(socket.remembered(level, name), bytes) {
                socket.remember_option(level, name, seconds);
            }
            return;
        }
        if (level, name) == (TCP, TCP_FASTOPEN_KEY) {
            if let Some(keys) = fast_open_keys(bytes) {
                *held(socket.fast_open_keys.lock()) = Some(keys);
                let listening = held(socket.listening.read());
                if let Some((endpoint, _)) = listening.as_ref().and_then(|one| one.engine.as_ref())
                    && endpoint.set_fast_open_keys(keys.0, keys.1).is_err()
                {
                    self.name_option(level, name, "has no effect on the engine");
                }
            }
            return;
        }
        if (level, name) == (TCP, libc::TCP_CONGESTION) {
            if let Some(code) = congestion(bytes) {
                socket.remember_option(level, name, code);
            }
            return;
        }
        if is_about_time(level, name) || socket.stream && is_own(level, name) {
            // The kernel refuses the same values.
            if let Ok(value) = socket.own_value(level, name, bytes) {
                let face = held(socket.datagram.read());
                let endpoint = face.as_ref().map(|face| &*face.endpoint);
                if socket.follow_own(endpoint, (level, name, value)).is_err() {
                    self.name_option(level, name, "has no effect on the engine");
                }
                socket.remember_option(level, name, value);
            }
            return;
        }
        let Ok(value) = option_int(level, name, bytes) else { return };
        if (level, name) == (IPV6, libc::IPV6_V6ONLY) && socket.bound.load(Ordering::Relaxed) {
            // It is too late, and the kernel refuses it.
            return;
        }
        if !socket.stream {
            self.set_mark(socket, level, name, bytes);
        }
        if engines(level, name).is_some_and(|option| !option.admits(engine_value(value))) {
            // The kernel refuses it and changes nothing.
            return;
        }
        socket.remember_option(level, name, told_of(level, name, value));
        let listener =
            held(socket.listening.read()).as_ref().and_then(|listening| listening.engine.clone());
        if let (Some(option), Some((endpoint, _))) = (engines(level, name), listener)
            && endpoint.set_option(option, engine_value(value)).is_err()
        {
            self.name_option(level, name, "has no effect on the engine");
        }
    }

    /// An option of a UDP socket that applies to its datagrams, or that the engine implements.
    fn set_mark(&self, socket: &Socket, level: i32, name: i32, bytes: &[u8]) {
        let told = socket.marks.set(level, name, bytes);
        let datagram = held(socket.datagram.read());
        let (Some((option, value)), Some(datagram)) = (told, datagram.as_ref()) else { return };
        if matches!(option, OptionName::ReceiveErrors | OptionName::ReceiveErrors6) {
            datagram.endpoint.expect_errors();
        }
        if datagram.endpoint.set_option(option, value).is_err() {
            self.name_option(level, name, "has no effect on the engine");
        }
    }

    /// Leaves a socket to the kernel, even if the engine already serves it: unread data there is
    /// lost.
    fn leave_to_kernel(&self, socket: &Arc<Socket>, fd: RawFd, reason: Reason) {
        let Some(era) = self.era() else { return };
        self.recount(era, socket, Some(reason));
        self.notice_own_way();
        if socket.is_listening() {
            self.stop_listening(era, socket, fd);
        }
        self.close_face(socket);
        self.give_to_kernel(era, socket);
        era.link.forget(socket);
        socket.notify(self.kernel);
    }

    fn notice_own_way(&self) {
        self.notice(Notice::OwnWay, || {
            "a socket with a mark, a device, keys or a filter (SO_MARK, SO_BINDTODEVICE, \
             TCP_AO_ADD_KEY, SO_ATTACH_FILTER, IP_MINTTL) goes through the kernel, because only \
             the kernel implements them"
                .into()
        });
    }

    /// Leaves a socket to the kernel that must use a kernel route. A socket already served by the
    /// engine stays, because its option cannot be applied there.
    fn leave_for_its_way(&self, socket: &Arc<Socket>, reason: Reason) {
        let Some(era) = self.era().filter(|_| !socket.has_engine_side()) else { return };
        self.recount(era, socket, Some(reason));
        self.notice_own_way();
        self.give_to_kernel(era, socket);
        era.link.forget(socket);
    }

    pub(super) fn name_option(&self, level: i32, name: i32, what: &str) {
        if self.notices.first_option(level, name) {
            let option = match option_name(level, name) {
                Some(option) => option.to_owned(),
                None => format!("{name} of level {level}"),
            };
            self.kernel
                .log(&format!("outboard: socket option {option} {what} on accelerated sockets"));
        }
    }

    fn set_on_connection(
        &self,
        socket: &Socket,
        connection: &Connection,
        SocketOption { level, name }: SocketOption,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        if bytes.len() < 4 && is_four_bytes(level, name) {
            return Err(Errno::INVAL);
        }
        match (level, name) {
            (SOCKET, libc::SO_LINGER) => {
                let seconds = linger_of(socket.remembered(level, name), bytes)?;
                let value = u64::try_from(seconds).map_or(0, |seconds| seconds + 1);
                connection.endpoint.set_option(OptionName::Linger, value)?;
                socket.remember_option(level, name, seconds);
                return Ok(());
            }
            (SOCKET, libc::SO_OOBINLINE) => {
                let on = i32::from(int(bytes)? != 0);
                connection.endpoint.set_urgent_inline(on != 0)?;
                socket.remember_option(level, name, on);
                return Ok(());
            }
            (TCP, libc::TCP_CONGESTION) => {
                let code = congestion(bytes).ok_or(Errno::NOENT)?;
                connection
                    .endpoint
                    .set_option(OptionName::Congestion, u64::from(code.unsigned_abs()))?;
                socket.remember_option(level, name, code);
                return Ok(());
            }
            // Only before there is a connection.
            (
                TCP,
                libc::TCP_FASTOPEN
                | libc::TCP_FASTOPEN_CONNECT
                | TCP_FASTOPEN_KEY
                | TCP_FASTOPEN_NO_COOKIE,
            ) => return Err(Errno::INVAL),
            _ if is_key(level, name) => {
                return self.set_key_of(socket, connection, name, bytes);
            }
            _ if signs_otherwise(level, name) => {
                self.keep_option(socket, level, name, bytes)?;
                self.name_option(level, name, "is refused (ENOPROTOOPT)");
                return Err(Errno::NOPROTOOPT);
            }
            _ if keeps_out(level, name, bytes) => {
                self.try_keeping_out(socket, level, name, bytes)?;
                self.name_option(level, name, "is refused (ENOPROTOOPT)");
                return Err(Errno::NOPROTOOPT);
            }
            // As for a process without the privilege.
            (TCP, TCP_REPAIR | TCP_QUEUE_SEQ) => {
                self.name_option(level, name, "is refused (EPERM)");
                return Err(Errno::PERM);
            }
            _ if is_own(level, name) => {
                let mut value = socket.own_value(level, name, bytes)?;
                if name == libc::SO_RCVLOWAT
                    && let Ok(Some(rounded)) = self.keep_option(socket, level, name, bytes)
                {
                    value = value.min(rounded);
                }
                socket.follow_own(Some(&connection.endpoint), (level, name, value))?;
                socket.remember_option(level, name, value);
                return Ok(());
            }
            _ => (),
        }
        if let Some(option) = engines(level, name).filter(|one| *one != OptionName::PathMtu) {
            let value = option_int(level, name, bytes)?;
            connection.endpoint.set_option(option, engine_value(value))?;
            socket.remember_option(level, name, told_of(level, name, value));
            return Ok(());
        }
        if is_moot(level, name) {
            socket.remember_option(level, name, told_of(level, name, int(bytes)?));
            return Ok(());
        }
        if let Some(value) = self.keep_option(socket, level, name, bytes)? {
            socket.remember_option(level, name, value);
        }
        if !is_silent(level, name) {
            self.name_option(level, name, "is accepted without effect");
        }
        Ok(())
    }

    /// getsockopt(2); returns the length.
    pub fn option(
        &'static self,
        fd: RawFd,
        level: i32,
        name: i32,
        out: &mut [u8],
    ) -> Verdict<usize> {
        let socket = match self.called(fd) {
            Ok(Some(socket)) => socket,
            Ok(None) => return Verdict::Kernel,
            Err(error) => return Verdict::Done(Err(error)),
        };
        let Some(connection) = socket.connection() else {
            if (level, name) == (SOCKET, libc::SO_ERROR) {
                if socket.was_reset.swap(false, Ordering::Relaxed) {
                    let error = Errno::CONNRESET.raw_os_error();
                    return Verdict::Done(Ok(put(out, &error.to_ne_bytes())));
                }
                let of_face = || held(socket.datagram.read()).as_ref()?.endpoint.take_error();
                if let Some(error) = socket.take_late_error().or_else(of_face) {
                    return Verdict::Done(Ok(put(out, &error.raw_os_error().to_ne_bytes())));
                }
            }
            if engines(level, name) == Some(OptionName::PathMtu)
                && (socket.v6 || level == IP)
                && let Some(face) = socket.face().filter(|face| face.peer.is_some())
                && let Ok(mtu) = face.endpoint.option(OptionName::PathMtu)
            {
                let mtu = i32::try_from(mtu).unwrap_or(i32::MAX);
                return Verdict::Done(Ok(put(out, &mtu.to_ne_bytes())));
            }
            if let Some(interface) = self.group_interface(&socket, level, name) {
                return Verdict::Done(Ok(put(out, &interface)));
            }
            return Verdict::Kernel;
        };
        let option = SocketOption { level, name };
        Verdict::Done(self.option_of_connection(&socket, connection, option, out))
    }

    fn option_of_connection(
        &self,
        socket: &Socket,
        connection: &Connection,
        SocketOption { level, name }: SocketOption,
        out: &mut [u8],
    ) -> Result<usize, Errno> {
        if let Some(time) = timeout_of(socket, level, name) {
            return Ok(put(out, &timeval_of(timeout(time).unwrap_or_default())));
        }
        let value = match (level, name) {
            (SOCKET, libc::SO_ERROR) => {
                connection.endpoint.take_error().map_or(0, Errno::raw_os_error)
            }
            (SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM,
            (SOCKET, libc::SO_DOMAIN) => {
                if socket.v6 {
                    libc::AF_INET6
                } else {
                    libc::AF_INET
                }
            }
            (SOCKET, libc::SO_PROTOCOL) => libc::IPPROTO_TCP,
            (SOCKET, libc::SO_ACCEPTCONN) => 0,
            (SOCKET, libc::SO_OOBINLINE) => socket.remembered(level, name).unwrap_or(0),
            (SOCKET, libc::SO_SNDBUF | libc::SO_RCVBUF) => {
                Self::told_room(socket, connection, name)?
            }
            (SOCKET, libc::SO_LINGER) => {
                let words = linger_told(socket.remembered(level, name));
                return Ok(put(out, words.map(i32::to_ne_bytes).as_flattened()));
            }
            (TCP, libc::TCP_FASTOPEN | libc::TCP_FASTOPEN_CONNECT | TCP_FASTOPEN_NO_COOKIE) => {
                socket.remembered(level, name).unwrap_or(0)
            }
            (SOCKET, libc::SO_TIMESTAMPING | SO_TIMESTAMPING_NEW) => {
                // With the number of a clock, which is always 0.
                let flags = u64::from(socket.streams.timestamping());
                return Ok(put(out, &flags.to_le_bytes()));
            }
            _ if is_about_time(level, name) => i32::from(socket.streams.tells_time(name)),
            _ if is_own(level, name) => {
                socket.remembered(level, name).unwrap_or_else(|| usual(level, name))
            }
            (TCP, TCP_ZEROCOPY_RECEIVE) => return map_nothing(&connection.endpoint, out),
            (TCP, libc::TCP_INFO) => return self.tcp_info((socket, connection), out),
            (TCP, libc::TCP_CC_INFO) => return Self::congestion_info(connection, out),
            (SOCKET, libc::SO_MEMINFO) => return Ok(put(out, &memory_info(socket, connection)?)),
            (TCP, libc::TCP_MAXSEG) => i32::from(connection.endpoint.info()?.mss_bytes),
            (TCP, libc::TCP_CONGESTION) => {
                let code = connection.endpoint.option(OptionName::Congestion)?;
                let mut value = [0; 16];
                put(&mut value, algorithm(code).ok_or(Errno::PROTO)?);
                return Ok(put(out, &value));
            }
            (SOCKET, libc::SO_MAX_PACING_RATE) if out.len() >= 8 => {
                let rate = connection.endpoint.option(OptionName::MaxPacingRate)?;
                let rate = if rate == u64::from(u32::MAX) { u64::MAX } else { rate };
                return Ok(put(out, &rate.to_ne_bytes()));
            }
            _ => match (socket.remembered(level, name), engines(level, name)) {
                // -1 means the engine's default.
                (Some(value), Some(option))
                    if !is_asked_for(option)
                        && (!matches!(option, OptionName::Ttl | OptionName::HopLimit)
                            || value != -1) =>
                {
                    value
                }
                (_, Some(option)) => {
                    let value = connection.endpoint.option(option)?;
                    u32::try_from(value).map_or(i32::MAX, u32::cast_signed)
                }
                (value, None) if is_moot(level, name) => value.unwrap_or(0),
                (_, None) => return self.kept_option(socket, level, name, out),
            },
        };
        Ok(put(out, &value.to_ne_bytes()))
    }

    /// The settings made before connect, for the SYN to an address.
    pub(super) fn connect_options(&self, socket: &Socket, to: IpAddr) -> ConnectOptions {
        let number = |level, name| {
            socket.remembered(level, name).and_then(|value| u32::try_from(value).ok()).unwrap_or(0)
        };
        let byte = |(level, name)| u8::try_from(number(level, name)).unwrap_or(0);
        let (tos, ttl) = match to {
            IpAddr::V4(_) => ((IP, libc::IP_TOS), (IP, libc::IP_TTL)),
            IpAddr::V6(_) => ((IPV6, libc::IPV6_TCLASS), (IPV6, libc::IPV6_UNICAST_HOPS)),
        };
        ConnectOptions {
            nodelay: number(TCP, libc::TCP_NODELAY) != 0,
            keepalive: number(SOCKET, libc::SO_KEEPALIVE) != 0,
            maxseg: u16::try_from(number(TCP, libc::TCP_MAXSEG)).unwrap_or(0),
            tos: byte(tos),
            ttl: byte(ttl),
            receive_limit: number(SOCKET, libc::SO_RCVBUF) / 2,
            user_timeout_ms: number(TCP, libc::TCP_USER_TIMEOUT),
            congestion: socket
                .remembered(TCP, libc::TCP_CONGESTION)
                .and_then(|code| u8::try_from(code).ok()),
            fast_open: false,
            fast_open_no_cookie: number(TCP, TCP_FASTOPEN_NO_COOKIE) != 0,
            signed: false,
        }
    }

    /// Applies the settings that are not among the [`ConnectOptions`].
    pub(super) fn apply_remembered(&self, socket: &Socket, endpoint: &Endpoint) {
        self.apply_options(socket, endpoint, false);
    }

    fn apply_options(&self, socket: &Socket, endpoint: &Endpoint, is_accepted: bool) {
        let keys = *held(socket.fast_open_keys.lock());
        if let Some((primary, backup)) = keys
            && endpoint.kind() == Kind::Listener
            && endpoint.set_fast_open_keys(primary, backup).is_err()
        {
            self.name_option(TCP, TCP_FASTOPEN_KEY, "could not be applied");
        }
        let options = held(socket.options.lock()).clone();
        for (level, name, value) in options {
            // Already part of the connect, or only for listeners.
            let is_opening = matches!(name, libc::TCP_FASTOPEN | TCP_FASTOPEN_NO_COOKIE);
            if level == TCP && is_opening && endpoint.kind() != Kind::Listener {
                continue;
            }
            if is_own(level, name) {
                if socket.follow_own(Some(endpoint), (level, name, value)).is_err() {
                    self.name_option(level, name, "could not be applied");
                }
                continue;
            }
            if let Some(buffer) = buffer_of(level, name) {
                if Self::apply_room(endpoint, buffer, value).is_err() {
                    self.name_option(level, name, "could not be applied");
                }
                continue;
            }
            if (level, name) == (SOCKET, libc::SO_OOBINLINE) {
                // It fails only with the connection, whose end will be seen.
                let _ = endpoint.set_urgent_inline(value != 0);
                continue;
            }
            let plain = engine_value(value);
            let (option, value) = match (level, name) {
                (SOCKET, libc::SO_LINGER) if value >= 0 => (OptionName::Linger, plain + 1),
                (TCP, libc::TCP_CONGESTION) => (OptionName::Congestion, plain),
                _ => match engines(level, name) {
                    Some(option) => (option, plain),
                    None => continue,
                },
            };
            // The engine created the connection with its listener's options. TCP_QUICKACK concerns
            // only the current state of a connection.
            if is_accepted && option != OptionName::Quickack {
                continue;
            }
            if endpoint.set_option(option, value).is_err() {
                self.name_option(level, name, "could not be applied");
            }
        }
    }

    /// Applies a listener's options to an accepted connection, as in the kernel.
    pub(super) fn inherit_options(
        &self,
        listener: &Socket,
        socket: &Arc<Socket>,
        endpoint: &Endpoint,
    ) {
        for (from, to) in [
            (&listener.receive_timeout_ns, &socket.receive_timeout_ns),
            (&listener.send_timeout_ns, &socket.send_timeout_ns),
        ] {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let options = held(listener.options.lock()).clone();
        if !options.is_empty() {
            *held(socket.options.lock()) = options;
            self.apply_options(socket, endpoint, true);
        }
    }

    /// F_GETFL.
    pub fn status_flags(&self, fd: RawFd) -> Verdict<i32> {
        let socket = match self.called(fd) {
            Ok(Some(socket)) => socket,
            Ok(None) => return Verdict::Kernel,
            Err(error) => return Verdict::Done(Err(error)),
        };
        let flag = if socket.is_nonblocking() { libc::O_NONBLOCK } else { 0 };
        if socket.connection().is_some() {
            return Verdict::Done(Ok(libc::O_RDWR | flag | Self::asynchronous_flag(&socket)));
        }
        if !socket.forced_nonblocking() {
            return Verdict::Kernel;
        }
        Verdict::Done(self.kernel.status_flags(fd).map(|flags| flags & !libc::O_NONBLOCK | flag))
    }

    /// F_SETFL.
    pub fn set_status_flags(&'static self, fd: RawFd, flags: i32) -> Verdict<()> {
        if let Verdict::Done(Err(error)) = self.set_asynchronous(fd, flags & libc::O_ASYNC != 0) {
            return Verdict::Done(Err(error));
        }
        let verdict = self.set_nonblocking(fd, flags & libc::O_NONBLOCK != 0);
        if matches!(verdict, Verdict::Done(Ok(())))
            && self.socket(fd).is_some_and(|socket| socket.is_listening())
        {
            self.set_kernel_flags(fd, flags | libc::O_NONBLOCK);
        }
        verdict
    }

    /// O_NONBLOCK, by F_SETFL or FIONBIO.
    pub fn set_nonblocking(&self, fd: RawFd, on: bool) -> Verdict<()> {
        let socket = match self.called(fd) {
            Ok(Some(socket)) => socket,
            Ok(None) => return Verdict::Kernel,
            Err(error) => return Verdict::Done(Err(error)),
        };
        socket.set_nonblocking(on);
        if socket.connection().is_some() {
            return Verdict::Done(Ok(()));
        }
        if socket.is_listening() {
            // The kernel's side of a dual listener always stays non-blocking.
            socket.force_nonblocking(true);
            self.set_kernel_nonblocking(fd);
            return Verdict::Done(Ok(()));
        }
        Verdict::Kernel
    }
}

/// The engine's number of a congestion control.
fn congestion(name: &[u8]) -> Option<i32> {
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    let place = ALGORITHMS.iter().position(|known| name.get(..end) == Some(known))?;
    i32::try_from(place).ok()
}

/// The name of a congestion control by the engine's number.
pub(super) fn algorithm(code: u64) -> Option<&'static [u8]> {
    ALGORITHMS.get(usize::try_from(code).ok()?).copied()
}

/// Names of congestion controls in the order of the engine's numbers.
const ALGORITHMS: [&[u8]; 4] = [b"cubic", b"reno", b"dctcp", b"bbr"];
