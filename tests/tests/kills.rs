//! The engine is killed again and again under load, and started again: the server on its interface
//! never stops being reachable, what the kernel has accepted meanwhile lives on, nothing leaks.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use lab::nginx;
use lab::{Program, Side, Task};
use outboard_tests::joined::{Joined, Keeper, PATIENCE, SERVER, eventually};
use outboard_tests::turn;
use outboard_tests::world::{PYTHON, script, scripted};

/// Longest time in which no new connection may be answered, beside what the machine itself takes.
const GAP_MS: u64 = 200;
/// The same where other work may run beside the test, which the machine's share does not show whole.
const GAP_MS_BUSY: u64 = 5 * GAP_MS;
/// Port of a redis that no engine knows: what the machine itself does to a prober.
const CONTROL: u16 = 6380;
/// Connections that an engine has accepted when it is killed, at least.
const ACCEPTS_MIN: u64 = 100;
/// Connections that the kernel accepted which are held at a time.
const HELD: u32 = 10;

/// What a prober saw of a server.
#[derive(Debug)]
struct Reached {
    probes: u64,
    answered: u64,
    gap_ms: u64,
}

/// What could leak.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    /// BPF programs, maps and links of the machine.
    bpf: Vec<u64>,
    /// Descriptors of redis.
    descriptors: usize,
    /// Memory files that redis has mapped.
    memfds: usize,
    /// Network namespaces with a name.
    namespaces: usize,
}

impl Held {
    fn now(joined: &Joined, redis: &Program) -> Self {
        let task = Task::new(PYTHON).arg(script(&joined.lab, "bpf.py"));
        let said = joined.run(Side::B, task).output;
        let process = format!("/proc/{}", redis.pid());
        let maps = fs::read_to_string(format!("{process}/maps")).unwrap_or_default();
        let memfds: BTreeSet<&str> = maps
            .lines()
            .filter(|line| line.contains("memfd:"))
            .filter_map(|line| line.split_whitespace().nth(4))
            .collect();
        let count = |path: &str| fs::read_dir(path).map_or(0, Iterator::count);
        Self {
            bpf: said.split_whitespace().filter_map(|word| word.parse().ok()).collect(),
            descriptors: count(&format!("{process}/fd")),
            memfds: memfds.len(),
            namespaces: count("/run/netns"),
        }
    }

    fn is_within(&self, before: &Self) -> bool {
        self.bpf.iter().zip(&before.bpf).all(|(now, before)| now <= before)
            && self.descriptors <= before.descriptors
            && self.memfds <= before.memfds
            && self.namespaces <= before.namespaces
    }
}

fn reached(prober: &str, port: u16) -> Reached {
    let line = prober.lines().find(|line| line.starts_with(&format!("{port} "))).expect(prober);
    let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [_, probes, answered, gap_ms] = numbers[..] else { panic!("{line}") };
    Reached { probes, answered, gap_ms }
}

