//! Reassembly of fragmented packets (RFC 791, section 3.2; RFC 8200, section 4.5; RFC 815 for the
//! idea of holes), within bounds.
//!
//! Memory comes with the bytes, in chunks: a fragment takes those that it lies in. Where there are
//! too many datagrams or bytes, of all or of one source, the oldest that is incomplete gives way, as
//! who floods a host with fragments could otherwise keep all others' from it for as long as these
//! wait for their rest; honest datagrams are whole in a moment.
//!
//! Fragments that overlap what has come before end their datagram (as RFC 5722 demands for IPv6):
//! honest senders never make them, and which copy to believe is an attacker's choice. A repeated
//! fragment counts as overlap only when it is not exactly inside what has come. Of IPv6, what
//! still comes of such a datagram is dropped, too, until its time is over.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use wire::ipv4::{Ipv4Header, Protocol};
use wire::ipv6::{Fragment, Ipv6Header, is_link_local};

use crate::api::InterfaceIndex;
use crate::drops::DropReason;
use crate::flow::{FlowTable, KeyedHash};

/// Most bytes of payload an IPv4 packet with a plain header has.
const PAYLOAD_MAX_V4: usize = 65535 - 20;
/// The same for IPv6, and so for any packet.
//= https://www.rfc-editor.org/rfc/rfc8200#section-5
//# A node must be able to accept a fragmented packet that, after reassembly, is as large as 1500
//# octets.
pub const PAYLOAD_MAX: usize = 65535;
/// Fragment offsets count in these.
const UNIT: usize = 8;
/// Bytes of a chunk, and units, of which it knows which have come.
const CHUNK: usize = 2048;
const CHUNK_UNITS: usize = CHUNK / UNIT;
/// Chunks of the longest payload.
const CHUNKS: usize = PAYLOAD_MAX.div_ceil(CHUNK);
/// Of all chunks one source may have one in so many, and enough for the longest payload.
const SHARE: usize = 4;
/// No slot, chunk or source.
const NONE: u32 = u32::MAX;

/// Source, destination, protocol (0 of IPv6, whose fragments need not agree on it),
/// identification, and the link of addresses that mean something there alone: a group's packet may
/// come in by several.
type Key = (IpAddr, IpAddr, u8, u32, Option<InterfaceIndex>);

/// What a fragment's headers say of it.
#[derive(Clone, Copy, Debug)]
pub struct FragmentInfo {
    /// From whom.
    pub src: IpAddr,
    /// To whom.
    pub dst: IpAddr,
    /// What the whole carries, according to this fragment.
    pub protocol: Protocol,
    /// Groups fragments of one packet.
    pub identification: u32,
    /// Where it belongs.
    pub offset: u16,
    /// It is not the last.
    pub more: bool,
    /// Its ECN field.
    pub ecn: u8,
    /// On whose link it came: there its sender is told, where its address means something there
    /// alone.
    pub link: InterfaceIndex,
}

/// Longest header that is kept to be quoted: any of IPv4, and of IPv6 with 80 bytes of extension
/// headers beside that of the fragment.
const HEADER_MAX: usize = 128;

/// ECN fields that may be marked, and the mark (RFC 3168, section 5).
const ECT_0: u8 = 2;
const CE: u8 = 3;

/// The ECN field of a whole whose fragments had these (bits of the codepoints); `None` where some
/// could be marked and others not, which no honest sender makes. As the kernel's ip_frag_ecn_table.
//= https://www.rfc-editor.org/rfc/rfc3168#section-5.3
//# Reassembly of a fragmented packet MUST NOT lose indications of congestion.
//= https://www.rfc-editor.org/rfc/rfc3168#section-5.3
//# In other words, if any fragment of an IP packet to be reassembled has the CE codepoint set, then
//# one of two actions MUST be taken:
//= https://www.rfc-editor.org/rfc/rfc3168#section-5.3
//# However, this MUST NOT occur if any of the other fragments contributing to this reassembly
//# carries the Not-ECT codepoint.
//= https://www.rfc-editor.org/rfc/rfc3168#section-5.3
//# Reassembly of a fragmented packet MUST NOT change the ECN codepoint when all of the fragments
//# carry the same codepoint.
fn joined_ecn(seen: u8) -> Option<u8> {
    match seen {
        seen if seen.is_power_of_two() => Some(seen.trailing_zeros() as u8),
        seen if seen & 1 != 0 => None,
        seen if seen & 1 << CE != 0 => Some(CE),
        _ => Some(ECT_0),
    }
}

