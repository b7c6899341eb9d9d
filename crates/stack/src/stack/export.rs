//! The whole state as bytes, and back.
//!
//! Layout: magic, version (u32), SipHash-1-3 of the rest under a zero key (u64; it finds damage,
//! not malice: an export holds secrets and comes from where we put it), then the stack in
//! postcard's encoding.

use std::hash::BuildHasher;

use super::Stack;
use crate::flow::KeyedHash;

const MAGIC: &[u8; 4] = b"OBst";
/// Changes whenever the encoding does.
const VERSION: u32 = 11;

/// Why an export cannot be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportError {
    /// Not an export.
    Foreign,
    /// Made by another version of the format.
    Version {
        /// The version found.
        found: u32,
        /// The version that this program reads.
        known: u32,
    },
    /// Cut short or changed on the way.
    Damaged,
}

impl std::fmt::Display for ImportError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Foreign => f.write_str("these bytes are not such an export"),
            Self::Version { found, known } => write!(
                f,
                "the export has version {found} and this program reads version {known}; \
                 import it with the program that made it"
            ),
            Self::Damaged => f.write_str("the export is cut short or damaged; export it again"),
        }
    }
}

impl std::error::Error for ImportError {}

fn digest(body: &[u8]) -> u64 {
    KeyedHash::default().hash_one(body)
}

impl Stack {
    /// The whole state: sockets, timers, neighbours, keys, everything that waits. It goes on from
    /// there when [`import`](Self::import)ed. Not for the path of a packet.
    pub fn export(&self) -> Vec<u8> {
        let mut out = [MAGIC.as_slice(), &VERSION.to_le_bytes(), &[0; 8]].concat();
        // Every type is plain data with derived encodings, and memory does not run out here.
        let Ok(mut out) = postcard::to_extend(self, std::mem::take(&mut out)) else {
            return Vec::new();
        };
        if let Some((head, body)) = out.split_at_mut_checked(16) {
            head[8..].copy_from_slice(&digest(body).to_le_bytes());
        }
        out
    }

    /// The stack of an [`export`](Self::export).
    ///
    /// # Errors
    /// [`ImportError::Foreign`] if the bytes do not begin as an export does;
    /// [`ImportError::Version`] if another version of the format made them;
    /// [`ImportError::Damaged`] if their digest or their structure is wrong.
    pub fn import(bytes: &[u8]) -> Result<Self, ImportError> {
        let (magic, rest) = bytes.split_first_chunk::<4>().ok_or(ImportError::Foreign)?;
        if magic != MAGIC {
            return Err(ImportError::Foreign);
        }
        let (version, rest) = rest.split_first_chunk::<4>().ok_or(ImportError::Damaged)?;
        let found = u32::from_le_bytes(*version);
        if found != VERSION {
            return Err(ImportError::Version { found, known: VERSION });
        }
        let (sum, body) = rest.split_first_chunk::<8>().ok_or(ImportError::Damaged)?;
        if u64::from_le_bytes(*sum) != digest(body) {
            return Err(ImportError::Damaged);
        }
        let mut stack: Stack = postcard::from_bytes(body).map_err(|_| ImportError::Damaged)?;
        stack.reassembly.reserve();
        Ok(stack)
    }
}
