//! Opening: both ways, crossing, options, refusals, queues.

use super::peer::*;
use crate::api::*;
use crate::drops::DropReason;

fn options() -> TcpOptions {
    TcpOptions::default()
}

#[test]
fn a_repeated_syn_is_answered_again_and_is_no_drop() {
    let mut peer = Peer::syn_received(PLAIN, TcpOptions::default());
    peer.send_taken("S 0:0");
    assert!(peer.sent().starts_with("S. 0:0 ack 1"));
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.2
//= type=test
//# <SEQ=ISS><ACK=RCV.NXT><CTL=SYN,ACK>
#[test]
fn a_syn_to_a_listener_is_answered_and_the_connection_queued_when_acknowledged() {
    let mut peer = Peer::listening(options());
    peer.send("S 0:0");
    peer.iss = peer.host_iss();
    peer.expect("");
    let listener = peer.listener.unwrap();
    assert_eq!(peer.host.tcp.pending(listener), Ok(0));
    peer.send(". 1:1 ack 1");
    assert_eq!(peer.host.tcp.pending(listener), Ok(1));
    assert!(peer.host.tcp.poll_event().is_some_and(|e| e.kind == SocketKind::Listener));
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.3
//= type=test
//# form an ACK segment
#[test]
fn a_syn_and_ack_in_syn_sent_establishes_and_is_acknowledged() {
    let mut peer = Peer::syn_sent(PLAIN, options());
    peer.send("S. 0:0 ack 1");
    peer.expect(". 1:1 ack 1");
    peer.state(TcpState::Established);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.5
//= type=test
//# A TCP implementation MUST support simultaneous open attempts
#[test]
fn simultaneous_opens_make_one_connection() {
    let mut peer = Peer::syn_sent(PLAIN, options());
    peer.send("S 0:0");
    peer.expect("S. 0:0 ack 1");
    peer.state(TcpState::SynReceived);
    peer.send("S. 0:0 ack 1");
    peer.expect(". 1:1 ack 1 sack 0:1");
    peer.state(TcpState::Established);
    peer.write(10);
    peer.expect("P. 1:11 ack 1");
}

/// The window of the peer's second SYN was scaled, and more sent than it has room for.
#[test]
fn the_window_of_a_simultaneous_opens_second_syn_is_not_scaled() {
    let offer = Offer { scale: Some(7), window: 2000, ..PLAIN };
    let mut peer = Peer::syn_sent(offer, options());
    peer.send("S 0:0");
    peer.expect("S. 0:0 ack 1");
    peer.send("S. 0:0 ack 1");
    peer.expect(". 1:1 ack 1 sack 0:1");
    peer.write(5000);
    peer.expect(". 1:1001 ack 1 | P. 1001:2001 ack 1");
}

#[test]
fn simultaneous_opens_also_end_with_a_bare_acknowledgement() {
    let mut peer = Peer::syn_sent(PLAIN, options());
    peer.send("S 0:0");
    peer.expect("S. 0:0 ack 1");
    peer.send(". 1:1 ack 1");
    peer.state(TcpState::Established);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.3
//= type=test
//# If SEG.ACK =< ISS or SEG.ACK > SND.NXT, send a reset
#[test]
fn an_acknowledgement_of_another_syn_is_reset() {
    let mut peer = Peer::syn_sent(PLAIN, options());
    peer.send_refused("S. 0:0 ack 77", DropReason::TcpBadAck);
    peer.expect("R 77:77");
    peer.state(TcpState::SynSent);
}

#[test]
fn a_refused_connection_says_so() {
    let mut peer = Peer::syn_sent(PLAIN, options());
    peer.send("R. 0:0 ack 1");
    assert_eq!(peer.levels().error, Some(TcpError::Refused));
    peer.state(TcpState::Closed);
}

#[test]
fn a_blind_reset_does_not_end_an_attempt() {
    let mut peer = Peer::syn_sent(PLAIN, options());
    peer.send("R 0:0");
    peer.send("R. 0:0 ack 5");
    peer.state(TcpState::SynSent);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.1
//= type=test
//# <SEQ=0><ACK=SEG.SEQ+SEG.LEN><CTL=RST,ACK>
#[test]
fn a_syn_to_a_port_nobody_listens_on_is_reset() {
    let mut peer = Peer::listening(options());
    peer.local.set_port(81);
    peer.send_refused("S 0:0", DropReason::TcpNoSocket);
    assert!(peer.sent().starts_with("R."));
    let (header, _) = peer.last.unwrap();
    assert_eq!(header.seq.0, 0);
    peer.send_refused("R 0:0", DropReason::TcpNoSocket);
    peer.expect("");
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.2
//= type=test
//# Any acknowledgment is bad if it arrives on a connection still in the
//# LISTEN state.
#[test]
fn an_acknowledgement_to_a_listener_is_reset() {
    let mut peer = Peer::listening(options());
    peer.send_refused(". 5:5 ack 100", DropReason::TcpNoSocket);
    peer.expect("R 100:100");
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.1
//= type=test
//# TCP implementations SHOULD send an MSS Option in every SYN segment when its receive MSS differs
//# from the default 536 for IPv4 or 1220 for IPv6 (SHLD-5), and MAY send it always (MAY-3).
//= https://www.rfc-editor.org/rfc/rfc7323#section-2.3
//= type=test
//# If a TCP receives a <SYN> segment containing a Window Scale option, it SHOULD send its own
//# Window Scale option in the <SYN,ACK> segment.
//= https://www.rfc-editor.org/rfc/rfc7323#section-2.3
//= type=test
//# The Window Scale option MUST be sent with shift.cnt = R, where R is the value that the TCP would
//# like to use for its receive window.
#[test]
fn the_offer_of_the_syn_and_ack_is_what_the_peer_understands() {
    let all = Offer { scale: Some(7), timestamps: true, ..PLAIN };
    let mut peer = Peer::syn_received(all, options());
    let (_, offered) = peer.last.unwrap();
    assert_eq!(offered.mss, Some(1460));
    assert_eq!(offered.window_scale, Some(7));
    assert!(offered.sack_permitted);
    assert_eq!(offered.timestamps.map(|t| t.echo), Some(1000));
    let none = Offer { mss: None, sack: false, ..PLAIN };
    peer = Peer::syn_received(none, options());
    let (_, offered) = peer.last.unwrap();
    assert_eq!(offered.window_scale, None);
    assert!(!offered.sack_permitted);
    assert_eq!(offered.timestamps, None);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.1
//= type=test
//# If an MSS Option is not received at connection setup, TCP
//# implementations MUST assume a default send MSS of 536 (576 - 40) for
//# IPv4 or 1220 (1280 - 60) for IPv6 (MUST-15).
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.2
//= type=test
//# This field may be sent in the initial connection request (i.e., in segments with the SYN control
//# bit set) and MUST NOT be sent in other segments (MUST-65)
#[test]
fn without_an_mss_option_segments_carry_536_bytes() {
    let mut peer = Peer::established_with(Offer { mss: None, ..PLAIN }, options());
    peer.write(1000);
    peer.expect(". 1:537 ack 1 | P. 537:1001 ack 1");
    assert_eq!(peer.last.unwrap().1.mss, None, "only SYNs tell a size");
}

//= https://www.rfc-editor.org/rfc/rfc7323#section-2.2
//= type=test
//# The window field in a segment where the SYN bit is set (i.e., a <SYN> or <SYN,ACK>) MUST NOT be
//# scaled.
//= https://www.rfc-editor.org/rfc/rfc7323#section-2.3
//= type=test
//# Upon receiving a <SYN> segment with a Window Scale option containing shift.cnt = S, a TCP MUST
//# set Snd.Wind.Shift to S and MUST set Rcv.Wind.Shift to R
//= https://www.rfc-editor.org/rfc/rfc7323#section-2.3
//= type=test
//# The window field (SEG.WND) in the header of every incoming segment, with the exception of <SYN>
//# segments, MUST be left-shifted by Snd.Wind.Shift bits before updating SND.WND:
#[test]
fn the_window_of_a_syn_is_not_scaled_and_later_ones_are() {
    let small = Offer { scale: Some(4), window: 100, ..PLAIN };
    let mut peer = Peer::syn_received(small, options());
    peer.send(". 1:1 ack 1");
    let listener = peer.listener.unwrap();
    peer.id = peer.host.tcp.accept(listener).unwrap().unwrap().id;
    assert_eq!(peer.info().send_window, 1600);
}

#[test]
fn a_lost_syn_and_ack_is_sent_again_when_the_syn_is_repeated() {
    let mut peer = Peer::syn_received(PLAIN, options());
    peer.send("S 0:0");
    peer.expect("S. 0:0 ack 1");
}

#[test]
fn a_full_accept_queue_drops_syns_and_leaves_handshakes_unfinished() {
    let mut peer = Peer::listening(options());
    peer.set_backlog(0);
    peer.send("S 0:0");
    peer.iss = peer.host_iss();
    peer.send(". 1:1 ack 1");
    peer.remote.set_port(5001);
    peer.send_refused("S 0:0", DropReason::TcpAcceptQueueFull);
    peer.expect("");
}

#[test]
fn half_open_connections_are_limited_by_the_backlog() {
    let mut peer = Peer::listening(options());
    peer.host.tcp.shared.settings.syn_cookies = false;
    for port in 0..9 {
        peer.remote.set_port(6000 + port);
        peer.send("S 0:0");
    }
    peer.remote.set_port(7000);
    peer.send_refused("S 0:0", DropReason::TcpSynQueueFull);
    peer.sent();
    // They give up after 1 + 2 + 4 + 8 + 16 + 32 seconds, and there is room again.
    peer.wait(64_000);
    peer.sent();
    peer.send("S 0:0");
    assert!(peer.sent().starts_with("S."));
}

#[test]
fn data_on_the_handshakes_last_acknowledgement_is_taken() {
    let mut peer = Peer::syn_received(PLAIN, options());
    peer.send("P. 1:11 ack 1");
    let listener = peer.listener.unwrap();
    peer.id = peer.host.tcp.accept(listener).unwrap().unwrap().id;
    assert_eq!(peer.received(), 10);
}

#[test]
fn a_reset_in_syn_received_leaves_the_listener_alone() {
    let mut peer = Peer::syn_received(PLAIN, options());
    peer.send("R 1:1");
    peer.send("S 0:0");
    assert!(peer.sent().starts_with("S."));
}

#[test]
fn ephemeral_ports_differ_between_connections_and_lie_in_the_range() {
    let mut peer = Peer::listening(options());
    let route = peer.host.routes.lookup(peer.remote.ip()).unwrap();
    let mut ports = std::collections::HashSet::new();
    for _ in 0..100 {
        let connect = |p: &mut Peer| {
            p.host.tcp.connect(
                p.now,
                &route,
                TcpConnect {
                    remote: p.remote,
                    local: None,
                    options: TcpOptions::default(),
                    owner: Owner(1),
                },
            )
        };
        let id = connect(&mut peer).unwrap();
        let local = peer.host.tcp.info(id).unwrap().local;
        assert!(local.port() >= 49152);
        assert!(ports.insert(local.port()));
    }
}

/// Connections that were opened one after the other hold a row of ports. Behind it others are free.
#[test]
fn a_long_row_of_taken_ports_is_passed_by() {
    let mut peer = Peer::listening(options());
    let limits = crate::Limits { connections: 6000, ..crate::Limits::default() };
    let keys = super::keys(1);
    peer.host.tcp = crate::tcp::Tcp::new(&keys, &limits, crate::tcp::TcpSettings::default());
    peer.host.tcp.ports = (10_000, 19_999);
    let route = peer.host.routes.lookup(peer.remote.ip()).unwrap();
    let connect = |p: &mut Peer| {
        p.host.tcp.connect(
            p.now,
            &route,
            TcpConnect {
                remote: p.remote,
                local: None,
                options: TcpOptions::default(),
                owner: Owner(1),
            },
        )
    };
    for _ in 0..5000 {
        connect(&mut peer).unwrap();
    }
    // As after a time round.
    peer.host.tcp.next_port = 0;
    connect(&mut peer).unwrap();
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.9.1.1
//= type=test
//# OPEN call that will functionally allow an application to LISTEN on a port while a connection
//# block with the same local port is in SYN-SENT or SYN-RECEIVED state (MUST-42)
#[test]
fn a_port_can_be_listened_on_while_a_connection_from_it_is_opened() {
    let mut peer = Peer::syn_sent(PLAIN, options());
    let (local, crossing) = (peer.local, "S 0:0");
    peer.host.tcp.listen(local, 8, options(), Owner(2)).unwrap();
    peer.state(TcpState::SynSent);
    peer.send(crossing);
    peer.state(TcpState::SynReceived);
    peer.expect("S. 0:0 ack 1");
}

#[test]
fn closing_during_the_handshake_waits_for_its_end() {
    let mut peer = Peer::syn_sent(PLAIN, options());
    peer.write(5);
    peer.shutdown();
    peer.send("S. 0:0 ack 1");
    peer.expect("FP. 1:6 ack 1");
    peer.state(TcpState::FinWait1);
}

#[test]
fn a_stack_without_timestamps_neither_offers_nor_accepts_them() {
    let offer = Offer { timestamps: true, ..PLAIN };
    let mut peer = Peer::listening_to(offer, TcpOptions::default());
    peer.host.tcp.shared.settings.timestamps = false;
    peer.send("S 0:0");
    peer.host_iss();
    assert!(peer.last.unwrap().1.timestamps.is_none());
    let route = peer.host.routes.lookup(peer.remote.ip()).unwrap();
    let options = TcpOptions::default();
    peer.host
        .tcp
        .connect(
            peer.now,
            &route,
            TcpConnect { remote: peer.remote, local: None, options, owner: Owner(2) },
        )
        .unwrap();
    assert!(peer.sent().starts_with('S'));
    assert!(peer.last.unwrap().1.timestamps.is_none());
}
