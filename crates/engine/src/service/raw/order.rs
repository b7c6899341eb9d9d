//! Frames that wait for their port, where an endpoint has several: each port goes at its own speed, and
//! the room in the ring is given back in order.
//!
//! A frame that found its port full waits in the ring, and a queue points to it. Once half of the ring, or
//! half of what is remembered, lies behind the oldest such frame, it is copied ([`Order::copy_oldest`]),
//! so that a port that stands still holds back nobody but itself.

use std::collections::VecDeque;

use shm::raw::DownFrame;

use super::PORTS_MAX;

/// Frames that wait for one port at the most.
const QUEUE_FRAMES: usize = 256;
/// Messages that are remembered: as many as all queues hold.
const TAKEN_MAX: usize = PORTS_MAX * QUEUE_FRAMES;
/// Bytes of copied frames of one port.
pub const COPIED_BYTES: usize = 256 << 10;

/// A message that was taken from the ring.
#[derive(Clone, Copy, Debug)]
struct TakenMessage {
    /// Position behind it.
    end: u64,
    /// The queue that its frame waits in; `None` when it is done with.
    queue: Option<usize>,
}

/// A frame that waits for its port.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitingFrame {
    /// The frame in the ring.
    pub frame: DownFrame,
    /// Where its copy begins, if it was copied.
    pub copy: Option<usize>,
    /// Its message's number, from the endpoint's beginning.
    number: u64,
}

/// What waits for one port.
struct PortQueue {
    frames: VecDeque<WaitingFrame>,
    /// Of these, from the front, those that are copied.
    copied: usize,
    /// The copies, one behind the other and round again, each in one piece.
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl PortQueue {
    fn new() -> Self {
        Self {
            frames: VecDeque::with_capacity(QUEUE_FRAMES),
            copied: 0,
            bytes: vec![0; COPIED_BYTES].into(),
            start: 0,
            end: 0,
        }
    }

    /// Where a copy of `len` bytes goes, if there is room.
    fn place(&mut self, len: usize) -> Option<usize> {
        if self.copied == 0 {
            (self.start, self.end) = (0, 0);
        }
        let is_wrapped = self.copied > 0 && self.end <= self.start;
        let at = match is_wrapped {
            true => (self.start - self.end >= len).then_some(self.end),
            false if self.bytes.len() - self.end >= len => Some(self.end),
            false => (self.start >= len).then_some(0),
        }?;
        self.end = at + len;
        Some(at)
    }
}

/// All messages of an endpoint that are taken and not done with, and those whose frames wait.
pub(super) struct Order {
    taken: VecDeque<TakenMessage>,
    /// Number of the oldest of them.
    first: u64,
    queues: Vec<PortQueue>,
}

impl Order {
    /// Of an endpoint with so many ports.
    pub fn new(ports: usize) -> Self {
        Self {
            taken: VecDeque::with_capacity(TAKEN_MAX),
            first: 0,
            queues: std::iter::repeat_with(PortQueue::new).take(ports).collect(),
        }
    }

    /// Whether frames wait.
    pub fn has_waiting(&self) -> bool {
        self.queues.iter().any(|queue| !queue.frames.is_empty())
    }

    /// Whether frames wait for a port, so that others for it must wait behind them.
    pub fn waits(&self, queue: usize) -> bool {
        self.queues.get(queue).is_some_and(|queue| !queue.frames.is_empty())
    }

    /// The frame that has waited longest for a port.
    pub fn front(&self, queue: usize) -> Option<WaitingFrame> {
        self.queues.get(queue)?.frames.front().copied()
    }

    /// The bytes of a copied frame.
    pub fn copy(&self, queue: usize, at: usize, len: usize) -> &[u8] {
        self.queues.get(queue).and_then(|queue| queue.bytes.get(at..at + len)).unwrap_or_default()
    }

    /// The frame at the front of a queue is done with.
    pub fn pop(&mut self, queue: usize) {
        let Some(of) = self.queues.get_mut(queue) else { return };
        let Some(done) = of.frames.pop_front() else { return };
        match done.copy {
            // Its message was done with when it was copied.
            Some(at) => {
                of.copied -= 1;
                of.start = at + done.frame.len;
            }
            None => self.finish(done.number),
        }
    }

    /// A message was taken that nobody waits for: done with once all before it are.
    pub fn pass(&mut self, end: u64) {
        self.taken.push_back(TakenMessage { end, queue: None });
    }

    /// A frame was taken that waits for its port. `false`: the queue is full, and the frame is dropped.
    pub fn push(&mut self, queue: usize, frame: &DownFrame) -> bool {
        let number = self.first + self.taken.len() as u64;
        let of = self.queues.get_mut(queue).filter(|of| of.frames.len() < QUEUE_FRAMES);
        let is_kept = of.is_some();
        if let Some(of) = of {
            of.frames.push_back(WaitingFrame { frame: *frame, copy: None, number });
        }
        self.taken.push_back(TakenMessage { end: frame.end, queue: is_kept.then_some(queue) });
        is_kept
    }

    /// Position behind all messages at the front that are done with, if there are any; they are forgotten.
    pub fn advance(&mut self) -> Option<u64> {
        let mut end = None;
        while let Some(front) = self.taken.front().filter(|front| front.queue.is_none()) {
            end = Some(front.end);
            self.taken.pop_front();
            self.first += 1;
        }
        end
    }

