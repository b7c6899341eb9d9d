//! Datagrams whose next hop is being asked for.

mod net;

use std::net::{IpAddr, SocketAddr};

use net::{DELAY, Net, SECOND};
use outboard_stack::api::*;
use outboard_stack::drops::DropReason;

fn bind(net: &mut Net, host: usize, port: u16) -> SocketId {
    let local = net.hosts[host].at(port);
    net.hosts[host].stack.udp_bind(local, Owner(7)).unwrap()
}

fn received(net: &Net, host: usize) -> Vec<Vec<u8>> {
    net.hosts[host].store.datagrams.iter().map(|(_, _, bytes)| bytes.clone()).collect()
}

/// Both hosts, of either family, of which neither knows the other.
fn nets() -> [Net; 2] {
    let mut v6 = Net::v6(1, 1500, false);
    v6.run_for(3 * SECOND);
    [Net::new(1), v6]
}

//= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.2
//= type=test
//# the sender MUST, for each neighbor, retain a small queue of packets waiting for address resolution
//# to complete.
//= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.2
//= type=test
//# The queue MUST hold at least one packet, and MAY contain more.
//= https://www.rfc-editor.org/rfc/rfc1122#section-2.3.2.2
//= type=test
//# The link layer SHOULD save (rather than discard) at least one (the latest) packet of each set of
//# packets destined to the same unresolved IP address, and transmit the saved packet when the
//# address has been resolved.
#[test]
fn what_was_sent_before_the_next_hop_is_known_goes_when_it_is_although_the_socket_is_closed() {
    for mut net in nets() {
        let a = bind(&mut net, 0, 1000);
        bind(&mut net, 1, 2000);
        let (now, to) = (net.now, net.hosts[1].at(2000));
        let sent = [b"one".to_vec(), vec![2; 3001], vec![3; 1400]];
        for payload in &sent {
            net.hosts[0].keep(now, a, to, payload);
        }
        net.hosts[0].stack.udp_close(now, a).unwrap();
        net.run_for(4 * DELAY);
        assert_eq!(received(&net, 1), sent);
        assert_eq!(net.hosts[1].store.datagrams[0].1.remote, net.hosts[0].at(1000));
    }
}

#[test]
fn what_comes_later_does_not_overtake_what_waited() {
    let mut net = Net::new(1);
    let a = bind(&mut net, 0, 1000);
    bind(&mut net, 1, 2000);
    let (now, to) = (net.now, net.hosts[1].at(2000));
    net.hosts[0].keep(now, a, to, b"first");
    let mac = net.hosts[1].mac;
    net.hosts[0].stack.on_neighbor(now, net::INTERFACE, to.ip(), mac);
    let second = net.hosts[0].datagram(now, a, Some(to), b"second");
    assert_eq!(second, Err(RequestError::Behind));
    net.settle();
    net.datagram(0, a, Some(to), b"second").unwrap();
    net.run_for(2 * DELAY);
    assert_eq!(received(&net, 1), [b"first".to_vec(), b"second".to_vec()]);
}

//= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.2
//= type=test
//# However, the number of queued packets per neighbor SHOULD be limited to some small value.
//= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.2
//= type=test
//# When a queue overflows, the new arrival SHOULD replace the oldest entry.
#[test]
fn a_next_hop_has_a_bounded_queue_of_which_the_oldest_give_way() {
    for mut net in nets() {
        let a = bind(&mut net, 0, 1000);
        bind(&mut net, 1, 2000);
        let (now, to) = (net.now, net.hosts[1].at(2000));
        // A quarter of 256 blocks.
        for number in 0..70u8 {
            net.hosts[0].keep(now, a, to, &[number]);
        }
        let dropped = net.hosts[0].stack.counters().dropped(DropReason::NeighborQueueFull);
        assert_eq!(dropped, 6);
        net.run_for(4 * DELAY);
        let last: Vec<Vec<u8>> = (6..70).map(|number| vec![number]).collect();
        assert_eq!(received(&net, 1), last);
    }
}

#[test]
fn many_silent_next_hops_leave_room_for_others_and_for_answers() {
    let mut net = Net::new(1);
    let a = bind(&mut net, 0, 1000);
    bind(&mut net, 1, 2000);
    let now = net.now;
    // It was the oldest, and gave way to all of theirs.
    net.hosts[0].keep(now, a, net.hosts[1].at(2000), b"before them");
    for host in 0..6u8 {
        let silent = SocketAddr::new(IpAddr::from([10, 0, 0, 100 + host]), 9);
        for _ in 0..40 {
            net.hosts[0].keep(now, a, silent, b"to nobody");
        }
    }
    // Half of 256 blocks is theirs at most.
    let dropped = net.hosts[0].stack.counters().dropped(DropReason::NeighborQueueFull);
    assert_eq!(dropped, 241 - 128);
    net.hosts[0].keep(now, a, net.hosts[1].at(2000), b"behind them");
    net.run_for(4 * DELAY);
    assert_eq!(received(&net, 1), [b"before them", b"behind them"]);
    net.run_for(5 * SECOND);
    let dropped = net.hosts[0].stack.counters().dropped(DropReason::NeighborFailed);
    assert_eq!(dropped, 126, "one gave way");
}

