//! The libfabric provider: `fi_*` calls of MPI and other programs in, `client::message` out.
//!
//! libfabric 1.17 loads `liboutboard-fi.so` from FI_PROVIDER_PATH and calls `fi_prov_ini`. Programs
//! then call the functions here through the operation tables of the objects that they open:
//! `objects` converts C's arguments, `state` has the state of the objects, `pieces` copies payload,
//! `info` implements `fi_getinfo`. `abi` has the layouts.
//!
//! Endpoints are reliable and unconnected (FI_EP_RDM), with plain and tagged messages. Not done
//! here: matching and reliability (the engine's), remote memory access.
//!
//! The library never unloads once an engine's session was opened: libfabric closes providers only
//! at exit.
#![deny(clippy::undocumented_unsafe_blocks)]

mod abi;
mod info;
mod objects;
mod pieces;
mod report;
mod settings;
mod state;

use std::cell::UnsafeCell;
use std::ffi::c_char;
use std::ptr;

use abi::Provider;
use abi::constants::version;

/// The provider's name, its fabric's and its domain's.
const NAME: &std::ffi::CStr = c"outboard";

/// The version of libfabric's interface implemented by the provider.
const INTERFACE: u32 = version(1, 17);

/// The provider's own version.
const OWN_VERSION: u32 = version(0, 1);

struct Shared(UnsafeCell<Provider>);

// SAFETY: only libfabric writes to it (its `context`), under its own lock.
unsafe impl Sync for Shared {}

static PROVIDER: Shared = Shared(UnsafeCell::new(Provider {
    version: OWN_VERSION,
    fi_version: INTERFACE,
    context: [ptr::null_mut(); 4],
    name: NAME.as_ptr(),
    getinfo: info::getinfo,
    fabric: objects::fabric::open,
    cleanup,
}));

/// The provider's description.
fn provider() -> *mut Provider {
    PROVIDER.0.get()
}

/// libfabric is about to unload the provider; sessions end with their domains.
unsafe extern "C" fn cleanup() {}

/// Called by libfabric when it has loaded the library.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut Provider {
    provider()
}

/// A C string for the program to free, or null.
fn duplicate(text: &std::ffi::CStr) -> *mut c_char {
    // SAFETY: a C string.
    unsafe { libc::strdup(text.as_ptr()) }
}
