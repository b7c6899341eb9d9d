//! The tables, and what moves connections between them.

use std::collections::VecDeque;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use wire::tcp::{SeqNumber, TcpSegment, parse};

use super::connection::{Cold, Connection, End, Hot, NEVER, Sequel, Shared, Step};
use super::cookies::Ends;
use super::counters::TcpCounters;
use super::fast_open::Servers;
use super::flow::{Flow, FlowKey, FlowSlot, Flows};
use super::isn::{TcpKeys, halves};
use super::listener::{LISTENER_BIT, Listeners};
use super::options::SharedOptions;
use super::passive::ListenerRx;
use super::reply::Reply;
use super::time_wait::{TimeWait, TimeWaitAction, TimeWaits};
use super::{IcmpError, PathMtu, Ready, SegmentRx, SegmentTx, TcpCensus, TcpSettings};
use crate::api::{
    Event, Instant, InterfaceIndex, Owner, RequestError, Sink, SocketId, SocketKind, TcpError,
    TcpState,
};
use crate::drops::DropReason;
use crate::limits::Limits;
use crate::route::{Route, Routes};
use crate::stack::Keys;
use crate::timer::Wheel;

/// Set in the handle of a reply; connections' generations stay below.
const REPLY_BIT: u64 = 1 << 63;
const GENERATION_MASK: u32 = 0x7fff_ffff;
/// Longest TCP header.
const HEADER_BYTES_MAX: usize = 60;

/// Replies that may wait on one interface.
const REPLIES_MAX: usize = 256;

/// What wants to be sent through one interface.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Lane {
    /// Connections, in the order in which they became ready.
    pub connections: VecDeque<u32>,
    /// Segments without a connection.
    pub replies: VecDeque<Reply>,
}

/// All connections and listeners.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "super::image::TcpImage", into = "super::image::TcpImage")]
pub struct Tcp {
    pub(super) shared: Shared,
    pub(super) hot: Vec<Hot>,
    pub(super) cold: Vec<Cold>,
    pub(super) free: Vec<u32>,
    pub(super) flow_key: FlowKey,
    pub(super) flows: Flows,
    pub(super) listeners: Listeners,
    pub(super) time_waits: TimeWaits,
    pub(super) lanes: Vec<Lane>,
    pub(super) parked: Vec<u32>,
    /// Replies that wait for the next hop's link address.
    pub(super) parked_replies: Vec<Reply>,
    pub(super) events: VecDeque<Event>,
    pub(super) wheel: Wheel,
    pub(super) ports: (u16, u16),
    pub(super) next_port: u32,
    pub(super) connections_max: u32,
    pub(super) syn_queue_max: u32,
    pub(super) accept_queue_max: u32,
}

/// What a step asks of the tables.
struct Effects {
    event: bool,
    ready: bool,
    established: bool,
    handshake_over: bool,
    end: End,
    reply: Option<Reply>,
}

/// A connection that is made.
pub(super) struct Opening<'a> {
    pub cold: Cold,
    /// SYN-SENT or SYN-RECEIVED.
    pub state: TcpState,
    pub route: &'a Route,
    pub iss: SeqNumber,
    pub owner: Owner,
}

impl Tcp {
    /// Empty tables.
    pub fn new(keys: &Keys, limits: &Limits, settings: TcpSettings) -> Self {
        let flow_key = FlowKey(halves(keys.flow));
        let connections_max = limits.connections.min(LISTENER_BIT - 1);
        Self {
            shared: Shared {
                keys: TcpKeys::new(keys),
                settings,
                servers: Servers::new(limits.fast_open_servers),
                counters: TcpCounters::default(),
                options: SharedOptions::default(),
            },
            hot: Vec::with_capacity(connections_max as usize),
            cold: Vec::with_capacity(connections_max as usize),
            free: Vec::new(),
            flow_key,
            flows: Flows::new(flow_key, (connections_max + limits.time_waits.max(1)) as usize),
            listeners: Listeners::new(limits.listeners),
            time_waits: TimeWaits::new(limits.time_waits),
            lanes: Vec::new(),
            parked: Vec::new(),
            parked_replies: Vec::new(),
            events: VecDeque::new(),
            wheel: Wheel::with_capacity(Instant(0), connections_max as usize),
            ports: keys.ephemeral_ports,
            next_port: 0,
            connections_max,
            syn_queue_max: limits.syn_queue,
            accept_queue_max: limits.accept_queue,
        }
    }

