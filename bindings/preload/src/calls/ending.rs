//! The end of the process, for the report of its sockets. exit(3) and the return from main run the
//! library's own destructor.

use std::ffi::c_int;

use crate::report::{Event, report};
use crate::{kernel, real};

/// Reports where the program ends without running destructors.
pub(super) fn ending() {
    crate::boundary::tell(|_| report(Event::Exit));
}

fn end(status: c_int) -> ! {
    ending();
    loop {
        // SAFETY: no memory is passed, and it does not return.
        unsafe { kernel::call(libc::SYS_exit_group, [status as usize, 0, 0, 0, 0, 0]) };
    }
}

/// _exit(2).
#[unsafe(no_mangle)]
pub extern "C-unwind" fn _exit(status: c_int) -> ! {
    end(status)
}

/// _Exit(3).
#[unsafe(no_mangle)]
pub extern "C-unwind" fn _Exit(status: c_int) -> ! {
    end(status)
}

/// quick_exit(3).
///
/// # Safety
/// As the C function's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn quick_exit(status: c_int) -> ! {
    ending();
    // SAFETY: the argument is passed through.
    unsafe { real::quick_exit(status) };
    // A C library without it.
    end(status)
}

/// Runs when the process ends by exit(3).
extern "C" fn finish() {
    ending();
}

#[used]
#[unsafe(link_section = ".fini_array")]
static FINISH: extern "C" fn() = finish;
