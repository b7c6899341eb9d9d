//! What a program has written and then closes with a reset, under virtual time. Unlike a packet script,
//! this puts the write, the close and the end of the session into one turn of the engine.

mod common;

use common::{Net, Program, pattern, small};
use outboard_engine::control::exchange::Command;
use shm::Status;
use shm::request::{Reply, Request};
use stack::api::Instant;

/// Two programs with a connection: (client, server, the client's endpoint, the server's).
fn pair(net: &mut Net) -> (Program, Program, u32, u32) {
    let limits = small();
    let (a, b) = (net.a.attach(&limits), net.b.attach(&limits));
    let listener = net.listen(&b, 80);
    let (near, far) = net.connected(&a, &b, listener, 80);
    (a, b, near, far)
}

/// The peer reads the whole answer, and only then learns of the reset.
fn expect_answer_and_reset(net: &mut Net, peer: &Program, near: u32, answer: &[u8]) {
    net.settle();
    let status = peer.levels(near).status;
    assert!(status.contains(Status::ERROR | Status::HANGUP), "no reset: {status:?}");
    assert_eq!(peer.read(near, usize::MAX), answer, "the answer before the reset");
    net.pass(1_000_000_000);
    net.b.worker.copy_counters();
    let taken = net.b.counters.buffers_total.read() - net.b.counters.buffers_free.read();
    assert!(taken <= 2 * u64::from(small().stock_target), "{taken} buffers are still held");
}

#[test]
fn an_answer_leaves_before_the_reset_that_unread_bytes_make_of_a_close() {
    let mut net = Net::new(small());
    let (a, b, near, far) = pair(&mut net);
    a.write(near, b"a request that nobody reads");
    net.settle();
    let answer = pattern(0, 9_000);
    assert_eq!(b.write(far, &answer), answer.len());
    assert_eq!(net.ask(true, &b, Request::Close { endpoint: far }), Reply::Done);
    expect_answer_and_reset(&mut net, &a, near, &answer);
}

#[test]
fn what_was_written_leaves_before_the_reset_that_a_program_asks_for() {
    let mut net = Net::new(small());
    let (a, b, near, far) = pair(&mut net);
    let answer = pattern(0, 9_000);
    assert_eq!(b.write(far, &answer), answer.len());
    assert_eq!(net.ask(true, &b, Request::Abort { endpoint: far }), Reply::Done);
    expect_answer_and_reset(&mut net, &a, near, &answer);
}

#[test]
fn an_answer_leaves_before_the_reset_of_a_program_that_has_ended() {
    let mut net = Net::new(small());
    let (a, b, near, far) = pair(&mut net);
    a.write(near, b"a request that nobody reads");
    net.settle();
    let answer = pattern(0, 9_000);
    assert_eq!(b.write(far, &answer), answer.len());
    let now = net.now;
    net.b.worker.on_command(Command::Detach(b.key), Instant(now));
    net.settle();
    assert_eq!(net.b.gone, [b.key]);
    assert_eq!(a.read(near, usize::MAX), answer);
    assert!(a.levels(near).status.contains(Status::ERROR));
}

#[test]
fn a_reset_does_not_wait_for_a_window() {
    let mut net = Net::new(small());
    let (a, b, near, far) = pair(&mut net);
    // The peer reads nothing: its window is smaller than what is written.
    let mut written = 0;
    loop {
        let now = b.write(far, &pattern(written, 10_000));
        written += now;
        net.settle();
        if now == 0 {
            break;
        }
    }
    assert_eq!(net.ask(true, &b, Request::Abort { endpoint: far }), Reply::Done);
    net.settle();
    assert!(a.levels(near).status.contains(Status::ERROR), "the reset waits");
    let got = a.read(near, usize::MAX);
    assert!(!got.is_empty() && got.len() <= written);
    assert_eq!(got, pattern(0, got.len()));
}
