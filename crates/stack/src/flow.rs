//! A table from addresses to slots, hashed with a secret key so that nobody outside can make its
//! entries collide, and with a bound so that it never grows on the path of a packet.

use std::hash::{BuildHasher, Hash};

use hashbrown::HashMap;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;

/// Builds keyed hashers.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct KeyedHash {
    key: [u8; 16],
}

impl KeyedHash {
    /// A hash that only the holder of `key` can foresee.
    pub fn new(key: [u8; 16]) -> Self {
        Self { key }
    }
}

impl BuildHasher for KeyedHash {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_key(&self.key)
    }
}

/// The table is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// A bounded table from `K` to a slot number.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(
    from = "Plain<K>",
    into = "Plain<K>",
    bound(
        serialize = "K: Clone + Ord + Serialize",
        deserialize = "K: Eq + Hash + DeserializeOwned"
    )
)]
pub struct FlowTable<K> {
    map: HashMap<K, u32, KeyedHash>,
    limit: u32,
}

/// What a table is exported as.
#[derive(Serialize, Deserialize)]
struct Plain<K> {
    hash: KeyedHash,
    limit: u32,
    entries: Vec<(K, u32)>,
}

impl<K: Eq + Hash> From<Plain<K>> for FlowTable<K> {
    fn from(plain: Plain<K>) -> Self {
        let mut table = Self {
            map: HashMap::with_capacity_and_hasher(plain.limit as usize, plain.hash),
            limit: plain.limit,
        };
        table.map.extend(plain.entries);
        table
    }
}

impl<K: Clone + Ord> From<FlowTable<K>> for Plain<K> {
    fn from(table: FlowTable<K>) -> Self {
        let (hash, limit) = (*table.map.hasher(), table.limit);
        let mut entries: Vec<_> = table.map.into_iter().collect();
        // The order in the map depends on its history; an export must not.
        entries.sort_unstable();
        Self { hash, limit, entries }
    }
}

impl<K: Eq + Hash> FlowTable<K> {
    /// An empty table for at most `limit` entries.
    pub fn new(hash: KeyedHash, limit: u32) -> Self {
        Self { map: HashMap::with_capacity_and_hasher(limit as usize, hash), limit }
    }

    /// The slot of `key`.
    pub fn find(&self, key: &K) -> Option<u32> {
        self.map.get(key).copied()
    }

    /// Enters `key`, replacing what it led to.
    ///
    /// # Errors
    /// [`Full`] if the table has as many entries as its limit allows and `key` is not among them.
    pub fn insert(&mut self, key: K, slot: u32) -> Result<(), Full> {
        if self.map.len() >= self.limit as usize && !self.map.contains_key(&key) {
            return Err(Full);
        }
        self.map.insert(key, slot);
        Ok(())
    }

    /// Forgets `key`; gives what it led to.
    pub fn remove(&mut self, key: &K) -> Option<u32> {
        self.map.remove(key)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }
}
