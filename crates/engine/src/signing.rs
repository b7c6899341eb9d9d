//! Keys with which clients sign segments (RFC 2385).

use std::net::IpAddr;

use rustix::io::Errno;
use shm::request::{KeyPart, NEXT_ENDPOINT, Reply};
use stack::api::{Cidr, SocketId};
use stack::tcp::{KEY_BYTES_MAX, KEYS_MAX, SigningKey};

use crate::endpoint::Role;
use crate::errno;
use crate::worker::Worker;

/// A key and its peers; `None` removes one.
pub type PeerKey = (Cidr, Option<SigningKey>);

impl Worker {
    /// Takes a part of a key; with the last part, sets the key.
    pub(crate) fn set_key(
        &mut self,
        place: u32,
        endpoint: u32,
        part: &KeyPart,
    ) -> Result<Reply, Errno> {
        let of = match self.endpoint(place, endpoint).map(|one| &one.role) {
            _ if endpoint == NEXT_ENDPOINT => None,
            Some(Role::Stream(stream)) => Some(stream.id),
            Some(&Role::Listener(of)) => {
                Some(self.listeners.at(of).map(|listener| listener.id).ok_or(Errno::BADF)?)
            }
            _ => return Err(Errno::BADF),
        };
        let session = self.sessions.at(place).ok_or(Errno::BADF)?;
        let (begun, whole) = (&mut session.key_begun, usize::from(part.key_bytes));
        if part.at == 0 {
            begun.clear();
        }
        let bits = if part.network.is_ipv4() { 32 } else { 128 };
        if usize::from(part.at) != begun.len() || whole > KEY_BYTES_MAX || part.prefix > bits {
            return Err(Errno::INVAL);
        }
        begun.extend(part.bytes.iter().take(whole.saturating_sub(part.at.into())));
        if begun.len() < whole {
            return Ok(Reply::Done);
        }
        let key = (whole > 0).then(|| SigningKey::new(begun)).flatten();
        begun.clear();
        let peers = Cidr { address: unmapped(part.network), prefix: part.prefix };
        match of {
            Some(id) => self.stack.tcp_set_key(id, peers, key).map_err(errno::of_request)?,
            None if session.keys_of_next.len() >= KEYS_MAX => return Err(Errno::NOBUFS),
            None => session.keys_of_next.push((peers, key)),
        }
        Ok(Reply::Done)
    }

    /// Gives a new listener or connection its waiting keys.
    pub(crate) fn give_keys(&mut self, id: SocketId, mut keys: Vec<PeerKey>) {
        // For a connection the last matching key counts: the one with the longest prefix.
        keys.sort_by_key(|(peers, _)| peers.prefix);
        for (peers, key) in keys {
            // A new listener has room for all waiting keys; keys that do not match a connection's
            // peer are ignored.
            let _ = self.stack.tcp_set_key(id, peers, key);
        }
    }
}

fn unmapped(network: IpAddr) -> IpAddr {
    network.to_canonical()
}
