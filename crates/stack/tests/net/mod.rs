//! Two hosts on a wire in memory, in virtual time, with seeded faults.

#![allow(dead_code)] // Each test crate uses its part.

pub mod v6;

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};

use outboard_stack::api::*;
use outboard_stack::drops::DropReason;
use outboard_stack::{Config, HEADER_MAX, Limits, Stack};
use wire::checksum::Sum;
use wire::ethernet::{EtherType, EthernetHeader};
use wire::ipv4::Protocol;
use wire::udp::UdpHeader;
use wire::{MacAddr, checksum, ethernet, icmp, icmpv6, ipv4, ipv6, text};

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MS;
/// One way.
pub const DELAY: u64 = MS;

/// xorshift64*: enough for faults, and the same everywhere.
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
    pub fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 16) % bound.max(1)
    }
    pub fn per_mille(&mut self, chance: u64) -> bool {
        self.below(1000) < chance
    }
}

/// Faults of the wire, each in per mille of the frames.
#[derive(Clone, Copy, Default)]
pub struct Faults {
    pub loss: u64,
    pub reorder: u64,
    pub duplicate: u64,
    pub corrupt: u64,
}

/// What a host has received.
#[derive(Default)]
pub struct Store {
    pub streams: HashMap<SocketId, Vec<u8>>,
    pub datagrams: Vec<(SocketId, DatagramMeta, Vec<u8>)>,
    pub errors: Vec<(SocketId, UdpErrorReport, Vec<u8>)>,
    pub refuse: bool,
}

impl Sink for Store {
    fn stream(&mut self, id: SocketId, _: Owner, offset: u64, bytes: &[u8]) -> bool {
        if self.refuse {
            return false;
        }
        let stream = self.streams.entry(id).or_default();
        let end = offset as usize + bytes.len();
        if stream.len() < end {
            stream.resize(end, 0);
        }
        stream[offset as usize..end].copy_from_slice(bytes);
        true
    }
    fn datagram(&mut self, id: SocketId, _: Owner, meta: &DatagramMeta, bytes: &[u8]) -> bool {
        if !self.refuse {
            self.datagrams.push((id, *meta, bytes.to_vec()));
        }
        !self.refuse
    }
    fn udp_error(&mut self, id: SocketId, _: Owner, said: &UdpErrorReport, bytes: &[u8]) -> bool {
        self.errors.push((id, *said, bytes.to_vec()));
        true
    }
}

/// A frame with what a port says about it.
#[derive(Clone)]
pub struct Wired {
    pub bytes: Vec<u8>,
    pub meta: RxFrameMeta,
}

pub struct Host {
    pub stack: Stack,
    pub store: Store,
    pub mac: MacAddr,
    pub ip: IpAddr,
    /// Bytes that each connection sends, from the SYN on.
    pub outgoing: HashMap<SocketId, Vec<u8>>,
    pub events: Vec<Event>,
}

pub const INTERFACE: InterfaceIndex = InterfaceIndex(0);

/// A frame of these parts.
pub fn frame(src: MacAddr, dst: MacAddr, kind: EtherType, header: &[u8], rest: &[u8]) -> Vec<u8> {
    let ethernet = EthernetHeader { dst, src, vlan: None, ethertype: kind };
    let mut frame = vec![0; 14];
    ethernet.emit(&mut frame).unwrap();
    frame.extend(header);
    frame.extend(rest);
    frame
}

/// A datagram from port 99, checksum done.
pub fn udp(src: IpAddr, dst: IpAddr, port: u16, payload: &[u8]) -> Vec<u8> {
    let len = payload.len() as u16 + 8;
    let mut bytes = vec![0; 8];
    let mut udp = UdpHeader { src_port: 99, dst_port: port, len, checksum: 0 };
    udp.emit(&mut bytes).unwrap();
    bytes.extend(payload);
    let pseudo = Sum::pseudo(src, dst, Protocol::UDP, len.into()).unwrap();
    udp.checksum = pseudo.then(Sum::of(&bytes)).finish_udp();
    udp.emit(&mut bytes).unwrap();
    bytes
}

