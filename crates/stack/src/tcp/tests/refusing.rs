//! Segments that the port's own queue drops.

use super::peer::*;
use crate::api::*;
use crate::tcp::connection::NEVER;

#[test]
fn what_a_port_refuses_was_not_sent_and_goes_when_the_timer_says_so() {
    let mut peer = Peer::established();
    peer.refuses = true;
    peer.write(100);
    peer.expect("P. 1:101 ack 1");
    assert_eq!(peer.levels().sent, 0);
    peer.expect("");
    peer.wait(199);
    peer.expect("");
    peer.wait(2);
    peer.expect("P. 1:101 ack 1");
    peer.wait(498);
    peer.expect("");
    peer.refuses = false;
    peer.wait(4);
    peer.expect("P. 1:101 ack 1");
    assert_eq!(peer.levels().sent, 100);
    peer.send(". 1:1 ack 101");
    peer.wait(5000);
    peer.expect("");
}

#[test]
fn what_was_refused_is_tried_again_with_what_is_written_and_puts_no_timer_off() {
    let mut peer = Peer::established();
    peer.refuses = true;
    peer.write(100);
    peer.sent();
    peer.wait(150);
    peer.write(100);
    peer.expect("P. 1:201 ack 1");
    peer.wait(52);
    peer.refuses = false;
    peer.expect("P. 1:201 ack 1");
    peer.send(". 1:1 ack 201");
    peer.wait(5000);
    peer.expect("");
}

#[test]
fn with_data_under_way_what_was_refused_waits_for_its_acknowledgement() {
    let mut peer = Peer::established();
    peer.write(1000);
    peer.expect("P. 1:1001 ack 1");
    peer.refuses = true;
    peer.write(3000);
    peer.expect(". 1001:2001 ack 1");
    peer.refuses = false;
    peer.expect("");
    let before = peer.info();
    peer.send(". 1:1 ack 1001");
    // A reduction that is spread over the round trip.
    peer.expect(". 1001:2001 ack 1 | . 2001:3001 ack 1");
    assert!(peer.info().ssthresh < before.cwnd, "a full queue asks for less");
}

#[test]
fn a_retransmission_that_was_refused_is_still_to_be_sent() {
    let mut peer = Peer::established();
    peer.write(4000);
    peer.sent();
    peer.refuses = true;
    peer.send(". 1:1 ack 1 sack 1001:4001");
    peer.expect(". 1:1001 ack 1");
    peer.refuses = false;
    peer.expect("");
    peer.send("P. 1:101 ack 1 sack 1001:4001");
    peer.expect(". 1:1001 ack 101");
}

/// The connection's timer ran on for a quarter of an hour after its end.
#[test]
fn what_is_refused_after_the_connections_end_arms_no_timer() {
    let mut peer = Peer::established();
    peer.write(100);
    peer.sent();
    peer.send("R 1:1");
    let id = peer.id;
    let payload = Payload::Stream { id, owner: Owner(2), offset: 0, len: 100 };
    peer.host.tcp.on_refused(peer.now, &payload);
    assert_eq!(peer.host.tcp.hot[id.index as usize].send_at, NEVER);
}

/// The time of the keepalives before counted as time of the refusals.
#[test]
fn keepalives_that_nobody_answered_are_no_reason_to_give_up_what_is_refused() {
    let mut peer = Peer::established();
    peer.wait(2_000_000);
    peer.set_options(|o| (o.keepalive, o.keepidle_s, o.keepintvl_s) = (true, 10, 60));
    peer.wait(11_000);
    assert!(!peer.sent().is_empty(), "a keepalive probe");
    peer.refuses = true;
    peer.write(100);
    peer.sent();
    peer.wait(1000);
    peer.sent();
    peer.state(TcpState::Established);
}

#[test]
fn a_port_that_refuses_everything_ends_a_connection_by_its_user_timeout() {
    let mut peer = Peer::established();
    peer.set_options(|o| o.user_timeout_ms = 3000);
    peer.refuses = true;
    peer.write(24);
    let mut tries = 0;
    while peer.levels().state == TcpState::Established {
        tries += usize::from(!peer.sent().is_empty());
        assert!(tries < 20, "it never ends");
        peer.wait(100);
    }
    assert_eq!(peer.levels().error, Some(TcpError::TimedOut));
    assert_eq!(tries, 7, "at once and six times more");
    let told = peer.host.tcp.progress(peer.now, peer.id).unwrap();
    assert_eq!((told.probes, told.backoff), (6, 0));
}
