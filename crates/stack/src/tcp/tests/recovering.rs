//! Losses found by time and repaired: RACK and its probe.

use super::peer::*;
use crate::api::{CongestionKind, TcpOptions};

/// Ten segments on their way, and a round trip of 40 ms later.
fn ten_sent(more: usize) -> Peer {
    let mut peer = Peer::distant();
    peer.write(10_000 + more);
    peer.sent();
    peer.wait(40);
    peer
}

//= https://www.rfc-editor.org/rfc/rfc8985#section-6.2
//= type=test
//# If no reordering has been observed based on the previous step, then
//# one way the sender can enter fast recovery is when the number of
//# SACKed segments matches or exceeds DupThresh (similar to [RFC6675]).
#[test]
fn three_segments_sacked_mean_loss() {
    let mut peer = ten_sent(0);
    peer.send(". 1:1 ack 1 sack 1001:3001");
    peer.expect("");
    peer.send(". 1:1 ack 1 sack 1001:4001");
    peer.expect(". 1:1001 ack 1");
}

/// A worker takes all that has come before it sends. The third duplicate alone let nothing out beside the
/// segment that was lost, and when that was lost again nobody answered: 250 timeouts in a gigabyte.
#[test]
fn duplicates_that_come_together_count_as_one_where_a_recovery_begins() {
    let mut peer = Peer::distant();
    peer.write(4_000);
    peer.sent();
    peer.wait(40);
    peer.send(". 1:1 ack 1 sack 1001:2001");
    peer.send(". 1:1 ack 1 sack 1001:3001");
    peer.write(4_000);
    peer.send(". 1:1 ack 1 sack 1001:4001");
    peer.expect(". 1:1001 ack 1 | . 4001:5001 ack 1 | . 5001:6001 ack 1");
}

/// Four segments of ten in flight counted for nothing, and the threshold was three segments in place of five.
#[test]
fn a_loss_halves_what_was_in_flight_before_acknowledgements_that_come_together() {
    let options = TcpOptions { congestion: CongestionKind::Reno, ..TcpOptions::default() };
    let mut peer = Peer::syn_received(PLAIN, options).accepted();
    peer.write(20_000);
    peer.sent();
    peer.send(". 1:1 ack 2001");
    peer.send(". 1:1 ack 4001");
    peer.send(". 1:1 ack 4001 sack 5001:10001");
    peer.sent();
    assert_eq!(peer.info().ssthresh, 5000);
}

//= https://www.rfc-editor.org/rfc/rfc8985#section-6.2
//= type=test
//# As a
//# consequence, the sender also enters fast recovery when there are any
//# number of SACKed segments, as long as the reorder window has passed
//# for some non-SACKed segments.
//= https://www.rfc-editor.org/rfc/rfc8985#section-1
//= type=test
//# it is RECOMMENDED as an alternative to that earlier approach.
//= https://www.rfc-editor.org/rfc/rfc8985#section-4
//= type=test
//# the sender MUST store its most recent transmission time with a timestamp whose granularity is
//# finer than 1/4 of the minimum RTT of the connection.
//= https://www.rfc-editor.org/rfc/rfc8985#section-6.2
//= type=test
//# For timely loss detection, it is RECOMMENDED that the sender install a reordering timer.
#[test]
fn one_segment_sacked_means_loss_after_a_quarter_of_the_round_trip() {
    let mut peer = Peer::distant();
    peer.write(2_000);
    peer.sent();
    peer.wait(40);
    peer.send(". 1:1 ack 1 sack 1001:2001");
    peer.wait(9);
    peer.expect("");
    // And 2 ms for acknowledgements that come in batches.
    peer.wait(4);
    peer.expect(". 1:1001 ack 1");
    peer.send(". 1:1 ack 2001");
    assert_eq!(peer.host.tcp.counters().fast_recoveries, 1);
}

//= https://www.rfc-editor.org/rfc/rfc8985#section-9.2
//= type=test
//# the algorithm [RFC6675] MUST NOT be used with RACK-TLP; instead, a modified recovery algorithm
//# that carefully addresses such a case is needed.
#[test]
fn a_segment_that_was_only_late_is_not_sent_again() {
    let mut peer = ten_sent(20_000);
    peer.send(". 1:1 ack 1 sack 1001:3001");
    peer.wait(5);
    peer.send(". 1:1 ack 3001");
    assert!(!peer.sent().contains(". 1:1001"));
    // From now on three segments sacked prove nothing; time does.
    peer.send(". 1:1 ack 3001 sack 4001:10001");
    assert!(!peer.sent().contains(". 3001:4001"));
    peer.wait(13);
    assert!(peer.sent().contains(". 3001:4001"));
}

