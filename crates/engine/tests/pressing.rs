//! Clients that keep the contract's letter and press on its limits: the engine's work and memory
//! stay bounded, and what an honest program may do is no breach.

mod common;

use std::sync::Arc;

use common::{A, B, Net, at, pattern, small};
use outboard_engine::Limits;
use outboard_engine::control::exchange::{Command, Shown, SocketKey};
use outboard_engine::session::LanePipes;
use rustix::io::Errno;
use shm::Status;
use shm::client_side::{Direction, Rung};
use shm::engine_side::EngineEndpoint;
use shm::request::{ConnectOptions, Reply, Request};
use stack::api::Instant;

#[test]
fn a_program_that_reads_no_more_may_go_on_writing() {
    let limits = small();
    let mut net = Net::new(limits);
    let (a, b) = (net.a.attach(&limits), net.b.attach(&limits));
    let listener = net.listen(&b, 80);
    let (near, far) = net.connected(&a, &b, listener, 80);
    // Unread bytes first: where the client stopped and where the engine stopped differ.
    assert_eq!(a.write(near, &pattern(0, 5000)), 5000);
    net.settle();
    assert_eq!(b.read(far, 100).len(), 100);
    assert_eq!(net.ask(true, &b, Request::StopReceiving { endpoint: far }), Reply::Done);
    assert_eq!(a.write(near, &pattern(5000, 3000)), 3000);
    net.settle();
    let bytes = pattern(0, 4000);
    assert_eq!(b.write(far, &bytes), 4000);
    net.settle();
    assert!(net.b.breached.is_empty(), "writing after shutdown(SHUT_RD) is allowed");
    assert_eq!(a.read(near, usize::MAX), bytes);
}

#[test]
fn a_program_that_reads_no_more_keeps_its_session_while_its_peer_goes_on_writing() {
    let limits = small();
    let mut net = Net::new(limits);
    let (a, b) = (net.a.attach(&limits), net.b.attach(&limits));
    let listener = net.listen(&b, 80);
    let (near, far) = net.connected(&a, &b, listener, 80);
    assert_eq!(a.write(near, &pattern(0, 2000)), 2000);
    net.settle();
    assert_eq!(net.ask(true, &b, Request::StopReceiving { endpoint: far }), Reply::Done);
    // What came before may still be read, also after more has come.
    let mut sent = 2000;
    while sent < 300_000 {
        sent += a.write(near, &pattern(sent, 4000));
        net.settle();
        net.pass(10_000_000);
        b.read(far, 100);
        b.write(far, b"x");
        net.settle();
        assert!(net.b.breached.is_empty(), "after {sent} bytes");
    }
    assert!(!a.read(near, usize::MAX).is_empty());
}

#[test]
fn closed_connections_that_still_deliver_are_bounded() {
    let limits = small();
    let mut net = Net::new(limits);
    let (a, b) = (net.a.attach(&limits), net.b.attach(&limits));
    let listener = net.listen(&b, 80);
    for _ in 0..limits.endpoints + 5 {
        net.link.set_up(true);
        let (near, far) = net.connected(&a, &b, listener, 80);
        // Nobody acknowledges what is written from here on.
        net.link.set_up(false);
        assert_eq!(a.write(near, b"never delivered"), 15);
        assert_eq!(net.ask(false, &a, Request::Close { endpoint: near }), Reply::Done);
        net.ask(true, &b, Request::Abort { endpoint: far });
    }
    assert_eq!(net.a.counters.orphans_reset.read(), 5);
}

/// Peers that took nothing more kept their places, and the newcomers' data was lost for it.
#[test]
fn closed_connections_that_get_nowhere_give_way_to_those_that_may() {
    let limits = small();
    let mut net = Net::new(limits);
    let (a, b) = (net.a.attach(&limits), net.b.attach(&limits));
    let listener = net.listen(&b, 80);
    let close_unheard = |net: &mut Net, said: &[u8]| {
        net.link.set_up(true);
        let (near, far) = net.connected(&a, &b, listener, 80);
        net.link.set_up(false);
        assert_eq!(a.write(near, said), said.len());
        assert_eq!(net.ask(false, &a, Request::Close { endpoint: near }), Reply::Done);
        far
    };
    for _ in 0..limits.endpoints {
        let far = close_unheard(&mut net, b"never delivered");
        net.ask(true, &b, Request::Abort { endpoint: far });
    }
    assert_eq!(net.a.counters.orphans_reset.read(), 0);
    // After the tail probes the first timeouts.
    net.pass(1_000_000_000);
    let far = close_unheard(&mut net, b"delivered");
    assert_eq!(net.a.counters.orphans_reset.read(), 1);
    net.link.set_up(true);
    net.pass(2_000_000_000);
    assert_eq!(b.read(far, 100), b"delivered");
    net.a.worker.check_conservation().unwrap();
}

