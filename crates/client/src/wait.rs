//! Waiting of the native sockets: poll for a moment, then sleep.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::driver::locked;
use crate::session::Session;

/// How long to poll before sleeping, if the worker has a CPU of its own: about the cost of a
/// wakeup.
const LOOK: Duration = Duration::from_micros(30);
/// How often to yield the CPU to the worker before sleeping, if it shares this thread's CPU.
const YIELDS: u32 = 4;

thread_local! {
    /// The eventfd by which other threads wake this one.
    static OWN: Option<Arc<OwnedFd>> =
        rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .ok()
            .map(Arc::new);
}

impl Session {
    /// Waits until `ready` returns true, or `deadline` has passed (`false`). `ready` reads levels
    /// of this session's endpoints ([`Endpoint::readiness`](crate::Endpoint::readiness)), which
    /// also show the engine's death.
    ///
    /// This is for programs that wait nowhere else: the POSIX layer has its own way, and the two
    /// do not share a session.
    ///
    /// # Errors
    /// EMFILE when the kernel has no descriptor left for this thread's wake-ups; ECONNRESET when the
    /// engine ends meanwhile; ENOTSUP in a process that has forked since the session was attached.
    pub fn wait_until(
        &self,
        deadline: Option<Instant>,
        mut ready: impl FnMut() -> bool,
    ) -> Result<bool, Errno> {
        if ready() {
            return Ok(true);
        }
        if self.engine_shares_cpu() {
            for _ in 0..YIELDS {
                std::thread::yield_now();
                if ready() {
                    return Ok(true);
                }
            }
        } else {
            let start = Instant::now();
            while start.elapsed() < LOOK {
                for _ in 0..16 {
                    std::hint::spin_loop();
                }
                if ready() {
                    return Ok(true);
                }
            }
        }
        let own = OWN.with(Clone::clone).ok_or(Errno::MFILE)?;
        locked(self.parked()).push(own.clone());
        let waited = self.sleep_until(deadline, &own, &mut ready);
        locked(self.parked()).retain(|parked| !Arc::ptr_eq(parked, &own));
        waited
    }

    fn sleep_until(
        &self,
        deadline: Option<Instant>,
        own: &OwnedFd,
        ready: &mut dyn FnMut() -> bool,
    ) -> Result<bool, Errno> {
        let mut hints = Vec::new();
        loop {
            // Levels tell the rest; hints only must be taken so that new ones arrive.
            self.take_events(&mut hints);
            hints.clear();
            if ready() {
                return Ok(true);
            }
            if !self.is_alive() || !self.is_mine() {
                return Err(self.usable().err().unwrap_or(Errno::CONNRESET));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(false);
            }
            if !self.arm() {
                continue;
            }
            let rung = if ready() { Ok(false) } else { self.poll(own, left) };
            self.disarm();
            if rung? {
                // The wakeup was for all sleepers, and this thread has taken it.
                self.take_events(&mut hints);
                for other in locked(self.parked()).iter() {
                    if !std::ptr::eq(other.as_ref(), own) {
                        let _ = rustix::io::write(other.as_ref(), &1u64.to_ne_bytes());
                    }
                }
            }
        }
    }

    /// Sleeps; `true` if the engine woke it.
    fn poll(&self, own: &OwnedFd, left: Option<Duration>) -> Result<bool, Errno> {
        let mut fds = vec![PollFd::new(own, PollFlags::IN)];
        fds.extend(self.wake_fds().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let timeout = left.map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        });
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let rung = fds.iter().skip(1).any(|fd| !fd.revents().is_empty());
        if !fds[0].revents().is_empty() {
            let _ = rustix::io::read(own, &mut [0u8; 8]);
        }
        Ok(rung)
    }
}
