//! A whole stack under arbitrary frames, requests, times and exports. Nothing may panic; what
//! comes out must be a frame whose parts exist; a stack left alone must come to rest.
//!
//! The frames (`incoming.rs`) are of both families: segments with options, urgent data and marks,
//! Fast Open and cookies, datagrams alone and coalesced, fragments, extension headers, errors that
//! quote what was sent, neighbour discovery.

mod incoming;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use stack::api::*;
use stack::tcp::{EcnMode, FastOpenKeys, MtuProbing, SigningKey};
use stack::{Config, HEADER_MAX, Limits, Stack};
use wire::checksum::Sum;
use wire::ethernet::EtherType;
use wire::ipv4::Protocol;
use wire::ipv6::walk;
use wire::tcp::{FastOpenCookie, TcpHeader};
use wire::{MacAddr, arp, checksum, ethernet, icmpv6, ipv4, ipv6, tcp};

use incoming::meta;

const OWN_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const PEER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const OWN: [u8; 4] = [10, 0, 0, 1];
const OWN_V6: [u16; 8] = [0xfd00, 0, 0, 0, 0, 0, 0, 1];
const ROUTER: [u16; 8] = [0xfe80, 0, 0, 0, 0, 0, 0, 0xff];
const PEER: [u8; 4] = [10, 0, 0, 2];
const PEER_V6: [u16; 8] = [0xfd00, 0, 0, 0, 0, 0, 0, 2];
const INTERFACE: InterfaceIndex = InterfaceIndex(0);
/// Frames that one input may cause before the stack counts as running away.
const FRAMES_MAX: usize = 4096;

/// Times that a day may have something to do at, for a stack that is left alone.
const MOMENTS_MAX: u32 = 20_000;

/// Takes the input apart; at its end everything is zero.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }
    fn short(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }
    fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }
    fn is_over(&self) -> bool {
        self.0.is_empty()
    }
}

/// Keeps what the stack delivers, and holds it to the window.
#[derive(Default)]
struct Keeper {
    refuse: bool,
    consumed: HashMap<SocketId, u64>,
}

impl Sink for Keeper {
    fn stream(&mut self, id: SocketId, _: Owner, offset: u64, bytes: &[u8]) -> bool {
        let consumed = self.consumed.get(&id).copied().unwrap_or(0);
        let end = offset.checked_add(bytes.len() as u64).expect("an offset that can be added to");
        // The default window limit, and what scaling rounds up.
        assert!(end <= consumed + (1 << 20) + (1 << 14), "{offset}+{} at {consumed}", bytes.len());
        !self.refuse
    }
    fn datagram(&mut self, _: SocketId, _: Owner, _: &DatagramMeta, bytes: &[u8]) -> bool {
        assert!(bytes.len() <= 65507);
        !self.refuse
    }
}

struct Run {
    stack: Stack,
    keeper: Keeper,
    now: Instant,
    ids: Vec<SocketId>,
    written: HashMap<SocketId, u64>,
    /// The last segment that went out.
    last: Option<Last>,
    /// The last packet of TCP or UDP that went out, from its IP header on.
    sent: Option<Vec<u8>>,
    /// The last cookie that went out.
    cookie: Option<FastOpenCookie>,
    /// User timeouts may be told.
    tells_timeouts: bool,
}

/// A segment of ours.
struct Last {
    header: TcpHeader,
    options: tcp::TcpOptions,
    /// Of the sequence space.
    len: u32,
    is_v6: bool,
}

/// One input.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let mut run = Run::new(input.byte(), input.byte());
    while !input.is_over() {
        run.step(&mut input);
        run.drain();
    }
    // Left alone for a day, it comes to rest but for what it asks routers, whatever happened before.
    let end = run.now.0 + 86_400_000_000_000;
    let mut moments = 0;
    while let Some(next) = run.stack.next_deadline().filter(|next| next.0 <= end) {
        moments += 1;
        assert!(moments <= MOMENTS_MAX, "timers fire without end");
        run.now = Instant(next.0.max(run.now.0 + 1));
        run.timers();
        run.drain();
    }
    let export = run.stack.export();
    let again = Stack::import(&export).expect("our own export").export();
    assert!(export == again, "an import is not what was exported");
}

