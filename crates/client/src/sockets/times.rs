//! Timestamps of a UDP socket's datagrams: SO_TIMESTAMP and the like, and SIOCGSTAMP.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI64, Ordering};

use super::ancillary::{Arrival, Control, Wishes};
use super::own_options::SO_TIMESTAMP_NEW;
use super::socket::{Socket, held};
use super::streams::{Asked, by_calendar, timestamping};
use super::{Errno, Kernel, Sockets, Verdict};
use crate::{DatagramFlags, ErrorReceived, OptionName, Outgoing, Session};

const SOCKET: i32 = libc::SOL_SOCKET;

/// The last data read came from the kernel's side, which knows its time.
const KERNELS: i64 = -1;
/// The last data read arrived before timestamps were requested.
const UNKNOWN: i64 = 0;

/// Arrival time of the last data read (SIOCGSTAMP), nanoseconds since 1970, or one of these.
#[derive(Debug)]
pub(super) struct Last(AtomicI64);

impl Default for Last {
    fn default() -> Self {
        Self(AtomicI64::new(KERNELS))
    }
}

impl Last {
    fn note(&self, at: i64) {
        if self.0.load(Ordering::Relaxed) != at {
            self.0.store(at, Ordering::Relaxed);
        }
    }

    /// The last data read came from the kernel's side.
    pub fn leave_to_kernel(&self) {
        self.note(KERNELS);
    }
}

/// Adds the arrival time of a datagram, as __sock_recv_timestamp does.
pub(super) fn put_arrival(
    socket: &Socket,
    at_ns: Option<u64>,
    kernel: &dyn Kernel,
    out: &mut Control<'_>,
) {
    let asked = socket.streams.asked();
    if !asked.intersects(Asked::TIME | Asked::TIMES | Asked::LAST) {
        // Only the first without a time is recorded.
        if socket.streams.last.0.load(Ordering::Relaxed) == KERNELS {
            socket.streams.last.note(UNKNOWN);
        }
        return;
    }
    let at = match at_ns {
        // It arrived before timestamps were requested.
        None if asked.contains(Asked::TIME) => Some(kernel.calendar_ns()),
        at_ns => at_ns.map(|at| by_calendar(kernel, at)),
    };
    match at {
        Some(at) if asked.intersects(Asked::TIME | Asked::TIMES) => out.put_arrival_time(asked, at),
        at => socket.streams.last.note(at.map_or(UNKNOWN, u64::cast_signed)),
    }
}

/// The reports to request for a datagram being sent, by the socket's options or by its control
/// messages; whether it has a number in the socket's count.
pub(super) fn ask_about(
    socket: &Socket,
    outgoing: &mut Outgoing,
    wishes: &Wishes,
) -> Result<bool, Errno> {
    use timestamping::{OPT_ID, OPT_TSONLY};
    let flags = socket.streams.timestamping();
    if wishes.number.is_some() && flags & OPT_ID == 0 {
        return Err(Errno::INVAL);
    }
    let stamps = socket.streams.stamps(wishes.stamps);
    outgoing.flags.set(DatagramFlags::TELL_SCHEDULED, stamps & 1 != 0);
    outgoing.flags.set(DatagramFlags::TELL_SENT, stamps & 2 != 0);
    let is_asked =
        outgoing.flags.intersects(DatagramFlags::TELL_SCHEDULED | DatagramFlags::TELL_SENT);
    outgoing.flags.set(DatagramFlags::TELL_WHOLE, is_asked && flags & OPT_TSONLY == 0);
    outgoing.number = wishes.number.unwrap_or(0);
    Ok(is_asked && flags & OPT_ID != 0 && wishes.number.is_none())
}

/// Adds the time of an entry in the error queue.
pub(super) fn put_told(
    socket: &Socket,
    at_ns: Option<u64>,
    kernel: &dyn Kernel,
    out: &mut Control<'_>,
) {
    let mut asked = socket.streams.asked() - Asked::TIMES;
    // There the one flag is enough.
    if socket.streams.timestamping() & timestamping::SOFTWARE != 0 {
        asked |= Asked::TIMES;
    }
    let at = match at_ns {
        None if asked.contains(Asked::TIME) => Some(kernel.calendar_ns()),
        at_ns => at_ns.map(|at| by_calendar(kernel, at)),
    };
    if let Some(at) = at {
        out.put_arrival_time(asked, at);
    }
}

