//! UDP sockets (RFC 768; RFC 1122, section 4.1): who has which port, and errors.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::api::*;
use crate::flow::{FlowTable, KeyedHash};
use crate::stack::{UdpInfo, UdpLevels};

/// Set in the index of every UDP socket's id, so that it cannot be taken for a connection's.
const INDEX_BIT: u32 = 1 << 31;

/// All UDP sockets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Udp {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Sockets without a remote, by local address (the unspecified one of a family for all).
    bound: FlowTable<SocketAddr>,
    /// Connected sockets by local and remote address.
    connected: FlowTable<(SocketAddr, SocketAddr)>,
    events: VecDeque<u32>,
    /// Of no meaning between calls: who hears a datagram to a group.
    #[serde(skip)]
    hearers: Vec<u32>,
    hash: KeyedHash,
    ephemeral_ports: (u16, u16),
    next_port: u16,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Slot {
    generation: u32,
    socket: Option<Socket>,
    /// The next one with the same addresses, older than this one.
    next: Option<u32>,
}

/// Which list a socket is in: that of its local address, or of both addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListKey {
    Bound(SocketAddr),
    Connected(SocketAddr, SocketAddr),
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Socket {
    pub owner: Owner,
    /// As it was bound.
    pub bound: SocketAddr,
    /// Bound to `::` for IPv6 alone.
    v6_only: bool,
    /// With whom it has its port in common.
    sharing: Sharing,
    /// Where it hears: the route's address when connected, or the group that it is bound to.
    pub local: SocketAddr,
    pub remote: Option<SocketAddr>,
    pub options: UdpOptions,
    error: Option<UdpError>,
    is_queued: bool,
}

impl Socket {
    fn list_key(&self) -> ListKey {
        match self.remote {
            Some(remote) => ListKey::Connected(self.local, remote),
            None => ListKey::Bound(self.bound),
        }
    }
}

/// The addresses at which a datagram to `local` is looked for, beside its own: all of its family,
/// and all of both.
fn wildcards(local: SocketAddr) -> [SocketAddr; 2] {
    let any = |ip| SocketAddr::new(ip, local.port());
    let (v4, v6) = (any(Ipv4Addr::UNSPECIFIED.into()), any(Ipv6Addr::UNSPECIFIED.into()));
    if local.is_ipv4() { [v4, v6] } else { [v6, v6] }
}

impl Udp {
    /// Room for `count` sockets. `first_port` (from the seed) begins the search for free ports.
    pub fn new(hash: KeyedHash, count: u32, ephemeral_ports: (u16, u16), first_port: u16) -> Self {
        Self {
            slots: vec![Slot { generation: 0, socket: None, next: None }; count as usize],
            free: (0..count).rev().collect(),
            bound: FlowTable::new(hash, count),
            connected: FlowTable::new(hash, count),
            events: VecDeque::with_capacity(count as usize),
            hearers: Vec::with_capacity(count as usize),
            hash,
            ephemeral_ports,
            next_port: first_port,
        }
    }

    /// `local` is canonical, and its address is known to be ours, unspecified or a group.
    pub fn bind(
        &mut self,
        local: Local,
        sharing: Sharing,
        owner: Owner,
    ) -> Result<SocketId, RequestError> {
        let Local { address, v6_only } = local;
        let local = if address.port() == 0 {
            SocketAddr::new(address.ip(), self.choose_port(address.ip())?)
        } else {
            address
        };
        if let Some(other) = self.bound.find(&local)
            && !self.shares(other, sharing)
        {
            return Err(RequestError::AddressInUse);
        }
        let index = self.free.pop().ok_or(RequestError::LimitReached)?;
        let (bound, remote) = (local, None);
        let (error, is_queued, options) = (None, false, UdpOptions::default());
        let socket =
            Socket { owner, bound, v6_only, sharing, local, remote, options, error, is_queued };
        self.slots[index as usize].socket = Some(socket);
        self.list(index, socket.list_key());
        let generation = self.slots[index as usize].generation;
        Ok(SocketId { index: index | INDEX_BIT, generation })
    }

    /// Whether a socket agrees to have its port in common with another one.
    fn shares(&self, other: u32, sharing: Sharing) -> bool {
        let of = |slot: &Slot| slot.socket.as_ref().map(|socket| socket.sharing);
        let other = self.slots.get(other as usize).and_then(of);
        !matches!((sharing, other), (Sharing::Alone, _) | (_, Some(Sharing::Alone) | None))
    }

    fn first(&self, key: ListKey) -> Option<u32> {
        match key {
            ListKey::Bound(local) => self.bound.find(&local),
            ListKey::Connected(local, remote) => self.connected.find(&(local, remote)),
        }
    }

