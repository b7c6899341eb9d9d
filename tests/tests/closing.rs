//! What programs close with a reset.

use lab::{Side, Task};
use outboard_tests::joined::PATIENCE;
use outboard_tests::turn;
use outboard_tests::world::{Arrangement, SERVERS, World, scripted};

/// Servers that answer and close early, with a part of the request unread (HTTP's 413, redis' limit of
/// clients) or with SO_LINGER of 0 seconds.
#[test]
fn answers_that_a_reset_follows_arrive_whole() {
    let Some(_turn) = turn("answers_that_a_reset_follows_arrive_whole") else { return };
    for arrangement in [Arrangement::XdpServers, Arrangement::XdpBoth] {
        let world = World::new(arrangement, None).expect("two hosts");
        let program = |words: &[&str], port: u16| {
            let address = SERVERS.to_string();
            scripted(&world.lab, "early.py").args(words).arg(address).arg(port.to_string())
        };
        for (port, how, tries) in [(7001, "unread", 1000), (7002, "linger", 250)] {
            let _server = world.serve(program(&["serve", how], port), port).expect("a server");
            let count = |side, name: &str| {
                let stats = world.observe(side).and_then(|mut observer| observer.stats());
                stats.expect("the engine answers").counter(name)
            };
            let before = count(Side::B, "accepts");
            let asks: Task = program(&["ask", &tries.to_string()], port);
            let client = world.start(Side::A, asks).expect("a client");
            let client = client.wait(PATIENCE).and_then(|one| one.success()).expect("it ends");
            let expected = format!("{{'whole, reset': {tries}}}");
            assert_eq!(client.output.trim(), expected, "{how}, {}", arrangement.name());
            assert_eq!(count(Side::B, "accepts") - before, tries, "the engine carried them");
            if arrangement.accelerates(Side::A) {
                let requests = count(Side::A, "stream_tx_bytes");
                assert!(requests >= 100 * tries, "both engines carried them: {requests} bytes");
            }
        }
    }
}
