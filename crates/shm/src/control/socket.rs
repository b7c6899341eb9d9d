//! The control socket: one message per datagram of a SOCK_SEQPACKET socket, bounded, with
//! descriptors as SCM_RIGHTS.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::MESSAGE_BYTES_MAX;

/// Most descriptors with one message; the kernel's own limit (SCM_MAX_FD).
pub const DESCRIPTORS_MAX: usize = 253;

/// Whether a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// As long as it takes.
    Yes,
    /// Not at all: EAGAIN instead.
    No,
}

/// Why a message did not go or come.
#[derive(Debug)]
pub enum ControlError {
    /// The kernel refused; EAGAIN when it would have had to wait.
    System(Errno),
    /// The other side has closed.
    Closed,
    /// The message is longer than [`MESSAGE_BYTES_MAX`] or has too many descriptors.
    TooLong,
    /// The kernel could not give this process all descriptors that came with a message.
    DescriptorsLost,
    /// The bytes are not a message of this contract.
    Malformed,
}

impl std::fmt::Display for ControlError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::System(errno) => write!(f, "the control socket failed: {errno}"),
            Self::Closed => write!(f, "the other side closed the control socket"),
            Self::TooLong => {
                write!(f, "a control message is longer than {MESSAGE_BYTES_MAX} bytes")
            }
            Self::DescriptorsLost => write!(
                f,
                "this process has too few descriptors left for those that came with a control \
                 message; raise its limit of open files (ulimit -n, LimitNOFILE)"
            ),
            Self::Malformed => write!(f, "a control message is malformed"),
        }
    }
}

impl std::error::Error for ControlError {}

impl From<Errno> for ControlError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::PIPE | Errno::CONNRESET => Self::Closed,
            errno => Self::System(errno),
        }
    }
}

/// Who is at the other end, as the kernel vouches: the process that connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Process id, in our pid namespace; 0 when it has none there.
    pub pid: i32,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// Who is at the other end of a connected Unix socket. (rustix would do but for its type of
/// process ids, which cannot be 0: that is what the kernel tells of a process in a pid namespace
/// that we do not see.)
///
/// # Errors
/// With the errno of getsockopt(SO_PEERCRED).
pub fn peer(socket: BorrowedFd<'_>) -> Result<Peer, Errno> {
    let mut told = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the descriptor is open for the length of the call, and the kernel writes at most
    // `len` bytes to `told`, in which every pattern of bits is valid.
    let failed = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut told).cast(),
            &raw mut len,
        )
    };
    if failed != 0 {
        let error = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::INVAL));
    }
    Ok(Peer { pid: told.pid, uid: told.uid, gid: told.gid })
}

/// A connected control socket.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
}

