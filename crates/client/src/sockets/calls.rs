//! Calls in progress. A kernel call holds its file: when another thread closes the last descriptor
//! meanwhile, the call continues, and the file is released when it returns. A call that waits in
//! this layer does the same: the socket gets a hidden descriptor, which the last call closes.

use std::cell::Cell;
use std::ops::Deref;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use super::socket::Socket;
use super::{Era, Errno, Sockets};

/// Set while calls hold a hidden descriptor.
const HOLDS: u32 = 1 << 31;

/// A socket's calls in progress.
#[derive(Debug)]
pub(super) struct Calls {
    /// Their number, and [`HOLDS`].
    state: AtomicU32,
    /// The hidden descriptor, or -1.
    hidden: AtomicI32,
}

impl Default for Calls {
    fn default() -> Self {
        Self { state: AtomicU32::new(0), hidden: AtomicI32::new(-1) }
    }
}

impl Calls {
    /// Whether more than `own` are in progress.
    fn exceed(&self, own: u32) -> bool {
        self.state.load(Ordering::Acquire) & !HOLDS > own
    }

    /// The calls hold a descriptor from now on; `false` if there are no more than `own`.
    fn hold(&self, hidden: RawFd, own: u32) -> bool {
        self.hidden.store(hidden, Ordering::Release);
        let holds = |state: u32| (state & !HOLDS > own).then_some(state | HOLDS);
        let held = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, holds);
        if held.is_err() {
            self.hidden.store(-1, Ordering::Release);
        }
        held.is_ok()
    }

    /// A call ends; returns the descriptor to close if it is the last that holds one.
    fn leave(&self) -> Option<RawFd> {
        let before = self.state.fetch_sub(1, Ordering::AcqRel);
        (before == HOLDS | 1).then(|| self.hidden.swap(-1, Ordering::AcqRel)).filter(|fd| *fd >= 0)
    }
}

thread_local! {
    /// The socket of this thread's innermost call, and the number of the thread's calls on it: more
    /// than one if a signal handler interrupted another call.
    static INNERMOST: Cell<(usize, u32)> = const { Cell::new((0, 0)) };
}

/// Identifies a socket.
fn name_of(socket: &Arc<Socket>) -> usize {
    Arc::as_ptr(socket).addr()
}

/// A call in progress.
pub(super) struct Call {
    socket: Arc<Socket>,
    sockets: &'static Sockets,
    outer: (usize, u32),
}

impl Deref for Call {
    type Target = Arc<Socket>;

    fn deref(&self) -> &Arc<Socket> {
        &self.socket
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // A thread that ends makes no more calls.
        let _ = INNERMOST.try_with(|innermost| innermost.set(self.outer));
        if let Some(hidden) = self.socket.calls.leave()
            && let Some(era) = self.sockets.era()
        {
            self.sockets.release_socket(era, hidden, &self.socket, true);
            self.sockets.unhide_number(era, hidden);
        }
    }
}

/// What a call is made on.
#[derive(Clone, Copy)]
pub(super) struct SocketCall<'a> {
    /// The era that it is made in.
    pub era: &'a Era,
    /// The socket.
    pub socket: &'a Arc<Socket>,
    /// The number that the program named.
    pub fd: RawFd,
}

impl Sockets {
    /// A call begins, while its number's entry is locked: a concurrent close happens before, or
    /// sees the call.
    pub(super) fn enter(&'static self, socket: &Arc<Socket>) -> Call {
        socket.calls.state.fetch_add(1, Ordering::AcqRel);
        let name = name_of(socket);
        let outer = INNERMOST.try_with(|innermost| {
            let outer = innermost.get();
            let before = if outer.0 == name { outer.1 } else { 0 };
            innermost.set((name, before + 1));
            outer
        });
        Call { socket: socket.clone(), sockets: self, outer: outer.unwrap_or_default() }
    }

    /// A number of a socket is about to be closed. If it is the last one, the calls of other
    /// threads keep the socket open by a hidden number. Calls of this thread do not count: a signal
    /// handler closes in the middle of them, and the kernel would restart such a call with a closed
    /// number.
    pub(super) fn keep_for_calls(&self, era: &Era, fd: RawFd, socket: &Arc<Socket>) {
        let (name, count) = INNERMOST.try_with(Cell::get).unwrap_or_default();
        let own = if name == name_of(socket) { count } else { 0 };
        if !socket.calls.exceed(own) || socket.numbers() != [fd] {
            return;
        }
        // Without a spare descriptor, the calls end with the socket.
        let Ok(hidden) = self.hidden_copy(era, fd) else { return };
        socket.add_number(hidden);
        if !socket.calls.hold(hidden, own) {
            socket.remove_number(hidden);
            self.unhide_number(era, hidden);
        }
    }

    /// The socket of a call that may wait; see [`Sockets::called`].
    pub(super) fn entered(&'static self, fd: RawFd) -> Result<Option<Call>, Errno> {
        self.looked_up(fd, |socket| self.enter(socket))
    }

    /// Closes a descriptor of the layer's own.
    pub(super) fn unhide_number(&self, era: &Era, hidden: RawFd) {
        era.table.take(hidden);
        self.kernel.close(hidden);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_call_closes_what_the_calls_hold() {
        let calls = Calls::default();
        calls.state.fetch_add(2, Ordering::Relaxed);
        assert!(calls.exceed(1) && !calls.exceed(2));
        assert!(!calls.hold(7, 2), "they are the closer's own");
        assert!(calls.hold(7, 0));
        assert_eq!(calls.leave(), None);
        assert_eq!(calls.leave(), Some(7));
    }

    #[test]
    fn calls_that_hold_nothing_close_nothing() {
        let calls = Calls::default();
        calls.state.fetch_add(1, Ordering::Relaxed);
        assert_eq!(calls.leave(), None);
        assert!(!calls.hold(7, 0), "there is none any more");
    }
}
