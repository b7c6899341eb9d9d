//! Limit of unread data in a UDP socket's queue, where its program has set one (SO_RCVBUF).

use std::collections::VecDeque;

/// Linux's overhead for a datagram beside its bytes and their headers: `struct sk_buff`.
const BUFFER_BYTES: u64 = 256;
/// Overhead next to the bytes: headers, headroom, and `struct skb_shared_info`.
const AROUND_BYTES: u64 = 379;
/// Minimum of the two together.
const HEAD_MIN: u64 = 576;
/// Limit for data in one piece; of a longer datagram only the headers are.
const HEAD_LIMIT: u64 = 16 * 1024;

/// Unread data in a socket's queue, counted as Linux counts it, so that a program that chooses
/// SO_RCVBUF for a number of datagrams gets that number.
#[derive(Debug)]
pub struct Room {
    limit: u64,
    used: u64,
    /// For each datagram, the position in the queue after it, and its cost.
    waiting: VecDeque<(u64, u64)>,
}

impl Room {
    /// Room for so many bytes: SO_RCVBUF as the kernel reports it, which is twice the requested
    /// value.
    pub fn new(limit: u64) -> Self {
        Self { limit, used: 0, waiting: VecDeque::new() }
    }

    /// Sets another limit; data already in the queue stays.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Whether a datagram has room; a single one always has.
    pub fn admits(&self, payload: usize) -> bool {
        self.used == 0 || self.used + cost(payload) <= self.limit
    }

    /// Adds a datagram that ends at a position of the queue.
    pub fn add(&mut self, end: u64, payload: usize) {
        let bytes = cost(payload);
        self.used += bytes;
        self.waiting.push_back((end, bytes));
    }

    /// The queue was read up to a position.
    pub fn release(&mut self, read: u64) {
        while let Some((_, bytes)) = self.waiting.pop_front_if(|(end, _)| *end <= read) {
            self.used -= bytes;
        }
    }
}

/// Linux 6.18's cost of a datagram sent by a program of the same host (`skb->truesize`).
fn cost(payload: usize) -> u64 {
    let payload = payload as u64;
    let head = payload + AROUND_BYTES;
    let held = if head <= HEAD_MIN {
        HEAD_MIN
    } else if head < HEAD_LIMIT {
        head.next_power_of_two()
    } else {
        HEAD_MIN + payload
    };
    BUFFER_BYTES + held
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_counts_as_in_linux() {
        // By SO_MEMINFO of a socket on the loopback interface, where the numbers change.
        let measured = [
            (0, 832),
            (197, 832),
            (198, 1280),
            (645, 1280),
            (646, 2304),
            (1669, 2304),
            (1670, 4352),
            (3717, 4352),
            (3718, 8448),
            (7813, 8448),
            (7814, 16_640),
            (16_004, 16_640),
            (16_005, 16_837),
            (20_000, 20_832),
            (65_507, 66_339),
        ];
        for (payload, bytes) in measured {
            assert_eq!(cost(payload), bytes, "{payload}");
        }
    }

    #[test]
    fn as_many_wait_as_in_linux_and_reading_makes_room() {
        // How many of a burst were there, by SO_RCVBUF's answer.
        for (limit, payload, count) in [
            (2304, 1, 2),
            (2304, 500, 1),
            (2304, 1400, 1),
            (4608, 1, 5),
            (4608, 500, 3),
            (10_000, 1, 12),
            (40_000, 500, 31),
            (40_000, 1400, 17),
        ] {
            let mut room = Room::new(limit);
            let mut end = 0;
            while room.admits(payload) {
                end += 1;
                room.add(end, payload);
            }
            assert_eq!(end, count, "{limit} {payload}");
            room.release(end - 1);
            assert_eq!(room.admits(payload), count > 1, "one still waits");
            room.release(end);
            assert!(room.admits(65_507), "a single one always");
        }
    }

    #[test]
    fn another_limit_leaves_what_waits() {
        let mut room = Room::new(10_000);
        (1..=12).for_each(|end| room.add(end, 1));
        room.set_limit(5000);
        room.release(6);
        assert!(!room.admits(1), "six of 832 bytes are left");
        room.release(7);
        assert!(room.admits(1));
        room.set_limit(20_000);
        (13..=31).for_each(|end| room.add(end, 1));
        assert!(!room.admits(1), "24 are");
    }
}
