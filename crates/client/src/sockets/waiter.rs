//! A waiter: a thread blocked in a call, or an epoll set with sleepers.

use std::cell::RefCell;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::sleepers::{Round, Sleepers};
use super::{Era, Errno, Kernel, Sockets};

/// Where the layer's own descriptors begin, out of the program's way.
pub(super) const OUT_OF_THE_WAY: RawFd = 900;

/// Wakes by an eventfd, and only if a thread sleeps on it.
#[derive(Debug)]
pub(super) struct Waiter {
    event_fd: RawFd,
    signalled: AtomicBool,
    sleepers: Sleepers,
    /// Waits of its thread in progress: more than one if a handler waits while it has interrupted
    /// another wait.
    begun: AtomicU32,
}

impl Waiter {
    /// A waiter over a new eventfd, which the caller hides and closes.
    pub fn new(event_fd: RawFd) -> Self {
        Self {
            event_fd,
            signalled: AtomicBool::new(false),
            sleepers: Sleepers::default(),
            begun: AtomicU32::new(0),
        }
    }

    /// The eventfd to sleep on.
    pub fn event_fd(&self) -> RawFd {
        self.event_fd
    }

    /// Something may have changed.
    pub fn wake(&self, kernel: &dyn Kernel) {
        let before = self.signalled.swap(true, Ordering::SeqCst);
        if !before && self.sleepers.any() {
            kernel.signal_event(self.event_fd);
        }
    }

    /// All sleepers must check for themselves: until the last of them has woken, the eventfd stays
    /// readable.
    pub fn rouse(&self, kernel: &dyn Kernel) {
        self.signalled.store(true, Ordering::SeqCst);
        if self.sleepers.rouse() {
            kernel.signal_event(self.event_fd);
        }
    }

    /// Other sleepers must check again: their event may have been taken unseen.
    pub fn pass_on(&self, kernel: &dyn Kernel) {
        self.signalled.store(true, Ordering::SeqCst);
        if self.sleepers.any() {
            kernel.signal_event(self.event_fd);
        }
    }

    /// Its thread begins to wait.
    pub fn begin(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    /// Its thread has waited. A wait that was interrupted by this one must check again: this one
    /// may have cleared or taken its event.
    pub fn end(&self, kernel: &dyn Kernel) {
        if self.begun.fetch_sub(1, Ordering::SeqCst) > 1 {
            self.pass_on(kernel);
        }
    }

    /// Whether it was signalled since [`Self::clear`].
    pub fn is_signalled(&self) -> bool {
        self.signalled.load(Ordering::SeqCst)
    }

    /// Clears the signal.
    pub fn clear(&self) {
        if self.signalled.load(Ordering::Relaxed) {
            self.signalled.store(false, Ordering::SeqCst);
        }
    }

    /// Announces a sleeper; `None` if it is already signalled (nothing is announced then).
    pub fn fall_asleep(&self, kernel: &dyn Kernel) -> Option<Round> {
        let round = self.sleepers.add();
        if self.is_signalled() {
            if self.sleepers.remove(round) {
                kernel.drain_event(self.event_fd);
            }
            return None;
        }
        Some(round)
    }

    /// Withdraws the announcement.
    pub fn awake(&self, round: Round, kernel: &dyn Kernel) {
        if self.sleepers.remove(round) {
            kernel.drain_event(self.event_fd);
        } else if self.is_signalled() {
            self.drain(kernel);
        }
    }

    /// Drains the eventfd, unless sleepers still have to wake by it.
    pub fn drain(&self, kernel: &dyn Kernel) {
        if !self.sleepers.are_roused() {
            kernel.drain_event(self.event_fd);
        }
    }

    /// Handles the result of poll for the eventfd. It may have been signalled late, for a sleep
    /// that had already ended, and every later sleep would end at once.
    pub fn found(&self, revents: i16, kernel: &dyn Kernel) {
        if revents != 0 && !self.is_signalled() {
            self.drain(kernel);
        }
    }
}

/// A thread's own waiter, with what is needed to close it when the thread ends.
struct Own {
    waiter: Arc<Waiter>,
    sockets: &'static Sockets,
    era: u32,
}

impl Drop for Own {
    fn drop(&mut self) {
        if self.sockets.era.load(Ordering::Relaxed) != self.era {
            return;
        }
        if let Some(era) = self.sockets.era() {
            era.table.take(self.waiter.event_fd());
        }
        self.sockets.kernel.close(self.waiter.event_fd());
    }
}

thread_local! {
    static OWN: RefCell<Option<Own>> = const { RefCell::new(None) };
}

impl Sockets {
    /// A hidden eventfd with a high number.
    pub(super) fn hidden_event(&self, era: &Era) -> Result<RawFd, Errno> {
        let low = self.kernel.event_fd()?;
        let fd = self.lift(low);
        self.hide(era, fd);
        Ok(fd)
    }

    /// Moves a descriptor of the layer to a high number, out of the program's way.
    pub(super) fn lift(&self, low: RawFd) -> RawFd {
        match self.kernel.duplicate(low, OUT_OF_THE_WAY, true) {
            Ok(high) => {
                self.kernel.close(low);
                high
            }
            // The limit on open files is low: it keeps its number.
            Err(_) => low,
        }
    }

    /// This thread's waiter.
    pub(super) fn own_waiter(&'static self, era: &Era) -> Result<Arc<Waiter>, Errno> {
        let now = self.era.load(Ordering::Relaxed);
        let made = OWN.try_with(|own| {
            // A handler has interrupted this function.
            let mut own = own.try_borrow_mut().map_err(|_| Errno::INTR)?;
            if let Some(own) = own.as_ref().filter(|own| own.era == now) {
                return Ok(own.waiter.clone());
            }
            let waiter = Arc::new(Waiter::new(self.hidden_event(era)?));
            era.cancelled.know(Some(self.kernel.thread()), &waiter);
            *own = Some(Own { waiter: waiter.clone(), sockets: self, era: now });
            Ok(waiter)
        });
        // The thread is ending: its calls cannot block any more.
        made.unwrap_or(Err(Errno::INTR))
    }
}
