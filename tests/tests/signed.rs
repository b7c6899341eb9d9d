//! Signed TCP (RFC 2385, TCP_MD5SIG) between the engine's sockets and the kernel's, both ways, over both
//! versions of IP.

use lab::{Program, Side, Task};
use outboard_tests::joined::{Joined, PATIENCE};
use outboard_tests::turn;
use outboard_tests::world::scripted;

const PORT: u16 = 7100;

/// A program that asks `address` under `key`.
fn asks(joined: &Joined, side: Side, address: &str, port: u16, key: &str) -> Program {
    let task = scripted(&joined.lab, "signed.py");
    let task = task.args(["ask", address, &port.to_string(), key, "before"]);
    let task = if side == Side::B { joined.accelerated(task) } else { task };
    joined.lab.start(side, task).expect("a program")
}

/// What it says.
fn says(asking: Program) -> String {
    asking.wait(PATIENCE).expect("it ends").output.trim().to_owned()
}

/// A server whose connections are signed.
struct SignedServer<'a> {
    address: &'a str,
    port: u16,
    key: &'a str,
    /// When and how it sets its key.
    how: &'a str,
    /// Whom the key is for.
    peer: &'a str,
}

impl SignedServer<'_> {
    fn task(&self, joined: &Joined) -> Task {
        let Self { address, port, key, how, peer } = self;
        let task = scripted(&joined.lab, "signed.py");
        task.args(["serve", address, &port.to_string(), key, how, peer])
    }
}

#[test]
fn servers_of_the_engine_speak_with_peers_of_the_kernel_that_have_their_key_and_no_others() {
    let name =
        "servers_of_the_engine_speak_with_peers_of_the_kernel_that_have_their_key_and_no_others";
    let Some(_turn) = turn(name) else { return };
    for joined in Joined::over_each_family() {
        let ways =
            [(PORT, "before"), (PORT + 1, "after"), (PORT + 2, "prefix"), (PORT + 3, "forked")];
        let ask = |port, key| asks(&joined, Side::A, joined.server(), port, key);
        let _servers = ways.map(|(port, how)| {
            let (address, peer) = (joined.server(), joined.client());
            let server = SignedServer { address, port, key: "Elefantenfu\u{df}", how, peer };
            let task = server.task(&joined);
            let ready = |server: &Program| server.output().contains("ready");
            let server = joined.start_ready(Side::B, joined.accelerated(task), |server| {
                ready(server) && joined.is_accelerated(port)
            });
            let before = joined.counter("accepts");
            assert_eq!(says(ask(port, "Elefantenfu\u{df}")), "whole", "{how}");
            assert_eq!(joined.counter("accepts"), before + 1, "{how}: through the engine");
            server
        });
        let drops = |reason: &str| joined.counter(&format!("stack_drops{{reason={reason}}}"));
        let accepts = joined.counter("accepts");
        let keys = [("another", "tcp_bad_signature"), ("-", "tcp_unsigned")];
        let before = keys.map(|(_, reason)| drops(reason));
        // Nobody answers them, so they wait side by side.
        let refused = keys.map(|(key, _)| ways.map(|(port, how)| (how, ask(port, key))));
        for (how, asking) in refused.into_iter().flatten() {
            assert_eq!(says(asking), "TimeoutError", "{how}");
        }
        for ((_, reason), before) in keys.into_iter().zip(before) {
            assert!(drops(reason) - before >= ways.len() as u64, "{reason}");
        }
        assert_eq!(joined.counter("accepts"), accepts);
    }
}

#[test]
fn connections_of_the_engine_reach_servers_of_the_kernel_that_have_their_key_and_no_others() {
    let name =
        "connections_of_the_engine_reach_servers_of_the_kernel_that_have_their_key_and_no_others";
    let Some(_turn) = turn(name) else { return };
    for joined in Joined::over_each_family() {
        let key = "k".repeat(80);
        let (address, peer) = (joined.client(), joined.server());
        let server = SignedServer { address, port: PORT, key: &key, how: "before", peer };
        let task = server.task(&joined);
        let ready = |server: &lab::Program| server.output().contains("ready");
        let _server = joined.start_ready(Side::A, task, ready);
        let before = joined.counter("tcp_active_opens");
        let ask = |key: &str| asks(&joined, Side::B, joined.client(), PORT, key);
        assert_eq!(says(ask(&key)), "whole");
        assert_eq!(joined.counter("tcp_active_opens"), before + 1, "through the engine");
        for refused in ["another", "-"].map(ask) {
            assert_eq!(says(refused), "TimeoutError");
        }
    }
}
