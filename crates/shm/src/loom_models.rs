//! Every interleaving (preempted at most twice a thread) of the two sides of a region: rings of
//! two slots, a page table of two pages, an endpoint of one lane. Bytes of buffers are cells, so
//! that a page read while it is written fails the model.
//!
//! Loom treats SeqCst accesses as AcqRel, so the sleep handshakes rest on fences; it does not
//! explore load buffering: what passes is necessary, not sufficient.

use std::sync::Arc;

use loom::thread;

use crate::Status;
use crate::client_side::{ClientEndpoint, ClientLane, Direction, Levels, Rung};
use crate::control::Geometry;
use crate::descriptor::{DescriptorFlags, DescriptorKind, Span};
use crate::engine_side::{EngineEndpoint, EngineLane};
use crate::lock::{Tag, acquire};
use crate::region::Region;
use crate::request::{OptionName, Reply, Request};
use crate::ring::Ring;
use crate::sync::{AtomicU64, Ordering};

fn region() -> Arc<Region> {
    let geometry = Geometry {
        region_bytes: 0,
        context_count: 1,
        worker_count: 1,
        request_slots: 2,
        stock_slots: 2,
        endpoint_capacity: 1,
        send_slots: 2,
        receive_slots: 2,
        buffer_bytes: 2,
        buffer_count: 2,
    };
    Arc::new(Region::private(geometry).unwrap())
}

const TAG: u32 = 7;

fn tag() -> Tag {
    Tag::new(TAG, 1)
}

fn sides(region: &Arc<Region>) -> (EngineLane, EngineEndpoint, ClientLane, ClientEndpoint) {
    let mut area = EngineEndpoint::new(region.clone(), 0);
    area.clear();
    (
        EngineLane::new(region.clone(), 0, 0),
        area,
        ClientLane::new(region.clone(), 0, 0),
        ClientEndpoint::new(region.clone(), 0).unwrap(),
    )
}

#[test]
fn a_ring_brings_every_number_once_and_in_order() {
    loom::model(|| {
        let region = region();
        let ring = Ring { base: region.layout().stock(region.layout().lane(0, 0)), slots: 2 };
        let taken = region.layout().lane(0, 0);
        let pusher = {
            let region = region.clone();
            thread::spawn(move || {
                let mut pushed = 0;
                for _ in 0..4 {
                    if pushed - region.load(taken, Ordering::Acquire) < 2 && pushed < 3 {
                        ring.push(&region, pushed, 100 + pushed as u32);
                        pushed += 1;
                    }
                }
                pushed
            })
        };
        let mut position = 0;
        for _ in 0..3 {
            if let Some(number) = ring.take(&region, position) {
                assert_eq!(number, 100 + position as u32);
                position += 1;
                region.store(taken, position, Ordering::Release);
            }
        }
        let pushed = pusher.join().unwrap();
        while let Some(number) = ring.take(&region, position) {
            assert_eq!(number, 100 + position as u32);
            position += 1;
        }
        assert_eq!(position, pushed);
    });
}

#[test]
fn requests_and_replies_come_whole_and_in_order() {
    loom::model(|| {
        let region = region();
        let (mut engine, _, client, _) = sides(&region);
        let asking = thread::spawn(move || {
            let mut answered = 0;
            let mut asked = 0;
            for _ in 0..3 {
                let mut lane = client.lock(tag()).unwrap();
                let option = OptionName::Nodelay;
                let request = Request::SetOption { endpoint: asked, option, value: asked.into() };
                if asked < 3 && lane.push_request(&request).is_some() {
                    asked += 1;
                }
                while let Some((serial, reply)) = lane.take_reply() {
                    assert_eq!((serial, reply), (answered, Some(Reply::Value(answered.into()))));
                    answered += 1;
                }
            }
            (client, asked, answered)
        });
        let mut served = 0;
        let mut serve = |engine: &mut EngineLane| {
            while let Some((serial, request)) = engine.take_request().unwrap() {
                let Request::SetOption { endpoint, value, .. } = request else { panic!() };
                assert_eq!((endpoint, value), (served, served.into()));
                engine.push_reply(serial, &Reply::Value(value));
                served += 1;
            }
        };
        serve(&mut engine);
        serve(&mut engine);
        let (client, asked, mut answered) = asking.join().unwrap();
        serve(&mut engine);
        while let Some((serial, _)) = client.lock(tag()).unwrap().take_reply() {
            assert_eq!(serial, answered);
            answered += 1;
        }
        assert_eq!((served, answered), (asked, asked));
    });
}

