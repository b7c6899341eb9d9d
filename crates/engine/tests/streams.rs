//! Streams between two workers.

mod common;

use common::{Net, pattern, small};
use outboard_engine::Limits;
use shm::Status;
use shm::request::{Reply, Request};

/// Moves `total` bytes each way and compares them.
fn exchange(net: &mut Net, ends: [(&common::Program, u32); 2], total: usize) {
    let (mut sent, mut got) = ([0; 2], [0; 2]);
    for round in 0.. {
        for side in 0..2 {
            let (program, endpoint) = ends[side];
            if sent[side] < total {
                let len = (total - sent[side]).min(10_000);
                sent[side] += program.write(endpoint, &pattern(sent[side], len));
            }
            let bytes = program.read(endpoint, 7_000);
            assert_eq!(bytes, pattern(got[side], bytes.len()), "content differs");
            got[side] += bytes.len();
        }
        if got == [total; 2] {
            return;
        }
        if !net.turn() {
            net.pass(1_000_000);
        }
        assert!(round < 200_000, "sent {sent:?}, got {got:?} of {total}");
    }
}

#[test]
fn what_is_written_arrives_both_ways_and_every_buffer_comes_back() {
    let limits = small();
    let mut net = Net::new(limits);
    let (a, b) = (net.a.attach(&limits), net.b.attach(&limits));
    let listener = net.listen(&b, 80);
    let (near, far) = net.connected(&a, &b, listener, 80);
    exchange(&mut net, [(&a, near), (&b, far)], 2_000_000);
    a.finish(near);
    net.settle();
    assert!(b.levels(far).status.contains(Status::PEER_CLOSED));
    assert_eq!(net.ask(true, &b, Request::Close { endpoint: far }), Reply::Done);
    net.settle();
    assert_eq!(net.ask(false, &a, Request::Close { endpoint: near }), Reply::Done);
    net.pass(2_000_000_000);
    let census = |side: &common::Side| {
        side.worker.copy_counters();
        side.counters.buffers_total.read() - side.counters.buffers_free.read()
    };
    // Only what lies in the lanes' stocks is out.
    assert!(census(&net.a) <= 2 * u64::from(limits.stock_target), "{}", census(&net.a));
    assert!(census(&net.b) <= 2 * u64::from(limits.stock_target), "{}", census(&net.b));
}

#[test]
fn bytes_that_come_before_accept_are_kept() {
    let limits = small();
    let mut net = Net::new(limits);
    let (a, b) = (net.a.attach(&limits), net.b.attach(&limits));
    let listener = net.listen(&b, 80);
    let near = net.connect(&a, 80);
    net.settle();
    assert!(a.levels(near).status.contains(Status::CONNECTED));
    let early = pattern(0, 20_000);
    assert_eq!(a.write(near, &early), early.len());
    net.settle();
    assert_eq!(b.levels(listener).pending, 1);
    assert_eq!(b.events(), [listener]);
    let (far, addresses) = net.accept(&b, listener).unwrap();
    assert_eq!(addresses.remote.ip().to_string(), common::A);
    net.settle();
    assert_eq!(b.read(far, usize::MAX), early);
    assert_eq!(b.levels(listener).pending, 0);
    assert_eq!(net.accept(&b, listener), None);
}

#[test]
fn a_program_rings_when_it_has_read_what_came_in_a_turn_with_a_sweep() {
    let limits = small();
    let mut net = Net::new(limits);
    let (a, b) = (net.a.attach(&limits), net.b.attach(&limits));
    let listener = net.listen(&b, 80);
    let (near, far) = net.connected(&a, &b, listener, 80);
    let mut at = 0;
    for _ in 0..20 {
        at += a.write(near, &pattern(at, 1000));
        // Long enough that every turn sweeps, and some of them receive.
        net.now += 2_000_000;
        net.turn();
    }
    net.settle();
    // As before a sleep: whatever the program reads afterwards it must tell by itself, or the
    // window would stay as it is.
    net.b.worker.sweep();
    let rung = net.b.counters.doorbells.read();
    assert_eq!(b.read(far, usize::MAX), pattern(0, at));
    net.turn();
    assert!(net.b.counters.doorbells.read() > rung);
}

/// The window of a program that reads little at a time stayed shut until it had read everything.
#[test]
fn a_shut_window_opens_while_there_is_more_to_read() {
    let limits = small();
    let mut net = Net::new(limits);
    let (a, b) = (net.a.attach(&limits), net.b.attach(&limits));
    let listener = net.listen(&b, 80);
    let (near, far) = net.connected(&a, &b, listener, 80);
    let mut written = 0;
    for _ in 0..100 {
        written += a.write(near, &pattern(written, 10_000));
        net.pass(10_000_000);
    }
    let came = b.levels(far).readable;
    assert!(came < written as u64, "the window is shut");
    net.b.worker.sweep();
    let mut read = 0;
    while b.levels(far).readable == came {
        assert!(read < came as usize / 2, "{read} bytes of {came} read, and the window is shut");
        read += b.read(far, 1000).len();
        net.settle();
    }
}

#[test]
fn a_connection_that_nobody_serves_is_refused() {
    let limits = small();
    let mut net = Net::new(limits);
    let a = net.a.attach(&limits);
    let near = net.connect(&a, 81);
    net.settle();
    let levels = a.levels(near);
    assert!(levels.status.contains(Status::ERROR | Status::HANGUP));
    assert_eq!(i32::from(levels.errno), rustix::io::Errno::CONNREFUSED.raw_os_error());
}