/// Kills the engine `kills` times; what was seen, in Markdown. No new connection may be without an
/// answer for longer than `gap_ms`.
fn endure(kills: u32, gap_ms: u64) -> String {
    let mut joined = Joined::start();
    let redis = joined.redis();
    let nginx = nginx::configure("0.0.0.0", 8080, joined.lab.scratch()).expect("a configuration");
    let nginx = Task::new("nginx").arg("-c").arg(nginx);
    let _nginx = joined.serve_accelerated(nginx, 8080);
    let plain = Task::words("redis-server --bind 0.0.0.0 --protected-mode no --port 6380 --save ");
    let _plain = joined.serve(plain.args(["", "--appendonly", "no", "--dir", "/tmp"]), CONTROL);
    assert!(joined.answers(SERVER));
    let before = Held::now(&joined, &redis);
    // Both begin again whenever their connections are reset.
    let again = |line: &str| {
        let task = Task::new("sh").args(["-c", &format!("while :; do {line}; done")]);
        joined.lab.start(Side::A, task).expect("load")
    };
    let loads = [
        again(&format!("redis-benchmark -h {SERVER} -c 10 -n 2000 -t set,get -q")),
        again(&format!(
            "wrk -t 1 -c 10 -d 2s -H 'Connection: close' http://{SERVER}:8080/index.html"
        )),
    ];
    let stop = joined.lab.scratch().join("stop");
    let task = scripted(&joined.lab, "prober.py").arg(&stop);
    let task = task.args([SERVER.to_owned(), "6379".into(), CONTROL.to_string()]);
    let prober = joined.lab.start(Side::A, task).expect("a prober");
    let mut keeper = Keeper::start(&joined, Side::A, false);
    let mut accelerated = 0;
    for kill in 0..kills {
        joined.engine = None; // SIGKILL
        // This one the kernel accepts, for there is nobody else.
        let name = format!("c{kill}");
        assert_eq!(keeper.open(&name, SERVER, 6379), "ok", "kill {kill}");
        assert_eq!(keeper.ask(&name, 0), "ok", "kill {kill}");
        joined.start_engine();
        eventually("acceleration of both servers", || {
            joined.is_accelerated(6379) && joined.is_accelerated(8080)
        });
        eventually("connections of the engine's", || joined.counter("accepts") >= ACCEPTS_MIN);
        accelerated += joined.counter("accepts");
        for held in kill.saturating_sub(HELD - 1)..=kill {
            assert_eq!(keeper.ask(&format!("c{held}"), 0), "ok", "c{held} after kill {kill}");
        }
        if let Some(old) = kill.checked_sub(HELD - 1) {
            assert_eq!(keeper.end(&format!("c{old}")), "ok");
        }
    }
    drop(loads);
    fs::write(&stop, "").expect("a file");
    let prober = prober.wait(PATIENCE).expect("the prober ends").output;
    drop(keeper);
    let mut after = Held::now(&joined, &redis);
    eventually("the return of all that was held", || {
        after = Held::now(&joined, &redis);
        after.is_within(&before)
    });
    assert!(before.bpf.iter().all(|&count| count > 0) && before.descriptors > 0, "{before:?}");
    let [server, control] = [6379, CONTROL].map(|port| reached(&prober, port));
    let mut text = String::new();
    let _ = writeln!(
        text,
        "| | the server | a server that no engine knows |\n|---|---|---|\n\
         | probes | {} | {} |\n| answered | {} | {} |\n\
         | longest time without an answer | {} ms | {} ms |\n\n\
         Connections that the engines accepted between kills: {accelerated}. Held before and \
         after: {before:?}, {after:?}.",
        server.probes,
        control.probes,
        server.answered,
        control.answered,
        server.gap_ms,
        control.gap_ms,
    );
    eprintln!("{text}");
    assert!(
        server.gap_ms <= gap_ms + control.gap_ms,
        "not reached for {} ms, {} ms of it the machine's doing",
        server.gap_ms,
        control.gap_ms
    );
    text
}

#[test]
fn a_server_stays_reachable_while_its_engine_is_killed_and_started_again() {
    let name = "a_server_stays_reachable_while_its_engine_is_killed_and_started_again";
    let Some(_turn) = turn(name) else { return };
    endure(5, GAP_MS_BUSY);
}

/// The same a hundred times; writes docs/kills.md.
#[test]
#[ignore = "takes minutes: make kills"]
fn kills() {
    let Some(_turn) = turn("kills") else { return };
    let count = std::env::var("KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(100);
    let table = endure(count, GAP_MS);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/kills.md");
    let head = format!(
        "# Kills\n\nWritten by `make kills`: the engine on an `xdp` port is killed (SIGKILL) \
         {count} times under redis-benchmark and wrk, both reconnecting, and started again. \
         Meanwhile a prober connects every 5 ms to the accelerated redis and to one that no engine \
         knows, on the same core. Connections that the kernel accepted between engines are used \
         after each restart; none was reset.\n\n"
    );
    fs::write(path, head + &table).expect("docs/kills.md is writable");
}
