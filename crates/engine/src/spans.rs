//! Private copies of the descriptors of send streams, until acknowledgement.
//!
//! One slab per session, linked by index, so that a connection with nothing to send costs nothing
//! and no packet path allocates. Consecutive spans in one buffer are merged.

/// No span.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Span {
    /// Stream offset of the first byte.
    start: u64,
    /// Place in the region.
    place: u64,
    len: u32,
    buffer: u32,
    next: u32,
}

/// The spans of a session's streams.
#[derive(Clone, Debug)]
pub struct Spans {
    /// Those ever in use, with memory for all: a session that sends little touches little.
    slots: Vec<Span>,
    /// Chain of free ones.
    free_head: u32,
    free_count: u32,
    total: u32,
}

/// The send stream of one connection, as a chain of spans.
#[derive(Clone, Copy, Debug)]
pub struct SpanList {
    head: u32,
    tail: u32,
    /// The span last transmitted from: sequential sending never walks the chain.
    cursor: u32,
    /// Stream offset one past the last byte.
    end: u64,
    count: u32,
}

impl Default for SpanList {
    fn default() -> Self {
        Self { head: NONE, tail: NONE, cursor: NONE, end: 0, count: 0 }
    }
}

impl SpanList {
    /// A chain without spans that starts at an offset in the stream.
    pub fn beginning_at(offset: u64) -> Self {
        Self { end: offset, ..Self::default() }
    }

    /// Stream offset one past the last byte given by the client.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Spans in the chain.
    pub fn count(&self) -> u32 {
        self.count
    }
}

/// The slab is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted;

impl Spans {
    /// Room for `count` spans.
    pub fn new(count: u32) -> Self {
        let slots = Vec::with_capacity(count as usize);
        Self { slots, free_head: NONE, free_count: count, total: count }
    }

    /// Total number of spans.
    pub fn total(&self) -> u32 {
        self.total
    }

    /// Spans left.
    pub fn free(&self) -> u32 {
        self.free_count
    }

    /// Appends bytes to the stream of `list`. `Ok(false)`: they were merged with the last span, so
    /// their buffer gains none.
    pub fn push(
        &mut self,
        list: &mut SpanList,
        place: u64,
        len: u32,
        buffer: u32,
    ) -> Result<bool, Exhausted> {
        if let Some(tail) = self.slots.get_mut(list.tail as usize)
            && tail.buffer == buffer
            && tail.place.wrapping_add(u64::from(tail.len)) == place
            && let Some(joined) = tail.len.checked_add(len)
        {
            tail.len = joined;
            list.end = list.end.wrapping_add(u64::from(len));
            return Ok(false);
        }
        let span = Span { start: list.end, place, len, buffer, next: NONE };
        let index = match self.slots.get_mut(self.free_head as usize) {
            Some(slot) => {
                let index = std::mem::replace(&mut self.free_head, slot.next);
                *slot = span;
                index
            }
            None if self.free_count == 0 => return Err(Exhausted),
            None => {
                self.slots.push(span);
                self.slots.len() as u32 - 1
            }
        };
        self.free_count -= 1;
        match self.slots.get_mut(list.tail as usize) {
            Some(tail) => tail.next = index,
            None => list.head = index,
        }
        list.tail = index;
        list.end = list.end.wrapping_add(u64::from(len));
        list.count += 1;
        Ok(true)
    }

    /// Frees the spans entirely before `acked` and calls `freed` with the buffer of each.
    pub fn free_before(&mut self, list: &mut SpanList, acked: u64, mut freed: impl FnMut(u32)) {
        while let Some(head) = self.slots.get(list.head as usize).copied() {
            if head.start.wrapping_add(u64::from(head.len)) > acked {
                return;
            }
            let index = list.head;
            list.head = head.next;
            list.count -= 1;
            if list.cursor == index {
                list.cursor = NONE;
            }
            if list.head == NONE {
                list.tail = NONE;
            }
            if let Some(slot) = self.slots.get_mut(index as usize) {
                slot.next = self.free_head;
            }
            self.free_head = index;
            self.free_count += 1;
            freed(head.buffer);
        }
    }

    /// Frees everything of `list`.
    pub fn clear(&mut self, list: &mut SpanList, freed: impl FnMut(u32)) {
        self.free_before(list, u64::MAX, freed);
    }

