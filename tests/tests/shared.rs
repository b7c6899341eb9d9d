//! An engine on the kernel's own interface and address: what is accelerated and what is not live
//! side by side, and the end of either leaves the other alone.

use std::path::PathBuf;
use std::time::Duration;

use outboard::demo::bench::{listens, start_engine};
use outboard::lab::{Lab, Link, Program, Side, Task};
use outboard::observer::Observer;
use outboard_tests::turn;
use outboard_tests::world::{PYTHON, executable, script};
use rustix::time::{ClockId, clock_gettime};

const PATIENCE: Duration = Duration::from_secs(60);
const CLIENT: &str = "10.78.0.1";
const SERVER: &str = "10.78.0.2";

/// Two hosts on a link with kernel addresses, the servers' with an engine on it.
struct Joined {
    lab: Lab,
    link: Link,
    executable: PathBuf,
    socket: PathBuf,
    engine: Option<Program>,
}

impl Joined {
    fn new() -> Self {
        let lab = Lab::new().expect("a laboratory");
        let addresses = [CLIENT, SERVER].map(|address| address.parse().expect("an address"));
        let link = lab.join(Some(addresses)).expect("a link");
        let socket = lab.scratch().join("b.sock");
        let executable = executable().expect("built");
        let mut joined = Self { lab, link, executable, socket, engine: None };
        joined.start_engine();
        joined
    }

    fn start_engine(&mut self) {
        let port = format!("xdp:{},ports=64", self.link.end(Side::B));
        let arguments = ["--port", &port, "--poll", "adaptive"];
        let engine = Task::new(&self.executable);
        let started = start_engine(&self.lab, engine, Side::B, &self.socket, &arguments);
        self.engine = Some(started.expect("an engine"));
    }

    fn serve(&self, task: Task, port: u16) -> Program {
        let mut server = self.lab.start(Side::B, task).expect("a server");
        server.until(PATIENCE, |server| listens(server.pid(), port)).expect("it listens");
        server
    }

    fn redis(&self) -> Program {
        let task = Task::words("redis-server --bind 0.0.0.0 --protected-mode no --save ").args([
            "",
            "--appendonly",
            "no",
            "--dir",
            "/tmp",
        ]);
        self.serve(task.accelerated(&self.executable, &self.socket), 6379)
    }

    /// What a command says on a host's kernel.
    fn says(&self, side: Side, line: &str) -> String {
        let finished = self.lab.start(side, Task::words(line)).and_then(|one| one.wait(PATIENCE));
        finished.map_or_else(|failure| failure.to_string(), |one| one.output)
    }

    fn answers(&self, address: &str) -> bool {
        self.says(Side::A, &format!("redis-cli -h {address} ping")).trim() == "PONG"
    }

    fn counter(&self, name: &str) -> u64 {
        let stats = Observer::connect(&self.socket).and_then(|mut observer| observer.stats());
        stats.map_or(0, |stats| stats.counter(name))
    }

    fn is_accelerated(&self, port: u16) -> bool {
        let sockets = Observer::connect(&self.socket).and_then(|mut one| one.sockets());
        sockets.is_ok_and(|all| all.iter().any(|socket| socket.local.port() == port))
    }

    fn ip(&self, side: Side, words: &str) -> String {
        let command: Vec<&str> = ["ip"].into_iter().chain(words.split(' ')).collect();
        self.lab.inside(side, &command).expect(words)
    }
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let seconds = || clock_gettime(ClockId::Monotonic).tv_sec;
    let begin = seconds();
    while !condition() {
        assert!(seconds() - begin < PATIENCE.as_secs() as i64, "{what} did not happen");
        std::thread::yield_now();
    }
}

#[test]
fn an_accelerated_server_and_a_plain_one_share_an_address() {
    let Some(_turn) = turn("an_accelerated_server_and_a_plain_one_share_an_address") else {
        return;
    };
    let joined = Joined::new();
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
    let mut joined = Joined::new();
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
    eventually("attaching again", || {
        // Serving a connection is an occasion for redis to look for an engine.
        let _ = joined.answers(SERVER);
        joined.is_accelerated(6379)
    });
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
    let joined = Joined::new();
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
    let ping = format!("redis-cli -h {SERVER} ping");
    joined.ip(Side::A, &format!("route add {SERVER}/32 dev {a} src 192.0.2.1"));
    eventually("an answer by the route", || {
        let accepts = joined.counter("accepts");
        joined.says(Side::A, &ping).trim() == "PONG" && joined.counter("accepts") > accepts
    });
}
