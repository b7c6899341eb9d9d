//! The kernel's unmodified programs through `nic`, an interface that shares the engine's port, beside an
//! accelerated one on the same address.

use lab::{Lab, Program, Side, Task, listens, parse};
use outboard_tests::interfaces::{CLIENTS_V6, Interfaces, SERVERS_V6, until};
use outboard_tests::joined::{PATIENCE, redis_at};
use outboard_tests::turn;
use outboard_tests::world::{CLIENTS, PYTHON, SERVERS, scripted};

/// An accelerated redis at every address of host B, and a load for it that does not end by itself.
fn redis(hosts: &Interfaces) -> [Program; 2] {
    let mut server = hosts.start_accelerated(redis_at("0.0.0.0"));
    server.until(PATIENCE, |one| listens(one.pid(), 6379)).expect("it listens");
    let words = format!("redis-benchmark -h {SERVERS} -t set,get -n 2000 -c 10 -q -l");
    let mut load = hosts.lab.start(Side::A, Task::words(&words)).expect("it starts");
    load.until(PATIENCE, |_| hosts.counter("accepts") >= 10).expect("it is served");
    [server, load]
}

/// Waits until the engine has sent more for its own sockets.
fn progresses(hosts: &Interfaces) {
    let before = hosts.sent_by_engine();
    let is_more = || hosts.sent_by_engine() > before + 100;
    until("the accelerated server stands still", is_more, || before.to_string());
}

#[test]
fn logins_and_files_of_sshd_pass_beside_an_accelerated_server() {
    let test = "logins_and_files_of_sshd_pass_beside_an_accelerated_server";
    let Some(_turn) = turn(test) else { return };
    let hosts = Interfaces::nic("adaptive");
    let _redis = redis(&hosts);
    let keys = hosts.lab.scratch().join("ssh");
    let sshd = scripted(&hosts.lab, "sshd.sh").arg(&keys).args([&SERVERS.to_string(), "2222"]);
    let mut sshd = hosts.lab.start(Side::B, sshd).expect("it starts");
    sshd.until(PATIENCE, |one| listens(one.pid(), 2222)).expect("it listens");
    let (key, file) = (keys.join("user"), hosts.lab.scratch().join("file"));
    let options = format!(
        "-F none -i {} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR \
         -o BatchMode=yes",
        key.display()
    );
    let (file, at) = (file.display(), format!("root@{SERVERS}"));
    let before = hosts.of_port("kernel_rx_frames");
    let said = hosts.shell(
        Side::A,
        &format!(
            "head -c 10000000 /dev/urandom >{file}\n\
             ssh -n {options} -p 2222 {at} echo in\n\
             scp -O {options} -P 2222 {file} {at}:{file}.there\n\
             scp -O {options} -P 2222 {at}:{file}.there {file}.back\n\
             cmp {file} {file}.there\n\
             cmp {file} {file}.back"
        ),
    );
    assert_eq!(said, "in\n");
    assert!(hosts.of_port("kernel_rx_frames") - before >= 20_000_000 / 65_536, "by another way");
    progresses(&hosts);
}

