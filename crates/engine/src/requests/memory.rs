//! Registering and releasing memory of a session.

use std::sync::Arc;

use shm::memory::Registered;

use crate::control::exchange::{Answer, SessionKey};
use crate::session::Session;
use crate::worker::Worker;

impl Worker {
    /// A session has another memory, created by the control thread.
    pub(crate) fn register(
        &mut self,
        session: SessionKey,
        serial: u32,
        number: u16,
        memory: Arc<Registered>,
    ) {
        let place = self.sessions.place_of(session);
        let served = place
            .and_then(|place| self.sessions.at(place))
            .filter(|session| session.is_served() && !session.is_ending);
        let is_known = served.is_some_and(|session| session.register(number, memory));
        self.answers.push(Answer::Registered { session, serial, number, is_known });
    }

    /// A session releases a memory; it is dropped at once, or when its last span is no longer in
    /// use.
    pub(crate) fn unregister(&mut self, session: SessionKey, number: u16) {
        let Some(place) = self.sessions.place_of(session) else { return };
        let Some(of) = self.sessions.at(place) else { return };
        if of.unregister(number) {
            self.answers.push(Answer::Unregistered { session, number });
        } else if of.pool.registered.is_closing() && !self.closing_memories.contains(&session) {
            self.closing_memories.push(session);
        }
    }

    /// Drops the closed memories whose last span was dropped.
    pub(crate) fn leave_memories(&mut self) {
        let Self { sessions, answers, closing_memories, .. } = self;
        closing_memories.retain(|key| {
            let place = sessions.place_of(*key);
            let Some(of) = place.and_then(|place| sessions.at(place)) else { return false };
            while let Some(number) = Session::take_unregistered(of) {
                answers.push(Answer::Unregistered { session: *key, number });
            }
            of.pool.registered.is_closing()
        });
    }
}
