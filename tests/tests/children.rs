//! Connections that another process uses than the one that opened them.

use lab::Side;
use outboard_tests::joined::{Joined, SERVER, eventually};
use outboard_tests::turn;
use outboard_tests::world::scripted;

/// What clients of a forking server print when all is well: they check every byte.
const CARRIED: &str = "all carried";

fn with_relay() -> Joined {
    let mut joined = Joined::without_engine();
    joined.restart_engine_with("relay = true\n");
    joined
}

/// Everything that connections took is given back.
fn nothing_is_left(joined: &Joined) {
    eventually("no connection is left", || joined.sockets_at(7000).len() <= 1);
    eventually("the engine has its buffers back", || joined.counter("endpoints") <= 1);
}

/// The parent closes its number at once, and ends none of them.
#[test]
fn a_child_serves_what_its_parent_has_accepted() {
    let Some(_turn) = turn("a_child_serves_what_its_parent_has_accepted") else { return };
    let joined = with_relay();
    let server = joined.python("forked_server.py", &[SERVER, "7000"], 7000);
    let client = scripted(&joined.lab, "forked_client.py").args([SERVER, "7000", "20"]);
    let finished = joined.run(Side::A, client);
    assert_eq!(finished.output.trim(), CARRIED, "{}{}", finished.errors, server.errors());
    assert_eq!(joined.counter("accepts"), 20, "all came to the engine; {}", server.errors());
    assert_eq!(joined.counter("passed_total"), 20, "{}", server.errors());
    assert_eq!(joined.counter("listeners_left"), 0, "{}", server.errors());
    nothing_is_left(&joined);
}

/// The connection becomes a socket of the kernel's while its parent is reading and writing: a byte that was
/// lost or came twice shows in the order.
#[test]
fn nothing_is_lost_or_doubled_where_parent_and_child_use_a_connection_at_once() {
    let name = "nothing_is_lost_or_doubled_where_parent_and_child_use_a_connection_at_once";
    let Some(_turn) = turn(name) else { return };
    let joined = with_relay();
    let server = joined.python("shared_server.py", &[SERVER, "7000", "10"], 7000);
    let client = scripted(&joined.lab, "shared_client.py").args([SERVER, "7000", "10"]);
    let finished = joined.run(Side::A, client);
    assert_eq!(finished.output.trim(), CARRIED, "{}{}", finished.errors, server.errors());
    assert_eq!(joined.counter("passed_total"), 10, "{}", server.errors());
    assert_eq!(joined.counter("tickets_failed"), 0, "{}", server.errors());
    eventually("the engine has its buffers back", || joined.counter("endpoints") == 0);
}
