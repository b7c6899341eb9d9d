//! Many scripts at once: each host has its own time, so that they do not mind each other.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::errors::RunError;
use crate::ours::{Ours, Settings};
use crate::run::run;
use crate::script::Script;
use crate::system::LOCAL6;

/// Threads for each core: the threads of one script wait for each other most of the time.
const THREADS_PER_CORE: usize = 4;

/// Runs a script against our stack.
///
/// # Errors
/// If the stack lacks a setting of the script, or where the script did not go as written.
pub fn against_us(script: &Script) -> Result<(), RunError> {
    let mut settings =
        Settings { mtu: script.mtu, sysctls: script.settings.clone(), ..Settings::default() };
    if script.version.has_v6_sockets() {
        settings.addresses.push((LOCAL6.into(), 64));
    }
    let mut ours = Ours::new(&settings)?;
    run(script, &mut ours)
}

/// Runs scripts against our stack; what each came to, in their order.
pub fn all_against_us(scripts: &[Script]) -> Vec<Result<(), RunError>> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(vec![Ok(()); scripts.len()]);
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    std::thread::scope(|scope| {
        for _ in 0..cores * THREADS_PER_CORE {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(script) = scripts.get(index) else { return };
                    let outcome = against_us(script);
                    sim::port::locked(&outcomes)[index] = outcome;
                }
            });
        }
    });
    outcomes.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}
