//! What proves that a frame comes from the job: SipHash-2-4 under keys made of the job's.

use core::hash::Hasher;

use siphasher::sip::SipHasher24;
use siphasher::sip128::{Hasher128, SipHasher24 as SipHasher24Wide};

use super::{COMMON_LEN, Epochs};

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
/// authenticator fields are, and the upper half of its sequence.
pub fn authenticator(key: &[u8; 16], header: &[u8], upper: u32) -> u64 {
    let mut hasher = SipHasher24::new_with_key(key);
    if let Some((common, rest)) = header.split_first_chunk::<COMMON_LEN>() {
        let mut common = *common;
        common[14..].fill(0);
        hasher.write(&common);
        hasher.write(rest);
    }
    hasher.write(&upper.to_be_bytes());
    hasher.finish()
}
