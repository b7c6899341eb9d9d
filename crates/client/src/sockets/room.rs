//! SO_RCVBUF and SO_SNDBUF, and their FORCE variants. A kernel socket takes every value first: it
//! knows the limits, and its resulting value is used here, too.

use std::os::fd::RawFd;

use super::options::put;
use super::socket::{Connection, Socket};
use super::{Errno, Sockets};
use crate::{Endpoint, Kind, OptionName};

const SOCKET: i32 = libc::SOL_SOCKET;

/// The option that returns the size of the buffer that an option sets.
pub(super) fn buffer_of(level: i32, name: i32) -> Option<i32> {
    match (level, name) {
        (SOCKET, libc::SO_RCVBUF | libc::SO_RCVBUFFORCE) => Some(libc::SO_RCVBUF),
        (SOCKET, libc::SO_SNDBUF | libc::SO_SNDBUFFORCE) => Some(libc::SO_SNDBUF),
        _ => None,
    }
}

impl Sockets {
    /// Sets the size of a buffer. `keeper` is the kernel socket that takes it.
    pub(super) fn set_room(
        &'static self,
        socket: &Socket,
        keeper: RawFd,
        name: i32,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        let Some(buffer) = buffer_of(SOCKET, name) else { return Err(Errno::NOPROTOOPT) };
        self.kernel.set_raw_option(keeper, SOCKET, name, bytes)?;
        let room = self.kernel.option(keeper, SOCKET, buffer)?;
        socket.remember_option(SOCKET, buffer, room);
        if let Some(connection) = socket.connection() {
            Self::apply_room(&connection.endpoint, buffer, room)?;
            // A larger one may have room for a waiting writer.
            socket.notify(self.kernel);
            return Ok(());
        }
        let Some((endpoint, attachment)) = socket.engine_side() else { return Ok(()) };
        match Self::apply_room(&endpoint, buffer, room) {
            // The next engine gets it.
            Err(_) if !attachment.session.is_alive() => Ok(()),
            outcome => outcome,
        }
    }

    /// Passes a buffer size to the engine's side of a socket, as returned by the kernel: twice the
    /// program's value, to account for overhead.
    pub(super) fn apply_room(endpoint: &Endpoint, buffer: i32, room: i32) -> Result<(), Errno> {
        let room = u64::from(room.unsigned_abs());
        match (endpoint.kind(), buffer) {
            (Kind::Datagram, libc::SO_RCVBUF) => {
                endpoint.set_option(OptionName::ReceiveLimit, room)
            }
            (Kind::Stream | Kind::Listener, libc::SO_RCVBUF) => {
                endpoint.set_option(OptionName::ReceiveLimit, room / 2)
            }
            (Kind::Stream, _) => {
                endpoint.set_send_limit(room);
                Ok(())
            }
            // Connections of a listener have their own, and the send buffer of datagrams is not
            // limited here.
            (Kind::Datagram | Kind::Listener | Kind::Raw | Kind::Messages, _) => Ok(()),
        }
    }

    /// Applies the program's buffer size to a new endpoint of a UDP socket.
    pub(super) fn restore_room(socket: &Socket, face: &Endpoint) -> Result<(), Errno> {
        match socket.remembered(SOCKET, libc::SO_RCVBUF) {
            Some(room) => Self::apply_room(face, libc::SO_RCVBUF, room),
            None => Ok(()),
        }
    }

    /// Sets the buffer size of a kernel socket to that of another.
    pub(super) fn restore_buffer(&self, fd: RawFd, buffer: i32, room: i32) {
        let forced = match buffer {
            libc::SO_RCVBUF => libc::SO_RCVBUFFORCE,
            _ => libc::SO_SNDBUFFORCE,
        };
        let half = (room / 2).to_ne_bytes();
        if self.kernel.set_raw_option(fd, SOCKET, buffer, &half).is_ok()
            && self.kernel.option(fd, SOCKET, buffer) != Ok(room)
        {
            // It may no longer be permitted to be as large.
            let _ = self.kernel.set_raw_option(fd, SOCKET, forced, &half);
        }
    }

    /// The value that SO_RCVBUF or SO_SNDBUF returns for a connection.
    pub(super) fn told_room(
        socket: &Socket,
        connection: &Connection,
        buffer: i32,
    ) -> Result<i32, Errno> {
        /// The value returned for a send buffer with automatic tuning.
        const USUAL_TO_SEND: i32 = 1 << 20;
        match (socket.remembered(SOCKET, buffer), buffer) {
            (Some(room), _) => Ok(room),
            (None, libc::SO_RCVBUF) => {
                let half = connection.endpoint.option(OptionName::ReceiveLimit)?;
                Ok(i32::try_from(half.saturating_mul(2)).unwrap_or(i32::MAX))
            }
            (None, _) => Ok(USUAL_TO_SEND),
        }
    }
}

/// SO_MEMINFO: nine words as in linux/sock_diag.h. Values without a counterpart in the engine are
/// zero.
pub(super) fn memory_info(socket: &Socket, connection: &Connection) -> Result<[u8; 36], Errno> {
    let mut value = [0; 36];
    let room = |buffer| Sockets::told_room(socket, connection, buffer);
    let words = [
        // SK_MEMINFO_RMEM_ALLOC, _RCVBUF, _SNDBUF, _WMEM_QUEUED.
        (0, connection.endpoint.readable_bytes()),
        (4, u64::from(room(libc::SO_RCVBUF)?.unsigned_abs())),
        (12, u64::from(room(libc::SO_SNDBUF)?.unsigned_abs())),
        (20, connection.endpoint.unacknowledged_bytes()),
    ];
    for (at, word) in words {
        let word = u32::try_from(word).unwrap_or(u32::MAX);
        put(value.get_mut(at..).unwrap_or_default(), &word.to_ne_bytes());
    }
    Ok(value)
}