    /// Other settings for everything that is decided from now on.
    pub fn set_settings(&mut self, settings: TcpSettings) {
        self.shared.settings = settings;
    }

    /// Forgets what clients remember of servers (Fast Open).
    pub fn forget_servers(&mut self) {
        self.shared.servers.forget();
    }

    /// What has been counted.
    pub fn counters(&self) -> &TcpCounters {
        &self.shared.counters
    }

    /// Connections in TIME-WAIT.
    pub fn time_waits(&self) -> usize {
        self.time_waits.len()
    }

    /// What the tables hold.
    pub fn census(&self) -> TcpCensus {
        TcpCensus {
            connections: (self.hot.len() - self.free.len()) as u32,
            time_waits: self.time_waits.len() as u32,
            flows: self.flows.len() as u32,
            timers: self.wheel.count(),
        }
    }

    /// Takes a segment whose checksum is right, from the TCP header on.
    ///
    /// # Errors
    /// Why the segment was dropped.
    pub fn on_segment<S: Sink>(
        &mut self,
        rx: &SegmentRx,
        segment: &[u8],
        routes: &Routes,
        sink: &mut S,
    ) -> Result<(), DropReason> {
        let now = rx.now;
        let bytes = segment;
        let segment = parse(bytes).map_err(|_| DropReason::TcpMalformed)?;
        let local = SocketAddr::new(rx.local, segment.header.dst_port);
        let remote = SocketAddr::new(rx.remote, segment.header.src_port);
        let found = self.flow_slot(local, remote);
        self.judge_signature(found, rx, bytes, &segment)?;
        let mut iss = None;
        match found {
            Some(FlowSlot::Connection(index)) => {
                return self.on_connection_segment(index, rx, &segment, sink);
            }
            Some(FlowSlot::TimeWait(slot)) => {
                match self.time_waits.on_segment(now, slot, &segment) {
                    TimeWaitAction::Drop => return Err(DropReason::TcpClosed),
                    TimeWaitAction::End => {
                        self.end_time_wait(slot);
                        return Ok(());
                    }
                    TimeWaitAction::Limited => {
                        self.shared.counters.challenges_limited += 1;
                        return Err(DropReason::TcpClosed);
                    }
                    TimeWaitAction::Acknowledge(reply) => {
                        self.push_reply(reply);
                        return Ok(());
                    }
                    // Only a listener can give the port a new life.
                    TimeWaitAction::Reuse(number) => iss = Some((slot, number)),
                }
            }
            None => {}
        }
        let flags = segment.header.flags;
        let is_shut = routes.refuses_connections(rx.interface);
        //= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.1
        //# A TCP implementation that supports multiple concurrent connections MUST provide an OPEN
        //# call that will functionally allow an application to LISTEN on a port while a connection
        //# block with the same local port is in SYN-SENT or SYN-RECEIVED state (MUST-42).
        let listener = self.listeners.find(local);
        match listener {
            //= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.2
            //# Any other control or data-bearing segment (not containing
            //# SYN) must have an ACK and thus would have been
            //# discarded by the ACK processing in the second step, unless it was
            //# first discarded by RST checking in the first step.
            // A SYN that is a FIN at once is nobody's: dropped, as Linux.
            Some(_) if !flags.ack() && !flags.rst() && (!flags.syn() || flags.fin()) => {
                Err(DropReason::TcpOutOfWindow)
            }
            Some(listener) if flags.syn() && !flags.ack() && !flags.rst() && !is_shut => {
                if let Some((slot, _)) = iss {
                    self.end_time_wait(slot);
                    self.shared.counters.time_wait_reuses += 1;
                }
                let iss = iss.map(|(_, number)| number);
                self.on_syn(&ListenerRx { listener, rx, segment: &segment, routes }, iss, sink)
            }
            _ => {
                if let Some(listener) = listener
                    && flags.ack()
                    && !flags.syn()
                    && !flags.rst()
                    && !is_shut
                    && let Some(taken) = self.on_cookie_answer(
                        &ListenerRx { listener, rx, segment: &segment, routes },
                        sink,
                    )
                {
                    return taken;
                }
                // A new life that nobody gives: the peer is told of the old one (as Linux).
                if let Some((slot, _)) = iss {
                    if let Some(reply) = self.time_waits.acknowledgement(now, slot) {
                        self.push_reply(reply);
                    }
                    return Err(DropReason::TcpNoSocket);
                }
                let back = routes.lookup_back(rx.interface, rx.remote);
                let interface = back.map_or(rx.interface, |route| route.interface);
                if let Some(reset) =
                    Reply::reset(interface, local, remote, &segment, Reply::tos_to(rx.tos))
                {
                    let reset = reset.signed_with(self.listeners_key(local, remote));
                    self.shared.counters.resets_sent += 1;
                    self.push_reply(reset);
                }
                Err(DropReason::TcpNoSocket)
            }
        }
    }