impl FragmentInfo {
    /// Of an IPv4 packet.
    pub fn v4(header: &Ipv4Header, link: InterfaceIndex) -> Self {
        Self {
            src: header.src.into(),
            dst: header.dst.into(),
            protocol: header.protocol,
            identification: header.identification.into(),
            offset: header.fragment_offset,
            more: header.more_fragments,
            ecn: header.tos & 3,
            link,
        }
    }

    /// Of an IPv6 packet.
    pub fn v6(header: &Ipv6Header, fragment: &Fragment, link: InterfaceIndex) -> Self {
        Self {
            src: header.src.into(),
            dst: header.dst.into(),
            protocol: fragment.next_header,
            identification: fragment.identification,
            offset: fragment.offset,
            more: fragment.more,
            ecn: header.traffic_class & 3,
            link,
        }
    }

    fn key(&self) -> Key {
        let protocol = if self.src.is_ipv4() { self.protocol.0 } else { 0 };
        let link = self.is_of_its_link().then_some(self.link);
        (self.src, self.dst, protocol, self.identification, link)
    }

    /// Whether its addresses mean something on its link alone.
    fn is_of_its_link(&self) -> bool {
        let (IpAddr::V6(src), IpAddr::V6(dst)) = (self.src, self.dst) else { return false };
        is_link_local(src) || is_link_local(dst) || dst.is_multicast()
    }
}

/// A datagram whose rest did not come in time.
#[derive(Debug)]
pub struct Expired<'a> {
    /// The first fragment's headers as they came, through that of the fragment.
    pub header: &'a [u8],
    /// What the first fragment carried, as far as it lies within the first chunk.
    pub first: &'a [u8],
    /// The link of addresses that mean something there alone.
    pub link: Option<InterfaceIndex>,
}

/// Datagrams being put together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reassembly {
    slots: Vec<Slot>,
    free: Vec<u32>,
    by_key: FlowTable<Key>,
    /// All that are incomplete, the oldest first.
    order: Order,
    chunks: Vec<Chunk>,
    free_chunks: Vec<u32>,
    sources: Vec<Source>,
    free_sources: Vec<u32>,
    by_source: FlowTable<IpAddr>,
    per_source: u32,
    /// Where whole datagrams are put together.
    whole: Vec<u8>,
    evictions: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Slot {
    key: Option<Key>,
    /// The first fragment's headers, within a capacity taken when the stack is made.
    header: Vec<u8>,
    /// Bytes of payload of the first fragment.
    first: u32,
    /// One more than the chunk at each place, or 0.
    chunks: [u32; CHUNKS],
    /// How far the payload reaches that has come.
    reach: u32,
    /// Units that have come.
    units: u32,
    /// Total payload length, once the last fragment has come.
    total: Option<u32>,
    /// What the first fragment says that the whole carries.
    protocol: Protocol,
    /// ECN fields of its fragments, a bit for each.
    ecn_seen: u8,
    /// It was given up, and what still comes of it is dropped.
    is_spoilt: bool,
    source: u32,
    of_all: Link,
    of_source: Link,
}

/// Bytes of a datagram, and which of its units have come. It has memory from its first use on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Chunk {
    bytes: Vec<u8>,
    present: [u64; CHUNK_UNITS / 64],
}

/// What a source has.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Source {
    order: Order,
    datagrams: u32,
    chunks: u32,
}

/// The ends of a list of slots.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Order {
    oldest: u32,
    newest: u32,
}

