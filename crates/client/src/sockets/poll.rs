//! poll, and through it select, over kernel and engine descriptors; and blocking of a thread on one
//! socket.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use super::epoll::Epoll;
use super::link::{Attachment, Deadline, Sleeper};
use super::socket::Socket;
use super::waiter::Waiter;
use super::{Entry, Era, Errno, Kernel, PollFd, SigMask, Sockets};

/// Events that poll always reports.
const ALWAYS: u32 = (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) as u32;

/// The subject of an entry in the array.
enum Subject {
    Kernel,
    Socket(Arc<Socket>),
    Epoll(Arc<Epoll>),
    Foreign,
}

impl Subject {
    /// Whether the kernel must be polled, too.
    fn in_kernel(&self) -> bool {
        match self {
            Subject::Kernel | Subject::Epoll(_) => true,
            Subject::Socket(socket) => socket.has_kernel_side(),
            Subject::Foreign => false,
        }
    }

    /// The events on the engine's side.
    fn bits(&self, asked: u32) -> u32 {
        match self {
            Subject::Kernel => 0,
            Subject::Socket(socket) => socket.polled_bits(asked),
            Subject::Epoll(epoll) if epoll.is_ready() => super::socket::IN_BITS,
            Subject::Epoll(_) => 0,
            Subject::Foreign => libc::POLLNVAL as u32,
        }
    }
}

/// Sleep of a handler that cannot be woken.
const BLIND: Duration = Duration::from_millis(1);

/// Wakes the thread for the guard's sockets; undone on drop.
struct Watching<'a> {
    subjects: &'a [Subject],
    waiter: &'a Arc<Waiter>,
    kernel: &'static dyn Kernel,
    /// One of them cannot wake it: this is a handler that has interrupted its own thread.
    is_blind: bool,
}

impl<'a> Watching<'a> {
    fn new(subjects: &'a [Subject], waiter: &'a Arc<Waiter>, kernel: &'static dyn Kernel) -> Self {
        waiter.begin();
        let mut is_blind = false;
        for subject in subjects {
            if let Subject::Socket(socket) = subject {
                is_blind |= !socket.watches.add_thread(waiter);
            }
        }
        Self { subjects, waiter, kernel, is_blind }
    }

    /// Maximum sleep if this much time is left.
    fn patience(&self, left: Option<Duration>) -> Option<Duration> {
        match self.is_blind {
            true => Some(left.map_or(BLIND, |left| left.min(BLIND))),
            false => left,
        }
    }
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        for subject in self.subjects {
            if let Subject::Socket(socket) = subject {
                socket.watches.remove_thread(self.waiter);
            }
        }
        self.waiter.end(self.kernel);
    }
}

/// How long, and with which signals, the kernel is waited for.
#[derive(Clone, Copy)]
pub(super) struct KernelWait {
    /// Most time; `None` for no limit.
    pub timeout: Option<Duration>,
    /// The signals that are blocked meanwhile; `None` for those that are anyway.
    pub mask: Option<SigMask>,
}

impl KernelWait {
    /// A look that does not wait.
    pub fn at_once(mask: Option<SigMask>) -> Self {
        Self { timeout: Some(Duration::ZERO), mask }
    }
}

/// What ends a thread's blocking on a socket besides news of the engine's.
#[derive(Clone, Copy)]
pub(super) struct WaitEnds {
    /// Events at its kernel side; 0 for none.
    pub kernel_events: i16,
    /// Most time; `None` for no limit.
    pub timeout: Option<Duration>,
}

impl WaitEnds {
    /// Time alone.
    pub fn within(timeout: Option<Duration>) -> Self {
        Self { kernel_events: 0, timeout }
    }
}

/// Fills in what the engine's side says; the number of entries with news.
fn collect(fds: &mut [PollFd], subjects: &[Subject]) -> usize {
    let mut ready = 0;
    for (entry, subject) in fds.iter_mut().zip(subjects) {
        let asked = u32::from(entry.events as u16) | ALWAYS;
        let told = subject.bits(asked) & asked;
        entry.revents = (u32::from(entry.revents as u16) | told) as u16 as i16;
        ready += usize::from(entry.revents != 0);
    }
    ready
}

