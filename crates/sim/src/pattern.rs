//! What streams and datagrams carry: a function of who sends and of the offset, so that every
//! byte received can be checked by itself.

use crate::random::mix;

fn block(key: u64, index: u64) -> [u8; 8] {
    mix(key ^ index.wrapping_mul(0xd6e8_feb8_6659_fd93)).to_le_bytes()
}

/// Names one direction of a connection.
pub fn stream_key(connection: usize, side: usize) -> u64 {
    mix(connection as u64 * 2 + side as u64)
}

/// Writes the bytes of stream `key` from `offset` on.
pub fn fill(key: u64, offset: u64, bytes: &mut [u8]) {
    let mut at = offset;
    let mut rest = bytes;
    while !rest.is_empty() {
        let within = (at % 8) as usize;
        let len = rest.len().min(8 - within);
        let (now, later) = rest.split_at_mut(len);
        now.copy_from_slice(&block(key, at / 8)[within..within + len]);
        at += len as u64;
        rest = later;
    }
}

/// Where `bytes` first differ from stream `key` at `offset`.
pub fn first_difference(key: u64, offset: u64, bytes: &[u8]) -> Option<u64> {
    let mut at = offset;
    let mut rest = bytes;
    while !rest.is_empty() {
        let within = (at % 8) as usize;
        let len = rest.len().min(8 - within);
        let (now, later) = rest.split_at(len);
        let expected = block(key, at / 8);
        if now != &expected[within..within + len] {
            let wrong = now.iter().zip(&expected[within..]).position(|(a, b)| a != b);
            return Some(at + wrong.unwrap_or(0) as u64);
        }
        at += len as u64;
        rest = later;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_the_same_however_it_is_cut() {
        let mut whole = [0; 100];
        fill(7, 5, &mut whole);
        let mut parts = [0; 100];
        fill(7, 5, &mut parts[..33]);
        fill(7, 38, &mut parts[33..]);
        assert_eq!(whole, parts);
        assert_eq!(first_difference(7, 5, &whole), None);
        whole[60] ^= 1;
        assert_eq!(first_difference(7, 5, &whole), Some(65));
    }
}
