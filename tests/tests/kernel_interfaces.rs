//! Interfaces that the kernel gets beside the engine's ports, and bridges between these: unmodified
//! programs of the kernel's on the port that the engine serves.

use std::path::PathBuf;

use lab::observer::Observer;
use lab::{Lab, Program, Side, Task, listens};
use outboard_tests::interfaces::{Interfaces, until};
use outboard_tests::joined::{PATIENCE, redis_at};
use outboard_tests::turn;
use outboard_tests::world::{CLIENTS, PYTHON, SERVERS, executable, scripted};
use rustix::process::Signal;

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

/// What a command prints that succeeds.
fn output(lab: &Lab, side: Side, words: &str) -> String {
    let task = Task::words(words);
    let ended = lab.start(side, task).and_then(|one| one.wait(PATIENCE)).expect("it ends");
    assert!(ended.status.success(), "{words}: {}{}", ended.output, ended.errors);
    ended.output
}

#[test]
fn the_kernels_programs_and_an_accelerated_one_serve_on_one_address() {
    let name = "the_kernels_programs_and_an_accelerated_one_serve_on_one_address";
    let Some(_turn) = turn(name) else { return };
    let hosts = Interfaces::nic("adaptive");
    let (lab, socket) = (&hosts.lab, &hosts.socket);
    let of_port = |what: &str| hosts.of_port(what);
    // The kernel answers, both ways.
    let pings = output(lab, Side::A, &format!("ping -c 20 -i 0.02 -W 20 {SERVERS}"));
    assert!(pings.contains("20 received"), "{pings}");
    let pings = output(lab, Side::B, &format!("ping -c 20 -i 0.02 -W 20 {CLIENTS}"));
    assert!(pings.contains("20 received"), "{pings}");
    assert_eq!(counter(socket, "echo_replies"), 0);
    assert!(of_port("kernel_rx_frames") >= 40 && of_port("kernel_tx_frames") >= 40);
    // A web server of the kernel's.
    let directory = lab.scratch().display().to_string();
    std::fs::write(lab.scratch().join("data"), "kernel".repeat(100_000)).expect("a file");
    let task = Task::words(&format!("{PYTHON} -m http.server -d {directory} 8000"));
    let mut web = lab.start(Side::B, task).expect("it starts");
    web.until(PATIENCE, |one| listens(one.pid(), 8000)).expect("it listens");
    // And a server of the engine's.
    let task = redis_at("0.0.0.0").accelerated(&executable().expect("built"), socket);
    let mut redis = lab.start(Side::B, task).expect("it starts");
    redis.until(PATIENCE, |one| listens(one.pid(), 6379)).expect("it listens");
    let sockets = || {
        let mut observer = Observer::connect(socket).expect("an engine");
        observer.sockets().expect("sockets")
    };
    until("the engine does not serve redis", || !sockets().is_empty(), String::new);
    let sent = of_port("tx_frames") - of_port("kernel_tx_frames");
    let task = Task::words(&format!("redis-benchmark -h {SERVERS} -t set,get -n 2000 -c 10 -q"));
    let mut benchmark = lab.start(Side::A, task).expect("it starts");
    let fetched = output(lab, Side::A, &format!("curl -sf http://{SERVERS}:8000/data"));
    assert_eq!(fetched, "kernel".repeat(100_000));
    benchmark.until(PATIENCE, |one| one.output().contains("GET: ")).expect("it ends");
    let of_engine = of_port("tx_frames") - of_port("kernel_tx_frames") - sent;
    assert!(of_engine >= 4000 / 20, "the engine sent {of_engine} frames");
    assert!(counter(socket, "accepts") >= 10);
    // A port at which nobody listens is refused once, by the kernel.
    let task = Task::words(&format!("curl -s http://{SERVERS}:8001/"));
    let refused = lab.start(Side::A, task).and_then(|one| one.wait(PATIENCE)).expect("it ends");
    assert_eq!(refused.status.code(), Some(7), "{}", refused.errors);
    assert_eq!(counter(socket, "resets_sent"), 0);
    assert_eq!(of_port("kernel_rx_dropped") + of_port("kernel_tx_dropped"), 0);
    // A connection of an accelerated client goes out beside them.
    let task = Task::words(&format!("{PYTHON} -m http.server -d {directory} 8000"));
    let mut other = lab.start(Side::A, task).expect("it starts");
    other.until(PATIENCE, |one| listens(one.pid(), 8000)).expect("it listens");
    let task = Task::words(&format!("curl -sf http://{CLIENTS}:8000/data"));
    let task = task.accelerated(&executable().expect("built"), socket);
    let fetched = lab.start(Side::B, task).and_then(|one| one.wait(PATIENCE)).expect("it ends");
    assert_eq!(fetched.output, "kernel".repeat(100_000), "{}", fetched.errors);
    assert!(counter(socket, "stream_rx_bytes") >= 600_000);
}

