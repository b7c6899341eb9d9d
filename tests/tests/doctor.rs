//! `outboard doctor` from end to end: each finding that can be provoked in a network namespace, told
//! with what to do about it, in words and as JSON.

use lab::{Side, Task};
use outboard_tests::joined::{CLIENT, Joined};
use outboard_tests::turn;

/// A finding of `outboard doctor --json`.
#[derive(Debug)]
struct Finding {
    subject: String,
    verdict: String,
    found: String,
    advice: Option<String>,
}

/// What `outboard doctor` says on host B, started behind these words, with the host's own /sys.
fn said(joined: &Joined, behind: &str, how: &str) -> String {
    let (socket, executable) = (joined.socket.display(), joined.executable.display());
    let line = format!("env OUTBOARD_SOCKET={socket} {behind} {executable} doctor {how}");
    let line: Vec<&str> = line.split_whitespace().collect();
    joined.lab.inside(Side::B, &line).expect("a report")
}

/// What the doctor finds on host B, started behind these words.
fn findings(joined: &Joined, behind: &str) -> Vec<Finding> {
    let said = said(joined, behind, "--json");
    let told: serde_json::Value =
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
    let text = |finding: &serde_json::Value, name: &str| {
        finding.get(name).and_then(|value| value.as_str()).map(str::to_owned)
    };
    let all = told.as_array().expect("a list").iter();
    all.map(|finding| Finding {
        subject: text(finding, "subject").expect("a subject"),
        verdict: text(finding, "verdict").expect("a verdict"),
        found: text(finding, "found").expect("what was found"),
        advice: text(finding, "advice"),
    })
    .collect()
}

/// The one finding about a subject is so, and comes with advice unless it is good.
#[track_caller]
fn expect(findings: &[Finding], subject: &str, verdict: &str, words: &str) {
    let mut about = findings.iter().filter(|finding| finding.subject == subject);
    let finding = about.next().unwrap_or_else(|| panic!("nothing about {subject}: {findings:#?}"));
    assert_eq!(finding.verdict, verdict, "{finding:?}");
    assert!(finding.found.contains(words), "{words}: {finding:?}");
    assert_eq!(finding.advice.is_none(), verdict == "good", "{finding:?}");
}

#[test]
fn a_doctor_finds_nothing_lacking_where_an_engine_runs_and_says_so_in_words() {
    let test = "a_doctor_finds_nothing_lacking_where_an_engine_runs_and_says_so_in_words";
    let Some(_turn) = turn(test) else { return };
    let joined = Joined::start();
    let found = findings(&joined, "");
    expect(&found, "engine", "good", "answers at");
    expect(&found, "CAP_NET_ADMIN", "good", "held");
    expect(&found, "routing rules", "good", "default three");
    let lacking: Vec<_> = found.iter().filter(|finding| finding.verdict == "lacking").collect();
    assert!(lacking.is_empty(), "{lacking:?}");
    let words = said(&joined, "", "");
    for finding in &found {
        assert!(words.contains(&finding.subject), "{}: {words}", finding.subject);
    }
    assert!(words.lines().all(|line| !line.starts_with("LACKS")), "{words}");
}

#[test]
fn a_missing_capability_or_a_limit_that_is_too_low_is_found() {
    let Some(_turn) = turn("a_missing_capability_or_a_limit_that_is_too_low_is_found") else {
        return;
    };
    let joined = Joined::without_engine();
    let without = |names: &str| {
        let less: Vec<String> = names.split(',').map(|name| format!("-{name}")).collect();
        let less = less.join(",");
        format!("setpriv --bounding-set={less} --inh-caps={less}")
    };
    let found = findings(&joined, &without("net_admin"));
    expect(&found, "CAP_NET_ADMIN", "lacking", "not held");
    expect(&found, "CAP_NET_RAW", "good", "held");
    let found = findings(&joined, &without("net_raw"));
    expect(&found, "CAP_NET_RAW", "lacking", "not held");
    let found = findings(&joined, &without("sys_admin,bpf"));
    assert!(found.iter().any(|one| one.verdict == "lacking" && one.found.contains("CAP_BPF")));
    let found = findings(&joined, "prlimit --nofile=1000:1000");
    expect(&found, "open files", "fair", "at most 1000");
    let limits = format!("{} prlimit --memlock=65536:65536", without("ipc_lock"));
    expect(&findings(&joined, &limits), "locked memory", "lacking", "limit 64 KiB");
    expect(&findings(&joined, ""), "engine", "fair", "no engine answers");
}

