//! The ones-complement sum (RFC 1071), alone and while copying.
//!
//! AVX2 where the CPU has it, found out at run time; else a portable body of independent lanes,
//! which the compiler can turn into SSE2 or NEON. `cargo bench -p outboard-arch` compares them.

/// The ones-complement sum (RFC 1071) of the bytes as big-endian 16-bit words, folded to 16 bits
/// and not complemented. An odd last byte counts as if a zero followed.
#[inline]
pub fn sum(bytes: &[u8]) -> u16 {
    if bytes.len() < BLOCK_LEN { short_sum(bytes) } else { long_sum(bytes) }
}

fn long_sum(bytes: &[u8]) -> u16 {
    #[cfg(target_arch = "x86_64")]
    if crate::cpu::has_avx2() {
        // SAFETY: the CPU has AVX2.
        return unsafe { avx2::sum(bytes) };
    }
    sum_portable(bytes)
}

/// Copies `src` to the start of `dst`, as much as both hold, and gives the [`sum`] of what was
/// copied.
pub fn copy_and_sum(dst: &mut [u8], src: &[u8]) -> u16 {
    let len = dst.len().min(src.len());
    let (Some(dst), Some(src)) = (dst.get_mut(..len), src.get(..len)) else { return 0 };
    #[cfg(target_arch = "x86_64")]
    if len >= BLOCK_LEN && crate::cpu::has_avx2() {
        // SAFETY: the CPU has AVX2.
        return unsafe { avx2::copy_and_sum(dst, src) };
    }
    copy_and_sum_portable(dst, src)
}

/// AVX2 by hand, because the compiler's own vectors came and went with changes nearby.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    use core::arch::x86_64::{
        __m256i, _mm256_add_epi64, _mm256_and_si256, _mm256_loadu_si256, _mm256_set1_epi64x,
        _mm256_setzero_si256, _mm256_srli_epi64, _mm256_storeu_si256,
    };

    use super::{BLOCK_LEN, fold, short_words};

    const REGISTER_LEN: usize = 32;
    const REGISTERS: usize = BLOCK_LEN / REGISTER_LEN;

    #[target_feature(enable = "avx2")]
    pub(super) fn sum(bytes: &[u8]) -> u16 {
        let (blocks, rest) = bytes.as_chunks::<BLOCK_LEN>();
        let mut lanes = [_mm256_setzero_si256(); REGISTERS];
        for block in blocks {
            add(&mut lanes, &load(block));
        }
        finish(&lanes, rest)
    }

    /// Both must be of one length.
    #[target_feature(enable = "avx2")]
    pub(super) fn copy_and_sum(dst: &mut [u8], src: &[u8]) -> u16 {
        let (src_blocks, src_rest) = src.as_chunks::<BLOCK_LEN>();
        let (dst_blocks, dst_rest) = dst.as_chunks_mut::<BLOCK_LEN>();
        let mut lanes = [_mm256_setzero_si256(); REGISTERS];
        for (to, from) in dst_blocks.iter_mut().zip(src_blocks) {
            let registers = load(from);
            for (part, register) in to.as_chunks_mut::<REGISTER_LEN>().0.iter_mut().zip(registers) {
                // SAFETY: the part is as long as a register; the store needs no alignment.
                unsafe { _mm256_storeu_si256(part.as_mut_ptr().cast(), register) };
            }
            add(&mut lanes, &registers);
        }
        dst_rest.copy_from_slice(src_rest);
        finish(&lanes, src_rest)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(block: &[u8; BLOCK_LEN]) -> [__m256i; REGISTERS] {
        let mut registers = [_mm256_setzero_si256(); REGISTERS];
        for (register, part) in registers.iter_mut().zip(block.as_chunks::<REGISTER_LEN>().0) {
            // SAFETY: the part is as long as a register; the load needs no alignment.
            *register = unsafe { _mm256_loadu_si256(part.as_ptr().cast()) };
        }
        registers
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn add(lanes: &mut [__m256i; REGISTERS], registers: &[__m256i; REGISTERS]) {
        let low = _mm256_set1_epi64x(0xffff_ffff);
        for (lane, &register) in lanes.iter_mut().zip(registers) {
            let words = _mm256_add_epi64(
                _mm256_and_si256(register, low),
                _mm256_srli_epi64::<32>(register),
            );
            *lane = _mm256_add_epi64(*lane, words);
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn finish(lanes: &[__m256i; REGISTERS], rest: &[u8]) -> u16 {
        let all =
            lanes.iter().fold(_mm256_setzero_si256(), |all, &lane| _mm256_add_epi64(all, lane));
        let mut words = [0u64; 4];
        // SAFETY: four words of 64 bits are as long as a register.
        unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), all) };
        let total = words.iter().fold(short_words(rest), |total, &word| total.wrapping_add(word));
        fold(total).swap_bytes()
    }
}

/// Bytes taken at once: four AVX2 registers. Fewer bytes are summed without vectors.
const BLOCK_LEN: usize = 128;
/// Independent sums, so that additions need not wait for each other.
const LANES: usize = 16;