    pub(super) fn on_connection_segment<S: Sink>(
        &mut self,
        index: u32,
        rx: &SegmentRx,
        segment: &TcpSegment<'_>,
        sink: &mut S,
    ) -> Result<(), DropReason> {
        self.shared.counters.segments_received += 1;
        let flags = segment.header.flags;
        let half_open = self.cold.get(index as usize).filter(|c| c.half_open);
        if let Some(listener) = half_open.and_then(|c| c.listener)
            && flags.ack()
            && !flags.rst()
            && self.listeners.listener(listener).is_some_and(|l| l.is_queue_full())
        {
            // The peer will repeat it; by then there may be room.
            return Err(DropReason::TcpAcceptQueueFull);
        }
        self.with(rx.now, index, |connection, step| {
            connection.cold.tally.on_received(segment, rx);
            step.answers_as = Reply::tos_to(rx.tos);
            connection.on_segment(step, segment, rx, sink)
        })
        .unwrap_or(Err(DropReason::TcpNoSocket))
    }

    /// An ICMP error about a segment of ours.
    ///
    /// # Errors
    /// Why the message was dropped.
    pub fn on_icmp(
        &mut self,
        now: Instant,
        Ends { local, remote }: Ends,
        sequence: u32,
        error: IcmpError,
    ) -> Result<(), DropReason> {
        let Some(FlowSlot::Connection(index)) = self.flow_slot(local, remote) else {
            return Err(DropReason::IcmpNoSocket);
        };
        self.with(now, index, |connection, step| connection.on_icmp(step, sequence, error))
            .unwrap_or(Err(DropReason::IcmpNoSocket))
    }

    /// The next that wants to send through `interface`; to be answered by one of
    /// [`emit`](Self::emit), [`park`](Self::park) and [`unreachable`](Self::unreachable).
    pub fn next_ready(&mut self, interface: InterfaceIndex) -> Option<Ready> {
        let lane = self.lanes.get_mut(usize::from(interface.0))?;
        if let Some(reply) = lane.replies.front() {
            let handle = REPLY_BIT | u64::from(interface.0);
            let (local, remote) = (reply.local.ip(), reply.remote.ip());
            return Some(Ready { handle, local, remote, is_strangers: true });
        }
        while let Some(index) =
            self.lanes.get_mut(usize::from(interface.0)).and_then(|l| l.connections.pop_front())
        {
            let Some(hot) = self.hot.get_mut(index as usize) else { continue };
            hot.ready_queued = false;
            if !hot.used || hot.parked {
                continue;
            }
            if hot.interface != interface {
                // The slot was used anew, elsewhere, while it still stood here.
                self.mark_ready(index);
                continue;
            }
            let handle = u64::from(index) | u64::from(hot.generation) << 32;
            let cold = self.cold.get(index as usize)?;
            let (local, remote, is_strangers) = (cold.local.ip(), cold.remote.ip(), cold.half_open);
            return Some(Ready { handle, local, remote, is_strangers });
        }
        None
    }

