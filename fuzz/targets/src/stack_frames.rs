//! A whole stack under arbitrary frames, requests, times and exports. Nothing may panic; what
//! comes out must be a frame whose parts exist; a stack left alone must come to rest.

use std::collections::HashMap;
use std::net::IpAddr;

use stack::api::*;
use stack::{Config, HEADER_MAX, Limits, Stack};
use wire::checksum::Sum;
use wire::ethernet::{EtherType, EthernetHeader};
use wire::ipv4::{Ipv4Header, Protocol};
use wire::ipv6::{Ipv6Header, walk};
use wire::tcp::{TcpFlags, TcpHeader, TcpOptions as Options};
use wire::udp::UdpHeader;
use wire::{MacAddr, arp, checksum, ethernet, icmpv6, ipv4, ipv6, mld, ndp, tcp};

const OWN_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const PEER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const OWN: [u8; 4] = [10, 0, 0, 1];
const OWN_V6: [u16; 8] = [0xfd00, 0, 0, 0, 0, 0, 0, 1];
const ROUTER: [u16; 8] = [0xfe80, 0, 0, 0, 0, 0, 0, 0xff];
/// Of ICMPv6 (RFC 4861, section 4.2).
const ROUTER_ADVERTISEMENT: u8 = 134;
const PEER: [u8; 4] = [10, 0, 0, 2];
const INTERFACE: InterfaceIndex = InterfaceIndex(0);
/// Frames that one input may cause before the stack counts as running away.
const FRAMES_MAX: usize = 4096;

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
    last: Option<(TcpHeader, u32)>,
}

/// One input.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let mut run = Run::new(input.byte());
    while !input.is_over() {
        run.step(&mut input);
        run.drain();
    }
    // Left alone for a day, it comes to rest, whatever happened before.
    for _ in 0..10_000 {
        let Some(next) = run.stack.next_deadline() else { break };
        if next.0 > run.now.0 + 86_400_000_000_000 {
            break;
        }
        run.now = Instant(next.0.max(run.now.0 + 1));
        run.timers();
        run.drain();
    }
    let export = run.stack.export();
    let again = Stack::import(&export).expect("our own export").export();
    assert!(export == again, "an import is not what was exported");
}