#[test]
fn ipv6_and_fragments_pass_both_ways() {
    let Some(_turn) = turn("ipv6_and_fragments_pass_both_ways") else { return };
    let hosts = Interfaces::nic("adaptive");
    let [clients, servers] = [CLIENTS.to_string(), SERVERS.to_string()];
    let ways =
        [(Side::A, &*servers), (Side::B, &*clients), (Side::A, SERVERS_V6), (Side::B, CLIENTS_V6)];
    for (side, address) in ways {
        for bytes in [56, 4000] {
            let before = hosts.of_port("kernel_tx_frames");
            let words = format!("ping -c 10 -i 0.02 -W 20 -s {bytes} {address}");
            let pings = hosts.output(side, &words);
            assert!(pings.contains("10 received"), "{words}: {pings}");
            let least = if bytes > 1500 { 30 } else { 10 };
            assert!(hosts.of_port("kernel_tx_frames") - before >= least, "{words}: {pings}");
        }
    }
    assert_eq!(hosts.counter("echo_replies"), 0);
    // TCP of the kernel's, both ways.
    let folder = hosts.lab.scratch().display().to_string();
    std::fs::write(hosts.lab.scratch().join("data"), "kernel".repeat(100_000)).expect("a file");
    for (side, address) in [(Side::A, SERVERS_V6), (Side::B, CLIENTS_V6)] {
        let words = format!("{PYTHON} -m http.server -b {address} -d {folder} 8000");
        let mut web = hosts.lab.start(side.other(), Task::words(&words)).expect("it starts");
        web.until(PATIENCE, |one| listens(one.pid(), 8000)).expect("it listens");
        let fetched = hosts.output(side, &format!("curl -sf http://[{address}]:8000/data"));
        assert_eq!(fetched, "kernel".repeat(100_000));
    }
    assert_eq!(hosts.counter("accepts") + hosts.counter("tcp_active_opens"), 0);
}

/// The kernel's thread of an interface, with the policy by which it gets a core.
fn schedule(hosts: &Interfaces, policy: &str) {
    let name = &hosts.name;
    hosts.shell(
        Side::B,
        &format!(
            "for task in /proc/[0-9]*; do\n\
             case $(cat $task/comm 2>/dev/null) in napi/{name}-*)\n\
             chrt {policy} -p 0 ${{task#/proc/}}; found=yes;; esac\n\
             done\n\
             test \"$found\" = yes"
        ),
    );
}

#[test]
#[ignore = "new: passes beside a busy loop, not run often enough for make test"]
fn a_kernel_that_gets_no_time_loses_counted_frames_and_others_go_on() {
    let test = "a_kernel_that_gets_no_time_loses_counted_frames_and_others_go_on";
    let Some(_turn) = turn(test) else { return };
    // The engine takes the core whose leavings alone the kernel's thread gets.
    let hosts = Interfaces::nic("busy");
    let _redis = redis(&hosts);
    schedule(&hosts, "-i");
    let flood = format!(
        "import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.connect(('{SERVERS}', 9))\n\
         while True:\n\
         \x20   try: s.send(bytes(1400))\n\
         \x20   except OSError: pass"
    );
    let task = Task::new(PYTHON).args(["-c", &flood]);
    let flood = hosts.lab.start(Side::A, task).expect("it starts");
    let seen = || {
        let [taken, dropped] =
            ["kernel_rx_frames", "kernel_rx_dropped"].map(|name| hosts.of_port(name));
        format!("{taken} taken, {dropped} dropped")
    };
    until("nothing is dropped", || hosts.of_port("kernel_rx_dropped") > 100, seen);
    progresses(&hosts);
    flood.stop();
    schedule(&hosts, "-o");
    let pings = hosts.output(Side::A, &format!("ping -c 5 -i 0.02 -W 20 {SERVERS}"));
    assert!(pings.contains("5 received"), "{pings}");
    progresses(&hosts);
}

/// Whether a program is installed that only these tests need.
fn has(test: &str, program: &str, package: &str) -> bool {
    let is_there = lab::require_programs(&[program]).is_ok();
    if !is_there {
        skips::skip(test, program, &format!("{package} is not installed"));
    }
    is_there
}

