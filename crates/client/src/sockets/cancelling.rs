//! Threads of the program that are cancelled (pthread_cancel) while they wait in the layer.
//!
//! A thread must not end inside the layer, which holds locks and has wakeups to deliver. So the
//! layer's system calls are not cancellation points, and a cancelled waiter is woken: its call
//! returns ECANCELED, and the thread ends outside the layer.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};

use super::signals::Undisturbed;
use super::socket::held;
use super::waiter::Waiter;
use super::{Era, Sockets};

thread_local! {
    /// The number of cancellations when this thread last checked and was not cancelled.
    static SEEN: Cell<usize> = const { Cell::new(0) };
}

/// Waiters to wake, and threads to end.
#[derive(Debug, Default)]
pub(super) struct Cancelled {
    /// The waiter of each thread, and the shared ones of epoll sets.
    waiters: Mutex<Vec<(Option<usize>, Weak<Waiter>)>>,
    /// Threads that were cancelled and have made no call since; some never will.
    threads: Mutex<Vec<usize>>,
}

impl Cancelled {
    /// A thread, or any if none is given, waits by this waiter from now on.
    pub fn know(&self, thread: Option<usize>, waiter: &Arc<Waiter>) {
        let _undisturbed = Undisturbed::begin();
        let mut waiters = held(self.waiters.lock());
        if waiters.len() == waiters.capacity() {
            waiters.retain(|(_, waiter)| waiter.strong_count() > 0);
        }
        waiters.push((thread, Arc::downgrade(waiter)));
    }

    /// The waiters of a thread.
    fn waiters_of(&self, thread: usize) -> Vec<Arc<Waiter>> {
        let waiters = held(self.waiters.lock());
        let its = waiters.iter().filter(|(other, _)| other.is_none_or(|other| other == thread));
        its.filter_map(|(_, waiter)| waiter.upgrade()).collect()
    }
}

impl Sockets {
    /// Whether the program may cancel threads; until then none is checked.
    #[inline]
    pub fn may_cancel(&self) -> bool {
        self.cancels.load(Ordering::Relaxed)
    }

    /// The program may cancel threads from now on.
    pub fn begin_cancelling(&self) {
        self.cancels.store(true, Ordering::SeqCst);
    }

    /// Cancels another thread with `cancel`, and wakes it if it waits.
    pub fn cancel(&self, thread: usize, cancel: impl FnOnce() -> i32) -> i32 {
        let Some(era) = self.era() else { return cancel() };
        let _undisturbed = Undisturbed::always(self.kernel);
        // Held until it is cancelled: a thread that finds its number here was cancelled, and a new
        // thread with a reused number is not listed.
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

    /// This thread makes a call: if it was cancelled, it ends now.
    pub fn calls(&self) {
        let (Some(era), Some(cancellings)) = (self.era(), self.unseen_cancellings()) else {
            return;
        };
        // The program's handlers make calls, too, and would wait for a lock of their own thread.
        let _undisturbed = Undisturbed::always(self.kernel);
        let thread = self.kernel.thread();
        held(era.cancelled.threads.lock()).retain(|&other| other != thread);
        SEEN.set(cancellings);
    }

    /// Whether this thread was cancelled in this call, and cancellation is enabled.
    pub(super) fn is_cancelled(&self, era: &Era) -> bool {
        let Some(cancellings) = self.unseen_cancellings() else { return false };
        let _undisturbed = Undisturbed::always(self.kernel);
        let is_meant = held(era.cancelled.threads.lock()).contains(&self.kernel.thread());
        if !is_meant {
            SEEN.set(cancellings);
        }
        is_meant && self.kernel.lets_cancel()
    }

    /// The number of cancellations, if it has changed since this thread checked.
    fn unseen_cancellings(&self) -> Option<usize> {
        let cancellings = self.cancellings.load(Ordering::SeqCst);
        (cancellings != SEEN.get()).then_some(cancellings)
    }
}
