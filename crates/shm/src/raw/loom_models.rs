//! Every interleaving of the two sides of a pair of rings of two messages each. Bytes are words
//! that are read and written Relaxed, so that what is not published shows as an old value.

use std::sync::Arc;

use loom::thread;

use super::*;

const SIZES: RingSizes = RingSizes { up: 1024, down: 1024 };

fn rings() -> Arc<Rings> {
    Arc::new(Rings::private(SIZES).unwrap())
}

#[test]
fn frames_of_up_come_whole_and_in_order() {
    loom::model(|| {
        let rings = rings();
        let mut up = EngineUp::new(rings.clone());
        let engine = thread::spawn(move || {
            for number in 1..=2u8 {
                assert!(up.push(UpInfo { port: 1, ..UpInfo::default() }, &[number; 16]).unwrap());
                assert!(up.publish());
            }
        });
        let mut reader = ClientUp::new(rings);
        let mut seen = 0;
        for _ in 0..3 {
            while let Some(received) = reader.receive().unwrap() {
                let Received::Frame(frame) = received else { panic!("nothing was lost") };
                let mut bytes = [0; 16];
                reader.read(&frame, &mut bytes);
                seen += 1;
                assert_eq!(bytes, [seen; 16]);
            }
            assert!(!reader.release());
        }
        engine.join().unwrap();
        while let Some(_) = reader.receive().unwrap() {
            seen += 1;
        }
        assert_eq!(seen, 2);
    });
}

#[test]
fn frames_of_down_come_whole_and_in_order() {
    loom::model(|| {
        let rings = rings();
        let mut writer = ClientDown::new(rings.clone()).unwrap();
        let client = thread::spawn(move || {
            for number in 1..=2u8 {
                let at = writer.reserve(0, None, 16).unwrap();
                writer.write(at, &[number; 16]);
                assert!(writer.commit());
            }
        });
        let mut down = EngineDown::new(rings).unwrap();
        let mut seen = 0;
        let mut take = || {
            while let Taken::Frame(frame) = down.peek().unwrap() {
                let mut bytes = [0; 16];
                down.read(&frame, &mut bytes);
                seen += 1;
                assert_eq!(bytes, [seen; 16]);
                down.take(&frame);
                down.finish(frame.end);
                down.publish();
            }
            seen
        };
        take();
        take();
        client.join().unwrap();
        assert_eq!(take(), 2);
    });
}

/// The engine writes where the client has read only after the client has released it.
#[test]
fn room_of_up_is_written_again_after_it_was_read() {
    loom::model(|| {
        let rings = Arc::new(Rings::private(RingSizes { up: 512, down: 0 }).unwrap());
        let mut up = EngineUp::new(rings.clone());
        let mut push = move |number: u8| {
            let pushed = up.push(UpInfo { port: 1, ..UpInfo::default() }, &[number; 16]).unwrap();
            up.publish();
            pushed
        };
        let full = (1..).find(|number| !push(*number)).unwrap();
        let mut reader = ClientUp::new(rings);
        let engine = thread::spawn(move || push(full));
        for number in 1..full {
            let Some(Received::Frame(frame)) = reader.receive().unwrap() else { panic!("lost") };
            let mut bytes = [0; 16];
            reader.read(&frame, &mut bytes);
            assert_eq!(bytes, [number; 16]);
            if number == 2 {
                let _ = reader.release();
            }
        }
        let is_pushed = engine.join().unwrap();
        let told = reader.receive().unwrap();
        assert_eq!(told.is_some(), is_pushed);
    });
}

/// Who has lost a frame is told of it although none follows: the engine sees the room, or is rung for.
#[test]
fn who_has_lost_frames_is_told() {
    loom::model(|| {
        let rings = Arc::new(Rings::private(RingSizes { up: 512, down: 0 }).unwrap());
        let mut up = EngineUp::new(rings.clone());
        let mut reader = ClientUp::new(rings);
        for _ in 0..8 {
            assert!(up.push(UpInfo { port: 1, ..UpInfo::default() }, &[9; 16]).unwrap());
            up.publish();
        }
        let engine = thread::spawn(move || {
            let is_pushed = up.push(UpInfo { port: 1, ..UpInfo::default() }, &[9; 16]).unwrap();
            up.publish();
            (up, is_pushed)
        });
        let mut told = 0;
        let mut read = |reader: &mut ClientUp| {
            while let Some(received) = reader.receive().unwrap() {
                told += u64::from(matches!(received, Received::Lost(1)));
            }
            (reader.release(), told)
        };
        let (mut rings_for_it, _) = read(&mut reader);
        let (mut up, is_pushed) = engine.join().unwrap();
        rings_for_it |= read(&mut reader).0;
        if rings_for_it && up.tell_lost().unwrap() {
            assert!(up.publish());
        }
        let (_, told) = read(&mut reader);
        assert_eq!(told == 1, !is_pushed);
    });
}

/// The wish for room is seen by the engine, or the room by the client.
#[test]
fn who_waits_for_room_sees_it_or_is_told() {
    loom::model(|| {
        let rings = rings();
        let mut writer = ClientDown::new(rings.clone()).unwrap();
        while let Ok(at) = writer.reserve(0, None, 120) {
            writer.write(at, &[9; 120]);
        }
        assert!(writer.commit());
        let mut down = EngineDown::new(rings).unwrap();
        let engine = thread::spawn(move || {
            let mut told = false;
            while let Taken::Frame(frame) = down.peek().unwrap() {
                let mut bytes = [0; 120];
                assert_eq!(down.read(&frame, &mut bytes), 120);
                assert_eq!(bytes, [9; 120]);
                down.take(&frame);
                down.finish(frame.end);
            }
            told |= down.publish();
            told
        });
        let has_room = writer.want(120);
        let told = engine.join().unwrap();
        assert!(has_room || told);
    });
}
