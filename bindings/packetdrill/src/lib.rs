//! packetdrill's shared-object interface over the stack in virtual time: `packetdrill
//! --so_filename=liboutboard_packetdrill.so script.pkt` runs a script against it, unmodified.
//!
//! Under the interface lies what runs our own packet scripts, `script::ours`: a worker, a region,
//! the client's POSIX sockets and a kernel in memory. packetdrill has two threads, one for the
//! events of the script and one for calls that block; time passes only when the first one waits
//! ([`machine`]). The settings that a script's commands write into the kernel are read back from it
//! when the first socket is made ([`surroundings`]), which takes a network namespace of its own,
//! as `make packetdrill` gives it.
//!
//! packetdrill asks for TCP_INFO by getsockopt(2) itself, past the interface; where this library is
//! preloaded as well, that call finds our sockets ([`preloaded`]).
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

/// Fills in packetdrill's table of functions. The flags are unused: everything that matters is said
/// by packetdrill's own options.
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