impl Run {
    fn new(seed: u8, settings: u8) -> Self {
        let mut config = Config::new([seed; 32]);
        config.tcp.ecn = [EcnMode::Accept, EcnMode::On][usize::from(settings & 1)];
        config.tcp.mtu_probing =
            [MtuProbing::AfterBlackHole, MtuProbing::Always][usize::from(settings >> 1 & 1)];
        config.tcp.fast_open = [0x1, 0x3, 0x7, 0x607][usize::from(settings >> 2 & 3)];
        config.tcp.timestamps = settings & 16 == 0;
        config.tcp.sack = settings & 32 == 0;
        config.tcp.syn_cookies = settings & 64 == 0;
        let tells_timeouts = seed & 16 != 0;
        config.tcp.user_timeout_option = tells_timeouts;
        config.limits = Limits {
            path_mtus: 8,
            fast_open_servers: 4,
            connections: 8,
            time_waits: 4,
            listeners: 2,
            syn_queue: 3,
            accept_queue: 3,
            udp_sockets: 4,
            neighbors: 3,
            reassemblies: 2,
            reassemblies_per_source: 2,
            reassembly_bytes: 64 << 10,
            own_bytes: 16 * 2048,
            groups: 4,
        };
        let mut stack = Stack::new(config);
        stack.add_interface(InterfaceConfig {
            mac: OWN_MAC,
            mtu: 1500,
            addresses: vec![
                Cidr { address: OWN.into(), prefix: 24 },
                Cidr { address: OWN_V6.into(), prefix: 64 },
            ],
            gateway: (seed & 1 == 0).then(|| [10, 0, 0, 254].into()),
            routes: Vec::new(),
            shared: None,
            ipv6: if seed & 8 == 0 { Ipv6Mode::Automatic } else { Ipv6Mode::Static },
            tso: seed & 2 != 0,
            tso6: seed & 2 != 0,
            uso: seed & 4 != 0,
        });
        let now = Instant(u64::from(seed) << 32);
        let mut run = Self {
            stack,
            keeper: Keeper::default(),
            now,
            ids: Vec::new(),
            written: HashMap::new(),
            last: None,
            sent: None,
            cookie: None,
            tells_timeouts,
        };
        if settings & 128 == 0 {
            run.settle();
        }
        run
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 20 {
            0 => {
                let len = usize::from(input.short()) % 2048;
                let frame = input.bytes(len).to_vec();
                self.receive(&frame, meta(input));
            }
            1 => self.packet(input),
            2 | 3 => self.segment(input),
            4 => self.datagram(input),
            5 => self.neighbor(input),
            6 => {
                let span = u64::from(input.short()) << (input.byte() % 28);
                self.now = Instant(self.now.0.saturating_add(span));
                self.timers();
            }
            7 => self.open(input),
            8..=11 => self.tcp_request(input),
            12 | 13 => self.udp_request(input),
            14 => self.keeper.refuse = input.byte() & 1 != 0,
            16 => self.discovery(input),
            17 => self.packet_v6(input),
            18 => self.error(input),
            19 => self.segment(input),
            _ => {
                self.stack = Stack::import(&self.stack.export()).expect("our own export");
                let damaged = input.bytes(64);
                let _ = Stack::import(damaged);
            }
        }
    }

    fn timers(&mut self) {
        let mut calls = 0;
        while self.stack.on_timers(self.now) {
            calls += 1;
            assert!(calls < 100, "timers fire without end");
        }
    }

    fn open(&mut self, input: &mut Input<'_>) {
        let options = options(input);
        let remote: IpAddr = match input.byte() {
            0..=120 => PEER.into(),
            121..=160 => OWN.into(),
            161..=220 => PEER_V6.into(),
            221..=240 => OWN_V6.into(),
            other => [other, 0, 0, other].into(),
        };
        let (shape, any) = (input.byte(), IpAddr::from([0u16; 8]));
        let opened = match shape % 3 {
            0 => {
                let address = [OWN.into(), OWN_V6.into(), any, any][usize::from(shape >> 6)];
                let backlog = input.byte().into();
                self.stack.tcp_listen(local(address, 80, shape), backlog, options, Owner(1))
            }
            1 => {
                let to = (remote, input.short() % 100).into();
                self.stack.tcp_connect(
                    self.now,
                    TcpConnect { remote: to, local: None, options, owner: Owner(2) },
                )
            }
            _ => {
                let address = [[0; 4].into(), any, any, OWN_V6.into()][usize::from(shape >> 6)];
                let port = u16::from(input.byte() % 8) + 50;
                self.stack.udp_bind(local(address, port, shape), Owner(3))
            }
        };
        self.ids.extend(opened);
    }

