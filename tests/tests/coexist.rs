//! One address, two stacks: the kernel's services and accelerated ones run side by side, each under
//! load, each with its content compared, and each carried by the one that should carry it.

use std::collections::BTreeMap;
use std::time::Duration;

use lab::failure::{Failure, Result};
use lab::{Finished, Program, Side, Task, listens};
use outboard_tests::cases::{self, Outcome, file_to_fetch, last_line};
use outboard_tests::joined::{CLIENT, Joined, SERVER};
use outboard_tests::world::{PYTHON, scripted};
use outboard_tests::{soak_seconds, turn};

/// The kernel's counters of host B, by protocol and name.
fn kernel_counters(joined: &Joined) -> BTreeMap<String, u64> {
    let table = joined.says(Side::B, "cat /proc/net/snmp");
    let lines: Vec<&str> = table.lines().collect();
    let mut counters = BTreeMap::new();
    for [names, values] in lines.as_chunks().0 {
        let (names, mut values) = (names.split(' '), values.split(' ').skip(1));
        let mut protocol = "";
        for name in names {
            if protocol.is_empty() {
                protocol = name;
            } else if let Some(value) = values.next().and_then(|value| value.parse().ok()) {
                counters.insert(format!("{protocol}{name}"), value);
            }
        }
    }
    counters
}

fn judge_ping(finished: &Finished) -> Result<String> {
    let line = finished.output.lines().find(|line| line.contains("packet loss"));
    match line {
        Some(line) if line.contains(" 0% packet loss") => Ok(line.to_owned()),
        _ => Err(Failure::new(line.unwrap_or("ping said nothing"), "look at the link")),
    }
}

/// The numbers in a result; 0 where there are no more.
fn counts(outcomes: &[Outcome], name: &str) -> [u64; 2] {
    let outcome = outcomes.iter().find(|outcome| outcome.name == name);
    let text = outcome.and_then(|outcome| outcome.result.as_ref().ok());
    let mut numbers = text.into_iter().flat_map(|text| text.split(' ')).flat_map(str::parse);
    [(); 2].map(|()| numbers.next().unwrap_or(0))
}

/// The number that a result begins with.
fn count(outcomes: &[Outcome], name: &str) -> u64 {
    counts(outcomes, name)[0]
}

/// Datagrams that came to a service, of those that its clients sent.
fn came(outcomes: &[Outcome], name: &str, received: u64) {
    let [asked, again] = counts(outcomes, name);
    assert!((asked..=asked + again).contains(&received), "{name}: {received} received");
}

const HTTP: &str = "http.server of Python, plain: fetches";
const SSH: &str = "sshd, plain: file transfers both ways";
const PLAIN_QUESTIONS: &str = "UDP service, plain: questions";
const PING: &str = "ping of the servers' host";
const PING_BACK: &str = "ping from the servers' host";
const REDIS: &str = "redis, accelerated: redis-benchmark";
const TRANSFERS: &str = "TCP service, accelerated: transfers both ways";
const QUESTIONS: &str = "UDP service, accelerated: questions";
const FETCHES_OUT: &str = "curl, accelerated, fetching from the clients' host";

