//! `outboard run --explain`, and what `run` says before a program starts.

use lab::observer::Observer;
use lab::{Program, Side, Task};
use outboard_tests::joined::{CLIENT, Joined, PATIENCE, SERVER, eventually};
use outboard_tests::turn;
use outboard_tests::world::{PYTHON, script, scripted};

const PORT: u16 = 7000;

/// Takes connections for ever.
const TAKES: &str = "
import socket, sys
s = socket.create_server((sys.argv[1], int(sys.argv[2])))
print('listens', flush=True)
while True:
    taken = s.accept()[0]
    taken.recv(6)
    taken.close()
";

/// A task run by `outboard run` with more arguments of run's.
fn run_with(joined: &Joined, arguments: &[&str], task: &[&str]) -> Task {
    let run = Task::new(&joined.executable).args(["run", "--socket"]).arg(&joined.socket);
    run.args(arguments).args(task)
}

/// One socket of a report: kind, address, count, owner, reason.
type Line = (String, String, u64, String, String);

/// A process's report: its event and its lines.
type Report = (String, Vec<Line>);

fn reports(text: &str) -> Vec<Report> {
    let report = |line: &str| {
        let told: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let word = |of: &serde_json::Value, name: &str| {
            of.get(name).and_then(|value| value.as_str()).unwrap_or_default().to_owned()
        };
        assert_eq!(told.get("complete").and_then(|value| value.as_bool()), Some(true), "{line}");
        let sockets = told.get("sockets").and_then(|value| value.as_array()).expect("a list");
        let line = |of: &serde_json::Value| {
            let count = of.get("count").and_then(|value| value.as_u64()).unwrap_or(0);
            let [kind, address, owner, reason] =
                ["kind", "address", "owner", "reason"].map(|name| word(of, name));
            (kind, address, count, owner, reason)
        };
        (word(&told, "event"), sockets.iter().map(line).collect())
    };
    text.lines().map(report).collect()
}

/// The line of a kind and address is so.
#[track_caller]
fn expect(report: &Report, kind: &str, address: &str, (count, owner, reason): (u64, &str, &str)) {
    let is_it = |line: &&Line| line.0 == kind && line.1.starts_with(address);
    let line = report.1.iter().find(is_it);
    let line = line.unwrap_or_else(|| panic!("no {kind} {address}: {report:?}"));
    assert_eq!((line.2, line.3.as_str(), line.4.as_str()), (count, owner, reason), "{report:?}");
}

#[test]
fn a_program_reports_what_became_of_its_sockets_however_it_ends() {
    let Some(_turn) = turn("a_program_reports_what_became_of_its_sockets_however_it_ends") else {
        return;
    };
    let joined = Joined::start();
    let port = PORT.to_string();
    let peer = Task::new(PYTHON).args(["-c", TAKES, CLIENT, &port]);
    let listens = |program: &Program| program.output().contains("listens");
    let _peer = joined.start_ready(Side::A, peer, listens);
    let program = script(&joined.lab, "explained.py").display().to_string();
    for way in ["exit", "_exit", "signal", "exec"] {
        let file = joined.lab.scratch().join(format!("{way}.json"));
        let explain = format!("--explain={}", file.display());
        let before = ["accepts", "stream_tx_bytes"].map(|name| joined.counter(name));
        let words = [PYTHON, &program, SERVER, CLIENT, &port, way];
        let task = run_with(&joined, &[&explain, "--json"], &words);
        let explained = joined.start_ready(Side::B, task, listens);
        eventually("acceleration", || joined.sockets_at(PORT) == ["tcp", "udp"]);
        let census = Observer::connect(&joined.socket).and_then(|mut engine| engine.census());
        let census = census.expect("the engine answers");
        let lines = census.iter().flat_map(|of| of.read()).map(|line| line.to_string());
        let lines: Vec<String> = lines.collect();
        for (start, end) in [
            ("3 connections to 127.0.0.1:", ": kernel, loopback"),
            ("1 TCP socket", ": kernel, SO_MARK is implemented only by the kernel"),
            ("1 socket", ": kernel, family AF_UNIX, not IPv4 or IPv6"),
        ] {
            let is_it = |line: &String| line.starts_with(start) && line.ends_with(end);
            assert!(lines.iter().any(is_it), "{way}: {start}: {lines:?}");
        }
        assert!(!lines.iter().any(|line| line.contains("accelerated")), "{way}: {lines:?}");
        let ask = Task::words(&format!("nc -w 10 {SERVER} {PORT}"));
        assert_eq!(joined.run(Side::A, ask).output, "taken", "{way}");
        let ended = explained.wait(PATIENCE).and_then(|one| one.success());
        ended.unwrap_or_else(|error| panic!("{way}: {error}"));
        let after = ["accepts", "stream_tx_bytes"].map(|name| joined.counter(name));
        assert_eq!(after[0], before[0] + 1, "{way}: the engine carried it");
        let sent = "taken".len() + 2 * "opened".len();
        assert!(after[1] >= before[1] + sent as u64, "{way}: the engine carried them");

        let told = reports(&std::fs::read_to_string(&file).expect("a report"));
        // The child ends first.
        let (child, own) = (&told[0], &told[1]);
        let (outboard, kernel) = ("outboard", "kernel");
        let served = format!("{SERVER}:{PORT}");
        let remote = format!("{CLIENT}:{PORT}");
        assert_eq!(child.0, "exit", "{way}");
        expect(child, "opened", &remote, (1, outboard, ""));
        expect(own, "listener", &served, (1, outboard, ""));
        expect(own, "accepted", &served, (1, outboard, ""));
        expect(own, "udp-bound", &served, (1, outboard, ""));
        expect(own, "opened", &remote, (1, outboard, ""));
        expect(own, "opened", "127.0.0.1:", (3, kernel, "loopback"));
        expect(own, "listener", "127.0.0.1:", (1, kernel, "loopback"));
        expect(own, "tcp", "", (1, kernel, "socket-option"));
        expect(own, "other", "", (1, kernel, "family"));
        if way == "exec" {
            assert_eq!((own.0.as_str(), told.len()), ("exec", 3));
            expect(&told[2], "listener", "127.0.0.1:", (1, kernel, "passed"));
            expect(&told[2], "udp-sending", "127.0.0.1:9", (1, kernel, "loopback"));
        } else {
            assert_eq!((own.0.as_str(), told.len()), ("exit", 2), "{way}");
        }
    }
}

