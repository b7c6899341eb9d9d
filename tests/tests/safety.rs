//! Trying an engine is safe: it goes again unless confirmed, says what does not apply to what it
//! serves, leaves to the kernel what it is told to, and keeps no more rights than it needs.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;

use lab::observer::Observer;
use lab::{Side, Task};
use outboard_tests::joined::{CLIENT, Joined, PATIENCE, SERVER, eventually, redis};
use outboard_tests::turn;
use outboard_tests::world::PYTHON;

/// Hosts whose engine has `settings` in its file, and more arguments.
fn with_settings(joined: &mut Joined, settings: &str, arguments: &[&str]) {
    joined.engine = None;
    let file = joined.lab.scratch().join("engine.toml");
    std::fs::write(&file, settings).expect("a file");
    let file = file.display().to_string();
    joined.start_engine_with(&[&["--config", &file], arguments].concat());
}

/// What `outboard` says to these words on the server's host.
fn outboard(joined: &Joined, words: &str) -> String {
    let mut all = words.split(' ');
    let command = all.next().unwrap_or_default();
    let task = Task::new(&joined.executable).arg(command).arg("--socket").arg(&joined.socket);
    let finished = joined.run(Side::B, task.args(all));
    finished.output + &finished.errors
}

#[test]
fn an_engine_that_nobody_confirms_ends_and_gives_everything_back() {
    let Some(_turn) = turn("an_engine_that_nobody_confirms_ends") else { return };
    let mut joined = Joined::start();
    let _redis = joined.redis();
    // redis attaches to this one, or is too late for it: no matter.
    with_settings(&mut joined, "", &["--confirm", "2"]);
    let engine = joined.engine.take().expect("an engine");
    let finished = engine.wait(PATIENCE).expect("it ends by itself");
    assert_eq!(finished.status.code(), Some(3), "{}", finished.errors);
    assert!(finished.errors.contains("nobody has confirmed"), "{}", finished.errors);
    let shown = joined.ip(Side::B, &format!("link show {}", joined.link.end(Side::B)));
    assert!(!shown.contains("xdp"), "the program is detached");
    assert!(joined.answers(SERVER), "the kernel's half of the listener serves");
    // One that is confirmed stays, and one that is not on trial says so.
    with_settings(&mut joined, "", &["--confirm", "600"]);
    joined.engine_says("outboard confirm");
    assert!(outboard(&joined, "confirm").contains("the engine stays"));
    assert!(joined.engine.as_mut().is_some_and(|engine| engine.is_running()));
    joined.ip(Side::B, &format!("route add default via {CLIENT}"));
    with_settings(&mut joined, "", &[]);
    joined.engine_says("carries this machine's default route");
    joined.engine_says("--confirm 60");
    let said = outboard(&joined, "confirm");
    assert!(said.contains("not started with --confirm"), "{said}");
}

#[test]
fn a_trial_ends_also_when_nobody_can_be_told() {
    let Some(_turn) = turn("a_trial_ends_also_when_nobody_can_be_told") else { return };
    let joined = Joined::without_engine();
    let file = joined.lab.scratch().join("engine.toml");
    let port = format!("ports = [\"xdp:{},ports=16\"]\n", joined.link.end(Side::B));
    std::fs::write(&file, port).expect("a file");
    // Standard error is a pipe that nobody reads, as after the loss of a connection.
    let unheard = "{ { \"$@\"; echo ended with $? >&3; } 2>&1 >/dev/null | true; } 3>&1";
    let task = Task::new("sh").args(["-c", unheard, "sh"]).arg(&joined.executable);
    let task = task.args(["engine", "--confirm", "1", "--config"]).arg(&file);
    let task = task.arg("--socket").arg(&joined.socket);
    let finished = joined.run(Side::B, task);
    assert!(finished.output.contains("ended with 3"), "{}", finished.output);
}

#[test]
fn an_engine_keeps_only_the_capability_that_it_needs_and_serves_as_its_own_user() {
    let Some(_turn) = turn("an_engine_keeps_only_the_capability_that_it_needs") else { return };
    let mut joined = Joined::without_engine();
    with_settings(&mut joined, "user = \"nobody\"\nsocket_group = \"nogroup\"\n", &[]);
    // An answer tells that all threads have begun their work.
    assert!(joined.counter("turns") > 0);
    // Nor has the thread any that writes what a capture keeps.
    let mut observer = Observer::connect(&joined.socket).expect("an engine");
    let frames = File::create(joined.lab.scratch().join("frames")).expect("a file");
    observer.capture("", 64, "", frames.as_fd()).expect("a capture");
    // A thread that closes what the last observer had may just begin or end.
    let engine = joined.engine().pid();
    eventually("threads with what they need and no more", || {
        faults(engine).map(|fault| eprintln!("{fault}")).is_none()
    });
    drop(observer);
    // It serves, finds its neighbours, and follows the kernel.
    let _redis = joined.redis();
    assert!(joined.answers(SERVER));
    assert_eq!(joined.counter("accepts"), 1);
}

