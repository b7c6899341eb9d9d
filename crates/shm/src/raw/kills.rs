//! A client dies at every store of its calls: what it had not shown never happened, and others go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use super::rings::word;
use super::*;
use crate::sync::Ordering;

const SIZES: RingSizes = RingSizes { up: RingSizes::LEAST, down: RingSizes::LEAST };

/// Lets so many stores through, and none after. A dead process stores nothing.
#[derive(Debug)]
pub(super) struct Fuse {
    left: AtomicU64,
    /// Half of the bytes of the first copy that is not let through are.
    tears: AtomicBool,
}

impl Default for Fuse {
    fn default() -> Self {
        Self { left: AtomicU64::new(u64::MAX), tears: AtomicBool::new(false) }
    }
}

impl Fuse {
    /// Bytes of a store of `len` bytes that are let through.
    pub(super) fn allows(&self, len: usize) -> usize {
        match self.left.load(Ordering::Relaxed) {
            u64::MAX => len,
            0 if self.tears.swap(false, Ordering::Relaxed) => len / 2,
            0 => 0,
            left => {
                self.left.store(left - 1, Ordering::Relaxed);
                len
            }
        }
    }

    fn stop_after(&self, stores: u64, tears: bool) {
        self.left.store(stores, Ordering::Relaxed);
        self.tears.store(tears, Ordering::Relaxed);
    }

    /// Lets everything through again. Whether it had stopped something, or would have next.
    fn mend(&self) -> bool {
        self.left.swap(u64::MAX, Ordering::Relaxed) == 0
    }
}

fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| at as u8 ^ seed).collect()
}

fn push(down: &mut ClientDown, meta: Option<&Meta>, len: usize, seed: u8) {
    let at = down.reserve(0, meta, len).expect("room");
    down.write(at, &bytes(len, seed));
}

/// Every frame that the engine finds, and its first byte.
fn found(down: &mut EngineDown) -> Vec<(usize, u8)> {
    let mut all = Vec::new();
    loop {
        match down.peek().expect("the contract is kept") {
            Taken::Nothing => return all,
            Taken::Wrap => {}
            Taken::Bad => panic!("a frame that nobody sent"),
            Taken::Frame(frame) => {
                let mut copy = vec![0; frame.len];
                down.read(&frame, &mut copy);
                assert_eq!(copy, bytes(frame.len, copy[0]), "a frame is not whole");
                all.push((frame.len, copy[0]));
                down.take(&frame);
            }
        }
        down.finish(down.taken());
    }
}

/// The batches that a client pushes before it dies, or does not.
const BATCHES: [&[(usize, bool)]; 3] =
    [&[(100, false), (2000, true), (60, false)], &[(300, true)], &[(1, false)]];

#[test]
fn a_push_that_was_not_committed_never_happened() {
    for tears in [false, true] {
        let mut deaths = 0;
        loop {
            let rings = Arc::new(Rings::private(SIZES).expect("good sizes"));
            let mut engine = EngineDown::new(Arc::clone(&rings)).expect("there is DOWN");
            let client = || ClientDown::new(Arc::clone(&rings)).expect("there is DOWN");
            // To 1,472 bytes before the end, so that the second frame lies behind a WRAP.
            let mut first = client();
            for len in [30_000; 8].into_iter().chain([20_600]) {
                push(&mut first, None, len, 0);
                assert!(first.commit());
                assert_eq!(found(&mut engine), [(len, 0)]);
            }
            engine.publish();
            rings.fuse.stop_after(deaths, tears);
            let mut victim = client();
            for (number, batch) in (1..).zip(BATCHES) {
                for (len, has_meta) in batch {
                    let meta = Meta::default();
                    push(&mut victim, has_meta.then_some(&meta), *len, number);
                }
                let _ = victim.commit();
            }
            let has_died = rings.fuse.mend();
            let mut expected = Vec::new();
            let tail = rings.load(word::DOWN_TAIL, Ordering::Relaxed);
            let mut all = found(&mut engine);
            let mut sibling = client();
            push(&mut sibling, None, 700, 9);
            assert!(sibling.commit());
            all.extend(found(&mut engine));
            // As many batches as the tail says, and then the sibling's frame.
            for (number, batch) in (1..).zip(BATCHES) {
                let lengths = batch.iter().map(|(len, _)| (*len, number));
                if all.len() > expected.len() + 1 {
                    expected.extend(lengths);
                }
            }
            expected.push((700, 9));
            assert_eq!(all, expected, "dead after {deaths} stores, tail {tail}");
            if !has_died {
                assert_eq!(all.len(), 6);
                break;
            }
            deaths += 1;
        }
        // Header, frame and, of some, META and WRAP; and a tail for each batch.
        assert!(deaths >= 15, "{deaths} stores");
    }
}

#[test]
fn frames_that_were_not_released_come_again() {
    let mut deaths = 0;
    loop {
        let rings = Arc::new(Rings::private(SIZES).expect("good sizes"));
        let mut engine = EngineUp::new(Arc::clone(&rings));
        let mut push = |seed: u8| {
            let pushed = engine.push(UpInfo { port: 1, ..UpInfo::default() }, &bytes(500, seed));
            assert_eq!(pushed, Ok(true));
            engine.publish();
        };
        (0..6).for_each(&mut push);
        rings.fuse.stop_after(deaths, false);
        let mut victim = ClientUp::new(Arc::clone(&rings));
        for _ in 0..3 {
            for _ in 0..2 {
                assert!(matches!(victim.receive(), Ok(Some(Received::Frame(_)))));
            }
            assert!(!victim.release());
        }
        let has_died = rings.fuse.mend();
        push(6);
        let mut sibling = ClientUp::new(Arc::clone(&rings));
        let mut seeds = Vec::new();
        while let Some(Received::Frame(frame)) = sibling.receive().expect("readable") {
            let mut copy = vec![0; frame.len];
            sibling.read(&frame, &mut copy);
            assert_eq!(copy, bytes(500, copy[0]));
            seeds.push(copy[0]);
        }
        let released = deaths.min(3) as u8 * 2;
        assert_eq!(seeds, (released..7).collect::<Vec<_>>(), "dead after {deaths} stores");
        if !has_died {
            break;
        }
        deaths += 1;
    }
    assert_eq!(deaths, 4, "a store for each release, and one more to see that no other is");
}
