//! Whole-system tests: real programs in network namespaces, on engines of their own.
//!
//! [`world`], [`joined`] and [`beside`] make the hosts and engines, [`cases`] holds the programs and their
//! loads. The tests need root; without it they skip.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

use std::sync::{Mutex, MutexGuard};

pub mod beside;
pub mod cases;
pub mod held;
pub mod interfaces;
pub mod joined;
pub mod mpi;
pub mod sharing;
pub mod world;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Permission to run `test`, one at a time because the tests share the machine's cores; `None`
/// without root: the test is skipped.
pub fn turn(test: &str) -> Option<MutexGuard<'static, ()>> {
    if !skips::is_root(test) {
        return None;
    }
    Some(ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
}

fn seconds_from(variable: &str, otherwise: u32) -> u32 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Seconds of load of each program: `$OUTBOARD_TEST_SECONDS`, or 6.
pub fn load_seconds() -> u32 {
    seconds_from("OUTBOARD_TEST_SECONDS", 6)
}

/// Seconds that soaks take: `$SOAK_SECONDS`, or 600.
pub fn soak_seconds() -> u32 {
    seconds_from("SOAK_SECONDS", 600)
}

/// Seconds of load of each program that shares its connections: `$PROGRAM_SECONDS`, or 30.
pub fn program_seconds() -> u32 {
    seconds_from("PROGRAM_SECONDS", 30)
}
