//! Raw endpoints: programs that see and send frames themselves, through byte rings
//! ([`shm::raw`]).
//!
//! A frame that a port receives or sends is copied to each endpoint that watches the port
//! ([`RawTable::receive`], [`RawTable::copy_sent`]); a taking endpoint gets it instead of the
//! stack. Frames pushed by programs go from their rings to the ports ([`RawTable::serve`]), checked
//! by [`checks`]. Ports without raw endpoints cost one branch per burst.

mod checks;
pub mod filter;
mod order;
mod outlet;
mod requests;
pub mod rights;
mod visit;

use std::collections::VecDeque;
use std::sync::Arc;

use port::{Claim, Port, RxBurst, RxChecksum, TxError, TxFrame, TxMeta};
use shm::raw::{
    EngineDown, EngineUp, FrameFlags, Meta, RingBreach, RingSizes, Rings, SegmentKind, UpInfo,
};

use self::filter::{PacketType, RawFilter};
use self::order::{COPIED_BYTES, Order};
pub use self::outlet::{Sending, Watch, Watched};
pub use self::visit::{Outward, Visit};
use crate::service::mirror::Rope;
use crate::session::Breach;
use crate::sessions::Sessions;

/// Maximum endpoints that see one port's frames.
pub const WATCHERS_MAX: usize = 16;
/// Maximum ports of an endpoint.
pub const PORTS_MAX: usize = 16;

/// Parameters of an endpoint; all are checked.
pub struct RawSeed {
    /// Its rings.
    pub rings: Arc<Rings>,
    /// The engine's ports that it uses, in its own numbering.
    pub ports: Vec<usize>,
    /// Filter of its frames, which also limits their length.
    pub filter: Option<RawFilter>,
    /// Its options.
    pub wants: shm::control::RawWants,
    /// It may send frames with any source address.
    pub spoofs: bool,
}

impl RawSeed {
    /// What must be claimed where a port shares its interface with the kernel.
    fn claim(&self) -> Option<Claim> {
        self.wants.ethertype.filter(|_| self.wants.take).map(Claim::EtherType)
    }
}

/// Whether frames of one port may have to wait while those of others go on.
fn has_order(sizes: RingSizes, ports: usize) -> bool {
    ports > 1 && sizes.down > 0
}

/// Bytes that an endpoint with so many ports costs its user: the rings, and copies of frames that wait for
/// their port.
pub(crate) fn charged_bytes(sizes: RingSizes, ports: usize) -> u64 {
    let copies = if has_order(sizes, ports) { ports * COPIED_BYTES } else { 0 };
    sizes.total() + copies as u64
}

/// An endpoint as the worker keeps it.
struct RawEndpoint {
    place: u32,
    index: u32,
    /// The handle of a mirror's thread, instead of a session.
    rope: Option<Rope>,
    up: EngineUp,
    down: Option<EngineDown>,
    /// What waits for its ports, where there are several to send by.
    order: Option<Box<Order>>,
    seed: RawSeed,
    /// In the list of endpoints with pushed, unpublished frames.
    has_news: bool,
    /// In the list of endpoints whose rings are checked every turn.
    waits: bool,
    /// Its program knows that all its ports are gone.
    knows_loss: bool,
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
    /// Slots in use.
    used: usize,
    pushed: Pushed,
    waiting: VecDeque<u32>,
    whole: Vec<u8>,
}

