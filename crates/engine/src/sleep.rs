//! Polling of lanes, and preparation of a worker for sleep.

use std::os::fd::{AsFd, BorrowedFd};

use shm::engine_side::EngineLane;
use stack::api::Instant;

use crate::control::exchange::SessionKey;
use crate::endpoint::{Endpoint, Role};
use crate::lane::Lane;
use crate::requests::LaneRef;
use crate::transmit::Attached;
use crate::worker::Worker;

impl Worker {
    /// Takes back the pages that clients have read, and asks clients with unread pages to ring when
    /// they have read them, or when their window must be opened. Thus a busy connection is checked
    /// periodically and does not ring for every read, and an idle one holds nothing. Returns
    /// whether anything was read.
    pub fn sweep(&mut self) -> bool {
        let mut learnt = false;
        for place in 0..self.sessions.place_count() {
            let Some(session) = self.sessions.at(place) else { continue };
            if session.unswept.is_empty() {
                continue;
            }
            let mut unswept = std::mem::take(&mut session.unswept);
            for index in &unswept {
                learnt |= self.learn_consumed(place, *index);
                if let Some(Endpoint { view, role: Role::Stream(stream), .. }) =
                    self.endpoint(place, *index)
                    && !stream.receive.pages.is_empty()
                {
                    let receive = &stream.receive;
                    let all = receive.readable.max(receive.consumed + 1);
                    view.set_wanted(receive.wanted().min(all));
                }
            }
            // A client that read everything before it could see the request is found now.
            EngineLane::begin_events();
            let mut again = 0;
            for position in 0..unswept.len() {
                let Some(index) = unswept.get(position).copied() else { break };
                let read_more = self.learn_consumed(place, index);
                learnt |= read_more;
                let Some(Endpoint { role: Role::Stream(stream), .. }) = self.endpoint(place, index)
                else {
                    continue;
                };
                stream.receive.is_unswept = read_more && !stream.receive.pages.is_empty();
                if stream.receive.is_unswept {
                    unswept.swap(again, position);
                    again += 1;
                }
            }
            unswept.truncate(again);
            if let Some(session) = self.sessions.at(place) {
                session.unswept = unswept;
            }
        }
        learnt
    }

    /// Asks the clients of all polled lanes to ring by their pipes. `false`: there is work, do not
    /// sleep.
    pub fn prepare_sleep(&mut self) -> bool {
        let polled_only = self.ports.iter().any(|attached| attached.port.wait_fd().is_none());
        // A datagram that waits for a neighbour resumes with the reply or a timer.
        if polled_only || self.datagrams_poll || self.raw.has_waiting() {
            return false;
        }
        let retries = |of: &Attached| of.port.next_deadline().is_some();
        if self.ports.iter().any(|attached| attached.held.is_some() && !retries(attached)) {
            return false;
        }
        if self.sweep() {
            // The window may have opened: that must be sent first.
            return false;
        }
        for place in 0..self.sessions.place_count() {
            let Some(session) = self.sessions.at(place) else { continue };
            if !session.is_served() {
                continue;
            }
            let ready =
                session.lanes.iter_mut().filter(|lane| lane.polled).all(|l| l.view.prepare_sleep());
            if !ready {
                self.awake();
                return false;
            }
        }
        true
    }

    /// Whether a client of a polled lane runs or is about to, according to its lane.
    pub fn somebody_runs(&self) -> bool {
        (0..self.sessions.place_count()).filter_map(|place| self.sessions.peek(place)).any(
            |session| {
                session.is_served()
                    && session.lanes.iter().any(|lane| lane.polled && lane.view.client_runs())
            },
        )
    }

    /// Asks clients to wake the worker when they stop running. `false`: there is work.
    pub fn prepare_giving_way(&mut self) -> bool {
        for place in 0..self.sessions.place_count() {
            let Some(session) = self.sessions.at(place) else { continue };
            if !session.is_served() {
                continue;
            }
            let mut polled = session.lanes.iter_mut().filter(|lane| lane.polled);
            if !polled.all(|lane| lane.view.prepare_giving_way()) {
                self.awake();
                return false;
            }
        }
        true
    }

    /// Polled lanes need no pipe any more.
    pub fn awake(&mut self) {
        for place in 0..self.sessions.place_count() {
            let Some(session) = self.sessions.at(place) else { continue };
            for lane in session.lanes.iter_mut().filter(|lane| lane.polled) {
                lane.view.awake();
            }
        }
    }

    /// Stops polling lanes that have been idle for long; returns whether there are any that are not
    /// polled.
    pub fn demote_idle_lanes(&mut self, now: Instant) -> bool {
        let mut any = false;
        for place in 0..self.sessions.place_count() {
            let Some(session) = self.sessions.at(place) else { continue };
            for (number, lane) in (0..).zip(&mut session.lanes) {
                let idle = now.0.saturating_sub(lane.worked_at) > self.limits.lane_idle_ns;
                // Without pipes (in simulation) a lane is always polled. So is a lane without
                // buffers, whose writers wait silently.
                let may_rest = idle && !lane.starved && lane.pipes.is_some();
                if lane.polled && may_rest && lane.view.prepare_sleep() {
                    lane.polled = false;
                    self.due.polled.remove(LaneRef { place, lane: number });
                    self.counters.lanes_demoted.increment();
                }
                any |= !lane.polled;
            }
        }
        any
    }

    /// A client rang by its pipe: the lane is polled again. `false`: the client is gone.
    pub fn lane_rang(&mut self, key: SessionKey, lane: u16, now: Instant) -> bool {
        let Some(place) = self.sessions.place_of(key) else { return true };
        let at = LaneRef { place, lane };
        let Some(lane) = self.sessions.at(place).and_then(|s| s.lanes.get_mut(usize::from(lane)))
        else {
            return true;
        };
        lane.polled = true;
        self.due.polled.insert(at);
        lane.worked_at = now.0;
        lane.view.awake();
        lane.drain()
    }

    /// Calls `with` with the pipe of a lane.
    pub fn with_lane_pipe(&self, key: SessionKey, lane: u16, with: impl FnOnce(BorrowedFd<'_>)) {
        let pipes = self
            .sessions
            .place_of(key)
            .and_then(|place| self.sessions.peek(place)?.lanes.get(usize::from(lane)))
            .and_then(|lane| lane.pipes.as_ref());
        if let Some(pipes) = pipes {
            with(pipes.woken_by_client.as_fd());
        }
    }

    /// Descriptors that become readable when a port has frames.
    pub fn wait_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.ports.iter().filter_map(|attached| attached.port.wait_fd())
    }

    /// The worker runs on this CPU now; clients use that to decide whether to spin.
    pub fn set_cpu(&mut self, cpu: u32) {
        self.cpu = Some(cpu);
        self.each_lane(|lane| lane.view.set_worker_cpu(cpu));
    }

    /// Applies `act` to every lane of every session.
    pub(crate) fn each_lane(&mut self, mut act: impl FnMut(&mut Lane)) {
        for place in 0..self.sessions.place_count() {
            if let Some(session) = self.sessions.at(place) {
                session.lanes.iter_mut().for_each(&mut act);
            }
        }
    }
}
