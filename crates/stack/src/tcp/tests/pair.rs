//! Two hosts and the network between them, in virtual time.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};

use wire::MacAddr;

use super::{keys, limits};
use crate::api::*;
use crate::flow::KeyedHash;
use crate::path_mtu::PathMtus;
use crate::route::Routes;
use crate::tcp::{Accepted, PathMtu, SegmentRx, Tcp, TcpSettings};

/// xorshift64*: deterministic and good enough for faults.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 16) % n.max(1)
    }
    pub fn one_in(&mut self, n: u64) -> bool {
        n > 0 && self.below(n) == 0
    }
}

/// Where a host's received bytes go.
#[derive(Default)]
pub struct Store {
    pub streams: HashMap<SocketId, Vec<u8>>,
    pub refuse_one_in: u64,
    /// More bytes than this at a time find no room.
    pub room: Option<usize>,
    random: Option<Random>,
}

impl Sink for Store {
    fn stream(&mut self, id: SocketId, _: Owner, offset: u64, bytes: &[u8]) -> bool {
        if self.room.is_some_and(|room| bytes.len() > room) {
            return false;
        }
        let one_in = self.refuse_one_in;
        if self.random.get_or_insert_with(|| Random::new(5)).one_in(one_in) {
            return false;
        }
        let stream = self.streams.entry(id).or_default();
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        if stream.len() < end {
            stream.resize(end, 0xee);
        }
        stream[start..end].copy_from_slice(bytes);
        true
    }
    fn datagram(&mut self, _: SocketId, _: Owner, _: &DatagramMeta, _: &[u8]) -> bool {
        false
    }
}

pub struct Host {
    pub tcp: Tcp,
    pub routes: Routes,
    pub address: IpAddr,
    pub store: Store,
    /// What is to be sent, by connection.
    pub sending: HashMap<SocketId, Vec<u8>>,
    pub events: Vec<Event>,
    /// What routers have said.
    pub paths: PathMtus,
}

impl Host {
    /// Every connection and listener.
    pub fn ids(&self) -> impl Iterator<Item = SocketId> + '_ {
        (0..self.tcp.places()).filter_map(|place| self.tcp.id_at(place))
    }

    pub fn new(host: u8, mtu: u16, tso: bool) -> Self {
        let address = IpAddr::from([10, 0, 0, host]);
        let mut routes = Routes::default();
        routes.add(InterfaceConfig {
            mac: MacAddr([2, 0, 0, 0, 0, host]),
            mtu,
            addresses: vec![Cidr { address, prefix: 24 }],
            gateway: None,
            routes: Vec::new(),
            shared: None,
            ipv6: Ipv6Mode::Off,
            tso,
            tso6: false,
            uso: false,
        });
        Self {
            tcp: Tcp::new(&keys(host), &limits(), TcpSettings::default()),
            routes,
            address,
            store: Store::default(),
            sending: HashMap::new(),
            events: Vec::new(),
            paths: PathMtus::new(KeyedHash::new([host; 16]), 8),
        }
    }

    /// What the way to `remote` carries.
    pub fn mtu_towards(&self, now: Instant, remote: IpAddr) -> Option<PathMtu> {
        let route = self.routes.lookup(remote);
        let link = route.map_or(1500, |route| route.mtu);
        let metrics = route.map_or(Metrics::default(), |route| route.metrics);
        let path = self.paths.towards(now, remote, link);
        Some(PathMtu { link, path, is_cut: self.paths.is_cut(now, remote), metrics })
    }

    pub fn write(&mut self, now: Instant, id: SocketId, bytes: &[u8]) {
        let stream = self.sending.entry(id).or_default();
        stream.extend_from_slice(bytes);
        let end = stream.len() as u64;
        self.tcp.written(now, id, end, false).expect("writable");
    }

    pub fn read_all(&mut self, now: Instant, id: SocketId) -> u64 {
        let readable = self.tcp.levels(id).expect("live").readable;
        self.tcp.consumed(now, id, readable).expect("live");
        readable
    }

    pub fn received(&self, id: SocketId) -> &[u8] {
        let readable = self.tcp.levels(id).expect("live").readable as usize;
        self.store.streams.get(&id).map_or(&[][..], |s| &s[..readable])
    }

    pub fn state(&self, id: SocketId) -> TcpState {
        self.tcp.levels(id).expect("live").state
    }
}

