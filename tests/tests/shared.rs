//! An engine on the kernel's own interface and address: what is accelerated and what is not live
//! side by side, and the end of either leaves the other alone.

use lab::{Side, Task, listens};
use outboard_tests::joined::{CLIENT, Family, Joined, PATIENCE, SERVER, eventually};
use outboard_tests::turn;
use outboard_tests::world::{PYTHON, script};

#[test]
fn an_accelerated_server_and_a_plain_one_share_an_address() {
    let Some(_turn) = turn("an_accelerated_server_and_a_plain_one_share_an_address") else {
        return;
    };
    let joined = Joined::start();
    let _redis = joined.redis();
    assert!(joined.is_accelerated(6379));
    let http = Task::new(PYTHON).args(["-m", "http.server", "8000", "--bind", SERVER, "-d"]);
    let _http = joined.serve(http.arg(joined.lab.scratch()), 8000);
    let task = script(&joined.lab, "memcache.py");
    let text = std::fs::read_to_string(&task).expect("the script");
    for _ in 0..3 {
        assert!(joined.answers(SERVER), "redis, accelerated");
        let served = joined.says(Side::A, &format!("curl -s http://{SERVER}:8000/memcache.py"));
        assert_eq!(served, text, "http.server, on the kernel");
        let pinged = joined.says(Side::A, &format!("ping -c 1 -W 5 {SERVER}"));
        assert!(pinged.contains(" 0% packet loss"), "{pinged}");
    }
    assert!(joined.counter("accepts") >= 3);
    assert!(!joined.is_accelerated(8000));
    // Out of the servers' host: a plain program, and one whose connection the engine opens.
    let http = Task::new(PYTHON).args(["-m", "http.server", "8001", "--bind", CLIENT, "-d"]);
    let mut http = joined.lab.start(Side::A, http.arg(joined.lab.scratch())).expect("a server");
    http.until(PATIENCE, |server| listens(server.pid(), 8001)).expect("it listens");
    let line = format!("curl -s http://{CLIENT}:8001/memcache.py");
    assert_eq!(joined.says(Side::B, &line), text);
    assert_eq!(joined.counter("tcp_active_opens"), 0);
    let accelerated = Task::words(&line).accelerated(&joined.executable, &joined.socket);
    let fetched = joined.lab.start(Side::B, accelerated).and_then(|one| one.wait(PATIENCE));
    assert_eq!(fetched.expect("it ends").output, text);
    assert_eq!(joined.counter("tcp_active_opens"), 1);
    // To a plain program on the own address, an accelerated one comes through the kernel.
    let line = format!("curl -s http://{SERVER}:8000/memcache.py");
    let accelerated = Task::words(&line).accelerated(&joined.executable, &joined.socket);
    let fetched = joined.lab.start(Side::B, accelerated).and_then(|one| one.wait(PATIENCE));
    assert_eq!(fetched.expect("it ends").output, text);
}

/// Pings redis, says so, and again for every line that it reads.
const PATIENT_CLIENT: &str = "
import socket, sys, time, os
s = socket.create_connection((sys.argv[1], 6379), 60)
for turn in range(int(sys.argv[3]) + 1):
    while turn and not os.path.exists(sys.argv[2] + str(turn)):
        time.sleep(0.01)
    s.sendall(b'PING\\r\\n')
    print('answer', turn, s.recv(100), flush=True)
";

#[test]
fn the_kernels_connections_live_on_when_the_engine_returns() {
    let Some(_turn) = turn("the_kernels_connections_live_on_when_the_engine_returns") else {
        return;
    };
    let mut joined = Joined::start();
    let _redis = joined.redis();
    assert!(joined.answers(SERVER));
    let shown =
        |joined: &Joined| joined.ip(Side::B, &format!("link show {}", joined.link.end(Side::B)));
    assert!(shown(&joined).contains("xdp"), "the program is attached");
    joined.engine = None; // SIGKILL
    eventually("the program's end", || !shown(&joined).contains("xdp"));
    assert!(joined.answers(SERVER), "the kernel's half of the listener serves");
    let mark = joined.lab.scratch().join("go");
    let client = Task::new(PYTHON).args(["-c", PATIENT_CLIENT, SERVER]).arg(&mark).arg("2");
    let mut client = joined.lab.start(Side::A, client).expect("a client");
    client.until(PATIENCE, |one| one.output().contains("answer 0")).expect("an answer");
    let go = |turn: u32| std::fs::write(format!("{}{turn}", mark.display()), "").expect("a file");
    joined.start_engine();
    eventually("attaching again", || joined.is_accelerated(6379));
    let accepts = joined.counter("accepts");
    go(1);
    client.until(PATIENCE, |one| one.output().contains("answer 1")).expect("an answer");
    assert!(joined.answers(SERVER));
    assert!(joined.counter("accepts") > accepts, "new connections are the engine's");
    go(2);
    let finished = client.wait(PATIENCE).expect("it ends");
    assert!(finished.output.contains("answer 2 b'+PONG"), "{}{}", finished.output, finished.errors);
}

