//! Timers: retransmission, probes, keepalive, giving up.

use super::peer::*;
use crate::api::*;

//= https://www.rfc-editor.org/rfc/rfc6298#section-5
//= type=test
//# The host MUST set RTO <- RTO * 2 ("back off the timer").
//= https://www.rfc-editor.org/rfc/rfc6298#section-5
//= type=test
//# An implementation MUST manage the retransmission timer(s) in such a way that a segment is never
//# retransmitted too early, i.e., less than one RTO after the previous transmission of that
//# segment.
#[test]
fn a_lost_segment_is_sent_again_after_the_timeout_and_then_ever_later() {
    let mut peer = Peer::established_with(Offer { sack: false, ..PLAIN }, TcpOptions::default());
    peer.write(100);
    peer.expect("P. 1:101 ack 1");
    // srtt 0 and Linux's floor of 200 ms for the variance.
    peer.wait(199);
    peer.expect("");
    peer.wait(2);
    peer.expect("P. 1:101 ack 1");
    peer.wait(398);
    peer.expect("");
    peer.wait(4);
    peer.expect("P. 1:101 ack 1");
    peer.send(". 1:1 ack 101");
    // Nobody knows which copy was answered, so that nothing is known about the path.
    assert_eq!(peer.info().rto_ns, 800_000_000);
    peer.wait(5000);
    peer.expect("");
}

//= https://www.rfc-editor.org/rfc/rfc5681#section-3.1
//= type=test
//# Furthermore, upon a timeout (as specified in [RFC2988]) cwnd MUST be
//# set to no more than the loss window, LW, which equals 1 full-sized
//# segment (regardless of the value of IW).
//= https://www.rfc-editor.org/rfc/rfc8257#section-3.5
//= type=test
//# Just as specified in [RFC5681], upon a timeout, the cwnd MUST be set to no more than the loss
//# window (1 full-sized segment), regardless of previous cwnd reductions in a given window of data.
#[test]
fn after_a_timeout_one_segment_goes_and_the_rest_follows_acknowledgements() {
    let mut peer = Peer::established_with(Offer { sack: false, ..PLAIN }, TcpOptions::default());
    peer.write(10_000);
    peer.sent();
    peer.wait(201);
    peer.expect(". 1:1001 ack 1");
    assert_eq!(peer.info().cwnd, 1000);
    peer.send(". 1:1 ack 1001");
    peer.expect(". 1001:2001 ack 1 | . 2001:3001 ack 1");
    peer.send(". 1:1 ack 3001");
    assert_eq!(peer.sent().split(" | ").count(), 4);
}

#[test]
fn after_a_timeout_what_was_sacked_is_not_sent_again() {
    let mut peer = Peer::established();
    peer.write(4_000);
    peer.sent();
    peer.send(". 1:1 ack 1 sack 1001:3001");
    peer.wait(201);
    peer.expect(". 1:1001 ack 1");
    peer.send(". 1:1 ack 3001");
    peer.expect("P. 3001:4001 ack 1");
}

//= https://www.rfc-editor.org/rfc/rfc2018#section-8
//= type=test
//# The data sender MUST retransmit the segment at the left
//# edge of the window after a retransmit timeout, whether or not the
//= https://www.rfc-editor.org/rfc/rfc2018#section-5
//= type=test
//# After a retransmit timeout the data sender SHOULD turn off all of the SACKed bits, since the
//# timeout might indicate that the data receiver has reneged.
//= https://www.rfc-editor.org/rfc/rfc2018#section-5
//= type=test
//# The data sender MUST retransmit the segment at the left edge of the window after a retransmit
//# timeout, whether or not the SACKed bit is on for that segment.
//= https://www.rfc-editor.org/rfc/rfc2018#section-8
//= type=test
//# Since the data receiver may later discard data reported in a SACK option, the sender MUST NOT
//# discard data before it is acknowledged by the Acknowledgment Number field in the TCP header.
#[test]
fn a_peer_that_reneges_gets_everything_again() {
    let mut peer = Peer::established();
    peer.write(4_000);
    peer.sent();
    peer.send(". 1:1 ack 1 sack 1001:3001");
    peer.wait(201);
    peer.expect(". 1:1001 ack 1");
    peer.wait(401);
    peer.expect(". 1:1001 ack 1");
    peer.send(". 1:1 ack 1001");
    assert!(peer.sent().starts_with(". 1001:2001 ack 1"));
}

#[test]
fn a_lost_fin_is_sent_again() {
    let mut peer = Peer::fin_wait_1();
    peer.wait(201);
    peer.expect("F. 1:1 ack 1");
    peer.send(". 1:1 ack 2");
    peer.state(TcpState::FinWait2);
}