/// What the network does to segments. A rate of n is one in n, 0 never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub lose: u64,
    pub repeat: u64,
    pub reorder: u64,
    pub delay_ns: u64,
    /// Frames that the port's own queue drops and says so of.
    pub refuse: u64,
}

struct Flying {
    to: usize,
    segment: Vec<u8>,
    gso_bytes: Option<u16>,
}

pub struct Pair {
    pub now: Instant,
    pub hosts: [Host; 2],
    pub faults: Faults,
    pub random: Random,
    flying: BTreeMap<(u64, u64), Flying>,
    count: u64,
    pub sent: u64,
    pub lost: u64,
    /// Right edge of the window that each host has offered, and where its stream began.
    edges: [Option<u64>; 2],
    /// Connections read as fast as data comes.
    pub reading: Vec<(usize, SocketId)>,
    /// Called for every segment; true loses it.
    #[allow(clippy::type_complexity)]
    pub filter: Option<Box<dyn FnMut(usize, &wire::tcp::TcpSegment<'_>) -> bool>>,
}

const INTERFACE: InterfaceIndex = InterfaceIndex(0);
pub const MS: u64 = 1_000_000;

impl Pair {
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self::with(seed, faults, 1500, false)
    }

    pub fn with(seed: u64, faults: Faults, mtu: u16, tso: bool) -> Self {
        Self {
            now: Instant(1_000_000_000),
            hosts: [Host::new(1, mtu, tso), Host::new(2, mtu, tso)],
            faults,
            random: Random::new(seed),
            flying: BTreeMap::new(),
            count: 0,
            sent: 0,
            lost: 0,
            edges: [None; 2],
            reading: Vec::new(),
            filter: None,
        }
    }

    /// A connection from host 0 to a listener of host 1, both ends established.
    pub fn connected(&mut self, options: TcpOptions) -> (SocketId, SocketId) {
        self.try_connected(options).expect("connected")
    }

    /// The same; `None` if the network does not let it happen.
    pub fn try_connected(&mut self, options: TcpOptions) -> Option<(SocketId, SocketId)> {
        let (client, listener) = self.connecting(options);
        for _ in 0..3000 {
            if let Some(Accepted { id, .. }) = self.hosts[1].tcp.accept(listener).unwrap() {
                self.hosts[1].tcp.assign(id, Owner(2)).unwrap();
                return Some((client, id));
            }
            self.run(50 * MS);
        }
        None
    }

    pub fn connecting(&mut self, options: TcpOptions) -> (SocketId, SocketId) {
        let to = SocketAddr::new(self.hosts[1].address, 80);
        let listener = self.hosts[1].tcp.listen(to, 16, options, Owner(1)).unwrap();
        (self.connect(options), listener)
    }

    pub fn connect(&mut self, options: TcpOptions) -> SocketId {
        let to = SocketAddr::new(self.hosts[1].address, 80);
        let route = self.hosts[0].routes.lookup(to.ip()).unwrap();
        self.hosts[0]
            .tcp
            .connect(
                self.now,
                &route,
                TcpConnect { remote: to, local: None, options, owner: Owner(3) },
            )
            .unwrap()
    }

    fn transmit(&mut self) {
        for from in 0..2 {
            let mut header = [0u8; 60];
            while let Some(ready) = self.hosts[from].tcp.next_ready(INTERFACE) {
                let mtu = self.hosts[from].mtu_towards(self.now, ready.remote);
                let Some(tx) = self.hosts[from].tcp.emit(self.now, ready.handle, mtu, &mut header)
                else {
                    continue;
                };
                if self.random.one_in(self.faults.refuse) {
                    self.hosts[from].tcp.on_refused(self.now, &tx.payload);
                    continue;
                }
                let mut segment = header[..usize::from(tx.header_bytes)].to_vec();
                if let Payload::Stream { id, offset, len, .. } = tx.payload {
                    let stream = &self.hosts[from].sending[&id];
                    segment.extend_from_slice(&stream[offset as usize..][..len as usize]);
                }
                self.send(from, segment, tx.gso_bytes);
            }
        }
    }

