//! The engine's end: who is waited for, what is closed and how, under virtual time.

mod common;

use common::{Net, Program, at, pattern, small};
use outboard_engine::control::exchange::Command;
use outboard_engine::ending::{Left, Stage};
use shm::Status;
use shm::request::{ConnectOptions, LEFT_TO_KERNEL, Reply, Request};
use stack::api::Instant;

const SECOND: u64 = 1_000_000_000;

fn command(net: &mut Net, command: Command) {
    let now = net.now;
    net.b.worker.on_command(command, Instant(now));
    net.settle();
}

/// Two programs, connected.
fn pair(net: &mut Net) -> (Program, Program, u32, (u32, u32)) {
    let limits = small();
    let (a, b) = (net.a.attach(&limits), net.b.attach(&limits));
    let listener = net.listen(&b, 80);
    let ends = net.connected(&a, &b, listener, 80);
    (a, b, listener, ends)
}

fn errno(reply: Reply) -> i32 {
    match reply {
        Reply::Failed { errno } => errno.cast_signed(),
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn draining_ends_when_the_last_connection_does() {
    let mut net = Net::new(small());
    let (a, b, _, (near, far)) = pair(&mut net);
    command(&mut net, Command::Drain { limit_ns: 60 * SECOND });
    net.pass(5 * SECOND);
    assert!(!net.b.worker.has_ended());
    let left = Left { connections: 1, programs: 1 };
    assert_eq!(
        net.b.stages,
        [Stage::Draining { limit_ns: 60 * SECOND }, Stage::Waiting(left)],
        "told once"
    );
    // It goes on as if nothing were.
    b.write(far, &pattern(0, 1000));
    net.settle();
    assert_eq!(a.read(near, 1000), pattern(0, 1000));
    a.finish(near);
    net.settle();
    net.ask(true, &b, Request::Close { endpoint: far });
    net.pass(SECOND);
    assert!(net.b.worker.has_ended());
    let none = Left { connections: 0, programs: 1 };
    assert_eq!(net.b.stages[2..], [Stage::Closing(none), Stage::Ended { reset: 0 }]);
    assert!(!a.levels(near).status.contains(Status::ERROR));
}

#[test]
fn an_engine_that_drains_takes_nothing_new() {
    let mut net = Net::new(small());
    let (a, b, listener, _) = pair(&mut net);
    // One that waits already is still accepted.
    let waits = net.connect(&a, 80);
    net.settle();
    command(&mut net, Command::Drain { limit_ns: 60 * SECOND });
    assert!(net.accept(&b, listener).is_some());
    assert!(!a.levels(waits).status.contains(Status::ERROR));
    let refused = net.connect(&a, 80);
    net.settle();
    assert!(a.levels(refused).status.contains(Status::ERROR), "no kernel has the address");
    let left = LEFT_TO_KERNEL.raw_os_error();
    assert_eq!(net.try_listen(&b, 81), Err(left));
    let connect = Request::Connect {
        remote: at("10.0.0.1", 9),
        token: 0,
        options: ConnectOptions::default(),
    };
    assert_eq!(errno(net.ask(true, &b, connect)), left);
}

#[test]
fn what_is_left_at_the_end_is_closed_in_order_and_told() {
    let mut net = Net::new(small());
    let (a, b, listener, (near, far)) = pair(&mut net);
    let (unread, _) = net.connected(&a, &b, listener, 80);
    let _ = a.write(unread, b"not read");
    command(&mut net, Command::Drain { limit_ns: SECOND });
    net.pass(SECOND / 2);
    b.write(far, &pattern(0, 5000));
    net.pass(SECOND);
    assert!(net.b.worker.has_ended());
    assert_eq!(a.read(near, 9000), pattern(0, 5000), "what was written arrives");
    assert_eq!(a.levels(near).status & (Status::PEER_CLOSED | Status::ERROR), Status::PEER_CLOSED);
    // As close(2) with bytes unread.
    assert!(a.levels(unread).status.contains(Status::ERROR));
    let left = Left { connections: 2, programs: 1 };
    assert_eq!(
        net.b.stages.iter().skip_while(|one| **one != Stage::Closing(left)).count(),
        2,
        "{:?}",
        net.b.stages
    );
}

#[test]
fn a_peer_that_takes_nothing_is_reset_after_a_second() {
    let mut net = Net::new(small());
    let (a, b, _, (near, far)) = pair(&mut net);
    // More than the peer's window and buffers hold.
    let mut sent = 0;
    while sent < 400_000 {
        let wrote = b.write(far, &pattern(sent, 10_000));
        sent += wrote;
        net.settle();
        if wrote == 0 {
            break;
        }
    }
    command(&mut net, Command::Close);
    assert!(!net.b.worker.has_ended());
    net.pass(2 * SECOND);
    assert!(net.b.worker.has_ended());
    assert_eq!(net.b.stages.last(), Some(&Stage::Ended { reset: 1 }));
    assert!(a.levels(near).status.contains(Status::ERROR));
}
