//! What a route says of its paths.

use super::peer::*;
use crate::api::*;
use crate::tcp::IcmpError;

const ETHERNET: Offer = Offer { mss: Some(1460), window: 60000, ..PLAIN };

#[test]
fn a_route_says_how_connections_begin() {
    let metrics = Metrics {
        advmss: 600,
        initial_cwnd: 3,
        initial_rwnd: 4,
        rto_min_ms: 50,
        congestion: Some(CongestionKind::Reno),
        ..Metrics::default()
    };
    let mut peer = Peer::asking_over(metrics, ETHERNET);
    let (header, options) = peer.last.unwrap();
    assert_eq!((options.mss, header.window), (Some(600), 4 * 600));
    peer.wait(10);
    peer.send("S. 0:0 ack 1");
    peer.expect(". 1:1 ack 1");
    let info = peer.info();
    assert_eq!((info.mss, info.cwnd, info.rto_ns), (1460, 3 * 1460, 60_000_000));
    let options = peer.host.tcp.options(peer.id).unwrap();
    assert_eq!(options.congestion, CongestionKind::Reno);
    // What the route says later holds, too, but for the beginning.
    peer.route(Metrics { rto_min_ms: 30, mtu: 1040, ..metrics });
    peer.write(1001);
    peer.expect(". 1:1001 ack 1 | P. 1001:1002 ack 1");
    assert_eq!((peer.info().mtu, peer.info().rto_ns), (1040, 40_000_000));
}

#[test]
fn a_listeners_connections_begin_as_their_route_says() {
    let mut peer = Peer::listening_to(ETHERNET, TcpOptions::default());
    let metrics = Metrics { mtu: 1340, initial_rwnd: 2, quickack: true, ..Metrics::default() };
    peer.route(metrics);
    peer.send("S 0:0");
    peer.learn_iss();
    let (header, options) = peer.last.unwrap();
    assert_eq!((options.mss, header.window), (Some(1300), 2 * 1300));
    peer.send(". 1:1 ack 1");
    peer.id = peer.host.tcp.accept(peer.listener.unwrap()).unwrap().expect("accepted").id;
    peer.write(10);
    peer.expect("P. 1:11 ack 1");
    // An answer would wait for more otherwise.
    for at in 0..20 {
        peer.send(&format!("P. {}:{} ack 11", at * 10 + 1, at * 10 + 11));
        peer.expect(&format!(". 11:11 ack {}", at * 10 + 11));
    }
}

#[test]
fn over_a_route_with_a_locked_mtu_routers_may_cut_and_are_not_heard() {
    let mut peer = Peer::established_with(ETHERNET, TcpOptions::default());
    peer.route(Metrics { mtu: 1400, mtu_lock: true, ..Metrics::default() });
    peer.write(1360);
    let ready = peer.host.tcp.next_ready(InterfaceIndex(0)).unwrap();
    let mtu = peer.host.mtu_towards(peer.now, ready.remote);
    let sent = peer.host.tcp.emit(peer.now, ready.handle, mtu, &mut [0; 60]).unwrap();
    assert!(!sent.dont_fragment);
    assert!(matches!(sent.payload, Payload::Stream { len: 1360, .. }));
    let error = IcmpError::TooBig { mtu: 1040 };
    let told = peer.host.tcp.on_icmp(peer.now, peer.ends(), (peer.iss + 1).0, error);
    assert!(told.is_err());
    assert_eq!(peer.info().mtu, 1400);
}
