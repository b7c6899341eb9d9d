//! Every adapter and wrapper through the one suite (see `suite/mod.rs`), and what is particular
//! to the kernel's.

use outboard_port::impair::Impaired;
use outboard_port::pair::{PairConfig, pair};
use outboard_port::pcap;
use outboard_port::spec::Impairment;
use outboard_port::trunk::TrunkPort;
use outboard_port::{LinkState, Offloads, OpenError, Port, from_fds, open};

mod suite;

use suite::kernel::{
    in_namespace, ip, is_recent, packet_and_packet, port, tap_and_packet, xdp_and_xdp, xdp_on,
};
use suite::{Connected, run};

fn pair_with(config: &PairConfig) -> Connected {
    let (a, b, link) = pair(config);
    let mut ports = Connected::new(Box::new(a), Box::new(b));
    ports.carries_partial = config.offloads.tx_checksum;
    ports.set_up = Some(Box::new(move |up| link.set_up(up)));
    ports
}

#[test]
fn the_pair_conforms() {
    run(|| pair_with(&PairConfig::default()));
}

#[test]
fn a_pair_without_offloads_conforms() {
    let config = PairConfig { offloads: Offloads::default(), ..PairConfig::default() };
    run(|| pair_with(&config));
}

#[test]
fn an_impaired_pair_conforms() {
    run(|| {
        let (a, b, _) = pair(&PairConfig::default());
        let faults: Impairment = "delay:5ms+jitter:1ms+rate:10gbit".parse().unwrap();
        Connected::new(Box::new(Impaired::new(a, faults, 1)), Box::new(Impaired::new(b, faults, 2)))
    });
}

#[test]
fn a_captured_pair_conforms() {
    run(|| {
        let (a, b, link) = pair(&PairConfig::default());
        let ((a, first), (b, _)) = (pcap::wrap(a), pcap::wrap(b));
        first.start(std::io::sink(), pcap::Filter::compile("").unwrap(), 0, 0).unwrap();
        let mut ports = Connected::new(Box::new(a), Box::new(b));
        ports.set_up = Some(Box::new(move |up| link.set_up(up)));
        ports
    });
}

#[test]
fn a_trunk_of_pairs_conforms() {
    run(|| {
        let ends: [_; 3] = std::array::from_fn(|_| pair(&PairConfig::default()));
        let (mut near, mut far, mut links) = (Vec::new(), Vec::new(), Vec::new());
        for (a, b, link) in ends {
            near.push(Box::new(a) as Box<dyn Port>);
            far.push(Box::new(b) as Box<dyn Port>);
            links.push(link);
        }
        let trunk = |last, ports| {
            let mac = wire::MacAddr([2, 0, 0, 0, 0, last]);
            Box::new(TrunkPort::new("trunk:t", mac, ports, 7).unwrap())
        };
        let mut ports = Connected::new(trunk(1, near), trunk(2, far));
        ports.set_up = Some(Box::new(move |up| links.iter().for_each(|link| link.set_up(up))));
        ports
    });
}

#[test]
fn memif_ports_conform_as_server_and_client() {
    let mut number = 0;
    run(|| {
        number += 1;
        let name = format!("memif:@outboard-conformance-{}-{number}", std::process::id());
        let [a, b] = ["server", "client"].map(|role| port(&format!("{name},role={role}")));
        let mut ports = Connected { carries_partial: false, ..Connected::new(a, b) };
        suite::join(&mut *ports.a, &mut *ports.b);
        ports
    });
}

#[test]
fn a_trunk_of_packet_ports_conforms() {
    in_namespace("trunk over veth", || {
        run(|| {
            for number in [20, 22] {
                // Those of the part before are gone with their link.
                let end = format!("obv{number}");
                let _none = std::process::Command::new("ip").args(["link", "del", &end]).output();
                ip(&format!("link add obv{number} type veth peer name obv{}", number + 1));
            }
            let mut ports = Connected::new(
                port("trunk:t,ports=packet:obv20+packet:obv22"),
                port("trunk:u,ports=packet:obv21+packet:obv23"),
            );
            suite::join(&mut *ports.a, &mut *ports.b);
            ports
        });
    });
}

#[test]
fn tap_conforms_against_a_packet_port_on_its_kernel_end() {
    in_namespace("tap and packet", || run(tap_and_packet));
}

#[test]
fn packet_ports_conform_over_veth() {
    in_namespace("packet over veth", || run(packet_and_packet));
}

#[test]
fn xdp_ports_conform_over_veth() {
    in_namespace("xdp over veth", || run(|| xdp_and_xdp("")));
    in_namespace("xdp in veth's driver", || run(|| xdp_and_xdp(",mode=copy")));
}

