//! ECN and what paces, from one end.

use super::pair::MS;
use super::peer::*;
use crate::api::*;
use crate::tcp::{EcnMode, TcpSettings};

/// A server whose peer asks for ECN; agreed or not.
fn server(mode: EcnMode, congestion: CongestionKind, syn: &str) -> (Peer, String) {
    let options = TcpOptions { congestion, ..TcpOptions::default() };
    let mut peer = Peer::listening(options);
    peer.host.tcp.shared.settings = TcpSettings { ecn: mode, ..TcpSettings::default() };
    peer.send(syn);
    let answer = peer.learn_iss();
    peer.send(". 1:1 ack 1");
    peer.id = peer.host.tcp.accept(peer.listener.unwrap()).unwrap().expect("accepted").id;
    peer.host.tcp.assign(peer.id, Owner(2)).unwrap();
    (peer, answer)
}

fn agreed() -> Peer {
    server(EcnMode::Accept, CongestionKind::Cubic, "SEW 0:0").0
}

//= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.1
//= type=test
//# If a host has received an ECN-setup SYN packet, then it MAY send
//# an ECN-setup SYN-ACK packet.  Otherwise, it MUST NOT send an
//# ECN-setup SYN-ACK packet.
//= https://www.rfc-editor.org/rfc/rfc3168#section-5
//= type=test
//# Protocols and senders that only require a single ECT codepoint SHOULD use ECT(0).
//= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.1
//= type=test
//# Receivers MUST correctly handle all forms of the non-ECN-setup SYN and SYN-ACK packets.
//= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.2
//= type=test
//# When only one ECT codepoint is needed by a sender for all packets sent on a TCP connection,
//# ECT(0) SHOULD be used.
#[test]
fn ecn_is_agreed_to_where_it_is_asked_for() {
    for (mode, syn, agrees) in [
        (EcnMode::Accept, "SEW 0:0", true),
        (EcnMode::On, "SEW 0:0", true),
        (EcnMode::Off, "SEW 0:0", false),
        (EcnMode::Accept, "S 0:0", false),
        (EcnMode::Accept, "SE 0:0", false),
        (EcnMode::Accept, "[2] SEW 0:0", false),
    ] {
        let (mut peer, answer) = server(mode, CongestionKind::Cubic, syn);
        assert_eq!(answer.starts_with("SE."), agrees, "{mode:?} {syn} {answer}");
        peer.write(1000);
        peer.sent();
        assert_eq!(peer.tos, if agrees { 2 } else { 0 }, "{mode:?} {syn}");
    }
}

//= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.1
//= type=test
//# * A host MUST NOT set ECT on SYN or SYN-ACK packets.
//= https://www.rfc-editor.org/rfc/rfc8257#section-3.6
//= type=test
//# for DCTCP connections, the sender SHOULD set ECT for SYN, SYN-ACK, and RST packets.
#[test]
fn our_syn_asks_when_it_is_to_and_its_repetition_does_not() {
    for (mode, congestion, asks) in [
        (EcnMode::Accept, CongestionKind::Cubic, false),
        (EcnMode::On, CongestionKind::Cubic, true),
        (EcnMode::Off, CongestionKind::Dctcp, true),
    ] {
        let options = TcpOptions { congestion, ..TcpOptions::default() };
        let settings = TcpSettings { ecn: mode, ..TcpSettings::default() };
        let (mut peer, syn) = Peer::asking(settings, options);
        assert_eq!(syn.starts_with("SEW"), asks, "{syn}");
        let may_be_marked = congestion == CongestionKind::Dctcp;
        assert_eq!(peer.tos, if may_be_marked { 2 } else { 0 });
        peer.wait(1100);
        assert!(peer.sent_raw(true).starts_with("S "), "the repetition does not ask");
        peer.send("SE. 0:0 ack 1");
        peer.sent();
        peer.write(100);
        peer.sent();
        assert_eq!(peer.tos, if asks { 2 } else { 0 });
    }
}

//= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.3
//= type=test
//# When TCP receives a CE data packet at the destination end-system, the
//# TCP data receiver sets the ECN-Echo flag in the TCP header of the
//# subsequent ACK packet.
//= https://www.rfc-editor.org/rfc/rfc3168#section-5.2
//= type=test
//# We believe that this aspect is still the subject of research, so this document specifies that at
//# this time, "pure" ACK packets MUST NOT indicate ECN-Capability.
//= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.1
//= type=test
//# if that host receives TCP data packets with ECT and CE codepoints set in the IP header, then
//# that host MUST process these packets as specified for an ECN-capable connection.
//= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.4
//= type=test
//# pure acknowledgement packets (e.g., packets that do not contain any accompanying data) MUST be
//# sent with the not-ECT codepoint.
#[test]
fn a_mark_is_echoed_until_the_sender_says_that_it_has_reduced() {
    let mut peer = agreed();
    peer.send("[2] . 1:1001 ack 1");
    peer.expect(". 1:1 ack 1001");
    peer.send("[3] . 1001:2001 ack 1");
    peer.expect("E. 1:1 ack 2001");
    assert_eq!(peer.tos, 0, "acknowledgements are not marked");
    peer.send("[2] . 2001:3001 ack 1");
    peer.expect("E. 1:1 ack 3001");
    peer.send("[2] W. 3001:4001 ack 1");
    peer.expect(". 1:1 ack 4001");
    assert_eq!(peer.host.tcp.counters().ecn_marks, 1);
}

//= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.2
//= type=test
//# TCP should not react to congestion indications more than once every
//# window of data (or more loosely, more than once every round-trip
//# time).
//= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.2
//= type=test
//# When the TCP data sender is ready to set the CWR bit after reducing
//# the congestion window, it SHOULD set the CWR bit only on the first
//# new data packet that it transmits.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.2
//= type=test
//# A TCP endpoint SHOULD implement ECN as described in RFC 3168 (SHLD-8).
//= https://www.rfc-editor.org/rfc/rfc3168#section-5
//= type=test
//# the congestion control algorithms followed at the end-systems MUST be essentially the same as
//# the congestion control response to a *single* dropped packet
//= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.1
//= type=test
//# * If a host ever sets the ECT codepoint on a data packet, then that host MUST correctly
//# set/clear the CWR TCP bit on all subsequent packets in the connection.
//= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.2
//= type=test
//# The sending TCP SHOULD NOT increase the congestion window in response to the receipt of an
//# ECN-Echo ACK packet.
//= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.2
//= type=test
//# Thus, the CWR bit in the TCP header SHOULD NOT be set on retransmitted packets.
#[test]
fn an_echo_reduces_the_window_once_and_the_next_new_data_says_so() {
    let mut peer = agreed();
    peer.write(40_000);
    assert_eq!(peer.sent().split(" | ").count(), 10);
    peer.send("E. 1:1 ack 2001");
    assert_eq!(peer.info().ssthresh, 7000);
    let first = peer.sent();
    peer.send("E. 1:1 ack 3001");
    let rest = [first, peer.sent()].join(" | ");
    assert_eq!(rest.matches("W").count(), 1, "{rest}");
    assert_eq!(peer.host.tcp.counters().ecn_reductions, 1);
    peer.send(". 1:1 ack 10001");
    peer.sent();
    peer.send(". 1:1 ack 11001");
    // And on with avoidance.
    assert!((7000..7100).contains(&peer.info().cwnd), "{}", peer.info().cwnd);
    assert_eq!(peer.info().retransmits, 0);
}

//= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.5
//= type=test
//# This document specifies ECN-capable TCP implementations MUST NOT set
//# either ECT codepoint (ECT(0) or ECT(1)) in the IP header for
//# retransmitted data packets
//= https://www.rfc-editor.org/rfc/rfc3168#section-5.2
//= type=test
//# To ensure the reliable delivery of the congestion indication of the CE codepoint, an ECT
//# codepoint MUST NOT be set in a packet unless the loss of that packet in the network would be
//# detected by the end nodes and interpreted as an indication of congestion.
//= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.5
//= type=test
//# a legitimate TCP data sender MUST NOT set an ECT codepoint on retransmitted data packets
#[test]
fn what_is_sent_again_is_not_marked() {
    let mut peer = agreed();
    peer.write(1000);
    peer.sent();
    assert_eq!(peer.tos, 2);
    peer.wait(300);
    peer.sent();
    assert_eq!(peer.info().retransmits, 1);
    assert_eq!(peer.tos, 0);
}

