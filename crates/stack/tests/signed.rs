//! Signed connections (RFC 2385) between two whole stacks, over both families.

mod net;

use net::{Net, SECOND};
use outboard_stack::api::*;
use outboard_stack::drops::DropReason;
use outboard_stack::tcp::SigningKey;

fn key(text: &str) -> Option<SigningKey> {
    SigningKey::new(text.as_bytes())
}

/// Whom a key is for that everybody of a host's network may have.
fn network(net: &Net, host: usize) -> Cidr {
    let address = net.hosts[host].ip;
    Cidr { address, prefix: if address.is_ipv4() { 24 } else { 64 } }
}

/// A listener of host 1 with the keys `theirs`, and a connection of host 0 with the key `ours`.
fn opened(net: &mut Net, ours: Option<SigningKey>, theirs: &[(u8, &str)]) -> (SocketId, SocketId) {
    let (now, remote) = (net.now, net.hosts[1].at(80));
    let of_client = network(net, 0);
    let options = TcpOptions::default();
    let listener = net.hosts[1].stack.tcp_listen(remote, 4, options, Owner(1)).unwrap();
    for &(less, text) in theirs {
        let peers = Cidr { prefix: of_client.prefix - less, ..of_client };
        net.hosts[1].stack.tcp_set_key(listener, peers, key(text)).unwrap();
    }
    let a = net.hosts[0]
        .stack
        .tcp_connect(now, TcpConnect { remote, local: None, options, owner: Owner(2) })
        .unwrap();
    if ours.is_some() {
        let peers = network(net, 1);
        net.hosts[0].stack.tcp_set_key(a, peers, ours).unwrap();
    }
    (a, listener)
}

fn dropped(net: &Net, host: usize, reason: DropReason) -> u64 {
    net.hosts[host].stack.counters().drops[reason as usize]
}

#[test]
fn both_ends_with_a_key_exchange_what_they_have_and_close() {
    for make in [Net::with, Net::v6] {
        // The interface cuts large frames, which signed connections do without.
        let mut net = make(1, 1500, true);
        let (a, listener) = opened(&mut net, key("tweezers"), &[(8, "other"), (0, "tweezers")]);
        let mut b = None;
        net.run_until(10 * SECOND, |net| {
            b = b.or(net.hosts[1].stack.tcp_accept(listener).unwrap());
            b.is_some()
        });
        let b = b.expect("the longest prefix decides").id;
        let content: Vec<u8> = (0..100_000_u32).map(|at| (at / 7) as u8).collect();
        let now = net.now;
        net.faults.loss = 30;
        net.hosts[0].write(now, a, &content);
        net.hosts[1].write(now, b, &content);
        let done = net.run_until(120 * SECOND, |net| {
            let now = net.now;
            net.hosts[0].read_all(now, a).len() == content.len()
                && net.hosts[1].read_all(now, b).len() == content.len()
        });
        assert!(done);
        let now = net.now;
        assert!(net.hosts[0].read_all(now, a) == content);
        assert!(net.hosts[1].read_all(now, b) == content);
        net.faults.loss = 0;
        net.hosts[0].stack.tcp_close(now, a).unwrap();
        net.hosts[1].stack.tcp_close(now, b).unwrap();
        net.run_for(10 * SECOND);
        for host in 0..2 {
            assert_eq!(dropped(&net, host, DropReason::TcpBadSignature), 0);
            assert_eq!(dropped(&net, host, DropReason::TcpUnsigned), 0);
        }
        assert!(net.transcript.iter().all(|line| !line.contains("TS")), "{:#?}", net.transcript);
    }
}

#[test]
fn who_has_another_key_or_none_is_not_answered() {
    for make in [Net::with, Net::v6] {
        for (ours, theirs, reason) in [
            (key("one"), [(0, "two")].as_slice(), DropReason::TcpBadSignature),
            (None, &[(0, "two")], DropReason::TcpUnsigned),
            (key("one"), &[], DropReason::TcpSigned),
        ] {
            let mut net = make(1, 1500, false);
            let (a, _) = opened(&mut net, ours, theirs);
            net.run_for(5 * SECOND);
            assert_eq!(net.hosts[0].stack.tcp_levels(a).unwrap().state, TcpState::SynSent);
            assert!(dropped(&net, 1, reason) > 1, "{reason:?}: {:#?}", net.transcript);
        }
    }
}

#[test]
fn resets_and_cookies_of_a_listener_with_keys_are_signed() {
    let mut net = Net::new(1);
    let (a, listener) = opened(&mut net, key("same"), &[(0, "same")]);
    net.run_for(SECOND);
    // Nobody is left who knows the connection but the listener, whose key signs the reset.
    let b = net.hosts[1].stack.tcp_accept(listener).unwrap().expect("a connection").id;
    net.hosts[1].stack.tcp_assign(b, Owner(3)).unwrap();
    net.filter = Some(|_| true);
    let now = net.now;
    net.hosts[1].stack.tcp_abort(now, b).unwrap();
    net.run_for(SECOND);
    net.filter = None;
    let now = net.now;
    net.hosts[0].write(now, a, b"is anybody there?");
    net.run_for(5 * SECOND);
    assert_eq!(net.hosts[0].stack.tcp_levels(a).unwrap().error, Some(TcpError::Reset));
    assert_eq!(dropped(&net, 0, DropReason::TcpUnsigned), 0);
}

#[test]
fn keys_are_refused_that_are_too_long_and_taken_back_only_where_there_are_any() {
    assert_eq!(SigningKey::new(&[]), None);
    assert_eq!(SigningKey::new(&[1; 81]), None);
    let mut net = Net::new(1);
    let (a, listener) = opened(&mut net, None, &[]);
    let peers = network(&net, 1);
    let stack = &mut net.hosts[1].stack;
    assert_eq!(stack.tcp_set_key(listener, peers, None), Err(RequestError::Unknown));
    stack.tcp_set_key(listener, peers, key("k")).unwrap();
    stack.tcp_set_key(listener, peers, None).unwrap();
    assert_eq!(net.hosts[0].stack.tcp_set_key(a, peers, None), Err(RequestError::Unknown));
}
