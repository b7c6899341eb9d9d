//! Privileges of the engine's threads. Capabilities are per thread: the worker, which reads data
//! from the network and from clients, keeps none.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities,
};

/// The control thread's capability where a port shares its interface with the kernel: it marks
/// neighbour entries as used.
pub const CONTROL: CapabilitySet = CapabilitySet::NET_ADMIN;

/// Drops all capabilities of the calling thread except these; programs that it starts inherit none.
pub fn keep(wanted: CapabilitySet) -> Result<(), Errno> {
    let permitted = capabilities(None)?.permitted & wanted;
    // Kernels before 4.3 have none, and nothing to clear.
    match clear_ambient_capability_set() {
        Ok(()) | Err(Errno::INVAL) => {}
        Err(error) => return Err(error),
    }
    set_capabilities(
        None,
        CapabilitySets { effective: permitted, permitted, inheritable: CapabilitySet::empty() },
    )
}

/// The same for a thread of the engine, which continues with what it has if the kernel refuses.
pub(crate) fn keep_or_warn(wanted: CapabilitySet) {
    if let Err(error) = keep(wanted) {
        tracing::warn!("the engine cannot drop its capabilities ({error}); it keeps them");
    }
}

/// Runs `work` on a thread without capabilities, and waits for it. Threads started by it have none
/// either.
///
/// # Errors
/// If no thread can be started.
pub(crate) fn without<T: Send>(work: impl FnOnce() -> T + Send) -> std::io::Result<T> {
    std::thread::scope(|scope| {
        let working = std::thread::Builder::new().spawn_scoped(scope, || {
            keep_or_warn(CapabilitySet::empty());
            work()
        })?;
        working.join().map_err(|_| std::io::Error::other("a thread has panicked"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_work_without_capabilities_have_none() {
        let held = without(|| std::thread::spawn(|| capabilities(None).unwrap()).join().unwrap());
        let held = held.unwrap();
        assert!(held.permitted.is_empty() && held.effective.is_empty());
    }

    #[test]
    fn a_thread_keeps_what_it_names_and_others_are_left_alone() {
        let before = capabilities(None).unwrap();
        let kept = std::thread::spawn(|| {
            keep(CONTROL).unwrap();
            let first = capabilities(None).unwrap();
            keep(CapabilitySet::empty()).unwrap();
            (first, capabilities(None).unwrap())
        });
        let (first, last) = kept.join().unwrap();
        assert_eq!(first.permitted, before.permitted & CONTROL);
        assert!(last.permitted.is_empty() && last.effective.is_empty());
        assert_eq!(capabilities(None).unwrap(), before);
    }
}
