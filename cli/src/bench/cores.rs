//! The two cores of an experiment.

use lab::failure::{Explain, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::measure::say;

/// Turns of a waiting loop before it yields: on a shared core the other side may not be running.
const SPINS: u32 = 2000;

/// Which core has whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cores {
    /// The program's.
    pub program: usize,
    /// The engine's.
    pub engine: usize,
}

impl Cores {
    /// The first two that this process may use; none where there is one only, which a user reads of.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn find(experiment: &str) -> Result<Option<Self>> {
        let mine = sched_getaffinity(None).explain("cannot ask for the cores", "report this")?;
        let mut found = (0..CpuSet::MAX_CPU).filter(|core| mine.is_set(*core));
        let cores = found.next().zip(found.next());
        if cores.is_none() {
            say(&format!(
                "{experiment}: skipped: program and engine need a core each, and this process may use one \
                 only; allow it a second one (taskset, cgroup)"
            ));
        }
        Ok(cores.map(|(program, engine)| Self { program, engine }))
    }
}

/// Runs two threads, each on its core, to their ends.
///
/// # Errors
/// What either fails with, and when a core is refused.
pub fn on_both<A: Send, B: Send>(
    cores: Cores,
    program: impl FnOnce() -> Result<A> + Send,
    engine: impl FnOnce() -> Result<B> + Send,
) -> Result<(A, B)> {
    std::thread::scope(|scope| {
        let other = scope.spawn(move || {
            pin(cores.engine)?;
            engine()
        });
        let own = scope.spawn(move || {
            pin(cores.program)?;
            program()
        });
        let own = own.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let other = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((own?, other?))
    })
}

/// Runs `work` on a thread of its own on the program's core.
///
/// # Errors
/// What it fails with, and when the core is refused.
pub fn as_program<T: Send>(cores: Cores, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    on_both(cores, work, || Ok(())).map(|(done, ())| done)
}

/// Moves this thread to a core.
///
/// # Errors
/// When the core is refused.
pub fn pin(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set)
        .explain(format!("cannot run on core {core}"), "allow this process that core")
}

/// A loop that waits: it spins, then yields.
#[derive(Debug, Default)]
pub struct Waiting {
    spins: u32,
}

impl Waiting {
    /// Nothing has come.
    pub fn more(&mut self) {
        self.spins += 1;
        match self.spins.is_multiple_of(SPINS) {
            true => std::thread::yield_now(),
            false => std::hint::spin_loop(),
        }
    }
}