//= https://www.rfc-editor.org/rfc/rfc8985#section-4
//= type=test
//# The connection MUST use selective acknowledgment (SACK) options [RFC2018], and the sender MUST
//# keep SACK scoreboard information on a per-connection basis
//= https://www.rfc-editor.org/rfc/rfc2018#section-5
//= type=test
//# When receiving an ACK containing a SACK option, the data sender SHOULD record the selective
//# acknowledgment for future reference.
#[test]
fn every_hole_is_sent_once() {
    let mut peer = ten_sent(0);
    // Segments 1, 3 and 5 are lost.
    peer.send(". 1:1 ack 1 sack 1001:2001");
    peer.send(". 1:1 ack 1 sack 3001:4001 1001:2001");
    peer.send(". 1:1 ack 1 sack 5001:10001 3001:4001 1001:2001");
    peer.expect(". 1:1001 ack 1 | . 2001:3001 ack 1 | . 4001:5001 ack 1");
    peer.wait(40);
    peer.send(". 1:1 ack 2001 sack 5001:10001 3001:4001");
    peer.expect("");
    peer.send(". 1:1 ack 10001");
    peer.expect("");
    assert_eq!(peer.info().retransmits, 3);
    assert_eq!(peer.host.tcp.counters().fast_recoveries, 1);
}

//= https://www.rfc-editor.org/rfc/rfc9937#section-6.2
//= type=test
//# SACK-enabled connections using RACK-TLP loss detection [RFC8985] or other loss detection
//# algorithms MUST calculate inflight by starting with SND.NXT - SND.UNA, subtracting out bytes
//# SACKed in the scoreboard, subtracting out bytes marked lost in the scoreboard,
#[test]
fn recovery_sends_new_data_when_the_network_has_room() {
    let mut peer = ten_sent(20_000);
    peer.send(". 1:1 ack 1 sack 1001:5001");
    let sent = peer.sent();
    assert!(sent.starts_with(". 1:1001 ack 1"), "{sent}");
    peer.send(". 1:1 ack 1 sack 1001:10001");
    assert!(peer.sent().ends_with(" ack 1"));
    assert!(peer.info().cwnd < 10_000);
}

//= https://www.rfc-editor.org/rfc/rfc8985#section-6.2
//= type=test
//# For each segment that has not been SACKed, RACK considers that
//# segment lost if another segment that was sent later has been
//# delivered and the reordering window has passed.
#[test]
fn a_lost_retransmission_is_sent_again_without_a_timeout() {
    let mut peer = ten_sent(20_000);
    peer.send(". 1:1 ack 1 sack 1001:10001");
    let sent = peer.sent();
    assert!(sent.starts_with(". 1:1001 ack 1 | . 10001:11001 ack 1"), "{sent}");
    peer.wait(40);
    // What was sent after the retransmission arrives, the retransmission does not.
    peer.send(". 1:1 ack 1 sack 1001:11001");
    let sent = peer.sent();
    assert!(sent.starts_with(". 1:1001 ack 1"), "{sent}");
    assert_eq!(peer.host.tcp.counters().timeouts, 0);
    assert_eq!(peer.host.tcp.counters().lost_retransmits, 1);
}

/// As in Linux and RFC 6675: what was lost after a recovery began costs the window once more, also
/// when it was sent again before the recovery ended.
#[test]
fn what_was_lost_since_a_recovery_began_is_the_next_ones() {
    let mut peer = ten_sent(20_000);
    peer.send(". 1:1 ack 1 sack 1001:4001");
    peer.send(". 1:1 ack 1 sack 1001:10001");
    peer.sent();
    peer.wait(40);
    peer.send(". 1:1 ack 1 sack 1001:10001 11001:14001");
    let sent = peer.sent();
    assert!(sent.contains(". 10001:11001 ack 1"), "{sent}");
    assert_eq!(peer.host.tcp.counters().fast_recoveries, 1);
    peer.send(". 1:1 ack 10001 sack 11001:14001");
    assert_eq!(peer.host.tcp.counters().fast_recoveries, 2);
}