/// Each took room for all of it, until nobody else's datagram could wait.
#[test]
fn datagrams_to_a_next_hop_that_does_not_answer_leave_room_for_others() {
    let mut net = Net::new(1);
    let a = bind(&mut net, 0, 1000);
    bind(&mut net, 1, 2000);
    let silent = SocketAddr::new(IpAddr::from([10, 0, 0, 100]), 9);
    let now = net.now;
    net.hosts[0].keep(now, a, silent, b"to nobody");
    net.run_for(3 * SECOND + 2 * DELAY);
    let now = net.now;
    for _ in 0..100 {
        net.hosts[0].keep(now, a, silent, &[0; 60_000]);
    }
    net.hosts[0].keep(now, a, net.hosts[1].at(2000), b"to somebody");
    net.run_for(4 * DELAY);
    assert_eq!(received(&net, 1), [b"to somebody"]);
    let dropped = net.hosts[0].stack.counters().dropped(DropReason::NeighborFailed);
    assert_eq!(dropped, 101);
}

/// The last one went to the queue of the interface, and those before it were still to come there.
#[test]
fn the_last_datagram_of_a_socket_goes_behind_those_that_waited() {
    let mut net = Net::new(1);
    let a = bind(&mut net, 0, 1000);
    bind(&mut net, 1, 2000);
    let (now, to) = (net.now, net.hosts[1].at(2000));
    net.hosts[0].keep(now, a, to, b"first");
    net.hosts[0].stack.on_neighbor(now, net::INTERFACE, to.ip(), net.hosts[1].mac);
    net.hosts[0].keep(now, a, to, b"last");
    net.run_for(2 * DELAY);
    assert_eq!(received(&net, 1), [b"first".to_vec(), b"last".to_vec()]);
}

/// As the kernel tells it: beside each other, a socket that sent three datagrams to an address of its
/// link that nobody has read the same three reports after three seconds (namespaces, Linux 6.18).
//= https://www.rfc-editor.org/rfc/rfc4861#section-7.2.2
//= type=test
//# The sender MUST return ICMP destination unreachable indications with code 3 (Address Unreachable)
//# for each packet queued awaiting address resolution.
#[test]
fn a_socket_that_asks_for_errors_is_told_of_each_datagram_that_did_not_reach_its_next_hop() {
    let [v4, v6] = nets();
    let cases = [(v4, "10.0.0.77", (3, 1), 0xc4, [1, 520]), (v6, "fd00::77", (1, 3), 0, [1, 1000])];
    for (mut net, silent, message, tos, quoted) in cases {
        let [asks, does_not] = [1000, 1001].map(|port| bind(&mut net, 0, port));
        let options =
            UdpOptions { report_errors: true, report_errors6: true, ..UdpOptions::default() };
        net.hosts[0].stack.udp_set_options(asks, options).unwrap();
        let remote = SocketAddr::new(silent.parse().unwrap(), 9);
        net.hosts[0].stack.udp_connect(does_not, Some(remote)).unwrap();
        let now = net.now;
        for len in [1, 1000, 3000] {
            let payload = vec![len as u8; len];
            let payload_len = len as u32;
            let send =
                UdpSend { remote: Some(remote), payload_len, tos: Some(4), ..UdpSend::default() };
            net.hosts[0].stack.udp_keep(now, asks, &send, &payload).unwrap();
            net.hosts[0].stack.udp_keep(now, does_not, &send, &payload).unwrap();
        }
        net.run_for(3 * SECOND - DELAY);
        assert!(net.hosts[0].store.errors.is_empty());
        net.run_for(2 * DELAY + SECOND / 10);
        let errors = &net.hosts[0].store.errors;
        let lens: Vec<usize> = errors.iter().map(|(_, _, bytes)| bytes.len()).collect();
        let (own, from) = (net.hosts[0].ip, net.hosts[0].at(1000));
        // The third one's first fragment.
        let third = if own.is_ipv4() { 520 } else { 1184 };
        assert_eq!(lens, [quoted[0], quoted[1], third]);
        for (id, report, _) in errors {
            assert_eq!(*id, asks);
            assert_eq!((report.kind, report.code), message);
            assert_eq!((report.error, report.offender), (UdpError::HostUnreachable, own));
            assert_eq!((report.remote, report.local), (remote, from));
            assert_eq!((report.tos, report.ttl), (tos, 64));
        }
        // The kernel leaves no error at a socket that does not ask for reports.
        assert_eq!(net.hosts[0].stack.udp_take_levels(does_not).unwrap().error, None);
        assert_eq!(net.hosts[0].stack.tell_unreached(&mut net::Store::default()), 0);
        // While it counts as silent the next one is told of at once.
        let now = net.now;
        net.hosts[0].keep(now, asks, remote, b"again");
        net.settle();
        assert_eq!(net.hosts[0].store.errors.len(), 4);
    }
}