/// Runs everything for `seconds` and gives what came of it.
fn side_by_side(seconds: u32) -> Vec<Outcome> {
    let joined = Joined::start();
    let lab = &joined.lab;
    // With a queue in front of it, a full link holds its senders up (since Linux 6.16, as cards do)
    // where it would drop what it cannot take.
    for side in Side::BOTH {
        let end = joined.link.end(side);
        let queue = ["tc", "qdisc", "replace", "dev", &end, "root", "pfifo", "limit", "1000"];
        lab.inside(side, &queue).expect("a queue");
    }
    let time = seconds.to_string();
    let folder = lab.scratch().join("served");
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("file");
    let sum = file_to_fetch(&file).expect("a file");
    let http = |address: &str| {
        Task::new(PYTHON).args(["-m", "http.server", "8000", "--bind", address, "-d"]).arg(&folder)
    };
    let python =
        |script, address: &str, port: &str| scripted(lab, script).args(["server", address, port]);
    let mut servers: Vec<Program> = vec![joined.redis()];
    servers.push(joined.serve(http(SERVER), 8000));
    let keys = lab.scratch().join("ssh");
    let sshd = scripted(lab, "sshd.sh").arg(&keys).args([SERVER, "2222"]);
    servers.push(joined.serve(sshd, 2222));
    servers.push(joined.serve_accelerated(python("transfer.py", SERVER, "9000"), 9000));
    let plain = python("datagrams.py", SERVER, "5300");
    let accelerated = joined.accelerated(python("datagrams.py", SERVER, "5301"));
    for task in [plain, accelerated] {
        servers.push(joined.start_ready(Side::B, task, |server| server.output().contains("ready")));
    }
    let listening = |server: &Program| listens(server.pid(), 8000);
    servers.push(joined.start_ready(Side::A, http(CLIENT), listening));

    let fetch = |address: &str| {
        let url = format!("http://{address}:8000/file");
        scripted(lab, "fetch.sh").args([&url, &time, &sum])
    };
    let questions =
        |port: &str| scripted(lab, "datagrams.py").args(["client", SERVER, port, &time]);
    let ping =
        |address: &str| Task::words(&format!("ping -q -i 0.2 -W 20 -c {} {address}", seconds * 5));
    let ssh = scripted(lab, "ssh.sh").arg(&keys).args([SERVER, "2222", &time]).arg(&file).arg(&sum);
    let redis = scripted(lab, "redis.sh").args([SERVER, "6379", &time, "2000"]);
    let transfer = scripted(lab, "transfer.py").args(["client", SERVER, "9000", &time, "0", "4"]);
    type Judge = fn(&Finished) -> Result<String>;
    let loads: Vec<(&'static str, Side, Task, Judge)> = vec![
        (HTTP, Side::A, fetch(SERVER), last_line),
        (SSH, Side::A, ssh, last_line),
        (PLAIN_QUESTIONS, Side::A, questions("5300"), last_line),
        (PING, Side::A, ping(SERVER), judge_ping),
        (PING_BACK, Side::B, ping(CLIENT), judge_ping),
        (REDIS, Side::A, redis, last_line),
        (TRANSFERS, Side::A, transfer, last_line),
        (QUESTIONS, Side::A, questions("5301"), last_line),
        (FETCHES_OUT, Side::B, joined.accelerated(fetch(CLIENT)), last_line),
    ];
    let kernel_before = kernel_counters(&joined);
    let engine_names =
        ["accepts", "tcp_active_opens", "datagrams_rx", "stream_rx_bytes", "stream_tx_bytes"];
    let engine_before = engine_names.map(|name| joined.counter(name));
    let running: Vec<_> = loads
        .into_iter()
        .map(|(name, side, task, judge)| (name, judge, lab.start(side, task)))
        .collect();
    let limit = Duration::from_secs(u64::from(seconds) * 3 + 120);
    let heading = format!("one address, all at once for {seconds} s");
    let mut outcomes: Vec<Outcome> = running
        .into_iter()
        .map(|(name, judge, program)| {
            let result = program
                .and_then(|program| program.wait(limit))
                .and_then(Finished::success)
                .and_then(|finished| judge(&finished));
            Outcome { name, heading: heading.clone(), result }
        })
        .collect();
    if outcomes.iter().any(|outcome| outcome.result.is_err()) {
        return outcomes;
    }
    // Who carried what: exactly what was meant for it.
    let kernel_after = kernel_counters(&joined);
    let kernel = |name: &str| kernel_after[name] - kernel_before[name];
    let engine: BTreeMap<&str, u64> = engine_names
        .iter()
        .zip(engine_before)
        .map(|(name, before)| (*name, joined.counter(name) - before))
        .collect();
    let served = count(&outcomes, HTTP) + count(&outcomes, SSH);
    // Where two segments race for a new connection the kernel counts both, as it did for 3 of 44 on a
    // busy machine. What is Outboard's would add thousands.
    let opened = kernel("Tcp:PassiveOpens");
    assert!((served..=served + 1 + served / 10).contains(&opened), "{served}, {opened} opened");
    came(&outcomes, PLAIN_QUESTIONS, kernel("Udp:InDatagrams"));
    assert_eq!(kernel("Icmp:InEchos"), u64::from(seconds) * 5);
    came(&outcomes, QUESTIONS, engine["datagrams_rx"]);
    assert_eq!(engine["tcp_active_opens"], count(&outcomes, FETCHES_OUT));
    // Each benchmark has 20 or 50 connections.
    let least = count(&outcomes, TRANSFERS) + 20 * count(&outcomes, REDIS);
    assert!(engine["accepts"] >= least, "{} accepts", engine["accepts"]);
    let carried = "carried by the servers' host".to_owned();
    outcomes.push(Outcome {
        name: "the kernel",
        heading: carried.clone(),
        result: Ok(format!(
            "{} connections accepted, {} segments received, {} sent; {} datagrams received; {} \
             echo requests answered",
            kernel("Tcp:PassiveOpens"),
            kernel("Tcp:InSegs"),
            kernel("Tcp:OutSegs"),
            kernel("Udp:InDatagrams"),
            kernel("Icmp:InEchos"),
        )),
    });
    outcomes.push(Outcome {
        name: "Outboard",
        heading: carried,
        result: Ok(format!(
            "{} connections accepted, {} opened; {:.2} GB received, {:.2} GB sent; {} datagrams \
             received",
            engine["accepts"],
            engine["tcp_active_opens"],
            engine["stream_rx_bytes"] as f64 / 1e9,
            engine["stream_tx_bytes"] as f64 / 1e9,
            engine["datagrams_rx"],
        )),
    });
    outcomes
}

#[test]
fn services_of_the_kernel_and_accelerated_ones_run_side_by_side() {
    let Some(_turn) = turn("services_of_the_kernel_and_accelerated_ones_run_side_by_side") else {
        return;
    };
    cases::judge(&side_by_side(5));
}

/// Ten minutes of it; writes docs/coexistence.md.
#[test]
#[ignore = "takes ten minutes: make coexist"]
fn soak_of_coexistence() {
    let Some(_turn) = turn("soak_of_coexistence") else { return };
    let outcomes = side_by_side(soak_seconds());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/coexistence.md");
    let head = "# Coexistence\n\nWritten by `make coexist`: the kernel's services and accelerated \
                ones on one address, the engine on the kernel's own interface.\n";
    std::fs::write(path, head.to_owned() + &cases::table(&outcomes)).expect("docs is writable");
    cases::judge(&outcomes);
}