    /// Writes the header of what `handle` has to send; `None` when it is nothing after all.
    /// `mtu`: of the way to where it goes, as it is known now; `None` when there is no way.
    pub fn emit(
        &mut self,
        now: Instant,
        handle: u64,
        mtu: Option<PathMtu>,
        header: &mut [u8],
    ) -> Option<SegmentTx> {
        if handle & REPLY_BIT != 0 {
            return self.emit_reply(handle, header);
        }
        let index = self.live(handle)?;
        self.with(now, index, |connection, step| {
            if let Some(mtu) = mtu {
                connection.on_path(step, mtu);
            }
            let mut segment = connection.emit(step, header);
            if let (Some(segment), true) = (&mut segment, mtu.is_some_and(|mtu| mtu.is_cut)) {
                segment.dont_fragment &= !connection.cold.options.heeds_routers();
            }
            let resets = connection.cold.sequel == Sequel::Reset;
            if connection.has_something_to_send(now) || resets && segment.is_some() {
                step.ready = true;
            } else if resets {
                // Only now that its last segment has left: its owner lets go of the bytes.
                connection.reset_now(step);
            } else {
                step.shared.counters.paced += u64::from(connection.hot.pace_waits);
                connection.settle(now);
            }
            segment
        })?
    }

    fn emit_reply(&mut self, handle: u64, header: &mut [u8]) -> Option<SegmentTx> {
        let reply = self.lane_of(handle)?.replies.pop_front()?;
        let (fixed, options) = reply.header();
        let header_bytes = fixed.emit(&options, header).ok()? as u16;
        if let (Some(key), Some(header)) = (&reply.key, header.get_mut(..usize::from(header_bytes)))
        {
            key.sign(reply.local, reply.remote, header, &[]);
        }
        self.shared.counters.segments_sent += 1;
        Some(SegmentTx {
            header_bytes,
            payload: crate::api::Payload::None,
            gso_bytes: None,
            local: reply.local.ip(),
            remote: reply.remote.ip(),
            tos: reply.tos,
            ttl: None,
            dont_fragment: true,
            unsigned: false,
        })
    }

    /// Where the flow between two addresses leads.
    pub(super) fn flow_slot(&self, local: SocketAddr, remote: SocketAddr) -> Option<FlowSlot> {
        let flow = Flow::new(local, remote);
        self.flows.find(self.flows.hash(&flow), |place| {
            let found = match place {
                FlowSlot::Connection(index) => self
                    .cold
                    .get(index as usize)
                    .map(|cold| Flow::new(cold.local.address(), cold.remote.address())),
                FlowSlot::TimeWait(slot) => self.time_waits.entry(slot).map(TimeWait::flow),
            };
            found == Some(flow)
        })
    }

    fn lane_of(&mut self, handle: u64) -> Option<&mut Lane> {
        self.lanes.get_mut((handle & 0xff) as usize)
    }

    fn live(&self, handle: u64) -> Option<u32> {
        let index = handle as u32;
        let hot = self.hot.get(index as usize)?;
        (hot.used && u64::from(hot.generation) == handle >> 32).then_some(index)
    }

    /// The next hop's link address is being asked for (`asked`) or will be: stays away from the ready
    /// queue until [`unpark_all`](Self::unpark_all). A segment without a connection waits only for
    /// what is being asked for, lest answers to strangers fill the table of neighbours.
    pub fn park(&mut self, handle: u64, asked: bool) {
        if handle & REPLY_BIT != 0 {
            if !asked || self.parked_replies.len() >= REPLIES_MAX {
                return self.drop_reply(handle);
            }
            let reply = self.lane_of(handle).and_then(|lane| lane.replies.pop_front());
            self.parked_replies.extend(reply);
            return;
        }
        if let Some(index) = self.live(handle)
            && let Some(hot) = self.hot.get_mut(index as usize)
            && !hot.parked
        {
            hot.parked = true;
            self.parked.push(index);
        }
    }

    fn drop_reply(&mut self, handle: u64) {
        if let Some(lane) = self.lane_of(handle)
            && lane.replies.pop_front().is_some()
        {
            self.shared.counters.replies_dropped += 1;
        }
    }

