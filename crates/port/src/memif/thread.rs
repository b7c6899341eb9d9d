//! The thread of a port that deals with peers until their rings are in use, and notices their end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

/// The thread; it ends when this is dropped.
pub(super) struct Thread {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Thread {
    /// Runs `work`, which is to end when the descriptor that it gets is readable.
    pub fn start(work: impl FnOnce(BorrowedFd<'_>) + Send + 'static) -> io::Result<Self> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let ends = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("outboard-memif".into())
            .spawn(move || work(ends.as_fd()))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // A full counter wakes, too.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // It has nothing to say that its panic has not said.
            let _ = thread.join();
        }
    }
}

/// Waits until one of `fds` is readable or `limit` has passed; which are. `None`: the thread is to end,
/// as the first of them says.
pub(super) fn wait<const N: usize>(
    fds: [Option<BorrowedFd<'_>>; N],
    limit: Option<Duration>,
) -> Option<[bool; N]> {
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    let mut polled: Vec<PollFd<'_>> =
        fds.iter().flatten().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    match poll(&mut polled, limit.as_ref()) {
        Ok(_) => {}
        Err(Errno::INTR) => return Some([false; N]),
        Err(error) => {
            tracing::error!("a memif port cannot wait for peers: {error}");
            return None;
        }
    }
    let mut ready = polled.iter().map(|fd| !fd.revents().is_empty());
    let found = fds.map(|fd| fd.is_some() && ready.next().unwrap_or(false));
    match found.first() {
        Some(true) => None,
        _ => Some(found),
    }
}
