//! Options of TCP sockets implemented in this layer: those that the kernel handles itself when it
//! reads or writes, and those that apply to the bytes.

use super::Errno;
use super::options::{int, put};
use super::socket::Socket;
use super::streams::{Asked, timestamping};
use crate::{Endpoint, Kind, OptionName, Readiness};

const SOCKET: i32 = libc::SOL_SOCKET;
const TCP: i32 = libc::IPPROTO_TCP;
/// linux/tcp.h; not in the libc crate.
pub(super) const TCP_INQ: i32 = 36;
/// Only for getsockopt(2): maps bytes instead of reading them. The request is in the output buffer.
pub const TCP_ZEROCOPY_RECEIVE: i32 = 35;

/// Half of the maximum of tcp_rmem, at which the kernel caps SO_RCVLOWAT, bytes.
const LOW_WATER_MAX: i32 = 16 << 20;

/// asm-generic/socket.h: the names of 2019.
pub(super) const SO_TIMESTAMP_NEW: i32 = 63;
pub(super) const SO_TIMESTAMPNS_NEW: i32 = 64;
pub(super) const SO_TIMESTAMPING_NEW: i32 = 65;

/// Whether an option is among those.
pub(super) fn is_own(level: i32, name: i32) -> bool {
    is_about_time(level, name)
        || matches!((level, name), (SOCKET, libc::SO_RCVLOWAT | libc::SO_ZEROCOPY) | (TCP, TCP_INQ))
}

/// Whether an option requests timestamps, which UDP sockets have, too.
pub(super) fn is_about_time(level: i32, name: i32) -> bool {
    matches!(
        (level, name),
        (
            SOCKET,
            libc::SO_TIMESTAMP
                | libc::SO_TIMESTAMPNS
                | libc::SO_TIMESTAMPING
                | SO_TIMESTAMP_NEW
                | SO_TIMESTAMPNS_NEW
                | SO_TIMESTAMPING_NEW
        )
    )
}

/// Its default value.
pub(super) fn usual(level: i32, name: i32) -> i32 {
    i32::from((level, name) == (SOCKET, libc::SO_RCVLOWAT))
}

/// TCP_ZEROCOPY_RECEIVE (`struct tcp_zerocopy_receive`): nothing is mapped, and all data must be
/// read, as the kernel reports for data that does not fill a page.
pub(super) fn map_nothing(endpoint: &Endpoint, question: &mut [u8]) -> Result<usize, Errno> {
    const PAGE: u64 = 4096;
    let address = question.first_chunk().ok_or(Errno::INVAL)?;
    if u64::from_ne_bytes(*address) & (PAGE - 1) != 0 {
        return Err(Errno::INVAL);
    }
    let unread = u32::try_from(endpoint.readable_bytes()).unwrap_or(u32::MAX);
    if unread == 0 && endpoint.readiness().contains(Readiness::RDHUP) {
        return Err(Errno::IO);
    }
    // length, recv_skip_hint, inq and err; copybuf_len; msg_flags.
    for (at, value) in [(8, 0), (12, unread), (16, unread), (20, 0), (32, 0), (56, 0)] {
        put(question.get_mut(at..).unwrap_or_default(), &u32::to_ne_bytes(value));
    }
    Ok(64)
}

impl Socket {
    /// The stored value for a value set, as the kernel rounds or refuses it.
    pub(super) fn own_value(&self, level: i32, name: i32, bytes: &[u8]) -> Result<i32, Errno> {
        if bytes.len() < 4 {
            return Err(Errno::INVAL);
        }
        let value = int(bytes)?;
        match (level, name) {
            (SOCKET, libc::SO_RCVLOWAT) => {
                let most = match self.remembered(SOCKET, libc::SO_RCVBUF) {
                    Some(room) => room / 2,
                    None => LOW_WATER_MAX,
                };
                Ok(if value < 0 { most } else { value.clamp(1, most) })
            }
            (SOCKET, libc::SO_TIMESTAMPING | SO_TIMESTAMPING_NEW) => {
                self.admits_timestamping(value.cast_unsigned()).then_some(value).ok_or(Errno::INVAL)
            }
            _ if is_about_time(level, name) => Ok(i32::from(value != 0)),
            _ => match value {
                0 | 1 => Ok(value),
                _ => Err(Errno::INVAL),
            },
        }
    }

    /// As in sock_set_timestamping.
    fn admits_timestamping(&self, flags: u32) -> bool {
        use timestamping::{KNOWN, OPT_ID, OPT_ID_TCP, OPT_STATS, OPT_TSONLY};
        let has_id = flags & OPT_ID != 0;
        let counts_anew = has_id && self.streams.timestamping() & OPT_ID == 0;
        flags & !KNOWN == 0
            && (flags & OPT_ID_TCP == 0 || has_id)
            && (flags & OPT_STATS == 0 || flags & OPT_TSONLY != 0)
            && !(self.stream && counts_anew && self.connection().is_none())
    }

    /// Applies an option of the layer to this socket, which may be or become a connection.
    pub(super) fn follow_own(
        &self,
        endpoint: Option<&Endpoint>,
        (level, name, value): (i32, i32, i32),
    ) -> Result<(), Errno> {
        match (level, name) {
            (SOCKET, libc::SO_RCVLOWAT) => match endpoint {
                Some(endpoint) if endpoint.kind() == Kind::Stream => {
                    endpoint.set_low_water(u64::from(value.unsigned_abs()))
                }
                _ => Ok(()),
            },
            (SOCKET, libc::SO_ZEROCOPY) => {
                self.streams.ask(Asked::ZEROCOPY, value != 0);
                Ok(())
            }
            (TCP, TCP_INQ) => {
                self.streams.ask(Asked::QUEUE_HINT, value != 0);
                Ok(())
            }
            _ if is_about_time(level, name) => {
                let on = value != 0;
                match name {
                    libc::SO_TIMESTAMP => self.streams.ask_time(Asked::empty(), on),
                    libc::SO_TIMESTAMPNS => self.streams.ask_time(Asked::NANOSECONDS, on),
                    SO_TIMESTAMP_NEW => self.streams.ask_time(Asked::NEW_NAMES, on),
                    SO_TIMESTAMPNS_NEW => {
                        self.streams.ask_time(Asked::NANOSECONDS | Asked::NEW_NAMES, on);
                    }
                    _ => {
                        let is_new = name == SO_TIMESTAMPING_NEW;
                        self.streams.set_timestamping(value.cast_unsigned(), endpoint, is_new);
                    }
                }
                match endpoint.filter(|endpoint| endpoint.kind() != Kind::Listener) {
                    Some(endpoint) => endpoint.set_option(
                        OptionName::ReceiveStamps,
                        u64::from(self.streams.wants_arrivals(endpoint.kind())),
                    ),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}
