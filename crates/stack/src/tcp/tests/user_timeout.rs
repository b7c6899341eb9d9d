//! The User Timeout Option (RFC 5482).

use super::peer::*;
use crate::api::*;
use crate::tcp::TcpSettings;

/// What a connection has that nobody has told anything else: 924.6 s, of which whole seconds are told.
const USUAL: &str = "uto 925";

fn settings() -> TcpSettings {
    TcpSettings { user_timeout_option: true, ..TcpSettings::default() }
}

/// A connection that has come with `syn`, accepted; beside it our answer to that.
fn answered(settings: TcpSettings, options: TcpOptions, syn: &str) -> (Peer, String) {
    let mut peer = Peer::listening(options);
    peer.host.tcp.shared.settings = settings;
    peer.send(syn);
    let answer = peer.learn_iss();
    (peer.accepted(), answer)
}

/// One that has told what there is to tell, to a peer that has told `seconds`.
fn told(seconds: u32) -> Peer {
    told_with(settings(), TcpOptions::default(), seconds)
}

fn told_with(settings: TcpSettings, options: TcpOptions, seconds: u32) -> Peer {
    let (mut peer, _) = answered(settings, options, &format!("S 0:0 uto {seconds}"));
    peer.send("P. 1:11 ack 1");
    peer.wait(50);
    assert!(peer.sent().contains(" uto "));
    peer
}

/// Writes 100 bytes, which the peer acknowledges; what was sent.
fn say(peer: &mut Peer) -> String {
    peer.write(100);
    let sent = peer.sent();
    let levels = peer.levels();
    peer.send(&format!(". {0}:{0} ack {1}", levels.readable + 1, levels.sent + 1));
    sent
}

/// Milliseconds until the connection has ended, looked at twice a second.
fn milliseconds_alive(peer: &mut Peer, most: u64) -> Option<u64> {
    let begun = peer.now.0;
    while peer.now.0 < begun + most * 1_000_000 {
        if peer.is_gone() || peer.levels().state == TcpState::Closed {
            return Some((peer.now.0 - begun) / 1_000_000);
        }
        peer.wait(500);
        peer.sent();
    }
    None
}

/// Of a connection whose data nobody acknowledges.
#[track_caller]
fn ends_after_seconds(peer: &mut Peer, seconds: u64) {
    peer.write(100);
    peer.sent();
    let ms = milliseconds_alive(peer, 40_000_000).expect("an end");
    assert!(ms.abs_diff(seconds * 1000) <= 1000, "{ms}");
}

//= https://www.rfc-editor.org/rfc/rfc5482#section-3
//= type=test
//# A TCP implementation that does not support the UTO option MUST silently ignore it [RFC1122],
//# thus ensuring interoperability.
#[test]
fn by_default_timeouts_are_neither_told_nor_heeded() {
    let (mut peer, answer) =
        answered(TcpSettings::default(), TcpOptions::default(), "S 0:0 uto 2000");
    assert_eq!(answer, "S. 0:0 ack 1");
    peer.set_options(|options| options.user_timeout_ms = 40_000);
    peer.set_options(|options| options.user_timeout_ms = 0);
    peer.send("P. 1:11 ack 1 uto 3000");
    peer.write(100);
    peer.expect("P. 1:101 ack 11");
    let info = peer.info().more;
    assert_eq!((info.user_timeout_ns, info.peer_user_timeout_s), (None, None));
    let counters = peer.host.tcp.counters();
    assert_eq!((counters.user_timeouts_sent, counters.user_timeouts_received), (0, 0));
}

