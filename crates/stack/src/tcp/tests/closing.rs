//! Closing: every order of FINs, resets, unread data, linger, TIME-WAIT.

use super::peer::*;
use crate::api::*;
use crate::drops::DropReason;

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.6
//= type=test
//# The user who CLOSEs may continue to RECEIVE
//# until the TCP receiver is told that the remote peer has CLOSED
//# also.
#[test]
fn a_half_closed_connection_goes_on_receiving() {
    let mut peer = Peer::fin_wait_2();
    peer.send("P. 1:101 ack 2");
    assert_eq!(peer.received(), 100);
    peer.send("F. 101:101 ack 2");
    peer.state(TcpState::TimeWait);
    assert!(peer.levels().peer_closed);
}

#[test]
fn simultaneous_closes_meet_in_closing() {
    let mut peer = Peer::closing();
    peer.send(". 2:2 ack 2");
    peer.state(TcpState::TimeWait);
}

#[test]
fn a_fin_that_acknowledges_ours_leads_straight_to_time_wait() {
    let mut peer = Peer::fin_wait_1();
    peer.send("F. 1:1 ack 2");
    peer.expect(". 2:2 ack 2");
    peer.state(TcpState::TimeWait);
}

#[test]
fn the_last_acknowledgement_closes() {
    let mut peer = Peer::last_ack();
    peer.send(". 2:2 ack 2");
    peer.state(TcpState::Closed);
    assert_eq!(peer.levels().error, None);
}

#[test]
fn data_still_flows_from_close_wait() {
    let mut peer = Peer::close_wait();
    peer.write(10);
    peer.expect("P. 1:11 ack 2");
    peer.shutdown();
    peer.expect("F. 11:11 ack 2");
}

#[test]
fn a_fin_rides_on_the_last_data() {
    let mut peer = Peer::established();
    peer.write(10);
    peer.shutdown();
    peer.expect("FP. 1:11 ack 1");
}

