//! What leaves, and how it is put into packets.

use wire::NoRoom;
use wire::message::{ALIGNMENT, Body, COMMON_LEN, Frame, flags, seal};

use super::WHOLE_MAX;
use super::api::{Memory, Packet, PayloadPlace, PayloadRange, SendId};
use super::association::Owed;
use super::ring::{Content, Control, Record};
use super::slab::AssociationId;
use super::{Bugs, Core};

/// Kept free in a packet beside a chunk of payload: an ACK and the header of MORE.
const BESIDE_MORE: usize = 64;
/// The same for START with epochs.
const BESIDE_START: usize = 128;
/// Chunks are multiples of this.
const CHUNK: usize = 64;

/// Where in a packet a frame is written.
struct Space<'a> {
    /// The packet.
    out: &'a mut [u8],
    /// The frame's first byte.
    at: usize,
    /// The packet's most bytes, payload behind it included.
    room: usize,
}

impl<B: Bugs> Core<B> {
    /// The next packet. To be called until there is none, and then
    /// [`next_deadline`](Self::next_deadline) is right. `out` has the room of the longest path.
    pub fn poll_transmit(
        &mut self,
        now: u64,
        out: &mut [u8],
        memory: &mut dyn Memory,
    ) -> Option<Packet> {
        self.now = now;
        if let Some(reset) = self.emit_reset(out) {
            return Some(reset);
        }
        while let Some(id) = self.ready.pop_front() {
            let Some(it) = self.associations.get_mut(id) else { continue };
            it.ready = false;
            let host = it.peer.host;
            let packet = self.fill(id, out, memory);
            if let Some((len, payload)) = packet {
                self.touch(id);
                return Some(Packet { host, len, payload });
            }
            self.set_timer(id);
        }
        None
    }

    /// Fills a packet with the ACK that is owed and with frames.
    fn fill(
        &mut self,
        id: AssociationId,
        out: &mut [u8],
        memory: &mut dyn Memory,
    ) -> Option<(usize, Option<PayloadRange>)> {
        let host = self.associations[id].peer.host;
        let room = usize::from(self.hosts[host.index()].room).min(out.len());
        let mut next = self.next_frame(id);
        let owed = self.associations[id].owed;
        let mut at = 0;
        if owed.at_once || (owed.due.is_some() && next.is_some()) {
            at = self.emit_ack(id, &mut out[..room]).unwrap_or(0);
        }
        let mut payload = None;
        while let Some(sequence) = next {
            let from = at.next_multiple_of(ALIGNMENT);
            let space = Space { out, at: from, room };
            match self.emit(id, sequence, space, memory) {
                Ok((len, outside)) => {
                    out[at..from].fill(0);
                    at = from + len;
                    payload = outside;
                    if payload.is_some() {
                        break;
                    }
                }
                Err(NoRoom) => {
                    self.associations[id].stashed = Some(sequence);
                    break;
                }
            }
            next = self.next_frame(id);
        }
        (at > 0).then_some((at, payload))
    }

    /// The sequence of the frame to send next: control frames, then lost ones, then new ones.
    fn next_frame(&mut self, id: AssociationId) -> Option<u64> {
        let it = &mut self.associations[id];
        it.take_backlog();
        if let Some(stashed) = it.stashed.take()
            && it.ring.get(stashed).is_some_and(|record| !record.acknowledged)
        {
            return Some(stashed);
        }
        if let Some(control) = it.ring.control.pop_front() {
            return Some(control);
        }
        while it.ring.in_flight < it.pace.window
            && let Some(lost) = it.ring.lost.pop_front()
        {
            if it.ring.get(lost).is_some_and(|record| record.queued && !record.acknowledged) {
                return Some(lost);
            }
        }
        if it.ring.in_flight < it.pace.window && it.ring.has_room_for_data() {
            return self.next_data(id);
        }
        None
    }

    /// Makes the record of the next new data frame: messages that begin and messages under way take
    /// turns.
    fn next_data(&mut self, id: AssociationId) -> Option<u64> {
        let may_begin = self.associations[id].numbers.has_room();
        if may_begin && let Some(send) = self.take_resumable(id) {
            return Some(self.begin(id, send));
        }
        loop {
            let it = &mut self.associations[id];
            it.turn = !it.turn;
            if (it.turn || it.waiting.is_empty() || !may_begin)
                && let Some(send) = it.active.pop_front()
            {
                if let Some(sequence) = self.go_on(id, send) {
                    return Some(sequence);
                }
                continue;
            }
            if !may_begin {
                // The next one that ends frees a number.
                self.counters.no_number += u64::from(!it.waiting.is_empty());
                return None;
            }
            let Some(send) = it.waiting.pop_front() else {
                if it.active.is_empty() {
                    return None;
                }
                continue;
            };
            let Some(port) = self.sends.get(send).map(|send| send.to.port) else { continue };
            if self.associations[id].mark(port).is_some() {
                self.queue_behind_mark(id, send, u64::MAX);
                if let Some(send) = self.take_resumable(id) {
                    return Some(self.begin(id, send));
                }
                continue;
            }
            return Some(self.begin(id, send));
        }
    }

