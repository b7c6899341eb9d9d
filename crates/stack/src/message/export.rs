//! The core's whole state as bytes, and back: associations with their epochs, and all that is under
//! way.
//!
//! Layout: magic, version (u32), SipHash-1-3 of the rest under a zero key (u64; it finds damage, not
//! malice: an export holds keys and comes from where we put it), then the core in postcard's encoding.

use std::hash::BuildHasher;

use super::reset::Rate;
use super::{Bugs, Core, MessageCounters, Sound};
use crate::ImportError;
use crate::flow::KeyedHash;

const MAGIC: &[u8; 4] = b"OBms";
/// Changes whenever the encoding does.
const VERSION: u32 = 2;
const HEADER_LEN: usize = 16;

impl<B: Bugs> Core<B> {
    /// The whole state: endpoints, associations, messages under way, what waits. It goes on from
    /// there when [`import`](Self::import)ed; handles, cookies and buffers keep their numbers. Not for
    /// the path of a message.
    pub fn export(&self) -> Vec<u8> {
        let head = [MAGIC.as_slice(), &VERSION.to_le_bytes(), &[0; 8]].concat();
        // Every type is plain data with derived encodings, and memory does not run out here.
        let Ok(mut out) = postcard::to_extend(self, head) else { return Vec::new() };
        if let Some((head, body)) = out.split_at_mut_checked(HEADER_LEN) {
            head[8..].copy_from_slice(&digest(body).to_le_bytes());
        }
        out
    }

    /// A hash of all that decides what follows: without counters, the time, and RESETs. A frame that is
    /// not genuine leaves it as it is. For tests; it costs several exports.
    pub fn fingerprint(&self) -> u64 {
        let Ok(mut copy) = Self::import_with(&self.export(), self.bugs) else { return 0 };
        copy.now = 0;
        copy.counters = MessageCounters::default();
        copy.resets.clear();
        copy.reset_rate = Rate::default();
        copy.hosts.iter_mut().for_each(|host| host.resets = Rate::default());
        digest(&copy.export())
    }

    /// The core of an [`export`](Self::export), with these bugs.
    ///
    /// # Errors
    /// [`ImportError`]: the bytes are not an export of this version, or damaged.
    pub fn import_with(bytes: &[u8], bugs: B) -> Result<Self, ImportError> {
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
        let core: Self = postcard::from_bytes(body).map_err(|_| ImportError::Damaged)?;
        Ok(Self { bugs, ..core })
    }
}

impl Core {
    /// The core of an [`export`](Self::export).
    ///
    /// # Errors
    /// [`ImportError`]: the bytes are not an export of this version, or damaged.
    pub fn import(bytes: &[u8]) -> Result<Self, ImportError> {
        Self::import_with(bytes, Sound)
    }
}

fn digest(body: &[u8]) -> u64 {
    KeyedHash::default().hash_one(body)
}

/// For `#[serde(with)]`: arrays of more than 32 bytes.
pub(super) mod small {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer, const N: usize>(
        bytes: &[u8; N],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        bytes.as_slice().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>, const N: usize>(
        deserializer: D,
    ) -> Result<[u8; N], D::Error> {
        let bytes = Vec::<u8>::deserialize(deserializer)?;
        bytes.try_into().map_err(|_| D::Error::custom("an array of another length"))
    }
}
