//! State of a domain's objects, behind one lock: endpoints, completion queues, counters, address
//! vectors. No C here: `objects` converts C's arguments to calls of [`State`].
//!
//! Progress is manual: reading a queue or counter processes the completions of all endpoints bound
//! to it.

pub mod counter;
pub mod endpoint;
pub mod operation;
pub mod queue;
pub mod vector;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use client::Session;
use slab::Slab;

use counter::Counter;
use endpoint::{EndpointState, Polled, Report, Side};
use queue::Queue;
use vector::Vector;

/// Completions taken from an endpoint in one call.
const BATCH: usize = 64;

/// A session with the engine and all objects opened on it.
pub struct DomainShared {
    /// The session that its endpoints belong to.
    pub session: Arc<Session>,
    /// The job's key, unless an endpoint names its own.
    pub key: Option<[u8; 16]>,
    state: Mutex<State>,
}

impl DomainShared {
    /// A domain without objects.
    pub fn new(session: Arc<Session>, key: Option<[u8; 16]>) -> Self {
        Self { session, key, state: Mutex::default() }
    }

    /// The objects, locked.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The objects of a domain, by their keys.
#[derive(Default)]
pub struct State {
    pub endpoints: Slab<EndpointState>,
    pub queues: Slab<Queue>,
    pub counters: Slab<Counter>,
    pub vectors: Slab<Vector>,
}

impl State {
    /// Processes the engine's completions for an endpoint.
    pub fn progress(&mut self, endpoint: usize) {
        for _ in 0..BATCH {
            let Some(of) = self.endpoints.get_mut(endpoint) else { return };
            if of.queues().any(|queue| self.queues.get(queue).is_some_and(Queue::is_full)) {
                return;
            }
            let vector = of.vector.and_then(|vector| self.vectors.get(vector));
            match of.poll(vector) {
                Polled::Nothing => return,
                Polled::Completed(Some(report)) => self.deliver(endpoint, report),
                Polled::Completed(None) => {}
                Polled::Lost(reports) => {
                    for report in reports {
                        self.deliver(endpoint, report);
                    }
                    return;
                }
            }
        }
    }

    /// Delivers a completion according to the endpoint's bindings.
    pub fn deliver(&mut self, endpoint: usize, report: Report) {
        let Some(of) = self.endpoints.get(endpoint) else { return };
        let side = match report.side {
            Side::Transmit => &of.transmit,
            Side::Receive => &of.receive,
        };
        if report.is_counted
            && let Some(counter) = side.counter.and_then(|key| self.counters.get_mut(key))
        {
            counter.count(report.has_failed);
        }
        if let Some(entry) = report.entry
            && let Some(queue) = side.queue.and_then(|key| self.queues.get_mut(key))
        {
            queue.push(entry);
        }
    }

    /// Progress of all endpoints bound to a queue.
    pub fn progress_queue(&mut self, queue: usize) {
        for place in 0.. {
            let bound = self.queues.get(queue).and_then(|queue| queue.endpoints.get(place));
            let Some(&endpoint) = bound else { return };
            self.progress(endpoint);
        }
    }

    /// Progress of all endpoints bound to a counter.
    pub fn progress_counter(&mut self, counter: usize) {
        for place in 0.. {
            let bound = self.counters.get(counter).and_then(|of| of.endpoints.get(place));
            let Some(&endpoint) = bound else { return };
            self.progress(endpoint);
        }
    }

    /// Takes an endpoint out; nothing of it completes any more.
    pub fn close_endpoint(&mut self, endpoint: usize) {
        let Some(of) = self.endpoints.try_remove(endpoint) else { return };
        of.transport.close();
        for (_, queue) in &mut self.queues {
            queue.endpoints.retain(|bound| *bound != endpoint);
        }
        for (_, counter) in &mut self.counters {
            counter.endpoints.retain(|bound| *bound != endpoint);
        }
    }

    /// Removes an address, also from the endpoints' caches.
    ///
    /// # Errors
    /// `None` if there is no such address.
    pub fn remove_address(&mut self, vector: usize, address: u64) -> Option<()> {
        self.vectors.get_mut(vector)?.remove(address)?;
        for (_, endpoint) in &mut self.endpoints {
            if endpoint.vector == Some(vector) {
                endpoint.forget(address);
            }
        }
        Some(())
    }

    /// Whether a vector is bound to an endpoint.
    pub fn is_vector_used(&self, vector: usize) -> bool {
        self.endpoints.iter().any(|(_, endpoint)| endpoint.vector == Some(vector))
    }

    /// The transports to wait for until a queue has an event.
    pub fn transports(&self, endpoints: &[usize]) -> Vec<Arc<client::message::Endpoint>> {
        let known = endpoints.iter().filter_map(|endpoint| self.endpoints.get(*endpoint));
        known.map(|endpoint| endpoint.transport.clone()).collect()
    }
}
