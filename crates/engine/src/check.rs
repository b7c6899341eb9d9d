//! Invariants that hold between turns, and replacement of the stack by its own export: for
//! simulation and tests, never on the path of a packet.

use stack::{ImportError, Stack};

use crate::control::exchange::SessionKey;
use crate::errors::ConservationError;
use crate::requests::LaneRef;
use crate::session::Session;
use crate::worker::Worker;

impl Worker {
    /// The protocol state, for inspection.
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    /// Replaces the stack by an import of its own export, as a successor would. Returns the size of
    /// the export in bytes.
    ///
    /// # Errors
    /// If the stack refuses its own export.
    pub fn renew_stack(&mut self) -> Result<usize, ImportError> {
        let image = self.stack.export();
        self.stack = Stack::import(&image)?;
        Ok(image.len())
    }

    /// Sessions whose memory has not been returned: those attached, and those of dead programs
    /// whose connections still deliver.
    pub fn session_count(&self) -> usize {
        self.sessions.iter().count()
    }

    /// The breach of contract of a session that still delivers.
    pub fn breach(&self, key: SessionKey) -> Option<String> {
        let place = self.sessions.place_of(key)?;
        Some(self.sessions.peek(place)?.breach?.to_string())
    }

    /// Whether every buffer and every span of every session has exactly one holder, and whatever a
    /// turn has to look at is listed. A scan.
    ///
    /// # Errors
    /// The first session for which this does not hold, with the counts.
    pub fn check_conservation(&self) -> Result<(), ConservationError> {
        for (place, session) in self.sessions.iter() {
            let messages = self.sessions.messages.as_ref().map_or(0, |of| of.spans_of(place));
            let checked = session.check_conservation(messages);
            checked.and_then(|()| self.check_due(place, session)).map_err(|counts| {
                let program = session.who.program.clone();
                ConservationError { session: session.key.0, program, counts }
            })?;
        }
        Ok(())
    }

    fn check_due(&self, place: u32, session: &Session) -> Result<(), String> {
        for (lane, of) in (0..).zip(&session.lanes) {
            let is_listed = self.due.polled.contains(LaneRef { place, lane });
            if is_listed != (of.polled && session.dying_since.is_none()) {
                return Err(format!("lane {lane}: polled is {}, listed {is_listed}", of.polled));
            }
            if of.to_finish && !self.due.finish.contains(place) {
                return Err(format!("lane {lane} has events that nobody will finish"));
            }
        }
        if session.waits() && !self.due.retry.contains(place) {
            return Err("it waits for buffers or spans, and nobody will try again".into());
        }
        Ok(())
    }
}

impl Session {
    fn check_conservation(&self, messages: u32) -> Result<(), String> {
        let census = self.pool.census();
        let held = census.free + census.granted + census.closing + census.receiving;
        if held != self.pool.total() || census.free as usize != self.pool.free() {
            return Err(format!("{census:?} of {} buffers", self.pool.total()));
        }
        if census.receiving != self.receive_buffers() {
            let named = self.receive_buffers();
            return Err(format!("{} buffers receive, {named} are named", census.receiving));
        }
        let mut listed = self.orphans.iter().flatten().map(|one| one.list.count()).sum::<u32>();
        let mut outstanding = messages;
        for endpoint in &self.endpoints {
            listed += endpoint.role.listed_spans();
            outstanding += endpoint.role.held_spans();
        }
        let spans = self.spans.total() - self.spans.free();
        if listed != spans {
            return Err(format!("{spans} spans are taken, {listed} are listed"));
        }
        let counted = self.pool.outstanding_spans();
        if counted != listed + outstanding {
            let of = listed + outstanding;
            return Err(format!("buffers count {counted} spans, their holders {of}"));
        }
        Ok(())
    }
}
