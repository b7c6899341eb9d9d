//! Connections that another process uses than the one that opened them.

use lab::{Side, listens};
use outboard_tests::joined::{CLIENT, Joined, SERVER, eventually};
use outboard_tests::turn;
use outboard_tests::world::scripted;

/// What clients of a forking server print when all is well: they check every byte.
const CARRIED: &str = "all carried";

/// Everything that connections took is given back.
fn nothing_is_left(joined: &Joined) {
    eventually("no connection is left", || joined.sockets_at(7000).len() <= 1);
    eventually("the engine has its buffers back", || joined.counter("endpoints") <= 1);
}

/// The parent closes its number at once, and ends none of them.
#[test]
fn a_child_serves_what_its_parent_has_accepted() {
    let Some(_turn) = turn("a_child_serves_what_its_parent_has_accepted") else { return };
    let joined = Joined::start();
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
    let joined = Joined::start();
    let server = joined.python("shared_server.py", &[SERVER, "7000", "10"], 7000);
    let client = scripted(&joined.lab, "shared_client.py").args([SERVER, "7000", "10"]);
    let finished = joined.run(Side::A, client);
    assert_eq!(finished.output.trim(), CARRIED, "{}{}", finished.errors, server.errors());
    assert_eq!(joined.counter("passed_total"), 10, "{}", server.errors());
    assert_eq!(joined.counter("tickets_failed"), 0, "{}", server.errors());
    eventually("the engine has its buffers back", || joined.counter("endpoints") == 0);
}

/// It has become another user, and asks the engine as no honest library would.
#[test]
fn a_child_gets_no_connection_that_it_does_not_hold() {
    let Some(_turn) = turn("a_child_gets_no_connection_that_it_does_not_hold") else { return };
    let joined = Joined::start();
    let echo = scripted(&joined.lab, "echo.py").args(["epoll", CLIENT, "7000"]);
    let _echo = joined.start_ready(Side::A, echo, |echo| listens(echo.pid(), 7000));
    let stranger = scripted(&joined.lab, "stranger.py").args([CLIENT, "7000"]);
    let finished = joined.run(Side::B, joined.accelerated(stranger));
    let expected = "controls True\n\
                    tickets 1\n\
                    memory False\n\
                    numbers 0\n\
                    regions 0\n\
                    parent True True True\n";
    assert_eq!(finished.output, expected, "{}", finished.errors);
    assert_eq!(joined.counter("tcp_active_opens"), 3);
    assert_eq!(joined.counter("passed_total"), 1);
}
