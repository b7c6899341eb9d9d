//! How fast data gets through where frames are lost or overtake each other: whole stacks in
//! virtual time, so that the figures are the same on every machine. `--nocapture` prints them.

mod net;

use net::{Faults, Net, SECOND};
use outboard_stack::api::*;

/// What a run over a bad wire came to.
struct Outcome {
    /// Bytes per second of virtual time.
    goodput: u64,
    /// Retransmission timeouts of both hosts.
    timeouts: u64,
    /// Segments sent again by both hosts.
    retransmits: u64,
}

fn counter(net: &Net, name: &str) -> u64 {
    let mut sum = 0;
    for host in &net.hosts {
        host.stack.each_counter(|found, value| sum += if found == name { value } else { 0 });
    }
    sum
}

/// One connection that carries `pieces` pieces of `len` bytes, each begun when the one before has
/// arrived.
fn carry(seed: u64, tso: bool, faults: Faults, len: usize, pieces: usize) -> Outcome {
    let mut net = Net::with(seed, 1500, tso);
    let local = net.hosts[1].at(80);
    let options = TcpOptions::default();
    let listener = net.hosts[1].stack.tcp_listen(local, 16, options, Owner(1)).unwrap();
    let a = net.hosts[0]
        .stack
        .tcp_connect(net.now, TcpConnect { remote: local, local: None, options, owner: Owner(2) })
        .unwrap();
    let mut accepted = None;
    assert!(net.run_until(SECOND, |net| {
        accepted = accepted.or(net.hosts[1].stack.tcp_accept(listener).unwrap());
        accepted.is_some()
    }));
    let b = accepted.unwrap().id;
    net.faults = faults;
    let began = net.now;
    let bytes = vec![7; len];
    for piece in 1..=pieces {
        let now = net.now;
        net.hosts[0].write(now, a, &bytes);
        let done = net.run_until(600 * SECOND, |net| {
            let readable = net.hosts[1].stack.tcp_levels(b).unwrap().readable;
            let now = net.now;
            let _ = net.hosts[1].stack.tcp_consumed(now, b, readable);
            readable == (piece * len) as u64
        });
        assert!(done, "piece {piece} arrives");
    }
    let took = (net.now.0 - began.0).max(1);
    Outcome {
        goodput: ((len * pieces) as u128 * u128::from(SECOND) / u128::from(took)) as u64,
        timeouts: counter(&net, "tcp_timeouts"),
        retransmits: counter(&net, "tcp_retransmits"),
    }
}

/// The middle one of several seeds, and all their timeouts and retransmissions.
fn typical(tso: bool, faults: Faults, len: usize, pieces: usize) -> Outcome {
    let mut runs: Vec<Outcome> =
        (1..=5).map(|seed| carry(seed, tso, faults, len, pieces)).collect();
    let timeouts = runs.iter().map(|r| r.timeouts).sum();
    let retransmits = runs.iter().map(|r| r.retransmits).sum();
    runs.sort_by_key(|r| r.goodput);
    Outcome { goodput: runs[2].goodput, timeouts, retransmits }
}

/// Of hundreds of losses, in streams and in short exchanges, a few are left to the timeout: those of
/// single segments in flight, and retransmissions lost at the end.
#[test]
fn hardly_a_loss_costs_a_timeout() {
    let loss = Faults { loss: 10, ..Faults::default() };
    let both = Faults { loss: 10, reorder: 10, ..Faults::default() };
    let reorder = Faults { reorder: 10, ..Faults::default() };
    println!("{:<44} {:>10} {:>9} {:>12}", "case", "KB/s", "timeouts", "retransmits");
    for (name, faults) in [("1% loss", loss), ("1% loss, 1% late", both), ("1% late", reorder)] {
        for tso in [false, true] {
            for (what, len, pieces) in
                [("8 MB", 8 << 20, 1), ("200 of 64 KB", 65536, 200), ("300 of 4 KB", 4096, 300)]
            {
                let outcome = typical(tso, faults, len, pieces);
                println!(
                    "{:<44} {:>10} {:>9} {:>12}",
                    format!("{name}, {what}, {}", if tso { "large frames" } else { "segments" }),
                    outcome.goodput / 1000,
                    outcome.timeouts,
                    outcome.retransmits
                );
                assert!(outcome.timeouts <= 15, "{} timeouts", outcome.timeouts);
            }
        }
    }
}
