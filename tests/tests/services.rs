//! Services across an engine's death and return, over both versions of IP: calls that wait for somebody
//! to come go on, whoever brings what they wait for.

use std::collections::BTreeMap;

use lab::{Program, Side, Task};
use outboard_tests::joined::{Joined, Keeper, PATIENCE, eventually};
use outboard_tests::turn;
use outboard_tests::world::{PYTHON, scripted};

/// First of the three ports of `parked.py`, and what waits at each.
const PORT: u16 = 7000;
const HOWS: [&str; 3] = ["call", "epoll", "poll"];

/// Asks a datagram service until it answers.
const ASK: &str = "
import socket, sys
address, port = sys.argv[1], int(sys.argv[2])
s = socket.socket(socket.AF_INET6 if ':' in address else socket.AF_INET, socket.SOCK_DGRAM)
s.connect((address, port))
s.settimeout(1)
for asked in range(1, 61):
    try:
        s.send(b'question %d' % asked)
        print(asked, s.recv(100).decode(), flush=True)
        break
    except (TimeoutError, ConnectionRefusedError):
        pass
";

/// The programs and what they have been asked.
struct Parked {
    server: Program,
    keeper: Keeper,
    asked: BTreeMap<String, u64>,
    names: u32,
}

impl Parked {
    /// Every call brings something, and goes on waiting: once for a connection, once for a datagram.
    fn serve(&mut self, joined: &Joined, when: &str) {
        for (how, port) in HOWS.into_iter().zip(PORT..) {
            self.names += 1;
            let name = format!("n{}", self.names);
            assert_eq!(self.keeper.open(&name, joined.server(), port), "ok", "{how} {when}");
            assert_eq!(self.keeper.ask(&name, 10_000), "ok", "{how} {when}");
            self.ended(&format!("accept-{how}"), when);
            let task = Task::new(PYTHON).args(["-c", ASK, joined.server(), &port.to_string()]);
            let said = joined.run(Side::A, task);
            let asked = said
                .output
                .trim()
                .split_once(' ')
                .filter(|(asked, answer)| *answer == format!("question {asked}"));
            assert!(asked.is_some(), "{how} {when}: {said:?} {}", self.server.output());
            self.ended(&format!("receive-{how}"), when);
        }
    }

    fn ended(&mut self, call: &str, when: &str) {
        let count = self.asked.entry(call.to_owned()).or_default();
        *count += 1;
        let line = format!("{call} {count}\n");
        let waited = self.server.until(PATIENCE, |server| server.output().contains(&line));
        waited.unwrap_or_else(|error| panic!("{call} {when}: {error}"));
    }
}

#[test]
fn calls_that_wait_for_somebody_outlast_the_engines_death_and_its_return() {
    let name = "calls_that_wait_for_somebody_outlast_the_engines_death_and_its_return";
    let Some(_turn) = turn(name) else { return };
    for mut joined in Joined::over_each_family() {
        let task = scripted(&joined.lab, "parked.py").args([joined.server(), &PORT.to_string()]);
        let ready = |server: &Program| server.output().contains("ready");
        let server = joined.start_ready(Side::B, joined.accelerated(task), ready);
        let keeper = Keeper::start(&joined, Side::A, false);
        let mut parked = Parked { server, keeper, asked: BTreeMap::new(), names: 0 };
        let counters = ["accepts", "datagrams_rx"];
        for round in 0..3 {
            for port in PORT..PORT + 3 {
                eventually("acceleration", || joined.sockets_at(port) == ["tcp", "udp"]);
            }
            let before = counters.map(|name| joined.counter(name));
            parked.serve(&joined, &format!("with an engine, round {round}"));
            let after = counters.map(|name| joined.counter(name));
            assert_eq!(after, before.map(|count| count + 3), "the engine's alone, round {round}");
            // Every call waits again when it is killed.
            joined.engine = None;
            parked.serve(&joined, &format!("without an engine, round {round}"));
            joined.start_engine();
        }
    }
}

/// A service that is asked without a pause loses no answer for good, whoever brings the questions.
#[test]
fn a_datagram_service_under_load_is_answered_on_while_engines_come_and_go() {
    let name = "a_datagram_service_under_load_is_answered_on_while_engines_come_and_go";
    let Some(_turn) = turn(name) else { return };
    for mut joined in Joined::over_each_family() {
        let service =
            scripted(&joined.lab, "datagrams.py").args(["server", joined.server(), "5301"]);
        let ready = |server: &Program| server.output().contains("ready");
        let _service = joined.start_ready(Side::B, joined.accelerated(service), ready);
        let stop = joined.lab.scratch().join("stop");
        let load = scripted(&joined.lab, "datagrams.py").args(["client", joined.server(), "5301"]);
        let load = joined.lab.start(Side::A, load.arg("3600").arg(&stop)).expect("questions");
        for _ in 0..3 {
            eventually("acceleration", || joined.sockets_at(5301) == ["udp"]);
            let before = joined.counter("datagrams_rx");
            eventually("questions to the engine", || joined.counter("datagrams_rx") > before + 20);
            joined.engine = None;
            let kernel = || joined.udp_received(Side::B);
            let before = kernel();
            eventually("questions to the kernel", || kernel() > before + 20);
            joined.start_engine();
        }
        std::fs::write(&stop, "").expect("a file");
        let finished = load.wait(PATIENCE).and_then(|one| one.success()).expect("all are answered");
        assert!(finished.output.contains("all answers equal"), "{}", finished.output);
    }
}

/// A client that has connected its datagram socket through the engine goes on through the kernel, and
/// through the engine that comes next.
#[test]
fn a_datagram_client_with_a_peer_outlasts_the_engines_death_and_its_return() {
    let name = "a_datagram_client_with_a_peer_outlasts_the_engines_death_and_its_return";
    let Some(_turn) = turn(name) else { return };
    for mut joined in Joined::over_each_family() {
        let service =
            scripted(&joined.lab, "datagrams.py").args(["server", joined.client(), "5302"]);
        let ready = |server: &Program| server.output().contains("ready");
        let _service = joined.start_ready(Side::A, service, ready);
        let stop = joined.lab.scratch().join("stop");
        let load = scripted(&joined.lab, "datagrams.py").args(["client", joined.client(), "5302"]);
        let load = joined.accelerated(load.arg("3600").arg(&stop));
        let load = joined.lab.start(Side::B, load).expect("questions");
        for _ in 0..3 {
            eventually("answers by the engine", || joined.counter("datagrams_rx") > 20);
            joined.engine = None;
            let kernel = || joined.udp_received(Side::B);
            let before = kernel();
            eventually("answers by the kernel", || kernel() > before + 20);
            joined.start_engine();
        }
        std::fs::write(&stop, "").expect("a file");
        let finished = load.wait(PATIENCE).and_then(|one| one.success()).expect("all are answered");
        assert!(finished.output.contains("all answers equal"), "{}", finished.output);
    }
}
