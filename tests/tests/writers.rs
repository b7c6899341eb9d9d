//! Writers that wait for room: whoever it is that makes it, and however they wait, they go on.

use std::time::Duration;

use lab::{Side, Task};
use outboard_tests::joined::{Joined, SERVER, eventually};
use outboard_tests::world::scripted;
use outboard_tests::{load_seconds, turn};

/// Slow readers on the kernel, and an engine that has its core with its program, and with another that
/// keeps it busy: it gives way all the time.
#[test]
fn writers_with_slow_readers_finish_whatever_they_wait_by_and_whoever_has_the_core() {
    let name = "writers_with_slow_readers_finish_whatever_they_wait_by_and_whoever_has_the_core";
    let Some(_turn) = turn(name) else { return };
    for poll in ["adaptive", "busy"] {
        let mut joined = Joined::without_engine();
        joined.start_engine_on("ports=16", &["--poll", poll]);
        let server = scripted(&joined.lab, "writers.py").args(["server", SERVER, "9100"]);
        let _server = joined.serve_accelerated(server, 9100);
        let busy = Task::words("sh -c").arg("while :; do :; done");
        let _busy = joined.lab.start(Side::B, busy).expect("a program");
        let seconds = load_seconds().div_ceil(6);
        let stop = joined.lab.scratch().join("stop");
        let client = scripted(&joined.lab, "writers.py").args(["client", SERVER, "9100"]);
        let client = client.arg(seconds.to_string()).arg(&stop);
        let client = joined.lab.start(Side::A, client).expect("readers");
        let limit = Duration::from_secs(u64::from(seconds) + 300);
        let finished = client.wait(limit).and_then(|one| one.success()).expect("all arrives");
        eprintln!("{poll}: {}", finished.output.trim());
        assert!(finished.output.contains("all bytes equal"), "{}", finished.output);
        let counted = ["accepts", "wakeups", "ways_given"].map(|name| joined.counter(name));
        assert!(counted.iter().all(|&count| count > 0), "{counted:?}");
        eventually("the end of all connections", || joined.counter("endpoints") <= 1);
    }
}