    fn pick(&mut self, input: &mut Input<'_>) -> SocketId {
        let which = usize::from(input.byte());
        let stale = SocketId { index: u32::from(input.byte()) << 24, generation: 7 };
        self.ids.get(which % (self.ids.len() + 1)).copied().unwrap_or(stale)
    }

    fn tcp_request(&mut self, input: &mut Input<'_>) {
        let (now, id) = (self.now, self.pick(input));
        let stack = &mut self.stack;
        match input.byte() % 16 {
            0 | 1 => {
                if let Ok(Some(accepted)) = stack.tcp_accept(id) {
                    self.ids.push(accepted.id);
                    let _ = stack.tcp_assign(accepted.id, Owner(4));
                }
            }
            2..=4 => {
                let (shape, end) = (input.byte(), self.written.entry(id).or_default());
                *end += u64::from(input.short());
                if shape & 1 != 0 {
                    let _ = stack.tcp_urge(now, id, *end);
                }
                if shape & 2 != 0 {
                    let _ = stack.tcp_end_record(now, id, *end);
                }
                let _ = match shape & 4 {
                    0 => stack.tcp_written(now, id, *end),
                    _ => stack.tcp_written_more(now, id, *end),
                };
            }
            15 => {
                let peers = [
                    Cidr { address: PEER.into(), prefix: 24 },
                    Cidr { address: PEER_V6.into(), prefix: 64 },
                ];
                let shape = input.byte();
                let key = (shape & 2 != 0).then(|| SigningKey::new(&[shape; 9])).flatten();
                let _ = stack.tcp_set_key(id, peers[usize::from(shape & 1)], key);
            }
            11 => drop(stack.tcp_push(now, id)),
            12 => drop(stack.tcp_set_quickack(now, id, input.byte() & 1 != 0)),
            13 => drop(stack.tcp_limit_window(id, u32::from(input.short()) << 6)),
            14 => {
                let keys = FastOpenKeys { primary: [input.byte(); 16], backup: Some([1; 16]) };
                let _ = stack.tcp_set_fast_open_keys(id, keys);
            }
            5 | 6 => {
                if let Ok(levels) = stack.tcp_levels(id) {
                    let _ = stack.tcp_consumed(now, id, levels.readable);
                    self.keeper.consumed.insert(id, levels.readable);
                }
            }
            7 => drop(stack.tcp_shutdown(now, id)),
            8 => drop(stack.tcp_close(now, id)),
            9 => drop(stack.tcp_abort(now, id)),
            10 => drop(stack.tcp_set_options(now, id, options(input))),
            _ => {
                let _ = (stack.tcp_info(id), stack.tcp_pending(id), stack.tcp_levels(id));
                let _ = stack.sockets().count();
            }
        }
    }

    fn udp_request(&mut self, input: &mut Input<'_>) {
        let id = self.pick(input);
        let remote: Option<SocketAddr> = match input.byte() % 8 {
            0 => None,
            1 => Some((OWN, u16::from(input.byte() % 8) + 50).into()),
            2 => Some((OWN_V6, u16::from(input.byte() % 8) + 50).into()),
            3 => Some(([10, 0, 0, 255], 9).into()),
            4 | 5 => Some((PEER_V6, input.short()).into()),
            _ => Some((PEER, input.short()).into()),
        };
        match input.byte() % 7 {
            3 => {
                let shape = input.byte();
                let options = UdpOptions {
                    report_errors: shape & 1 != 0,
                    report_errors6: shape & 2 != 0,
                    no_check6: shape & 4 != 0,
                    pmtu: pmtu(shape >> 6),
                    only_joined: shape & 8 != 0,
                    only_joined6: shape & 16 != 0,
                };
                let _ = self.stack.udp_set_options(id, options);
            }
            0 => drop(self.stack.udp_close(self.now, id)),
            1 => drop(self.stack.udp_connect(id, remote)),
            2 => drop(self.stack.udp_take_levels(id)),
            _ => {
                let shape = input.byte();
                let send = UdpSend {
                    remote,
                    payload_len: u32::from(input.short()) * 3 / 2,
                    gso_bytes: (shape > 200).then(|| input.short().max(64)),
                    cut: UdpCut {
                        not_routers: shape & 1 != 0,
                        not_us: shape & 2 != 0,
                        by_link: shape & 4 != 0,
                    },
                    no_checksum: shape & 8 != 0,
                    tos: (shape & 16 != 0).then(|| input.byte()),
                    ttl: (shape & 32 != 0).then(|| input.byte()),
                    ..UdpSend::default()
                };
                self.transmit_datagram(id, &send);
            }
        }
    }