#[test]
fn an_xdp_port_carries_frames_of_several_pages_through_several_queues() {
    in_namespace("xdp with large frames", || {
        let end = "mtu 9000 numrxqueues 3 numtxqueues 3";
        ip(&format!("link add obx2 {end} type veth peer name obx3 {end}"));
        if !is_recent() {
            let why = refusal("xdp:obx2,ports=4").sentence;
            assert!(why.contains("set the MTU to 3822 or less"), "{why}");
            return;
        }
        for option in ["", ",mode=copy"] {
            let mut ports = xdp_on(["obx2", "obx3"], option);
            suite::frames_arrive_intact_and_in_order(&mut ports);
            ports.swap();
            suite::frames_arrive_intact_and_in_order(&mut ports);
        }
    });
}

#[test]
fn an_xdp_port_serves_queues_that_are_added() {
    in_namespace("xdp with more queues", || {
        let set = |end: &str, way: &str, count: &str| {
            let mut command = std::process::Command::new("ethtool");
            let asked = command.args(["-L", end, way, count]).output();
            asked.is_ok_and(|output| output.status.success())
        };
        for option in ["", ",mode=copy"] {
            let end = "numrxqueues 3 numtxqueues 3";
            ip(&format!("link add obx9 {end} type veth peer name obx10 {end}"));
            let ends = ["obx9", "obx10"];
            let is_set = ends.iter().all(|end| set(end, "rx", "1") && set(end, "tx", "1"));
            if !is_set {
                skips::skip("queues that are added", "channels", "ethtool -L sets none on veth");
                return;
            }
            let mut ports = xdp_on(ends, option);
            for way in ["rx", "tx"] {
                assert!(ends.iter().all(|end| set(end, way, "3")), "{way}{option}");
            }
            for port in [&mut ports.a, &mut ports.b] {
                let link = LinkState { receive_queues: Some(3), takes_large: true };
                port.follow_link(&link).unwrap();
                assert_eq!(port.counters().rx_queues_unserved, 0);
                // More than there are.
                let link = LinkState { receive_queues: Some(4), takes_large: true };
                assert!(port.follow_link(&link).is_err());
                assert_eq!(port.counters().rx_queues_unserved, 1);
            }
            suite::frames_arrive_intact_and_in_order(&mut ports);
            ports.swap();
            suite::frames_arrive_intact_and_in_order(&mut ports);
            drop(ports);
            ip("link del obx9");
        }
    });
}

#[test]
fn frames_to_be_segmented_leave_an_xdp_port_in_order_with_others() {
    in_namespace("xdp with segmentation", || {
        ip("link add obx7 type veth peer name obx8");
        ip("link set obx7 up");
        let packet = suite::kernel::port("packet:obx8");
        let mut ports = Connected::new(suite::kernel::port("xdp:obx7,ports=4"), packet);
        let gso = outboard_port::Gso { size: 1_400, kind: outboard_port::GsoKind::Tcp4 };
        let lengths = [100, 64_000, 1_400, 2_900, 2_800, 0, 14_000, 1_000];
        for payload in lengths {
            let meta = outboard_port::TxMeta {
                checksum: Some((34, 16)),
                gso: (payload > 1_400).then_some(gso),
                header_bytes: 54,
            };
            ports.a.send(&meta, &suite::segment(payload), &[]).unwrap();
        }
        ports.a.flush();
        let arrived = ports.collect(lengths.len());
        let arrived: Vec<_> =
            arrived.iter().map(|(bytes, meta)| (bytes.len() - 54, meta.gso)).collect();
        let expected = lengths.map(|payload| (payload, (payload > 1_400).then_some(gso)));
        assert_eq!(arrived, expected);
    });
}

#[test]
fn without_the_driver_an_xdp_port_says_so_and_takes_frames_that_were_not_cut() {
    in_namespace("generic xdp", || {
        ip("link add obx4 type veth peer name obx5");
        ip("link set obx5 up");
        ip("link add obx6 link obx5 type macvlan mode passthru");
        ip("link set obx6 up");
        if !is_recent() {
            let why = refusal("xdp:obx6,ports=4").sentence;
            assert!(why.contains("in generic mode"), "{why}");
            return;
        }
        let fds = open(&"xdp:obx6,ports=4".parse().unwrap()).unwrap();
        let notes = fds.description.notes.join("; ");
        assert!(notes.contains("generic mode"), "{notes}");
        assert!(fds.description.mode.as_ref().unwrap().contains("generic"));
        let mut port = from_fds(fds).unwrap();
        port.claim(&outboard_port::Claim::EtherType(0x88b5)).unwrap();
        let address: std::net::SocketAddr = "192.0.2.2:8080".parse().unwrap();
        port.follow(&[address.ip()], 1500).unwrap();
        port.claim(&outboard_port::Claim::Tcp { local: address, listens: false }).unwrap();
        // Cut by nobody; the kernel tells no segment size here.
        let mut ports = Connected::new(suite::kernel::port("packet:obx4"), port);
        for payload in [100, 1_400, 5_000, 64_000] {
            let frame = suite::segment(payload);
            let gso = outboard_port::Gso { size: 1_400, kind: outboard_port::GsoKind::Tcp4 };
            let meta = outboard_port::TxMeta {
                checksum: Some((34, 16)),
                gso: (payload > 1_400).then_some(gso),
                header_bytes: 54,
            };
            ports.a.send(&meta, &frame, &[]).unwrap();
            ports.a.flush();
            let (got, _) = ports.collect(1).remove(0);
            assert_eq!(got, frame, "{payload}");
        }
    });
}

