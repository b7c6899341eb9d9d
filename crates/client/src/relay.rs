//! The session of the engine's relay: connections that other processes use become its endpoints,
//! and it answers with kernel sockets.

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

/// A connection to be served by the relay.
#[derive(Debug)]
pub struct Served {
    /// Its number for the answer.
    pub pass: u64,
    /// The connection.
    pub endpoint: Endpoint,
    /// Its own address.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// Its send side is shut down.
    pub is_shut: bool,
    /// Its holders' socket must be an IPv6 socket.
    pub v6: bool,
}

impl Session {
    /// Attaches as the engine's relay, over the control connection that the engine has created for
    /// it.
    ///
    /// # Errors
    /// As of [`Session::attach`].
    pub fn attach_relay(socket: Socket) -> Result<Arc<Self>, AttachError> {
        Self::from_grant(greet_as(socket, Role::Relay, "relay")?)
    }

    /// The next connection to serve; `None` if there is none.
    ///
    /// # Errors
    /// ECONNRESET if the engine is gone, EPROTO for an unexpected message.
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

    /// Answers with the holders' end of a connection, or an error.
    ///
    /// # Errors
    /// If the engine is gone.
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

    /// Calls `with` with the descriptor that becomes readable when there are connections to serve.
    pub fn with_control<T>(&self, with: impl FnOnce(BorrowedFd<'_>) -> T) -> T {
        with(locked(self.control()).socket.as_fd())
    }
}
