//! Closing of descriptors that clients pass and the engine does not use. Closing one may block on
//! the other end (a lingering connection, a client's own file system), so the thread that serves
//! all clients must never do it.
//!
//! A few threads close the pending descriptors. A user whose descriptors block occupies at most a
//! fixed share of the threads, and is no longer served when too many are pending.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::thread::CapabilitySet;

use crate::privileges;
use crate::stats::Counters;

/// Threads that close at a time.
const THREADS_MAX: usize = 64;
/// Threads that one user's descriptors may occupy.
const THREADS_PER_USER: usize = 8;
/// Descriptors of one user that may be pending.
const WAITING_PER_USER: usize = 256;

/// A user of whom only the connection is known.
pub const NOBODY: u32 = u32::MAX;

#[derive(Debug, Default)]
struct User {
    waiting: VecDeque<OwnedFd>,
    closing: usize,
}

#[derive(Debug, Default)]
struct Queue {
    users: BTreeMap<u32, User>,
    waiting: usize,
    threads: usize,
}

impl Queue {
    /// The next descriptor to close.
    fn next(&mut self) -> Option<(u32, OwnedFd)> {
        let free = |user: &User| user.closing < THREADS_PER_USER && !user.waiting.is_empty();
        let (uid, user) = self.users.iter_mut().find(|(_, user)| free(user))?;
        let fd = user.waiting.pop_front()?;
        user.closing += 1;
        self.waiting -= 1;
        Some((*uid, fd))
    }

    fn closed(&mut self, uid: u32) {
        if let Some(user) = self.users.get_mut(&uid) {
            user.closing -= 1;
            if user.closing == 0 && user.waiting.is_empty() {
                self.users.remove(&uid);
            }
        }
    }
}

/// Closes descriptors on other threads.
#[derive(Clone, Debug)]
pub struct Discard {
    queue: Arc<Mutex<Queue>>,
    counters: Arc<Counters>,
}

fn locked(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    // No thread panics while holding it.
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Discard {
    /// Counts the pending descriptors.
    pub fn new(counters: Arc<Counters>) -> Self {
        Self { queue: Arc::default(), counters }
    }

    /// Queues descriptors sent by user `uid` for closing. `false`: so many of the user's are
    /// pending that the user must not be served any more; these are closed eventually, too.
    #[must_use]
    pub fn close(&self, uid: u32, fds: Vec<OwnedFd>) -> bool {
        let count = fds.len();
        if count == 0 {
            return true;
        }
        let mut queue = locked(&self.queue);
        queue.waiting += count;
        let user = queue.users.entry(uid).or_default();
        user.waiting.extend(fds);
        let is_within = user.waiting.len() <= WAITING_PER_USER;
        if !is_within {
            self.counters.discards_refused.increment();
        }
        self.note(&queue);
        for _ in 0..count.min(THREADS_PER_USER) {
            if queue.threads >= THREADS_MAX {
                break;
            }
            queue.threads += 1;
            let of = self.clone();
            let spawned = std::thread::Builder::new()
                .name("outboard-close".into())
                .spawn(move || of.close_all());
            if spawned.is_err() {
                // The rest is closed with the next ones.
                queue.threads -= 1;
                break;
            }
        }
        is_within
    }

    /// Closes a connection to a client. The client sees the hang-up at once, even if unread
    /// messages hold descriptors that block.
    pub fn hang_up(&self, uid: u32, connection: OwnedFd) {
        // A socket without a peer is already hung up.
        let _ = rustix::net::shutdown(&connection, rustix::net::Shutdown::Both);
        // Counted; there is no client left to refuse.
        let _ = self.close(uid, vec![connection]);
    }

    /// Whether so many of this user's descriptors are pending that the user must not be served any
    /// more.
    pub fn is_crowded(&self, uid: u32) -> bool {
        let queue = locked(&self.queue);
        queue.users.get(&uid).is_some_and(|user| user.waiting.len() > WAITING_PER_USER)
    }

    /// The lock on the queue makes this the only writer.
    fn note(&self, queue: &Queue) {
        self.counters.discards_waiting.set(queue.waiting as u64);
    }

    fn close_all(&self) {
        privileges::keep_or_warn(CapabilitySet::empty());
        let mut queue = locked(&self.queue);
        while let Some((uid, fd)) = queue.next() {
            self.note(&queue);
            drop(queue);
            // Fails for a descriptor that is not a socket.
            let _ = rustix::net::sockopt::set_socket_linger(&fd, None);
            drop(fd);
            queue = locked(&self.queue);
            queue.closed(uid);
        }
        queue.threads -= 1;
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

    fn discard() -> Discard {
        Discard::new(Arc::default())
    }

    #[test]
    fn a_lingering_connection_does_not_keep_the_thread_that_discards_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        near.set_nonblocking(true).unwrap();
        while near.write(&[0; 1 << 16]).is_ok() {}
        sockopt::set_socket_linger(near.as_fd(), Some(Duration::from_secs(3600))).unwrap();
        let discard = discard();
        assert!(discard.close(1, vec![near.into()]));
        while locked(&discard.queue).threads > 0 {
            std::thread::yield_now();
        }
        drop((far, listener));
    }

    #[test]
    fn who_sends_what_does_not_close_has_his_share_of_threads_and_of_what_waits() {
        let discard = discard();
        let fd = || OwnedFd::from(std::fs::File::open("/").unwrap());
        {
            // All that the user may have are held up.
            let mut queue = locked(&discard.queue);
            queue.users.entry(1).or_default().closing = THREADS_PER_USER;
        }
        for _ in 0..WAITING_PER_USER {
            assert!(discard.close(1, vec![fd()]) && !discard.is_crowded(1));
        }
        assert!(!discard.close(1, vec![fd()]) && discard.is_crowded(1));
        assert_eq!(discard.counters.discards_refused.read(), 1);
        assert!(discard.close(2, vec![fd()]) && !discard.is_crowded(2));
        while locked(&discard.queue).threads > 0 {
            std::thread::yield_now();
        }
        assert_eq!(discard.counters.discards_waiting.read(), WAITING_PER_USER as u64 + 1);
        locked(&discard.queue).closed(1);
        assert!(discard.close(2, vec![fd()]));
        while locked(&discard.queue).threads > 0 {
            std::thread::yield_now();
        }
        assert_eq!(discard.counters.discards_waiting.read(), 0);
        assert!(!discard.is_crowded(1));
    }
}
