//! What happens when something dies, and what is told to those who ask for the impossible.

use std::process::Command;

use lab::{Side, Task, listens};
use outboard_tests::joined::{PATIENCE, eventually, redis_at};
use outboard_tests::turn;
use outboard_tests::world::{Arrangement, SERVERS, SERVERS_KERNEL, World, executable, scripted};
use rustix::time::{ClockId, clock_gettime};

fn monotonic() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Asks the redis server at `address` from host A's kernel; whether it answered.
fn answers(world: &World, address: &str) -> bool {
    let task = Task::words(&format!("redis-cli -h {address} ping"));
    let finished = world.lab.start(Side::A, task).and_then(|cli| cli.wait(PATIENCE));
    finished.is_ok_and(|finished| finished.output.trim() == "PONG")
}

#[test]
fn blocked_calls_end_when_the_engine_is_killed_and_programs_live_on() {
    let Some(_turn) = turn("blocked_calls_end_when_the_engine_is_killed_and_programs_live_on")
    else {
        return;
    };
    for arrangement in [Arrangement::PacketBoth, Arrangement::XdpBoth] {
        eprintln!("{}", arrangement.name());
        let world = World::new(arrangement, None).expect("a world");
        blocked_calls_end(world);
    }
}

fn blocked_calls_end(mut world: World) {
    let address = SERVERS.to_string();
    let silent = scripted(&world.lab, "blocked.py").args(["silent", &address, "9001"]);
    let _silent = world.serve(silent, 9001).expect("a silent server");
    let mut server = world.serve(redis_at("0.0.0.0"), 6379).expect("redis");
    let fifo = world.lab.scratch().join("control");
    let holds = "mkfifo \"$0\" && exec 3>\"$0\" && exec sleep 1000";
    let holder = Task::new("sh").args(["-c", holds]).arg(&fifo);
    let mut holder = world.lab.start(Side::A, holder).expect("a program");
    holder.until(PATIENCE, |_| fifo.exists()).expect("a pipe");
    let blocked = scripted(&world.lab, "blocked.py").args(["client", &address, "9001"]).arg(&fifo);
    let mut blocked = world.start(Side::A, blocked).expect("a client");
    blocked.until(PATIENCE, |client| client.output().contains("blocked")).expect("it blocks");
    let load = Task::words(&format!("redis-benchmark -h {address} -c 50 -n 100000000 -t get -q"));
    let load = world.start(Side::A, load).expect("load");
    eventually("load", || {
        let stats = world.observe(Side::B).and_then(|mut observer| observer.stats());
        stats.is_ok_and(|stats| stats.counter("stream_rx_bytes") > 1_000_000)
    });
    let killed = monotonic();
    world.kill_engine(Side::A);
    let ended = monotonic();
    drop(holder);
    let finished = blocked.wait(PATIENCE).expect("every call returns");
    assert!(finished.output.contains("alive"), "{}{}", finished.output, finished.errors);
    // How a call ended, and when.
    let outcome = |name: &str| {
        let mut lines = finished.output.lines();
        let rest = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let (how, at) = rest.and_then(|rest| rest.rsplit_once(' ')).expect(name);
        (how.to_owned(), at.parse::<f64>().expect("a time"))
    };
    let machine = outcome("control").1 - ended;
    for (name, expected) in [
        ("connect", "ECONNRESET"),
        ("recv", "ECONNRESET"),
        ("send", "ECONNRESET"),
        ("epoll", "EPOLLERR|EPOLLHUP"),
        ("poll", "EPOLLERR|EPOLLHUP"),
        ("select", "[1, 0, 0]"),
    ] {
        let (how, at) = outcome(name);
        assert_eq!(how, expected, "{name}: {}", finished.output);
        let late = at - killed;
        assert!(
            late < 0.1 + machine,
            "{name} returned after {late:.3} s, {machine:.3} the machine's"
        );
    }
    drop(load);
    // Now the servers' engine: redis lives on and serves through the kernel.
    world.kill_engine(Side::B);
    assert!(server.is_running(), "redis lives");
    assert!(answers(&world, &SERVERS_KERNEL.to_string()), "redis serves through the kernel");
    assert!(server.is_running(), "redis lives still: {}", server.errors());
    // And engines started again at the same sockets accelerate again.
    for side in Side::BOTH {
        world.start_engine(side).expect("a second engine");
    }
    eventually("attaching again", || {
        // Serving a connection is an occasion for redis to look for an engine.
        let _ = answers(&world, &SERVERS_KERNEL.to_string());
        let sockets = world.observe(Side::B).and_then(|mut observer| observer.sockets());
        sockets.is_ok_and(|all| all.iter().any(|socket| socket.local.port() == 6379))
    });
    let task = Task::words(&format!("redis-cli -h {address} ping"));
    let pong = world.start(Side::A, task).and_then(|cli| cli.wait(PATIENCE)).expect("an answer");
    assert_eq!(pong.output.trim(), "PONG", "{}", pong.errors);
}

