//! Rings against queues, over many laps, and what a client that scribbles meets.

use std::collections::VecDeque;
use std::sync::Arc;

use proptest::prelude::*;

use super::rings::word;
use super::*;
use crate::sync::Ordering;

const SIZES: RingSizes = RingSizes { up: RingSizes::LEAST, down: RingSizes::LEAST };

fn rings() -> Arc<Rings> {
    Arc::new(Rings::private(SIZES).expect("good sizes"))
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(31) ^ seed) as u8).collect()
}

/// What a reader of UP gets next.
#[derive(Debug)]
enum Expected {
    Lost(u32),
    Frame(Option<Meta>, Vec<u8>),
}

#[test]
fn header_and_meta_are_read_as_they_were_written() {
    for kind in [
        MessageKind::Wrap,
        MessageKind::Frame,
        MessageKind::Frames,
        MessageKind::Record,
        MessageKind::Notice,
    ] {
        let header = Header { len: 0xabcdef, kind, port: 17, flags: FrameFlags::all() };
        assert_eq!(Header::decode(header.encode()), Some(header));
    }
    for word in [0, 6 << 24, 2 << 24 | 1 << 48, 2 << 24 | 32 << 40] {
        assert_eq!(Header::decode(word), None, "{word:#x}");
    }
    let meta = Meta {
        time_ns: 1 << 60,
        checksum_start: 34,
        checksum_offset: 16,
        segment_bytes: 1448,
        header_bytes: 54,
        original_bytes: 65_000,
        segments: SegmentKind::Tcp6,
    };
    assert_eq!(Meta::decode(&meta.encode()), Some(meta));
    let mut unknown = meta.encode();
    unknown[20] = 4;
    assert_eq!(Meta::decode(&unknown), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// What is pushed comes out once, in order and whole; what found no room is told of.
    #[test]
    fn up_is_a_queue_that_counts_what_it_drops(
        ops in prop::collection::vec((0usize..9000, any::<bool>(), 0u8..12), 1..600),
    ) {
        let rings = rings();
        let (mut up, mut reader) = (EngineUp::new(rings.clone()), ClientUp::new(rings));
        let mut queue = VecDeque::new();
        let (mut lost, mut pushed, mut dropped) = (0, 0, 0);
        for (number, (len, has_meta, what)) in ops.into_iter().enumerate() {
            let len = if what % 2 == 0 { len / 40 } else { len };
            let meta = Meta { time_ns: number as u64, original_bytes: len as u32, ..Meta::default() };
            let meta = has_meta.then_some(meta);
            let flags = if has_meta { FrameFlags::META } else { FrameFlags::empty() };
            let frame = bytes(len, number);
            let info = UpInfo { port: 3, flags, meta: meta.as_ref(), time_ns: number as u64 };
            if up.push(info, &frame).expect("no breach") {
                queue.extend((lost > 0).then_some(Expected::Lost(lost)));
                queue.push_back(Expected::Frame(meta, frame));
                (lost, pushed) = (0, pushed + 1);
            } else {
                lost += 1;
                dropped += 1;
            }
            if what < 3 {
                up.publish();
            }
            if what == 11 {
                up.publish();
                while let Some(received) = reader.receive().expect("readable") {
                    match (received, queue.pop_front().expect("something was pushed")) {
                        (Received::Lost(count), Expected::Lost(lost)) => {
                            prop_assert_eq!(count, lost);
                        }
                        (Received::Frame(found), Expected::Frame(meta, frame)) => {
                            prop_assert_eq!((found.port, found.meta), (3, meta));
                            let mut copy = vec![0; found.len];
                            reader.read(&found, &mut copy);
                            prop_assert_eq!(copy, frame);
                        }
                        other => panic!("{other:?}"),
                    }
                }
                prop_assert!(queue.is_empty());
                // A doorbell is asked for while frames are lost that nobody was told of.
                prop_assert_eq!(reader.release(), lost > 0);
                prop_assert_eq!(up.tell_lost(), Ok(lost > 0));
                queue.extend((lost > 0).then_some(Expected::Lost(std::mem::take(&mut lost))));
                prop_assert_eq!(reader.counts(), (pushed, dropped));
            }
        }
        prop_assert_eq!(up.counts(), (pushed, dropped));
    }

    /// The same for DOWN, where a full ring refuses.
    #[test]
    fn down_is_a_queue(ops in prop::collection::vec((0usize..9000, any::<bool>(), 0u8..8), 1..600)) {
        let rings = rings();
        let mut down = EngineDown::new(rings.clone()).expect("there is DOWN");
        let mut writer = ClientDown::new(rings).expect("there is DOWN");
        let mut queue = VecDeque::new();
        for (number, (len, has_meta, what)) in ops.into_iter().enumerate() {
            let meta = Meta { segment_bytes: number as u16, ..Meta::default() };
            let meta = has_meta.then_some(meta);
            if let Ok(at) = writer.reserve(what, meta.as_ref(), len) {
                let frame = bytes(len, number);
                writer.write(at, &frame);
                queue.push_back((what, meta, frame));
            } else {
                prop_assert!(!writer.has_room(len + META_BYTES * usize::from(has_meta)));
            }
            if what == 7 {
                let _ = writer.commit();
                loop {
                    match down.peek().expect("no breach") {
                        Taken::Nothing => break,
                        Taken::Wrap => {}
                        Taken::Bad => panic!("a good meta"),
                        Taken::Frame(frame) => {
                            let (port, meta, expected) = queue.pop_front().expect("was pushed");
                            prop_assert_eq!((frame.port, frame.meta), (port, meta));
                            let mut copy = vec![0; frame.len];
                            prop_assert_eq!(down.read(&frame, &mut copy), frame.len);
                            prop_assert_eq!(copy, expected);
                            down.take(&frame);
                            down.finish(frame.end);
                        }
                    }
                }
                prop_assert!(queue.is_empty());
                down.publish();
                prop_assert_eq!(down.held_bytes(), 0);
            }
        }
    }

    /// Whatever a client writes where it may write, the engine finds a frame within the ring, a
    /// breach, or nothing, and never more than there can be.
    #[test]
    fn a_scribbling_client_meets_bounds(
        words in prop::collection::vec((0u64..SIZES.total() / 8, any::<u64>(), 0u8..4), 1..200),
        tail in (0u64..8192, any::<bool>()),
    ) {
        let rings = rings();
        let mut down = EngineDown::new(rings.clone()).expect("there is DOWN");
        let mut up = EngineUp::new(rings.clone());
        let base = 4096 + u64::from(SIZES.up);
        for (at, value, how) in words {
            let plausible = Header {
                len: value as u32 & 0x7fff,
                kind: if value & 1 << 40 == 0 { MessageKind::Frame } else { MessageKind::Wrap },
                port: (value >> 48) as u8,
                flags: if value & 1 << 41 == 0 { FrameFlags::META } else { FrameFlags::empty() },
            };
            match how {
                0 => drop(rings.scribble(at * 8, value)),
                _ => drop(rings.scribble(base + at % 2048 * 64, plausible.encode())),
            }
        }
        let end = if tail.1 { tail.0 * 64 } else { tail.0 * 61 };
        rings.store(word::DOWN_TAIL, end, Ordering::Relaxed);
        for _ in 0..10_000 {
            match down.peek() {
                Err(_) | Ok(Taken::Nothing) => break,
                Ok(Taken::Wrap | Taken::Bad) => {}
                Ok(Taken::Frame(frame)) => {
                    let mut copy = vec![0; frame.len];
                    prop_assert_eq!(down.read(&frame, &mut copy), frame.len);
                    prop_assert_eq!(down.rest(&frame, 0).len(), frame.len);
                    down.take(&frame);
                    down.finish(frame.end);
                }
            }
        }
        for _ in 0..10_000 {
            if up.push(UpInfo::default(), &[0; 1500]).is_err() {
                break;
            }
            up.publish();
        }
    }
}

/// Each bound of section "Hostile clients" by itself.
#[test]
fn every_breach_is_named() {
    let started = |tail: u64| {
        let rings = rings();
        let down = EngineDown::new(rings.clone()).expect("there is DOWN");
        rings.store(word::DOWN_TAIL, tail, Ordering::Relaxed);
        (rings, down)
    };
    let base = 4096 + u64::from(SIZES.up);
    for tail in [63, u64::from(SIZES.down) + 64, u64::MAX - 63] {
        let (_, mut down) = started(tail);
        let found = down.peek();
        assert!(matches!(found, Err(RingBreach::TailOutOfWindow { .. })), "{tail}: {found:?}");
    }
    let frame = |len| Header { len, kind: MessageKind::Frame, port: 0, flags: FrameFlags::empty() };
    for word in [
        frame(60).encode() | 1 << 48,
        Header { kind: MessageKind::Frames, ..frame(60) }.encode(),
        Header { kind: MessageKind::Notice, ..frame(60) }.encode(),
        0,
    ] {
        let (rings, mut down) = started(64);
        rings.scribble(base, word);
        assert_eq!(down.peek(), Err(RingBreach::HeaderMalformed { word }));
    }
    // Beyond the tail; a wrap beyond the tail; beyond an eighth.
    for (tail, header) in [
        (64, frame(60)),
        (64, Header { kind: MessageKind::Wrap, ..frame(0) }),
        (u64::from(SIZES.down) / 2, frame(SIZES.down / 8)),
    ] {
        let (rings, mut down) = started(tail);
        rings.scribble(base, header.encode());
        assert_eq!(down.peek(), Err(RingBreach::TooLong { word: header.encode() }));
    }
    // A tail that goes back.
    let (rings, mut down) = started(128);
    rings.scribble(base, frame(100).encode());
    let Ok(Taken::Frame(found)) = down.peek() else { panic!("a frame") };
    down.take(&found);
    rings.store(word::DOWN_TAIL, 64, Ordering::Relaxed);
    assert!(matches!(down.peek(), Err(RingBreach::TailOutOfWindow { low: 128, .. })));
    // A head that was never given.
    let rings = super::properties::rings();
    let mut up = EngineUp::new(rings.clone());
    rings.store(word::UP_HEAD, 64 << 20, Ordering::Relaxed);
    let breach = (0..1000).find_map(|_| up.push(UpInfo::default(), &[0; 1500]).err());
    assert!(matches!(breach, Some(RingBreach::HeadOutOfWindow { .. })), "{breach:?}");
}

/// An unfinished push never happened: a second producer goes on from the last commit.
#[test]
fn another_producer_goes_on_where_one_died_in_a_push() {
    let rings = rings();
    let mut down = EngineDown::new(rings.clone()).expect("there is DOWN");
    let mut first = ClientDown::new(rings.clone()).expect("there is DOWN");
    let at = first.reserve(0, None, 100).expect("room");
    first.write(at, &[1; 100]);
    assert!(first.commit());
    first.reserve(0, None, 200).expect("room");
    let mut second = ClientDown::new(rings).expect("there is DOWN");
    let at = second.reserve(0, None, 300).expect("room");
    second.write(at, &[3; 300]);
    assert!(second.commit());
    let mut found = Vec::new();
    while let Taken::Frame(frame) = down.peek().expect("no breach") {
        found.push(frame.len);
        down.take(&frame);
    }
    assert_eq!(found, [100, 300]);
}

#[test]
fn a_memfd_of_another_size_or_without_seals_is_refused() {
    let mut rings = Rings::create(SIZES).expect("a memfd");
    let copy = |rings: &Rings| rustix::io::fcntl_dupfd_cloexec(rings.file().unwrap(), 0).unwrap();
    assert!(Rings::open(copy(&rings), SIZES).is_ok());
    let other = RingSizes { up: SIZES.up * 2, ..SIZES };
    assert!(matches!(Rings::open(copy(&rings), other), Err(RingError::WrongSize { .. })));
    assert!(rings.take_file().is_some());
    let file = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    assert!(matches!(Rings::open(file, SIZES), Err(RingError::NotSealed)));
    for up in [0, 3 << 18, 128 << 20] {
        assert!(matches!(Rings::create(RingSizes { up, ..SIZES }), Err(RingError::BadSizes(_))));
    }
}