//= https://www.rfc-editor.org/rfc/rfc8257#section-3.2
//= type=test
//# To avoid this, an implementation MAY choose to send two
//# ACKs: one for previously unacknowledged packets and another
//# acknowledging the most recently received packet.
//= https://www.rfc-editor.org/rfc/rfc8257#section-3.2
//= type=test
//# When sending an ACK, the ECE flag MUST be set if and only if DCTCP.CE is true.
//= https://www.rfc-editor.org/rfc/rfc8257#section-3.2
//= type=test
//# When receiving packets, the CE codepoint MUST be processed as follows:
#[test]
fn dctcp_tells_marked_bytes_from_others() {
    let (mut peer, _) = server(EcnMode::Accept, CongestionKind::Dctcp, "SEW 0:0");
    let mut at = 1;
    let mut send = |peer: &mut Peer, tos: u8| {
        peer.send(&format!("[{tos}] . {at}:{} ack 1", at + 1000));
        peer.read();
        at += 1000;
    };
    // Until acknowledgements are delayed.
    for _ in 0..40 {
        send(&mut peer, 2);
        peer.sent();
    }
    send(&mut peer, 2);
    peer.expect("");
    send(&mut peer, 3);
    peer.expect(". 1:1 ack 41001 | E. 1:1 ack 42001");
    send(&mut peer, 3);
    peer.expect("");
    send(&mut peer, 3);
    peer.expect("E. 1:1 ack 44001");
    send(&mut peer, 2);
    peer.expect(". 1:1 ack 45001");
}

//= https://www.rfc-editor.org/rfc/rfc3168#section-6.1.6
//= type=test
//# Therefore, the TCP data sender MUST NOT set either an ECT codepoint or the CWR bit on window
//# probe packets.
#[test]
fn a_window_probe_is_not_marked() {
    let mut peer = agreed();
    peer.send("E. 1:1 ack 1 win 0");
    peer.write(100);
    peer.expect("");
    peer.wait(202);
    peer.expect(". 0:0 ack 1");
    assert_eq!(peer.tos, 0);
}

#[test]
fn a_program_may_say_how_fast_data_goes_at_the_most() {
    let options = TcpOptions { max_pacing_rate: 100_000, ..TcpOptions::default() };
    let mut peer = Peer::established_with(PLAIN, options);
    peer.write(2_000_000);
    // The first ten segments are not paced, as in Linux.
    let mut sent = peer.sent().split(" | ").count() as u64;
    let began = peer.now.0;
    while peer.now.0 < began + 10_000 * MS {
        let una = 1 + sent * 1000;
        peer.send(&format!(". 1:1 ack {una}"));
        let more = peer.sent();
        sent += if more.is_empty() { 0 } else { more.split(" | ").count() as u64 };
        peer.wait(1);
    }
    // A thousand, and one burst, which is as long as a frame may be where the peer is near.
    assert!((1000..=1080).contains(&sent), "{sent}");
    assert!(peer.host.tcp.counters().paced > 10);
}

#[test]
fn every_connection_is_paced_where_the_settings_say_so() {
    let mut peer = Peer::established();
    peer.host.tcp.shared.settings.paced = true;
    peer.host.tcp.set_options(peer.now, peer.id, TcpOptions::default()).unwrap();
    peer.write(100_000);
    peer.sent();
    peer.wait(100);
    peer.send(". 1:1 ack 10001");
    // Two windows of twenty segments in a round trip, and the handshake was quicker than that.
    let rate = peer.host.tcp.info(peer.id).unwrap().more.pacing_rate.unwrap();
    assert!((400_000..100_000_000).contains(&rate), "{rate}");
}

#[test]
fn what_an_algorithm_knows_of_the_path_is_told() {
    let told = |peer: &Peer| peer.host.tcp.model(peer.id).unwrap();
    let cubic = agreed();
    assert_eq!((told(&cubic).rate, told(&cubic).state), (0, 0));
    let (mut bbr, _) = server(EcnMode::Accept, CongestionKind::Bbr, "S 0:0");
    // As Linux at the beginning: 2885/1000 of 256, and one.
    assert_eq!(told(&bbr).state >> 32, 739 | 739 << 16);
    bbr.write(10_000);
    bbr.sent();
    bbr.wait(10);
    bbr.send(". 1:1 ack 10001");
    let model = told(&bbr);
    assert!((900_000..=1_100_000).contains(&model.rate), "{model:?}");
    let (mut dctcp, _) = server(EcnMode::Accept, CongestionKind::Dctcp, "SEW 0:0");
    assert_eq!(told(&dctcp).state >> 32, 2);
    // Alpha begins at one.
    assert!((900..=1024).contains(&(told(&dctcp).state as u32)));
    dctcp.send("[3] P. 1:1001 ack 1");
    assert_eq!(told(&dctcp).state >> 32, 3);
    let (plain, _) = server(EcnMode::Accept, CongestionKind::Dctcp, "S 0:0");
    assert_eq!((told(&plain).rate, told(&plain).state), (0, 0));
}
