//! The kernel as the socket layer uses it: the C library's real functions, and system call numbers
//! where the functions are cancellation points.

use std::cell::Cell;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use client::sockets::{About, EpollEvent, Errno, Kernel, Owner, PollFd, Received, SigMask};
use libc::{c_int, c_long, sockaddr, socklen_t};

use crate::boundary::{errno, set_errno};
use crate::calls::descriptors::{F_SETOWN_EX, F_SETSIG, OwnerOfKind};
use crate::{addresses, real};

/// The real functions.
pub struct Raw;

/// `si_code` of a signal about a descriptor if the signal has other codes, or this program may not
/// use them (asm-generic/siginfo.h); not in the libc crate.
const SI_SIGIO: c_int = -5;
/// Signals that have codes of their own (sig_specific_sicodes); SIGPOLL's are these.
const WITH_CODES: [c_int; 7] = [
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGCHLD,
    libc::SIGSYS,
];

/// `siginfo_t` as SIGIO has it.
#[derive(Default)]
#[repr(C, align(8))]
struct SignalInfo {
    signal: c_int,
    errno: c_int,
    code: c_int,
    unused: c_int,
    band: libc::c_long,
    fd: c_int,
    rest: [c_int; 25],
}

impl SignalInfo {
    fn of(signal: c_int, about: About) -> Self {
        let (band, fd) = (about.band.into(), about.fd);
        Self { signal, code: SI_SIGIO, band, fd, ..Self::default() }
    }

    /// As sent by the kernel itself.
    fn with_reason(signal: c_int, about: About) -> Self {
        let code = if WITH_CODES.contains(&signal) { SI_SIGIO } else { about.reason };
        Self { code, ..Self::of(signal, about) }
    }
}

const _: () = assert!(size_of::<SignalInfo>() == size_of::<libc::siginfo_t>());

/// The result of a C call that returns -1 on failure; errno is restored.
fn check<T: PartialOrd + Default>(call: impl FnOnce() -> T) -> Result<T, Errno> {
    let saved = errno();
    let value = call();
    if value < T::default() {
        let error = Errno::from_raw_os_error(errno());
        set_errno(saved);
        return Err(error);
    }
    Ok(value)
}

/// Makes a system call by its number. The C library's function would be a cancellation point, and a
/// thread must not end inside the layer.
///
/// # Safety
/// As the system call's.
pub unsafe fn call(number: c_long, arguments: [usize; 6]) -> c_long {
    let [a, b, c, d, e, f] = arguments.map(|argument| argument as c_long);
    // SAFETY: the caller's promise.
    unsafe { real::syscall(number, a, b, c, d, e, f) }
}

/// Bytes of a signal mask in system calls.
const MASK_BYTES: usize = 8;

/// Writes one line to standard error; needs no allocation beyond the line.
pub fn log_line(line: &str) {
    if is_connected_to_a_peer(libc::STDERR_FILENO) {
        return;
    }
    let parts = [IoSlice::new(line.as_bytes()), IoSlice::new(b"\n")];
    let at = parts.as_ptr().expose_provenance();
    // SAFETY: IoSlice has iovec's layout and both slices are readable.
    let _ = check(|| unsafe { call(libc::SYS_writev, [2, at, 2, 0, 0, 0]) });
}

/// Whether a descriptor is an IP socket: inetd and similar programs connect standard error to one,
/// which is no place for messages.
fn is_connected_to_a_peer(fd: RawFd) -> bool {
    let domain = Raw.option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN);
    matches!(domain, Ok(libc::AF_INET | libc::AF_INET6))
}

fn timespec(timeout: Option<Duration>) -> Option<libc::timespec> {
    timeout.map(|time| libc::timespec {
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(time.subsec_nanos()),
    })
}

/// The address of a mask, 0 for none.
fn mask_word(mask: Option<SigMask>) -> usize {
    mask.map_or(0, |mask| mask.0)
}

/// A descriptor as an argument of a system call.
fn fd_word(fd: RawFd) -> usize {
    fd as usize
}

fn storage() -> (libc::sockaddr_storage, socklen_t) {
    // SAFETY: all zero is a valid sockaddr_storage.
    (unsafe { std::mem::zeroed() }, size_of::<libc::sockaddr_storage>() as socklen_t)
}