#[test]
fn an_impaired_tap_conforms() {
    in_namespace("impaired tap", || {
        run(|| {
            let a = port("tap:obt0,impair=delay:2ms,seed=1");
            let b = port("packet:obt0");
            Connected { carries_gso: false, ..Connected::new(a, b) }
        });
    });
}

#[test]
fn a_tap_ends_with_its_descriptor_and_its_name_is_free_again() {
    in_namespace("tap removal", || {
        for _ in 0..3 {
            let tap = port("tap:obt1,mtu=9000");
            assert_eq!(tap.info().mtu, 9000);
            ip("link show obt1");
            drop(tap);
            let gone = std::process::Command::new("ip").args(["link", "show", "obt1"]).output();
            assert!(!gone.unwrap().status.success());
        }
    });
}

#[test]
fn a_deleted_device_is_down_for_ever_and_wakes_nobody() {
    in_namespace("deleted devices", || {
        let mut tap = port("tap:obt2");
        ip("link add obv2 type veth peer name obv3");
        let mut packet = port("packet:obv2");
        ip("link add obv10 type veth peer name obv11");
        ip("link set obv10 up");
        let mut xdp = port("xdp:obv10,ports=4");
        ip("link del obt2");
        ip("link del obv2");
        ip("link del obv10");
        for port in [&mut tap, &mut packet, &mut xdp] {
            let mut burst = outboard_port::RxBurst::new();
            for turn in 1..5 {
                port.on_time(turn * 20_000_000);
                port.receive(&mut burst);
                assert!(burst.handles.is_empty());
                let _down = port.send(&outboard_port::TxMeta::default(), &[0; 60], &[]);
                port.flush();
            }
            assert!(port.counters().tx_errors >= 4);
            port.on_time(200_000_000);
            let fd = port.wait_fd().unwrap();
            let mut fds = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
            let now = rustix::event::Timespec::default();
            assert_eq!(rustix::event::poll(&mut fds, Some(&now)).unwrap(), 0);
        }
    });
}

#[test]
fn a_tap_works_when_its_kernel_end_moves_to_another_namespace() {
    in_namespace("tap moved", || {
        let name = format!("port-test-{}", std::process::id());
        ip(&format!("netns add {name}"));
        let result = std::panic::catch_unwind(|| {
            let tap = port("tap:obt3");
            ip(&format!("link set obt3 netns {name}"));
            ip(&format!("-n {name} link set obt3 up"));
            let packet = port(&format!("packet:obt3,netns={name}"));
            exchange(tap, packet);
            let tap = port(&format!("tap:obt4,netns={name}"));
            ip(&format!("-n {name} link show obt4"));
            exchange(tap, port(&format!("packet:obt4,netns={name}")));
        });
        ip(&format!("netns del {name}"));
        result.unwrap();
    });
}

#[test]
fn a_tap_with_a_kernel_thread_carries_frames() {
    in_namespace("threaded napi", || {
        let spec = "tap:obt5,napi=threaded,netns=";
        let name = format!("port-napi-{}", std::process::id());
        ip(&format!("netns add {name}"));
        let result = std::panic::catch_unwind(|| {
            let tap = port(&format!("{spec}{name}"));
            exchange(tap, port(&format!("packet:obt5,netns={name}")));
        });
        ip(&format!("netns del {name}"));
        result.unwrap();
    });
}

fn exchange(a: Box<dyn Port>, b: Box<dyn Port>) {
    let mut ports = Connected::new(a, b);
    suite::frames_arrive_intact_and_in_order(&mut ports);
    ports.swap();
    suite::frames_arrive_intact_and_in_order(&mut ports);
}

fn refusal(text: &str) -> OpenError {
    match open(&text.parse().unwrap()) {
        Ok(_) => panic!("{text} opened"),
        Err(why) => why,
    }
}