    /// Calls `piece(place, len)` for the parts of the region that make up `len` bytes of the stream
    /// from `offset`. `false`: they are not all there.
    pub fn pieces(
        &self,
        list: &mut SpanList,
        offset: u64,
        len: u32,
        mut piece: impl FnMut(u64, u32),
    ) -> bool {
        let mut index = list.head;
        if let Some(cursor) = self.slots.get(list.cursor as usize)
            && cursor.start <= offset
        {
            index = list.cursor;
        }
        let mut offset = offset;
        let mut left = len;
        while left > 0 {
            let Some(span) = self.slots.get(index as usize) else { return false };
            let Some(skip) = offset.checked_sub(span.start) else { return false };
            if skip < u64::from(span.len) {
                let here = left.min(span.len - skip as u32);
                piece(span.place.wrapping_add(skip), here);
                offset = offset.wrapping_add(u64::from(here));
                left -= here;
                list.cursor = index;
            }
            if left > 0 {
                index = span.next;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gather(
        spans: &Spans,
        list: &mut SpanList,
        offset: u64,
        len: u32,
    ) -> Option<Vec<(u64, u32)>> {
        let mut pieces = Vec::new();
        spans.pieces(list, offset, len, |place, len| pieces.push((place, len))).then_some(pieces)
    }

    #[test]
    fn pieces_are_found_forwards_and_again_backwards() {
        let mut spans = Spans::new(4);
        let mut list = SpanList::default();
        assert_eq!(spans.push(&mut list, 1000, 10, 0), Ok(true));
        assert_eq!(spans.push(&mut list, 2000, 20, 1), Ok(true));
        assert_eq!(spans.push(&mut list, 2020, 5, 1), Ok(false));
        assert_eq!(gather(&spans, &mut list, 0, 10), Some(vec![(1000, 10)]));
        assert_eq!(gather(&spans, &mut list, 10, 25), Some(vec![(2000, 25)]));
        assert_eq!(gather(&spans, &mut list, 5, 10), Some(vec![(1005, 5), (2000, 5)]));
        assert_eq!(gather(&spans, &mut list, 30, 6), None);
        assert_eq!(list.end(), 35);
    }

    #[test]
    fn acknowledged_spans_are_freed_whole_and_used_again() {
        let mut spans = Spans::new(2);
        let mut list = SpanList::default();
        spans.push(&mut list, 1000, 10, 7).unwrap();
        spans.push(&mut list, 3000, 10, 8).unwrap();
        assert_eq!(spans.push(&mut list, 5000, 10, 9), Err(Exhausted));
        let mut freed = Vec::new();
        spans.free_before(&mut list, 9, |buffer| freed.push(buffer));
        assert!(freed.is_empty());
        spans.free_before(&mut list, 15, |buffer| freed.push(buffer));
        assert_eq!(freed, [7]);
        assert_eq!(spans.push(&mut list, 5000, 10, 9), Ok(true));
        assert_eq!(gather(&spans, &mut list, 15, 15), Some(vec![(3005, 5), (5000, 10)]));
        spans.clear(&mut list, |buffer| freed.push(buffer));
        assert_eq!((freed, spans.free()), (vec![7, 8, 9], 2));
    }

    /// Two streams that share the slab, against lists of where each byte lies.
    #[test]
    fn streams_are_where_a_list_of_their_bytes_says() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        let mut spans = Spans::new(12);
        let mut lists = [SpanList::default(); 2];
        // The place of every byte; where each span ends, and its buffer; what is acknowledged.
        let mut streams: [Vec<u64>; 2] = Default::default();
        let mut ends: [std::collections::VecDeque<(u64, u32)>; 2] = Default::default();
        let mut acked = [0u64; 2];
        let (mut taken, mut place) = (0, 0);
        for round in 0..20_000 {
            let which = random(2) as usize;
            let (list, stream) = (&mut lists[which], &mut streams[which]);
            let ends = &mut ends[which];
            match random(4) {
                0 | 1 => {
                    // Behind what came last, or somewhere else.
                    place += if random(2) == 0 { 0 } else { 64 - place % 64 };
                    let len = (1 + random(40)).min(64 - place % 64);
                    let buffer = (place / 64) as u32;
                    let before = spans.free();
                    match spans.push(list, place, len as u32, buffer) {
                        Ok(is_new) => {
                            assert_eq!(before - spans.free(), u32::from(is_new));
                            taken += u32::from(is_new);
                            stream.extend(place..place + len);
                            place += len;
                            let end = (stream.len() as u64, buffer);
                            match ends.back_mut().filter(|_| !is_new) {
                                Some(last) => *last = end,
                                None => ends.push_back(end),
                            }
                        }
                        Err(Exhausted) => assert_eq!(before, 0),
                    }
                }
                2 => {
                    acked[which] += random(stream.len() as u64 - acked[which] + 1);
                    let mut freed = Vec::new();
                    spans.free_before(list, acked[which], |buffer| freed.push(buffer));
                    taken -= freed.len() as u32;
                    let mut wanted = Vec::new();
                    while ends.front().is_some_and(|(end, _)| *end <= acked[which]) {
                        wanted.extend(ends.pop_front().map(|(_, buffer)| buffer));
                    }
                    assert_eq!(freed, wanted, "round {round}");
                }
                _ => {
                    let left = stream.len() as u64 - acked[which];
                    let offset = acked[which] + random(left + 1);
                    let len = random(stream.len() as u64 - offset + 3);
                    let mut found = Vec::new();
                    let is_there = spans.pieces(list, offset, len as u32, |place, len| {
                        found.extend(place..place + u64::from(len));
                    });
                    let end = offset + len;
                    assert_eq!(is_there, end <= stream.len() as u64, "round {round}");
                    if is_there {
                        assert_eq!(found, stream[offset as usize..end as usize], "round {round}");
                    }
                }
            }
            assert_eq!(list.end(), stream.len() as u64);
            assert_eq!(spans.total() - spans.free(), taken);
        }
    }
}
