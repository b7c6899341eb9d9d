//! What the engine's threads may still do once it runs. Capabilities are a thread's own: the
//! worker, which reads what the network and the clients send, keeps none.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities,
};

/// What the control thread needs where a port shares its interface with the kernel: telling the
/// kernel that a neighbour is in use.
pub const CONTROL: CapabilitySet = CapabilitySet::NET_ADMIN;

/// Keeps, of the capabilities that the calling thread has, only these; nothing is handed on to
/// programs that it starts.
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

/// The same for a thread of the engine, which goes on with what it has should the kernel refuse.
pub(crate) fn keep_or_warn(wanted: CapabilitySet) {
    if let Err(error) = keep(wanted) {
        tracing::warn!("the engine cannot drop its capabilities ({error}); it keeps them");
    }
}

/// Does `work` on a thread without capabilities, and waits for it. The threads that it starts have
/// none either.
///
/// # Errors
/// When there is no thread to be had.
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
