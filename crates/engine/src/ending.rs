//! Orderly end of the engine. It admits no new connections, waits for existing ones, closes the
//! rest as close(2) would, and resets what cannot be delivered.

use port::Claim;
use stack::SocketInfo;
use stack::api::{SocketId, SocketKind, TcpState};
use stack::tcp::TcpInfo;

use crate::claims::places;
use crate::control::exchange::{Answer, SessionKey};
use crate::endpoint::Role;
use crate::sessions::Holder;
use crate::worker::Worker;

/// Interval between passes over the connections.
const LOOK_EVERY_NS: u64 = 20_000_000;
/// Sockets checked in one turn.
const PLACES_PER_TURN: usize = 256;
/// Minimum interval between reports of the remaining connections.
const TELL_EVERY_NS: u64 = 1_000_000_000;
/// Time for closed connections to deliver their data.
const CLOSING_NS: u64 = 1_000_000_000;

/// What has not ended yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Connections that are established, being opened, or still delivering.
    pub connections: usize,
    /// Programs attached.
    pub programs: usize,
}

/// Stage of the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// No new connections are admitted; existing ones are waited for.
    Draining {
        /// Maximum wait, in nanoseconds.
        limit_ns: u64,
    },
    /// Still waiting for these.
    Waiting(Left),
    /// The interfaces of all ports have been removed.
    Lost,
    /// The rest is being closed. Sessions have ended.
    Closing(Left),
    /// Everything is closed.
    Ended {
        /// Connections that had to be reset.
        reset: usize,
    },
}

/// The end, once it has begun.
#[derive(Debug)]
pub(crate) struct Ending {
    is_closing: bool,
    has_ended: bool,
    /// Deadline of this stage.
    until: u64,
    /// Where a pass continues; `None` between two.
    place: Option<usize>,
    next_look: u64,
    /// Connections found by the current pass.
    found: usize,
    told: Option<Left>,
    told_at: u64,
}

impl Ending {
    fn new(is_closing: bool, now: u64, limit_ns: u64) -> Self {
        Self {
            is_closing,
            has_ended: false,
            until: now.saturating_add(limit_ns),
            place: None,
            next_look: now,
            found: 0,
            told: None,
            told_at: 0,
        }
    }
}

/// Whether a connection still has to do something that its peer would miss.
fn is_live(info: &TcpInfo) -> bool {
    let is_delivered =
        info.state == TcpState::FinWait2 && matches!(Holder::of(info.owner), Holder::Orphan { .. });
    info.kind == SocketKind::Connection
        && !is_delivered
        && !matches!(info.state, TcpState::TimeWait | TcpState::Closed)
}

impl Worker {
    /// Whether new connections, listeners and connects are admitted.
    pub(crate) fn admits(&self) -> bool {
        self.is_open && self.ending.is_none()
    }

    /// Stops admitting new connections while the kernel has rules that the engine does not follow,
    /// and resumes when they are gone. Established connections continue.
    pub(crate) fn set_open(&mut self, is_open: bool) {
        if std::mem::replace(&mut self.is_open, is_open) != is_open {
            self.renew_claims();
        }
    }

    /// Claims listeners, or reverts them to the kernel except for established connections.
    fn renew_claims(&mut self) {
        let listens = self.admits();
        let all: Vec<u32> = self.listeners.iter().map(|(of, _)| of).collect();
        for of in all {
            self.claim_listener(of);
        }
        for place in 0..self.sessions.place_count() {
            let endpoints = self.sessions.peek(place).map(|session| session.endpoints.iter());
            let ids: Vec<SocketId> = endpoints
                .into_iter()
                .flatten()
                .filter_map(|endpoint| match &endpoint.role {
                    Role::Datagram(datagram) => Some(datagram.id),
                    _ => None,
                })
                .collect();
            for id in ids {
                let Ok(info) = self.stack.udp_info(id) else { continue };
                match listens {
                    true => drop(self.claim_local(info.bound, Claim::Udp)),
                    false => {
                        places(info.bound).for_each(|local| self.release_claim(Claim::Udp(local)))
                    }
                }
            }
        }
    }

