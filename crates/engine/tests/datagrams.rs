//! Datagrams between two workers.

mod common;

use common::{A, B, Net, at, pattern, small};
use engine_limits::Limits;
use outboard_engine as engine_limits;
use shm::request::{Reply, Request};

#[test]
fn datagrams_of_every_size_arrive_whole_and_name_their_sender() {
    let limits = small();
    let mut net = Net::new(limits);
    let (a, b) = (net.a.attach(&limits), net.b.attach(&limits));
    let near = net.bind_udp(false, &a, 1000);
    let far = net.bind_udp(true, &b, 2000);
    for len in [0, 1, 64, 1472, 1473, 2000, 2048, 5000, 20_000] {
        let sent = pattern(len, len);
        a.send_to(near, at(B, 2000), &sent);
        // The first waits for ARP; fragments are put together again.
        net.pass(10_000_000);
        let (from, got) = b.receive_from(far).unwrap_or_else(|| panic!("{len} bytes are lost"));
        assert_eq!((from, got.len()), (at(A, 1000), len));
        assert_eq!(got, sent);
        b.send_to(far, from, &got);
        net.pass(10_000_000);
        assert_eq!(a.receive_from(near), Some((at(B, 2000), sent)));
    }
    assert_eq!(net.ask(false, &a, Request::Close { endpoint: near }), Reply::Done);
    assert_eq!(net.ask(true, &b, Request::Close { endpoint: far }), Reply::Done);
    net.settle();
}

#[test]
fn datagrams_that_nobody_reads_are_dropped_and_counted() {
    let limits = small();
    let mut net = Net::new(limits);
    let (a, b) = (net.a.attach(&limits), net.b.attach(&limits));
    let near = net.bind_udp(false, &a, 1000);
    let far = net.bind_udp(true, &b, 2000);
    for number in 0..200 {
        a.send_to(near, at(B, 2000), &pattern(number, 100));
        net.pass(1_000_000);
    }
    assert_eq!(net.b.counters.datagrams_rx_full.read(), 200 - 64);
    for number in 0..64 {
        assert_eq!(b.receive_from(far).unwrap().1, pattern(number, 100));
    }
    assert!(b.receive_from(far).is_none());
    net.settle();
    a.send_to(near, at(B, 2000), b"again");
    net.settle();
    assert_eq!(b.receive_from(far).unwrap().1, b"again");
}

#[test]
fn a_pool_without_free_buffers_drops_and_counts_and_recovers() {
    let limits = Limits { buffers: 8, stock_target: 2, ..small() };
    let mut net = Net::new(limits);
    let roomy = small();
    let (a, b) = (net.a.attach(&roomy), net.b.attach(&limits));
    let near = net.bind_udp(false, &a, 1000);
    let far = net.bind_udp(true, &b, 2000);
    for number in 0..30 {
        a.send_to(near, at(B, 2000), &pattern(number, 1400));
        net.pass(1_000_000);
    }
    assert!(net.b.counters.buffers_exhausted.read() > 0);
    while b.receive_from(far).is_some() {}
    net.settle();
    a.send_to(near, at(B, 2000), b"again");
    net.settle();
    assert_eq!(b.receive_from(far).unwrap().1, b"again");
}

/// What had not been taken from a closing socket's queue kept its buffers for the rest of the
/// session.
#[test]
fn sockets_that_close_with_unsent_datagrams_give_every_buffer_back() {
    let limits = small();
    let mut net = Net::new(limits);
    let (a, b) = (net.a.attach(&limits), net.b.attach(&limits));
    for _ in 0..200 {
        let endpoint = net.bind_udp(false, &a, 1000);
        for number in 0..4 {
            // Nobody is there, so the first waits for ARP and keeps the others waiting.
            a.send_to(endpoint, at("10.0.0.77", 9), &pattern(number, 1000));
        }
        assert_eq!(net.ask(false, &a, Request::Close { endpoint }), Reply::Done);
    }
    assert_eq!(net.a.counters.datagrams_tx_failed.read(), 800);
    net.a.worker.check_conservation().unwrap();
    let near = net.bind_udp(false, &a, 1000);
    let far = net.bind_udp(true, &b, 2000);
    a.send_to(near, at(B, 2000), b"there is room");
    net.settle();
    assert_eq!(b.receive_from(far).unwrap().1, b"there is room");
}
