//! Programs that see and send frames themselves, through byte rings: the examples, beside tcpdump and
//! the kernel.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use lab::observer::Observer;
use lab::{Lab, Program, Side, Task};
use outboard_tests::joined::PATIENCE;
use outboard_tests::turn;
use outboard_tests::world::{CLIENTS, SERVERS, example, executable};

/// A configuration that lets root handle frames at all ports.
fn config(lab: &Lab) -> String {
    let path = lab.scratch().join("raw.toml");
    let rule =
        "[[raw]]\nusers = [\"root\"]\nreceive = true\nsend = true\ntake = true\nspoof = true\n";
    std::fs::write(&path, rule).expect("a file");
    path.to_str().expect("a path in UTF-8").to_owned()
}

fn engine(lab: &Lab, ports: &[String]) -> (PathBuf, Program) {
    let socket = lab.scratch().join("engine/b.sock");
    let config = config(lab);
    let mut words = vec!["--config", &config];
    ports.iter().for_each(|port| words.extend(["--port", port]));
    let task = Task::new(executable().expect("built"));
    let engine = lab.start_engine(task, Side::B, &socket, &words).expect("an engine");
    (socket, engine)
}

fn counter(socket: &std::path::Path, name: &str) -> u64 {
    let mut observer = Observer::connect(socket).expect("an engine");
    observer.stats().expect("counters").counter(name)
}

/// Waits until two programs' outputs fit together.
fn until(what: &str, mut is_so: impl FnMut() -> bool, seen: impl Fn() -> String) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}: {}", seen());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_program_sees_exactly_what_tcpdump_sees_on_the_wire() {
    let Some(_turn) = turn("a_program_sees_exactly_what_tcpdump_sees_on_the_wire") else { return };
    let lab = Lab::new().expect("a laboratory");
    let link = lab.join(None).expect("a link");
    let [a, b] = Side::BOTH.map(|side| link.end(side));
    let port = format!("packet:{b},addr={SERVERS}/24,ipv6=off");
    let (socket, _engine) = engine(&lab, &[port]);
    lab.adopt(Side::A, &a, CLIENTS).expect("an address");
    let task = Task::new(example("frame_counter")).arg(&socket).arg(&b);
    let mut counting = lab.start(Side::B, task).expect("it starts");
    counting.until(PATIENCE, |one| one.output().contains("counting")).expect("it counts");
    let task = Task::words(&format!("tcpdump -lnn -i {a} ip"));
    let mut dump = lab.start(Side::A, task).expect("it starts");
    dump.until(PATIENCE, |one| one.errors().contains("listening")).expect("it listens");
    let task = Task::words(&format!("ping -c 50 -i 0.01 -W 20 {SERVERS}"));
    let pings = lab.start(Side::A, task).and_then(|one| one.wait(PATIENCE)).expect("it ends");
    assert!(pings.output.contains("50 received"), "{}", pings.output);
    let by = |address: String, output: &str| output.matches(&format!("IP {address} >")).count();
    let expected = || {
        let output = dump.output();
        let [received, sent] = [CLIENTS, SERVERS].map(|of| by(of.to_string(), &output));
        format!("0x0800 received {received}, sent {sent}, lost 0")
    };
    let says =
        || counting.output().lines().rfind(|line| line.starts_with("0x0800")).map(str::to_owned);
    let is_whole = || expected().contains("received 50, sent 50") && says() == Some(expected());
    until("the counts differ", is_whole, || format!("{:?} and {}", says(), expected()));
    assert_eq!(counter(&socket, "raw_endpoints"), 1);
    counting.stop();
    until("it is closed", || counter(&socket, "raw_endpoints") == 0, String::new);
}

#[test]
fn a_program_without_rights_sees_nothing() {
    let Some(_turn) = turn("a_program_without_rights_sees_nothing") else { return };
    let lab = Lab::new().expect("a laboratory");
    let link = lab.join(None).expect("a link");
    let b = link.end(Side::B);
    let (socket, _engine) = engine(&lab, &[format!("packet:{b},addr={SERVERS}/24")]);
    let task = Task::words("setpriv --reuid 65534 --regid 65534 --clear-groups");
    let task = task.arg(example("frame_counter")).arg(&socket).arg(&b).arg("1");
    let refused = lab.start(Side::B, task).and_then(|one| one.wait(PATIENCE)).expect("it ends");
    assert!(!refused.status.success() && refused.output.is_empty(), "{}", refused.output);
    assert!(refused.errors.contains("[[raw]]"), "{}", refused.errors);
    assert_eq!(counter(&socket, "raw_denied"), 1);
}

