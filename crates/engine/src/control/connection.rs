//! One control connection: a message per SOCK_SEQPACKET datagram, with descriptors. Nothing here
//! waits for a client: a client that does not read its answers loses its connection.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use shm::control::{FromEngine, MESSAGE_BYTES_MAX, ToEngine};

/// Maximum number of descriptors in a message (SCM_MAX_FD of the kernel). The buffer has room for
/// all: the kernel would close descriptors without room synchronously, however long that takes.
const FDS_MAX: usize = 253;

/// Descriptors that a client may pass with a message.
const FDS_IN: usize = 4;

/// Result of a receive.
pub enum Received {
    /// A message and its descriptors.
    Message(ToEngine, Vec<OwnedFd>),
    /// No message is pending.
    Nothing,
    /// The client is gone.
    HungUp,
    /// A message is pending, but the engine has no free descriptor numbers for its descriptors,
    /// except for these.
    Crowded(Vec<OwnedFd>),
    /// The client sent an invalid message, perhaps with descriptors.
    Garbage(&'static str, Vec<OwnedFd>),
}

/// Takes one message, without blocking.
///
/// Its descriptors are peeked first: for copies without room, the kernel closes only copies. If the
/// message were received at once, the kernel would close the last references synchronously.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut Vec<u8>) -> Received {
    buffer.resize(MESSAGE_BYTES_MAX, 0);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut room = [IoSliceMut::new(buffer)];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = match recvmsg(socket, &mut room, &mut ancillary, flags | RecvFlags::PEEK) {
        Ok(received) => received,
        Err(Errno::AGAIN | Errno::INTR) => return Received::Nothing,
        Err(_) => return Received::HungUp,
    };
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Received::Crowded(fds);
    }
    // The peeked message is there, and no other thread reads this socket.
    let _ = recvmsg(socket, &mut room, &mut RecvAncillaryBuffer::default(), flags);
    if received.bytes == 0 {
        // Either end of file, or an empty message, which no honest client sends.
        return match fds.is_empty() {
            true => Received::HungUp,
            false => Received::Garbage("a message is empty", fds),
        };
    }
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Received::Garbage("a message is longer than the contract allows", fds);
    }
    if fds.len() > FDS_IN {
        return Received::Garbage("a message has more descriptors than the contract allows", fds);
    }
    match postcard::from_bytes(buffer.get(..received.bytes).unwrap_or_default()) {
        Ok(message) => Received::Message(message, fds),
        Err(_) => Received::Garbage("a message does not decode", fds),
    }
}

/// Sends one message without blocking; on an error the connection must be dropped.
pub fn send(
    socket: BorrowedFd<'_>,
    message: &FromEngine,
    fds: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let bytes = postcard::to_stdvec(message).map_err(|_| Errno::MSGSIZE)?;
    if bytes.len() > MESSAGE_BYTES_MAX || fds.len() > FDS_MAX {
        tracing::warn!(
            "a message of {} bytes to a program is longer than the {MESSAGE_BYTES_MAX} that the \
             contract allows, and its connection ends; give fewer `remotes`",
            bytes.len()
        );
        return Err(Errno::MSGSIZE);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::MSGSIZE);
    }
    sendmsg(
        socket.as_fd(),
        &[IoSlice::new(&bytes)],
        &mut ancillary,
        SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
    )
    .map(|_| ())
}
