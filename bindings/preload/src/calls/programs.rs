//! Starting other programs: connections that they get become sockets of the kernel's before; listeners are
//! passed on; and a process that becomes another program reports its sockets. What glibc calls inside
//! `system` and `popen` is not seen.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::real;
use crate::report::{Event, report};

pub(crate) mod lists;

/// What the library is called in LD_PRELOAD.
const LIBRARY: &[u8] = b"liboutboard_preload";

/// How another program starts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// In the place of this one.
    Exec,
    /// Beside this one.
    Spawn,
}

/// The program at `path` is to start with `environment`. Makes inherited connections and
/// listeners ready for it, and reports where this process becomes it. Nothing is done where
/// there is no such program, as callers try one directory of PATH after the other.
///
/// # Safety
/// `environment` as execve(2) demands.
pub(super) unsafe fn leaving(start: Start, path: *const c_char, environment: Strings) {
    let Some(sockets) = crate::sockets() else { return };
    if !may_start(path) {
        return;
    }
    // SAFETY: by the caller's promise.
    let has_library = unsafe { names_library(environment) };
    crate::boundary::answer(|| {
        // SAFETY: asks for flags only.
        let is_inherited = |fd| unsafe { real::fcntl(fd, libc::F_GETFD, 0) } == 0;
        sockets.leaving(&is_inherited, has_library, start == Start::Exec);
        Ok(0)
    });
    if start == Start::Exec {
        crate::boundary::tell(|_| report(Event::Exec));
    }
}

/// Whether there is a program at `path`, or that is not known (null).
fn may_start(path: *const c_char) -> bool {
    let saved = crate::boundary::errno();
    // SAFETY: the kernel checks the path, and reads it alone.
    let may_start = path.is_null()
        || unsafe { libc::faccessat(libc::AT_FDCWD, path, libc::X_OK, libc::AT_EACCESS) } == 0;
    crate::boundary::set_errno(saved);
    may_start
}

/// The path of a program that `file` names, unless it is searched for in PATH.
///
/// # Safety
/// `file` is a string, as execvp(3) demands.
unsafe fn unsearched(file: *const c_char) -> *const c_char {
    // SAFETY: by the caller's promise.
    let name = unsafe { CStr::from_ptr(file) };
    if name.to_bytes().contains(&b'/') { file } else { std::ptr::null() }
}

/// A path that a spawned program's own directory, which the caller may choose, does not change.
///
/// # Safety
/// `path` is a string, as posix_spawn(3) demands.
unsafe fn absolute(path: *const c_char) -> *const c_char {
    // SAFETY: by the caller's promise.
    let name = unsafe { CStr::from_ptr(path) };
    if name.to_bytes().starts_with(b"/") { path } else { std::ptr::null() }
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
        let text = unsafe { CStr::from_ptr(*text) }.to_bytes();
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

macro_rules! starters {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*)
        as $start:ident of $path:expr, with $environment:expr;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As the C function's.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> c_int {
                // SAFETY: path and environment are as the C function demands.
                unsafe { leaving(Start::$start, $path, $environment) };
                // SAFETY: arguments passed through.
                unsafe { real::$name($($arg),*) }
            }
        )*
    };
}

/// posix_spawn_file_actions_adddup2(3). What a program is to have is made ready before it starts.
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn posix_spawn_file_actions_adddup2(
    actions: *mut c_void,
    fd: c_int,
    new: c_int,
) -> c_int {
    crate::boundary::tell(|sockets| {
        if sockets.tracks(fd) {
            // Where it cannot be had, a line has been logged.
            let _ = sockets.hand_over(fd);
        }
    });
    // SAFETY: arguments passed through.
    unsafe { real::posix_spawn_file_actions_adddup2(actions, fd, new) }
}

type Strings = *const *const c_char;

starters! {
    /// execve(2).
    execve(path: *const c_char, arguments: Strings, environment: Strings)
        as Exec of path, with environment;
    /// execv(3).
    execv(path: *const c_char, arguments: Strings) as Exec of path, with own_environment();
    /// execvp(3).
    execvp(file: *const c_char, arguments: Strings)
        as Exec of unsearched(file), with own_environment();
    /// execvpe(3).
    execvpe(file: *const c_char, arguments: Strings, environment: Strings)
        as Exec of unsearched(file), with environment;
    /// fexecve(3).
    fexecve(fd: c_int, arguments: Strings, environment: Strings)
        as Exec of std::ptr::null(), with environment;
    /// posix_spawn(3).
    posix_spawn(pid: *mut c_void, path: *const c_char, actions: *const c_void,
        attributes: *const c_void, arguments: Strings, environment: Strings)
        as Spawn of absolute(path), with environment;
    /// posix_spawnp(3).
    posix_spawnp(pid: *mut c_void, file: *const c_char, actions: *const c_void,
        attributes: *const c_void, arguments: Strings, environment: Strings)
        as Spawn of absolute(file), with environment;
}
