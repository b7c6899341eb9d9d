//! Calls that return new descriptors of files and other objects that the layer does not track. A
//! table entry for such a number is stale, because the number was closed without the layer's
//! knowledge, and is dropped.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libc::{FILE, mode_t, pid_t, sigset_t};

use crate::real;

/// Drops the table entry of a number that a call has returned.
pub(crate) fn appeared(fd: c_int) -> c_int {
    if let Some(sockets) = crate::sockets()
        && sockets.tracks(fd)
    {
        crate::boundary::tell(|sockets| sockets.appeared(fd));
    }
    fd
}

/// The same for two numbers that a successful call has written.
///
/// # Safety
/// `fds` holds two numbers when `outcome` is 0.
pub(crate) unsafe fn appeared_both(outcome: c_int, fds: *const c_int) -> c_int {
    if outcome == 0 {
        // SAFETY: by the caller's promise.
        let both = unsafe { fds.cast::<[c_int; 2]>().read_unaligned() };
        for fd in both {
            appeared(fd);
        }
    }
    outcome
}

/// The same for the number under a stream.
pub(super) fn appeared_under(stream: *mut FILE) -> *mut FILE {
    if !stream.is_null() {
        // SAFETY: a stream that the C library has just opened.
        appeared(unsafe { libc::fileno(stream) });
    }
    stream
}

/// The same for the number of a directory.
fn appeared_in(directory: *mut libc::DIR) -> *mut libc::DIR {
    if !directory.is_null() {
        // SAFETY: a directory that the C library has just opened.
        appeared(unsafe { libc::dirfd(directory) });
    }
    directory
}

macro_rules! openers {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty, $after:ident;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As the C function's. Variadic ones have their last argument in the same register.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> $ret {
                // SAFETY: arguments passed through.
                $after(unsafe { real::$name($($arg),*) })
            }
        )*
    };
}

openers! {
    /// open(2).
    open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, appeared;
    /// open64(2).
    open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, appeared;
    /// openat(2).
    openat(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int, appeared;
    /// openat64(2).
    openat64(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int, appeared;
    /// open(2) as compiled with _FORTIFY_SOURCE.
    __open_2(path: *const c_char, flags: c_int) -> c_int, appeared;
    /// open64(2) as compiled with _FORTIFY_SOURCE.
    __open64_2(path: *const c_char, flags: c_int) -> c_int, appeared;
    /// openat(2) as compiled with _FORTIFY_SOURCE.
    __openat_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int, appeared;
    /// openat64(2) as compiled with _FORTIFY_SOURCE.
    __openat64_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int, appeared;
    /// creat(2).
    creat(path: *const c_char, mode: mode_t) -> c_int, appeared;
    /// creat64(2).
    creat64(path: *const c_char, mode: mode_t) -> c_int, appeared;
    /// open_by_handle_at(2).
    open_by_handle_at(mount: c_int, handle: *mut c_void, flags: c_int) -> c_int, appeared;
    /// mkstemp(3).
    mkstemp(template: *mut c_char) -> c_int, appeared;
    /// mkstemp64(3).
    mkstemp64(template: *mut c_char) -> c_int, appeared;
    /// mkostemp(3).
    mkostemp(template: *mut c_char, flags: c_int) -> c_int, appeared;
    /// mkostemp64(3).
    mkostemp64(template: *mut c_char, flags: c_int) -> c_int, appeared;
    /// mkstemps(3).
    mkstemps(template: *mut c_char, suffix: c_int) -> c_int, appeared;
    /// mkstemps64(3).
    mkstemps64(template: *mut c_char, suffix: c_int) -> c_int, appeared;
    /// mkostemps(3).
    mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int, appeared;
    /// mkostemps64(3).
    mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int, appeared;
    /// shm_open(3).
    shm_open(name: *const c_char, flags: c_int, mode: mode_t) -> c_int, appeared;
    /// posix_openpt(3).
    posix_openpt(flags: c_int) -> c_int, appeared;
    /// getpt(3).
    getpt() -> c_int, appeared;
    /// memfd_create(2).
    memfd_create(name: *const c_char, flags: c_uint) -> c_int, appeared;
    /// eventfd(2).
    eventfd(initial: c_uint, flags: c_int) -> c_int, appeared;
    /// signalfd(2).
    signalfd(fd: c_int, mask: *const sigset_t, flags: c_int) -> c_int, appeared;
    /// timerfd_create(2).
    timerfd_create(clock: c_int, flags: c_int) -> c_int, appeared;
    /// inotify_init(2).
    inotify_init() -> c_int, appeared;
    /// inotify_init1(2).
    inotify_init1(flags: c_int) -> c_int, appeared;
    /// fanotify_init(2).
    fanotify_init(flags: c_uint, event_flags: c_uint) -> c_int, appeared;
    /// pidfd_open(2).
    pidfd_open(pid: pid_t, flags: c_uint) -> c_int, appeared;
    /// pidfd_getfd(2).
    pidfd_getfd(pidfd: c_int, target: c_int, flags: c_uint) -> c_int, appeared;
    /// fopen(3).
    fopen(path: *const c_char, mode: *const c_char) -> *mut FILE, appeared_under;
    /// fopen64(3).
    fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE, appeared_under;
    /// freopen(3).
    freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE, appeared_under;
    /// freopen64(3).
    freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE, appeared_under;
    /// tmpfile(3).
    tmpfile() -> *mut FILE, appeared_under;
    /// tmpfile64(3).
    tmpfile64() -> *mut FILE, appeared_under;
    /// opendir(3).
    opendir(path: *const c_char) -> *mut libc::DIR, appeared_in;
}

/// pipe(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pipe(ends: *mut c_int) -> c_int {
    // SAFETY: arguments passed through; both numbers are there after a success.
    unsafe { appeared_both(real::pipe(ends), ends) }
}

/// pipe2(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pipe2(ends: *mut c_int, flags: c_int) -> c_int {
    // SAFETY: arguments passed through; both numbers are there after a success.
    unsafe { appeared_both(real::pipe2(ends, flags), ends) }
}

/// socketpair(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn socketpair(
    domain: c_int,
    kind: c_int,
    protocol: c_int,
    ends: *mut c_int,
) -> c_int {
    // SAFETY: arguments passed through; both numbers are there after a success.
    unsafe { appeared_both(real::socketpair(domain, kind, protocol, ends), ends) }
}

/// prctl(2): a seccomp filter may kill the program for the layer's comparisons of numbers.
///
/// # Safety
/// As the C function's. Variadic; its arguments are in the same registers.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn prctl(
    option: c_int,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
) -> c_int {
    if option == libc::PR_SET_SECCOMP {
        crate::boundary::tell(client::sockets::Sockets::stop_comparing);
    }
    // SAFETY: arguments passed through.
    unsafe { real::prctl(option, a, b, c, d) }
}
