//! syscall(2): system calls by their numbers. Programs make the same calls on sockets this way as
//! through the C library's functions (libuv closes with it), so a table maps each number with a
//! descriptor argument to the code of its function.
//!
//! The entry point is written in assembly, because some calls must be made as if this library did
//! not exist: a child that shares its parent's memory, or has a stack of its own, cannot return
//! through a frame of ours. [`route`] finds where to continue, and the entry point jumps there with
//! the caller's registers and stack.
//!
//! The kernel's forms of some calls differ from the functions': masks have a size, timeouts are
//! updated, and none is a cancellation point.

use std::ffi::{c_int, c_long, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::boundary::set_errno;
use crate::{memory, real};

mod forms;
mod table;

use table::{Door, door};

/// A system call's number and arguments, as in syscall(2).
type Function =
    unsafe extern "C-unwind" fn(c_long, c_long, c_long, c_long, c_long, c_long, c_long) -> c_long;

/// The C library's syscall(2), once it has been looked up.
static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// syscall(2). futex(2) goes straight to the C library, because it is the most frequent call.
///
/// # Safety
/// As the C function's.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn syscall() -> c_long {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "cmp rdi, {futex}",
        "jne 2f",
        "mov rax, qword ptr [rip + {next}]",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2:",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 56",
        "call {route}",
        "add rsp, 8",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        ".cfi_adjust_cfa_offset -56",
        "jmp rax",
        ".cfi_endproc",
        futex = const libc::SYS_futex,
        next = sym NEXT,
        route = sym route,
    )
}

/// syscall(2). futex(2) goes straight to the C library, because it is the most frequent call.
///
/// # Safety
/// As the C function's.
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn syscall() -> c_long {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "cmp x0, {futex}",
        "b.ne 2f",
        "adrp x16, {next}",
        "ldr x16, [x16, :lo12:{next}]",
        "cbz x16, 2f",
        "br x16",
        "2:",
        "stp x29, x30, [sp, #-80]!",
        ".cfi_adjust_cfa_offset 80",
        ".cfi_rel_offset x29, 0",
        ".cfi_rel_offset x30, 8",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "stp x2, x3, [sp, #32]",
        "stp x4, x5, [sp, #48]",
        "str x6, [sp, #64]",
        "bl {route}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x2, x3, [sp, #32]",
        "ldp x4, x5, [sp, #48]",
        "ldr x6, [sp, #64]",
        "ldp x29, x30, [sp], #80",
        ".cfi_adjust_cfa_offset -80",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "br x16",
        ".cfi_endproc",
        futex = const libc::SYS_futex,
        next = sym NEXT,
        route = sym route,
    )
}

/// The C library's function.
fn next() -> *mut c_void {
    let found = NEXT.load(Ordering::Relaxed);
    if !found.is_null() {
        return found;
    }
    let found = real::find(c"syscall");
    NEXT.store(found, Ordering::Relaxed);
    if found.is_null() { missing as *mut c_void } else { found }
}

/// Target if there is no next syscall(2).
extern "C" fn missing() -> c_long {
    set_errno(libc::ENOSYS);
    -1
}

/// Where a call continues: at the C library's function, or at one of ours with the same arguments.
extern "C" fn route(number: c_long, a: c_long, b: c_long) -> *mut c_void {
    let Some(door) = door(number).filter(|_| crate::sockets().is_some()) else { return next() };
    let ours = match door {
        Door::On(function) => is_tracked(a).then_some(function),
        Door::Always(function) => Some(function),
        Door::Clone(function) => is_plain_fork(a as u64, b as u64).then_some(function),
        Door::Clone3(function) => {
            // SAFETY: any bytes are one.
            let asked = unsafe { memory::load(a as *const Clone3) };
            asked.is_ok_and(|asked| is_plain_fork(asked.flags, asked.stack)).then_some(function)
        }
    };
    ours.map_or_else(next, |function| function as *mut c_void)
}

/// The beginning of `struct clone_args` (linux/sched.h).
#[derive(Clone, Copy)]
#[repr(C)]
struct Clone3 {
    flags: u64,
    _numbers: [u64; 4],
    stack: u64,
}

/// Whether a child has its own memory, and continues where its parent does.
fn is_plain_fork(flags: u64, stack: u64) -> bool {
    flags & libc::CLONE_VM as u64 == 0 && stack == 0
}

fn is_tracked(fd: c_long) -> bool {
    crate::sockets().is_some_and(|sockets| sockets.tracks(fd as c_int))
}
