//! Starting other programs: connections of the engine do not survive it, which is said.

use std::ffi::{c_char, c_int, c_void};

use crate::real;

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

macro_rules! starters {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*);)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As the C function's.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> c_int {
                leaving();
                // SAFETY: arguments passed through.
                unsafe { real::$name($($arg),*) }
            }
        )*
    };
}

type Strings = *const *const c_char;

starters! {
    /// execve(2).
    execve(path: *const c_char, arguments: Strings, environment: Strings);
    /// execv(3).
    execv(path: *const c_char, arguments: Strings);
    /// execvp(3).
    execvp(file: *const c_char, arguments: Strings);
    /// execvpe(3).
    execvpe(file: *const c_char, arguments: Strings, environment: Strings);
    /// fexecve(3).
    fexecve(fd: c_int, arguments: Strings, environment: Strings);
    /// posix_spawn(3).
    posix_spawn(pid: *mut c_void, path: *const c_char, actions: *const c_void,
        attributes: *const c_void, arguments: Strings, environment: Strings);
    /// posix_spawnp(3).
    posix_spawnp(pid: *mut c_void, file: *const c_char, actions: *const c_void,
        attributes: *const c_void, arguments: Strings, environment: Strings);
}
