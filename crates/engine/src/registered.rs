//! The registered memories of a session: the location of their bytes, and the number of their spans
//! in use. A closed memory takes no new spans and lasts until its last span is dropped.

use std::sync::Arc;

use arch::SharedBytes;
use shm::descriptor::Span;
use shm::memory::{REGISTERED_MAX, Registered, split};
use shm::message::Entry;
use shm::region::Region;

/// Spans of a session in use beyond which operations with more spans are refused.
const SPANS_MAX: usize = 1 << 18;

#[derive(Clone, Copy, Debug)]
struct Registration {
    bytes: u64,
    spans: u32,
    is_closed: bool,
}

/// The spans in use of a session's registered memories, by number.
#[derive(Clone, Debug, Default)]
pub struct Registrations {
    /// The first has number 1. Empty before the first registration.
    memories: Vec<Option<Registration>>,
    /// Closed ones that are in use.
    closing: u32,
    /// Closed ones whose last span was dropped.
    ended: u32,
    /// Spans of all memories in use.
    spans: u32,
}

impl Registrations {
    /// Adds a memory of this size, created by the control thread. `false`: the number is invalid or
    /// in use.
    pub fn add(&mut self, number: u16, bytes: u64) -> bool {
        if number == 0 || number > REGISTERED_MAX {
            return false;
        }
        let index = usize::from(number) - 1;
        if self.memories.len() <= index {
            self.memories.resize(index + 1, None);
        }
        match self.memories.get_mut(index) {
            Some(slot @ None) => {
                *slot = Some(Registration { bytes, spans: 0, is_closed: false });
                true
            }
            _ => false,
        }
    }

    /// The client releases it. `true`: no span of it is in use, and it is gone.
    pub fn close(&mut self, number: u16) -> bool {
        let index = usize::from(number).checked_sub(1);
        let slot = index.and_then(|index| self.memories.get_mut(index));
        let Some(slot @ Some(Registration { is_closed: false, .. })) = slot else { return false };
        if let Some(of) = slot.as_mut().filter(|of| of.spans > 0) {
            of.is_closed = true;
            self.closing += 1;
            return false;
        }
        *slot = None;
        true
    }

    /// The number of a closed memory whose last span was dropped.
    pub fn take_ended(&mut self) -> Option<u16> {
        if self.ended == 0 {
            return None;
        }
        let has_ended = |slot: &Option<Registration>| {
            slot.as_ref().is_some_and(|of| of.is_closed && of.spans == 0)
        };
        let index = self.memories.iter().position(has_ended)?;
        *self.memories.get_mut(index)? = None;
        self.closing -= 1;
        self.ended -= 1;
        Some(index as u16 + 1)
    }

    /// Whether closed memories are in use.
    pub fn is_closing(&self) -> bool {
        self.closing > 0
    }

    fn at(&mut self, number: u16) -> Option<&mut Registration> {
        self.memories.get_mut(usize::from(number).checked_sub(1)?)?.as_mut()
    }

    /// Marks a client's span as in use. `false`: it is out of bounds.
    pub fn hold(&mut self, span: Span) -> bool {
        let (number, offset) = split(span.offset);
        let Some(of) = self.at(number).filter(|of| !of.is_closed) else { return false };
        let is_within = |end: u64| end <= of.bytes;
        match of.spans.checked_add(1) {
            Some(spans) if offset.checked_add(u64::from(span.len)).is_some_and(is_within) => {
                of.spans = spans;
                self.spans += 1;
                true
            }
            _ => false,
        }
    }

    /// A span of a memory is no longer in use.
    pub fn release(&mut self, number: u16) {
        if let Some(of) = self.at(number) {
            assert!(of.spans > 0, "a span is dropped once");
            of.spans = of.spans.saturating_sub(1);
            self.ended += u32::from(of.is_closed && of.spans == 0);
            self.spans = self.spans.saturating_sub(1);
        }
    }

    /// Spans in use.
    pub fn spans(&self) -> u32 {
        self.spans
    }

    /// Whether an operation may use `more` spans: each costs the engine memory.
    pub fn has_room(&self, more: usize) -> bool {
        self.spans as usize + more <= SPANS_MAX
    }
}

