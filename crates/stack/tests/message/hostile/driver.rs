//! A message core under arbitrary frames, genuine frames with arbitrary fields, requests and times.
//! Nothing may panic; payload stays inside of the memory that it was told of; when all endpoints
//! are closed and the hosts are silent, every operation ends and every buffer is given back.

mod member;

use std::collections::HashMap;

use stack::message::*;
use wire::message::{Frames, job_identifier};

use member::{Input, Member};

const KEYS: [JobKey; 2] = [*b"key of the tests", *b"key of a second "];
const HOSTS: usize = 2;
/// Packets that one call may cause before the core counts as running away.
const PACKETS_MAX: usize = 20_000;
/// Deadlines until a core comes to rest that is left alone.
const MOMENTS_MAX: u32 = 20_000;

/// The sizes of what the core was given; it may not touch anything else.
#[derive(Default)]
struct Sizes {
    places: HashMap<PayloadPlace, u64>,
    next: u64,
    refuse: bool,
}

impl Sizes {
    fn check(&self, place: PayloadPlace, offset: u32, length: usize) {
        let size = self.places.get(&place);
        let end = u64::from(offset) + length as u64;
        assert!(size.is_some_and(|size| end <= *size), "{place:?} {offset}+{length} of {size:?}");
    }

    fn buffers(&self) -> usize {
        self.places.keys().filter(|it| matches!(it, PayloadPlace::Buffer(_))).count()
    }
}

impl Memory for Sizes {
    fn read(&mut self, from: PayloadPlace, offset: u32, out: &mut [u8]) {
        self.check(from, offset, out.len());
        out.fill(0x5a);
    }

    fn write(&mut self, to: PayloadPlace, offset: u32, bytes: &[u8]) {
        self.check(to, offset, bytes.len());
    }

    fn copy(&mut self, from: PayloadPlace, to: PayloadPlace, offset: u32, length: u32) {
        self.check(from, offset, length as usize);
        self.check(to, offset, length as usize);
    }

    fn reserve(&mut self, _: EndpointId, length: u32) -> Option<u64> {
        if self.refuse || self.buffers() >= 8 {
            return None;
        }
        self.next += 1;
        self.places.insert(PayloadPlace::Buffer(self.next), length.into());
        Some(self.next)
    }

    fn release(&mut self, buffer: u64) {
        let given = self.places.remove(&PayloadPlace::Buffer(buffer));
        assert!(given.is_some(), "buffer {buffer} was given back twice");
    }
}

struct Run {
    core: Core,
    sizes: Sizes,
    now: u64,
    hosts: Vec<(Host, PathAddresses)>,
    members: [[Member; HOSTS]; 2],
    endpoints: Vec<EndpointId>,
    open: usize,
    sends: Vec<(SendId, u64, u32)>,
    receives: Vec<(ReceiveId, u64, u32)>,
    claims: Vec<ClaimId>,
    cookie: u64,
}

/// One input.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let mut run = Run::new();
    while !input.0.is_empty() {
        run.step(&mut input);
        run.drain();
    }
    run.finish();
}

fn selector(input: &mut Input<'_>, hosts: &[(Host, PathAddresses)]) -> Selector {
    let shape = input.byte();
    let host = [hosts[0].0, hosts[1].0, Host::LOCAL][usize::from(shape) % 3];
    Selector {
        source: (shape & 8 != 0).then(|| Address { host, port: u16::from(input.byte() % 4) }),
        tag: (shape & 16 != 0).then(|| u64::from(input.byte() % 4)),
        ignore: if shape & 32 != 0 { u64::MAX } else { 0 },
    }
}