#[test]
fn many_connections_come_and_go_in_one_session() {
    let limits = Limits { endpoints: 1200, buffers: 2048, ..small() };
    let mut net = Net::new(limits);
    let (a, b) = (net.a.attach(&limits), net.b.attach(&limits));
    let listener = net.listen(&b, 80);
    for round in 0..3 {
        let pairs: Vec<(u32, u32)> =
            (0..1000).map(|_| net.connected(&a, &b, listener, 80)).collect();
        for (near, far) in &pairs {
            assert_eq!(a.write(*near, b"ping"), 4);
            net.turn();
            let _ = far;
        }
        net.settle();
        for (near, far) in &pairs {
            assert_eq!(b.read(*far, 100), b"ping", "round {round}");
            net.ask(false, &a, Request::Close { endpoint: *near });
            net.ask(true, &b, Request::Close { endpoint: *far });
        }
        net.pass(1_000_000_000);
        b.events();
        a.events();
    }
    net.a.worker.copy_counters();
    net.b.worker.copy_counters();
    net.a.worker.copy_counters();
    net.b.worker.copy_counters();
    assert_eq!(net.b.counters.endpoints.read(), 1);
    assert_eq!(net.a.counters.endpoints.read(), 0);
}

#[test]
fn no_endpoint_is_left_for_an_accept_and_the_connection_waits() {
    let limits = Limits { endpoints: 2, ..small() };
    let mut net = Net::new(limits);
    let client = small();
    let (a, b) = (net.a.attach(&client), net.b.attach(&limits));
    let listener = net.listen(&b, 80);
    let (_, far) = net.connected(&a, &b, listener, 80);
    net.connect(&a, 80);
    net.settle();
    let errno = rustix::io::Errno::NFILE.raw_os_error() as u32;
    assert_eq!(net.ask(true, &b, Request::Accept { listener }), Reply::Failed { errno });
    assert_eq!(net.b.counters.endpoints_exhausted.read(), 1);
    net.ask(true, &b, Request::Close { endpoint: far });
    assert!(net.accept(&b, listener).is_some());
}

#[test]
fn a_reader_that_stops_stops_the_writer_and_nobody_else() {
    let limits = small();
    let mut net = Net::new(limits);
    let (a, b) = (net.a.attach(&limits), net.b.attach(&limits));
    let listener = net.listen(&b, 80);
    let (stuck_near, stuck_far) = net.connected(&a, &b, listener, 80);
    let mut written = 0;
    // As much as a client's send limit lets it write without an acknowledgement.
    while (written as u64) < a.levels(stuck_near).acked + 150_000 {
        written += a.write(stuck_near, &pattern(written, 4_000));
        net.settle();
    }
    assert!(a.levels(stuck_near).acked < written as u64);
    let (near, far) = net.connected(&a, &b, listener, 80);
    assert_eq!(a.write(near, b"through"), 7);
    net.pass(300_000_000);
    assert_eq!(b.read(far, 100), b"through");
    let mut got = 0;
    for _ in 0..10_000 {
        let bytes = b.read(stuck_far, 5_000);
        assert_eq!(bytes, pattern(got, bytes.len()));
        got += bytes.len();
        if got == written {
            break;
        }
        net.pass(1_000_000);
    }
    assert_eq!(got, written);
}

#[test]
fn two_programs_listen_at_one_address_and_the_survivor_takes_over() {
    let limits = small();
    let mut net = Net::new(limits);
    let a = net.a.attach(&limits);
    let (first, second) = (net.b.attach(&limits), net.b.attach(&limits));
    let one = net.listen(&first, 80);
    let two = net.listen(&second, 80);
    net.connect(&a, 80);
    net.connect(&a, 80);
    net.settle();
    assert_eq!((first.levels(one).pending, second.levels(two).pending), (2, 2));
    assert_eq!(first.events().len() + second.events().len(), 2);
    assert!(net.accept(&first, one).is_some());
    assert_eq!(second.levels(two).pending, 1);
    net.b.worker.detach(first.key);
    net.settle();
    assert_eq!(second.events(), [two]);
    assert!(net.accept(&second, two).is_some());
}

#[test]
fn a_connection_that_is_never_acknowledged_leaves_spans_to_the_others() {
    let limits = Limits { spans: 256, buffers: 1024, ..small() };
    let mut net = Net::new(limits);
    let (a, b) = (net.a.attach(&limits), net.b.attach(&limits));
    let listener = net.listen(&b, 80);
    let (stuck, stuck_far) = net.connected(&a, &b, listener, 80);
    let (near, far) = net.connected(&a, &b, listener, 80);
    net.link.set_up(false);
    let mut written = 0;
    for _ in 0..60 {
        // An odd length: each write is a span of its own.
        written += a.write(stuck, &pattern(written, 33));
        net.turn();
    }
    assert_eq!(written, 60 * 33);
    assert!(net.a.counters.spans_shared.read() > 0);
    net.link.set_up(true);
    assert_eq!(a.write(near, b"through"), 7);
    net.pass(5_000_000_000);
    assert_eq!(b.read(far, 100), b"through");
    assert_eq!(b.read(stuck_far, usize::MAX), pattern(0, written));
}
