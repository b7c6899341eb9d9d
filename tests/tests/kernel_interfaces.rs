//! Interfaces that the kernel gets beside the engine's ports, and bridges between these: unmodified
//! programs of the kernel's on the port that the engine serves.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use lab::observer::Observer;
use lab::{Lab, Program, Side, Task, listens};
use outboard_tests::joined::{PATIENCE, redis_at};
use outboard_tests::turn;
use outboard_tests::world::{CLIENTS, PYTHON, SERVERS, executable};

/// An engine of host B with `ports` and the tables of `settings`.
fn engine(lab: &Lab, ports: &[String], settings: &str) -> (PathBuf, Program) {
    let socket = lab.scratch().join("engine/b.sock");
    let path = lab.scratch().join("kernel.toml");
    std::fs::write(&path, settings).expect("a file");
    let mut words = vec!["--config", path.to_str().expect("a path in UTF-8")];
    ports.iter().for_each(|port| words.extend(["--port", port]));
    let task = Task::new(executable().expect("built"));
    let engine = lab.start_engine(task, Side::B, &socket, &words).expect("an engine");
    (socket, engine)
}

fn counter(socket: &std::path::Path, name: &str) -> u64 {
    let mut observer = Observer::connect(socket).expect("an engine");
    observer.stats().expect("counters").counter(name)
}

/// Waits until something is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool, seen: impl Fn() -> String) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}: {}", seen());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// What a command prints that succeeds.
fn output(lab: &Lab, side: Side, words: &str) -> String {
    let task = Task::words(words);
    let ended = lab.start(side, task).and_then(|one| one.wait(PATIENCE)).expect("it ends");
    assert!(ended.status.success(), "{words}: {}{}", ended.output, ended.errors);
    ended.output
}

/// The table of an engine whose port the kernel uses by the interface `nic`.
fn nic_settings(nic: &str, port: &str) -> String {
    format!("[[kernel]]\nname = \"{nic}\"\nport = \"{port}\"\nmode = \"nic\"\n")
}

#[test]
fn the_kernels_programs_and_an_accelerated_one_serve_on_one_address() {
    let name = "the_kernels_programs_and_an_accelerated_one_serve_on_one_address";
    let Some(_turn) = turn(name) else { return };
    let lab = Lab::new().expect("a laboratory");
    let link = lab.join(None).expect("a link");
    let [a, b] = Side::BOTH.map(|side| link.end(side));
    let nic = format!("{}n", lab.stem());
    let port = format!("packet:{b}");
    let (socket, _engine) = engine(&lab, std::slice::from_ref(&port), &nic_settings(&nic, &b));
    lab.adopt(Side::A, &a, CLIENTS).expect("an address");
    lab.adopt(Side::B, &nic, SERVERS).expect("an address");
    let of_port = |what: &str| counter(&socket, &format!("port_{what}{{port={port}}}"));
    // The kernel answers, both ways.
    let pings = output(&lab, Side::A, &format!("ping -c 20 -i 0.02 -W 20 {SERVERS}"));
    assert!(pings.contains("20 received"), "{pings}");
    let pings = output(&lab, Side::B, &format!("ping -c 20 -i 0.02 -W 20 {CLIENTS}"));
    assert!(pings.contains("20 received"), "{pings}");
    assert_eq!(counter(&socket, "echo_replies"), 0);
    assert!(of_port("kernel_rx_frames") >= 40 && of_port("kernel_tx_frames") >= 40);
    // A web server of the kernel's.
    let directory = lab.scratch().display().to_string();
    std::fs::write(lab.scratch().join("data"), "kernel".repeat(100_000)).expect("a file");
    let task = Task::words(&format!("{PYTHON} -m http.server -d {directory} 8000"));
    let mut web = lab.start(Side::B, task).expect("it starts");
    web.until(PATIENCE, |one| listens(one.pid(), 8000)).expect("it listens");
    // And a server of the engine's.
    let task = redis_at("0.0.0.0").accelerated(&executable().expect("built"), &socket);
    let mut redis = lab.start(Side::B, task).expect("it starts");
    redis.until(PATIENCE, |one| listens(one.pid(), 6379)).expect("it listens");
    let sockets = || {
        let mut observer = Observer::connect(&socket).expect("an engine");
        observer.sockets().expect("sockets")
    };
    until("the engine does not serve redis", || !sockets().is_empty(), String::new);
    let sent = of_port("tx_frames") - of_port("kernel_tx_frames");
    let task = Task::words(&format!("redis-benchmark -h {SERVERS} -t set,get -n 2000 -c 10 -q"));
    let mut benchmark = lab.start(Side::A, task).expect("it starts");
    let fetched = output(&lab, Side::A, &format!("curl -sf http://{SERVERS}:8000/data"));
    assert_eq!(fetched, "kernel".repeat(100_000));
    benchmark.until(PATIENCE, |one| one.output().contains("GET: ")).expect("it ends");
    let of_engine = of_port("tx_frames") - of_port("kernel_tx_frames") - sent;
    assert!(of_engine >= 4000 / 20, "the engine sent {of_engine} frames");
    assert!(counter(&socket, "accepts") >= 10);
    // A port at which nobody listens is refused once, by the kernel.
    let task = Task::words(&format!("curl -s http://{SERVERS}:8001/"));
    let refused = lab.start(Side::A, task).and_then(|one| one.wait(PATIENCE)).expect("it ends");
    assert_eq!(refused.status.code(), Some(7), "{}", refused.errors);
    assert_eq!(counter(&socket, "resets_sent"), 0);
    assert_eq!(of_port("kernel_rx_dropped") + of_port("kernel_tx_dropped"), 0);
    // A connection of an accelerated client goes out beside them.
    let task = Task::words(&format!("{PYTHON} -m http.server -d {directory} 8000"));
    let mut other = lab.start(Side::A, task).expect("it starts");
    other.until(PATIENCE, |one| listens(one.pid(), 8000)).expect("it listens");
    let task = Task::words(&format!("curl -sf http://{CLIENTS}:8000/data"));
    let task = task.accelerated(&executable().expect("built"), &socket);
    let fetched = lab.start(Side::B, task).and_then(|one| one.wait(PATIENCE)).expect("it ends");
    assert_eq!(fetched.output, "kernel".repeat(100_000), "{}", fetched.errors);
    assert!(counter(&socket, "stream_rx_bytes") >= 600_000);
}

