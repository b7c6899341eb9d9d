//! Two hosts or more with a network in between that does what a test says.

use std::collections::{HashMap, VecDeque};

use outboard_stack::message::*;

pub const KEY: JobKey = *b"key of the tests";
/// Room behind UDP and IPv4 in 1,500 bytes.
pub const ROOM: u16 = 1472;
/// One way through the network.
const DELAY_NS: u64 = 10_000;

/// Memory of one host's programs.
#[derive(Default)]
pub struct Heap {
    pub places: HashMap<PayloadPlace, Vec<u8>>,
    pub buffers: u64,
    pub buffers_most: u64,
    next: u64,
}

impl Memory for Heap {
    fn read(&mut self, from: PayloadPlace, offset: u32, out: &mut [u8]) {
        let from = &self.places[&from];
        out.copy_from_slice(&from[offset as usize..][..out.len()]);
    }

    fn write(&mut self, to: PayloadPlace, offset: u32, bytes: &[u8]) {
        let to = self.places.get_mut(&to).expect("writes go to memory that was given");
        to[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn copy(&mut self, from: PayloadPlace, to: PayloadPlace, offset: u32, length: u32) {
        let mut bytes = vec![0; length as usize];
        let source = &self.places[&from];
        bytes.copy_from_slice(&source[offset as usize..][..length as usize]);
        self.write(to, offset, &bytes);
    }

    fn reserve(&mut self, _: EndpointId, length: u32) -> Option<u64> {
        if self.buffers >= self.buffers_most {
            return None;
        }
        self.buffers += 1;
        self.next += 1;
        self.places.insert(PayloadPlace::Buffer(self.next), vec![0; length as usize]);
        Some(self.next)
    }

    fn release(&mut self, buffer: u64) {
        self.buffers -= 1;
        self.places.remove(&PayloadPlace::Buffer(buffer)).expect("buffers are given back once");
    }
}

pub struct Node {
    pub core: Core,
    pub heap: Heap,
    pub events: Vec<MessageEvent>,
    pub cookie: u64,
}

/// What the network does with a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Arrives,
    Lost,
    Twice,
}

type Judge = Box<dyn FnMut(usize, &[u8]) -> Fate>;

pub struct Net {
    pub now: u64,
    pub nodes: Vec<Node>,
    /// Arrival, from, to, bytes.
    packets: VecDeque<(u64, usize, usize, Vec<u8>)>,
    pub judge: Judge,
    pub log: Vec<Vec<u8>>,
}

pub fn address(node: usize) -> [u8; 16] {
    let mut address = [0; 16];
    address[15] = node as u8 + 1;
    address
}

impl Node {
    fn new(at: usize, nodes: usize, incarnation: u64) -> Self {
        let mut core = Core::new(CoreConfig { incarnation, hosts: 16, seed: [5, 6] });
        for other in 0..nodes {
            let addresses = PathAddresses { local: address(at), remote: address(other) };
            core.add_host(addresses, ROOM).unwrap();
        }
        let heap = Heap { buffers_most: 1000, ..Heap::default() };
        Self { core, heap, events: Vec::new(), cookie: 0 }
    }
}

/// The nodes as hosts: they are numbered in the order in which they are added.
static HOSTS: std::sync::LazyLock<Vec<Host>> = std::sync::LazyLock::new(|| {
    let mut core = Core::new(CoreConfig { incarnation: 1, hosts: 16, seed: [5, 6] });
    let addresses = PathAddresses { local: [0; 16], remote: [0; 16] };
    (0..8).map(|_| core.add_host(addresses, ROOM).unwrap()).collect()
});

pub fn options(port: u16) -> EndpointOptions {
    EndpointOptions {
        port,
        key: Some(KEY),
        unexpected: Unexpected::Buffer,
        envelopes: 1000,
        operations: 1000,
    }
}

/// An endpoint and its node.
#[derive(Clone, Copy, Debug)]
pub struct End {
    pub node: usize,
    pub id: EndpointId,
}

/// A message to send.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    pub tag: Option<u64>,
    pub length: u32,
    pub delivery: bool,
}