/// Sends one byte in buffer `buffer`, if there is room.
fn send(region: &Region, endpoint: &ClientEndpoint, buffer: u32, byte: u8) -> bool {
    let mut guard = endpoint.lock_send(tag()).unwrap();
    if guard.room() == 0 {
        return false;
    }
    let span = region.buffer(buffer).unwrap().part(0, 1);
    region.write_buffer(span, &[byte]);
    guard.push(DescriptorKind::Data, DescriptorFlags::empty(), span);
    true
}

/// Takes what has been sent and checks that it is `next ..`.
fn take_sent(region: &Region, area: &mut EngineEndpoint, next: &mut u8) {
    while let Some(taken) = area.take_descriptor().unwrap() {
        let mut byte = [0];
        assert_eq!(region.read_buffer(taken.span, &mut byte), 1);
        assert_eq!(byte[0], *next);
        *next += 1;
    }
    area.publish_taken();
}

#[test]
fn descriptors_bring_their_bytes_and_their_slots_come_back() {
    loom::model(|| {
        let region = region();
        let (_, mut area, _, endpoint) = sides(&region);
        let sending = {
            let region = region.clone();
            thread::spawn(move || {
                let mut sent = 0;
                for _ in 0..3 {
                    // The engine is done with a buffer when it has taken the descriptor.
                    if send(&region, &endpoint, u32::from(sent) % 2, sent) {
                        sent += 1;
                    }
                }
                sent
            })
        };
        let mut next = 0;
        take_sent(&region, &mut area, &mut next);
        take_sent(&region, &mut area, &mut next);
        let sent = sending.join().unwrap();
        take_sent(&region, &mut area, &mut next);
        assert_eq!(next, sent);
    });
}

#[test]
fn a_page_is_never_read_while_it_is_filled_even_when_it_was_taken_back() {
    loom::model(|| {
        let region = region();
        let (_, mut area, _, endpoint) = sides(&region);
        let reading = {
            let region = region.clone();
            thread::spawn(move || {
                let mut next = 0;
                for _ in 0..2 {
                    let mut receive = endpoint.lock_receive(tag()).unwrap();
                    let readable = receive.readable();
                    while next < readable {
                        let span = receive.page(next, readable).unwrap();
                        let mut bytes = [0; 2];
                        let len = region.read_buffer(span, &mut bytes);
                        for byte in &bytes[..len] {
                            assert_eq!(u64::from(*byte), 10 + next);
                            next += 1;
                        }
                    }
                    let _ = receive.advance(next);
                }
                next
            })
        };
        let put = |area: &mut EngineEndpoint, buffer: u32, offset: u64| {
            let page = region.buffer(buffer).unwrap();
            area.set_page(offset / 2, buffer);
            region.write_buffer(page.part((offset % 2) as u32, 1), &[10 + offset as u8]);
            area.set_readable(offset + 1);
        };
        put(&mut area, 0, 0);
        let all_read = area.consumed(0, 1).unwrap() == 1;
        if all_read {
            // All is read: the page is taken back, written over for another, and the slot gets
            // another buffer when the next byte comes.
            region.write_buffer(region.buffer(0).unwrap(), &[99, 99]);
            put(&mut area, 1, 1);
        } else {
            put(&mut area, 0, 1);
        }
        put(&mut area, u32::from(!all_read), 2);
        let read = reading.join().unwrap();
        assert_eq!(area.consumed(0, 3), Ok(read));
    });
}

