//! Receiving: acknowledgements, reassembly, windows.

use super::peer::*;
use crate::api::*;
use crate::drops::DropReason;

/// A connection past its quick acknowledgements.
fn settled() -> Peer {
    let mut peer = Peer::established();
    let mut at = 1;
    for _ in 0..40 {
        peer.send(&format!("P. {at}:{} ack 1", at + 1000));
        peer.sent();
        at += 1000;
    }
    peer.read();
    peer.wait(100);
    peer.sent();
    assert_eq!(at, 40_001);
    peer
}

#[test]
fn a_new_connection_acknowledges_at_once() {
    let mut peer = Peer::established();
    peer.send("P. 1:11 ack 1");
    peer.expect(". 1:1 ack 11");
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.3
//= type=test
//# in particular, the delay MUST be
//# less than 0.5 seconds (MUST-40).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.3
//= type=test
//# A TCP endpoint SHOULD implement a delayed ACK (SHLD-18)
//= https://www.rfc-editor.org/rfc/rfc5681#section-4.2
//= type=test
//# When using delayed ACKs, a TCP receiver MUST NOT excessively delay acknowledgments.
//= https://www.rfc-editor.org/rfc/rfc5681#section-4.2
//= type=test
//# Finally, we repeat that an ACK MUST NOT be delayed for more than 500 ms waiting on a second
//# full-sized segment to arrive.
#[test]
fn a_lone_segment_is_acknowledged_after_forty_milliseconds() {
    let mut peer = settled();
    peer.send("P. 40001:40011 ack 1");
    peer.expect("");
    peer.wait(39);
    peer.expect("");
    peer.wait(2);
    peer.expect(". 1:1 ack 40011");
}

//= https://www.rfc-editor.org/rfc/rfc5681#section-4.2
//= type=test
//# A TCP receiver MUST NOT generate more than one ACK for every incoming
//# segment
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.3
//= type=test
//# An ACK SHOULD be generated for at least every second full-sized segment or 2*RMSS bytes of new
//# data
//= https://www.rfc-editor.org/rfc/rfc5681#section-4.2
//= type=test
//# The delayed ACK algorithm specified in [RFC1122] SHOULD be used by a TCP receiver.
//= https://www.rfc-editor.org/rfc/rfc5681#section-4.2
//= type=test
//# an ACK SHOULD be generated for at least every second full-sized segment
#[test]
fn every_second_full_segment_is_acknowledged() {
    let mut peer = settled();
    peer.send(". 40001:41001 ack 1");
    peer.expect("");
    peer.send(". 41001:42001 ack 1");
    peer.expect(". 1:1 ack 42001");
}

#[test]
fn without_quickack_a_lone_segment_waits_also_at_the_start() {
    let mut peer = Peer::established();
    peer.quickack(false);
    peer.send("P. 1:11 ack 1");
    peer.expect("");
    peer.wait(60);
    peer.expect(". 1:1 ack 11");
    peer.send("P. 11:21 ack 1");
    peer.expect(". 1:1 ack 21");
}

#[test]
fn an_answer_carries_the_acknowledgement() {
    let mut peer = settled();
    peer.send("P. 40001:40011 ack 1");
    peer.write(5);
    peer.expect("P. 1:6 ack 40011");
    peer.wait(100);
    peer.expect("");
}

//= https://www.rfc-editor.org/rfc/rfc5681#section-3.2
//= type=test
//# A TCP receiver SHOULD send an immediate duplicate ACK when an out-
//# of-order segment arrives.
//= https://www.rfc-editor.org/rfc/rfc5681#section-3.2
//= type=test
//# A TCP receiver SHOULD send an immediate duplicate ACK when an out-of-order segment arrives.
//= https://www.rfc-editor.org/rfc/rfc5681#section-4.2
//= type=test
//# Out-of-order data segments SHOULD be acknowledged immediately, in order to accelerate loss
//# recovery.
//= https://www.rfc-editor.org/rfc/rfc5681#section-4.2
//= type=test
//# To trigger the fast retransmit algorithm, the receiver SHOULD send an immediate duplicate ACK
//# when it receives a data segment above a gap in the sequence space.
//= https://www.rfc-editor.org/rfc/rfc2018#section-4
//= type=test
//# If the data receiver generates SACK options under any circumstance, it SHOULD generate them
//# under all permitted circumstances.
//= https://www.rfc-editor.org/rfc/rfc2018#section-4
//= type=test
//# The receiver SHOULD send an ACK for every valid segment that arrives containing new data, and
//# each of these "duplicate" ACKs SHOULD bear a SACK option.
#[test]
fn segments_out_of_order_are_acknowledged_at_once_with_what_was_received() {
    let mut peer = settled();
    peer.send(". 41001:42001 ack 1");
    peer.expect(". 1:1 ack 40001 sack 41001:42001");
    peer.send(". 43001:44001 ack 1");
    peer.expect(". 1:1 ack 40001 sack 43001:44001 41001:42001");
}

//= https://www.rfc-editor.org/rfc/rfc2018#section-4
//= type=test
//# The first SACK block (i.e., the one immediately following the
//# kind and length fields in the option) MUST specify the contiguous
//# block of data containing the segment which triggered this ACK,
//= https://www.rfc-editor.org/rfc/rfc2018#section-4
//= type=test
//# The first SACK block (i.e., the one immediately following the kind and length fields in the
//# option) MUST specify the contiguous block of data containing the segment which triggered this
//# ACK
//= https://www.rfc-editor.org/rfc/rfc2018#section-4
//= type=test
//# * The data receiver SHOULD include as many distinct SACK blocks as possible in the SACK option.
//= https://www.rfc-editor.org/rfc/rfc2018#section-4
//= type=test
//# * The SACK option SHOULD be filled out by repeating the most recently reported SACK blocks
//# (based on first SACK blocks in previous SACK options) that are not subsets of a SACK block
//# already included in the SACK option being constructed.
//= https://www.rfc-editor.org/rfc/rfc2018#section-8
//= type=test
//# * The first SACK block MUST reflect the newest segment.
#[test]
fn the_first_sack_block_has_the_newest_segment() {
    let mut peer = Peer::established();
    for start in [2001, 4001, 6001, 8001, 10001] {
        peer.send(&format!(". {start}:{} ack 1", start + 1000));
    }
    let sent = peer.sent();
    let last = ". 1:1 ack 1 sack 10001:11001 8001:9001 6001:7001 4001:5001";
    assert!(sent.ends_with(last), "{sent}");
    peer.send(". 3001:4001 ack 1");
    peer.expect(". 1:1 ack 1 sack 2001:5001 10001:11001 8001:9001 6001:7001");
}

#[test]
fn ranges_of_a_burst_are_all_told_of_though_one_segment_has_no_room_for_them() {
    let mut peer = Peer::established();
    for start in [2001, 4001, 6001, 8001, 10001] {
        peer.send(&format!(". {start}:{} ack 1", start + 1000));
    }
    peer.expect(
        ". 1:1 ack 1 sack 8001:9001 6001:7001 4001:5001 2001:3001 | \
         . 1:1 ack 1 sack 10001:11001 8001:9001 6001:7001 4001:5001",
    );
}

#[test]
fn many_segments_of_one_range_do_not_make_others_forgotten() {
    let mut peer = Peer::established();
    for start in [14001, 2001, 3001, 4001, 6001, 7001, 8001, 10001, 11001, 12001] {
        peer.send(&format!(". {start}:{} ack 1", start + 1000));
    }
    peer.expect(". 1:1 ack 1 sack 10001:13001 6001:9001 2001:5001 14001:15001");
}

//= https://www.rfc-editor.org/rfc/rfc5681#section-4.2
//= type=test
//# A TCP receiver MUST NOT generate more than one ACK for every incoming segment, other than to
//# update the offered window as the receiving application consumes new data (see [RFC813] and page
//# 42 of [RFC793]).
//= https://www.rfc-editor.org/rfc/rfc2018#section-4
//= type=test
//# If the data receiver has not received a SACK-Permitted option for a given connection, it MUST
//# NOT send SACK options on that connection.
//= https://www.rfc-editor.org/rfc/rfc6582#section-5
//= type=test
//# [RFC5681] specifies that "Out-of-order data segments SHOULD be acknowledged immediately, in
//# order to accelerate loss recovery".
#[test]
fn without_sack_every_segment_out_of_order_gets_its_duplicate() {
    let mut peer = Peer::established_with(Offer { sack: false, ..PLAIN }, TcpOptions::default());
    peer.send(". 1001:2001 ack 1");
    peer.send(". 2001:3001 ack 1");
    peer.send(". 3001:4001 ack 1");
    peer.expect(". 1:1 ack 1 | . 1:1 ack 1 | . 1:1 ack 1");
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
//= type=test
//# Segments with higher beginning sequence numbers SHOULD be held for later processing (SHLD-31).
//= https://www.rfc-editor.org/rfc/rfc5681#section-3.2
//= type=test
//# In addition, a TCP receiver SHOULD send an immediate ACK when the incoming segment fills in all
//# or part of a gap in the sequence space.
//= https://www.rfc-editor.org/rfc/rfc5681#section-4.2
//= type=test
//# To provide feedback to senders recovering from losses, the receiver SHOULD send an immediate ACK
//# when it receives a data segment that fills in all or part of a gap in the sequence space.
#[test]
fn a_filled_gap_is_acknowledged_at_once_and_everything_is_readable() {
    let mut peer = settled();
    peer.send(". 41001:42001 ack 1");
    peer.sent();
    peer.send(". 40001:41001 ack 1");
    peer.expect(". 1:1 ack 42001");
    assert_eq!(peer.received(), 42_000);
}

//= https://www.rfc-editor.org/rfc/rfc2883#section-4
//= type=test
//# A D-SACK block is only used to report a duplicate contiguous
//# sequence of data received by the receiver in the most recent packet.
#[test]
fn duplicates_are_reported_once() {
    let mut peer = Peer::established();
    peer.send(". 1:1001 ack 1");
    peer.expect(". 1:1 ack 1001");
    peer.send(". 1:1001 ack 1");
    peer.expect(". 1:1 ack 1001 sack 1:1001");
    peer.send(". 1001:2001 ack 1");
    peer.expect(". 1:1 ack 2001");
}

/// Only the last of them was told, so that a peer could not take its reduction back.
#[test]
fn duplicates_in_a_row_that_come_together_are_reported_as_one() {
    let mut peer = Peer::established();
    peer.send(". 1:4001 ack 1");
    peer.sent();
    for start in [1, 1001, 2001] {
        peer.send(&format!(". {start}:{} ack 1", start + 1000));
    }
    peer.expect(". 1:1 ack 4001 sack 1:3001");
    // Of those that lie apart the last one is.
    peer.send(". 1:1001 ack 1");
    peer.send(". 2001:3001 ack 1");
    peer.expect(". 1:1 ack 4001 sack 2001:3001");
}

#[test]
fn what_ends_beyond_the_window_is_taken_whole_while_nothing_is_unread() {
    let mut peer = Peer::established();
    peer.send(". 60001:61001 ack 1");
    peer.sent();
    peer.send(". 64001:66001 ack 1");
    peer.expect(". 1:1 ack 1 sack 64001:66001 60001:61001");
    peer.send_refused(". 65001:66001 ack 1", DropReason::TcpOutOfWindow);
    peer.sent();
    peer.send("P. 1:11 ack 1");
    peer.sent();
    peer.send_refused(". 62001:66001 ack 1", DropReason::TcpOutOfWindow);
    peer.expect(". 1:1 ack 11 sack 64001:66001 60001:61001");
    assert_eq!(peer.host.tcp.counters().beyond_window, 2);
}

#[test]
fn acknowledgements_wait_for_reading_while_most_of_the_memory_is_taken() {
    let mut peer = Peer::established();
    for at in (1..30_001).step_by(1000) {
        peer.send(&format!(". {at}:{} ack 1", at + 1000));
    }
    peer.wait(50);
    peer.sent();
    peer.send(". 30001:31001 ack 1");
    peer.send(". 31001:32001 ack 1");
    peer.expect("");
    peer.read();
    peer.expect(". 1:1 ack 32001");
}

#[test]
fn segments_open_the_window_by_twice_their_bytes_within_the_memory() {
    // Of 128 KiB 9,000 in 12,544 bytes are payload.
    let mut peer = Peer::established_with(Offer { scale: Some(7), ..PLAIN }, TcpOptions::default());
    let mut at = 1;
    for window in [64_240_u64 + 18_000, 93_696 - 18_000] {
        peer.send(&format!("P. {at}:{} ack 1", at + 9000));
        at += 9000;
        peer.wait(50);
        peer.sent();
        assert_eq!(u64::from(peer.window()) << 7, window.next_multiple_of(128));
    }
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6
//= type=test
//# A TCP receiver SHOULD NOT shrink the window
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6
//= type=test
//# A TCP receiver SHOULD NOT shrink the window, i.e., move the right window edge to the left
//# (SHLD-14).
//= https://www.rfc-editor.org/rfc/rfc7323#section-2.4
//= type=test
//# The receiver MUST honor, as in window, any segment that would have been in window for any <ACK>
//# sent by the receiver.
//= https://www.rfc-editor.org/rfc/rfc7323#section-2.4
//= type=test
//# the receiver SHOULD track the actual maximum window sequence number
#[test]
fn the_window_closes_as_data_waits_and_never_shrinks() {
    let mut peer = Peer::established();
    let mut edge = 0;
    for i in 0..64 {
        let at = 1 + i * 1000;
        peer.send(&format!("P. {at}:{} ack 1", at + 1000));
        peer.sent();
        let now = peer.last.unwrap().0;
        let right = u64::from(now.ack.0.wrapping_add(u32::from(now.window)));
        let right = (right + 2000) & 0xffff_ffff;
        assert!(right >= edge, "{right} < {edge}");
        edge = right;
    }
    peer.wait(50);
    peer.sent();
    assert_eq!(peer.window(), 240);
}

/// A connection whose window is shut by what waits to be read.
fn shut() -> Peer {
    let mut peer = Peer::established();
    for i in 0..64 {
        let at = 1 + i * 1000;
        peer.send(&format!("P. {at}:{} ack 1", at + 1000));
    }
    peer.send("P. 64001:64241 ack 1");
    peer.sent();
    assert_eq!(peer.window(), 0);
    peer
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.4
//= type=test
//# A TCP receiver MUST process the RST and URG fields of all incoming segments, even when the
//# receive window is zero (MUST-66).
#[test]
fn a_shut_window_takes_acknowledgements_urgent_pointers_and_resets() {
    let mut peer = shut();
    peer.write(100);
    peer.expect("P. 1:101 ack 64241");
    peer.send(". 64241:64241 ack 101");
    assert_eq!(peer.levels().acked, 100);
    peer.send("U. 64241:64241 ack 101 urg 5");
    assert_eq!(peer.levels().urgent.map(|urgent| urgent.end()), Some(64_245));
    peer.send("R. 64241:64241 ack 101");
    assert_eq!(peer.levels().error, Some(TcpError::Reset));
}

/// As Linux 6.18 does, where RFC 9293 would have them heeded.
#[test]
fn data_beyond_a_shut_window_takes_its_acknowledgement_with_it() {
    let mut peer = shut();
    peer.write(100);
    peer.expect("P. 1:101 ack 64241");
    peer.send_refused("U. 64241:64242 ack 101 urg 1", DropReason::TcpOutOfWindow);
    peer.expect(". 101:101 ack 64241");
    assert_eq!(peer.levels().acked, 0);
    assert!(peer.levels().urgent.is_none());
}

/// Receiver's silly window syndrome avoidance, RFC 9293 section 3.8.6.2.2.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.2.2
//= type=test
//# A TCP implementation MUST include a SWS avoidance algorithm in the receiver (MUST-39).
#[test]
fn a_closed_window_opens_when_it_can_double() {
    let mut peer = shut();
    // A probe of the closed window.
    peer.send_refused(". 64241:64242 ack 1", DropReason::TcpOutOfWindow);
    peer.expect(". 1:1 ack 64241");
    peer.host.tcp.consumed(peer.now, peer.id, 500).unwrap();
    peer.expect("");
    peer.host.tcp.consumed(peer.now, peer.id, 40_000).unwrap();
    peer.expect(". 1:1 ack 64241");
    // Of 128 KiB 1,000 in 2,304 bytes are payload; 24,240 bytes are unread.
    assert_eq!(peer.window(), 32_000);
}

//= https://www.rfc-editor.org/rfc/rfc7323#section-2.3
//= type=test
//# The window field (SEG.WND) of every outgoing segment, with the exception of <SYN> segments, MUST
//# be right-shifted by Rcv.Wind.Shift bits:
#[test]
fn the_window_grows_as_data_is_read() {
    let mut peer = Peer::established_with(Offer { scale: Some(7), ..PLAIN }, TcpOptions::default());
    let mut at = 1u64;
    for _ in 0..4000 {
        peer.send(&format!("P. {at}:{} ack 1", at + 1000));
        peer.read();
        peer.sent();
        at += 1000;
    }
    let window = u64::from(peer.window()) << 7;
    assert!((1_000_000..=6 << 20).contains(&window), "{window}");
    assert!(peer.levels().receive_window >= 1_000_000);
}

#[test]
fn the_window_stays_within_what_the_owner_has_memory_for_and_what_the_program_said() {
    let said = TcpOptions { recv_limit: 200_000, recv_tunes: false, ..TcpOptions::default() };
    // A window that the program has fixed is scaled by what it takes.
    let tuned = TcpOptions::default();
    // In twice what the program has said there are 1,000 bytes of payload in 2,304.
    for (options, ceiling, scale, most) in
        [(tuned, 200_000, 7, 200_000), (said, u32::MAX, 2, 400_000 * 111 / 256)]
    {
        let mut peer = Peer::established_with(Offer { scale: Some(7), ..PLAIN }, options);
        peer.host.tcp.limit_window(peer.id, ceiling).unwrap();
        for at in (1u64..1_000_000).step_by(1000) {
            peer.send(&format!("P. {at}:{} ack 1", at + 1000));
            peer.read();
            peer.sent();
        }
        assert!((most - 2000..=most).contains(&peer.levels().receive_window));
        assert!(u32::from(peer.window()) << scale <= most.next_multiple_of(1 << scale));
    }
}

#[test]
fn what_the_sink_refuses_is_not_acknowledged() {
    let mut peer = Peer::established();
    peer.host.store.refuse_one_in = 1;
    peer.send_refused("P. 1:11 ack 1", DropReason::TcpNoRoom);
    peer.expect(". 1:1 ack 1");
    peer.host.store.refuse_one_in = 0;
    peer.send("P. 1:11 ack 1");
    peer.expect(". 1:1 ack 11");
}

/// What was promised before the program made its buffer smaller is not kept beyond that buffer.
#[test]
fn unread_bytes_never_take_more_than_the_receive_memory() {
    let mut peer = Peer::established();
    peer.set_options(|o| {
        o.recv_limit = 2000;
        o.recv_tunes = false;
    });
    // The first is taken whatever its size.
    peer.send("P. 1:1001 ack 1");
    peer.send("P. 1001:4001 ack 1");
    peer.sent();
    peer.send_refused("P. 4001:4002 ack 1", DropReason::TcpNoRoom);
    peer.expect(". 1:1 ack 4001");
    peer.send_refused("P. 5001:5002 ack 1", DropReason::TcpNoRoom);
    peer.expect(". 1:1 ack 4001");
    peer.read();
    peer.sent();
    peer.send("P. 4001:10001 ack 1");
    assert_eq!(peer.received(), 10_000);
}

#[test]
fn urgent_data_is_announced() {
    let mut peer = Peer::established();
    peer.send("PU. 1:11 ack 1 urg 10");
    let urgent = peer.levels().urgent.unwrap();
    assert_eq!(urgent.end(), 10);
}

#[test]
fn sequence_numbers_go_round() {
    // The peer's numbers wrap after its first thousand bytes.
    let mut peer = Peer::established();
    peer.send("P. 1:1001 ack 1");
    peer.send("P. 1001:2001 ack 1");
    peer.send("P. 3001:4001 ack 1");
    peer.expect(". 1:1 ack 2001 sack 3001:4001");
    assert_eq!(peer.received(), 2000);
}

#[test]
fn the_segment_size_of_a_coalesced_frame_counts() {
    let mut peer = settled();
    peer.send(". 40001:43001 ack 1");
    peer.expect(". 1:1 ack 43001");
}

#[test]
fn of_a_segment_that_finds_no_room_as_much_as_possible_is_taken() {
    let mut peer = Peer::established();
    peer.host.store.room = Some(1500);
    peer.send("FP. 1:4001 ack 1");
    peer.expect(". 1:1 ack 1001");
    peer.state(TcpState::Established);
    assert_eq!(peer.received(), 1000);
    // Out of order it would be of no use.
    peer.send_refused("P. 2001:4001 ack 1", DropReason::TcpNoRoom);
    peer.expect(". 1:1 ack 1001");
    peer.host.store.room = Some(0);
    peer.send_refused("FP. 1001:4001 ack 1", DropReason::TcpNoRoom);
    peer.expect(". 1:1 ack 1001");
    peer.host.store.room = None;
    peer.send("FP. 1001:4001 ack 1");
    assert_eq!(peer.received(), 4000);
    peer.state(TcpState::CloseWait);
}

//= https://www.rfc-editor.org/rfc/rfc2883#section-4
//= type=test
//# If the duplicate segment is part of a larger block
//# of non-contiguous data in the receiver's data queue, then the
//# following SACK block should be used to specify this larger block.
//= https://www.rfc-editor.org/rfc/rfc2883#section-3
//= type=test
//# MUST specify the contiguous block of data containing the segment which triggered this ACK,
//# unless that segment advanced the Acknowledgment Number field in the header."
//= https://www.rfc-editor.org/rfc/rfc2883#section-3
//= type=test
//# RFC 2018 further specifies that "if sent at all, SACK options SHOULD be included in all ACKs
//# which do not ACK the highest sequence number in the data receiver's queue."
#[test]
fn duplicates_are_reported_as_in_the_examples_of_rfc_2883() {
    // Example 2: a duplicate below, while something is missing.
    let mut peer = Peer::established();
    peer.send(". 1:501 ack 1");
    peer.send(". 501:1001 ack 1");
    peer.send(". 1501:2001 ack 1");
    peer.sent();
    peer.send(". 1:501 ack 1");
    peer.expect(". 1:1 ack 1001 sack 1:501 1501:2001");
    // Example 3: a duplicate of what is out of order; the larger block follows.
    peer.send(". 3001:3501 ack 1");
    peer.send(". 2001:2501 ack 1");
    peer.sent();
    peer.send(". 3001:3501 ack 1");
    peer.expect(". 1:1 ack 1001 sack 3001:3501 3001:3501 1501:2501");
    peer.send(". 2001:2501 ack 1");
    peer.expect(". 1:1 ack 1001 sack 2001:2501 1501:2501 3001:3501");
}

//= https://www.rfc-editor.org/rfc/rfc2883#section-4.2
//= type=test
//# When the SACK option is used for reporting partial duplicate
//# segments, the first D-SACK block reports the first duplicate sub-
//# segment.
#[test]
fn of_a_partial_duplicate_the_first_part_is_reported() {
    // Example 6.
    let mut peer = Peer::established();
    peer.send(". 1:1001 ack 1");
    peer.send(". 3501:4001 ack 1");
    peer.send(". 1501:2001 ack 1");
    peer.sent();
    peer.send(". 1501:3001 ack 1");
    peer.expect(". 1:1 ack 1001 sack 1501:2001 1501:3001 3501:4001");
    // In order, over what was there.
    peer.send(". 1001:3501 ack 1");
    peer.expect(". 1:1 ack 4001 sack 1501:3001");
}