#[inline(always)]
fn sum_portable(bytes: &[u8]) -> u16 {
    let (blocks, rest) = bytes.as_chunks::<BLOCK_LEN>();
    let mut lanes = [0; LANES];
    for block in blocks {
        add_block(&mut lanes, block);
    }
    finish(&lanes, rest)
}

/// Both must be of one length.
#[inline(always)]
fn copy_and_sum_portable(dst: &mut [u8], src: &[u8]) -> u16 {
    let (src_blocks, src_rest) = src.as_chunks::<BLOCK_LEN>();
    let (dst_blocks, dst_rest) = dst.as_chunks_mut::<BLOCK_LEN>();
    let mut lanes = [0; LANES];
    for (to, from) in dst_blocks.iter_mut().zip(src_blocks) {
        add_block(&mut lanes, from);
        *to = *from;
    }
    dst_rest.copy_from_slice(src_rest);
    finish(&lanes, src_rest)
}

/// Adds the block's 32-bit words, two per lane. A word in host order is as good as one in network
/// order: the sum comes out with its bytes swapped (RFC 1071, section 2(B)). A lane of 64 bits
/// holds the words of more bytes than there can be.
#[inline(always)]
fn add_block(lanes: &mut [u64; LANES], block: &[u8; BLOCK_LEN]) {
    let (words, _) = block.as_chunks::<4>();
    let (halves, _) = words.as_chunks::<LANES>();
    for half in halves {
        for (lane, &word) in lanes.iter_mut().zip(half) {
            *lane = lane.wrapping_add(u64::from(u32::from_le_bytes(word)));
        }
    }
}

/// The lanes and fewer than a block's bytes, folded, in network order.
#[inline(always)]
fn finish(lanes: &[u64; LANES], rest: &[u8]) -> u16 {
    let total = lanes.iter().fold(0, |total: u64, &lane| total.wrapping_add(lane));
    fold(total.wrapping_add(short_words(rest))).swap_bytes()
}

/// The sum of fewer bytes than a block.
#[inline(always)]
fn short_sum(bytes: &[u8]) -> u16 {
    fold(short_words(bytes)).swap_bytes()
}

/// The 32-bit words of fewer bytes than a block, the last one filled up with zeros.
#[inline(always)]
fn short_words(bytes: &[u8]) -> u64 {
    let (pairs, rest) = bytes.as_chunks::<8>();
    let mut total = 0u64;
    for &pair in pairs {
        let pair = u64::from_le_bytes(pair);
        total = total.wrapping_add(pair & 0xffff_ffff).wrapping_add(pair >> 32);
    }
    let rest = match rest {
        &[a, b, c, d, ref rest @ ..] => {
            total = total.wrapping_add(u64::from(u32::from_le_bytes([a, b, c, d])));
            rest
        }
        rest => rest,
    };
    let last = match *rest {
        [a, b, c] => u32::from_le_bytes([a, b, c, 0]),
        [a, b] => u32::from_le_bytes([a, b, 0, 0]),
        [a] => u32::from(a),
        _ => 0,
    };
    total.wrapping_add(u64::from(last))
}

/// Folds the carries of a ones-complement sum back in until 16 bits are left, without a branch.
#[inline(always)]
pub fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    sum as u16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 1071 by the letter.
    fn naive(bytes: &[u8]) -> u16 {
        let mut sum = 0u64;
        for pair in bytes.chunks(2) {
            sum += u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
        }
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    proptest! {
        #[test]
        fn the_sum_is_the_naive_one(bytes in prop::collection::vec(any::<u8>(), 0..2000), skip in 0usize..40) {
            let bytes = bytes.get(skip..).unwrap_or_default();
            prop_assert_eq!(sum(bytes), naive(bytes));
            prop_assert_eq!(sum_portable(bytes), naive(bytes));
        }

        #[test]
        fn a_copy_is_whole_and_its_sum_the_naive_one(
            src in prop::collection::vec(any::<u8>(), 0..2000),
            room in 0usize..2000,
            skip in 0usize..40,
        ) {
            let src = src.get(skip..).unwrap_or_default();
            let mut dst = vec![0xa5; room];
            let copied = src.len().min(room);
            prop_assert_eq!(copy_and_sum(&mut dst, src), naive(&src[..copied]));
            prop_assert_eq!(&dst[..copied], &src[..copied]);
            prop_assert!(dst[copied..].iter().all(|&byte| byte == 0xa5));
            let mut again = vec![0xa5; room];
            let sum = copy_and_sum_portable(&mut again[..copied], &src[..copied]);
            prop_assert_eq!(sum, naive(&src[..copied]));
            prop_assert_eq!(again, dst);
        }

        #[test]
        fn folding_keeps_the_value_modulo_65535(sum in any::<u64>()) {
            let folded = fold(sum);
            prop_assert_eq!(u64::from(folded) % 65535, sum % 65535);
            prop_assert_eq!(folded == 0, sum == 0);
        }
    }

    #[test]
    fn sixty_four_kibibytes_of_ones_do_not_overflow() {
        let bytes = vec![0xff; 65536];
        assert_eq!(sum(&bytes), 0xffff);
        assert_eq!(sum(&bytes[1..]), naive(&bytes[1..]));
    }
}
