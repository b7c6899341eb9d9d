//! `fi_getinfo`: whether the provider can do what a program wants, and how.

mod address;
mod answer;
mod hints;

use std::ffi::{CStr, c_char};
use std::ptr;

pub use address::{from_raw, resolve_for_peer, size_of_family, to_raw};
pub use answer::DIRECTED;

use crate::abi::constants::*;
use crate::abi::info::Info;
use crate::report::{self, Level};
use crate::settings;
use address::{Ends, Named};
use hints::Hints;

/// Answers `fi_getinfo`.
pub unsafe extern "C" fn getinfo(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const Info,
    info: *mut *mut Info,
) -> i32 {
    // SAFETY: libfabric passes C strings, hints in the layout of `version`, and a place for the
    // answer; each may be null except for the last.
    let (node, service, hints) = unsafe {
        let text = |text: *const c_char| (!text.is_null()).then(|| CStr::from_ptr(text));
        (text(node), text(service), Hints::read(hints, version))
    };
    match find(version, node, service, flags, &hints) {
        Ok(answer) => {
            // SAFETY: as above.
            unsafe { *info = answer };
            0
        }
        Err(reason) => {
            report::line(Level::Info, || reason);
            // SAFETY: as above.
            unsafe { *info = ptr::null_mut() };
            -FI_ENODATA
        }
    }
}

/// The answer, or a sentence that says why there is none.
fn find(
    version: u32,
    node: Option<&CStr>,
    service: Option<&CStr>,
    flags: u64,
    hints: &Hints,
) -> Result<*mut Info, String> {
    hints.check()?;
    // Only to query the engine: the domain opens a session of its own.
    let session = settings::attach().map_err(|error| error.to_string())?;
    let own = session.own_addresses();
    let ends = if flags & FI_PROV_ATTR_ONLY != 0 {
        Ends::default()
    } else {
        Ends::find(Named { node, service, flags }, hints, &session, &own)?
    };
    answer::make(version, hints, &ends).ok_or_else(|| "out of memory".to_owned())
}
