//! Where the time of the server host's core goes, by component, in microseconds for each KiB sent.
//!
//! An engine's processor time is exact; its cycles, which the worker counts itself at the borders of a
//! turn's parts, say how it divides. What is neither the engine's nor the server program's is the
//! kernel's: soft interrupts and receive threads.

use super::cell::Sample;
use super::load::Outcome;
use super::system::System;

/// Components of an engine: the worker's counter and what it is called.
const ENGINE: [(&str, &str); 5] = [
    ("cycles_port_rx", "engine: port, receiving"),
    ("cycles_stack", "engine: stack, receiving, with the copy"),
    ("cycles_host", "engine: host interface"),
    ("cycles_timers", "engine: timers"),
    ("cycles_tx", "engine: stack and port, sending, with the copy"),
];

/// The host whose profile it is.
const HOST: usize = 1;

/// The figures of an outcome. They add up to the time of the host's core.
pub fn samples(system: System, outcome: &Outcome) -> Vec<Sample> {
    const UNIT: &str = "us/KiB";
    let usage = &outcome.usage;
    let kibibytes = outcome.bytes as f64 / 1024.0;
    let each = |seconds: f64| seconds / kibibytes * 1e6;
    let mut samples = Vec::new();
    let mut add = |name, unit, higher_is_better, value| {
        samples.push(Sample { name, unit, higher_is_better, value });
    };
    add("throughput", "Gbit/s", true, outcome.bytes as f64 * 8.0 / usage.seconds / 1e9);
    if !system.splits_work() {
        return samples;
    }
    let engine = usage.counter(HOST, "busy_ns") as f64 / 1e9;
    let cycles = ENGINE.map(|(counter, _)| usage.counter(HOST, counter) as f64);
    let all: f64 = cycles.iter().sum();
    if all > 0.0 {
        for ((_, name), cycles) in ENGINE.into_iter().zip(cycles) {
            add(name, UNIT, false, each(engine * cycles / all));
        }
    }
    add("program, with its kernel work", UNIT, false, each(usage.server));
    // Cores are read in ticks, the others in nanoseconds: the rest may come out below zero.
    add(
        "kernel beside the program",
        UNIT,
        false,
        each((usage.work(HOST) - engine - usage.server).max(0.0)),
    );
    add("whole core", UNIT, false, each(usage.work(HOST)));
    add("left idle", "%", true, usage.idle_share(HOST) * 100.0);
    samples
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::usage::{Core, Usage};

    #[test]
    fn the_engines_time_is_divided_by_its_cycles() {
        let counters = [("busy_ns", 400_000_000), ("cycles_tx", 300), ("cycles_host", 100)];
        let counters = counters.map(|(name, value)| (name.to_owned(), value));
        let usage = Usage {
            seconds: 1.0,
            cores: vec![Core::default(), Core { busy: 0.75, ..Core::default() }],
            server: 0.25,
            engines: [None, Some(counters.into_iter().collect())],
            ..Usage::default()
        };
        let outcome = Outcome { bytes: 1024 * 1_000_000, usage, ..Outcome::default() };
        let found = samples(System::TapServer, &outcome);
        let value = |wanted: &str| {
            let of = found.iter().find(|sample| sample.name.contains(wanted)).expect("is there");
            (of.value * 1e6).round() / 1e6
        };
        assert_eq!((value("sending"), value("host interface")), (0.3, 0.1));
        assert_eq!((value("program, with"), value("kernel beside")), (0.25, 0.1));
        assert_eq!((value("whole core"), value("left idle")), (0.75, 25.0));
    }
}
