//! Which receive a message belongs to, and which message a receive.
//!
//! Receives with a source and a whole tag lie by their key, the others in a list; the one posted
//! first wins. Unexpected messages lie by their key and in a list of all.

mod keys;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use super::api::{Address, Host, Selector};
use keys::Keys;

const NIL: u32 = u32::MAX;

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

/// A node's neighbours in a list.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Link {
    prev: u32,
    next: u32,
}

const APART: Link = Link { prev: NIL, next: NIL };

/// A receive or a message. A free node has no item.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Node {
    item: u32,
    selector: Selector,
    number: u64,
    /// Of the key; none for a wildcard.
    group: u32,
    same: Link,
    /// In the list of wildcards, or of all messages.
    in_all: bool,
    all: Link,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct List {
    head: u32,
    tail: u32,
}

impl List {
    const EMPTY: List = List { head: NIL, tail: NIL };

    /// Adds a node at the end.
    fn append(&mut self, nodes: &mut [Node], index: u32, link: fn(&mut Node) -> &mut Link) {
        let tail = std::mem::replace(&mut self.tail, index);
        match nodes.get_mut(tail as usize) {
            Some(before) => link(before).next = index,
            None => self.head = index,
        }
        *link(&mut nodes[index as usize]) = Link { prev: tail, next: NIL };
    }

    /// Takes a node out.
    fn take_out(&mut self, nodes: &mut [Node], index: u32, link: fn(&mut Node) -> &mut Link) {
        let Link { prev, next } = *link(&mut nodes[index as usize]);
        match nodes.get_mut(prev as usize) {
            Some(before) => link(before).next = next,
            None => self.head = next,
        }
        match nodes.get_mut(next as usize) {
            Some(after) => link(after).prev = prev,
            None => self.tail = prev,
        }
    }
}

/// Posted receives, or unexpected messages, of one endpoint. Items are slots of the caller's table.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Matcher {
    nodes: Vec<Node>,
    free: Vec<u32>,
    all: List,
    keys: Keys,
    posted: u64,
}

impl Matcher {
    /// An empty one; `seed` is a secret.
    pub fn new(seed: [u64; 2]) -> Self {
        let (nodes, free) = (Vec::new(), Vec::new());
        Self { nodes, free, all: List::EMPTY, keys: Keys::new(seed), posted: 0 }
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

    fn add(&mut self, item: u32, selector: Selector, key: Option<Key>, in_all: bool) -> u32 {
        let number = self.posted;
        self.posted += 1;
        let group = key.map_or(NIL, |key| self.keys.find_or_add(&key));
        let node = Node { item, selector, number, group, same: APART, in_all, all: APART };
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
        if in_all {
            self.all.append(&mut self.nodes, index, |node| &mut node.all);
        }
        if group != NIL {
            self.keys.list_mut(group).append(&mut self.nodes, index, |node| &mut node.same);
        }
        index
    }

    /// Takes a node out.
    pub fn remove(&mut self, index: u32) {
        let node = &mut self.nodes[index as usize];
        let (in_all, group) = (node.in_all, node.group);
        node.item = NIL;
        if in_all {
            self.all.take_out(&mut self.nodes, index, |node| &mut node.all);
        }
        if group != NIL {
            let list = self.keys.list_mut(group);
            list.take_out(&mut self.nodes, index, |node| &mut node.same);
            if list.head == NIL {
                self.keys.remove(group);
            }
        }
        self.free.push(index);
    }

    /// Hosts that selectors name.
    pub fn hosts(&self) -> impl Iterator<Item = Host> {
        let listed = self.nodes.iter().filter(|node| node.item != NIL);
        listed.filter_map(|node| node.selector.source).map(|source| source.host)
    }

    /// The first node of a key.
    fn first(&self, key: &Key) -> Option<&Node> {
        let group = self.keys.find(key)?;
        self.nodes.get(self.keys.list(group).head as usize)
    }

    /// The receive posted first of those that take this message.
    pub fn receive_for(&self, key: &Key) -> Option<u32> {
        let exact = self.first(key);
        let mut at = self.all.head;
        while let Some(node) = self.nodes.get(at as usize) {
            if exact.is_some_and(|exact| exact.number < node.number) {
                break;
            }
            if node.selector.takes(key) {
                return Some(node.item);
            }
            at = node.all.next;
        }
        exact.map(|node| node.item)
    }

    /// The message that arrived first of those that this receive takes.
    pub fn message_for(&self, selector: &Selector) -> Option<u32> {
        if let Some(key) = selector.exact() {
            return self.first(&key).map(|node| node.item);
        }
        let mut at = self.all.head;
        while let Some(node) = self.nodes.get(at as usize) {
            if node.selector.exact().is_some_and(|key| selector.takes(&key)) {
                return Some(node.item);
            }
            at = node.all.next;
        }
        None
    }
}