#[test]
fn a_retransmission_does_not_repeat_itself() {
    let mut peer = ten_sent(0);
    peer.send(". 1:1 ack 1 sack 1001:4001");
    peer.expect(". 1:1001 ack 1");
    for end in [5001, 6001, 7001, 8001, 9001, 10_001] {
        peer.wait(1);
        peer.send(&format!(". 1:1 ack 1 sack 1001:{end}"));
        peer.expect("");
    }
}

//= https://www.rfc-editor.org/rfc/rfc8985#section-7.2
//= type=test
//# First, the default PTO interval is 2*SRTT.
//= https://www.rfc-editor.org/rfc/rfc8985#section-7.2
//= type=test
//# The sender SHOULD start or restart a loss probe PTO timer after transmitting new data
//= https://www.rfc-editor.org/rfc/rfc8985#section-7.2
//= type=test
//# Summarizing these considerations in pseudocode form, a sender SHOULD use the following logic to
//# select the duration of a PTO:
//= https://www.rfc-editor.org/rfc/rfc8985#section-7.3
//= type=test
//# If such an unsent segment is not available, then the sender SHOULD retransmit the
//# highest-sequence segment sent so far and set TLP.is_retrans to true.
//= https://www.rfc-editor.org/rfc/rfc8985#section-7.3
//= type=test
//# The sender MUST follow the RACK transmission procedures in the "Upon Transmitting a Data
//# Segment" section upon sending either a retransmission or a new data loss probe.
#[test]
fn a_lost_tail_is_found_by_a_probe_after_two_round_trips() {
    let mut peer = Peer::distant();
    peer.write(5_000);
    peer.sent();
    peer.wait(40);
    peer.send(". 1:1 ack 2001");
    peer.wait(81);
    peer.expect("");
    peer.wait(2);
    peer.expect("P. 4001:5001 ack 1");
    peer.wait(40);
    peer.send(". 1:1 ack 2001 sack 4001:5001");
    peer.expect(". 2001:3001 ack 1");
    peer.wait(40);
    peer.send(". 1:1 ack 3001 sack 4001:5001");
    peer.expect(". 3001:4001 ack 1");
    peer.send(". 1:1 ack 5001");
    let counters = *peer.host.tcp.counters();
    assert_eq!((counters.timeouts, counters.tail_probes, counters.fast_recoveries), (0, 1, 1));
}

//= https://www.rfc-editor.org/rfc/rfc8985#section-7.3
//= type=test
//# If both conditions are met, then the sender SHOULD transmit a
//# previously unsent data segment, if one exists and the receive window
//# allows, and increment the FlightSize accordingly.
#[test]
fn a_probe_is_new_data_if_there_is_any() {
    let mut peer = Peer::distant();
    peer.write(20_000);
    peer.sent();
    peer.wait(83);
    peer.expect(". 10001:11001 ack 1");
    assert_eq!(peer.info().cwnd, 10_000);
}

#[test]
fn a_probe_of_new_data_ends_where_a_record_does() {
    let mut peer = Peer::distant();
    let (now, id) = (peer.now, peer.id);
    peer.write(10_000);
    peer.write(700);
    peer.host.tcp.end_record(now, id, 10_700).unwrap();
    peer.write(700);
    peer.sent();
    peer.wait(83);
    peer.expect("P. 10001:10701 ack 1");
}

//= https://www.rfc-editor.org/rfc/rfc8985#section-7.3
//= type=test
//# After attempting to send a loss probe, regardless of whether a loss
//# probe was sent, the sender MUST re-arm the RTO timer, not the PTO
//# timer, if the FlightSize is not zero.
//= https://www.rfc-editor.org/rfc/rfc8985#section-7.3
//= type=test
//# When the PTO timer expires, the sender MUST check whether both of the following conditions are
//# met before sending a loss probe:
//= https://www.rfc-editor.org/rfc/rfc8985#section-7.3
//= type=test
//# If either one of these two conditions is not met, then the sender MUST skip sending a loss probe
//# and MUST proceed to re-arm the RTO timer, as specified at the end of this section.
#[test]
fn a_probe_without_answer_is_followed_by_the_timeout() {
    let mut peer = Peer::distant();
    peer.write(3_000);
    peer.sent();
    peer.wait(83);
    peer.expect("P. 2001:3001 ack 1");
    peer.wait(235);
    peer.expect("");
    peer.wait(10);
    peer.expect(". 1:1001 ack 1");
    assert_eq!(peer.host.tcp.counters().timeouts, 1);
}

