//! What an idle connection takes: of the engine's memory, and of the pool.

mod common;

use std::alloc::System;

use common::{Net, pattern, small};
use outboard_engine::Limits;

#[global_allocator]
static HEAP: arch::Counting<System> = arch::Counting::new(System);

/// Bytes that each connection carries each way before it falls silent: several pages.
const CARRIED: usize = 9_000;

/// Memory of two workers with so many connections between them, each of which has carried
/// something, and buffers that are neither in the pools nor in the lanes' stocks.
fn cost(connections: u32) -> (usize, u64) {
    let limits =
        Limits { contexts: 1, endpoints: connections + 1, sockets: connections + 1, ..small() };
    let before = HEAP.bytes();
    let mut net = Net::new(limits);
    let (a, b) = (net.a.attach(&limits), net.b.attach(&limits));
    let listener = net.listen(&b, 80);
    let sent = pattern(0, CARRIED);
    for _ in 0..connections {
        let (near, far) = net.connected(&a, &b, listener, 80);
        let (mut there, mut back) = (0, 0);
        let (mut there_read, mut back_read) = (0, 0);
        while there_read + back_read < 2 * CARRIED {
            there += a.write(near, &sent[there..]);
            back += b.write(far, &sent[back..]);
            there_read += b.read(far, CARRIED).len();
            back_read += a.read(near, CARRIED).len();
            if !net.turn() {
                net.pass(1_000_000);
            }
        }
    }
    net.pass(5_000_000_000);
    let mut held = 0;
    for side in [&net.a, &net.b] {
        side.worker.copy_counters();
        let out = side.counters.buffers_total.read() - side.counters.buffers_free.read();
        // Beside the stock of its lane a program has the one that it writes into.
        held += out.saturating_sub(u64::from(limits.stock_target) + 1);
    }
    (HEAP.bytes() - before, held)
}

#[test]
fn an_idle_connection_takes_less_than_1280_bytes_and_nothing_of_the_pool() {
    let connections = 1_500;
    let (without, _) = cost(1);
    let (with, held) = cost(connections);
    let each = (with - without) / connections as usize / 2;
    println!("{each} bytes of an idle connection");
    assert!(each < 1280, "{each} bytes");
    assert_eq!(held, 0, "buffers of idle connections");
}
