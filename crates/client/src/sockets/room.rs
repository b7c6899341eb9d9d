//! SO_RCVBUF of UDP sockets: the engine's side holds as much as the kernel's. Where nothing is said, the
//! engine's queue is as long as it is configured.

use std::os::fd::RawFd;

use super::socket::Socket;
use super::{Errno, Sockets};
use crate::{Endpoint, OptionName};

impl Sockets {
    /// SO_RCVBUF and SO_RCVBUFFORCE. The kernel takes it first, which knows how much is allowed.
    pub(super) fn set_room(
        &self,
        socket: &Socket,
        fd: RawFd,
        name: i32,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        self.kernel.set_raw_option(fd, libc::SOL_SOCKET, name, bytes)?;
        let room = self.kernel.option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF)?;
        socket.remember_option(libc::SOL_SOCKET, libc::SO_RCVBUF, room);
        let Some(face) = socket.face() else { return Ok(()) };
        match Self::apply_room(socket, &face.endpoint) {
            // The next engine is told.
            Err(_) if !face.attachment.session.is_alive() => Ok(()),
            outcome => outcome,
        }
    }

    /// Tells a UDP socket's face how much it may hold, where the program has said so.
    pub(super) fn apply_room(socket: &Socket, endpoint: &Endpoint) -> Result<(), Errno> {
        match socket.remembered(libc::SOL_SOCKET, libc::SO_RCVBUF) {
            Some(room) => endpoint.set_option(OptionName::ReceiveLimit, room.unsigned_abs().into()),
            None => Ok(()),
        }
    }
}
