//! All sessions of a worker, and the destination of the stack's payload.

use std::collections::BTreeMap;
use std::sync::Arc;

use stack::api::{DatagramMeta, Instant, LinkPacket, Owner, Sink, SocketId, UdpErrorReport};

use crate::config::Limits;
use crate::control::exchange::SessionKey;
use crate::datagram::RxContext;
use crate::endpoint::{EndpointSocket, Role};
use crate::receive::{Stash, StashLimits};
use crate::service::message::Messages;
use crate::session::Session;
use crate::share::{Tallies, Tally, Users};
use crate::stats::Counters;

/// Owners with this session slot are listeners, by their index.
const LISTENER_PLACE: u32 = u32::MAX - 1;

/// The owner with this session slot is the message service.
const MESSAGES_PLACE: u32 = u32::MAX - 2;

/// Bit of an owner's lower half: the number is that of an orphan, not of an endpoint.
const ORPHAN_BIT: u32 = 1 << 31;

/// The holder of a socket of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Not accepted yet.
    Nobody,
    /// An endpoint of a session.
    Endpoint {
        /// Slot of the session.
        place: u32,
        /// The endpoint.
        index: u32,
    },
    /// A closed connection that still delivers data.
    Orphan {
        /// Slot of the session.
        place: u32,
        /// Slot of the orphan.
        orphan: u32,
    },
    /// A listener, by its index in the worker's table.
    Listener(u32),
    /// The message service, for the socket of its frames.
    Messages,
}

impl Holder {
    /// Its encoding in the stack.
    pub fn owner(self) -> Owner {
        let pair = |high: u32, low: u32| Owner(u64::from(high) << 32 | u64::from(low));
        match self {
            Self::Nobody => Owner::NONE,
            Self::Endpoint { place, index } => pair(place, index),
            Self::Orphan { place, orphan } => pair(place, orphan | ORPHAN_BIT),
            Self::Listener(index) => pair(LISTENER_PLACE, index),
            Self::Messages => pair(MESSAGES_PLACE, 0),
        }
    }

    /// The reverse of [`Holder::owner`].
    pub fn of(owner: Owner) -> Self {
        if owner == Owner::NONE {
            return Self::Nobody;
        }
        let (place, low) = ((owner.0 >> 32) as u32, owner.0 as u32);
        match low & ORPHAN_BIT {
            _ if place == LISTENER_PLACE => Self::Listener(low),
            _ if place == MESSAGES_PLACE => Self::Messages,
            0 => Self::Endpoint { place, index: low },
            _ => Self::Orphan { place, orphan: low & !ORPHAN_BIT },
        }
    }
}

/// The sessions by slot. A slot is reused only when nothing in the stack refers to it.
pub struct Sessions {
    places: Vec<Option<Session>>,
    by_key: BTreeMap<SessionKey, u32>,
    /// Endpoints whose levels changed in this turn.
    pub news: Vec<(u32, u32)>,
    /// Early bytes of connections that are not yet accepted.
    pub stash: Stash,
    /// The stash was full: entries of dead connections must be swept.
    pub sweep_stash: bool,
    /// Tallies of all sessions.
    pub of_all: Tallies,
    /// Breaches that have not been acted upon.
    pub breaches: Tally,
    /// What those of each user have together.
    of_users: Users,
    /// The message service, once there has been an endpoint; taken out while it runs.
    pub(crate) messages: Option<Box<Messages>>,
    /// The worker's time, used as arrival time.
    pub now: Instant,
    limits: Limits,
    counters: Arc<Counters>,
}

impl Sessions {
    /// No sessions.
    pub fn new(limits: Limits, counters: Arc<Counters>) -> Self {
        Self {
            places: Vec::new(),
            by_key: BTreeMap::new(),
            news: Vec::with_capacity(1024),
            stash: Stash::default(),
            sweep_stash: false,
            of_all: Tallies::default(),
            breaches: Tally::default(),
            of_users: Users::default(),
            messages: None,
            now: Instant(0),
            limits,
            counters,
        }
    }

    /// Adds a session; returns its slot.
    pub fn add(&mut self, mut session: Session) -> u32 {
        let key = session.key;
        session.of_user = self.of_users.of(session.who.uid);
        session.of_all = self.of_all.clone();
        session.breaches = self.breaches.clone();
        let place = match self.places.iter().position(Option::is_none) {
            Some(place) => {
                if let Some(slot) = self.places.get_mut(place) {
                    *slot = Some(session);
                }
                place as u32
            }
            None => {
                self.places.push(Some(session));
                self.places.len() as u32 - 1
            }
        };
        self.by_key.insert(key, place);
        place
    }

    /// Removes a session; its region is unmapped with the last reference.
    pub fn remove(&mut self, place: u32) -> Option<Session> {
        let session = self.places.get_mut(place as usize)?.take()?;
        self.by_key.remove(&session.key);
        Some(session)
    }

