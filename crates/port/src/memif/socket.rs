//! The control socket: its address, its messages with their descriptors, and whose it is.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    recvmsg, sendmsg, socket_with,
};

use super::error::MemifError;
use super::messages::{MESSAGE_BYTES, MemifMessage};

/// Messages taken before others have their turn.
pub(super) const MESSAGES_AT_A_TIME: usize = 64;

/// A name as an address: a path, or an abstract name behind `@`.
pub(super) fn address(name: &str) -> io::Result<SocketAddrUnix> {
    Ok(match name.strip_prefix('@') {
        Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes())?,
        None => SocketAddrUnix::new(name)?,
    })
}

/// A socket that never blocks.
pub(super) fn new_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Whether the user at the other end may be a peer: root, the engine's own, or one of `users`.
pub(super) fn admit(socket: BorrowedFd<'_>, users: &[u32]) -> Result<(), MemifError> {
    // struct ucred: pid, uid, gid.
    let mut told = [0; 12];
    crate::sockets::option(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, &mut told).map_err(
        |error| {
            MemifError::System("SO_PEERCRED", Errno::from_io_error(&error).unwrap_or(Errno::INVAL))
        },
    )?;
    let [_, _, _, _, a, b, c, d, ..] = told;
    let uid = u32::from_ne_bytes([a, b, c, d]);
    let own = rustix::process::geteuid().as_raw();
    if uid == 0 || uid == own || users.contains(&uid) {
        return Ok(());
    }
    Err(MemifError::User(uid))
}

/// Says something to a peer, with the descriptor that comes with it; one that does not listen is found
/// by its hang-up or by the time it takes.
pub(super) fn say(socket: BorrowedFd<'_>, message: &MemifMessage, file: Option<BorrowedFd<'_>>) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let files: Vec<_> = file.into_iter().collect();
    if !files.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&files));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let _ = sendmsg(socket, &[IoSlice::new(&message.encode())], &mut ancillary, flags);
}

/// Tells a peer why it is disconnected, unless it has gone itself.
pub(super) fn dismiss(socket: &OwnedFd, why: &MemifError) {
    if *why == MemifError::HungUp {
        return;
    }
    // A peer whose words are left unread finds an error before ours.
    for _ in 0..MESSAGES_AT_A_TIME {
        if matches!(hear(socket.as_fd()), Ok(None) | Err(MemifError::HungUp)) {
            break;
        }
    }
    say(socket.as_fd(), &MemifMessage::Disconnect(why.to_string()), None);
}

/// Takes one message and its descriptors; `None` when none waits.
pub(super) fn hear(
    socket: BorrowedFd<'_>,
) -> Result<Option<(MemifMessage, Vec<OwnedFd>)>, MemifError> {
    let mut bytes = [0; MESSAGE_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut room = [IoSliceMut::new(&mut bytes)];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = match recvmsg(socket, &mut room, &mut ancillary, flags) {
        Ok(received) => received,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        Err(_) => return Err(MemifError::HungUp),
    };
    let mut files = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            files.extend(rights);
        }
    }
    if received.bytes == 0 {
        return Err(MemifError::HungUp);
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
        || received.bytes != MESSAGE_BYTES
    {
        return Err(MemifError::Malformed);
    }
    let message = MemifMessage::read(&bytes).ok_or(MemifError::UnknownMessage)?;
    let (came, expected) = (files.len(), message.descriptors());
    if came != expected {
        return Err(MemifError::Descriptors { came, expected });
    }
    Ok(Some((message, files)))
}
