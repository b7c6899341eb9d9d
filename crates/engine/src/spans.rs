//! Private copies of the descriptors of send streams, from the copy until acknowledgement.
//!
//! One slab per session, linked by index, so that a connection with nothing to send costs
//! nothing and no path of a packet allocates. Spans that continue each other in one buffer are
//! kept as one.

/// Index of no span.
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
    slots: Vec<Span>,
    free_head: u32,
    free_count: u32,
}

/// The send stream of one connection, as a chain of spans.
#[derive(Clone, Copy, Debug)]
pub struct SpanList {
    head: u32,
    tail: u32,
    /// Span that was transmitted from last: sequential sending never walks the chain.
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
        let slots = (0..count)
            .map(|index| Span {
                start: 0,
                place: 0,
                len: 0,
                buffer: 0,
                next: if index + 1 < count { index + 1 } else { NONE },
            })
            .collect();
        Self { slots, free_head: if count == 0 { NONE } else { 0 }, free_count: count }
    }

    /// Spans in all.
    pub fn total(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Spans left.
    pub fn free(&self) -> u32 {
        self.free_count
    }

    /// Appends bytes to the stream of `list`. `Ok(false)`: they continued the last span, whose
    /// buffer therefore gains none.
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
        let index = self.free_head;
        let slot = self.slots.get_mut(index as usize).ok_or(Exhausted)?;
        self.free_head = slot.next;
        self.free_count -= 1;
        *slot = Span { start: list.end, place, len, buffer, next: NONE };
        match self.slots.get_mut(list.tail as usize) {
            Some(tail) => tail.next = index,
            None => list.head = index,
        }
        list.tail = index;
        list.end = list.end.wrapping_add(u64::from(len));
        list.count += 1;
        Ok(true)
    }

    /// Frees the spans that lie wholly before `acked` and calls `freed` with the buffer of each.
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

    /// Calls `piece(place, len)` for the parts of the region that make up `len` bytes of the
    /// stream from `offset`. `false`: they are not all there.
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
}
