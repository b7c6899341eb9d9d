//! connect(2) to no address (AF_UNSPEC): ends a connection, or a listener, so that the same number can
//! make another one.
//!
//! A socket becomes a connection once and for all, so that what reads and writes need not look twice.
//! Here another socket takes its place under all its numbers, with its options and those who wait.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::socket::{Connection, Socket, held};
use super::table::Entry;
use super::{Era, Errno, Sockets, Verdict};
use crate::Readiness;

impl Sockets {
    /// Ends a connection with a reset, as the kernel's tcp_disconnect does, and leaves a socket that
    /// can be connected anew. An address that was bound, or inherited from a listener, stays.
    pub(super) fn disconnect(
        &'static self,
        era: &Era,
        socket: &Arc<Socket>,
        connection: &Connection,
    ) -> Result<(), Errno> {
        let numbers = socket.numbers();
        let watches = socket.interests();
        let fresh = Arc::new(socket.disconnected());
        if socket.was_accepted() {
            self.give_kernel_socket(socket, &numbers)?;
        }
        let stood = !connection.endpoint.readiness_among(Readiness::HUP).contains(Readiness::HUP);
        fresh.was_reset.store(stood, Ordering::Relaxed);
        connection.endpoint.abort();
        let local = connection.endpoint.local().ip();
        // With the last number, the old socket is let go of.
        for number in &numbers {
            self.place(era, *number, Entry::Socket(fresh.clone()));
        }
        if let Some(first) = numbers.first() {
            self.restore_options(&fresh, *first);
            self.set_kernel_nonblocking(*first, fresh.is_nonblocking());
            if socket.was_accepted()
                && socket.bound.load(Ordering::Relaxed)
                && let Verdict::Done(outcome) = self.bind(*first, fresh.dressed((local, 0).into()))
            {
                outcome?;
            }
        }
        for (epoll, fd, event) in watches {
            // Only the number of a set that was closed meanwhile is refused.
            let _ = self.add_interest(era, &epoll, fd, &fresh, event);
        }
        Ok(())
    }

    /// An accepted connection's numbers stand for no kernel socket of its own: from now on they do.
    fn give_kernel_socket(&self, socket: &Socket, numbers: &[RawFd]) -> Result<(), Errno> {
        let own = self.kernel.inert(socket.v6)?;
        let placed = numbers.iter().try_for_each(|number| self.kernel.replace(own, *number));
        self.kernel.close(own);
        placed
    }

    /// The kernel's part of a listener is about to be disconnected; the engine's ends here.
    pub(super) fn stop_listening(&self, era: &Era, socket: &Arc<Socket>, fd: RawFd) {
        self.leave_engine(socket);
        *held(socket.listening.write()) = None;
        era.link.forget(socket);
        if socket.forced_nonblocking() {
            socket.force_nonblocking(false);
            self.set_kernel_nonblocking(fd, socket.is_nonblocking());
        }
    }
}