/// Resolves a session's spans to bytes: in its region, and in its registered memories. Never
/// modified but replaced, so that a sender can hold it.
pub struct SpanMemory {
    region: Arc<Region>,
    registered: Vec<Option<Arc<Registered>>>,
}

impl SpanMemory {
    /// The memory of a session without registered memories.
    pub fn new(region: Arc<Region>) -> Self {
        Self { region, registered: Vec::new() }
    }

    /// A copy with one more memory.
    pub fn with(&self, number: u16, memory: Arc<Registered>) -> Self {
        let mut registered = self.registered.clone();
        let index = usize::from(number).saturating_sub(1);
        registered.resize(registered.len().max(index + 1), None);
        if let Some(slot) = registered.get_mut(index) {
            *slot = Some(memory);
        }
        Self { region: Arc::clone(&self.region), registered }
    }

    /// A copy without one memory.
    pub fn without(&self, number: u16) -> Self {
        let mut registered = self.registered.clone();
        let index = usize::from(number).checked_sub(1);
        if let Some(slot) = index.and_then(|index| registered.get_mut(index)) {
            *slot = None;
        }
        Self { region: Arc::clone(&self.region), registered }
    }

    /// The memory of a place in it, and the offset.
    fn at(&self, place: u64) -> Option<(&Registered, u64)> {
        let (number, offset) = split(place);
        let slot = self.registered.get(usize::from(number).checked_sub(1)?)?;
        Some((slot.as_deref()?, offset))
    }

    /// The bytes of a span; empty if it is not held.
    pub fn shared(&self, span: Span) -> SharedBytes<'_> {
        if split(span.offset).0 == 0 {
            return self.region.shared(span);
        }
        match self.at(span.offset) {
            Some((memory, offset)) => memory.shared(offset, span.len),
            None => SharedBytes::empty(),
        }
    }

    /// Copies bytes to a span of registered memory, truncated to its length.
    pub fn write(&self, span: Span, bytes: SharedBytes<'_>) {
        if let Some((memory, offset)) = self.at(span.offset) {
            memory.write_shared(offset, bytes.slice(0..span.len as usize));
        }
    }

    /// Whether a place is a valid line for the outcome of an operation.
    pub fn has_line(&self, place: u64) -> bool {
        self.at(place).is_some_and(|(memory, offset)| memory.has_line(offset))
    }

    /// Writes the outcome of an operation to a line that is held.
    pub fn tell(&self, place: u64, entry: &Entry) {
        if let Some((memory, offset)) = self.at(place) {
            memory.tell(offset, entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use shm::memory::place;

    use super::*;

    fn span(number: u16, offset: u64, len: u32) -> Span {
        Span { offset: place(number, offset), len }
    }

    #[test]
    fn only_spans_within_an_open_memory_are_held() {
        let mut all = Registrations::default();
        assert!(!all.hold(span(1, 0, 1)));
        for number in [0, REGISTERED_MAX + 1] {
            assert!(!all.add(number, 4096));
        }
        assert!(all.add(2, 4096));
        assert!(!all.add(2, 4096));
        assert!(all.hold(span(2, 4000, 96)));
        for bad in [span(2, 4000, 97), span(2, u64::MAX, 1), span(1, 0, 1), span(3, 0, 0)] {
            assert!(!all.hold(bad), "{bad:?}");
        }
        assert_eq!(all.spans(), 1);
    }

    #[test]
    fn a_closed_memory_lasts_until_its_last_span_is_dropped() {
        let mut all = Registrations::default();
        assert!(all.add(1, 4096));
        assert!(all.hold(span(1, 0, 10)) && all.hold(span(1, 0, 10)));
        assert!(!all.close(1));
        // A second time, and of none.
        assert!(!all.close(1) && !all.close(9) && !all.close(0));
        assert!(!all.hold(span(1, 0, 10)));
        assert!(all.take_ended().is_none());
        all.release(1);
        assert!(all.take_ended().is_none());
        all.release(1);
        assert_eq!(all.take_ended(), Some(1));
        assert!(!all.is_closing());
        assert!(all.add(1, 4096));
        assert!(all.close(1));
    }
}
