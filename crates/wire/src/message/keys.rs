//! What proves that a frame comes from the job: SipHash-2-4 under keys made of the job's.

use core::hash::Hasher;

use siphasher::sip::SipHasher24;
use siphasher::sip128::{Hasher128, SipHasher24 as SipHasher24Wide};

use super::Epochs;

/// The job's identifier in headers.
pub fn job_identifier(key: &[u8; 16]) -> u32 {
    let mut hasher = SipHasher24::new_with_key(key);
    hasher.write(b"job identifier");
    hasher.finish() as u32
}

/// The key of one direction of an association: the job's key over both addresses and both epochs, the
/// sender's first.
pub fn flow_key(
    job: &[u8; 16],
    sender: &[u8; 16],
    receiver: &[u8; 16],
    epochs: &Epochs,
) -> [u8; 16] {
    let mut hasher = SipHasher24Wide::new_with_key(job);
    hasher.write(sender);
    hasher.write(receiver);
    hasher.write(&epochs.sender.incarnation.to_be_bytes());
    hasher.write(&epochs.receiver.incarnation.to_be_bytes());
    hasher.write(&epochs.sender.life.to_be_bytes());
    hasher.write(&epochs.receiver.life.to_be_bytes());
    hasher.finish128().as_bytes()
}

/// The authenticator of a header (with an ACK's bitmap, without payload), whatever its checksum and
/// authenticator fields are, and the upper half of its sequence. A header shorter than the common one
/// counts as empty.
pub fn authenticator(key: &[u8; 16], header: &[u8], upper: u32) -> u64 {
    let (words, rest) = header.as_chunks::<8>();
    let mut state = Sip::new(key);
    let (mut len, mut last) = (0, 0);
    if let [first, second, _, fields @ ..] = words {
        state.take(u64::from_le_bytes(*first));
        // Job, sequence and counter are kept of these eight and the next eight bytes.
        state.take(u64::from_le_bytes(*second) & 0x0000_ffff_ffff_ffff);
        state.take(0);
        for word in fields {
            state.take(u64::from_le_bytes(*word));
        }
        len = header.len();
        for byte in rest.iter().rev() {
            last = last << 8 | u64::from(*byte);
        }
    }
    // The upper half follows; it is whole in the last word, or begins in the one before it.
    let upper = u64::from(upper.swap_bytes());
    let filled = 8 * (len % 8);
    last |= upper << filled;
    if filled > 32 {
        state.take(last);
        last = upper >> (64 - filled);
    } else if filled == 32 {
        state.take(last);
        last = 0;
    }
    state.finish(last, len + 4)
}

/// SipHash-2-4 of whole words. Streaming hashers spend as much on their buffer as on the hash.
struct Sip([u64; 4]);

impl Sip {
    #[inline]
    fn new(key: &[u8; 16]) -> Self {
        let both = u128::from_le_bytes(*key);
        let (k0, k1) = (both as u64, (both >> 64) as u64);
        // "somepseudorandomlygeneratedbytes"
        Self([
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ])
    }

    #[inline]
    fn round(&mut self) {
        let Self([a, b, c, d]) = self;
        *a = a.wrapping_add(*b);
        *c = c.wrapping_add(*d);
        *b = b.rotate_left(13) ^ *a;
        *d = d.rotate_left(16) ^ *c;
        *a = a.rotate_left(32).wrapping_add(*d);
        *c = c.wrapping_add(*b);
        *d = d.rotate_left(21) ^ *a;
        *b = b.rotate_left(17) ^ *c;
        *c = c.rotate_left(32);
    }

    #[inline]
    fn take(&mut self, word: u64) {
        self.0[3] ^= word;
        self.round();
        self.round();
        self.0[0] ^= word;
    }

    /// Takes the last word, of less than eight bytes, and the number of all bytes.
    #[inline]
    fn finish(mut self, last: u64, len: usize) -> u64 {
        self.take(last | (len as u64) << 56);
        self.0[2] ^= 0xff;
        for _ in 0..4 {
            self.round();
        }
        let [a, b, c, d] = self.0;
        a ^ b ^ c ^ d
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::COMMON_LEN;

    #[test]
    fn authenticators_are_those_of_a_streaming_hasher() {
        let key: [u8; 16] = core::array::from_fn(|at| at as u8 * 17);
        let header: [u8; 100] = core::array::from_fn(|at| (at as u8).wrapping_mul(37) ^ 0x9c);
        for len in 0..=header.len() {
            let header = &header[..len];
            let mut hasher = SipHasher24::new_with_key(&key);
            if let Some((common, rest)) = header.split_first_chunk::<COMMON_LEN>() {
                let mut common = *common;
                common[14..].fill(0);
                hasher.write(&common);
                hasher.write(rest);
            }
            hasher.write(&0x8123_45f6_u32.to_be_bytes());
            assert_eq!(authenticator(&key, header, 0x8123_45f6), hasher.finish(), "{len} bytes");
        }
    }
}
