//! Listeners: who may open connections to us, and how many may wait.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use super::fast_open::FastOpenKeys;
use super::options::SharedOptions;
use super::signing::SigningKeys;
use crate::api::{Instant, Local, Owner, SocketId, TcpOptions};

/// Set in the index of every listener's id.
pub const LISTENER_BIT: u32 = 1 << 30;

/// How long a half-open connection is safe from being displaced: honest peers answer sooner, and
/// a burst of them beyond the backlog must not displace itself. Nanoseconds.
pub const HALF_OPEN_SAFE_NS: u64 = 200_000_000;
/// Entries beyond twice the half-open connections that may be out of date.
const STALE_MAX: usize = 64;

/// A connection that was half-open once.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct HalfOpen {
    id: SocketId,
    since: Instant,
}

/// One listener.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Listener {
    /// Address and port; the address may be unspecified.
    pub local: SocketAddr,
    /// Of an unspecified IPv6 address: IPv4 is not meant.
    v6_only: bool,
    /// Connections that may wait to be accepted.
    pub backlog: u32,
    /// Inherited by the connections.
    pub options: SharedOptions,
    /// Who owns it.
    pub owner: Owner,
    /// Established connections, the oldest in front.
    pub queue: VecDeque<SocketId>,
    /// Connections in SYN-RECEIVED.
    pub half_open: u32,
    /// The same, the oldest in front, among others that are no longer half-open.
    half_open_order: VecDeque<HalfOpen>,
    /// Connections whose data was taken with the SYN and whose handshake goes on.
    pub fast_open_waiting: u32,
    /// When such connections were reset: each counts for a while.
    pub fast_open_resets: VecDeque<Instant>,
    /// Keys of its own.
    pub fast_open_keys: Option<FastOpenKeys>,
    /// What the segments of some peers are signed with.
    pub keys: SigningKeys,
    /// When it last answered a SYN with a cookie for want of room.
    pub overflowed_at: Option<Instant>,
    /// Takes no SYN: they are dropped in silence, as if the queue were full.
    pub is_shut: bool,
    /// Has an event queued.
    pub event_queued: bool,
    generation: u32,
}

impl Listener {
    /// As Linux: one more than the backlog fits.
    pub fn is_queue_full(&self) -> bool {
        self.queue.len() > self.backlog as usize
    }

    /// Half-open connections are bounded by the backlog, too; as Linux, one more than it fits.
    pub fn is_syn_queue_full(&self, limit: u32) -> bool {
        self.half_open >= limit.max(1) || self.half_open > self.backlog
    }

    /// Whether the data of one more SYN may be taken, of at most `most` whose handshake goes on or
    /// was reset lately.
    //= https://www.rfc-editor.org/rfc/rfc7413#section-5.1
    //# For this reason, a TFO server needs to monitor the
    //# connections in SYN-RCVD being reset in addition to imposing a
    //# reasonable max queue length.
    //= https://www.rfc-editor.org/rfc/rfc7413#section-4.2
    //# If this variable goes over a preset system limit, the server MUST disable TFO for all new
    //# connection requests until PendingFastOpenRequests drops below the system limit.
    pub fn has_fast_open_room(&mut self, now: Instant, most: u32) -> bool {
        let counted = self.fast_open_waiting as usize + self.fast_open_resets.len();
        if counted < most as usize {
            return true;
        }
        let is_over =
            |at: &Instant| now.0.saturating_sub(at.0) >= super::fast_open::RESET_COUNTS_NS;
        if !self.fast_open_resets.front().is_some_and(is_over) {
            return false;
        }
        self.fast_open_resets.pop_front();
        true
    }

    /// Counts a new half-open connection. `is_half_open` tells which ids still are; asked for few
    /// of them, on average.
    pub fn add_half_open(
        &mut self,
        now: Instant,
        id: SocketId,
        is_half_open: impl Fn(SocketId) -> bool,
    ) {
        self.half_open = self.half_open.saturating_add(1);
        if self.half_open_order.len() >= self.half_open as usize * 2 + STALE_MAX {
            self.half_open_order.retain(|entry| is_half_open(entry.id));
        }
        self.half_open_order.push_back(HalfOpen { id, since: now });
    }

    /// The oldest half-open connection, once it is older than [`HALF_OPEN_SAFE_NS`] (RFC 4987
    /// section 3.4).
    pub fn oldest_half_open(
        &mut self,
        now: Instant,
        is_half_open: impl Fn(SocketId) -> bool,
    ) -> Option<SocketId> {
        while let Some(entry) = self.half_open_order.front() {
            if is_half_open(entry.id) {
                let age = now.0.saturating_sub(entry.since.0);
                return (age > HALF_OPEN_SAFE_NS).then_some(entry.id);
            }
            self.half_open_order.pop_front();
        }
        None
    }
}

