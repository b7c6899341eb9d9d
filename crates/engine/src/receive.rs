//! Storage of received bytes: pages of streams, and the stash of connections that are not yet
//! accepted.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use shm::descriptor::Span;
use stack::api::SocketId;

use crate::endpoint::{EndpointSocket, NO_BUFFER, ReceiveHalf, Role, Stream};
use crate::session::{Breach, Session};
use crate::stats::Counters;

/// Approximate overhead of a piece of early bytes.
const PIECE_BYTES: usize = 96;

/// Early bytes of connections that wait to be accepted, out-of-order ones included.
#[derive(Debug, Default)]
pub struct Stash {
    entries: HashMap<SocketId, Early>,
    bytes: usize,
}

/// Early bytes of one connection.
#[derive(Debug, Default)]
pub struct Early {
    /// By stream offset; they may overlap.
    pub pieces: BTreeMap<u64, Vec<u8>>,
    /// Bytes used by them.
    bytes: usize,
}

impl Early {
    /// One past the last byte.
    pub fn end(&self) -> u64 {
        self.pieces.iter().map(|(start, piece)| start + piece.len() as u64).max().unwrap_or(0)
    }
}

/// Bounds of a stash, bytes.
#[derive(Clone, Copy, Debug)]
pub struct StashLimits {
    /// Of one connection: bytes kept, and how far into the stream they may reach.
    pub connection: usize,
    /// Of all connections together.
    pub total: usize,
}

impl Stash {
    /// Keeps `bytes` at `offset` of their stream. `false`: they are beyond a limit.
    pub fn store(&mut self, id: SocketId, offset: u64, bytes: &[u8], limits: StashLimits) -> bool {
        let end = offset.saturating_add(bytes.len() as u64);
        if end > limits.connection as u64 {
            return false;
        }
        let known = self.entries.get(&id);
        let piece_end = |(start, piece): (&u64, &Vec<u8>)| start + piece.len() as u64;
        let before = known.and_then(|early| early.pieces.range(..=offset).next_back());
        let continues = before.filter(|before| piece_end(*before) >= offset);
        let skip = continues.map_or(0, |before| piece_end(before) - offset);
        let new = usize::try_from(skip).ok().and_then(|skip| bytes.get(skip..)).unwrap_or_default();
        let takes = new.len() + if continues.is_none() { PIECE_BYTES } else { 0 };
        let taken = known.map_or(0, |early| early.bytes);
        if taken + takes > limits.connection + PIECE_BYTES || self.bytes + takes > limits.total {
            return false;
        }
        let start = continues.map_or(offset, |(start, _)| *start);
        let early = self.entries.entry(id).or_default();
        early.pieces.entry(start).or_default().extend_from_slice(new);
        early.bytes += takes;
        self.bytes += takes;
        true
    }

    /// Takes all early bytes of a connection.
    pub fn take(&mut self, id: SocketId) -> Early {
        let early = self.entries.remove(&id).unwrap_or_default();
        self.bytes -= early.bytes;
        early
    }

    /// Drops the entries of closed connections, when the stash is full.
    pub fn sweep(&mut self, is_alive: impl Fn(SocketId) -> bool) {
        let bytes = &mut self.bytes;
        self.entries.retain(|id, kept| {
            let alive = is_alive(*id);
            if !alive {
                *bytes -= kept.bytes;
            }
            alive
        });
    }

    /// Bytes in the whole stash.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Session {
    /// Copies bytes of a stream to their pages. `false`: there is no room, and none counts as
    /// received.
    pub fn store_stream(
        &mut self,
        EndpointSocket { index, id }: EndpointSocket,
        offset: u64,
        bytes: &[u8],
        counters: &Counters,
    ) -> bool {
        let geometry = *self.region.geometry();
        let page_bytes = u64::from(geometry.buffer_bytes);
        let Some(endpoint) = self.endpoints.get_mut(index as usize) else { return false };
        let Role::Stream(stream) = &mut endpoint.role else { return false };
        if stream.id != id {
            return false;
        }
        let receive = &mut stream.receive;
        let Some(end) = offset.checked_add(bytes.len() as u64) else { return false };
        if receive.deaf {
            return true;
        }
        if offset <= receive.next.max(receive.readable) {
            receive.next = receive.next.max(end);
        } else if self.pool.is_scarce() {
            // Bytes after a gap cannot be read, so their pages return only when the peer fills it.
            // A peer that never does must not hold buffers that others need.
            counters.out_of_order_refused.increment();
            return false;
        }
        // Bytes that the client has already read are not stored again: their page may be gone.
        let skip = receive.consumed.saturating_sub(offset).min(bytes.len() as u64);
        let mut rest = bytes.get(skip as usize..).unwrap_or_default();
        if rest.is_empty() {
            return true;
        }
        let mut at = offset + skip;
        if (end - 1) / page_bytes
            >= receive.consumed / page_bytes + u64::from(geometry.receive_slots)
        {
            return false;
        }
        if receive.pages.is_empty() {
            receive.base = receive.consumed / page_bytes;
        }
        while !rest.is_empty() {
            let page = at / page_bytes;
            let within = at % page_bytes;
            let len = rest.len().min((page_bytes - within) as usize);
            let Some(place) = page.checked_sub(receive.base) else { return false };
            while receive.pages.len() as u64 <= place {
                receive.pages.push(NO_BUFFER);
            }
            let Some(slot) = receive.pages.get_mut(place as usize) else { return false };
            if *slot == NO_BUFFER {
                let Some(buffer) = self.pool.take_for_receive() else {
                    counters.buffers_exhausted.increment();
                    return false;
                };
                *slot = buffer;
                endpoint.view.set_page(page, buffer);
            }
            let Some(span) = self.region.buffer(*slot) else { return false };
            let (now, later) = rest.split_at(len);
            self.region.write_buffer(Span { offset: span.offset + within, len: len as u32 }, now);
            at += len as u64;
            rest = later;
        }
        receive.highest = receive.highest.max(end);
        if !receive.is_unswept {
            receive.is_unswept = true;
            self.unswept.push(index);
        }
        counters.stream_rx_bytes.add(bytes.len() as u64);
        true
    }