/// A slot's neighbours in a list.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Link {
    older: u32,
    newer: u32,
}

impl Default for Order {
    fn default() -> Self {
        Self { oldest: NONE, newest: NONE }
    }
}

impl Default for Link {
    fn default() -> Self {
        Self { older: NONE, newer: NONE }
    }
}

impl Order {
    /// Puts a slot at the end of the list whose links `link` finds.
    fn push(&mut self, slots: &mut [Slot], slot: u32, link: fn(&mut Slot) -> &mut Link) {
        *link(&mut slots[slot as usize]) = Link { older: self.newest, newer: NONE };
        match self.newest {
            NONE => self.oldest = slot,
            newest => link(&mut slots[newest as usize]).newer = slot,
        }
        self.newest = slot;
    }

    fn remove(&mut self, slots: &mut [Slot], slot: u32, link: fn(&mut Slot) -> &mut Link) {
        let Link { older, newer } = std::mem::take(link(&mut slots[slot as usize]));
        match older {
            NONE => self.oldest = newer,
            older => link(&mut slots[older as usize]).newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => link(&mut slots[newer as usize]).older = older,
        }
    }
}

fn of_all(slot: &mut Slot) -> &mut Link {
    &mut slot.of_all
}

fn of_source(slot: &mut Slot) -> &mut Link {
    &mut slot.of_source
}

/// What became of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentStatus {
    /// The first of its datagram: it now has this slot, and wants a timer.
    Started(u32),
    /// More is missing.
    Waiting,
    /// The datagram in this slot is whole: [`Reassembly::take`] it.
    Complete(u32),
}

/// A datagram whose fragments are all there.
#[derive(Debug)]
pub struct Whole {
    /// What they carried.
    pub bytes: Vec<u8>,
    /// What the first one said is in it.
    pub protocol: Protocol,
    /// Its ECN field.
    pub ecn: u8,
}

impl Reassembly {
    /// Room for `count` datagrams, `per_source` of them from one source, with `bytes` of payload.
    pub fn new(hash: KeyedHash, count: u32, per_source: u32, bytes: u32) -> Self {
        let count = count.max(1);
        let slot = |_| Slot { header: Vec::with_capacity(HEADER_MAX), ..Slot::default() };
        // The longest datagram has room in any case.
        let chunks = (bytes as usize / CHUNK).max(CHUNKS);
        Self {
            slots: (0..count).map(slot).collect(),
            free: (0..count).rev().collect(),
            by_key: FlowTable::new(hash, count),
            order: Order::default(),
            chunks: vec![Chunk::default(); chunks],
            free_chunks: (0..chunks as u32).rev().collect(),
            sources: vec![Source::default(); count as usize],
            free_sources: (0..count).rev().collect(),
            by_source: FlowTable::new(hash, count),
            per_source: per_source.max(1),
            whole: Vec::new(),
            evictions: 0,
        }
    }

    /// Keeps the headers of a datagram's first fragment, which is `piece`, to be quoted should the others
    /// not come; those that are very long not, and nobody is told then. Other pieces are ignored.
    pub fn keep_header(&mut self, piece: &FragmentInfo, [header, options]: [&[u8]; 2]) {
        let found = self.by_key.find(&piece.key()).filter(|_| piece.offset == 0);
        if let (Some(slot), true) = (found, header.len() + options.len() <= HEADER_MAX) {
            let held = &mut self.slots[slot as usize];
            held.header.clear();
            held.header.extend_from_slice(header);
            held.header.extend_from_slice(options);
        }
    }

