//! Messages without room: held with their senders, or refused.

use outboard_stack::message::*;

use crate::net::{Fate, Net, options, selector};

#[test]
fn without_buffers_messages_wait_with_their_senders() {
    let mut net = Net::new(2);
    let (a, b) = (net.open(0, 7), net.open(1, 9));
    net.nodes[1].heap.buffers_most = 2;
    let to = net.address(0, 1, 9);
    let sends: Vec<_> = (0..20).map(|_| net.send(a, to, 5, 10_000)).collect();
    net.run(5_000_000);
    assert_eq!(net.nodes[1].core.counters().held, 18);
    for send in sends {
        let (_, receive) = net.receive(b, selector(None, 5, 0), 10_000);
        net.expect(1, receive, send, 10_000);
        assert_eq!(net.sent(0, send), Status::Ok);
    }
    net.assert_clean();
}

/// Under both policies, whatever is lost, refused messages arrive in order.
#[test]
fn refused_messages_come_again_in_order() {
    for policy in [Unexpected::Buffer, Unexpected::Drop] {
        for lost in 0..30 {
            let mut net = Net::new(2);
            let (a, c) = (net.open(0, 7), net.open(0, 8));
            let unexpected = policy;
            let b = net.open_as(1, EndpointOptions { unexpected, envelopes: 2, ..options(9) });
            let other = net.open(1, 10);
            let mut count = 0;
            net.judge = Box::new(move |_, _| {
                count += 1;
                if count % 60 == lost { Fate::Lost } else { Fate::Arrives }
            });
            let (to, beside) = (net.address(0, 1, 9), net.address(0, 1, 10));
            let sends: Vec<_> =
                (0..12).map(|at| (net.send(a, to, 5, at * 700), at * 700)).collect();
            // Another endpoint's messages to another port are not stopped.
            let free = net.send(c, beside, 5, 500);
            let (_, receive) = net.receive(other, selector(None, 5, 0), 500);
            net.expect(1, receive, free, 500);
            net.run(20_000_000);
            assert!(net.nodes[1].core.counters().refused > 0);
            for (send, length) in sends {
                let (_, receive) = net.receive(b, selector(None, 5, 0), 10_000);
                net.expect(1, receive, send, length);
                assert_eq!(net.sent(0, send), Status::Ok);
            }
            net.assert_clean();
        }
    }
}

#[test]
fn a_refusal_outlives_the_endpoint_whose_messages_were_refused() {
    let mut net = Net::new(2);
    let (a, c) = (net.open(0, 7), net.open(0, 8));
    let b = net.open_as(1, EndpointOptions { unexpected: Unexpected::Drop, ..options(9) });
    let to = net.address(0, 1, 9);
    let refused = net.send(a, to, 5, 10);
    net.run(500_000);
    assert!(net.nodes[1].core.counters().refused > 0);
    let now = net.now;
    let node = &mut net.nodes[0];
    node.core.abort(now, a.id, &mut node.heap);
    let status = net.sent(0, refused);
    assert!(matches!(status, Status::Cancelled | Status::Aborted), "{status:?}");
    let send = net.send(c, to, 6, 10);
    let (_, receive) = net.receive(b, selector(None, 6, 0), 10);
    net.expect(1, receive, send, 10);
    assert_eq!(net.sent(0, send), Status::Ok);
}

#[test]
fn refused_messages_fail_when_the_port_goes() {
    let mut net = Net::new(2);
    let a = net.open(0, 7);
    let b = net.open_as(1, EndpointOptions { unexpected: Unexpected::Drop, ..options(9) });
    let to = net.address(0, 1, 9);
    let sends: Vec<_> = (0..5).map(|_| net.send(a, to, 5, 10)).collect();
    net.run(500_000);
    let now = net.now;
    let node = &mut net.nodes[1];
    node.core.close(now, b.id, &mut node.heap);
    for send in sends {
        assert_eq!(net.sent(0, send), Status::Gone);
    }
}
