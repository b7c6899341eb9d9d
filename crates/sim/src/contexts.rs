//! The contexts of a program: a client in each, over one region.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use client::{EndpointId, Session};

use crate::random::Random;

/// A client in each context of a program, and the engine's ends of their control sockets.
pub struct Contexts {
    sessions: Vec<Arc<Session>>,
    engine_ends: Vec<OwnedFd>,
    random: Random,
}

impl Contexts {
    /// With the clients of contexts 0, 1 and so on.
    pub fn new(attached: Vec<(Arc<Session>, OwnedFd)>, random: Random) -> Self {
        let (sessions, engine_ends) = attached.into_iter().unzip();
        Self { sessions, engine_ends, random }
    }

    /// A context drawn at random, and its client.
    pub fn any(&mut self) -> (u16, &Arc<Session>) {
        let context = self.random.below(self.sessions.len() as u64) as u16;
        (context, &self.sessions[usize::from(context)])
    }

    /// Whether the program still has its engine.
    pub fn is_alive(&self) -> bool {
        self.sessions.iter().all(|session| session.is_alive())
    }

    /// All clients find the engine gone.
    pub fn end(&mut self) {
        self.engine_ends.clear();
        for session in &self.sessions {
            session.probe();
        }
    }

    /// Takes the events of all contexts.
    pub fn take_events(&self, events: &mut Vec<EndpointId>) {
        for session in &self.sessions {
            session.take_events(events);
        }
    }
}