#[test]
fn what_the_link_and_its_surroundings_lack_for_an_engine_is_found() {
    let Some(_turn) = turn("what_the_link_and_its_surroundings_lack_for_an_engine_is_found") else {
        return;
    };
    let mut joined = Joined::without_engine();
    let b = joined.link.end(Side::B);
    expect(&findings(&joined, ""), &format!("{b}: queues"), "good", "1 receive queue");
    let more = ["ethtool", "-L", &b, "rx", "2"];
    if let Err(failure) = joined.lab.inside(Side::B, &more) {
        skips::skip("what the doctor says of receive queues", "channels", failure.cause());
    } else {
        expect(&findings(&joined, ""), &format!("{b}: queues"), "fair", "2 receive queues");
        joined.lab.inside(Side::B, &["ethtool", "-L", &b, "rx", "1"]).expect("one queue");
    }
    joined.ip(Side::B, &format!("route add default via {CLIENT}"));
    expect(&findings(&joined, ""), &format!("{b}: default route"), "fair", "goes through");
    joined.ip(Side::B, "route del default");
    joined.ip(Side::B, "rule add fwmark 7 table 100");
    expect(&findings(&joined, ""), "routing rules", "fair", "more than the default three");
    joined.ip(Side::B, "rule del fwmark 7 table 100");
    let vlan = format!("link add link {b} name tagged type vlan id 5");
    joined.says(Side::B, &format!("ip {vlan}"));
    if joined.says(Side::B, "ip -o link show tagged").contains("tagged") {
        expect(&findings(&joined, ""), &format!("{b}: VLAN"), "lacking", "VLAN interface tagged");
        joined.ip(Side::B, "link del tagged");
    } else {
        skips::skip("what the doctor says of a VLAN interface", "vlan", "ip link makes none");
    }
    joined.start_engine_on("ports=16,mode=generic", &[]);
    let driver = joined.says(Side::B, &format!("ethtool -i {b}"));
    let verdict = if driver.contains("driver: veth") { "good" } else { "fair" };
    expect(&findings(&joined, ""), &format!("{b}: XDP program"), verdict, "generic mode");
    // No driver of a bridge takes XDP programs.
    joined.ip(Side::B, "link add plain type bridge");
    joined.ip(Side::B, "link set plain up");
    let (task, socket) = (Task::new(&joined.executable), joined.lab.scratch().join("c.sock"));
    let arguments = ["--port", "xdp:plain,ports=16"];
    let other = joined.lab.start_engine(task, Side::B, &socket, &arguments).expect("an engine");
    expect(&findings(&joined, ""), "plain: XDP program", "fair", "generic mode");
    drop(other);
    // What it serves, and who else would have a say in it.
    let rules = [
        "add table inet t",
        "add chain inet t own { type filter hook input priority 0; }",
        "add rule inet t own tcp dport 6379 drop",
        "add rule inet t own ct state invalid drop",
    ];
    for rule in rules {
        joined.lab.inside(Side::B, &["nft", rule]).expect("a rule of the firewall");
    }
    let _redis = joined.redis();
    let found = findings(&joined, "");
    expect(&found, "firewall, tcp port 6379", "fair", "tcp dport 6379 drop");
    expect(&found, "kernel's firewall", "fair", "that accelerated traffic bypasses");
    let told = |subject: &str| found.iter().any(|finding| finding.subject == subject);
    assert!(!told("firewall, tcp port 6380"));
    assert!(joined.answers(joined.server()), "redis through the engine");
}