#[test]
fn the_engine_follows_the_kernels_addresses_and_mtu() {
    let Some(_turn) = turn("the_engine_follows_the_kernels_addresses_and_mtu") else { return };
    let joined = Joined::start();
    let _redis = joined.redis();
    assert!(joined.answers(SERVER));
    let [a, b] = Side::BOTH.map(|side| joined.link.end(side));
    joined.ip(Side::B, &format!("addr add 10.78.0.3/24 dev {b}"));
    eventually("acceleration at the new address", || {
        let accepts = joined.counter("accepts");
        assert!(joined.answers("10.78.0.3"), "one of the two halves serves");
        joined.counter("accepts") > accepts
    });
    joined.ip(Side::B, &format!("addr del 10.78.0.3/24 dev {b}"));
    assert!(joined.answers(SERVER));
    // An answer of many segments, none of which is longer than the link allows.
    for mtu in [1300, 1500] {
        for (side, end) in [(Side::A, &a), (Side::B, &b)] {
            joined.ip(side, &format!("link set {end} mtu {mtu}"));
        }
        let set = format!("redis-cli -h {SERVER} setrange big 300000 x");
        assert_eq!(joined.says(Side::A, &set).trim(), "300001");
        let line = format!("redis-cli -h {SERVER} --raw getrange big 0 -1");
        let got = joined.says(Side::A, &line);
        assert!(got.ends_with("x\n"), "{} bytes came", got.len());
    }
    // A route to a network beyond the client's host.
    joined.ip(Side::A, "addr add 192.0.2.1/32 dev lo");
    joined.ip(Side::B, &format!("route add 192.0.2.0/24 via {CLIENT}"));
    joined.ip(Side::A, &format!("route add {SERVER}/32 dev {a} src 192.0.2.1"));
    eventually("an answer by the route", || {
        let accepts = joined.counter("accepts");
        assert!(joined.answers(SERVER), "one of the two halves serves");
        joined.counter("accepts") > accepts
    });
}

#[test]
fn the_engine_follows_what_the_kernels_routes_say_of_paths() {
    let Some(_turn) = turn("the_engine_follows_what_the_kernels_routes_say_of_paths") else {
        return;
    };
    for joined in Joined::over_each_family() {
        let _redis = joined.redis();
        let [a, b] = Side::BOTH.map(|side| joined.link.end(side));
        let program = script(&joined.lab, "shown.py").display().to_string();
        let shows = |what: &str| {
            eventually(what, || {
                let accepts = joined.counter("accepts");
                let line = format!("{PYTHON} {program} {a} {} 6379", joined.server());
                let said = joined.says(Side::A, &line);
                assert!(said.starts_with("hops "), "no connection: {said}");
                said.starts_with(what) && joined.counter("accepts") > accepts
            });
        };
        let usual = match joined.family {
            Family::V4 => "hops 64 mss 1460 window",
            Family::V6 => "hops 64 mss 1440 window",
        };
        shows(usual);
        let network = match joined.family {
            Family::V4 => "10.78.0.0/24",
            Family::V6 => "fd78::/64 metric 256",
        };
        let kernel = format!("proto kernel dev {b}");
        joined.ip(Side::B, &format!("route change {network} {kernel} advmss 600 hoplimit 7"));
        shows("hops 7 mss 600 window");
        let said = "mtu lock 1300 initrwnd 10";
        joined.ip(Side::B, &format!("route change {network} {kernel} {said}"));
        shows(match joined.family {
            Family::V4 => "hops 64 mss 1260 cut window 12480",
            Family::V6 => "hops 64 mss 1240 window 12280",
        });
        joined.ip(Side::B, &format!("route change {network} {kernel}"));
        shows(usual);
        // What the interface's packets have, where routes say nothing.
        let setting = match joined.family {
            Family::V4 => "net.ipv4.ip_default_ttl=33".to_owned(),
            Family::V6 => format!("net.ipv6.conf.{b}.hop_limit=33"),
        };
        joined.lab.inside(Side::B, &["sysctl", "-qw", &setting]).expect("a setting");
        joined.ip(Side::B, &format!("route change {network} {kernel} quickack 1"));
        shows(&usual.replace("64", "33"));
    }
}
