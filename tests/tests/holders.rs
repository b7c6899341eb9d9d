//! Processes that share connections are killed at any moment: connections that they did not hold go on, those
//! that nobody holds any more end, and the engine keeps nothing.

use lab::{Side, Task};
use outboard_tests::joined::{Joined, PATIENCE, SERVER};
use outboard_tests::sharing::Held;
use outboard_tests::turn;
use outboard_tests::world::{PYTHON, script, scripted};

const PORT: &str = "7060";

fn endure(kills: u32) {
    let joined = Joined::start();
    let held = Held::before(&joined);
    let pid = joined.lab.scratch().join("master");
    let server = script(&joined.lab, "holders.py");
    let again = format!(
        "while :; do {PYTHON} {} {SERVER} {PORT} {} || :; done",
        server.display(),
        pid.display()
    );
    let server = joined.accelerated(Task::new("sh").args(["-c", &again]));
    let server =
        joined.start_ready(Side::B, server, |_| pid.exists() && joined.is_accelerated(7060));
    let client = scripted(&joined.lab, "holders_client.py").args([SERVER, PORT]);
    let client = client.arg(&pid).arg(kills.to_string());
    let finished = joined.lab.start(Side::A, client).expect("a client");
    let finished = finished.wait(PATIENCE + PATIENCE * kills / 100).expect("it ends");
    let said = finished.output.trim().to_owned();
    assert!(finished.status.success(), "{said}: {}", finished.errors);
    let passed = joined.counter("passed_total");
    eprintln!("{said}; {passed} connections became sockets of the kernel's");
    for name in ["listeners_left", "tickets_failed", "passes_failed", "breaches", "heirs_refused"] {
        assert_eq!(joined.counter(name), 0, "{name}; {}", joined.engine().errors());
    }
    assert!(passed > 0, "{}", server.errors());
    server.stop();
    held.is_given_back(&joined).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn whoever_is_killed_only_what_nobody_holds_any_more_ends() {
    let name = "whoever_is_killed_only_what_nobody_holds_any_more_ends";
    let Some(_turn) = turn(name) else { return };
    endure(60);
}

/// The same a thousand times.
#[test]
#[ignore = "takes minutes: make holder-kills"]
fn holder_kills() {
    let Some(_turn) = turn("holder_kills") else { return };
    let kills = std::env::var("HOLDER_KILLS").ok().and_then(|text| text.parse().ok());
    endure(kills.unwrap_or(1000));
}
