//! SYN cookies: handshakes when the SYN queue is full.

use super::peer::{Offer, PLAIN, Peer};
use crate::api::*;
use crate::drops::DropReason;

const RICH: Offer =
    Offer { mss: Some(1400), scale: Some(9), sack: true, timestamps: true, window: 1000 };

/// A listener whose SYN queue is full of strangers; the next SYN gets a cookie.
fn flooded(offer: Offer, options: TcpOptions) -> Peer {
    let mut peer = Peer::listening_to(offer, options);
    let honest = peer.remote;
    for port in 6000..6009 {
        peer.remote.set_port(port);
        peer.send("S 0:0");
    }
    peer.sent();
    peer.remote = honest;
    peer
}

impl Peer {
    fn answered_by_a_cookie(offer: Offer, options: TcpOptions) -> Self {
        let mut peer = flooded(offer, options);
        let before = peer.host.ids().count();
        peer.send("S 0:0");
        peer.iss = peer.host_iss();
        assert_eq!(peer.host.tcp.counters().syn_cookies_sent, 1);
        assert_eq!(peer.host.ids().count(), before, "nothing is kept");
        peer
    }

    fn accepts(&mut self) {
        let listener = self.listener.unwrap();
        self.id = self.host.tcp.accept(listener).unwrap().expect("a connection waits").id;
        self.host.tcp.assign(self.id, Owner(2)).unwrap();
        self.state(TcpState::Established);
    }
}

/// The window of a connection that was not kept was told without it.
#[test]
fn a_cookie_tells_no_more_window_than_the_listener_clamps_it_to() {
    let free = Peer::answered_by_a_cookie(RICH, TcpOptions::default());
    let clamped = TcpOptions { window_clamp: 2304, ..TcpOptions::default() };
    let clamped = Peer::answered_by_a_cookie(RICH, clamped);
    assert!(free.last.unwrap().0.window > 2304);
    assert_eq!(clamped.last.unwrap().0.window, 2304);
}

//= https://www.rfc-editor.org/rfc/rfc4987#section-3.6
//= type=test
//# SYN cookies go a step further and allocate no state at all for
//# connections in SYN-RECEIVED.
#[test]
fn a_full_syn_queue_answers_with_a_cookie_that_makes_a_connection() {
    let mut peer = Peer::answered_by_a_cookie(PLAIN, TcpOptions::default());
    let options = peer.last.unwrap().1;
    assert_eq!(options.mss, Some(1460));
    assert!(!options.sack_permitted && options.window_scale.is_none());
    peer.send("P. 1:11 ack 1");
    peer.accepts();
    assert_eq!(peer.received(), 10);
    assert_eq!(peer.info().mss, 536, "the largest of the table that the peer takes");
    assert_eq!(peer.host.tcp.counters().syn_cookies_received, 1);
    peer.write(100);
    assert!(peer.sent().contains("P. 1:101"));
}

#[test]
fn options_come_back_in_the_timestamp() {
    let mut peer = Peer::answered_by_a_cookie(RICH, TcpOptions::default());
    let options = peer.last.unwrap().1;
    assert!(options.sack_permitted && options.window_scale.is_some());
    peer.wait(10);
    peer.sent();
    peer.last.as_mut().unwrap().1 = options;
    peer.send(". 1:1 ack 1 ts 1001");
    peer.accepts();
    let info = peer.info();
    assert!(info.more.sack && info.more.timestamps);
    assert_eq!(info.more.scales.map(|scales| scales.0), Some(9));
    assert_eq!(info.send_window, 1000 << 9);
    assert_eq!(info.mss, 1300 - 12);
}

#[test]
fn ecn_is_agreed_to_with_a_cookie_where_timestamps_can_keep_it() {
    for (offer, agrees) in [(RICH, true), (PLAIN, false)] {
        let mut peer = flooded(offer, TcpOptions::default());
        peer.send("SEW 0:0");
        peer.iss = peer.host_iss();
        let last = peer.last.unwrap();
        assert_eq!(last.0.flags.contains(wire::tcp::TcpFlags::ECE), agrees);
        peer.wait(10);
        peer.sent();
        peer.last = Some(last);
        peer.send(if agrees { ". 1:1 ack 1 ts 1001" } else { ". 1:1 ack 1" });
        peer.accepts();
        assert_eq!(peer.info().more.ecn, agrees);
    }
}

/// A timeout of the SYN is not kept; the first segment tells it again.
#[test]
fn a_cookie_tells_the_user_timeout_and_heeds_that_of_its_answer() {
    let options = TcpOptions { user_timeout_ms: 90_000, ..TcpOptions::default() };
    let mut peer = flooded(RICH, options);
    peer.host.tcp.shared.settings.user_timeout_option = true;
    peer.send("S 0:0 uto 2000");
    peer.iss = peer.host_iss();
    let last = peer.last.unwrap();
    assert_eq!(last.1.user_timeout.map(|timeout| timeout.seconds()), Some(90));
    peer.wait(10);
    peer.sent();
    peer.last = Some(last);
    peer.send(". 1:1 ack 1 ts 1001 uto 3000");
    peer.accepts();
    assert_eq!(peer.info().more.peer_user_timeout_s, Some(3000));
    peer.write(100);
    assert!(peer.sent().contains("P. 1:101 ack 1 uto 90"));
}

#[test]
fn a_cookie_is_forgotten_after_two_minutes() {
    let mut peer = Peer::answered_by_a_cookie(PLAIN, TcpOptions::default());
    peer.wait(121_000);
    peer.sent();
    peer.send_refused(". 1:1 ack 1", DropReason::TcpNoSocket);
    assert!(peer.sent().contains('R'));
}

#[test]
fn a_wrong_cookie_is_answered_by_a_reset_and_counted() {
    let mut peer = Peer::answered_by_a_cookie(PLAIN, TcpOptions::default());
    peer.send_refused(". 1:1 ack 2000", DropReason::TcpNoSocket);
    peer.expect("R 2000:2000");
    assert_eq!(peer.host.tcp.counters().syn_cookies_failed, 1);
}

#[test]
fn without_an_overflow_no_acknowledgement_is_taken_for_a_cookies_answer() {
    let mut peer = Peer::listening(TcpOptions::default());
    peer.send_refused(". 1:1 ack 1", DropReason::TcpNoSocket);
    assert_eq!(peer.host.tcp.counters().syn_cookies_failed, 0);
}

#[test]
fn a_cookies_answer_waits_for_room_in_the_accept_queue() {
    let mut peer = Peer::answered_by_a_cookie(PLAIN, TcpOptions::default());
    let listener = peer.listener.unwrap();
    peer.host.tcp.listeners.listener_mut(listener).unwrap().backlog = 0;
    let (iss, honest) = (peer.iss, peer.remote);
    // A stranger was honest after all, and takes the only place.
    peer.remote.set_port(6000);
    peer.iss = peer.host.tcp.hot.iter().find(|hot| hot.used).unwrap().iss;
    peer.send(". 1:1 ack 1");
    (peer.iss, peer.remote) = (iss, honest);
    peer.send_refused("P. 1:11 ack 1", DropReason::TcpAcceptQueueFull);
    assert!(peer.host.tcp.accept(listener).unwrap().is_some());
    peer.send("P. 1:11 ack 1");
    peer.accepts();
    assert_eq!(peer.received(), 10);
}

#[test]
fn a_cookies_answer_is_not_deferred() {
    let options = TcpOptions { defer_accept: 3, ..TcpOptions::default() };
    let mut peer = Peer::answered_by_a_cookie(PLAIN, options);
    peer.send(". 1:1 ack 1");
    peer.accepts();
}
