//! connect(2) with AF_UNSPEC: ends a connection, or a listener, so that the same number can make
//! another one.
//!
//! A socket becomes a connection once and for all, so that reads and writes need not check twice.
//! Here another socket takes its place under all its numbers, with its options and its waiters.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::calls::SocketCall;
use super::socket::{Connection, Disconnected, Socket, held};
use super::table::Entry;
use super::{Era, Errno, Sockets, Verdict};
use crate::Readiness;

impl Sockets {
    /// Ends a connection with a reset, as the kernel's tcp_disconnect does, and leaves a socket
    /// that can be connected again. An address that was bound, or inherited from a listener, stays.
    /// A thread that waits in connect gets the error `told`.
    pub(super) fn disconnect(
        &'static self,
        era: &Era,
        socket: &Arc<Socket>,
        connection: &Connection,
        told: Errno,
    ) -> Result<(), Errno> {
        let numbers = socket.numbers();
        let watches = socket.interests();
        let fresh = Arc::new(socket.disconnected());
        // An accepted connection's numbers do not refer to a kernel socket of its own: from now on
        // they do.
        let own = socket.was_accepted().then(|| self.kernel.inert(socket.v6)).transpose()?;
        let stood = !connection.endpoint.readiness_among(Readiness::HUP).contains(Readiness::HUP);
        fresh.was_reset.store(stood, Ordering::Relaxed);
        // Before the end, which wakes that thread.
        let _ = connection.disconnected.set(Disconnected { told, fresh: fresh.clone() });
        connection.endpoint.abort();
        let local = connection.endpoint.local();
        fresh.last_port.store(local.port(), Ordering::Relaxed);
        let local = local.ip();
        // The old socket is released with its last number. A number that another thread closes
        // meanwhile has no owner.
        let is_old =
            |entry: &Entry| matches!(entry, Entry::Socket(old) if Arc::ptr_eq(old, socket));
        for &number in &numbers {
            let exchanged = era.table.exchange(number, is_old, || {
                let identity = match own {
                    Some(own) => {
                        self.kernel.replace(own, number)?;
                        self.identity(number)
                    }
                    None => era.table.identity(number),
                };
                fresh.add_number(number);
                Ok((Entry::Socket(fresh.clone()), identity))
            });
            if let Ok(Some(old)) = exchanged {
                self.let_go(era, number, old, false);
            }
        }
        if let Some(own) = own {
            self.kernel.close(own);
        }
        let Some(first) = fresh.number() else { return Ok(()) };
        self.restore_options(&fresh, first);
        fresh.owner.restore(first, self.kernel);
        self.restore_flags(first, &fresh);
        if socket.was_accepted()
            && socket.bound.load(Ordering::Relaxed)
            && let Verdict::Done(outcome) = self.bind(first, fresh.dressed((local, 0).into()))
        {
            outcome?;
        }
        let numbers = fresh.numbers();
        for (epoll, fd, event) in watches {
            // The number under which it was made may be closed while another is open.
            let known = if numbers.contains(&fd) { Ok(fd) } else { self.hidden_copy(era, first) };
            let call = SocketCall { era, socket: &fresh, fd };
            let again = known.and_then(|number| self.add_interest(call, &epoll, number, event));
            if let Err(error) = again {
                self.notice_lost_interest(fd, error);
            }
        }
        Ok(())
    }

    /// The kernel's side of a listener is about to be disconnected; the engine's side ends here.
    pub(super) fn stop_listening(&self, era: &Era, socket: &Arc<Socket>, fd: RawFd) {
        self.leave_engine(socket);
        *held(socket.listening.write()) = None;
        era.link.forget(socket);
        if socket.forced_nonblocking() {
            socket.force_nonblocking(false);
            self.restore_flags(fd, socket);
        }
    }
}
