//! One control connection: a message per SOCK_SEQPACKET datagram, descriptors beside it. Nothing
//! here waits for a client: a client that does not read its answers loses its connection.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use shm::control::{FromEngine, MESSAGE_BYTES_MAX, ToEngine};

/// Most descriptors of a message (SCM_MAX_FD of the kernel). There is room for as many as anybody
/// can send: those without room the kernel would close then and there, and wait for as long as it
/// takes.
const FDS_MAX: usize = 253;

/// Descriptors that a client may pass with a message.
const FDS_IN: usize = 4;

/// What a look at the socket brought.
pub enum Received {
    /// A message and its descriptors.
    Message(ToEngine, Vec<OwnedFd>),
    /// Nothing now.
    Nothing,
    /// The client is gone.
    HungUp,
    /// A message waits whose descriptors the engine has no numbers for, but for these.
    Crowded(Vec<OwnedFd>),
    /// The client sent what is no message, and maybe descriptors with it.
    Garbage(&'static str, Vec<OwnedFd>),
}

/// Takes one message, without blocking.
///
/// Its descriptors are looked at first: of copies that found no room, the kernel closes nothing but
/// copies. Taken at once, it would close the last of their kind then and there.
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
    // What was seen is there, and ours alone to take.
    let _ = recvmsg(socket, &mut room, &mut RecvAncillaryBuffer::default(), flags);
    if received.bytes == 0 {
        // Either the end, or an empty message, which nobody honest sends.
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

/// Sends one message without blocking; an error means that the connection is to be dropped.
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
