//! Peers that ask for much and take nothing.

use lab::{Side, Task};
use outboard_tests::joined::{Joined, SERVER};
use outboard_tests::turn;
use outboard_tests::world::scripted;

/// Requests a second of a benchmark on host A.
fn rate(joined: &Joined) -> f64 {
    let words = format!("redis-benchmark -h {SERVER} -t get -n 10000 -c 20 -q");
    let finished = joined.run(Side::A, Task::words(&words));
    // Progress is told in the same line, between carriage returns.
    let last = finished.output.rsplit('\r').find_map(|line| {
        let rest = line.trim().strip_prefix("GET: ")?;
        rest.split_once(" requests per second")?.0.parse().ok()
    });
    last.unwrap_or_else(|| panic!("no rate in {:?} {:?}", finished.output, finished.errors))
}

/// The best of several rates, measured until `wanted` is reached: others may use the machine's cores meanwhile.
fn best_rate(joined: &Joined, wanted: f64) -> f64 {
    let mut best = 0.0;
    for _ in 0..6 {
        best = rate(joined).max(best);
        if best >= wanted {
            break;
        }
    }
    best
}

#[test]
fn a_thousand_shut_windows_leave_others_at_least_half_of_their_rate() {
    let name = "a_thousand_shut_windows_leave_others_at_least_half_of_their_rate";
    let Some(_turn) = turn(name) else { return };
    let joined = Joined::start();
    let _redis = joined.redis();
    let alone = rate(&joined).max(rate(&joined));
    let hoard = scripted(&joined.lab, "hoard.py").args([SERVER, "6379", "1000"]);
    let hoard = joined.start_ready(Side::A, hoard, |one| one.output().contains("holds"));
    let beside = best_rate(&joined, alone / 2.0);
    assert!(joined.counter("accepts") >= 1000, "the engine carried them");
    assert_eq!(joined.counter("stalled_reset"), 0, "there is room for all of them");
    assert!(beside >= alone / 2.0, "{beside} of {alone} requests a second");
    drop(hoard);
    let after = best_rate(&joined, alone * 0.9);
    eprintln!("{alone:.0} requests a second alone, {beside:.0} beside, {after:.0} after");
    // What the peers held would leave next to nothing; a busy machine leaves more than half.
    assert!(after >= alone / 2.0, "{after} of {alone} requests a second when they are gone");
}