#[test]
fn a_port_that_cannot_be_opened_says_why_and_what_to_do() {
    in_namespace("refusals", || {
        let why = refusal("packet:nosuch0").sentence;
        assert!(why.contains("no such interface") && why.contains("ip link"), "{why}");
        let why = refusal("tap:obt6,netns=nosuchnetns").sentence;
        assert!(why.contains("ip netns add nosuchnetns"), "{why}");
        let _first = port("tap:obt6");
        let why = refusal("tap:obt6").sentence;
        assert!(why.contains("another program"), "{why}");
        ip("link add obv4 type veth peer name obv5");
        ip("addr add 192.0.2.1/24 dev obv4");
        let why = refusal("packet:obv4").sentence;
        assert!(why.contains("ip addr flush dev obv4"), "{why}");
        let _xdp = port("xdp:obv5,ports=4");
        let why = refusal("xdp:obv5,ports=4").sentence;
        assert!(why.contains("XDP program already"), "{why}");
        let why = refusal("xdp:nosuch0").sentence;
        assert!(why.contains("no such interface"), "{why}");
        let why = refusal("xdp:lo,ports=4").sentence;
        assert!(why.contains("not an Ethernet interface"), "{why}");
        let why = refusal("tap:obv4").sentence;
        assert!(why.contains("choose another name"), "{why}");
    });
}

#[test]
fn the_kernel_is_kept_from_answering_on_a_packet_port() {
    in_namespace("kernel kept quiet", || {
        ip("link add obv6 type veth peer name obv7");
        let _packet = port("packet:obv6,mac=02:00:00:00:00:07");
        let shown =
            std::process::Command::new("ip").args(["link", "show", "obv6"]).output().unwrap();
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(shown.contains("NOARP"), "{shown}");
        let ipv6 = std::fs::read_to_string("/proc/sys/net/ipv6/conf/obv6/disable_ipv6").unwrap();
        assert_eq!(ipv6.trim(), "1");
    });
}

#[test]
fn what_a_packet_port_receives_never_reaches_the_kernels_stack() {
    if !is_recent() {
        skips::skip("packet guard", "tcx", "it takes Linux 6.6");
        return;
    }
    in_namespace("packet guard", || {
        ip("link add obv8 type veth peer name obv9");
        let received = || {
            let table = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
            let line = table.lines().filter(|line| line.starts_with("Ip:")).nth(1).unwrap();
            // InReceives is the third column.
            line.split(' ').nth(3).unwrap().parse::<u64>().unwrap()
        };
        let mut sender = port("packet:obv8");
        let mut receiver = port("packet:obv9");
        suite::join(&mut *sender, &mut *receiver);
        let before = received();
        let meta = outboard_port::TxMeta::default();
        for _ in 0..20 {
            sender.send(&meta, &suite::segment(100), &[]).unwrap();
        }
        sender.flush();
        suite::collect(&mut *receiver, 20);
        assert_eq!(received(), before);
        drop(receiver);
        sender.send(&meta, &suite::segment(100), &[]).unwrap();
        sender.flush();
        assert!(received() > before, "the guard has ended with its port");
    });
}

#[test]
fn an_xdp_port_says_what_it_obtained_and_has_sent_a_frame_through_it() {
    in_namespace("xdp modes", || {
        ip("link add obw0 numrxqueues 2 numtxqueues 2 type veth peer name obw1");
        ip("link set obw0 up");
        ip("link set obw1 up");
        // What the kernel before 6.6 cannot do in either mode is asked for nowhere.
        let (preferred, buffers) =
            if is_recent() { ("generic", "several buffers") } else { ("native", "one buffer") };
        let generic = (",mode=generic", "generic, frames copied by the kernel");
        let ways = [
            ("", &*format!("{preferred}, frames copied by the kernel")),
            (",mode=zero-copy", "native, frames copied by the kernel"),
            (",mode=copy", "native, frames copied by the kernel"),
        ];
        for (option, mode) in ways.into_iter().chain(is_recent().then_some(generic)) {
            let fds = open(&format!("xdp:obw0,ports=4{option}").parse().unwrap()).unwrap();
            let said = fds.description.mode.clone().unwrap();
            for part in [mode, buffers, "2 receive queues", "veth", "tested with a frame"] {
                assert!(said.contains(part), "{option}: {said}");
            }
            assert_eq!(fds.description.notes, Vec::<String>::new());
            // The test has left nothing behind.
            let mut port = from_fds(fds).unwrap();
            let mut burst = outboard_port::RxBurst::new();
            port.receive(&mut burst);
            assert!(burst.handles.is_empty());
            assert_eq!(port.counters().rx_frames, 0);
        }
    });
}
