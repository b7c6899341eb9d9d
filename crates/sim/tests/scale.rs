//! Very many connections: what each takes of memory, and that nothing of them is left.

use std::sync::Mutex;

use outboard_sim::scale::{ScaleSettings, Storm, run, storm};

#[global_allocator]
static HEAP: arch::Counting<std::alloc::System> = arch::Counting::new(std::alloc::System);

/// Memory is counted for the whole process: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn twenty_thousand_idle_connections_take_less_than_1152_bytes_each_with_all_tables_of_the_stack() {
    let _alone = ALONE.lock();
    let used = || HEAP.bytes() as u64;
    let settings = ScaleSettings {
        connections: 20_000,
        talkers_of: 100,
        memory: &used,
        progress: &|_, _, _| (),
    };
    let report = run(&settings).unwrap();
    println!("{report:#?}");
    assert!(report.talked > 100);
    for bytes in [report.bytes_established, report.bytes_idle, report.bytes_talked] {
        assert!(bytes < 1152.0, "{report:?}");
    }
    // Nothing is due to what happened to a connection before.
    assert!(report.bytes_talked - report.bytes_established < 8.0, "{report:?}");
}

#[test]
fn a_storm_of_short_connections_leaves_nothing_whoever_closes_first() {
    let _alone = ALONE.lock();
    for client_closes in [true, false] {
        let what = Storm { connections: 50_000, wave: 500, client_closes };
        let report = storm(&what).unwrap();
        assert_eq!(report.answered_bytes, 50_000 * 64);
        assert!(report.reuses > 10_000, "{what:?} {report:?}");
        assert!(report.refused > 1_000, "{what:?} {report:?}");
    }
}