    /// A session by slot.
    pub fn at(&mut self, place: u32) -> Option<&mut Session> {
        self.places.get_mut(place as usize)?.as_mut()
    }

    /// A session by slot.
    pub fn peek(&self, place: u32) -> Option<&Session> {
        self.places.get(place as usize)?.as_ref()
    }

    /// The slot of a session.
    pub fn place_of(&self, key: SessionKey) -> Option<u32> {
        self.by_key.get(&key).copied()
    }

    /// Number of slots, empty ones included.
    pub fn place_count(&self) -> u32 {
        self.places.len() as u32
    }

    /// All sessions.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Session)> {
        (0..).zip(&self.places).filter_map(|(place, slot)| Some((place, slot.as_ref()?)))
    }

    /// Notes that an endpoint's levels changed: its client gets an event at the end of the turn.
    pub fn note_news(&mut self, place: u32, index: u32) {
        let Some(session) = self.places.get_mut(place as usize).and_then(Option::as_mut) else {
            return;
        };
        if let Some(endpoint) = session.endpoints.get_mut(index as usize)
            && !endpoint.has_news
        {
            endpoint.has_news = true;
            self.news.push((place, index));
        }
    }
}

impl Sessions {
    /// More was sent of a stream whose client has a limit of unsent data.
    pub fn note_sent(&mut self, place: u32, index: u32) {
        if let Some(endpoint) = self.at(place).and_then(|s| s.endpoints.get_mut(index as usize))
            && let Role::Stream(stream) = &endpoint.role
        {
            endpoint.view.set_sent(stream.send.sent);
            self.note_news(place, index);
        }
    }
}

impl Sink for Sessions {
    fn stream(&mut self, id: SocketId, owner: Owner, offset: u64, bytes: &[u8]) -> bool {
        match Holder::of(owner) {
            Holder::Endpoint { place, index } => {
                let Some(session) = self.places.get_mut(place as usize).and_then(Option::as_mut)
                else {
                    return false;
                };
                let to = EndpointSocket { index, id };
                session.store_stream(to, offset, bytes, &self.counters)
            }
            Holder::Nobody => {
                let limits = StashLimits {
                    connection: self.limits.stash_connection_bytes,
                    total: self.limits.stash_total_bytes,
                };
                let stored = self.stash.store(id, offset, bytes, limits);
                if !stored {
                    self.counters.stash_full.increment();
                    self.sweep_stash = true;
                }
                stored
            }
            Holder::Orphan { .. } | Holder::Listener(_) | Holder::Messages => false,
        }
    }

    fn datagram(&mut self, id: SocketId, owner: Owner, meta: &DatagramMeta, bytes: &[u8]) -> bool {
        if let Holder::Messages = Holder::of(owner) {
            return self.on_message_datagram(meta, bytes);
        }
        self.store(id, owner, |session, to, rx| session.store_datagram(to, meta, bytes, rx))
    }

    fn link_packet(&mut self, packet: &LinkPacket<'_>) -> bool {
        let Some(mut messages) = self.messages.take() else { return false };
        let taken = messages.on_link_packet(self, self.now.0, packet);
        self.messages = Some(messages);
        taken
    }

    fn udp_error(
        &mut self,
        id: SocketId,
        owner: Owner,
        report: &UdpErrorReport,
        quoted: &[u8],
    ) -> bool {
        self.store(id, owner, |session, to, rx| session.store_error(to, report, quoted, rx))
    }
}

impl Sessions {
    /// Frames of the message service arrived.
    fn on_message_datagram(&mut self, meta: &DatagramMeta, bytes: &[u8]) -> bool {
        let Some(mut messages) = self.messages.take() else { return false };
        messages.on_datagram(self, self.now.0, meta, bytes);
        self.messages = Some(messages);
        true
    }

    /// Puts an entry into a datagram endpoint's receive queue, and marks it for publication.
    pub fn store(
        &mut self,
        id: SocketId,
        owner: Owner,
        store: impl FnOnce(&mut Session, EndpointSocket, RxContext<'_>) -> bool,
    ) -> bool {
        let Holder::Endpoint { place, index } = Holder::of(owner) else { return false };
        let Some(session) = self.places.get_mut(place as usize).and_then(Option::as_mut) else {
            return false;
        };
        let rx = RxContext { now: self.now, counters: &self.counters };
        let stored = store(session, EndpointSocket { index, id }, rx);
        if session.publish_datagrams(index) {
            self.note_news(place, index);
        }
        stored
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_names_its_holder() {
        for holder in [
            Holder::Nobody,
            Holder::Endpoint { place: 0, index: 0 },
            Holder::Endpoint { place: 63, index: 16383 },
            Holder::Orphan { place: 63, orphan: 12 },
            Holder::Listener(3),
            Holder::Messages,
        ] {
            assert_eq!(Holder::of(holder.owner()), holder);
        }
    }
}
