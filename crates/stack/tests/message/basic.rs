//! Messages over a network that does nothing wrong.

use outboard_stack::message::*;

use crate::net::{KEY, Net, Outgoing, options, selector};

const LENGTHS: [u32; 9] = [0, 1, 128, 129, 1_400, 5_000, 16_384, 16_385, 300_000];

#[test]
fn posted_receives_take_messages_of_all_lengths() {
    for delivery in [false, true] {
        for length in LENGTHS {
            let mut net = Net::new(2);
            let (a, b) = (net.open(0, 7), net.open(1, 9));
            let to = net.address(0, 1, 9);
            let from = net.address(1, 0, 7);
            let (_, receive) = net.receive(b, selector(Some(from), 5, 0), length);
            let (_, send) = net.send_with(a, to, Outgoing { tag: Some(5), length, delivery });
            net.expect(1, receive, send, length);
            assert_eq!(net.sent(0, send), Status::Ok);
            net.assert_clean();
        }
    }
}

#[test]
fn unexpected_messages_wait_for_their_receive() {
    for length in LENGTHS {
        let mut net = Net::new(2);
        let (a, b) = (net.open(0, 7), net.open(1, 9));
        let to = net.address(0, 1, 9);
        let send = net.send(a, to, 5, length);
        net.wait(1, |event| matches!(event, MessageEvent::Arrived { .. }));
        let (_, receive) = net.receive(b, selector(None, 5, 0), length);
        net.expect(1, receive, send, length);
        assert_eq!(net.sent(0, send), Status::Ok);
        net.assert_clean();
    }
}

#[test]
fn messages_between_endpoints_of_one_engine_take_no_frames() {
    for length in LENGTHS {
        for early in [false, true] {
            let mut net = Net::new(1);
            let a = net.open(0, 7);
            let to = net.address(0, 0, 7);
            let posted = (!early).then(|| net.receive(a, selector(Some(to), 5, 0), length).1);
            let send = net.send(a, to, 5, length);
            let receive =
                posted.unwrap_or_else(|| net.receive(a, selector(Some(to), 5, 0), length).1);
            net.expect(0, receive, send, length);
            assert_eq!(net.sent(0, send), Status::Ok);
            assert!(net.log.is_empty());
            net.assert_clean();
        }
    }
}

#[test]
fn messages_of_one_sender_are_matched_in_order() {
    let mut net = Net::new(2);
    let (a, b) = (net.open(0, 7), net.open(1, 9));
    let to = net.address(0, 1, 9);
    let sends: Vec<_> =
        (0..200).map(|at| (net.send(a, to, 5, at * 97 % 20_000), at * 97 % 20_000)).collect();
    net.run(50_000_000);
    for (send, length) in sends {
        let (_, receive) = net.receive(b, selector(None, 0, u64::MAX), 20_000);
        net.expect(1, receive, send, length);
        assert_eq!(net.sent(0, send), Status::Ok);
    }
    net.assert_clean();
}

#[test]
fn the_receive_posted_first_wins() {
    let mut net = Net::new(2);
    let (a, b) = (net.open(0, 7), net.open(1, 9));
    let (to, from) = (net.address(0, 1, 9), net.address(1, 0, 7));
    let (_, other) = net.receive(b, selector(Some(from), 6, 0), 10);
    let (_, wild) = net.receive(b, selector(None, 4, 1), 10);
    let (_, exact) = net.receive(b, selector(Some(from), 5, 0), 10);
    let (_, late) = net.receive(b, selector(None, 0, u64::MAX), 10);
    let first = net.send(a, to, 5, 10);
    let second = net.send(a, to, 5, 10);
    let third = net.send(a, to, 5, 10);
    let fourth = net.send(a, to, 6, 10);
    net.expect(1, wild, first, 10);
    net.expect(1, exact, second, 10);
    net.expect(1, late, third, 10);
    net.expect(1, other, fourth, 10);
}