//= https://www.rfc-editor.org/rfc/rfc5482#section-3
//= type=test
//# In addition to exchanging UTO options in the SYN segments, a connection that has enabled UTO
//# options SHOULD include a UTO option in the first packet that does not have the SYN flag set.
#[test]
fn the_usual_patience_is_told_with_the_syn_and_with_the_first_segment_after_it() {
    let (mut peer, answer) = answered(settings(), TcpOptions::default(), "S 0:0");
    assert_eq!(answer, format!("S. 0:0 ack 1 {USUAL}"));
    assert_eq!(say(&mut peer), format!("P. 1:101 ack 1 {USUAL}"));
    assert_eq!(say(&mut peer), "P. 101:201 ack 1");
    let (mut peer, syn) = Peer::asking(settings(), TcpOptions::default());
    assert_eq!(syn, format!("S 0:0 {USUAL}"));
    peer.send("S. 0:0 ack 1");
    peer.expect(&format!(". 1:1 ack 1 {USUAL}"));
    peer.write(100);
    peer.expect("P. 1:101 ack 1");
    assert_eq!(peer.host.tcp.counters().user_timeouts_sent, 2);
}

/// So that it gets through where unknown options do not.
#[test]
fn a_syn_that_is_sent_again_tells_none() {
    let (mut peer, _) = Peer::asking(settings(), TcpOptions::default());
    peer.wait(1001);
    peer.expect("S 0:0");
    peer.send("S. 0:0 ack 1");
    peer.expect(&format!(". 1:1 ack 1 {USUAL}"));
}

//= https://www.rfc-editor.org/rfc/rfc5482#section-3
//= type=test
//# A host that supports the UTO option SHOULD include one in the next possible outgoing segment
//# whenever it starts using a new user timeout for the connection.
#[test]
fn a_new_timeout_is_told_with_the_next_segment_once() {
    let options = TcpOptions { user_timeout_ms: 90_500, ..TcpOptions::default() };
    let (mut peer, answer) = answered(settings(), options, "S 0:0");
    // The listener's, in whole seconds.
    assert_eq!(answer, "S. 0:0 ack 1 uto 91");
    assert_eq!(say(&mut peer), "P. 1:101 ack 1 uto 91");
    peer.set_options(|options| options.user_timeout_ms = 40_000_000);
    peer.expect("");
    // Minutes, rounded up.
    assert_eq!(say(&mut peer), "P. 101:201 ack 1 uto 40020");
    peer.set_options(|options| (options.user_timeout_ms, options.nodelay) = (40_000_000, true));
    assert_eq!(say(&mut peer), "P. 201:301 ack 1");
    peer.set_options(|_| {});
    assert_eq!(say(&mut peer), format!("P. 301:401 ack 1 {USUAL}"));
}

#[test]
fn a_timeout_that_is_taken_over_from_the_peer_is_answered_once() {
    let mut peer = told(1);
    // Longer than usual: USER_TIMEOUT is another one now.
    peer.send("P. 11:21 ack 1 uto 2000");
    assert_eq!(say(&mut peer), format!("P. 1:101 ack 21 {USUAL}"));
    peer.send("P. 21:31 ack 101 uto 2000");
    assert_eq!(say(&mut peer), "P. 101:201 ack 31");
    // Shorter than usual: it is as it was at first.
    peer.send("P. 31:41 ack 201 uto 30");
    assert_eq!(say(&mut peer), format!("P. 201:301 ack 41 {USUAL}"));
}

//= https://www.rfc-editor.org/rfc/rfc5482#section-3.1
//= type=test
//# In general, unless the application on the local host has requested a
//# specific USER TIMEOUT for the connection, CHANGEABLE will be true and
//# hosts SHOULD adjust the local TCP USER TIMEOUT (USER_TIMEOUT) in
//# response to receiving a UTO option, as described in the remainder of
//# this section.
//= https://www.rfc-editor.org/rfc/rfc5482#section-3.1
//= type=test
//# Under the RECOMMENDED scheme, and when CHANGEABLE is true, each end
//# SHOULD compute the local USER TIMEOUT for a connection according to
//# this formula:
//#
//# USER_TIMEOUT = min(U_LIMIT, max(ADV_UTO, REMOTE_UTO, L_LIMIT))
//= https://www.rfc-editor.org/rfc/rfc5482#section-3.1
//= type=test
//# The RECOMMENDED formula results in the maximum of the two advertised
//# values, adjusted for the configured upper and lower limits, to be
//# adopted for the user timeout of the connection on both ends.
#[test]
fn a_peers_longer_timeout_makes_the_patience_longer() {
    let mut peer = told(2000);
    ends_after_seconds(&mut peer, 2000);
    assert_eq!(peer.levels().error, Some(TcpError::TimedOut));
    // The last that it has told is what counts.
    let mut peer = told(3000);
    peer.send("P. 11:21 ack 1 uto 1500");
    ends_after_seconds(&mut peer, 1500);
}

