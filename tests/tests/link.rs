//! What changes of the link under an engine beside the kernel: receive queues, offloads.

use lab::observer::Observer;
use lab::{Lab, Side, Task};
use outboard_tests::joined::{Joined, Keeper, PATIENCE, SERVER, eventually, redis};
use outboard_tests::turn;
use outboard_tests::world::{CLIENTS, PYTHON, SERVERS, executable};

/// Opens so many connections to redis, and uses them in turns, until a file appears. Says how often
/// each was used when all have been.
const MANY: &str = "
import os, socket, sys
address, count, stop = sys.argv[1], int(sys.argv[2]), sys.argv[3]
held = [socket.create_connection((address, 6379), 60) for _ in range(count)]
print('open', flush=True)
turns = 0
while not os.path.exists(stop):
    for one in held:
        one.sendall(b'PING\\r\\n')
    for one in held:
        answer = b''
        while len(answer) < 7:
            block = one.recv(7 - len(answer))
            assert block, 'a connection has ended'
            answer += block
    turns += 1
    print('turn', turns, flush=True)
";

#[test]
fn queues_that_are_added_are_served_and_none_is_taken_away() {
    let Some(_turn) = turn("queues_that_are_added_are_served_and_none_is_taken_away") else {
        return;
    };
    let mut joined = Joined::without_engine();
    let [a, b] = Side::BOTH.map(|side| joined.link.end(side));
    let set = |joined: &Joined, side: Side, words: &str| {
        let end = joined.link.end(side);
        let line: Vec<&str> = ["ethtool", "-L", &end].into_iter().chain(words.split(' ')).collect();
        joined.lab.inside(side, &line)
    };
    let driver = joined.says(Side::B, &format!("ethtool -i {b}"));
    if !driver.contains("driver: veth") {
        // virtio_net, as others, changes nothing while it has a program.
        joined.start_engine();
        let _redis = joined.redis();
        let mut keeper = Keeper::of_redis(&joined);
        eprintln!("{:?}", set(&joined, Side::B, "combined 1"));
        assert_eq!(keeper.ask("held", 0), "ok");
        assert!(joined.answers(SERVER));
        return;
    }
    // A link of its own, whose ends have more queues than cores.
    joined.ip(Side::B, &format!("link del {b}"));
    let [host_a, host_b] = Side::BOTH.map(|side| joined.lab.host(side).namespace().to_owned());
    joined.ip(
        Side::B,
        &format!(
            "link add {a} netns {host_a} numtxqueues 3 numrxqueues 3 type veth peer name {b} netns \
             {host_b} numtxqueues 3 numrxqueues 3"
        ),
    );
    for (side, address) in [(Side::A, joined.client()), (Side::B, SERVER)] {
        set(&joined, side, "rx 1 tx 1").expect("one queue");
        joined.ip(side, &format!("link set {} up", joined.link.end(side)));
        joined.add_address(side, address);
    }
    joined.start_engine();
    joined.engine_says("1 receive queue,");
    let unserved = format!("port_rx_queues_unserved{{port=xdp:{b}}}");
    let _redis = joined.redis();
    let stop = joined.lab.scratch().join("stop");
    let many = Task::new(PYTHON).args(["-c", MANY, SERVER, "32"]).arg(&stop);
    let mut many = joined.start_ready(Side::A, many, |one| one.output().contains("open"));
    eventually("acceptance of all by the engine", || joined.counter("accepts") == 32);
    let mut turns = 0;
    let mut go_on = |many: &mut lab::Program| {
        turns = 1 + many.output().matches("turn").count().max(turns);
        let go = format!("turn {turns}\n");
        many.until(PATIENCE, |one| one.output().contains(&go)).expect("it");
    };
    for queues in [2, 3] {
        // First the receiver, as veth wants it; then the sender spreads its frames. Both directions at
        // once: with fewer queues to send, the kernel takes those with a socket for taken away.
        set(&joined, Side::B, &format!("rx {queues} tx {queues}")).expect("more queues to receive");
        set(&joined, Side::A, &format!("tx {queues}")).expect("more queues to send");
        go_on(&mut many);
        go_on(&mut many);
        assert_eq!(joined.counter(&unserved), 0);
        let accepts = joined.counter("accepts");
        for _ in 0..8 {
            assert!(joined.answers(SERVER));
        }
        assert_eq!(joined.counter("accepts"), accepts + 8, "new ones on all {queues} queues");
    }
    // What has a socket stays.
    set(&joined, Side::A, "tx 1").expect("fewer to send");
    assert!(set(&joined, Side::B, "rx 1").is_err(), "the kernel refuses");
    go_on(&mut many);
    std::fs::write(&stop, "").expect("a file");
    let ended = many.wait(PATIENCE).and_then(|one| one.success());
    ended.expect("no connection has ended");
}

#[test]
fn bulk_goes_on_when_the_link_takes_large_frames_no_more_and_again() {
    let Some(_turn) = turn("bulk_goes_on_when_the_link_takes_large_frames_no_more") else { return };
    let joined = Joined::start();
    let _redis = joined.redis();
    let b = joined.link.end(Side::B);
    let set = format!("redis-cli -h {SERVER} setrange big 2000000 x");
    assert_eq!(joined.says(Side::A, &set).trim(), "2000001");
    let retransmitted = || joined.counter("tcp_retransmitted_segments");
    for tso in ["on", "off", "on", "off"] {
        let words = ["ethtool", "-K", &b, "tso", tso, "gso", tso];
        joined.lab.inside(Side::B, &words).expect("an offload");
        let before = retransmitted();
        eventually("bulk without a loss", || {
            let before = retransmitted();
            let got =
                joined.says(Side::A, &format!("redis-cli -h {SERVER} --raw getrange big 0 -1"));
            assert!(got.ends_with("x\n") && got.len() == 2_000_002, "{} bytes came", got.len());
            retransmitted() == before
        });
        eprintln!("tso {tso}: {} segments sent again", retransmitted() - before);
    }
}

