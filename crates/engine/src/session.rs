//! A program's attachment: its region, lanes, buffers and endpoints, as the engine keeps them
//! privately.

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
use crate::endpoint::{Endpoint, NO_BUFFER, Role};
use crate::lane::Lane;
use crate::linger::Orphan;
use crate::pool::Pool;
use crate::promises::Promises;
use crate::registered::SpanMemory;
use crate::share::{Tallies, Tally};
use crate::signing::PeerKey;
use crate::spans::Spans;

/// The pipe ends of a lane that the engine keeps.
pub struct LanePipes {
    /// A byte here wakes the client.
    pub wake_client: OwnedFd,
    /// The client's bytes for a sleeping lane.
    pub woken_by_client: OwnedFd,
}

/// Who is behind a session, as the kernel vouches (but for the program's name).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionWho {
    /// The program's name, as it says.
    pub program: String,
    /// Process id.
    pub pid: i32,
    /// User id.
    pub uid: u32,
}

/// What a worker makes a session from.
pub struct SessionSeed {
    /// Its name.
    pub key: SessionKey,
    /// Layout of the region.
    pub geometry: Geometry,
    /// The mapped region.
    pub region: Arc<Region>,
    /// One pair for each lane; `None` in simulation, where nobody sleeps.
    pub pipes: Option<Vec<LanePipes>>,
    /// Who it is.
    pub who: SessionWho,
}

/// Why a client lost its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breach {
    /// What lies in the region is not what the contract allows.
    Contract(shm::engine_side::Breach),
    /// A span lies in a buffer that was not granted to the lane.
    BufferNotGranted {
        /// Where.
        endpoint: u32,
        /// The buffer.
        buffer: u32,
    },
    /// A descriptor of the wrong kind for its endpoint, or after the end of the stream.
    WrongKind {
        /// Where.
        endpoint: u32,
    },
    /// A message command that is none, or whose numbers do not go together.
    BadMessage {
        /// Where.
        endpoint: u32,
    },
    /// A datagram's header does not fit its span.
    BadDatagram {
        /// Where.
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

/// A session as its worker keeps it.
pub struct Session {
    /// Its name.
    pub key: SessionKey,
    /// Who it is.
    pub who: SessionWho,
    /// The mapped region.
    pub region: Arc<Region>,
    /// Where the bytes of its spans lie.
    pub memory: Arc<SpanMemory>,
    /// Lanes of this worker, one for each context.
    pub lanes: Vec<Lane>,
    /// The buffers.
    pub pool: Pool,
    /// What its connections' receive windows may take of them.
    pub promises: Promises,
    /// Descriptors of streams.
    pub spans: Spans,
    /// Endpoints, as many as were ever in use at a time.
    pub endpoints: Vec<Endpoint>,
    /// Endpoints to be granted, last in, first out.
    pub free_endpoints: Vec<u32>,
    /// What all sessions of the same user have.
    pub of_user: Tallies,
    /// What all sessions have.
    pub of_all: Tallies,
    /// Endpoints whose descriptors wait for a span.
    pub waiting_for_span: Vec<u32>,
    /// Where records end (MSG_EOR) among the descriptors that were taken last.
    pub record_ends: Vec<u64>,
    /// Bytes to be told of (SO_TIMESTAMPING) among the same descriptors, and what.
    pub stamps: Vec<(u64, u8)>,
    /// Keys for the listener or the connection that is made next.
    pub keys_of_next: Vec<PeerKey>,
    /// A key of which only a part has come.
    pub key_begun: Vec<u8>,
    /// Listening endpoints whose waiting connections are not shown for lack of buffers.
    pub waiting_to_accept: Vec<u32>,
    /// Endpoints that hold pages and were not asked to ring when they have read them.
    pub unswept: Vec<u32>,
    /// The endpoint at which the last look for stalled connections stopped.
    pub looked_at: usize,
    /// Connections that it has made or accepted.
    pub streams_born: u64,
    /// Closed connections that still deliver what was written.
    pub orphans: Vec<Option<Orphan>>,
    /// Free places in `orphans`.
    pub free_orphans: Vec<u32>,
    /// Their places and connections, the oldest in front; some have ended.
    pub orphans_by_age: VecDeque<(u32, SocketId)>,
    /// Pages of messages that lie in private memory, since the pool had no buffer.
    pub private_pages: Arc<AtomicU32>,
    /// Bytes that its posted receives may take before the client has read any.
    pub message_windows: u64,
    /// Bytes of announced messages that there is room for.
    pub announced_bytes: u64,
    /// Closed message endpoints whose sends go on.
    pub draining_messages: u32,
    /// Local addresses authorized for one connect each.
    pub tokens: BTreeMap<u32, Authorized>,
    /// The next token.
    pub next_token: u32,
    /// The program is gone, and what it had is being ended.
    pub is_ending: bool,
    /// The program is gone: only orphans remain. Since when.
    pub dying_since: Option<u64>,
    /// Set when the client broke the contract; acted upon at the end of the turn.
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

/// Most authorized addresses that wait for their connect.
pub const TOKENS_MAX: usize = 1024;

impl Session {
    /// A fresh session on worker `worker`.
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
            // Its memory is taken page by page as endpoints are granted, and never moved.
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

    /// Takes a free endpoint for the lane of `context`; its area is as new.
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

    /// The endpoint is the engine's again.
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
        let held = |endpoint: &Endpoint| match &endpoint.role {
            Role::Stream(stream) => {
                stream.receive.pages.iter().filter(|buffer| *buffer != NO_BUFFER).count()
            }
            Role::Datagram(datagram) => datagram.buffers.len(),
            Role::Listener(_)
            | Role::Raw(_)
            | Role::Messages(_)
            | Role::Revoked
            | Role::Moved
            | Role::Free => 0,
        };
        self.endpoints.iter().map(held).sum::<usize>() as u32 + self.pool.shared()
    }

    /// Goes on with memory that the control thread has made. `false`: its number is in use.
    pub fn register(&mut self, number: u16, memory: Arc<Registered>) -> bool {
        let is_new = self.pool.registered.add(number, memory.bytes());
        if is_new {
            self.memory = Arc::new(self.memory.with(number, memory));
        }
        is_new
    }

    /// The client uses a registered memory no more. `true`: it is gone.
    pub fn unregister(&mut self, number: u16) -> bool {
        let is_gone = self.pool.registered.close(number);
        if is_gone {
            self.memory = Arc::new(self.memory.without(number));
        }
        is_gone
    }

    /// The number of a registered memory that is gone since its last span was dropped.
    pub fn take_unregistered(&mut self) -> Option<u16> {
        let number = self.pool.registered.take_ended()?;
        self.memory = Arc::new(self.memory.without(number));
        Some(number)
    }

    /// Notes a breach; the first one counts.
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