/// What is wrong with the rights of the engine's threads.
fn faults(engine: i32) -> Option<String> {
    let mut seen = 0;
    for task in std::fs::read_dir(format!("/proc/{engine}/task")).expect("its threads").flatten() {
        let Ok(text) = std::fs::read_to_string(task.path().join("status")) else { continue };
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let name = field("Name:");
        let kept = match name.as_str() {
            // CAP_NET_ADMIN: to tell the kernel of neighbours in use.
            "outboard-ctl" => 1 << 12,
            // And CAP_NET_RAW: to list the firewall's rules, old ones, too.
            "firewall" => 1 << 12 | 1 << 13,
            _ => 0u64,
        };
        // It starts no programs.
        let bound = if name == "relay" { 0u64 } else { 1 << 12 | 1 << 13 };
        for (name, expected) in [
            ("CapEff:", format!("{kept:016x}")),
            ("CapPrm:", format!("{kept:016x}")),
            ("NoNewPrivs:", "1".to_owned()),
            ("Uid:", "65534 65534 65534 65534".to_owned()),
            ("CapBnd:", format!("{bound:016x}")),
        ] {
            if field(name) != expected {
                return Some(format!("{name} is not {expected}: {text}"));
            }
        }
        seen += 1;
    }
    (seen < 6).then(|| format!("{seen} threads"))
}

#[test]
fn members_of_the_group_use_the_socket_within_what_their_user_may_have() {
    let Some(_turn) = turn("members_of_the_group_use_the_socket") else { return };
    let mut joined = Joined::without_engine();
    let settings = "user = \"nobody\"\nsocket_group = \"daemon\"\n\
                    [limits]\nlisteners_per_user = 1\n";
    with_settings(&mut joined, settings, &[]);
    // Where another user may read them, wherever they were built.
    let folder = joined.executable.parent().expect("it is in a folder");
    for name in ["outboard", "liboutboard_preload.so"] {
        std::fs::copy(folder.join(name), joined.lab.scratch().join(name)).expect("a copy");
    }
    let executable = joined.lab.scratch().join("outboard");
    let as_bin = |groups: &str, arguments: &[&str]| {
        let task = Task::words("setpriv --reuid 2 --regid 2").arg(groups).arg(&executable);
        let (command, rest) = arguments.split_first().expect("a command");
        let task = task.arg(*command).arg("--socket").arg(&joined.socket).args(rest);
        joined.run(Side::B, task)
    };
    let refused = as_bin("--clear-groups", &["stats"]);
    assert!(refused.errors.contains("Permission denied"), "{}", refused.errors);
    let let_in = as_bin("--groups=1", &["stats"]);
    assert!(let_in.output.contains("listeners_refused"), "{}", let_in.errors);
    let confirmed = as_bin("--groups=1", &["confirm"]);
    assert!(confirmed.errors.contains("only root and the engine's own user"));
    let listen = "import socket\nheld = [socket.create_server(('', 6379 + i)) for i in range(2)]";
    let listened = as_bin("--groups=1", &["run", "--", PYTHON, "-c", listen]);
    assert!(listened.status.success(), "the kernel serves: {}", listened.errors);
    assert!(listened.errors.contains("1 listeners"), "{}", listened.errors);
    assert!(listened.errors.contains("`listeners_per_user`"), "{}", listened.errors);
    assert_eq!(joined.counter("listeners_refused"), 1);
}

