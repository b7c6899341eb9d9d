//! Frames of the message protocol: there and back, byte for byte, and whatever else bytes may be.

use outboard_wire::Malformed;
use outboard_wire::message::*;
use proptest::prelude::*;

const REMOTE: Remote = Remote {
    source: 1,
    destination: 2,
    immediate: 3,
    memory_key: 4,
    number: 5,
    length: 6,
    address: 7,
};
const EPOCHS: Epochs = Epochs {
    sender: Epoch { incarnation: 8, life: 9 },
    receiver: Epoch { incarnation: 10, life: 11 },
};

fn bodies() -> Vec<(Body, u8, usize)> {
    let whole =
        Body::Start { source: 1, destination: 2, immediate: 3, tag: 4, number: 0, length: 5 };
    let long =
        Body::Start { source: 1, destination: 2, immediate: 3, tag: 4, number: 5, length: 600 };
    let atomic = Body::Atomic { remote: REMOTE, operation: 1, data_type: 2, count: 3 };
    vec![
        (whole, flags::WHOLE | flags::TAGGED, 40),
        (long, flags::RENDEZVOUS | flags::DATA, 48),
        (Body::More { number: 1, offset: 2 }, flags::ACK_NOW, 32),
        (Body::Read(REMOTE), 0, 56),
        (Body::Write(REMOTE), flags::DATA, 56),
        (atomic, 0, 64),
        (Body::Reply { number: 1, offset: 2 }, 0, 32),
        (Body::Done { message: 1, status: 2 }, flags::WHOLE, 32),
        (Body::Grant { number: 1, offset: 2 }, 0, 32),
        (Body::Hold { message: 1, offset: 2 }, flags::REFUSED, 32),
        (Body::Go { port: 1 }, 0, 32),
        (Body::Abort { number: 1, reason: 0 }, 0, 32),
        (Body::Probe, flags::ORDERED, 24),
        (Body::Ack { newest: 1, answered: 2 }, flags::DUPLICATES, 32),
        (Body::Reset { authenticator: 1, epochs: EPOCHS }, 0, 56),
    ]
}

fn frame(flags: u8, epochs: Option<Epochs>, body: Body) -> Frame {
    Frame { flags, job: 0x0102_0304, sequence: 0x0506_0708, counter: 0x090a, epochs, body }
}

#[test]
fn every_kind_comes_back_as_it_was() {
    for (body, bits, len) in bodies() {
        for epochs in [None, Some(EPOCHS)] {
            let payload: &[u8] = match body {
                Body::Start { .. } | Body::More { .. } => b"hello",
                Body::Ack { .. } => &[0x80, 0, 0, 0, 0, 0, 0, 1],
                _ => b"",
            };
            let frame = frame(bits, epochs, body);
            let mut bytes = [0; 256];
            let header = frame.emit(&mut bytes, payload.len()).unwrap();
            assert_eq!(header, len + if epochs.is_some() { EPOCHS_LEN } else { 0 });
            assert!(header <= FRAME_HEADER_MAX);
            bytes[header..][..payload.len()].copy_from_slice(payload);
            let all = header + payload.len();
            let covered = if matches!(body, Body::Ack { .. }) { all } else { header };
            let value = seal(&mut bytes[..covered], &[7; 16], 9);
            let packet = &bytes[..all];
            let received = Frames::new(packet).next().unwrap().unwrap();
            let bits = if epochs.is_some() { bits | flags::FIRST } else { bits };
            assert_eq!(received.frame, Frame { flags: bits, ..frame });
            assert_eq!((received.payload, received.authenticator), (payload, value));
            assert!(received.verify(&[7; 16], 9));
            assert!(!received.verify(&[7; 16], 8));
            assert!(!received.verify(&[8; 16], 9));
            for short in 1..all {
                assert!(Frames::new(&packet[..short]).next().unwrap().is_err(), "{short}");
            }
        }
    }
}

