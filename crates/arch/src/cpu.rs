//! Hints to the CPU, and its cycle counter.

/// Asks for the cache line at `address`, which will be read soon. Any address is allowed.
#[inline(always)]
pub fn prefetch_read<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults, whatever the address, and SSE is part of x86_64.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: PRFM never faults, whatever the address, and changes no register or flag.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

/// Asks for the cache line at `address`, which will be written soon. Any address is allowed.
#[inline(always)]
pub fn prefetch_write<T>(address: *mut T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults, whatever the address. PREFETCHW is a no-operation on the
    // few x86_64 CPUs without it.
    unsafe {
        core::arch::asm!("prefetchw [{0}]", in(reg) address, options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: PRFM never faults, whatever the address, and changes no register or flag.
    unsafe {
        core::arch::asm!("prfm pstl1keep, [{0}]", in(reg) address, options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

/// One turn of a polling loop: saves power, and gives the core's other thread its share.
#[inline(always)]
pub fn pause() {
    core::hint::spin_loop();
}

/// A counter that runs at a constant rate on every core, in ticks of unknown length: compare
/// with a clock to learn it. Not ordered with the instructions around it.
#[inline(always)]
pub fn cycles() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86_64 CPU has RDTSC, and Linux lets programs use it.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(target_arch = "aarch64")]
    {
        let count: u64;
        // SAFETY: Linux lets programs read the virtual counter.
        unsafe {
            core::arch::asm!("mrs {0}, cntvct_el0", out(reg) count, options(nomem, nostack, preserves_flags));
        }
        count
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    compile_error!("outboard runs on x86_64 and aarch64; add this CPU's cycle counter here");
}

/// Whether the CPU has AVX2 and the kernel saves its registers. Found out once.
#[cfg(target_arch = "x86_64")]
pub(crate) fn has_avx2() -> bool {
    use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

    const UNKNOWN: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;
    static KNOWN: AtomicU8 = AtomicU8::new(UNKNOWN);

    if cfg!(target_feature = "avx2") {
        return true;
    }
    // Relaxed: the answer is a constant; two threads may find it out twice.
    match KNOWN.load(Relaxed) {
        UNKNOWN => {
            let found = detect_avx2();
            KNOWN.store(if found { YES } else { NO }, Relaxed);
            found
        }
        known => known == YES,
    }
}

/// Intel's Software Developer's Manual, volume 1, section 14.7.1: AVX2, and the operating system
/// must have enabled the upper halves of the registers.
#[cfg(target_arch = "x86_64")]
#[cold]
fn detect_avx2() -> bool {
    use core::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};

    const OSXSAVE_AND_AVX: u32 = 1 << 27 | 1 << 28;
    const AVX2: u32 = 1 << 5;
    const SSE_AND_AVX_STATE: u64 = 0b110;

    #[target_feature(enable = "xsave")]
    fn enabled_state() -> u64 {
        // SAFETY: register 0 exists wherever XGETBV does.
        unsafe { _xgetbv(0) }
    }

    if __cpuid(0).eax < 7 || __cpuid(1).ecx & OSXSAVE_AND_AVX != OSXSAVE_AND_AVX {
        return false;
    }
    // SAFETY: OSXSAVE, checked above, says that XGETBV may be used.
    let state = unsafe { enabled_state() };
    state & SSE_AND_AVX_STATE == SSE_AND_AVX_STATE && __cpuid_count(7, 0).ebx & AVX2 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_take_any_address() {
        prefetch_read(core::ptr::null::<u8>());
        prefetch_write(core::ptr::null_mut::<u8>());
        let mut byte = 0u8;
        prefetch_read(&raw const byte);
        prefetch_write(&raw mut byte);
        pause();
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn avx2_is_found_where_the_standard_library_finds_it() {
        assert_eq!(has_avx2(), std::arch::is_x86_feature_detected!("avx2"));
        assert_eq!(has_avx2(), std::arch::is_x86_feature_detected!("avx2"));
    }

    #[test]
    fn the_cycle_counter_advances() {
        let start = cycles();
        while cycles() == start {
            pause();
        }
    }
}
