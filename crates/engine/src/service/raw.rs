//! Raw endpoints: programs that see and send frames themselves, through byte rings
//! ([`shm::raw`]).
//!
//! A frame that a port receives or sends is copied to each endpoint that watches the port
//! ([`RawTable::receive`], [`RawTable::copy_sent`]); a taker gets it instead of the stack. What
//! programs push goes from their rings to the ports ([`RawTable::serve`]), checked by
//! [`checks`]. Ports without raw endpoints cost a branch for each burst.

mod checks;
pub mod filter;
mod outlet;
mod requests;
pub mod rights;

use std::sync::Arc;

use port::{Port, RxBurst, RxChecksum, TxError, TxFrame, TxMeta};
use shm::raw::{
    EngineDown, EngineUp, FrameFlags, MESSAGES_PER_VISIT, Meta, RingBreach, Rings, SegmentKind,
    Taken, UpInfo,
};
use stack::Stack;

use self::filter::{PacketType, RawFilter};
pub use self::outlet::{Sending, Watch, Watched};
use crate::service::mirror::Rope;
use crate::session::Breach;
use crate::sessions::Sessions;
use crate::stats::Counters;
use crate::transmit::Attached;

/// Endpoints that see copies of one port's frames.
pub const WATCHERS_MAX: usize = 16;
/// Most ports of an endpoint.
pub const PORTS_MAX: usize = 16;
/// Bytes of a frame from a ring that are copied before they are looked at.
const LOOKED_AT_BYTES: usize = 192;

/// What an endpoint is made from; everything in it is checked.
pub struct RawSeed {
    /// Its rings.
    pub rings: Arc<Rings>,
    /// The engine's ports that it uses, in its own numbering.
    pub ports: Vec<usize>,
    /// Which frames it sees, and how much of each.
    pub filter: Option<RawFilter>,
    /// What it sees.
    pub wants: shm::control::RawWants,
    /// It may send frames in the name of others.
    pub spoofs: bool,
}

/// An endpoint as the worker keeps it.
struct RawEndpoint {
    place: u32,
    index: u32,
    /// Instead of a session there is a mirror's thread to be told.
    rope: Option<Rope>,
    up: EngineUp,
    down: Option<EngineDown>,
    seed: RawSeed,
    /// In the list of those that have pushed and not published.
    has_news: bool,
    /// In the list of those whose rings are looked at every turn.
    waits: bool,
    /// Its program knows that all its ports are gone.
    knows_loss: bool,
}

/// How a visit to a DOWN ring ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visit {
    /// Nothing is left.
    Empty,
    /// More is left than a visit takes.
    More,
    /// The next frame's port is full.
    Full,
}

/// The endpoints that look at one port.
#[derive(Default)]
struct Watchers {
    received: Vec<u32>,
    sent: Vec<u32>,
    taker: Option<u32>,
}

/// What pushing frames into rings has led to.
#[derive(Default)]
struct Pushed {
    /// Endpoints whose rings have frames that are not published.
    news: Vec<u32>,
    /// Sessions that broke the contract.
    breached: Vec<(u32, RingBreach)>,
    /// Frames that found no room in a ring.
    dropped: u64,
}

/// All raw endpoints of a worker.
pub struct RawTable {
    slots: Vec<Option<Box<RawEndpoint>>>,
    ports: Vec<Watchers>,
    pushed: Pushed,
    waiting: Vec<u32>,
    whole: Vec<u8>,
}

/// What the frames of programs are sent with.
pub struct RawTx<'a> {
    /// The ports.
    pub ports: &'a mut [Attached],
    /// The addresses that programs may send from.
    pub stack: &'a Stack,
    /// What is sent and dropped.
    pub counters: &'a Counters,
    /// The time, in engine nanoseconds.
    pub now_ns: u64,
}

impl RawTable {
    /// No endpoints yet, of a worker with so many ports.
    pub fn new(ports: usize) -> Self {
        Self {
            slots: Vec::new(),
            ports: std::iter::repeat_with(Watchers::default).take(ports).collect(),
            pushed: Pushed::default(),
            waiting: Vec::new(),
            whole: Vec::new(),
        }
    }

    /// Frames that found no room in a ring.
    pub fn dropped(&self) -> u64 {
        self.pushed.dropped
    }

    /// Whether somebody sees what a port receives.
    pub fn sees_received(&self, port: usize) -> bool {
        self.ports.get(port).is_some_and(|of| !of.received.is_empty() || of.taker.is_some())
    }

    /// Whether somebody sees what is sent by a port.
    pub fn sees_sent(&self, port: usize) -> bool {
        self.ports.get(port).is_some_and(|of| !of.sent.is_empty())
    }

