//! The system calls that do not go to the kernel unmodified, and their functions.

use std::ffi::{c_int, c_long, c_uint, c_void};

use libc::sigset_t;

use super::{Function, forms};
use crate::boundary::without_points;
use crate::calls::opening::{appeared, appeared_both};
use crate::calls::{descriptors, moving, opening, streams, transfers, waiting};
use crate::{memory, real};

/// Condition under which a call goes to a function of ours.
#[derive(Clone, Copy)]
pub enum Door {
    /// If its first argument is a number that may be tracked.
    On(Function),
    /// Always.
    Always(Function),
    /// If the child has its own memory, by the arguments of clone(2).
    Clone(Function),
    /// The same, by the arguments of clone3(2).
    Clone3(Function),
}

/// More than the highest number of a system call.
const NUMBERS: usize = 512;

/// By number.
static TABLE: [Option<Door>; NUMBERS] = {
    let mut table = [None; NUMBERS];
    let mut at = 0;
    while at < DOORS.len() {
        table[DOORS[at].0 as usize] = Some(DOORS[at].1);
        at += 1;
    }
    at = 0;
    while at < MAKERS.len() {
        table[MAKERS[at].0 as usize] = Some(MAKERS[at].1);
        at += 1;
    }
    table
};

/// The function of a system call; `None` for the kernel.
pub fn door(number: c_long) -> Option<Door> {
    *TABLE.get(usize::try_from(number).ok()?)?
}

/// Conversion of a function's result to that of syscall(2).
trait Outcome {
    fn word(self) -> c_long;
}

impl Outcome for c_int {
    fn word(self) -> c_long {
        self.into()
    }
}

impl Outcome for isize {
    fn word(self) -> c_long {
        self as c_long
    }
}

impl Outcome for *mut c_void {
    fn word(self) -> c_long {
        self.expose_provenance() as c_long
    }
}

impl Outcome for c_long {
    fn word(self) -> c_long {
        self
    }
}