#[test]
fn what_was_sent_before_ringing_is_found_through_doorbells() {
    loom::model(|| {
        let region = region();
        let (mut engine, mut area, client, endpoint) = sides(&region);
        let sending = {
            let region = region.clone();
            thread::spawn(move || {
                for byte in 0..2 {
                    // The lock is held over the ringing.
                    let mut guard = endpoint.lock_send(tag()).unwrap();
                    let span = region.buffer(byte.into()).unwrap().part(0, 1);
                    region.write_buffer(span, &[byte]);
                    guard.push(DescriptorKind::Data, DescriptorFlags::empty(), span);
                    let _ = client.ring(0, Direction::Send);
                }
            })
        };
        let mut next = 0;
        let mut serve = |engine: &mut EngineLane| {
            let mut rung = [0; 2];
            if engine.take_doorbells(&mut rung).unwrap() > 0 {
                take_sent(&region, &mut area, &mut next);
            }
        };
        serve(&mut engine);
        serve(&mut engine);
        sending.join().unwrap();
        serve(&mut engine);
        assert_eq!(next, 2, "a descriptor without a doorbell");
    });
}

#[test]
fn what_is_written_or_read_during_a_move_counts_before_it_or_not_at_all() {
    loom::model(|| {
        let region = region();
        let (_, mut area, _, endpoint) = sides(&region);
        area.set_readable(1);
        let client = thread::spawn(move || {
            let mut wrote = 0;
            {
                let mut guard = endpoint.lock_send(tag()).unwrap();
                if !endpoint.status().contains(Status::MOVED) {
                    let span = endpoint.region().buffer(0).unwrap().part(0, 1);
                    guard.push(DescriptorKind::Data, DescriptorFlags::empty(), span);
                    wrote = 1;
                }
            }
            let mut guard = endpoint.lock_receive(tag()).unwrap();
            let reads = !endpoint.status().contains(Status::MOVED);
            if reads {
                let _ = guard.advance(1);
            }
            (wrote, u64::from(reads))
        });
        let mut moved = None;
        if area.seize() {
            let taken = u32::from(area.take_descriptor().unwrap().is_some());
            assert!(area.is_drained());
            moved = Some((taken, area.consumed(0, 1).unwrap()));
            area.set_status(Status::MOVED, 0);
            area.let_go();
        }
        let done = client.join().unwrap();
        assert!(moved.is_none_or(|moved| moved == done), "{moved:?} was moved, {done:?} was done");
        assert!(moved.is_some() || area.seize(), "a lock was left");
    });
}

#[test]
fn two_threads_ring_for_both_directions_and_both_are_heard() {
    loom::model(|| {
        let region = region();
        let (mut engine, mut area, client, endpoint) = sides(&region);
        area.set_readable(1);
        let reading = {
            let (client, endpoint) = (client.clone(), endpoint.clone());
            thread::spawn(move || {
                let mut receive = endpoint.lock_receive(Tag::new(TAG, 2)).unwrap();
                let _ = receive.advance(1);
                let _ = client.ring(0, Direction::Receive);
            })
        };
        let sending = thread::spawn(move || {
            let mut guard = endpoint.lock_send(tag()).unwrap();
            guard.push(DescriptorKind::Fin, DescriptorFlags::empty(), Span::default());
            let _ = client.ring(0, Direction::Send);
        });
        let (mut consumed, mut fins) = (0, 0);
        let mut serve = |engine: &mut EngineLane| {
            let mut rung = [0; 4];
            if engine.take_doorbells(&mut rung).unwrap() > 0 {
                consumed = area.consumed(consumed, 1).unwrap();
                fins += u32::from(area.take_descriptor().unwrap().is_some());
            }
        };
        serve(&mut engine);
        reading.join().unwrap();
        sending.join().unwrap();
        serve(&mut engine);
        assert_eq!((consumed, fins), (1, 1));
    });
}