    /// Whether rings have to be looked at in the next turn although nobody rings.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Why an endpoint cannot be added; `None` when it can.
    fn refusal(&self, seed: &RawSeed) -> Option<String> {
        for port in &seed.ports {
            let Some(of) = self.ports.get(*port) else {
                return Some("there is no such port".into());
            };
            let sees = seed.wants.received || seed.wants.sent;
            if sees && of.received.len().max(of.sent.len()) >= WATCHERS_MAX {
                return Some(format!(
                    "{WATCHERS_MAX} endpoints see the frames of this port already, as many as can; \
                     end one of them"
                ));
            }
            if seed.wants.take && of.taker.is_some() {
                return Some("another endpoint takes frames from this port; end it first".into());
            }
        }
        None
    }

    /// Adds an endpoint that [`Self::refusal`] has nothing against; its slot.
    fn add(&mut self, (place, index): (u32, u32), seed: RawSeed, rope: Option<Rope>) -> u32 {
        let slot = match self.slots.iter().position(Option::is_none) {
            Some(slot) => slot,
            None => {
                self.slots.push(None);
                self.slots.len() - 1
            }
        };
        for port in &seed.ports {
            let Some(of) = self.ports.get_mut(*port) else { continue };
            if seed.wants.take {
                of.taker = Some(slot as u32);
            } else if seed.wants.received {
                of.received.push(slot as u32);
            }
            if seed.wants.sent {
                of.sent.push(slot as u32);
            }
        }
        let endpoint = RawEndpoint {
            place,
            index,
            rope,
            up: EngineUp::new(Arc::clone(&seed.rings)),
            down: EngineDown::new(Arc::clone(&seed.rings)),
            seed,
            has_news: false,
            waits: false,
            knows_loss: false,
        };
        // Frames are copied here where somebody sees what is sent; never on the path of a packet.
        self.whole.reserve(LONGEST_BYTES);
        if let Some(room) = self.slots.get_mut(slot) {
            *room = Some(Box::new(endpoint));
        }
        slot as u32
    }

    /// Forgets an endpoint; its rings.
    fn remove(&mut self, slot: u32) -> Option<Arc<Rings>> {
        let endpoint = self.slots.get_mut(slot as usize)?.take()?;
        for of in &mut self.ports {
            of.received.retain(|one| *one != slot);
            of.sent.retain(|one| *one != slot);
            if of.taker == Some(slot) {
                of.taker = None;
            }
        }
        self.pushed.news.retain(|one| *one != slot);
        self.waiting.retain(|one| *one != slot);
        Some(endpoint.seed.rings)
    }

    /// Copies a burst of a port to those who see it. Bits of the frames that a taker has got.
    pub fn receive(&mut self, number: usize, port: &dyn Port, burst: &RxBurst, now_ns: u64) -> u64 {
        let Self { slots, ports, pushed, .. } = self;
        let Some(of) = ports.get(number) else { return 0 };
        let mac = port.info().mac;
        let mut taken = 0;
        for (position, handle) in burst.handles.iter().enumerate() {
            let frame = port.frame(*handle);
            let flags = match frame.meta.checksum {
                RxChecksum::Valid => FrameFlags::VERIFIED,
                RxChecksum::Unknown | RxChecksum::Partial { .. } => FrameFlags::empty(),
            };
            let (checksum_start, checksum_offset) = match frame.meta.checksum {
                RxChecksum::Partial { start, offset } => (start, offset),
                RxChecksum::Valid | RxChecksum::Unknown => (0, 0),
            };
            let segment_bytes = frame.meta.gso.map_or(0, |gso| gso.size);
            let meta = Meta {
                checksum_start,
                checksum_offset,
                segment_bytes,
                header_bytes: checks::header_bytes(frame.bytes, checksum_start, checksum_offset),
                segments: segments_of(frame.meta.gso.map(|gso| gso.kind)),
                ..Meta::default()
            };
            let kind = PacketType::of_received(frame.bytes, mac);
            let copied = Copied { number, bytes: frame.bytes, flags, meta, kind, now_ns };
            for slot in of.received.iter().chain(&of.taker) {
                let Some(Some(endpoint)) = slots.get_mut(*slot as usize) else { continue };
                let is_kept = endpoint.give(*slot, &copied, pushed);
                if is_kept && of.taker == Some(*slot) {
                    taken |= 1 << position;
                }
            }
        }
        taken
    }