/// Connects to itself, and through what the other arguments name.
const CONNECTS: &str = "
import socket, sys
for address in sys.argv[1:]:
    try: socket.create_connection((address, 9), 0.1)
    except OSError: pass
";

#[test]
fn a_program_whose_engine_cannot_serve_it_goes_through_the_kernel_and_tells_why() {
    let test = "a_program_whose_engine_cannot_serve_it_goes_through_the_kernel_and_tells_why";
    let Some(_turn) = turn(test) else { return };
    let mut joined = Joined::without_engine();
    let words = [PYTHON, "-c", CONNECTS, CLIENT];
    let said = |joined: &Joined| {
        let task = run_with(joined, &["--explain"], &words);
        joined.run(Side::B, task).success().expect("the program runs").errors
    };
    // The directory is of the engine's making otherwise.
    std::fs::create_dir_all(joined.socket.parent().expect("a directory")).expect("it is made");
    for (contract, refusal, reason) in [
        ("4711", "contract version 4711", "engine and library have different versions"),
        ("garbage", "is malformed", "the control socket belongs to no engine"),
    ] {
        let other = scripted(&joined.lab, "versions.py").arg(&joined.socket);
        let other = other.args([contract, "another release"]);
        let ready = |program: &Program| program.output().contains("ready");
        let other = joined.start_ready(Side::B, other, ready);
        let said = said(&joined);
        assert!(said.contains(refusal), "{contract}: {said}");
        let line = format!("1 connection to {CLIENT}:9: kernel, {reason}");
        assert!(said.contains(&line), "{contract}: {said}");
        drop(other);
        std::fs::remove_file(&joined.socket).expect("its socket");
    }
    joined.start_engine();
    let task = run_with(&joined, &["--explain"], &[PYTHON, "-c", CONNECTS, "192.0.2.1"]);
    let said = joined.run(Side::B, task).errors;
    let line = "1 connection to 192.0.2.1:9: kernel, no route through the engine's interfaces";
    assert!(said.contains(line), "{said}");
    joined.restart_engine_with(&format!("[deny]\nremotes = [\"{CLIENT}/32\"]\n"));
    let said = joined.run(Side::B, run_with(&joined, &["--explain"], &words)).errors;
    let line = format!("1 connection to {CLIENT}:9: kernel, left to the kernel by [allow] and");
    assert!(said.contains(&line), "{said}");
}

/// Becomes the program that its arguments name, with a listener.
const HANDS_ON: &str = "
import os, socket, sys
s = socket.create_server(('127.0.0.1', 7001))
s.set_inheritable(True)
os.execv(sys.argv[1], sys.argv[1:])
";

#[test]
fn what_keeps_the_library_out_of_a_program_is_told_before_it_starts() {
    let Some(_turn) = turn("what_keeps_the_library_out_of_a_program_is_told_before_it_starts")
    else {
        return;
    };
    let joined = Joined::start();
    let directory = joined.lab.scratch();
    let source = directory.join("main.c");
    std::fs::write(&source, "int main(void) { return 0; }").expect("a file");
    let program = directory.join("static");
    let mut compiler = std::process::Command::new("cc");
    let made = compiler.arg("-static").arg("-o").arg(&program).arg(&source).status();
    assert!(made.expect("cc runs: install gcc").success());
    let program = program.display().to_string();
    let said = joined.run(Side::B, run_with(&joined, &[], &[&program]));
    let line = format!("outboard: {program} is statically linked and loads no library");
    assert!(said.errors.contains(&line), "{said:?}");
    // A script's interpreter is what counts.
    let script = directory.join("script");
    std::fs::write(&script, format!("#!{program}\n")).expect("a file");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, mode).expect("its mode");
    let said = joined.run(Side::B, run_with(&joined, &[], &[&script.display().to_string()]));
    assert!(said.errors.contains(&line), "{said:?}");

    let executable = joined.executable.display().to_string();
    let socket = joined.socket.display().to_string();
    let run = [&executable, "run", "--socket", &socket, "true"];
    let said = joined.run(Side::B, Task::new(PYTHON).args(["-c", HANDS_ON]).args(run));
    let line =
        "is a TCP listener at 127.0.0.1:7001 that the program inherits; the kernel serves it";
    assert!(said.errors.contains(line), "{said:?}");

    let said = joined.run(Side::B, run_with(&joined, &[], &["true"]));
    assert_eq!(said.errors, "", "nothing keeps it out");
}
