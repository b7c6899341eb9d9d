//! The memory of a pair of rings: mapped, or in a model a word at a time.

#[cfg(not(loom))]
pub(super) use crate::region::memory::Memory;
#[cfg(loom)]
pub(super) use modelled::Memory;

#[cfg(loom)]
mod modelled {
    use rustix::io::Errno;

    use crate::sync::{AtomicU64, Ordering};

    /// Words alone: what was not published is found as an old value.
    pub(in crate::raw) struct Memory(Vec<AtomicU64>);

    impl Memory {
        pub fn private_bytes(len: u64) -> Result<Self, Errno> {
            Ok(Self((0..len / 8).map(|_| AtomicU64::new(0)).collect()))
        }

        pub fn word(&self, offset: usize) -> &AtomicU64 {
            &self.0[offset / 8]
        }

        pub fn write(&self, offset: usize, bytes: &[u8]) {
            for (at, chunk) in bytes.chunks(8).enumerate() {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                self.0[offset / 8 + at].store(u64::from_le_bytes(word), Ordering::Relaxed);
            }
        }

        pub fn read(&self, offset: usize, bytes: &mut [u8]) {
            for (at, chunk) in bytes.chunks_mut(8).enumerate() {
                let word = self.0[offset / 8 + at].load(Ordering::Relaxed).to_le_bytes();
                chunk.copy_from_slice(&word[..chunk.len()]);
            }
        }
    }
}