#[test]
fn nmap_finds_what_is_open_from_both_sides() {
    let test = "nmap_finds_what_is_open_from_both_sides";
    let Some(_turn) = turn(test).filter(|_| has(test, "nmap", "nmap")) else { return };
    let hosts = Interfaces::nic("adaptive");
    let mut server = hosts.start_accelerated(redis_at("0.0.0.0"));
    server.until(PATIENCE, |one| listens(one.pid(), 6379)).expect("it listens");
    until("the engine serves nobody", || lab::serves(&hosts.socket, 6379), String::new);
    let mut webs = Vec::new();
    for side in Side::BOTH {
        let words = format!("{PYTHON} -m http.server 8000");
        let mut web = hosts.lab.start(side, Task::words(&words)).expect("it starts");
        web.until(PATIENCE, |one| listens(one.pid(), 8000)).expect("it listens");
        webs.push(web);
    }
    let resets = hosts.counter("resets_sent");
    let scan = |side, method: &str, address| {
        let words = format!("nmap -n -Pn {method} -T4 --reason -p 6379,8000,8001 {address}");
        hosts.output(side, &words)
    };
    for method in ["-sS", "-sT"] {
        let found = scan(Side::A, method, SERVERS);
        for line in ["6379/tcp open ", "8000/tcp open ", "8001/tcp closed "] {
            assert!(found.contains(line), "{method}: {line}: {found}");
        }
        // The kernel's own nmap, through the interface.
        let found = scan(Side::B, method, CLIENTS);
        for line in ["6379/tcp closed ", "8000/tcp open ", "8001/tcp closed "] {
            assert!(found.contains(line), "{method}: {line}: {found}");
        }
    }
    assert_eq!(hosts.counter("resets_sent"), resets, "of a port of the kernel's");
}

/// What iperf3 measures from host A to `address`, or back.
fn iperf(lab: &Lab, address: &str, words: &str) -> f64 {
    let task = Task::words(&format!("iperf3 -s -1 -B {address}"));
    let mut server = lab.start(Side::B, task).expect("it starts");
    server.until(PATIENCE, |one| listens(one.pid(), 5201)).expect("it listens");
    let task = Task::words(&format!("iperf3 -J -c {address} {words}"));
    let ended = lab.start(Side::A, task).and_then(|one| one.wait(PATIENCE)).expect("it ends");
    parse::iperf3(&ended.output).expect("a result").bits_per_second
}

#[test]
fn iperf_passes_both_ways() {
    let Some(_turn) = turn("iperf_passes_both_ways") else { return };
    let hosts = Interfaces::nic("adaptive");
    for (words, counter) in [("", "kernel_rx_frames"), ("-R", "kernel_tx_frames")] {
        let before = hosts.of_port(counter);
        assert!(iperf(&hosts.lab, &SERVERS.to_string(), &format!("-n 50M {words}")) > 0.0);
        let frames = hosts.of_port(counter) - before;
        assert!(frames >= 50 * 1024 * 1024 / 65_536, "{words}: {frames} frames");
    }
}

/// `make nic`: what is printed is for people.
#[test]
#[ignore = "measures"]
fn bulk_beside_a_plain_link() {
    let Some(_turn) = turn("bulk_beside_a_plain_link") else { return };
    const PLAIN: &str = "10.78.1.2";
    let hosts = Interfaces::nic("adaptive");
    let plain = ["10.78.1.1", PLAIN].map(|address| address.parse().expect("an address"));
    let link = hosts.lab.join(Some(plain)).expect("a link");
    hosts.lab.suit(&link, lab::Traffic::Bulk).expect("a link for bulk");
    let nic = SERVERS.to_string();
    for (words, way) in [("-t 1", "received"), ("-t 1 -R", "sent")] {
        let mut ratios = Vec::new();
        for round in 0..5 {
            let [plain, nic] = [PLAIN, &nic].map(|address| iperf(&hosts.lab, address, words));
            let ratio = nic / plain;
            eprintln!(
                "{way}, round {round}: plain veth {:.2} Gbit/s, nic {:.2} Gbit/s, {ratio:.2}",
                plain / 1e9,
                nic / 1e9
            );
            ratios.push(ratio);
        }
        ratios.sort_by(f64::total_cmp);
        eprintln!(
            "{way}: nic over plain veth {:.2} ({:.2} to {:.2})",
            ratios[2], ratios[0], ratios[4]
        );
    }
}
