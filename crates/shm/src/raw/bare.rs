//! The least that a byte ring can be, which the rings of raw endpoints are measured against: a word
//! with the length before each block, a published position each way, and nothing that is checked or
//! counted.

use std::sync::Arc;

use super::rings::{Half, Rings, word};
use super::{HEADER_BYTES, MESSAGE_ALIGN, message_bytes};
use crate::sync::Ordering;

/// What stands for the rest of the ring, instead of a length.
const WRAP: u64 = u64::MAX;

/// The side that writes.
#[derive(Debug)]
pub struct BareProducer {
    rings: Arc<Rings>,
    half: Half,
    head: u64,
    tail: u64,
}

impl BareProducer {
    /// The producer of a fresh UP ring.
    pub fn new(rings: Arc<Rings>) -> Self {
        Self { half: rings.up(), rings, head: 0, tail: 0 }
    }

    /// Appends a block; `false` when there is no room for it.
    pub fn push(&mut self, block: &[u8]) -> bool {
        let need = message_bytes(block.len());
        let skip = self.half.skip(self.tail, need);
        let end = self.tail + skip + need;
        if end - self.head > self.half.bytes {
            self.head = self.rings.load(word::UP_HEAD, Ordering::Acquire);
            if end - self.head > self.half.bytes {
                return false;
            }
        }
        if skip > 0 {
            self.rings.store(self.half.at(self.tail), WRAP, Ordering::Relaxed);
        }
        let at = self.half.at(self.tail + skip);
        self.rings.store(at, block.len() as u64, Ordering::Relaxed);
        self.rings.write(at + HEADER_BYTES, block);
        self.tail = end;
        true
    }

    /// Shows what was appended.
    pub fn publish(&self) {
        self.rings.store(word::UP_TAIL, self.tail, Ordering::Release);
    }
}

/// The side that reads.
#[derive(Debug)]
pub struct BareConsumer {
    rings: Arc<Rings>,
    half: Half,
    head: u64,
    tail: u64,
}

impl BareConsumer {
    /// The consumer of a fresh UP ring.
    pub fn new(rings: Arc<Rings>) -> Self {
        Self { half: rings.up(), rings, head: 0, tail: 0 }
    }

    /// The length of the next block.
    pub fn next_len(&mut self) -> Option<usize> {
        loop {
            if self.head == self.tail {
                self.tail = self.rings.load(word::UP_TAIL, Ordering::Acquire);
                if self.head == self.tail {
                    return None;
                }
            }
            match self.rings.load(self.half.at(self.head), Ordering::Relaxed) {
                WRAP => self.head += self.half.rest(self.head),
                len => {
                    self.head += message_bytes(len as usize);
                    return Some(len as usize);
                }
            }
        }
    }

    /// Gives back the room of all blocks that were passed.
    pub fn release(&self) {
        debug_assert!(self.head.is_multiple_of(MESSAGE_ALIGN));
        self.rings.store(word::UP_HEAD, self.head, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::RingSizes;

    #[test]
    fn blocks_come_with_their_lengths_round_after_round() {
        let sizes = RingSizes { up: RingSizes::LEAST, down: 0 };
        let rings = Arc::new(Rings::private(sizes).unwrap());
        let (mut near, mut far) = (BareProducer::new(Arc::clone(&rings)), BareConsumer::new(rings));
        let lengths = [1, 60, 9000, 1514, 56, 57];
        for _ in 0..100 {
            assert!(lengths.iter().all(|len| near.push(&vec![7; *len])));
            assert_eq!(far.next_len(), None, "nothing is published");
            near.publish();
            assert!(lengths.iter().all(|len| far.next_len() == Some(*len)));
            assert_eq!(far.next_len(), None);
            far.release();
        }
        while near.push(&[7; 9000]) {}
        near.publish();
        far.next_len();
        far.release();
        assert!(near.push(&[7; 60]));
    }
}