#[test]
fn a_message_longer_than_its_receive_is_truncated() {
    for length in [100, 10_000, 100_000] {
        let mut net = Net::new(2);
        let (a, b) = (net.open(0, 7), net.open(1, 9));
        let to = net.address(0, 1, 9);
        let (_, receive) = net.receive(b, selector(None, 5, 0), 50);
        let send = net.send(a, to, 5, length);
        let (envelope, status) = net.received(1, receive);
        assert_eq!((envelope.unwrap().length, status), (length, Status::Truncated));
        assert_eq!(net.sent(0, send), Status::Ok);
        net.assert_clean();
    }
}

#[test]
fn untagged_messages_match_untagged_receives_only() {
    let mut net = Net::new(2);
    let (a, b) = (net.open(0, 7), net.open(1, 9));
    let to = net.address(0, 1, 9);
    let (_, tagged) = net.receive(b, selector(None, 0, u64::MAX), 10);
    let (_, send) = net.send_with(a, to, Outgoing { tag: None, length: 10, delivery: false });
    assert_eq!(net.sent(0, send), Status::Ok);
    let selector = Selector { source: None, tag: None, ignore: 0 };
    let node = &mut net.nodes[1];
    assert_eq!(node.core.peek(b.id, selector).unwrap().tag, None);
    let send = net.send(a, to, 3, 10);
    net.expect(1, tagged, send, 10);
}

#[test]
fn claimed_messages_leave_matching() {
    for length in [10, 10_000, 100_000] {
        let mut net = Net::new(2);
        let (a, b) = (net.open(0, 7), net.open(1, 9));
        let to = net.address(0, 1, 9);
        let (first, second) = (net.send(a, to, 5, length), net.send(a, to, 5, length));
        let third = net.send(a, to, 5, length);
        net.run(2_000_000);
        let any = Selector { source: None, tag: Some(0), ignore: u64::MAX };
        let now = net.now;
        let node = &mut net.nodes[1];
        assert_eq!(node.core.peek(b.id, any).unwrap().immediate, Some(first as u32));
        let (claim, envelope) = node.core.claim(b.id, any).unwrap();
        assert_eq!(envelope.immediate, Some(first as u32));
        let (other, envelope) = node.core.claim(b.id, any).unwrap();
        assert_eq!(envelope.immediate, Some(second as u32));
        node.core.discard(now, other, &mut node.heap).unwrap();
        let (_, receive) = net.receive(b, selector(None, 5, 0), length);
        net.expect(1, receive, third, length);
        let now = net.now;
        let node = &mut net.nodes[1];
        node.heap.places.insert(PayloadPlace::Receive(77), vec![0; length as usize]);
        let request = ClaimedReceive { capacity: length, window: length, cookie: 77 };
        node.core.receive_claimed(now, claim, request, &mut node.heap).unwrap();
        net.expect(1, 77, first, length);
        assert_eq!(net.sent(0, second), Status::Ok);
        net.assert_clean();
    }
}

#[test]
fn a_cancelled_receive_takes_nothing() {
    let mut net = Net::new(2);
    let (a, b) = (net.open(0, 7), net.open(1, 9));
    let to = net.address(0, 1, 9);
    let (id, receive) = net.receive(b, selector(None, 5, 0), 10);
    assert!(net.nodes[1].core.cancel_receive(id));
    assert!(!net.nodes[1].core.cancel_receive(id));
    assert_eq!(net.received(1, receive), (None, Status::Cancelled));
    let (_, receive) = net.receive(b, selector(None, 5, 0), 10);
    let send = net.send(a, to, 5, 10);
    net.expect(1, receive, send, 10);
}

#[test]
fn a_send_to_a_port_without_endpoint_fails() {
    for length in LENGTHS {
        let mut net = Net::new(2);
        let (a, _) = (net.open(0, 7), net.open(1, 9));
        let to = net.address(0, 1, 10);
        let send = net.send(a, to, 5, length);
        assert_eq!(net.sent(0, send), Status::Gone);
        let itself = net.address(0, 0, 10);
        let send = net.send(a, itself, 5, length);
        assert_eq!(net.sent(0, send), Status::Gone);
    }
}