impl Sockets {
    /// poll(2) and ppoll(2) on an array in which a followed descriptor occurs.
    ///
    /// # Errors
    /// EINTR when a signal ends the wait, ENOMEM when the kernel cannot make what it takes to wait,
    /// and whatever else poll(2) says of the kernel's part.
    pub fn poll(
        &'static self,
        fds: &mut [PollFd],
        timeout: Option<Duration>,
        mask: Option<SigMask>,
    ) -> Result<usize, Errno> {
        let Some(era) = self.era() else { return self.kernel.poll(fds, timeout, mask) };
        if !self.has_heirs() {
            return self.poll_once(era, fds, timeout, mask);
        }
        let deadline = Deadline::after(self.kernel, timeout);
        loop {
            let ready = self.poll_once(era, fds, deadline.left(), mask)?;
            let told = fds.iter().filter(|entry| entry.revents != 0).map(|entry| entry.fd);
            // The kernel reports the readiness of new tickets.
            if ready == 0 || !self.redeem_ready(era, told) {
                return Ok(ready);
            }
        }
    }

    fn poll_once(
        &'static self,
        era: &'static Era,
        fds: &mut [PollFd],
        timeout: Option<Duration>,
        mask: Option<SigMask>,
    ) -> Result<usize, Errno> {
        let subjects: Vec<Subject> = fds.iter().map(|entry| self.subject(era, entry.fd)).collect();
        for subject in &subjects {
            if let Subject::Socket(socket) = subject {
                self.adopt(era, socket);
            }
        }
        let mut attachment = self.living(era);
        if let Some(attachment) = &attachment {
            self.pump(attachment);
        }
        fds.iter_mut().for_each(|entry| entry.revents = 0);
        let any_kernel = subjects.iter().any(Subject::in_kernel);
        let at_once = timeout.is_some_and(|timeout| timeout.is_zero());
        if collect(fds, &subjects) > 0 || at_once {
            if any_kernel || mask.is_some() {
                self.poll_kernel(fds, &subjects, &[], KernelWait::at_once(mask))?;
            }
            return Ok(collect(fds, &subjects));
        }
        let deadline = Deadline::after(self.kernel, timeout);
        let waiter = self.own_waiter(era)?;
        let watching = Watching::new(&subjects, &waiter, self.kernel);
        loop {
            waiter.clear();
            if collect(fds, &subjects) > 0 {
                if any_kernel {
                    self.poll_kernel(fds, &subjects, &[], KernelWait::at_once(mask))?;
                }
                return Ok(collect(fds, &subjects));
            }
            if let Some(attachment) = &attachment
                && self.spin(attachment, &waiter)
            {
                continue;
            }
            let mut wake = Vec::with_capacity(4);
            wake.push(waiter.event_fd());
            if let Some(attachment) = &attachment {
                wake.extend_from_slice(attachment.wake_fds());
            }
            let sleeper = Sleeper { attachment: attachment.as_ref(), waiter: &waiter, deadline };
            self.sleep(era, sleeper, |left| {
                let wait = KernelWait { timeout: watching.patience(left), mask };
                let found = self.poll_kernel(fds, &subjects, &wake, wait)?;
                waiter.found(found, self.kernel);
                Ok(())
            })?;
            let ready = collect(fds, &subjects);
            if ready > 0 || deadline.has_passed() {
                return Ok(ready);
            }
            attachment = self.living(era);
        }
    }

    fn subject(&self, era: &Era, fd: RawFd) -> Subject {
        if fd < 0 || !self.follows(fd) {
            return Subject::Kernel;
        }
        if era.table.with(fd, Entry::is_elsewhere) == Some(true) && self.redeem(era, fd) == Ok(true)
        {
            return Subject::Kernel;
        }
        if let Some(epoll) = self.polled_epoll(era, fd) {
            return Subject::Epoll(epoll);
        }
        let subject = era.table.with(fd, |entry| match entry {
            Entry::Socket(socket) => Subject::Socket(socket.clone()),
            Entry::Foreign(_) | Entry::Internal => Subject::Foreign,
            Entry::Epoll(_) => Subject::Kernel,
        });
        subject.unwrap_or(Subject::Kernel)
    }