#[test]
fn a_frame_is_these_bytes() {
    let start = Body::Start {
        source: 0x1112,
        destination: 0x1314,
        immediate: 0x1516_1718,
        tag: 0x191a_1b1c_1d1e_1f20,
        number: 0x2122_2324,
        length: 0x2526_2728,
    };
    let mut bytes = [0xff; 72];
    frame(flags::TAGGED, Some(EPOCHS), start).emit(&mut bytes, 3).unwrap();
    let expected = [
        &[0x11, flags::TAGGED | flags::FIRST, 0, 51][..],
        &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        &(0x11..=0x28).collect::<Vec<u8>>(),
        &[0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 9, 0, 0, 0, 11],
    ]
    .concat();
    assert_eq!(bytes.to_vec(), expected);
}

/// Against an implementation of SipHash-2-4 written from its paper.
#[test]
fn keys_are_what_they_were() {
    let key = *b"0123456789abcdef";
    let flow = flow_key(&key, &[1; 16], &[2; 16], &EPOCHS);
    assert_ne!(flow, flow_key(&key, &[2; 16], &[1; 16], &EPOCHS));
    let other = Epochs { sender: EPOCHS.receiver, receiver: EPOCHS.sender };
    assert_ne!(flow, flow_key(&key, &[1; 16], &[2; 16], &other));
    let mut header = [0x5a; 32];
    let value = authenticator(&flow, &header, 1);
    header[14..24].fill(9);
    assert_eq!(value, authenticator(&flow, &header, 1));
    header[13] ^= 1;
    assert_ne!(value, authenticator(&flow, &header, 1));
    assert_eq!(job_identifier(&key), JOB_IDENTIFIER);
    assert_eq!(u128::from_be_bytes(flow), FLOW_KEY);
    assert_eq!(value, AUTHENTICATOR);
}

const JOB_IDENTIFIER: u32 = 0x2d1a_7078;
const FLOW_KEY: u128 = 0x52a6_edac_b8c4_5f3e_f0a4_a603_84a5_aaf3;
const AUTHENTICATOR: u64 = 0x90da_d988_85cd_c88e;

#[test]
fn frames_follow_each_other_at_multiples_of_eight() {
    let mut packet = vec![0; 128];
    let more = frame(0, None, Body::More { number: 1, offset: 2 });
    more.emit(&mut packet, 3).unwrap();
    frame(0, None, Body::Probe).emit(&mut packet[40..], 0).unwrap();
    let bodies: Vec<_> = Frames::new(&packet).map(|it| it.unwrap().frame.body).collect();
    assert_eq!(bodies, [more.body, Body::Probe]);
    packet[40] = 0x2c;
    let last = Frames::new(&packet).last().unwrap();
    assert_eq!(last.unwrap_err(), Malformed::Version);
}

#[test]
fn a_whole_message_has_at_most_128_bytes() {
    let body =
        Body::Start { source: 1, destination: 2, immediate: 0, tag: 0, number: 0, length: 129 };
    let mut packet = vec![0; 256];
    let len = frame(flags::WHOLE, None, body).emit(&mut packet, 129).unwrap();
    let first = Frames::new(&packet[..len + 129]).next().unwrap();
    assert_eq!(first.unwrap_err(), Malformed::Length);
}

proptest! {
    #[test]
    fn no_bytes_are_too_strange(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0u8..16) {
        if let Some(first) = bytes.first_mut() {
            *first = VERSION << 4 | kind;
        }
        if let Some(length) = bytes.get_mut(2) {
            *length = 0;
        }
        for received in Frames::new(&bytes).flatten() {
            let mut again = [0; 512];
            let len = received.frame.emit(&mut again, received.payload.len()).unwrap();
            prop_assert!(received.header.len() >= len);
            prop_assert!(received.bitmap().count() <= 25);
            received.verify(&[1; 16], 2);
        }
    }
}