#[test]
fn an_engine_that_falls_asleep_has_seen_the_doorbell_or_is_woken() {
    loom::model(|| {
        let region = region();
        let (mut engine, _, client, endpoint) = sides(&region);
        let ringing = thread::spawn(move || {
            let _held = endpoint.lock_send(tag()).unwrap();
            client.ring(0, Direction::Send)
        });
        let asleep = engine.prepare_sleep();
        let rung = ringing.join().unwrap();
        assert!(!asleep || rung == Rung::WritePipe, "it sleeps through a doorbell");
    });
}

#[test]
fn an_engine_that_gives_way_has_seen_the_doorbell_or_is_woken_when_the_client_stops() {
    loom::model(|| {
        let region = region();
        let (mut engine, _, client, endpoint) = sides(&region);
        let running = thread::spawn(move || {
            let held = endpoint.lock_send(tag()).unwrap();
            let rung = client.ring(0, Direction::Send);
            assert_ne!(rung, Rung::WritePipe, "it rings one that waits for it to stop");
            drop(held);
            client.resume_worker()
        });
        let asleep = engine.prepare_giving_way();
        let resumed = running.join().unwrap();
        assert!(!asleep || resumed == Rung::WritePipe, "it gives way to one that has stopped");
    });
}

#[test]
fn two_who_ring_a_sleeping_engine_write_at_least_one_byte() {
    loom::model(|| {
        let region = region();
        let (mut engine, _, client, endpoint) = sides(&region);
        let other = {
            let (client, endpoint) = (client.clone(), endpoint.clone());
            thread::spawn(move || {
                let _held = endpoint.lock_receive(Tag::new(TAG, 2)).unwrap();
                client.ring(0, Direction::Receive)
            })
        };
        let asleep = engine.prepare_sleep();
        let own = {
            let _held = endpoint.lock_send(tag()).unwrap();
            client.ring(0, Direction::Send)
        };
        let other = other.join().unwrap();
        assert!(!asleep || [own, other].contains(&Rung::WritePipe));
    });
}

#[test]
fn a_level_that_changes_after_its_event_was_taken_makes_another() {
    loom::model(|| {
        let region = region();
        let (mut engine, mut area, client, endpoint) = sides(&region);
        let publishing = thread::spawn(move || {
            for readable in 1..=2 {
                area.set_readable(readable);
                EngineLane::begin_events();
                assert!(engine.push_event(0));
            }
        });
        let mut seen = 0;
        let mut look = || {
            let mut hints = 0;
            client.lock(tag()).unwrap().take_events(4, |_| hints += 1);
            if hints > 0 {
                seen = endpoint.levels().readable;
            }
        };
        look();
        look();
        publishing.join().unwrap();
        look();
        assert_eq!(seen, 2, "a level without an event");
    });
}

#[test]
fn a_client_that_falls_asleep_has_seen_the_event_or_is_woken() {
    loom::model(|| {
        let region = region();
        let (mut engine, _, client, _) = sides(&region);
        let publishing = thread::spawn(move || {
            EngineLane::begin_events();
            assert!(engine.push_event(0));
            engine.finish_events()
        });
        let asleep = client.arm(1);
        let woken = publishing.join().unwrap();
        assert!(!asleep || woken, "it sleeps through an event");
    });
}

#[test]
fn a_second_sleep_is_woken_like_the_first() {
    loom::model(|| {
        let region = region();
        let (mut engine, _, client, _) = sides(&region);
        let pipe = Arc::new(AtomicU64::new(0));
        let publishing = {
            let pipe = pipe.clone();
            thread::spawn(move || {
                for _ in 0..2 {
                    EngineLane::begin_events();
                    assert!(engine.push_event(0));
                    if engine.finish_events() {
                        pipe.fetch_add(1, Ordering::AcqRel);
                    }
                }
            })
        };
        // A sleep, then what waits is taken, as after every sleep; then another.
        let _ = client.arm(1);
        pipe.swap(0, Ordering::AcqRel);
        client.disarm();
        client.lock(tag()).unwrap().take_events(4, |_| {});
        let asleep = client.arm(2);
        publishing.join().unwrap();
        let woken = pipe.load(Ordering::Acquire) > 0;
        assert!(!asleep || !client.has_events() || woken, "it sleeps through an event");
    });
}

