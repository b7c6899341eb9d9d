//! An engine on the interface by which its machine forwards for others, under its own address.

use lab::{Program, Side, Task};
use outboard_tests::joined::{Behind, CLIENT, Joined, Keeper, SERVER, eventually};
use outboard_tests::turn;
use outboard_tests::world::{PYTHON, script, scripted};

/// Connects to an echo so many times, from a port of its own if that is not 0, and says how often all
/// that was sent came back.
const CONNECTS: &str = "
import socket, sys
address, count, port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for _ in range(count):
    one = socket.socket()
    one.settimeout(30)
    if port:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(('', port))
        port += 1
    one.connect((address, 7000))
    text = bytes(range(256)) * 100
    one.sendall(text)
    got = b''
    while len(got) < len(text):
        block = one.recv(65536)
        if not block:
            break
        got += block
    print('same' if got == text else 'other', flush=True)
    one.close()
";

/// Lets host B give its address to what it forwards, to these ports (`:low-high`) if any are named; by
/// nft, or by iptables where the kernel or the machine lacks that. `false`: neither is there.
fn masquerade(joined: &Joined, ports: &str) -> bool {
    let b = joined.link.end(Side::B);
    let to = if ports.is_empty() { String::new() } else { format!(" to :{ports}") };
    let to_ports = if ports.is_empty() { String::new() } else { format!(" --to-ports {ports}") };
    let has = |line: &str| joined.lab.inside(Side::B, &line.split(' ').collect::<Vec<_>>()).is_ok();
    let by_nft = || {
        let _ = has("nft delete table ip home");
        has("nft add table ip home")
            && has("nft add chain ip home out { type nat hook postrouting priority 100; }")
            && has(&format!("nft add rule ip home out oifname {b} meta l4proto tcp masquerade{to}"))
    };
    let by_iptables = || {
        let _ = has("iptables -t nat -F POSTROUTING");
        let rule = format!("-A POSTROUTING -o {b} -p tcp -j MASQUERADE{to_ports}");
        has(&format!("iptables -t nat {rule}"))
    };
    by_nft() || by_iptables()
}

fn echoed(joined: &Joined, behind: &Behind, count: u32, port: u32) {
    let path = joined.lab.scratch().join("connects.py");
    std::fs::write(&path, CONNECTS).expect("a file");
    let line = format!("{PYTHON} {} {CLIENT} {count} {port}", path.display());
    let said = behind.says(joined, &line);
    assert_eq!(said.matches("same").count(), count as usize, "{said}");
}

#[test]
fn what_a_host_forwards_and_translates_passes_beside_the_engine() {
    let Some(_turn) = turn("what_a_host_forwards_and_translates_passes_beside_the_engine") else {
        return;
    };
    let mut joined = Joined::without_engine();
    let behind = Behind::start(&joined, Side::B, ["192.168.77.1", "192.168.77.2"]);
    assert!(masquerade(&joined, ""), "neither nft nor iptables translates addresses here");
    joined.start_engine();
    joined.engine_says("masquerade");
    let said = joined.engine().errors() + &joined.engine().output();
    let block = said.split("connects from ports ").nth(1).and_then(|rest| rest.split(' ').next());
    let block: u32 = block.and_then(|port| port.parse().ok()).expect("the engine's ports");
    let echo = Task::new(PYTHON).arg(script(&joined.lab, "echo.py"));
    let echo = echo.args(["epoll", "0.0.0.0", "7000"]);
    let listening = |server: &Program| lab::listens(server.pid(), 7000);
    let _echo = joined.start_ready(Side::A, echo, listening);
    // The engine serves and opens connections on the same address meanwhile.
    let _redis = joined.redis();
    let mut own = Keeper::start(&joined, Side::B, true);
    assert_eq!(own.open("own", CLIENT, 7000), "ok");
    let before = ["accepts", "tcp_active_opens"].map(|name| joined.counter(name));
    echoed(&joined, &behind, 100, 0);
    assert_eq!(own.ask("own", 100_000), "ok");
    // Its ports keep out of the ways of translation when that is told to keep to its own, also of who
    // comes from one of them.
    assert!(masquerade(&joined, "1024-19999"));
    echoed(&joined, &behind, 5, block);
    assert_eq!(own.ask("own", 100_000), "ok");
    // And what is forwarded without translation, in the other direction.
    joined.ip(Side::A, &format!("route add 192.168.77.0/24 via {SERVER}"));
    let folder = joined.lab.scratch().display();
    let server = format!("{PYTHON} -u -m http.server 6379 --bind 192.168.77.2 -d {folder}");
    let serves = |one: &Program| one.output().contains("Serving HTTP");
    let _http = joined.start_ready(Side::B, behind.task(&server), serves);
    let text = std::fs::read_to_string(script(&joined.lab, "memcache.py")).expect("the script");
    let fetched = joined.says(Side::A, "curl -s http://192.168.77.2:6379/memcache.py");
    assert_eq!(fetched, text, "a port of the engine's at another machine");
    let after = ["accepts", "tcp_active_opens"].map(|name| joined.counter(name));
    assert_eq!(after, before, "nothing of it was the engine's");
    assert!(joined.answers(SERVER));
    let doctor = joined.run(Side::B, Task::new(&joined.executable).arg("doctor"));
    let finding = doctor.output.lines().find(|line| line.contains("address translation"));
    assert!(finding.is_some_and(|line| line.starts_with("fair")), "{}", doctor.output);
}

