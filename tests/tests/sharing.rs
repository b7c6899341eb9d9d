//! Programs whose processes share connections, under load.

use outboard_tests::joined::Joined;
use outboard_tests::sharing::{self, Sharer};
use outboard_tests::{cases, program_seconds, turn};

fn holds(test: &str, name: &str) {
    let Some(_turn) = turn(test) else { return };
    let joined = Joined::start();
    cases::judge(&[Sharer::named(name).run(&joined, 1)]);
}

#[test]
fn postgresql_serves_its_clients_from_children() {
    holds("postgresql_serves_its_clients_from_children", "PostgreSQL");
}

#[test]
fn sshd_serves_logins_and_files_from_its_sandbox() {
    holds("sshd_serves_logins_and_files_from_its_sandbox", "sshd with scp");
}

#[test]
fn rsync_serves_trees_of_files_from_children() {
    holds("rsync_serves_trees_of_files_from_children", "rsync daemon");
}

/// Every program for `$PROGRAM_SECONDS`, one after the other on one engine.
#[test]
#[ignore = "takes minutes: make programs"]
fn programs() {
    let Some(_turn) = turn("programs") else { return };
    let joined = Joined::start();
    let only = std::env::var("OUTBOARD_TEST_ONLY").ok();
    let chosen = |sharer: &&Sharer| only.as_ref().is_none_or(|only| sharer.name.contains(&**only));
    let mut outcomes = Vec::new();
    for sharer in sharing::ALL.iter().filter(chosen) {
        let outcome = sharer.run(&joined, program_seconds());
        eprintln!("{}: {:?}", outcome.name, outcome.result);
        outcomes.push(outcome);
    }
    cases::judge(&outcomes);
}
