//! An engine that has run out of something goes on, and says what it lacks.

use std::path::Path;

use lab::observer::Observer;
use lab::{Side, Task};
use outboard_tests::joined::{Joined, PATIENCE, SERVER, eventually};
use outboard_tests::turn;
use outboard_tests::world::PYTHON;

/// How many the engine may have, of which it needs some itself.
const DESCRIPTORS: usize = 96;

/// Listens at a port, and for every file that appears at the next.
const LISTENS: &str = "
import os, socket, sys, time
held = []
for turn in range(3):
    while turn and not os.path.exists(sys.argv[2] + str(turn)):
        time.sleep(0.01)
    held.append(socket.create_server((sys.argv[1], 7000 + turn)))
    print('listens', turn, flush=True)
held[0].accept()
";

/// Connects until the engine says that it has no descriptors left.
fn fill(socket: &Path, held: &mut Vec<Observer>) {
    let refused = loop {
        match Observer::connect(socket) {
            Ok(observer) => held.push(observer),
            Err(failure) => break failure.to_string(),
        }
        assert!(held.len() < DESCRIPTORS, "there is a limit");
    };
    assert!(refused.contains("no descriptors left"), "{refused}");
}

#[test]
fn an_engine_without_free_descriptors_refuses_in_words_and_serves_who_is_attached() {
    let name = "an_engine_without_free_descriptors_refuses_in_words_and_serves_who_is_attached";
    let Some(_turn) = turn(name) else { return };
    let mut joined = Joined::without_engine();
    let engine = Task::new("prlimit")
        .arg(format!("--nofile={DESCRIPTORS}:{DESCRIPTORS}"))
        .arg(&joined.executable);
    let port = format!("xdp:{},ports=16", joined.link.end(Side::B));
    let arguments = ["--port", &port, "--poll", "adaptive"];
    let engine = joined.lab.start_engine(engine, Side::B, &joined.socket, &arguments);
    joined.engine = Some(engine.expect("an engine"));
    let mut watch = Observer::connect(&joined.socket).expect("an engine");
    let mark = joined.lab.scratch().join("go");
    let go = |turn: u32| std::fs::write(format!("{}{turn}", mark.display()), "").expect("a file");
    let server = joined.accelerated(Task::new(PYTHON).args(["-c", LISTENS, SERVER]).arg(&mark));
    let mut server = joined.start_ready(Side::B, server, |one| one.output().contains("listens 0"));
    let mut serves = |port: u16| {
        let sockets = watch.sockets().expect("the engine answers");
        sockets.iter().any(|one| one.local.port() == port && one.remote.is_none())
    };
    eventually("the first listener", || serves(7000));
    // Whoever else comes takes what is left.
    let mut held = Vec::new();
    fill(&joined.socket, &mut held);
    // What a program shows is looked at and closed again: there is a number for that.
    go(1);
    server.until(PATIENCE, |one| one.output().contains("listens 1")).expect("it listens");
    eventually("a listener that comes now", || serves(7001));
    // Those that were on their way to be closed by a thread of their own may be free by now, but what
    // the program showed gave none to others.
    fill(&joined.socket, &mut held);
    let stats = || Observer::connect(&joined.socket).and_then(|mut one| one.stats());
    drop(held);
    eventually("descriptors for others", || stats().is_ok());
    go(2);
    eventually("one more listener", || serves(7002));
    assert_eq!(joined.counter("descriptors_exhausted"), 0);
    assert!(joined.counter("control_refused") > 0);
}

/// An engine's words when it cannot start, of which there is one line and no trace of the code.
fn refusal(command: &mut std::process::Command) -> String {
    let ended = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

/// It was ended by the allocator in the middle of its start.
#[test]
fn an_engine_that_has_too_little_address_space_says_so() {
    let Some(_turn) = turn("an_engine_that_has_too_little_address_space_says_so") else { return };
    let executable = outboard_tests::world::executable().expect("it is built");
    let mut engine = std::process::Command::new("prlimit");
    engine.arg("--as=62914560").arg(executable).args([
        "engine",
        "--port",
        "tap:limits0,addr=10.0.0.1/24",
    ]);
    let said = refusal(&mut engine);
    assert!(said.contains("MiB of address space"), "{said}");
}

/// The port was open by then, and what it takes from the kernel taken.
#[test]
fn an_engine_on_a_core_that_is_not_there_opens_no_port() {
    let Some(_turn) = turn("an_engine_on_a_core_that_is_not_there_opens_no_port") else { return };
    let executable = outboard_tests::world::executable().expect("it is built");
    let mut engine = std::process::Command::new(executable);
    // A port that cannot be opened would be named, were it looked at first.
    engine.args(["engine", "--core", "1000", "--port", "packet:nowhere,addr=10.0.0.1/24"]);
    let said = refusal(&mut engine);
    assert!(said.contains("pinning the worker to core 1000"), "{said}");
}
