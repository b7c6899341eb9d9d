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
