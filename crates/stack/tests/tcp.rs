//! TCP between two whole stacks: through ARP, a bad wire, ICMP, loopback and an export.

mod net;

use net::{DELAY, Faults, INTERFACE, MS, Net, SECOND};
use outboard_stack::api::*;
use outboard_stack::{SocketInfo, Stack};
use wire::checksum::Sum;
use wire::ethernet::{EtherType, EthernetHeader};
use wire::ipv4::{Ipv4Header, Protocol};

fn content(len: usize, seed: u64) -> Vec<u8> {
    let mut random = net::Random::new(seed);
    (0..len).map(|_| random.next() as u8).collect()
}

fn listen(net: &mut Net, host: usize, port: u16) -> SocketId {
    let local = net.hosts[host].at(port);
    net.hosts[host].stack.tcp_listen(local, 16, TcpOptions::default(), Owner(1)).unwrap()
}

/// A connection from host 0 to a listener of host 1.
#[track_caller]
fn connect(net: &mut Net) -> (SocketId, SocketId) {
    let listener = listen(net, 1, 80);
    let remote = net.hosts[1].at(80);
    let now = net.now;
    let a = net.hosts[0].stack.tcp_connect(
        now,
        TcpConnect { remote, local: None, options: TcpOptions::default(), owner: Owner(2) },
    );
    let a = a.unwrap();
    let mut accepted = None;
    let done = net.run_until(120 * SECOND, |net| {
        accepted = accepted.or(net.hosts[1].stack.tcp_accept(listener).unwrap());
        accepted.is_some()
            && net.hosts[0].stack.tcp_levels(a).unwrap().state == TcpState::Established
    });
    assert!(done, "{:#?}", net.transcript);
    let b = accepted.unwrap();
    net.hosts[1].stack.tcp_assign(b.id, Owner(3)).unwrap();
    (a, b.id)
}

/// Reads on both sides until each has what the other sent.
#[track_caller]
fn exchange(net: &mut Net, a: SocketId, b: SocketId, span: u64) {
    let (to_b, to_a) = (net.hosts[0].outgoing[&a].clone(), net.hosts[1].outgoing[&b].clone());
    let done = net.run_until(span, |net| {
        let now = net.now;
        let lens = [net.hosts[0].read_all(now, a).len(), net.hosts[1].read_all(now, b).len()];
        lens == [to_a.len(), to_b.len()]
    });
    let now = net.now;
    let got = [net.hosts[0].read_all(now, a), net.hosts[1].read_all(now, b)];
    assert!(done, "{} of {}, {} of {}", got[0].len(), to_a.len(), got[1].len(), to_b.len());
    assert!(got[0] == to_a && got[1] == to_b, "the streams differ");
}

#[test]
fn a_full_table_refuses_listeners_and_connections_and_counts_them() {
    let mut net = Net::new(1);
    for port in 1..=8 {
        listen(&mut net, 0, port);
    }
    let (now, one_more, remote) = (net.now, net.hosts[0].at(9), net.hosts[1].at(80));
    let stack = &mut net.hosts[0].stack;
    let listening = stack.tcp_listen(one_more, 16, TcpOptions::default(), Owner(1));
    assert_eq!(listening, Err(RequestError::LimitReached));
    assert_eq!(stack.counters().requests_limited, 1);
    let mut connect = || {
        stack.tcp_connect(
            now,
            TcpConnect { remote, local: None, options: TcpOptions::default(), owner: Owner(2) },
        )
    };
    for _ in 0..64 {
        connect().unwrap();
    }
    assert_eq!(connect(), Err(RequestError::LimitReached));
    assert_eq!(net.hosts[0].stack.counters().requests_limited, 2);
}

#[test]
fn both_ways_and_an_orderly_end() {
    let mut net = Net::new(1);
    let (a, b) = connect(&mut net);
    let now = net.now;
    net.hosts[0].write(now, a, &content(300_000, 1));
    net.hosts[1].write(now, b, &content(200_000, 2));
    exchange(&mut net, a, b, 10 * SECOND);
    let now = net.now;
    net.hosts[0].stack.tcp_shutdown(now, a).unwrap();
    net.run_for(10 * DELAY);
    assert!(net.hosts[1].stack.tcp_levels(b).unwrap().peer_closed);
    let now = net.now;
    net.hosts[1].stack.tcp_close(now, b).unwrap();
    net.hosts[0].stack.tcp_close(now, a).unwrap();
    net.run_for(200 * SECOND);
    for (host, id) in [(0, a), (1, b)] {
        assert_eq!(net.hosts[host].stack.tcp_levels(id), Err(RequestError::Stale), "{host}");
    }
}

