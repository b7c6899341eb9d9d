//! UDP sockets (RFC 768; RFC 1122, section 4.1): who has which port, and errors.

use std::collections::VecDeque;
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
    ephemeral_ports: (u16, u16),
    next_port: u16,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Slot {
    generation: u32,
    socket: Option<Socket>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Socket {
    pub owner: Owner,
    /// As it was bound.
    bound: SocketAddr,
    /// Bound to `::` for IPv6 alone.
    v6_only: bool,
    /// As it sends: the route's address when connected.
    pub local: SocketAddr,
    pub remote: Option<SocketAddr>,
    pub options: UdpOptions,
    error: Option<UdpError>,
    is_queued: bool,
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
            slots: vec![Slot { generation: 0, socket: None }; count as usize],
            free: (0..count).rev().collect(),
            bound: FlowTable::new(hash, count),
            connected: FlowTable::new(hash, count),
            events: VecDeque::with_capacity(count as usize),
            ephemeral_ports,
            next_port: first_port,
        }
    }

    /// `local` is canonical, and its address is known to be ours or unspecified.
    pub fn bind(&mut self, local: Local, owner: Owner) -> Result<SocketId, RequestError> {
        let Local { address, v6_only } = local;
        let local = if address.port() == 0 {
            SocketAddr::new(address.ip(), self.choose_port(address.ip())?)
        } else {
            address
        };
        if self.bound.find(&local).is_some() {
            return Err(RequestError::AddressInUse);
        }
        let index = self.free.pop().ok_or(RequestError::LimitReached)?;
        let (bound, remote) = (local, None);
        let (error, is_queued, options) = (None, false, UdpOptions::default());
        let socket = Socket { owner, bound, v6_only, local, remote, options, error, is_queued };
        // There is room: the tables are as large as the list of slots.
        let _ = self.bound.insert(local, index);
        let slot = &mut self.slots[index as usize];
        slot.socket = Some(socket);
        Ok(SocketId { index: index | INDEX_BIT, generation: slot.generation })
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
        let taken = match to {
            Some(remote) => self.connected.find(&(local, remote)),
            None => self.bound.find(&local),
        };
        if taken.is_some_and(|other| other != index) {
            return Err(RequestError::AddressInUse);
        }
        self.unlist(index, &socket);
        let _ = match to {
            Some(remote) => self.connected.insert((local, remote), index),
            None => self.bound.insert(local, index),
        };
        let socket = self.socket_mut(id)?;
        (socket.local, socket.remote, socket.error) = (local, to, None);
        Ok(())
    }

    fn unlist(&mut self, index: u32, socket: &Socket) {
        match socket.remote {
            Some(remote) => {
                self.connected.remove(&(socket.local, remote));
            }
            None if self.bound.find(&socket.bound) == Some(index) => {
                self.bound.remove(&socket.bound);
            }
            None => {}
        }
    }

    /// Closes a socket; its id is stale from now on.
    pub fn close(&mut self, id: SocketId) -> Result<(), RequestError> {
        let socket = *self.socket(id)?;
        let index = id.index ^ INDEX_BIT;
        self.unlist(index, &socket);
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

    /// Whose is a datagram: the connected socket, else one bound to the address, else to all.
    pub fn find(&self, local: SocketAddr, remote: SocketAddr) -> Option<(SocketId, Owner)> {
        let index = self
            .connected
            .find(&(local, remote))
            .or_else(|| self.bound.find(&local))
            .or_else(|| wildcards(local).iter().find_map(|any| self.bound.find(any)))?;
        let slot = self.slots.get(index as usize)?;
        let socket = slot.socket.as_ref()?;
        if socket.v6_only && local.is_ipv4() {
            return None;
        }
        let id = SocketId { index: index | INDEX_BIT, generation: slot.generation };
        Some((id, socket.owner))
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
        let Socket { owner, bound, v6_only, local, remote, .. } = *self.socket(id)?;
        let bound = Local { address: bound, v6_only };
        Ok(UdpInfo { owner, bound, local, remote })
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