    /// Copies a frame that a port has sent to those who see that.
    pub(crate) fn copy_sent(&mut self, sending: Sending, sent: &TxMeta, frame: &[u8]) {
        let Sending { number, except, now_ns } = sending;
        let Self { slots, ports, pushed, .. } = self;
        let Some(of) = ports.get(number) else { return };
        let (checksum_start, checksum_offset) = sent.checksum.unwrap_or_default();
        let meta = Meta {
            checksum_start,
            checksum_offset,
            segment_bytes: sent.gso.map_or(0, |gso| gso.size),
            header_bytes: sent.header_bytes,
            segments: segments_of(sent.gso.map(|gso| gso.kind)),
            ..Meta::default()
        };
        let (flags, kind) = (FrameFlags::SENT, PacketType::Outgoing);
        let copied = Copied { number, bytes: frame, flags, meta, kind, now_ns };
        for slot in of.sent.iter().filter(|slot| except != Some(**slot)) {
            let Some(Some(endpoint)) = slots.get_mut(*slot as usize) else { continue };
            endpoint.give(*slot, &copied, pushed);
        }
    }

    /// Gives a frame to a port, and copies of it to those who see what is sent.
    pub(crate) fn send(
        &mut self,
        port: &mut dyn Port,
        sending: Sending,
        frame: &TxFrame<'_>,
    ) -> Result<(), TxError> {
        let Sending { number, except, .. } = sending;
        let TxFrame { meta, header, payload } = *frame;
        let sees = self.ports.get(number).map_or(0, |of| of.sent.len());
        let own = except
            .is_some_and(|own| self.ports.get(number).is_some_and(|of| of.sent.contains(&own)));
        if sees == usize::from(own) {
            return port.send(meta, header, payload);
        }
        // One private copy: what the port sends and what is seen must not differ.
        let mut whole = std::mem::take(&mut self.whole);
        whole.clear();
        whole.extend_from_slice(header);
        for piece in payload {
            let from = whole.len();
            whole.resize(from + piece.len(), 0);
            if let Some(room) = whole.get_mut(from..) {
                piece.copy_to(room);
            }
        }
        let sent = port.send(meta, &whole, &[]);
        if sent.is_ok() {
            self.copy_sent(sending, meta, &whole);
        }
        self.whole = whole;
        sent
    }

    /// Shows programs what was copied since the last call, and notes who broke the contract.
    pub fn publish(&mut self, sessions: &mut Sessions) {
        for slot in self.pushed.news.drain(..) {
            let Some(Some(endpoint)) = self.slots.get_mut(slot as usize) else { continue };
            endpoint.has_news = false;
            if !endpoint.up.publish() {
                continue;
            }
            match &endpoint.rope {
                None => sessions.note_news(endpoint.place, endpoint.index),
                Some(rope) => rope.pull(),
            }
        }
        for (place, breach) in self.pushed.breached.drain(..) {
            if let Some(session) = sessions.at(place) {
                session.breached(Breach::Contract(shm::engine_side::Breach::Rings(breach)));
            }
        }
    }

    /// Sends what a program has pushed, as far as its ports take it: one visit.
    pub fn serve(&mut self, slot: u32, sessions: &mut Sessions, tx: &mut RawTx<'_>) -> Visit {
        let Some(mut endpoint) = self.slots.get_mut(slot as usize).and_then(Option::take) else {
            return Visit::Empty;
        };
        let visited = self.visit(&mut endpoint, slot, tx);
        let visited = visited.unwrap_or_else(|breach| {
            self.pushed.breached.push((endpoint.place, breach));
            Visit::Empty
        });
        let waits = visited != Visit::Empty;
        if waits && !std::mem::replace(&mut endpoint.waits, true) {
            self.waiting.push(slot);
        } else if !waits && std::mem::take(&mut endpoint.waits) {
            self.waiting.retain(|one| *one != slot);
        }
        if endpoint.down.as_mut().is_some_and(EngineDown::publish) {
            sessions.note_news(endpoint.place, endpoint.index);
        }
        if let Some(room) = self.slots.get_mut(slot as usize) {
            *room = Some(endpoint);
        }
        self.publish(sessions);
        visited
    }