    /// Polls the kernel for its part of the array, waking up for `wake` as well; returns its events
    /// for the first of these.
    fn poll_kernel(
        &self,
        fds: &mut [PollFd],
        subjects: &[Subject],
        wake: &[RawFd],
        wait: KernelWait,
    ) -> Result<i16, Errno> {
        let mut asked: Vec<PollFd> = fds
            .iter()
            .zip(subjects)
            .map(|(entry, subject)| PollFd {
                fd: if subject.in_kernel() { entry.fd } else { -1 },
                events: entry.events,
                revents: 0,
            })
            .collect();
        asked.extend(wake.iter().map(|&fd| PollFd { fd, events: libc::POLLIN, revents: 0 }));
        self.kernel.poll(&mut asked, wait.timeout, wait.mask)?;
        for (entry, answer) in fds.iter_mut().zip(&asked) {
            entry.revents |= answer.revents;
        }
        Ok(asked.get(fds.len()).map_or(0, |entry| entry.revents))
    }

    /// Blocks until the engine's side of a socket shows one of `bits` (or an error), or until
    /// `ends`. EAGAIN when the time is over.
    pub(super) fn block(
        &'static self,
        era: &Era,
        socket: &Arc<Socket>,
        bits: u32,
        ends: WaitEnds,
    ) -> Result<(), Errno> {
        let is_ready = || socket.engine_bits(bits) & (bits | ALWAYS) != 0;
        self.block_until(era, socket, &is_ready, ends)
    }

    /// The same until `is_ready`, which only events of the engine can change.
    pub(super) fn block_until(
        &'static self,
        era: &Era,
        socket: &Arc<Socket>,
        is_ready: &dyn Fn() -> bool,
        ends: WaitEnds,
    ) -> Result<(), Errno> {
        let WaitEnds { kernel_events, timeout } = ends;
        let deadline = Deadline::after(self.kernel, timeout);
        let waiter = self.own_waiter(era)?;
        let subjects = [Subject::Socket(socket.clone())];
        let watching = Watching::new(&subjects, &waiter, self.kernel);
        loop {
            // Another thread may close the number that it had.
            let kernel_fd = (kernel_events != 0).then(|| socket.number()).flatten();
            let attachment = self.attachment_of(era, socket);
            waiter.clear();
            if is_ready() {
                return Ok(());
            }
            if let Some(attachment) = &attachment
                && socket.has_engine_side()
                && self.spin(attachment, &waiter)
            {
                continue;
            }
            let sleeper = Sleeper { attachment: attachment.as_ref(), waiter: &waiter, deadline };
            let slept = self.sleep(era, sleeper, |left| {
                let mut asked = [PollFd::default(); 12];
                let own = [
                    PollFd { fd: waiter.event_fd(), events: libc::POLLIN, revents: 0 },
                    PollFd { fd: kernel_fd.unwrap_or(-1), events: kernel_events, revents: 0 },
                ];
                let pipes = attachment.as_ref().map_or(&[][..], |attachment| attachment.wake_fds());
                let pipes = pipes.iter().map(|&fd| PollFd { fd, events: libc::POLLIN, revents: 0 });
                let mut count = 0;
                for (place, entry) in asked.iter_mut().zip(own.into_iter().chain(pipes)) {
                    *place = entry;
                    count += 1;
                }
                let asked = asked.get_mut(..count).unwrap_or_default();
                self.kernel.poll(asked, watching.patience(left), None)?;
                waiter.found(asked.first().map_or(0, |entry| entry.revents), self.kernel);
                Ok(asked.get(1).is_some_and(|entry| entry.revents != 0))
            });
            match slept {
                Ok(Some(true)) => return Ok(()),
                Ok(_) => (),
                Err(Errno::INTR) if timeout.is_none() && self.kernel.restarts_after_signal() => (),
                Err(error) => return Err(error),
            }
            if is_ready() {
                return Ok(());
            }
            if deadline.has_passed() {
                return Err(Errno::AGAIN);
            }
        }
    }

    /// The session with a socket's events: its own, or the current one for sockets that are passed
    /// again.
    fn attachment_of(&self, era: &Era, socket: &Socket) -> Option<Arc<Attachment>> {
        match socket.connection() {
            Some(connection) => {
                Some(connection.attachment.clone()).filter(|attachment| !attachment.is_lost())
            }
            None => self.living(era),
        }
    }
}