    /// Begins a message: its START takes a sequence, an order and a number.
    fn begin(&mut self, id: AssociationId, send: SendId) -> u64 {
        let association = &mut self.associations[id];
        let room = usize::from(self.hosts[association.peer.host.index()].room);
        let chunk = (room - BESIDE_START) / CHUNK * CHUNK;
        let it = &mut self.sends[send];
        let len = if it.is_whole() { it.length as usize } else { chunk.min(it.available as usize) };
        it.number = (!it.is_whole()).then(|| association.numbers.take(send));
        it.order = association.next_order;
        it.rank = it.rank.min(it.order);
        association.next_order += 1;
        association.open_sends += 1;
        it.sent = len as u32;
        it.limit = if it.is_rendezvous() { it.sent } else { it.length };
        it.attempt = 0;
        it.early_grant = None;
        it.decided = false;
        let port = it.to.port;
        let content = Content::Start { send, port, len: len as u16, resume: it.resume };
        let sequence = association.ring.push(content, it.order as u16);
        it.start = Some(sequence);
        if it.resume
            && let Some(mark) = association.mark(port)
        {
            mark.resuming = Some(sequence);
        }
        if it.has_data() && !it.active {
            it.active = true;
            association.active.push_back(send);
        }
        sequence
    }

    /// The next frame of a message under way, if it has data to send.
    fn go_on(&mut self, id: AssociationId, send: SendId) -> Option<u64> {
        let association = &mut self.associations[id];
        let room = usize::from(self.hosts[association.peer.host.index()].room);
        let chunk = (room - BESIDE_MORE) / CHUNK * CHUNK;
        let it = self.sends.get_mut(send)?;
        it.active = false;
        let (Some(number), true) = (it.number, it.has_data()) else { return None };
        let left = it.limit.min(it.available) - it.sent;
        let len = chunk.min(left as usize) as u16;
        let (attempt, offset) = (it.attempt, it.sent);
        let content = Content::More { send, number, attempt, offset, len };
        it.sent += u32::from(len);
        it.outstanding += 1;
        if it.has_data() {
            it.active = true;
            association.active.push_back(send);
        }
        Some(association.ring.push(content, 0))
    }

    /// Writes a frame, and gives its length and the payload that is to follow.
    fn emit(
        &mut self,
        id: AssociationId,
        sequence: u64,
        space: Space<'_>,
        memory: &mut dyn Memory,
    ) -> Result<(usize, Option<PayloadRange>), NoRoom> {
        let (now, Space { out, at, room }) = (self.now, space);
        let Some(&record) = self.associations[id].ring.get(sequence) else { return Ok((0, None)) };
        let (mut frame, payload) = self.make(id, sequence, &record);
        let bytes = payload.map_or(0, |payload| payload.len);
        let len = frame.header_len();
        let inside = bytes <= WHOLE_MAX as usize;
        if at > 0 && at + len + bytes > room {
            return Err(NoRoom);
        }
        let it = &mut self.associations[id];
        let data = !matches!(record.content, Content::Control(_));
        let last = it.ring.lost.is_empty() && it.active.is_empty() && it.waiting.is_empty();
        let whole = frame.flags & flags::WHOLE != 0;
        let asks = data && it.pace.ends_collection();
        if asks || (record.sent && it.ring.lost.is_empty()) || (data && last && !whole) {
            frame.flags |= flags::ACK_NOW;
            it.pace.collected = 0;
        }
        let space = out.get_mut(at..).ok_or(NoRoom)?;
        frame.emit(space, bytes)?;
        let authenticator = seal(&mut space[..len], &it.key_out, (sequence >> 32) as u32);
        it.ring.on_sent(sequence, now, authenticator, frame.epochs.is_some());
        self.counters.frames_out += 1;
        self.counters.resent += u64::from(record.sent);
        if it.timeout_at.is_none() {
            it.progress_at = now;
            self.arm_timeout(id);
        }
        match payload {
            Some(payload) if inside => {
                let space = space.get_mut(len..len + bytes).ok_or(NoRoom)?;
                memory.read(PayloadPlace::Send(payload.cookie), payload.offset, space);
                Ok((len + bytes, None))
            }
            outside => Ok((len, outside)),
        }
    }