/// Hands a frame to a host.
pub fn receive(net: &mut Net, host: usize, frame: &[u8], meta: RxFrameMeta) {
    let now = net.now;
    let host = &mut net.hosts[host];
    host.stack.on_frame(
        now,
        &RxFrame { interface: INTERFACE, bytes: frame, meta },
        &mut host.store,
    );
}

/// Hands a frame to host 0, which is to drop it for this reason.
#[track_caller]
pub fn expect_drop(net: &mut Net, frame: &[u8], reason: DropReason) {
    let before = net.hosts[0].stack.counters().dropped(reason);
    receive(net, 0, frame, RxFrameMeta::default());
    assert_eq!(net.hosts[0].stack.counters().dropped(reason), before + 1, "{reason:?}");
}

impl Host {
    pub fn new(number: u8, mtu: u16, tso: bool, limits: Limits) -> Self {
        Self::with_ipv6(number, mtu, tso, limits, Ipv6Mode::Off)
    }

    /// A host that speaks IPv6, too; its address is the IPv6 one then.
    pub fn with_ipv6(number: u8, mtu: u16, tso: bool, limits: Limits, ipv6: Ipv6Mode) -> Self {
        let mut config = Config::new([number; 32]);
        config.limits = limits;
        let mut stack = Stack::new(config);
        let mac = MacAddr([2, 0, 0, 0, 0, number]);
        let ip = IpAddr::from([10, 0, 0, number]);
        let gateway = Some(IpAddr::from([10, 0, 0, 254]));
        let mut addresses = vec![Cidr { address: ip, prefix: 24 }];
        let mut ip = ip;
        if ipv6 != Ipv6Mode::Off {
            ip = IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(number)]);
            addresses.push(Cidr { address: ip, prefix: 64 });
        }
        let interface = InterfaceConfig {
            mac,
            mtu,
            addresses,
            gateway,
            routes: Vec::new(),
            shared: None,
            ipv6,
            tso,
            tso6: tso,
            uso: false,
        };
        assert_eq!(stack.add_interface(interface), Some(INTERFACE));
        Self {
            stack,
            store: Store::default(),
            mac,
            ip,
            outgoing: HashMap::new(),
            events: Vec::new(),
        }
    }

    pub fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.ip, port)
    }

    /// Everything the host wants to send now, as whole frames; loopback is served on the way.
    pub fn frames(&mut self, now: Instant) -> Vec<Wired> {
        let mut header = [0; HEADER_MAX];
        let mut out = Vec::new();
        loop {
            let mut is_idle = true;
            while let Some(t) = self.stack.poll_transmit(now, InterfaceIndex::LOOPBACK, &mut header)
            {
                is_idle = false;
                let frame = self.assemble(&t, &header).bytes;
                let meta = RxFrameMeta { checksum: RxChecksum::Valid, gso_bytes: None };
                let (stack, store) = (&mut self.stack, &mut self.store);
                stack.on_frame(
                    now,
                    &RxFrame { interface: InterfaceIndex::LOOPBACK, bytes: &frame, meta },
                    store,
                );
            }
            while let Some(t) = self.stack.poll_transmit(now, INTERFACE, &mut header) {
                is_idle = false;
                out.push(self.assemble(&t, &header));
            }
            self.stack.tell_unreached(&mut self.store);
            while let Some(event) = self.stack.poll_event() {
                self.events.push(event);
            }
            if is_idle {
                return out;
            }
        }
    }

    /// A frame that is to be cut goes over the wire whole, with its checksum partial, as between
    /// two virtual ports.
    fn assemble(&mut self, transmit: &Transmit, header: &[u8; HEADER_MAX]) -> Wired {
        let mut header = *header;
        if let (true, Payload::Stream { id, offset, len, .. }) =
            (transmit.unsigned, transmit.payload)
        {
            let payload = &self.outgoing[&id][offset as usize..][..len as usize];
            self.stack.tcp_sign(transmit, &mut header, payload);
        }
        let mut frame = header[..usize::from(transmit.header_bytes)].to_vec();
        match transmit.payload {
            Payload::None => {}
            Payload::Stream { id, offset, len, .. } => {
                let from = offset as usize;
                frame.extend(&self.outgoing[&id][from..from + len as usize]);
            }
            Payload::Own { start, len } => {
                frame.extend(self.stack.own_bytes(start, len));
                self.stack.release_own(start, len);
            }
        }
        if let (Some(_), Some((start, offset))) = (transmit.gso_bytes, transmit.checksum) {
            let checksum = RxChecksum::Partial { start, offset };
            let meta = RxFrameMeta { checksum, gso_bytes: transmit.gso_bytes };
            return Wired { bytes: frame, meta };
        }
        complete(&mut frame, transmit.checksum);
        frame.into()
    }

    /// The frames of one datagram.
    pub fn datagram(
        &mut self,
        now: Instant,
        id: SocketId,
        remote: Option<SocketAddr>,
        payload: &[u8],
    ) -> Result<Vec<Vec<u8>>, RequestError> {
        let payload_len = payload.len() as u32;
        let send = UdpSend { remote, payload_len, ..UdpSend::default() };
        self.datagram_as(now, id, &send, payload)
    }

    /// The frames of what `send` says; several datagrams that the port does not cut each have one.
    pub fn datagram_as(
        &mut self,
        now: Instant,
        id: SocketId,
        send: &UdpSend,
        payload: &[u8],
    ) -> Result<Vec<Vec<u8>>, RequestError> {
        let mut send = *send;
        let mut header = [0; HEADER_MAX];
        let sum = || checksum::Sum::of(payload).folded();
        let mut frame = self.stack.udp_transmit(
            now,
            id,
            &send,
            UdpOut { header: &mut header, payload_sum: sum },
        )?;
        let mut frames = Vec::new();
        loop {
            let mut bytes = header[..usize::from(frame.header_bytes)].to_vec();
            bytes.extend(&payload[frame.offset as usize..(frame.offset + frame.len) as usize]);
            complete(&mut bytes, frame.checksum);
            frames.push(bytes);
            frame = match (frame.more, frame.next) {
                (Some(rest), _) => {
                    self.stack.udp_fragment(rest, &mut header).expect("the interface is there")
                }
                (None, Some(next)) => {
                    send.offset = next;
                    self.stack.udp_transmit(
                        now,
                        id,
                        &send,
                        UdpOut { header: &mut header, payload_sum: sum },
                    )?
                }
                (None, None) => return Ok(frames),
            };
        }
    }

    /// Gives a datagram to the stack, to be sent when its next hop is known.
    pub fn keep(&mut self, now: Instant, id: SocketId, remote: SocketAddr, payload: &[u8]) {
        let payload_len = payload.len() as u32;
        let send = UdpSend { remote: Some(remote), payload_len, ..UdpSend::default() };
        assert_eq!(self.stack.udp_keep(now, id, &send, payload), Ok(None));
    }

    /// Appends to what a connection sends.
    pub fn write(&mut self, now: Instant, id: SocketId, bytes: &[u8]) {
        let outgoing = self.outgoing.entry(id).or_default();
        outgoing.extend(bytes);
        self.stack.tcp_written(now, id, outgoing.len() as u64).expect("writable");
    }

    /// What a connection has received in order, all of it consumed.
    pub fn read_all(&mut self, now: Instant, id: SocketId) -> Vec<u8> {
        let Ok(levels) = self.stack.tcp_levels(id) else { return Vec::new() };
        let _ = self.stack.tcp_consumed(now, id, levels.readable);
        let stream = self.store.streams.get(&id).cloned().unwrap_or_default();
        stream[..levels.readable as usize].to_vec()
    }
}

