//! Keys with which segments are signed (RFC 2385): of existing listeners and connections, and of
//! those to be opened.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::io::Errno;
use shm::control::{RemoteRule, ToEngine};
use shm::request::{ConnectOptions, KEY_PART_BYTES, KeyPart, NEXT_ENDPOINT, Request};

use crate::driver::locked;
use crate::endpoint::{Endpoint, Kind};
use crate::open::{RequestError, Token};
use crate::session::Session;

/// A key for the segments of a set of peers.
#[derive(Clone, PartialEq, Eq)]
pub struct PeerKey {
    /// The peers' network.
    pub network: IpAddr,
    /// Its prefix length.
    pub prefix: u8,
    /// At most [`KEY_BYTES_MAX`](shm::request::KEY_BYTES_MAX) bytes; an empty one removes the key.
    pub key: Vec<u8>,
}

/// The key itself is not shown.
impl fmt::Debug for PeerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerKey({}/{}, {} bytes)", self.network, self.prefix, self.key.len())
    }
}

impl PeerKey {
    /// Whether it applies to `peer`.
    pub fn is_for(&self, peer: IpAddr) -> bool {
        let rule = RemoteRule { network: self.network, prefix: self.prefix, accelerated: true };
        rule.covers(peer.to_canonical())
    }

    fn requests(&self, endpoint: u32) -> impl Iterator<Item = Request> {
        let count = self.key.chunks(KEY_PART_BYTES).count().max(1);
        (0..count).map(move |which| {
            let part = self.key.chunks(KEY_PART_BYTES).nth(which).unwrap_or_default();
            let mut bytes = [0; KEY_PART_BYTES];
            for (place, byte) in bytes.iter_mut().zip(part) {
                *place = *byte;
            }
            let part = KeyPart {
                network: self.network,
                prefix: self.prefix,
                // At most 80.
                at: (which * KEY_PART_BYTES) as u8,
                key_bytes: self.key.len() as u8,
                bytes,
            };
            Request::SetKey { endpoint, part }
        })
    }
}

impl Session {
    /// Serves the listening kernel socket `kernel`, which stays the program's; segments of the peers of
    /// `keys` are signed from the first on.
    ///
    /// # Errors
    /// As [`Session::listen`]; EINVAL for a key that is too long.
    pub fn listen_signed(
        self: &Arc<Self>,
        kernel: BorrowedFd<'_>,
        backlog: u32,
        keys: &[PeerKey],
    ) -> Result<Endpoint, RequestError> {
        // Waiting keys apply to the next listener, whichever thread requests it.
        let _alone = locked(self.asking_with_keys());
        for worker in 0..self.workers() {
            self.give_keys(worker, keys)?;
        }
        let (endpoints, local) =
            self.ask(kernel, |serial| ToEngine::Listen { serial, context: 0, backlog })?;
        self.granted(Kind::Listener, &endpoints, local)
    }

    /// Opens a connection whose segments are signed from the SYN on, if one of `keys` is for the peer.
    ///
    /// # Errors
    /// As [`Session::connect`]; EINVAL for a key that is too long.
    pub fn connect_signed(
        self: &Arc<Self>,
        remote: SocketAddr,
        token: Option<Token>,
        options: &ConnectOptions,
        keys: &[PeerKey],
    ) -> Result<Endpoint, RequestError> {
        let worker = self.next_worker();
        if keys.is_empty() {
            return self.connect_on(worker, remote, token, options);
        }
        let _alone = locked(self.asking_with_keys());
        self.give_keys(worker, keys)?;
        // There is no room for data in the SYN.
        let options = ConnectOptions { signed: true, fast_open: false, ..*options };
        self.connect_on(worker, remote, token, &options)
    }

    fn give_keys(&self, worker: usize, keys: &[PeerKey]) -> Result<(), Errno> {
        for request in keys.iter().flat_map(|key| key.requests(NEXT_ENDPOINT)) {
            self.call(worker, &request)?;
        }
        Ok(())
    }
}

impl Endpoint {
    /// Sets or takes back a key of a listener's, or of a connection's.
    ///
    /// # Errors
    /// Those of every call ([`Endpoint`]); ENOENT when a key is taken back that was never set;
    /// ENOBUFS when a listener has as many as it can have.
    pub fn set_key(&self, key: &PeerKey) -> Result<(), Errno> {
        let session = self.session();
        let _alone = locked(session.asking_with_keys());
        for (worker, index) in self.places() {
            for request in key.requests(index) {
                session.call(worker, &request)?;
            }
        }
        Ok(())
    }
}
