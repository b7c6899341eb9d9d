//! A host that has the job's key and means harm: `driver` turns any bytes into its frames.

#[path = "hostile/driver.rs"]
mod driver;

use outboard_stack::message::*;
use proptest::prelude::*;
use wire::message::{Body, Epoch, Epochs, Frame, flow_key, job_identifier, seal};

use crate::net::{Heap, KEY, ROOM, options};

/// Bytes of a generator that starts at `seed` (splitmix64).
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) as u8
    };
    (0..len).map(|_| next()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_frame_of_a_hostile_member_breaks_the_core(seed in any::<u64>(), len in 0usize..4000) {
        driver::run(&bytes(seed, len));
    }
}

/// Each ABORT is answered; a host that acknowledges no answer must not make the core keep them all.
#[test]
fn answers_to_aborts_of_unknown_messages_are_bounded() {
    let mut core = Core::new(CoreConfig { incarnation: 1_000, hosts: 1, seed: [5, 6] });
    let path = PathAddresses { local: [1; 16], remote: [2; 16] };
    let host = core.add_host(path, ROOM).unwrap();
    core.open(1, options(9)).unwrap();
    let sender = Epoch { incarnation: 5, life: 1 };
    let epochs = Epochs { sender, receiver: Epoch::UNKNOWN };
    let key = flow_key(&KEY, &path.remote, &path.local, &epochs);
    let (mut heap, mut out) = (Heap::default(), vec![0; 2048]);
    let (mut taken, mut frame) = (0, [0; 128]);
    while core.counters().drop_no_record == 0 {
        assert!(taken < 30_000, "{:?}", core.counters());
        let header = Frame {
            flags: 0,
            job: job_identifier(&KEY),
            sequence: taken,
            counter: 0,
            epochs: Some(epochs),
            body: Body::Abort { number: 77, reason: 0 },
        };
        let len = header.emit(&mut frame, 0).unwrap();
        seal(&mut frame[..len], &key, 0);
        core.on_frame(1, host, &frame[..len], &mut heap);
        while core.poll_transmit(1, &mut out, &mut heap).is_some() {}
        taken += 1;
    }
    // The bound is not so low that it stops a host that acknowledges late.
    assert!(taken > 10_000, "only {taken} were taken");
}