    fn transmit_datagram(&mut self, id: SocketId, send: &UdpSend) {
        let mut header = [0; HEADER_MAX];
        let Ok(mut frame) = self.stack.udp_transmit(
            self.now,
            id,
            send,
            UdpOut { header: &mut header, payload_sum: || 0 },
        ) else {
            return;
        };
        let mut next = 0;
        loop {
            assert!(usize::from(frame.header_bytes) <= HEADER_MAX && frame.offset == next);
            if let Some(packet) = header[..usize::from(frame.header_bytes)].get(14..) {
                self.sent = Some(packet.to_vec());
            }
            next += frame.len;
            frame = match (frame.more, frame.next) {
                (Some(rest), _) => {
                    self.stack.udp_fragment(rest, &mut header).expect("the interface is there")
                }
                (None, Some(offset)) => {
                    let send = UdpSend { offset, ..*send };
                    let sent = self.stack.udp_transmit(
                        self.now,
                        id,
                        &send,
                        UdpOut { header: &mut header, payload_sum: || 0 },
                    );
                    let Ok(frame) = sent else { return };
                    frame
                }
                (None, None) => break,
            };
        }
        assert_eq!(next, send.payload_len);
    }

    /// Takes everything that comes out, and checks it.
    fn drain(&mut self) {
        let mut header = [0; HEADER_MAX];
        for _ in 0..FRAMES_MAX {
            let loopback = InterfaceIndex::LOOPBACK;
            let (interface, t) = match self.stack.poll_transmit(self.now, loopback, &mut header) {
                Some(t) => (loopback, t),
                None => match self.stack.poll_transmit(self.now, INTERFACE, &mut header) {
                    Some(t) => (INTERFACE, t),
                    None => {
                        self.drain_events();
                        return;
                    }
                },
            };
            let mut frame = header[..usize::from(t.header_bytes)].to_vec();
            match t.payload {
                Payload::None => {}
                Payload::Stream { id, offset, len, .. } => {
                    let end = self.written.get(&id).copied().unwrap_or(0);
                    assert!(offset + u64::from(len) <= end, "{offset}+{len} of {end} written");
                    frame.resize(frame.len() + len as usize, 7);
                }
                Payload::Own { start, len } => {
                    assert_eq!(self.stack.own_bytes(start, len).len(), len as usize);
                    frame.extend(self.stack.own_bytes(start, len));
                    self.stack.release_own(start, len);
                }
            }
            if let Some((start, offset)) = t.checksum {
                checksum::complete(&mut frame, start.into(), offset.into()).expect("inside");
            }
            self.look(&frame);
            if interface == loopback {
                let meta = RxFrameMeta { checksum: RxChecksum::Valid, gso_bytes: None };
                self.stack.on_frame(
                    self.now,
                    &RxFrame { interface: loopback, bytes: &frame, meta },
                    &mut self.keeper,
                );
            }
        }
        panic!("one input causes more than {FRAMES_MAX} frames");
    }

    fn drain_events(&mut self) {
        for _ in 0..64 {
            if self.stack.poll_event().is_none() {
                return;
            }
        }
        panic!("more events than sockets");
    }

