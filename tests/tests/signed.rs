//! Signed TCP (RFC 2385, TCP_MD5SIG) between the engine's sockets and the kernel's, both ways, over both
//! versions of IP.

use outboard::lab::{Side, Task};
use outboard_tests::joined::Joined;
use outboard_tests::turn;
use outboard_tests::world::scripted;

const PORT: u16 = 7100;

/// What a program that asks `address` under `key` says.
fn asks(joined: &Joined, side: Side, address: &str, port: u16, key: &str) -> String {
    let task = scripted(&joined.lab, "signed.py");
    let task = task.args(["ask", address, &port.to_string(), key, "before"]);
    let task = if side == Side::B { joined.accelerated(task) } else { task };
    joined.run(side, task).output.trim().to_owned()
}

fn serves(joined: &Joined, address: &str, port: u16, key: &str, how: &str, peer: &str) -> Task {
    let task = scripted(&joined.lab, "signed.py");
    task.args(["serve", address, &port.to_string(), key, how, peer])
}

#[test]
fn servers_of_the_engine_speak_with_peers_of_the_kernel_that_have_their_key_and_no_others() {
    let name =
        "servers_of_the_engine_speak_with_peers_of_the_kernel_that_have_their_key_and_no_others";
    let Some(_turn) = turn(name) else { return };
    for joined in Joined::over_each_family() {
        for (port, how) in (PORT..).zip(["before", "after", "prefix"]) {
            let task =
                serves(&joined, joined.server(), port, "Elefantenfu\u{df}", how, joined.client());
            let _server = joined.serve_accelerated(task, port);
            let before = joined.counter("accepts");
            let ask = |key| asks(&joined, Side::A, joined.server(), port, key);
            assert_eq!(ask("Elefantenfu\u{df}"), "whole", "{how}");
            assert_eq!(joined.counter("accepts"), before + 1, "{how}: through the engine");
            assert_eq!(ask("another"), "TimeoutError", "{how}");
            assert_eq!(ask("-"), "TimeoutError", "{how}");
            let drops = |reason: &str| joined.counter(&format!("stack_drops{{reason={reason}}}"));
            assert!(drops("tcp_bad_signature") > 0 && drops("tcp_unsigned") > 0, "{how}");
            assert_eq!(joined.counter("accepts"), before + 1, "{how}");
        }
    }
}

#[test]
fn connections_of_the_engine_reach_servers_of_the_kernel_that_have_their_key_and_no_others() {
    let name =
        "connections_of_the_engine_reach_servers_of_the_kernel_that_have_their_key_and_no_others";
    let Some(_turn) = turn(name) else { return };
    for joined in Joined::over_each_family() {
        let key = "k".repeat(80);
        let task = serves(&joined, joined.client(), PORT, &key, "before", joined.server());
        let ready = |server: &outboard::lab::Program| server.output().contains("ready");
        let _server = joined.start_ready(Side::A, task, ready);
        let before = joined.counter("tcp_active_opens");
        let ask = |key: &str| asks(&joined, Side::B, joined.client(), PORT, key);
        assert_eq!(ask(&key), "whole");
        assert_eq!(joined.counter("tcp_active_opens"), before + 1, "through the engine");
        assert_eq!(ask("another"), "TimeoutError");
        assert_eq!(ask("-"), "TimeoutError");
    }
}