fn new_socket(flags: SocketFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

impl Socket {
    /// Connects to the engine that listens at `path`.
    ///
    /// # Errors
    /// With the errno of socket or connect: ENOENT or ECONNREFUSED where no engine listens.
    pub fn connect(path: &Path) -> Result<Self, Errno> {
        Self::connect_within(path, None)
    }

    /// The same, waiting no longer than that for a place in the engine's queue, and later for
    /// room for a message (EAGAIN).
    ///
    /// # Errors
    /// As [`Socket::connect`]; EAGAIN when the time is over.
    pub fn connect_within(path: &Path, limit: Option<Duration>) -> Result<Self, Errno> {
        let fd = new_socket(SocketFlags::empty())?;
        set_socket_timeout(&fd, Timeout::Send, limit)?;
        rustix::net::connect(&fd, &SocketAddrUnix::new(path)?)?;
        Ok(Self { fd })
    }

    /// The same, without waiting (EAGAIN where the engine's queue has no place).
    ///
    /// # Errors
    /// As [`Socket::connect`]; EAGAIN when the queue is full.
    pub fn connect_at_once(path: &Path) -> Result<Self, Errno> {
        let fd = new_socket(SocketFlags::NONBLOCK)?;
        rustix::net::connect(&fd, &SocketAddrUnix::new(path)?)?;
        Ok(Self { fd })
    }

    /// From now on [`Socket::receive`] waits no longer than that (EAGAIN).
    ///
    /// # Errors
    /// With the errno of setsockopt(SO_RCVTIMEO).
    pub fn wait_at_most(&self, limit: Duration) -> Result<(), Errno> {
        set_socket_timeout(&self.fd, Timeout::Recv, Some(limit))
    }

    /// Two sockets connected to each other, for tests and simulation.
    ///
    /// # Errors
    /// With the errno of socketpair.
    pub fn pair() -> Result<(Self, Self), Errno> {
        let (a, b) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok((Self { fd: a }, Self { fd: b }))
    }

    /// A control socket that was connected elsewhere.
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self { fd }
    }

    /// Gives the descriptor away.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// Who is at the other end.
    ///
    /// # Errors
    /// With the errno of getsockopt(SO_PEERCRED).
    pub fn peer(&self) -> Result<Peer, Errno> {
        peer(self.fd.as_fd())
    }

    /// Sends a message with descriptors, of which the other side gets copies.
    ///
    /// # Errors
    /// If the message is too long, or with the errno of sendmsg.
    pub fn send<M: Serialize>(
        &self,
        message: &M,
        descriptors: &[BorrowedFd<'_>],
        wait: Wait,
    ) -> Result<(), ControlError> {
        let bytes = postcard::to_stdvec(message).map_err(|_| ControlError::Malformed)?;
        if bytes.len() > MESSAGE_BYTES_MAX || descriptors.len() > DESCRIPTORS_MAX {
            return Err(ControlError::TooLong);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors))
        {
            return Err(ControlError::TooLong);
        }
        let mut flags = SendFlags::NOSIGNAL;
        if wait == Wait::No {
            flags |= SendFlags::DONTWAIT;
        }
        let sent = rustix::io::retry_on_intr(|| {
            rustix::net::sendmsg(&self.fd, &[IoSlice::new(&bytes)], &mut ancillary, flags)
        })?;
        // A sequenced packet goes whole or not at all.
        if sent == bytes.len() { Ok(()) } else { Err(ControlError::TooLong) }
    }

    /// Receives a message and its descriptors (close-on-exec).
    ///
    /// # Errors
    /// If the other side has closed, the message is malformed, descriptors were lost, or with the errno of
    /// recvmsg.
    pub fn receive<M: DeserializeOwned>(
        &self,
        wait: Wait,
    ) -> Result<(M, Vec<OwnedFd>), ControlError> {
        let (message, descriptors, is_whole) = self.receive_partly(wait)?;
        if is_whole { Ok((message, descriptors)) } else { Err(ControlError::DescriptorsLost) }
    }

    /// The same where this process may have too few descriptors left: the message, those descriptors that
    /// the kernel could give, and whether they are all that were sent.
    ///
    /// # Errors
    /// If the other side has closed, the message is malformed, or with the errno of recvmsg.
    pub fn receive_partly<M: DeserializeOwned>(
        &self,
        wait: Wait,
    ) -> Result<(M, Vec<OwnedFd>, bool), ControlError> {
        let mut bytes = vec![0; MESSAGE_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut flags = RecvFlags::CMSG_CLOEXEC;
        if wait == Wait::No {
            flags |= RecvFlags::DONTWAIT;
        }
        let mut take = || {
            rustix::io::retry_on_intr(|| {
                let parts = &mut [IoSliceMut::new(&mut bytes)];
                rustix::net::recvmsg(&self.fd, parts, &mut ancillary, flags)
            })
        };
        // Who hangs up without reading what we said is reported once, before what he said himself.
        let received = match take() {
            Err(Errno::CONNRESET) => take(),
            other => other,
        }?;
        let descriptors: Vec<OwnedFd> = ancillary
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
                _ => None,
            })
            .flatten()
            .collect();
        if received.bytes == 0 {
            // No message of ours is empty.
            return Err(ControlError::Closed);
        }
        if received.flags.contains(ReturnFlags::TRUNC) {
            return Err(ControlError::TooLong);
        }
        // There is room for as many as the kernel lets a message have.
        let is_whole = !received.flags.contains(ReturnFlags::CTRUNC);
        let message = bytes
            .get(..received.bytes)
            .and_then(|bytes| postcard::from_bytes(bytes).ok())
            .ok_or(ControlError::Malformed)?;
        Ok((message, descriptors, is_whole))
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Where the engine waits for programs.
#[derive(Debug)]
pub struct ControlListener {
    fd: OwnedFd,
    path: PathBuf,
}

impl ControlListener {
    /// Listens at `path`, whose permissions become `mode`. A socket left behind by an engine that
    /// is gone is removed; EADDRINUSE when an engine is still there.
    ///
    /// # Errors
    /// With the errno of the system call that failed: EADDRINUSE where an engine listens.
    pub fn bind(path: &Path, mode: u32) -> Result<Self, Errno> {
        let address = SocketAddrUnix::new(path)?;
        let fd = new_socket(SocketFlags::empty())?;
        match rustix::net::bind(&fd, &address) {
            Err(Errno::ADDRINUSE) => {
                let probe = new_socket(SocketFlags::empty())?;
                match rustix::net::connect(&probe, &address) {
                    Err(Errno::CONNREFUSED) => rustix::fs::unlink(path)?,
                    Err(Errno::NOENT) => {}
                    _ => return Err(Errno::ADDRINUSE),
                }
                rustix::net::bind(&fd, &address)?;
            }
            bound => bound?,
        }
        rustix::fs::chmod(path, rustix::fs::Mode::from_raw_mode(mode))?;
        rustix::net::listen(&fd, 128)?;
        Ok(Self { fd, path: path.to_path_buf() })
    }

    /// The next program that connects.
    ///
    /// # Errors
    /// With the errno of accept.
    pub fn accept(&self) -> Result<Socket, Errno> {
        let fd =
            rustix::io::retry_on_intr(|| rustix::net::accept_with(&self.fd, SocketFlags::CLOEXEC))?;
        Ok(Socket { fd })
    }
}

impl AsFd for ControlListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for ControlListener {
    fn drop(&mut self) {
        // Whoever comes next copes with a name that is left behind.
        let _ = rustix::fs::unlink(&self.path);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::control::{Geometry, ToEngine};
    use crate::region::{Region, RegionError};

    fn small() -> Geometry {
        Geometry { endpoint_capacity: 4, buffer_count: 4, context_count: 1, ..Geometry::default() }
    }

    #[test]
    fn what_was_said_before_a_hang_up_is_heard_by_who_had_something_to_say_himself() {
        let (ours, theirs) = Socket::pair().unwrap();
        theirs.send(&ToEngine::Stats, &[], Wait::No).unwrap();
        // Unread at the end of that socket, this used to be all that was heard: ECONNRESET.
        ours.send(&ToEngine::Sockets, &[], Wait::No).unwrap();
        drop(theirs);
        assert_eq!(ours.receive::<ToEngine>(Wait::No).unwrap().0, ToEngine::Stats);
        assert!(matches!(ours.receive::<ToEngine>(Wait::No), Err(ControlError::Closed)));
    }

    #[test]
    fn a_message_brings_its_descriptors_and_its_senders_identity() {
        let (here, there) = Socket::pair().unwrap();
        let region = Region::create(small()).unwrap();
        let message = ToEngine::Listen { serial: 1, context: 0, backlog: 128 };
        here.send(&message, &[region.file().unwrap()], Wait::No).unwrap();
        let (received, mut descriptors) = there.receive::<ToEngine>(Wait::No).unwrap();
        assert_eq!((received, descriptors.len()), (message, 1));
        let same = Region::open(descriptors.remove(0), *region.geometry()).unwrap();
        let span = region.buffer(2).unwrap();
        region.write_buffer(span, b"seen by both");
        let mut seen = [0; 12];
        same.read_buffer(span, &mut seen);
        assert_eq!(&seen, b"seen by both");
        assert_eq!(there.peer().unwrap().pid, std::process::id() as i32);
    }

    #[test]
    fn what_is_no_message_is_refused_and_a_closed_socket_says_so() {
        let (here, there) = Socket::pair().unwrap();
        rustix::net::send(&here, &[250, 250, 250], SendFlags::empty()).unwrap();
        assert!(matches!(there.receive::<ToEngine>(Wait::No), Err(ControlError::Malformed)));
        let waits = there.receive::<ToEngine>(Wait::No);
        assert!(matches!(waits, Err(ControlError::System(Errno::AGAIN))));
        drop(here);
        assert!(matches!(there.receive::<ToEngine>(Wait::No), Err(ControlError::Closed)));
    }

    #[test]
    fn a_region_without_seals_or_of_another_size_is_refused() {
        let region = Region::create(small()).unwrap();
        let geometry = *region.geometry();
        let copy = || region.file().unwrap().try_clone_to_owned().unwrap();
        let larger =
            Geometry { buffer_count: 5, region_bytes: geometry.region_bytes + 8192, ..geometry };
        assert!(matches!(Region::open(copy(), larger), Err(RegionError::WrongSize { .. })));
        let file =
            rustix::fs::memfd_create("unsealed", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&file, geometry.region_bytes).unwrap();
        assert!(matches!(Region::open(file, geometry), Err(RegionError::NotSealed)));
        assert!(Region::open(copy(), geometry).is_ok());
        assert!(rustix::fs::ftruncate(copy(), 0).is_err(), "the seals hold");
    }
}
