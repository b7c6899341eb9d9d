//! A session with a worker in the same thread, for simulation. It differs from a real one in two
//! points: requests that only a control thread can grant are passed as [`Session::adopt`], and
//! waiting for a reply calls `pump`.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use shm::client_side::ClientLane;
use shm::control::{InterfaceInfo, Socket};
use shm::region::Region;

use crate::driver::{Driver, Pump};
use crate::endpoint::{Endpoint, Kind};
use crate::open::{AttachError, Control, Grant, RequestError, Token};
use crate::session::Session;

impl Session {
    /// A session over `region` in one of its contexts, whose worker takes a turn whenever `pump`
    /// is called. Sessions in other contexts of the same region are independent of it, but all
    /// belong to the same program. Also returns the engine's end of the control socket: for this
    /// session the engine is gone once that is dropped.
    ///
    /// # Errors
    /// [`AttachError::System`] when the kernel has no descriptors left for the control socket.
    pub fn in_process(
        region: Arc<Region>,
        context: u16,
        interfaces: Vec<InterfaceInfo>,
        pump: Arc<dyn Fn() + Send + Sync>,
    ) -> Result<(Arc<Self>, OwnedFd), AttachError> {
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )
        .map_err(AttachError::System)?;
        let copy = || rustix::io::fcntl_dupfd_cloexec(&ours, 0).map_err(AttachError::System);
        let process = rustix::process::getpid().as_raw_nonzero().get().cast_unsigned();
        let lane = ClientLane::new(region.clone(), context, 0);
        let driver = Driver::new(lane, copy()?, copy()?, process).pumped(Pump(pump));
        let control = Control::new(Socket::from_fd(ours));
        let grant = Grant {
            control,
            region,
            drivers: vec![driver],
            spare: Vec::new(),
            interfaces,
            remotes: Vec::new(),
        };
        Ok((Self::from_grant(grant)?, theirs))
    }

    /// The endpoint that the worker has granted as number `index`.
    ///
    /// # Errors
    /// ECONNRESET once the engine's end of the control socket is dropped.
    pub fn adopt(
        self: &Arc<Self>,
        kind: Kind,
        index: u32,
        local: SocketAddr,
    ) -> Result<Endpoint, RequestError> {
        if self.is_alive() {
            self.granted(kind, &[index], local)
        } else {
            Err(RequestError::from(Errno::CONNRESET))
        }
    }

    /// The message endpoint that the worker has granted as number `index`.
    ///
    /// # Errors
    /// The engine is gone.
    pub fn adopt_messages(
        self: &Arc<Self>,
        index: u32,
        local: SocketAddr,
    ) -> Result<crate::message::Endpoint, RequestError> {
        let base = self.adopt(Kind::Messages, index, local)?;
        Ok(crate::message::Endpoint::from_base(base, None))
    }

    /// The permission to connect that the worker has granted as `token`.
    pub fn adopt_token(&self, token: u32) -> Token {
        Token(token)
    }
}
