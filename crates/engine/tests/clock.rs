//! A turn that lasts: the worker may lose its core in the middle of one.

mod common;

use common::{Net, small};

use shm::request::{Reply, Request};
use stack::api::Instant;

#[test]
fn what_came_while_the_worker_had_lost_its_core_is_not_thought_to_have_been_quicker() {
    let limits = small();
    let mut net = Net::new(limits);
    let (a, b) = (net.a.attach(&limits), net.b.attach(&limits));
    let listener = net.listen(&b, 80);
    // The neighbor is known from now on.
    net.connected(&a, &b, listener, 80);
    let near = net.connect(&a, 80);
    // The answer is there; the turn that takes it began soon after the question was sent, and gets
    // its core back 20 ms later. Taken for a round trip of its beginning, BBR would have held the
    // path for one of microseconds and sent at a small part of its rate.
    let start = Instant(net.now);
    net.now += 20_000_000;
    let later = Instant(net.now);
    net.a.worker.turn_by(start, &|| later);
    net.settle();
    let Reply::Info(info) = net.ask(false, &a, Request::Info { endpoint: near }) else {
        panic!("no information")
    };
    assert!(info.srtt_us >= 20_000, "{} us", info.srtt_us);
}