fn parse(storage: &libc::sockaddr_storage, len: socklen_t) -> Result<Option<SocketAddr>, Errno> {
    let addr: *const sockaddr = (&raw const *storage).cast();
    addresses::read(addr, len.min(size_of::<libc::sockaddr_storage>() as socklen_t))
}

impl Kernel for Raw {
    fn poll(
        &self,
        fds: &mut [PollFd],
        timeout: Option<Duration>,
        mask: Option<SigMask>,
    ) -> Result<usize, Errno> {
        // The remaining time is written there.
        let mut time = timespec(timeout);
        let time = time.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
        let (at, time) = (fds.as_mut_ptr().expose_provenance(), time.expose_provenance());
        let asked = [at, fds.len(), time, mask_word(mask), MASK_BYTES, 0];
        // SAFETY: PollFd has pollfd's layout; the mask is the program's own pointer.
        check(|| unsafe { call(libc::SYS_ppoll, asked) }).map(|count| count as usize)
    }

    fn epoll_ctl(
        &self,
        epoll: RawFd,
        operation: i32,
        fd: RawFd,
        mut event: EpollEvent,
    ) -> Result<(), Errno> {
        // SAFETY: EpollEvent has epoll_event's layout.
        check(|| unsafe { real::epoll_ctl(epoll, operation, fd, (&raw mut event).cast()) })
            .map(drop)
    }