/// The allowance for a delayed acknowledgement makes the probe come with the timeout.
#[test]
fn a_single_segment_is_probed_instead_of_the_first_timeout() {
    let mut peer = Peer::established();
    peer.write(100);
    peer.expect("P. 1:101 ack 1");
    peer.wait(199);
    peer.expect("");
    peer.wait(2);
    peer.expect("P. 1:101 ack 1");
    assert_eq!(peer.info().cwnd, 10_000);
    peer.wait(199);
    peer.expect("");
    peer.wait(2);
    peer.expect("P. 1:101 ack 1");
    assert_eq!(peer.info().cwnd, 1000);
}

//= https://www.rfc-editor.org/rfc/rfc8985#section-7.4.2
//= type=test
//# The sender then
//# SHOULD invoke a congestion control response equivalent to a fast
//# recovery.
//= https://www.rfc-editor.org/rfc/rfc8985#section-7.4.2
//= type=test
//# If the TLP sender does not receive such an indication, then it MUST assume that the original
//# data segment, the TLP retransmission, or a corresponding ACK was lost for congestion control
//# purposes.
#[test]
fn a_probe_that_repaired_a_loss_costs_a_part_of_the_window() {
    for (answers, cwnd) in [
        (&[". 1:1 ack 3001"][..], 7000),
        (&[". 1:1 ack 3001 sack 2001:3001"], 10_000),
        (&[". 1:1 ack 3001", ". 1:1 ack 3001"], 10_000),
    ] {
        let mut peer = Peer::distant();
        peer.write(3_000);
        peer.sent();
        peer.wait(83);
        peer.expect("P. 2001:3001 ack 1");
        for answer in answers {
            peer.send(answer);
        }
        peer.write(1_000);
        peer.sent();
        peer.send(". 1:1 ack 4001");
        assert_eq!(peer.info().cwnd, cwnd, "{answers:?}");
    }
}

/// It was set to a threshold that BBR does not have, so to all there is.
#[test]
fn a_probe_that_repaired_a_loss_leaves_bbr_its_window() {
    let options = TcpOptions { congestion: CongestionKind::Bbr, ..TcpOptions::default() };
    let mut peer = Peer::syn_received(PLAIN, options);
    peer.wait(40);
    let mut peer = peer.accepted();
    peer.write(3_000);
    peer.sent();
    peer.wait(83);
    peer.expect("P. 2001:3001 ack 1");
    peer.write(1_000);
    peer.sent();
    peer.send(". 1:1 ack 4001");
    assert_eq!(peer.host.tcp.counters().tail_probe_repairs, 1);
    assert!(peer.info().cwnd < 100_000, "{}", peer.info().cwnd);
}

#[test]
fn a_fin_is_probed_for() {
    let mut peer = Peer::distant();
    peer.write(3_000);
    peer.shutdown();
    peer.sent();
    peer.wait(83);
    peer.expect("FP. 2001:3001 ack 1");
}

/// Segments 2 to 4 overtake the first by more than a quarter of the round trip.
fn first_is_late() -> Peer {
    let mut peer = ten_sent(0);
    peer.send(". 1:1 ack 1 sack 1001:4001");
    peer.expect(". 1:1001 ack 1");
    assert_eq!((peer.info().cwnd, peer.info().ssthresh), (7000, 7000));
    peer
}

