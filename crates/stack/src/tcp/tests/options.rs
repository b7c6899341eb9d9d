//! Options of sockets, with the kernel's meaning.

use super::peer::*;
use crate::api::*;
use crate::drops::DropReason;

#[test]
fn a_listener_that_defers_accepts_with_the_first_data() {
    let options = TcpOptions { defer_accept: 3, ..TcpOptions::default() };
    let mut peer = Peer::syn_received(PLAIN, options);
    let listener = peer.listener.unwrap();
    peer.send_refused(". 1:1 ack 1", DropReason::TcpDeferred);
    assert_eq!(peer.host.tcp.pending(listener), Ok(0));
    // The peer has our SYN and ACK: it is not repeated.
    peer.wait(1500);
    peer.expect("");
    peer.send("P. 1:11 ack 1");
    assert_eq!(peer.host.tcp.pending(listener), Ok(1));
    assert_eq!(peer.host.tcp.counters().accepts_deferred, 1);
}

#[test]
fn a_deferred_handshake_without_data_is_repeated_and_accepted_in_the_end() {
    let options = TcpOptions { defer_accept: 3, ..TcpOptions::default() };
    let mut peer = Peer::syn_received(PLAIN, options);
    let listener = peer.listener.unwrap();
    peer.send(". 1:1 ack 1");
    // 1 + 2 + 4 seconds.
    peer.wait(6900);
    assert_eq!(peer.host.tcp.pending(listener), Ok(0));
    peer.wait(200);
    assert!(peer.sent().ends_with("S. 0:0 ack 1"));
    peer.send(". 1:1 ack 1");
    assert_eq!(peer.host.tcp.pending(listener), Ok(1));
}

#[test]
fn a_closed_connection_waits_for_the_peers_fin_as_long_as_it_is_told() {
    let mut peer = Peer::established();
    peer.set_options(|options| options.linger2_s = 5);
    peer.close();
    peer.expect("F. 1:1 ack 1");
    peer.send(". 1:1 ack 2");
    peer.wait(4900);
    assert!(!peer.is_gone());
    peer.wait(200);
    assert!(peer.is_gone());
    let mut peer = Peer::established();
    peer.set_options(|options| options.linger2_s = -1);
    peer.close();
    peer.expect("F. 1:1 ack 1");
    peer.send(". 1:1 ack 2");
    peer.expect("R 2:2");
    assert!(peer.is_gone());
}

#[test]
fn a_syn_is_repeated_as_often_as_it_is_told() {
    let options = TcpOptions { syn_retries: 1, ..TcpOptions::default() };
    let mut peer = Peer::syn_sent(PLAIN, options);
    // At an even pace, until the time is over that once, and twice the time after it, takes.
    for _ in 0..2 {
        peer.wait(1001);
        peer.expect("S 0:0");
    }
    peer.wait(900);
    peer.expect("");
    assert_eq!(peer.levels().error, None);
    peer.wait(200);
    assert_eq!(peer.levels().error, Some(TcpError::TimedOut));
}

#[test]
fn a_window_is_never_wider_than_its_clamp() {
    let options = TcpOptions { window_clamp: 3000, ..TcpOptions::default() };
    let mut peer = Peer::syn_sent(PLAIN, options);
    assert_eq!(peer.window(), 3000);
    peer.send("S. 0:0 ack 1");
    for round in 0..20 {
        peer.send(&format!(". {}:{} ack 1", 1 + round * 1000, 1001 + round * 1000));
        peer.read();
        peer.sent();
        assert!(peer.window() <= 3000);
    }
    // Of an open connection the window closes to it as it fills.
    let mut peer = Peer::established();
    peer.set_options(|options| options.window_clamp = 2000);
    for round in 0..100 {
        peer.send(&format!(". {}:{} ack 1", 1 + round * 1000, 1001 + round * 1000));
        peer.read();
        peer.sent();
    }
    assert!(peer.window() <= 2000, "{}", peer.window());
}

#[test]
fn asking_for_quick_acknowledgements_sends_the_one_that_waits() {
    let mut peer = Peer::established();
    for round in 0..20 {
        peer.send(&format!("P. {}:{} ack 1", 1 + round * 10, 11 + round * 10));
        peer.sent();
    }
    peer.send("P. 201:211 ack 1");
    peer.expect("");
    peer.quickack(true);
    peer.expect(". 1:1 ack 211");
}

#[test]
fn what_a_connection_shows_of_itself_is_true() {
    let mut peer = Peer::established_with(Offer { scale: Some(7), ..PLAIN }, TcpOptions::default());
    peer.write(3000);
    peer.sent();
    peer.send(". 1:1 ack 1 win 1000 sack 1001:2001");
    let info = peer.info();
    assert_eq!((info.more.outstanding, info.more.sacked, info.more.lost), (3000, 1000, 1000));
    assert!(info.more.is_recovering);
    assert_eq!(info.more.scales, Some((7, 7)));
    assert!(info.more.sack && !info.more.timestamps);
    assert_eq!((info.mtu, info.mss, info.more.advertised_mss), (1500, 1000, 1460));
    peer.wait(2000);
    let info = peer.info();
    assert!(info.more.is_lossy && info.more.retries > 0);
}
