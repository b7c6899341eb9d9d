//! execl(3), execlp(3) and execle(3). Their arguments end with a null pointer, which no Rust
//! function can take: each entry point is written in assembly, prepares the start of the program,
//! and continues at the C library's function with the caller's registers and stack.

use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use super::{Start, Strings, leaving, own_environment, unsearched};
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

/// Target if there is no such function.
extern "C" fn missing() -> i32 {
    set_errno(libc::ENOSYS);
    -1
}

/// Prepares the start of a program with `environment`; returns where to continue.
///
/// # Safety
/// `path` is null or a string; `environment` as execve(2) demands.
unsafe fn before(place: usize, path: *const c_char, environment: Strings) -> *mut c_void {
    // SAFETY: by the caller's promise.
    unsafe { leaving(Start::Exec, path, std::ptr::null(), environment) };
    let next = NEXT.get(place).map_or(std::ptr::null_mut(), |next| next.load(Ordering::Relaxed));
    if next.is_null() { missing as *mut c_void } else { next }
}

/// Location of argument `index` of the caller: the first six are saved registers, the last of them
/// lowest; the return address and the other arguments follow.
#[cfg(target_arch = "x86_64")]
const fn word_of(index: usize) -> usize {
    if index < 6 { 5 - index } else { index + 1 }
}

/// The same: the first eight are saved registers, and the others follow.
#[cfg(target_arch = "aarch64")]
const fn word_of(index: usize) -> usize {
    index
}

/// The environment of an execle(3): the argument after the null pointer that ends the program's
/// arguments, which follow the path.
///
/// # Safety
/// `saved` points at the registers as the entries save them, and the caller has passed what execle(3) demands.
unsafe fn environment_behind(saved: *const Strings) -> Strings {
    let mut index = 1;
    // SAFETY: by the caller's promise a null pointer ends the arguments, and the environment follows.
    unsafe {
        while !saved.add(word_of(index)).read().is_null() {
            index += 1;
        }
        saved.add(word_of(index + 1)).read()
    }
}

unsafe extern "C" fn before_execl(path: *const c_char) -> *mut c_void {
    // SAFETY: the caller of execl promises a string.
    unsafe { before(0, path, own_environment()) }
}

unsafe extern "C" fn before_execlp(file: *const c_char) -> *mut c_void {
    // SAFETY: the caller of execlp promises a string.
    unsafe { before(1, unsearched(file), own_environment()) }
}

unsafe extern "C" fn before_execle(path: *const c_char, saved: *const Strings) -> *mut c_void {
    // SAFETY: the caller of execle promises a string, arguments and an environment; the entry has saved them.
    unsafe { before(2, path, environment_behind(saved)) }
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
                    "lea rsi, [rsp + 8]",
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
                    "add x1, sp, #16",
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

#[cfg(test)]
mod tests {
    use super::*;

    /// It was judged by the environment of the process.
    #[test]
    fn the_environment_of_execle_is_found_in_registers_and_on_the_stack() {
        let (text, environment) = (std::ptr::dangling(), std::ptr::without_provenance(0x1000));
        for arguments in 0..20 {
            let mut saved = [text; 32];
            saved[word_of(1 + arguments)] = std::ptr::null();
            saved[word_of(2 + arguments)] = environment;
            // SAFETY: laid out as the entries do it.
            assert_eq!(unsafe { environment_behind(saved.as_ptr()) }, environment);
        }
    }
}
