//! Bytes that the stack itself has to send (ICMP, and datagrams that wait for their next hop), in fixed
//! blocks taken once.

use serde::{Deserialize, Serialize};

/// Bytes of a block: a packet of an ordinary link.
const BLOCK: usize = 2048;

/// How many blocks so many bytes take.
pub fn blocks_of(len: u32) -> u32 {
    len.div_ceil(BLOCK as u32).max(1)
}

/// A bounded store of packets' payload; every packet starts at a block of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Arena {
    bytes: Vec<u8>,
    used: Vec<bool>,
    /// Where the next search begins.
    hand: usize,
}

impl Arena {
    /// An arena of `size` bytes, rounded up to blocks.
    pub fn new(size: u32) -> Self {
        let blocks = (size as usize).div_ceil(BLOCK).min(1 << 20);
        Self { bytes: vec![0; blocks * BLOCK], used: vec![false; blocks], hand: 0 }
    }

    /// Takes room for `len` bytes: where it starts, and the bytes. `None`: full. Looks at each
    /// block at most twice.
    pub fn take(&mut self, len: usize) -> Option<(u32, &mut [u8])> {
        let need = len.div_ceil(BLOCK).max(1);
        let count = self.used.len();
        let mut run = 0;
        let mut at = self.hand;
        for _ in 0..2 * count {
            if at >= count {
                (at, run) = (0, 0);
            }
            run = if self.used[at] { 0 } else { run + 1 };
            at += 1;
            if run == need {
                let first = at - need;
                self.used[first..at].fill(true);
                self.hand = at;
                let start = first * BLOCK;
                return Some((u32::try_from(start).ok()?, &mut self.bytes[start..start + len]));
            }
        }
        None
    }

    /// What was stored at `start`; empty when the range is not inside the arena.
    pub fn bytes(&self, start: u32, len: u32) -> &[u8] {
        let start = start as usize;
        start.checked_add(len as usize).and_then(|end| self.bytes.get(start..end)).unwrap_or(&[])
    }

    /// Gives room back.
    pub fn give(&mut self, start: u32, len: u32) {
        let first = start as usize / BLOCK;
        let count = (len as usize).div_ceil(BLOCK).max(1);
        for used in self.used.iter_mut().skip(first).take(count) {
            *used = false;
        }
    }

    /// Whether everything has been given back.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        !self.used.contains(&true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_longer_than_a_block_lie_in_one_piece() {
        let mut arena = Arena::new(8 * BLOCK as u32);
        let (a, _) = arena.take(10).unwrap();
        let (b, bytes) = arena.take(5000).unwrap();
        bytes.fill(7);
        assert_eq!(arena.bytes(b, 5000), [7; 5000]);
        assert!(arena.take(5 * BLOCK).is_none(), "only four blocks are left");
        arena.give(a, 10);
        arena.give(b, 5000);
        assert!(arena.is_empty());
        assert!(arena.take(8 * BLOCK).is_some());
    }

    #[test]
    fn ranges_outside_are_empty() {
        assert_eq!(Arena::new(2048).bytes(u32::MAX, u32::MAX), b"");
    }
}
