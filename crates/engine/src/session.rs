//! A program's attachment: the engine's private state of its region, lanes, buffers and endpoints.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use shm::control::Geometry;
use shm::engine_side::EngineEndpoint;
use shm::memory::Registered;
use shm::region::Region;
use stack::api::SocketId;

use crate::config::Limits;
use crate::control::exchange::{SessionKey, SocketKey};
use crate::endpoint::{Endpoint, Role};
use crate::lane::Lane;
use crate::linger::Orphan;
use crate::pool::Pool;
use crate::promises::Promises;
use crate::registered::SpanMemory;
use crate::share::{Tallies, Tally};
use crate::signing::PeerKey;
use crate::spans::Spans;

/// The engine's pipe ends of a lane.
pub struct LanePipes {
    /// A byte here wakes the client.
    pub wake_client: OwnedFd,
    /// The client's bytes for a sleeping lane.
    pub woken_by_client: OwnedFd,
}

/// The owner of a session, identified by the kernel (except for the program's name).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionWho {
    /// The program's name, as reported by itself.
    pub program: String,
    /// Process id.
    pub pid: i32,
    /// User id.
    pub uid: u32,
}

/// Parameters of a session.
pub struct SessionSeed {
    /// Its key.
    pub key: SessionKey,
    /// Layout of the region.
    pub geometry: Geometry,
    /// The mapped region.
    pub region: Arc<Region>,
    /// One pair for each lane; `None` in simulation, where no thread sleeps.
    pub pipes: Option<Vec<LanePipes>>,
    /// Its owner.
    pub who: SessionWho,
}

/// Why a client lost its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breach {
    /// The region's contents violate the contract.
    Contract(shm::engine_side::Breach),
    /// A span is in a buffer that was not granted to the lane.
    BufferNotGranted {
        /// The endpoint.
        endpoint: u32,
        /// The buffer.
        buffer: u32,
    },
    /// A descriptor of the wrong kind for its endpoint, or after the end of the stream.
    WrongKind {
        /// The endpoint.
        endpoint: u32,
    },
    /// A message command is invalid or inconsistent.
    BadMessage {
        /// The endpoint.
        endpoint: u32,
    },
    /// A datagram's header does not fit its span.
    BadDatagram {
        /// The endpoint.
        endpoint: u32,
    },
}

impl std::fmt::Display for Breach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Contract(breach) => breach.fmt(f),
            Self::BufferNotGranted { endpoint, buffer } => {
                write!(f, "endpoint {endpoint}: buffer {buffer} was not granted to its lane")
            }
            Self::WrongKind { endpoint } => {
                write!(f, "endpoint {endpoint}: a descriptor that does not belong there")
            }
            Self::BadMessage { endpoint } => {
                write!(f, "endpoint {endpoint}: a malformed message command")
            }
            Self::BadDatagram { endpoint } => {
                write!(f, "endpoint {endpoint}: a datagram longer than its span")
            }
        }
    }
}

