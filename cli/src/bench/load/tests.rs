//! Servers and clients against each other on the loopback interface.

use std::net::{SocketAddr, TcpListener};

use super::*;

fn window() -> Window {
    Window {
        warm_up: 10,
        milliseconds: 50,
        sources: Sources { cores: vec![0], ..Sources::default() },
    }
}

/// A server in a thread that lives as long as the process.
fn server(service: Service, bytes: usize) -> SocketAddr {
    let probe = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = probe.local_addr().expect("bound");
    drop(probe);
    std::thread::spawn(move || server::serve(address, service, bytes));
    let deadline = Instant::now() + Duration::from_secs(30);
    while std::net::TcpStream::connect(address).is_err() {
        assert!(Instant::now() < deadline, "the server does not listen at {address}");
        std::thread::yield_now();
    }
    address
}

#[test]
fn requests_are_answered_and_timed() {
    let address = server(Service::Echo, PIECE_BYTES);
    let outcome = closed::run(address, 3, 4, &window()).expect("runs");
    assert!(outcome.operations > 0, "{outcome:?}");
    assert_eq!(outcome.bytes, outcome.operations * MESSAGE_BYTES as u64);
    let latency = outcome.latency.expect("requests are timed");
    assert_eq!(latency.samples, outcome.operations);
    assert!(latency.p50 > 0.0 && latency.p50 <= latency.p999, "{latency:?}");
    assert!(outcome.usage.seconds >= 0.05, "{outcome:?}");
}

#[test]
fn short_connections_are_made_one_after_the_other() {
    let address = server(Service::Brief, PIECE_BYTES);
    let outcome = brief::run(address, 2, &window()).expect("runs");
    assert!(outcome.operations > 0 && outcome.errors == 0, "{outcome:?}");
    assert_eq!(outcome.latency.map(|latency| latency.samples), Some(outcome.operations));
}

#[test]
fn an_open_loop_offers_what_it_is_told() {
    let address = server(Service::Echo, PIECE_BYTES);
    let schedule = open::Schedule { rate: 2000, connections: 2 };
    let outcome = open::run(address, schedule, &window()).expect("runs");
    // However late it is, it offers no more.
    let offered = 2000.0 * (outcome.usage.seconds + 0.02);
    assert!(outcome.operations > 0, "{outcome:?}");
    assert!((outcome.operations as f64) <= offered + 2000.0 * 0.01 + 512.0, "{outcome:?}");
}

#[test]
fn bulk_goes_both_ways() {
    for (service, is_sent) in [(Service::Sink, true), (Service::Source, false)] {
        let address = server(service, 1000);
        let transfer = bulk::Transfer { is_sent, bytes: 1000, flows: 2 };
        let outcome = bulk::run(address, &transfer, &window()).expect("runs");
        assert!(outcome.bytes > 0 && outcome.operations == outcome.bytes / 1000, "{outcome:?}");
    }
}

#[test]
fn an_outcome_is_read_from_the_last_line_of_json() {
    let outcome = Outcome { operations: 7, ..Outcome::default() };
    let line = serde_json::to_string(&outcome).expect("serializes");
    let read = read(&format!("outboard: a remark\n{line}\n")).expect("is there");
    assert_eq!(read.operations, 7);
    assert!(super::read("nothing").is_err());
}