#[test]
fn a_bad_wire_changes_nothing_of_the_content() {
    for seed in 0..20 {
        let mut net = Net::new(seed);
        net.faults = Faults { loss: 30, reorder: 100, duplicate: 30, corrupt: 20 };
        let (a, b) = connect(&mut net);
        let now = net.now;
        net.hosts[0].write(now, a, &content(100_000, seed));
        net.hosts[1].write(now, b, &content(50_000, seed + 100));
        exchange(&mut net, a, b, 300 * SECOND);
    }
}

#[test]
fn large_frames_carry_the_same_content_in_fewer_frames() {
    let run = |tso| {
        let mut net = Net::with(3, 1500, tso);
        let (a, b) = connect(&mut net);
        let now = net.now;
        net.hosts[0].write(now, a, &content(2_000_000, 1));
        net.hosts[1].write(now, b, &content(100_000, 2));
        exchange(&mut net, a, b, 60 * SECOND);
        net.transcript.len()
    };
    let (small, large) = (run(false), run(true));
    assert!(large * 5 < small, "{large} frames instead of {small}");
}

#[test]
fn large_frames_that_get_lost_are_sent_again() {
    for seed in 0..10 {
        let mut net = Net::with(seed, 1500, true);
        net.faults = Faults { loss: 50, reorder: 100, duplicate: 30, corrupt: 0 };
        let (a, b) = connect(&mut net);
        let now = net.now;
        net.hosts[0].write(now, a, &content(600_000, seed));
        net.hosts[1].write(now, b, &content(50_000, seed));
        exchange(&mut net, a, b, 300 * SECOND);
    }
}

#[test]
fn every_link_size_works() {
    for mtu in [68, 296, 576, 1280, 9000, 65535] {
        let mut net = Net::with(1, mtu, false);
        let (a, b) = connect(&mut net);
        let now = net.now;
        net.hosts[0].write(now, a, &content(50_000, 1));
        net.hosts[1].write(now, b, &content(50_000, 2));
        exchange(&mut net, a, b, 300 * SECOND);
    }
}

#[test]
fn an_unreachable_host_fails_the_connect() {
    let mut net = Net::new(1);
    let remote = "10.0.0.99:80".parse().unwrap();
    let options = TcpOptions::default();
    let id = net.hosts[0]
        .stack
        .tcp_connect(net.now, TcpConnect { remote, local: None, options, owner: Owner(2) })
        .unwrap();
    let failed = net.run_until(10 * SECOND, |net| {
        net.hosts[0].stack.tcp_levels(id).unwrap().error == Some(TcpError::HostUnreachable)
    });
    assert!(failed, "{:?}", net.hosts[0].stack.tcp_levels(id));
}

#[test]
fn a_closed_port_refuses_the_connect() {
    let mut net = Net::new(1);
    let remote = net.hosts[1].at(81);
    let options = TcpOptions::default();
    let id = net.hosts[0]
        .stack
        .tcp_connect(net.now, TcpConnect { remote, local: None, options, owner: Owner(2) })
        .unwrap();
    net.run_for(10 * DELAY);
    assert_eq!(net.hosts[0].stack.tcp_levels(id).unwrap().error, Some(TcpError::Refused));
    let event = net.hosts[0].events.iter().find(|event| event.id == id).unwrap();
    assert_eq!((event.owner, event.kind), (Owner(2), SocketKind::Connection));
}

//= https://www.rfc-editor.org/rfc/rfc1122#section-3.3.1.1
//= type=test
//# The host IP layer MUST operate correctly in a minimal network environment, and in particular,
//# when there are no gateways.
#[test]
fn there_is_no_way_to_other_networks_without_a_gateway() {
    let mut stack = Stack::new(outboard_stack::Config::new([1; 32]));
    let options = TcpOptions::default();
    let remote = "192.0.2.1:80".parse().unwrap();
    let refused =
        stack.tcp_connect(Instant(0), TcpConnect { remote, local: None, options, owner: Owner(1) });
    assert_eq!(refused, Err(RequestError::NoRoute));
    let listen = stack.tcp_listen(
        "192.0.2.1:80".parse::<std::net::SocketAddr>().unwrap(),
        1,
        options,
        Owner(1),
    );
    assert_eq!(listen, Err(RequestError::AddressNotAvailable));
}

