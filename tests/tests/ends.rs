//! How the engine ends, and what that means for connections, listeners and programs: each event of
//! docs/operations.md that is about the engine's own life.

use std::time::Instant;

use lab::Side;
use outboard_tests::joined::{Joined, Keeper, PATIENCE, SERVER, eventually};
use outboard_tests::turn;
use rustix::process::Signal;

#[test]
fn a_terminated_engine_lets_connections_end_while_new_ones_go_to_the_kernel() {
    let name = "a_terminated_engine_lets_connections_end_while_new_ones_go_to_the_kernel";
    let Some(_turn) = turn(name) else { return };
    for mut joined in Joined::over_each_family() {
        let mut redis = joined.redis();
        let mut keeper = Keeper::of_redis(&joined);
        assert_eq!(joined.counter("accepts"), 1);
        joined.engine().signal(Signal::TERM);
        joined.engine_says("draining: 1 connection, 1 program attached");
        // New ones at once, through the kernel; the one that stands goes on.
        assert!(joined.answers(joined.server()), "a new connection");
        assert_eq!(joined.counter("accepts"), 1);
        assert_eq!(keeper.ask("held", 0), "ok");
        assert!(joined.engine.as_mut().is_some_and(|engine| engine.is_running()));
        // A program that begins now is served by the kernel, and says why.
        let engine = joined.engine().pid();
        let late =
            joined.accelerated(lab::Task::words(&format!("redis-cli -h {} ping", joined.client())));
        let late = joined.run(Side::B, late);
        assert!(late.errors.contains("about to end"), "{}", late.errors);
        assert!(std::path::Path::new(&format!("/proc/{engine}")).exists());
        assert_eq!(keeper.end("held"), "ok");
        let engine = joined.engine.take().expect("the engine runs");
        let ended = engine.wait(PATIENCE).and_then(|one| one.success()).expect("it ends in order");
        assert!(ended.errors.contains("all connections have ended"), "{}", ended.errors);
        assert!(!joined.socket.exists());
        assert!(redis.is_running() && joined.answers(joined.server()));
    }
}

#[test]
fn what_is_left_when_draining_is_over_is_closed_as_the_kernel_would() {
    let name = "what_is_left_when_draining_is_over_is_closed_as_the_kernel_would";
    let Some(_turn) = turn(name) else { return };
    let mut joined = Joined::without_engine();
    joined.start_engine_with(&["--drain", "1"]);
    let mut redis = joined.redis();
    let mut keeper = Keeper::of_redis(&joined);
    joined.engine().signal(Signal::TERM);
    joined.engine_says("closing the remaining ones: 1 connection");
    let engine = joined.engine.take().expect("the engine runs");
    engine.wait(PATIENCE).and_then(|one| one.success()).expect("it ends in order");
    // The end of the stream rather than a reset, or nothing at all.
    assert_eq!(keeper.ask("held", 0), "EPIPE");
    assert!(redis.is_running() && joined.answers(SERVER));
}

#[test]
fn a_second_signal_ends_the_waiting() {
    let Some(_turn) = turn("a_second_signal_ends_the_waiting") else { return };
    let mut joined = Joined::without_engine();
    joined.start_engine_with(&["--drain", "3600"]);
    let _redis = joined.redis();
    let mut keeper = Keeper::of_redis(&joined);
    joined.engine().signal(Signal::TERM);
    joined.engine_says("draining: 1 connection");
    let begin = Instant::now();
    joined.engine().signal(Signal::TERM);
    let engine = joined.engine.take().expect("the engine runs");
    engine.wait(PATIENCE).and_then(|one| one.success()).expect("it ends in order");
    assert!(begin.elapsed() < PATIENCE);
    assert_eq!(keeper.ask("held", 0), "EPIPE");
    eventually("redis on the kernel", || joined.answers(SERVER));
}
