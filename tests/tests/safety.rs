//! Trying an engine is safe: it goes again unless confirmed, says what does not apply to what it
//! serves, leaves to the kernel what it is told to, and keeps no more rights than it needs.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use outboard::demo::bench::listens;
use outboard::lab::{self, Lab, Link, Program, Side, Task};
use outboard::observer::Observer;
use outboard_tests::turn;
use outboard_tests::world::{PYTHON, executable};

const PATIENCE: Duration = Duration::from_secs(60);
const SERVER: &str = "10.78.0.2";

/// Two hosts on a link; the server's is to get an engine.
struct Pair {
    lab: Lab,
    link: Link,
    executable: PathBuf,
    socket: PathBuf,
}

impl Pair {
    fn new() -> Self {
        let lab = Lab::new().expect("a laboratory");
        let addresses = ["10.78.0.1", SERVER].map(|address| address.parse().expect("an address"));
        let link = lab.join(Some(addresses)).expect("a link");
        let socket = lab.scratch().join("engine/b.sock");
        Self { link, socket, executable: executable().expect("built"), lab }
    }

    /// An engine with more arguments, and with `settings` in its file.
    fn engine(&self, settings: &str, arguments: &[&str]) -> Program {
        let file = self.lab.scratch().join("engine.toml");
        let port = format!("ports = [\"xdp:{},ports=16\"]\n", self.link.end(Side::B));
        std::fs::write(&file, port + settings).expect("a file");
        let task = Task::new(&self.executable).args(["engine", "--config"]).arg(&file);
        let task = task.arg("--socket").arg(&self.socket).args(arguments);
        let mut engine = self.lab.start(Side::B, task).expect("an engine");
        engine.until(PATIENCE, |one| one.output().contains("ready")).expect("it gets ready");
        engine
    }

    fn redis(&self) -> Program {
        let words = "redis-server --bind 0.0.0.0 --protected-mode no --appendonly no --save";
        let task = Task::words(words).arg("").args(["--dir", "/tmp"]);
        let task = task.accelerated(&self.executable, &self.socket);
        let mut redis = self.lab.start(Side::B, task).expect("redis");
        redis.until(PATIENCE, |server| listens(server.pid(), 6379)).expect("it listens");
        redis
    }

    fn answer(&self) -> String {
        let ping = Task::words(&format!("redis-cli -h {SERVER} ping"));
        let finished = self.lab.start(Side::A, ping).and_then(|one| one.wait(PATIENCE));
        finished.expect("redis-cli ends").output.trim().to_owned()
    }

    /// What `outboard` says to these words on the server's host.
    fn outboard(&self, words: &str) -> String {
        let mut all = words.split(' ');
        let command = all.next().unwrap_or_default();
        let task = Task::new(&self.executable).arg(command).arg("--socket").arg(&self.socket);
        let task = task.args(all);
        let finished = self.lab.start(Side::B, task).and_then(|one| one.wait(PATIENCE));
        finished.map_or_else(|failure| failure.to_string(), |one| one.output + &one.errors)
    }

    fn counter(&self, name: &str) -> u64 {
        let stats = Observer::connect(&self.socket).and_then(|mut observer| observer.stats());
        stats.expect("an engine answers").counter(name)
    }
}

