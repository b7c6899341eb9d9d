//! The message service: endpoints of programs, the core that matches and delivers, and the frames
//! between hosts, which are sent as UDP datagrams of one port (`frames.rs`) or in Ethernet frames
//! (`link.rs`).
//!
//! A client's commands and completions are entries ([`shm::message`]) in the queues of its endpoint
//! (`commands.rs`, `endpoint.rs`). The core ([`stack::message`]) matches messages and decides which
//! frames are sent; it accesses the memory of operations through `tables.rs`.

mod commands;
mod endpoint;
mod events;
mod frames;
mod hosts;
mod link;
mod listing;
mod placed;
mod queue;
mod space;
mod tables;
mod turn;
mod windows;

use std::collections::VecDeque;
use std::net::SocketAddr;

use endpoint::{At, Port};
use rustix::io::Errno;
use stack::Stack;
use stack::api::{Local, Owner, SocketId};
use stack::message::{
    Core, CoreConfig, EndpointId, EndpointOptions, JobKey, MessageError, Unexpected,
};

use hosts::{HOSTS_MAX, Hosts, Path};
pub(crate) use listing::Listed;
use shm::message::OPERATIONS_MAX;
use tables::{Hands, Room, Tables};

use crate::config::MessageSettings;
use crate::sessions::{Holder, Sessions};

/// Time for the sends of a closed endpoint to be delivered.
const DRAIN_NS: u64 = 5_000_000_000;
/// Interval of checks of endpoints whose clients do not read.
const BLOCKED_NS: u64 = 20_000_000;
/// Unexpected messages of an endpoint.
const ENVELOPES: u32 = 65_536;

/// A message endpoint of a session.
pub struct MessageEndpoint {
    /// Its number in the core.
    pub(crate) id: EndpointId,
    /// Commands taken so far.
    pub(crate) commands: u64,
    /// Commands were taken since the client was last informed.
    pub(crate) taken: bool,
    /// Completions were pushed since the client was last informed.
    pub(crate) has_completions: bool,
}

/// Why an endpoint could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenError {
    /// The core refused it.
    Core(MessageError),
    /// The UDP port of the frames is in use.
    Port(Errno, u16),
}

/// The message service; created with the first endpoint.
pub(crate) struct Messages {
    core: Core,
    tables: Tables,
    hosts: Hosts,
    /// The stack's socket for the frames.
    socket: SocketId,
    /// Settings of the encapsulation.
    settings: MessageSettings,
    /// Closed endpoints whose sends continue, with their deadlines.
    closing: VecDeque<(u64, EndpointId)>,
    /// Announced messages that wait for room in their session's memory, by cookie.
    wants: VecDeque<usize>,
    /// Endpoints with pending work in the next turn.
    blocked: Vec<EndpointId>,
    /// The frame that is being sent.
    frame: Box<[u8]>,
    /// The list of pieces of a command.
    list: Vec<u8>,
    /// Its payload, if the checksum is not left to the port.
    summed: Vec<u8>,
    /// It found its port full.
    held: Option<stack::message::Packet>,
    /// Sessions with sends that ended after their endpoint was closed.
    pub finished: Vec<u32>,
    /// Counters of frames.
    pub counts: Counts,
}

/// Counters of the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Packets received.
    pub rx: u64,
    /// Packets sent.
    pub tx: u64,
    /// Packets received in Ethernet frames, part of `rx`.
    pub rx_ethernet: u64,
    /// Packets sent in Ethernet frames, part of `tx`.
    pub tx_ethernet: u64,
    /// Ethernet frames with a wrong checksum, or malformed.
    pub ethernet_malformed: u64,
    /// Ethernet frames whose addresses are not ours and those of a host on the link.
    pub ethernet_misaddressed: u64,
    /// Frames that could not be sent.
    pub tx_failed: u64,
    /// Frames of hosts beyond the limit.
    pub hosts_refused: u64,
    /// Pages without a free buffer in their session.
    pub spilled: u64,
    /// Closed endpoints whose sends were dropped.
    pub drains_ended: u64,
    /// Receives refused because the windows of their session have reached their limit.
    pub windows_refused: u64,
    /// Commands with registered memory that does not exist.
    pub memory_refused: u64,
    /// Commands with more pieces of registered memory than their session may have in use.
    pub pieces_refused: u64,
}

