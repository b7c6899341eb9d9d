//! Path MTU: what routers say, and what is found without them.

use super::pair::*;
use super::peer::*;
use crate::api::*;
use crate::drops::DropReason;
use crate::tcp::intervals::Range;
use crate::tcp::rate::Snapshot;
use crate::tcp::scoreboard::Scoreboard;
use crate::tcp::{IcmpError, MtuProbing};

/// Full Ethernet segments.
const ETHERNET: Offer = Offer { mss: Some(1460), ..PLAIN };

#[test]
fn a_router_that_does_not_say_its_mtu_makes_segments_a_plateau_smaller() {
    let mut peer = Peer::established_with(ETHERNET, TcpOptions::default());
    peer.write(1460);
    peer.expect("P. 1:1461 ack 1");
    let error = IcmpError::TooBig { mtu: 0 };
    peer.host.paths.learn(peer.now, peer.remote.ip(), 0, 1500);
    peer.host.tcp.on_icmp(peer.now, peer.ends(), (peer.iss + 1).0, error).unwrap();
    peer.expect(". 1:1453 ack 1 | P. 1453:1461 ack 1");
}

//= https://www.rfc-editor.org/rfc/rfc1191#section-6.3
//= type=test
//# When a PMTU
//# value has not been decreased for a while (on the order of 10
//# minutes), the PMTU estimate should be set to the first-hop data-link
//# MTU
//= https://www.rfc-editor.org/rfc/rfc8201#section-5.2
//= type=test
//# The packetization layers must be notified about decreases in the PMTU.
//= https://www.rfc-editor.org/rfc/rfc8201#section-5.2
//= type=test
//# Any packetization layer instance (for example, a TCP connection) that is actively using the path
//# must be notified if the PMTU estimate is decreased.
//= https://www.rfc-editor.org/rfc/rfc8201#section-5.2
//= type=test
//# Note: even if the Packet Too Big message contains an Original Packet Header that refers to a UDP
//# packet, the TCP layer must be notified if any of its connections use the given path.
//= https://www.rfc-editor.org/rfc/rfc8201#section-5.5
//= type=test
//# Subsequent segments, when transmitted for the first time, should be no larger than allowed by
//# the Path MTU.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.1
//= type=test
//# The maximum size of a segment that a TCP endpoint really sends, the "effective send MSS", MUST
//# be the smaller (MUST-16) of the send MSS (that reflects the available reassembly buffer size at
//# the remote host, the EMTU_R [19]) and the largest transmission size permitted by the IP layer
//# (EMTU_S [19]):
#[test]
fn a_connection_follows_what_others_have_learnt_and_when_it_is_forgotten() {
    let mut peer = Peer::established_with(ETHERNET, TcpOptions::default());
    peer.host.paths.learn(peer.now, peer.remote.ip(), 1040, 1500);
    peer.write(1500);
    peer.expect(". 1:1001 ack 1 | P. 1001:1501 ack 1");
    peer.send(". 1:1 ack 1501");
    assert_eq!(peer.info().mtu, 1040);
    peer.wait(600_000);
    peer.host.write(peer.now, peer.id, &pattern(1500, 1));
    peer.expect(". 1501:2961 ack 1 | P. 2961:3001 ack 1");
    assert_eq!(peer.info().mtu, 1500);
}

#[test]
fn a_socket_that_wants_no_path_mtu_discovery_lets_routers_cut() {
    let options = TcpOptions { pmtu: PathMtuDiscovery::Dont, ..TcpOptions::default() };
    let mut peer = Peer::established_with(ETHERNET, options);
    peer.host.paths.learn(peer.now, peer.remote.ip(), 1040, 1500);
    peer.write(1460);
    let ready = peer.host.tcp.next_ready(InterfaceIndex(0)).unwrap();
    let mtu = peer.host.mtu_towards(peer.now, ready.remote);
    let sent = peer.host.tcp.emit(peer.now, ready.handle, mtu, &mut [0; 60]).unwrap();
    assert!(!sent.dont_fragment);
    assert!(matches!(sent.payload, Payload::Stream { len: 1460, .. }));
    let error = IcmpError::TooBig { mtu: 1040 };
    let refused = peer.host.tcp.on_icmp(peer.now, peer.ends(), (peer.iss + 1).0, error);
    assert_eq!(refused, Err(DropReason::IcmpInvalid));
}

//= https://www.rfc-editor.org/rfc/rfc8899#section-4.3
//= type=test
//# Black hole detection is triggered by an indication that the network
//# path could be unable to support the current PLPMTU size.
//= https://www.rfc-editor.org/rfc/rfc8899#section-3
//= type=test
//# A PL MUST NOT send a datagram (other than a probe packet) with a size at the PL that is larger
//# than the current PLPMTU.
//= https://www.rfc-editor.org/rfc/rfc8899#section-4.3
//= type=test
//# A DPLPMTUD method MUST NOT rely solely on this method.
#[test]
fn three_timeouts_in_a_row_make_small_segments() {
    let mut peer = Peer::established_with(ETHERNET, TcpOptions::default());
    peer.write(1460);
    peer.expect("P. 1:1461 ack 1");
    let mut sizes = Vec::new();
    while sizes.len() < 5 {
        peer.wait(100);
        let sent = peer.sent();
        if let Some(first) = sent.split(" | ").next().filter(|first| !first.is_empty()) {
            sizes.push(first.split_whitespace().nth(1).unwrap().to_string());
        }
    }
    // A tail loss probe, two timeouts that may be due to loss, then smaller and smaller.
    assert_eq!(sizes, ["1:1461", "1:1461", "1:1461", "1:1025", "1:513"]);
    assert_eq!(peer.host.tcp.counters().black_holes, 2);
}