    /// Takes a fragment.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.3.2
    //# The IP layer MUST implement reassembly of IP datagrams.
    //= https://www.rfc-editor.org/rfc/rfc1122#section-3.3.2
    //# EMTU_R MUST be greater than or equal to 576, SHOULD be either configurable or indefinite,
    //# and SHOULD be greater than or equal to the MTU of the connected network(s).
    pub fn on_fragment(
        &mut self,
        piece: &FragmentInfo,
        payload: &[u8],
    ) -> Result<FragmentStatus, DropReason> {
        let offset = usize::from(piece.offset);
        let end = offset.saturating_add(payload.len());
        let is_v6 = piece.src.is_ipv6();
        let most = if is_v6 { PAYLOAD_MAX } else { PAYLOAD_MAX_V4 };
        if payload.is_empty() || end > most || (piece.more && !payload.len().is_multiple_of(UNIT)) {
            return Err(DropReason::FragmentMalformed);
        }
        let key = piece.key();
        let (slot, is_new) = match self.by_key.find(&key) {
            Some(slot) => (slot, false),
            None => (self.start(key).ok_or(DropReason::FragmentLimit)?, true),
        };
        let held = &mut self.slots[slot as usize];
        if held.is_spoilt {
            return Err(DropReason::FragmentOverlap);
        }
        if offset == 0 {
            held.protocol = piece.protocol;
            held.first = payload.len() as u32;
        }
        held.ecn_seen |= 1 << (piece.ecn & 3);
        let is_odd = joined_ecn(held.ecn_seen).is_none();
        match self.add(slot, offset, payload, !piece.more) {
            //= https://www.rfc-editor.org/rfc/rfc8200#section-4.5
            //# o If any of the fragments being reassembled overlap with any other fragments being
            //# reassembled for the same packet, reassembly of that packet must be abandoned and all
            //# the fragments that have been received for that packet must be discarded, and no ICMP
            //= https://www.rfc-editor.org/rfc/rfc5722#section-4
            //# When reassembling an IPv6 datagram, if one or more its constituent fragments is
            //# determined to be an overlapping fragment, the entire datagram (and any constituent
            //# fragments, including those not yet received) MUST be silently discarded.
            Err(reason) if is_v6 => {
                self.slots[slot as usize].is_spoilt = true;
                self.forget_payload(slot);
                Err(reason)
            }
            Err(reason) => {
                self.free(slot);
                Err(reason)
            }
            Ok(true) if is_odd => {
                self.free(slot);
                Err(DropReason::FragmentMalformed)
            }
            Ok(true) => Ok(FragmentStatus::Complete(slot)),
            Ok(false) if is_new => Ok(FragmentStatus::Started(slot)),
            Ok(false) => Ok(FragmentStatus::Waiting),
        }
    }

    /// A slot for a new datagram; the oldest ones make room.
    fn start(&mut self, key: Key) -> Option<u32> {
        if let Some(source) = self.by_source.find(&key.0) {
            let Source { datagrams, order, .. } = self.sources[source as usize];
            if datagrams >= self.per_source {
                self.evict(order.oldest);
            }
        }
        if self.free.is_empty() {
            self.evict(self.order.oldest);
        }
        let slot = self.free.pop()?;
        // There are as many sources as slots, and both tables are as large; the last datagram of
        // the source may just have given way.
        let source = match self.by_source.find(&key.0) {
            Some(source) => source,
            None => {
                let source = self.free_sources.pop()?;
                let _ = self.by_source.insert(key.0, source);
                source
            }
        };
        let _ = self.by_key.insert(key, slot);
        let held = &mut self.slots[slot as usize];
        (held.key, held.source) = (Some(key), source);
        self.order.push(&mut self.slots, slot, of_all);
        let own = &mut self.sources[source as usize];
        own.datagrams += 1;
        own.order.push(&mut self.slots, slot, of_source);
        Some(slot)
    }

    /// A datagram gives way to newer ones.
    fn evict(&mut self, slot: u32) {
        if slot != NONE {
            self.evictions += 1;
            self.free(slot);
        }
    }