impl Messages {
    /// Creates the service, with a socket of the stack at its UDP port.
    pub fn new(
        stack: &mut Stack,
        settings: MessageSettings,
        incarnation: u64,
    ) -> Result<Self, OpenError> {
        let number = settings.port;
        let all = SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, number));
        let owner: Owner = Holder::Messages.owner();
        let socket = stack
            .udp_bind(Local::from(all), owner)
            .map_err(|error| OpenError::Port(crate::errno::of_request(error), number))?;
        let seed = [stack.secret("messages"), stack.secret("message keys")];
        Ok(Self {
            core: Core::new(CoreConfig { incarnation, hosts: HOSTS_MAX, seed }),
            tables: Tables::default(),
            hosts: Hosts::default(),
            socket,
            settings,
            closing: VecDeque::new(),
            wants: VecDeque::new(),
            blocked: Vec::new(),
            frame: vec![0; 1 << 16].into_boxed_slice(),
            list: Vec::new(),
            summed: Vec::new(),
            held: None,
            finished: Vec::new(),
            counts: Counts::default(),
        })
    }

    /// Opens an endpoint.
    pub fn open(
        &mut self,
        now: u64,
        (place, index): (u32, u32),
        address: SocketAddr,
        key: Option<JobKey>,
    ) -> Result<EndpointId, OpenError> {
        let options = EndpointOptions {
            port: address.port(),
            key,
            unexpected: Unexpected::Buffer,
            envelopes: ENVELOPES,
            operations: OPERATIONS_MAX,
        };
        let id = self.core.open(now, options).map_err(OpenError::Core)?;
        let ports = &mut self.tables.ports;
        while ports.len() <= id.index() {
            ports.push(None);
        }
        if let Some(port) = ports.get_mut(id.index()) {
            *port = Some(Box::new(Port::new(id, At { place, index }, address)));
        }
        self.tables.by_number.insert(address.port(), id);
        Ok(id)
    }

    /// Closes an endpoint for its client. Its sends continue unless it is aborted.
    pub fn close(&mut self, sessions: &mut Sessions, now: u64, id: EndpointId, abort: bool) {
        let Some(port) = self.tables.port(id) else { return };
        let (place, claims) = (port.place, port.claims().collect::<Vec<_>>());
        if let Some(session) = sessions.at(place) {
            port.close(session);
            session.draining_messages += 1;
        }
        let unfinished = self.tables.unfinished(id);
        let Self { core, tables, .. } = self;
        let hands = &mut Hands { tables, sessions };
        for claim in claims {
            // A claim that has ended needs no discard.
            let _ = core.discard(now, claim, hands);
        }
        for send in unfinished {
            core.cancel_send(send);
        }
        if abort {
            core.abort(now, id, hands);
        } else {
            core.close(now, id, hands);
            self.closing.push_back((now.saturating_add(DRAIN_NS), id));
        }
        self.take_events(sessions, now);
    }

    /// Schedules an endpoint for the next turn.
    fn block(&mut self, id: EndpointId) {
        if let Some(port) = self.tables.port(id)
            && !std::mem::replace(&mut port.is_blocked, true)
        {
            self.blocked.push(id);
        }
    }

    /// Serves the endpoints with pending work. `true`: some still have work.
    pub fn retry(&mut self, stack: &Stack, sessions: &mut Sessions, now: u64) -> bool {
        let mut more = false;
        for id in std::mem::take(&mut self.blocked) {
            let Some(port) = self.tables.port(id) else { continue };
            port.is_blocked = false;
            port.flush(sessions);
            let flows = port.flows();
            let Some(At { place, index }) = port.at else { continue };
            if flows {
                self.extend_windows(sessions, now, id);
            }
            more |= self.serve(stack, sessions, now, (place, index));
        }
        more
    }

    /// Whether [`Self::retry`] has work.
    pub fn is_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    /// The time of the service's next turn.
    pub fn next_deadline(&self) -> Option<u64> {
        let closing = self.closing.front().map(|(deadline, _)| *deadline);
        self.core.next_deadline().into_iter().chain(closing).min()
    }

    /// The same for a worker that may sleep: clients with full queues ring, but other conditions
    /// they may wait for (buffers of their session) are polled.
    pub fn next_look(&self, now: u64) -> Option<u64> {
        let blocked = self.is_blocked().then(|| now.saturating_add(BLOCKED_NS));
        self.next_deadline().into_iter().chain(blocked).min()
    }

    /// Runs the timers that are due.
    pub fn on_timers(&mut self, sessions: &mut Sessions, now: u64) {
        while let Some((deadline, id)) = self.closing.front().copied() {
            if deadline > now {
                break;
            }
            self.closing.pop_front();
            if self.tables.port(id).is_some() {
                self.counts.drains_ended += 1;
                let Self { core, tables, .. } = self;
                core.abort(now, id, &mut Hands { tables, sessions });
            }
        }
        if self.core.next_deadline().is_some_and(|deadline| deadline <= now) {
            let Self { core, tables, .. } = self;
            core.on_timers(now, &mut Hands { tables, sessions });
        }
    }

    /// Send buffers of a session held by messages, by descriptors; a scan, for checks only.
    pub fn spans_of(&self, place: u32) -> u32 {
        let is_of = |endpoint: EndpointId| {
            let port = self.tables.ports.get(endpoint.index()).and_then(Option::as_ref);
            port.is_some_and(|port| port.place == place)
        };
        let sends = self.tables.sends.iter().filter(|(_, op)| is_of(op.endpoint));
        let partial = self.tables.ports.iter().flatten().filter(|port| port.place == place);
        let of_sends: usize = sends.map(|(_, op)| op.placed.spans()).sum();
        let of_receives: usize = (self.tables.receives.iter())
            .filter(|(_, op)| is_of(op.endpoint))
            .map(|(_, op)| match &op.room {
                Room::Placed(placed) => placed.spans(),
                Room::Space(_) => 0,
            })
            .sum();
        let partial: usize = partial.map(|port| port.partial.len()).sum();
        (of_sends + of_receives + partial) as u32
    }

    /// Calls `each` with every counter.
    pub fn each_counter(&self, mut each: impl FnMut(&'static str, u64)) {
        let open = self.tables.ports.iter().flatten().filter(|port| port.at.is_some()).count();
        let waiting: u64 = self.tables.ports.iter().flatten().map(|port| port.spilled).sum();
        for (name, value) in [
            ("messages_endpoints", open as u64),
            ("messages_sends", self.tables.sends.len() as u64),
            ("messages_receives", self.tables.receives.len() as u64),
            ("messages_buffered", self.tables.kept.len() as u64),
            ("messages_hosts", self.hosts.count() as u64),
            ("messages_rx_frames", self.counts.rx),
            ("messages_tx_frames", self.counts.tx),
            ("messages_rx_ethernet", self.counts.rx_ethernet),
            ("messages_tx_ethernet", self.counts.tx_ethernet),
            ("messages_ethernet_malformed", self.counts.ethernet_malformed),
            ("messages_ethernet_misaddressed", self.counts.ethernet_misaddressed),
            ("messages_tx_failed", self.counts.tx_failed),
            ("messages_hosts_refused", self.counts.hosts_refused),
            ("messages_spilled", self.counts.spilled + waiting),
            ("messages_drains_ended", self.counts.drains_ended),
            ("messages_windows_refused", self.counts.windows_refused),
            ("messages_memory_refused", self.counts.memory_refused),
            ("messages_pieces_refused", self.counts.pieces_refused),
        ] {
            each(name, value);
        }
        self.core.counters().each().for_each(|(name, value)| each(name, value));
    }
}
