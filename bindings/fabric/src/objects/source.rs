//! Sources to wait for: queues and counters of a domain, event queues.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use client::message::Endpoint;

use super::events::Events;
use crate::state::DomainShared;

/// Maximum sleep before checking for events without a wakeup of the engine (a signal, another
/// thread's event).
const SLICE: Duration = Duration::from_millis(10);

/// A source of events.
#[derive(Clone)]
pub enum Source {
    /// A completion queue, by its key in the domain.
    Queue(Weak<DomainShared>, usize),
    /// A counter, by its key in the domain.
    Counter(Weak<DomainShared>, usize),
    /// An event queue.
    Events(Weak<Events>),
}

impl PartialEq for Source {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Queue(a, x), Self::Queue(b, y)) => a.ptr_eq(b) && x == y,
            (Self::Counter(a, x), Self::Counter(b, y)) => a.ptr_eq(b) && x == y,
            (Self::Events(a), Self::Events(b)) => a.ptr_eq(b),
            _ => false,
        }
    }
}

impl Source {
    /// Whether there is an entry, or a counter has changed since the last check.
    pub fn has_news(&self) -> bool {
        match self {
            Self::Queue(domain, key) => domain.upgrade().is_some_and(|domain| {
                let mut state = domain.state();
                state.progress_queue(*key);
                state.queues.get(*key).is_some_and(|queue| !queue.is_empty())
            }),
            Self::Counter(domain, key) => domain.upgrade().is_some_and(|domain| {
                let mut state = domain.state();
                state.progress_counter(*key);
                state.counters.get_mut(*key).is_some_and(|counter| counter.has_changed())
            }),
            Self::Events(events) => events.upgrade().is_some_and(|events| !events.is_empty()),
        }
    }

    /// The endpoints whose completions are its events.
    fn endpoints(&self) -> Vec<Arc<Endpoint>> {
        match self {
            Self::Queue(domain, key) => domain.upgrade().map_or(Vec::new(), |domain| {
                let state = domain.state();
                let bound = state.queues.get(*key).map(|queue| &queue.endpoints[..]);
                state.transports(bound.unwrap_or_default())
            }),
            Self::Counter(domain, key) => domain.upgrade().map_or(Vec::new(), |domain| {
                let state = domain.state();
                let bound = state.counters.get(*key).map(|counter| &counter.endpoints[..]);
                state.transports(bound.unwrap_or_default())
            }),
            Self::Events(_) => Vec::new(),
        }
    }
}

/// Waits until `ready` returns a value, up to `timeout` milliseconds, without limit if it is
/// negative; `None` on timeout.
pub fn wait<R>(
    sources: &[Source],
    timeout: i32,
    mut ready: impl FnMut() -> Option<R>,
) -> Option<R> {
    let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
    let deadline = timeout.map(|timeout| Instant::now() + timeout);
    loop {
        if let Some(result) = ready() {
            return Some(result);
        }
        let now = Instant::now();
        let left = deadline.map(|deadline| deadline.saturating_duration_since(now));
        if left == Some(Duration::ZERO) {
            return None;
        }
        let slice = left.map_or(SLICE, |left| left.min(SLICE));
        let endpoints: Vec<_> = sources.iter().flat_map(Source::endpoints).collect();
        // Several endpoints share the slice: each session has its own eventfd.
        let share = slice / u32::try_from(endpoints.len().max(1)).unwrap_or(u32::MAX);
        let slept =
            endpoints.iter().any(|endpoint| endpoint.wait(Some(Instant::now() + share)).is_ok());
        if !slept {
            thread::sleep(slice);
        }
    }
}
