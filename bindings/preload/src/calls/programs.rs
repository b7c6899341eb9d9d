//! Starting other programs: connections that they get become sockets of the kernel's before; listeners are
//! passed on; and a process that becomes another program reports its sockets.
//!
//! A process that becomes another program passes on all connections that are not closed on exec. A program that starts beside
//! this one (posix_spawn, system, popen) may inherit thousands of connections that it never uses, and each would go
//! through the relay from then on: it gets those that are its standard input, output and errors, that actions name,
//! and whose numbers its arguments tell it.

use std::ffi::{CStr, c_char, c_int, c_void};

use client::sockets::{Departure, Sockets};

use super::opening::appeared_under;
use crate::real;
use crate::report::{Event, report};

pub(crate) mod again;
pub(crate) mod lists;

/// The library's name in LD_PRELOAD.
const LIBRARY: &[u8] = b"liboutboard_preload";

/// How another program starts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// Replacing this one.
    Exec,
    /// As another process.
    Spawn,
}

/// The program at `path` is to start with `arguments` (null where they are not known) and `environment`. Makes
/// inherited connections and
/// listeners ready for it, and reports where this process becomes it. Nothing is done where
/// there is no such program, as callers try one directory of PATH after the other.
///
/// # Safety
/// `arguments` is null or, as `environment`, as execve(2) demands.
pub(super) unsafe fn leaving(
    start: Start,
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
) {
    if crate::sockets().is_none() || !may_start(path) {
        return;
    }
    let name = |sockets: &Sockets, named: &mut Vec<c_int>| {
        // SAFETY: by the caller's promise.
        unsafe { strings(arguments) }.for_each(|text| add_numbers(text, sockets, named));
    };
    // SAFETY: by the caller's promise.
    unsafe { depart(start, environment, name) };
    if start == Start::Exec {
        crate::boundary::tell(|_| report(Event::Exec));
    }
}

/// The same of a shell that runs `command`, if there is one.
///
/// # Safety
/// `command` is null or a string.
unsafe fn starting_shell(command: *const c_char) {
    if command.is_null() {
        return;
    }
    // SAFETY: by the caller's promise.
    let command = unsafe { CStr::from_ptr(command) }.to_bytes();
    let name = |sockets: &Sockets, named: &mut Vec<c_int>| add_numbers(command, sockets, named);
    // SAFETY: the environment is the C library's.
    unsafe { depart(Start::Spawn, own_environment(), name) };
}

/// Makes what a program inherits ready for it. `name` adds the numbers that it is told.
///
/// # Safety
/// `environment` as execve(2) demands.
unsafe fn depart(start: Start, environment: Strings, name: impl FnOnce(&Sockets, &mut Vec<c_int>)) {
    let Some(sockets) = crate::sockets() else { return };
    // SAFETY: by the caller's promise.
    let has_library = unsafe { names_library(environment) };
    crate::boundary::answer(|| {
        // SAFETY: asks for flags only.
        let is_inherited = |fd| unsafe { real::fcntl(fd, libc::F_GETFD, 0) } == 0;
        let mut named = Vec::new();
        name(sockets, &mut named);
        sockets.leaving(&Departure {
            is_inherited: &is_inherited,
            named: &named,
            has_library,
            becomes: start == Start::Exec,
        });
        Ok(0)
    });
}

/// Adds the numbers in a text that the layer follows.
fn add_numbers(text: &[u8], sockets: &Sockets, named: &mut Vec<c_int>) {
    for digits in text.split(|byte| !byte.is_ascii_digit()) {
        let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
        if let Some(number) = number.filter(|&number| sockets.tracks(number))
            && !named.contains(&number)
        {
            named.push(number);
        }
    }
}

/// Whether there is a program at `path`, or the path is unknown (null).
fn may_start(path: *const c_char) -> bool {
    let saved = crate::boundary::errno();
    // SAFETY: the kernel checks the path, and reads it alone.
    let may_start = path.is_null()
        || unsafe { libc::faccessat(libc::AT_FDCWD, path, libc::X_OK, libc::AT_EACCESS) } == 0;
    crate::boundary::set_errno(saved);
    may_start
}

/// The path of the program `file`, unless it is searched for in PATH.
///
/// # Safety
/// `file` is a string, as execvp(3) demands.
unsafe fn unsearched(file: *const c_char) -> *const c_char {
    // SAFETY: by the caller's promise.
    let name = unsafe { CStr::from_ptr(file) };
    if name.to_bytes().contains(&b'/') { file } else { std::ptr::null() }
}

/// A path that does not depend on a spawned program's own directory, which the caller may choose.
///
/// # Safety
/// `path` is a string, as posix_spawn(3) demands.
unsafe fn absolute(path: *const c_char) -> *const c_char {
    // SAFETY: by the caller's promise.
    let name = unsafe { CStr::from_ptr(path) };
    if name.to_bytes().starts_with(b"/") { path } else { std::ptr::null() }
}