/// What a receive of tagged messages takes.
pub fn selector(source: Option<Address>, tag: u64, ignore: u64) -> Selector {
    Selector { source, tag: Some(tag), ignore }
}

/// Bytes that differ by message and offset.
pub fn pattern(seed: u64, length: u32) -> Vec<u8> {
    (0..length)
        .map(|at| (seed.wrapping_mul(31) + u64::from(at) * 7 + u64::from(at >> 8)) as u8)
        .collect()
}

impl Net {
    pub fn new(nodes: usize) -> Self {
        Self {
            now: 1_000_000,
            nodes: (0..nodes).map(|at| Node::new(at, nodes, 1_000)).collect(),
            packets: VecDeque::new(),
            judge: Box::new(|_, _| Fate::Arrives),
            log: Vec::new(),
        }
    }

    /// The engine of a node starts again, with nothing.
    pub fn restart(&mut self, node: usize, incarnation: u64) {
        let nodes = self.nodes.len();
        self.nodes[node] = Node::new(node, nodes, incarnation);
    }

    pub fn open(&mut self, node: usize, port: u16) -> End {
        self.open_as(node, options(port))
    }

    pub fn open_as(&mut self, node: usize, options: EndpointOptions) -> End {
        let now = self.now;
        End { node, id: self.nodes[node].core.open(now, options).unwrap() }
    }

    /// Where endpoint `port` of node `to` is, as seen from node `from`.
    pub fn address(&mut self, from: usize, to: usize, port: u16) -> Address {
        let host = if from == to { Host::LOCAL } else { HOSTS[to] };
        Address { host, port }
    }

    /// Sends bytes of a pattern; gives the cookie, which is the pattern's seed too.
    pub fn send(&mut self, from: End, to: Address, tag: u64, length: u32) -> u64 {
        self.send_with(from, to, Outgoing { tag: Some(tag), length, delivery: false }).1
    }

    pub fn send_with(&mut self, from: End, to: Address, message: Outgoing) -> (SendId, u64) {
        let Outgoing { tag, length, delivery } = message;
        let now = self.now;
        let it = &mut self.nodes[from.node];
        it.cookie += 1;
        let cookie = it.cookie;
        it.heap.places.insert(PayloadPlace::Send(cookie), pattern(cookie, length));
        let request = SendRequest {
            to,
            tag,
            immediate: Some(cookie as u32),
            length,
            available: length,
            delivery,
            cookie,
        };
        (it.core.send(now, from.id, request, &mut it.heap).unwrap(), cookie)
    }

    pub fn receive(&mut self, at: End, selector: Selector, capacity: u32) -> (ReceiveId, u64) {
        let now = self.now;
        let it = &mut self.nodes[at.node];
        it.cookie += 1;
        let cookie = it.cookie;
        it.heap.places.insert(PayloadPlace::Receive(cookie), vec![0xee; capacity as usize]);
        let request = ReceiveRequest { selector, capacity, window: capacity, cookie };
        (it.core.receive(now, at.id, request, &mut it.heap).unwrap(), cookie)
    }

    /// Sends what there is to send.
    fn flush(&mut self) {
        for from in 0..self.nodes.len() {
            let mut out = vec![0; 2048];
            let it = &mut self.nodes[from];
            while let Some(transmit) = it.core.poll_transmit(self.now, &mut out, &mut it.heap) {
                let mut bytes = out[..transmit.len].to_vec();
                if let Some(payload) = transmit.payload {
                    let memory = &it.heap.places[&PayloadPlace::Send(payload.cookie)];
                    bytes.extend_from_slice(&memory[payload.offset as usize..][..payload.len]);
                }
                assert!(bytes.len() <= usize::from(ROOM), "{} bytes", bytes.len());
                let to = HOSTS.iter().position(|host| *host == transmit.host).unwrap();
                let copies = match (self.judge)(from, &bytes) {
                    Fate::Arrives => 1,
                    Fate::Lost => 0,
                    Fate::Twice => 2,
                };
                for _ in 0..copies {
                    self.packets.push_back((self.now + DELAY_NS, from, to, bytes.clone()));
                }
                self.log.push(bytes);
            }
            while let Some(event) = it.core.poll_event() {
                it.events.push(event);
            }
        }
    }

