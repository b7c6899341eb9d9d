//! Messages over a network that loses and repeats, between hosts that restart.

use outboard_stack::message::*;

use crate::net::{Fate, Net, selector};

/// Sends messages of many lengths in both directions and sees them arrive.
fn exchange(net: &mut Net, messages: u32) {
    let ends = [net.open(0, 7), net.open(1, 7)];
    let lengths: Vec<u32> = (0..messages).map(|at| at * 1_013 % 40_000).collect();
    let mut sends = Vec::new();
    for &length in &lengths {
        for (node, &end) in ends.iter().enumerate() {
            let to = net.address(node, 1 - node, 7);
            sends.push((node, net.send(end, to, 5, length), length));
        }
    }
    for &(node, send, length) in &sends {
        let other = 1 - node;
        let (_, receive) = net.receive(ends[other], selector(None, 5, 0), 40_000);
        net.expect(other, receive, send, length);
    }
    for &(node, send, _) in &sends {
        assert_eq!(net.sent(node, send), Status::Ok);
    }
    net.assert_clean();
}

#[test]
fn every_packet_may_be_lost_once() {
    for lost in 0..25 {
        let mut net = Net::new(2);
        let mut count = 0;
        net.judge = Box::new(move |_, _| {
            count += 1;
            if count == lost { Fate::Lost } else { Fate::Arrives }
        });
        exchange(&mut net, 12);
    }
}

#[test]
fn a_tenth_is_lost_and_a_tenth_comes_twice() {
    for seed in 0..8u64 {
        let mut net = Net::new(2);
        let mut state = seed;
        net.judge = Box::new(move |_, _| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            match (state >> 33) % 20 {
                0 | 1 => Fate::Lost,
                2 | 3 => Fate::Twice,
                _ => Fate::Arrives,
            }
        });
        exchange(&mut net, 30);
        assert!(net.nodes[0].core.counters().resent > 0);
    }
}

#[test]
fn a_restarted_host_is_noticed_by_its_peer() {
    let mut net = Net::new(2);
    let (a, b) = (net.open(0, 7), net.open(1, 9));
    let to = net.address(0, 1, 9);
    let (_, receive) = net.receive(b, selector(None, 5, 0), 10);
    let send = net.send(a, to, 5, 10);
    net.expect(1, receive, send, 10);
    assert_eq!(net.sent(0, send), Status::Ok);
    net.run(1_000_000);
    net.restart(1, 2_000);
    let b = net.open(1, 9);
    let send = net.send(a, to, 5, 10);
    assert_eq!(net.sent(0, send), Status::Reset);
    assert_eq!(net.nodes[0].core.counters().ended_reset, 1);
    let send = net.send(a, to, 5, 10);
    let (_, receive) = net.receive(b, selector(None, 5, 0), 10);
    net.expect(1, receive, send, 10);
    assert_eq!(net.sent(0, send), Status::Ok);
}

#[test]
fn a_restarted_host_that_speaks_first_ends_the_old_association() {
    let mut net = Net::new(2);
    let (a, b) = (net.open(0, 7), net.open(1, 9));
    let (to, back) = (net.address(0, 1, 9), net.address(1, 0, 7));
    let (_, receive) = net.receive(b, selector(None, 5, 0), 100_000);
    // Its sender has granted bytes to come, which never will.
    let from = net.open(0, 8);
    let (_, partial) = net.receive(a, selector(None, 6, 0), 100_000);
    let send = net.send(b, back, 6, 100_000);
    net.judge = Box::new(
        |from, bytes| {
            if from == 1 && bytes.len() > 1_000 { Fate::Lost } else { Fate::Arrives }
        },
    );
    net.run(3_000_000);
    let _ = (receive, from, send, to);
    net.judge = Box::new(|_, _| Fate::Arrives);
    net.restart(1, 2_000);
    let b = net.open(1, 9);
    let (_, fresh) = net.receive(a, selector(None, 7, 0), 10);
    let send = net.send(b, back, 7, 10);
    net.expect(0, fresh, send, 10);
    let node = &net.nodes[0];
    assert!(node.core.associations() == 1);
    // The receive that had no byte of the old message waits on, or has failed with it.
    let failed = node.events.iter().any(|event| {
        matches!(event, MessageEvent::Received { cookie, status: Status::Reset, .. } if *cookie == partial)
    });
    let waits = !node
        .events
        .iter()
        .any(|event| matches!(event, MessageEvent::Received { cookie, .. } if *cookie == partial));
    assert!(failed || waits);
}

