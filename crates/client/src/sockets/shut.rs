//! shutdown(2): what a program has shut down. As in the kernel, of UDP sockets it only ends the program's part:
//! what is written fails with EPIPE, without a signal, and reading waits no more, though datagrams that come can be
//! read. Of connections the endpoint knows the same; here it is for who gets the connection.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::net::Shutdown;

use super::socket::Socket;
use super::{Sockets, Verdict};

/// Directions that are shut down, for good.
#[derive(Debug, Default)]
pub(super) struct Shut {
    read: AtomicBool,
    write: AtomicBool,
}

impl Shut {
    pub fn is_read(&self) -> bool {
        self.read.load(Ordering::Relaxed)
    }

    pub fn is_written(&self) -> bool {
        self.write.load(Ordering::Relaxed)
    }

    /// Shuts a direction, or both.
    pub fn shut(&self, how: Shutdown) {
        if matches!(how, Shutdown::Read | Shutdown::Both) {
            self.read.store(true, Ordering::Relaxed);
        }
        if matches!(how, Shutdown::Write | Shutdown::Both) {
            self.write.store(true, Ordering::Relaxed);
        }
    }
}

impl Sockets {
    /// shutdown(2) of a UDP socket. Its kernel side reports it to poll.
    pub(super) fn shut_datagrams(&self, socket: &Socket, fd: RawFd, how: i32) -> Verdict<()> {
        let how = match how {
            libc::SHUT_RD => Shutdown::Read,
            libc::SHUT_WR => Shutdown::Write,
            libc::SHUT_RDWR => Shutdown::Both,
            // The kernel refuses it.
            _ => return Verdict::Kernel,
        };
        socket.shut.shut(how);
        // Wakes threads that wait only for the engine's side.
        socket.notify(self.kernel);
        if !socket.has_peer_of_its_own() {
            return Verdict::Kernel;
        }
        self.kernel.lend(fd, &mut |kernel| {
            // It does so, but returns ENOTCONN: the missing peer is not the program's concern.
            let _ = rustix::net::shutdown(kernel, how);
        });
        Verdict::Done(Ok(()))
    }
}