    /// A link address has become known: all that were parked try again.
    pub fn unpark_all(&mut self) {
        let mut replies = std::mem::take(&mut self.parked_replies);
        replies.drain(..).for_each(|reply| self.push_reply(reply));
        self.parked_replies = replies;
        let mut parked = std::mem::take(&mut self.parked);
        for index in parked.drain(..) {
            if let Some(hot) = self.hot.get_mut(index as usize)
                && hot.parked
            {
                hot.parked = false;
                self.mark_ready(index);
            }
        }
        self.parked = parked;
    }

    /// There is no way, or the next hop does not answer. What stands goes on as if the network had
    /// lost what it sent, until there is a way again or its time is over.
    pub fn unreachable(&mut self, now: Instant, handle: u64, error: TcpError) {
        if handle & REPLY_BIT != 0 {
            self.drop_reply(handle);
            return;
        }
        if let Some(index) = self.live(handle) {
            self.with(now, index, |connection, step| connection.on_unreachable(step, error));
            let mut nowhere = [0; HEADER_BYTES_MAX];
            if self.emit(now, handle, None, &mut nowhere).is_some() {
                self.shared.counters.segments_unroutable += 1;
            }
        }
    }

    /// The largest packet of an interface is another one now: so are the segments of its
    /// connections, unless their path allows less.
    pub fn follow_mtu(&mut self, now: Instant, interface: InterfaceIndex, mtu: u16) {
        // Interfaces change rarely; nothing else looks through the table.
        for index in 0..self.hot.len() as u32 {
            let here = |hot: &Hot| hot.used && !hot.state.is_over() && hot.interface == interface;
            if self.hot.get(index as usize).is_some_and(here) {
                self.with(now, index, |connection, step| connection.follow_mtu(step, mtu));
            }
        }
    }

