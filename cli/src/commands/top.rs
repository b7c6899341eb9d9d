//! `outboard top`: what the engine is doing, refreshed in place.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use lab::failure::Result;
use lab::figures::figure;
use lab::observer::{Observer, Stats};
use shm::control::SocketInfo;

use crate::kernel_sockets;

/// Shows rates every `interval`, `count` times or until interrupted.
///
/// # Errors
/// When no engine answers, or it ends.
pub fn top(socket: &Path, interval: Duration, count: Option<u64>) -> Result<()> {
    let mut observer = Observer::connect(socket)?;
    let interfaces = observer.shared_interfaces()?;
    let mut earlier = (Instant::now(), observer.stats()?);
    let mut before = kernel_frames(observer.pid());
    let mut shown = 0;
    while count.is_none_or(|count| shown < count) {
        std::thread::sleep(interval);
        let later = (Instant::now(), observer.stats()?);
        let passed = later.0 - earlier.0;
        let mut page = page(&earlier.1, &later.1, passed);
        if !interfaces.is_empty() {
            let now = kernel_frames(observer.pid());
            let kernels = kernel_sockets::beside(&mut observer, false);
            page.push('\n');
            for name in &interfaces {
                let frames = [&before, &now].map(|all| all.get(name).copied().unwrap_or_default());
                let own = [&earlier.1, &later.1].map(|stats| {
                    ["rx", "tx"]
                        .map(|way| stats.counter(&format!("port_{way}_frames{{port=xdp:{name}}}")))
                });
                page.push_str(&shares(name, frames, own, passed));
            }
            page.push_str(&match kernels {
                Ok(sockets) => owners(&sockets, later.1.counter("endpoints")),
                Err(failure) => format!("sockets  the kernel's are not shown: {failure}\n"),
            });
            before = now;
        }
        let mut output = std::io::stdout().lock();
        let clear = if output.is_terminal() { "\x1b[H\x1b[J" } else { "" };
        if write!(output, "{clear}{page}").and_then(|()| output.flush()).is_err() {
            return Ok(());
        }
        earlier = later;
        shown += 1;
    }
    Ok(())
}

/// Frames received and sent by each interface of the network namespace of a process, as its
/// driver counts them: the engine's among them.
fn kernel_frames(pid: i32) -> BTreeMap<String, [u64; 2]> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/net/dev")).unwrap_or_default();
    frames_in(&text)
}

fn frames_in(text: &str) -> BTreeMap<String, [u64; 2]> {
    let counts = |line: &str| {
        let (name, counts) = line.split_once(':')?;
        let counts: Vec<u64> =
            counts.split_whitespace().filter_map(|count| count.parse().ok()).collect();
        Some((name.trim().to_owned(), [*counts.get(1)?, *counts.get(9)?]))
    };
    text.lines().filter_map(counts).collect()
}

/// Who receives and sends how much on an interface; each pair is an earlier and a later reading.
fn shares(name: &str, all: [[u64; 2]; 2], own: [[u64; 2]; 2], passed: Duration) -> String {
    let rate = |[earlier, later]: [[u64; 2]; 2], way: usize| {
        let count = |of: [u64; 2]| of.get(way).copied().unwrap_or_default();
        count(later).saturating_sub(count(earlier)) as f64 / passed.as_secs_f64()
    };
    format!(
        "{name:<8} outboard receives {} frames/s, sends {}; the interface in all {} and {}\n",
        figure(rate(own, 0)),
        figure(rate(own, 1)),
        figure(rate(all, 0)),
        figure(rate(all, 1)),
    )
}

/// Who holds how many sockets.
fn owners(kernels: &[SocketInfo], endpoints: u64) -> String {
    let count = |wanted: fn(&SocketInfo) -> bool| kernels.iter().filter(|one| wanted(one)).count();
    format!(
        "sockets  outboard {endpoints} endpoints; the kernel {} listeners, {} connections, {} UDP\n",
        count(|one| one.state == "LISTEN"),
        count(|one| one.protocol == "tcp" && one.remote.is_some()),
        count(|one| one.protocol == "udp"),
    )
}

/// One screen: shares of the worker's time, where its cycles went, levels and rates.
fn page(earlier: &Stats, later: &Stats, passed: Duration) -> String {
    let grown = |name: &str| later.counter(name).saturating_sub(earlier.counter(name)) as f64;
    let passed_ns = passed.as_nanos() as f64;
    let share = |name: &str| (grown(name) / passed_ns * 100.0).min(100.0);
    let (busy, idle) = (share("busy_ns"), share("idle_ns"));
    let mut text = format!(
        "worker   busy {busy:5.1}%   idle polling {idle:5.1}%   asleep or yielded {:5.1}%\n",
        (100.0 - busy - idle).max(0.0)
    );
    let components: Vec<&str> = later
        .counters
        .iter()
        .map(|(name, _)| name.as_str())
        .filter(|name| name.starts_with("cycles_") && *name != "cycles_idle")
        .collect();
    let cycles: f64 = components.iter().map(|name| grown(name)).sum();
    if cycles > 0.0 {
        text.push_str("cycles  ");
        for name in components {
            let part = name.trim_start_matches("cycles_");
            let _ = write!(text, " {part} {:.0}%", grown(name) / cycles * 100.0);
        }
        text.push('\n');
    }
    let _ = writeln!(
        text,
        "levels   sessions {}   endpoints {}   buffers {} free of {}\n",
        later.counter("sessions"),
        later.counter("endpoints"),
        later.counter("buffers_free"),
        later.counter("buffers_total"),
    );
    let _ = writeln!(text, "{:<40} {:>14} {:>16}", "counter", "per second", "in all");
    for (name, value) in &later.counters {
        let rate = grown(name) / passed.as_secs_f64();
        if rate > 0.0 && !name.ends_with("_ns") && !name.starts_with("cycles_") {
            let _ = writeln!(text, "{name:<40} {:>14} {value:>16}", figure(rate));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interfaces_frames_are_shown_beside_the_engines() {
        let text = "Inter-|   Receive\n face |bytes    packets errs\n  eth0: 100 10 0 0 0 0 0 0 200 20 0 0\n";
        let frames = frames_in(text);
        assert_eq!(frames.get("eth0"), Some(&[10, 20]));
        let line = shares("eth0", [[0, 0], [10, 20]], [[0, 0], [4, 6]], Duration::from_secs(2));
        for figure in ["receives 2.00", "sends 3.00", "all 5.00 and 10.00"] {
            assert!(line.contains(figure), "{line}");
        }
    }

    #[test]
    fn shares_and_rates_come_from_two_readings() {
        let stats = |busy: u64, turns: u64| Stats {
            counters: vec![
                ("busy_ns".into(), busy),
                ("idle_ns".into(), 0),
                ("cycles_tx".into(), turns),
                ("turns".into(), turns),
                ("requests".into(), 7),
            ],
        };
        let page = page(&stats(0, 0), &stats(500_000_000, 2000), Duration::from_secs(1));
        assert!(page.contains("busy  50.0%"), "{page}");
        assert!(page.contains("tx 100%"), "{page}");
        assert!(page.contains("2,000"), "{page}");
        assert!(!page.contains("requests"), "what did not grow is not shown: {page}");
    }
}
