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
mod export;
mod grant;
mod hosts;
mod listing;
mod local;
mod matching;
mod pace;
mod planted;
mod ports;
mod receive;
mod reset;
mod ring;
mod send;
mod slab;
mod timers;
mod transmit;
mod verify;

pub use api::*;
pub use counters::{MessageCounters, MessageUsage};
pub use listing::{AssociationSummary, EndpointSummary};
pub use planted::{Bugs, Planted, Sound};

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::timer::Wheel;
use association::{Association, Job};
use endpoint::Endpoint;
use hosts::HostState;
use local::LocalSteps;
use ports::Ports;
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
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CoreConfig {
    /// This engine's incarnation, above those of all earlier ones: microseconds since 1970 will do.
    pub incarnation: u64,
    /// Hosts at most.
    pub hosts: u32,
    /// A secret, for tables whose keys come from hosts and programs.
    pub seed: [u64; 2],
}

/// The messages of an engine's worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound(serialize = "", deserialize = "B: Bugs"))]
pub struct Core<B = Sound> {
    #[serde(skip)]
    bugs: B,
    config: CoreConfig,
    hosts: Vec<HostState>,
    /// Slots of hosts that were forgotten.
    free_hosts: Vec<u32>,
    jobs: Vec<Job>,
    /// Jobs with a key by their identifiers, in order of those.
    identifiers: Vec<(u32, u32)>,
    associations: Slab<AssociationId, Association>,
    /// Epochs that are remembered, of all jobs.
    remembered: usize,
    endpoints: Slab<EndpointId, Endpoint>,
    ports: Ports,
    sends: Slab<SendId, Send>,
    receives: Slab<ReceiveId, Receive>,
    incoming: Slab<IncomingId, Incoming>,
    events: VecDeque<MessageEvent>,
    /// Associations that may have something to send.
    ready: VecDeque<AssociationId>,
    resets: VecDeque<Reset>,
    reset_rate: Rate,
    wheel: Wheel,
    /// The copying of local messages.
    local: LocalSteps,
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
        Self::with_bugs(config, Sound)
    }
}

impl<B: Bugs> Core<B> {
    /// The same, with bugs put in on purpose.
    pub fn with_bugs(config: CoreConfig, bugs: B) -> Self {
        Self {
            bugs,
            config,
            hosts: vec![HostState::local()],
            free_hosts: Vec::new(),
            jobs: Vec::new(),
            identifiers: Vec::new(),
            associations: Slab::new(),
            remembered: 0,
            endpoints: Slab::new(),
            ports: Ports::default(),
            sends: Slab::new(),
            receives: Slab::new(),
            incoming: Slab::new(),
            events: VecDeque::new(),
            ready: VecDeque::new(),
            resets: VecDeque::new(),
            reset_rate: Rate::default(),
            wheel: Wheel::new(crate::api::Instant(0)),
            local: LocalSteps::default(),
            now: 0,
            next_life: 0,
            granted: 0,
            counters: MessageCounters::default(),
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

    /// What the core holds.
    pub fn usage(&self) -> MessageUsage {
        let endpoints = || self.endpoints.iter().map(|(_, it)| it);
        MessageUsage {
            endpoints: self.endpoints.len(),
            sends: self.sends.len(),
            receives: self.receives.len(),
            incoming: self.incoming.len(),
            envelopes: endpoints().map(|it| u64::from(it.kept + it.reserved)).sum(),
            granted: self.granted,
            hosts: self.hosts.len() - 1 - self.free_hosts.len(),
            peers: self.remembered,
        }
    }
}