#[test]
fn a_killed_programs_connections_end_and_its_memory_comes_back() {
    let Some(_turn) = turn("a_killed_programs_connections_end_and_its_memory_comes_back") else {
        return;
    };
    let world = World::new(Arrangement::TapServers, None).expect("a world");
    let stats = || world.observe(Side::B).and_then(|mut observer| observer.stats()).expect("stats");
    let server = world.serve(redis_at(&SERVERS.to_string()), 6379).expect("redis");
    let load = format!("redis-benchmark -h {SERVERS} -c 50 -n 100000000 -t set -d 10000 -P 4 -q");
    let load = world.lab.start(Side::A, Task::words(&load)).expect("load");
    eventually("load", || stats().counter("stream_rx_bytes") > 1_000_000);
    drop(server); // with SIGKILL
    let peer = load.wait(PATIENCE).expect("the peer sees the end");
    assert!(!peer.status.success() || !peer.errors.is_empty(), "{}", peer.output);
    eventually("the session's end", || {
        let stats = stats();
        let left = ["sessions", "sessions_dying", "endpoints"].map(|name| stats.counter(name));
        let buffers = [stats.counter("buffers_total"), stats.counter("buffers_free")];
        left == [0; 3] && buffers[0] == buffers[1]
    });
    // The same port serves the next program at once.
    let _again = world.serve(redis_at(&SERVERS.to_string()), 6379).expect("redis again");
    assert!(answers(&world, &SERVERS.to_string()));
}

#[test]
fn an_idle_engine_uses_under_one_percent_of_a_core() {
    let Some(_turn) = turn("an_idle_engine_uses_under_one_percent_of_a_core") else { return };
    let world = World::new(Arrangement::TapServers, None).expect("a world");
    let _server = world.serve(redis_at(&SERVERS.to_string()), 6379).expect("redis");
    assert!(answers(&world, &SERVERS.to_string()));
    let begin = (monotonic(), world.engine(Side::B).cpu_time());
    let pause = world.lab.start(Side::A, Task::words("sleep 5")).expect("sleep");
    pause.wait(PATIENCE).expect("it ends");
    let used = world.engine(Side::B).cpu_time().saturating_sub(begin.1).as_secs_f64();
    let share = used / (monotonic() - begin.0);
    assert!(share < 0.01, "{:.2}% of a core", share * 100.0);
}

#[test]
fn a_private_engine_ends_with_its_program_whose_status_is_passed_on() {
    let Some(_turn) = turn("a_private_engine_ends_with_its_program_whose_status_is_passed_on")
    else {
        return;
    };
    let world = World::new(Arrangement::TapServers, None).expect("a world");
    let socket = world.lab.scratch().join("private.sock");
    let port = format!("tap:{}p,addr=10.80.0.2/24", world.lab.stem());
    let task =
        Task::new(world.executable()).args(["run", "--port", &port, "--socket"]).arg(&socket);
    let task = task.args(["--", "sh", "-c", "test -S $OUTBOARD_SOCKET && exit 7"]);
    let finished = world.lab.start(Side::B, task).and_then(|run| run.wait(PATIENCE)).expect("runs");
    assert_eq!(finished.status.code(), Some(7), "{}{}", finished.output, finished.errors);
    eventually("the private engine's end", || !socket.exists());
}

