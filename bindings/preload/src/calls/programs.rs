//! Starting other programs: connections of the engine do not survive it, which is said, and a process
//! that becomes another program reports its sockets. What glibc's execl and its kin call is not seen.

use std::ffi::{c_char, c_int, c_void};

use crate::real;
use crate::report::{Event, report};

/// Says so when a connection would be inherited by the program that is to start.
fn leaving() {
    if let Some(sockets) = crate::sockets() {
        crate::boundary::answer(|| {
            // SAFETY: asks for flags only.
            sockets.leaving(&|fd| unsafe { real::fcntl(fd, libc::F_GETFD, 0) } == 0);
            Ok(0)
        });
    }
}

/// Reports before this process becomes the program at `path`; not when there is none, as callers try one
/// directory of PATH after the other.
fn becoming(path: *const c_char) {
    let is_there = || {
        let saved = crate::boundary::errno();
        // SAFETY: the path is the program's, as execve(2) demands it.
        let is_there = path.is_null() || unsafe { libc::access(path, libc::X_OK) } == 0;
        crate::boundary::set_errno(saved);
        is_there
    };
    crate::boundary::tell(|_| {
        if is_there() {
            report(Event::Exec);
        }
    });
}

macro_rules! starters {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) $($at:expr)?;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As the C function's.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> c_int {
                leaving();
                $(becoming($at);)?
                // SAFETY: arguments passed through.
                unsafe { real::$name($($arg),*) }
            }
        )*
    };
}

type Strings = *const *const c_char;

starters! {
    /// execve(2).
    execve(path: *const c_char, arguments: Strings, environment: Strings) path;
    /// execv(3).
    execv(path: *const c_char, arguments: Strings) path;
    /// execvp(3).
    execvp(file: *const c_char, arguments: Strings) std::ptr::null();
    /// execvpe(3).
    execvpe(file: *const c_char, arguments: Strings, environment: Strings) std::ptr::null();
    /// fexecve(3).
    fexecve(fd: c_int, arguments: Strings, environment: Strings) std::ptr::null();
    /// posix_spawn(3).
    posix_spawn(pid: *mut c_void, path: *const c_char, actions: *const c_void,
        attributes: *const c_void, arguments: Strings, environment: Strings);
    /// posix_spawnp(3).
    posix_spawnp(pid: *mut c_void, file: *const c_char, actions: *const c_void,
        attributes: *const c_void, arguments: Strings, environment: Strings);
}
