//! The interposed functions of the C library, resolved once by `dlsym(RTLD_NEXT)`.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use libc::{
    FILE, epoll_event, fd_set, mmsghdr, mode_t, msghdr, nfds_t, off_t, pid_t, pollfd, sigset_t,
    size_t, sockaddr, socklen_t, ssize_t, timespec, timeval,
};

use crate::boundary::{Failed, set_errno};

/// Finds the next definition of a symbol; null if there is none.
pub fn find(name: &std::ffi::CStr) -> *mut c_void {
    // SAFETY: dlsym with a terminated name; RTLD_NEXT needs nothing else.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

/// The C library's `__libc_single_threaded`, if it has one.
static SINGLE_THREADED: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Whether the process has no other thread; false if unknown.
pub fn is_single_threaded() -> bool {
    let at = SINGLE_THREADED.load(Relaxed).cast::<c_char>();
    // SAFETY: the symbol of this name is a char that lives as long as the process.
    !at.is_null() && unsafe { at.read_volatile() } != 0
}

macro_rules! real {
    ($($name:ident: fn($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => {
        /// The address of each function, once resolved.
        #[expect(non_upper_case_globals, reason = "each has the name of its function")]
        mod found {
            use super::{AtomicPtr, c_void};
            $(pub static $name: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());)*
        }

        /// Resolves every function, so that no later call does: dlsym takes locks and allocates,
        /// and these functions are also called by signal handlers and by allocators that hold their
        /// own locks.
        pub fn resolve_all() {
            $(found::$name.store(find(concat_cstr!($name)), Relaxed);)*
            SINGLE_THREADED.store(find(c"__libc_single_threaded"), Relaxed);
        }

        $(
            /// The C library's function of this name; ENOSYS if it has none.
            ///
            /// # Safety
            /// As the C function's.
            #[inline]
            pub unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> $ret {
                let mut at = found::$name.load(Relaxed);
                if at.is_null() {
                    at = find(concat_cstr!($name));
                    if at.is_null() {
                        set_errno(libc::ENOSYS);
                        return <$ret as Failed>::FAILED;
                    }
                    found::$name.store(at, Relaxed);
                }
                type Function = unsafe extern "C-unwind" fn($($ty),*) -> $ret;
                // SAFETY: the symbol of this name has this C signature.
                let function = unsafe { std::mem::transmute::<*mut c_void, Function>(at) };
                // SAFETY: the caller keeps the C function's contract.
                unsafe { function($($arg),*) }
            }
        )*
    };
}

macro_rules! concat_cstr {
    ($name:ident) => {{
        const NAME: &str = concat!(stringify!($name), "\0");
        match std::ffi::CStr::from_bytes_with_nul(NAME.as_bytes()) {
            Ok(name) => name,
            Err(_) => c"",
        }
    }};
}

real! {
    socket: fn(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    bind: fn(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int;
    listen: fn(fd: c_int, backlog: c_int) -> c_int;
    accept: fn(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int;
    accept4: fn(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int;
    connect: fn(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int;
    shutdown: fn(fd: c_int, how: c_int) -> c_int;
    getsockname: fn(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int;
    getpeername: fn(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int;
    getsockopt: fn(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int;
    setsockopt: fn(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int;
    read: fn(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t;
    write: fn(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t;
    readv: fn(fd: c_int, iov: *const libc::iovec, count: c_int) -> ssize_t;
    writev: fn(fd: c_int, iov: *const libc::iovec, count: c_int) -> ssize_t;
    recv: fn(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
    send: fn(fd: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t;
    recvfrom: fn(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int, addr: *mut sockaddr, addr_len: *mut socklen_t) -> ssize_t;
    sendto: fn(fd: c_int, buf: *const c_void, len: size_t, flags: c_int, addr: *const sockaddr, addr_len: socklen_t) -> ssize_t;
    recvmsg: fn(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    sendmsg: fn(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    recvmmsg: fn(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int;
    sendmmsg: fn(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    __read_chk: fn(fd: c_int, buf: *mut c_void, len: size_t, room: size_t) -> ssize_t;
    __recv_chk: fn(fd: c_int, buf: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t;
    __recvfrom_chk: fn(fd: c_int, buf: *mut c_void, len: size_t, room: size_t, flags: c_int, addr: *mut sockaddr, addr_len: *mut socklen_t) -> ssize_t;
    __poll_chk: fn(fds: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int;
    __ppoll_chk: fn(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: size_t) -> c_int;
    sendfile: fn(out: c_int, input: c_int, offset: *mut off_t, count: size_t) -> ssize_t;
    splice: fn(input: c_int, in_offset: *mut off_t, out: c_int, out_offset: *mut off_t, len: size_t, flags: c_uint) -> ssize_t;
    close: fn(fd: c_int) -> c_int;
    close_range: fn(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    dup: fn(fd: c_int) -> c_int;
    dup2: fn(old: c_int, new: c_int) -> c_int;
    dup3: fn(old: c_int, new: c_int, flags: c_int) -> c_int;
    fcntl: fn(fd: c_int, command: c_int, arg: usize) -> c_int;
    fcntl64: fn(fd: c_int, command: c_int, arg: usize) -> c_int;
    ioctl: fn(fd: c_int, request: usize, arg: usize) -> c_int;
    fclose: fn(stream: *mut FILE) -> c_int;
    fdopen: fn(fd: c_int, mode: *const c_char) -> *mut FILE;
    poll: fn(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    ppoll: fn(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    select: fn(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int;
    pselect: fn(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    epoll_create: fn(size: c_int) -> c_int;
    epoll_create1: fn(flags: c_int) -> c_int;
    epoll_ctl: fn(epoll: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    epoll_wait: fn(epoll: c_int, events: *mut epoll_event, count: c_int, timeout: c_int) -> c_int;
    epoll_pwait: fn(epoll: c_int, events: *mut epoll_event, count: c_int, timeout: c_int, mask: *const sigset_t) -> c_int;
    epoll_pwait2: fn(epoll: c_int, events: *mut epoll_event, count: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    execve: fn(path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    execv: fn(path: *const c_char, arguments: *const *const c_char) -> c_int;
    execvp: fn(file: *const c_char, arguments: *const *const c_char) -> c_int;
    execvpe: fn(file: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    fexecve: fn(fd: c_int, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    posix_spawn: fn(pid: *mut c_void, path: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    posix_spawnp: fn(pid: *mut c_void, file: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    quick_exit: fn(status: c_int) -> c_int;
    pthread_cancel: fn(thread: libc::pthread_t) -> c_int;
    pthread_setcanceltype: fn(kind: c_int, before: *mut c_int) -> c_int;
    syscall: fn(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long;
    open: fn(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    open64: fn(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    openat: fn(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    openat64: fn(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    __open_2: fn(path: *const c_char, flags: c_int) -> c_int;
    __open64_2: fn(path: *const c_char, flags: c_int) -> c_int;
    __openat_2: fn(directory: c_int, path: *const c_char, flags: c_int) -> c_int;
    __openat64_2: fn(directory: c_int, path: *const c_char, flags: c_int) -> c_int;
    creat: fn(path: *const c_char, mode: mode_t) -> c_int;
    creat64: fn(path: *const c_char, mode: mode_t) -> c_int;
    open_by_handle_at: fn(mount: c_int, handle: *mut c_void, flags: c_int) -> c_int;
    mkstemp: fn(template: *mut c_char) -> c_int;
    mkstemp64: fn(template: *mut c_char) -> c_int;
    mkostemp: fn(template: *mut c_char, flags: c_int) -> c_int;
    mkostemp64: fn(template: *mut c_char, flags: c_int) -> c_int;
    mkstemps: fn(template: *mut c_char, suffix: c_int) -> c_int;
    mkstemps64: fn(template: *mut c_char, suffix: c_int) -> c_int;
    mkostemps: fn(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int;
    mkostemps64: fn(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int;
    shm_open: fn(name: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    posix_openpt: fn(flags: c_int) -> c_int;
    getpt: fn() -> c_int;
    memfd_create: fn(name: *const c_char, flags: c_uint) -> c_int;
    eventfd: fn(initial: c_uint, flags: c_int) -> c_int;
    signalfd: fn(fd: c_int, mask: *const sigset_t, flags: c_int) -> c_int;
    timerfd_create: fn(clock: c_int, flags: c_int) -> c_int;
    inotify_init: fn() -> c_int;
    inotify_init1: fn(flags: c_int) -> c_int;
    fanotify_init: fn(flags: c_uint, event_flags: c_uint) -> c_int;
    pidfd_open: fn(pid: pid_t, flags: c_uint) -> c_int;
    pidfd_getfd: fn(pidfd: c_int, target: c_int, flags: c_uint) -> c_int;
    fopen: fn(path: *const c_char, mode: *const c_char) -> *mut FILE;
    fopen64: fn(path: *const c_char, mode: *const c_char) -> *mut FILE;
    freopen: fn(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE;
    freopen64: fn(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE;
    tmpfile: fn() -> *mut FILE;
    tmpfile64: fn() -> *mut FILE;
    system: fn(command: *const c_char) -> c_int;
    popen: fn(command: *const c_char, mode: *const c_char) -> *mut FILE;
    opendir: fn(path: *const c_char) -> *mut libc::DIR;
    munmap: fn(at: *mut c_void, len: size_t) -> c_int;
    mprotect: fn(at: *mut c_void, len: size_t, protection: c_int) -> c_int;
    pkey_mprotect: fn(at: *mut c_void, len: size_t, protection: c_int, key: c_int) -> c_int;
    mremap: fn(at: *mut c_void, len: size_t, new_len: size_t, flags: c_int, to: *mut c_void) -> *mut c_void;
    shmdt: fn(at: *const c_void) -> c_int;
    posix_spawn_file_actions_adddup2: fn(actions: *mut c_void, fd: c_int, new: c_int) -> c_int;
    mmap: fn(at: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void;
    pipe: fn(ends: *mut c_int) -> c_int;
    pipe2: fn(ends: *mut c_int, flags: c_int) -> c_int;
    socketpair: fn(domain: c_int, kind: c_int, protocol: c_int, ends: *mut c_int) -> c_int;
    prctl: fn(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int;
    io_uring_setup: fn(entries: c_uint, params: *mut c_void) -> c_int;
    io_uring_queue_init_params: fn(entries: c_uint, ring: *mut c_void, params: *mut c_void) -> c_int;
}
