//! A program that starts its own file again with an environment that it has made itself, as nginx does for an
//! upgrade, goes on with the library: what it was started with is added.

use std::ffi::{CStr, CString, OsStr, c_char};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::{Strings, may_start, names_library};

/// What the kernel appends to the name of a file that has been replaced.
const REPLACED: &[u8] = b" (deleted)";

/// What this process was started with.
struct Own {
    program: PathBuf,
    /// `NAME=value` of the library's and of what loads it.
    variables: Vec<CString>,
}

static OWN: OnceLock<Own> = OnceLock::new();

/// Whether a variable loads the library or is the library's.
fn is_ours(name: &OsStr) -> bool {
    name == "LD_PRELOAD" || name.as_bytes().starts_with(b"OUTBOARD_")
}

/// Notes what this process was started with. Once, before the program runs.
pub fn note() {
    let Ok(program) = std::fs::read_link("/proc/self/exe") else { return };
    let ours = std::env::vars_os().filter(|(name, _)| is_ours(name));
    let variables = ours.filter_map(|(mut variable, value)| {
        variable.push("=");
        variable.push(value);
        CString::new(variable.into_vec()).ok()
    });
    let _ = OWN.set(Own { program, variables: variables.collect() });
}

/// The environment with which the program at `path` is to start where it is this one's own file, and `given`
/// does not load the library; ends with a null pointer.
///
/// # Safety
/// `path` and `given` as execve(2) demands.
pub unsafe fn environment(path: *const c_char, given: Strings) -> Option<Vec<*const c_char>> {
    let own = OWN.get()?;
    // What cannot be read fails in the kernel.
    if path.is_null() || !may_start(path) {
        return None;
    }
    // SAFETY: by the caller's promise.
    if unsafe { names_library(given) } {
        return None;
    }
    // SAFETY: by the caller's promise.
    let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()));
    if !is_own(path, &own.program) {
        return None;
    }
    let mut all = Vec::new();
    let mut at = given;
    // SAFETY: by the caller's promise a null pointer ends the array.
    while let Some(text) = unsafe { at.as_ref() }.filter(|text| !text.is_null()) {
        all.push(*text);
        // SAFETY: the array goes on until the null pointer.
        at = unsafe { at.add(1) };
    }
    all.extend(own.variables.iter().map(|variable| variable.as_ptr()));
    all.push(std::ptr::null());
    Some(all)
}

/// Whether `path` names the file that this process runs, or one that has taken its place.
fn is_own(path: &Path, program: &Path) -> bool {
    let bytes = program.as_os_str().as_bytes();
    let name = bytes.strip_suffix(REPLACED).unwrap_or(bytes);
    std::fs::canonicalize(path).is_ok_and(|path| path.as_os_str().as_bytes() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_the_same_by_any_path_and_after_an_upgrade() {
        let own = std::fs::canonicalize("/bin/sh").unwrap();
        let mut replaced = own.clone().into_os_string();
        replaced.push(OsStr::from_bytes(REPLACED));
        for program in [own, replaced.into()] {
            assert!(is_own(Path::new("/bin/../bin/sh"), &program));
            assert!(!is_own(Path::new("/bin/cat"), &program));
            assert!(!is_own(Path::new("/nowhere"), &program));
        }
    }
}
