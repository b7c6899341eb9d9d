//! Listeners and connections that one process passes to another: by fork, exec or a message.

use std::fs;

use lab::{Program, Side, Task, listens};
use outboard_tests::joined::{Joined, PATIENCE, SERVER, eventually};
use outboard_tests::turn;
use outboard_tests::world::scripted;

/// How many of so many questions are answered, and what was said of the others.
fn ask(joined: &Joined, port: u16, count: u32) -> (u32, String) {
    let (port, count) = (port.to_string(), count.to_string());
    let asking = scripted(&joined.lab, "asking.py").args([SERVER, &port, &count]);
    let finished = joined.run(Side::A, asking);
    let said = finished.output.trim().to_owned() + &finished.errors;
    let answered = said.split(' ').next().and_then(|word| word.parse().ok());
    (answered.unwrap_or_else(|| panic!("{said}")), said)
}

/// All of `count` questions are answered.
fn all_answered(joined: &Joined, port: u16, count: u32) {
    let (answered, said) = ask(joined, port, count);
    assert_eq!(answered, count, "{said}");
}

#[test]
fn a_listener_that_is_passed_on_is_served_by_whom_it_was_passed_to() {
    let name = "a_listener_that_is_passed_on_is_served_by_whom_it_was_passed_to";
    let Some(_turn) = turn(name) else { return };
    let joined = Joined::start();
    let task = scripted(&joined.lab, "spawned.py").args([SERVER, "7100"]);
    let ready = |one: &Program| one.output().contains("serves");
    let server = joined.start_ready(Side::B, joined.accelerated(task), ready);
    eventually("the child's listener", || joined.is_accelerated(7100));
    all_answered(&joined, 7100, 20);
    // One may have come before the child first accepted.
    let accepted = joined.counter("accepts");
    assert!(accepted >= 19, "{accepted} through the engine; {}", server.errors());
}

#[test]
fn a_service_that_inetd_starts_without_the_library_has_its_listener_from_the_kernel() {
    let name = "a_service_that_inetd_starts_without_the_library_has_its_listener_from_the_kernel";
    let Some(_turn) = turn(name) else { return };
    let joined = Joined::start();
    let starts = joined.lab.scratch().join("starts");
    let program = outboard_tests::world::script(&joined.lab, "waited.py");
    let configuration = joined.lab.scratch().join("inetd.conf");
    let line = format!(
        "{SERVER}:7110 stream tcp wait root {python} python3 {} {}\n",
        program.display(),
        starts.display(),
        python = outboard_tests::world::PYTHON,
    );
    fs::write(&configuration, line).expect("a file");
    let inetd = Task::new("inetd").arg("-i").arg(&configuration);
    let inetd = joined.serve_accelerated(inetd, 7110);
    // inetd clears its environment: what it starts runs without the library. It is known when it does.
    let (first, said) = ask(&joined, 7110, 1);
    assert!(first <= 1, "{said}");
    eventually("the kernel has it", || joined.counter("listeners_left") == 1);
    all_answered(&joined, 7110, 20);
    let started = fs::read_to_string(&starts).expect("it was started").lines().count();
    // The first one came to the engine. Then, as on the kernel, one start serves those that come one after
    // the other. It ends when nobody comes for half a second, which a busy machine may make happen.
    assert!(started < 20, "{started} starts; {}", inetd.errors());
    assert_eq!(joined.counter("accepts"), 0, "{}", inetd.errors());
}

#[test]
fn a_server_without_a_relay_whose_children_serve_its_connections_goes_through_the_kernel() {
    let name =
        "a_server_without_a_relay_whose_children_serve_its_connections_goes_through_the_kernel";
    let Some(_turn) = turn(name) else { return };
    let mut joined = Joined::without_engine();
    joined.restart_engine_with("relay = false\n");
    goes_through_the_kernel(&joined);
}

/// Without the capability that the relay takes, the engine says so once and serves.
#[test]
fn an_engine_that_may_have_no_relay_says_so_and_serves() {
    let Some(_turn) = turn("an_engine_that_may_have_no_relay_says_so_and_serves") else { return };
    let mut joined = Joined::without_engine();
    let less = "setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin";
    let engine = Task::words(less).arg(&joined.executable);
    let port = format!("xdp:{},ports=64", joined.link.end(Side::B));
    let arguments = ["--poll", "adaptive", "--port", &port];
    let started = joined.lab.start_engine(engine, Side::B, &joined.socket, &arguments);
    joined.engine = Some(started.expect("an engine"));
    joined.engine_says("child processes cannot use connections of their parents");
    goes_through_the_kernel(&joined);
    let said = joined.engine().errors();
    assert_eq!(said.matches("network namespace").count(), 1, "{said}");
}

/// The first connection of a server that forks fails, and the others are the kernel's.
fn goes_through_the_kernel(joined: &Joined) {
    let mut server = joined.python("forking.py", &[SERVER, "7120"], 7120);
    let (first, said) = ask(joined, 7120, 1);
    assert!(first <= 1, "{said}");
    eventually("the kernel has it", || joined.counter("listeners_left") == 1);
    all_answered(joined, 7120, 20);
    let told = |one: &Program| one.errors().contains("child processes serve the connections");
    server.until(PATIENCE, told).expect("it says so");
    assert_eq!(joined.counter("accepts"), 1, "the others were the kernel's");
    assert!(listens(server.pid(), 7120));
}

#[test]
fn a_server_that_forks_beside_its_connections_keeps_its_listener_in_the_engine() {
    let name = "a_server_that_forks_beside_its_connections_keeps_its_listener_in_the_engine";
    let Some(_turn) = turn(name) else { return };
    let joined = Joined::start();
    let server = joined.python("aside.py", &[SERVER, "7130"], 7130);
    let (first, said) = ask(&joined, 7130, 1);
    assert_eq!(first, 0, "{said}");
    all_answered(&joined, 7130, 5);
    assert_eq!(joined.counter("accepts"), 6, "all through the engine; {}", server.errors());
    assert_eq!(joined.counter("listeners_left"), 0, "{}", server.errors());
}