    /// When [`on_timers`](Self::on_timers) should be called next.
    pub fn next_deadline(&self) -> Option<Instant> {
        match (self.wheel.next(), self.time_waits.deadline()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Serves deadlines that have come, at most `budget`; true when more are due.
    pub fn on_timers(&mut self, now: Instant, budget: usize) -> bool {
        for _ in 0..budget {
            if let Some(index) = self.wheel.expire(now) {
                if let Some(hot) = self.hot.get_mut(index as usize) {
                    hot.armed_at = NEVER;
                    if hot.used {
                        self.with(now, index, |connection, step| connection.on_deadline(step));
                    }
                }
                continue;
            }
            if let Some((slot, ended)) = self.time_waits.expire(now) {
                self.flows.remove(&ended.flow(), FlowSlot::TimeWait(slot));
            } else {
                return false;
            }
        }
        true
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        if event.kind == SocketKind::Listener {
            if let Some(listener) = self.listeners.listener_mut(event.id) {
                listener.event_queued = false;
            }
        } else if let Some(hot) = self.hot.get_mut(event.id.index as usize)
            && hot.generation == event.id.generation
        {
            hot.event_queued = false;
            return Some(Event { owner: hot.owner, ..event });
        }
        Some(event)
    }

    /// Does something to a connection and carries out what follows from it.
    pub(super) fn with<R>(
        &mut self,
        now: Instant,
        index: u32,
        act: impl FnOnce(&mut Connection<'_>, &mut Step<'_>) -> R,
    ) -> Option<R> {
        let hot = self.hot.get_mut(index as usize)?;
        let cold = self.cold.get_mut(index as usize)?;
        let id = SocketId { index, generation: hot.generation };
        let mut connection = Connection { id, hot, cold };
        let mut step = Step::new(now, &mut self.shared);
        let result = act(&mut connection, &mut step);
        if step.established {
            connection.on_established(&mut step);
        }
        let effects = Effects {
            event: step.event,
            ready: step.ready,
            established: step.established,
            handshake_over: step.handshake_over,
            end: step.end,
            reply: step.reply,
        };
        let deadline = connection.deadline();
        debug_assert!(
            deadline == NEVER || !connection.hot.state.is_over(),
            "what is over waits for nothing"
        );
        if deadline < connection.hot.armed_at {
            connection.hot.armed_at = deadline;
            self.wheel.set(index, Instant(deadline));
        }
        self.carry_out(now, index, effects);
        Some(result)
    }

    fn carry_out(&mut self, now: Instant, index: u32, effects: Effects) {
        if let Some(reply) = effects.reply {
            self.push_reply(reply);
        }
        if effects.established {
            self.queue_for_accept(index);
        }
        if effects.handshake_over {
            self.leave_fast_open(now, index);
        }
        match effects.end {
            End::None => {
                if effects.event {
                    self.push_event(index);
                }
                if effects.ready {
                    self.mark_ready(index);
                }
            }
            End::Dead => self.on_dead(now, index),
            End::TimeWait { owes_ack } => self.on_time_wait(now, index, owes_ack),
        }
    }

    /// A listener's child has finished its handshake.
    fn queue_for_accept(&mut self, index: u32) {
        let (Some(hot), Some(cold)) =
            (self.hot.get(index as usize), self.cold.get_mut(index as usize))
        else {
            return;
        };
        if !std::mem::take(&mut cold.half_open) {
            return;
        }
        let id = SocketId { index, generation: hot.generation };
        let Some(listener_id) = cold.listener else { return };
        if let Some(listener) = self.listeners.listener_mut(listener_id) {
            listener.half_open = listener.half_open.saturating_sub(1);
            listener.queue.push_back(id);
            if !listener.event_queued {
                listener.event_queued = true;
                let owner = listener.owner;
                self.events.push_back(Event { id: listener_id, owner, kind: SocketKind::Listener });
            }
        }
    }

    pub(super) fn on_dead(&mut self, now: Instant, index: u32) {
        let Some((flow, orphan)) = self.leave_flow(now, index) else { return };
        self.flows.remove(&flow, FlowSlot::Connection(index));
        if orphan {
            self.release(index);
        } else {
            self.push_event(index);
        }
    }

    fn on_time_wait(&mut self, now: Instant, index: u32, owes_ack: bool) {
        if self.time_waits.is_full()
            && let Some((slot, oldest)) = self.time_waits.evict()
        {
            self.shared.counters.time_wait_evictions += 1;
            self.flows.remove(&oldest.flow(), FlowSlot::TimeWait(slot));
        }
        let Some((flow, orphan)) = self.leave_flow(now, index) else { return };
        let (Some(hot), Some(cold)) = (self.hot.get(index as usize), self.cold.get(index as usize))
        else {
            return;
        };
        let slot = self.time_waits.insert(now, hot, cold);
        self.flows.remove(&flow, FlowSlot::Connection(index));
        self.flows.insert(&flow, FlowSlot::TimeWait(slot));
        // The acknowledgement of the FIN, which the connection would have sent.
        if owes_ack && let Some(reply) = self.time_waits.acknowledgement(now, slot) {
            self.push_reply(reply);
        }
        if orphan {
            self.release(index);
        } else {
            self.push_event(index);
        }
    }

    /// Common to all ends: the listener's count. Yields the flow and whether nobody owns it.
    fn leave_flow(&mut self, now: Instant, index: u32) -> Option<(Flow, bool)> {
        self.leave_fast_open(now, index);
        let hot = self.hot.get(index as usize)?;
        let cold = self.cold.get_mut(index as usize)?;
        let flow = Flow::new(cold.local.address(), cold.remote.address());
        let was_half_open = std::mem::take(&mut cold.half_open);
        if was_half_open
            && let Some(listener) = cold.listener.and_then(|id| self.listeners.listener_mut(id))
        {
            listener.half_open = listener.half_open.saturating_sub(1);
        }
        Some((flow, hot.orphan || was_half_open))
    }

    pub(super) fn end_time_wait(&mut self, slot: u32) {
        if let Some(ended) = self.time_waits.remove(slot) {
            self.flows.remove(&ended.flow(), FlowSlot::TimeWait(slot));
        }
    }

    /// A free slot.
    pub(super) fn allocate(&mut self) -> Option<u32> {
        if let Some(index) = self.free.pop() {
            return Some(index);
        }
        if self.hot.len() >= self.connections_max as usize {
            self.shared.counters.connections_limited += 1;
            return None;
        }
        let index = self.hot.len() as u32;
        self.hot.push(Hot::vacant());
        self.cold.push(Cold::vacant(self.shared.options.clone()));
        Some(index)
    }

    /// Makes a connection in an allocated slot.
    pub(super) fn install(&mut self, now: Instant, index: u32, opening: Opening<'_>) {
        let Opening { cold, state, route, iss, owner } = opening;
        let flow = Flow::new(cold.local.address(), cold.remote.address());
        if let Some(place) = self.cold.get_mut(index as usize) {
            *place = cold;
        }
        self.with(now, index, |connection, step| {
            connection.open(step, state, route, iss);
            connection.hot.owner = owner;
            step.ready = true;
        });
        self.flows.insert(&flow, FlowSlot::Connection(index));
    }

    /// Frees a slot whose owner has let go; the event says that the id is stale.
    pub(super) fn release(&mut self, index: u32) {
        let Some(hot) = self.hot.get_mut(index as usize).filter(|h| h.used) else { return };
        // Also when one is queued: that one may name an owner before this.
        if hot.owner != Owner::NONE {
            let id = SocketId { index, generation: hot.generation };
            let owner = hot.owner;
            self.events.push_back(Event { id, owner, kind: SocketKind::Connection });
        }
        let (generation, ready_queued) = (hot.generation, hot.ready_queued);
        *hot = Hot {
            generation: generation.wrapping_add(1) & GENERATION_MASK,
            ready_queued,
            ..Hot::vacant()
        };
        if let Some(cold) = self.cold.get_mut(index as usize) {
            // Nothing that it had behind pointers waits for the slot to be used again.
            *cold = Cold::vacant(self.shared.options.clone());
        }
        self.wheel.cancel(index);
        self.free.push(index);
    }

    /// Queues an event, unless there is one or nobody can want it yet.
    pub(super) fn push_event(&mut self, index: u32) {
        let (Some(hot), Some(cold)) =
            (self.hot.get_mut(index as usize), self.cold.get(index as usize))
        else {
            return;
        };
        if hot.event_queued || cold.listener.is_some() {
            return;
        }
        hot.event_queued = true;
        let id = SocketId { index, generation: hot.generation };
        self.events.push_back(Event { id, owner: hot.owner, kind: SocketKind::Connection });
    }

    /// Queues a connection for transmission.
    pub(super) fn mark_ready(&mut self, index: u32) {
        let Some(hot) = self.hot.get_mut(index as usize) else { return };
        if hot.ready_queued || hot.parked || !hot.used {
            return;
        }
        hot.ready_queued = true;
        let interface = hot.interface;
        self.lane(interface).connections.push_back(index);
    }

    /// Queues a segment that has no connection.
    pub(super) fn push_reply(&mut self, reply: Reply) {
        let lane = self.lane(reply.interface);
        if lane.replies.len() < REPLIES_MAX {
            lane.replies.push_back(reply);
        } else {
            self.shared.counters.replies_dropped += 1;
        }
    }

    fn lane(&mut self, interface: InterfaceIndex) -> &mut Lane {
        let at = usize::from(interface.0);
        if self.lanes.len() <= at {
            self.lanes.resize_with(at + 1, Lane::default);
        }
        &mut self.lanes[at]
    }

    /// The slot of a connection's id.
    pub(super) fn slot(&self, id: SocketId) -> Result<u32, RequestError> {
        match self.hot.get(id.index as usize) {
            Some(hot) if hot.used && hot.generation == id.generation => Ok(id.index),
            _ => Err(RequestError::Stale),
        }
    }
}

/// Whether a connection still waits for the end of its handshake with a listener.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.5
//# Note that a TCP implementation MUST keep track of whether a connection has reached SYN-RECEIVED
//# state as the result of a passive OPEN or an active OPEN (MUST-11).
pub(super) fn is_half_open(hot: &[Hot], cold: &[Cold], listener: SocketId, id: SocketId) -> bool {
    let at = id.index as usize;
    hot.get(at).is_some_and(|h| h.used && h.generation == id.generation)
        && cold.get(at).is_some_and(|c| c.half_open && c.listener == Some(listener))
}
