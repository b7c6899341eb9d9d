//! Faults counted over many frames of a pair.

use super::*;
use crate::pair::{PairConfig, PairPort, pair};

/// A frame of IPv4 ethertype with a number in it.
fn frame(number: u32) -> Vec<u8> {
    let mut bytes = vec![0; 60];
    bytes[12] = 8;
    bytes[20..24].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[20..24].try_into().unwrap())
}

fn impaired(faults: &str) -> (Impaired<PairPort>, PairPort) {
    let config = PairConfig { frames_max: 100_000, ..PairConfig::default() };
    let (near, far, _) = pair(&config);
    (Impaired::new(near, faults.parse().unwrap(), 7), far)
}

fn drain(port: &mut impl Port) -> Vec<Vec<u8>> {
    let mut burst = RxBurst::new();
    let mut frames = Vec::new();
    loop {
        port.receive(&mut burst);
        if burst.handles.is_empty() {
            return frames;
        }
        frames.extend(burst.handles.iter().map(|&handle| port.frame(handle).bytes.to_vec()));
        port.release(&mut burst);
    }
}

fn send_many(port: &mut impl Port, count: u32) {
    for sent in 0..count {
        port.send(&TxMeta::default(), &frame(sent), &[]).unwrap();
        port.flush();
    }
}

#[test]
fn about_as_many_frames_are_lost_as_asked_and_the_seed_says_which() {
    let survivors = || {
        let (mut near, mut far) = impaired("loss:10%");
        send_many(&mut near, 10_000);
        drain(&mut far).iter().map(|bytes| number(bytes)).collect::<Vec<_>>()
    };
    let first = survivors();
    assert!((8_800..9_200).contains(&first.len()), "{}", first.len());
    assert!(first.is_sorted());
    assert_eq!(first, survivors());
}

#[test]
fn both_directions_are_impaired_and_dir_leaves_one_alone() {
    let (mut near, mut far) = impaired("loss:50%+dir:rx");
    send_many(&mut near, 1_000);
    assert_eq!(drain(&mut far).len(), 1_000);
    send_many(&mut far, 1_000);
    let got = drain(&mut near).len();
    assert!((400..600).contains(&got), "{got}");
    assert_eq!(near.faults()[0].lost as usize, 1_000 - got);
}

#[test]
fn a_delayed_frame_waits_for_its_time_and_names_it() {
    let (mut near, mut far) = impaired("delay:5ms");
    near.on_time(1_000);
    send_many(&mut near, 1);
    assert_eq!(near.next_deadline(), Some(5_001_000));
    near.on_time(5_000_999);
    assert!(drain(&mut far).is_empty());
    near.on_time(5_001_000);
    assert_eq!(drain(&mut far).len(), 1);
    assert_eq!(near.next_deadline(), None);
    send_many(&mut far, 1);
    assert!(drain(&mut near).is_empty());
    near.on_time(10_001_000);
    assert_eq!(drain(&mut near).len(), 1);
}

#[test]
fn a_rate_limit_spaces_frames_and_a_full_queue_loses_the_rest() {
    // 60 bytes at 480 kbit/s take a millisecond.
    let (mut near, mut far) = impaired("rate:480kbit");
    send_many(&mut near, 20_000);
    near.on_time(10_000_000);
    assert_eq!(drain(&mut far).len(), 10);
    assert_eq!(near.faults()[1].overflowed, 20_000 - HELD_FRAMES_MAX as u64);
}

#[test]
fn reordered_frames_arrive_all_and_out_of_order() {
    for faults in ["reorder:5%", "reorder:5%+delay:1ms"] {
        let (mut near, mut far) = impaired(faults);
        for sent in 0..1_000 {
            near.on_time(u64::from(sent) * 100_000);
            near.send(&TxMeta::default(), &frame(sent), &[]).unwrap();
            near.flush();
        }
        near.on_time(u64::MAX / 2);
        let mut numbers: Vec<_> = drain(&mut far).iter().map(|bytes| number(bytes)).collect();
        assert!(!numbers.is_sorted(), "{faults}");
        numbers.sort_unstable();
        assert_eq!(numbers, (0..1_000).collect::<Vec<_>>());
        assert!(near.faults()[1].reordered > 20);
    }
}

#[test]
fn duplicates_are_copies() {
    let (mut near, mut far) = impaired("dup:100%");
    send_many(&mut near, 2);
    let numbers: Vec<_> = drain(&mut far).iter().map(|bytes| number(bytes)).collect();
    assert_eq!(numbers, [0, 0, 1, 1]);
}

#[test]
fn a_corrupted_frame_has_one_wrong_bit_and_a_checksum_that_tells() {
    let (mut near, mut far) = impaired("corrupt:100%");
    let meta = TxMeta { checksum: Some((34, 6)), gso: None, header_bytes: 42 };
    let sent = frame(9);
    near.send(&meta, &sent, &[]).unwrap();
    near.flush();
    let got = drain(&mut far).remove(0);
    let mut whole = sent;
    wire::checksum::complete(&mut whole, 34, 6).unwrap();
    let wrong: u32 = got.iter().zip(&whole).map(|(a, b)| (a ^ b).count_ones()).sum();
    assert_eq!(wrong, 1);
    let mut arp = frame(1);
    arp[13] = 6;
    near.send(&TxMeta::default(), &arp, &[]).unwrap();
    near.flush();
    assert_eq!(drain(&mut far), [arp]);
}
