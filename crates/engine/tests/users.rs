//! What the programs of one user may take together.

mod common;

use common::{Net, small};
use outboard_engine::Limits;
use outboard_engine::control::exchange::Command;
use rustix::io::Errno;
use stack::api::Instant;

#[test]
fn the_programs_of_a_user_share_its_endpoints_and_root_is_excepted() {
    let limits = Limits { endpoints_per_user: 3, ..small() };
    let mut net = Net::new(limits);
    let [first, second, other] = [7, 7, 8].map(|uid| net.b.attach_as(uid, &limits));
    let root = net.b.attach(&limits);
    net.listen(&first, 1);
    net.listen(&first, 2);
    net.listen(&second, 3);
    let full = Err(Errno::NFILE.raw_os_error());
    for program in [&first, &second] {
        assert_eq!(net.try_listen(program, 4), full);
    }
    assert_eq!(net.b.counters.endpoints_exhausted_of_user.read(), 2);
    assert_eq!(net.b.counters.endpoints_exhausted.read(), 0);
    net.listen(&other, 4);
    for port in 10..20 {
        net.listen(&root, port);
    }
    // What a program had is its user's again when it ends.
    net.b.worker.on_command(Command::Detach(first.key), Instant(net.now));
    net.settle();
    net.listen(&second, 1);
    net.listen(&second, 2);
    assert_eq!(net.try_listen(&second, 5), full);
}

/// How many listeners a program gets from port `from` on.
fn listeners(net: &mut Net, program: &common::Program, from: u16) -> usize {
    (from..from + 100).take_while(|port| net.try_listen(program, *port).is_ok()).count()
}

#[test]
fn one_users_listeners_leave_some_to_others_and_the_last_to_root() {
    let limits = Limits { listeners: 64, listeners_per_user: 40, endpoints: 128, ..small() };
    let mut net = Net::new(limits);
    let [first, second, third] = [7, 8, 9].map(|uid| net.b.attach_as(uid, &limits));
    let root = net.b.attach(&limits);
    assert_eq!(listeners(&mut net, &first, 1000), 40);
    // Who has some leaves what is kept for those who have none, and all leave the last to root.
    assert_eq!(listeners(&mut net, &second, 2000), 8);
    assert_eq!(listeners(&mut net, &third, 3000), 1);
    assert_eq!(listeners(&mut net, &root, 4000), 15);
    assert_eq!(net.b.counters.listeners_refused.read(), 4);
    // What a program had is there for others when it ends.
    net.b.worker.on_command(Command::Detach(first.key), Instant(net.now));
    net.settle();
    assert_eq!(listeners(&mut net, &second, 5000), 24);
}

#[test]
fn one_users_udp_sockets_leave_some_to_others() {
    let limits = Limits { udp_sockets: 16, udp_sockets_per_user: 5, endpoints: 128, ..small() };
    let mut net = Net::new(limits);
    let [first, second] = [7, 8].map(|uid| net.b.attach_as(uid, &limits));
    for port in 0..5 {
        net.bind_udp(true, &first, 1000 + port);
    }
    let refused = net.try_bind_udp(true, &first, 2000);
    assert_eq!(refused, Err(Errno::NOBUFS.raw_os_error()));
    net.bind_udp(true, &second, 2000);
    assert_eq!(net.b.counters.udp_sockets_refused.read(), 1);
}
