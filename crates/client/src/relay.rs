//! What the engine's relay does with its session: connections that programs' other processes use become
//! endpoints of it, and it answers with sockets of the kernel's.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::io::Errno;
use shm::control::{ControlError, FromEngine, Role, Socket, ToEngine, Wait};
use shm::request::Addresses;

use crate::driver::locked;
use crate::endpoint::{Endpoint, Kind};
use crate::open::{AttachError, greet_as};
use crate::session::Session;

/// A connection that the relay is to serve.
#[derive(Debug)]
pub struct Served {
    /// Names it in the answer.
    pub pass: u64,
    /// The connection.
    pub endpoint: Endpoint,
    /// Its own address.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// Nothing more may be written to it.
    pub is_shut: bool,
    /// Its holders' socket is to be one of IPv6.
    pub v6: bool,
}

impl Session {
    /// Attaches as the engine's relay, over the control connection that the engine has made for it.
    ///
    /// # Errors
    /// As of [`Session::attach`].
    pub fn attach_relay(socket: Socket) -> Result<Arc<Self>, AttachError> {
        Self::from_grant(greet_as(socket, Role::Relay, "relay")?)
    }

    /// The next connection to be served; `None` when none waits.
    ///
    /// # Errors
    /// ECONNRESET when the engine is gone, EPROTO when it says something else.
    pub fn next_served(self: &Arc<Self>) -> Result<Option<Served>, Errno> {
        let received = locked(self.control()).socket.receive::<FromEngine>(Wait::No);
        let (pass, index, local, remote, is_shut, v6) = match received {
            Ok((FromEngine::Serve { pass, endpoint, local, remote, is_shut, v6 }, _)) => {
                (pass, endpoint, local, remote, is_shut, v6)
            }
            Ok(_) => return Err(Errno::PROTO),
            Err(ControlError::System(Errno::AGAIN)) => return Ok(None),
            Err(_) => {
                self.note_death();
                return Err(Errno::CONNRESET);
            }
        };
        let addresses = Addresses { local, remote };
        let endpoint = Endpoint::new(self, Kind::Stream, &[index], 0, addresses);
        let endpoint = endpoint.ok_or(Errno::PROTO)?;
        Ok(Some(Served { pass, endpoint, local, remote, is_shut, v6 }))
    }

    /// Answers with the holders' end of a connection, or why there is none.
    ///
    /// # Errors
    /// When the engine is gone.
    pub fn answer_served(
        &self,
        pass: u64,
        made: Result<BorrowedFd<'_>, Errno>,
    ) -> Result<(), ControlError> {
        let control = locked(self.control());
        match made {
            Ok(end) => control.socket.send(&ToEngine::Served { pass, errno: 0 }, &[end], Wait::Yes),
            Err(errno) => {
                let errno = errno.raw_os_error();
                control.socket.send(&ToEngine::Served { pass, errno }, &[], Wait::Yes)
            }
        }
    }

    /// Calls `with` with the descriptor that tells of connections to be served.
    pub fn with_control<T>(&self, with: impl FnOnce(BorrowedFd<'_>) -> T) -> T {
        with(locked(self.control()).socket.as_fd())
    }
}