    /// A record's frame, and its payload. What is no longer needed becomes PROBE, so that no
    /// sequence and no order is missing for ever.
    fn make(
        &self,
        id: AssociationId,
        sequence: u64,
        record: &Record,
    ) -> (Frame, Option<PayloadRange>) {
        let it = &self.associations[id];
        let frame = |flags, counter, body| Frame {
            flags,
            job: self.jobs[it.peer.job as usize].identifier,
            sequence: sequence as u32,
            counter,
            epochs: it.epochs(),
            body,
        };
        let payload = |cookie, offset, len: u16| {
            (len > 0).then_some(PayloadRange { cookie, offset, len: usize::from(len) })
        };
        match record.content {
            Content::Start { send, len, resume, .. } => {
                let Some(send) =
                    self.sends.get(send).filter(|it| it.start == Some(sequence) && !it.given_up)
                else {
                    return (frame(flags::ORDERED, record.order, Body::Probe), None);
                };
                let flag = |set, flag| if set { flag } else { 0 };
                let bits = flag(send.number.is_none(), flags::WHOLE)
                    | flag(send.tag.is_some(), flags::TAGGED)
                    | flag(send.is_rendezvous(), flags::RENDEZVOUS)
                    | flag(send.delivery, flags::DELIVERY)
                    | flag(send.immediate.is_some(), flags::DATA)
                    | flag(resume, flags::RESUME);
                let body = Body::Start {
                    source: send.source,
                    destination: send.to.port,
                    immediate: send.immediate.unwrap_or(0),
                    tag: send.tag.unwrap_or(0),
                    number: send.number.unwrap_or(0),
                    length: send.length,
                };
                (frame(bits, record.order, body), payload(send.cookie, 0, len))
            }
            Content::More { send, number, attempt, offset, len } => {
                let current = self.sends.get(send).filter(|it| {
                    it.number == Some(number) && it.attempt == attempt && !it.given_up
                });
                match current {
                    Some(send) => (
                        frame(0, attempt, Body::More { number, offset }),
                        payload(send.cookie, offset, len),
                    ),
                    None => (frame(0, 0, Body::Probe), None),
                }
            }
            Content::Control(control) => {
                let (bits, counter, body) = control_body(control);
                (frame(bits, counter, body), None)
            }
        }
    }

    /// Writes the ACK that is owed, its bitmap cut to the room, and gives its length.
    fn emit_ack(&mut self, id: AssociationId, out: &mut [u8]) -> Result<usize, NoRoom> {
        let it = &mut self.associations[id];
        let owed = std::mem::take(&mut it.owed);
        let (newest, at) = it.arrivals.newest;
        let waited = self.now.saturating_sub(at) / 1_000;
        let frame = Frame {
            flags: if owed.duplicates { flags::DUPLICATES } else { 0 },
            job: self.jobs[it.peer.job as usize].identifier,
            sequence: it.arrivals.next as u32,
            counter: u16::try_from(waited).unwrap_or(u16::MAX),
            epochs: it.epochs(),
            body: Body::Ack { newest: newest as u32, answered: it.answered as u32 },
        };
        let header = frame.header_len();
        let mut len = header;
        let words = out.len().saturating_sub(header) / 8;
        for word in it.arrivals.words(words) {
            out[len..len + 8].copy_from_slice(&word.to_be_bytes());
            len += 8;
        }
        frame.emit(out, len - header)?;
        debug_assert!(len >= COMMON_LEN);
        seal(&mut out[..len], &it.key_out, (it.arrivals.next >> 32) as u32);
        self.counters.acks_out += 1;
        Ok(len)
    }

    /// Owes the other host an acknowledgement.
    pub(super) fn owe(&mut self, id: AssociationId, at: u64, at_once: bool) {
        let owed = &mut self.associations[id].owed;
        *owed = Owed {
            due: Some(owed.due.map_or(at, |due| due.min(at))),
            at_once: owed.at_once || at_once,
            duplicates: owed.duplicates,
        };
    }
}

fn control_body(control: Control) -> (u8, u16, Body) {
    let flag = |set, flag| if set { flag } else { 0 };
    match control {
        Control::Done { message, status, whole } => {
            (flag(whole, flags::WHOLE), 0, Body::Done { message, status })
        }
        Control::Grant { number, offset, attempt } => (0, attempt, Body::Grant { number, offset }),
        Control::Hold { message, offset, attempt, refused, whole } => (
            flag(refused, flags::REFUSED) | flag(whole, flags::WHOLE),
            attempt,
            Body::Hold { message, offset },
        ),
        Control::Go { port } => (0, 0, Body::Go { port }),
        Control::Abort { number } => (0, 0, Body::Abort { number, reason: 0 }),
        Control::Probe => (0, 0, Body::Probe),
    }
}