#[test]
fn a_bridge_forwards_between_two_hosts() {
    let Some(_turn) = turn("a_bridge_forwards_between_two_hosts") else { return };
    let lab = Lab::new().expect("a laboratory");
    let taps = ["x", "y"].map(|end| format!("{}{end}", lab.stem()));
    let ports: Vec<String> = Side::BOTH
        .into_iter()
        .zip(&taps)
        .map(|(side, tap)| format!("tap:{tap},ipv6=off,netns={}", lab.host(side).namespace()))
        .collect();
    let (socket, _engine) = engine(&lab, &ports);
    for (side, (tap, address)) in Side::BOTH.into_iter().zip(taps.iter().zip([CLIENTS, SERVERS])) {
        lab.adopt(side, tap, address).expect("an address");
    }
    let task = Task::new(example("learning_bridge")).arg(&socket).args(taps.each_ref());
    let mut bridge = lab.start(Side::B, task).expect("it starts");
    bridge.until(PATIENCE, |one| one.output().contains("bridging 2")).expect("it bridges");
    let task = Task::words(&format!("ping -c 50 -i 0.01 -W 20 {SERVERS}"));
    let pings = lab.start(Side::A, task).and_then(|one| one.wait(PATIENCE)).expect("it ends");
    assert!(pings.output.contains("50 received"), "{}", pings.output);
    // Bulk in frames of 64 KiB whose checksums are left to do, and in many at a time.
    let task = Task::words(&format!("iperf3 -s -1 -B {SERVERS}"));
    let mut server = lab.start(Side::B, task).expect("it starts");
    server.until(PATIENCE, |one| lab::listens(one.pid(), 5201)).expect("it listens");
    let task = Task::words(&format!("iperf3 -c {SERVERS} -n 20M"));
    let bulk = lab.start(Side::A, task).and_then(|one| one.wait(PATIENCE)).expect("it ends");
    assert!(bulk.status.success(), "{}{}", bulk.output, bulk.errors);
    assert_eq!(counter(&socket, "raw_spoofed"), 0);
    assert!(counter(&socket, "raw_tx") > 100);
}

#[test]
fn testpmd_answers_pings_behind_a_bridge() {
    if let Some(_turn) = turn("testpmd_answers_pings_behind_a_bridge") {
        testpmd_answers(["server", "client"]);
    }
}

#[test]
fn testpmd_answers_pings_as_the_server_of_a_memif() {
    if let Some(_turn) = turn("testpmd_answers_pings_as_the_server_of_a_memif") {
        testpmd_answers(["client", "server"]);
    }
}

/// Pings that enter by one port are answered at another, where the engine and testpmd have these roles.
fn testpmd_answers([engine_role, testpmd_role]: [&str; 2]) {
    if lab::require_programs(&["dpdk-testpmd"]).is_err() {
        skips::skip("testpmd at a memif port", "dpdk-testpmd", "dpdk-dev is not installed");
        return;
    }
    let lab = Lab::new().expect("a laboratory");
    let tap = format!("{}x", lab.stem());
    // The engine makes its own directory.
    let memif = lab.scratch().join("engine/m.sock");
    let memif = memif.to_str().expect("a path in UTF-8");
    let ports = [
        format!("tap:{tap},ipv6=off,netns={}", lab.host(Side::A).namespace()),
        format!("memif:{memif},role={engine_role},id=7,secret=sesame,ipv6=off"),
    ];
    std::fs::create_dir_all(lab.scratch().join("engine")).expect("a directory");
    let (socket, _engine) = engine(&lab, &ports);
    lab.adopt(Side::A, &tap, CLIENTS).expect("an address");
    let task = Task::new(example("learning_bridge")).arg(&socket).args([tap.as_str(), memif]);
    let mut bridge = lab.start(Side::B, task).expect("it starts");
    bridge.until(PATIENCE, |one| one.output().contains("bridging 2")).expect("it bridges");
    let device = format!(
        "net_memif0,role={testpmd_role},id=7,secret=sesame,socket={memif},socket-abstract=no"
    );
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
    let mut said = String::new();
    let is_whole = || {
        said = pinged();
        said.contains("20 received")
    };
    until("testpmd does not answer", is_whole, || testpmd.output() + &testpmd.errors());
}
