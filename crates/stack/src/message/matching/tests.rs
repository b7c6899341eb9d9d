//! The matcher against one that looks at everything.

use proptest::prelude::*;

use super::super::api::{Address, Host, Selector};
use super::{Key, Matcher};

/// Receives or messages in the order in which they came.
#[derive(Default)]
struct Naive<T>(Vec<(u32, T)>);

impl<T> Naive<T> {
    fn first(&self, fits: impl Fn(&T) -> bool) -> Option<u32> {
        self.0.iter().find(|(_, it)| fits(it)).map(|(item, _)| *item)
    }

    fn remove(&mut self, item: u32) {
        self.0.retain(|(other, _)| *other != item);
    }
}

fn key() -> impl Strategy<Value = Key> {
    (0..3_u32, 0..3_u16, proptest::option::of(0..4_u64))
        .prop_map(|(host, port, tag)| Key { source: Address { host: Host(host), port }, tag })
}

fn selector() -> impl Strategy<Value = Selector> {
    let ignore = prop_oneof![3 => Just(0), 1 => Just(1), 1 => Just(2), 1 => Just(u64::MAX)];
    (key(), any::<bool>(), ignore).prop_map(|(key, named, ignore)| Selector {
        source: named.then_some(key.source),
        tag: key.tag,
        ignore,
    })
}

#[derive(Clone, Debug)]
enum Step {
    Post(Selector),
    Arrive(Key),
    /// One of those that are there, by its place.
    CancelReceive(usize),
    Discard(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => selector().prop_map(Step::Post),
        4 => key().prop_map(Step::Arrive),
        1 => any::<usize>().prop_map(Step::CancelReceive),
        1 => any::<usize>().prop_map(Step::Discard),
    ]
}

/// Both kinds, with the nodes by item.
struct Both {
    receives: Matcher,
    messages: Matcher,
    receive_nodes: Vec<u32>,
    message_nodes: Vec<u32>,
    naive_receives: Naive<Selector>,
    naive_messages: Naive<Key>,
}

impl Both {
    fn new(seed: [u64; 2]) -> Self {
        Self {
            receives: Matcher::new(seed),
            messages: Matcher::new(seed),
            receive_nodes: Vec::new(),
            message_nodes: Vec::new(),
            naive_receives: Naive(Vec::new()),
            naive_messages: Naive(Vec::new()),
        }
    }

    fn end_receive(&mut self, item: u32) {
        self.receives.remove(self.receive_nodes[item as usize]);
        self.naive_receives.remove(item);
    }

    fn end_message(&mut self, item: u32) {
        self.messages.remove(self.message_nodes[item as usize]);
        self.naive_messages.remove(item);
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Post(selector) => {
                let found = self.messages.message_for(&selector);
                let naive = self.naive_messages.first(|key| selector.takes(key));
                assert_eq!(found, naive, "{selector:?}");
                let item = self.receive_nodes.len() as u32;
                match found {
                    Some(message) => {
                        self.end_message(message);
                        self.receive_nodes.push(u32::MAX);
                    }
                    None => {
                        self.receive_nodes.push(self.receives.post(item, selector));
                        self.naive_receives.0.push((item, selector));
                    }
                }
            }
            Step::Arrive(key) => {
                let found = self.receives.receive_for(&key);
                let naive = self.naive_receives.first(|selector| selector.takes(&key));
                assert_eq!(found, naive, "{key:?}");
                let item = self.message_nodes.len() as u32;
                match found {
                    Some(receive) => {
                        self.end_receive(receive);
                        self.message_nodes.push(u32::MAX);
                    }
                    None => {
                        self.message_nodes.push(self.messages.arrive(item, key));
                        self.naive_messages.0.push((item, key));
                    }
                }
            }
            Step::CancelReceive(at) => {
                let all = &self.naive_receives.0;
                let item = all.get(at % all.len().max(1)).map(|it| it.0);
                item.into_iter().for_each(|item| self.end_receive(item));
            }
            Step::Discard(at) => {
                let all = &self.naive_messages.0;
                let item = all.get(at % all.len().max(1)).map(|it| it.0);
                item.into_iter().for_each(|item| self.end_message(item));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_matches_as_one_that_looks_at_everything(
        seed in any::<[u64; 2]>(),
        steps in proptest::collection::vec(step(), 1..300),
    ) {
        let mut both = Both::new(seed);
        for step in steps {
            both.take(step);
        }
        let hosts = both.receives.hosts().count();
        let named = both.naive_receives.0.iter().filter(|(_, it)| it.source.is_some()).count();
        prop_assert_eq!(hosts, named);
    }
}