    /// Begins the end: new connections go to the kernel if it has the address, and are refused
    /// otherwise.
    pub(crate) fn drain(&mut self, limit_ns: u64) {
        if self.ending.is_some() {
            return;
        }
        self.ending = Some(Ending::new(false, self.now.0, limit_ns));
        self.renew_claims();
        for attached in &self.ports {
            if attached.port.info().shared.is_none() {
                self.stack.refuse_connections(attached.interface);
            }
        }
        self.answers.push(Answer::Ending(Stage::Draining { limit_ns }));
    }

    /// Stops waiting for connections and closes them.
    pub(crate) fn close_all(&mut self) {
        self.drain(0);
        if self.ending.as_ref().is_some_and(|ending| ending.is_closing) {
            return;
        }
        let left = Left { connections: self.live_connections().len(), programs: self.programs() };
        self.answers.push(Answer::Ending(Stage::Closing(left)));
        self.ending = Some(Ending::new(true, self.now.0, CLOSING_NS));
        let keys: Vec<SessionKey> = self.sessions.iter().map(|(_, one)| one.key).collect();
        for key in keys {
            self.detach(key);
        }
    }

    /// Programs attached. The relay is a part of the engine.
    fn programs(&self) -> usize {
        let relay = self.passing.relay;
        let is_program = |key| Some(key) != relay;
        self.sessions.iter().filter(|(_, one)| one.is_served() && is_program(one.key)).count()
    }

    /// Collects all at once: only when the waiting is over.
    fn live_connections(&self) -> Vec<SocketId> {
        let live = |socket| match socket {
            SocketInfo::Tcp(id, info) if is_live(&info) => Some(id),
            _ => None,
        };
        self.stack.sockets().filter_map(live).collect()
    }

    /// Whether the interfaces of all ports have been removed, so that nothing is left to do.
    pub fn has_lost_all(&self) -> bool {
        self.ports.iter().all(|attached| attached.gone || attached.port.is_gone())
    }

    /// Checks whether the end can proceed, or must begin.
    pub(crate) fn look_at_end(&mut self) {
        if self.ending.is_none() && self.has_lost_all() {
            self.answers.push(Answer::Ending(Stage::Lost));
            self.close_all();
        }
        let Some(ending) = &mut self.ending else { return };
        if ending.has_ended {
            return;
        }
        let is_over = self.now.0 >= ending.until;
        let place = match ending.place {
            _ if is_over => 0,
            Some(place) => place,
            None if self.now.0 < ending.next_look => return,
            None => {
                ending.found = 0;
                0
            }
        };
        if !is_over {
            let end = self.stack.socket_places().min(place.saturating_add(PLACES_PER_TURN));
            for place in place..end {
                if let Some(SocketInfo::Tcp(_, info)) = self.stack.socket_at(place) {
                    ending.found += usize::from(is_live(&info));
                }
            }
            if end < self.stack.socket_places() {
                ending.place = Some(end);
                return;
            }
            ending.place = None;
            ending.next_look = self.now.0.saturating_add(LOOK_EVERY_NS);
        }
        let (found, is_closing) = (ending.found, ending.is_closing);
        match (is_closing, is_over || found == 0) {
            (false, true) => self.close_all(),
            (true, true) => self.end(),
            (false, false) => self.tell_left(found),
            (true, false) => {}
        }
    }

    fn tell_left(&mut self, connections: usize) {
        let left = Left { connections, programs: self.programs() };
        let now = self.now.0;
        let Some(ending) = &mut self.ending else { return };
        let is_due = now.saturating_sub(ending.told_at) >= TELL_EVERY_NS;
        if ending.told.is_none() || (is_due && ending.told != Some(left)) {
            (ending.told, ending.told_at) = (Some(left), now);
            self.answers.push(Answer::Ending(Stage::Waiting(left)));
        }
    }

    /// Resets what could not be delivered. The resets are sent in this turn.
    fn end(&mut self) {
        let rest = self.live_connections();
        for id in &rest {
            // A connection that has died meanwhile needs no reset.
            let _ = self.stack.tcp_abort(self.now, *id);
        }
        if let Some(ending) = &mut self.ending {
            ending.has_ended = true;
        }
        self.answers.push(Answer::Ending(Stage::Ended { reset: rest.len() }));
    }

    /// Whether the last turn was the final one.
    pub fn has_ended(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.has_ended)
    }

    /// The time of the next check.
    pub(crate) fn next_look_at_end(&self) -> Option<u64> {
        let ending = self.ending.as_ref()?;
        let next = if ending.place.is_some() { 0 } else { ending.next_look };
        Some(next.min(ending.until))
    }
}