    /// Takes a fragment's bytes into a datagram; `true`: it is complete now.
    fn add(
        &mut self,
        slot: u32,
        offset: usize,
        payload: &[u8],
        is_last: bool,
    ) -> Result<bool, DropReason> {
        let held = &self.slots[slot as usize];
        let end = offset + payload.len();
        let (first, last) = (offset / UNIT, end.div_ceil(UNIT));
        let come = (first..last).filter(|&unit| self.has(held, unit)).count();
        let is_new_total = is_last && held.total.is_none();
        // Nothing may lie behind the end, and there is only one end.
        let contradicts = match held.total {
            Some(total) => end > total as usize || (is_last && end != total as usize),
            None => is_last && held.reach as usize > end,
        };
        if contradicts {
            return Err(DropReason::FragmentOverlap);
        }
        if come != 0 {
            // A network may repeat a packet; the same bytes again say nothing new.
            //= https://www.rfc-editor.org/rfc/rfc8200#section-4.5
            //# It should be noted that fragments may be duplicated in the network.
            let is_repeat = come == last - first
                && self.is_same(held, offset, payload)
                && end <= held.reach as usize
                && !is_new_total;
            return if is_repeat { Ok(false) } else { Err(DropReason::FragmentOverlap) };
        }
        self.make_room(slot, offset, end)?;
        for (at, part) in parts(offset, payload) {
            let chunk = self.slots[slot as usize].chunks[at / CHUNK] as usize - 1;
            let chunk = &mut self.chunks[chunk];
            chunk.bytes[at % CHUNK..][..part.len()].copy_from_slice(part);
            let first = at % CHUNK / UNIT;
            for unit in first..first + part.len().div_ceil(UNIT) {
                chunk.present[unit / 64] |= 1 << (unit % 64);
            }
        }
        let held = &mut self.slots[slot as usize];
        held.reach = held.reach.max(end as u32);
        held.units += (last - first) as u32;
        if is_last {
            held.total = Some(end as u32);
        }
        Ok(held.total.is_some_and(|total| held.units as usize == (total as usize).div_ceil(UNIT)))
    }

    /// Gives a datagram the chunks that bytes `offset..end` lie in; others make room.
    fn make_room(&mut self, slot: u32, offset: usize, end: usize) -> Result<(), DropReason> {
        let source = self.slots[slot as usize].source as usize;
        let share = (self.chunks.len() / SHARE).max(CHUNKS);
        for place in offset / CHUNK..end.div_ceil(CHUNK) {
            if self.slots[slot as usize].chunks[place] != 0 {
                continue;
            }
            let Source { chunks, order, .. } = self.sources[source];
            if chunks as usize >= share {
                self.evict_for(slot, order.oldest, of_source);
            }
            if self.free_chunks.is_empty() {
                self.evict_for(slot, self.order.oldest, of_all);
            }
            let chunk = self.free_chunks.pop().ok_or(DropReason::FragmentLimit)?;
            let memory = &mut self.chunks[chunk as usize];
            memory.bytes.resize(CHUNK, 0);
            memory.present = Default::default();
            self.slots[slot as usize].chunks[place] = chunk + 1;
            self.sources[source].chunks += 1;
        }
        Ok(())
    }

    /// The oldest of a list that has any bytes gives way to `slot`, which is not it.
    fn evict_for(&mut self, slot: u32, oldest: u32, link: fn(&mut Slot) -> &mut Link) {
        let mut next = oldest;
        while let Some(held) = self.slots.get_mut(next as usize) {
            let newer = link(held).newer;
            if next != slot {
                let has_bytes = held.units > 0;
                self.evict(next);
                if has_bytes {
                    return;
                }
            }
            next = newer;
        }
    }

    fn chunk(&self, held: &Slot, place: usize) -> Option<&Chunk> {
        let chunk = held.chunks.get(place)?.checked_sub(1)?;
        self.chunks.get(chunk as usize)
    }

    fn has(&self, held: &Slot, unit: usize) -> bool {
        let (place, unit) = (unit / CHUNK_UNITS, unit % CHUNK_UNITS);
        self.chunk(held, place)
            .is_some_and(|chunk| chunk.present[unit / 64] & 1 << (unit % 64) != 0)
    }