impl From<Vec<u8>> for Wired {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes, meta: RxFrameMeta::default() }
    }
}

fn complete(frame: &mut [u8], partial: Option<(u16, u16)>) {
    if let Some((start, offset)) = partial {
        checksum::complete(frame, start.into(), offset.into()).expect("inside the frame");
    }
}

/// What a router answers to a packet that it cannot cut (RFC 1191, RFC 8201).
fn too_big(frame: &[u8], mtu: u16) -> Vec<u8> {
    let (ethernet, packet) = ethernet::parse(frame).expect("our own");
    let mut bytes = vec![0; 14];
    let back = EthernetHeader { dst: ethernet.src, src: ethernet.dst, ..ethernet };
    back.emit(&mut bytes).expect("room");
    let mut ip = [0; 40];
    let mut message = vec![0; 1240];
    if ethernet.ethertype == ethernet::EtherType::IPV6 {
        let (sent, _) = ipv6::parse(packet).expect("our own");
        let router = "fe80::fe".parse().expect("an address");
        let quoted = packet.get(..1232).expect("longer than an MTU");
        let error = icmpv6::Icmpv6Message::PacketTooBig { mtu: mtu.into(), quoted };
        let len = error.emit(router, sent.src, &mut message).expect("room");
        message.truncate(len);
        let header = ipv6::Ipv6Header {
            next_header: ipv4::Protocol::ICMPV6,
            src: router,
            dst: sent.src,
            ..sent
        };
        let len = header.emit(message.len(), &mut ip).expect("room");
        bytes.extend(&ip[..len]);
    } else {
        let quoted = packet.get(..28).expect("longer than an MTU");
        let code = icmp::unreachable::FRAGMENTATION_NEEDED;
        let error = icmp::IcmpMessage::Unreachable { code, next_hop_mtu: mtu, quoted };
        let len = error.emit(&mut message).expect("room");
        message.truncate(len);
        let header = ipv4::Ipv4Header {
            protocol: ipv4::Protocol::ICMP,
            src: [10, 0, 0, 254].into(),
            dst: ipv4::parse(packet).expect("our own").header.src,
            ..Default::default()
        };
        let len = header.emit(message.len(), &mut ip).expect("room");
        bytes.extend(&ip[..len]);
    }
    bytes.extend(message);
    bytes
}

