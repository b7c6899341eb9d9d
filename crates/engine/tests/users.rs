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