    fn visit(
        &mut self,
        endpoint: &mut RawEndpoint,
        slot: u32,
        tx: &mut RawTx<'_>,
    ) -> Result<Visit, RingBreach> {
        let RawTx { ports, stack, counters, now_ns } = tx;
        let Some(down) = &mut endpoint.down else { return Ok(Visit::Empty) };
        let mut header = [0u8; LOOKED_AT_BYTES];
        for _ in 0..MESSAGES_PER_VISIT {
            let frame = match down.peek()? {
                Taken::Nothing => return Ok(Visit::Empty),
                Taken::Wrap | Taken::Bad => {
                    down.finish(down.taken());
                    continue;
                }
                Taken::Frame(frame) => frame,
            };
            let copied = down.read(&frame, &mut header);
            let header = header.get(..copied).unwrap_or_default();
            let number = checks::port_of(&endpoint.seed.ports, frame.port, header, ports);
            let found = number.and_then(|number| Some((number, ports.get_mut(number)?)));
            let sent = found.and_then(|(number, of)| {
                let meta = checks::tx_meta(frame.meta.as_ref(), header, frame.len)?;
                if !endpoint.seed.spoofs && !checks::is_own(header, of, stack) {
                    counters.raw_spoofed.increment();
                    return None;
                }
                let rest = [down.rest(&frame, copied)];
                let payload = rest.get(..usize::from(copied < frame.len)).unwrap_or_default();
                let sending = Sending { number, except: Some(slot), now_ns: *now_ns };
                let frame = TxFrame { meta: &meta, header, payload };
                Some(self.send(&mut *of.port, sending, &frame))
            });
            if sent == Some(Err(TxError::Full)) {
                counters.raw_tx_full.increment();
                return Ok(Visit::Full);
            }
            let is_sent = sent == Some(Ok(()));
            if is_sent {
                counters.raw_tx.increment()
            } else {
                counters.raw_tx_dropped.increment()
            }
            down.count(is_sent);
            down.take(&frame);
            down.finish(frame.end);
        }
        Ok(Visit::More)
    }

    /// Endpoints in use.
    pub fn count(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    /// Those whose rings are to be looked at in this turn.
    fn take_waiting(&mut self) -> Vec<u32> {
        for slot in &self.waiting {
            if let Some(Some(endpoint)) = self.slots.get_mut(*slot as usize) {
                endpoint.waits = false;
            }
        }
        std::mem::take(&mut self.waiting)
    }

    /// Names the endpoints all of whose ports are gone, once.
    fn each_lost(&mut self, is_lost: impl Fn(usize) -> bool, mut tell: impl FnMut(u32, u32)) {
        for endpoint in self.slots.iter_mut().flatten() {
            if !endpoint.knows_loss && endpoint.seed.ports.iter().all(|port| is_lost(*port)) {
                endpoint.knows_loss = true;
                tell(endpoint.place, endpoint.index);
            }
        }
    }
}

/// In the place of a session where there is none.
const NOBODY: u32 = u32::MAX;

/// Longest frame that a port brings or takes.
const LONGEST_BYTES: usize = 65_536 + 64;

fn segments_of(kind: Option<port::GsoKind>) -> SegmentKind {
    match kind {
        None => SegmentKind::None,
        Some(port::GsoKind::Tcp4) => SegmentKind::Tcp4,
        Some(port::GsoKind::Tcp6) => SegmentKind::Tcp6,
        Some(port::GsoKind::Udp) => SegmentKind::Udp,
    }
}

/// A frame on its way to those who see it.
struct Copied<'a> {
    number: usize,
    bytes: &'a [u8],
    flags: FrameFlags,
    meta: Meta,
    kind: PacketType,
    now_ns: u64,
}

impl RawEndpoint {
    /// Whether the filter keeps a frame; what it keeps is put into the ring.
    fn give(&mut self, slot: u32, frame: &Copied<'_>, pushed: &mut Pushed) -> bool {
        let Copied { number, bytes, mut flags, meta, kind, now_ns } = *frame;
        let snap = match &self.seed.filter {
            None => usize::MAX,
            Some(filter) => filter.run(bytes, kind) as usize,
        };
        if snap == 0 {
            return false;
        }
        let has_meta = self.seed.wants.meta;
        let kept = bytes.len().min(snap).min(self.up.frame_bytes_max(has_meta));
        flags.set(FrameFlags::CUT, kept < bytes.len());
        flags.set(FrameFlags::META, has_meta);
        let original_bytes = bytes.len() as u32;
        let meta = has_meta.then_some(Meta { time_ns: now_ns, original_bytes, ..meta });
        let port = self.seed.ports.iter().position(|one| *one == number).map_or(0, |at| at + 1);
        let bytes = bytes.get(..kept).unwrap_or_default();
        let info = UpInfo { port: port as u8, flags, meta: meta.as_ref(), time_ns: now_ns };
        match self.up.push(info, bytes) {
            Ok(true) => {}
            Ok(false) => pushed.dropped += 1,
            Err(breach) => pushed.breached.push((self.place, breach)),
        }
        if !std::mem::replace(&mut self.has_news, true) {
            pushed.news.push(slot);
        }
        true
    }
}
