//! A host that has the job's key and means harm: `driver` turns any bytes into its frames.

#[path = "hostile/driver.rs"]
mod driver;

use proptest::prelude::*;

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
