//! SO_RCVBUF and SO_SNDBUF, and their FORCE variants. A kernel socket takes every value first, which knows
//! how much is allowed, and tells what it has made of it. That is what counts here, too.

use std::os::fd::RawFd;

use super::options::put;
use super::socket::{Connection, Socket};
use super::{Errno, Sockets};
use crate::{Endpoint, Kind, OptionName};

const SOCKET: i32 = libc::SOL_SOCKET;

/// The buffer that an option is about, by the name that tells its size.
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
            // A larger one may have room for a writer that waits.
            socket.notify(self.kernel);
            return Ok(());
        }
        let Some((endpoint, attachment)) = socket.engine_side() else { return Ok(()) };
        match Self::apply_room(&endpoint, buffer, room) {
            // The next engine is told.
            Err(_) if !attachment.session.is_alive() => Ok(()),
            outcome => outcome,
        }
    }

    /// Tells the engine's part of a socket how large a buffer is, as the kernel has told it: twice what the
    /// program said, for what it takes to hold the bytes.
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
            // Connections have one each, and what datagrams take is not counted here.
            (Kind::Datagram | Kind::Listener | Kind::Raw | Kind::Messages, _) => Ok(()),
        }
    }

    /// Tells a UDP socket's new face how much it may hold, where the program has said so.
    pub(super) fn restore_room(socket: &Socket, face: &Endpoint) -> Result<(), Errno> {
        match socket.remembered(SOCKET, libc::SO_RCVBUF) {
            Some(room) => Self::apply_room(face, libc::SO_RCVBUF, room),
            None => Ok(()),
        }
    }

    /// Gives a kernel socket a buffer of the size that another one has told.
    pub(super) fn restore_buffer(&self, fd: RawFd, buffer: i32, room: i32) {
        let forced = match buffer {
            libc::SO_RCVBUF => libc::SO_RCVBUFFORCE,
            _ => libc::SO_SNDBUFFORCE,
        };
        let half = (room / 2).to_ne_bytes();
        if self.kernel.set_raw_option(fd, SOCKET, buffer, &half).is_ok()
            && self.kernel.option(fd, SOCKET, buffer) != Ok(room)
        {
            // It was allowed to be larger then; it may not be any more.
            let _ = self.kernel.set_raw_option(fd, SOCKET, forced, &half);
        }
    }

    /// What SO_RCVBUF or SO_SNDBUF tell of a connection.
    pub(super) fn told_room(
        socket: &Socket,
        connection: &Connection,
        buffer: i32,
    ) -> Result<i32, Errno> {
        /// What is told of a send buffer that tunes itself.
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

/// SO_MEMINFO: nine words as in linux/sock_diag.h. What the engine has no counterpart of is zero.
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
