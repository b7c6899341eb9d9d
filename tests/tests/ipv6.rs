//! IPv6 from the wire to unmodified programs: as servers and as clients, on a port of the engine's
//! own and beside the kernel, and what everyday tools say of an engine's address.

use lab::{Lab, Program, Side, Task, find, listens};
use outboard_tests::joined::{Family, Joined, PATIENCE, iperf3_measures};
use outboard_tests::turn;
use outboard_tests::world::{PYTHON, executable, script};

const CLIENT: &str = "fd78::1";
const SERVER: &str = "fd78::2";

/// Gives an interface an IPv6 address at once, without asking whether others have it.
fn give(lab: &Lab, side: Side, interface: &str, address: &str) {
    for words in [
        format!("sysctl -qw net.ipv6.conf.{interface}.disable_ipv6=0"),
        format!("ip addr add {address}/64 dev {interface} nodad"),
    ] {
        lab.inside(side, &words.split(' ').collect::<Vec<_>>()).expect(&words);
    }
}

/// Hosts with an IPv6 address each: the servers' is the engine's, on a packet port.
struct Packet {
    lab: Lab,
    socket: std::path::PathBuf,
    executable: std::path::PathBuf,
    _engine: Program,
}

impl Packet {
    fn start() -> Self {
        let lab = Lab::new().expect("a laboratory");
        let link = lab.join(None).expect("a link");
        give(&lab, Side::A, &link.end(Side::A), CLIENT);
        let (socket, executable) = (lab.scratch().join("b.sock"), executable().expect("built"));
        let port = format!("packet:{},addr=10.78.0.2/24,addr={SERVER}/64", link.end(Side::B));
        let arguments = ["--port", &port, "--poll", "adaptive"];
        let engine = lab.start_engine(Task::new(&executable), Side::B, &socket, &arguments);
        Self { lab, socket, executable, _engine: engine.expect("an engine") }
    }

    fn says(&self, side: Side, task: Task) -> String {
        let task =
            if side == Side::B { task.accelerated(&self.executable, &self.socket) } else { task };
        let finished = self.lab.start(side, task).and_then(|one| one.wait(PATIENCE));
        finished.map_or_else(|failure| failure.to_string(), |one| one.output)
    }

    /// Starts a server and waits until the engine listens for it.
    fn serve(&self, line: &str, port: u16) -> Program {
        let task = Task::words(line).accelerated(&self.executable, &self.socket);
        let mut server = self.lab.start(Side::B, task).expect("a server");
        server.until(PATIENCE, |_| lab::serves(&self.socket, port)).expect("it listens");
        server
    }
}

#[test]
fn everyday_tools_find_an_engines_address_as_they_find_a_kernels() {
    let Some(_turn) = turn("everyday_tools_find_an_engines_address_as_they_find_a_kernels") else {
        return;
    };
    let hosts = Packet::start();
    let says = |line: &str| hosts.says(Side::A, Task::words(line));
    for size in ["56", "1800"] {
        let pinged = says(&format!("ping -6 -c 2 -i 0.2 -W 5 -s {size} {SERVER}"));
        assert!(pinged.contains(" 0% packet loss"), "{pinged}");
    }
    if find("tracepath").is_some() {
        let traced = says(&format!("tracepath -6 -n {SERVER}"));
        assert!(traced.contains("reached") && traced.contains("pmtu 1500"), "{traced}");
    } else {
        eprintln!("tracepath is not installed (iputils-tracepath): not tried");
    }
}

#[test]
fn a_program_reaches_its_engines_own_addresses_over_both_families() {
    let Some(_turn) = turn("a_program_reaches_its_engines_own_addresses_over_both_families") else {
        return;
    };
    let hosts = Packet::start();
    let program = script(&hosts.lab, "own.py");
    let task = Task::new(PYTHON).arg(&program).args(["10.78.0.2", SERVER]);
    let said = hosts.says(Side::B, task);
    let wanted: String = ["10.78.0.2", SERVER]
        .map(|own| {
            format!(
                "{own} tcp whole, closed ECONNREFUSED\n{own} udp marked, in pieces \
                 [1200, 1200, 1200, 1200, 200] closed ECONNREFUSED\n"
            )
        })
        .concat();
    assert_eq!(said, wanted);
}

