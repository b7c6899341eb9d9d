//! Segments that somebody else might have made: RFC 5961, PAWS, RFC 5927.

use super::peer::*;
use crate::api::*;
use crate::drops::DropReason;
use crate::tcp::IcmpError;

//= https://www.rfc-editor.org/rfc/rfc5961#section-3.2
//= type=test
//# 1) If the RST bit is set and the sequence number is outside the
//#    current receive window, silently drop the segment.
//= https://www.rfc-editor.org/rfc/rfc5961#section-3.2
//= type=test
//# In all other cases, where the SEQ-field does not match and is outside the window, the receiver
//# MUST silently discard the segment.
//= https://www.rfc-editor.org/rfc/rfc5961#section-3.2
//= type=test
//# In all other cases the receiver MUST silently discard the segment.
#[test]
fn a_reset_outside_the_window_is_dropped_silently() {
    let mut peer = Peer::established();
    peer.send_refused("R 70000:70000", DropReason::TcpOutOfWindow);
    peer.expect("");
    peer.state(TcpState::Established);
}

//= https://www.rfc-editor.org/rfc/rfc5961#section-3.2
//= type=test
//# 2) If the RST bit is set and the sequence number exactly matches the
//#    next expected sequence number (RCV.NXT), then TCP MUST reset the
//#    connection.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
//= type=test
//# 2) If the RST bit is set and the sequence number exactly matches the next expected sequence
//# number (RCV.NXT), then TCP endpoints MUST reset the connection in the manner prescribed below
//# according to the connection state.
//= https://www.rfc-editor.org/rfc/rfc5961#section-3.2
//= type=test
//# If the RST bit is set and the sequence number exactly matches the next expected sequence number
//# (RCV.NXT), then TCP MUST reset the connection.
//= https://www.rfc-editor.org/rfc/rfc5961#section-4.2
//= type=test
//# Upon receipt of a valid RST, the local TCP endpoint MUST terminate its connection.
#[test]
fn an_exact_reset_ends_the_connection() {
    let mut peer = Peer::established();
    peer.send_taken("R 1:1");
    peer.state(TcpState::Closed);
    assert_eq!(peer.levels().error, Some(TcpError::Reset));
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.5.3
//= type=test
//# TCP implementations SHOULD allow a received RST segment to include data (SHLD-2).
#[test]
fn a_reset_may_carry_data_which_is_not_taken() {
    let mut peer = Peer::established();
    peer.send("R 1:101");
    peer.state(TcpState::Closed);
    assert_eq!((peer.levels().error, peer.received()), (Some(TcpError::Reset), 0));
}

//= https://www.rfc-editor.org/rfc/rfc5961#section-3.2
//= type=test
//# match the next expected sequence value, yet is within the current
//# receive window (RCV.NXT < SEG.SEQ < RCV.NXT+RCV.WND), TCP MUST
//# send an acknowledgment (challenge ACK):
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
//= type=test
//# 3) If the RST bit is set and the sequence number does not exactly match the next expected
//# sequence value, yet is within the current receive window, TCP endpoints MUST send an
//# acknowledgment (challenge ACK):
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
//= type=test
//# After sending the challenge ACK, TCP endpoints MUST drop the unacceptable segment and stop
//# processing the incoming packet further.
//= https://www.rfc-editor.org/rfc/rfc5961#section-1.1
//= type=test
//# The mitigations suggested in this document SHOULD be implemented in devices that regularly need
//# to maintain TCP connections of the kind most vulnerable to the attacks described in this
//# document.
//= https://www.rfc-editor.org/rfc/rfc5961#section-3.2
//= type=test
//# Instead, implementations SHOULD implement the following steps in place of those specified in
//# [RFC0793] (as listed above).
//= https://www.rfc-editor.org/rfc/rfc5961#section-3.2
//= type=test
//# If the RST bit is set and the sequence number does not exactly match the next expected sequence
//# value, yet is within the current receive window (RCV.NXT < SEG.SEQ < RCV.NXT+RCV.WND), TCP MUST
//# send an acknowledgment (challenge ACK):
//= https://www.rfc-editor.org/rfc/rfc5961#section-3.2
//= type=test
//# After sending the challenge ACK, TCP MUST drop the unacceptable segment and stop processing the
//# incoming packet further.
#[test]
fn a_reset_within_the_window_is_challenged() {
    let mut peer = Peer::established();
    peer.send_refused("R 100:100", DropReason::TcpBlindReset);
    peer.expect(". 1:1 ack 1");
    peer.state(TcpState::Established);
}

/// As Linux takes them: what a peer dies with that has sent more than has arrived, or its FIN.
#[test]
fn a_reset_at_the_end_of_what_was_told_or_at_the_fin_is_exact() {
    let mut peer = Peer::established();
    peer.send(". 1001:2001 ack 1");
    peer.expect(". 1:1 ack 1 sack 1001:2001");
    peer.send_refused("R 1500:1500", DropReason::TcpBlindReset);
    peer.expect(". 1:1 ack 1 sack 1001:2001");
    peer.send("R 2001:2001");
    assert_eq!(peer.levels().error, Some(TcpError::Reset));

    for mut peer in [Peer::close_wait(), Peer::last_ack(), Peer::closing()] {
        peer.send_refused("R 0:0", DropReason::TcpOutOfWindow);
        peer.send("R 1:1");
        peer.state(TcpState::Closed);
    }
    // Where there was no FIN it is old.
    let mut peer = Peer::established();
    peer.send_refused("R 0:0", DropReason::TcpOutOfWindow);
    peer.state(TcpState::Established);
}

//= https://www.rfc-editor.org/rfc/rfc5961#section-4.2
//= type=test
//# 1) If the SYN bit is set, irrespective of the sequence number, TCP
//#    MUST send an ACK (also referred to as challenge ACK) to the remote
//#    peer:
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
//= type=test
//# if the SYN bit is set, irrespective of the sequence number, TCP endpoints MUST send a "challenge
//# ACK" to the remote peer
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
//= type=test
//# o After sending the acknowledgment, TCP implementations MUST drop the unacceptable segment and
//# stop processing further.
//= https://www.rfc-editor.org/rfc/rfc5961#section-4.2
//= type=test
//# Instead, the handling of the SYN in the synchronized state SHOULD be performed as follows:
//= https://www.rfc-editor.org/rfc/rfc5961#section-4.2
//= type=test
//# If the SYN bit is set, irrespective of the sequence number, TCP MUST send an ACK (also referred
//# to as challenge ACK) to the remote peer:
//= https://www.rfc-editor.org/rfc/rfc5961#section-4.2
//= type=test
//# After sending the acknowledgment, TCP MUST drop the unacceptable segment and stop processing
//# further.
#[test]
fn a_syn_on_an_established_connection_is_challenged() {
    for line in ["S 0:0", "S 100:100", "S 1:1"] {
        let mut peer = Peer::established();
        peer.send_refused(line, DropReason::TcpBlindReset);
        peer.expect(". 1:1 ack 1");
        peer.state(TcpState::Established);
    }
}

//= https://www.rfc-editor.org/rfc/rfc5961#section-7
//= type=test
//# challenge ACKs, an ACK throttling mechanism is suggested as follows:
//= https://www.rfc-editor.org/rfc/rfc5961#section-7
//= type=test
//# An implementation SHOULD include an ACK throttling mechanism to be conservative.
#[test]
fn challenges_are_limited() {
    let mut peer = Peer::established();
    for _ in 0..10 {
        peer.send("R 100:100");
    }
    peer.expect(". 1:1 ack 1");
    peer.wait(400);
    peer.send("R 100:100");
    peer.expect("");
    peer.wait(200);
    peer.send("R 100:100");
    peer.expect(". 1:1 ack 1");
}

//= https://www.rfc-editor.org/rfc/rfc5961#section-5.2
//= type=test
//# All incoming segments whose ACK value doesn't satisfy the
//# above condition MUST be discarded and an ACK sent back.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
//= type=test
//# TCP stacks that implement RFC 5961 MUST add an input check
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
//= type=test
//# All incoming segments whose ACK value doesn't satisfy the above condition MUST be discarded and
//# an ACK sent back.
//= https://www.rfc-editor.org/rfc/rfc5961#section-5.2
//= type=test
//# TCP stacks that implement this mitigation MUST add an additional input check to any incoming
//# segment.
//= https://www.rfc-editor.org/rfc/rfc5961#section-5.2
//= type=test
//# All incoming segments whose ACK value doesn't satisfy the above condition MUST be discarded and
//# an ACK sent back.
#[test]
fn data_with_a_far_acknowledgement_is_discarded() {
    let mut peer = Peer::established();
    peer.send_refused("P. 1:11 ack 100", DropReason::TcpBadAck);
    peer.expect(". 1:1 ack 1");
    peer.wait(1000);
    peer.send_refused("P. 1:11 ack -70000", DropReason::TcpBadAck);
    peer.expect(". 1:1 ack 1");
    assert_eq!(peer.received(), 0);
}

#[test]
fn data_with_an_old_acknowledgement_is_taken() {
    let mut peer = Peer::established();
    peer.write(100);
    peer.expect("P. 1:101 ack 1");
    peer.send(". 1:1 ack 101");
    peer.send("P. 1:11 ack 51");
    assert_eq!(peer.received(), 10);
    // As Linux: none of what was never sent.
    peer.wait(1000);
    peer.sent();
    peer.send_refused("P. 11:21 ack -1", DropReason::TcpBadAck);
    peer.expect(". 101:101 ack 11");
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
//= type=test
//# if the ACK bit is off, drop the segment and return
#[test]
fn data_without_an_acknowledgement_is_dropped() {
    let mut peer = Peer::established();
    peer.send_refused("P 1:11", DropReason::TcpBadAck);
    assert_eq!(peer.received(), 0);
}

fn stamped() -> Offer {
    Offer { timestamps: true, ..PLAIN }
}

fn established_stamped() -> Peer {
    let mut peer = Peer::syn_received(stamped(), TcpOptions::default());
    peer.send(". 1:1 ack 1 ts 1001");
    peer.id = peer.host.tcp.accept(peer.listener.unwrap()).unwrap().unwrap().id;
    peer
}

//= https://www.rfc-editor.org/rfc/rfc7323#section-5.3
//= type=test
//# R1)  If there is a Timestamps option in the arriving segment,
//#      SEG.TSval < TS.Recent, TS.Recent is valid (see later
//#      discussion), and if the RST bit is not set, then treat the
//#      arriving segment as not acceptable
//= https://www.rfc-editor.org/rfc/rfc7323#section-5.3
//= type=test
//# If the PAWS algorithm is used, the following processing MUST be performed on all incoming
//# segments for a synchronized connection.
//= https://www.rfc-editor.org/rfc/rfc7323#section-5.3
//= type=test
//# PAWS processing MUST take precedence over the regular TCP acceptability check
#[test]
fn an_old_duplicate_is_known_by_its_timestamp() {
    let mut peer = established_stamped();
    peer.send_refused("P. 1:11 ack 1 ts 900", DropReason::TcpPaws);
    peer.expect(". 1:1 ack 1");
    assert_eq!(peer.received(), 0);
    // Before anything else is looked at.
    peer.send_refused("P. 70000:70010 ack 1 ts 900", DropReason::TcpPaws);
    peer.expect(". 1:1 ack 1");
    peer.send("P. 1:11 ack 1 ts 1002");
    assert_eq!(peer.received(), 10);
}

//= https://www.rfc-editor.org/rfc/rfc7323#section-5.2
//= type=test
//# When an <RST> segment is received, it MUST NOT be subjected to the PAWS check by verifying an
//# acceptable value in SEG.TSval, and information from the Timestamps option MUST NOT be used to
//# update connection state information.
#[test]
fn a_reset_needs_no_new_timestamp() {
    let mut peer = established_stamped();
    peer.send("R 1:1 ts 900");
    peer.state(TcpState::Closed);
}

//= https://www.rfc-editor.org/rfc/rfc7323#section-3.2
//= type=test
//# The exact rules on which TSval MUST be echoed are given in Section 4.3.
//= https://www.rfc-editor.org/rfc/rfc7323#section-4.3
//= type=test
//# An <ACK> for an out-of-order segment SHOULD, therefore, contain the timestamp from the most
//# recent segment that advanced RCV.NXT.
//= https://www.rfc-editor.org/rfc/rfc7323#section-4.3
//= type=test
//# Thus, the timestamp from the latest segment (which filled the hole) MUST be echoed.
#[test]
fn the_timestamp_of_a_segment_above_a_gap_is_not_echoed() {
    let mut peer = established_stamped();
    peer.send(". 11:21 ack 1 ts 2000");
    peer.expect(". 1:1 ack 1 sack 11:21");
    assert_eq!(peer.last.unwrap().1.timestamps.unwrap().echo, 1001);
    peer.send(". 1:11 ack 1 ts 1999");
    peer.expect(". 1:1 ack 21");
    assert_eq!(peer.last.unwrap().1.timestamps.unwrap().echo, 1999);
}

//= https://www.rfc-editor.org/rfc/rfc7323#section-4.3
//= type=test
//# Thus, when delayed ACKs are in use, the receiver SHOULD reply with the TSval field from the
//# earliest unacknowledged segment.
#[test]
fn a_delayed_acknowledgement_echoes_the_first_of_the_segments_that_waited() {
    let mut peer = established_stamped();
    peer.quickack(false);
    peer.send("P. 1:11 ack 1 ts 2000");
    peer.send("P. 11:21 ack 1 ts 2007");
    peer.expect("");
    peer.wait(60);
    peer.expect(". 1:1 ack 21");
    assert_eq!(peer.last.unwrap().1.timestamps.unwrap().echo, 2000);
}

//= https://www.rfc-editor.org/rfc/rfc7323#section-5.5
//= type=test
//# If TS.Recent is found to be invalid, then the segment is accepted,
//# regardless of the failure of the timestamp check, and rule R3 updates
//# TS.Recent with the TSval from the new segment.
#[test]
fn after_twenty_four_days_an_old_timestamp_proves_nothing() {
    let mut peer = established_stamped();
    peer.wait(25 * 86_400_000);
    peer.send("P. 1:11 ack 1 ts 900");
    assert_eq!(peer.received(), 10);
    // It is what the peer is told from now on, and what later ones are judged by.
    peer.expect(". 1:1 ack 11");
    assert_eq!(peer.last.unwrap().1.timestamps.unwrap().echo, 900);
    peer.send_refused("P. 11:21 ack 1 ts 898", DropReason::TcpPaws);
}

/// Some hosts' SYNs have a nought there, and their clock's time comes with the next segment.
#[test]
fn a_timestamp_of_nought_makes_no_other_an_old_one() {
    let mut peer = Peer::syn_received(stamped(), TcpOptions::default());
    peer.host.tcp.hot[0].ts_recent = 0;
    peer.send(". 1:1 ack 1 ts 3000000000");
    peer.id = peer.host.tcp.accept(peer.listener.unwrap()).unwrap().unwrap().id;
    peer.send("P. 1:11 ack 1 ts 3000000001");
    assert_eq!(peer.received(), 10);
}

//= https://www.rfc-editor.org/rfc/rfc5927#section-4.1
//= type=test
//# These implementations check that the TCP sequence number contained in
//# the payload of the ICMP error message is within the range
//# SND.UNA =< SEG.SEQ < SND.NXT.
//= https://www.rfc-editor.org/rfc/rfc8201#section-4
//= type=test
//# Nodes should appropriately validate the payload of ICMPv6 PTB messages to ensure these are
//# received in response to transmitted traffic (i.e., a reported error condition that corresponds
//# to an IPv6 packet actually sent by the application) per [ICMPv6].
//= https://www.rfc-editor.org/rfc/rfc8899#section-3
//= type=test
//# Any received PTB message MUST be validated before it is used to update the PLPMTU discovery
//# information [RFC8201].
//= https://www.rfc-editor.org/rfc/rfc8899#section-4.6.1
//= type=test
//# * A PL that supports PTB messages MUST validate these messages before they are further
//# processed.
//= https://www.rfc-editor.org/rfc/rfc8899#section-4.6.1
//= type=test
//# The PL MUST check the protocol information in the quoted packet carried in an ICMP PTB message
//# payload to validate the message originated from the sending node.
//= https://www.rfc-editor.org/rfc/rfc8899#section-4.6.1
//= type=test
//# The validation SHOULD utilize information that is not simple for an off-path attacker to
//# determine [BCP145].
//= https://www.rfc-editor.org/rfc/rfc8899#section-4.6.1
//= type=test
//# A PTB message that does not complete the validation MUST NOT be further utilized by the DPLPMTUD
//# method, as discussed in the Security Considerations section (Section 8).
//= https://www.rfc-editor.org/rfc/rfc8899#section-8
//= type=test
//# A node supporting DPLPMTUD MUST therefore appropriately validate the payload of PTB messages to
//# ensure these are received in response to transmitted traffic (i.e., a reported error condition
//# that corresponds to a datagram actually sent by the path layer, see Section 4.6.1).
#[test]
fn icmp_about_what_is_not_in_flight_is_refused() {
    let mut peer = Peer::established();
    peer.write(100);
    peer.expect("P. 1:101 ack 1");
    let icmp = |peer: &mut Peer, at: u32, error| {
        let sequence = (peer.iss + at).0;
        peer.host.tcp.on_icmp(peer.now, peer.ends(), sequence, error)
    };
    let error = IcmpError::Failed(TcpError::HostUnreachable);
    assert_eq!(icmp(&mut peer, 200, error), Err(DropReason::IcmpInvalid));
    assert_eq!(peer.host.tcp.counters().icmp_out_of_window, 1);
    assert_eq!(icmp(&mut peer, 1, error), Ok(()));
    // A soft error: the connection goes on.
    peer.state(TcpState::Established);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.8
//= type=test
//# There MUST be a mechanism for reporting soft TCP error conditions to the application (MUST-47).
#[test]
fn a_soft_error_is_told_once_the_connection_times_out() {
    let mut peer = Peer::established();
    peer.write(100);
    peer.sent();
    let error = IcmpError::Failed(TcpError::HostUnreachable);
    peer.host.tcp.on_icmp(peer.now, peer.ends(), (peer.iss + 1).0, error).unwrap();
    assert_eq!(peer.levels().error, None);
    for _ in 0..120 {
        peer.wait(10_000);
        peer.sent();
    }
    assert_eq!(peer.levels().error, Some(TcpError::HostUnreachable));
}

#[test]
fn an_unreachable_host_ends_an_attempt() {
    let mut peer = Peer::syn_sent(PLAIN, TcpOptions::default());
    let error = IcmpError::Failed(TcpError::HostUnreachable);
    peer.host.tcp.on_icmp(peer.now, peer.ends(), peer.iss.0, error).unwrap();
    assert_eq!(peer.levels().error, Some(TcpError::HostUnreachable));
}

//= https://www.rfc-editor.org/rfc/rfc7323#section-5.7
//= type=test
//# any TCP implementation that implements PAWS MUST also implement Path MTU Discovery.
//= https://www.rfc-editor.org/rfc/rfc8201#section-5.2
//= type=test
//# Also, the instance that sent the packet that elicited the Packet Too Big message should be
//# notified that its packet has been dropped, even if the PMTU estimate has not changed, so that it
//# may retransmit the dropped data.
//= https://www.rfc-editor.org/rfc/rfc8201#section-5.4
//= type=test
//# The packet size used in the retransmission should be no larger than the new PMTU.
//= https://www.rfc-editor.org/rfc/rfc8201#section-5.4
//= type=test
//# A loss caused by a PMTU probe indicated by the reception of a Packet Too Big message must not be
//# considered as a congestion notification
//= https://www.rfc-editor.org/rfc/rfc1191#section-3
//= type=test
//# When a host receives a Datagram Too Big message, it MUST reduce its estimate of the PMTU for the
//# relevant path, based on the value of the Next-Hop MTU field in the message (see section 4).
//= https://www.rfc-editor.org/rfc/rfc1191#section-3
//= type=test
//# We do require that after receiving a Datagram Too Big message, a host MUST attempt to avoid
//# eliciting more such messages in the near future.
//= https://www.rfc-editor.org/rfc/rfc1191#section-3
//= type=test
//# Clearly, the former strategy may continue to elicit Datagram Too Big messages for a while, but
//# since each of these messages (and the dropped datagrams they respond to) consume Internet
//# resources, the host MUST force the PMTU Discovery process to converge.
//= https://www.rfc-editor.org/rfc/rfc1191#section-3
//= type=test
//# Hosts using PMTU Discovery MUST detect decreases in Path MTU as fast as possible.
#[test]
fn too_big_makes_smaller_segments_without_slowing_down() {
    let mut peer = Peer::established();
    peer.write(2000);
    peer.expect(". 1:1001 ack 1 | P. 1001:2001 ack 1");
    let cwnd = peer.info().cwnd;
    let error = IcmpError::TooBig { mtu: 640 };
    peer.host.paths.learn(peer.now, peer.remote.ip(), 640, 1500);
    peer.host.tcp.on_icmp(peer.now, peer.ends(), (peer.iss + 1).0, error).unwrap();
    assert!(peer.sent().starts_with(". 1:601 ack 1 | . 601:1201 ack 1"));
    assert_eq!(peer.info().cwnd, cwnd);
}

/// RFC 4987 section 3.4: recycling the oldest half-open connection.
#[test]
fn a_flood_of_syns_displaces_only_half_open_connections_that_are_old() {
    let mut peer = Peer::listening(TcpOptions::default());
    peer.host.tcp.shared.settings.syn_cookies = false;
    let honest = peer.remote;
    let flood = |peer: &mut Peer, from: u16| {
        for port in from..from + 9 {
            peer.remote.set_port(port);
            peer.send("S 0:0");
        }
    };
    flood(&mut peer, 6000);
    peer.sent();
    peer.wait(200);
    peer.remote = honest;
    peer.send_refused("S 0:0", DropReason::TcpSynQueueFull);
    peer.wait(1);
    // The queue comes along through an export.
    let bytes = postcard::to_allocvec(&peer.host.tcp).unwrap();
    peer.host.tcp = postcard::from_bytes(&bytes).unwrap();
    peer.send("S 0:0");
    peer.iss = peer.host_iss();
    assert_eq!(peer.host.tcp.counters().half_open_evicted, 1);
    // It was the oldest, and nothing is sent to it; the next one may still finish.
    peer.expect("");
    peer.send(". 1:1 ack 1");
    let listener = peer.listener.unwrap();
    assert_eq!(peer.host.tcp.pending(listener), Ok(1));
    peer.remote.set_port(6000);
    peer.send_refused("R 1:1", DropReason::TcpNoSocket);
    peer.remote.set_port(6001);
    peer.send("R 1:1");
    // Long after, all of them are displaced, in turn, and no more than fits stay.
    for round in 1..100 {
        peer.wait(201);
        flood(&mut peer, 6000 + 9 * round);
        peer.sent();
        assert_eq!(peer.host.ids().count(), 9 + 1 + 1);
    }
    assert_eq!(peer.host.tcp.counters().half_open_evicted, 1 + 98 * 9 + 7);
}

/// Any segment in any state: nothing panics, and a stranger's segments change nothing for good.
#[test]
fn random_segments_in_every_state_do_no_harm() {
    let states: [fn() -> Peer; 10] = [
        || Peer::listening(TcpOptions::default()),
        || Peer::syn_sent(PLAIN, TcpOptions::default()),
        || Peer::syn_received(PLAIN, TcpOptions::default()),
        Peer::established,
        Peer::fin_wait_1,
        Peer::fin_wait_2,
        Peer::close_wait,
        Peer::closing,
        Peer::last_ack,
        Peer::time_wait,
    ];
    let mut random = super::pair::Random::new(11);
    for round in 0..3000 {
        let mut peer = states[round % states.len()]();
        for _ in 0..8 {
            let mut flags = String::new();
            for letter in ["S", "F", "R", "P", ".", "U"] {
                if random.one_in(if letter == "." { 1 } else { 4 }) {
                    flags += letter;
                }
            }
            let near = |random: &mut super::pair::Random| {
                if random.one_in(4) {
                    i64::from(random.next() as u32)
                } else {
                    random.below(40) as i64 - 10
                }
            };
            let start = near(&mut random);
            let end = start + random.below(30) as i64;
            let line = format!(
                "{flags}P {start}:{end} ack {} win {} urg {} sack {}:{} ts {}",
                near(&mut random),
                random.below(70_000).min(65_535),
                random.below(65_536),
                near(&mut random) as u32,
                near(&mut random) as u32,
                near(&mut random),
            );
            peer.send(&line);
            peer.sent();
            if random.one_in(3) && !peer.is_gone() {
                peer.host.tcp.consumed(peer.now, peer.id, random.next()).unwrap();
            }
            peer.wait(random.below(2000));
            peer.sent();
        }
    }
}