#[test]
fn firewall_rules_on_an_accelerated_port_are_named_and_so_are_the_owners_of_sockets() {
    let test = "firewall_rules_on_an_accelerated_port_are_named";
    let Some(_turn) = turn(test) else { return };
    let mut joined = Joined::without_engine();
    // Whichever of the three this machine's programs and kernel have.
    let mut expected = Vec::new();
    let has = |words: &[&str]| joined.lab.inside(Side::B, words).is_ok();
    let rules = [
        "add table inet t",
        "add chain inet t own { type filter hook input priority 0; }",
        "add rule inet t own tcp dport 6379 drop",
        "add rule inet t own tcp dport 6380 drop",
    ];
    if rules.iter().all(|rule| has(&["nft", rule])) {
        expected.push("nftables inet t own: tcp dport 6379 drop".to_owned());
    }
    for program in ["iptables-nft", "iptables-legacy"] {
        let rule = "-A INPUT -p tcp -m tcp --dport 6379 -j DROP";
        let command: Vec<&str> = [program].into_iter().chain(rule.split(' ')).collect();
        if has(&command) {
            let rule = rule.trim_start_matches("-A INPUT ");
            expected.push(format!("{program} filter INPUT: {rule}"));
        }
    }
    eprintln!("{} of 3 kinds of rules can be tried here", expected.len());
    assert!(!expected.is_empty(), "neither nft nor iptables makes a rule here");
    joined.start_engine();
    let _redis = joined.redis();
    for named in &expected {
        joined.engine_says(named);
    }
    let said = joined.engine().errors();
    let told = said.matches("tcp port 6379 while it is accelerated").count();
    assert_eq!(told, 1, "{said}");
    assert!(!said.contains("6380"), "{said}");
    assert!(joined.answers(SERVER), "the rule does not apply");
    let http = Task::new(PYTHON).args(["-m", "http.server", "8000", "--bind", SERVER]);
    let _http = joined.serve(http, 8000);
    let sockets = outboard(&joined, "ss");
    let owner = |port: &str| -> Vec<&str> {
        let lines = sockets.lines().filter(|line| line.contains("LISTEN"));
        let mine = lines.filter(|line| line.contains(&format!(":{port} ")));
        mine.filter_map(|line| line.split_whitespace().next()).collect()
    };
    assert_eq!((owner("6379"), owner("8000")), (vec!["both"], vec!["kernel"]), "{sockets}");
    assert!(sockets.contains("python3"), "{sockets}");
    let top = outboard(&joined, "top --count 1 --interval 0.2");
    assert!(top.contains("outboard receives") && top.contains("the kernel 2 listeners"), "{top}");
}

#[test]
fn what_the_lists_leave_out_is_the_kernels_unnoticed_and_counted() {
    let Some(_turn) = turn("what_the_lists_leave_out_is_the_kernels") else { return };
    let mut joined = Joined::without_engine();
    for (list, counter, is_served) in [
        ("ports = [\"tcp:6379\"]", "left_ports", false),
        ("users = [\"root\"]", "left_users", false),
        ("remotes = [\"10.78.0.0/24\"]", "port_rx_left", true),
    ] {
        with_settings(&mut joined, &format!("[deny]\n{list}\n"), &[]);
        let redis = joined.serve(joined.accelerated(redis()), 6379);
        assert!(joined.answers(SERVER), "{list}");
        assert_eq!(redis.errors(), "", "{list}: the program does not notice");
        let label = match counter {
            "port_rx_left" => format!("port_rx_left{{port=xdp:{}}}", joined.link.end(Side::B)),
            other => other.to_owned(),
        };
        // The kernel's table of rules is looked at now and then.
        eventually(list, || joined.counter(&label) > 0);
        assert_eq!(joined.counter("accepts"), 0, "{list}");
        assert_eq!(joined.is_accelerated(6379), is_served, "{list}");
        if is_served {
            // Nor is a connection to there opened by the engine.
            let fetch = Task::words("curl -s -m 5 http://10.78.0.1:8001/");
            let fetched = joined.run(Side::B, joined.accelerated(fetch));
            // Nobody listens there: the kernel says so at once.
            assert_eq!(fetched.status.code(), Some(7));
            assert_eq!(joined.counter("tcp_active_opens"), 0);
        }
    }
}

#[test]
fn a_capture_keeps_what_its_filter_says_and_tcpdump_reads_it() {
    let Some(_turn) = turn("a_capture_keeps_what_its_filter_says") else { return };
    let joined = Joined::start();
    let _redis = joined.redis();
    let file = joined.lab.scratch().join("frames");
    let words = "exec \"$0\" pcap --socket \"$1\" tcp dst port 6379 and net 10 > \"$2\"";
    let task = Task::new("sh").args(["-c", words]).arg(&joined.executable).arg(&joined.socket);
    let mut capture = joined.lab.start(Side::B, task.arg(&file)).expect("a capture");
    let begun = || std::fs::metadata(&file).is_ok_and(|file| file.len() > 0);
    capture.until(PATIENCE, |_| begun()).expect("it begins");
    assert!(joined.answers(SERVER));
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
