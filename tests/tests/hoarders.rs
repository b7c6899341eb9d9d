//! Peers that ask for much and take nothing.

use std::time::{Duration, Instant};

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

/// Both are measured twice, one after the other, as others may use the machine's cores meanwhile.
#[test]
fn a_thousand_shut_windows_leave_others_at_least_half_of_their_rate() {
    let name = "a_thousand_shut_windows_leave_others_at_least_half_of_their_rate";
    let Some(_turn) = turn(name) else { return };
    let joined = Joined::start();
    let _redis = joined.redis();
    let alone = rate(&joined).max(rate(&joined));
    let hoard = scripted(&joined.lab, "hoard.py").args([SERVER, "6379", "1000"]);
    let hoard = joined.start_ready(Side::A, hoard, |one| one.output().contains("holds"));
    let beside = rate(&joined).max(rate(&joined));
    assert!(joined.counter("accepts") >= 1000, "the engine carried them");
    assert_eq!(joined.counter("stalled_reset"), 0, "there is room for all of them");
    assert!(beside * 2.0 >= alone, "{beside} of {alone} requests a second");
    drop(hoard);
    let gone = Instant::now();
    // Once more at the end: others may have had the cores meanwhile.
    let after = loop {
        let is_last = gone.elapsed() >= Duration::from_secs(10);
        let now = rate(&joined);
        if is_last || now >= alone * 0.9 {
            break now;
        }
    };
    assert!(after >= alone * 0.9, "{after} of {alone} requests a second, ten seconds later");
    eprintln!("{alone:.0} requests a second alone, {beside:.0} beside, {after:.0} after");
}