    /// Everything that goes out must be well formed.
    fn look(&mut self, frame: &[u8]) {
        let (ethernet, packet) = ethernet::parse(frame).expect("an Ethernet header");
        if ethernet.ethertype == EtherType::ARP {
            arp::parse(packet).expect("an ARP packet");
            return;
        }
        let (src, dst, protocol, payload) = if ethernet.ethertype == EtherType::IPV6 {
            let (header, behind) = ipv6::parse(packet).expect("an IPv6 packet");
            let chain = walk(header.next_header, behind, 0).expect("extension headers");
            if chain.fragment.is_some() {
                return;
            }
            (header.src.into(), header.dst.into(), chain.protocol, chain.payload)
        } else {
            let ip = ipv4::parse(packet).expect("an IPv4 packet");
            if ip.header.is_fragment() {
                return;
            }
            (IpAddr::V4(ip.header.src), ip.header.dst.into(), ip.header.protocol, ip.payload)
        };
        if let (IpAddr::V6(src), IpAddr::V6(dst), Protocol::ICMPV6) = (src, dst, protocol) {
            icmpv6::parse(src, dst, payload).expect("an ICMPv6 message");
        }
        if protocol == Protocol::TCP {
            let segment = tcp::parse(payload).expect("a segment");
            let sum = Sum::pseudo(src, dst, Protocol::TCP, payload.len() as u32)
                .expect("addresses of one family");
            assert!(sum.then(Sum::of(payload)).is_valid());
            let flags = segment.header.flags;
            let len =
                segment.payload.len() as u32 + u32::from(flags.fin()) + u32::from(flags.syn());
            let (header, options) = (segment.header, segment.options);
            assert!(self.tells_timeouts || options.user_timeout.is_none());
            self.last = Some(Last { header, options, len, is_v6: src.is_ipv6() });
            self.cookie = options.fast_open.filter(|cookie| cookie.len > 0).or(self.cookie);
            self.sent = Some(packet.iter().take(256).copied().collect());
        }
    }
}

/// Where to listen or to be bound.
fn local(address: IpAddr, port: u16, shape: u8) -> Local {
    Local { address: (address, port).into(), v6_only: shape & 32 != 0 }
}

fn pmtu(shape: u8) -> PathMtuDiscovery {
    let all = [PathMtuDiscovery::Want, PathMtuDiscovery::Dont, PathMtuDiscovery::Probe];
    all[usize::from(shape) % all.len()]
}

fn options(input: &mut Input<'_>) -> TcpOptions {
    let (bits, more) = (input.byte(), input.byte());
    TcpOptions {
        nodelay: bits & 1 != 0,
        cork: bits & 2 != 0,
        keepalive: bits & 8 != 0,
        keepidle_s: u32::from(input.byte()),
        linger_s: (bits & 16 != 0).then_some(0),
        user_timeout_ms: u32::from(bits & 32) * 100,
        maxseg: if bits & 64 != 0 { input.short() } else { 0 },
        congestion: CongestionKind::ALL[usize::from(more & 3)],
        fast_open: more & 4 != 0,
        fast_open_no_cookie: more & 8 != 0,
        fast_open_queue: u32::from(more >> 4 & 1) * 2,
        defer_accept: more >> 5 & 1,
        pmtu: pmtu(more >> 6),
        linger2_s: if bits & 4 != 0 { i32::from(input.byte()) - 1 } else { 0 },
        max_pacing_rate: if bits & 128 != 0 { input.short().into() } else { u64::MAX },
        ..TcpOptions::default()
    }
}

#[cfg(test)]
mod tests {
    fn survive(mut state: u64, rounds: usize) {
        for round in 0..rounds {
            let len = 16 + round % 1200;
            let mut data = Vec::with_capacity(len);
            for _ in 0..len {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                data.push((state >> 32) as u8);
            }
            let result = std::panic::catch_unwind(|| super::run(&data));
            assert!(result.is_ok(), "round {round}");
        }
    }

    /// The fuzzer's poor relation: always the same inputs, so that it runs with the tests.
    #[test]
    fn a_stack_survives_arbitrary_input() {
        survive(0x9e37_79b9_7f4a_7c15, 400);
    }

    #[test]
    #[ignore = "takes minutes; for soaks: cargo test --release -p outboard-fuzz-targets -- --ignored"]
    fn a_stack_survives_much_arbitrary_input() {
        for seed in 1..=20 {
            survive(seed, 2000);
        }
    }
}
