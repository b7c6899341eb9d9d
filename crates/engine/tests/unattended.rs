//! Listeners whose program has closed them, while other processes have the kernel's socket.

mod common;

use common::{A, B, Net, Program, at, small};
use outboard_engine::control::exchange::{Command, Shown};
use shm::Status;
use shm::request::{OptionName, Reply, Request};
use stack::api::Instant;

const COOKIE: u64 = 21;

fn show(net: &mut Net, program: &Program) -> u32 {
    let shown = Shown::alone(at(B, 80), COOKIE);
    let (session, beside) = (program.key, Vec::new());
    let listen = Command::Listen { session, serial: 1, context: 0, backlog: 16, shown, beside };
    net.b.command(listen, net.now).unwrap()
}

fn is_connected(program: &Program, endpoint: u32) -> bool {
    program.levels(endpoint).status.contains(Status::CONNECTED)
}

fn has_failed(program: &Program, endpoint: u32) -> bool {
    program.levels(endpoint).status.contains(Status::ERROR)
}

/// Two hosts, a program on each, a listener of the second that other processes have, and a
/// connection that waits there.
fn shared() -> (Net, Program, Program, u32) {
    let limits = small();
    let mut net = Net::new(limits);
    net.b.worker.follow_sockets();
    let (a, parent) = (net.a.attach(&limits), net.b.attach(&limits));
    let listener = show(&mut net, &parent);
    let outlives =
        Request::SetOption { endpoint: listener, option: OptionName::Outlives, value: 1 };
    assert_eq!(net.ask(true, &parent, outlives), Reply::Done);
    let waits = net.connect(&a, 80);
    net.settle();
    assert!(is_connected(&a, waits));
    let closed = net.ask(true, &parent, Request::Close { endpoint: listener });
    assert_eq!(closed, Reply::Done);
    (net, a, parent, waits)
}

#[test]
fn a_child_finds_what_waited_at_the_listener_that_its_parent_has_closed() {
    let (mut net, a, _parent, waits) = shared();
    // Who comes meanwhile is neither refused nor taken, and tries again.
    let comes = net.connect(&a, 80);
    net.pass(500_000_000);
    assert!(!is_connected(&a, comes) && !has_failed(&a, comes));
    let child = net.b.attach(&small());
    let listener = show(&mut net, &child);
    let (_, addresses) = net.accept(&child, listener).expect("it waits still");
    assert_eq!(addresses.local, at(B, 80));
    assert_eq!(addresses.remote.ip(), at(A, 0).ip());
    assert!(is_connected(&a, waits));
    net.pass(2_000_000_000);
    assert!(is_connected(&a, comes));
    net.accept(&child, listener).expect("it has come");
    assert_eq!(net.b.counters.listeners_unattended.read(), 1);
}

#[test]
fn a_listener_that_nobody_comes_for_ends_after_ten_seconds() {
    let (mut net, a, _parent, waits) = shared();
    net.pass(9_900_000_000);
    assert!(is_connected(&a, waits) && !has_failed(&a, waits));
    net.pass(200_000_000);
    assert!(has_failed(&a, waits), "reset");
    let late = net.connect(&a, 80);
    net.settle();
    assert!(has_failed(&a, late), "refused");
}

#[test]
fn a_listener_ends_with_its_kernel_socket() {
    let (mut net, a, _parent, waits) = shared();
    let key = Shown::alone(at(B, 80), COOKIE).key;
    net.b.worker.on_command(Command::RightEnded(key), Instant(net.now));
    net.settle();
    assert!(has_failed(&a, waits));
}

#[test]
fn a_program_that_dies_leaves_its_listeners_to_its_children_for_a_moment() {
    let limits = small();
    let mut net = Net::new(limits);
    net.b.worker.follow_sockets();
    let (a, parent) = (net.a.attach(&limits), net.b.attach(&limits));
    show(&mut net, &parent);
    let waits = net.connect(&a, 80);
    net.settle();
    net.b.worker.on_command(Command::Detach(parent.key), Instant(net.now));
    net.settle();
    let child = net.b.attach(&limits);
    let listener = show(&mut net, &child);
    net.accept(&child, listener).expect("it waits still");
    assert!(!has_failed(&a, waits));
}

#[test]
fn another_socket_at_the_address_of_an_unattended_listener_has_it_at_once() {
    let (mut net, a, _parent, waits) = shared();
    let next = net.b.attach(&small());
    let shown = Shown::alone(at(B, 80), COOKIE + 1);
    let (session, beside) = (next.key, Vec::new());
    let listen = Command::Listen { session, serial: 1, context: 0, backlog: 16, shown, beside };
    let listener = net.b.command(listen, net.now).unwrap();
    net.settle();
    assert!(has_failed(&a, waits), "what waited there was the other's");
    net.connected(&a, &next, listener, 80);
}

#[test]
fn a_listener_keeps_no_sockets_of_workers_that_have_gone() {
    let limits = small();
    let mut net = Net::new(limits);
    let (stays, rolls) = (net.b.attach(&limits), net.b.attach(&limits));
    let (first, last) = (COOKIE, COOKIE + 1100);
    let key = |cookie| Shown::alone(at(B, 80), cookie).key;
    show(&mut net, &stays);
    for cookie in first + 1..=last {
        let shown = Shown::alone(at(B, 80), cookie);
        let (session, beside) = (rolls.key, vec![key(first)]);
        let listen = Command::Listen { session, serial: 1, context: 0, backlog: 16, shown, beside };
        let endpoint = net.b.command(listen, net.now).unwrap();
        if cookie < last {
            assert_eq!(net.ask(true, &rolls, Request::Close { endpoint }), Reply::Done);
        }
    }
    let leave = |cookie| Command::LeaveListener { key: key(cookie), lasting: false };
    net.b.worker.on_command(leave(first + 1), Instant(net.now));
    assert_eq!(net.b.counters.listeners_left.read(), 0, "a socket that is gone");
    net.b.worker.on_command(leave(last), Instant(net.now));
    assert_eq!(net.b.counters.listeners_left.read(), 1);
}
