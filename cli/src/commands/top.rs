//! `outboard top`: what the engine is doing, refreshed in place.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::demo::report::figure;
use crate::failure::Result;
use crate::observer::{Observer, Stats};

/// Shows rates every `interval`, `count` times or until interrupted.
pub fn top(socket: &Path, interval: Duration, count: Option<u64>) -> Result<()> {
    let mut observer = Observer::connect(socket)?;
    let mut earlier = (Instant::now(), observer.stats()?);
    let mut shown = 0;
    while count.is_none_or(|count| shown < count) {
        std::thread::sleep(interval);
        let later = (Instant::now(), observer.stats()?);
        let page = page(&earlier.1, &later.1, later.0 - earlier.0);
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