#[test]
fn an_engine_that_nobody_confirms_ends_and_gives_everything_back() {
    let Some(_turn) = turn("an_engine_that_nobody_confirms_ends") else { return };
    let pair = Pair::new();
    let engine = pair.engine("", &[]);
    let _redis = pair.redis();
    drop(engine);
    // redis attaches to this one, or is too late for it: no matter.
    let engine = pair.engine("", &["--confirm", "2"]);
    let finished = engine.wait(PATIENCE).expect("it ends by itself");
    assert_eq!(finished.status.code(), Some(3), "{}", finished.errors);
    assert!(finished.errors.contains("nobody has confirmed"), "{}", finished.errors);
    let shown = pair.lab.inside(Side::B, &["ip", "link", "show", &pair.link.end(Side::B)]);
    assert!(!shown.expect("ip runs").contains("xdp"), "the program is detached");
    assert_eq!(pair.answer(), "PONG", "the kernel's half of the listener serves");
    // One that is confirmed stays, and one that is not on trial says so.
    let mut engine = pair.engine("", &["--confirm", "600"]);
    assert!(engine.errors().contains("outboard confirm"), "{}", engine.errors());
    assert!(pair.outboard("confirm").contains("the engine stays"));
    assert!(engine.is_running());
    drop(engine);
    let route = ["ip", "route", "add", "default", "via", "10.78.0.1"];
    pair.lab.inside(Side::B, &route).expect("a route");
    let engine = pair.engine("", &[]);
    let named = engine.errors().contains("carries this machine's default route");
    assert!(named && engine.errors().contains("--confirm 60"), "{}", engine.errors());
    let said = pair.outboard("confirm");
    assert!(said.contains("not started with --confirm"), "{said}");
}

#[test]
fn a_trial_ends_also_when_nobody_can_be_told() {
    let Some(_turn) = turn("a_trial_ends_also_when_nobody_can_be_told") else { return };
    let pair = Pair::new();
    let file = pair.lab.scratch().join("engine.toml");
    let port = format!("ports = [\"xdp:{},ports=16\"]\n", pair.link.end(Side::B));
    std::fs::write(&file, port).expect("a file");
    // Standard error is a pipe that nobody reads, as after the loss of a connection.
    let unheard = "{ { \"$@\"; echo ended with $? >&3; } 2>&1 >/dev/null | true; } 3>&1";
    let task = Task::new("sh").args(["-c", unheard, "sh"]).arg(&pair.executable);
    let task = task.args(["engine", "--confirm", "1", "--config"]).arg(&file);
    let task = task.arg("--socket").arg(&pair.socket);
    let finished = pair.lab.start(Side::B, task).and_then(|one| one.wait(PATIENCE));
    let finished = finished.expect("it ends by itself");
    assert!(finished.output.contains("ended with 3"), "{}", finished.output);
}

#[test]
fn an_engine_keeps_only_the_capability_that_it_needs_and_serves_as_its_own_user() {
    let Some(_turn) = turn("an_engine_keeps_only_the_capability_that_it_needs") else { return };
    let pair = Pair::new();
    let engine = pair.engine("user = \"nobody\"\nsocket_group = \"nogroup\"\n", &[]);
    // An answer tells that all threads have begun their work.
    assert!(pair.counter("turns") > 0);
    // Nor has the thread any that writes what a capture keeps.
    let mut observer = Observer::connect(&pair.socket).expect("an engine");
    let frames = File::create(pair.lab.scratch().join("frames")).expect("a file");
    observer.capture("", 64, "", frames.as_fd()).expect("a capture");
    let tasks = format!("/proc/{}/task", engine.pid());
    let mut seen = 0;
    for task in std::fs::read_dir(tasks).expect("its threads").flatten() {
        let text = std::fs::read_to_string(task.path().join("status")).expect("its status");
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let kept = match field("Name:").as_str() {
            // CAP_NET_ADMIN: to tell the kernel of neighbours in use.
            "outboard-ctl" => 1 << 12,
            // And CAP_NET_RAW: to list the firewall's rules, old ones, too.
            "firewall" => 1 << 12 | 1 << 13,
            _ => 0u64,
        };
        for set in ["CapEff:", "CapPrm:"] {
            assert_eq!(field(set), format!("{kept:016x}"), "{set} {text}");
        }
        assert_eq!(field("NoNewPrivs:"), "1", "{text}");
        assert_eq!(field("Uid:"), "65534 65534 65534 65534", "{text}");
        assert_eq!(field("CapBnd:"), format!("{:016x}", 1 << 12 | 1 << 13), "{text}");
        seen += 1;
    }
    assert!(seen >= 5, "{seen} threads");
    drop(observer);
    // It serves, finds its neighbours, and follows the kernel.
    let _redis = pair.redis();
    assert_eq!(pair.answer(), "PONG");
    assert_eq!(pair.counter("accepts"), 1);
}