    /// Brings a packet to a node that no node has sent.
    pub fn inject(&mut self, from: usize, to: usize, bytes: &[u8]) {
        let it = &mut self.nodes[to];
        it.core.on_frame(self.now, HOSTS[from], bytes, &mut it.heap);
    }

    /// One thing happens: a packet arrives or a timer is due. False if nothing will.
    pub fn step(&mut self) -> bool {
        self.flush();
        let packet = self.packets.front().map(|packet| packet.0);
        let timer = self.nodes.iter().filter_map(|it| it.core.next_deadline()).min();
        let Some(next) = packet.into_iter().chain(timer).min() else { return false };
        self.now = self.now.max(next);
        while self.packets.front().is_some_and(|packet| packet.0 <= self.now) {
            let Some((_, from, to, bytes)) = self.packets.pop_front() else { break };
            let it = &mut self.nodes[to];
            it.core.on_frame(self.now, HOSTS[from], &bytes, &mut it.heap);
        }
        for it in &mut self.nodes {
            it.core.on_timers(self.now, &mut it.heap);
        }
        self.flush();
        true
    }

    /// Runs until nothing is left to do, or so many nanoseconds have passed.
    pub fn run(&mut self, most: u64) {
        let end = self.now + most;
        while self.now < end && self.step() {}
    }

    /// Runs until an event of a node fits, and takes it.
    pub fn wait(&mut self, node: usize, fits: impl Fn(&MessageEvent) -> bool) -> MessageEvent {
        let end = self.now + 60_000_000_000;
        loop {
            self.flush();
            let events = &mut self.nodes[node].events;
            if let Some(at) = events.iter().position(&fits) {
                return events.remove(at);
            }
            let more = self.now < end && self.step();
            assert!(more || self.nodes[node].events.iter().any(&fits), "{}", self.picture());
        }
    }

    pub fn picture(&self) -> String {
        self.nodes
            .iter()
            .map(|it| format!("events {:?}\n{:?}\n", it.events, it.core.counters()))
            .collect()
    }

    pub fn sent(&mut self, node: usize, cookie: u64) -> Status {
        let event = self
            .wait(node, |it| matches!(it, MessageEvent::Sent { cookie: of, .. } if *of == cookie));
        let MessageEvent::Sent { status, .. } = event else { unreachable!() };
        status
    }

    pub fn received(&mut self, node: usize, cookie: u64) -> (Option<Envelope>, Status) {
        let fits = |it: &MessageEvent| matches!(it, MessageEvent::Received { cookie: of, .. } if *of == cookie);
        let MessageEvent::Received { envelope, status, .. } = self.wait(node, fits) else {
            unreachable!()
        };
        (envelope, status)
    }

    /// Waits for a receive to end well with the message of this pattern.
    pub fn expect(&mut self, node: usize, receive: u64, seed: u64, length: u32) {
        let (envelope, status) = self.received(node, receive);
        assert_eq!(status, Status::Ok);
        let envelope = envelope.unwrap();
        assert_eq!((envelope.length, envelope.immediate), (length, Some(seed as u32)));
        let got = &self.nodes[node].heap.places[&PayloadPlace::Receive(receive)];
        assert!(got[..length as usize] == pattern(seed, length), "the bytes differ");
    }

    /// Nothing is left over.
    pub fn assert_clean(&mut self) {
        self.run(200_000_000);
        for it in &self.nodes {
            assert_eq!(it.heap.buffers, 0, "buffers are left");
        }
    }
}
