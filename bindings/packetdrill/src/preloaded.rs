//! Calls that packetdrill makes outside its interface. If this library is also preloaded, they
//! reach our sockets; all others go to the C library.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

use client::sockets::Errno;
use libc::socklen_t;

use crate::calls;
use crate::machine::Machine;

static MACHINE: OnceLock<&'static Machine> = OnceLock::new();

/// Sets the machine.
pub fn serve_from(machine: &'static Machine) {
    // A process runs one script; the first machine stays.
    let _ = MACHINE.set(machine);
}

/// system(3), by which packetdrill runs a script's commands: changes made by them are applied.
///
/// # Safety
/// As system(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn system(command: *const c_char) -> c_int {
    // SAFETY: the name is a C string.
    let real = unsafe { libc::dlsym(libc::RTLD_NEXT, c"system".as_ptr()) };
    if real.is_null() || command.is_null() {
        return -1;
    }
    // SAFETY: the C library's function of this name has this type.
    let real: unsafe extern "C" fn(*const c_char) -> c_int = unsafe { std::mem::transmute(real) };
    // SAFETY: the caller's string.
    let text = unsafe { CStr::from_ptr(command) }.to_string_lossy();
    let ours = MACHINE.get().and_then(|machine| machine.rewritten(&text));
    let ours = ours.and_then(|code| CString::new(code).ok());
    let command = ours.as_deref().map_or(command, CStr::as_ptr);
    // SAFETY: a C string that lives until then, ours or the caller's.
    let status = unsafe { real(command) };
    if let Some(machine) = MACHINE.get() {
        machine.commanded(&text);
    }
    status
}

/// sendfile(2), which packetdrill calls itself.
///
/// # Safety
/// As sendfile(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile(
    to: c_int,
    from: c_int,
    offset: *mut libc::off_t,
    len: libc::size_t,
) -> libc::ssize_t {
    if let Some(machine) = MACHINE.get().filter(|machine| calls::is_ours(machine, to)) {
        // SAFETY: the caller's offset is as sendfile(2) demands.
        return unsafe { calls::send_file(machine, to, from, offset, len) };
    }
    // SAFETY: the same arguments.
    let sent = unsafe { libc::syscall(libc::SYS_sendfile, to, from, offset, len) };
    sent as libc::ssize_t
}

/// The same under its name for 64-bit offsets.
///
/// # Safety
/// As sendfile(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile64(
    to: c_int,
    from: c_int,
    offset: *mut libc::off_t,
    len: libc::size_t,
) -> libc::ssize_t {
    // SAFETY: the same arguments.
    unsafe { sendfile(to, from, offset, len) }
}

/// getsockopt(2): packetdrill reads TCP_INFO and the like for a script's assertions.
///
/// # Safety
/// As getsockopt(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    if let Some(machine) = MACHINE.get() {
        let named = calls::SocketOption { level, name };
        // SAFETY: the caller's pointers are as getsockopt(2) demands.
        let outcome = unsafe { calls::option(machine, fd, named, value, len) };
        if outcome != Err(Errno::BADF) {
            return crate::memory::answer(outcome);
        }
    }
    // SAFETY: the same arguments.
    let outcome = unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, name, value, len) };
    c_int::try_from(outcome).unwrap_or(-1)
}
