//! A worker's data for observers: its sockets and its counters.

use std::net::SocketAddr;

use stack::api::Owner;
use stack::message::{AssociationSummary, EndpointSummary};

use crate::control::exchange::SessionKey;
use crate::service::message::Listed;
use crate::sessions::Holder;
use crate::worker::Worker;

/// Sockets listed in one step.
pub const SOCKETS_PER_STEP: usize = 64;

/// Places looked at in one step: most may be empty.
const PLACES_PER_STEP: usize = 1024;

/// The place of the message service's first entry, beyond all places that a stack can have.
const MESSAGES_FROM: usize = 1 << 40;

/// An entry of a list as a worker tells it; the words for it are found elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What it is.
    pub socket: SeenSocket,
    /// The session behind it; `None` for a connection that nobody has accepted, and for associations.
    pub session: Option<SessionKey>,
}

/// What a worker lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeenSocket {
    /// A socket of the stack's.
    Stack(stack::SocketInfo),
    /// A message endpoint and its address.
    Endpoint(SocketAddr, EndpointSummary),
    /// An association of two hosts in a job: the addresses of its frames in datagrams, ours first.
    Association(SocketAddr, SocketAddr, AssociationSummary),
}

impl Worker {
    fn session_of(&self, owner: Owner) -> Option<SessionKey> {
        let place = match Holder::of(owner) {
            Holder::Endpoint { place, .. } | Holder::Orphan { place, .. } => place,
            Holder::Listener(index) => self.listeners.peek(index)?.attached().first()?.0,
            Holder::Nobody | Holder::Messages => return None,
        };
        Some(self.sessions.peek(place)?.key)
    }

    fn seen_at(&self, place: usize) -> Option<Seen> {
        let Some(place) = place.checked_sub(MESSAGES_FROM) else {
            let socket = self.stack.socket_at(place)?;
            let owner = match &socket {
                stack::SocketInfo::Tcp(_, info) => info.owner,
                stack::SocketInfo::Udp(_, info) => info.owner,
            };
            let session = self.session_of(owner);
            return Some(Seen { socket: SeenSocket::Stack(socket), session });
        };
        Some(match self.sessions.messages.as_ref()?.listed_at(place)? {
            Listed::Endpoint(session, address, summary) => Seen {
                socket: SeenSocket::Endpoint(address, summary),
                session: self.sessions.peek(session).map(|session| session.key),
            },
            Listed::Association(local, remote, summary) => {
                Seen { socket: SeenSocket::Association(local, remote, summary), session: None }
            }
        })
    }

    /// One step of listing all sockets, message endpoints and associations, so short that the worker's other
    /// work does not suffer: those from `place` on (0 to begin with), and where the next step begins,
    /// if the list does not end here. What lives all the while is told exactly once.
    pub fn sockets_from(&self, place: usize) -> (Vec<Seen>, Option<usize>) {
        let of_messages = self.sessions.messages.as_ref().map(|all| MESSAGES_FROM + all.places());
        let (end, then) = match place < MESSAGES_FROM {
            true => (self.stack.socket_places(), of_messages.map(|_| MESSAGES_FROM)),
            false => (of_messages.unwrap_or(0), None),
        };
        let mut seen = Vec::with_capacity(SOCKETS_PER_STEP);
        for place in place..end.min(place.saturating_add(PLACES_PER_STEP)) {
            if seen.len() == SOCKETS_PER_STEP {
                return (seen, Some(place));
            }
            seen.extend(self.seen_at(place));
        }
        let next = place.saturating_add(PLACES_PER_STEP);
        (seen, Some(next).filter(|next| *next < end).or(then))
    }

    /// Copies counters kept elsewhere: of ports, stack, cycles, buffers.
    pub fn copy_counters(&self) {
        let counters = &self.counters;
        let dying = self.sessions.iter().filter(|(_, one)| one.dying_since.is_some()).count();
        let relay = usize::from(self.passing.relay.is_some());
        counters.sessions.set((self.sessions.iter().count() - dying).saturating_sub(relay) as u64);
        counters.sessions_dying.set(dying as u64);
        counters.stash_bytes.set(self.sessions.stash.bytes() as u64);
        let in_use = |one: &crate::session::Session| one.endpoints.len() - one.free_endpoints.len();
        counters.endpoints.set(self.sessions.iter().map(|(_, one)| in_use(one) as u64).sum());
        // The relay keeps a stock as long as it lives.
        let programs = || {
            let all = self.sessions.iter().map(|(_, one)| one);
            all.filter(|one| self.passing.relay != Some(one.key))
        };
        let total: u64 = programs().map(|one| u64::from(one.pool.total())).sum();
        let free: u64 = programs().map(|one| one.pool.free() as u64).sum();
        counters.buffers_total.set(total);
        counters.buffers_free.set(free);
        counters.copied.replace(|list| {
            for attached in &self.ports {
                let name = &attached.port.info().name;
                let of = attached.port.counters();
                for (what, value) in [
                    ("rx_frames", of.rx_frames),
                    ("rx_bytes", of.rx_bytes),
                    ("rx_missed", of.rx_missed),
                    ("rx_partial", of.rx_partial),
                    ("rx_errors", of.rx_errors),
                    ("rx_left", of.rx_left),
                    ("rx_kept_back", of.rx_kept_back),
                    ("rx_queues_unserved", of.rx_queues_unserved),
                    ("links_left", of.links_left),
                    ("links_unused", of.links_unused),
                    ("links_refused", of.links_refused),
                    ("fragmented", of.fragmented),
                    ("fragments_evicted", of.fragments_evicted),
                    ("fragments_refused", of.fragments_refused),
                    ("tx_frames", of.tx_frames),
                    ("tx_bytes", of.tx_bytes),
                    ("tx_full", of.tx_full),
                    ("tx_errors", of.tx_errors),
                    ("kernel_rx_frames", of.kernel_rx_frames),
                    ("kernel_rx_dropped", of.kernel_rx_dropped),
                    ("kernel_tx_frames", of.kernel_tx_frames),
                    ("kernel_tx_dropped", of.kernel_tx_dropped),
                ] {
                    list.push((format!("port_{what}{{port={name}}}"), value));
                }
            }
            for (name, of) in &self.mirrors {
                for (what, count) in
                    [("shown", &of.shown), ("lost", &of.lost), ("refused", &of.refused)]
                {
                    list.push((format!("mirror_{what}{{interface={name}}}"), count.read()));
                }
            }
            for ((_, name), cycles) in crate::account::COMPONENTS.iter().zip(self.account.totals())
            {
                list.push(((*name).to_string(), *cycles));
            }
            self.stack.each_counter(|name, value| list.push((name.to_string(), value)));
            if let Some(messages) = &self.sessions.messages {
                messages.each_counter(|name, value| list.push((name.to_string(), value)));
            }
            let of = self.stack.counters();
            for (reason, count) in stack::drops::DropReason::ALL.iter().zip(&of.drops) {
                list.push((format!("stack_drops{{reason={}}}", reason.name()), *count));
            }
        });
    }
}