    fn epoll_wait(
        &self,
        epoll: RawFd,
        events: &mut [EpollEvent],
        timeout: Option<Duration>,
        mask: Option<SigMask>,
    ) -> Result<usize, Errno> {
        let count = events.len().min(c_int::MAX as usize);
        let (set, at) = (fd_word(epoll), events.as_mut_ptr().expose_provenance());
        let ms = match timeout {
            None => -1,
            Some(time) if time.subsec_nanos() % 1_000_000 != 0 && time.as_millis() < 10 => {
                let time = timespec(timeout);
                let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
                let time = time.expose_provenance();
                let asked = [set, at, count, time, mask_word(mask), MASK_BYTES];
                // SAFETY: room for `count` events; the mask is the program's own pointer.
                match check(|| unsafe { call(libc::SYS_epoll_pwait2, asked) }) {
                    Err(Errno::NOSYS) => 1,
                    other => return other.map(|count| count as usize),
                }
            }
            Some(time) => {
                c_int::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX)
            }
        };
        let asked = [set, at, count, ms as usize, mask_word(mask), MASK_BYTES];
        // SAFETY: room for `count` events; the mask is the program's own pointer.
        check(|| unsafe { call(libc::SYS_epoll_pwait, asked) }).map(|count| count as usize)
    }

    fn accept(&self, fd: RawFd, flags: i32) -> Result<(RawFd, SocketAddr), Errno> {
        let (mut at, mut len) = storage();
        let (name, room) = ((&raw mut at).expose_provenance(), (&raw mut len).expose_provenance());
        let asked = [fd_word(fd), name, room, flags as usize, 0, 0];
        // SAFETY: the storage has `len` bytes.
        let new = check(|| unsafe { call(libc::SYS_accept4, asked) })? as RawFd;
        match parse(&at, len) {
            Ok(Some(addr)) => Ok((new, addr)),
            _ => {
                self.close(new);
                Err(Errno::AFNOSUPPORT)
            }
        }
    }

    fn bind(&self, fd: RawFd, addr: SocketAddr) -> Result<(), Errno> {
        let (packed, len) = addresses::Packed::new(addr);
        // SAFETY: `packed` has `len` bytes.
        check(|| unsafe { real::bind(fd, packed.as_ptr(), len) }).map(drop)
    }

    fn listen(&self, fd: RawFd, backlog: i32) -> Result<(), Errno> {
        // SAFETY: no memory is passed.
        check(|| unsafe { real::listen(fd, backlog) }).map(drop)
    }

    fn connect(&self, fd: RawFd, addr: SocketAddr) -> Result<(), Errno> {
        let (packed, len) = addresses::Packed::new(addr);
        let asked = [fd_word(fd), packed.as_ptr().expose_provenance(), len as usize, 0, 0, 0];
        // SAFETY: `packed` has `len` bytes.
        check(|| unsafe { call(libc::SYS_connect, asked) }).map(drop)
    }

    fn disconnect(&self, fd: RawFd) -> Result<(), Errno> {
        let (none, len) = storage();
        let asked = [fd_word(fd), (&raw const none).expose_provenance(), len as usize, 0, 0, 0];
        // SAFETY: the storage, all zero and so of AF_UNSPEC, has `len` bytes.
        check(|| unsafe { call(libc::SYS_connect, asked) }).map(drop)
    }

    fn local(&self, fd: RawFd) -> Result<SocketAddr, Errno> {
        let (mut at, mut len) = storage();
        // SAFETY: the storage has `len` bytes.
        check(|| unsafe { real::getsockname(fd, (&raw mut at).cast(), &raw mut len) })?;
        parse(&at, len)?.ok_or(Errno::AFNOSUPPORT)
    }

    fn receive(
        &self,
        fd: RawFd,
        bufs: &mut [IoSliceMut<'_>],
        control: &mut [u8],
        flags: i32,
    ) -> Result<Received, Errno> {
        let (mut at, len) = storage();
        // SAFETY: all zero is a valid msghdr.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = (&raw mut at).cast();
        message.msg_namelen = len;
        message.msg_iov = bufs.as_mut_ptr().cast();
        message.msg_iovlen = bufs.len();
        if !control.is_empty() {
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = control.len();
        }
        let at_message = (&raw mut message).expose_provenance();
        let asked = [fd_word(fd), at_message, flags as usize, 0, 0, 0];
        // SAFETY: IoSliceMut has iovec's layout; every part and `control` are writable.
        let len = check(|| unsafe { call(libc::SYS_recvmsg, asked) })?;
        Ok(Received {
            len: len as usize,
            from: parse(&at, message.msg_namelen)?,
            flags: message.msg_flags,
            control_len: message.msg_controllen,
        })
    }

    fn send(
        &self,
        fd: RawFd,
        bufs: &[IoSlice<'_>],
        flags: i32,
        to: Option<SocketAddr>,
    ) -> Result<usize, Errno> {
        let packed = to.map(addresses::Packed::new);
        // SAFETY: all zero is a valid msghdr.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        if let Some((packed, len)) = &packed {
            message.msg_name = packed.as_ptr().cast_mut().cast();
            message.msg_namelen = *len;
        }
        message.msg_iov = bufs.as_ptr().cast_mut().cast();
        message.msg_iovlen = bufs.len();
        let asked =
            [fd_word(fd), (&raw const message).expose_provenance(), flags as usize, 0, 0, 0];
        // SAFETY: IoSlice has iovec's layout; every part is readable; sendmsg writes none of it.
        check(|| unsafe { call(libc::SYS_sendmsg, asked) }).map(|len| len as usize)
    }

    fn option(&self, fd: RawFd, level: i32, name: i32) -> Result<i32, Errno> {
        let mut value: c_int = 0;
        let mut len = size_of::<c_int>() as socklen_t;
        // SAFETY: an int's room at `value`.
        check(|| unsafe {
            real::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut len)
        })?;
        Ok(value)
    }

    fn set_option(&self, fd: RawFd, level: i32, name: i32, value: i32) -> Result<(), Errno> {
        let len = size_of::<c_int>() as socklen_t;
        // SAFETY: an int is readable at `value`.
        check(|| unsafe { real::setsockopt(fd, level, name, (&raw const value).cast(), len) })
            .map(drop)
    }

    fn raw_option(&self, fd: RawFd, level: i32, name: i32, out: &mut [u8]) -> Result<usize, Errno> {
        let mut len = socklen_t::try_from(out.len()).unwrap_or(socklen_t::MAX);
        // SAFETY: `len` writable bytes at `out`.
        check(|| unsafe {
            real::getsockopt(fd, level, name, out.as_mut_ptr().cast(), &raw mut len)
        })?;
        Ok(len as usize)
    }

    fn set_raw_option(&self, fd: RawFd, level: i32, name: i32, value: &[u8]) -> Result<(), Errno> {
        let len = socklen_t::try_from(value.len()).unwrap_or(socklen_t::MAX);
        // SAFETY: `len` readable bytes at `value`.
        check(|| unsafe { real::setsockopt(fd, level, name, value.as_ptr().cast(), len) }).map(drop)
    }

    fn status_flags(&self, fd: RawFd) -> Result<i32, Errno> {
        // SAFETY: no memory is passed.
        check(|| unsafe { real::fcntl(fd, libc::F_GETFL, 0) })
    }

    fn duplicate(&self, fd: RawFd, at_least: RawFd, cloexec: bool) -> Result<RawFd, Errno> {
        let command = if cloexec { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
        // SAFETY: no memory is passed.
        check(|| unsafe { real::fcntl(fd, command, at_least as usize) })
    }

    fn close(&self, fd: RawFd) {
        // SAFETY: the socket layer closes only what it opened itself or was asked to close.
        let _ = check(|| unsafe { call(libc::SYS_close, [fd_word(fd), 0, 0, 0, 0, 0]) });
    }

    fn replace(&self, from: RawFd, at: RawFd) -> Result<(), Errno> {
        // SAFETY: no memory is passed.
        let flags = check(|| unsafe { real::fcntl(at, libc::F_GETFD, 0) })?;
        let flags = if flags & libc::FD_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 };
        // SAFETY: no memory is passed; the layer replaces only what stands for its own descriptor.
        check(|| unsafe { real::dup3(from, at, flags) }).map(drop)
    }

    fn event_fd(&self) -> Result<RawFd, Errno> {
        // SAFETY: no memory is passed.
        check(|| unsafe { real::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) })
    }

    fn signal_event(&self, fd: RawFd) {
        let one = 1_u64;
        let asked = [fd_word(fd), (&raw const one).expose_provenance(), 8, 0, 0, 0];
        // SAFETY: eight readable bytes.
        let _ = check(|| unsafe { call(libc::SYS_write, asked) });
    }

    fn drain_event(&self, fd: RawFd) {
        let mut count = 0_u64;
        let asked = [fd_word(fd), (&raw mut count).expose_provenance(), 8, 0, 0, 0];
        // SAFETY: eight writable bytes.
        let _ = check(|| unsafe { call(libc::SYS_read, asked) });
    }

    fn identity(&self, fd: RawFd) -> Result<u64, Errno> {
        // SAFETY: all zero is a valid stat.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        let asked = [fd_word(fd), (&raw mut stat).expose_provenance(), 0, 0, 0, 0];
        // SAFETY: room for a stat, which has the kernel's layout.
        check(|| unsafe { call(libc::SYS_fstat, asked) })?;
        // An inode number is unique in its file system; all sockets are in the same one.
        Ok((stat.st_ino ^ stat.st_dev.rotate_left(40)).max(1))
    }

    fn inert(&self, v6: bool) -> Result<RawFd, Errno> {
        let domain = if v6 { libc::AF_INET6 } else { libc::AF_INET };
        // SAFETY: no memory is passed.
        check(|| unsafe { real::socket(domain, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) })
    }

    fn lend(&self, fd: RawFd, body: &mut dyn FnMut(BorrowedFd<'_>)) {
        if fd >= 0 {
            // SAFETY: the number is open for the length of the call; a program that closes it at
            // the same time gets an error from the kernel, nothing worse.
            body(unsafe { BorrowedFd::borrow_raw(fd) });
        }
    }

    fn restarts_after_signal(&self) -> bool {
        // The C library refuses queries for its own signals (32 and 33), which programs cannot
        // catch.
        (1..=64).all(|signal| {
            // SAFETY: all zero is a valid sigaction, and a null new action only asks.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            // SAFETY: as above.
            let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
            // A one-shot handler (SA_RESETHAND) may be gone, but its flags are not.
            let is_caught = action.sa_flags & libc::SA_RESETHAND != 0
                || ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
            asked != 0 || !is_caught || action.sa_flags & libc::SA_RESTART != 0
        })
    }

    fn set_owner(&self, fd: RawFd, owner: Owner, signal: i32) -> Result<(), Errno> {
        let (kind, id) = owner.parts();
        let owner = OwnerOfKind { kind, id };
        let at = (&raw const owner).addr();
        // SAFETY: the struct that this command takes.
        check(|| unsafe { real::fcntl(fd, F_SETOWN_EX, at) })?;
        // SAFETY: no memory is passed.
        check(|| unsafe { real::fcntl(fd, F_SETSIG, signal as usize) }).map(drop)
    }

    fn signal(&self, to: Owner, signal: i32, about: Option<About>) -> Result<(), Errno> {
        let nobody = if signal == 0 { Ok(()) } else { Err(Errno::SRCH) };
        match to {
            // For kill(2) it would be this program's group.
            Owner::Process(0) | Owner::Thread(0) | Owner::Group(0) => return Err(Errno::SRCH),
            // And that would be all processes: the first process's group cannot be signalled,
            // unless it is this one.
            // SAFETY: asks for a number only.
            Owner::Group(1) if unsafe { libc::getpgrp() } != 1 => return nobody,
            _ => {}
        }
        let number = c_long::from(signal);
        let told = check(|| match (to, about) {
            (Owner::Process(id), Some(about)) => {
                // SAFETY: asks for numbers only.
                let (own, thread) = unsafe { (libc::getpid(), libc::gettid()) };
                // The kernel permits a thread to send POLL_IN and the like only to itself. With its
                // own number, a signal to the whole process can be meant, which another thread
                // takes.
                let (id, info) = match id == own {
                    true => (thread, SignalInfo::with_reason(signal, about)),
                    false => (id, SignalInfo::of(signal, about)),
                };
                let (call, info) = (libc::SYS_rt_sigqueueinfo, (&raw const info).addr() as c_long);
                // SAFETY: a whole siginfo, which is copied.
                unsafe { real::syscall(call, id.into(), number, info, 0, 0, 0) }
            }
            (Owner::Thread(id), Some(about)) => {
                let info = SignalInfo::of(signal, about);
                let (call, info) =
                    (libc::SYS_rt_tgsigqueueinfo, (&raw const info).addr() as c_long);
                // SAFETY: asks for a number only.
                let own = unsafe { libc::getpid() };
                // SAFETY: a whole siginfo, which is copied.
                unsafe { real::syscall(call, own.into(), id.into(), number, info, 0, 0) }
            }
            // SAFETY: no memory is passed.
            (Owner::Process(id), None) => unsafe { libc::kill(id, signal) }.into(),
            (Owner::Thread(id), None) => {
                // SAFETY: no memory is passed.
                unsafe { real::syscall(libc::SYS_tkill, id.into(), number, 0, 0, 0, 0) }
            }
            // SAFETY: no memory is passed.
            (Owner::Group(1), _) => unsafe { libc::kill(0, signal) }.into(),
            // SAFETY: no memory is passed.
            (Owner::Group(id), _) => unsafe { libc::kill(-id, signal) }.into(),
        });
        match (to, told) {
            // A thread of another process.
            (Owner::Thread(_), Err(Errno::SRCH)) if about.is_some() => {
                self.signal(to, signal, None)
            }
            (_, told) => told.map(drop),
        }
    }

    fn hold_signals(&self) {
        // Counted last, so that a handler that runs before blocks its own signals.
        if HELD.get() == 0 {
            BEFORE.set(Some(without_signals()));
        }
        HELD.set(HELD.get() + 1);
    }

    fn let_signals(&self) {
        HELD.set(HELD.get() - 1);
        if HELD.get() == 0
            && let Some(before) = BEFORE.take()
        {
            restore_signals(&before);
        }
    }

    fn thread(&self) -> usize {
        // SAFETY: asks for a number only.
        unsafe { libc::pthread_self() as usize }
    }

    fn lets_cancel(&self) -> bool {
        crate::boundary::lets_cancel()
    }

    fn start_thread(&self, body: Box<dyn FnOnce() + Send>) -> Result<(), Errno> {
        let before = without_signals();
        let started = std::thread::Builder::new().name("outboard".into()).spawn(body);
        restore_signals(&before);
        started.map(drop).map_err(|_| Errno::AGAIN)
    }

    fn log(&self, line: &str) {
        log_line(line);
    }
}

/// Blocks all signals in this thread from here on; returns the previous mask.
pub fn without_signals() -> libc::sigset_t {
    // SAFETY: all zero is a valid set, which is filled before it is used.
    let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { std::mem::zeroed() };
    // SAFETY: both sets are this function's own.
    unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
    }
    before
}

/// Restores the previous mask.
pub fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: a mask as it was.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
}

thread_local! {
    /// Number of holders that block signals in this thread.
    static HELD: Cell<u32> = const { Cell::new(0) };
    /// Its mask before the first one.
    static BEFORE: Cell<Option<libc::sigset_t>> = const { Cell::new(None) };
}
