//! Which receive a message belongs to, and which message a receive.
//!
//! Receives with a source and a whole tag lie in a hash of both, the others in a list; the one posted
//! first wins. Unexpected messages lie in the hash and in a list of all.

use serde::{Deserialize, Serialize};
use std::hash::BuildHasherDefault;

use hashbrown::HashMap;
use siphasher::sip::SipHasher13;

use super::api::{Address, Host, Selector};

const NIL: u32 = u32::MAX;
/// The list of wildcards, or of all messages.
const ALL: usize = 0;
/// The list of one hash key.
const BUCKET: usize = 1;

/// What messages are told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) struct Key {
    pub source: Address,
    pub tag: Option<u64>,
}

impl Selector {
    /// The one key that it takes, if there is only one.
    fn exact(&self) -> Option<Key> {
        match (self.source, self.tag) {
            (Some(source), Some(tag)) if self.ignore == 0 => Some(Key { source, tag: Some(tag) }),
            (Some(source), None) => Some(Key { source, tag: None }),
            _ => None,
        }
    }

    pub(super) fn takes(&self, key: &Key) -> bool {
        let tag = match (self.tag, key.tag) {
            (Some(wanted), Some(tag)) => (wanted ^ tag) & !self.ignore == 0,
            (None, None) => true,
            _ => false,
        };
        tag && self.source.is_none_or(|source| source == key.source)
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Node {
    item: u32,
    selector: Selector,
    key: Option<Key>,
    number: u64,
    prev: [u32; 2],
    next: [u32; 2],
    listed: [bool; 2],
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct List {
    head: u32,
    tail: u32,
}

const EMPTY: List = List { head: NIL, tail: NIL };

/// Posted receives, or unexpected messages, of one endpoint. Items are slots of the caller's table.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Matcher {
    nodes: Vec<Node>,
    free: Vec<u32>,
    all: List,
    #[serde(serialize_with = "crate::in_order::write")]
    buckets: HashMap<Key, List, BuildHasherDefault<SipHasher13>>,
    posted: u64,
}

impl Matcher {
    pub fn new() -> Self {
        Self {
            nodes: Vec::new(),
            free: Vec::new(),
            all: EMPTY,
            buckets: HashMap::default(),
            posted: 0,
        }
    }

    /// Adds a receive, and gives its node.
    pub fn post(&mut self, item: u32, selector: Selector) -> u32 {
        let key = selector.exact();
        self.add(item, selector, key, key.is_none())
    }

    /// Adds an unexpected message, and gives its node.
    pub fn arrive(&mut self, item: u32, key: Key) -> u32 {
        let selector = Selector { source: Some(key.source), tag: key.tag, ignore: 0 };
        self.add(item, selector, Some(key), true)
    }

    fn add(&mut self, item: u32, selector: Selector, key: Option<Key>, all: bool) -> u32 {
        let number = self.posted;
        self.posted += 1;
        let links = [NIL; 2];
        let listed = [false; 2];
        let node = Node { item, selector, key, number, prev: links, next: links, listed };
        let index = match self.free.pop() {
            Some(index) => {
                self.nodes[index as usize] = node;
                index
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        };
        if all {
            self.link(index, ALL);
        }
        if key.is_some() {
            self.link(index, BUCKET);
        }
        index
    }

    fn list(&mut self, node: u32, which: usize) -> &mut List {
        if which == ALL {
            return &mut self.all;
        }
        let key = self.nodes[node as usize].key.expect("nodes in buckets have keys");
        self.buckets.entry(key).or_insert(EMPTY)
    }

    fn link(&mut self, index: u32, which: usize) {
        let list = self.list(index, which);
        let tail = list.tail;
        list.tail = index;
        if tail == NIL {
            list.head = index;
        }
        if let Some(before) = self.nodes.get_mut(tail as usize) {
            before.next[which] = index;
        }
        let node = &mut self.nodes[index as usize];
        node.prev[which] = tail;
        node.listed[which] = true;
    }

    fn unlink(&mut self, index: u32, which: usize) {
        let Node { prev, next, listed, key, .. } = self.nodes[index as usize];
        if !listed[which] {
            return;
        }
        let (prev, next) = (prev[which], next[which]);
        if let Some(before) = self.nodes.get_mut(prev as usize) {
            before.next[which] = next;
        }
        if let Some(after) = self.nodes.get_mut(next as usize) {
            after.prev[which] = prev;
        }
        let list = self.list(index, which);
        if list.head == index {
            list.head = next;
        }
        if list.tail == index {
            list.tail = prev;
        }
        if which == BUCKET
            && list.head == NIL
            && let Some(key) = key
        {
            self.buckets.remove(&key);
        }
    }

    /// Takes a node out.
    pub fn remove(&mut self, index: u32) {
        self.unlink(index, ALL);
        self.unlink(index, BUCKET);
        self.nodes[index as usize].listed = [false; 2];
        self.free.push(index);
    }

    /// Hosts that selectors name.
    pub fn hosts(&self) -> impl Iterator<Item = Host> {
        let listed = self.nodes.iter().filter(|node| node.listed != [false; 2]);
        listed.filter_map(|node| node.selector.source).map(|source| source.host)
    }

    /// The receive posted first of those that take this message.
    pub fn receive_for(&self, key: &Key) -> Option<u32> {
        let exact = self.buckets.get(key).map(|list| &self.nodes[list.head as usize]);
        let mut at = self.all.head;
        while let Some(node) = self.nodes.get(at as usize) {
            if exact.is_some_and(|exact| exact.number < node.number) {
                break;
            }
            if node.selector.takes(key) {
                return Some(node.item);
            }
            at = node.next[ALL];
        }
        exact.map(|node| node.item)
    }

    /// The message that arrived first of those that this receive takes.
    pub fn message_for(&self, selector: &Selector) -> Option<u32> {
        if let Some(key) = selector.exact() {
            return self.buckets.get(&key).map(|list| self.nodes[list.head as usize].item);
        }
        let mut at = self.all.head;
        while let Some(node) = self.nodes.get(at as usize) {
            if node.key.is_some_and(|key| selector.takes(&key)) {
                return Some(node.item);
            }
            at = node.next[ALL];
        }
        None
    }
}
