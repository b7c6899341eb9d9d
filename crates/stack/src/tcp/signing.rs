//! Signed segments (RFC 2385), as Linux has them (TCP_MD5SIG): keys by peer, of a listener for what it
//! accepts, and of a connection for itself. Where there is a key, segments without the right signature
//! are dropped without a word; where there is none, signed ones are.
//!
//! Signed connections have no timestamps, for which SYNs lack the room, no data with the SYN, and no
//! large frames, as only single segments can be signed.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use wire::tcp::{TcpHeader, TcpSegment};

use super::SegmentRx;
use super::connection::{Cold, Connection};
use super::flow::FlowSlot;
use super::listener::{LISTENER_BIT, Listener};
use super::tables::Tcp;
use crate::api::{Cidr, RequestError, SocketId, TcpState};
use crate::drops::DropReason;
use crate::route::contains;

/// Most bytes of a key (TCP_MD5SIG_MAXKEYLEN).
pub const KEY_BYTES_MAX: usize = 80;
/// Bytes of the option, aligned.
pub const OPTION_BYTES: u16 = 20;
/// Keys that a listener may have, as net.core.optmem_max bounds them in Linux.
pub const KEYS_MAX: usize = 512;

/// What both ends know.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SigningKey(Box<[u8]>);

impl SigningKey {
    /// A key; `None` without bytes, or with more than [`KEY_BYTES_MAX`].
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (1..=KEY_BYTES_MAX).contains(&bytes.len()).then(|| Self(bytes.into()))
    }

    /// Signs the segment of `header`, whose signature is empty, and `payload`.
    pub fn sign(&self, from: SocketAddr, to: SocketAddr, header: &mut [u8], payload: &[u8]) {
        wire::tcp::sign(from.ip(), to.ip(), header, payload, &self.0);
    }

    /// Whether a received segment has been signed with this key.
    fn judge(
        &self,
        rx: &SegmentRx,
        bytes: &[u8],
        segment: &TcpSegment<'_>,
    ) -> Result<(), DropReason> {
        let told = segment.options.signature.ok_or(DropReason::TcpUnsigned)?;
        let header = bytes.get(..bytes.len() - segment.payload.len()).unwrap_or_default();
        let sum = wire::tcp::signature(rx.remote, rx.local, header, segment.payload, &self.0);
        // All bytes are looked at, so that the time tells nothing of where they differ.
        let differences = sum.iter().zip(told).fold(0, |all, (ours, theirs)| all | (ours ^ theirs));
        if differences == 0 { Ok(()) } else { Err(DropReason::TcpBadSignature) }
    }
}

/// Keys are not shown.
impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({} bytes)", self.0.len())
    }
}

/// Keys by whom they are for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SigningKeys(Vec<(Cidr, SigningKey)>);

impl SigningKeys {
    /// That of the longest prefix that `peer` lies in.
    pub fn of(&self, peer: SocketAddr) -> Option<&SigningKey> {
        let fitting = self.0.iter().filter(|(peers, _)| contains(peers, peer.ip()));
        fitting.max_by_key(|(peers, _)| peers.prefix).map(|(_, key)| key)
    }

    /// Sets or takes back the key of exactly these peers.
    fn set(&mut self, peers: Cidr, key: Option<SigningKey>) -> Result<(), RequestError> {
        let known = self.0.iter().position(|(known, _)| *known == peers);
        match (known, key) {
            (Some(at), None) => drop(self.0.swap_remove(at)),
            (Some(at), Some(key)) => self.0[at].1 = key,
            (None, None) => return Err(RequestError::Unknown),
            (None, Some(_)) if self.0.len() >= KEYS_MAX => return Err(RequestError::LimitReached),
            (None, Some(key)) => self.0.push((peers, key)),
        }
        Ok(())
    }
}

impl Listener {
    /// The key for a peer.
    pub fn key_of(&self, peer: SocketAddr) -> Option<&SigningKey> {
        self.keys.of(peer)
    }
}

impl Cold {
    /// What segments are signed with.
    pub fn key(&self) -> Option<&SigningKey> {
        self.rare.as_ref()?.key.as_ref()
    }