/// All listeners.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Listeners {
    slots: Vec<Option<Listener>>,
    generations: Vec<u32>,
    free: Vec<u32>,
    #[serde(serialize_with = "crate::in_order::write")]
    by_address:
        HashMap<SocketAddr, u32, std::hash::BuildHasherDefault<siphasher::sip::SipHasher13>>,
    limit: u32,
}

/// Why a listener cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenError {
    /// The address is taken.
    InUse,
    /// There are as many as may be.
    Limit,
}

impl Listeners {
    /// At most `limit`.
    pub fn new(limit: u32) -> Self {
        Self { limit: limit.min(LISTENER_BIT - 1), ..Self::default() }
    }

    /// Makes one.
    pub fn insert(
        &mut self,
        Local { address: local, v6_only }: Local,
        backlog: u32,
        options: TcpOptions,
        owner: Owner,
    ) -> Result<SocketId, ListenError> {
        if self.by_address.contains_key(&local) {
            return Err(ListenError::InUse);
        }
        if self.by_address.len() >= self.limit as usize {
            return Err(ListenError::Limit);
        }
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(None);
                self.generations.push(0);
                (self.slots.len() - 1) as u32
            }
        };
        let generation = self.generations.get(slot as usize).copied().unwrap_or(0);
        let listener = Listener {
            local,
            v6_only,
            backlog,
            options: options.into(),
            owner,
            queue: VecDeque::new(),
            half_open: 0,
            half_open_order: VecDeque::new(),
            fast_open_waiting: 0,
            fast_open_resets: VecDeque::new(),
            fast_open_keys: None,
            keys: SigningKeys::default(),
            overflowed_at: None,
            is_shut: false,
            event_queued: false,
            generation,
        };
        if let Some(place) = self.slots.get_mut(slot as usize) {
            *place = Some(listener);
        }
        self.by_address.insert(local, slot);
        Ok(SocketId { index: slot | LISTENER_BIT, generation })
    }

    /// The one that answers a SYN to `local`: of the exact address, else of any address.
    pub fn find(&self, local: SocketAddr) -> Option<SocketId> {
        let any = match local.ip() {
            IpAddr::V4(_) => IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let slot = [local.ip(), any, IpAddr::V6(Ipv6Addr::UNSPECIFIED)]
            .into_iter()
            .find_map(|ip| self.by_address.get(&SocketAddr::new(ip, local.port())))?;
        let listener = self.slots.get(*slot as usize)?.as_ref()?;
        if listener.v6_only && local.is_ipv4() {
            return None;
        }
        Some(SocketId { index: slot | LISTENER_BIT, generation: listener.generation })
    }

    /// Whether a port is listened on at this address.
    pub fn uses(&self, local: SocketAddr) -> bool {
        self.find(local).is_some()
    }

    /// By id; `None` when it is stale.
    pub fn listener(&self, id: SocketId) -> Option<&Listener> {
        let slot = id.index & !LISTENER_BIT;
        self.slots.get(slot as usize)?.as_ref().filter(|l| l.generation == id.generation)
    }

    /// By id, to be changed.
    pub fn listener_mut(&mut self, id: SocketId) -> Option<&mut Listener> {
        let slot = id.index & !LISTENER_BIT;
        self.slots.get_mut(slot as usize)?.as_mut().filter(|l| l.generation == id.generation)
    }

    /// Ends one.
    pub fn remove(&mut self, id: SocketId) -> Option<Listener> {
        self.listener(id)?;
        let slot = id.index & !LISTENER_BIT;
        let listener = self.slots.get_mut(slot as usize)?.take()?;
        if let Some(generation) = self.generations.get_mut(slot as usize) {
            *generation = generation.wrapping_add(1);
        }
        self.by_address.remove(&listener.local);
        self.free.push(slot);
        Some(listener)
    }

    /// How many there may be.
    pub fn limit(&self) -> usize {
        self.limit as usize
    }

    /// The one in a slot, of which there are at most [`Listeners::limit`].
    pub fn id_at(&self, slot: usize) -> Option<SocketId> {
        let listener = self.slots.get(slot)?.as_ref()?;
        Some(SocketId { index: slot as u32 | LISTENER_BIT, generation: listener.generation })
    }
}