/// A session in its worker.
pub struct Session {
    /// Its key.
    pub key: SessionKey,
    /// Its owner.
    pub who: SessionWho,
    /// The mapped region.
    pub region: Arc<Region>,
    /// Location of the bytes of its spans.
    pub memory: Arc<SpanMemory>,
    /// Lanes of this worker, one for each context.
    pub lanes: Vec<Lane>,
    /// The buffers.
    pub pool: Pool,
    /// Receive windows promised to its connections.
    pub promises: Promises,
    /// Descriptors of streams.
    pub spans: Spans,
    /// Endpoints, as many as were ever in use at the same time.
    pub endpoints: Vec<Endpoint>,
    /// Free endpoints, last in, first out.
    pub free_endpoints: Vec<u32>,
    /// Tallies of all sessions of the same user.
    pub of_user: Tallies,
    /// Tallies of all sessions.
    pub of_all: Tallies,
    /// Endpoints whose descriptors wait for a span.
    pub waiting_for_span: Vec<u32>,
    /// Ends of records (MSG_EOR) among the descriptors taken last.
    pub record_ends: Vec<u64>,
    /// Byte positions to report (SO_TIMESTAMPING) among the same descriptors, with flags.
    pub stamps: Vec<(u64, u8)>,
    /// Keys for the next listener or connection.
    pub keys_of_next: Vec<PeerKey>,
    /// The first part of a key, while it is incomplete.
    pub key_begun: Vec<u8>,
    /// Listening endpoints whose pending connections are hidden for lack of buffers.
    pub waiting_to_accept: Vec<u32>,
    /// Endpoints that hold pages without a doorbell request.
    pub unswept: Vec<u32>,
    /// The endpoint at which the last search for stalled connections stopped.
    pub looked_at: usize,
    /// Number of connections opened or accepted.
    pub streams_born: u64,
    /// Closed connections that still deliver data.
    pub orphans: Vec<Option<Orphan>>,
    /// Free slots in `orphans`.
    pub free_orphans: Vec<u32>,
    /// Their slots and connections, oldest first; some have ended.
    pub orphans_by_age: VecDeque<(u32, SocketId)>,
    /// Pages of messages in private memory, for lack of buffers.
    pub private_pages: Arc<AtomicU32>,
    /// Bytes that its posted receives may take before the client has read any.
    pub message_windows: u64,
    /// Bytes of announced messages for which room is reserved.
    pub announced_bytes: u64,
    /// Closed message endpoints whose sends continue.
    pub draining_messages: u32,
    /// Local addresses authorized for one connect each.
    pub tokens: BTreeMap<u32, Authorized>,
    /// The next token.
    pub next_token: u32,
    /// The program is gone, and its endpoints are being ended.
    pub is_ending: bool,
    /// The program is gone, and only orphans remain; since when.
    pub dying_since: Option<u64>,
    /// Set when the client broke the contract; handled at the end of the turn.
    pub breach: Option<Breach>,
    /// Breaches of all sessions that have not been acted upon.
    pub breaches: Tally,
}

impl Drop for Session {
    fn drop(&mut self) {
        let used = self.endpoints_used() as u32;
        self.of_user.endpoints.sub(used);
        self.of_all.endpoints.sub(used);
    }
}

/// A local address from which a session may connect once.
#[derive(Clone, Copy, Debug)]
pub struct Authorized {
    /// The address.
    pub local: SocketAddr,
    /// The kernel socket that is bound to it.
    pub key: SocketKey,
    /// That socket has SO_REUSEADDR or SO_REUSEPORT.
    pub reuses: bool,
}

/// Maximum number of authorized addresses that wait for their connect.
pub const TOKENS_MAX: usize = 1024;

impl Session {
    /// Creates a session on worker `worker`.
    pub fn new(seed: SessionSeed, worker: u16, limits: &Limits, now: u64) -> Self {
        let geometry = seed.geometry;
        let mut pipes = seed.pipes.map(Vec::into_iter);
        let mut lanes = Vec::with_capacity(usize::from(geometry.context_count));
        for context in 0..geometry.context_count {
            for of_worker in 0..geometry.worker_count {
                let pipes = pipes.as_mut().and_then(Iterator::next);
                if of_worker == worker {
                    lanes.push(Lane::new(&seed.region, context, worker, pipes, now));
                }
            }
        }
        Self {
            key: seed.key,
            who: seed.who,
            memory: Arc::new(SpanMemory::new(Arc::clone(&seed.region))),
            region: seed.region,
            lanes,
            pool: Pool::new(geometry.buffer_count, geometry.buffer_bytes),
            promises: Promises::default(),
            spans: Spans::new(limits.spans),
            // Its memory is touched page by page as endpoints are granted, and never moved.
            endpoints: Vec::with_capacity(geometry.endpoint_capacity as usize),
            free_endpoints: Vec::new(),
            of_user: Tallies::default(),
            of_all: Tallies::default(),
            waiting_for_span: Vec::new(),
            record_ends: Vec::new(),
            stamps: Vec::new(),
            keys_of_next: Vec::new(),
            key_begun: Vec::new(),
            waiting_to_accept: Vec::new(),
            unswept: Vec::new(),
            looked_at: 0,
            orphans: Vec::new(),
            streams_born: 0,
            free_orphans: Vec::new(),
            orphans_by_age: VecDeque::new(),
            private_pages: Arc::default(),
            message_windows: 0,
            announced_bytes: 0,
            draining_messages: 0,
            tokens: BTreeMap::new(),
            next_token: 1,
            is_ending: false,
            dying_since: None,
            breach: None,
            breaches: Tally::default(),
        }
    }