    /// Whether a datagram has these bytes already, all of whose units have come.
    fn is_same(&self, held: &Slot, offset: usize, payload: &[u8]) -> bool {
        parts(offset, payload).all(|(at, part)| {
            let chunk = self.chunk(held, at / CHUNK);
            chunk
                .and_then(|chunk| chunk.bytes.get(at % CHUNK..))
                .is_some_and(|b| b.starts_with(part))
        })
    }

    /// Takes a whole datagram's payload out, and what it is; give the buffer back with
    /// [`give`](Self::give).
    pub fn take(&mut self, slot: u32) -> Whole {
        let mut bytes = std::mem::take(&mut self.whole);
        let held = &self.slots[slot as usize];
        let (protocol, reach) = (held.protocol, held.reach as usize);
        for place in 0..reach.div_ceil(CHUNK) {
            let chunk = self.chunk(held, place).map(|chunk| &*chunk.bytes).unwrap_or_default();
            bytes.extend_from_slice(chunk.get(..reach - place * CHUNK).unwrap_or(chunk));
        }
        let ecn = joined_ecn(held.ecn_seen).unwrap_or(0);
        self.free(slot);
        Whole { bytes, protocol, ecn }
    }

    /// Takes the buffer of [`take`](Self::take) back.
    pub fn give(&mut self, whole: Whole) {
        self.whole = whole.bytes;
        self.whole.clear();
    }

    /// The time of the datagram in `slot` is over: `tell` hears what came with its first fragment, if its
    /// headers were kept. `false` when there is none.
    pub fn expire(&mut self, slot: u32, tell: impl FnOnce(&Expired<'_>)) -> bool {
        let Some(held) = self.slots.get(slot as usize) else { return false };
        let Some((.., link)) = held.key else { return false };
        if !held.is_spoilt && !held.header.is_empty() {
            let chunk = self.chunk(held, 0).map(|chunk| &*chunk.bytes).unwrap_or_default();
            let first = chunk.get(..held.first as usize).unwrap_or(chunk);
            tell(&Expired { header: &held.header, first, link });
        }
        self.free(slot);
        true
    }

    /// Gives a datagram's chunks back.
    fn forget_payload(&mut self, slot: u32) {
        let held = &mut self.slots[slot as usize];
        (held.reach, held.units) = (0, 0);
        let own = &mut self.sources[held.source as usize];
        for place in &mut held.chunks {
            if let Some(chunk) = std::mem::take(place).checked_sub(1) {
                self.chunks[chunk as usize].bytes.clear();
                self.free_chunks.push(chunk);
                own.chunks -= 1;
            }
        }
    }

    fn free(&mut self, slot: u32) {
        let Some(key) = self.slots[slot as usize].key.take() else { return };
        self.forget_payload(slot);
        self.order.remove(&mut self.slots, slot, of_all);
        let held = &mut self.slots[slot as usize];
        held.header.clear();
        held.first = 0;
        held.total = None;
        held.ecn_seen = 0;
        held.is_spoilt = false;
        let source = held.source;
        self.free.push(slot);
        self.by_key.remove(&key);
        let own = &mut self.sources[source as usize];
        own.order.remove(&mut self.slots, slot, of_source);
        own.datagrams -= 1;
        if own.datagrams == 0 {
            self.by_source.remove(&key.0);
            self.free_sources.push(source);
        }
    }

    /// Datagrams that gave way to newer ones.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// How many datagrams are incomplete.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Takes the memory of headers again after an import.
    pub fn reserve(&mut self) {
        for slot in &mut self.slots {
            slot.header.reserve(HEADER_MAX);
        }
    }
}

/// Cuts payload where chunks end: each part, and where it begins.
fn parts(offset: usize, payload: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let (mut at, mut rest) = (offset, payload);
    std::iter::from_fn(move || {
        let (part, behind) = rest.split_at(rest.len().min(CHUNK - at % CHUNK));
        let here = (at, part);
        (at, rest) = (at + part.len(), behind);
        (!part.is_empty()).then_some(here)
    })
}

#[cfg(test)]
mod tests;