impl Run {
    fn new() -> Self {
        let mut core =
            Core::new(CoreConfig { incarnation: 1_000, hosts: HOSTS as u32, seed: [5, 6] });
        let hosts = (0..HOSTS)
            .map(|at| {
                let addresses = PathAddresses { local: [9; 16], remote: [at as u8; 16] };
                let room = [1472, ROOM_MIN][at];
                (core.add_host(addresses, room).expect("as many as may be"), addresses)
            })
            .collect();
        Self {
            core,
            sizes: Sizes::default(),
            now: 1_000_000,
            hosts,
            members: Default::default(),
            endpoints: Vec::new(),
            open: 0,
            sends: Vec::new(),
            receives: Vec::new(),
            claims: Vec::new(),
            cookie: 0,
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 32 {
            0..=15 => self.packet(input),
            16 => {
                let (len, at) = (usize::from(input.byte()), usize::from(input.byte()) % HOSTS);
                let bytes = input.0[..len.min(input.0.len())].to_vec();
                self.core.on_frame(self.now, self.hosts[at].0, &bytes, &mut self.sizes);
            }
            17 | 18 => {
                self.now += u64::from(input.byte()) << (input.byte() % 34);
                self.core.on_timers(self.now, &mut self.sizes);
            }
            19 => self.open(input),
            20..=22 => self.send(input),
            23..=25 => self.receive(input),
            26 => self.claim(input),
            27 => self.end_claim(input),
            28 => self.cancel(input),
            29 => self.more(input),
            30 => self.sizes.refuse = input.byte() & 1 != 0,
            _ => {
                let Some(endpoint) = self.endpoint(input) else { return };
                match input.byte() % 8 {
                    0 => self.core.close(self.now, endpoint, &mut self.sizes),
                    1 => self.core.abort(self.now, endpoint, &mut self.sizes),
                    _ => {}
                }
            }
        }
    }

    fn endpoint(&mut self, input: &mut Input<'_>) -> Option<EndpointId> {
        if self.endpoints.is_empty() {
            self.open(input);
        }
        let at = usize::from(input.byte());
        self.endpoints.get(at % self.endpoints.len().max(1)).copied()
    }

    fn open(&mut self, input: &mut Input<'_>) {
        let shape = input.byte();
        let options = EndpointOptions {
            port: u16::from(shape % 4),
            key: Some(KEYS[usize::from(shape % 16 == 4)]),
            unexpected: [Unexpected::Buffer, Unexpected::Drop][usize::from(shape >> 5 == 0)],
            envelopes: u32::from(input.byte() % 8),
            operations: u32::from(input.byte() % 16) + 1,
        };
        if let Ok(endpoint) = self.core.open(self.now, options) {
            self.endpoints.push(endpoint);
            self.open += 1;
        }
    }

    fn send(&mut self, input: &mut Input<'_>) {
        let Some(endpoint) = self.endpoint(input) else { return };
        let (shape, length) = (input.byte(), input.length());
        let host = [self.hosts[0].0, self.hosts[1].0, Host::LOCAL][usize::from(shape % 3)];
        let part = if length > EAGER_MAX && shape & 64 != 0 { input.length() } else { length };
        self.cookie += 1;
        let request = SendRequest {
            to: Address { host, port: u16::from(shape >> 2 & 3) },
            tag: (shape & 16 != 0).then_some(u64::from(shape >> 6)),
            immediate: (shape & 32 != 0).then_some(7),
            length,
            available: part.min(length),
            delivery: shape & 128 != 0,
            cookie: self.cookie,
        };
        let place = PayloadPlace::Send(self.cookie);
        self.sizes.places.insert(place, request.available.into());
        match self.core.send(self.now, endpoint, request, &mut self.sizes) {
            Ok(send) => self.sends.push((send, self.cookie, length)),
            Err(_) => drop(self.sizes.places.remove(&place)),
        }
    }

    fn receive(&mut self, input: &mut Input<'_>) {
        let Some(endpoint) = self.endpoint(input) else { return };
        let selector = selector(input, &self.hosts);
        let (capacity, window) = (input.length(), input.length());
        self.cookie += 1;
        let cookie = self.cookie;
        let place = PayloadPlace::Receive(cookie);
        self.sizes.places.insert(place, capacity.min(window).into());
        let request = ReceiveRequest { selector, capacity, window, cookie };
        match self.core.receive(self.now, endpoint, request, &mut self.sizes) {
            Ok(receive) => self.receives.push((receive, cookie, capacity)),
            Err(_) => drop(self.sizes.places.remove(&place)),
        }
    }

    fn claim(&mut self, input: &mut Input<'_>) {
        let Some(endpoint) = self.endpoint(input) else { return };
        let selector = selector(input, &self.hosts);
        let peeked = self.core.peek(endpoint, selector);
        let claimed = self.core.claim(endpoint, selector);
        assert_eq!(peeked, claimed.map(|it| it.1));
        self.claims.extend(claimed.map(|it| it.0));
    }

    fn end_claim(&mut self, input: &mut Input<'_>) {
        let shape = input.byte();
        let Some(&claim) = self.claims.get(usize::from(shape) % self.claims.len().max(1)) else {
            return;
        };
        if shape & 128 != 0 {
            let _ = self.core.discard(self.now, claim, &mut self.sizes);
            return;
        }
        let (capacity, window) = (input.length(), input.length());
        self.cookie += 1;
        let cookie = self.cookie;
        let place = PayloadPlace::Receive(cookie);
        self.sizes.places.insert(place, capacity.min(window).into());
        let request = ClaimedReceive { capacity, window, cookie };
        match self.core.receive_claimed(self.now, claim, request, &mut self.sizes) {
            Ok(receive) => self.receives.push((receive, cookie, capacity)),
            Err(_) => drop(self.sizes.places.remove(&place)),
        }
    }

    fn cancel(&mut self, input: &mut Input<'_>) {
        let at = usize::from(input.byte());
        if at & 1 == 0 {
            if let Some(it) = self.sends.get(at / 2 % self.sends.len().max(1)) {
                self.core.cancel_send(it.0);
            }
        } else if let Some(it) = self.receives.get(at / 2 % self.receives.len().max(1)) {
            self.core.cancel_receive(it.0);
        }
    }

    /// More of a send's data, or of a receive's window.
    fn more(&mut self, input: &mut Input<'_>) {
        let (at, up_to) = (usize::from(input.byte()), input.length());
        let (now, sizes) = (self.now, &mut self.sizes);
        if at & 1 == 0 {
            let Some(&(send, cookie, length)) = self.sends.get(at / 2 % self.sends.len().max(1))
            else {
                return;
            };
            let Some(size) = sizes.places.get_mut(&PayloadPlace::Send(cookie)) else { return };
            let up_to = up_to.min(length);
            if u64::from(up_to) >= *size {
                *size = up_to.into();
                let _ = self.core.feed(now, send, up_to, sizes);
            }
        } else {
            let receives = self.receives.len().max(1);
            let Some(&(receive, cookie, capacity)) = self.receives.get(at / 2 % receives) else {
                return;
            };
            let Some(size) = sizes.places.get_mut(&PayloadPlace::Receive(cookie)) else { return };
            let up_to = up_to.min(capacity);
            if u64::from(up_to) >= *size {
                *size = up_to.into();
                let _ = self.core.extend(now, receive, up_to, sizes);
            }
        }
    }

    /// A packet of a few genuine frames.
    fn packet(&mut self, input: &mut Input<'_>) {
        let shape = input.byte();
        let (job, at) = (usize::from(shape % 16 == 15), usize::from(shape >> 4) % HOSTS);
        let mut packet = Vec::new();
        for _ in 0..1 + shape / 100 {
            packet.resize(packet.len().next_multiple_of(8), 0);
            let path = self.hosts[at].1;
            self.members[job][at].frame(input, &KEYS[job], &path, &mut packet);
        }
        if shape == 200 {
            let at = usize::from(input.byte()) % packet.len();
            packet[at] ^= input.byte();
        }
        self.core.on_frame(self.now, self.hosts[at].0, &packet, &mut self.sizes);
    }

    /// Lets packets and events out, checks them, and learns from them.
    fn drain(&mut self) {
        let mut out = vec![0; 2048];
        let mut packets = 0;
        while let Some(packet) = self.core.poll_transmit(self.now, &mut out, &mut self.sizes) {
            packets += 1;
            assert!(packets < PACKETS_MAX, "packets without end");
            let at = self.hosts.iter().position(|it| it.0 == packet.host).expect("a host");
            let mut bytes = out[..packet.len].to_vec();
            if let Some(payload) = packet.payload {
                let place = PayloadPlace::Send(payload.cookie);
                self.sizes.check(place, payload.offset, payload.len);
                bytes.resize(bytes.len() + payload.len, 0);
            }
            for received in Frames::new(&bytes) {
                let received = received.expect("the core's frames are well formed");
                let own = received.frame.job == job_identifier(&KEYS[1]);
                self.members[usize::from(own)][at].learn(&received);
            }
        }
        while let Some(event) = self.core.poll_event() {
            match event {
                MessageEvent::Sent { cookie, .. } => {
                    let ended = self.sizes.places.remove(&PayloadPlace::Send(cookie));
                    assert!(ended.is_some(), "send {cookie} ended twice");
                }
                MessageEvent::Received { cookie, .. } => {
                    let ended = self.sizes.places.remove(&PayloadPlace::Receive(cookie));
                    assert!(ended.is_some(), "receive {cookie} ended twice");
                }
                MessageEvent::Closed { endpoint } => {
                    self.open -= 1;
                    self.endpoints.retain(|it| *it != endpoint);
                }
                _ => {}
            }
        }
        assert!(self.core.associations() <= HOSTS * KEYS.len());
    }

    /// Closes everything, and waits until nothing is left.
    fn finish(&mut self) {
        for (at, endpoint) in self.endpoints.clone().into_iter().enumerate() {
            match at % 2 {
                0 => self.core.close(self.now, endpoint, &mut self.sizes),
                _ => self.core.abort(self.now, endpoint, &mut self.sizes),
            }
        }
        self.drain();
        let mut moments = 0;
        while let Some(next) = self.core.next_deadline() {
            moments += 1;
            assert!(moments < MOMENTS_MAX, "timers fire without end: {:?}", self.core.counters());
            self.now = self.now.max(next);
            self.core.on_timers(self.now, &mut self.sizes);
            self.drain();
        }
        assert!(self.sizes.places.is_empty(), "{:?} is left", self.sizes.places);
        assert_eq!(self.open, 0, "endpoints are left");
    }
}
