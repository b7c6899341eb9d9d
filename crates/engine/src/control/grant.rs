//! Making a session: the region and the wake pipes of its lanes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use shm::control::Geometry;

use super::exchange::SessionKey;
use crate::session::{LanePipes, SessionSeed, SessionWho};

/// What the client gets of a session, beside the geometry.
pub struct ClientEnds {
    /// The region, then for each lane the read end of the client's wake pipe and the write end
    /// of the engine's.
    pub fds: Vec<OwnedFd>,
}

impl ClientEnds {
    /// In the order of `Welcome`.
    pub fn borrow(&self) -> Vec<BorrowedFd<'_>> {
        self.fds.iter().map(AsFd::as_fd).collect()
    }
}

/// Makes the region and the pipes of a session.
pub fn make(
    key: SessionKey,
    geometry: Geometry,
    who: SessionWho,
) -> Result<(SessionSeed, ClientEnds), Errno> {
    let region = Arc::new(shm::region::Region::create(geometry).map_err(|_| Errno::NOMEM)?);
    let mut fds = Vec::new();
    fds.push(rustix::io::fcntl_dupfd_cloexec(region.file().ok_or(Errno::INVAL)?, 0)?);
    let lanes = usize::from(geometry.context_count) * usize::from(geometry.worker_count);
    let mut pipes = Vec::with_capacity(lanes);
    for _ in 0..lanes {
        let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
        // The ends of a pipe are separate open files: what a client does to its own end's flags
        // does not reach ours.
        let (client_read, engine_write) = pipe_with(flags)?;
        // A socket, since a write to a broken pipe would raise SIGPIPE in the program.
        let (engine_read, client_write) = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        fds.push(client_read);
        fds.push(client_write);
        pipes.push(LanePipes { wake_client: engine_write, woken_by_client: engine_read });
    }
    let geometry = *region.geometry();
    Ok((SessionSeed { key, geometry, region, pipes: Some(pipes), who }, ClientEnds { fds }))
}
