//! The table of congestion controls is the committed one, to the last digit.

use outboard_sim::congestion;

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