    /// Reads how much the client has consumed. `Some(offset)` if it has grown.
    pub fn learn_consumed(&mut self, index: u32) -> Option<u64> {
        let page_bytes = u64::from(self.region.geometry().buffer_bytes);
        let endpoint = self.endpoints.get_mut(index as usize)?;
        let Role::Stream(Stream { receive, .. }) = &mut endpoint.role else { return None };
        if receive.deaf {
            // All bytes count as consumed; the client's own offset stays where it stopped.
            return None;
        }
        let claimed = match endpoint.view.consumed(receive.consumed, receive.readable) {
            Ok(claimed) if claimed == receive.consumed => return None,
            Ok(claimed) => claimed,
            Err(found) => {
                self.breached(Breach::Contract(found));
                return None;
            }
        };
        receive.consumed = claimed;
        let pool = &mut self.pool;
        receive.release_read(page_bytes, |buffer| pool.give_received(buffer));
        // The next doorbell request may be beyond all that the peer may send before the window
        // opens, so the remaining pages must be checked once more.
        if !receive.pages.is_empty() && !receive.is_unswept {
            receive.is_unswept = true;
            self.unswept.push(index);
        }
        Some(claimed)
    }

    /// The maximum window of a stream, by the memory in the pool.
    pub fn window_ceiling(&mut self, index: u32, now_ns: u64) -> u32 {
        // The rest is for partially used first and last pages of streams, and for first windows.
        let budget = self.pool.receivable_bytes() / 8 * 7;
        // The first page may be partially consumed, and the window's edge is rounded up to its
        // unit.
        let geometry = self.region.geometry();
        let pages = geometry.receive_slots.saturating_sub(2).saturating_mul(geometry.buffer_bytes);
        match self.endpoints.get_mut(index as usize).map(|endpoint| &mut endpoint.role) {
            Some(Role::Stream(Stream { receive, .. })) => {
                self.promises.ceiling(now_ns, &mut receive.promise, budget).min(pages)
            }
            _ => 0,
        }
    }

    /// Returns every page of a stream.
    pub fn release_pages(&mut self, receive: &mut ReceiveHalf) {
        while let Some(buffer) = receive.pages.pop() {
            if buffer != NO_BUFFER {
                self.pool.give_received(buffer);
            }
        }
    }
}

