//! In a process of its own, as the question is asked for all of it.

use std::sync::atomic::{AtomicUsize, Ordering};

use outboard_client::memory::{Access, ask_by, forget, forget_all, is_usable, usable};

const PAGE: usize = 4096;
/// Pages that are remembered.
const SLOTS: usize = 8192;

static ASKED: AtomicUsize = AtomicUsize::new(0);

/// Pages below 10 can be written, those below 20 read.
fn question(address: usize, access: Access) -> bool {
    ASKED.fetch_add(1, Ordering::Relaxed);
    address / PAGE < if access == Access::Write { 10 } else { 20 }
}

#[test]
fn pages_are_asked_about_once_until_the_program_unmaps_some() {
    ask_by(question);
    let asked = |from: usize, len, access| {
        let before = ASKED.load(Ordering::Relaxed);
        (usable(from, len, access), ASKED.load(Ordering::Relaxed) - before)
    };
    assert_eq!(asked(5 * PAGE, 2 * PAGE, Access::Write), (2 * PAGE, 2));
    assert_eq!(asked(5 * PAGE + 1, PAGE, Access::Write), (PAGE, 0));
    assert_eq!(asked(5 * PAGE + 1, PAGE, Access::Read), (PAGE, 0));
    assert_eq!(asked(9 * PAGE - 1, PAGE + 2, Access::Write), (PAGE + 1, 3));
    assert_eq!(asked(18 * PAGE - 1, usize::MAX, Access::Read), (2 * PAGE + 1, 4));
    // What can be read need not be writable, and is asked about again.
    assert_eq!(asked(18 * PAGE, 1, Access::Write), (0, 1));
    assert_eq!(asked(18 * PAGE, 0, Access::Write), (0, 0));
    // Another page with the same place.
    assert_eq!(asked((5 + SLOTS) * PAGE, 1, Access::Read), (0, 1));
    // A page that is unmapped leaves the others known.
    forget(6 * PAGE, PAGE);
    assert_eq!(asked(5 * PAGE, 2 * PAGE, Access::Read), (2 * PAGE, 1));
    forget_all();
    assert_eq!(asked(5 * PAGE, 1, Access::Read), (1, 1));
    assert!(!is_usable(20 * PAGE - 1, 2, Access::Read));
}