#[test]
fn many_sockets_waiting_for_a_neighbour_are_given_up_together() {
    let limits = small();
    let mut net = Net::new(limits);
    let a = net.a.attach(&limits);
    for socket in 0..20 {
        let endpoint = net.bind_udp(false, &a, 1000 + socket);
        for _ in 0..3 {
            a.send_to(endpoint, at("10.0.0.77", 9), b"to nobody");
        }
        net.turn();
    }
    net.pass(5_000_000_000);
    assert_eq!(net.a.counters.datagrams_tx_failed.read(), 60);
    net.a.worker.check_conservation().unwrap();
}

#[test]
fn one_listener_is_shared_by_a_bounded_number_of_sockets() {
    let limits = outboard_engine::Limits { endpoints: 2048, ..small() };
    let mut net = Net::new(limits);
    let b = net.b.attach(&limits);
    let granted = (0..1100).take_while(|_| net.try_listen(&b, 80).is_ok()).count();
    assert_eq!(granted, 1024);
    assert_eq!(net.b.counters.sharers_exhausted.read(), 1);
}

#[test]
fn a_program_that_ends_has_everything_done_that_it_asked_for() {
    let limits = small();
    let mut net = Net::new(limits);
    let (a, b) = (net.a.attach(&limits), net.b.attach(&limits));
    let listener = net.listen(&b, 80);
    let ends: Vec<(u32, u32)> = (0..30).map(|_| net.connected(&a, &b, listener, 80)).collect();
    for (at, (near, _)) in ends.iter().enumerate() {
        assert_eq!(a.write(*near, &pattern(at, 50)), 50);
        a.post(Request::Close { endpoint: *near });
    }
    net.a.worker.detach(a.key);
    net.settle();
    for (at, (_, far)) in ends.iter().enumerate() {
        assert_eq!(b.read(*far, usize::MAX), pattern(at, 50), "connection {at}");
    }
}

#[test]
fn a_port_belongs_to_nobody_once_the_kernel_socket_behind_it_is_closed() {
    let limits = small();
    let mut net = Net::new(limits);
    let (a, keeps, next) = (net.a.attach(&limits), net.b.attach(&limits), net.b.attach(&limits));
    let show = |session, cookie| Command::Listen {
        session,
        serial: 1,
        context: 0,
        backlog: 16,
        shown: Shown::alone(at(B, 80), cookie),
        beside: Vec::new(),
    };
    let kept = net.b.command(show(keeps.key, 1), net.now).unwrap();
    let datagrams = Command::BindUdp {
        session: keeps.key,
        serial: 1,
        context: 0,
        shown: Shown::alone(at(B, 53), 2),
    };
    net.b.command(datagrams, net.now).unwrap();
    // The program closes its sockets in the kernel and keeps what the engine gave it.
    for cookie in [1, 2] {
        let key = SocketKey { namespace: 0, cookie };
        net.b.worker.on_command(Command::RightEnded(key), Instant(net.now));
    }
    let far = net.b.command(show(next.key, 3), net.now).unwrap();
    let taken = net.bind_udp(true, &next, 53);
    for _ in 0..4 {
        net.connected(&a, &next, far, 80);
    }
    let refused = net.ask(true, &keeps, Request::Accept { listener: kept });
    assert_eq!(refused, Reply::Failed { errno: 9 });
    assert!(keeps.levels(kept).status.contains(Status::HANGUP));
    let sender = net.bind_udp(false, &a, 1000);
    a.send_to(sender, at(B, 53), b"to the new owner");
    net.settle();
    assert_eq!(next.receive_from(taken).unwrap().1, b"to the new owner");
    // What is left of the old ones closes like any other endpoint.
    assert_eq!(net.ask(true, &keeps, Request::Close { endpoint: kept }), Reply::Done);
    net.b.worker.detach(keeps.key);
    net.settle();
    assert_eq!(net.b.gone, [keeps.key]);
}