#[test]
fn a_listener_is_reachable_through_engine_and_kernel_alike() {
    let Some(_turn) = turn("a_listener_is_reachable_through_engine_and_kernel_alike") else {
        return;
    };
    let world = World::new(Arrangement::TapServers, None).expect("a world");
    let server = world.serve(redis_at("0.0.0.0"), 6379).expect("redis");
    assert!(listens(server.pid(), 6379));
    assert!(answers(&world, &SERVERS.to_string()), "through the engine");
    assert!(answers(&world, &SERVERS_KERNEL.to_string()), "through the kernel");
}

#[test]
fn the_impossible_is_refused_with_a_sentence() {
    let Some(_turn) = turn("the_impossible_is_refused_with_a_sentence") else { return };
    let outboard = executable().expect("built");
    let socket = std::env::temp_dir().join(format!("outboard-refusal-{}.sock", std::process::id()));
    let refusals: [(&[&str], &str); 8] = [
        (&["engine"], "has no port"),
        (&["engine", "--colour"], "--colour"),
        (&["engine", "--port", "tip:x,addr=10.0.0.2/24"], "tip"),
        (&["engine", "--port", "packet:absent0,addr=10.0.0.2/24"], "absent0"),
        (&["engine", "--port", "tap:ob0,addr=10.0.0.2/99"], "99"),
        (&["engine", "--port", "tap:ob0,addr=10.0.0.2/24", "--core", "4096"], "core"),
        (&["stats"], "no engine answers"),
        (&["check-config", "/nonexistent.toml"], "/nonexistent.toml"),
    ];
    for (arguments, expected) in refusals {
        let mut command = Command::new(&outboard);
        command.args(arguments).env("OUTBOARD_SOCKET", &socket);
        let output = command.output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?} succeeded");
        assert!(said.contains(expected), "{arguments:?} said {said}");
        assert!(!said.contains("panicked"), "{arguments:?} said {said}");
    }
}

#[test]
fn a_reader_that_has_gone_away_is_no_error() {
    let Some(_turn) = turn("a_reader_that_has_gone_away_is_no_error") else { return };
    for line in ["doctor", "doctor --json"] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = Command::new(executable().expect("built"));
        let output = command.args(line.split(' ')).stdout(writer).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !said.contains("panicked"), "{line}: {said}");
    }
}

#[test]
fn a_capability_that_is_missing_is_named_by_engine_and_run() {
    let Some(_turn) = turn("a_capability_that_is_missing_is_named_by_engine_and_run") else {
        return;
    };
    let outboard = executable().expect("built");
    let socket = std::env::temp_dir().join(format!("outboard-caps-{}.sock", std::process::id()));
    // In a network namespace of its own, so that nothing is left behind.
    let script = "ip link add obp0 type veth peer name obp1 && \
        exec setpriv --bounding-set=-$1 --inh-caps=-$1 \"$0\" $2 --socket \"$4\" --port $3 $5";
    let lacks = |capability: &str, port: &str, expected: &str| {
        for (verb, program) in [("engine", ""), ("run", "-- true")] {
            let output = Command::new("unshare")
                .args(["--net", "sh", "-c", script])
                .arg(&outboard)
                .args([capability, verb, port])
                .arg(&socket)
                .arg(program)
                .output()
                .expect("unshare runs");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success(), "{verb} {port} without {capability}: {said}");
            assert!(said.contains(expected), "{verb} {port} without {capability}: {said}");
            assert!(said.contains("run as root"), "{verb} {port} without {capability}: {said}");
        }
    };
    lacks("net_admin", "tap:obp2,addr=10.0.0.2/24", "CAP_NET_ADMIN is missing");
    lacks("net_admin", "packet:obp0,addr=10.0.0.2/24", "CAP_NET_ADMIN is missing");
    lacks("net_raw", "packet:obp0,addr=10.0.0.2/24", "CAP_NET_RAW is missing");
}