impl RawTable {
    /// No endpoints, for a worker with so many ports.
    pub fn new(ports: usize) -> Self {
        Self {
            slots: Vec::new(),
            ports: std::iter::repeat_with(Watchers::default).take(ports).collect(),
            used: 0,
            pushed: Pushed::default(),
            waiting: VecDeque::new(),
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

    /// Whether an endpoint sees the frames that a port sends.
    pub fn sees_sent(&self, port: usize) -> bool {
        self.ports.get(port).is_some_and(|of| !of.sent.is_empty())
    }

    /// Whether rings must be checked in the next turn without a doorbell.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Why an endpoint cannot be added; `None` if it can.
    fn refusal(&self, seed: &RawSeed) -> Option<String> {
        for port in &seed.ports {
            let Some(of) = self.ports.get(*port) else {
                return Some("there is no such port".into());
            };
            let sees = seed.wants.received || seed.wants.sent;
            if sees && of.received.len().max(of.sent.len()) >= WATCHERS_MAX {
                return Some(format!(
                    "{WATCHERS_MAX} endpoints already watch this port, which is the maximum; close \
                     one of them"
                ));
            }
            if seed.wants.take && of.taker.is_some() {
                return Some(
                    "another endpoint already takes frames from this port; close it first".into(),
                );
            }
        }
        None
    }

    /// Adds an endpoint that [`Self::refusal`] accepts; returns its slot.
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
            order: has_order(seed.rings.sizes(), seed.ports.len())
                .then(|| Box::new(Order::new(seed.ports.len()))),
            seed,
            has_news: false,
            waits: false,
            knows_loss: false,
        };
        // Allocated here, where an endpoint sees sent frames; never on the path of a packet.
        self.whole.reserve(LONGEST_BYTES);
        if let Some(room) = self.slots.get_mut(slot) {
            *room = Some(Box::new(endpoint));
            self.used += 1;
        }
        slot as u32
    }

    /// Forgets an endpoint; its rings.
    fn remove(&mut self, slot: u32) -> Option<RawSeed> {
        let endpoint = self.slots.get_mut(slot as usize)?.take()?;
        self.used -= 1;
        for of in &mut self.ports {
            of.received.retain(|one| *one != slot);
            of.sent.retain(|one| *one != slot);
            if of.taker == Some(slot) {
                of.taker = None;
            }
        }
        self.pushed.news.retain(|one| *one != slot);
        self.waiting.retain(|one| *one != slot);
        Some(endpoint.seed)
    }

    /// Copies a burst of a port to its watchers. Returns the bits of the frames taken by an
    /// endpoint.
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

    /// Passes a frame to a port, and copies of it to the watchers of sent frames.
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
        // One private copy, so that the sent frame and the copies cannot differ.
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

    /// Publishes the frames copied since the last call, and notes breaches of contract.
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

    /// Endpoints in use.
    pub fn count(&self) -> usize {
        self.used
    }

    /// Whether an endpoint's ring is looked at every turn.
    fn waits(&self, slot: u32) -> bool {
        let endpoint = self.slots.get(slot as usize).and_then(Option::as_ref);
        endpoint.is_some_and(|endpoint| endpoint.waits)
    }

    /// Puts the first of those whose rings are looked at every turn behind the others.
    fn rotate_waiting(&mut self) {
        if let Some(first) = self.waiting.pop_front() {
            self.waiting.push_back(first);
        }
    }

    /// How many rings are to be looked at in this turn.
    fn count_waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The next of them; one that has to go on waiting comes back behind the others.
    fn take_waiting(&mut self) -> Option<u32> {
        let slot = self.waiting.pop_front()?;
        if let Some(Some(endpoint)) = self.slots.get_mut(slot as usize) {
            endpoint.waits = false;
        }
        Some(slot)
    }

    /// Reports each endpoint all of whose ports are gone, once.
    fn each_lost(&mut self, is_lost: impl Fn(usize) -> bool, mut tell: impl FnMut(u32, u32)) {
        for endpoint in self.slots.iter_mut().flatten() {
            if !endpoint.knows_loss && endpoint.seed.ports.iter().all(|port| is_lost(*port)) {
                endpoint.knows_loss = true;
                tell(endpoint.place, endpoint.index);
            }
        }
    }
}

/// The session slot of an endpoint without a session.
const NOBODY: u32 = u32::MAX;

/// Maximum frame of a port.
const LONGEST_BYTES: usize = 65_536 + 64;

fn segments_of(kind: Option<port::GsoKind>) -> SegmentKind {
    match kind {
        None => SegmentKind::None,
        Some(port::GsoKind::Tcp4) => SegmentKind::Tcp4,
        Some(port::GsoKind::Tcp6) => SegmentKind::Tcp6,
        Some(port::GsoKind::Udp) => SegmentKind::Udp,
    }
}

/// A frame to be copied.
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
        let is_of = |kind: u16| bytes.get(12..14) == Some(&kind.to_be_bytes());
        if self.seed.wants.ethertype.is_some_and(|kind| !is_of(kind)) {
            return false;
        }
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