#[test]
fn a_bridge_is_shared_and_a_part_of_it_told_where_its_addresses_are() {
    let Some(_turn) = turn("a_bridge_is_shared_and_a_part_of_it_told_where") else { return };
    let mut joined = Joined::without_engine();
    let end = joined.link.end(Side::B);
    let bridge = ["ip", "link", "add", "obbridge", "type", "bridge"];
    if let Err(failure) = joined.lab.inside(Side::B, &bridge) {
        skips::skip("a shared bridge", "bridge", failure.cause());
        return;
    }
    joined.remove_address(Side::B, SERVER);
    joined.ip(Side::B, &format!("link set {end} master obbridge"));
    joined.ip(Side::B, "link set obbridge up");
    joined.ip(Side::B, &format!("addr add {SERVER}/24 dev obbridge"));
    joined.start_engine();
    joined.engine_says("it is a port of obbridge: start the engine on that bridge");
    joined.engine = None;
    let arguments = ["--port", "xdp:obbridge,ports=64", "--poll", "adaptive"];
    let engine = Task::new(&joined.executable);
    let started = joined.lab.start_engine(engine, Side::B, &joined.socket, &arguments);
    joined.engine = Some(started.expect("an engine"));
    let _redis = joined.redis();
    assert!(joined.answers(SERVER));
    // What the peer's kernel sends across two virtual links has partial checksums.
    assert_eq!(joined.counter("accepts"), 1);
    assert_eq!(joined.counter("stack_drops{reason=tcp_checksum}"), 0);
}

/// Frames that an interface has sent.
fn sent(lab: &Lab, side: Side, end: &str) -> u64 {
    let table = lab.inside(side, &["ip", "-s", "link", "show", "dev", end]).expect("a link");
    let mut lines = table.lines().skip_while(|line| !line.trim_start().starts_with("TX:")).skip(1);
    let packets = lines.next().and_then(|line| line.split_whitespace().nth(1));
    packets.and_then(|packets| packets.parse().ok()).expect("a count of frames")
}

#[test]
fn connections_over_a_trunk_outlive_a_link_of_it() {
    let Some(_turn) = turn("connections_over_a_trunk_outlive_a_link_of_it") else { return };
    let lab = Lab::new().expect("a laboratory");
    let links = [(); 2].map(|()| lab.join(None).expect("a link"));
    let executable = executable().expect("built");
    let socket = |side: Side| lab.scratch().join(format!("engine-{side:?}/e.sock"));
    let _engines = [(Side::A, CLIENTS), (Side::B, SERVERS)].map(|(side, address)| {
        let [first, second] = links.each_ref().map(|link| link.end(side));
        let port =
            format!("trunk:t,ports=packet:{first}+packet:{second},addr={address}/24,ipv6=off");
        lab.start_engine(Task::new(&executable), side, &socket(side), &["--port", &port])
            .expect("an engine")
    });
    let counter = |side: Side, name: &str| {
        let mut observer = Observer::connect(&socket(side)).expect("an engine");
        observer.stats().expect("counters").counter(&format!("port_{name}{{port=trunk:t}}"))
    };
    let task = redis().accelerated(&executable, &socket(Side::B));
    let mut server = lab.start(Side::B, task).expect("redis");
    server.until(PATIENCE, |_| lab::serves(&socket(Side::B), 6379)).expect("redis listens");
    let stop = lab.scratch().join("stop");
    let many = Task::new(PYTHON).args(["-c", MANY, &SERVERS.to_string(), "32"]).arg(&stop);
    let many = many.accelerated(&executable, &socket(Side::A));
    let mut many = lab.start(Side::A, many).expect("it starts");
    let mut go_on = || {
        let turns = many.output().matches("turn").count();
        let go = format!("turn {}\n", turns + 3);
        many.until(PATIENCE, |one| one.output().contains(&go)).expect("no connection has ended");
    };
    go_on();
    let [first, second] = links.each_ref().map(|link| link.end(Side::A));
    for end in [&first, &second] {
        assert!(sent(&lab, Side::A, end) > 16, "flows are spread");
    }
    let set = |state: &str| lab.inside(Side::A, &["ip", "link", "set", &first, state]);
    set("down").expect("the link is down");
    go_on();
    for side in Side::BOTH {
        eventually("departure of the link", || counter(side, "links_left") == 1);
        assert_eq!(counter(side, "links_unused"), 1);
    }
    set("up").expect("the link is up");
    for side in Side::BOTH {
        eventually("return of the link", || counter(side, "links_unused") == 0);
    }
    let before = sent(&lab, Side::A, &first);
    eventually("use of the link", || {
        go_on();
        sent(&lab, Side::A, &first) > before + 16
    });
    std::fs::write(&stop, "").expect("a file");
    let ended = many.wait(PATIENCE).and_then(|one| one.success());
    ended.expect("no connection has ended");
}