//= https://www.rfc-editor.org/rfc/rfc9438#section-4.9.2
//= type=test
//# Upon receiving an ACK, a TCP implementation MAY detect spurious fast
//# retransmits either using TCP Timestamps or via D-SACK [RFC2883].
//= https://www.rfc-editor.org/rfc/rfc9438#section-4.6
//= type=test
//# In the case of packet loss, the sender MUST reduce _cwnd_ and _ssthresh_ immediately upon
//# entering loss recovery, similar to [RFC5681] (and [RFC6675]).
#[test]
fn a_loss_that_was_none_costs_nothing_once_the_duplicate_is_reported() {
    let mut peer = first_is_late();
    // The late segment, and then its second copy.
    peer.send(". 1:1 ack 4001");
    peer.expect("");
    assert_eq!(peer.info().ssthresh, 7000);
    peer.wait(40);
    peer.send(". 1:1 ack 10001 sack 1:1001");
    assert!(peer.info().cwnd >= 10_000);
    assert_eq!(peer.info().ssthresh, u32::MAX);
    assert_eq!(peer.host.tcp.counters().undone, 1);
}

#[test]
fn a_loss_that_was_none_costs_nothing_after_recovery_either() {
    let mut peer = first_is_late();
    peer.send(". 1:1 ack 10001");
    assert!(peer.info().cwnd < 8_000);
    peer.wait(40);
    peer.send(". 1:1 ack 10001 sack 1:1001");
    assert_eq!(peer.info().cwnd, 10_000);
}

#[test]
fn half_of_what_was_sent_again_proves_nothing() {
    let mut peer = ten_sent(0);
    peer.send(". 1:1 ack 1 sack 2001:5001");
    peer.expect(". 1:1001 ack 1 | . 1001:2001 ack 1");
    peer.send(". 1:1 ack 10001 sack 1:1001");
    assert_eq!(peer.host.tcp.counters().undone, 0);
    peer.send(". 1:1 ack 10001 sack 1001:2001");
    assert_eq!(peer.host.tcp.counters().undone, 1);
}

#[test]
fn a_timestamp_shows_that_the_first_copy_had_arrived() {
    let stamped = Offer { timestamps: true, ..PLAIN };
    let mut peer = Peer::syn_received(stamped, crate::api::TcpOptions::default());
    peer.wait(40);
    peer.send(". 1:1 ack 1 ts 1001");
    peer.id = peer.host.tcp.accept(peer.listener.unwrap()).unwrap().unwrap().id;
    peer.write(8_000);
    peer.sent();
    let first = peer.last;
    peer.wait(40);
    peer.send(". 1:1 ack 1 sack 989:3953 ts 1002");
    assert!(peer.sent().starts_with(". 1:989"));
    peer.last = first;
    peer.send(". 1:1 ack 3953 ts 1003");
    assert_eq!(peer.host.tcp.counters().undone, 1);
    assert!(peer.info().cwnd >= 9880, "{}", peer.info().cwnd);
    peer.expect("");
}

/// Ten segments, a probe and a timeout without any answer.
fn timed_out(more: usize) -> Peer {
    let mut peer = ten_sent(more);
    peer.wait(45);
    peer.sent();
    peer.wait(300);
    peer.expect(". 1:1001 ack 1");
    assert_eq!(peer.info().cwnd, 1000);
    peer
}

//= https://www.rfc-editor.org/rfc/rfc5682#section-3.1
//= type=test
//# The retransmission timeout can be declared spurious,
//# because the segment acknowledged with this ACK was transmitted
//# before the timeout.
//= https://www.rfc-editor.org/rfc/rfc5682#section-4
//= type=test
//# If no specific response algorithm is implemented, the TCP SHOULD respond to spurious timeout
//# conservatively, applying the TCP congestion control specification [APB09].
#[test]
fn a_timeout_that_came_too_early_costs_nothing() {
    let mut peer = timed_out(20_000);
    // The acknowledgements were only late.
    peer.send(". 1:1 ack 2001");
    let counters = *peer.host.tcp.counters();
    assert_eq!((counters.timeouts, counters.spurious_timeouts, counters.undone), (1, 1, 1));
    assert!(peer.info().cwnd >= 10_000);
    let sent = peer.sent();
    assert!(!sent.contains(". 2001:3001"), "{sent}");
    assert!(sent.starts_with(". 11001:12001"), "{sent}");
}