/// Defines a function for each number, with the call's arguments: its effect is that of the C
/// function.
macro_rules! doors {
    ($($(#[$attribute:meta])* $door:ident $number:ident $arguments:tt => $body:expr;)*) => {
        $(doors!(@one [$(#[$attribute])*] $number $arguments => $body);)*
        const DOORS: &[(c_long, Door)] = &[
            $($(#[$attribute])* (libc::$number, Door::$door($number)),)*
        ];
    };
    (@one [$(#[$attribute:meta])*] $number:ident
        ($a:pat_param, $b:pat_param, $c:pat_param, $d:pat_param, $e:pat_param, $f:pat_param)
        => $body:expr) => {
        $(#[$attribute])*
        #[expect(non_snake_case, reason = "it has the name of its number")]
        unsafe extern "C-unwind" fn $number(
            _: c_long, $a: c_long, $b: c_long, $c: c_long, $d: c_long, $e: c_long, $f: c_long,
        ) -> c_long {
            // SAFETY: the program's promises about the arguments are those of the C function.
            without_points(|| unsafe { $body }.word())
        }
    };
}

/// Defines a function for each number whose call returns a new descriptor.
macro_rules! makers {
    ($($(#[$attribute:meta])* $number:ident;)*) => {
        $(
            $(#[$attribute])*
            #[expect(non_snake_case, reason = "it has the name of its number")]
            unsafe extern "C-unwind" fn $number(
                number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long,
            ) -> c_long {
                // SAFETY: arguments passed through.
                appeared(unsafe { real::syscall(number, a, b, c, d, e, f) } as c_int).into()
            }
        )*
        const MAKERS: &[(c_long, Door)] = &[
            $($(#[$attribute])* (libc::$number, Door::Always($number)),)*
        ];
    };
}

doors! {
    On SYS_read(fd, at, len, _, _, _) =>
        transfers::read(fd as c_int, at as *mut c_void, len as usize);
    On SYS_write(fd, at, len, _, _, _) =>
        transfers::write(fd as c_int, at as *const c_void, len as usize);
    On SYS_readv(fd, parts, count, _, _, _) =>
        transfers::readv(fd as c_int, parts as *const libc::iovec, count as c_int);
    On SYS_writev(fd, parts, count, _, _, _) =>
        transfers::writev(fd as c_int, parts as *const libc::iovec, count as c_int);
    On SYS_recvfrom(fd, at, len, flags, name, name_len) => transfers::recvfrom(
        fd as c_int, at as *mut c_void, len as usize, flags as c_int,
        name as *mut libc::sockaddr, name_len as *mut libc::socklen_t);
    On SYS_sendto(fd, at, len, flags, name, name_len) => transfers::sendto(
        fd as c_int, at as *const c_void, len as usize, flags as c_int,
        name as *const libc::sockaddr, name_len as libc::socklen_t);
    Always SYS_recvmsg(fd, message, flags, _, _, _) =>
        transfers::recvmsg(fd as c_int, message as *mut libc::msghdr, flags as c_int);
    Always SYS_sendmsg(fd, message, flags, _, _, _) =>
        transfers::sendmsg(fd as c_int, message as *const libc::msghdr, flags as c_int);
    Always SYS_recvmmsg(fd, messages, count, flags, time, _) => transfers::recvmmsg(
        fd as c_int, messages as *mut libc::mmsghdr, count as c_uint, flags as c_int,
        time as *mut libc::timespec);
    Always SYS_sendmmsg(fd, messages, count, flags, _, _) => transfers::sendmmsg(
        fd as c_int, messages as *mut libc::mmsghdr, count as c_uint, flags as c_int);
    On SYS_sendfile(out, input, offset, count, _, _) => transfers::sendfile(
        out as c_int, input as c_int, offset as *mut libc::off_t, count as usize);
    Always SYS_splice(input, in_offset, out, out_offset, len, flags) => moving::splice(
        input as c_int, in_offset as *mut libc::off_t, out as c_int,
        out_offset as *mut libc::off_t, len as usize, flags as c_uint);

    Always SYS_socket(domain, kind, protocol, _, _, _) =>
        streams::socket(domain as c_int, kind as c_int, protocol as c_int);
    On SYS_bind(fd, name, len, _, _, _) =>
        streams::bind(fd as c_int, name as *const libc::sockaddr, len as libc::socklen_t);
    On SYS_listen(fd, backlog, _, _, _, _) => streams::listen(fd as c_int, backlog as c_int);
    Always SYS_accept(fd, name, len, _, _, _) =>
        streams::accept(fd as c_int, name as *mut libc::sockaddr, len as *mut libc::socklen_t);
    Always SYS_accept4(fd, name, len, flags, _, _) => streams::accept4(
        fd as c_int, name as *mut libc::sockaddr, len as *mut libc::socklen_t, flags as c_int);
    On SYS_connect(fd, name, len, _, _, _) =>
        streams::connect(fd as c_int, name as *const libc::sockaddr, len as libc::socklen_t);
    On SYS_shutdown(fd, how, _, _, _, _) => streams::shutdown(fd as c_int, how as c_int);
    On SYS_getsockname(fd, name, len, _, _, _) =>
        streams::getsockname(fd as c_int, name as *mut libc::sockaddr, len as *mut libc::socklen_t);
    On SYS_getpeername(fd, name, len, _, _, _) =>
        streams::getpeername(fd as c_int, name as *mut libc::sockaddr, len as *mut libc::socklen_t);
    On SYS_getsockopt(fd, level, name, value, len, _) => streams::getsockopt(
        fd as c_int, level as c_int, name as c_int, value as *mut c_void,
        len as *mut libc::socklen_t);
    On SYS_setsockopt(fd, level, name, value, len, _) => streams::setsockopt(
        fd as c_int, level as c_int, name as c_int, value as *const c_void,
        len as libc::socklen_t);

    On SYS_close(fd, _, _, _, _, _) => descriptors::close(fd as c_int);
    Always SYS_close_range(first, last, flags, _, _, _) =>
        descriptors::close_range(first as c_uint, last as c_uint, flags as c_int);
    Always SYS_dup(fd, _, _, _, _, _) => descriptors::dup(fd as c_int);
    #[cfg(target_arch = "x86_64")]
    Always SYS_dup2(old, new, _, _, _, _) => descriptors::dup2(old as c_int, new as c_int);
    Always SYS_dup3(old, new, flags, _, _, _) =>
        descriptors::dup3(old as c_int, new as c_int, flags as c_int);
    Always SYS_fcntl(fd, command, argument, _, _, _) => forms::fcntl(fd, command, argument);
    On SYS_ioctl(fd, request, argument, _, _, _) =>
        descriptors::ioctl(fd as c_int, request as usize, argument as usize);

    #[cfg(target_arch = "x86_64")]
    Always SYS_poll(fds, count, ms, _, _, _) =>
        waiting::poll(fds as *mut libc::pollfd, count as libc::nfds_t, ms as c_int);
    Always SYS_ppoll(fds, count, time, mask, size, _) => forms::ppoll(fds, count, time, mask, size);
    #[cfg(target_arch = "x86_64")]
    Always SYS_select(count, readable, writable, except, time, _) => waiting::select(
        count as c_int, readable as *mut libc::fd_set, writable as *mut libc::fd_set,
        except as *mut libc::fd_set, time as *mut libc::timeval);
    Always SYS_pselect6(count, readable, writable, except, time, mask) =>
        forms::pselect6(count, [readable, writable, except], time, mask);
    #[cfg(target_arch = "x86_64")]
    Always SYS_epoll_create(size, _, _, _, _, _) => waiting::epoll_create(size as c_int);
    Always SYS_epoll_create1(flags, _, _, _, _, _) => waiting::epoll_create1(flags as c_int);
    On SYS_epoll_ctl(epoll, operation, fd, event, _, _) => waiting::epoll_ctl(
        epoll as c_int, operation as c_int, fd as c_int, event as *mut libc::epoll_event);
    #[cfg(target_arch = "x86_64")]
    On SYS_epoll_wait(epoll, events, count, ms, _, _) => waiting::epoll_wait(
        epoll as c_int, events as *mut libc::epoll_event, count as c_int, ms as c_int);
    On SYS_epoll_pwait(epoll, events, count, ms, mask, size) => forms::masked(mask, size, || {
        waiting::epoll_pwait(
            epoll as c_int, events as *mut libc::epoll_event, count as c_int, ms as c_int,
            mask as *const sigset_t)
    });
    On SYS_epoll_pwait2(epoll, events, count, time, mask, size) => forms::masked(mask, size, || {
        waiting::epoll_pwait2(
            epoll as c_int, events as *mut libc::epoll_event, count as c_int,
            time as *const libc::timespec, mask as *const sigset_t)
    });

    #[cfg(target_arch = "x86_64")]
    Always SYS_fork(_, _, _, _, _, _) => forms::fork(libc::SYS_fork, [0; 6], 0);
    Clone SYS_clone(flags, b, c, d, e, f) =>
        forms::fork(libc::SYS_clone, [flags, b, c, d, e, f], flags as u64);
    Clone3 SYS_clone3(asked, size, c, d, e, f) =>
        forms::fork(libc::SYS_clone3, [asked, size, c, d, e, f], forms::clone3_flags(asked));
    Always SYS_exit_group(status, _, _, _, _, _) => forms::exit_group(status);
    Always SYS_execve(path, arguments, environment, d, e, f) =>
        forms::exec(libc::SYS_execve, path, environment, [path, arguments, environment, d, e, f]);
    Always SYS_execveat(directory, path, arguments, environment, flags, f) =>
        forms::exec(libc::SYS_execveat, 0, environment, [directory, path, arguments, environment, flags, f]);

    Always SYS_munmap(at, len, _, _, _, _) => memory::munmap(at as *mut c_void, len as usize);
    Always SYS_mprotect(at, len, protection, _, _, _) =>
        memory::mprotect(at as *mut c_void, len as usize, protection as c_int);
    Always SYS_pkey_mprotect(at, len, protection, key, _, _) => memory::pkey_mprotect(
        at as *mut c_void, len as usize, protection as c_int, key as c_int);
    Always SYS_mremap(at, len, new_len, flags, to, _) => memory::mremap(
        at as *mut c_void, len as usize, new_len as usize, flags as c_int, to as *mut c_void);
    Always SYS_mmap(at, len, protection, flags, fd, offset) => memory::mmap(
        at as *mut c_void, len as usize, protection as c_int, flags as c_int, fd as c_int, offset);
    Always SYS_shmdt(at, _, _, _, _, _) => memory::shmdt(at as *const c_void);

    #[cfg(target_arch = "x86_64")]
    Always SYS_pipe(ends, _, _, _, _, _) => opening::pipe(ends as *mut c_int);
    Always SYS_pipe2(ends, flags, _, _, _, _) => opening::pipe2(ends as *mut c_int, flags as c_int);
    Always SYS_socketpair(domain, kind, protocol, ends, e, f) => appeared_both(
        real::syscall(libc::SYS_socketpair, domain, kind, protocol, ends, e, f) as c_int,
        ends as *const c_int);
    Always SYS_prctl(option, b, c, d, e, _) =>
        opening::prctl(option as c_int, b as usize, c as usize, d as usize, e as usize);
    Always SYS_seccomp(operation, flags, filter, d, e, f) =>
        forms::seccomp([operation, flags, filter, d, e, f]);
    Always SYS_io_uring_setup(entries, ring, c, d, e, f) =>
        forms::io_uring_setup([entries, ring, c, d, e, f]);
}

makers! {
    #[cfg(target_arch = "x86_64")]
    SYS_open;
    SYS_openat;
    SYS_openat2;
    #[cfg(target_arch = "x86_64")]
    SYS_creat;
    SYS_open_by_handle_at;
    SYS_open_tree;
    SYS_fsopen;
    SYS_fsmount;
    SYS_fspick;
    SYS_mq_open;
    #[cfg(target_arch = "x86_64")]
    SYS_eventfd;
    SYS_eventfd2;
    #[cfg(target_arch = "x86_64")]
    SYS_signalfd;
    SYS_signalfd4;
    SYS_timerfd_create;
    #[cfg(target_arch = "x86_64")]
    SYS_inotify_init;
    SYS_inotify_init1;
    SYS_fanotify_init;
    SYS_memfd_create;
    SYS_memfd_secret;
    SYS_userfaultfd;
    SYS_perf_event_open;
    SYS_pidfd_open;
    SYS_pidfd_getfd;
    SYS_landlock_create_ruleset;
}