/// Also one that its program has closed, and for longer than usual then.
#[test]
fn a_closed_connection_waits_as_long_as_its_peer_has_told() {
    let mut peer = told(2000);
    peer.read();
    peer.write(100);
    peer.close();
    peer.expect("FP. 1:101 ack 11");
    let ms = milliseconds_alive(&mut peer, 40_000_000);
    assert!(ms.is_some_and(|ms| ms.abs_diff(2_000_000) <= 1000), "{ms:?}");
}

//= https://www.rfc-editor.org/rfc/rfc5482#section-3.1
//= type=test
//# Consequently, the lower limit (L_LIMIT) SHOULD be set to at least 100 seconds when following the
//# RECOMMENDED scheme described in this section.
#[test]
fn a_peers_shorter_timeout_makes_none_shorter() {
    ends_after_seconds(&mut told(1), 925);
    // Of timeouts of a second at the most there are 15 within 15 seconds.
    let hasty = TcpOptions { rto_max_ms: 1000, ..TcpOptions::default() };
    let (mut peer, answer) = answered(settings(), hasty, "S 0:0");
    assert_eq!(answer, "S. 0:0 ack 1 uto 15");
    ends_after_seconds(&mut peer, 15);
    ends_after_seconds(&mut told_with(settings(), hasty, 1), 100);
}

//= https://www.rfc-editor.org/rfc/rfc5482#section-3.1
//= type=test
//# Therefore, the lower limit (L_LIMIT) MUST be larger than the current retransmission timeout
//# (RTO) for the connection.
#[test]
fn an_adopted_timeout_is_always_longer_than_the_retransmission_timeout() {
    let mut peer = told(1);
    peer.write(100);
    let mut longest = 0;
    for _ in 0..900 {
        peer.wait(1000);
        peer.sent();
        let info = peer.info();
        longest = longest.max(info.rto_ns);
        assert!(info.more.user_timeout_ns.is_some_and(|user| user > info.rto_ns));
    }
    assert_eq!(longest, 120_000_000_000);
}

//= https://www.rfc-editor.org/rfc/rfc5482#section-3
//= type=test
//# Hosts MUST impose upper and lower limits on the user timeouts they use for a connection.
//= https://www.rfc-editor.org/rfc/rfc5482#section-3.1
//= type=test
//# To protect against these effects, implementations MUST impose limits on the user timeout
//# values they accept and use.
//= https://www.rfc-editor.org/rfc/rfc5482#section-3.1
//= type=test
//# The remainder of this section describes a RECOMMENDED scheme to limit TCP's USER
//# TIMEOUT based on upper and lower limits.
#[test]
fn a_peer_gets_no_more_patience_than_the_limit() {
    ends_after_seconds(&mut told(1_000_000), 3600);
    for (user_timeout_max_s, seconds) in [(1000, 1000), (10, 925)] {
        let settings = TcpSettings { user_timeout_max_s, ..settings() };
        let mut peer = told_with(settings, TcpOptions::default(), 1_000_000);
        assert_eq!(peer.info().more.peer_user_timeout_s, Some(1_000_020));
        ends_after_seconds(&mut peer, seconds);
    }
}