#[test]
fn members_of_the_group_use_the_socket_within_what_their_user_may_have() {
    let Some(_turn) = turn("members_of_the_group_use_the_socket") else { return };
    let pair = Pair::new();
    let settings = "user = \"nobody\"\nsocket_group = \"daemon\"\nsocket_mode = 0o660\n\
                    [limits]\nmemory_per_user = 1\n";
    let _engine = pair.engine(settings, &[]);
    let as_bin = |groups: &str, arguments: &[&str]| {
        let task = Task::words("setpriv --reuid 2 --regid 2").arg(groups).arg(&pair.executable);
        let (command, rest) = arguments.split_first().expect("a command");
        let task = task.arg(*command).arg("--socket").arg(&pair.socket).args(rest);
        let finished = pair.lab.start(Side::B, task).and_then(|one| one.wait(PATIENCE));
        finished.expect("it ends")
    };
    let refused = as_bin("--clear-groups", &["stats"]);
    assert!(refused.errors.contains("Permission denied"), "{}", refused.errors);
    let let_in = as_bin("--groups=1", &["stats"]);
    assert!(let_in.output.contains("sessions_refused_memory"), "{}", let_in.errors);
    let confirmed = as_bin("--groups=1", &["confirm"]);
    assert!(confirmed.errors.contains("only root and the engine's own user"));
    let listen = "import socket; socket.create_server(('', 6379))";
    let listened = as_bin("--groups=1", &["run", "--", PYTHON, "-c", listen]);
    assert!(listened.status.success(), "the kernel serves: {}", listened.errors);
    assert!(listened.errors.contains("memory_per_user"), "{}", listened.errors);
    assert!(pair.counter("sessions_refused_memory") > 0);
}

#[test]
fn firewall_rules_on_an_accelerated_port_are_named_and_so_are_the_owners_of_sockets() {
    let test = "firewall_rules_on_an_accelerated_port_are_named";
    let Some(_turn) = turn(test) else { return };
    let pair = Pair::new();
    let has_rules = lab::require_programs(&["nft", "iptables-nft", "iptables-legacy"]).is_ok();
    if has_rules {
        for words in [
            "add table inet t",
            "add chain inet t own { type filter hook input priority 0; }",
            "add rule inet t own tcp dport 6379 drop",
            "add rule inet t own tcp dport 6380 drop",
        ] {
            let command: Vec<&str> = ["nft"].into_iter().chain([words]).collect();
            pair.lab.inside(Side::B, &command).expect(words);
        }
        for program in ["iptables-nft", "iptables-legacy"] {
            let rule = "-A INPUT -p tcp -m tcp --dport 6379 -j DROP";
            let command: Vec<&str> = [program].into_iter().chain(rule.split(' ')).collect();
            pair.lab.inside(Side::B, &command).expect(program);
        }
    } else {
        eprintln!("SKIPPED in {test}: rules, for nft or iptables are not installed");
    }
    let mut engine = pair.engine("", &[]);
    let _redis = pair.redis();
    if has_rules {
        for named in [
            "nftables inet t own: tcp dport 6379 drop",
            "iptables-nft filter INPUT: -p tcp -m tcp --dport 6379 -j DROP",
            "iptables-legacy filter INPUT: -p tcp -m tcp --dport 6379 -j DROP",
        ] {
            engine.until(PATIENCE, |one| one.errors().contains(named)).expect(named);
        }
        let told = engine.errors().matches("tcp port 6379 while it is accelerated").count();
        assert_eq!(told, 1, "{}", engine.errors());
        assert!(!engine.errors().contains("6380"), "{}", engine.errors());
    }
    assert_eq!(pair.answer(), "PONG", "the rule does not apply");
    let http = Task::new(PYTHON).args(["-m", "http.server", "8000", "--bind", SERVER]);
    let mut http = pair.lab.start(Side::B, http).expect("a server");
    http.until(PATIENCE, |server| listens(server.pid(), 8000)).expect("it listens");
    let sockets = pair.outboard("ss");
    let owner = |port: &str| -> Vec<&str> {
        let lines = sockets.lines().filter(|line| line.contains("LISTEN"));
        let mine = lines.filter(|line| line.contains(&format!(":{port} ")));
        mine.filter_map(|line| line.split_whitespace().next()).collect()
    };
    assert_eq!((owner("6379"), owner("8000")), (vec!["both"], vec!["kernel"]), "{sockets}");
    assert!(sockets.contains("python3"), "{sockets}");
    let top = pair.outboard("top --count 1 --interval 0.2");
    assert!(top.contains("outboard receives") && top.contains("the kernel 2 listeners"), "{top}");
}

