//! Socket behaviour, compared: the same program prints what it sees on kernel sockets and under the
//! library, and must print the same. All programs of an arrangement run on one engine.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use lab::{Lab, Program, Side, Task, listens};
use outboard_tests::turn;
use outboard_tests::world::{Arrangement, CLIENTS, CLIENTS_KERNEL, SERVERS, SERVERS_KERNEL, World};

const PATIENCE: Duration = Duration::from_secs(60);
const PORT: u16 = 15001;

/// Compiles a C program of `tests/posix` into the lab's scratch directory.
fn compiled(lab: &Lab, name: &str) -> PathBuf {
    let source = format!("{}/posix/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let program = lab.scratch().join(name);
    let compiled = Command::new("cc")
        .args(["-O1", "-Wall", "-Wno-unused-result", "-pthread", "-o"])
        .arg(&program)
        .arg(&source)
        .output()
        .expect("cc runs: install gcc");
    assert!(compiled.status.success(), "{source}: {}", String::from_utf8_lossy(&compiled.stderr));
    program
}

/// What a probe prints until it ends.
fn told(probe: Program) -> String {
    let finished = probe.wait(PATIENCE).expect("the probe ends");
    let (output, errors) = (&finished.output, &finished.errors);
    assert!(finished.status.success(), "{}: {output}{errors}", finished.status);
    finished.output
}

/// The peer of a probe on host `side`.
fn with_peer(world: &World, side: Side) -> Program {
    let peer = Task::new(compiled(&world.lab, "peer")).arg(PORT.to_string());
    let mut peer = world.lab.start(side.other(), peer).expect("the peer starts");
    peer.until(PATIENCE, |peer| listens(peer.pid(), PORT)).expect("the peer listens");
    peer
}

/// A program of `tests/posix`.
struct Probe {
    name: &'static str,
    /// Counters that grow where the engine carries what it does.
    carried: &'static [&'static str],
}

const STREAMS: &[&str] = &["stream_rx_bytes", "stream_tx_bytes"];
const SHARED: &[&str] = &["stream_rx_bytes", "stream_tx_bytes", "heirs_total", "passed_total"];

const ANCILLARY: Probe = Probe { name: "ancillary", carried: &["datagrams_rx", "datagrams_tx"] };
const CANCELLING: Probe = Probe { name: "cancelling", carried: STREAMS };
const CONNECTS: Probe = Probe { name: "connects", carried: &["tcp_active_opens"] };
const DUPLICATES: Probe = Probe { name: "duplicates", carried: SHARED };
const FAULTS: Probe = Probe { name: "faults", carried: STREAMS };
const FORKING: Probe = Probe { name: "forking", carried: STREAMS };
const HANDING: Probe = Probe { name: "handing", carried: SHARED };
const HOLDERS: Probe = Probe { name: "holders", carried: SHARED };
const NUMBERS: Probe = Probe { name: "numbers", carried: STREAMS };
const OPTIONS: Probe = Probe { name: "options", carried: STREAMS };
const PROBE: Probe = Probe {
    name: "probe",
    carried: &["stream_rx_bytes", "stream_tx_bytes", "datagrams_rx", "datagrams_tx", "accepts"],
};
const RAW: Probe = Probe { name: "raw", carried: STREAMS };
const REFUSALS: Probe = Probe { name: "refusals", carried: SHARED };
const RIGHTS: Probe = Probe { name: "rights", carried: SHARED };
const SIGNALS: Probe = Probe { name: "signals", carried: STREAMS };
const STARTING: Probe = Probe { name: "starting", carried: SHARED };
const STREAM: Probe = Probe { name: "streams", carried: STREAMS };
const THREADS: Probe = Probe { name: "threads", carried: STREAMS };
const TIMES: Probe = Probe { name: "times", carried: STREAMS };

/// A host with an engine that has a relay, and a peer.
struct Bench {
    world: World,
    side: Side,
    on_engine: Ipv4Addr,
    on_kernel: Ipv4Addr,
    _peer: Program,
}

impl Bench {
    fn of(arrangement: Arrangement) -> Self {
        let (side, on_engine, on_kernel) = match arrangement {
            Arrangement::PacketClients => (Side::A, SERVERS, SERVERS_KERNEL),
            _ => (Side::B, CLIENTS, CLIENTS_KERNEL),
        };
        let world = World::new(arrangement, None).expect("a world");
        let peer = with_peer(&world, side);
        Self { world, side, on_engine, on_kernel, _peer: peer }
    }

    fn counters(&self, names: &[&str]) -> Vec<u64> {
        let stats = self.world.observe(self.side).and_then(|mut observer| observer.stats());
        let stats = stats.expect("the engine answers");
        names.iter().map(|name| stats.counter(name)).collect()
    }