//= https://www.rfc-editor.org/rfc/rfc5682#section-3.1
//= type=test
//# b) Else, if the Cumulative Acknowledgment field does not cover
//#    "RecoveryPoint" but is larger than SND.UNA, transmit up to two
//#    new (previously unsent) segments and proceed to step 3.
//= https://www.rfc-editor.org/rfc/rfc5682#section-3.1
//= type=test
//# If the sender applies the SACK-enhanced F-RTO algorithm, it MUST follow the steps below.
#[test]
fn after_a_timeout_new_data_asks_whether_anything_was_lost() {
    let mut peer = timed_out(20_000);
    peer.send(". 1:1 ack 1001");
    peer.expect(". 11001:12001 ack 1 | . 12001:13001 ack 1");
    peer.wait(40);
    // The new data has arrived and the old has not: it was lost.
    peer.send(". 1:1 ack 1001 sack 11001:12001");
    let sent = peer.sent();
    assert!(sent.starts_with(". 1001:2001 ack 1"), "{sent}");
    assert_eq!(peer.host.tcp.counters().spurious_timeouts, 0);
}

#[test]
fn a_timeout_without_new_data_to_ask_with_repeats_the_old() {
    let mut peer = timed_out(0);
    peer.send(". 1:1 ack 1001");
    peer.expect(". 1001:2001 ack 1 | . 2001:3001 ack 1");
}

/// RFC 9937: twenty segments in flight, one lost; the window shrinks while the others arrive.
//= https://www.rfc-editor.org/rfc/rfc8985#section-9.3
//= type=test
//# The Proportional Rate Reduction (PRR) algorithm [RFC6937] is RECOMMENDED for the specific
//# congestion control actions taken upon the losses detected by RACK-TLP.
//= https://www.rfc-editor.org/rfc/rfc9937#section-5
//= type=test
//# it is RECOMMENDED that PRR is implemented together with RACK-TLP loss recovery
#[test]
fn the_window_of_a_recovery_shrinks_evenly() {
    let mut peer = Peer::distant();
    peer.write(100_000);
    peer.sent();
    peer.wait(40);
    peer.send(". 1:1 ack 10001");
    peer.sent();
    peer.wait(40);
    assert_eq!(peer.info().cwnd, 20_000);
    let mut counts = Vec::new();
    for end in 2..=20 {
        peer.send(&format!(". 1:1 ack 10001 sack 11001:{}", 10_001 + end * 1000));
        let sent = peer.sent();
        counts.push(if sent.is_empty() { 0 } else { sent.split(" | ").count() });
        peer.wait(1);
    }
    // Two before the loss is known, then seven for every ten.
    let total: usize = counts.iter().sum();
    assert!((13..=16).contains(&total), "{counts:?}");
    assert!(counts.iter().all(|&count| count <= 1), "{counts:?}");
    peer.send(". 1:1 ack 30001");
    assert!((14_000..16_000).contains(&peer.info().cwnd), "{}", peer.info().cwnd);
}

/// What was sent again in vain after a timeout brings duplicates of the acknowledgement that ended it.
//= https://www.rfc-editor.org/rfc/rfc6582#section-3.2
#[test]
fn without_sack_duplicates_of_what_ended_a_recovery_begin_none() {
    let plain = Offer { sack: false, ..PLAIN };
    let mut peer = Peer::established_with(plain, crate::api::TcpOptions::default());
    peer.write(10_000);
    peer.sent();
    peer.wait(1_000);
    assert!(peer.sent().starts_with(". 1:1001 ack 1"));
    // The rest had arrived.
    peer.send(". 1:1 ack 10001");
    peer.write(6_000);
    peer.sent();
    for _ in 0..4 {
        peer.send(". 1:1 ack 10001");
    }
    let sent = peer.sent();
    assert!(!sent.contains(". 10001:11001"), "{sent}");
    assert_eq!(peer.host.tcp.counters().fast_recoveries, 0);
    // Three that follow something new mean a loss again.
    peer.send(". 1:1 ack 11001");
    peer.sent();
    for _ in 0..3 {
        peer.send(". 1:1 ack 11001");
    }
    assert!(peer.sent().contains(". 11001:12001"));
    assert_eq!(peer.host.tcp.counters().fast_recoveries, 1);
}

//= https://www.rfc-editor.org/rfc/rfc9937#section-6.2
//= type=test
//# senders MUST subtract out: min(RecoverFS, 1 SMSS for each preceding duplicate ACK in the fast
//# recovery episode)
#[test]
fn without_sack_more_duplicates_than_were_under_way_let_no_more_out() {
    let plain = Offer { sack: false, ..PLAIN };
    let mut peer = Peer::established_with(plain, crate::api::TcpOptions::default());
    peer.write(200_000);
    peer.sent();
    let mut count = 0;
    for _ in 0..200 {
        peer.send(". 1:1 ack 1");
        let sent = peer.sent();
        count += if sent.is_empty() { 0 } else { sent.split(" | ").count() };
    }
    // Two of limited transmit, the one that is lost, and at most as much as the threshold again.
    assert!((3..=12).contains(&count), "{count}");
}