#[test]
fn what_the_lists_leave_out_is_the_kernels_unnoticed_and_counted() {
    let Some(_turn) = turn("what_the_lists_leave_out_is_the_kernels") else { return };
    let pair = Pair::new();
    for (list, counter, is_served) in [
        ("ports = [\"tcp:6379\"]", "left_ports", false),
        ("users = [\"root\"]", "left_users", false),
        ("remotes = [\"10.78.0.0/24\"]", "port_rx_left", true),
    ] {
        let _engine = pair.engine(&format!("[deny]\n{list}\n"), &[]);
        let redis = pair.redis();
        assert_eq!(pair.answer(), "PONG", "{list}");
        assert_eq!(redis.errors(), "", "{list}: the program does not notice");
        let label = match counter {
            "port_rx_left" => format!("port_rx_left{{port=xdp:{}}}", pair.link.end(Side::B)),
            other => other.to_owned(),
        };
        let mut counted = 0;
        // The kernel's table of rules is looked at now and then.
        for _ in 0..600 {
            counted = pair.counter(&label);
            if counted > 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(counted > 0, "{list}");
        assert_eq!(pair.counter("accepts"), 0, "{list}");
        let sockets = Observer::connect(&pair.socket).and_then(|mut one| one.sockets());
        let served = sockets.expect("a list").iter().any(|one| one.local.port() == 6379);
        assert_eq!(served, is_served, "{list}");
        if is_served {
            // Nor is a connection to there opened by the engine.
            let fetch = Task::words("curl -s -m 5 http://10.78.0.1:8001/");
            let fetch = fetch.accelerated(&pair.executable, &pair.socket);
            let fetched = pair.lab.start(Side::B, fetch).and_then(|one| one.wait(PATIENCE));
            // Nobody listens there: the kernel says so at once.
            assert_eq!(fetched.expect("it ends").status.code(), Some(7));
            assert_eq!(pair.counter("tcp_active_opens"), 0);
        }
    }
}

#[test]
fn a_capture_keeps_what_its_filter_says_and_tcpdump_reads_it() {
    let Some(_turn) = turn("a_capture_keeps_what_its_filter_says") else { return };
    let pair = Pair::new();
    let _engine = pair.engine("", &[]);
    let _redis = pair.redis();
    let file = pair.lab.scratch().join("frames");
    let words = "exec \"$0\" pcap --socket \"$1\" tcp dst port 6379 and net 10 > \"$2\"";
    let task = Task::new("sh").args(["-c", words]).arg(&pair.executable).arg(&pair.socket);
    let mut capture = pair.lab.start(Side::B, task.arg(&file)).expect("a capture");
    let begun = || std::fs::metadata(&file).is_ok_and(|file| file.len() > 0);
    capture.until(PATIENCE, |_| begun()).expect("it begins");
    assert_eq!(pair.answer(), "PONG");
    let read = || {
        let shown = Command::new("tcpdump").args(["-nr", &file.display().to_string()]).output();
        String::from_utf8_lossy(&shown.expect("tcpdump runs").stdout).into_owned()
    };
    // SYN, ACK, the question and the FIN at least.
    capture.until(PATIENCE, |_| read().lines().count() >= 4).expect("it is written");
    capture.stop();
    let shown = read();
    assert!(shown.lines().all(|line| line.contains("> 10.78.0.2.6379")), "{shown}");
}