#[test]
fn a_silent_host_fails_what_is_under_way() {
    let mut net = Net::new(2);
    let a = net.open(0, 7);
    let to = net.address(0, 1, 9);
    net.judge = Box::new(|_, _| Fate::Lost);
    let (small, long) = (net.send(a, to, 5, 10), net.send(a, to, 5, 100_000));
    assert_eq!(net.sent(0, small), Status::TimedOut);
    assert_eq!(net.sent(0, long), Status::TimedOut);
    assert_eq!(net.nodes[0].core.associations(), 0);
}

#[test]
fn an_endpoint_that_closes_sends_on_and_turns_messages_away() {
    let mut net = Net::new(2);
    let (a, b) = (net.open(0, 7), net.open(1, 9));
    let (to, back) = (net.address(0, 1, 9), net.address(1, 0, 7));
    let sends: Vec<_> = (0..20).map(|_| net.send(a, to, 5, 3_000)).collect();
    let (_, receive) = net.receive(a, selector(None, 5, 0), 10);
    let own = net.address(0, 0, 7);
    let to_itself = net.send(a, own, 9, 50_000);
    let now = net.now;
    let node = &mut net.nodes[0];
    node.core.close(now, a.id, &mut node.heap);
    assert_eq!(net.received(0, receive), (None, Status::Cancelled));
    assert_eq!(net.sent(0, to_itself), Status::Gone);
    for send in sends {
        let (_, receive) = net.receive(b, selector(None, 5, 0), 3_000);
        net.expect(1, receive, send, 3_000);
        assert_eq!(net.sent(0, send), Status::Ok);
    }
    net.wait(0, |event| matches!(event, MessageEvent::Closed { .. }));
    let late = net.send(b, back, 5, 10);
    assert_eq!(net.sent(1, late), Status::Gone);
    net.assert_clean();
}

#[test]
fn an_aborted_endpoint_gives_up_its_sends() {
    let mut net = Net::new(2);
    let (a, b) = (net.open(0, 7), net.open(1, 9));
    let to = net.address(0, 1, 9);
    let (_, receive) = net.receive(b, selector(None, 5, 0), 10_000_000);
    let send = net.send(a, to, 5, 10_000_000);
    net.run(300_000);
    let now = net.now;
    let node = &mut net.nodes[0];
    node.core.abort(now, a.id, &mut node.heap);
    assert_eq!(net.sent(0, send), Status::Aborted);
    net.wait(0, |event| matches!(event, MessageEvent::Closed { .. }));
    assert_eq!(net.received(1, receive).1, Status::Aborted);
    net.assert_clean();
}

/// Its program is told at once; the table keeps the send until the receiver has answered, and ABORT is
/// sent again until then.
#[test]
fn a_send_that_was_given_up_stays_until_abort_is_answered() {
    let mut net = Net::new(2);
    let (a, b) = (net.open(0, 7), net.open(1, 9));
    let to = net.address(0, 1, 9);
    let (_, receive) = net.receive(b, selector(None, 5, 0), 10_000_000);
    let send = net.send(a, to, 5, 10_000_000);
    net.run(300_000);
    let mut losses = 3;
    net.judge = Box::new(move |from, _| {
        // ABORT leaves before data.
        let lost = from == 0 && losses > 0;
        losses -= i32::from(lost);
        if lost { Fate::Lost } else { Fate::Arrives }
    });
    let now = net.now;
    let node = &mut net.nodes[0];
    node.core.abort(now, a.id, &mut node.heap);
    assert_eq!(net.sent(0, send), Status::Aborted);
    net.wait(0, |event| matches!(event, MessageEvent::Closed { .. }));
    assert_eq!(net.nodes[0].core.usage().sends, 1);
    assert_eq!(net.received(1, receive).1, Status::Aborted);
    net.run(1_000_000_000);
    assert_eq!(net.nodes[0].core.usage().sends, 0, "{}", net.picture());
    net.assert_clean();
}

/// The last send of an endpoint ends while it closes: its own message to itself, which it turns away.
#[test]
fn an_endpoint_that_closes_on_its_own_message_still_ends_its_receives() {
    for abort in [false, true] {
        let mut net = Net::new(1);
        let a = net.open(0, 7);
        let own = net.address(0, 0, 7);
        let send = net.send(a, own, 9, 50_000);
        let (_, receive) = net.receive(a, selector(None, 5, 0), 10);
        let now = net.now;
        let node = &mut net.nodes[0];
        if abort {
            node.core.abort(now, a.id, &mut node.heap);
        } else {
            node.core.close(now, a.id, &mut node.heap);
        }
        assert_eq!(net.received(0, receive), (None, Status::Cancelled));
        assert_eq!(net.sent(0, send), Status::Gone);
        net.wait(0, |event| matches!(event, MessageEvent::Closed { .. }));
        net.assert_clean();
    }
}