#[test]
fn jobs_do_not_meet() {
    let mut net = Net::new(2);
    let a = net.open(0, 7);
    net.open_as(1, EndpointOptions { key: Some(*b"another job's ke"), ..options(9) });
    let (to, itself) = (net.address(0, 1, 9), net.address(0, 0, 8));
    net.open_as(0, EndpointOptions { key: None, ..options(8) });
    let send = net.send(a, to, 5, 10);
    let local = net.send(a, itself, 5, 10);
    assert_eq!(net.sent(0, local), Status::Gone);
    assert_eq!(net.sent(0, send), Status::TimedOut);
    assert!(net.nodes[1].core.counters().drop_unknown_job > 0);
}

#[test]
fn long_messages_go_through_small_windows() {
    for local in [false, true] {
        let mut net = Net::new(2);
        let (a, b) = (net.open(0, 7), net.open(usize::from(!local), 9));
        let to = net.address(0, usize::from(!local), 9);
        let node = usize::from(!local);
        let (length, window, piece) = (1_000_000, 40_000, 30_000);
        let now = net.now;
        let it = &mut net.nodes[node];
        it.heap.places.insert(PayloadPlace::Receive(900), vec![0; length as usize]);
        let selector = Selector { source: None, tag: Some(5), ignore: 0 };
        let request = ReceiveRequest { selector, capacity: length, window, cookie: 900 };
        it.core.receive(now, b.id, request, &mut it.heap).unwrap();
        let it = &mut net.nodes[0];
        it.heap.places.insert(PayloadPlace::Send(901), crate::net::pattern(901, length));
        let request = SendRequest {
            to,
            tag: Some(5),
            immediate: Some(901),
            length,
            available: 0,
            delivery: false,
            cookie: 901,
        };
        it.core.send(now, a.id, request, &mut it.heap).unwrap();
        let mut available = 0;
        let mut told = 0;
        loop {
            let now = net.now;
            for event in std::mem::take(&mut net.nodes[0].events) {
                if let MessageEvent::Wanted { send, bytes, .. } = event {
                    let it = &mut net.nodes[0];
                    while available < bytes {
                        available = (available + piece).min(length);
                        it.core.feed(now, send, available, &mut it.heap).unwrap();
                    }
                } else {
                    net.nodes[0].events.push(event);
                }
            }
            let mut ended = false;
            for event in std::mem::take(&mut net.nodes[node].events) {
                if let MessageEvent::Part { receive, bytes, .. } = event {
                    assert!(bytes > told && bytes <= told + window);
                    told = bytes;
                    let it = &mut net.nodes[node];
                    it.core.extend(now, receive, bytes + window, &mut it.heap).unwrap();
                } else {
                    ended |= matches!(event, MessageEvent::Received { .. });
                    net.nodes[node].events.push(event);
                }
            }
            if ended {
                break;
            }
            net.step();
            assert!(net.now < 60_000_000_000, "{}", net.picture());
        }
        net.expect(node, 900, 901, length);
        assert_eq!(net.sent(0, 901), Status::Ok);
    }
}

#[test]
fn wrong_requests_are_refused() {
    let mut net = Net::new(1);
    let a = net.open(0, 7);
    let now = net.now;
    let node = &mut net.nodes[0];
    assert_eq!(node.core.open(now, options(7)).unwrap_err(), MessageError::PortInUse);
    let request = SendRequest {
        to: Address { host: Host::LOCAL, port: 7 },
        tag: None,
        immediate: None,
        length: 100,
        available: 50,
        delivery: false,
        cookie: 1,
    };
    let sent = node.core.send(now, a.id, request, &mut node.heap);
    assert_eq!(sent.unwrap_err(), MessageError::Length);
    let unknown = EndpointId::from_bits(7 << 32);
    let sent = node.core.send(now, unknown, request, &mut node.heap);
    assert_eq!(sent.unwrap_err(), MessageError::UnknownEndpoint);
    let keyless = node.core.open(now, EndpointOptions { key: None, ..options(8) }).unwrap();
    let to = net.address(1, 0, 9);
    let node = &mut net.nodes[0];
    let request = SendRequest { to, available: 100, ..request };
    let sent = node.core.send(now, keyless, request, &mut node.heap);
    assert_eq!(sent.unwrap_err(), MessageError::NoKey);
    assert_ne!(Some(KEY), options(8).key.filter(|key| *key != KEY));
}
