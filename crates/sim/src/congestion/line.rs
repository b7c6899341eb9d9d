//! One direction of a path: a rate, a buffer before it that drops what does not fit, a delay
//! behind it, and losses.

use std::collections::VecDeque;

/// Smaller frames are acknowledgements and the like, which are neither lost nor marked.
const DATA_BYTES_MIN: usize = 200;

/// A direction of a path that carries frames `T`.
#[derive(Clone, Debug)]
pub struct Line<T> {
    /// Bits per second.
    rate: u64,
    delay_ns: u64,
    buffer_bytes: u64,
    loss_ppm: u32,
    seed: u64,
    mark_beyond: u64,
    /// When the last frame will have been sent.
    busy_until: u64,
    /// Frames that are not sent yet: when they are, and their bytes.
    queue: VecDeque<(u64, u64)>,
    queued_bytes: u64,
    /// Frames and when they arrive.
    flying: VecDeque<(u64, T)>,
    count: u64,
    /// Frames dropped for want of room, lost by chance, and marked.
    pub dropped: u64,
    /// See `dropped`.
    pub lost: u64,
    /// See `dropped`.
    pub marked: u64,
}

/// Spreads a number over all others (splitmix64).
fn mixed(number: u64) -> u64 {
    let z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl<T> Line<T> {
    /// A direction without losses; a rate of [`u64::MAX`] is none.
    pub fn new(rate: u64, delay_ns: u64, buffer_bytes: u64) -> Self {
        Self {
            rate,
            delay_ns,
            buffer_bytes,
            loss_ppm: 0,
            seed: 0,
            mark_beyond: u64::MAX,
            busy_until: 0,
            queue: VecDeque::new(),
            queued_bytes: 0,
            flying: VecDeque::new(),
            count: 0,
            dropped: 0,
            lost: 0,
            marked: 0,
        }
    }

    /// Loses so many of a million data frames, always the same ones for a seed.
    pub fn lose(&mut self, loss_ppm: u32, seed: u64) {
        (self.loss_ppm, self.seed) = (loss_ppm, seed);
    }

    /// Marks frames that find more than so many bytes before them.
    pub fn mark_beyond(&mut self, bytes: u64) {
        self.mark_beyond = bytes;
    }

    /// Takes a frame of `bytes`; `mark` sets its mark of congestion where it may have one.
    pub fn push(&mut self, now: u64, bytes: usize, mut frame: T, mark: impl FnOnce(&mut T)) {
        while self.queue.front().is_some_and(|(sent, _)| *sent <= now) {
            let (_, bytes) = self.queue.pop_front().unwrap_or_default();
            self.queued_bytes -= bytes;
        }
        let len = bytes as u64;
        if bytes >= DATA_BYTES_MIN {
            self.count += 1;
            if mixed(self.seed ^ mixed(self.count)) % 1_000_000 < u64::from(self.loss_ppm) {
                self.lost += 1;
                return;
            }
            if self.queued_bytes > self.mark_beyond {
                self.marked += 1;
                mark(&mut frame);
            }
        }
        if self.queued_bytes + len > self.buffer_bytes {
            self.dropped += 1;
            return;
        }
        let ns = u128::from(len) * 8_000_000_000 / u128::from(self.rate);
        self.busy_until = self.busy_until.max(now) + ns as u64;
        self.queue.push_back((self.busy_until, len));
        self.queued_bytes += len;
        self.flying.push_back((self.busy_until + self.delay_ns, frame));
    }

    /// When the next frame arrives.
    pub fn next(&self) -> Option<u64> {
        self.flying.front().map(|(at, _)| *at)
    }

    /// The next frame that has arrived by `now`.
    pub fn pop(&mut self, now: u64) -> Option<T> {
        self.flying.pop_front_if(|(at, _)| *at <= now).map(|(_, frame)| frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_leave_at_the_rate_and_arrive_after_the_delay() {
        let mut line = Line::new(8_000_000, 5_000, 3000);
        for name in ["a", "b", "c", "d"] {
            line.push(0, 1000, name, |_| ());
        }
        // The fourth found no room.
        assert_eq!((line.dropped, line.next()), (1, Some(1_005_000)));
        assert_eq!(line.pop(1_004_999), None);
        assert_eq!(line.pop(1_005_000), Some("a"));
        line.push(1_005_000, 1000, "e", |_| ());
        assert_eq!(line.pop(9_000_000).and(line.pop(9_000_000)), Some("c"));
        assert_eq!(line.next(), Some(4_005_000));
    }

    #[test]
    fn losses_are_as_many_as_asked_for_and_the_same_each_time() {
        let lost = || {
            let mut line = Line::new(u64::MAX, 0, u64::MAX);
            line.lose(10_000, 7);
            let mut arrived = Vec::new();
            for frame in 0..100_000 {
                line.push(frame, 1500, frame, |_| ());
                arrived.extend(line.pop(frame));
            }
            (line.lost, arrived)
        };
        let (count, arrived) = lost();
        assert!((900..1100).contains(&count), "{count}");
        assert_eq!(lost().1, arrived);
    }

    #[test]
    fn a_full_queue_marks() {
        let mut line = Line::new(8_000_000, 0, u64::MAX);
        line.mark_beyond(1500);
        for _ in 0..3 {
            line.push(0, 1000, 0, |frame| *frame = 1);
        }
        let all: Vec<i32> = std::iter::from_fn(|| line.pop(u64::MAX)).collect();
        assert_eq!(all, [0, 0, 1]);
    }
}
