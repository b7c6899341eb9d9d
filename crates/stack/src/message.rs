//! Reliable tagged messages between the endpoints of hosts, without connections; the protocol of
//! docs/spec/message.md, sans-IO.
//!
//! [`Core`] takes frames, requests and the time, and gives frames and events. Payload stays with
//! the caller ([`Memory`]); the core keeps at most 128 bytes of an unexpected message. One association
//! for each host and job carries the messages of all endpoints; its frames have sequences and are
//! acknowledged selectively. Every START is decided as it arrives: placed, buffered, held with its
//! sender, or refused, so that no endpoint can stop the others' messages.
//!
//! What it does not do: find hosts, wrap frames into packets, wait, or check a program's right to a
//! port. Memory grows to the most that was ever used at once; then nothing is allocated for a
//! message.
//!
//! Start reading at [`Core::send`] and [`Core::on_frame`].

mod acknowledge;
mod api;
mod arrivals;
mod association;
mod closing;
mod counters;
mod decide;
mod endpoint;
mod grant;
mod local;
mod matching;
mod pace;
mod receive;
mod reset;
mod ring;
mod send;
mod slab;
mod timers;
mod transmit;
mod verify;

pub use api::*;
pub use counters::MessageCounters;

use std::collections::VecDeque;

use hashbrown::HashMap;
use wire::message::Epoch;

use crate::timer::Wheel;
use association::{Association, Job, Peer};
use endpoint::Endpoint;
use receive::{Incoming, Receive};
use reset::{Rate, Reset};
use send::Send;
use slab::{AssociationId, IncomingId, Slab};

/// The longest message whose data leaves without being asked for.
pub const EAGER_MAX: u32 = 16 * 1024;
/// The longest message in one frame without a number.
pub const WHOLE_MAX: u32 = wire::message::WHOLE_MAX as u32;
/// A host that acknowledges nothing for so long is dead, nanoseconds.
pub const DEAD_NS: u64 = 20_000_000_000;
/// The least room that a path may have, bytes behind the link's or UDP's header.
pub const ROOM_MIN: u16 = 512;

type Hashed<K, V> = HashMap<K, V, std::hash::BuildHasherDefault<siphasher::sip::SipHasher13>>;

/// What a core is made with.
#[derive(Clone, Copy, Debug)]
pub struct CoreConfig {
    /// This engine's incarnation, above those of all earlier ones: microseconds since 1970 will do.
    pub incarnation: u64,
    /// Hosts at most.
    pub hosts: u32,
}

#[derive(Debug)]
struct HostState {
    addresses: PathAddresses,
    room: u16,
    resets: Rate,
}

/// The messages of an engine's worker.
#[derive(Debug)]
pub struct Core {
    config: CoreConfig,
    hosts: Vec<HostState>,
    jobs: Vec<Job>,
    associations: Slab<AssociationId, Association>,
    peers: Hashed<Peer, AssociationId>,
    endpoints: Slab<EndpointId, Endpoint>,
    ports: Hashed<u16, EndpointId>,
    sends: Slab<SendId, Send>,
    receives: Slab<ReceiveId, Receive>,
    incoming: Slab<IncomingId, Incoming>,
    events: VecDeque<MessageEvent>,
    /// Associations that may have something to send.
    ready: VecDeque<AssociationId>,
    resets: VecDeque<Reset>,
    reset_rate: Rate,
    wheel: Wheel,
    /// The time of the last call.
    now: u64,
    next_life: u32,
    /// Bytes granted and not arrived, of all messages.
    granted: u64,
    counters: MessageCounters,
}

impl Core {
    /// A core without endpoints.
    pub fn new(config: CoreConfig) -> Self {
        let nowhere = PathAddresses { local: [0; 16], remote: [0; 16] };
        Self {
            config,
            hosts: vec![HostState { addresses: nowhere, room: u16::MAX, resets: Rate::default() }],
            jobs: Vec::new(),
            associations: Slab::new(),
            peers: HashMap::default(),
            endpoints: Slab::new(),
            ports: HashMap::default(),
            sends: Slab::new(),
            receives: Slab::new(),
            incoming: Slab::new(),
            events: VecDeque::new(),
            ready: VecDeque::new(),
            resets: VecDeque::new(),
            reset_rate: Rate::default(),
            wheel: Wheel::new(crate::api::Instant(0)),
            now: 0,
            next_life: 0,
            granted: 0,
            counters: MessageCounters::default(),
        }
    }

    /// Adds a host with a path of so much room: bytes of a packet behind its UDP or Ethernet header.
    /// Less than [`ROOM_MIN`] counts as that. Hosts are never removed.
    ///
    /// # Errors
    /// [`MessageError::TooMany`]: there are as many as there may be.
    pub fn add_host(&mut self, addresses: PathAddresses, room: u16) -> Result<Host, MessageError> {
        if self.hosts.len() > self.config.hosts as usize {
            return Err(MessageError::TooMany);
        }
        let room = room.max(ROOM_MIN);
        self.hosts.push(HostState { addresses, room, resets: Rate::default() });
        Ok(Host(self.hosts.len() as u32 - 1))
    }

    /// Changes the room of a host's path. Frames that were cut for more are still sent as they are.
    pub fn set_room(&mut self, host: Host, room: u16) {
        if let Some(state) = self.hosts.get_mut(host.index()) {
            state.room = room.max(ROOM_MIN);
        }
    }

    /// What happened since, one by one. To be asked after every call that takes `&mut self`.
    pub fn poll_event(&mut self) -> Option<MessageEvent> {
        self.events.pop_front()
    }

    /// What was counted.
    pub fn counters(&self) -> &MessageCounters {
        &self.counters
    }

    /// Associations that are open.
    pub fn associations(&self) -> usize {
        self.associations.len()
    }

    /// Takes an epoch for a peer above all that it had from us.
    fn take_epoch(&mut self, peer: Peer) -> Epoch {
        // A hostile member can use up all lives; `above` keeps the order then.
        self.next_life = self.next_life.wrapping_add(1);
        let epoch = Epoch { incarnation: self.config.incarnation, life: self.next_life };
        let known = self.jobs[peer.job as usize].peers.entry(peer.host.0).or_default();
        let above = match known.ours.life.checked_add(1) {
            Some(life) => Epoch { incarnation: known.ours.incarnation, life },
            None => Epoch { incarnation: known.ours.incarnation.saturating_add(1), life: 1 },
        };
        known.ours = epoch.max(above);
        known.ours
    }
}
