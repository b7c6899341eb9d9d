//! What is counted of a connection for TCP_INFO.

use super::peer::*;
use crate::tcp::TcpCounts;

fn counts(peer: &Peer) -> TcpCounts {
    peer.host.tcp.counts(peer.now, peer.id).unwrap()
}

#[test]
fn segments_are_counted_both_ways_and_large_ones_as_their_parts() {
    let mut peer = Peer::established();
    let now = counts(&peer);
    // Its SYN and its acknowledgement; our answer does not count, as in Linux.
    assert_eq!((now.received, now.received_data, now.sent, now.sent_data), (2, 0, 0, 0));
    peer.send("P. 1:101 ack 1");
    peer.wait(100);
    peer.sent();
    let now = counts(&peer);
    assert_eq!((now.received, now.received_data, now.sent, now.sent_data), (3, 1, 1, 0));
    peer.write(4500);
    peer.sent();
    let now = counts(&peer);
    assert_eq!((now.sent, now.sent_data), (6, 5));
    peer.send(". 101:101 ack 4501");
    let now = counts(&peer);
    assert_eq!((now.received, now.received_data), (4, 1));
    assert_eq!((now.timeouts, now.duplicates, now.out_of_order), (0, 0, 0));
}

#[test]
fn what_comes_out_of_order_is_counted() {
    let mut peer = Peer::established();
    peer.send("P. 101:201 ack 1");
    peer.send("P. 301:401 ack 1");
    peer.send("P. 1:101 ack 1");
    assert_eq!(counts(&peer).out_of_order, 2);
}

#[test]
fn timeouts_are_counted_in_rows_with_the_time_that_they_took() {
    let mut peer = Peer::established();
    peer.write(500);
    peer.sent();
    peer.wait(2_000);
    peer.sent();
    let now = counts(&peer);
    assert!(now.timeouts >= 1, "{now:?}");
    assert_eq!(now.timeout_series, 1);
    assert!(now.timeouts_ms > 0, "{now:?}");
    assert!(now.sent_data >= 2, "{now:?}");
    peer.send(". 1:1 ack 501");
    let (row, later) = (counts(&peer).timeouts_ms, counts(&peer).timeouts);
    peer.wait(2_000);
    assert_eq!(counts(&peer).timeouts_ms, row, "it is over");
    peer.write(500);
    peer.sent();
    peer.wait(3_000);
    peer.sent();
    let now = counts(&peer);
    assert_eq!(now.timeout_series, 2);
    assert!(now.timeouts > later && now.timeouts_ms > row, "{now:?}");
}

#[test]
fn duplicates_that_the_peer_reports_are_counted() {
    let mut peer = Peer::established();
    peer.write(500);
    peer.sent();
    peer.wait(2_000);
    peer.sent();
    assert!(peer.info().retransmits > 0);
    peer.send(". 1:1 ack 501 sack 1:501");
    assert_eq!(counts(&peer).duplicates, 1);
}

#[test]
fn waiting_for_room_counts_while_all_is_under_way() {
    let mut peer = Peer::established();
    peer.write(1_000);
    peer.sent();
    peer.wait(10);
    assert_eq!(counts(&peer).buffer_limited_us, 0, "nobody waits");
    peer.host.tcp.wait_for_room(peer.now, peer.id, true).unwrap();
    peer.wait(20);
    assert_eq!(counts(&peer).buffer_limited_us, 20_000);
    peer.send(". 1:1 ack 1001");
    peer.host.tcp.wait_for_room(peer.now, peer.id, false).unwrap();
    peer.wait(20);
    assert_eq!(counts(&peer).buffer_limited_us, 20_000);
}
