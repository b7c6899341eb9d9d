//! What programs and their connections live through: engines that come back, interfaces that go,
//! control sockets that are lost, programs that are killed, libraries of another version.

use std::fs;

use lab::nginx;
use lab::{Program, Side, Task, listens};
use outboard_tests::joined::{Joined, Keeper, PATIENCE, SERVER, eventually};
use outboard_tests::turn;
use outboard_tests::world::{PYTHON, script, scripted};
use rustix::process::Signal;

fn says(program: &mut Program, words: &str) {
    program.until(PATIENCE, |one| (one.output() + &one.errors()).contains(words)).expect(words);
}

#[test]
fn listeners_are_accelerated_again_however_their_programs_wait() {
    let Some(_turn) = turn("listeners_are_accelerated_again_however_their_programs_wait") else {
        return;
    };
    for mut joined in Joined::over_each_family() {
        let server = joined.server();
        let hows = [("blocking", 7000), ("poll", 7001), ("epoll", 7002)];
        let _servers = hows
            .map(|(how, port)| joined.python("echo.py", &[how, server, &port.to_string()], port));
        // A master that listens and workers that accept.
        let configuration =
            nginx::configure(&joined.in_url(joined.anywhere()), 8080, joined.lab.scratch())
                .expect("a file");
        let text = fs::read_to_string(&configuration).expect("the file");
        let two = text.replace("worker_processes 1;", "worker_processes 2;");
        fs::write(&configuration, two).expect("the file");
        let nginx = Task::new("nginx").arg("-c").arg(&configuration);
        let _nginx = joined.serve_accelerated(nginx, 8080);
        let fetches = |joined: &Joined| {
            let line = format!(
                "curl -s -o /dev/null -w %{{http_code}} http://{}:8080/index.html",
                joined.in_url(server)
            );
            joined.says(Side::A, &line) == "200"
        };
        let mut keeper = Keeper::start(&joined, Side::A, false);
        let mut name = 0;
        let mut reach = |port: u16| {
            name += 1;
            let name = format!("n{name}");
            assert_eq!(keeper.open(&name, server, port), "ok", "port {port}");
            assert_eq!(keeper.ask(&name, 10_000), "ok", "port {port}");
        };
        for round in 0..3 {
            for (how, port) in hows {
                eventually(how, || joined.is_accelerated(port));
                let accepts = joined.counter("accepts");
                reach(port);
                assert_eq!(joined.counter("accepts"), accepts + 1, "{how}, round {round}");
            }
            eventually("nginx", || {
                let accepts = joined.counter("accepts");
                assert!(fetches(&joined), "round {round}");
                joined.counter("accepts") > accepts
            });
            joined.engine = None; // SIGKILL
            for (_, port) in hows {
                reach(port);
            }
            assert!(fetches(&joined), "without an engine, round {round}");
            joined.start_engine();
        }
    }
}

#[test]
fn connections_outlive_an_interface_that_goes_down_and_up() {
    let Some(_turn) = turn("connections_outlive_an_interface_that_goes_down_and_up") else {
        return;
    };
    for joined in Joined::over_each_family() {
        let _redis = joined.redis();
        let b = joined.link.end(Side::B);
        let mut keeper = Keeper::of_redis(&joined);
        for _ in 0..2 {
            joined.ip(Side::B, &format!("link set {b} down"));
            let asked = keeper.begin("use", "held 0");
            joined.ip(Side::B, &format!("link set {b} up"));
            assert_eq!(keeper.outcome(asked), "ok");
        }
        let accepts = joined.counter("accepts");
        assert!(joined.answers(joined.server()));
        assert_eq!(joined.counter("accepts"), accepts + 1, "new ones are the engine's still");
    }
}

#[test]
fn an_engine_goes_on_when_its_interface_is_renamed() {
    let Some(_turn) = turn("an_engine_goes_on_when_its_interface_is_renamed") else { return };
    for joined in Joined::over_each_family() {
        let _redis = joined.redis();
        let b = joined.link.end(Side::B);
        let mut keeper = Keeper::of_redis(&joined);
        // Kernels before 6.2 rename only what is down.
        joined.ip(Side::B, &format!("link set {b} down"));
        joined.ip(Side::B, &format!("link set {b} name renamed0"));
        joined.ip(Side::B, "link set renamed0 up");
        assert_eq!(keeper.ask("held", 0), "ok");
        let accepts = joined.counter("accepts");
        assert!(joined.answers(joined.server()));
        assert_eq!(joined.counter("accepts"), accepts + 1);
    }
}

/// Removes the interface $0. A device of a bus loses its driver, and gets it back as a new one.
const REMOVE: &str = "set -e
device=/sys/class/net/$0/device
[ -e $device ] || exec ip link del $0
driver=$(readlink -f $device/driver)
device=$(basename $(readlink -f $device))
echo $device >$driver/unbind
echo $device >$driver/bind";

#[test]
fn an_engine_whose_interface_is_removed_ends_and_says_why() {
    let Some(_turn) = turn("an_engine_whose_interface_is_removed_ends_and_says_why") else {
        return;
    };
    let mut joined = Joined::start();
    let mut redis = joined.redis();
    assert!(joined.answers(SERVER));
    let b = joined.link.end(Side::B);
    joined.lab.inside(Side::B, &["sh", "-c", REMOVE, &b]).expect("it is removed");
    let engine = joined.engine.take().expect("the engine runs");
    let ended = engine.wait(PATIENCE).expect("it ends");
    assert!(!ended.status.success());
    assert!(ended.errors.contains("was removed"), "{}", ended.errors);
    assert!(!joined.socket.exists());
    // The program lives on, and is served by whatever interface the kernel has.
    assert_eq!(joined.says(Side::B, "redis-cli ping").trim(), "PONG");
    assert!(redis.is_running());
}