#[test]
fn a_lost_syn_is_sent_again_ten_times_before_giving_up() {
    let mut peer = Peer::syn_sent(PLAIN, TcpOptions::default());
    for seconds in [1, 1, 1, 1, 1, 2, 4, 8, 16, 32] {
        peer.wait(seconds * 1000 - 10);
        peer.expect("");
        peer.wait(11);
        peer.expect("S 0:0");
    }
    peer.wait(64_000);
    peer.expect("");
    assert_eq!(peer.levels().error, Some(TcpError::TimedOut));
}

//= https://www.rfc-editor.org/rfc/rfc6298#section-5
//= type=test
//# MUST be re-initialized to 3 seconds when data transmission
//# begins (i.e., after the three-way handshake completes).
//= https://www.rfc-editor.org/rfc/rfc5681#section-3.1
//= type=test
//# Further, if the SYN or SYN/ACK is lost, the initial window used by a sender after a correctly
//# transmitted SYN MUST be one segment consisting of at most SMSS bytes.
//= https://www.rfc-editor.org/rfc/rfc6928#section-2
//= type=test
//# If the SYN or SYN/ACK is lost, the initial window used by a sender after a correctly transmitted
//# SYN MUST be one segment consisting of MSS bytes.
//= https://www.rfc-editor.org/rfc/rfc6928#section-2
//= type=test
//# For this reason, it is RECOMMENDED that implementations refrain from resetting the initial
//# window to 1 segment, unless there have been more than one SYN or SYN/ACK retransmissions or true
//# loss detection has been made.
#[test]
fn after_a_repeated_syn_timeouts_begin_at_three_seconds_with_one_segment() {
    let mut peer = Peer::syn_sent(PLAIN, TcpOptions::default());
    peer.wait(1001);
    peer.wait(2001);
    peer.sent();
    peer.send("S. 0:0 ack 1");
    peer.write(5000);
    peer.expect(". 1:1001 ack 1");
    assert_eq!(peer.info().rto_ns, 3_000_000_000);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.3
//= type=test
//# The value of R2 SHOULD correspond to at least 100 seconds (SHLD-11).
#[test]
fn an_established_connection_is_given_up_after_fifteen_minutes() {
    let mut peer = Peer::established();
    peer.write(100);
    peer.sent();
    for _ in 0..920 {
        peer.wait(1000);
        peer.sent();
    }
    peer.state(TcpState::Established);
    peer.wait(200_000);
    peer.sent();
    assert_eq!(peer.levels().error, Some(TcpError::TimedOut));
}

#[test]
fn the_user_timeout_is_kept() {
    let mut peer = Peer::established();
    peer.set_options(|o| o.user_timeout_ms = 3000);
    peer.write(100);
    peer.sent();
    peer.wait(2900);
    peer.sent();
    peer.state(TcpState::Established);
    peer.wait(3700);
    peer.state(TcpState::Closed);
    assert_eq!(peer.levels().error, Some(TcpError::TimedOut));
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.1
//= type=test
//# SHOULD increase exponentially the interval
//# between successive probes (SHLD-30).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.1
//= type=test
//# The transmitting host SHOULD send the first zero-window probe when a zero window has existed for
//# the retransmission timeout period (SHLD-29)
#[test]
fn a_closed_window_is_probed() {
    let mut peer = Peer::established();
    peer.send(". 1:1 ack 1 win 0");
    peer.write(100);
    peer.expect("");
    peer.wait(202);
    peer.expect(". 0:0 ack 1");
    peer.wait(398);
    peer.expect("");
    peer.wait(4);
    peer.expect(". 0:0 ack 1");
    peer.send(". 1:1 ack 1 win 5000");
    peer.expect("P. 1:101 ack 1");
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.1
//= type=test
//# As long as the receiving TCP peer continues to
//# send acknowledgments in response to the probe segments, the sending
//# TCP peer MUST allow the connection to stay open
#[test]
fn a_peer_that_answers_probes_may_keep_its_window_closed() {
    let mut peer = Peer::established();
    peer.send(". 1:1 ack 1 win 0");
    peer.write(100);
    for _ in 0..400 {
        peer.wait(10_000);
        if !peer.sent().is_empty() {
            peer.send(". 1:1 ack 1 win 0");
        }
    }
    peer.state(TcpState::Established);
}

/// Each is answered at once; how long it took until the connection was gone, if it ever was.
fn seconds_of_answered_probes(mut peer: Peer, most: u64) -> Option<u64> {
    for second in 0..most {
        peer.wait(1000);
        if peer.is_gone() || peer.levels().state == TcpState::Closed {
            return Some(second);
        }
        if !peer.sent().is_empty() {
            peer.send(". 1:1 ack 1 win 0");
        }
    }
    None
}

/// Whoever kept his window shut held the connection, and what it had to send, for ever.
#[test]
fn a_peer_that_answers_probes_does_not_hold_a_closed_connection_for_ever() {
    let mut peer = Peer::established();
    peer.send(". 1:1 ack 1 win 0");
    peer.write(100);
    peer.close();
    peer.state(TcpState::FinWait1);
    // 0.2 + 0.4 + ... + 102.4 s, and the longest interval.
    let seconds = seconds_of_answered_probes(peer, 1000);
    assert!(seconds.is_some_and(|s| (324..330).contains(&s)), "{seconds:?}");
}

#[test]
fn a_closed_connection_whose_probes_are_not_answered_is_given_up_sooner() {
    let mut peer = Peer::established();
    peer.send(". 1:1 ack 1 win 0");
    peer.write(100);
    peer.close();
    peer.expect("");
    peer.wait(102_000);
    peer.state(TcpState::FinWait1);
    peer.wait(1_000);
    assert!(peer.is_gone());
}

//= https://www.rfc-editor.org/rfc/rfc5482#section-1
//= type=test
//# The TCP user timeout controls how long transmitted data may remain
//# unacknowledged before a connection is forcefully closed.
#[test]
fn the_user_timeout_ends_a_connection_whose_window_stays_shut() {
    let mut peer = Peer::established();
    peer.set_options(|o| o.user_timeout_ms = 30_000);
    peer.send(". 1:1 ack 1 win 0");
    peer.write(100);
    let seconds = seconds_of_answered_probes(peer, 1000);
    assert!(seconds.is_some_and(|s| (30..32).contains(&s)), "{seconds:?}");
}

#[test]
fn the_user_timeout_of_a_shut_window_begins_anew_when_it_has_been_open() {
    let mut peer = Peer::established();
    peer.set_options(|o| o.user_timeout_ms = 30_000);
    peer.write(100);
    peer.sent();
    for opening in 0..5u64 {
        let acked = 101 + 100 * opening;
        peer.send(&format!(". 1:1 ack {acked} win 0"));
        peer.write(100);
        peer.wait(20_000);
        peer.sent();
        peer.send(&format!(". 1:1 ack {acked} win 5000"));
        assert!(peer.sent().starts_with("P. "));
    }
    peer.state(TcpState::Established);
}

#[test]
fn probes_become_rare_also_when_they_are_answered() {
    let mut peer = Peer::established();
    peer.send(". 1:1 ack 1 win 0");
    peer.write(100);
    let mut probes = 0;
    for _ in 0..3000 {
        peer.wait(100);
        if !peer.sent().is_empty() {
            probes += 1;
            peer.send(". 1:1 ack 1 win 0");
        }
    }
    // 0.2, 0.6, 1.4, 3, ... 204.6 s, in 300 s.
    assert_eq!(probes, 10);
    peer.send(". 1:1 ack 1 win 5000");
    peer.expect("P. 1:101 ack 1");
    assert_eq!(peer.info().rto_ns, 200_000_000);
}

#[test]
fn a_peer_that_does_not_answer_probes_is_given_up() {
    let mut peer = Peer::established();
    peer.send(". 1:1 ack 1 win 0");
    peer.write(100);
    for _ in 0..200 {
        peer.wait(10_000);
        peer.sent();
    }
    assert_eq!(peer.levels().error, Some(TcpError::TimedOut));
}

#[test]
fn a_reset_connection_probes_no_window_that_its_data_waited_for() {
    let mut peer = Peer::established();
    peer.send(". 1:1 ack 1 win 0");
    peer.write(100);
    // Before the data had its turn to be sent, of which a timer was left that fired without end.
    peer.send("R. 1:1 ack 1");
    peer.expect("");
    peer.state(TcpState::Closed);
    // Longer than any patience.
    peer.wait(2_000_000);
    peer.expect("");
}

/// It repaired what had been under way, by a timer that ran out ever again.
#[test]
fn a_dead_connection_sends_nothing_again_when_the_link_takes_less() {
    let mut peer = Peer::established();
    peer.write(5000);
    peer.sent();
    peer.send("R. 1:1 ack 1");
    peer.state(TcpState::Closed);
    peer.host.tcp.follow_mtu(peer.now, InterfaceIndex(0), 900);
    peer.wait(2_000_000);
    peer.expect("");
    assert_eq!(peer.host.tcp.counters().timed_out, 0);
}

#[test]
fn keepalives_that_are_asked_for_in_time_wait_are_none() {
    let mut peer = Peer::time_wait();
    peer.set_options(|o| {
        o.keepalive = true;
        o.keepidle_s = 1;
        o.keepintvl_s = 1;
        o.keepcnt = 2;
    });
    peer.wait(30_000);
    peer.expect("");
    peer.state(TcpState::TimeWait);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.2.1
//= type=test
//# A TCP implementation MUST include a SWS avoidance algorithm in the sender (MUST-38).
#[test]
fn a_window_smaller_than_a_segment_is_used_when_the_timer_says_so() {
    let mut peer = Peer::established();
    peer.send("P. 1:2 ack 1");
    peer.send("P. 2:3 ack 1 win 300");
    peer.expect(". 1:1 ack 3");
    peer.write(1000);
    peer.expect("");
    peer.wait(202);
    peer.expect("P. 1:301 ack 3");
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.4
//= type=test
//# Keep-alive packets MUST only be sent when no sent data is
//# outstanding, and no data or acknowledgment packets have been received
//# for the connection within an interval (MUST-26).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.4
//= type=test
//# An implementation SHOULD send a keep-alive segment with no data (SHLD-12)
#[test]
fn keepalives_ask_and_then_give_up() {
    let mut peer = Peer::established();
    peer.set_options(|o| {
        o.keepalive = true;
        o.keepidle_s = 10;
        o.keepintvl_s = 2;
        o.keepcnt = 3;
    });
    peer.sent();
    peer.wait(9_900);
    peer.expect("");
    peer.wait(200);
    peer.expect(". 0:0 ack 1");
    peer.send(". 1:1 ack 1");
    peer.wait(9_900);
    peer.expect("");
    for _ in 0..3 {
        peer.wait(2_010);
        peer.expect(". 0:0 ack 1");
    }
    peer.wait(2_010);
    peer.expect("R. 1:1 ack 1");
    assert_eq!(peer.levels().error, Some(TcpError::TimedOut));
}

#[test]
fn there_are_no_keepalives_by_default() {
    let mut peer = Peer::established();
    peer.wait(10 * 86_400_000);
    peer.expect("");
    peer.state(TcpState::Established);
}

#[test]
fn a_parked_connection_sends_when_the_link_address_is_known() {
    let mut peer = Peer::established();
    peer.write(10);
    let ready = peer.host.tcp.next_ready(InterfaceIndex(0)).unwrap();
    peer.host.tcp.park(ready.handle, true);
    peer.write(10);
    peer.expect("");
    peer.host.tcp.unpark_all();
    peer.expect("P. 1:21 ack 1");
}

#[test]
fn an_unreachable_next_hop_ends_an_attempt_but_not_a_connection() {
    for (mut peer, error) in [
        (Peer::established(), None),
        (Peer::syn_received_by_simultaneous_open(), Some(TcpError::HostUnreachable)),
    ] {
        peer.write(10);
        let ready = peer.host.tcp.next_ready(InterfaceIndex(0)).unwrap();
        peer.host.tcp.unreachable(peer.now, ready.handle, TcpError::HostUnreachable);
        assert_eq!(peer.levels().error, error);
    }
}

/// Export, import, go on: in the middle of a recovery.
#[test]
fn an_imported_connection_goes_on() {
    let mut peer = Peer::established();
    peer.write(10_000);
    peer.sent();
    peer.send(". 1:1 ack 1 sack 1001:4001");
    peer.expect(". 1:1001 ack 1");
    let bytes = postcard::to_stdvec(&peer.host.tcp).unwrap();
    peer.host.tcp = postcard::from_bytes(&bytes).unwrap();
    peer.send(". 1:1 ack 10001");
    assert_eq!(peer.levels().acked, 10_000);
    peer.write(10);
    peer.expect("P. 10001:10011 ack 1");
    peer.wait(250);
    peer.expect("P. 10001:10011 ack 1");
}

/// A lost acknowledgement once made the timeout as long as the wait it had caused: the echo of
/// the first copy was taken for a round trip (found at 20% loss, where timeouts reached 120 s).
//= https://www.rfc-editor.org/rfc/rfc6298#section-3
//= type=test
//# TCP MUST use Karn's algorithm [KP87] for taking RTT samples.
//= https://www.rfc-editor.org/rfc/rfc6298#section-3
//= type=test
//# RTT samples MUST NOT be made using segments that were retransmitted
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.1
//= type=test
//# The RTO MUST be computed according to the algorithm in [10], including Karn's algorithm for
//# taking RTT samples (MUST-18).
#[test]
fn the_echo_of_what_was_sent_before_the_repair_is_no_round_trip() {
    let stamped = Offer { timestamps: true, ..PLAIN };
    let mut peer = Peer::syn_received(stamped, TcpOptions::default());
    peer.send(". 1:1 ack 1 ts 1001");
    peer.id = peer.host.tcp.accept(peer.listener.unwrap()).unwrap().unwrap().id;
    peer.write(100);
    peer.sent();
    let first = peer.last;
    peer.wait(201);
    peer.sent();
    peer.wait(401);
    peer.sent();
    // The peer answers the third copy, with the timestamp of the first.
    peer.last = first;
    peer.send(". 1:1 ack 101 ts 1002");
    assert!(peer.info().rto_ns <= 201_000_000, "{}", peer.info().rto_ns);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6
//= type=test
//# The sender MAY also
//# retransmit old data beyond SND.UNA+SND.WND (MAY-7), but SHOULD NOT
//# time out the connection if data beyond the right window edge is not
//# acknowledged (SHLD-17).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6
//= type=test
//# SHOULD retransmit normally the old unacknowledged data between SND.UNA and SND.UNA+SND.WND
//# (SHLD-16)
#[test]
fn a_window_taken_back_over_data_under_way_is_probed_as_long_as_the_peer_answers() {
    let mut peer = Peer::established();
    peer.write(3000);
    peer.expect(". 1:1001 ack 1 | . 1001:2001 ack 1 | P. 2001:3001 ack 1");
    peer.send(". 1:1 ack 1 win 0");
    let mut probes = 0;
    for _ in 0..3600 {
        peer.wait(1000);
        let sent = peer.sent();
        if !sent.is_empty() {
            assert_eq!(sent, ". 1:1001 ack 1", "nothing but the first segment asks for the window");
            probes += 1;
            peer.send(". 1:1 ack 1 win 0");
        }
    }
    assert!((20..60).contains(&probes), "{probes} in an hour");
    peer.state(TcpState::Established);
    // Part of it is within the window now, and only that is sent again.
    peer.send(". 1:1 ack 1 win 1500");
    peer.wait(300);
    peer.expect(". 1:1001 ack 1");
    peer.send(". 1:1 ack 1001 win 500");
    peer.expect(". 1001:1501 ack 1");
    peer.send(". 1:1 ack 3001 win 60000");
    assert_eq!(peer.levels().acked, 3000);
}

#[test]
fn a_peer_that_takes_its_window_back_and_falls_silent_is_given_up() {
    let mut peer = Peer::established();
    peer.write(1000);
    assert!(!peer.sent().is_empty());
    peer.send(". 1:1 ack 1 win 0");
    peer.wait(200_000);
    peer.state(TcpState::Established);
    peer.wait(200_000);
    assert_eq!(peer.levels().error, Some(TcpError::TimedOut));
}

/// What was sent in one frame was once measured by the acknowledgement of all of it alone.
//= https://www.rfc-editor.org/rfc/rfc6298#section-3
//= type=test
//# A TCP implementation MUST take at least one RTT measurement per RTT (unless that is not
//# possible per Karn's algorithm).
#[test]
fn each_acknowledgement_of_a_part_measures_and_so_does_a_selective_one() {
    let mut peer = Peer::distant();
    assert_eq!(peer.info().srtt_ns, 40_000_000);
    peer.write(10_000);
    peer.sent();
    peer.wait(80);
    peer.send(". 1:1 ack 2001");
    assert_eq!(peer.info().srtt_ns, 45_000_000);
    peer.wait(5);
    peer.send(". 1:1 ack 2001 sack 5001:6001");
    assert_eq!(peer.info().srtt_ns, 50_000_000);
    peer.wait(5);
    peer.send(". 1:1 ack 6001");
    assert_eq!(peer.info().srtt_ns, 55_000_000);
}

#[test]
fn a_doubled_timeout_stays_until_the_answer_to_something_sent_once() {
    let mut peer = Peer::established();
    peer.write(100);
    for _ in 0..10 {
        peer.wait(100);
        assert!(!peer.sent().contains("101:"));
    }
    let doubled = peer.info().rto_ns;
    assert!(doubled >= 400_000_000, "{doubled}");
    // Nobody knows which copy this answers.
    peer.send(". 1:1 ack 101");
    assert_eq!(peer.info().rto_ns, doubled);
    peer.write(100);
    peer.sent();
    peer.wait(8);
    peer.send(". 1:1 ack 201");
    assert!(peer.info().rto_ns < 210_000_000, "{}", peer.info().rto_ns);
}