#[test]
fn only_remotes_and_ports_that_are_allowed_are_accelerated_over_both_families() {
    let test = "only_remotes_and_ports_that_are_allowed_are_accelerated_over_both_families";
    let Some(_turn) = turn(test) else { return };
    for mut joined in Joined::over_each_family() {
        let (client, server) = (joined.client(), joined.server());
        let (network, other) = match joined.family {
            outboard_tests::joined::Family::V4 => ("10.78.0.0/24", "192.0.2.0/24"),
            outboard_tests::joined::Family::V6 => ("fd78::/64", "2001:db8::/32"),
        };
        let task = || scripted(&joined.lab, "echo.py").args(["epoll", joined.anywhere(), "7000"]);
        let listening = |server: &Program| lab::listens(server.pid(), 7000);
        let _echo = joined.start_ready(Side::A, task(), listening);
        for (lists, serves, opens) in [
            (format!("[allow]\nremotes = [\"{network}\"]\n"), true, true),
            (format!("[allow]\nremotes = [\"{other}\"]\n"), false, false),
            (format!("[deny]\nremotes = [\"{network}\"]\n"), false, false),
            // Of two networks the narrower decides.
            (
                format!("[deny]\nremotes = [\"{network}\"]\n[allow]\nremotes = [\"{client}\"]\n"),
                true,
                true,
            ),
            ("[allow]\nports = [\"tcp:6379\"]\n".into(), true, true),
            ("[allow]\nports = [\"tcp:6380\"]\n".into(), false, true),
            ("[allow]\nusers = [\"root\"]\n".into(), true, true),
            ("[allow]\nusers = [\"nobody\"]\n".into(), false, false),
        ] {
            joined.restart_engine_with(&lists);
            let redis = joined.serve(joined.accelerated(joined.redis_task()), 6379);
            if serves {
                eventually("the engine's listener", || joined.is_accelerated(6379));
            }
            assert!(joined.answers(server), "{lists}");
            assert_eq!(joined.counter("accepts"), u64::from(serves), "{lists}");
            let mut keeper = Keeper::start(&joined, Side::B, true);
            assert_eq!(keeper.open("out", client, 7000), "ok", "{lists}");
            assert_eq!(keeper.ask("out", 10_000), "ok", "{lists}");
            assert_eq!(joined.counter("tcp_active_opens"), u64::from(opens), "{lists}");
            assert_eq!(redis.errors(), "", "{lists}: the program does not notice");
            drop(redis);
            let finished = keeper.program().errors();
            assert_eq!(finished, "", "{lists}");
        }
    }
}