/// A listener is found by its address. Whoever is not known to listen there with leave of the kernel
/// has no part in it.
#[test]
fn a_listener_is_joined_by_cookie_and_never_by_address() {
    let limits = small();
    let mut net = Net::new(limits);
    let a = net.a.attach(&limits);
    let [stranger, owner, member, child] = [9, 0, 0, 0].map(|uid| net.b.attach_as(uid, &limits));
    let key = |cookie| SocketKey { namespace: 0, cookie };
    let show = |session, cookie, beside: &[u64]| Command::Listen {
        session,
        serial: 1,
        context: 0,
        backlog: 16,
        shown: Shown::alone(at(B, 80), cookie),
        beside: beside.iter().map(|cookie| key(*cookie)).collect(),
    };
    let strange = net.b.command(show(stranger.key, 1, &[]), net.now).unwrap();
    let own = net.b.command(show(owner.key, 2, &[]), net.now).unwrap();
    assert!(stranger.levels(strange).status.contains(Status::HANGUP));
    net.connected(&a, &owner, own, 80);
    let refused = net.ask(true, &stranger, Request::Accept { listener: strange });
    assert_eq!(refused, Reply::Failed { errno: 9 });
    // The same socket in another process, and another one that shares the port.
    let inherited = net.b.command(show(child.key, 2, &[]), net.now).unwrap();
    let shared = net.b.command(show(member.key, 3, &[2]), net.now).unwrap();
    for (session, listener) in [(&child, inherited), (&member, shared), (&owner, own)] {
        net.connected(&a, session, listener, 80);
    }
}

#[test]
fn a_leave_to_connect_ends_with_the_socket_that_gave_it_and_every_use_is_told_to_be_over() {
    let limits = small();
    let mut net = Net::new(limits);
    let (a, b) = (net.a.attach(&limits), net.b.attach(&limits));
    let far = net.listen(&b, 80);
    let key = |cookie| SocketKey { namespace: 0, cookie };
    let authorize = |cookie| Command::BindTcp {
        session: a.key,
        serial: 1,
        shown: Shown::alone(at(A, 900), cookie),
    };
    let connect =
        |token| Request::Connect { remote: at(B, 80), token, options: ConnectOptions::default() };
    let stale = net.a.command(authorize(1), net.now).unwrap();
    let used = net.a.command(authorize(2), net.now).unwrap();
    let kept = net.a.command(authorize(3), net.now).unwrap();
    net.a.worker.on_command(Command::RightEnded(key(1)), Instant(net.now));
    let refused = net.ask(false, &a, connect(stale));
    assert_eq!(
        refused,
        Reply::Failed { errno: Errno::ADDRNOTAVAIL.raw_os_error().cast_unsigned() }
    );
    assert!(matches!(net.ask(false, &a, connect(used)), Reply::Endpoint { .. }));
    assert!(matches!(net.ask(false, &a, connect(used)), Reply::Failed { .. }), "it is used up");
    net.a.worker.detach(a.key);
    net.settle();
    let unused: Vec<u64> = net.a.unused.iter().map(|key| key.cookie).collect();
    assert_eq!(unused, [1, 2, 3]);
    let _ = (far, kept);
}

#[test]
fn a_connection_is_shown_to_a_program_only_when_it_has_buffers_to_accept_it() {
    let limits = small();
    let mut net = Net::new(limits);
    let (a, b) = (net.a.attach(&limits), net.b.attach(&limits));
    let listener = net.listen(&b, 80);
    // Nothing of what is sent is read, until b's pool has no room for one more connection.
    let mut ends = Vec::new();
    loop {
        assert!(ends.len() < 40, "the pool never ends");
        let near = net.connect(&a, 80);
        net.settle();
        let Some((far, _)) = net.accept(&b, listener) else { break };
        ends.push(far);
        a.write(near, &pattern(0, 40_000));
        net.settle();
    }
    assert_eq!(b.levels(listener).pending, 0, "it would be accepted in vain, over and over");
    assert_eq!(net.accept(&b, listener), None);
    b.events();
    for far in &ends {
        while !b.read(*far, usize::MAX).is_empty() {
            net.settle();
        }
    }
    net.pass(3_000_000_000);
    assert!(b.events().contains(&listener), "buffers are back and nobody says so");
    assert_eq!(b.levels(listener).pending, 1);
    assert!(net.accept(&b, listener).is_some());
}

#[test]
fn what_is_left_for_sending_is_shown_to_the_client() {
    let limits = small();
    let mut net = Net::new(limits);
    let (a, b) = (net.a.attach(&limits), net.b.attach(&limits));
    let listener = net.listen(&b, 80);
    let (near, _) = net.connected(&a, &b, listener, 80);
    let before = a.lane.sendable();
    assert!(before > 64 && before < limits.buffers);
    net.link.set_up(false);
    while a.write(near, &pattern(0, 60_000)) > 0 {
        net.turn();
    }
    net.turn();
    assert!(a.lane.sendable() + 32 <= before, "{} of {before}", a.lane.sendable());
}