    /// Segments are to be signed with `key`, or with none.
    pub fn set_key(&mut self, key: Option<SigningKey>) {
        if key.is_some() || self.rare.is_some() {
            self.rare_mut().key = key;
        }
    }
}

impl Connection<'_> {
    /// Bytes of options in every segment.
    pub fn option_bytes(&self) -> u16 {
        let timestamps = if self.hot.timestamps { 12 } else { 0 };
        timestamps + if self.hot.signed { OPTION_BYTES } else { 0 }
    }

    /// From now on segments are signed, or are not.
    pub fn set_key(&mut self, key: Option<SigningKey>) {
        self.hot.signed = key.is_some();
        self.cold.set_key(key);
        self.settle_signing();
        self.update_mss();
    }

    /// What a connection with a key does without.
    pub fn settle_signing(&mut self) {
        if self.hot.signed {
            self.hot.tso = false;
            self.hot.timestamps &= !self.hot.is_opening();
        }
    }
}

impl Tcp {
    /// Sets or takes back a key: of a listener's, for peers yet to come, or of a connection's, whose
    /// peer must be among them.
    ///
    /// # Errors
    /// [`RequestError::Stale`] if `id` names neither a connection nor a listener;
    /// [`RequestError::Unknown`] if a key is taken back that was never set;
    /// [`RequestError::LimitReached`] if a listener has [`KEYS_MAX`] keys already.
    pub fn set_key(
        &mut self,
        id: SocketId,
        peers: Cidr,
        key: Option<SigningKey>,
    ) -> Result<(), RequestError> {
        if id.index & LISTENER_BIT != 0 {
            let listener = self.listeners.listener_mut(id).ok_or(RequestError::Stale)?;
            return listener.keys.set(peers, key);
        }
        let index = self.slot(id)? as usize;
        let (Some(hot), Some(cold)) = (self.hot.get_mut(index), self.cold.get_mut(index)) else {
            return Err(RequestError::Stale);
        };
        if hot.state == TcpState::Closed || !contains(&peers, cold.remote.ip()) {
            // A key for somebody else is nothing to this connection.
            return if key.is_some() { Ok(()) } else { Err(RequestError::Unknown) };
        }
        if key.is_none() && !hot.signed {
            return Err(RequestError::Unknown);
        }
        Connection { id, hot, cold }.set_key(key);
        Ok(())
    }

    /// Signs a segment with payload that [`emit`](Self::emit) has written the header of.
    pub fn sign(&self, id: SocketId, header: &mut [u8], payload: &[u8]) {
        let cold = self.slot(id).ok().and_then(|index| self.cold.get(index as usize));
        if let Some(cold) = cold
            && let Some(key) = cold.key()
        {
            key.sign(cold.local.address(), cold.remote.address(), header, payload);
        }
    }

    /// Whether a segment is signed as it must be, or not at all where there is no key.
    pub(super) fn judge_signature(
        &self,
        place: Option<FlowSlot>,
        rx: &SegmentRx,
        bytes: &[u8],
        segment: &TcpSegment<'_>,
    ) -> Result<(), DropReason> {
        let key = match place {
            Some(FlowSlot::Connection(index)) => {
                let signed = self.hot.get(index as usize).is_some_and(|hot| hot.signed);
                let cold = self.cold.get(index as usize).filter(|_| signed);
                cold.and_then(|cold| cold.key())
            }
            Some(FlowSlot::TimeWait(slot)) => self.time_waits.key_of(slot),
            None => {
                let TcpHeader { src_port, dst_port, .. } = segment.header;
                let local = SocketAddr::new(rx.local, dst_port);
                self.listeners_key(local, SocketAddr::new(rx.remote, src_port))
            }
        };
        match key {
            Some(key) => key.judge(rx, bytes, segment),
            None if segment.options.signature.is_some() => Err(DropReason::TcpSigned),
            None => Ok(()),
        }
    }

    /// The key that whoever listens at `local` has for `remote`.
    pub(super) fn listeners_key(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Option<&SigningKey> {
        self.listeners.listener(self.listeners.find(local)?)?.key_of(remote)
    }
}
