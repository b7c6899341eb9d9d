//! Bytes on a control socket, with descriptors beside them: whatever comes, the engine decodes
//! it, refuses it or hangs up, and no descriptor stays open.

use std::os::fd::{AsFd, BorrowedFd};

use engine::control::connection::{Received, receive};
use shm::control::{FromEngine, MESSAGE_BYTES_MAX, Socket, ToEngine};

/// The first byte says how many descriptors come along, the rest is one message.
pub fn run(data: &[u8]) {
    let Some((&count, message)) = data.split_first() else { return };
    // What any engine may say to a client, too.
    let _ = postcard::from_bytes::<FromEngine>(message);
    if let Ok(decoded) = postcard::from_bytes::<ToEngine>(message) {
        let again = postcard::to_stdvec(&decoded).expect("what was decoded can be encoded");
        assert_eq!(postcard::from_bytes::<ToEngine>(&again).as_ref(), Ok(&decoded));
    }
    let (near, far) = Socket::pair().expect("a socket pair");
    let fds: Vec<BorrowedFd<'_>> = (0..count % 8).map(|_| near.as_fd()).collect();
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut ancillary = rustix::net::SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        ancillary.push(rustix::net::SendAncillaryMessage::ScmRights(&fds));
    }
    let parts = [std::io::IoSlice::new(message)];
    let flags = rustix::net::SendFlags::DONTWAIT;
    if rustix::net::sendmsg(&near, &parts, &mut ancillary, flags).is_err() {
        return;
    }
    let mut buffer = Vec::new();
    match receive(far.as_fd(), &mut buffer) {
        Received::Message(_, passed) => {
            assert!(message.len() <= MESSAGE_BYTES_MAX);
            assert_eq!(passed.len(), fds.len());
        }
        Received::Garbage(..) => {}
        // Whoever runs this has used up its descriptors.
        Received::Crowded(_) => return,
        Received::HungUp => assert!(message.is_empty() && fds.is_empty()),
        Received::Nothing => panic!("a message was sent"),
    }
    assert!(matches!(receive(far.as_fd(), &mut buffer), Received::Nothing));
}
