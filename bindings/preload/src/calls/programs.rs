//! Starting other programs: connections of the engine do not survive it, which is said; listeners are
//! passed on; and a process that becomes another program reports its sockets. What glibc's execl and its
//! kin call is not seen.

use std::ffi::{c_char, c_int, c_void};

use crate::real;
use crate::report::{Event, report};

/// What the library is called in LD_PRELOAD.
const LIBRARY: &[u8] = b"liboutboard_preload";

/// Another program is to start with `environment`. Says so when it would inherit a connection, and
/// makes inherited listeners ready for it.
///
/// # Safety
/// `environment` as execve(2) demands.
pub(super) unsafe fn leaving(environment: Strings) {
    let Some(sockets) = crate::sockets() else { return };
    // SAFETY: by the caller's promise.
    let has_library = unsafe { names_library(environment) };
    crate::boundary::answer(|| {
        // SAFETY: asks for flags only.
        let is_inherited = |fd| unsafe { real::fcntl(fd, libc::F_GETFD, 0) } == 0;
        sockets.leaving(&is_inherited, has_library);
        Ok(0)
    });
}

/// Whether an environment loads the library into a program. One that is static, or has other rights
/// than its caller, runs without it nevertheless.
///
/// # Safety
/// `environment` is null or ends with a null pointer, as execve(2) demands.
unsafe fn names_library(environment: Strings) -> bool {
    let mut at = environment;
    // SAFETY: by the caller's promise.
    while let Some(text) = unsafe { at.as_ref() }.filter(|text| !text.is_null()) {
        // SAFETY: a string of C's, by the caller's promise.
        let text = unsafe { std::ffi::CStr::from_ptr(*text) }.to_bytes();
        if let Some(libraries) = text.strip_prefix(b"LD_PRELOAD=") {
            return libraries.windows(LIBRARY.len()).any(|name| name == LIBRARY);
        }
        // SAFETY: the array goes on until the null pointer.
        at = unsafe { at.add(1) };
    }
    false
}

/// The environment of this process.
fn own_environment() -> Strings {
    unsafe extern "C" {
        static environ: Strings;
    }
    // SAFETY: a pointer of the C library's, read as exec itself reads it.
    unsafe { environ }
}

/// Reports before this process becomes the program at `path`; not when there is none, as callers try one
/// directory of PATH after the other.
pub(super) fn becoming(path: *const c_char) {
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
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) in $environment:expr $(, $at:expr)?;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As the C function's.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> c_int {
                // SAFETY: the environment is as the C function demands.
                unsafe { leaving($environment) };
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
    execve(path: *const c_char, arguments: Strings, environment: Strings) in environment, path;
    /// execv(3).
    execv(path: *const c_char, arguments: Strings) in own_environment(), path;
    /// execvp(3).
    execvp(file: *const c_char, arguments: Strings) in own_environment(), std::ptr::null();
    /// execvpe(3).
    execvpe(file: *const c_char, arguments: Strings, environment: Strings)
        in environment, std::ptr::null();
    /// fexecve(3).
    fexecve(fd: c_int, arguments: Strings, environment: Strings) in environment, std::ptr::null();
    /// posix_spawn(3).
    posix_spawn(pid: *mut c_void, path: *const c_char, actions: *const c_void,
        attributes: *const c_void, arguments: Strings, environment: Strings) in environment;
    /// posix_spawnp(3).
    posix_spawnp(pid: *mut c_void, file: *const c_char, actions: *const c_void,
        attributes: *const c_void, arguments: Strings, environment: Strings) in environment;
}
