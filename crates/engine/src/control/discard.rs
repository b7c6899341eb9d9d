//! Descriptors that clients pass and that are no use to us. Closing one may wait for whoever is
//! behind it (a lingering connection, a file system of the client's own making), and must
//! therefore never be done by the thread that serves all others.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::thread::CapabilitySet;

use crate::privileges;

/// Closings that may be waiting at a time.
const WAITING_MAX: usize = 64;

/// Closes descriptors beside the control thread.
#[derive(Clone, Debug, Default)]
pub struct Discard {
    waiting: Arc<AtomicUsize>,
}

impl Discard {
    /// Closes `fds` without waiting. With as many closings under way as may be, this thread
    /// closes them itself.
    pub fn close(&self, fds: Vec<OwnedFd>) {
        if fds.is_empty() {
            return;
        }
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            for fd in &fds {
                // Of what is no socket there is nothing to be set.
                let _ = rustix::net::sockopt::set_socket_linger(fd, None);
            }
            return;
        }
        let waiting = Arc::clone(&self.waiting);
        let closing = move || {
            privileges::keep_or_warn(CapabilitySet::empty());
            drop(fds);
            waiting.fetch_sub(1, Ordering::Relaxed);
        };
        // A machine that gives us no thread has the descriptors closed right here.
        let _ = std::thread::Builder::new().name("outboard-close".into()).spawn(closing);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::time::Duration;

    use rustix::net::sockopt;

    use super::*;

    #[test]
    fn a_lingering_connection_does_not_keep_the_thread_that_discards_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        near.set_nonblocking(true).unwrap();
        while near.write(&[0; 1 << 16]).is_ok() {}
        sockopt::set_socket_linger(near.as_fd(), Some(Duration::from_secs(3600))).unwrap();
        let discard = Discard::default();
        discard.close(vec![near.into()]);
        // Here at once; the closing itself ends with the reset.
        drop((far, listener));
        while discard.waiting.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
    }
}