/// Adds the control messages of recvmsg with MSG_ERRQUEUE for a sent datagram. Source and interface
/// are taken from the packet, and added as in the kernel (ipv4_datagram_support_cmsg, which IPv6
/// has without OPT_CMSG).
pub(super) fn put_sent(
    socket: &Socket,
    session: &Session,
    error: &ErrorReceived,
    out: &mut Control<'_>,
) {
    let wants = socket.v6 || socket.streams.timestamping() & timestamping::OPT_CMSG != 0;
    let arrival = quoted(error, session).filter(|_| wants);
    if let Some(arrival) = &arrival {
        out.put_arrival(socket.marks.on(), socket.v6, arrival);
    }
    let offender = arrival.map(|arrival| arrival.own);
    out.put_stamp(socket.v6, error.report.code, error.report.info, offender);
}

/// Parses the headers of a sent packet, from its Ethernet header on.
fn quoted(error: &ErrorReceived, session: &Session) -> Option<Arrival> {
    let (link, rest) = error.payload.split_first_chunk::<14>()?;
    let port_at = |at: usize| {
        rest.get(at + 2..)?.first_chunk().map(|bytes: &[u8; 2]| u16::from_be_bytes(*bytes))
    };
    let ip = |at: usize| -> Option<IpAddr> {
        match link.last_chunk() {
            Some([8, 0]) => rest.get(at..)?.first_chunk().map(|bytes: &[u8; 4]| (*bytes).into()),
            _ => rest.get(at..)?.first_chunk().map(|bytes: &[u8; 16]| (*bytes).into()),
        }
    };
    let (from, to, port, tos, ttl) = match (link.last_chunk()?, rest) {
        ([8, 0], &[version, tos, _, _, _, _, _, _, ttl, ..]) => {
            (ip(12)?, ip(16)?, port_at(usize::from(version & 15) * 4)?, tos, ttl)
        }
        ([0x86, 0xdd], &[first, second, _, _, _, _, _, ttl, ..]) => {
            (ip(8)?, ip(24)?, port_at(40)?, first << 4 | second >> 4, ttl)
        }
        _ => return None,
    };
    let interface = session.kernel_index(error.interface);
    let local = SocketAddr::new(to, port);
    Some(Arrival { local, own: from, tos, ttl, interface, segment_bytes: 0 })
}

impl Sockets {
    /// SIOCGSTAMP and SIOCGSTAMPNS: arrival time of the last data read, nanoseconds since 1970.
    /// From the first call on it is recorded.
    pub fn last_arrival(&self, fd: RawFd) -> Verdict<u64> {
        let socket = match self.called(fd) {
            Ok(Some(socket)) => socket,
            Ok(None) => return Verdict::Kernel,
            Err(error) => return Verdict::Done(Err(error)),
        };
        if socket.stream {
            // Streams have none.
            return match socket.connection() {
                Some(_) => Verdict::Done(Err(Errno::NOENT)),
                None => Verdict::Kernel,
            };
        }
        let marks = &socket.streams;
        if !marks.asked().contains(Asked::LAST) {
            marks.ask(Asked::LAST, true);
            // Setting and clearing this option has a lasting effect.
            let is_new = marks.asked().contains(Asked::NEW_NAMES);
            let name = if is_new { SO_TIMESTAMP_NEW } else { libc::SO_TIMESTAMP };
            let face = held(socket.datagram.read());
            let told =
                [1, 0].into_iter().try_for_each(|on| self.kernel.set_option(fd, SOCKET, name, on));
            let endpoint = face.as_ref().map(|face| &face.endpoint);
            let told = told.and_then(|()| match endpoint {
                Some(endpoint) => endpoint.set_option(OptionName::ReceiveStamps, 1),
                None => Ok(()),
            });
            if told.is_err() {
                self.name_option(SOCKET, name, "cannot be used for SIOCGSTAMP");
            }
        }
        match marks.last.0.load(Ordering::Relaxed) {
            KERNELS => Verdict::Kernel,
            UNKNOWN => {
                let now = self.kernel.calendar_ns();
                marks.last.note(now.cast_signed());
                Verdict::Done(Ok(now))
            }
            at => Verdict::Done(Ok(at.cast_unsigned())),
        }
    }
}