/// Hosts 1 and 2 on a wire.
pub struct Net {
    pub now: Instant,
    pub hosts: [Host; 2],
    pub faults: Faults,
    random: Random,
    in_flight: BTreeMap<(u64, u64), (usize, Wired)>,
    sent: u64,
    /// Every frame put on the wire, as text.
    pub transcript: Vec<String>,
    /// A router between the hosts takes packets of at most so many bytes, and says so.
    pub router_mtu: Option<u16>,
    /// Drops the frames it says `true` to.
    pub filter: Option<fn(&str) -> bool>,
}

impl Net {
    pub fn new(seed: u64) -> Self {
        Self::with(seed, 1500, false)
    }

    pub fn with(seed: u64, mtu: u16, tso: bool) -> Self {
        Self {
            now: Instant(SECOND),
            hosts: [Host::new(1, mtu, tso, small()), Host::new(2, mtu, tso, small())],
            faults: Faults::default(),
            random: Random::new(seed),
            in_flight: BTreeMap::new(),
            sent: 0,
            transcript: Vec::new(),
            router_mtu: None,
            filter: None,
        }
    }

    /// Hosts that speak IPv6, and know that their addresses are theirs.
    pub fn v6(seed: u64, mtu: u16, tso: bool) -> Self {
        let host = |number| Host::with_ipv6(number, mtu, tso, small(), Ipv6Mode::Static);
        let mut net = Self { hosts: [host(1), host(2)], ..Self::with(seed, mtu, tso) };
        net.run_for(3 * SECOND);
        net.transcript.clear();
        net
    }

    /// Puts a frame on the wire, to host `to`.
    pub fn send(&mut self, to: usize, frame: impl Into<Wired>) {
        let Wired { bytes: mut frame, meta } = frame.into();
        let line = text::Line::of(&frame).to_string();
        if self.filter.is_some_and(|filter| filter(&line)) {
            self.transcript.push(format!("lost {line}"));
            return;
        }
        if let Some(mtu) = self.router_mtu.filter(|&mtu| frame.len() > 14 + usize::from(mtu)) {
            self.transcript.push(format!("too big {line}"));
            self.router_mtu = None;
            self.send(1 - to, too_big(&frame, mtu));
            self.router_mtu = Some(mtu);
            return;
        }
        self.transcript.push(line);
        let Faults { loss, reorder, duplicate, corrupt } = self.faults;
        if self.random.per_mille(loss) {
            return;
        }
        if self.random.per_mille(corrupt) {
            let at = self.random.below(frame.len() as u64) as usize;
            frame[at] ^= 1 << self.random.below(8);
        }
        let copies = if self.random.per_mille(duplicate) { 2 } else { 1 };
        for _ in 0..copies {
            let late = if self.random.per_mille(reorder) { self.random.below(10 * MS) } else { 0 };
            self.sent += 1;
            self.in_flight.insert(
                (self.now.0 + DELAY + late, self.sent),
                (to, Wired { bytes: frame.clone(), meta }),
            );
        }
    }