#[test]
fn programs_find_an_engine_whose_socket_was_removed() {
    let Some(_turn) = turn("programs_find_an_engine_whose_socket_was_removed") else { return };
    let mut joined = Joined::start();
    let _redis = joined.redis();
    fs::remove_file(&joined.socket).expect("the socket was there");
    joined.engine_says("it is back at its path");
    assert!(joined.answers(SERVER));
    assert!(joined.is_accelerated(6379), "those who were there stay");
    let _late = joined.python("echo.py", &["epoll", SERVER, "7000"], 7000);
    eventually("a program that comes now", || joined.is_accelerated(7000));
}

#[test]
fn a_program_cut_off_from_its_engine_is_served_by_the_kernel_and_comes_back() {
    let name = "a_program_cut_off_from_its_engine_is_served_by_the_kernel_and_comes_back";
    let Some(_turn) = turn(name) else { return };
    let joined = Joined::start();
    let mut server = joined.python("echo.py", &["epoll", SERVER, "7000"], 7000);
    let mut keeper = Keeper::start(&joined, Side::A, false);
    assert_eq!(keeper.open("held", SERVER, 7000), "ok");
    assert_eq!(keeper.ask("held", 1000), "ok");
    assert_eq!(joined.counter("sessions_total"), 1);
    let cut = scripted(&joined.lab, "cut.py").arg(server.pid().to_string());
    let cut = joined.run(Side::B, cut);
    assert!(cut.status.success(), "{}", cut.errors);
    let ended = || joined.counter("sessions") == 0 || joined.counter("sessions_total") == 2;
    eventually("the end of its session", ended);
    // Its connections end on both sides; new ones are served all the while.
    assert!(keeper.ask("held", 1000) != "ok");
    assert_eq!(keeper.open("new", SERVER, 7000), "ok");
    assert_eq!(keeper.ask("new", 1000), "ok");
    eventually("a second session", || {
        assert_eq!(keeper.open("next", SERVER, 7000), "ok");
        assert_eq!(keeper.ask("next", 1000), "ok");
        joined.counter("sessions_total") == 2
    });
    eventually("the end of the first", || joined.counter("sessions") == 1);
    assert!(server.is_running(), "{}", server.errors());
}

#[test]
fn a_program_may_be_killed_at_any_point() {
    let Some(_turn) = turn("a_program_may_be_killed_at_any_point") else { return };
    for joined in Joined::over_each_family() {
        let echo = Task::new(PYTHON).arg(script(&joined.lab, "echo.py"));
        let echo = echo.args(["epoll", joined.anywhere(), "7000"]);
        let mut echo = joined.lab.start(Side::A, echo).expect("a server");
        echo.until(PATIENCE, |echo| listens(echo.pid(), 7000)).expect("it listens");
        let dies = |point: &str, address: &str, port: &str| {
            let task = scripted(&joined.lab, "ends.py").args([point, address, port]);
            joined.lab.start(Side::B, joined.accelerated(task)).expect("a program")
        };
        for point in ["attach", "connect", "transfer", "close"] {
            let ended = dies(point, joined.client(), "7000").wait(PATIENCE).expect("it ends");
            let signal = std::os::unix::process::ExitStatusExt::signal(&ended.status);
            assert_eq!(signal, Some(Signal::KILL.as_raw()), "{point}: {}", ended.errors);
        }
        let mut server = dies("accept", joined.server(), "7001");
        says(&mut server, "listens");
        let mut keeper = Keeper::start(&joined, Side::A, false);
        assert_eq!(keeper.open("taken", joined.server(), 7001), "ok");
        server.wait(PATIENCE).expect("it ends");
        assert!(keeper.ask("taken", 1000) != "ok", "the peer is told");
        eventually("the return of everything", || {
            let left = ["sessions", "sessions_dying", "endpoints"].map(|name| joined.counter(name));
            let [total, free] = ["buffers_total", "buffers_free"].map(|name| joined.counter(name));
            left == [0; 3] && total == free
        });
        assert!(!joined.is_accelerated(7001));
        // The same port serves the next program at once.
        let _again = joined.python("echo.py", &["poll", joined.server(), "7001"], 7001);
        assert_eq!(keeper.open("again", joined.server(), 7001), "ok");
        assert_eq!(keeper.ask("again", 1000), "ok");
        assert!(joined.counter("accepts") >= 2);
    }
}

#[test]
fn a_program_with_a_library_of_another_version_goes_through_the_kernel_and_says_so() {
    let name = "a_program_with_a_library_of_another_version_goes_through_the_kernel_and_says_so";
    let Some(_turn) = turn(name) else { return };
    let mut joined = Joined::start();
    let mut redis = joined.redis();
    // Older and newer than the library: either way the engine refuses, in the same words.
    for contract in ["1", "4000"] {
        eventually("acceleration", || {
            assert!(joined.answers(SERVER));
            joined.is_accelerated(6379)
        });
        joined.engine = None;
        let _ = fs::remove_file(&joined.socket);
        let reason = format!("the engine speaks contract {contract}; install those of one release");
        let other = scripted(&joined.lab, "versions.py").arg(&joined.socket);
        let mut other = joined.lab.start(Side::B, other.args([contract, &reason])).expect("it");
        says(&mut other, "ready");
        says(&mut redis, &format!("(contract {contract}) refused: {reason}"));
        assert!(joined.answers(SERVER));
        drop(other);
        // One of the right version is used as soon as it is there.
        joined.start_engine();
    }
}
