//! A completion queue.

use std::collections::VecDeque;

/// Entries in a queue beyond which its endpoints are not polled. Far above the size that programs
/// request: Open MPI opens queues of 100 and posts more receives than that.
const ENTRIES_MAX: usize = 1 << 16;

/// A completion as the program reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    pub context: usize,
    pub flags: u64,
    pub len: usize,
    pub buffer: usize,
    pub data: u64,
    pub tag: u64,
    /// The sender of a received message; FI_ADDR_NOTAVAIL if the vector does not have it.
    pub source: u64,
    /// Set for a failed operation.
    pub error: Option<Error>,
}

/// The error of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// libfabric's number.
    pub number: i32,
    /// The engine's errno.
    pub errno: i32,
    /// Bytes of the message that did not fit.
    pub overflow: usize,
}

/// Entries in the order of completion.
#[derive(Debug, Default)]
pub struct Queue {
    entries: VecDeque<Entry>,
    /// The endpoints bound to it.
    pub endpoints: Vec<usize>,
    /// Set by `fi_cq_signal` until a waiting thread has seen it.
    pub is_signaled: bool,
}

impl Queue {
    /// Appends a completion.
    pub fn push(&mut self, entry: Entry) {
        self.entries.push_back(entry);
    }

    /// Whether it has reached the limit at which its endpoints are not polled.
    pub fn is_full(&self) -> bool {
        self.entries.len() >= ENTRIES_MAX
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether the next entry is an error, which only `fi_cq_readerr` reads.
    pub fn has_error_next(&self) -> bool {
        self.entries.front().is_some_and(|entry| entry.error.is_some())
    }

    /// Takes the next entry unless it is an error.
    pub fn take(&mut self) -> Option<Entry> {
        if self.has_error_next() { None } else { self.entries.pop_front() }
    }

    /// Takes the next entry if it is an error.
    pub fn take_error(&mut self) -> Option<Entry> {
        if self.has_error_next() { self.entries.pop_front() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_holds_back_what_completed_after_it() {
        let mut queue = Queue::default();
        let error = Error { number: 5, errno: 5, overflow: 0 };
        queue.push(Entry { context: 1, ..Entry::default() });
        queue.push(Entry { context: 2, error: Some(error), ..Entry::default() });
        queue.push(Entry { context: 3, ..Entry::default() });
        assert_eq!(queue.take().map(|entry| entry.context), Some(1));
        assert_eq!(queue.take(), None);
        assert_eq!(queue.take_error().map(|entry| entry.context), Some(2));
        assert_eq!(queue.take().map(|entry| entry.context), Some(3));
        assert!(queue.is_empty());
    }

    #[test]
    fn an_error_is_not_read_as_a_success() {
        let mut queue = Queue::default();
        let error = Error { number: 5, errno: 5, overflow: 0 };
        queue.push(Entry { error: Some(error), ..Entry::default() });
        assert_eq!(queue.take(), None);
        assert!(queue.has_error_next());
    }
}
