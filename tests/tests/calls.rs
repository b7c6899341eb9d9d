//! System calls of servers with a connection for each request, counted by strace.

use std::collections::BTreeMap;

use lab::{Program, Side, Task};
use outboard_tests::joined::{Joined, PATIENCE, SERVER};
use outboard_tests::turn;

const CONNECTIONS: u64 = 1000;

/// Calls that the server makes during the load, by name.
fn traced(joined: &Joined, server: &Program, load: &str) -> BTreeMap<String, u64> {
    let file = joined.lab.scratch().join("calls");
    let strace = Task::words("strace -f -c -U name,calls -o").arg(&file);
    let strace = strace.args(["-p", &server.pid().to_string()]);
    let attached = |strace: &Program| strace.errors().contains("attached");
    let strace = joined.start_ready(Side::B, strace, attached);
    let before = joined.counter("accepts");
    joined.run(Side::A, Task::words(load)).success().expect("the load");
    let accepted = joined.counter("accepts") - before;
    assert!(accepted >= CONNECTIONS, "{accepted} connections through the engine");
    joined.says(Side::B, &format!("kill -INT {}", strace.pid()));
    // It ends by the signal.
    strace.wait(PATIENCE).expect("it writes its counts");
    let text = std::fs::read_to_string(&file).expect("counts");
    let call = |line: &str| {
        let (name, count) = line.trim().split_once(' ')?;
        Some((name.to_owned(), count.trim().parse().ok()?))
    };
    let counts: BTreeMap<String, u64> = text.lines().filter_map(call).collect();
    assert!(counts.contains_key("close"), "{text}");
    counts
}

/// For one connection, in tenths.
#[track_caller]
fn at_most(counts: &BTreeMap<String, u64>, names: &[&str], tenths: u64) {
    let of = |name: &&str| counts.get(*name).copied().unwrap_or(0);
    let count: u64 = names.iter().map(of).sum();
    assert!(count * 10 <= tenths * CONNECTIONS, "{names:?}: {count} calls: {counts:?}");
}

/// A connection costs a descriptor, which is made and closed, and no call that sets it up. How often the
/// server waits, and wakes its engine, depends on how busy both are.
#[test]
fn a_connection_for_each_request_costs_a_server_few_system_calls() {
    let test = "a_connection_for_each_request_costs_a_server_few_system_calls";
    let Some(_turn) = turn(test) else { return };
    let joined = Joined::start();
    let set_up = ["epoll_ctl", "setsockopt", "getsockopt", "getsockname", "getpeername", "socket"];
    let redis = joined.redis();
    let load = format!("redis-benchmark -h {SERVER} -k 0 -n {CONNECTIONS} -c 10 -t ping_mbulk -q");
    let counts = traced(&joined, &redis, &load);
    at_most(&counts, &set_up, 1);
    at_most(&counts, &["fcntl"], 11);
    at_most(&counts, &["close"], 12);
    // Two sleeps: for the connection, and for its request. How long it waits for an engine that has no
    // processor is left out.
    let waits = ["sched_yield", "nanosleep", "ppoll", "total"];
    let all = counts.keys().map(String::as_str).filter(|name| !waits.contains(name));
    let all: Vec<&str> = all.collect();
    at_most(&counts, &all, 200);
}