    /// Whether so much lies behind the oldest waiting frame that it must not hold the ring any longer.
    pub fn is_pressed(&self, held_bytes: u64, ring_bytes: u64) -> bool {
        !self.taken.is_empty() && (held_bytes > ring_bytes / 2 || self.taken.len() > TAKEN_MAX / 2)
    }

    /// Copies the oldest frame that waits in the ring, with `read`; its message is done with. `false`: its
    /// port's copies have no room for it, and it is dropped.
    pub fn copy_oldest(&mut self, read: impl FnOnce(&DownFrame, &mut [u8]) -> usize) -> bool {
        let oldest = self.taken.front().and_then(|oldest| oldest.queue);
        // It is done with in any case.
        self.finish(self.first);
        let Some(of) = oldest.and_then(|queue| self.queues.get_mut(queue)) else { return true };
        let at = of.copied;
        let Some(waiting) = of.frames.get(at).copied() else { return true };
        let len = waiting.frame.len;
        let place = of.place(len);
        match place {
            Some(start) => {
                if let Some(room) = of.bytes.get_mut(start..start + len) {
                    read(&waiting.frame, room);
                }
                if let Some(waiting) = of.frames.get_mut(at) {
                    waiting.copy = Some(start);
                }
                of.copied += 1;
            }
            None => drop(of.frames.remove(at)),
        }
        place.is_some()
    }

    fn finish(&mut self, number: u64) {
        let at = usize::try_from(number.wrapping_sub(self.first)).unwrap_or(usize::MAX);
        if let Some(message) = self.taken.get_mut(at) {
            message.queue = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shm::raw::{ClientDown, EngineDown, RingSizes, Rings, Taken};

    use super::*;

    /// Frames of these lengths, as they are found in a ring.
    fn frames(lengths: impl IntoIterator<Item = usize>) -> Vec<DownFrame> {
        let sizes = RingSizes { up: RingSizes::LEAST, down: 16 << 20 };
        let rings = Arc::new(Rings::private(sizes).unwrap());
        let mut writer = ClientDown::new(Arc::clone(&rings)).unwrap();
        let mut reader = EngineDown::new(rings).unwrap();
        lengths
            .into_iter()
            .map(|len| {
                writer.reserve(0, None, len).unwrap();
                assert!(writer.commit());
                let Ok(Taken::Frame(frame)) = reader.peek() else { panic!("a frame") };
                reader.take(&frame);
                frame
            })
            .collect()
    }

    #[test]
    fn room_is_given_back_in_order() {
        let all = frames([60; 6]);
        let mut order = Order::new(2);
        assert!(order.push(0, &all[0]));
        order.pass(all[1].end);
        assert!(order.push(1, &all[2]));
        order.pass(all[3].end);
        assert_eq!(order.advance(), None);
        order.pop(1);
        assert_eq!(order.advance(), None, "the first still waits");
        order.pop(0);
        assert_eq!(order.advance(), Some(all[3].end));
        assert!(order.push(1, &all[4]));
        order.pass(all[5].end);
        order.pop(1);
        assert_eq!(order.advance(), Some(all[5].end));
        assert!(!order.has_waiting());
    }

    #[test]
    fn a_full_queue_drops_its_own_frames_alone() {
        let all = frames([60; QUEUE_FRAMES + 2]);
        let mut order = Order::new(2);
        assert!(all[..QUEUE_FRAMES].iter().all(|frame| order.push(0, frame)));
        assert!(!order.push(0, &all[QUEUE_FRAMES]));
        assert!(order.push(1, &all[QUEUE_FRAMES + 1]));
        assert!(order.waits(0) && order.waits(1));
    }

    #[test]
    fn copies_keep_their_order_and_their_bytes_round_after_round() {
        let all = frames((0..2000).map(|at| 60 + at * 37 % 9000));
        let mut order = Order::new(1);
        let (mut copied, mut popped, mut dropped) = (0, 0, 0);
        let pop = |order: &mut Order, popped: &mut usize, gone: &[usize]| {
            while gone.contains(popped) {
                *popped += 1;
            }
            let WaitingFrame { frame, copy, .. } = order.front(0).unwrap();
            assert_eq!(frame, all[*popped]);
            let bytes = order.copy(0, copy.unwrap(), frame.len);
            assert!(bytes.iter().all(|byte| *byte == *popped as u8), "{popped}");
            order.pop(0);
            *popped += 1;
        };
        let mut gone = Vec::new();
        for (number, frame) in all.iter().enumerate() {
            assert!(order.push(0, frame));
            let is_kept = order.copy_oldest(|frame, room| {
                room.fill(number as u8);
                frame.len
            });
            if is_kept {
                copied += 1;
            } else {
                gone.push(number);
                dropped += 1;
            }
            assert_eq!(order.advance(), Some(frame.end));
            while order.queues[0].frames.len() > 100 - number / 20 {
                pop(&mut order, &mut popped, &gone);
            }
        }
        assert!(copied > 1000 && dropped > 10, "{copied} copied, {dropped} dropped");
    }
}