#[test]
fn a_fin_out_of_order_waits_for_what_comes_before_it() {
    let mut peer = Peer::established();
    peer.send("F. 11:21 ack 1");
    peer.expect(". 1:1 ack 1 sack 11:22");
    peer.state(TcpState::Established);
    peer.send(". 1:11 ack 1");
    peer.expect(". 1:1 ack 22");
    peer.state(TcpState::CloseWait);
    assert_eq!(peer.received(), 20);
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
//= type=test
//# The only thing that can arrive in this state is a
//# retransmission of the remote FIN.  Acknowledge it, and restart
//# the 2 MSL timeout.
//= https://www.rfc-editor.org/rfc/rfc9293#section-3.6.1
//= type=test
//# When a connection is closed actively, it MUST linger in the TIME-WAIT state for a time 2xMSL
//# (Maximum Segment Lifetime) (MUST-13).
#[test]
fn a_repeated_fin_in_time_wait_is_acknowledged_and_prolongs_it() {
    let mut peer = Peer::time_wait();
    peer.wait(50_000);
    peer.send("F. 1:1 ack 2");
    peer.expect(". 2:2 ack 2");
    peer.wait(50_000);
    assert_eq!(peer.host.tcp.time_waits(), 1);
    peer.wait(71_000);
    assert_eq!(peer.host.tcp.time_waits(), 0);
}

/// As Linux, tried with packetdrill on 6.18: a plain acknowledgement, and one that is answered.
#[test]
fn acknowledgements_in_time_wait_prolong_it() {
    for (sent, answer) in [(". 2:2 ack 2", ""), (". 1:1 ack 2", ". 2:2 ack 2")] {
        let mut peer = Peer::time_wait();
        peer.wait(40_000);
        match answer {
            "" => peer.send_refused(sent, DropReason::TcpClosed),
            _ => peer.send(sent),
        }
        peer.expect(answer);
        peer.wait(30_000);
        assert_eq!(peer.host.tcp.time_waits(), 1, "{sent}");
        peer.wait(31_000);
        assert_eq!(peer.host.tcp.time_waits(), 0, "{sent}");
    }
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.7.4
//= type=test
//# If the RST bit is set, then enter the CLOSED state, delete
//# the TCB, and return.
#[test]
fn a_reset_ends_time_wait_where_it_is_the_next_thing_expected() {
    let mut peer = Peer::time_wait();
    for other in ["R 1:1", "R 3:3"] {
        peer.send_refused(other, DropReason::TcpClosed);
        assert_eq!(peer.host.tcp.time_waits(), 1, "{other}");
    }
    peer.send("R 2:2");
    assert_eq!(peer.host.tcp.time_waits(), 0);
    peer.expect("");
}

#[test]
fn a_newer_syn_takes_a_port_out_of_time_wait() {
    let mut peer = Peer::time_wait();
    peer.send("S 5000:5000");
    let sent = peer.sent();
    assert!(sent.starts_with("S."), "{sent}");
    assert_eq!(peer.host.tcp.time_waits(), 0);
    assert_eq!(peer.host.tcp.counters().time_wait_reuses, 1);
}

/// A reset would end what the peer may still have of the old connection.
#[test]
fn a_newer_syn_in_time_wait_is_acknowledged_where_nobody_listens() {
    let mut peer = Peer::time_wait();
    let listener = peer.listener.take().expect("a listener");
    peer.host.tcp.close(peer.now, listener).expect("it closes");
    peer.send_refused("S 5000:5000", DropReason::TcpNoSocket);
    peer.expect(". 2:2 ack 2");
    assert_eq!(peer.host.tcp.time_waits(), 1);
}

#[test]
fn an_older_syn_in_time_wait_is_only_acknowledged() {
    let mut peer = Peer::time_wait();
    peer.send("S -100:-100");
    peer.expect(". 2:2 ack 2");
    assert_eq!(peer.host.tcp.time_waits(), 1);
}

//= https://www.rfc-editor.org/rfc/rfc1122#section-4.2.2.13
//= type=test
//# if new data is received after CLOSE is called, its TCP
//# SHOULD send a RST to show that data was lost.
#[test]
fn data_after_close_is_reset() {
    let mut peer = Peer::established();
    peer.close();
    peer.expect("F. 1:1 ack 1");
    peer.send("P. 1:11 ack 1");
    peer.expect("R 1:1");
    assert!(peer.is_gone());
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.6.1
//= type=test
//# If such a host issues a CLOSE call while received data is still pending in the TCP connection,
//# or if new data is received after CLOSE is called, its TCP implementation SHOULD send a RST to
//# show that data was lost (SHLD-3).
#[test]
fn unread_data_at_close_is_reset() {
    let mut peer = Peer::established();
    peer.send("P. 1:11 ack 1");
    peer.expect(". 1:1 ack 11");
    peer.close();
    peer.expect("R. 1:1 ack 11");
    assert!(peer.is_gone());
}

#[test]
fn a_linger_time_of_zero_resets() {
    let mut peer = Peer::established();
    peer.set_options(|o| o.linger_s = Some(0));
    peer.close();
    peer.expect("R. 1:1 ack 1");
    assert!(peer.is_gone());
}

#[test]
fn what_a_connection_had_behind_pointers_goes_with_it() {
    let mut peer = Peer::established();
    peer.send(". 501:601 ack 1");
    peer.send(". 501:601 ack 1");
    let index = peer.id.index as usize;
    let cold = &peer.host.tcp.cold[index];
    assert!(cold.duplicate().is_some() && !cold.received.is_empty());
    peer.close();
    peer.send("R 1:1");
    assert!(peer.is_gone());
    let cold = &peer.host.tcp.cold[index];
    assert!(cold.rare.is_none() && cold.received.is_empty());
}

#[test]
fn a_closed_connection_lives_until_its_data_is_delivered() {
    let mut peer = Peer::established();
    peer.write(10);
    peer.close();
    peer.expect("FP. 1:11 ack 1");
    assert_eq!(peer.levels().acked, 0);
    peer.send(". 1:1 ack 12");
    assert_eq!(peer.levels().acked, 10);
    peer.state(TcpState::FinWait2);
    while peer.host.tcp.poll_event().is_some() {}
    peer.send("F. 1:1 ack 12");
    assert!(peer.is_gone());
    assert!(peer.host.tcp.poll_event().is_some_and(|e| e.id == peer.id));
    assert_eq!(peer.host.tcp.time_waits(), 1);
}

#[test]
fn an_orphan_does_not_wait_for_the_peers_fin_for_ever() {
    let mut peer = Peer::established();
    peer.close();
    peer.expect("F. 1:1 ack 1");
    peer.send(". 1:1 ack 2");
    peer.state(TcpState::FinWait2);
    peer.wait(61_000);
    assert!(peer.is_gone());
}

#[test]
fn an_abort_resets_and_the_id_stays_until_closed() {
    let mut peer = Peer::established();
    peer.host.tcp.abort(peer.now, peer.id).unwrap();
    peer.expect("R. 1:1 ack 1");
    assert_eq!(peer.levels().error, Some(TcpError::Aborted));
    peer.close();
    assert!(peer.is_gone());
}

#[test]
fn closing_a_listener_resets_what_waits() {
    let mut peer = Peer::syn_received(PLAIN, TcpOptions::default());
    peer.send(". 1:1 ack 1");
    let listener = peer.listener.unwrap();
    peer.host.tcp.close(peer.now, listener).unwrap();
    peer.expect("R. 1:1 ack 1");
    assert_eq!(peer.host.tcp.pending(listener), Err(RequestError::Stale));
    assert_eq!(peer.host.ids().count(), 0);
    peer.send_refused("S 0:0", DropReason::TcpNoSocket);
}

#[test]
fn closing_a_listener_ends_half_open_connections() {
    let mut peer = Peer::syn_received(PLAIN, TcpOptions::default());
    peer.host.tcp.close(peer.now, peer.listener.unwrap()).unwrap();
    assert_eq!(peer.host.ids().count(), 0);
}

#[test]
fn slots_are_reused_under_new_generations() {
    let mut peer = Peer::established();
    let old = peer.id;
    peer.host.tcp.abort(peer.now, old).unwrap();
    peer.close();
    peer.sent();
    peer.send("S 0:0");
    assert!(peer.is_gone());
    let new = peer.host.ids().last().unwrap();
    assert_eq!(new.index, old.index);
    assert_ne!(new.generation, old.generation);
    assert_eq!(peer.host.tcp.written(peer.now, old, 5, false), Err(RequestError::Stale));
}

#[test]
fn data_that_just_fits_the_window_does_not_wait_for_its_fin() {
    let mut peer = Peer::established();
    peer.send("P. 1:2 ack 1");
    peer.send("P. 2:3 ack 1 win 999");
    peer.sent();
    peer.write(999);
    peer.shutdown();
    peer.expect("P. 1:1000 ack 3");
    peer.send(". 3:3 ack 1000 win 999");
    peer.expect("F. 1000:1000 ack 3");
}

/// A peer whose bytes the program has not read.
fn with_unread(peer: &mut Peer) {
    peer.send("P. 1:101 ack 1");
    peer.expect(". 1:1 ack 101");
}

#[test]
fn a_reset_follows_what_was_written_before_the_close() {
    let mut peer = Peer::established();
    with_unread(&mut peer);
    peer.write(1500);
    peer.close();
    peer.expect(". 1:1001 ack 101 | P. 1001:1501 ack 101 | R. 1501:1501 ack 101");
    assert!(peer.is_gone());
}

#[test]
fn a_reset_does_not_wait_for_what_the_window_does_not_take() {
    let mut peer = Peer::established();
    with_unread(&mut peer);
    peer.send("P. 101:201 ack 1 win 1000");
    peer.sent();
    peer.write(1500);
    peer.close();
    peer.expect(". 1:1001 ack 201 | R. 1001:1001 ack 201");
    assert!(peer.is_gone());
}

#[test]
fn a_reset_does_not_wait_for_what_nagles_algorithm_holds_back() {
    let mut peer = Peer::established();
    with_unread(&mut peer);
    peer.write(100);
    peer.expect("P. 1:101 ack 101");
    peer.write(100);
    peer.close();
    peer.expect("R. 101:101 ack 101");
    assert!(peer.is_gone());
}

#[test]
fn what_a_fin_has_followed_leaves_before_the_reset() {
    let mut peer = Peer::established();
    with_unread(&mut peer);
    peer.write(100);
    peer.shutdown();
    peer.close();
    peer.expect("FP. 1:101 ack 101 | R. 102:102 ack 101");
    assert!(peer.is_gone());
}