#[test]
fn tcpdump_on_a_mirror_sees_what_the_port_receives_and_sends() {
    let Some(_turn) = turn("tcpdump_on_a_mirror_sees_what_the_port_receives_and_sends") else {
        return;
    };
    let lab = Lab::new().expect("a laboratory");
    let link = lab.join(None).expect("a link");
    let [a, b] = Side::BOTH.map(|side| link.end(side));
    let mirror = format!("{}m", lab.stem());
    let settings = format!("[[kernel]]\nname = \"{mirror}\"\nport = \"{b}\"\nmode = \"mirror\"\n");
    let port = format!("packet:{b},addr={SERVERS}/24,ipv6=off");
    let (socket, _engine) = engine(&lab, &[port], &settings);
    lab.adopt(Side::A, &a, CLIENTS).expect("an address");
    let task = Task::words(&format!("tcpdump -lnn -i {mirror} icmp or tcp"));
    let mut dump = lab.start(Side::B, task).expect("it starts");
    dump.until(PATIENCE, |one| one.errors().contains("listening")).expect("it listens");
    let command = executable().expect("built");
    let kept = lab.scratch().join("kept.pcapng");
    let task = Task::new("sh").arg("-c").arg(format!(
        "exec {} pcap --socket {} > {}",
        command.display(),
        socket.display(),
        kept.display()
    ));
    let mut capture = lab.start(Side::B, task).expect("it starts");
    let has_begun = || std::fs::metadata(&kept).is_ok_and(|file| file.len() > 0);
    capture.until(PATIENCE, |_| has_begun()).expect("it captures");
    let pings = output(&lab, Side::A, &format!("ping -c 50 -i 0.01 -W 20 {SERVERS}"));
    assert!(pings.contains("50 received"), "{pings}");
    let sees = |of: &str| dump.output().matches(of).count();
    let is_whole = || sees("echo request") == 50 && sees("echo reply") == 50;
    until("the mirror shows something else", is_whole, || dump.output());
    let task = Task::words("tcpdump -nn -r").arg(&kept).arg("icmp");
    let captured = || {
        let ended = lab.start(Side::B, task.clone()).and_then(|one| one.wait(PATIENCE));
        ended.expect("it ends").output
    };
    let is_same = || captured().matches("ICMP echo").count() == sees("ICMP echo");
    until("the capture shows something else", is_same, captured);
    capture.stop();
    let of_mirror = |what: &str| counter(&socket, &format!("mirror_{what}{{interface={mirror}}}"));
    assert!(of_mirror("shown") >= 100);
    assert_eq!(of_mirror("lost"), 0);
    // What programs send into it goes nowhere, and is counted.
    let send = "import socket; s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); \
                s.bind(('IF', 0)); [s.send(bytes(60)) for _ in range(7)]";
    let task = Task::words(&format!("{PYTHON} -c")).arg(send.replace("IF", &mirror));
    let ended = lab.start(Side::B, task).and_then(|one| one.wait(PATIENCE)).expect("it ends");
    assert!(ended.status.success(), "{}", ended.errors);
    until("they are not counted", || of_mirror("refused") >= 7, String::new);
}