#[test]
fn writers_that_wait_for_buffers_in_silence_get_them_however_long_it_takes() {
    let limits = small();
    let mut net = Net::new(limits);
    let pipe = || std::io::pipe().unwrap();
    // One lane; what the client would ring and hear by is held here.
    let ((rung, _ring), (_heard, wake)) = (pipe(), pipe());
    let pipes = vec![LanePipes { woken_by_client: rung.into(), wake_client: wake.into() }];
    let a = net.a.attach_with_pipes(&limits, pipes);
    let b = net.b.attach(&limits);
    let listener = net.listen(&b, 80);
    let pairs: Vec<_> = (0..40).map(|_| net.connected(&a, &b, listener, 80)).collect();
    // Nobody acknowledges until the program has no buffer left to write into.
    net.link.set_up(false);
    let block = pattern(0, 64 << 10);
    let mut written = 1;
    while written > 0 {
        written = pairs.iter().map(|(near, _)| a.write(*near, &block)).sum();
        net.settle();
    }
    assert!(net.a.counters.buffers_exhausted.read() > 0, "all are in use");
    assert!(!a.lane.has_stock());
    a.events();
    // Its writers wait; it says nothing for longer than lanes are polled that say nothing.
    net.pass(10 * limits.lane_idle_ns);
    net.a.worker.demote_idle_lanes(Instant(net.now));
    net.link.set_up(true);
    net.pass(5_000_000_000);
    assert!(pairs.iter().any(|(_, far)| !b.read(*far, usize::MAX).is_empty()), "it arrives");
    net.pass(5_000_000_000);
    assert!(a.lane.has_stock(), "what was acknowledged can be written into again");
}

/// Before, the program could send nothing until the peers' connections ended, if they ever did.
#[test]
fn peers_that_take_nothing_are_reset_where_nothing_is_left_to_send_from() {
    let limits = small();
    let mut net = Net::new(limits);
    let (a, b) = (net.a.attach(&Limits { buffers: 4096, ..limits }), net.b.attach(&limits));
    let listener = net.listen(&b, 80);
    let (near, far) = net.connected(&a, &b, listener, 80);
    let stalled: Vec<_> = (0..12).map(|_| net.connected(&a, &b, listener, 80)).collect();
    let written: usize = std::iter::from_fn(|| {
        let now: usize = stalled.iter().map(|(_, far)| b.write(*far, &pattern(0, 4000))).sum();
        // Acknowledgements may be delayed.
        net.pass(300_000_000);
        (now > 0).then_some(now)
    })
    .sum();
    assert!(written > 0 && b.write(far, b"an answer") == 0, "the pool is taken up");
    net.pass(60_000_000_000);
    assert!(net.b.counters.stalled_reset.read() > 0);
    assert!(stalled.iter().any(|(near, _)| a.levels(*near).status.contains(Status::ERROR)));
    assert_eq!(b.write(far, b"an answer"), 9);
    net.settle();
    assert_eq!(a.read(near, 100), b"an answer");
    // Only as many as it takes.
    assert!(net.b.counters.stalled_reset.read() < stalled.len() as u64);
}

/// A program may be slow to close a connection that its peer has reset.
#[test]
fn a_reset_frees_what_was_not_delivered_before_the_program_closes() {
    let limits = small();
    let mut net = Net::new(limits);
    let (a, b) = (net.a.attach(&limits), net.b.attach(&limits));
    let listener = net.listen(&b, 80);
    let (near, far) = net.connected(&a, &b, listener, 80);
    while b.write(far, &pattern(0, 4000)) > 0 {
        net.settle();
    }
    let free = |net: &Net| {
        net.b.worker.copy_counters();
        net.b.counters.buffers_free.read()
    };
    let held = free(&net);
    assert_eq!(net.ask(false, &a, Request::Abort { endpoint: near }), Reply::Done);
    net.settle();
    assert!(b.levels(far).status.contains(Status::ERROR));
    assert!(free(&net) > held + 8, "{} buffers after {held}", free(&net));
}

/// A client waited in the ring for a place, without a look at whether the engine still lives.
#[test]
fn a_full_doorbell_ring_refuses_doorbells() {
    let limits = small();
    let mut net = Net::new(limits);
    let program = net.a.attach(&limits);
    let mut view = EngineEndpoint::new(Arc::clone(&program.region), 0);
    // No turn takes them, as where the engine has died.
    let rung = (0..8 * limits.endpoints).map(|_| {
        view.clear();
        program.lane.ring(0, Direction::Send)
    });
    let refused = rung.filter(|rung| *rung == Rung::Full).count();
    assert!(refused > 0 && refused <= 6 * limits.endpoints as usize, "{refused}");
    net.settle();
    view.clear();
    assert_ne!(program.lane.ring(0, Direction::Send), Rung::Full);
}