//= https://www.rfc-editor.org/rfc/rfc8201#section-5.4
//= type=test
//# A packetization layer (e.g., TCP) must use the PMTU for the path(s) in use by a connection; it
//# should not send segments that would result in packets larger than the PMTU, except to probe
//# during PMTU Discovery (this probe packet must not be fragmented to the PMTU).
//= https://www.rfc-editor.org/rfc/rfc8899#section-3
//= type=test
//# If a probe packet contains user data requiring retransmission in case of loss, the PL (or layers
//# above) is REQUIRED to arrange any retransmission and/or repair of any resulting loss.
//= https://www.rfc-editor.org/rfc/rfc8899#section-3
//= type=test
//# The PL is REQUIRED to be robust in the case where probe packets are lost due to other reasons
//# (including link transmission error, congestion).
//= https://www.rfc-editor.org/rfc/rfc8899#section-3
//= type=test
//# Loss of a probe packet SHOULD NOT be treated as an indication of congestion and SHOULD NOT
//# trigger a congestion control reaction [RFC4821] because this could result in unnecessary
//# reduction of the sending rate.
//= https://www.rfc-editor.org/rfc/rfc8899#section-5.3.2
//= type=test
//# Implementations SHOULD select the set of probe packet sizes to maximize the gain in PLPMTU from
//# each search step.
#[test]
fn a_path_that_swallows_large_packets_is_found_out_and_filled() {
    for limit in [1200, 1400] {
        let mut net = Pair::new(1, Faults { delay_ns: MS, ..Faults::default() });
        let (client, server) = net.connected(TcpOptions::default());
        net.reading.push((1, server));
        net.filter = Some(Box::new(move |_, segment| segment.payload.len() > limit));
        let bytes = pattern(3_000_000, 4);
        let now = net.now;
        net.hosts[0].write(now, client, &bytes);
        net.run(60_000 * MS);
        assert_eq!(net.hosts[1].received(server).len(), bytes.len());
        let mss = usize::from(net.hosts[0].tcp.info(client).unwrap().mss);
        assert!((limit - 16..=limit).contains(&mss), "{mss} of {limit}");
        let counters = net.hosts[0].tcp.counters();
        assert!((2..20).contains(&counters.path_mtu_probes), "{}", counters.path_mtu_probes);
    }
}

#[test]
fn of_a_burst_in_segments_that_were_short_enough_nothing_is_lost() {
    let mut board = Scoreboard::default();
    board.on_sent(Range { start: 0, end: 4000 }, 5, Snapshot::default(), 1000);
    assert!(!board.lose_longer_than(1000));
    assert!(board.lose_longer_than(999));
    assert_eq!((board.lost_bytes(), board.found_lost_bytes()), (4000, 4000));
    let mut board = Scoreboard::default();
    board.on_sent(Range { start: 0, end: 700 }, 5, Snapshot::default(), 1000);
    assert!(!board.lose_longer_than(800), "its last segment is a short one");
}

#[test]
fn a_probe_waits_until_nothing_is_to_be_reported() {
    for reports in [false, true] {
        let mut peer = Peer::established_with(ETHERNET, TcpOptions::default());
        let (now, index) = (peer.now, peer.id.index);
        peer.host.tcp.with(now, index, |connection, _| connection.search_always(now, 512, true));
        if reports {
            // The block takes the room that the probe would be too long by.
            peer.send(". 501:601 ack 1");
        }
        peer.write(20_000);
        peer.sent();
        assert_eq!(peer.host.tcp.counters().path_mtu_probes, u64::from(!reports));
    }
}

//= https://www.rfc-editor.org/rfc/rfc8899#section-3
//= type=test
//# 5. PMTU parameters: A DPLPMTUD sender is RECOMMENDED to utilize information about the maximum
//# size of packet that can be transmitted by the sender on the local link (e.g., the local link
//# MTU).
//= https://www.rfc-editor.org/rfc/rfc8899#section-5
//= type=test
//# A PL MUST adjust the MPS indicated by DPLPMTUD to account for any additional overhead introduced
//# by the PL.
#[test]
fn a_search_that_is_always_on_leaves_a_wide_path_its_size() {
    let mut net = Pair::new(1, Faults { delay_ns: MS, ..Faults::default() });
    for host in &mut net.hosts {
        host.tcp.shared.settings.mtu_probing = MtuProbing::Always;
    }
    let (client, server) = net.connected(TcpOptions::default());
    net.reading.push((1, server));
    let bytes = pattern(1_000_000, 4);
    let now = net.now;
    net.hosts[0].write(now, client, &bytes);
    net.run(20_000 * MS);
    assert_eq!(net.hosts[1].received(server).len(), bytes.len());
    let info = net.hosts[0].tcp.info(client).unwrap();
    assert!(info.mss > 1430, "{}", info.mss);
    assert_eq!(net.hosts[0].tcp.counters().retransmits, 0);
}
