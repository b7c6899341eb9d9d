//! Descriptors that clients pass and that are no use to us. Closing one may wait for whoever is
//! behind it (a lingering connection, a file system of the client's own making), and must
//! therefore never be done by the thread that serves all others.
//!
//! A few threads close what waits. A user whose descriptors do not come to an end holds but his
//! share of them, and with more than his share waiting he is served no more.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::thread::CapabilitySet;

use crate::privileges;
use crate::stats::Counters;

/// Threads that close at a time.
const THREADS_MAX: usize = 64;
/// How many of them one user's descriptors may keep.
const THREADS_PER_USER: usize = 8;
/// Descriptors of one user that may be waiting.
const WAITING_PER_USER: usize = 256;

/// A user of whom nothing is known but that he has connected.
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
    /// What is to be closed next.
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

/// Closes descriptors beside the control thread.
#[derive(Clone, Debug)]
pub struct Discard {
    queue: Arc<Mutex<Queue>>,
    counters: Arc<Counters>,
}

fn locked(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    // Nobody panics while holding it.
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Discard {
    /// Counts what waits.
    pub fn new(counters: Arc<Counters>) -> Self {
        Self { queue: Arc::default(), counters }
    }

    /// Closes what the user `uid` has sent, without waiting. `false`: so many of his descriptors
    /// wait to be closed that he is to be served no more; also these are closed one day.
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
                // What waits is closed with what comes next.
                queue.threads -= 1;
                break;
            }
        }
        is_within
    }

    /// Closes a connection to a client. Its end is told at once, also where messages that nobody
    /// has read hold descriptors that take their time.
    pub fn hang_up(&self, uid: u32, connection: OwnedFd) {
        // One that has no other end is hung up.
        let _ = rustix::net::shutdown(&connection, rustix::net::Shutdown::Both);
        // Counted; there is nobody left to be refused anything.
        let _ = self.close(uid, vec![connection]);
    }

    /// Whether so much of this user waits that he is to be served no more.
    pub fn is_crowded(&self, uid: u32) -> bool {
        let queue = locked(&self.queue);
        queue.users.get(&uid).is_some_and(|user| user.waiting.len() > WAITING_PER_USER)
    }

    /// With the queue locked there is one writer at a time.
    fn note(&self, queue: &Queue) {
        self.counters.discards_waiting.set(queue.waiting as u64);
    }

    fn close_all(&self) {
        privileges::keep_or_warn(CapabilitySet::empty());
        let mut queue = locked(&self.queue);
        while let Some((uid, fd)) = queue.next() {
            self.note(&queue);
            drop(queue);
            // Of what is no socket there is nothing to be set.
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
