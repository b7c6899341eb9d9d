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
            // Nobody is there, so the stack keeps them until ARP fails, as many as it may.
            a.send_to(endpoint, at("10.0.0.77", 9), &pattern(number, 1000));
        }
        assert_eq!(net.ask(false, &a, Request::Close { endpoint }), Reply::Done);
    }
    net.a.worker.check_conservation().unwrap();
    let near = net.bind_udp(false, &a, 1000);
    let far = net.bind_udp(true, &b, 2000);
    a.send_to(near, at(B, 2000), b"there is room");
    net.pass(10_000_000);
    assert_eq!(b.receive_from(far).unwrap().1, b"there is room");
}

/// One silent host stopped everything that its socket sent, for three of every four seconds.
#[test]
fn a_silent_host_does_not_hold_up_what_its_socket_sends_to_others() {
    let limits = small();
    let mut net = Net::new(limits);
    let (a, b) = (net.a.attach(&limits), net.b.attach(&limits));
    let near = net.bind_udp(false, &a, 1000);
    let far = net.bind_udp(true, &b, 2000);
    for number in 0..5 {
        a.send_to(near, at("10.0.0.77", 9), b"to nobody");
        a.send_to(near, at(B, 2000), &pattern(number, 100));
        net.pass(10_000_000);
        let (_, got) = b.receive_from(far).expect("a datagram to a host that is there");
        assert_eq!(got, pattern(number, 100));
    }
    net.pass(5_000_000_000);
    assert_eq!(net.a.counters.datagrams_tx_failed.read(), 5);
    net.settle();
}

/// What a program sent last, before its neighbour was known, was lost.
#[test]
fn what_was_sent_right_before_the_close_arrives() {
    let limits = small();
    let mut net = Net::new(limits);
    let (a, b) = (net.a.attach(&limits), net.b.attach(&limits));
    let far = net.bind_udp(true, &b, 2000);
    let near = net.bind_udp(false, &a, 1000);
    let sent: Vec<Vec<u8>> = [20, 5000, 700].iter().map(|len| pattern(*len, *len)).collect();
    for one in &sent {
        a.send_to(near, at(B, 2000), one);
    }
    assert_eq!(net.ask(false, &a, Request::Close { endpoint: near }), Reply::Done);
    net.pass(10_000_000);
    let got: Vec<Vec<u8>> = std::iter::from_fn(|| b.receive_from(far)).map(|of| of.1).collect();
    assert_eq!(got, sent);
    assert_eq!(net.a.counters.datagrams_tx_failed.read(), 0);
}

/// Datagrams that a program did not read took all of its buffers, and its connections stood.
#[test]
fn unread_datagrams_leave_connections_their_buffers() {
    let limits = Limits { buffers: 128, ..small() };
    let mut net = Net::new(limits);
    let roomy = small();
    let (a, b) = (net.a.attach(&roomy), net.b.attach(&limits));
    let listener = net.listen(&b, 80);
    let (near, far) = net.connected(&a, &b, listener, 80);
    let sender = net.bind_udp(false, &a, 1000);
    for port in 2000..2004 {
        net.bind_udp(true, &b, port);
        for number in 0..60 {
            a.send_to(sender, at(B, port), &pattern(number, 1900));
            net.pass(1_000_000);
        }
    }
    assert!(net.b.counters.buffers_exhausted.read() > 100);
    let exhausted = net.b.counters.buffers_exhausted.read();
    let sent = pattern(7, 60_000);
    assert_eq!(a.write(near, &sent), sent.len());
    net.pass(100_000_000);
    assert_eq!(b.read(far, sent.len()), sent);
    assert_eq!(net.b.counters.buffers_exhausted.read(), exhausted);
}