#[test]
fn programs_serve_and_fetch_over_ipv6() {
    let Some(_turn) = turn("programs_serve_and_fetch_over_ipv6") else { return };
    let hosts = Packet::start();
    let task = script(&hosts.lab, "memcache.py");
    let text = std::fs::read_to_string(&task).expect("the script");
    let directory = hosts.lab.scratch().display().to_string();
    // A server bound to all addresses of both families.
    let _http =
        hosts.serve(&format!("{PYTHON} -m http.server 8000 --bind :: -d {directory}"), 8000);
    let fetch = format!("curl -6 -s http://[{SERVER}]:8000/memcache.py");
    assert_eq!(hosts.says(Side::A, Task::words(&fetch)), text);
    let _redis = hosts.serve("redis-server --bind ::* --protected-mode no --dir /tmp", 6379);
    let ping = format!("redis-cli -h {SERVER} ping");
    assert_eq!(hosts.says(Side::A, Task::words(&ping)).trim(), "PONG");
    // Out of the engine's host.
    let plain = format!("{PYTHON} -m http.server 8001 --bind {CLIENT} -d {directory}");
    let mut server = hosts.lab.start(Side::A, Task::words(&plain)).expect("a server");
    server.until(PATIENCE, |one| listens(one.pid(), 8001)).expect("it listens");
    let fetch = format!("curl -6 -s http://[{CLIENT}]:8001/memcache.py");
    assert_eq!(hosts.says(Side::B, Task::words(&fetch)), text, "with curl under the library");
    let _iperf = hosts.serve(&format!("iperf3 --server --bind {SERVER} --port 5301"), 5301);
    for options in ["", "--udp --bitrate 20M", "--reverse"] {
        let client = format!("iperf3 -6 --client {SERVER} --port 5301 --time 1 --json {options}");
        let measured = iperf3_measures(|| hosts.says(Side::A, Task::words(&client)));
        assert!(measured.bytes > 100_000, "{options}: {measured:?}");
    }
}

#[test]
fn ipv6_is_served_beside_the_kernel() {
    let Some(_turn) = turn("ipv6_is_served_beside_the_kernel") else { return };
    let mut joined = Joined::without_engine_over(Family::V6);
    joined.start_engine();
    let _redis = joined.redis();
    let accepts = joined.counter("accepts");
    assert!(joined.answers(SERVER), "redis over IPv6");
    assert!(joined.counter("accepts") > accepts, "the engine accepted it");
    let pinged = joined.says(Side::A, &format!("ping -6 -c 1 -W 5 {SERVER}"));
    assert!(pinged.contains(" 0% packet loss"), "the kernel answers: {pinged}");
    let text = std::fs::read_to_string(script(&joined.lab, "memcache.py")).expect("the script");
    let directory = joined.lab.scratch().display().to_string();
    let plain = format!("{PYTHON} -m http.server 8001 --bind {CLIENT} -d {directory}");
    let serves = |one: &Program| listens(one.pid(), 8001);
    let _plain = joined.start_ready(Side::A, Task::words(&plain), serves);
    let fetch = format!("curl -6 -s http://[{CLIENT}]:8001/memcache.py");
    assert_eq!(joined.says(Side::A, &fetch), text, "the plain server");
    let opens = joined.counter("tcp_active_opens");
    let fetched = joined.run(Side::B, joined.accelerated(Task::words(&fetch)));
    assert_eq!(fetched.output, text);
    assert_eq!(joined.counter("tcp_active_opens"), opens + 1);
}