#[test]
fn testpmd_answers_pings_that_a_bridge_brings() {
    let Some(_turn) = turn("testpmd_answers_pings_that_a_bridge_brings") else { return };
    if lab::require_programs(&["dpdk-testpmd"]).is_err() {
        skips::skip("testpmd behind a bridge", "dpdk-testpmd", "dpdk-dev is not installed");
        return;
    }
    let lab = Lab::new().expect("a laboratory");
    let tap = format!("{}x", lab.stem());
    let memif = lab.scratch().join("engine/m.sock");
    let memif = memif.to_str().expect("a path in UTF-8");
    let ports = [
        format!("tap:{tap},ipv6=off,netns={}", lab.host(Side::A).namespace()),
        format!("memif:{memif},ipv6=off"),
    ];
    std::fs::create_dir_all(lab.scratch().join("engine")).expect("a directory");
    let bridge = |from: &str, to: &str| {
        format!("[[bridge]]\nfrom = \"{from}\"\nto = \"{to}\"\nmode = \"take\"\n")
    };
    let settings = bridge(&tap, memif) + &bridge(memif, &tap);
    let (socket, _engine) = engine(&lab, &ports, &settings);
    lab.adopt(Side::A, &tap, CLIENTS).expect("an address");
    let device = format!("net_memif0,role=client,socket={memif},socket-abstract=no");
    let task = Task::new("dpdk-testpmd")
        .args(["--no-huge", "-m", "256", "--no-pci", "--no-telemetry", "--lcores", "(0,1)@0"])
        .arg(format!("--file-prefix={}", lab.stem()))
        .arg(format!("--vdev={device}"))
        .args(["--", "--forward-mode=icmpecho", "--stats-period=1", "--total-num-mbufs=2048"]);
    let testpmd = lab.start(Side::B, task).expect("it starts");
    let pinged = || {
        let task = Task::words(&format!("ping -c 20 -i 0.05 -W 2 {SERVERS}"));
        lab.start(Side::A, task).and_then(|one| one.wait(PATIENCE)).expect("it ends").output
    };
    let is_whole = || pinged().contains("20 received");
    until("testpmd does not answer", is_whole, || testpmd.output() + &testpmd.errors());
    assert!(counter(&socket, "bridge_frames") >= 40);
}

#[test]
fn a_bridge_carries_bulk_between_two_hosts() {
    let Some(_turn) = turn("a_bridge_carries_bulk_between_two_hosts") else { return };
    let lab = Lab::new().expect("a laboratory");
    let taps = ["x", "y"].map(|end| format!("{}{end}", lab.stem()));
    let ports: Vec<String> = Side::BOTH
        .into_iter()
        .zip(&taps)
        .map(|(side, tap)| format!("tap:{tap},ipv6=off,netns={}", lab.host(side).namespace()))
        .collect();
    let bridge = |from: &str, to: &str| {
        format!("[[bridge]]\nfrom = \"{from}\"\nto = \"{to}\"\nmode = \"take\"\n")
    };
    let settings = bridge(&taps[0], &taps[1]) + &bridge(&taps[1], &taps[0]);
    let (socket, _engine) = engine(&lab, &ports, &settings);
    for (side, (tap, address)) in Side::BOTH.into_iter().zip(taps.iter().zip([CLIENTS, SERVERS])) {
        lab.adopt(side, tap, address).expect("an address");
    }
    let mut server =
        lab.start(Side::B, Task::words(&format!("iperf3 -s -1 -B {SERVERS}"))).expect("it starts");
    server.until(PATIENCE, |one| listens(one.pid(), 5201)).expect("it listens");
    output(&lab, Side::A, &format!("iperf3 -c {SERVERS} -n 20M"));
    assert!(counter(&socket, "bridge_frames") > 100);
    assert_eq!(counter(&socket, "bridge_dropped"), 0);
}