    /// Lets everything happen that happens now.
    pub fn settle(&mut self) {
        loop {
            let now = self.now;
            let due: Vec<_> =
                self.in_flight.range(..=(now.0, u64::MAX)).map(|(key, _)| *key).collect();
            for key in &due {
                let (to, frame) = self.in_flight.remove(key).expect("just seen");
                let Host { stack, store, .. } = &mut self.hosts[to];
                stack.on_frame(
                    now,
                    &RxFrame { interface: INTERFACE, bytes: &frame.bytes, meta: frame.meta },
                    store,
                );
            }
            let mut frames = Vec::new();
            for (i, host) in self.hosts.iter_mut().enumerate() {
                while host.stack.on_timers(now) {}
                frames.extend(host.frames(now).into_iter().map(|frame| (1 - i, frame)));
            }
            if frames.is_empty() && due.is_empty() {
                return;
            }
            for (to, frame) in frames {
                self.send(to, frame);
            }
        }
    }

    /// The next moment at which anything happens.
    pub fn next(&self) -> Option<Instant> {
        let wire = self.in_flight.keys().next().map(|key| Instant(key.0));
        let timers = self.hosts.iter().filter_map(|host| host.stack.next_deadline());
        // A deadline may be early by what a wheel rounds; time still has to move.
        let next = timers.chain(wire).min()?;
        Some(Instant(next.0.max(self.now.0 + 1)))
    }

    /// Runs for `span` nanoseconds.
    pub fn run_for(&mut self, span: u64) {
        let end = Instant(self.now.0 + span);
        self.settle();
        while let Some(next) = self.next().filter(|next| *next <= end) {
            self.now = next;
            self.settle();
        }
        self.now = end;
        self.settle();
    }

    /// Runs until `done` or for `span` nanoseconds; whether it was done.
    pub fn run_until(&mut self, span: u64, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = Instant(self.now.0 + span);
        self.settle();
        loop {
            if done(self) {
                return true;
            }
            self.settle();
            match self.next().filter(|next| *next <= end) {
                Some(next) => self.now = next,
                None => return done(self),
            }
            self.settle();
        }
    }

    /// Sends a datagram from host `from`, waiting for ARP; the error if it cannot be sent.
    pub fn datagram(
        &mut self,
        from: usize,
        id: SocketId,
        remote: Option<SocketAddr>,
        payload: &[u8],
    ) -> Result<(), RequestError> {
        loop {
            let now = self.now;
            match self.hosts[from].datagram(now, id, remote, payload) {
                Err(RequestError::WaitNeighbor) => {
                    let generation = self.hosts[from].stack.neighbor_generation();
                    let told = self.run_until(10 * SECOND, |net| {
                        net.hosts[from].stack.neighbor_generation() != generation
                    });
                    assert!(told, "a neighbour is found or given up within ten seconds");
                }
                Err(error) => return Err(error),
                Ok(frames) => {
                    let is_own = remote.is_some_and(|to| to.ip() == self.hosts[from].ip);
                    for frame in frames {
                        if is_own {
                            let meta = RxFrameMeta { checksum: RxChecksum::Valid, gso_bytes: None };
                            let Host { stack, store, .. } = &mut self.hosts[from];
                            stack.on_frame(
                                now,
                                &RxFrame {
                                    interface: InterfaceIndex::LOOPBACK,
                                    bytes: &frame,
                                    meta,
                                },
                                store,
                            );
                        } else {
                            self.send(1 - from, frame);
                        }
                    }
                    return Ok(());
                }
            }
        }
    }
}

/// Limits that make a stack cheap to build.
pub fn small() -> Limits {
    Limits {
        connections: 64,
        time_waits: 32,
        listeners: 8,
        syn_queue: 16,
        accept_queue: 16,
        udp_sockets: 16,
        neighbors: 8,
        reassemblies: 4,
        path_mtus: 8,
        fast_open_servers: 4,
        reassemblies_per_source: 2,
        reassembly_bytes: 128 * 1024,
        own_bytes: 512 * 1024,
        groups: 16,
    }
}