//= https://www.rfc-editor.org/rfc/rfc5482#section-3
//= type=test
//# If an application explicitly sets the USER_TIMEOUT, CHANGEABLE MUST become false in order to
//# prevent UTO options (from the other end) from overriding local application requests.
//= https://www.rfc-editor.org/rfc/rfc5482#section-3.1
//= type=test
//# If the CHANGEABLE flag is false, USER_TIMEOUT MUST NOT be changed, regardless of the
//# received UTO option.
#[test]
fn a_program_that_has_set_its_timeout_keeps_it() {
    let own = TcpOptions { user_timeout_ms: 30_000, ..TcpOptions::default() };
    let mut peer = told_with(settings(), own, 2000);
    peer.send("P. 11:21 ack 1 uto 3000");
    let info = peer.info().more;
    assert_eq!(info.user_timeout_ns, Some(30_000_000_000));
    assert_eq!(info.peer_user_timeout_s, Some(3000));
    ends_after_seconds(&mut peer, 30);
    // What it has not set any more the peer may change, also with what it has told before.
    let mut peer = told_with(settings(), own, 2000);
    peer.set_options(|options| options.user_timeout_ms = 0);
    ends_after_seconds(&mut peer, 2000);
}

//= https://www.rfc-editor.org/rfc/rfc5482#section-3.3
//= type=test
//# Connections in other states MUST use the default timeout values defined in [RFC0793] and
//# [RFC1122].
#[test]
fn a_handshake_has_its_usual_patience() {
    let lives = |syn: &str| {
        let mut peer = Peer::listening(TcpOptions::default());
        peer.host.tcp.shared.settings = settings();
        peer.send(syn);
        let count = peer.host.ids().count();
        (0..1000).find(|_| {
            peer.wait(500);
            peer.sent();
            peer.host.ids().count() < count
        })
    };
    let usual = lives("S 0:0");
    assert!(usual.is_some());
    assert_eq!(lives("S 0:0 uto 3000"), usual);
}

/// A path may swallow segments with options that it does not know.
//= https://www.rfc-editor.org/rfc/rfc5482#section-3.2
//= type=test
//# Consequently, implementations MUST NOT assume that UTO options are transmitted reliably.
#[test]
fn what_is_sent_again_tells_a_timeout_only_if_it_is_new() {
    let (mut peer, _) = answered(settings(), TcpOptions::default(), "S 0:0");
    peer.write(1000);
    peer.expect(&format!(". 1:997 ack 1 {USUAL} | P. 997:1001 ack 1"));
    peer.wait(300);
    assert!(!peer.sent().contains("uto"));
    peer.set_options(|options| options.user_timeout_ms = 3_000_000);
    peer.wait(1000);
    let again = peer.sent();
    assert!(again.starts_with(". 1:997 ack 1 uto 3000"), "{again}");
    assert_eq!(again.matches("uto").count(), 1);
    peer.send(". 1:1 ack 1001");
    assert_eq!(peer.levels().acked_all, 1000);
}

#[test]
fn it_waits_where_blocks_take_all_the_room() {
    let offer = Offer { timestamps: true, ..PLAIN };
    let mut peer = Peer::listening_to(offer, TcpOptions::default());
    peer.host.tcp.shared.settings = settings();
    peer.send("S 0:0");
    peer.learn_iss();
    peer.send(". 1:1 ack 1 ts 1001");
    peer.id = peer.host.tcp.accept(peer.listener.unwrap()).unwrap().expect("accepted").id;
    peer.send(". 1001:1101 ack 1 ts 1002");
    peer.expect(&format!(". 1:1 ack 1 sack 1001:1101 {USUAL}"));
    peer.set_options(|options| options.user_timeout_ms = 40_000);
    peer.send(". 2001:2101 ack 1 ts 1002");
    peer.set_options(|options| options.user_timeout_ms = 50_000);
    peer.expect(". 1:1 ack 1 sack 2001:2101 1001:1101 uto 50");
    peer.set_options(|options| options.user_timeout_ms = 60_000);
    peer.send(". 3001:3101 ack 1 ts 1002");
    peer.expect(". 1:1 ack 1 sack 3001:3101 2001:2101 1001:1101");
    peer.send(". 1:1001 ack 1 ts 1002");
    peer.expect(". 1:1 ack 1101 sack 3001:3101 2001:2101 uto 60");
}