/// Captures of a mirror, by tcpdump, and of the port, by the engine, at once.
struct Captures {
    mirror: PathBuf,
    port: PathBuf,
    dump: Program,
    capture: Program,
}

impl Captures {
    /// Both run when this returns.
    fn start(hosts: &Interfaces) -> Self {
        let [mirror, port] =
            ["mirror.pcap", "port.pcapng"].map(|name| hosts.lab.scratch().join(name));
        let task = Task::words(&format!("tcpdump -U -B 65536 -nn -i {} -w", hosts.name));
        let mut dump = hosts.lab.start(Side::B, task.arg(&mirror)).expect("it starts");
        dump.until(PATIENCE, |one| one.errors().contains("listening")).expect("it listens");
        let command = executable().expect("built");
        let task = Task::new("sh").arg("-c").arg(format!(
            "exec {} pcap --socket {} > {}",
            command.display(),
            hosts.socket.display(),
            port.display()
        ));
        let mut capture = hosts.lab.start(Side::B, task).expect("it starts");
        let has_begun = || std::fs::metadata(&port).is_ok_and(|file| file.len() > 0);
        capture.until(PATIENCE, |_| has_begun()).expect("it captures");
        Self { mirror, port, dump, capture }
    }

    /// Ends both: how many TCP and ICMP packets the mirror's and the port's have, how many the mirror's
    /// lacks and has beyond, and what the kernel has dropped for tcpdump and the engine for its own.
    fn compare(mut self, hosts: &Interfaces) -> [u64; 6] {
        self.capture.signal(Signal::INT);
        self.capture.wait(PATIENCE).expect("it ends");
        self.dump.signal(Signal::INT);
        let mut told = String::new();
        let is_told = |one: &Program| {
            told = one.errors();
            told.contains("dropped by kernel")
        };
        self.dump.until(PATIENCE, is_told).expect("it tells");
        let line = told.lines().find(|line| line.contains("dropped by kernel"));
        let of_kernel = line.and_then(|line| line.split(' ').next()?.parse().ok());
        // The engine writes the end of its capture when it hears of the other's.
        let mut compared: Option<[u64; 5]> = None;
        let mut said = String::new();
        let is_compared = || {
            let task = scripted(&hosts.lab, "captures.py").arg(&self.mirror).arg(&self.port);
            let ended = hosts.lab.start(Side::B, task).and_then(|one| one.wait(PATIENCE));
            let ended = ended.expect("it ends");
            let words = ended.output.split_whitespace();
            let counts: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
            compared = counts.try_into().ok();
            said = ended.errors;
            compared.is_some()
        };
        until("the captures cannot be compared", is_compared, String::new);
        let [shown, captured, lacks, beyond, of_engine] =
            compared.unwrap_or_else(|| panic!("{said}"));
        [shown, captured, lacks, beyond, of_kernel.expect("a number"), of_engine]
    }
}

#[test]
#[ignore = "fails: tcpdump's file is empty where the capture has 100 packets"]
fn tcpdump_on_a_mirror_sees_what_a_capture_sees_or_counters_say_what_was_lost() {
    let test = "tcpdump_on_a_mirror_sees_what_a_capture_sees_or_counters_say_what_was_lost";
    let Some(_turn) = turn(test) else { return };
    let hosts = Interfaces::mirror();
    let task = redis_at(&SERVERS.to_string());
    let mut redis = hosts.start_accelerated(task);
    redis.until(PATIENCE, |one| listens(one.pid(), 6379)).expect("it listens");
    let loads = [
        format!("ping -c 50 -i 0.01 -W 20 {SERVERS}"),
        format!("redis-benchmark -h {SERVERS} -t set,get -n 2000 -c 10 -q"),
        // In frames of up to 64 KiB.
        format!("redis-benchmark -h {SERVERS} -t set,get -d 200000 -n 200 -c 4 -q"),
    ];
    for load in loads {
        let lost = hosts.of_mirror("lost");
        let captures = Captures::start(&hosts);
        hosts.output(Side::A, &load);
        // What was received and sent by now is shown, or counted as lost.
        let passed = || hosts.of_port("rx_frames") + hosts.of_port("tx_frames");
        let is_quiet = || {
            let before = passed();
            hosts.of_mirror("shown") + hosts.of_mirror("lost") >= before && passed() == before
        };
        let seen = || format!("{} passed, {} shown", passed(), hosts.of_mirror("shown"));
        until("the mirror lags behind", is_quiet, seen);
        let [shown, captured, lacks, beyond, of_kernel, of_engine] = captures.compare(&hosts);
        let lost = hosts.of_mirror("lost") - lost;
        let said = format!(
            "{load}: the mirror shows {shown} and has lost {lost}, tcpdump has dropped {of_kernel}; the \
             capture has {captured} and has dropped {of_engine}; {lacks} are in it alone, {beyond} in the \
             mirror's"
        );
        assert!(captured + of_engine >= 100 && shown + lost + of_kernel >= 100, "{said}");
        assert!(lacks <= lost + of_kernel && beyond <= of_engine, "{said}");
    }
    assert!(hosts.counter("accepts") >= 24, "by another way");
}

