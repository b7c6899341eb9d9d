//! Threads of the program that are cancelled (pthread_cancel) while they wait in the layer.
//!
//! A thread must not end in the middle of the layer, which holds locks and owes others news. So what
//! the layer asks of the kernel are no cancellation points, and who waits is told: the call comes
//! back with ECANCELED, and the thread ends where nothing of the layer is on its stack any more.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};

use super::signals::Undisturbed;
use super::socket::held;
use super::waiter::Waiter;
use super::{Era, Sockets};

thread_local! {
    /// How often threads had been cancelled when this one last looked, and was not to end.
    static SEEN: Cell<usize> = const { Cell::new(0) };
}

/// Who may have to be woken, and who is to end.
#[derive(Debug, Default)]
pub(super) struct Cancelled {
    /// By what threads wait: each by its own, and several by an epoll set's.
    waiters: Mutex<Vec<(Option<usize>, Weak<Waiter>)>>,
    /// Threads that were cancelled, and have made no call since: some never will.
    threads: Mutex<Vec<usize>>,
}

impl Cancelled {
    /// A thread waits by this one from now on, or where none is named any may.
    pub fn know(&self, thread: Option<usize>, waiter: &Arc<Waiter>) {
        let _undisturbed = Undisturbed::begin();
        let mut waiters = held(self.waiters.lock());
        if waiters.len() == waiters.capacity() {
            waiters.retain(|(_, waiter)| waiter.strong_count() > 0);
        }
        waiters.push((thread, Arc::downgrade(waiter)));
    }

    /// By what a thread may be waiting.
    fn waiters_of(&self, thread: usize) -> Vec<Arc<Waiter>> {
        let waiters = held(self.waiters.lock());
        let its = waiters.iter().filter(|(other, _)| other.is_none_or(|other| other == thread));
        its.filter_map(|(_, waiter)| waiter.upgrade()).collect()
    }
}

impl Sockets {
    /// Whether the program may cancel threads: until then nobody looks for it.
    #[inline]
    pub fn may_cancel(&self) -> bool {
        self.cancels.load(Ordering::Relaxed)
    }

    /// The program may cancel threads from now on.
    pub fn begin_cancelling(&self) {
        self.cancels.store(true, Ordering::SeqCst);
    }

    /// Cancels another thread, by `cancel`, and wakes it where it waits.
    pub fn cancel(&self, thread: usize, cancel: impl FnOnce() -> i32) -> i32 {
        let Some(era) = self.era() else { return cancel() };
        let _undisturbed = Undisturbed::always(self.kernel);
        // Held until it is cancelled: whoever finds itself here has been, and whoever is new under an old
        // number is not here.
        let mut threads = held(era.cancelled.threads.lock());
        if !threads.contains(&thread) {
            threads.push(thread);
        }
        self.cancellings.fetch_add(1, Ordering::SeqCst);
        let told = cancel();
        drop(threads);
        for waiter in era.cancelled.waiters_of(thread) {
            waiter.rouse(self.kernel);
        }
        told
    }

    /// This thread makes a call: was it cancelled, it ends at once, or has begun to end.
    pub fn calls(&self) {
        let (Some(era), Some(cancellings)) = (self.era(), self.unseen_cancellings()) else {
            return;
        };
        // A handler of the program's makes calls, too, and would wait for its own thread's lock.
        let _undisturbed = Undisturbed::always(self.kernel);
        let thread = self.kernel.thread();
        held(era.cancelled.threads.lock()).retain(|&other| other != thread);
        SEEN.set(cancellings);
    }

    /// Whether this thread was cancelled in this call, and does not put it off.
    pub(super) fn is_cancelled(&self, era: &Era) -> bool {
        let Some(cancellings) = self.unseen_cancellings() else { return false };
        let _undisturbed = Undisturbed::always(self.kernel);
        let is_meant = held(era.cancelled.threads.lock()).contains(&self.kernel.thread());
        if !is_meant {
            SEEN.set(cancellings);
        }
        is_meant && self.kernel.lets_cancel()
    }

    /// How often threads have been cancelled, if this one has not looked since.
    fn unseen_cancellings(&self) -> Option<usize> {
        let cancellings = self.cancellings.load(Ordering::SeqCst);
        (cancellings != SEEN.get()).then_some(cancellings)
    }
}
