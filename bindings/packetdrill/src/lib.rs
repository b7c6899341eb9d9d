//! packetdrill's shared-object interface over the stack in virtual time: `packetdrill
//! --so_filename=liboutboard_packetdrill.so script.pkt` runs a script against it, unmodified.
//!
//! Below the interface is the host of our own packet scripts, `script::ours`: a worker, a region,
//! the client's POSIX sockets and a fake kernel. packetdrill has two threads, one for the events of
//! the script and one for blocking calls; time advances only when the first one waits
//! ([`machine`]). The settings that a script's commands write to the kernel are read back when the
//! first socket is created ([`surroundings`]), which needs a network namespace of its own, as set
//! up by `make packetdrill`.
//!
//! packetdrill calls getsockopt(2) for TCP_INFO itself, bypassing the interface; if this library is
//! also preloaded, that call reaches our sockets ([`preloaded`]).
//!
//! Start reading at [`packetdrill_interface_init`].

mod calls;
mod device;
mod interface;
mod machine;
mod memory;
mod nstat;
mod preloaded;
mod surroundings;

use std::ffi::{c_char, c_void};

use interface::PacketdrillInterface;
use machine::Machine;

/// Fills in packetdrill's table of functions. The flags are unused: all settings are packetdrill's
/// own options.
///
/// # Safety
/// `interface` points to room for packetdrill's `struct packetdrill_interface`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetdrill_interface_init(
    _flags: *const c_char,
    interface: *mut PacketdrillInterface,
) {
    let machine: &'static Machine = Box::leak(Box::new(Machine::new()));
    preloaded::serve_from(machine);
    let userdata = std::ptr::from_ref(machine).cast_mut().cast::<c_void>();
    // SAFETY: the caller's pointer has room for one.
    unsafe { interface.write(calls::table(userdata)) };
}