#[test]
fn of_a_large_frame_only_the_first_segment_tells_it() {
    let mut peer = Peer::distant_with_large_frames_and(settings());
    peer.write(8000);
    let sent = peer.sent();
    assert!(sent.starts_with(&format!(". 1:997 ack 1 {USUAL} | ")), "{sent}");
    assert_eq!(sent.matches("uto").count(), 1);
    // Large ones follow it.
    assert!(sent.matches(" | ").count() < 6, "{sent}");
    peer.send(". 1:1 ack 8001");
    assert_eq!(peer.levels().acked_all, 8000);
}

/// Or the segment behind it, a small one, would wait for it to be acknowledged.
#[test]
fn a_segment_that_is_full_but_for_the_option_is_no_small_one() {
    let (mut peer, _) = answered(settings(), TcpOptions::default(), "S 0:0");
    peer.write(1096);
    peer.expect(&format!(". 1:997 ack 1 {USUAL} | P. 997:1097 ack 1"));
}

//= https://www.rfc-editor.org/rfc/rfc5482#section-4.2
//= type=test
//# Therefore, if a connection that enables keep-alives is also using the
//# TCP User Timeout Option, then the keep-alive timer MUST be set to a
//# value larger than that of the adopted USER TIMEOUT.
#[test]
fn keepalives_begin_after_the_adopted_timeout() {
    let alive = TcpOptions { keepalive: true, keepidle_s: 10, ..TcpOptions::default() };
    let own = TcpOptions { user_timeout_ms: 30_000, ..alive };
    for (settings, options, seconds) in [
        (settings(), alive, 2001),
        (settings(), own, 31),
        (TcpSettings::default(), alive, 10),
        (TcpSettings::default(), own, 10),
    ] {
        let (mut peer, _) = answered(settings, options, "S 0:0 uto 2000");
        peer.send("P. 1:11 ack 1");
        let begun = peer.now.0;
        peer.wait(50);
        peer.sent();
        while peer.host.tcp.counters().keepalive_probes == 0 {
            peer.wait(50);
        }
        let ms = (peer.now.0 - begun) / 1_000_000;
        assert!(ms.abs_diff(seconds * 1000) <= 200, "{ms} for {seconds}");
    }
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.8.6.1
//= type=test
//# As long as the receiving TCP peer continues to send acknowledgments in response to the
//# probe segments, the sending TCP peer MUST allow the connection to stay open (MUST-37).
#[test]
fn a_shut_window_is_waited_for_while_the_peer_answers_and_then_as_long_as_it_has_told() {
    let mut peer = told(2000);
    peer.send(". 11:11 ack 1 win 0");
    peer.write(100);
    for _ in 0..4000 {
        peer.wait(1000);
        if !peer.sent().is_empty() {
            peer.send(". 11:11 ack 1 win 0");
        }
    }
    peer.state(TcpState::Established);
    // It answers no more; the last time was two minutes ago at the most.
    let ms = milliseconds_alive(&mut peer, 40_000_000).expect("an end");
    assert!((1_880_000..=2_001_000).contains(&ms), "{ms}");
}

#[test]
fn what_was_told_outlasts_an_export() {
    let mut peer = told(2000);
    let before = peer.info().more;
    let bytes = postcard::to_stdvec(&peer.host.tcp).unwrap();
    peer.host.tcp = postcard::from_bytes(&bytes).unwrap();
    let after = peer.info().more;
    assert_eq!(after.user_timeout_ns, Some(2_000_000_000_000));
    assert_eq!(after.user_timeout_ns, before.user_timeout_ns);
    peer.write(100);
    peer.expect("P. 1:101 ack 11");
    ends_after_seconds(&mut peer, 2000);
}
