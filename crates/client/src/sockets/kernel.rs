//! The socket layer's interface to the kernel, as a trait. The preload library implements it with
//! the C library's real functions; only it may use descriptor numbers that belong to the program.

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use super::{About, Errno, Owner};

/// `struct pollfd`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PollFd {
    /// Descriptor; negative ones are skipped.
    pub fd: RawFd,
    /// Requested events (POLL* bits).
    pub events: i16,
    /// Returned events.
    pub revents: i16,
}

/// `struct epoll_event`, packed as the kernel has it on x86-64.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(target_arch = "x86_64", repr(C, packed))]
#[cfg_attr(not(target_arch = "x86_64"), repr(C))]
pub struct EpollEvent {
    /// EPOLL* bits.
    pub events: u32,
    /// The program's data.
    pub data: u64,
}

/// A signal mask to install while waiting: the address of the program's `sigset_t`.
#[derive(Clone, Copy, Debug)]
pub struct SigMask(pub usize);

/// Result of a receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Bytes (for MSG_TRUNC on datagrams: of the whole datagram).
    pub len: usize,
    /// Sender, of datagrams.
    pub from: Option<SocketAddr>,
    /// The flags of recvmsg's `msg_flags`: MSG_TRUNC if a datagram was longer than the room, and
    /// others from the kernel.
    pub flags: i32,
    /// Bytes of control messages, only from the kernel.
    pub control_len: usize,
}

/// The kernel as the socket layer uses it. Failures carry the kernel's errno.
#[expect(missing_docs, reason = "each is the system call of its name")]
#[expect(clippy::missing_errors_doc, reason = "each fails as the system call of its name")]
pub trait Kernel: Sync {
    fn poll(
        &self,
        fds: &mut [PollFd],
        timeout: Option<Duration>,
        mask: Option<SigMask>,
    ) -> Result<usize, Errno>;
    fn epoll_ctl(
        &self,
        epoll: RawFd,
        operation: i32,
        fd: RawFd,
        event: EpollEvent,
    ) -> Result<(), Errno>;
    fn epoll_wait(
        &self,
        epoll: RawFd,
        events: &mut [EpollEvent],
        timeout: Option<Duration>,
        mask: Option<SigMask>,
    ) -> Result<usize, Errno>;
    fn accept(&self, fd: RawFd, flags: i32) -> Result<(RawFd, SocketAddr), Errno>;
    fn bind(&self, fd: RawFd, addr: SocketAddr) -> Result<(), Errno>;
    fn listen(&self, fd: RawFd, backlog: i32) -> Result<(), Errno>;
    fn connect(&self, fd: RawFd, addr: SocketAddr) -> Result<(), Errno>;
    /// connect(2) with AF_UNSPEC.
    fn disconnect(&self, fd: RawFd) -> Result<(), Errno>;
    fn local(&self, fd: RawFd) -> Result<SocketAddr, Errno>;
    fn receive(
        &self,
        fd: RawFd,
        bufs: &mut [IoSliceMut<'_>],
        control: &mut [u8],
        flags: i32,
    ) -> Result<Received, Errno>;
    fn send(
        &self,
        fd: RawFd,
        bufs: &[IoSlice<'_>],
        flags: i32,
        to: Option<SocketAddr>,
    ) -> Result<usize, Errno>;
    fn option(&self, fd: RawFd, level: i32, name: i32) -> Result<i32, Errno>;
    fn set_option(&self, fd: RawFd, level: i32, name: i32, value: i32) -> Result<(), Errno>;
    /// getsockopt(2) with a value of any kind; its length.
    fn raw_option(&self, fd: RawFd, level: i32, name: i32, out: &mut [u8]) -> Result<usize, Errno> {
        let value = self.option(fd, level, name)?.to_ne_bytes();
        for (place, byte) in out.iter_mut().zip(value) {
            *place = byte;
        }
        Ok(value.len().min(out.len()))
    }
    /// setsockopt(2) with a value of any kind.
    fn set_raw_option(&self, fd: RawFd, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
        let first = value.first_chunk().ok_or(Errno::INVAL)?;
        self.set_option(fd, level, name, i32::from_ne_bytes(*first))
    }
    /// F_GETFL.
    fn status_flags(&self, fd: RawFd) -> Result<i32, Errno>;
    /// F_DUPFD or F_DUPFD_CLOEXEC at or above a number.
    fn duplicate(&self, fd: RawFd, at_least: RawFd, cloexec: bool) -> Result<RawFd, Errno>;
    fn close(&self, fd: RawFd);
    /// dup3(2): `at` becomes a duplicate of `from`, and keeps its close-on-exec flag.
    fn replace(&self, from: RawFd, at: RawFd) -> Result<(), Errno>;
    /// A new non-blocking eventfd, closed on exec.
    fn event_fd(&self) -> Result<RawFd, Errno>;
    /// Adds one to an eventfd.
    fn signal_event(&self, fd: RawFd);
    /// Empties an eventfd.
    fn drain_event(&self, fd: RawFd);
    /// A new unconnected TCP socket, closed on exec.
    fn inert(&self, v6: bool) -> Result<RawFd, Errno>;
    /// Lends the descriptor for the length of a call.
    fn lend(&self, fd: RawFd, body: &mut dyn FnMut(BorrowedFd<'_>));
    /// Whether the kernel would restart a blocking call interrupted by a signal: every handler of
    /// the process was installed with SA_RESTART.
    fn restarts_after_signal(&self) -> bool;
    /// Sends a signal (0: only checks whether the target exists); `about` is passed to a process or
    /// to one of its own threads.
    fn signal(&self, to: Owner, signal: i32, about: Option<About>) -> Result<(), Errno>;
    /// F_SETOWN_EX and F_SETSIG. A fake kernel sends no signals.
    fn set_owner(&self, fd: RawFd, owner: Owner, signal: i32) -> Result<(), Errno> {
        let _ = (fd, owner, signal);
        Ok(())
    }
    /// Blocks signal handlers in this thread, until as many calls of `let_signals`.
    fn hold_signals(&self) {}
    /// Reverts one `hold_signals`.
    fn let_signals(&self) {}
    /// A number for this thread, as in [`Sockets::cancel`](super::Sockets::cancel).
    fn thread(&self) -> usize {
        0
    }
    /// Whether cancellation of this thread is enabled.
    fn lets_cancel(&self) -> bool {
        false
    }
    /// Starts a thread that takes no signals.
    fn start_thread(&self, body: Box<dyn FnOnce() + Send>) -> Result<(), Errno>;
    /// An identity of a descriptor's object, the same for duplicates; 0 if it cannot be determined.
    /// BADF if the descriptor is closed. With a fake kernel no number is closed behind the layer's
    /// back.
    fn identity(&self, fd: RawFd) -> Result<u64, Errno> {
        let _ = fd;
        Ok(0)
    }
    /// Writes one line (without its end) to the program's standard error.
    fn log(&self, line: &str);
    /// Nanoseconds since 1970.
    fn calendar_ns(&self) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
    }
    /// Monotonic time in milliseconds from the cheapest clock, wrapping.
    fn coarse_ms(&self) -> u32 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
        (now.tv_sec as u32).wrapping_mul(1000).wrapping_add((now.tv_nsec / 1_000_000) as u32)
    }
    /// Monotonic time in nanoseconds, for timeouts. Only a simulation implements it differently.
    fn now_ns(&self) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
    }
}