    /// Starts a program twice, on the kernel and under the library: side by side, as most of what they do is
    /// waiting; each has an address of its own.
    fn start<'a>(&self, probe: &'a Probe) -> Pair<'a> {
        let program = compiled(&self.world.lab, probe.name);
        let to = |peer: Ipv4Addr| Task::new(&program).args([peer.to_string(), PORT.to_string()]);
        Pair {
            probe,
            before: self.counters(probe.carried),
            kernel: self.world.lab.start(self.side, to(self.on_kernel)).expect("a probe"),
            engine: self.world.start(self.side, to(self.on_engine)).expect("a probe"),
        }
    }

    /// What a program has printed differently under the library.
    fn differences(&self, pair: Pair<'_>) -> Vec<String> {
        let Pair { probe, before, kernel, engine } = pair;
        let (kernel, engine) = (told(kernel), told(engine));
        let carried = probe.carried.iter().zip(before).zip(self.counters(probe.carried));
        let mut differences: Vec<String> = carried
            .filter(|((_, before), after)| before == after)
            .map(|((name, _), _)| format!("{} went past the engine: {name}", probe.name))
            .collect();
        let mut engine = engine.lines();
        for kernel in kernel.lines() {
            let engine = engine.next().unwrap_or("nothing");
            if kernel != engine {
                let name = probe.name;
                differences.push(format!("{name}\nkernel   {kernel}\noutboard {engine}"));
            }
        }
        differences.extend(engine.map(|more| format!("{}\noutboard {more}", probe.name)));
        differences
    }
}

/// A program that runs on the kernel and under the library.
struct Pair<'a> {
    probe: &'a Probe,
    /// The engine's counters when it began.
    before: Vec<u64>,
    kernel: Program,
    engine: Program,
}

/// Runs programs one after the other: some judge times.
fn compare(test: &str, arrangement: Arrangement, probes: &[Probe]) {
    let Some(_turn) = turn(test) else { return };
    let bench = Bench::of(arrangement);
    let only = std::env::var("OUTBOARD_TEST_ONLY").ok();
    let chosen = |probe: &&Probe| only.as_ref().is_none_or(|only| only == probe.name);
    let begin = Instant::now();
    let mut differences = Vec::new();
    for probe in probes.iter().filter(chosen) {
        differences.extend(bench.differences(bench.start(probe)));
        println!("{} is done after {:.1?}", probe.name, begin.elapsed());
    }
    assert!(differences.is_empty(), "\n{}", differences.join("\n"));
}

#[test]
fn programs_see_what_the_kernel_shows_on_a_packet_port() {
    let test = "programs_see_what_the_kernel_shows_on_a_packet_port";
    let probes = [
        NUMBERS, PROBE, STREAM, CONNECTS, OPTIONS, SIGNALS, ANCILLARY, TIMES, CANCELLING, THREADS,
        FORKING, RAW, FAULTS, REFUSALS,
    ];
    compare(test, Arrangement::PacketClients, &probes);
}

#[test]
fn programs_see_what_the_kernel_shows_on_a_tap() {
    let test = "programs_see_what_the_kernel_shows_on_a_tap";
    let probes = [PROBE, STREAM, CONNECTS, ANCILLARY, CANCELLING, FORKING];
    compare(test, Arrangement::TapServers, &probes);
}

#[test]
fn programs_see_what_the_kernel_shows_on_a_shared_interface() {
    let test = "programs_see_what_the_kernel_shows_on_a_shared_interface";
    compare(test, Arrangement::XdpServers, &[ANCILLARY, TIMES, THREADS]);
}

/// PostgreSQL, sshd, rsync, inetd and Node pass their connections on in these ways.
#[test]
fn processes_share_sockets_as_on_the_kernel_on_a_packet_port() {
    let test = "processes_share_sockets_as_on_the_kernel_on_a_packet_port";
    let probes = [HANDING, STARTING, HOLDERS, RIGHTS, DUPLICATES];
    compare(test, Arrangement::PacketClients, &probes);
}

#[test]
fn processes_share_sockets_as_on_the_kernel_on_a_tap() {
    let test = "processes_share_sockets_as_on_the_kernel_on_a_tap";
    compare(test, Arrangement::TapServers, &[HANDING, RIGHTS]);
}

/// The address is the engine's alone, so that nothing is reached without it.
#[test]
fn a_relative_socket_is_found_after_a_change_of_directory() {
    let name = "a_relative_socket_is_found_after_a_change_of_directory";
    let Some(_turn) = turn(name) else { return };
    let world = World::new(Arrangement::PacketClients, None).expect("a world");
    let _peer = with_peer(&world, Side::A);
    let probe = compiled(&world.lab, "numbers");
    let (scratch, executable) = (world.lab.scratch().display(), world.executable().display());
    let probe = format!("cd / && exec {} {SERVERS} {PORT}", probe.display());
    let line = format!("cd {scratch} && exec {executable} run --socket a.sock sh -c '{probe}'");
    let probe = world.lab.start(Side::A, Task::new("sh").args(["-c", &line])).expect("a probe");
    assert!(told(probe).contains("exchange: "));
}

#[test]
fn without_a_relay_a_connection_is_not_passed_on() {
    let Some(_turn) = turn("without_a_relay_a_connection_is_not_passed_on") else { return };
    let world = World::configured(Arrangement::PacketClients, None, "relay = false\n");
    let world = world.expect("a world");
    let _peer = with_peer(&world, Side::A);
    let probe =
        Task::new(compiled(&world.lab, "passing")).args([SERVERS.to_string(), PORT.to_string()]);
    let output = told(world.start(Side::A, probe).expect("a probe"));
    let expected = "passed: alone EOPNOTSUPP\n\
                    passed: among others 1\n\
                    passed: first of several EOPNOTSUPP\n\
                    passed: came 1 then EAGAIN\n\
                    passed: goes on 1 1\n";
    assert_eq!(output, expected);
}