/// Whether an environment loads the library into a program. A static program, or one with other
/// privileges than its caller, runs without it nevertheless.
///
/// # Safety
/// `environment` is null or ends with a null pointer, as execve(2) demands.
unsafe fn names_library(environment: Strings) -> bool {
    // SAFETY: by the caller's promise.
    let mut texts = unsafe { strings(environment) };
    let libraries = texts.find_map(|text| text.strip_prefix(b"LD_PRELOAD="));
    libraries.is_some_and(|libraries| libraries.windows(LIBRARY.len()).any(|name| name == LIBRARY))
}

/// The strings of an array.
///
/// # Safety
/// The array is null or ends with a null pointer, and lives as long as what this returns is used.
unsafe fn strings<'a>(array: Strings) -> impl Iterator<Item = &'a [u8]> {
    let mut at = array;
    std::iter::from_fn(move || {
        // SAFETY: by the caller's promise.
        let text = unsafe { at.as_ref() }.filter(|text| !text.is_null())?;
        // SAFETY: the array goes on until the null pointer.
        at = unsafe { at.add(1) };
        // SAFETY: a string of C's, by the caller's promise.
        Some(unsafe { CStr::from_ptr(*text) }.to_bytes())
    })
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
        by $leave:expr;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As the C function's.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> c_int {
                // SAFETY: path, arguments and environment are as the C function demands.
                unsafe { $leave };
                // SAFETY: arguments passed through.
                unsafe { real::$name($($arg),*) }
            }
        )*
    };
}

/// posix_spawn_file_actions_adddup2(3). The program's descriptors are converted before it starts.
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
            // If it fails, a line has been logged.
            let _ = sockets.hand_over(fd);
        }
    });
    // SAFETY: arguments passed through.
    unsafe { real::posix_spawn_file_actions_adddup2(actions, fd, new) }
}

type Strings = *const *const c_char;

/// execve(2).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn execve(
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: path and environment are as the C function demands.
    let own = unsafe { again::environment(path, environment) };
    let environment = own.as_ref().map_or(environment, |own| own.as_ptr());
    // SAFETY: as above; the array lives to the end of this call.
    unsafe { leaving(Start::Exec, path, arguments, environment) };
    // SAFETY: arguments passed through.
    unsafe { real::execve(path, arguments, environment) }
}

starters! {
    /// execv(3).
    execv(path: *const c_char, arguments: Strings) by leaving(Start::Exec, path, arguments, own_environment());
    /// execvp(3).
    execvp(file: *const c_char, arguments: Strings)
        by leaving(Start::Exec, unsearched(file), arguments, own_environment());
    /// execvpe(3).
    execvpe(file: *const c_char, arguments: Strings, environment: Strings)
        by leaving(Start::Exec, unsearched(file), arguments, environment);
    /// fexecve(3).
    fexecve(fd: c_int, arguments: Strings, environment: Strings)
        by leaving(Start::Exec, std::ptr::null(), arguments, environment);
    /// posix_spawn(3).
    posix_spawn(pid: *mut c_void, path: *const c_char, actions: *const c_void,
        attributes: *const c_void, arguments: Strings, environment: Strings)
        by leaving(Start::Spawn, absolute(path), arguments, environment);
    /// posix_spawnp(3).
    posix_spawnp(pid: *mut c_void, file: *const c_char, actions: *const c_void,
        attributes: *const c_void, arguments: Strings, environment: Strings)
        by leaving(Start::Spawn, absolute(file), arguments, environment);
    /// system(3).
    system(command: *const c_char)
        by starting_shell(command);
}

/// popen(3).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn popen(
    command: *const c_char,
    mode: *const c_char,
) -> *mut libc::FILE {
    // SAFETY: a string, as the C function demands.
    unsafe { starting_shell(command) };
    // SAFETY: arguments passed through.
    appeared_under(unsafe { real::popen(command, mode) })
}

#[cfg(test)]
mod tests {
    use client::sockets::Config;

    use super::*;

    #[test]
    fn numbers_of_followed_descriptors_are_found_in_a_command() {
        let config = Config {
            socket: "/nonexistent".into(),
            program: "test".into(),
            spin_ns: 0,
            quiet: true,
            report: None,
        };
        let sockets = Sockets::new(config, &crate::kernel::Raw);
        for fd in [7, 12, 130] {
            sockets.created(fd, libc::AF_INET, libc::SOCK_STREAM, 0);
        }
        let mut named = Vec::new();
        let text = b"exec 7>&1; echo 712 >&130 <&7 99999999999 12a";
        add_numbers(text, &sockets, &mut named);
        assert_eq!(named, [7, 130, 12]);
    }
}
