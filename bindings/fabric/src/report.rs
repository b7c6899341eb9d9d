//! Lines in libfabric's log (FI_LOG_LEVEL).
//!
//! libfabric is loaded before a provider, but its symbols may not be visible to the dynamic linker
//! (Open MPI loads it privately), so they are looked up in the loaded library itself. This also
//! makes libfabric's files unnecessary for the build.

use std::ffi::{CStr, CString, c_char, c_int};
use std::mem;
use std::sync::OnceLock;

use crate::abi::Provider;

/// `enum fi_log_level`.
#[derive(Clone, Copy, Debug)]
pub enum Level {
    Warn = 0,
    Info = 2,
}

/// `FI_LOG_FABRIC`.
const SUBSYSTEM: c_int = 1;

type Enabled = unsafe extern "C" fn(*const Provider, c_int, c_int) -> c_int;
type Log =
    unsafe extern "C" fn(*const Provider, c_int, c_int, *const c_char, c_int, *const c_char, ...);

/// `fi_log_enabled` and `fi_log` of the loaded library.
fn functions() -> Option<(Enabled, Log)> {
    static FUNCTIONS: OnceLock<Option<(Enabled, Log)>> = OnceLock::new();
    *FUNCTIONS.get_or_init(|| {
        // SAFETY: plain calls with C strings; the handle is never closed, so that the functions
        // stay.
        let (enabled, log) = unsafe {
            let library =
                libc::dlopen(c"libfabric.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if library.is_null() {
                return None;
            }
            let symbol = |name: &CStr| libc::dlsym(library, name.as_ptr());
            (symbol(c"fi_log_enabled"), symbol(c"fi_log"))
        };
        if enabled.is_null() || log.is_null() {
            return None;
        }
        // SAFETY: libfabric's functions of these names have these types.
        unsafe {
            Some((
                mem::transmute::<*mut libc::c_void, Enabled>(enabled),
                mem::transmute::<*mut libc::c_void, Log>(log),
            ))
        }
    })
}

/// Writes a line if lines of this level are enabled.
pub fn line(level: Level, text: impl FnOnce() -> String) {
    let Some((enabled, log)) = functions() else { return };
    let provider = crate::provider();
    // SAFETY: the provider lives as long as the process.
    if unsafe { enabled(provider, level as c_int, SUBSYSTEM) } == 0 {
        return;
    }
    let Ok(text) = CString::new(text() + "\n") else { return };
    // SAFETY: the format takes one C string.
    unsafe {
        log(
            provider,
            level as c_int,
            SUBSYSTEM,
            c"outboard".as_ptr(),
            0,
            c"%s".as_ptr(),
            text.as_ptr(),
        );
    }
}