    fn send(&mut self, from: usize, segment: Vec<u8>, gso_bytes: Option<u16>) {
        self.sent += 1;
        let parsed = wire::tcp::parse(&segment).unwrap();
        self.check_window(from, &parsed);
        let filtered = self.filter.as_mut().is_some_and(|f| f(from, &parsed));
        if filtered || self.random.one_in(self.faults.lose) {
            self.lost += 1;
            return;
        }
        let copies = 1 + u64::from(self.random.one_in(self.faults.repeat));
        for _ in 0..copies {
            let mut at = self.now.0 + self.faults.delay_ns;
            if self.random.one_in(self.faults.reorder) {
                at += self.random.below(self.faults.delay_ns.max(MS));
            }
            self.count += 1;
            let flying = Flying { to: 1 - from, segment: segment.clone(), gso_bytes };
            self.flying.insert((at, self.count), flying);
        }
    }

    /// The sender never goes beyond what its peer has offered; one connection at a time.
    fn check_window(&mut self, from: usize, segment: &wire::tcp::TcpSegment<'_>) {
        let header = &segment.header;
        if header.flags.rst() {
            return;
        }
        let scale = if header.flags.syn() {
            self.edges[from] = None;
            0
        } else {
            // Both ends use the least shift that is offered.
            7
        };
        if header.flags.ack() {
            let window = u64::from(header.window) << scale;
            let edge = u64::from(header.ack.0) + window;
            let known = self.edges[from].unwrap_or(edge);
            let ahead = (edge as u32).wrapping_sub(known as u32).cast_signed();
            self.edges[from] = Some(known.wrapping_add_signed(i64::from(ahead.max(0))));
        }
        if let Some(edge) = self.edges[1 - from] {
            let end = header.seq + segment.payload.len() as u32;
            let beyond = end.0.wrapping_sub(edge as u32).cast_signed();
            assert!(beyond <= 0, "{beyond} bytes beyond the window");
        }
    }

    /// Exports and imports both ends.
    pub fn renew(&mut self) {
        for host in &mut self.hosts {
            let bytes = postcard::to_stdvec(&host.tcp).unwrap();
            host.tcp = postcard::from_bytes(&bytes).unwrap();
        }
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.flying.first_entry()
            && entry.key().0 <= self.now.0
        {
            let Flying { to, segment, gso_bytes } = entry.remove();
            let remote = self.hosts[1 - to].address;
            let host = &mut self.hosts[to];
            let rx = SegmentRx {
                now: self.now,
                local: host.address,
                remote,
                interface: INTERFACE,
                tos: 0,
                ttl: 64,
                gso_bytes,
            };
            // A drop is what the test is about, or its network's doing.
            let _ = host.tcp.on_segment(&rx, &segment, &host.routes, &mut host.store);
            self.transmit();
        }
    }

    /// Runs until nothing is left to do now.
    pub fn settle(&mut self) {
        loop {
            let before = (self.count, self.flying.len());
            self.deliver();
            self.transmit();
            for host in &mut self.hosts {
                while let Some(event) = host.tcp.poll_event() {
                    host.events.push(event);
                }
            }
            for (host, id) in self.reading.clone() {
                if self.hosts[host].tcp.levels(id).is_ok() {
                    self.hosts[host].read_all(self.now, id);
                }
            }
            self.transmit();
            if (self.count, self.flying.len()) == before {
                return;
            }
        }
    }

    /// The next time at which anything happens.
    fn next(&self) -> Option<u64> {
        let flying = self.flying.keys().next().map(|k| k.0);
        let timers = self.hosts.iter().filter_map(|h| h.tcp.next_deadline()).map(|i| i.0);
        timers.chain(flying).min()
    }

    /// Lets `ns` pass.
    pub fn run(&mut self, ns: u64) {
        let end = self.now.0 + ns;
        self.settle();
        while let Some(next) = self.next().filter(|&next| next <= end) {
            // Wheel ticks may lie before now; time never goes back.
            self.now.0 = self.now.0.max(next);
            for host in &mut self.hosts {
                while host.tcp.on_timers(self.now, 64) {}
            }
            self.settle();
            if self.next().is_some_and(|again| again <= self.now.0 && again == next) {
                // The wheel names the beginning of a tick; move on within it.
                self.now.0 += 1 << 16;
            }
        }
        self.now.0 = self.now.0.max(end);
        for host in &mut self.hosts {
            while host.tcp.on_timers(self.now, 64) {}
        }
        self.settle();
    }
}

/// Bytes that tell where they belong.
pub fn pattern(len: usize, salt: u64) -> Vec<u8> {
    (0..len as u64).map(|i| ((i ^ (i >> 8) ^ (i >> 16) ^ salt).wrapping_mul(31)) as u8).collect()
}
