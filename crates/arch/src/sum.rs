//! The ones-complement sum (RFC 1071), alone and while copying.

/// The ones-complement sum (RFC 1071) of the bytes as big-endian 16-bit words, folded to 16 bits
/// and not complemented. An odd last byte counts as if a zero followed.
pub fn sum(bytes: &[u8]) -> u16 {
    let (words, last) = bytes.as_chunks::<2>();
    let mut sum: u64 = words.iter().map(|&word| u64::from(u16::from_be_bytes(word))).sum();
    if let &[last] = last {
        sum += u64::from(last) << 8;
    }
    fold(sum)
}

/// Copies `src` to the start of `dst`, as much as both hold, and gives the [`sum`] of what was
/// copied.
pub fn copy_and_sum(dst: &mut [u8], src: &[u8]) -> u16 {
    crate::SharedBytes::from_slice(src).copy_to_and_sum(dst).1
}

/// Folds carries back in until 16 bits are left.
pub(crate) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
