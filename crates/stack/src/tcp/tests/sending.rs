//! Sending: Nagle, windows, congestion, recovery.

use super::peer::*;
use crate::api::*;

//= https://www.rfc-editor.org/rfc/rfc5681#section-3
//= type=test
//# a TCP MUST NOT be more aggressive than the following algorithms allow
//= https://www.rfc-editor.org/rfc/rfc5681#section-3.1
//= type=test
//# The slow start and congestion avoidance algorithms MUST be used by a TCP sender to control the
//# amount of outstanding data being injected into the network.
//= https://www.rfc-editor.org/rfc/rfc5681#section-3.1
//= type=test
//# As specified in [RFC3390], the SYN/ACK and the acknowledgment of the SYN/ACK MUST NOT increase
//# the size of the congestion window.
//= https://www.rfc-editor.org/rfc/rfc9937#section-3
//= type=test
//# At any given time, a connection MUST NOT send data if inflight (see below) matches or exceeds
//# cwnd.
#[test]
fn ten_segments_go_out_at_first() {
    let mut peer = Peer::established();
    peer.write(20_000);
    assert_eq!(peer.sent().split(" | ").count(), 10);
    peer.send(". 1:1 ack 2001");
    // Two were acknowledged, four may go (slow start).
    assert_eq!(peer.sent().split(" | ").count(), 4);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.4
//= type=test
//# A TCP implementation SHOULD implement the Nagle algorithm to coalesce
//# short segments (SHLD-7).
#[test]
fn nagle_holds_a_second_small_segment_back() {
    let mut peer = Peer::established();
    peer.write(10);
    peer.expect("P. 1:11 ack 1");
    peer.write(10);
    peer.expect("");
    peer.write(10);
    peer.send(". 1:1 ack 11");
    peer.expect("P. 11:31 ack 1");
}

/// Minshall: a small segment behind full ones does not wait.
#[test]
fn the_small_end_of_a_large_write_goes_at_once() {
    let mut peer = Peer::established();
    peer.write(1500);
    peer.expect(". 1:1001 ack 1 | P. 1001:1501 ack 1");
    peer.write(100);
    peer.expect("");
}

#[test]
fn nodelay_sends_small_segments_at_once() {
    let mut peer = Peer::established();
    peer.set_options(|o| o.nodelay = true);
    peer.write(10);
    peer.write(10);
    peer.sent();
    peer.write(10);
    peer.expect("P. 21:31 ack 1");
}

#[test]
fn cork_holds_partial_segments_until_uncorked() {
    let mut peer = Peer::established();
    peer.set_options(|o| o.cork = true);
    peer.write(1100);
    peer.expect(". 1:1001 ack 1");
    peer.send(". 1:1 ack 1001");
    peer.expect("");
    peer.set_options(|o| o.cork = false);
    peer.expect("P. 1001:1101 ack 1");
}

#[test]
fn cork_holds_for_two_hundred_milliseconds_at_most() {
    let mut peer = Peer::established();
    peer.set_options(|o| o.cork = true);
    peer.sent();
    peer.write(100);
    peer.expect("");
    peer.wait(199);
    peer.expect("");
    peer.wait(2);
    peer.expect("P. 1:101 ack 1");
}

//= https://www.rfc-editor.org/rfc/rfc7323#section-2.4
//= type=test
//# The initial transmission MUST be within the window announced by the most recent <ACK>.
//= https://www.rfc-editor.org/rfc/rfc5681#section-2
//= type=test
//# At any given time, a TCP MUST NOT send data with a sequence number higher than the sum of the
//# highest acknowledged sequence number and the minimum of cwnd and rwnd.
//= https://www.rfc-editor.org/rfc/rfc9937#section-3
//= type=test
//# At any given time, a connection MUST NOT send data with a sequence number higher than the sum of
//# SND.UNA and rwnd.
//= https://www.rfc-editor.org/rfc/rfc9406#section-3
//= type=test
//# At any given time, a TCP MUST NOT send data with a sequence number higher than the sum of the
//# highest acknowledged sequence number and the minimum of the cwnd and rwnd.
#[test]
fn the_peers_window_is_kept() {
    let mut peer = Peer::established();
    peer.send("P. 1:2 ack 1");
    peer.send("P. 2:3 ack 1 win 2500");
    peer.write(5000);
    peer.expect(". 1:1001 ack 3 | . 1001:2001 ack 3");
    peer.send(". 3:3 ack 2001 win 2500");
    peer.expect(". 2001:3001 ack 3 | . 3001:4001 ack 3");
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6
//= type=test
//# a sending TCP peer MUST
//# be robust against window shrinking
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6
//= type=test
//# the sender SHOULD NOT send new data (SHLD-15)
//= https://www.rfc-editor.org/rfc/rfc7323#section-2.4
//= type=test
//# Implementations MUST ensure that they handle a shrinking window, as specified in Section
//# 4.2.2.16 of [RFC1122].
#[test]
fn a_shrunken_window_stops_new_data() {
    let mut peer = Peer::established();
    peer.write(5000);
    peer.sent();
    peer.send(". 1:1 ack 1001 win 100");
    peer.write(1000);
    peer.expect("");
    peer.send(". 1:1 ack 5001 win 60000");
    peer.expect("P. 5001:6001 ack 1");
}

//= https://www.rfc-editor.org/rfc/rfc5681#section-3.2
//= type=test
//# The fast retransmit algorithm uses
//# the arrival of 3 duplicate ACKs
//= https://www.rfc-editor.org/rfc/rfc5681#section-3.2
//= type=test
//# The TCP sender SHOULD use the "fast retransmit" algorithm to detect and repair loss, based on
//# incoming duplicate ACKs.
#[test]
fn three_duplicates_bring_the_lost_segment_again() {
    let mut peer = Peer::established_with(Offer { sack: false, ..PLAIN }, TcpOptions::default());
    peer.write(10_000);
    peer.sent();
    peer.send(". 1:1 ack 1");
    peer.send(". 1:1 ack 1");
    peer.expect("");
    peer.send(". 1:1 ack 1");
    peer.expect(". 1:1001 ack 1");
    assert!(peer.info().cwnd < 10_000);
}

//= https://www.rfc-editor.org/rfc/rfc3042#section-2
//= type=test
//# it SHOULD use the Limited Transmit algorithm, which calls for a TCP
//# sender to transmit new data upon the arrival of the first two
//# consecutive duplicate ACKs
//= https://www.rfc-editor.org/rfc/rfc5681#section-3.2
//= type=test
//# On the first and second duplicate ACKs received at a sender, a TCP SHOULD send a segment of
//# previously unsent data
//= https://www.rfc-editor.org/rfc/rfc5681#section-3.2
//= type=test
//# Further, the TCP sender MUST NOT change cwnd to reflect these two segments [RFC3042].
//= https://www.rfc-editor.org/rfc/rfc3042#section-2
//= type=test
//# The congestion window (cwnd) MUST NOT be changed when these new segments are transmitted.
#[test]
fn the_first_two_duplicates_let_new_segments_out() {
    let mut peer = Peer::established_with(Offer { sack: false, ..PLAIN }, TcpOptions::default());
    peer.write(20_000);
    peer.sent();
    peer.send(". 1:1 ack 1");
    peer.expect(". 10001:11001 ack 1");
    peer.send(". 1:1 ack 1");
    peer.expect(". 11001:12001 ack 1");
    assert_eq!(peer.info().cwnd, 10_000);
}

//= https://www.rfc-editor.org/rfc/rfc5681#section-3.2
//= type=test
//# a sender using SACK [RFC2018] MUST NOT send new data unless the incoming duplicate
//# acknowledgment contains new SACK information.
//= https://www.rfc-editor.org/rfc/rfc3042#section-2
//= type=test
//# the data sender MUST NOT send new segments in response to duplicate ACKs that contain no new
//# SACK information, as a misbehaving receiver can generate such ACKs to trigger inappropriate
//# transmission of data segments.
#[test]
fn with_sack_a_duplicate_that_says_nothing_new_lets_nothing_out() {
    let mut peer = Peer::distant();
    peer.write(20_000);
    peer.sent();
    peer.wait(40);
    peer.send(". 1:1 ack 1 sack 1001:2001");
    peer.expect(". 10001:11001 ack 1");
    for _ in 0..2 {
        peer.send(". 1:1 ack 1 sack 1001:2001");
        peer.expect("");
    }
}

//= https://www.rfc-editor.org/rfc/rfc5681#section-3.2
//= type=test
//# a TCP MUST set ssthresh to no more than the value given in equation (4).
//= https://www.rfc-editor.org/rfc/rfc5681#section-4.3
//= type=test
//# when the first loss in a window of data is detected, ssthresh MUST be set to no more than the
//# value given by equation (4).
//= https://www.rfc-editor.org/rfc/rfc5681#section-4.3
//= type=test
//# after all loss in the given window of segments has been successfully retransmitted, cwnd MUST be
//# set to no more than ssthresh
#[test]
fn a_loss_halves_what_reno_has_under_way() {
    let options = TcpOptions { congestion: CongestionKind::Reno, ..TcpOptions::default() };
    let mut peer = Peer::established_with(Offer { sack: false, ..PLAIN }, options);
    peer.write(10_000);
    peer.sent();
    for _ in 0..3 {
        peer.send(". 1:1 ack 1");
    }
    peer.expect(". 1:1001 ack 1");
    assert_eq!(peer.info().ssthresh, 5000);
    peer.send(". 1:1 ack 10001");
    assert_eq!(peer.info().cwnd, 5000);
}

//= https://www.rfc-editor.org/rfc/rfc6582#section-3.2
//= type=test
//# If this ACK does *not* acknowledge all of the data up to and
//# including recover, then this is a partial ACK.
#[test]
fn without_sack_partial_acknowledgements_find_the_next_hole() {
    let mut peer = Peer::established_with(Offer { sack: false, ..PLAIN }, TcpOptions::default());
    peer.write(10_000);
    peer.sent();
    for _ in 0..3 {
        peer.send(". 1:1 ack 1");
    }
    peer.expect(". 1:1001 ack 1");
    peer.send(". 1:1 ack 4001");
    peer.expect(". 4001:5001 ack 1");
    peer.send(". 1:1 ack 10001");
    peer.expect("");
    assert_eq!(peer.info().retransmits, 2);
}

#[test]
fn sack_blocks_that_cannot_be_are_ignored() {
    let mut peer = Peer::established();
    peer.write(5000);
    peer.sent();
    peer.send(". 1:1 ack 1 sack 90000:99000 4001:3001 -500:0 6001:7001");
    peer.expect("");
    peer.state(TcpState::Established);
}

//= https://www.rfc-editor.org/rfc/rfc5681#section-4.1
//= type=test
//# Therefore, a TCP SHOULD set cwnd to no more than RW before beginning
//# transmission if the TCP has not sent data in an interval exceeding
//# the retransmission timeout.
#[test]
fn after_an_idle_time_the_window_starts_again() {
    let mut peer = Peer::established();
    let mut at = 1;
    for _ in 0..4 {
        peer.write(30_000);
        while !peer.sent().is_empty() {
            at = peer.last.unwrap().0.seq.since(peer.iss) + 1000;
            peer.send(&format!(". 1:1 ack {at}"));
        }
    }
    assert!(peer.info().cwnd > 20_000, "{}", peer.info().cwnd);
    assert!(at > 90_000);
    let before = peer.info().cwnd;
    // A timeout and a half: halved once.
    peer.wait(300);
    peer.write(10);
    peer.sent();
    assert_eq!(peer.info().cwnd, before / 2);
    peer.send(&format!(". 1:1 ack {}", at + 10));
    peer.wait(5000);
    peer.write(100_000);
    assert_eq!(peer.sent().split(" | ").count(), 10);
}

//= https://www.rfc-editor.org/rfc/rfc9438#section-4.6
//= type=test
//# Implementations that use _cwnd_ MUST use other measures to prevent _cwnd_ from growing when the
//# volume of bytes in flight is smaller than _cwnd_.
#[test]
fn an_idle_application_does_not_grow_the_window() {
    let mut peer = Peer::established();
    for i in 0..100 {
        peer.write(100);
        peer.sent();
        peer.send(&format!(". 1:1 ack {}", 1 + (i + 1) * 100));
    }
    assert_eq!(peer.info().cwnd, 10_000);
}

/// A peer that delays acknowledgements kept a segment of each window back for a round trip, as what
/// was older than half of one was waited for.
#[test]
fn part_of_a_frame_waits_for_an_acknowledgement_that_is_due_alone() {
    for (after_ms, goes) in [(30, ". 12001:13001 ack 1"), (40, "")] {
        let mut peer = Peer::distant_with_large_frames();
        peer.write(30_000);
        peer.sent();
        peer.wait(after_ms);
        peer.send(". 1:1 ack 2001 win 10000");
        assert!(peer.sent().contains("10001:12001"));
        peer.send(". 1:1 ack 3001 win 10000");
        peer.expect(goes);
    }
}

/// It counted as not in use, and did not grow, where a part of a segment was left of it.
#[test]
fn a_window_without_room_for_a_segment_is_in_use() {
    let options = TcpOptions { congestion: CongestionKind::Reno, ..TcpOptions::default() };
    let mut peer = Peer::established_with(PLAIN, options);
    peer.write(7000);
    peer.sent();
    for end in [3001, 4001, 5001] {
        peer.send(&format!(". 1:1 ack 1 sack 2001:{end}"));
    }
    peer.sent();
    peer.send(". 1:1 ack 7001");
    assert_eq!(peer.info().cwnd % 1000, 500);
    let cwnd = peer.info().cwnd;
    let whole = cwnd / 1000 * 1000;
    peer.write(whole as usize);
    peer.sent();
    peer.send(&format!(". 1:1 ack {}", 7001 + whole));
    assert_eq!(peer.info().cwnd, cwnd + 1000);
}

/// RFC 6691 section 2.
//= https://www.rfc-editor.org/rfc/rfc2018#section-4
//= type=test
//# If sent at all, SACK options SHOULD be included in all ACKs which do not ACK the highest
//# sequence number in the data receiver's queue.
//= https://www.rfc-editor.org/rfc/rfc6691#section-2
//= type=test
//# the sender MUST reduce the TCP data length to account for any IP or TCP options that it is
//# including in the packets that it sends.
#[test]
fn data_makes_room_for_sack_blocks_within_the_mtu() {
    let mut peer = Peer::established();
    peer.send(". 11:21 ack 1");
    peer.write(1000);
    // The peer takes 1000 bytes of options and data together.
    peer.expect(". 1:989 ack 1 sack 11:21");
}

/// As Linux: where the network is known to change the order, what is acknowledged selectively
/// lets the window grow, too.
#[test]
fn what_arrives_out_of_order_counts_where_reordering_has_been_seen() {
    let mut peer = Peer::distant();
    peer.write(10_000);
    peer.sent();
    peer.wait(40);
    peer.send(". 1:1 ack 1 sack 9001:10001");
    assert_eq!(peer.info().cwnd, 10_000);
    peer.send(". 1:1 ack 1 sack 3001:4001 9001:10001");
    assert_eq!(peer.info().cwnd, 11_000);
    peer.send(". 1:1 ack 10001");
    assert_eq!(peer.info().cwnd, 19_000);
}