#[test]
fn a_program_can_connect_to_its_own_stack() {
    let mut net = Net::new(1);
    let listener = listen(&mut net, 0, 80);
    let remote = net.hosts[0].at(80);
    let options = TcpOptions::default();
    let a = net.hosts[0]
        .stack
        .tcp_connect(net.now, TcpConnect { remote, local: None, options, owner: Owner(2) })
        .unwrap();
    net.settle();
    let b = net.hosts[0].stack.tcp_accept(listener).unwrap().expect("at once").id;
    let sent = content(500_000, 3);
    let now = net.now;
    net.hosts[0].write(now, a, &sent);
    net.hosts[0].outgoing.entry(b).or_default();
    let done = net.run_until(SECOND, |net| {
        let now = net.now;
        net.hosts[0].read_all(now, b).len() == sent.len()
    });
    assert!(done);
    let now = net.now;
    assert!(net.hosts[0].read_all(now, b) == sent);
    assert!(net.transcript.iter().all(|line| !line.contains("80")), "{:?}", net.transcript);
}

#[test]
fn an_export_in_mid_transfer_goes_on() {
    for pause in 0..20 {
        let mut net = Net::new(pause);
        net.faults = Faults { loss: 20, reorder: 50, ..Faults::default() };
        let (a, b) = connect(&mut net);
        let now = net.now;
        net.hosts[0].write(now, a, &content(150_000, 1));
        net.hosts[1].write(now, b, &content(80_000, 2));
        net.run_for(pause * 3 * MS);
        for host in &mut net.hosts {
            host.stack = Stack::import(&host.stack.export()).unwrap();
        }
        exchange(&mut net, a, b, 300 * SECOND);
    }
}

#[test]
fn an_export_changes_nothing() {
    let run = |export: bool| {
        let mut net = Net::new(5);
        net.faults = Faults { loss: 20, reorder: 50, ..Faults::default() };
        let (a, b) = connect(&mut net);
        let now = net.now;
        net.hosts[0].write(now, a, &content(60_000, 1));
        net.hosts[1].write(now, b, &[]);
        net.run_for(20 * MS);
        if export {
            for host in &mut net.hosts {
                host.stack = Stack::import(&host.stack.export()).unwrap();
            }
        }
        exchange(&mut net, a, b, 300 * SECOND);
        net.transcript
    };
    assert_eq!(run(false), run(true));
}

#[test]
fn a_router_that_needs_smaller_packets_is_heard() {
    let mut net = Net::new(1);
    let (a, b) = connect(&mut net);
    let now = net.now;
    net.hosts[1].write(now, b, &[]);
    net.hosts[0].write(now, a, &content(20_000, 1));
    net.router_mtu = Some(1000);
    exchange(&mut net, a, b, 10 * SECOND);
    assert!(net.transcript.iter().any(|line| line.starts_with("too big")));
    assert!(net.hosts[0].stack.tcp_info(a).unwrap().mss <= 960);
}

#[test]
fn a_wrong_tcp_checksum_is_counted() {
    let mut net = Net::new(1);
    let (_, _) = connect(&mut net);
    let ip = Ipv4Header {
        protocol: Protocol::TCP,
        src: [10, 0, 0, 2].into(),
        dst: [10, 0, 0, 1].into(),
        ..Ipv4Header::default()
    };
    let mut bytes = vec![0; 34];
    EthernetHeader {
        dst: net.hosts[0].mac,
        src: net.hosts[1].mac,
        vlan: None,
        ethertype: EtherType::IPV4,
    }
    .emit(&mut bytes)
    .unwrap();
    ip.emit(20, &mut bytes[14..]).unwrap();
    bytes.extend([0x55; 20]);
    assert!(!Sum::of(&bytes[34..]).is_valid());
    let now = net.now;
    let host = &mut net.hosts[0];
    host.stack.on_frame(
        now,
        &RxFrame { interface: INTERFACE, bytes: &bytes, meta: RxFrameMeta::default() },
        &mut host.store,
    );
    let reason = outboard_stack::drops::DropReason::TcpChecksum;
    assert_eq!(host.stack.counters().dropped(reason), 1);
}

#[test]
fn sockets_are_listed() {
    let mut net = Net::new(1);
    let (a, _) = connect(&mut net);
    let local = net.hosts[0].at(53);
    let udp = net.hosts[0].stack.udp_bind(local, Owner(9)).unwrap();
    let mut ids: Vec<SocketId> = Vec::new();
    for info in net.hosts[0].stack.sockets() {
        ids.push(match info {
            SocketInfo::Tcp(id, _) | SocketInfo::Udp(id, _) => id,
        });
    }
    assert_eq!(ids, [udp, a]);
    let mut names = Vec::new();
    net.hosts[0].stack.each_counter(|name, _| names.push(name.to_string()));
    assert!(names.contains(&"tcp_active_opens".to_string()));
}
