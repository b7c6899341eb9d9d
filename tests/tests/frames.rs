//! What reaches an engine beside the kernel in an unusual frame: ICMP errors, checksums that are
//! left to a card, VLAN tags. (Fragments: coexist.rs.)

use lab::{Program, Side, Task};
use outboard_tests::joined::{Behind, CLIENT, Joined, PATIENCE, SERVER};
use outboard_tests::turn;
use outboard_tests::world::{PYTHON, scripted};

/// Sends a datagram to a port where nobody listens, and says what comes of it.
const TO_NOBODY: &str = "
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 0))
s.connect((sys.argv[2], 9))
s.settimeout(60)
s.send(b'hello')
try:
    print(s.recv(100))
except ConnectionRefusedError:
    print('refused')
";

#[test]
fn an_icmp_error_finds_the_socket_whose_datagram_it_quotes() {
    let Some(_turn) = turn("an_icmp_error_finds_the_socket_whose_datagram_it_quotes") else {
        return;
    };
    let joined = Joined::start();
    let task = || Task::new(PYTHON).args(["-c", TO_NOBODY, SERVER, CLIENT]);
    for (sent, task) in [(0, task()), (1, joined.accelerated(task()))] {
        let finished = joined.lab.start(Side::B, task).and_then(|one| one.wait(PATIENCE));
        let finished = finished.expect("it ends");
        assert_eq!(finished.output.trim(), "refused", "{}", finished.errors);
        assert_eq!(joined.counter("datagrams_tx"), sent);
    }
}

/// A host behind the clients' one, which forwards to it over a link that carries less than both
/// think: packets that are too long for it cause ICMP errors.
fn narrow_path(joined: &Joined) -> Behind {
    let beyond = Behind::start(joined, Side::A, ["192.0.2.1", "192.0.2.2"]);
    joined.ip(Side::A, "link set inner mtu 1280");
    joined.ip(Side::B, &format!("route add 192.0.2.0/24 via {CLIENT}"));
    beyond
}

#[test]
fn an_icmp_error_tells_a_connection_what_its_path_carries() {
    let Some(_turn) = turn("an_icmp_error_tells_a_connection_what_its_path_carries") else {
        return;
    };
    let joined = Joined::start();
    let _redis = joined.redis();
    let beyond = narrow_path(&joined);
    let ask = |words: &str| beyond.says(&joined, &format!("redis-cli -h {SERVER} {words}"));
    assert_eq!(ask("setrange big 300000 x").trim(), "300001");
    let accepts = joined.counter("accepts");
    let got = ask("--raw getrange big 0 -1");
    assert!(got.ends_with("x\n"), "{} bytes came", got.len());
    assert_eq!(joined.counter("accepts"), accepts + 1, "through the engine");
    // Not by probing, which would have found it, too.
    assert!(joined.counter("tcp_path_mtu_reductions") > 0, "an error was heeded");
}

#[test]
fn on_a_virtual_link_a_checksum_may_be_whole_or_partial_but_not_wrong() {
    let Some(_turn) = turn("on_a_virtual_link_a_checksum_may_be_whole_or_partial_but_not_wrong")
    else {
        return;
    };
    let joined = Joined::start();
    let service = scripted(&joined.lab, "datagrams.py").args(["server", SERVER, "5301"]);
    let ready = |server: &Program| server.output().contains("ready");
    let _service = joined.start_ready(Side::B, joined.accelerated(service), ready);
    let [a, b] = Side::BOTH.map(|side| joined.link.end(side));
    let partial = format!("port_rx_partial{{port=xdp:{b}}}");
    let shown = joined.ip(Side::B, &format!("-o link show {b}"));
    let mac = shown.split("link/ether ").nth(1).and_then(|rest| rest.split(' ').next());
    let mac = mac.expect("a hardware address");
    // The client's kernel must know the way for the answers, too.
    joined.says(Side::A, &format!("ping -c 1 -W 20 {SERVER}"));
    let before = joined.counter(&partial);
    let task = scripted(&joined.lab, "crafted.py").args([&a, CLIENT, "7000", SERVER, "5301", mac]);
    let finished = joined.lab.start(Side::A, task).and_then(|one| one.wait(PATIENCE));
    let finished = finished.expect("it ends");
    assert_eq!(finished.output, "partial\nwhole\n", "{}", finished.errors);
    assert_eq!(joined.counter(&partial), before + 1);
}

#[test]
fn a_vlan_above_the_interface_is_the_kernels_or_refused_where_tags_are_lost() {
    let Some(_turn) =
        turn("a_vlan_above_the_interface_is_the_kernels_or_refused_where_tags_are_lost")
    else {
        return;
    };
    let mut joined = Joined::without_engine();
    let end = joined.link.end(Side::B);
    joined.says(Side::B, &format!("ip link add link {end} name trial type vlan id 9"));
    if joined.says(Side::B, "ip -o link show trial").is_empty() {
        skips::skip("a VLAN above the interface", "vlan", "ip link makes none");
        return;
    }
    joined.ip(Side::B, "link del trial");
    for (side, address) in [(Side::A, "10.81.0.1"), (Side::B, "10.81.0.2")] {
        let end = joined.link.end(side);
        joined.ip(side, &format!("link add link {end} name tagged type vlan id 5"));
        joined.ip(side, &format!("addr add {address}/24 dev tagged"));
        joined.ip(side, "link set tagged up");
    }
    let driver = joined.says(Side::B, &format!("ethtool -i {end}"));
    if driver.contains("driver: veth") {
        let task = Task::new(&joined.executable).args(["engine", "--port", &format!("xdp:{end}")]);
        let refused = joined.run(Side::B, task.arg("--socket").arg(&joined.socket));
        assert!(!refused.status.success());
        let expected = "carries the VLAN interface tagged";
        assert!(refused.errors.contains(expected), "{}", refused.errors);
        return;
    }
    joined.start_engine();
    let _redis = joined.redis();
    for (address, accepts) in [("10.81.0.2", 0), (SERVER, 1), ("10.81.0.2", 1)] {
        assert!(joined.answers(address), "{address}");
        assert_eq!(joined.counter("accepts"), accepts, "{address}");
    }
}