/// Whatever a peer acknowledges, in whatever order and at whatever time, the books balance: a
/// last acknowledgement of everything ends it, and the connection goes on.
#[test]
fn no_acknowledgement_confuses_the_sender() {
    use super::pair::Random;
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let offer = Offer { sack: seed % 8 != 0, ..PLAIN };
        let mut peer = Peer::established_with(offer, crate::api::TcpOptions::default());
        if seed % 3 == 0 {
            peer.set_options(|o| o.nodelay = true);
        }
        let (mut written, mut sent, mut acked) = (0, 0u32, 0);
        for _ in 0..random.below(150) {
            match random.below(8) {
                0 | 1 => {
                    let len = [1, 100, 1000, 7000, 30_000][random.below(5) as usize];
                    peer.write(len);
                    written += len as u32;
                }
                2 => peer.wait(random.below(12)),
                3 if random.one_in(4) => peer.wait(random.below(700)),
                4 => acked = acked.max(random.below(u64::from(sent) + 1) as u32),
                _ => {}
            }
            for line in peer.sent().split(" | ") {
                let range = line.split_whitespace().nth(1).unwrap_or("0:1");
                let end: u32 = range.split_once(':').unwrap().1.parse().unwrap();
                sent = sent.max(end.saturating_sub(1));
            }
            let mut line = format!(". 1:1 ack {}", acked + 1);
            for block in 0..random.below(5) {
                let start = random.below(u64::from(sent) + 50);
                let most = [40, 1500, 9000][random.below(3) as usize];
                let end = start + random.below(most);
                line += if block == 0 { " sack " } else { " " };
                line += &format!("{start}:{end}");
            }
            peer.send(&line);
            if random.one_in(20) {
                let bytes = postcard::to_stdvec(&peer.host.tcp).unwrap();
                peer.host.tcp = postcard::from_bytes(&bytes).unwrap();
            }
        }
        for _ in 0..200 {
            for line in peer.sent().split(" | ") {
                let range = line.split_whitespace().nth(1).unwrap_or("0:1");
                let end: u32 = range.split_once(':').unwrap().1.parse().unwrap();
                sent = sent.max(end.saturating_sub(1));
            }
            peer.send(&format!(". 1:1 ack {}", sent + 1));
            peer.wait(1);
        }
        assert_eq!((peer.levels().acked, sent), (u64::from(written), written), "seed {seed}");
    }
}

/// Where the path was quick and answers late, patience for reordering reaches beyond the
/// retransmission timer, which fires in its own right.
#[test]
fn the_retransmission_timer_is_not_held_up_by_patience_that_lasts_longer() {
    let mut peer = Peer::established();
    peer.write(6_500);
    peer.sent();
    peer.wait(260);
    peer.sent();
    peer.send(". 1:1 ack 215");
    peer.send(". 1:1 ack 215 sack 1001:1002");
    let before = peer.host.tcp.counters().timeouts;
    // Doubled, as nothing has been measured since.
    peer.wait(450);
    assert!(peer.host.tcp.counters().timeouts > before);
    assert!(peer.sent().contains(". 215:"));
}

/// Linux resends its socket buffers: a frame that has arrived in part is not gathered anew with the next one.
#[test]
fn what_is_lost_of_a_frame_goes_again_without_what_is_lost_of_the_next_one() {
    let mut peer = Peer::distant_with_large_frames();
    peer.write(10_000);
    let frames = ["P. 1:2001", "P. 2001:4001", "P. 4001:6001", "P. 6001:8001", "P. 8001:10001"];
    peer.expect(&frames.map(|frame| format!("{frame} ack 1")).join(" | "));
    peer.wait(40);
    peer.send(". 1:1 ack 1001 sack 3001:4001 6001:10001");
    peer.expect(". 1001:2001 ack 1 | . 2001:3001 ack 1 | P. 4001:6001 ack 1");
}