#[test]
fn whoever_waits_for_buffers_sees_them_or_gets_an_event() {
    loom::model(|| {
        let region = region();
        let (mut engine, _, client, _) = sides(&region);
        assert!(engine.grant(0));
        let _ = engine.finish_events();
        client.lock(tag()).unwrap().take_events(4, |_| {});
        let granting = thread::spawn(move || {
            assert!(engine.grant(1));
            let _ = engine.finish_events();
        });
        assert!(client.lock(tag()).unwrap().carve(2, 1).is_some());
        let waits = !client.has_stock();
        granting.join().unwrap();
        assert!(!waits || client.has_events(), "it waits for buffers that are there");
    });
}

#[test]
fn a_wish_to_hear_of_acknowledgements_or_the_level_is_seen() {
    loom::model(|| {
        let region = region();
        let (_, mut area, _, endpoint) = sides(&region);
        let acknowledging = thread::spawn(move || {
            area.set_acked(5);
            EngineLane::begin_events();
            area.is_wish_due(5, false)
        });
        let levels = endpoint.wish(|levels| (levels.acked < 5).then_some(3));
        let told = acknowledging.join().unwrap();
        assert!(levels.acked == 5 || told, "it waits for an event that nobody makes");
    });
}

#[test]
fn a_wish_for_less_never_undoes_one_for_more() {
    loom::model(|| {
        let region = region();
        let (_, mut area, _, endpoint) = sides(&region);
        let other = ClientEndpoint::new(region.clone(), 0).unwrap();
        let acknowledging = thread::spawn(move || {
            let mut told = [false; 2];
            for acked in 1..=2 {
                area.set_acked(acked);
                EngineLane::begin_events();
                told[acked as usize - 1] = area.is_wish_due(acked, false);
            }
            told
        });
        let wishes =
            |most| move |levels: &Levels| (levels.acked < most).then_some(levels.acked + 1);
        let less = thread::spawn(move || other.wish(wishes(1)).acked);
        let more = endpoint.wish(wishes(2)).acked;
        let less = less.join().unwrap();
        let told = acknowledging.join().unwrap();
        // A writer that went to sleep is told of the next level; the last one wakes both.
        assert!(less >= 1 || told.contains(&true), "the first sleeps for ever");
        assert!(more >= 2 || told[more as usize..].contains(&true), "the second sleeps for ever");
    });
}

#[test]
fn a_wanted_doorbell_is_rung_or_the_progress_is_seen() {
    loom::model(|| {
        let region = region();
        let (_, mut area, _, endpoint) = sides(&region);
        area.set_readable(1);
        let reading = thread::spawn(move || endpoint.lock_receive(tag()).unwrap().advance(1));
        area.set_wanted(1);
        EngineLane::begin_events();
        let seen = area.consumed(0, 1).unwrap();
        let rings = reading.join().unwrap();
        assert!(seen == 1 || rings, "the engine waits for a doorbell that nobody rings");
    });
}

#[test]
fn a_lock_lets_in_one_at_a_time() {
    loom::model(|| {
        let region = region();
        let word = region.layout().endpoint(0) + crate::layout::endpoint::SEND_LOCK;
        let counter = Arc::new(loom::cell::UnsafeCell::new(0));
        let add = move |region: &Region, counter: &loom::cell::UnsafeCell<u32>, thread: u32| {
            let held = acquire(region, word, Tag::new(TAG, thread)).unwrap();
            // SAFETY: loom fails the model if the lock lets anybody else in.
            counter.with_mut(|counter| unsafe { *counter += 1 });
            drop(held);
        };
        let other = {
            let (region, counter) = (region.clone(), counter.clone());
            thread::spawn(move || add(&region, &counter, 2))
        };
        add(&region, &counter, 1);
        other.join().unwrap();
        // SAFETY: the other thread has ended.
        counter.with(|counter| assert_eq!(unsafe { *counter }, 2));
    });
}
