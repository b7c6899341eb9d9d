//! An interface that changes under connections: another MTU, an address that goes and comes back,
//! and one through which nobody new is let in.

mod net;

use net::{INTERFACE, MS, Net, SECOND};
use outboard_stack::api::*;

/// A connection from host 0 to host 1.
fn connect(net: &mut Net) -> (SocketId, SocketId) {
    connect_to(net, 80)
}

fn connect_to(net: &mut Net, port: u16) -> (SocketId, SocketId) {
    let now = net.now;
    let local = net.hosts[1].at(port);
    let options = TcpOptions { recv_limit: 1 << 20, ..TcpOptions::default() };
    let listener = net.hosts[1].stack.tcp_listen(local, 8, options, Owner(1)).unwrap();
    let client = net.hosts[0]
        .stack
        .tcp_connect(now, TcpConnect { remote: local, local: None, options, owner: Owner(2) })
        .unwrap();
    net.run_for(100 * MS);
    let accepted = net.hosts[1].stack.tcp_accept(listener).unwrap().expect("connected");
    (client, accepted.id)
}

fn change(net: &mut Net, host: usize, change: impl FnOnce(&mut InterfaceConfig)) {
    let now = net.now;
    let stack = &mut net.hosts[host].stack;
    let mut config = stack.routes().interface(INTERFACE).unwrap().clone();
    change(&mut config);
    stack.replace_interface(now, INTERFACE, config);
}

/// Sends `len` bytes from host 0 and reads them at host 1, who must get them all in `span`.
fn send(net: &mut Net, (client, server): (SocketId, SocketId), len: usize, span: u64) {
    let now = net.now;
    let sent = net.hosts[0].outgoing.get(&client).map_or(0, Vec::len);
    net.hosts[0].write(now, client, &vec![7; len]);
    let all = net.run_until(span, |net| {
        let now = net.now;
        net.hosts[1].read_all(now, server).len() == sent + len
    });
    assert!(all, "not delivered");
}

fn mss(net: &Net, client: SocketId) -> u16 {
    net.hosts[0].stack.tcp_info(client).unwrap().mss
}

#[test]
fn segments_follow_the_mtu_of_the_interface_both_ways() {
    let mut net = Net::new(1);
    let pair = connect(&mut net);
    let usual = mss(&net, pair.0);
    send(&mut net, pair, 100_000, SECOND);
    for host in 0..2 {
        change(&mut net, host, |config| config.mtu = 1300);
    }
    assert_eq!(mss(&net, pair.0), usual - 200);
    send(&mut net, pair, 100_000, SECOND);
    for host in 0..2 {
        change(&mut net, host, |config| config.mtu = 1500);
    }
    assert_eq!(mss(&net, pair.0), usual);
    send(&mut net, pair, 100_000, SECOND);
}

#[test]
fn what_was_under_way_in_larger_segments_is_sent_again_in_smaller_ones() {
    let mut net = Net::new(1);
    let (client, server) = connect(&mut net);
    let now = net.now;
    // All of the first flight is lost: it was too long for the link that is there now.
    net.filter = Some(|_| true);
    net.hosts[0].write(now, client, &[7; 10_000]);
    net.settle();
    change(&mut net, 0, |config| config.mtu = 600);
    net.filter = None;
    let all = net.run_until(SECOND / 2, |net| {
        let now = net.now;
        net.hosts[1].read_all(now, server).len() == 10_000
    });
    assert!(all, "sent again without waiting for more than one timeout");
}

#[test]
fn a_connection_waits_without_a_word_for_its_address_to_come_back() {
    for idle in [true, false] {
        let mut net = Net::new(1);
        let (client, server) = connect(&mut net);
        let addresses = net.hosts[0].stack.routes().interface(INTERFACE).unwrap().addresses.clone();
        if !idle {
            let now = net.now;
            net.filter = Some(|_| true);
            net.hosts[0].write(now, client, &[7; 10_000]);
            net.settle();
            net.filter = None;
        }
        let other = Cidr { address: "10.0.0.77".parse().unwrap(), prefix: 24 };
        change(&mut net, 0, |config| config.addresses = vec![other]);
        net.transcript.clear();
        if idle {
            let now = net.now;
            net.hosts[0].write(now, client, &[7; 10_000]);
        }
        net.run_for(5 * SECOND);
        let said: Vec<&String> =
            net.transcript.iter().filter(|line| line.contains("10.0.0.1")).collect();
        assert!(said.is_empty(), "{said:?}");
        let mut lost = 0;
        net.hosts[0].stack.each_counter(|name, value| {
            lost += if name.ends_with("segments_unroutable") { value } else { 0 };
        });
        assert!(lost > 0);
        change(&mut net, 0, |config| config.addresses = addresses);
        let all = net.run_until(20 * SECOND, |net| {
            let now = net.now;
            net.hosts[1].read_all(now, server).len() == 10_000
        });
        assert!(all, "idle: {idle}");
    }
}

#[test]
fn segments_that_go_nowhere_are_dealt_with_a_bounded_number_at_a_time() {
    let mut net = Net::new(1);
    let clients: Vec<SocketId> = (80..88).map(|port| connect_to(&mut net, port).0).collect();
    let other = Cidr { address: "10.0.0.77".parse().unwrap(), prefix: 24 };
    change(&mut net, 0, |config| config.addresses = vec![other]);
    let now = net.now;
    for client in clients {
        net.hosts[0].write(now, client, &[7; 10_000]);
    }
    let nowhere = |net: &Net| {
        let mut count = 0;
        net.hosts[0].stack.each_counter(|name, value| {
            count += if name.ends_with("segments_unroutable") { value } else { 0 };
        });
        count
    };
    let (mut header, mut looks) = ([0; outboard_stack::HEADER_MAX], 0);
    loop {
        let before = nowhere(&net);
        assert!(net.hosts[0].stack.poll_transmit(now, INTERFACE, &mut header).is_none());
        assert!(nowhere(&net) - before <= 32);
        looks += 1;
        if net.hosts[0].stack.next_deadline().is_none_or(|deadline| deadline > now) {
            break;
        }
    }
    assert!(looks > 1 && nowhere(&net) > 32, "{looks} looks, {} nowhere", nowhere(&net));
}

#[test]
fn an_interface_that_refuses_connections_keeps_those_that_stand() {
    let mut net = Net::new(1);
    let pair = connect(&mut net);
    net.hosts[1].stack.refuse_connections(INTERFACE);
    let (now, to) = (net.now, net.hosts[1].at(80));
    let late = net.hosts[0]
        .stack
        .tcp_connect(
            now,
            TcpConnect { remote: to, local: None, options: TcpOptions::default(), owner: Owner(3) },
        )
        .unwrap();
    net.run_for(100 * MS);
    assert_eq!(net.hosts[0].stack.tcp_levels(late).unwrap().error, Some(TcpError::Refused));
    send(&mut net, pair, 10_000, SECOND);
}