    fn set_first(&mut self, key: ListKey, index: Option<u32>) {
        // There is room: the tables are as large as the list of slots.
        match (key, index) {
            (ListKey::Bound(local), Some(index)) => {
                let _ = self.bound.insert(local, index);
            }
            (ListKey::Bound(local), None) => {
                self.bound.remove(&local);
            }
            (ListKey::Connected(local, remote), Some(index)) => {
                let _ = self.connected.insert((local, remote), index);
            }
            (ListKey::Connected(local, remote), None) => {
                self.connected.remove(&(local, remote));
            }
        }
    }

    /// Puts a socket before the others of its list: of several the youngest counts, as in Linux.
    fn list(&mut self, index: u32, key: ListKey) {
        let others = self.first(key);
        self.slots[index as usize].next = others;
        self.set_first(key, Some(index));
    }

    fn unlist(&mut self, index: u32, key: ListKey) {
        let after = self.slots[index as usize].next.take();
        let mut at = self.first(key);
        if at == Some(index) {
            return self.set_first(key, after);
        }
        while let Some(slot) = at.and_then(|at| self.slots.get_mut(at as usize)) {
            if slot.next == Some(index) {
                slot.next = after;
                return;
            }
            at = slot.next;
        }
    }

    /// The sockets of a list, the youngest first.
    fn all(&self, first: Option<u32>) -> impl Iterator<Item = (u32, &Socket)> + '_ {
        let next = |index: &u32| self.slots.get(*index as usize)?.next;
        std::iter::successors(first, next)
            .filter_map(|index| Some((index, self.slots.get(index as usize)?.socket.as_ref()?)))
    }

    fn choose_port(&mut self, ip: IpAddr) -> Result<u16, RequestError> {
        let (first, last) = self.ephemeral_ports;
        for _ in first..=last {
            let port = self.next_port.clamp(first, last);
            self.next_port = if port == last { first } else { port + 1 };
            let local = SocketAddr::new(ip, port);
            let mut rivals = wildcards(local).into_iter().chain([local]);
            if rivals.all(|rival| self.bound.find(&rival).is_none()) {
                return Ok(port);
            }
        }
        Err(RequestError::AddressInUse)
    }

    pub(crate) fn socket(&self, id: SocketId) -> Result<&Socket, RequestError> {
        let slot = self.slots.get((id.index ^ INDEX_BIT) as usize).ok_or(RequestError::Stale)?;
        if slot.generation != id.generation {
            return Err(RequestError::Stale);
        }
        slot.socket.as_ref().ok_or(RequestError::Stale)
    }

    fn socket_mut(&mut self, id: SocketId) -> Result<&mut Socket, RequestError> {
        let slot =
            self.slots.get_mut((id.index ^ INDEX_BIT) as usize).ok_or(RequestError::Stale)?;
        if slot.generation != id.generation {
            return Err(RequestError::Stale);
        }
        slot.socket.as_mut().ok_or(RequestError::Stale)
    }

    /// Connects to `remote`, speaking from `source` when bound to all addresses; or disconnects.
    pub fn connect(
        &mut self,
        id: SocketId,
        remote: Option<(SocketAddr, IpAddr)>,
    ) -> Result<(), RequestError> {
        let index = id.index ^ INDEX_BIT;
        let socket = *self.socket(id)?;
        let (local, to) = match remote {
            None => (socket.bound, None),
            Some((remote, source)) => {
                let ip =
                    if socket.bound.ip().is_unspecified() { source } else { socket.bound.ip() };
                (SocketAddr::new(ip, socket.bound.port()), Some(remote))
            }
        };
        let key = match to {
            Some(remote) => ListKey::Connected(local, remote),
            None => ListKey::Bound(local),
        };
        let taken = self.first(key).filter(|other| *other != index);
        if taken.is_some_and(|other| !self.shares(other, socket.sharing)) {
            return Err(RequestError::AddressInUse);
        }
        self.unlist(index, socket.list_key());
        self.list(index, key);
        let socket = self.socket_mut(id)?;
        (socket.local, socket.remote, socket.error) = (local, to, None);
        Ok(())
    }

    /// Closes a socket; its id is stale from now on.
    pub fn close(&mut self, id: SocketId) -> Result<(), RequestError> {
        let socket = *self.socket(id)?;
        let index = id.index ^ INDEX_BIT;
        self.unlist(index, socket.list_key());
        let slot = &mut self.slots[index as usize];
        slot.socket = None;
        slot.generation = slot.generation.wrapping_add(1);
        if socket.is_queued {
            // At most one entry per slot may wait, also of the next user.
            self.events.retain(|&queued| queued != index);
        }
        self.free.push(index);
        Ok(())
    }

    /// Whose is a datagram: the connected socket, else one bound to the address, else to all. Where
    /// several have a port in common (SO_REUSEPORT), each remote has one of them.
    pub fn find(&self, local: SocketAddr, remote: SocketAddr) -> Option<(SocketId, Owner)> {
        let first = self
            .connected
            .find(&(local, remote))
            .or_else(|| self.bound.find(&local))
            .or_else(|| wildcards(local).iter().find_map(|any| self.bound.find(any)))?;
        let hears = |(_, socket): &(u32, &Socket)| !(socket.v6_only && local.is_ipv4());
        let (mut index, mut socket) = self.all(Some(first)).find(hears)?;
        if socket.sharing == Sharing::Port {
            let among = || self.all(Some(first)).filter(hears);
            let turn = self.hash.hash_one((local, remote)) as usize % among().count().max(1);
            (index, socket) = among().nth(turn)?;
        }
        let generation = self.slots.get(index as usize)?.generation;
        Some((SocketId { index: index | INDEX_BIT, generation }, socket.owner))
    }

    /// Who hears a datagram to a group or to everybody: the places of all sockets whose port and
    /// addresses fit. To be given [back](Self::give_hearers).
    pub fn hearers(&mut self, local: SocketAddr, remote: SocketAddr) -> Vec<u32> {
        let mut hearers = std::mem::take(&mut self.hearers);
        let [any, both] = wildcards(local);
        let lists = [
            self.connected.find(&(local, remote)),
            self.bound.find(&local),
            self.bound.find(&any),
            self.bound.find(&both).filter(|_| any != both),
        ];
        for first in lists.into_iter().flatten() {
            let all = self.all(Some(first));
            let hear = all.filter(|(_, socket)| !(socket.v6_only && local.is_ipv4()));
            hearers.extend(hear.map(|(index, _)| index));
        }
        hearers
    }

    /// Takes the list of [`hearers`](Self::hearers) back.
    pub fn give_hearers(&mut self, mut hearers: Vec<u32>) {
        hearers.clear();
        self.hearers = hearers;
    }

    /// The socket at a place.
    pub(crate) fn at(&self, place: u32) -> Option<(SocketId, &Socket)> {
        let slot = self.slots.get(place as usize)?;
        let id = SocketId { index: place | INDEX_BIT, generation: slot.generation };
        Some((id, slot.socket.as_ref()?))
    }

    /// Where a socket is, as long as it lives.
    pub fn place_of(&self, id: SocketId) -> Result<u32, RequestError> {
        self.socket(id).map(|_| id.index ^ INDEX_BIT)
    }

    /// An error for a socket: told by an event, once.
    pub fn raise(&mut self, id: SocketId, error: UdpError) {
        let Ok(socket) = self.socket_mut(id) else { return };
        socket.error = Some(error);
        if !std::mem::replace(&mut socket.is_queued, true) {
            self.events.push_back(id.index ^ INDEX_BIT);
        }
    }

    /// Changes a socket's options.
    pub fn set_options(&mut self, id: SocketId, options: UdpOptions) -> Result<(), RequestError> {
        self.socket_mut(id)?.options = options;
        Ok(())
    }

    /// The next socket with news.
    pub fn poll_event(&mut self) -> Option<Event> {
        while let Some(index) = self.events.pop_front() {
            let Some(slot) = self.slots.get_mut(index as usize) else { continue };
            let Some(socket) = slot.socket.as_mut() else { continue };
            socket.is_queued = false;
            let id = SocketId { index: index | INDEX_BIT, generation: slot.generation };
            return Some(Event { id, owner: socket.owner, kind: SocketKind::Udp });
        }
        None
    }

    /// The error, which is cleared.
    pub fn take_levels(&mut self, id: SocketId) -> Result<UdpLevels, RequestError> {
        Ok(UdpLevels { error: self.socket_mut(id)?.error.take() })
    }

    /// Owner and addresses.
    pub fn info(&self, id: SocketId) -> Result<UdpInfo, RequestError> {
        let Socket { owner, bound, v6_only, sharing, local, remote, .. } = *self.socket(id)?;
        let bound = Local { address: bound, v6_only };
        Ok(UdpInfo { owner, bound, sharing, local, remote })
    }

    /// How many places [`Udp::id_at`] has.
    pub fn places(&self) -> usize {
        self.slots.len()
    }

    /// The socket at a place, which it keeps as long as it lives.
    pub fn id_at(&self, place: usize) -> Option<SocketId> {
        let slot = self.slots.get(place).filter(|slot| slot.socket.is_some())?;
        Some(SocketId { index: place as u32 | INDEX_BIT, generation: slot.generation })
    }
}