impl ReceiveHalf {
    /// Returns the pages before `consumed`, and all if nothing is unread.
    fn release_read(&mut self, page_bytes: u64, mut give: impl FnMut(u32)) {
        let all = self.consumed >= self.highest;
        let first = self.consumed / page_bytes;
        while (all || self.base < first) && !self.pages.is_empty() {
            if let Some(buffer) = self.pages.pop()
                && buffer != NO_BUFFER
            {
                give(buffer);
            }
            self.base += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shm::client_side::ClientEndpoint;
    use shm::lock::Tag;
    use shm::region::Region;

    use super::*;
    use crate::config::Limits;
    use crate::control::exchange::SessionKey;
    use crate::session::{SessionSeed, SessionWho};

    const ID: SocketId = SocketId { index: 1, generation: 1 };

    fn within(connection: usize, total: usize) -> StashLimits {
        StashLimits { connection, total }
    }

    fn to(index: u32) -> EndpointSocket {
        EndpointSocket { index, id: ID }
    }

    #[test]
    fn a_stash_keeps_what_is_within_its_limits_in_whatever_order_it_comes() {
        let mut stash = Stash::default();
        assert!(stash.store(ID, 0, b"abc", within(208, 1000)));
        assert!(stash.store(ID, 6, b"gh", within(208, 1000)));
        assert!(stash.store(ID, 1, b"bcde", within(208, 1000)));
        assert!(stash.store(ID, 2, b"cd", within(208, 1000)));
        assert!(!stash.store(ID, 202, b"too far", within(208, 1000)));
        assert_eq!(stash.bytes(), 2 * PIECE_BYTES + 7);
        assert!(stash.store(ID, 5, b"f", within(208, 1000)));
        assert!(!stash.store(ID, 4, b"ef too much", within(208, 200)));
        let early = stash.take(ID);
        assert_eq!(early.end(), 8);
        let pieces = [(0, b"abcdef".to_vec()), (6, b"gh".to_vec())];
        assert_eq!(early.pieces, BTreeMap::from(pieces));
        assert_eq!(stash.bytes(), 0);
    }

    #[test]
    fn a_stash_takes_few_small_pieces_with_gaps_between_them() {
        let mut stash = Stash::default();
        let limit = 64 << 10;
        let kept = (0..limit as u64)
            .step_by(2)
            .take_while(|at| stash.store(ID, *at, b"x", within(limit, 10 * limit)))
            .count();
        assert!(kept <= limit / PIECE_BYTES + 1, "{kept}");
        // What is in order still finds room for all of it.
        let other = SocketId { index: 2, generation: 1 };
        assert!(stash.store(other, 0, &vec![1; limit], within(limit, 10 * limit)));
    }

    #[test]
    fn a_full_stash_is_swept_of_connections_that_are_gone() {
        let mut stash = Stash::default();
        assert!(stash.store(ID, 0, b"12345678", within(8, 110)));
        let other = SocketId { index: 2, generation: 1 };
        assert!(!stash.store(other, 0, b"x", within(8, 110)));
        stash.sweep(|id| id == other);
        assert!(stash.store(other, 0, b"x", within(8, 110)));
    }

    /// A session with a stream in its first endpoint.
    fn session(limits: &Limits) -> (Session, u32) {
        let region = Arc::new(Region::private(limits.geometry(1)).unwrap());
        let seed = SessionSeed {
            key: SessionKey(1),
            geometry: *region.geometry(),
            region,
            pipes: None,
            who: SessionWho { program: String::new(), pid: 1, uid: 0 },
        };
        let mut session = Session::new(seed, 0, limits, 0);
        let index = session.grant_endpoint(0).unwrap();
        session.endpoints[0].role = Role::Stream(Stream::new(ID));
        (session, index)
    }

    #[test]
    fn gaps_are_not_kept_open_while_buffers_are_scarce() {
        let limits = Limits { endpoints: 2, buffers: 16, contexts: 1, ..Limits::default() };
        let (mut session, index) = session(&limits);
        let page = u64::from(limits.buffer_bytes);
        let counters = Counters::default();
        // A peer that leaves a gap in every page gets half of the buffers and no more.
        let kept = (1..40)
            .take_while(|at| session.store_stream(to(index), at * page + 1, b"x", &counters))
            .count();
        assert_eq!(kept, 9);
        assert_eq!(counters.out_of_order_refused.read(), 1);
        // What continues the stream still finds room.
        assert!(session.store_stream(to(index), 0, &vec![1; 3 * page as usize], &counters));
        assert!(session.store_stream(to(index), 3 * page, b"more", &counters));
    }

    #[test]
    fn a_stream_of_which_a_part_was_read_is_looked_at_again() {
        let limits = Limits { endpoints: 2, buffers: 16, contexts: 1, ..Limits::default() };
        let (mut session, index) = session(&limits);
        let page = u64::from(limits.buffer_bytes);
        let counters = Counters::default();
        assert!(session.store_stream(to(index), 0, &vec![1; 4 * page as usize], &counters));
        let endpoint = &mut session.endpoints[0];
        endpoint.view.set_readable(4 * page);
        let Role::Stream(stream) = &mut endpoint.role else { unreachable!("a stream was made") };
        stream.receive.readable = 4 * page;
        // A sweep found nothing read and has asked for a doorbell at the end of what is readable.
        stream.receive.is_unswept = false;
        session.unswept.clear();
        let client = ClientEndpoint::new(Arc::clone(&session.region), index).unwrap();
        let _ = client.lock_receive(Tag::new(1, 1)).unwrap().advance(page);
        assert_eq!(session.learn_consumed(index), Some(page));
        assert_eq!(session.unswept, [index]);
        // Once only, however often it is looked at before the sweep.
        let _ = client.lock_receive(Tag::new(1, 1)).unwrap().advance(2 * page);
        assert_eq!(session.learn_consumed(index), Some(2 * page));
        assert_eq!(session.unswept, [index]);
    }

    #[test]
    fn pages_that_were_read_are_given_back_and_all_when_nothing_is_unread() {
        let mut receive = ReceiveHalf {
            pages: [4, 5, NO_BUFFER, 7].into_iter().collect(),
            base: 0,
            highest: 3500,
            next: 2000,
            readable: 2000,
            consumed: 1500,
            is_unswept: false,
            deaf: false,
            window: 0,
            promise: Default::default(),
            arrivals: None,
        };
        let mut given = Vec::new();
        receive.release_read(1000, |buffer| given.push(buffer));
        assert_eq!((given.clone(), receive.base), (vec![4], 1));
        receive.consumed = 3500;
        receive.release_read(1000, |buffer| given.push(buffer));
        assert_eq!(given, [4, 5, 7]);
        assert!(receive.pages.is_empty());
    }
}
