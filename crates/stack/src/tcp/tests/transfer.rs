//! Whole connections over good and bad networks.

use super::pair::*;
use crate::api::*;

fn options() -> TcpOptions {
    TcpOptions::default()
}

#[test]
fn both_ends_see_the_connection_established() {
    let mut net = Pair::new(1, Faults::default());
    let (client, server) = net.connected(options());
    assert_eq!(net.hosts[0].state(client), TcpState::Established);
    assert_eq!(net.hosts[1].state(server), TcpState::Established);
}

/// Sends `a` bytes one way and `b` the other, closes, and compares.
#[track_caller]
fn exchange(net: &mut Pair, a: usize, b: usize, seconds: u64, renew: bool) {
    let Some((client, server)) = net.try_connected(options()) else {
        // Six SYN and ACKs, or their answers, can all be lost where one in five is.
        assert_eq!(net.faults.lose, 5);
        return;
    };
    net.reading = vec![(0, client), (1, server)];
    let (there, back) = (pattern(a, 1), pattern(b, 2));
    let now = net.now;
    net.hosts[0].write(now, client, &there);
    net.hosts[0].tcp.shutdown(now, client).unwrap();
    net.hosts[1].write(now, server, &back);
    net.hosts[1].tcp.shutdown(now, server).unwrap();
    for round in 0..seconds * 10 {
        net.run(100 * MS);
        if renew && round < 20 {
            net.renew();
        }
        let done = |host: usize, id| {
            let levels = net.hosts[host].tcp.levels(id).unwrap();
            levels.peer_closed && matches!(levels.state, TcpState::TimeWait | TcpState::Closed)
        };
        if done(0, client) && done(1, server) {
            break;
        }
    }
    assert_eq!(net.hosts[1].tcp.levels(server).unwrap().error, None);
    assert_eq!(net.hosts[0].tcp.levels(client).unwrap().error, None);
    assert_eq!(net.hosts[1].received(server).len(), a);
    assert_eq!(net.hosts[0].received(client).len(), b);
    assert!(net.hosts[1].received(server) == there, "contents differ");
    assert!(net.hosts[0].received(client) == back, "contents differ");
    for (host, id) in [(0, client), (1, server)] {
        let levels = net.hosts[host].tcp.levels(id).unwrap();
        assert!(levels.peer_closed);
        assert!(matches!(levels.state, TcpState::TimeWait | TcpState::Closed), "{levels:?}");
    }
}

#[test]
fn a_good_network_carries_both_directions() {
    let mut net = Pair::new(1, Faults { delay_ns: MS, ..Faults::default() });
    exchange(&mut net, 300_000, 70_000, 20, false);
    assert_eq!(net.hosts[0].tcp.counters().retransmits, 0);
    assert_eq!(net.hosts[1].tcp.counters().retransmits, 0);
}

#[test]
fn large_segments_are_used_where_the_interface_cuts_them() {
    let mut net = Pair::with(1, Faults { delay_ns: MS, ..Faults::default() }, 1500, true);
    exchange(&mut net, 3_000_000, 10, 20, false);
    assert!(net.sent < 700, "{} frames", net.sent);
}

#[test]
fn bad_networks_deliver_every_byte() {
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let faults = Faults {
            lose: [0, 5, 20, 100][random.below(4) as usize],
            repeat: [0, 10, 50][random.below(3) as usize],
            reorder: [0, 5, 30][random.below(3) as usize],
            delay_ns: [0, MS, 20 * MS][random.below(3) as usize],
            refuse: [0, 0, 7, 30][random.below(4) as usize],
        };
        // Beside the worst losses it would look like a path that lets nothing large through.
        let refuse = if faults.lose == 5 { 0 } else { faults.refuse };
        let faults = Faults { refuse, ..faults };
        let tso = random.one_in(2);
        let mtu = [1500, 576, 9000][random.below(3) as usize];
        let mut net = Pair::with(seed, faults, mtu, tso);
        net.hosts[1].store.refuse_one_in = [0, 50][random.below(2) as usize];
        let (a, b) = (random.below(200_000) as usize, random.below(50_000) as usize);
        exchange(&mut net, a, b, 900, seed % 4 == 0);
    }
}
