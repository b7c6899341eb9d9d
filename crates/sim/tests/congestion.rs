//! The table of congestion controls is the committed one, to the last digit; and what it does not show.

use outboard_sim::congestion::{self, Line};
use stack::api::CongestionKind;

const KNOWN: &str = include_str!("congestion.txt");

/// `UPDATE=1` writes the table anew.
#[test]
fn the_table_of_congestion_controls_is_as_committed() {
    let table = congestion::table();
    if std::env::var_os("UPDATE").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/congestion.txt");
        std::fs::write(path, &table).expect("the table can be written");
        return;
    }
    assert!(table == KNOWN, "the table has changed; UPDATE=1 writes this one:\n{table}");
}

/// The kernel's bbr has 90 of 100 Mbit/s on this path of `outboard loss`. Where a recovery that ends with
/// something lost under way was followed by none, or a beginning took a full buffer for a policer, it
/// was 70 to 88.
#[test]
fn bbr_goes_on_at_the_rate_of_a_path_that_loses_a_twentieth() {
    const RATE: u64 = 100_000_000;
    for seed in 1..=3 {
        let mut there = Line::new(RATE, 20_000_000, RATE / 8000 * 20);
        there.lose(50_000, seed);
        let lines = [there, Line::new(u64::MAX, 0, u64::MAX)];
        let outcome = congestion::over(lines, &[CongestionKind::Bbr], 8_000_000_000);
        let megabits = outcome.bytes.iter().sum::<u64>() / 1_000_000;
        assert!(megabits >= 88, "{megabits} Mbit/s, seed {seed}");
    }
}
