//! The watchers of a socket's events.
//!
//! A handler of the program may interrupt its thread while that holds the list, and poll the same
//! socket: it must not wait for the lock. So every thread knows which lists it holds or is about to
//! take. A handler that finds its own thread's list cannot be woken, and polls periodically; its
//! notifications are delivered by its thread after the unlock.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use super::Kernel;
use super::epoll::{Epoll, Interest};
use super::signals::{Teller, Undisturbed};
use super::socket::{Socket, held};
use super::waiter::Waiter;

/// A watcher to be notified when the socket's readiness may have changed.
#[derive(Clone, Debug)]
pub(super) enum Watch {
    Epoll(Arc<Epoll>, Arc<Interest>),
    Thread(Arc<Waiter>),
    /// Its owner, which gets signals.
    Owner(Weak<Socket>, Arc<Teller>),
}

/// Maximum depth of handlers that interrupt each other here; a deeper one treats every list as its
/// own thread's.
const DEPTH: usize = 8;

/// The lists that a thread holds or is about to take, by address. A handler that interrupts it
/// restores this.
#[derive(Clone, Copy)]
struct Holds {
    lists: [usize; DEPTH],
    depth: usize,
}

thread_local! {
    static HOLDS: Cell<Holds> = const { Cell::new(Holds { lists: [0; DEPTH], depth: 0 }) };
    /// The kernel of a handler that could not deliver its notification.
    static MISSED_BY: Cell<Option<&'static dyn Kernel>> = const { Cell::new(None) };
}

/// A socket's list.
#[derive(Debug, Default)]
pub(super) struct WatchList {
    list: Mutex<Vec<Watch>>,
    /// A handler had a notification while its own thread held the list.
    missed: AtomicBool,
}

/// The list, locked; it is unlocked before handlers may run again.
pub(super) struct Watches<'a> {
    list: MutexGuard<'a, Vec<Watch>>,
    _hold: Hold<'a>,
    _undisturbed: Undisturbed,
}

impl Deref for Watches<'_> {
    type Target = Vec<Watch>;

    fn deref(&self) -> &Vec<Watch> {
        &self.list
    }
}

impl DerefMut for Watches<'_> {
    fn deref_mut(&mut self) -> &mut Vec<Watch> {
        &mut self.list
    }
}

/// From before the lock is taken until after it is released.
struct Hold<'a>(&'a WatchList);

impl<'a> Hold<'a> {
    fn begin(list: &'a WatchList) -> Self {
        let mut holds = HOLDS.get();
        if let Some(place) = holds.lists.get_mut(holds.depth) {
            *place = list.place();
        }
        holds.depth += 1;
        HOLDS.set(holds);
        Self(list)
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let mut holds = HOLDS.get();
        holds.depth -= 1;
        HOLDS.set(holds);
        if self.0.missed.swap(false, Ordering::SeqCst)
            && let Some(kernel) = MISSED_BY.get()
        {
            self.0.notify(kernel);
        }
    }
}

impl WatchList {
    fn place(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Waits for the lock.
    pub fn lock(&self) -> Watches<'_> {
        let undisturbed = Undisturbed::begin();
        let hold = Hold::begin(self);
        Watches { list: held(self.list.lock()), _hold: hold, _undisturbed: undisturbed }
    }

    /// The same, unless this is a handler that has interrupted its own thread here.
    pub fn try_lock(&self) -> Option<Watches<'_>> {
        let Holds { lists, depth } = HOLDS.get();
        let is_own = depth > DEPTH || lists.iter().take(depth).any(|list| *list == self.place());
        (!is_own).then(|| self.lock())
    }

    /// Notifies all watchers.
    pub fn notify(&self, kernel: &'static dyn Kernel) {
        let Some(list) = self.try_lock() else {
            MISSED_BY.set(Some(kernel));
            self.missed.store(true, Ordering::SeqCst);
            return;
        };
        let mut told = None;
        for watch in &*list {
            match watch {
                Watch::Epoll(epoll, interest) => epoll.mark_ready(interest, kernel),
                Watch::Thread(waiter) => waiter.wake(kernel),
                Watch::Owner(socket, teller) => told = Some((socket.clone(), teller.clone())),
            }
        }
        drop(list);
        // Its handler may run at once, and take the lock of the list.
        if let Some((socket, teller)) = told {
            teller.note(&socket, kernel);
        }
    }

    /// Adds a thread; false if it is a handler that cannot be added.
    pub fn add_thread(&self, waiter: &Arc<Waiter>) -> bool {
        self.try_lock().map(|mut list| list.push(Watch::Thread(waiter.clone()))).is_some()
    }

    /// Removes a thread.
    pub fn remove_thread(&self, waiter: &Arc<Waiter>) {
        // A thread that could not be added is not there.
        let Some(mut list) = self.try_lock() else { return };
        let at = list
            .iter()
            .position(|watch| matches!(watch, Watch::Thread(other) if Arc::ptr_eq(other, waiter)));
        if let Some(at) = at {
            list.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Notebook;
    use super::*;

    #[test]
    fn a_handler_that_finds_its_own_threads_list_is_not_told_and_tells_later() {
        let kernel = Notebook::leaked();
        let watches = WatchList::default();
        let (thread, handler) = (Arc::new(Waiter::new(-1)), Arc::new(Waiter::new(-1)));
        assert!(watches.add_thread(&thread));
        let interrupted = watches.lock();
        // What a handler does that polls the socket at this moment.
        assert!(!watches.add_thread(&handler));
        watches.notify(kernel);
        watches.remove_thread(&handler);
        assert!(!thread.is_signalled());
        drop(interrupted);
        assert!(thread.is_signalled(), "its thread tells what the handler could not");
        // Another list is no matter, nor is this one to another thread.
        let other = WatchList::default();
        let _interrupted = watches.lock();
        assert!(other.add_thread(&handler));
        let elsewhere =
            std::thread::scope(|scope| scope.spawn(|| HOLDS.get().depth).join().expect("no panic"));
        assert_eq!(elsewhere, 0);
    }

    #[test]
    fn handlers_deeper_than_is_kept_count_of_wait_for_no_list() {
        let lists: Vec<WatchList> = (0..=DEPTH).map(|_| WatchList::default()).collect();
        let held: Vec<_> = lists.iter().map(WatchList::lock).collect();
        assert!(WatchList::default().try_lock().is_none());
        drop(held);
        assert!(lists.iter().all(|list| list.try_lock().is_some()));
    }
}
