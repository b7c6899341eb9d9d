//! execl(3), execlp(3) and execle(3). Their arguments end with a null pointer, which no function of Rust's can
//! take: each entry is written in assembly, has the program's start made ready, and goes on at the C
//! library's function with the caller's registers and stack.

use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use super::{Start, leaving, own_environment, unsearched};
use crate::boundary::set_errno;
use crate::real;

/// The C library's functions, once they have been looked up.
static NEXT: [AtomicPtr<c_void>; 3] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 3];

/// Looks the functions up, so that no later call does.
pub fn resolve_all() {
    for (next, name) in NEXT.iter().zip([c"execl", c"execlp", c"execle"]) {
        next.store(real::find(name), Ordering::Relaxed);
    }
}

/// Where there is no such function.
extern "C" fn missing() -> i32 {
    set_errno(libc::ENOSYS);
    -1
}

/// Makes the start of a program ready; where to go on.
///
/// # Safety
/// `path` is null or a string.
unsafe fn before(place: usize, path: *const c_char) -> *mut c_void {
    // That of execle is behind its arguments. What it names is looked at by the program's loader.
    // SAFETY: by the caller's promise; the environment is the process's own.
    unsafe { leaving(Start::Exec, path, own_environment()) };
    let next = NEXT.get(place).map_or(std::ptr::null_mut(), |next| next.load(Ordering::Relaxed));
    if next.is_null() { missing as *mut c_void } else { next }
}

unsafe extern "C" fn before_execl(path: *const c_char) -> *mut c_void {
    // SAFETY: the caller of execl promises a string.
    unsafe { before(0, path) }
}

unsafe extern "C" fn before_execlp(file: *const c_char) -> *mut c_void {
    // SAFETY: the caller of execlp promises a string.
    unsafe { before(1, unsearched(file)) }
}

unsafe extern "C" fn before_execle(path: *const c_char) -> *mut c_void {
    // SAFETY: the caller of execle promises a string.
    unsafe { before(2, path) }
}

macro_rules! lists {
    ($($(#[$doc:meta])* $name:ident as $before:ident;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As the C function's.
            #[cfg(target_arch = "x86_64")]
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C-unwind" fn $name() -> i32 {
                std::arch::naked_asm!(
                    ".cfi_startproc",
                    "push rdi",
                    "push rsi",
                    "push rdx",
                    "push rcx",
                    "push r8",
                    "push r9",
                    "sub rsp, 8",
                    ".cfi_adjust_cfa_offset 56",
                    "call {before}",
                    "add rsp, 8",
                    "pop r9",
                    "pop r8",
                    "pop rcx",
                    "pop rdx",
                    "pop rsi",
                    "pop rdi",
                    ".cfi_adjust_cfa_offset -56",
                    "mov r11, rax",
                    "xor eax, eax",
                    "jmp r11",
                    ".cfi_endproc",
                    before = sym $before,
                )
            }

            $(#[$doc])*
            ///
            /// # Safety
            /// As the C function's.
            #[cfg(target_arch = "aarch64")]
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C-unwind" fn $name() -> i32 {
                std::arch::naked_asm!(
                    ".cfi_startproc",
                    "stp x29, x30, [sp, #-80]!",
                    ".cfi_adjust_cfa_offset 80",
                    ".cfi_rel_offset x29, 0",
                    ".cfi_rel_offset x30, 8",
                    "mov x29, sp",
                    "stp x0, x1, [sp, #16]",
                    "stp x2, x3, [sp, #32]",
                    "stp x4, x5, [sp, #48]",
                    "stp x6, x7, [sp, #64]",
                    "bl {before}",
                    "mov x16, x0",
                    "ldp x0, x1, [sp, #16]",
                    "ldp x2, x3, [sp, #32]",
                    "ldp x4, x5, [sp, #48]",
                    "ldp x6, x7, [sp, #64]",
                    "ldp x29, x30, [sp], #80",
                    ".cfi_adjust_cfa_offset -80",
                    ".cfi_restore x29",
                    ".cfi_restore x30",
                    "br x16",
                    ".cfi_endproc",
                    before = sym $before,
                )
            }
        )*
    };
}

lists! {
    /// execl(3).
    execl as before_execl;
    /// execlp(3).
    execlp as before_execlp;
    /// execle(3).
    execle as before_execle;
}