impl Run {
    fn new(seed: u8) -> Self {
        let mut config = Config::new([seed; 32]);
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
        Self {
            stack,
            keeper: Keeper::default(),
            now,
            ids: Vec::new(),
            written: HashMap::new(),
            last: None,
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 17 {
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
            16 => self.router_says(input),
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

    fn receive(&mut self, frame: &[u8], meta: RxFrameMeta) {
        self.stack.on_frame(self.now, INTERFACE, frame, meta, &mut self.keeper);
    }

    fn receive_ip(&mut self, ip: Ipv4Header, payload: &[u8], meta: RxFrameMeta) {
        let mut frame = vec![0; 34];
        let ethernet =
            EthernetHeader { dst: OWN_MAC, src: PEER_MAC, vlan: None, ethertype: EtherType::IPV4 };
        ethernet.emit(&mut frame).expect("room");
        if ip.emit(payload.len(), &mut frame[14..]).is_ok() {
            frame.extend(payload);
            self.receive(&frame, meta);
        }
    }

    /// A good IP header around anything, also in fragments.
    fn packet(&mut self, input: &mut Input<'_>) {
        let fragment = input.short();
        let ip = Ipv4Header {
            protocol: Protocol([1, 6, 17, 1][usize::from(input.byte() % 4)]),
            identification: u16::from(input.byte() % 2),
            dont_fragment: false,
            more_fragments: fragment & 0x2000 != 0,
            fragment_offset: (fragment & 0x1f) << 3,
            src: if input.byte() == 0 { [10, 0, 0, input.byte()] } else { PEER }.into(),
            dst: OWN.into(),
            ..Ipv4Header::default()
        };
        let len = usize::from(input.byte()) * 8;
        let mut payload = input.bytes(len).to_vec();
        // Right ICMP sums let the quoted packets be looked at.
        if ip.protocol == Protocol::ICMP && !ip.is_fragment() && payload.len() >= 8 {
            payload[2..4].fill(0);
            let sum = Sum::of(&payload).finish();
            payload[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        self.receive_ip(ip, &payload, meta(input));
    }

    /// A segment near what the last one of ours suggests.
    fn segment(&mut self, input: &mut Input<'_>) {
        let near = |input: &mut Input<'_>, to: u32| match input.byte() {
            delta @ 0..=200 => to.wrapping_add(u32::from(delta / 50)),
            delta @ 201..=240 => to.wrapping_sub(u32::from(delta - 200) * 300),
            _ => u32::from(input.short()) << 16 | u32::from(input.short()),
        };
        let (ports, sequence, acknowledged) = match self.last {
            Some((ours, len)) => {
                ((ours.dst_port, ours.src_port), ours.ack.0, ours.seq.0.wrapping_add(len))
            }
            None => ((input.short(), 80), 0, 0),
        };
        let ports = match input.byte() {
            0..=40 => (input.short(), 80),
            _ => ports,
        };
        let flags = match input.byte() {
            0..=30 => TcpFlags(input.byte()),
            31..=60 => TcpFlags(0x02),
            61..=80 => TcpFlags(0x12),
            81..=110 => TcpFlags(0x11),
            _ => TcpFlags(0x10),
        };
        let options_len = usize::from(input.byte() % 11);
        let options = input.bytes(options_len * 4).to_vec();
        let options = &options[..options.len() / 4 * 4];
        let header = TcpHeader {
            src_port: ports.0,
            dst_port: ports.1,
            seq: tcp::SeqNumber(near(input, sequence)),
            ack: tcp::SeqNumber(near(input, acknowledged)),
            flags,
            window: input.short(),
            checksum: 0,
            urgent: u16::from(input.byte()),
        };
        let mut bytes = [0; 60];
        let Ok(len) = header.emit(&Options::default(), &mut bytes) else { return };
        let mut bytes = bytes[..len].to_vec();
        bytes.splice(20.., options.iter().copied());
        bytes[12] = ((bytes.len() / 4) as u8) << 4;
        let len = usize::from(input.byte()) * 6;
        bytes.extend(input.bytes(len));
        let ip = Ipv4Header {
            protocol: Protocol::TCP,
            src: PEER.into(),
            dst: OWN.into(),
            ..Ipv4Header::default()
        };
        let pseudo = Sum::pseudo_v4(ip.src, ip.dst, ip.protocol, bytes.len() as u32);
        let sum = pseudo.then(Sum::of(&bytes)).finish();
        bytes[16..18].copy_from_slice(&sum.to_be_bytes());
        let gso_bytes = (input.byte() > 200).then(|| input.short());
        self.receive_ip(ip, &bytes, RxFrameMeta { checksum: RxChecksum::Unknown, gso_bytes });
    }

    fn datagram(&mut self, input: &mut Input<'_>) {
        let len = usize::from(input.byte()) * 4;
        let port = u16::from(input.byte() % 8) + 50;
        let payload = input.bytes(len);
        let udp =
            UdpHeader { src_port: 9, dst_port: port, len: payload.len() as u16 + 8, checksum: 0 };
        let mut bytes = vec![0; 8];
        udp.emit(&mut bytes).expect("room");
        bytes.extend(payload);
        let ip = Ipv4Header {
            protocol: Protocol::UDP,
            src: PEER.into(),
            dst: OWN.into(),
            ..Ipv4Header::default()
        };
        self.receive_ip(ip, &bytes, RxFrameMeta::default());
    }

    fn neighbor(&mut self, input: &mut Input<'_>) {
        let packet = arp::ArpPacket {
            operation: arp::Operation(u16::from(input.byte() % 3)),
            sender_mac: MacAddr([2, 0, 0, 0, 0, input.byte()]),
            sender_ip: [10, 0, 0, input.byte()].into(),
            target_mac: MacAddr::ZERO,
            target_ip: if input.byte() < 200 { OWN } else { PEER }.into(),
        };
        let ethernet = EthernetHeader {
            dst: MacAddr::BROADCAST,
            src: packet.sender_mac,
            vlan: None,
            ethertype: EtherType::ARP,
        };
        let mut frame = [0; 42];
        ethernet.emit(&mut frame).expect("room");
        packet.emit(&mut frame[14..]).expect("room");
        // A neighbour that is not a unicast station is refused as malformed; that is the point.
        self.receive(&frame, RxFrameMeta::default());
    }

    /// What routers say: queries for groups, advertisements.
    fn router_says(&mut self, input: &mut Input<'_>) {
        let (kind, hop_limit) = match input.byte() % 2 {
            0 => (mld::QUERY, mld::HOP_LIMIT),
            _ => (ROUTER_ADVERTISEMENT, ndp::HOP_LIMIT),
        };
        let [src, dst] = [ROUTER.into(), ipv6::ALL_NODES];
        let mut message = vec![kind, 0, 0, 0];
        let len = usize::from(input.byte());
        message.extend(input.bytes(len));
        let pseudo = Sum::pseudo_v6(src, dst, Protocol::ICMPV6, message.len() as u32);
        let sum = pseudo.then(Sum::of(&message)).finish();
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let next_header = Protocol::ICMPV6;
        let ip = Ipv6Header { traffic_class: 0, flow_label: 0, next_header, hop_limit, src, dst };
        let mut frame = vec![0; 54];
        let dst = MacAddr::of_multicast_v6(dst);
        let ethernet =
            EthernetHeader { dst, src: PEER_MAC, vlan: None, ethertype: EtherType::IPV6 };
        ethernet.emit(&mut frame).expect("room");
        ip.emit(message.len(), &mut frame[14..]).expect("room");
        frame.extend(message);
        self.receive(&frame, RxFrameMeta::default());
    }

    fn open(&mut self, input: &mut Input<'_>) {
        let options = options(input);
        let remote = match input.byte() {
            0..=150 => PEER,
            151..=200 => OWN,
            other => [other, 0, 0, other],
        };
        let opened = match input.byte() % 3 {
            0 => self.stack.tcp_listen(
                std::net::SocketAddr::from((OWN, 80)),
                input.byte().into(),
                options,
                Owner(1),
            ),
            1 => {
                let to = (remote, input.short() % 100).into();
                self.stack.tcp_connect(self.now, to, None, options, Owner(2))
            }
            _ => {
                let local =
                    std::net::SocketAddr::from(([0, 0, 0, 0], u16::from(input.byte() % 8) + 50));
                self.stack.udp_bind(local, Owner(3))
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
        match input.byte() % 12 {
            0 | 1 => {
                if let Ok(Some(accepted)) = stack.tcp_accept(id) {
                    self.ids.push(accepted.id);
                    let _ = stack.tcp_assign(accepted.id, Owner(4));
                }
            }
            2..=4 => {
                let end = self.written.entry(id).or_default();
                *end += u64::from(input.short());
                let _ = stack.tcp_written(now, id, *end);
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
        let remote = match input.byte() % 4 {
            0 => None,
            1 => Some((OWN, u16::from(input.byte() % 8) + 50).into()),
            _ => Some((PEER, input.short()).into()),
        };
        match input.byte() % 6 {
            0 => drop(self.stack.udp_close(self.now, id)),
            1 => drop(self.stack.udp_connect(id, remote)),
            2 => drop(self.stack.udp_take_levels(id)),
            _ => {
                let send = UdpSend {
                    remote,
                    payload_len: u32::from(input.short()) * 3 / 2,
                    gso_bytes: (input.byte() > 200).then(|| input.short().max(64)),
                    ..UdpSend::default()
                };
                self.transmit_datagram(id, &send);
            }
        }
    }

    fn transmit_datagram(&mut self, id: SocketId, send: &UdpSend) {
        let mut header = [0; HEADER_MAX];
        let Ok(mut frame) = self.stack.udp_transmit(self.now, id, send, &mut header, || 0) else {
            return;
        };
        let mut next = 0;
        loop {
            assert!(usize::from(frame.header_bytes) <= HEADER_MAX && frame.offset == next);
            next += frame.len;
            frame = match (frame.more, frame.next) {
                (Some(rest), _) => {
                    self.stack.udp_fragment(rest, &mut header).expect("the interface is there")
                }
                (None, Some(offset)) => {
                    let send = UdpSend { offset, ..*send };
                    let sent = self.stack.udp_transmit(self.now, id, &send, &mut header, || 0);
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
                self.stack.on_frame(self.now, loopback, &frame, meta, &mut self.keeper);
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
            let len = segment.payload.len() as u32
                + u32::from(flags.0 & 1 != 0)
                + u32::from(flags.0 & 2 != 0);
            self.last = Some((segment.header, len));
        }
    }
}

fn options(input: &mut Input<'_>) -> TcpOptions {
    let bits = input.byte();
    TcpOptions {
        nodelay: bits & 1 != 0,
        cork: bits & 2 != 0,
        keepalive: bits & 8 != 0,
        keepidle_s: u32::from(input.byte()),
        linger_s: (bits & 16 != 0).then_some(0),
        user_timeout_ms: u32::from(bits & 32) * 100,
        maxseg: if bits & 64 != 0 { input.short() } else { 0 },
        congestion: if bits & 128 != 0 { CongestionKind::Reno } else { CongestionKind::Cubic },
        ..TcpOptions::default()
    }
}

fn meta(input: &mut Input<'_>) -> RxFrameMeta {
    let checksum = match input.byte() {
        0..=100 => RxChecksum::Valid,
        101..=180 => RxChecksum::Unknown,
        _ => RxChecksum::Partial { start: input.short() % 64, offset: input.short() % 32 },
    };
    RxFrameMeta { checksum, gso_bytes: (input.byte() > 200).then(|| input.short()) }
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