    /// Takes a free endpoint for the lane of `context`; its area is reset.
    pub fn grant_endpoint(&mut self, context: u16) -> Option<u32> {
        let index = self.find_endpoint(context)?;
        self.of_user.endpoints.add(1);
        self.of_all.endpoints.add(1);
        Some(index)
    }

    fn find_endpoint(&mut self, context: u16) -> Option<u32> {
        self.lanes.get(usize::from(context))?;
        let capacity = self.region.geometry().endpoint_capacity as usize;
        let index = match self.free_endpoints.pop() {
            Some(index) => index,
            None => {
                let index = self.endpoints.len() as u32;
                if index as usize >= capacity {
                    return None;
                }
                self.endpoints.push(Endpoint {
                    view: EngineEndpoint::new(Arc::clone(&self.region), index),
                    lane: context,
                    shown: None,
                    has_news: false,
                    role: Role::Free,
                });
                index
            }
        };
        let endpoint = self.endpoints.get_mut(index as usize)?;
        endpoint.lane = context;
        endpoint.view.clear();
        endpoint.has_news = false;
        Some(index)
    }

    /// Returns an endpoint to the free list.
    pub fn free_endpoint(&mut self, index: u32) {
        if let Some(endpoint) = self.endpoints.get_mut(index as usize) {
            endpoint.role = Role::Free;
            self.free_endpoints.push(index);
            self.of_user.endpoints.sub(1);
            self.of_all.endpoints.sub(1);
        }
    }

    /// Endpoints in use.
    pub fn endpoints_used(&self) -> usize {
        self.endpoints.len() - self.free_endpoints.len()
    }

    /// Buffers that endpoints hold for received bytes; a scan, for checks only.
    pub fn receive_buffers(&self) -> u32 {
        let held = |endpoint: &Endpoint| endpoint.role.receive_buffers();
        self.endpoints.iter().map(held).sum::<usize>() as u32 + self.pool.shared()
    }

    /// Adds memory created by the control thread. `false`: its number is in use.
    pub fn register(&mut self, number: u16, memory: Arc<Registered>) -> bool {
        let is_new = self.pool.registered.add(number, memory.bytes());
        if is_new {
            self.memory = Arc::new(self.memory.with(number, memory));
        }
        is_new
    }

    /// The client releases a registered memory. `true`: it is gone.
    pub fn unregister(&mut self, number: u16) -> bool {
        let is_gone = self.pool.registered.close(number);
        if is_gone {
            self.memory = Arc::new(self.memory.without(number));
        }
        is_gone
    }

    /// The number of a registered memory that ended with its last span.
    pub fn take_unregistered(&mut self) -> Option<u16> {
        let number = self.pool.registered.take_ended()?;
        self.memory = Arc::new(self.memory.without(number));
        Some(number)
    }

    /// Records a breach; the first one counts.
    pub fn breached(&mut self, breach: Breach) {
        if self.breach.is_none() {
            self.breach = Some(breach);
            self.breaches.add(1);
        }
    }

    /// Whether something waits for buffers or spans.
    pub fn waits(&self) -> bool {
        !self.waiting_to_accept.is_empty()
            || !self.waiting_for_span.is_empty()
            || self.lanes.iter().any(|lane| lane.starved)
    }

    /// Whether the client still works with the region.
    pub fn is_served(&self) -> bool {
        self.dying_since.is_none() && self.breach.is_none()
    }
}