#[test]
fn what_programs_send_into_a_mirror_is_counted_and_dropped() {
    let test = "what_programs_send_into_a_mirror_is_counted_and_dropped";
    let Some(_turn) = turn(test) else { return };
    let hosts = Interfaces::mirror();
    let sent = hosts.of_port("tx_frames");
    let send = "import socket; s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); \
                s.bind(('IF', 0)); [s.send(bytes(60)) for _ in range(7)]";
    let task = Task::words(&format!("{PYTHON} -c")).arg(send.replace("IF", &hosts.name));
    let ended = hosts.lab.start(Side::B, task).and_then(|one| one.wait(PATIENCE));
    let ended = ended.expect("it ends");
    assert!(ended.status.success(), "{}", ended.errors);
    let is_counted = || hosts.of_mirror("refused") >= 7;
    until("they are not counted", is_counted, || hosts.of_mirror("refused").to_string());
    assert_eq!(hosts.of_port("tx_frames"), sent, "they have left by the port");
}

#[test]
#[ignore = "new: passes beside a busy loop, not run often enough for make test"]
fn scapy_on_a_mirror_sees_what_tcpreplay_sends_to_the_port() {
    let test = "scapy_on_a_mirror_sees_what_tcpreplay_sends_to_the_port";
    let Some(_turn) = turn(test) else { return };
    if lab::require_programs(&["tcpreplay", "scapy3"]).is_err() {
        skips::skip(test, "tcpreplay", "tcpreplay or python3-scapy is not installed");
        return;
    }
    let hosts = Interfaces::mirror();
    let file = hosts.lab.scratch().join("replayed.pcap");
    // Datagrams for nobody, numbered.
    let write = format!(
        "from scapy.all import *\n\
         wrpcap('{}', [Ether(dst='ff:ff:ff:ff:ff:ff') / IP(src='{CLIENTS}', dst='10.78.0.77') / \
         UDP(sport=7, dport=9) / Raw(b'replayed %d' % n) for n in range(100)])",
        file.display()
    );
    let sniff = format!(
        "from scapy.all import *\n\
         seen = set()\n\
         print('started', flush=True)\n\
         sniff(iface='{}', filter='udp port 9', store=False, started_callback=lambda: print('sniffs', flush=True),\n\
         \x20  prn=lambda p: (seen.add(bytes(p[Raw].load)), None)[1],\n\
         \x20  stop_filter=lambda p: len(seen) == 100)\n\
         print('all', flush=True)",
        hosts.name
    );
    let task = Task::new(PYTHON).args(["-c", &write]);
    let ended = hosts.lab.start(Side::A, task).and_then(|one| one.wait(PATIENCE));
    let ended = ended.expect("it ends");
    assert!(ended.status.success(), "{}", ended.errors);
    let task = Task::new(PYTHON).args(["-c", &sniff]);
    let mut scapy = hosts.lab.start(Side::B, task).expect("it starts");
    scapy.until(PATIENCE, |one| one.output().contains("sniffs")).expect("it sniffs");
    let replay =
        format!("tcpreplay -q -K -p 500 -i {} {}", hosts.link.end(Side::A), file.display());
    hosts.output(Side::A, &replay);
    if hosts.of_mirror("lost") == 0 {
        scapy.until(PATIENCE, |one| one.output().contains("all")).expect("it sees all");
    }
    assert!(hosts.of_mirror("shown") + hosts.of_mirror("lost") >= 100);
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
