//! Keys of receives and messages, each with the list of what has it, found by hash.
//!
//! Members of the job and programs choose the tags, so the hash has a secret seed. It is two folded
//! multiplications, no cipher: somebody who can time lookups may learn which keys collide. So a
//! chain that has grown longer than chance makes it draws a new seed, and nothing that was learnt holds.

use serde::{Deserialize, Serialize};
use std::hash::BuildHasher;

use super::{Key, List, NIL};
use crate::flow::KeyedHash;

/// Chains at first.
const CHAINS_MIN: usize = 8;
/// More keys in one chain are not there by chance: with one key for each chain on average, one chain
/// in 10^15 is longer.
const CHAIN_MAX: usize = 16;
/// Odd numbers without a pattern (the fractional parts of square roots of 2 and 3), so that a seed of
/// zero is as good as others.
const MIX: [u64; 2] = [0x6a09_e667_f3bc_c909, 0xbb67_ae85_84ca_a73b];

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Group {
    key: Key,
    hash: u64,
    /// What has the key, in order.
    list: List,
    /// The next one of its chain.
    next: u32,
}

/// The table.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Keys {
    seed: [u64; 2],
    /// The first group of each chain; a power of two, or none yet.
    chains: Vec<u32>,
    groups: Vec<Group>,
    free: Vec<u32>,
}

impl Keys {
    pub fn new(seed: [u64; 2]) -> Self {
        Self { seed, chains: Vec::new(), groups: Vec::new(), free: Vec::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.groups.len() == self.free.len()
    }

    pub fn list(&self, group: u32) -> List {
        self.groups[group as usize].list
    }

    pub fn list_mut(&mut self, group: u32) -> &mut List {
        &mut self.groups[group as usize].list
    }

    /// The group of a key.
    pub fn find(&self, key: &Key) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        self.find_hashed(key, hash(self.seed, key)).ok()
    }

    /// The group of a key, or how many there are in its chain. There are chains.
    fn find_hashed(&self, key: &Key, hash: u64) -> Result<u32, usize> {
        let mut at = self.chains[self.chain(hash)];
        let mut length = 0;
        while let Some(group) = self.groups.get(at as usize) {
            if group.hash == hash && group.key == *key {
                return Ok(at);
            }
            length += 1;
            at = group.next;
        }
        Err(length)
    }

    fn chain(&self, hash: u64) -> usize {
        hash as usize & (self.chains.len() - 1)
    }

    /// The group of a key, made if there is none.
    pub fn find_or_add(&mut self, key: &Key) -> u32 {
        if self.groups.len() - self.free.len() >= self.chains.len() {
            let chains = (self.chains.len() * 2).max(CHAINS_MIN);
            self.chain_again(chains);
        }
        let length = match self.find_hashed(key, hash(self.seed, key)) {
            Ok(group) => return group,
            Err(length) => length,
        };
        if length >= CHAIN_MAX {
            self.reseed();
        }
        let hash = hash(self.seed, key);
        let chain = self.chain(hash);
        let group = Group { key: *key, hash, list: List::EMPTY, next: self.chains[chain] };
        let index = match self.free.pop() {
            Some(index) => {
                self.groups[index as usize] = group;
                index
            }
            None => {
                self.groups.push(group);
                self.groups.len() as u32 - 1
            }
        };
        self.chains[chain] = index;
        index
    }

    /// Forgets a group, whose list is empty.
    pub fn remove(&mut self, index: u32) {
        let Group { hash, next, .. } = self.groups[index as usize];
        let chain = self.chain(hash);
        let mut at = self.chains[chain];
        if at == index {
            self.chains[chain] = next;
        } else {
            while let Some(group) = self.groups.get_mut(at as usize) {
                if group.next == index {
                    group.next = next;
                    break;
                }
                at = group.next;
            }
        }
        self.groups[index as usize].list = List::EMPTY;
        self.free.push(index);
    }

    /// Makes so many chains of what there is.
    fn chain_again(&mut self, chains: usize) {
        self.chains.clear();
        self.chains.resize(chains, NIL);
        for index in 0..self.groups.len() {
            let Group { hash, list, .. } = self.groups[index];
            // Those without a list are free.
            if list.head != NIL {
                let chain = self.chain(hash);
                self.groups[index].next = std::mem::replace(&mut self.chains[chain], index as u32);
            }
        }
    }

    fn reseed(&mut self) {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&self.seed[0].to_le_bytes());
        key[8..].copy_from_slice(&self.seed[1].to_le_bytes());
        let next = KeyedHash::new(key);
        self.seed = [next.hash_one(0_u8), next.hash_one(1_u8)];
        for group in &mut self.groups {
            group.hash = hash(self.seed, &group.key);
        }
        self.chain_again(self.chains.len());
    }
}

fn hash(seed: [u64; 2], key: &Key) -> u64 {
    let source = u64::from(key.source.host.0) | u64::from(key.source.port) << 32;
    let source = source | u64::from(key.tag.is_some()) << 48;
    let [first, second] = [seed[0] ^ MIX[0], seed[1] ^ MIX[1]];
    let once = fold(source ^ first, key.tag.unwrap_or(0) ^ second);
    fold(once ^ second, first)
}

/// Both halves of the product.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::super::super::api::{Address, Host};
    use super::*;

    fn key(tag: u64) -> Key {
        Key { source: Address { host: Host(1), port: 7 }, tag: Some(tag) }
    }

    fn longest(keys: &Keys) -> usize {
        let length = |first: &u32| {
            let next = |at: &u32| keys.groups.get(*at as usize).map(|group| group.next);
            std::iter::successors(Some(*first), next).count() - 1
        };
        keys.chains.iter().map(length).max().unwrap_or(0)
    }

    /// Adds a key with something in its list, as the matcher does.
    fn add(keys: &mut Keys, tag: u64) -> u32 {
        let group = keys.find_or_add(&key(tag));
        *keys.list_mut(group) = List { head: 0, tail: 0 };
        group
    }

    #[test]
    fn tags_in_a_row_and_in_strides_spread() {
        for stride in [1, 8, 4096, 1 << 32, 1 << 56 | 1] {
            let mut keys = Keys::new([0; 2]);
            for at in 0..10_000_u64 {
                add(&mut keys, at.wrapping_mul(stride));
            }
            assert!(longest(&keys) <= 10, "stride {stride}: {}", longest(&keys));
            assert_eq!(keys.seed, [0; 2]);
        }
    }

    /// An attacker who knows the seed can choose keys of one chain, but the chain does not grow long.
    #[test]
    fn chosen_keys_change_the_seed() {
        let mut keys = Keys::new([3, 4]);
        let mut chosen = Vec::new();
        while chosen.len() < 1000 {
            let next = chosen.last().map_or(0, |tag| tag + 1);
            let tag = (next..).find(|tag| hash([3, 4], &key(*tag)) & 0x3ff == 5);
            chosen.extend(tag);
        }
        for tag in &chosen {
            add(&mut keys, *tag);
        }
        assert_ne!(keys.seed, [3, 4]);
        assert!(longest(&keys) <= CHAIN_MAX, "{}", longest(&keys));
        assert!(chosen.iter().all(|tag| keys.find(&key(*tag)).is_some()));
    }
}
